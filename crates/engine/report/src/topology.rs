//! The network of a cluster, as its transfers have shown it: `eyas topology`.
//!
//! In: the logs of one cluster's dispatchers. Out: a [`Topology`]: the sites that the nodes fall into, and for each two nodes between
//! which something moved, and for each node and home, the rate, the latency and the number of transfers behind both. The sites and
//! the rates are those of [`eyas_core::network`], which placement uses; a log is evidence whether or not placement used it.
//!
//! A node is known by its name, so an executor that joined again, or another dispatcher's, is the same node. Latency is the time of the
//! quickest transfer of less than a mebibyte, with all that belongs to a transfer, so it is an upper bound.
//!
//! Nothing is measured here: a pair of nodes between which nothing moved is not in the result.

use crate::error::Error;
use crate::fold::Fold;
use crate::lines::{Entry, name_of};
use crate::units;
use eyas_core::event::Event;
use eyas_core::network::{Link, Moved, Network, OBSERVED_BYTES_MIN, moved};
use eyas_terms::ExecutorId;
use eyas_text::{line_of, markup};
use serde::Serialize;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write;
use std::path::PathBuf;

/// More pairs of nodes than this are counted in the text, not listed.
const PAIRS_LISTED_MAX: usize = 60;
/// From so many transfers on, a rate is called good, and from so many on, fair.
const N_GOOD: u32 = 16;
const N_FAIR: u32 = 3;

/// What is known of the network.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Topology {
    /// The nodes of each site. One site: nothing has shown that there are more.
    pub sites: Vec<Vec<String>>,
    /// Between sites and inside them, where there are several.
    pub between_sites: Vec<SiteLine>,
    /// Between nodes.
    pub pairs: Vec<PairLine>,
    /// Between a node and home.
    pub home: Vec<HomeLine>,
}

/// The link between two sites, or inside one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SiteLine {
    /// Numbers of sites, the first is 1.
    pub a: usize,
    pub b: usize,
    #[serde(flatten)]
    pub seen: SeenLink,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairLine {
    pub a: String,
    pub b: String,
    #[serde(flatten)]
    pub seen: SeenLink,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HomeLine {
    pub node: String,
    #[serde(flatten)]
    pub seen: SeenLink,
}

/// What transfers have shown of one link.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SeenLink {
    /// Recent transfers that were large enough to say something of the rate.
    pub n_transfers: u32,
    /// Of the best of these transfers.
    pub best_bytes_per_s: Option<f64>,
    /// Of all of them together.
    pub usual_bytes_per_s: Option<f64>,
    /// The time of the quickest small transfer.
    pub latency_ns: Option<u64>,
}

impl SeenLink {
    fn new(link: &Link, latency_ns: Option<u64>) -> SeenLink {
        SeenLink {
            n_transfers: link.n_transfers,
            best_bytes_per_s: (link.n_transfers > 0).then_some(link.best_bytes_per_s),
            usual_bytes_per_s: link.bytes_per_s(),
            latency_ns,
        }
    }

    fn is_empty(&self) -> bool {
        self.n_transfers == 0 && self.latency_ns.is_none()
    }

    /// How much the rate can be relied on.
    pub fn confidence(&self) -> &'static str {
        match self.n_transfers {
            0 => "none",
            1..N_FAIR => "low",
            N_FAIR..N_GOOD => "fair",
            _ => "good",
        }
    }

    fn cells(&self) -> [String; 5] {
        let rate = |rate: Option<f64>| rate.map_or("not known".into(), units::rate);
        [
            rate(self.best_bytes_per_s),
            rate(self.usual_bytes_per_s),
            self.latency_ns.map_or("not known".into(), units::duration),
            units::count(u64::from(self.n_transfers)),
            self.confidence().into(),
        ]
    }
}

#[derive(Default)]
struct NetworkReader {
    network: Network,
    numbers: BTreeMap<String, ExecutorId>,
    /// The executors of the dispatcher process whose lines are read.
    of_life: BTreeMap<ExecutorId, ExecutorId>,
    /// By both ends, the smaller one first; an executor and no other: home.
    latency_ns: BTreeMap<(ExecutorId, Option<ExecutorId>), u64>,
}

impl NetworkReader {
    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Header(_) => self.of_life.clear(),
            Entry::In(_, Event::ExecutorJoined { executor, offer, .. }) => {
                let next = ExecutorId(self.numbers.len() as u32);
                let number = *self.numbers.entry(offer.name.clone()).or_insert(next);
                if number == next {
                    self.network.executor_joined(number, &offer.host());
                }
                self.of_life.insert(*executor, number);
            }
            Entry::In(_, Event::AttemptEnded { executor, report }) => {
                let Some(&to) = self.of_life.get(executor) else { return };
                for (source, moved) in moved(report.inputs.iter()) {
                    let from = match source.map(|from| self.of_life.get(&from)) {
                        None => None,
                        Some(Some(&from)) => Some(from),
                        Some(None) => continue,
                    };
                    self.observe(to, from, moved);
                }
            }
            Entry::In(_, Event::PeersProbed { executor, round_trips }) => {
                let Some(&executor) = self.of_life.get(executor) else { return };
                for (peer, round_trip_ns) in round_trips {
                    if let Some(&peer) = self.of_life.get(peer) {
                        self.network.observe_round_trip(executor, peer, *round_trip_ns);
                    }
                }
            }
            _ => {}
        }
    }

    fn observe(&mut self, to: ExecutorId, from: Option<ExecutorId>, Moved { bytes, wait_ns }: Moved) {
        if bytes < OBSERVED_BYTES_MIN && bytes > 0 && wait_ns > 0 && from != Some(to) {
            let key = from.map_or((to, None), |from| (to.min(from), Some(to.max(from))));
            let least = self.latency_ns.entry(key).or_insert(wait_ns);
            *least = wait_ns.min(*least);
        }
        self.network.observe(to, from, bytes, wait_ns);
    }

    fn finish(mut self) -> Topology {
        self.network.settle();
        let names: BTreeMap<ExecutorId, &String> =
            self.numbers.iter().map(|(name, id)| (*id, name)).collect();
        let name = |executor: ExecutorId| names[&executor].clone();
        let sites: Vec<Vec<ExecutorId>> = match self.network.sites() {
            Some(sites) => sites.sites.clone(),
            None if names.is_empty() => vec![],
            None => vec![names.keys().copied().collect()],
        };
        let site_of = |executor: ExecutorId| sites.iter().position(|site| site.contains(&executor));
        let between = |a: usize, b: usize| {
            let of = |(x, y): &(ExecutorId, Option<ExecutorId>)| {
                let ends = (site_of(*x), y.and_then(site_of));
                ends == (Some(a), Some(b)) || ends == (Some(b), Some(a))
            };
            self.latency_ns.iter().filter(|(ends, _)| of(ends)).map(|(_, ns)| *ns).min()
        };
        let mut topology = Topology::default();
        if let Some(found) = self.network.sites() {
            let n = found.sites.len();
            topology.between_sites = (0..n)
                .flat_map(|a| (a..n).map(move |b| (a, b)))
                .map(|(a, b)| SiteLine {
                    a: a + 1,
                    b: b + 1,
                    seen: SeenLink::new(found.link(a as u32, b as u32), between(a, b)),
                })
                .collect();
        }
        let mut links: BTreeMap<(ExecutorId, ExecutorId), Link> = self.network.links().collect();
        for (a, b) in self.latency_ns.keys() {
            if let Some(b) = b {
                links.entry((*a, *b)).or_default();
            }
        }
        for ((a, b), link) in links {
            let seen = SeenLink::new(&link, self.latency_ns.get(&(a, Some(b))).copied());
            topology.pairs.push(PairLine { a: name(a), b: name(b), seen });
        }
        for (node, link) in self.network.home_links() {
            let seen = SeenLink::new(&link, self.latency_ns.get(&(node, None)).copied());
            if !seen.is_empty() {
                topology.home.push(HomeLine { node: name(node), seen });
            }
        }
        topology.sites = sites.iter().map(|site| site.iter().map(|node| name(*node)).collect()).collect();
        topology
    }
}

/// Reads the network from the logs in the dispatchers' directories `dirs`.
pub fn topology(dirs: &[PathBuf]) -> Result<Topology, Error> {
    const NAMES: [&[u8]; 3] = [b"executor_joined", b"attempt_ended", b"peers_probed"];
    let mut reader = NetworkReader::default();
    for dir in dirs {
        let wanted = |line: &[u8]| name_of(line).is_some_and(|name| NAMES.contains(&name));
        Fold::of_runs().read(dir, wanted, |_, entry, _| reader.take(entry))?;
    }
    Ok(reader.finish())
}

/// The topology as text, which ends with a line end.
pub fn topology_lines(topology: &Topology) -> String {
    let mut text = String::new();
    if topology.pairs.is_empty() && topology.home.is_empty() {
        return "No transfer has shown anything of this network yet. Run tasks that read files, and ask again.\n".into();
    }
    match topology.sites.len() {
        1 => text.push_str("The network is one site, as far as transfers have shown.\n"),
        n => {
            writeln!(text, "{n} sites:").expect("a string");
            for (i, nodes) in topology.sites.iter().enumerate() {
                let names: Vec<String> = nodes.iter().map(|node| line_of(node).to_string()).collect();
                writeln!(text, "  site {}: {}", i + 1, names.join(", ")).expect("a string");
            }
        }
    }
    let between = topology.between_sites.iter().map(|SiteLine { a, b, seen }| match a == b {
        true => (format!("inside site {a}"), *seen),
        false => (format!("site {a} – site {b}"), *seen),
    });
    table(&mut text, "sites", &between.collect::<Vec<_>>());
    let pairs = topology.pairs.iter();
    let pairs: Vec<(String, SeenLink)> =
        pairs.map(|pair| (format!("{} – {}", line_of(&pair.a), line_of(&pair.b)), pair.seen)).collect();
    table(&mut text, "nodes", &pairs[..pairs.len().min(PAIRS_LISTED_MAX)]);
    if pairs.len() > PAIRS_LISTED_MAX {
        let more = pairs.len() - PAIRS_LISTED_MAX;
        writeln!(text, "and {more} more pairs of nodes; --json has all").expect("a string");
    }
    let home = topology.home.iter().map(|home| (format!("home – {}", line_of(&home.node)), home.seen));
    table(&mut text, "home", &home.collect::<Vec<_>>());
    text
}

fn table(text: &mut String, what: &str, rows: &[(String, SeenLink)]) {
    if rows.is_empty() {
        return;
    }
    let head = [what, "best rate", "usual rate", "latency", "transfers", "confidence"].map(String::from);
    let mut all = vec![head];
    for (name, seen) in rows {
        let [best, usual, latency, n, confidence] = seen.cells();
        all.push([name.clone(), best, usual, latency, n, confidence]);
    }
    let width = |i: usize| all.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    text.push('\n');
    for row in &all {
        let mut line = format!("{:<w$}", row[0], w = widths[0]);
        for (cell, w) in row[1..].iter().zip(&widths[1..]) {
            write!(line, "  {cell:>w$}").expect("a string");
        }
        writeln!(text, "{}", line.trim_end()).expect("a string");
    }
}

const SIDE: f64 = 900.0;

/// The topology as a drawing: each site a ring of its nodes, home in the middle, and a line for each link that was seen. A line is the
/// wider, the faster its link.
pub fn topology_svg(topology: &Topology) -> String {
    let n_sites = topology.sites.len().max(1);
    let around = |n: usize, i: usize, of: (f64, f64), radius: f64| {
        let angle = TAU * (i as f64 / n as f64 - 0.25);
        (of.0 + radius * angle.cos(), of.1 + radius * angle.sin())
    };
    let middle = (SIDE / 2.0, SIDE / 2.0);
    let ring = if n_sites == 1 { SIDE * 0.36 } else { (SIDE * 0.7 / n_sites as f64).min(SIDE * 0.14) };
    let centre = |site: usize| match n_sites {
        1 => middle,
        n => around(n, site, middle, SIDE * 0.32),
    };
    let mut at: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (site, nodes) in topology.sites.iter().enumerate() {
        for (i, node) in nodes.iter().enumerate() {
            at.insert(node, around(nodes.len(), i, centre(site), ring));
        }
    }
    let rates = topology.pairs.iter().map(|pair| pair.seen).chain(topology.home.iter().map(|home| home.seen));
    let most = rates.filter_map(|seen| seen.best_bytes_per_s).fold(1.0, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIDE} {SIDE}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let mut line = |from: (f64, f64), to: (f64, f64), seen: &SeenLink, name: &str, colour: &str| {
        let Some(best) = seen.best_bytes_per_s else { return };
        // A link of a thousandth of the best rate is still seen.
        let width = (4.0 + (best / most).max(1e-3).log10() * 1.2).max(0.4);
        let [best, usual, latency, n, confidence] = seen.cells();
        writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width:.2}\"><title>{}: \
             best {best}, usually {usual}, latency {latency}, {n} transfers, confidence {confidence}</title></line>",
            from.0,
            from.1,
            to.0,
            to.1,
            markup(name)
        )
        .expect("a string");
    };
    for home in &topology.home {
        if let Some(to) = at.get(&home.node[..]) {
            line(middle, *to, &home.seen, &format!("home – {}", home.node), "#c9b458");
        }
    }
    for pair in &topology.pairs {
        if let (Some(a), Some(b)) = (at.get(&pair.a[..]), at.get(&pair.b[..])) {
            line(*a, *b, &pair.seen, &format!("{} – {}", pair.a, pair.b), "#5b8db8");
        }
    }
    for SiteLine { a, b, seen } in topology.between_sites.iter().filter(|line| line.a != line.b) {
        let ((ax, ay), (bx, by)) = (centre(a - 1), centre(b - 1));
        let rate = seen.best_bytes_per_s.map_or("not known".into(), units::rate);
        text(&mut svg, ((ax + bx) / 2.0, (ay + by) / 2.0), "#b03030", &rate);
    }
    if !topology.home.is_empty() {
        text(&mut svg, middle, "#7a6a20", "home");
    }
    for (node, (x, y)) in &at {
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"#2f5d83\"/>").expect("a string");
        text(&mut svg, (*x, *y - 10.0), "#222", node);
    }
    if n_sites > 1 {
        for site in 0..n_sites {
            text(&mut svg, centre(site), "#222", &format!("site {}", site + 1));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), colour: &str, text: &str) {
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" text-anchor=\"middle\" stroke=\"#fff\" stroke-width=\"3\" \
         paint-order=\"stroke\">{}</text>",
        markup(text)
    )
    .expect("a string");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(reader: &mut NetworkReader, to: u32, from: Option<u32>, bytes: u64, wait_ns: u64) {
        reader.observe(ExecutorId(to), from.map(ExecutorId), Moved { bytes, wait_ns });
    }

    /// Four nodes at two sites: 100 MB/s inside, 5 MB/s between them and from home to the second.
    fn two_sites() -> Topology {
        let mut reader = NetworkReader::default();
        for (i, name) in ["a1", "a2", "b1", "b<2>"].into_iter().enumerate() {
            reader.numbers.insert(name.into(), ExecutorId(i as u32));
            reader.network.executor_joined(ExecutorId(i as u32), name);
        }
        for _ in 0..4 {
            seen(&mut reader, 0, Some(1), 100_000_000, 1_000_000_000);
            seen(&mut reader, 3, Some(2), 100_000_000, 1_000_000_000);
            seen(&mut reader, 2, Some(1), 10_000_000, 2_000_000_000);
            seen(&mut reader, 0, None, 50_000_000, 1_000_000_000);
        }
        seen(&mut reader, 2, Some(0), 1_000, 40_000_000);
        seen(&mut reader, 0, Some(2), 1_000, 30_000_000);
        reader.finish()
    }

    #[test]
    fn sites_rates_and_latencies_come_from_transfers() {
        let topology = two_sites();
        assert_eq!(topology.sites, [vec!["a1", "a2"], vec!["b1", "b<2>"]]);
        let between = topology.between_sites.iter().find(|line| (line.a, line.b) == (1, 2)).expect("seen");
        assert_eq!((between.seen.best_bytes_per_s, between.seen.n_transfers), (Some(5e6), 4));
        assert_eq!(between.seen.latency_ns, Some(30_000_000));
        assert_eq!(between.seen.confidence(), "fair");
        let small =
            topology.pairs.iter().find(|pair| (&pair.a[..], &pair.b[..]) == ("a1", "b1")).expect("seen");
        assert_eq!((small.seen.n_transfers, small.seen.confidence()), (0, "none"));
        assert_eq!(topology.home.len(), 1);
        let text = topology_lines(&topology);
        assert!(text.starts_with("2 sites:\n  site 1: a1, a2\n  site 2: b1, b<2>\n"), "{text}");
        assert!(text.contains("site 1 – site 2"), "{text}");
    }

    #[test]
    fn the_drawing_has_all_nodes_and_no_name_is_markup() {
        let svg = topology_svg(&two_sites());
        assert_eq!(svg.matches("<circle").count(), 4);
        // Three pairs with a rate, and home.
        assert_eq!(svg.matches("<line").count(), 4);
        assert!(svg.contains("b&lt;2&gt;") && !svg.contains("b<2>"), "{svg}");
    }

    #[test]
    fn nothing_is_said_of_a_network_without_transfers() {
        let topology = NetworkReader::default().finish();
        assert_eq!(topology, Topology::default());
        assert!(topology_lines(&topology).starts_with("No transfer"));
        topology_svg(&topology);
    }
}
