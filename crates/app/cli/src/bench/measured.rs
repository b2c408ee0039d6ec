//! What was measured, and its numbers in words.

use super::folder::Folder;
use super::network::Network;
use crate::machine::Machine;
use crate::print::{size, time};
use serde::Serialize;

/// Everything that was measured. Rates are in bytes or starts per second, times in seconds.
#[derive(Serialize)]
pub struct Figures {
    pub machine: Machine,
    pub programs: Programs,
    /// The folder that would hold caches.
    pub disk: Folder,
    pub home: Option<Folder>,
    pub network: Option<Network>,
    pub advice: Vec<String>,
}

/// How fast programs that do nothing are started, on all processors.
#[derive(Serialize)]
pub struct Programs {
    /// By slot processes, as tasks are started.
    pub per_s: f64,
    /// By a bare loop.
    pub bare_per_s: f64,
}

/// `12 MiB/s`
pub fn bytes_per_s(value: f64) -> String {
    format!("{}/s", size(value as u64))
}

/// `250 µs`, `12 ms`
pub fn short_time(s: f64) -> String {
    match s < 1e-3 {
        true => format!("{:.0} µs", s * 1e6),
        false => time((s * 1e9) as u64),
    }
}
