//! A run that goes on is followed to its end: its progress, what its tasks print, and the parts of its own cluster.

use crate::connect::{Unconnected, try_to_connect};
use crate::logs::InOrder;
use crate::progress::Progress;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault, dirs, given, json, outlived};
use eyas_client::Client;
use eyas_runtime::cluster::{LocalCluster, PROVIDER, PartEnd, in_words};
use eyas_runtime::locks::holder_of;
use eyas_terms::RunId;
use eyas_wire::message::{ReplyBody, RequestBody, RunStatus};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a connection may break before a first answer comes on it.
const LOST_MAX: u32 = 5;
/// How often a client checks whether the parts of its embedded cluster are alive.
const WATCH_PARTS: Duration = Duration::from_millis(500);

/// How long nodes that ended with what started them are given before others take their place.
const NODES_LEAVE: Duration = Duration::from_secs(2);
/// How often the dispatcher is asked where what tasks print is shown.
const PRINTS_NS: u64 = 200_000_000;
const RESUME_HINT: &str = "the same command with --resume goes on";
const CHECK_HINT: &str = "`eyas provider check` with the same options tries one node; once that works, the same command with --resume goes on";

/// How a run that was followed ended.
pub struct End {
    pub exit: Exit,
    /// The last reported status of the run.
    status: RunStatus,
    /// The user did not want to wait for the end of what was started.
    pub in_haste: bool,
}

impl End {
    /// The user left while the run went on.
    fn interrupted(status: RunStatus, in_haste: bool) -> End {
        End { exit: Exit::Interrupted, status, in_haste }
    }

    /// `dir`: the dispatcher's folder.
    pub fn as_json<'a>(&'a self, dir: Option<&'a Path>) -> json::Run<'a> {
        json::Run::of(&self.status, dir)
    }
}

/// Shows a run's progress until its end. ^C cancels the run of an embedded cluster, but only stops following
/// a run of another cluster. A dispatcher that goes away is waited for, as it may be restarted, unless it is
/// part of an embedded cluster.
pub async fn follow(
    mut client: Client,
    run: RunId,
    mut parts: Option<&mut LocalCluster>,
    mut printed: Option<InOrder>,
) -> Result<End, Fault> {
    let mut last = RunStatus { run, ..RunStatus::default() };
    let mut progress = Progress::new();
    // What tasks print is shown soon, whoever reads it.
    let interval_ns = progress.interval_ns().min(if printed.is_some() { PRINTS_NS } else { u64::MAX });
    let mut watch = client.watch(run, interval_ns)?;
    // All that the tasks print and that is to be shown.
    let mut is_shown = true;
    let mut n_lost = 0;
    let mut interrupts = 0;
    let mut asked_to_end = AskedToEnd::listen_to_hangup()?;
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
                            connected = try_to_connect(client.target().file()) => match connected {
                                Ok(client) => client,
                                // The dispatcher is there: waiting for it is of no use.
                                Err(Unconnected { fault, is_refused: true }) => return Err(fault),
                                Err(Unconnected { fault, .. }) => return Err(gone(fault.message, None).await),
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
                            is_shown = false;
                        }
                        if status.ended.is_some() {
                            progress.finish(&status);
                            if let Some(dir) = client.target().dir_here() {
                                given::note_waited(dir, run);
                            }
                            let mut exit = exit_of(&status, interrupts);
                            if let Some(fault) = printed.as_ref().and_then(InOrder::fault) {
                                eyas_text::say!("error: {}", fault.message);
                                is_shown = false;
                            }
                            if exit == Exit::Good && !is_shown {
                                exit = Exit::Other;
                            }
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
            is_hangup = asked_to_end.next_kind() => {
                interrupts += 1;
                if is_hangup {
                    progress.clear();
                    eyas_text::say!("\nthe terminal was closed (signal HUP); under `nohup` a run goes on");
                }
                if parts.is_none() {
                    eyas_text::say!("\nrun {run} goes on; `eyas wait --run {run}` follows it, `eyas cancel --run {run}` ends it");
                    return Ok(End::interrupted(last, false));
                }
                if interrupts > 1 {
                    return Ok(End::interrupted(last, true));
                }
                eyas_text::say!("\nending the tasks; ^C again to leave at once; {RESUME_HINT} with what has not ended");
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
        (Some((name, PartEnd::Said(why))), _) if name == PROVIDER => {
            let fault = part_ended(&name, &PartEnd::Said(progress.not_said_yet(&why)));
            let has_check =
                fault.hint.is_none() && parts.provider_words().is_some_and(outlived::may_leave_blocks);
            return Err(if has_check { fault.hint(CHECK_HINT) } else { fault });
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
    if parts.provider_words().is_some_and(outlived::may_leave_blocks) {
        return true;
    }
    let dir = parts.join.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let is_held = |node: PathBuf| holder_of(&node.join("cache/lock")).is_some();
    since >= NODES_LEAVE && !dirs::node_dirs(dir).into_iter().any(is_held)
}

/// A run cannot go on without that part of its cluster.
fn part_ended(name: &str, end: &PartEnd) -> Fault {
    let fault = Fault::new(Exit::Cluster, format!("{} ended: {end}", in_words(name)));
    // What a provider itself says is a reason to change something first.
    match end {
        // The words of an executor.
        PartEnd::Said(why) if why.contains("no dispatcher answered") => fault.hint(
            "--advertise HOST:PORT gives nodes another name or address of this machine; `eyas provider check` tries it",
        ),
        PartEnd::Said(_) => fault,
        PartEnd::Seen(_) => fault.hint(RESUME_HINT),
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
