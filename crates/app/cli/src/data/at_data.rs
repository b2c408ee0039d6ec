//! `eyas at-data` and `eyas at-data-job`: options, and what is told in the end.

mod args;
mod script;

use super::open::{Opened, open};
use super::outside::Terminal;
use super::put::{say_put, tags_of};
use crate::fault::bad;
use crate::{Exit, Fault, dirs};
use args::Mode;
use eyas_at_data::{Job, Request, carry_out};

pub use args::{AtDataArgs, AtDataJobArgs};

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
    let args = with_lines.unwrap_or_else(|| args.clone());
    let mut request = Request {
        inputs: args.inputs,
        outputs: args.outputs,
        tags: vec![],
        label: args.label,
        copies: args.copies,
        site: args.site,
        mode: args.mode.into(),
        spool: args.spool,
        system: args.scheduler.map(Into::into),
        submit_options: args.submit_options,
        script: args.script,
        explain: args.explain,
        command: args.command,
        // A program at a site is no path of this machine.
        here: if args.mode == Mode::Remote { "/".into() } else { dirs::working()? },
    };
    request.check()?;
    request.tags = tags_of(&args.tags)?;
    let opened: Opened = open(args.db.as_deref())?;
    if let Some(made) = request.run(&opened, &Terminal)? {
        say_put(&opened.catalog, &opened.caller, &made.done, &made.site)?;
    }
    Ok(Exit::Good)
}

/// Does what the plan of a job says.
pub fn at_data_job(args: &AtDataJobArgs) -> Result<Exit, Fault> {
    let job = Job {
        plan: &args.plan,
        site: args.site.as_deref(),
        objects: args.objects.as_deref(),
        folder: args.folder.as_deref(),
        // A job of a batch system is its user's own.
        shown_in_box: (args.site.is_some() && !args.without_box).then_some(&args.program_folders[..]),
    };
    Ok(if carry_out(&job, &Terminal)? { Exit::Good } else { Exit::TasksFailed })
}
