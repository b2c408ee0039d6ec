//! How a run is asked for: the tasks that are left of a list go to a cluster that is up, or to one of the run's own, and its end is
//! waited for.

use crate::args::{ClusterArgs, ResumeArgs};
use crate::clusters::{self, Kind};
use crate::connect::connect;
use crate::follow::follow;
use crate::logs::InOrder;
use crate::print::{count, plural};
use crate::remains::{forget_old_runs, remove_nodes, sweep_homes};
use crate::resume::{self, Origin};
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, dirs, ending, given, hints, json, local, provide, tmpfs};
use eyas_client::{Choice, Client, JoinFile, Target};
use eyas_runtime::provider::calls_of;
use eyas_tasklist::TaskList;
use eyas_terms::RunId;
use eyas_text::shown_path;
use eyas_wire::message::Keep;
use std::path::Path;

/// The end of a command that had nothing to run.
pub fn nothing_to_do(json: bool) -> Result<Exit, Fault> {
    if json {
        json::write(&json::NoRun::NEEDED)?;
    }
    Ok(Exit::Good)
}

pub fn say_hints(list: &TaskList) -> Result<(), Fault> {
    hints::of_list(list, &crate::dirs::working()?).iter().for_each(|hint| eyas_text::say!("note: {hint}"));
    Ok(())
}

/// A run that a user asks for.
pub struct RunRequest {
    pub list: TaskList,
    /// The name of the run, for users.
    pub name: String,
    pub keep: bool,
    /// Where the tasks come from, by which a later run finds this one.
    pub origin: Origin,
    pub known: resume::EarlierResults,
    /// The output of the tasks is shown while the run goes on.
    pub prints: bool,
}

impl RunRequest {
    /// Shows the output of the run's tasks, if that is wanted.
    async fn show_printed(&self, target: &Target, run: RunId) -> Result<Option<InOrder>, Fault> {
        match self.prints {
            true => InOrder::begin(target, run).await.map(Some),
            false => Ok(None),
        }
    }

    /// Called when the run is accepted and its log is in `dir`, the dispatcher's folder. Errors are ignored,
    /// as the run goes on.
    fn remember(&self, dir: &Path, run: RunId) {
        given::note(dir, run);
        if let Err(fault) = self.known.leave(&self.origin, dir) {
            eyas_text::say!("note: a later --resume will not find all of this run: {}", fault.message);
        }
    }
}

/// The tasks that have to run; `None` if the user only asked for them, or if there are none.
pub fn what_is_left(
    list: TaskList,
    origin: Origin,
    args: &ResumeArgs,
    join: Option<&JoinFile>,
) -> Result<Option<RunRequest>, Fault> {
    let resume = args.resume.as_ref().map(|dir| dir.as_deref());
    let asked = resume::Asked { origin: &origin, resume, dry_run: args.dry_run, join };
    Ok(match resume::what_is_left(list, &asked)? {
        resume::Left::Nothing => None,
        resume::Left::Run(list, known) => {
            Some(RunRequest { list, name: origin.name(), keep: false, origin, known, prints: false })
        }
    })
}

/// Runs a list on the named cluster, or on a cluster of its own. `json`: also print the outcome as JSON.
pub fn run_list(
    request: RunRequest,
    join: Option<&JoinFile>,
    cluster: &ClusterArgs,
    json: bool,
) -> Result<Exit, Fault> {
    if request.list.n_tasks == 0 {
        eyas_text::say!("there are no tasks: nothing to do");
        return nothing_to_do(json);
    }
    if let Some(file) = join {
        if local::is_shaped(cluster) {
            eyas_text::say!(
                "note: the cluster of {} is used as it is; --nodes, --slots, --cache, --placement and the like \
                 are for a cluster of the run's own",
                shown_path(file.path())
            );
        }
        return client_runtime().block_on(async {
            let mut client = connect(file).await?;
            let target = client.target().clone();
            let run = submit_to(&mut client, &request).await?;
            let printed = request.show_printed(&target, run).await?;
            drop(request);
            let end = follow(client, run, None, printed).await?;
            if json {
                json::write(&end.as_json(target.dir_here()))?;
            }
            Ok(end.exit)
        });
    }
    local::check(cluster)?;
    local::check_tasks(cluster, &request.list)?;
    provide::check_tools(cluster)?;
    let (dir, ours) = match &cluster.dir {
        Some(dir) => (dir.clone(), false),
        None => (dirs::new_run_dir()?, true),
    };
    if let Some(up) = clusters::running()?.iter().find(|known| known.kind == Kind::Up) {
        eyas_text::say!(
            "note: this has a cluster of its own; --join {} uses the one that `eyas up` started",
            up.join().display()
        );
    }
    provide::sweep_keys();
    let mut parts = local::start(cluster, &dir, true)?;
    let target = JoinFile::new(parts.join.clone(), Choice::Own).read()?;
    let dir = dir.canonicalize()?;
    if !cluster.provide.is_elsewhere() {
        tmpfs::say_so(&dir, cluster.node.cache.saturating_mul(u64::from(cluster.nodes.max)));
    }
    clusters::remember(&dir, Kind::Run(std::process::id()))?;
    let result = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        end_unfinished(&mut client, &dir).await?;
        let run = submit_list(&mut client, &request).await?;
        request.remember(&dirs::dispatcher_dir(&dir), run);
        let printed = request.show_printed(&target, run).await?;
        drop(request);
        follow(client, run, Some(&mut parts), printed).await
    });
    let in_haste = result.as_ref().is_ok_and(|end| end.in_haste);
    client_runtime().block_on(ending::end_parts(&mut parts, target.cluster(), in_haste))?;
    if let Some(calls) = calls_of(&dirs::dispatcher_dir(&dir)).filter(|_| result.is_ok()) {
        eyas_text::say!("the batch system was asked {}: {}", plural(calls.total(), "time"), calls.in_words());
    }
    let result = result.and_then(|end| {
        if json {
            json::write(&end.as_json(Some(&dirs::dispatcher_dir(&dir))))?;
        }
        Ok(end.exit)
    });
    sweep_homes(&dir);
    if ours {
        // The event log stays for `eyas report` and `eyas explain`; the caches are no longer needed.
        remove_nodes(&dir);
        forget_old_runs(&dir);
    }
    result
}

/// Cancels the unfinished runs of an earlier embedded run that broke off in this folder: they are not part of
/// this run.
async fn end_unfinished(client: &mut Client, dir: &Path) -> Result<(), Fault> {
    for run in client.status().await?.runs.iter().filter(|r| r.ended.is_none()) {
        eyas_text::say!(
            "an earlier run in {} broke off with {} of {} tasks done; what was left of it is cancelled",
            shown_path(dir),
            count(run.n_done),
            count(run.n_tasks)
        );
        client.cancel(Some(run.run), None).await?;
    }
    Ok(())
}

/// Streams a list to the dispatcher; returns when the submission is durable.
async fn submit_list(client: &mut Client, request: &RunRequest) -> Result<RunId, Fault> {
    let RunRequest { list, name, keep, prints, .. } = request;
    let keep = Keep { files: *keep, printed: *prints };
    Ok(client.submit(name, keep, list.shared_arrays()).await?)
}

/// Streams a list to a dispatcher, which may be on another machine.
pub async fn submit_to(client: &mut Client, request: &RunRequest) -> Result<RunId, Fault> {
    let run = submit_list(client, request).await?;
    if let Some(dir) = client.target().dir_here() {
        request.remember(dir, run);
        clusters::remember_work(dir);
    }
    Ok(run)
}
