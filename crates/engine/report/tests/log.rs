//! Reading and measuring: totals against the dispatcher's own counts and against sums done by hand.

mod common;

use common::*;
use eyas_core::collective::{
    Choice, CollectiveId, CollectiveKind, CollectiveRecord, Expectation, LinkModel, Way,
};
use eyas_core::event::Action;
use eyas_core::log::{EVENTS_FILE, Line, What};
use eyas_core::pattern::stage_of_task;
use eyas_report::metrics::Unpredicted;
use eyas_report::{ErrorKind, How, metrics, metrics_of, read, replay};
use eyas_terms::array::{Command, Pattern};
use eyas_terms::*;
use std::path::Path;

const POLICIES: [&str; 7] = eyas_core::placement::NAMES;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1e-9)
}

#[test]
fn totals_are_the_dispatchers_own() {
    for seed in 0..40 {
        let weather = if seed % 2 == 0 { FAIR } else { ROUGH };
        let cluster = story(POLICIES[seed as usize % POLICIES.len()], seed, weather);
        let dir = dir();
        cluster.save(dir.path());
        let log = read(dir.path()).unwrap();
        for (id, run) in cluster.core.work().runs() {
            let report = metrics_of(&log, id).unwrap();
            let t = &report.totals;
            assert!(report.complete && !report.torn, "seed {seed}");
            assert_eq!(
                (t.n_tasks, t.n_done, t.n_failed, t.n_cancelled, t.n_unfinished),
                (run.tasks.n_tasks, run.ends.n_done, run.ends.n_failed, run.ends.n_cancelled, 0),
                "seed {seed}"
            );
            assert_eq!(
                (t.cache_local_bytes, t.cache_remote_bytes, t.home_in_bytes),
                (run.read.local_bytes, run.read.peer_bytes, run.read.home_bytes),
                "seed {seed}"
            );
            assert_eq!(t.makespan_ns, run.ended.unwrap().since_ns(run.opened), "seed {seed}");
            assert_eq!(report.failures.len() as u64, run.ends.n_failed);
            let ended = t.n_attempts_failed + t.n_attempts_lost + t.n_attempts_cancelled;
            assert_eq!(t.n_attempts, ended + t.n_done, "seed {seed}: every attempt ended once");
        }
        let report = metrics(&log);
        let t = &report.totals;
        let whole = t.hit_ratio_local.unwrap() + t.hit_ratio_remote.unwrap() + t.miss_ratio.unwrap();
        assert!(close(whole, 1.0));
        let sum = |f: fn(&eyas_report::StageRow) -> u64| report.stages.iter().map(f).sum::<u64>();
        assert_eq!(
            (sum(|s| s.n_tasks), sum(|s| s.n_done), sum(|s| s.n_failed)),
            (t.n_tasks, t.n_done, t.n_failed)
        );
        if seed % 2 == 0 {
            // Without lost attempts stages have all bytes.
            let bytes = (sum(|s| s.home_in_bytes), sum(|s| s.peer_bytes), sum(|s| s.home_out_bytes));
            assert_eq!(bytes, (t.home_in_bytes, t.cache_remote_bytes, t.home_out_bytes), "seed {seed}");
        }
        let s = &report.series;
        let bytes = |gbps: &[f64]| gbps.iter().sum::<f64>() * s.bin_ns as f64 / 8.0;
        assert!(close(bytes(&s.cache_remote_gbps), t.cache_remote_bytes as f64), "seed {seed}");
        assert!(close(bytes(&s.home_gbps), t.home_in_bytes as f64), "seed {seed}");
        assert!(close(bytes(&s.cache_local_gbps), t.cache_local_bytes as f64), "seed {seed}");
        let slot_hours = |slots: &[f64]| slots.iter().sum::<f64>() * s.bin_ns as f64 / 3.6e12;
        assert!(close(slot_hours(&s.n_slots_busy), t.cpu_hours_busy), "seed {seed}");
        assert!(close(slot_hours(&s.n_slots), t.cpu_hours_allocated), "seed {seed}");
        assert!(s.n_queued.iter().all(|n| *n >= 0.0) && s.n_queued.len() <= 300);
        let json = serde_json::to_string(&report).unwrap();
        assert!(serde_json::from_str::<eyas_report::Report>(&json).is_ok());
    }
}

#[test]
fn a_stage_is_a_label_or_a_program() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    let labelled = |name: &str, label: &str| {
        let mut array = map(name, 2, 1, 0);
        array.template.label = label.into();
        array
    };
    let mut by_program = map("c", 1, 1, 0);
    by_program.template.command =
        Command::Exec(vec![Pattern::literal("/usr/bin/mAdd"), Pattern::literal("x")]);
    let by_program_stage = stage_of_task(&by_program, 0);
    assert!(by_program_stage.starts_with("mAdd"));
    cluster
        .submit("stages", vec![labelled("a", "cut"), by_program, labelled("b", "cut"), labelled("d", "add")]);
    cluster.go(None);
    let dir = dir();
    cluster.save(dir.path());
    let stages = metrics(&read(dir.path()).unwrap()).stages;
    let stage_counts: Vec<(&str, u64, u64)> =
        stages.iter().map(|s| (s.stage.as_str(), s.n_tasks, s.n_inputs)).collect();
    let n_inputs = map("a", 1, 1, 0).template.inputs.len() as u64;
    assert_eq!(
        stage_counts,
        [("cut", 4, 4 * n_inputs), (&*by_program_stage, 1, n_inputs), ("add", 2, 2 * n_inputs)]
    );
    for s in &stages {
        assert!(s.began_ns < s.ended_ns && s.run_mean_ns >= FAIR.run_ns, "{s:?}");
    }
}

#[test]
fn one_node_one_slot_by_hand() {
    // Both tasks read the same file. 0 opened, 1 ms array, 2 ms committed and the first given to the node,
    // 3 ms received, home takes 40 ms, so it runs from 43 to 93 ms, and its end is reported at 94. The second (the last
    // task is not given ahead) is received at 95, hits the cache, and runs to 146 ms. Both are home 8 ms later.
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    let run = cluster.submit("two", vec![map("a", 2, 1, 0)]);
    cluster.go(None);
    let dir = dir();
    cluster.save(dir.path());
    let log = read(dir.path()).unwrap();
    let report = metrics_of(&log, run).unwrap();
    let (t, size) = (&report.totals, size_of("sky/f0"));
    assert_eq!((t.n_tasks, t.n_done, t.n_attempts), (2, 2, 2));
    assert_eq!(t.makespan_ns, 154 * MS);
    assert_eq!((report.requests.miss.n_requests, report.requests.local_hit.n_requests), (1, 1));
    assert_eq!((report.requests.miss.bytes, report.requests.miss.wait_ns), (size, 40 * MS));
    assert_eq!((t.hit_ratio_local, t.hit_ratio_remote, t.miss_ratio), (Some(0.5), Some(0.0), Some(0.5)));
    assert_eq!((t.home_in_bytes, t.cache_local_bytes, t.home_out_bytes), (size, size, 2000));
    // Submitted at 1 ms; ended at 101 and 154 ms.
    assert_eq!(t.response_mean_ns, (100 * MS + 153 * MS) / 2);
    assert_eq!((t.response_p50_ns, t.response_p99_ns), (100 * MS, 153 * MS));
    assert_eq!((t.queue_mean_ns, t.stage_in_mean_ns), (47 * MS, 21 * MS));
    assert_eq!((t.slot_wait_mean_ns, t.run_mean_ns, t.delivery_mean_ns), (0, 50_500_000, 8 * MS));
    assert_eq!((t.ideal_ns, t.ideal_on_slots_ns), (51 * MS, 101 * MS));
    assert!(close(t.slowdown.unwrap(), 154.0 / 51.0) && close(t.efficiency.unwrap(), 101.0 / 154.0));
    assert!(close(t.cpu_utilisation.unwrap(), 101.0 / 154.0));
    assert!(close(t.cpu_hours_program * 2.0, t.cpu_hours_busy));
    assert!(close(t.throughput_mean_gbps.unwrap(), 2.0 * size as f64 * 8.0 / 154e6));
    assert!(close(t.tasks_per_s.unwrap(), 2.0 / 0.154));
    assert_eq!((t.n_nodes_max, t.n_slots_max, t.n_queued_max, t.rss_bytes_max), (1, 1, 2, 20 << 20));
    let slow: Vec<(&str, u64)> = report.slowest.iter().map(|s| (s.user_id.as_str(), s.run_ns)).collect();
    assert_eq!(slow, [("a-0", 50 * MS), ("a-1", 51 * MS)], "a-0 waited for home");
}

#[test]
fn a_restart_is_told_once() {
    for (seed, policy) in (0..40).map(|seed| (seed, POLICIES[seed as usize % POLICIES.len()])) {
        let mut cluster = Cluster::new(policy, seed, ROUGH);
        cluster.join("n1", 2);
        cluster.join("n2", 2);
        cluster.submit("first", vec![map("a", 30, 7, 1), map("b", 10, 3, 0)]);
        cluster.go(Some(START.plus_ns(250 * MS)));
        // A restarted dispatcher ends the line that the killed one left; older ones went on in that line.
        let torn: &[u8] = match seed % 3 {
            0 => br#"{"t":1795293000250000000,"in":{"attempt_end"#,
            1 => b"{\"t\":1795293000250000000,\"in\":{\"attempt_end\n",
            _ => b"",
        };
        cluster.restart(torn);
        cluster.weather = FAIR;
        cluster.submit("second", vec![map("c", 12, 5, 2)]);
        cluster.go(None);
        let dir = dir();
        cluster.save(dir.path());
        let log = read(dir.path()).unwrap();
        assert_eq!(log.lives.len(), 2);
        for (id, run) in cluster.core.work().runs() {
            let report = metrics_of(&log, id).unwrap();
            let t = &report.totals;
            assert_eq!(
                (t.n_tasks, t.n_done, t.n_failed, t.n_cancelled, t.n_unfinished),
                (run.tasks.n_tasks, run.ends.n_done, run.ends.n_failed, run.ends.n_cancelled, 0),
                "seed {seed}"
            );
            let ended = t.n_attempts_failed + t.n_attempts_lost + t.n_attempts_cancelled;
            assert_eq!(t.n_attempts, ended + t.n_done, "seed {seed}, {policy}: every attempt ended once");
        }
        assert!(log.attempts.iter().all(|a| a.how != How::Open), "seed {seed}: every attempt ended");
        let names: Vec<&str> = log.executors.iter().map(|e| e.name.as_str()).collect();
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(
            distinct.len(),
            names.len(),
            "seed {seed}: an executor that came back is one row: {names:?}"
        );
        let outcome = replay(dir.path()).unwrap();
        assert_eq!((outcome.n_lives, outcome.difference), (2, None));
        assert_eq!(outcome.n_torn, u64::from(!torn.is_empty()));
    }
}

#[test]
fn an_end_that_the_journal_did_not_keep_has_not_happened() {
    let mut cluster = Cluster::new("max-compute-util", 1, FAIR);
    cluster.join("n1", 1);
    cluster.submit("x", vec![map("a", 3, 3, 0)]);
    cluster.go(None);
    let first_end = cluster.now;
    cluster.forget_last_end();
    cluster.restart(b"");
    let dir = dir();
    cluster.save(dir.path());
    let report = metrics(&read(dir.path()).unwrap());
    assert_eq!((report.totals.n_done, report.totals.n_unfinished, report.complete), (2, 1, false));
    cluster.go(None);
    assert!(cluster.now > first_end);
    cluster.save(dir.path());
    let report = metrics(&read(dir.path()).unwrap());
    assert_eq!((report.totals.n_done, report.totals.n_attempts, report.complete), (3, 4, true));
    assert_eq!(report.totals.makespan_ns, cluster.now.since_ns(START));
}

#[test]
fn replays_take_the_logged_actions() {
    for seed in 0..200 {
        let weather = if seed % 3 == 0 { FAIR } else { ROUGH };
        let cluster = story(POLICIES[seed as usize % POLICIES.len()], seed, weather);
        let dir = dir();
        cluster.save(dir.path());
        let outcome = replay(dir.path()).unwrap();
        assert_eq!(outcome.difference, None, "seed {seed}");
        assert_eq!((outcome.n_lives, outcome.n_torn), (1, 0));
        assert!(outcome.n_actions > 100);
    }
}

#[test]
fn a_replay_names_the_first_difference() {
    let cluster = story("good-cache-compute", 5, FAIR);
    let dir = dir();
    let text = String::from_utf8(cluster.log.clone()).unwrap();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let at = lines.iter().rposition(|l| l.contains(r#""out":{"assign""#)).unwrap();
    let good = lines[at].clone();
    lines[at] = good.replace(r#""n_hits":"#, r#""n_hits":1"#);
    let save = |lines: &[String]| {
        std::fs::write(dir.path().join(EVENTS_FILE), lines.join("\n") + "\n").unwrap();
    };
    save(&lines);
    let difference = replay(dir.path()).unwrap().difference.unwrap();
    assert_eq!(difference.line, at as u64 + 1);
    assert!(difference.logged.is_some() && difference.replayed.is_some());
    assert!(difference.to_string().contains("line "));
    lines.remove(at);
    save(&lines);
    let difference = replay(dir.path()).unwrap().difference.unwrap();
    assert_eq!((difference.logged.is_none(), difference.replayed.is_some()), (true, true));
}

fn small() -> Vec<u8> {
    let mut cluster = Cluster::new("max-cache-hit", 3, FAIR);
    cluster.join("n1", 1);
    cluster.submit("é\u{1f30c}", vec![map("a", 3, 2, 0)]);
    cluster.go(None);
    cluster.log
}

#[test]
fn a_log_may_end_anywhere() {
    let (log, dir) = (small(), dir());
    let header_end = log.iter().position(|b| *b == b'\n').unwrap();
    for end in header_end..=log.len() {
        std::fs::write(dir.path().join(EVENTS_FILE), &log[..end]).unwrap();
        let read = read(dir.path()).unwrap_or_else(|e| panic!("cut at {end}: {e}"));
        let report = metrics(&read);
        assert!(report.totals.n_done <= 3);
        // A line may be whole without its line end.
        let whole = end == log.len() || log[end - 1] == b'\n' || log[end] == b'\n';
        assert_eq!(report.torn, !whole, "cut at {end}");
        let outcome = replay(dir.path()).unwrap();
        assert_eq!(outcome.difference, None, "cut at {end}");
        if end % 97 == 0 {
            assert!(eyas_report::html(&report, None).ends_with("</html>\n"));
        }
    }
}

/// Wherever one line is lost: the log is read, says what it lacks, and is replayed up to there.
#[test]
fn a_log_that_lacks_a_line_says_so() {
    let (log, dir) = (small(), dir());
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    for lost in 1..lines.len() {
        let t = 1 + lost as u64;
        let line = format!("{{\"t\":{t},\"lost\":{{\"lines\":1,\"from\":{t},\"until\":{t}}}}}\n");
        let lacking = [&lines[..lost].concat(), line.as_bytes(), &lines[lost + 1..].concat()].concat();
        std::fs::write(dir.path().join(EVENTS_FILE), lacking).unwrap();
        let report = metrics(&read(dir.path()).unwrap());
        let found = eyas_report::lost_lines(&[dir.path().to_path_buf()]).unwrap();
        assert_eq!((report.lost.map(|lost| lost.lines), found), (Some(1), report.lost), "line {lost}");
        assert!(
            eyas_report::html(&report, None).contains("the event log lacks 1 line of 0 s"),
            "line {lost}"
        );
        let outcome = replay(dir.path()).unwrap();
        assert_eq!((outcome.difference, outcome.n_lacking), (None, 1), "line {lost}");
    }
}

fn fails(dir: &Path, log: &[u8], kind: ErrorKind, words: &[&str]) {
    std::fs::write(dir.join(EVENTS_FILE), log).unwrap();
    for error in [read(dir).map(|_| ()).unwrap_err(), replay(dir).map(|_| ()).unwrap_err()] {
        assert_eq!(error.kind, kind, "{error}");
        words.iter().for_each(|w| assert!(error.to_string().contains(w), "{error}: no {w}"));
    }
}

#[test]
fn bad_logs_are_refused_in_one_sentence() {
    let (log, dir) = (small(), dir());
    let missing = read(&dir.path().join("nothing")).unwrap_err();
    assert_eq!((missing.kind, missing.status), (ErrorKind::Open, eyas_report::Status::Permanent));
    fails(dir.path(), b"", ErrorKind::NotALog, &["is empty"]);
    fails(dir.path(), b"hello\n", ErrorKind::NotALog, &["does not begin"]);
    let text = String::from_utf8(log.clone()).unwrap();
    let newer = text.replacen(r#""eyas_event_log":1"#, r#""eyas_event_log":7"#, 1);
    fails(dir.path(), newer.as_bytes(), ErrorKind::Version, &["line 1", "version 7", "version 1"]);
    let mut lines: Vec<&str> = text.lines().collect();
    lines[4] = r#"{"t":1,"in":{"sunrise":{}}}"#;
    fails(dir.path(), (lines.join("\n") + "\n").as_bytes(), ErrorKind::Line, &["line 5", "sunrise"]);
    lines[4] = r#"{"t":1}"#;
    fails(dir.path(), (lines.join("\n") + "\n").as_bytes(), ErrorKind::Line, &["line 5", "`in` or `out`"]);
    let config = text.replacen("max-cache-hit", "best-guess", 1);
    std::fs::write(dir.path().join(EVENTS_FILE), config).unwrap();
    assert_eq!(replay(dir.path()).unwrap_err().kind, ErrorKind::Config);
}

#[test]
fn a_silent_executor_that_never_returns_loses_its_attempts() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    let gone = cluster.join("n1", 1);
    let run = cluster.submit("x", vec![map("a", 4, 4, 0)]);
    cluster.go(Some(START.plus_ns(60 * MS)));
    cluster.silence(gone);
    cluster.now = cluster.now.plus_ns(20 * S);
    cluster.feed(eyas_core::event::Event::Ticked);
    cluster.join("n2", 2);
    cluster.go(None);
    let dir = dir();
    cluster.save(dir.path());
    let log = read(dir.path()).unwrap();
    let report = metrics_of(&log, run).unwrap();
    assert_eq!((report.totals.n_done, report.totals.n_attempts_lost), (4, 2));
    assert_eq!(report.executors[0].n_losses, 1);
    assert_eq!(log.end(TaskId(9)).0, eyas_report::read::End::Not);
    assert_eq!(replay(dir.path()).unwrap().difference, None);
}

#[test]
fn a_predicted_time_is_told_only_where_it_is_sure_enough() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    cluster.submit("one", vec![map("a", 1, 1, 0)]);
    cluster.go(None);
    let dir = dir();
    cluster.save(dir.path());
    let path = dir.path().join(EVENTS_FILE);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let last: Line = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let mut add = |began_s: u64, is_chosen: bool, expectation: Option<Expectation>| {
        let way = Way::Pipelined { arity: 1 };
        let considered = vec![(Way::PlainFetches, 9 * S), (way, S)];
        let choice = Choice { way, predicted_ns: S, considered, expectation, link: LinkModel::default() };
        let record = CollectiveRecord {
            collective: CollectiveId(0),
            kind: CollectiveKind::Multicast,
            way,
            began: last.t.plus_ns(began_s * S),
            ready: None,
            ended: last.t.plus_ns((began_s + 3) * S),
            choice: is_chosen.then_some(choice),
            n_receivers: 1,
            n_wanted: 1,
            n_arrived: 1,
            arrived_bytes: 100,
            n_moved: 0,
        };
        let line = Line { t: last.t, what: What::Out(Action::EndCollective { record }) };
        text += &(serde_json::to_string(&line).unwrap() + "\n");
    };
    let expect = |doubt| Some(Expectation { expected_ns: 2 * S, doubt });
    add(0, true, expect(1.4));
    add(0, true, expect(30.0));
    add(0, true, None);
    add(9, true, expect(30.0));
    add(9, false, None);
    std::fs::write(&path, text).unwrap();
    let report = metrics(&read(dir.path()).unwrap());
    let predicted: Vec<Option<u64>> = report.collectives.iter().map(|c| c.predicted_ns).collect();
    assert_eq!(predicted, [Some(2 * S), None, None, None, None]);
    assert!(report.collectives.iter().all(|c| c.measured_ns == 3 * S));
    let why: Vec<Option<Unpredicted>> = report.collectives.iter().map(|c| c.unpredicted).collect();
    let unsure = Unpredicted::Unsure { expected_ns: 2 * S, factor: 30.0 };
    assert_eq!(
        why,
        [
            None,
            Some(Unpredicted::First),
            Some(Unpredicted::First),
            Some(unsure),
            Some(Unpredicted::NotChosen)
        ]
    );
    let page = eyas_report::html::html(&report, None);
    assert_eq!(page.matches("<td>not known: the first multicast</td>").count(), 2);
    assert_eq!(page.matches("<td>not known: about 2.000, within 30.0 x</td>").count(), 1);
}
