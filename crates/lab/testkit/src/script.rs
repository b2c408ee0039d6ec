//! Drives one state machine by a script: the test feeds it events, and then states exactly which actions came
//! out.
//!
//! Actions are compared in a short written form, so that an expectation reads like a story and a change of
//! the types touches one place. [`Cluster::expect`] and [`NodeScript::expect`] take *all* actions since the
//! last call. A missing action, an additional one or another order fails the test, and so does a script that
//! ends with unexpected actions. The invariants are checked after every event.

use crate::build::Task;
use crate::home::digest_of;
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::group::{Carried, FileState, LinkMessage, SharedFile};
use eyas_core::home_share::HomeShare;
use eyas_terms::array::TaskArray;
use eyas_terms::needs::{Equipment, Needs};
use eyas_terms::*;
use std::sync::Arc;

const S: u64 = 1_000_000_000;

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".into(),
        Outcome::Failed(failure) => format!("failed {:?}", failure.kind),
        Outcome::Cancelled => "cancelled".into(),
    }
}

fn message_text(message: &LinkMessage) -> String {
    let names =
        |files: &[SharedFile]| files.iter().map(|f| f.location.as_str()).collect::<Vec<_>>().join(" ");
    match message {
        LinkMessage::Reads { files, settled } => format!("reads [{}] settled {settled:?}", names(files)),
        LinkMessage::Subscribed { files } => format!("subscribed [{}]", names(files)),
        LinkMessage::Unsubscribed { files } => format!("unsubscribed [{}]", names(files)),
        LinkMessage::Settled { run } => format!("settled {run}"),
        LinkMessage::Carry { file } => format!("carry {}", file.location),
        LinkMessage::Missed { file, .. } => format!("missed {}", file.location),
        LinkMessage::File { file, state } => {
            let state = match state {
                FileState::Expected => "expected".into(),
                FileState::AtHome => "at home".into(),
                FileState::Held { holders, carried, .. } => {
                    let holders: Vec<String> = holders.iter().map(|h| h.to_string()).collect();
                    let carried = match carried {
                        Carried::No => "",
                        Carried::Yes => ", carried",
                        Carried::Never => ", not to be carried",
                    };
                    format!("on {}{carried}", holders.join(" "))
                }
                FileState::Never { .. } => "never".to_string(),
            };
            format!("{} {state}", file.location)
        }
    }
}

fn check(actual: &mut Vec<String>, expected: &[&str]) {
    let actual = std::mem::take(actual);
    assert_eq!(actual, expected, "all actions since the last expectation");
}

/// A version of an object at home, for tests; versions with equal stamps are equal.
pub fn version(stamp: &str, size_bytes: u64) -> HomeVersion {
    HomeVersion { size_bytes, stamp: stamp.into() }
}

/// A dispatcher that a test drives. Time stands still unless [`Cluster::wait`] lets it pass.
pub struct Cluster {
    pub core: Dispatcher,
    pub now: Timestamp,
    next_run: u32,
    actions: Vec<String>,
    /// The latest assignments, for tests that need more than the short form.
    pub assignments: Vec<Assignment>,
    /// Patterns that were reported; the driver need not act on them.
    pub found: Vec<String>,
    /// Messages that were sent to other dispatchers of the group.
    pub to_members: Vec<(MemberId, LinkMessage)>,
    /// The journal's disk takes no writes: records are listed, and wait for [`Cluster::on_disk`].
    pub journal_waits: bool,
    unrecorded: Vec<(TaskId, AttemptNo)>,
    gives_out_unrecorded: bool,
}

impl Cluster {
    /// With the policy `max-compute-util`, so that a task waits for no executor.
    pub fn new() -> Cluster {
        Cluster::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut DispatcherConfig)) -> Cluster {
        let mut config =
            DispatcherConfig { placement: "max-compute-util".into(), ..DispatcherConfig::default() };
        change(&mut config);
        Cluster {
            core: Dispatcher::new(config).expect("a known policy"),
            now: Timestamp(S),
            next_run: 1,
            actions: vec![],
            assignments: vec![],
            found: vec![],
            to_members: vec![],
            journal_waits: false,
            unrecorded: vec![],
            gives_out_unrecorded: false,
        }
    }

    /// One event; its actions wait for [`Cluster::expect`].
    pub fn feed(&mut self, event: Event) {
        let mut out = vec![];
        let reported = event.reported();
        let joined = match &event {
            Event::ExecutorJoined { executor, .. } => Some(*executor),
            _ => None,
        };
        self.core.handle(self.now, event, &mut out);
        self.core.sanity_check();
        if let Some(reported) = reported {
            self.check_answer(reported, &out);
        }
        if let Some(joined) = joined {
            let is_first =
                |a: &Action| matches!(a, Action::ShareHome { executor, .. } if *executor == joined);
            assert!(
                out.iter().any(is_first),
                "{joined} joined and hears nothing of its share of home: {out:?}"
            );
        }
        for action in out {
            if action == Action::RecordGivesOut {
                self.gives_out_unrecorded = true;
                if !self.journal_waits {
                    continue;
                }
            }
            if let Action::RecordGivenUp { task, attempt } = action {
                self.unrecorded.push((task, attempt));
                if !self.journal_waits {
                    continue;
                }
            }
            self.actions.push(match &action {
                Action::RecordGivenUp { task, attempt } => format!("record {task}.{attempt} given up"),
                Action::RecordGivesOut => "record that it gives out".into(),
                Action::Assign { executor, assignment } => {
                    format!("assign {}.{} to {executor}", assignment.task, assignment.attempt)
                }
                Action::RerunTask { executor, assignment } => {
                    format!("rerun {}.{} on {executor}", assignment.task, assignment.attempt)
                }
                Action::CancelAttempt { executor, task, attempt } => {
                    format!("cancel {task}.{attempt} on {executor}")
                }
                Action::RecallAttempt { executor, task, attempt } => {
                    format!("recall {task}.{attempt} from {executor}")
                }
                Action::NameObjects { executor, objects } => {
                    let names: Vec<&str> =
                        objects.iter().map(|o| self.core.work().location(*o).text()).collect();
                    format!("name {} to {executor}", names.join(" "))
                }
                Action::DropReplicas { executor, objects } => {
                    let catalog = self.core.work().catalog();
                    let name = |o: &ObjectId| match catalog.is_known(*o) {
                        true => catalog.location(*o).to_string(),
                        false => format!("forgotten {o}"),
                    };
                    let names: Vec<String> = objects.iter().map(name).collect();
                    format!("drop {} on {executor}", names.join(" "))
                }
                Action::Prefetch { executor, inputs, .. } => {
                    let names: Vec<&str> =
                        inputs.iter().map(|i| self.core.work().location(i.object).text()).collect();
                    format!("prefetch {} to {executor}", names.join(" "))
                }
                Action::RemoveParts { executor, attempts } => {
                    let list: Vec<String> = attempts.iter().map(|(t, a)| format!("{t}.{a}")).collect();
                    format!("remove parts of {} on {executor}", list.join(", "))
                }
                Action::FindPlaces { executor, objects } => {
                    let names: Vec<&str> =
                        objects.iter().map(|o| self.core.work().location(*o).text()).collect();
                    format!("ask {executor} where {} is", names.join(" "))
                }
                Action::ReadHome { executor, object, .. } => {
                    format!("read {} on {executor}", self.core.work().location(*object))
                }
                Action::ProbePeers { executor, peers } => format!("probe {peers:?} from {executor}"),
                Action::AddInput { executor, task, location, input, .. } => match input {
                    Ok(input) => format!("add {location} to {task} on {executor} from {:?}", input.sources),
                    Err(why) => format!("add no {location} to {task} on {executor}: {why}"),
                },
                Action::AdmitOutputs { executor, task, outputs, .. } => match outputs {
                    Ok(outputs) => format!("admit {} outputs of {task} on {executor}", outputs.len()),
                    Err(why) => format!("admit none of {task} on {executor}: {why}"),
                },
                // Checked above.
                Action::ShareHome { share: HomeShare::UNLIMITED, .. } => continue,
                Action::ShareHome { executor, share } => {
                    let rate = share.bytes_per_s.map_or("any rate".into(), |rate| format!("{rate} B/s"));
                    format!("share {rate}, {} streams with {executor}", share.streams)
                }
                Action::CancelPrefetch { executor, .. } => format!("cancel prefetch on {executor}"),
                Action::FoundPattern { evidence, .. } => {
                    self.found.push(evidence.to_string());
                    continue;
                }
                Action::EndCollective { .. } => "end collective".into(),
                Action::BeginPhase { executor: Some(executor) } => format!("begin phase on {executor}"),
                Action::BeginPhase { executor: None } => "begin phase".into(),
                Action::BeginPush { run, .. } => format!("begin push {run}"),
                Action::EndPush { record } => {
                    format!("end push {}: {} of {}", record.run, record.n_there, record.n_wanted)
                }
                Action::ReviveTask { task, lost } => {
                    format!("revive {task} for {}", self.core.work().location(*lost))
                }
                // Checked above.
                Action::ForgetAttempt { .. } => continue,
                Action::EndTask { task, outcome, .. } => format!("end {task} {}", outcome_text(outcome)),
                Action::RefuseRun { run, .. } => format!("refuse run {run}"),
                Action::EndRun { run } => format!("end run {run}"),
                Action::ForgetRun { run } => format!("forget run {run}"),
                Action::ForgetExecutor { executor } => format!("forget {executor}"),
                Action::DrainExecutor { executor, reason } => format!("drain {executor} because {reason}"),
                Action::TellMember { member, messages } => {
                    messages.iter().for_each(|m| self.to_members.push((*member, m.clone())));
                    format!(
                        "tell {member} {}",
                        messages.iter().map(message_text).collect::<Vec<_>>().join(", ")
                    )
                }
                Action::SendAway { executor, member } => format!("send {executor} to {member}"),
            });
            if let Action::Assign { assignment, .. } = action {
                self.assignments.push(*assignment);
            }
        }
        if !self.journal_waits {
            self.on_disk();
        }
    }

    /// Of an attempt that an executor reported, the actions say exactly one thing: that it ended its task, or that it can be
    /// forgotten; or its outputs are on their way home. Of no other attempt they say either.
    fn check_answer(&self, reported: (ExecutorId, TaskId, AttemptNo), out: &[Action]) {
        let (executor, task, attempt) = reported;
        let answered: Vec<(ExecutorId, TaskId, AttemptNo)> = out
            .iter()
            .filter_map(|action| match action {
                Action::EndTask { task, by, .. } => by.map(|(executor, attempt)| (executor, *task, attempt)),
                Action::ForgetAttempt { executor, task, attempt } => Some((*executor, *task, *attempt)),
                _ => None,
            })
            .collect();
        let is_landing = self.core.work().has_task(task)
            && self.core.task_state(task) == TaskState::Reserved { executor, attempt, landing: true };
        let expected = if is_landing { vec![] } else { vec![reported] };
        assert_eq!(answered, expected, "{executor} reported {task}.{attempt}: {out:?}");
    }

    /// The waiting records are now on the journal's disk.
    pub fn on_disk(&mut self) -> &mut Cluster {
        for (task, attempt) in std::mem::take(&mut self.unrecorded) {
            self.feed(Event::AttemptGivenUp { task, attempt });
        }
        if std::mem::take(&mut self.gives_out_unrecorded) {
            self.feed(Event::GivesOut);
        }
        self
    }

    /// Asserts that exactly these actions came out since the last call, in this order.
    pub fn expect(&mut self, actions: &[&str]) -> &mut Cluster {
        check(&mut self.actions, actions);
        self
    }

    /// The actions since the last call, in the short form of [`Cluster::expect`].
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.actions)
    }

    /// An executor with a cache, 1 GB of memory and nothing in it.
    pub fn node(&mut self, id: u32, slots: u32) -> &mut Cluster {
        self.join(id, slots, &[])
    }

    /// An executor joins, or joins again with these attempts.
    pub fn join(&mut self, id: u32, slots: u32, attempts: &[(u64, u32)]) -> &mut Cluster {
        let attempts = attempts.iter().map(|(t, a)| (TaskId(*t), AttemptNo(*a))).collect();
        self.offers(id, Offer { slots, attempts, cache_bytes: 1_000_000, ..Offer::default() })
    }

    /// An executor of that cache, with 1 GB of memory and nothing in it.
    pub fn node_with_cache(&mut self, id: u32, slots: u32, cache_bytes: u64) -> &mut Cluster {
        self.offers(id, Offer { slots, cache_bytes, ..Offer::default() })
    }

    /// An executor with these gpus and named resources, and 1 GB of memory.
    pub fn equipped(&mut self, id: u32, slots: u32, gpus: u32, resources: &[(&str, u32)]) -> &mut Cluster {
        let resources = resources.iter().map(|(name, n)| (name.to_string(), *n)).collect();
        let equipment = Equipment { gpus, resources };
        self.offers(id, Offer { slots, equipment, cache_bytes: 1_000_000, ..Offer::default() })
    }

    /// An executor with 1 GB of memory joins with the rest of this offer.
    pub fn offers(&mut self, id: u32, offer: Offer) -> &mut Cluster {
        let offer = Offer { name: format!("n{id}"), memory_bytes: 1_000_000_000, ..offer };
        self.feed(Event::ExecutorJoined { executor: ExecutorId(id), offer });
        self
    }

    /// A whole submission: one array per task.
    pub fn run(&mut self, tasks: &[Task]) -> RunId {
        let arrays: Vec<Arc<TaskArray>> = tasks.iter().map(Task::array).collect();
        let run = self.open(&arrays);
        self.feed(Event::RunCommitted { run });
        run
    }

    /// A submission that is not committed yet.
    pub fn open(&mut self, arrays: &[Arc<TaskArray>]) -> RunId {
        let run = RunId(self.next_run);
        self.next_run += 1;
        self.feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
        for array in arrays {
            self.feed(Event::ArrayAdded { run, array: array.clone() });
        }
        run
    }

    /// A whole submission of a user: one array for all tasks that are like the first one.
    pub fn run_of(&mut self, owner: &str, arrays: &[Arc<TaskArray>]) -> RunId {
        let run = self.open(&[]);
        self.feed(Event::RunOwned { run, owner: owner.into() });
        for array in arrays {
            self.feed(Event::ArrayAdded { run, array: array.clone() });
        }
        self.feed(Event::RunCommitted { run });
        run
    }

    pub fn cancel(&mut self, run: RunId, task: Option<u64>) -> &mut Cluster {
        self.feed(Event::CancelRequested { run, task: task.map(TaskId) });
        self
    }

    pub fn report(&mut self, (task, attempt): (u64, u32), outcome: Outcome) -> AttemptReport {
        let task = TaskId(task);
        let known = self.core.work().has_task(task);
        let spec = known.then(|| self.core.work().task_spec(task));
        let is_done = outcome == Outcome::Done;
        let outputs = spec.iter().filter(|_| is_done).flat_map(|s| &s.outputs).enumerate();
        let outputs = outputs.map(|(i, (_, location))| OutputReport {
            output: i as u32,
            digest: digest_of(location),
            size_bytes: 10,
            marks: None,
        });
        let times = Times { started: self.now, exited: self.now.plus_ns(S), ..Times::default() };
        let inputs = spec.iter().flat_map(|s| &s.inputs).filter_map(|(_, location)| {
            let object = self.core.work().catalog().find(CatalogLocation::of(location))?;
            Some(InputReport { object, outcome: CacheOutcome::Miss, size_bytes: 10, wait_ns: 0 })
        });
        AttemptReport {
            task,
            attempt: AttemptNo(attempt),
            outcome,
            times,
            inputs: inputs.collect(),
            in_memory: vec![],
            outputs: outputs.collect(),
            cpu_ns: 0,
            rss_bytes_max: 0,
            left: None,
        }
    }

    /// An executor reports that an attempt's program ended.
    pub fn ended(&mut self, executor: u32, attempt: (u64, u32), outcome: Outcome) -> &mut Cluster {
        let report = self.report(attempt, outcome);
        self.feed(Event::AttemptEnded { executor: ExecutorId(executor), report: report.into() });
        self
    }

    pub fn done(&mut self, executor: u32, attempt: (u64, u32)) -> &mut Cluster {
        self.ended(executor, attempt, Outcome::Done)
    }

    pub fn failed(&mut self, executor: u32, attempt: (u64, u32), kind: FailureKind) -> &mut Cluster {
        let message = String::new();
        self.ended(executor, attempt, Outcome::Failed(Failure { kind, message }))
    }

    /// An executor reports that an attempt's outputs are home, or why not.
    pub fn home(&mut self, executor: u32, (task, attempt): (u64, u32), ok: bool) -> &mut Cluster {
        let failure = Failure { kind: FailureKind::StageOut, message: String::new() };
        self.feed(Event::OutputsHome {
            executor: ExecutorId(executor),
            task: TaskId(task),
            attempt: AttemptNo(attempt),
            result: if ok { Ok(()) } else { Err(failure) },
        });
        self
    }

    pub fn silent(&mut self, executor: u32) -> &mut Cluster {
        self.feed(Event::ExecutorSilent { executor: ExecutorId(executor) });
        self
    }

    pub fn lost(&mut self, executor: u32) -> &mut Cluster {
        self.feed(Event::ExecutorLost { executor: ExecutorId(executor), reason: "of a test".into() });
        self
    }

    pub fn parts_removed(&mut self, executor: u32, tasks: &[u64]) -> &mut Cluster {
        let tasks = tasks.iter().copied().map(TaskId).collect();
        self.feed(Event::PartsRemoved { executor: ExecutorId(executor), tasks });
        self
    }

    /// An executor read `location` from home (`stamp` given) or got it from elsewhere; the digest follows
    /// from `bytes`.
    pub fn has(&mut self, executor: u32, location: &str, bytes: &str, stamp: Option<&str>) -> &mut Cluster {
        let object = self
            .core
            .work()
            .catalog()
            .find(CatalogLocation::of(location))
            .expect("a task that reads it was unfolded");
        let version = stamp.map(|s| version(s, 10));
        let core = &self.core;
        let is_there =
            |task: TaskId| (1..10).any(|n| core.has_attempt(ExecutorId(executor), task, AttemptNo(n)));
        // The report is for the first run whose tasks read the location.
        let mut runs = core.work().runs().map(|(run, _)| run);
        let run = version.as_ref().and_then(|_| runs.find(|run| core.work().tasks_of(*run, 0).any(is_there)));
        let (digest, size_bytes) = (digest_of(bytes), 10);
        let added = vec![ReplicaAdded { object, digest, size_bytes, version, run, private: false }];
        drop(runs);
        self.feed(Event::ReplicasChanged { executor: ExecutorId(executor), added, dropped: vec![] });
        self
    }

    /// Time passes, with a tick each second.
    pub fn wait(&mut self, seconds: u64) -> &mut Cluster {
        for _ in 0..seconds {
            self.now = self.now.plus_ns(S);
            self.feed(Event::Ticked);
        }
        self
    }

    pub fn state(&self, task: u64) -> TaskState {
        self.core.task_state(TaskId(task))
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check(&mut self.actions, &[]);
        }
    }
}

/// An executor that a test drives. Objects are identified by name; the first input or output of a name
/// creates the object.
pub struct NodeScript {
    pub core: Executor,
    pub now: Timestamp,
    names: Vec<String>,
    actions: Vec<String>,
    /// The latest reports of attempts' ends.
    pub reports: Vec<AttemptReport>,
}

/// One input of an assignment in a script.
#[derive(Clone, Debug)]
pub struct In {
    pub name: &'static str,
    pub known: Option<Known>,
    pub sources: Vec<u32>,
    pub check_home: bool,
    pub direct: bool,
    pub making: Making,
}

/// An input whose bytes are not known yet, so home is asked.
pub fn unknown(name: &'static str) -> In {
    In { name, known: None, sources: vec![], check_home: true, direct: false, making: Making::No }
}

/// An input whose bytes this run knows.
pub fn known(name: &'static str, bytes: &str, size_bytes: u64, sources: &[u32]) -> In {
    let known =
        Known { digest: digest_of(bytes), size_bytes, version: version(bytes, size_bytes), marks: None };
    In {
        name,
        known: Some(known),
        sources: sources.to_vec(),
        check_home: false,
        direct: false,
        making: Making::No,
    }
}

impl NodeScript {
    pub fn new(slots: u32, cache_bytes: u64) -> NodeScript {
        NodeScript::with(slots, cache_bytes, |_| ())
    }

    pub fn with(slots: u32, cache_bytes: u64, change: impl FnOnce(&mut ExecutorConfig)) -> NodeScript {
        let cache = CacheConfig { budget_bytes: cache_bytes, eviction: "lru".into(), seed: 1, groups: true };
        let mut config = ExecutorConfig {
            equipment: Default::default(),
            slots,
            cache,
            transfers_max: 8,
            transfers_per_peer_max: 2,
            home_streams_max: 4,
            inputs_in_turn: false,
            small_bytes_max: 0,
            small_per_peer_max: 0,
            memory: Default::default(),
        };
        change(&mut config);
        NodeScript {
            core: Executor::new(config).expect("a known policy"),
            now: Timestamp(S),
            names: vec![],
            actions: vec![],
            reports: vec![],
        }
    }

    pub fn object(&mut self, name: &str) -> ObjectId {
        let at = self.names.iter().position(|n| n == name).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        ObjectId(at as u32)
    }

    pub fn feed(&mut self, event: NodeEvent) {
        let mut out = vec![];
        self.core.handle(self.now, event, &mut out);
        self.core.sanity_check();
        for action in out {
            let text = self.text(&action);
            self.actions.push(text);
            if let NodeAction::Tell { message: NodeMessage::AttemptEnded { report } } = action {
                self.reports.push(Arc::unwrap_or_clone(report));
            }
        }
    }

    fn text(&self, action: &NodeAction) -> String {
        let name = |object: &ObjectId| self.names[object.0 as usize].as_str();
        match action {
            NodeAction::AskHome { object, .. } => format!("ask {}", name(object)),
            NodeAction::Fetch { object, packed: Some(packed), .. } => {
                format!("make {} of {}", name(object), name(packed))
            }
            NodeAction::Fetch { target, object, source, .. } => {
                let private = if matches!(target, Target::Private { .. }) { "private " } else { "" };
                match source {
                    Source::Home => format!("fetch {private}{} from home", name(object)),
                    Source::Peer(peer) => format!("fetch {private}{} from {peer}", name(object)),
                }
            }
            NodeAction::Evict { object } => format!("evict {}", name(object)),
            NodeAction::HoldInMemory { object } => format!("hold {} in memory", name(object)),
            NodeAction::LeaveMemory { object } => format!("{} leaves memory", name(object)),
            NodeAction::Start { task, attempt, .. } => format!("start {task}.{attempt}"),
            NodeAction::Kill { task, attempt } => format!("kill {task}.{attempt}"),
            NodeAction::Halt { task, attempt } => format!("halt {task}.{attempt}"),
            NodeAction::StoreOutput { object, cache_bytes, .. } => {
                format!("store {}{}", name(object), if cache_bytes.is_some() { " in the cache" } else { "" })
            }
            NodeAction::Land { object, cached, .. } => {
                format!("land {}{}", name(object), if *cached { " from the cache" } else { "" })
            }
            NodeAction::DropPrivate { task, attempt, input } => {
                format!("drop private {task}.{attempt} {input}")
            }
            NodeAction::CleanUp { task, attempt } => format!("clean {task}.{attempt}"),
            NodeAction::Bring { task, attempt, location, brought } => match brought {
                Ok((input, _)) => format!("bring {task}.{attempt} {location} {input}"),
                Err(error) => format!("bring {task}.{attempt} {location} not: {}", error.message),
            },
            NodeAction::Tell { message } => match message {
                NodeMessage::AttemptEnded { report } => {
                    format!("tell {}.{} {}", report.task, report.attempt, outcome_text(&report.outcome))
                }
                NodeMessage::OutputsHome { task, attempt, result } => {
                    format!("tell {task}.{attempt} {}", if result.is_ok() { "home" } else { "not home" })
                }
                NodeMessage::ReplicaAdded(added) => format!("tell has {}", name(&added.object)),
                NodeMessage::ReplicaDropped(object) => format!("tell lost {}", name(object)),
                NodeMessage::PrefetchFailed { object, .. } => format!("tell not fetched {}", name(object)),
                NodeMessage::CacheResized { cache_bytes } => format!("tell cache of {cache_bytes}"),
                NodeMessage::InputMoved(moved) => {
                    format!("tell {} bytes of {}", moved.moved_bytes, name(&moved.object))
                }
                NodeMessage::PartsRemoved { tasks } => format!("tell no parts of {tasks:?}"),
                NodeMessage::PlacesFound { asked, .. } => format!("tell places of {} files", asked.len()),
                NodeMessage::HomeNotRead { object, .. } => format!("tell not read {}", name(object)),
                NodeMessage::PeerUnreachable { peer } => format!("tell no way to {peer}"),
                NodeMessage::PeersProbed { round_trips } => format!("tell {} round trips", round_trips.len()),
                NodeMessage::FileOpened { task, attempt, location } => {
                    format!("tell {task}.{attempt} opened {location}")
                }
                NodeMessage::FilesMade { task, attempt, locations } => {
                    format!("tell {task}.{attempt} made {}", locations.join(" "))
                }
            },
        }
    }

    /// Asserts that exactly these actions came out since the last call, in this order.
    pub fn expect(&mut self, actions: &[&str]) -> &mut NodeScript {
        check(&mut self.actions, actions);
        self
    }

    /// Gives attempt 1 of `task` to the executor.
    pub fn assign(&mut self, task: u64, inputs: &[In], outputs: &[&str]) -> &mut NodeScript {
        self.assign_for(task, 1, 1, inputs, outputs)
    }

    pub fn assign_for(
        &mut self,
        task: u64,
        run: u32,
        cpus: u32,
        inputs: &[In],
        outputs: &[&str],
    ) -> &mut NodeScript {
        let assignment = self.assignment(task, run, cpus, inputs, outputs);
        self.feed(NodeEvent::Assigned { assignment: Box::new(assignment) });
        self
    }

    /// Gives attempt 1 of `task`, which needs more than slots, to the executor.
    pub fn assign_needing(&mut self, task: u64, cpus: u32, needs: Needs) -> &mut NodeScript {
        let assignment =
            Assignment { needs: Some(Box::new(needs)), ..self.assignment(task, 1, cpus, &[], &[]) };
        self.feed(NodeEvent::Assigned { assignment: Box::new(assignment) });
        self
    }

    /// Gives attempt 1 of `task` to the executor, to be run while nothing else is on its disk.
    pub fn assign_alone(&mut self, task: u64, inputs: &[In], outputs: &[&str]) -> &mut NodeScript {
        let assignment = Assignment { alone: true, ..self.assignment(task, 1, 1, inputs, outputs) };
        self.feed(NodeEvent::Assigned { assignment: Box::new(assignment) });
        self
    }

    fn assignment(&mut self, task: u64, run: u32, cpus: u32, inputs: &[In], outputs: &[&str]) -> Assignment {
        let inputs = inputs.iter().map(|i| AssignedInput {
            object: self.object(i.name),
            known: i.known.clone(),
            sources: i.sources.iter().map(|s| ExecutorId(*s)).collect(),
            check_home: i.check_home,
            direct: i.direct,
            watched: false,
            stays: CatalogLocation::of(i.name).stays(),
            making: i.making,
        });
        let inputs = inputs.collect();
        let staying =
            (0..).zip(outputs).filter(|(_, o)| CatalogLocation::of(o).stays()).map(|(n, _)| n).collect();
        let outputs = outputs.iter().map(|o| self.object(o)).collect();
        Assignment {
            task: TaskId(task),
            attempt: AttemptNo(1),
            run: RunId(run),
            cpus,
            inputs,
            outputs,
            staying,
            private_inputs: false,
            repeated: false,
            alone: false,
            needs: None,
            why: Why::default(),
        }
    }

    /// The running program has named this file, and the dispatcher has said how it comes.
    pub fn named(&mut self, task: u64, input: &In) -> &mut NodeScript {
        let (task, attempt, location) = (TaskId(task), AttemptNo(1), input.name.to_string());
        self.feed(NodeEvent::FileOpened { task, attempt, location: location.clone() });
        let added = self.assignment(task.0, 1, 1, std::slice::from_ref(input), &[]).inputs.remove(0);
        self.feed(NodeEvent::InputAdded { task, attempt, location, input: Ok(Box::new(added)) });
        self
    }

    /// The program ended well and made these files, which nobody declared, each of 5 bytes.
    pub fn exited_with(&mut self, task: u64, made: &[&str]) -> &mut NodeScript {
        let (attempt, locations) = (AttemptNo(1), made.iter().map(|name| (*name).to_string()).collect());
        self.feed(NodeEvent::FilesMade { task: TaskId(task), attempt, locations });
        let found = made.iter().map(|name| self.object(name)).collect();
        let exit = Exit { found, ..self.exit_of(Ok(()), &vec![5; made.len()], &[]) };
        self.feed(NodeEvent::ProgramEnded { task: TaskId(task), attempt, exit });
        self
    }

    /// Home answers that `name` has `size_bytes` and the stamp `bytes`.
    pub fn answer(&mut self, name: &str, bytes: &str, size_bytes: u64) -> &mut NodeScript {
        let object = self.object(name);
        let answer = HomeAnswer { version: version(bytes, size_bytes), in_place: false };
        self.feed(NodeEvent::HomeAnswered { object, result: Ok(answer) });
        self
    }

    /// The dispatcher asks for `name` to be read for other executors, for tasks of that run.
    pub fn read_for_others(&mut self, name: &str, run: u32) -> &mut NodeScript {
        let object = self.object(name);
        self.feed(NodeEvent::ReadRequested { object, run: RunId(run) });
        self
    }

    fn transfer(&mut self, target: Target, from: Option<u32>, bytes: &str, size_bytes: u64) {
        let source = from.map_or(Source::Home, |e| Source::Peer(ExecutorId(e)));
        let version = from.is_none().then(|| version(bytes, size_bytes));
        let result = Ok(Fetched { digest: digest_of(bytes), size_bytes, version });
        self.feed(NodeEvent::TransferEnded { target, source, result });
    }

    /// `name` arrived in the cache, from home or from a peer.
    pub fn arrived(
        &mut self,
        name: &str,
        from: Option<u32>,
        bytes: &str,
        size_bytes: u64,
    ) -> &mut NodeScript {
        let target = Target::Cache(self.object(name));
        self.transfer(target, from, bytes, size_bytes);
        self
    }

    /// The private copy of an attempt's input arrived from home.
    pub fn arrived_private(
        &mut self,
        task: u64,
        input: u32,
        bytes: &str,
        size_bytes: u64,
    ) -> &mut NodeScript {
        let target = Target::Private { task: TaskId(task), attempt: AttemptNo(1), input };
        self.transfer(target, None, bytes, size_bytes);
        self
    }

    /// A transfer into the cache failed.
    pub fn missed(&mut self, name: &str, from: Option<u32>, kind: TransferErrorKind) -> &mut NodeScript {
        let target = Target::Cache(self.object(name));
        let source = from.map_or(Source::Home, |e| Source::Peer(ExecutorId(e)));
        let result = Err(TransferError { kind, message: "of a test".into() });
        self.feed(NodeEvent::TransferEnded { target, source, result });
        self
    }

    /// The program ended well and made outputs of these sizes.
    pub fn exited(&mut self, task: u64, outputs: &[u64]) -> &mut NodeScript {
        self.exit(task, Ok(()), outputs, &[])
    }

    pub fn exit(
        &mut self,
        task: u64,
        result: Result<(), FailureKind>,
        outputs: &[u64],
        inputs_modified: &[u32],
    ) -> &mut NodeScript {
        let exit = self.exit_of(result, outputs, inputs_modified);
        self.feed(NodeEvent::ProgramEnded { task: TaskId(task), attempt: AttemptNo(1), exit });
        self
    }

    /// The program ended with status 1, and this is known of its disk.
    pub fn failed_on(&mut self, task: u64, disk: DiskSeen) -> &mut NodeScript {
        let exit = Exit { disk: Some(disk), ..self.exit_of(Err(FailureKind::ExitCode(1)), &[], &[]) };
        self.feed(NodeEvent::ProgramEnded { task: TaskId(task), attempt: AttemptNo(1), exit });
        self
    }

    /// Lets this much time pass.
    pub fn wait(&mut self, seconds: u64) -> &mut NodeScript {
        self.now = self.now.plus_ns(seconds * S);
        self.feed(NodeEvent::Ticked);
        self
    }

    fn exit_of(&self, result: Result<(), FailureKind>, outputs: &[u64], inputs_modified: &[u32]) -> Exit {
        Exit {
            result: result.map_err(|kind| Failure { kind, message: String::new() }),
            started: self.now,
            exited: self.now.plus_ns(S),
            cpu_ns: 0,
            rss_bytes_max: 0,
            left: None,
            found: vec![],
            outputs: outputs.iter().map(|size| Some(*size)).collect(),
            inputs_modified: inputs_modified.to_vec(),
            inputs_damaged: inputs_modified.to_vec(),
            disk: None,
        }
    }

    pub fn stored(&mut self, task: u64, output: u32, size_bytes: u64) -> &mut NodeScript {
        let digest = digest_of(&format!("{task} {output}"));
        let result = Ok(Fetched { digest, size_bytes, version: None });
        self.feed(NodeEvent::OutputStored {
            task: TaskId(task),
            attempt: AttemptNo(1),
            output,
            marks: None,
            result,
        });
        self
    }

    pub fn landed(&mut self, task: u64, output: u32, ok: bool) -> &mut NodeScript {
        let error = TransferError { kind: TransferErrorKind::Temporary, message: "of a test".into() };
        let result = if ok { Ok(version("landed", 1)) } else { Err(error) };
        self.feed(NodeEvent::OutputLanded { task: TaskId(task), attempt: AttemptNo(1), output, result });
        self
    }

    pub fn cancel(&mut self, task: u64) -> &mut NodeScript {
        self.feed(NodeEvent::CancelRequested { task: TaskId(task), attempt: AttemptNo(1) });
        self
    }

    pub fn recorded(&mut self, task: u64) -> &mut NodeScript {
        self.feed(NodeEvent::EndRecorded { task: TaskId(task), attempt: AttemptNo(1) });
        self
    }

    pub fn corrupt(&mut self, name: &str) -> &mut NodeScript {
        let object = self.object(name);
        self.feed(NodeEvent::FoundCorrupt { object });
        self
    }

    pub fn drop_replica(&mut self, name: &str) -> &mut NodeScript {
        let objects = vec![self.object(name)];
        self.feed(NodeEvent::DropRequested { objects });
        self
    }

    /// Where the inputs of the last ended attempt came from.
    pub fn outcomes(&self) -> Vec<CacheOutcome> {
        self.reports.last().expect("an attempt ended").inputs.iter().map(|i| i.outcome).collect()
    }
}

impl Drop for NodeScript {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check(&mut self.actions, &[]);
        }
    }
}
