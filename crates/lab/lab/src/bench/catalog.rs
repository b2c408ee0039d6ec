//! `eyas-lab bench catalog`: a catalog with many data sets: how long `find` takes, and how fast files are put and audited.
//!
//! Data sets come in as versions that are taken over (`Catalog::adopt`), each with ten tags and one file. Queries are asked with values
//! that change, so that no answer is ready. Versions of 100 files are committed and removed, of the owner of all these data sets, who has
//! a quota, and of one who has no others. Files are put from a folder on the same disk, beside `cp -r` and a flush. An audit is
//! compared with the slower one of `cat` over the same files and BLAKE3 in memory.

use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_catalog::{
    Caller, Catalog, File, Folder, Key, NewSite, Put, ReplicaState, Sealed, Subject, Tag, put,
};
use eyas_cli::{Exit, Fault};
use eyas_data::Digest;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Args)]
pub struct CatalogArgs {
    /// Data sets, each with ten tags; the issue asks for 1,000,000
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    sets: u32,
    /// The database, which has to be empty: postgres://USER@HOST/DATABASE [default: a file of SQLite]
    #[arg(long, value_name = "URL")]
    db: Option<String>,
    /// The database has the data sets of an earlier run of this benchmark: only queries are asked
    #[arg(long, requires = "db")]
    filled: bool,
    /// Files of 10 KB that are put
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Megabytes of large files that are audited: 16 files beside the small ones
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    megabytes: u64,
    #[command(flatten)]
    common: Common,
}

const NOW: i64 = 1_800_000_000_000;
/// Queries of each kind; the figure is their median.
const QUERIES: u32 = 21;
/// Files of a version that is committed.
const COMMIT_FILES: u32 = 100;
/// Large files that are audited.
const LARGE_FILES: u32 = 16;
/// Data sets that are taken over in one transaction.
const AT_ONCE: u32 = 5_000;

pub fn bench(args: &CatalogArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let url = args.db.clone().unwrap_or_else(|| format!("sqlite:{}", dir.join("catalog.db").display()));
        let caller = Caller::user("bench");
        let catalog = Catalog::init(&url, NOW).map_err(failed)?;
        let has_sets = !catalog.find(&caller, None, 1).map_err(failed)?.is_empty();
        if has_sets != args.filled {
            let reason = match has_sets {
                true => "has data sets: this benchmark fills an empty catalog, or takes one that it filled with --filled",
                false => "has no data sets: run this benchmark without --filled first",
            };
            return Err(failed(format!("{} {reason}", catalog.name())));
        }
        let mut table =
            Table::new(format!("{} data sets with ten tags each in {}", args.sets, catalog.name()));
        if args.filled {
            find(&catalog, &caller, &mut table)?;
            return Ok(table);
        }
        let began = Instant::now();
        for first in (0..args.sets).step_by(AT_ONCE as usize) {
            note(&format!("{first} of {} data sets", args.sets));
            let last = (first + AT_ONCE).min(args.sets);
            let versions: Vec<Sealed> = (first..last).map(sealed).collect::<Result<_, Fault>>()?;
            catalog.adopt(&caller, &versions, NOW).map_err(failed)?;
        }
        table.row(Row::new(
            "data sets taken over",
            f64::from(args.sets) / began.elapsed().as_secs_f64(),
            "/s",
        ));
        find(&catalog, &caller, &mut table)?;
        commit(&catalog, &caller, &mut table)?;
        put_and_audit(&catalog, &caller, args, dir, &mut table)?;
        Ok(table)
    })
}

/// The version of one number: each tag has its own number of values, from 2 to a million.
fn sealed(n: u32) -> Result<Sealed, Fault> {
    let numbers =
        [("protein", 1_000), ("frames", 2_000), ("ensemble", 3), ("replica", 50), ("temperature", 100)];
    let mut tags = vec![];
    for (name, n_values) in numbers {
        // Neighbours differ in all tags.
        let value = n.wrapping_mul(2_654_435_761) >> 7;
        let value = (value ^ n) % n_values;
        tags.push((name, if name == "protein" { format!("p{value}") } else { value.to_string() }));
    }
    for (name, n_values) in
        [("project", 20), ("week", 52), ("machine", 400), ("step", 1_000_000), ("half", 2)]
    {
        tags.push((name, format!("v{}", n % n_values)));
    }
    let tags = tags
        .into_iter()
        .map(|(name, value)| Tag::new(name, value))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let text = n.to_string();
    let file = File {
        path: "data".into(),
        size_bytes: text.len() as u64,
        digest: Digest::of(text.as_bytes()),
        is_executable: false,
    };
    let key = Key { label: format!("s{n}"), version: Some(1) };
    Ok(Sealed {
        key,
        owner: "bench".into(),
        created_ms: NOW,
        copies: 1,
        tags,
        acl: Default::default(),
        files: vec![file],
    })
}

fn find(catalog: &Catalog, caller: &Caller, table: &mut Table) -> Result<(), Fault> {
    let ask = |what: &str, query: &dyn Fn(u32) -> String| -> Result<Row, Fault> {
        let mut times = vec![];
        let mut n_found = 0;
        for n in 0..QUERIES {
            let began = Instant::now();
            n_found += catalog.find(caller, Some(&query(n)), 100).map_err(failed)?.len();
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let mean = n_found as f64 / f64::from(QUERIES);
        Ok(Row::new(format!("find, {what} ({mean:.0} found of at most 100)"), median(&times), "ms"))
    };
    let row = ask("two conditions, one in 1,000 and half", &|n| {
        format!("protein = p{} and frames > 1000", n * 40)
    })?;
    table.row(row.target("50 ms", "5 ms"));
    let row =
        ask("two conditions, each of half", &|n| format!("frames > {} and half = v{}", 1000 + n, n % 2))?;
    table.row(row.target("50 ms", "5 ms"));
    table.row(ask("one of three, or one in 20", &|n| {
        format!("ensemble = {} or project = v{}", n % 3, n % 20)
    })?);
    table.row(ask("four conditions in each other", &|n| {
        format!(
            "(protein = p{n} or protein = p{}) and not half = v0 and temperature = 10..{}",
            n + 500,
            50 + n
        )
    })?);
    table.row(ask("a beginning", &|n| format!("protein like 'p{}%' and week = v{}", n + 10, n))?);
    // Each condition holds for half of all, and no set has both: all sets are gone through.
    table.row(ask("two of half that exclude each other", &|n| {
        format!("half = v{} and not half = v{}", n % 2, n % 2)
    })?);
    Ok(())
}

/// Commits and removes versions of files that are at a site already, so that the database alone is measured.
fn commit(catalog: &Catalog, caller: &Caller, table: &mut Table) -> Result<(), Fault> {
    let new = NewSite { name: "elsewhere", address: "/elsewhere", ..NewSite::default() };
    catalog.add_site(caller, &new, NOW).map_err(failed)?;
    let everyone = "everyone".parse::<Subject>().map_err(failed)?;
    catalog.set_quota(caller, &everyone, Some(1 << 50), NOW).map_err(failed)?;
    let newcomer = Caller::user("newcomer");
    let (mut committed, mut removed) = ([vec![], vec![]], [vec![], vec![]]);
    for n in 0..QUERIES {
        // In turn, so that both have the same weather.
        for (who, caller) in [caller, &newcomer].into_iter().enumerate() {
            let label = format!("{}-{n}", caller.name);
            let files: Vec<File> = (0..COMMIT_FILES)
                .map(|file| {
                    let text = format!("{label}/{file}");
                    let digest = Digest::of(text.as_bytes());
                    File {
                        path: file.to_string(),
                        size_bytes: text.len() as u64,
                        digest,
                        is_executable: false,
                    }
                })
                .collect();
            let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
            let draft = catalog.begin(caller, &label, None, NOW).map_err(failed)?;
            catalog.add(&draft, &files).map_err(failed)?;
            catalog.note_replicas("elsewhere", &digests, ReplicaState::Ready, NOW).map_err(failed)?;
            let began = Instant::now();
            catalog.commit(caller, &draft, &[], NOW).map_err(failed)?;
            committed[who].push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            catalog.remove(caller, &Key { label, version: None }, NOW).map_err(failed)?;
            removed[who].push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    for (what, [owner, newcomer]) in [("committed", committed), ("removed", removed)] {
        let what = format!("a version of {COMMIT_FILES} files {what}, of the owner of all, with a quota");
        table.row(
            Row::new(what, median(&owner), "ms").against("of an owner without data sets", median(&newcomer)),
        );
    }
    Ok(())
}

/// Copies a folder with `cp -r` and flushes the disk; how many seconds that took.
fn plain_copy(dir: &Path, source: &Path, name: &str) -> Result<f64, Fault> {
    let began = Instant::now();
    let copied = Command::new("cp").arg("-r").arg(source).arg(dir.join(name)).status()?;
    let flushed = Command::new("sync").arg("-f").arg(dir).status()?;
    match copied.success() && flushed.success() {
        true => Ok(began.elapsed().as_secs_f64()),
        false => Err(failed("cp or sync failed")),
    }
}

/// Files put with two copies, which a put and a repair make, in a catalog of their own in SQLite: a repair looks at all files of a
/// catalog.
fn put_twice(caller: &Caller, args: &CatalogArgs, dir: &Path, small: &Path) -> Result<Row, Fault> {
    let plain = plain_copy(dir, small, "first")? + plain_copy(dir, small, "second")?;
    let catalog = Catalog::init(&format!("sqlite:{}", dir.join("two.db").display()), NOW).map_err(failed)?;
    let mut folders = vec![];
    for name in ["one", "two"] {
        let site = dir.join(name);
        folders.push(Folder::make(&site, name).map_err(failed)?);
        let address = site.display().to_string();
        catalog
            .add_site(caller, &NewSite { name, address: &address, ..NewSite::default() }, NOW)
            .map_err(failed)?;
    }
    let sources: [PathBuf; 1] = [small.into()];
    let what =
        Put { sources: &sources, is_made: false, label: "small", copies: Some(2), tags: &[], now_ms: NOW };
    let began = Instant::now();
    put(&catalog, &folders[0], caller, &what, &mut |_, _| {}).map_err(failed)?;
    let repair = catalog.repair(NOW, &mut |_| {}).map_err(failed)?;
    let rate = f64::from(args.files) / began.elapsed().as_secs_f64();
    if repair.n_copies != u64::from(args.files) {
        return Err(failed(format!("the repair made {} copies of {} files", repair.n_copies, args.files)));
    }
    let row = Row::new("files of 10 KB put, and their second copies made by a repair", rate, "/s");
    Ok(row
        .target("2,000/s", "10,000/s")
        .against("cp -r twice, each with a flush", f64::from(args.files) / plain))
}

fn put_and_audit(
    catalog: &Catalog,
    caller: &Caller,
    args: &CatalogArgs,
    dir: &Path,
    table: &mut Table,
) -> Result<(), Fault> {
    let site = dir.join("site");
    let folder = Folder::make(&site, "bench").map_err(failed)?;
    let address = site.display().to_string();
    let new = NewSite { name: "bench", address: &address, ..NewSite::default() };
    catalog.add_site(caller, &new, NOW).map_err(failed)?;
    let small = dir.join("small");
    note("files of 10 KB");
    for n in 0..args.files {
        let folder = small.join((n / 1000).to_string());
        std::fs::create_dir_all(&folder)?;
        let mut bytes = vec![b'x'; 10_000];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        std::fs::write(folder.join(n.to_string()), bytes)?;
    }
    let large = dir.join("large");
    std::fs::create_dir_all(&large)?;
    for n in 0..LARGE_FILES {
        let n_bytes = args.megabytes * 1_000_000 / u64::from(LARGE_FILES);
        std::fs::write(large.join(n.to_string()), vec![n as u8; n_bytes as usize])?;
    }
    let plain = f64::from(args.files) / plain_copy(dir, &small, "copy")?;
    let put_one = |label: &str, source: &Path| -> Result<f64, Fault> {
        let sources: [PathBuf; 1] = [source.into()];
        let what = Put { sources: &sources, is_made: false, label, copies: None, tags: &[], now_ms: NOW };
        let began = Instant::now();
        put(catalog, &folder, caller, &what, &mut |_, _| {}).map_err(failed)?;
        Ok(began.elapsed().as_secs_f64())
    };
    let row =
        Row::new("files of 10 KB put, one copy", f64::from(args.files) / put_one("small", &small)?, "/s");
    table.row(row.target("2,000/s", "10,000/s").against("cp -r and a flush", plain));
    table.row(put_twice(caller, args, dir, &small)?);
    put_one("large", &large)?;
    let began = Instant::now();
    let audit = catalog.audit("bench", NOW, &mut |_| {}).map_err(failed)?;
    let rate = audit.good_bytes as f64 / 1e6 / began.elapsed().as_secs_f64();
    let files = catalog.files(caller, &Key { label: "large".into(), version: None }).map_err(failed)?;
    let (mut n_bytes, mut seconds) = (0, 0.0);
    for file in &files {
        let bytes = std::fs::read(large.join(&file.path))?;
        let began = Instant::now();
        let digest = Digest::of(&bytes);
        seconds += began.elapsed().as_secs_f64();
        n_bytes += bytes.len();
        if digest != file.digest {
            return Err(failed("what was put is not what was read"));
        }
    }
    let hashing = n_bytes as f64 / 1e6 / seconds;
    let reading = audit.good_bytes as f64 / 1e6 / plain_read(&site)?;
    let row = Row::new(format!("audit of {} copies", audit.n_good), rate, "MB/s").target("70 %", "95 %");
    let (what, reference) = match reading < hashing {
        true => ("cat of the same files, which is slower than BLAKE3", reading),
        false => ("BLAKE3 in memory, one thread", hashing),
    };
    table.row(row.against(what, reference));
    Ok(())
}

/// Reads all files below a folder, as the audit did, one after another with one program; how many seconds that took.
fn plain_read(folder: &Path) -> Result<f64, Fault> {
    let began = Instant::now();
    let read = Command::new("find")
        .arg(folder)
        .args(["-type", "f", "-exec", "cat", "{}", "+"])
        .stdout(Stdio::null())
        .status()?;
    match read.success() {
        true => Ok(began.elapsed().as_secs_f64()),
        false => Err(failed("find or cat failed")),
    }
}
