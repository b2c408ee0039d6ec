//! Fair shares: what each of several users gets of a cluster, under every policy.

use eyas_core::dispatcher::{DispatcherConfig, TaskState};
use eyas_core::event::{Event, Offer};
use eyas_core::placement::NAMES;
use eyas_terms::needs::{Equipment, PARTS};
use eyas_terms::rng::Rng;
use eyas_terms::{ExecutorId, Outcome, TaskId, Timestamp};
use eyas_testkit::build::{Task, array_of, task};
use eyas_testkit::script::Cluster;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

const MS: u64 = 1_000_000;

/// Nodes of some slots that run what they are given, each task for its time.
struct World {
    c: Cluster,
    idle: BTreeMap<u32, u32>,
    waiting: BTreeMap<u32, VecDeque<u64>>,
    ends: BinaryHeap<Reverse<(Timestamp, u64, u32)>>,
    /// The first task of each submission, whose it is, and how long its tasks take.
    runs: Vec<(u64, &'static str, u64)>,
    next_task: u64,
    /// Slot time and begun tasks by user.
    had_ns: BTreeMap<&'static str, u64>,
    n_begun: BTreeMap<&'static str, u64>,
    began_at: BTreeMap<u64, Timestamp>,
    attempts: BTreeMap<u64, u32>,
}

impl World {
    fn new(policy: &str, n_nodes: u32, slots: u32) -> World {
        World::with(policy, n_nodes, slots, Equipment::default(), |_| ())
    }

    fn with(
        policy: &str,
        n_nodes: u32,
        slots: u32,
        equipment: Equipment,
        change: impl FnOnce(&mut DispatcherConfig),
    ) -> World {
        let mut c = Cluster::with(|config| {
            config.placement = policy.into();
            change(config);
        });
        for id in 1..=n_nodes {
            let equipment = equipment.clone();
            c.offers(id, Offer { slots, equipment, cache_bytes: 1_000_000, ..Offer::default() });
        }
        World {
            c,
            idle: (1..=n_nodes).map(|id| (id, slots)).collect(),
            waiting: BTreeMap::new(),
            ends: BinaryHeap::new(),
            runs: vec![],
            next_task: 0,
            had_ns: BTreeMap::new(),
            n_begun: BTreeMap::new(),
            began_at: BTreeMap::new(),
            attempts: BTreeMap::new(),
        }
    }

    fn submit(&mut self, owner: &'static str, n: u32, like: &Task, task_ns: u64) {
        self.runs.push((self.next_task, owner, task_ns));
        self.next_task += u64::from(n);
        self.c.run_of(owner, &[array_of(n, like)]);
        self.begin();
    }

    fn run_of(&self, task: u64) -> (&'static str, u64) {
        let (_, owner, ns) = self.runs.iter().rev().find(|(first, ..)| *first <= task).unwrap();
        (owner, *ns)
    }

    /// Begins what was given out, as far as slots are idle.
    fn begin(&mut self) {
        for a in std::mem::take(&mut self.c.assignments) {
            self.attempts.insert(a.task.0, a.attempt.0);
        }
        let mut taken_back = vec![];
        for action in self.c.take() {
            let words: Vec<&str> = action.split(' ').collect();
            match words[..] {
                ["assign", name, "to", executor] => {
                    let task = name.split('.').next().unwrap().parse().unwrap();
                    self.waiting.entry(executor.parse().unwrap()).or_default().push_back(task);
                }
                ["recall", name, "from", executor] => {
                    let task: u64 = name.split('.').next().unwrap().parse().unwrap();
                    let waiting = self.waiting.get_mut(&executor.parse().unwrap()).unwrap();
                    if waiting.contains(&task) {
                        waiting.retain(|t| *t != task);
                        taken_back.push((executor.parse().unwrap(), (task, self.attempts[&task])));
                    }
                }
                _ => {}
            }
        }
        if !taken_back.is_empty() {
            for (executor, attempt) in taken_back {
                self.c.ended(executor, attempt, Outcome::Cancelled);
            }
            return self.begin();
        }
        for (executor, waiting) in &mut self.waiting {
            let idle = self.idle.get_mut(executor).unwrap();
            while *idle > 0
                && let Some(task) = waiting.pop_front()
            {
                *idle -= 1;
                let (_, owner, ns) = *self.runs.iter().rev().find(|(first, ..)| *first <= task).unwrap();
                self.ends.push(Reverse((self.c.now.plus_ns(ns), task, *executor)));
                *self.n_begun.entry(owner).or_default() += 1;
                self.began_at.insert(task, self.c.now);
            }
        }
    }

    /// Lets time pass until `until`, or until nothing runs any more.
    fn run_until(&mut self, until: Timestamp) {
        while let Some(&Reverse((at, task, executor))) = self.ends.peek()
            && at <= until
        {
            self.ends.pop();
            self.c.now = at;
            let (owner, ns) = self.run_of(task);
            *self.had_ns.entry(owner).or_default() += ns;
            *self.idle.get_mut(&executor).unwrap() += 1;
            let mut report = self.c.report((task, self.attempts[&task]), Outcome::Done);
            (report.times.started, report.times.exited) = (self.began_at[&task], at);
            self.c.feed(Event::AttemptEnded { executor: ExecutorId(executor), report: report.into() });
            self.begin();
        }
        self.c.now = self.c.now.max(until);
    }

    fn run_for(&mut self, ns: u64) {
        self.run_until(self.c.now.plus_ns(ns));
    }

    fn had(&self, owner: &str) -> f64 {
        self.had_ns.get(owner).copied().unwrap_or(0) as f64
    }

    fn n_idle(&self) -> u32 {
        self.idle.values().sum()
    }
}

#[test]
fn two_users_get_equal_slot_time_although_one_has_longer_tasks_and_came_first() {
    for policy in NAMES {
        let mut w = World::new(policy, 2, 4);
        w.submit("ada", 900, &task("a"), 100 * MS);
        w.submit("bo", 300, &task("b"), 300 * MS);
        w.run_for(15_000 * MS);
        let ratio = w.had("ada") / w.had("bo");
        assert!((0.9..1.1).contains(&ratio), "{policy}: {ratio}");
        let all = (w.had("ada") + w.had("bo")) / (15_000.0 * MS as f64 * 8.0);
        assert!(all > 0.97, "{policy}: slots were idle, {all}");
    }
}

#[test]
fn weights_divide_the_slots() {
    for policy in NAMES {
        let mut w = World::new(policy, 2, 4);
        w.c.feed(Event::WeightSet { user: "ada".into(), weight: 3 });
        w.submit("ada", 900, &task("a"), 100 * MS);
        w.submit("bo", 900, &task("b"), 100 * MS);
        w.submit("cy", 900, &task("c"), 100 * MS);
        w.run_for(15_000 * MS);
        for (user, part) in [("ada", 0.6), ("bo", 0.2), ("cy", 0.2)] {
            let had = w.had(user) / (w.had("ada") + w.had("bo") + w.had("cy"));
            assert!((had - part).abs() < 0.03, "{policy}: {user} had {had}");
        }
    }
}

#[test]
fn a_user_who_comes_later_does_not_wait_behind_a_long_queue() {
    for policy in NAMES {
        let mut w = World::new(policy, 2, 4);
        w.submit("ada", 1_000, &task("a"), 100 * MS);
        w.run_for(2_000 * MS);
        let (at, first) = (w.c.now, w.next_task);
        w.submit("bo", 8, &task("b"), 100 * MS);
        w.run_for(2_000 * MS);
        let last = (first..first + 8).map(|task| w.began_at.get(&task).copied()).max().unwrap();
        let waited = last.expect("all of them began").since_ns(at) / MS;
        // What was given out ahead runs first: one task for each slot.
        assert!(waited <= 300, "{policy}: the last of them began after {waited} ms");
    }
}

#[test]
fn long_tasks_share_idle_nodes_from_the_beginning() {
    for policy in NAMES {
        let mut w = World::with(policy, 10, 4, Equipment::default(), |config| {
            config.placement_config.ahead = false;
        });
        // Nobody begins before both are there.
        w.c.run_of("cy", &[array_of(40, &task("hold"))]);
        (w.runs, w.next_task) = (vec![(0, "cy", 1000 * MS)], 40);
        w.begin();
        w.submit("ada", 400, &task("a"), 3_600_000 * MS);
        w.submit("bo", 400, &task("b"), 3_600_000 * MS);
        w.run_for(1_500 * MS);
        let begun = (w.n_begun["ada"], w.n_begun["bo"]);
        assert!(begun.0 + begun.1 == 40 && begun.0.abs_diff(begun.1) <= 2, "{policy}: {begun:?}");
    }
}

#[test]
fn slots_are_not_kept_idle_for_a_user_whose_tasks_do_not_fit() {
    for policy in NAMES {
        let equipment = Equipment { gpus: 1, resources: BTreeMap::new() };
        let mut w = World::with(policy, 2, 4, equipment, |_| ());
        w.submit("ada", 1000, &task("a"), 100 * MS);
        w.submit("bo", 200, &task("b").gpus(PARTS), 100 * MS);
        w.run_for(8_000 * MS);
        let parts = [w.had("ada"), w.had("bo")].map(|had| had / (8_000.0 * MS as f64 * 8.0));
        // Two of the eight slots have a gpu, and nothing else can be done with them for this user.
        assert!(parts[0] > 0.7 && parts[1] > 0.2, "{policy}: {parts:?}");
    }
}

/// Two hours would be the wait behind what runs and what was given out ahead.
#[test]
fn what_was_given_ahead_is_taken_back_for_another_user_if_it_is_long() {
    let mut w = World::new("affinity", 2, 2);
    w.submit("ada", 100, &task("a"), 3_600_000 * MS);
    w.run_for(60_000 * MS);
    let first = w.next_task;
    w.submit("bo", 4, &task("b"), 1000 * MS);
    w.c.wait(2);
    w.begin();
    w.run_for(2 * 3_600_000 * MS);
    let began = (first..first + 4).filter_map(|task| w.began_at.get(&task)).max().expect("they began");
    assert!(began.0 < 3_700_000 * MS, "{began:?}");
}

#[test]
fn use_of_the_past_counts_and_is_forgotten() {
    let mut w = World::new("affinity", 1, 4);
    w.submit("ada", 3_000, &task("a"), 10_000 * MS);
    w.run_for(600_000 * MS);
    w.submit("bo", 2_000, &task("b"), 10_000 * MS);
    let before = w.had("ada");
    w.run_for(300_000 * MS);
    assert!(w.had("ada") - before < 100_000.0 * MS as f64, "who had ten minutes waits");
    // What both had until then is the same a while later.
    w.run_for(2_000_000 * MS);
    let shares: BTreeMap<String, u64> =
        w.c.core.user_shares().map(|s| (s.name.to_string(), s.used_slot_ns)).collect();
    let ratio = shares["ada"] as f64 / shares["bo"] as f64;
    assert!((0.95..1.05).contains(&ratio), "{shares:?}");
    // A day without work.
    w.c.cancel(eyas_terms::RunId(1), None).cancel(eyas_terms::RunId(2), None);
    w.begin();
    w.run_for(24 * 3_600_000 * MS);
    w.c.feed(Event::Ticked);
    let left = w.c.core.user_shares().map(|s| s.used_slot_ns).max().unwrap();
    assert!(left < MS, "{left} slot-ns are left");
}

/// Ten hours alone are not ten hours of waiting.
#[test]
fn whoever_had_the_cluster_alone_for_long_does_not_wait_for_as_long() {
    let mut w = World::new("affinity", 1, 4);
    w.submit("ada", 5_000, &task("a"), 60_000 * MS);
    w.run_for(10 * 3_600_000 * MS);
    w.submit("bo", 3_000, &task("b"), 60_000 * MS);
    let before = w.had("ada");
    w.run_for(2_400_000 * MS);
    let (ada, bo) = (w.had("ada") - before, w.had("bo"));
    // Ten minutes of all slots are Bo's alone; of the other thirty each has a half.
    assert!(ada > 0.25 * (ada + bo) && bo > ada, "ada {ada}, bo {bo}");
}

#[test]
fn one_user_has_the_whole_queue_again_when_the_others_are_gone() {
    let mut w = World::new("affinity", 1, 2);
    w.submit("ada", 2_000, &task("a"), 1000 * MS);
    let why = |w: &World| match w.c.state(1_999) {
        TaskState::Ready { reason } => reason.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert!(!why(&w).contains("for their weight"), "{}", why(&w));
    w.submit("bo", 10, &task("b"), 1000 * MS);
    assert_eq!(
        why(&w),
        "slots go to user `bo` first, who has had less of the cluster for their weight than user `ada`"
    );
    w.run_for(10_000 * MS);
    assert_eq!(w.n_begun["bo"], 10);
    w.run_for(700_000 * MS);
    assert!(!why(&w).contains("for their weight"), "{}", why(&w));
}

/// The time of a task that fits nowhere goes on while it is another user's turn and the task is in no queue.
#[test]
fn what_fits_nowhere_fails_after_a_grace_whoever_has_the_turn() {
    for policy in NAMES {
        let mut w = World::new(policy, 1, 2);
        w.submit("ada", 1, &task("never").cpus(9), MS);
        for owner in ["ada", "bo"] {
            w.submit(owner, 3_000, &task("t"), 200 * MS);
        }
        // Turns change several times a second; the core is ticked as often as a live one.
        for _ in 0..40 {
            w.run_for(500 * MS);
            w.c.feed(Event::Ticked);
            w.begin();
        }
        let state = w.c.core.task_state(TaskId(0));
        assert_eq!(state, TaskState::Failed, "{policy}");
    }
}

/// Whatever users submit, cancel and lose: no task is lost, no slot is idle while a task fits, and the books agree
/// ([`Cluster::feed`] checks them after each event).
#[test]
fn random_users_lose_nothing_and_leave_no_slot_idle() {
    let n_seeds = std::env::var("EYAS_SHARES").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..n_seeds {
        let mut rng = Rng::new(seed);
        let policy = NAMES[rng.below(NAMES.len() as u64) as usize];
        let mut w = World::new(policy, 1 + rng.below(3) as u32, 1 + rng.below(4) as u32);
        let mut n_tasks = 0;
        for _ in 0..12 {
            let owner = ["", "ada", "bo", "cy"][rng.below(4) as usize];
            let n = 1 + rng.below(30) as u32;
            let like = task("t").priority(rng.below(3) as i32);
            let ns = (1 + rng.below(400)) * MS;
            n_tasks += u64::from(n);
            w.submit(owner, n, &like, ns);
            if rng.below(3) == 0 {
                w.c.feed(Event::WeightSet { user: owner.into(), weight: 1 + rng.below(5) as u32 });
                w.begin();
            }
            w.run_for(rng.below(800) * MS);
            let n_ready = w.c.core.n_ready();
            assert!(
                n_ready == 0 || w.n_idle() == 0,
                "seed {seed}, {policy}: {n_ready} ready, slots are idle"
            );
        }
        w.run_for(3_600_000 * MS);
        let n_begun: u64 = w.n_begun.values().sum();
        assert_eq!((n_begun, w.c.core.n_ready()), (n_tasks, 0), "seed {seed}, {policy}");
    }
}
