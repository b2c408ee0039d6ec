//! `eyas data top`: how a catalog stands, on the whole screen or once as text.
//!
//! A thread asks the catalog and all its sites every two seconds ([`Catalog::standing`]); nothing is changed by that. The same rows
//! ([`rows`]) are printed once by `--once` and drawn by [`draw`], on the screen that `eyas top` has, too.

mod draw;
mod rows;

use super::open::{Opened, now_ms, open};
use crate::top::screen;
use crate::{Exit, Fault};
use clap::Args;
use draw::View;
use eyas_catalog::{Caller, Catalog};
use rows::{Picture, SITES_HEAD, act_row, short_row, site_row, spare_row};
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
    let standing = catalog.standing(caller, at_ms - RECENT_MS)?;
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
    lines.extend(picture.standing.spare.iter().map(|set| format!("spare: {}", spare_row(set))));
    lines.push(String::new());
    lines.extend(picture.acts.iter().take(N_ACTS_ONCE).map(act_row));
    lines
}

#[cfg(test)]
mod tests;
