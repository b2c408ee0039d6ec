//! The applications of Zhang12 as shapes: which task reads the output of which other task, the sizes of
//! files, and how uneven tasks are.
//!
//! | shape | counts and bytes | times |
//! |---|---|---|
//! | [`Shape::Blast`] | tables III and VIII: a database in one slice per node, 16 query files for 256 cores, all pairs, a merge per query file | 143 s for `blastp` and `merge` (§VI-B2b): 1.5 s for one of the 16 sequences of a query file on a slice |
//! | [`Shape::Montage`] | tables II and VI: 1,319 images on a grid, each compared with three neighbours, two gathers | 1.2 s and 6.9 s for `mDiffFit` and `mBackground`, 28 s for `mConcatFit` (§VI-B1); assumed: 12 s for `mProject` |
//! | [`Shape::Cybershake`] | assumed (§VI-B1 has none): 32 ruptures that share two files of 400 MB, each with about 45 variations | assumed: 110 s to extract a rupture, 40 s for a seismogram, 1 s for its peaks |
//!
//! "Uneven" means log-normal, with a sigma that is assumed: 0.6 for a BLAST sequence, the same on all
//! slices ("task lengths are not related to the query sequence length"); 0.1 for a slice
//! ([`ShapeConfig::slice_sigma`], chosen so that stealing gains as much as in figure 11; with even slices
//! it gains nothing); 0.5 for the two together; 0.2 for Montage, which "is not irregular enough"; 0.5 for
//! seismograms, and 1 for the number of variations of a rupture.
//!
//! First inputs, which `first-input` goes by, are files that another task wrote: the formatted slice, the
//! image, the rupture. Intermediate files stay on the nodes. All tasks are submitted at time 0, makers
//! first.
//!
//! Not here: workflows from files ([`eyas_sim::workload::workflow`]).

use eyas_sim::workload::{
    ArrivingTasks, Compute, Error, MB, SECOND_NS, Sizes, Workload, at_least_one, links, template,
};
use eyas_terms::array::{Pattern, TaskArray};
use eyas_terms::rng::Rng;
use eyas_terms::{Location, Timestamp, run_file};
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Blast,
    Montage,
    Cybershake,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Blast, Shape::Montage, Shape::Cybershake];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Blast => "blast",
            Shape::Montage => "montage",
            Shape::Cybershake => "cybershake",
        }
    }
}

/// The options of a shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShapeConfig {
    /// Slices of the BLAST database, one per node: 63 in the paper.
    pub n_slices: u32,
    /// How uneven the slices are (sigma).
    pub slice_sigma: f64,
    /// Query files of BLAST, of 16 sequences each: one for 16 cores in the paper.
    pub n_queries: u32,
    /// All files that tasks write go home, and tasks that read them fetch them from there.
    pub through_home: bool,
    pub seed: u64,
}

impl Default for ShapeConfig {
    fn default() -> ShapeConfig {
        ShapeConfig { n_slices: 63, slice_sigma: 0.1, n_queries: 16, through_home: false, seed: 1 }
    }
}

pub fn shape(shape: Shape, config: &ShapeConfig) -> Result<Workload, Error> {
    let ShapeConfig { n_slices, slice_sigma, n_queries, through_home, seed } = *config;
    at_least_one("the number of slices", n_slices.into())?;
    at_least_one("the number of query files", n_queries.into())?;
    if !(0.0..=2.0).contains(&slice_sigma) {
        return Err(Error::config(format!("slices cannot be uneven by {slice_sigma}; say 0 to 2")));
    }
    let rng = Rng::new(seed);
    let mut maker = Maker { rng, through_home, sizes: FxHashMap::default(), submissions: vec![] };
    match shape {
        Shape::Blast => maker.blast(n_slices, n_queries, slice_sigma),
        Shape::Montage => maker.montage(),
        Shape::Cybershake => maker.cybershake(),
    }
    let sizes = Sizes::Each(maker.sizes);
    let submissions = links::in_order(maker.submissions, &sizes)?;
    let read = |s: &ArrivingTasks| -> u64 {
        let inputs = s.array.template.inputs.iter();
        inputs.map(|(_, location)| sizes.of(&s.array.fill(location, 0)).unwrap_or(0)).sum()
    };
    Ok(Workload {
        name: shape.name().into(),
        n_tasks: submissions.len() as u64,
        ideal_ns: links::longest_chain_ns(&submissions),
        read_bytes: submissions.iter().map(read).sum(),
        sizes,
        submissions: Box::new(submissions.into_iter()),
    })
}

struct Maker {
    rng: Rng,
    through_home: bool,
    sizes: FxHashMap<String, u64>,
    submissions: Vec<ArrivingTasks>,
}

const KB: u64 = 1_000;

impl Maker {
    /// A standard normal number, by Box and Muller; logarithm and cosine are not the C library's.
    fn normal(&mut self) -> f64 {
        let mut even = || (self.rng.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
        let (u, v) = (even(), even());
        (-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v)
    }

    /// A log-normal number with median 1.
    fn uneven(&mut self, sigma: f64) -> f64 {
        libm::exp(sigma * self.normal())
    }

    fn home(&mut self, name: &str, bytes: u64) -> String {
        self.sizes.insert(name.into(), bytes);
        name.into()
    }

    /// A task that reads `inputs` and writes `outputs`, by location and size, and computes for `seconds`.
    fn task(
        &mut self,
        program: &str,
        id: String,
        inputs: &[String],
        outputs: &[(String, u64)],
        seconds: f64,
    ) {
        let at = |location: &str| match Location::of(location) {
            Location::Run { name } if self.through_home => format!("made/{name}"),
            _ => location.to_string(),
        };
        let made = outputs.iter().map(|(location, _)| Pattern::literal(at(location))).collect();
        let read = inputs.iter().map(|location| Pattern::literal(at(location))).collect();
        let sizes: Vec<(String, u64)> =
            outputs.iter().map(|(location, bytes)| (at(location), *bytes)).collect();
        let template = template(Pattern::literal(id), program, read, made);
        self.sizes.extend(sizes);
        self.submissions.push(ArrivingTasks {
            at: Timestamp(0),
            array: Arc::new(TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None }),
            compute: Compute::Same((seconds * SECOND_NS as f64) as u64),
        });
    }

    fn blast(&mut self, n_slices: u32, n_queries: u32, slice_sigma: f64) {
        const SEQUENCES_PER_QUERY: usize = 16;
        let database = |slice: u32| run_file(format_args!("db/{slice}"));
        let slices: Vec<f64> = (0..n_slices).map(|_| self.uneven(slice_sigma)).collect();
        for slice in 0..n_slices {
            let raw = self.home(&format!("slice/{slice}"), 64 * MB);
            self.task("makeblastdb", format!("format-{slice}"), &[raw], &[(database(slice), 70 * MB)], 50.0);
        }
        for query in 0..n_queries {
            let sequences = self.home(&format!("query/{query}"), 10 * KB);
            let lengths: Vec<f64> = (0..SEQUENCES_PER_QUERY).map(|_| self.uneven(0.6)).collect();
            let hits = |slice: u32| run_file(format_args!("hits/{query}-{slice}"));
            for slice in 0..n_slices {
                let seconds: f64 = lengths
                    .iter()
                    .map(|length| 1.5 * length * slices[slice as usize] * self.uneven(0.5))
                    .sum();
                let inputs = [database(slice), sequences.clone()];
                let out = (hits(slice), 2_400 * KB);
                self.task("blastp", format!("search-{query}-{slice}"), &inputs, &[out], seconds);
            }
            let inputs: Vec<String> = (0..n_slices).map(hits).collect();
            let out = (format!("found/{query}"), 4_800 * KB);
            self.task("merge", format!("merge-{query}"), &inputs, &[out], 3.0);
        }
    }

    fn montage(&mut self) {
        const N: usize = 1319;
        const COLUMNS: usize = 37;
        let (image, area) =
            (|i: usize| run_file(format_args!("image/{i}")), |i: usize| run_file(format_args!("area/{i}")));
        for i in 0..N {
            let raw = self.home(&format!("raw/{i}"), 2_100 * KB);
            let seconds = 12.0 * self.uneven(0.2);
            let out = [(image(i), 2_100 * KB), (area(i), 2_100 * KB)];
            self.task("mProject", format!("project-{i}"), &[raw], &out, seconds);
        }
        let images: Vec<String> = (0..N).map(image).collect();
        self.task("mImgtbl", "table".into(), &images, &[(run_file("table"), 810 * KB)], 0.4);
        let mut planes = vec![];
        for i in 0..N {
            let beside = (i % COLUMNS + 1 < COLUMNS).then_some(i + 1);
            let across = (i % COLUMNS + 1 < COLUMNS).then_some(i + COLUMNS + 1);
            for j in [beside, Some(i + COLUMNS), across].into_iter().flatten().filter(|j| *j < N) {
                let plane = run_file(format_args!("plane/{i}-{j}"));
                let seconds = 1.2 * self.uneven(0.2);
                let inputs = [image(i), area(i), image(j), area(j)];
                self.task("mDiffFit", format!("diff-{i}-{j}"), &inputs, &[(plane.clone(), MB)], seconds);
                planes.push(plane);
            }
        }
        self.task("mConcatFit", "concat".into(), &planes, &[(run_file("planes"), 320 * KB)], 28.0);
        let inputs = [run_file("table"), run_file("planes")];
        self.task("mBgModel", "model".into(), &inputs, &[(run_file("model"), 100 * KB)], 10.0);
        for i in 0..N {
            let seconds = 6.9 * self.uneven(0.2);
            let inputs = [image(i), area(i), run_file("model")];
            let out = [(format!("corrected/{i}"), 2_850 * KB)];
            self.task("mBackground", format!("background-{i}"), &inputs, &out, seconds);
        }
    }

    fn cybershake(&mut self) {
        const N_RUPTURES: usize = 32;
        let strains = [self.home("strain/x", 400 * MB), self.home("strain/y", 400 * MB)];
        let mut peaks = vec![];
        for rupture in 0..N_RUPTURES {
            let extracted = run_file(format_args!("extracted/{rupture}"));
            let id = format!("extract-{rupture}");
            let seconds = 110.0 * self.uneven(0.2);
            self.task("ExtractSGT", id, &strains, &[(extracted.clone(), 150 * MB)], seconds);
            let n_variations = (27.0 * self.uneven(1.0)) as usize + 1;
            for v in 0..n_variations {
                let variation = self.home(&format!("variation/{rupture}-{v}"), 2 * MB);
                let seismogram = run_file(format_args!("seismogram/{rupture}-{v}"));
                let peak = run_file(format_args!("peak/{rupture}-{v}"));
                let inputs = [extracted.clone(), variation];
                let seconds = 40.0 * self.uneven(0.5);
                let out = [(seismogram.clone(), 24 * KB)];
                self.task("SeismogramSynthesis", format!("seismogram-{rupture}-{v}"), &inputs, &out, seconds);
                let out = [(peak.clone(), KB)];
                self.task("PeakValCalc", format!("peak-{rupture}-{v}"), &[seismogram], &out, 1.0);
                peaks.push(peak);
            }
        }
        self.task("ZipPSA", "zip".into(), &peaks, &[("peaks".into(), 2 * MB)], 5.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;

    #[test]
    fn shapes_have_the_counts_of_the_paper_and_equal_seeds_are_equal() {
        let draw = |of, seed| shape(of, &ShapeConfig { seed, ..ShapeConfig::default() }).unwrap();
        let all = |of, seed| all_tasks(draw(of, seed));
        assert_eq!(draw(Shape::Blast, 1).n_tasks, 63 + 16 * 63 + 16);
        let montage = draw(Shape::Montage, 1);
        let n_diffs = montage.n_tasks - 2 * 1319 - 3;
        // The paper has 3,883; its grid is not known.
        assert!((3_700..4_000).contains(&n_diffs), "{n_diffs}");
        for s in Shape::ALL {
            assert_eq!(all(s, 5), all(s, 5));
            assert_ne!(all(s, 5), all(s, 6));
        }
        let odd = ShapeConfig { slice_sigma: f64::NAN, ..ShapeConfig::default() };
        assert!(shape(Shape::Blast, &odd).is_err());
    }
}
