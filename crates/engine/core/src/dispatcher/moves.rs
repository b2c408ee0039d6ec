//! Patterns among the tasks of a run, and collectives that bring files to where they will be read.
//!
//! Only tasks of workflows are looked at: arrays that read or write files which stay on the nodes. The
//! patterns of these tasks are known when they are submitted ([`Patterns`]). When files come into being, this
//! module decides:
//!
//! | when | collective |
//! |---|---|
//! | a task has made a file (or a set of files that the same tasks read), or home's copy of it has arrived somewhere, and many tasks of one stage read it | multicast, to as many nodes as its share of what the stage reads (`Zhang12` §V-F.2 to .4) |
//! | a task has made many files, read by many tasks | scatter, over all nodes by their slots |
//! | the first file of a task that gathers is made | gather to the node that will run it, in the way that is predicted to end first (§VI-A.1) |
//!
//! A dispatcher of a group plans for its own nodes: its share of the run's collectives. The patterns of the
//! whole run, which it is sent ([`RunPatterns`]), say which files take part. That includes files that other
//! dispatchers' tasks make; these come from outside, from the executors that their owner names.
//!
//! Where the model predicts that plain fetches are as quick, there is no collective. Placement finds the
//! files that a collective has brought, so tasks go to where the collective brings the files.
//!
//! Latency and bandwidth are learnt from what attempts report of their inputs (one observation per attempt
//! and kind of link) and from the requests of collectives.
//!
//! Not here: how a collective is carried out ([`crate::collective::carry`]), and how bytes move (executors).

use super::{
    ArrayState, Dispatcher, DispatcherConfig, Exchange, Intermediates, Ready, SOURCES_MAX, Workload,
};
use crate::catalog::Catalog;
use crate::collective::cost::{GatherCase, MulticastCase, ScatterCase, Streams, TREE_ARITY};
use crate::collective::plan::{self, Item, Plan};
use crate::collective::{
    Case, Choice, CollectiveAction, CollectiveEvent, CollectiveId, CollectiveRecord, Collectives, Forecast,
    Left, Lesson, Lessons, LinkEstimator, Links, Observation, Outlook, Way, choose_gather, choose_multicast,
    choose_scatter,
};
use crate::event::{Action, AssignedInput, InputReport, Making, Source, TransferErrorKind};
use crate::network::{Moved, Network, NetworkUse, News, Sites, moved};
use crate::pattern::{Evidence, PatternKind, Patterns, ReadersKey, RunPatterns, StageId, stage_of_task};
use eyas_terms::array::{GatherHint, TaskArray};
use eyas_terms::{CacheOutcome, ExecutorId, ObjectId, RunId, TaskId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The run time that is assumed for a task until one like it has ended.
const RUN_S_ASSUMED: f64 = 1.0;
/// Nine in ten files of a gather appear within this factor of their expected time, if tasks like their makers
/// have ended; the second factor is for when none has.
const MAKERS_FACTOR: f64 = 4.0;
const MAKERS_FACTOR_UNKNOWN: f64 = 30.0;
/// The same factor for a task that is rerun, which waits for no slot.
const RERUN_FACTOR: f64 = 2.0;

/// The tree of archives over `n` nodes for those who ask for one; over few nodes it is narrow, so that it has levels.
fn tree_of(n_nodes: u32) -> Way {
    Way::ArchiveTree { arity: if n_nodes > TREE_ARITY { TREE_ARITY } else { 2 } }
}

/// Which collectives the dispatcher may choose.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveMode {
    /// Whichever way the cost model prefers.
    #[default]
    Auto,
    /// No collectives: each task fetches its own inputs.
    Off,
    /// Like `auto`, but every gather waits for its last file.
    CollectiveGather,
    /// Like `auto`, but every gather fetches each file when it appears.
    AsyncGather,
    /// Like `auto`, but in place of every multicast the task that made the files runs again where they are
    /// needed, if it can.
    #[serde(alias = "task-replication")]
    TaskRerun,
    /// Like `auto`, but every gather and every scatter goes along a tree.
    ArchiveTree,
}

impl CollectiveMode {
    pub const NAMES: [&str; 6] =
        ["auto", "off", "collective-gather", "async-gather", "task-rerun", "archive-tree"];
    /// The name that `task-rerun` had before.
    const EARLIER_NAME: &str = "task-replication";

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The mode of that name; `None` if there is no such mode.
    pub fn by_name(name: &str) -> Option<CollectiveMode> {
        let modes = [
            Self::Auto,
            Self::Off,
            Self::CollectiveGather,
            Self::AsyncGather,
            Self::TaskRerun,
            Self::ArchiveTree,
        ];
        let name = if name == Self::EARLIER_NAME { Self::TaskRerun.name() } else { name };
        Self::NAMES.iter().position(|n| *n == name).map(|i| modes[i])
    }
}

#[derive(Default)]
pub(super) struct Moves {
    pub patterns: Patterns,
    pub collectives: Collectives,
    peer: LinkEstimator,
    home: LinkEstimator,
    lessons: Lessons,
    /// What is known of the collectives under way, to learn from how long they take.
    expected: BTreeMap<CollectiveId, Expected>,
    /// Collectives of which all objects have come to exist so far, and those of them that are under way.
    n_begun: u32,
    n_moving: u32,
    /// What happened to replicas and executors and has not been passed on to the collectives yet.
    pub pending: Vec<CollectiveEvent>,
    /// Tasks that gather and whose collective has not been decided on.
    gathers: FxHashSet<TaskId>,
    /// The number of gathers that were sent to each node, so that several gathers spread over the nodes.
    n_gathers_at: BTreeMap<ExecutorId, u32>,
    /// For each task that gathers and also reads files of other dispatchers: the node where its files are
    /// brought together.
    roots: BTreeMap<TaskId, ExecutorId>,
    /// Files of other dispatchers that have come into being, not yet considered for a collective; with the
    /// tasks that gather them.
    arrived: BTreeMap<ObjectId, Vec<TaskId>>,
    /// What collectives have asked executors to fetch since the last run ended.
    sent_ahead: FxHashSet<(ExecutorId, ObjectId)>,
    scratch: Vec<CollectiveAction>,
    /// Executors that have joined and measure round trips, and since when.
    awaited: Vec<(ExecutorId, Timestamp)>,
}

/// A collective under way.
struct Expected {
    case: Case,
    way: Way,
    moving: Option<Moving>,
}

/// A collective of which all objects exist, so that its time was predicted.
struct Moving {
    forecast: Forecast,
    crowd: f64,
    /// Others that were moving when this one began to, and that had begun to until then.
    n_beside: u32,
    n_begun: u32,
}

/// So long an executor that has joined is given nothing to fetch, if it does not say before how far it is from others.
const PROBE_NS_MAX: u64 = 1_000_000_000;

impl Moves {
    /// Notes that a file of another dispatcher has come into being; `gatherers` are the tasks that waited for
    /// it and gather.
    pub fn arrived(&mut self, object: ObjectId, gatherers: Vec<TaskId>) {
        self.arrived.entry(object).or_default().extend(gatherers);
    }

    /// Whether the files of a task are being brought together, or will be if that is quicker.
    pub fn gathers_ahead(&self, task: TaskId) -> bool {
        self.gathers.contains(&task) || self.roots.contains_key(&task)
    }

    /// All objects of the collective exist: from now on it is known what has to be moved, and its time is predicted.
    fn expect(&mut self, collective: CollectiveId, left: &Left) {
        let Some(Expected { case, way, moving }) = self.expected.get_mut(&collective) else { return };
        if let Case::Gather(gather) = case {
            gather.leave(u64::from(left.n_objects), left.bytes, left.n_sources);
        }
        if left.n_objects == 0 {
            return;
        }
        let forecast = self.lessons.forecast(case, *way, &self.peer.link(), left.crowd);
        self.n_begun = self.n_begun.wrapping_add(1);
        let (n_beside, n_begun) = (self.n_moving, self.n_begun);
        *moving = Some(Moving { forecast, crowd: left.crowd, n_beside, n_begun });
        self.n_moving += 1;
    }

    /// A collective has ended: notes in its record what was expected of it, and learns from it. A collective that could not bring
    /// all files, or had to look for other sources, teaches nothing.
    fn learn_from(&mut self, record: &mut CollectiveRecord) {
        let Some(Expected { case, moving: Some(moving), .. }) = self.expected.remove(&record.collective)
        else {
            return;
        };
        self.n_moving -= 1;
        let Moving { forecast, crowd, n_beside, n_begun } = moving;
        if let Some(choice) = &mut record.choice {
            choice.expectation = Some(forecast.expectation);
        }
        if record.n_arrived == 0 {
            return;
        }
        let n_met = n_beside + self.n_begun.wrapping_sub(n_begun);
        let took_s = record.measured_ns() as f64 / 1e9;
        self.lessons.check(&case, &forecast, took_s, n_met);
        if record.n_arrived == record.n_wanted && record.n_moved == 0 {
            self.lessons.learn(Lesson { case, way: record.way, crowd, n_met, took_s });
        }
    }

    /// The executor is gone, and the catalog knows that.
    pub fn executor_lost(&mut self, executor: ExecutorId) {
        self.n_gathers_at.remove(&executor);
        self.pending.push(CollectiveEvent::ExecutorLost { executor });
    }

    /// Learns how fast inputs came to `executor` from each of their sources.
    pub(super) fn learn_network(
        &self,
        config: &DispatcherConfig,
        catalog: &Catalog,
        ready: &mut Ready,
        network: &mut Network,
        executor: ExecutorId,
        inputs: &[InputReport],
    ) {
        if !config.placement_config.affinity.network.learns() {
            return;
        }
        let asked_for = inputs.iter().filter(|i| !self.sent_ahead.contains(&(executor, i.object)));
        let mut news = News::Nothing;
        for (source, Moved { bytes, wait_ns }) in moved(asked_for) {
            news = news.max(network.observe(executor, source, bytes, wait_ns));
        }
        if news != News::Nothing {
            ready.sites_found(catalog, network.sites().cloned());
        }
    }

    /// The run is over, so its patterns need not be known any more.
    pub(super) fn forget_patterns(&mut self, run: RunId) {
        self.sent_ahead = FxHashSet::default();
        self.patterns.run_ended(run);
    }

    /// Learns about the links from what an attempt on `executor` reports of its inputs. Inputs that were on
    /// their way there when the attempt came are left out: the attempt waited for only a part of their
    /// transfer.
    pub(super) fn learn_links(&mut self, executor: ExecutorId, inputs: &[InputReport]) {
        let sent_ahead = &self.sent_ahead;
        let of = |is: fn(&CacheOutcome) -> bool| {
            let counts = |i: &&InputReport| {
                is(&i.outcome) && i.wait_ns > 0 && !sent_ahead.contains(&(executor, i.object))
            };
            let moved = || inputs.iter().filter(counts);
            let n_objects = moved().count() as u32;
            let bytes = moved().map(|i| i.size_bytes).sum();
            let duration_ns = moved().map(|i| i.wait_ns).max().unwrap_or(0);
            (n_objects > 0).then_some(Observation { n_objects, bytes, duration_ns, n_sharing: 1 })
        };
        if let Some(seen) = of(|o| matches!(o, CacheOutcome::RemoteHit { .. })) {
            self.peer.observe(seen);
        }
        if let Some(seen) = of(|o| matches!(o, CacheOutcome::Miss)) {
            self.home.observe(seen);
        }
    }

    /// The links between nodes as they are known now, with makers that are certain to be on time.
    pub(super) fn outlook(&self) -> Outlook {
        Outlook { link: self.peer.estimate(), makers_factor: 1.0 }
    }

    /// Groups those of `made` that the same tasks read (`Zhang12` §V-F.4).
    pub(super) fn sets_of(&self, made: &[ObjectId]) -> Vec<Vec<ObjectId>> {
        let mut sets: BTreeMap<ReadersKey, Vec<ObjectId>> = BTreeMap::new();
        for &object in made {
            if let Some(key) = self.patterns.readers_key(object) {
                sets.entry(key).or_default().push(object);
            }
        }
        sets.into_values().collect()
    }

    /// The task, which gathers, runs now or will not run.
    pub(super) fn forget_gather(&mut self, task: TaskId) {
        self.gathers.remove(&task);
        self.roots.remove(&task);
    }

    fn stage_of(&mut self, work: &Workload, task: TaskId) -> StageId {
        let (array, i) = work.tasks.locate(task);
        let run = work.tasks.run_of(task);
        let name = stage_of_task(&work.tasks.arrays[array.0 as usize].array, i);
        self.patterns.stage(run, &name)
    }

    /// Notes that a task of a workflow will write its outputs.
    pub(super) fn learn_writes(&mut self, work: &mut Workload, task: TaskId) {
        let (array, i) = work.tasks.locate(task);
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let outputs = work.outputs_of(work.tasks.run_of(task), &array, i);
        let stage = self.stage_of(work, task);
        self.patterns.task_writes(stage, &outputs);
    }

    /// Notes that a task of a workflow will read its inputs.
    pub(super) fn learn_reads(
        &mut self,
        work: &mut Workload,
        exchange: &Exchange,
        intermediates: &Intermediates,
        task: TaskId,
        array: &TaskArray,
        i: u32,
    ) {
        let run = work.tasks.run_of(task);
        let inputs = work.inputs_of(run, array, i);
        let stage = self.stage_of(work, task);
        if !array.template.hints.is_auto() {
            self.patterns.learn_hints(stage, &array.template.hints);
        }
        if exchange.group.is_some() {
            let foreign: Vec<ObjectId> = inputs
                .iter()
                .copied()
                .filter(|o| exchange.owner_elsewhere(work, intermediates, run, *o).is_some())
                .collect();
            self.patterns.made_elsewhere(run, &foreign);
        }
        self.patterns.task_reads(stage, &inputs);
        if self.patterns.of_task(stage, &inputs).is_some() {
            self.gathers.insert(task);
        }
    }

    /// All tasks of a submission, which is `run` or has become part of it, are known: reports the patterns
    /// that they form. Where other dispatchers have a share of the tasks, these are the patterns that were
    /// found when the run was split.
    pub(super) fn report_patterns(
        &mut self,
        work: &mut Workload,
        exchange: &mut Exchange,
        run: RunId,
        wide: Option<Box<RunPatterns>>,
        out: &mut Vec<Action>,
    ) {
        // A part that was sent no patterns of the run takes part in none; its own tasks would show halves of
        // patterns.
        let is_part = work.runs.get(&run).is_some_and(|r| r.linked.is_some());
        let found = match wide.or_else(|| is_part.then(Box::default)) {
            None => self.patterns.new_of_run(run),
            Some(wide) => {
                let RunPatterns { found, multicast, parts } = *wide;
                let kinds = [(multicast, PatternKind::Multicast), (parts, PatternKind::Scatter)];
                for (mut text, kind) in
                    kinds.into_iter().flat_map(|(l, k)| l.into_iter().map(move |l| (l, k)))
                {
                    let location = work.scope_of(run).put_into(&mut text);
                    let object = work.catalog.intern(location);
                    exchange.note_named(run, object);
                    self.patterns.learn_wide(run, object, kind);
                }
                self.patterns.learn_run(run, &found);
                found
            }
        };
        out.extend(found.into_iter().map(|evidence| Action::FoundPattern { run, evidence }));
    }

    /// Begins a collective that was chosen; how long it takes is predicted when all its objects exist.
    pub(super) fn begin_chosen(
        &mut self,
        work: &Workload,
        now: Timestamp,
        plan: &Plan,
        choice: Choice,
        case: Case,
    ) -> CollectiveId {
        let way = choice.way;
        let id = self.begin(work, now, plan, Some(choice));
        self.expected.insert(id, Expected { case, way, moving: None });
        id
    }

    fn begin(
        &mut self,
        work: &Workload,
        now: Timestamp,
        plan: &Plan,
        choice: Option<Choice>,
    ) -> CollectiveId {
        let mut actions = std::mem::take(&mut self.scratch);
        self.collectives.set_links(Links { peer: self.peer.link(), home: self.home.link() });
        let id = self.collectives.begin(now, plan, choice, &work.catalog, &mut actions);
        self.scratch = actions;
        id
    }

    /// Has `executor` fetch `objects`, wherever they are.
    pub(super) fn copy_to(
        &mut self,
        work: &Workload,
        now: Timestamp,
        executor: ExecutorId,
        objects: &[ObjectId],
        are_lent: bool,
    ) {
        let size_of = |o: &ObjectId| work.catalog.size_bytes(*o).unwrap_or(0);
        // What only executors of other dispatchers have comes from outside.
        let is_outside = |o: &ObjectId| are_lent && work.catalog.n_holders(*o) == 0;
        let item = |o: &ObjectId| Item { object: *o, size_bytes: size_of(o), at_home: is_outside(o) };
        let items: Vec<Item> = objects.iter().map(item).collect();
        let plan = plan::replicate(&items, &[executor]);
        self.begin(work, now, &plan, None);
    }
}

impl DispatcherConfig {
    /// Whether sites are looked for. Where nothing uses them, no time is spent on them.
    pub(super) fn measures_network(&self) -> bool {
        self.placement_config.affinity.network != NetworkUse::Off
    }
}

impl Dispatcher {
    /// What is known of the network between executors.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The sites that collectives heed, where more than one is known and placement learns from transfers.
    fn sites_used(&self) -> Option<&Sites> {
        let network = self.config.placement_config.affinity.network;
        self.network.sites().filter(|_| network.learns()).map(|sites| &**sites)
    }

    /// Has executors measure the round trips that are wanted. One that has just joined is given nothing to fetch until it has
    /// answered, or until the time of an answer is over.
    pub(super) fn probe_network(
        &mut self,
        now: Timestamp,
        joined: Option<ExecutorId>,
        out: &mut Vec<Action>,
    ) {
        if !self.config.placement_config.affinity.network.probes() {
            return;
        }
        for (executor, peers) in self.network.to_probe() {
            if joined == Some(executor) {
                self.schedule.ready.queue.set_awaited(executor, true);
                self.moves.awaited.push((executor, now));
            }
            out.push(Action::ProbePeers { executor, peers });
        }
    }

    /// The executors that were asked for round trips have had the time to answer.
    pub(super) fn await_no_probes(&mut self, now: Timestamp) {
        let is_over = |(_, since): &mut (ExecutorId, Timestamp)| now.since_ns(*since) > PROBE_NS_MAX;
        for (executor, _) in self.moves.awaited.extract_if(.., is_over) {
            self.schedule.ready.queue.set_awaited(executor, false);
        }
    }

    pub(super) fn on_peers_probed(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        round_trips: &[(ExecutorId, u64)],
        out: &mut Vec<Action>,
    ) {
        for (peer, round_trip_ns) in round_trips {
            self.network.observe_round_trip(executor, *peer, *round_trip_ns);
        }
        if self.network.settle() != News::Nothing {
            let sites = self.network.sites().cloned();
            self.schedule.ready.sites_found(&self.work.catalog, sites);
            self.probe_network(now, None, out);
        }
        self.moves.awaited.retain(|(other, _)| *other != executor);
        self.schedule.ready.queue.set_awaited(executor, false);
    }

    /// The patterns that a task takes part in, as users see them.
    pub fn patterns_of(&mut self, task: TaskId) -> Vec<Evidence> {
        let (array, i) = self.work.tasks.locate(task);
        let ArrayState { array, run, reads_run, writes_run, .. } = &self.work.tasks.arrays[array.0 as usize];
        if !reads_run && !writes_run {
            return vec![];
        }
        let (array, run) = (array.clone(), *run);
        let name = stage_of_task(&array, i);
        self.moves.patterns.of_run(run).into_iter().filter(|e| e.concerns(&name)).collect()
    }

    /// Considers collectives for the files that `task`, which has ended well, made and that are in a cache.
    pub(super) fn spread_made(&mut self, now: Timestamp, task: TaskId, made: &[ObjectId]) {
        if self.config.collectives == CollectiveMode::Off {
            return;
        }
        for set in self.moves.sets_of(made) {
            self.consider_multicast(now, &set, Some(task));
        }
        self.consider_scatter(now, made);
    }

    /// Considers collectives for files of other dispatchers that have come into being: they are brought to
    /// nodes of this dispatcher as if they had been made here. Files that appear while a collective is under
    /// way wait for its end or for the next tick, and then travel together.
    pub(super) fn bring_imports(&mut self, now: Timestamp, ticked: bool) {
        if self.moves.arrived.is_empty() || !ticked && self.moves.collectives.n_live() > 0 {
            return;
        }
        let arrived = std::mem::take(&mut self.moves.arrived);
        if self.config.collectives == CollectiveMode::Off || self.schedule.executors.by_id.is_empty() {
            return;
        }
        let (mut rooted, mut parts, mut spread) = (BTreeMap::<ExecutorId, Vec<Item>>::new(), vec![], vec![]);
        for (object, gatherers) in arrived {
            if !self.exchange.is_held_elsewhere(&self.work, &self.intermediates, object) {
                continue;
            }
            match self.moves.patterns.wide_kind(object) {
                Some(PatternKind::Multicast) => spread.push(object),
                Some(PatternKind::Scatter) if self.work.catalog.n_holders(object) == 0 => parts.push(object),
                _ => {}
            }
            for task in gatherers {
                // The gather is decided when its first file is there, and its plan has all files that exist
                // by then.
                if self.moves.gathers.contains(&task) {
                    self.consider_gather(now, task);
                } else if let Some(root) = self.moves.roots.get(&task)
                    && self.schedule.executors.by_id.contains_key(root)
                {
                    let item = self.exchange.item_of(&self.work, &self.intermediates, object);
                    rooted.entry(*root).or_default().push(item);
                }
            }
        }
        for (root, items) in rooted {
            self.moves.begin(&self.work, now, &plan::gather(&items, root, Way::AsyncArchives), None);
        }
        for set in self.moves.sets_of(&spread) {
            self.consider_multicast(now, &set, None);
        }
        self.deal_out(now, &parts, false);
    }

    /// Sends a set of files ahead to as many nodes as its share of what its readers read, if a tree is
    /// worth it.
    ///
    /// * `maker`: the task that has just made the set; `None` for what was read from home.
    pub(super) fn consider_multicast(&mut self, now: Timestamp, set: &[ObjectId], maker: Option<TaskId>) {
        let Some(&object) = set.first() else { return };
        let is_foreign =
            maker.is_none() && self.exchange.is_held_elsewhere(&self.work, &self.intermediates, object);
        if self.config.collectives == CollectiveMode::Off
            || self.schedule.executors.by_id.len() < 2 && !is_foreign
        {
            return;
        }
        let found = self.moves.patterns.of_object(object);
        let Some(evidence) =
            found.iter().filter(|e| e.pattern == PatternKind::Multicast).max_by_key(|e| e.count)
        else {
            return;
        };
        if self.schedule.executors.by_id.len() < 3 && !evidence.hinted {
            return;
        }
        let mut items = Vec::with_capacity(set.len());
        for &object in set {
            if self.work.catalog.size_bytes(object).is_none() {
                return;
            }
            items.push(self.exchange.item_of(&self.work, &self.intermediates, object));
        }
        let bytes = items.iter().map(|item| item.size_bytes).sum();
        let share = match maker {
            // A user who asks for a multicast gets the files to all nodes where they can be of use.
            Some(_) if evidence.hinted => 1.0,
            Some(maker) => {
                let run = self.work.tasks.run_of(maker);
                let stage = self.moves.patterns.stage(run, &evidence.to);
                self.moves.patterns.consumption(stage, object).share()
            }
            // The run that reads the files is not known, so they go to all nodes where they can be of use.
            None => 1.0,
        };
        let holds_all = |e: &ExecutorId| set.iter().all(|object| self.work.catalog.holds(*e, *object));
        let holders: Vec<ExecutorId> = self.work.catalog.holders_of(object).filter(holds_all).collect();
        let mut nodes = self.schedule.executors.receivers(bytes);
        let n = plan::n_replicas(share, evidence.count, nodes.len());
        let targets = plan::place_replicas(n.saturating_sub(holders.len()), &mut nodes, &holders);
        if targets.is_empty() || holders.is_empty() && !is_foreign {
            return;
        }
        let case = MulticastCase {
            n_receivers: targets.len() as u32,
            n_holders: holders.len().max(1) as u32,
            n_objects: items.len() as u64,
            bytes,
            largest_bytes: items.iter().map(|item| item.size_bytes).max().unwrap_or(0),
        };
        // A multicast that a user asks for is carried out, and no program runs again because of a link that
        // nobody has measured.
        let is_forced = self.config.collectives == CollectiveMode::TaskRerun;
        let may_rerun = is_forced || !evidence.hinted && self.moves.peer.is_measured();
        let mut rerun = None;
        if let Some(maker) = maker.filter(|_| may_rerun) {
            let able = self.able_to_rerun(maker, &targets);
            if able.len() == targets.len() || is_forced && !able.is_empty() {
                rerun = self
                    .reruns
                    .rerun_case(&mut self.work, &self.schedule.run_times, &self.intermediates, maker, &able)
                    .map(|rerun| (maker, able, rerun));
            }
        }
        let outlook = Outlook { makers_factor: RERUN_FACTOR, ..self.moves.outlook() };
        let rerun_is_possible = rerun.as_ref().map(|r| &r.2);
        let mut choice = choose_multicast(&case, &outlook, &Streams::default(), rerun_is_possible);
        if evidence.hinted {
            choice.insist();
        }
        if is_forced && rerun.is_some() {
            choice.take(Way::TaskRerun);
        }
        if choice.way == Way::TaskRerun
            && let Some((maker, able, _)) = rerun
        {
            return self.rerun_task(now, maker, &able, Some(choice));
        }
        if !choice.is_collective() {
            return;
        }
        let load =
            |e: ExecutorId| self.schedule.executors.by_id.get(&e).map_or(0, |e| e.assigned.len() as u64);
        let plan = self.plan_multicast(&items, &targets, &holders, choice.way, load);
        self.moves.begin_chosen(&self.work, now, &plan, choice, Case::Multicast(case));
    }

    /// The trees of a multicast, with busy nodes near the leaves, and one way into each site.
    pub(super) fn plan_multicast(
        &self,
        items: &[Item],
        targets: &[ExecutorId],
        holders: &[ExecutorId],
        way: Way,
        load: impl Fn(ExecutorId) -> u64,
    ) -> Plan {
        match self.sites_used() {
            None => plan::multicast(items, targets, holders, way, load),
            Some(sites) => {
                let site = |e: ExecutorId| sites.site_of(e);
                plan::multicast_by_site(items, targets, holders, way, load, site)
            }
        }
    }

    /// Whether nodes may pass on archives of `bytes` in all: each next to the root has room for its share, and no
    /// slow links are known that files would cross more often.
    fn may_pass_on(&self, bytes: u64) -> bool {
        self.sites_used().is_none() && self.schedule.executors.all_receive(bytes / u64::from(TREE_ARITY))
    }

    /// Deals out the many files that one task made over all nodes.
    fn consider_scatter(&mut self, now: Timestamp, made: &[ObjectId]) {
        if made.len() < 2 || self.schedule.executors.by_id.len() < 2 {
            return;
        }
        let Some(evidence) = self.moves.patterns.of_made(made) else { return };
        let is_forced = evidence.hinted;
        // A file with many readers is multicast, and a file without readers stays where it is. Files with the
        // same readers stay together.
        let mut sets = self.moves.sets_of(made);
        sets.retain_mut(|set| {
            set.retain(|object| is_forced || self.moves.patterns.is_part(*object));
            !set.is_empty()
        });
        let place: FxHashMap<ObjectId, usize> = made.iter().enumerate().map(|(n, o)| (*o, n)).collect();
        sets.sort_by_key(|set| set.iter().map(|o| place[o]).min());
        let made: Vec<ObjectId> = sets.into_iter().flatten().collect();
        self.deal_out(now, &made, is_forced);
    }

    /// Sends each of these files, each of which few tasks read, to one node.
    fn deal_out(&mut self, now: Timestamp, made: &[ObjectId], is_forced: bool) {
        if made.is_empty() {
            return;
        }
        let size_of = |o: &ObjectId| self.work.catalog.size_bytes(*o).unwrap_or(0);
        let bytes: u64 = made.iter().map(size_of).sum();
        let nodes: Vec<(ExecutorId, u64)> = self
            .schedule
            .executors
            .receivers(bytes / self.schedule.executors.by_id.len() as u64)
            .keys()
            .map(|e| (*e, u64::from(self.schedule.executors.by_id[e].offer.slots)))
            .collect();
        let n_slots: u64 = nodes.iter().map(|n| n.1).sum();
        if nodes.is_empty() {
            return;
        }
        // Files that are neighbours stay together: node k gets the files whose number times the slots lies in
        // its range.
        let mut needs: Vec<(ExecutorId, Vec<Item>)> = nodes.iter().map(|n| (n.0, vec![])).collect();
        let (mut k, mut slots_before) = (0, nodes[0].1);
        for (n, object) in made.iter().enumerate() {
            while n as u64 * n_slots >= slots_before * made.len() as u64 && k + 1 < nodes.len() {
                k += 1;
                slots_before += nodes[k].1;
            }
            if !self.work.catalog.holds(nodes[k].0, *object) {
                needs[k].1.push(self.exchange.item_of(&self.work, &self.intermediates, *object));
            }
        }
        needs.retain(|(_, items)| !items.is_empty());
        let n_objects = needs.iter().map(|(_, items)| items.len() as u64).sum();
        let bytes = needs.iter().flat_map(|(_, items)| items).map(|i| i.size_bytes).sum();
        let from_nodes = !needs.iter().flat_map(|(_, items)| items).any(|item| item.at_home);
        let passes_on = from_nodes && self.may_pass_on(bytes);
        let case = ScatterCase { n_receivers: needs.len() as u32, n_objects, bytes, passes_on };
        let mut choice = choose_scatter(&case, &self.moves.outlook(), &Streams::default());
        if is_forced {
            choice.insist();
        }
        let n_receivers = case.n_receivers;
        let case = Case::Scatter(case);
        if self.config.collectives == CollectiveMode::ArchiveTree {
            choice.force(tree_of(n_receivers), &case);
        }
        if choice.is_collective() {
            let plan = plan::scatter(&needs, choice.way);
            self.moves.begin_chosen(&self.work, now, &plan, choice, case);
        }
    }

    /// The first file that `task` gathers exists: decides where the task will run, and how its files get
    /// there.
    pub(super) fn consider_gather(&mut self, now: Timestamp, task: TaskId) {
        if !self.moves.gathers.remove(&task) || self.config.collectives == CollectiveMode::Off {
            return;
        }
        let files = self.intermediates.files_read(&mut self.work, task);
        let sizes: Vec<u64> = files.iter().filter_map(|o| self.work.catalog.size_bytes(*o)).collect();
        let size_assumed = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
        let size_of = |o: &ObjectId| self.work.catalog.size_bytes(*o).unwrap_or(size_assumed);
        let bytes: u64 = files.iter().map(size_of).sum();
        let mut held: BTreeMap<ExecutorId, u64> = BTreeMap::new();
        for object in &files {
            for holder in self.work.catalog.holders_of(*object) {
                *held.entry(holder).or_default() += size_of(object);
            }
        }
        let fits = |e: &ExecutorId| {
            let e = &self.schedule.executors.by_id[e];
            e.offer.cache_bytes / 2 >= bytes
                && self.schedule.executors.resources.is_able(e, self.work.tasks.size_of(task))
        };
        let nodes = self.schedule.executors.receivers(0);
        // What is in other sites has to cross slow links, so the site that has most comes before the node that has most.
        let sites = self.sites_used();
        let site_of = |e: &ExecutorId| sites.and_then(|sites| sites.site_of(*e));
        let mut held_in: BTreeMap<u32, u64> = BTreeMap::new();
        for (holder, bytes) in &held {
            if let Some(site) = site_of(holder) {
                *held_in.entry(site).or_default() += bytes;
            }
        }
        let rank = |e: &ExecutorId| {
            let n_gathers = self.moves.n_gathers_at.get(e).copied().unwrap_or(0);
            let of_site = site_of(e).and_then(|site| held_in.get(&site)).copied().unwrap_or(0);
            (of_site, held.get(e).copied().unwrap_or(0), std::cmp::Reverse((n_gathers, nodes[e], *e)))
        };
        let Some(root) = nodes.keys().filter(|e| fits(e)).max_by_key(|e| rank(e)).copied() else { return };
        let n_slots = self.schedule.ready.queue.n_slots_total().max(1);
        let run_s_of = |object: &ObjectId| {
            let maker = self.intermediates.files.get(object).and_then(|file| file.maker);
            let stage =
                maker.map(|maker| self.work.tasks.arrays[self.work.tasks.locate(maker).0.0 as usize].stage);
            stage.and_then(|stage| self.schedule.run_times.expected_ns(stage)).map(|ns| ns as f64 / 1e9)
        };
        let mut n_unmade = 0;
        let mut makers_factor = MAKERS_FACTOR;
        let mut appear = vec![];
        for object in &files {
            if self.work.catalog.holds(root, *object) {
                continue;
            }
            let at_s = if self.work.catalog.n_holders(*object) > 0
                || self.exchange.is_held_elsewhere(&self.work, &self.intermediates, *object)
            {
                0.0
            } else {
                n_unmade += 1;
                let run_s = run_s_of(object).unwrap_or_else(|| {
                    makers_factor = MAKERS_FACTOR_UNKNOWN;
                    RUN_S_ASSUMED
                });
                f64::from(u32::try_from((n_unmade as u64).div_ceil(n_slots)).unwrap_or(u32::MAX)) * run_s
            };
            appear.push((at_s, size_of(object)));
        }
        let passes_on = self.may_pass_on(bytes);
        let case = GatherCase { passes_on, ..GatherCase::new(appear, nodes.len() as u32) };
        let outlook = Outlook { makers_factor, ..self.moves.outlook() };
        let mut choice = choose_gather(&case, &outlook, &Streams::default());
        let (array, _) = self.work.tasks.locate(task);
        let hint = self.work.tasks.arrays[array.0 as usize].array.template.hints.gather;
        let forced = match (hint, self.config.collectives) {
            (GatherHint::Collective, _) => Some(Way::CollectiveGather),
            (GatherHint::Async, _) => Some(Way::AsyncGather),
            (GatherHint::Always, _) => {
                choice.insist();
                None
            }
            (_, CollectiveMode::CollectiveGather) => Some(Way::CollectiveGather),
            (_, CollectiveMode::AsyncGather) => Some(Way::AsyncGather),
            (_, CollectiveMode::ArchiveTree) => Some(tree_of(case.n_sources)),
            (_, CollectiveMode::Auto | CollectiveMode::Off | CollectiveMode::TaskRerun) => None,
        };
        let case = Case::Gather(case);
        if let Some(way) = forced {
            choice.force(way, &case);
        }
        if !choice.is_collective() {
            return;
        }
        *self.moves.n_gathers_at.entry(root).or_default() += 1;
        // Files that other dispatchers have yet to make are brought when they exist, see `bring_imports`.
        let run = self.work.tasks.run_of(task);
        let is_awaited = |o: &ObjectId| {
            self.exchange.owner_elsewhere(&self.work, &self.intermediates, run, *o).is_some()
                && !self.exchange.is_held_elsewhere(&self.work, &self.intermediates, *o)
        };
        let items: Vec<Item> = files
            .iter()
            .filter(|object| !is_awaited(object))
            .map(|object| Item {
                size_bytes: size_of(object),
                ..self.exchange.item_of(&self.work, &self.intermediates, *object)
            })
            .collect();
        if items.len() < files.len() {
            self.moves.roots.insert(task, root);
        }
        let plan = plan::gather(&items, root, choice.way);
        self.moves.begin_chosen(&self.work, now, &plan, choice, case);
    }

    /// Passes on to the collectives what has happened, and turns what they ask for into actions.
    pub(super) fn carry_collectives(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        out.append(&mut self.reruns.pending);
        let mut actions = std::mem::take(&mut self.moves.scratch);
        // A file that cannot be requested comes back as a failure, which may lead to other actions.
        loop {
            for event in std::mem::take(&mut self.moves.pending) {
                self.moves.collectives.handle(now, event, &self.work.catalog, &mut actions);
            }
            self.moves.collectives.take_observations().into_iter().for_each(|o| self.moves.peer.observe(o));
            if actions.is_empty() {
                break;
            }
            for action in std::mem::take(&mut actions) {
                match action {
                    CollectiveAction::Prefetch { executor, batch, objects, sources, awaits } => {
                        let mut inputs = vec![];
                        for object in objects {
                            let mut holders: Vec<ExecutorId> = vec![];
                            for source in &sources {
                                match source {
                                    Source::Peer(e) => holders.push(*e),
                                    // From outside: only executors of other dispatchers are asked ahead.
                                    Source::Home => {
                                        holders.extend(self.exchange.lent_to(object).take(SOURCES_MAX));
                                        if let Some(run) = self.exchange.run_of_import(
                                            &self.work,
                                            &self.intermediates,
                                            object,
                                        ) {
                                            self.exchange.foreign_sources(
                                                executor,
                                                run,
                                                object,
                                                &mut holders,
                                            );
                                        }
                                    }
                                }
                            }
                            self.moves.sent_ahead.insert((executor, object));
                            match self.work.known_bytes(object).filter(|_| !holders.is_empty()) {
                                Some(known) => inputs.push(AssignedInput {
                                    object,
                                    known: Some(known),
                                    sources: holders,
                                    check_home: false,
                                    direct: false,
                                    watched: false,
                                    stays: self.intermediates.has(object),
                                    making: Making::No,
                                }),
                                // No executor has the file any more.
                                None => self.moves.pending.push(CollectiveEvent::PrefetchFailed {
                                    executor,
                                    batch,
                                    object,
                                    kind: TransferErrorKind::Unavailable,
                                }),
                            }
                        }
                        if !inputs.is_empty() {
                            out.push(Action::Prefetch { executor, batch, inputs, awaits });
                        }
                    }
                    CollectiveAction::CancelPrefetch { executor, objects } => {
                        out.push(Action::CancelPrefetch { executor, objects })
                    }
                    CollectiveAction::AllExist { collective, left } => self.moves.expect(collective, &left),
                    CollectiveAction::Ended { mut record } => {
                        self.moves.learn_from(&mut record);
                        self.pushes.collective_ended(record.collective);
                        out.push(Action::EndCollective { record });
                    }
                }
            }
        }
        self.moves.scratch = actions;
    }
}

impl Exchange {
    /// An object as an item of a plan. It may come from outside, if executors of another dispatcher hold it.
    fn item_of(&self, work: &Workload, intermediates: &Intermediates, object: ObjectId) -> Item {
        let size_bytes = work.catalog.size_bytes(object).unwrap_or(0);
        Item { object, size_bytes, at_home: self.is_held_elsewhere(work, intermediates, object) }
    }
}
