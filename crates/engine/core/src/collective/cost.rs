//! How long each way of a collective takes, by the cost model of `Zhang12` §VI-A.1 extended to what we do.
//!
//! In: sizes, counts, when files will exist, and [`LinkModel`]s. Out: seconds from now until the last byte is there.
//! With the paper's names: `N` nodes, `M` files, `S` bytes in all, `a` latency per request, `b` seconds per byte, `c`
//! seconds per file in an archive. As printed there:
//!
//! | | `Zhang12` §VI-A.1 | here |
//! |---|---|---|
//! | multicast | `T = log₂N · (a + b) · S` | [`binomial_s`]: read as `log₂N · (a + S·b)`, because a latency is not paid per byte; [`pipelined_s`] is ours |
//! | gather | `T = log₂N · a + (N−1)/N · S·b + (M−1)·c` | [`gather_collective_s`]: one hop, `a` per request, spread over the streams that are open at once; [`gather_tree_s`]: the paper's tree, with arity, and passing on |
//! | scatter | as gather | [`scatter_archives_s`]; [`scatter_tree_s`] |
//!
//! A node moves `1/b` bytes a second in each direction, however many streams it has. `k` streams pay their latencies at
//! the same time, so requests are held back either by the link (`S·b`) or by the streams (all latencies and bytes, by `k`).
//!
//! Not here: a reduce (`T = log₂N · a + S·c`), whose steps are tasks like any other (`"reduce"` in a task list).
//!
//! Deviation: nodes are equally far and the network inside is never full (the paper says the same of its model).

use super::links::LinkModel;
use serde::{Deserialize, Serialize};

/// Bytes that a node receives before it sends them on.
pub const PIECE_BYTES: u64 = 256 << 10;

/// What is left for one source is not divided among idle streams into parts smaller than this many objects.
pub const SPLIT_OBJECTS_MIN: u32 = 8;

/// The arity of a tree of archives: its root has a stream for each of its children.
pub const TREE_ARITY: u32 = 4;

/// How many requests a node has open at once, and how many objects one may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Streams {
    /// Requests of the receiver of one collective.
    pub in_max: u32,
    pub out_max: u32,
    /// Requests without a collective: 1 means "one after the other".
    pub plain_max: u32,
    pub batch_objects_max: u32,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { in_max: 4, out_max: 4, plain_max: 1, batch_objects_max: 512 }
    }
}

/// Files of a gather that appear at about the same time.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Appearing {
    /// Seconds from now; 0 for files that exist.
    pub at_s: f64,
    pub n_objects: u64,
    pub bytes: u64,
}

/// The files to be gathered, in the order in which they appear.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct GatherCase {
    pub appearing: Vec<Appearing>,
    /// Nodes that hold some of the files.
    pub n_sources: u32,
    /// The sources may receive and pass on what others hold.
    pub passes_on: bool,
}

impl GatherCase {
    /// From `(seconds from now, bytes)` of each file, in any order. Files are put into at most 256 bins by time.
    pub fn new(mut files: Vec<(f64, u64)>, n_sources: u32) -> GatherCase {
        files.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
        let per_bin = files.len().div_ceil(256).max(1);
        let appearing = files
            .chunks(per_bin)
            .map(|bin| Appearing {
                at_s: bin[bin.len() - 1].0.max(0.0),
                n_objects: bin.len() as u64,
                bytes: bin.iter().map(|f| f.1).sum(),
            })
            .collect();
        GatherCase { appearing, n_sources, passes_on: true }
    }

    /// The same case, with files that do not exist yet taking `factor` times as long to appear.
    pub fn delayed(&self, factor: f64) -> GatherCase {
        let later = |a: &Appearing| Appearing { at_s: a.at_s * factor, ..*a };
        GatherCase { appearing: self.appearing.iter().map(later).collect(), ..*self }
    }

    /// Only this is left to be moved, and all of it exists.
    pub fn leave(&mut self, n_objects: u64, bytes: u64, n_sources: u32) {
        (self.appearing, self.n_sources) = (vec![Appearing { at_s: 0.0, n_objects, bytes }], n_sources);
    }

    pub fn n_objects(&self) -> u64 {
        self.appearing.iter().map(|a| a.n_objects).sum()
    }
    pub fn bytes(&self) -> u64 {
        self.appearing.iter().map(|a| a.bytes).sum()
    }
    fn last_s(&self) -> f64 {
        self.appearing.iter().map(|a| a.at_s).fold(0.0, f64::max)
    }
}

/// Requests for `n_objects` of `bytes` over `k` streams, when all objects exist: limited by the link or by
/// the streams.
fn through_streams_s(link: &LinkModel, n_requests: u64, n_objects: u64, bytes: u64, k: u32) -> f64 {
    let k = u64::from(k).min(n_requests).max(1);
    let rounds = n_requests.div_ceil(k) as f64;
    let overhead_s =
        rounds * link.latency_s + n_objects.saturating_sub(n_requests) as f64 / k as f64 * link.per_object_s;
    let moving_s = link.bytes_s(bytes);
    // The first bytes come after one latency, however full the link is afterwards.
    let overlapped_s = (moving_s + link.latency_s).max(overhead_s + moving_s / k as f64);
    // Streams that begin together stay in step for a few rounds, and the link is idle while all of them ask.
    let in_step_s = (rounds * link.latency_s + moving_s).max(overlapped_s);
    overlapped_s + (in_step_s - overlapped_s) * (2.0 / rounds).min(1.0)
}

/// The number of requests for `n_objects` from or by `n_nodes` nodes: one each, and more where streams would
/// be idle or a request too long.
fn n_archives(n_nodes: u64, n_objects: u64, k: u32, streams: &Streams) -> u64 {
    let split = u64::from(k).min(n_objects / u64::from(SPLIT_OBJECTS_MIN));
    n_nodes.max(split).max(n_objects.div_ceil(u64::from(streams.batch_objects_max))).min(n_objects)
}

/// Everything is requested when the last file exists, with one request per source (more where a request would
/// be too long).
pub fn gather_collective_s(case: &GatherCase, link: &LinkModel, streams: &Streams) -> f64 {
    let n = case.n_objects();
    let n_requests = n_archives(u64::from(case.n_sources), n, streams.in_max, streams);
    case.last_s() + through_streams_s(link, n_requests, n, case.bytes(), streams.in_max)
}

/// The levels of a full tree of `arity` over `n` nodes below its root.
fn levels(n: u64, arity: u64) -> u64 {
    let (mut depth, mut level, mut reached) = (0u64, 1u64, 0u64);
    while reached < n {
        level = level.saturating_mul(arity);
        (depth, reached) = if arity == 1 { (n, n) } else { (depth + 1, reached + level) };
    }
    depth
}

/// What the root of a tree of archives sends or receives, by `k` streams to at most `arity` children, and the way from
/// or to the deepest node. Each level below the first adds half a latency and one piece, as in [`pipelined_s`].
fn along_tree_s(
    n_nodes: u32,
    n_objects: u64,
    bytes: u64,
    arity: u32,
    link: &LinkModel,
    streams: &Streams,
    k: u32,
) -> f64 {
    let (n, arity) = (u64::from(n_nodes), u64::from(arity.max(1)));
    let n_requests = n_archives(arity.min(n), n_objects, k, streams);
    let piece_s = link.bytes_s(PIECE_BYTES.min(bytes / n_objects.max(1)));
    through_streams_s(link, n_requests, n_objects, bytes, k)
        + levels(n, arity).saturating_sub(1) as f64 * (link.latency_s / 2.0 + piece_s)
}

/// When the last file exists, all nodes ask the nodes behind them at once, and pass on what comes.
pub fn gather_tree_s(case: &GatherCase, arity: u32, link: &LinkModel, streams: &Streams) -> f64 {
    case.last_s()
        + along_tree_s(case.n_sources, case.n_objects(), case.bytes(), arity, link, streams, streams.in_max)
}

/// A request for each file when it appears: the root is a server at which files queue,
/// `Tᵢ = max(Tᵢ₋₁, appears) + work`.
pub fn gather_async_s(case: &GatherCase, link: &LinkModel, streams: &Streams) -> f64 {
    let k = f64::from(streams.in_max.max(1));
    queued_s(case, link, |bin| {
        let moving_s = link.bytes_s(bin.bytes);
        moving_s.max((bin.n_objects as f64 * link.latency_s + moving_s) / k)
    })
}

/// Like [`gather_async_s`], but files that queue at a source share a request, so that only `c` is paid for
/// each when many queue. At best, all requests go out when the first file exists. Where files keep all
/// streams busy until the end, the last files wait for a stream, half a latency on average.
pub fn gather_async_archives_s(case: &GatherCase, link: &LinkModel, streams: &Streams) -> f64 {
    let n = case.n_objects();
    let n_requests = n_archives(u64::from(case.n_sources), n, streams.in_max, streams);
    let k = u64::from(streams.in_max).min(n_requests).max(1) as f64;
    let queued_s = queued_s(case, link, |bin| {
        let moving_s = link.bytes_s(bin.bytes);
        moving_s.max((bin.n_objects as f64 * link.per_object_s.min(link.latency_s) + moving_s) / k)
    });
    let first_s = case.appearing.iter().map(|a| a.at_s).fold(f64::INFINITY, f64::min);
    let last_s = case.last_s();
    if first_s >= last_s {
        return last_s + through_streams_s(link, n_requests, n, case.bytes(), streams.in_max);
    }
    let asking = case.appearing.iter().filter(|a| a.at_s > last_s - link.latency_s && a.at_s < last_s);
    let is_crowded = asking.map(|a| a.n_objects).sum::<u64>() >= u64::from(streams.in_max);
    queued_s + if is_crowded { link.latency_s / 2.0 } else { 0.0 }
}

fn queued_s(case: &GatherCase, link: &LinkModel, work_s: impl Fn(&Appearing) -> f64) -> f64 {
    case.appearing.iter().fold(0.0, |t: f64, bin| t.max(bin.at_s) + work_s(bin)) + link.latency_s
}

/// No collective: the task that reads the files asks for one after the other when all exist.
pub fn plain_fetches_s(case: &GatherCase, link: &LinkModel, streams: &Streams) -> f64 {
    let n = case.n_objects();
    case.last_s() + through_streams_s(link, n, n, case.bytes(), streams.plain_max)
}

/// The files to be scattered from one node.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct ScatterCase {
    pub n_receivers: u32,
    pub n_objects: u64,
    pub bytes: u64,
    /// The receivers may receive and pass on what others need.
    pub passes_on: bool,
}

/// Each receiver makes one request for all that it needs; the receivers share the sender's outbound link.
pub fn scatter_archives_s(case: &ScatterCase, link: &LinkModel, streams: &Streams) -> f64 {
    let n_requests = n_archives(u64::from(case.n_receivers), case.n_objects, streams.out_max, streams);
    through_streams_s(link, n_requests, case.n_objects, case.bytes, streams.out_max)
}

/// Each receiver asks the node before it for the files of all behind it.
pub fn scatter_tree_s(case: &ScatterCase, arity: u32, link: &LinkModel, streams: &Streams) -> f64 {
    along_tree_s(case.n_receivers, case.n_objects, case.bytes, arity, link, streams, streams.out_max)
}

/// Each receiver asks for one file after the other.
pub fn scatter_plain_s(case: &ScatterCase, link: &LinkModel, streams: &Streams) -> f64 {
    let k = streams.out_max.min(case.n_receivers.saturating_mul(streams.plain_max));
    through_streams_s(link, case.n_objects, case.n_objects, case.bytes, k)
}

/// The files that have to get from some nodes to others.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct MulticastCase {
    /// Receivers that do not have the files yet.
    pub n_receivers: u32,
    /// At least 1; home counts as one.
    pub n_holders: u32,
    pub n_objects: u64,
    pub bytes: u64,
    /// Bytes of the largest object.
    pub largest_bytes: u64,
}

impl MulticastCase {
    fn per_tree(&self) -> u32 {
        self.n_receivers.div_ceil(self.n_holders.max(1))
    }
}

/// All receivers ask the holders.
pub fn flat_s(case: &MulticastCase, link: &LinkModel, streams: &Streams) -> f64 {
    let n = u64::from(case.per_tree());
    through_streams_s(link, n * case.n_objects, n * case.n_objects, n * case.bytes, streams.out_max)
}

/// `⌈log₂(N + 1)⌉ · (a + (M−1)·c + S·b)` over `N` receivers of one holder: in each round, every node that has
/// everything sends it.
pub fn binomial_s(case: &MulticastCase, link: &LinkModel) -> f64 {
    let rounds = (case.per_tree() + 1).next_power_of_two().ilog2();
    f64::from(rounds) * link.request_s(case.n_objects, case.bytes)
}

/// Pieces travel down a tree of `arity`, which divides each node's outbound link among its children: `a +
/// (M−1)·c + arity · S·b`. Each level below the first adds half a latency (nobody waits for an answer: the
/// request is there before the bytes) and one piece. If all objects are smaller than a piece, each level adds
/// the largest object, because it passes that object on as a whole. Every node asks for all objects at once,
/// as far as one request goes; several requests pay `c` in several streams at the same time.
pub fn pipelined_s(case: &MulticastCase, arity: u32, link: &LinkModel, streams: &Streams) -> f64 {
    let (n, arity) = (u64::from(case.per_tree()), u64::from(arity.max(1)));
    let depth = levels(n, arity);
    let fan_out = arity.min(n);
    let moving_s = fan_out as f64 * link.bytes_s(case.bytes);
    let n_streams = u64::from(streams.in_max).min(u64::from(streams.out_max) / fan_out).max(1);
    let n_in_turn = case.n_objects.div_ceil(n_streams).max(u64::from(SPLIT_OBJECTS_MIN)).min(case.n_objects);
    let first_s = link.request_s(n_in_turn, 0) + moving_s;
    let piece_s = fan_out as f64 * link.bytes_s(PIECE_BYTES.min(case.largest_bytes));
    first_s + depth.saturating_sub(1) as f64 * (link.latency_s / 2.0 + piece_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s, as in the table of speeds.
    const GBIT: LinkModel = LinkModel { latency_s: 1e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 125e6 };
    const STREAMS: Streams = Streams { in_max: 4, out_max: 4, plain_max: 1, batch_objects_max: 512 };

    fn near(value: f64, expect: f64) {
        assert!((value / expect - 1.0).abs() < 0.02, "{value} for {expect}");
    }

    #[test]
    fn multicast_of_100_mb_to_16_nodes() {
        let case = MulticastCase {
            n_receivers: 16,
            n_holders: 1,
            n_objects: 1,
            bytes: 100_000_000,
            largest_bytes: 100_000_000,
        };
        // Rounds of 0.801 s: five, because the holder is the seventeenth node.
        near(binomial_s(&case, &GBIT), 5.0 * 0.801);
        near(flat_s(&case, &GBIT, &STREAMS), 16.0 * 0.8);
        // 15 further hops of 0.5 ms and a piece of 2.1 ms.
        near(pipelined_s(&case, 1, &GBIT, &STREAMS), 0.801 + 15.0 * 0.0026);
        near(pipelined_s(&case, 2, &GBIT, &STREAMS), 1.601 + 3.0 * 0.0047);
        let many = MulticastCase { n_holders: 16, ..case };
        near(pipelined_s(&many, 1, &GBIT, &STREAMS), 0.801);
    }

    #[test]
    fn the_largest_of_small_files_is_what_each_level_waits_for() {
        let equal = MulticastCase {
            n_receivers: 11,
            n_holders: 1,
            n_objects: 4,
            bytes: 200_000,
            largest_bytes: 50_000,
        };
        let unequal = MulticastCase { largest_bytes: 170_000, ..equal };
        let more_s = pipelined_s(&unequal, 1, &GBIT, &STREAMS) - pipelined_s(&equal, 1, &GBIT, &STREAMS);
        near(more_s, 10.0 * GBIT.bytes_s(120_000));
        // Of a large one only a piece has to be there before it goes on.
        let large = MulticastCase { bytes: 200_000_000, largest_bytes: 170_000_000, ..equal };
        let even = MulticastCase { largest_bytes: 50_000_000, ..large };
        near(pipelined_s(&large, 1, &GBIT, &STREAMS), pipelined_s(&even, 1, &GBIT, &STREAMS));
    }

    #[test]
    fn gather_of_4000_files_of_100_kb() {
        let case = GatherCase::new(vec![(0.0, 100_000); 4000], 16);
        near(gather_collective_s(&case, &GBIT, &STREAMS), 3.2);
        near(plain_fetches_s(&case, &GBIT, &STREAMS), 4.0 + 3.2);
    }

    #[test]
    fn an_asynchronous_gather_pays_only_for_what_comes_last() {
        // A file of 0.8 s each two seconds: all but the last is hidden.
        let files: Vec<_> = (0..10).map(|i| (f64::from(i) * 2.0, 100_000_000)).collect();
        let case = GatherCase::new(files, 10);
        near(gather_async_s(&case, &GBIT, &STREAMS), 18.0 + 0.801);
        near(gather_collective_s(&case, &GBIT, &STREAMS), 18.0 + 8.0);
        // Many small files at once: here the archive wins.
        let case = GatherCase::new(vec![(1.0, 1_000); 10_000], 10);
        let (a, c) = (gather_async_s(&case, &GBIT, &STREAMS), gather_collective_s(&case, &GBIT, &STREAMS));
        assert!(a > 3.0 && c < 1.5, "{a} {c}");
    }
}
