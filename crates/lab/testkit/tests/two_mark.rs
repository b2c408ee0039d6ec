//! 2Mark with exchange by the dispatcher and real executors' state machines, against the sequential algorithm of the test kit: each
//! request leaves the stores, and both kinds of marks, as one of the choices of figure 6 would.

use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::{
    Action, Event, Exit, Fetched, HomeAnswer, NodeAction, NodeEvent, Offer, Source, TransferError,
    TransferErrorKind,
};
use eyas_core::eviction::stores::EXCHANGES;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_terms::needs::Equipment;
use eyas_terms::rng::Rng;
use eyas_terms::{Digest, ExecutorId, HomeVersion, ObjectId, RunId, Timestamp};
use eyas_testkit::build::task;
use eyas_testkit::two_mark::{
    HOME, OBJECTS_MAX, Reading, Request, State, System, outcomes, sequence, text_of,
};
use std::collections::{BTreeMap, VecDeque};

const OBJECT_BYTES: u64 = 100;

/// Something that is on its way.
enum Word {
    ToNode(ExecutorId, NodeEvent),
    ToDispatcher(Event),
}

/// A dispatcher and executors of one slot. What one says arrives before anything later is said; transfers take no time.
struct Cluster {
    core: Dispatcher,
    nodes: BTreeMap<ExecutorId, Executor>,
    /// The objects by their letters.
    letters: BTreeMap<ObjectId, u8>,
    words: VecDeque<Word>,
    n_runs: u32,
    /// Objects that came from home, and from other stores, since the last look.
    from_home: u32,
    from_stores: u32,
    /// Objects that executors evicted although nobody had told them to.
    n_unasked: u32,
    now: Timestamp,
}

impl Cluster {
    /// A store holds as many objects as `system` says, and its reserve.
    fn new(system: System) -> Cluster {
        // It gives a task to a node that lacks its file, where only that node has what the task needs.
        let placement = eyas_core::placement::max_compute_util::NAME.into();
        let core = Dispatcher::new(DispatcherConfig { placement, ..DispatcherConfig::default() }).unwrap();
        let mut cluster = Cluster {
            core,
            nodes: BTreeMap::new(),
            letters: BTreeMap::new(),
            words: VecDeque::new(),
            n_runs: 0,
            from_home: 0,
            from_stores: 0,
            n_unasked: 0,
            now: Timestamp(1),
        };
        for number in 0..system.n_stores {
            let executor = ExecutorId(u32::from(number));
            let cache_bytes = (u64::from(system.store_objects) + 1) * OBJECT_BYTES;
            let cache =
                CacheConfig { budget_bytes: cache_bytes, eviction: EXCHANGES.into(), seed: 1, groups: true };
            let equipment = Equipment { gpus: 0, resources: [(store_name(number), 1)].into() };
            let config = ExecutorConfig {
                slots: 1,
                equipment: equipment.clone(),
                cache,
                memory: Default::default(),
                transfers_max: 4,
                transfers_per_peer_max: 4,
                home_streams_max: 4,
                inputs_in_turn: false,
                small_bytes_max: 0,
                small_per_peer_max: 0,
            };
            let node = Executor::new(config).unwrap();
            let offer = Offer {
                name: store_name(number),
                slots: 1,
                memory_bytes: 1 << 30,
                cache_bytes,
                equipment,
                exchanges: node.exchanges(),
                ..Offer::default()
            };
            cluster.nodes.insert(executor, node);
            cluster.tell(Event::ExecutorJoined { executor, offer });
        }
        cluster
    }

    fn tell(&mut self, event: Event) {
        self.words.push_back(Word::ToDispatcher(event));
        while let Some(word) = self.words.pop_front() {
            self.now = self.now.plus_ns(1_000_000);
            match word {
                Word::ToDispatcher(event) => self.hear(event),
                Word::ToNode(executor, event) => self.feed(executor, event),
            }
            self.core.sanity_check();
        }
    }

    fn hear(&mut self, event: Event) {
        let mut out = vec![];
        self.core.handle(self.now, event, &mut out);
        for action in out {
            let (to, event) = match action {
                Action::Assign { executor, assignment } => (executor, NodeEvent::Assigned { assignment }),
                Action::DropReplicas { executor, objects } => {
                    (executor, NodeEvent::DropRequested { objects })
                }
                Action::Prefetch { executor, batch, inputs, awaits } => {
                    (executor, NodeEvent::PrefetchRequested { batch, inputs, awaits })
                }
                Action::EndTask { task, by: Some((executor, attempt)), .. } => {
                    (executor, NodeEvent::EndRecorded { task, attempt })
                }
                _ => continue,
            };
            self.words.push_back(Word::ToNode(to, event));
        }
    }

    fn feed(&mut self, executor: ExecutorId, event: NodeEvent) {
        let is_told = matches!(event, NodeEvent::DropRequested { .. });
        let mut out = vec![];
        let node = self.nodes.get_mut(&executor).unwrap();
        node.handle(self.now, event, &mut out);
        node.sanity_check();
        for action in out {
            let event = match action {
                NodeAction::AskHome { object, .. } => {
                    let answer = HomeAnswer { version: version(object), in_place: false };
                    NodeEvent::HomeAnswered { object, result: Ok(answer) }
                }
                NodeAction::Fetch { target, object, source, .. } => {
                    let result = self.read(object, source);
                    NodeEvent::TransferEnded { target, source, result }
                }
                NodeAction::Start { task, attempt, .. } => {
                    let exit = Exit {
                        result: Ok(()),
                        started: self.now,
                        exited: self.now.plus_ns(1),
                        cpu_ns: 1,
                        rss_bytes_max: 1,
                        outputs: vec![],
                        inputs_modified: vec![],
                        inputs_damaged: vec![],
                        disk: None,
                        left: None,
                        found: vec![],
                    };
                    NodeEvent::ProgramEnded { task, attempt, exit }
                }
                NodeAction::Tell { message } => {
                    self.words.push_back(Word::ToDispatcher(message.heard_from(executor)));
                    continue;
                }
                NodeAction::Evict { .. } => {
                    self.n_unasked += u32::from(!is_told);
                    continue;
                }
                _ => continue,
            };
            self.words.push_back(Word::ToNode(executor, event));
        }
    }

    fn read(&mut self, object: ObjectId, source: Source) -> Result<Fetched, TransferError> {
        let fetched = Fetched {
            digest: Digest([object.0 as u8; 32]),
            size_bytes: OBJECT_BYTES,
            version: (source == Source::Home).then(|| version(object)),
        };
        match source {
            Source::Home => self.from_home += 1,
            Source::Peer(peer) => {
                if !self.nodes[&peer].cache().is_ready(object) {
                    let message = "it is not there".into();
                    return Err(TransferError { kind: TransferErrorKind::NotHeld, message });
                }
                self.from_stores += 1;
            }
        }
        Ok(fetched)
    }

    /// A run of one task, which reads one object at one store.
    fn request(&mut self, Request { object, store }: Request) {
        let run = RunId(self.n_runs);
        self.n_runs += 1;
        let letter = (b'a' + object) as char;
        let array = task(&format!("t{}", self.n_runs))
            .reads(&format!("file:///{letter}"))
            .needs(&store_name(store), 1);
        self.tell(Event::RunOpened { run, name: "r".into(), keep: false, into: None });
        self.tell(Event::ArrayAdded { run, array: array.array() });
        self.tell(Event::RunStarted { run });
        self.tell(Event::RunCommitted { run });
        for _ in 0..3 {
            self.now = self.now.plus_ns(1_000_000_000);
            self.tell(Event::Ticked);
        }
        assert!(self.core.work().find_run(run).unwrap().ended.is_some(), "run {} ends", run.0);
        let location = format!("file:///{letter}");
        let object_id = self.core.work().catalog().find(eyas_terms::location::CatalogLocation::of(&location));
        self.letters.insert(object_id.unwrap(), object);
    }

    /// What the dispatcher knows of the stores, as the test kit writes it; checks that it is what the executors have.
    fn state(&self) -> State {
        let mut state = State { at: [HOME; OBJECTS_MAX], local: 0, global: 0 };
        for (executor, node) in &self.nodes {
            let marks = self.core.marks(*executor);
            let there: Vec<ObjectId> = node.held().into_iter().map(|(object, _)| object).collect();
            assert_eq!(marks.iter().map(|(o, ..)| *o).collect::<Vec<_>>(), there, "of store {executor}");
            for (object, local, global) in marks {
                let object = self.letters[&object] as usize;
                assert_eq!(state.at[object], HOME, "object {object} is at one store");
                state.at[object] = executor.0 as u8;
                state.local |= u8::from(local) << object;
                state.global |= u8::from(global) << object;
            }
        }
        state
    }
}

fn store_name(number: u8) -> String {
    format!("store{number}")
}

fn version(object: ObjectId) -> HomeVersion {
    HomeVersion { size_bytes: OBJECT_BYTES, stamp: object.0.to_string().into() }
}

/// The marks of objects that are at no store mean nothing.
fn in_stores(mut state: State) -> State {
    for object in (0..OBJECTS_MAX).filter(|o| state.at[*o] == HOME) {
        state.global &= !(1 << object);
        state.local &= !(1 << object);
    }
    state
}

/// Each request one after the other; gives the state and what came from home and from stores in all.
fn follow(system: System, requests: &[Request]) -> (State, u32, u32) {
    let mut cluster = Cluster::new(system);
    let mut before = State { at: [HOME; OBJECTS_MAX], local: 0, global: 0 };
    let (mut from_home, mut from_stores) = (0, 0);
    for (n, request) in requests.iter().enumerate() {
        (cluster.from_home, cluster.from_stores) = (0, 0);
        cluster.request(*request);
        let after = cluster.state();
        let text = text_of(&requests[..=n]);
        assert_eq!(cluster.n_unasked, 0, "{text}: executors evict nothing by themselves");
        // An exchange moves two objects, and costs 1 in the paper.
        let cost = system.home_cost as u32 * cluster.from_home + u32::from(cluster.from_stores > 0);
        let allowed = outcomes(system, Reading::Ours, &before, *request);
        let is_allowed =
            |(state, paid): &(State, u16)| in_stores(*state) == after && u32::from(*paid) == cost;
        assert!(
            allowed.iter().any(is_allowed),
            "{text}: {before:?} became {after:?} for {cost}; allowed: {allowed:?}"
        );
        (from_home, from_stores) = (from_home + cluster.from_home, from_stores + cluster.from_stores);
        before = after;
    }
    (before, from_home, from_stores)
}

#[test]
fn the_branches_of_figure_6_as_in_the_test_kit() {
    let system = System { n_stores: 2, store_objects: 2, home_cost: 5 };
    // From home and from a store into space; an exchange; a new global phase and what follows it.
    follow(system, &sequence("aX bX aY"));
    follow(system, &sequence("aX bX cX"));
    let (_, from_home, from_stores) = follow(system, &sequence("aX bX cY dY cX"));
    assert_eq!((from_home, from_stores), (4, 2), "an exchange moves both objects and asks home for none");
    follow(system, &sequence("aX bX cY dY eX bX aX"));
}

#[test]
fn each_request_is_served_as_figure_6_allows() {
    let mut rng = Rng::new(36);
    for _ in 0..150 {
        let (n_stores, store_objects) = (1 + rng.below(4) as u8, 1 + rng.below(3) as u8);
        let system = System { n_stores, store_objects, home_cost: 5 };
        let n_objects = 1 + rng.below(OBJECTS_MAX as u64);
        let request = |rng: &mut Rng| Request {
            object: rng.below(n_objects) as u8,
            store: rng.below(u64::from(n_stores)) as u8,
        };
        let requests: Vec<Request> = (0..1 + rng.below(40)).map(|_| request(&mut rng)).collect();
        follow(system, &requests);
    }
}
