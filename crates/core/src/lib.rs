//! eyas-core
