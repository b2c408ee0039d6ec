//! The reads from home that are under way.

use super::home::{HomeLoad, Landed, Mark, Reads};
use super::seated::SeatedExecutor;
use crate::executor_set::Seat;
use eyas_terms::{ObjectId, TaskId, Timestamp};
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(super) struct HomeReads {
    /// Objects that some executor is reading from home into its cache, so that others may wait for them.
    pub arriving: FxHashMap<ObjectId, Arriving>,
    /// All reads, past the caches or into them.
    pub n: u32,
    /// Executors that read from home.
    pub n_readers: u32,
    /// Reads past the caches, by the task that reads.
    pub direct: FxHashMap<TaskId, Vec<Direct>>,
    pub n_direct: u32,
    /// The rate of home for reads into a cache (through the disk), and for reads past it.
    pub load: HomeLoad,
    pub direct_load: HomeLoad,
    /// Reads that have ended since the last decision. They are evaluated at the next decision, which knows the time.
    pub landed: Vec<Landed>,
}

/// A read from home for one attempt only.
pub(super) struct Direct {
    pub seat: Seat,
    pub object: ObjectId,
    pub mark: Mark,
    /// A replica is on the executor, so the task counted as one without inputs to move.
    pub is_hit: bool,
}

pub(super) struct Arriving {
    pub n: u32,
    /// Number of all reads from home that were under way when this read began, itself included.
    pub n_reads: u32,
    pub since: Timestamp,
    /// The last report: its time, the bytes that had come, and their rate in bytes per second.
    pub progress: Option<(Timestamp, u64, f64)>,
}

impl HomeReads {
    /// The reads that are under way now.
    pub fn all(&self) -> Reads {
        Reads { n: f64::from(self.n), n_nodes: f64::from(self.n_readers) }
    }

    /// The same with one more read by `seated`.
    pub fn one_more(&self, seated: &SeatedExecutor) -> Reads {
        let Reads { n, n_nodes } = self.all();
        Reads { n: n + 1.0, n_nodes: n_nodes + f64::from(u8::from(seated.home_reads.is_empty())) }
    }

    /// `seated` begins to read `object`.
    pub fn begin(&mut self, now: Timestamp, seated: &mut SeatedExecutor, object: ObjectId) -> Mark {
        seated.home_reads.push(object);
        let n_node = seated.home_reads.len() as u32;
        self.n += 1;
        self.n_readers += u32::from(n_node == 1);
        self.load.begin(now, n_node)
    }

    /// One read of `object` by `seated` has come to its end there.
    pub fn end_at(&mut self, seated: &mut SeatedExecutor, object: ObjectId) {
        let reads = &mut seated.home_reads;
        let at = reads.iter().position(|o| *o == object).expect("it was begun");
        reads.swap_remove(at);
        self.n_readers -= u32::from(reads.is_empty());
    }

    /// A read that began with `mark` is under way no more.
    pub fn end(&mut self, mark: Mark) {
        self.n -= 1;
        self.load.end(mark);
    }

    /// A read of `object` for the task is under way past the cache.
    pub fn begin_direct(&mut self, task: TaskId, read: Direct) {
        self.n_direct += 1;
        self.direct.entry(task).or_default().push(read);
    }

    /// A read of a task past the cache is under way no more.
    pub fn end_direct(&mut self, mark: Mark) {
        self.n_direct -= 1;
        self.end(mark);
    }

    /// `object` is on its way to one more cache, by a read that has begun.
    pub fn begin_arriving(&mut self, now: Timestamp, object: ObjectId) {
        let arriving = Arriving { n: 0, since: now, n_reads: self.n, progress: None };
        self.arriving.entry(object).or_insert(arriving).n += 1;
    }

    /// `object` is on its way to one cache less.
    pub fn end_arriving(&mut self, object: ObjectId) {
        if let Some(arriving) = self.arriving.get_mut(&object) {
            arriving.n -= 1;
            if arriving.n == 0 {
                self.arriving.remove(&object);
            }
        }
    }

    /// The executor with these reads has left: gives the tasks that read past the cache there.
    pub fn left(&mut self, seat: Seat, seated: &SeatedExecutor) -> Vec<TaskId> {
        self.n_readers -= u32::from(!seated.home_reads.is_empty());
        let mut tasks = vec![];
        let (n, n_direct, load) = (&mut self.n, &mut self.n_direct, &mut self.load);
        self.direct.retain(|task, reads| {
            let leaves = reads.first().is_some_and(|read| read.seat == seat);
            if leaves {
                tasks.push(*task);
                *n -= reads.len() as u32;
                *n_direct -= reads.len() as u32;
                reads.iter().for_each(|read| load.end(read.mark));
            }
            !leaves
        });
        tasks
    }
}
