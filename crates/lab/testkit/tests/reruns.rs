//! A task that makes much out of little runs again where its files are needed, instead of their being sent; and whatever
//! becomes of that, nothing else does.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::{Event, InputReport, Offer, OutputReport};
use eyas_terms::*;
use eyas_testkit::build::{Task, task, writes};
use eyas_testkit::home::digest_of;
use eyas_testkit::script::Cluster;

const N_NODES: u32 = 6;
/// Takes minutes to send; its maker runs for a second.
const OUTPUT_BYTES: u64 = 1 << 40;
/// The attempt number of the first rerun of task 0.
const FIRST: u32 = 1 << 15;

fn cluster() -> Cluster {
    let mut c = Cluster::new();
    for id in 1..=N_NODES {
        let offer =
            Offer { slots: 2, memory_bytes: 1_000_000, cache_bytes: OUTPUT_BYTES * 8, ..Offer::default() };
        c.feed(Event::ExecutorJoined { executor: ExecutorId(id), offer });
    }
    c
}

/// A maker and twelve that read what it makes.
fn tasks(maker: Task) -> Vec<Task> {
    let reader = |i| task(&format!("r{i}")).reads("run:x").label("read");
    std::iter::once(maker).chain((0..12).map(reader)).collect()
}

fn ended(c: &mut Cluster, executor: u32, attempt: (u64, u32), bytes: &str) {
    // So that the link is known: 16 MiB from another node, at 100 MB/s.
    ended_having_read(c, executor, attempt, bytes, 16 << 20);
}

/// Its attempt has read an input of so many bytes from another node, at 100 MB/s.
fn ended_having_read(c: &mut Cluster, executor: u32, attempt: (u64, u32), bytes: &str, read_bytes: u64) {
    let mut report = c.report(attempt, Outcome::Done);
    let output = OutputReport { output: 0, digest: digest_of(bytes), size_bytes: OUTPUT_BYTES, marks: None };
    report.outputs = vec![output];
    let outcome = CacheOutcome::RemoteHit { from: ExecutorId(2) };
    let object = c.core.work().catalog().find(CatalogLocation::of("run:here.1/x")).expect("it was read");
    let wait_ns = read_bytes * 10;
    report.inputs = vec![InputReport { object, outcome, size_bytes: read_bytes, wait_ns }];
    c.feed(Event::AttemptEnded { executor: ExecutorId(executor), report: report.into() });
}

fn holders(c: &Cluster) -> Vec<u32> {
    let object = c.core.work().catalog().find(CatalogLocation::of("run:here.1/x")).expect("it was read");
    c.core.work().catalog().holders_of(object).map(|e| e.0).collect()
}

/// The maker has run on node 1.
fn made(maker: Task) -> (Cluster, Vec<String>) {
    let mut c = cluster();
    c.run(&tasks(maker));
    c.take();
    ended(&mut c, 1, (0, 1), "x");
    let actions = c.take();
    (c, actions)
}

fn reruns(actions: &[String]) -> Vec<&String> {
    actions.iter().filter(|a| a.starts_with("rerun")).collect()
}

#[test]
fn the_same_bytes_count_as_a_copy_and_others_are_dropped() {
    let (mut c, actions) = made(writes("run:x"));
    let expect: Vec<String> = (2..=N_NODES).map(|e| format!("rerun 0.{} on {e}", FIRST + e - 2)).collect();
    assert_eq!(reruns(&actions), expect.iter().collect::<Vec<_>>());
    assert!(!actions.iter().any(|a| a.starts_with("prefetch")), "{actions:?}");
    assert_eq!(c.state(0), TaskState::Done);
    ended(&mut c, 2, (0, FIRST), "x");
    assert_eq!(holders(&c), [1, 2]);
    ended(&mut c, 3, (0, FIRST + 1), "y");
    assert_eq!(holders(&c), [1, 2]);
    assert!(c.take().iter().any(|a| a == "drop run:here.1/x on 3"));
    c.failed(4, (0, FIRST + 2), FailureKind::ExitCode(1));
    c.lost(5);
    assert_eq!(holders(&c), [1, 2]);
    assert!(!c.take().iter().any(|a| a == "end collective"), "one is still under way");
    ended(&mut c, 6, (0, FIRST + 4), "x");
    assert_eq!(holders(&c), [1, 2, 6]);
    assert!(c.take().iter().any(|a| a == "end collective"));
    assert_eq!(c.state(0), TaskState::Done, "nothing of all that counts for the task");
    // Another word of an attempt that is over changes nothing: what it made still goes.
    ended(&mut c, 3, (0, FIRST + 1), "y");
    assert_eq!(holders(&c), [1, 2, 6]);
    assert!(c.take().iter().any(|a| a == "drop run:here.1/x on 3"));
}

#[test]
fn nothing_runs_again_because_of_a_link_that_is_not_measured() {
    for read_bytes in [0, 1_000, 4 << 20] {
        let mut c = cluster();
        c.run(&tasks(writes("run:x")));
        c.take();
        ended_having_read(&mut c, 1, (0, 1), "x", read_bytes);
        let actions = c.take();
        assert_eq!(reruns(&actions), Vec::<&String>::new(), "{read_bytes} bytes were seen to move");
        assert!(actions.iter().any(|a| a.starts_with("prefetch")), "{actions:?}");
    }
}

#[test]
fn a_task_that_made_other_bytes_is_not_rerun_again() {
    let (mut c, _) = made(writes("run:x").label("make"));
    ended(&mut c, 2, (0, FIRST), "y");
    c.take();
    // Its only copy is lost, and the task runs again; now its files are sent.
    c.lost(1);
    let actions = c.take();
    assert!(actions.iter().any(|a| a.starts_with("revive 0")), "{actions:?}");
    for e in 3..=N_NODES {
        assert!(actions.contains(&format!("cancel 0.{} on {e}", FIRST + e - 2)), "{actions:?}");
        c.ended(e, (0, FIRST + e - 2), Outcome::Cancelled);
    }
    let all = [actions, c.take()].concat();
    let given = all.iter().find_map(|a| a.strip_prefix("assign 0.")).expect("it runs again");
    let (attempt, executor) = given.split_once(" to ").expect("ATTEMPT to EXECUTOR");
    ended(&mut c, executor.parse().expect("a number"), (0, attempt.parse().expect("a number")), "x");
    assert_eq!(reruns(&c.take()), Vec::<&String>::new());
}

#[test]
fn files_that_nobody_reads_any_more_are_not_made() {
    let (mut c, actions) = made(writes("run:x"));
    let given: Vec<(u64, u32)> = actions.iter().filter_map(|a| parse(a)).collect();
    assert_eq!(given.len(), 7, "a slot of each node, and both of the maker's: {actions:?}");
    c.cancel(RunId(1), None);
    let actions = c.take();
    for (task, executor) in given {
        c.ended(executor, (task, 1), Outcome::Cancelled);
    }
    let actions = [actions, c.take()].concat();
    for e in 2..=N_NODES {
        assert!(actions.contains(&format!("cancel 0.{} on {e}", FIRST + e - 2)), "{actions:?}");
    }
    ended(&mut c, 2, (0, FIRST), "x");
    assert!(c.take().contains(&"drop run:here.1/x on 2".into()), "it was too late to cancel it");
}

fn parse(action: &str) -> Option<(u64, u32)> {
    let (task, executor) = action.strip_prefix("assign ")?.split_once(".1 to ")?;
    Some((task.parse().ok()?, executor.parse().ok()?))
}

#[test]
fn a_file_whose_task_cannot_run_again_at_once_or_safely_is_sent() {
    // It reads what nobody holds: all would ask home.
    assert_eq!(reruns(&made(writes("run:x").reads("in")).1), Vec::<&String>::new());
    // It writes home.
    let (_, actions) = made(writes("run:x").writes("out"));
    assert_eq!(reruns(&actions), Vec::<&String>::new());
    // It needs more than is free there.
    let mut large = writes("run:x");
    large.memory_bytes = Some(2_000_000);
    let mut c = cluster();
    let offer =
        Offer { slots: 2, memory_bytes: 4_000_000, cache_bytes: OUTPUT_BYTES * 8, ..Offer::default() };
    c.feed(Event::ExecutorJoined { executor: ExecutorId(7), offer });
    c.run(&tasks(large));
    c.take();
    ended(&mut c, 7, (0, 1), "x");
    assert_eq!(reruns(&c.take()), Vec::<&String>::new());
}

#[test]
fn no_program_runs_again_because_of_a_link_that_nobody_has_measured() {
    let mut c = cluster();
    c.run(&tasks(writes("run:x")));
    c.take();
    let mut report = c.report((0, 1), Outcome::Done);
    report.outputs =
        vec![OutputReport { output: 0, digest: digest_of("x"), size_bytes: OUTPUT_BYTES, marks: None }];
    c.feed(Event::AttemptEnded { executor: ExecutorId(1), report: report.into() });
    assert_eq!(reruns(&c.take()), Vec::<&String>::new());
}
