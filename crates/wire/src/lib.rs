//! eyas-wire
