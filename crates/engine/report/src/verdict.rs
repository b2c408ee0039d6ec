//! What limited a run, in words.
//!
//! In: the records of a log, cut to the window of [`crate::metrics`]. Out: a [`Verdict`]: each [`Cause`]'s
//! share of the time, and sentences about the causes with large shares.
//!
//! The window is cut into [`N_MOMENTS`] moments, and each moment gets one cause: the thing of which more
//! would have made the run faster. Tasks are *open* (all files that they wait for exist, and their programs
//! have not ended), *running*, or *waiting* (open and not running). All of them are weighed by the slots
//! that they take. The first line that holds decides:
//!
//! | condition of a moment | cause |
//! |---|---|
//! | there is no slot | [`Cause::Nodes`] |
//! | at least 0.9 of the slots run a program, and tasks wait: fewer than 0.75 of the most slots are there | [`Cause::Nodes`] |
//! | the same with more slots, at least 0.9 of the nodes' processors are used, and others use at least 0.3 of them | [`Cause::Busy`] |
//! | the same with more slots | [`Cause::Slots`] |
//! | all waiting tasks are held by nodes that are silent and not given up yet | [`Cause::Nodes`] |
//! | inputs are on their way for at least half of the idle slots, or of the waiting tasks if those are fewer: from home or from nodes, whichever gave more bytes | [`Cause::Home`], [`Cause::Peers`] |
//! | home moves at least 0.8 of its limit, and tasks wait | [`Cause::Home`] |
//! | there are fewer open tasks than slots, or no task waits: outputs are on their way home, and no program runs or tasks wait for their makers | [`Cause::Home`] |
//! | the same: tasks wait for their makers | [`Cause::Dependencies`] |
//! | the same: further tasks were submitted later | [`Cause::Arrivals`] |
//! | the same | [`Cause::Tail`] |
//! | slots idle beside waiting tasks while home moves at least half of what it gave at its best | [`Cause::Home`] |
//! | the rest: slots idle beside waiting tasks | [`Cause::Idle`] for the share of idle slots, [`Cause::Slots`] for the others |
//!
//! The verdict names the cause of at least half of the time, and with it the causes of at least a fifth. If
//! no cause has half of the time, the verdict says that none stands out, and names the causes of at least a
//! fifth.
//!
//! Others are programs outside eyas, as the nodes report it. Where they used at least 0.3 of processors that were all used,
//! over the whole run, the verdict says so whatever the cause.
//!
//! A run that took less than half a second has no verdict, because starting is most of it.
//!
//! An executor whose connection is broken counts as one without slots: it gets no tasks, and usually it has
//! ended.
//!
//! Not here: reacting at run time; no decision uses a verdict.

use crate::bins::Bins;
use crate::chain::Makers;
use crate::measure::{Measure, tasks};
use crate::read::{End, How};
use crate::units::{count, duration, plural, rate, rate_of};
use eyas_terms::*;
use eyas_text::shown;
use serde::{Deserialize, Serialize};

/// In less time than this, starting the nodes and asking for the first files is most of the run.
const SPAN_NS_MIN: u64 = 500_000_000;
/// The number of moments into which the window is cut.
const N_MOMENTS: u64 = 1000;
/// From this share of busy slots on, all slots count as busy, because between two programs a slot is empty
/// for a moment.
const FULL: f64 = 0.9;
/// If fewer slots than this share of the most slots are there, nodes are missing.
const NODES_MISSING: f64 = 0.75;
/// A home that moves this share of its limit counts as being at its limit.
const AT_LIMIT: f64 = 0.8;
/// From this share of the processors on, others are in the way.
const OTHERS_SHARE: f64 = 0.3;
/// A cause with this share of the time is the verdict.
const MAIN_SHARE: f64 = 0.5;
/// A cause with this share of the time is worth a word.
const NAMED_SHARE: f64 = 0.2;

/// The thing of which more would have made the run faster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// All slots were busy, and further tasks could have run.
    Slots,
    /// Programs outside eyas used the nodes' processors.
    Busy,
    /// Bytes moved from or to home.
    Home,
    /// Bytes moved from other nodes.
    Peers,
    /// Nodes that had not come yet, or had gone.
    Nodes,
    /// Tasks that waited for files that other tasks make.
    Dependencies,
    /// Few long tasks were left, and no others beside them.
    Tail,
    /// Fewer tasks had been submitted than there were slots.
    Arrivals,
    /// Slots were idle although tasks could have run: because of work beside the programs, or a placement
    /// that waits.
    Idle,
}

const CAUSES: [Cause; 9] = [
    Cause::Slots,
    Cause::Busy,
    Cause::Home,
    Cause::Peers,
    Cause::Nodes,
    Cause::Dependencies,
    Cause::Tail,
    Cause::Arrivals,
    Cause::Idle,
];

impl Cause {
    /// The name of the cause in the JSON and in the page's style.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Slots => "slots",
            Cause::Busy => "busy",
            Cause::Home => "home",
            Cause::Peers => "peers",
            Cause::Nodes => "nodes",
            Cause::Dependencies => "dependencies",
            Cause::Tail => "tail",
            Cause::Arrivals => "arrivals",
            Cause::Idle => "idle",
        }
    }
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Verdict {
    /// The tasks that were not done, if any; then the causes that limited the run.
    pub sentences: Vec<String>,
    /// All causes with a share of the time, the largest first. The shares add up to 1.
    pub causes: Vec<CauseShare>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CauseShare {
    pub cause: Cause,
    pub share: f64,
    /// A clause, such as "home (95 % of the time, at 9.5 of 9.5 MiB/s)".
    pub text: String,
}

/// Sums over the moments of one cause.
#[derive(Clone, Copy, Default)]
struct Sums {
    n: f64,
    running: f64,
    slots: f64,
    home_bytes_per_s: f64,
    peer_bytes_per_s: f64,
    others: f64,
}

/// The mean values of the moments.
struct Moments {
    slots: Vec<f64>,
    running: Vec<f64>,
    open: Vec<f64>,
    blocked: Vec<f64>,
    staging: Vec<f64>,
    delivering: Vec<f64>,
    held: Vec<f64>,
    home_bytes_per_s: Vec<f64>,
    peer_bytes_per_s: Vec<f64>,
    /// The parts of the processors that were used, and that others used; 0 where no node has said it.
    processors: Vec<f64>,
    others: Vec<f64>,
    moment_ns: u64,
}

/// The verdict on the runs of `measure`.
pub(crate) fn verdict(measure: &Measure) -> Verdict {
    let span_ns = measure.stop.since_ns(measure.start);
    let mut sentences = vec![];
    let (mut n_tasks, mut n_done, mut n_failed, mut n_cancelled) = (0u64, 0u64, 0u64, 0u64);
    for task in tasks(&measure.submissions) {
        n_tasks += 1;
        match measure.log.end(task).0 {
            End::Done => n_done += 1,
            End::Failed => n_failed += 1,
            End::Cancelled => n_cancelled += 1,
            End::Not => {}
        }
    }
    let were = |n: u64, what: &str| format!("{} of {} {what}.", count(n), plural(n_tasks, "task"));
    if n_failed > 0 {
        sentences.push(were(n_failed, "failed"));
    }
    if n_cancelled > 0 {
        sentences.push(were(n_cancelled, if n_cancelled == 1 { "was cancelled" } else { "were cancelled" }));
    }
    if n_tasks == 0 || span_ns < 1000 {
        sentences.push("There were no tasks.".into());
        return Verdict { sentences, causes: vec![] };
    }
    if n_done == 0 && measure.complete {
        sentences.push("No task was done.".into());
    }
    if span_ns < SPAN_NS_MIN && measure.complete {
        sentences.push(format!("The run took {}: too short to say what limited it.", duration(span_ns)));
        return Verdict { sentences, causes: vec![] };
    }
    let moments = Moments::of(measure, span_ns);
    let sums = moments.judge(measure);
    let n: f64 = sums.iter().map(|s| s.n).sum();
    let words = Words { measure, moments: &moments, n_tasks };
    let mut causes: Vec<CauseShare> = CAUSES
        .into_iter()
        .zip(sums)
        .filter(|(_, s)| s.n > 0.0)
        .map(|(cause, s)| CauseShare { cause, share: s.n / n, text: words.clause(cause, s, s.n / n) })
        .collect();
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    let others = moments.others_in_the_way();
    sentences.push(conclusion(&causes, others, measure.complete));
    Verdict { sentences, causes }
}

/// `others`: the part of the processors that others used, if they were in the way.
fn conclusion(causes: &[CauseShare], others: Option<f64>, complete: bool) -> String {
    let is_named = |c: &&CauseShare| c.share >= NAMED_SHARE;
    let named: Vec<&str> = causes.iter().filter(is_named).map(|c| c.text.as_str()).collect();
    let so_far = if complete { "" } else { " so far" };
    let is_said = causes.iter().filter(is_named).any(|c| c.cause == Cause::Busy);
    let meanwhile = match others.filter(|_| !is_said) {
        Some(part) => format!("; others used {:.0} % of the processors", part * 100.0),
        None => String::new(),
    };
    match causes.first() {
        Some(first) if first.share >= MAIN_SHARE => {
            format!("Limited{so_far} by {}{meanwhile}.", named.join(", then by "))
        }
        Some(_) if !named.is_empty() => {
            format!("Nothing stands out{so_far}: {}{meanwhile}.", named.join(", "))
        }
        _ => format!("Nothing stands out{so_far}{meanwhile}."),
    }
}

impl Moments {
    fn of(m: &Measure, span_ns: u64) -> Moments {
        let moment_ns = span_ns.div_ceil(N_MOMENTS);
        let new = || Bins::new(m.start, moment_ns, span_ns.div_ceil(moment_ns) as usize);
        let (mut slots, mut running, mut open, mut blocked) = (new(), new(), new(), new());
        let (mut staging, mut delivering, mut home, mut peer) = (new(), new(), new(), new());
        let mut held = new();
        let (mut measured, mut processors, mut others) = (new(), new(), new());
        for e in &m.log.executors {
            for (from, to, used) in m.processors(e) {
                let slots = f64::from(e.slots);
                measured.hold(from, to, slots);
                processors.hold(from, to, slots * used.used);
                others.hold(from, to, slots * used.others);
            }
            m.presence(e).into_iter().for_each(|(from, to)| slots.hold(from, to, f64::from(e.slots)));
            // A silent executor gets no task.
            for (from, to) in &e.silent {
                slots.hold((*from).max(m.start), to.unwrap_or(m.stop).min(m.stop), -f64::from(e.slots));
            }
        }
        for a in m.attempts() {
            let cpus = f64::from(a.cpus);
            if a.exited > a.started && a.started.0 > 0 {
                running.hold(a.started, a.exited, cpus);
            } else if matches!(a.how, How::Open | How::Lost) {
                // No executor reported the attempt. It counts as running; there are never more such
                // attempts than slots.
                let over = if a.how == How::Open { m.stop } else { a.over };
                // While its node is silent, the attempt is held, and no other node may run the task.
                let silent = m.log.executors[a.executor as usize].silent.iter();
                let silent = silent.filter(|(_, until)| until.is_none_or(|until| until >= over));
                let fell_silent =
                    silent.map(|(from, _)| *from).next().unwrap_or(over).min(over).max(a.assigned);
                running.hold(a.assigned, fell_silent, cpus);
                held.hold(fell_silent, over, cpus);
            }
            if a.received.0 > 0 {
                let ready = if a.inputs_ready.0 > 0 { a.inputs_ready } else { a.received };
                if a.input_bytes() > 0 {
                    staging.hold(a.received, ready, cpus);
                }
                let until = |wait_ns: u64| a.received.plus_ns(wait_ns).min(ready.max(a.received));
                home.spread(a.received, until(a.home_wait_ns), a.home_bytes as f64);
                peer.spread(a.received, until(a.peer_wait_ns), a.peer_bytes as f64);
            }
            if a.how == How::Done && a.exited.0 > 0 && a.landed_bytes() > 0 {
                delivering.hold(a.exited, a.over, 1.0);
                home.spread(a.exited, a.over.max(a.exited), a.landed_bytes() as f64);
            }
        }
        let makers = Makers::of(m);
        for s in &m.submissions {
            let array = m.log.array_at(s.first);
            let cpus = array.map_or(1.0, |a| f64::from(a.template.cpus));
            for task in tasks(std::slice::from_ref(s)) {
                let ready = makers.ready(m, task).map_or(s.submitted, |(t, _)| t.max(s.submitted));
                let (end, ended) = m.log.end(task);
                let last = m.last_attempt.get(&task).map(|at| &m.log.attempts[*at]);
                let over = match (end, last) {
                    (End::Not, _) => m.stop,
                    (End::Done, Some(a)) if a.exited.0 > 0 => a.exited.min(ended),
                    _ => ended,
                };
                blocked.hold(s.submitted, ready.min(over), 1.0);
                open.hold(ready, over, cpus);
            }
        }
        // Bytes per nanosecond.
        let measured = measured.means();
        let part = |bins: Bins| {
            let of = |(sum, all): (f64, &f64)| if *all > 0.0 { sum / all } else { 0.0 };
            bins.means().into_iter().zip(&measured).map(of).collect::<Vec<f64>>()
        };
        let per_s = |bins: Bins| bins.means().into_iter().map(|x| x * 1e9).collect::<Vec<f64>>();
        Moments {
            slots: slots.means(),
            running: running.means(),
            open: open.means(),
            blocked: blocked.means(),
            staging: staging.means(),
            delivering: delivering.means(),
            held: held.means(),
            home_bytes_per_s: per_s(home),
            peer_bytes_per_s: per_s(peer),
            processors: part(processors),
            others: part(others),
            moment_ns,
        }
    }

    /// The part of the processors that others used over the whole run, where they left less than programs wanted.
    fn others_in_the_way(&self) -> Option<f64> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let others = mean(&self.others);
        (mean(&self.processors) >= FULL && others >= OTHERS_SHARE).then_some(others)
    }

    /// Applies the table at the top of this file; gives sums by cause, in the order of [`CAUSES`].
    fn judge(&self, m: &Measure) -> [Sums; CAUSES.len()] {
        let mut sums = [Sums::default(); CAUSES.len()];
        let limit = m.home_limit_bytes_per_s();
        let most_slots = self.slots.iter().copied().fold(0.0, f64::max);
        let best_home = self.home_bytes_per_s.iter().copied().fold(0.0, f64::max);
        let last_submission = m.submissions.iter().map(|s| s.submitted).max().unwrap_or(m.start);
        let last_arrival = last_submission.since_ns(m.start) / self.moment_ns;
        for i in 0..self.slots.len() {
            let slots = self.slots[i];
            let running = self.running[i].min(slots);
            let (free, waiting) = (slots - running, (self.open[i] - running).max(0.0));
            let home = self.home_bytes_per_s[i];
            let at_limit = limit.is_some_and(|limit| home >= AT_LIMIT * limit);
            let tasks_wait = waiting > 0.1;
            let too_few = !tasks_wait || self.open[i] < FULL * slots;
            let is_staging = self.staging[i] > 0.02 * slots;
            let cause = if slots < 0.01 {
                Cause::Nodes
            } else if running >= FULL * slots && waiting > 0.05 * slots {
                match slots {
                    _ if slots < NODES_MISSING * most_slots => Cause::Nodes,
                    _ if self.processors[i] >= FULL && self.others[i] >= OTHERS_SHARE => Cause::Busy,
                    _ => Cause::Slots,
                }
            } else if self.held[i] > 0.1 && waiting - self.held[i] < 0.1 * slots {
                Cause::Nodes
            } else if tasks_wait && self.staging[i] >= 0.5 * free.min(waiting) && is_staging {
                if home >= self.peer_bytes_per_s[i] { Cause::Home } else { Cause::Peers }
            } else if tasks_wait && at_limit {
                Cause::Home
            } else if too_few {
                let nothing_runs = running < 0.1 && waiting < 0.1;
                if self.delivering[i] > 0.1 && (nothing_runs || self.blocked[i] > 0.1) {
                    Cause::Home
                } else if self.blocked[i] > 0.1 {
                    Cause::Dependencies
                } else if (i as u64) < last_arrival {
                    Cause::Arrivals
                } else {
                    Cause::Tail
                }
            } else if is_staging && home >= 0.5 * best_home && home > 0.0 {
                Cause::Home
            } else {
                Cause::Idle
            };
            let mut add = |cause: Cause, part: f64| {
                let s = &mut sums[CAUSES.iter().position(|c| *c == cause).expect("all causes are listed")];
                s.n += part;
                s.running += running * part;
                s.slots += slots * part;
                s.home_bytes_per_s += home * part;
                s.peer_bytes_per_s += self.peer_bytes_per_s[i] * part;
                s.others += self.others[i] * part;
            };
            if cause == Cause::Idle {
                add(Cause::Slots, running / slots);
                add(Cause::Idle, free / slots);
            } else {
                add(cause, 1.0);
            }
        }
        sums
    }
}

fn share_text(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 1.0 => "under 1 % of the time".into(),
        p => format!("{p:.0} % of the time"),
    }
}

/// Makes the clauses about causes.
struct Words<'a> {
    measure: &'a Measure<'a>,
    moments: &'a Moments,
    n_tasks: u64,
}

impl Words<'_> {
    fn clause(&self, cause: Cause, s: Sums, share: f64) -> String {
        let time = share_text(share);
        match cause {
            Cause::Slots => self.slots(s, &time),
            Cause::Busy => {
                let used = 100.0 * s.others / s.n;
                format!("a busy machine ({time}; others used {used:.0} % of the processors)")
            }
            Cause::Home => {
                let seen = s.home_bytes_per_s / s.n;
                match self.measure.home_limit_bytes_per_s() {
                    Some(limit) => format!("home ({time}, at {})", rate_of(seen.min(limit), limit)),
                    None => format!("home ({time}, at {})", rate(seen)),
                }
            }
            Cause::Peers => {
                format!("copies between nodes ({time}, at {})", rate(s.peer_bytes_per_s / s.n))
            }
            Cause::Nodes => {
                let most = self.moments.slots.iter().copied().fold(0.0, f64::max).round() as u64;
                let mean = s.slots / s.n;
                match most {
                    0 => format!("waiting for nodes ({time}: none was there)"),
                    _ if mean > 0.95 * most as f64 => {
                        format!(
                            "waiting for nodes ({time}: until lost ones were given up, which held the last tasks)"
                        )
                    }
                    _ => format!(
                        "waiting for nodes ({time}, with {mean:.1} slots on average; later there were {})",
                        count(most)
                    ),
                }
            }
            Cause::Dependencies => {
                let chain = self.chain();
                format!("tasks that wait for each other ({time}{chain})")
            }
            Cause::Tail => self.tail(s, &time),
            Cause::Arrivals => format!("fewer submitted tasks than slots ({time})"),
            Cause::Idle => self.idle(&time),
        }
    }

    fn slots(&self, s: Sums, time: &str) -> String {
        let (mut cpu_ns, mut run_ns) = (0u128, 0u128);
        for a in self.measure.attempts() {
            cpu_ns += u128::from(a.cpu_ns);
            run_ns += u128::from(a.run_ns()) * u128::from(a.cpus);
        }
        let used = cpu_ns as f64 / run_ns.max(1) as f64;
        let used = match used {
            u if u < 0.5 => format!("; their programs used {:.0} % of a processor each", u * 100.0),
            _ => String::new(),
        };
        let n = (s.slots / s.n).round() as u64;
        match n {
            1 => format!("the number of slots ({time} the one that there was ran a program{used})"),
            _ => format!("the number of slots ({time} all {} ran programs{used})", count(n)),
        }
    }

    /// The done task that ended last.
    fn last_task(&self) -> Option<TaskId> {
        let m = self.measure;
        let done = tasks(&m.submissions).filter(|t| m.log.end(*t).0 == End::Done);
        done.max_by_key(|t| m.log.end(*t).1)
    }

    fn tail(&self, s: Sums, time: &str) -> String {
        let m = self.measure;
        let busy = s.running / s.n;
        let most = self.moments.slots.iter().copied().fold(0.0, f64::max).round() as u64;
        if self.n_tasks <= most {
            let tasks = plural(self.n_tasks, "task");
            return format!("too few tasks ({time}; there were {tasks} and {})", plural(most, "slot"));
        }
        let last =
            self.last_task().and_then(|task| Some((task, &m.log.attempts[*m.last_attempt.get(&task)?])));
        let Some((task, a)) = last else { return format!("few tasks at the end ({time})") };
        let what = format!(
            "{} on {} ran {}",
            shown(&m.log.user_id(task)),
            shown(&m.log.executors[a.executor as usize].name),
            duration(a.run_ns())
        );
        match busy {
            b if b < 1.5 => format!("one long task at the end ({time}: {what})"),
            b => format!("few tasks at the end ({time}, {b:.1} at once; the last one, {what})"),
        }
    }

    /// The longest way back from the last task, each time from a task to its maker.
    fn chain(&self) -> String {
        let m = self.measure;
        let makers = Makers::of(m);
        let Some(mut task) = self.last_task() else { return String::new() };
        let name = m.log.user_id(task);
        let (mut n, mut ran_ns) = (1u64, m.run_ns(task));
        // A damaged log may hold a circle.
        while n < 1_000_000
            && let Some((_, maker)) = makers.ready(m, task)
        {
            (task, n, ran_ns) = (maker, n + 1, ran_ns.saturating_add(m.run_ns(maker)));
        }
        match n {
            1 => String::new(),
            _ => format!(
                "; the chain of {} that ends with {} ran {}",
                plural(n, "task"),
                shown(&name),
                duration(ran_ns)
            ),
        }
    }

    fn idle(&self, time: &str) -> String {
        let m = self.measure;
        let (mut n, mut run_ns) = (0u64, 0u128);
        m.attempts().filter(|a| a.started.0 > 0).for_each(|a| {
            n += 1;
            run_ns += u128::from(a.run_ns());
        });
        let mean_ns = (run_ns / u128::from(n.max(1))) as u64;
        match mean_ns {
            0..50_000_000 => format!(
                "what is done beside the programs ({time} of a slot; a program ran {} on average)",
                duration(mean_ns)
            ),
            _ => format!("placement (slots were idle {time} although tasks could have run)"),
        }
    }
}
