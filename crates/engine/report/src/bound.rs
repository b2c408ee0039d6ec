//! The least time that a run could have taken, by what it had to move and to compute.
//!
//! Three bounds, of which the largest counts: the bytes that had to come from home and to go there, by home's
//! limit; the processor time of the programs, by the processors that were there; and the longest chain of
//! programs of which each reads what the one before it made.
//!
//! Processors are those that nodes report, each machine's once however many nodes are on it. A node's programs
//! take no more of them than the node has slots, unless they were seen to. Where nodes report none, as in logs
//! of simulations, slots are counted.

use crate::chain::Makers;
use crate::measure::Measure;
use crate::read::{ExecutorRecord, sum};
use crate::units::{duration, number, plural, rate};
use eyas_text::size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Bound {
    /// The largest of the three.
    pub ns: u64,
    /// `(bytes of files that were read from home, each once, + bytes of outputs that went home) / limit of home`; 0
    /// where home has no limit.
    pub home_ns: u64,
    pub home_bytes: u64,
    /// `processor time of programs / processors`; the mean number of processors that were there is the next field.
    pub processors_ns: u64,
    pub n_processors: f64,
    /// Run times of programs, along the chain for which their sum is largest.
    pub chain_ns: u64,
}

impl Bound {
    /// What the least time rests on, in a word or two.
    pub fn by(&self) -> &'static str {
        match self.ns {
            0 => "nothing",
            ns if ns == self.home_ns => "home",
            ns if ns == self.processors_ns => "processors",
            _ => "the longest chain",
        }
    }
}

/// What the runs of `m` did, all of them together.
pub(crate) struct Done {
    pub makespan_ns: u64,
    pub home_out_bytes: u64,
    /// Processor time of programs, and the time for which programs had slots.
    pub cpu_ns: f64,
    pub busy_ns: f64,
}

impl Bound {
    pub(crate) fn of(m: &Measure, done: &Done) -> Bound {
        let once = m.log.home_once_bytes.iter().filter(|(run, _)| m.run.is_none_or(|r| r == **run));
        let home_bytes = sum(once.map(|(_, bytes)| *bytes)).saturating_add(done.home_out_bytes);
        let home_ns = m.home_limit_bytes_per_s().map_or(0, |limit| (home_bytes as f64 / limit * 1e9) as u64);
        let n_processors = n_processors(m, done);
        let processors_ns = if n_processors > 0.0 { (done.cpu_ns / n_processors) as u64 } else { 0 };
        let chain_ns = Makers::of(m).longest_chain_ns(m);
        let ns = home_ns.max(processors_ns).max(chain_ns);
        Bound { ns, home_ns, home_bytes, processors_ns, n_processors, chain_ns }
    }

    /// How long a run took, beside the least time, in a sentence. `home_limit`: what home may move per second.
    pub fn sentence(&self, makespan_ns: u64, home_limit: Option<f64>) -> String {
        let least = duration(self.ns);
        let why = match self.by() {
            "home" => {
                let limit = rate(home_limit.unwrap_or_default());
                format!("{} from and to home at {limit} take {least}", size(self.home_bytes))
            }
            "processors" => {
                // Where nodes came and went, the mean is no whole number.
                let whole = self.n_processors.round();
                let n = match (self.n_processors - whole).abs() < 0.05 {
                    true => plural(whole as u64, "processor"),
                    false => format!("{} processors", number(self.n_processors)),
                };
                format!("the programs take {least} on {n}")
            }
            _ => format!("the longest chain of programs took {least}"),
        };
        let times = number(makespan_ns as f64 / self.ns.max(1) as f64);
        format!("It took {}, {times} times the least: {why}.", duration(makespan_ns))
    }
}

/// The mean number of processors that were there for programs.
fn n_processors(m: &Measure, done: &Done) -> f64 {
    // Nodes that came one after the other under one name are one node of the machine.
    let mut machines: BTreeMap<u64, BTreeMap<&str, u32>> = BTreeMap::new();
    let seen = |e: &ExecutorRecord| e.processors.last().map(|(_, used)| *used);
    for e in &m.log.executors {
        if let Some(used) = seen(e) {
            machines.entry(used.machine).or_default().insert(&e.name, e.slots);
        }
    }
    let takes_more = done.cpu_ns > done.busy_ns;
    let of = |e: &ExecutorRecord| match seen(e) {
        Some(used) => {
            let n_slots = machines[&used.machine].values().copied().fold(0, u32::saturating_add).max(1);
            let n = f64::from(used.n_processors.max(1));
            let n_used = if takes_more { n } else { n.min(f64::from(n_slots)) };
            f64::from(e.slots) / f64::from(n_slots) * n_used
        }
        None => f64::from(e.slots),
    };
    let sum: f64 = m.log.executors.iter().map(|e| of(e) * m.present_ns(e) as f64).sum();
    if done.makespan_ns > 0 { sum / done.makespan_ns as f64 } else { 0.0 }
}
