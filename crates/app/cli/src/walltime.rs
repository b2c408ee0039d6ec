//! When the batch system ends this process.

use eyas_batch::{BatchSystem, GridEngine, Slurm, Times, env};
use eyas_runtime::executor::Walltime;
use std::time::{Duration, Instant, SystemTime};

/// The walltime of this process. `whole_ns`, `end_s`: the options `--walltime` and `--walltime-end`; without them, what Slurm has
/// put into the environment of its job, or what Grid Engine says of it. `None`: nothing is known of an end.
pub fn of(whole_ns: Option<u64>, end_s: Option<u64>) -> Option<Walltime> {
    let now = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    find(now, whole_ns, end_s, || Slurm.times_here(&env).or_else(|| GridEngine.times_here(&env)))
}

/// Options of an executor that say when the job of Grid Engine ends that this process is in. Executors on the job's other hosts
/// would have to ask for it one by one.
pub fn words_of_grid_engine() -> Vec<String> {
    let Some(Times { start_s: Some(start_s), end_s }) = GridEngine.times_here(&env) else { return vec![] };
    let whole_s = end_s - start_s;
    vec!["--walltime".into(), format!("{whole_s}s"), "--walltime-end".into(), end_s.to_string()]
}

fn find(
    (now, unix): (Instant, Duration),
    whole_ns: Option<u64>,
    end_s: Option<u64>,
    of_job: impl FnOnce() -> Option<Times>,
) -> Option<Walltime> {
    let at = |unix_s: u64| now + Duration::from_secs(unix_s).saturating_sub(unix);
    if let Some(whole) = whole_ns.map(Duration::from_nanos) {
        return Some(Walltime { whole, ends: end_s.map_or(now + whole, at) });
    }
    let Times { start_s, end_s } = of_job()?;
    let ends = at(end_s);
    let whole = start_s.and_then(|start_s| end_s.checked_sub(start_s));
    Some(Walltime { whole: whole.map_or(ends - now, Duration::from_secs), ends })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_win_over_the_job_and_the_job_over_nothing() {
        let now = (Instant::now(), Duration::from_secs(1_000));
        let s = Duration::from_secs;
        let nothing = || None;
        let variable = |name: &str| match name {
            "SLURM_JOB_START_TIME" => Some("900".into()),
            "SLURM_JOB_END_TIME" => Some("1500".into()),
            _ => None,
        };
        let slurm = || Slurm.times_here(&variable);
        assert_eq!(find(now, None, None, nothing), None);
        assert_eq!(find(now, None, None, slurm), Some(Walltime { whole: s(600), ends: now.0 + s(500) }));
        let hour = Some(3_600_000_000_000);
        assert_eq!(find(now, hour, None, slurm), Some(Walltime { whole: s(3_600), ends: now.0 + s(3_600) }));
        assert_eq!(
            find(now, hour, Some(4_590), nothing),
            Some(Walltime { whole: s(3_600), ends: now.0 + s(3_590) })
        );
        assert_eq!(find(now, hour, Some(10), nothing).map(|w| w.ends), Some(now.0), "it is over");
    }
}
