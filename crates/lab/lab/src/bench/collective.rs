//! `eyas-lab bench multicast`, `gather` and `scatter`: one object to many nodes, many files to one, and many files from one,
//! over links of a known rate, beside the least time that the links allow.
//!
//! The nodes run the real data plane ([`super::net`]). The plan of who fetches from whom is made here, or by the core's own
//! function for a tree of archives, so the figures are those of the shapes and of the transfers, without a dispatcher.
//!
//! Not here: choosing a shape, which the core does.

use super::net::{Answer, Command, How, Net, Shape, Source};
use super::spaces::Busy;
use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::collective::cost::TREE_ARITY;
use eyas_core::collective::{Item, plan};
use eyas_data::Digest;
use eyas_terms::{ExecutorId, ObjectId};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a node may wait for the one before it in a chain or tree.
const WAIT_MS: u64 = 50_000;

#[derive(Args)]
struct NetArgs {
    /// Number of nodes beside the one that sends to all of them or receives from all of them
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=200))]
    nodes: u32,
    /// Rate of each node's link, in and out, in Mbit/s
    #[arg(long, default_value_t = 1000, value_name = "MBIT", value_parser = clap::value_parser!(u64).range(1..))]
    link: u64,
    /// Delay each answer by this time, in milliseconds (a relay does this, and costs processor time)
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    delay: f64,
    /// Number of rounds; each has all measurements, one after the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct MulticastArgs {
    /// Size of the object, in MB
    #[arg(long, default_value_t = 100, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    size: u64,
    /// Measure the pipelined chain and the bare streams only
    #[arg(long)]
    chain_only: bool,
    #[command(flatten)]
    net: NetArgs,
}

#[derive(Args)]
pub struct SpreadArgs {
    /// Number of files, spread evenly over the nodes
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    files: u64,
    /// Size of each file, in KB
    #[arg(long, default_value_t = 100, value_name = "KB", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    size: u64,
    #[command(flatten)]
    net: NetArgs,
}

impl NetArgs {
    fn start(&self, dir: &Path, cache_bytes: u64) -> Result<Net, Fault> {
        if !(0.0..=10_000.0).contains(&self.delay) {
            return Err(Fault::new(Exit::BadInput, "--delay is from 0 to 10000 ms"));
        }
        note(&format!("{} network namespaces, links of {} Mbit/s", self.nodes + 1, self.link));
        let delay = Duration::from_secs_f64(self.delay / 1e3);
        Net::start(dir, &Shape { n_nodes: self.nodes + 1, link_mbit: self.link, delay, cache_bytes })
    }

    fn link_bytes_per_s(&self) -> f64 {
        self.link as f64 * 1e6 / 8.0
    }
}

/// The cost of one measurement.
struct Cost {
    wall_s: f64,
    cpu_s: f64,
    /// Share of all processors that was busy, including the kernel's network and all other programs on the
    /// machine.
    busy: f64,
}

fn measure(net: &mut Net, work: impl FnOnce(&mut Net) -> Result<(), Fault>) -> Result<Cost, Fault> {
    let (busy, cpu, start) = (Busy::now(), net.cpu(), Instant::now());
    work(net)?;
    let wall_s = start.elapsed().as_secs_f64();
    Ok(Cost { wall_s, cpu_s: (net.cpu() - cpu).as_secs_f64(), busy: Busy::now().share_since(&busy) })
}

fn add_rows(table: &mut Table, what: &str, costs: &[Cost], ideal_s: f64, target: Option<[&'static str; 2]>) {
    let of = |part: fn(&Cost) -> f64| median(&costs.iter().map(part).collect::<Vec<_>>());
    let row = Row::new(what, of(|c| c.wall_s), "s").against("ideal", ideal_s);
    table.row(match target {
        Some([must, aim]) => row.target(must, aim),
        None => row,
    });
    table.row(Row::new("  processor time of the nodes", of(|c| c.cpu_s), "s"));
    table.row(Row::new("  processors busy", 100.0 * of(|c| c.busy), "%"));
}

/// Seconds for an object of one byte over an open connection: request, answer, store.
fn latency_s(net: &mut Net) -> Result<f64, Fault> {
    const N: u64 = 64;
    let digests = put(net, &[1], 1000, N, 8)?.remove(0);
    let objects: Vec<(Digest, u64)> = digests.iter().map(|digest| (*digest, 8)).collect();
    let mut times = Vec::new();
    for one in objects.chunks(1) {
        let from = vec![Source { node: 1, objects: one.to_vec() }];
        let command = Command::Fetch { from, wait_ms: 0, how: How::ObjectByObject };
        if let [Answer::Done { wall_ns }] = net.run(&[(0, command)])?[..] {
            times.push(wall_ns as f64 / 1e9);
        }
    }
    net.run(&[(0, Command::Drop { digests: digests.clone() }), (1, Command::Drop { digests })])?;
    Ok(median(&times))
}

/// Makes objects on each of `nodes`; gives the objects' digests by node.
fn put(
    net: &mut Net,
    nodes: &[u32],
    seed: u64,
    n_objects: u64,
    object_bytes: u64,
) -> Result<Vec<Vec<Digest>>, Fault> {
    let commands: Vec<(u32, Command)> = nodes
        .iter()
        .map(|&node| (node, Command::Put { seed: seed + u64::from(node), n_objects, object_bytes }))
        .collect();
    net.run(&commands)?
        .into_iter()
        .map(|answer| match answer {
            Answer::Made { digests } => Ok(digests),
            _ => Err(failed("a node gave another answer than was asked for")),
        })
        .collect()
}

pub fn multicast(args: &MulticastArgs) -> Result<Exit, Fault> {
    let size = args.size * 1_000_000;
    let n = args.net.nodes;
    args.net.common.run(|dir| {
        let mut net = args.net.start(dir, size + (1 << 20))?;
        let latency_s = latency_s(&mut net)?;
        let digest = put(&mut net, &[0], 1, 1, size)?[0][0];
        let n_rounds = f64::from(n).log2().ceil();
        let ideal_s = size as f64 / args.net.link_bytes_per_s() + n_rounds * latency_s;

        let fetch = |node: u32, from: u32| {
            let from = vec![Source { node: from, objects: vec![(digest, size)] }];
            (node, Command::Fetch { from, wait_ms: WAIT_MS, how: How::AllAtOnce })
        };
        let all_at_once =
            |parent: &dyn Fn(u32) -> u32| (1..=n).map(|node| fetch(node, parent(node))).collect();
        // Steps follow each other; the commands within a step run at the same time.
        type Steps = Vec<Vec<(u32, Command)>>;
        let from_source: Steps = vec![all_at_once(&|_| 0)];
        let chain: Steps = vec![all_at_once(&|node| node - 1)];
        let tree: Steps = vec![all_at_once(&|node| (node - 1) / 2)];
        let binomial: Steps = (0..)
            .map(|round| 1u32 << round)
            .take_while(|&n_have| n_have <= n)
            .map(|n_have| (n_have..(2 * n_have).min(n + 1)).map(|node| fetch(node, node - n_have)).collect())
            .collect();
        let plain: Steps =
            vec![(1..=n).map(|node| (node, Command::Plain { from: node - 1, n_bytes: size })).collect()];
        let mut shapes = vec![
            ("all from the source", from_source, None),
            ("binomial tree, whole objects", binomial, None),
            ("binary tree, passed on", tree, None),
            ("chain, passed on", chain, Some(["ratio 2.00", "1.15"])),
            // The time that the machine needs for the chain's links alone: no byte is stored, hashed or
            // passed on.
            ("plain streams over all links of the chain at once", plain, None),
        ];
        if args.chain_only {
            shapes.drain(..3);
        }
        let mut costs: Vec<Vec<Cost>> = shapes.iter().map(|_| vec![]).collect();
        for round in 1..=args.net.rounds {
            for ((name, steps, _), costs) in shapes.iter().zip(&mut costs) {
                let cost =
                    measure(&mut net, |net| steps.iter().try_for_each(|step| net.run(step).map(drop)))?;
                note(&format!("round {round}: {name}: {:.2} s, ideal {ideal_s:.2} s", cost.wall_s));
                costs.push(cost);
                let stored = matches!(steps[0][0].1, Command::Fetch { .. });
                let drop_all: Vec<(u32, Command)> = (1..=n)
                    .filter(|_| stored)
                    .map(|node| (node, Command::Drop { digests: vec![digest] }))
                    .collect();
                net.run(&drop_all)?;
            }
        }
        let mut table = Table::new(format!(
            "multicast: {} MB from one node to {n} others, links of {} Mbit/s",
            args.size, args.net.link
        ));
        for ((name, _, target), costs) in shapes.iter().zip(&costs) {
            add_rows(&mut table, name, costs, ideal_s, *target);
        }
        note_net(&mut table, latency_s, "size / rate of a link + log2(nodes) latencies");
        Ok(table)
    })
}

/// What a node holds or needs: its number, and its objects.
type Share = (u32, Vec<(Digest, u64)>);

/// The requests of a tree of archives between node 0 and the nodes of `shares`, as the core plans it.
fn along_a_tree(shares: &[Share], up: bool) -> Vec<(u32, Command)> {
    let objects: Vec<(Digest, u64)> = shares.iter().flat_map(|(_, objects)| objects).copied().collect();
    let nodes = shares.iter().flat_map(|(node, objects)| objects.iter().map(move |_| ExecutorId(*node)));
    let item = |(n, (_, size_bytes)): (usize, &(Digest, u64))| Item {
        object: ObjectId(n as u32),
        size_bytes: *size_bytes,
        at_home: false,
    };
    let legs: Vec<(ExecutorId, Item)> = nodes.zip(objects.iter().enumerate().map(item)).collect();
    let mut asked: BTreeMap<u32, BTreeMap<u32, Vec<(Digest, u64)>>> = BTreeMap::new();
    for want in plan::archive_tree(&legs, ExecutorId(0), TREE_ARITY, up) {
        let parent = want.parent.expect("each object comes from a node");
        let from = asked.entry(want.executor.0).or_default().entry(parent.0).or_default();
        from.push(objects[want.item.object.0 as usize]);
    }
    let fetch = |(node, from): (u32, BTreeMap<u32, Vec<(Digest, u64)>>)| {
        let from = from.into_iter().map(|(node, objects)| Source { node, objects }).collect();
        (node, Command::Fetch { from, wait_ms: WAIT_MS, how: How::AllAtOnce })
    };
    asked.into_iter().map(fetch).collect()
}

/// Drops what these requests brought.
fn drop_brought(net: &mut Net, commands: &[(u32, Command)]) -> Result<(), Fault> {
    let brought = commands.iter().filter_map(|(node, command)| match command {
        Command::Fetch { from, .. } => {
            let digests = from.iter().flat_map(|source| &source.objects).map(|(digest, _)| *digest).collect();
            Some((*node, Command::Drop { digests }))
        }
        _ => None,
    });
    net.run(&brought.collect::<Vec<_>>()).map(drop)
}

pub fn gather(args: &SpreadArgs) -> Result<Exit, Fault> {
    spread(args, true)
}

pub fn scatter(args: &SpreadArgs) -> Result<Exit, Fault> {
    spread(args, false)
}

/// Many files from all nodes to node 0 (`up`), or from there to all nodes.
fn spread(args: &SpreadArgs, up: bool) -> Result<Exit, Fault> {
    let n = args.net.nodes;
    let (size, per_node) = (args.size * 1000, args.files.div_ceil(u64::from(n)));
    let total_bytes = per_node * u64::from(n) * size;
    args.net.common.run(|dir| {
        let mut net = args.net.start(dir, total_bytes + (1 << 20))?;
        let latency_s = latency_s(&mut net)?;
        let ideal_s = total_bytes as f64 / args.net.link_bytes_per_s();
        let others: Vec<u32> = (1..=n).collect();
        let digests = match up {
            true => put(&mut net, &others, 1, per_node, size)?,
            false => {
                let all = put(&mut net, &[0], 1, per_node * u64::from(n), size)?.remove(0);
                all.chunks(per_node as usize).map(<[Digest]>::to_vec).collect()
            }
        };
        let sized = |digests: &Vec<Digest>| digests.iter().map(|d| (*d, size)).collect::<Vec<_>>();
        let shares: Vec<Share> = others.iter().copied().zip(digests.iter().map(sized)).collect();
        let straight = |how| -> Vec<(u32, Command)> {
            let source = |node, objects: &[(Digest, u64)]| Source { node, objects: objects.to_vec() };
            match up {
                true => {
                    let from = shares.iter().map(|(node, objects)| source(*node, objects)).collect();
                    vec![(0, Command::Fetch { from, wait_ms: 0, how })]
                }
                false => {
                    let fetch = |(node, objects): &Share| {
                        (*node, Command::Fetch { from: vec![source(0, objects)], wait_ms: 0, how })
                    };
                    shares.iter().map(fetch).collect()
                }
            }
        };
        let mut ways = vec![
            ("one file after the other", straight(How::ObjectByObject), None),
            ("batches, all nodes at once", straight(How::AllAtOnce), Some(["ratio 1.50", "1.20"])),
            ("archives along a tree of arity 4", along_a_tree(&shares, up), None),
        ];
        if up {
            ways.insert(1, ("batches, one holder after the other", straight(How::SourceBySource), None));
        }
        let mut costs: Vec<Vec<Cost>> = ways.iter().map(|_| vec![]).collect();
        for round in 1..=args.net.rounds {
            for ((name, commands, _), costs) in ways.iter().zip(&mut costs) {
                let cost = measure(&mut net, |net| net.run(commands).map(drop))?;
                note(&format!("round {round}: {name}: {:.2} s, ideal {ideal_s:.2} s", cost.wall_s));
                costs.push(cost);
                drop_brought(&mut net, commands)?;
            }
        }
        let (what, between) = match up {
            true => ("gather", format!("from {n} nodes to one")),
            false => ("scatter", format!("from one node to {n}")),
        };
        let mut table = Table::new(format!(
            "{what}: {} files of {} KB {between}, links of {} Mbit/s",
            per_node * u64::from(n),
            args.size,
            args.net.link
        ));
        for ((name, _, target), costs) in ways.iter().zip(&costs) {
            add_rows(&mut table, name, costs, ideal_s, *target);
        }
        let at_once = costs.len() - 2;
        let speedups: Vec<f64> =
            costs[0].iter().zip(&costs[at_once]).map(|(slow, fast)| slow.wall_s / fast.wall_s).collect();
        table.row(
            Row::new("  times as fast as one after the other", median(&speedups), "").target("5", "more"),
        );
        note_net(&mut table, latency_s, "bytes / rate of the one node's link");
        Ok(table)
    })
}

fn note_net(table: &mut Table, latency_s: f64, ideal: &str) {
    table.note(format!(
        "latency (one object of 8 bytes, asked for and stored): {:.2} ms; ideal: {ideal}. Headers of Ethernet, IP and TCP \
         take about 5 % of a link. Where the processors are busy all the time, they are what is measured.",
        latency_s * 1e3
    ));
}
