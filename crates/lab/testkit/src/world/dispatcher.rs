//! The dispatcher process in a world: its messages, the ends that it reports, and how it is killed and
//! restarted.

use super::*;

impl World {
    pub(super) fn with_process(&mut self, act: impl FnOnce(&mut Process, Timestamp)) {
        let Some(mut process) = self.process.take() else { return };
        let now = self.clock_time(self.ahead_ns);
        assert!(now >= self.given, "the dispatcher's time goes back");
        self.given = now;
        // The process is not put back when something panics: the world ends then, and only its trace is used.
        act(&mut process, now);
        let News { ended, revived, accepted, durable, to_nodes, closed, .. } = process.settle(now);
        for (task, outcome, by) in ended {
            self.trace(format!("             ended {task:?} {outcome:?}"));
            self.on_ended(&process, task, outcome, by);
        }
        for (task, lost) in revived {
            self.trace(format!("             revived {task:?} for {lost:?}"));
            self.on_revived(&process, task, lost);
        }
        for run in accepted {
            for plan in &mut self.plans {
                if plan.state == PlanState::Submitted(run) {
                    plan.state = PlanState::Accepted(run);
                }
            }
        }
        for task in durable {
            if let Some(outputs) = self.done.get(&task) {
                self.promised.insert(task);
                for (location, digest) in outputs.iter().filter(|(l, _)| !CatalogLocation::of(l).stays()) {
                    let at_home = self.home.find(location).map(|c| c.digest);
                    assert_eq!(
                        at_home,
                        Some(*digest),
                        "promise 1: {task:?} is done, {location} is not at home"
                    );
                }
            }
        }
        let incarnation = process.incarnation();
        let wakes_at = process.wake_at().filter(|_| self.o.uneven);
        let n_records = process.journal().records.len();
        self.process = Some(process);
        // Like the live driver: as soon as it may be, never in the past.
        let true_time = |at: Timestamp| Timestamp(at.0.saturating_add_signed(-self.ahead_ns));
        if let Some(at) = wakes_at.map(|at| true_time(at).max(self.now.plus_ns(1)))
            && self.wakes_at != Some(at)
        {
            self.wakes_at = Some(at);
            self.after(at.since_ns(self.now), Ev::Wake);
        }
        for (life, n, batch) in to_nodes {
            let at = self.arrival(life, true);
            self.after(at, Ev::ToNode { n, life, batch });
        }
        for (life, n) in closed {
            let at = self.arrival(life, true);
            self.after(at, Ev::NodeCut { n, life });
        }
        if n_records > self.n_scheduled {
            self.n_scheduled = n_records;
            let takes = self.lasts(self.o.durable_ns_max);
            self.durable_at = self.durable_at.max(self.now.0 + takes).max(self.full_until.0);
            let n = self.n_scheduled;
            self.after(self.durable_at - self.now.0, Ev::Durable { incarnation, n });
        }
    }

    /// When a message of one connection arrives: no message overtakes another one of the same connection.
    pub(super) fn arrival(&mut self, life: u64, to_node: bool) -> u64 {
        let takes = self.lasts(self.o.message_ns_max);
        let at = self.arrives.entry((life, to_node)).or_default();
        *at = (*at).max(self.now.0 + takes);
        *at - self.now.0
    }

    pub(super) fn on_ended(
        &mut self,
        process: &Process,
        task: TaskId,
        outcome: Outcome,
        by: Option<(ExecutorId, AttemptNo)>,
    ) {
        if let Outcome::Failed(failure) = &outcome {
            self.check_failure(process, task, failure);
        }
        self.outcomes.insert(task, outcome.clone());
        self.run_of.insert(task, process.core().work().run_of(task));
        if outcome != Outcome::Done {
            return;
        }
        let (executor, attempt) = by.expect("promise 2: a task is done without an attempt");
        let n = process.node_of(executor).expect("the executor that ended a task is known");
        let witness = self.witnesses.get(&(n, task, attempt)).cloned();
        let witness = witness.unwrap_or_else(|| panic!("promise 2: {task:?} is done and never ran"));
        assert!(!witness.spoiled, "promise 2: {task:?} is done, its input was changed while it ran");
        let run = process.core().work().run_of(task);
        for (location, digest, in_place) in witness.seen {
            // Files that stay on the nodes may be made again, with other bytes.
            let stays = CatalogLocation::of(&location).stays();
            if in_place || stays || witness.incarnation != process.incarnation() {
                continue;
            }
            let first = *self.read.entry((run, location.clone())).or_insert((digest, task));
            assert_eq!(
                first.0, digest,
                "promise 2: {task:?} read other bytes of {location} than {:?}",
                first.1
            );
        }
        for (location, digest) in witness.outputs.iter().filter(|(l, _)| CatalogLocation::of(l).stays()) {
            self.made.entry(location.clone()).or_default().insert(*digest);
        }
        self.done.insert(task, witness.outputs);
        self.ended_by.insert(task, (n, attempt));
    }

    /// A done task runs again: allowed only if one of its files is gone that some task has yet to read, or cannot be reached.
    pub(super) fn on_revived(&mut self, process: &Process, task: TaskId, lost: ObjectId) {
        assert!(!self.o.loses_nothing(), "{task:?} runs again although nothing is ever lost");
        self.n_revivals += 1;
        self.done.remove(&task);
        self.outcomes.remove(&task);
        self.promised.remove(&task);
        let n_holders = process.core().work().catalog().n_holders(lost);
        let is_gone = n_holders == 0 || self.o.islands.is_some();
        assert!(is_gone, "{task:?} runs again for {lost:?}, which is there");
        let of_task = |r: &&Record| matches!(r, Record::TaskRevived { task: t } if *t == task);
        let n = process.journal().records.iter().filter(of_task).count();
        assert!(n <= 1 + REVIVALS_MAX as usize, "{task:?} has run again {n} times");
    }

    pub(super) fn on_start_dispatcher(&mut self) {
        let incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        self.start_provider_with_dispatcher();
        self.read.clear();
        self.ready_since.clear();
        self.idle_since.clear();
        self.ahead_ns = self.wrong_clock();
        if self.o.clocks && self.given > Timestamp(0) {
            let behind_ns = self.given.plus_ns(RENEWAL_NS).since_ns(self.clock_time(self.ahead_ns));
            self.ahead_ns += behind_ns as i64;
        }
        let now = self.clock_time(self.ahead_ns);
        let process = Process::start(&self.config, incarnation, now, &mut self.journal);
        for task in &self.promised {
            assert!(self.is_done(&process, *task), "promise 1: {task:?} was done before the restart");
        }
        let done: BTreeSet<TaskId> =
            self.done.keys().copied().filter(|task| self.is_done(&process, *task)).collect();
        self.done.retain(|task, _| done.contains(task));
        for plan in &mut self.plans {
            if let PlanState::Opened(_) = plan.state {
                plan.state = PlanState::Waits;
            }
            if let PlanState::Submitted(run) | PlanState::Accepted(run) = plan.state {
                let is_there = process.journal().is_committed(run);
                assert!(
                    is_there || matches!(plan.state, PlanState::Submitted(_)),
                    "promise 1: {run:?} is lost"
                );
                plan.state = if is_there { PlanState::Accepted(run) } else { PlanState::Waits };
            }
        }
        self.process = Some(process);
        self.with_process(|_, _| ());
    }

    pub(super) fn set_full(&mut self, is_full: bool) {
        match self.process {
            Some(_) => self.with_process(|process, now| process.set_full(now, is_full)),
            None => self.journal.is_full = is_full,
        }
    }

    pub(super) fn kill_dispatcher(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.replay_dispatcher(&process);
        let connections: Vec<(u64, usize)> = process.connections().collect();
        self.journal = process.into_journal();
        let kept = self.journal.n_durable as u64
            + self.upto((self.journal.records.len() - self.journal.n_durable) as u64);
        self.journal.records.truncate(kept as usize);
        self.journal.n_durable = kept as usize;
        self.n_scheduled = kept as usize;
        for (life, n) in connections {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::NodeCut { n, life });
        }
        let away = *[50 * MS, 3 * S, 20 * S].get(self.rng.below(3) as usize).expect("three of them");
        let away = self.upto(away);
        self.after(away, Ev::StartDispatcher);
    }
}
