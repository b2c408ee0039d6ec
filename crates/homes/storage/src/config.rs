//! How a process uses its homes: all settings of this crate in one value.

use crate::{ChaosConfig, HttpConfig, RetryConfig};
use std::path::PathBuf;

/// How homes are used; the default is unlimited, with retries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HomesConfig {
    /// Directories that are this node's own disk: files below them are used in place.
    pub home_local: Vec<PathBuf>,
    /// Most streams at once, over all homes; at least 1.
    pub streams_max: Option<u32>,
    /// Most bytes per second, over all homes; at least 1.
    pub rate_bytes_per_s: Option<u64>,
    /// For failures that may pass.
    pub retries: RetryConfig,
    /// Time limits and routes of `http`.
    pub http: HttpConfig,
    /// Injected faults, for fault runs.
    pub chaos: Option<ChaosConfig>,
}
