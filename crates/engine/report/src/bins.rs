//! Sums over time, in bins of equal width.

use eyas_terms::Timestamp;

/// Integrals over bins of equal width; each interval is added in constant time.
pub(crate) struct Bins {
    start: Timestamp,
    bin_ns: u64,
    /// Amounts that lie within one bin.
    part: Vec<f64>,
    /// Changes of the level at the beginning of a bin.
    step: Vec<f64>,
}

impl Bins {
    pub fn new(start: Timestamp, bin_ns: u64, n_bins: usize) -> Bins {
        Bins { start, bin_ns, part: vec![0.0; n_bins], step: vec![0.0; n_bins + 1] }
    }

    /// Adds a level of `value` from `from` to `to`.
    pub fn hold(&mut self, from: Timestamp, to: Timestamp, value: f64) {
        let end_ns = self.bin_ns.saturating_mul(self.part.len() as u64);
        let (a, b) = (from.since_ns(self.start).min(end_ns), to.since_ns(self.start).min(end_ns));
        if a >= b {
            return;
        }
        let (i, j) = ((a / self.bin_ns) as usize, (b / self.bin_ns) as usize);
        if i == j {
            self.part[i] += value * (b - a) as f64;
            return;
        }
        self.part[i] += value * ((i as u64 + 1).saturating_mul(self.bin_ns) - a) as f64;
        self.step[i + 1] += value;
        self.step[j] -= value;
        if j < self.part.len() {
            self.part[j] += value * (b - j as u64 * self.bin_ns) as f64;
        }
    }

    /// Adds `amount`, spread evenly from `from` to `to`; if these are equal, all of it is in one bin.
    pub fn spread(&mut self, from: Timestamp, to: Timestamp, amount: f64) {
        if from < to {
            return self.hold(from, to, amount / to.since_ns(from) as f64);
        }
        let at = (from.since_ns(self.start) / self.bin_ns) as usize;
        let last = self.part.len() - 1;
        self.part[at.min(last)] += amount;
    }

    /// The mean of each bin.
    pub fn means(self) -> Vec<f64> {
        let bin_ns = self.bin_ns as f64;
        let mut level = 0.0;
        let mean = |(part, step): (&f64, &f64)| {
            level += step;
            // Sums of many floats leave tiny remainders in empty bins.
            let mean: f64 = part / bin_ns + level;
            if mean.abs() < 1e-9 { 0.0 } else { mean }
        };
        self.part.iter().zip(&self.step).map(mean).collect()
    }
}
