//! A drawing of a workflow's stages: one self-contained SVG, the same for the same workflow.
//!
//! Stages stand in layers, each below all stages that it waits for. An edge that passes a layer has a place
//! of its own there, so that it does not run through boxes. Within a layer, the order is by the mean place
//! of the neighbours (Sugiyama81), in a few sweeps. In small workflows the tasks are drawn inside the
//! boxes, with the files between them as thin lines.

mod layout;

use self::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Workflow;
use crate::stages::{Edge, Flow, Pattern, Stage, Stages};
use eyas_text::{count, markup, plural};
use std::fmt::Write;

/// The most arrows of a drawing, and the most places that stages and arrows take in it.
const EDGES_DRAWN_MAX: usize = 2_000;
const PLACES_MAX: usize = 40_000;
/// With at most this many tasks, each task has a dot.
pub const TASKS_DRAWN_MAX: usize = 60;

const MARGIN: f64 = 24.0;
const GAP_X: f64 = 36.0;
const LAYER_GAP: f64 = 108.0;
const LINE_H: f64 = 17.0;
const CHAR_W: f64 = 7.0;
const DOT: f64 = 18.0;
const DOTS_IN_ROW: usize = 16;
const SWEEPS: usize = 8;

/// Draws `workflow`, whose stages are `stages`. Refuses a drawing that would be too large to read.
pub fn svg(workflow: &Workflow, stages: &Stages) -> Result<String> {
    check_size(stages)?;
    let with_tasks = workflow.tasks.len() <= TASKS_DRAWN_MAX;
    let texts: Vec<Vec<String>> = stages.stages.iter().map(lines_of).collect();
    let sizes: Vec<(f64, f64)> =
        stages.stages.iter().zip(&texts).map(|(stage, texts)| size_of(stage, texts, with_tasks)).collect();
    let layout = Layout::new(stages, &sizes);
    let mut out = String::new();
    write_head(&mut out, &layout);
    write_title(&mut out, workflow);
    let mut drawing = Drawing { workflow, stages, layout, parts: Parts::default() };
    drawing.edges();
    drawing.boxes(&texts);
    if with_tasks {
        drawing.tasks(&texts);
    }
    let Parts { links, edges, boxes, inner, labels } = drawing.parts;
    for part in [links, edges, boxes, inner, labels] {
        out.push_str(&part);
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// The opening tag, the styles and the heads of arrows.
fn write_head(out: &mut String, layout: &Layout) {
    let (width, height) = (layout.width, layout.height);
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="system-ui, sans-serif" font-size="13">
<style>
.box {{ stroke: #4a5568; stroke-width: 1.2 }} .name {{ font-weight: 600 }} .small {{ font-size: 12px; fill: #4a5568 }}
.edge {{ fill: none; stroke-width: 2 }} .label {{ font-size: 12px; }} .under {{ fill: #fff; fill-opacity: 0.9 }}
.dot {{ stroke: #2d3748; stroke-width: 1 }} .link {{ stroke: #718096; stroke-width: 0.7; stroke-opacity: 0.55; fill: none }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
<defs>"##
    );
    for pattern in PATTERNS {
        let (name, colour) = (pattern.name(), colour_of(pattern));
        let _ = writeln!(
            out,
            r#"<marker id="to-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>"#
        );
    }
    let _ = writeln!(out, "</defs>");
}

/// The name of the workflow, and how large it is.
fn write_title(out: &mut String, workflow: &Workflow) {
    let title = if workflow.name.is_empty() { "workflow" } else { &workflow.name };
    let total: u64 = workflow.files.iter().filter_map(|f| f.size_bytes).fold(0, u64::saturating_add);
    let sum = format!(
        "{}, {}{}",
        plural(workflow.tasks.len() as u64, "task"),
        plural(workflow.files.len() as u64, "file"),
        bytes_if(total)
    );
    let _ = writeln!(
        out,
        r#"<text x="{MARGIN}" y="{:.0}" font-size="16" class="name">{}</text>"#,
        MARGIN + 8.0,
        markup(title)
    );
    let _ =
        writeln!(out, r#"<text x="{MARGIN}" y="{:.0}" class="small">{sum}</text>"#, MARGIN + 8.0 + LINE_H);
}

/// Parts of a drawing. What is drawn later lies above: lines between tasks, edges, boxes, dots, labels.
#[derive(Default)]
struct Parts {
    links: String,
    edges: String,
    boxes: String,
    inner: String,
    labels: String,
}

/// A drawing under construction.
struct Drawing<'a> {
    workflow: &'a Workflow,
    stages: &'a Stages,
    layout: Layout,
    parts: Parts,
}

impl Drawing<'_> {
    /// The arrows between stages, with their labels.
    fn edges(&mut self) {
        let stages = self.stages;
        for (n, edge) in stages.edges.iter().enumerate() {
            match edge.from == edge.to {
                true => self.edge_to_itself(edge),
                false => self.edge(n, edge),
            }
        }
    }

    /// The edge of a stage whose tasks wait for each other.
    fn edge_to_itself(&mut self, edge: &Edge) {
        let Arrow { attributes, colour, label } = arrow_of(edge);
        let place = &self.layout.places[edge.from];
        let (x, top) = (place.x + place.width / 2.0, self.layout.top(edge.from));
        let y = top + place.height / 2.0;
        let _ = writeln!(
            self.parts.edges,
            r#"<path class="edge" {attributes} d="M{x:.1} {:.1} C{:.1} {:.1} {:.1} {:.1} {x:.1} {:.1}"><title>{label}</title></path>"#,
            y - 12.0,
            x + 34.0,
            y - 16.0,
            x + 34.0,
            y + 16.0,
            y + 12.0
        );
        write_label(&mut self.parts.labels, &label, colour, x + 30.0 + label_width(&label) / 2.0, y);
    }

    /// The edge with number `n` between two stages.
    fn edge(&mut self, n: usize, edge: &Edge) {
        let Arrow { attributes, colour, label } = arrow_of(edge);
        let (d, middle) = self.curve(n);
        let _ = writeln!(
            self.parts.edges,
            r#"<path class="edge" {attributes} d="{d}"><title>{} to {}: {label}</title></path>"#,
            markup(&self.stages.stages[edge.from].name),
            markup(&self.stages.stages[edge.to].name)
        );
        write_label(&mut self.parts.labels, &label, colour, middle.0, middle.1);
    }

    /// The path of the edge with number `n` through its places, and the point of its label.
    fn curve(&self, n: usize) -> (String, (f64, f64)) {
        let (layout, way) = (&self.layout, &self.layout.ways[n]);
        let mut d = String::new();
        let mut middle = (0.0, 0.0);
        for (i, pair) in way.windows(2).enumerate() {
            let (from, to) = (pair[0], pair[1]);
            let x1 = layout.places[from].x + layout.port(from, to, true);
            let x2 = layout.places[to].x + layout.port(to, from, false);
            let (y1, y2) = (layout.bottom(from), layout.top(to));
            let half = (y2 - y1) / 2.0;
            if i == 0 {
                let _ = write!(d, "M{x1:.1} {y1:.1}");
                // Labels of neighbours stand at different heights.
                let t: f64 = if n.is_multiple_of(2) { 0.34 } else { 0.64 };
                let bend = t * t * (3.0 - 2.0 * t);
                let fall = 1.5 * t * (1.0 - t) + t * t * t;
                middle = (x1 + (x2 - x1) * bend, y1 + (y2 - y1) * fall);
            } else {
                let _ = write!(d, " L{x1:.1} {y1:.1}");
            }
            let _ = write!(
                d,
                " C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {:.1}",
                y1 + half,
                y2 - half,
                if i + 2 == way.len() { y2 - 2.0 } else { y2 }
            );
        }
        (d, middle)
    }

    /// The boxes of stages, with their texts.
    fn boxes(&mut self, texts: &[Vec<String>]) {
        let w = &mut self.parts.boxes;
        for (n, place) in self.layout.places.iter().enumerate() {
            let Some(stage) = place.stage else { continue };
            let (x, y) = (place.x - place.width / 2.0, self.layout.top(n));
            let fill = FILLS[stage % FILLS.len()];
            let _ = writeln!(
                w,
                r#"<rect class="box" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" rx="7" fill="{fill}"/>"#,
                place.width, place.height
            );
            for (i, line) in texts[stage].iter().enumerate() {
                let class = if i == 0 { "name" } else { "small" };
                let _ = writeln!(
                    w,
                    r#"<text class="{class}" text-anchor="middle" x="{:.1}" y="{:.1}">{}</text>"#,
                    place.x,
                    y + 20.0 + i as f64 * LINE_H,
                    markup(line)
                );
            }
        }
    }

    /// A dot for each task, and the lines between tasks that wait for each other.
    fn tasks(&mut self, texts: &[Vec<String>]) {
        let dots = self.dots(texts);
        self.links(&dots);
        let w = &mut self.parts.inner;
        for (n, (x, y)) in dots.iter().enumerate() {
            let task = &self.workflow.tasks[n];
            let took = task.measured.runtime_ns.map_or(String::new(), |ns| format!(", {}", duration(ns)));
            let _ = writeln!(
                w,
                r##"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="6" fill="#fff"><title>{}{took}</title></circle>"##,
                markup(&task.id)
            );
        }
    }

    /// The place of each task's dot.
    fn dots(&self, texts: &[Vec<String>]) -> Vec<(f64, f64)> {
        let mut dots = vec![(0.0, 0.0); self.workflow.tasks.len()];
        for (n, place) in self.layout.places.iter().enumerate() {
            let Some(stage) = place.stage else { continue };
            let y = self.layout.top(n);
            let tasks = &self.stages.stages[stage].tasks;
            let first_y = y + 20.0 + texts[stage].len() as f64 * LINE_H;
            for (i, task) in tasks.iter().enumerate() {
                let row = i / DOTS_IN_ROW;
                let in_row = (tasks.len() - row * DOTS_IN_ROW).min(DOTS_IN_ROW) as f64;
                let dx = (i % DOTS_IN_ROW) as f64 - (in_row - 1.0) / 2.0;
                dots[*task as usize] = (place.x + dx * DOT, first_y + row as f64 * DOT);
            }
        }
        dots
    }

    /// The lines between the dots of tasks that wait for each other.
    fn links(&mut self, dots: &[(f64, f64)]) {
        let (layout, stages) = (&self.layout, self.stages);
        for (n, before) in self.workflow.predecessors().iter().enumerate() {
            for p in before {
                let p = *p as usize;
                let ((x1, y1), (x2, y2)) = (dots[p], dots[n]);
                if stages.of_task[p] == stages.of_task[n] {
                    let lift = (y1 + y2) / 2.0 - DOT;
                    let _ = writeln!(
                        self.parts.inner,
                        r#"<path class="link" d="M{x1:.1} {y1:.1} Q{:.1} {lift:.1} {x2:.1} {y2:.1}"/>"#,
                        (x1 + x2) / 2.0
                    );
                    continue;
                }
                let (y1, y2) = (layout.bottom(stages.of_task[p]), layout.top(stages.of_task[n]));
                let half = (y2 - y1) / 2.0;
                let _ = writeln!(
                    self.parts.links,
                    r#"<path class="link" d="M{x1:.1} {y1:.1} C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}"/>"#,
                    y1 + half,
                    y2 - half
                );
            }
        }
    }
}

/// How the arrow of an edge looks.
struct Arrow {
    attributes: String,
    colour: &'static str,
    label: String,
}

fn arrow_of(edge: &Edge) -> Arrow {
    let (name, colour) = (edge.pattern.name(), colour_of(edge.pattern));
    let dashes = if edge.pattern == Pattern::Order { r#" stroke-dasharray="4 4""# } else { "" };
    Arrow {
        attributes: format!(r#"stroke="{colour}" marker-end="url(#to-{name})"{dashes}"#),
        colour,
        label: label_of(edge.pattern, &edge.flow),
    }
}

/// Refuses a drawing that is too large. Each arrow takes a place in every layer that it passes.
fn check_size(stages: &Stages) -> Result<()> {
    let layer = |stage: usize| stages.stages[stage].layer;
    let (n_stages, n_edges) = (stages.stages.len(), stages.edges.len());
    let n_passed: usize =
        stages.edges.iter().map(|edge| layer(edge.to).saturating_sub(layer(edge.from))).sum();
    if n_edges <= EDGES_DRAWN_MAX && n_stages + n_passed <= PLACES_MAX {
        return Ok(());
    }
    let message = format!(
        "a drawing of {n_stages} stages with {n_edges} arrows between them could not be read: at most \
         {EDGES_DRAWN_MAX} arrows are drawn, past {PLACES_MAX} places"
    );
    Err(Error::new(ErrorKind::Unsupported, message)
        .hint("give tasks of one kind one label (category, transformation), so that they are one stage"))
}

fn label_width(label: &str) -> f64 {
    label.chars().count() as f64 * (CHAR_W - 0.6) + 8.0
}

/// `label` around the point `x`, `y`, on a background of its own.
fn write_label(out: &mut String, label: &str, colour: &str, x: f64, y: f64) {
    let width = label_width(label);
    let _ = writeln!(
        out,
        r#"<rect class="under" x="{:.1}" y="{:.1}" width="{width:.1}" height="16" rx="4"/><text class="label" fill="{colour}" text-anchor="middle" x="{x:.1}" y="{:.1}">{label}</text>"#,
        x - width / 2.0,
        y - 8.0,
        y + 4.0
    );
}

fn size_of(stage: &Stage, texts: &[String], with_tasks: bool) -> (f64, f64) {
    let longest = texts.iter().map(|t| t.chars().count()).max().unwrap_or(0) as f64;
    let n = stage.tasks.len();
    let dots = if with_tasks { n.min(DOTS_IN_ROW) as f64 * DOT } else { 0.0 };
    let rows = if with_tasks { n.div_ceil(DOTS_IN_ROW) as f64 } else { 0.0 };
    let width = (longest * CHAR_W).max(dots).max(120.0) + 28.0;
    (width, 16.0 + texts.len() as f64 * LINE_H + rows * DOT)
}

fn lines_of(stage: &Stage) -> Vec<String> {
    let mut first = plural(stage.tasks.len() as u64, "task");
    if stage.runtime_ns > 0 {
        first.push_str(&format!(", {} in all", duration(stage.runtime_ns)));
    }
    let mut lines = vec![stage.name.clone(), first];
    let home = &stage.home;
    if home.n_files > 0 {
        let often = if home.n_reads > home.n_files {
            format!(", read {} times", count(home.n_reads))
        } else {
            String::new()
        };
        lines.push(format!("from home: {}{}{often}", plural(home.n_files, "file"), bytes_if(home.bytes)));
    }
    if stage.n_outputs > 0 {
        let results = match stage.n_results {
            0 => String::new(),
            n if n == stage.n_outputs => ", all results".into(),
            n => format!(", of which {}", plural(n, "result")),
        };
        lines.push(format!(
            "writes: {}{}{results}",
            plural(stage.n_outputs, "file"),
            bytes_if(stage.output_bytes)
        ));
    }
    lines
}

fn label_of(pattern: Pattern, flow: &Flow) -> String {
    match pattern {
        Pattern::Order => "waits".into(),
        _ => format!("{} · {}{}", pattern.name(), plural(flow.n_files, "file"), bytes_if(flow.bytes)),
    }
}

const PATTERNS: [Pattern; 7] = [
    Pattern::Pipeline,
    Pattern::Multicast,
    Pattern::Scatter,
    Pattern::Gather,
    Pattern::Reduce,
    Pattern::Exchange,
    Pattern::Order,
];

fn colour_of(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Pipeline => "#2b6cb0",
        Pattern::Multicast => "#b7791f",
        Pattern::Scatter => "#2f855a",
        Pattern::Gather => "#c53030",
        Pattern::Reduce => "#6b46c1",
        Pattern::Exchange => "#b83280",
        Pattern::Order => "#718096",
    }
}

const FILLS: [&str; 6] = ["#ebf4ff", "#f0fff4", "#fffff0", "#fff5f5", "#faf5ff", "#edf2f7"];

/// ", 4.2 MB", or nothing if the size is not known.
fn bytes_if(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    if bytes == 0 {
        return String::new();
    }
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.5 { 0 } else { 1 };
    format!(", {value:.digits$} {}", UNITS[unit])
}

fn duration(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        s if s < 0.1 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(
            (bytes_if(0), bytes_if(999), bytes_if(4_250_000)),
            ("".into(), ", 999 B".into(), ", 4.2 MB".into())
        );
        assert_eq!((duration(50_000_000), duration(90_000_000_000)), ("50 ms".into(), "90.0 s".into()));
    }
}
