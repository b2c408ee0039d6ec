//! The image stacking workloads of `Raicu09` §6, table 3.
//!
//! Each task cuts one object out of the file that the object lies in. A locality is the number of objects
//! per file. The objects are dealt out to the files as evenly as the counts allow and come in random order,
//! all at once. A file is 2 MB compressed (GZ) or 6 MB uncompressed (FIT).
//!
//! **The time of a task.** Figure 43 is a picture and its numbers are not in the text. The text says that
//! GZ takes twice as long as FIT, that local disk is 1.5 times faster than the shared file system, that the
//! stacking itself takes under 1 ms a step, and that converting coordinates takes 10 to 20 %: the rest is
//! opening and reading. We take the scale from §6.5: reading FIT, the shared file system is "saturated at
//! around 16 CPUs with 3.4 Gb/s", so one CPU takes `16 * 48 Mb / 3.4 Gb/s = 226 ms` per stack there and
//! `226 / 1.5 = 151 ms` from local disk, and GZ takes 452 and 301 ms. Two numbers that were not used agree:
//! with a GZ time of 452 ms, 128 CPUs ask for 4.5 Gb/s, and the paper says that GZ saturates at 128 CPUs;
//! and the 39 Gb/s of 128 CPUs at locality 30 (6 MB read locally per stack) are 158 ms per stack.
//!
//! A simulated program reads its input at the rate of its node's disk and then computes. So the compute
//! time here is the time from local disk minus the time of that reading. `disk_bytes_per_s` has to be the
//! rate at which the simulated machine reads; the default is the paper's local disk (figure 10: 76 Gb/s
//! with 64 nodes).
//!
//! **GZ in data diffusion.** The paper's executors cache files after they uncompressed them: 2 MB come from
//! home and 6 MB are read locally (figure 49). That is [`Uncompress::OncePerNode`]: each task has the
//! compressed file as a packed input, and each node makes the uncompressed one once, which the simulator does
//! as the live executor does. The cache keeps both forms as its policy has it. The machine says how fast files are
//! made ([`made_bytes_per_s`](eyas_sim::machine::Costs::made_bytes_per_s)); the paper's 150 ms for 6 MB are 40 MB/s. A node
//! makes files beside its programs, without a slot. [`Uncompress::EachTask`] is the behaviour of the paper's runs
//! without caches.

use eyas_sim::workload::{
    ArrivingTasks, Compute, Error, MB, MS_NS, SECOND_NS, Sizes, UNPACKED_RATIO, Workload, at_least_one,
    template,
};
use eyas_terms::Timestamp;
use eyas_terms::array::{Column, Part, Pattern, Piece, TaskArray};
use eyas_terms::location::MADE;
use eyas_terms::rng::Rng;
use std::fmt::Write;
use std::sync::Arc;

/// A row of table 3.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Locality {
    /// The locality as the paper writes it.
    pub name: &'static str,
    pub n_objects: u32,
    pub n_files: u32,
}

impl Locality {
    /// `1 - 1 / locality`, from the exact counts: the hit ratio when each file is fetched once (§6.5).
    pub fn hit_ratio_ideal(&self) -> f64 {
        1.0 - f64::from(self.n_files) / f64::from(self.n_objects)
    }
}

/// Table 3.
pub const TABLE_3: [Locality; 9] = [
    Locality { name: "1", n_objects: 111_700, n_files: 111_700 },
    Locality { name: "1.38", n_objects: 154_345, n_files: 111_699 },
    Locality { name: "2", n_objects: 97_999, n_files: 49_000 },
    Locality { name: "3", n_objects: 88_857, n_files: 29_620 },
    Locality { name: "4", n_objects: 76_575, n_files: 19_145 },
    Locality { name: "5", n_objects: 60_590, n_files: 12_120 },
    Locality { name: "10", n_objects: 46_480, n_files: 4_650 },
    Locality { name: "20", n_objects: 40_460, n_files: 2_025 },
    Locality { name: "30", n_objects: 23_695, n_files: 790 },
];

/// The row of table 3 with this locality, as the paper writes it.
pub fn find_locality(name: &str) -> Result<Locality, Error> {
    let found = TABLE_3.iter().find(|row| row.name == name).copied();
    found.ok_or_else(|| {
        let known: Vec<&str> = TABLE_3.iter().map(|row| row.name).collect();
        Error::config(format!("table 3 has no locality `{name}`; it has {}", known.join(", ")))
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Gz,
    Fit,
}

/// Who uncompresses a GZ file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncompress {
    EachTask,
    /// Each node, for all tasks that it runs.
    OncePerNode,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StackingConfig {
    pub locality: Locality,
    pub format: Format,
    pub uncompress: Uncompress,
    pub gz_bytes: u64,
    pub fit_bytes: u64,
    /// Time of one stack from an uncompressed file on local disk, including its reading.
    pub stack_ns: u64,
    /// Additional time for a compressed file.
    pub uncompress_ns: u64,
    /// The rate at which the simulated node reads; the time of reading is not compute time.
    pub disk_bytes_per_s: u64,
}

impl Default for StackingConfig {
    fn default() -> Self {
        StackingConfig {
            locality: TABLE_3[1],
            format: Format::Gz,
            uncompress: Uncompress::OncePerNode,
            gz_bytes: 2 * MB,
            fit_bytes: 6 * MB,
            stack_ns: 151 * MS_NS,
            uncompress_ns: 150 * MS_NS,
            disk_bytes_per_s: 148 * MB,
        }
    }
}

/// Tasks in one array; a column of it is some tens of kilobytes.
const ARRAY_TASKS: usize = 8192;

pub fn stacking(seed: u64, config: StackingConfig) -> Result<Workload, Error> {
    let Locality { n_objects, n_files, .. } = config.locality;
    at_least_one("the number of files", u64::from(n_files))?;
    at_least_one("the rate of the disk in bytes per second", config.disk_bytes_per_s)?;
    if n_objects < n_files {
        return Err(Error::config(format!(
            "{n_objects} objects cannot lie in {n_files} files with at least one in each"
        )));
    }
    // The objects are dealt out like cards, then shuffled (Fisher, Yates).
    let mut files: Vec<u32> = (0..n_objects).map(|object| object % n_files).collect();
    let mut rng = Rng::new(seed);
    for last in (1..files.len()).rev() {
        files.swap(last, rng.below(last as u64 + 1) as usize);
    }

    let (file_bytes, letter) = match config.format {
        Format::Gz => (config.gz_bytes, "gz"),
        Format::Fit => (config.fit_bytes, "fit"),
    };
    let is_packed = (config.format, config.uncompress) == (Format::Gz, Uncompress::OncePerNode);
    let program_bytes = if is_packed { file_bytes * UNPACKED_RATIO } else { file_bytes };
    let read_ns =
        (u128::from(program_bytes) * u128::from(SECOND_NS) / u128::from(config.disk_bytes_per_s)) as u64;
    let uncompress_ns = match (config.format, config.uncompress) {
        (Format::Gz, Uncompress::EachTask) => config.uncompress_ns,
        (Format::Gz, Uncompress::OncePerNode) | (Format::Fit, _) => 0,
    };
    let compute_ns = (config.stack_ns + uncompress_ns).saturating_sub(read_ns);

    let file = Piece::Column { column: 0, part: Part::Whole };
    let mut locations = vec![Pattern(vec![Piece::Literal("f".into()), file.clone()])];
    if is_packed {
        // The packed file stands directly before what is made of it.
        locations.push(Pattern(vec![Piece::Literal(format!("{MADE}gzip:f")), file]));
    }
    let template = template(Pattern(vec![Piece::Index]), "stack", locations, vec![]);
    let mut begin = 0;
    let arrays = std::iter::from_fn(move || {
        let part = files.get(begin..files.len().min(begin + ARRAY_TASKS)).filter(|part| !part.is_empty())?;
        let (mut column, mut text) = (Column::default(), String::new());
        for file in part {
            text.clear();
            let _ = write!(text, "{file}");
            assert!(column.push(&text), "an array's numbers fit a column");
        }
        column.shrink_to_fit();
        let array = TaskArray {
            n_tasks: part.len() as u32,
            first_index: begin as u64,
            template: template.clone(),
            columns: vec![column],
            needs: None,
        };
        let compute = Compute::Same(compute_ns);
        begin += part.len();
        Some(ArrivingTasks { at: Timestamp(0), array: Arc::new(array), compute })
    });
    Ok(Workload {
        name: format!("stacking-{}-{letter}", config.locality.name),
        n_tasks: u64::from(n_objects),
        ideal_ns: 0,
        read_bytes: u64::from(n_objects).saturating_mul(program_bytes),
        sizes: Sizes::Same(file_bytes),
        submissions: Box::new(arrays),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;
    use std::collections::BTreeMap;

    fn with(name: &str) -> StackingConfig {
        StackingConfig { locality: find_locality(name).unwrap(), ..StackingConfig::default() }
    }

    #[test]
    fn every_row_of_table_3_has_its_objects_and_files_evenly() {
        for row in TABLE_3 {
            let tasks = all_tasks(stacking(5, with(row.name)).unwrap());
            let mut n_reads: BTreeMap<String, u32> = BTreeMap::new();
            tasks.iter().for_each(|t| *n_reads.entry(t.1[0].clone()).or_default() += 1);
            assert_eq!(
                (tasks.len() as u32, n_reads.len() as u32),
                (row.n_objects, row.n_files),
                "{}",
                row.name
            );
            let even = row.n_objects / row.n_files;
            assert!(n_reads.values().all(|n| *n == even || *n == even + 1));
            assert!(!tasks.is_sorted_by_key(|t| t.1[0][1..].parse::<u32>().unwrap()));
        }
        // The paper's example: each file read three times gives 2/3.
        let three = find_locality("3").unwrap().hit_ratio_ideal();
        assert!((three - 2.0 / 3.0).abs() < 1e-3, "{three}");
        assert!(find_locality("7").unwrap_err().to_string().contains("1, 1.38, 2, 3, 4, 5, 10, 20, 30"));
    }

    #[test]
    fn a_compressed_file_is_uncompressed_by_nodes_or_by_each_task() {
        let first = |uncompress, format| {
            let tasks = all_tasks(stacking(5, StackingConfig { uncompress, format, ..with("30") }).unwrap());
            assert!(tasks.iter().all(|t| t.2 == tasks[0].2), "all take as long");
            (tasks[0].1.clone(), tasks[0].2)
        };
        let read_ns = |bytes| bytes * 1000 / 148;
        let (locations, ns) = first(Uncompress::OncePerNode, Format::Gz);
        assert_eq!(locations[1], format!("made:gzip:{}", locations[0]));
        assert_eq!(ns, 151 * MS_NS - read_ns(6 * MB));
        let (locations, ns) = first(Uncompress::EachTask, Format::Gz);
        assert_eq!((locations.len(), ns), (1, 301 * MS_NS - read_ns(2 * MB)));
        let (locations, ns) = first(Uncompress::OncePerNode, Format::Fit);
        assert_eq!((locations.len(), ns), (1, 151 * MS_NS - read_ns(6 * MB)));
    }

    #[test]
    fn the_seed_decides() {
        let tasks = all_tasks(stacking(1, with("30")).unwrap());
        assert_eq!(tasks, all_tasks(stacking(1, with("30")).unwrap()));
        assert_ne!(tasks, all_tasks(stacking(2, with("30")).unwrap()));
    }
}
