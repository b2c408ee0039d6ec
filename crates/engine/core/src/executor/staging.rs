//! From an attempt's arrival until all its inputs are here: how large they are, which bytes they must have,
//! and space for all of them at once.

use super::transfers::failure_of;
use super::{Attempt, AttemptId, Executor, Expect, Here, Input, InputsByObject, OVERTAKES_MAX, Plan, State};
use crate::cache::{ReplicaState, Reserve};
use crate::event::{
    AssignedInput, Assignment, Fetched, HomeAnswer, Making, NodeAction, Target, Times, TransferError,
};
use eyas_terms::{CacheOutcome, Failure, FailureKind, ObjectId, RunId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// An object that an attempt reads through the cache.
struct Want {
    object: ObjectId,
    size_bytes: u64,
    here: Here,
    /// The object lives on the nodes and is not at home.
    stays: bool,
}

/// Whether an attempt's inputs have room in the cache.
enum Fit {
    /// Room is taken for the objects in `reserve`; those in `direct` are read for this attempt only.
    Fits { reserve: Vec<(ObjectId, u64)>, direct: Vec<ObjectId> },
    /// There may be room when other attempts have ended.
    Later,
    /// The whole cache is too small.
    Never(Failure),
}

/// How an attempt's inputs come here.
struct Staging {
    /// The objects that are fetched or waited for, each with the input's number.
    fetches: Vec<(Target, u32)>,
    /// Copies that are here and that home has confirmed.
    confirmed: Vec<(ObjectId, Fetched)>,
}

impl Executor {
    pub(super) fn on_assigned(
        &mut self,
        now: Timestamp,
        assignment: Box<Assignment>,
        out: &mut Vec<NodeAction>,
    ) {
        let id = (assignment.task, assignment.attempt);
        if self.attempts.contains_key(&id) {
            return; // a reconnect may repeat an assignment
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let n = assignment.inputs.len();
        let by_object = InputsByObject::new(&assignment.inputs);
        let mut attempt = Box::new(Attempt {
            assignment,
            state: State::Sizing,
            seq,
            inputs: Vec::with_capacity(n),
            by_object,
            n_unknown: 0,
            n_missing: 0,
            pinned: false,
            refused: false,
            refused_alone: false,
            read_before_bytes: 0,
            overtaken: 0,
            cancelled: false,
            outdone: false,
            spoiled: false,
            is_older: false,
            reported_private: vec![],
            times: Times { received: now, ..Times::default() },
            cpu_ns: 0,
            rss_bytes_max: 0,
            left: None,
            outputs: vec![],
            n_outputs_pending: 0,
            reported: vec![],
            gpus: vec![],
            opening: BTreeSet::new(),
            added: BTreeMap::new(),
        });
        let mut ask = vec![];
        for (i, input) in attempt.assignment.inputs.iter().enumerate() {
            let (plan, size_bytes, expect) = self.plan(input, attempt.assignment.run);
            if plan == Plan::Unknown {
                attempt.n_unknown += 1;
                let reads = input.known.is_none()
                    && input.making == Making::No
                    && self.cache.state(input.object).is_none();
                ask.push((input.object, i as u32, reads));
            }
            attempt.inputs.push(Input {
                plan,
                expect,
                outcome: None,
                size_bytes,
                wait_ns: 0,
                in_memory: false,
            });
        }
        let (unknown, run) = (attempt.n_unknown, attempt.assignment.run);
        self.attempts.insert(id, attempt);
        for (object, i, reads) in ask {
            let asking = self.home.ask(object, run, reads, out);
            if run > asking.run { &mut asking.later } else { &mut asking.waiters }.push((id, i));
        }
        if unknown == 0 {
            self.reserve_or_block(now, id, out);
        }
    }

    /// How an input will come here, its size, and which bytes it must have, as far as that is known.
    pub(super) fn plan(&self, input: &AssignedInput, run: RunId) -> (Plan, u64, Expect) {
        if let (false, Some(known)) = (input.check_home, &input.known) {
            let plan = match input.direct {
                _ if self.home.is_in_place(input.object) => Plan::InPlace,
                true => Plan::Private,
                false => Plan::Cache,
            };
            return (plan, known.size_bytes, Expect { known: Some(known.clone()), version: None });
        }
        match self.home.last(input.object) {
            Some((asked_run, answer)) if *asked_run >= run => Self::plan_from(input, answer),
            _ => (Plan::Unknown, 0, Expect::default()),
        }
    }

    pub(super) fn plan_from(input: &AssignedInput, answer: &HomeAnswer) -> (Plan, u64, Expect) {
        let plan = match (answer.in_place, input.direct) {
            (true, _) => Plan::InPlace,
            (false, true) => Plan::Private,
            (false, false) => Plan::Cache,
        };
        // What an earlier run knew is still true while home's version is the same.
        let known = input.known.clone().filter(|k| k.version == answer.version);
        let version = answer.version.clone();
        // Of a made object home knows only the size of the packed file.
        let size_bytes = known.as_ref().map_or(version.size_bytes, |known| known.size_bytes);
        (plan, size_bytes, Expect { known, version: Some(version) })
    }

    pub(super) fn on_home_answered(
        &mut self,
        now: Timestamp,
        object: ObjectId,
        result: Result<HomeAnswer, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let newest = |waiters: &[(AttemptId, u32)]| {
            waiters.iter().filter_map(|(id, _)| self.attempts.get(id)).map(|a| a.assignment.run).max()
        };
        let asking = self.home.answered(object, newest, out);
        self.serve_answered(object, asking.run, &result, out);
        match result {
            Ok(answer) => {
                if asking.waiters.is_empty() {
                    return;
                }
                self.home.keep(object, asking.run, answer.clone());
                for (id, i) in asking.waiters {
                    let Some(attempt) = self.attempts.get_mut(&id) else { continue };
                    let assigned = &attempt.assignment.inputs[i as usize];
                    let input = &mut attempt.inputs[i as usize];
                    (input.plan, input.size_bytes, input.expect) = Self::plan_from(assigned, &answer);
                    attempt.n_unknown -= 1;
                    if attempt.added.contains_key(&i) {
                        self.bring(id, i, out);
                    } else if attempt.n_unknown == 0 {
                        self.reserve_or_block(now, id, out);
                    }
                }
            }
            Err(error) => {
                for (id, i) in asking.waiters {
                    match self.is_added(id, i) {
                        true => self.not_brought(id, i, &error, out),
                        false => self.fail(id, failure_of(&error), out),
                    }
                }
            }
        }
    }

    /// All plans are known: takes the space for everything that has to come, or lets the attempt wait for it.
    pub(super) fn reserve_or_block(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) {
        self.plan_packed(id);
        let needs_space = self.attempts[&id]
            .inputs
            .iter()
            .zip(&self.attempts[&id].assignment.inputs)
            .any(|(input, a)| input.plan == Plan::Cache && self.cache.state(a.object).is_none());
        let must_wait = match self.blocked.first_key_value() {
            None => false,
            Some(_) if needs_space => true,
            Some((_, first)) => self.attempts[first].overtaken >= OVERTAKES_MAX,
        };
        if must_wait || !self.try_reserve(now, id, out) {
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            attempt.state = State::Blocked;
            self.blocked.insert(attempt.seq, id);
        } else if let Some((_, first)) = self.blocked.first_key_value() {
            self.attempts.get_mut(first).expect("blocked attempt is here").overtaken += 1;
        }
    }

    /// Pins the inputs that are here, reserves space for the others, and starts the transfers; all or
    /// nothing. An attempt that can never have its inputs here fails. `false`: the attempt has to wait.
    pub(super) fn try_reserve(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) -> bool {
        let attempt = &self.attempts[&id];
        let is_alone = attempt.assignment.alone;
        let must_wait = (attempt.refused || is_alone) && self.n_pinned > 0;
        if must_wait || is_alone && self.n_storing > 0 || self.alone.is_some() {
            return false;
        }
        if let Some(failure) = self.why_disk_too_small(id) {
            self.fail(id, failure, out);
            return true;
        }
        self.plan_packed(id);
        let (wanted, mut private) = self.wanted_objects(id, out);
        // Pin first, so that making room for one input does not evict another.
        for want in &wanted {
            self.cache.pin(want.object);
        }
        let reserve = match self.fit(&wanted) {
            Fit::Fits { reserve, direct } => {
                for object in &direct {
                    self.cache.unpin(*object);
                }
                private.extend(direct);
                reserve
            }
            others => {
                for want in &wanted {
                    self.cache.unpin(want.object);
                }
                if let Fit::Never(failure) = others {
                    self.fail(id, failure, out);
                    return true;
                }
                return false;
            }
        };
        let mut evicted = vec![];
        for (object, size_bytes) in reserve {
            let granted = self.cache.reserve(object, size_bytes, &mut evicted);
            assert_eq!(granted, Reserve::Granted, "the sum fits, so each part does");
        }
        for object in evicted {
            self.evicted(object, out);
        }
        let together: Vec<ObjectId> = wanted.iter().map(|want| want.object).collect();
        self.cache.requested(&together);
        for object in together {
            self.take_into_memory(object, true, out);
        }
        self.n_pinned += 1;
        self.alone = is_alone.then_some(id);
        let Staging { fetches, confirmed } = self.stage(id, &private);
        if let Some(i) = self.unreachable_input(id, &fetches) {
            self.abort_reserved(&fetches);
            let message = format!("no node that can be reached has input {} any more", i + 1);
            self.fail(id, Failure { kind: FailureKind::InputLost, message }, out);
            return true;
        }
        for (target, i) in fetches {
            self.want(target, id, i);
        }
        // The whole run must read these bytes, so the dispatcher has to know them.
        for (object, bytes) in confirmed {
            self.report_replica(Some(id), object, &bytes, false, out);
        }
        self.start_when_ready(now, id);
        true
    }

    /// The objects that an attempt reads through the cache, each once; and the objects that it has to read
    /// for itself alone, because other bytes of them must stay here. Other bytes that no attempt needs are
    /// evicted.
    fn wanted_objects(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) -> (Vec<Want>, Vec<ObjectId>) {
        let attempt = &self.attempts[&id];
        let inputs = attempt.inputs.iter().zip(&attempt.assignment.inputs);
        let mut wanted: Vec<Want> = inputs
            .filter(|(input, _)| input.plan == Plan::Cache)
            .map(|(input, assigned)| Want {
                object: assigned.object,
                size_bytes: input.size_bytes,
                here: self.look(assigned.object, &input.expect),
                stays: assigned.stays,
            })
            .collect();
        // Two inputs of one object may differ in size: if a copy has been here, its size counts, otherwise
        // home's earlier answer.
        wanted.sort_unstable_by_key(|w| (w.object, Reverse(w.size_bytes)));
        wanted.dedup_by_key(|w| w.object);
        let private = wanted.iter().filter(|w| w.here == Here::Taken).map(|w| w.object).collect();
        wanted.retain(|w| w.here != Here::Taken);
        for want in wanted.iter().filter(|w| w.here == Here::Stale) {
            self.cache.remove(want.object).expect("stale bytes are held by nobody");
            self.evicted(want.object, out);
        }
        (wanted, private)
    }

    /// Whether the wanted objects that are not here have room in the cache, when all wanted objects are
    /// pinned.
    fn fit(&self, wanted: &[Want]) -> Fit {
        let available_bytes = self.cache.available_bytes();
        let mut absent: Vec<&Want> = wanted.iter().filter(|w| w.here != Here::Right).collect();
        let mut missing_bytes: u64 = absent.iter().map(|w| w.size_bytes).sum();
        let mut direct = vec![];
        if missing_bytes > available_bytes {
            let others_end = self.n_pinned > 0 || self.n_storing > 0 || self.cache.reserved_bytes() > 0;
            let budget_bytes = self.cache.budget_bytes();
            let ever: u64 = absent.iter().map(|w| w.size_bytes).filter(|size| *size <= budget_bytes).sum();
            if others_end && ever > available_bytes {
                return Fit::Later;
            }
            // The end of another attempt cannot make enough room: the largest objects are read for this
            // attempt only. Objects that are not at home cannot be read in that way.
            let staying_bytes: u64 = absent.iter().filter(|w| w.stays).map(|w| w.size_bytes).sum();
            if staying_bytes > available_bytes {
                let needs_bytes = wanted.iter().filter(|w| w.stays).map(|w| w.size_bytes).sum();
                return Fit::Never(self.cache_full("its inputs", needs_bytes));
            }
            absent.sort_unstable_by_key(|w| (!w.stays, w.size_bytes, w.object));
            while missing_bytes > available_bytes {
                let want = absent.pop().expect("nothing missing needs no room");
                missing_bytes -= want.size_bytes;
                direct.push(want.object);
            }
        }
        Fit::Fits { reserve: absent.iter().map(|w| (w.object, w.size_bytes)).collect(), direct }
    }

    /// Lets the attempt's inputs be on their way; gives how each comes that is not here.
    fn stage(&mut self, id: AttemptId, private: &[ObjectId]) -> Staging {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.state = State::Staging;
        attempt.pinned = true;
        let (mut fetches, mut confirmed) = (vec![], vec![]);
        for i in 0..attempt.inputs.len() {
            let object = attempt.assignment.inputs[i].object;
            let input = &mut attempt.inputs[i];
            if input.plan == Plan::Cache && private.contains(&object) {
                input.plan = Plan::Private;
            }
            match input.plan {
                Plan::Unknown => unreachable!("every plan is known before space is taken"),
                Plan::Unneeded => {}
                Plan::InPlace => input.outcome = Some(CacheOutcome::InPlace),
                Plan::Cache if self.cache.is_ready(object) => {
                    input.outcome = Some(CacheOutcome::LocalHit);
                    self.cache.touch(object);
                    if attempt.assignment.inputs[i].check_home {
                        let version = input.expect.version.clone().filter(|_| !attempt.is_older);
                        confirmed.push((object, Fetched { version, ..self.held[&object].clone() }));
                    }
                }
                Plan::Cache => {
                    attempt.n_missing += 1;
                    fetches.push((Target::Cache(object), i as u32));
                }
                Plan::Private => {
                    attempt.n_missing += 1;
                    let (task, attempt) = id;
                    fetches.push((Target::Private { task, attempt, input: i as u32 }, i as u32));
                }
            }
        }
        Staging { fetches, confirmed }
    }

    /// The first input that stays on the nodes and that no node is named for.
    fn unreachable_input(&self, id: AttemptId, fetches: &[(Target, u32)]) -> Option<u32> {
        let inputs = &self.attempts[&id].assignment.inputs;
        let found = fetches.iter().find(|(target, i)| {
            let input = &inputs[*i as usize];
            let private = matches!(target, Target::Private { .. });
            input.stays && !self.transfers.contains_key(target) && (private || input.sources.is_empty())
        });
        found.map(|(_, i)| *i)
    }

    /// Gives back the space that was reserved for transfers that never begin.
    fn abort_reserved(&mut self, fetches: &[(Target, u32)]) {
        for (target, _) in fetches {
            if let Target::Cache(object) = target
                && !self.transfers.contains_key(target)
                && self.cache.state(*object) == Some(ReplicaState::Creating)
            {
                self.cache.abort(*object);
            }
        }
    }

    /// The state of `object` in the cache, for an attempt that does not pin it yet.
    pub(super) fn look(&self, object: ObjectId, expect: &Expect) -> Here {
        match self.cache.state(object) {
            None => Here::Absent,
            Some(ReplicaState::Ready) if self.doomed.contains(&object) => Here::Taken,
            Some(ReplicaState::Ready) if expect.accepts(&self.held[&object]) => Here::Right,
            Some(ReplicaState::Ready) if self.cache.n_pins(object) > 0 || self.cache.is_kept(object) => {
                Here::Taken
            }
            Some(ReplicaState::Ready) => Here::Stale,
            // The object may also be an output that is being stored.
            Some(ReplicaState::Creating) => match self.transfers.get(&Target::Cache(object)) {
                Some(transfer) if transfer.expect == *expect && !self.doomed.contains(&object) => Here::Right,
                _ => Here::Taken,
            },
        }
    }

    /// Takes the attempt out of every list of waiters.
    pub(super) fn stop_waiting(&mut self, id: AttemptId) {
        self.home.stop_waiting(id);
        // Transfers go on: their bytes may serve the next attempt. Only this attempt stops waiting. A private
        // copy that no attempt waits for is not begun if it has not begun yet.
        let mut relined = vec![];
        for (target, transfer) in &mut self.transfers {
            if transfer.place.is_some() && transfer.waiters.first().is_some_and(|(first, _)| *first == id) {
                relined.push(*target);
            }
            transfer.waiters.retain(|(waiter, _)| *waiter != id);
        }
        relined.into_iter().for_each(|target| self.change_line(target));
        self.forget_abandoned();
    }

    /// Removes transfers that nobody wants and that have not begun.
    pub(super) fn forget_abandoned(&mut self) {
        let abandoned: Vec<Target> = self
            .transfers
            .iter()
            .filter(|(_, t)| t.active.is_none() && t.waiters.is_empty() && t.batch.is_none())
            .filter(|(_, t)| !self.serving.contains_key(&t.object))
            .map(|(target, _)| *target)
            .collect();
        for target in abandoned {
            let transfer = self.transfers.remove(&target).expect("just seen");
            if let Some(place) = transfer.place {
                self.transfer_queue.remove(place);
            }
            if let Target::Cache(object) = target {
                self.cache.abort(object);
            }
        }
    }

    pub(super) fn start_when_ready(&mut self, now: Timestamp, id: AttemptId) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if attempt.state == State::Staging && attempt.n_missing == 0 {
            attempt.state = State::Queued;
            attempt.times.inputs_ready = now;
            self.slots.enqueue(attempt.seq, id);
        }
    }
}
