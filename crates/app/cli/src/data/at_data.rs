//! `eyas at-data`: a program that is not changed runs on files of data sets, and what it makes becomes a data set.
//!
//! Mode *local* (`LCRD`, local computation on remote data, `Wozniak06` §III-C.1): names like `/KEY/path` are resolved to
//! copies, the files are put under the names that the program knows into a new folder, and the program runs there on this
//! machine. Each byte of an input is verified while it is copied. Modes *scheduled* and *late* run it as a job of Slurm or Grid Engine
//! ([`submitted`]), mode *remote* at a site ([`remote`]).
//!
//! Nothing is kept of a program that fails: a data set comes into being with all its outputs, or not at all.

mod args;
mod inputs;
mod job;
mod outputs;
mod plan;
mod remote;
mod script;
mod submitted;
mod which;
mod work;

use super::open::{Opened, open};
use super::program::{OnSignal, run};
use super::put::tags_of;
use crate::fault::bad;
use crate::{Exit, Fault};
use args::Mode;
use eyas_catalog::Tag;
use eyas_text::{shown, shown_path};
use inputs::stage;
use outputs::{Made, gather, keep};
use std::path::PathBuf;
use work::Work;

pub use args::AtDataArgs;
pub use job::{AtDataJobArgs, at_data_job};

pub fn at_data(args: &AtDataArgs) -> Result<Exit, Fault> {
    let is_for_jobs = args.spool.is_some()
        || args.scheduler.is_some()
        || !args.submit_options.is_empty()
        || args.script.is_some();
    if matches!(args.mode, Mode::Local | Mode::Remote) && is_for_jobs {
        let what = "--spool, --scheduler, --submit-option and --script are for jobs: add --mode late or --mode scheduled";
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
        (None, false) if args.mode == Mode::Remote => None,
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
        Mode::Remote => remote::remote(args, &opened, site, &tags),
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
