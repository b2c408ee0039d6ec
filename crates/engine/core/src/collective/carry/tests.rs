use super::*;
use crate::collective::plan;
use eyas_terms::location::CatalogLocation;
use eyas_terms::rng::Rng;
use proptest::prelude::*;

const SIZE: u64 = 1_000_000;

fn item(object: u32) -> Item {
    Item { object: ObjectId(object), size_bytes: SIZE, at_home: false }
}
fn ids(n: std::ops::Range<u32>) -> Vec<ExecutorId> {
    n.map(ExecutorId).collect()
}

/// A cluster in which an object arrives when the test says so.
struct World {
    catalog: Catalog,
    core: Collectives,
    now: Timestamp,
    /// What each executor was asked for last: by executor and object.
    asked: BTreeMap<Pair, (BatchId, Vec<Source>)>,
    /// In the order in which each batch is carried out.
    batches: BTreeMap<BatchId, (ExecutorId, VecDeque<ObjectId>)>,
    all_exist: Vec<(CollectiveId, Left)>,
    ended: Vec<CollectiveRecord>,
}

impl World {
    fn new(n_nodes: u32, config: CarryConfig) -> World {
        let mut catalog = Catalog::new();
        for e in ids(0..n_nodes) {
            catalog.executor_joined(e);
        }
        for o in 0..64 {
            catalog.intern(CatalogLocation::Home(&format!("o{o}")));
        }
        World {
            catalog,
            core: Collectives::new(config),
            now: Timestamp(0),
            asked: BTreeMap::new(),
            batches: BTreeMap::new(),
            all_exist: vec![],
            ended: vec![],
        }
    }

    fn take(&mut self, out: Vec<CollectiveAction>) {
        for action in out {
            match action {
                CollectiveAction::Prefetch { executor, batch, objects, sources, .. } => {
                    for object in &objects {
                        self.forget(executor, *object);
                        self.asked.insert((executor, *object), (batch, sources.clone()));
                    }
                    self.batches.insert(batch, (executor, objects.into()));
                }
                CollectiveAction::CancelPrefetch { executor, objects } => {
                    for object in objects {
                        self.forget(executor, object);
                    }
                }
                CollectiveAction::AllExist { collective, left } => self.all_exist.push((collective, left)),
                CollectiveAction::Ended { record } => self.ended.push(record),
            }
        }
        self.core.sanity_check(&self.catalog);
    }

    fn forget(&mut self, executor: ExecutorId, object: ObjectId) {
        if let Some((batch, _)) = self.asked.remove(&(executor, object))
            && let Some((_, objects)) = self.batches.get_mut(&batch)
        {
            objects.retain(|o| *o != object);
            if objects.is_empty() {
                self.batches.remove(&batch);
            }
        }
    }

    fn begin(&mut self, plan: &Plan) -> CollectiveId {
        let mut out = vec![];
        let id = self.core.begin(self.now, plan, None, &self.catalog, &mut out);
        self.take(out);
        id
    }

    fn tell(&mut self, event: CollectiveEvent) {
        let mut out = vec![];
        self.core.handle(self.now, event, &self.catalog, &mut out);
        self.take(out);
    }

    /// `object` is at `executor` now.
    fn arrive(&mut self, executor: u32, object: u32) {
        let (executor, object) = (ExecutorId(executor), ObjectId(object));
        self.forget(executor, object);
        if self.catalog.add_replica(executor, object) {
            self.tell(CollectiveEvent::ReplicaAdded { executor, object });
        }
    }

    fn lose(&mut self, executor: ExecutorId) {
        self.catalog.executor_left(executor);
        self.asked.retain(|(e, _), _| *e != executor);
        self.batches.retain(|_, (e, _)| *e != executor);
        self.tell(CollectiveEvent::ExecutorLost { executor });
    }

    fn tick(&mut self, ns: u64) {
        self.now = self.now.plus_ns(ns);
        self.tell(CollectiveEvent::Ticked);
    }

    /// Which executors were asked to get `object`, and from which source first.
    fn flow(&self, object: u32) -> Vec<(u32, Option<u32>)> {
        let of_it = self.asked.iter().filter(|((_, o), _)| o.0 == object);
        of_it
            .map(|((e, _), (_, sources))| match sources[0] {
                Source::Peer(peer) => (e.0, Some(peer.0)),
                Source::Home => (e.0, None),
            })
            .collect()
    }

    /// Whether what a batch waits for is there or on its way, at any source it was given.
    fn can_come(&self, executor: ExecutorId, object: ObjectId) -> bool {
        let (_, sources) = &self.asked[&(executor, object)];
        sources.iter().any(|s| match s {
            Source::Home => true,
            Source::Peer(p) => self.catalog.holds(*p, object),
        })
    }
}

/// The catalog has all replicas of a message before the collectives hear of the first one.
#[test]
fn who_holds_an_object_unheard_of_closes_no_circle() {
    let mut w = World::new(7, CarryConfig::default());
    w.arrive(0, 0);
    let plan = plan::multicast(&[item(0)], &ids(1..4), &ids(0..1), Way::Pipelined { arity: 1 }, |_| 0);
    w.begin(&plan);
    assert_eq!(w.flow(0), [(1, Some(0)), (2, Some(1)), (3, Some(2))]);
    w.catalog.add_replica(ExecutorId(2), ObjectId(0));
    let (batch, _) = w.asked[&(ExecutorId(1), ObjectId(0))].clone();
    let failed = CollectiveEvent::PrefetchFailed {
        executor: ExecutorId(1),
        batch,
        object: ObjectId(0),
        kind: TransferErrorKind::Corrupt,
    };
    w.tell(failed);
    assert_eq!(w.flow(0)[0], (1, Some(2)), "it comes from the new holder, which was to have it from there");
    // The search whether 3 gets the object from 6 now passes both.
    let plan = plan::multicast(&[item(0)], &ids(6..7), &ids(3..4), Way::Pipelined { arity: 1 }, |_| 0);
    w.begin(&plan);
    w.tell(CollectiveEvent::ReplicaAdded { executor: ExecutorId(2), object: ObjectId(0) });
    [1, 3, 6].into_iter().for_each(|e| w.arrive(e, 0));
    assert_eq!((w.core.n_live(), w.ended.len()), (0, 2));
}

#[test]
fn a_gather_says_when_all_its_files_exist_and_what_is_left_then() {
    let mut w = World::new(4, CarryConfig::default());
    w.arrive(1, 1);
    let items: Vec<Item> = (1..4).map(item).collect();
    let id = w.begin(&plan::gather(&items, ExecutorId(0), Way::AsyncGather));
    w.arrive(0, 1);
    w.now = Timestamp(5);
    w.arrive(2, 2);
    assert_eq!(w.all_exist, []);
    w.now = Timestamp(9);
    w.arrive(3, 3);
    let left = Left { n_objects: 2, bytes: 2 * SIZE, n_sources: 2, crowd: 1.0 };
    assert_eq!(w.all_exist, [(id, left)]);
    w.now = Timestamp(19);
    w.arrive(0, 2);
    w.arrive(0, 3);
    let record = &w.ended[0];
    assert_eq!((record.began, record.ready, record.measured_ns()), (Timestamp(0), Some(Timestamp(9)), 10));
}

#[test]
fn where_the_last_file_is_made_at_the_root_nothing_is_left() {
    let mut w = World::new(2, CarryConfig::default());
    w.arrive(1, 1);
    w.begin(&plan::gather(&[item(1), item(2)], ExecutorId(0), Way::AsyncArchives));
    w.arrive(0, 1);
    w.now = Timestamp(7);
    w.arrive(0, 2);
    assert_eq!((w.ended[0].ready, w.ended[0].measured_ns()), (Some(Timestamp(7)), 0));
    assert_eq!(w.all_exist, []);
}

#[test]
fn what_others_bring_to_the_same_node_is_told() {
    let mut w = World::new(4, CarryConfig::default());
    (1..4).for_each(|n| w.arrive(n, n));
    let gather = |n: u32, root: u32| plan::gather(&[item(n)], ExecutorId(root), Way::CollectiveGather);
    (1..4).for_each(|n| _ = w.begin(&gather(n, 0)));
    let crowds = |w: &World| w.all_exist.iter().map(|(_, left)| left.crowd).collect::<Vec<f64>>();
    assert_eq!(crowds(&w), [1.0, 2.0, 3.0]);
    (1..4).for_each(|n| w.arrive(0, n));
    w.arrive(1, 9);
    w.begin(&gather(9, 2));
    assert_eq!(crowds(&w)[3], 1.0);
}

#[test]
fn a_chain_streams_from_the_first_moment() {
    let mut w = World::new(5, CarryConfig::default());
    w.arrive(0, 0);
    let plan = plan::multicast(&[item(0)], &ids(1..5), &ids(0..1), Way::Pipelined { arity: 1 }, |_| 0);
    w.begin(&plan);
    assert_eq!(w.flow(0), [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
    for e in 1..5 {
        w.arrive(e, 0);
    }
    assert_eq!((w.ended[0].n_arrived, w.ended[0].n_moved, w.ended[0].arrived_bytes), (4, 0, 4 * SIZE));
    assert_eq!(w.core.n_live(), 0);
}

#[test]
fn small_files_go_down_a_tree_in_one_request_each() {
    let mut w = World::new(8, CarryConfig::default());
    let items: Vec<Item> = (0..3).map(item).collect();
    for o in 0..3 {
        w.arrive(0, o);
    }
    w.begin(&plan::multicast(&items, &ids(1..8), &ids(0..1), Way::Pipelined { arity: 2 }, |_| 0));
    let all: VecDeque<ObjectId> = (0..3).map(ObjectId).collect();
    let asked: Vec<_> = w.batches.values().cloned().collect();
    let mut expected: Vec<_> = (1..8).map(|e| (ExecutorId(e), all.clone())).collect();
    assert_eq!(asked.len(), 7);
    for each in asked {
        expected.retain(|e| *e != each);
    }
    assert_eq!(expected, []);
}

#[test]
fn what_is_streamed_keeps_to_one_batch_of_its_source_and_to_its_order() {
    let mut w = World::new(3, CarryConfig { batch_objects_max: 2, ..CarryConfig::default() });
    for o in 0..3 {
        w.arrive(0, o);
    }
    let chain = |items: &[u32], receivers: std::ops::Range<u32>, from: u32| {
        let items: Vec<Item> = items.iter().copied().map(item).collect();
        plan::multicast(&items, &ids(receivers), &ids(from..from + 1), Way::Pipelined { arity: 1 }, |_| 0)
    };
    // Node 1 gets 0 and 1 in one batch, 2 in another.
    w.begin(&chain(&[0, 1, 2], 1..2, 0));
    w.begin(&chain(&[1, 0, 2], 2..3, 1));
    let of_2: Vec<Vec<u32>> =
        w.batches.values().filter(|b| b.0.0 == 2).map(|b| b.1.iter().map(|o| o.0).collect()).collect();
    assert_eq!(of_2, [vec![1], vec![0], vec![2]]);
}

#[test]
fn a_binomial_tree_doubles() {
    let mut w = World::new(8, CarryConfig::default());
    w.arrive(0, 0);
    w.begin(&plan::multicast(&[item(0)], &ids(1..8), &ids(0..1), Way::Binomial, |_| 0));
    assert_eq!(w.flow(0), [(1, Some(0))]);
    w.arrive(1, 0);
    assert_eq!(w.flow(0), [(2, Some(0)), (3, Some(1))]);
    w.arrive(2, 0);
    w.arrive(3, 0);
    assert_eq!(w.flow(0), [(4, Some(0)), (5, Some(1)), (6, Some(2)), (7, Some(3))]);
}

#[test]
fn the_children_of_a_lost_node_get_its_parent() {
    let mut w = World::new(6, CarryConfig::default());
    w.arrive(0, 0);
    let chain = Way::Pipelined { arity: 1 };
    w.begin(&plan::multicast(&[item(0)], &ids(1..6), &ids(0..1), chain, |_| 0));
    w.lose(ExecutorId(2));
    assert_eq!(w.flow(0), [(1, Some(0)), (3, Some(1)), (4, Some(3)), (5, Some(4))]);
    w.arrive(1, 0);
    w.lose(ExecutorId(0));
    for e in [3, 4, 5] {
        w.arrive(e, 0);
    }
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived), (5, 4));
    assert!(w.ended[0].n_moved >= 1);
}

#[test]
fn below_a_slow_node_only_its_child_moves_along() {
    let mut w = World::new(6, CarryConfig::default());
    w.arrive(0, 0);
    let chain = Way::Pipelined { arity: 1 };
    w.begin(&plan::multicast(&[item(0)], &ids(1..6), &ids(0..1), chain, |_| 0));
    w.arrive(1, 0);
    // 2 hangs; so 3 to 5 are late too.
    w.tick(10_000_000_000);
    let flow = w.flow(0);
    // 1 might have been at fault, so 2 asks 0; 3 asks a holder; 4 and 5 get their objects through 3.
    assert_eq!(flow, [(2, Some(0)), (3, Some(1)), (4, Some(3)), (5, Some(4))]);
    for e in [3, 4, 5, 2] {
        w.arrive(e, 0);
    }
    assert_eq!(w.ended[0].n_arrived, 5);
}

#[test]
fn a_collective_gather_waits_and_asks_each_source_once() {
    let mut w = World::new(4, CarryConfig::default());
    // So small that dividing them among more requests would not pay.
    let items: Vec<_> = (0..30).map(|o| Item { size_bytes: 1_000, ..item(o) }).collect();
    w.begin(&plan::gather(&items, ExecutorId(0), Way::CollectiveGather));
    for o in 0..29 {
        w.arrive(1 + o % 3, o);
        assert!(w.batches.is_empty());
    }
    w.arrive(3, 29);
    let sizes: Vec<usize> = w.batches.values().map(|b| b.1.len()).collect();
    assert_eq!(sizes, [10, 10, 10]);
}

#[test]
fn an_asynchronous_gather_asks_when_a_file_appears() {
    let config = CarryConfig { in_max: 1, ..CarryConfig::default() };
    for (way, expect) in [(Way::AsyncGather, 1), (Way::AsyncArchives, 4)] {
        let mut w = World::new(4, config.clone());
        w.begin(&plan::gather(&(0..5).map(item).collect::<Vec<_>>(), ExecutorId(0), way));
        w.arrive(1, 0);
        assert_eq!(w.flow(0), [(0, Some(1))]);
        // The stream is taken: what appears meanwhile shares the next request, or does not.
        for o in 1..5 {
            w.arrive(2, o);
        }
        w.arrive(0, 0);
        assert_eq!(w.batches.values().map(|b| b.1.len()).collect::<Vec<_>>(), [expect], "{way}");
    }
}

/// A gather of an object at each of nodes 1 to 6 to node 0 over a tree of arity 2, in which 1 and 2 are next to it.
fn gathered_along_a_tree() -> World {
    let mut w = World::new(7, CarryConfig::default());
    let items: Vec<Item> = (1..7).map(item).collect();
    w.begin(&plan::gather(&items, ExecutorId(0), Way::ArchiveTree { arity: 2 }));
    for o in 1..6 {
        w.arrive(o, o);
        assert!(w.batches.is_empty(), "the last one is not there yet");
    }
    w.arrive(6, 6);
    w
}

#[test]
fn a_gather_along_a_tree_asks_each_node_for_all_behind_it() {
    let mut w = gathered_along_a_tree();
    let asked = |w: &World| -> Vec<(u32, Vec<u32>)> {
        w.batches.values().map(|(e, objects)| (e.0, objects.iter().map(|o| o.0).collect())).collect()
    };
    assert_eq!(
        asked(&w),
        [(2, vec![5]), (2, vec![6]), (1, vec![3]), (1, vec![4]), (0, vec![1, 3, 4]), (0, vec![2, 5, 6])]
    );
    for (e, o) in [(1, 3), (1, 4), (2, 5), (2, 6)] {
        w.arrive(e, o);
    }
    assert!(w.ended.is_empty());
    (1..7).for_each(|o| w.arrive(0, o));
    // What nodes passed on counts nowhere.
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived, w.ended[0].n_receivers), (6, 6, 1));
    assert_eq!(w.ended[0].arrived_bytes, 6 * SIZE);
    assert!(w.core.wants.is_empty());
}

#[test]
fn in_a_deep_tree_each_node_asks_the_nodes_below_it_only() {
    // So small that dividing them among more requests would not pay.
    let small = |o| Item { size_bytes: 1_000, ..item(o) };
    for up in [true, false] {
        let mut w = World::new(31, CarryConfig::default());
        let tree = Way::ArchiveTree { arity: 2 };
        (1..31).for_each(|o| w.arrive(if up { o } else { 0 }, o));
        let items: Vec<Item> = (1..31).map(small).collect();
        let needs: Vec<(ExecutorId, Vec<Item>)> = (1..31).map(|e| (ExecutorId(e), vec![small(e)])).collect();
        w.begin(&if up { plan::gather(&items, ExecutorId(0), tree) } else { plan::scatter(&needs, tree) });
        assert_eq!(w.batches.len(), 30, "one request over each edge");
        for object in 1..31 {
            for (executor, source) in w.flow(object) {
                let source = source.expect("nothing is at home");
                let (above, below) = if up { (executor, source) } else { (source, executor) };
                assert_eq!(above, (below - 1) / 2);
            }
        }
    }
}

#[test]
fn behind_a_lost_node_of_a_tree_files_go_straight() {
    let mut w = gathered_along_a_tree();
    w.lose(ExecutorId(1));
    assert_eq!((w.flow(3), w.flow(4)), (vec![(0, Some(3))], vec![(0, Some(4))]));
    assert_eq!(w.flow(5), [(0, Some(2)), (2, Some(5))]);
    // A node without room passes nothing on, and its child is asked in its place.
    let (batch, _) = w.asked[&(ExecutorId(2), ObjectId(5))].clone();
    w.forget(ExecutorId(2), ObjectId(5));
    let kind = TransferErrorKind::NoSpace;
    w.tell(CollectiveEvent::PrefetchFailed { executor: ExecutorId(2), batch, object: ObjectId(5), kind });
    assert_eq!(w.flow(5), [(0, Some(5))]);
    (2..7).for_each(|o| w.arrive(0, o));
    assert_eq!(w.ended.len(), 0, "what only the lost node had may be made again");
    w.tell(CollectiveEvent::ObjectGone { object: ObjectId(1) });
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived), (6, 5));
    assert!(w.asked.is_empty() && w.core.wants.is_empty(), "the rest of the tree is cancelled");
}

#[test]
fn a_scatter_along_a_tree_sends_each_archive_once() {
    let mut w = World::new(7, CarryConfig::default());
    (1..7).for_each(|o| w.arrive(0, o));
    let needs: Vec<(ExecutorId, Vec<Item>)> = (1..7).map(|e| (ExecutorId(e), vec![item(e)])).collect();
    w.begin(&plan::scatter(&needs, Way::ArchiveTree { arity: 2 }));
    let asked: Vec<(u32, Vec<u32>)> =
        w.batches.values().map(|(e, objects)| (e.0, objects.iter().map(|o| o.0).collect())).collect();
    assert_eq!(
        asked,
        [(1, vec![1, 3, 4]), (2, vec![2, 5, 6]), (3, vec![3]), (4, vec![4]), (5, vec![5]), (6, vec![6])]
    );
    for (e, o) in [(1, 1), (1, 3), (1, 4), (2, 2), (2, 5), (2, 6), (3, 3), (4, 4), (5, 5), (6, 6)] {
        w.arrive(e, o);
    }
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived, w.ended[0].n_receivers), (6, 6, 6));
}

#[test]
fn a_node_that_is_lost_takes_the_last_want_and_its_relays_along() {
    let mut w = World::new(7, CarryConfig::default());
    (1..7).for_each(|o| w.arrive(0, o));
    let needs: Vec<(ExecutorId, Vec<Item>)> = (1..7).map(|e| (ExecutorId(e), vec![item(e)])).collect();
    w.begin(&plan::scatter(&needs, Way::ArchiveTree { arity: 2 }));
    // All but node 1 have theirs, and 1 is still to pass on what 3 and 4 have from elsewhere.
    (2..7).for_each(|e| w.arrive(e, e));
    w.lose(ExecutorId(1));
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived), (6, 5));
    assert!(w.core.wants.is_empty() && w.core.n_live() == 0);
}

#[test]
fn a_file_that_will_not_exist_holds_nobody_back() {
    let mut w = World::new(3, CarryConfig::default());
    w.begin(&plan::gather(&[item(0), item(1)], ExecutorId(0), Way::CollectiveGather));
    w.arrive(1, 0);
    w.tell(CollectiveEvent::ObjectGone { object: ObjectId(1) });
    assert_eq!(w.flow(0), [(0, Some(1))]);
    w.arrive(0, 0);
    assert_eq!((w.ended[0].n_wanted, w.ended[0].n_arrived), (2, 1));
}

#[test]
fn a_gather_does_not_wait_for_a_file_that_it_has_given_up() {
    let mut w = World::new(4, CarryConfig::default());
    w.arrive(1, 0);
    w.arrive(2, 1);
    // Object 1 is asked for by another collective already when the gather that has to wait for object 2 begins.
    w.begin(&plan::gather(&[item(1)], ExecutorId(0), Way::AsyncGather));
    w.catalog.drop_replica(ExecutorId(2), ObjectId(1));
    w.begin(&plan::gather(&[item(0), item(1)], ExecutorId(0), Way::CollectiveGather));
    assert_eq!(w.flow(0), []);
    let (executor, object, kind) = (ExecutorId(0), ObjectId(1), TransferErrorKind::NoSpace);
    let batch = w.asked[&(executor, object)].0;
    w.forget(executor, object);
    w.tell(CollectiveEvent::PrefetchFailed { executor, batch, object, kind });
    assert_eq!(w.flow(0), [(0, Some(1))]);
    w.arrive(0, 0);
    assert_eq!(w.core.n_live(), 0);
}

#[test]
fn who_has_no_room_is_left_out_and_its_children_are_not() {
    let mut w = World::new(4, CarryConfig::default());
    w.arrive(0, 0);
    let chain = Way::Pipelined { arity: 1 };
    w.begin(&plan::multicast(&[item(0)], &ids(1..4), &ids(0..1), chain, |_| 0));
    let (batch, _) = w.asked[&(ExecutorId(1), ObjectId(0))].clone();
    w.forget(ExecutorId(1), ObjectId(0));
    let kind = TransferErrorKind::NoSpace;
    w.tell(CollectiveEvent::PrefetchFailed { executor: ExecutorId(1), batch, object: ObjectId(0), kind });
    assert_eq!(w.flow(0), [(2, Some(0)), (3, Some(2))]);
}

#[test]
fn overlapping_collectives_fetch_once_and_both_end() {
    let mut w = World::new(4, CarryConfig::default());
    w.arrive(0, 0);
    let chain = Way::Pipelined { arity: 1 };
    w.begin(&plan::multicast(&[item(0)], &ids(1..3), &ids(0..1), chain, |_| 0));
    let second = w.begin(&plan::multicast(&[item(0)], &ids(1..4), &ids(0..1), chain, |_| 0));
    w.arrive(1, 0);
    w.arrive(2, 0);
    assert_eq!(w.ended.len(), 1);
    w.tell(CollectiveEvent::Abandoned { collective: second });
    assert!(w.asked.is_empty() && w.core.n_live() == 0);
    assert_eq!((w.ended[1].n_arrived, w.ended[1].n_wanted), (2, 3));
}

#[test]
fn home_is_read_once_for_a_multicast() {
    let at_home = Item { at_home: true, ..item(0) };
    for way in [Way::Binomial, Way::PlainFetches] {
        let mut w = World::new(4, CarryConfig::default());
        w.begin(&plan::multicast(&[at_home], &ids(0..4), &[], way, |_| 0));
        assert_eq!(w.flow(0), [(0, None)]);
        w.arrive(0, 0);
        assert_eq!(w.flow(0)[0], (1, Some(0)));
    }
}

/// A collective over some nodes and objects, however senseless.
fn random_plan(rng: &mut Rng, n_nodes: u64, n_objects: u64) -> Plan {
    let items: Vec<Item> = (0..1 + rng.below(5))
        .map(|_| Item { at_home: rng.below(8) == 0, ..item(rng.below(n_objects) as u32) })
        .collect();
    let pick = |rng: &mut Rng, n: u64| -> Vec<ExecutorId> {
        (0..n).map(|_| ExecutorId(rng.below(n_nodes) as u32)).collect()
    };
    let n = 1 + rng.below(n_nodes);
    let nodes = pick(rng, n);
    let tree = Way::ArchiveTree { arity: 1 + rng.below(3) as u32 };
    match rng.below(8) {
        6 => plan::gather(&items, nodes[0], tree),
        7 => plan::scatter(&nodes.iter().map(|e| (*e, items.clone())).collect::<Vec<_>>(), tree),
        0 => plan::gather(&items, nodes[0], Way::CollectiveGather),
        1 => plan::gather(&items, nodes[0], Way::AsyncGather),
        2 => plan::scatter(&nodes.iter().map(|e| (*e, items.clone())).collect::<Vec<_>>(), Way::Archives),
        3 => plan::replicate(&items, &nodes),
        4 => plan::multicast(&items, &nodes, &pick(rng, 1), Way::Binomial, |e| u64::from(e.0 % 3)),
        _ => {
            let way = Way::Pipelined { arity: 1 + rng.below(3) as u32 };
            // Holders that hold nothing, too: parents that never come.
            let holders = pick(rng, 1);
            let salt = rng.below(97) as u32;
            plan::multicast(&items, &nodes, &holders, way, |e| u64::from(e.0 * 31 % (salt + 1)))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    /// Deadlock freedom (§V-D): whatever overlaps, and whatever is lost meanwhile, everything ends.
    #[test]
    fn random_overlapping_collectives_end(seed in any::<u64>(), n_nodes in 2u64..9, tight in any::<bool>()) {
        let mut rng = Rng::new(seed);
        let n_objects = 12;
        let config = CarryConfig {
            in_max: if tight { 1 } else { 2 },
            out_max: if tight { 1 } else { 3 },
            batch_objects_max: 3,
            ..CarryConfig::default()
        };
        let mut w = World::new(n_nodes as u32, config);
        let mut lost = BTreeSet::new();
        let mut n_begun = 0;
        for step in 0..400 {
            let executor = ExecutorId(rng.below(n_nodes) as u32);
            let object = ObjectId(rng.below(n_objects) as u32);
            match rng.below(if step < 300 { 20 } else { 8 }) {
                0..3 => {
                    // Some batch gets its next object, if anybody has that.
                    let at = rng.below(w.batches.len().max(1) as u64) as usize;
                    let next = w.batches.values().nth(at).map(|b| (b.0, b.1[0]));
                    if let Some((e, o)) = next.filter(|(e, o)| w.can_come(*e, *o)) {
                        w.arrive(e.0, o.0);
                    }
                }
                3..5 => w.tick(rng.below(4_000_000_000)),
                5 if !lost.contains(&executor) => w.arrive(executor.0, object.0),
                6 => { w.catalog.drop_replica(executor, object); }
                7..12 if n_begun < 25 => {
                    n_begun += 1;
                    let plan = random_plan(&mut rng, n_nodes, n_objects);
                    w.begin(&plan);
                }
                12 if lost.len() + 1 < n_nodes as usize && rng.below(4) == 0 && lost.insert(executor) => {
                    w.lose(executor);
                }
                13 if lost.remove(&executor) => { w.catalog.executor_joined(executor); }
                14 => {
                    let pair = w.asked.keys().nth(rng.below(w.asked.len().max(1) as u64) as usize).copied();
                    if let Some(pair) = pair {
                        use TransferErrorKind::*;
                        let kind = [NotHeld, Busy, Corrupt, NoSpace, Temporary][rng.below(5) as usize];
                        let batch = w.asked[&pair].0;
                        w.forget(pair.0, pair.1);
                        w.tell(CollectiveEvent::PrefetchFailed { executor: pair.0, batch, object: pair.1, kind });
                    }
                }
                15 => w.tell(CollectiveEvent::ObjectGone { object }),
                16 if n_begun > 0 => {
                    let collective = CollectiveId(rng.below(n_begun) as u32);
                    w.tell(CollectiveEvent::Abandoned { collective });
                }
                _ => {}
            }
        }
        // The weather is over: what exists nowhere is made, or is said to be gone.
        for o in 0..n_objects as u32 {
            if w.catalog.n_holders(ObjectId(o)) == 0 {
                let up = ids(0..n_nodes as u32).into_iter().find(|e| !lost.contains(e));
                match up.filter(|_| rng.below(2) == 0) {
                    Some(e) => w.arrive(e.0, o),
                    None => w.tell(CollectiveEvent::ObjectGone { object: ObjectId(o) }),
                }
            }
        }
        let mut n_idle = 0;
        while w.core.n_live() > 0 {
            let ready: Vec<_> = w.batches.values().map(|b| (b.0, b.1[0])).filter(|(e, o)| w.can_come(*e, *o)).collect();
            if let Some((e, o)) = ready.first() {
                w.arrive(e.0, o.0);
                n_idle = 0;
            } else {
                // Executors say at last that nobody has it.
                let stuck = w.asked.iter().find(|((_, o), (_, sources))| {
                    !sources.iter().any(|s| matches!(s, Source::Peer(p) if w.asked.contains_key(&(*p, *o)) || w.catalog.holds(*p, *o)))
                });
                if let Some((pair, batch)) = stuck.map(|(pair, (batch, _))| (*pair, *batch)) {
                    let kind = TransferErrorKind::NotHeld;
                    w.forget(pair.0, pair.1);
                    w.tell(CollectiveEvent::PrefetchFailed { executor: pair.0, batch, object: pair.1, kind });
                }
                w.tick(1_000_000_000);
                n_idle += 1;
                prop_assert!(n_idle < 100, "seed {seed}: nothing moves: {:?}", w.asked);
            }
        }
        prop_assert_eq!(w.ended.len() as u64, n_begun);
        prop_assert!(w.asked.is_empty() && w.core.wants.is_empty() && w.core.batches.is_empty());
        prop_assert!(w.core.wanting.is_empty() && w.core.queues.is_empty(), "{:?}", w.core.queues);
    }
}
