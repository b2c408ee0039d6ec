//! The network between executors and to home, as transfers have shown it, and the sites that it falls into.
//!
//! In: which executors there are and on which host, and [`Network::observe`] for what an attempt's inputs took to
//! come. Out: [`Sites`], which say for two executors whether they are near each other, and how fast the links between
//! sites and to home are.
//!
//! Few of the many pairs of executors ever exchange a byte, so nothing is estimated for a pair that is not an
//! estimate for its sites:
//!   1. The rate of a pair is the best that one of its latest transfers reached. Other traffic only makes a transfer
//!      slower, so the best one says most about the link. Transfers below [`OBSERVED_BYTES_MIN`] are left out, because
//!      their time is mostly latency.
//!   2. The pair is *near* if its rate is at least 1/[`FAR_FACTOR`] of the best rate of any pair on different hosts.
//!      Executors of one host are always near.
//!   3. Executors that a chain of near pairs joins are one *group*. Two groups are different sites only if at least
//!      [`FAR_TRANSFERS_MIN`] transfers went between them, and none was near. Without this evidence they are one site:
//!      a network counts as one site until it has shown that it is not.
//!
//!   4. Before anything moved, the round trips that executors measure between them say which of them are apart
//!      ([`RTT_FAR_NS`]): one of each site is asked ([`Network::to_probe`]), so there are few probes. Transfers count more:
//!      where one was near, the round trip is forgotten.
//!
//! So a cluster with one fast network has one site, and then [`Network::sites`] is `None` and nothing in placement
//! differs from a placement that does not know of networks.
//!
//! Cost: an observation costs a look-up. Sites are found anew when the number of observations has grown by a part
//! ([`SETTLE_PART`]), so the cost for each observation stays bounded; until then an executor that has come is of no
//! site. The number of
//! remembered pairs is bounded for each executor; the oldest pair is forgotten first.
//!
//! Not here: the three numbers of the cost model for collectives ([`crate::collective::LinkEstimator`]), what a choice
//! makes of sites (`placement::affinity`).

use crate::event::InputReport;
use eyas_terms::{CacheOutcome, ExecutorId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Smaller transfers say nothing about a rate.
pub const OBSERVED_BYTES_MIN: u64 = 1 << 20;
/// A pair that reaches less than 1/`FAR_FACTOR` of the best rate is not near.
pub const FAR_FACTOR: f64 = 5.0;
/// So many transfers between two groups have to show that they are far from each other.
pub const FAR_TRANSFERS_MIN: u32 = 3;
/// Sites are found anew after a number of observations that is this part of all that are remembered.
const SETTLE_PART: u64 = 8;
/// The remembered pairs, for each executor.
const PAIRS_PER_EXECUTOR: usize = 64;
/// The best rate is that of the latest transfers of a pair: between so many and twice as many.
const RECENT: u32 = 16;

/// Executors with a longer round trip between them are taken to be in different sites until a transfer shows that they are near.
pub const RTT_FAR_NS: u64 = 3_000_000;
/// An executor is asked for at most so many round trips in its life.
const PROBES_MAX: usize = 16;

/// Whether sites are found and used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkUse {
    /// From round trips at first, then from transfers.
    Measured,
    /// From transfers alone: nothing is sent to measure the network.
    Passive,
    /// From round trips alone, as Miceli10 does with ping: a holder in the same site is preferred, and nothing else differs.
    Ping,
    /// All executors count as equally near.
    #[default]
    Off,
}

impl NetworkUse {
    pub const ALL: [NetworkUse; 4] =
        [NetworkUse::Measured, NetworkUse::Passive, NetworkUse::Ping, NetworkUse::Off];

    pub fn name(self) -> &'static str {
        match self {
            NetworkUse::Measured => "measured",
            NetworkUse::Passive => "passive",
            NetworkUse::Ping => "ping",
            NetworkUse::Off => "off",
        }
    }

    /// Whether executors measure round trips.
    pub fn probes(self) -> bool {
        matches!(self, NetworkUse::Measured | NetworkUse::Ping)
    }

    /// Whether transfers are learnt from.
    pub fn learns(self) -> bool {
        matches!(self, NetworkUse::Measured | NetworkUse::Passive)
    }
}

/// What one end of a link has seen of the other end.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct SeenLink {
    /// Transfers since the executor or the pair is known.
    n: u32,
    /// Both ends are on one host.
    is_same_host: bool,
    /// Bytes, seconds and best rate of the present window and of the one before it.
    now: Window,
    before: Window,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Window {
    n: u32,
    bytes: f64,
    seconds: f64,
    best: f64,
}

impl SeenLink {
    fn add(&mut self, bytes: u64, seconds: f64) {
        self.n = self.n.saturating_add(1);
        if self.now.n == RECENT {
            self.before = std::mem::take(&mut self.now);
        }
        let rate = bytes as f64 / seconds;
        self.now.n += 1;
        self.now.bytes += bytes as f64;
        self.now.seconds += seconds;
        self.now.best = self.now.best.max(rate);
    }

    /// Bytes per second of the best recent transfer.
    fn best(&self) -> f64 {
        self.now.best.max(self.before.best)
    }

    fn link(&self) -> Link {
        let mut link = Link::default();
        link.add(self);
        link
    }

    fn n_recent(&self) -> u32 {
        self.now.n + self.before.n
    }
}

/// The sum of what several ends have seen.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Link {
    /// Recent transfers.
    pub n_transfers: u32,
    pub bytes: f64,
    pub seconds: f64,
    /// Bytes per second of the best transfer.
    pub best_bytes_per_s: f64,
}

impl Link {
    fn add(&mut self, seen: &SeenLink) {
        self.n_transfers += seen.n_recent();
        self.bytes += seen.now.bytes + seen.before.bytes;
        self.seconds += seen.now.seconds + seen.before.seconds;
        self.best_bytes_per_s = self.best_bytes_per_s.max(seen.best());
    }

    /// Bytes per second of a transfer beside the others that are usual there. `None`: nothing was seen.
    pub fn bytes_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// What is new after sites were found anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum News {
    Nothing,
    /// The executors are in the same sites, and what was seen of the links differs.
    Rates,
    /// Some executors are in other sites than before.
    Sites,
}

/// What came from one source for the inputs of one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    pub bytes: u64,
    /// The inputs of an attempt move together, so the longest wait counts for all inputs of a source.
    pub wait_ns: u64,
}

/// What came from each executor, and from home (`None`), for these inputs of one attempt.
pub fn moved<'a>(inputs: impl Iterator<Item = &'a InputReport>) -> BTreeMap<Option<ExecutorId>, Moved> {
    let mut by_source: BTreeMap<Option<ExecutorId>, Moved> = BTreeMap::new();
    for input in inputs {
        let source = match input.outcome {
            CacheOutcome::Miss => None,
            CacheOutcome::RemoteHit { from } => Some(from),
            _ => continue,
        };
        let Moved { bytes, wait_ns } = by_source.entry(source).or_default();
        *bytes += input.size_bytes;
        *wait_ns = input.wait_ns.max(*wait_ns);
    }
    by_source
}

/// Executors in sites. There are at least two sites.
#[derive(Clone, PartialEq, Debug)]
pub struct Sites {
    /// The executors of each site, in order. Sites are in the order of their first executors.
    pub sites: Vec<Vec<ExecutorId>>,
    site_of: BTreeMap<ExecutorId, u32>,
    /// Links inside sites and between them, row by row. Both directions count as one.
    links: Vec<Link>,
    home: Vec<Link>,
}

impl Sites {
    /// `None`: the executor has come after the sites were found.
    pub fn site_of(&self, executor: ExecutorId) -> Option<u32> {
        self.site_of.get(&executor).copied()
    }

    pub fn link(&self, a: u32, b: u32) -> &Link {
        &self.links[a as usize * self.sites.len() + b as usize]
    }

    pub fn home(&self, site: u32) -> &Link {
        &self.home[site as usize]
    }
}

struct NodeLinks {
    host: String,
    home: SeenLink,
    n_probes: usize,
}

type Pair = (ExecutorId, ExecutorId);

/// The smaller one first.
fn pair(a: ExecutorId, b: ExecutorId) -> Pair {
    (a.min(b), a.max(b))
}

/// See the module.
#[derive(Default)]
pub struct Network {
    nodes: BTreeMap<ExecutorId, NodeLinks>,
    pairs: BTreeMap<Pair, SeenLink>,
    /// The pairs in the order in which they were first seen.
    oldest: VecDeque<Pair>,
    /// The shortest round trip of a pair, in nanoseconds; `None`: it is being measured.
    round_trips: BTreeMap<Pair, Option<u64>>,
    /// Observations since sites were last found, and the number at which they are found anew.
    n_new: u64,
    sites: Option<Arc<Sites>>,
}

impl Network {
    /// `host`: executors of the same host are near each other.
    pub fn executor_joined(&mut self, executor: ExecutorId, host: &str) {
        self.nodes.insert(executor, NodeLinks { host: host.into(), home: SeenLink::default(), n_probes: 0 });
    }

    /// The executors to which each executor should measure the round trip now: one of each site of which nothing says whether
    /// the executor is near it. Each is given out once.
    pub fn to_probe(&mut self) -> Vec<(ExecutorId, Vec<ExecutorId>)> {
        let first = self.nodes.keys().next().copied();
        let ones: Vec<ExecutorId> = match &self.sites {
            Some(sites) => sites.sites.iter().map(|site| site[0]).collect(),
            None => first.into_iter().collect(),
        };
        let host_of = |one: ExecutorId| self.nodes.get(&one).map(|node| (one, node.host.clone()));
        let ones: Vec<(ExecutorId, String)> = ones.into_iter().filter_map(host_of).collect();
        let mut asked = vec![];
        for (&executor, node) in &mut self.nodes {
            // An executor on the host of one of these is near it.
            let is_new = |(one, host): &&(ExecutorId, String)| {
                let pair = pair(executor, *one);
                *host != node.host && !self.pairs.contains_key(&pair) && !self.round_trips.contains_key(&pair)
            };
            let left = PROBES_MAX - node.n_probes;
            let peers: Vec<ExecutorId> = ones.iter().filter(is_new).take(left).map(|(one, _)| *one).collect();
            if !peers.is_empty() {
                node.n_probes += peers.len();
                self.round_trips.extend(peers.iter().map(|peer| (pair(executor, *peer), None)));
                asked.push((executor, peers));
            }
        }
        asked
    }

    /// `executor` has had an answer from `peer` after `round_trip_ns`.
    pub fn observe_round_trip(&mut self, executor: ExecutorId, peer: ExecutorId, round_trip_ns: u64) {
        let is_here = |e: &ExecutorId| self.nodes.contains_key(e);
        if is_here(&executor) && is_here(&peer) && executor != peer {
            let known = self.round_trips.entry(pair(executor, peer)).or_default();
            *known = Some(known.map_or(round_trip_ns, |ns| ns.min(round_trip_ns)));
        }
    }

    fn is_long_way(&self, pair: &Pair) -> bool {
        self.round_trips.get(pair).copied().flatten().is_some_and(|ns| ns > RTT_FAR_NS)
    }

    pub fn executor_left(&mut self, executor: ExecutorId) {
        if self.nodes.remove(&executor).is_some() {
            self.pairs.retain(|(a, b), _| *a != executor && *b != executor);
            self.oldest.retain(|(a, b)| *a != executor && *b != executor);
            self.round_trips.retain(|(a, b), _| *a != executor && *b != executor);
        }
    }

    /// `bytes` have come to `to` from another executor, or from home (`None`). The result says what is new in
    /// [`Network::sites`].
    pub fn observe(
        &mut self,
        to: ExecutorId,
        from: Option<ExecutorId>,
        bytes: u64,
        duration_ns: u64,
    ) -> News {
        if bytes < OBSERVED_BYTES_MIN || duration_ns == 0 || from == Some(to) {
            return News::Nothing;
        }
        let seconds = duration_ns as f64 * 1e-9;
        let Some(node) = self.nodes.get_mut(&to) else { return News::Nothing };
        match from {
            None => node.home.add(bytes, seconds),
            Some(from) if self.nodes.contains_key(&from) => {
                let pair = pair(to, from);
                let n_max = PAIRS_PER_EXECUTOR * self.nodes.len();
                let seen = self.pairs.entry(pair).or_default();
                if seen.n == 0 {
                    seen.is_same_host = self.nodes[&to].host == self.nodes[&from].host;
                    self.oldest.push_back(pair);
                }
                seen.add(bytes, seconds);
                if self.pairs.len() > n_max
                    && let Some(oldest) = self.oldest.pop_front()
                {
                    self.pairs.remove(&oldest);
                }
            }
            Some(_) => return News::Nothing,
        }
        self.n_new += 1;
        match self.n_new > (self.pairs.len() + self.nodes.len()) as u64 / SETTLE_PART {
            true => self.settle(),
            false => News::Nothing,
        }
    }

    /// The sites; `None`: there is no evidence of more than one.
    pub fn sites(&self) -> Option<&Arc<Sites>> {
        self.sites.as_ref()
    }

    /// What was seen between each two executors between which something moved, the smaller one first.
    pub fn links(&self) -> impl Iterator<Item = ((ExecutorId, ExecutorId), Link)> {
        self.pairs.iter().map(|(pair, seen)| (*pair, seen.link()))
    }

    /// What was seen between each executor and home.
    pub fn home_links(&self) -> impl Iterator<Item = (ExecutorId, Link)> {
        self.nodes.iter().map(|(executor, node)| (*executor, node.home.link()))
    }

    /// Finds the sites anew, and says what is new about them.
    pub fn settle(&mut self) -> News {
        self.n_new = 0;
        let found = self.find();
        let members = |sites: Option<&Sites>| sites.map(|sites| sites.sites.clone());
        let news = match (found.as_ref(), self.sites.as_deref()) {
            (found, before) if found == before => News::Nothing,
            (found, before) if members(found) == members(before) => News::Rates,
            _ => News::Sites,
        };
        if news != News::Nothing {
            self.sites = found.map(Arc::new);
        }
        news
    }

    fn find(&self) -> Option<Sites> {
        let ids: Vec<ExecutorId> = self.nodes.keys().copied().collect();
        let at = |e: ExecutorId| ids.binary_search(&e).expect("pairs are of executors that are there");
        let apart = || self.pairs.iter().filter(|(_, seen)| !seen.is_same_host);
        let best_of = |is_long: bool| {
            let of = apart().filter(|(pair, _)| self.is_long_way(pair) == is_long);
            of.map(|(_, seen)| seen.best()).fold(0.0, f64::max)
        };
        // A transfer over a long way is only known to be quick beside one over a short way.
        let (best, best_long) = (best_of(false), best_of(true));
        let is_near = |pair: &Pair, seen: &SeenLink| {
            seen.best() * FAR_FACTOR >= best.max(best_long) && (best > 0.0 || !self.is_long_way(pair))
        };
        let is_apart = |pair: &Pair| {
            let same_host = self.nodes[&pair.0].host == self.nodes[&pair.1].host;
            !same_host
                && self.is_long_way(pair)
                && self.pairs.get(pair).is_none_or(|seen| !is_near(pair, seen))
        };
        if apart().all(|(pair, seen)| is_near(pair, seen)) && !self.round_trips.keys().any(is_apart) {
            return None;
        }
        let mut groups = Groups::new(ids.len());
        let mut by_host: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, node) in self.nodes.values().enumerate() {
            let first = *by_host.entry(&node.host).or_insert(i);
            groups.join(first, i);
        }
        for ((a, b), _) in apart().filter(|(pair, seen)| is_near(pair, seen)) {
            groups.join(at(*a), at(*b));
        }
        // Between groups nothing is near, so what was seen there is evidence that they are apart.
        let mut n_far: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for ((a, b), seen) in apart() {
            let (a, b) = (groups.find(at(*a)), groups.find(at(*b)));
            if a != b {
                *n_far.entry((a.min(b), a.max(b))).or_default() += seen.n;
            }
        }
        for (a, b) in self.round_trips.keys().filter(|pair| is_apart(pair)) {
            let (a, b) = (groups.find(at(*a)), groups.find(at(*b)));
            if a != b {
                *n_far.entry((a.min(b), a.max(b))).or_default() += FAR_TRANSFERS_MIN;
            }
        }
        let site_at = sites_of(&mut groups, ids.len(), &n_far);
        let n_sites = site_at.iter().max().map_or(0, |s| s + 1);
        if n_sites < 2 {
            return None;
        }
        let mut sites = vec![vec![]; n_sites];
        let mut home = vec![Link::default(); n_sites];
        let mut links = vec![Link::default(); n_sites * n_sites];
        for ((i, node), site) in self.nodes.values().enumerate().zip(&site_at) {
            sites[*site].push(ids[i]);
            home[*site].add(&node.home);
        }
        for ((a, b), seen) in &self.pairs {
            let (a, b) = (site_at[at(*a)], site_at[at(*b)]);
            links[a * n_sites + b].add(seen);
            if a != b {
                links[b * n_sites + a].add(seen);
            }
        }
        let site_of = ids.iter().copied().zip(site_at.iter().map(|s| *s as u32)).collect();
        Some(Sites { sites, site_of, links, home })
    }
}

/// The site of each executor, by its index. Groups become sites from the largest to the smallest. A group joins the
/// first site that it is not known to be apart from. Sites are numbered by their first executors.
fn sites_of(groups: &mut Groups, n: usize, n_far: &BTreeMap<(usize, usize), u32>) -> Vec<usize> {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for i in 0..n {
        *sizes.entry(groups.find(i)).or_default() += 1;
    }
    let mut order: Vec<usize> = sizes.keys().copied().collect();
    order.sort_by_key(|group| (std::cmp::Reverse(sizes[group]), *group));
    // The evidence between each group and each site so far.
    let mut neighbours: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for (&(a, b), &n) in n_far {
        neighbours.entry(a).or_default().push((b, n));
        neighbours.entry(b).or_default().push((a, n));
    }
    let mut site_of_group: BTreeMap<usize, usize> = BTreeMap::new();
    let mut n_sites = 0;
    for group in order {
        let mut far = vec![0; n_sites];
        for (other, n) in neighbours.get(&group).into_iter().flatten() {
            if let Some(&site) = site_of_group.get(other) {
                far[site] += n;
            }
        }
        let joined = far.iter().position(|n| *n < FAR_TRANSFERS_MIN);
        site_of_group.insert(group, joined.unwrap_or(n_sites));
        n_sites += usize::from(joined.is_none());
    }
    let mut numbers = vec![None; n_sites];
    let mut n_numbered = 0;
    (0..n)
        .map(|i| {
            let site = site_of_group[&groups.find(i)];
            *numbers[site].get_or_insert_with(|| {
                n_numbered += 1;
                n_numbered - 1
            })
        })
        .collect()
}

/// Sets that are joined; each is named by its smallest member.
struct Groups(Vec<usize>);

impl Groups {
    fn new(n: usize) -> Groups {
        Groups((0..n).collect())
    }

    fn find(&mut self, i: usize) -> usize {
        let mut root = i;
        while self.0[root] != root {
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}
