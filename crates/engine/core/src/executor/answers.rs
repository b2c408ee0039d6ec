//! What home has answered about objects, and the questions that it has not answered yet.

use super::AttemptId;
use crate::event::{HomeAnswer, NodeAction};
use eyas_terms::{HomeVersion, ObjectId, RunId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The number of home's answers that are kept whether anything needs them or not.
const ANSWERS_MIN: usize = 8_192;

/// A question to home that is not answered yet.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The newest run for which the question was asked.
    pub run: RunId,
    /// The attempts that wait for the answer, each with its input's number.
    pub waiters: Vec<(AttemptId, u32)>,
    /// Attempts of newer runs: home may have changed since the question was asked, so it is asked again for
    /// them.
    pub later: Vec<(AttemptId, u32)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct HomeAnswers {
    /// Home's last answer about an object, and the run for which it was asked.
    last: FxHashMap<ObjectId, (RunId, HomeAnswer)>,
    /// The number of answers that were left when unneeded ones were forgotten the last time.
    n_left: usize,
    /// Home has answered for some objects that they can be read in place.
    any_in_place: bool,
    asking: BTreeMap<ObjectId, Asking>,
}

impl HomeAnswers {
    /// Home's last answer about the object, and the run for which it was asked.
    pub fn last(&self, object: ObjectId) -> Option<&(RunId, HomeAnswer)> {
        self.last.get(&object)
    }

    /// Whether home has answered that the object can be read in place.
    pub fn is_in_place(&self, object: ObjectId) -> bool {
        self.any_in_place && self.last.get(&object).is_some_and(|(_, answer)| answer.in_place)
    }

    pub fn keep(&mut self, object: ObjectId, asked_run: RunId, answer: HomeAnswer) {
        self.any_in_place |= answer.in_place;
        self.last.insert(object, (asked_run, answer));
    }

    /// The object was read from home in this version. Without an answer about it nothing changes.
    pub fn was_read(&mut self, object: ObjectId, version: &HomeVersion) {
        self.last.entry(object).and_modify(|(_, answer)| answer.version = version.clone());
    }

    /// From now on home is asked again about every object, for whatever run.
    #[allow(clippy::disallowed_methods, reason = "each answer is changed by itself, in whatever order")]
    pub fn outdate(&mut self) {
        for (asked_run, _) in self.last.values_mut() {
            *asked_run = RunId(0);
        }
    }

    /// Whether there are so many answers that some should be forgotten.
    pub fn are_many(&self) -> bool {
        self.last.len() > ANSWERS_MIN.max(2 * self.n_left)
    }

    /// Forgets the answers about other objects.
    pub fn retain(&mut self, is_needed: impl Fn(ObjectId) -> bool) {
        self.last.retain(|object, _| is_needed(*object));
        self.n_left = self.last.len();
    }

    /// The open question about the object; asks it for `run` if there is none. `reads`: its answer will be followed by a read.
    pub fn ask(
        &mut self,
        object: ObjectId,
        run: RunId,
        reads: bool,
        out: &mut Vec<NodeAction>,
    ) -> &mut Asking {
        self.asking.entry(object).or_insert_with(|| {
            out.push(NodeAction::AskHome { object, reads });
            Asking { run, ..Asking::default() }
        })
    }

    /// The question about the object is answered. Gives who waits for this answer; for the others of newer runs, of which the newest
    /// is `newest_of` them, home is asked again.
    pub fn answered(
        &mut self,
        object: ObjectId,
        newest_of: impl Fn(&[(AttemptId, u32)]) -> Option<RunId>,
        out: &mut Vec<NodeAction>,
    ) -> Asking {
        let mut asking = self.asking.remove(&object).unwrap_or_default();
        if let Some(run) = newest_of(&asking.later) {
            let waiters = std::mem::take(&mut asking.later);
            self.asking.insert(object, Asking { run, waiters, later: vec![] });
            out.push(NodeAction::AskHome { object, reads: false });
        }
        asking
    }

    /// The open question about the object.
    pub fn asking(&self, object: ObjectId) -> Option<&Asking> {
        self.asking.get(&object)
    }

    /// The objects that home is asked about, ascending.
    pub fn asked(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.asking.keys().copied()
    }

    /// The attempt waits for no answer any more.
    pub fn stop_waiting(&mut self, id: AttemptId) {
        for asking in self.asking.values_mut() {
            asking.waiters.retain(|(waiter, _)| *waiter != id);
            asking.later.retain(|(waiter, _)| *waiter != id);
        }
    }
}
