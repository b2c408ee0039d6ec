//! The submissions: runs, workflows and linked tasks, and additions to them.

use super::World;
use crate::build;
use crate::happening::Ev;
use eyas_core::network::NetworkUse;
use eyas_terms::array::{GatherHint, Hint, Hints, TaskArray, TaskSpec};
use eyas_terms::rng::Rng;
use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tasks that wait for additions to their run.
#[derive(Default)]
pub(super) struct Additions {
    /// Tasks that end only when all additions to the run of this plan are decided.
    holds: BTreeMap<String, usize>,
    /// Tasks that promised files, each with its plan.
    promises: BTreeMap<String, (usize, Vec<String>)>,
}

/// Whether a plan must be refused, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Good,
    /// The plan was submitted before with the same token.
    Again,
    /// The plan's token was used for other tasks.
    OtherTasks,
    /// The plan writes a file that a task of the run writes.
    Clash,
    /// The plan reads a file that nobody writes.
    Vain,
    /// The plan's tasks would wait for themselves.
    Circle,
}

/// The state of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanState {
    Waits,
    /// A client of one dispatcher has begun this submission, and sends its tasks; or has sent them all.
    Opened(RunId),
    Submitted(RunId),
    /// A client of several dispatchers is submitting it.
    Tries,
    /// The client that submitted this run is gone.
    Unknown(RunId),
    /// These tasks are in this run.
    Accepted(RunId),
    Refused,
}

/// A run or an addition to be submitted.
pub struct Plan {
    pub arrays: Vec<Arc<TaskArray>>,
    /// The files that stay on the nodes are kept when the run has ended.
    pub keep: bool,
    pub state: PlanState,
    pub kind: Kind,
    /// The tasks are added to the run of this plan.
    pub into: Option<usize>,
    /// Plans that must be decided first, because they share files with this one.
    pub after: Vec<usize>,
    /// The plans whose token and tasks an addition uses.
    pub token_of: usize,
    pub digest_of: usize,
    pub n_tries: u64,
    /// The tasks that each member got at the latest try.
    pub shares: Vec<Vec<String>>,
}

impl Plan {
    fn new(plan: usize, arrays: Vec<Arc<TaskArray>>) -> Plan {
        Plan {
            arrays,
            keep: false,
            state: PlanState::Waits,
            kind: Kind::Good,
            into: None,
            after: vec![],
            token_of: plan,
            digest_of: plan,
            n_tries: 0,
            shares: vec![],
        }
    }

    /// The run that its tasks are in.
    pub fn run(&self) -> Option<RunId> {
        match self.state {
            PlanState::Accepted(run) => Some(run),
            _ => None,
        }
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.state, PlanState::Accepted(_))
    }

    /// Whether the plan's tasks were added to a run and are its own.
    pub fn is_added(&self) -> bool {
        self.into.is_some() && self.kind == Kind::Good && self.is_accepted()
    }

    pub fn is_decided(&self) -> bool {
        self.is_accepted() || self.state == PlanState::Refused
    }

    /// Whether a refusal names a task of this plan.
    pub fn is_own_clash(&self, reason: &str) -> bool {
        let ids = self.arrays.iter().map(|array| array.expand(0).id);
        let mut own = ids.map(|id| format!("tasks `{id}` and `{id}` both write"));
        own.any(|own| reason.contains(&own))
    }
}

/// Files that a plan reads, and files that it writes or promises.
fn files_of(arrays: &[Arc<TaskArray>]) -> (BTreeSet<String>, BTreeSet<String>) {
    let tasks: Vec<TaskSpec> = arrays.iter().map(|array| array.expand(0)).collect();
    let reads = tasks.iter().flat_map(|task| &task.inputs).map(|(_, l)| l.clone()).collect();
    let makes = tasks.iter().flat_map(|task| task.outputs.iter().map(|(_, l)| l).chain(&task.promises));
    (reads, makes.cloned().collect())
}

impl World {
    /// Tasks that read files at home and files of earlier tasks, at whatever member these are.
    fn make_linked(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for i in 0..1 + self.rng.below(self.o.n_tasks_max) {
            let mut task = build::task(&format!("p{plan}t{i}"));
            if self.o.task_is_large > 0 && self.rng.below(1000) < self.o.task_is_large {
                // Some node is large enough, at whatever member it is.
                let n = self.rng.below(self.o.node_sizes.len() as u64) as usize;
                let (slots, memory_bytes) = self.o.node_sizes[n];
                let cpus = 1 + self.rng.below(u64::from(slots)) as u32;
                task = task.cpus(cpus).memory(self.rng.below(memory_bytes + 1));
            }
            for _ in 0..self.rng.below(4) {
                let location = match made.len() as u64 {
                    n if n > 0 && self.rng.below(4) > 0 => made[self.rng.below(n) as usize].clone(),
                    _ => self.object(),
                };
                if !task.inputs.contains(&location) {
                    task = task.reads(&location);
                }
            }
            for output in 0..self.rng.below(3) {
                let location = match self.rng.below(1000) < self.o.output_lands {
                    true => format!("out/p{plan}t{i}o{output}"),
                    false => run_file(format_args!("t{i}o{output}")),
                };
                task = task.writes(&location);
                made.push(location);
            }
            task = self.with_needs(task);
            arrays.push(task.array());
        }
        arrays
    }

    fn make_bag(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        let n_tasks = 1 + self.rng.below(self.o.n_tasks_max);
        let has_no_files = self.o.calls && self.chance(600);
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for i in 0..n_tasks {
            let mut task = build::task(&format!("p{plan}t{i}"));
            if has_no_files {
                arrays.push(self.with_needs(task).retries(self.rng.below(4) as u32).array());
                continue;
            }
            for _ in 0..self.rng.below(4) {
                let location = self.object();
                task = task.reads(&location);
            }
            if !made.is_empty() && self.chance(self.o.task_depends) {
                let location = made[self.rng.below(made.len() as u64) as usize].clone();
                task = task.reads(&location);
            }
            for output in 0..self.rng.below(3) {
                let location = format!("out/p{plan}t{i}o{output}");
                task = task.writes(&location);
                made.push(location);
            }
            if self.chance(self.o.task_is_wide) {
                task = task.cpus(1 + self.rng.below(self.o.slots_max + 1) as u32);
            }
            if self.chance(self.o.task_has_memory) {
                task = task.memory(500 * (1 + self.rng.below(9)));
            }
            if self.chance(self.o.task_has_priority) {
                task = task.priority(self.rng.below(3) as i32 - 1);
            }
            task = self.with_needs(task);
            if self.o.network != NetworkUse::Off && self.chance(600) {
                task = task.hints(Hints { multicast: Hint::Once, ..Hints::default() });
            }
            task = task.retries(self.rng.below(4) as u32);
            arrays.push(task.array());
        }
        arrays
    }

    /// The task, perhaps with needs beside whole cpus and memory. A few of them are more than any node has.
    fn with_needs(&mut self, task: build::Task) -> build::Task {
        if !self.o.resources {
            return task;
        }
        match self.rng.below(10) {
            0 => task.gpus(1000),
            1 => task.gpus(2000),
            2 => task.gpus(250 * (1 + self.rng.below(3) as u32)),
            3 => task.cpu_parts([100, 500, 900, 1500][self.rng.below(4) as usize]),
            4 => task.needs("licence", 1 + self.rng.below(2) as u32),
            5 => task.needs("board", 1 + self.rng.below(2) as u32),
            6 => task.gpus(500).cpu_parts(500).needs("licence", 1).needs("board", 1),
            _ => task,
        }
    }

    /// Layers of tasks; each reads files of earlier layers and some of home. Different runs use equal names.
    fn make_workflow(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        // Readers may be submitted before the makers.
        let shuffled = self.chance(300);
        let output_lands = self.o.output_lands;
        let n_layers = 1 + self.rng.below(self.o.n_layers_max);
        let mut layers: Vec<Vec<String>> = vec![];
        let mut tasks = vec![];
        for layer in 0..n_layers {
            let mut made = vec![];
            for i in 0..1 + self.rng.below(self.o.layer_tasks_max) {
                let mut task = build::task(&format!("p{plan}l{layer}t{i}"));
                if layer == 0 || self.chance(200) {
                    let location = self.object();
                    task = task.reads(&location);
                }
                for _ in 0..if layer > 0 { 1 + self.rng.below(self.o.fan_in_max) } else { 0 } {
                    let from = if self.chance(800) { layer - 1 } else { self.rng.below(layer) };
                    let files = &layers[from as usize];
                    if !files.is_empty() {
                        let location = files[self.rng.below(files.len() as u64) as usize].clone();
                        task = task.reads(&location);
                    }
                }
                for output in 0..1 + self.rng.below(self.o.fan_out_max) {
                    let location = match self.chance(output_lands) {
                        true => format!("out/p{plan}l{layer}t{i}o{output}"),
                        false => run_file(format_args!("l{layer}t{i}o{output}")),
                    };
                    task = task.writes(&location);
                    made.push(location);
                }
                if self.chance(self.o.task_is_wide) {
                    task = task.cpus(1 + self.rng.below(self.o.slots_max + 1) as u32);
                }
                if self.chance(self.o.task_has_priority) {
                    task = task.priority(self.rng.below(3) as i32 - 1);
                }
                if self.o.uneven && self.chance(self.o.task_has_memory) {
                    task = task.memory(500 * (1 + self.rng.below(9)));
                }
                task = self.with_needs(task);
                if self.o.reruns {
                    task = task.hints(Hints { multicast: Hint::Always, ..Hints::default() });
                }
                tasks.push(task.retries(self.rng.below(4) as u32));
            }
            layers.push(made);
        }
        if shuffled {
            for i in (1..tasks.len()).rev() {
                let j = self.rng.below(i as u64 + 1) as usize;
                tasks.swap(i, j);
            }
        }
        tasks.iter().map(|task| task.array()).collect()
    }

    /// Plans tasks that are added to runs later. They read files of the run, including files that are dropped
    /// by then.
    fn plan_additions(&mut self) {
        let mut rng = Rng::new(self.o.seed ^ 0x0061_6464_6974_696f);
        for whole in 0..self.plans.len() {
            let outputs = self.plans[whole].arrays.iter().flat_map(|a| a.expand(0).outputs);
            let files: Vec<String> = outputs.map(|o| o.1).filter(|l| Location::of(l).stays()).collect();
            for n in 0..rng.below(self.o.n_additions_max + 1) {
                let is_bad = rng.below(8) == 0 && !files.is_empty();
                let mut kind = Kind::Good;
                let mut own = files.clone();
                let mut tasks = vec![];
                for i in 0..1 + rng.below(6) {
                    let mut task = build::task(&format!("p{whole}a{n}t{i}"));
                    for _ in 0..rng.below(3) {
                        if !own.is_empty() {
                            task = task.reads(&own[rng.below(own.len() as u64) as usize]);
                        }
                    }
                    if rng.below(2) == 0 {
                        let object = rng.below(self.o.n_objects);
                        task = task.reads(&self.object_name(object));
                    }
                    let location = match rng.below(1000) < self.o.output_lands {
                        true => format!("out/p{whole}a{n}t{i}"),
                        false => run_file(format_args!("a{n}t{i}")),
                    };
                    if Location::of(&location).stays() {
                        own.push(location.clone());
                    }
                    tasks.push(task.writes(&location).retries(rng.below(4) as u32));
                }
                if is_bad {
                    let file = &files[rng.below(files.len() as u64) as usize];
                    let (of, task) = match rng.below(2) {
                        0 => (Kind::Clash, build::task("second").writes(file)),
                        _ => (Kind::Vain, build::task("vain").reads(&run_file("nobody"))),
                    };
                    kind = of;
                    tasks.push(task);
                }
                let plan = self.plans.len();
                let arrays = tasks.iter().map(build::Task::array).collect();
                self.plans.push(Plan { into: Some(whole), kind, ..Plan::new(plan, arrays) });
                self.after(rng.below(self.o.faults_until_ns), Ev::Submit { plan });
            }
        }
    }

    /// Makes everything that is to be submitted, and says when.
    pub(super) fn make_plans(&mut self) {
        if self.o.linked {
            self.plan_linked_runs();
            for plan in 0..self.plans.len() {
                let at = self.upto(self.o.faults_until_ns / 2);
                self.after(at, Ev::Submit { plan });
            }
            return;
        }
        for plan in 0..self.o.n_runs as usize {
            let workflow = self.o.n_layers_max > 0;
            let keep = workflow && self.chance(self.o.run_is_kept);
            let arrays = if workflow { self.make_workflow(plan) } else { self.make_bag(plan) };
            self.plans.push(Plan { keep, ..Plan::new(plan, arrays) });
            let at = self.upto(self.o.faults_until_ns / 2);
            self.after(at, Ev::Submit { plan });
        }
        if self.o.n_additions_max > 0 {
            self.plan_additions();
        }
    }

    fn plan_linked_runs(&mut self) {
        self.plans = (0..self.o.n_runs as usize).map(|plan| Plan::new(plan, vec![])).collect();
        (0..self.plans.len()).for_each(|whole| self.plan_run(whole));
        for (plan, p) in self.plans.iter().enumerate().filter(|(_, p)| p.kind == Kind::Good) {
            for task in p.arrays.iter().map(|array| array.expand(0)).filter(|task| !task.promises.is_empty())
            {
                self.additions.promises.insert(task.id.clone(), (plan, task.promises.clone()));
            }
        }
    }

    /// Makes a run, and the additions to it.
    fn plan_run(&mut self, whole: usize) {
        let mut arrays = self.make_linked(whole);
        let mut rng = Rng::new(self.o.seed ^ (whole as u64) << 32 ^ 0x7061_7274);
        let mut later = vec![];
        if self.o.n_additions_max > 0 {
            let n_later = (3 * self.o.n_additions_max as usize).min(arrays.len() * 2 / 3);
            let rest = arrays.split_off(arrays.len() - n_later);
            later = with_additions(&mut rng, &mut arrays, rest);
        }
        for block in 0..self.o.n_blocks {
            arrays.extend(make_block(&mut rng, &format!("p{whole}b{block}")));
        }
        if self.o.n_additions_max > 0 && rng.below(3) > 0 {
            // This task runs until all additions are decided, so that no addition comes too late.
            let hold = build::task(&format!("p{whole}hold"));
            self.additions.holds.insert(hold.id.clone(), whole);
            arrays.push(hold.array());
        }
        let bad = if self.o.n_additions_max > 0 { bad_additions(&mut rng, whole, &arrays) } else { vec![] };
        self.plans[whole].arrays = arrays;
        let first = self.plans.len();
        for arrays in later {
            let (reads, makes) = files_of(&arrays);
            let is_before = |other: &usize| {
                let (theirs, made) = files_of(&self.plans[*other].arrays);
                !(makes.is_disjoint(&theirs) && makes.is_disjoint(&made) && reads.is_disjoint(&made))
            };
            let after = (first..self.plans.len()).filter(is_before).collect();
            let plan = self.plans.len();
            self.plans.push(Plan { into: Some(whole), after, ..Plan::new(plan, arrays) });
            if rng.below(4) == 0 {
                // A client repeats the submission, or submits something else with its token.
                let (kind, digest_of) =
                    if rng.below(2) == 0 { (Kind::Again, plan) } else { (Kind::OtherTasks, usize::MAX) };
                let again = Plan::new(plan, self.plans[plan].arrays.clone());
                let after = vec![plan];
                self.plans.push(Plan { into: Some(whole), kind, digest_of, after, ..again });
            }
        }
        for (kind, arrays) in bad {
            let plan = self.plans.len();
            self.plans.push(Plan { into: Some(whole), kind, ..Plan::new(plan, arrays) });
        }
    }

    /// Whether the program of a task may end: a program that is to add tasks must have added them.
    pub(super) fn may_end(&self, task: &str) -> bool {
        if let Some(whole) = self.additions.holds.get(task) {
            return self.plans.iter().all(|p| p.into != Some(*whole) || p.is_decided());
        }
        let Some((plan, promises)) = self.additions.promises.get(task) else { return true };
        let whole = self.plans[*plan].into.unwrap_or(*plan);
        let is_later = |(i, p): &(usize, &Plan)| i > plan && p.into == Some(whole) && p.is_added();
        let made: BTreeSet<String> =
            self.plans.iter().enumerate().filter(is_later).flat_map(|(_, p)| files_of(&p.arrays).1).collect();
        promises.iter().all(|promise| made.contains(promise))
    }
}

/// One task writes many files; each is read by another task together with one common file; one task gathers
/// their outputs. In half of the blocks, hints say which of these should be collectives.
fn make_block(rng: &mut Rng, name: &str) -> Vec<Arc<TaskArray>> {
    let n = 8 + rng.below(8);
    let hints = match rng.below(2) {
        0 => Hints::default(),
        _ => Hints { multicast: Hint::Always, scatter: Hint::Always, gather: GatherHint::Always },
    };
    let file = |kind: &str, i: u64| run_file(format_args!("{name}/{kind}{i}"));
    let mut split = build::task(&format!("{name}split")).label(&format!("{name}split"));
    let mut merge = build::task(&format!("{name}merge")).label(&format!("{name}merge")).hints(hints);
    let query = build::task(&format!("{name}query")).writes(&file("query", 0));
    let mut tasks = vec![];
    for i in 0..n {
        split = split.writes(&file("part", i));
        merge = merge.reads(&file("found", i));
        // Some readers get a stage of their own.
        let label = format!("{name}{}", if rng.below(4) == 0 { "scan" } else { "search" });
        let reader = build::task(&format!("{name}read{i}")).label(&label).hints(hints);
        tasks.push(reader.reads(&file("part", i)).reads(&file("query", 0)).writes(&file("found", i)));
    }
    // Makers come before readers.
    let tasks = [query, split].into_iter().chain(tasks).chain([merge.writes(&format!("out/{name}"))]);
    tasks.map(|task| task.array()).collect()
}

/// Cuts `rest` into additions, one after the other. Some of the added tasks are promised, to readers that are
/// in the run from the beginning.
fn with_additions(
    rng: &mut Rng,
    first: &mut Vec<Arc<TaskArray>>,
    rest: Vec<Arc<TaskArray>>,
) -> Vec<Vec<Arc<TaskArray>>> {
    let mut later: Vec<Vec<Arc<TaskArray>>> = vec![];
    let mut is_open = false;
    for array in rest {
        let spec = array.expand(0);
        let outputs = spec.outputs.iter().map(|(_, l)| l.clone());
        let stays: Vec<String> = outputs.filter(|l| Location::of(l).stays()).collect();
        // It is not known whether its other inputs still exist.
        let can_be_promised = !stays.is_empty() && spec.inputs.iter().all(|(_, l)| l.starts_with("in/"));
        if can_be_promised && rng.below(3) > 0 {
            let promises =
                |id: String| stays.iter().fold(build::task(&id), |task, location| task.promises(location));
            first.push(promises(format!("plan-{}", spec.id)).array());
            for r in 0..1 + rng.below(4) {
                let location = match rng.below(3) {
                    0 => run_file(format_args!("{}-{r}", spec.id)),
                    _ => format!("out/{}-{r}", spec.id),
                };
                let reader = build::task(&format!("reader-{}-{r}", spec.id)).writes(&location);
                let reader = reader.reads(&stays[rng.below(stays.len() as u64) as usize]);
                first.push(reader.array());
            }
            if rng.below(2) == 0 {
                later.push(vec![promises(format!("again-{}", spec.id)).array()]);
            }
            later.push(vec![array]);
            is_open = false;
        } else if let Some(last) = later.last_mut().filter(|last| is_open && last.len() < 4) {
            last.push(array);
        } else {
            later.push(vec![array]);
            is_open = rng.below(4) > 0;
        }
    }
    later
}

/// Additions that a run with these tasks must refuse.
fn bad_additions(rng: &mut Rng, whole: usize, arrays: &[Arc<TaskArray>]) -> Vec<(Kind, Vec<Arc<TaskArray>>)> {
    let tasks: Vec<TaskSpec> = arrays.iter().map(|array| array.expand(0)).collect();
    let written: Vec<&String> = tasks.iter().flat_map(|task| &task.outputs).map(|(_, l)| l).collect();
    let mut bad = vec![];
    let fine = || build::task(&format!("p{whole}fine")).reads("in/1").writes(&format!("out/p{whole}fine"));
    let mut add = |kind, task: build::Task| {
        bad.push((kind, vec![fine().array(), task.array()]));
    };
    if !written.is_empty() && rng.below(2) == 0 {
        let location = written[rng.below(written.len() as u64) as usize];
        add(Kind::Clash, build::task(&format!("p{whole}second")).writes(location));
    }
    if rng.below(2) == 0 {
        let location = run_file(format_args!("p{whole}nobody"));
        add(Kind::Vain, build::task(&format!("p{whole}vain")).reads(&location));
    }
    // The addition writes a promised file, and reads what is made from that file.
    let promised: BTreeSet<&String> = tasks.iter().flat_map(|task| &task.promises).collect();
    let waits = |task: &&TaskSpec| task.inputs.iter().any(|(_, l)| promised.contains(l));
    let made_of = |task: &TaskSpec| Some((task.inputs[0].1.clone(), task.outputs.first()?.1.clone()));
    let mut circles = tasks.iter().filter(waits).filter_map(made_of);
    if let Some((promise, made)) = circles.find(|(_, made)| Location::of(made).stays()) {
        add(Kind::Circle, build::task(&format!("p{whole}circle")).reads(&made).writes(&promise));
    }
    bad
}
