//! Inputs that the running program of a watched attempt names: they come while it runs.
//!
//! The dispatcher says which bytes the run reads and who has them ([`NodeEvent::InputAdded`]). From there on such an input is one
//! like any other: it is pinned until the program has ended, and it stands in the attempt's report. It differs in two things.
//! The attempt has its slot already, so it never waits for space in the cache: what finds no room there is read for this attempt
//! alone. And an input that cannot be had is an error of one call of the program, which may go on without it.

use super::{AttemptId, Executor, Here, Input, Plan, State};
use crate::cache::Reserve;
use crate::event::{
    AssignedInput, Making, NodeAction, NodeMessage, Staged, Target, TransferError, TransferErrorKind,
};
use eyas_terms::{CacheOutcome, Timestamp};

/// An input that the program named while it ran.
#[derive(Debug)]
pub(super) struct Added {
    location: String,
    /// When the dispatcher had said how it comes.
    pub(super) named: Timestamp,
}

impl Executor {
    pub(super) fn on_file_opened(&mut self, id: AttemptId, location: String, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id).filter(|a| a.state == State::Running) else { return };
        if attempt.opening.insert(location.clone()) {
            let (task, attempt) = id;
            out.push(NodeAction::Tell { message: NodeMessage::FileOpened { task, attempt, location } });
        }
    }

    /// The dispatcher has said how the running program gets one more input. An answer that comes twice, after a reconnect, is
    /// heard once.
    pub(super) fn on_input_added(
        &mut self,
        now: Timestamp,
        id: AttemptId,
        location: String,
        input: Result<Box<AssignedInput>, String>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id).filter(|a| a.state == State::Running) else { return };
        if !attempt.opening.remove(&location) {
            return;
        }
        let (task, number) = id;
        let assigned = match input {
            Ok(assigned) => *assigned,
            Err(message) => {
                let brought = Err(TransferError { kind: TransferErrorKind::Refused, message });
                return out.push(NodeAction::Bring { task, attempt: number, location, brought });
            }
        };
        let run = attempt.assignment.run;
        // A copy that is here for another input of this attempt has its pin, and one that is on its way is answered for once.
        let of_object: Vec<u32> = attempt.by_object.of(assigned.object).collect();
        let had = |i: &u32| attempt.inputs[*i as usize].plan != Plan::Unneeded;
        if let Some(same) = of_object.iter().copied().find(had) {
            if self.attempts[&id].inputs[same as usize].outcome.is_some()
                && let Some(staged) = self.staged(id, same)
            {
                out.push(NodeAction::Bring { task, attempt: number, location, brought: Ok((same, staged)) });
            }
            return;
        }
        let again = of_object.into_iter().find(|i| attempt.added.contains_key(i));
        let i = again.unwrap_or(attempt.inputs.len() as u32);
        let (plan, size_bytes, expect) = self.plan(&assigned, run);
        let object = assigned.object;
        let reads =
            assigned.known.is_none() && assigned.making == Making::No && self.cache.state(object).is_none();
        let attempt = self.attempts.get_mut(&id).expect("seen above");
        let input = Input { plan, expect, outcome: None, size_bytes, wait_ns: 0, in_memory: false };
        if again.is_some() {
            attempt.assignment.inputs[i as usize] = assigned;
            attempt.inputs[i as usize] = input;
        } else {
            attempt.by_object.add(object, i);
            attempt.assignment.inputs.push(assigned);
            attempt.inputs.push(input);
        }
        attempt.added.insert(i, Added { location, named: now });
        if plan == Plan::Unknown {
            attempt.n_unknown += 1;
            let asking = self.home.ask(object, run, reads, out);
            if run > asking.run { &mut asking.later } else { &mut asking.waiters }.push((id, i));
            return;
        }
        self.bring(id, i, out);
    }

    /// It is known how the added input `i` comes: it sets out, or is here.
    pub(super) fn bring(&mut self, id: AttemptId, i: u32, out: &mut Vec<NodeAction>) {
        let attempt = &self.attempts[&id];
        let (object, stays) = {
            let assigned = &attempt.assignment.inputs[i as usize];
            (assigned.object, assigned.stays)
        };
        let input = &attempt.inputs[i as usize];
        let (size_bytes, plan, expect) = (input.size_bytes, input.plan, input.expect.clone());
        let mut private = plan == Plan::Private;
        if plan == Plan::Cache {
            let here = self.look(object, &expect);
            if here == Here::Stale {
                self.cache.remove(object).expect("stale bytes are held by nobody");
                self.evicted(object, out);
            }
            match here {
                Here::Right => self.cache.pin(object),
                Here::Taken => private = true,
                Here::Absent | Here::Stale => {
                    self.cache.pin(object);
                    let mut evicted = vec![];
                    let granted = self.cache.reserve(object, size_bytes, &mut evicted);
                    for object in evicted {
                        self.evicted(object, out);
                    }
                    if granted != Reserve::Granted {
                        self.cache.unpin(object);
                        private = true;
                    }
                }
            }
        }
        let is_ready = self.cache.is_ready(object);
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        let input = &mut attempt.inputs[i as usize];
        if plan == Plan::InPlace || plan == Plan::Cache && !private && is_ready {
            input.outcome =
                Some(if plan == Plan::InPlace { CacheOutcome::InPlace } else { CacheOutcome::LocalHit });
            if plan == Plan::Cache {
                self.cache.touch(object);
                self.cache.requested(&[object]);
                self.take_into_memory(object, true, out);
                if self.attempts[&id].assignment.inputs[i as usize].check_home {
                    let version = expect.version.filter(|_| !self.attempts[&id].is_older);
                    let bytes = crate::event::Fetched { version, ..self.held[&object].clone() };
                    self.report_replica(Some(id), object, &bytes, false, out);
                }
            }
            return self.brought(id, i, out);
        }
        if private {
            input.plan = Plan::Private;
        }
        attempt.n_missing += 1;
        let (task, number) = id;
        let target = match private {
            true => Target::Private { task, attempt: number, input: i },
            false => Target::Cache(object),
        };
        let has_source = !stays
            || self.transfers.contains_key(&target)
            || !private && !attempt.assignment.inputs[i as usize].sources.is_empty();
        if !has_source {
            if let Target::Cache(object) = target {
                self.cache.abort(object);
            }
            let message = "no node that can be reached has it, and it is not at home".into();
            let error = TransferError { kind: TransferErrorKind::NotHeld, message };
            self.attempts.get_mut(&id).expect("attempt is here").n_missing -= 1;
            return self.not_brought(id, i, &error, out);
        }
        self.want(target, id, i);
    }

    /// Whether the program named input `i` while it ran.
    pub(super) fn is_added(&self, id: AttemptId, i: u32) -> bool {
        self.attempts.get(&id).is_some_and(|a| a.added.contains_key(&i))
    }

    fn staged(&self, id: AttemptId, i: u32) -> Option<Staged> {
        let attempt = &self.attempts[&id];
        let object = attempt.assignment.inputs[i as usize].object;
        match attempt.inputs[i as usize].plan {
            Plan::Cache => Some(Staged::Cached(object)),
            Plan::InPlace => Some(Staged::InPlace(object)),
            Plan::Private => Some(Staged::Private),
            Plan::Unknown | Plan::Unneeded => None,
        }
    }

    /// The added input `i` is here.
    pub(super) fn brought(&mut self, id: AttemptId, i: u32, out: &mut Vec<NodeAction>) {
        let Some(staged) = self.staged(id, i) else { return };
        let location = self.attempts[&id].added[&i].location.clone();
        let (task, attempt) = id;
        out.push(NodeAction::Bring { task, attempt, location, brought: Ok((i, staged)) });
    }

    /// The added input `i` cannot be had. The program is told, and may go on.
    pub(super) fn not_brought(
        &mut self,
        id: AttemptId,
        i: u32,
        error: &TransferError,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let object = attempt.assignment.inputs[i as usize].object;
        let input = &mut attempt.inputs[i as usize];
        let plan = std::mem::replace(&mut input.plan, Plan::Unneeded);
        let location = attempt.added[&i].location.clone();
        match plan {
            Plan::Unknown => attempt.n_unknown -= 1,
            Plan::Cache | Plan::Private => attempt.n_missing = attempt.n_missing.saturating_sub(1),
            Plan::InPlace | Plan::Unneeded => {}
        }
        if plan == Plan::Cache {
            self.cache.unpin(object);
        }
        let (task, attempt) = id;
        out.push(NodeAction::Bring { task, attempt, location, brought: Err(error.clone()) });
    }

    /// The program has ended: what it had asked for is of no use any more.
    pub(super) fn end_of_watch(&mut self, id: AttemptId) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.opening.clear();
        if attempt.n_missing == 0 && attempt.n_unknown == 0 {
            return;
        }
        (attempt.n_missing, attempt.n_unknown) = (0, 0);
        self.stop_waiting(id);
    }
}
