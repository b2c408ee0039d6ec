//! What stands around a home and is a [`Home`](crate::Home) itself: retries, limits and injected faults; and reading in several
//! parts at once. They are the same for every kind, so no adaptor has code for them.

pub(crate) mod chaos;
pub(crate) mod limited;
pub(crate) mod retry;
pub(crate) mod wide;
