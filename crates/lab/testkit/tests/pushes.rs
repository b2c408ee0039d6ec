//! Active push: which node reads what, where it goes, what does not fit, and what happens when nodes leave.

use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::build::reads;
use eyas_testkit::home::digest_of;
use eyas_testkit::script::{Cluster, version};
use std::collections::BTreeMap;

const SIZE: u64 = 100;

/// A cluster in which all that executors are asked for happens at once, unless a test takes it out.
struct Pushing {
    c: Cluster,
    /// Files that home does not have.
    absent: Vec<&'static str>,
    /// Everything that executors were asked for, in short.
    asked: Vec<String>,
    n_reads: BTreeMap<ExecutorId, u32>,
    /// How often a node was named as the first source of a file.
    n_passed_on: BTreeMap<ExecutorId, u32>,
    size: u64,
    todo: Vec<Action>,
    record: Option<PushRecord>,
    run_ended: bool,
}

impl Pushing {
    fn new(n_nodes: u32, cache_bytes: u64) -> Pushing {
        let mut c = Cluster::new();
        for id in 1..=n_nodes {
            c.node_with_cache(id, 1, cache_bytes);
        }
        c.take();
        let (absent, asked, n_reads) = (vec![], vec![], BTreeMap::new());
        let (n_passed_on, todo) = (BTreeMap::new(), vec![]);
        Pushing { c, absent, asked, n_reads, n_passed_on, size: SIZE, todo, record: None, run_ended: false }
    }

    fn feed(&mut self, event: Event) {
        let mut out = vec![];
        self.c.core.handle(self.c.now, event, &mut out);
        self.c.core.sanity_check();
        for action in out {
            match action {
                Action::EndPush { record } => self.record = Some(*record),
                Action::BeginPush { .. } => {}
                Action::EndRun { .. } => self.run_ended = true,
                other => self.todo.push(other),
            }
        }
    }

    /// A run that wants these files.
    fn push(&mut self, files: &[&str], nodes: &[&str]) -> RunId {
        let run = RunId(100 + self.c.core.work().runs().count() as u32);
        self.feed(Event::RunOpened { run, name: "push".into(), keep: false, into: None });
        let owned = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        self.feed(Event::FilesWanted { run, files: owned(files), nodes: owned(nodes) });
        self.feed(Event::RunCommitted { run });
        run
    }

    fn name(&self, object: ObjectId) -> String {
        self.c.core.work().location(object).text().to_string()
    }

    fn added(&mut self, executor: ExecutorId, object: ObjectId, run: Option<RunId>) {
        let digest = digest_of(&self.name(object));
        let size_bytes = self.size;
        let version = run.map(|_| version("v", size_bytes));
        let added = vec![ReplicaAdded { object, digest, size_bytes, version, run, private: false }];
        self.feed(Event::ReplicasChanged { executor, added, dropped: vec![] });
    }

    /// The executors do the next thing that they were asked for. `false`: they have done everything.
    fn step(&mut self) -> bool {
        if self.todo.is_empty() {
            return false;
        }
        match self.todo.remove(0) {
            Action::ReadHome { executor, object, run } => {
                let name = self.name(object);
                self.asked.push(format!("read {name} on {executor}"));
                *self.n_reads.entry(executor).or_default() += 1;
                if self.absent.contains(&name.as_str()) {
                    let error = TransferError {
                        kind: TransferErrorKind::Unavailable,
                        message: "no such file".into(),
                    };
                    self.feed(Event::HomeNotRead { executor, object, error });
                } else if self.c.core.has_executor(executor) {
                    self.added(executor, object, Some(run));
                }
            }
            Action::Prefetch { executor, inputs, .. } => {
                for input in inputs {
                    self.asked.push(format!("send {} to {executor}", self.name(input.object)));
                    if let Some(from) = input.sources.first() {
                        *self.n_passed_on.entry(*from).or_default() += 1;
                    }
                    if self.c.core.has_executor(executor) {
                        self.added(executor, input.object, None);
                    }
                }
            }
            Action::RecordGivesOut => self.feed(Event::GivesOut),
            Action::EndCollective { .. } | Action::ShareHome { .. } | Action::CancelPrefetch { .. } => {}
            other => panic!("{other:?}"),
        }
        true
    }

    fn go_on(&mut self) {
        while self.step() {}
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.c.now = self.c.now.plus_ns(1_000_000_000);
            self.feed(Event::Ticked);
            self.go_on();
        }
    }

    fn record(&self) -> &PushRecord {
        self.record.as_ref().expect("the push has ended")
    }

    fn n_sent(&self) -> usize {
        self.asked.iter().filter(|asked| asked.starts_with("send")).count()
    }
}

#[test]
fn home_is_read_once_and_all_nodes_get_all_files() {
    let mut p = Pushing::new(4, 10_000);
    let names: Vec<String> = (0..8).map(|n| format!("/f{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = p.push(&names, &[]);
    assert!(!p.run_ended, "the run goes on while its push does");
    p.go_on();
    assert_eq!(p.asked.iter().filter(|asked| asked.starts_with("read")).count(), 8, "{:?}", p.asked);
    assert_eq!(p.n_reads.values().copied().collect::<Vec<_>>(), [2, 2, 2, 2], "readers take turns");
    assert_eq!(p.n_sent(), 8 * 3);
    let record = p.record();
    assert_eq!((record.n_wanted, record.n_there, record.there_bytes), (32, 32, 32 * SIZE));
    assert!(record.is_whole() && record.missing.is_empty() && p.run_ended);
    assert_eq!(p.c.core.push_of(run).as_ref(), p.record.as_ref());
    // A second push finds all of it; each file is compared with home once, and nothing is sent.
    p.asked.clear();
    p.push(&["/f1", "/f1", "/f2"], &[]);
    p.go_on();
    assert_eq!((p.asked.len(), p.n_sent()), (2, 0), "{:?}", p.asked);
    assert!(p.record().is_whole() && p.record().n_files == 2);
}

/// Large files go down chains. Where all of these began or ended at the same nodes, the links of these would have the most to do.
#[test]
fn all_nodes_pass_on_equally_much_of_large_files() {
    let mut p = Pushing::new(6, 100 << 30);
    p.size = 1 << 30;
    let files: Vec<String> = (0..12).map(|i| format!("f{i}")).collect();
    p.push(&files.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    p.go_on();
    assert_eq!(p.n_reads.values().copied().collect::<Vec<_>>(), [2; 6]);
    assert_eq!(p.record().n_there, 6 * 12);
    assert_eq!(p.n_passed_on.values().copied().collect::<Vec<_>>(), [10; 6]);
}

#[test]
fn chosen_nodes_get_the_files_and_others_do_not() {
    let mut p = Pushing::new(3, 10_000);
    let names: Vec<String> = p.c.core.executors().map(|(_, offer, ..)| offer.name.clone()).collect();
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{names:?}");
    p.push(&["/a"], &[&names[0], &names[2], "nobody"]);
    p.go_on();
    let object = p.c.core.work().catalog().find(CatalogLocation::of("/a")).expect("it was named");
    let holders: Vec<ExecutorId> = p.c.core.work().catalog().holders_of(object).collect();
    assert_eq!(holders, [ExecutorId(1), ExecutorId(3)]);
    let record = p.record();
    assert_eq!((record.n_nodes, record.n_there), (2, 2));
    assert_eq!(record.missing[0].node, "nobody");
    assert!(!record.is_whole(), "a node that was named is not there");
}

#[test]
fn what_does_not_fit_is_named_and_counted() {
    let mut p = Pushing::new(2, 250);
    p.push(&["/a", "/b", "/c"], &[]);
    p.go_on();
    let record = p.record();
    // Its reader may have it, in place of what its cache evicts for it; these executors evict nothing.
    assert!(record.n_unfit >= 1 && record.n_there + record.n_unfit == record.n_wanted, "{record:?}");
    assert!(record.missing.iter().all(|missing| missing.file == "/c"), "{record:?}");
    assert!(record.missing[0].why.contains("no room"), "{record:?}");
    assert!(p.run_ended && !record.is_whole());
}

/// Takes out the next request to send files on: who is to get them, by which batch, and which they are.
fn prefetch(p: &mut Pushing) -> (ExecutorId, eyas_core::collective::BatchId, Vec<ObjectId>) {
    let is_prefetch = |action: &Action| matches!(action, Action::Prefetch { .. });
    let at = p.todo.iter().position(is_prefetch).expect("a file is sent");
    let Action::Prefetch { executor, batch, inputs, .. } = p.todo.remove(at) else { unreachable!() };
    (executor, batch, inputs.iter().map(|input| input.object).collect())
}

/// It was said that the file may have arrived.
#[test]
fn a_cache_that_refuses_a_file_is_named_with_its_size() {
    let mut p = Pushing::new(2, 250);
    p.push(&["/a"], &[]);
    assert!(p.step(), "its reader reads");
    let (executor, batch, objects) = prefetch(&mut p);
    let kind = TransferErrorKind::NoSpace;
    p.feed(Event::PrefetchFailed { executor, batch, object: objects[0], kind });
    p.go_on();
    let record = p.record();
    assert_eq!((record.n_there, record.n_wanted, record.n_unfit), (1, 2, 1), "{record:?}");
    let why = "its cache of 250 B had no room for it beside what may not leave the cache";
    assert_eq!(record.missing.iter().map(|missing| missing.why.as_str()).collect::<Vec<_>>(), [why]);
    // Another reason is not taken for that one.
    let mut p = Pushing::new(2, 250);
    p.push(&["/a"], &[]);
    assert!(p.step());
    let (executor, batch, objects) = prefetch(&mut p);
    let kind = TransferErrorKind::Unavailable;
    p.feed(Event::PrefetchFailed { executor, batch, object: objects[0], kind });
    p.wait(60);
    let record = p.record();
    assert_eq!((record.n_there, record.n_unfit, record.missing[0].why.as_str()), (1, 0, "it did not arrive"));
}

#[test]
fn a_file_that_left_the_cache_again_is_told_from_one_that_never_came() {
    let mut p = Pushing::new(2, 250);
    p.push(&["/a", "/b"], &[]);
    while p.n_sent() == 0 {
        assert!(p.step());
    }
    let sent = p.asked.iter().rev().find(|asked| asked.starts_with("send")).cloned().expect("one was sent");
    let (name, executor) = sent["send ".len()..].split_once(" to ").expect("as it is written above");
    let executor = ExecutorId(executor.parse().expect("a number"));
    let object = p.c.core.work().catalog().find(CatalogLocation::of(name)).expect("it was named");
    assert!(p.record.is_none(), "the other file is under way");
    p.feed(Event::ReplicasChanged { executor, added: vec![], dropped: vec![object] });
    p.go_on();
    let record = p.record();
    assert_eq!((record.n_there, record.n_wanted, record.n_unfit), (3, 4, 0), "{record:?}");
    let why = "it arrived, and left the cache of 250 B again to make room for other files";
    assert_eq!((record.missing[0].file.as_str(), record.missing[0].why.as_str()), (name, why));
}

/// It was asked again each second, for ever.
#[test]
fn an_owner_whose_cache_cannot_hold_its_file_is_asked_once() {
    let mut p = Pushing::new(1, 10_000);
    let nearby = Nearby { own: vec!["/own".into()], ..Nearby::default() };
    let offer = Offer { slots: 1, cache_bytes: 10, nearby: Box::new(nearby), ..Offer::default() };
    p.feed(Event::ExecutorJoined { executor: ExecutorId(9), offer });
    p.push(&["/own/a"], &[]);
    let Some(Action::ReadHome { executor, object, .. }) =
        p.todo.iter().find(|action| matches!(action, Action::ReadHome { .. })).cloned()
    else {
        panic!("{:?}", p.todo)
    };
    assert_eq!(executor, ExecutorId(9));
    p.todo.clear();
    let error =
        TransferError { kind: TransferErrorKind::Larger { bytes: SIZE }, message: "too large".into() };
    p.feed(Event::HomeNotRead { executor, object, error });
    p.wait(2);
    assert!(p.run_ended && p.record().n_there < p.record().n_wanted, "{:?}", p.record);
}

#[test]
fn a_file_that_home_does_not_have_is_named_and_the_others_come() {
    let mut p = Pushing::new(2, 10_000);
    p.absent.push("/b");
    p.push(&["/a", "/b"], &[]);
    p.go_on();
    let record = p.record();
    assert_eq!((record.n_there, record.n_wanted, record.missing.len()), (2, 4, 1));
    assert_eq!(record.missing[0].why, "no such file");
}

#[test]
fn another_node_reads_when_the_reader_leaves_and_the_one_that_left_is_missing() {
    let mut p = Pushing::new(3, 10_000);
    p.push(&["/a"], &[]);
    let Some(Action::ReadHome { executor, .. }) =
        p.todo.iter().find(|action| matches!(action, Action::ReadHome { .. })).cloned()
    else {
        panic!("{:?}", p.todo)
    };
    p.todo.clear();
    p.feed(Event::ExecutorLost { executor, reason: "of a test".into() });
    p.wait(2);
    let record = p.record();
    assert_eq!((record.n_wanted, record.n_there), (3, 2));
    assert_eq!(record.missing[0].why, "the node left");
    // Without any node the push ends, too, and says so.
    let mut p = Pushing::new(1, 10_000);
    p.push(&["/a"], &[]);
    p.todo.clear();
    p.feed(Event::ExecutorLost { executor: ExecutorId(1), reason: "of a test".into() });
    p.wait(2);
    assert_eq!((p.record().n_there, p.record().n_wanted), (0, 1));
    assert!(p.run_ended);
}

#[test]
fn what_its_only_holder_lost_on_the_way_is_read_once_more() {
    let mut p = Pushing::new(3, 10_000);
    p.push(&["/a"], &[]);
    assert!(p.step(), "a node reads it");
    // Its copies are on their way, and the node is lost with the file.
    let Some(Action::Prefetch { inputs, .. }) = p.todo.first().cloned() else { panic!("{:?}", p.todo) };
    p.todo.clear();
    p.feed(Event::ExecutorLost { executor: inputs[0].sources[0], reason: "of a test".into() });
    p.wait(10);
    assert_eq!((p.record().n_there, p.record().n_wanted), (2, 3), "{:?}", p.asked);
    assert!(p.run_ended);
}

#[test]
fn a_push_waits_for_a_node_and_for_its_commit() {
    let mut p = Pushing::new(0, 0);
    p.push(&["/a"], &[]);
    p.wait(3);
    assert!(p.record.is_none());
    let offer = Offer { slots: 1, cache_bytes: 1_000, name: "late".into(), ..Offer::default() };
    p.feed(Event::ExecutorJoined { executor: ExecutorId(1), offer });
    p.go_on();
    assert!(p.record().is_whole());
}

#[test]
fn a_push_that_is_cancelled_ends_at_once_and_asks_for_nothing_more() {
    let mut p = Pushing::new(2, 100_000);
    let names: Vec<String> = (0..50).map(|n| format!("/f{n}")).collect();
    let run = p.push(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    p.step();
    p.feed(Event::CancelRequested { run, task: None });
    assert!(p.record().is_cancelled && p.run_ended);
    let n = p.asked.len();
    // Reads that were under way may still be answered.
    p.todo.retain(|action| !matches!(action, Action::Prefetch { .. }));
    p.go_on();
    p.wait(3);
    assert!(p.asked.len() - n <= 8, "{:?}", p.asked);
    assert_eq!(p.n_sent(), 0);
}

#[test]
fn a_later_push_finds_what_home_has_now() {
    let mut p = Pushing::new(2, 10_000);
    p.push(&["/a"], &[]);
    p.go_on();
    let object = p.c.core.work().catalog().find(CatalogLocation::of("/a")).expect("it was named");
    // Home changed, and the reader of the next push finds other bytes.
    let run = p.push(&["/a"], &[]);
    let Some(Action::ReadHome { executor, .. }) = p.todo.pop() else { panic!("home is asked") };
    let added = ReplicaAdded {
        object,
        digest: digest_of("other bytes"),
        size_bytes: SIZE,
        version: Some(version("w", SIZE)),
        run: Some(run),
        private: false,
    };
    p.feed(Event::ReplicasChanged { executor, added: vec![added], dropped: vec![] });
    let old = p.todo.iter().position(|action| matches!(action, Action::DropReplicas { .. }));
    p.todo.remove(old.expect("the other node drops the old bytes"));
    let Some(Action::Prefetch { inputs, .. }) = p.todo.first() else { panic!("{:?}", p.todo) };
    assert_eq!(inputs[0].known.as_ref().map(|known| known.digest), Some(digest_of("other bytes")));
}

#[test]
fn tasks_go_to_what_was_pushed_and_ask_home_for_its_version_only() {
    let mut p = Pushing::new(2, 10_000);
    p.push(&["/a"], &[]);
    p.go_on();
    let run = RunId(500);
    p.feed(Event::RunOpened { run, name: "later".into(), keep: false, into: None });
    p.feed(Event::ArrayAdded { run, array: reads("/a").array() });
    p.feed(Event::RunCommitted { run });
    let assigned = p.todo.iter().find_map(|action| match action {
        Action::Assign { assignment, .. } => Some(assignment),
        _ => None,
    });
    let assigned = assigned.expect("a node is idle");
    assert_eq!(assigned.why.n_hits, 1);
    assert!(assigned.inputs[0].known.is_some() && assigned.inputs[0].check_home);
}

#[test]
fn a_push_that_had_ended_does_not_begin_again_after_a_restart() {
    let restart = |ended: Option<Timestamp>| {
        let mut p = Pushing::new(0, 0);
        p.push(&["/a"], &[]);
        let run = p.c.core.work().runs().next().expect("it is there").0;
        p.feed(Event::RunRestored { run, opened: Timestamp(1), ended });
        p.feed(Event::Recovered);
        let offer = Offer { slots: 1, cache_bytes: 1_000, name: "back".into(), ..Offer::default() };
        p.feed(Event::ExecutorJoined { executor: ExecutorId(1), offer });
        p.wait(5);
        let ended = p.c.core.work().find_run(run).and_then(|r| r.ended);
        (p.asked.len(), ended, p.c.core.push_of(run).is_some())
    };
    assert_eq!(restart(Some(Timestamp(7))), (0, Some(Timestamp(7)), false));
    let (n_asked, ended, is_known) = restart(None);
    assert!(n_asked > 0 && ended.is_some() && is_known);
}

#[test]
fn what_a_forgotten_push_brought_is_dropped_with_its_names() {
    let mut p = Pushing::new(1, 10_000);
    let run = p.push(&["/a"], &[]);
    p.go_on();
    p.feed(Event::RunForgotten { run });
    assert!(matches!(&p.todo[..], [Action::DropReplicas { .. }]), "{:?}", p.todo);
    assert!(p.c.core.names_of_forgotten_runs().is_empty());
    assert_eq!(p.c.core.push_of(run), None);
}
