//! Dataflow patterns, found while tasks become known.
//!
//! In: what each task writes and reads, as [`ObjectId`]s, one task at a time and in any order; hints. Out: which
//! pattern a file or a pair of stages has, with the counts that say so ([`Evidence`]).
//!
//! The rules, after `Zhang12` §II-A, §V-F and §V-G, in which "threshold" has no number:
//!
//! | pattern | rule | |
//! |---|---|---|
//! | multicast | at least [`MULTICAST_READERS_MIN`] tasks of one stage read the file | §V-F.1 |
//! | gather | a task reads at least [`GATHER_INPUTS_MIN`] files that one stage wrote | §V-G |
//! | reduce | a gather, and the user says that its program may be applied to any part | §II-A, §V-G |
//! | scatter | a task writes at least [`SCATTER_OUTPUTS_MIN`] files, the reading stage reads so many per writer, and no file is multicast | §V-G |
//! | pipeline | each file has one reader in the stage, and each reader one file of it | §V-G: "by default" |
//!
//! A pair of stages may have several. Files with the same readers are a *file group* and count as one (§V-F.4): consumption
//! is counted in tasks, of which each reads its group once ([`Patterns::consumption`]), and who sends one of a group on
//! sends all of it to the same nodes ([`Patterns::readers_key`]).
//!
//! Deviations: files read straight from home make no gather, scatter or pipeline, because nothing of them is on the nodes
//! yet; scatter is judged from counts per stage, so a stage with one task that writes 100 files and another that writes
//! none of those read counts their average.
//!
//! Invariants: a step costs O(1) per edge (a task with n inputs sorts them), and memory is 16 bytes per object and a
//! record per pair of stages that share a file. No task is remembered.
//!
//! Not here: what is done about a pattern ([`crate::collective`]), and names of files ([`crate::catalog`]).

mod evidence;
mod stage;

pub use evidence::{Evidence, PatternKind};
pub use stage::{is_one_stage, stage_name, stage_of_task};

use crate::types::{ObjectId, RunId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tasks of one stage that read a file, from which it is multicast. With fewer, ordinary copies from peer to peer have
/// made the second replica before a plan would have.
pub const MULTICAST_READERS_MIN: u32 = 4;
/// Files of one stage that a task reads, from which it gathers: below, fetching each is a few round trips.
pub const GATHER_INPUTS_MIN: u32 = 8;
/// Files that a task writes for others, from which it scatters.
pub const SCATTER_OUTPUTS_MIN: u32 = 8;
/// An odd number near 2³² ÷ the golden ratio, which spreads the bits of small numbers.
const HASH_FACTOR: u32 = 0x9E37_79B1;

/// A stage of one run. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(transparent)]
pub struct StageId(pub u32);

/// What the user wants of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Force,
    Forbid,
}

/// What a hint speaks of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The stage of that name, which reads.
    Stage(String),
    Object(ObjectId),
}

/// Thresholds, see the module's table.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PatternConfig {
    pub multicast_readers_min: u32,
    pub gather_inputs_min: u32,
    pub scatter_outputs_min: u32,
}

impl Default for PatternConfig {
    fn default() -> Self {
        PatternConfig {
            multicast_readers_min: MULTICAST_READERS_MIN,
            gather_inputs_min: GATHER_INPUTS_MIN,
            scatter_outputs_min: SCATTER_OUTPUTS_MIN,
        }
    }
}

/// How much of a stage reads one file, and with it the group that the file belongs to (§V-F.2, .4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumption {
    /// Tasks of the stage that read it.
    pub n_readers: u32,
    /// All tasks of the stage that read anything.
    pub n_tasks: u64,
}

impl Consumption {
    /// In [0, 1].
    pub fn share(self) -> f64 {
        if self.n_tasks == 0 { 0.0 } else { f64::from(self.n_readers) / self.n_tasks as f64 }
    }
}

/// Equal for files that the same tasks read, as far as the first stage that reads them goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadersKey {
    reader: StageRef,
    n_readers: u32,
    hash: u32,
}

struct Stage {
    run: RunId,
    name: String,
    /// Tasks that write, and the most files that one of them writes.
    n_writers: u64,
    outputs_max: u32,
    /// Tasks that read.
    n_readers: u64,
}

/// A stage number plus one, 0 for none: half the size of an `Option`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct StageRef(u32);

impl StageRef {
    fn of(stage: StageId) -> StageRef {
        StageRef(stage.0 + 1)
    }
    fn get(self) -> Option<StageId> {
        self.0.checked_sub(1).map(StageId)
    }
}

#[derive(Clone, Copy, Default)]
struct File {
    maker: StageRef,
    /// The first stage that reads it; others are in [`Patterns::more_readers`].
    reader: StageRef,
    n_readers: u32,
    /// Of the tasks of that stage which read it, in their order.
    readers_hash: u32,
}

/// What one stage reads of another.
#[derive(Clone, Copy, Default)]
struct Flow {
    n_edges: u64,
    n_files: u64,
    n_tasks: u64,
    fan_in_max: u32,
    readers_max: u32,
    /// Patterns that were reported, a bit each.
    told: u8,
}

/// See the module.
#[derive(Default)]
pub struct Patterns {
    config: PatternConfig,
    stages: Vec<Option<Stage>>,
    by_name: FxHashMap<(RunId, String), StageId>,
    /// By object.
    files: Vec<File>,
    more_readers: BTreeMap<(ObjectId, StageId), u32>,
    /// By maker (none: home) and reader.
    flows: BTreeMap<(StageRef, StageId), Flow>,
    /// Tasks that read something, so far.
    n_readers: u64,
    wishes: BTreeMap<(RunId, Scope, PatternKind), Wish>,
    /// Kept for its memory.
    scratch: Vec<(StageRef, ObjectId)>,
}

impl Patterns {
    pub fn new(config: PatternConfig) -> Patterns {
        Patterns { config, ..Patterns::default() }
    }

    /// The stage of a run by its name, see [`stage_name`].
    pub fn stage(&mut self, run: RunId, name: &str) -> StageId {
        // Looked up twice only when it is new.
        let key = (run, name.to_owned());
        if let Some(&stage) = self.by_name.get(&key) {
            return stage;
        }
        let stage = StageId(self.stages.len() as u32);
        self.stages.push(Some(Stage {
            run,
            name: name.to_owned(),
            n_writers: 0,
            outputs_max: 0,
            n_readers: 0,
        }));
        self.by_name.insert(key, stage);
        stage
    }

    pub fn name_of(&self, stage: StageId) -> Option<&str> {
        self.find(stage).map(|s| s.name.as_str())
    }

    /// Forces or forbids a pattern; the last word counts.
    pub fn set_hint(&mut self, run: RunId, scope: Scope, pattern: PatternKind, wish: Wish) {
        self.wishes.insert((run, scope, pattern), wish);
    }

    /// A task of `stage` will write these. Best told before its readers.
    pub fn task_writes(&mut self, stage: StageId, outputs: &[ObjectId]) {
        if outputs.is_empty() {
            return;
        }
        let Some(s) = self.stages[stage.0 as usize].as_mut() else { return };
        s.n_writers += 1;
        s.outputs_max = s.outputs_max.max(outputs.len() as u32);
        for &object in outputs {
            let file = self.file_mut(object);
            if file.maker == StageRef::of(stage) {
                continue;
            }
            file.maker = StageRef::of(stage);
            // Told late: what was taken for a file from home is this stage's. How many of them one task reads is not
            // remembered, so such a task counts as a reader of one.
            for (reader, n) in self.readers_of(object) {
                let from_home = self.flows.entry((StageRef::default(), reader)).or_default();
                from_home.n_edges = from_home.n_edges.saturating_sub(u64::from(n));
                from_home.n_files = from_home.n_files.saturating_sub(1);
                let flow = self.flows.entry((StageRef::of(stage), reader)).or_default();
                flow.n_edges += u64::from(n);
                flow.n_tasks += u64::from(n);
                flow.n_files += 1;
                flow.fan_in_max = flow.fan_in_max.max(1);
                flow.readers_max = flow.readers_max.max(n);
            }
        }
    }

    /// A task of `stage` will read these. Adds to `found` each pattern between two stages that is seen for the first
    /// time, named after the file that showed it.
    pub fn task_reads(&mut self, stage: StageId, inputs: &[ObjectId], found: &mut Vec<Evidence>) {
        if inputs.is_empty() || self.find(stage).is_none() {
            return;
        }
        let mut edges = std::mem::take(&mut self.scratch);
        self.edges_of(inputs, &mut edges);
        self.n_readers += 1;
        for &(maker, object) in &edges {
            let n = self.count_reader(object, stage);
            let flow = self.flows.entry((maker, stage)).or_default();
            flow.n_edges += 1;
            flow.n_files += u64::from(n == 1);
            flow.readers_max = flow.readers_max.max(n);
            if flow.readers_max >= self.config.multicast_readers_min {
                self.tell(maker, stage, PatternKind::Multicast, Some(object), found);
            }
        }
        for same in edges.chunk_by(|a, b| a.0 == b.0) {
            let maker = same[0].0;
            let flow = self.flows.get_mut(&(maker, stage)).expect("its edges were just counted");
            flow.n_tasks += 1;
            flow.fan_in_max = flow.fan_in_max.max(same.len() as u32);
            for kind in [PatternKind::Gather, PatternKind::Reduce, PatternKind::Scatter] {
                self.tell(maker, stage, kind, None, found);
            }
        }
        let s = self.stages[stage.0 as usize].as_mut().expect("it is there");
        s.n_readers += 1;
        edges.clear();
        self.scratch = edges;
    }

    /// The run is over: its stages are forgotten.
    pub fn run_ended(&mut self, run: RunId) {
        for stage in self.stages.iter_mut().filter(|s| s.as_ref().is_some_and(|s| s.run == run)) {
            *stage = None;
        }
        let Patterns { stages, by_name, more_readers, flows, wishes, .. } = self;
        let lives = |stage: &StageId| stages[stage.0 as usize].is_some();
        by_name.retain(|(r, _), _| *r != run);
        more_readers.retain(|(_, stage), _| lives(stage));
        flows.retain(|(_, to), _| lives(to));
        wishes.retain(|(r, ..), _| *r != run);
    }

    // ------------------------------------------------------------ questions

    /// The stages that read an object and those of them in which it is multicast.
    pub fn of_object(&self, object: ObjectId) -> Vec<Evidence> {
        let Some(file) = self.files.get(object.0 as usize) else { return vec![] };
        let maker = self.living(file.maker);
        let readers = self.readers_of(object);
        let found = readers.into_iter().filter_map(|(stage, n)| {
            let flow = self.flows.get(&(maker, stage))?;
            let judged = self.judge(maker, stage, PatternKind::Multicast, Some((object, n)), flow)?;
            Some(Evidence { count: n, object: Some(object), n_tasks: u64::from(n), n_files: 1, ..judged })
        });
        found.collect()
    }

    /// The patterns in what `to` reads of `from` (`None`: of home).
    pub fn of_stages(&self, from: Option<StageId>, to: StageId) -> Vec<Evidence> {
        let maker = from.map_or(StageRef::default(), StageRef::of);
        let Some(flow) = self.flows.get(&(maker, to)).filter(|f| f.n_edges > 0) else { return vec![] };
        PatternKind::ALL.into_iter().filter_map(|kind| self.judge(maker, to, kind, None, flow)).collect()
    }

    /// All patterns of a run, by stages in the order in which they were met: for the log at the end of a submission,
    /// and for drawing.
    pub fn of_run(&self, run: RunId) -> Vec<Evidence> {
        let of_run = self.flows.keys().filter(|(_, to)| self.find(*to).is_some_and(|s| s.run == run));
        let mut pairs: Vec<_> = of_run.copied().collect();
        pairs.sort_by_key(|(from, to)| (*to, *from));
        pairs.into_iter().flat_map(|(from, to)| self.of_stages(from.get(), to)).collect()
    }

    /// Whether a task of `stage` that reads these gathers, and from whom most.
    pub fn of_task(&self, stage: StageId, inputs: &[ObjectId]) -> Option<Evidence> {
        let mut edges = vec![];
        self.edges_of(inputs, &mut edges);
        let most =
            edges.chunk_by(|a, b| a.0 == b.0).filter(|c| c[0].0.get().is_some()).max_by_key(|c| c.len())?;
        let flow =
            Flow { fan_in_max: most.len() as u32, n_tasks: 1, n_files: most.len() as u64, ..Flow::default() };
        [PatternKind::Reduce, PatternKind::Gather]
            .into_iter()
            .find_map(|kind| self.judge(most[0].0, stage, kind, None, &flow))
    }

    /// How many tasks of `stage` read `object`, of all that read something.
    pub fn consumption(&self, stage: StageId, object: ObjectId) -> Consumption {
        let n_readers = self.readers_of(object).into_iter().find(|r| r.0 == stage).map_or(0, |r| r.1);
        Consumption { n_readers, n_tasks: self.find(stage).map_or(0, |s| s.n_readers) }
    }

    /// Equal for the files of one group. `None`: nobody reads it.
    pub fn readers_key(&self, object: ObjectId) -> Option<ReadersKey> {
        let file = self.files.get(object.0 as usize)?;
        self.living(file.reader).get()?;
        Some(ReadersKey { reader: file.reader, n_readers: file.n_readers, hash: file.readers_hash })
    }

    /// Heap bytes held, about.
    pub fn heap_bytes(&self) -> usize {
        self.files.capacity() * size_of::<File>()
            + self.more_readers.len() * 24
            + self.flows.len() * (size_of::<Flow>() + 16)
            + self.stages.iter().flatten().map(|s| size_of::<Stage>() + 2 * s.name.len()).sum::<usize>()
    }

    // ------------------------------------------------------------ counting

    fn find(&self, stage: StageId) -> Option<&Stage> {
        self.stages.get(stage.0 as usize)?.as_ref()
    }

    /// None for the stage of a run that is over: what it left is read like any file from home.
    fn living(&self, stage: StageRef) -> StageRef {
        stage.get().filter(|s| self.find(*s).is_some()).map_or(StageRef::default(), StageRef::of)
    }

    fn file_mut(&mut self, object: ObjectId) -> &mut File {
        let at = object.0 as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, File::default());
        }
        &mut self.files[at]
    }

    /// Distinct inputs with their makers, by maker.
    fn edges_of(&self, inputs: &[ObjectId], into: &mut Vec<(StageRef, ObjectId)>) {
        into.clear();
        into.extend(inputs.iter().map(|&object| {
            let maker = self.files.get(object.0 as usize).map_or(StageRef::default(), |f| f.maker);
            (self.living(maker), object)
        }));
        into.sort_unstable();
        into.dedup();
    }

    /// One more task of `stage` reads `object`; how many now.
    fn count_reader(&mut self, object: ObjectId, stage: StageId) -> u32 {
        let reader = self.files.get(object.0 as usize).map_or(StageRef::default(), |f| f.reader);
        let reader = self.living(reader);
        let task = self.n_readers as u32;
        let file = self.file_mut(object);
        if reader.get().is_none() {
            (file.reader, file.n_readers, file.readers_hash) = (StageRef::of(stage), 0, 0);
        }
        let n = if file.reader == StageRef::of(stage) {
            file.readers_hash = (file.readers_hash.rotate_left(5) ^ task).wrapping_mul(HASH_FACTOR);
            &mut file.n_readers
        } else {
            self.more_readers.entry((object, stage)).or_default()
        };
        *n += 1;
        *n
    }

    fn readers_of(&self, object: ObjectId) -> Vec<(StageId, u32)> {
        let Some(file) = self.files.get(object.0 as usize) else { return vec![] };
        let mut readers: Vec<(StageId, u32)> = vec![];
        if let Some(stage) = self.living(file.reader).get() {
            readers.push((stage, file.n_readers));
        }
        let others = self.more_readers.range((object, StageId(0))..=(object, StageId(u32::MAX)));
        readers.extend(others.map(|((_, stage), n)| (*stage, *n)));
        readers
    }

    // ------------------------------------------------------------ judging

    fn tell(
        &mut self,
        maker: StageRef,
        to: StageId,
        kind: PatternKind,
        object: Option<ObjectId>,
        found: &mut Vec<Evidence>,
    ) {
        let bit = 1u8 << kind as u8;
        let flow = self.flows[&(maker, to)];
        if flow.told & bit != 0 {
            return;
        }
        if let Some(mut evidence) = self.judge(maker, to, kind, None, &flow) {
            evidence.object = object;
            self.flows.get_mut(&(maker, to)).expect("it was just read").told |= bit;
            found.push(evidence);
        }
    }

    fn wish(&self, run: RunId, scope: Scope, kind: PatternKind) -> Option<Wish> {
        if self.wishes.is_empty() { None } else { self.wishes.get(&(run, scope, kind)).copied() }
    }

    /// `of`: one object and how many tasks of `to` read it, instead of the whole flow.
    fn judge(
        &self,
        maker: StageRef,
        to: StageId,
        kind: PatternKind,
        of: Option<(ObjectId, u32)>,
        flow: &Flow,
    ) -> Option<Evidence> {
        let stage = self.find(to)?;
        let from = maker.get().and_then(|s| self.find(s));
        let c = &self.config;
        let multicast = of.map_or(flow.readers_max, |o| o.1);
        let per_writer = from.map_or(0, |f| flow.n_files / f.n_writers.max(1));
        let gathers = from.is_some() && flow.fan_in_max >= c.gather_inputs_min;
        let scatters = from.is_some_and(|f| f.outputs_max >= c.scatter_outputs_min)
            && per_writer >= u64::from(c.scatter_outputs_min)
            && flow.n_tasks >= u64::from(c.scatter_outputs_min)
            && flow.readers_max < c.multicast_readers_min;
        let (count, threshold, counted) = match kind {
            PatternKind::Multicast => {
                (multicast, c.multicast_readers_min, multicast >= c.multicast_readers_min)
            }
            PatternKind::Gather => (flow.fan_in_max, c.gather_inputs_min, gathers),
            // Nothing that can be counted says that a program may be applied to parts.
            PatternKind::Reduce => (flow.fan_in_max, c.gather_inputs_min, false),
            PatternKind::Scatter => (from.map_or(0, |f| f.outputs_max), c.scatter_outputs_min, scatters),
            PatternKind::Pipeline => {
                (1, 1, from.is_some() && flow.fan_in_max == 1 && flow.readers_max == 1 && !scatters)
            }
        };
        let on_object = of.and_then(|o| self.wish(stage.run, Scope::Object(o.0), kind));
        let wish = if self.wishes.is_empty() {
            None
        } else {
            on_object.or_else(|| self.wish(stage.run, Scope::Stage(stage.name.clone()), kind))
        };
        let is_it = match wish {
            Some(Wish::Forbid) => false,
            // A reduce is worth a tree only where there are several files; anything else is as the user says.
            Some(Wish::Force) => kind != PatternKind::Reduce || (from.is_some() && flow.fan_in_max > 1),
            None => counted,
        };
        is_it.then(|| Evidence {
            pattern: kind,
            from: from.map(|f| f.name.clone()),
            to: stage.name.clone(),
            object: None,
            file: None,
            count,
            threshold,
            n_tasks: flow.n_tasks,
            n_files: flow.n_files,
            hinted: wish.is_some(),
        })
    }
}

#[cfg(test)]
mod tests;
