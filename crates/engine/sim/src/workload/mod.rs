//! Workloads: the tasks that are submitted, their times, the sizes of their files and the compute times of
//! their programs.
//!
//! A workload is a stream of [`ArrivingTasks`]s in order of time, so that millions of tasks need not be made
//! before they are needed, and a table of file sizes. All chance comes from a seed.
//!
//! | module | gives |
//! |---|---|
//! | [`all_pairs`] | all pairs of two sets, `Raicu09` §5.3 |
//! | [`trace`] | the tasks of a live run, from its event log, and its measurements |
//! | [`list`] | a task list that has not run, with times and sizes from a run or from some probes |
//! | [`workflow`] | workflows from files, of all formats that `eyas-workflow` reads |
//! | [`sanity`] | whether a workload can end at all, on given machines |
//!
//! Invariants of every workload: submissions come in order of time; their tasks add up to `n_tasks`; a task
//! that makes another's input comes before it, so submissions may be handed to a dispatcher one by one; the
//! same seed and options give the same submissions on every machine.

pub mod all_pairs;
mod error;
pub mod links;
pub mod list;
pub mod sanity;
pub mod trace;
pub mod workflow;

pub use error::{Error, ErrorKind, Status};

use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm, Template};
use eyas_terms::{MadeLocation, Timestamp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub const SECOND_NS: u64 = 1_000_000_000;
pub const MS_NS: u64 = 1_000_000;
/// Bytes are counted as in the paper: 10 MB are 10,000,000.
pub const MB: u64 = 1_000_000;

/// Tasks that arrive together.
pub struct ArrivingTasks {
    /// The time since the beginning of the workload.
    pub at: Timestamp,
    pub array: Arc<TaskArray>,
    pub compute: Compute,
}

/// Compute times of the programs of an array on a processor of speed 1, without reading and writing files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compute {
    /// The same time for each task, in nanoseconds.
    Same(u64),
    /// A time for each task, in nanoseconds, by the task's position in its array.
    Each(Vec<u64>),
}

impl Compute {
    /// The compute time of task `i` of the array, in nanoseconds.
    pub fn of(&self, i: u32) -> u64 {
        match self {
            Compute::Same(ns) => *ns,
            Compute::Each(all) => all[i as usize],
        }
    }
}

/// The sizes of files, in bytes.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// All files are of this size, and what nodes make of them is larger.
    Same(u64),
    /// A size for each file, inputs and outputs, by location.
    Each(FxHashMap<String, u64>),
}

impl Sizes {
    /// The size of the file at `location`; `None`: there is no such file.
    pub fn of(&self, location: &str) -> Option<u64> {
        match self {
            Sizes::Same(bytes) if MadeLocation::of(location).is_some() => Some(bytes * UNPACKED_RATIO),
            Sizes::Same(bytes) => Some(*bytes),
            Sizes::Each(all) => all.get(location).copied().or_else(|| {
                // What nodes make of a packed file, and nobody has measured.
                Some(self.of(MadeLocation::of(location)?.packed)? * UNPACKED_RATIO)
            }),
        }
    }
}

/// How much larger than the packed file that is taken to be which nodes make of it: like the images of `Raicu09`
/// section 5.2, 2 MB packed and 6 MB unpacked.
pub const UNPACKED_RATIO: u64 = 3;

pub struct Workload {
    pub name: String,
    pub n_tasks: u64,
    /// The time that the workload would take on a machine without limits, in nanoseconds: for a stream of
    /// arrivals the time of the last one, for a bag of tasks 0.
    pub ideal_ns: u64,
    /// Bytes that the tasks read in total, with each reading counted.
    pub read_bytes: u64,
    pub sizes: Sizes,
    /// In order of time.
    pub submissions: Box<dyn Iterator<Item = ArrivingTasks>>,
}

/// The part of a measured program time that is not computing. A simulated program reads its inputs,
/// computes and writes its outputs; a measured time contains all three.
///
/// The default subtracts nothing. This is right if files come from the page cache; otherwise the simulated
/// program is too slow by the time that the simulated disk adds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProgramIo {
    /// The rate at which the program read its inputs, in bytes per second.
    pub read_bytes_per_s: Option<f64>,
    /// The rate at which the program wrote its outputs, in bytes per second.
    pub write_bytes_per_s: Option<f64>,
}

impl ProgramIo {
    /// The part of `run_ns` without reading and writing; never less than 0.
    pub fn compute_ns(&self, run_ns: u64, read_bytes: u64, written_bytes: u64) -> u64 {
        let time = |bytes: u64, rate: Option<f64>| rate.map_or(0.0, |r| bytes as f64 / r * 1e9);
        let io = time(read_bytes, self.read_bytes_per_s) + time(written_bytes, self.write_bytes_per_s);
        run_ns.saturating_sub(io.round() as u64)
    }

    fn check(&self) -> Result<(), Error> {
        for rate in [self.read_bytes_per_s, self.write_bytes_per_s].into_iter().flatten() {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(Error::config(format!("a program cannot read or write {rate} bytes per second")));
            }
        }
        Ok(())
    }
}

/// A template of tasks that read `inputs` and write `outputs`, by location, on one slot.
pub fn template(id: Pattern, program: &str, inputs: Vec<Pattern>, outputs: Vec<Pattern>) -> Template {
    let named = |prefix: &str, list: Vec<Pattern>| {
        let name = |i: usize| Pattern::literal(format!("{prefix}{i}"));
        list.into_iter().enumerate().map(|(i, location)| (name(i), location)).collect()
    };
    TaskForm {
        inputs: named("i", inputs),
        outputs: named("o", outputs),
        label: program.into(),
        ..TaskForm::new(id, Command::Exec(vec![Pattern::literal(program)]))
    }
}

/// Refuses a count or size of 0.
pub fn at_least_one(what: &str, value: u64) -> Result<(), Error> {
    match value {
        0 => Err(Error::config(format!("{what} must be at least 1"))),
        _ => Ok(()),
    }
}

/// Everything that a workload submits, as one comparable list: of each task when it is submitted, what it reads, and its
/// compute time. For tests.
pub fn all_tasks(workload: Workload) -> Vec<(u64, Vec<String>, u64)> {
    let mut list = vec![];
    for s in workload.submissions {
        assert_eq!(s.array.check(), Ok(()));
        for i in 0..s.array.n_tasks {
            let inputs = s.array.template.inputs.iter();
            let reads = inputs.map(|(_, location)| s.array.fill(location, i)).collect();
            list.push((s.at.0, reads, s.compute.of(i)));
        }
    }
    list
}
