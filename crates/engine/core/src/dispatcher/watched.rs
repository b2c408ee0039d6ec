//! Files that watched tasks read and make without a declaration.
//!
//! A file that the program names becomes an object like a declared input: the run reads one version of it, and an executor that has
//! it is named as a source. What the program made becomes an output of the attempt, once it is known that nobody else makes or reads
//! it: in one run a file has one writer, which ends before others read (`Zhang12` §V-B).
//!
//! Why a file that another task makes is refused while it is not made: that paper puts the reader away until then, which it can,
//! because the reader has not begun. Here the reader runs, and would hold a slot that the maker may need.

use super::{Dispatcher, End, Reserved};
use crate::event::Action;
use eyas_terms::{AttemptNo, ExecutorId, ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;

const NOT_WANTED: &str = "this attempt is not wanted any more";

impl Dispatcher {
    pub(super) fn on_file_opened(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        id: (TaskId, AttemptNo),
        location: String,
        out: &mut Vec<Action>,
    ) {
        let (task, attempt) = id;
        if self.watched(executor, id).is_none() {
            let input = Err(NOT_WANTED.to_owned());
            return out.push(Action::AddInput { executor, task, attempt, location, input });
        }
        let run = self.work.tasks.run_of(task);
        let input = match self.why_not_read(run, task, &location) {
            Some(why) => Err(why),
            None => {
                let object = self.name_file(run, &location);
                self.work.run_mut(run).named.entry(object).or_insert(task);
                Ok(Box::new(self.assigned_input(now, executor, run, object, None)))
            }
        };
        out.push(Action::AddInput { executor, task, attempt, location, input });
    }

    pub(super) fn on_files_made(
        &mut self,
        executor: ExecutorId,
        id: (TaskId, AttemptNo),
        locations: &[String],
        out: &mut Vec<Action>,
    ) {
        let (task, attempt) = id;
        if self.watched(executor, id).is_none() {
            let outputs = Err(NOT_WANTED.to_owned());
            return out.push(Action::AdmitOutputs { executor, task, attempt, outputs });
        }
        let run = self.work.tasks.run_of(task);
        let objects: Vec<ObjectId> = locations.iter().map(|location| self.name_file(run, location)).collect();
        let files = objects.iter().zip(locations);
        let refused =
            files.clone().find_map(|(object, location)| self.why_not_made(run, task, *object, location));
        let outputs = match refused {
            Some(why) => Err(why),
            None => {
                let reserved = self.schedule.attempts.reserved.get_mut(&task).expect("seen above");
                for object in &objects {
                    // After a reconnect they are said again.
                    if !reserved.outputs.contains(object) {
                        reserved.outputs.push(*object);
                        self.schedule.attempts.making.insert(*object, task);
                    }
                    reserved.lands = true;
                    self.work.runs.get_mut(&run).expect("a task's run is known").found.insert(*object, task);
                }
                Ok(objects)
            }
        };
        out.push(Action::AdmitOutputs { executor, task, attempt, outputs });
    }

    /// The attempt, if this executor has it still.
    fn watched(&self, executor: ExecutorId, (task, attempt): (TaskId, AttemptNo)) -> Option<&Reserved> {
        let reserved = self.schedule.attempts.reserved.get(&task)?;
        (reserved.executor == executor && reserved.attempt == attempt && !reserved.landing)
            .then_some(reserved)
    }

    fn name_file(&mut self, run: RunId, location: &str) -> ObjectId {
        let mut text = location.to_owned();
        let location = self.work.scope_of(run).put_into(&mut text);
        let object = self.work.catalog.intern(location);
        self.work.catalog.name(object, run);
        object
    }

    /// Why a task may not read a file now, as a sentence.
    fn why_not_read(&self, run: RunId, task: TaskId, location: &str) -> Option<String> {
        let mut text = location.to_owned();
        let object = self.work.catalog.find(self.work.scope_of(run).put_into(&mut text));
        let found = object.and_then(|object| self.work.runs[&run].found.get(&object).copied());
        let makers = found.into_iter().chain(self.work.tasks.find_maker(location));
        let mut unready = makers.filter(|maker| *maker != task && self.work.tasks.end_of(*maker) == End::Not);
        if let Some(maker) = unready.next() {
            return Some(format!(
                "task {maker} makes {location} and has not ended: declare it as an input, so that this task waits for it",
                maker = shown(&self.work.tasks.user_id(maker)),
                location = shown(location)
            ));
        }
        let object = object?;
        let has_changed = self.work.runs[&run].changed.contains(&object);
        has_changed.then(|| format!("{} changed since this run first read it", shown(location)))
    }

    /// Why a file may not be an output of a task, as a sentence.
    fn why_not_made(&self, run: RunId, task: TaskId, object: ObjectId, location: &str) -> Option<String> {
        let user_id = |task| shown(&self.work.tasks.user_id(task)).to_string();
        let found = self.work.runs[&run].found.get(&object).copied();
        let declared = self.work.tasks.find_maker(location);
        let declared = declared.filter(|maker| {
            self.work.tasks.run_of(*maker) == run || self.work.tasks.end_of(*maker) == End::Not
        });
        let has_failed = |of: TaskId| matches!(self.work.tasks.end_of(of), End::Failed | End::Cancelled);
        if let Some(other) = found.or(declared).filter(|other| *other != task && !has_failed(*other)) {
            return Some(format!(
                "tasks {other} and {this} both write {location}; give each its own output",
                other = user_id(other),
                this = user_id(task),
                location = shown(location)
            ));
        }
        let named = self.work.runs[&run].named.get(&object).is_some_and(|other| *other != task);
        let is_known = named && self.work.known_bytes(object).is_some();
        let is_read = found.is_none() && (is_known || self.work.catalog.checked_run(object) == Some(run));
        is_read.then(|| {
            format!(
                "task {this} writes {location}, which this run has read before: all tasks of a run read the same bytes, so write to another name",
                this = user_id(task),
                location = shown(location)
            )
        })
    }
}
