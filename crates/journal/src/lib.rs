//! eyas-journal
