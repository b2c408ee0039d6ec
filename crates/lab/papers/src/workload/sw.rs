//! SW, the sine-wave workload of `Raicu09` §5.2.
//!
//! Equation 13, `A = [(sin(sqrt(time + 0.11) * 2.859678) + 1) * (time + 0.11) * 5.705]`, "where time is
//! elapsed minutes". The paper does not say what `A` counts, what the brackets are, or how often it is
//! evaluated. One reading gives its numbers exactly: tasks per second, floored, evaluated at the beginning
//! of each second with time in minutes. Then the rate peaks at 1,000 tasks/s and exactly 2,000,000 tasks
//! have come when 6,505 s have passed (the last one at 6,504 s; of the rate's next second, and of 25 more,
//! nothing is left after flooring). The ideal time is 6,505 s. Each task reads one of 100,000 files of 10
//! MB, drawn uniformly, and computes for 10 ms.
//!
//! Deviation: none known. `sin` is `libm`'s, in Rust, so that no rate depends on a machine's C library;
//! `sqrt` is exact everywhere (IEEE 754).

use super::arrivals::Arrivals;
use eyas_sim::workload::{Error, MB, MS_NS, SECOND_NS, Sizes, Workload, at_least_one, sanity};

#[derive(Clone, PartialEq, Debug)]
pub struct SwConfig {
    /// The time during which tasks arrive, in seconds.
    pub duration_s: u64,
    pub n_files: u64,
    pub file_bytes: u64,
    pub compute_ns: u64,
}

impl Default for SwConfig {
    fn default() -> Self {
        SwConfig { duration_s: 6_505, n_files: 100_000, file_bytes: 10 * MB, compute_ns: 10 * MS_NS }
    }
}

/// Equation 13: tasks that arrive in the second that begins `second` seconds after the start.
pub fn arrival_rate(second: u64) -> u64 {
    let minutes = second as f64 / 60.0;
    let shifted = minutes + 0.11;
    ((libm::sin(shifted.sqrt() * 2.859678) + 1.0) * shifted * 5.705) as u64
}

/// Equation 13 as a workload.
pub fn sw(seed: u64, config: SwConfig) -> Result<Workload, Error> {
    let SwConfig { duration_s, n_files, file_bytes, compute_ns } = config;
    at_least_one("the number of files", n_files)?;
    at_least_one("the duration in seconds", duration_s)?;
    if duration_s > sanity::END_S_MAX {
        return Err(Error::never_ends(format!(
            "a stream of {duration_s} seconds is longer than the 100 years that are simulated at most"
        )));
    }
    let n_tasks: u64 = (0..duration_s).map(arrival_rate).sum();
    let rates = (0..duration_s).map(arrival_rate);
    Ok(Workload {
        name: "sw".into(),
        n_tasks,
        ideal_ns: duration_s * SECOND_NS,
        read_bytes: n_tasks.saturating_mul(file_bytes),
        sizes: Sizes::Same(file_bytes),
        submissions: Box::new(Arrivals::new("sw", seed, rates, SECOND_NS, n_files, compute_ns, n_tasks)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;

    #[test]
    fn equation_13_gives_exactly_the_papers_tasks_and_time() {
        assert_eq!((0..6_505).map(arrival_rate).sum::<u64>(), 2_000_000);
        assert_eq!((0..6_505).map(arrival_rate).max(), Some(1_000));
        assert_eq!((6_503..6_530).map(arrival_rate).sum::<u64>(), 1, "the cut is in the trough");

        let workload = sw(1, SwConfig::default()).unwrap();
        assert_eq!((workload.n_tasks, workload.ideal_ns), (2_000_000, 6_505 * SECOND_NS));
        let (mut n, mut last, mut n_submissions) = (0, 0, 0);
        for s in workload.submissions {
            assert!(s.at.0 >= last);
            (n, last, n_submissions) = (n + u64::from(s.array.n_tasks), s.at.0, n_submissions + 1);
        }
        assert_eq!((n, last), (2_000_000, 6_504 * SECOND_NS));
        assert!(n_submissions < 65_050, "{n_submissions}");
    }

    #[test]
    fn the_seed_decides() {
        let config = || SwConfig { duration_s: 600, ..SwConfig::default() };
        let tasks = all_tasks(sw(3, config()).unwrap());
        assert_eq!(tasks, all_tasks(sw(3, config()).unwrap()));
        assert_ne!(tasks, all_tasks(sw(4, config()).unwrap()));
    }

    #[test]
    fn no_files_and_no_end_are_refused() {
        let check = |config: SwConfig, expect: &str| {
            let error = sw(1, config).err().unwrap().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(SwConfig { n_files: 0, ..SwConfig::default() }, "number of files");
        check(SwConfig { duration_s: u64::MAX, ..SwConfig::default() }, "100 years");
        check(SwConfig { duration_s: 0, ..SwConfig::default() }, "duration");
    }
}
