//! Slurm.

use crate::{BatchNode, BatchSystem, Env, HOSTS_OF_SLURM, Job, Result, State, Target, Times, names_of_lines};
use eyas_text::line_of;
use std::collections::BTreeMap;
use std::process::Command;

/// How long a job waits for hosts that it only prefers, in seconds.
const PREFER_S: u64 = 5;

pub struct Slurm;

impl BatchSystem for Slurm {
    fn name(&self) -> &'static str {
        "Slurm"
    }

    fn nodes(&self) -> Result<Vec<BatchNode>> {
        let text = ask(&["scontrol", "--oneliner", "show", "node"], None)?;
        Ok(text.lines().filter_map(node_of).collect())
    }

    fn aim(&self, target: &Target) -> Vec<String> {
        match (target.hosts, target.all.len()) {
            ([], _) => vec![],
            (hosts, all) if hosts.len() == all => vec![],
            ([host], _) => vec![format!("--nodelist={host}")],
            // Slurm takes a list of nodes as nodes that a job needs all of, so the others are excluded.
            (hosts, _) => {
                let others = target.all.iter().map(|node| &*node.name);
                let others: Vec<&str> =
                    others.filter(|name| !hosts.iter().any(|host| host == name)).collect();
                vec![format!("--exclude={}", others.join(","))]
            }
        }
    }

    fn soft_words(&self) -> String {
        format!("if it starts there within {PREFER_S} s")
    }

    fn names_hosts(&self, options: &[String]) -> bool {
        let names = |option: &String| {
            ["--nodelist", "-w", "--exclude", "-x"].iter().any(|name| option.starts_with(name))
        };
        options.iter().any(names)
    }

    fn directive(&self) -> &'static str {
        "#SBATCH"
    }

    fn submit(&self, job: &Job) -> Result<String> {
        let file = |name: &str| job.folder.join(name).display().to_string();
        let own = [
            "--job-name=eyas-at-data".to_owned(),
            "--no-requeue".to_owned(),
            format!("--chdir={}", job.folder.display()),
            format!("--output={}", file("stdout")),
            format!("--error={}", file("stderr")),
        ];
        let mut words = vec!["sbatch", "--parsable"];
        words.extend(own.iter().chain(job.aim).chain(job.options).map(String::as_str));
        let text = ask(&words, Some(job.script))?;
        // `42;cluster` where there are several clusters.
        Ok(text.trim().split(';').next().unwrap_or_default().to_owned())
    }

    fn release(&self, job: &str) {
        let target = format!("JobId={job}");
        for what in ["ReqNodeList=", "ExcNodeList="] {
            let _ = ask(&["scontrol", "update", &target, what], None);
        }
    }

    fn state(&self, job: &str, _user: &str) -> Result<State> {
        state(job)
    }

    fn cancel(&self, job: &str) {
        // The batch step is asked first, as it removes what it has on its host.
        let _ = ask(&["scancel", "--quiet", "--full", "--signal=TERM", job], None);
        for _ in 0..60 {
            match state(job) {
                Ok(State::Runs) => std::thread::sleep(std::time::Duration::from_millis(200)),
                _ => break,
            }
        }
        let _ = ask(&["scancel", "--quiet", job], None);
    }

    /// Slurm's own program knows how Slurm folds names.
    fn hosts_here(&self, env: Env<'_>) -> Option<std::result::Result<Vec<(String, Option<u32>)>, String>> {
        let list = env(HOSTS_OF_SLURM)?;
        let done = match Command::new("scontrol").args(["show", "hostnames", &list]).output() {
            Err(e) => return Some(Err(format!("cannot run `scontrol show hostnames`: {e}"))),
            Ok(done) => done,
        };
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Some(Err(format!("`scontrol show hostnames` failed: {}", line_of(said.trim()))));
        }
        let names = names_of_lines(&String::from_utf8_lossy(&done.stdout));
        Some(Ok(names.into_iter().map(|name| (name, None)).collect()))
    }

    fn slots_here(&self, env: Env<'_>) -> Option<u32> {
        env("SLURM_CPUS_ON_NODE").and_then(|n| n.parse().ok()).filter(|n| *n > 0)
    }

    fn times_here(&self, env: Env<'_>) -> Option<Times> {
        let time = |name: &str| env(name)?.parse().ok();
        let end_s = time("SLURM_JOB_END_TIME")?;
        Some(Times { start_s: time("SLURM_JOB_START_TIME"), end_s })
    }

    fn node_here(&self, env: Env<'_>) -> Option<String> {
        env("SLURMD_NODENAME")
    }
}

fn state(job: &str) -> Result<State> {
    match ask(&["scontrol", "--oneliner", "show", "job", job], None) {
        Ok(text) => Ok(state_of(&text)),
        Err(error) if error.said.contains("Invalid job id") => Ok(State::Gone),
        Err(error) => Err(error),
    }
}

fn node_of(line: &str) -> Option<BatchNode> {
    let fields = fields_of(line);
    let name = (*fields.get("NodeName")?).to_owned();
    let mut names = vec![name.clone()];
    for key in ["NodeHostName", "NodeAddr"] {
        if let Some(other) = fields.get(key)
            && !names.iter().any(|name| name == other)
        {
            names.push((*other).to_owned());
        }
    }
    let state = fields.get("State")?;
    let never = ["DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "*"];
    let takes_jobs = !never.iter().any(|word| state.contains(word));
    let n_busy = fields.get("CPUAlloc").and_then(|n| n.parse().ok()).unwrap_or(0);
    Some(BatchNode { name, names, takes_jobs, n_busy })
}

/// `KEY=VALUE` words; the first of a name counts.
fn fields_of(line: &str) -> BTreeMap<&str, &str> {
    let mut fields = BTreeMap::new();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        fields.entry(key).or_insert(value);
    }
    fields
}

fn state_of(text: &str) -> State {
    let fields = fields_of(text);
    match fields.get("JobState").copied().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" => State::Waits,
        "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" | "RESIZING" => {
            State::Runs
        }
        "COMPLETED" => State::Ended,
        ended => {
            let why = match fields.get("Reason").copied() {
                None | Some("None") => String::new(),
                Some(reason) => format!(" ({reason})"),
            };
            State::Failed(format!("{ended}{why}"))
        }
    }
}

fn ask(words: &[&str], input: Option<&str>) -> Result<String> {
    crate::ask("Slurm", words, input, reason_of).map_err(|mut error| {
        if error.said.contains("configuration source") {
            error.hint =
                Some("this machine belongs to no Slurm cluster: `sinfo` shows the cluster where it does");
        }
        error
    })
}

/// What a command of Slurm said at last, which is why it gave up; without the command's name.
fn reason_of(said: &str) -> &str {
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    last.split_once(": fatal: ").or_else(|| last.split_once(": error: ")).map_or(last, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_names_that_slurm_tells() {
        let line = "NodeName=n1 Arch=x86_64 CPUAlloc=2 CPUTot=4 NodeAddr=10.0.0.1 NodeHostName=box \
                    State=MIXED ThreadsPerCore=1 Reason=x State=DOWN";
        let node = node_of(line).expect("it is a node");
        assert_eq!(
            (node.names, node.n_busy, node.takes_jobs),
            (["n1", "box", "10.0.0.1"].map(str::to_owned).to_vec(), 2, true)
        );
        for state in ["DOWN*", "IDLE+DRAIN", "IDLE*", "IDLE+NOT_RESPONDING"] {
            let node = node_of(&format!("NodeName=c2 NodeAddr=c2 NodeHostName=c2 State={state}"));
            assert!(!node.expect("it is a node").takes_jobs, "{state}");
        }
        assert_eq!(node_of("slurm_load_node error"), None);
    }

    #[test]
    fn the_last_line_says_why() {
        let said = "scontrol: error: fetch_config: DNS SRV lookup failed\n\
                    scontrol: fatal: Could not establish a configuration source\n\n";
        assert_eq!(reason_of(said), "Could not establish a configuration source");
        let said =
            "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: no";
        assert_eq!(reason_of(said), "Batch job submission failed: no");
        assert_eq!(
            reason_of("slurm_load_jobs error: Invalid job id specified"),
            "slurm_load_jobs error: Invalid job id specified"
        );
        assert_eq!(reason_of(""), "");
    }

    #[test]
    fn a_job_waits_runs_or_has_ended_in_words() {
        assert_eq!(state_of("JobId=1 JobState=PENDING Reason=Resources"), State::Waits);
        assert_eq!(state_of("JobId=1 JobState=COMPLETING Reason=None"), State::Runs);
        let failed = state_of("JobId=1 JobState=NODE_FAIL Reason=None Dependency=(null)");
        assert_eq!(failed, State::Failed("NODE_FAIL".to_owned()));
        let late = state_of("JobId=1 JobState=TIMEOUT Reason=TimeLimit");
        assert_eq!(late, State::Failed("TIMEOUT (TimeLimit)".to_owned()));
    }
}
