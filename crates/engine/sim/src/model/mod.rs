//! The abstract model of data diffusion: equations 1 to 10 of Raicu09 §3.1, as functions.
//!
//! It computes, from hit ratios and the cost of an access, how long tasks and workloads take, how busy nodes
//! are, and which arrival rate they sustain. [`predict`] derives those costs from a machine and combines the
//! equations.
//!
//! | paper | here |
//! |---|---|
//! | `R_l`, `R_c`, `R_s` | [`AccessCosts`]: an access to this node's disk, to another node's cache, to home |
//! | `HR_l`, `HR_c`, `HR_s` | [`HitRatios`] |
//! | `C` | `compute_s`, per access, on a node of speed 1 |
//! | `S`, `W` | `cache_bytes` of all nodes, `working_set_bytes`: [`Regime::of`] |
//! | `K`, `N`, `P`, `A` | `n_tasks`, `n_processors`, `speed`, `arrivals_per_s` |
//! | `TK_i`, `T_N(D)` | [`task_time_s`], [`workload_time_s`] |
//!
//! Where the paper's text cannot be meant as printed:
//!
//! * **Equation 5** has `T_N(D)` as the sum of all `TK_i`, whatever `N`; equation 6 would then make any speedup
//!   1 or less. The sum is processor time ([`processor_time_s`]), and `T_N` is that divided by `N`, as tasks run beside
//!   each other.
//! * **Equation 8** has `NP/(R_l + C) <= A_max <= NP/(R_c + C)`. As `R_l <= R_c`, the first is the larger; the two are
//!   the ends of the interval, in the other order, and so are those of `S < W`.
//! * **Equation 9**, `A = (NP/T) K`, agrees with equation 8 when its `T` is the processor time of all `K` tasks;
//!   in **equation 10**, `U = AT/(NP)`, `T` is the time of one task. Then `U = 1` at the rate of equation 9.
//!
//! All functions are pure. They take times, ratios and counts that are finite and not negative, and do not
//! check that; [`predict::Machine::check`] and [`HitRatios::new`] do.
//!
//! Not here: queues and their order, transfers that overlap with computing, caches that warm up. The
//! simulator has those; the model is to be compared with it where they do not matter. [`expect`] adds contention, caches that fill,
//! and caches that are too small.

pub mod expect;
pub mod predict;

use std::fmt;
use std::iter;

/// The cost of the mean access in seconds: `R_l`, `R_c`, `R_s`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AccessCosts {
    /// From the disk of the node that reads.
    pub local_s: f64,
    /// From another node's cache.
    pub remote_s: f64,
    /// From home storage.
    pub home_s: f64,
}

/// Shares of accesses by where they are served: `HR_l`, `HR_c`, `HR_s`. They add up to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HitRatios {
    local: f64,
    remote: f64,
    home: f64,
}

/// A number that the model cannot take. Trying again cannot help.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Invalid {
    pub what: &'static str,
    pub value: f64,
    /// The condition that the value must meet, as the end of a sentence.
    pub must: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; it must {}", self.what, self.value, self.must)
    }
}

impl std::error::Error for Invalid {}

impl HitRatios {
    /// Every access goes home: no data diffusion.
    pub const HOME_ONLY: HitRatios = HitRatios { local: 0.0, remote: 0.0, home: 1.0 };
    /// Every access is served by the own node's disk.
    pub const LOCAL_ONLY: HitRatios = HitRatios { local: 1.0, remote: 0.0, home: 0.0 };

    /// From the shares of local and remote hits; the rest are misses.
    pub fn new(local: f64, remote: f64) -> Result<Self, Invalid> {
        let must = "be between 0 and 1";
        for (what, value) in [
            ("the local hit ratio", local),
            ("the remote hit ratio", remote),
            ("the hit ratio", local + remote),
        ] {
            // One ratio is rounded more than another.
            if !(0.0..=1.0 + 1e-9).contains(&value) {
                return Err(Invalid { what, value, must });
            }
        }
        Ok(HitRatios { local, remote, home: (1.0 - local - remote).max(0.0) })
    }

    /// From `H_l`, `H_c` and `H_s`, the numbers of accesses of each kind. `None` without accesses.
    pub fn of_counts(n_local: u64, n_remote: u64, n_home: u64) -> Option<Self> {
        let n = n_local as f64 + n_remote as f64 + n_home as f64;
        (n > 0.0).then(|| HitRatios {
            local: n_local as f64 / n,
            remote: n_remote as f64 / n,
            home: n_home as f64 / n,
        })
    }

    /// The best that is possible when each object is read `locality` times: the first time from home, then
    /// locally, `1 − 1/locality` (§6.5, figure 46). `locality` is at least 1.
    pub fn of_locality(locality: f64) -> Self {
        let local = 1.0 - 1.0 / locality.max(1.0);
        HitRatios { local, remote: 0.0, home: 1.0 - local }
    }

    /// The same hits when they are all local, as on one node.
    pub fn on_one_node(self) -> Self {
        HitRatios { local: self.local + self.remote, remote: 0.0, home: self.home }
    }

    pub fn local(self) -> f64 {
        self.local
    }

    pub fn remote(self) -> f64 {
        self.remote
    }

    /// Misses.
    pub fn home(self) -> f64 {
        self.home
    }
}

/// Whether the working set fits in the caches of all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regime {
    /// `S >= W`
    Fits,
    /// `S < W`
    Exceeds,
}

impl Regime {
    pub fn of(cache_bytes: u64, working_set_bytes: u64) -> Self {
        if cache_bytes >= working_set_bytes { Regime::Fits } else { Regime::Exceeds }
    }
}

/// The ends of an interval, the smaller one first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// Equation 1: between which times a task with one access lies, in seconds.
///
/// When the working set fits, between a local and a remote access; else between a remote one and home, which
/// is not reached.
pub fn task_time_interval_s(regime: Regime, costs: AccessCosts, compute_s: f64) -> Interval {
    let (low_s, high_s) = match regime {
        Regime::Fits => (costs.local_s, costs.remote_s),
        Regime::Exceeds => (costs.remote_s, costs.home_s),
    };
    Interval { low: low_s + compute_s, high: high_s + compute_s }
}

/// Equation 2: time of the mean task when the accesses of one kind are left out, in seconds.
///
/// There are no misses when the working set fits, and no local hits when it does not; otherwise the ratios that
/// are used do not add up to 1, and [`task_time_s`] (equation 3) is the one to take.
pub fn task_time_in_regime_s(regime: Regime, costs: AccessCosts, ratios: HitRatios, compute_s: f64) -> f64 {
    let remote_s = (costs.remote_s + compute_s) * ratios.remote;
    match regime {
        Regime::Fits => (costs.local_s + compute_s) * ratios.local + remote_s,
        Regime::Exceeds => remote_s + (costs.home_s + compute_s) * ratios.home,
    }
}

/// Cost of the mean access in seconds: the sum in equation 4.
pub fn access_time_s(costs: AccessCosts, ratios: HitRatios) -> f64 {
    costs.local_s * ratios.local + costs.remote_s * ratios.remote + costs.home_s * ratios.home
}

/// Equations 3 and 4, which are the same: `TK = C + R_l HR_l + R_c HR_c + R_s HR_s`, in seconds.
pub fn task_time_s(costs: AccessCosts, ratios: HitRatios, compute_s: f64) -> f64 {
    compute_s + access_time_s(costs, ratios)
}

/// Equation 5 as printed: the sum of the times of all tasks, in processor seconds.
pub fn processor_time_s(task_times_s: impl IntoIterator<Item = f64>) -> f64 {
    task_times_s.into_iter().sum()
}

/// Equation 5 as equation 6 needs it: `T_N(D)`, the time of a workload on `n_processors`, in seconds.
///
/// Between two limits that it leaves out: a task is not divided, so that the slowest task alone takes its time,
/// and the last tasks leave processors idle.
pub fn workload_time_s(task_times_s: impl IntoIterator<Item = f64>, n_processors: u32) -> f64 {
    processor_time_s(task_times_s) / f64::from(n_processors)
}

/// [`workload_time_s`] of `n_tasks` tasks that all take the mean time.
pub fn uniform_workload_time_s(task_s: f64, n_tasks: u64, n_processors: u32) -> f64 {
    workload_time_s(iter::once(task_s * n_tasks as f64), n_processors)
}

/// Equation 6: `SP = T_1(D) / T_N(D)`.
pub fn speedup(time_on_one_s: f64, time_s: f64) -> f64 {
    time_on_one_s / time_s
}

/// Equation 7: `EF = SP / N`.
pub fn efficiency(speedup: f64, n_processors: u32) -> f64 {
    speedup / f64::from(n_processors)
}

/// Equation 8: between which values the largest arrival rate lies that can be sustained, in tasks per second.
///
/// * `speed`: `P`, 1 for the node on which times were taken. As in the paper, a fast node is fast in everything.
pub fn arrival_rate_max_interval_per_s(
    regime: Regime,
    costs: AccessCosts,
    compute_s: f64,
    n_processors: u32,
    speed: f64,
) -> Interval {
    let task_s = task_time_interval_s(regime, costs, compute_s);
    let rate_per_s = f64::from(n_processors) * speed;
    Interval { low: rate_per_s / task_s.high, high: rate_per_s / task_s.low }
}

/// Equation 9: `A = (N P / T) K`, the arrival rate that keeps all processors busy, in tasks per second.
///
/// * `processor_time_s`: `T`, of all `n_tasks` tasks together.
pub fn arrival_rate_max_per_s(n_processors: u32, speed: f64, processor_time_s: f64, n_tasks: u64) -> f64 {
    f64::from(n_processors) * speed / processor_time_s * n_tasks as f64
}

/// Equation 10: `U = A T / (N P)`, the share of time in which processors compute or wait for data.
///
/// Above 1 where tasks come faster than they can be worked off, and the queue grows.
///
/// * `task_s`: `T`, of one task.
pub fn utilization(arrivals_per_s: f64, task_s: f64, n_processors: u32, speed: f64) -> f64 {
    arrivals_per_s * task_s / (f64::from(n_processors) * speed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Strategy, prop_assert, proptest};

    const COSTS: AccessCosts = AccessCosts { local_s: 0.125, remote_s: 0.25, home_s: 2.0 };

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn the_equations_by_hand() {
        let ratios = HitRatios::of_counts(6, 3, 1).unwrap();
        assert_eq!([ratios.local(), ratios.remote(), ratios.home()], [0.6, 0.3, 0.1]);
        // 1
        let fits = task_time_interval_s(Regime::Fits, COSTS, 1.0);
        let exceeds = task_time_interval_s(Regime::Exceeds, COSTS, 1.0);
        assert_eq!((fits, exceeds), (Interval { low: 1.125, high: 1.25 }, Interval { low: 1.25, high: 3.0 }));
        // 2: 0.6 × 1.125 + 0.3 × 1.25 and 0.3 × 1.25 + 0.1 × 3
        assert!(close(task_time_in_regime_s(Regime::Fits, COSTS, ratios, 1.0), 1.05));
        assert!(close(task_time_in_regime_s(Regime::Exceeds, COSTS, ratios, 1.0), 0.675));
        // 3, 4: 1 + 0.075 + 0.075 + 0.2
        assert!(close(task_time_s(COSTS, ratios, 1.0), 1.35));
        // 5 to 7: a hundred of them on ten processors, where home is slower than for one alone.
        let alone = AccessCosts { home_s: 1.0, ..COSTS };
        let time_s = uniform_workload_time_s(task_time_s(COSTS, ratios, 1.0), 100, 10);
        let time_on_one_s = uniform_workload_time_s(task_time_s(alone, ratios, 1.0), 100, 1);
        assert!(close(time_s, 13.5) && close(time_on_one_s, 125.0));
        let speedup = speedup(time_on_one_s, time_s);
        assert!(close(speedup, 125.0 / 13.5) && close(efficiency(speedup, 10), 12.5 / 13.5));
        // 8: ten processors of double speed
        let rates = arrival_rate_max_interval_per_s(Regime::Fits, COSTS, 1.0, 10, 2.0);
        assert!(close(rates.low, 16.0) && close(rates.high, 20.0 / 1.125));
        // 9, 10
        let rate_per_s = arrival_rate_max_per_s(10, 2.0, 135.0, 100);
        assert!(close(rate_per_s, 20.0 / 1.35) && close(utilization(rate_per_s, 1.35, 10, 2.0), 1.0));
        assert!(close(utilization(rate_per_s / 2.0, 1.35, 10, 2.0), 0.5));
    }

    #[test]
    fn ideal_hit_ratios_are_those_of_figure_46() {
        for (locality, ratio) in [(1.0, 0.0), (2.0, 0.5), (5.0, 0.8), (10.0, 0.9), (30.0, 1.0 - 1.0 / 30.0)] {
            assert!(close(HitRatios::of_locality(locality).local(), ratio));
        }
    }

    #[test]
    fn ratios_beyond_all_accesses_are_refused_with_a_sentence() {
        let refused = |local, remote| HitRatios::new(local, remote).unwrap_err().to_string();
        assert_eq!(refused(-0.5, 0.0), "the local hit ratio is -0.5; it must be between 0 and 1");
        assert_eq!(refused(0.75, 0.5), "the hit ratio is 1.25; it must be between 0 and 1");
        assert_eq!(refused(0.0, f64::NAN), "the remote hit ratio is NaN; it must be between 0 and 1");
        assert_eq!(HitRatios::new(0.5, 0.5).unwrap().home(), 0.0);
        assert_eq!(HitRatios::of_counts(0, 0, 0), None);
    }

    fn ratios() -> impl Strategy<Value = HitRatios> {
        (1u64..1_000, 0u64..1_000, 0u64..1_000).prop_map(|(l, r, h)| HitRatios::of_counts(l, r, h).unwrap())
    }

    proptest! {
        #[test]
        fn equation_3_lies_between_the_ends_of_equation_1(ratios in ratios(), compute_s in 0.0f64..10.0) {
            let task_s = task_time_s(COSTS, ratios, compute_s);
            let least_s = task_time_interval_s(Regime::Fits, COSTS, compute_s).low;
            let most_s = task_time_interval_s(Regime::Exceeds, COSTS, compute_s).high;
            prop_assert!(least_s - 1e-9 <= task_s && task_s <= most_s + 1e-9);
            // Equation 2 is equation 3 where its regime has no other accesses.
            let warm = HitRatios::new(1.0 - ratios.remote(), ratios.remote()).unwrap();
            let cold = HitRatios::new(0.0, ratios.remote()).unwrap();
            for (regime, ratios) in [(Regime::Fits, warm), (Regime::Exceeds, cold)] {
                let in_regime_s = task_time_in_regime_s(regime, COSTS, ratios, compute_s);
                prop_assert!(close(in_regime_s, task_time_s(COSTS, ratios, compute_s)));
            }
        }

        #[test]
        fn equation_9_lies_between_the_ends_of_equation_8(remote in 0.0f64..1.0, n in 1u32..5_000) {
            for (regime, ratios) in [
                (Regime::Fits, HitRatios::new(1.0 - remote, remote).unwrap()),
                (Regime::Exceeds, HitRatios::new(0.0, remote).unwrap()),
            ] {
                let ends = arrival_rate_max_interval_per_s(regime, COSTS, 0.5, n, 1.0);
                let total_s = processor_time_s((0..7).map(|_| task_time_s(COSTS, ratios, 0.5)));
                let rate = arrival_rate_max_per_s(n, 1.0, total_s, 7);
                prop_assert!(ends.low * (1.0 - 1e-9) <= rate && rate <= ends.high * (1.0 + 1e-9));
            }
        }

        #[test]
        fn nearer_data_never_costs_more(ratios in ratios(), to_remote in 0.0f64..1.0, to_local in 0.0f64..1.0) {
            let from_home = ratios.home() * to_remote;
            let nearer = HitRatios::new(
                ratios.local() + ratios.remote() * to_local,
                ratios.remote() * (1.0 - to_local) + from_home,
            ).unwrap();
            prop_assert!(access_time_s(COSTS, nearer) <= access_time_s(COSTS, ratios) + 1e-9);
        }
    }
}
