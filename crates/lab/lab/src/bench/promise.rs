//! `eyas-lab bench collective --real`: the predicted times of collectives beside the measured times, in a
//! real cluster.
//!
//! One cluster on this machine runs multicasts and gathers of many sizes, in an order that is mixed but
//! always the same, as they would come in the stages of workflows. All that the cluster knows of its links
//! it has learnt on the way. The figures are those of its event log, which `eyas report` shows.

use super::cluster::{Cluster, Shape, template};
use super::table::{Row, Table};
use super::{Random, failed, median, note};
use eyas_cli::Fault;
use eyas_core::collective::lessons::PROMISE;
use eyas_core::collective::{CollectiveKind, CollectiveRecord};
use eyas_terms::array::{Command, Pattern, Piece, TaskArray, Template};
use eyas_terms::run_file;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Tasks that read each multicast file.
const N_READERS: u32 = 12;
/// The number of files, and the bytes of each.
const MULTICASTS: [(u32, u64); 6] =
    [(64, 1_000), (16, 10_000), (8, 100_000), (4, 1_000_000), (2, 10_000_000), (1, 100_000_000)];
const GATHERS: [(u32, u64); 5] =
    [(64, 1_000), (32, 100_000), (16, 1_000_000), (16, 10_000_000), (8, 50_000_000)];

/// A real cluster of `nodes` nodes runs all cases `rounds` times; `say_all`: each collective is also
/// printed.
pub fn measure(dir: &Path, nodes: u32, rounds: u32, say_all: bool) -> Result<Table, Fault> {
    let shape = Shape {
        nodes,
        slots: 1,
        cache_bytes: 4_000_000_000,
        placement: "affinity".into(),
        event_log: true,
        dispatchers: 1,
    };
    let mut cluster = Cluster::start(dir, &shape)?;
    let mut random = Random(5);
    for round in 1..=rounds {
        let mut cases: Vec<Vec<TaskArray>> =
            MULTICASTS.iter().map(|(n, bytes)| multicast(*n, *bytes)).collect();
        cases.extend(GATHERS.iter().map(|(n, bytes)| gather(*n, *bytes)));
        note(&format!("round {round} of {rounds}: {} collectives on {nodes} nodes", cases.len()));
        while !cases.is_empty() {
            let case = cases.swap_remove(random.below(cases.len()));
            cluster.run(&case.into_iter().map(Arc::new).collect::<Vec<_>>())?;
        }
    }
    let log = eyas_report::read::read(&cluster.stop()).map_err(failed)?;
    let title = format!("collectives of a real cluster: {nodes} nodes, {rounds} rounds");
    Ok(table(title, &log.collectives, say_all))
}

fn text(text: impl Into<String>) -> Pattern {
    Pattern::literal(text)
}

/// A task that makes `n_files` files of `bytes` each, and the tasks that read all of them.
fn multicast(n_files: u32, bytes: u64) -> Vec<TaskArray> {
    let files = || (0..n_files).map(|i| (text(format!("f{i}")), text(run_file(format_args!("f{i}")))));
    let make = format!("for i in $(seq 0 {}); do head -c {bytes} /dev/urandom > f$i; done", n_files - 1);
    let maker = Template {
        outputs: files().collect(),
        id: text("make"),
        label: "make".into(),
        ..template(Command::Shell(text(make)), vec![])
    };
    let reader =
        Template { label: "read".into(), ..template(Command::Shell(text("sleep 0.1")), files().collect()) };
    vec![array(1, maker), array(N_READERS, reader)]
}

/// `n_files` tasks that make a file of `bytes` each, and one that reads all of them.
fn gather(n_files: u32, bytes: u64) -> Vec<TaskArray> {
    let location = Pattern(vec![Piece::Literal(run_file("p")), Piece::Index]);
    let maker = Template {
        outputs: vec![(text("o"), location)],
        label: "make".into(),
        ..template(Command::Shell(text(format!("head -c {bytes} /dev/urandom > o"))), vec![])
    };
    let files = (0..n_files).map(|i| (text(format!("p{i}")), text(run_file(format_args!("p{i}")))));
    let reader = Template {
        id: text("read"),
        label: "read".into(),
        ..template(Command::Shell(text("true")), files.collect())
    };
    vec![array(n_files, maker), array(1, reader)]
}

fn array(n_tasks: u32, template: Template) -> TaskArray {
    TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None }
}

/// A collective that brought all objects that it should.
struct SeenCollective {
    predicted_s: f64,
    measured_s: f64,
    is_promised: bool,
}

impl SeenCollective {
    fn ratio(&self) -> f64 {
        self.predicted_s / self.measured_s
    }

    fn is_near(&self) -> bool {
        (1.0 / PROMISE..=PROMISE).contains(&self.ratio())
    }
}

fn table(title: String, records: &[CollectiveRecord], say_all: bool) -> Table {
    // Grouped by kind and by bytes of a file.
    let mut groups: BTreeMap<(CollectiveKind, u64), Vec<SeenCollective>> = BTreeMap::new();
    for record in records {
        // Where the last file was made when all others had come, nothing is left to be predicted.
        let is_whole = record.n_arrived == record.n_wanted && record.measured_ns() > 0;
        let Some(choice) = record.choice.as_ref().filter(|_| is_whole) else { continue };
        let expected_ns = choice.expectation.map_or(choice.predicted_ns, |e| e.expected_ns);
        let seen = SeenCollective {
            predicted_s: expected_ns as f64 / 1e9,
            measured_s: record.measured_ns() as f64 / 1e9,
            is_promised: record.predicted_ns().is_some(),
        };
        let file_bytes = record.arrived_bytes / u64::from(record.n_arrived);
        if say_all {
            let doubt = choice.expectation.map_or(f64::NAN, |e| e.doubt);
            let prediction = if seen.is_promised { "told" } else { "not known" };
            show!(
                "{:?} of {} x {file_bytes} bytes, {}: predicted {:.4} s within {doubt:.2} x ({prediction}), took {:.4} s",
                record.kind,
                record.n_wanted,
                record.way,
                seen.predicted_s,
                seen.measured_s
            );
        }
        groups.entry((record.kind, file_bytes)).or_default().push(seen);
    }
    let mut table = Table::new(title);
    for ((kind, bytes), seen) in &groups {
        let kind = format!("{kind:?}").to_lowercase();
        let times: Vec<f64> = seen.iter().map(|s| s.measured_s).collect();
        let name = format!("{kind}, files of {} KB, {} times: took", bytes / 1000, seen.len());
        table.row(Row::new(name, median(&times), "s"));
        let ratios: Vec<f64> = seen.iter().map(SeenCollective::ratio).collect();
        table.row(Row::new("  predicted by measured, told or not, median", median(&ratios), ""));
        add_promised(&mut table, seen.iter().collect());
    }
    let all: Vec<&SeenCollective> = groups.values().flatten().collect();
    table.row(Row::new("all: collectives with a prediction", all.len() as f64, ""));
    add_promised(&mut table, all);
    table.note(
        "Told: those before it allow to promise 1.5 x; `eyas report` says of others that it is not known.",
    );
    table
}

/// The share in per cent; NaN if `all` is 0.
fn share(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all as f64
}

fn add_promised(table: &mut Table, all: Vec<&SeenCollective>) {
    let promised: Vec<&&SeenCollective> = all.iter().filter(|s| s.is_promised).collect();
    table.row(Row::new("  told", share(promised.len(), all.len()), "%"));
    if !promised.is_empty() {
        let near = promised.iter().filter(|s| s.is_near()).count();
        table.row(Row::new("  of these within 1.5 x", share(near, promised.len()), "%").target("90", "90"));
    }
}
