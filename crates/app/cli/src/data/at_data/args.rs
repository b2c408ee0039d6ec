//! The options of `eyas at-data`.

use clap::{Args, ValueEnum};
use eyas_at_data::{Input, Output};
use std::path::PathBuf;

#[derive(Args, Clone)]
pub struct AtDataArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    pub db: Option<String>,
    /// A file of a data set, or a whole data set as a directory, under the name that the program knows; /@SITE/KEY[/PATH] reads the
    /// copy at that site (may be given more than once)
    #[arg(long = "input", value_name = "NAME=/KEY[/PATH]")]
    pub inputs: Vec<Input>,
    /// What the program makes under a name, and its path in the new data set (may be given more than once)
    #[arg(long = "output", value_name = "NAME=PATH")]
    pub outputs: Vec<Output>,
    /// A tag of the new data set (may be given more than once)
    #[arg(long = "tag", value_name = "NAME=VALUE", requires = "outputs")]
    pub tags: Vec<String>,
    /// The label of the new data set; one that is there gets a new version. Without it, a new one is made up
    #[arg(long, requires = "outputs")]
    pub label: Option<String>,
    /// How many copies of the new data set there should be; `eyas data repair` makes them [default: 1]
    #[arg(long, value_name = "N", requires = "outputs", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub copies: Option<u32>,
    /// The site that gets the outputs [default: one on this machine, else an idle one with most room; in mode remote the one at which the program ran]
    #[arg(long, value_name = "SITE", requires = "outputs")]
    pub site: Option<String>,
    /// Where the program runs
    #[arg(long, value_enum, default_value_t = Mode::Local)]
    pub mode: Mode,
    /// A folder that this machine and the hosts of the jobs share, for what travels with a job [default: this folder]
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// The batch system that runs the jobs [default: Grid Engine where SGE_ROOT is set, else Slurm]
    #[arg(long, value_enum)]
    pub scheduler: Option<SchedulerKind>,
    /// An option for sbatch or qsub, as --submit-option=--partition=long or --submit-option='-q long.q' (may be given more than once)
    #[arg(long = "submit-option", value_name = "OPTION", allow_hyphen_values = true)]
    pub submit_options: Vec<String>,
    /// A batch script in place of a command: lines `#EYAS --input NAME=/KEY/PATH ...` say what it reads and makes, lines
    /// `#SBATCH` are for Slurm, lines `#$` for Grid Engine
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub script: Option<PathBuf>,
    /// Say how near each host is, and from which site each input comes
    #[arg(long)]
    pub explain: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "script", value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// On this machine, in a folder with copies of the inputs
    Local,
    /// As a job of Slurm or Grid Engine, on a host that holds all inputs
    Scheduled,
    /// At a site that holds inputs and runs programs (`eyas store --programs`), in a box
    Remote,
    /// As a job of Slurm or Grid Engine, near the inputs if that host is free soon; names are resolved again where the job starts
    Late,
}

impl From<Mode> for eyas_at_data::Mode {
    fn from(mode: Mode) -> eyas_at_data::Mode {
        match mode {
            Mode::Local => eyas_at_data::Mode::Local,
            Mode::Scheduled => eyas_at_data::Mode::Scheduled,
            Mode::Remote => eyas_at_data::Mode::Remote,
            Mode::Late => eyas_at_data::Mode::Late,
        }
    }
}

/// Which batch system runs the jobs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchedulerKind {
    Slurm,
    GridEngine,
}

impl From<SchedulerKind> for eyas_batch::Kind {
    fn from(kind: SchedulerKind) -> eyas_batch::Kind {
        match kind {
            SchedulerKind::Slurm => eyas_batch::Kind::Slurm,
            SchedulerKind::GridEngine => eyas_batch::Kind::GridEngine,
        }
    }
}

/// `eyas at-data-job`
#[derive(Args)]
pub struct AtDataJobArgs {
    /// The plan that `eyas at-data` wrote
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// The site of the store that runs this
    #[arg(long, value_name = "SITE", requires = "folder")]
    pub site: Option<String>,
    /// The folder of that store, whose objects are read where they are
    #[arg(long, value_name = "DIR", requires = "site")]
    pub objects: Option<PathBuf>,
    /// The folder in which the program works; what it makes goes into `outputs` there
    #[arg(long, value_name = "DIR", requires = "site")]
    pub folder: Option<PathBuf>,
    /// A folder that the program sees in its box besides those of the system (may be given more than once)
    #[arg(long = "program-folder", value_name = "DIR", requires = "site")]
    pub program_folders: Vec<PathBuf>,
    /// Run the program without a box, as the user of the store
    #[arg(long, requires = "site", conflicts_with = "program_folders")]
    pub without_box: bool,
}
