//! Numbers and tables as the page shows them.

use eyas_cli::print::count;
use eyas_papers::experiment::Metric;

pub const GBIT: f64 = 1e9 / 8.0;

/// The sign for an unknown value.
pub const NONE: &str = "–";

/// Three significant digits, or all digits before the point.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => NONE.into(),
        v if v >= 999.5 => count(v.round() as u64),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        0.0 => "0".into(),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub fn per_cent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => NONE.into(),
        p if p > 0.0 && p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// The change that a ratio stands for: `−12 %` for 0.88.
pub fn change(ratio: f64) -> String {
    let p = (ratio - 1.0) * 100.0;
    match () {
        () if !p.is_finite() => NONE.into(),
        () if p.abs() < 0.05 => "±0 %".into(),
        () if p.abs() < 9.95 => format!("{}{:.1} %", if p < 0.0 { "−" } else { "+" }, p.abs()),
        () => format!("{}{:.0} %", if p < 0.0 { "−" } else { "+" }, p.abs()),
    }
}

/// The metric's name in a table's head.
pub fn head(metric: Metric) -> &'static str {
    match metric {
        Metric::MakespanS => "makespan",
        Metric::Efficiency => "efficiency",
        Metric::LocalShare => "local",
        Metric::PeerShare => "remote",
        Metric::HomeShare => "miss",
        Metric::Throughput => "throughput",
        Metric::ThroughputP99 => "99th percentile",
        Metric::ResponseS => "response",
        Metric::QueueMax => "queue, most",
        Metric::CpuHours => "CPU hours",
        Metric::Utilisation => "utilisation",
        Metric::Speedup => "speed-up",
        Metric::PerformanceIndex => "PI",
        Metric::PeerBytes => "between nodes",
        Metric::HomeBytes => "from home",
    }
}

pub fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::MakespanS | Metric::ResponseS => format!("{} s", figure(value)),
        Metric::Efficiency
        | Metric::LocalShare
        | Metric::PeerShare
        | Metric::HomeShare
        | Metric::Utilisation => per_cent(value),
        Metric::Throughput | Metric::ThroughputP99 => format!("{} Gb/s", figure(value / GBIT)),
        Metric::QueueMax => count(value.round() as u64),
        Metric::CpuHours => format!("{} h", figure(value)),
        Metric::Speedup => format!("{value:.1}"),
        Metric::PerformanceIndex => format!("{value:.2}"),
        Metric::PeerBytes | Metric::HomeBytes => format!("{} GB", figure(value / 1e9)),
    }
}

/// A table of Markdown.
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    pub fn new<T: Into<String>>(heads: impl IntoIterator<Item = T>) -> Table {
        Table { lines: vec![heads.into_iter().map(Into::into).collect()] }
    }
    pub fn row(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }
    pub fn heads(&self) -> &[String] {
        &self.lines[0]
    }
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (i, cells) in self.lines.iter().enumerate() {
            text += &format!("| {} |\n", cells.join(" | "));
            if i == 0 {
                text += &format!("|{}\n", "---|".repeat(cells.len()));
            }
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        let expect = [(5011.0, "5,011"), (999.4, "999"), (12.34, "12.3"), (1.234, "1.23"), (0.066, "0.066")];
        for (value, text) in expect {
            assert_eq!(figure(value), text);
        }
        assert_eq!([per_cent(0.28), per_cent(0.055), per_cent(0.0)], ["28 %", "5.5 %", "0 %"]);
        assert_eq!([change(0.8), change(1.012), change(1.0)], ["−20 %", "+1.2 %", "±0 %"]);
    }
}
