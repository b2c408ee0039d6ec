//! A run that goes on is followed to its end: its progress, what its tasks print, and the parts of its own cluster, in words.

use crate::connect::{fault_of, say_waits};
use crate::logs::InOrder;
use crate::print::plural;
use crate::progress::Progress;
use crate::signals::{AskedToEnd, Asking};
use crate::{Exit, Fault, json};
use eyas_client::Client;
use eyas_cluster::processes::PROVIDER;
use eyas_cluster::watch::{Broken, Event, Watch};
use eyas_cluster::{Cluster, given};
use eyas_net::NetError;
use eyas_runtime::part::{PartEnd, in_words};
use eyas_terms::{PushRecord, RunId};
use eyas_text::shown_path;
use eyas_wire::message::RunStatus;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How often the dispatcher is asked where what tasks print is shown.
const PRINTS_NS: u64 = 200_000_000;
/// How long tasks may take to end where a batch system asks for it: Slurm kills after 30 s.
const GRACE: Duration = Duration::from_secs(20);
const RESUME_HINT: &str = "the same command with --resume goes on";
const CHECK_HINT: &str = "`eyas provider check` with the same options tries one node; once that works, the same command with --resume goes on";

/// How a run that was followed ended.
pub struct End {
    pub exit: Exit,
    /// The last reported status of the run.
    status: RunStatus,
    /// The dispatcher's folder, if it is on this machine.
    dir: Option<PathBuf>,
    /// The user did not want to wait for the end of what was started.
    pub in_haste: bool,
}

impl End {
    /// The dispatcher's folder, if it is on this machine.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    pub fn run(&self) -> RunId {
        self.status.run
    }

    fn new(exit: Exit, status: RunStatus, watch: &Watch<'_>) -> End {
        let dir = watch.target().dir_here().map(Path::to_path_buf);
        End { exit, status, dir, in_haste: false }
    }

    /// The user left while the run went on.
    fn interrupted(status: RunStatus, watch: &Watch<'_>) -> End {
        End::new(Exit::Interrupted, status, watch)
    }

    /// How the run's push ended, if it has one and the dispatcher still knows.
    pub fn push(&self) -> Option<&PushRecord> {
        self.status.push.as_deref()
    }

    pub fn as_json(&self) -> json::Run<'_> {
        json::Run::of(&self.status, self.dir.as_deref())
    }
}

/// Shows a run's progress until its end. ^C cancels the run of a cluster of this process, `cluster`, but only stops following
/// a run of another cluster. Where a batch system asks for the end, what has not ended after [`GRACE`] is left.
pub async fn follow(
    client: Client,
    run: RunId,
    cluster: Option<&mut Cluster>,
    printed: Option<InOrder>,
) -> Result<End, Fault> {
    let progress = Progress::new();
    // What tasks print is shown soon, whoever reads it.
    let interval_ns = progress.interval_ns().min(if printed.is_some() { PRINTS_NS } else { u64::MAX });
    let mut watch = Watch::begin(client, run, interval_ns, cluster)?;
    let folder = watch.target().dir_here().map(Path::to_path_buf);
    let mut asked_to_end = AskedToEnd::listen_to_hangup()?;
    let mut shown = Shown { progress, printed, is_whole: true };
    let mut last = RunStatus { run, ..RunStatus::default() };
    let mut interrupts = 0;
    let mut says_what_lands = false;
    let mut leaves_at: Option<Instant> = None;
    loop {
        tokio::select! {
            event = watch.next() => match event {
                Ok(Event::Run(status)) if status.ended.is_some() => {
                    return end(*status, &watch, shown, interrupts).await;
                }
                Ok(Event::Run(status)) => {
                    let n_left = status.n_reserved + status.n_running;
                    if interrupts > 0 && status.n_landing > 0 && n_left == 0 && !says_what_lands {
                        says_what_lands = true;
                        shown.progress.clear();
                        let tasks = plural(status.n_landing, "task");
                        eyas_text::say!("the outputs of {tasks} are on their way home, which is finished first");
                    }
                    shown.show(&status).await?;
                    last = *status;
                }
                Ok(event) => shown.say(event),
                Err(broken) => {
                    shown.progress.clear();
                    let removed = folder.filter(|folder| !folder.exists());
                    return Err(removed.map_or_else(|| shown.fault(broken), |folder| without_folder(&folder)));
                }
            },
            asking = asked_to_end.next_asking() => {
                if watch.is_lost() {
                    return Ok(End::interrupted(last, &watch));
                }
                interrupts += 1;
                if asking == Asking::Terminal {
                    shown.progress.clear();
                    eyas_text::say!("\nthe terminal was closed (signal HUP); under `nohup` a run goes on");
                }
                if !watch.is_own() {
                    eyas_text::say!("\nrun {run} goes on; `eyas wait --run {run}` follows it, `eyas cancel --run {run}` ends it");
                    return Ok(End::interrupted(last, &watch));
                }
                if interrupts > 1 {
                    return Ok(End { in_haste: true, ..End::interrupted(last, &watch) });
                }
                eyas_text::say!("\nending the tasks; ^C again to leave at once; {RESUME_HINT} with what has not ended");
                if asking == Asking::BatchSystem {
                    leaves_at = Some(Instant::now() + GRACE);
                }
                watch.cancel();
            }
            () = sleep_until(leaves_at.unwrap_or_else(Instant::now)), if leaves_at.is_some() => {
                shown.progress.clear();
                let s = GRACE.as_secs();
                eyas_text::say!("not all tasks could be ended within {s} s: leaving, before the batch system kills; {RESUME_HINT}");
                return Ok(End { in_haste: true, ..End::interrupted(last, &watch) });
            }
        }
    }
}

/// The run has ended: the last of it is shown.
async fn end(status: RunStatus, watch: &Watch<'_>, mut shown: Shown, interrupts: u32) -> Result<End, Fault> {
    shown.show_printed(true).await?;
    shown.progress.finish(&status);
    if let Some(dir) = watch.target().dir_here() {
        given::note_waited(dir, watch.run());
    }
    let mut exit = exit_of(&status, interrupts);
    if let Some(fault) = shown.printed.as_ref().and_then(InOrder::fault) {
        eyas_text::say!("error: {}", fault.message);
        shown.is_whole = false;
    }
    if exit == Exit::Good && !shown.is_whole {
        exit = Exit::Other;
    }
    Ok(End::new(exit, status, watch))
}

fn exit_of(status: &RunStatus, interrupts: u32) -> Exit {
    // A push that did not bring everything, or of which nothing is known, is not done.
    let is_pushed = status.push.as_ref().is_none_or(|push| push.is_whole());
    match (interrupts, status.n_failed + status.n_cancelled) {
        (0, 0) if is_pushed => Exit::Good,
        (0, _) => Exit::TasksFailed,
        _ => Exit::Interrupted,
    }
}

/// What the user gets to see while a run goes on.
struct Shown {
    progress: Progress,
    printed: Option<InOrder>,
    /// All that the tasks print and that is to be shown.
    is_whole: bool,
}

impl Shown {
    /// Shows how a run is that goes on.
    async fn show(&mut self, status: &RunStatus) -> Result<(), Fault> {
        self.show_printed(false).await?;
        self.progress.show(status);
        Ok(())
    }

    /// Shows what tasks have printed; `all` of it, or so much that nobody waits long. Errors: nobody reads it any more.
    async fn show_printed(&mut self, all: bool) -> Result<(), Fault> {
        let Shown { progress, printed, is_whole } = self;
        if let Some(in_order) = printed
            && let Err(fault) = in_order.show(all, || progress.clear()).await
        {
            if fault.nobody_reads {
                return Err(fault);
            }
            eyas_text::say!("note: no more of what the tasks print is shown: {}", fault.message);
            *printed = None;
            *is_whole = false;
        }
        Ok(())
    }

    /// Says what has happened beside the run.
    fn say(&mut self, event: Event) {
        match event {
            Event::Run(_) => {}
            Event::Lost(error) => {
                self.progress.clear();
                eyas_text::say!("note: lost the dispatcher: {error}");
            }
            Event::Waits(waits) => say_waits(waits),
            Event::Back => eyas_text::say!("note: the dispatcher is back"),
            Event::NodeEnded { name, why } => {
                self.progress.clear();
                eyas_text::say!("note: {name} ended: {why}");
            }
            Event::ProviderRestarted { how } => {
                self.progress.clear();
                eyas_text::say!("note: what starts and ends nodes was killed ({how}), and is started again");
            }
        }
    }

    fn fault(&self, broken: Broken) -> Fault {
        match broken {
            Broken::Lost(error) => gone(error),
            Broken::OwnLost { ended: Some((name, why)), .. } => part_ended(&name, &why),
            Broken::OwnLost { error, ended: None } => lost(error).hint(RESUME_HINT),
            // The dispatcher is there: waiting for it is of no use.
            Broken::Unreached(unreached) if matches!(unreached.error, NetError::NotAMember { .. }) => {
                fault_of(unreached)
            }
            Broken::Unreached(unreached) => gone(fault_of(unreached).message),
            Broken::Refused(reason) => Fault::new(Exit::BadInput, reason),
            Broken::PartEnded { name, why: PartEnd::Said(why), blocks_outlive } if name == PROVIDER => {
                let fault = part_ended(&name, &PartEnd::Said(self.progress.not_said_yet(&why)));
                let has_check = fault.hint.is_none() && blocks_outlive;
                if has_check { fault.hint(CHECK_HINT) } else { fault }
            }
            Broken::PartEnded { name, why, .. } => part_ended(&name, &why),
            Broken::NoNode { last } => {
                let message = format!("no node is left; {last} was the last");
                Fault::new(Exit::Cluster, message).hint(RESUME_HINT)
            }
            Broken::Process(error) => error.into(),
        }
    }
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

/// The folder of the dispatcher is not there any more.
fn without_folder(folder: &Path) -> Fault {
    let message = format!(
        "the folder {} was removed or moved while the cluster was up, which ends it and its tasks",
        shown_path(folder)
    );
    Fault::new(Exit::Cluster, message).hint("what is home is whole; `eyas up` starts another cluster")
}

fn lost(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::Cluster, format!("lost the dispatcher: {e}"))
}

/// The dispatcher of a cluster that stays does not come back.
fn gone(e: impl std::fmt::Display) -> Fault {
    lost(e).hint("what was submitted is in its journal; when it is back, `eyas wait` goes on")
}
