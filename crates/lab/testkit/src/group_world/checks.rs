//! The promises that must hold, while the world lives and when it ends.

use super::*;

impl World {
    /// A promise in addition to those of the other worlds: whatever is done at which dispatcher, each
    /// dispatcher knows the patterns that a single dispatcher finds in the whole run.
    pub(super) fn check_patterns(&self) {
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
    pub(super) fn check_forgotten(&self, run: RunId) {
        let whole = self.plans.iter().position(|plan| plan.into.is_none() && plan.run() == Some(run));
        // A client may not know yet that its run was accepted.
        for task in whole.map_or(vec![], |whole| self.tasks_of(whole)) {
            assert!(self.ever_done.contains(&task.id), "promise 4: {run:?} is forgotten before {}", task.id);
        }
    }

    /// The task's name over all runs.
    pub(super) fn name_of(&self, spec: &TaskSpec) -> String {
        spec.id.clone()
    }

    pub(super) fn check_message(&self, m: usize, n: usize, message: &ToNode) {
        if let ToNode::Says(said) = message
            && let ToExecutor::Assign(assign) = &**said
        {
            let task = assign.assignment.task;
            let is_done = self.members[m].promised.contains_key(&task);
            assert!(!is_done, "promise 1: {task:?} of member {m} is done, and node {n} gets it");
        }
    }

    pub(super) fn check_ended(
        &mut self,
        m: usize,
        process: &Process,
        task: TaskId,
        outcome: &Outcome,
        by: Option<(ExecutorId, AttemptNo)>,
    ) {
        let name = process.core().work().user_id(task);
        let run = process.core().work().run_of(task);
        let is_forgotten = if m == 0 { process.journal().is_forgotten(run) } else { self.is_forgotten(run) };
        if *outcome == Outcome::Cancelled && is_forgotten {
            assert!(self.ever_done.contains(&name), "promise 4: {name} is forgotten, and was never done");
            return; // it ran again, for nobody
        }
        self.ever_done.insert(name.clone());
        assert_eq!(
            *outcome,
            Outcome::Done,
            "promise 4: {name}, {task:?} of member {m}, ends without a cause"
        );
        let (executor, attempt) = by.expect("promise 2: a task is done without an attempt");
        let n = process.node_of(executor).expect("the executor that ended a task is known");
        let ran = self.ran.get(&(m, n, task, attempt));
        assert_eq!(
            ran,
            Some(&name),
            "promise 2: {task:?} of member {m} is done by an attempt on node {n} that ran something else"
        );
    }

    pub(super) fn check_durable(&mut self, m: usize, process: &Process, task: TaskId) {
        if !process.core().work().has_task(task) {
            return; // its run was forgotten at the same moment
        }
        if process.core().task_state(task) != TaskState::Done {
            return; // it runs again since
        }
        self.members[m].promised.insert(task, process.core().work().run_of(task));
        for (_, location) in process.core().work().task_spec(task).outputs {
            let is_home = CatalogLocation::of(&location).stays() || self.home.contains_key(&location);
            let name = process.core().work().user_id(task);
            assert!(is_home, "promise 1: {name} of member {m} is done, {location} is not at home");
        }
    }

    pub(super) fn files_kept(&self) -> Vec<String> {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up);
        up.flat_map(|(n, node)| {
            let held = node.session.book().held().into_iter().map(|(object, _)| object);
            let kept = held.filter(|object| node.session.core().cache().is_kept(*object));
            kept.map(move |object| format!("{} on node {n}", node.session.book().location(object)))
        })
        .collect()
    }

    /// Names of forgotten runs' files that are still in a dispatcher's memory.
    pub(super) fn names_left(&self) -> Vec<String> {
        let processes = self.members.iter().filter_map(|member| member.process.as_ref());
        processes.flat_map(|process| process.core().names_of_forgotten_runs()).collect()
    }

    pub(super) fn is_over(&self) -> bool {
        let ended = |m: &Member, run: RunId| {
            if self.is_forgotten(run) {
                let is_gone = |s: &Process| s.core().work().find_run(run).is_none();
                return m.process.as_ref().is_some_and(is_gone);
            }
            let found = m.process.as_ref().and_then(|s| s.core().work().find_run(run));
            let is_written = |s: &Process| s.journal().n_durable == s.journal().records.len();
            found.is_some_and(|r| r.ended.is_some()) && m.process.as_ref().is_some_and(is_written)
        };
        let all_ended = self.plans.iter().all(|plan| match plan.state {
            PlanState::Accepted(run) => self.members.iter().all(|m| ended(m, run)),
            PlanState::Refused => true,
            _ => false,
        });
        // Forgetting by rule is not put off for ever.
        let n_kept = |first: &Process| match self.o.keep_runs {
            Some(rule) => first.core().work().runs().count() <= rule.n_runs.unwrap_or(0) as usize,
            None => true,
        };
        if !self.members[0].process.as_ref().is_some_and(n_kept) {
            return false;
        }
        let is_sure = |m: &Member| m.process.as_ref().is_some_and(|process| process.in_doubt().is_empty());
        all_ended && self.members.iter().all(is_sure)
    }

    pub(super) fn what_is_left(&self) -> String {
        let mut text = String::new();
        for (m, member) in self.members.iter().enumerate() {
            let Some(process) = &member.process else {
                let _ = writeln!(text, "  member {m} is away");
                continue;
            };
            for task in (0..).map(TaskId).take_while(|t| process.core().work().has_task(*t)) {
                let state = process.core().task_state(task);
                if state != TaskState::Done {
                    let waits = process.core().waits_for(task);
                    let _ = writeln!(
                        text,
                        "  member {m}: {task:?} {}: {state:?}; {waits}",
                        process.core().work().user_id(task)
                    );
                }
            }
            let doubts = process.in_doubt();
            let _ = writeln!(text, "  member {m}: in doubt {doubts:?}");
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let attempts = node.session.core().attempts();
            let _ = writeln!(
                text,
                "  node {n}: up {}, of {:?}, attempts {attempts:?}",
                node.is_up,
                node.session.link().member()
            );
        }
        for (i, plan) in self.plans.iter().enumerate() {
            let _ = writeln!(text, "  plan {i} into {:?}: {:?} {:?}", plan.into, plan.kind, plan.state);
        }
        text
    }

    pub(super) fn check_end(&mut self) -> Summary {
        self.check_patterns();
        let mut wanted = BTreeMap::new();
        for i in 0..9 {
            wanted.insert(format!("in/{i}"), digest_of(&format!("in {i}")));
        }
        let runs = (0..self.plans.len()).filter(|plan| self.plans[*plan].into.is_none());
        let runs: Vec<Vec<TaskSpec>> = runs.map(|whole| self.tasks_of(whole)).collect();
        let n_tasks: u64 = runs.iter().map(|tasks| tasks.len() as u64).sum();
        for tasks in runs {
            let mut files = wanted.clone();
            let mut left = VecDeque::from(tasks);
            while let Some(spec) = left.pop_front() {
                if spec.inputs.iter().any(|(_, l)| !files.contains_key(l)) {
                    left.push_back(spec); // it reads what was promised
                    continue;
                }
                let inputs: Vec<Digest> = spec.inputs.iter().map(|(_, l)| files[l]).collect();
                let name = self.name_of(&spec);
                for (i, (_, location)) in spec.outputs.iter().enumerate() {
                    files.insert(location.clone(), made(&name, &inputs, i));
                }
            }
            wanted.extend(files.into_iter().filter(|(l, _)| !Location::of(l).stays()));
        }
        assert_eq!(self.home, wanted, "promise 2: home is as after a plain run");
        let accepted = self.plans.iter().filter(|plan| plan.kind == Kind::Good);
        if let Some(n) = self.o.keep_runs.and_then(|rule| rule.n_runs).filter(|_| self.o.n_forgets == 0) {
            let n_runs = self.plans.iter().filter(|plan| plan.into.is_none() && plan.is_accepted()).count();
            let n_known =
                self.members[0].process.as_ref().map_or(0, |first| first.core().work().runs().count());
            assert_eq!(n_known, n_runs.min(n as usize), "as many runs are kept as the rule says");
        }
        let forgotten = accepted.filter(|plan| plan.run().is_some_and(|run| self.is_forgotten(run)));
        let mut n_done = 0;
        for task in forgotten.flat_map(|plan| &plan.arrays).map(|array| array.expand(0)) {
            assert!(self.ever_done.contains(&task.id), "promise 4: {} was never done", task.id);
            n_done += 1;
        }
        let processes = || self.members.iter().filter_map(|m| m.process.as_ref());
        let first: Vec<RunId> =
            processes().take(1).flat_map(|p| p.core().work().runs()).map(|(run, _)| run).collect();
        for process in processes() {
            let known: Vec<RunId> = process.core().work().runs().map(|(run, _)| run).collect();
            assert_eq!(known, first, "all members know the same runs");
            n_done += process.core().work().runs().map(|(_, r)| r.n_done).sum::<u64>();
        }
        assert_eq!(n_done, n_tasks, "promise 4: each task is done once");
        // Executors that change sides take files along and keep them; caches have room for all files.
        if self.o.faults() == [0; 5] {
            assert_eq!(self.n_revivals, 0, "nothing is made again where nothing is lost");
        }
        Summary {
            trace_hash: self.trace_hash,
            n_events: self.n_events,
            n_done,
            n_failed: 0,
            n_cancelled: 0,
            n_revivals: self.n_revivals,
            n_collectives: processes().map(Process::n_collectives).sum(),
            n_added: self.plans.iter().filter(|p| p.is_added()).map(|p| p.arrays.len() as u64).sum(),
            n_refused: self.plans.iter().filter(|p| p.state == PlanState::Refused).count() as u64,
        }
    }
}

/// The patterns that a single dispatcher with all of these tasks finds, as sentences in order.
fn patterns_of_one(arrays: &[TaskArray]) -> Vec<String> {
    let mut core = Dispatcher::new(DispatcherConfig::default()).expect("a known policy");
    let run = RunId(1);
    let mut out = vec![];
    let mut feed = |event| core.handle(Timestamp(S), event, &mut out);
    feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    for array in arrays {
        feed(Event::ArrayAdded { run, array: array.clone().into() });
    }
    feed(Event::RunCommitted { run });
    sentences(out.iter(), run)
}

/// The bytes that a task makes from its inputs.
pub fn made(name: &str, inputs: &[Digest], output: usize) -> Digest {
    digest_of(&format!("{name} {inputs:?} {output}"))
}

pub fn version_of(digest: Digest) -> HomeVersion {
    HomeVersion { size_bytes: OUTPUT_BYTES, stamp: digest.to_string().into() }
}
