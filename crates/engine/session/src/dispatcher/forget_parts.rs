//! Runs in parts that are forgotten: what the dispatchers of a group say to each other about it.
//!
//! The first member decides, as it decides what is accepted. It may forget a run when every part has ended, so it asks the others
//! ([`FromMember::AskEnded`]), once a second while it does not know of some run whether all parts have ended, and at once when a client waits.
//! It says which runs have ([`FromMember::AllEnded`]), since a name that only a forgotten or refused run had is kept as long as an older run
//! goes on anywhere.
//! A member answers for what its journal has on the disk, so its answer holds after a restart, too. An answer counts only if
//! that member has seen as many submissions into the run as the first member has: then nothing is on its way that adds tasks. Only
//! the first member lets additions in, and it lets none into a run that it is forgetting.
//!
//! The first member's journal is the decision ([`Record::RunForgotten`]). When that is durable, it announces the run
//! ([`FromMember::Forgotten`]), and each member writes the same into its own journal. A member that was away hears it on the
//! next connection: the first member begins each with the runs that it knows ([`FromMember::KnownRuns`]), and an accepted run that
//! is not among them is forgotten. So nothing is numbered or acknowledged, and nobody remembers who has still to hear of what.
//!
//! A part may begin again after it had ended: a file was lost, and its task runs again for other tasks, which may have ended
//! meanwhile. No task needs that file any more when the run is forgotten. So the task is cancelled, and the part is forgotten
//! when it has ended again. A submission into the run may be in doubt here: its client went away, and the first member has not
//! said whether it accepted the submission. Then the run stays until the first member has said so.
//!
//! Not here: which runs go and when ([`eyas_core::dispatcher::KeepRuns`]).

use super::{Effect, Group, Outside, Session};
use eyas_core::event::Event;
use eyas_core::group::PartEnd;
use eyas_terms::{MemberId, RunId, Timestamp};
use eyas_wire::message::FromMember;
use std::collections::{BTreeMap, BTreeSet};

/// A question to the other members that has no answer after this time is asked anew.
const INQUIRY_NS_MAX: u64 = 10_000_000_000;

/// A question of the first member to all others: which of their parts of these runs have ended?
struct Inquiry {
    number: u64,
    asked: Timestamp,
    /// The first member's own parts, as they had ended when it asked.
    own: BTreeMap<RunId, PartEnd>,
    answers: BTreeMap<MemberId, BTreeMap<RunId, PartEnd>>,
}

/// A client that wants runs to be forgotten and waits for the members' answers.
struct Wish {
    connection: u64,
    number: u64,
    runs: Vec<RunId>,
}

/// What this member has to do with the others about runs that are forgotten.
#[derive(Default)]
pub(super) struct ForgettingParts {
    inquiry: Option<Inquiry>,
    last_number: u64,
    wishes: Vec<Wish>,
    /// Runs that the first member has forgotten and that are still known here.
    following: BTreeSet<RunId>,
}

impl ForgettingParts {
    /// A client is gone.
    pub(super) fn left(&mut self, connection: u64) {
        self.wishes.retain(|wish| wish.connection != connection);
    }

    /// The first member has forgotten `run`; this member forgets it as soon as it can.
    pub(super) fn follow(&mut self, run: RunId) {
        self.following.insert(run);
    }
}

impl<O: Outside> Session<O> {
    // ------------------------------------------------------------ the first member asks

    /// A client's wish waits until all members have said that their parts of `runs` have ended. The wish is refused if a member
    /// is away.
    pub(super) fn wish(&mut self, connection: u64, number: u64, runs: Vec<RunId>) {
        if let Some(reason) = self.why_nobody_is_asked() {
            return self.refuse(connection, number, reason);
        }
        self.forgetting_parts.wishes.push(Wish { connection, number, runs });
        self.inquire();
    }

    fn why_nobody_is_asked(&self) -> Option<String> {
        let away: Vec<String> = self.members_away().iter().map(|m| (m.0 + 1).to_string()).collect();
        (!away.is_empty()).then(|| {
            let away = away.join(", ");
            format!(
                "nobody knows whether the run has ended at dispatcher {away}, which is away; try again later"
            )
        })
    }

    /// Asks the other members for the ends of runs, if there is anything to ask.
    pub(super) fn ask_ended(&mut self) {
        let inquiry = &self.forgetting_parts.inquiry;
        let is_under_way = inquiry.as_ref().is_some_and(|i| self.now.since_ns(i.asked) < INQUIRY_NS_MAX);
        if self.group.as_ref().is_some_and(Group::is_first) && !is_under_way && self.members_away().is_empty()
        {
            self.inquire();
        }
    }

    fn inquire(&mut self) {
        let own: BTreeMap<RunId, PartEnd> = self.core.runs_ended_in_part().collect();
        self.forgetting_parts.inquiry = None;
        if own.is_empty() {
            return self.grant_wishes();
        }
        let runs = own.keys().copied().collect();
        self.forgetting_parts.last_number += 1;
        let number = self.forgetting_parts.last_number;
        let inquiry = Inquiry { number, asked: self.now, own, answers: BTreeMap::new() };
        self.forgetting_parts.inquiry = Some(inquiry);
        self.tell_members(&FromMember::AskEnded { number, runs });
    }

    /// A connection to a member broke, so that member's answer may be lost.
    pub(super) fn end_inquiry(&mut self) {
        self.forgetting_parts.inquiry = None;
        let Some(reason) = self.why_nobody_is_asked() else { return };
        for wish in std::mem::take(&mut self.forgetting_parts.wishes) {
            self.refuse(wish.connection, wish.number, reason.clone());
        }
    }

    pub(super) fn on_parts_ended(&mut self, member: MemberId, number: u64, parts: Vec<(RunId, PartEnd)>) {
        let Some(group) = &self.group else { return };
        let n_others = group.n_others();
        let Some(inquiry) = self.forgetting_parts.inquiry.as_mut().filter(|i| i.number == number) else {
            return;
        };
        inquiry.answers.insert(member, parts.into_iter().collect());
        if inquiry.answers.len() < n_others {
            return;
        }
        let Some(Inquiry { own, answers, .. }) = self.forgetting_parts.inquiry.take() else { return };
        let mut runs = vec![];
        for (run, end) in own {
            let mut at = end.ended;
            let mut is_everywhere = self.core.find_part_end(run) == Some(end);
            for (member, parts) in &answers {
                match parts.get(&run).filter(|theirs| theirs.n_added == end.n_added) {
                    Some(theirs) => at = at.max(self.here(*member, theirs.ended)),
                    None => is_everywhere = false,
                }
            }
            if is_everywhere {
                // The clock of another machine may be ahead, but no part can have ended after this moment.
                let at = at.min(self.now);
                self.feed(Event::AllPartsEnded { run, at });
                runs.push(run);
            }
        }
        if !runs.is_empty() {
            self.tell_members(&FromMember::AllEnded { runs });
        }
        self.grant_wishes();
    }

    /// All members have answered, so each wish of a client is granted or refused.
    fn grant_wishes(&mut self) {
        for Wish { connection, number, runs } in std::mem::take(&mut self.forgetting_parts.wishes) {
            let why_not = |run: &RunId| match self.core.work().find_run(*run) {
                None => Some(self.no_run(*run)),
                Some(_) => self.core.why_kept(*run),
            };
            match runs.iter().find_map(why_not) {
                Some(reason) => self.refuse(connection, number, reason),
                None => self.forget_all(connection, number, runs),
            }
        }
    }

    // ------------------------------------------------------------ another member answers

    pub(super) fn on_asked_ended(&mut self, member: MemberId, number: u64, runs: Vec<RunId>) {
        let ends = runs.into_iter().filter_map(|run| Some((run, self.core.find_part_end(run)?)));
        let parts = ends.collect();
        self.when_durable(Effect::SayEnded { member, number, parts });
    }

    /// All records that were appended before the question came are on the disk. `parts`: the parts that had ended when it came.
    pub(super) fn say_ended(&mut self, member: MemberId, number: u64, mut parts: Vec<(RunId, PartEnd)>) {
        parts.retain(|(run, end)| self.core.find_part_end(*run) == Some(*end));
        self.tell_member(member, &FromMember::PartsEnded { number, parts });
    }

    // ------------------------------------------------------------ what is decided

    /// The first member, if this is it, announces that it has forgotten `run`.
    pub(super) fn tell_forgotten(&mut self, run: RunId) {
        if self.group.as_ref().is_some_and(Group::is_first) {
            self.tell_members(&FromMember::Forgotten { run });
        }
    }

    /// The first member begins a connection to another member with the runs that it knows, if it has ever forgotten one.
    pub(super) fn tell_known_runs(&mut self, member: MemberId) {
        if self.forgetting.any && self.group.as_ref().is_some_and(Group::is_first) {
            let runs = self.core.work().runs().filter(|(_, r)| r.committed).map(|(run, _)| run).collect();
            let next_run = self.next_run;
            self.tell_member(member, &FromMember::KnownRuns { runs, next_run });
        }
    }

    /// The first member says on a new connection to another member which of the runs that it knows have ended in all parts.
    pub(super) fn tell_all_ended(&mut self, member: MemberId) {
        if !self.group.as_ref().is_some_and(Group::is_first) {
            return;
        }
        let whole = self.core.work().runs().filter(|(_, r)| r.whole_ended().is_some()).map(|(run, _)| run);
        let runs: Vec<RunId> = whole.filter(|run| self.is_in_parts(*run)).collect();
        if !runs.is_empty() {
            self.tell_member(member, &FromMember::AllEnded { runs });
        }
    }

    /// The first member has heard that all parts of `runs` have ended.
    pub(super) fn on_all_ended(&mut self, member: MemberId, runs: Vec<RunId>) {
        if member == MemberId(0) {
            runs.into_iter().for_each(|run| self.feed(Event::AllPartsEnded { run, at: self.now }));
        }
    }

    pub(super) fn on_known_runs(&mut self, member: MemberId, runs: Vec<RunId>, next_run: u32) {
        let known: BTreeSet<RunId> = runs.into_iter().collect();
        let ours = self.core.work().runs().filter(|(_, r)| r.committed).map(|(run, _)| run);
        let gone = ours.filter(|run| run.0 < next_run && !known.contains(run) && self.is_in_parts(*run));
        let gone = gone.collect();
        self.on_forgotten_elsewhere(member, gone);
    }

    pub(super) fn on_forgotten_elsewhere(&mut self, member: MemberId, runs: BTreeSet<RunId>) {
        let is_first = self.group.as_ref().is_some_and(Group::is_first);
        if member == MemberId(0) && !is_first {
            self.forgetting_parts.following.extend(runs);
            self.follow_forgotten();
        }
    }

    /// Forgets the runs that the first member has forgotten and that nothing keeps here any more.
    pub(super) fn follow_forgotten(&mut self) {
        for run in std::mem::take(&mut self.forgetting_parts.following) {
            let Some(state) = self.core.work().find_run(run) else { continue };
            self.forgetting_parts.following.insert(run);
            let (has_ended, is_cancelled) = (state.ended.is_some(), state.cancelled);
            if self.core.why_part_kept(run).is_none() {
                self.record_forgotten(run, None);
            } else if !has_ended && !is_cancelled {
                self.feed(Event::CancelRequested { run, task: None });
            }
        }
    }
}
