//! `eyas at-data`: a program that is not changed runs on files of data sets, and what it makes becomes a data set.
//!
//! Mode *local* (`LCRD`, local computation on remote data, `Wozniak06` §III-C.1): names like `/KEY/path` are resolved to
//! copies, the files are put under the names that the program knows into a new folder, and the program runs there on this
//! machine. Each byte of an input is verified while it is copied. Modes *scheduled* and *late* run it as a job of Slurm
//! ([`submitted`]).
//!
//! Nothing is kept of a program that fails: a data set comes into being with all its outputs, or not at all.

mod inputs;
mod job;
mod outputs;
mod plan;
mod script;
mod slurm;
mod submitted;
mod work;

use super::open::{Opened, open};
use super::program::{OnSignal, run};
use super::put::tags_of;
use crate::fault::bad;
use crate::{Exit, Fault};
use clap::{Args, ValueEnum};
use eyas_catalog::{Key, Tag, is_plain_path};
use eyas_text::{shown, shown_path};
use inputs::stage;
use outputs::{Made, gather, keep};
use std::path::PathBuf;
use std::str::FromStr;
use work::Work;

pub use job::{AtDataJobArgs, at_data_job};

#[derive(Args, Clone)]
pub struct AtDataArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    db: Option<String>,
    /// A file of a data set, or a whole data set as a directory, under the name that the program knows (may be given
    /// more than once)
    #[arg(long = "input", value_name = "NAME=/KEY[/PATH]")]
    inputs: Vec<Input>,
    /// What the program makes under a name, and its path in the new data set (may be given more than once)
    #[arg(long = "output", value_name = "NAME=PATH")]
    outputs: Vec<Output>,
    /// A tag of the new data set (may be given more than once)
    #[arg(long = "tag", value_name = "NAME=VALUE", requires = "outputs")]
    tags: Vec<String>,
    /// The label of the new data set; one that is there gets a new version. Without it, a new one is made up
    #[arg(long, requires = "outputs")]
    label: Option<String>,
    /// How many copies of the new data set there should be; `eyas data repair` makes them [default: 1]
    #[arg(long, value_name = "N", requires = "outputs", value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: Option<u32>,
    /// The site that gets the outputs [default: the one with most room that is up]
    #[arg(long, value_name = "SITE", requires = "outputs")]
    site: Option<String>,
    /// Where the program runs
    #[arg(long, value_enum, default_value_t = Mode::Local)]
    mode: Mode,
    /// A folder that this machine and the hosts of the jobs share, for what travels with a job [default: this folder]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// An option for sbatch, as --submit-option=--partition=long (may be given more than once)
    #[arg(long = "submit-option", value_name = "OPTION", allow_hyphen_values = true)]
    submit_options: Vec<String>,
    /// A batch script in place of a command: lines `#EYAS --input NAME=/KEY/PATH ...` say what it reads and makes, lines
    /// `#SBATCH` are for Slurm
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    script: Option<PathBuf>,
    /// Say how near each host is, and from which site each input comes
    #[arg(long)]
    explain: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "script", value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// On this machine, in a folder with copies of the inputs
    Local,
    /// As a job of Slurm, on a host that holds all inputs
    Scheduled,
    /// As a job of Slurm, near the inputs if that host is free soon; names are resolved again where the job starts
    Late,
}

/// `HCl=/reagents@2/hcl`
#[derive(Clone)]
struct Input {
    name: PathBuf,
    key: Key,
    /// `None` means all files.
    path: Option<String>,
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
struct Output {
    name: PathBuf,
    path: PathBuf,
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

pub fn at_data(args: &AtDataArgs) -> Result<Exit, Fault> {
    let is_for_jobs = args.spool.is_some() || !args.submit_options.is_empty() || args.script.is_some();
    if args.mode == Mode::Local && is_for_jobs {
        let what = "--spool, --submit-option and --script are for jobs: add --mode late or --mode scheduled";
        return Err(bad(what.to_owned()));
    }
    let with_lines = args.script.as_deref().map(|path| script::with_lines(args, path)).transpose()?;
    let args = with_lines.as_ref().unwrap_or(args);
    refuse_twins("--input", args.inputs.iter().map(|input| &input.name))?;
    refuse_twins("--output", args.outputs.iter().map(|output| &output.path))?;
    refuse_twins("--output", args.outputs.iter().map(|output| &output.name))?;
    let tags = tags_of(&args.tags)?;
    let opened = open(args.db.as_deref())?;
    let Opened { catalog, caller, .. } = &opened;
    let site = match (&args.site, args.outputs.is_empty()) {
        (_, true) => None,
        (Some(site), false) => Some(site.clone()),
        (None, false) => Some(super::keep::roomiest(catalog)?),
    };
    // What cannot be written in the end is refused before the program runs.
    if let Some(site) = &site {
        catalog.holding(site)?;
    }
    if let Some(label) = &args.label {
        catalog.require_writable(caller, label)?;
    }

    match args.mode {
        Mode::Local => local(args, &opened, site, &tags),
        Mode::Scheduled | Mode::Late => submitted::submitted(args, &opened, site, &tags),
    }
}

fn local(args: &AtDataArgs, opened: &Opened, site: Option<String>, tags: &[Tag]) -> Result<Exit, Fault> {
    let work = Work::new()?;
    let on_signal = OnSignal::listen(work.top.path.clone())?;
    let from = on_signal.unless_ending(stage(opened, &args.inputs, &work.inside, args.explain))?;
    let status = on_signal.unless_ending(run(&args.command, &work.inside, &on_signal))?;
    let program = shown(&args.command[0]);
    if !status.success() {
        let lost = if args.outputs.is_empty() { "" } else { "; no data set was made" };
        let exit = if status.asked { Exit::Interrupted } else { Exit::TasksFailed };
        return Err(Fault::new(exit, format!("{program} ended with {}{lost}", status.text())));
    }
    let Some(site) = site else { return Ok(Exit::Good) };
    on_signal.unless_ending(gather(&args.outputs, &work, &args.command[0]))?;
    let made = Made { command: &args.command, from: &from, site: &site, tags };
    on_signal.unless_ending(keep(&opened.catalog, &opened.caller, args, &work, &made))
}

fn refuse_twins<'a>(option: &str, names: impl Iterator<Item = &'a PathBuf>) -> Result<(), Fault> {
    let mut seen: Vec<&PathBuf> = vec![];
    for name in names {
        if let Some(other) = seen.iter().find(|other| name.starts_with(other) || other.starts_with(name)) {
            let what = match *other == name {
                true => format!("{option} names {} twice", shown_path(name)),
                false => format!(
                    "{option} names {} and {}, and one would lie in the other",
                    shown_path(other),
                    shown_path(name)
                ),
            };
            return Err(bad(what));
        }
        seen.push(name);
    }
    Ok(())
}
