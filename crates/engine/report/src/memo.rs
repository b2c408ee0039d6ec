//! What earlier runs made of what: the records by which a run is resumed.
//!
//! In: the event log in a dispatcher's directory, and the records that a resumed run brought along
//! ([`CARRIED_FILE`]). Out: a [`Memo`], which answers two questions. *Was exactly this done before, and what came
//! of it?* ([`Memo::find`], by key.) *How did this very task end before?* ([`Memo::own`], by its id and [`PlaceDigest`].)
//!
//! A task is the same as an earlier one if it does the same with files at the same locations. Where nothing else tells
//! several tasks apart, their ids do.
//!
//! A task's key is the BLAKE3 digest of its command (program and words, or the line for the shell), its declared
//! environment, the names of its outputs and the names and digests of its inputs, all as its sandbox has them. Its id
//! is in it if the command or the environment names the variable that has it. What is not in it changes nothing about
//! the result: where files live at home, label, priority, limits.
//!
//! Invariants:
//!   1. a record says that a task ended well only if its attempt did and all its outputs were where they belong;
//!   2. an input's digest is that of the bytes which this attempt read. Where the log leaves a doubt (read in
//!      place and never hashed; reported twice with different bytes meanwhile) it is `None`, and the record has no key.
//!
//! Why from the log: it is written anyway, on the dispatcher's own disk, and holds all of this. A log that ends
//! in the middle of a line is a good one; tasks whose lines it lost run again.
//!
//! Not here: whether files at home still are what a record says, and what has to run (`eyas-cli`, `resume`).

use crate::error::{Error, ErrorKind};
use crate::fold::{Array, Change, End, Fold};
use crate::lines::{Entry, name_of};
use eyas_core::event::{Action, AssignedInput, Assignment, AttemptReport, Event};
use eyas_core::log::EVENTS_FILE;
use eyas_terms::array::{Command, TaskSpec};
use eyas_terms::location::MadeLocation;
use eyas_terms::*;
use eyas_text::shown_path;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// Records of earlier runs that a resumed run brought along; beside the event log, one JSON object a line.
pub const CARRIED_FILE: &str = "memo.jsonl";

/// What a task does, without the bytes that it reads: three BLAKE3 digests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
pub struct Recipe {
    pub command: Digest,
    /// Declared environment.
    pub env: Digest,
    /// Names of the outputs in the sandbox.
    pub outputs: Digest,
}

/// What one task does, and where its files are at home: a BLAKE3 digest.
pub type PlaceDigest = Digest;

/// The variable in which a program finds its task's id.
const TASK_VARIABLE: &str = "EYAS_TASK";

/// Digest of strings, with their lengths, so that no two lists give the same bytes.
struct Strings(blake3::Hasher);

impl Strings {
    fn new(of: &str) -> Strings {
        let mut strings = Strings(blake3::Hasher::new());
        strings.push(of.as_bytes());
        strings
    }
    fn push(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
    fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

impl Recipe {
    pub fn of(task: &TaskSpec) -> Recipe {
        let mut command = match &task.command {
            Command::Exec(_) => Strings::new("exec"),
            Command::Shell(_) => Strings::new("shell"),
        };
        match &task.command {
            Command::Exec(words) => words.iter().for_each(|word| command.push(word.as_bytes())),
            Command::Shell(line) => command.push(line.as_bytes()),
        }
        if names_its_id(task) {
            command.push(task.id.as_bytes());
        }
        let mut sorted: Vec<&(String, String)> = task.env.iter().collect();
        sorted.sort();
        let mut env = Strings::new("env");
        for (name, value) in sorted {
            env.push(name.as_bytes());
            env.push(value.as_bytes());
        }
        let mut names: Vec<&str> = task.outputs.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let mut outputs = Strings::new("outputs");
        names.iter().for_each(|name| outputs.push(name.as_bytes()));
        Recipe { command: command.digest(), env: env.digest(), outputs: outputs.digest() }
    }

    /// The place of a task that does this.
    pub fn place(&self, task: &TaskSpec) -> PlaceDigest {
        let mut place = Strings::new("place");
        for digest in [self.command, self.env, self.outputs] {
            place.push(&digest.0);
        }
        for (mark, files) in [("inputs", &task.inputs), ("outputs", &task.outputs)] {
            place.push(mark.as_bytes());
            for (name, at) in files {
                place.push(name.as_bytes());
                place.push(at.as_bytes());
            }
        }
        place.digest()
    }

    /// The key of a task that does this with `inputs`: names in the sandbox, and digests. Their order is of no matter.
    pub fn key<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, Digest)>) -> Digest {
        let mut inputs: Vec<(&str, Digest)> = inputs.into_iter().collect();
        inputs.sort_unstable();
        let mut key = Strings::new("task");
        for digest in [self.command, self.env, self.outputs] {
            key.push(&digest.0);
        }
        for (name, digest) in inputs {
            key.push(name.as_bytes());
            key.push(&digest.0);
        }
        key.digest()
    }
}

/// Whether the program gets to know the task's id by what the task says.
fn names_its_id(task: &TaskSpec) -> bool {
    let names = |text: &String| text.contains(TASK_VARIABLE);
    let is_in_command = match &task.command {
        Command::Exec(words) => words.iter().any(names),
        Command::Shell(line) => names(line),
    };
    is_in_command || task.env.iter().any(|(_, value)| names(value))
}

/// The same place and the same id.
fn own_of(place: PlaceDigest, id: &str) -> Digest {
    let mut own = Strings::new("own");
    own.push(&place.0);
    own.push(id.as_bytes());
    own.digest()
}

/// How the last try at a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Well,
    Failed,
    Cancelled,
    /// Not, as far as the log goes.
    Not,
}

/// One task of an earlier run.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Record {
    /// The user's own name for it.
    pub id: String,
    pub recipe: Recipe,
    /// `None`: the record is of a version that did not keep it.
    #[serde(default)]
    pub place: Option<PlaceDigest>,
    pub ended: Ended,
    /// Name in the sandbox and digest of each input, as far as the log says which bytes the last attempt read.
    pub inputs: Vec<(String, Option<Digest>)>,
    /// Name in the sandbox and digest of each output; empty unless the task ended well.
    pub outputs: Vec<(String, Digest)>,
}

impl Record {
    /// `None` if the task did not end well, or if the bytes of an input are not known.
    pub fn key(&self) -> Option<Digest> {
        if self.ended != Ended::Well { None } else { self.key_read() }
    }

    /// The same, however the task ended.
    pub fn key_read(&self) -> Option<Digest> {
        let inputs: Option<Vec<(&str, Digest)>> =
            self.inputs.iter().map(|(name, digest)| Some((name.as_str(), (*digest)?))).collect();
        Some(self.recipe.key(inputs?))
    }
}

/// Records of earlier runs by number; a later one of the same task counts more.
#[derive(Debug, Default)]
pub struct Memo {
    records: Vec<Record>,
    by_key: FxHashMap<Digest, Vec<u32>>,
    by_recipe: FxHashMap<Recipe, u32>,
    by_id: FxHashMap<String, u32>,
    /// By place and id.
    by_own: FxHashMap<Digest, Vec<u32>>,
    /// The key into `by_own`; `None`: nothing but their ids tells several tasks of this place apart.
    by_place: FxHashMap<PlaceDigest, Option<Digest>>,
}

impl Memo {
    /// What the log and the carried records in the dispatcher's directory `dir` say. One of the two has to be there.
    pub fn read(dir: &Path) -> std::result::Result<Memo, Error> {
        Memo::read_group(std::slice::from_ref(&dir))
    }

    /// The same of several dispatchers that shared a cluster, which each ran a part of the run.
    pub fn read_group(dirs: &[impl AsRef<Path>]) -> std::result::Result<Memo, Error> {
        let mut memo = Memo::default();
        for dir in dirs.iter().map(AsRef::as_ref) {
            let carried = memo.read_carried(dir)?;
            if !carried || dir.join(EVENTS_FILE).exists() {
                MemoReader::default().read(dir, dirs.len() == 1, &mut memo)?;
            }
        }
        Ok(memo)
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds the newest record.
    pub fn add(&mut self, record: Record) {
        let at = self.records.len() as u32;
        if let Some(key) = record.key() {
            self.by_key.entry(key).or_default().push(at);
            self.by_recipe.insert(record.recipe, at);
        }
        if let Some(place) = record.place {
            let own = own_of(place, &record.id);
            self.by_own.entry(own).or_default().push(at);
            let only = self.by_place.entry(place).or_insert(Some(own));
            *only = only.filter(|only| *only == own);
        }
        self.by_id.insert(record.id.clone(), at);
        self.records.push(record);
    }

    pub fn get(&self, number: u32) -> &Record {
        &self.records[number as usize]
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Everything with this key, the oldest first.
    pub fn find(&self, key: Digest) -> &[u32] {
        self.by_key.get(&key).map_or(&[], Vec::as_slice)
    }

    /// All records of the task with this place and id, the oldest first.
    pub fn own(&self, place: PlaceDigest, id: &str) -> &[u32] {
        self.by_own.get(&own_of(place, id)).map_or(&[], Vec::as_slice)
    }

    /// All records of the only task that had this place. `None`: there was no such task, or several.
    pub fn only(&self, place: PlaceDigest) -> Option<&[u32]> {
        Some(&self.by_own[&(*self.by_place.get(&place)?)?])
    }

    /// Whether any task had this place.
    pub fn has_place(&self, place: PlaceDigest) -> bool {
        self.by_place.contains_key(&place)
    }

    /// Whether a task that does this ever ended well, whatever it read.
    pub fn knows(&self, recipe: &Recipe) -> bool {
        self.by_recipe.contains_key(recipe)
    }

    /// The newest record of the task that was called `id`.
    pub fn last_of(&self, id: &str) -> Option<&Record> {
        self.last_number_of(id).map(|at| self.get(at))
    }

    pub fn last_number_of(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// `false`: there are none.
    fn read_carried(&mut self, dir: &Path) -> std::result::Result<bool, Error> {
        let path = dir.join(CARRIED_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(Error::io(ErrorKind::Open, &path, e)),
        };
        for (n, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(|e| Error::io(ErrorKind::Read, &path, e))?;
            let record = serde_json::from_slice(line.as_bytes()).map_err(|e| {
                let context = format!("line {} of {} is not a record: {e}", n + 1, shown_path(&path));
                Error::new(ErrorKind::Line, "read what earlier runs made", context)
            })?;
            self.add(record);
        }
        Ok(true)
    }

    /// Leaves `records` in the directory of a run that continues others, so that it can be resumed in turn without
    /// them. What was carried there before stays. Appears whole or not at all.
    pub fn carry<'a>(dir: &Path, records: impl IntoIterator<Item = &'a Record>) -> std::io::Result<()> {
        let path = dir.join(CARRIED_FILE);
        let fresh = dir.join(format!("{CARRIED_FILE}.{}", std::process::id()));
        let mut out = BufWriter::new(File::create(&fresh)?);
        match File::open(&path) {
            Ok(mut old) => drop(std::io::copy(&mut old, &mut out)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        for record in records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        out.into_inner().map_err(|e| e.into_error())?.sync_data()?;
        std::fs::rename(fresh, path)
    }
}

/// Digests of inputs, in the task's order, and of outputs by position.
type Result = (Vec<Option<Digest>>, Vec<(u32, Digest)>);

/// The inputs of an attempt that was given out, and its result.
struct Reading {
    executor: ExecutorId,
    /// Number of its line.
    since: u64,
    inputs: Vec<Input>,
    end: ReadingEnd,
}

/// What was reported of an attempt.
enum ReadingEnd {
    Nothing,
    Well(Result),
    NotWell,
}

struct Input {
    object: ObjectId,
    /// The digest that the assignment gave.
    known: Option<Digest>,
    /// The executor asks home again, which may have other bytes by then.
    checked: bool,
}

/// The last report of an executor about an object.
struct LastReport {
    digest: Digest,
    at: u64,
    /// When it last reported another digest.
    otherwise_at: Option<u64>,
}

#[derive(Default)]
struct MemoReader {
    /// Of tasks that have not ended: their last attempt.
    readings: FxHashMap<TaskId, Reading>,
    /// Of this life.
    last_reports: FxHashMap<(ExecutorId, ObjectId), LastReport>,
    /// The last task of each place and id that ended.
    last_ended: FxHashMap<Digest, TaskId>,
    /// Lines so far.
    now: u64,
}

impl MemoReader {
    /// `is_alone`: no other dispatcher may have ended tasks of this log.
    fn read(mut self, dir: &Path, is_alone: bool, memo: &mut Memo) -> std::result::Result<(), Error> {
        let mut fold = Fold::whole();
        // What is not parsed costs little, and most of a log is about other things.
        let is_wanted = |line: &[u8]| Fold::takes(line) || name_of(line) == Some(b"replicas_changed");
        fold.read(dir, is_wanted, |fold, entry, changes| self.take(fold, entry, changes, memo))?;
        self.add_unended(&fold, is_alone, memo);
        Ok(())
    }

    /// Tasks that never ended, unless this run has ended them under a later number, or another dispatcher may have.
    fn add_unended(&self, fold: &Fold, is_alone: bool, memo: &mut Memo) {
        for Array { base, array, run, .. } in fold.tasks.arrays() {
            let counts = is_alone && fold.runs.is_accepted(*run);
            for i in 0..array.n_tasks {
                let task = TaskId(base + u64::from(i));
                if fold.tasks.end(task).0 != End::Not {
                    continue;
                }
                let record = record(&array.expand(i), Ended::Not, vec![], vec![]);
                let own = record.place.map(|place| own_of(place, &record.id));
                let is_known = match counts {
                    true => own.and_then(|own| self.last_ended.get(&own)).is_some_and(|last| *last > task),
                    false => memo.last_of(&record.id).is_some(),
                };
                if !is_known {
                    memo.add(record);
                }
            }
        }
    }

    fn take(&mut self, fold: &Fold, entry: &Entry, changes: Vec<Change<'_>>, memo: &mut Memo) {
        self.now += 1;
        match entry {
            Entry::Header(_) => self.begin_life(),
            Entry::In(_, Event::ReplicasChanged { executor, added, .. }) => {
                for replica in added {
                    self.on_replica_reported(*executor, replica.object, replica.digest);
                }
            }
            Entry::Out(_, Action::Assign { executor, assignment }) => self.on_assigned(*executor, assignment),
            _ => {}
        }
        for change in changes {
            match change {
                Change::AttemptReported { report, .. } => self.on_reported(report),
                Change::TaskEnded { task, outcome, restored, .. } => {
                    self.on_ended(fold, task, outcome, restored, memo)
                }
                _ => {}
            }
        }
    }

    /// Numbers of objects and executors begin anew; those of tasks go on.
    fn begin_life(&mut self) {
        let mut readings = std::mem::take(&mut self.readings);
        for reading in readings.values_mut() {
            let read = self.read_by(reading);
            for (input, digest) in reading.inputs.iter_mut().zip(read) {
                *input = Input { object: ObjectId(u32::MAX), known: digest, checked: false };
            }
        }
        self.readings = readings;
        self.last_reports.clear();
    }

    fn on_assigned(&mut self, executor: ExecutorId, assignment: &Assignment) {
        let input = |i: &AssignedInput| Input {
            object: i.object,
            known: i.known.as_ref().map(|k| k.digest),
            checked: i.check_home,
        };
        let inputs = assignment.inputs.iter().map(input).collect();
        let reading = Reading { executor, since: self.now, inputs, end: ReadingEnd::Nothing };
        self.readings.insert(assignment.task, reading);
    }

    fn on_replica_reported(&mut self, executor: ExecutorId, object: ObjectId, digest: Digest) {
        let now = self.now;
        let last = self.last_reports.entry((executor, object)).or_insert(LastReport {
            digest,
            at: now,
            otherwise_at: None,
        });
        if last.digest != digest {
            (last.digest, last.otherwise_at) = (digest, Some(last.at));
        }
        last.at = now;
    }

    /// The bytes that an attempt read.
    fn read_by(&self, reading: &Reading) -> Vec<Option<Digest>> {
        let of = |input: &Input| {
            let last =
                self.last_reports.get(&(reading.executor, input.object)).filter(|t| t.at > reading.since);
            match (last, input.known) {
                (Some(last), _) if last.otherwise_at.is_some_and(|at| at > reading.since) => None,
                (Some(last), Some(known)) if last.digest != known && !input.checked => None,
                (Some(last), _) => Some(last.digest),
                (None, known) => known,
            }
        };
        reading.inputs.iter().map(of).collect()
    }

    fn on_reported(&mut self, report: &AttemptReport) {
        let Some(reading) = self.readings.get(&report.task) else { return };
        let end = match report.outcome {
            Outcome::Done => {
                let outputs = report.outputs.iter().map(|o| (o.output, o.digest)).collect();
                ReadingEnd::Well((self.read_by(reading), outputs))
            }
            _ => ReadingEnd::NotWell,
        };
        if let Some(reading) = self.readings.get_mut(&report.task) {
            reading.end = end;
        }
    }

    /// `restored`: what the journal kept of the outputs, in the task's order.
    fn on_ended(
        &mut self,
        fold: &Fold,
        task: TaskId,
        outcome: &Outcome,
        restored: Option<&[(Digest, u64)]>,
        memo: &mut Memo,
    ) {
        let ended = match outcome {
            Outcome::Done => Ended::Well,
            Outcome::Failed(_) => Ended::Failed,
            Outcome::Cancelled => Ended::Cancelled,
        };
        let reading = self.readings.remove(&task);
        let Some(array) = fold.tasks.find(task) else { return };
        let spec = array.array.expand((task.0 - array.base) as u32);
        let read = match &reading {
            Some(reading) if ended != Ended::Well => self.read_by(reading),
            _ => vec![],
        };
        let result = match (ended, reading) {
            (Ended::Well, Some(Reading { end: ReadingEnd::Well(result), .. })) => Some(result),
            (Ended::Well, Some(reading)) if matches!(reading.end, ReadingEnd::Nothing) => {
                restored.map(|outputs| {
                    let outputs = outputs.iter().enumerate().map(|(n, (digest, _))| (n as u32, *digest));
                    (self.read_by(&reading), outputs.collect())
                })
            }
            _ => None,
        };
        let result = result.filter(|(_, outputs)| outputs.len() == spec.outputs.len());
        let (inputs, outputs) = match (ended, result) {
            (Ended::Well, Some(result)) => result,
            // The task ended well, and the log does not say which bytes it read.
            (Ended::Well, None) => return,
            (_, _) => (read, vec![]),
        };
        let made =
            |(output, digest): (u32, Digest)| Some((spec.outputs.get(output as usize)?.0.clone(), digest));
        let outputs = outputs.into_iter().filter_map(made).collect();
        let record = record(&spec, ended, inputs, outputs);
        if let Some(place) = record.place {
            self.last_ended.insert(own_of(place, &record.id), task);
        }
        memo.add(record);
    }
}

/// What stands for the bytes of an input that a node makes: its recipe, as the packed file is an input, too. `None`: `location` is no
/// made object's.
pub fn digest_of_recipe(location: &str) -> Option<Digest> {
    let made = MadeLocation::of(location)?;
    let mut recipe = Strings::new("made");
    recipe.push(made.recipe.as_bytes());
    Some(recipe.digest())
}

fn record(
    spec: &TaskSpec,
    ended: Ended,
    read: Vec<Option<Digest>>,
    outputs: Vec<(String, Digest)>,
) -> Record {
    let is_known = !read.is_empty();
    let digests = read.into_iter().chain(std::iter::repeat(None));
    let of_making = |location: &str| digest_of_recipe(location).filter(|_| is_known);
    let input =
        |((name, at), digest): (&(String, String), Option<Digest>)| (name.clone(), of_making(at).or(digest));
    let inputs = spec.inputs.iter().zip(digests).map(input).collect();
    let recipe = Recipe::of(spec);
    Record { id: spec.id.clone(), recipe, place: Some(recipe.place(spec)), ended, inputs, outputs }
}
