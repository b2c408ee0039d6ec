//! Where active pushes put a file (`eyas warm`): who read it from home, who was sent it, and who has it.
//!
//! The log names a pushed file by its number, which is that of its place among the files that the push wants.

use crate::error::Error;
use crate::fold::Fold;
use crate::lines::{Entry, name_of};
use crate::units;
use eyas_core::event::{Action, Event};
use eyas_terms::{ExecutorId, ObjectId, RunId, Timestamp};
use eyas_text::{line_of, natural};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// What a log says of a file that was pushed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FileStory {
    /// Its location.
    pub file: String,
    /// The pushes that wanted it, the oldest first.
    pub runs: Vec<RunId>,
    pub steps: Vec<FileStep>,
    /// The names of the nodes that had it when the log ended.
    pub there: Vec<String>,
}

/// Something that happened to the file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FileStep {
    pub t: Timestamp,
    /// For people.
    pub sentence: String,
}

/// What a log says of the file at this location; `None` if no push of the log wanted it.
pub fn file_story(dir: &Path, file: &str) -> Result<Option<FileStory>, Error> {
    const NAMES: [&[u8]; 9] = [
        b"executor_joined",
        b"executor_lost",
        b"files_wanted",
        b"begin_push",
        b"read_home",
        b"home_not_read",
        b"prefetch",
        b"prefetch_failed",
        b"replicas_changed",
    ];
    let mut reader = FileStoryReader { file, ..FileStoryReader::default() };
    let is_wanted = |line: &[u8]| name_of(line).is_some_and(|name| NAMES.contains(&name));
    Fold::of_runs().read(dir, is_wanted, |_, entry, _| reader.take(entry))?;
    Ok(reader.finish())
}

#[derive(Default)]
struct FileStoryReader<'a> {
    file: &'a str,
    // Of the present dispatcher process.
    names: BTreeMap<ExecutorId, String>,
    /// For each run, the files that its push wants, each once.
    wanted: BTreeMap<RunId, Vec<String>>,
    object: Option<ObjectId>,
    there: BTreeSet<ExecutorId>,
    // Of the whole log.
    runs: BTreeSet<RunId>,
    steps: Vec<FileStep>,
}

impl FileStoryReader<'_> {
    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Header(_) => {
                let FileStoryReader { file, runs, steps, .. } = std::mem::take(self);
                *self = FileStoryReader { file, runs, steps, ..FileStoryReader::default() };
            }
            Entry::In(t, event) => self.on_event(*t, event),
            Entry::Out(t, action) => self.on_action(*t, action),
            Entry::Lost(..) => {}
        }
    }

    fn on_event(&mut self, t: Timestamp, event: &Event) {
        match event {
            Event::ExecutorJoined { executor, offer } => {
                self.names.insert(*executor, offer.name.clone());
            }
            Event::ExecutorLost { executor, .. } if self.there.remove(executor) => {
                self.tell(t, format!("{} was lost with it", self.name(*executor)));
            }
            Event::FilesWanted { run, files, .. } => {
                let wanted = self.wanted.entry(*run).or_default();
                let mut seen: BTreeSet<String> = wanted.iter().cloned().collect();
                wanted.extend(files.iter().filter(|file| seen.insert((*file).clone())).cloned());
            }
            Event::HomeNotRead { executor, object, error } if self.is_it(*object) => {
                self.tell(
                    t,
                    format!("{} could not read it from home: {}", self.name(*executor), error.message),
                );
            }
            Event::PrefetchFailed { executor, object, .. } if self.is_it(*object) => {
                self.tell(t, format!("it did not come to {} by then", self.name(*executor)));
            }
            Event::ReplicasChanged { executor, added, dropped } => {
                if added.iter().any(|added| self.is_it(added.object) && !added.private)
                    && self.there.insert(*executor)
                {
                    self.tell(t, format!("{} had it", self.name(*executor)));
                }
                if dropped.iter().any(|object| self.is_it(*object)) && self.there.remove(executor) {
                    self.tell(t, format!("{} had it no more", self.name(*executor)));
                }
            }
            _ => {}
        }
    }

    fn on_action(&mut self, t: Timestamp, action: &Action) {
        match action {
            Action::BeginPush { run, executors, objects } => {
                let place = self.wanted.get(run).and_then(|files| files.iter().position(|f| f == self.file));
                let Some(object) = place.and_then(|place| objects.get(place)) else { return };
                self.object = Some(*object);
                self.runs.insert(*run);
                let names = self.names_of(executors).join(", ");
                self.tell(t, format!("run {run} began to push it to {names}"));
            }
            Action::ReadHome { executor, object, run } if self.is_it(*object) && self.runs.contains(run) => {
                self.tell(t, format!("{} was to read it from home", self.name(*executor)));
            }
            Action::Prefetch { executor, inputs, .. } => {
                let Some(input) = inputs.iter().find(|input| self.is_it(input.object)) else { return };
                let from = input.sources.first().map_or("home".into(), |peer| self.name(*peer));
                self.tell(t, format!("{} was to get it from {from}", self.name(*executor)));
            }
            _ => {}
        }
    }

    fn is_it(&self, object: ObjectId) -> bool {
        self.object == Some(object)
    }

    fn name(&self, executor: ExecutorId) -> String {
        match self.names.get(&executor).filter(|name| !name.is_empty()) {
            Some(name) => line_of(name).to_string(),
            None => format!("executor {executor}"),
        }
    }

    /// In the order in which people count nodes: executors join in any order.
    fn names_of<'e>(&self, executors: impl IntoIterator<Item = &'e ExecutorId>) -> Vec<String> {
        let mut names: Vec<String> = executors.into_iter().map(|executor| self.name(*executor)).collect();
        names.sort_by_cached_key(|name| natural(name));
        names
    }

    fn tell(&mut self, t: Timestamp, sentence: String) {
        self.steps.push(FileStep { t, sentence });
    }

    fn finish(self) -> Option<FileStory> {
        let there = self.names_of(&self.there);
        (!self.runs.is_empty()).then(|| FileStory {
            file: self.file.into(),
            runs: self.runs.into_iter().collect(),
            steps: self.steps,
            there,
        })
    }
}

/// The story in words. `name`: the file as users write it.
pub fn file_lines(story: &FileStory, name: &str) -> String {
    let mut text = format!("{}\n", line_of(name));
    let began = story.steps.first().map_or(Timestamp(0), |step| step.t);
    for step in &story.steps {
        let _ = writeln!(text, "  after {:>9}  {}", units::duration(step.t.since_ns(began)), step.sentence);
    }
    let _ = match story.there.is_empty() {
        true => writeln!(text, "No node has it now, as far as the log says."),
        false => writeln!(text, "It is on {} now, as far as the log says.", story.there.join(", ")),
    };
    text
}
