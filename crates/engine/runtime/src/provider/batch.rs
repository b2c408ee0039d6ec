//! Nodes of batch systems and clouds, which a Python process asks for through Parsl's providers, and nodes of a Ray cluster, which it
//! asks Ray for.
//!
//! The process is `python -m eyas.provision`. It is given one line of JSON for each call and answers each by one line (see
//! `python/src/eyas/provision/__main__.py`). It keeps nothing that a restart would lose, so a process that was killed,
//! or hangs, is simply replaced: a listing or a cancellation is then given again, and of a submission nobody knows whether it
//! succeeded, which the next listing shows ([`eyas_core::provisioning::blocks`], rule 2).
//!
//! A block's job runs the script of [`super::script`] on each of its nodes. The script, the files of Parsl and what the block
//! printed lie in the folder that nodes share ([`super::Share`]) and begin with the block's name. Nodes of Ray need not see that
//! folder: the Python process sends them what they need.

use super::calls::{CallCount, Purpose};
use super::launch::Launch;
use super::script::{self, last_line};
use super::{Haste, Share, Source};
use eyas_core::provisioning::blocks::{BlockState, Listed};
use eyas_text::{line_of, shown_path};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Of the lines between the two processes. It is raised when an older side would misunderstand a newer one.
const PROTOCOL: u32 = 1;
/// How long Python and Parsl may take to be there. A file system of a busy cluster takes its time for a thousand small files.
const OPEN_MAX: Duration = Duration::from_secs(120);
/// How long a call may take: some are two commands of the batch system, of a minute each.
const CALL_MAX: Duration = Duration::from_secs(150);
/// How long a cancellation may take.
const CANCEL_MAX: Duration = Duration::from_secs(70);
/// What is waited between tries to end a block at the end of the cluster.
const AGAIN: Duration = Duration::from_secs(1);
/// The same when nobody wants to wait.
const CANCEL_IN_HASTE: Duration = Duration::from_secs(5);
/// How often a wait looks whether it is cut off.
const LOOK: Duration = Duration::from_millis(20);
/// The log of the Python process, in the dispatcher's folder.
pub const LOG: &str = "provision.log";
/// What was submitted, for the kinds that know blocks by nothing but their ids.
const BOOK: &str = "blocks.json";
/// The kind of provider whose nodes are those of a Ray cluster.
pub const RAY: &str = "ray";

/// What is asked of a batch system for each block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSettings {
    /// As users call it: `slurm`, `grid-engine`, ...
    pub kind: String,
    /// Slurm calls it a partition.
    pub queue: Option<String>,
    pub account: Option<String>,
    pub walltime: Option<Duration>,
    /// Nodes of one job; at least 1.
    pub nodes_per_job: u32,
    /// Processors of each node that are asked for.
    pub slots: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// The address of the Ray cluster, as Ray takes it; its kind alone has one.
    pub address: Option<String>,
    /// Gpus of each node of Ray: a number, or `auto`.
    pub gpus: Option<String>,
    /// Arguments of Parsl's class, or of Ray's actors, by name.
    pub options: serde_json::Map<String, Value>,
}

/// Why there is no such provider; trying again cannot help.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// One sentence.
    pub text: String,
    pub hint: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{}; {hint}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// See the module.
pub struct Batch {
    python: PathBuf,
    settings: BatchSettings,
    prefix: String,
    launch: Launch,
    share: Share,
    /// The dispatcher's folder, which logs go to.
    log_dir: PathBuf,
    helper: Option<Helper>,
    haste: Haste,
    calls: CallCount,
}

/// The Python process.
struct Helper {
    process: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
    n_calls: u64,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl BatchSettings {
    fn opening(&self) -> Value {
        json!({
            "protocol": PROTOCOL,
            "kind": self.kind,
            "queue": self.queue,
            "account": self.account,
            "walltime_s": self.walltime.map(|time| time.as_secs_f64().ceil() as u64),
            "nodes_per_job": self.nodes_per_job,
            "slots": self.slots,
            "memory_bytes": self.memory_bytes,
            "address": self.address,
            "gpus": self.gpus.as_ref().map(|gpus| gpus.parse::<u32>().map_or(json!(gpus), |n| json!(n))),
            "options": self.options,
        })
    }

    /// Holds the options against what Parsl's class takes. Gives what is wrong with them.
    pub fn check(&self, python: &Path) -> Result<Vec<Refusal>, Refusal> {
        let mut opening = self.opening();
        opening["check"] = json!(true);
        let folder = std::env::temp_dir();
        let mut helper = Helper::start(python, &folder, Stdio::null()).map_err(Refusal::plain)?;
        let answer = helper.exchange(&opening, OPEN_MAX, || false).map_err(Refusal::plain)?;
        let Some(all) = answer["complaints"].as_array() else { return Err(refusal_of(&answer)) };
        let text = |value: &Value| value.as_str().map(|text| line_of(text).to_string());
        Ok(all
            .iter()
            .map(|one| Refusal { text: text(&one[0]).unwrap_or_default(), hint: text(&one[1]) })
            .collect())
    }
}

impl Refusal {
    fn plain(text: String) -> Refusal {
        Refusal { text, hint: None }
    }
}

/// Whether a byte of a path means nothing but itself to a shell and to batch systems.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./=@+,~".contains(byte)
}

fn refusal_of(answer: &Value) -> Refusal {
    let text = |key: &str| answer[key].as_str().map(|text| line_of(text).to_string());
    match text("refused") {
        Some(refused) => Refusal { text: refused, hint: text("hint") },
        None => Refusal::plain("the Python process did not answer as it should".into()),
    }
}

/// The modules that this Python lacks of those that [`Batch`] needs for that kind, and how they are installed. Quick: nothing is
/// imported.
pub fn check_python(python: &Path, kind: &str) -> Result<(), Refusal> {
    const LOOK: &str =
        "import importlib.util as u, sys; print(*[m for m in sys.argv[1:] if u.find_spec(m) is None])";
    let (module, called, extra, needed, nodes) = match kind == RAY {
        true => ("ray", "Ray", "ray", "ray>=2.9", "nodes of a Ray cluster"),
        false => ("parsl", "Parsl", "batch", "parsl>=2025.1.13", "nodes of a batch system"),
    };
    let mut command = Command::new(python);
    command.args(["-c", LOOK, module, "eyas"]).current_dir("/").stdin(Stdio::null());
    let asked = command.output();
    let shown = shown_path(python);
    let done = asked.map_err(|e| Refusal {
        text: format!("{nodes} need Python, and {shown} cannot be run: {e}"),
        hint: Some("--python PATH names another one".into()),
    })?;
    let missing = String::from_utf8_lossy(&done.stdout).trim().to_string();
    if done.status.success() && missing.is_empty() {
        return Ok(());
    }
    let lacks = |module: &str| missing.split_whitespace().any(|name| name == module);
    let what = if lacks(module) { called } else { "the package eyas" };
    let pip = format!("{} -m pip install", python.display());
    // No package index has eyas.
    let install = match lacks("eyas") {
        true => format!(
            "{pip} 'WHEEL[{extra}]', where WHEEL is the wheel file of eyas; or --python names the Python of a clone, .venv/bin/python, \
             which then needs {called}"
        ),
        false => format!("{pip} '{needed}'"),
    };
    let text = format!("{nodes} need {what}, which the Python {shown} does not have");
    Err(Refusal { text, hint: Some(install) })
}

impl Helper {
    fn start(python: &Path, folder: &Path, log: Stdio) -> Result<Helper, String> {
        let mut command = Command::new(python);
        command.args(["-m", "eyas.provision"]).current_dir(folder);
        // A folder of the user's may hold a file that is called like a module of Python.
        command.env("PYTHONSAFEPATH", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // A ^C at the terminal is for us to handle; jobs are still to be ended then.
        command.process_group(0);
        let mut process =
            command.spawn().map_err(|e| format!("cannot run the Python {}: {e}", shown_path(python)))?;
        let stdin = process.stdin.take().expect("it is a pipe");
        let stdout = process.stdout.take().expect("it is a pipe");
        let (give, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if give.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Helper { process, stdin, answers, n_calls: 0 })
    }

    /// Gives a line and waits for the answer. `Err`: there is none, and this process is of no use any more.
    /// It is not waited for when `is_cut` says so.
    fn exchange(
        &mut self,
        line: &Value,
        within: Duration,
        is_cut: impl Fn() -> bool,
    ) -> Result<Value, String> {
        let sent = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
        let deadline = Instant::now() + within;
        let answer = loop {
            if sent.is_err() {
                break Err(RecvTimeoutError::Disconnected);
            }
            match self.answers.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) if is_cut() => {
                    return Err("the batch system did not answer, and nobody wanted to wait".into());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(text) => serde_json::from_slice(text.as_bytes()).map_err(|_| {
                format!("the Python process answered {}, which is no JSON", eyas_text::shown(&text))
            }),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the Python process did not answer within {} s", within.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.process.wait().map_or(String::new(), |status| format!(" by {status}"));
                Err(format!("the Python process that asks for blocks has ended{how}; see {LOG}"))
            }
        }
    }

    /// A call, with its result and how often the batch system was asked for it: the inner `Err` is the batch system's.
    fn call(
        &mut self,
        mut line: Value,
        within: Duration,
        is_cut: impl Fn() -> bool,
    ) -> Result<(Result<Value, String>, u64), String> {
        self.n_calls += 1;
        line["id"] = json!(self.n_calls);
        let mut answer = self.exchange(&line, within, is_cut)?;
        if answer["id"] != line["id"] {
            return Err("the Python process answered another question".into());
        }
        let n_asked = answer["calls"].as_u64().unwrap_or(1);
        let result = match answer["error"].as_str() {
            Some(error) => Err(line_of(error).to_string()),
            None => Ok(answer["ok"].take()),
        };
        Ok((result, n_asked))
    }
}

impl Batch {
    /// `cluster`: its id, which is in the names of its blocks. Nothing is started yet.
    pub fn new(
        cluster: &str,
        python: PathBuf,
        settings: BatchSettings,
        launch: Launch,
        share: Share,
        log_dir: PathBuf,
    ) -> Batch {
        Batch {
            python,
            settings,
            prefix: script::prefix(cluster),
            launch,
            share,
            calls: CallCount::of(&log_dir),
            log_dir,
            helper: None,
            haste: Haste::default(),
        }
    }

    /// Starts the Python process. [`Share::refresh`] has made the folder before.
    pub fn open(&mut self) -> Result<(), Refusal> {
        let folder = self.share.dir();
        // Parsl quotes no path, and neither do the lines that batch systems read in a job's script.
        if self.settings.kind != RAY && !folder.as_os_str().as_encoded_bytes().iter().all(is_plain) {
            let text = format!(
                "the folder {} cannot be used, as commands of batch systems take no path with a space or a special character",
                shown_path(folder)
            );
            let hint = "set XDG_STATE_HOME to another folder that nodes see under the same path".to_string();
            return Err(Refusal { text, hint: Some(hint) });
        }
        let log = self.log_dir.join(LOG);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(|e| Refusal::plain(format!("cannot write {}: {e}", shown_path(&log))))?;
        let mut helper =
            Helper::start(&self.python, self.share.dir(), file.into()).map_err(Refusal::plain)?;
        let mut opening = self.settings.opening();
        opening["folder"] = json!(self.share.dir());
        opening["book"] = json!(self.log_dir.join(BOOK));
        opening["program"] = json!(self.launch.exe);
        let haste = self.haste.clone();
        let answer = helper.exchange(&opening, OPEN_MAX, || haste.has_begun()).map_err(|why| {
            let words = last_line(&log).map_or(String::new(), |words| format!(": {words}"));
            Refusal::plain(format!("{why}{words}"))
        })?;
        if answer.get("ready").is_none() {
            return Err(refusal_of(&answer));
        }
        self.calls.add(Purpose::Other, answer["ready"]["calls"].as_u64().unwrap_or_default());
        self.helper = Some(helper);
        Ok(())
    }

    /// One call, with a new Python process where there is none. `Err`: one sentence.
    fn call(&mut self, line: Value, within: Duration) -> Result<Value, String> {
        if self.helper.is_none() {
            self.open().map_err(|refusal| refusal.to_string())?;
        }
        let helper = self.helper.as_mut().expect("it was just started");
        // A block that is to be ended is ended also when nobody wants to wait long.
        let is_cancel = line["call"] == "cancel";
        let haste = &self.haste;
        let is_cut = || match is_cancel {
            true => haste.is_older_than(CANCEL_IN_HASTE),
            false => haste.has_begun(),
        };
        let purpose = match line["call"].as_str() {
            Some("submit") => Purpose::Submit,
            Some("list") => Purpose::List,
            Some("cancel") => Purpose::Cancel,
            _ => Purpose::Other,
        };
        match helper.call(line, within, is_cut) {
            Ok((result, n_calls)) => {
                // A submission is one command. Slurm is asked with the first one what time it allows.
                let n_meant = if purpose == Purpose::Submit { n_calls.min(1) } else { n_calls };
                self.calls.add(purpose, n_meant);
                self.calls.add(Purpose::Other, n_calls - n_meant);
                result
            }
            Err(why) => {
                // It may have been on its way.
                self.calls.add(purpose, u64::from(purpose != Purpose::Other));
                self.helper = None;
                Err(why)
            }
        }
    }

    /// Like [`Self::call`], for what may be done twice: again where the process ended under it.
    fn call_again(&mut self, line: Value, within: Duration) -> Result<Value, String> {
        match self.call(line.clone(), within) {
            Err(why) if self.helper.is_none() && !self.haste.has_begun() => {
                eyas_text::say!("{why}; the Python process that asks for nodes is started again");
                self.call(line, within)
            }
            result => result,
        }
    }

    fn cancel_all(&mut self, blocks: &[(&str, &str)]) -> Result<(), String> {
        self.call_again(json!({"call": "cancel", "jobs": blocks}), CANCEL_MAX).map(drop)
    }

    /// Writes what each node of a block runs, and gives its path.
    fn write_script(&self, name: &str, n_nodes: u32) -> Result<PathBuf, String> {
        let text = match self.settings.kind == RAY {
            true => script::carried_text(&self.launch, name),
            false => script::text(&self.launch, &self.share, name, n_nodes > 1),
        };
        let path = self.share.script(name);
        let written = self.share.write(&format!("{name}.sh"), text.as_bytes(), 0o700);
        written.map_err(|e| format!("cannot write {}: {e}", shown_path(&path)))?;
        Ok(path)
    }

    /// What would be submitted for a block: the batch system's script, and the command that takes it.
    pub fn describe(&mut self, name: &str, n_nodes: u32) -> Result<(String, String), String> {
        let script = self.write_script(name, n_nodes)?;
        let call = json!({"call": "describe", "name": name, "script": script, "nodes": n_nodes});
        let answer = self.call_again(call, CALL_MAX)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        Ok((text(&answer[0]), text(&answer[1])))
    }

    /// The files of a block in the shared folder: ours, and those that Parsl made.
    fn files_of(&self, name: &str) -> Vec<PathBuf> {
        let begins = [format!("{name}."), format!("parsl.{name}."), format!("cmd_{name}.")];
        let entries = std::fs::read_dir(self.share.dir()).into_iter().flatten().flatten();
        let is_its = |entry: &std::fs::DirEntry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            begins.iter().any(|begin| file.starts_with(begin.as_str()))
        };
        let mut found: Vec<PathBuf> = entries.filter(is_its).map(|entry| entry.path()).collect();
        found.sort();
        found
    }
}

impl Source for Batch {
    fn submit(&mut self, name: &str, n_nodes: u32) -> Result<String, String> {
        let script = self.write_script(name, n_nodes)?;
        let call = json!({"call": "submit", "name": name, "script": script, "nodes": n_nodes});
        let answer = self.call(call, CALL_MAX)?;
        answer.as_str().map(str::to_string).ok_or_else(|| "the Python process gave no id".into())
    }

    fn list(&mut self) -> Result<Vec<Listed>, String> {
        let call = json!({"call": "list", "prefix": self.prefix});
        let answer = self.call_again(call, CALL_MAX)?;
        let all = answer.as_array().ok_or("the Python process gave no list")?;
        let line = |block: &Value| {
            let text = |key: &str| block[key].as_str().unwrap_or_default().to_string();
            let state = match block["state"].as_str() {
                Some("queued") => BlockState::Queued,
                Some("stuck") => BlockState::Stuck(text("why")),
                Some("ended") => BlockState::Ended(text("why")),
                _ => BlockState::Running,
            };
            Listed {
                id: text("id"),
                name: text("name"),
                state,
                n_nodes: block["nodes"].as_u64().map(|n| n as u32),
                why: text("why"),
            }
        };
        Ok(all.iter().map(line).collect())
    }

    fn cancel(&mut self, id: &str, name: &str) -> Result<(), String> {
        self.cancel_all(&[(id, name)])
    }

    /// Whoever swept the folder when this cluster was dead has removed the script, which a block in the queue still needs.
    fn adopt(&mut self, name: &str) {
        if !self.share.script(name).exists()
            && let Err(why) = self.write_script(name, self.settings.nodes_per_job)
        {
            eyas_text::say!("{why}");
        }
    }

    fn haste(&self) -> Haste {
        self.haste.clone()
    }

    fn calls(&self) -> Option<CallCount> {
        Some(self.calls.clone())
    }

    fn last_words(&mut self, name: &str) -> Option<String> {
        let files = self.files_of(name);
        // What the nodes printed says more than what the batch system put beside it.
        let ends = ["log", "stderr", "stdout"];
        let of = |end: &str| {
            files
                .iter()
                .filter(|path| path.extension().is_some_and(|e| e == end))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (path, words) = ends
            .iter()
            .flat_map(|end| of(end))
            .find_map(|path| last_line(&path).map(|words| (path, words)))?;
        // The folder of blocks goes when they do.
        let kept = self.log_dir.join(format!("{name}.log"));
        match std::fs::copy(&path, &kept) {
            Ok(_) => Some(format!("{words} (all of it: {})", kept.display())),
            Err(_) => Some(words),
        }
    }

    fn forget(&mut self, name: &str) {
        for path in self.files_of(name) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn end_all(&mut self, blocks: &[(Option<String>, String)], deadline: Instant) -> Vec<String> {
        let blocks: Vec<(&str, &str)> =
            blocks.iter().filter_map(|(id, name)| Some((id.as_deref()?, name.as_str()))).collect();
        // One call for all; where it fails, one block may be the reason, and the others are ended all the same.
        if blocks.is_empty() || self.cancel_all(&blocks).is_ok() {
            return vec![];
        }
        let mut left = vec![];
        for block in blocks {
            let mut result = self.cancel_all(&[block]);
            while result.is_err() && Instant::now() + AGAIN < deadline && !self.haste.has_begun() {
                self.haste.sleep(AGAIN);
                result = self.cancel_all(&[block]);
            }
            if let Err(why) = result {
                left.push(format!("{} ({}) could not be ended and is left: {why}", block.1, block.0));
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A pool whose Python is a line of the shell: `$n` is the number of the start, from 1.
    fn pool(dir: &Path, answers: &str) -> Batch {
        let python = dir.join("python");
        let count = dir.join("starts");
        let text = format!(
            "#!/bin/sh\necho x >> {0}; n=$(wc -l < {0})\nread first; echo '{{\"ready\": {{}}}}'\nread call\n{answers}\n",
            count.display()
        );
        std::fs::write(&python, text).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o700)).unwrap();
        let share = Share::of(dir, "c1");
        std::fs::create_dir_all(share.dir()).unwrap();
        let launch = Launch {
            exe: "/bin/eyas".into(),
            node_args: vec![],
            node_dir: None,
            scratch_age: Duration::ZERO,
            setup: vec![],
            walltime: None,
        };
        let settings = BatchSettings { kind: "slurm".into(), nodes_per_job: 1, ..BatchSettings::default() };
        Batch::new("c1", python, settings, launch, share, dir.into())
    }

    fn n_starts(dir: &Path) -> usize {
        std::fs::read_to_string(dir.join("starts")).unwrap().lines().count()
    }

    #[test]
    fn a_listing_is_given_again_to_a_new_process_and_a_submission_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let row = r#"{"id": "7", "name": "eyas-c1-1", "state": "queued", "why": "", "nodes": 2}"#;
        let answer = format!("[ $n = 1 ] && exit 3; echo '{{\"id\": 1, \"ok\": [{row}]}}'; read more");
        let mut batch = pool(dir.path(), &answer);
        let (id, name, why) = ("7".into(), "eyas-c1-1".into(), String::new());
        let line = Listed { id, name, state: BlockState::Queued, n_nodes: Some(2), why };
        assert_eq!(batch.list(), Ok(vec![line]));
        assert_eq!(n_starts(dir.path()), 2);
        let dir = tempfile::tempdir().unwrap();
        let mut batch = pool(dir.path(), "exit 3");
        let why = batch.submit("eyas-c1-1", 1).unwrap_err();
        assert!(why.contains("has ended by exit status: 3"), "{why}");
        assert_eq!(n_starts(dir.path()), 1, "its block may exist: the next listing shows it");
    }

    #[test]
    fn a_call_that_hangs_is_cut_off_in_haste() {
        let dir = tempfile::tempdir().unwrap();
        let mut batch = pool(dir.path(), "sleep 60");
        batch.open().unwrap();
        batch.haste().begin();
        let begun = Instant::now();
        assert!(batch.list().is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn an_error_of_the_batch_system_is_passed_on_and_the_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut batch = pool(dir.path(), r#"echo '{"id": 1, "error": "sbatch: no"}'; read more"#);
        assert_eq!(batch.submit("eyas-c1-1", 1), Err("sbatch: no".into()));
        assert!(batch.helper.is_some());
        let script = std::fs::read_to_string(batch.share.script("eyas-c1-1")).unwrap();
        assert!(script.contains("--name eyas-c1-1 "), "{script}");
        batch.forget("eyas-c1-1");
        assert_eq!(batch.files_of("eyas-c1-1"), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_folder_whose_path_batch_systems_do_not_take_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("my jobs");
        std::fs::create_dir(&odd).unwrap();
        let mut batch = pool(&odd, "exit 0");
        let refusal = batch.open().unwrap_err();
        assert!(refusal.text.contains("my jobs") && refusal.hint.unwrap().contains("XDG_STATE_HOME"));
        batch.settings.kind = RAY.into();
        batch.open().unwrap();
    }

    #[test]
    fn nodes_of_one_block_are_called_after_their_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let batch = pool(dir.path(), "exit 0");
        batch.write_script("eyas-c1-1", 3).unwrap();
        let script = std::fs::read_to_string(batch.share.script("eyas-c1-1")).unwrap();
        assert!(script.contains("eyas_node=eyas-c1-1.$("), "{script}");
        assert!(script.contains("--name $eyas_node --scratch "), "{script}");
    }

    #[test]
    fn what_a_node_of_ray_runs_names_no_file_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let mut batch = pool(dir.path(), "exit 0");
        batch.settings.kind = RAY.into();
        batch.launch.node_args = vec!["--cache".into(), "7".into()];
        batch.write_script("eyas-c1-1", 1).unwrap();
        let script = std::fs::read_to_string(batch.share.script("eyas-c1-1")).unwrap();
        assert!(
            !script.contains(&*dir.path().to_string_lossy()) && !script.contains("/bin/eyas"),
            "{script}"
        );
        let begin = "exec \"$EYAS_PROGRAM\" executor --join - --name eyas-c1-1 --scratch ";
        assert!(script.contains(begin) && script.ends_with(" --cache 7 \"$@\"\n"), "{script}");
    }
}
