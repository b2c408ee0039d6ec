//! eyas-data
