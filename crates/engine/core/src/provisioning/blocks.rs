//! Blocks: nodes that are requested, come and go together, such as a job of a batch system or a process of this machine.
//!
//! In: what the dispatcher says about every quarter of a second ([`Blocks::look`]), and how each action ended ([`Blocks::submitted`],
//! [`Blocks::listed`], [`Blocks::list_failed`]). Out: [`BlockAction`]s for a driver, which runs the batch system's commands.
//! How many nodes there should be is asked of the [`Provisioner`]; this module turns its requests into blocks.
//!
//! A block is in exactly one state: wanted → submitting → queued → running → over; or cancelled, from when nobody needs it until it
//! is over. Its name is a prefix, which names the cluster, and a number; its nodes have its name, or its name, a dot and more.
//!
//! Rules, whatever the driver's commands do:
//!   1. *Gentle*: one submission at a time and at most one in `submit_every_ns`; one listing of all blocks in `list_every_ns`,
//!      in four times that while all blocks run and all their nodes have joined, and none while there is no block. A
//!      command that fails is tried again after 1 s (a listing: after `list_every_ns`), doubled for each further failure, at
//!      most after [`BACKOFF_NS_MAX`]. The number of blocks beside which a submission was refused is taken for a limit of the
//!      batch system: as soon as there are fewer, the next one is submitted, and beside as many only after that wait, which
//!      goes on doubling until such a submission succeeds. A listing that works again after one that failed ends the wait.
//!   2. *Nothing is lost*: nothing is submitted before the first listing, which finds the blocks of an earlier provider of this
//!      cluster by their names; they are taken over, but for those that it has ended itself. After a submission that failed, a
//!      listing comes before the next one: the block may exist all the same, and is taken over then. A block may be missing from a
//!      listing: it is over when `unlisted_max` listings in a row, begun after its submission, lack it and no node of it is there.
//!   3. *Nothing is left*: a block whose nodes have all left is cancelled after `end_within_ns`, and so is a block that waits
//!      in the queue when no task has waited for the length of an idle node's release, and one that the batch system keeps back
//!      until a person does something about it. A cancellation that shows no effect is repeated.
//!   4. *No hammering*: after [`FAILURES_MAX`] blocks in a row that were over or stuck before a node of them joined, all while no
//!      node was there, or as many refused submissions or listings of a provider that never had a block nor saw a node of this
//!      cluster, [`Blocks::look`] gives up. Blocks that started before the first of these failures are waited for. Where each number is a
//!      host, each host is tried first, up to [`HOSTS_TRIED_MAX`] of them, and the next one at once: a bad host says nothing of others.
//!
//!   5. *In time*: while tasks wait, a node counts as one that leaves as long before its end as nodes took lately from
//!      their request until they joined, at most for half of its life. So its successor waits in the queue meanwhile.
//!
//! Not here: what a block is made of, what the commands are, and who runs them.

use super::decision::{Basis, Decided, Decision, Why};
use super::work::Predicted;
use super::{Demand, NodeView, ProvisionAction, Provisioner};
use eyas_terms::needs::Size;
use eyas_terms::{ExecutorId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// So many failures in a row say that there is no point in going on.
pub const FAILURES_MAX: u32 = 3;
/// A command that takes longer is said to be slow.
const SLOW_NS: u64 = 10 * S;
/// Of hosts that are known by name, so many are tried before all are given up.
const HOSTS_TRIED_MAX: u32 = 20;
/// The longest wait after commands that failed.
pub const BACKOFF_NS_MAX: u64 = 300 * S;
/// A cancelled block that is still listed after that is cancelled again.
const CANCEL_AGAIN_NS: u64 = 10 * S;
const S: u64 = 1_000_000_000;

/// What a source of blocks is like.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockConfig {
    /// A block's name is this and its number.
    pub prefix: String,
    /// Nodes of one block at most; at least 1.
    pub nodes_per_block: u32,
    /// Time between submissions. 0: all that are wanted are submitted at once.
    pub submit_every_ns: u64,
    /// Time between listings. 0: at each look.
    pub list_every_ns: u64,
    /// Listings in a row that lack a block which is over; at least 1.
    pub unlisted_max: u32,
    /// A running block whose nodes have not joined by then is given up.
    pub join_within_ns: u64,
    /// How long a block whose nodes have all left may take to end by itself.
    pub end_within_ns: u64,
    /// The lowest free number is taken, so that a node that comes back finds what the last one of its name left on this
    /// machine. Otherwise no number is taken twice.
    pub reuses_numbers: bool,
    /// The highest number that a block may have: there are so many hosts.
    pub number_max: u32,
    /// Earlier providers of this cluster have ended all blocks up to this number; 0: none of them.
    pub ended_max: u32,
}

/// How far a block is, as a listing says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockState {
    Queued,
    Running,
    /// The batch system keeps it back until a person does something about it, and why.
    Stuck(String),
    /// It is over, and why.
    Ended(String),
}

/// A line of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// As the batch system calls it.
    pub id: String,
    /// As it was called at its submission.
    pub name: String,
    pub state: BlockState,
    /// `None`: the listing does not say it, and the block has as many as blocks of this source have.
    pub n_nodes: Option<u32>,
    /// What else the batch system says, such as the reason that the block waits for. For people; may be empty.
    pub why: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockAction {
    /// Request a block; the answer is [`Blocks::submitted`].
    Submit { number: u32, name: String, n_nodes: u32 },
    /// List all blocks; the answer is [`Blocks::listed`] or [`Blocks::list_failed`].
    List,
    /// End a block. There is no answer: listings show the effect.
    Cancel { id: String, name: String },
    /// Drain a node and let it go.
    Release { executor: ExecutorId },
    /// For people: nodes of this block will not come, and why.
    Failed { name: String, why: String },
    /// A block is over, and why: what was kept for it may go.
    Over { name: String, why: String },
    /// For people: a command failed and is tried again after so many nanoseconds. `what`: `submit a block`, `list the blocks`.
    /// `n_blocks`: so many blocks the batch system has.
    TryAgain { what: &'static str, why: String, wait_ns: u64, n_blocks: u32 },
    /// For people: a block of an earlier provider of this cluster is taken over.
    Adopted { name: String, id: String },
}

/// A block that people do not see as nodes: none of its nodes has joined yet, or all have left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockView {
    pub name: String,
    /// As the batch system calls it, once it is submitted.
    pub id: Option<String>,
    /// `wanted`, `queued`, `starting` (it runs, and no node has joined) or `ending`.
    pub state: &'static str,
    pub n_nodes: u32,
    /// What the last listing said of it beside.
    pub why: String,
}

/// Why there is no point in going on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GaveUp {
    /// Blocks are over before a node of them has joined; the last one, and why.
    NoNode { name: String, why: String },
    /// Blocks cannot be submitted or listed. `what` as in [`BlockAction::TryAgain`].
    Command { what: &'static str, why: String },
}

/// What the dispatcher says.
#[derive(Clone, Copy, Debug)]
pub struct SeenDemand<'a> {
    pub n_ready: u64,
    pub n_running: u64,
    pub predicted: &'a Predicted,
    /// All executors with their names.
    pub nodes: &'a [(NodeView, String)],
    /// The sizes of these executors, in the same order.
    pub sizes: &'a [Size],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Decided, and not submitted yet.
    Wanted,
    Submitting,
    Queued,
    Running {
        since: Timestamp,
    },
    /// Somebody decided that nobody needs it, at that time.
    Cancelled {
        at: Timestamp,
    },
}

#[derive(Debug)]
struct Block {
    n_nodes: u32,
    state: State,
    /// As the batch system calls it, since its submission.
    id: Option<String>,
    /// When its submission was answered.
    submitted: Timestamp,
    /// An earlier provider, which may have had other options, has submitted it.
    is_adopted: bool,
    /// Listings in a row that lacked it.
    n_unlisted: u32,
    /// See [`Listed::why`].
    why: String,
    /// Nodes of it that have ever joined.
    joined: BTreeSet<ExecutorId>,
    /// When the first of them joined.
    first_joined: Option<Timestamp>,
    /// Since when none of its nodes is there, although all have joined.
    empty_since: Option<Timestamp>,
}

impl Block {
    fn is_cancelled(&self) -> bool {
        matches!(self.state, State::Cancelled { .. })
    }

    /// Nodes that are still to come.
    fn n_pending(&self) -> u32 {
        if self.is_cancelled() { 0 } else { self.n_nodes.saturating_sub(self.joined.len() as u32) }
    }
}

/// When a command may be given again.
#[derive(Debug, Default)]
struct Pace {
    next: Timestamp,
    is_under_way: bool,
    /// When the last one began.
    begun: Timestamp,
    n_failures: u32,
    has_succeeded: bool,
}

impl Pace {
    fn is_due(&self, now: Timestamp) -> bool {
        !self.is_under_way && now >= self.next
    }

    /// Whether it may be given but for the wait after failures.
    fn is_free(&self, now: Timestamp, every_ns: u64) -> bool {
        !self.is_under_way && now >= self.begun.plus_ns(every_ns)
    }

    fn begin(&mut self, now: Timestamp) {
        self.is_under_way = true;
        self.begun = now;
    }

    /// `every_ns` counts from the beginning.
    fn succeeded(&mut self, every_ns: u64) {
        self.is_under_way = false;
        self.n_failures = 0;
        self.has_succeeded = true;
        self.next = self.begun.plus_ns(every_ns);
    }

    /// Gives the time until the next try.
    fn failed(&mut self, now: Timestamp, first_ns: u64) -> u64 {
        self.is_under_way = false;
        let first_ns = first_ns.max(S);
        let wait_ns = first_ns.saturating_mul(1 << self.n_failures.min(16)).min(BACKOFF_NS_MAX.max(first_ns));
        self.n_failures += 1;
        self.next = now.plus_ns(wait_ns);
        wait_ns
    }
}

/// See the module.
#[derive(Debug)]
pub struct Blocks {
    config: BlockConfig,
    provisioner: Provisioner,
    blocks: BTreeMap<u32, Block>,
    submissions: Pace,
    listings: Pace,
    /// Higher than each number that was ever seen.
    next_number: u32,
    /// Blocks in a row that were over before a node of them had joined, while no node was there.
    n_failures: u32,
    /// When the first of them was over.
    failing_since: Timestamp,
    /// How often blocks of each host were over before a node of them had joined, since one joined there last.
    failed: BTreeMap<u32, u32>,
    /// When the last submission failed, until a listing that began later has shown whether its block exists all the same.
    in_doubt_since: Option<Timestamp>,
    /// A submission was refused beside so many blocks, and none has succeeded beside as many since.
    limit: Option<u32>,
    /// So many blocks the batch system had when the submission under way was begun.
    n_beside: u32,
    /// Whether there ever was a block, or a node of one.
    has_had_block: bool,
    gave_up: Option<GaveUp>,
    /// Since when no task waits.
    nothing_waits_since: Option<Timestamp>,
    /// Executors that the dispatcher knew at the last look.
    present: BTreeSet<ExecutorId>,
    /// What the next look begins with.
    notices: Vec<BlockAction>,
    /// What was decided since [`Blocks::take_decisions`].
    decisions: Vec<Decision>,
    /// What the provisioner was shown at the last look.
    basis: Basis,
}

impl Blocks {
    pub fn new(config: BlockConfig, provisioner: Provisioner) -> Blocks {
        let ended_max = config.ended_max;
        Blocks {
            config,
            provisioner,
            blocks: BTreeMap::new(),
            submissions: Pace::default(),
            listings: Pace::default(),
            next_number: ended_max.saturating_add(1),
            n_failures: 0,
            failing_since: Timestamp::default(),
            failed: BTreeMap::new(),
            in_doubt_since: None,
            limit: None,
            n_beside: 0,
            has_had_block: false,
            gave_up: None,
            nothing_waits_since: None,
            present: BTreeSet::new(),
            notices: vec![],
            decisions: vec![],
            basis: Basis::default(),
        }
    }

    /// What was decided about nodes since the last call, the oldest first.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// What the names of its blocks begin with.
    pub fn prefix(&self) -> &str {
        &self.config.prefix
    }

    pub fn provisioner(&self) -> &Provisioner {
        &self.provisioner
    }

    /// Nodes that were requested and have not joined.
    pub fn n_pending(&self) -> u32 {
        self.blocks.values().map(Block::n_pending).sum()
    }

    /// Blocks that are on their way or about to end, in the order of their numbers, at most `n_max`.
    pub fn unseen(&self, n_max: usize) -> Vec<BlockView> {
        let view = |(number, block): (&u32, &Block)| {
            let has_nodes = block.joined.iter().any(|executor| self.present.contains(executor));
            let state = match block.state {
                State::Cancelled { .. } => "ending",
                _ if has_nodes => return None,
                _ if !block.joined.is_empty() => "ending",
                State::Wanted | State::Submitting => "wanted",
                State::Queued => "queued",
                State::Running { .. } => "starting",
            };
            let (name, id) = (self.name(*number), block.id.clone());
            Some(BlockView { name, id, state, n_nodes: block.n_nodes, why: block.why.clone() })
        };
        self.blocks.iter().filter_map(view).take(n_max).collect()
    }

    /// No block of this cluster that was ever heard of has a higher number.
    pub fn highest_number(&self) -> u32 {
        self.next_number - 1
    }

    /// What nodes wait for: a command that has run for more than [`SLOW_NS`].
    pub fn slow_command(&self, now: Timestamp) -> Option<&'static str> {
        let is_slow = |pace: &Pace| pace.is_under_way && now.since_ns(pace.begun) > SLOW_NS;
        let commands = [(&self.listings, "list the blocks"), (&self.submissions, "submit a block")];
        commands.into_iter().find(|(pace, _)| is_slow(pace)).map(|(_, what)| what)
    }

    /// Whether the last submission failed, and no listing since then has shown whether its block exists all the same.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt_since.is_some()
    }

    /// A listing begins that no look has asked for: the answer is [`Blocks::listed`] or [`Blocks::list_failed`].
    pub fn begin_listing(&mut self, now: Timestamp) {
        self.listings.begin(now);
    }

    /// All blocks that may exist, as `(id, name)`, for whoever ends them all. One whose submission is not answered has no id.
    pub fn all(&self) -> Vec<(Option<String>, String)> {
        let exists = |block: &&Block| block.state != State::Wanted;
        let all = self.blocks.iter().filter(|(_, block)| exists(block));
        all.map(|(number, block)| (block.id.clone(), self.name(*number))).collect()
    }

    /// One look. `Err`: there is no point in going on.
    pub fn look(
        &mut self,
        now: Timestamp,
        seen: &SeenDemand,
        out: &mut Vec<BlockAction>,
    ) -> Result<(), GaveUp> {
        self.note_present(now, seen);
        self.give_up_late(now);
        out.append(&mut self.notices);
        if let Some(gave_up) = self.gave_up.take() {
            return Err(gave_up);
        }
        // What there is already has to be known first.
        if self.listings.has_succeeded {
            self.provision(now, seen, out);
            self.cancel_unneeded(now, out);
            self.cancel_empty(now, out);
            self.submit(now, seen, out);
        }
        let has_blocks = self.blocks.values().any(|block| block.id.is_some());
        let is_early = self.is_quiet() && now < self.listings.begun.plus_ns(4 * self.config.list_every_ns);
        let is_in_doubt = self.in_doubt_since.is_some();
        let is_wanted = has_blocks || is_in_doubt || !self.listings.has_succeeded;
        if is_wanted && self.listings.is_due(now) && (is_in_doubt || !is_early) {
            self.listings.begin(now);
            out.push(BlockAction::List);
        }
        Ok(())
    }

    /// A submission has ended. `Ok`: the block's id. `Err`: why there is no block.
    pub fn submitted(&mut self, now: Timestamp, number: u32, result: Result<String, String>) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        match result {
            Ok(id) => {
                block.id = Some(id);
                block.submitted = now;
                if block.state == State::Submitting {
                    block.state = State::Queued;
                }
                self.has_had_block = true;
                if self.limit.is_some_and(|limit| self.n_beside < limit) {
                    // What this shows was known: the wait for one beside as many as before goes on.
                    self.submissions.is_under_way = false;
                } else {
                    self.limit = None;
                    self.submissions.succeeded(self.config.submit_every_ns);
                }
            }
            Err(why) => {
                // It is wanted as before, unless the next listing shows that it exists.
                block.state = State::Wanted;
                if self.config.list_every_ns > 0 {
                    self.in_doubt_since = Some(now);
                    if self.listings.n_failures == 0 {
                        self.listings.next = self.listings.next.min(now);
                    }
                }
                self.limit = Some(self.n_beside);
                let wait_ns = self.submissions.failed(now, self.config.submit_every_ns);
                let is_hopeless = self.submissions.n_failures >= FAILURES_MAX && !self.has_had_block;
                self.command_failed("submit a block", why, wait_ns, is_hopeless);
            }
        }
    }

    /// A listing has ended: all blocks that the batch system knows, ours and others'.
    pub fn listed(&mut self, now: Timestamp, all: &[Listed]) {
        let begun = self.listings.begun;
        for line in all {
            let number = match self.find(line) {
                Some(number) => number,
                None => match self.adopt(now, line) {
                    Some(number) => number,
                    None => continue,
                },
            };
            let block = self.blocks.get_mut(&number).expect("it was just found");
            block.n_unlisted = 0;
            block.why.clone_from(&line.why);
            match (&line.state, block.state) {
                (BlockState::Ended(why), _) => self.end(now, number, why.clone()),
                (
                    BlockState::Stuck(why),
                    State::Wanted | State::Submitting | State::Queued | State::Running { .. },
                ) => {
                    self.on_stuck(now, number, why.clone());
                }
                (BlockState::Running, State::Queued) => block.state = State::Running { since: now },
                // A batch system may put a block back into its queue.
                (BlockState::Queued, State::Running { .. }) => block.state = State::Queued,
                (_, State::Cancelled { at }) if now.since_ns(at) >= CANCEL_AGAIN_NS => {
                    block.state = State::Cancelled { at: now };
                    let (id, name) = (line.id.clone(), line.name.clone());
                    self.notices.push(BlockAction::Cancel { id, name });
                }
                _ => {}
            }
        }
        let mut over = vec![];
        for (number, block) in &mut self.blocks {
            let Some(id) = &block.id else { continue };
            let is_listed = all.iter().any(|line| line.id == *id);
            let has_nodes = block.joined.iter().any(|executor| self.present.contains(executor));
            // It was submitted while the listing was under way.
            let is_newer = block.submitted > begun;
            if is_listed || has_nodes || is_newer {
                continue;
            }
            block.n_unlisted += 1;
            if block.n_unlisted >= self.config.unlisted_max {
                over.push(*number);
            }
        }
        for number in over {
            self.end(now, number, "it is not listed any more".into());
        }
        if self.listings.n_failures > 0 {
            // The batch system is there again.
            self.submissions.next = self.submissions.next.min(now);
        }
        self.listings.succeeded(self.config.list_every_ns);
        // A listing that began before the submission failed shows nothing of it.
        self.in_doubt_since = self.in_doubt_since.filter(|since| begun < *since);
    }

    /// All blocks run and have all their nodes, so that a listing would hardly show anything new.
    fn is_quiet(&self) -> bool {
        let is_whole = |block: &Block| {
            let is_running = matches!(block.state, State::Running { .. });
            is_running && block.n_pending() == 0 && block.n_unlisted == 0 && block.empty_since.is_none()
        };
        self.listings.n_failures == 0 && !self.blocks.is_empty() && self.blocks.values().all(is_whole)
    }

    /// A listing has failed, and why. What it would have shown is as it was.
    pub fn list_failed(&mut self, now: Timestamp, why: String) {
        // Where no listing has ever worked, the command may be wrong, which its user wants to know soon.
        let first_ns = if self.listings.has_succeeded { self.config.list_every_ns } else { S };
        let wait_ns = self.listings.failed(now, first_ns);
        let is_hopeless =
            self.listings.n_failures >= FAILURES_MAX && !self.listings.has_succeeded && !self.has_had_block;
        self.command_failed("list the blocks", why, wait_ns, is_hopeless);
    }

    /// Blocks that the batch system has, as far as is known.
    fn n_blocks(&self) -> u32 {
        self.blocks.values().filter(|block| block.id.is_some()).count() as u32
    }

    // ------------------------------------------------------------ names

    fn name(&self, number: u32) -> String {
        format!("{}{number}", self.config.prefix)
    }

    /// The number of the block that is called so, or that has a node which is called so.
    fn number_of(&self, name: &str) -> Option<u32> {
        number_of(&self.config.prefix, name)
    }

    fn find(&self, line: &Listed) -> Option<u32> {
        let by_id = self.blocks.iter().find(|(_, block)| block.id.as_ref() == Some(&line.id));
        by_id.map(|(number, _)| *number)
    }

    /// A number that no block has, and no executor that the dispatcher knows. Of hosts, the one that has failed least.
    fn free_number(&self, seen: &SeenDemand) -> u32 {
        let known: BTreeSet<u32> = seen.nodes.iter().filter_map(|(_, name)| self.number_of(name)).collect();
        let is_free = |number: &u32| !self.blocks.contains_key(number) && !known.contains(number);
        if self.has_hosts() {
            let hosts = (1..=self.config.number_max).filter(is_free);
            if let Some(number) = hosts.min_by_key(|number| self.order_of(*number)) {
                return number;
            }
        }
        let first = if self.config.reuses_numbers { 1 } else { self.next_number };
        (first..).find(is_free).expect("there are more numbers than nodes")
    }

    /// Which of two numbers is tried first: the lowest; of hosts one that has failed least. Behind the last host are those that
    /// wait until a host is free.
    fn order_of(&self, number: u32) -> (bool, u32, u32) {
        let n_failed = self.failed.get(&number).copied().unwrap_or(0);
        (number > self.config.number_max, n_failed, number)
    }

    // ------------------------------------------------------------ what was seen

    fn note_present(&mut self, now: Timestamp, seen: &SeenDemand) {
        self.present = seen.nodes.iter().map(|(view, _)| view.executor).collect();
        for ((view, name), size) in seen.nodes.iter().zip(seen.sizes) {
            let Some(number) = self.number_of(name) else { continue };
            self.has_had_block = true;
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            if block.joined.insert(view.executor) {
                self.n_failures = 0;
                self.failed.remove(&number);
                self.provisioner.request_ended(now, 1, true);
                self.provisioner.saw_node(size, block.is_adopted);
                block.first_joined.get_or_insert(now);
                if block.state == State::Queued {
                    block.state = State::Running { since: now };
                }
            }
        }
        for block in self.blocks.values_mut() {
            let is_empty = !block.joined.is_empty()
                && block.joined.len() as u32 >= block.n_nodes
                && block.joined.iter().all(|executor| !self.present.contains(executor));
            block.empty_since = is_empty.then(|| block.empty_since.unwrap_or(now));
        }
        let is_waited = seen.n_ready > 0;
        self.nothing_waits_since = (!is_waited).then(|| self.nothing_waits_since.unwrap_or(now));
    }

    /// Nodes of running blocks that have not joined in time are given up; a block without any node is cancelled.
    fn give_up_late(&mut self, now: Timestamp) {
        let join_within_ns = self.config.join_within_ns;
        let is_late = |block: &&Block| match block.state {
            State::Running { since } => block.n_pending() > 0 && now.since_ns(since) > join_within_ns,
            _ => false,
        };
        let late: Vec<u32> =
            self.blocks.iter().filter(|(_, block)| is_late(block)).map(|(number, _)| *number).collect();
        for number in late {
            let name = self.name(number);
            let why = format!("it did not join within {} s", join_within_ns / S);
            let block = self.blocks.get_mut(&number).expect("it was just found");
            let n_late = block.n_pending();
            block.n_nodes = block.joined.len() as u32;
            let has_none = block.joined.is_empty();
            if has_none {
                block.state = State::Cancelled { at: now };
                if let Some(id) = block.id.clone() {
                    self.notices.push(BlockAction::Cancel { id, name: name.clone() });
                }
            }
            self.nodes_failed(now, number, n_late, why);
        }
    }

    /// A block of an earlier provider of this cluster, or one whose submission failed only in appearance. `None`: it is another
    /// cluster's, or over, or its submission is not answered yet. A block that was ended brings no node, however long it is
    /// listed: it is only watched until it is over.
    fn adopt(&mut self, now: Timestamp, line: &Listed) -> Option<u32> {
        let number = self.number_of(&line.name)?;
        self.next_number = self.next_number.max(number + 1);
        let wanted = self.blocks.get(&number);
        let is_another = wanted.is_some_and(|block| block.state != State::Wanted);
        if is_another || matches!(line.state, BlockState::Ended(_)) {
            return None;
        }
        let is_ended = number <= self.config.ended_max;
        let block = Block {
            n_nodes: line
                .n_nodes
                .or(wanted.map(|block| block.n_nodes))
                .unwrap_or(self.config.nodes_per_block),
            state: if is_ended { State::Cancelled { at: now } } else { State::Queued },
            id: Some(line.id.clone()),
            submitted: now,
            is_adopted: wanted.is_none(),
            n_unlisted: 0,
            why: line.why.clone(),
            joined: BTreeSet::new(),
            first_joined: None,
            empty_since: None,
        };
        self.blocks.insert(number, block);
        self.has_had_block = true;
        if !is_ended {
            self.notices.push(BlockAction::Adopted { name: line.name.clone(), id: line.id.clone() });
        }
        Some(number)
    }

    /// Nobody waits for a person who may never come: the block is cancelled, and another one may take its place.
    fn on_stuck(&mut self, now: Timestamp, number: u32, why: String) {
        let name = self.name(number);
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let Some(id) = block.id.clone() else { return };
        block.state = State::Cancelled { at: now };
        self.notices.push(BlockAction::Cancel { id, name: name.clone() });
        if block.joined.is_empty() {
            let n_nodes = block.n_nodes;
            self.nodes_failed(now, number, n_nodes, why);
        }
    }

    /// A block is over.
    fn end(&mut self, now: Timestamp, number: u32, why: String) {
        let Some(block) = self.blocks.remove(&number) else { return };
        if block.joined.is_empty() && !block.is_cancelled() {
            self.nodes_failed(now, number, block.n_nodes, why.clone());
        }
        self.notices.push(BlockAction::Over { name: self.name(number), why });
    }

    fn nodes_failed(&mut self, now: Timestamp, number: u32, n_nodes: u32, why: String) {
        let name = self.name(number);
        if self.has_hosts() {
            *self.failed.entry(number).or_default() += 1;
        }
        // A bad host says nothing of the next one.
        match self.has_untried_host() {
            true => self.provisioner.request_dropped(now, n_nodes),
            false => self.provisioner.request_ended(now, n_nodes, false),
        }
        let has_nodes = self
            .blocks
            .values()
            .any(|block| block.joined.iter().any(|executor| self.present.contains(executor)));
        // Where other nodes work, the source is not to blame.
        self.n_failures = if has_nodes { 0 } else { self.n_failures + 1 };
        if self.n_failures == 1 {
            self.failing_since = now;
        }
        self.notices.push(BlockAction::Failed { name: name.clone(), why: why.clone() });
        if self.n_failures >= FAILURES_MAX && !self.has_hope() {
            self.gave_up.get_or_insert(GaveUp::NoNode { name, why });
        }
    }

    /// Whether a node may still come of what was begun before the first of the failures, or of a host that was not tried.
    fn has_hope(&self) -> bool {
        let is_starting = |block: &Block| {
            matches!(block.state, State::Running { .. })
                && block.n_pending() > 0
                && block.submitted < self.failing_since
        };
        (self.n_failures < HOSTS_TRIED_MAX && self.has_untried_host())
            || self.blocks.values().any(is_starting)
    }

    /// Whether there is a host of which no block has failed since one joined there last.
    fn has_untried_host(&self) -> bool {
        self.has_hosts() && (1..=self.config.number_max).any(|number| !self.failed.contains_key(&number))
    }

    /// Whether each number is a host of its own.
    fn has_hosts(&self) -> bool {
        self.config.number_max < u32::MAX
    }

    fn command_failed(&mut self, what: &'static str, why: String, wait_ns: u64, is_hopeless: bool) {
        if is_hopeless {
            self.gave_up.get_or_insert(GaveUp::Command { what, why });
        } else {
            let n_blocks = self.n_blocks();
            self.notices.push(BlockAction::TryAgain { what, why, wait_ns, n_blocks });
        }
    }

    // ------------------------------------------------------------ what follows

    fn provision(&mut self, now: Timestamp, seen: &SeenDemand, out: &mut Vec<BlockAction>) {
        let mut views = vec![];
        let wait_ns = self.provisioner.start_up_ns(now);
        for (number, block) in &self.blocks {
            let view_of =
                |executor: &ExecutorId| seen.nodes.iter().find(|(view, _)| view.executor == *executor);
            let n_before = views.len();
            views.extend(block.joined.iter().filter_map(view_of).map(|(view, _)| *view));
            let n_present = views.len() - n_before;
            idle_together(block.n_nodes, *number, &mut views[n_before..]);
            let first_joined = block.first_joined.unwrap_or(now);
            for view in &mut views[n_before..] {
                // A node without time for any task that waits is released, which has another one requested, too.
                let is_of_use = seen.n_ready > 0 && !view.has_no_time;
                view.leaves |= is_of_use && is_due_soon(now, first_joined, view.ends, wait_ns);
            }
            // A node that the dispatcher has given up, or that said goodbye a moment ago, is there until its block is over. It
            // takes nothing, and cannot be released. One that came again has two numbers and counts once.
            let n_gone = block.joined.len().min(block.n_nodes as usize).saturating_sub(n_present);
            let gone = block.joined.iter().filter(|executor| !self.present.contains(executor)).take(n_gone);
            views.extend(gone.map(|&executor| NodeView {
                executor,
                slots: 0,
                n_assigned: 1,
                idle_since: None,
                cached_bytes: 0,
                ..NodeView::default()
            }));
        }
        let demand = Demand {
            n_ready: seen.n_ready,
            n_running: seen.n_running,
            predicted: seen.predicted,
            n_pending: self.n_pending(),
            nodes: &views,
        };
        let mut actions = vec![];
        self.provisioner.decide(now, &demand, &mut actions);
        self.decisions.append(&mut self.provisioner.take_decisions());
        self.basis = self.provisioner.basis(now, &demand);
        for action in actions {
            match action {
                ProvisionAction::Request { n_nodes } => self.want(n_nodes, seen),
                ProvisionAction::Release { executor } => out.push(BlockAction::Release { executor }),
            }
        }
    }

    fn want(&mut self, n_nodes: u32, seen: &SeenDemand) {
        let mut n_left = n_nodes;
        while n_left > 0 {
            let n = n_left.min(self.config.nodes_per_block);
            n_left -= n;
            let number = self.free_number(seen);
            self.next_number = self.next_number.max(number + 1);
            let block = Block {
                n_nodes: n,
                state: State::Wanted,
                id: None,
                submitted: Timestamp::default(),
                is_adopted: false,
                n_unlisted: 0,
                why: String::new(),
                joined: BTreeSet::new(),
                first_joined: None,
                empty_since: None,
            };
            self.blocks.insert(number, block);
        }
    }

    /// Blocks that wait in the queue while no task has waited for long, and those beyond the most that there may be: the newest
    /// goes first.
    fn cancel_unneeded(&mut self, now: Timestamp, out: &mut Vec<BlockAction>) {
        let config = self.provisioner.config();
        let (n_min, n_max) = (config.nodes_min, config.nodes_max);
        let is_quiet = match (self.nothing_waits_since, config.release_idle_ns) {
            (Some(since), Some(ns)) => now.since_ns(since) >= ns,
            _ => false,
        };
        let is_here = |executor: &&ExecutorId| self.present.contains(executor);
        let n_here = self.blocks.values().flat_map(|block| &block.joined).filter(is_here).count() as u32;
        let mut n_have = n_here + self.n_pending();
        let n_keep = if is_quiet { n_min } else { n_max };
        let mut n_withdrawn = 0;
        let is_open = |block: &Block| matches!(block.state, State::Wanted | State::Queued);
        let open: Vec<u32> = self.blocks.iter().rev().filter(|(_, b)| is_open(b)).map(|(n, _)| *n).collect();
        for number in open {
            let block = self.blocks.get_mut(&number).expect("it was just found");
            let n = block.n_pending();
            if n_have < n_keep + n {
                continue;
            }
            n_have -= n;
            n_withdrawn += n;
            self.cancel(now, number, out);
        }
        if n_withdrawn > 0 {
            let why = match self.nothing_waits_since.filter(|_| is_quiet) {
                Some(since) => Why::NothingWaits { for_ns: now.since_ns(since) },
                None => Why::AboveMaximum,
            };
            let policy = self.provisioner.config().policy.clone();
            let what = Decided::Withdrawn { n_nodes: n_withdrawn };
            self.decisions.push(Decision { at: now, policy, what, why, seen: self.basis });
        }
    }

    fn cancel_empty(&mut self, now: Timestamp, out: &mut Vec<BlockAction>) {
        let end_within_ns = self.config.end_within_ns;
        let is_due = |block: &Block| {
            !block.is_cancelled()
                && block.empty_since.is_some_and(|since| now.since_ns(since) >= end_within_ns)
        };
        let due: Vec<u32> = self.blocks.iter().filter(|(_, b)| is_due(b)).map(|(n, _)| *n).collect();
        for number in due {
            self.cancel(now, number, out);
        }
    }

    fn cancel(&mut self, now: Timestamp, number: u32, out: &mut Vec<BlockAction>) {
        let name = self.name(number);
        let block = self.blocks.get_mut(&number).expect("whoever cancels it has seen it");
        match &block.id {
            // Nobody was asked for it yet.
            None => drop(self.blocks.remove(&number)),
            Some(id) => {
                out.push(BlockAction::Cancel { id: id.clone(), name });
                block.state = State::Cancelled { at: now };
            }
        }
    }

    /// Where numbers come back, a wanted block takes the lowest one that has become free since it was wanted.
    fn renumber_wanted(&mut self, seen: &SeenDemand) {
        if !self.config.reuses_numbers {
            return;
        }
        let is_wanted = |(_, block): &(&u32, &Block)| block.state == State::Wanted;
        let wanted: Vec<u32> = self.blocks.iter().filter(is_wanted).map(|(number, _)| *number).collect();
        for number in wanted {
            let free = self.free_number(seen);
            if self.order_of(free) < self.order_of(number) {
                let block = self.blocks.remove(&number).expect("it was just found");
                self.blocks.insert(free, block);
            }
        }
    }

    fn submit(&mut self, now: Timestamp, seen: &SeenDemand, out: &mut Vec<BlockAction>) {
        // A node that was lost keeps its name until its lease is over, and wanted blocks may have waited for long.
        let known: BTreeSet<u32> = seen.nodes.iter().filter_map(|(_, name)| self.number_of(name)).collect();
        self.renumber_wanted(seen);
        let number_max = self.config.number_max;
        let is_ready = |number: &u32, block: &Block| {
            block.state == State::Wanted && !known.contains(number) && *number <= number_max
        };
        let wanted: Vec<u32> = self.blocks.iter().filter(|(n, b)| is_ready(n, b)).map(|(n, _)| *n).collect();
        for number in wanted {
            let n_blocks = self.n_blocks();
            let is_below_limit = self.limit.is_some_and(|limit| n_blocks < limit);
            let is_due = match is_below_limit {
                true => self.submissions.is_free(now, self.config.submit_every_ns),
                false => self.submissions.is_due(now),
            };
            if !is_due || self.in_doubt_since.is_some() {
                break;
            }
            self.n_beside = n_blocks;
            // A source that wants no pause takes all at once.
            if self.config.submit_every_ns > 0 {
                self.submissions.begin(now);
            }
            let name = self.name(number);
            let block = self.blocks.get_mut(&number).expect("it was just found");
            block.state = State::Submitting;
            out.push(BlockAction::Submit { number, name, n_nodes: block.n_nodes });
        }
    }
}

/// The number of the block that is called so, or that has a node which is called so; `None`: no block of the cluster whose blocks'
/// names begin with `prefix`.
pub fn number_of(prefix: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let digits = rest.split_once('.').map_or(rest, |(digits, _)| digits);
    digits.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == digits)
}

/// Whether a successor of a node that joined at `joined` should be in the queue by now, where blocks wait for so long.
fn is_due_soon(now: Timestamp, joined: Timestamp, ends: Option<Timestamp>, wait_ns: u64) -> bool {
    ends.is_some_and(|ends| ends.since_ns(now) <= wait_ns.min(ends.since_ns(joined) / 2))
}

/// A block ends as a whole: to let one of its nodes go while another one works would give nothing back. So the nodes of a block are
/// idle for as long as all of them are, and go together.
fn idle_together(n_nodes: u32, number: u32, views: &mut [NodeView]) {
    if n_nodes > 1 {
        views.iter_mut().for_each(|view| view.block = Some(number));
        let all: Option<Vec<Timestamp>> = views.iter().map(|view| view.idle_since).collect();
        let since = all.and_then(|all| all.into_iter().max());
        views.iter_mut().for_each(|view| view.idle_since = since);
    }
}

#[cfg(test)]
mod tests;
