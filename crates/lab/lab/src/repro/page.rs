//! The page: figure by figure, the paper's number beside ours, with the command that gives ours.
//!
//! Everything above [`CLOCK`] follows from `results.json` alone and is the same text on every machine;
//! below it stand times that a clock measured. Explanations in prose are in `notes/`, one file per section;
//! a number that changes with the simulation does not belong there.

mod clock;

use super::format::{GBIT, NONE, Table, change, figure, head, per_cent, value};
use super::{About, Results, Timings, drawing, micro};
use clock::clock;
use eyas_cli::print::count;
use eyas_cli::{Exit, Fault};
use eyas_core::provisioning;
use eyas_papers::experiment::paper::{
    ALL_PAIRS, ASSUMPTIONS, IN_TURN, STACKING_CASES, STACKING_PROCESSORS, STACKING_VARIED, StackingCase,
};
use eyas_papers::experiment::provisioning as nodes;
use eyas_papers::experiment::{self, Chapter, Experiment, Load, Metric, best, beyond};
use eyas_papers::workload::mi::{MiConfig, arrival_rates};
use eyas_papers::workload::stacking::{Format, Locality, StackingConfig, TABLE_3, find_locality};
use eyas_sim::model::HitRatios;
use eyas_sim::model::expect::{self, Reuse};
use eyas_sim::model::predict::{self, ErrorSummary, relative_error};
use eyas_sim::outcome::Summary;
use std::collections::BTreeMap;

/// Below this heading, the numbers differ from run to run.
pub const CLOCK: &str = "## Measured with a clock";

/// The inputs of the page.
struct Sources<'a> {
    list: BTreeMap<String, Experiment>,
    results: &'a Results,
    has_figure: &'a dyn Fn(&str) -> bool,
}

/// The facts about each experiment that the figures need in addition to its results.
pub fn about(results: &Results) -> Result<BTreeMap<String, About>, Fault> {
    let list: BTreeMap<_, _> = experiment::all().into_iter().map(|e| (e.name.clone(), e)).collect();
    let sources = Sources { list, results, has_figure: &|_| false };
    let mut modelled = BTreeMap::new();
    for locality in TABLE_3 {
        for case in STACKING_CASES {
            for n in STACKING_PROCESSORS {
                if let Some(m) = sources.modelled(case, locality, n)? {
                    modelled.insert(case.name(locality, n), m.before_s);
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    for e in sources.list.values().filter(|e| results.experiments.contains_key(&e.name)) {
        let is_all_pairs = matches!(e.load, Load::AllPairs(_));
        let about = About {
            what: e.what.clone(),
            figure: e.figure.into(),
            paper: e.said.iter().map(|said| (said.metric, said.value)).collect(),
            all_local_s: if is_all_pairs { Some(sources.all_local_s(e)?) } else { None },
            modelled_s: modelled.get(&e.name).copied(),
        };
        all.insert(e.name.clone(), about);
    }
    Ok(all)
}

pub fn page(
    results: &Results,
    timings: &Timings,
    has_figure: &dyn Fn(&str) -> bool,
) -> Result<String, Fault> {
    let list = experiment::all().into_iter().map(|e| (e.name.clone(), e)).collect();
    let sources = Sources { list, results, has_figure };
    let n_missing = sources.list.keys().filter(|name| !results.experiments.contains_key(*name)).count();
    let mut text = include_str!("notes/head.md").to_string();
    if n_missing > 0 {
        text += &format!(
            "\n**Not everything is here:** {} of {} experiments were not run, and show as {NONE}.\n",
            n_missing,
            sources.list.len()
        );
    }
    let failed: Vec<String> = results.experiments.iter().filter_map(|(name, s)| trouble(name, s)).collect();
    text += &failed.concat();
    text += &micro::section(&results.micro, &|name, title| sources.figure(name, title));
    text += &sources.mi()?;
    text += &sources.sw();
    text += &sources.provisioning();
    text += &sources.all_pairs()?;
    text += &sources.stacking()?;
    text += &sources.model()?;
    text += &sources.beyond()?;
    text += &clock(&sources, timings);
    Ok(text)
}

/// A sentence if not every task ended well.
fn trouble(name: &str, s: &Summary) -> Option<String> {
    (s.n_done < s.n_tasks).then(|| {
        format!(
            "\n**{name}: {} of {} tasks did not end well:** {}\n",
            count(s.n_tasks - s.n_done),
            count(s.n_tasks),
            s.failure.as_deref().unwrap_or("no reason is given")
        )
    })
}

fn other(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::Other, e)
}

fn command(name: &str) -> String {
    format!("`eyas-lab repro --only {name}`")
}

impl Sources<'_> {
    fn summary(&self, name: &str) -> Option<&Summary> {
        self.results.experiments.get(name)
    }

    fn of_chapter(&self, chapter: Chapter) -> Vec<&Experiment> {
        // The list is in the order of the paper, which is not the order of the names.
        let order: Vec<String> = experiment::all().into_iter().map(|e| e.name).collect();
        order.iter().filter_map(|name| self.list.get(name)).filter(|e| e.chapter == chapter).collect()
    }

    /// A drawing, if there is one.
    fn figure(&self, name: &str, what: &str) -> String {
        drawing(self.has_figure, name, what)
    }

    /// The time with all data on local disks: the reference of efficiency where all tasks are there at
    /// once.
    fn all_local_s(&self, e: &Experiment) -> Result<f64, Fault> {
        let Load::AllPairs(config) = &e.load else { return Ok(0.0) };
        let workload = predict::Workload {
            n_tasks: e.n_tasks(),
            accesses_per_task: 2.0,
            object_bytes: config.item_bytes as f64,
            compute_s: config.compute_ns as f64 * 1e-9 / e.machine.speed,
        };
        best::all_local_s(&e.machine, &workload).map_err(other)
    }

    /// The makespan that the paper gives, or that follows from the paper's efficiency.
    fn said_makespan_s(&self, e: &Experiment) -> Result<Option<f64>, Fault> {
        if let Some(said) = e.said(Metric::MakespanS) {
            return Ok(Some(said.value));
        }
        let local_s = self.all_local_s(e)?;
        Ok(e.said(Metric::Efficiency).filter(|_| local_s > 0.0).map(|said| local_s / said.value))
    }

    fn measured(&self, e: &Experiment, metric: Metric) -> Result<Option<f64>, Fault> {
        let Some(s) = self.summary(&e.name) else { return Ok(None) };
        let speedup = |s: &Summary| self.summary("mi-fa").map(|fa| fa.makespan_s / s.makespan_s);
        let index = |s: &Summary| speedup(s).map(|up| up / s.cpu_hours);
        Ok(match metric {
            Metric::MakespanS => Some(s.makespan_s),
            Metric::Efficiency if matches!(e.load, Load::AllPairs(_)) => {
                Some(self.all_local_s(e)? / s.makespan_s)
            }
            Metric::Efficiency => Some(s.efficiency()),
            Metric::LocalShare => Some(s.local_ratio()),
            Metric::PeerShare => Some(s.peer_ratio()),
            Metric::HomeShare => Some(s.home_ratio()),
            Metric::Throughput => Some(s.throughput_mean_bytes_per_s),
            Metric::ThroughputP99 => Some(s.throughput_p99_bytes_per_s),
            Metric::ResponseS => Some(s.response_mean_s),
            Metric::QueueMax => Some(s.queue_max as f64),
            Metric::CpuHours => Some(s.cpu_hours),
            Metric::Utilisation => Some(s.utilisation),
            Metric::Speedup => speedup(s),
            Metric::PerformanceIndex => {
                let others = self.of_chapter(Chapter::Mi);
                let shown = others.iter().filter(|e| !e.figure.is_empty());
                let most = shown.filter_map(|e| index(self.summary(&e.name)?)).fold(0.0, f64::max);
                index(s).map(|index| index / most)
            }
            Metric::PeerBytes => Some(s.moved_peer_bytes as f64),
            Metric::HomeBytes => Some(s.moved_home_bytes as f64),
        })
    }

    /// Paper and eyas side by side for each metric.
    fn table(&self, experiments: &[&Experiment], metrics: &[Metric]) -> Result<String, Fault> {
        let mut heads = vec![String::new()];
        for metric in metrics {
            heads.extend([format!("{}: paper", head(*metric)), "eyas".into()]);
        }
        heads.push("command".into());
        let mut table = Table::new(heads);
        for e in experiments {
            let mut cells = vec![e.what.clone()];
            for metric in metrics {
                cells.push(e.said(*metric).map_or(NONE.into(), |said| value(*metric, said.value)));
                cells.push(self.measured(e, *metric)?.map_or(NONE.into(), |v| value(*metric, v)));
            }
            cells.push(command(&e.name));
            table.row(cells);
        }
        Ok(table.text())
    }

    // ------------------------------------------------------------ §5.1

    fn mi(&self) -> Result<String, Fault> {
        use Metric::*;
        let all = self.of_chapter(Chapter::Mi);
        let shown: Vec<&Experiment> = all.iter().copied().filter(|e| !e.figure.is_empty()).collect();
        let (rates, _) = arrival_rates(&MiConfig::default()).map_err(other)?;
        let mut text = include_str!("notes/mi.md").to_string();
        text += &self.figure("fig-16-mi", "Figure 16: arrival rate and tasks of MI");
        text += "### Times (figures 17 to 23, 26)\n\n";
        text += &self.table(&all, &[MakespanS, Efficiency, Speedup])?;
        for e in &shown {
            let what = format!("Figure {}: MI, {}", e.figure, e.what);
            text += &self.figure(&format!("fig-{}-{}", e.figure, e.name), &what);
        }
        text += "### Cache performance (figure 24)\n\n";
        text += &self.table(&all, &[LocalShare, PeerShare, HomeShare])?;
        text += &self.figure("fig-24-mi-hits", "Figure 24: where inputs were found");
        text += "### Throughput (figure 25)\n\n";
        text += &self.table(&all, &[Throughput, ThroughputP99])?;
        text += &self.figure("fig-25-mi-throughput", "Figure 25: average and 99th percentile throughput");
        text += "### Performance index, CPU hours, utilisation (figure 26)\n\n";
        text += &self.table(&all, &[PerformanceIndex, CpuHours, Utilisation])?;
        text += &self.figure("fig-26-mi-index", "Figure 26: performance index and speed-up");
        text += "### Slowdown by arrival rate (figure 27)\n\n";
        text += &self.slowdown(&shown, &rates);
        text += &self.figure("fig-27-mi-slowdown", "Figure 27: slowdown by arrival rate");
        text += "### Response time and queue (figure 28)\n\n";
        text += &self.table(&all, &[ResponseS, QueueMax])?;
        text += &self.figure("fig-28-mi-response", "Figure 28: average response time");
        text += include_str!("notes/mi-why.md");
        Ok(text)
    }

    fn slowdown(&self, shown: &[&Experiment], rates: &[u64]) -> String {
        // §5.1.1, §5.1.2: the rate up to which each policy kept up.
        let kept_up = [("mi-fa", "59"), ("mi-gcc-1gb", "101"), ("mi-gcc-1.5gb", "132"), ("mi-mcu", "380")];
        let mut heads = vec!["tasks/s".to_string()];
        heads.extend(shown.iter().map(|e| e.what.clone()));
        let mut table = Table::new(heads);
        for (i, rate) in rates.iter().enumerate() {
            let cell = |e: &&Experiment| {
                let slowdown = self.summary(&e.name).and_then(|s| slowdowns(s).get(i).copied());
                slowdown.map_or(NONE.into(), |slowdown| format!("{slowdown:.2}"))
            };
            table.row([vec![rate.to_string()], shown.iter().map(cell).collect()].concat());
        }
        let said = |e: &&Experiment| {
            kept_up
                .iter()
                .find(|(name, _)| *name == e.name)
                .map_or(NONE.to_string(), |(_, rate)| format!("{rate}/s"))
        };
        table.row([vec!["keeps up to: paper".into()], shown.iter().map(said).collect()].concat());
        let ours = |e: &&Experiment| {
            let all = self.summary(&e.name).map(slowdowns).unwrap_or_default();
            keeps_up_to(&all, rates).map_or(NONE.into(), |rate| format!("{rate}/s"))
        };
        table.row([vec!["keeps up to: eyas".into()], shown.iter().map(ours).collect()].concat());
        table.text()
    }

    // ------------------------------------------------------------ §5.2

    fn sw(&self) -> String {
        use Metric::*;
        let all = self.of_chapter(Chapter::Sw);
        let mut text = include_str!("notes/sw.md").to_string();
        text += &self.figure("fig-29-sw", "Figure 29: arrival rate and tasks of SW");
        for metrics in [
            &[MakespanS, Efficiency, CpuHours][..],
            &[ThroughputP99, QueueMax, ResponseS],
            &[LocalShare, PeerShare, HomeShare],
        ] {
            text += &self.table(&all, metrics).unwrap_or_default();
        }
        for e in &all {
            let what = format!("Figure {}: SW, {}", e.figure, e.what);
            text += &self.figure(&format!("fig-{}-{}", e.figure, e.name), &what);
        }
        text + include_str!("notes/sw-why.md")
    }

    /// Each policy beside the static pool.
    fn provisioning(&self) -> String {
        let mut text = include_str!("notes/provisioning.md").to_string();
        for (workload, what) in nodes::WORKLOADS {
            text += &format!("### {what}\n\n");
            let mut table = Table::new([
                "policy",
                "node hours",
                "of the static pool's",
                "response",
                "against the static pool",
                "makespan",
                "nodes, most",
                "command",
            ]);
            let summary = |policy: &str| self.summary(&nodes::name(workload, policy));
            let base = summary(provisioning::growth::STATIC);
            for policy in provisioning::NAMES {
                let name = nodes::name(workload, policy);
                let slots = self.list.get(&name).map_or(1.0, |e| f64::from(e.machine.slots_per_node));
                let s = summary(policy);
                let cell = |of: &dyn Fn(&Summary) -> String| s.map_or(NONE.into(), of);
                let beside = |of: fn(&Summary) -> f64| s.zip(base).map(|(s, base)| of(s) / of(base));
                table.row(vec![
                    format!("`{policy}`"),
                    cell(&|s| figure(s.cpu_hours / slots)),
                    beside(|s| s.cpu_hours).map_or(NONE.into(), per_cent),
                    cell(&|s| format!("{} s", figure(s.response_mean_s))),
                    beside(|s| s.response_mean_s).map_or(NONE.into(), |r| format!("{} ×", figure(r))),
                    cell(&|s| format!("{} s", figure(s.makespan_s))),
                    cell(&|s| s.n_nodes_max.to_string()),
                    command(&name),
                ]);
            }
            text += &table.text();
        }
        text + include_str!("notes/provisioning-why.md")
    }

    // ------------------------------------------------------------ §5.3

    fn all_pairs(&self) -> Result<String, Fault> {
        use Metric::*;
        let mut all = self.of_chapter(Chapter::AllPairs);
        all.retain(|e| !e.said.is_empty());
        let mut text = include_str!("notes/allpairs.md").to_string();
        text += &self.table(&all, &[Efficiency, MakespanS])?;
        for (name, what, number, ..) in ALL_PAIRS {
            text +=
                &self.figure(&format!("fig-{number}-{name}"), &format!("Figure {number}: All-Pairs {what}"));
        }
        text += "### Efficiency (figure 40)\n\n";
        let mut table = Table::new([
            "",
            "all local",
            "active storage: paper",
            "in rounds",
            "pipelined",
            "data diffusion: paper",
            "eyas",
            "eyas, inputs in turn",
        ]);
        let said = [Some(0.96), None, Some(0.35), Some(0.27)];
        let mut bytes = Table::new([
            "",
            "",
            "local disk or memory: paper",
            "eyas",
            "between nodes: paper",
            "eyas",
            "shared file system: paper",
            "eyas",
            "command",
        ]);
        // Table 2's rows of the best case: bytes between nodes, and from home.
        let network_gb = [1536.0, 1536.0, 12288.0, 12288.0];
        for (i, (name, what, ..)) in ALL_PAIRS.into_iter().enumerate() {
            let Some(e) = self.list.get(name) else { continue };
            let Load::AllPairs(config) = &e.load else { continue };
            let local_s = self.all_local_s(e)?;
            let data_bytes = 2.0 * f64::from(config.n) * config.item_bytes as f64;
            let best = best::active_storage(&e.machine, data_bytes, local_s);
            let share = |value: Option<f64>| value.map_or(NONE.into(), per_cent);
            table.row(vec![
                what.into(),
                format!("{} s", figure(local_s)),
                share(said[i]),
                per_cent(best.rounds_efficiency),
                per_cent(best.pipelined_efficiency),
                share(e.said(Efficiency).map(|said| said.value)),
                share(self.measured(e, Efficiency)?),
                share(match self.list.get(&format!("{name}{IN_TURN}")) {
                    Some(e) => self.measured(e, Efficiency)?,
                    None => None,
                }),
            ]);
            let read_gb = e.n_tasks() as f64 * 2.0 * config.item_bytes as f64 / 1e9;
            let gb = |value: f64| figure(value / 1e9);
            bytes.row(vec![
                what.into(),
                "active storage".into(),
                figure(read_gb),
                figure(read_gb),
                figure(network_gb[i]),
                gb(best.network_bytes),
                gb(data_bytes),
                gb(best.home_bytes),
                String::new(),
            ]);
            let s = self.summary(name);
            let of = |f: fn(&Summary) -> u64| s.map_or(NONE.into(), |s| gb(f(s) as f64));
            bytes.row(vec![
                String::new(),
                "data diffusion".into(),
                figure(read_gb),
                of(|s| s.local_bytes + s.peer_bytes + s.home_bytes),
                e.said(PeerBytes).map_or(NONE.into(), |said| gb(said.value)),
                of(|s| s.moved_peer_bytes),
                e.said(HomeBytes).map_or(NONE.into(), |said| gb(said.value)),
                of(|s| s.moved_home_bytes),
                command(name),
            ]);
        }
        text += &table.text();
        text += &self.figure("fig-40-allpairs", "Figure 40: efficiency of All-Pairs");
        text += "### Bytes (table 2), in GB\n\n";
        text += &bytes.text();
        text += &self.tiles();
        text += include_str!("notes/allpairs-assumptions.md");
        text += &self.assumptions();
        text += include_str!("notes/allpairs-why.md");
        Ok(text)
    }

    /// The paper's numbers, ours, and ours with one thing at a time otherwise.
    fn assumptions(&self) -> String {
        use Metric::*;
        let plain: Vec<&Experiment> =
            ALL_PAIRS.iter().filter_map(|(name, ..)| self.list.get(*name)).collect();
        let row = |what: &str, cell: &dyn Fn(&Experiment) -> String| {
            std::iter::once(what.to_string()).chain(plain.iter().map(|e| cell(e))).collect::<Vec<_>>()
        };
        let heads: Vec<&str> = std::iter::once("").chain(ALL_PAIRS.map(|(_, what, ..)| what)).collect();
        let mut times = Table::new([heads.clone(), vec!["command"]].concat());
        let mut bytes = Table::new(heads);
        let said = |e: &Experiment, metric| e.said(metric).map_or(f64::NAN, |said| said.value);
        let gb = |peer: f64, home: f64| format!("{}; {}", figure(peer / 1e9), figure(home / 1e9));
        times.row([row("paper", &|e| per_cent(said(e, Efficiency))), vec![String::new()]].concat());
        bytes.row(row("paper", &|e| gb(said(e, PeerBytes), said(e, HomeBytes))));
        let list = ASSUMPTIONS.map(|assumption| (assumption.name, assumption.what));
        for (end, what) in std::iter::once(("", "as we have it")).chain(list) {
            let of = |e: &Experiment, cell: &dyn Fn(&Summary) -> String| {
                self.summary(&format!("{}{end}", e.name)).map_or(NONE.into(), cell)
            };
            // The best case is that of the machine as it is, whatever is otherwise.
            let best_s = |e: &Experiment| self.all_local_s(e).unwrap_or(f64::NAN);
            let time = |e: &Experiment, s: &Summary| {
                format!("{}; {} s", per_cent(best_s(e) / s.makespan_s), figure(s.makespan_s))
            };
            let names = plain.iter().map(|e| format!("{}{end}", e.name));
            let names: Vec<String> = names.filter(|name| self.list.contains_key(name)).collect();
            let command = command(&names.join(","));
            times.row([row(what, &|e| of(e, &|s| time(e, s))), vec![command]].concat());
            let moved = |s: &Summary| gb(s.moved_peer_bytes as f64, s.moved_home_bytes as f64);
            bytes.row(row(what, &|e| of(e, &moved)));
        }
        format!("{}Bytes between nodes, and from home, in GB:\n\n{}", times.text(), bytes.text())
    }

    /// `affinity` with a task for each pair, and in tiles.
    fn tiles(&self) -> String {
        let mut table = Table::new([
            "",
            "a task for each pair",
            "in tiles",
            "time",
            "tasks",
            "between nodes, GB",
            "shared file system, GB",
            "command",
        ]);
        for (name, what, ..) in ALL_PAIRS {
            let tiles = beyond::tiles_name(name);
            let (plain, tiled) = (self.summary(&format!("ours-{name}")), self.summary(&tiles));
            let (Some(plain), Some(tiled)) = (plain, tiled) else { continue };
            let gb = |bytes: u64| figure(bytes as f64 / 1e9);
            table.row(vec![
                what.into(),
                format!("{} s", figure(plain.makespan_s)),
                format!("{} s", figure(tiled.makespan_s)),
                format!("{:+.1} %", 100.0 * (tiled.makespan_s / plain.makespan_s - 1.0)),
                count(tiled.n_tasks),
                format!("{}; {}", gb(plain.moved_peer_bytes), gb(tiled.moved_peer_bytes)),
                format!("{}; {}", gb(plain.moved_home_bytes), gb(tiled.moved_home_bytes)),
                command(&tiles),
            ]);
        }
        include_str!("notes/allpairs-tiles.md").to_string() + &table.text()
    }

    // ------------------------------------------------------------ §6

    fn stack_s(&self, case: StackingCase, locality: Locality, n_processors: u32) -> Option<f64> {
        let s = self.summary(&case.name(locality, n_processors))?;
        Some(s.makespan_s * f64::from(n_processors) / s.n_tasks as f64)
    }

    fn stacking(&self) -> Result<String, Fault> {
        let mut text = include_str!("notes/stacking.md").to_string();
        let ms = |value: Option<f64>| value.map_or(NONE.into(), |s| format!("{} ms", figure(s * 1e3)));
        let heads = |first: &str| {
            let mut heads = vec![first.to_string()];
            heads.extend(STACKING_CASES.map(|case| case.what().to_string()));
            heads
        };
        for (number, name) in [("44", "1.38"), ("45", "30")] {
            let locality = find_locality(name).map_err(other)?;
            text += &format!("### Time per stack and processor, locality {name} (figure {number})\n\n");
            let mut table = Table::new([heads("processors"), vec!["command".into()]].concat());
            for n in STACKING_PROCESSORS {
                let cells = STACKING_CASES.map(|case| ms(self.stack_s(case, locality, n)));
                let names = STACKING_CASES.map(|case| case.name(locality, n)).join(",");
                table.row([vec![n.to_string()], cells.to_vec(), vec![command(&names)]].concat());
            }
            text += &table.text();
            let what = format!("Figure {number}: time per stack, locality {name}");
            text += &self.figure(&format!("fig-{number}-stacking"), &what);
        }
        text += "### Hit ratio (figure 46), 128 processors\n\n";
        let mut table = Table::new([
            "locality",
            "ideal",
            "eyas, GZ",
            "of ideal",
            "eyas, FIT",
            "of ideal",
            "paper",
            "command",
        ]);
        for locality in TABLE_3 {
            let ideal = locality.hit_ratio_ideal();
            let mut cells = vec![locality.name.to_string(), per_cent(ideal)];
            let mut names = vec![];
            for format in [Format::Gz, Format::Fit] {
                let name = StackingCase { diffusion: true, format }.name(locality, 128);
                // Hits are counted as in the paper: every read that is not from home is a hit.
                let hits = self.summary(&name).map(|s| s.local_ratio() + s.peer_ratio());
                cells.push(hits.map_or(NONE.into(), per_cent));
                let of_ideal = hits.filter(|_| ideal > 0.0).map(|hits| hits / ideal);
                cells.push(of_ideal.map_or(NONE.into(), per_cent));
                names.push(name);
            }
            cells.extend(["at least 90 % of ideal".into(), command(&names.join(","))]);
            table.row(cells);
        }
        text += &table.text();
        text += &self.figure("fig-46-stacking-hits", "Figure 46: hit ratio by locality");
        text += "### Time per stack and processor, 128 processors (figure 47)\n\n";
        let mut table = Table::new([heads("locality"), vec!["command".into()]].concat());
        for locality in TABLE_3 {
            let cells = STACKING_CASES.map(|case| ms(self.stack_s(case, locality, 128)));
            let names = STACKING_CASES.map(|case| case.name(locality, 128)).join(",");
            table.row([vec![locality.name.to_string()], cells.to_vec(), vec![command(&names)]].concat());
        }
        let config = StackingConfig::default();
        let ideal = |case: &StackingCase| {
            let uncompress_ns =
                if case.format == Format::Gz && !case.diffusion { config.uncompress_ns } else { 0 };
            ms(Some((config.stack_ns + uncompress_ns) as f64 * 1e-9))
        };
        table.row(
            [
                vec!["one processor, local disk".into()],
                STACKING_CASES.iter().map(ideal).collect(),
                vec![String::new()],
            ]
            .concat(),
        );
        text += &table.text();
        text += &self.figure("fig-47-stacking", "Figure 47: time per stack by locality");
        text += &self.stacking_bytes();
        text += include_str!("notes/stacking-why.md");
        Ok(text)
    }

    /// Figures 48 and 49.
    fn stacking_bytes(&self) -> String {
        let mut rates = Table::new([
            "locality",
            "data diffusion (GZ): local",
            "cache to cache",
            "GPFS",
            "data diffusion (FIT): local",
            "cache to cache",
            "GPFS",
            "GPFS (GZ)",
            "GPFS (FIT)",
        ]);
        let mut bytes = rates_like(&rates);
        let config = StackingConfig::default();
        for locality in TABLE_3 {
            let (mut rate, mut each) = (vec![locality.name.to_string()], vec![locality.name.to_string()]);
            for case in STACKING_CASES {
                let s = self.summary(&case.name(locality, 128));
                let parts: Vec<Option<f64>> = match case.diffusion {
                    // The bytes that a program reads from its node's disk, hit or not; GZ is uncompressed
                    // there, 6 MB.
                    true => vec![
                        s.map(|s| s.n_tasks as f64 * config.fit_bytes as f64),
                        s.map(|s| s.moved_peer_bytes as f64),
                        s.map(|s| s.moved_home_bytes as f64),
                    ],
                    false => vec![s.map(|s| s.moved_home_bytes as f64)],
                };
                for part in parts {
                    let cell = |f: &dyn Fn(f64, &Summary) -> String| match (part, s) {
                        (Some(part), Some(s)) => f(part, s),
                        _ => NONE.into(),
                    };
                    rate.push(cell(&|part, s| figure(part / s.makespan_s / GBIT)));
                    each.push(cell(&|part, s| figure(part / s.n_tasks as f64 / 1e6)));
                }
            }
            rates.row(rate);
            bytes.row(each);
        }
        format!(
            "### Throughput (figure 48), Gb/s, 128 processors\n\n{}{}### Bytes per stack (figure 49), MB, 128 processors\n\n{}{}",
            rates.text(),
            self.figure("fig-48-stacking-throughput", "Figure 48: throughput by locality"),
            bytes.text(),
            self.figure("fig-49-stacking-bytes", "Figure 49: bytes per stack by locality"),
        )
    }

    // ------------------------------------------------------------ §6.6

    /// The abstract model's makespan for a stacking experiment, as predicted before the run.
    fn modelled(
        &self,
        case: StackingCase,
        locality: Locality,
        n_processors: u32,
    ) -> Result<Option<Modelled>, Fault> {
        let name = case.name(locality, n_processors);
        let (Some(e), Some(s)) = (self.list.get(&name), self.summary(&name)) else { return Ok(None) };
        let workload = e.workload().map_err(other)?;
        let (mut n_tasks, mut compute_ns) = (0u64, 0u128);
        for submission in workload.submissions {
            for i in 0..submission.array.n_tasks {
                n_tasks += 1;
                compute_ns += u128::from(submission.compute.of(i));
            }
        }
        let packed_bytes = StackingConfig::default().gz_bytes as f64;
        let read_bytes = workload.read_bytes as f64 / n_tasks.max(1) as f64;
        let is_made = case.diffusion && case.format == Format::Gz;
        let machine = &e.machine;
        let work = expect::ModelWork {
            n_tasks,
            accesses_per_task: 1.0,
            object_bytes: if is_made { packed_bytes } else { read_bytes },
            compute_s: compute_ns as f64 * 1e-9 / n_tasks.max(1) as f64,
            overhead_s: (2 * machine.message_ns + machine.task_overhead_ns) as f64 * 1e-9,
            reuse: match case.diffusion {
                false => Reuse::NoCaches,
                true => Reuse::Objects {
                    n_objects: u64::from(locality.n_files),
                    cache_bytes: machine.cache_bytes_per_node as f64 * f64::from(machine.nodes),
                },
            },
            making: is_made.then_some(expect::Making {
                made_bytes: read_bytes,
                compute_s: read_bytes / machine.costs.made_bytes_per_s,
            }),
        };
        let seen = HitRatios::of_counts(s.n_local, s.n_peer, s.n_home);
        let seen = seen.filter(|_| case.diffusion).map_or(work.reuse, Reuse::Ratios);
        let time_s = |reuse| {
            let work = expect::ModelWork { reuse, ..work };
            expect::expect(&predict::Machine::of(machine), &work).map(|found| found.time_s).map_err(other)
        };
        let (before_s, after_s) = (time_s(work.reuse)?, time_s(seen)?);
        Ok(Some(Modelled { before_s, after_s, simulated_s: s.makespan_s }))
    }

    fn model(&self) -> Result<String, Fault> {
        let mut text = include_str!("notes/model.md").to_string();
        let (mut before, mut after, mut wide) = (vec![], vec![], vec![]);
        let mut table = Table::new(
            [
                vec!["locality".to_string(), "configuration".into()],
                STACKING_PROCESSORS.iter().map(|n| format!("{n} processors")).collect(),
            ]
            .concat(),
        );
        for name in STACKING_VARIED {
            let locality = find_locality(name).map_err(other)?;
            for case in STACKING_CASES {
                let mut cells = vec![name.to_string(), case.what().to_string()];
                for n in STACKING_PROCESSORS {
                    let modelled = self.modelled(case, locality, n)?;
                    cells.push(
                        modelled.map_or(NONE.into(), |m| per_cent(relative_error(m.before_s, m.simulated_s))),
                    );
                    before.extend(modelled.map(|m| (m.before_s, m.simulated_s)));
                    after.extend(modelled.map(|m| (m.after_s, m.simulated_s)));
                }
                table.row(cells);
            }
        }
        text += "### Error by number of processors (figure 50)\n\n";
        text += &table.text();
        text += &self.figure("fig-50-model", "Figure 50: model error by number of processors");
        text += "### Error by locality, 128 processors (figure 51)\n\n";
        let mut heads = vec!["locality".to_string()];
        heads.extend(STACKING_CASES.map(|case| case.what().to_string()));
        let mut table = Table::new(heads);
        for locality in TABLE_3 {
            let mut cells = vec![locality.name.to_string()];
            for case in STACKING_CASES {
                let modelled = self.modelled(case, locality, 128)?;
                cells.push(
                    modelled.map_or(NONE.into(), |m| per_cent(relative_error(m.before_s, m.simulated_s))),
                );
                wide.extend(modelled.map(|m| (m.before_s, m.simulated_s)));
                if !STACKING_VARIED.contains(&locality.name) {
                    before.extend(modelled.map(|m| (m.before_s, m.simulated_s)));
                    after.extend(modelled.map(|m| (m.after_s, m.simulated_s)));
                }
            }
            table.row(cells);
        }
        text += &table.text();
        text += &self.figure("fig-51-model", "Figure 51: model error by locality");
        text += "### All together\n\n";
        let mut table = Table::new(["", "experiments", "mean", "median", "standard deviation", "worst"]);
        table.row(["paper, all", "92", "5 %", "5 %", "5 %", "29 %"].map(String::from).to_vec());
        table.row(
            ["paper, 128 processors (figure 51)", NONE, "8 %", NONE, "5 %", NONE].map(String::from).to_vec(),
        );
        for (what, pairs) in [
            ("eyas, all, with the hit ratios of the model", &before),
            ("eyas, 128 processors, with the hit ratios of the model", &wide),
            ("eyas, all, with the hit ratios of the simulated run", &after),
        ] {
            let Some(e) = ErrorSummary::of(pairs) else { continue };
            let shares = [e.mean, e.median, e.standard_deviation, e.worst].map(per_cent);
            table.row([vec![what.to_string(), e.n.to_string()], shares.to_vec()].concat());
        }
        text += &table.text();
        text += include_str!("notes/model-why.md");
        Ok(text)
    }

    // ------------------------------------------------------------ beyond the paper

    fn beyond(&self) -> Result<String, Fault> {
        let mut text = include_str!("notes/beyond.md").to_string();
        let mut times = Table::new([
            "workload",
            "the paper measured",
            "paper's policy",
            "ours",
            "against the paper",
            "against its policy",
            "must; aim",
            "with faults",
            "must; aim",
            "commands",
        ]);
        let mut others = Table::new([
            "workload",
            "response: paper's policy",
            "ours",
            "times as fast",
            "must",
            "CPU hours: paper's policy",
            "ours",
            "must; aim",
            "efficiency: paper's policy",
            "ours",
            "must",
        ]);
        let mut bytes = Table::new([
            "workload",
            "from home, GB: paper's policy",
            "ours",
            "between nodes, GB: paper's policy",
            "ours",
            "hits (local + remote): paper's policy",
            "ours",
        ]);
        for row in beyond::rows() {
            let [ours, faulty] = [&row.ours, &row.ours_with_faults].map(|name| self.summary(name));
            let by_time = |a: &&Summary, b: &&Summary| a.makespan_s.total_cmp(&b.makespan_s);
            let base = row.baselines.iter().filter_map(|name| self.summary(name)).min_by(by_time);
            let cell = |s: Option<&Summary>, f: &dyn Fn(&Summary) -> String| s.map_or(NONE.into(), f);
            let seconds = |s: &Summary| format!("{} s", figure(s.makespan_s));
            let ratio =
                |a: Option<&Summary>, b: Option<&Summary>, f: fn(&Summary) -> f64| Some(f(a?) / f(b?));
            let makespan = ratio(ours, base, |s| s.makespan_s);
            let goal = row.goal;
            let wanted = |pair: Option<(f64, f64)>| {
                pair.map_or(NONE.into(), |(must, aim)| format!("{}; {}", change(must), change(aim)))
            };
            let mut must = wanted(goal.makespan);
            if let Some(most_s) = goal.makespan_s {
                must += &format!("; at most {} s", figure(most_s));
            }
            let met = |met: Option<bool>| match met {
                Some(true) => "",
                Some(false) => " ✗",
                None => "",
            };
            let ok_makespan = makespan.zip(goal.makespan).map(|(got, (must, _))| {
                got <= must && goal.makespan_s.is_none_or(|most| ours.is_some_and(|s| s.makespan_s <= most))
            });
            let with_faults = ratio(faulty, ours, |s| s.makespan_s);
            let commands = row.baselines.iter().chain([&row.ours, &row.ours_with_faults]);
            let commands = commands.map(String::as_str).collect::<Vec<_>>().join(",");
            let e = self.list.get(&row.baselines[0]);
            let measured_s = match e {
                Some(e) => self.said_makespan_s(e)?,
                None => None,
            };
            times.row(vec![
                row.what.clone(),
                measured_s.map_or(NONE.into(), |s| format!("{} s", figure(s))),
                cell(base, &seconds),
                cell(ours, &seconds),
                ours.zip(measured_s).map_or(NONE.into(), |(s, paper)| change(s.makespan_s / paper)),
                makespan.map_or(NONE.into(), change) + met(ok_makespan),
                must,
                with_faults.map_or(NONE.into(), change) + met(with_faults.map(|r| r <= beyond::FAULTS_MUST)),
                format!("{}; {}", change(beyond::FAULTS_MUST), change(beyond::FAULTS_AIM)),
                command(&commands),
            ]);
            let response = ratio(ours, base, |s| s.response_mean_s);
            let hours = ratio(ours, base, |s| s.cpu_hours);
            let efficiency = |s: Option<&Summary>| -> Result<Option<f64>, Fault> {
                let (Some(e), Some(s)) = (e, s) else { return Ok(None) };
                let best_s =
                    if matches!(e.load, Load::AllPairs(_)) { self.all_local_s(e)? } else { s.ideal_s };
                Ok(Some(best_s / s.makespan_s))
            };
            let efficiencies = [efficiency(base)?, efficiency(ours)?];
            let ok_efficiency = goal.efficiency.zip(efficiencies[1]).map(|(least, got)| got >= least);
            others.row(vec![
                row.what.clone(),
                cell(base, &|s| format!("{} s", figure(s.response_mean_s))),
                cell(ours, &|s| format!("{} s", figure(s.response_mean_s))),
                response.map_or(NONE.into(), |r| format!("{:.1}", 1.0 / r))
                    + met(response.zip(goal.response).map(|(got, most)| got <= most)),
                goal.response.map_or(NONE.into(), |most| format!("{:.0}", 1.0 / most)),
                cell(base, &|s| figure(s.cpu_hours)),
                cell(ours, &|s| figure(s.cpu_hours))
                    + met(hours.zip(goal.hours).map(|(got, (most, _))| got <= most)),
                wanted(goal.hours),
                efficiencies[0].map_or(NONE.into(), per_cent),
                efficiencies[1].map_or(NONE.into(), per_cent) + met(ok_efficiency),
                goal.efficiency.map_or(NONE.into(), per_cent),
            ]);
            let gb = |f: fn(&Summary) -> u64| move |s: &Summary| figure(f(s) as f64 / 1e9);
            let hits = |s: &Summary| per_cent(s.local_ratio() + s.peer_ratio());
            bytes.row(vec![
                row.what.clone(),
                cell(base, &gb(|s| s.moved_home_bytes)),
                cell(ours, &gb(|s| s.moved_home_bytes)),
                cell(base, &gb(|s| s.moved_peer_bytes)),
                cell(ours, &gb(|s| s.moved_peer_bytes)),
                cell(base, &hits),
                cell(ours, &hits),
            ]);
        }
        text += &times.text();
        text += "### Response time, CPU hours, efficiency\n\n";
        text += &others.text();
        text += "### Where the bytes came from\n\n";
        text += &bytes.text();
        text += &self.figure("beyond", "Makespan of our default against the paper's policy");
        text += include_str!("notes/beyond-why.md");
        Ok(text)
    }
}

#[derive(Clone, Copy)]
struct Modelled {
    before_s: f64,
    after_s: f64,
    simulated_s: f64,
}

fn rates_like(table: &Table) -> Table {
    Table::new(table.heads().to_vec())
}

/// The slowdown by minute of arrival. The last minute is cut short, as the arrivals are.
fn slowdowns(s: &Summary) -> Vec<f64> {
    let length_s = |i: usize| (s.ideal_s - 60.0 * i as f64).clamp(1.0, 60.0);
    s.intervals.iter().enumerate().map(|(i, interval)| interval.slowdown * 60.0 / length_s(i)).collect()
}

/// The largest arrival rate that is kept up with. From the 10th minute on, it is the last rate before the
/// slowdown is above 1.5 for the first time; before that minute, single nodes are still on their way.
fn keeps_up_to(slowdowns: &[f64], rates: &[u64]) -> Option<u64> {
    let n = slowdowns.len().min(rates.len());
    let first_late = (9..n).find(|i| slowdowns[*i] > 1.5).unwrap_or(n);
    rates.get(first_late.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_nothing_says_so_and_a_page_of_the_same_is_the_same() {
        let (results, timings) = (Results::default(), Timings::default());
        let text = page(&results, &timings, &|_| false).expect("nothing can fail");
        assert!(text.contains("were not run") && text.contains("5,011 s") && text.contains(CLOCK));
        assert!(!text.contains("figures/"));
        assert_eq!(text, page(&results, &timings, &|_| false).expect("nothing can fail"));
    }

    #[test]
    fn rates_are_kept_up_with_until_the_first_that_is_not() {
        let rates: Vec<u64> = (1..=24).collect();
        let mut slowdowns = vec![1.0; 24];
        slowdowns[3] = 2.0;
        assert_eq!(keeps_up_to(&slowdowns, &rates), Some(24));
        slowdowns[15] = 1.6;
        assert_eq!(keeps_up_to(&slowdowns, &rates), Some(15));
        assert_eq!(keeps_up_to(&[], &rates), None);
    }
}
