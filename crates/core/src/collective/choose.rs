//! Which way a collective goes: the one that is predicted to end first.
//!
//! In: a case of [`super::cost`], links as measured. Out: a [`Choice`], which keeps what was predicted for each way, so
//! that a report can show prediction beside measurement, and what else was thought of.
//!
//! A way that asks for less is preferred when it is predicted to take at most [`TIE`] longer: requests cost the
//! dispatcher and the executors' processors, which the model does not see.

use super::Way;
use super::cost::{self, GatherCase, MulticastCase, ScatterCase, Streams};
use super::links::Link;
use serde::{Deserialize, Serialize};

/// Ways within this factor are equal; the order of the candidates decides.
pub const TIE: f64 = 1.02;
/// Arities of pipelined trees that are considered.
const ARITIES: [u32; 3] = [1, 2, 4];

/// What was chosen, and why.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Choice {
    pub way: Way,
    pub predicted_ns: u64,
    /// All ways with what they were predicted to take, the chosen one too.
    pub considered: Vec<(Way, u64)>,
    /// What the prediction was made with.
    pub link: Link,
}

impl Choice {
    /// `candidates`: with seconds, the ones that ask for least first.
    fn of(candidates: &[(Way, f64)], link: &Link) -> Choice {
        let least_s = candidates.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
        let chosen = candidates.iter().find(|c| c.1 <= least_s * TIE).unwrap_or(&candidates[0]);
        let ns = |s: f64| (s * 1e9) as u64;
        Choice {
            way: chosen.0,
            predicted_ns: ns(chosen.1),
            considered: candidates.iter().map(|c| (c.0, ns(c.1))).collect(),
            link: *link,
        }
    }

    /// The user wants a collective: the best of these, where plain fetches were chosen.
    pub fn insist(&mut self) {
        let collective = self.considered.iter().filter(|c| c.0 != Way::PlainFetches);
        if self.way == Way::PlainFetches
            && let Some(best) = collective.min_by_key(|c| c.1)
        {
            (self.way, self.predicted_ns) = *best;
        }
    }

    /// This way, whatever was predicted.
    pub fn force(&mut self, way: Way) {
        self.way = way;
        self.predicted_ns = self.considered.iter().find(|c| c.0 == way).map_or(0, |c| c.1);
    }

    /// One more way, which is chosen only if it is quicker than what was chosen so far by more than a tie.
    pub fn offer(&mut self, way: Way, predicted_s: f64) {
        let predicted_ns = (predicted_s * 1e9) as u64;
        self.considered.push((way, predicted_ns));
        if predicted_ns as f64 * TIE < self.predicted_ns as f64 {
            (self.way, self.predicted_ns) = (way, predicted_ns);
        }
    }

    /// Whether a plan is worth making at all.
    pub fn is_collective(&self) -> bool {
        self.way != Way::PlainFetches
    }
}

/// Collective gather, asynchronous gather (file by file, or in archives) or plain fetches (§IV-C).
pub fn choose_gather(case: &GatherCase, link: &Link, streams: &Streams) -> Choice {
    let candidates = [
        (Way::CollectiveGather, cost::gather_collective_s(case, link, streams)),
        (Way::AsyncArchives, cost::gather_async_archives_s(case, link, streams)),
        (Way::AsyncGather, cost::gather_async_s(case, link, streams)),
        (Way::PlainFetches, cost::plain_fetches_s(case, link, streams)),
    ];
    Choice::of(&candidates, link)
}

/// The shape of the tree. Plain fetches come first: with one receiver a tree is nothing else.
pub fn choose_multicast(case: &MulticastCase, link: &Link, streams: &Streams) -> Choice {
    let mut candidates = vec![
        (Way::PlainFetches, cost::flat_s(case, link, streams)),
        (Way::Binomial, cost::binomial_s(case, link)),
    ];
    // Wider trees have fewer hops that can be slow.
    let pipelined =
        |arity: &u32| (Way::Pipelined { arity: *arity }, cost::pipelined_s(case, *arity, link, streams));
    candidates.extend(ARITIES.iter().rev().map(pipelined));
    Choice::of(&candidates, link)
}

pub fn choose_scatter(case: &ScatterCase, link: &Link, streams: &Streams) -> Choice {
    let candidates = [
        (Way::Archives, cost::scatter_archives_s(case, link, streams)),
        (Way::PlainFetches, cost::scatter_plain_s(case, link, streams)),
    ];
    Choice::of(&candidates, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: Link = Link { latency_s: 1e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 125e6 };

    #[test]
    fn the_papers_rule_of_thumb_comes_out_of_the_model() {
        // §IV-C: collective when tasks finish close to each other or files are small, asynchronous when they finish
        // irregularly or files are large.
        let streams = Streams::default();
        let way = |files: Vec<(f64, u64)>| choose_gather(&GatherCase::new(files, 16), &GBIT, &streams).way;
        assert_eq!(way(vec![(5.0, 10_000); 1000]), Way::CollectiveGather);
        let spread = |bytes| (0..100).map(|i| (f64::from(i) * 0.5, bytes)).collect::<Vec<_>>();
        assert!(matches!(way(spread(50_000_000)), Way::AsyncGather | Way::AsyncArchives));
        assert!(matches!(way(spread(1_000)), Way::CollectiveGather));
    }

    #[test]
    fn large_files_go_down_a_chain_and_small_ones_down_a_tree() {
        let way = |n_receivers, bytes| {
            let case = MulticastCase { n_receivers, n_holders: 1, n_objects: 1, bytes, largest_bytes: bytes };
            choose_multicast(&case, &GBIT, &Streams::default()).way
        };
        assert_eq!(way(16, 100_000_000), Way::Pipelined { arity: 1 });
        assert_eq!(way(1, 100_000_000), Way::PlainFetches);
        assert!(matches!(way(1000, 1_000), Way::Binomial | Way::Pipelined { arity: 2.. }));
        let choice = choose_multicast(
            &MulticastCase { n_receivers: 16, n_holders: 1, n_objects: 1, bytes: 1, largest_bytes: 1 },
            &GBIT,
            &Streams::default(),
        );
        assert_eq!(choice.considered.len(), 5);
        assert!(choice.is_collective());
    }
}
