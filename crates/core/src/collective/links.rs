//! What links are like, from the transfers that were made over them.
//!
//! In: [`Observation`]s, one per request that ended. Out: [`Link`]s, the `a`, `b` and `c` of the cost model
//! (`Zhang12` §VI-A.1): a request for `n` objects of `S` bytes together takes `a + (n − 1)·c + S·b`.
//!
//! Why a window of the latest [`WINDOW`] and not sums with forgetting: with sums, one transfer that hung for a minute
//! moves the estimate until it is forgotten, and it cannot be taken out again. From a window, the fit is made anew:
//!   * errors count relative to the time measured, so that the latency of short transfers is not drowned by long ones;
//!   * a few rounds of weights `1 / (1 + (e/scale)²)`, `scale` being the median error, leave outliers almost without a say;
//!   * none of the three is ever negative, and each leans slightly on what it was before anything was measured
//!     ([`Link::default`]), because transfers that are all of one size tell one number, not three.
//!
//! A transfer that shared its link with `n_sharing` others is taken to have had its even part of the bandwidth.
//!
//! Not here: links of single pairs of nodes. One number per kind (peer, home) is what §VI-A.1 has; the paper names the
//! uneven distances as the gap to what it measured, and so do we.

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::VecDeque;

/// Observations that are kept.
pub const WINDOW: usize = 128;
/// How much an unmeasured link's defaults weigh, in observations.
const PRIOR_WEIGHT: f64 = 0.02;
const ROUNDS: usize = 8;
const DESCENTS: usize = 200;

/// One kind of link.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Link {
    /// From asking until the first byte, per request (`a`).
    pub latency_s: f64,
    /// For each further object of a request (`c`).
    pub per_object_s: f64,
    /// Of one end of the link, in one direction (`1/b`).
    pub bandwidth_bytes_per_s: f64,
}

impl Default for Link {
    /// Nodes of one rack, 1 Gbit/s.
    fn default() -> Self {
        Link { latency_s: 500e-6, per_object_s: 50e-6, bandwidth_bytes_per_s: 110e6 }
    }
}

impl Link {
    /// `a + (n − 1)·c + S·b` in seconds, for one request alone on its link; `n_objects` is at least 1.
    pub fn request_s(&self, n_objects: u64, bytes: u64) -> f64 {
        self.latency_s + n_objects.saturating_sub(1) as f64 * self.per_object_s + self.bytes_s(bytes)
    }
    /// `S·b` in seconds.
    pub fn bytes_s(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bandwidth_bytes_per_s
    }
}

/// Links between nodes, and between a node and home.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Links {
    pub peer: Link,
    pub home: Link,
}

/// One request that ended well.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Observation {
    pub n_objects: u32,
    pub bytes: u64,
    pub duration_ns: u64,
    /// Requests that were under way at the busier end then, this one included; at least 1.
    pub n_sharing: u32,
}

/// Fits one kind of link.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkEstimator {
    prior: Link,
    window: VecDeque<Observation>,
    /// `None`: something was seen since.
    fitted: Cell<Option<Link>>,
}

impl Default for LinkEstimator {
    fn default() -> Self {
        LinkEstimator::new(Link::default())
    }
}

impl LinkEstimator {
    /// `prior`: what is taken to hold before anything is measured.
    pub fn new(prior: Link) -> LinkEstimator {
        LinkEstimator { prior, window: VecDeque::new(), fitted: Cell::new(Some(prior)) }
    }

    pub fn observe(&mut self, seen: Observation) {
        if seen.duration_ns == 0 {
            return;
        }
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(seen);
        self.fitted.set(None);
    }

    /// The link as it was lately. Fits only after something new was seen; about 0.1 ms then.
    pub fn link(&self) -> Link {
        if let Some(link) = self.fitted.get() {
            return link;
        }
        let link = self.fit();
        self.fitted.set(Some(link));
        link
    }

    fn fit(&self) -> Link {
        let prior = [self.prior.latency_s, self.prior.per_object_s, 1.0 / self.prior.bandwidth_bytes_per_s];
        // Unknowns are factors on the prior, and rows are divided by the time measured: all numbers are near 1.
        let rows: Vec<[f64; 3]> = self
            .window
            .iter()
            .map(|o| {
                let duration_s = o.duration_ns as f64 * 1e-9;
                let shared = o.bytes as f64 * f64::from(o.n_sharing.max(1));
                let terms = [1.0, f64::from(o.n_objects.saturating_sub(1)), shared];
                std::array::from_fn(|i| terms[i] * prior[i] / duration_s)
            })
            .collect();
        let mut weights = vec![1.0; rows.len()];
        let mut x = [1.0; 3];
        for _ in 0..ROUNDS {
            x = solve(&rows, &weights, x);
            let mut errors: Vec<f64> = rows.iter().map(|r| (dot(r, &x) - 1.0).abs()).collect();
            let scale = median(&errors).max(0.02);
            for (weight, error) in weights.iter_mut().zip(errors.drain(..)) {
                let e = error / scale;
                *weight = 1.0 / (1.0 + e * e);
            }
        }
        Link {
            latency_s: x[0] * prior[0],
            per_object_s: x[1] * prior[1],
            bandwidth_bytes_per_s: 1.0 / (x[2] * prior[2]).max(1e-12),
        }
    }
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Least squares of `rows · x = 1` with a small pull to 1, no factor below 10⁻⁶: by descent along one coordinate after
/// the other, which with three of them is quick and keeps the bound without cases.
fn solve(rows: &[[f64; 3]], weights: &[f64], mut x: [f64; 3]) -> [f64; 3] {
    let mut a = [[0.0; 3]; 3];
    let mut b = [0.0; 3];
    for (row, w) in rows.iter().zip(weights) {
        for i in 0..3 {
            b[i] += w * row[i];
            for j in 0..3 {
                a[i][j] += w * row[i] * row[j];
            }
        }
    }
    // The pull counts relative to what the measurements say of a coordinate, and by itself when they say nothing: a
    // link a thousand times as fast as the default makes tiny rows.
    let pull: [f64; 3] = std::array::from_fn(|i| PRIOR_WEIGHT * a[i][i].min(1.0) * 0.05 + 1e-9);
    for i in 0..3 {
        a[i][i] += pull[i];
        b[i] += pull[i];
    }
    for _ in 0..DESCENTS {
        for i in 0..3 {
            let others: f64 = (0..3).filter(|j| *j != i).map(|j| a[i][j] * x[j]).sum();
            x[i] = ((b[i] - others) / a[i][i]).max(1e-6);
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn seen(link: &Link, n_objects: u32, bytes: u64, n_sharing: u32, factor: f64) -> Observation {
        let shared = bytes * u64::from(n_sharing);
        let duration_s = link.request_s(u64::from(n_objects), shared) * factor;
        Observation { n_objects, bytes, duration_ns: (duration_s * 1e9) as u64, n_sharing }
    }

    fn check(truth: Link, noise: f64, outliers: bool, within: f64) {
        let (mut estimator, mut rng) = (LinkEstimator::default(), Rng::new(7));
        for i in 0..60 {
            let n = [1, 1, 16, 64][i % 4];
            let bytes = [1_000, 1_000_000, 100_000, 100_000_000][(i / 4) % 4];
            let even = rng.below(2_000_001) as f64 / 1e6 - 1.0;
            let hung = outliers && i % 9 == 3;
            let factor = if hung { 40.0 } else { 1.0 + noise * even };
            estimator.observe(seen(&truth, n, bytes, 1 + rng.below(4) as u32, factor));
        }
        let got = estimator.link();
        for (got, truth) in [
            (got.latency_s, truth.latency_s),
            (got.per_object_s, truth.per_object_s),
            (got.bandwidth_bytes_per_s, truth.bandwidth_bytes_per_s),
        ] {
            assert!((got / truth - 1.0).abs() < within, "{got} for {truth}");
        }
    }

    #[test]
    fn a_link_is_found_through_noise_and_transfers_that_hung() {
        for latency_s in [50e-6, 1e-3, 20e-3] {
            for bandwidth_bytes_per_s in [10e6, 125e6, 3e9] {
                let truth = Link { latency_s, per_object_s: latency_s / 5.0, bandwidth_bytes_per_s };
                check(truth, 0.0, false, 0.02);
                check(truth, 0.1, false, 0.15);
                check(truth, 0.1, true, 0.2);
            }
        }
    }

    #[test]
    fn one_size_of_transfers_is_predicted_although_it_says_not_why() {
        let truth = Link { latency_s: 5e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 50e6 };
        let mut estimator = LinkEstimator::default();
        assert_eq!(estimator.link(), Link::default());
        for _ in 0..20 {
            estimator.observe(seen(&truth, 1, 1_000_000, 1, 1.0));
        }
        let got = estimator.link().request_s(1, 1_000_000) / truth.request_s(1, 1_000_000);
        assert!((got - 1.0).abs() < 0.05, "{got}");
    }

    #[test]
    fn what_links_were_like_is_forgotten() {
        let (slow, quick) = (Link { bandwidth_bytes_per_s: 1e6, ..Link::default() }, Link::default());
        let mut estimator = LinkEstimator::default();
        for link in [slow, quick] {
            for i in 0..WINDOW {
                estimator.observe(seen(&link, 1 + (i % 2) as u32 * 9, 1_000 << (i % 16), 1, 1.0));
            }
        }
        let got = estimator.link();
        assert!((got.bandwidth_bytes_per_s / quick.bandwidth_bytes_per_s - 1.0).abs() < 0.02, "{got:?}");
    }
}
