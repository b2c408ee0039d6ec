//! When the batch system ends this process.

use eyas_runtime::executor::Walltime;
use std::time::{Duration, Instant, SystemTime};

/// The walltime of this process. `whole_ns`, `end_s`: the options `--walltime` and `--walltime-end`; without them, what Slurm has
/// put into the environment of its job. `None`: nothing is known of an end.
pub fn of(whole_ns: Option<u64>, end_s: Option<u64>) -> Option<Walltime> {
    let now = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let slurm = |name: &str| std::env::var(name).ok()?.parse().ok();
    find(now, whole_ns, end_s, slurm)
}

fn find(
    (now, unix): (Instant, Duration),
    whole_ns: Option<u64>,
    end_s: Option<u64>,
    slurm: impl Fn(&str) -> Option<u64>,
) -> Option<Walltime> {
    let at = |unix_s: u64| now + Duration::from_secs(unix_s).saturating_sub(unix);
    if let Some(whole) = whole_ns.map(Duration::from_nanos) {
        return Some(Walltime { whole, ends: end_s.map_or(now + whole, at) });
    }
    let end_s = slurm("SLURM_JOB_END_TIME")?;
    let ends = at(end_s);
    let whole = slurm("SLURM_JOB_START_TIME").and_then(|start_s| end_s.checked_sub(start_s));
    Some(Walltime { whole: whole.map_or(ends - now, Duration::from_secs), ends })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_win_over_slurm_and_slurm_over_nothing() {
        let now = (Instant::now(), Duration::from_secs(1_000));
        let s = Duration::from_secs;
        let nothing = |_: &str| None;
        let slurm = |name: &str| match name {
            "SLURM_JOB_START_TIME" => Some(900),
            _ => Some(1_500),
        };
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
