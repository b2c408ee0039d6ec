//! MI, the monotonically increasing workload of `Raicu09` §5.1.
//!
//! Equation 12, `A_i = min(ceiling(A_{i-1} * 1.3), 1000), 0 <= i < 24`, with `A_0 = 1`, gives the rates 1,
//! 2, 3, 4, 6, 8, 11, ..., 836, 1000 tasks/s, each for 60 s. They make 275,100 tasks in 1,440 s; the
//! paper's 250K tasks in 1,415 s come out when the last interval is cut: the 250,000th task arrives at
//! 1,414.9 s, which is the ideal time. Each task reads one of 10,000 files of 10 MB, drawn uniformly, and
//! computes for 10 ms.
//!
//! Deviation: none known. The paper does not say how a client batches arrivals; for ours see `arrivals.rs`.

use super::arrivals::Arrivals;
use eyas_sim::workload::{Error, MB, MS_NS, SECOND_NS, Sizes, Workload, at_least_one, sanity};
use eyas_terms::Timestamp;

#[derive(Clone, PartialEq, Debug)]
pub struct MiConfig {
    pub n_tasks: u64,
    pub n_files: u64,
    pub file_bytes: u64,
    pub compute_ns: u64,
    /// Tasks per second in the first interval.
    pub rate_first: u64,
    /// The rate of an interval in per cent of the one before, rounded up to whole tasks per second.
    pub growth_per_cent: u64,
    /// The rate stays at this value, once reached, until all tasks have come.
    pub rate_max: u64,
    pub interval_s: u64,
}

impl Default for MiConfig {
    fn default() -> Self {
        MiConfig {
            n_tasks: 250_000,
            n_files: 10_000,
            file_bytes: 10 * MB,
            compute_ns: 10 * MS_NS,
            rate_first: 1,
            growth_per_cent: 130,
            rate_max: 1000,
            interval_s: 60,
        }
    }
}

/// The rates of equation 12 without end, in tasks per second.
fn rates(config: &MiConfig) -> impl Iterator<Item = u64> + use<> {
    let (growth, max) = (u128::from(config.growth_per_cent), u128::from(config.rate_max));
    let next = move |rate: &u64| Some((u128::from(*rate) * growth).div_ceil(100).min(max) as u64);
    std::iter::successors(Some(config.rate_first.min(config.rate_max)), next)
}

/// The rate of each interval until all tasks have arrived, in tasks per second, and the time when the last
/// task arrives.
pub fn arrival_rates(config: &MiConfig) -> Result<(Vec<u64>, Timestamp), Error> {
    at_least_one("the number of tasks", config.n_tasks)?;
    at_least_one("an interval's length in seconds", config.interval_s)?;
    if config.rate_first.min(config.rate_max) == 0 {
        let (first, max) = (config.rate_first, config.rate_max);
        return Err(Error::never_ends(format!(
            "at {first} tasks per second first and {max} at most no task ever arrives"
        )));
    }
    if config.growth_per_cent < 100 {
        return Err(Error::config(format!(
            "the arrival rate of a monotonically increasing workload must not shrink, to {} % here",
            config.growth_per_cent
        )));
    }
    let (mut list, mut n_left, mut begin_s) = (vec![], config.n_tasks, 0u64);
    for rate in rates(config) {
        list.push(rate);
        let here = rate.saturating_mul(config.interval_s);
        if here >= n_left {
            let due_ns = (u128::from(n_left) * u128::from(SECOND_NS)).div_ceil(u128::from(rate)) as u64;
            return Ok((list, Timestamp(begin_s * SECOND_NS + due_ns)));
        }
        n_left -= here;
        begin_s += config.interval_s;
        if begin_s > sanity::END_S_MAX {
            break;
        }
    }
    Err(sanity::too_long(config.n_tasks))
}

/// Equation 12 as a workload.
pub fn mi(seed: u64, config: MiConfig) -> Result<Workload, Error> {
    at_least_one("the number of files", config.n_files)?;
    let (_, last) = arrival_rates(&config)?;
    let MiConfig { n_tasks, n_files, file_bytes, compute_ns, .. } = config;
    let interval_ns = config.interval_s * SECOND_NS;
    let stream = Arrivals::new("mi", seed, rates(&config), interval_ns, n_files, compute_ns, n_tasks);
    Ok(Workload {
        name: "mi".into(),
        n_tasks,
        ideal_ns: last.0,
        read_bytes: n_tasks.saturating_mul(file_bytes),
        sizes: Sizes::Same(file_bytes),
        submissions: Box::new(stream),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;

    #[test]
    fn equation_12_gives_the_papers_tasks_and_time() {
        let (rates, last) = arrival_rates(&MiConfig::default()).unwrap();
        let expect = [
            1, 2, 3, 4, 6, 8, 11, 15, 20, 26, 34, 45, 59, 77, 101, 132, 172, 224, 292, 380, 494, 643, 836,
            1000,
        ];
        assert_eq!(rates, expect);
        assert_eq!(last.0, 1_414_900 * MS_NS);

        let workload = mi(1, MiConfig::default()).unwrap();
        assert_eq!((workload.ideal_ns, workload.n_tasks), (1_414_900 * MS_NS, 250_000));
        assert_eq!(workload.read_bytes, 2_500_000 * MB);
        let tasks = all_tasks(workload);
        assert_eq!(tasks.len(), 250_000);
        assert_eq!(tasks.last().unwrap().0, 1_414_900 * MS_NS);
        assert!(tasks.is_sorted_by_key(|t| t.0));
        assert!(tasks.iter().all(|t| t.2 == 10 * MS_NS));
        let n_before = |s: u64| tasks.iter().filter(|t| t.0 <= s * SECOND_NS).count() as u64;
        for (i, rate) in rates.iter().enumerate().take(23) {
            let i = i as u64;
            assert_eq!(n_before(60 * i + 60) - n_before(60 * i), 60 * rate, "interval {i}");
            assert_eq!(n_before(60 * i + 1) - n_before(60 * i), *rate, "first second of interval {i}");
        }
    }

    #[test]
    fn every_file_is_as_likely_as_any_other_and_the_seed_decides() {
        let config = MiConfig { n_files: 100, ..MiConfig::default() };
        let tasks = all_tasks(mi(7, config.clone()).unwrap());
        let mut n_reads = vec![0u32; 100];
        for task in &tasks {
            n_reads[task.1[0][1..].parse::<usize>().unwrap()] += 1;
        }
        // The number of reads per file is binomial with mean 2,500 and standard deviation 50: five
        // deviations either way.
        assert!(n_reads.iter().all(|n| (2_250..=2_750).contains(n)), "{n_reads:?}");
        assert_eq!(tasks, all_tasks(mi(7, config.clone()).unwrap()));
        assert_ne!(tasks, all_tasks(mi(8, config).unwrap()));
    }

    #[test]
    fn streams_that_make_no_sense_are_refused() {
        let check = |config: MiConfig, expect: &str| {
            let error = mi(1, config).err().unwrap().to_string();
            assert!(error.contains(expect), "{error}");
        };
        let default = MiConfig::default;
        check(MiConfig { rate_max: 0, ..default() }, "no task ever arrives");
        check(MiConfig { n_tasks: 0, ..default() }, "number of tasks must be at least 1");
        check(MiConfig { n_files: 0, ..default() }, "number of files must be at least 1");
        check(MiConfig { growth_per_cent: 90, ..default() }, "must not shrink");
        check(MiConfig { n_tasks: u64::MAX, ..default() }, "100 years");
    }
}
