//! How a run is asked for: the tasks that are left of a list go to a cluster that is up, or to one of the run's own, and its end is
//! waited for.

use crate::args::{ClusterArgs, ResumeArgs};
use crate::connect::connect;
use crate::ending::end_cluster;
use crate::follow::{End, follow};
use crate::logs::InOrder;
use crate::print::{count, plural};
use crate::resume::{self, Origin};
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, dirs, hints, json, local, provide, tmpfs};
use eyas_client::{Choice, Client, JoinFile, Target};
use eyas_cluster::known::Kind;
use eyas_cluster::remains::{forget_old_runs, remove_nodes, sweep_homes};
use eyas_cluster::{Cluster, given};
use eyas_runtime::provider::calls_of;
use eyas_storage::Location;
use eyas_tasklist::TaskList;
use eyas_terms::RunId;
use eyas_text::{line_of, shown_path};
use eyas_wire::message::Keep;
use std::path::{Path, PathBuf};

/// The end of a command that had nothing to run.
pub fn nothing_to_do(json: bool) -> Result<Exit, Fault> {
    if json {
        json::write(&json::NoRun::NEEDED)?;
    }
    Ok(Exit::Good)
}

/// Whether what tasks print is shown where it `would` be; without an event log nothing of it is kept, which is said.
pub fn may_print(would: bool, args: &ClusterArgs) -> bool {
    let may = !args.policy.no_event_log;
    if would && !may {
        eyas_text::say!("note: what the tasks print is neither kept nor shown (--no-event-log)");
    }
    would && may
}

pub fn say_hints(list: &TaskList) -> Result<(), Fault> {
    hints::of_list(list, &dirs::working()?).iter().for_each(|hint| eyas_text::say!("note: {hint}"));
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
    /// Where the tasks are written when the run has ended well, with the files that watched programs were seen to read and make.
    pub declare: Option<PathBuf>,
}

impl RunRequest {
    /// Shows the output of the run's tasks, if that is wanted.
    async fn show_printed(&self, target: &Target, run: RunId) -> Result<Option<InOrder>, Fault> {
        match self.prints {
            true => InOrder::begin(target, run).await.map(Some),
            false => Ok(None),
        }
    }

    /// Called when the run is accepted by a dispatcher of this machine, whose folder has its log. Errors are ignored, as the run goes
    /// on.
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
        resume::Left::Run(list, known) => Some(RunRequest {
            list,
            name: origin.name(),
            keep: false,
            origin,
            known,
            prints: false,
            declare: None,
        }),
    })
}

/// Runs a list on the named cluster, or on a cluster of its own. `json`: also print the outcome as JSON.
pub fn run_list(
    request: RunRequest,
    join: Option<&JoinFile>,
    args: &ClusterArgs,
    json: bool,
) -> Result<Exit, Fault> {
    if request.list.n_tasks == 0 {
        eyas_text::say!("there are no tasks: nothing to do");
        return nothing_to_do(json);
    }
    let mut host = find_host(&request.list, join, args)?;
    let declare = request.declare.clone();
    let end = client_runtime().block_on(async {
        let Submitted { client, run, printed } = submit(request, &host).await?;
        follow(client, run, host.own(), printed).await
    });
    let ended = end.as_ref().ok().and_then(|end| Some((end.dir()?.to_path_buf(), end.run())));
    let exit = host.end(end, json)?;
    match declare {
        Some(path) if exit == Exit::Good => write_declared(ended, &path).map(|()| exit),
        _ => Ok(exit),
    }
}

/// Writes the tasks of a run that has ended well, with what watched programs were seen to read and make. `ended`: the
/// dispatcher's folder, if it is on this machine, and the run.
fn write_declared(ended: Option<(PathBuf, RunId)>, path: &Path) -> Result<(), Fault> {
    let Some((dir, run)) = ended else {
        let message = "--to-list: the log of the run is not on this machine, so what its programs did cannot be written here";
        return Err(Fault::new(Exit::Other, message.to_owned()));
    };
    let name_below = |location: &str, at: &str| {
        let at: Location = at.parse().ok()?;
        location.parse::<Location>().ok()?.name_below(&at)
    };
    let tasks = eyas_report::declared::declared(&dir, run, name_below)?;
    let list = eyas_tasklist::fold_tasks(tasks, &dirs::working()?, "the run")?;
    crate::workflow::write_list(&list, Some(path))?;
    if path != Path::new("-") {
        let n = plural(list.n_tasks, "task");
        eyas_text::say!(
            "{n} written to {} with the files that they read and made; `eyas run` plans them",
            shown_path(path)
        );
    }
    Ok(())
}

/// The cluster that a run is on.
enum Host {
    /// One that is up.
    Up(JoinFile),
    /// One of the run's own, which ends with it. `is_dir_ours`: nobody named its folder.
    Own { cluster: Box<Cluster>, is_dir_ours: bool },
}

/// The named cluster, or a new one.
fn find_host(list: &TaskList, join: Option<&JoinFile>, args: &ClusterArgs) -> Result<Host, Fault> {
    let Some(file) = join else { return start_host(list, args) };
    if local::is_shaped(args) {
        eyas_text::say!(
            "note: the cluster of {} is used as it is; --nodes, --slots, --cache, --placement and the like \
             are for a cluster of the run's own",
            shown_path(file.path())
        );
    }
    Ok(Host::Up(file.clone()))
}

/// Starts a cluster for a run.
fn start_host(list: &TaskList, args: &ClusterArgs) -> Result<Host, Fault> {
    local::check(args)?;
    local::check_tasks(args, list)?;
    let (cluster, is_dir_ours) = start_own(args)?;
    Ok(Host::Own { cluster: Box::new(cluster), is_dir_ours })
}

/// Starts a cluster that ends with this process. Also gives whether nobody named its folder.
pub(crate) fn start_own(args: &ClusterArgs) -> Result<(Cluster, bool), Fault> {
    local::check(args)?;
    provide::check_tools(args)?;
    let (dir, is_dir_ours) = match &args.dir {
        Some(dir) => (dir.clone(), false),
        None => (dirs::new_run_dir()?, true),
    };
    let known = clusters::known()?;
    if let Some(up) = known.running().iter().find(|known| known.kind == Kind::Up) {
        eyas_text::say!(
            "note: this has a cluster of its own; --join {} uses the one that `eyas up` started",
            up.join_file().path().display()
        );
    }
    provide::sweep_keys();
    let cluster = local::start(args, &dir, true)?;
    if !args.provide.is_elsewhere() {
        tmpfs::say_so(cluster.dir(), args.node.cache.saturating_mul(u64::from(args.nodes.max)));
    }
    known.remember(cluster.dir(), Kind::Run(std::process::id()))?;
    Ok((cluster, is_dir_ours))
}

/// Removes what the nodes of a cluster that has ended have left behind.
pub(crate) fn remove_left(dir: &Path, is_dir_ours: bool) {
    sweep_homes(dir);
    if is_dir_ours {
        // The event log stays for `eyas report` and `eyas explain`; the caches are no longer needed.
        let slow = |dir: &Path| eyas_text::say!("removing what the nodes kept in {}", shown_path(dir));
        remove_nodes(dir, || slow(dir));
        forget_old_runs(dir, slow);
    }
}

impl Host {
    async fn connect(&self) -> Result<Client, Fault> {
        match self {
            Host::Up(file) => connect(file).await,
            Host::Own { cluster, .. } => {
                let mut client = cluster.connect().await?;
                end_unfinished(&mut client, cluster.dir()).await?;
                Ok(client)
            }
        }
    }

    fn own(&mut self) -> Option<&mut Cluster> {
        match self {
            Host::Up(_) => None,
            Host::Own { cluster, .. } => Some(cluster),
        }
    }

    /// The run is over, or could not go on: a cluster of its own is ended, and the outcome is printed where that is wanted.
    fn end(self, end: Result<End, Fault>, json: bool) -> Result<Exit, Fault> {
        let Host::Own { cluster, is_dir_ours } = self else { return outcome(end?, json) };
        let (dir, dispatcher_dir) = (cluster.dir().to_path_buf(), cluster.dispatcher_dir());
        let in_haste = end.as_ref().is_ok_and(|end| end.in_haste);
        client_runtime().block_on(end_cluster(*cluster, in_haste))?;
        if let Some(calls) = calls_of(&dispatcher_dir).filter(|_| end.is_ok()) {
            eyas_text::say!(
                "the batch system was asked {}: {}",
                plural(calls.total(), "time"),
                calls.in_words()
            );
        }
        let exit = end.and_then(|end| outcome(end, json));
        remove_left(&dir, is_dir_ours);
        exit
    }
}

fn outcome(end: End, json: bool) -> Result<Exit, Fault> {
    if json {
        json::write(&end.as_json())?;
    }
    Ok(end.exit)
}

/// A run that was accepted.
struct Submitted {
    client: Client,
    run: RunId,
    printed: Option<InOrder>,
}

async fn submit(request: RunRequest, host: &Host) -> Result<Submitted, Fault> {
    let mut client = host.connect().await?;
    let run = submit_to(&mut client, &request).await?;
    let printed = request.show_printed(client.target(), run).await?;
    Ok(Submitted { client, run, printed })
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

/// What the cluster warns of while a submission waits to be accepted.
pub fn say_warning(why: &str) {
    eyas_text::say!("warning: {}", line_of(why));
}

/// Streams a list to a dispatcher, which may be on another machine; returns when the submission is durable.
pub async fn submit_to(client: &mut Client, request: &RunRequest) -> Result<RunId, Fault> {
    let RunRequest { list, name, keep, prints, .. } = request;
    let keep = Keep { files: *keep, printed: *prints };
    let run = client.submit(name, keep, list.shared_arrays(), say_warning).await?;
    let target = client.target();
    if let Some(dir) = target.dir_here() {
        request.remember(dir, run);
        // A cluster of the run's own was remembered when it was started.
        if target.file().choice() != Choice::Own
            && let Ok(known) = clusters::known()
        {
            known.remember_work(dir);
        }
    }
    Ok(run)
}
