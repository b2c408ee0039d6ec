//! What is known of a cluster, now and from the seconds before.

use eyas_terms::{RunId, TaskId, Timestamp};
use eyas_wire::message::{ClusterStatus, RunStatus};
use ratatui::crossterm::event::KeyCode;
use std::collections::{BTreeMap, VecDeque};

/// Seconds of history, one column of a chart each.
pub const HISTORY_S: usize = 600;
/// A rate is computed over this long.
const RATE_NS: u64 = 5_000_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;

/// Totals over all runs at one time.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub at: Timestamp,
    pub n_ended: u64,
    /// Local, peers, home.
    pub bytes: [u64; 3],
}

/// One second of the charts.
#[derive(Clone, Copy, Default)]
pub struct Second {
    pub bytes_per_s: [f64; 3],
    pub tasks_per_s: f64,
    pub n_queued: u64,
}

/// What is known of the cluster, now and from before.
#[derive(Default)]
pub struct View {
    pub status: Option<Box<ClusterStatus>>,
    /// Why the last request was not answered.
    pub gone: Option<String>,
    /// How long ago the last answer came.
    pub silent_ns: u64,
    /// Totals of the last few seconds, for rates.
    pub recent: VecDeque<Totals>,
    /// Ended tasks of each run in the last few seconds.
    pub run_recent: BTreeMap<RunId, VecDeque<(Timestamp, u64)>>,
    pub last_second: Totals,
    pub seconds: VecDeque<Second>,
    /// Runs that were given from the working folder.
    pub of_here: Vec<RunId>,
    /// Ids of tasks that run or ran.
    pub names: BTreeMap<TaskId, String>,
    /// What is shown whole in place of everything.
    pub looks_at: Option<LooksAt>,
}

/// One of the failures, counted from the newest, or one of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LooksAt {
    Failure(usize),
    Node(usize),
}

/// A program that runs.
pub struct Running<'a> {
    pub task: TaskId,
    pub node: &'a str,
    pub age_ns: u64,
}

pub fn n_queued(run: &RunStatus) -> u64 {
    run.n_waiting + run.n_ready
}

impl View {
    pub fn take(&mut self, status: Box<ClusterStatus>) {
        self.gone = None;
        // Numbers of tasks begin anew with a dispatcher that was restarted.
        let restarted = self.status.as_ref().is_some_and(|old| old.started != status.started);
        if restarted {
            *self = View { of_here: std::mem::take(&mut self.of_here), ..View::default() };
        }
        let mut totals = Totals { at: status.now, ..Totals::default() };
        for run in &status.runs {
            totals.n_ended += run.n_ended();
            for (sum, bytes) in totals.bytes.iter_mut().zip([run.local_bytes, run.peer_bytes, run.home_bytes])
            {
                *sum += bytes;
            }
            let marks = self.run_recent.entry(run.run).or_default();
            marks.push_back((status.now, run.n_ended()));
            while marks.len() > 2 && status.now.since_ns(marks[1].0) > RATE_NS {
                marks.pop_front();
            }
        }
        self.recent.push_back(totals);
        while self.recent.len() > 2 && totals.at.since_ns(self.recent[1].at) > RATE_NS {
            self.recent.pop_front();
        }
        if self.last_second.at == Timestamp(0) {
            self.last_second = totals;
        }
        let since_ns = totals.at.since_ns(self.last_second.at);
        // Answers come twice a second; an answer that is a little early still closes its second.
        if since_ns >= SECOND_NS - SECOND_NS / 10 {
            let second = Second {
                bytes_per_s: std::array::from_fn(|i| {
                    per_s(totals.bytes[i].saturating_sub(self.last_second.bytes[i]), since_ns)
                }),
                tasks_per_s: per_s(totals.n_ended.saturating_sub(self.last_second.n_ended), since_ns),
                n_queued: status.runs.iter().map(n_queued).sum(),
            };
            self.seconds.push_back(second);
            if self.seconds.len() > HISTORY_S {
                self.seconds.pop_front();
            }
            self.last_second = totals;
        }
        self.status = Some(status);
    }

    /// The latest failures of all runs, the newest first: the task's id, and why it failed.
    pub fn failures(&self) -> Vec<(&str, &str)> {
        let runs = self.status.iter().flat_map(|status| status.runs.iter().rev());
        runs.flat_map(|run| run.failures.iter().rev().map(|(id, why)| (id.as_str(), why.as_str()))).collect()
    }

    /// The programs that run, on one node or on all, the oldest first.
    pub fn running(&self, node: Option<&str>) -> Vec<Running<'_>> {
        let Some(status) = &self.status else { return vec![] };
        let nodes = status.executors.iter().filter(|e| node.is_none_or(|name| e.name == name));
        let of = |e: &'_ eyas_wire::message::ExecutorLine| e.status.running.len();
        let mut all = Vec::with_capacity(nodes.clone().map(of).sum());
        for e in nodes {
            all.extend(e.status.running.iter().map(|(task, _, since)| Running {
                task: *task,
                node: &e.name,
                age_ns: status.now.since_ns(*since),
            }));
        }
        all.sort_by_key(|running| (std::cmp::Reverse(running.age_ns), running.task));
        all
    }

    /// The id of a task, or its number.
    pub fn name_of(&self, task: TaskId) -> String {
        self.names.get(&task).cloned().unwrap_or_else(|| format!("#{task}"))
    }

    /// A key was pressed: `f` and `n` show a failure and a node, arrows the next one, Escape everything again.
    pub fn press(&mut self, key: KeyCode) -> bool {
        let n_failures = self.failures().len();
        let n_nodes = self.status.as_ref().map_or(0, |status| status.executors.len());
        let next = match (key, self.looks_at) {
            (KeyCode::Char('f'), Some(LooksAt::Failure(_)))
            | (KeyCode::Char('n'), Some(LooksAt::Node(_))) => None,
            (KeyCode::Char('f'), _) => Some(LooksAt::Failure(0)),
            (KeyCode::Char('n'), _) => Some(LooksAt::Node(0)),
            (KeyCode::Esc, Some(_)) => None,
            (KeyCode::Down | KeyCode::Right | KeyCode::Char('j'), Some(LooksAt::Failure(i))) => {
                Some(LooksAt::Failure((i + 1).min(n_failures.saturating_sub(1))))
            }
            (KeyCode::Down | KeyCode::Right | KeyCode::Char('j'), Some(LooksAt::Node(i))) => {
                Some(LooksAt::Node((i + 1).min(n_nodes.saturating_sub(1))))
            }
            (KeyCode::Up | KeyCode::Left | KeyCode::Char('k'), Some(LooksAt::Failure(i))) => {
                Some(LooksAt::Failure(i.saturating_sub(1)))
            }
            (KeyCode::Up | KeyCode::Left | KeyCode::Char('k'), Some(LooksAt::Node(i))) => {
                Some(LooksAt::Node(i.saturating_sub(1)))
            }
            _ => return false,
        };
        self.looks_at = next;
        true
    }

    /// Bytes and tasks per second over the last few seconds.
    pub fn rates(&self) -> ([f64; 3], f64) {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return ([0.0; 3], 0.0);
        };
        let ns = last.at.since_ns(first.at);
        let bytes = std::array::from_fn(|i| per_s(last.bytes[i].saturating_sub(first.bytes[i]), ns));
        (bytes, per_s(last.n_ended.saturating_sub(first.n_ended), ns))
    }

    pub fn run_rate(&self, run: RunId) -> f64 {
        let marks = self.run_recent.get(&run);
        match marks.and_then(|m| Some((m.front()?, m.back()?))) {
            Some((first, last)) => per_s(last.1.saturating_sub(first.1), last.0.since_ns(first.0)),
            None => 0.0,
        }
    }
}

pub fn per_s(amount: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { amount as f64 * 1e9 / ns as f64 }
}

/// A cluster at work, for tests.
#[cfg(test)]
pub(super) mod sample {
    use crate::top::view::{SECOND_NS, View};
    use eyas_terms::{AttemptNo, ExecutorId, NodeState, RunId, TaskId, Timestamp};
    use eyas_wire::message::{ClusterStatus, ExecutorLine, ExecutorStatus, RunStatus};

    pub fn status(second: u64, n_nodes: u32) -> Box<ClusterStatus> {
        let node = |i: u32| ExecutorLine {
            executor: ExecutorId(i),
            name: format!("node{i}"),
            slots: 2,
            cache_bytes: 4 << 30,
            state: NodeState::Connected,
            status: ExecutorStatus {
                running: vec![(TaskId(1), AttemptNo(1), Timestamp(1))],
                cache_used_bytes: 1 << 30,
                local_bytes: 5 << 30,
                ..ExecutorStatus::default()
            },
            ..ExecutorLine::default()
        };
        let run = RunStatus {
            run: RunId(1),
            name: "sky\u{1b}[31m.jsonl".into(),
            n_tasks: 1000,
            n_ready: 900 - 100 * second,
            n_done: 100 * second,
            n_failed: 1,
            local_bytes: second << 30,
            peer_bytes: second << 28,
            home_bytes: second << 29,
            failures: vec![("t7".into(), "the program ended with status 3".into())],
            ..RunStatus::default()
        };
        Box::new(ClusterStatus {
            cluster: "0a1b2c3d".into(),
            now: Timestamp(100 * SECOND_NS + second * SECOND_NS),
            started: Timestamp(100 * SECOND_NS),
            placement: "good-cache-compute".into(),
            runs: vec![run],
            executors: (0..n_nodes).map(node).collect(),
            ..ClusterStatus::default()
        })
    }

    pub fn view(n_nodes: u32) -> View {
        let mut view = View::default();
        for second in 0..5 {
            view.take(status(second, n_nodes));
        }
        view
    }
}
