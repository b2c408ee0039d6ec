//! Sites that were reached, with the room that they have.

use crate::holding::Holding;
use crate::sites::Site;

/// A site that names no limit may keep this much.
const NO_LIMIT: u64 = 1 << 60;

/// A site that was reached.
pub(crate) struct Reached {
    pub(crate) holding: Box<dyn Holding>,
    /// Most bytes that it can keep, by the catalog's limit, its own and its disk's; 0: it could not be written to.
    pub(crate) keep_bytes: u64,
}

/// Most bytes that a site can keep: by its limit, and by what it has and its disk has room for.
pub(crate) fn room_of(site: &Site, holding: &dyn Holding) -> u64 {
    let room = site.size_bytes.saturating_add(holding.place().free_bytes);
    site.keep_bytes.unwrap_or(NO_LIMIT).min(room)
}
