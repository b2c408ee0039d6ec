//! What each verb does.

use crate::args::*;
use crate::print::{count, nodes_of, plural, reason, size, time};
use crate::progress::Progress;
use crate::{Exit, Fault, local, resume};
use eyas_core::RunId;
use eyas_core::TaskId;
use eyas_runtime::client::Client;
use eyas_runtime::cluster::{LocalCluster, PROVIDER};
use eyas_runtime::dispatcher::{DispatcherOptions, GroupOptions};
use eyas_runtime::executor::{DataPlane, ExecutorOptions};
use eyas_runtime::net::NetError;
use eyas_runtime::provider::ProviderOptions;
use eyas_tasklist::{ListInput, MapSpec, ReadOptions, TaskList};
use eyas_wire::identity::Join;
use eyas_wire::message::{Captured, ClusterStatus, ReplyBody, RequestBody, RunStatus, TaskName};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a client looks whether the parts of its embedded cluster live.
const WATCH_PARTS: Duration = Duration::from_millis(500);

pub fn client_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime can be made")
}

fn service_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime with two threads can be made")
}

// ---------------------------------------------------------------- running

pub fn map(args: Box<MapArgs>) -> Result<Exit, Fault> {
    let base_dir = std::env::current_dir()?;
    let from_stdin = args.paths.iter().any(|p| p == "-");
    let mut with = args.with.clone();
    for name in files_named(&args.command, args.shell, &base_dir) {
        if !with.iter().chain(&args.paths).any(|given| *given == name) {
            eprintln!("note: `{name}`, which the command names, is an input of every task");
            with.push(name);
        }
    }
    let spec = MapSpec {
        paths: args.paths.iter().filter(|p| *p != "-").cloned().collect(),
        range: args.range.clone(),
        with,
        out: args.out.clone(),
        command: args.command.clone(),
        shell: args.shell,
        cpus: args.cpus,
        memory_bytes: args.task_memory,
        walltime_ns: args.walltime,
        retries: args.retries,
        priority: args.priority,
        label: args.label.clone(),
        base_dir,
        ..MapSpec::default()
    };
    let list = if from_stdin {
        let mut stdin = std::io::stdin().lock();
        let input = ListInput { reader: &mut stdin, origin: "standard input", ends_in_nul: args.null };
        eyas_tasklist::map(&spec, Some(input))?
    } else {
        eyas_tasklist::map(&spec, None)?
    };
    let name = args.command.join(" ");
    let submission = Submission { list, name, keep: false, tasks: None, known: resume::Known::default() };
    run_list(submission, args.join.as_deref(), &args.cluster)
}

/// Words of a map's command that are files here, such as the script in `python3 cutout.py {in} {out}`: a task
/// runs in a sandbox of its own and would not find them. Only plain names; whatever has a folder in it
/// has to be given `--with`, as its place in the sandbox is not for us to guess.
fn files_named(command: &[String], shell: bool, base_dir: &Path) -> Vec<String> {
    let words: Vec<&str> = match shell {
        true => command.iter().flat_map(|line| line.split_whitespace()).collect(),
        false => command.iter().map(String::as_str).collect(),
    };
    let mut names = vec![];
    for word in words {
        let name = word.strip_prefix("./").unwrap_or(word);
        let is_plain = !name.is_empty() && !name.contains(['/', '{', '}']);
        if is_plain && base_dir.join(name).is_file() && !names.iter().any(|n| n == name) {
            names.push(name.to_string());
        }
    }
    names
}

pub fn run(args: RunArgs) -> Result<Exit, Fault> {
    let list = crate::workflow::list_of(&args.tasks, &args.files)?;
    match what_is_left(list, &args.tasks, &args.resume, args.keep, args.join.as_deref())? {
        Some(submission) => run_list(submission, args.join.as_deref(), &args.cluster),
        None => Ok(Exit::Good),
    }
}

/// What a user wants done.
struct Submission {
    list: TaskList,
    /// The run's, for people.
    name: String,
    keep: bool,
    /// The file that the tasks are from, if a later run of it may want to go on with this one.
    tasks: Option<PathBuf>,
    known: resume::Known,
}

impl Submission {
    /// Called once it is accepted and its log is in `dir`, the dispatcher's folder. It goes on in any case.
    fn remember(&self, dir: &Path) {
        if let Some(tasks) = &self.tasks
            && let Err(fault) = self.known.leave(tasks, dir)
        {
            eprintln!("note: a later --resume will not find all of this run: {}", fault.message);
        }
    }
}

/// The tasks that have to run; `None` when that was only asked, or there are none.
fn what_is_left(
    list: TaskList,
    tasks: &Path,
    args: &ResumeArgs,
    keep: bool,
    join: Option<&Path>,
) -> Result<Option<Submission>, Fault> {
    let resume = args.resume.as_ref().map(|dir| dir.as_deref());
    let asked = resume::Asked { tasks, resume, dry_run: args.dry_run, join };
    Ok(match resume::what_is_left(list, &asked)? {
        resume::Left::Nothing => None,
        resume::Left::Run(list, known) => {
            let name = tasks.display().to_string();
            Some(Submission { list, name, keep, tasks: Some(tasks.to_path_buf()), known })
        }
    })
}

pub fn read_list(path: &Path) -> Result<TaskList, Fault> {
    read_list_with(path, &ReadOptions::default())
}

/// As [`read_list`]; where the tasks come from is put into the options here.
pub fn read_list_with(path: &Path, options: &ReadOptions) -> Result<TaskList, Fault> {
    let base_dir = std::env::current_dir()?;
    if path == Path::new("-") {
        let options = ReadOptions { origin: "standard input".into(), ..options.clone() };
        return Ok(eyas_tasklist::read(std::io::stdin().lock(), &base_dir, &options)?);
    }
    let name = path.display().to_string();
    let unreadable =
        |why: &str| Fault::new(Exit::BadInput, format!("cannot read the task list `{name}`: {why}"));
    let file = File::open(path).map_err(|e| unreadable(&reason(&e)))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(
            unreadable("it is a directory").hint("`eyas map` runs a command over the files of a directory")
        );
    }
    let options = ReadOptions { origin: name, ..options.clone() };
    Ok(eyas_tasklist::read(BufReader::with_capacity(1 << 20, file), &base_dir, &options)?)
}

/// Runs a list on the cluster named, or on one of its own.
fn run_list(submission: Submission, join: Option<&Path>, cluster: &ClusterArgs) -> Result<Exit, Fault> {
    if submission.list.n_tasks == 0 {
        eprintln!("there are no tasks: nothing to do");
        return Ok(Exit::Good);
    }
    if let Some(path) = join {
        if local::is_shaped(cluster) {
            eprintln!(
                "note: the cluster of `{}` is used as it is; --nodes, --slots, --cache, --placement and the like \
                 are for a cluster of the run's own",
                path.display()
            );
        }
        return client_runtime().block_on(async {
            let mut client = Client::connect(path).await?;
            let run = submit_to(&mut client, path, &submission).await?;
            drop(submission);
            follow(&mut client, run, None).await
        });
    }
    let (dir, ours) = match &cluster.dir {
        Some(dir) => (dir.clone(), false),
        None => (local::new_run_dir()?, true),
    };
    let mut parts = local::start(cluster, &dir, true)?;
    let dir = dir.canonicalize()?;
    local::remember_last(&dir)?;
    let join_path = parts.join.clone();
    let result = client_runtime().block_on(async {
        let mut client = Client::connect(&join_path).await?;
        end_unfinished(&mut client, &dir).await?;
        let run = submit_list(&mut client, &submission).await?;
        submission.remember(&local::dispatcher_dir(&dir));
        drop(submission);
        follow(&mut client, run, Some(&mut parts)).await
    });
    parts.stop();
    if ours {
        // The event log stays for `eyas report` and `eyas explain`; the caches are of no more use.
        remove_nodes(&dir);
        forget_old_runs(&dir);
    }
    result
}

/// Removes caches and sandboxes of an embedded run: all nodes at once, since some file systems take
/// milliseconds for each file (ext4 that discards blocks as they become free).
fn remove_nodes(dir: &Path) {
    let is_node = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(b"node");
    let nodes = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_node);
    let (removed, left) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for node in nodes {
            let removed = removed.clone();
            scope.spawn(move || {
                let _ = eyas_runner::sandbox::remove_tree(&node.path());
                drop(removed);
            });
        }
        drop(removed);
        if left.recv_timeout(Duration::from_secs(3)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("removing what the nodes kept in `{}`", dir.display());
        }
    });
}

/// Keeps the folders of the latest few embedded runs, without the caches of those that were killed.
fn forget_old_runs(newest: &Path) {
    const RUNS_KEPT: usize = 20;
    let Some(entries) = newest.parent().and_then(|p| std::fs::read_dir(p).ok()) else { return };
    let mut runs: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p != newest).collect();
    runs.sort();
    for (age, old) in runs.iter().rev().enumerate() {
        // The process id of the one that runs it is in its name.
        let pid = old.file_name().and_then(|n| n.to_str()?.rsplit_once('-')?.1.parse::<i32>().ok());
        // SAFETY: signal 0 only asks whether the process exists.
        let alive = pid.is_some_and(|pid| unsafe { libc::kill(pid, 0) } == 0);
        match (alive, age < RUNS_KEPT) {
            (true, _) => {}
            (false, true) => remove_nodes(old),
            (false, false) => drop(eyas_runner::sandbox::remove_tree(old)),
        }
    }
}

/// An earlier embedded run in this folder broke off: what it had not finished is not this run's.
async fn end_unfinished(client: &mut Client, dir: &Path) -> Result<(), Fault> {
    let ReplyBody::Status(status) = client.ask(RequestBody::Status).await? else { return Ok(()) };
    for run in status.runs.iter().filter(|r| r.ended.is_none()) {
        eprintln!(
            "an earlier run in `{}` broke off with {} of {} tasks done; what was left of it is cancelled",
            dir.display(),
            count(run.n_done),
            count(run.n_tasks)
        );
        client.ask(RequestBody::Cancel { run: Some(run.run), task: None }).await?;
    }
    Ok(())
}

/// Streams a list to the dispatcher with that join file, which may be on another machine.
async fn submit_to(client: &mut Client, join: &Path, submission: &Submission) -> Result<RunId, Fault> {
    let run = submit_list(client, submission).await?;
    let dir = PathBuf::from(Join::read(join).map_err(|e| Fault::new(Exit::Cluster, e))?.dir);
    if dir.is_dir() {
        submission.remember(&dir);
    }
    Ok(run)
}

/// Streams a list to the dispatcher; returns when the submission is durable.
async fn submit_list(client: &mut Client, submission: &Submission) -> Result<RunId, Fault> {
    let Submission { list, name, keep, .. } = submission;
    let open = RequestBody::OpenRun { name: name.clone(), keep: *keep, into: None };
    Ok(stream_list(client, list, open).await?.run)
}

/// What the dispatcher said to a submission.
pub struct Accepted {
    pub run: RunId,
    /// These tasks had been accepted before.
    pub again: bool,
}

/// As [`submit_list`], beginning with `open`.
pub async fn stream_list(
    client: &mut Client,
    list: &TaskList,
    open: RequestBody,
) -> Result<Accepted, NetError> {
    let makes_no_sense = || NetError::Refused("its answer to a submission makes no sense".into());
    let run = match client.ask(open).await? {
        ReplyBody::RunOpened { run, .. } => run,
        ReplyBody::RunAccepted { run, again, .. } => return Ok(Accepted { run, again }),
        _ => return Err(makes_no_sense()),
    };
    for array in &list.arrays {
        client.send(RequestBody::AddArray { run, array: Arc::new(array.clone()) })?;
    }
    let number = client.send(RequestBody::CommitRun { run })?;
    loop {
        let reply = client.next().await?;
        match reply.body {
            ReplyBody::RunAccepted { run, again, .. } => return Ok(Accepted { run, again }),
            // The first refusal tells the reason; the one to the commit repeats it.
            ReplyBody::Refused { reason } => return Err(NetError::Refused(reason)),
            _ if reply.number == number => return Err(makes_no_sense()),
            _ => {}
        }
    }
}

/// Shows a run's progress until its end. ^C cancels the run of an embedded cluster, and only leaves
/// another one.
async fn follow(
    client: &mut Client,
    run: RunId,
    mut parts: Option<&mut LocalCluster>,
) -> Result<Exit, Fault> {
    let mut progress = Progress::new();
    let watch = client.send(RequestBody::WatchRun { run, interval_ns: progress.interval_ns() })?;
    let mut interrupts = 0;
    let mut asked_to_end = AskedToEnd::listen()?;
    let mut look = tokio::time::interval(WATCH_PARTS);
    loop {
        tokio::select! {
            reply = client.next() => {
                let reply = match reply {
                    Ok(reply) => reply,
                    Err(e) => return Err(gone(e, parts)),
                };
                match reply.body {
                    ReplyBody::Run(status) if reply.number == watch => {
                        if status.ended.is_some() {
                            progress.finish(&status);
                            return Ok(exit_of(&status, interrupts));
                        }
                        progress.show(&status);
                    }
                    ReplyBody::Refused { reason } => return Err(Fault::new(Exit::BadInput, reason)),
                    _ => {}
                }
            }
            _ = look.tick(), if parts.is_some() => {
                if let Some(parts) = parts.as_deref_mut()
                    && let Some((name, why)) = parts.find_ended()
                    && (name.starts_with("dispatcher") || name == PROVIDER)
                {
                    return Err(Fault::new(Exit::Cluster, format!("the {name} ended: {why}")));
                }
            }
            _ = asked_to_end.next() => {
                interrupts += 1;
                if parts.is_none() {
                    eprintln!("\nrun {run} goes on; `eyas wait --run {run}` follows it, `eyas cancel --run {run}` ends it");
                    return Ok(Exit::Interrupted);
                }
                if interrupts > 1 {
                    return Ok(Exit::Interrupted);
                }
                eprintln!("\nending the tasks; ^C again to leave at once");
                client.send(RequestBody::Cancel { run: Some(run), task: None })?;
            }
        }
    }
}

/// ^C, and what a batch system says instead. Not a closed terminal: listening would undo `nohup`.
struct AskedToEnd([Signal; 2]);

impl AskedToEnd {
    fn listen() -> std::io::Result<AskedToEnd> {
        Ok(AskedToEnd([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

fn gone(e: NetError, parts: Option<&mut LocalCluster>) -> Fault {
    if let Some((name, why)) = parts.and_then(|p| p.find_ended()) {
        return Fault::new(Exit::Cluster, format!("the {name} ended: {why}"));
    }
    Fault::new(Exit::Cluster, format!("lost the dispatcher: {e}"))
        .hint("what was submitted is in its journal; when it is back, `eyas wait` goes on")
}

fn exit_of(status: &RunStatus, interrupts: u32) -> Exit {
    match (interrupts, status.n_failed + status.n_cancelled) {
        (0, 0) => Exit::Good,
        (0, _) => Exit::TasksFailed,
        _ => Exit::Interrupted,
    }
}

pub fn submit(args: SubmitArgs) -> Result<Exit, Fault> {
    let path = local::join_path(&args.join)?;
    if let Some(run) = args.into.and_then(|into| into.0) {
        return crate::add::add(&args, &path, run);
    }
    let list = crate::workflow::list_of(&args.tasks, &args.files)?;
    let left = what_is_left(list, &args.tasks, &args.resume, args.keep, Some(&path))?;
    let Some(submission) = left else { return Ok(Exit::Good) };
    client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let run = submit_to(&mut client, &path, &submission).await?;
        writeln!(std::io::stdout(), "run {run}: {} accepted", plural(submission.list.n_tasks, "task"))?;
        Ok(Exit::Good)
    })
}

pub fn wait(args: WaitArgs) -> Result<Exit, Fault> {
    let path = local::join_path(&args.join)?;
    client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let runs = match args.run {
            Some(run) => vec![RunId(run)],
            // What is under way, and the newest: the ends of older ones have been told.
            None => {
                let runs = cluster_status(&mut client).await?.runs;
                let newest = runs.last().map(|r| r.run);
                let is_wanted = |r: &&RunStatus| r.ended.is_none() || Some(r.run) == newest;
                runs.iter().filter(is_wanted).map(|r| r.run).collect()
            }
        };
        let mut worst = Exit::Good;
        for run in runs {
            match follow(&mut client, run, None).await? {
                Exit::Good => {}
                Exit::Interrupted => return Ok(Exit::Interrupted),
                other => worst = other,
            }
        }
        Ok(worst)
    })
}

// ---------------------------------------------------------------- looking

async fn cluster_status(client: &mut Client) -> Result<ClusterStatus, Fault> {
    match client.ask(RequestBody::Status).await? {
        ReplyBody::Status(status) => Ok(*status),
        _ => Err(Fault::new(Exit::Cluster, "the dispatcher's answer makes no sense")),
    }
}

pub fn status(args: StatusArgs) -> Result<Exit, Fault> {
    let path = local::join_path(&args.join)?;
    let status = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        cluster_status(&mut client).await
    })?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &status).map_err(|e| Fault::new(Exit::Other, e))?;
        writeln!(out)?;
        return Ok(Exit::Good);
    }
    let up = time(status.now.since_ns(status.started));
    writeln!(out, "cluster {}, up {up}, placement {}", status.cluster, status.placement)?;
    if let Some(provisioner) = &status.provisioner {
        let nodes = nodes_of(provisioner, status.executors.len());
        writeln!(out, "{nodes}, provisioning {}", provisioner.policy)?;
    }
    for warning in &status.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(
        out,
        "\n{:<10} {:<10} {:>7} {:>8} {:>22} {:>10} {:>10} {:>10}",
        "node", "state", "running", "assigned", "cache", "local", "peers", "home"
    )?;
    for e in &status.executors {
        let cache = format!("{} / {}", size(e.status.cache_used_bytes), size(e.cache_bytes));
        let running = format!("{}/{}", e.status.running.len(), e.slots);
        writeln!(
            out,
            "{:<10} {:<10} {running:>7} {:>8} {cache:>22} {:>10} {:>10} {:>10}",
            e.name,
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
            r.name
        )?;
    }
    Ok(Exit::Good)
}

/// `#12` is a number, anything else the user's own id.
pub fn task_name(text: &str) -> Result<TaskName, Fault> {
    match text.strip_prefix('#') {
        Some(digits) => match digits.parse() {
            Ok(n) => Ok(TaskName::Number(TaskId(n))),
            Err(_) => Err(Fault::new(Exit::BadInput, format!("`{text}` is not a task number; write #12"))),
        },
        None => Ok(TaskName::User(text.into())),
    }
}

pub fn logs(args: TaskArgs) -> Result<Exit, Fault> {
    let name = task_name(&args.task)?;
    let Some(path) = local::live_or_ended(&args.join, args.dir.as_deref())? else {
        return crate::tell::ended_logs(&args);
    };
    let printed = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        match client.ask(RequestBody::Logs { run: args.run.map(RunId), task: name }).await? {
            ReplyBody::Printed { printed, .. } => Ok(printed),
            _ => Err(Fault::new(Exit::Cluster, "the dispatcher's answer makes no sense")),
        }
    })?;
    for attempt in &printed {
        if printed.len() > 1 {
            eprintln!("--- attempt {}", attempt.attempt);
        }
        write_captured(&mut std::io::stdout().lock(), &attempt.stdout)?;
        write_captured(&mut std::io::stderr().lock(), &attempt.stderr)?;
    }
    if printed.is_empty() {
        eprintln!("task `{}` has printed nothing so far", args.task);
    }
    Ok(Exit::Good)
}

pub fn write_captured(out: &mut impl Write, captured: &Captured) -> std::io::Result<()> {
    out.write_all(&captured.head)?;
    let skipped = captured.total_bytes
        - (captured.head.len() + captured.tail.len()).min(captured.total_bytes as usize) as u64;
    if skipped > 0 {
        writeln!(out, "\n[... {} not kept ...]", size(skipped))?;
    }
    out.write_all(&captured.tail)?;
    out.flush()
}

pub fn cancel(args: CancelArgs) -> Result<Exit, Fault> {
    let path = local::join_path(&args.join)?;
    let names = args.tasks.iter().map(|t| task_name(t)).collect::<Result<Vec<_>, _>>()?;
    let n = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let mut n = 0;
        let run = args.run.map(RunId);
        let wanted: Vec<Option<TaskName>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for task in wanted {
            if let ReplyBody::Cancelled { n_tasks } = client.ask(RequestBody::Cancel { run, task }).await? {
                n += n_tasks;
            }
        }
        Ok::<u64, Fault>(n)
    })?;
    writeln!(std::io::stdout(), "{} cancelled", plural(n, "task"))?;
    Ok(Exit::Good)
}

// ---------------------------------------------------------------- clusters

pub fn up(args: UpArgs) -> Result<Exit, Fault> {
    let dir = match &args.cluster.dir {
        Some(dir) => dir.clone(),
        None => local::default_cluster_dir()?,
    };
    let join = local::dispatcher_dir(&dir).join(eyas_runtime::dispatcher::JOIN_FILE);
    let nodes = args.cluster.nodes;
    client_runtime().block_on(async {
        if join.exists() && Client::connect(&join).await.is_ok() {
            let message = format!("a cluster is up already in `{}`", dir.display());
            return Err(
                Fault::new(Exit::Cluster, message).hint("`eyas down` ends it, `eyas status` shows it")
            );
        }
        let parts = local::start(&args.cluster, &dir, false)?;
        let mut client = Client::connect(&join).await?;
        let mut parts = Some(parts);
        // Ready means that all nodes have joined which are there without work.
        while cluster_status(&mut client).await?.executors.len() < nodes.min as usize {
            if let Some((name, why)) = parts.as_mut().and_then(|p| p.find_ended()) {
                return Err(Fault::new(Exit::Cluster, format!("{name} ended: {why}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if let Some(parts) = parts.take() {
            parts.detach();
        }
        let at_most = if nodes.are_fixed() { String::new() } else { format!(", at most {}", nodes.max) };
        let up = plural(u64::from(nodes.min), "node");
        writeln!(std::io::stdout(), "{up} up{at_most}; join file: {}", join.display())?;
        Ok(Exit::Good)
    })
}

pub fn down(args: JoinArgs) -> Result<Exit, Fault> {
    let path = local::join_path(&args)?;
    client_runtime().block_on(async {
        let mut client = match Client::connect(&path).await {
            Ok(client) => client,
            Err(e) => {
                let hint = format!("nobody answers; if the cluster was killed, remove `{}`", path.display());
                return Err(Fault::from(e).hint(hint));
            }
        };
        client.ask(RequestBody::Shutdown).await?;
        // The join file goes when the dispatcher does.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while path.exists() && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        writeln!(std::io::stdout(), "the cluster has ended")?;
        Ok(Exit::Good)
    })
}

pub fn dispatcher(args: DispatcherArgs) -> Result<Exit, Fault> {
    let config = local::dispatcher_config(&args.policy);
    let options = DispatcherOptions {
        listen: args.listen,
        advertise: args.advertise,
        dir: args.dir,
        config,
        home_streams: args.policy.home_streams,
        home_rate_bytes_per_s: args.policy.home_rate,
        event_log: !args.policy.no_event_log,
        capture_head_bytes: 16 << 10,
        capture_tail_bytes: 16 << 10,
        until_stdin_closes: args.until_stdin_closes,
        // One of one is what any dispatcher is.
        group: args
            .member
            .filter(|m| m.n_members > 1)
            .map(|membership| GroupOptions { membership, join: args.group }),
    };
    service_runtime()
        .block_on(eyas_runtime::dispatcher::run(options))
        .map(|()| Exit::Good)
        .map_err(|e| Fault::new(Exit::Cluster, e))
}

pub fn executor(args: ExecutorArgs) -> Result<Exit, Fault> {
    let join = local::join_path(&args.join)?;
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
    let dir = match args.dir {
        Some(dir) => dir,
        None => local::state_dir()?.join(format!("executor-{}", std::process::id())),
    };
    let options = ExecutorOptions {
        join,
        dir,
        name: args.name.unwrap_or_else(eyas_runtime::executor::host_name),
        slots: args.node.slots.unwrap_or(std::thread::available_parallelism().map_or(1, |n| n.get() as u32)),
        cache_bytes: args.node.cache,
        memory_bytes: args.node.memory.unwrap_or_else(eyas_runtime::executor::machine_memory_bytes),
        eviction: args.node.eviction,
        data_listen,
        data_plane,
        home_local: args.node.home_local,
        exe: std::env::current_exe()?,
        slot_args: vec![local::SLOT_ARGUMENT.into()],
        until_stdin_closes: args.until_stdin_closes,
    };
    service_runtime()
        .block_on(eyas_runtime::executor::run(options))
        .map(|()| Exit::Good)
        .map_err(|e| Fault::new(Exit::Cluster, e))
}

pub fn provider(args: ProviderArgs) -> Result<Exit, Fault> {
    let join = local::join_path(&args.join)?;
    let slots = args.node.slots.unwrap_or(1);
    let config = local::provision_config(args.nodes, &args.provision, slots);
    let (to, dir, node) = (join.clone(), args.dir, args.node);
    let options = ProviderOptions {
        exe: std::env::current_exe()?,
        log_dir: join.parent().unwrap_or(Path::new(".")).to_path_buf(),
        join,
        node_name: local::node_name,
        node_args: Box::new(move |number| local::executor_arguments(&to, &dir, number, &node)),
        config,
        until_stdin_closes: args.until_stdin_closes,
    };
    client_runtime()
        .block_on(eyas_runtime::provider::run(options))
        .map(|()| Exit::Good)
        .map_err(|e| Fault::new(Exit::Cluster, e))
}
