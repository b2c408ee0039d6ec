//! The options of `eyas at-data`.

use super::which::Kind;
use clap::{Args, ValueEnum};
use eyas_catalog::{Key, is_plain_path};
use eyas_text::shown;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Args, Clone)]
pub struct AtDataArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    pub db: Option<String>,
    /// A file of a data set, or a whole data set as a directory, under the name that the program knows (may be given
    /// more than once)
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
    /// The site that gets the outputs [default: the one with most room that is up; in mode remote the one at which the program ran]
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
    pub scheduler: Option<Kind>,
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
    /// At a site that holds inputs and runs programs (`eyas store --programs`), as the user of its store
    Remote,
    /// As a job of Slurm or Grid Engine, near the inputs if that host is free soon; names are resolved again where the job starts
    Late,
}

/// `HCl=/reagents@2/hcl`
#[derive(Clone)]
pub struct Input {
    pub name: PathBuf,
    pub key: Key,
    /// `None` means all files.
    pub path: Option<String>,
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Input, String> {
        let (name, place) = text.split_once('=').ok_or("write NAME=/KEY/PATH")?;
        let place =
            place.strip_prefix('/').ok_or("a data set is named with a slash before it: NAME=/KEY/PATH")?;
        let (key, path) = match place.split_once('/') {
            Some((key, "")) => (key, None),
            Some((key, path)) => (key, Some(path.to_owned())),
            None => (place, None),
        };
        let key = key.parse::<Key>().map_err(|error| error.to_string())?;
        Ok(Input { name: relative(name)?, key, path })
    }
}

/// `NaCl=salt`
#[derive(Clone)]
pub struct Output {
    pub name: PathBuf,
    pub path: PathBuf,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Output, String> {
        let (name, path) = text.split_once('=').ok_or("write NAME=PATH, as in result.dat=2026/result.dat")?;
        Ok(Output { name: relative(name)?, path: relative(path)? })
    }
}

/// A path that stays in the folder that it is taken from.
fn relative(text: &str) -> Result<PathBuf, String> {
    match is_plain_path(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "{} is no name of a file: it is relative, without `.`, `..` or empty parts",
            shown(text)
        )),
    }
}
