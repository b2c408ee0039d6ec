//! The promises that are checked when a dispatcher comes back, and in the end.

use super::dispatchers::{Member, replay_dispatcher};
use super::plans::{Kind, Plan, PlanState};
use super::{S, Summary, World};
use crate::node::Logged;
use crate::process::{Process, sentences};
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::executor::Executor;
use eyas_terms::array::{TaskArray, TaskSpec};
use eyas_terms::*;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

impl World {
    /// A process of member `m` has read its journal back.
    pub(super) fn check_restarted(&self, m: usize, process: &Process) {
        let is_in_doubt = !process.in_doubt().is_empty();
        let core = process.core();
        for plan in self.plans.iter().filter(|plan| plan.kind == Kind::Good) {
            let PlanState::Accepted(run) = plan.state else { continue };
            // Another member forgets because the first one has.
            if process.journal().is_forgotten(run) && (m == 0 || self.is_forgotten(run)) {
                continue;
            }
            assert!(core.work().find_run(run).is_some(), "promise 1: member {m} has lost {run:?}");
            if m == 0 {
                assert!(core.is_accepted(run), "promise 1: the first member has lost {run:?}");
            }
            for id in plan.shares.get(m).into_iter().flatten() {
                let is_in = |run| core.work().find_task(run, id, |_| true).is_some();
                let is_there = is_in(Some(run)) || (is_in_doubt && is_in(None));
                assert!(is_there, "promise 1: member {m} has lost {id} of {run:?}");
            }
        }
    }

    /// Whether the first member's journal says that the run is forgotten. What it says there is what happened.
    pub(super) fn is_forgotten(&self, run: RunId) -> bool {
        let first = &self.members[0];
        first.process.as_ref().map_or(&first.journal, Process::journal).is_forgotten(run)
    }

    /// The first member says that the run is forgotten: that is for good as soon as it is on the disk.
    pub(super) fn check_forgotten(&self, m: usize, run: RunId) {
        if m > 0 || !self.o.is_plain() {
            return;
        }
        let whole = self.plans.iter().position(|plan| plan.into.is_none() && plan.run() == Some(run));
        // A client may not know yet that its run was accepted.
        for task in whole.map_or(vec![], |whole| self.tasks_of(whole)) {
            assert!(
                self.account.ever_done.contains(&task.id),
                "promise 4: {run:?} is forgotten before {}",
                task.id
            );
        }
    }

    /// Whatever is done at which dispatcher, each dispatcher knows the patterns that a single dispatcher finds in the whole run.
    fn check_patterns(&self) {
        if self.members.len() == 1 {
            return;
        }
        for (whole, plan) in self.plans.iter().enumerate().filter(|(_, p)| p.into.is_none()) {
            let PlanState::Accepted(run) = plan.state else { continue };
            if self.is_forgotten(run) {
                continue; // processes that began since then know nothing of it
            }
            let expected = patterns_of_one(&plan.arrays);
            let is_added = |p: &Plan| p.into == Some(whole) && p.is_accepted();
            let any_added = self.plans.iter().any(is_added);
            let mut all: Option<Vec<String>> = None;
            for (m, member) in self.members.iter().enumerate() {
                let Some(process) = &member.process else { continue };
                let found = process.found_in(run);
                if any_added {
                    let is_found = expected.iter().all(|pattern| found.contains(pattern));
                    assert!(is_found, "patterns of run {run} at member {m}: {found:?}, not {expected:?}");
                } else {
                    assert_eq!(found, expected, "the patterns of run {run} at member {m}");
                }
                let all = all.get_or_insert_with(|| found.clone());
                assert_eq!(&found, all, "the patterns of run {run}, and what was added, at member {m}");
            }
        }
    }

    // ------------------------------------------------------------ the end

    pub(super) fn is_over(&self) -> bool {
        let ended = |process: &Process, run: RunId| match process.core().work().find_run(run) {
            Some(r) => r.ended.is_some() && (self.members.len() == 1 || !self.is_forgotten(run)),
            None => self.is_forgotten(run),
        };
        let is_over = |process: &Process| {
            let is_written = process.journal().n_durable == process.journal().records.len();
            let accepted = self.plans.iter().filter(|plan| plan.into.is_none()).filter_map(Plan::run);
            process.core().work().runs().all(|(_, r)| r.ended.is_some())
                && accepted.into_iter().all(|run| ended(process, run))
                && is_written
                && process.in_doubt().is_empty()
        };
        // Forgetting by rule is not put off for ever, except for runs that keep their files.
        let n_kept = |first: &Process| match self.o.keep_runs.filter(|_| self.members.len() > 1) {
            Some(rule) => {
                let n_runs = first.core().work().runs().filter(|(_, r)| !r.keep).count();
                n_runs <= rule.n_runs.unwrap_or(0) as usize
            }
            None => true,
        };
        self.plans.iter().all(Plan::is_decided)
            && self.members.iter().all(|member| member.process.as_ref().is_some_and(is_over))
            && self.members[0].process.as_ref().is_some_and(n_kept)
    }

    pub(super) fn what_is_left(&self) -> String {
        let mut text = String::new();
        for (m, member) in self.members.iter().enumerate() {
            let Some(process) = &member.process else {
                let _ = writeln!(text, "  dispatcher {m} is away");
                continue;
            };
            for task in process.core().work().tasks() {
                let state = process.core().task_state(task);
                if !matches!(state, TaskState::Done | TaskState::Failed | TaskState::Cancelled) {
                    let waits = process.core().waits_for(task);
                    let name = process.core().work().user_id(task);
                    let needs = process.core().work().needs_of(task);
                    let _ = writeln!(text, "  dispatcher {m}: {task:?} {name} {needs:?}: {state:?}; {waits}");
                }
            }
            let runs: Vec<(RunId, bool)> =
                process.core().work().runs().map(|(run, r)| (run, r.ended.is_some())).collect();
            let _ = writeln!(
                text,
                "  dispatcher {m}: in doubt {:?}, runs that have ended {runs:?}",
                process.in_doubt()
            );
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let attempts = node.session.core().attempts();
            let member = node.session.link().member();
            let _ = writeln!(text, "  node {n}: up {}, of {member:?}, attempts {attempts:?}", node.is_up);
        }
        for (i, plan) in self.plans.iter().enumerate() {
            let _ = writeln!(text, "  plan {i} into {:?}: {:?} {:?}", plan.into, plan.kind, plan.state);
        }
        text
    }

    pub(super) fn check_end(&mut self) -> Summary {
        self.check_patterns();
        let processes = || self.members.iter().map(|m| m.process.as_ref().expect("it lives at the end"));
        processes().for_each(replay_dispatcher);
        for n in (0..self.nodes.len()).filter(|n| self.nodes[*n].is_up) {
            self.replay_node(n);
        }
        let known = |process: &Process| process.core().work().runs().map(|(run, _)| run).collect();
        let first: Vec<RunId> = known(processes().next().expect("there is one"));
        for (member, process) in self.members.iter().zip(processes()) {
            assert_eq!(known(process), first, "all dispatchers know the same runs");
            self.check_done(member, process);
        }
        if self.o.is_plain() {
            self.check_plain_end(&first);
        }
        let outcomes = || self.members.iter().flat_map(|member| member.outcomes.values());
        let n_ended = |f: fn(&Outcome) -> bool| outcomes().filter(|o| f(o)).count() as u64;
        let mut summary = Summary {
            trace_hash: self.trace.hash,
            n_events: self.calendar.n_events,
            n_done: n_ended(|o| matches!(o, Outcome::Done)),
            n_failed: n_ended(|o| matches!(o, Outcome::Failed(_))),
            n_cancelled: n_ended(|o| matches!(o, Outcome::Cancelled)),
            n_revivals: self.account.n_revivals,
            n_collectives: processes().map(Process::n_collectives).sum(),
            n_added: 0,
            n_refused: 0,
        };
        if self.members.len() > 1 {
            let added = self.plans.iter().filter(|p| p.is_added());
            summary.n_added = added.map(|p| p.arrays.len() as u64).sum();
            summary.n_refused = self.plans.iter().filter(|p| p.state == PlanState::Refused).count() as u64;
        }
        summary
    }

    /// What a dispatcher's done tasks have written is at home.
    fn check_done(&self, member: &Member, process: &Process) {
        let mut last_writer: BTreeMap<&String, Digest> = BTreeMap::new();
        for (task, outputs) in &member.done {
            assert!(member.is_done(process, *task), "promise 1: {task:?}");
            let landed = outputs.iter().filter(|(l, _)| !CatalogLocation::of(l).stays());
            last_writer.extend(landed.map(|(location, digest)| (location, *digest)));
        }
        for (location, digest) in last_writer {
            let at_home = self.home.find(location).map(|c| c.digest);
            assert_eq!(at_home, Some(digest), "promise 1: {location} is at home as recorded");
        }
    }

    /// Each task was done, and home is as after a plain run. `known`: the runs that are not forgotten.
    fn check_plain_end(&self, known: &[RunId]) {
        let mut wanted: BTreeMap<String, Digest> = BTreeMap::new();
        for location in (0..self.o.n_objects).map(|i| self.object_name(i)) {
            let digest = self.bytes_of(&location, 0).0;
            wanted.insert(location, digest);
        }
        let runs = (0..self.plans.len()).filter(|plan| self.plans[*plan].into.is_none());
        let runs: Vec<Vec<TaskSpec>> = runs.map(|whole| self.tasks_of(whole)).collect();
        let n_tasks = runs.iter().map(Vec::len).sum::<usize>() as u64;
        for tasks in runs {
            let mut files = wanted.clone();
            let mut left = VecDeque::from(tasks);
            while let Some(spec) = left.pop_front() {
                if spec.inputs.iter().any(|(_, l)| !files.contains_key(l)) {
                    left.push_back(spec); // it reads what was promised
                    continue;
                }
                let read: Vec<Digest> = spec.inputs.iter().map(|(_, l)| files[l]).collect();
                for (i, (_, location)) in spec.outputs.iter().enumerate() {
                    files.insert(location.clone(), self.made_of(&spec.id, &read, i));
                }
            }
            wanted.extend(files.into_iter().filter(|(l, _)| !Location::of(l).stays()));
        }
        let now = |location: &str| self.home.find(location).expect("it has one").digest;
        let home = self.home.locations().map(|location| (location.to_string(), now(location))).collect();
        assert_eq!(wanted, home, "promise 2: home is as after a plain run");
        if let Some(n) = self.o.keep_runs.and_then(|rule| rule.n_runs).filter(|_| self.o.n_forgets == 0) {
            let n_runs = self.plans.iter().filter(|plan| plan.into.is_none() && plan.is_accepted()).count();
            assert_eq!(known.len(), n_runs.min(n as usize), "as many runs are kept as the rule says");
        }
        let accepted = self.plans.iter().filter(|plan| plan.kind == Kind::Good);
        let forgotten = accepted.filter(|plan| plan.run().is_some_and(|run| self.is_forgotten(run)));
        let mut n_done = 0;
        for task in forgotten.flat_map(|plan| &plan.arrays).map(|array| array.expand(0)) {
            assert!(self.account.ever_done.contains(&task.id), "promise 4: {} was never done", task.id);
            n_done += 1;
        }
        for process in self.members.iter().filter_map(|member| member.process.as_ref()) {
            n_done += process.core().work().runs().map(|(_, r)| r.ends.n_done).sum::<u64>();
        }
        assert_eq!(n_done, n_tasks, "promise 4: each task is done once");
    }

    pub(super) fn replay_node(&self, n: usize) {
        let mut core = Executor::new(self.nodes[n].config.clone()).expect("it was made before");
        for (now, logged) in &self.nodes[n].log {
            let mut again = vec![];
            let actions = match logged {
                Logged::Restore(objects, actions) => {
                    for (object, bytes) in objects {
                        core.restore(*object, bytes.clone(), &mut again);
                    }
                    actions
                }
                Logged::Reconnected => {
                    core.reconnected();
                    continue;
                }
                Logged::Moved => {
                    core.moved();
                    continue;
                }
                Logged::Event(event, actions) => {
                    core.handle(*now, event.clone(), &mut again);
                    actions
                }
            };
            assert_eq!(&again, actions, "promise 5: node {n} decides otherwise");
        }
    }
}

/// The patterns that a single dispatcher with all of these tasks finds, as sentences in order.
fn patterns_of_one(arrays: &[Arc<TaskArray>]) -> Vec<String> {
    let mut core = Dispatcher::new(DispatcherConfig::default()).expect("a known policy");
    let run = RunId(1);
    let mut out = vec![];
    let mut feed = |event| core.handle(Timestamp(S), event, &mut out);
    feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    for array in arrays {
        feed(Event::ArrayAdded { run, array: array.clone() });
    }
    feed(Event::RunCommitted { run });
    sentences(out.iter(), run)
}
