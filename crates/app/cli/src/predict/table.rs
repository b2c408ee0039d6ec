//! The cases that are predicted, their table, and the advice that follows from it.

use super::args::PredictArgs;
use super::work::note;
use crate::Fault;
use crate::print::{count, plural, size};
use crate::sim::{bad, per_cent, seconds};
use eyas_core::placement::{self, first_input};
use eyas_sim::machine::Machine;
use eyas_sim::outcome::Summary;
use eyas_sim::predict::{Case, Prediction, Question, distinct_read_bytes, knee};
use std::fmt::Write as _;

/// A policy or cache must be better by this share to be advised in place of a simpler one.
const BETTER: f64 = 0.03;

/// A row of the table. `Err`: why this case is not possible.
pub struct Row {
    pub case: Case,
    pub answer: Result<Prediction, String>,
}

/// The text in a row in place of a time.
pub const CANNOT_BE: &str = "cannot be";

impl PredictArgs {
    /// A prediction for each combination; nodes vary fastest. `Err`: no combination is possible.
    pub fn table(&self, question: &Question) -> Result<Vec<Row>, Fault> {
        let machine = question.machine;
        let recorded = machine.name == "as measured";
        let nodes = match (self.nodes.as_slice(), recorded) {
            ([], true) => vec![machine.nodes, 2 * machine.nodes, 4 * machine.nodes],
            ([], false) => vec![1, 4, 16],
            (given, _) => {
                let mut nodes = given.to_vec();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        };
        let caches = or_else(&self.cache, machine.cache_bytes_per_node);
        let policies = or_else(&self.placement, question.scheduling.dispatcher.placement.clone());
        let mut table = vec![];
        for placement in &policies {
            for cache_bytes in &caches {
                for nodes in &nodes {
                    let case =
                        Case { nodes: *nodes, cache_bytes: *cache_bytes, placement: placement.clone() };
                    let answer = question.answer(&case);
                    table.push(Row { case, answer });
                }
            }
        }
        match table.iter().find_map(|row| row.answer.as_ref().err()) {
            Some(why) if table.iter().all(|row| row.answer.is_err()) => Err(bad(why)),
            _ => Ok(table),
        }
    }

    pub fn text(&self, table: &[Row], machine: &Machine) -> String {
        let mut rows: Vec<[String; 10]> = vec![
            [
                "placement",
                "cache",
                "nodes",
                "makespan",
                "range",
                "on node",
                "peers",
                "home",
                "through home",
                "CPU hours",
            ]
            .map(String::from),
        ];
        let mut costs = vec!["cost".to_string()];
        for row in table {
            let p = match &row.answer {
                Ok(p) => p,
                Err(_) => {
                    let mut cells: [String; 10] = Default::default();
                    let cache = size(row.case.cache_bytes);
                    let nodes = count(u64::from(row.case.nodes));
                    for (cell, text) in
                        cells.iter_mut().zip([row.case.placement.clone(), cache, nodes, CANNOT_BE.into()])
                    {
                        *cell = text;
                    }
                    rows.push(cells);
                    costs.push(String::new());
                    continue;
                }
            };
            let s: &Summary = &p.summary;
            rows.push([
                p.case.placement.clone(),
                size(p.case.cache_bytes),
                count(u64::from(p.case.nodes)),
                seconds(s.makespan_s),
                format!("{} to {}", seconds(p.makespan_s.0), seconds(p.makespan_s.1)),
                per_cent(s.local_ratio()),
                per_cent(s.peer_ratio()),
                per_cent(s.home_ratio()),
                size(s.moved_home_bytes + s.landed_bytes),
                format!("{:.2}", s.cpu_hours),
            ]);
            let price = self.price.unwrap_or(0.0);
            costs.push(money(price * p.node_hours(machine.slots_per_node)));
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..10).map(width).collect();
        let mut text = String::new();
        for (row, cost) in rows.iter().zip(&costs) {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                _ = write!(line, "  {cell:>width$}");
            }
            if self.price.is_some() {
                _ = write!(line, "  {cost:>8}");
            }
            text += line.trim_end();
            text.push('\n');
        }
        let mut reasons: Vec<&String> = table.iter().filter_map(|row| row.answer.as_ref().err()).collect();
        reasons.dedup();
        for why in reasons {
            _ = write!(text, "\n{CANNOT_BE}: {why}\n");
        }
        text
    }

    /// One sentence: which policy, how many nodes, how much cache.
    pub fn advice(&self, question: &Question, table: &[Prediction]) -> Result<String, Fault> {
        let fastest = |all: &[Prediction]| -> Option<Prediction> {
            let least = all.iter().map(|p| p.summary.makespan_s).min_by(f64::total_cmp)?;
            // The first that is about as fast: the user's own order says what is preferred.
            all.iter().find(|p| p.summary.makespan_s <= least * (1.0 + BETTER)).cloned()
        };
        // Policies and caches matter least where resources are plenty, so compare at the largest number of
        // nodes.
        let nodes_max = table.iter().map(|p| p.case.nodes).max().unwrap_or(1);
        let widest: Vec<Prediction> = table.iter().filter(|p| p.case.nodes == nodes_max).cloned().collect();
        let Some(best) = fastest(&widest) else { return Ok(String::new()) };
        let same = |p: &&Prediction| {
            p.case.placement == best.case.placement && p.case.cache_bytes == best.case.cache_bytes
        };
        let by_nodes: Vec<&Prediction> = table.iter().filter(same).collect();
        let at = knee(&by_nodes);
        let mut chosen = by_nodes[at].clone();
        // One likeliest world for each case is enough to compare.
        let quick = Question { n_worlds: 0, ..*question };
        let asked = |case: Case| quick.answer(&case);
        if self.placement.is_empty() {
            let mut all = vec![chosen.clone()];
            let is_to_compare_with =
                |name: &str| [first_input::NAME, first_input::NAME_STEAL].contains(&name);
            let others = placement::NAMES.iter().filter(|name| **name != chosen.case.placement);
            for name in others.filter(|name| !is_to_compare_with(name)) {
                match asked(Case { placement: (*name).into(), ..chosen.case.clone() }) {
                    Ok(other) => all.push(other),
                    Err(why) => note(format!("`{name}` is not advised: {why}")),
                }
            }
            chosen = fastest(&all).unwrap_or(chosen);
        }
        let distinct = distinct_read_bytes((question.workload)(None)?);
        if self.cache.is_empty() {
            // Smaller caches as long as they do no harm, a larger one if it helps. Impossible cases are no
            // candidates.
            let have = chosen.case.cache_bytes;
            let sizes = [have / 16, have / 4, have, have.saturating_mul(4)];
            let all: Vec<Prediction> = sizes
                .iter()
                .filter_map(|bytes| asked(Case { cache_bytes: *bytes, ..chosen.case.clone() }).ok())
                .collect();
            chosen = fastest(&all).unwrap_or(chosen);
        }
        let nodes = |n: u32| plural(u64::from(n), "node");
        let mut text = format!(
            "Advice: {} with `{}` and caches of {} ({}",
            nodes(chosen.case.nodes),
            chosen.case.placement,
            size(chosen.case.cache_bytes),
            seconds(chosen.summary.makespan_s),
        );
        if let Some(price) = self.price {
            let cost = price * chosen.node_hours(question.machine.slots_per_node);
            _ = write!(text, ", cost {}", money(cost));
        }
        text += ")";
        match by_nodes.get(at + 1) {
            Some(next) => {
                let here = by_nodes[at];
                _ = write!(
                    text,
                    "; {} would be {:.2} times as fast for {:.1} times the node hours",
                    nodes(next.case.nodes),
                    here.summary.makespan_s / next.summary.makespan_s,
                    next.summary.cpu_hours / here.summary.cpu_hours.max(1e-12)
                );
            }
            None if by_nodes.len() > 1 => text += "; more nodes than these may pay as well",
            None => {}
        }
        _ = write!(text, "; all different inputs are {}.", size(distinct));
        Ok(text)
    }
}

/// `12.50`, `0.0042`
fn money(amount: f64) -> String {
    if amount < 1.0 { format!("{amount:.4}") } else { format!("{amount:.2}") }
}

fn or_else<T: Clone>(given: &[T], otherwise: T) -> Vec<T> {
    if given.is_empty() { vec![otherwise] } else { given.to_vec() }
}
