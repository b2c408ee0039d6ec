//! Makes plans from the nodes that hold objects and the nodes that need them.
//!
//! In: objects with sizes, receivers, holders, and how busy nodes are. Out: a [`Plan`], which
//! [`super::carry`] carries out, and the nodes that get replicas. All are pure functions; ties end in an id.

use super::{CollectiveKind, Way};
use eyas_terms::{ExecutorId, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One object of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Item {
    pub object: ObjectId,
    /// The expected size, if the object does not exist yet.
    pub size_bytes: u64,
    /// The object can also be had from outside, which `Source::Home` stands for: from home, or from executors
    /// of other dispatchers.
    pub at_home: bool,
}

/// One receiver's need of one object.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Want {
    pub executor: ExecutorId,
    pub item: Item,
    /// The node that the receiver gets the object from, as long as that works. `None`: the least busy holder.
    pub parent: Option<ExecutorId>,
}

/// Which objects are to be brought to which nodes, and how.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Plan {
    pub kind: CollectiveKind,
    pub way: Way,
    /// In the order in which they should begin.
    pub wants: Vec<Want>,
}

/// A tree for each holder, over which its share of the receivers gets `items`.
///
/// Position `j` of a pipelined tree is below position `j/arity − 1`; position `p` (from 1) of a binomial tree
/// is below `p` without its highest bit, so that round `r` doubles the holders. Busy nodes come late, near
/// the leaves.
///
/// * `holders`: nodes that hold all the items; if there is none, the first receiver of the only tree reads
///   home.
/// * `load`: a larger value means a busier node; in any unit.
pub fn multicast(
    items: &[Item],
    receivers: &[ExecutorId],
    holders: &[ExecutorId],
    way: Way,
    load: impl Fn(ExecutorId) -> u64,
) -> Plan {
    let by_load = |list: &[ExecutorId]| {
        let mut list: Vec<ExecutorId> = list.to_vec();
        list.sort_by_key(|e| (load(*e), *e));
        list.dedup();
        list
    };
    let mut receivers = by_load(receivers);
    receivers.retain(|r| !holders.contains(r));
    let mut roots: Vec<Option<ExecutorId>> = by_load(holders).into_iter().map(Some).collect();
    roots.truncate(receivers.len());
    if roots.is_empty() {
        roots.push(None);
    }
    let mut wants = Vec::with_capacity(receivers.len() * items.len());
    for (i, &executor) in receivers.iter().enumerate() {
        // Receivers are dealt out to the trees in turn, so tree `t` has receivers t, t + n, t + 2n …
        let (tree, j) = (i % roots.len(), i / roots.len());
        let at = |position: usize| Some(receivers[position * roots.len() + tree]);
        let parent = match way {
            Way::Pipelined { arity } => (j / arity.max(1) as usize).checked_sub(1).map_or(roots[tree], at),
            Way::Binomial => {
                let p = j + 1;
                (p - (1 << p.ilog2())).checked_sub(1).map_or(roots[tree], at)
            }
            _ => roots[tree],
        };
        wants.extend(items.iter().map(|&item| Want { executor, item, parent }));
    }
    Plan { kind: CollectiveKind::Multicast, way, wants }
}

/// As [`multicast`], where nodes are in sites with slow links between them: `items` come into each site once.
///
/// The receivers of a site hang below its own holders. In a site without a holder the least busy receiver, its *gate*, gets the items
/// from a holder elsewhere, and the others hang below the gate. Gates come first, as their way is the longest; they are dealt out to
/// the holders in turn.
///
/// * `site`: the site of a node. Where all are in one site, the plan is that of [`multicast`].
pub fn multicast_by_site(
    items: &[Item],
    receivers: &[ExecutorId],
    holders: &[ExecutorId],
    way: Way,
    load: impl Fn(ExecutorId) -> u64,
    site: impl Fn(ExecutorId) -> Option<u32>,
) -> Plan {
    let mut by_site: BTreeMap<Option<u32>, Vec<ExecutorId>> = BTreeMap::new();
    for &receiver in receivers.iter().filter(|r| !holders.contains(r)) {
        by_site.entry(site(receiver)).or_default().push(receiver);
    }
    let mut sources: Vec<ExecutorId> = holders.to_vec();
    sources.sort_by_key(|e| (load(*e), *e));
    let (mut gates, mut rest, mut n_gates) = (vec![], vec![], 0);
    for (of, receivers) in by_site {
        let own: Vec<ExecutorId> = holders.iter().copied().filter(|holder| site(*holder) == of).collect();
        if !own.is_empty() {
            rest.extend(multicast(items, &receivers, &own, way, &load).wants);
            continue;
        }
        let gate = receivers.iter().copied().min_by_key(|e| (load(*e), *e)).expect("the site has a receiver");
        let parent = (!sources.is_empty()).then(|| sources[n_gates % sources.len()]);
        n_gates += 1;
        gates.extend(items.iter().map(|&item| Want { executor: gate, item, parent }));
        rest.extend(multicast(items, &receivers, &[gate], way, &load).wants);
    }
    Plan { kind: CollectiveKind::Multicast, way, wants: gates.into_iter().chain(rest).collect() }
}

/// Brings `items` to one node.
pub fn gather(items: &[Item], root: ExecutorId, way: Way) -> Plan {
    let wants = items.iter().map(|&item| Want { executor: root, item, parent: None }).collect();
    Plan { kind: CollectiveKind::Gather, way, wants }
}

/// Brings to each receiver what it needs.
pub fn scatter(needs: &[(ExecutorId, Vec<Item>)], way: Way) -> Plan {
    let wants = needs
        .iter()
        .flat_map(|(executor, items)| {
            items.iter().map(|&item| Want { executor: *executor, item, parent: None })
        })
        .collect();
    Plan { kind: CollectiveKind::Scatter, way, wants }
}

/// The wants of a tree of `arity` below `root`, over which `legs` go: each item from the node beside it to the root
/// (`up`), or from the root to that node. They are in the order in which they should begin: what is nearer to the
/// holders comes first.
///
/// The nodes with the most bytes are next to the root, so that these move the fewest times.
pub fn archive_tree(legs: &[(ExecutorId, Item)], root: ExecutorId, arity: u32, up: bool) -> Vec<Want> {
    let mut bytes: BTreeMap<ExecutorId, u64> = BTreeMap::new();
    for (node, item) in legs {
        *bytes.entry(*node).or_default() += item.size_bytes;
    }
    let mut nodes: Vec<ExecutorId> = bytes.keys().copied().collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(bytes[node]), *node));
    let place: BTreeMap<ExecutorId, usize> = nodes.iter().enumerate().map(|(j, node)| (*node, j)).collect();
    let above = |j: usize| (j / arity.max(1) as usize).checked_sub(1);
    // Each want with the place of the lower of its two nodes: places grow with the distance from the root.
    let mut wants: Vec<(usize, Want)> = vec![];
    for (node, item) in legs {
        let mut at = Some(place[node]);
        while let Some(j) = at {
            at = above(j);
            let (below, above) = (nodes[j], at.map_or(root, |at| nodes[at]));
            let (executor, parent) = if up { (above, below) } else { (below, above) };
            wants.push((j, Want { executor, item: *item, parent: Some(parent) }));
        }
    }
    wants.sort_by_key(|(j, _)| if up { usize::MAX - j } else { *j });
    wants.into_iter().map(|(_, want)| want).collect()
}

/// Brings copies of `items` to `targets`.
pub fn replicate(items: &[Item], targets: &[ExecutorId]) -> Plan {
    let wants = targets
        .iter()
        .flat_map(|&executor| items.iter().map(move |&item| Want { executor, item, parent: None }))
        .collect();
    Plan { kind: CollectiveKind::Replicate, way: Way::Binomial, wants }
}

/// How many replicas a file (or group) should have: its share of what its stage reads, of all nodes (§V-F.2), at least
/// one and at most one per node that could read it.
///
/// * `share`: in [0, 1], see [`crate::pattern::Consumption::share`].
/// * `n_readers`: tasks that read the file; further copies are of no use, even if there are more nodes than
///   tasks (§V-F.4).
pub fn n_replicas(share: f64, n_readers: u32, n_nodes: usize) -> usize {
    let proportional = (share * n_nodes as f64).round() as usize;
    proportional.clamp(1, n_nodes.min(n_readers as usize).max(1))
}

/// Chooses where `n` further replicas go: to the nodes with the fewest inputs of the same stage (§V-F.3),
/// counting these replicas as they are given out.
///
/// * `n_inputs`: for each node that may hold the file, the number of the stage's input files that it has.
/// * `holders`: nodes that already have the file.
pub fn place_replicas(
    n: usize,
    n_inputs: &mut BTreeMap<ExecutorId, u32>,
    holders: &[ExecutorId],
) -> Vec<ExecutorId> {
    let mut free: Vec<(u32, ExecutorId)> =
        n_inputs.iter().filter(|(e, _)| !holders.contains(e)).map(|(e, n)| (*n, *e)).collect();
    free.sort_unstable();
    free.truncate(n);
    let targets: Vec<ExecutorId> = free.into_iter().map(|(_, e)| e).collect();
    for target in &targets {
        *n_inputs.get_mut(target).expect("it was taken from there") += 1;
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(n: std::ops::Range<u32>) -> Vec<ExecutorId> {
        n.map(ExecutorId).collect()
    }
    const ITEM: Item = Item { object: ObjectId(0), size_bytes: 100, at_home: false };

    fn parents(way: Way, n_receivers: u32, n_holders: u32) -> Vec<Option<u32>> {
        let (receivers, holders) = (ids(1..n_receivers + 1), ids(100..100 + n_holders));
        let plan = multicast(&[ITEM], &receivers, &holders, way, |_| 0);
        plan.wants.iter().map(|w| w.parent.map(|p| p.0)).collect()
    }

    #[test]
    fn trees_have_the_shape_that_was_asked_for() {
        let chain = Way::Pipelined { arity: 1 };
        assert_eq!(parents(chain, 4, 1), [100, 1, 2, 3].map(Some));
        assert_eq!(parents(chain, 4, 2), [100, 101, 1, 2].map(Some));
        assert_eq!(parents(Way::Pipelined { arity: 2 }, 6, 1), [100, 100, 1, 1, 2, 2].map(Some));
        assert_eq!(parents(Way::Binomial, 7, 1), [100, 100, 1, 100, 1, 2, 3].map(Some));
        assert_eq!(parents(Way::PlainFetches, 3, 1), [100, 100, 100].map(Some));
        assert_eq!(parents(chain, 3, 0), [None, Some(1), Some(2)]);
        assert_eq!(parents(chain, 1, 3), [Some(100)]);
    }

    #[test]
    fn the_busy_are_near_the_leaves_and_holders_receive_nothing() {
        let way = Way::Pipelined { arity: 1 };
        let plan = multicast(&[ITEM], &ids(1..5), &ids(4..5), way, |e| u64::from(e.0 == 1));
        let order: Vec<_> = plan.wants.iter().map(|w| w.executor.0).collect();
        assert_eq!(order, [2, 3, 1]);
    }

    #[test]
    fn replicas_follow_consumption_as_in_the_papers_example() {
        // Table V: 10 of 1,000 tasks read file1, 200 storage servers: two replicas.
        assert_eq!(n_replicas(0.01, 10, 200), 2);
        assert_eq!(n_replicas(0.0, 1, 200), 1);
        assert_eq!(n_replicas(1.0, 1_000, 200), 200);
        assert_eq!(n_replicas(1.0, 3, 200), 3);
        let mut n_inputs: BTreeMap<_, _> = ids(0..4).into_iter().zip([3, 0, 1, 0]).collect();
        assert_eq!(place_replicas(2, &mut n_inputs, &ids(1..2)), [ExecutorId(3), ExecutorId(2)]);
        assert_eq!(n_inputs[&ExecutorId(2)], 2);
        assert_eq!(place_replicas(9, &mut n_inputs, &[]).len(), 4);
    }

    proptest! {
        #[test]
        fn items_come_into_each_site_once(
            receivers in prop::collection::btree_set(0u32..60, 1..40), holders in prop::collection::btree_set(0u32..60, 0..6),
            n_sites in 1u32..5, arity in 1u32..4, binomial in any::<bool>(),
        ) {
            let way = if binomial { Way::Binomial } else { Way::Pipelined { arity } };
            let of = |ids: &std::collections::BTreeSet<u32>| -> Vec<ExecutorId> { ids.iter().map(|e| ExecutorId(*e)).collect() };
            let (receivers, holders) = (of(&receivers), of(&holders));
            let site = |e: ExecutorId| Some(e.0 % n_sites);
            let plan = multicast_by_site(&[ITEM], &receivers, &holders, way, |e| u64::from(e.0 % 3), site);
            // The naive reference: each receiver once, and each below a holder or a receiver that comes before it.
            let mut had: std::collections::BTreeSet<ExecutorId> = holders.iter().copied().collect();
            let mut n_into: BTreeMap<Option<u32>, u32> = BTreeMap::new();
            for want in &plan.wants {
                prop_assert!(want.parent.is_none_or(|parent| had.contains(&parent)));
                prop_assert!(want.parent.is_some() || holders.is_empty());
                prop_assert!(had.insert(want.executor), "it gets the item twice");
                let crosses = want.parent.is_none_or(|parent| site(parent) != site(want.executor));
                *n_into.entry(site(want.executor)).or_default() += u32::from(crosses);
            }
            prop_assert!(receivers.iter().all(|receiver| had.contains(receiver)));
            for (of, n) in n_into {
                let has_holder = holders.iter().any(|holder| site(*holder) == of);
                prop_assert_eq!(n, u32::from(!has_holder));
            }
            if n_sites == 1 && !holders.is_empty() {
                prop_assert_eq!(plan, multicast(&[ITEM], &receivers, &holders, way, |e| u64::from(e.0 % 3)));
            }
        }

        #[test]
        fn archives_take_one_way_each_and_no_node_has_more_than_its_children(
            nodes in prop::collection::vec((1u32..80, 1u64..1000), 1..120), arity in 1u32..6, up in any::<bool>(),
        ) {
            let item = |o: usize, size_bytes| Item { object: ObjectId(o as u32), size_bytes, at_home: false };
            let legs: Vec<(ExecutorId, Item)> =
                nodes.iter().enumerate().map(|(o, (node, bytes))| (ExecutorId(*node), item(o, *bytes))).collect();
            let root = ExecutorId(0);
            let wants = archive_tree(&legs, root, arity, up);
            // The naive reference: each object is carried want by want, and each parent has it by then.
            let mut children: BTreeMap<ExecutorId, std::collections::BTreeSet<ExecutorId>> = BTreeMap::new();
            let mut at: BTreeMap<ObjectId, ExecutorId> =
                legs.iter().map(|(node, item)| (item.object, if up { *node } else { root })).collect();
            for want in &wants {
                let parent = want.parent.expect("each comes from a node");
                prop_assert_eq!(at.insert(want.item.object, want.executor), Some(parent));
                let (above, below) = if up { (want.executor, parent) } else { (parent, want.executor) };
                children.entry(above).or_default().insert(below);
            }
            let is_there = |leg: &(ExecutorId, Item)| at[&leg.1.object] == if up { root } else { leg.0 };
            prop_assert!(legs.iter().all(is_there));
            prop_assert!(children.values().all(|of| of.len() <= arity as usize));
            let n_nodes = children.values().map(|of| of.len()).sum::<usize>();
            prop_assert_eq!(n_nodes, legs.iter().map(|leg| leg.0).collect::<std::collections::BTreeSet<_>>().len());
        }

        #[test]
        fn every_receiver_hangs_below_one_that_comes_before_it(
            n in 1u32..200, holders in 0u32..5, arity in 1u32..5, binomial in any::<bool>(),
        ) {
            let way = if binomial { Way::Binomial } else { Way::Pipelined { arity } };
            let plan = multicast(&[ITEM], &ids(1..n + 1), &ids(1000..1000 + holders), way, |_| 0);
            prop_assert_eq!(plan.wants.len(), n as usize);
            let mut depth: BTreeMap<Option<ExecutorId>, u32> = ids(1000..1000 + holders).into_iter().map(|e| (Some(e), 0)).collect();
            depth.insert(None, 0);
            for want in &plan.wants {
                let above = depth.get(&want.parent).copied();
                prop_assert!(above.is_some());
                depth.insert(Some(want.executor), above.unwrap_or(0) + 1);
            }
            if binomial {
                let deepest = depth.values().max().copied().unwrap_or(0);
                prop_assert!(deepest <= (n + 1).next_power_of_two().ilog2());
            }
        }
    }
}
