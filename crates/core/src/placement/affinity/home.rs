//! What home gives to how many, learnt from how far reads have come and who shared home with them meanwhile.
//!
//! In: reads that set out, that are seen to move, that land. Out: what one more would get ([`HomeLoad::forecast`]), and what
//! so many nodes get together ([`HomeLoad::total`]).
//!
//! Two things bound a read: what home gives to all together, and what its node takes. They are told apart by counting nodes,
//! not reads: three reads that share one node's link say nothing of what a second node would get. Where a read has set out
//! and nothing was heard of it, it may not have begun; counted as a reader it would make home look as much quicker than it is.
//!
//! Not here: where an input comes from (`transfers`).

use super::transfers::smooth;
use crate::executor_set::Seat;
use crate::types::Timestamp;
use std::collections::BTreeSet;

/// Of a read that has landed, one part in so many at least is not lost to messages.
const TOOK_PART: u64 = 4;
/// Concurrent reads are told apart by powers of two.
const LEVELS: usize = 20;
/// Of an earlier mean of a level.
const KEPT: f64 = 0.75;
/// From that share of the most that a node got, the node is the limit.
const NODE_BOUND: f64 = 0.7;
/// From that share of what few nodes get each, many are taken to get as much: the numbers of nodes are known by powers of two.
const ALIKE_MIN: f64 = 0.6;
const LEVELS_ALIKE_MIN: usize = 2;
/// Twice as many readers that get less than so many times as much together have all that home gives.
const GROWTH_MIN: f64 = 1.5;

/// What home gives to all who read there together, by how many read, learnt from how far reads came and how many shared it
/// meanwhile.
#[derive(Default)]
pub(super) struct HomeLoad {
    /// Bytes per second for all, by the logarithm of the number of nodes that read.
    levels: [Option<f64>; LEVELS],
    /// The most that the reads of one node got together lately.
    pub node_max: f64,
    /// Reads under way, over time; the same without those of which nothing shows yet that they have begun.
    reads_ns: u128,
    moving_ns: u128,
    seen: Timestamp,
    /// Reads set out so far, and those under way that set out after all that were seen to move.
    n_set_out: u64,
    unseen: BTreeSet<u64>,
    /// What passes until a read moves and it is heard of, apart from what it has moved for.
    lost_ns: Option<u64>,
}

/// How far a transfer had come when it was looked at last.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub at: Timestamp,
    pub moved_bytes: u64,
    /// What these of [`HomeLoad`] were then.
    reads_ns: u128,
    moving_ns: u128,
    /// Which of all reads from home it is, in the order in which they set out.
    number: u64,
    /// How many its node read then, itself included.
    pub n_node: u32,
}

/// A read from home that has ended.
pub(super) struct Landed {
    pub seat: Seat,
    pub mark: Mark,
    pub size_bytes: u64,
    /// What its node read then, itself included.
    pub node: NodeReads,
    /// It is small, and its node read something large besides.
    pub is_beside_large: bool,
}

/// Reads from home of one node, as one of them sees the others.
#[derive(Clone, Copy)]
pub(super) struct NodeReads {
    pub n: u32,
    /// The same, where a read of less bytes than that one has moved counts for its part of them: it took no more of what they shared.
    pub n_alike: f64,
}

impl HomeLoad {
    /// Up to `now` there were `n_reads`.
    pub fn pass(&mut self, now: Timestamp, n_reads: u32) {
        let passed_ns = u128::from(now.since_ns(self.seen));
        self.reads_ns += passed_ns * u128::from(n_reads);
        self.moving_ns += passed_ns * u128::from(n_reads).saturating_sub(self.unseen.len() as u128);
        self.seen = self.seen.max(now);
    }

    /// One more sets out.
    pub fn begin(&mut self, now: Timestamp, n_node: u32) -> Mark {
        self.n_set_out += 1;
        self.unseen.insert(self.n_set_out);
        Mark {
            at: now,
            moved_bytes: 0,
            reads_ns: self.reads_ns,
            moving_ns: self.moving_ns,
            number: self.n_set_out,
            n_node,
        }
    }

    /// It has come so far.
    pub fn mark(&self, before: Mark, now: Timestamp, moved_bytes: u64, n_node: u32) -> Mark {
        let (reads_ns, moving_ns) = (self.reads_ns, self.moving_ns);
        Mark { at: now, moved_bytes, reads_ns, moving_ns, n_node, ..before }
    }

    /// It is under way no more.
    pub fn end(&mut self, mark: Mark) {
        self.unseen.remove(&mark.number);
    }

    /// It is seen to move: so do those that set out before it.
    fn see(&mut self, mark: Mark) {
        if self.unseen.first().is_some_and(|first| *first <= mark.number) {
            self.unseen = self.unseen.split_off(&(mark.number + 1));
        }
    }

    /// Those that shared home since `mark`, of all that are under way now. Those that have set out and were not heard of may not have
    /// begun: to count them would make home as much quicker. `None`: too many of them are not heard of yet.
    pub fn sharing(&mut self, mark: Mark, now: Timestamp, moving_ns: u64, all: Reads) -> Option<Reads> {
        let ns = now.since_ns(mark.at).max(1);
        let is_first = mark.moved_bytes == 0;
        if is_first {
            smooth(&mut self.lost_ns, ns.saturating_sub(moving_ns));
        }
        self.see(mark);
        match is_first {
            true => self.unseen.is_empty().then_some(all),
            false => Some(all.part((self.moving_ns - mark.moving_ns) as f64 / ns as f64)),
        }
    }

    /// What has landed: all that were under way meanwhile count, as it may not have been heard of before. What is lost at a
    /// read's beginning is about what is lost at its end; a read that took little more says nothing of what home gives. Nor does a
    /// small one beside a large one, as most of its time went to messages and to home's first byte: at its rate the large one
    /// would come so slowly that a second reader of it seems to cost nothing.
    pub fn learn_landed(&mut self, landed: &Landed, now: Timestamp, all: Reads) {
        let (mark, ns) = (landed.mark, now.since_ns(landed.mark.at).max(1));
        self.see(mark);
        let took_ns = ns.saturating_sub(self.lost_ns.unwrap_or(0));
        if landed.is_beside_large || took_ns < ns / TOOK_PART {
            return;
        }
        let n_mean = ((self.reads_ns - mark.reads_ns) as f64 / ns as f64).max(1.0);
        self.learn(mark, landed.size_bytes, now, took_ns, landed.node, Some(all.part(n_mean)));
    }

    /// One read has come from `mark` to `moved_bytes` by `now`, in `took_ns`: less than has passed where messages took their part.
    /// `node`: what its node reads now, itself included; `sharing`: those that shared home meanwhile.
    pub fn learn(
        &mut self,
        mark: Mark,
        moved_bytes: u64,
        now: Timestamp,
        took_ns: u64,
        node: NodeReads,
        sharing: Option<Reads>,
    ) {
        let ns = now.since_ns(mark.at);
        if ns == 0 || moved_bytes <= mark.moved_bytes {
            return;
        }
        let alone = (moved_bytes - mark.moved_bytes) as f64 * 1e9 / ns.min(took_ns.max(1)) as f64;
        // What was seen once may not come again.
        // Those that have set out in between may not have begun.
        let n_counted = f64::from(mark.n_node.min(node.n).max(1));
        let n_alike = n_counted.min(node.n_alike).max(1.0);
        let node = alone * n_alike;
        self.node_max = node.max(self.node_max - self.node_max / 64.0);
        let Some(sharing) = sharing else { return };
        // Where the node is the limit, others have as much; where home is, all reads have the same.
        let is_bound = node >= NODE_BOUND * self.node_max;
        let all = if is_bound { node * sharing.n_nodes } else { alone * sharing.n * n_alike / n_counted };
        let level = &mut self.levels[level_of(sharing.n_nodes)];
        *level = Some(level.map_or(all, |mean| mean * KEPT + all * (1.0 - KEPT)));
    }

    /// Whether nothing was learnt yet.
    pub fn is_empty(&self) -> bool {
        self.node_max == 0.0
    }

    /// How many different numbers of nodes were seen to read.
    pub fn n_levels(&self) -> usize {
        self.levels.iter().flatten().count()
    }

    /// Whether so many nodes would get about as much each as few did: then it is not home that bounds them. At most twice as many as
    /// were ever seen are taken to.
    pub fn is_node_bound(&self, n_nodes: f64) -> bool {
        let mut seen = self
            .levels
            .iter()
            .enumerate()
            .filter_map(|(l, all)| Some((l, all.as_ref()? / (1u64 << l) as f64)));
        let (Some((least, few)), Some((most, many))) = (seen.next(), seen.next_back()) else { return false };
        most >= least + LEVELS_ALIKE_MIN && many >= ALIKE_MIN * few && level_of(n_nodes) <= most + 1
    }

    /// What `n_nodes` would get together. `None`: so many more than were ever seen may be too many.
    pub fn total(&self, n_nodes: f64) -> Option<f64> {
        let at = level_of(n_nodes);
        if let Some(all) = self.levels[at..].iter().flatten().next() {
            return Some(*all);
        }
        let highest = (0..at).rev().find(|l| self.levels[*l].is_some())?;
        let all = self.levels[highest].unwrap_or_default();
        // Few may have been taken to read where many did: that is less than home gives, and what follows looks like growth.
        let has_grown =
            |(before, had): (usize, f64)| all >= (before..highest).fold(had, |least, _| least * GROWTH_MIN);
        let grows = (0..highest).filter_map(|l| Some((l, self.levels[l]?))).all(has_grown);
        match grows {
            // One power of two more is tried.
            true if at == highest + 1 => Some(all * n_nodes / (1u64 << highest) as f64),
            true => None,
            false => Some(all),
        }
    }

    /// What each of these reads would get, on a node with `n_node` of them. `None`: nobody knows.
    pub fn forecast(&self, reads: Reads, n_node: u32) -> Option<f64> {
        let node = self.node_max / f64::from(n_node.max(1));
        Some((self.total(reads.n_nodes)? / reads.n.max(1.0)).min(node))
    }
}

/// Reads from home under way, and the nodes that they go to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reads {
    pub n: f64,
    pub n_nodes: f64,
}

impl Reads {
    /// So many of them, on as large a part of their nodes.
    fn part(self, n: f64) -> Reads {
        let n = n.max(1.0);
        Reads { n, n_nodes: (self.n_nodes * n / self.n.max(1.0)).clamp(1.0, n) }
    }
}

fn level_of(n: f64) -> usize {
    // The logarithm of 2 n² is twice that of n, and one more.
    let squared = (2.0 * n.max(1.0) * n.max(1.0)) as u64;
    (squared.ilog2() as usize / 2).min(LEVELS - 1)
}
