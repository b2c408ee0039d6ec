//! The rate that home gives to its readers, learnt from how far reads have come and how many nodes shared
//! home meanwhile.
//!
//! In: reads that set out, that report progress, that land. Out: the rate that one more read would get
//! ([`HomeLoad::forecast`]), and the rate that a number of nodes get together ([`HomeLoad::total`]).
//!
//! Two limits bound a read: what home gives to all readers together, and what the reader's node takes. They
//! are told apart by counting nodes, not reads: three reads that share one node's link say nothing of what
//! a second node would get. A read that has set out without a report may not have begun. If it were counted
//! as a reader, home would look quicker than it is, by just as much.
//!
//! Not here: the choice of an input's source (`transfers`).

use super::learnt::SMOOTHED_OVER;
use crate::executor_set::Seat;
use crate::means::smooth;
use eyas_terms::Timestamp;
use std::collections::BTreeSet;

/// A read that has landed teaches something only if at least one part in this many of its time was not lost
/// to messages.
const TOOK_PART: u64 = 4;
/// Numbers of nodes that read at the same time are distinguished by powers of two.
const LEVELS: usize = 20;
/// The weight of the earlier mean of a level when a new value comes.
const KEPT: f64 = 0.75;
/// If a node gets at least this share of the most that a node got, the node is the limit.
const NODE_BOUND: f64 = 0.7;
/// If each of many nodes gets at least this share of what each of few nodes gets, their rates count as
/// equal. The share is low because numbers of nodes are only distinguished by powers of two.
const ALIKE_MIN: f64 = 0.6;
const LEVELS_ALIKE_MIN: usize = 2;
/// If twice as many readers together get less than this many times as much, they have all that home gives.
const GROWTH_MIN: f64 = 1.5;

/// The rate that home gives to all its readers together, by their number, learnt from how far reads came
/// and how many readers shared home meanwhile.
#[derive(Default)]
pub(super) struct HomeLoad {
    /// Bytes per second for all readers together, by the logarithm of the number of nodes that read.
    levels: [Option<f64>; LEVELS],
    /// The highest rate, in bytes per second, that the reads of one node got together lately.
    pub node_max: f64,
    /// The number of reads under way, summed over time; `moving_ns` leaves out the reads that have not been
    /// seen to move.
    reads_ns: u128,
    moving_ns: u128,
    seen: Timestamp,
    /// The number of reads that have set out so far, and those reads under way that set out after all that
    /// were seen to move.
    n_set_out: u64,
    unseen: BTreeSet<u64>,
    /// The time that messages take until a read moves and its progress is reported, without the time in
    /// which bytes moved.
    lost_ns: Option<u64>,
}

/// The progress of a transfer at its last report.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub at: Timestamp,
    pub moved_bytes: u64,
    /// The sums `reads_ns` and `moving_ns` of [`HomeLoad`] at that time.
    reads_ns: u128,
    moving_ns: u128,
    /// The position of this read in the order in which all reads from home set out.
    number: u64,
    /// The number of reads from home on the same node then, this read included.
    pub n_node: u32,
}

/// A read from home that has ended.
pub(super) struct Landed {
    pub seat: Seat,
    pub mark: Mark,
    pub size_bytes: u64,
    /// The reads of its node at that time, this read included.
    pub node: NodeReads,
    /// The object is small, and its node was reading a large object at the same time.
    pub is_beside_large: bool,
}

/// The reads from home of one node, as one of these reads counts them.
#[derive(Clone, Copy)]
pub(super) struct NodeReads {
    pub n: u32,
    /// The same number, but a read of fewer bytes than this read has moved counts only for its part of
    /// them, because it took no more of the shared link.
    pub n_alike: f64,
}

impl HomeLoad {
    /// Advances the sums to `now`; `n_reads` reads were under way until then.
    pub fn pass(&mut self, now: Timestamp, n_reads: u32) {
        let passed_ns = u128::from(now.since_ns(self.seen));
        self.reads_ns += passed_ns * u128::from(n_reads);
        self.moving_ns += passed_ns * u128::from(n_reads).saturating_sub(self.unseen.len() as u128);
        self.seen = self.seen.max(now);
    }

    /// One more read sets out.
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

    /// The mark of a read that has come to `moved_bytes` by `now`.
    pub fn mark(&self, before: Mark, now: Timestamp, moved_bytes: u64, n_node: u32) -> Mark {
        let (reads_ns, moving_ns) = (self.reads_ns, self.moving_ns);
        Mark { at: now, moved_bytes, reads_ns, moving_ns, n_node, ..before }
    }

    /// The read is no longer under way.
    pub fn end(&mut self, mark: Mark) {
        self.unseen.remove(&mark.number);
    }

    /// The read is seen to move, and so are all reads that set out before it.
    fn see(&mut self, mark: Mark) {
        if self.unseen.first().is_some_and(|first| *first <= mark.number) {
            self.unseen = self.unseen.split_off(&(mark.number + 1));
        }
    }

    /// The part of `all`, the reads under way now, that shared home since `mark`. Reads that have set out
    /// without a report may not have begun: if they were counted, home would look quicker by as much.
    /// `None`: too many reads have not reported yet.
    pub fn sharing(&mut self, mark: Mark, now: Timestamp, moving_ns: u64, all: Reads) -> Option<Reads> {
        let ns = now.since_ns(mark.at).max(1);
        let is_first = mark.moved_bytes == 0;
        if is_first {
            smooth(&mut self.lost_ns, ns.saturating_sub(moving_ns), SMOOTHED_OVER);
        }
        self.see(mark);
        match is_first {
            true => self.unseen.is_empty().then_some(all),
            false => Some(all.part((self.moving_ns - mark.moving_ns) as f64 / ns as f64)),
        }
    }

    /// Learns from a read that has landed. All reads that were under way meanwhile count, because a read
    /// may land without any report before. The time lost at a read's beginning is about the time lost at
    /// its end, so `lost_ns` is subtracted; a read that took little more says nothing of home's rate. A
    /// small read beside a large one says nothing either, because most of its time went to messages and to
    /// home's first byte: by its rate, the large read would seem so slow that a second reader of the large
    /// object would seem to cost nothing.
    pub fn learn_landed(&mut self, landed: &Landed, now: Timestamp, all: Reads) {
        let (mark, ns) = (landed.mark, now.since_ns(landed.mark.at).max(1));
        self.see(mark);
        let took_ns = ns.saturating_sub(self.lost_ns.unwrap_or(0));
        if landed.is_beside_large || took_ns < ns / TOOK_PART {
            return;
        }
        let n_mean = ((self.reads_ns - mark.reads_ns) as f64 / ns as f64).max(1.0);
        self.learn(mark, landed.size_bytes, now, took_ns, landed.node, all, Some(all.part(n_mean)));
    }

    /// Learns from one read that has come from `mark` to `moved_bytes` by `now`. `took_ns` is the time
    /// without what messages took. `node`: the reads of its node now, this read included; `all`: the reads
    /// of all nodes now; `sharing`: those that shared home meanwhile.
    pub fn learn(
        &mut self,
        mark: Mark,
        moved_bytes: u64,
        now: Timestamp,
        took_ns: u64,
        node: NodeReads,
        all: Reads,
        sharing: Option<Reads>,
    ) {
        let ns = now.since_ns(mark.at);
        if ns == 0 || moved_bytes <= mark.moved_bytes {
            return;
        }
        let alone = (moved_bytes - mark.moved_bytes) as f64 * 1e9 / ns.min(took_ns.max(1)) as f64;
        // The smaller number is counted, because reads that set out in between may not have begun.
        let n_counted = f64::from(mark.n_node.min(node.n).max(1));
        let n_alike = n_counted.min(node.n_alike).max(1.0);
        let node = alone * n_alike;
        // The maximum decays slowly, because a rate that was seen once may not come again. All nodes report at about the same
        // time, so each report counts for its part: a hundred nodes that share home say no more of what one node takes than
        // one of them.
        self.node_max = node.max(self.node_max - self.node_max / (64.0 * all.n_nodes.max(1.0)));
        let Some(sharing) = sharing else { return };
        // Where the node is the limit, the other nodes get as much each. Where home is the limit, all reads
        // get the same.
        let is_bound = node >= NODE_BOUND * self.node_max;
        let all = if is_bound { node * sharing.n_nodes } else { alone * sharing.n * n_alike / n_counted };
        let level = &mut self.levels[level_of(sharing.n_nodes)];
        *level = Some(level.map_or(all, |mean| mean * KEPT + all * (1.0 - KEPT)));
    }

    /// Whether nothing has been learnt yet.
    pub fn is_empty(&self) -> bool {
        self.node_max == 0.0
    }

    /// The number of levels (numbers of nodes, by powers of two) at which a rate was seen.
    pub fn n_levels(&self) -> usize {
        self.levels.iter().flatten().count()
    }

    /// Whether each of `n_nodes` nodes would get about as much as each of few nodes did, so that home is
    /// not the limit. This is assumed for at most twice as many nodes as were ever seen to read.
    pub fn is_node_bound(&self, n_nodes: f64) -> bool {
        let mut seen = self
            .levels
            .iter()
            .enumerate()
            .filter_map(|(l, all)| Some((l, all.as_ref()? / (1u64 << l) as f64)));
        let (Some((least, few)), Some((most, many))) = (seen.next(), seen.next_back()) else { return false };
        most >= least + LEVELS_ALIKE_MIN && many >= ALIKE_MIN * few && level_of(n_nodes) <= most + 1
    }

    /// The rate that `n_nodes` would get together. `None`: so many more nodes than were ever seen may be
    /// too many.
    pub fn total(&self, n_nodes: f64) -> Option<f64> {
        let at = level_of(n_nodes);
        if let Some(all) = self.levels[at..].iter().flatten().next() {
            return Some(*all);
        }
        let highest = (0..at).rev().find(|l| self.levels[*l].is_some())?;
        let all = self.levels[highest].unwrap_or_default();
        // If many nodes read while few were counted, the rate of that level is too low, and the next level
        // looks like growth. So the growth must hold against every lower level.
        let has_grown =
            |(before, had): (usize, f64)| all >= (before..highest).fold(had, |least, _| least * GROWTH_MIN);
        let grows = (0..highest).filter_map(|l| Some((l, self.levels[l]?))).all(has_grown);
        match grows {
            // One more power of two is tried.
            true if at == highest + 1 => Some(all * n_nodes / (1u64 << highest) as f64),
            true => None,
            false => Some(all),
        }
    }

    /// The rate that each of these reads would get, on a node with `n_node` of them. `None`: unknown.
    pub fn forecast(&self, reads: Reads, n_node: u32) -> Option<f64> {
        let node = self.node_max / f64::from(n_node.max(1));
        Some((self.total(reads.n_nodes)? / reads.n.max(1.0)).min(node))
    }
}

/// A number of reads from home under way, and of the nodes that they go to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reads {
    pub n: f64,
    pub n_nodes: f64,
}

impl Reads {
    /// `n` of these reads, on a proportional part of the nodes.
    fn part(self, n: f64) -> Reads {
        let n = n.max(1.0);
        Reads { n, n_nodes: (self.n_nodes * n / self.n.max(1.0)).clamp(1.0, n) }
    }
}

fn level_of(n: f64) -> usize {
    // The logarithm of 2 n² is twice the logarithm of n, plus one.
    let squared = (2.0 * n.max(1.0) * n.max(1.0)) as u64;
    (squared.ilog2() as usize / 2).min(LEVELS - 1)
}
