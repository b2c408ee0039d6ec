//! Means that move with what was seen last.

/// Means of how long programs ran move by one part in so many.
pub const RUNS_SMOOTHED: u64 = 8;

/// Lets a mean move by one part in `n` towards `value`; the first value is the mean.
pub fn smooth(mean: &mut Option<u64>, value: u64, n: u64) {
    *mean = Some(mean.map_or(value, |m| m - m / n + value / n));
}
