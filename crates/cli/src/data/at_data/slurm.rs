//! Slurm as `eyas at-data` uses it: its nodes, and one job that is submitted, looked at and cancelled.

use crate::fault::bad;
use crate::{Exit, Fault};
use eyas_text::line_of;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// A node as `scontrol show node` tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: String,
    /// Its name, its host's name and its address, as far as they differ.
    pub names: Vec<String>,
    /// Whether jobs can start on it.
    pub takes_jobs: bool,
    pub n_busy: u32,
}

/// All nodes of the cluster, by name.
pub fn nodes() -> Result<Vec<Node>, Fault> {
    let text = ask(&["scontrol", "--oneliner", "show", "node"], None)?;
    Ok(text.lines().filter_map(node_of).collect())
}

fn node_of(line: &str) -> Option<Node> {
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
    Some(Node { name, names, takes_jobs, n_busy })
}

/// `KEY=VALUE` words; the first of a name counts.
fn fields_of(line: &str) -> BTreeMap<&str, &str> {
    let mut fields = BTreeMap::new();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        fields.entry(key).or_insert(value);
    }
    fields
}

/// Submits a job whose script is given on the standard input; returns its number.
pub fn submit(options: &[String], script: &str) -> Result<String, Fault> {
    let mut words = vec!["sbatch", "--parsable"];
    words.extend(options.iter().map(String::as_str));
    let text = ask(&words, Some(script))?;
    // `42;cluster` where there are several clusters.
    Ok(text.trim().split(';').next().unwrap_or_default().to_owned())
}

/// Lets a job that waits start on any host. A job that has started meanwhile is left as it is.
pub fn release(job: &str) {
    let target = format!("JobId={job}");
    for what in ["ReqNodeList=", "ExcNodeList="] {
        let _ = ask(&["scontrol", "update", &target, what], None);
    }
}

/// Asks a job to end, or removes one that waits.
pub fn cancel(job: &str) {
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

/// What Slurm says of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Waits,
    Runs,
    /// It ended, in Slurm's words.
    Ended(String),
    /// Slurm has forgotten it.
    Unknown,
}

/// # Errors
/// Slurm does not answer; it may later.
pub fn state(job: &str) -> Result<State, Fault> {
    match ask(&["scontrol", "--oneliner", "show", "job", job], None) {
        Ok(text) => Ok(state_of(&text)),
        Err(fault) if fault.message.contains("Invalid job id") => Ok(State::Unknown),
        Err(fault) => Err(fault),
    }
}

fn state_of(text: &str) -> State {
    let fields = fields_of(text);
    match fields.get("JobState").copied().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" => State::Waits,
        "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" | "RESIZING" => {
            State::Runs
        }
        ended => {
            let why = match fields.get("Reason").copied() {
                None | Some("None") => String::new(),
                Some(reason) => format!(" ({reason})"),
            };
            State::Ended(format!("{ended}{why}"))
        }
    }
}

/// Runs a command of Slurm. Passwords of the catalog's database do not travel with a job.
fn ask(words: &[&str], input: Option<&str>) -> Result<String, Fault> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_remove("EYAS_DATA").env_remove("PGPASSWORD");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        bad(format!("cannot run `{}`, a command of Slurm: {}", words[0], crate::print::reason(&error))).hint(
            "--mode late and --mode scheduled need Slurm's commands on the PATH; --mode local needs none",
        )
    })?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A command that does not read its script says why itself.
        let _ = stdin.write_all(text.as_bytes());
    }
    let done = child.wait_with_output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let exit = if words[0] == "sbatch" { Exit::BadInput } else { Exit::Cluster };
    let fault = Fault::new(exit, format!("`{}` refused: {}", words[0], line_of(reason_of(&said))));
    Err(match said.contains("configuration source") {
        true => {
            fault.hint("this machine belongs to no Slurm cluster: `sinfo` shows the cluster where it does")
        }
        false => fault,
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
        assert_eq!(failed, State::Ended("NODE_FAIL".to_owned()));
        let late = state_of("JobId=1 JobState=TIMEOUT Reason=TimeLimit");
        assert_eq!(late, State::Ended("TIMEOUT (TimeLimit)".to_owned()));
    }
}
