//! From arrival to all inputs here: how big they are, which bytes they have to be, and space for all of them at once.

use super::transfers::failure_of;
use super::*;
use std::cmp::Reverse;

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
        let mut attempt = Box::new(Attempt {
            assignment,
            state: State::Sizing,
            seq,
            inputs: Vec::with_capacity(n),
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
            told_private: vec![],
            times: Times { received: now, ..Times::default() },
            cpu_ns: 0,
            rss_bytes_max: 0,
            outputs: vec![],
            n_outputs_pending: 0,
            told: vec![],
        });
        let mut ask = vec![];
        for (i, input) in attempt.assignment.inputs.iter().enumerate() {
            let (plan, size_bytes, expect) = self.plan(input, attempt.assignment.run);
            if plan == Plan::Unknown {
                attempt.n_unknown += 1;
                ask.push((input.object, i as u32));
            }
            attempt.inputs.push(Input { plan, expect, outcome: None, size_bytes, wait_ns: 0 });
        }
        let (unknown, run) = (attempt.n_unknown, attempt.assignment.run);
        self.attempts.insert(id, attempt);
        for (object, i) in ask {
            let asking = self.asking.entry(object).or_insert_with(|| {
                out.push(NodeAction::AskHome { object });
                Asking { run, ..Asking::default() }
            });
            if run > asking.run { &mut asking.later } else { &mut asking.waiters }.push((id, i));
        }
        if unknown == 0 {
            self.reserve_or_block(now, id, out);
        }
    }

    /// How an input will come here, its size and what it has to be, where that is known.
    pub(super) fn plan(&self, input: &AssignedInput, run: RunId) -> (Plan, u64, Expect) {
        if let (false, Some(known)) = (input.check_home, &input.known) {
            let is_here = |(_, answer): &(RunId, HomeAnswer)| answer.in_place;
            let plan = match input.direct {
                _ if self.reads_in_place && self.home.get(&input.object).is_some_and(is_here) => {
                    Plan::InPlace
                }
                true => Plan::Private,
                false => Plan::Cache,
            };
            return (plan, known.size_bytes, Expect { known: Some(known.clone()), version: None });
        }
        match self.home.get(&input.object) {
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
        // What an earlier run knew holds while home's version is the same.
        let known = input.known.clone().filter(|k| k.version == answer.version);
        let version = answer.version.clone();
        (plan, version.size_bytes, Expect { known, version: Some(version) })
    }

    pub(super) fn on_home_answered(
        &mut self,
        now: Timestamp,
        object: ObjectId,
        result: Result<HomeAnswer, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let asking = self.asking.remove(&object).unwrap_or_default();
        let newest = |waiters: &[(AttemptId, u32)]| {
            waiters.iter().filter_map(|(id, _)| self.attempts.get(id)).map(|a| a.assignment.run).max()
        };
        if let Some(run) = newest(&asking.later) {
            self.asking.insert(object, Asking { run, waiters: asking.later, later: vec![] });
            out.push(NodeAction::AskHome { object });
        }
        match result {
            Ok(answer) => {
                if asking.waiters.is_empty() {
                    return;
                }
                self.reads_in_place |= answer.in_place;
                self.home.insert(object, (asking.run, answer.clone()));
                for (id, i) in asking.waiters {
                    let Some(attempt) = self.attempts.get_mut(&id) else { continue };
                    let assigned = &attempt.assignment.inputs[i as usize];
                    let input = &mut attempt.inputs[i as usize];
                    (input.plan, input.size_bytes, input.expect) = Self::plan_from(assigned, &answer);
                    attempt.n_unknown -= 1;
                    if attempt.n_unknown == 0 {
                        self.reserve_or_block(now, id, out);
                    }
                }
            }
            Err(error) => {
                for (id, _) in asking.waiters {
                    self.fail(id, failure_of(&error), out);
                }
            }
        }
    }

    /// All plans are known: take the space for everything that has to come, or wait for it.
    pub(super) fn reserve_or_block(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) {
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

    /// Pins what is here, reserves what is not, and starts the transfers; all or nothing.
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
        let mut wanted: Vec<(ObjectId, u64, Here)> = attempt
            .inputs
            .iter()
            .zip(&attempt.assignment.inputs)
            .filter(|(input, _)| input.plan == Plan::Cache)
            .map(|(input, a)| (a.object, input.size_bytes, self.look(a.object, &input.expect)))
            .collect();
        // Inputs of one object may differ in size: where a copy has come before, that is its size, else what home said earlier.
        wanted.sort_unstable_by_key(|w| (w.0, Reverse(w.1)));
        wanted.dedup_by_key(|w| w.0);
        let mut private: Vec<ObjectId> = wanted.iter().filter(|w| w.2 == Here::Taken).map(|w| w.0).collect();
        wanted.retain(|w| w.2 != Here::Taken);
        for (object, ..) in wanted.iter().filter(|w| w.2 == Here::Stale) {
            self.cache.remove(*object).expect("stale bytes are held by nobody");
            self.evicted(*object, out);
        }
        // Pin first, so that making room for one input does not evict another.
        for (object, ..) in &wanted {
            self.cache.pin(*object);
        }
        let mut absent: Vec<(ObjectId, u64)> =
            wanted.iter().filter(|w| w.2 != Here::Right).map(|w| (w.0, w.1)).collect();
        let mut missing_bytes: u64 = absent.iter().map(|w| w.1).sum();
        if missing_bytes > self.cache.available_bytes() {
            let others_end = self.n_pinned > 0 || self.n_storing > 0 || self.cache.reserved_bytes() > 0;
            let ever = absent.iter().filter(|w| w.1 <= self.cache.budget_bytes()).map(|w| w.1).sum::<u64>();
            if others_end && ever > self.cache.available_bytes() {
                for (object, ..) in wanted {
                    self.cache.unpin(object);
                }
                return false;
            }
            // Nobody else's ending can make room: the largest are read for this attempt only. What home does not
            // have cannot be read so.
            let inputs = self.attempts[&id].assignment.inputs.iter();
            let staying: FxHashSet<ObjectId> = inputs.filter(|i| i.stays).map(|i| i.object).collect();
            let staying_bytes: u64 = absent.iter().filter(|w| staying.contains(&w.0)).map(|w| w.1).sum();
            if staying_bytes > self.cache.available_bytes() {
                let needs_bytes = wanted.iter().filter(|w| staying.contains(&w.0)).map(|w| w.1).sum();
                for (object, ..) in wanted {
                    self.cache.unpin(object);
                }
                self.fail(id, self.cache_full("its inputs", needs_bytes), out);
                return true;
            }
            absent.sort_unstable_by_key(|w| (!staying.contains(&w.0), w.1, w.0));
            while missing_bytes > self.cache.available_bytes() {
                let (object, size_bytes) = absent.pop().expect("nothing missing needs no room");
                missing_bytes -= size_bytes;
                self.cache.unpin(object);
                private.push(object);
            }
        }
        let mut evicted = vec![];
        for (object, size_bytes) in absent {
            let granted = self.cache.reserve(object, size_bytes, &mut evicted);
            assert_eq!(granted, Reserve::Granted, "the sum fits, so each part does");
        }
        for object in evicted {
            self.evicted(object, out);
        }
        self.n_pinned += 1;
        self.alone = is_alone.then_some(id);
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
        let unreachable = fetches.iter().find(|(target, i)| {
            let input = &self.attempts[&id].assignment.inputs[*i as usize];
            let private = matches!(target, Target::Private { .. });
            input.stays && !self.transfers.contains_key(target) && (private || input.sources.is_empty())
        });
        if let Some(&(_, i)) = unreachable {
            // Space was taken for transfers that never begin.
            for (target, _) in &fetches {
                if let Target::Cache(object) = target
                    && !self.transfers.contains_key(target)
                    && self.cache.state(*object) == Some(ReplicaState::Creating)
                {
                    self.cache.abort(*object);
                }
            }
            let message = format!("no node that can be reached has input {} any more", i + 1);
            self.fail(id, Failure { kind: FailureKind::InputLost, message }, out);
            return true;
        }
        for (target, i) in fetches {
            self.want(target, id, i);
        }
        // The whole run is held to these bytes: the dispatcher has to know which they are.
        for (object, bytes) in confirmed {
            self.tell_replica(Some(id), object, &bytes, false, out);
        }
        self.start_when_ready(now, id);
        true
    }

    /// What is here of `object`, for an attempt that does not pin it yet.
    pub(super) fn look(&self, object: ObjectId, expect: &Expect) -> Here {
        match self.cache.state(object) {
            None => Here::Absent,
            Some(ReplicaState::Ready) if self.doomed.contains(&object) => Here::Taken,
            Some(ReplicaState::Ready) if expect.accepts(&self.held[&object]) => Here::Right,
            Some(ReplicaState::Ready) if self.cache.n_pins(object) > 0 || self.cache.is_kept(object) => {
                Here::Taken
            }
            Some(ReplicaState::Ready) => Here::Stale,
            // It may also be an output that is being stored.
            Some(ReplicaState::Creating) => match self.transfers.get(&Target::Cache(object)) {
                Some(transfer) if transfer.expect == *expect && !self.doomed.contains(&object) => Here::Right,
                _ => Here::Taken,
            },
        }
    }

    /// Takes the attempt out of every list of waiters.
    pub(super) fn stop_waiting(&mut self, id: AttemptId) {
        for asking in self.asking.values_mut() {
            asking.waiters.retain(|(waiter, _)| *waiter != id);
            asking.later.retain(|(waiter, _)| *waiter != id);
        }
        // Transfers go on: their bytes may serve the next attempt. Only this one stops waiting, and a
        // private copy that nobody waits for and that has not begun is not begun.
        for transfer in self.transfers.values_mut() {
            transfer.waiters.retain(|(waiter, _)| *waiter != id);
        }
        self.forget_abandoned();
    }

    /// Transfers that nobody wants and that have not begun are not begun.
    pub(super) fn forget_abandoned(&mut self) {
        let abandoned: Vec<Target> = self
            .transfers
            .iter()
            .filter(|(_, t)| t.active.is_none() && t.waiters.is_empty() && t.batch.is_none())
            .map(|(target, _)| *target)
            .collect();
        for target in abandoned {
            self.transfers.remove(&target);
            self.transfer_queue.retain(|t| *t != target);
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
            self.queued.insert(attempt.seq, id);
        }
    }
}
