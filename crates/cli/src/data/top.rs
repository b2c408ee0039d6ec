//! `eyas data top`: how a catalog stands, on the whole screen or once as text.
//!
//! A thread asks the catalog and all its sites every two seconds ([`Catalog::standing`]); nothing is changed by that. The same rows
//! are printed once by `--once` and drawn by [`draw`], on the screen that `eyas top` has, too.

mod draw;

use super::open::{Opened, now_ms, open};
use crate::print::{plural, size};
use crate::top::screen;
use crate::{Exit, Fault};
use clap::Args;
use draw::View;
use eyas_catalog::{Act, Caller, Catalog, ShortSet, SiteStanding, SiteState, Standing, date_text};
use eyas_text::line_of;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(2);
/// Copies that were made and verified are counted over this long.
const RECENT_MS: i64 = 10 * 60 * 1000;
/// What was done last.
const N_ACTS: u32 = 100;
/// Of these, `--once` prints so many.
const N_ACTS_ONCE: usize = 10;

#[derive(Args)]
pub struct TopArgs {
    /// Print it once, as text
    #[arg(long)]
    once: bool,
}

/// A catalog at one time.
pub(super) struct Picture {
    pub(super) at_ms: i64,
    pub(super) standing: Standing,
    /// The newest first.
    pub(super) acts: Vec<Act>,
}

/// Shows a catalog until a key ends it.
pub fn top(db: Option<&str>, args: &TopArgs) -> Result<Exit, Fault> {
    if !args.once && !screen::is_terminal() {
        return Err(Fault::new(Exit::BadInput, "`eyas data top` needs a terminal to draw on")
            .hint("`eyas data top --once` prints the same once"));
    }
    let Opened { catalog, caller, .. } = open(db)?;
    // The first answer comes before the screen is taken, so that an error is printed as usual.
    let picture = look(&catalog, &caller)?;
    if args.once {
        lines(&picture).iter().for_each(|line| show!("{line}"));
        return Ok(Exit::Good);
    }
    let mut view = View { name: catalog.name(), picture, gone: None };
    let (updates, news) = mpsc::channel();
    thread::Builder::new().name("look".into()).spawn(move || {
        loop {
            thread::sleep(POLL);
            let update = look(&catalog, &caller).map(Box::new).map_err(|error| error.to_string());
            if updates.send(update).is_err() {
                return;
            }
        }
    })?;
    screen::show(&mut view, &news)?;
    Ok(Exit::Good)
}

fn look(catalog: &Catalog, caller: &Caller) -> eyas_catalog::Result<Picture> {
    let at_ms = now_ms();
    let standing = catalog.standing(at_ms - RECENT_MS)?;
    Ok(Picture { at_ms, standing, acts: catalog.recent(caller, N_ACTS)? })
}

fn lines(picture: &Picture) -> Vec<String> {
    let mut lines = vec![SITES_HEAD.to_owned()];
    lines.extend(picture.standing.sites.iter().map(|site| site_row(site, picture.at_ms)));
    lines.push(String::new());
    match picture.standing.short.is_empty() {
        true => lines.push("no file is short of copies".into()),
        false => lines.extend(picture.standing.short.iter().map(|set| format!("short: {}", short_row(set)))),
    }
    lines.push(String::new());
    lines.extend(picture.acts.iter().take(N_ACTS_ONCE).map(act_row));
    lines
}

pub(super) const SITES_HEAD: &str =
    "site         state         copies       held       room  bad  made  verified  oldest";

/// One site in the columns of [`SITES_HEAD`]; why it is away stands at the end.
pub(super) fn site_row(site: &SiteStanding, now_ms: i64) -> String {
    let room = site.room_bytes.map_or("?".into(), size);
    let oldest = site.oldest_verified_ms.map_or("-".into(), |at_ms| age(now_ms - at_ms));
    let why = site.away.as_ref().map(|why| format!("  {}", line_of(why))).unwrap_or_default();
    format!(
        "{:<12} {:<8} {:>11} {:>10} {room:>10} {:>4} {:>5} {:>9}  {oldest:<7}{why}",
        site.site.name,
        state(site),
        site.site.n_replicas,
        size(site.site.size_bytes),
        site.n_bad,
        site.n_made,
        site.n_verified,
    )
    .trim_end()
    .to_owned()
}

pub(super) fn state(site: &SiteStanding) -> &'static str {
    match site.site.state {
        SiteState::Gone => "gone",
        _ if site.away.is_some() => "away",
        SiteState::Up => "up",
        SiteState::Draining => "draining",
    }
}

pub(super) fn short_row(set: &ShortSet) -> String {
    let lack = if set.n_files == 1 { "lacks" } else { "lack" };
    let without = match set.n_without {
        0 => String::new(),
        n => format!("; of {} no site that answers has a good copy", plural(n, "file")),
    };
    format!(
        "{} of `{}` {lack} {}{without}",
        plural(set.n_files, "file"),
        set.key,
        plural(set.n_missing, "copy")
    )
}

pub(super) fn act_row(act: &Act) -> String {
    let of = act.label.as_ref().map(|label| format!("{label}  ")).unwrap_or_default();
    let entry = &act.entry;
    let (at, who) = (date_text(entry.at_ms), line_of(&entry.caller));
    format!("{at}  {who:<10}  {:<7}  {of}{}", entry.verb, line_of(&entry.detail))
}

/// How long ago something was, in the largest unit of which it has one: `5 d`. A clock that was wrong may have put it into the future.
fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..0 => "later".into(),
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
