//! Experiments that compare: several dispatchers, and policies whose idle nodes take tasks of others.

use clap::Args;
use eyas_cli::args::{bytes, duration};
use eyas_cli::print::{count, plural, size};
use eyas_cli::sim::{bad, named_machine, per_cent, seconds, write_json};
use eyas_cli::{Exit, Fault};
use eyas_core::eviction::{self, stores::EXCHANGES};
use eyas_papers::experiment::{exchange as stores, file_groups as groups, stealing};
use eyas_papers::workload::grouped::GroupedConfig;
use eyas_papers::workload::shapes::{Shape, ShapeConfig};
use eyas_sim::group::{GroupCase, simulate_group};
use eyas_sim::machine::Machine;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
pub struct DispatchersArgs {
    /// How many dispatchers, one case after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8")]
    dispatchers: Vec<u32>,
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    tasks: u32,
    /// The machine whose dispatcher's time for a task and whose messages are taken, by name or as a JSON file
    #[arg(long, value_name = "NAME|FILE", default_value = "tg-anl-64")]
    machine: String,
    /// Time of a dispatcher for one task [default: the machine's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    decision: Option<u64>,
    /// Time of a dispatcher for one file in a message to or from another one [default: a tenth of that for a task]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    crossing: Option<u64>,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
pub struct StealingArgs {
    /// The machine, by name or as a JSON file [default: 63 nodes of a Blue Gene/P]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Nodes [default: the machine's]
    #[arg(long)]
    nodes: Option<u32>,
    /// How uneven the slices of the BLAST database are: the sigma of a log-normal factor
    #[arg(long, value_name = "SIGMA", default_value_t = ShapeConfig::default().slice_sigma)]
    slice_sigma: f64,
    /// How many draws of each workload
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
pub struct FileGroupsArgs {
    #[arg(long, value_name = "N", default_value_t = GroupedConfig::default().n_tasks)]
    tasks: u32,
    /// Groups, of which each task reads one
    #[arg(long, value_name = "N", default_value_t = GroupedConfig::default().n_groups)]
    groups: u32,
    /// Files of a group
    #[arg(long, value_name = "N", default_value_t = GroupedConfig::default().files_per_group)]
    files: u32,
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    file_size: u64,
    /// Cache of each of the 8 nodes [default: a 24th of all files]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    cache: Option<u64>,
    /// How many draws of the workload
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
pub struct ExchangeArgs {
    /// Tasks of MI, without All-Pairs [default: as many as in the paper, and All-Pairs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tasks: Option<u64>,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn dispatchers(args: &DispatchersArgs) -> Result<Exit, Fault> {
    let machine = named_machine(&args.machine)?;
    let decision_ns = args.decision.unwrap_or(machine.dispatch_ns).max(1);
    let most = args.dispatchers.iter().copied().max().unwrap_or(1);
    let mut cases = vec![];
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{:>11} {:>12} {:>7} {:>12} {:>7} {:>9}  busiest, least busy",
        "dispatchers", "tasks/s", "ratio", "crossing", "ratio", "crossed"
    )?;
    let mut first: Option<(f64, f64)> = None;
    for &n_dispatchers in &args.dispatchers {
        let mut case = GroupCase {
            n_dispatchers,
            // Slots for twice as many tasks as all dispatchers of the largest group could give out.
            n_nodes: 16 * most,
            slots_per_node: 8,
            n_tasks: args.tasks,
            task_ns: decision_ns * 64,
            crossing: false,
            decision_ns,
            link_ns: args.crossing.unwrap_or(decision_ns / 10),
            message_ns: machine.message_ns,
        };
        let plain = simulate_group(&case).map_err(bad)?;
        case.crossing = true;
        let crossing = simulate_group(&case).map_err(bad)?;
        let (plain_first, crossing_first) = *first.get_or_insert((plain.tasks_per_s, crossing.tasks_per_s));
        writeln!(
            out,
            "{n_dispatchers:>11} {:>12.0} {:>7.2} {:>12.0} {:>7.2} {:>9}  {:.2}, {:.2}",
            plain.tasks_per_s,
            plain.tasks_per_s / plain_first,
            crossing.tasks_per_s,
            crossing.tasks_per_s / crossing_first,
            count(crossing.n_crossed),
            crossing.busiest,
            crossing.least_busy,
        )?;
        cases.push((case, plain, crossing));
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_vec_pretty(&cases).map_err(|e| Fault::new(Exit::Other, e))?;
        std::fs::write(path, json)?;
    }
    Ok(Exit::Good)
}

pub fn stealing(args: &StealingArgs) -> Result<Exit, Fault> {
    let machine = args.machine.as_deref().map_or_else(|| Ok(stealing::machine()), named_machine)?;
    let machine = Machine { nodes: args.nodes.unwrap_or(machine.nodes), ..machine };
    machine.check().map_err(bad)?;
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{}: {} of {}; means of {}",
        machine.name,
        plural(u64::from(machine.nodes), "node"),
        plural(u64::from(machine.slots_per_node), "slot"),
        plural(args.seeds, "seed")
    )?;
    writeln!(
        out,
        "{:<11} {:<18} {:>10} {:>20} {:>7} {:>9} {:>14} {:>14}",
        "", "placement", "whole", "least, most", "ratio", "starved", "between nodes", "home"
    )?;
    let mut cells = vec![];
    for shape in Shape::ALL {
        let mut first: Option<f64> = None;
        for placement in stealing::PLACEMENTS {
            let cell =
                stealing::cell(&machine, shape, args.slice_sigma, placement, args.seeds).map_err(bad)?;
            let ratio = cell.makespan_s / *first.get_or_insert(cell.makespan_s);
            writeln!(
                out,
                "{:<11} {placement:<18} {:>10} {:>20} {ratio:>7.3} {:>9} {:>14} {:>14}",
                shape.name(),
                seconds(cell.makespan_s),
                format!("{}, {}", seconds(cell.makespan_min_s), seconds(cell.makespan_max_s)),
                per_cent(cell.starved_share),
                size(cell.peer_bytes as u64),
                size(cell.home_bytes as u64),
            )?;
            cells.push(cell);
        }
    }
    writeln!(out, "starved: share of the slots that no task was given to while tasks queued elsewhere")?;
    if let Some(path) = &args.json {
        write_json(path, &serde_json::json!({ "machine": machine, "seeds": args.seeds, "cells": cells }))?;
    }
    Ok(Exit::Good)
}

pub fn file_groups(args: &FileGroupsArgs) -> Result<Exit, Fault> {
    let config = GroupedConfig {
        n_tasks: args.tasks,
        n_groups: args.groups,
        files_per_group: args.files,
        file_bytes: args.file_size,
        ..GroupedConfig::default()
    };
    let machine = groups::machine(&config);
    let cache_bytes_per_node = args.cache.unwrap_or(machine.cache_bytes_per_node);
    let machine = Machine { cache_bytes_per_node, ..machine };
    machine.check().map_err(bad)?;
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{} read one of {} of {}, {} each; {} with caches of {}; means of {}",
        plural(u64::from(args.tasks), "task"),
        plural(u64::from(args.groups), "group"),
        plural(u64::from(args.files), "file"),
        size(args.file_size),
        plural(u64::from(machine.nodes), "node"),
        size(cache_bytes_per_node),
        plural(args.seeds, "seed")
    )?;
    writeln!(
        out,
        "{:<9} {:>7} {:>9} {:>9} {:>10} {:>7} {:>14} {:>12}",
        "eviction", "groups", "hits", "at once", "response", "ratio", "between nodes", "home"
    )?;
    let mut cells = vec![];
    // What caches do together is no matter of groups.
    for (name, _) in eviction::POLICIES.iter().filter(|(name, _)| *name != EXCHANGES) {
        let mut first: Option<f64> = None;
        for knows in [false, true] {
            let cell = groups::cell(&machine, &config, name, knows, args.seeds).map_err(bad)?;
            let ratio = cell.response_mean_s / *first.get_or_insert(cell.response_mean_s);
            writeln!(
                out,
                "{name:<9} {:>7} {:>9} {:>9} {:>10} {ratio:>7.3} {:>14} {:>12}",
                if knows { "yes" } else { "no" },
                per_cent(cell.hit_ratio),
                per_cent(cell.at_once),
                seconds(cell.response_mean_s),
                size(cell.peer_bytes as u64),
                size(cell.home_bytes as u64),
            )?;
            cells.push(cell);
        }
    }
    writeln!(out, "at once: tasks whose inputs were all on their node; response: from arrival to end, mean")?;
    if let Some(path) = &args.json {
        write_json(path, &serde_json::json!({ "machine": machine, "seeds": args.seeds, "cells": cells }))?;
    }
    Ok(Exit::Good)
}

pub fn exchange(args: &ExchangeArgs) -> Result<Exit, Fault> {
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{:<24} {:<19} {:>6} {:<17} {:>9} {:>11} {:>7} {:>7} {:>7} {:>14} {:>11}",
        "",
        "placement",
        "window",
        "eviction",
        "makespan",
        "efficiency",
        "local",
        "peers",
        "home",
        "between nodes",
        "home"
    )?;
    let mut cells = vec![];
    for case in stores::cases(args.tasks) {
        for eviction in stores::EVICTIONS {
            let c = stores::cell(&case, eviction).map_err(bad)?;
            writeln!(
                out,
                "{:<24} {:<19} {:>6} {:<17} {:>9} {:>11} {:>7} {:>7} {:>7} {:>14} {:>11}",
                c.case,
                c.placement,
                c.window,
                c.eviction,
                seconds(c.makespan_s),
                per_cent(c.efficiency),
                per_cent(c.local),
                per_cent(c.peer),
                per_cent(c.home),
                size(c.peer_bytes),
                size(c.home_bytes),
            )?;
            cells.push(c);
        }
    }
    if let Some(path) = &args.json {
        write_json(path, &serde_json::json!({ "cells": cells }))?;
    }
    Ok(Exit::Good)
}
