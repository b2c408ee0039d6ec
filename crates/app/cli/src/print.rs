//! Numbers and commands in the form that users read.

use eyas_core::provisioning::blocks::number_of;
use eyas_terms::NodeState;
use eyas_terms::array::Command;
use eyas_text::line_of;
pub use eyas_text::{count, plural, reason, size};
use eyas_wire::message::{ClusterStatus, Provisioner};

/// `850 ms`, `12.3 s`, `4 min 10 s`, `2 h 5 min`
pub fn time(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    if s < 1.0 {
        format!("{:.0} ms", s * 1e3)
    } else if s < 99.95 {
        format!("{s:.1} s")
    } else if s < 5999.5 {
        let whole = s.round() as u64;
        format!("{} min {} s", whole / 60, whole % 60)
    } else {
        let minutes = (s / 60.0).round() as u64;
        format!("{} h {} min", minutes / 60, minutes % 60)
    }
}

/// `text` in lines of at most `width` characters, broken between words where that is possible.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + rest.len() <= width => {
                line.push(' ');
                line.extend(rest.drain(..));
            }
            _ => {}
        }
        while !rest.is_empty() {
            let part = rest.drain(..rest.len().min(width));
            lines.push(part.collect());
        }
    }
    lines
}

/// `0.4/s`, `25/s`, `1,234/s`
pub fn rate(per_s: f64) -> String {
    if per_s < 9.95 { format!("{per_s:.1}/s") } else { format!("{}/s", count(per_s.round() as u64)) }
}

/// `12.0 MiB/s`
pub fn rate_of(bytes: u64, elapsed: std::time::Duration) -> String {
    format!("{}/s", size((bytes as f64 / elapsed.as_secs_f64().max(1e-3)) as u64))
}

/// `2 of 1 to 4 nodes, 1 coming, 1 beside them that was started by hand`
pub fn nodes_of(p: &Provisioner, status: &ClusterStatus) -> String {
    // One that was lost is no node any more, though it is listed for the length of its lease.
    let there = || status.executors.iter().filter(|e| e.state != NodeState::Silent);
    let n_nodes = there().filter(|e| number_of(&p.prefix, &e.name).is_some()).count();
    let by_hand = match there().count() - n_nodes {
        0 => String::new(),
        1 => ", 1 beside them that was started by hand".into(),
        n => format!(", {n} beside them that were started by hand"),
    };
    let coming = if p.n_pending > 0 { format!(", {} coming", p.n_pending) } else { String::new() };
    format!("{n_nodes} of {} to {} nodes{coming}{by_hand}", p.nodes_min, p.nodes_max)
}

/// `12.3 s ago: requested 1 node, as the predicted work needs 1 node more`; `None`: nothing was decided yet.
pub fn last_decision(p: &Provisioner, status: &ClusterStatus) -> Option<String> {
    let last = p.decisions.last()?;
    let ago = time(status.now.since_ns(last.at));
    Some(format!("{ago} ago: {}", line_of(&eyas_report::nodes::sentence(last))))
}

/// A command as a user would type it in a shell.
pub fn command_line(command: &Command<String>) -> String {
    match command {
        Command::Exec(words) => {
            let words: Vec<String> = words.iter().map(|word| eyas_tasklist::quoted(word)).collect();
            words.join(" ")
        }
        Command::Shell(line) => eyas_text::Shell::without(line).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_at_their_edges() {
        let times = [
            (0, "0 ms"),
            (999_000_000, "999 ms"),
            (12_340_000_000, "12.3 s"),
            (250_000_000_000, "4 min 10 s"),
        ];
        for (ns, expect) in times {
            assert_eq!(time(ns), expect);
        }
        for (per_s, expect) in [(0.0, "0.0/s"), (0.44, "0.4/s"), (9.96, "10/s"), (1234.5, "1,235/s")] {
            assert_eq!(rate(per_s), expect);
        }
    }
}
