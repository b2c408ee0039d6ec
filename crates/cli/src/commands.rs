//! The work of each command.

use crate::args::*;
use crate::clusters::{self, Kind};
use crate::connect::connect;
use crate::dirs::{self, dir_of};
use crate::logs::InOrder;
use crate::print::{count, last_decision, nodes_of, plural, reason, size, time};
use crate::progress::Progress;
use crate::resume::{self, Origin};
use crate::runtimes::{client_runtime, service_runtime};
use crate::signals::AskedToEnd;
use crate::{
    Exit, Fault, ending, equipment, hints, json, keeper, local, node, provide, replaces, tmpfs, walltime,
};
use eyas_client::Client;
use eyas_core::needs::in_parts;
use eyas_core::{RunId, TaskId};
use eyas_runtime::cluster::{LocalCluster, PROVIDER, holder_of};
use eyas_runtime::dispatcher::{DispatcherOptions, GroupOptions};
use eyas_runtime::executor::scratch::{Scratch, ScratchOptions};
use eyas_runtime::executor::{DataPlane, ExecutorError, ExecutorOptions};
use eyas_runtime::provider::calls_of;
use eyas_tasklist::TaskList;
use eyas_text::{line_of, shown, shown_path};
use eyas_wire::identity::Join;
use eyas_wire::message::{ClusterStatus, ExecutorLine, ReplyBody, RequestBody, RunStatus, TaskName};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a connection may break before a first answer comes on it.
const LOST_MAX: u32 = 5;
/// How often a client checks whether the parts of its embedded cluster are alive.
const WATCH_PARTS: Duration = Duration::from_millis(500);

/// How long nodes that ended with what started them are given before others take their place.
const NODES_LEAVE: Duration = Duration::from_secs(2);
const RESUME_HINT: &str = "the same command with --resume goes on";

/// Characters of the names in the tables of `eyas status`.
const NODE_CHARS_MAX: usize = 60;
const RUN_CHARS_MAX: usize = 120;

pub fn run(args: RunArgs) -> Result<Exit, Fault> {
    let cluster = ClusterArgs { provide: args.provide, ..args.cluster };
    let list = crate::workflow::list_of(&args.tasks, &args.files)?;
    // A user who writes lines for a shell wants to see their output.
    let prints = crate::workflow::is_of_commands(&args.tasks, &args.files)?
        && !args.json
        && !cluster.policy.no_event_log;
    match what_is_left(list, Origin::File(args.tasks), &args.resume, args.join.as_deref())? {
        Some(request) => {
            let request = RunRequest { keep: args.keep, prints, ..request };
            replaces::check(&request.list, args.replace, args.files.stand_ins)?;
            say_hints(&request.list)?;
            run_list(request, args.join.as_deref(), &cluster, args.json)
        }
        None => nothing_to_do(args.json),
    }
}

/// The end of a command that had nothing to run.
pub fn nothing_to_do(json: bool) -> Result<Exit, Fault> {
    if json {
        json::write(&json::NoRun::NEEDED)?;
    }
    Ok(Exit::Good)
}

fn say_hints(list: &TaskList) -> Result<(), Fault> {
    hints::of_list(list, &std::env::current_dir()?).iter().for_each(|hint| eyas_text::say!("note: {hint}"));
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
    async fn show_printed(&self, join: &Path, run: RunId) -> Result<Option<InOrder>, Fault> {
        match self.prints {
            true => InOrder::begin(join, run).await.map(Some),
            false => Ok(None),
        }
    }

    /// Called when the run is accepted and its log is in `dir`, the dispatcher's folder. Errors are ignored,
    /// as the run goes on.
    fn remember(&self, dir: &Path) {
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
    join: Option<&Path>,
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
    join: Option<&Path>,
    cluster: &ClusterArgs,
    json: bool,
) -> Result<Exit, Fault> {
    if request.list.n_tasks == 0 {
        eyas_text::say!("there are no tasks: nothing to do");
        return nothing_to_do(json);
    }
    if let Some(path) = join {
        if local::is_shaped(cluster) {
            eyas_text::say!(
                "note: the cluster of {} is used as it is; --nodes, --slots, --cache, --placement and the like \
                 are for a cluster of the run's own",
                shown_path(path)
            );
        }
        return client_runtime().block_on(async {
            let mut client = connect(path).await?;
            let run = submit_to(&mut client, path, &request).await?;
            let printed = request.show_printed(path, run).await?;
            drop(request);
            let end = follow(client, path, run, None, printed).await?;
            if json {
                json::write(&end.as_json(dir_of(path).as_deref()))?;
            }
            Ok(end.exit)
        });
    }
    local::check(cluster)?;
    provide::check_tools(&cluster.provide)?;
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
    let cluster_id = Join::read(&parts.join).map_err(|e| Fault::new(Exit::Cluster, e))?.cluster;
    let dir = dir.canonicalize()?;
    if !cluster.provide.is_elsewhere() {
        tmpfs::say_so(&dir, cluster.node.cache.saturating_mul(u64::from(cluster.nodes.max)));
    }
    clusters::remember(&dir, Kind::Run(std::process::id()))?;
    let join_path = parts.join.clone();
    let result = client_runtime().block_on(async {
        let mut client = Client::connect(&join_path).await?;
        end_unfinished(&mut client, &dir).await?;
        let run = submit_list(&mut client, &request).await?;
        request.remember(&dirs::dispatcher_dir(&dir));
        let printed = request.show_printed(&join_path, run).await?;
        drop(request);
        follow(client, &join_path, run, Some(&mut parts), printed).await
    });
    let in_haste = result.as_ref().is_ok_and(|end| end.in_haste);
    client_runtime().block_on(ending::end_parts(&mut parts, &cluster_id, in_haste))?;
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

/// Removes what killed nodes have left at home, as no later node may do it.
pub fn sweep_homes(dir: &Path) {
    dirs::node_dirs(dir).iter().for_each(|node| eyas_runtime::executor::sweep_home(node));
}

/// Removes caches and sandboxes of an embedded run. All nodes are removed at once, because some file systems
/// take milliseconds for each file (ext4 that discards blocks as they become free).
fn remove_nodes(dir: &Path) {
    let (removed, left) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for node in dirs::node_dirs(dir) {
            let removed = removed.clone();
            scope.spawn(move || {
                let _ = eyas_runner::sandbox::remove_tree(&node);
                drop(removed);
            });
        }
        drop(removed);
        if left.recv_timeout(Duration::from_secs(3)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eyas_text::say!("removing what the nodes kept in {}", shown_path(dir));
        }
    });
}

/// Keeps the folders of the latest few embedded runs, and removes the caches of runs that were killed.
fn forget_old_runs(newest: &Path) {
    const RUNS_KEPT: usize = 20;
    let Some(entries) = newest.parent().and_then(|p| std::fs::read_dir(p).ok()) else { return };
    let mut runs: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p != newest).collect();
    runs.sort();
    for (age, old) in runs.iter().rev().enumerate() {
        // The folder's name contains the process id of the command that runs it.
        let pid = old.file_name().and_then(|n| n.to_str()?.rsplit_once('-')?.1.parse::<i32>().ok());
        // SAFETY: signal 0 only asks whether the process exists.
        let alive = pid.is_some_and(|pid| unsafe { libc::kill(pid, 0) } == 0);
        if !alive {
            sweep_homes(old);
        }
        match (alive, age < RUNS_KEPT) {
            (true, _) => {}
            (false, true) => remove_nodes(old),
            (false, false) => drop(eyas_runner::sandbox::remove_tree(old)),
        }
    }
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
    let RunRequest { list, name, keep, .. } = request;
    Ok(client.submit(name, *keep, list.shared_arrays()).await?)
}

/// Streams a list to the dispatcher with that join file, which may be on another machine.
async fn submit_to(client: &mut Client, join: &Path, request: &RunRequest) -> Result<RunId, Fault> {
    let run = submit_list(client, request).await?;
    if let Some(dir) = dir_of(join) {
        request.remember(&dir);
        clusters::remember_work(join);
    }
    Ok(run)
}

/// How a run that was followed ended.
struct End {
    exit: Exit,
    /// The last reported status of the run.
    status: RunStatus,
    /// The user did not want to wait for the end of what was started.
    in_haste: bool,
}

impl End {
    /// The user left while the run went on.
    fn interrupted(status: RunStatus, in_haste: bool) -> End {
        End { exit: Exit::Interrupted, status, in_haste }
    }

    /// `dir`: the dispatcher's folder.
    fn as_json<'a>(&'a self, dir: Option<&'a Path>) -> json::Run<'a> {
        json::Run::of(&self.status, dir)
    }
}

/// Shows a run's progress until its end. ^C cancels the run of an embedded cluster, but only stops following
/// a run of another cluster. A dispatcher that goes away is waited for, as it may be restarted, unless it is
/// part of an embedded cluster.
async fn follow(
    mut client: Client,
    join: &Path,
    run: RunId,
    mut parts: Option<&mut LocalCluster>,
    mut printed: Option<InOrder>,
) -> Result<End, Fault> {
    let mut last = RunStatus { run, ..RunStatus::default() };
    let mut progress = Progress::new();
    let interval_ns = progress.interval_ns();
    let mut watch = client.watch(run, interval_ns)?;
    let mut n_lost = 0;
    let mut interrupts = 0;
    let mut asked_to_end = AskedToEnd::listen()?;
    let mut look = tokio::time::interval(WATCH_PARTS);
    loop {
        tokio::select! {
            reply = client.next() => {
                let reply = match reply {
                    Ok(reply) => reply,
                    Err(e) if parts.is_some() => return Err(gone(e, parts).await),
                    // The dispatcher accepts us and closes the connection, again and again.
                    Err(e) if n_lost == LOST_MAX => return Err(gone(e, None).await),
                    Err(e) => {
                        n_lost += 1;
                        progress.clear();
                        eyas_text::say!("note: lost the dispatcher: {e}");
                        client = tokio::select! {
                            connected = connect(join) => match connected {
                                Ok(client) => client,
                                Err(fault) => return Err(gone(fault.message, None).await),
                            },
                            () = asked_to_end.next() => return Ok(End::interrupted(last, false)),
                        };
                        eyas_text::say!("note: the dispatcher is back");
                        watch = client.watch(run, interval_ns)?;
                        continue;
                    }
                };
                n_lost = 0;
                match reply.body {
                    ReplyBody::Run(status) if reply.number == watch => {
                        let over = status.ended.is_some();
                        if let Some(shown) = &mut printed
                            && let Err(fault) = shown.show(over, || progress.clear()).await
                        {
                            if fault.nobody_reads {
                                return Err(fault);
                            }
                            eyas_text::say!("note: no more of what the tasks print is shown: {}", fault.message);
                            printed = None;
                        }
                        if status.ended.is_some() {
                            progress.finish(&status);
                            let exit = exit_of(&status, interrupts);
                            return Ok(End { exit, status: *status, in_haste: false });
                        }
                        progress.show(&status);
                        last = *status;
                    }
                    ReplyBody::Refused { reason } => return Err(Fault::new(Exit::BadInput, reason)),
                    _ => {}
                }
            }
            _ = look.tick(), if parts.is_some() => {
                if let Some(parts) = parts.as_deref_mut() {
                    look_after(parts, &mut progress)?;
                }
            }
            _ = asked_to_end.next() => {
                interrupts += 1;
                if parts.is_none() {
                    eyas_text::say!("\nrun {run} goes on; `eyas wait --run {run}` follows it, `eyas cancel --run {run}` ends it");
                    return Ok(End::interrupted(last, false));
                }
                if interrupts > 1 {
                    return Ok(End::interrupted(last, true));
                }
                eyas_text::say!("\nending the tasks; ^C again to leave at once");
                client.send(RequestBody::Cancel { run: Some(run), task: None })?;
            }
        }
    }
}

/// Reports which nodes of an embedded cluster have ended: the run goes on with the others. It cannot go on
/// without any node, nor without a dispatcher or the provider that starts nodes.
fn look_after(parts: &mut LocalCluster, progress: &mut Progress) -> Result<(), Fault> {
    let ended = parts.take_ended_nodes();
    let killed = parts.find_killed_provider();
    match (parts.find_ended(), killed) {
        (Some((name, _)), Some((how, since))) if name == PROVIDER => {
            if !is_room_for_nodes(parts, since) {
                return Ok(());
            }
            progress.clear();
            eyas_text::say!("note: what starts and ends nodes was killed ({how}), and is started again");
            parts.restart_provider()?;
        }
        (Some((name, why)), _) => return Err(part_ended(&name, &why)),
        (None, _) => {}
    }
    for (name, why) in &ended {
        progress.clear();
        eyas_text::say!("note: {name} ended: {why}");
    }
    match ended.last() {
        Some((name, _)) if !parts.has_nodes() => {
            let message = format!("no node is left; {name} was the last");
            Err(Fault::new(Exit::Cluster, message).hint(RESUME_HINT))
        }
        _ => Ok(()),
    }
}

/// Whether a provider that was killed so long ago may be started again. Nodes that ended with it may need a moment for that;
/// blocks elsewhere go on, and are taken over.
fn is_room_for_nodes(parts: &LocalCluster, since: Duration) -> bool {
    if parts.provider_words().is_some_and(provide::may_leave_blocks) {
        return true;
    }
    let dir = parts.join.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let is_held = |node: PathBuf| holder_of(&node.join("cache/lock")).is_some();
    since >= NODES_LEAVE && !dirs::node_dirs(dir).into_iter().any(is_held)
}

/// A run cannot go on without that part of its cluster.
fn part_ended(name: &str, why: &str) -> Fault {
    let fault = Fault::new(Exit::Cluster, format!("the {name} ended: {why}"));
    // What a provider itself says is a reason to change something first.
    match why.starts_with("error: ") {
        // The words of an executor.
        true if why.contains("no dispatcher answered") => fault.hint(
            "--advertise HOST:PORT gives nodes another name or address of this machine; `eyas provider check` tries it",
        ),
        true => fault,
        false => fault.hint(RESUME_HINT),
    }
}

async fn gone(e: impl std::fmt::Display, parts: Option<&mut LocalCluster>) -> Fault {
    let fault = Fault::new(Exit::Cluster, format!("lost the dispatcher: {e}"));
    let Some(parts) = parts else {
        return fault.hint("what was submitted is in its journal; when it is back, `eyas wait` goes on");
    };
    // The connection of a process that was killed may end before the process has.
    for _ in 0..10 {
        if let Some((name, why)) = parts.find_ended() {
            return part_ended(&name, &why);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fault.hint(RESUME_HINT)
}

fn exit_of(status: &RunStatus, interrupts: u32) -> Exit {
    match (interrupts, status.n_failed + status.n_cancelled) {
        (0, 0) => Exit::Good,
        (0, _) => Exit::TasksFailed,
        _ => Exit::Interrupted,
    }
}

pub fn submit(args: SubmitArgs) -> Result<Exit, Fault> {
    let path = clusters::work_join(&args.join)?;
    if let Some(run) = args.into.and_then(|into| into.0) {
        return crate::add::add(&args, &path, run);
    }
    let list = crate::workflow::list_of(&args.tasks, &args.files)?;
    let left = what_is_left(list, Origin::File(args.tasks), &args.resume, Some(&path))?;
    let Some(request) = left else { return nothing_to_do(args.json) };
    let request = RunRequest { keep: args.keep, ..request };
    replaces::check(&request.list, args.replace, args.files.stand_ins)?;
    say_hints(&request.list)?;
    client_runtime().block_on(async {
        let mut client = connect(&path).await?;
        let run = submit_to(&mut client, &path, &request).await.map_err(may_be_accepted)?;
        let n_tasks = request.list.n_tasks;
        match args.json {
            true => json::write(&json::Submitted { run, n_tasks, again: false })?,
            false => writeln!(eyas_text::stdout(), "run {run}: {} accepted", plural(n_tasks, "task"))?,
        }
        Ok(Exit::Good)
    })
}

/// A client that loses the dispatcher during a submission does not know whether it was accepted.
fn may_be_accepted(fault: Fault) -> Fault {
    match fault.exit == Exit::Cluster && fault.hint.is_none() {
        true => fault.hint(
            "the tasks may have been accepted all the same: see `eyas status` when the dispatcher is back, before you submit \
             them again",
        ),
        false => fault,
    }
}

pub fn wait(args: WaitArgs) -> Result<Exit, Fault> {
    let path = clusters::work_join(&args.join)?;
    client_runtime().block_on(async {
        let mut client = connect(&path).await?;
        let ClusterStatus { runs, warnings, .. } = client.status().await?;
        // The warning may be about a dispatcher that is away; its part of the run is waited for, however long
        // that takes.
        warnings.iter().for_each(|warning| eyas_text::say!("warning: {}", line_of(warning)));
        let runs = match args.run {
            Some(run) => vec![RunId(run)],
            // The runs under way and the newest run; the ends of older runs have been reported.
            None => {
                let newest = runs.last().map(|r| r.run);
                let is_wanted = |r: &&RunStatus| r.ended.is_none() || Some(r.run) == newest;
                runs.iter().filter(is_wanted).map(|r| r.run).collect()
            }
        };
        let mut worst = Exit::Good;
        let mut ends = vec![];
        for run in runs {
            let end = follow(connect(&path).await?, &path, run, None, None).await?;
            if end.exit != Exit::Good {
                worst = end.exit;
            }
            ends.push(end);
            if worst == Exit::Interrupted {
                break;
            }
        }
        if args.json {
            let dir = dir_of(&path);
            let runs: Vec<json::Run<'_>> = ends.iter().map(|end| end.as_json(dir.as_deref())).collect();
            json::write(&serde_json::json!({ "runs": runs }))?;
        }
        Ok(worst)
    })
}

pub fn status(args: StatusArgs) -> Result<Exit, Fault> {
    if !args.all {
        let status = status_of(&clusters::look_join(&args.join)?)?;
        match args.json {
            true => json::write(&status)?,
            false => write_status(&status)?,
        }
        return Ok(Exit::Good);
    }
    let running = clusters::running()?;
    if running.is_empty() {
        clusters::look_join(&args.join)?;
    }
    let mut all = vec![];
    for known in running {
        // A cluster that has ended since is skipped.
        let Ok(status) = status_of(&known.join()) else { continue };
        if args.json {
            all.push(serde_json::json!({ "dir": known.dir, "join": known.join(), "status": status }));
            continue;
        }
        writeln!(eyas_text::stdout(), "=== {}", known.describe())?;
        write_status(&status)?;
        writeln!(eyas_text::stdout())?;
    }
    if args.json {
        json::write(&all)?;
    }
    Ok(Exit::Good)
}

/// What tasks hold of gpus and named resources; nothing where there are none.
fn write_equipment(status: &ClusterStatus, width: usize) -> Result<(), Fault> {
    let in_use = |e: &ExecutorLine| {
        let gpus = (e.equipment.gpus > 0)
            .then(|| format!("gpus {}/{}", in_parts(e.held.gpu_parts.into()), e.equipment.gpus));
        let named =
            e.equipment.resources.iter().map(|(name, n)| {
                format!("{} {}/{n}", line_of(name), e.held.resources.get(name).unwrap_or(&0))
            });
        gpus.into_iter().chain(named).collect::<Vec<_>>().join(", ")
    };
    let nodes =
        status.executors.iter().map(|e| (line_of(&e.name).at_most(NODE_CHARS_MAX).to_string(), in_use(e)));
    let of_cluster = status.resources.iter().map(|r| format!("{} {}/{}", line_of(&r.name), r.n_held, r.n));
    let of_cluster = ("cluster".to_string(), of_cluster.collect::<Vec<_>>().join(", "));
    let mut out = eyas_text::stdout();
    for (i, (name, in_use)) in nodes.chain([of_cluster]).filter(|(_, in_use)| !in_use.is_empty()).enumerate()
    {
        if i == 0 {
            writeln!(out, "\n{:<width$} in use", "resources")?;
        }
        writeln!(out, "{name:<width$} {in_use}")?;
    }
    Ok(())
}

fn status_of(join: &Path) -> Result<ClusterStatus, Fault> {
    client_runtime().block_on(async {
        let mut client = connect(join).await?;
        Ok(client.status().await?)
    })
}

fn write_status(status: &ClusterStatus) -> Result<(), Fault> {
    let mut out = eyas_text::stdout();
    let up = time(status.now.since_ns(status.started));
    writeln!(out, "cluster {}, up {up}, placement {}", status.cluster, line_of(&status.placement))?;
    if let Some(provisioner) = &status.provisioner {
        let nodes = nodes_of(provisioner, status);
        writeln!(out, "{nodes}, provisioning {}", provisioner.policy)?;
        if let Some(calls) = &provisioner.calls {
            writeln!(
                out,
                "the batch system was asked {}: {}",
                plural(calls.total(), "time"),
                calls.in_words()
            )?;
        }
        if let Some(last) = last_decision(provisioner, status) {
            writeln!(out, "{last}")?;
        }
    }
    let troubles = status.provisioner.iter().flat_map(|provisioner| &provisioner.troubles);
    for warning in troubles.chain(&status.warnings) {
        writeln!(out, "warning: {}", line_of(warning))?;
    }
    // Nodes from elsewhere have longer names than `node12`.
    let names =
        status.executors.iter().map(|e| line_of(&e.name).at_most(NODE_CHARS_MAX).to_string().chars().count());
    let width = names.max().unwrap_or(0).clamp(10, NODE_CHARS_MAX);
    writeln!(
        out,
        "\n{:<width$} {:<10} {:>7} {:>8} {:>22} {:>10} {:>10} {:>10}",
        "node", "state", "running", "assigned", "cache", "local", "peers", "home"
    )?;
    for e in &status.executors {
        let cache = format!("{} / {}", size(e.status.cache_used_bytes), size(e.cache_bytes));
        let running = format!("{}/{}", e.status.running.len(), e.slots);
        writeln!(
            out,
            "{:<width$} {:<10} {running:>7} {:>8} {cache:>22} {:>10} {:>10} {:>10}",
            line_of(&e.name).at_most(NODE_CHARS_MAX),
            e.state,
            e.n_assigned,
            size(e.status.local_bytes),
            size(e.status.peer_bytes),
            size(e.status.home_read_bytes),
        )?;
    }
    if status.executors.is_empty() {
        writeln!(out, "(no executor has joined)")?;
    }
    write_equipment(status, width)?;
    let blocks = status.provisioner.iter().flat_map(|provisioner| &provisioner.blocks);
    for (i, block) in blocks.enumerate() {
        if i == 0 {
            writeln!(out, "\n{:<24} {:<10} {:<10} why", "block", "state", "id")?;
        }
        let (name, id) = (line_of(&block.name).at_most(NODE_CHARS_MAX), line_of(&block.id));
        let (state, id) = (line_of(&block.state), id.at_most(NODE_CHARS_MAX).to_string());
        let line = format!("{name:<24} {state:<10} {id:<10} {}", line_of(&block.why));
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "\n{:>4} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9}  name",
        "run", "tasks", "waiting", "placed", "done", "failed", "cancelled"
    )?;
    for r in &status.runs {
        writeln!(
            out,
            "{:>4} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9}  {}",
            r.run.0,
            count(r.n_tasks),
            count(r.n_waiting + r.n_ready),
            count(r.n_reserved + r.n_running + r.n_landing),
            count(r.n_done),
            count(r.n_failed),
            count(r.n_cancelled),
            line_of(&r.name).at_most(RUN_CHARS_MAX)
        )?;
    }
    if status.runs.is_empty() {
        writeln!(out, "(no run: nothing was submitted, or what was is forgotten)")?;
    }
    Ok(())
}

/// `#12` is a task's number, any other text is the user's own id.
pub fn task_name(text: &str) -> Result<TaskName, Fault> {
    match text.strip_prefix('#') {
        Some(digits) => match digits.parse() {
            Ok(n) => Ok(TaskName::Number(TaskId(n))),
            Err(_) => {
                Err(Fault::new(Exit::BadInput, format!("{} is not a task number; write #12", shown(text))))
            }
        },
        None => Ok(TaskName::User(text.into())),
    }
}

pub fn cancel(args: CancelArgs) -> Result<Exit, Fault> {
    let path = clusters::look_join(&args.join)?;
    let names = args.tasks.iter().map(|t| task_name(t)).collect::<Result<Vec<_>, _>>()?;
    let n = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let mut n = 0;
        let run = args.run.map(RunId);
        let wanted: Vec<Option<TaskName>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for task in wanted {
            n += client.cancel(run, task).await?;
        }
        Ok::<u64, Fault>(n)
    })?;
    writeln!(eyas_text::stdout(), "{} cancelled", plural(n, "task"))?;
    Ok(Exit::Good)
}

pub fn forget(args: ForgetArgs) -> Result<Exit, Fault> {
    let path = clusters::look_join(&args.join)?;
    let n = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let mut runs: Vec<RunId> = args.runs.iter().copied().map(RunId).collect();
        if args.all {
            let status = client.status().await?;
            runs = status.runs.iter().filter(|run| run.ended.is_some()).map(|run| run.run).collect();
        }
        runs.sort_unstable();
        runs.dedup();
        let n = runs.len() as u64;
        client.forget(runs).await?;
        Ok::<u64, Fault>(n)
    })?;
    writeln!(eyas_text::stdout(), "{} forgotten", plural(n, "run"))?;
    Ok(Exit::Good)
}

pub fn dispatcher(args: DispatcherArgs) -> Result<Exit, Fault> {
    local::check_policy(&args.policy)?;
    let policy = PolicyArgs { keep_runs: args.keep.rule(), ..args.policy.clone() };
    let config = local::dispatcher_config(&policy);
    let options = DispatcherOptions {
        listen: args.listen,
        advertise: args.advertise,
        config,
        home_streams: args.policy.home_streams,
        home_rate_bytes_per_s: args.policy.home_rate,
        event_log: !args.policy.no_event_log,
        until_stdin_closes: args.until_stdin_closes,
        // A single dispatcher is a group of one.
        group: args
            .member
            .filter(|m| m.n_members > 1)
            .map(|membership| GroupOptions { membership, join: args.group }),
        ..DispatcherOptions::local(&args.dir)
    };
    service_runtime()
        .block_on(eyas_runtime::dispatcher::run(options))
        .map(|()| Exit::Good)
        .map_err(|e| Fault::new(Exit::Cluster, e))
}

pub fn executor(args: ExecutorArgs) -> Result<Exit, Fault> {
    if args.probe {
        return crate::probe::look_around(&args);
    }
    node::check_node(&args.node)?;
    let scratch = args.scratch.as_ref().map(|root| scratch_of(root, &args)).transpose()?;
    let own_dir = match &scratch {
        Some(scratch) => Some(scratch.dir().to_path_buf()),
        None => args.dir.clone(),
    };
    let join = match &args.join.join {
        Some(join) if join == Path::new("-") => provide::join_from_stdin(own_dir.as_deref())?,
        _ => clusters::work_join(&args.join)?,
    };
    let address = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?.address;
    let on_loopback =
        address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("localhost:");
    let data_plane = match args.data_plane.as_deref() {
        Some("tls") => DataPlane::Tls,
        Some(_) => DataPlane::Signed,
        None if on_loopback => DataPlane::Signed,
        None => DataPlane::Tls,
    };
    let data_listen =
        args.data_listen.unwrap_or(if on_loopback { "127.0.0.1:0" } else { "0.0.0.0:0" }.into());
    let dir = match own_dir {
        Some(dir) => dir,
        None => dirs::state_dir()?.join(format!("executor-{}", std::process::id())),
    };
    // For the nodes of a local cluster this has been reported already.
    if !args.until_stdin_closes {
        tmpfs::say_so(&std::path::absolute(&dir)?, args.node.cache);
    }
    let gpu_names = match args.node.gpu_names.is_empty() {
        true => equipment::gpu_names(args.node.gpus, 0, 1),
        false => args.node.gpu_names,
    };
    let equipment =
        equipment::of_node(&gpu_names, &args.node.resources).map_err(|e| Fault::new(Exit::BadInput, e))?;
    let remove = dir.clone();
    let options = ExecutorOptions {
        join,
        dir,
        name: args.name.unwrap_or_else(eyas_runtime::executor::host_name),
        slots: args.node.slots.unwrap_or_else(provide::processors),
        cache_bytes: args.node.cache,
        memory_bytes: args.node.memory.unwrap_or_else(eyas_runtime::executor::machine_memory_bytes),
        equipment,
        gpu_names,
        eviction: args.node.eviction,
        data_listen,
        data_plane,
        home_local: args.node.home_local,
        exe: std::env::current_exe()?,
        slot_args: vec![local::SLOT_ARGUMENT.into()],
        until_stdin_closes: args.until_stdin_closes,
        walltime: walltime::of(args.walltime, args.walltime_end),
        grace: Duration::from_nanos(args.node.grace),
    };
    let keeper = (args.remove_dir || scratch.is_some()).then(|| keeper::start(&remove)).transpose()?;
    if let Some(scratch) = &scratch {
        scratch.begin()?;
    }
    let runtime = service_runtime();
    let result = runtime.block_on(eyas_runtime::executor::run(options));
    // A thread that hangs in a system call, for example on a network file system that is away, must not keep
    // the process alive.
    runtime.shutdown_background();
    // Where it could not begin, the directory may be another executor's.
    let was_ours = matches!(&result, Ok(()) | Err(ExecutorError::LeaseEnded { .. } | ExecutorError::Net(_)));
    if let Some(scratch) = scratch {
        keeper::leave(scratch);
    } else if args.remove_dir && was_ours {
        keeper::remove_node_dir(&remove);
    }
    drop(keeper);
    result.map(|()| Exit::Good).map_err(|e| Fault::new(Exit::Cluster, e))
}

/// The folder of an executor among those in `root`. `--dir`, if it is given, becomes a link to it.
fn scratch_of(root: &Path, args: &ExecutorArgs) -> Result<Scratch, Fault> {
    let options = ScratchOptions { root: root.into(), keep: Duration::from_nanos(args.scratch_age) };
    let fail = |what: &str, dir: &Path, e: std::io::Error| {
        Fault::new(Exit::Cluster, format!("cannot {what} {}: {}", shown_path(dir), reason(&e)))
    };
    let scratch = Scratch::claim(&options).map_err(|e| fail("use the folder for caches", root, e))?;
    if let Some(link) = &args.dir {
        let make = || {
            if std::fs::symlink_metadata(link).is_ok_and(|meta| meta.is_symlink()) {
                std::fs::remove_file(link)?;
            }
            std::os::unix::fs::symlink(scratch.dir(), link)
        };
        make().map_err(|e| fail("make the link", link, e))?;
    }
    Ok(scratch)
}
