//! The picture of a catalog on a screen of any size: a function of the view and the size alone.

use super::rows::{Picture, SITES_HEAD, act_row, short_row, site_row, state};
use crate::print::plural;
use crate::top::draw::{BAD, DIM, HOME, alarm, bold, clean, coloured, dim, title};
use crate::top::screen::Screen;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What is known of a catalog.
pub(super) struct View {
    pub(super) name: String,
    pub(super) picture: Picture,
    /// Why the last look failed.
    pub(super) gone: Option<String>,
}

impl Screen for View {
    type News = Result<Box<Picture>, String>;

    fn take(&mut self, news: Self::News) {
        match news {
            Ok(picture) => (self.picture, self.gone) = (*picture, None),
            Err(why) => self.gone = Some(why),
        }
    }

    fn draw(&mut self, frame: &mut Frame) {
        draw(frame, self);
    }
}

pub(super) fn draw(frame: &mut Frame, view: &View) {
    let area = frame.area();
    let Picture { standing, .. } = &view.picture;
    // A title and a head above the sites; what was done takes the rest, and at least a row.
    let left = area.height.saturating_sub(2 + 2 + 1 + 2);
    let wanted = |n: usize| u16::try_from(n.max(1)).unwrap_or(u16::MAX);
    let short = wanted(standing.short.len()).min((left / 3).max(1));
    let sites = wanted(standing.sites.len()).min(left.saturating_sub(short).max(1));
    let parts: [Rect; 5] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(sites + 2),
        Constraint::Length(short + 1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let header = Line::from(vec![bold(" eyas data top "), dim(" catalog "), Span::raw(clean(&view.name))]);
    frame.render_widget(header.style(Style::new().bg(Color::Indexed(236))), parts[0]);
    draw_sites(frame, parts[1], view);
    draw_short(frame, parts[2], view);
    let rest = title(frame, parts[3], "Done last", vec![]);
    for (row, act) in rest.rows().zip(&view.picture.acts) {
        frame.render_widget(Line::from(format!(" {}", act_row(act))), row);
    }
    if view.gone.is_some() {
        // What the sections show is how it was.
        for section in &parts[1..4] {
            frame.buffer_mut().set_style(*section, Style::new().fg(DIM).add_modifier(Modifier::DIM));
        }
    }
    let footer = match &view.gone {
        Some(why) => {
            Line::from(vec![alarm(" no answer "), coloured(format!(" trying again: {}", clean(why)), BAD)])
        }
        None => Line::from(dim(" q quits   made and verified: in the last 10 minutes")),
    };
    frame.render_widget(footer, parts[4]);
}

fn draw_sites(frame: &mut Frame, area: Rect, view: &View) {
    let sites = &view.picture.standing.sites;
    let n_away = sites.iter().filter(|site| site.away.is_some()).count() as u64;
    let right = match n_away {
        0 => vec![dim(format!("{} ", plural(sites.len() as u64, "site")))],
        n => vec![coloured(format!("{n} away "), BAD)],
    };
    let rest = title(frame, area, "Sites", right);
    let mut rows = rest.rows();
    if let Some(row) = rows.next() {
        frame.render_widget(Line::from(dim(format!(" {SITES_HEAD}"))), row);
    }
    let fit = usize::from(rest.height.saturating_sub(1));
    let shown = if sites.len() > fit { fit.saturating_sub(1) } else { sites.len() };
    for (row, site) in rows.by_ref().zip(&sites[..shown]) {
        let style = match state(site) {
            "away" => Style::new().fg(BAD),
            "draining" => Style::new().fg(HOME),
            "gone" => Style::new().fg(DIM),
            _ => Style::new(),
        };
        let text = format!(" {}", site_row(site, view.picture.at_ms));
        frame.render_widget(Line::styled(text, style), row);
    }
    if let Some(row) = rows.next().filter(|_| shown < sites.len()) {
        let text = format!(" and {} more", plural((sites.len() - shown) as u64, "site"));
        frame.render_widget(Line::from(dim(text)), row);
    }
}

fn draw_short(frame: &mut Frame, area: Rect, view: &View) {
    let short = &view.picture.standing.short;
    let n_missing: u64 = short.iter().map(|set| set.n_missing).sum();
    let mut right = vec![];
    let n_spare: u64 = view.picture.standing.spare.iter().map(|set| set.n_copies).sum();
    if n_spare > 0 {
        right.push(dim(format!("{} more than asked for  ", plural(n_spare, "copy"))));
    }
    right.push(match n_missing {
        0 => dim("none "),
        n => coloured(format!("{} ", plural(n, "copy")), BAD),
    });
    let rest = title(frame, area, "Short of copies", right);
    for (row, set) in rest.rows().zip(short) {
        let style = if set.n_without > 0 { Style::new().fg(BAD) } else { Style::new() };
        frame.render_widget(Line::styled(format!(" {}", clean(&short_row(set))), style), row);
    }
}
