//! The metrics of a log: totals, time series and tables, with their formulas.
//!
//! Names and definitions follow `Raicu09` §5.1 (its list of metrics, figures 17 to 28); each item says
//! where it departs from them. `docs/reference/report.md` describes the same for users.
//!
//! The bytes of a request are counted in one place, always by the request's one
//! [`eyas_terms::CacheOutcome`]:
//!
//! | outcome | hit ratio | throughput and bytes moved |
//! |---|---|---|
//! | `local_hit`, `in_place` | local hit | cache-local: read from this node's disk |
//! | `remote_hit` | remote hit | cache-remote: from a peer's cache |
//! | `joined` | **miss**: the attempt had to wait for a transfer | cache-local: the joined transfer is counted where it began |
//! | `miss`, `direct` | miss | home |
//!
//! Everything is counted between the first submission and the last end of the chosen runs, the *window*.
//! Ratios without a denominator are `None`.

use crate::bound::{Bound, Done};
use crate::gantt::{Lanes, lanes};
use crate::measure::{Measure, tasks};
use crate::read::{AttemptRecord, End, How, Requests, RunLog, sum};
use crate::series::{Series, series};
use crate::stages::{StageRow, stages};
use crate::units;
use crate::verdict::{Verdict, verdict};
use eyas_core::collective::{CollectiveRecord, Way};
use eyas_core::log::LostLines;
use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The version of [`Report`] as JSON.
pub const REPORT_VERSION: u32 = 1;
/// The time in which tasks arrived is looked at in so many intervals (MI of `Raicu09` §5.1 has as many rates).
const N_INTERVALS: u64 = 24;
const SLOWEST_KEPT: usize = 20;
const FAILURES_KEPT: usize = 100;
/// The most rows of the table of tasks.
pub const TASKS_KEPT: usize = 2000;
/// The most of these rows that tasks may have that were not done.
const NOT_DONE_KEPT: usize = 1000;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub eyas_report: u32,
    pub eyas_version: String,
    pub cluster: String,
    /// The placement policy of the last life.
    pub placement: String,
    /// The report begins at this time, in nanoseconds since the epoch of the log's clock.
    pub began: Timestamp,
    /// Whether all tasks ended.
    pub complete: bool,
    /// Whether the log ends in the middle of a line.
    pub torn: bool,
    /// What the log lacks.
    #[serde(default)]
    pub lost: Option<LostLines>,
    /// The number of dispatcher processes that wrote the log.
    pub n_lives: u64,
    /// The number of dispatchers whose logs were read; the next field is the number of dispatchers that
    /// shared the cluster.
    pub n_dispatchers_read: u32,
    pub n_dispatchers: u32,
    pub runs: Vec<RunRow>,
    /// The stages, in the order in which their first tasks were submitted.
    pub stages: Vec<StageRow>,
    /// What limited the runs.
    #[serde(default)]
    pub verdict: Verdict,
    /// Bytes that home may move per second, over all nodes (`--home-rate`); absent if home is not limited.
    #[serde(default)]
    pub home_limit_bytes_per_s: Option<f64>,
    pub totals: Totals,
    pub requests: Requests,
    pub series: Series,
    /// The time in which tasks arrived, in intervals of equal length; those without arrivals are left out.
    #[serde(default)]
    pub arrivals: Vec<ArrivalRow>,
    /// Done tasks that took longest apart from queueing, slowest first.
    pub slowest: Vec<TaskRow>,
    /// Tasks: those that were not done first, then those that took longest; at most 2,000. `totals.n_tasks`
    /// counts all tasks.
    #[serde(default)]
    pub tasks: Vec<TaskRow>,
    /// The programs by slot and time. Not in the JSON, because only the drawing needs them.
    #[serde(skip)]
    pub lanes: Lanes,
    /// The first failures; `totals.n_failed` counts all failures.
    pub failures: Vec<FailureRow>,
    pub executors: Vec<ExecutorRow>,
    /// Patterns, as sentences, in the order in which they were found.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// Collectives with their predicted and measured times, in the order of their ends.
    #[serde(default)]
    pub collectives: Vec<CollectiveRow>,
}

impl Report {
    /// How long the runs took, beside the least time, in a sentence; `None` for runs that go on, for short ones, of which
    /// starting is most, and where nothing is known.
    pub fn bound_sentence(&self) -> Option<String> {
        let is_known = self.complete && self.totals.bound.ns > 0 && !self.verdict.causes.is_empty();
        is_known.then(|| self.totals.bound.sentence(self.totals.makespan_ns, self.home_limit_bytes_per_s))
    }
}

/// One collective.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CollectiveRow {
    /// `multicast`, `scatter`, `gather`, `replicate`.
    pub kind: String,
    /// The way in which the bytes moved.
    pub way: String,
    /// The beginning, in nanoseconds since the report's `began`.
    pub began_ns: u64,
    pub n_receivers: u32,
    /// Objects times receivers: the number that was wanted, and the number that arrived.
    pub n_wanted: u32,
    pub n_arrived: u32,
    pub arrived_bytes: u64,
    /// The time from the moment at which all files existed to the last arrival: as predicted at that moment, by the
    /// cost model (`Zhang12` §VI-A.1) and by what collectives took here before, and as measured.
    pub predicted_ns: Option<u64>,
    /// Why there is no `predicted_ns`.
    pub unpredicted: Option<Unpredicted>,
    pub measured_ns: u64,
    /// The number of times that a receiver was given another source.
    pub n_moved: u32,
}

/// Why the time of a collective is shown without a prediction.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Unpredicted {
    /// It was not chosen by its time: copies that one node is sent.
    NotChosen,
    /// No file moved: the task that made the files ran again.
    Rerun,
    /// When the last of its files existed, all of them had arrived.
    NothingLeft,
    /// Not all of its files came to exist.
    Incomplete,
    /// No collective of its kind had ended before.
    First,
    /// Those that had ended let nine in ten expect this time within this factor, which is too large to be promised.
    Unsure { expected_ns: u64, factor: f64 },
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct RunRow {
    pub run: RunId,
    pub name: String,
    pub n_tasks: u64,
    pub opened: Timestamp,
    pub ended: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Totals {
    /// From the first submission to the last end: the paper's workload execution time, `T_N`.
    pub makespan_ns: u64,
    pub n_tasks: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    /// Tasks that had not ended when the log ended.
    pub n_unfinished: u64,
    /// `n_done / makespan`.
    pub tasks_per_s: Option<f64>,

    pub n_attempts: u64,
    pub n_attempts_failed: u64,
    pub n_attempts_cancelled: u64,
    /// Attempts whose executor was lost, or came back without the attempt.
    pub n_attempts_lost: u64,

    /// Cache hit local: `(local_hit + in_place) / requests`, by count; the next field is the same by bytes.
    pub hit_ratio_local: Option<f64>,
    pub hit_ratio_local_bytes: Option<f64>,
    /// Cache hit global: `remote_hit / requests`.
    pub hit_ratio_remote: Option<f64>,
    pub hit_ratio_remote_bytes: Option<f64>,
    /// Cache miss: `(joined + miss + direct) / requests`. The three ratios add up to 1.
    pub miss_ratio: Option<f64>,
    pub miss_ratio_bytes: Option<f64>,

    /// Bytes read from a node's own disk: local hits, joined requests, inputs in place.
    pub cache_local_bytes: u64,
    /// Bytes over the links between nodes.
    pub cache_remote_bytes: u64,
    /// Bytes from home to a node.
    pub home_in_bytes: u64,
    /// Bytes of outputs that came home.
    pub home_out_bytes: u64,
    /// `8 * (cache_local + cache_remote + home_in) / makespan / 1e9`.
    pub throughput_mean_gbps: Option<f64>,
    /// The 99th percentile over the bins of the series, which is what the paper calls peak (figure 25).
    pub throughput_peak_gbps: f64,

    /// `AR = mean(ended_i - submitted_i)` over done tasks; `AR_i = WQ_i + TK_i + D_i`. Here staging and the
    /// wait for a slot are separate from `TK`.
    pub response_mean_ns: u64,
    pub response_p50_ns: u64,
    pub response_p99_ns: u64,
    /// `WQ`: from submission until the attempt that ended well was given to an executor.
    pub queue_mean_ns: u64,
    /// From the end of `WQ` until the attempt's inputs were there.
    pub stage_in_mean_ns: u64,
    /// From then until a slot was free.
    pub slot_wait_mean_ns: u64,
    /// `TK`: from start to exit.
    pub run_mean_ns: u64,
    /// `D`: from the exit of the program until the task's outputs were home and its end was reported.
    pub delivery_mean_ns: u64,

    /// Ideal workload execution time: `max(submitted_i + TK_i) - min(submitted_i)` over done tasks, that is
    /// with infinite resources and free communication. Deviation: the paper computes it from the arrival
    /// function; here arrivals and run times are the measured ones. Tasks that wait for others are not
    /// modelled.
    pub ideal_ns: u64,
    /// `SL = makespan / ideal`.
    pub slowdown: Option<f64>,
    /// Not in the paper: the ideal time on the slots that were there, `max(ideal, sum(cpus_i * TK_i) /
    /// slots)` with `slots` the mean number of slots in the window. When all tasks arrive at once, `ideal`
    /// is the longest task and says little; this value shows how much time was spent on anything but
    /// computing.
    pub ideal_on_slots_ns: u64,
    /// `ideal_on_slots / makespan`.
    pub efficiency: Option<f64>,
    /// Not in the paper: the least time that the same work could have taken.
    #[serde(default)]
    pub bound: Bound,

    /// `CPU_T`: the sum of the times for which slots were there, in hours.
    pub cpu_hours_allocated: f64,
    /// `sum(cpus * (exited - started))` over all attempts, in hours.
    pub cpu_hours_busy: f64,
    /// Processor time that the programs used, over all attempts, in hours.
    pub cpu_hours_program: f64,
    /// `cpu_hours_busy / cpu_hours_allocated`.
    pub cpu_utilisation: Option<f64>,
    pub rss_bytes_max: u64,

    pub n_nodes_max: u64,
    pub n_slots_max: u64,
    pub n_queued_max: u64,
}

/// Done tasks that arrived within one interval (figure 27).
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ArrivalRow {
    /// When the interval began, in nanoseconds since the report's `began`, and its length.
    pub began_ns: u64,
    pub length_ns: u64,
    pub n_tasks: u64,
    /// `n_tasks / length`
    pub tasks_per_s: f64,
    pub response_mean_ns: u64,
    /// From the beginning of the interval to the end of the last of its tasks, divided by what that would be if no task waited:
    /// the longest of their times from the beginning to their arrival and their run time.
    pub slowdown: f64,
}

/// The parts of the time of one task.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct TaskRow {
    pub task: TaskId,
    pub user_id: String,
    #[serde(default)]
    pub end: End,
    pub attempt: AttemptNo,
    pub executor: String,
    pub response_ns: u64,
    pub queue_ns: u64,
    pub stage_in_ns: u64,
    pub slot_wait_ns: u64,
    pub run_ns: u64,
    pub delivery_ns: u64,
    pub input_bytes: u64,
    /// Bytes of the inputs that were read from home.
    #[serde(default)]
    pub home_bytes: u64,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct FailureRow {
    pub task: TaskId,
    pub user_id: String,
    pub message: String,
    pub kind: FailureKind,
    /// The last attempt and the node where it was; absent if the task was never given to an executor.
    pub last_attempt: Option<(AttemptNo, String)>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ExecutorRow {
    pub name: String,
    pub slots: u32,
    pub cache_bytes: u64,
    /// So much of the cache was to be held in memory, too.
    #[serde(default)]
    pub cache_memory_bytes: u64,
    pub present_ns: u64,
    /// How often the executor was lost or left.
    pub n_losses: u32,
    pub n_attempts: u64,
    pub n_done: u64,
    pub requests: Requests,
    /// Slot time with a running program divided by all slot time.
    pub cpu_utilisation: Option<f64>,
}

/// Two runs of the same work, in the words of `Raicu09` §5.1.5.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Comparison {
    /// `SP = T_N(base) / T_N(this)`.
    pub speedup: Option<f64>,
    /// `PI = SP / CPU_T`, divided by the larger `PI` of the two runs, so that the better run has 1.
    pub performance_index: Option<f64>,
    pub performance_index_base: Option<f64>,
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then_some(a / b)
}

const HOUR_NS: f64 = 3.6e12;

fn hours(slot_ns: f64) -> f64 {
    slot_ns / HOUR_NS
}

/// Compares `report` with `base`. The values are `None` if the work was not the same (other numbers of
/// tasks or of done tasks) or a run is not over.
pub fn compare(report: &Report, base: &Report) -> Comparison {
    let (this, that) = (&report.totals, &base.totals);
    let same = this.n_tasks == that.n_tasks && this.n_done == that.n_done && report.complete && base.complete;
    if !same {
        return Comparison { speedup: None, performance_index: None, performance_index_base: None };
    }
    let speedup = ratio(that.makespan_ns as f64, this.makespan_ns as f64);
    let index = speedup.and_then(|sp| ratio(sp, this.cpu_hours_allocated));
    let index_base = ratio(1.0, that.cpu_hours_allocated);
    let best = index.unwrap_or(0.0).max(index_base.unwrap_or(0.0));
    Comparison {
        speedup,
        performance_index: index.and_then(|i| ratio(i, best)),
        performance_index_base: index_base.and_then(|i| ratio(i, best)),
    }
}

/// The metrics of all runs of a log together.
pub fn metrics(log: &RunLog) -> Report {
    Measure::new(log, None).report()
}

/// The metrics of one run; `None` when the log has no such run.
pub fn metrics_of(log: &RunLog, run: RunId) -> Option<Report> {
    log.runs.contains_key(&run).then(|| Measure::new(log, Some(run)).report())
}

impl Measure<'_> {
    fn report(&self) -> Report {
        let log = self.log;
        let life = log.lives.last();
        let series = series(self);
        let requests = self.requests();
        let (n_dispatchers_read, n_dispatchers) = log.n_dispatchers();
        Report {
            eyas_report: REPORT_VERSION,
            eyas_version: life.map(|l| l.eyas_version.clone()).unwrap_or_default(),
            cluster: life.map(|l| l.cluster.clone()).unwrap_or_default(),
            placement: life.map(|l| l.config.placement.clone()).unwrap_or_default(),
            began: self.start,
            complete: self.complete,
            torn: log.torn,
            lost: log.lost,
            n_lives: log.lives.len() as u64,
            n_dispatchers_read,
            n_dispatchers,
            runs: self.runs(),
            stages: self.stages(),
            verdict: verdict(self),
            home_limit_bytes_per_s: self.home_limit_bytes_per_s(),
            totals: self.totals(&requests, &series),
            requests,
            series,
            arrivals: self.arrivals(),
            slowest: self.slowest(),
            tasks: self.task_rows(),
            lanes: lanes(self),
            failures: self.failures(),
            executors: self.executors(),
            patterns: self.patterns(),
            collectives: self.collectives(),
        }
    }

    fn patterns(&self) -> Vec<String> {
        let mine = self.log.patterns.iter().filter(|(run, _)| self.run.is_none_or(|r| r == *run));
        // Each dispatcher of a group logs the patterns of the whole run that it was sent, and a restarted
        // dispatcher logs them again.
        let mut said = BTreeSet::new();
        mine.map(|(_, evidence)| evidence.to_string())
            .filter(|sentence| said.insert(sentence.clone()))
            .collect()
    }

    /// The collectives of all runs, because a collective may serve several runs.
    fn collectives(&self) -> Vec<CollectiveRow> {
        let all = &self.log.collectives;
        let is_first = |c: &CollectiveRecord| {
            all.iter().all(|other| other.kind != c.kind || other.ended >= c.ready() || other.n_arrived == 0)
        };
        let unpredicted = |c: &CollectiveRecord| match c.choice.as_ref().map(|choice| choice.expectation) {
            Some(Some(_)) if c.predicted_ns().is_some() => None,
            Some(_) if c.way == Way::TaskRerun => Some(Unpredicted::Rerun),
            Some(None) if c.ready == Some(c.ended) => Some(Unpredicted::NothingLeft),
            Some(None) if c.n_arrived < c.n_wanted => Some(Unpredicted::Incomplete),
            Some(Some(seen)) if !is_first(c) => {
                Some(Unpredicted::Unsure { expected_ns: seen.expected_ns, factor: seen.doubt })
            }
            Some(_) => Some(Unpredicted::First),
            None => Some(Unpredicted::NotChosen),
        };
        let row = |c: &CollectiveRecord| CollectiveRow {
            kind: format!("{:?}", c.kind).to_lowercase(),
            way: c.way.to_string(),
            began_ns: c.began.since_ns(self.start),
            n_receivers: c.n_receivers,
            n_wanted: c.n_wanted,
            n_arrived: c.n_arrived,
            arrived_bytes: c.arrived_bytes,
            predicted_ns: c.predicted_ns(),
            unpredicted: unpredicted(c),
            measured_ns: c.measured_ns(),
            n_moved: c.n_moved,
        };
        all.iter().map(row).collect()
    }

    fn runs(&self) -> Vec<RunRow> {
        let mine = self.log.runs.iter().filter(|(id, r)| self.run.is_none_or(|x| x == **id) && !r.aborted);
        let row = |(id, r): (&RunId, &crate::read::RunRecord)| RunRow {
            run: *id,
            name: r.name.clone(),
            n_tasks: r.n_tasks,
            opened: r.opened,
            ended: r.ended,
        };
        mine.map(row).collect()
    }

    fn stages(&self) -> Vec<StageRow> {
        let last = |task: TaskId| self.last_attempt.get(&task).map(|at| &self.log.attempts[*at]);
        stages(self.log, &self.submissions, self.start, last)
    }

    fn requests(&self) -> Requests {
        let mut sum = Requests::default();
        let mine = self.log.requests.iter().filter(|((run, _), _)| self.run.is_none_or(|r| r == *run));
        mine.for_each(|(_, r)| sum.add(r));
        sum
    }

    fn totals(&self, requests: &Requests, series: &Series) -> Totals {
        let makespan_ns = self.stop.since_ns(self.start);
        let mut t = Totals { makespan_ns, ..Totals::default() };
        let work = self.add_tasks(&mut t);
        self.add_attempts(&mut t);
        add_bytes(&mut t, requests, series);
        self.add_slots(&mut t, &work);
        let done = Done {
            makespan_ns,
            home_out_bytes: t.home_out_bytes,
            cpu_ns: t.cpu_hours_program * HOUR_NS,
            busy_ns: t.cpu_hours_busy * HOUR_NS,
        };
        t.bound = Bound::of(self, &done);
        self.add_peaks(&mut t);
        t
    }

    /// Counts tasks by their ends, and takes the response times of done tasks apart.
    fn add_tasks(&self, t: &mut Totals) -> IdealWork {
        let mut responses: Vec<u64> = vec![];
        let mut sums = [0u128; 5];
        let mut work = IdealWork { first: Timestamp(u64::MAX), ideal_end: Timestamp(0), slot_ns: 0.0 };
        for s in &self.submissions {
            t.n_tasks += u64::from(s.n_tasks);
            for task in tasks(std::slice::from_ref(s)) {
                match self.log.end(task).0 {
                    End::Not => t.n_unfinished += 1,
                    End::Failed => t.n_failed += 1,
                    End::Cancelled => t.n_cancelled += 1,
                    End::Done => {
                        t.n_done += 1;
                        work.first = work.first.min(s.submitted);
                        let Some(row) = self.times(task, s.submitted) else { continue };
                        let parts =
                            [row.queue_ns, row.stage_in_ns, row.slot_wait_ns, row.run_ns, row.delivery_ns];
                        sums.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += u128::from(ns));
                        responses.push(row.response_ns);
                        work.ideal_end = work.ideal_end.max(s.submitted.plus_ns(row.run_ns));
                        work.slot_ns += f64::from(row.cpus) * row.run_ns as f64;
                    }
                }
            }
        }
        t.tasks_per_s = ratio(t.n_done as f64, t.makespan_ns as f64 / 1e9);

        let n = responses.len().max(1) as u128;
        let mean = |sum: u128| (sum / n) as u64;
        let response_sum = responses.iter().map(|ns| u128::from(*ns)).sum();
        t.response_mean_ns = mean(response_sum);
        [t.queue_mean_ns, t.stage_in_mean_ns, t.slot_wait_mean_ns, t.run_mean_ns, t.delivery_mean_ns] =
            sums.map(mean);
        responses.sort_unstable();
        t.response_p50_ns = quantile(&responses, 0.5).unwrap_or(0);
        t.response_p99_ns = quantile(&responses, 0.99).unwrap_or(0);
        work
    }

    fn add_attempts(&self, t: &mut Totals) {
        for a in self.attempts() {
            t.n_attempts += 1;
            match a.how {
                How::Failed => t.n_attempts_failed += 1,
                How::Cancelled => t.n_attempts_cancelled += 1,
                How::Lost => t.n_attempts_lost += 1,
                How::Done => t.home_out_bytes = t.home_out_bytes.saturating_add(a.landed_bytes()),
                How::Open => {}
            }
            t.cpu_hours_busy += hours(f64::from(a.cpus) * a.run_ns() as f64);
            t.cpu_hours_program += hours(a.cpu_ns as f64);
            t.rss_bytes_max = t.rss_bytes_max.max(a.rss_bytes_max);
        }
    }

    /// How well the slots that were there were used, and how long the same work would have taken at best.
    fn add_slots(&self, t: &mut Totals, work: &IdealWork) {
        let slot_ns: f64 =
            self.log.executors.iter().map(|e| f64::from(e.slots) * self.present_ns(e) as f64).sum();
        t.cpu_hours_allocated = hours(slot_ns);
        t.cpu_utilisation = ratio(t.cpu_hours_busy, t.cpu_hours_allocated);
        t.ideal_ns = work.ideal_end.since_ns(work.first);
        t.slowdown = ratio(t.makespan_ns as f64, t.ideal_ns as f64).filter(|_| self.complete);
        let n_slots = ratio(slot_ns, t.makespan_ns as f64);
        let on_slots = n_slots.and_then(|n| ratio(work.slot_ns, n)).unwrap_or(0.0);
        t.ideal_on_slots_ns = t.ideal_ns.max(on_slots as u64);
        t.efficiency = ratio(t.ideal_on_slots_ns as f64, t.makespan_ns as f64).filter(|_| self.complete);
    }

    /// The most tasks that were queued, and nodes and slots that were there, at one time.
    fn add_peaks(&self, t: &mut Totals) {
        let peak = |deltas: Vec<(Timestamp, i64)>| peak(deltas) as u64;
        t.n_queued_max = peak(self.queue_changes());
        let mut nodes = vec![];
        let mut slots = vec![];
        for e in &self.log.executors {
            for (from, to) in self.presence(e) {
                nodes.extend([(from, 1), (to, -1)]);
                slots.extend([(from, i64::from(e.slots)), (to, -i64::from(e.slots))]);
            }
        }
        t.n_nodes_max = peak(nodes);
        t.n_slots_max = peak(slots);
    }

    /// The parts of the time of a done task; `None` if no attempt of the task is known.
    fn times(&self, task: TaskId, submitted: Timestamp) -> Option<Times> {
        let a = &self.log.attempts[*self.last_attempt.get(&task)?];
        let ended = self.log.end(task).1;
        let ready = if a.inputs_ready.0 > 0 { a.inputs_ready } else { a.started };
        Some(Times {
            response_ns: ended.since_ns(submitted),
            queue_ns: a.assigned.since_ns(submitted),
            stage_in_ns: ready.since_ns(a.assigned),
            slot_wait_ns: a.started.since_ns(ready),
            run_ns: a.run_ns(),
            delivery_ns: if a.exited.0 > 0 { ended.since_ns(a.exited) } else { 0 },
            cpus: a.cpus,
        })
    }

    fn arrivals(&self) -> Vec<ArrivalRow> {
        let (Some(first), Some(last)) = (
            self.submissions.iter().map(|s| s.submitted).min(),
            self.submissions.iter().map(|s| s.submitted).max(),
        ) else {
            return vec![];
        };
        let length_ns = (last.since_ns(first) / N_INTERVALS + 1).max(1);
        #[derive(Clone, Copy, Default)]
        struct Sums {
            n: u64,
            response_ns: u128,
            end_ns: u64,
            ideal_ns: u64,
        }
        let mut sums = [Sums::default(); N_INTERVALS as usize];
        for s in &self.submissions {
            let at = s.submitted.since_ns(first) / length_ns;
            let began = first.plus_ns(at * length_ns);
            let sums = &mut sums[at as usize];
            for task in tasks(std::slice::from_ref(s)).filter(|t| self.log.end(*t).0 == End::Done) {
                let Some(times) = self.times(task, s.submitted) else { continue };
                let arrived_ns = s.submitted.since_ns(began);
                sums.n += 1;
                sums.response_ns += u128::from(times.response_ns);
                sums.end_ns = sums.end_ns.max(arrived_ns.saturating_add(times.response_ns));
                sums.ideal_ns = sums.ideal_ns.max(arrived_ns.saturating_add(times.run_ns));
            }
        }
        let row = |(at, sums): (u64, &Sums)| ArrivalRow {
            began_ns: first.since_ns(self.start) + at * length_ns,
            length_ns,
            n_tasks: sums.n,
            tasks_per_s: sums.n as f64 * 1e9 / length_ns as f64,
            response_mean_ns: (sums.response_ns / u128::from(sums.n)) as u64,
            slowdown: sums.end_ns as f64 / sums.ideal_ns.max(1) as f64,
        };
        (0..).zip(&sums).filter(|(_, sums)| sums.n > 0).map(row).collect()
    }

    fn slowest(&self) -> Vec<TaskRow> {
        self.slowest_of(SLOWEST_KEPT)
    }

    /// The `n_kept` done tasks that took longest apart from queueing, slowest first.
    fn slowest_of(&self, n_kept: usize) -> Vec<TaskRow> {
        let mut found: Vec<(u64, TaskId, Times)> = vec![];
        for s in &self.submissions {
            for task in tasks(std::slice::from_ref(s)).filter(|t| self.log.end(*t).0 == End::Done) {
                let Some(times) = self.times(task, s.submitted) else { continue };
                let took_ns = sum([times.stage_in_ns, times.run_ns, times.delivery_ns].into_iter());
                found.push((took_ns, task, times));
                if found.len() >= 64 * n_kept {
                    keep_slowest(&mut found, n_kept);
                }
            }
        }
        keep_slowest(&mut found, n_kept);
        found.into_iter().map(|(_, task, times)| self.task_row(task, Some(times))).collect()
    }

    fn task_row(&self, task: TaskId, times: Option<Times>) -> TaskRow {
        let a = self.last_attempt.get(&task).map(|at| &self.log.attempts[*at]);
        let times = times.unwrap_or_default();
        TaskRow {
            task,
            user_id: self.log.user_id(task),
            end: self.log.end(task).0,
            attempt: a.map_or(AttemptNo(0), |a| a.attempt),
            executor: a.map(|a| self.log.executors[a.executor as usize].name.clone()).unwrap_or_default(),
            response_ns: times.response_ns,
            queue_ns: times.queue_ns,
            stage_in_ns: times.stage_in_ns,
            slot_wait_ns: times.slot_wait_ns,
            run_ns: times.run_ns,
            delivery_ns: times.delivery_ns,
            input_bytes: a.map_or(0, AttemptRecord::input_bytes),
            home_bytes: a.map_or(0, |a| a.home_bytes),
        }
    }

    /// Tasks for the table: failed, cancelled and unfinished ones first, then the slowest.
    fn task_rows(&self) -> Vec<TaskRow> {
        let mut rows = vec![];
        for end in [End::Failed, End::Not, End::Cancelled] {
            for s in &self.submissions {
                let room = NOT_DONE_KEPT - rows.len();
                let mine = tasks(std::slice::from_ref(s)).filter(|t| self.log.end(*t).0 == end).take(room);
                rows.extend(mine.map(|task| {
                    // A task that has not ended has no times yet.
                    let times = self.times(task, s.submitted).filter(|_| end != End::Not);
                    self.task_row(task, times)
                }));
            }
        }
        rows.extend(self.slowest_of(TASKS_KEPT - rows.len()));
        rows
    }

    fn failures(&self) -> Vec<FailureRow> {
        let mine = |task: TaskId| {
            let s = self.submissions.partition_point(|s| s.first <= task).checked_sub(1);
            s.map(|i| self.submissions[i]).is_some_and(|s| task.0 - s.first.0 < u64::from(s.n_tasks))
        };
        let row = |f: &crate::read::FailureRecord| FailureRow {
            task: f.task,
            user_id: self.log.user_id(f.task),
            message: f.failure.message.clone(),
            kind: f.failure.kind,
            last_attempt: self.last_attempt.get(&f.task).map(|at| {
                let a = &self.log.attempts[*at];
                (a.attempt, self.log.executors[a.executor as usize].name.clone())
            }),
        };
        self.log.failures.iter().filter(|f| mine(f.task)).take(FAILURES_KEPT).map(row).collect()
    }

    fn executors(&self) -> Vec<ExecutorRow> {
        #[derive(Default, Clone, Copy)]
        struct Sum {
            n_attempts: u64,
            n_done: u64,
            busy_ns: f64,
        }
        let mut sums = vec![Sum::default(); self.log.executors.len()];
        for a in self.attempts() {
            let sum = &mut sums[a.executor as usize];
            sum.n_attempts += 1;
            sum.n_done += u64::from(a.how == How::Done);
            sum.busy_ns += f64::from(a.cpus) * a.run_ns() as f64;
        }
        let mut requests: BTreeMap<usize, Requests> = BTreeMap::new();
        for ((run, row), r) in &self.log.requests {
            if self.run.is_none_or(|x| x == *run) {
                requests.entry(*row).or_default().add(r);
            }
        }
        let row = |(i, e): (usize, &crate::read::ExecutorRecord)| {
            let present_ns = self.present_ns(e);
            ExecutorRow {
                name: if e.name.is_empty() { units::ordinal(i as u64 + 1) } else { e.name.clone() },
                slots: e.slots,
                cache_bytes: e.cache_bytes,
                cache_memory_bytes: e.cache_memory_bytes,
                present_ns,
                n_losses: e.n_losses,
                n_attempts: sums[i].n_attempts,
                n_done: sums[i].n_done,
                requests: requests.get(&i).copied().unwrap_or_default(),
                cpu_utilisation: ratio(sums[i].busy_ns, f64::from(e.slots) * present_ns as f64),
            }
        };
        let rows = self.log.executors.iter().enumerate().map(row);
        let mut rows: Vec<ExecutorRow> = rows.filter(|e| e.present_ns > 0 || e.n_attempts > 0).collect();
        rows.sort_by_cached_key(|e| eyas_text::natural(&e.name));
        rows
    }
}

/// What the done tasks would have needed at best.
struct IdealWork {
    /// When the first of them was submitted.
    first: Timestamp,
    /// When the last of them would have ended, had each started when it was submitted.
    ideal_end: Timestamp,
    /// Times of programs, each times its slots.
    slot_ns: f64,
}

#[derive(Clone, Copy, Default)]
struct Times {
    response_ns: u64,
    queue_ns: u64,
    stage_in_ns: u64,
    slot_wait_ns: u64,
    run_ns: u64,
    delivery_ns: u64,
    cpus: u32,
}

/// Hit ratios and bytes, by the outcomes of requests.
fn add_bytes(t: &mut Totals, r: &Requests, series: &Series) {
    let all = r.total();
    let shares = |local: u64, remote: u64, all: u64| {
        let (local, remote, all) = (local as f64, remote as f64, all as f64);
        (ratio(local, all), ratio(remote, all), ratio(all - local - remote, all))
    };
    let local = r.local_hit.n_requests.saturating_add(r.in_place.n_requests);
    (t.hit_ratio_local, t.hit_ratio_remote, t.miss_ratio) =
        shares(local, r.remote_hit.n_requests, all.n_requests);
    let local = r.local_hit.bytes.saturating_add(r.in_place.bytes);
    (t.hit_ratio_local_bytes, t.hit_ratio_remote_bytes, t.miss_ratio_bytes) =
        shares(local, r.remote_hit.bytes, all.bytes);
    t.cache_local_bytes = local.saturating_add(r.joined.bytes).saturating_add(r.made.bytes);
    t.cache_remote_bytes = r.remote_hit.bytes;
    t.home_in_bytes = r.miss.bytes.saturating_add(r.direct.bytes);
    t.throughput_mean_gbps = ratio(all.bytes as f64 * 8.0, t.makespan_ns as f64);
    let mut per_bin: Vec<f64> = (0..series.demand_gbps.len())
        .map(|i| series.cache_local_gbps[i] + series.cache_remote_gbps[i] + series.home_gbps[i])
        .collect();
    per_bin.sort_unstable_by(f64::total_cmp);
    t.throughput_peak_gbps = quantile(&per_bin, 0.99).unwrap_or(0.0);
}

fn keep_slowest(found: &mut Vec<(u64, TaskId, Times)>, n_kept: usize) {
    found.sort_by_key(|(took_ns, task, _)| (std::cmp::Reverse(*took_ns), *task));
    found.truncate(n_kept);
}

/// The value below which a share `q` of the sorted values lies, by the nearest rank.
fn quantile<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The largest value that the sum of the changes reaches; changes at the same time count together.
fn peak(mut changes: Vec<(Timestamp, i64)>) -> i64 {
    changes.sort_unstable();
    let (mut level, mut most) = (0, 0);
    for (i, (t, change)) in changes.iter().enumerate() {
        level += change;
        if changes.get(i + 1).is_none_or(|(next, _)| next != t) {
            most = most.max(level);
        }
    }
    most
}
