//! Which way a collective goes: the way that is predicted to end first, if that is sure enough.
//!
//! In: a case of [`super::cost`], and an [`Outlook`]: the links as measured and how long makers take, each
//! with its uncertainty. Out: a [`Choice`]. It keeps the prediction for every way, so that a report can show
//! prediction beside measurement, and the ways that were not chosen.
//!
//! **The rule.** A way other than plain fetches is taken only if its possible loss is not more than its
//! likely gain. *Likely gain*: the seconds by which it ends before plain fetches, with the likely links.
//! *Possible loss*: the seconds by which it ends after them in the worst of the cases that may hold as well
//! (each link number at either end of its spread, makers as quick or as slow as they may be). Both ways are
//! judged over the same links, because they will use the same links. Running a maker again is judged in the
//! same way, against the quickest way of sending.
//!
//! A way that makes fewer requests is preferred when it is predicted to take at most [`TIE`] times as long.
//! Requests cost the dispatcher and the executors processor time, which the model does not include.
//!
//! Not here: how sure a prediction is ([`super::lessons`]).

use super::Way;
use super::cost::{self, GatherCase, MulticastCase, ScatterCase, Streams, TREE_ARITY};
use super::lessons::{Case, Expectation, PROMISE};
use super::links::{Estimate, LinkModel};
use serde::{Deserialize, Serialize};

/// Ways whose times differ by less than this factor are equal; then the order of the candidates decides.
pub const TIE: f64 = 1.02;
/// Arities of pipelined trees that are considered.
const ARITIES: [u32; 3] = [1, 2, 4];

/// The information that a choice is based on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outlook {
    pub link: Estimate,
    /// Nine in ten makers end within this factor of the time that they are expected to need from now; 1 means
    /// no uncertainty.
    pub makers_factor: f64,
}

impl Outlook {
    /// The likely case, then the cases that may hold as well, in pairs. Each is a link, and the factor on the
    /// makers' time.
    fn cases(&self) -> Vec<(LinkModel, f64)> {
        let mut cases = vec![(self.link.likely, 1.0)];
        cases.extend(self.link.cases().into_iter().flatten().map(|link| (link, 1.0)));
        if self.makers_factor > 1.0 {
            cases.extend([self.makers_factor, 1.0 / self.makers_factor].map(|f| (self.link.likely, f)));
        }
        cases
    }
}

/// A task that could run again in place of sending its files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RerunCase {
    /// The time that it is expected to run at the receivers, without the time for its inputs.
    pub run_s: f64,
    /// Inputs that have to be sent first.
    pub inputs: Option<MulticastCase>,
    /// The time to read what the task made, for its digest.
    pub digest_s: f64,
}

impl RerunCase {
    fn seconds(&self, link: &LinkModel, makers_factor: f64, streams: &Streams) -> f64 {
        let inputs_s = self.inputs.map_or(0.0, |case| cost::flat_s(&case, link, streams));
        self.run_s * makers_factor + inputs_s + self.digest_s
    }
}

/// What was chosen, and why.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Choice {
    pub way: Way,
    pub predicted_ns: u64,
    /// All ways, including the chosen one, each with its predicted time.
    pub considered: Vec<(Way, u64)>,
    /// The time that is expected of the chosen way, and how sure that is. Older logs do not have it, or call
    /// it `told`.
    #[serde(default, alias = "told")]
    pub expectation: Option<Expectation>,
    /// The link that the prediction was based on.
    pub link: LinkModel,
}

/// A way, and its seconds in each case of an outlook, the likely case first.
struct Candidate {
    way: Way,
    seconds: Vec<f64>,
}

impl Candidate {
    fn likely_s(&self) -> f64 {
        self.seconds[0]
    }

    /// The rule of the module's header.
    fn is_worth_it(&self, instead_of: &Candidate) -> bool {
        let later = self.seconds.iter().zip(&instead_of.seconds).map(|(own, other)| own - other);
        let loss_s = later.fold(f64::NEG_INFINITY, f64::max);
        loss_s <= instead_of.likely_s() - self.likely_s()
    }
}

impl Choice {
    /// `candidates`: the ways with the fewest requests come first; plain fetches are among them.
    fn of(candidates: &[Candidate], outlook: &Outlook) -> Choice {
        let plain = candidates
            .iter()
            .find(|c| c.way == Way::PlainFetches)
            .expect("plain fetches are always possible");
        let open: Vec<&Candidate> =
            candidates.iter().filter(|c| c.way == Way::PlainFetches || c.is_worth_it(plain)).collect();
        let least_s = open.iter().map(|c| c.likely_s()).fold(f64::INFINITY, f64::min);
        let chosen = open.iter().find(|c| c.likely_s() <= least_s * TIE).expect("the least is within a tie");
        let mut choice = Choice {
            way: chosen.way,
            predicted_ns: 0,
            considered: vec![],
            expectation: None,
            link: outlook.link.likely,
        };
        candidates.iter().for_each(|c| choice.consider(c));
        choice.take(choice.way);
        choice
    }

    fn consider(&mut self, candidate: &Candidate) {
        self.considered.push((candidate.way, (candidate.likely_s() * 1e9) as u64));
    }

    /// The user wants a collective: if plain fetches were chosen, takes the best of the collective ways.
    pub fn insist(&mut self) {
        let collective =
            self.considered.iter().filter(|c| !matches!(c.0, Way::PlainFetches | Way::TaskRerun));
        if self.way == Way::PlainFetches
            && let Some(best) = collective.min_by_key(|c| c.1)
        {
            (self.way, self.predicted_ns) = *best;
        }
    }

    /// Takes this way, whatever was predicted; a way that was not among the candidates becomes one.
    pub fn force(&mut self, way: Way, case: &Case) {
        if self.considered.iter().all(|c| c.0 != way) {
            let predicted_s = case.seconds(way, &self.link, 1.0, &Streams::default());
            self.considered.push((way, (predicted_s * 1e9) as u64));
        }
        self.take(way);
    }

    /// Takes one of the candidates.
    pub fn take(&mut self, way: Way) {
        self.way = way;
        self.predicted_ns = self.considered.iter().find(|c| c.0 == way).map_or(0, |c| c.1);
    }

    /// What the chosen way is expected to take, if nine in ten such expectations are within [`PROMISE`] of what is measured.
    pub fn promised_ns(&self) -> Option<u64> {
        self.expectation.filter(|e| e.doubt <= PROMISE).map(|e| e.expected_ns)
    }

    /// Whether the choice is a collective, so that a plan has to be made.
    pub fn is_collective(&self) -> bool {
        self.way != Way::PlainFetches
    }
}

fn candidates(
    ways: &[Way],
    outlook: &Outlook,
    seconds: impl Fn(Way, &LinkModel, f64) -> f64,
) -> Vec<Candidate> {
    let cases = outlook.cases();
    let of = |way: &Way| Candidate {
        way: *way,
        seconds: cases.iter().map(|(link, makers_factor)| seconds(*way, link, *makers_factor)).collect(),
    };
    ways.iter().map(of).collect()
}

fn moving(case: &Case, ways: &[Way], outlook: &Outlook, streams: &Streams) -> Vec<Candidate> {
    candidates(ways, outlook, |way, link, makers_factor| case.seconds(way, link, makers_factor, streams))
}

/// A tree of archives over `n` nodes, if that has levels: with fewer nodes it would be the same as no tree.
fn archive_tree(n_nodes: u32, passes_on: bool) -> Option<Way> {
    (passes_on && n_nodes > TREE_ARITY).then_some(Way::ArchiveTree { arity: TREE_ARITY })
}

/// Collective gather, asynchronous gather (file by file, or in archives), archives along a tree, or plain fetches
/// (§IV-C, §V-B.3).
pub fn choose_gather(case: &GatherCase, outlook: &Outlook, streams: &Streams) -> Choice {
    let mut ways = vec![Way::CollectiveGather, Way::AsyncArchives, Way::AsyncGather, Way::PlainFetches];
    // The nodes of a tree move each byte several times, so where another way is as quick, it is preferred.
    ways.extend(archive_tree(case.n_sources, case.passes_on));
    Choice::of(&moving(&Case::Gather(case.clone()), &ways, outlook, streams), outlook)
}

/// Chooses the shape of the tree. Plain fetches come first: with one receiver, a tree is the same as a plain
/// fetch. `rerun`: the task that could run again in place of sending, if there is one.
pub fn choose_multicast(
    case: &MulticastCase,
    outlook: &Outlook,
    streams: &Streams,
    rerun: Option<&RerunCase>,
) -> Choice {
    let mut ways = vec![Way::PlainFetches, Way::Binomial];
    // Wider trees have fewer hops that can be slow.
    ways.extend(ARITIES.iter().rev().map(|arity| Way::Pipelined { arity: *arity }));
    let sending = moving(&Case::Multicast(*case), &ways, outlook, streams);
    let mut choice = Choice::of(&sending, outlook);
    if let Some(rerun) = rerun {
        let seconds = |_, link: &LinkModel, makers_factor| rerun.seconds(link, makers_factor, streams);
        let rerun = candidates(&[Way::TaskRerun], outlook, seconds).remove(0);
        choice.consider(&rerun);
        let best = sending.iter().find(|c| c.way == choice.way).expect("it was chosen");
        if rerun.likely_s() * TIE < best.likely_s() && rerun.is_worth_it(best) {
            choice.take(Way::TaskRerun);
        }
    }
    choice
}

pub fn choose_scatter(case: &ScatterCase, outlook: &Outlook, streams: &Streams) -> Choice {
    let mut ways = vec![Way::Archives, Way::PlainFetches];
    ways.extend(archive_tree(case.n_receivers, case.passes_on));
    Choice::of(&moving(&Case::Scatter(*case), &ways, outlook, streams), outlook)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::LinkEstimator;

    const GBIT: LinkModel = LinkModel { latency_s: 1e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 125e6 };

    fn known() -> Outlook {
        Outlook { link: Estimate::exactly(GBIT), makers_factor: 1.0 }
    }

    #[test]
    fn the_papers_rule_of_thumb_comes_out_of_the_model() {
        // §IV-C: collective when tasks finish close to each other or files are small, asynchronous when they finish
        // irregularly or files are large.
        let streams = Streams::default();
        let way = |files: Vec<(f64, u64)>| choose_gather(&GatherCase::new(files, 16), &known(), &streams).way;
        assert_eq!(way(vec![(5.0, 10_000); 1000]), Way::CollectiveGather);
        let spread = |bytes| (0..100).map(|i| (f64::from(i) * 0.5, bytes)).collect::<Vec<_>>();
        assert!(matches!(way(spread(50_000_000)), Way::AsyncGather | Way::AsyncArchives));
        assert!(matches!(way(spread(1_000)), Way::CollectiveGather));
    }

    #[test]
    fn a_tree_of_archives_is_for_many_nodes_and_small_files() {
        let streams = Streams::default();
        let gather = |n_nodes: u32, bytes| {
            let case = GatherCase::new(vec![(0.0, bytes); n_nodes as usize], n_nodes);
            choose_gather(&case, &known(), &streams).way
        };
        let scatter = |n_receivers, bytes, passes_on| {
            let case = ScatterCase { n_receivers, n_objects: u64::from(n_receivers), bytes, passes_on };
            choose_scatter(&case, &known(), &streams).way
        };
        let tree = Way::ArchiveTree { arity: TREE_ARITY };
        assert_eq!((gather(1000, 8_000), scatter(1000, 8_000_000, true)), (tree, tree));
        assert_eq!(scatter(1000, 8_000_000, false), Way::Archives);
        assert_eq!((gather(4, 8_000), scatter(4, 32_000, true)), (Way::CollectiveGather, Way::Archives));
        assert_eq!(gather(1000, 10_000_000), Way::CollectiveGather, "the link is full either way");
    }

    #[test]
    fn large_files_go_down_a_chain_and_small_ones_down_a_tree() {
        let way = |n_receivers, bytes| {
            let case = MulticastCase { n_receivers, n_holders: 1, n_objects: 1, bytes, largest_bytes: bytes };
            choose_multicast(&case, &known(), &Streams::default(), None).way
        };
        assert_eq!(way(16, 100_000_000), Way::Pipelined { arity: 1 });
        assert_eq!(way(1, 100_000_000), Way::PlainFetches);
        assert!(matches!(way(1000, 1_000), Way::Binomial | Way::Pipelined { arity: 2.. }));
        let choice = choose_multicast(
            &MulticastCase { n_receivers: 16, n_holders: 1, n_objects: 1, bytes: 1, largest_bytes: 1 },
            &known(),
            &Streams::default(),
            None,
        );
        assert_eq!(choice.considered.len(), 5);
        assert!(choice.is_collective());
    }

    fn unmeasured() -> Outlook {
        Outlook { link: LinkEstimator::default().estimate(), makers_factor: 1.0 }
    }

    fn multicast(n_receivers: u32, bytes: u64) -> MulticastCase {
        MulticastCase { n_receivers, n_holders: 1, n_objects: 1, bytes, largest_bytes: bytes }
    }

    #[test]
    fn a_collective_that_could_lose_more_than_it_may_gain_is_not_begun() {
        // To two nodes a chain gains the second sending and loses half a latency: not much for 100 KB.
        let outlook = unmeasured();
        let likely = Outlook { link: Estimate::exactly(outlook.link.likely), ..outlook };
        let way =
            |outlook, bytes| choose_multicast(&multicast(2, bytes), outlook, &Streams::default(), None).way;
        assert_eq!(way(&likely, 400_000), Way::Pipelined { arity: 1 });
        assert_eq!(way(&outlook, 400_000), Way::PlainFetches);
        // To sixteen nodes a large file goes down a chain whatever the link is like.
        let choice = choose_multicast(&multicast(16, 100_000_000), &outlook, &Streams::default(), None);
        assert_eq!(choice.way, Way::Pipelined { arity: 1 });
    }

    #[test]
    fn a_maker_runs_again_only_where_that_gains_more_than_it_could_lose() {
        // Sending takes likely 5.5 s, on a quick link half a second.
        let case = multicast(3, 600_000_000);
        let rerun = |run_s| RerunCase { run_s, inputs: None, digest_s: 0.6 };
        let choose = |outlook: &Outlook, run_s| {
            choose_multicast(&case, outlook, &Streams::default(), Some(&rerun(run_s)))
        };
        let outlook = Outlook { makers_factor: 2.0, ..unmeasured() };
        let gbit = Outlook { makers_factor: 2.0, ..known() };
        assert_eq!(choose(&gbit, 1.0).way, Way::TaskRerun);
        assert_eq!(choose(&gbit, 3.0).way, Way::Pipelined { arity: 1 }, "it could take 6.6 s");
        assert_eq!(choose(&outlook, 2.5).way, Way::Pipelined { arity: 1 });
        let mut forced = choose(&outlook, 2.5);
        forced.take(Way::TaskRerun);
        assert_eq!(forced.predicted_ns, 3_100_000_000);
    }
}
