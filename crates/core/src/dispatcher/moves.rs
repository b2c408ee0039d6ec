//! Patterns among the tasks of a run, and collectives that bring their files where they will be read.
//!
//! Looked at are the tasks of workflows: arrays that read or write files which stay on the nodes. What the first of them
//! have in common is known when they are submitted ([`Patterns`]); when files come into being, this decides:
//!
//! | when | collective |
//! |---|---|
//! | a task has made a file (or a group of files that the same tasks read), or home's copy of it has arrived somewhere, and many tasks of one stage read it | multicast, to as many nodes as its share of what the stage reads (`Zhang12` §V-F.2 to .4) |
//! | a task has made many files, read by many tasks | scatter, over all nodes by their slots |
//! | the first file of a task that gathers is made | gather to the node that will run it, in the way that is predicted to end first (§VI-A.1) |
//!
//! Where the model says that plain fetches are as quick there is no collective. What a collective brings, placement
//! finds; so where it brings the files is where the tasks go.
//!
//! Latency and bandwidth come from what attempts report of their inputs: one observation per attempt and kind of link.
//!
//! Not here: how a collective is carried out ([`crate::collective::carry`]) and what moves bytes (executors).

use super::*;
use crate::array::{GatherHint, Hint, Hints};
use crate::collective::cost::{GatherCase, MulticastCase, ScatterCase, Streams};
use crate::collective::plan::{self, Item, Plan};
use crate::collective::{
    Choice, CollectiveAction, CollectiveEvent, Collectives, LinkEstimator, Links, Observation, Way,
    choose_gather, choose_multicast, choose_scatter,
};
use crate::pattern::{Evidence, PatternKind, Patterns, ReadersKey, Scope, StageId, Wish, stage_of_task};
use rustc_hash::FxHashSet;

/// A file is sent to a node ahead of its readers only where it takes at most one part in so many of the cache.
const CACHE_PARTS: u64 = 4;
/// What a task is taken to need until one has ended.
const RUN_S_ASSUMED: f64 = 1.0;

/// Which collectives there are.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveMode {
    /// Whichever the cost model prefers.
    #[default]
    Auto,
    /// None: each task fetches its own inputs.
    Off,
    /// As `auto`, but every gather waits for its last file.
    CollectiveGather,
    /// As `auto`, but every gather fetches each file when it appears.
    AsyncGather,
    /// As `auto`, but in place of every multicast the task that made the files runs again where they are needed, if it
    /// can.
    TaskReplication,
}

impl CollectiveMode {
    pub const NAMES: [&str; 5] = ["auto", "off", "collective-gather", "async-gather", "task-replication"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// `None`: there is no such mode.
    pub fn by_name(name: &str) -> Option<CollectiveMode> {
        let modes = [Self::Auto, Self::Off, Self::CollectiveGather, Self::AsyncGather, Self::TaskReplication];
        Self::NAMES.iter().position(|n| *n == name).map(|i| modes[i])
    }
}

#[derive(Default)]
pub(super) struct Moves {
    pub patterns: Patterns,
    pub collectives: Collectives,
    peer: LinkEstimator,
    home: LinkEstimator,
    /// What happened to replicas and executors since the collectives were told last.
    pub pending: Vec<CollectiveEvent>,
    /// What users say of stages.
    hints: BTreeMap<StageId, Hints>,
    /// Tasks that gather, until their collective is decided on.
    gathers: FxHashSet<TaskId>,
    /// Gathers that were sent to each node, so that several spread.
    n_gathers_at: BTreeMap<ExecutorId, u32>,
    scratch: Vec<CollectiveAction>,
}

impl Moves {
    /// It is gone, and the catalog knows.
    pub fn executor_lost(&mut self, executor: ExecutorId) {
        self.n_gathers_at.remove(&executor);
        self.pending.push(CollectiveEvent::ExecutorLost { executor });
    }
}

impl Dispatcher {
    fn stage_of(&mut self, task: TaskId) -> StageId {
        let (array, i) = self.locate(task);
        let run = self.run_of(task);
        let name = stage_of_task(&self.arrays[array.0 as usize].array, i);
        self.moves.patterns.stage(run, &name)
    }

    /// A task of a workflow will write these.
    pub(super) fn learn_writes(&mut self, task: TaskId) {
        let (array, i) = self.locate(task);
        let array = self.arrays[array.0 as usize].array.clone();
        let outputs = self.outputs_of(self.run_of(task), &array, i);
        let stage = self.stage_of(task);
        self.moves.patterns.task_writes(stage, &outputs);
    }

    /// A task of a workflow will read its inputs.
    pub(super) fn learn_reads(&mut self, task: TaskId, array: &TaskArray, i: u32, out: &mut Vec<Action>) {
        let run = self.run_of(task);
        let inputs = self.inputs_of(run, array, i);
        let stage = self.stage_of(task);
        if !array.template.hints.is_auto() {
            self.learn_hints(run, stage, &array.template.hints);
        }
        let mut found = vec![];
        self.moves.patterns.task_reads(stage, &inputs, &mut found);
        for evidence in found {
            let evidence = match evidence.object {
                Some(object) => evidence.named(&unscoped(self.catalog.location(object))),
                None => evidence,
            };
            out.push(Action::FoundPattern { run, evidence });
        }
        if self.moves.patterns.of_task(stage, &inputs).is_some() {
            self.moves.gathers.insert(task);
        }
    }

    /// What the user says of a stage. Who forbids counts before who forces, whoever says it first.
    fn learn_hints(&mut self, run: RunId, stage: StageId, hints: &Hints) {
        let known = self.moves.hints.entry(stage).or_default();
        let all = Hints {
            multicast: known.multicast.max(hints.multicast),
            scatter: known.scatter.max(hints.scatter),
            gather: known.gather.max(hints.gather),
        };
        if std::mem::replace(known, all) == all {
            return;
        }
        let simple = |hint: Hint| match hint {
            Hint::Auto => None,
            Hint::Always => Some(Wish::Force),
            Hint::Never => Some(Wish::Forbid),
        };
        let gather = match all.gather {
            GatherHint::Auto => None,
            GatherHint::Always | GatherHint::Collective | GatherHint::Async => Some(Wish::Force),
            GatherHint::Never => Some(Wish::Forbid),
        };
        let name = self.moves.patterns.name_of(stage).unwrap_or_default().to_owned();
        for (kind, wish) in [
            (PatternKind::Multicast, simple(all.multicast)),
            (PatternKind::Scatter, simple(all.scatter)),
            (PatternKind::Gather, gather),
        ] {
            if let Some(wish) = wish {
                self.moves.patterns.set_hint(run, Scope::Stage(name.clone()), kind, wish);
            }
        }
    }

    /// The run is over: nothing of it need be known any more.
    pub(super) fn forget_patterns(&mut self, run: RunId) {
        self.moves.patterns.run_ended(run);
        let Moves { patterns, hints, .. } = &mut self.moves;
        hints.retain(|stage, _| patterns.name_of(*stage).is_some());
    }

    /// The patterns that a task takes part in, for people.
    pub fn patterns_of(&mut self, task: TaskId) -> Vec<Evidence> {
        let (array, i) = self.locate(task);
        let ArrayState { array, run, reads_run, writes_run, .. } = &self.arrays[array.0 as usize];
        if !reads_run && !writes_run {
            return vec![];
        }
        let (array, run) = (array.clone(), *run);
        let name = stage_of_task(&array, i);
        self.moves
            .patterns
            .of_run(run)
            .into_iter()
            .filter(|e| e.to == name || e.from.as_ref() == Some(&name))
            .collect()
    }

    /// What an attempt says of its inputs tells of the links.
    pub(super) fn learn_links(&mut self, inputs: &[InputReport]) {
        let of = |is: fn(&CacheOutcome) -> bool| {
            let moved = || inputs.iter().filter(|i| is(&i.outcome) && i.wait_ns > 0);
            let n_objects = moved().count() as u32;
            let bytes = moved().map(|i| i.size_bytes).sum();
            let duration_ns = moved().map(|i| i.wait_ns).max().unwrap_or(0);
            (n_objects > 0).then_some(Observation { n_objects, bytes, duration_ns, n_sharing: 1 })
        };
        if let Some(seen) = of(|o| matches!(o, CacheOutcome::RemoteHit { .. })) {
            self.moves.peer.observe(seen);
        }
        if let Some(seen) = of(|o| matches!(o, CacheOutcome::Miss)) {
            self.moves.home.observe(seen);
        }
    }

    pub(super) fn links(&self) -> Links {
        Links { peer: self.moves.peer.link(), home: self.moves.home.link() }
    }

    /// Executors that may be sent something, with what decides among them: attempts that they have.
    fn receivers(&self, bytes: u64) -> BTreeMap<ExecutorId, u32> {
        let takes = |e: &&ExecutorState| {
            !e.draining && e.silent_since.is_none() && e.offer.cache_bytes / CACHE_PARTS >= bytes
        };
        let of = self.executors.iter().filter(|(_, e)| takes(e));
        of.map(|(id, e)| (*id, e.assigned.len() as u32)).collect()
    }

    fn begin(&mut self, now: Timestamp, plan: &Plan, choice: Option<Choice>) {
        let mut actions = std::mem::take(&mut self.moves.scratch);
        self.moves
            .collectives
            .set_links(Links { peer: self.moves.peer.link(), home: self.moves.home.link() });
        self.moves.collectives.begin(now, plan, choice, &self.catalog, &mut actions);
        self.moves.scratch = actions;
    }

    /// Nodes that may be sent files which would be lost otherwise: bytes sent so far, and for how many there is room.
    pub(super) fn receivers_of_rescue(&self) -> BTreeMap<ExecutorId, (u64, u64)> {
        let nodes = self.receivers(0);
        nodes.keys().map(|e| (*e, (0, self.executors[e].offer.cache_bytes / 2))).collect()
    }

    /// Has `executor` get these, wherever they are.
    pub(super) fn copy_to(&mut self, now: Timestamp, executor: ExecutorId, objects: &[ObjectId]) {
        let size_of = |o: &ObjectId| self.catalog.size_bytes(*o).unwrap_or(0);
        let item = |o: &ObjectId| Item { object: *o, size_bytes: size_of(o), at_home: false };
        let items: Vec<Item> = objects.iter().map(item).collect();
        let plan = plan::replicate(&items, &[executor]);
        self.begin(now, &plan, None);
    }

    /// `task` has ended well, and what it made is in a cache.
    pub(super) fn spread_made(&mut self, now: Timestamp, task: TaskId, made: &[ObjectId]) {
        if self.config.collectives == CollectiveMode::Off {
            return;
        }
        for group in self.groups_of(made) {
            self.consider_multicast(now, &group, Some(task));
        }
        self.consider_scatter(now, task, made);
    }

    /// Those of `made` that the same tasks read belong together (`Zhang12` §V-F.4).
    fn groups_of(&self, made: &[ObjectId]) -> Vec<Vec<ObjectId>> {
        let mut groups: BTreeMap<ReadersKey, Vec<ObjectId>> = BTreeMap::new();
        for &object in made {
            if let Some(key) = self.moves.patterns.readers_key(object) {
                groups.entry(key).or_default().push(object);
            }
        }
        groups.into_values().collect()
    }

    /// Sends a group of files ahead to as many nodes as its share of what its readers read, if it is worth a tree.
    ///
    /// * `maker`: which task has just made it; none for what was read from home.
    pub(super) fn consider_multicast(&mut self, now: Timestamp, group: &[ObjectId], maker: Option<TaskId>) {
        let Some(&object) = group.first() else { return };
        if self.config.collectives == CollectiveMode::Off || self.executors.len() < 2 {
            return;
        }
        let found = self.moves.patterns.of_object(object);
        let Some(evidence) =
            found.iter().filter(|e| e.pattern == PatternKind::Multicast).max_by_key(|e| e.count)
        else {
            return;
        };
        if self.executors.len() < 3 && !evidence.hinted {
            return;
        }
        let mut items = Vec::with_capacity(group.len());
        for &object in group {
            let Some(size_bytes) = self.catalog.size_bytes(object) else { return };
            items.push(Item { object, size_bytes, at_home: false });
        }
        let bytes = items.iter().map(|item| item.size_bytes).sum();
        let share = match maker {
            // Who asks for it has it wherever it is of use.
            Some(_) if evidence.hinted => 1.0,
            Some(maker) => {
                let run = self.run_of(maker);
                let stage = self.moves.patterns.stage(run, &evidence.to);
                self.moves.patterns.consumption(stage, object).share()
            }
            // Which run's is not known, so as many as can be of use.
            None => 1.0,
        };
        let holds_all = |e: &ExecutorId| group.iter().all(|object| self.catalog.holds(*e, *object));
        let holders: Vec<ExecutorId> = self.catalog.holders_of(object).filter(holds_all).collect();
        let mut nodes = self.receivers(bytes);
        let n = plan::n_replicas(share, evidence.count, nodes.len());
        let targets = plan::place_replicas(n.saturating_sub(holders.len()), &mut nodes, &holders);
        if targets.is_empty() || holders.is_empty() {
            return;
        }
        let case = MulticastCase {
            n_receivers: targets.len() as u32,
            n_holders: holders.len() as u32,
            n_objects: items.len() as u64,
            bytes,
            largest_bytes: items.iter().map(|item| item.size_bytes).max().unwrap_or(0),
        };
        let mut choice = choose_multicast(&case, &self.links().peer, &Streams::default());
        if evidence.hinted {
            choice.insist();
        }
        // Who asks for a multicast gets one.
        let is_forced = self.config.collectives == CollectiveMode::TaskReplication;
        if let Some(maker) = maker.filter(|_| is_forced || !evidence.hinted) {
            let able = self.with_room(maker, &targets);
            if (able.len() == targets.len() || is_forced && !able.is_empty())
                && let Some(s) = self.replication_s(maker, &able)
            {
                choice.offer(Way::TaskReplication, s);
                if is_forced {
                    choice.force(Way::TaskReplication);
                }
                if choice.way == Way::TaskReplication {
                    return self.replicate_task(now, maker, &able, choice);
                }
            }
        }
        if !choice.is_collective() {
            return;
        }
        let load = |e: ExecutorId| self.executors.get(&e).map_or(0, |e| e.assigned.len() as u64);
        let plan = plan::multicast(&items, &targets, &holders, choice.way, load);
        self.begin(now, &plan, Some(choice));
    }

    /// Deals out the many files that one task made over all nodes.
    fn consider_scatter(&mut self, now: Timestamp, task: TaskId, made: &[ObjectId]) {
        let Some(reader) = self.subscribers.get(&task).and_then(|s| s.first()).copied() else { return };
        if made.len() < 2 || self.executors.len() < 2 {
            return;
        }
        let (from, to) = (self.stage_of(task), self.stage_of(reader));
        let found = self.moves.patterns.of_stages(Some(from), to);
        let Some(evidence) = found.iter().find(|e| e.pattern == PatternKind::Scatter) else { return };
        let is_forced = evidence.hinted;
        let size_of = |o: &ObjectId| self.catalog.size_bytes(*o).unwrap_or(0);
        let bytes: u64 = made.iter().map(size_of).sum();
        let nodes: Vec<(ExecutorId, u64)> = self
            .receivers(bytes / self.executors.len() as u64)
            .keys()
            .map(|e| (*e, u64::from(self.executors[e].offer.slots)))
            .collect();
        let n_slots: u64 = nodes.iter().map(|n| n.1).sum();
        if nodes.len() < 2 {
            return;
        }
        // Neighbours stay together; node k has the files whose number times the slots lies in its stretch.
        let mut needs: Vec<(ExecutorId, Vec<Item>)> = nodes.iter().map(|n| (n.0, vec![])).collect();
        let (mut k, mut slots_before) = (0, nodes[0].1);
        for (n, object) in made.iter().enumerate() {
            while n as u64 * n_slots >= slots_before * made.len() as u64 && k + 1 < nodes.len() {
                k += 1;
                slots_before += nodes[k].1;
            }
            if !self.catalog.holds(nodes[k].0, *object) {
                needs[k].1.push(Item { object: *object, size_bytes: size_of(object), at_home: false });
            }
        }
        needs.retain(|(_, items)| !items.is_empty());
        let n_objects = needs.iter().map(|(_, items)| items.len() as u64).sum();
        let bytes = needs.iter().flat_map(|(_, items)| items).map(|i| i.size_bytes).sum();
        let case = ScatterCase { n_receivers: needs.len() as u32, n_objects, bytes };
        let mut choice = choose_scatter(&case, &self.links().peer, &Streams::default());
        if is_forced {
            choice.insist();
        }
        if choice.is_collective() {
            let plan = plan::scatter(&needs, choice.way);
            self.begin(now, &plan, Some(choice));
        }
    }

    /// The first file that `task` gathers is there: where it will run, and how the files get there.
    pub(super) fn consider_gather(&mut self, now: Timestamp, task: TaskId) {
        if !self.moves.gathers.remove(&task) || self.config.collectives == CollectiveMode::Off {
            return;
        }
        // What comes from other dispatchers would have to be gathered from nodes that are not ours to plan for.
        if !self.foreign_inputs(task).is_empty() {
            return;
        }
        let files = self.files_read(task);
        let sizes: Vec<u64> = files.iter().filter_map(|o| self.catalog.size_bytes(*o)).collect();
        let size_assumed = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
        let size_of = |o: &ObjectId| self.catalog.size_bytes(*o).unwrap_or(size_assumed);
        let bytes: u64 = files.iter().map(size_of).sum();
        let mut held: BTreeMap<ExecutorId, u64> = BTreeMap::new();
        for object in &files {
            for holder in self.catalog.holders_of(*object) {
                *held.entry(holder).or_default() += size_of(object);
            }
        }
        let fits = |e: &ExecutorId| {
            self.executors[e].offer.cache_bytes / 2 >= bytes && {
                let (cpus, memory) = self.size_of(task);
                self.executors[e].offer.slots >= cpus && self.executors[e].offer.memory_bytes >= memory
            }
        };
        let nodes = self.receivers(0);
        let rank = |e: &ExecutorId| {
            let n_gathers = self.moves.n_gathers_at.get(e).copied().unwrap_or(0);
            (held.get(e).copied().unwrap_or(0), std::cmp::Reverse((n_gathers, nodes[e], *e)))
        };
        let Some(root) = nodes.keys().filter(|e| fits(e)).max_by_key(|e| rank(e)).copied() else { return };
        let n_slots = self.queue.n_slots_total().max(1);
        let run_s_of = |object: &ObjectId| {
            let maker = self.intermediates.files.get(object).and_then(|file| file.maker);
            let stage = maker.map(|maker| self.arrays[self.locate(maker).0.0 as usize].stage);
            let ns = stage.and_then(|stage| self.run_times.expected_ns(stage));
            ns.map_or(RUN_S_ASSUMED, |ns| ns as f64 / 1e9)
        };
        let mut n_unmade = 0;
        let mut appear = vec![];
        for object in &files {
            if self.catalog.holds(root, *object) {
                continue;
            }
            let at_s = if self.catalog.n_holders(*object) > 0 {
                0.0
            } else {
                n_unmade += 1;
                f64::from(u32::try_from((n_unmade as u64).div_ceil(n_slots)).unwrap_or(u32::MAX))
                    * run_s_of(object)
            };
            appear.push((at_s, size_of(object)));
        }
        let case = GatherCase::new(appear, nodes.len() as u32);
        let mut choice = choose_gather(&case, &self.links().peer, &Streams::default());
        let (array, _) = self.locate(task);
        let hint = self.arrays[array.0 as usize].array.template.hints.gather;
        let forced = match (hint, self.config.collectives) {
            (GatherHint::Collective, _) => Some(Way::CollectiveGather),
            (GatherHint::Async, _) => Some(Way::AsyncGather),
            (GatherHint::Always, _) => {
                choice.insist();
                None
            }
            (_, CollectiveMode::CollectiveGather) => Some(Way::CollectiveGather),
            (_, CollectiveMode::AsyncGather) => Some(Way::AsyncGather),
            (_, CollectiveMode::Auto | CollectiveMode::Off | CollectiveMode::TaskReplication) => None,
        };
        if let Some(way) = forced {
            choice.force(way);
        }
        if !choice.is_collective() {
            return;
        }
        *self.moves.n_gathers_at.entry(root).or_default() += 1;
        let items: Vec<Item> = files
            .iter()
            .map(|object| Item { object: *object, size_bytes: size_of(object), at_home: false })
            .collect();
        let plan = plan::gather(&items, root, choice.way);
        self.begin(now, &plan, Some(choice));
    }

    /// A task that gathers will not run, or runs now.
    pub(super) fn forget_gather(&mut self, task: TaskId) {
        self.moves.gathers.remove(&task);
    }

    /// Tells the collectives what has happened, and turns what they want into actions.
    pub(super) fn carry_collectives(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        out.append(&mut self.replication.pending);
        let mut actions = std::mem::take(&mut self.moves.scratch);
        // What cannot be asked for comes back as a failure, which may lead to other actions.
        loop {
            for event in std::mem::take(&mut self.moves.pending) {
                self.moves.collectives.handle(now, event, &self.catalog, &mut actions);
            }
            if actions.is_empty() {
                break;
            }
            for action in std::mem::take(&mut actions) {
                match action {
                    CollectiveAction::Prefetch { executor, batch, objects, sources } => {
                        let mut inputs = vec![];
                        for object in objects {
                            let sources = sources.iter().filter_map(|s| match s {
                                Source::Peer(e) => Some(*e),
                                Source::Home => None,
                            });
                            match self.known(object) {
                                Some(known) => inputs.push(AssignedInput {
                                    object,
                                    known: Some(known),
                                    sources: sources.collect(),
                                    check_home: false,
                                    direct: false,
                                    stays: self.is_intermediate(object),
                                }),
                                None => self.moves.pending.push(CollectiveEvent::PrefetchFailed {
                                    executor,
                                    batch,
                                    object,
                                    kind: TransferErrorKind::Unavailable,
                                }),
                            }
                        }
                        if !inputs.is_empty() {
                            out.push(Action::Prefetch { executor, batch, inputs });
                        }
                    }
                    CollectiveAction::CancelPrefetch { executor, objects } => {
                        out.push(Action::CancelPrefetch { executor, objects })
                    }
                    CollectiveAction::Ended { record } => out.push(Action::EndCollective { record }),
                }
            }
        }
        self.moves.scratch = actions;
    }
}
