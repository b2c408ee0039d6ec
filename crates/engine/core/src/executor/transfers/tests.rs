//! Which transfers begin, beside the plain definition of what may begin.

use super::*;
use crate::cache::CacheConfig;
use crate::event::{Assignment, Exit, Known, Why};
use crate::executor::{ExecutorConfig, NodeEvent};
use eyas_terms::rng::Rng;
use eyas_terms::{AttemptNo, Digest, ExecutorId, HomeVersion, RunId, TaskId};
use std::collections::BTreeSet;

const N_OBJECTS: u64 = 8;

/// What begins, by definition: the queue is gone through from its head, and each transfer is looked at with all inputs of the
/// attempt that asked for it first. Also how many transfers wait only because their inputs come in turn.
fn begun_by_definition(executor: &Executor) -> (Vec<(Target, Source)>, usize) {
    let config = &executor.config;
    let mut queued: Vec<(QueuePlace, Target)> =
        executor.transfers.iter().filter_map(|(target, t)| Some((t.place?, *target))).collect();
    queued.sort_unstable();
    let under_way = || executor.transfers.iter().filter(|(_, t)| t.active.is_some());
    let mut active: BTreeSet<Target> = under_way().map(|(target, _)| *target).collect();
    let mut n_streams = under_way().filter(|(_, t)| !t.shares).count();
    let max = config.small_per_peer_max;
    let mut small_by_peer = executor.streams.small_by_peer.clone();
    small_by_peer.values_mut().for_each(|small| small.is_full &= small.n_active > max / 2);
    let mut n_by_peer = executor.streams.by_peer.clone();
    let mut n_home = executor.streams.n_home;
    let (mut begun, mut n_in_turn) = (vec![], 0);
    for (_, target) in queued {
        let transfer = &executor.transfers[&target];
        let waits_its_turn = transfer.waiters.first().is_some_and(|(id, asked)| {
            let attempt = &executor.attempts[id];
            let others = (0u32..).zip(&attempt.assignment.inputs).filter(|(i, _)| i != asked);
            let (task, attempt) = *id;
            others.into_iter().any(|(input, assigned)| {
                active.contains(&Target::Cache(assigned.object))
                    || active.contains(&Target::Private { task, attempt, input })
            })
        });
        if config.inputs_in_turn && waits_its_turn {
            n_in_turn += 1;
            continue;
        }
        let is_peer = |source: &&Source| matches!(source, Source::Peer(_));
        let has_peers = transfer.sources.iter().any(|source| is_peer(&source));
        let has_stream = n_streams < config.transfers_max as usize;
        let is_small = transfer.size_bytes <= config.small_bytes_max;
        let has_room = |source: &&Source| match source {
            Source::Peer(peer) if is_small => small_by_peer.get(peer).is_none_or(|small| !small.is_full),
            Source::Peer(peer) => {
                has_stream && n_by_peer.get(peer).copied().unwrap_or(0) < config.transfers_per_peer_max
            }
            Source::Home => has_stream && !has_peers && n_home < config.home_streams_max,
        };
        let Some(source) = transfer.sources.iter().find(has_room).copied() else { continue };
        match source {
            Source::Peer(peer) if is_small => {
                let small = small_by_peer.entry(peer).or_default();
                small.n_active += 1;
                small.is_full |= small.n_active >= max;
            }
            Source::Peer(peer) => *n_by_peer.entry(peer).or_default() += 1,
            Source::Home => n_home += 1,
        }
        n_streams += usize::from(!is_small || source == Source::Home);
        active.insert(target);
        begun.push((target, source));
    }
    (begun, n_in_turn)
}

/// A node, and whoever asks it for something by chance.
struct Chance {
    executor: Executor,
    rng: Rng,
    transfers_max: u32,
    small_per_peer_max: u32,
    n_tasks: u64,
    under_way: Vec<(Target, Source)>,
    running: Vec<AttemptId>,
    n_begun: usize,
    n_in_turn: usize,
}

impl Chance {
    fn new(seed: u64, inputs_in_turn: bool) -> Chance {
        let mut rng = Rng::new(seed);
        let cache =
            CacheConfig { budget_bytes: 10 + rng.below(60), eviction: "lru".into(), seed, groups: true };
        let config = ExecutorConfig {
            equipment: Default::default(),
            slots: 1 + rng.below(3) as u32,
            cache,
            transfers_max: 0,
            transfers_per_peer_max: 1 + rng.below(2) as u32,
            home_streams_max: 1 + rng.below(4) as u32,
            inputs_in_turn,
            small_bytes_max: [0, 4][rng.below(2) as usize],
            small_per_peer_max: 0,
            memory: Default::default(),
        };
        Chance {
            executor: Executor::new(config).unwrap(),
            small_per_peer_max: 1 + rng.below(4) as u32,
            transfers_max: 1 + rng.below(8) as u32,
            rng,
            n_tasks: 0,
            under_way: vec![],
            running: vec![],
            n_begun: 0,
            n_in_turn: 0,
        }
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    fn input(&mut self) -> AssignedInput {
        let object = self.rng.below(N_OBJECTS) as u32;
        // Some runs read other bytes of the same name.
        let version = u8::from(self.is(6));
        let known = Known {
            digest: Digest([version; 32]),
            size_bytes: 1 + u64::from(object) + u64::from(version),
            version: HomeVersion { size_bytes: 1, stamp: "".into() },
            marks: None,
        };
        let n_sources = self.rng.below(3);
        AssignedInput {
            object: ObjectId(object),
            known: Some(known),
            sources: (0..n_sources).map(|_| ExecutorId(self.rng.below(3) as u32)).collect(),
            check_home: false,
            direct: self.is(5),
            watched: false,
            stays: false,
            making: Default::default(),
        }
    }

    fn assignment(&mut self) -> Box<Assignment> {
        let task = TaskId(self.n_tasks);
        self.n_tasks += 1;
        let n_inputs = 1 + self.rng.below(6);
        Box::new(Assignment {
            needs: None,
            task,
            attempt: AttemptNo(1),
            run: RunId(1),
            cpus: 1,
            inputs: (0..n_inputs).map(|_| self.input()).collect(),
            outputs: vec![],
            staying: vec![],
            private_inputs: false,
            repeated: false,
            alone: self.is(20),
            why: Why::default(),
        })
    }

    fn event(&mut self) -> NodeEvent {
        let (task, attempt) = (TaskId(self.rng.below(self.n_tasks.max(1))), AttemptNo(1));
        match self.rng.below(12) {
            0..3 => NodeEvent::Assigned { assignment: self.assignment() },
            3 => NodeEvent::PrefetchRequested {
                batch: BatchId(1),
                inputs: vec![self.input(), self.input()],
                awaits: false,
            },
            4 => NodeEvent::PrefetchCancelled { objects: vec![self.input().object] },
            5 => NodeEvent::CancelRequested { task, attempt },
            6 => match self.is(2) {
                true => NodeEvent::RecallRequested { task, attempt },
                false => NodeEvent::DropRequested { objects: vec![self.input().object] },
            },
            7 if !self.running.is_empty() => {
                let at = self.rng.below(self.running.len() as u64) as usize;
                let (task, attempt) = self.running.swap_remove(at);
                let exit = Exit {
                    result: Ok(()),
                    started: Timestamp(0),
                    exited: Timestamp(1),
                    cpu_ns: 0,
                    rss_bytes_max: 0,
                    left: None,
                    found: vec![],
                    outputs: vec![],
                    inputs_modified: vec![],
                    inputs_damaged: vec![],
                    disk: None,
                };
                NodeEvent::ProgramEnded { task, attempt, exit }
            }
            8 => NodeEvent::HomeShared { streams: self.rng.below(5) as u32 },
            _ if !self.under_way.is_empty() => {
                let at = self.rng.below(self.under_way.len() as u64) as usize;
                let (target, source) = self.under_way.swap_remove(at);
                let transfer = &self.executor.transfers[&target];
                let known = transfer.expect.known.clone().expect("all inputs here are known");
                let kinds = [TransferErrorKind::Busy, TransferErrorKind::NotHeld, TransferErrorKind::NoSpace];
                let result = match self.rng.below(12) as usize {
                    kind @ 0..3 => Err(TransferError { kind: kinds[kind], message: "by chance".into() }),
                    _ => Ok(Fetched { digest: known.digest, size_bytes: known.size_bytes, version: None }),
                };
                NodeEvent::TransferEnded { target, source, result }
            }
            _ => NodeEvent::Ticked,
        }
    }

    /// Something happens, and what begins thereupon is what begins by definition.
    fn step(&mut self, now: Timestamp) {
        let (event, mut out) = (self.event(), vec![]);
        (self.executor.config.transfers_max, self.executor.config.small_per_peer_max) = (0, 0);
        self.executor.handle(now, event, &mut out);
        self.executor.config.transfers_max = self.transfers_max;
        self.executor.config.small_per_peer_max = self.small_per_peer_max;
        let is_alone =
            |id: AttemptId| matches!(self.executor.attempts[&id].state, State::Queued | State::Running);
        let (expected, n_in_turn) = match self.executor.alone.is_some_and(is_alone) {
            true => (vec![], 0),
            false => begun_by_definition(&self.executor),
        };
        let mut began = vec![];
        self.executor.begin_transfers(&mut began);
        let began: Vec<(Target, Source)> = began
            .into_iter()
            .map(|action| match action {
                NodeAction::Fetch { target, source, .. } => (target, source),
                other => panic!("{other:?} begins no transfer"),
            })
            .collect();
        assert_eq!(began, expected);
        self.executor.sanity_check();
        self.n_begun += began.len();
        self.n_in_turn += n_in_turn;
        self.under_way.extend(began);
        for action in out {
            if let NodeAction::Start { task, attempt, .. } = action {
                self.running.push((task, attempt));
            }
            if let NodeAction::Kill { task, attempt } = action {
                assert!(self.running.contains(&(task, attempt)), "only what runs is killed");
            }
        }
    }
}

#[test]
fn what_begins_is_what_begins_by_definition() {
    for inputs_in_turn in [false, true] {
        let (mut n_begun, mut n_in_turn) = (0, 0);
        for seed in 0..400 {
            let mut chance = Chance::new(seed, inputs_in_turn);
            for step in 0..300 {
                chance.step(Timestamp(step));
            }
            n_begun += chance.n_begun;
            n_in_turn += chance.n_in_turn;
        }
        assert!(n_begun > 10_000, "{n_begun} transfers began");
        assert_eq!(n_in_turn > 10_000, inputs_in_turn, "{n_in_turn} transfers waited for another input");
    }
}

#[test]
fn a_task_may_have_very_many_inputs_that_come_in_turn() {
    const N_INPUTS: u32 = 50_000;
    let cache = CacheConfig { budget_bytes: 1 << 30, eviction: "lru".into(), seed: 1, groups: true };
    let mut executor = Executor::new(ExecutorConfig {
        equipment: Default::default(),
        slots: 1,
        cache,
        transfers_max: 64,
        transfers_per_peer_max: 8,
        home_streams_max: 16,
        inputs_in_turn: true,
        small_bytes_max: 0,
        small_per_peer_max: 0,
        memory: Default::default(),
    })
    .unwrap();
    let version = HomeVersion { size_bytes: 1, stamp: "".into() };
    let known = Known { digest: Digest([0; 32]), size_bytes: 1, version, marks: None };
    let input = |object| AssignedInput {
        object: ObjectId(object),
        known: Some(known.clone()),
        sources: vec![],
        check_home: false,
        direct: false,
        watched: false,
        stays: false,
        making: Default::default(),
    };
    let assignment = Box::new(Assignment {
        task: TaskId(0),
        attempt: AttemptNo(1),
        run: RunId(1),
        cpus: 1,
        inputs: (0..N_INPUTS).map(input).collect(),
        outputs: vec![],
        staying: vec![],
        private_inputs: false,
        repeated: false,
        alone: false,
        needs: None,
        why: Why::default(),
    });
    let mut out = vec![];
    executor.handle(Timestamp(0), NodeEvent::Assigned { assignment }, &mut out);
    for object in 0..N_INPUTS {
        let fetches = |action: &NodeAction| match action {
            NodeAction::Fetch { target, .. } => Some(*target),
            _ => None,
        };
        let target = Target::Cache(ObjectId(object));
        assert!(out.iter().filter_map(fetches).eq([target]), "input {object} comes, and no other");
        out.clear();
        let result = Ok(Fetched { digest: Digest([0; 32]), size_bytes: 1, version: None });
        executor.handle(
            Timestamp(1),
            NodeEvent::TransferEnded { target, source: Source::Home, result },
            &mut out,
        );
    }
    assert!(matches!(out.last(), Some(NodeAction::Start { .. })));
}
