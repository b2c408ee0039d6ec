//! The attempts over time, by node and slot: the data of a Gantt chart, and the chart.
//!
//! The log says on which node an attempt ran and not in which slot. Slots are assigned here: a program gets
//! the lowest slots of its node that are free when it starts.
//!
//! Memory and the size of the drawing are bounded: at most [`LANES_MAX`] slots are drawn. If there are many
//! attempts, those that lie too close for a reader to distinguish become one bar. The bar looks like the
//! worst of them, and it is paler the longer the slot was idle between them.

use crate::chart;
use crate::measure::Measure;
use crate::read::{AttemptRecord, How};
use crate::units::{count, duration, plural};
use eyas_text::markup;
use std::fmt::Write;

/// The most slots that are drawn.
pub const LANES_MAX: usize = 64;
/// With more attempts than this, neighbours become one bar and bars have no names.
const NAMED_MAX: usize = 2500;
/// If neighbours become one bar, a slot has at most about this many bars.
const PARTS: u64 = 100;

/// One attempt, or several attempts in one slot that follow each other closely.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    pub from_ns: u64,
    pub to_ns: u64,
    /// The end of the slot's wait for inputs of the first attempt; `from_ns` where the slot waited for
    /// nothing.
    pub wait_from_ns: u64,
    /// The part of that time in which a program ran.
    pub busy_ns: u64,
    pub how: How,
    pub n: u64,
    /// The name of the task; empty if there are too many tasks to name.
    pub name: String,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodeLanes {
    pub name: String,
    /// The times during which the node was there.
    pub present: Vec<(u64, u64)>,
    pub slots: Vec<Vec<Bar>>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Lanes {
    pub span_ns: u64,
    pub nodes: Vec<NodeLanes>,
    /// The number of all slots; `nodes` may hold only the first of them.
    pub n_slots: u64,
}

/// A rank of ends; worse ends have higher numbers.
fn badness(how: How) -> u8 {
    match how {
        How::Done => 0,
        How::Open => 1,
        How::Cancelled => 2,
        How::Lost => 3,
        How::Failed => 4,
    }
}

pub(crate) fn lanes(m: &Measure) -> Lanes {
    let span_ns = m.stop.since_ns(m.start);
    let mut all = Lanes { span_ns, ..Lanes::default() };
    let mut by_row: Vec<Vec<&AttemptRecord>> = vec![vec![]; m.log.executors.len()];
    let began = |a: &AttemptRecord| if a.started.0 > 0 { a.started } else { a.assigned };
    for a in m.attempts() {
        let ran = a.started.0 > 0 && a.exited > a.started;
        // A lost attempt has no times: it counts as on its node from the assignment on.
        if ran || (a.how == How::Lost && a.over > a.assigned) {
            by_row[a.executor as usize].push(a);
        }
    }
    let mut n_drawn = 0;
    let mut drawn: Vec<(usize, usize)> = vec![];
    for (row, e) in m.log.executors.iter().enumerate() {
        if m.presence(e).is_empty() && by_row[row].is_empty() {
            continue;
        }
        all.n_slots += u64::from(e.slots);
        let n = (e.slots as usize).min(LANES_MAX - n_drawn);
        n_drawn += n;
        if n > 0 {
            drawn.push((row, n));
        }
    }
    drawn.sort_by_cached_key(|(row, _)| eyas_text::natural(&m.log.executors[*row].name));
    let n_attempts: usize = drawn.iter().map(|(row, _)| by_row[*row].len()).sum();
    let named = n_attempts <= NAMED_MAX;
    let part_ns = if named { 0 } else { span_ns / PARTS };
    for (row, n) in drawn {
        let e = &m.log.executors[row];
        let attempts = &mut by_row[row];
        attempts.sort_by_key(|a| (began(a), a.task));
        // All slots are followed, so that each drawn slot shows its own programs.
        let mut free_ns = vec![0u64; (e.slots as usize).clamp(1, 4096)];
        let mut slots: Vec<Vec<Bar>> = vec![vec![]; n];
        for a in attempts.iter() {
            let from_ns = began(a).since_ns(m.start);
            let over = if a.started.0 > 0 { a.exited } else { a.over };
            let to_ns = over.since_ns(m.start).min(span_ns);
            for _ in 0..a.cpus.max(1) {
                let lowest = free_ns.iter().position(|free| *free <= from_ns);
                let lane = match lowest {
                    Some(lane) => lane,
                    // The attempt was given ahead and waited for a slot that another attempt held.
                    None if a.started.0 == 0 => continue,
                    // The clocks of two machines differ by a little.
                    None => (0..free_ns.len()).min_by_key(|i| free_ns[*i]).expect("there is a slot"),
                };
                let was_free_ns = std::mem::replace(&mut free_ns[lane], to_ns);
                let Some(bars) = slots.get_mut(lane) else { continue };
                let received_ns = a.received.since_ns(m.start);
                let has_waited = a.received.0 > 0 && a.inputs_ready > a.received && a.input_bytes() > 0;
                let wait_from_ns =
                    if has_waited { received_ns.max(was_free_ns).min(from_ns) } else { from_ns };
                push(
                    bars,
                    Bar {
                        from_ns,
                        to_ns: to_ns.max(from_ns),
                        wait_from_ns,
                        busy_ns: to_ns.saturating_sub(from_ns),
                        how: a.how,
                        n: 1,
                        name: if named { m.log.user_id(a.task) } else { String::new() },
                    },
                    part_ns,
                );
            }
        }
        let present =
            m.presence(e).into_iter().map(|(from, to)| (from.since_ns(m.start), to.since_ns(m.start)));
        all.nodes.push(NodeLanes { name: e.name.clone(), present: present.collect(), slots });
    }
    all
}

/// Adds a bar. It is merged with the last bar if both together are no longer than `part_ns`.
fn push(bars: &mut Vec<Bar>, bar: Bar, part_ns: u64) {
    match bars.last_mut() {
        Some(last) if bar.to_ns.saturating_sub(last.from_ns) < part_ns => {
            last.to_ns = last.to_ns.max(bar.to_ns);
            last.busy_ns += bar.busy_ns;
            last.n += bar.n;
            if badness(bar.how) > badness(last.how) {
                last.how = bar.how;
            }
        }
        _ => bars.push(bar),
    }
}

/// The class in the style sheet and the word for a kind of end.
fn looks(how: How) -> (&'static str, &'static str) {
    match how {
        How::Done => ("g-done", "done"),
        How::Open => ("g-open", "not ended"),
        How::Cancelled => ("g-cancelled", "cancelled"),
        How::Lost => ("g-lost", "lost with its node"),
        How::Failed => ("g-failed", "failed"),
    }
}

/// The legend and the drawing; empty if there are no attempts.
pub fn draw(lanes: &Lanes) -> String {
    let n_lanes: usize = lanes.nodes.iter().map(|n| n.slots.len()).sum();
    if n_lanes == 0 || lanes.span_ns == 0 {
        return String::new();
    }
    let (lane, gap) = match n_lanes {
        0..=16 => (18.0, 10.0),
        17..=32 => (13.0, 7.0),
        _ => (9.0, 5.0),
    };
    let mut drawing = Drawing {
        body: String::new(),
        names: vec![],
        span_ns: lanes.span_ns,
        lane,
        y: 6.0,
        seen: vec![],
        is_waiting: false,
        is_pale: false,
    };
    for node in &lanes.nodes {
        drawing.node(node);
        drawing.y += gap;
    }
    let legend = drawing.legend();
    let (wide, narrow) = (drawing.in_frame(chart::WIDE), drawing.in_frame(chart::NARROW));
    let mut out = format!("<div class=\"legend\">{legend}</div>\n{wide}{narrow}");
    if (n_lanes as u64) < lanes.n_slots {
        let all = count(lanes.n_slots);
        let _ = writeln!(out, "<p class=\"soft\">The first {n_lanes} of {all} slots.</p>");
    }
    out
}

/// A drawing under construction.
struct Drawing {
    /// Bars, at the coordinates of a wide drawing.
    body: String,
    /// Names of nodes, and where they stand.
    names: Vec<(String, f64)>,
    span_ns: u64,
    /// Height of a slot's lane.
    lane: f64,
    /// The upper end of the next lane.
    y: f64,
    /// What the legend has to explain: ends of attempts, waits for inputs, pale bars.
    seen: Vec<How>,
    is_waiting: bool,
    is_pale: bool,
}

impl Drawing {
    fn x(&self, ns: u64) -> f64 {
        let chart::Frame { width, left, right, .. } = chart::WIDE;
        left + ns as f64 / self.span_ns as f64 * (width - left - right)
    }

    /// A node's name, the times when it was there, and the lanes of its slots.
    fn node(&mut self, node: &NodeLanes) {
        let y = self.y;
        let n_slots = node.slots.len() as f64;
        self.names.push((node.name.clone(), y + 4.0 + self.lane / 2.0));
        for (from, to) in &node.present {
            let (from, to) = (self.x(*from), self.x(*to));
            let _ = writeln!(
                self.body,
                "<rect class=\"g-there\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                (to - from).max(0.5),
                n_slots * self.lane
            );
        }
        for bars in &node.slots {
            bars.iter().for_each(|bar| self.bar(bar));
            self.y += self.lane;
        }
    }

    /// One bar of the present lane, behind the time in which the slot waited for inputs.
    fn bar(&mut self, bar: &Bar) {
        let (class, word) = looks(bar.how);
        if !self.seen.contains(&bar.how) {
            self.seen.push(bar.how);
        }
        let (lane, y) = (self.lane, self.y);
        let (wait_from, from, to) = (self.x(bar.wait_from_ns), self.x(bar.from_ns), self.x(bar.to_ns));
        if from - wait_from >= 0.5 {
            self.is_waiting = true;
            let _ = write!(
                self.body,
                "<rect class=\"g-wait\" x=\"{wait_from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                y + lane * 0.3,
                from - wait_from,
                lane * 0.4
            );
        }
        let share = bar.busy_ns as f64 / (bar.to_ns - bar.from_ns).max(1) as f64;
        let pale = match share {
            s if s > 0.95 || bar.n == 1 => String::new(),
            s => format!(" opacity=\"{:.2}\"", s.max(0.15)),
        };
        self.is_pale |= !pale.is_empty();
        let _ = write!(
            self.body,
            "<rect class=\"{class}\"{pale} x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">",
            y + 1.0,
            (to - from).max(0.8),
            lane - 2.0
        );
        if bar.name.is_empty() {
            let _ = writeln!(self.body, "<title>{}</title></rect>", plural(bar.n, "attempt"));
        } else {
            let (ran, at) = (duration(bar.to_ns - bar.from_ns), duration(bar.from_ns));
            let _ =
                writeln!(self.body, "<title>{}: {word}, {ran}, from {at}</title></rect>", markup(&bar.name));
        }
    }

    /// Explains what was drawn.
    fn legend(&mut self) -> String {
        self.seen.sort_by_key(|how| badness(*how));
        let explained = |how: &How| {
            let (class, word) = looks(*how);
            format!("<span><i class=\"{class}\"></i>{word}</span>")
        };
        let mut legend: String = self.seen.iter().map(explained).collect();
        if self.is_waiting {
            legend += "<span><i class=\"g-wait\"></i>the slot waits for its task's inputs</span>";
        }
        legend += "<span><i class=\"g-there\"></i>idle</span>";
        if self.is_pale {
            legend += "<span>paler: idle between programs</span>";
        }
        legend
    }

    /// The drawing, with the axis of time below the last lane.
    fn in_frame(&self, frame: chart::Frame) -> String {
        let mut svg = frame.open(" gantt", self.y + 34.0, "which programs ran when, by node and slot");
        for (name, y) in &self.names {
            let _ = writeln!(
                svg,
                "<text class=\"axis\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\"><title>{}</title>{}</text>",
                frame.left - 8.0,
                markup(name),
                markup(&short(name, if frame.is_narrow() { 6 } else { 11 }))
            );
        }
        svg.push_str(&frame.show("gantt", &self.body));
        svg.push_str(&chart::time_axis(frame, self.span_ns as f64, self.y));
        svg.push_str("</svg>\n");
        svg
    }
}

/// A name as the margin has room for it.
fn short(name: &str, n_chars: usize) -> String {
    eyas_text::end_of(name, n_chars)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(from_ns: u64, to_ns: u64, how: How) -> Bar {
        Bar {
            from_ns,
            to_ns,
            wait_from_ns: from_ns,
            busy_ns: to_ns - from_ns,
            how,
            n: 1,
            name: String::new(),
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_one_bar_that_looks_like_its_worst() {
        let mut bars = vec![];
        for i in 0..100 {
            push(&mut bars, bar(10 * i, 10 * i + 5, if i == 30 { How::Failed } else { How::Done }), 100);
        }
        assert_eq!(bars.len(), 10);
        assert_eq!(bars.iter().map(|b| (b.n, b.busy_ns)).collect::<Vec<_>>(), [(10, 50); 10]);
        let failed: Vec<u64> = bars.iter().filter(|b| b.how == How::Failed).map(|b| b.from_ns).collect();
        assert_eq!(failed, [300]);
        let mut apart = vec![];
        (0..100).for_each(|i| push(&mut apart, bar(10 * i, 10 * i + 5, How::Done), 0));
        assert_eq!(apart.len(), 100);
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(
            [short("node1", 11), short("cluster-rack7-node0412", 11)],
            ["node1".to_string(), "…7-node0412".into()]
        );
    }
}
