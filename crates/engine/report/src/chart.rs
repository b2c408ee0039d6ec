//! The picture of figures 17 to 23 of `Raicu09` as inline SVG: demand, throughput stacked into cache-local,
//! cache-remote and home, and queue length. Below it, on the same time axis: the bytes that home moves
//! beside home's limit, and busy slots beside all slots.
//!
//! In: a [`Series`] and the [`Scales`] to draw it on, which two reports side by side share. Rates are shown
//! in one unit, that of the scale. Deviation: with all tasks submitted at once, demand is one spike that
//! would flatten everything else; the spike is cut off at the top and its height is written there.
//!
//! Each drawing is there twice, for wide and for narrow windows, of which the style sheet shows one: texts keep
//! their size, and a narrow one has fewer ticks. What is plotted is written once, and the narrow drawing shows it
//! compressed.

use crate::series::Series;
use crate::units;
use std::fmt::Write;

/// A drawing's width, and the margins beside its plot.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub class: &'static str,
    pub width: f64,
    pub left: f64,
    pub right: f64,
    /// About so many ticks are on the axis of time.
    n_ticks: f64,
}

pub const WIDE: Frame = Frame { class: "wide", width: 1100.0, left: 96.0, right: 64.0, n_ticks: 10.0 };
/// As wide as a phone has room for.
pub const NARROW: Frame = Frame { class: "narrow", width: 336.0, left: 50.0, right: 40.0, n_ticks: 5.0 };

impl Frame {
    pub fn is_narrow(&self) -> bool {
        self.width < WIDE.width
    }

    fn plot(&self) -> f64 {
        self.width - self.left - self.right
    }

    /// Opens the drawing.
    pub fn open(&self, class: &str, height: f64, what: &str) -> String {
        format!(
            "<svg class=\"chart {}{class}\" viewBox=\"0 0 {} {height:.0}\" role=\"img\" aria-label=\"{what}\">\n",
            self.class, self.width
        )
    }

    /// What is plotted at the coordinates of the wide drawing.
    pub fn show(&self, id: &str, plotted: &str) -> String {
        if !self.is_narrow() {
            return format!("<g id=\"{id}\">\n{plotted}</g>\n");
        }
        let factor = self.plot() / WIDE.plot();
        let x = self.left - WIDE.left * factor;
        format!("<use href=\"#{id}\" transform=\"translate({x:.3} 0) scale({factor:.5} 1)\"/>\n")
    }
}

const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;
/// Demand above this many times the highest throughput is cut off.
const DEMAND_SCALE_MAX: f64 = 3.0;

/// Ends of the axes.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    pub span_ns: f64,
    pub gbps: f64,
    pub n_queued: f64,
    pub n_slots: f64,
    /// The end of the axis of home's rates, in and out, and of home's limit.
    pub home_gbps: f64,
    /// The one unit of all rates, and the number of these units in one Gb/s.
    pub unit: (&'static str, f64),
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

impl Scales {
    /// The smallest scales on which every one of `all` fits, each with the limit of its home.
    pub fn of(all: &[(&Series, Option<f64>)]) -> Scales {
        let mut s =
            Scales { span_ns: 1.0, gbps: 0.0, n_queued: 1.0, n_slots: 1.0, home_gbps: 0.0, unit: ("", 1.0) };
        let mut demand: f64 = 0.0;
        for (series, home_limit) in all {
            s.span_ns = s.span_ns.max(series.bin_ns as f64 * series.n_nodes.len() as f64);
            s.gbps = s.gbps.max(most(&stacked(series)[2]));
            s.n_queued = s.n_queued.max(most(&series.n_queued));
            s.n_slots = s.n_slots.max(most(&series.n_slots));
            let moved = home_both(series);
            s.home_gbps = s.home_gbps.max(most(&moved)).max(home_limit.unwrap_or(0.0) * 8e-9);
            demand = demand.max(most(&series.demand_gbps));
        }
        if demand <= s.gbps * DEMAND_SCALE_MAX || s.gbps == 0.0 {
            s.gbps = s.gbps.max(demand);
        }
        s.gbps = if s.gbps > 0.0 { s.gbps * 1.08 } else { 1.0 };
        s.n_queued *= 1.08;
        // The unit suits the smaller one of throughput and home, as long as the larger one stays readable.
        let small = if s.home_gbps > 0.0 { s.home_gbps.min(s.gbps) } else { s.gbps };
        s.unit = throughput_unit(small.max(s.gbps / 1e4));
        s.n_slots *= 1.15;
        s.home_gbps = if s.home_gbps > 0.0 { s.home_gbps * 1.15 } else { 1.0 };
        s
    }
}

/// Cumulated values: local; local and remote; all three.
fn stacked(s: &Series) -> [Vec<f64>; 3] {
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x + y).collect::<Vec<f64>>();
    let two = sum(&s.cache_local_gbps, &s.cache_remote_gbps);
    let three = sum(&two, &s.home_gbps);
    [s.cache_local_gbps.clone(), two, three]
}

/// Rates from home and to home together.
fn home_both(s: &Series) -> Vec<f64> {
    s.home_gbps.iter().zip(&s.home_out_gbps).map(|(x, y)| x + y).collect()
}

/// Bytes per second in one gigabit per second.
const BYTES_PER_GBIT: f64 = 1e9 / 8.0;

/// Unit and factor for rates in Gb/s, chosen so that a rate of `gbps` is readable.
fn throughput_unit(gbps: f64) -> (&'static str, f64) {
    let (unit, size) = units::rate_unit(gbps * BYTES_PER_GBIT);
    (unit, BYTES_PER_GBIT / size)
}

fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns / 1e9 {
        s if s < 1.0 => ("ms", 1e6),
        s if s < 240.0 => ("s", 1e9),
        s if s < 4.0 * 3600.0 => ("min", 60e9),
        _ => ("h", 3600e9),
    }
}

/// A step of 1, 2 or 5 times a power of ten, so that about `n` of them reach `end`.
fn step(end: f64, n: f64) -> f64 {
    let rough = end / n;
    let power = 10f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999).unwrap_or(10.0);
    nice * power
}

fn label(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if digits == 0 && value >= 10_000.0 { units::count(value as u64) } else { format!("{value:.digits$}") }
}

/// One panel under construction.
struct Panel<'a> {
    frame: Frame,
    /// Axes, what is plotted, and what is written over it.
    axes: String,
    plotted: String,
    notes: String,
    height: f64,
    series: &'a Series,
    scales: Scales,
}

/// The panel for wide and for narrow windows. `id`: of what is plotted, unique on the page.
fn both<'a>(id: &str, what: &str, panel: impl Fn(Frame) -> Panel<'a>) -> String {
    panel(WIDE).finish(id, what) + &panel(NARROW).finish(id, what)
}

impl Panel<'_> {
    fn new(frame: Frame, series: &Series, scales: Scales, height: f64) -> Panel<'_> {
        let (axes, plotted, notes) = (String::new(), String::new(), String::new());
        Panel { frame, axes, plotted, notes, height, series, scales }
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }
    /// Where the plot begins and ends.
    fn ends(&self) -> (f64, f64) {
        (self.frame.left, self.frame.width - self.frame.right)
    }
    /// Where titles of the axes begin and end.
    fn title_ends(&self) -> (f64, f64) {
        if self.frame.is_narrow() { (0.0, self.frame.width) } else { self.ends() }
    }
    /// In the wide drawing.
    fn x(&self, ns: f64) -> f64 {
        WIDE.left + ns / self.scales.span_ns * WIDE.plot()
    }
    fn y(&self, value: f64, end: f64) -> f64 {
        self.bottom() - (value / end).min(1.0) * (self.bottom() - TOP)
    }

    fn left_axis(&mut self, title: &str, end: f64) {
        let step = step(end, 5.0);
        let (x0, x1) = self.ends();
        let mut value = 0.0;
        while value <= end * 1.0001 {
            let y = self.y(value, end);
            let text = label(value, step);
            let _ = writeln!(
                self.axes,
                "<line class=\"grid\" x1=\"{x0}\" x2=\"{x1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                x0 - 8.0,
                y + 4.0
            );
            value += step;
        }
        let (from, _) = self.title_ends();
        let _ = writeln!(
            self.axes,
            "<text class=\"axis\" x=\"{from}\" y=\"14\" text-anchor=\"start\">{title}</text>"
        );
    }

    fn right_axis(&mut self, title: &str, end: f64, class: &str) {
        let step = step(end, 5.0).max(1.0);
        let (_, x) = self.ends();
        let mut value = 0.0;
        while value <= end * 1.0001 {
            let y = self.y(value, end) + 4.0;
            let text = label(value, step);
            let _ = writeln!(
                self.axes,
                "<text class=\"tick {class}\" x=\"{:.1}\" y=\"{y:.1}\">{text}</text>",
                x + 6.0
            );
            value += step;
        }
        let (_, to) = self.title_ends();
        let _ = writeln!(
            self.axes,
            "<text class=\"axis {class}\" x=\"{to}\" y=\"14\" text-anchor=\"end\">{title}</text>"
        );
    }

    /// A dashed line at `value`, with its name at its right end.
    fn limit(&mut self, value: f64, end: f64, name: &str) {
        let y = self.y(value, end);
        let (x0, x1) = self.ends();
        let _ = writeln!(
            self.notes,
            "<line class=\"limit\" x1=\"{x0}\" x2=\"{x1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"axis\" x=\"{x1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            y - 5.0
        );
    }

    /// The steps of `values`, from left to right: `H` and `V` commands behind a starting point.
    fn steps(&self, values: &[f64], end: f64) -> (f64, String) {
        let mut path = String::new();
        let mut level = f64::NAN;
        let first = self.y(values.first().copied().unwrap_or(0.0), end);
        for (i, value) in values.iter().enumerate() {
            let y = self.y(*value, end);
            if (y - level).abs() > 0.05 || level.is_nan() {
                let x = self.x(i as f64 * self.series.bin_ns as f64);
                let _ = write!(path, "H{x:.1}V{y:.1}");
                level = y;
            }
        }
        let _ = write!(path, "H{:.1}", self.x(values.len() as f64 * self.series.bin_ns as f64));
        (first, path)
    }

    /// Everything between the base line and `values`.
    fn area(&mut self, values: &[f64], end: f64, class: &str) {
        if most(values) <= 0.0 {
            return;
        }
        let (_, path) = self.steps(values, end);
        let (base, left) = (self.bottom(), WIDE.left);
        let _ =
            writeln!(self.plotted, "<path class=\"area {class}\" d=\"M{left} {base:.1}{path}V{base:.1}Z\"/>");
    }

    fn line(&mut self, values: &[f64], end: f64, class: &str) {
        if values.is_empty() {
            return;
        }
        let (first, path) = self.steps(values, end);
        // A halo makes the line visible on every colour below it.
        let d = format!("M{} {first:.1}{path}", WIDE.left);
        let _ = writeln!(
            self.plotted,
            "<path class=\"halo\" d=\"{d}\"/><path class=\"line {class}\" d=\"{d}\"/>"
        );
    }

    fn finish(self, id: &str, what: &str) -> String {
        let bottom = self.bottom();
        let mut svg = self.frame.open("", self.height, what);
        svg.push_str(&self.axes);
        svg.push_str(&self.frame.show(id, &self.plotted));
        svg.push_str(&self.notes);
        svg.push_str(&time_axis(self.frame, self.scales.span_ns, bottom));
        let _ = writeln!(
            svg,
            "<line class=\"cursor\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>\n</svg>"
        );
        svg
    }
}

/// Time from 0 to `span_ns` along a line at `y`.
pub fn time_axis(frame: Frame, span_ns: f64, y: f64) -> String {
    let (unit, ns) = time_unit(span_ns);
    let end = span_ns / ns;
    let step = step(end, frame.n_ticks);
    let (x0, x1) = (frame.left, frame.width - frame.right);
    let mut svg = String::new();
    let mut value = 0.0;
    while value <= end * 1.0001 {
        let x = x0 + value * ns / span_ns * frame.plot();
        let text = label(value, step);
        let text = if value == 0.0 { format!("0 {unit}") } else { text };
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            y + 5.0,
            y + 20.0
        );
        value += step;
    }
    let _ = writeln!(svg, "<line class=\"base\" x1=\"{x0}\" x2=\"{x1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
    svg
}

/// Whether tasks had inputs at all.
pub fn has_bytes(series: &Series) -> bool {
    most(&series.demand_gbps) > 0.0 || most(&stacked(series)[2]) > 0.0
}

/// Demand, throughput and queue. `id` begins the names of what is drawn, unique on the page.
pub fn throughput(id: &str, series: &Series, scales: Scales) -> String {
    both(&format!("{id}-throughput"), "throughput, demand and queue length over time", |frame| {
        let mut panel = Panel::new(frame, series, scales, 330.0);
        let (unit, factor) = scales.unit;
        // Ticks are round in the unit that is shown.
        let end = scales.gbps * factor;
        if has_bytes(series) {
            let title = if frame.is_narrow() { "throughput" } else { "throughput and demand" };
            panel.left_axis(&format!("{title}, {unit}"), end);
        }
        panel.right_axis("tasks queued", scales.n_queued, "queued");
        let [local, remote, home] = stacked(series);
        // The highest area is drawn first: each later area covers the lower part of the one before.
        panel.area(&home, scales.gbps, "home");
        panel.area(&remote, scales.gbps, "remote");
        panel.area(&local, scales.gbps, "local");
        panel.line(&series.n_queued, scales.n_queued, "queued");
        if has_bytes(series) {
            panel.line(&series.demand_gbps, scales.gbps, "demand");
        }
        let peak = most(&series.demand_gbps);
        if peak > scales.gbps {
            let at = series.demand_gbps.iter().position(|d| *d == peak).unwrap_or(0);
            let (time, ns) = time_unit(scales.span_ns);
            // Between the titles where they leave room, else below them.
            let (x, y, anchor) = match frame.is_narrow() {
                true => (panel.ends().1, TOP + 12.0, "end"),
                false => (frame.width / 2.0, 14.0, "middle"),
            };
            let _ = writeln!(
                panel.notes,
                "<text class=\"note\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">↑ demand reaches {} {unit} at {} {time}</text>",
                units::number(peak * factor),
                units::number(at as f64 * series.bin_ns as f64 / ns)
            );
        }
        panel
    })
}

/// Bytes that home gave and took, and home's limit; empty if home moved nothing.
pub fn home(id: &str, series: &Series, scales: Scales, limit_bytes_per_s: Option<f64>) -> String {
    let moved = home_both(series);
    if most(&moved) <= 0.0 {
        return String::new();
    }
    both(&format!("{id}-home"), "what home storage gave and took over time", |frame| {
        let mut panel = Panel::new(frame, series, scales, 170.0);
        let (unit, factor) = scales.unit;
        panel.left_axis(&format!("home, {unit}"), scales.home_gbps * factor);
        panel.area(&moved, scales.home_gbps, "out");
        panel.area(&series.home_gbps, scales.home_gbps, "home");
        if let Some(limit) = limit_bytes_per_s {
            let gbps = limit / BYTES_PER_GBIT;
            let name = format!("limit of home: {} {unit}", units::number(gbps * factor));
            panel.limit(gbps, scales.home_gbps, &name);
        }
        panel
    })
}

/// Busy slots, and all slots of the present executors.
pub fn machines(id: &str, series: &Series, scales: Scales) -> String {
    both(&format!("{id}-slots"), "busy slots and slots over time", |frame| {
        let mut panel = Panel::new(frame, series, scales, 190.0);
        panel.left_axis("slots", scales.n_slots);
        panel.area(&series.n_slots_busy, scales.n_slots, "used");
        panel.line(&series.n_slots, scales.n_slots, "slots");
        panel
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for end in [0.003, 0.7, 1.08, 9.0, 80.0, 100.0, 1234.0, 2.5e6] {
            let step = step(end, 5.0);
            let n = (end / step).floor();
            assert!((2.0..=6.0).contains(&n), "{end}: {n} steps of {step}");
        }
        assert_eq!([label(0.5, 0.1), label(20.0, 10.0), label(20_000.0, 5_000.0)], ["0.5", "20", "20,000"]);
    }

    #[test]
    fn a_spike_of_demand_does_not_flatten_the_rest() {
        let mut s = Series {
            bin_ns: 1_000_000_000,
            demand_gbps: vec![900.0, 0.0],
            cache_local_gbps: vec![1.0, 2.0],
            cache_remote_gbps: vec![1.0, 0.0],
            home_gbps: vec![1.0, 0.0],
            n_queued: vec![10.0, 0.0],
            n_nodes: vec![2.0, 2.0],
            n_slots: vec![4.0, 4.0],
            n_slots_busy: vec![4.0, 2.0],
            ..Series::default()
        };
        assert!(Scales::of(&[(&s, None)]).gbps < 4.0);
        assert!(throughput("a", &s, Scales::of(&[(&s, None)])).contains("demand reaches 107,288 MiB/s"));
        s.demand_gbps[0] = 6.0;
        assert!(Scales::of(&[(&s, None)]).gbps > 6.0);
    }
}
