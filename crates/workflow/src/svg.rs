//! A drawing of a workflow's stages: one self-contained SVG, the same for the same workflow.
//!
//! Stages stand in layers, each below all stages that it waits for. An edge that passes a layer has a place
//! of its own there, so that it does not run through boxes. Within a layer, the order is by the mean place
//! of the neighbours (Sugiyama81), in a few sweeps. In small workflows the tasks are drawn inside the
//! boxes, with the files between them as thin lines.

use crate::error::{Error, ErrorKind, Result};
use crate::model::Workflow;
use crate::stages::{Flow, Pattern, Stage, Stages};
use eyas_text::markup;
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

/// A place in a layer: a stage, or an edge on its way to a deeper layer.
struct Place {
    stage: Option<usize>,
    width: f64,
    height: f64,
    x: f64,
}

/// Draws `workflow`, whose stages are `stages`. Refuses a drawing that would be too large to read.
pub fn svg(workflow: &Workflow, stages: &Stages) -> Result<String> {
    check_size(stages)?;
    let with_tasks = workflow.tasks.len() <= TASKS_DRAWN_MAX;
    let texts: Vec<Vec<String>> = stages.stages.iter().map(lines_of).collect();
    let n_layers = stages.stages.iter().map(|s| s.layer + 1).max().unwrap_or(0);
    let mut places: Vec<Place> = vec![];
    let mut layers: Vec<Vec<usize>> = vec![vec![]; n_layers];
    for (n, stage) in stages.stages.iter().enumerate() {
        let (width, height) = size_of(stage, &texts[n], with_tasks);
        layers[stage.layer].push(places.len());
        places.push(Place { stage: Some(n), width, height, x: 0.0 });
    }
    // By edge: the places that it goes through, from its first stage to its last.
    let mut ways: Vec<Vec<usize>> = vec![];
    for edge in &stages.edges {
        let (from, to) = (&stages.stages[edge.from], &stages.stages[edge.to]);
        let mut way = vec![edge.from];
        for layer in layers.iter_mut().take(to.layer).skip(from.layer + 1) {
            layer.push(places.len());
            way.push(places.len());
            places.push(Place { stage: None, width: 12.0, height: 0.0, x: 0.0 });
        }
        way.push(edge.to);
        ways.push(way);
    }
    arrange(&mut layers, &ways, places.len());
    let width = spread(&layers, &mut places);
    let mut tops = vec![];
    let mut y = MARGIN + 2.0 * LINE_H + 10.0;
    for layer in &layers {
        tops.push(y);
        let tallest = layer.iter().map(|p| places[*p].height).fold(0.0, f64::max);
        y += tallest + LAYER_GAP;
    }
    let height = y - LAYER_GAP + MARGIN;
    let mut layer_of = vec![0; places.len()];
    for (n, layer) in layers.iter().enumerate() {
        layer.iter().for_each(|p| layer_of[*p] = n);
    }
    let tallest: Vec<f64> =
        layers.iter().map(|l| l.iter().map(|p| places[*p].height).fold(0.0, f64::max)).collect();

    let mut out = String::new();
    let w = &mut out;
    let _ = writeln!(
        w,
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
            w,
            r#"<marker id="to-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>"#
        );
    }
    let _ = writeln!(w, "</defs>");
    let title = if workflow.name.is_empty() { "workflow" } else { &workflow.name };
    let total: u64 = workflow.files.iter().filter_map(|f| f.size_bytes).fold(0, u64::saturating_add);
    let sum = format!(
        "{}, {}{}",
        plural(workflow.tasks.len() as u64, "task"),
        plural(workflow.files.len() as u64, "file"),
        bytes_if(total)
    );
    let _ = writeln!(
        w,
        r#"<text x="{MARGIN}" y="{:.0}" font-size="16" class="name">{}</text>"#,
        MARGIN + 8.0,
        markup(title)
    );
    let _ = writeln!(w, r#"<text x="{MARGIN}" y="{:.0}" class="small">{sum}</text>"#, MARGIN + 8.0 + LINE_H);

    // Parts that are drawn later lie above: lines between tasks, edges, boxes, dots, labels.
    let (mut links, mut edges, mut boxes, mut inner) =
        (String::new(), String::new(), String::new(), String::new());
    let mut labels = String::new();
    let w = &mut edges;
    for (n, (edge, way)) in stages.edges.iter().zip(&ways).enumerate() {
        let (name, colour) = (edge.pattern.name(), colour_of(edge.pattern));
        let dashes = if edge.pattern == Pattern::Order { r#" stroke-dasharray="4 4""# } else { "" };
        let label = label_of(edge.pattern, &edge.flow);
        if edge.from == edge.to {
            let place = &places[edge.from];
            let (x, top) = (place.x + place.width / 2.0, tops[layer_of[edge.from]]);
            let y = top + place.height / 2.0;
            let _ = writeln!(
                w,
                r#"<path class="edge" stroke="{colour}" marker-end="url(#to-{name})"{dashes} d="M{x:.1} {:.1} C{:.1} {:.1} {:.1} {:.1} {x:.1} {:.1}"><title>{label}</title></path>"#,
                y - 12.0,
                x + 34.0,
                y - 16.0,
                x + 34.0,
                y + 16.0,
                y + 12.0
            );
            write_label(&mut labels, &label, colour, x + 30.0 + label_width(&label) / 2.0, y);
            continue;
        }
        let mut d = String::new();
        let mut middle = (0.0, 0.0);
        for (i, pair) in way.windows(2).enumerate() {
            let (from, to) = (pair[0], pair[1]);
            let x1 = places[from].x + port(&stages.edges, &ways, &places, from, to, true);
            let x2 = places[to].x + port(&stages.edges, &ways, &places, to, from, false);
            let y1 = tops[layer_of[from]]
                + if places[from].stage.is_some() { places[from].height } else { tallest[layer_of[from]] };
            let y2 = tops[layer_of[to]];
            let half = (y2 - y1) / 2.0;
            if i == 0 {
                let _ = write!(d, "M{x1:.1} {y1:.1}");
                // Labels of neighbours stand at different heights.
                let t: f64 = if n % 2 == 0 { 0.34 } else { 0.64 };
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
        let _ = writeln!(
            w,
            r#"<path class="edge" stroke="{colour}" marker-end="url(#to-{name})"{dashes} d="{d}"><title>{} to {}: {label}</title></path>"#,
            markup(&stages.stages[edge.from].name),
            markup(&stages.stages[edge.to].name)
        );
        write_label(&mut labels, &label, colour, middle.0, middle.1);
    }
    let mut dots: Vec<(f64, f64)> = vec![(0.0, 0.0); workflow.tasks.len()];
    let w = &mut boxes;
    for (n, place) in places.iter().enumerate() {
        let Some(stage) = place.stage else { continue };
        let (x, y) = (place.x - place.width / 2.0, tops[layer_of[n]]);
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
        if with_tasks {
            let tasks = &stages.stages[stage].tasks;
            let first_y = y + 20.0 + texts[stage].len() as f64 * LINE_H;
            for (i, task) in tasks.iter().enumerate() {
                let row = i / DOTS_IN_ROW;
                let in_row = (tasks.len() - row * DOTS_IN_ROW).min(DOTS_IN_ROW) as f64;
                let dx = (i % DOTS_IN_ROW) as f64 - (in_row - 1.0) / 2.0;
                dots[*task as usize] = (place.x + dx * DOT, first_y + row as f64 * DOT);
            }
        }
    }
    if with_tasks {
        let edge_of = |task: usize, bottom: bool| {
            let place = stages.of_task[task];
            tops[layer_of[place]] + if bottom { places[place].height } else { 0.0 }
        };
        for (n, before) in workflow.predecessors().iter().enumerate() {
            for p in before {
                let p = *p as usize;
                let ((x1, y1), (x2, y2)) = (dots[p], dots[n]);
                if stages.of_task[p] == stages.of_task[n] {
                    let lift = (y1 + y2) / 2.0 - DOT;
                    let _ = writeln!(
                        inner,
                        r#"<path class="link" d="M{x1:.1} {y1:.1} Q{:.1} {lift:.1} {x2:.1} {y2:.1}"/>"#,
                        (x1 + x2) / 2.0
                    );
                    continue;
                }
                let (y1, y2) = (edge_of(p, true), edge_of(n, false));
                let half = (y2 - y1) / 2.0;
                let _ = writeln!(
                    links,
                    r#"<path class="link" d="M{x1:.1} {y1:.1} C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}"/>"#,
                    y1 + half,
                    y2 - half
                );
            }
        }
        let w = &mut inner;
        for (n, (x, y)) in dots.iter().enumerate() {
            let task = &workflow.tasks[n];
            let took = task.measured.runtime_ns.map_or(String::new(), |ns| format!(", {}", duration(ns)));
            let _ = writeln!(
                w,
                r##"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="6" fill="#fff"><title>{}{took}</title></circle>"##,
                markup(&task.id)
            );
        }
    }
    for part in [links, edges, boxes, inner, labels] {
        out.push_str(&part);
    }
    out.push_str("</svg>\n");
    Ok(out)
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

/// The point where an edge leaves or enters a box, from the box's middle. The edges of one side spread over
/// it, in the order of their other ends.
fn port(
    edges: &[crate::stages::Edge],
    ways: &[Vec<usize>],
    places: &[Place],
    at: usize,
    other: usize,
    leaves: bool,
) -> f64 {
    if places[at].stage.is_none() {
        return 0.0;
    }
    let mut others: Vec<usize> = edges
        .iter()
        .zip(ways)
        .filter(|(edge, _)| edge.from != edge.to)
        .filter_map(|(_, way)| match leaves {
            true if way[0] == at => Some(way[1]),
            false if way[way.len() - 1] == at => Some(way[way.len() - 2]),
            _ => None,
        })
        .collect();
    others.sort_by(|a, b| places[*a].x.total_cmp(&places[*b].x).then(a.cmp(b)));
    let n = others.len() as f64;
    let i = others.iter().position(|o| *o == other).unwrap_or(0) as f64;
    (i + 1.0) / (n + 1.0) * places[at].width - places[at].width / 2.0
}

/// Orders each layer by the mean place of the neighbours above, then below, a few times.
fn arrange(layers: &mut [Vec<usize>], ways: &[Vec<usize>], n_places: usize) {
    let (mut above, mut below) = (vec![vec![]; n_places], vec![vec![]; n_places]);
    for pair in ways.iter().flat_map(|way| way.windows(2)).filter(|pair| pair[0] != pair[1]) {
        above[pair[1]].push(pair[0]);
        below[pair[0]].push(pair[1]);
    }
    let mut rank = vec![0.0; n_places];
    let number = |layer: &[usize], rank: &mut [f64]| {
        layer.iter().enumerate().for_each(|(i, p)| rank[*p] = i as f64 - layer.len() as f64 / 2.0);
    };
    layers.iter().for_each(|layer| number(layer, &mut rank));
    for sweep in 0..SWEEPS {
        let downwards = sweep % 2 == 0;
        let neighbours = if downwards { &above } else { &below };
        let mut numbers: Vec<usize> = (0..layers.len()).collect();
        if !downwards {
            numbers.reverse();
        }
        for n in numbers {
            let mean = |p: &usize| match neighbours[*p].as_slice() {
                [] => rank[*p],
                all => all.iter().map(|q| rank[*q]).sum::<f64>() / all.len() as f64,
            };
            let mut keyed: Vec<(f64, usize)> = layers[n].iter().map(|p| (mean(p), *p)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[n] = keyed.into_iter().map(|(_, p)| p).collect();
            number(&layers[n], &mut rank);
        }
    }
}

/// Sets the middle of every place; each layer is centred. Returns the width of the drawing.
fn spread(layers: &[Vec<usize>], places: &mut [Place]) -> f64 {
    let width_of = |layer: &Vec<usize>, places: &[Place]| {
        layer.iter().map(|p| places[*p].width + GAP_X).sum::<f64>() - GAP_X
    };
    let widest = layers.iter().map(|layer| width_of(layer, places)).fold(260.0, f64::max);
    for layer in layers {
        let mut x = MARGIN + (widest - width_of(layer, places)) / 2.0;
        for p in layer {
            places[*p].x = x + places[*p].width / 2.0;
            x += places[*p].width + GAP_X;
        }
    }
    // Room at the right for the label of an edge from a stage to itself.
    widest + 2.0 * MARGIN + 120.0
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

fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join(",")
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

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
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(
            (bytes_if(0), bytes_if(999), bytes_if(4_250_000)),
            ("".into(), ", 999 B".into(), ", 4.2 MB".into())
        );
        assert_eq!((duration(50_000_000), duration(90_000_000_000)), ("50 ms".into(), "90.0 s".into()));
    }
}
