//! Which batch system runs the jobs of `eyas at-data`.

use super::grid_engine::GridEngine;
use super::scheduler::Scheduler;
use super::slurm::Slurm;
use clap::ValueEnum;
use std::env;

/// Which batch system runs the jobs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Slurm,
    GridEngine,
}

impl Kind {
    /// Grid Engine where its commands are there and its settings were read, and else Slurm.
    fn found() -> Kind {
        let is_there = |name: &str| {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path).any(|folder| folder.join(name).is_file())
        };
        match is_there("qsub") && env::var_os("SGE_ROOT").is_some() {
            true => Kind::GridEngine,
            false => Kind::Slurm,
        }
    }
}

/// The batch system that was asked for, or the one that is there.
pub fn scheduler(kind: Option<Kind>) -> Box<dyn Scheduler> {
    match kind.unwrap_or_else(Kind::found) {
        Kind::Slurm => Box::new(Slurm),
        Kind::GridEngine => Box::new(GridEngine),
    }
}
