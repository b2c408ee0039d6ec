//! Executors that end at their walltime, or that announce that they leave: what they are given, what becomes of what they had,
//! and that nothing of it counts against a task.

use eyas_core::event::{AttemptReport, Event, Offer, Times, Walltime};
use eyas_terms::needs::Size;
use eyas_terms::rng::Rng;
use eyas_terms::{ExecutorId, FailureKind, Outcome, TaskId, Timestamp};
use eyas_testkit::build::{Task, reads, task as of_id, writes};
use eyas_testkit::script::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const S: u64 = 1_000_000_000;

/// An executor with `slots` slots and a walltime of `whole_s` seconds, which has just begun.
fn limited(c: &mut Cluster, id: u32, slots: u32, whole_s: u64) {
    let walltime = Some(Walltime { whole_ns: whole_s * S, left_ns: whole_s * S });
    c.offers(id, Offer { slots, cache_bytes: 1_000_000, walltime, ..Offer::default() });
}

/// `n` tasks of one stage.
fn stage(n: usize) -> Vec<Task> {
    (0..n).map(|i| of_id(&format!("t{i}")).label("stage")).collect()
}

/// The attempt ends well after its program has run for `run_s` seconds, which are over now.
fn ran(c: &mut Cluster, executor: u32, task: u64, attempt: u32, run_s: f64) {
    let started = Timestamp(c.now.0 - (run_s * S as f64) as u64);
    let times = Times { received: started, inputs_ready: started, started, exited: c.now };
    let (inputs, outputs) = (vec![], vec![]);
    let (task, attempt) = (TaskId(task), eyas_terms::AttemptNo(attempt));
    let report = AttemptReport {
        task,
        attempt,
        outcome: Outcome::Done,
        times,
        inputs,
        in_memory: vec![],
        outputs,
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
    };
    c.feed(Event::AttemptEnded { executor: ExecutorId(executor), report: Arc::new(report) });
}

fn lost(c: &mut Cluster, id: u32) {
    c.feed(Event::ExecutorLost { executor: ExecutorId(id), reason: "it is gone".into() });
}

#[test]
fn a_task_goes_to_an_executor_that_has_time_enough_for_it() {
    let mut c = Cluster::new();
    c.node(1, 2).run(&stage(4));
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.feed(Event::ExecutorDraining { executor: ExecutorId(1) });
    c.wait(30);
    ran(&mut c, 1, 0, 1, 30.0);
    c.expect(&["end 0 done"]);
    // The stage's tasks take about half a minute, and up to 52 s as far as one task shows.
    limited(&mut c, 2, 1, 100);
    c.expect(&["assign 2.1 to 2"]);
    limited(&mut c, 3, 1, 40);
    c.expect(&[]);
    limited(&mut c, 4, 1, 80);
    c.expect(&["assign 3.1 to 4"]);
}

#[test]
fn a_stage_of_which_nothing_is_known_is_placed_anywhere_until_the_drain() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    c.wait(69).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    // The last eighth of its time.
    c.wait(71).expect(&["drain 1 because its walltime of 80 s is about to end"]);
    c.run(&stage(1));
    c.expect(&[]);
}

#[test]
fn a_task_that_is_too_long_for_every_executor_is_given_to_a_fresh_one() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 100);
    c.run(&stage(2));
    c.expect(&["assign 0.1 to 1"]);
    c.wait(80);
    ran(&mut c, 1, 0, 1, 80.0);
    // What is left there is too little.
    c.expect(&["end 0 done"]);
    limited(&mut c, 2, 1, 100);
    c.expect(&["assign 1.1 to 2"]);
}

#[test]
fn what_an_end_cuts_off_counts_as_no_loss_and_runs_again() {
    let mut c = Cluster::with(|config| config.losses_max = 0);
    limited(&mut c, 1, 1, 80);
    c.wait(60).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    c.wait(11).expect(&["recall 0.1 from 1", "drain 1 because its walltime of 80 s is about to end"]);
    c.wait(9);
    lost(&mut c, 1);
    c.node(2, 1).expect(&["assign 0.2 to 2"]);
    // Nobody foresaw this.
    lost(&mut c, 2);
    c.expect(&["end 0 failed ExecutorLost", "end run 1"]);
}

#[test]
fn an_executor_that_is_lost_in_its_drain_is_no_end_of_a_walltime() {
    let mut c = Cluster::with(|config| config.losses_max = 1);
    let run = c.run(&stage(1));
    for id in [1, 2] {
        limited(&mut c, id, 1, 600);
        c.wait(545).take();
        // Its last words would come at 590 s.
        lost(&mut c, id);
    }
    let last = c.take();
    assert_eq!(last[last.len() - 2..], ["end 0 failed ExecutorLost", "end run 1"]);
    let failures = &c.core.work().find_run(run).expect("it is kept").failures;
    let message = &failures.front().expect("it failed").1.message;
    let words = ", while it drained before the end of its walltime of 10 min";
    assert!(message.starts_with("2 executors were lost") && message.ends_with(words), "{message}");
}

#[test]
fn a_task_that_needs_more_than_the_walltime_ends_in_a_sentence() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 600);
    let run = c.run(&stage(1));
    c.wait(600);
    lost(&mut c, 1);
    limited(&mut c, 2, 1, 600);
    c.take();
    c.wait(600);
    lost(&mut c, 2);
    let last = c.take();
    assert_eq!(last[last.len() - 2..], ["end 0 failed CutOff", "end run 1"]);
    let failures = &c.core.work().find_run(run).expect("it is kept").failures;
    let (_, failure) = failures.front().expect("it failed");
    assert_eq!(failure.kind, FailureKind::CutOff);
    let sentence = "the task needs more than the walltime of 10 min: 2 nodes ended while it ran, which it had for up to 10 min";
    assert_eq!(failure.message, sentence);
}

#[test]
fn a_task_that_was_cut_off_late_in_a_node_s_life_gets_one_with_more_time() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 600);
    c.wait(400).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    // It had 200 s there, so it is expected to take 300 s.
    c.wait(200);
    limited(&mut c, 2, 1, 250);
    limited(&mut c, 3, 1, 900);
    c.take();
    lost(&mut c, 1);
    c.expect(&["assign 0.2 to 3"]);
}

#[test]
fn an_executor_that_announces_its_end_gives_back_what_has_not_begun() {
    let mut c = Cluster::with(|config| config.losses_max = 0);
    c.node(1, 1).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    let reason = "it was told to stop".into();
    c.feed(Event::ExecutorLeaving { executor: ExecutorId(1), within_ns: 30 * S, reason });
    c.expect(&["recall 0.1 from 1", "drain 1 because it was told to stop"]);
    c.run(&stage(1));
    c.expect(&[]);
    assert!(!c.core.may_leave(c.now, ExecutorId(1)));
    c.wait(20);
    lost(&mut c, 1);
    c.node(2, 1).expect(&["assign 0.2 to 2"]);
}

#[test]
fn an_executor_that_comes_back_keeps_its_end() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    c.wait(60);
    c.feed(Event::ExecutorSilent { executor: ExecutorId(1) });
    c.wait(2).join(1, 1, &[]);
    c.wait(9).expect(&["drain 1 because its walltime of 80 s is about to end"]);
}

#[test]
fn a_waiting_task_says_that_no_executor_has_time_enough() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 100);
    c.run(&stage(2));
    c.wait(60);
    ran(&mut c, 1, 0, 1, 60.0);
    let state = c.core.task_state(TaskId(1));
    let eyas_core::dispatcher::TaskState::Ready { reason: Some(reason) } = state else { panic!("{state:?}") };
    assert!(reason.contains("1 with too little time until their end"), "{reason}");
    let (mut views, mut predicted) = (vec![], Default::default());
    let demand = c.core.demand(&Size::default(), 0, |_| true, &mut views, &mut predicted);
    assert!(demand.nodes[0].has_no_time && !demand.nodes[0].leaves);
    c.take();
}

#[test]
fn what_only_an_ending_executor_holds_is_copied_before_its_end() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    // The reader needs a larger executor, for which it waits 15 s.
    c.wait(62).run(&[writes("run:x"), reads("run:x").cpus(2)]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done"]);
    c.node(2, 1)
        .wait(8)
        .expect(&["drain 1 because its walltime of 80 s is about to end", "prefetch run:here.1/x to 2"]);
    assert!(!c.core.may_leave(c.now, ExecutorId(1)));
    c.has(2, "run:here.1/x", "run:here.1/x", None).expect(&["end collective"]);
    assert!(c.core.may_leave(c.now, ExecutorId(1)));
}

/// What the naive reference knows of an executor.
struct Known {
    joined: Timestamp,
    whole_ns: Option<u64>,
    slots: u64,
    /// Running tasks, each with its end.
    running: Vec<(u64, u32, Timestamp)>,
    is_drained: bool,
}

/// The longest time of a stage, by its definition: the mean and three standard deviations of all its tasks, where the deviation
/// is at least a quarter of the mean divided by the number of tasks.
fn longest_ns(times_ns: &[u64]) -> Option<f64> {
    let n = times_ns.len() as f64;
    let mean = times_ns.iter().map(|ns| *ns as f64).sum::<f64>() / n;
    let variance = times_ns.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / n;
    (!times_ns.is_empty()).then(|| mean + 3.0 * variance.sqrt().max(mean / (4.0 * n)))
}

impl Known {
    /// Half of what is kept free before the end: a twentieth, at most five seconds.
    fn stop_before_ns(&self) -> f64 {
        self.whole_ns.map_or(0.0, |whole| (whole as f64 / 20.0).min(5.0 * S as f64))
    }

    /// The time that a task may take here; `None`: there is no end.
    fn left_ns(&self, now: Timestamp) -> Option<f64> {
        let whole = self.whole_ns? as f64;
        Some(whole - now.since_ns(self.joined) as f64 - 2.0 * self.stop_before_ns())
    }

    fn fresh_ns(&self) -> Option<f64> {
        Some(self.whole_ns? as f64 * 0.75 - 2.0 * self.stop_before_ns())
    }
}

const N_TASKS: u64 = 60;

/// A task's run time: three stages of about 1 s, 8 s and 40 s.
fn run_ns(task: u64) -> u64 {
    [S, 8 * S, 40 * S][(task % 3) as usize] + task * S / 50
}

/// A cluster, and what the naive reference knows of it.
struct Both {
    seed: u64,
    c: Cluster,
    nodes: BTreeMap<u32, Known>,
    /// Times of ended tasks, by stage.
    times: [Vec<u64>; 3],
    queued: BTreeSet<u64>,
    was_given: BTreeSet<u64>,
    n_checked: u32,
    n_fresh: u32,
    n_waiting: u32,
}

impl Both {
    fn new(seed: u64) -> Both {
        let mut c = Cluster::with(|config| config.placement_config.ahead = false);
        let labels = ["short", "middle", "long"];
        let tasks: Vec<Task> =
            (0..N_TASKS).map(|i| of_id(&format!("t{i}")).label(labels[(i % 3) as usize])).collect();
        c.run(&tasks);
        Both {
            seed,
            c,
            nodes: BTreeMap::new(),
            times: Default::default(),
            queued: (0..N_TASKS).collect(),
            was_given: BTreeSet::new(),
            n_checked: 0,
            n_fresh: 0,
            n_waiting: 0,
        }
    }

    fn longest_ns(&self, task: u64) -> Option<f64> {
        longest_ns(&self.times[(task % 3) as usize])
    }

    /// Compares what the dispatcher did since the last call.
    fn compare(&mut self) {
        for line in self.c.take() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["drain", id, ..] => {
                    self.nodes.get_mut(&number(id)).expect("it is there").is_drained = true;
                }
                ["end", task, "failed", _] => drop(self.queued.remove(&u64::from(number(task)))),
                ["assign", which, "to", id] => {
                    let (task, attempt) = which.split_once('.').expect("task and attempt");
                    self.compare_given(u64::from(number(task)), number(attempt), number(id), &line);
                }
                _ => {}
            }
        }
    }

    fn compare_given(&mut self, task: u64, attempt: u32, id: u32, line: &str) {
        let now = self.c.now;
        let known = &self.nodes[&id];
        if let (Some(longest), Some(left)) = (self.longest_ns(task), known.left_ns(now)) {
            // `None`: an executor without an end is there.
            let fresh = self.nodes.values().filter(|k| !k.is_drained).map(Known::fresh_ns);
            let fresh = fresh.reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten();
            let fits = longest <= left + 1e6;
            // Steps are a factor of up to 1.19.
            let is_best = fresh.is_some_and(|fresh| longest > fresh / 1.2 && left * 1.2 >= fresh);
            self.n_checked += 1;
            self.n_fresh += u32::from(!fits && is_best);
            assert!(fits || is_best, "seed {}, {line}: up to {longest} ns, {left} ns left", self.seed);
        }
        self.queued.remove(&task);
        self.was_given.insert(task);
        let until = now.plus_ns(run_ns(task));
        self.nodes.get_mut(&id).expect("seen above").running.push((task, attempt, until));
    }

    fn joins(&mut self, id: u32, slots: u64, whole_s: u64) {
        let whole_ns = (whole_s > 0).then_some(whole_s * S);
        let known = Known { joined: self.c.now, whole_ns, slots, running: vec![], is_drained: false };
        self.nodes.insert(id, known);
        match whole_s {
            0 => drop(self.c.node(id, slots as u32)),
            _ => limited(&mut self.c, id, slots as u32, whole_s),
        }
        self.compare();
    }

    fn is_lost(&mut self, id: u32) {
        let known = self.nodes.remove(&id).expect("it is there");
        self.queued.extend(known.running.iter().map(|(task, ..)| *task));
        lost(&mut self.c, id);
        self.compare();
    }

    /// A second goes by: tasks and executors end whose time is over.
    fn second(&mut self) {
        self.c.wait(1);
        self.compare();
        let now = self.c.now;
        for id in self.nodes.keys().copied().collect::<Vec<u32>>() {
            let running = &mut self.nodes.get_mut(&id).expect("it is there").running;
            let ended: Vec<(u64, u32, Timestamp)> =
                running.extract_if(.., |(_, _, until)| *until <= now).collect();
            for (task, attempt, _) in ended {
                self.times[(task % 3) as usize].push(run_ns(task));
                ran(&mut self.c, id, task, attempt, run_ns(task) as f64 / S as f64);
                self.compare();
            }
        }
        let is_over = |k: &Known| k.left_ns(now).is_some_and(|ns| ns <= 0.0);
        let over: Vec<u32> = self.nodes.iter().filter(|(_, k)| is_over(k)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.is_lost(id));
    }

    /// Checks that nothing waits that fits with room to spare.
    fn check_waiting(&mut self) {
        let has_slot = |k: &&Known| !k.is_drained && (k.running.len() as u64) < k.slots;
        let left: Vec<Option<f64>> =
            self.nodes.values().filter(has_slot).map(|k| k.left_ns(self.c.now)).collect();
        // A task that was cut off is expected to take longer than its stage.
        for task in self.queued.difference(&self.was_given) {
            let Some(longest) = self.longest_ns(*task) else { continue };
            let is_ample = |left: &Option<f64>| left.is_none_or(|left| left > 1.6 * longest + 2e9);
            assert!(!left.iter().any(is_ample), "seed {}: task {task} waits for nothing", self.seed);
            self.n_waiting += left.len() as u32;
        }
    }
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

/// Executors with walltimes come and end, and tasks of three stages run. Each assignment is compared with the rule as it is written,
/// over all executors and times; what could be given with room to spare is given.
#[test]
fn placements_keep_the_rule_as_a_naive_reference_states_it() {
    let mut sums = [0; 3];
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut both = Both::new(seed);
        for step in 0..500u32 {
            match rng.below(12) {
                0 | 1 if both.nodes.len() < 4 => {
                    // In every other world no executor has the time for the longest tasks.
                    let n_kinds = if seed % 2 == 0 { 4 } else { 3 };
                    let whole_s = [0, 20, 60, 300][rng.below(n_kinds) as usize];
                    both.joins(1000 + step, 1 + rng.below(2), whole_s);
                }
                2 => {
                    // An executor without an end goes, so that those with one are needed.
                    let id = both.nodes.iter().find(|(_, k)| k.whole_ns.is_none()).map(|(id, _)| *id);
                    id.into_iter().for_each(|id| both.is_lost(id));
                }
                _ => both.second(),
            }
            both.check_waiting();
        }
        for (sum, n) in sums.iter_mut().zip([both.n_checked, both.n_fresh, both.n_waiting]) {
            *sum += n;
        }
    }
    assert!(sums[0] > 500 && sums[1] > 10 && sums[2] > 100, "the worlds do something: {sums:?}");
}
