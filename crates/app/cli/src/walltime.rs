//! When the batch system ends this process.

use eyas_runtime::executor::Walltime;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

/// How long Grid Engine may take to say when a job ends.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The walltime of this process. `whole_ns`, `end_s`: the options `--walltime` and `--walltime-end`; without them, what Slurm has
/// put into the environment of its job, or what Grid Engine says of it. `None`: nothing is known of an end.
pub fn of(whole_ns: Option<u64>, end_s: Option<u64>) -> Option<Walltime> {
    let now = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let slurm = |name: &str| std::env::var(name).ok()?.parse().ok();
    find(now, whole_ns, end_s, slurm).or_else(|| {
        let (whole_s, end_s) = of_grid_engine()?;
        find(now, Some(whole_s * 1_000_000_000), Some(end_s), |_| None)
    })
}

/// Options of an executor that say when the job of Grid Engine ends that this process is in. Executors on the job's other hosts
/// would have to ask for it one by one.
pub fn words_of_grid_engine() -> Vec<String> {
    let Some((whole_s, end_s)) = of_grid_engine() else { return vec![] };
    vec!["--walltime".into(), format!("{whole_s}s"), "--walltime-end".into(), end_s.to_string()]
}

/// The longest that the job of Grid Engine may run that this process is in, in seconds, and when it ends, in seconds since 1970.
/// The environment of a job does not say it, so `qstat -j` is asked, once.
fn of_grid_engine() -> Option<(u64, u64)> {
    std::env::var_os("SGE_JOB_SPOOL_DIR")?;
    let job = std::env::var("JOB_ID").ok()?;
    let mut command = Command::new("qstat");
    command.args(["-j", &job, "-xml"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = command.spawn().ok()?;
    let mut pipe = asked.stdout.take().expect("it is a pipe");
    let (give, answer) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = pipe.read_to_string(&mut text);
        let _ = give.send(text);
    });
    let text = answer.recv_timeout(ANSWER_MAX).ok();
    let _ = asked.kill();
    let _ = asked.wait();
    limit_and_start(&text?).map(|(limit_s, start_s)| (limit_s, start_s + limit_s))
}

/// The time limit `h_rt` and the start of a job, of what `qstat -j JOB -xml` prints. `None`: it has no limit, or does not run.
fn limit_and_start(xml: &str) -> Option<(u64, u64)> {
    let value = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once('<')?.0.parse::<f64>().ok()
    };
    let (_, request) = xml.split_once("<CE_name>h_rt</CE_name>")?;
    let limit_s = value(request, "CE_doubleval").filter(|s| *s > 0.0)?;
    let start_s = value(xml, "JAT_start_time").filter(|s| *s > 0.0)?;
    // Newer ones count in milliseconds.
    let start_s = if start_s > 1e11 { start_s / 1_000.0 } else { start_s };
    Some((limit_s as u64, start_s as u64))
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

    #[test]
    fn grid_engine_says_a_limit_and_a_start() {
        let xml = "<JB_hard_resource_list><qstat_l_requests><CE_name>h_vmem</CE_name><CE_doubleval>7.0</CE_doubleval>\
                   </qstat_l_requests><qstat_l_requests><CE_name>h_rt</CE_name><CE_valtype>3</CE_valtype>\
                   <CE_stringval>300</CE_stringval><CE_doubleval>300.000000</CE_doubleval></qstat_l_requests>\
                   </JB_hard_resource_list><JAT_start_time>1795589341</JAT_start_time>";
        assert_eq!(limit_and_start(xml), Some((300, 1_795_589_341)));
        assert_eq!(
            limit_and_start(&xml.replace("9341", "9341000")),
            Some((300, 1_795_589_341)),
            "milliseconds"
        );
        assert_eq!(limit_and_start(&xml.replace("h_rt", "s_rt")), None);
        assert_eq!(limit_and_start(&xml.replace("JAT_start", "other")), None);
        assert_eq!(limit_and_start(""), None);
    }
}
