//! The properties of links, estimated from the transfers that were made over them.
//!
//! In: [`Observation`]s, one per request that ended. Out: an [`Estimate`]: the likely [`LinkModel`], which
//! has the `a`, `b` and `c` of the cost model (`Zhang12` §VI-A.1: a request for `n` objects of `S` bytes
//! together takes `a + (n − 1)·c + S·b`), and how far from it the truth may be.
//!
//! The estimate ([`fit`]) is the likeliest link under two assumptions. Before any transfer, each of the three
//! numbers is within [`PRIOR_FACTOR`] of [`LinkModel::default`] in nine of ten cases. The logarithm of a
//! request's time has normal noise, as strong as the requests themselves show. So a link without evidence has
//! a wide spread, and transfers of one size determine one sum and not three numbers. Moved bytes narrow the
//! bandwidth in proportion to their part of the time.
//!
//! A bandwidth is believed when [`MEASURED_BYTES`] have moved. Before that, a few small files whose times are
//! all latency and noise would give a bandwidth that is wrong by a factor of a thousand. So what requests say
//! of the bandwidth counts in proportion to the bytes that were seen, for the estimate and for its spread. An
//! expensive action that depends on a bandwidth waits until [`LinkEstimator::is_measured`].
//!
//! Why a window of the latest [`WINDOW`] observations, and not sums with forgetting: with sums, one transfer
//! that hung for a minute moves the estimate until it is forgotten, and it cannot be taken out again. With a
//! window the fit is made anew, with weights `1 / (1 + (e/scale)²)`, where `scale` is the median error; these
//! leave outliers almost without influence.
//!
//! A transfer that shared its link with `n_sharing` others is assumed to have had an equal part of the
//! bandwidth.
//!
//! Not here: links of single pairs of nodes. §VI-A.1 has one number per kind of link (peer, home). The paper
//! says that uneven distances explain the difference from its measurements, and so do we.

use super::fit::{self, Normal};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::VecDeque;

/// The number of observations that are kept.
pub const WINDOW: usize = 128;
/// The bytes that must have moved before their rate is believed.
pub const MEASURED_BYTES: u64 = 8 << 20;
/// Without evidence, nine in ten links have each of their numbers within this factor of the default.
pub const PRIOR_FACTOR: f64 = 30.0;
/// Rounds of weights and noise, and steps of the fit in each.
const ROUNDS: usize = 6;
const STEPS: usize = 20;

/// The properties of one kind of link, as the cost model has them.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct LinkModel {
    /// Seconds from the request until the first byte, per request (`a`).
    pub latency_s: f64,
    /// Seconds for each further object of a request (`c`).
    pub per_object_s: f64,
    /// Bandwidth of one end of the link, in one direction (`1/b`).
    pub bandwidth_bytes_per_s: f64,
}

impl Default for LinkModel {
    /// Nodes of one rack, 1 Gbit/s.
    fn default() -> Self {
        LinkModel { latency_s: 500e-6, per_object_s: 50e-6, bandwidth_bytes_per_s: 110e6 }
    }
}

impl LinkModel {
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
    pub peer: LinkModel,
    pub home: LinkModel,
}

/// One request that ended well.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Observation {
    pub n_objects: u32,
    pub bytes: u64,
    pub duration_ns: u64,
    /// Requests that were under way at the busier end at that time, including this one; at least 1.
    pub n_sharing: u32,
}

/// The estimated link, and how sure the estimate is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub likely: LinkModel,
    /// Three independent directions in which the truth may differ. Each has the logarithms of factors on
    /// latency, cost per object and seconds per byte, as far as nine in ten go.
    axes: [[f64; 3]; 3],
}

impl Estimate {
    /// A link without uncertainty.
    pub fn exactly(link: LinkModel) -> Estimate {
        Estimate { likely: link, axes: [[0.0; 3]; 3] }
    }

    /// Links that may be true as well as the likely one, in pairs to either side of it.
    pub fn cases(&self) -> [[LinkModel; 2]; 3] {
        self.axes.map(|axis| [self.moved(&axis, 1.0), self.moved(&axis, -1.0)])
    }

    fn moved(&self, axis: &[f64; 3], by: f64) -> LinkModel {
        let [latency, per_object, byte] = axis.map(|x| libm::exp(x * by));
        LinkModel {
            latency_s: self.likely.latency_s * latency,
            per_object_s: self.likely.per_object_s * per_object,
            bandwidth_bytes_per_s: self.likely.bandwidth_bytes_per_s / byte,
        }
    }
}

/// Estimates one kind of link.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkEstimator {
    prior: LinkModel,
    window: VecDeque<Observation>,
    /// `None` if an observation was made since the last fit.
    fitted: Cell<Option<Estimate>>,
}

impl Default for LinkEstimator {
    fn default() -> Self {
        LinkEstimator::new(LinkModel::default())
    }
}

impl LinkEstimator {
    /// `prior`: the link that is likely before anything is measured.
    pub fn new(prior: LinkModel) -> LinkEstimator {
        LinkEstimator { prior, window: VecDeque::new(), fitted: Cell::new(None) }
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

    /// The link as it was lately. Fits anew only after a new observation, which takes about 0.1 ms.
    pub fn estimate(&self) -> Estimate {
        if let Some(estimate) = self.fitted.get() {
            return estimate;
        }
        let estimate = self.fit();
        self.fitted.set(Some(estimate));
        estimate
    }

    /// The likely link.
    pub fn link(&self) -> LinkModel {
        self.estimate().likely
    }

    /// Whether enough bytes have moved lately to believe the bandwidth.
    pub fn is_measured(&self) -> bool {
        self.seen_bytes() >= MEASURED_BYTES
    }

    fn seen_bytes(&self) -> u64 {
        self.window.iter().map(|o| o.bytes).fold(0, u64::saturating_add)
    }

    fn fit(&self) -> Estimate {
        let prior = [self.prior.latency_s, self.prior.per_object_s, 1.0 / self.prior.bandwidth_bytes_per_s];
        let rows: Vec<Row> = self.window.iter().map(|o| Row::new(o, &prior)).collect();
        let evidence = (self.seen_bytes() as f64 / MEASURED_BYTES as f64).min(1.0);
        let mut weights = vec![1.0; rows.len()];
        let (mut x, mut noise) = ([0.0; 3], fit::NOISE_ASSUMED);
        let normal = |x: &[f64; 3], weights: &[f64], noise: f64| {
            let mut normal = Normal::prior(&[fit::deviation_of(PRIOR_FACTOR); 3], x);
            for (row, weight) in rows.iter().zip(weights) {
                let (mut shares, error) = row.shares(x);
                shares[2] *= evidence;
                normal.add(&shares, error, weight / (noise * noise));
            }
            normal
        };
        for _ in 0..ROUNDS {
            for _ in 0..STEPS {
                let step = normal(&x, &weights, noise).step();
                x = std::array::from_fn(|i| x[i] + step[i]);
                if step.iter().all(|s| s.abs() < 1e-6) {
                    break;
                }
            }
            let errors: Vec<f64> = rows.iter().map(|row| row.shares(&x).1).collect();
            noise = fit::judge(&errors, &mut weights, errors.len() as f64);
        }
        let factors = x.map(libm::exp);
        Estimate {
            likely: LinkModel {
                latency_s: factors[0] * prior[0],
                per_object_s: factors[1] * prior[1],
                bandwidth_bytes_per_s: self.prior.bandwidth_bytes_per_s / factors[2],
            },
            axes: normal(&x, &weights, noise).axes(),
        }
    }
}

/// One request: the seconds of its three parts by the prior, and the logarithm of the seconds that it took.
struct Row {
    parts_s: [f64; 3],
    ln_s: f64,
}

impl Row {
    fn new(o: &Observation, prior: &[f64; 3]) -> Row {
        let shared = o.bytes as f64 * f64::from(o.n_sharing.max(1));
        let counts = [1.0, f64::from(o.n_objects.saturating_sub(1)), shared];
        let parts_s = std::array::from_fn(|i| counts[i] * prior[i]);
        Row { parts_s, ln_s: libm::log(o.duration_ns as f64 * 1e-9) }
    }

    /// The three parts as shares of the request's expected time, and the logarithm of measured by expected
    /// time. `x`: the logarithms of the factors on the prior.
    fn shares(&self, x: &[f64; 3]) -> ([f64; 3], f64) {
        let parts: [f64; 3] = std::array::from_fn(|i| libm::exp(x[i]) * self.parts_s[i]);
        let sum: f64 = parts.iter().sum();
        (parts.map(|part| part / sum), self.ln_s - libm::log(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;

    /// A number that is known within limits: nine in ten such numbers lie between `low` and `high`.
    #[derive(Debug)]
    struct Spread {
        low: f64,
        likely: f64,
        high: f64,
    }

    impl Estimate {
        /// In seconds.
        fn latency_s(&self) -> Spread {
            self.spread(0, self.likely.latency_s)
        }

        fn bandwidth_bytes_per_s(&self) -> Spread {
            self.spread(2, self.likely.bandwidth_bytes_per_s)
        }

        fn spread(&self, i: usize, likely: f64) -> Spread {
            let factor = libm::exp(self.axes.iter().map(|axis| axis[i] * axis[i]).sum::<f64>().sqrt());
            Spread { low: likely / factor, likely, high: likely * factor }
        }
    }

    fn seen(link: &LinkModel, n_objects: u32, bytes: u64, n_sharing: u32, factor: f64) -> Observation {
        let shared = bytes * u64::from(n_sharing);
        let duration_s = link.request_s(u64::from(n_objects), shared) * factor;
        Observation { n_objects, bytes, duration_ns: (duration_s * 1e9) as u64, n_sharing }
    }

    fn check(truth: LinkModel, noise: f64, outliers: bool, within: f64) {
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
                let truth = LinkModel { latency_s, per_object_s: latency_s / 5.0, bandwidth_bytes_per_s };
                check(truth, 0.0, false, 0.02);
                check(truth, 0.1, false, 0.15);
                check(truth, 0.1, true, 0.2);
            }
        }
    }

    #[test]
    fn one_size_of_transfers_is_predicted_although_it_says_not_why() {
        let truth = LinkModel { latency_s: 5e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 50e6 };
        let mut estimator = LinkEstimator::default();
        assert_eq!(estimator.link(), LinkModel::default());
        for _ in 0..20 {
            estimator.observe(seen(&truth, 1, 1_000_000, 1, 1.0));
        }
        let got = estimator.link().request_s(1, 1_000_000) / truth.request_s(1, 1_000_000);
        assert!((got - 1.0).abs() < 0.05, "{got}");
    }

    #[test]
    fn tiny_files_say_nothing_of_the_bandwidth() {
        // Half a millisecond or twenty, whatever their size: neither a terabyte in a second nor a megabyte.
        for times_us in [[400, 500, 450], [400, 20_000, 15_000]] {
            let mut estimator = LinkEstimator::default();
            for (i, us) in times_us.into_iter().cycle().take(30).enumerate() {
                let bytes = [100, 20_000, 3_000, 60_000][i % 4];
                estimator.observe(Observation { n_objects: 1, bytes, duration_ns: us * 1000, n_sharing: 1 });
            }
            let (got, default) =
                (estimator.link().bandwidth_bytes_per_s, LinkModel::default().bandwidth_bytes_per_s);
            assert!((default / 3.0..default * 3.0).contains(&got), "{got} after {times_us:?}");
            assert!(!estimator.is_measured());
            let spread = estimator.estimate().bandwidth_bytes_per_s();
            assert!(spread.low < default / 10.0 && spread.high > default * 10.0, "{spread:?}");
        }
        let truth = LinkModel { bandwidth_bytes_per_s: 2e9, ..LinkModel::default() };
        let mut estimator = LinkEstimator::default();
        (0..8).for_each(|_| estimator.observe(seen(&truth, 1, 4 << 20, 1, 1.0)));
        assert!(estimator.is_measured());
        let got = estimator.link().bandwidth_bytes_per_s;
        assert!((got / 2e9 - 1.0).abs() < 0.3, "{got}");
    }

    #[test]
    fn one_large_transfer_tells_the_bandwidth_and_nothing_else() {
        for bandwidth_bytes_per_s in [5e6, 55e6, 2e9] {
            let truth = LinkModel { bandwidth_bytes_per_s, ..LinkModel::default() };
            let mut estimator = LinkEstimator::default();
            estimator.observe(seen(&truth, 1, 600_000_000, 1, 1.0));
            let got = estimator.estimate();
            let (bandwidth, latency) = (got.bandwidth_bytes_per_s(), got.latency_s());
            assert!((bandwidth.likely / bandwidth_bytes_per_s - 1.0).abs() < 0.15, "{bandwidth:?}");
            assert!(bandwidth.high / bandwidth.low < 4.0, "{bandwidth:?}");
            assert!((latency.likely / 500e-6 - 1.0).abs() < 0.2, "{latency:?}");
            assert!(latency.high / latency.low > 400.0, "{latency:?}");
        }
    }

    #[test]
    fn a_slow_link_is_not_taken_for_a_late_one_before_its_bandwidth_is_measured() {
        let truth = LinkModel { bandwidth_bytes_per_s: 5e6, ..LinkModel::default() };
        let mut estimator = LinkEstimator::default();
        estimator.observe(seen(&truth, 1, 4 << 20, 1, 1.0));
        assert!(!estimator.is_measured());
        let latency = estimator.estimate().latency_s();
        assert!(latency.likely < 5e-3, "{latency:?}");
    }

    #[test]
    fn the_spread_narrows_with_the_bytes_that_moved_and_widens_with_noise() {
        let width = |bytes: u64, noise: f64| {
            let (mut estimator, mut rng) = (LinkEstimator::default(), Rng::new(3));
            for _ in 0..16 {
                let factor = 1.0 + noise * (rng.below(2_000_001) as f64 / 1e6 - 1.0);
                estimator.observe(seen(&LinkModel::default(), 1, bytes, 1, factor));
            }
            let spread = estimator.estimate().bandwidth_bytes_per_s();
            spread.high / spread.low
        };
        let widths = [100, 10_000, 300_000, 1_000_000, 10_000_000].map(|bytes| width(bytes, 0.05));
        assert!(widths.windows(2).all(|w| w[1] < w[0]), "{widths:?}");
        assert!(widths[0] > 800.0 && widths[4] < 1.5, "{widths:?}");
        assert!(width(10_000_000, 0.6) > 1.2 * widths[4]);
    }

    #[test]
    fn the_truth_is_within_the_spread_in_nine_of_ten_cases() {
        let mut rng = Rng::new(11);
        let (mut n_within, mut n) = (0, 0);
        for _ in 0..300 {
            let mut even = |low: f64, high: f64| {
                low * libm::pow(high / low, rng.below(1 << 30) as f64 / f64::from(1 << 30))
            };
            let truth = LinkModel {
                latency_s: even(50e-6, 5e-3),
                per_object_s: even(5e-6, 5e-4),
                bandwidth_bytes_per_s: even(5e6, 2e9),
            };
            let mut estimator = LinkEstimator::default();
            for _ in 0..even(1.0, 60.0) as u32 {
                let (n_objects, bytes) = (even(1.0, 40.0) as u32, even(1e3, 1e8) as u64);
                let factor = even(0.6, 1.0) / 0.775;
                estimator.observe(seen(&truth, n_objects, bytes, 1, factor));
            }
            let got = estimator.estimate();
            for (spread, truth) in [
                (got.latency_s(), truth.latency_s),
                (got.bandwidth_bytes_per_s(), truth.bandwidth_bytes_per_s),
            ] {
                n += 1;
                n_within += u32::from((spread.low..=spread.high).contains(&truth));
            }
        }
        assert!(n_within * 10 >= n * 9, "{n_within} of {n}");
    }

    #[test]
    fn what_links_were_like_is_forgotten() {
        let (slow, quick) =
            (LinkModel { bandwidth_bytes_per_s: 1e6, ..LinkModel::default() }, LinkModel::default());
        let mut estimator = LinkEstimator::default();
        for link in [slow, quick] {
            for i in 0..WINDOW {
                estimator.observe(seen(&link, 1 + (i % 2) as u32 * 9, 1_000 << (i % 16), 1, 1.0));
            }
        }
        let got = estimator.link();
        assert!((got.bandwidth_bytes_per_s / quick.bandwidth_bytes_per_s - 1.0).abs() < 0.02, "{got:?}");
    }

    /// A replay compares actions, links among them, with those of a log.
    #[test]
    fn a_log_gives_back_the_link_that_it_was_given() {
        let mut rng = eyas_terms::rng::Rng::new(5);
        let mut number = || 1e6 + rng.below(1 << 53) as f64 / f64::from(1u32 << 23);
        for _ in 0..10_000 {
            let link = LinkModel {
                latency_s: number().recip(),
                per_object_s: number().recip(),
                bandwidth_bytes_per_s: number(),
            };
            let text = serde_json::to_string(&link).unwrap();
            assert_eq!(serde_json::from_str::<LinkModel>(&text).unwrap(), link, "{text}");
        }
    }
}
