//! `eyas-lab bench`: the speed of this build on this machine, beside a reference taken in the same run.
//!
//! In: what to measure and how often. Out: one [`Table`], for people on standard output and, with `--json`,
//! for programs. Figures of one machine are worth something only as ratios, so each benchmark measures its
//! reference and its subject by turns and gives medians; a busy machine slows both.
//!
//! All files are written under one folder, which is removed at the end.
//!
//! Not here: the measured loops of single parts, which live beside these parts (`eyas_runner::bench`,
//! `eyas_data::bench`, `eyas_journal::bench`); and judging a figure, which the reader does: targets are
//! printed beside it.

mod access;
mod app;
mod catalog;
mod choose;
mod cluster;
mod collective;
mod data;
pub mod decide;
mod dispatch;
mod files;
mod homes;
pub mod index;
mod journal;
mod memory;
mod net;
mod once;
mod pairs;
mod predict;
mod promise;
mod provision;
mod repair;
mod runs;
mod scale;
mod scale_nodes;
mod sites;
mod spaces;
mod store;
mod table;
mod template;
mod transfer;
mod whereabouts;
mod workflow;

use clap::{Args, Subcommand};
use eyas_cli::machine::Machine;
use eyas_cli::{Exit, Fault};
use std::path::{Path, PathBuf};
use table::Table;

#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Tasks a second through a real dispatcher and executor, beside a bare loop of spawners
    Dispatch(dispatch::DispatchArgs),
    /// Memory, disk and restart time of a dispatcher after many runs, most of them forgotten, beside one after few runs
    Runs(runs::RunsArgs),
    /// One dispatcher and thousands of emulated executors: memory, heartbeats, tasks a second, return after a restart
    Scale(scale::ScaleArgs),
    /// Time of one placement decision with a million tasks in the queue; memory of queue and catalog
    Decide(decide::DecideArgs),
    /// Speed and memory of the catalog of files and their holders, with a million entries
    Index(index::IndexArgs),
    /// Speed of the decision core on a workflow of a million tasks
    Workflow(workflow::WorkflowArgs),
    /// Fetching objects from another node's cache, beside one plain TCP stream
    Transfer(transfer::TransferArgs),
    /// Reading a large object and many small ones from S3 into a cache, beside rclone
    Homes(homes::HomesArgs),
    /// Putting objects into the cache, linking them into sandboxes and removing them, beside plain file operations
    Cache(store::CacheArgs),
    /// Writing durable records to the journal, beside plain appends
    Journal(journal::JournalArgs),
    /// The way that eyas chooses for a collective, beside the best way in hindsight, over simulated cases; or predicted
    /// times beside real ones
    Collective(choose::CollectiveArgs),
    /// Simulated sites with slow links between them: placement that knows of them beside placement that does not
    Sites(sites::SitesArgs),
    /// Many tasks that read shared files, on four nodes with cold caches, beside xargs
    Data(data::DataArgs),
    /// All pairs of 40 files through `eyas pairs` on four nodes with cold caches, beside xargs
    Pairs(pairs::PairsArgs),
    /// A map and all pairs over files on the nodes' own disks: tasks that go to their files, beside files that go to their tasks
    Where(whereabouts::WhereArgs),
    /// Tasks that share a packed environment which the node unpacks once, beside tasks that each unpack it
    Once(once::OnceArgs),
    /// A catalog of kept data with many data sets: queries, and files put and audited beside plain tools
    Catalog(catalog::CatalogArgs),
    /// Making the copies anew that a lost site had, between stores on links of 400 Mbit/s, in network namespaces (needs
    /// root), beside the link and rsync
    Repair(repair::RepairArgs),
    /// Data sets that programs open where they are, beside the same files without eyas (needs FUSE)
    Access(access::AccessArgs),
    /// Reading files of one size from the local disk, from limited shared storage and from caches, with and without a
    /// wrapper script
    Files(files::FilesArgs),
    /// Sending one object to 16 nodes over links of 1 Gbit/s, in network namespaces (needs root), beside the ideal
    Multicast(collective::MulticastArgs),
    /// Bringing 4,000 files from 16 nodes to one over links of 1 Gbit/s, in network namespaces (needs root), beside the
    /// ideal
    Gather(collective::SpreadArgs),
    /// Bringing 4,000 files from one node to 16 over links of 1 Gbit/s, in network namespaces (needs root), beside the
    /// ideal
    Scatter(collective::SpreadArgs),
    /// Predicting from recorded runs how long fewer nodes need, beside real runs on fewer nodes; home is the bottleneck
    Predict(predict::PredictArgs),
    /// MI, scaled, with a static pool and with each provisioning policy, on local nodes or those of a batch system
    Provision(provision::ProvisionArgs),
    /// A real application step by step: all files through home, files on the nodes, placement by data
    App(app::AppArgs),
    /// All-Pairs on machines with slow links between them, over folders, GridFTP, HDFS and S3 (needs root): the benchmark
    /// template of Miceli10 and its figures 3 to 7
    Template(template::TemplateArgs),
    /// One node of `multicast`, `gather` or `scatter`
    #[command(hide = true)]
    NetNode(net::NodeArgs),
    /// The program of a pair of `template`
    #[command(hide = true)]
    TemplatePair(template::PairArgs),
    /// A process of emulated executors of `scale`
    #[command(hide = true)]
    ScaleNodes(scale_nodes::NodesArgs),
}

/// What all benchmarks take.
#[derive(Args)]
struct Common {
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder in which the benchmark makes its own folder [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Common {
    /// Runs a benchmark in a folder of its own and shows its figures.
    fn run(&self, measure: impl FnOnce(&Path) -> Result<Table, Fault>) -> Result<Exit, Fault> {
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = parent.join(format!("eyas-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| {
            Fault::new(Exit::Other, format!("cannot make the folder `{}`: {e}", dir.display()))
        })?;
        let machine = Machine::here();
        let measured = dir.canonicalize().map_err(Fault::from).and_then(|dir| measure(&dir));
        let removed = eyas_runner::sandbox::remove_tree(&dir);
        let table = measured?;
        removed.map_err(|e| Fault::new(Exit::Other, e))?;
        let machine = machine.ended();
        show!("{}\n{}", machine.line(), table.text());
        if let Some(path) = &self.json {
            let fail = |e: &dyn std::fmt::Display| {
                Fault::new(Exit::Other, format!("cannot write `{}`: {e}", path.display()))
            };
            let text = serde_json::to_string_pretty(&table.json(&machine)).map_err(|e| fail(&e))?;
            std::fs::write(path, text + "\n").map_err(|e| fail(&e))?;
        }
        Ok(Exit::Good)
    }
}

pub fn bench(args: BenchArgs) -> Result<Exit, Fault> {
    match args.what {
        Bench::Dispatch(args) => dispatch::bench(&args),
        Bench::Runs(args) => runs::bench(&args),
        Bench::Scale(args) => scale::bench(&args),
        Bench::ScaleNodes(args) => scale_nodes::emulate(&args),
        Bench::Decide(args) => decide::bench(&args),
        Bench::Index(args) => index::bench(&args),
        Bench::Workflow(args) => workflow::bench(&args),
        Bench::Homes(args) => homes::bench(&args),
        Bench::Transfer(args) => transfer::bench(&args),
        Bench::Cache(args) => store::bench(&args),
        Bench::Journal(args) => journal::bench(&args),
        Bench::Collective(args) => choose::bench(&args),
        Bench::Sites(args) => sites::bench(&args),
        Bench::Data(args) => data::bench(&args),
        Bench::Pairs(args) => pairs::bench(&args),
        Bench::Once(args) => once::bench(&args),
        Bench::Catalog(args) => catalog::bench(&args),
        Bench::Repair(args) => repair::bench(&args),
        Bench::Access(args) => access::bench(&args),
        Bench::Where(args) => whereabouts::bench(&args),
        Bench::Files(args) => files::bench(&args),
        Bench::Predict(args) => predict::bench(&args),
        Bench::Provision(args) => provision::bench(&args),
        Bench::App(args) => app::bench(&args),
        Bench::Multicast(args) => collective::multicast(&args),
        Bench::Gather(args) => collective::gather(&args),
        Bench::Scatter(args) => collective::scatter(&args),
        Bench::Template(args) => template::bench(&args),
        Bench::TemplatePair(args) => template::pair(&args),
        Bench::NetNode(args) => net::node(&args),
    }
}

/// The fault of any error in a measured part.
fn failed(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::Other, e)
}

/// Shows on a terminal what the benchmark is doing, because tables come late.
fn note(text: &str) {
    eyas_text::say!("bench: {text}");
}

/// The value at `share` of the sorted values; NaN where there are none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A small random generator with fixed seeds: benchmarks are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}
