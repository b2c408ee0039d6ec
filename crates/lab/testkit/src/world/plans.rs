//! The submissions: runs, workflows and additions to them, and the clients that make them.

use super::*;

impl World {
    pub(super) fn make_run(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        let n_tasks = 1 + self.rng.below(self.o.n_tasks_max);
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for i in 0..n_tasks {
            let mut task = build::task(&format!("p{plan}t{i}"));
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
    pub(super) fn make_workflow(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
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
    pub(super) fn plan_additions(&mut self) {
        let mut rng = Rng::new(self.o.seed ^ 0x0061_6464_6974_696f);
        for whole in 0..self.plans.len() {
            let outputs = self.plans[whole].arrays.iter().flat_map(|a| a.expand(0).outputs);
            let files: Vec<String> = outputs.map(|o| o.1).filter(|l| Location::of(l).stays()).collect();
            for n in 0..rng.below(self.o.n_additions_max + 1) {
                let is_bad = rng.below(8) == 0 && !files.is_empty();
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
                    tasks.push(match rng.below(2) {
                        0 => build::task("second").writes(file),
                        _ => build::task("vain").reads(&run_file("nobody")),
                    });
                }
                let plan = self.plans.len();
                self.plans.push(Plan {
                    arrays: tasks.iter().map(build::Task::array).collect(),
                    keep: false,
                    state: PlanState::Waits,
                    into: Some(whole),
                    is_bad,
                });
                self.after(rng.below(self.o.faults_until_ns), Ev::Submit { plan });
            }
        }
    }

    pub(super) fn submit(&mut self, plan: usize) {
        if self.plans[plan].state != PlanState::Waits || self.process.is_none() {
            return;
        }
        if let Some(whole) = self.plans[plan].into {
            return self.open_addition(plan, whole);
        }
        let keep = self.plans[plan].keep;
        let arrays = self.plans[plan].arrays.clone();
        let mut run = Err(String::new());
        let users = self.o.users;
        self.with_process(|process, now| {
            run = match users {
                true => {
                    process.meet_strangers(now);
                    process.submit_as(now, plan as u64, &arrays, keep)
                }
                false => process.submit(now, &arrays, keep),
            }
        });
        self.plans[plan].state = match run {
            Ok(run) => {
                self.run_since.insert(run, self.now);
                PlanState::Submitted(run)
            }
            // A client that is refused because the journal is full tries again later.
            Err(why) if why.contains(NO_SPACE) => return self.after(S, Ev::Submit { plan }),
            Err(why) if why.contains("fits no node") && self.may_fit_no_node() => PlanState::Refused,
            Err(why) => panic!("promise 4: a submission is refused that clashes with nothing: {why}"),
        };
    }

    /// Whether some tasks of this world may be larger than every node that is there or may come.
    fn may_fit_no_node(&self) -> bool {
        self.o.task_is_wide + self.o.task_has_memory > 0 || self.o.resources
    }

    pub(super) fn open_addition(&mut self, plan: usize, whole: usize) {
        let whole = match self.plans[whole].state {
            PlanState::Accepted(run) => run,
            PlanState::Refused => {
                self.plans[plan].state = PlanState::Refused;
                return;
            }
            // Later; when the faults are over, every tick tries again.
            _ => return,
        };
        let arrays = self.plans[plan].arrays.clone();
        let mut opened = Err(String::new());
        let token = format!("plan {plan}");
        self.with_process(|process, now| opened = process.open_addition(now, whole, &token, &arrays));
        match opened {
            Ok(run) => {
                self.plans[plan].state = PlanState::Opened(run);
                let goes_away = self.fault(200);
                let takes = self.lasts(3 * S);
                self.after(takes, Ev::Complete { plan, run, goes_away });
            }
            Err(why) if why.contains(NO_SPACE) => self.after(S, Ev::Submit { plan }),
            Err(why) => self.refused(plan, &why),
        }
    }

    pub(super) fn complete(&mut self, plan: usize, run: RunId, goes_away: bool) {
        if self.plans[plan].state != PlanState::Opened(run) || self.process.is_none() {
            return;
        }
        if goes_away {
            self.with_process(|process, now| process.client_gone(now, run));
            self.plans[plan].state = PlanState::Waits;
            let wait = self.lasts(5 * S);
            return self.after(wait, Ev::Submit { plan });
        }
        let mut done = Ok(());
        self.with_process(|process, now| done = process.commit(now, run));
        match done {
            Ok(()) => {
                assert!(!self.plans[plan].is_bad, "tasks are added that clash with the run's");
                self.plans[plan].state = PlanState::Submitted(run);
            }
            Err(why) => self.refused(plan, &why),
        }
    }

    /// Tasks cannot be added to a run, because it is over, a file that they read is gone, or they clash with
    /// other tasks.
    pub(super) fn refused(&mut self, plan: usize, why: &str) {
        let late = ["has ended", "was cancelled", "was dropped", "was forgotten"];
        let is_late = late.iter().any(|part| why.contains(part));
        assert!(is_late || self.plans[plan].is_bad, "tasks are not added: {why}");
        self.plans[plan].state = PlanState::Refused;
    }
}
