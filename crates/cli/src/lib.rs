//! eyas-cli
