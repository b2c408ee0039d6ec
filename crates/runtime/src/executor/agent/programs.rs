//! Programs: started on a slot, ended, and what their end means for the task.

use super::*;
use eyas_core::array::{STDERR_NAME, STDOUT_NAME};
use eyas_core::is_directory;
use eyas_text::shown;

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
        let mut unseen = None;
        for staged in staged {
            let Staged::Cached(object) = staged else { continue };
            let opened = self.book.digest(*object).map(|digest| self.store.open_object(&digest.0.into()));
            match opened {
                Some(Ok(_)) => {}
                // That it cannot be looked at says nothing about it.
                Some(Err(error)) if !error.is_damage() => unseen = Some(error),
                None | Some(Err(_)) if damaged.contains(object) => {}
                None | Some(Err(_)) => damaged.push(*object),
            }
        }
        if let (Some(error), true) = (unseen, damaged.is_empty()) {
            self.feed(ended_before_start(
                id,
                Failure { kind: FailureKind::Node, message: error.to_string() },
            ));
            return true;
        }
        let Some(first) = damaged.first() else { return false };
        let name = self.book.location(*first);
        let message = format!(
            "the cached copy of {name} was changed on this node's disk, and was dropped",
            name = shown(name)
        );
        for object in damaged {
            self.found_damaged(object);
        }
        self.feed(ended_before_start(id, Failure { kind: FailureKind::Node, message }));
        true
    }

    pub(super) fn start(&mut self, id: AttemptId, staged: &[Staged], private_inputs: bool) {
        // Watched first: a write after this look is told.
        if !private_inputs {
            self.watch_inputs(id, staged);
        }
        self.hear_writes();
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
                    disk: None,
                };
                return self.feed(NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
            }
            Command::Exec(argv) => runner::Program::Exec(argv.iter().map(|a| bytes(a)).collect()),
            Command::Shell(line) => runner::Program::Shell(bytes(line)),
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
            let is_whole = is_directory(location);
            let is_watched = context.watched.iter().any(|(input, _)| *input == i as u32);
            let shares = match staged {
                Staged::Cached(_) => is_watched,
                Staged::Private => true,
                // What lies at home must never be written through a link.
                Staged::InPlace(_) => false,
            };
            inputs.push(runner::Input {
                name: runner_name(name, location),
                source: runner::ByteString::from(source.as_path()),
                mode: if private_inputs || !shares && !is_whole {
                    runner::InputMode::Copy
                } else {
                    runner::InputMode::Link
                },
                executable: is_program(&context.spec, name),
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
            outputs: context.spec.outputs.iter().map(|(name, at)| runner_name(name, at)).collect(),
            walltime_ns: context.spec.walltime_ns,
            memory_bytes: context.spec.memory_bytes,
            capture: runner::CaptureLimits {
                head_bytes: self.settings.capture_head_bytes,
                tail_bytes: self.settings.capture_tail_bytes,
            },
            keep_sandbox: false,
            tee: [STDOUT_NAME, STDERR_NAME].map(|name| named_output(&context.spec, name)),
        };
        let slot = self.slots.run(spec.clone());
        let context = self.attempts.get_mut(&id).expect("just seen");
        context.slot = Some(slot);
        context.run_spec = Some(spec);
        context.written_before_bytes = self.written.bytes();
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
            runner::SlotReport::Printed { key, printed } => self.on_looked(key, printed),
        }
    }

    /// The dispatcher wants to know what an attempt has printed so far.
    pub(super) fn look(&mut self, ask: u64, id: AttemptId) {
        let at = self.attempts.get(&id).and_then(|context| Some((context.slot?, context.key)));
        match at {
            Some((slot, key)) => {
                self.looks.entry(key).or_default().push(ask);
                self.slots.look(slot, key);
            }
            None => self.answer_look(ask, id, None),
        }
    }

    fn on_looked(&mut self, key: u64, printed: Option<Box<(runner::Captured, runner::Captured)>>) {
        // One answer for each question, in their order.
        let Some(asks) = self.looks.get_mut(&key) else { return };
        let ask = asks.remove(0);
        if asks.is_empty() {
            self.looks.remove(&key);
        }
        let id = self.by_key.get(&key).copied().unwrap_or_default();
        self.answer_look(ask, id, printed);
    }

    fn answer_look(
        &mut self,
        ask: u64,
        (task, attempt): AttemptId,
        printed: Option<Box<(runner::Captured, runner::Captured)>>,
    ) {
        let has_begun = printed.is_some();
        let (stdout, stderr) = printed.map_or_else(Default::default, |streams| *streams);
        let printed = Printed { task, attempt, stdout: captured(stdout), stderr: captured(stderr) };
        self.link.say(FromExecutor::Looked { ask, has_begun, printed: Box::new(printed) });
    }

    /// Asks to be told of writes to the cached objects that will be linked for this attempt.
    fn watch_inputs(&mut self, id: AttemptId, staged: &[Staged]) {
        let (Some(watch), Some(context)) = (&mut self.watch, self.attempts.get_mut(&id)) else { return };
        for (i, ((name, location), staged)) in context.spec.inputs.iter().zip(staged).enumerate() {
            let Staged::Cached(object) = staged else { continue };
            // A program is copied, as it needs another mode, and a directory is made anew.
            if is_program(&context.spec, name) || is_directory(location) {
                continue;
            }
            // Where it does not work this input is copied, too.
            if let Some(digest) = self.book.digest(*object)
                && let Ok(watched) = watch.begin(digest, &self.store.path_of(&digest.0.into()))
            {
                context.watched.push((i as u32, watched));
            }
        }
    }

    /// Takes in who wrote to cached objects. What all processes did that have been waited for is among it.
    pub(super) fn hear_writes(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        for (digest, written) in watch.read() {
            match written {
                Written::Yes => self.store.condemn(&digest.0.into()),
                Written::Perhaps => self.store.doubt(&digest.0.into()),
                Written::No => {}
            }
        }
    }

    pub(super) fn on_ended(&mut self, index: usize, report: runner::RunReport) {
        self.slots.ended(index, report.key);
        self.written.ended(index, report.written_bytes);
        self.hear_writes();
        let context = self.by_key.get(&report.key).and_then(|id| self.attempts.get(id));
        let (Some(watch), Some(context)) = (&self.watch, context) else { return self.take_end(report) };
        let doubted: Vec<(Digest, Watched)> = context
            .watched
            .iter()
            .filter(|(_, watched)| watch.written(*watched) == Written::Perhaps)
            .filter_map(|(i, watched)| Some((self.book.digest(context.inputs[*i as usize])?, *watched)))
            .collect();
        if doubted.is_empty() {
            return self.take_end(report);
        }
        // The bytes may be right all the same, as when a tool opens what it only reads for writing, too.
        let (store, inputs, halt) = (self.store.clone(), self.inputs.clone(), self.halt.clone());
        tokio::task::spawn_blocking(move || {
            let is_whole = |digest: &Digest| !halt.is_stopped() && store.verify(&digest.0.into()).is_ok();
            let whole = doubted.into_iter().filter(|(digest, _)| is_whole(digest)).map(|(_, w)| w).collect();
            let _ = inputs.send(Input::Looked { report: Box::new(report), whole });
        });
    }

    /// A program has ended, and what it did to its inputs is known.
    pub(super) fn take_end(&mut self, report: runner::RunReport) {
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
        let disk = disk_of(&report, context.written_before_bytes);
        for (state, (name, location)) in report.outputs.iter().zip(&context.spec.outputs) {
            if result.is_err() {
                break;
            }
            let what = match state {
                runner::OutputState::File { .. } | runner::OutputState::Directory { .. } => continue,
                runner::OutputState::Missing => "is not there".to_string(),
                runner::OutputState::NotAFile { what } => format!("is {what}"),
            };
            let message = format!(
                "the program ended well, but its declared output {name} (for {location}) {what}",
                name = shown(name),
                location = shown(location)
            );
            result = Err(Failure { kind: FailureKind::OutputMissing, message });
        }
        let outputs = report.outputs.iter().map(|state| match state {
            runner::OutputState::File { size_bytes, .. }
            | runner::OutputState::Directory { size_bytes, .. } => Some(*size_bytes),
            _ => None,
        });
        let outputs = outputs.collect();
        context.output_states = report.outputs;
        let inputs_damaged = self.inputs_damaged(id);
        let mut inputs_modified = report.inputs_modified;
        inputs_modified.extend(&inputs_damaged);
        if let (Some(watch), Some(context)) = (&self.watch, self.attempts.get(&id)) {
            let was_written = |(_, watched): &&(u32, Watched)| watch.written(*watched) != Written::No;
            inputs_modified.extend(context.watched.iter().filter(was_written).map(|(i, _)| *i));
        }
        inputs_modified.sort_unstable();
        inputs_modified.dedup();
        // That a later attempt printed nothing has to be known where an earlier one printed something.
        if report.stdout.total_bytes + report.stderr.total_bytes > 0 || attempt.0 > 1 {
            let printed =
                Printed { task, attempt, stdout: captured(report.stdout), stderr: captured(report.stderr) };
            if self.link.is_welcomed() {
                self.link.say(FromExecutor::Printed(Box::new(printed)));
            } else {
                if self.printed.len() == PRINTED_KEPT {
                    self.printed.pop_front();
                }
                self.printed.push_back(printed);
            }
        }
        let cpu_ns = report.usage.cpu_user_ns + report.usage.cpu_system_ns;
        self.counters.program_cpu_ns += cpu_ns;
        let unix = |t: u64| {
            if t == 0 { Timestamp(0) } else { self.dispatchers_clock.at(clock::of_monotonic(t)) }
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
            disk,
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
        let used: Vec<PathBuf> = self.attempts.values().filter_map(|c| c.sandbox.clone()).collect();
        let keys = self.slots.replace(index, used)?;
        self.n_slot_lives += 1;
        self.written.slot_gone(index);
        self.attempts.values_mut().for_each(|context| context.written_before_bytes = 0);
        self.hear_writes();
        for key in keys {
            for ask in self.looks.remove(&key).unwrap_or_default() {
                self.answer_look(ask, AttemptId::default(), None);
            }
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
        if let (Some(slot), Some(sandbox)) = (context.slot, &context.sandbox) {
            self.slots.release(slot, context.key, sandbox);
        }
        if let Some(watch) = &mut self.watch {
            context.watched.iter().for_each(|(_, watched)| watch.end(*watched));
        }
        for i in 0..context.inputs.len() as u32 {
            let path = self.private_path(id, i);
            if path.exists() {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// What the slot process calls it: it has directories by their names, as we have by their locations.
fn runner_name(name: &str, location: &str) -> runner::ByteString {
    match is_directory(location) {
        true => bytes(&format!("{name}/")),
        false => bytes(name),
    }
}

/// The output of that name, if the task declares one.
fn named_output(spec: &eyas_core::array::TaskSpec, name: &str) -> Option<runner::ByteString> {
    spec.outputs.iter().any(|(output, _)| output == name).then(|| bytes(name))
}

/// Whether the task's command starts this input.
fn is_program(spec: &eyas_core::array::TaskSpec, name: &str) -> bool {
    match &spec.command {
        Command::Exec(argv) if argv.is_empty() => false,
        Command::Exec(argv) => {
            argv[0].strip_prefix("./").unwrap_or(&argv[0]) == name && argv[0].contains('/')
        }
        Command::Shell(line) => line.contains(&format!("./{name}")),
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
        disk: None,
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

/// What there is to know of the disk of a sandbox whose program failed, or could not be started.
fn disk_of(report: &runner::RunReport, written_before_bytes: u64) -> Option<DiskSeen> {
    use runner::{ExitKind, SetupKind};
    if matches!(report.exit, ExitKind::SetupFailed { kind: SetupKind::NoSpace, .. }) {
        return Some(DiskSeen { free_bytes: 0, is_full: true, wrote_bytes: None, is_said: true });
    }
    // Where that is not known, nothing follows from what was written.
    let wrote_bytes = report.all_written_bytes.zip(report.free_bytes);
    Some(DiskSeen {
        free_bytes: report.free_bytes?,
        is_full: report.disk_was_full,
        wrote_bytes: wrote_bytes.map(|(all, _)| all.saturating_sub(written_before_bytes)),
        is_said: is_said_full(report),
    })
}

/// Whether a program's own words, or its end, say that there was no room. A page of a file that is mapped and has no room on the
/// disk is a bus error.
fn is_said_full(report: &runner::RunReport) -> bool {
    const SAYINGS: [&[u8]; 3] = [b"no space left on device", b"disk quota exceeded", b"errno 28"];
    let says = |text: &[u8]| {
        let text = text.to_ascii_lowercase();
        SAYINGS.iter().any(|saying| text.windows(saying.len()).any(|words| words == *saying))
    };
    let streams = [&report.stderr, &report.stdout];
    matches!(report.exit, runner::ExitKind::Signaled { signal: libc::SIGBUS, .. })
        || streams.into_iter().any(|stream| says(&stream.head.0) || says(&stream.tail.0))
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
            "the program wrote to its input {}; the cached copy was dropped and the task is repeated with a private copy",
            shown(&context.spec.inputs[0].0)
        );
    }
}
