//! eyas-runner
