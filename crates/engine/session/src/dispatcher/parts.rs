//! Runs in parts, from the side of one dispatcher of the group.
//!
//! A run in parts is opened at the first member of the group, and that member decides whether it is committed. The
//! steps are: the client hands each dispatcher its part; then it asks all other members to *prepare* their parts. A
//! prepared part is durable, and its dispatcher no longer gives it up on its own. At last the client asks the first
//! member to commit. What stands in the first member's journal is what happened. The first member tells the decision to
//! the others, and tells it again to members that were away. A run that the first member does not know was not
//! committed.
//!
//! Tasks that are added to a run in parts come as a submission in parts into that run. The first member lets in one
//! such submission after the other. Each other member begins with the next one only when it knows what became of the
//! one before. So what a client hears when it asks all members about files
//! ([`eyas_core::dispatcher::Dispatcher::consult`]) holds until its own submission is decided.
//!
//! Not here: how a submission is split ([`eyas_core::group::split`]), what files cross (`core`'s `exchange`).

use super::{Effect, Group, Outside, Record, Session};
use eyas_core::event::Event;
use eyas_core::group::RunLinks;
use eyas_core::pattern::RunPatterns;
use eyas_terms::array::TaskArray;
use eyas_terms::{MemberId, RunId};
use eyas_wire::message::{Addition, FromMember, ReplyBody, Request, RequestBody};
use std::borrow::Cow;

impl<O: Outside> Session<O> {
    pub(super) fn opens_runs(&self) -> bool {
        self.group.as_ref().is_none_or(Group::is_first)
    }

    /// Why no run can be opened here, if it cannot.
    pub(super) fn why_not_opened(&self) -> Option<String> {
        (!self.opens_runs()).then(|| "the runs of a group are opened at its first dispatcher".into())
    }

    /// Whether `run` is one in parts, as far as this member was told.
    pub(super) fn is_in_parts(&self, run: RunId) -> bool {
        self.group.as_ref().is_some_and(|g| g.linked.contains(&run))
    }

    /// Whether the submission `run` has to wait: the run that it adds to, or another submission into that run, is decided, and
    /// this member does not know the decision yet. The first member begins with a submission when the one before is decided, and
    /// commits none that is not prepared here. So an earlier submission that is not prepared here has been given up, and so has
    /// one with the same token.
    fn has_to_wait(&mut self, run: RunId, addition: &Addition) -> bool {
        let others = self.submissions.adding.iter().filter(|(_, other)| other.addition.run == addition.run);
        let others = others.map(|(number, other)| (*number, other.addition.token == addition.token));
        for (other, is_again) in others.collect::<Vec<_>>() {
            let is_prepared = self.group.as_ref().is_some_and(|g| g.in_doubt.contains(&other));
            // The first member has begun with a later submission, so it has given this one up. The client may not know it yet.
            if is_again || (!is_prepared && other < run) {
                self.forget_prepared(other);
                self.abort(other);
            }
        }
        let is_in_doubt = self.group.as_ref().is_some_and(|g| g.in_doubt.contains(&addition.run));
        is_in_doubt || self.submissions.adding.values().any(|other| other.addition.run == addition.run)
    }

    pub(super) fn on_join_run(&mut self, connection: u64, request: Request) {
        let Request { number, body: RequestBody::JoinRun { run, opened_by, name, keep, into } } = request
        else {
            return;
        };
        if let Some(group) = &mut self.group {
            if opened_by < group.last_opener {
                // The client is late. A later submission may have its number by now, and keeps it.
                return self.reply(connection, number, ReplyBody::OpenerGone);
            }
            group.last_opener = opened_by;
        }
        let is_in_doubt = self.group.as_ref().is_some_and(|g| g.in_doubt.contains(&run));
        if is_in_doubt || self.submissions.submitting.get(&run).is_some_and(|other| *other != connection) {
            // The first member gives the number again: it was killed before it had the other run for sure. The client of
            // that run may not know it yet.
            self.forget_prepared(run);
            self.abort(run);
        }
        if let Some(addition) = &into
            && self.has_to_wait(run, addition)
        {
            // The first member does one after the other, and tells in a moment what became of the one before.
            let body = RequestBody::JoinRun { run, opened_by, name, keep, into };
            return self.submissions.deferred.push((connection, Request { number, body }));
        }
        let whole = into.as_ref().map(|addition| addition.run);
        let why_not = match whole {
            // There are as many numbers as runs; the last one leaves none for the next.
            _ if run.0 == u32::MAX => Some(format!("there cannot be a run {run}")),
            // The number may be that of tasks which were added to a run: the first member was killed before it had this
            // submission for sure, and gave the number again. In the journal the one would end the other.
            _ if self.group.is_none()
                || self.opens_runs()
                || self.core.work().find_run(run).is_some()
                || self.submissions.added.values().any(|added| added.number == run) =>
            {
                Some(format!("run {run} cannot have a part here"))
            }
            Some(whole) => self.core.work().why_closed(whole),
            None => None,
        };
        if let Some(reason) = why_not {
            return self.refuse(connection, number, reason);
        }
        self.next_run = self.next_run.max(run.0 + 1);
        let was_over = whole.is_some_and(|whole| self.is_over(whole));
        self.open(connection, run, name, keep, into);
        let incarnation = self.options.incarnation;
        self.reply(connection, number, ReplyBody::RunOpened { run, was_over, incarnation });
    }

    pub(super) fn on_consult(&mut self, connection: u64, number: u64, run: RunId, array: &TaskArray) {
        let body = match array.check() {
            Err(why) => ReplyBody::Refused { reason: format!("a group of tasks is malformed: {why}") },
            Ok(()) if !self.submissions.is_by(run, connection) => self.not_submitting(run),
            Ok(()) => ReplyBody::Consulted(Box::new(self.core.consult(run, array))),
        };
        self.reply(connection, number, body);
    }

    pub(super) fn on_link_run(
        &mut self,
        connection: u64,
        number: u64,
        run: RunId,
        links: RunLinks,
        patterns: RunPatterns,
    ) {
        if self.group.is_none() {
            let reason = format!("run {run} has no parts");
            return self.refuse(connection, number, reason);
        }
        if !self.submissions.is_by(run, connection) {
            return self.reply(connection, number, self.not_submitting(run));
        }
        if self.journal_submission(run, &Record::RunLinked { run, links: Cow::Borrowed(&links) }) {
            self.on_linked(run, links);
        }
        if patterns != RunPatterns::default()
            && self.journal_submission(run, &Record::RunPatterns { run, patterns: Cow::Borrowed(&patterns) })
        {
            self.feed(Event::RunPatterns { run, patterns });
        }
        if let Some(reason) = self.submissions.refused.get(&run).cloned() {
            self.refuse(connection, number, reason);
        }
    }

    pub(super) fn on_linked(&mut self, run: RunId, links: RunLinks) {
        if let Some(group) = &mut self.group {
            group.linked.insert(run);
            self.feed(Event::RunLinked { run, links });
        }
    }

    pub(super) fn on_prepare_run(&mut self, connection: u64, number: u64, run: RunId) {
        if !self.submissions.is_by(run, connection) {
            self.reply(connection, number, self.not_submitting(run));
        } else if let Some(reason) = self.submissions.refused.remove(&run) {
            self.abort(run);
            self.refuse(connection, number, reason);
        } else {
            let effect = Effect::RunPrepared { connection, number, run };
            self.journal(&Record::RunPrepared { run }, Some(effect));
        }
    }

    /// The answer to a client that speaks of its submission `run`, which is not here, or is another client's.
    fn not_submitting(&self, run: RunId) -> ReplyBody {
        match self.opens_runs() {
            true => ReplyBody::Refused { reason: format!("run {run} is not being submitted by this client") },
            // A member gives up a client's part without a word only when that client's submission was given up where it was
            // opened.
            false => ReplyBody::OpenerGone,
        }
    }

    /// No part of `run` is here any more.
    pub(super) fn forget_part(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.linked.remove(&run);
        }
    }

    /// A part is durable: this member does not give it up when the client goes.
    pub(super) fn on_prepared(&mut self, connection: u64, number: u64, run: RunId) {
        // The client may have gone away before, and the number may be another client's by now.
        if !self.submissions.is_by(run, connection) {
            return self.reply(connection, number, self.not_submitting(run));
        }
        self.submissions.submitting.remove(&run);
        self.note_prepared(run);
        let n_tasks = self.core.work().find_run(run).map_or(0, |r| r.tasks.n_tasks);
        self.reply(connection, number, ReplyBody::RunPrepared { run, n_tasks });
    }

    pub(super) fn note_prepared(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.in_doubt.insert(run);
        }
    }

    pub(super) fn forget_prepared(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.in_doubt.remove(&run);
        }
    }

    /// The first member tells the others what became of a submission in parts. A member that does not hear it asks.
    pub(super) fn tell_decided(&mut self, run: RunId) {
        if self.opens_runs() {
            let committed = self.core.is_accepted(run);
            self.tell_members(&FromMember::Decided { run, committed });
        }
    }

    /// Asks the first member about the submissions that are in doubt here. That is done from time to time, because the first
    /// member's answer may have come too early, or not at all.
    pub(super) fn ask_doubts(&mut self) {
        let Some(group) = self.group.as_ref().filter(|group| !group.in_doubt.is_empty()) else { return };
        let runs = group.in_doubt.iter().copied().collect();
        self.tell_member(MemberId(0), &FromMember::InDoubt { runs });
    }

    pub(super) fn on_doubts(&mut self, member: MemberId, runs: &[RunId]) {
        // A submission that the first member does not know was never committed.
        for run in runs.iter().copied() {
            if self.opens_runs() && !self.submissions.submitting.contains_key(&run) {
                let committed = self.core.is_accepted(run);
                self.tell_member(member, &FromMember::Decided { run, committed });
            }
        }
    }

    pub(super) fn on_decided(&mut self, run: RunId, committed: bool) {
        if !self.group.as_mut().is_some_and(|group| group.in_doubt.remove(&run)) {
            return;
        }
        if committed {
            // If this record does not become durable, the submission is in doubt again after a restart, and the first member's
            // answer is the same.
            self.journal(&Record::RunCommitted { run }, None);
            self.on_committed(run);
        } else {
            self.abort(run);
        }
    }
}
