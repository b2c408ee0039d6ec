//! The settings of `affinity`.

use crate::network::NetworkUse;
use serde::{Deserialize, Serialize};

/// All settings of `affinity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How many ready tasks the policy looks at, at least 1. Each takes about 100 bytes.
    pub look_ahead: usize,
    /// An object with more reader bundles than this is *common*: its readers are not walked through when it
    /// appears on an executor.
    pub readers_max: usize,
    /// At most this many holders of an object are updated when a task that reads it enters, and looked at
    /// as sources.
    pub holders_max: usize,
    /// Attempts that one executor copies inputs for at once, at least 1. An attempt that copies from
    /// several executors counts as a part at each of them.
    pub uploads_max: u32,
    /// Objects that all executors together may read from home at once; 0: no limit.
    pub home_reads_max: u32,
    /// An object that other executors hold is copied for a task that has waited this many times the time of
    /// a copy.
    pub steal_after_copies: f64,
    /// Nothing is copied to an executor with full slots while this many hits per slot wait there.
    pub hits_enough: usize,
    /// The longest time assumed for a copy until one has been seen, in nanoseconds. A small object is
    /// assumed to take less.
    pub copy_ns: u64,
    /// An object is read from home, although a holder is free, if a copy takes more than this many times as
    /// long.
    pub home_quick: f64,
    /// What home gives to all readers together, in bytes per second, where it is known; 0: it is learnt.
    pub home_bytes_per_s: u64,
    /// Whether an object that no other task in sight reads is cached all the same, for later runs.
    pub keeps_once: bool,
    /// What one node's disk gives to all readers and writers there together, in bytes per second. An object
    /// that home delivers faster than the disk is then read past the cache. 0: the rate is not known, or
    /// reading past the cache uses the disk as well.
    pub disk_bytes_per_s: u64,
    /// As long as nothing is known of home's rate, an object is read from home at the same time as others
    /// if all these reads would come to at most this many bytes at its size.
    pub blind_bytes: u64,
    /// When an executor reads an object from home, the others wait for it this many times as long as the
    /// read should take.
    pub await_reads: f64,
    /// The least time that the others wait, in nanoseconds, also while nothing is known of home. It is
    /// multiplied by the number of reads from home.
    pub await_ns: u64,
    /// One in this many tasks with inputs to move is the oldest task, whatever else could be fetched; 0:
    /// none.
    pub oldest_every: u32,
    /// Each rule looks at this many candidates before it gives up.
    pub tries: usize,
    /// In one decision, at most this many executors are asked without result; the others wait for the next
    /// event. At least 2: all but one are the executors with most room, and one is the executor that has
    /// waited longest to be asked.
    pub vain_max: usize,
    /// Whether the sites that are found in the network decide where objects are copied from.
    pub network: NetworkUse,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            look_ahead: 262_144,
            readers_max: 8192,
            holders_max: 64,
            uploads_max: 2,
            home_reads_max: 0,
            steal_after_copies: 1.0,
            hits_enough: 4,
            copy_ns: 100_000_000,
            home_quick: 1.5,
            home_bytes_per_s: 0,
            keeps_once: true,
            disk_bytes_per_s: 0,
            blind_bytes: 8_000_000,
            await_reads: 4.0,
            await_ns: 2_000_000_000,
            oldest_every: 16,
            tries: 8,
            vain_max: 4,
            network: NetworkUse::Off,
        }
    }
}

impl Config {
    /// `Err` is one sentence for users.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("look_ahead", self.look_ahead),
            ("holders_max", self.holders_max),
            ("uploads_max", self.uploads_max as usize),
            ("tries", self.tries),
            ("vain_max", self.vain_max),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, n)| *n == 0) {
            return Err(format!("`{name}` of the placement policy must be at least 1"));
        }
        let factors = [
            ("steal_after_copies", self.steal_after_copies),
            ("home_quick", self.home_quick),
            ("await_reads", self.await_reads),
        ];
        match factors.iter().find(|(_, f)| !(0.0..=1e6).contains(f)) {
            Some((name, f)) => Err(format!("`{name}` of the placement policy cannot be {f}")),
            None => Ok(()),
        }
    }
}
