//! The picture of a cluster on a screen of any size: a function of the view and the size alone.

use super::view::{Running, SECOND_NS, View, n_queued};
use crate::print::{count, last_decision, nodes_of, plural, size, time};
use eyas_terms::NodeState;
use eyas_wire::message::{ClusterStatus, ExecutorLine, RunStatus};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The width of a task's id is limited, so that the reason of its failure is visible beside it.
const ID_WIDTH_MAX: usize = 60;

const LOCAL: Color = Color::Indexed(71);
const PEER: Color = Color::Indexed(74);
pub(crate) const HOME: Color = Color::Indexed(173);
const TASKS: Color = Color::Indexed(110);
pub(crate) const DIM: Color = Color::Indexed(245);
pub(crate) const BAD: Color = Color::Indexed(167);
const EMPTY: Color = Color::Indexed(238);

pub(crate) fn dim(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(DIM))
}

pub(crate) fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

pub(crate) fn coloured(text: impl Into<String>, colour: Color) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(colour))
}

pub(crate) fn alarm(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().bg(BAD).fg(Color::Black))
}

/// Rows of each section for a screen of `height` rows.
struct Rows {
    runs: u16,
    nodes: u16,
    /// Running tasks, with the title.
    running: u16,
    failures: u16,
}

impl Rows {
    /// Each section has a title of one row; header and footer take two.
    /// `chart`: the rows that the chart has in any case, where the screen is not small.
    fn plan(
        height: u16,
        (n_runs, n_nodes, n_failures, n_running): (usize, usize, usize, usize),
        chart: u16,
    ) -> Rows {
        let mut left = height.saturating_sub(6);
        let take = |left: &mut u16, wanted: usize, max: u16| {
            let rows = wanted.min(usize::from(max)).min(usize::from(*left)) as u16;
            *left -= rows;
            rows
        };
        let small = height < 22;
        let runs = take(&mut left, n_runs.max(1), if small { 1 } else { height / 8 });
        let failures = take(&mut left, n_failures.max(1), if small { 1 } else { height / 6 });
        let nodes = take(&mut left, n_nodes.max(1), if small { 3 } else { height / 3 });
        // The chart takes what the other sections do not need, and at least a few rows.
        left = left.saturating_sub(if small { 4 } else { chart });
        // The remaining rows go to the sections that have more to show.
        let nodes = nodes + take(&mut left, n_nodes.saturating_sub(nodes.into()), u16::MAX);
        let failures = failures + take(&mut left, n_failures.saturating_sub(failures.into()), u16::MAX);
        let running = match left {
            0 | 1 => 0,
            // Rows that no other section needs.
            left => (n_running + 1).min(usize::from(left)) as u16,
        };
        Rows { runs, nodes, running: if n_running == 0 { 0 } else { running }, failures }
    }
}

pub(super) fn draw(frame: &mut Frame, view: &View) {
    let area = frame.area();
    let Some(status) = &view.status else { return };
    let failures = view.failures();
    let runs = shown_runs(view, &status.runs);
    let running = view.running(None);
    // Between two short programs a slot is empty for a moment; the sections below stay where they are.
    let n_left: u64 = status.runs.iter().map(|run| run.n_tasks - run.n_ended().min(run.n_tasks)).sum();
    let slots: u64 = status.executors.iter().map(|e| u64::from(e.slots)).sum();
    let n_running = running.len().max(slots.min(n_left) as usize);
    // A chart of files alone is empty while none is read.
    let has_chart =
        has_both_charts(area) || view.seconds.iter().any(|s| s.bytes_per_s.iter().any(|b| *b > 0.0));
    let wanted = (runs.len(), status.executors.len(), failures.len(), n_running);
    let rows = Rows::plan(area.height, wanted, if has_chart { 10 } else { 2 });
    let section = |rows: u16| Constraint::Length(rows + 1);
    let parts: [Rect; 7] = Layout::vertical([
        Constraint::Length(1),
        section(rows.runs),
        section(rows.nodes),
        Constraint::Length(rows.running),
        Constraint::Fill(1),
        section(rows.failures),
        Constraint::Length(1),
    ])
    .areas(area);
    header(frame, parts[0], view, status);
    draw_runs(frame, parts[1], view, &runs);
    draw_nodes(frame, parts[2], status);
    if rows.running > 0 {
        let right = vec![dim("longest first ")];
        let rest = title(frame, parts[3], "Running", right);
        draw_running(frame, rest, view, &running);
    }
    draw_charts(frame, parts[4], view);
    draw_failures(frame, parts[5], &failures, &status.runs);
    if view.gone.is_some() {
        // What the sections show is how it was.
        for section in &parts[1..6] {
            frame.buffer_mut().set_style(*section, Style::new().fg(DIM).add_modifier(Modifier::DIM));
        }
    }
    footer(frame, parts[6], view, status);
}

/// A row for each program: how long it has run, where, and which task it is of.
pub(super) fn draw_running(frame: &mut Frame, area: Rect, view: &View, running: &[Running<'_>]) {
    let fit = usize::from(area.height);
    let shown = if running.len() > fit { fit.saturating_sub(1) } else { running.len() };
    for (row, running) in area.rows().zip(&running[..shown]) {
        let node = eyas_text::end_of(&clean(running.node), 12);
        let line = Line::from(vec![
            Span::raw(format!(" {:>11}", time(running.age_ns))),
            dim(format!("  {node:<12}  ")),
            Span::raw(clipped(&clean(&view.name_of(running.task)), ID_WIDTH_MAX)),
        ]);
        frame.render_widget(line, row);
    }
    if shown < running.len()
        && let Some(row) = area.rows().nth(shown)
    {
        frame.render_widget(Line::from(dim(format!(" and {} more", running.len() - shown))), row);
    }
}

pub(super) fn header(frame: &mut Frame, area: Rect, view: &View, status: &ClusterStatus) {
    let slots: u64 = status.executors.iter().map(|e| u64::from(e.slots)).sum();
    let up = time(status.now.since_ns(status.started));
    let n_nodes = status.executors.len();
    let nodes = match &status.provisioner {
        Some(provisioner) => nodes_of(provisioner, status),
        None => plural(n_nodes as u64, "node"),
    };
    let silent = match &view.gone {
        // Whole seconds, so that only they change.
        Some(_) => alarm(format!(" no answer for {} s ", view.silent_ns / SECOND_NS)),
        None => Span::default(),
    };
    let line = Line::from(vec![
        bold(" eyas top "),
        silent,
        dim(" cluster "),
        Span::raw(status.cluster.clone()),
        dim("  up "),
        Span::raw(up),
        dim("  "),
        Span::raw(format!("{nodes}, {}", plural(slots, "slot"))),
        dim("  placement "),
        Span::raw(status.placement.clone()),
    ]);
    frame.render_widget(line.style(Style::new().bg(Color::Indexed(236))), area);
}

/// A section's first row: its name, then `right` after a line. Gives the rows below it.
pub(crate) fn title(frame: &mut Frame, area: Rect, name: &str, right: Vec<Span<'static>>) -> Rect {
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let right_width: usize = right.iter().map(Span::width).sum();
    let used = name.chars().count() + right_width + 5;
    let rule = "─".repeat(usize::from(head.width).saturating_sub(used));
    let mut spans =
        vec![Span::raw(" "), bold(name.to_string()), Span::raw(" "), coloured(rule, EMPTY), Span::raw(" ")];
    spans.extend(right);
    frame.render_widget(Line::from(spans), head);
    rest
}

/// Runs under way, those of the working folder before the others and newest first; if there is none, the last of the working folder,
/// else the last.
fn shown_runs<'a>(view: &View, runs: &'a [RunStatus]) -> Vec<&'a RunStatus> {
    let mut all: Vec<&RunStatus> = runs.iter().rev().collect();
    all.sort_by_key(|run| !view.of_here.contains(&run.run));
    let active: Vec<&RunStatus> = all.iter().copied().filter(|run| run.ended.is_none()).collect();
    if active.is_empty() { all.into_iter().take(1).collect() } else { active }
}

fn draw_runs(frame: &mut Frame, area: Rect, view: &View, runs: &[&RunStatus]) {
    let (_, rate) = view.rates();
    let queued: u64 = runs.iter().map(|r| n_queued(r)).sum();
    let right =
        vec![dim("queue "), Span::raw(count(queued)), dim("  tasks/s "), Span::raw(format!("{rate:.0} "))];
    let rest = title(frame, area, "Runs", right);
    if runs.is_empty() {
        return frame.render_widget(Line::from(dim(" nothing was submitted yet")), rest);
    }
    for (row, run) in rest.rows().zip(runs) {
        draw_run(frame, row, view, run);
    }
}

fn draw_run(frame: &mut Frame, row: Rect, view: &View, run: &RunStatus) {
    let ended = run.n_ended();
    let share = ended as f64 / run.n_tasks.max(1) as f64;
    let rate = view.run_rate(run.run);
    let end = match run.ended {
        Some(at) => format!("ended after {}", time(at.since_ns(run.opened))),
        None if rate > 0.0 => {
            format!("{} left", time(((run.n_tasks - ended.min(run.n_tasks)) as f64 / rate * 1e9) as u64))
        }
        None => "waiting".into(),
    };
    let numbers = format!(" {:>3.0} %  {}/{}", share * 100.0, count(ended), count(run.n_tasks));
    let mut right = vec![Span::raw(numbers), dim(format!("  {end}"))];
    if run.n_failed > 0 {
        right.push(coloured(format!("  {} failed", count(run.n_failed)), BAD));
    }
    right.push(Span::raw(" "));
    let right_width: usize = right.iter().map(Span::width).sum();
    let free = usize::from(row.width).saturating_sub(right_width + 2);
    let name_width = (free / 3).clamp(6, 40).min(free);
    let name = clipped(&format!("{} {}", run.run, clean(&run.name)), name_width);
    let bar_width = free.saturating_sub(name_width + 1);
    let mut spans = vec![Span::raw(format!(" {name:<name_width$} "))];
    spans.extend(bar(bar_width, share, if run.n_failed > 0 { HOME } else { LOCAL }));
    spans.extend(right);
    frame.render_widget(Line::from(spans), row);
}

fn draw_nodes(frame: &mut Frame, area: Rect, status: &ClusterStatus) {
    let nodes = &status.executors[..];
    let busy: u64 = nodes.iter().map(n_busy).sum();
    let slots: u64 = nodes.iter().map(|e| u64::from(e.slots)).sum();
    let mut right = vec![dim("slots busy "), Span::raw(format!("{busy}/{slots} "))];
    // Why one more or one less, as far as the row has room.
    let last = status.provisioner.as_ref().and_then(|p| last_decision(p, status));
    let n_room = usize::from(area.width).saturating_sub(right.iter().map(Span::width).sum::<usize>() + 16);
    if let Some(last) = last.filter(|_| n_room > 20) {
        right.insert(0, dim(format!("{}  ", clipped(&clean(&last), n_room))));
    }
    let rest = title(frame, area, "Nodes", right);
    if nodes.is_empty() {
        return frame.render_widget(Line::from(dim(" no executor has joined")), rest);
    }
    let fit = usize::from(rest.height);
    let shown = if nodes.len() > fit { fit.saturating_sub(1) } else { nodes.len() };
    for (row, node) in rest.rows().zip(&nodes[..shown]) {
        draw_node(frame, row, node);
    }
    if shown < nodes.len()
        && let Some(row) = rest.rows().nth(shown)
    {
        let text = format!(" and {} more", plural((nodes.len() - shown) as u64, "node"));
        frame.render_widget(Line::from(dim(text)), row);
    }
}

/// Slots that run programs, according to the last heartbeat. Of short programs most have ended since then, and others run: what the
/// node has beyond the tasks that waited at the heartbeat.
fn n_busy(node: &ExecutorLine) -> u64 {
    let n_running = node.n_assigned.saturating_sub(node.status.n_waiting);
    (node.status.running.len() as u64).max(n_running.into()).min(u64::from(node.slots))
}

pub(super) fn draw_node(frame: &mut Frame, row: Rect, node: &ExecutorLine) {
    let wide = row.width >= 118;
    let name_width = if wide { 12 } else { 8 };
    let slots_width = if wide { 8 } else { 4 };
    let cache_width = if wide { 12 } else { 6 };
    let status = &node.status;
    let fill = status.cache_used_bytes as f64 / node.cache_bytes.max(1) as f64;
    let busy = n_busy(node);
    let name_style = if node.state == NodeState::Connected { Style::new() } else { Style::new().fg(BAD) };
    let mut spans = vec![Span::styled(
        format!(" {:<name_width$} ", eyas_text::end_of(&clean(&node.name), name_width)),
        name_style,
    )];
    if usize::try_from(node.slots).is_ok_and(|n| n <= slots_width) {
        spans.push(coloured("■".repeat(busy as usize), TASKS));
        spans.push(coloured("■".repeat((u64::from(node.slots) - busy) as usize), EMPTY));
        spans.push(Span::raw(" ".repeat(slots_width - node.slots as usize)));
    } else {
        spans.extend(bar(slots_width, busy as f64 / f64::from(node.slots.max(1)), TASKS));
    }
    spans.push(Span::raw(format!(" {:>5}", format!("{busy}/{}", node.slots))));
    spans.push(dim("  cache "));
    spans.extend(bar(cache_width, fill, LOCAL));
    if wide {
        let text = format!(" {}/{}", size(status.cache_used_bytes), size(node.cache_bytes));
        spans.push(Span::raw(format!("{text:<20}")));
    } else {
        spans.push(Span::raw(format!(" {:>3.0}%", fill * 100.0)));
    }
    let sources = [
        ("local", status.local_bytes, LOCAL),
        ("peers", status.peer_bytes, PEER),
        ("home", status.home_read_bytes, HOME),
    ];
    for (name, bytes, colour) in sources {
        if wide {
            spans.push(dim(format!(" {name} ")));
        }
        let text = if wide { size(bytes) } else { short_size(bytes) };
        let width = if wide { 10 } else { 7 };
        spans.push(coloured(format!("{text:>width$}"), colour));
    }
    if node.state != NodeState::Connected {
        spans.push(coloured(format!(" {}", node.state), BAD));
    }
    frame.render_widget(Line::from(spans), row);
}

/// `1.5G`, for narrow screens.
fn short_size(bytes: u64) -> String {
    size(bytes).replace("iB", "").replace([' ', 'B'], "")
}

/// Whether there is room for a chart of tasks beside that of files.
fn has_both_charts(area: Rect) -> bool {
    area.width >= 100
}

fn draw_charts(frame: &mut Frame, area: Rect, view: &View) {
    let (bytes, rate) = view.rates();
    let both = has_both_charts(area);
    let constraints =
        if both { vec![Constraint::Fill(2), Constraint::Fill(1)] } else { vec![Constraint::Fill(1)] };
    let parts = Layout::horizontal(constraints).split(area);
    let per_s =
        |bytes: f64| if both { format!("{}/s", size(bytes as u64)) } else { short_size(bytes as u64) };
    let legend = vec![
        coloured("█ ", LOCAL),
        Span::raw(format!("local {}  ", per_s(bytes[0]))),
        coloured("█ ", PEER),
        Span::raw(format!("peers {}  ", per_s(bytes[1]))),
        coloured("█ ", HOME),
        Span::raw(format!("home {} ", per_s(bytes[2]))),
    ];
    let name = if both { "Throughput" } else { "Read" };
    let rest = title(frame, parts[0], name, legend);
    let columns: Vec<[f64; 3]> = view.seconds.iter().map(|s| s.bytes_per_s).collect();
    stacked(frame.buffer_mut(), inset(rest), &columns, [LOCAL, PEER, HOME], |top| {
        format!("{}/s", size(top as u64))
    });
    if let Some(area) = parts.get(1).filter(|_| both) {
        let last = view.seconds.back().map_or(0, |s| s.n_queued);
        let right = vec![Span::raw(format!("{rate:.0}/s")), dim(format!("  {} queued ", count(last)))];
        let rest = title(frame, *area, "Tasks", right);
        let columns: Vec<[f64; 3]> = view.seconds.iter().map(|s| [s.tasks_per_s, 0.0, 0.0]).collect();
        stacked(frame.buffer_mut(), inset(rest), &columns, [TASKS; 3], |top| format!("{top:.0}/s"));
    }
}

fn inset(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
}

/// Stacked bars, the newest at the right, one column a second, in eighths of a cell. The largest sum
/// reaches the top and is written there.
fn stacked(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[[f64; 3]],
    colours: [Color; 3],
    label: impl Fn(f64) -> String,
) {
    const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if area.height == 0 || area.width == 0 {
        return;
    }
    let shown = &columns[columns.len().saturating_sub(area.width.into())..];
    let top = shown.iter().map(|c| c.iter().sum::<f64>()).fold(0.0, f64::max);
    let eighths = f64::from(area.height) * 8.0;
    for (i, column) in shown.iter().enumerate() {
        let x = area.right() - (shown.len() - i) as u16;
        // The upper end of each layer, from below; a layer that is not empty is always visible.
        let mut ends = [0i64; 3];
        let mut sum = 0.0;
        for (end, value) in ends.iter_mut().zip(column) {
            sum += value;
            let exact = if top > 0.0 { sum / top * eighths } else { 0.0 };
            *end = if *value > 0.0 { exact.ceil() as i64 } else { exact.round() as i64 };
        }
        for row in 0..area.height {
            let y = area.bottom() - 1 - row;
            let base = i64::from(row) * 8;
            let layer = |at: i64| (0..3).find(|l| at < ends[*l]);
            let Some(lowest) = layer(base) else { continue };
            let fill = (ends[lowest] - base).clamp(0, 8);
            let cell = &mut buffer[(x, y)];
            cell.set_char(STEPS[fill as usize]).set_fg(colours[lowest]);
            if fill < 8
                && let Some(above) = layer(base + fill)
            {
                cell.set_bg(colours[above]);
            }
        }
    }
    if top > 0.0 {
        let text = label(top);
        // Only where there is no bar, so that the text stays readable.
        let free = usize::from(area.width) - shown.len();
        let style = Style::new().fg(DIM);
        if free > text.len() {
            buffer.set_string(area.x, area.y, text, style);
        }
    }
}

fn draw_failures(frame: &mut Frame, area: Rect, failures: &[(&str, &str)], runs: &[RunStatus]) {
    let n: u64 = runs.iter().map(|r| r.n_failed).sum();
    let right = match n {
        0 => vec![dim("none ")],
        n => vec![coloured(format!("{} ", count(n)), BAD)],
    };
    let rest = title(frame, area, "Recent failures", right);
    for (row, (id, why)) in rest.rows().zip(failures) {
        let line = Line::from(vec![
            coloured(format!(" {} ", clipped(&clean(id), ID_WIDTH_MAX)), BAD),
            Span::raw(clean(why)),
        ]);
        frame.render_widget(line, row);
    }
}

pub(super) fn footer(frame: &mut Frame, area: Rect, view: &View, status: &ClusterStatus) {
    let line = match (&view.gone, status.warnings.first()) {
        (Some(why), _) => {
            Line::from(vec![alarm(" no answer "), coloured(format!(" trying again: {}", clean(why)), BAD)])
        }
        (None, Some(warning)) => Line::from(vec![
            Span::styled(" warning ", Style::new().bg(HOME).fg(Color::Black)),
            Span::raw(format!(" {}", clean(warning))),
        ]),
        (None, None) => {
            let cpu = status.own_cpu_ns as f64 / status.now.since_ns(status.started).max(1) as f64;
            Line::from(dim(format!(
                " q quits   f failures   n nodes{}   dispatcher: {:.1} % of a processor, {}",
                if view.looks_at.is_some() { "   arrows: next   Esc: all" } else { "" },
                100.0 * cpu,
                size(status.own_rss_bytes)
            )))
        }
    };
    frame.render_widget(line, area);
}

/// `share` of `width` cells filled, in eighths.
fn bar(width: usize, share: f64, colour: Color) -> [Span<'static>; 2] {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (share * width as f64 * 8.0).round() as usize;
    // A little is shown as more than nothing, and not quite all as less than all.
    if share > 0.0 {
        eighths = eighths.max(1);
    }
    if share < 1.0 {
        eighths = eighths.min((width * 8).saturating_sub(1));
    }
    let full = "█".repeat(eighths / 8) + PARTS[eighths % 8];
    let rest = " ".repeat(width.saturating_sub(full.chars().count()));
    let style = Style::new().fg(colour).bg(EMPTY);
    [Span::styled(full, style), Span::styled(rest, style)]
}

/// Text from outside, without characters that a terminal would act on.
pub(crate) fn clean(text: &str) -> String {
    eyas_text::line_of(text).to_string()
}

fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::view::sample::{status, view};
    use eyas_terms::{RunId, TaskId, Timestamp};

    fn drawn(view: &View, width: u16, height: u16) -> String {
        crate::top::screen::drawn(|frame| draw(frame, view), width, height)
    }

    #[test]
    fn everything_is_on_the_smallest_screen() {
        let text = drawn(&view(4), 60, 15);
        for part in [
            "eyas top",
            "Runs",
            "401/1,000",
            "6.0 s left",
            "Nodes",
            "node0",
            "and 2 nodes more",
            "Read",
            "t7",
            "status 3",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn running_tasks_have_the_empty_rows_and_runs_of_the_folder_come_first() {
        let mut view = view(4);
        view.names.insert(TaskId(1), "sky/m13.fits".into());
        let text = drawn(&view, 80, 30);
        assert!(text.contains("Running") && text.contains("104.0 s") | text.contains("1 min 44 s"), "{text}");
        assert!(text.contains("node0         sky/m13.fits"), "{text}");
        assert!(!drawn(&view, 60, 15).contains("Running"));
        // No program runs at this moment.
        let mut between = status(5, 4);
        for e in &mut between.executors {
            e.status.running.clear();
            (e.n_assigned, e.status.n_waiting) = (3, 1);
        }
        let row_of = |text: &str| text.lines().position(|line| line.contains("Recent failures"));
        let (before, chart) =
            (drawn(&view, 80, 30), |text: &str| text.lines().position(|line| line.contains("Read")));
        view.take(between);
        let after = drawn(&view, 80, 30);
        assert_eq!((row_of(&before), chart(&before)), (row_of(&after), chart(&after)), "{before}{after}");
        assert!(before.contains("slots busy 4/8") && after.contains("slots busy 8/8"), "{before}{after}");
        view.of_here = vec![RunId(1)];
        let mut newer = status(5, 1);
        newer.runs.push(RunStatus { run: RunId(2), name: "other".into(), ..RunStatus::default() });
        let runs = newer.runs.clone();
        assert_eq!(shown_runs(&view, &runs)[0].run, RunId(1));
    }

    #[test]
    fn running_tasks_have_the_rows_of_a_chart_of_nothing() {
        let mut view = view(4);
        view.names.insert(TaskId(1), "sky/m13.fits".into());
        let n_rows = |view: &View| drawn(view, 80, 24).matches("sky/m13.fits").count();
        assert!(n_rows(&view) < 4, "{}", drawn(&view, 80, 24));
        view.seconds.iter_mut().for_each(|second| second.bytes_per_s = [0.0; 3]);
        assert_eq!(n_rows(&view), 4, "{}", drawn(&view, 80, 24));
    }

    #[test]
    fn any_size_is_drawn() {
        for n_nodes in [0, 1, 200] {
            for (width, height) in [
                (0, 0),
                (0, 9),
                (9, 0),
                (1, 1),
                (10, 3),
                (40, 10),
                (60, 15),
                (99, 24),
                (100, 24),
                (120, 36),
                (1000, 400),
            ] {
                drawn(&view(n_nodes), width, height);
            }
        }
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let view = view(1);
        let (bytes, tasks) = view.rates();
        assert_eq!(tasks, 100.0);
        assert_eq!(bytes, [(1u64 << 30) as f64, (1u64 << 28) as f64, (1u64 << 29) as f64]);
        assert_eq!(view.seconds.len(), 4);
    }

    #[test]
    fn a_dispatcher_that_is_away_is_told_and_the_picture_stays() {
        let mut view = view(2);
        view.gone = Some("the connection was closed".into());
        view.silent_ns = 12 * SECOND_NS + 1;
        for (width, height) in [(120, 36), (60, 15)] {
            let text = drawn(&view, width, height);
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with(" eyas top  no answer for 12 s "), "{text}");
            let last = text.lines().last().unwrap_or_default();
            assert!(last.starts_with(" no answer  trying again: the connection was closed"), "{text}");
            assert!(text.contains("node1"), "{text}");
        }
        view.take(status(6, 2));
        assert!(!drawn(&view, 120, 36).contains("no answer"), "it is there again");
    }

    #[test]
    fn a_restarted_dispatcher_starts_a_new_picture() {
        let mut view = view(1);
        let mut fresh = status(0, 1);
        fresh.started = Timestamp(500 * SECOND_NS);
        fresh.now = Timestamp(501 * SECOND_NS);
        view.take(fresh);
        assert_eq!(view.rates().1, 0.0);
        assert!(view.seconds.is_empty());
    }

    #[test]
    fn bars_show_a_little_and_never_too_much() {
        let text = |share| bar(4, share, LOCAL).map(|s| s.content.to_string()).concat();
        assert_eq!(text(0.0), "    ");
        assert_eq!(text(0.001), "▏   ");
        assert_eq!(text(0.5), "██  ");
        assert_eq!(text(0.999), "███▉");
        assert_eq!(text(1.0), "████");
    }
}
