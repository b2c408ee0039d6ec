//! How busy a node's processors are, and with whose programs.
//!
//! A node measures ([`ProcessorUse`]) and reports what is news; no decision rests on it. The event log keeps the reports,
//! so that a report can say that programs outside eyas took the processors.

use serde::{Deserialize, Serialize};

/// From this part of the processors on, in thousandths, programs that run wait for a processor.
pub const FULL_PERMILLE: u32 = 900;
/// A change by less than this is no news.
const STEP_PERMILLE: u32 = 100;

/// What a node saw of its processors in the last few seconds.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct ProcessorUse {
    /// Which machine the node is on, as several nodes may share one.
    pub machine: u64,
    /// Processors that programs of the node may use.
    pub n_processors: u32,
    /// The part of the time of these processors that was used by anybody, in thousandths.
    pub used_permille: u32,
    /// The part that programs outside eyas used, those of other virtual machines among them.
    pub others_permille: u32,
}

impl ProcessorUse {
    /// Whether programs wait for a processor.
    pub fn is_full(&self) -> bool {
        self.used_permille >= FULL_PERMILLE
    }

    /// Whether this is to be reported after `last` was.
    pub fn is_news(&self, last: Option<&ProcessorUse>) -> bool {
        last.is_none_or(|last| {
            (last.machine, last.n_processors, last.is_full())
                != (self.machine, self.n_processors, self.is_full())
                || self.others_permille.abs_diff(last.others_permille) >= STEP_PERMILLE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_are_no_news() {
        let seen = ProcessorUse { machine: 1, n_processors: 8, used_permille: 950, others_permille: 300 };
        assert!(seen.is_news(None) && !seen.is_news(Some(&seen)));
        assert!(!ProcessorUse { others_permille: 399, used_permille: 1000, ..seen }.is_news(Some(&seen)));
        assert!(ProcessorUse { others_permille: 200, ..seen }.is_news(Some(&seen)));
        assert!(ProcessorUse { used_permille: 899, ..seen }.is_news(Some(&seen)));
        assert!(ProcessorUse { n_processors: 4, ..seen }.is_news(Some(&seen)));
    }
}
