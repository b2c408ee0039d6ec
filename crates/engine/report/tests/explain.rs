//! Stories of tasks, word for word.

mod common;

use common::*;
use eyas_core::event::*;
use eyas_core::log::*;
use eyas_report::{ErrorKind, TaskStory, explain_lines, story_from_dir};
use eyas_terms::TaskPhase;
use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm};
use eyas_terms::*;

fn explanation(cluster: &Cluster, task: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    explain_lines(&story_from_dir(dir.path(), task, None).unwrap())
}

fn check(text: &str, expect: &str) {
    let expect = expect.strip_prefix('\n').unwrap_or(expect);
    assert_eq!(text, expect, "\n{text}");
}

#[test]
fn a_task_that_went_well() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    cluster.submit("two", vec![map("a", 2, 1, 0)]);
    cluster.go(None);
    check(&explanation(&cluster, "a-0"), WELL);
    assert!(explanation(&cluster, "#1").contains("\n    sky/f0     1.5 MiB  in the node's cache already\n"));
    assert_eq!(explanation(&cluster, "#0"), explanation(&cluster, "a-0"));
}

/// The event log is ahead of the journal.
#[test]
fn an_end_that_the_journal_does_not_have_is_not_explained() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    cluster.submit("two", vec![map("a", 2, 1, 0)]);
    cluster.go(None);
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    let story = TaskStory { state: TaskPhase::Ending, ..story_from_dir(dir.path(), "a-0", None).unwrap() };
    let text = explain_lines(&story);
    let expected =
        "Task `a-0` (number 0, run 1) has ended on `n1`, and waits for that to be in the journal.\n";
    assert!(text.starts_with(expected), "{text}");
}
const WELL: &str = r"
Task `a-0` (number 0, run 1) is done, 100 ms after it was submitted.
Command: cut 'in put'

Attempt 1 on `n1`
  Why there: its input was not in the cache of `n1`; `max-compute-util` was in force, which keeps every slot busy and then looks at caches.
  At that time 0 of 1 slots were busy and 2 tasks were queued.
  Inputs:
    sky/f0     1.5 MiB  from home in 40 ms
  Time: queued 1.0 ms, staging inputs 41 ms, running 50 ms (25 ms of processor time, at most 20.0 MiB of memory), bringing outputs home 8.0 ms.
  It ended well and made 1 output, 1000 B.
";

#[test]
fn what_an_older_version_logged_is_shown_without_queries() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    let mut array = map("a", 1, 1, 0);
    array.template.inputs[0].1 = Pattern::literal("https://h/x?k=5ec2e7");
    cluster.submit("one", vec![array]);
    cluster.go(None);
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    let story = story_from_dir(dir.path(), "a-0", None).unwrap();
    let read = &story.spec.as_ref().unwrap().inputs[0].1;
    assert!(read.starts_with("https://h/x?hidden="), "{read}");
    let text = explain_lines(&story);
    assert!(text.contains("https://h/x?hidden=") && !text.contains("5ec2e7"), "{text}");
    assert_eq!(eyas_report::memo::Memo::read(dir.path()).unwrap().last_of("a-0").unwrap().inputs[0].0, "in");
    assert!(
        eyas_report::replay::replay(dir.path()).unwrap().difference.is_none(),
        "replays see what was logged"
    );
}

#[test]
fn a_task_that_failed_twice() {
    let mut cluster = Cluster::new("good-cache-compute", 1, Weather { fail_per_cent: 100, ..FAIR });
    cluster.join("n1", 1);
    cluster.submit("two", vec![map("a", 2, 1, 1)]);
    cluster.go(None);
    check(&explanation(&cluster, "a-1"), FAILED);
}
const FAILED: &str = r"
Task `a-1` (number 1, run 1) failed after 2 attempts, 251 ms after it was submitted.
Why: exit status 3.
Command: cut 'in put'

Attempt 1 on `n1`
  Why there: its input was in the cache of `n1`; `max-compute-util` was in force, which keeps every slot busy and then looks at caches.
  At that time 0 of 1 slots were busy and 1 task was queued.
  Inputs:
    sky/f0     1.5 MiB  in the node's cache already
  Time: queued 145 ms, staging inputs 1.0 ms, running 51 ms (26 ms of processor time, at most 20.0 MiB of memory).
  It failed: exit status 3.
  It had `retries` left and is tried again.
  The end of its standard error (40 B in all):
    | line one
    | no such column `mag` in task 1

Attempt 2 on `n1`
  Why there: its input was in the cache of `n1`; `max-compute-util` was in force, which keeps every slot busy and then looks at caches.
  At that time 0 of 1 slots were busy and 1 task was queued.
  Inputs:
    sky/f0     1.5 MiB  in the node's cache already
  Time: staging inputs 1.0 ms, running 51 ms (26 ms of processor time, at most 20.0 MiB of memory).
  It failed: exit status 3.
  The end of its standard error (40 B in all):
    | line one
    | no such column `mag` in task 1
";

#[test]
fn losses_restarts_and_cancels() {
    let mut cluster = Cluster::new("first-available", 1, FAIR);
    let gone = cluster.join("n1", 1);
    cluster.submit("two", vec![map("a", 3, 1, 1)]);
    cluster.go(Some(START.plus_ns(20 * MS)));
    check(&explanation(&cluster, "a-0"), UNFINISHED);
    check(&explanation(&cluster, "a-2"), QUEUED);
    cluster.now = START.plus_ns(20 * MS);
    cluster.lose(gone, "its process was killed by signal 9");
    cluster.join("n2", 1);
    cluster.now = START.plus_ns(30 * MS);
    cluster.feed(Event::CancelRequested { run: RunId(1), task: Some(TaskId(2)) });
    cluster.now = START.plus_ns(50 * MS);
    cluster.restart(b"{\"t\":17");
    cluster.go(None);
    check(&explanation(&cluster, "a-0"), LOST);
    check(&explanation(&cluster, "a-2"), CANCELLED);
}
const UNFINISHED: &str = r"
Task `a-0` (number 0, run 1) had not ended when the log did.
Command: cut 'in put'

Attempt 1 on `n1`
  Why there: `first-available` takes the first executor with room and looks at no cache.
  At that time 0 of 1 slots were busy and 3 tasks were queued.
  It has not ended yet.
";
const QUEUED: &str = r"
Task `a-2` (number 2, run 1) waits in the queue: no executor had it when the log ended.
Command: cut 'in put'
";
const LOST: &str = r"
Task `a-0` (number 0, run 1) is done, 2.06 s after it was submitted; it took 2 attempts.
The dispatcher was restarted once meanwhile.
Command: cut 'in put'

Attempt 1 on `n1`
  Why there: `first-available` takes the first executor with room and looks at no cache.
  At that time 0 of 1 slots were busy and 3 tasks were queued.
  It ended without a result: its executor was lost: its process was killed by signal 9.
  That was not the task's fault: it is tried again without using up `retries`.

Attempt 2 on `n2`
  Why there: `first-available` takes the first executor with room and looks at no cache.
  At that time 0 of 1 slots were busy and 3 tasks were queued.
  Inputs:
    sky/f0     1.5 MiB  from home in 40 ms, for this attempt only
  Time: staging inputs 41 ms, running 50 ms (25 ms of processor time, at most 20.0 MiB of memory), bringing outputs home 1.95 s.
  It ended well and made 1 output, 1000 B.
";
const CANCELLED: &str = r"
Task `a-2` (number 2, run 1) was cancelled, 29 ms after it was submitted, before it had been given to an executor.
Command: cut 'in put'
";

/// The head of a cluster is killed together with its node, so nobody tells the next dispatcher of the attempt.
#[test]
fn attempts_with_one_number_are_told_apart_by_the_restart_between_them() {
    let mut cluster = Cluster::new("first-available", 1, FAIR);
    cluster.join("n1", 1);
    cluster.submit("one", vec![map("a", 1, 1, 0)]);
    for (restart, node) in ["n2", "n3"].into_iter().enumerate() {
        cluster.go(Some(START.plus_ns(20 * MS)));
        cluster.restart_without_nodes();
        cluster.now = START.plus_ns((restart as u64 + 1) * 60 * S);
        cluster.join(node, 1);
    }
    cluster.go(None);
    let text = explanation(&cluster, "a-0");
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("Attempt")).collect();
    let expected = [
        "Attempt 1 on `n1` (before the dispatcher was started again)",
        "Attempt 1 on `n2` (after the dispatcher was started again)",
        "Attempt 1 on `n3` (after the dispatcher was started again 2 times)",
    ];
    assert_eq!(headings, expected, "\n{text}");
}

#[test]
fn a_live_answer_without_names() {
    let out = |t: u64, action: Action| {
        serde_json::to_string(&Line { t: Timestamp(t), what: What::Out(action) }).unwrap()
    };
    let at = |t: u64, event: Event| {
        serde_json::to_string(&Line { t: Timestamp(t), what: What::In(event) }).unwrap()
    };
    let task = TaskId(41);
    let why = Why {
        policy: "max-cache-hit".into(),
        n_hits: 2,
        n_inputs: 5,
        n_slots_active: 7,
        n_slots: 8,
        n_queued: 12_345,
        ahead: true,
        reason: None,
    };
    let assignment = Assignment {
        task,
        attempt: AttemptNo(1),
        run: RunId(3),
        cpus: 1,
        inputs: vec![],
        outputs: vec![],
        staying: vec![],
        private_inputs: true,
        repeated: false,
        alone: false,
        needs: None,
        why,
    };
    let input = |object, outcome, wait_ns| InputReport {
        object: ObjectId(object),
        outcome,
        size_bytes: 3 << 20,
        wait_ns,
    };
    let failure = Failure { kind: FailureKind::Walltime, message: "ran over its walltime of 2 s.".into() };
    let report = AttemptReport {
        task,
        attempt: AttemptNo(1),
        outcome: Outcome::Failed(failure.clone()),
        in_memory: vec![0],
        times: Times {
            received: Timestamp(S),
            inputs_ready: Timestamp(S + 30 * MS),
            started: Timestamp(2 * S),
            exited: Timestamp(4 * S),
        },
        inputs: vec![
            input(1, CacheOutcome::LocalHit, 0),
            input(2, CacheOutcome::RemoteHit { from: ExecutorId(9) }, 12 * MS),
            input(3, CacheOutcome::Joined, 30 * MS),
            input(4, CacheOutcome::InPlace, 0),
            input(5, CacheOutcome::RemoteHit { from: ExecutorId(2) }, 2 * MS),
        ],
        outputs: vec![],
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
    };
    let stdout = PrintedStream {
        head: "step 1\nstep 2\n".into(),
        tail: "step 99\n\u{1b}[31mred\u{7}\n".into(),
        total_bytes: 5000,
    };
    let story = TaskStory {
        task,
        user_id: "tile/7".into(),
        run: RunId(3),
        state: TaskPhase::Failed,
        log_lines: vec![
            out(S - MS, Action::Assign { executor: ExecutorId(4), assignment: assignment.into() }),
            at(4 * S, Event::AttemptEnded { executor: ExecutorId(4), report: report.into() }),
            out(4 * S, Action::EndTask { task, outcome: Outcome::Failed(failure), by: None }),
        ],
        executors: [(2, "c017".to_string())].into(),
        objects: [(1, "s3://sky/a.fits".to_string()), (3, "b.fits".to_string())].into(),
        printed: vec![PrintedLine { task, attempt: AttemptNo(1), stdout, stderr: PrintedStream::default() }],
        ..TaskStory::default()
    };
    check(&explain_lines(&story), LIVE);
    // Of a call of a function neither the packed call nor the packed answer is shown.
    let words = ["python3", "-m", "eyas._worker", "pool", "+gASVCg=="];
    let command = Command::Exec(words.map(Pattern::literal).to_vec());
    let template = TaskForm::new(Pattern::literal("call"), command);
    let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
    let stdout = PrintedStream {
        head: "\u{1e}eyas-answer RgASVCg==".into(),
        total_bytes: 22,
        ..PrintedStream::default()
    };
    let printed = vec![PrintedLine { task, attempt: AttemptNo(1), stdout, stderr: PrintedStream::default() }];
    let text = explain_lines(&TaskStory { spec: Some(array.expand(0)), printed, ..story });
    assert!(
        text.contains("\nCommand: python3 -m eyas._worker pool and a packed call of 9 bytes\n"),
        "{text}"
    );
    assert!(text.ends_with("  It printed nothing.\n") && !text.contains("gASV"), "{text}");
    for (state, reason, expect) in [
        (TaskPhase::Ready, Some("every slot is busy"), "waits in the queue: every slot is busy.\n"),
        (
            TaskPhase::Waiting,
            Some("`run:a`, which task `b` makes; `run:c`, which task `d` has promised"),
            "waits for `run:a`, which task `b` makes; `run:c`, which task `d` has promised.\n",
        ),
        (TaskPhase::Submitting, None, "is not accepted yet: its submission is still arriving.\n"),
    ] {
        let story = TaskStory {
            user_id: "x".into(),
            state,
            reason: reason.map(String::from),
            ..TaskStory::default()
        };
        assert_eq!(explain_lines(&story), format!("Task `x` (number 0, run 0) {expect}"));
    }
}
const LIVE: &str = r"
Task `tile/7` (number 41, run 3) failed after 1 attempt.
Why: ran over its walltime of 2 s.
hint: give it a longer `walltime`, or see below where its time went

Attempt 1 on executor 4
  Why there: 2 of its 5 inputs were in the cache of executor 4; `max-cache-hit` was in force, which puts tasks where most of their data is.
  At that time 7 of 8 slots were busy and 12,345 tasks were queued.
  Its slots were full: the task was given ahead, so that its inputs could move while another computed.
  It got private copies of its inputs, because an earlier attempt wrote to one.
  Inputs:
    s3://sky/a.fits     3.0 MiB  in the node's cache already; in memory when the program began
    object 2            3.0 MiB  from the cache of executor 9 in 12 ms
    b.fits              3.0 MiB  another task was fetching it; waited 30 ms for that
    object 4            3.0 MiB  read in place, home is the node's own disk
    object 5            3.0 MiB  from the cache of `c017` in 2.0 ms
  Time: staging inputs 31 ms, waiting for a slot 970 ms, running 2.00 s (0 s of processor time).
  It failed: ran over its walltime of 2 s.
  The end of its standard output (4.9 KiB in all):
    | step 1
    | step 2
    | …
    | step 99
    | \u{1b}[31mred\u{7}
";

#[test]
fn nobody_of_that_name() {
    let mut cluster = Cluster::new("first-available", 1, FAIR);
    cluster.submit("two", vec![map("a", 3, 1, 1)]);
    let mut again = map("a", 2, 1, 1);
    again.template.outputs.clear();
    cluster.submit("again", vec![again]);
    // Its outputs are those of the first run.
    let refused = cluster.submit("refused", vec![map("a", 9, 1, 1)]);
    assert!(String::from_utf8_lossy(&cluster.log).contains("refuse_run"));
    assert_eq!(refused, RunId(3));
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    for name in ["a-3", "a-8", "#15", "#-1", ""] {
        let error = story_from_dir(dir.path(), name, None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoTask, "{name}");
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
    // The newest run that has one is meant.
    let find = |name: &str| story_from_dir(dir.path(), name, None).map(|s| (s.task, s.run)).unwrap();
    assert_eq!(find("a-1"), (TaskId(4), RunId(2)));
    assert_eq!(find("a-2"), (TaskId(2), RunId(1)));
    assert_eq!(find("#1"), (TaskId(1), RunId(1)));
}
