//! Submissions: of runs, of parts of runs, and into runs that go on.
//!
//! A submission is accepted when its commit is durable, and not before. One whose client goes away before that is given up.

use super::{Effect, Outside, Record, Session};
use eyas_core::dispatcher::has_ended;
use eyas_core::event::Event;
use eyas_terms::array::TaskArray;
use eyas_terms::location::{CatalogLocation, Location, MadeLocation};
use eyas_terms::{Digest, RunId};
use eyas_text::shown;
use eyas_wire::message::{Addition, Keep, ReplyBody, Request, RequestBody};
use eyas_wire::users::Principal;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Submissions that are not decided yet, and what has to be remembered of those that are.
#[derive(Default)]
pub(super) struct Submissions {
    /// Who submits a run that is not committed yet.
    pub(super) submitting: BTreeMap<RunId, u64>,
    /// Submissions whose commit the journal is writing. Nothing but the disk decides what becomes of them: were one given up now, a
    /// restart could still find its commit.
    pub(super) sealed: BTreeSet<RunId>,
    /// Why submissions will be refused when their clients commit them.
    pub(super) refused: BTreeMap<RunId, String>,
    /// Submissions into runs, by the number of the submission.
    pub(super) adding: BTreeMap<RunId, Adding>,
    /// What was added, by run and token.
    pub(super) added: BTreeMap<(RunId, String), Added>,
    /// Requests that wait until a submission into a run in parts is decided.
    pub(super) deferred: Vec<(u64, Request)>,
    /// A submission was decided since: the deferred requests are looked at again.
    decided: bool,
    pub(super) ahead: Ahead,
    /// Submissions that were given up, of which the journal does not say so yet: they were open when the last process died, or
    /// it had no room.
    pub(super) aborts_owed: Vec<RunId>,
}

impl Submissions {
    /// Whether this connection submits the run, and has not committed it.
    pub(super) fn is_by(&self, run: RunId, connection: u64) -> bool {
        self.submitting.get(&run) == Some(&connection)
    }

    /// The submission comes to nothing.
    pub(super) fn give_up(&mut self, run: RunId) {
        self.adding.remove(&run);
        self.refused.remove(&run);
    }

    /// What a connection submits that is gone, unless the journal is writing its commit.
    pub(super) fn orphans_of(&self, connection: u64) -> Vec<RunId> {
        let is_orphan = |(run, c): &(&RunId, &u64)| **c == connection && !self.sealed.contains(run);
        self.submitting.iter().filter(is_orphan).map(|(run, _)| *run).collect()
    }
}

/// Numbers of tasks that no other process gives, so that tasks with them may start before the journal has their submission. Were this
/// process killed then, the next one would not know what executors have of them, and would take it for its own if it gave the same number.
#[derive(Default)]
pub(super) struct Ahead {
    /// Below this number; durable.
    pub(super) taken: u64,
    /// What the journal was asked for.
    wanted: u64,
}

/// So many numbers are taken at once.
const AHEAD: u64 = 10_000;

/// A submission into a run that goes on.
pub(super) struct Adding {
    pub(super) addition: Addition,
    /// Its commit is on its way to the disk.
    pub(super) sealed: bool,
}

/// What was added to a run with a token.
pub(super) struct Added {
    /// The number of the submission.
    pub(super) number: RunId,
    digest: Digest,
    n_tasks: u64,
}

impl Added {
    pub(super) fn n_tasks(&self) -> u64 {
        self.n_tasks
    }
}

/// Whether nodes can read the file at home and send it to each other.
fn is_of_home(file: &str) -> bool {
    let of_runs = CatalogLocation::of(file).stays() || Location::of(file).stays();
    !file.is_empty() && !of_runs && MadeLocation::of(file).is_none()
}

impl<O: Outside> Session<O> {
    pub(super) fn on_open(&mut self, connection: u64, request: Request) {
        let Request { number, body: RequestBody::OpenRun { name, keep, into } } = request else { return };
        if let Some(reason) = self.why_not_opened() {
            return self.refuse(connection, number, reason);
        }
        let mut was_over = false;
        if let Some(addition) = &into {
            if self.is_answered(connection, number, addition) {
                return;
            }
            let whole = addition.run;
            if self.is_in_parts(whole) && self.submissions.adding.values().any(|a| a.addition.run == whole) {
                let body = RequestBody::OpenRun { name, keep, into };
                return self.submissions.deferred.push((connection, Request { number, body }));
            }
            was_over = self.is_over(whole);
        }
        let run = self.take_number();
        self.open(connection, run, name, keep, into);
        let incarnation = self.options.incarnation;
        self.reply(connection, number, ReplyBody::RunOpened { run, was_over, incarnation });
    }

    fn take_number(&mut self) -> RunId {
        let run = RunId(self.next_run);
        self.next_run += 1;
        run
    }

    /// A whole submission in one request.
    pub(super) fn on_submit(
        &mut self,
        connection: u64,
        number: u64,
        (name, keep, into): (String, Keep, Option<Addition>),
        array: Arc<TaskArray>,
        listener: Option<u64>,
    ) {
        if self.group.is_some() {
            let reason = "a dispatcher of a group takes submissions in parts, one for each dispatcher";
            return self.refuse(connection, number, reason.into());
        }
        if into.as_ref().is_some_and(|addition| self.is_answered(connection, number, addition)) {
            return;
        }
        let run = self.take_number();
        self.open(connection, run, name, keep, into);
        self.take_array(connection, run, array);
        self.on_commit(connection, number, run);
        if self.submissions.sealed.contains(&run)
            && let Some(listener) = listener
        {
            self.tell_listener(connection, listener, run);
        }
    }

    /// A submission begins: of a run, of a part of one, or into one.
    pub(super) fn open(
        &mut self,
        connection: u64,
        run: RunId,
        name: String,
        keep: Keep,
        into: Option<Addition>,
    ) {
        self.submissions.submitting.insert(run, connection);
        // What was given up has to be over before: the same number may be given again, and a later restart reads in this order.
        for owed in std::mem::take(&mut self.submissions.aborts_owed) {
            self.journal(&Record::RunAborted { run: owed }, None);
        }
        let whole = into.as_ref().map(|addition| addition.run);
        let Keep { files: keep, printed } = keep;
        self.journal(&Record::RunOpened { run, name: name.clone(), keep, into: into.clone() }, None);
        self.submissions.adding.extend(into.map(|addition| (run, Adding { addition, sealed: false })));
        self.feed(Event::RunOpened { run, name, keep, into: whole });
        if let (None, Principal::User(owner)) = (whole, self.principal_of(connection).clone()) {
            self.journal(&Record::RunOwned { run, owner: owner.clone() }, None);
            self.feed(Event::RunOwned { run, owner });
        }
        self.prints.whole.remove(&run);
        if printed && whole.is_none() {
            self.journal(&Record::RunPrintsWhole { run }, None);
            self.prints.whole.insert(run);
        }
        if whole.is_none() {
            let at = self.core.work().find_run(run).expect("it was just opened").opened;
            self.journal(&Record::RunOpenedAt { run, at }, None);
        }
    }

    /// Whether all tasks of `run` that are here have ended for good.
    pub(super) fn is_over(&self, run: RunId) -> bool {
        self.core.work().find_run(run).is_some_and(|r| r.ended.is_some())
    }

    /// Requests that waited for what has been decided now.
    pub(super) fn take_deferred(&mut self) {
        if std::mem::take(&mut self.submissions.decided) {
            for (connection, request) in std::mem::take(&mut self.submissions.deferred) {
                self.on_request(connection, request);
            }
        }
    }

    /// Whether somebody who wants to add tasks to a run has got an answer, or will get one, without a submission.
    fn is_answered(&mut self, connection: u64, number: u64, wanted: &Addition) -> bool {
        let Addition { run, token, digest } = wanted;
        let is_same = |a: &Adding| (a.addition.run, &a.addition.token) == (*run, token);
        let adding = self.submissions.adding.iter().find(|(_, a)| is_same(a));
        let adding = adding.map(|(first, a)| (*first, a.sealed, a.addition.digest));
        let known = self.submissions.added.get(&(*run, token.clone())).map(|a| (a.n_tasks, a.digest));
        let earlier = known.map(|k| k.1).or(adding.map(|a| a.2));
        let answer = match (earlier, known, adding) {
            (Some(other), _, _) if other != *digest => {
                let reason = format!(
                    "the token {token} was used to add other tasks to run {run}",
                    token = shown(token)
                );
                ReplyBody::Refused { reason }
            }
            (_, Some((n_tasks, _)), _) => ReplyBody::RunAccepted { run: *run, n_tasks, again: true },
            (_, None, Some((_, true, _))) => {
                // Its commit is not durable yet.
                let again = Effect::AddedAgain { connection, number, run: *run, token: token.clone() };
                self.recording.wait_with_latest(again);
                return true;
            }
            (_, None, unsealed) => {
                // The same client, whose connection broke, and that is not known yet.
                unsealed.into_iter().for_each(|(first, _, _)| self.abort(first));
                match self.core.work().why_closed(*run) {
                    Some(_) if self.core.work().find_run(*run).is_none() => {
                        ReplyBody::Refused { reason: self.no_run(*run) }
                    }
                    Some(reason) => ReplyBody::Refused { reason },
                    // Of a run in parts, the core would take it for one whose other parts go on.
                    None if self.is_being_forgotten(*run) => ReplyBody::Refused { reason: has_ended(*run) },
                    None if self.submissions.submitting.contains_key(run) => {
                        ReplyBody::Refused { reason: format!("run {run} is being submitted itself") }
                    }
                    None => return false,
                }
            }
        };
        self.reply(connection, number, answer);
        true
    }

    /// Appends a record of a submission that is not complete. When the journal has no room for it because
    /// the disk refuses, the submission is refused: waiting would silence the dispatcher for everybody.
    pub(super) fn journal_submission(&mut self, run: RunId, record: &Record<'_>) -> bool {
        // A later restart reads the journal in this order: what was given up has to be over before somebody else writes the
        // same files.
        while let Some(owed) = self.submissions.aborts_owed.last().copied() {
            if !self.append_submission(run, &Record::RunAborted { run: owed }) {
                return false;
            }
            self.submissions.aborts_owed.pop();
        }
        self.append_submission(run, record)
    }

    fn append_submission(&mut self, run: RunId, record: &Record<'_>) -> bool {
        let appended = self.outside.try_append(record);
        if let Err(why) = &appended {
            self.submissions
                .refused
                .insert(run, format!("the dispatcher cannot keep this submission: {why}"));
        }
        appended.is_ok()
    }

    pub(super) fn abort(&mut self, run: RunId) {
        self.submissions.decided = true;
        self.submissions.submitting.remove(&run);
        self.submissions.give_up(run);
        // Without its commit no run comes back, but until this is in the journal its tasks still have their outputs' names.
        if self.outside.try_append(&Record::RunAborted { run }).is_err() {
            self.submissions.aborts_owed.push(run);
        }
        self.recording.hurry();
        self.feed(Event::RunAborted { run });
        self.tell_decided(run);
    }

    /// The submission `run` is durable. Gives the run that its tasks are in now, and how many they are.
    pub(super) fn on_committed(&mut self, run: RunId) -> (RunId, u64) {
        self.submissions.decided = true;
        let n_tasks = self.core.work().find_run(run).map_or(0, |r| r.tasks.n_tasks);
        self.feed(Event::RunCommitted { run });
        let Some(Adding { addition: Addition { run: whole, token, digest }, .. }) =
            self.submissions.adding.remove(&run)
        else {
            return (run, n_tasks);
        };
        self.submissions.added.insert((whole, token), Added { number: run, digest, n_tasks });
        // Read back from the journal: ends of its tasks.
        let ended = self.recording.durable.remove(&run).unwrap_or_default();
        self.recording.durable.entry(whole).or_default().add(&ended);
        (whole, n_tasks)
    }

    pub(super) fn on_array(&mut self, connection: u64, number: u64, run: RunId, array: Arc<TaskArray>) {
        if !self.submissions.is_by(run, connection) || self.submissions.refused.contains_key(&run) {
            return;
        }
        self.take_array(connection, run, array);
        if let Some(reason) = self.submissions.refused.get(&run).cloned() {
            self.refuse(connection, number, reason);
        }
    }

    /// Tasks of a submission; where they are refused, its commit is.
    fn take_array(&mut self, connection: u64, run: RunId, array: Arc<TaskArray>) {
        let reason = match array.check() {
            Err(why) => format!("a group of tasks is malformed: {why}"),
            Ok(()) if array.template.dynamic && *self.principal_of(connection) != Principal::Owner => {
                "tasks that add tasks (`dynamic`) are the cluster's owner's: they would get the cluster's own key"
                    .into()
            }
            Ok(()) => {
                if self.journal_submission(run, &Record::ArrayAdded { run, array: Cow::Borrowed(&array) }) {
                    self.feed(Event::ArrayAdded { run, array });
                }
                return;
            }
        };
        self.submissions.refused.insert(run, reason);
    }

    /// Files of home that a run wants on nodes: an active push.
    pub(super) fn on_want_files(
        &mut self,
        connection: u64,
        number: u64,
        run: RunId,
        files: &[String],
        nodes: &[String],
    ) {
        if !self.submissions.is_by(run, connection) || self.submissions.refused.contains_key(&run) {
            return;
        }
        let is_addition = self.submissions.adding.contains_key(&run);
        let refused = files.iter().find(|file| !is_of_home(file)).map(|file| {
            format!("{} cannot be pushed: only files of home can, which nodes read as they are", shown(file))
        });
        let refused = match () {
            () if self.group.is_some() => {
                Some("files are pushed in a cluster of one dispatcher, and this one has several".to_owned())
            }
            () if is_addition => {
                Some("files are pushed by a run of its own, not by what is added to one".to_owned())
            }
            () => refused,
        };
        if let Some(reason) = refused {
            self.submissions.refused.insert(run, reason.clone());
            return self.refuse(connection, number, reason);
        }
        let record = Record::FilesWanted { run, files: Cow::Borrowed(files), nodes: Cow::Borrowed(nodes) };
        if self.journal_submission(run, &record) {
            self.feed(Event::FilesWanted { run, files: files.to_vec(), nodes: nodes.to_vec() });
        } else if let Some(reason) = self.submissions.refused.get(&run).cloned() {
            self.refuse(connection, number, reason);
        }
    }

    pub(super) fn on_commit(&mut self, connection: u64, number: u64, run: RunId) {
        if !self.submissions.is_by(run, connection) {
            let reason = format!("run {run} is not being submitted by this client");
            return self.refuse(connection, number, reason);
        }
        let refused = self.submissions.refused.remove(&run);
        let reason = refused.or_else(|| self.core.why_not_added(run)).or_else(|| self.why_never_fits(run));
        if let Some(reason) = reason {
            self.abort(run);
            return self.refuse(connection, number, reason);
        }
        if let Some(adding) = self.submissions.adding.get_mut(&run) {
            adding.sealed = true;
        }
        self.submissions.sealed.insert(run);
        let effect = Effect::RunAccepted { connection, number, run };
        self.journal(&Record::RunCommitted { run }, Some(effect));
        if self.group.is_none() && self.core.has_no_files(run) {
            self.start_ahead(run);
        }
    }

    /// Starts tasks while the journal is written. Their ends wait for it, and so does the answer to the submission.
    fn start_ahead(&mut self, run: RunId) {
        let next = self.core.next_task().0;
        if next <= self.submissions.ahead.taken {
            self.feed(Event::RunStarted { run });
        }
        // They go to the disk with the commit.
        if next + AHEAD / 2 > self.submissions.ahead.wanted {
            let n_tasks = next + AHEAD;
            self.submissions.ahead.wanted = n_tasks;
            self.journal(&Record::NumbersTaken { n_tasks }, Some(Effect::NumbersTaken { n_tasks }));
        }
    }

    /// Why a run of this dispatcher alone would fail for the size of a task. Dispatchers of a group have nodes for each other.
    fn why_never_fits(&self, run: RunId) -> Option<String> {
        if self.group.is_some() || self.submissions.adding.contains_key(&run) {
            return None;
        }
        let why = self.core.why_never_fits(self.now, run, self.pending_nodes().0 == 0)?;
        Some(format!("{why}; ask for less, or start a larger node first"))
    }
}
