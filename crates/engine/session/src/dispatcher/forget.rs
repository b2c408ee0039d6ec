//! Runs that are forgotten because the core or a client says so.
//!
//! A run is forgotten when the journal says so ([`Record::RunForgotten`]) and that is durable; the core hears of it then. When
//! many records in the journal and the event log belong to forgotten tasks, the driver is asked to clean the journal ([`super::clean`]),
//! and to cut the event log.
//!
//! Not here: what the dispatchers of a group have to agree on before ([`super::forget_parts`]).

use super::{Effect, Outside, Record, Session};
use eyas_core::event::Event;
use eyas_terms::RunId;
use eyas_wire::message::ReplyBody;
use std::collections::BTreeSet;

/// The journal and the event log are cleaned when the number of forgotten tasks in them is the number of known tasks divided by
/// this. A larger number means smaller files, of which each byte is written more often.
const KNOWN_FOR_EACH_FORGOTTEN: u64 = 4;

/// A client that waits until the runs that it named are forgotten.
pub(super) struct Asker {
    connection: u64,
    number: u64,
    runs: Vec<RunId>,
}

/// What the journal still says of forgotten runs.
#[derive(Default)]
pub(super) struct Forgetting {
    /// Runs whose record that they are forgotten is on its way to the disk.
    asked: BTreeSet<RunId>,
    /// Tasks that were forgotten since the journal and the event log were last cleaned.
    n_tasks: u64,
    /// A run was forgotten, by this process or an earlier one with the same journal.
    pub(super) any: bool,
}

impl<O: Outside> Session<O> {
    /// A client wants these runs to be forgotten: all of them or, with the reason, none.
    pub(super) fn on_forget(&mut self, connection: u64, number: u64, mut runs: Vec<RunId>) {
        runs.sort_unstable();
        runs.dedup();
        if !self.opens_runs() {
            let reason = "the runs of a group are forgotten at its first dispatcher".into();
            return self.refuse(connection, number, reason);
        }
        let why_not = |run: &RunId| match self.core.work().find_run(*run) {
            None => Some(self.no_run(*run)),
            Some(_) => self.core.why_part_kept(*run),
        };
        if let Some(reason) = runs.iter().find_map(why_not) {
            return self.refuse(connection, number, reason);
        }
        match runs.iter().any(|run| self.core.why_kept(*run).is_some()) {
            true => self.wish(connection, number, runs),
            false => self.forget_all(connection, number, runs),
        }
    }

    /// Nothing keeps these runs, which are in the order of their numbers.
    pub(super) fn forget_all(&mut self, connection: u64, number: u64, runs: Vec<RunId>) {
        let Some(last) = runs.last().copied() else {
            return self.reply(connection, number, ReplyBody::Forgotten { runs });
        };
        for run in runs.clone() {
            let asker = (run == last).then(|| Asker { connection, number, runs: runs.clone() });
            self.record_forgotten(run, asker);
        }
    }

    /// The journal is to say that `run` is forgotten.
    pub(super) fn record_forgotten(&mut self, run: RunId, asker: Option<Asker>) {
        let is_first = self.forgetting.asked.insert(run);
        if is_first || asker.is_some() {
            self.journal(&Record::RunForgotten { run }, Some(Effect::RunForgotten { run, asker }));
        }
    }

    /// Whether the journal is writing that `run` is forgotten.
    pub(super) fn is_being_forgotten(&self, run: RunId) -> bool {
        self.forgetting.asked.contains(&run)
    }

    /// It is durable that `run` is forgotten.
    pub(super) fn on_forgotten(&mut self, run: RunId, asker: Option<Asker>) {
        // Clients that watch the run have yet to hear that it has ended.
        self.tell_watchers();
        self.tell_followers();
        self.forgetting.asked.remove(&run);
        if self.core.work().find_run(run).is_some_and(|r| r.ended.is_none()) {
            // A task of this part runs again, and no other task needs its files.
            self.forgetting_parts.follow(run);
        } else {
            self.forget_run(run);
        }
        self.tell_forgotten(run);
        if let Some(Asker { connection, number, runs }) = asker {
            self.reply(connection, number, ReplyBody::Forgotten { runs });
        }
        self.clean_files();
    }

    /// Has the journal and the event log cleaned if they are about many forgotten tasks. Runs that are being forgotten are
    /// waited for, so that the files are written once for all of them.
    fn clean_files(&mut self) {
        if !self.forgetting.asked.is_empty() {
            return;
        }
        let n_known: u64 = self.core.work().runs().map(|(_, r)| r.tasks.n_tasks).sum();
        let n_forgotten_max = n_known / KNOWN_FOR_EACH_FORGOTTEN;
        if self.forgetting.n_tasks >= self.options.clean_after_tasks.max(n_forgotten_max) {
            self.forgetting.n_tasks = 0;
            self.outside.clean_journal();
            self.outside.cut_log(self.first_run(), self.core.work().first_task());
        }
    }

    /// Forgets what is known of `run` and of submissions into it.
    pub(super) fn forget_run(&mut self, run: RunId) {
        self.forgetting.n_tasks += self.core.work().find_run(run).map_or(0, |r| r.tasks.n_tasks);
        self.forgetting.any = true;
        self.recording.durable.remove(&run);
        self.submissions.added.retain(|(of, _), _| *of != run);
        self.forget_part(run);
        self.prints.whole.remove(&run);
        self.feed(Event::RunForgotten { run });
        self.forget_names();
    }

    /// The oldest run that is not forgotten; if there is none, the next one.
    pub(super) fn first_run(&self) -> RunId {
        self.core.work().runs().map(|(run, _)| run).next().unwrap_or(RunId(self.next_run))
    }

    /// The sentence that refuses a request about a run which is not known here.
    pub(super) fn no_run(&self, run: RunId) -> String {
        match run.0 > 0 && run.0 < self.next_run {
            // Additions and what was refused have numbers, too.
            true => format!("there is no run {run}: it has ended and was forgotten, or was never accepted"),
            false => format!("there is no run {run}"),
        }
    }
}
