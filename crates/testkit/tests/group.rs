//! Several dispatchers: workflows split over cores, joined by links that break, repeat themselves and are slow, with
//! executors and dispatchers that die, and tasks that are added while all that goes on. In the end every task is done and
//! counted once, every byte is right, and no file is kept.

use eyas_core::array::{TaskArray, TaskSpec};
use eyas_core::dispatcher::{CollectiveMode, Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::group::split::{Part, split, split_addition};
use eyas_core::group::{
    FileState, Known, LinkMessage, MemberLoad, Membership, RunLinks, SharedFile, Size, owner_of,
};
use eyas_core::rng::Rng;
use eyas_core::*;
use eyas_testkit::bench::Cluster;
use eyas_testkit::build::{Task, reads, task};
use eyas_testkit::home::digest_of;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const S: u64 = 1_000_000_000;
const RUN: RunId = RunId(1);

// ---------------------------------------------------------------- event by event

/// A name that member `owner` of `n` has.
fn name_at(owner: u32, n: u32, hint: &str) -> String {
    let mut names = (0..).map(|i| format!("run:{hint}{i}"));
    names.find(|name| owner_of(name, n) == MemberId(owner)).expect("names go on for ever")
}

/// Member `me` of two.
fn member(me: u32) -> Cluster {
    Cluster::with(|config| config.group = Some(Membership { me: MemberId(me), n_members: 2 }))
}

fn part_of(c: &mut Cluster, tasks: &[Task], links: RunLinks) {
    let run = RUN;
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    c.feed(Event::RunLinked { run, links });
    for task in tasks {
        c.feed(Event::ArrayAdded { run, array: task.array() });
    }
    c.feed(Event::RunCommitted { run });
}

fn told(c: &mut Cluster, from: u32, message: LinkMessage) {
    c.feed(Event::MemberTold { member: MemberId(from), messages: vec![message] });
}

fn shared(location: &str) -> SharedFile {
    SharedFile { run: RUN, location: location.into() }
}

fn held(holders: &[u32]) -> FileState {
    let holders = holders.iter().map(|h| ExecutorId(*h)).collect();
    FileState::Held { digest: digest_of("x"), size_bytes: 10, holders }
}

#[test]
fn a_reader_waits_for_the_owner_and_fetches_from_whom_it_names() {
    let x = name_at(1, 2, "x");
    let mut c = member(0);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    c.expect(&["tell 1 reads [] settled []"]);
    c.node(1, 1);
    part_of(&mut c, &[task("r").reads(&x)], RunLinks::default());
    c.expect(&[&format!("tell 1 subscribed [{x}], settled 1")]);
    let state = held(&[2, 4]);
    told(&mut c, 1, LinkMessage::File { file: shared(&x), state: state.clone() });
    c.expect(&["assign 0.1 to 1"]);
    let input = &c.assignments[0].inputs[0];
    assert!(input.stays && input.known.as_ref().is_some_and(|k| k.digest == digest_of("x")));
    assert_eq!(input.sources.len(), 2);
    // Said again it changes nothing.
    told(&mut c, 1, LinkMessage::File { file: shared(&x), state });
    c.expect(&[]);
    c.done(1, (0, 1)).expect(&["end 0 done", "end run 1", &format!("tell 1 unsubscribed [{x}]")]);
}

#[test]
fn a_holder_in_vain_is_told_back_and_the_reader_waits_for_another() {
    let x = name_at(1, 2, "x");
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("r").reads(&x)], RunLinks::default());
    told(&mut c, 1, LinkMessage::File { file: shared(&x), state: held(&[2]) });
    c.expect(&[
        "tell 1 reads [] settled []",
        &format!("tell 1 subscribed [{x}], settled 1"),
        "assign 0.1 to 1",
    ]);
    c.failed(1, (0, 1), FailureKind::InputLost).expect(&[&format!("tell 1 missed {x}")]);
    told(&mut c, 1, LinkMessage::File { file: shared(&x), state: FileState::Expected });
    c.expect(&[]);
    told(&mut c, 1, LinkMessage::File { file: shared(&x), state: held(&[4]) });
    c.expect(&["assign 0.2 to 1"]);
    c.done(1, (0, 2)).expect(&["end 0 done", "end run 1", &format!("tell 1 unsubscribed [{x}]")]);
}

/// The first member, whose part of the run has written `x` and ended.
fn with_written(x: &str) -> Cluster {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes(x)], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    c.done(1, (0, 1)).expect(&["end 0 done", "end run 1"]);
    c
}

#[test]
fn a_file_stays_until_every_member_is_settled_and_the_last_has_read_it() {
    let x = name_at(0, 2, "x");
    let mut c = with_written(&x);
    told(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x)] });
    c.expect(&[&format!("tell 1 {x} on 1")]);
    told(&mut c, 1, LinkMessage::Settled { run: RUN });
    c.expect(&[]);
    let scoped = format!("run:here.1/{}", &x[4..]);
    // Its only holder is lost: somebody elsewhere reads it, so it is made again.
    c.lost(1).expect(&[&format!("revive 0 for {scoped}"), &format!("tell 1 {x} expected")]);
    c.node(3, 1).expect(&["assign 0.65537 to 3"]);
    c.done(3, (0, 65537)).expect(&["end 0 done", "end run 1", &format!("tell 1 {x} on 3")]);
    told(&mut c, 1, LinkMessage::Unsubscribed { files: vec![shared(&x)] });
    c.expect(&[&format!("drop {scoped} on 3")]);
}

#[test]
fn what_nobody_makes_and_what_failed_is_told_to_its_readers() {
    let (x, y) = (name_at(0, 2, "x"), name_at(0, 2, "y"));
    let mut c = member(0);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes(&x)], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "tell 1 settled 1"]);
    told(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x), shared(&y)] });
    c.expect(&[&format!("tell 1 {x} expected, {y} never")]);
    c.node(1, 1).expect(&["assign 0.1 to 1"]);
    c.failed(1, (0, 1), FailureKind::ExitCode(1));
    c.expect(&["end 0 failed ExitCode(1)", "end run 1", &format!("tell 1 {x} never")]);

    let z = name_at(1, 2, "z");
    let mut c = member(0);
    part_of(&mut c, &[task("r").reads(&z)], RunLinks::default());
    let state = FileState::Never { message: "task `w` failed".into(), cancelled: false };
    told(&mut c, 1, LinkMessage::File { file: shared(&z), state });
    c.expect(&["end 0 failed InputUnavailable", "end run 1"]);
}

#[test]
fn a_result_at_home_is_waited_for_by_its_name() {
    let mut owner = member(0);
    owner.node(1, 1);
    owner.feed(Event::MemberConnected { member: MemberId(1) });
    let links = RunLinks { imports: vec![], exports: vec!["/out".into()] };
    part_of(&mut owner, &[task("w").writes("/out")], links);
    owner.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    told(&mut owner, 1, LinkMessage::Reads { files: vec![shared("/out")], settled: vec![RUN] });
    owner.expect(&["tell 1 /out expected"]);
    owner.done(1, (0, 1)).expect(&[]);
    owner.home(1, (0, 1), true).expect(&["end 0 done", "end run 1", "tell 1 /out at home"]);

    let mut reader = member(1);
    reader.node(2, 1);
    let links = RunLinks { imports: vec![("/out".into(), MemberId(0))], exports: vec![] };
    part_of(&mut reader, &[task("r").reads("/out")], links);
    reader.expect(&[]);
    told(&mut reader, 0, LinkMessage::File { file: shared("/out"), state: FileState::AtHome });
    reader.expect(&["assign 0.1 to 2"]);
    reader.done(2, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

/// Opens the part that a member has of a submission into the run.
fn open_added(c: &mut Cluster, number: u32, tasks: &[Task], links: RunLinks) -> RunId {
    let run = RunId(number);
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: Some(RUN) });
    c.feed(Event::RunLinked { run, links });
    tasks.iter().for_each(|task| c.feed(Event::ArrayAdded { run, array: task.array() }));
    run
}

#[test]
fn a_part_that_has_ended_goes_on_with_what_is_added_and_keeps_what_others_may_read() {
    let (x, y) = (name_at(0, 2, "x"), name_at(0, 2, "y"));
    let mut c = with_written(&x);
    let run = open_added(&mut c, 7, &[task("v").reads(&x).writes(&y)], RunLinks::default());
    assert_eq!(c.core.find_run(RUN).unwrap().ended, None);
    told(&mut c, 1, LinkMessage::Settled { run: RUN });
    c.expect(&[]);
    assert!(!c.core.is_accepted(run));
    c.feed(Event::RunCommitted { run });
    assert!(c.core.is_accepted(run));
    c.expect(&["assign 1.1 to 1", "tell 1 settled 7"]);
    // The other one has not said yet that nobody of its part of the addition reads these.
    c.done(1, (1, 1)).expect(&["end 1 done", "end run 1"]);
    told(&mut c, 1, LinkMessage::Settled { run });
    let dropped = format!("drop run:here.1/{} run:here.1/{} on 1", &x[4..], &y[4..]);
    c.expect(&[&dropped]);
    // What is said anew names it, too.
    c.feed(Event::MemberSilent { member: MemberId(1) });
    c.feed(Event::MemberConnected { member: MemberId(1) });
    c.expect(&["tell 1 reads [] settled [RunId(1), RunId(7)]"]);
}

#[test]
fn what_is_given_up_lets_a_part_end_again() {
    let x = name_at(0, 2, "x");
    let mut c = member(0);
    c.node(1, 1);
    part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
    c.done(1, (0, 1)).home(1, (0, 1), true).expect(&["assign 0.1 to 1", "end 0 done", "end run 1"]);
    let links = RunLinks { imports: vec![], exports: vec!["/out".into()] };
    let run = open_added(&mut c, 7, &[task("v").writes(&x)], links);
    c.feed(Event::RunAborted { run });
    c.expect(&["end run 1"]);
}

#[test]
fn a_member_tells_what_it_knows_of_files() {
    let (x, y, z) = (name_at(0, 2, "x"), name_at(1, 2, "y"), name_at(0, 2, "z"));
    let mut c = member(0);
    c.node(1, 1);
    let tasks = [task("w").writes(&x).writes(&y), task("h").writes("/out"), task("late").writes("/late")];
    part_of(&mut c, &tasks, RunLinks::default());
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    let run = open_added(&mut c, 7, &[], RunLinks::default());
    let reader = task("r").reads(&x).reads(&y).reads(&z).reads("/late").reads("/elsewhere").array();
    let known = c.core.consult(run, &reader);
    assert_eq!(known.makes, BTreeSet::from([x.clone(), y.clone(), "/late".into()]));
    assert!(known.dropped.is_empty() && known.clash.is_none());
    for (name, first) in [(&y, "w"), (&"/out".to_string(), "h")] {
        let clash = c.core.consult(run, &task("v").writes(name).array()).clash.expect("two write it");
        assert!(clash.starts_with(&format!("tasks `{first}` and `v` both write `{name}`")), "{clash}");
    }
    let here = Known::default();
    let parts = split_addition(&[(*reader).clone()], &[known, here.clone()]).unwrap_err();
    assert_eq!(parts, format!("task `r` reads `{z}`, which no task of the run writes"));
    let gone = Known { dropped: BTreeSet::from([z.clone()]), ..Known::default() };
    let why = split_addition(&[(*task("r").reads(&z).array()).clone()], &[gone, here]).unwrap_err();
    assert!(why.starts_with(&format!("task `r` reads `{z}`, which was dropped")), "{why}");
}

/// A result at home that a task of the first submission still makes, and one of another member reads.
#[test]
fn an_added_reader_elsewhere_is_told_when_a_result_is_home() {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    let run = open_added(&mut c, 7, &[], RunLinks { imports: vec![], exports: vec!["/out".into()] });
    // Who has committed it first subscribes first.
    told(&mut c, 1, LinkMessage::Subscribed { files: vec![shared("/out")] });
    c.expect(&["tell 1 /out expected"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&["tell 1 settled 7"]);
    c.done(1, (0, 1)).home(1, (0, 1), true);
    c.expect(&["end 0 done", "end run 1", "tell 1 /out at home"]);
}

/// What an executor that comes back offers, with the attempt `0.1` of the process `owner`.
fn with_work_of(owner: u64) -> Offer {
    let attempts = vec![(TaskId(0), AttemptNo(1))];
    Offer {
        slots: 1,
        memory_bytes: 1_000,
        cache_bytes: 1_000,
        attempts,
        owner: Some(owner),
        ..Offer::default()
    }
}

#[test]
fn only_work_of_the_same_journal_is_taken_over() {
    let recovered = |journal: &[u64]| {
        let mut c = member(0);
        part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
        journal.iter().for_each(|i| c.feed(Event::Began { incarnation: *i }));
        c.feed(Event::Recovered);
        c
    };
    let executor = ExecutorId(1);
    // The executor of another member, or of whoever had this directory before: by its number the attempt is this task's.
    let mut c = recovered(&[10, 30]);
    assert!(!c.core.is_own_work(&with_work_of(20)));
    c.feed(Event::ExecutorJoined { executor, offer: with_work_of(20) });
    c.wait(3).expect(&["assign 0.1 to 1"]);
    // An earlier process with this journal gave it.
    let mut c = recovered(&[10, 30]);
    assert!(c.core.is_own_work(&with_work_of(10)));
    c.feed(Event::ExecutorJoined { executor, offer: with_work_of(10) });
    c.wait(3).expect(&[]);
    c.done(1, (0, 1)).home(1, (0, 1), true).expect(&["end 0 done", "end run 1"]);
    // Whoever has no work is welcome, wherever it was.
    assert!(c.core.is_own_work(&Offer { attempts: vec![], ..with_work_of(20) }));
}

#[test]
fn an_idle_executor_goes_to_whom_it_can_help() {
    let mut c = member(0);
    c.node(1, 1).node(3, 1);
    let load = MemberLoad { n_slots: 2, n_ready: 9, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(1).expect(&[]);
    c.wait(3).expect(&["send 1 to 1"]);
    c.feed(Event::MemberLoadChanged {
        member: MemberId(1),
        load: MemberLoad { n_slots: 3, n_ready: 3, ..MemberLoad::default() },
    });
    c.wait(5).expect(&[]);
}

fn size(cpus: u32, memory_bytes: u64) -> Size {
    Size { cpus, memory_bytes }
}

#[test]
fn an_idle_executor_goes_where_it_alone_is_large_enough() {
    let mut c = member(0);
    c.node(1, 1).node(3, 4);
    let load = MemberLoad { n_slots: 9, unfit: vec![size(2, 10), size(8, 0)], ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(4).expect(&["send 3 to 1"]);
}

#[test]
fn an_idle_executor_stays_while_a_task_waits_that_fits_it() {
    let mut c = Cluster::with(|config| {
        config.group = Some(Membership { me: MemberId(0), n_members: 2 });
        config.placement = "max-cache-hit".into();
    });
    let load = MemberLoad { n_slots: 9, unfit: vec![size(2, 0)], ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.node(1, 2);
    c.run(&[reads("a").cpus(2), reads("a").cpus(2).priority(-1)]);
    c.expect(&["assign 0.1 to 1"]).has(1, "a", "a", Some("1")).node(3, 2).wait(9).expect(&[]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 1.1 to 1"]);
    c.wait(4).expect(&["send 3 to 1"]);
    c.done(1, (1, 1)).expect(&["end 1 done", "end run 1"]);
}

#[test]
fn a_task_fails_as_too_large_only_where_no_dispatcher_has_a_node_for_it() {
    let mut c = member(0);
    c.run(&[task("large").cpus(4), task("never").cpus(9)]);
    c.node(1, 1);
    let load = |offers| MemberLoad { n_slots: 4, offers, ..MemberLoad::default() };
    // Nobody knows yet what the other one has.
    c.wait(20).expect(&[]);
    assert_eq!(c.core.load().unfit, [size(4, 0), size(9, 0)]);
    assert_eq!((c.core.load().n_ready, c.core.load().offers), (0, vec![size(1, 1_000_000_000)]));
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load: load(vec![size(4, 10), size(2, 20)]) });
    c.wait(17).expect(&["end 1 failed NeverFits"]);
    let TaskState::Ready { reason: Some(reason) } = c.state(0) else { panic!("{:?}", c.state(0)) };
    assert!(reason.contains("another dispatcher"), "{reason}");
    c.node(3, 4).expect(&["assign 0.1 to 3"]).done(3, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

// ---------------------------------------------------------------- worlds

/// What a node has, by location.
#[derive(Clone, Default)]
struct Node {
    member: usize,
    id: ExecutorId,
    store: BTreeMap<String, Digest>,
    /// Made here and kept until told.
    kept: BTreeSet<String>,
    todo: VecDeque<(Box<Assignment>, TaskSpec)>,
    landing: VecDeque<(TaskId, AttemptNo)>,
}

#[derive(Clone)]
enum Record {
    /// A part of a submission, of the run or into it; it is complete.
    Prepared {
        run: RunId,
        part: Part,
    },
    Committed(RunId),
    Aborted(RunId),
    Ended {
        task: TaskId,
        outcome: Outcome,
        outputs: Vec<(Digest, u64)>,
    },
    Revived(TaskId),
    GivenUp(TaskId, AttemptNo),
}

struct Member {
    core: Option<Dispatcher>,
    journal: Vec<Record>,
    last_executor: u32,
    /// Ends that are durable.
    done: BTreeSet<TaskId>,
    /// Submissions that are prepared here; what became of them was not heard yet.
    doubts: BTreeSet<RunId>,
}

struct World {
    rng: Rng,
    now: Timestamp,
    n: u32,
    members: Vec<Member>,
    nodes: Vec<Node>,
    /// What is added one after the other.
    later: VecDeque<Vec<TaskArray>>,
    /// It is prepared everywhere.
    open: Option<(RunId, Vec<TaskArray>)>,
    /// What became of submissions, as the first member has it in its journal.
    decided: BTreeMap<RunId, bool>,
    /// All tasks that the run has.
    accepted: Vec<TaskArray>,
    n_added: u64,
    /// By sender and receiver: what is on its way, while the connection is up.
    links: BTreeMap<(usize, usize), Option<VecDeque<Vec<LinkMessage>>>>,
    home: BTreeMap<String, Digest>,
    outputs: BTreeMap<(usize, TaskId), Vec<(Digest, u64)>>,
    faults: bool,
    n_crossed: u64,
}

/// What a task makes of its inputs.
fn made(spec: &TaskSpec, inputs: &[Digest], output: usize) -> Digest {
    digest_of(&format!("{} {inputs:?} {output}", spec.id))
}

impl World {
    fn config(&self, m: usize) -> DispatcherConfig {
        DispatcherConfig {
            group: Some(Membership { me: MemberId(m as u32), n_members: self.n }),
            collectives: CollectiveMode::Off,
            // Who has promised something runs for long, and nodes die all the time.
            losses_max: 1000,
            ..DispatcherConfig::default()
        }
    }

    /// The run begins with `first`; the others are added.
    fn new(seed: u64, first: Vec<TaskArray>, later: VecDeque<Vec<TaskArray>>) -> World {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(3) as u32;
        let member = |part| Member {
            core: None,
            journal: vec![Record::Prepared { run: RUN, part }, Record::Committed(RUN)],
            last_executor: 0,
            done: BTreeSet::new(),
            doubts: BTreeSet::new(),
        };
        let parts = split(&first, n).expect("the workflow is sound");
        let mut w = World {
            rng,
            now: Timestamp(S),
            n,
            members: parts.into_iter().map(member).collect(),
            nodes: vec![],
            later,
            open: None,
            decided: BTreeMap::new(),
            accepted: first,
            n_added: 0,
            links: BTreeMap::new(),
            home: BTreeMap::new(),
            outputs: BTreeMap::new(),
            faults: true,
            n_crossed: 0,
        };
        for i in 0..9 {
            w.home.insert(format!("/in/{i}"), digest_of(&format!("in {i}")));
        }
        for m in 0..n as usize {
            w.start(m);
        }
        for k in 0..n as usize + w.rng.below(4) as usize {
            let node = Node { member: k % n as usize, ..Node::default() };
            w.nodes.push(node);
            w.join(k);
        }
        w
    }

    fn start(&mut self, m: usize) {
        self.members[m].core = Some(Dispatcher::new(self.config(m)).expect("a known policy"));
        let mut committed = vec![];
        for record in self.members[m].journal.clone() {
            match record {
                Record::Prepared { run, part } => {
                    self.open_part(m, run);
                    self.fill_part(m, run, part);
                }
                Record::Committed(run) => committed.push(run),
                Record::Aborted(run) => self.feed(m, Event::RunAborted { run }),
                Record::Ended { task, outcome, outputs } => {
                    self.feed(m, Event::TaskRestored { task, outcome, outputs })
                }
                Record::Revived(task) => self.feed(m, Event::TaskRevived { task }),
                Record::GivenUp(task, attempt) => self.feed(m, Event::AttemptGivenUp { task, attempt }),
            }
        }
        if m == 0
            && let Some((run, arrays)) = self.open.take()
        {
            // The first member gives up what it had not decided; its client tries again.
            self.later.push_front(arrays);
            self.conclude(0, run, false);
        }
        committed.into_iter().for_each(|run| self.feed(m, Event::RunCommitted { run }));
        self.feed(m, Event::Recovered);
    }

    fn open_part(&mut self, m: usize, run: RunId) {
        let into = (run != RUN).then_some(RUN);
        self.feed(m, Event::RunOpened { run, name: String::new(), keep: false, into });
    }

    fn fill_part(&mut self, m: usize, run: RunId, Part { arrays, links, patterns }: Part) {
        self.feed(m, Event::RunLinked { run, links });
        self.feed(m, Event::RunPatterns { run, patterns });
        for array in arrays {
            self.feed(m, Event::ArrayAdded { run, array: Arc::new(array) });
        }
    }

    /// A client adds some tasks, up to where the first member has to decide.
    fn begin_adding(&mut self) {
        let all_there = self.members.iter().all(|m| m.core.is_some() && m.doubts.is_empty());
        if self.open.is_some() || !all_there {
            return;
        }
        let Some(arrays) = self.later.pop_front() else { return };
        let n = self.n as usize;
        let is_over = |m: &Member| m.core.as_ref().unwrap().find_run(RUN).is_some_and(|r| r.ended.is_some());
        if self.members.iter().all(is_over) {
            return; // too late
        }
        let outputs = |a: &TaskArray| a.expand(0).outputs.into_iter().map(|(_, l)| l).collect::<Vec<_>>();
        let written: BTreeSet<String> = self.accepted.iter().chain(&arrays).flat_map(outputs).collect();
        let inputs = |a: &TaskArray| a.expand(0).inputs;
        if arrays.iter().flat_map(inputs).any(|(_, l)| l.starts_with("/out/") && !written.contains(&l)) {
            return; // it reads what was never accepted
        }
        let run = RunId(2 + self.decided.len() as u32);
        (0..n).for_each(|m| self.open_part(m, run));
        let known: Vec<Known> = (self.members.iter().map(|m| m.core.as_ref().unwrap()))
            .map(|core| {
                let mut known = Known::default();
                for more in arrays.iter().map(|array| core.consult(run, array)) {
                    assert_eq!(more.clash, None, "the workflow is sound");
                    known.makes.extend(more.makes);
                    known.dropped.extend(more.dropped);
                    known.promised.extend(more.promised);
                }
                known
            })
            .collect();
        match split_addition(&arrays, &known) {
            Ok(parts) => {
                for (m, part) in parts.into_iter().enumerate() {
                    self.fill_part(m, run, part.clone());
                    self.members[m].journal.push(Record::Prepared { run, part });
                    if m > 0 {
                        self.members[m].doubts.insert(run);
                    }
                }
                self.open = Some((run, arrays));
            }
            // Something that it reads is gone, or was never accepted.
            Err(_) => (0..n).for_each(|m| self.feed(m, Event::RunAborted { run })),
        }
    }

    /// The first member decides, or its client has gone away and tries again.
    fn decide(&mut self) {
        if self.members[0].core.is_none() {
            return;
        }
        let Some((run, arrays)) = self.open.take() else { return };
        let commits = !self.faults || self.rng.below(4) > 0;
        match commits {
            true => {
                self.n_added += arrays.len() as u64;
                self.accepted.extend(arrays);
            }
            false => self.later.push_front(arrays),
        }
        self.conclude(0, run, commits);
    }

    /// A member hears what became of a submission that it has prepared.
    fn hear(&mut self, m: usize) {
        let decided = |run: &&RunId| self.decided.contains_key(run);
        if self.members[m].core.is_some()
            && let Some(run) = self.members[m].doubts.iter().find(decided).copied()
        {
            self.members[m].doubts.remove(&run);
            self.conclude(m, run, self.decided[&run]);
        }
    }

    fn conclude(&mut self, m: usize, run: RunId, commits: bool) {
        if m == 0 {
            self.decided.insert(run, commits);
        }
        let record = if commits { Record::Committed(run) } else { Record::Aborted(run) };
        self.members[m].journal.push(record);
        let event = if commits { Event::RunCommitted { run } } else { Event::RunAborted { run } };
        self.feed(m, event);
    }

    fn join(&mut self, k: usize) {
        let m = self.nodes[k].member;
        if self.members[m].core.is_none() {
            return;
        }
        let membership = Membership { me: MemberId(m as u32), n_members: self.n };
        let number = membership.next_number(self.members[m].last_executor);
        self.members[m].last_executor = number;
        let node = &mut self.nodes[k];
        node.id = ExecutorId(number);
        node.todo.clear();
        node.landing.clear();
        let held = node.store.iter().map(|(location, digest)| Held {
            digest: *digest,
            size_bytes: 10,
            origin: Some((location.clone(), HomeVersion::default())),
        });
        let offer = Offer {
            slots: 1 + number % 2,
            memory_bytes: 1 << 30,
            cache_bytes: 1 << 30,
            held: held.collect(),
            ..Offer::default()
        };
        self.feed(m, Event::ExecutorJoined { executor: ExecutorId(number), offer });
    }

    fn node_of(&mut self, m: usize, executor: ExecutorId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|n| n.member == m && n.id == executor)
    }

    fn feed(&mut self, m: usize, event: Event) {
        let Some(core) = self.members[m].core.as_mut() else { return };
        let mut out = vec![];
        core.handle(self.now, event, &mut out);
        core.sanity_check();
        for action in out {
            self.carry_out(m, action);
        }
    }

    fn carry_out(&mut self, m: usize, action: Action) {
        let core = self.members[m].core.as_ref().expect("it has just acted");
        match action {
            Action::Assign { executor, assignment } => {
                let spec = core.task_spec(assignment.task);
                if let Some(node) = self.node_of(m, executor) {
                    node.todo.push_back((assignment, spec));
                }
            }
            Action::DropReplicas { executor, objects } => {
                let locations: Vec<String> = objects.iter().map(|o| core.location(*o).to_string()).collect();
                if let Some(node) = self.node_of(m, executor) {
                    for location in locations {
                        node.store.remove(&location);
                        node.kept.remove(&location);
                    }
                }
            }
            Action::EndTask { task, outcome } => {
                assert_eq!(outcome, Outcome::Done, "nothing fails here: {}", core.user_id(task));
                assert!(self.members[m].done.insert(task), "{task} of {m} ended twice");
                let outputs = self.outputs.remove(&(m, task)).unwrap_or_default();
                self.members[m].journal.push(Record::Ended { task, outcome, outputs });
            }
            Action::ReviveTask { task, .. } => {
                assert!(self.members[m].done.remove(&task), "{task} of {m} had not ended");
                self.members[m].journal.push(Record::Revived(task));
            }
            Action::RecordGivenUp { task, attempt } => {
                self.members[m].journal.push(Record::GivenUp(task, attempt));
                self.feed(m, Event::AttemptGivenUp { task, attempt });
            }
            Action::TellMember { member, messages } => {
                if let Some(Some(queue)) = self.links.get_mut(&(m, member.0 as usize)) {
                    queue.push_back(messages);
                }
            }
            Action::SendAway { executor, member } => {
                let k = self.nodes.iter().position(|n| n.member == m && n.id == executor).expect("it joined");
                assert!(self.nodes[k].todo.is_empty() && self.nodes[k].landing.is_empty());
                self.feed(m, Event::ExecutorLost { executor, reason: "it moved".into() });
                let node = &mut self.nodes[k];
                node.member = member.0 as usize;
                // What it made is an ordinary copy now, which leaves when space is needed.
                node.kept.clear();
                self.join(k);
            }
            Action::RecallAttempt { .. } | Action::NameObjects { .. } | Action::EndRun { .. } => {}
            Action::FoundPattern { .. } => {}
            other => panic!("nobody should want {other:?}"),
        }
    }

    /// One attempt of a node begins and ends.
    fn work(&mut self, k: usize) {
        let (m, id) = (self.nodes[k].member, self.nodes[k].id);
        if self.members[m].core.is_none() {
            return;
        }
        if let Some((task, attempt)) = self.nodes[k].landing.pop_front() {
            return self.feed(m, Event::OutputsHome { executor: id, task, attempt, result: Ok(()) });
        }
        let Some((assignment, spec)) = self.nodes[k].todo.pop_front() else { return };
        if !self.keeps_promises(&spec) {
            return self.nodes[k].todo.push_back((assignment, spec));
        }
        let (task, attempt) = (assignment.task, assignment.attempt);
        let times = Times { started: self.now, exited: self.now.plus_ns(S / 100), ..Times::default() };
        let mut report = AttemptReport {
            task,
            attempt,
            outcome: Outcome::Done,
            times,
            inputs: vec![],
            outputs: vec![],
            cpu_ns: 0,
            rss_bytes_max: 0,
        };
        let (mut added, mut read, mut digests) = (vec![], vec![], vec![]);
        for (input, (_, location)) in assignment.inputs.iter().zip(&spec.inputs) {
            let mut outcome = CacheOutcome::LocalHit;
            let known = input.known.as_ref().map(|k| k.digest);
            let here = self.nodes[k].store.get(location).copied();
            let digest = match here {
                Some(digest) if known.is_none_or(|known| known == digest) => Some(digest),
                _ if input.stays => {
                    let asked = input.sources.iter().filter_map(|s| {
                        self.nodes.iter().find(|n| n.id == *s).map(|n| (n.member, n.store.get(location)))
                    });
                    let found = asked.filter(|(_, d)| d.copied() == known).map(|(at, _)| at).next();
                    self.n_crossed += u64::from(found.is_some_and(|at| at != m));
                    outcome = CacheOutcome::RemoteHit { from: id };
                    known.filter(|_| found.is_some())
                }
                _ => {
                    outcome = CacheOutcome::Miss;
                    let there = self.home.get(location);
                    Some(*there.unwrap_or_else(|| {
                        panic!("{} of {m} started before `{location}` was there", spec.id)
                    }))
                }
            };
            let Some(digest) = digest else {
                let failure = Failure { kind: FailureKind::InputLost, message: location.clone() };
                report.outcome = Outcome::Failed(failure);
                self.feed(m, Event::ReplicasChanged { executor: id, added, dropped: vec![] });
                return self.feed(m, Event::AttemptEnded { executor: id, report: report.into() });
            };
            digests.push(digest);
            if !input.stays {
                // Home is read each time; which bytes it gave is told.
                let version = Some(HomeVersion { size_bytes: 10, stamp: digest.to_string().into() });
                added.push(ReplicaAdded {
                    object: input.object,
                    digest,
                    size_bytes: 10,
                    version,
                    run: Some(assignment.run),
                    private: false,
                });
                read.push(input.object);
            } else if here != Some(digest) {
                self.nodes[k].store.insert(location.clone(), digest);
                added.push(ReplicaAdded {
                    object: input.object,
                    digest,
                    size_bytes: 10,
                    version: None,
                    run: None,
                    private: false,
                });
            }
            report.inputs.push(InputReport { object: input.object, outcome, size_bytes: 10, wait_ns: 1 });
        }
        if !added.is_empty() {
            self.feed(m, Event::ReplicasChanged { executor: id, added, dropped: vec![] });
            self.feed(m, Event::ReplicasChanged { executor: id, added: vec![], dropped: read });
        }
        let mut lands = false;
        let mut outputs = vec![];
        for (n, (_, location)) in spec.outputs.iter().enumerate() {
            let digest = made(&spec, &digests, n);
            outputs.push((digest, 10));
            report.outputs.push(OutputReport { output: n as u32, digest, size_bytes: 10 });
            if location.starts_with(RUN_FILE) {
                self.nodes[k].store.insert(location.clone(), digest);
                self.nodes[k].kept.insert(location.clone());
            } else {
                lands = true;
                self.home.insert(location.clone(), digest);
            }
        }
        self.outputs.insert((m, task), outputs);
        if lands {
            self.nodes[k].landing.push_back((task, attempt));
        }
        self.feed(m, Event::AttemptEnded { executor: id, report: report.into() });
    }

    /// Whether what a task promises is written, or promised by a later one.
    fn keeps_promises(&self, spec: &TaskSpec) -> bool {
        let all = || self.accepted.iter().map(|a| a.expand(0));
        let after = all().skip_while(|other| other.id != spec.id).skip(1).collect::<Vec<_>>();
        let has = |other: &TaskSpec, promise: &String| {
            other.promises.contains(promise) || other.outputs.iter().any(|(_, l)| l == promise)
        };
        spec.promises.iter().all(|promise| after.iter().any(|other| has(other, promise)))
    }

    fn connect(&mut self, from: usize, to: usize) {
        if self.members[from].core.is_some() && self.members[to].core.is_some() {
            self.links.insert((from, to), Some(VecDeque::new()));
            self.feed(from, Event::MemberConnected { member: MemberId(to as u32) });
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        if self.links.insert((from, to), None).flatten().is_some() {
            self.feed(from, Event::MemberSilent { member: MemberId(to as u32) });
        }
    }

    fn kill_node(&mut self, k: usize) {
        let (m, executor) = (self.nodes[k].member, self.nodes[k].id);
        self.nodes[k].store.clear();
        self.nodes[k].kept.clear();
        if self.rng.below(2) == 0 {
            self.feed(m, Event::ExecutorSilent { executor });
        }
        self.feed(m, Event::ExecutorLost { executor, reason: "it was killed".into() });
        self.join(k);
    }

    fn kill_member(&mut self, m: usize) {
        self.members[m].core = None;
        for other in (0..self.n as usize).filter(|o| *o != m) {
            self.links.insert((m, other), None);
            self.cut(other, m);
        }
    }

    fn step(&mut self) {
        self.now = self.now.plus_ns(self.rng.below(S / 5));
        let n = self.n as usize;
        let (a, b) = (self.rng.below(n as u64) as usize, self.rng.below(n as u64) as usize);
        let k = self.rng.below(self.nodes.len() as u64) as usize;
        match self.rng.below(120) {
            100..106 => self.begin_adding(),
            106..112 => self.decide(),
            112..120 => self.hear(a),
            0..35 => self.work(k),
            35..80 => {
                let Some(Some(queue)) = self.links.get_mut(&(a, b)) else {
                    if a != b {
                        self.connect(a, b);
                    }
                    return;
                };
                let Some(messages) = queue.pop_front() else { return };
                let again = self.faults && self.rng.below(10) == 0;
                for _ in 0..1 + u8::from(again) {
                    let told = Event::MemberTold { member: MemberId(a as u32), messages: messages.clone() };
                    self.feed(b, told);
                }
            }
            80..90 => {
                for m in 0..n {
                    self.feed(m, Event::Ticked);
                }
                if a != b
                    && let Some(core) = &self.members[a].core
                {
                    let load = core.load();
                    self.feed(b, Event::MemberLoadChanged { member: MemberId(a as u32), load });
                }
                let away = (0..n).find(|m| self.members[*m].core.is_none());
                if let Some(m) = away {
                    self.start(m);
                    // Those who have lost their dispatcher come again.
                    for k in 0..self.nodes.len() {
                        if self.nodes[k].member == m {
                            self.join(k);
                        }
                    }
                }
            }
            _ if !self.faults => {}
            90..94 if a != b => self.cut(a, b),
            94..96 => self.kill_node(k),
            96..98 => {
                // A copy that was not made there may leave a cache at any time.
                let copies: Vec<String> = self.nodes[k]
                    .store
                    .keys()
                    .filter(|l| !self.nodes[k].kept.contains(*l))
                    .cloned()
                    .collect();
                let (m, executor) = (self.nodes[k].member, self.nodes[k].id);
                for location in copies {
                    self.nodes[k].store.remove(&location);
                    let core = self.members[m].core.as_ref();
                    if let Some(object) = core.and_then(|c| c.catalog().find(&location)) {
                        self.feed(
                            m,
                            Event::ReplicasChanged { executor, added: vec![], dropped: vec![object] },
                        );
                    }
                }
            }
            98 => self.kill_member(a),
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        let ended = |m: &Member| {
            let core = m.core.as_ref();
            core.and_then(|c| c.find_run(RUN)).is_some_and(|r| r.ended.is_some() && r.n_done == r.n_tasks)
        };
        let all_told = self.later.is_empty() && self.open.is_none();
        let heard = self.members.iter().all(|m| m.doubts.is_empty());
        all_told && heard && self.members.iter().all(ended) && self.nodes.iter().all(|n| n.kept.is_empty())
    }

    fn what_is_left(&self) -> String {
        let of = |(n, m): (usize, &Member)| {
            let run = m.core.as_ref().and_then(|c| c.find_run(RUN));
            let counts = run.map(|r| (r.n_tasks, r.n_waiting, r.n_ready, r.n_reserved, r.n_done));
            format!("member {n}: tasks, waiting, ready, reserved, done {counts:?}, in doubt {:?}", m.doubts)
        };
        let stores: Vec<String> =
            self.nodes.iter().map(|n| format!("{} of {}: {:?}", n.id, n.member, n.store.keys())).collect();
        format!("{:#?}\n{stores:#?}", self.members.iter().enumerate().map(of).collect::<Vec<_>>())
    }
}

fn workflow(rng: &mut Rng) -> Vec<TaskArray> {
    let (mut all, mut arrays) = (vec![], vec![]);
    for t in 0..1 + rng.below(40) {
        let mut one = task(&format!("t{t}"));
        for _ in 0..rng.below(4) {
            let location = match all.len() as u64 {
                n if n > 0 && rng.below(4) > 0 => all[rng.below(n) as usize],
                _ => (0, rng.below(9)),
            };
            let location = match location {
                (0, i) => format!("/in/{i}"),
                (1, i) => format!("run:f{i}"),
                (_, i) => format!("/out/{i}"),
            };
            if !one.inputs.contains(&location) {
                one = one.reads(&location);
            }
        }
        for o in 0..rng.below(3) {
            let name = t * 10 + o;
            let kind = 1 + u64::from(rng.below(4) == 0);
            let location = if kind == 1 { format!("run:f{name}") } else { format!("/out/{name}") };
            all.push((kind, name));
            one = one.writes(&location);
        }
        arrays.push((*one.array()).clone());
    }
    arrays
}

/// Cuts a workflow into what is there from the beginning and what is added. Of what is added some tasks are promised, to readers
/// that are there before.
fn with_additions(rng: &mut Rng, arrays: Vec<TaskArray>) -> (Vec<TaskArray>, VecDeque<Vec<TaskArray>>) {
    let mut first = arrays;
    let mut rest = VecDeque::from(first.split_off(first.len().div_ceil(3)));
    let mut later: VecDeque<Vec<TaskArray>> = VecDeque::new();
    let mut is_open = false;
    while let Some(array) = rest.pop_front() {
        let spec = array.expand(0);
        let stays: Vec<String> =
            spec.outputs.iter().map(|(_, l)| l.clone()).filter(|l| l.starts_with(RUN_FILE)).collect();
        // Nobody knows whether something else that it reads is there still.
        let can_be_promised = !stays.is_empty() && spec.inputs.iter().all(|(_, l)| l.starts_with("/in/"));
        if can_be_promised && rng.below(3) > 0 {
            let promises =
                |id: String| stays.iter().fold(task(&id), |task, location| task.promises(location));
            first.push((*promises(format!("plan-{}", spec.id)).array()).clone());
            for r in 0..1 + rng.below(4) {
                let out = format!("/out/{}-{r}", spec.id);
                let reader = task(&format!("reader-{}-{r}", spec.id)).writes(&out);
                let reader = reader.reads(&stays[rng.below(stays.len() as u64) as usize]);
                first.push((*reader.array()).clone());
            }
            if rng.below(2) == 0 {
                later.push_back(vec![(*promises(format!("again-{}", spec.id)).array()).clone()]);
            }
            later.push_back(vec![array]);
            is_open = false;
        } else if let Some(last) = later.back_mut().filter(|last| is_open && last.len() < 4) {
            last.push(array);
        } else {
            later.push_back(vec![array]);
            is_open = rng.below(4) > 0;
        }
    }
    (first, later)
}

/// What a plain sequential run would have at home.
fn expected(arrays: &[TaskArray]) -> BTreeMap<String, Digest> {
    let mut files: BTreeMap<String, Digest> = BTreeMap::new();
    for i in 0..9 {
        files.insert(format!("/in/{i}"), digest_of(&format!("in {i}")));
    }
    let mut left: VecDeque<TaskSpec> = arrays.iter().map(|array| array.expand(0)).collect();
    while let Some(spec) = left.pop_front() {
        if spec.inputs.iter().any(|(_, l)| !files.contains_key(l)) {
            left.push_back(spec); // it reads what was promised
            continue;
        }
        let inputs: Vec<Digest> = spec.inputs.iter().map(|(_, l)| files[l]).collect();
        for (n, (_, location)) in spec.outputs.iter().enumerate() {
            files.insert(location.clone(), made(&spec, &inputs, n));
        }
    }
    files.retain(|location, _| !location.starts_with(RUN_FILE));
    files
}

#[test]
fn split_workflows_end_whole_whatever_happens() {
    let (mut n_crossed, mut n_added) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let arrays = workflow(&mut rng);
        let (first, later) = match seed % 2 {
            0 => (arrays, VecDeque::new()),
            _ => with_additions(&mut rng, arrays),
        };
        let mut world = World::new(seed, first, later);
        for _ in 0..400 {
            world.step();
        }
        world.faults = false;
        let mut n_steps = 0;
        while !world.is_over() {
            world.step();
            n_steps += 1;
            assert!(n_steps < 60_000, "seed {seed}: not everything ended\n{}", world.what_is_left());
        }
        assert_eq!(world.home, expected(&world.accepted), "seed {seed}");
        n_crossed += world.n_crossed;
        n_added += world.n_added;
    }
    assert!(n_crossed > 1000 && n_added > 500, "files crossed: {n_crossed}, tasks added: {n_added}");
}
