//! eyas-runtime
