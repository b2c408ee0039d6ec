//! Which batch system runs the jobs of `eyas at-data`.

use crate::fault::bad;
use crate::{Exit, Fault};
use clap::ValueEnum;
use eyas_batch::{BatchSystem, Error, ErrorKind};

/// Which batch system runs the jobs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Slurm,
    GridEngine,
}

/// The batch system that was asked for, or the one that is there.
pub fn scheduler(kind: Option<Kind>) -> &'static dyn BatchSystem {
    let kind = match kind {
        None => eyas_batch::Kind::found(),
        Some(Kind::Slurm) => eyas_batch::Kind::Slurm,
        Some(Kind::GridEngine) => eyas_batch::Kind::GridEngine,
    };
    kind.system()
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let fault = match error.kind {
            ErrorKind::NoCommand => bad(error.message).hint(
                "--mode late and --mode scheduled need the commands of Slurm or Grid Engine on the PATH; --mode local needs none",
            ),
            ErrorKind::Job => bad(error.message),
            ErrorKind::Question => Fault::new(Exit::Cluster, error.message),
            ErrorKind::Other => Fault::new(Exit::Other, error.message),
        };
        error.hint.into_iter().fold(fault, Fault::hint)
    }
}
