//! One failure or one node, whole.

use super::draw::{BAD, bold, clean, coloured, dim, draw_node, draw_running, footer, header, title};
use super::view::{LooksAt, View};
use crate::print::{size, wrapped};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

pub(super) fn draw(frame: &mut Frame, view: &View, looks_at: LooksAt) {
    let Some(status) = &view.status else { return };
    let parts = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [head, area, foot] = Layout::vertical(parts).areas(frame.area());
    header(frame, head, view, status);
    match looks_at {
        LooksAt::Failure(i) => failure(frame, area, view, i),
        LooksAt::Node(i) => node(frame, area, view, i),
    }
    footer(frame, foot, view, status);
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
    let memory = match node.status.memory_used_bytes {
        0 => String::new(),
        bytes => format!(", {} in memory", size(bytes)),
    };
    let about = format!(
        " {} running, {} assigned, {} wait for inputs or a slot; {} objects in the cache{memory}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::view::sample::view;
    use eyas_terms::TaskId;
    use ratatui::crossterm::event::KeyCode;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let looks_at = view.looks_at.expect("a key was pressed");
        crate::top::screen::drawn(|frame| draw(frame, view, looks_at), width, height)
    }

    #[test]
    fn keys_show_one_failure_or_one_node() {
        let mut view = view(4);
        view.names.insert(TaskId(1), "sky/m13.fits".into());
        assert!(view.press(KeyCode::Char('n')) && view.press(KeyCode::Down));
        let text = drawn(&view, 80, 30);
        assert!(
            text.contains("Node 2 of 4") && text.contains("node1") && text.contains("sky/m13.fits"),
            "{text}"
        );
        assert!(!text.contains("node2"), "{text}");
        assert!(view.press(KeyCode::Char('f')) && view.press(KeyCode::Down));
        let text = drawn(&view, 40, 12);
        assert!(text.contains("Failure 1 of 1") && text.contains("t7"), "{text}");
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("the program ended with status 3"), "{text}");
        assert!(view.press(KeyCode::Esc) && !view.press(KeyCode::Esc), "the second one ends the view");
        view.press(KeyCode::Char('n'));
        for (width, height) in [(1, 1), (10, 3), (40, 10)] {
            drawn(&view, width, height);
        }
    }
}
