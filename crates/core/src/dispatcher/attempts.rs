//! How attempts and tasks end: well, tried again, failed, cancelled; and a run with its last task.
//!
//! A failure is the task's own or the weather's (its node's, or the way to its inputs); each kind has its bound. A task
//! whose outputs still travel home is *landing*: its slot is free, and it is done when they are there.

use super::*;

/// How long a node gets nothing after an attempt failed through its fault; doubled for each further one.
pub(super) const SICK_NS: u64 = 1_000_000_000;
pub(super) const SICK_NS_MAX: u64 = 60_000_000_000;
/// Failures kept per run for people to look at.
pub(super) const FAILURES_KEPT: usize = 20;

impl Dispatcher {
    pub(super) fn on_attempt_ended(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        report: Arc<AttemptReport>,
        out: &mut Vec<Action>,
    ) {
        let (task, attempt) = (report.task, report.attempt);
        let Some(r) = self.reserved.get(&task).filter(|r| r.executor == executor && r.attempt == attempt)
        else {
            return self.on_replica_ended(now, executor, &report, out);
        };
        if r.landing {
            return; // told twice after a reconnect
        }
        let (cpus, memory_bytes, cancelling, suspect) = (r.cpus, r.memory_bytes, r.cancelling, r.suspect);
        let run = self.run_of(task);
        let run_ns = report.times.exited.since_ns(report.times.started);
        let ran = report.times.started.0 > 0;
        let lands = report.outcome == Outcome::Done && r.lands;
        if ran && report.outcome == Outcome::Done {
            let (array, _) = self.locate(task);
            self.run_times.ran(self.arrays[array.0 as usize].stage, run_ns);
        }
        self.queue.ended(&self.catalog, task);
        self.change_load(executor, |e| {
            e.last_ended = now;
            e.cpus_assigned -= cpus;
            e.memory_assigned -= memory_bytes;
            if !lands {
                e.assigned.remove(&task);
            }
            if ran {
                e.run_ns_mean = Some(e.run_ns_mean.map_or(run_ns, |m| m - m / 8 + run_ns / 8));
            }
            match &report.outcome {
                Outcome::Failed(Failure { kind: FailureKind::Node | FailureKind::CacheFull, .. }) => {
                    let wait_ns = (SICK_NS << e.n_node_failures.min(6)).min(SICK_NS_MAX);
                    e.n_node_failures += 1;
                    e.sick_until = Some(now.plus_ns(wait_ns));
                }
                Outcome::Done => e.n_node_failures = 0,
                _ => {}
            }
        });
        self.queue.learnt(&self.catalog, executor, &report.inputs);
        self.learn_links(&report.inputs);
        let state = self.runs.get_mut(&run).expect("a reserved task has a run");
        for input in &report.inputs {
            match input.outcome {
                CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace => {
                    state.local_bytes += input.size_bytes
                }
                CacheOutcome::RemoteHit { .. } => state.peer_bytes += input.size_bytes,
                CacheOutcome::Miss | CacheOutcome::Direct => state.home_bytes += input.size_bytes,
            }
        }
        if report.outcome == Outcome::Done && !suspect {
            // From now on the run is held to these bytes.
            for input in &report.inputs {
                self.raise_checked_run(input.object, run);
            }
        }
        if report.outcome == Outcome::Done {
            let outputs = self.reserved[&task].outputs.clone();
            for made in &report.outputs {
                let Some(object) = outputs.get(made.output as usize) else { continue };
                self.on_made(executor, run, *object, made.digest, made.size_bytes, out);
                if self.is_intermediate(*object) {
                    self.add_replica(executor, *object);
                }
            }
        }
        if lands {
            self.reserved.get_mut(&task).expect("seen above").landing = true;
            self.run_mut(run).n_landing += 1;
            return;
        }
        self.release(task);
        self.finish_attempt(now, task, attempt, report.outcome.clone(), cancelling, suspect, out);
    }

    pub(super) fn on_outputs_home(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        result: Result<(), Failure>,
        out: &mut Vec<Action>,
    ) {
        let matches = |r: &&Reserved| r.executor == executor && r.attempt == attempt && r.landing;
        if self.reserved.get(&task).filter(matches).is_none() {
            return;
        }
        let r = self.release(task);
        if let Some(e) = self.executors.get_mut(&executor) {
            e.assigned.remove(&task);
            e.last_ended = now;
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        };
        self.finish_attempt(now, task, attempt, outcome, r.cancelling, r.suspect, out);
    }

    /// The attempt is over and nobody has the task: it ends, or it is queued again.
    fn finish_attempt(
        &mut self,
        now: Timestamp,
        task: TaskId,
        attempt: AttemptNo,
        outcome: Outcome,
        cancelling: bool,
        suspect: bool,
        out: &mut Vec<Action>,
    ) {
        let outcome = match outcome {
            Outcome::Done if suspect => {
                let message = "an input changed while this run was reading it".into();
                Outcome::Failed(Failure { kind: FailureKind::InputChanged, message })
            }
            outcome => outcome,
        };
        let outcome = match outcome {
            Outcome::Done => Outcome::Done,
            _ if cancelling => Outcome::Cancelled,
            // Somebody else's wish: an earlier dispatcher process ended a second try at this task.
            Outcome::Cancelled => {
                self.tried(task, attempt);
                return self.requeue(now, task);
            }
            Outcome::Failed(failure) => {
                let (array, _) = self.locate(task);
                let retries = self.arrays[array.0 as usize].array.template.retries;
                let weather_max = self.config.weather_max;
                let history = self.tried(task, attempt);
                history.private_inputs |= failure.kind == FailureKind::InputModified;
                let again = if failure.kind.is_weather() || suspect {
                    history.n_weather += 1;
                    history.n_weather <= weather_max
                } else {
                    history.n_own_failures += 1;
                    !failure.kind.is_final() && history.n_own_failures <= retries
                };
                let n_weather = history.n_weather;
                if again && failure.kind == FailureKind::InputLost {
                    self.ask_owners(task);
                }
                if again && failure.kind == FailureKind::InputLost && n_weather > 1 {
                    return self.rest(now, task, n_weather);
                }
                if again {
                    return self.requeue(now, task);
                }
                Outcome::Failed(failure)
            }
        };
        self.end_task(now, task, outcome, out);
    }

    pub(super) fn on_cancel(
        &mut self,
        now: Timestamp,
        run: RunId,
        task: Option<TaskId>,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| r.started) else { return };
        state.cancelled |= task.is_none();
        let state = &self.runs[&run];
        let tasks: Vec<TaskId> = match task {
            Some(task) if task.0 < self.next_task && self.run_of(task) == run => vec![task],
            Some(_) => return,
            None => {
                let arrays = state.arrays.iter().map(|id| &self.arrays[id.0 as usize]);
                arrays.flat_map(|a| (a.base.0..a.base.0 + u64::from(a.array.n_tasks)).map(TaskId)).collect()
            }
        };
        for task in tasks {
            if self.end_of(task) != End::Not {
                continue;
            }
            if let Some(r) = self.reserved.get_mut(&task) {
                // What is landing lands, but is not tried again if it does not.
                if !std::mem::replace(&mut r.cancelling, true) && !r.landing {
                    out.push(Action::CancelAttempt { executor: r.executor, task, attempt: r.attempt });
                }
                continue;
            }
            if self.waiting.remove(&task).is_some() {
                self.run_mut(run).n_waiting -= 1;
            } else {
                self.take_ready(task);
            }
            self.end_task(now, task, Outcome::Cancelled, out);
        }
    }

    /// Ends a task that is nowhere any more, and with it those that wait for it in vain.
    pub(super) fn end_task(&mut self, now: Timestamp, task: TaskId, outcome: Outcome, out: &mut Vec<Action>) {
        // A list, not recursion: chains of tasks may be long.
        let (mut next, mut ends) = (Some((task, outcome)), VecDeque::new());
        while let Some((task, outcome)) = next {
            let run = self.run_of(task);
            let (array, i) = self.locate(task);
            self.arrays[array.0 as usize].ends.set(i, End::of(&outcome));
            self.count_end(run, task, &outcome);
            self.histories.remove(&task);
            if !self.arrays[array.0 as usize].array.template.outputs.is_empty() && !self.is_remembered(task) {
                self.forget_maker(task);
            }
            self.forget_gather(task);
            let made = self.files_made(task);
            if outcome == Outcome::Done {
                self.spread_made(now, task, &made);
            }
            self.ended_with_intermediates(task, &made, out);
            self.release_imports(task, out);
            self.touch_exports_of(task);
            out.push(Action::EndTask { task, outcome: outcome.clone() });
            ends.extend(self.end_promises_of(task));
            for subscriber in self.subscribers.remove(&task).unwrap_or_default() {
                if outcome == Outcome::Done {
                    self.consider_gather(now, subscriber);
                }
                let Some(n_missing) = self.waiting.get_mut(&subscriber) else { continue };
                if outcome == Outcome::Done {
                    *n_missing -= 1;
                    if *n_missing > 0 {
                        continue;
                    }
                }
                self.waiting.remove(&subscriber);
                let run = self.run_of(subscriber);
                self.run_mut(run).n_waiting -= 1;
                if outcome == Outcome::Done {
                    self.requeue(now, subscriber);
                } else if outcome == Outcome::Cancelled {
                    // Whoever ends a task ends what needs it.
                    ends.push_back((subscriber, Outcome::Cancelled));
                } else {
                    let message = self.maker_failed(task, false);
                    let failure = Failure { kind: FailureKind::InputUnavailable, message };
                    ends.push_back((subscriber, Outcome::Failed(failure)));
                }
            }
            self.check_run_end(now, run, out);
            next = ends.pop_front();
        }
    }

    pub(super) fn count_end(&mut self, run: RunId, task: TaskId, outcome: &Outcome) {
        let state = self.run_mut(run);
        match outcome {
            Outcome::Done => state.n_done += 1,
            Outcome::Cancelled => state.n_cancelled += 1,
            Outcome::Failed(failure) => {
                state.n_failed += 1;
                state.failures.push_back((task, failure.clone()));
                if state.failures.len() > FAILURES_KEPT {
                    state.failures.pop_front();
                }
            }
        }
    }

    pub(super) fn check_run_end(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let state = self.run_mut(run);
        let n_ended = state.n_done + state.n_failed + state.n_cancelled;
        let is_whole = state.committed && state.additions.n_open == 0;
        if is_whole && state.ended.is_none() && n_ended == state.n_tasks {
            state.ended = Some(now);
            self.forget_writers(run);
            self.forget_patterns(run);
            self.forget_replication(run);
            out.push(Action::EndRun { run });
        }
    }
}
