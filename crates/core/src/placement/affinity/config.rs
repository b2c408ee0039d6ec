//! What can be tuned about `affinity`.

use serde::{Deserialize, Serialize};

/// Everything about `affinity` that can be tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How many ready tasks are looked at, at least 1. About 100 bytes each.
    pub look_ahead: usize,
    /// An object that more groups of tasks read is *common*: it is not walked through when it appears somewhere.
    pub readers_max: usize,
    /// How many holders of an object are told of a task that reads it, and are looked at as sources.
    pub holders_max: usize,
    /// Attempts that one executor copies inputs for at once, at least 1. One that copies from several counts as a part for each.
    pub uploads_max: u32,
    /// Objects that are being read from home at once by all executors together; 0: no limit.
    pub home_reads_max: u32,
    /// What others hold is copied when a task has waited for so many times the time that a copy takes.
    pub steal_after_copies: f64,
    /// Nothing is copied to an executor with full slots while so many hits per slot wait there.
    pub hits_enough: usize,
    /// The time of a copy until one has been seen, at most; a small object is taken to be there sooner.
    pub copy_ns: u64,
    /// Home is read although a holder is free when a copy takes more than so many times as long.
    pub home_quick: f64,
    /// What all may read from home together in a second, where that is known; 0: it is learnt.
    pub home_bytes_per_s: u64,
    /// What no other task in sight reads is cached all the same, for runs to come.
    pub keeps_once: bool,
    /// What one node's disk gives to all who read and write there, where what a task reads past the cache does not touch it; 0: not
    /// known, or it does. What home gives sooner than the disk is then read past the cache.
    pub disk_bytes_per_s: u64,
    /// Before anything is known of home, so much of one object may be on its way from there more than once.
    pub blind_bytes: u64,
    /// What an executor reads from home is awaited by others for so many times as long as that should take.
    pub await_reads: f64,
    /// The least time that it is awaited, also while nothing is known of home; times the objects being read from there.
    pub await_ns: u64,
    /// One in so many tasks with inputs to move is the oldest, whatever it brings; 0: none.
    pub oldest_every: u32,
    /// Candidates that are looked at by each rule before it gives up.
    pub tries: usize,
    /// Executors that are asked without result per event before the rest has to wait for the next one, at least 2: those
    /// with most room, and one that has waited longest to be asked.
    pub vain_max: usize,
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
        }
    }
}

impl Config {
    /// `Err` is one sentence for people.
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
