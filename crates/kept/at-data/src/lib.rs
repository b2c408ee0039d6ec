//! Programs that are not changed run on files of data sets, and what they make becomes a data set: `eyas at-data`.
//!
//! Mode *local* (`LCRD`, local computation on remote data, `Wozniak06` §III-C.1): names like `/KEY/path` are resolved to
//! copies, the files are put under the names that the program knows into a new folder, and the program runs there on this
//! machine. Each byte of an input is verified while it is copied. Modes *scheduled* and *late* run it as a job of Slurm or Grid Engine
//! (`submitted`, and [`carry_out`] at the job's side), mode *remote* at a site (`remote`).
//!
//! Nothing is kept of a program that fails: a data set comes into being with all its outputs, or not at all.
//!
//! Not here: options, and what a user is told in the end. What is told on the way, and how the command ends, is
//! [`Outside`]'s.

mod error;
mod inputs;
mod job;
mod names;
mod outputs;
mod plan;
pub mod program;
mod remote;
mod stranger;
mod submitted;
mod work;

pub use error::{Error, ErrorKind, Result};
pub use eyas_site::Ran as Stream;
pub use job::{Job, carry_out};
pub use names::{Input, Output};
pub use stranger::StrangerBox;
pub use submitted::read_script;

use eyas_catalog::{Caller, Catalog, Done, Key, OwnHost, SetReader, Tag, label_of};
use eyas_host::{host_name, names_of_host};
use eyas_text::{shown, shown_path};
use inputs::stage;
use outputs::{Origin, gather, keep};
use program::{OnSignal, run};
use std::path::PathBuf;
use std::time::SystemTime;
use work::WorkFolder;

/// What the command does that calls these functions.
pub trait Outside: Sync {
    /// Tells its user a line.
    fn say(&self, line: &str);

    /// Passes on what a program printed.
    fn printed(&self, to: Stream, bytes: &[u8]) -> std::io::Result<()>;

    /// Begins to listen to whoever asks the command to end.
    fn listen(&self) -> std::io::Result<Box<dyn Asked>>;
}

/// How a command is asked to end, and ends.
pub trait Asked: Send {
    /// Waits until somebody asks.
    fn next(&mut self);

    /// Ends this process as one that was interrupted.
    fn end(&self) -> !;
}

/// A catalog that was opened for a command.
pub struct Opened {
    pub catalog: Catalog,
    pub caller: Caller,
    pub now_ms: i64,
}

impl Opened {
    /// Begins to read a version, at one `site` only or at any: then copies on this machine come first.
    pub fn reader(&self, key: &Key, site: Option<&str>) -> Result<SetReader<'_>> {
        let own = own_host();
        let reader = self.catalog.reader(&self.caller, key, self.now_ms)?;
        let reader = reader.near_first(&|host| own.is(host))?;
        match site {
            Some(site) => Ok(reader.only_at(site)?),
            None => Ok(reader),
        }
    }
}

/// The site that gets files of this machine where nobody names one: a site on this machine comes first.
pub fn target(catalog: &Catalog) -> eyas_catalog::Result<String> {
    let own = own_host();
    catalog.target(&|site| site.host().is_none_or(|host| own.is(host)))
}

/// This machine, as stores may call it.
pub fn own_host() -> OwnHost {
    OwnHost::new(names_of_host(&host_name()))
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as i64)
}

/// A label that was given, or one that is made up.
pub fn label_or_new(label: Option<&str>) -> Result<String> {
    match label {
        Some(label) => Ok(label.to_owned()),
        None => Ok(label_of(u64::from_ne_bytes(eyas_data::random_bytes()?))),
    }
}

/// Where the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Local,
    Scheduled,
    Remote,
    Late,
}

/// What is to be run, on what.
pub struct Request {
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    /// Of the new data set; no name twice.
    pub tags: Vec<Tag>,
    /// The label of the new data set. `None`: one is made up.
    pub label: Option<String>,
    /// How many copies of the new data set there should be.
    pub copies: Option<u32>,
    /// The site that gets the outputs. `None`: the one with most room; in mode remote, the one at which the program ran.
    pub site: Option<String>,
    pub mode: Mode,
    /// A folder that this machine and the hosts of jobs share. `None`: this one.
    pub spool: Option<PathBuf>,
    /// The batch system of jobs. `None`: the one that is there.
    pub system: Option<eyas_batch::Kind>,
    /// Options of the user for it.
    pub submit_options: Vec<String>,
    /// A batch script, which the command names, too.
    pub script: Option<PathBuf>,
    /// Say how near each host is, and where each input comes from.
    pub explain: bool,
    /// At least one word.
    pub command: Vec<String>,
    /// The folder from which a program is meant that is named by a path.
    pub here: PathBuf,
}

/// A data set that a program has made.
pub struct MadeSet {
    pub done: Done,
    pub site: String,
}

impl Request {
    /// Refuses names that are given twice, or lie in one another.
    pub fn check(&self) -> Result<()> {
        refuse_twins("--input", self.inputs.iter().map(|input| &input.name))?;
        refuse_twins("--output", self.outputs.iter().map(|output| &output.path))?;
        refuse_twins("--output", self.outputs.iter().map(|output| &output.name))
    }

    /// Runs the program. Gives the data set that it has made, if it was to make one.
    pub fn run(&self, opened: &Opened, outside: &dyn Outside) -> Result<Option<MadeSet>> {
        let catalog = &opened.catalog;
        let site = match (&self.site, self.outputs.is_empty()) {
            (_, true) => None,
            (None, false) if self.mode == Mode::Remote => None,
            (Some(site), false) => Some(site.clone()),
            (None, false) => Some(target(catalog)?),
        };
        // What cannot be written in the end is refused before the program runs.
        if let Some(site) = &site {
            catalog.holding(site)?;
        }
        if let Some(label) = &self.label {
            catalog.require_writable(&opened.caller, label)?;
        }
        match self.mode {
            Mode::Local => self.local(opened, site, outside),
            Mode::Remote => remote::remote(self, opened, site, outside),
            Mode::Scheduled | Mode::Late => submitted::submitted(self, opened, site, outside),
        }
    }

    fn local(&self, opened: &Opened, site: Option<String>, outside: &dyn Outside) -> Result<Option<MadeSet>> {
        let work = WorkFolder::new()?;
        let on_signal = OnSignal::listen(outside, work.top.path.clone())?;
        let explain = self.explain.then_some(outside);
        let from = on_signal.unless_ending(stage(opened, &self.inputs, &work.inside, explain))?;
        let status = on_signal.unless_ending(run(&self.command, &self.here, &work.inside, &on_signal))?;
        let program = shown(&self.command[0]);
        if !status.success() {
            let lost = if self.outputs.is_empty() { "" } else { "; no data set was made" };
            let kind = if status.asked { ErrorKind::Interrupted } else { ErrorKind::Program };
            return Err(Error::new(kind, format!("{program} ended with {}{lost}", status.text())));
        }
        let Some(site) = site else { return Ok(None) };
        on_signal.unless_ending(gather(&self.outputs, &work, &self.command[0]))?;
        let made = Origin { command: &self.command, from: &from, site };
        on_signal.unless_ending(keep(&opened.catalog, &opened.caller, self, &work, made, None))
    }
}

fn refuse_twins<'a>(option: &str, names: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
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
            return Err(Error::input(what));
        }
        seen.push(name);
    }
    Ok(())
}
