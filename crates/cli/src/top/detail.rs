//! One failure or one node, whole.

use super::draw::{BAD, bold, clean, coloured, dim, draw_node, draw_running, title};
use super::view::{LooksAt, View};
use crate::print::wrapped;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

pub(super) fn draw(frame: &mut Frame, area: Rect, view: &View, looks_at: LooksAt) {
    match looks_at {
        LooksAt::Failure(i) => failure(frame, area, view, i),
        LooksAt::Node(i) => node(frame, area, view, i),
    }
}

fn failure(frame: &mut Frame, area: Rect, view: &View, i: usize) {
    let failures = view.failures();
    let i = i.min(failures.len().saturating_sub(1));
    let Some((id, why)) = failures.get(i) else {
        let rest = title(frame, area, "Failures", vec![]);
        return frame.render_widget(Line::from(dim(" no task has failed")), rest);
    };
    let name = format!("Failure {} of {}", i + 1, failures.len());
    let rest = title(frame, area, &name, vec![dim("the newest first ")]);
    let width = usize::from(rest.width).saturating_sub(2).max(10);
    let mut lines: Vec<Line<'_>> = wrapped(&clean(id), width)
        .into_iter()
        .map(|line| Line::from(coloured(format!(" {line}"), BAD)))
        .collect();
    lines.extend(wrapped(&clean(why), width).into_iter().map(|line| Line::from(format!(" {line}"))));
    lines.push(Line::default());
    let more = format!("`eyas explain {}` and `eyas logs` say more", clean(id));
    lines.extend(wrapped(&more, width).into_iter().map(|line| Line::from(dim(format!(" {line}")))));
    for (row, line) in rest.rows().zip(lines) {
        frame.render_widget(line, row);
    }
}

fn node(frame: &mut Frame, area: Rect, view: &View, i: usize) {
    let nodes = view.status.as_ref().map_or(&[][..], |status| &status.executors[..]);
    let i = i.min(nodes.len().saturating_sub(1));
    let Some(node) = nodes.get(i) else {
        let rest = title(frame, area, "Nodes", vec![]);
        return frame.render_widget(Line::from(dim(" no executor has joined")), rest);
    };
    let name = format!("Node {} of {}", i + 1, nodes.len());
    let rest = title(frame, area, &name, vec![bold(clean(&node.name)), dim(format!(" {} ", node.state))]);
    let running = view.running(Some(&node.name));
    let about = format!(
        " {} running, {} assigned, {} wait for inputs or a slot; {} objects in the cache",
        running.len(),
        node.n_assigned,
        node.status.n_waiting,
        node.status.cache_n_objects
    );
    let mut rows = rest.rows();
    if let Some(row) = rows.next() {
        draw_node(frame, row, node);
    }
    if let Some(row) = rows.next() {
        frame.render_widget(Line::from(about), row);
    }
    let below = Rect { y: rest.y + 2.min(rest.height), height: rest.height.saturating_sub(2), ..rest };
    draw_running(frame, below, view, &running);
}
