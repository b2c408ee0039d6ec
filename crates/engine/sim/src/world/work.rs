//! What is submitted, and how large and how long everything in it is.

use crate::machine::Machine;
use crate::outcome::Recorder;
use crate::workload::sanity::{Largest, Watch};
use crate::workload::{ArrivingTasks, Compute, Sizes, Workload};
use eyas_core::dispatcher::Dispatcher;
use eyas_core::placement;
use eyas_terms::array::TaskArray;
use eyas_terms::location::MadeLocation;
use eyas_terms::{HomeVersion, ObjectId, TaskId, Timestamp};
use std::sync::Arc;

/// Tasks that were submitted together, as one array.
pub(super) struct Batch {
    /// The number of the first task. A run's tasks are numbered in the order in which they come.
    first: u64,
    pub at: Timestamp,
    pub array: Arc<TaskArray>,
    compute: Compute,
}

/// See the module.
pub(super) struct ArrivingWork {
    submissions: std::iter::Peekable<Box<dyn Iterator<Item = ArrivingTasks>>>,
    watch: Watch,
    batches: Vec<Batch>,
    n_tasks: u64,
    sizes: Sizes,
    /// The size of each object, by its number in the catalog.
    size_of: Vec<Option<u64>>,
    /// The stamp of all versions at home: files do not change here.
    stamp: Arc<str>,
}

impl ArrivingWork {
    pub fn new(
        workload: Workload,
        machine: &Machine,
        scheduling: &super::Scheduling,
    ) -> Result<ArrivingWork, String> {
        let dispatcher = &scheduling.dispatcher;
        let caches = placement::by_name(&dispatcher.placement, &dispatcher.placement_config)?.uses_caches();
        let mut equipment = machine.equipment.clone();
        equipment.resources.extend(dispatcher.resources.clone());
        let largest = Largest {
            slots: machine.slots_per_node,
            memory_bytes: super::NODE_MEMORY_BYTES,
            cache_bytes: if caches { machine.cache_bytes_per_node } else { 0 },
            equipment,
        };
        Ok(ArrivingWork {
            watch: Watch::new(&workload, largest).map_err(|e| e.to_string())?,
            submissions: workload.submissions.peekable(),
            batches: vec![],
            n_tasks: 0,
            sizes: workload.sizes,
            size_of: vec![],
            stamp: "simulated".into(),
        })
    }

    /// When the next tasks come, if any do.
    pub fn next_at(&mut self) -> Option<Timestamp> {
        self.submissions.peek().map(|next| next.at)
    }

    pub fn has_begun(&self) -> bool {
        !self.batches.is_empty()
    }

    /// How many tasks have come.
    pub fn n_tasks(&self) -> u64 {
        self.n_tasks
    }

    /// Takes the next tasks, which have come.
    pub fn take_next(&mut self, recorder: &mut Recorder) -> Result<Arc<TaskArray>, String> {
        let next = self.submissions.next().expect("the caller has seen it");
        self.watch.check(&next, &self.sizes).map_err(|e| e.to_string())?;
        let ArrivingTasks { at, array, compute } = next;
        recorder.arrived(at, u64::from(array.n_tasks));
        self.batches.push(Batch { first: self.n_tasks, at, array: array.clone(), compute });
        self.n_tasks += u64::from(array.n_tasks);
        Ok(array)
    }

    /// All tasks have come.
    pub fn finish(&self) -> Result<(), String> {
        self.watch.finish().map_err(|e| e.to_string())
    }

    fn locate(&self, task: TaskId) -> (&Batch, u32) {
        let after = self.batches.partition_point(|batch| batch.first <= task.0);
        let batch = &self.batches[after - 1];
        (batch, (task.0 - batch.first) as u32)
    }

    /// The tasks that came with this one.
    pub fn batch_of(&self, task: TaskId) -> &Batch {
        self.locate(task).0
    }

    pub fn compute_ns(&self, task: TaskId) -> u64 {
        let (batch, i) = self.locate(task);
        batch.compute.of(i)
    }

    /// How large each file is that the task writes, in the task's order.
    pub fn output_sizes(&self, task: TaskId) -> impl Iterator<Item = u64> {
        let (batch, i) = self.locate(task);
        let outputs = batch.array.template.outputs.iter();
        outputs.map(move |(_, pattern)| self.sizes.of(&batch.array.fill(pattern, i)).unwrap_or(0))
    }

    /// `None`: home has no such file, and no task makes it.
    pub fn size_of(&mut self, core: &Dispatcher, object: ObjectId) -> Option<u64> {
        let i = object.0 as usize;
        while self.size_of.len() <= i {
            let next = ObjectId(self.size_of.len() as u32);
            self.size_of.push(self.sizes.of(&core.work().location(next).written().text()));
        }
        self.size_of[i]
    }

    /// The size of the packed file that nodes make `object` of; `None`: they do not make it.
    pub fn packed_bytes(&self, core: &Dispatcher, object: ObjectId) -> Option<u64> {
        let location = core.work().location(object).written();
        self.sizes.of(MadeLocation::of(&location.text())?.packed)
    }

    /// The version that home gives for a file of `size_bytes`.
    pub fn version_of(&self, size_bytes: u64) -> HomeVersion {
        HomeVersion { size_bytes, stamp: self.stamp.clone() }
    }
}
