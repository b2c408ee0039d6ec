//! eyas-tasklist
