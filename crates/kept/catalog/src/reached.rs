//! Sites that were reached, with the room that they have.

use crate::holding::Holding;
use crate::sites::{Site, SiteState};
use eyas_keeping::Takes;

/// A site that names no limit may keep this much.
const NO_LIMIT: u64 = 1 << 60;

/// A site that was reached.
pub(crate) struct Reached {
    pub(crate) holding: Box<dyn Holding>,
    /// Most bytes that it can keep, by the catalog's limit, its own and its disk's.
    pub(crate) keep_bytes: u64,
    /// Whether all that was written to it succeeded.
    pub(crate) is_written: bool,
}

/// Whether copies are made at a site: at one that is up, was reached, and could be written to.
pub(crate) fn takes(site: &Site, reached: Option<&Reached>) -> Takes {
    match (site.state, reached) {
        (SiteState::Up, Some(Reached { is_written: true, .. })) => Takes::Copies,
        (SiteState::Up, _) => Takes::NothingNow,
        (SiteState::Draining | SiteState::Gone, _) => Takes::Nothing,
    }
}

/// Most bytes that a site can keep: by its limit, and by what it has and its disk has room for.
pub(crate) fn room_of(site: &Site, holding: &dyn Holding) -> u64 {
    let room = site.size_bytes.saturating_add(holding.place().free_bytes);
    site.keep_bytes.unwrap_or(NO_LIMIT).min(room)
}
