//! Programs: handed to a slot, taken back from it, and ended.
//!
//! What a slot is told of a program is `launch`, what the end of a program means for its task is `failure`.

use super::failure::{
    disk_of, drop_part, ended, of_container, of_ended_slots, of_ending_node, of_lack_of_memory, result_of,
};
use super::input::{Input, Start};
use super::launch::Launch;
use super::undeclared::why_not_watched;
use super::{Agent, AttemptId, ExecutorError, printing, runner};
use crate::clock;
use crate::executor::home_io::by_programs;
use crate::executor::made::why_not_for_users;
use crate::executor::system_users::{let_in, may_read};
use eyas_core::event::*;
use eyas_runner::Account;
use eyas_session::executor::Verdict;
use eyas_session::executor::attempts::SIGNAL_PATIENCE_NS;
use eyas_terms::array::TaskSpec;
use eyas_terms::location::is_made_tree;
use eyas_terms::{Failure, FailureKind, MadeLocation, RUN_FILE, Timestamp};
use eyas_text::shown;
use eyas_wire::users::Principal;
use std::time::{Duration, Instant};

/// How long a program may wait behind another one while a slot is idle.
const STUCK_PATIENCE: Duration = Duration::from_millis(100);

/// A program that ran on so many slot processes when these were ended by a signal is what ends them.
const SLOTS_LOST_MAX: u32 = 5;

impl Agent {
    /// The inputs of an attempt are here, and a slot is free. Cached bytes that are in doubt are read through first, on a
    /// thread of their own.
    pub(super) fn start(
        &mut self,
        id: AttemptId,
        staged: Vec<Staged>,
        has_private_inputs: bool,
        gpus: Vec<u32>,
    ) {
        let attempt = self.attempts.find_mut(id).expect("an attempt that starts has been assigned");
        let start = Start { id, key: attempt.key, staged, has_private_inputs, gpus };
        match (&attempt.account, &attempt.principal) {
            (Some(Err(why)), _) => {
                let failure = Failure { kind: FailureKind::Node, message: why.clone() };
                self.node.fail_unstarted(id, failure)
            }
            (Some(Ok(_)), _) if attempt.spec.dynamic => {
                let message = "a task that adds tasks needs the cluster's key, and no program gets that on a node with \
                               --system-users"
                    .to_string();
                self.node.fail_unstarted(id, Failure { kind: FailureKind::NotStarted, message })
            }
            (Some(Ok(account)), Principal::User(user)) if uses_home(&attempt.spec) => {
                let (inputs, spec, user) = (self.inputs.clone(), attempt.spec.clone(), user.clone());
                let account = account.clone();
                tokio::task::spawn_blocking(move || {
                    let refusal = why_not_allowed(&user, &account, &spec);
                    let _ = inputs.send(Input::Allowed { start: Box::new(start), refusal });
                });
            }
            _ => self.start_allowed(start),
        }
    }

    /// It is known whether the user of an attempt may have its inputs. `refusal`: why not, as a sentence.
    pub(super) fn start_if_allowed(&mut self, start: Start, refusal: Option<String>) {
        if self.attempts.find(start.id).is_none_or(|attempt| attempt.key != start.key) {
            return;
        }
        match refusal {
            Some(message) if !self.is_killed(start.id) => {
                self.node.fail_unstarted(start.id, Failure { kind: FailureKind::InputUnavailable, message })
            }
            _ if self.is_killed(start.id) => self.end_before_begun(start.id),
            _ => self.start_allowed(start),
        }
    }

    fn start_allowed(&mut self, start: Start) {
        let Start { id, key, staged, has_private_inputs, gpus } = start;
        let attempt = self.attempts.find_mut(id).expect("an attempt that starts has been assigned");
        // The watch begins before the look at the inputs, so that a write after the look is noticed.
        if !has_private_inputs {
            self.writes.begin(attempt, &staged, &self.objects, self.node.session.book());
        }
        let halt = attempt.halt.clone();
        self.writes.hear(&self.objects.store);
        let start = Start { id, key, staged, has_private_inputs, gpus };
        match self.objects.doubted(&start.staged, self.node.book()) {
            doubted if doubted.is_empty() => self.launch(&start),
            doubted => self.objects.read_before(doubted, start, halt),
        }
    }

    /// The doubted inputs of an attempt were read through. What was found wrong is known as damage now.
    pub(super) fn start_after_look(&mut self, start: &Start) {
        if self.attempts.find(start.id).is_none_or(|attempt| attempt.key != start.key) {
            return;
        }
        if self.is_killed(start.id) {
            return self.end_before_begun(start.id);
        }
        self.writes.hear(&self.objects.store);
        self.launch(start);
    }

    /// Whether the attempt is to end, or is gone.
    fn is_killed(&self, id: AttemptId) -> bool {
        self.node.session.attempts().find(id).is_none_or(|attempt| attempt.is_killed)
    }

    fn end_before_begun(&mut self, id: AttemptId) {
        let message = "the program was ended on this node before it began".to_string();
        self.node.fail_unstarted(id, Failure { kind: FailureKind::Node, message });
    }

    fn launch(&mut self, start: &Start) {
        let Start { id, staged, has_private_inputs, gpus, .. } = start;
        let (id, has_private_inputs) = (*id, *has_private_inputs);
        if self.objects.refuse_damaged(id, staged, &mut self.node) {
            return;
        }
        let attempt = self.attempts.find_mut(id).expect("an attempt that starts has been assigned");
        if attempt.trees.is_empty() {
            attempt.trees = self.objects.hold_trees(staged, self.node.session.book());
        }
        if let Err(error) = self.let_into_trees(id, staged) {
            let message =
                format!("cannot let the system user of the program into a tree that it needs: {error}");
            return self.node.fail_unstarted(id, Failure { kind: FailureKind::Node, message });
        }
        let attempt = self.attempts.find_mut(id).expect("an attempt that starts has been assigned");
        if !has_private_inputs {
            self.writes.link(attempt, staged, &self.objects, self.node.session.book());
        }
        let attempt = self.attempts.find(id).expect("an attempt that starts has been assigned");
        let watched = match attempt.spec.watched_at() {
            None => Ok(None),
            Some(_) => match why_not_watched(&attempt.spec, attempt.account().is_some()) {
                Some(why) => Err(Failure { kind: FailureKind::NotStarted, message: why }),
                None => self.supervisors.folder().map(|folder| Some(folder.to_owned())).map_err(|error| {
                    let message = format!("programs cannot be watched on this node: {error}");
                    Failure { kind: FailureKind::Node, message }
                }),
            },
        };
        let watched = match watched {
            Ok(watched) => watched,
            Err(failure) => return self.node.fail_unstarted(id, failure),
        };
        let known = self.node.session.attempts().find(id).expect("the session knows all attempts");
        let launch = Launch {
            id,
            attempt,
            staged,
            has_private_inputs,
            gpus: (!self.gpu_names.is_empty()).then(|| {
                let names = gpus.iter().filter_map(|gpu| self.gpu_names.get(*gpu as usize));
                // On a node with gpus, a program that needs none is told that there are none for it.
                names.cloned().collect::<Vec<_>>().join(",")
            }),
            objects: &self.objects,
            book: self.node.session.book(),
            run: known.run,
            private: &self.private,
            join: self.connection.join(),
            container_command: self.container_command.as_deref(),
            line_shell: self.line_shell,
            settings: self.connection.settings(),
            watched,
        };
        let Some(spec) = launch.find_spec() else {
            return self.node.end_at_once(id, attempt.spec.outputs.len());
        };
        if spec.watched.is_some() {
            self.supervisors.expect(&spec);
        }
        let attempt = self.attempts.find_mut(id).expect("an attempt that starts has been assigned");
        attempt.slot = Some(self.slots.run(spec.clone(), self.node.session.core().takes_parts()));
        attempt.run_spec = Some(spec);
        attempt.written_before_bytes = self.space.written_bytes();
    }

    /// Lets the system user of an attempt's program, if it has one of its own, into the trees among its inputs.
    fn let_into_trees(&self, id: AttemptId, staged: &[Staged]) -> std::io::Result<()> {
        let Some(attempt) = self.attempts.find(id) else { return Ok(()) };
        let Some(account) = attempt.account() else { return Ok(()) };
        for (i, ((_, location), staged)) in (0..).zip(attempt.spec.inputs.iter().zip(staged)) {
            let path = match staged {
                _ if !is_made_tree(location) => continue,
                Staged::Cached(object) => self.node.book().digest(*object).map(|d| self.objects.path_of(d)),
                Staged::Private => Some(self.private.path(id, i)),
                Staged::InPlace(_) | Staged::Unneeded => continue,
            };
            path.map_or(Ok(()), |path| let_in(&path, account))?;
        }
        Ok(())
    }

    /// Ends the program of an attempt, if it was handed to a slot.
    pub(super) fn kill(&mut self, id: AttemptId) {
        if self.give_found_up(id) {
            return;
        }
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        let ended = self.printing.let_go(id, &mut self.node.session);
        if !ended.is_empty() {
            return self.end_printed(ended);
        }
        match attempt.slot {
            Some(slot) => {
                // A program that was taken back from its slot must not begin on another one.
                attempt.run_spec = None;
                self.slots.cancel(slot, attempt.key);
            }
            // Its inputs are still being read through.
            None => attempt.halt.stop(),
        }
    }

    /// Takes a program back that waits behind another one while a slot is idle, if there is one.
    pub(super) fn withdraw_stuck(&mut self) {
        if let Some((slot, key)) = self.slots.find_stuck(STUCK_PATIENCE)
            && let Some(id) = self.attempts.find_id(key)
            && self.node.session.withdraw(id)
        {
            self.slots.cancel(slot, key);
        }
    }

    pub(super) fn on_slot(&mut self, index: usize, report: runner::SlotReport) {
        match report {
            runner::SlotReport::Ready { .. } => {}
            runner::SlotReport::Refused { message } => {
                self.stop = Some(format!("a slot cannot work: {message}"));
            }
            runner::SlotReport::Started { key, .. } => {
                let now = self.node.now();
                if let Some(attempt) = self.attempts.find_by_key_mut(key) {
                    attempt.started = Some(now);
                }
            }
            runner::SlotReport::Ended(report) => self.on_ended(index, *report),
            runner::SlotReport::Printed { key, printed } => {
                self.printing.on_answer(key, printed, &self.attempts, &mut self.node.session)
            }
        }
    }

    /// A program has ended. Where it may have written to an input, that input is read through before the end counts.
    fn on_ended(&mut self, index: usize, report: runner::RunReport) {
        self.slots.ended(index, report.key);
        if let Some(path) = &report.printed_at {
            self.printing.take_file(report.key, path.as_path());
        }
        self.space.program_ended(index, report.written_bytes);
        self.writes.hear(&self.objects.store);
        let doubted = self.attempts.find_id(report.key).map_or(vec![], |id| {
            let (known, book) = (self.node.session.attempts().find(id), self.node.book());
            let attempt = self.attempts.find(id).zip(known);
            attempt.map_or(vec![], |(attempt, known)| self.writes.doubted(attempt, &known.inputs, book))
        });
        match doubted.is_empty() {
            true => self.take_end(report, false),
            false => self.objects.read_through(doubted, report, self.halt.clone()),
        }
    }

    /// A program has ended, and what it did to its inputs is known. `is_held`: it was ended by a signal, and was held back to see
    /// whether that was meant for all processes of this node.
    pub(super) fn take_end(&mut self, mut report: runner::RunReport, is_held: bool) {
        let Some(id) = self.attempts.find_id(report.key) else { return };
        let how = ended(&report.exit);
        let node_ends = self.leaving.has_begun();
        let verdict = self.node.session.judge(id, how, is_held, node_ends);
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        match (verdict, &attempt.run_spec) {
            (Verdict::Nothing, _) => return,
            (Verdict::Hold, _) => {
                let inputs = self.inputs.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_nanos(SIGNAL_PATIENCE_NS)).await;
                    let _ = inputs.send(Input::EndHeld { report: Box::new(report) });
                });
                return;
            }
            (Verdict::RunAgain, Some(spec)) => {
                let takes_parts = self.node.session.core().takes_parts();
                attempt.slot = Some(self.slots.run(spec.clone(), takes_parts));
                return;
            }
            (Verdict::RunAgain | Verdict::Counts | Verdict::CountsAsNodes, _) => {}
        }
        let result = result_of(&report, &attempt.spec);
        if result.is_err() {
            drop_part(&mut report.stderr);
        }
        let result = match verdict {
            Verdict::CountsAsNodes => result.map_err(of_ending_node),
            _ => result,
        };
        let name = &self.connection.about().name;
        let result = result.map_err(|failure| of_container(failure, &report, name));
        let result = result.map_err(|failure| match how.is_kill() {
            true if self.memory_kills.is_recent(Instant::now()) => of_lack_of_memory(failure, name),
            _ => failure,
        });
        let disk = disk_of(&report, attempt.written_before_bytes);
        let outputs = report.outputs.iter().map(size_of_output).collect();
        attempt.program_ended(&mut report);
        let known = self.node.session.attempts().find(id);
        let inputs_damaged =
            known.map_or(vec![], |known| self.objects.damaged_inputs(&known.inputs, self.node.book()));
        let mut inputs_modified = std::mem::take(&mut report.inputs_modified);
        inputs_modified.extend(&inputs_damaged);
        inputs_modified.extend(self.writes.written(attempt));
        inputs_modified.sort_unstable();
        inputs_modified.dedup();
        self.printing.ended(id, &mut report, &mut self.node.session);
        let cpu_ns = report.usage.cpu_user_ns + report.usage.cpu_system_ns;
        self.counters.program_cpu_ns += cpu_ns;
        let at = |monotonic_ns: u64| match monotonic_ns {
            0 => Timestamp(0),
            _ => self.node.clock.at(clock::of_monotonic(monotonic_ns)),
        };
        let exit = Exit {
            result,
            started: at(report.times.spawned_ns),
            exited: at(report.times.exited_ns),
            cpu_ns,
            rss_bytes_max: report.usage.process_rss_max_bytes.max(report.usage.tree_rss_max_bytes),
            outputs,
            inputs_modified,
            inputs_damaged,
            disk,
            left: report.new_files.map(|new| Box::new(left_of(&new))),
            found: vec![],
        };
        if let Some(program) = self.supervisors.take(report.key) {
            return self.watched_ended(id, program, Box::new(exit));
        }
        let ended = match node_ends {
            true => vec![(id, Box::new(exit))],
            false => self.printing.hold(id, report.key, exit, &mut self.node.session),
        };
        self.end_printed(ended);
    }

    /// All that is kept of what these programs printed is kept, and their ends count from here on.
    pub(super) fn end_printed(&mut self, ended: Vec<printing::HeldEnd>) {
        for ((task, attempt), exit) in ended {
            self.node.feed(NodeEvent::ProgramEnded { task, attempt, exit: *exit });
        }
    }

    /// A slot process ended by itself. Another one takes its place. Where a signal ended it, its programs are run once more, and the one
    /// that ran so many times as [`SLOTS_LOST_MAX`] says has failed; otherwise this node cannot run them.
    pub(super) fn on_slot_gone(&mut self, index: usize) -> Result<(), ExecutorError> {
        let (keys, signal) = self.slots.replace(index, self.attempts.sandboxes())?;
        self.space.slot_replaced(index);
        self.attempts.forget_written();
        self.writes.hear(&self.objects.store);
        let signal = signal.filter(|_| !self.leaving.has_begun());
        for (n, key) in keys.into_iter().enumerate() {
            self.printing.slot_gone(key, &mut self.node.session);
            let Some(id) = self.attempts.find_id(key) else { continue };
            let Some(attempt) = self.attempts.find_mut(id) else { continue };
            // The first one ran, and the others waited behind it.
            attempt.n_slots_lost += u32::from(n == 0);
            attempt.started = None;
            let again = attempt.run_spec.clone().filter(|spec| spec.watched.is_none());
            let failure = match (again, signal) {
                (Some(spec), Some(_)) if attempt.n_slots_lost < SLOTS_LOST_MAX => {
                    attempt.slot = Some(self.slots.run(spec, self.node.session.core().takes_parts()));
                    continue;
                }
                (Some(_), Some(signal)) => of_ended_slots(signal, SLOTS_LOST_MAX),
                _ => {
                    let message = "the process that ran it on this node ended".to_string();
                    Failure { kind: FailureKind::Node, message }
                }
            };
            self.node.fail_unstarted(id, failure);
        }
        Ok(())
    }

    /// Nothing of an attempt is needed any more.
    pub(super) fn clean_up(&mut self, id: AttemptId) {
        let Some(attempt) = self.attempts.remove(id) else { return };
        self.printing.forget(attempt.key);
        if let (Some(slot), Some(sandbox)) = (attempt.slot, attempt.sandbox()) {
            self.slots.release(slot, attempt.key, sandbox);
        }
        self.writes.end(&attempt);
        self.objects.release_trees(&attempt.trees);
        drop(self.supervisors.take(attempt.key));
        self.private.remove_all(id, attempt.n_private.max(attempt.spec.inputs.len() as u32));
    }
}

/// Whether files at home are among the inputs or outputs.
fn uses_home(task: &TaskSpec) -> bool {
    task.inputs.iter().chain(&task.outputs).any(|(_, location)| !location.starts_with(RUN_FILE))
}

/// Why the task of a user may not have its inputs or outputs, as a sentence; `None` if it may. What is in the cache was read with the
/// rights of somebody, and not of everybody.
fn why_not_allowed(user: &str, account: &Account, task: &TaskSpec) -> Option<String> {
    let of_task =
        task.inputs.iter().map(|(_, at)| (at, true)).chain(task.outputs.iter().map(|(_, at)| (at, false)));
    for (text, is_input) in of_task {
        if let Some(why) = why_not_for_users(text) {
            return Some(why);
        }
        let text = MadeLocation::of(text).map_or(&**text, |made| made.packed);
        let Ok(location) = eyas_storage::Location::parse(text, std::path::Path::new("/")) else { continue };
        if text.starts_with(RUN_FILE) {
            continue;
        }
        if location.is_by_programs_of_machine() {
            return Some(by_programs(text));
        }
        if let (true, Some(path)) = (is_input, location.path())
            && let Err(error) = may_read(account, path)
        {
            return Some(format!(
                "the user {user} may not read {text} on this node, as its system user {name} with the id {id}: {error}",
                user = shown(user),
                text = shown(text),
                name = shown(&account.name.to_string()),
                id = account.uid
            ));
        }
    }
    None
}

fn size_of_output(state: &runner::OutputState) -> Option<u64> {
    match state {
        runner::OutputState::File { size_bytes, .. } | runner::OutputState::Directory { size_bytes, .. } => {
            Some(*size_bytes)
        }
        _ => None,
    }
}

fn left_of(new: &runner::NewFiles) -> LeftFiles {
    let names = new.names.iter().map(|name| name.to_string()).collect();
    LeftFiles { n_files: new.n_files, n_tasks: 1, names }
}
