//! Executors that end at a known time: at the walltime of a batch job, or a while after a notice.
//!
//! In: what an executor offers ([`Offer::walltime`]) and announces ([`Event::ExecutorLeaving`]). Out: how much time
//! placement counts on, and [`Action::DrainExecutor`] before the end.
//!
//! Rules, for executors with an end:
//!   1. *What is given.* A task whose longest expected time is known is given to an executor only if it fits
//!      before [`Ends::usable_until`]. A task of which nothing is known is given as to any other executor.
//!   2. *Too long for all.* A task that takes longer than any executor that is there and large enough has from its beginning is
//!      given to an executor that has most of its time left ([`FRESH_PART`]). That is its best chance, and the
//!      prediction may be wrong.
//!   3. *Drain.* From [`drain_before_ns`] before its end on, an executor gets nothing more. It gives back what has not begun,
//!      and other nodes copy the files that only it holds. Once nothing is left there, it may leave.
//!   4. *Weather.* A task that is cut off by an end is given out again, and nothing is counted against it, with one exception: a
//!      task that was cut off [`CUTS_MAX`] times although it had most of the executor's time needs more
//!      time than there is, and fails with a sentence that says so.
//!
//! Rule 1 needs no knowledge of single tasks in placement: [`Lasts`] and [`TimeLeft`] are steps of time, and tasks of one
//! step are one kind. Tasks that end long before the drain of any executor have no step at all, so a queue of short
//! tasks is as it would be without walltimes. Without an executor that has an end, nothing here is ever looked at.
//!
//! Not here: when a node is replaced ([`crate::provisioning`]), and who ends the executor's process.

use super::{Attempts, Dispatcher, ExecutorState, Executors, Intermediates, Moves, Schedule, Workload};
use crate::event::{Action, Walltime};
use crate::placement::{Lasts, TaskSize, TimeLeft};
use eyas_terms::{AttemptNo, ExecutorId, TaskId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A task that was cut off this many times although it had most of an executor's time fails.
pub(super) const CUTS_MAX: u32 = 2;
/// An executor that has this part of its time left counts as fresh: three quarters, as `(3, 4)`.
pub(super) const FRESH_PART: (u64, u64) = (3, 4);
/// A task that was cut off is expected to take at least this much longer than it had run: half as long again.
const LONGER_PART: (u64, u64) = (3, 2);
/// The shortest time between two looks at the executors' ends, and the longest.
const LOOK_NS_MIN: u64 = 10_000_000;
const LOOK_NS_MAX: u64 = 1_000_000_000;
/// Between two looks, at most this part of the time that is left goes by.
const LOOK_PART: u64 = 64;

/// How long before its end an executor stops what still runs there, so that its last words are heard. For
/// an executor whose time was `whole_ns` in all.
pub fn stop_before_ns(whole_ns: u64) -> u64 {
    (whole_ns / 20).min(5_000_000_000)
}

/// How long before its end an executor gets nothing more. For an executor whose time was `whole_ns` in all.
pub fn drain_before_ns(whole_ns: u64) -> u64 {
    (whole_ns / 8).min(60_000_000_000)
}

fn part(ns: u64, (of, parts): (u64, u64)) -> u64 {
    ns / parts * of
}

/// When and why an executor ends.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub at: Timestamp,
    /// The time from when the executor joined until its end.
    life_ns: u64,
    /// The walltime of its job.
    whole_ns: u64,
    /// Said by the executor before an end that no walltime foretold; `None`: it ends at its walltime.
    notice: Option<String>,
}

impl Ends {
    pub fn of(now: Timestamp, walltime: Walltime) -> Ends {
        let at = now.plus_ns(walltime.left_ns);
        Ends { at, life_ns: walltime.left_ns, whole_ns: walltime.whole_ns, notice: None }
    }

    /// A task has to have ended by then: the rest of the time is for bringing its outputs home.
    pub fn usable_until(&self) -> Timestamp {
        Timestamp(self.at.0.saturating_sub(2 * stop_before_ns(self.whole_ns)))
    }

    pub fn drains_from(&self) -> Timestamp {
        Timestamp(self.at.0.saturating_sub(drain_before_ns(self.whole_ns)))
    }

    /// A task that takes less than this ends well before the end, if it begins before the drain.
    fn never_matters_ns(&self) -> u64 {
        drain_before_ns(self.whole_ns).saturating_sub(2 * stop_before_ns(self.whole_ns)) / 2
    }

    /// The time that a fresh executor has at least.
    fn fresh_ns(&self) -> u64 {
        part(self.life_ns, FRESH_PART).saturating_sub(2 * stop_before_ns(self.whole_ns))
    }

    /// Whether an executor that was heard at `at` last was lost because of its end.
    fn has_come(&self, at: Timestamp) -> bool {
        self.notice.is_some() || at >= self.usable_until()
    }

    /// What is left for a task at `now`, less what may go by until the next look.
    fn left(&self, now: Timestamp) -> TimeLeft {
        let left_ns = self.usable_until().since_ns(now);
        TimeLeft::of_ns(left_ns.saturating_sub(2 * left_ns / LOOK_PART + LOOK_NS_MIN))
    }

    /// Why its executor drains, as a phrase after "because".
    fn why_drained(&self) -> String {
        match &self.notice {
            Some(notice) => notice.clone(),
            None => format!("its walltime of {} is about to end", duration(self.whole_ns)),
        }
    }

    /// Why it ends, as a phrase after "because".
    pub fn why(&self) -> String {
        match &self.notice {
            Some(notice) => notice.clone(),
            None => format!("its walltime of {} ended", duration(self.whole_ns)),
        }
    }
}

/// A time for people: `45 s`, `10 min`, `1.5 h`.
pub(super) fn duration(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    let (value, unit) = match s {
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s => (s / 3600.0, "h"),
    };
    let digits = usize::from(value < 10.0 && (value - value.round()).abs() >= 0.05);
    format!("{value:.digits$} {unit}")
}

/// What is known of all executors' ends.
#[derive(Default)]
pub(super) struct Walltimes {
    /// Executors with an end, which have not begun to drain.
    limited: BTreeSet<ExecutorId>,
    next_look: Timestamp,
    /// Tasks that take at most this long end in time wherever they begin.
    never_matters_ns: u64,
    /// By size: the longest time that a fresh executor has which is large enough. Forgotten
    /// when executors come and go.
    pub(super) fresh: BTreeMap<TaskSize, TimeLeft>,
    /// Stages whose queued tasks are to get their steps anew.
    stages: BTreeSet<u32>,
    all_stages: bool,
}

impl Walltimes {
    /// The executor drains, or is gone.
    pub fn forget(&mut self, executor: ExecutorId) {
        self.limited.remove(&executor);
    }

    /// Whether an idle executor has too little time for tasks that take `shortest_ns` at most. A fresh one has enough for any.
    pub(super) fn has_no_time(&self, e: &ExecutorState, shortest_ns: Option<u64>) -> bool {
        let (Some(ends), Some(ns)) = (&e.ends, shortest_ns) else { return false };
        let fits = ns <= self.never_matters_ns || e.left.is_enough_for(Lasts::of_ns(ns));
        e.is_idle_with_an_end() && e.left_ns < ends.fresh_ns() && !fits
    }
}

/// How a lost executor ended, as far as the tasks on it are concerned.
pub(super) enum Loss {
    /// Nobody knows why, so each of its tasks may be the cause.
    Unforeseen,
    /// Its time was over.
    Walltime { ends: Ends, at: Timestamp },
    /// It had announced that it leaves.
    Notice,
    /// It drained, as its walltime was about to end, and was lost before that. Nobody knows why, as with any other loss.
    Draining { ends: Ends },
}

impl Loss {
    /// How an executor ended that was lost at `now`.
    pub(super) fn of(now: Timestamp, lost: &ExecutorState) -> Loss {
        let at = lost.silent_since.unwrap_or(now);
        match &lost.ends {
            Some(ends) if ends.has_come(at) && ends.notice.is_some() => Loss::Notice,
            Some(ends) if ends.has_come(at) => Loss::Walltime { ends: ends.clone(), at },
            Some(ends) if at >= ends.drains_from() => Loss::Draining { ends: ends.clone() },
            _ => Loss::Unforeseen,
        }
    }

    /// Whether one of the executor's tasks may be the cause.
    pub fn is_suspicious(&self) -> bool {
        matches!(self, Loss::Unforeseen | Loss::Draining { .. })
    }

    /// The reason of the loss, where `reason` was given for it.
    pub fn reason(&self, reason: &str) -> String {
        match self {
            Loss::Draining { ends } => {
                format!(
                    "{reason}, while it drained before the end of its walltime of {}",
                    duration(ends.whole_ns)
                )
            }
            _ => reason.into(),
        }
    }
}

impl Executors {
    /// An executor with an end has come, or has come back.
    pub(super) fn note_ends(&mut self, executor: ExecutorId) {
        let limited = self.by_id.get(&executor).is_some_and(|e| e.ends.is_some() && !e.draining);
        if limited {
            self.walltimes.limited.insert(executor);
        }
        self.ends_changed();
    }

    /// Executors with ends came or went, so what fits where may differ.
    pub(super) fn ends_changed(&mut self) {
        if self.walltimes.limited.is_empty() && self.walltimes.fresh.is_empty() {
            return;
        }
        let ends = |id: &ExecutorId| self.by_id.get(id).and_then(|e| e.ends.as_ref());
        let never = self.walltimes.limited.iter().filter_map(ends).map(Ends::never_matters_ns).min();
        let never = never.unwrap_or(u64::MAX);
        let sizes: Vec<TaskSize> = self.walltimes.fresh.keys().copied().collect();
        let fresh: BTreeMap<_, _> = sizes.into_iter().map(|size| (size, self.longest_fresh(size))).collect();
        if (never, &fresh) != (self.walltimes.never_matters_ns, &self.walltimes.fresh) {
            self.walltimes.all_stages = true;
        }
        if self.walltimes.limited.is_empty() {
            self.walltimes.fresh.clear();
        } else {
            self.walltimes.fresh = fresh;
        }
        self.walltimes.never_matters_ns = never;
        self.walltimes.next_look = Timestamp::default();
    }

    /// The longest time that a fresh executor has which is large enough and takes tasks.
    fn longest_fresh(&self, size: TaskSize) -> TimeLeft {
        let is_large = |e: &&ExecutorState| self.resources.is_able(e, size) && !e.draining;
        let mut longest_ns = None;
        for e in self.by_id.values().filter(is_large) {
            match &e.ends {
                None => return TimeLeft::NO_END,
                Some(ends) => longest_ns = longest_ns.max(Some(ends.fresh_ns())),
            }
        }
        longest_ns.map_or(TimeLeft::NO_END, TimeLeft::of_ns)
    }

    /// When the next executor begins to drain.
    pub(super) fn next_drain(&self) -> Option<Timestamp> {
        let ends = |id: &ExecutorId| self.by_id.get(id).and_then(|e| e.ends.as_ref());
        self.walltimes.limited.iter().filter_map(ends).map(Ends::drains_from).min()
    }

    pub(super) fn check_walltimes(&self) {
        for (id, e) in &self.by_id {
            let limited = e.ends.is_some() && !e.draining;
            assert_eq!(self.walltimes.limited.contains(id), limited, "{id:?}");
        }
        assert!(self.walltimes.limited.iter().all(|id| self.by_id.contains_key(id)));
    }
}

impl Schedule {
    /// The step of a task's longest expected time, by rules 1 and 2.
    pub(super) fn lasts_of(&self, task: TaskId, stage: u32, size: TaskSize) -> Lasts {
        if self.executors.walltimes.limited.is_empty() {
            return Lasts::ANY;
        }
        let had_ns = self.attempts.histories.get(&task).map_or(0, |h| part(h.cut_ns, LONGER_PART));
        let ns = self.run_times.longest_ns(stage).unwrap_or(0).max(had_ns);
        if ns <= self.executors.walltimes.never_matters_ns {
            return Lasts::ANY;
        }
        let fresh = self
            .executors
            .walltimes
            .fresh
            .get(&size)
            .copied()
            .unwrap_or_else(|| self.executors.longest_fresh(size));
        let lasts = Lasts::of_ns(ns);
        fresh.longest().map_or(lasts, |longest| lasts.min(longest))
    }

    /// The same for a task that is about to be queued, remembering what was found out on the way.
    pub(super) fn step_of(&mut self, task: TaskId, stage: u32, size: TaskSize) -> Lasts {
        if !self.executors.walltimes.limited.is_empty() && !self.executors.walltimes.fresh.contains_key(&size)
        {
            let fresh = self.executors.longest_fresh(size);
            self.executors.walltimes.fresh.insert(size, fresh);
        }
        self.lasts_of(task, stage, size)
    }

    /// A task of a stage has ended, so how long its tasks take may be known better.
    pub(super) fn note_run_time(&mut self, stage: u32) {
        if !self.executors.walltimes.limited.is_empty() && self.run_times.has_other_step(stage) {
            self.executors.walltimes.stages.insert(stage);
            self.executors.walltimes.next_look = Timestamp::default();
        }
    }

    /// Looks at the executors that have an end, if that is due: what they have left, whether they drain, and which
    /// tasks still fit.
    pub(super) fn look_at_ends(
        &mut self,
        work: &mut Workload,
        intermediates: &Intermediates,
        moves: &mut Moves,
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        if now < self.executors.walltimes.next_look {
            return;
        }
        let mut next_ns = LOOK_NS_MAX;
        for executor in self.executors.walltimes.limited.clone() {
            let Some(e) = self.executors.by_id.get(&executor) else { continue };
            let Some(ends) = &e.ends else { continue };
            if now >= ends.drains_from() {
                let reason = ends.why_drained();
                self.drain(work, intermediates, moves, now, executor, reason, out);
                continue;
            }
            let part_ns = ends.usable_until().since_ns(now) / LOOK_PART;
            next_ns = next_ns.min(part_ns.max(LOOK_NS_MIN));
            next_ns = next_ns.min(ends.drains_from().since_ns(now));
            let left = ends.left(now);
            let left_ns = ends.usable_until().since_ns(now);
            if (left, left_ns / LOOK_NS_MAX) != (e.left, e.left_ns / LOOK_NS_MAX) {
                self.change_load(work, executor, |e| (e.left, e.left_ns) = (left, left_ns));
            }
        }
        self.executors.walltimes.next_look = now.plus_ns(next_ns);
        let all = std::mem::take(&mut self.executors.walltimes.all_stages);
        let stages = std::mem::take(&mut self.executors.walltimes.stages);
        if all || !stages.is_empty() {
            self.step_anew(work, now, |stage| all || stages.contains(&stage));
        }
    }

    /// Gives the queued tasks of some stages their steps anew.
    fn step_anew(&mut self, work: &mut Workload, now: Timestamp, of: impl Fn(u32) -> bool) {
        let mut again = vec![];
        for size in self.ready.queue.sizes() {
            for key in self.ready.queue.tasks_of_size(size) {
                let (array, i) = work.tasks.locate(key.task);
                if of(work.tasks.arrays[array.0 as usize].stage) {
                    again.push((key, array, i));
                }
            }
        }
        for (key, ..) in &again {
            self.leave_queue(work, *key);
        }
        for (key, array, i) in again {
            self.unfold(work, now, key, array, i);
        }
        self.run_times.stepped(of);
    }

    /// The executor ends in `within_ns`, and has said why.
    pub(super) fn on_executor_leaving(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        moves: &mut Moves,
        now: Timestamp,
        executor: ExecutorId,
        within_ns: u64,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        let Some(e) = self.executors.by_id.get_mut(&executor) else { return };
        let at = now.plus_ns(within_ns);
        if e.ends.as_ref().is_none_or(|ends| at < ends.at || ends.notice.is_none()) {
            let (life_ns, whole_ns) = (within_ns, within_ns);
            e.ends = Some(Ends { at, life_ns, whole_ns, notice: Some(reason.clone()) });
        }
        self.drain(work, intermediates, moves, now, executor, reason, out);
    }

    /// The executor gets nothing more, gives back what has not begun, and other nodes copy what only it holds.
    fn drain(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        moves: &mut Moves,
        now: Timestamp,
        executor: ExecutorId,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        self.executors.walltimes.limited.remove(&executor);
        let Some(e) = self.executors.by_id.get(&executor) else { return };
        let mut unbegun = vec![];
        for (&task, &attempt) in &e.assigned {
            let r = self.attempts.reserved.get_mut(&task).expect("an assigned task is reserved");
            if !r.landing && !r.cancelling && !std::mem::replace(&mut r.recalled, true) {
                unbegun.push(Action::RecallAttempt { executor, task, attempt });
            }
        }
        out.append(&mut unbegun);
        self.on_executor_draining(work, intermediates, moves, now, executor);
        out.push(Action::DrainExecutor { executor, reason });
    }

    /// The longest expected time of those ready tasks for which it is the shortest; `None` if no task is ready, or
    /// nothing is known of some ready task.
    pub(super) fn shortest_ready_ns(&self) -> Option<u64> {
        if self.ready.n_tasks == 0 || !self.executors.by_id.values().any(ExecutorState::is_idle_with_an_end) {
            return None;
        }
        self.run_times.shortest_ready_ns()
    }
}

impl Attempts {
    /// Counts that a task was on an executor whose time was over. Gives a sentence if the task needs more time
    /// than there is.
    pub(super) fn note_cut(
        &mut self,
        task: TaskId,
        attempt: AttemptNo,
        given_at: Timestamp,
        ends: &Ends,
        at: Timestamp,
    ) -> Option<String> {
        let had_ns = at.since_ns(given_at);
        let history = self.tried(task, attempt);
        history.cut_ns = history.cut_ns.max(had_ns);
        if ends.at.since_ns(given_at) < part(ends.life_ns, FRESH_PART) {
            return None;
        }
        history.n_cuts += 1;
        let (n, had) = (history.n_cuts, duration(history.cut_ns));
        let whole = duration(ends.whole_ns);
        (n >= CUTS_MAX).then(|| {
            format!("the task needs more than the walltime of {whole}: {n} nodes ended while it ran, which it had for up to {had}")
        })
    }
}

impl Dispatcher {
    /// A sentence for each executor that drains because it ends soon.
    pub fn ending(&self) -> impl Iterator<Item = String> {
        self.schedule.executors.by_id.values().filter(|e| e.draining && e.silent_since.is_none()).filter_map(
            |e| {
                let why = e.ends.as_ref()?.why_drained();
                Some(format!("node `{}` gets nothing more, because {why}", e.offer.name))
            },
        )
    }

    /// Whether tasks wait, and an idle executor has too little time left for each of them.
    pub fn is_short_of_time(&self, executor: ExecutorId) -> bool {
        self.schedule.executors.by_id.get(&executor).is_some_and(|e| {
            self.schedule.executors.walltimes.has_no_time(e, self.schedule.shortest_ready_ns())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn times_are_said_in_the_unit_that_fits() {
        let said = [
            (3.0, "3 s"),
            (0.25, "0.2 s"),
            (90.0, "90 s"),
            (600.0, "10 min"),
            (5400.0, "90 min"),
            (9000.0, "2.5 h"),
        ];
        for (s, words) in said {
            assert_eq!(duration((s * 1e9) as u64), words);
        }
    }
}
