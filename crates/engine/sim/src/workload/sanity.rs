//! Checks whether a workload can end, made while it is submitted. A failed check gives one sentence.
//!
//! A [`Watch`] sees each submission before the dispatcher does. A submission whose files all have one size
//! is checked by its template, whatever its number of tasks; other submissions are checked task by task.
//!
//! Not here: circles of tasks and files without makers, which need the whole workload (`links.rs`, where
//! the workload is read).

use super::{ArrivingTasks, Compute, Error, SECOND_NS, Sizes, Workload};
use eyas_terms::array::TaskArray;
use eyas_terms::needs::{Equipment, in_parts};
use eyas_terms::{Location, Timestamp};
use eyas_text::{shown, size_beside};

/// The longest simulated time: 100 years.
pub const END_S_MAX: u64 = 100 * 365 * 86_400;

pub fn too_long(n_tasks: u64) -> Error {
    Error::never_ends(format!(
        "its {n_tasks} tasks do not arrive within the 100 years that are simulated at most"
    ))
}

/// The largest resources that any node of a machine has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Largest {
    pub slots: u32,
    pub memory_bytes: u64,
    /// 0: nothing is cached, so no file is too large. A file at home that does not fit into a cache is read
    /// past it.
    pub cache_bytes: u64,
    /// Gpus, and named resources of a node or of the whole cluster.
    pub equipment: Equipment,
}

/// Checks a workload while it is submitted.
pub struct Watch {
    largest: Largest,
    /// The number of tasks that the workload announced.
    n_tasks: u64,
    n_seen: u64,
    last: Timestamp,
}

impl Watch {
    /// Refuses a workload without tasks.
    pub fn new(workload: &Workload, largest: Largest) -> Result<Watch, Error> {
        if workload.n_tasks == 0 {
            return Err(Error::config(format!("workload {} has no tasks", shown(&workload.name))));
        }
        Ok(Watch { largest, n_tasks: workload.n_tasks, n_seen: 0, last: Timestamp(0) })
    }

    /// Checks the next submission. `Err`: the submission could never be done.
    pub fn check(&mut self, next: &ArrivingTasks, sizes: &Sizes) -> Result<(), Error> {
        let array = &next.array;
        if let Err(why) = array.check() {
            return Err(Error::config(format!("a submission is broken: {why}")));
        }
        if let Compute::Each(all) = &next.compute
            && all.len() != array.n_tasks as usize
        {
            let (n, n_tasks) = (all.len(), array.n_tasks);
            return Err(Error::config(format!("a submission has {n} compute times for {n_tasks} tasks")));
        }
        if next.at < self.last {
            return Err(Error::config("its submissions are not in order of time"));
        }
        self.last = next.at;
        self.n_seen += u64::from(array.n_tasks);
        if self.n_seen > self.n_tasks {
            return Err(Error::never_ends(format!(
                "it was said to have {} tasks and more of them keep coming",
                self.n_tasks
            )));
        }
        if next.at.0 > END_S_MAX * SECOND_NS {
            return Err(too_long(self.n_tasks));
        }
        self.check_room(array)?;
        match sizes {
            Sizes::Same(_) if array.n_tasks == 0 => Ok(()),
            Sizes::Same(_) => self.check_task(next, 0, sizes),
            Sizes::Each(_) => (0..array.n_tasks).try_for_each(|i| self.check_task(next, i, sizes)),
        }
    }

    /// Checks, when there are no more submissions, that all tasks came.
    pub fn finish(&self) -> Result<(), Error> {
        match self.n_seen == self.n_tasks {
            true => Ok(()),
            false => Err(Error::config(format!(
                "it was said to have {} tasks and submitted {}",
                self.n_tasks, self.n_seen
            ))),
        }
    }

    fn check_room(&self, array: &TaskArray) -> Result<(), Error> {
        let (template, most) = (&array.template, &self.largest);
        if let Some(needs) = array.needs.as_deref().filter(|needs| !most.equipment.holds(needs)) {
            let missing = needs.resources.iter().find(|(name, n)| most.equipment.amount(name) < **n);
            let what = match missing {
                Some((name, n)) => {
                    format!("{n} of {}, and there are {}", shown(name), most.equipment.amount(name))
                }
                None => format!(
                    "{} gpus, and a node has {}",
                    in_parts(needs.gpu_parts.into()),
                    most.equipment.gpus
                ),
            };
            let id = array.fill(&template.id, 0);
            return Err(Error::never_ends(format!("task {} needs {what}", shown(&id))));
        }
        let memory = template.memory_bytes.unwrap_or(0);
        let (needs, has) = match (template.cpus > most.slots, memory > most.memory_bytes) {
            (false, false) => return Ok(()),
            (true, _) => (format!("{} slots", template.cpus), most.slots.to_string()),
            (false, true) => {
                let (asked, offered) = (memory, most.memory_bytes);
                (format!("{} of memory", size_beside(asked, offered)), size_beside(offered, asked))
            }
        };
        let id = array.fill(&template.id, 0);
        Err(Error::never_ends(format!(
            "task {id} needs {needs}, and the largest node has {has}",
            id = shown(&id)
        )))
    }

    fn check_task(&self, next: &ArrivingTasks, i: u32, sizes: &Sizes) -> Result<(), Error> {
        let array = &next.array;
        let id = || array.fill(&array.template.id, i);
        for (_, pattern) in &array.template.inputs {
            let location = array.fill(pattern, i);
            let Some(bytes) = sizes.of(&location) else {
                return Err(Error::never_ends(format!(
                    "the size of {location}, which task {} reads, is not known",
                    shown(&id()),
                    location = shown(&location)
                )));
            };
            self.check_cache(&location, bytes, &id)?;
        }
        for (_, pattern) in &array.template.outputs {
            let location = array.fill(pattern, i);
            self.check_cache(&location, sizes.of(&location).unwrap_or(0), &id)?;
        }
        let limit = array.template.walltime_ns.unwrap_or(END_S_MAX * SECOND_NS);
        let compute_ns = next.compute.of(i);
        if compute_ns > limit {
            return Err(Error::never_ends(format!(
                "task {} computes for {} s and is ended after {} s",
                shown(&id()),
                compute_ns / SECOND_NS,
                limit / SECOND_NS
            )));
        }
        Ok(())
    }

    /// Checks that a file which stays on nodes fits into a cache there.
    fn check_cache(&self, location: &str, bytes: u64, task: &dyn Fn() -> String) -> Result<(), Error> {
        let cache_bytes = self.largest.cache_bytes;
        if cache_bytes == 0 || bytes <= cache_bytes || !Location::of(location).stays() {
            return Ok(());
        }
        Err(Error::never_ends(format!(
            "{} of task {} stays on the nodes and has {bytes} bytes, and the largest cache {cache_bytes}",
            shown(location),
            shown(&task())
        ))
        .hint("give the nodes larger caches"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::all_pairs;
    use eyas_terms::array::Pattern;
    use rustc_hash::FxHashMap;
    use std::sync::Arc;

    const LARGEST: Largest = Largest {
        slots: 2,
        memory_bytes: 1 << 30,
        cache_bytes: 1000,
        equipment: Equipment { gpus: 0, resources: std::collections::BTreeMap::new() },
    };

    fn workload() -> Workload {
        let config = all_pairs::AllPairsConfig { n: 2, item_bytes: 1000, compute_ns: 1 };
        all_pairs::all_pairs(config).unwrap()
    }

    fn watch(workload: Workload, change: impl Fn(&mut ArrivingTasks)) -> Result<(), String> {
        let mut watch = Watch::new(&workload, LARGEST).map_err(|e| e.to_string())?;
        for mut submission in workload.submissions {
            change(&mut submission);
            watch.check(&submission, &workload.sizes).map_err(|e| e.to_string())?;
        }
        watch.finish().map_err(|e| e.to_string())
    }

    #[test]
    fn a_sound_workload_passes() {
        assert_eq!(watch(workload(), |_| {}), Ok(()));
        // Home has these files, so they are read past the cache.
        let mut large = workload();
        large.sizes = Sizes::Same(1001);
        assert_eq!(watch(large, |_| {}), Ok(()));
    }

    #[test]
    fn each_reason_not_to_end_has_its_sentence() {
        let check = |result: Result<(), String>, expect: &str| {
            let error = result.unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        let with = |change: fn(&mut Workload)| {
            let mut workload = workload();
            change(&mut workload);
            watch(workload, |_| {})
        };
        check(with(|w| w.n_tasks = 0), "has no tasks");
        check(with(|w| w.n_tasks = 3), "more of them keep coming");
        check(with(|w| w.n_tasks = 5), "said to have 5 tasks and submitted 4");
        let stay = |s: &mut ArrivingTasks| {
            let template = &mut Arc::make_mut(&mut s.array).template;
            template.outputs = vec![(Pattern::literal("x"), Pattern::literal("run:x"))];
        };
        let mut large = workload();
        large.sizes = Sizes::Same(1001);
        check(watch(large, stay), "has 1001 bytes, and the largest cache 1000");
        check(
            with(|w| w.sizes = Sizes::Each(FxHashMap::default())),
            "`a0`, which task `0-0` reads, is not known",
        );
        check(watch(workload(), |s| s.compute = Compute::Same(u64::MAX)), "computes for 18446744073 s");
        check(watch(workload(), |s| s.compute = Compute::Each(vec![1])), "1 compute times for 2 tasks");
        check(watch(workload(), |s| Arc::make_mut(&mut s.array).template.cpus = 3), "needs 3 slots");
        check(watch(workload(), |s| s.at = Timestamp(u64::MAX)), "100 years");
    }
}
