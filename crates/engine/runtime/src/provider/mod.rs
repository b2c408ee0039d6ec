//! Providers: executors that come when there is work and go when there is none.
//!
//! A provider asks the dispatcher for its demand every [`LOOK`], lets [`eyas_core::provisioning::blocks`] decide, and carries that
//! out: it submits, lists and cancels blocks, and has idle nodes drained. Where blocks come from is a [`Source`]: this machine
//! ([`Local`]), hosts that are known by name ([`Hosts`]), commands of the user ([`Commands`]), or batch systems
//! and clouds through Parsl, and Ray ([`Batch`]). A source works on a thread of its own, one order after the other, so
//! that a batch system that hangs does not keep the provider from looking.
//!
//! A provider ends when the dispatcher does, and its blocks with it. Where blocks live elsewhere, a dispatcher that only does not
//! answer is waited for, for the length of the lease: it may be started again.
//!
//! Executors that somebody else started help, but are neither counted nor released here.
//!
//! Not here: how many nodes there should be, and when which command is given.

mod batch;
mod calls;
mod command;
mod ended;
mod haste;
mod hosts;
mod launch;
mod local;
mod script;
mod share;
mod sweep;
mod worker;

pub use batch::{Batch, BatchSettings, RAY, Refusal, check_python};
pub use calls::{CallCount, calls_of};
pub use command::{CommandLines, Commands, check_line, has_hole};
pub use haste::Haste;
pub use hosts::{Hosts, Reach};
pub use launch::Launch;
pub use local::Local;
pub use script::{block_config, prefix as block_prefix};
pub use share::Share;
pub use sweep::{claim, sweep_shares};

use crate::locks::{holder_of, provider_lock};
use crate::parent;
use eyas_client::{Client, JoinFile, Target};
use eyas_core::provisioning::blocks::{
    BlockAction, BlockConfig, BlockState, BlockView, Blocks, GaveUp, Listed, SeenDemand, number_of,
};
use eyas_core::provisioning::decision::Decision;
use eyas_core::provisioning::{ProvisionConfig, Provisioner};
use eyas_net::NetError;
use eyas_terms::{ExecutorId, Timestamp};
use eyas_text::line_of;
use eyas_wire::message;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use worker::{Answer, Worker};

/// How often the dispatcher is asked.
const LOOK: Duration = Duration::from_millis(250);
/// So many blocks that are no nodes are shown to people.
const BLOCKS_SHOWN_MAX: usize = 50;
/// How long nodes are given to leave in order at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How long the dispatcher may take to hear why a provider ends.
const SAY_LAST_MAX: Duration = Duration::from_secs(2);
/// Of so many blocks that failed the last words are kept: several may fail in one look, and the first of them ends it all.
const FAILED_KEPT: usize = 16;
/// So many things that do not work are shown to people.
const TROUBLES_MAX: usize = 8;
/// What is waited between tries to list blocks at the end of a cluster.
const LIST_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
const SUBMIT: &str = "submit a block";
const LIST: &str = "list the blocks";
const START: &str = "start a block";
const SLOW: &str = "wait for a command";

/// Where blocks come from. All calls may block; they come one after the other.
pub trait Source: Send + 'static {
    /// Requests a block of so many nodes under that name, and gives its id. `Err`: one sentence, why there is none.
    fn submit(&mut self, name: &str, n_nodes: u32) -> Result<String, String>;

    /// All blocks that are known, other clusters' too. `Err`: one sentence, why nobody knows.
    fn list(&mut self) -> Result<Vec<Listed>, String>;

    /// Has a block end in order; said again, at once. `Err`: one sentence.
    fn cancel(&mut self, id: &str, name: &str) -> Result<(), String>;

    /// What the block with that name printed last, for people.
    fn last_words(&mut self, name: &str) -> Option<String>;

    /// Removes what was kept for a block that is over.
    fn forget(&mut self, name: &str);

    /// A block of an earlier provider of this cluster is taken over: what it may still need is written again.
    fn adopt(&mut self, _name: &str) {}

    /// Ends these blocks, given as id and name: in order as far as that goes by the deadline, then at once. Gives a sentence for
    /// each that could not be ended.
    fn end_all(&mut self, blocks: &[(Option<String>, String)], deadline: Instant) -> Vec<String>;

    /// What cuts off a call that waits for a command.
    fn haste(&self) -> Haste {
        Haste::default()
    }

    /// How often a batch system was asked; `None`: there is none.
    fn calls(&self) -> Option<CallCount> {
        None
    }
}

/// How a provider is started.
pub struct ProviderOptions {
    pub target: Target,
    /// Held by the one provider of a cluster while it lives; see [`crate::locks::holder_of`].
    pub lock: PathBuf,
    pub config: ProvisionConfig,
    pub blocks: BlockConfig,
    /// Where the blocks are elsewhere: how long a dispatcher that does not answer is waited for, and the folder that
    /// the blocks have the join file from.
    pub elsewhere: Option<(Duration, Share)>,
    /// End when standard input closes: the parent process is gone.
    pub until_stdin_closes: bool,
}

#[derive(thiserror::Error, Debug)]
pub enum ProviderError {
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("no node can be started: {name} ended before it joined: {why}")]
    NoNode { name: String, why: String },
    #[error("no node can be started, as nobody could {what}: {why}")]
    Command { what: &'static str, why: String },
    #[error("process {pid} starts and ends the nodes of this cluster already")]
    Held { pid: String },
    #[error("cannot use {}: {source}", eyas_text::shown_path(path))]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("cannot listen to signals: {0}")]
    Signal(std::io::Error),
    #[error("cannot use the folder {} for the blocks: {source}", eyas_text::shown_path(path))]
    Share { path: PathBuf, source: std::io::Error },
}

/// Runs until the dispatcher is gone or somebody says stop.
pub async fn run(options: ProviderOptions, source: impl Source) -> Result<(), ProviderError> {
    let (stop, mut stopped) = mpsc::channel::<()>(1);
    if options.until_stdin_closes {
        let stop = stop.clone();
        parent::when_gone(move || {
            let _ = stop.blocking_send(());
        });
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(ProviderError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ProviderError::Signal)?;
    // Whoever started this sends it when its user does not want to wait any longer.
    let (haste, calls) = (source.haste(), source.calls());
    let cut = haste.clone();
    tokio::spawn(async move {
        interrupt.recv().await;
        cut.begin();
        let _ = stop.send(()).await;
    });
    let provisioner = Provisioner::new(options.config).map_err(ProviderError::Config)?;
    let _lock = take(&options.lock)?;
    let dispatcher_dir = options.lock.parent().unwrap_or(Path::new("."));
    let left_file = left_file(dispatcher_dir);
    let _ = std::fs::remove_file(&left_file);
    let client = Client::connect(&options.target).await?;
    if let Some((_, share)) = &options.elsewhere {
        let dispatcher_dir = options.target.path().parent().unwrap_or(Path::new("."));
        share
            .refresh(options.target.path())
            .and_then(|()| sweep::claim(share, dispatcher_dir))
            .map_err(|source| ProviderError::Share { path: share.dir().into(), source })?;
    }
    // Blocks of this machine end with whoever started them. Hosts have their numbers for good, so one that was ended has
    // another block later.
    let is_numbered_once = options.elsewhere.is_some() && options.blocks.number_max == u32::MAX;
    let ended_max = if is_numbered_once { ended::ended_max(dispatcher_dir) } else { 0 };
    let blocks = BlockConfig { ended_max, ..options.blocks };
    let mut provider = Provider {
        client,
        file: options.target.file().clone(),
        elsewhere: options.elsewhere,
        blocks: Blocks::new(blocks, provisioner),
        worker: Worker::start(source),
        haste,
        calls,
        has_listed: false,
        has_tried_to_list: false,
        failed: vec![],
        troubles: vec![],
        newest: None,
        newest_at_failure: None,
        doubtful: None,
        left_file,
        decisions: vec![],
        clock: (Timestamp::default(), Instant::now()),
    };
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            _ = interval.tick() => {}
            answer = provider.worker.next() => {
                // Nothing is requested before the first listing.
                if provider.note(answer) {
                    interval.reset_immediately();
                }
                continue;
            }
            _ = stopped.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
        }
        match provider.look().await {
            Ok(()) => {}
            Err(ProviderError::Net(_)) => {
                let is_back = tokio::select! {
                    is_back = provider.find_dispatcher() => is_back,
                    _ = stopped.recv() => false,
                    _ = terminate.recv() => false,
                };
                if !is_back {
                    break Ok(());
                }
            }
            Err(e) => {
                provider.say_last(&e).await;
                break Err(e);
            }
        }
    };
    provider.end().await;
    result
}

/// Takes the lock, which ends with this process, and writes our number into it.
fn take(path: &Path) -> Result<File, ProviderError> {
    let fail = |source: std::io::Error| ProviderError::Lock { path: path.into(), source };
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = std::fs::read_to_string(path).unwrap_or_default();
            return Err(ProviderError::Held { pid: line_of(pid.trim()).to_string() });
        }
        Err(TryLockError::Error(source)) => return Err(fail(source)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(file)
}

struct Provider {
    client: Client,
    /// Read again where the dispatcher does not answer.
    file: JoinFile,
    elsewhere: Option<(Duration, Share)>,
    blocks: Blocks,
    worker: Worker,
    /// Begins when nobody wants to wait any longer: commands are cut off then.
    haste: Haste,
    calls: Option<CallCount>,
    has_listed: bool,
    has_tried_to_list: bool,
    /// The blocks that failed last, with the last line that each printed.
    failed: Vec<(String, Option<String>)>,
    /// What does not work at the moment, for people: what was tried, and the sentence.
    troubles: Vec<(String, String)>,
    /// The executor that joined last.
    newest: Option<ExecutorId>,
    /// The same when a block could not be started, until a later executor shows that blocks can be.
    newest_at_failure: Option<Option<ExecutorId>>,
    /// The block whose submission failed last, and why, until a listing shows whether it exists all the same.
    doubtful: Option<(String, String)>,
    /// What may be left is written into it at the end.
    left_file: PathBuf,
    /// What was decided and is not in the dispatcher's log yet.
    decisions: Vec<Decision>,
    /// The dispatcher's time at its last answer, and when that came.
    clock: (Timestamp, Instant),
}

impl Provider {
    fn now(&self) -> Timestamp {
        let (then, at) = self.clock;
        then.plus_ns(at.elapsed().as_nanos() as u64)
    }

    /// What the dispatcher is told of this provider, for people to see.
    fn describe(&self) -> message::Provisioner {
        let config = self.blocks.provisioner().config();
        let line = |view: BlockView| message::BlockLine {
            name: view.name,
            id: view.id.unwrap_or_default(),
            state: view.state.into(),
            n_nodes: view.n_nodes,
            why: view.why,
        };
        // Blocks of this machine are there within a moment.
        let n_shown = if self.elsewhere.is_some() { BLOCKS_SHOWN_MAX } else { 0 };
        message::Provisioner {
            blocks: self.blocks.unseen(n_shown).into_iter().map(line).collect(),
            policy: config.policy.clone(),
            nodes_min: config.nodes_min,
            nodes_max: config.nodes_max,
            prefix: self.blocks.prefix().into(),
            n_pending: self.blocks.n_pending(),
            troubles: self.troubles.iter().map(|(_, sentence)| sentence.clone()).collect(),
            ends: None,
            calls: self.calls.as_ref().map(CallCount::get),
            decisions: self.decisions.clone(),
            node: self.blocks.provisioner().node(),
        }
    }

    /// Something does not work; `None`: it works again.
    fn set_trouble(&mut self, what: &str, sentence: Option<String>) {
        self.troubles.retain(|(tried, _)| tried != what);
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.extend(sentence.map(|sentence| (what.to_string(), sentence)));
        }
    }

    /// Asks what there is to do, and does what follows.
    async fn look(&mut self) -> Result<(), ProviderError> {
        let status = self.client.demand(self.describe()).await?;
        self.decisions.clear();
        self.clock = (status.now, Instant::now());
        self.newest = self.newest.max(status.nodes.iter().map(|(view, _)| view.executor).max());
        if self.newest_at_failure.is_some_and(|then| self.newest > then) {
            self.newest_at_failure = None;
            self.troubles.retain(|(tried, _)| !tried.starts_with(START));
        }
        let seen = SeenDemand {
            n_ready: status.n_ready,
            n_running: status.n_running,
            predicted: &status.predicted,
            nodes: &status.nodes,
            sizes: &status.sizes,
        };
        let mut actions = vec![];
        let result = self.blocks.look(status.now, &seen, &mut actions);
        let slow = self.blocks.slow_command(status.now);
        let sentence = slow.map(|what| format!("the command to {what} takes long, and nodes wait for it"));
        self.set_trouble(SLOW, sentence);
        self.decisions.append(&mut self.blocks.take_decisions());
        for action in actions {
            self.act(action).await?;
        }
        match result {
            Ok(()) => Ok(()),
            Err(GaveUp::Command { what, why }) => Err(ProviderError::Command { what, why }),
            Err(GaveUp::NoNode { name, why }) => {
                let failed = std::mem::take(&mut self.failed);
                let words = failed.into_iter().find(|(of, _)| *of == name).and_then(|(_, words)| words);
                Err(ProviderError::NoNode { name, why: with_words(&why, words) })
            }
        }
    }

    async fn act(&mut self, action: BlockAction) -> Result<(), ProviderError> {
        match action {
            BlockAction::Submit { number, name, n_nodes } => self.worker.submit(number, name, n_nodes),
            BlockAction::List => self.worker.list(),
            BlockAction::Cancel { id, name } => self.worker.cancel(id, name),
            BlockAction::Over { name, why } => {
                if self.elsewhere.is_some() {
                    eyas_text::say!("{name} is over: {}", line_of(&why));
                }
                self.set_trouble(&name, None);
                self.worker.forget(name);
            }
            BlockAction::Release { executor } => match self.client.drain(executor).await {
                // One that has just been lost is refused; it leaves the list by itself.
                Ok(()) | Err(NetError::Refused(_)) => {}
                Err(e) => return Err(e.into()),
            },
            BlockAction::Failed { name, why } => {
                let words = self.worker.last_words(&name).await;
                let sentence = format!("{name} could not be started: {}", with_words(&why, words.clone()));
                eyas_text::say!("{sentence}");
                self.set_trouble(&format!("{START} {name}"), Some(sentence));
                self.newest_at_failure = Some(self.newest);
                if self.failed.len() == FAILED_KEPT {
                    self.failed.remove(0);
                }
                self.failed.push((name, words));
            }
            BlockAction::TryAgain { what, why, wait_ns, n_blocks } => {
                let beside = match (what, n_blocks) {
                    (SUBMIT, 1) => " beside the one there is".to_string(),
                    (SUBMIT, 2..) => format!(" beside the {n_blocks} there are"),
                    _ => String::new(),
                };
                eyas_text::say!(
                    "could not {what}{beside}: {why}; trying again in {} s",
                    wait_ns / 1_000_000_000
                );
                self.set_trouble(what, Some(format!("nobody could {what}{beside}: {why}")));
            }
            BlockAction::Adopted { name, id } => {
                eyas_text::say!("{name} ({id}) is there from before, and is taken over");
                self.worker.adopt(name);
            }
        }
        Ok(())
    }

    /// Takes an answer in. Gives whether it was the first listing.
    fn note(&mut self, answer: Answer) -> bool {
        let now = self.now();
        match answer {
            Answer::Submitted { number, name, result } => {
                match &result {
                    Ok(_) => self.set_trouble(SUBMIT, None),
                    Err(why) => self.doubtful = Some((name, why.clone())),
                }
                self.blocks.submitted(now, number, result);
            }
            Answer::Listed(Ok(all)) => {
                self.set_trouble(LIST, None);
                self.blocks.listed(now, &all);
                self.has_tried_to_list = true;
                return !std::mem::replace(&mut self.has_listed, true);
            }
            Answer::Listed(Err(why)) => {
                self.has_tried_to_list = true;
                self.blocks.list_failed(now, why);
            }
            Answer::NotCancelled { name, why } => {
                eyas_text::say!("{name} could not be ended: {why}");
                self.set_trouble(&name, Some(format!("{name} could not be ended: {why}")));
            }
        }
        false
    }

    /// Waits for a dispatcher that does not answer. `false`: it has ended, or the lease has.
    async fn find_dispatcher(&mut self) -> bool {
        let Some((lease, share)) = &self.elsewhere else { return false };
        let deadline = Instant::now() + *lease;
        // The file goes when the dispatcher ends in order.
        while self.file.path().exists() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            if let Ok(target) = self.file.read()
                && let Ok(client) = Client::connect(&target).await
                && share.refresh(target.path()).is_ok()
            {
                self.client = client;
                return true;
            }
        }
        false
    }

    /// Reports to the dispatcher why this provider ends. The dispatcher shows it to people for as long as there is no other provider.
    async fn say_last(&mut self, why: &ProviderError) {
        let ends = Some(line_of(&why.to_string()).to_string());
        let report = self.client.demand(message::Provisioner { ends, ..self.describe() });
        // A dispatcher that does not answer now has other troubles.
        let _ = tokio::time::timeout(SAY_LAST_MAX, report).await;
    }

    /// Ends all blocks.
    async fn end(mut self) {
        // What was begun is ended first, so that the id of each block is known.
        for answer in self.worker.finish_orders().await {
            self.note(answer);
        }
        // The block of a submission that failed may exist all the same.
        if self.blocks.is_in_doubt() || !self.has_tried_to_list {
            // The block of a submission that was just cut off may come to be after this listing.
            if !self.haste.has_begun() {
                self.blocks.begin_listing(self.now());
            }
            self.worker.list();
            for answer in self.worker.finish_orders().await {
                self.note(answer);
            }
        }
        if self.elsewhere.is_some() {
            let dispatcher_dir = self.left_file.parent().unwrap_or(Path::new("."));
            ended::note(dispatcher_dir, self.blocks.highest_number());
        }
        let all = self.blocks.all();
        let mut left = match all.is_empty() {
            true => vec![],
            false => self.worker.end_all(all, Instant::now() + LEAVE_MAX).await,
        };
        if let Some((name, why)) = self.doubtful.take().filter(|_| self.blocks.is_in_doubt()) {
            left.push(format!("{name} may have been requested all the same, and is left then: {why}"));
        }
        left.iter().for_each(|sentence| eyas_text::say!("{sentence}"));
        if let Some(calls) = self.calls.as_ref().map(CallCount::get) {
            eyas_text::say!("the batch system was asked {} times: {}", calls.total(), calls.in_words());
        }
        if let Err(e) =
            std::fs::write(&self.left_file, left.iter().map(|line| format!("{line}\n")).collect::<String>())
        {
            eyas_text::say!("cannot write {}: {e}", eyas_text::shown_path(&self.left_file));
        }
        if let Some((_, share)) = &self.elsewhere {
            share.remove();
        }
    }
}

/// Ends the blocks of a cluster whose provider is gone, as far as a listing shows them. `prefix`: what their names begin with.
/// `dispatcher_dir`: the folder of the cluster's first dispatcher. Gives a sentence for each that may be left.
pub fn end_blocks(mut source: impl Source, prefix: &str, dispatcher_dir: &Path) -> Vec<String> {
    let haste = source.haste();
    let mut pauses = LIST_PAUSES.into_iter();
    let all = loop {
        match (source.list(), pauses.next().filter(|_| !haste.has_begun())) {
            (Ok(all), _) => break all,
            (Err(_), Some(pause)) => haste.sleep(pause),
            (Err(why), None) => {
                return vec![format!("blocks whose names begin with {prefix} may be left: {why}")];
            }
        }
    };
    let is_there =
        |line: &&Listed| line.name.starts_with(prefix) && !matches!(line.state, BlockState::Ended(_));
    let there: Vec<_> =
        all.iter().filter(is_there).map(|line| (Some(line.id.clone()), line.name.clone())).collect();
    let highest = all.iter().filter_map(|line| number_of(prefix, &line.name)).max();
    ended::note(dispatcher_dir, highest.unwrap_or(0));
    source.end_all(&there, Instant::now() + LEAVE_MAX)
}

/// What the provider writes at its end: see [`left_by`].
pub fn left_file(dispatcher_dir: &Path) -> PathBuf {
    dispatcher_dir.join("provider.left")
}

/// What the provider whose locks lie in this folder wrote at its end: a sentence for each block that may be left. `None`: it was
/// killed before its end, or there was none.
pub fn left_by(dispatcher_dir: &Path) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(left_file(dispatcher_dir)).ok()?;
    Some(text.lines().map(str::to_string).collect())
}

/// Notes that this cluster has left nothing, where no provider of it has begun to submit a block and none is there: a provider whose
/// batch system cannot be asked ends before it lists anything. Without the note whoever ends the cluster looks for what is left, and
/// says that it could not look. `join`: the first dispatcher's join file.
pub fn note_nothing_begun(join: &Path, share: &Share) -> std::io::Result<()> {
    let dispatcher_dir = join.parent().unwrap_or(Path::new("."));
    let n_submitted = calls_of(dispatcher_dir).map_or(0, |calls| calls.n_submit);
    let is_other_there =
        holder_of(&provider_lock(dispatcher_dir)).is_some_and(|holder| holder != std::process::id());
    // Each submission begins with its script.
    if n_submitted == 0 && !share.has_scripts() && !is_other_there {
        std::fs::write(left_file(dispatcher_dir), "")?;
    }
    Ok(())
}

/// Why a block is over, with what it said itself.
fn with_words(why: &str, words: Option<String>) -> String {
    match words {
        Some(words) if !why.contains(&words) => format!("{why}; it said: {words}"),
        _ => why.into(),
    }
}
