//! A small cluster around the real dispatcher: fake executors with caches, seeded bad weather, and the log
//! that a live dispatcher would have written.

#![allow(dead_code)] // each test file uses its part

use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_core::log::*;
use eyas_terms::array::*;
use eyas_terms::location::CatalogLocation;
use eyas_terms::rng::Rng;
use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;
/// Where the clock starts: 2026-11-21 20:30:00 UTC.
pub const START: Timestamp = Timestamp(1_795_293_000 * S);

/// How the fake cluster behaves.
#[derive(Clone)]
pub struct Weather {
    pub fail_per_cent: u64,
    pub lose_per_cent: u64,
    pub cancel_per_cent: u64,
    pub run_ns: u64,
}

pub const FAIR: Weather = Weather { fail_per_cent: 0, lose_per_cent: 0, cancel_per_cent: 0, run_ns: 50 * MS };
pub const ROUGH: Weather =
    Weather { fail_per_cent: 10, lose_per_cent: 2, cancel_per_cent: 2, run_ns: 50 * MS };

struct Node {
    name: String,
    slots: u32,
    free: Vec<Timestamp>,
    cache: BTreeSet<String>,
    /// Until when a fetch is under way.
    fetching: BTreeMap<String, Timestamp>,
    has: BTreeMap<TaskId, AttemptNo>,
}

enum Word {
    Ended(Box<AttemptReport>, Vec<(String, CacheOutcome, u64)>),
    /// The outputs are home; the executor reports its end once more to a dispatcher that does not know it.
    Home(Box<AttemptReport>, Vec<(String, CacheOutcome, u64)>),
    Holds(RunId, Vec<String>),
}

pub struct Cluster {
    pub core: Dispatcher,
    pub config: DispatcherConfig,
    pub now: Timestamp,
    pub log: Vec<u8>,
    pub printed: Vec<u8>,
    pub rng: Rng,
    pub weather: Weather,
    nodes: BTreeMap<ExecutorId, Node>,
    words: BTreeMap<(Timestamp, u64), (ExecutorId, Word)>,
    n_words: u64,
    next_executor: u32,
    next_run: u32,
    submitted: Vec<Event>,
    /// Tasks whose programs run so much longer than others.
    pub longer_ns: BTreeMap<TaskId, u64>,
    /// Attempts that were given up: what of them is in the journal, and what is on its way there.
    given_up: Vec<(TaskId, AttemptNo)>,
    unrecorded: Vec<(TaskId, AttemptNo)>,
    gives_out: bool,
    ends: Vec<(TaskId, Outcome)>,
}

pub fn size_of(location: &str) -> u64 {
    1_000_000 + location.bytes().map(u64::from).sum::<u64>() * 1000
}

pub fn digest_of(location: &str) -> Digest {
    let mut digest = [7; 32];
    location.bytes().enumerate().for_each(|(i, b)| digest[i % 32] ^= b.rotate_left(i as u32 / 32));
    Digest(digest)
}

impl Cluster {
    pub fn new(placement: &str, seed: u64, weather: Weather) -> Cluster {
        let config = DispatcherConfig { placement: placement.into(), ..DispatcherConfig::default() };
        Cluster::with(config, seed, weather)
    }

    pub fn with(config: DispatcherConfig, seed: u64, weather: Weather) -> Cluster {
        let mut cluster = Cluster {
            core: Dispatcher::new(config.clone()).unwrap(),
            config,
            now: START,
            log: vec![],
            printed: vec![],
            rng: Rng::new(seed),
            weather,
            nodes: BTreeMap::new(),
            words: BTreeMap::new(),
            n_words: 0,
            next_executor: 0,
            next_run: 1,
            submitted: vec![],
            longer_ns: BTreeMap::new(),
            given_up: vec![],
            unrecorded: vec![],
            gives_out: false,
            ends: vec![],
        };
        cluster.header();
        cluster
    }

    fn header(&mut self) {
        let header = Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: "0.1.0".into(),
            t: self.now,
            config: self.config.clone(),
            cluster: "test".into(),
            is_cut: false,
        };
        self.write(&header);
    }

    fn write(&mut self, value: &impl serde::Serialize) {
        serde_json::to_writer(&mut self.log, value).unwrap();
        self.log.push(b'\n');
    }

    pub fn save(&self, dir: &Path) {
        std::fs::write(dir.join(EVENTS_FILE), &self.log).unwrap();
        std::fs::write(dir.join(PRINTED_FILE), &self.printed).unwrap();
    }

    pub fn feed(&mut self, event: Event) {
        if matches!(event, Event::RunOpened { .. } | Event::ArrayAdded { .. } | Event::RunCommitted { .. }) {
            self.submitted.push(event.clone());
        }
        let mut actions = vec![];
        self.core.handle(self.now, event.clone(), &mut actions);
        if event != Event::Ticked || !actions.is_empty() {
            self.write(&Line { t: self.now, what: What::In(event) });
        }
        for action in actions {
            self.write(&Line { t: self.now, what: What::Out(action.clone()) });
            self.carry_out(action);
        }
        // The journal of this world takes no time.
        for (task, attempt) in std::mem::take(&mut self.unrecorded) {
            self.given_up.push((task, attempt));
            self.feed(Event::AttemptGivenUp { task, attempt });
        }
        if std::mem::take(&mut self.gives_out) {
            self.feed(Event::GivesOut);
        }
    }

    pub fn join(&mut self, name: &str, slots: u32) -> ExecutorId {
        self.next_executor += 1;
        let executor = ExecutorId(self.next_executor);
        let node = Node {
            name: name.into(),
            slots,
            free: vec![self.now; slots as usize],
            cache: BTreeSet::new(),
            fetching: BTreeMap::new(),
            has: BTreeMap::new(),
        };
        self.nodes.insert(executor, node);
        self.feed(Event::ExecutorJoined { executor, offer: self.offer(executor) });
        executor
    }

    fn offer(&self, executor: ExecutorId) -> Offer {
        let node = &self.nodes[&executor];
        let held = |location: &String| HeldObject {
            digest: digest_of(location),
            size_bytes: size_of(location),
            origin: Some((
                location.clone(),
                HomeVersion { size_bytes: size_of(location), stamp: "1".into() },
            )),
        };
        Offer {
            name: node.name.clone(),
            slots: node.slots,
            equipment: Default::default(),
            nearby: Default::default(),
            exchanges: false,
            walltime: None,
            memory_bytes: 1 << 30,
            cache_bytes: 1 << 30,
            cache_memory_bytes: 0,
            held: node.cache.iter().map(held).collect(),
            attempts: node.has.iter().map(|(t, a)| (*t, *a)).collect(),
            owner: None,
        }
    }

    pub fn submit(&mut self, name: &str, arrays: Vec<TaskArray>) -> RunId {
        let run = RunId(self.next_run);
        self.next_run += 1;
        self.feed(Event::RunOpened { run, name: name.into(), keep: false, into: None });
        for array in arrays {
            self.now = self.now.plus_ns(MS);
            self.feed(Event::ArrayAdded { run, array: Arc::new(array) });
        }
        self.now = self.now.plus_ns(MS);
        self.feed(Event::RunCommitted { run });
        run
    }

    pub fn lose(&mut self, executor: ExecutorId, reason: &str) {
        self.nodes.remove(&executor);
        self.words.retain(|_, (of, _)| *of != executor);
        self.feed(Event::ExecutorLost { executor, reason: reason.into() });
    }

    /// Its connection breaks, and it never says anything again.
    pub fn silence(&mut self, executor: ExecutorId) {
        self.nodes.remove(&executor);
        self.words.retain(|_, (of, _)| *of != executor);
        self.feed(Event::ExecutorSilent { executor });
    }

    /// The journal did not come to keep the last end.
    pub fn forget_last_end(&mut self) {
        self.ends.pop();
    }

    /// The dispatcher is killed in the middle of a line and another one goes on.
    pub fn restart(&mut self, torn: &[u8]) {
        self.log.extend_from_slice(torn);
        self.now = self.now.plus_ns(2 * S);
        self.core = Dispatcher::new(self.config.clone()).unwrap();
        self.header();
        let submitted = std::mem::take(&mut self.submitted);
        let (commits, others): (Vec<_>, Vec<_>) =
            submitted.into_iter().partition(|e| matches!(e, Event::RunCommitted { .. }));
        others.into_iter().for_each(|e| self.feed(e));
        for (task, outcome) in self.ends.clone() {
            self.feed(Event::TaskRestored { task, outcome, outputs: vec![] });
        }
        for (task, attempt) in self.given_up.clone() {
            self.feed(Event::AttemptGivenUp { task, attempt });
        }
        commits.into_iter().for_each(|e| self.feed(e));
        // Executors get other numbers now; what they are about to say goes with them.
        let old = std::mem::take(&mut self.nodes);
        let mut renumbered = BTreeMap::new();
        self.next_executor = 0;
        for (was, node) in old.into_iter().rev() {
            self.next_executor += 1;
            let is = ExecutorId(self.next_executor);
            renumbered.insert(was, is);
            self.nodes.insert(is, node);
        }
        for (executor, word) in self.words.values_mut() {
            *executor = renumbered[executor];
            if let Word::Home(report, inputs) = word {
                *word = Word::Ended(report.clone(), inputs.clone());
            }
        }
        let all: Vec<ExecutorId> = self.nodes.keys().copied().collect();
        for executor in all {
            self.feed(Event::ExecutorJoined { executor, offer: self.offer(executor) });
        }
    }

    /// All nodes are killed together with the dispatcher, so nobody tells the one that goes on of their attempts.
    pub fn restart_without_nodes(&mut self) {
        self.nodes.clear();
        self.words.clear();
        self.restart(b"");
    }

    /// Lets time pass until nothing more happens or `until` is reached.
    pub fn go(&mut self, until: Option<Timestamp>) {
        while let Some(entry) = self.words.first_entry() {
            let t = entry.key().0;
            if until.is_some_and(|u| t > u) {
                break;
            }
            let (executor, word) = entry.remove();
            self.now = self.now.max(t);
            self.say(executor, word);
            let dice = self.rng.below(100);
            if dice < self.weather.lose_per_cent && self.nodes.len() > 1 {
                let at = self.rng.below(self.nodes.len() as u64) as usize;
                let victim = *self.nodes.keys().nth(at).unwrap();
                let name = self.nodes[&victim].name.clone();
                self.lose(victim, "its process was killed by signal 9");
                self.now = self.now.plus_ns(5 * MS);
                self.join(&format!("{name}'"), 2);
            } else if dice < self.weather.lose_per_cent + self.weather.cancel_per_cent {
                let task = TaskId(self.rng.below(20));
                if self.core.work().has_task(task) {
                    let run = self.core.work().run_of(task);
                    self.feed(Event::CancelRequested { run, task: Some(task) });
                }
            }
        }
    }

    fn later(&mut self, t: Timestamp, executor: ExecutorId, word: Word) {
        self.n_words += 1;
        self.words.insert((t, self.n_words), (executor, word));
    }

    fn say(&mut self, executor: ExecutorId, word: Word) {
        match word {
            Word::Ended(mut report, inputs) => {
                // Object numbers are this life's.
                let find = |core: &Dispatcher, location: &str| {
                    core.work().catalog().find(CatalogLocation::of(location))
                };
                report.inputs = inputs
                    .iter()
                    .filter_map(|(location, outcome, wait_ns)| {
                        let object = find(&self.core, location)?;
                        let size_bytes = size_of(location);
                        Some(InputReport { object, outcome: *outcome, size_bytes, wait_ns: *wait_ns })
                    })
                    .collect();
                let node = self.nodes.get_mut(&executor).expect("a lost node says nothing");
                if node.has.get(&report.task) != Some(&report.attempt) {
                    return;
                }
                let lands = report.outcome == Outcome::Done && !report.outputs.is_empty();
                if lands {
                    let again = Word::Home(report.clone(), inputs);
                    self.later(self.now.plus_ns(7 * MS), executor, again);
                } else {
                    node.has.remove(&report.task);
                }
                self.feed(Event::AttemptEnded { executor, report: report.into() });
            }
            Word::Home(report, _) => {
                let (task, attempt) = (report.task, report.attempt);
                self.nodes.get_mut(&executor).unwrap().has.remove(&task);
                self.feed(Event::OutputsHome { executor, task, attempt, result: Ok(()) });
            }
            Word::Holds(run, locations) => {
                let node = self.nodes.get_mut(&executor).unwrap();
                let mut added = vec![];
                for location in locations {
                    node.cache.insert(location.clone());
                    let Some(object) = self.core.work().catalog().find(CatalogLocation::of(&location)) else {
                        continue;
                    };
                    let size_bytes = size_of(&location);
                    let version = Some(HomeVersion { size_bytes, stamp: "1".into() });
                    let digest = digest_of(&location);
                    added.push(ReplicaAdded {
                        object,
                        digest,
                        size_bytes,
                        version,
                        run: Some(run),
                        private: false,
                    });
                }
                self.feed(Event::ReplicasChanged { executor, added, dropped: vec![] });
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Assign { executor, assignment } => self.on_assign(executor, *assignment),
            Action::CancelAttempt { executor, task, attempt } => {
                let Some(node) = self.nodes.get(&executor) else { return };
                if node.has.get(&task) == Some(&attempt) {
                    let report = AttemptReport {
                        task,
                        attempt,
                        outcome: Outcome::Cancelled,
                        times: Times::default(),
                        in_memory: vec![],
                        inputs: vec![],
                        outputs: vec![],
                        cpu_ns: 0,
                        rss_bytes_max: 0,
                        left: None,
                    };
                    self.later(self.now.plus_ns(MS), executor, Word::Ended(Box::new(report), vec![]));
                }
            }
            Action::EndTask { task, outcome, .. } => self.ends.push((task, outcome)),
            Action::RecordGivenUp { task, attempt } => self.unrecorded.push((task, attempt)),
            Action::RecordGivesOut => self.gives_out = true,
            _ => {}
        }
    }

    fn on_assign(&mut self, executor: ExecutorId, assignment: Assignment) {
        let spec = self.core.work().task_spec(assignment.task);
        let received = self.now.plus_ns(MS);
        let node = self.nodes.get_mut(&executor).expect("assigned to a node that is there");
        node.has.insert(assignment.task, assignment.attempt);
        let mut ready = received;
        let (mut inputs, mut fetched) = (vec![], vec![]);
        for (input, (_, location)) in assignment.inputs.iter().zip(&spec.inputs) {
            let (outcome, wait_ns) = if input.direct {
                (CacheOutcome::Direct, 40 * MS)
            } else if node.fetching.get(location).is_some_and(|until| *until > received) {
                (CacheOutcome::Joined, node.fetching[location].since_ns(received))
            } else if node.cache.contains(location) || node.fetching.contains_key(location) {
                (CacheOutcome::LocalHit, 0)
            } else if let Some(from) = input.sources.first() {
                (CacheOutcome::RemoteHit { from: *from }, 10 * MS)
            } else {
                (CacheOutcome::Miss, 40 * MS)
            };
            if matches!(outcome, CacheOutcome::Miss | CacheOutcome::RemoteHit { .. }) {
                node.fetching.insert(location.clone(), received.plus_ns(wait_ns));
                fetched.push(location.clone());
            }
            ready = ready.max(received.plus_ns(wait_ns));
            inputs.push((location.clone(), outcome, wait_ns));
        }
        let slot = (0..node.free.len()).min_by_key(|i| node.free[*i]).unwrap();
        let started = ready.max(node.free[slot]);
        let run_ns = self.weather.run_ns + u64::from(assignment.task.0 as u32 % 7) * MS;
        let run_ns = run_ns + self.longer_ns.get(&assignment.task).copied().unwrap_or(0);
        let exited = started.plus_ns(run_ns);
        node.free[slot] = exited;
        let failed = self.rng.below(100) < self.weather.fail_per_cent;
        let outcome = match failed {
            true => {
                Outcome::Failed(Failure { kind: FailureKind::ExitCode(3), message: "exit status 3".into() })
            }
            false => Outcome::Done,
        };
        let outputs = match failed {
            true => vec![],
            false => (0..assignment.outputs.len() as u32)
                .map(|output| OutputReport {
                    output,
                    digest: Digest::default(),
                    size_bytes: 1000,
                    marks: None,
                })
                .collect(),
        };
        let report = AttemptReport {
            task: assignment.task,
            attempt: assignment.attempt,
            outcome,
            times: Times { received, inputs_ready: ready, started, exited },
            in_memory: vec![],
            inputs: vec![],
            outputs,
            cpu_ns: run_ns / 2,
            rss_bytes_max: 20 << 20,
            left: None,
        };
        if failed {
            let text = format!("line one\nno such column `mag` in task {}\n", assignment.task);
            let stderr = PrintedStream {
                head: text.as_str().into(),
                total_bytes: text.len() as u64,
                ..PrintedStream::default()
            };
            let line = PrintedLine {
                task: assignment.task,
                attempt: assignment.attempt,
                stdout: PrintedStream::default(),
                stderr,
            };
            serde_json::to_writer(&mut self.printed, &line).unwrap();
            self.printed.push(b'\n');
        }
        if !fetched.is_empty() {
            self.later(ready, executor, Word::Holds(assignment.run, fetched));
        }
        self.later(exited.plus_ns(MS), executor, Word::Ended(Box::new(report), inputs));
    }
}

/// `n` tasks named `name-0 …` that each read `sky/f<i % n_files>` and write one output.
pub fn map(name: &str, n: u32, n_files: u32, retries: u32) -> TaskArray {
    let mut files = Column::default();
    (0..n).for_each(|i| assert!(files.push(&format!("sky/f{}", i % n_files))));
    let literal = |s: &str| Piece::Literal(s.into());
    TaskArray {
        n_tasks: n,
        first_index: 0,
        needs: None,
        columns: vec![files],
        template: TaskForm {
            inputs: vec![(Pattern::literal("in"), Pattern::column(0))],
            outputs: vec![(
                Pattern::literal("out"),
                Pattern(vec![literal("out/"), literal(name), Piece::Index]),
            )],
            retries,
            ..TaskForm::new(
                Pattern(vec![literal(name), literal("-"), Piece::Index]),
                Command::Exec(vec![Pattern::literal("cut"), Pattern::literal("in put")]),
            )
        },
    }
}

/// The whole story of one seed: two runs, two nodes at first, whatever weather.
pub fn story(placement: &str, seed: u64, weather: Weather) -> Cluster {
    let mut cluster = Cluster::new(placement, seed, weather);
    cluster.join("n1", 2);
    cluster.join("n2", 2);
    cluster.submit("first", vec![map("a", 30, 7, 1), map("b", 10, 3, 0)]);
    cluster.go(Some(START.plus_ns(200 * MS)));
    cluster.submit("second", vec![map("c", 12, 5, 2)]);
    cluster.join("n3", 2);
    cluster.go(None);
    cluster
}
