//! What a simulation found, as text and as JSON.

use crate::print::{count, reason, size};
use crate::{Exit, Fault};
use eyas_sim::outcome::Summary;
use eyas_text::shown_path;
use std::path::Path;

pub fn write_json(path: &Path, all: &serde_json::Value) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(all).map_err(|e| Fault::new(Exit::Other, e))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Fault::new(Exit::Other, format!("cannot write {}: {}", shown_path(path), reason(&e))))
}

/// `1,415.3 s`
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 100.0 => format!("{s:.2} s"),
        s if s < 1000.0 => format!("{s:.1} s"),
        s => format!("{} s", count(s.round() as u64)),
    }
}

pub fn per_cent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub fn table(s: &Summary, wall_s: f64) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| text += &format!("  {name:<12} {value}\n");
    // For a bag of tasks the efficiency says nothing.
    let ideal = match s.efficiency() >= 0.01 {
        true => format!(" (ideal {}, efficiency {})", seconds(s.ideal_s), per_cent(s.efficiency())),
        false => String::new(),
    };
    row("makespan", format!("{}{ideal}", seconds(s.makespan_s)));
    if s.n_failed > 0 {
        let first = s.failure.as_deref().unwrap_or_default();
        row("failed", format!("{} of {}; first: {first}", count(s.n_failed), count(s.n_tasks)));
    }
    row(
        "inputs",
        format!(
            "{} on the node, {} from peers, {} from home",
            per_cent(s.local_ratio()),
            per_cent(s.peer_ratio()),
            per_cent(s.home_ratio())
        ),
    );
    if s.in_memory_bytes > 0 {
        let all = s.local_bytes + s.peer_bytes + s.home_bytes;
        let share = per_cent(s.in_memory_bytes as f64 / all.max(1) as f64);
        row("in memory", format!("{} when their programs began, {share} of all", size(s.in_memory_bytes)));
    }
    row(
        "moved",
        format!(
            "{} between nodes, {} from home, {} to home",
            size(s.moved_peer_bytes),
            size(s.moved_home_bytes),
            size(s.landed_bytes)
        ),
    );
    row("throughput", format!("{}/s mean", size(s.throughput_mean_bytes_per_s as u64)));
    row(
        "response",
        format!("{} mean, {} in 99 of 100 cases", seconds(s.response_mean_s), seconds(s.response_p99_s)),
    );
    row("CPU hours", format!("{:.2}, {} used", s.cpu_hours, per_cent(s.utilisation)));
    let ended = match s.n_walltimes_ended {
        0 => String::new(),
        n => format!(", {n} cut off by their walltime"),
    };
    row("nodes", format!("{} at most, {} lost{ended}", s.n_nodes_max, s.n_losses));
    row(
        "simulated in",
        format!(
            "{wall_s:.2} s, {} events, {} events/s",
            count(s.n_events),
            count((s.n_events as f64 / wall_s.max(1e-9)) as u64)
        ),
    );
    text
}
