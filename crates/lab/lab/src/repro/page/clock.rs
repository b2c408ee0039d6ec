//! The part of the page that a clock said: pace of the scheduler and of the index, cost of the simulations. It differs from
//! machine to machine.

use super::{CLOCK, Sources, command};
use crate::repro::format::{NONE, Table, figure};
use crate::repro::{Cost, Timings};
use eyas_cli::print::{count, size};

pub(super) fn clock(sources: &Sources, timings: &Timings) -> String {
    let mut text = format!("{CLOCK}\n\n{}", include_str!("../notes/clock.md"));
    text += "### The scheduler (figure 15)\n\n";
    let mut table = Table::new([
        "policy",
        "decisions/s: paper",
        "eyas",
        "whole decision",
        "policy and window",
        "the rest",
        "command",
    ]);
    for pace in &timings.scheduler {
        let said = match pace.policy.as_str() {
            "first-available" => "2,981",
            "max-cache-hit" => "1,322",
            "affinity" | "first-input" | "first-input-steal" => "not in the paper",
            _ => "between the two",
        };
        table.row(vec![
            format!("`{}`", pace.policy),
            said.into(),
            count(pace.decisions_per_s.round() as u64),
            format!("{} µs", figure(pace.whole_us)),
            pace.policy_us.map_or(NONE.into(), |us| format!("{} µs", figure(us))),
            pace.policy_us.map_or(NONE.into(), |us| format!("{} µs", figure((pace.whole_us - us).max(0.0)))),
            command("scheduler"),
        ]);
    }
    text += &table.text();
    text += &sources.figure("fig-15-scheduler", "Figure 15: decisions per second, and where the time goes");
    text += include_str!("../notes/clock-why.md");
    text += &index(sources, timings);
    text += "### Speed of the simulator\n\n";
    let mut table = Table::new([
        "what",
        "simulated in",
        "processor time",
        "memory",
        "events",
        "events/s of processor time",
        "must; aim",
        "command",
    ]);
    for (what, name, goal) in [
        ("MI, 250,000 tasks, paper's policy", "mi-gcc-4gb", "5 s, 1 GB; 1 s"),
        ("the same, ours", "ours-mi-4gb", "5 s, 1 GB; 1 s"),
        ("SW, 2,000,000 tasks, paper's policy", "sw-gcc", "40 s, 2 GB; 10 s"),
        ("the same, dynamic, ours", "ours-sw", "40 s, 2 GB; 10 s"),
        ("All-Pairs 1000×1000, 4,096 processors, paper's policy", "ap-1000-bgp", NONE),
        ("the same, ours", "ours-ap-1000-bgp", NONE),
        ("All-Pairs 1000×1000, 5,832 processors, paper's policy", "ap-1000-sicortex", "120 s, 4 GB; 40 s"),
        ("the same, ours", "ours-ap-1000-sicortex", "120 s, 4 GB; 40 s"),
    ] {
        let cost = timings.simulations.get(name);
        let n_events = sources.summary(name).map(|s| s.n_events);
        let per_s = |cost: &Cost| n_events.zip(cost.cpu_s).map(|(n, s)| count((n as f64 / s).round() as u64));
        let cell = |text: Option<String>| text.unwrap_or(NONE.into());
        table.row(vec![
            what.into(),
            cell(cost.map(|c| format!("{} s", figure(c.wall_s)))),
            cell(cost.and_then(|c| c.cpu_s).map(|s| format!("{} s", figure(s)))),
            cell(cost.and_then(|c| c.memory_bytes).map(size)),
            cell(n_events.map(count)),
            cell(cost.and_then(per_s)),
            goal.into(),
            command(name),
        ]);
    }
    text += &table.text();
    let all: Vec<(u64, f64)> = timings
        .simulations
        .iter()
        .filter_map(|(name, cost)| Some((sources.summary(name)?.n_events, cost.cpu_s?)))
        .collect();
    let (n_events, cpu_s) = all.iter().fold((0, 0.0), |(n, s), one| (n + one.0, s + one.1));
    if cpu_s > 0.0 {
        text += &format!(
            "All {} simulations: {} events in {} s of processor time, {} events/s of one core (must: 500,000; aim: 2,000,000).\n",
            all.len(),
            count(n_events),
            figure(cpu_s),
            count((n_events as f64 / cpu_s).round() as u64),
        );
    }
    text
}

/// Figure 3.
fn index(sources: &Sources, timings: &Timings) -> String {
    let mut text = String::from("### The central index (figure 3)\n\n");
    let mut table = Table::new(["a million entries", "paper: hash table in Java 1.5", "eyas", "command"]);
    let rates = timings.index;
    let mut row = |what: &str, paper: &str, eyas: Option<String>| {
        table.row(vec![what.into(), paper.into(), eyas.unwrap_or(NONE.into()), command("index")]);
    };
    let us = |us: f64| format!("{} µs", figure(us));
    row("insert", "1 to 3 µs", rates.map(|r| us(r.insert_us)));
    row("lookup by name", "0.25 to 1 µs", rates.map(|r| us(r.lookup_by_name_us)));
    row("lookup by number, as the scheduler does", NONE, rates.map(|r| us(r.lookup_us)));
    row("lookups/s, by name", "4.18 M", rates.map(|r| count(r.lookups_by_name_per_s.round() as u64)));
    row("lookups/s, by number", NONE, rates.map(|r| count(r.lookups_per_s.round() as u64)));
    row("memory of an entry", "200 B", rates.map(|r| format!("{} B", figure(r.bytes_per_entry))));
    let nodes = |lookups: f64| count(prls_nodes(lookups).round() as u64);
    row(
        "P-RLS nodes for as many lookups/s",
        "more than 32,000",
        rates.map(|r| {
            format!("{} (for the paper's 4.18 M: {})", nodes(r.lookups_by_name_per_s), nodes(4.18e6))
        }),
    );
    text += &table.text();
    text += &sources.figure("fig-03-index", "Figure 3: a central index and P-RLS");
    text + include_str!("../notes/index.md")
}

/// The number of nodes of P-RLS that together give `lookups_per_s`. Their latency rises from 0.5 ms with
/// one node to 15 ms with a million (§2.2). It is taken to be linear in the logarithm of their number: at
/// 15 nodes that gives the "just over 3 ms" that were measured.
fn prls_nodes(lookups_per_s: f64) -> f64 {
    let latency_s = |nodes: f64| 0.5e-3 + 14.5e-3 * nodes.log10() / 6.0;
    let (mut low, mut high) = (1.0_f64, 1e12);
    while high / low > 1.0001 {
        let middle = (low * high).sqrt();
        *(if middle / latency_s(middle) < lookups_per_s { &mut low } else { &mut high }) = middle;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_of_p_rls_as_the_paper_says() {
        let n = prls_nodes(4.18e6);
        assert!((32e3..64e3).contains(&n), "{n}");
        // One node gives 2,000 lookups a second; a second node costs more than it brings.
        assert!(prls_nodes(1500.0) < 2.0);
    }
}
