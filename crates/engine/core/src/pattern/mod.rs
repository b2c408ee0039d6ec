//! Dataflow patterns, found while tasks become known.
//!
//! In: what each task writes and reads, as [`ObjectId`]s, one task at a time and in any order; hints. Out: which
//! pattern a file or a pair of stages has, with the counts that say so ([`Evidence`]).
//!
//! The rules follow `Zhang12` §II-A, §V-F and §V-G, where "threshold" has no number:
//!
//! | pattern | rule | |
//! |---|---|---|
//! | multicast | at least [`MULTICAST_READERS_MIN`] tasks of one stage read the file | §V-F.1 |
//! | gather | a task reads at least [`GATHER_INPUTS_MIN`] files that tasks wrote, of whatever stages these are | §V-G |
//! | reduce | a program reads, several at a time and each once, files that the same program wrote; or the user says that it may be applied to any part | §II-A, §V-G |
//! | scatter | a task writes at least [`SCATTER_OUTPUTS_MIN`] files that are not multicast, and at least so many tasks, of whatever stages, read them | §V-G |
//! | pipeline | each file has one reader in the stage, and each reader one file of it, or the files of one writer | §V-G: "by default" |
//!
//! Where a rule has no threshold it is [`shape`], which `eyas graph` uses to draw a workflow that has not
//! run.
//!
//! A pair of stages may have several patterns. Files with the same readers are a *file group* and count as
//! one (§V-F.4). Consumption is counted in tasks, each of which reads its group once
//! ([`Patterns::consumption`]). A collective that sends one file of a group sends the whole group to the same
//! nodes ([`Patterns::readers_key`]).
//!
//! Deviation: files read straight from home make no gather, scatter or pipeline, because no copy of them is
//! on the nodes yet.
//!
//! Invariants: a step costs O(1) per edge (a task with n inputs sorts them). Memory is 16 bytes per object, a
//! record per pair of stages that share a file, and a record for each task that writes enough files to
//! scatter them, with 8 bytes for each of these files. No other task is remembered.
//!
//! Where a run is split over several dispatchers, each has a share of its tasks. The client that splits the
//! run looks at all of them and sends each part what its own tasks do not show ([`RunPatterns`]); that is
//! noted here ([`Patterns::learn_run`]).
//!
//! Not here: what is done about a pattern ([`crate::collective`]), and the names of files
//! ([`crate::catalog`]).

mod evidence;
mod run;
mod shape;
mod stage;

pub use evidence::{Evidence, PatternKind};
pub use run::{RunPatterns, patterns_by_part};
pub use shape::{Counts, Shape, shape};
pub use stage::{is_one_stage, program_of_stage, stage_name, stage_of_task, started_by};

use crate::catalog::PAGE;
use eyas_terms::array::{GatherHint, Hint, Hints};
use eyas_terms::{ObjectId, RunId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// If at least this many tasks of one stage read a file, it is multicast. With fewer readers, ordinary copies
/// from peer to peer make the second replica before a plan would.
pub const MULTICAST_READERS_MIN: u32 = 4;
/// If a task reads at least this many files of one stage, it gathers; fetching fewer files takes only a few
/// round trips.
pub const GATHER_INPUTS_MIN: u32 = 8;
/// If a task writes at least this many files for others, it scatters.
pub const SCATTER_OUTPUTS_MIN: u32 = 8;
/// If a task reads at least this many of the files that its own program wrote, it reduces.
pub const REDUCE_INPUTS_MIN: u32 = 2;
/// The stage of tasks of the run that are not known here, because another dispatcher has them or because they
/// were in the run before.
const ELSEWHERE: &str = "(other tasks)";
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

/// What a hint is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The reading stage of that name.
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

/// How much of a stage reads one file, and thus the group that the file belongs to (§V-F.2, .4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumption {
    /// Tasks of the stage that read the file.
    pub n_readers: u32,
    /// All tasks of the stage that read any file.
    pub n_tasks: u64,
}

impl Consumption {
    /// The share, in [0, 1].
    pub fn share(self) -> f64 {
        if self.n_tasks == 0 { 0.0 } else { f64::from(self.n_readers) / self.n_tasks as f64 }
    }
}

/// Equal for files that the same tasks read, as far as the first stage that reads them is concerned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadersKey {
    reader: StageRef,
    n_readers: u32,
    hash: u32,
}

struct Stage {
    run: RunId,
    name: String,
    /// Tasks of the stage that write files.
    n_writers: u64,
    /// Tasks of the stage that read files.
    n_readers: u64,
    /// Tasks that gather files of several stages, none of which wrote enough of them for a gather of its own.
    mixed: Mixed,
}

#[derive(Default)]
struct Mixed {
    n_tasks: u64,
    n_files: u64,
    /// The most files that one of these tasks reads.
    fan_in_max: u32,
    /// The stages that wrote the files, in the order in which they were met.
    makers: Vec<StageRef>,
}

/// The files of one task that writes at least [`PatternConfig::scatter_outputs_min`] of them.
struct Scattering {
    maker: StageId,
    n_outputs: u32,
    /// Files with a reader that are not multicast.
    n_parts: u32,
    /// Tasks that read such a file, by stage, in the order in which the stages were met.
    readers: Vec<(StageId, u32)>,
}

impl Scattering {
    fn n_readers(&self) -> u32 {
        self.readers.iter().map(|r| r.1).sum()
    }
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
    /// The first stage that reads the file; other stages are in [`Patterns::more_readers`].
    reader: StageRef,
    n_readers: u32,
    /// A hash of the tasks of that stage which read the file, in their order.
    readers_hash: u32,
}

/// What one stage reads of another stage's files.
#[derive(Clone, Copy, Default)]
struct Flow {
    n_edges: u64,
    n_files: u64,
    n_tasks: u64,
    fan_in_max: u32,
    readers_max: u32,
}

/// See the module.
#[derive(Default)]
pub struct Patterns {
    config: PatternConfig,
    stages: Vec<Option<Stage>>,
    by_name: FxHashMap<(RunId, String), StageId>,
    /// The files by object, in pages of [`PAGE`]; a page that is missing has no file.
    files: Vec<Option<Box<[File; PAGE]>>>,
    more_readers: BTreeMap<(ObjectId, StageId), u32>,
    /// By writing stage (none: home) and reading stage.
    flows: BTreeMap<(StageRef, StageId), Flow>,
    /// Tasks that may scatter. `None`: the task's run is over. And for each file, which of these tasks wrote
    /// it.
    scatterings: Vec<Option<Scattering>>,
    scattering_of: FxHashMap<ObjectId, u32>,
    /// Files whose pattern (multicast, or part of a scatter) shows only in the whole run, not in the tasks
    /// known here.
    wide: FxHashMap<ObjectId, (RunId, PatternKind)>,
    /// Patterns of whole runs of which only a share of the tasks is known here.
    noted: BTreeMap<RunId, Vec<Evidence>>,
    /// The users' hints about stages.
    hints: BTreeMap<StageId, Hints>,
    /// Patterns that were reported: the stage that writes, the stage that reads, and the pattern.
    reported: BTreeSet<(StageRef, StageId, PatternKind)>,
    /// The number of tasks so far that read a file.
    n_readers: u64,
    wishes: BTreeMap<(RunId, Scope, PatternKind), Wish>,
    /// A buffer, kept so that its memory is used again.
    scratch: Vec<(StageRef, ObjectId)>,
}

impl Patterns {
    pub fn new(config: PatternConfig) -> Patterns {
        Patterns { config, ..Patterns::default() }
    }

    /// The stage of a run by its name, see [`stage_name`].
    pub fn stage(&mut self, run: RunId, name: &str) -> StageId {
        // The name is looked up twice only if it is new.
        let key = (run, name.to_owned());
        if let Some(&stage) = self.by_name.get(&key) {
            return stage;
        }
        let stage = StageId(self.stages.len() as u32);
        self.stages.push(Some(Stage {
            run,
            name: name.to_owned(),
            n_writers: 0,
            n_readers: 0,
            mixed: Mixed::default(),
        }));
        self.by_name.insert(key, stage);
        stage
    }

    pub fn name_of(&self, stage: StageId) -> Option<&str> {
        self.find(stage).map(|s| s.name.as_str())
    }

    /// Forces or forbids a pattern; the last call counts.
    pub fn set_hint(&mut self, run: RunId, scope: Scope, pattern: PatternKind, wish: Wish) {
        self.wishes.insert((run, scope, pattern), wish);
    }

    /// Notes the user's hints about a stage. A hint that forbids overrides one that forces, whichever comes
    /// first.
    pub fn learn_hints(&mut self, stage: StageId, hints: &Hints) {
        let Some(Stage { run, name, .. }) = self.stages[stage.0 as usize].as_ref() else { return };
        let (run, name) = (*run, name.clone());
        let known = self.hints.entry(stage).or_default();
        let all = Hints {
            multicast: known.multicast.max(hints.multicast),
            scatter: known.scatter.max(hints.scatter),
            gather: known.gather.max(hints.gather),
        };
        if std::mem::replace(known, all) == all {
            return;
        }
        let simple = |hint: Hint| match hint {
            Hint::Auto => None,
            Hint::Always => Some(Wish::Force),
            Hint::Never | Hint::Once => Some(Wish::Forbid),
        };
        let gather = match all.gather {
            GatherHint::Auto => None,
            GatherHint::Always | GatherHint::Collective | GatherHint::Async => Some(Wish::Force),
            GatherHint::Never => Some(Wish::Forbid),
        };
        for (kind, wish) in [
            (PatternKind::Multicast, simple(all.multicast)),
            (PatternKind::Scatter, simple(all.scatter)),
            (PatternKind::Gather, gather),
        ] {
            if let Some(wish) = wish {
                self.set_hint(run, Scope::Stage(name.clone()), kind, wish);
            }
        }
    }

    /// Notes the patterns of the whole run, of which only a share of the tasks is known here. Patterns that
    /// were noted before stay.
    pub fn learn_run(&mut self, run: RunId, found: &[Evidence]) {
        let noted = self.noted.entry(run).or_default();
        noted.extend(found.iter().filter(|evidence| !noted.contains(evidence)).cloned().collect::<Vec<_>>());
    }

    /// Notes that in the whole run `object` is multicast, or a part of a scatter, whatever the tasks here
    /// show.
    pub fn learn_wide(&mut self, run: RunId, object: ObjectId, kind: PatternKind) {
        self.wide.insert(object, (run, kind));
    }

    /// Notes that a task of the run which is not known here makes these objects.
    pub fn made_elsewhere(&mut self, run: RunId, objects: &[ObjectId]) {
        let elsewhere = StageRef::of(self.stage(run, ELSEWHERE));
        for object in objects {
            let file = self.file_mut(*object);
            if file.maker == StageRef::default() {
                file.maker = elsewhere;
            }
        }
    }

    /// Notes that a task of `stage` will write these objects. Best called before their readers are noted.
    pub fn task_writes(&mut self, stage: StageId, outputs: &[ObjectId]) {
        if outputs.is_empty() {
            return;
        }
        let Some(s) = self.stages[stage.0 as usize].as_mut() else { return };
        s.n_writers += 1;
        if outputs.len() >= self.config.scatter_outputs_min as usize {
            let number = self.scatterings.len() as u32;
            let n_outputs = outputs.len() as u32;
            self.scatterings.push(Some(Scattering { maker: stage, n_outputs, n_parts: 0, readers: vec![] }));
            self.scattering_of.extend(outputs.iter().map(|object| (*object, number)));
        }
        for &object in outputs {
            let file = self.file_mut(object);
            if file.maker == StageRef::of(stage) {
                continue;
            }
            file.maker = StageRef::of(stage);
            // The writer became known late: the file was taken for a file from home, but is this stage's. How
            // many such files one task reads is not remembered, so a task counts as a reader of one.
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

    /// Notes that a task of `stage` will read these objects.
    pub fn task_reads(&mut self, stage: StageId, inputs: &[ObjectId]) {
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
        }
        let (mut n_made, mut most) = (0, 0);
        for same in edges.chunk_by(|a, b| a.0 == b.0) {
            let maker = same[0].0;
            let flow = self.flows.get_mut(&(maker, stage)).expect("its edges were just counted");
            flow.n_tasks += 1;
            flow.fan_in_max = flow.fan_in_max.max(same.len() as u32);
            if maker.get().is_some() {
                n_made += same.len() as u32;
                most = most.max(same.len() as u32);
            }
        }
        if !self.scattering_of.is_empty() {
            self.count_parts(stage, &edges);
        }
        let gather_inputs_min = self.config.gather_inputs_min;
        let s = self.stages[stage.0 as usize].as_mut().expect("it is there");
        s.n_readers += 1;
        if most < gather_inputs_min && n_made >= gather_inputs_min {
            s.mixed.n_tasks += 1;
            s.mixed.n_files += u64::from(n_made);
            s.mixed.fan_in_max = s.mixed.fan_in_max.max(n_made);
            for same in edges.chunk_by(|a, b| a.0 == b.0).filter(|same| same[0].0.get().is_some()) {
                if !s.mixed.makers.contains(&same[0].0) {
                    s.mixed.makers.push(same[0].0);
                }
            }
        }
        edges.clear();
        self.scratch = edges;
    }

    /// Counts a task of `stage` as a reader of parts of scatters; its files' readers are counted already.
    fn count_parts(&mut self, stage: StageId, edges: &[(StageRef, ObjectId)]) {
        let multicast_min = self.config.multicast_readers_min;
        let mut read: Vec<u32> = vec![];
        for &(_, object) in edges {
            let Some(&number) = self.scattering_of.get(&object) else { continue };
            let readers = self.readers_of(object);
            let of_stage = readers.iter().find(|r| r.0 == stage).map_or(0, |r| r.1);
            let n_multicast = readers.iter().filter(|r| r.1 >= multicast_min).count();
            let Some(scattering) = self.scatterings[number as usize].as_mut() else { continue };
            if n_multicast == 0 {
                scattering.n_parts += u32::from(readers.iter().map(|r| r.1).sum::<u32>() == 1);
                read.push(number);
            } else if n_multicast == 1 && of_stage == multicast_min {
                // The file counted as a part until now.
                scattering.n_parts = scattering.n_parts.saturating_sub(1);
            }
        }
        read.sort_unstable();
        read.dedup();
        for number in read {
            let readers = &mut self.scatterings[number as usize].as_mut().expect("it was just there").readers;
            match readers.iter_mut().find(|r| r.0 == stage) {
                Some((_, n)) => *n += 1,
                None => readers.push((stage, 1)),
            }
        }
    }

    /// The objects with the numbers of this page are not named any more, so the page is forgotten.
    pub fn forget_page(&mut self, page: u32) {
        if let Some(page) = self.files.get_mut(page as usize) {
            *page = None;
        }
    }

    /// The run is over, so its stages are forgotten.
    pub fn run_ended(&mut self, run: RunId) {
        for stage in self.stages.iter_mut().filter(|s| s.as_ref().is_some_and(|s| s.run == run)) {
            *stage = None;
        }
        let Patterns { stages, by_name, more_readers, flows, wishes, .. } = self;
        let lives = |stage: &StageId| stages[stage.0 as usize].is_some();
        let (scatterings, reported) = (&mut self.scatterings, &mut self.reported);
        for scattering in scatterings.iter_mut().filter(|s| s.as_ref().is_some_and(|s| !lives(&s.maker))) {
            *scattering = None;
        }
        self.scattering_of.retain(|_, number| scatterings[*number as usize].is_some());
        if self.scattering_of.is_empty() {
            scatterings.clear();
        }
        reported.retain(|(_, to, _)| lives(to));
        self.wide.retain(|_, (r, _)| *r != run);
        self.noted.remove(&run);
        self.hints.retain(|stage, _| lives(stage));
        by_name.retain(|(r, _), _| *r != run);
        more_readers.retain(|(_, stage), _| lives(stage));
        flows.retain(|(_, to), _| lives(to));
        wishes.retain(|(r, ..), _| *r != run);
        if self.by_name.is_empty() {
            // No file has a stage any more, so stages are numbered from the beginning again.
            (self.stages, self.files) = (vec![], vec![]);
        }
    }

    // ------------------------------------------------------------ questions

    /// For each stage that reads an object and in which the object is multicast, the evidence.
    pub fn of_object(&self, object: ObjectId) -> Vec<Evidence> {
        let Some(file) = self.file(object) else { return vec![] };
        let maker = self.living(file.maker);
        let readers = self.readers_of(object);
        let is_wide = self.wide_kind(object) == Some(PatternKind::Multicast);
        let n_seen = |n: u32| if is_wide { n.max(self.config.multicast_readers_min) } else { n };
        let found = readers.into_iter().filter_map(|(stage, n)| {
            let flow = self.flows.get(&(maker, stage))?;
            let judged = self.judge(maker, stage, PatternKind::Multicast, Some((object, n_seen(n))), flow)?;
            Some(Evidence { count: n, object: Some(object), n_tasks: u64::from(n), n_files: 1, ..judged })
        });
        found.collect()
    }

    /// The patterns in what `to` reads of the files of `from` (`None`: files from home).
    pub fn of_stages(&self, from: Option<StageId>, to: StageId) -> Vec<Evidence> {
        let maker = from.map_or(StageRef::default(), StageRef::of);
        let Some(flow) = self.flows.get(&(maker, to)).filter(|f| f.n_edges > 0) else { return vec![] };
        PatternKind::ALL.into_iter().filter_map(|kind| self.judge(maker, to, kind, None, flow)).collect()
    }

    /// All patterns of a run, by stages in the order in which they were met: for the log at the end of a
    /// submission, and for users.
    pub fn of_run(&self, run: RunId) -> Vec<Evidence> {
        if let Some(noted) = self.noted.get(&run) {
            return noted.clone();
        }
        self.placed_of_run(run).into_iter().map(|(_, evidence)| evidence).collect()
    }

    /// Those of [`Patterns::of_run`] that this method has not returned before.
    pub fn new_of_run(&mut self, run: RunId) -> Vec<Evidence> {
        let mut all = self.placed_of_run(run);
        all.retain(|(place, _)| self.reported.insert(*place));
        all.into_iter().map(|(_, evidence)| evidence).collect()
    }

    /// The patterns of a run, each with the stage that writes, the stage that reads, and the kind of pattern.
    fn placed_of_run(&self, run: RunId) -> Vec<((StageRef, StageId, PatternKind), Evidence)> {
        let is_of_run = |stage: StageId| self.find(stage).is_some_and(|s| s.run == run);
        let mut all = vec![];
        for (&(from, to), _) in self.flows.iter().filter(|((_, to), flow)| is_of_run(*to) && flow.n_edges > 0)
        {
            let found = self.of_stages(from.get(), to);
            // The parts of one task may be read by several stages: the evidence names them all, once.
            let is_first = |e: &Evidence| {
                e.pattern != PatternKind::Scatter
                    || self
                        .scatter_of_stages(from, to)
                        .and_then(|s| s.readers.first())
                        .is_none_or(|first| first.0 == to)
            };
            all.extend(found.into_iter().filter(is_first).map(|e| ((from, to, e.pattern), e)));
        }
        for to in (0..self.stages.len() as u32).map(StageId).filter(|s| is_of_run(*s)) {
            let mixed = &self.find(to).expect("it is of the run").mixed;
            if let Some(&from) = mixed.makers.first()
                && let Some(evidence) = self.judge_mixed(to)
            {
                all.push(((from, to, PatternKind::Gather), evidence));
            }
        }
        all.sort_by_key(|((from, to, kind), _)| (*to, *from, *kind));
        all.dedup_by_key(|(place, _)| *place);
        all
    }

    /// Whether a task of `stage` that reads these files gathers; the evidence names the stage that most of
    /// them come from.
    pub fn of_task(&self, stage: StageId, inputs: &[ObjectId]) -> Option<Evidence> {
        let mut edges = vec![];
        self.edges_of(inputs, &mut edges);
        edges.retain(|edge| edge.0.get().is_some());
        let most = edges.chunk_by(|a, b| a.0 == b.0).max_by_key(|c| c.len())?;
        // The number of files counts, whichever stages made them.
        let n = edges.len() as u32;
        let flow =
            Flow { fan_in_max: n, readers_max: 1, n_tasks: 1, n_files: u64::from(n), n_edges: u64::from(n) };
        let judged = |kind| self.judge(most[0].0, stage, kind, None, &flow);
        match judged(PatternKind::Gather) {
            Some(gather) => Some(judged(PatternKind::Reduce).unwrap_or(gather)),
            None => judged(PatternKind::Reduce).filter(|reduce| reduce.hinted),
        }
    }

    /// Whether the task that made these files scatters them.
    pub fn of_made(&self, made: &[ObjectId]) -> Option<Evidence> {
        let (maker, to) = made.iter().find_map(|object| {
            let file = self.file(*object)?;
            Some((self.living(file.maker), self.living(file.reader).get()?))
        })?;
        let scattering =
            self.scattering_of.get(made.first()?).and_then(|n| self.scatterings[*n as usize].as_ref());
        let stage = self.find(to)?;
        let wish = self.wish(stage.run, Scope::Stage(stage.name.clone()), PatternKind::Scatter);
        let is_wide = made.iter().any(|object| self.wide_kind(*object) == Some(PatternKind::Scatter));
        match (wish, scattering) {
            (Some(Wish::Forbid), _) => None,
            (None, scattering) => self.evidence_of(to, scattering.filter(|s| is_wide || self.scatters(s))?),
            (Some(Wish::Force), _) => {
                let flow = self.flows.get(&(maker, to))?;
                self.judge(maker, to, PatternKind::Scatter, None, flow)
            }
        }
    }

    /// Whether an object is a part of what is dealt out: it has a reader, and is not multicast.
    pub fn is_part(&self, object: ObjectId) -> bool {
        let readers = self.readers_of(object);
        let is_multicast = self.wide_kind(object) == Some(PatternKind::Multicast);
        !is_multicast
            && !readers.is_empty()
            && readers.iter().all(|r| r.1 < self.config.multicast_readers_min)
    }

    /// The object's pattern in the whole run, if the tasks here do not show it.
    pub fn wide_kind(&self, object: ObjectId) -> Option<PatternKind> {
        self.wide.get(&object).map(|(_, kind)| *kind)
    }

    /// Whether an object is a part of a scatter or is multicast, as far as is known here.
    fn kind_of(&self, object: ObjectId) -> Option<PatternKind> {
        if self.of_object(object).iter().any(|e| e.pattern == PatternKind::Multicast) {
            return Some(PatternKind::Multicast);
        }
        let scattering = self.scatterings[*self.scattering_of.get(&object)? as usize].as_ref()?;
        (self.scatters(scattering) && self.is_part(object)).then_some(PatternKind::Scatter)
    }

    /// How many tasks of `stage` read `object`, out of all its tasks that read a file.
    pub fn consumption(&self, stage: StageId, object: ObjectId) -> Consumption {
        let n_readers = self.readers_of(object).into_iter().find(|r| r.0 == stage).map_or(0, |r| r.1);
        Consumption { n_readers, n_tasks: self.find(stage).map_or(0, |s| s.n_readers) }
    }

    /// Equal for the files of one group. `None`: no task reads the object.
    pub fn readers_key(&self, object: ObjectId) -> Option<ReadersKey> {
        let file = self.file(object)?;
        self.living(file.reader).get()?;
        Some(ReadersKey { reader: file.reader, n_readers: file.n_readers, hash: file.readers_hash })
    }

    /// Heap bytes held, approximately.
    pub fn heap_bytes(&self) -> usize {
        self.files.iter().flatten().count() * PAGE * size_of::<File>()
            + self.more_readers.len() * 24
            + self.scattering_of.len() * 8
            + self.scatterings.len() * size_of::<Option<Scattering>>()
            + self.flows.len() * (size_of::<Flow>() + 16)
            + self.stages.iter().flatten().map(|s| size_of::<Stage>() + 2 * s.name.len()).sum::<usize>()
    }

    // ------------------------------------------------------------ counting

    fn find(&self, stage: StageId) -> Option<&Stage> {
        self.stages.get(stage.0 as usize)?.as_ref()
    }

    /// The stage, or none if its run is over: a file that such a run left is read like a file from home.
    fn living(&self, stage: StageRef) -> StageRef {
        stage.get().filter(|s| self.find(*s).is_some()).map_or(StageRef::default(), StageRef::of)
    }

    fn file(&self, object: ObjectId) -> Option<&File> {
        let page = self.files.get(object.0 as usize / PAGE)?.as_ref()?;
        Some(&page[object.0 as usize % PAGE])
    }

    fn file_mut(&mut self, object: ObjectId) -> &mut File {
        let page = object.0 as usize / PAGE;
        if self.files.len() <= page {
            self.files.resize_with(page + 1, || None);
        }
        let page = self.files[page].get_or_insert_with(|| Box::new([File::default(); PAGE]));
        &mut page[object.0 as usize % PAGE]
    }

    /// The distinct inputs with their makers' stages, ordered by stage.
    fn edges_of(&self, inputs: &[ObjectId], into: &mut Vec<(StageRef, ObjectId)>) {
        into.clear();
        into.extend(inputs.iter().map(|&object| {
            let maker = self.file(object).map_or(StageRef::default(), |f| f.maker);
            (self.living(maker), object)
        }));
        into.sort_unstable();
        into.dedup();
    }

    /// Counts one more task of `stage` that reads `object`; gives how many there are now.
    fn count_reader(&mut self, object: ObjectId, stage: StageId) -> u32 {
        let reader = self.file(object).map_or(StageRef::default(), |f| f.reader);
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
        let Some(file) = self.file(object) else { return vec![] };
        let mut readers: Vec<(StageId, u32)> = vec![];
        if let Some(stage) = self.living(file.reader).get() {
            readers.push((stage, file.n_readers));
        }
        let others = self.more_readers.range((object, StageId(0))..=(object, StageId(u32::MAX)));
        readers.extend(others.map(|((_, stage), n)| (*stage, *n)));
        readers
    }

    // ------------------------------------------------------------ judging

    fn scatters(&self, scattering: &Scattering) -> bool {
        let min = self.config.scatter_outputs_min;
        scattering.n_parts >= min && scattering.n_readers() >= min
    }

    /// Of the tasks of `from` that deal out files to tasks of `to` (and perhaps of other stages), the one
    /// with the most parts.
    fn scatter_of_stages(&self, from: StageRef, to: StageId) -> Option<&Scattering> {
        let from = from.get()?;
        let of_both = |s: &&Scattering| s.maker == from && s.readers.iter().any(|r| r.0 == to);
        let scattered = self.scatterings.iter().flatten().filter(|s| self.scatters(s)).filter(of_both);
        scattered.max_by_key(|s| s.n_parts)
    }

    fn evidence_of(&self, to: StageId, scattering: &Scattering) -> Option<Evidence> {
        let others = scattering.readers.iter().filter(|r| r.0 != to);
        Some(Evidence {
            pattern: PatternKind::Scatter,
            from: Some(self.find(scattering.maker)?.name.clone()),
            to: self.find(to)?.name.clone(),
            others: others.filter_map(|r| Some(self.find(r.0)?.name.clone())).collect(),
            object: None,
            file: None,
            count: scattering.n_outputs,
            threshold: self.config.scatter_outputs_min,
            n_tasks: u64::from(scattering.n_readers()),
            n_files: u64::from(scattering.n_parts),
            hinted: false,
        })
    }

    /// Tasks of `to` that gather what several stages wrote.
    fn judge_mixed(&self, to: StageId) -> Option<Evidence> {
        let mixed = &self.find(to)?.mixed;
        let (first, others) = mixed.makers.split_first()?;
        let flow = Flow {
            n_edges: mixed.n_files,
            n_files: mixed.n_files,
            n_tasks: mixed.n_tasks,
            fan_in_max: mixed.fan_in_max,
            readers_max: 1,
        };
        let evidence = self.judge(*first, to, PatternKind::Gather, None, &flow)?;
        let name = |maker: &StageRef| Some(self.find(maker.get()?)?.name.clone());
        Some(Evidence { others: others.iter().filter_map(name).collect(), ..evidence })
    }

    fn wish(&self, run: RunId, scope: Scope, kind: PatternKind) -> Option<Wish> {
        if self.wishes.is_empty() { None } else { self.wishes.get(&(run, scope, kind)).copied() }
    }

    /// `of`: one object and how many tasks of `to` read it, in place of the whole flow.
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
        let gathers = from.is_some() && flow.fan_in_max >= c.gather_inputs_min;
        let scattering = match kind {
            PatternKind::Scatter | PatternKind::Pipeline => self.scatter_of_stages(maker, to),
            _ => None,
        };
        let counts = |from: &Stage| Counts {
            n_files: flow.n_files,
            n_reads: flow.n_edges,
            n_writers: from.n_writers,
            n_readers: flow.n_tasks,
            is_own: program_of_stage(&from.name) == program_of_stage(&stage.name),
        };
        let has_shape = |is: Shape| from.is_some_and(|from| shape(&counts(from)) == is);
        let (count, threshold, counted) = match kind {
            PatternKind::Multicast => {
                (multicast, c.multicast_readers_min, multicast >= c.multicast_readers_min)
            }
            PatternKind::Gather => (flow.fan_in_max, c.gather_inputs_min, gathers),
            // A program that is applied to its own output may be applied to parts.
            PatternKind::Reduce => (
                flow.fan_in_max,
                REDUCE_INPUTS_MIN,
                flow.fan_in_max >= REDUCE_INPUTS_MIN && has_shape(Shape::Reduce),
            ),
            PatternKind::Scatter => {
                (scattering.map_or(0, |s| s.n_outputs), c.scatter_outputs_min, scattering.is_some())
            }
            PatternKind::Pipeline => {
                let is_one_each = from.is_some() && flow.fan_in_max == 1 && flow.readers_max == 1;
                (1, 1, scattering.is_none() && (is_one_each || has_shape(Shape::Pipeline)))
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
            // A reduce is worth a tree only if there are several files; every other pattern is as the user
            // says.
            Some(Wish::Force) => kind != PatternKind::Reduce || (from.is_some() && flow.fan_in_max > 1),
            None => counted,
        };
        if let Some(scattering) = scattering.filter(|_| is_it && kind == PatternKind::Scatter) {
            return Some(Evidence { hinted: wish.is_some(), ..self.evidence_of(to, scattering)? });
        }
        is_it.then(|| Evidence {
            pattern: kind,
            from: from.map(|f| f.name.clone()),
            to: stage.name.clone(),
            others: vec![],
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
