//! A catalog at one time, and what one row says of a site, of what is short of copies, and of what was done.

use crate::print::{plural, size};
use eyas_catalog::{Act, ShortSet, SiteStanding, SiteState, SpareSet, Standing, date_text};
use eyas_text::line_of;

/// A catalog at one time.
pub(super) struct Picture {
    pub(super) at_ms: i64,
    pub(super) standing: Standing,
    /// The newest first.
    pub(super) acts: Vec<Act>,
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
        "{} of {} {lack} {}{without}",
        plural(set.n_files, "file"),
        named(set.key.as_deref()),
        plural(set.n_missing, "copy")
    )
}

pub(super) fn spare_row(set: &SpareSet) -> String {
    let (has, asks) = if set.key.is_some() { ("has", "it asks") } else { ("have", "they ask") };
    format!(
        "{} {has} {} more than {asks} for ({})",
        named(set.key.as_deref()),
        plural(set.n_copies, "copy"),
        size(set.size_bytes)
    )
}

fn named(key: Option<&str>) -> String {
    key.map_or("data sets that you may not list".to_owned(), |key| format!("`{key}`"))
}

pub(super) fn act_row(act: &Act) -> String {
    let of = act.label.as_ref().map(|label| format!("{label}  ")).unwrap_or_default();
    let entry = &act.entry;
    let (at, who) = (date_text(entry.at_ms), line_of(&entry.caller));
    format!("{at}  {who:<10}  {:<7}  {of}{}", entry.verb, line_of(&entry.detail))
}

/// How long ago something was, in the largest unit of which it has one: `5 d`. A clock that was wrong may have put it into the future.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..0 => "later".into(),
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
