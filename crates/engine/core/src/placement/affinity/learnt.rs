//! What was learnt of times and sizes so far.

use crate::event::InputReport;
use crate::means::smooth;
use eyas_terms::{CacheOutcome, Timestamp};

/// Means move towards a new value by a sixteenth.
pub(super) const SMOOTHED_OVER: u64 = 16;
pub(super) const MIB: u64 = 1 << 20;
/// The time assumed for a copy until one has been seen: 100 MB/s after 2 ms.
pub(super) const COPY_LATENCY_NS: u64 = 2_000_000;
pub(super) const COPY_NS_PER_MIB: u64 = 10_485_760;
/// The size that moves at that rate within that latency. A smaller object is taken to need as long as one
/// of this size, and it teaches the rate as if it had this size: a file of a few bytes that came within 2
/// ms is no reason to expect that a megabyte takes minutes.
pub(super) const SMALL_BYTES: u64 = MIB * COPY_LATENCY_NS / COPY_NS_PER_MIB;
/// The run time assumed for programs until one has ended.
const RUN_NS_ASSUMED: u64 = 100_000_000;

/// How long transfers and programs take. Times per MiB count from the moment at which the executor received
/// the attempt.
#[derive(Default)]
pub(super) struct Times {
    pub home_ns_per_mib: Option<u64>,
    pub copy_ns_per_mib: Option<u64>,
    /// Of programs.
    pub run_ns: Option<u64>,
    /// The time when the first copy of all set out.
    pub first_copy_at: Option<Timestamp>,
}

impl Times {
    /// Learns from the times that the inputs of one attempt took, those from home and the copies apart. The
    /// inputs moved together, so the longest wait counts for all of them.
    pub fn learn(&mut self, inputs: &[InputReport]) {
        for from_home in [true, false] {
            let is_of = |input: &&InputReport| match input.outcome {
                CacheOutcome::Miss => from_home,
                CacheOutcome::RemoteHit { .. } => !from_home,
                _ => false,
            };
            let moved = || inputs.iter().filter(is_of);
            let Some(wait_ns) = moved().map(|i| i.wait_ns).max() else { continue };
            let size_bytes =
                moved().map(|i| u128::from(i.size_bytes)).sum::<u128>().max(u128::from(SMALL_BYTES));
            let rate = u128::from(wait_ns) * u128::from(MIB) / size_bytes;
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            let mean = if from_home { &mut self.home_ns_per_mib } else { &mut self.copy_ns_per_mib };
            smooth(mean, rate, SMOOTHED_OVER);
        }
    }

    /// A program ran for so long.
    pub fn learn_run(&mut self, run_ns: u64) {
        smooth(&mut self.run_ns, run_ns, SMOOTHED_OVER);
    }

    pub fn run_ns_expected(&self) -> f64 {
        self.run_ns.unwrap_or(RUN_NS_ASSUMED) as f64
    }
}

/// How large objects are.
pub(super) struct Sizes {
    /// The size assumed for an object of unknown size: about the mean of the sizes seen.
    pub assumed_bytes: u64,
    n: u64,
    sum_bytes: u128,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { assumed_bytes: 1 << 20, n: 0, sum_bytes: 0 }
    }
}

impl Sizes {
    /// Whether the size of any object is known.
    pub fn is_known(&self) -> bool {
        self.n > 0
    }

    /// `true`: another size is assumed from now on.
    pub fn learn(&mut self, size_bytes: u64) -> bool {
        self.n += 1;
        self.sum_bytes += u128::from(size_bytes);
        let mean = ((self.sum_bytes / u128::from(self.n)) as u64).max(1);
        let differs = mean.abs_diff(self.assumed_bytes) > self.assumed_bytes / 10;
        if differs {
            self.assumed_bytes = mean;
        }
        differs
    }
}
