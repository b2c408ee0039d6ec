//! Many lives, and what they say of the probability that a file is lost.

use super::{Life, Options, live};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A probability with the interval that has it with a confidence of 95 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// What came of many catalogs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lives {
    pub n_lives: u64,
    pub n_files: u64,
    pub n_lost: u64,
    /// The sum of the squares of each life's number of lost files.
    squares: u64,
    copies: f64,
    pub copied_bytes: u64,
    pub audited_bytes: u64,
    pub n_sites_lost: u64,
}

/// Lives through a catalog for each seed, some at a time. The result does not depend on how many those are.
pub fn lives(options: &Options, seeds: Range<u64>, n_threads: usize) -> Lives {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut lived = vec![];
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return lived;
            }
            lived.push((seed, live(options, seed)));
        }
    };
    let mut lived: Vec<(u64, Life)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a life does not panic")).collect()
    });
    // Sums of fractions depend on their order.
    lived.sort_by_key(|(seed, _)| *seed);
    let mut all = Lives::default();
    lived.iter().for_each(|(_, life)| all.add(life));
    all
}

impl Lives {
    fn add(&mut self, life: &Life) {
        self.n_lives += 1;
        self.n_files += life.n_files;
        self.n_lost += life.n_lost;
        self.squares += life.n_lost * life.n_lost;
        self.copies += life.mean_copies;
        self.copied_bytes += life.copied_bytes;
        self.audited_bytes += life.audited_bytes;
        self.n_sites_lost += life.n_sites_lost;
    }

    /// Good copies of a file that is not lost, on average.
    pub fn mean_copies(&self) -> f64 {
        self.copies / self.n_lives.max(1) as f64
    }

    /// The probability that a file is lost.
    ///
    /// Files of one catalog are lost together, so that many of them say less than as many catalogs would. Wilson's interval is
    /// therefore taken of fewer files, by the variance between catalogs over the one that independent files would have (the design
    /// effect of samples in clusters). Where no file was lost, or all were, a catalog counts as one file.
    pub fn loss(&self) -> Estimate {
        let (n_lives, n_files) = (self.n_lives.max(1) as f64, self.n_files.max(1) as f64);
        let mean = self.n_lost as f64 / n_files;
        let per_life = n_files / n_lives;
        let between = self.squares as f64 / n_lives - (mean * per_life) * (mean * per_life);
        let alone = per_life * mean * (1.0 - mean);
        let effect = if alone > 0.0 { (between / alone).clamp(1.0, per_life) } else { per_life };
        wilson(mean, n_files / effect)
    }
}

/// Wilson's interval for a part `mean` of `n` independent trials (Wilson 1927).
fn wilson(mean: f64, n: f64) -> Estimate {
    const Z: f64 = 1.959_964;
    let (z2, middle) = (Z * Z, mean + Z * Z / (2.0 * n));
    let wide = Z * ((mean * (1.0 - mean) + z2 / (4.0 * n)) / n).sqrt();
    let (low, high) = ((middle - wide) / (1.0 + z2 / n), (middle + wide) / (1.0 + z2 / n));
    // At the ends, only rounding keeps the interval from them.
    let low = if mean == 0.0 { 0.0 } else { low.max(0.0) };
    let high = if mean == 1.0 { 1.0 } else { high.min(1.0) };
    Estimate { mean, low, high }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(n_files: u64, n_lost: u64) -> Life {
        Life { n_files, n_lost, ..Life::default() }
    }

    fn all(lives: impl IntoIterator<Item = Life>) -> Lives {
        let mut all = Lives::default();
        lives.into_iter().for_each(|life| all.add(&life));
        all
    }

    #[test]
    fn intervals_are_wilsons() {
        // 10 of 100: 5.52 % to 17.44 %, as textbooks have it.
        let estimate = all((0..100).map(|n| life(1, u64::from(n < 10)))).loss();
        assert!(
            (estimate.low - 0.0552).abs() < 1e-4 && (estimate.high - 0.1744).abs() < 1e-4,
            "{estimate:?}"
        );
        let none = all((0..100).map(|_| life(1, 0))).loss();
        assert_eq!((none.mean, none.low), (0.0, 0.0));
        assert!((none.high - 0.037).abs() < 1e-3, "{none:?}");
    }

    #[test]
    fn files_that_are_lost_together_count_as_one() {
        let alone = all((0..100).map(|n| life(1, u64::from(n < 10)))).loss();
        let together = all((0..100).map(|n| life(50, if n < 10 { 50 } else { 0 }))).loss();
        assert!((alone.high - together.high).abs() < 1e-9 && (alone.low - together.low).abs() < 1e-9);
        let even = all((0..100).map(|_| life(50, 5))).loss();
        assert!(even.high - even.low < 0.02, "{even:?}");
    }
}
