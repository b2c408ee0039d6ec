//! Programs: started on a slot, ended, and what their end means for the task.

use super::*;

/// Printed texts kept for a dispatcher that is away; the oldest go first.
const PRINTED_KEPT: usize = 1024;
/// Variables that a program gets which may add tasks to its run: the join file, and the run's number.
pub(super) const JOIN_VARIABLE: &str = "EYAS_JOIN";
pub(super) const RUN_VARIABLE: &str = "EYAS_RUN";

impl Agent {
    pub(super) fn private_path(&self, (task, attempt): AttemptId, input: u32) -> PathBuf {
        self.dir.join("private").join(format!("{task}-{attempt}-{input}"))
    }

    /// Drops what was damaged since it was cached, and says so for the attempt that needed it. It is not
    /// the task's fault, so the attempt is repeated.
    pub(super) fn refuse_damaged(&mut self, id: AttemptId, staged: &[Staged]) -> bool {
        let mut damaged = vec![];
        for staged in staged {
            let is_there = |digest: Digest| self.store.open_object(&digest.0.into()).is_ok();
            if let Staged::Cached(object) = staged
                && !damaged.contains(object)
                && !self.book.digest(*object).is_some_and(is_there)
            {
                damaged.push(*object);
            }
        }
        let Some(first) = damaged.first() else { return false };
        let name = self.book.location(*first);
        let message = format!("the cached copy of `{name}` was changed on this node's disk, and was dropped");
        for object in damaged {
            self.found_damaged(object);
        }
        self.feed(ended_before_start(id, Failure { kind: FailureKind::Node, message }));
        true
    }

    pub(super) fn start(&mut self, id: AttemptId, staged: &[Staged], private_inputs: bool) {
        if self.refuse_damaged(id, staged) {
            return;
        }
        let context = &self.attempts[&id];
        let program = match &context.spec.command {
            // Nothing to run: the task is its inputs and outputs. Benchmarks use it.
            Command::Exec(argv) if argv.is_empty() => {
                let now = self.dispatcher_now();
                let n = context.outputs.len();
                let exit = Exit {
                    result: Ok(()),
                    started: now,
                    exited: now,
                    cpu_ns: 0,
                    rss_bytes_max: 0,
                    outputs: vec![None; n],
                    inputs_modified: vec![],
                    inputs_damaged: vec![],
                };
                return self.feed(NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
            }
            Command::Exec(argv) => runner::Program::Exec(argv.iter().map(|a| bytes(a)).collect()),
            Command::Shell(line) => runner::Program::Shell(bytes(line)),
        };
        let starts = |name: &str| match &context.spec.command {
            Command::Exec(argv) => {
                argv[0].strip_prefix("./").unwrap_or(&argv[0]) == name && argv[0].contains('/')
            }
            Command::Shell(line) => line.contains(&format!("./{name}")),
        };
        let mut inputs = vec![];
        for (i, ((name, location), staged)) in context.spec.inputs.iter().zip(staged).enumerate() {
            let source = match staged {
                Staged::Cached(object) => match self.book.digest(*object) {
                    Some(digest) => self.store.path_of(&digest.0.into()),
                    None => PathBuf::new(),
                },
                Staged::Private => self.private_path(id, i as u32),
                Staged::InPlace(_) => PathBuf::from(location),
            };
            let in_place = matches!(staged, Staged::InPlace(_));
            inputs.push(runner::Input {
                name: bytes(name),
                source: runner::ByteString::from(source.as_path()),
                // What lies at home must never be written through a link.
                mode: if private_inputs || in_place {
                    runner::InputMode::Copy
                } else {
                    runner::InputMode::Link
                },
                executable: starts(name),
            });
        }
        let mut env: Vec<_> = vec![
            (bytes("EYAS_TASK"), bytes(&context.spec.id)),
            (bytes("EYAS_ATTEMPT"), bytes(&id.1.to_string())),
        ];
        if context.spec.dynamic {
            env.push((bytes(JOIN_VARIABLE), runner::ByteString::from(self.options.join.as_path())));
            env.push((bytes(RUN_VARIABLE), bytes(&context.run.to_string())));
        }
        env.extend(context.spec.env.iter().map(|(k, v)| (bytes(k), bytes(v))));
        let spec = runner::RunSpec {
            key: context.key,
            program,
            env,
            inputs,
            outputs: context.spec.outputs.iter().map(|(name, _)| bytes(name)).collect(),
            walltime_ns: context.spec.walltime_ns,
            memory_bytes: context.spec.memory_bytes,
            capture: runner::CaptureLimits {
                head_bytes: self.settings.capture_head_bytes,
                tail_bytes: self.settings.capture_tail_bytes,
            },
            keep_sandbox: false,
        };
        let slot = self.slots.run(spec.clone());
        let context = self.attempts.get_mut(&id).expect("just seen");
        context.slot = Some(slot);
        context.run_spec = Some(spec);
    }

    pub(super) fn on_slot(&mut self, index: usize, report: runner::SlotReport) {
        match report {
            runner::SlotReport::Ready { .. } => {}
            runner::SlotReport::Refused { message } => {
                self.stop = Some(format!("a slot cannot work: {message}"));
            }
            runner::SlotReport::Started { key, .. } => {
                let now = self.dispatcher_now();
                if let Some(context) = self.by_key.get(&key).and_then(|id| self.attempts.get_mut(id)) {
                    context.started = Some(now);
                }
            }
            runner::SlotReport::Ended(report) => self.on_ended(index, *report),
        }
    }

    pub(super) fn on_ended(&mut self, index: usize, report: runner::RunReport) {
        self.slots.ended(index, report.key);
        let Some(&id) = self.by_key.get(&report.key) else { return };
        let (task, attempt) = id;
        let Some(context) = self.attempts.get_mut(&id) else { return };
        if std::mem::take(&mut context.withdrawn)
            && report.exit == runner::ExitKind::Cancelled
            && let Some(spec) = context.run_spec.clone()
        {
            context.slot = Some(self.slots.run(spec));
            return;
        }
        context.run_spec = None;
        context.started = None;
        context.sandbox = report.sandbox.as_ref().map(|s| s.as_path().to_path_buf());
        let mut result = failure_of(&report, context);
        for (state, (name, location)) in report.outputs.iter().zip(&context.spec.outputs) {
            if result.is_err() {
                break;
            }
            let what = match state {
                runner::OutputState::File { .. } => continue,
                runner::OutputState::Missing => "is not there".to_string(),
                runner::OutputState::NotAFile { what } => format!("is {what}"),
            };
            let message =
                format!("the program ended well, but its declared output `{name}` (for `{location}`) {what}");
            result = Err(Failure { kind: FailureKind::OutputMissing, message });
        }
        let outputs = report.outputs.iter().map(|state| match state {
            runner::OutputState::File { size_bytes, .. } => Some(*size_bytes),
            _ => None,
        });
        let outputs = outputs.collect();
        context.output_states = report.outputs;
        let inputs_damaged = self.inputs_damaged(id);
        let mut inputs_modified = report.inputs_modified;
        inputs_modified.extend(&inputs_damaged);
        if report.stdout.total_bytes + report.stderr.total_bytes > 0 {
            let printed =
                Printed { task, attempt, stdout: captured(report.stdout), stderr: captured(report.stderr) };
            match self.link.as_mut().filter(|l| l.welcomed) {
                Some(link) => link.out.push(FromExecutor::Printed(Box::new(printed))),
                None => {
                    if self.printed.len() == PRINTED_KEPT {
                        self.printed.pop_front();
                    }
                    self.printed.push_back(printed);
                }
            }
        }
        let cpu_ns = report.usage.cpu_user_ns + report.usage.cpu_system_ns;
        self.counters.program_cpu_ns += cpu_ns;
        let unix = |t: u64| {
            if t == 0 { Timestamp(0) } else { self.by_dispatcher(t + report.times.realtime_base_ns) }
        };
        let exit = Exit {
            result,
            started: unix(report.times.spawned_ns),
            exited: unix(report.times.exited_ns),
            cpu_ns,
            rss_bytes_max: report.usage.process_rss_max_bytes.max(report.usage.tree_rss_max_bytes),
            outputs,
            inputs_modified,
            inputs_damaged,
        };
        self.feed(NodeEvent::ProgramEnded { task, attempt, exit });
    }

    /// Inputs whose cached copy somebody has written to, as the cache's seal shows. The slot process notices
    /// only a change of the very file that it linked, while the program ran.
    pub(super) fn inputs_damaged(&self, id: AttemptId) -> Vec<u32> {
        let mut damaged = vec![];
        for (i, object) in self.attempts[&id].inputs.iter().enumerate() {
            let i = i as u32;
            if let Some(digest) = self.book.digest(*object)
                && self.store.modified(&digest.0.into()).unwrap_or(false)
            {
                damaged.push(i);
            }
        }
        damaged
    }

    /// A slot process ended of itself: what it had is repeated elsewhere, a new one takes its place.
    pub(super) fn on_slot_gone(&mut self, index: usize) -> Result<(), ExecutorError> {
        for key in self.slots.replace(index)? {
            let Some(&(task, attempt)) = self.by_key.get(&key) else { continue };
            let message = "the process that ran it on this node ended".to_string();
            let failure = Failure { kind: FailureKind::Node, message };
            self.feed(ended_before_start((task, attempt), failure));
        }
        Ok(())
    }

    pub(super) fn clean_up(&mut self, id: AttemptId) {
        let Some(context) = self.attempts.remove(&id) else { return };
        self.by_key.remove(&context.key);
        if let (Some(slot), Some(_)) = (context.slot, &context.sandbox) {
            self.slots.release(slot, context.key);
        }
        for i in 0..context.inputs.len() as u32 {
            let path = self.private_path(id, i);
            if path.exists() {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The end of an attempt whose program did not run, or of which nothing more is known.
pub(super) fn ended_before_start((task, attempt): AttemptId, failure: Failure) -> NodeEvent {
    let exit = Exit {
        result: Err(failure),
        started: Timestamp(0),
        exited: Timestamp(0),
        cpu_ns: 0,
        rss_bytes_max: 0,
        outputs: vec![],
        inputs_modified: vec![],
        inputs_damaged: vec![],
    };
    NodeEvent::ProgramEnded { task, attempt, exit }
}

/// Processor time of another process of ours, without its children.
pub(super) fn process_cpu_ns(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks * 10_000_000
}

pub(super) fn captured(c: runner::Captured) -> Captured {
    Captured { head: c.head.0, tail: c.tail.0, total_bytes: c.total_bytes }
}

/// What the program's end means for the task.
pub(super) fn failure_of(report: &runner::RunReport, context: &Context) -> Result<(), Failure> {
    use runner::{ExitKind, NotStartedKind, SetupKind};
    let with_last_words = |text: String| {
        let last = last_line(&report.stderr).or_else(|| last_line(&report.stdout));
        match last {
            Some(line) => format!("{text}; its last words: {line}"),
            None => text,
        }
    };
    let (kind, message) = match &report.exit {
        ExitKind::Exited(0) => return Ok(()),
        ExitKind::Exited(code) => {
            (FailureKind::ExitCode(*code), with_last_words(format!("the program ended with status {code}")))
        }
        ExitKind::Signaled { signal, core } => {
            let core = if *core { ", core dumped" } else { "" };
            let text = format!("the program was ended by signal {signal} ({}{core})", signal_name(*signal));
            (FailureKind::Signal(*signal), with_last_words(text))
        }
        ExitKind::OverWalltime => {
            let limit = context.spec.walltime_ns.unwrap_or(0) as f64 / 1e9;
            (
                FailureKind::Walltime,
                format!("the program ran longer than its walltime of {limit} s and was ended"),
            )
        }
        ExitKind::OverMemory { peak_bytes } => {
            let limit = context.spec.memory_bytes.unwrap_or(0);
            let text = format!(
                "the program used {} of memory, more than its limit of {}, and was ended",
                mebibytes(*peak_bytes),
                mebibytes(limit)
            );
            (FailureKind::Memory, text)
        }
        // Nobody asked through the state machine, which would have marked it cancelled.
        ExitKind::Cancelled => (FailureKind::Node, "the program was ended on this node".to_string()),
        ExitKind::NotStarted { kind: NotStartedKind::NoResources, message } => {
            (FailureKind::Node, message.clone())
        }
        ExitKind::NotStarted { message, .. } => (FailureKind::NotStarted, message.clone()),
        ExitKind::SetupFailed { kind: SetupKind::BadName, message } => {
            (FailureKind::NotStarted, message.clone())
        }
        ExitKind::SetupFailed { message, .. } => (FailureKind::Node, message.clone()),
    };
    Err(Failure { kind, message })
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

pub(super) fn last_line(captured: &runner::Captured) -> Option<String> {
    let kept = if captured.tail.0.is_empty() { &captured.head.0 } else { &captured.tail.0 };
    let text = String::from_utf8_lossy(kept);
    let line = text.lines().rev().find(|l| !l.trim().is_empty())?.trim();
    let short: String = line.chars().take(200).collect();
    Some(if short.len() < line.len() { format!("{short}…") } else { short })
}

pub(super) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGXCPU => "SIGXCPU",
        _ => "see kill -l",
    }
}

/// Names the things that the state machine only knows by number.
pub(super) fn explain_failure(failure: &mut Failure, context: &Context) {
    if failure.kind == FailureKind::InputModified && context.spec.inputs.len() == 1 {
        failure.message = format!(
            "the program wrote to its input `{}`; the cached copy was dropped and the task is repeated with a private copy",
            context.spec.inputs[0].0
        );
    }
}
