//! Logs that a dispatcher could have written, and the workloads and measurements that are read from them.

use super::*;
use crate::workload::{MS_NS, SECOND_NS, template};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::*;
use eyas_core::log::{Header, LOG_VERSION, Line, What};
use eyas_terms::array::Pattern;
use eyas_terms::array::{Part, Piece};
use std::sync::Arc;

const ZERO_NS: u64 = 1_795_293_000 * SECOND_NS;

/// A log that a dispatcher could have written, with times in milliseconds since its start.
#[derive(Default)]
struct Log(Vec<u8>);

impl Log {
    fn life() -> Log {
        let mut log = Log::default();
        log.header();
        log
    }
    fn header(&mut self) {
        self.push(&Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: "0.1.0".into(),
            t: Timestamp(ZERO_NS),
            config: DispatcherConfig::default(),
            cluster: "test".into(),
            is_cut: false,
        });
    }
    fn push(&mut self, line: &impl serde::Serialize) {
        serde_json::to_writer(&mut self.0, line).unwrap();
        self.0.push(b'\n');
    }
    fn add(&mut self, ms: u64, event: Event) {
        self.push(&Line { t: at(ms), what: What::In(event) });
    }
    fn out(&mut self, ms: u64, action: Action) {
        self.push(&Line { t: at(ms), what: What::Out(action) });
    }
    fn node(&mut self, ms: u64, n: u32) {
        let offer = Offer {
            equipment: Default::default(),
            nearby: Default::default(),
            exchanges: false,
            walltime: None,
            name: format!("node-{n}"),
            slots: 1,
            memory_bytes: 1 << 30,
            cache_bytes: 1 << 20,
            cache_memory_bytes: 0,
            held: vec![],
            attempts: vec![],
            owner: None,
        };
        self.add(ms, Event::ExecutorJoined { executor: ExecutorId(n), offer });
    }
    /// `n` tasks that read `sky/0`, `sky/1`, ... and write `cut/0`, ...
    fn run(&mut self, ms: u64, run: u32, n_tasks: u32) {
        let run = RunId(run);
        let (literal, index) = (|s: &str| Piece::Literal(s.into()), Piece::Index);
        let mut column = eyas_terms::array::Column::default();
        (0..n_tasks).for_each(|i| assert!(column.push(&format!("sky/{i}"))));
        let input = Pattern(vec![Piece::Column { column: 0, part: Part::Whole }]);
        let output = Pattern(vec![literal(&format!("cut{run}/")), index.clone()]);
        let array = TaskArray {
            n_tasks,
            first_index: 0,
            template: template(Pattern(vec![literal("t"), index]), "cut", vec![input], vec![output]),
            columns: vec![column],
            needs: None,
        };
        self.add(ms, Event::RunOpened { run, name: format!("run {run}"), keep: false, into: None });
        self.add(ms, Event::ArrayAdded { run, array: Arc::new(array) });
        self.add(ms, Event::RunCommitted { run });
    }
    /// The task is given at `ms`; its inputs are there after 100 ms; it runs for 50 ms; its output of 500
    /// bytes is at home 10 ms later.
    fn task(&mut self, ms: u64, task: u64, node: u32, outcome: CacheOutcome, end: Outcome) {
        let (task, executor, attempt, object) = (TaskId(task), ExecutorId(node), AttemptNo(1), ObjectId(0));
        let why = Why {
            policy: "max-compute-util".into(),
            n_hits: 0,
            n_inputs: 1,
            n_slots_active: 0,
            n_slots: 1,
            n_queued: 0,
            ahead: false,
            reason: None,
        };
        let assignment = Assignment {
            task,
            attempt,
            run: RunId(1),
            cpus: 1,
            inputs: vec![AssignedInput {
                object,
                known: None,
                sources: vec![],
                check_home: true,
                direct: false,
                watched: false,
                stays: false,
                making: Default::default(),
            }],
            outputs: vec![],
            staying: vec![],
            private_inputs: false,
            repeated: false,
            alone: false,
            needs: None,
            why,
        };
        self.out(ms, Action::Assign { executor, assignment: assignment.into() });
        let times = Times {
            received: at(ms + 2),
            inputs_ready: at(ms + 102),
            started: at(ms + 105),
            exited: at(ms + 155),
        };
        let wait_ns = if outcome == CacheOutcome::LocalHit { 0 } else { 100 * MS_NS };
        let report = AttemptReport {
            task,
            attempt,
            outcome: end.clone(),
            times,
            inputs: vec![InputReport { object, outcome, size_bytes: 100_000, wait_ns }],
            in_memory: vec![],
            outputs: vec![OutputReport {
                output: 0,
                digest: Digest::default(),
                size_bytes: 500,
                marks: None,
            }],
            cpu_ns: 40 * MS_NS,
            rss_bytes_max: 0,
            left: None,
        };
        self.add(ms + 156, Event::AttemptEnded { executor, report: report.into() });
        if end == Outcome::Done {
            self.add(ms + 166, Event::OutputsHome { executor, task, attempt, result: Ok(()) });
        }
        self.out(ms + 166, Action::EndTask { task, outcome: end, by: None });
    }
    fn read(&self, config: &TraceConfig) -> Result<Trace, Error> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(EVENTS_FILE), &self.0).unwrap();
        Trace::read(dir.path(), config)
    }
    fn refused(&self, expect: &str) -> ErrorKind {
        let error = self.read(&TraceConfig::default()).err().expect("is refused");
        assert!(error.to_string().contains(expect), "{error}");
        error.kind
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ZERO_NS + ms * MS_NS)
}

fn failed() -> Outcome {
    Outcome::Failed(Failure { kind: FailureKind::ExitCode(1), message: "exit status 1".into() })
}

/// Three tasks on two nodes, with inputs from home, from a peer, and from the cache.
fn good() -> Log {
    let mut log = Log::life();
    log.node(0, 1);
    log.node(5, 2);
    log.run(1000, 1, 3);
    log.task(1010, 0, 1, CacheOutcome::Miss, Outcome::Done);
    log.task(1010, 1, 2, CacheOutcome::RemoteHit { from: ExecutorId(1) }, Outcome::Done);
    log.task(1165, 2, 1, CacheOutcome::LocalHit, Outcome::Done);
    log
}

#[test]
fn a_run_is_measured() {
    let m = good().read(&TraceConfig::default()).unwrap().measured;
    assert_eq!((m.n_tasks, m.n_done, m.n_attempts, m.n_lives), (3, 3, 3, 1));
    assert_eq!(m.makespan_ns, 331 * MS_NS, "1000 to 1165 + 166");
    assert_eq!((m.nodes.len(), m.n_slots(), m.nodes[0].cache_bytes), (2, 2, 1 << 20));
    let third = 1.0 / 3.0;
    assert_eq!(m.hit_ratios(), Some((third, third, third)));
    assert_eq!((m.home_in.n_transfers, m.home_in.bytes, m.home_in.busy_ns), (1, 100_000, 100 * MS_NS));
    assert_eq!(m.peer.each_bytes_per_s, Some([1e6; 3]));
    assert_eq!((m.home_out.bytes, m.home_out.small_wait_ns), (1500, Some(10 * MS_NS)));
    assert_eq!((m.dispatch.p50_ns, m.report.p50_ns, m.run.p50_ns), (2 * MS_NS, MS_NS, 50 * MS_NS));
    assert_eq!((m.start.n, m.start.p50_ns), (3, 3 * MS_NS));
    assert_eq!(m.tasks[1].assigned, Timestamp(10 * MS_NS));
}

#[test]
fn what_it_says_is_what_the_report_says() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(EVENTS_FILE), &good().0).unwrap();
    let m = Trace::read(dir.path(), &TraceConfig::default()).unwrap().measured;
    let report = eyas_report::metrics(&eyas_report::read(dir.path()).unwrap());
    let t = &report.totals;
    assert_eq!((m.makespan_ns, m.requests), (t.makespan_ns, report.requests));
    let ratios = (t.hit_ratio_local.unwrap(), t.hit_ratio_remote.unwrap(), t.miss_ratio.unwrap());
    assert_eq!(m.hit_ratios(), Some(ratios));
    assert_eq!(
        (m.home_in.bytes, m.peer.bytes, m.home_out.bytes),
        (t.home_in_bytes, t.cache_remote_bytes, t.home_out_bytes)
    );
}

#[test]
fn the_time_of_transfers_side_by_side_counts_once() {
    let transfer = |begin_ns, wait_ns, bytes| Transfer { begin_ns, wait_ns, bytes };
    let measured =
        MeasuredTransfers::of(vec![transfer(0, 100, 100), transfer(200, 100, 50), transfer(200, 100, 50)]);
    assert_eq!(measured.busy_ns, 200);
    assert_eq!(MeasuredTransfers::of(vec![]), MeasuredTransfers::default());
}

#[test]
fn it_is_a_workload_again_as_often_as_wanted() {
    let trace = good().read(&TraceConfig::default()).unwrap();
    for (io, expect_ms) in [
        (ProgramIo::default(), 50),
        (ProgramIo { read_bytes_per_s: Some(1e7), write_bytes_per_s: Some(5e4) }, 30),
    ] {
        let workload = trace.workload(&io).unwrap();
        assert_eq!((workload.name.as_str(), workload.n_tasks, workload.read_bytes), ("run 1", 3, 300_000));
        assert_eq!((workload.sizes.of("sky/2"), workload.sizes.of("cut1/2")), (Some(100_000), Some(500)));
        let list: Vec<_> = workload.submissions.collect();
        assert_eq!((list.len(), list[0].at, list[0].array.n_tasks), (1, Timestamp(0), 3));
        assert_eq!(list[0].compute, Compute::Each(vec![expect_ms * MS_NS; 3]));
    }
    let zero = ProgramIo { read_bytes_per_s: Some(0.0), ..ProgramIo::default() };
    assert!(trace.workload(&zero).err().unwrap().to_string().contains("0 bytes per second"));
}

#[test]
fn one_run_of_several_can_be_chosen() {
    let mut log = good();
    log.run(2000, 2, 1);
    log.task(2001, 3, 1, CacheOutcome::LocalHit, Outcome::Done);
    let read = |run| log.read(&TraceConfig { run, ..TraceConfig::default() });
    assert_eq!(read(None).unwrap().measured.n_tasks, 4);
    let second = read(Some(2)).unwrap();
    assert_eq!((second.name.as_str(), second.measured.n_tasks), ("run 2", 1));
    assert_eq!(second.measured.makespan_ns, 167 * MS_NS);
    assert_eq!(second.measured.requests.total().n_requests, 1);
    assert!(read(Some(7)).err().unwrap().to_string().contains("has no run 7; it has 1, 2"));
}

#[test]
fn a_second_life_tells_the_first_again_and_is_not_counted_twice() {
    let mut log = Log::life();
    log.node(0, 1);
    log.run(1000, 1, 2);
    log.task(1010, 0, 1, CacheOutcome::Miss, Outcome::Done);
    log.0.extend_from_slice(b"{\"t\":17952"); // killed in the middle of a line
    log.header();
    log.run(3000, 1, 2);
    log.add(3000, Event::TaskRestored { task: TaskId(0), outcome: Outcome::Done, outputs: vec![] });
    log.node(3001, 1);
    log.task(3010, 1, 1, CacheOutcome::LocalHit, Outcome::Done);
    let trace = log.read(&TraceConfig::default()).unwrap();
    let m = &trace.measured;
    assert_eq!((m.n_lives, m.n_tasks, m.n_done, m.nodes.len()), (2, 2, 2, 1));
    assert_eq!(m.makespan_ns, (3010 + 166 - 1000) * MS_NS);
    assert_eq!(m.tasks[0].ended, Timestamp(176 * MS_NS));
}

#[test]
fn foreign_truncated_and_failed_runs_are_refused_in_a_sentence() {
    let foreign = Log(b"time,task\n1,2\n".to_vec());
    assert_eq!(foreign.refused("does not begin with the header of an event log"), ErrorKind::Foreign);
    assert_eq!(Log::default().refused("is empty"), ErrorKind::Foreign);
    assert_eq!(Log::life().refused("no run was submitted completely"), ErrorKind::Incomplete);
    let mut newer = Log::life();
    let text = String::from_utf8(std::mem::take(&mut newer.0)).unwrap();
    newer.0 = text.replace(r#"event_log":1"#, r#"event_log":9"#).into_bytes();
    assert_eq!(newer.refused("version 9"), ErrorKind::Foreign);

    let mut torn = good();
    torn.0.truncate(torn.0.len() - 300);
    assert_eq!(torn.refused("1 of 3 tasks had not ended"), ErrorKind::Incomplete);

    let mut bad = good();
    bad.run(2000, 2, 2);
    bad.task(2001, 3, 1, CacheOutcome::LocalHit, failed());
    bad.task(2301, 4, 1, CacheOutcome::LocalHit, Outcome::Done);
    assert_eq!(bad.refused("1 of 5 tasks"), ErrorKind::Failed);
    let trace = bad.read(&TraceConfig { allow_failed: true, ..TraceConfig::default() }).unwrap();
    assert_eq!((trace.measured.n_failed, trace.measured.n_done), (1, 4));
    let workload = trace.workload(&ProgramIo::default()).unwrap();
    let last = workload.submissions.last().unwrap();
    assert_eq!(last.compute, Compute::Each(vec![50 * MS_NS; 2]), "the median for the one that failed");

    let nowhere = Trace::read(Path::new("/nowhere"), &TraceConfig::default()).err().unwrap();
    assert!(nowhere.to_string().contains("`/nowhere` does not exist"), "{nowhere}");
    let empty = tempfile::tempdir().unwrap();
    let none = Trace::read(empty.path(), &TraceConfig::default()).err().unwrap();
    assert!(none.to_string().contains("no event log"), "{none}");
}
