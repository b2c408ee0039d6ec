//! From a program's end to the report that its attempt is over: outputs are hashed, kept and sent home. Also
//! attempts that end before that, cancelled or failed.

use super::{AttemptId, Executor, Landing, Output, Plan, State};
use crate::cache::Reserve;
use crate::event::{
    AttemptReport, Exit, Fetched, HomeAnswer, InputReport, NodeAction, NodeMessage, OutputReport, Times,
    TransferError, TransferErrorKind,
};
use eyas_terms::{Failure, FailureKind, HomeVersion, Marks, ObjectId, Outcome, Timestamp};
use std::sync::Arc;

impl Executor {
    pub(super) fn on_program_ended(
        &mut self,
        now: Timestamp,
        id: AttemptId,
        exit: Exit,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if attempt.state != State::Running {
            return;
        }
        attempt.times.started = exit.started;
        attempt.times.exited = exit.exited;
        attempt.cpu_ns = exit.cpu_ns;
        attempt.rss_bytes_max = exit.rss_bytes_max;
        attempt.left = exit.left;
        self.slots.ended(attempt, exit.exited.since_ns(exit.started));
        attempt.assignment.outputs.extend(&exit.found);
        self.end_of_watch(id);
        let attempt = &self.attempts[&id];

        let of_cache = |i: &&u32| attempt.inputs[**i as usize].plan == Plan::Cache;
        let wrote = exit.inputs_modified.iter().any(|i| of_cache(&i));
        let damaged: Vec<ObjectId> = exit
            .inputs_damaged
            .iter()
            .filter(of_cache)
            .map(|i| attempt.assignment.inputs[*i as usize].object)
            .collect();
        self.unpin_all(id, out);
        let attempt = &self.attempts[&id];
        let (cancelled, spoiled) = (attempt.cancelled, attempt.spoiled);
        for object in damaged {
            self.drop_corrupt(object, out);
        }
        if cancelled {
            self.end(id, Outcome::Cancelled, out);
        } else if wrote || spoiled {
            let message = match wrote {
                true => "the program wrote to one of its inputs; the cached copy was dropped",
                false => "an input was found changed while the program ran; the cached copy was dropped",
            };
            self.fail(id, Failure { kind: FailureKind::InputModified, message: message.into() }, out);
        } else if let Err(failure) = exit.result {
            let failure = self.judge_disk(now, id, failure, exit.disk, out);
            self.fail(id, failure, out);
        } else if exit.outputs.is_empty() {
            self.end(id, Outcome::Done, out);
        } else {
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            attempt.state = State::Storing;
            self.n_storing += 1;
            attempt.outputs = vec![Output::default(); exit.outputs.len()];
            attempt.n_outputs_pending = exit.outputs.len() as u32;
            let objects = attempt.assignment.outputs.clone();
            let staying = attempt.assignment.staying.clone();
            let size_of = |i: &u32| exit.outputs[*i as usize].unwrap_or(0);
            let staying_bytes: u64 = staying.iter().map(size_of).sum();
            for (i, size) in exit.outputs.iter().enumerate() {
                let (size, object) = (size.unwrap_or(0), objects[i]);
                let stays = staying.binary_search(&(i as u32)).is_ok();
                if stays {
                    self.drop_earlier(object, out);
                }
                let mut evicted = vec![];
                let free = self.cache.state(object).is_none();
                let cached =
                    free && matches!(self.cache.reserve(object, size, &mut evicted), Reserve::Granted);
                for object in evicted {
                    self.evicted(object, out);
                }
                let full = (stays && free && !cached).then(|| self.cache_full("its outputs", staying_bytes));
                let attempt = self.attempts.get_mut(&id).expect("attempt is here");
                attempt.outputs[i].cached = cached;
                if stays && !free {
                    // Another copy has arrived meanwhile and is in use, so the copy that this attempt made is
                    // not needed.
                    attempt.outdone = true;
                } else {
                    // An output without room in the cache is hashed all the same; the attempt fails when all
                    // outputs are hashed.
                    attempt.outputs[i].failure = full;
                }
                let (task, attempt, output) = (id.0, id.1, i as u32);
                let cache_bytes = cached.then_some(size);
                out.push(NodeAction::StoreOutput { task, attempt, output, object, cache_bytes });
            }
        }
    }

    pub(super) fn on_output_stored(
        &mut self,
        id: AttemptId,
        (output, marks): (u32, Option<Marks>),
        now: Timestamp,
        result: Result<Fetched, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let no_space = matches!(&result, Err(error) if error.kind == TransferErrorKind::NoSpace);
        let is_alone = attempt.assignment.alone;
        let object = attempt.assignment.outputs[output as usize];
        let slot = &mut attempt.outputs[output as usize];
        match result {
            Ok(bytes) => {
                if slot.cached {
                    self.cache.commit(object, bytes.size_bytes);
                    // This is the last copy until it is home.
                    self.cache.keep(object);
                    self.held.insert(object, bytes.clone());
                    self.memory.requested(object, bytes.size_bytes, false, out);
                }
                slot.stored = Some(bytes);
                slot.marks = marks;
            }
            Err(error) => {
                if slot.cached {
                    self.cache.abort(object);
                    slot.cached = false;
                }
                let kind = match error.kind {
                    TransferErrorKind::NoSpace if !is_alone => FailureKind::DiskShared,
                    TransferErrorKind::NoSpace
                    | TransferErrorKind::Dropped
                    | TransferErrorKind::GivenUp
                    | TransferErrorKind::Shortage => FailureKind::Node,
                    _ => FailureKind::OutputMissing,
                };
                slot.failure.get_or_insert(Failure { kind, message: error.message });
            }
        }
        attempt.n_outputs_pending -= 1;
        let is_last = attempt.n_outputs_pending == 0;
        if no_space {
            self.on_no_space(now, 0, out);
        }
        if !is_last {
            return;
        }
        let attempt = self.attempts.get_mut(&id).expect("seen above");
        if attempt.cancelled || attempt.outdone {
            self.forget_outputs(id, out);
            self.end(id, Outcome::Cancelled, out);
            return;
        }
        if let Some(failure) = attempt.outputs.iter().find_map(|o| o.failure.clone()) {
            self.forget_outputs(id, out);
            self.fail(id, failure, out);
            return;
        }
        let lands: Vec<u32> = (0..attempt.outputs.len() as u32)
            .filter(|output| attempt.assignment.staying.binary_search(output).is_err())
            .collect();
        attempt.state = State::Landing;
        attempt.n_outputs_pending = lands.len() as u32;
        let seq = attempt.seq;
        for output in &attempt.assignment.staying {
            self.staying.insert(attempt.assignment.outputs[*output as usize]);
        }
        let nothing_lands = lands.is_empty();
        for output in lands {
            self.landing_queue.insert(Landing { seq, attempt: id, output });
        }
        for (i, o) in self.attempts[&id].outputs.clone().iter().enumerate() {
            if let (true, Some(bytes)) = (o.cached, &o.stored) {
                let object = self.attempts[&id].assignment.outputs[i];
                self.report_replica(Some(id), object, bytes, false, out);
            }
        }
        let report = self.report(id, Outcome::Done);
        self.tell(id, NodeMessage::AttemptEnded { report }, out);
        self.take_back_private(id, out);
        if nothing_lands {
            self.attempts.get_mut(&id).expect("attempt is here").state = State::Ended;
            self.n_storing -= 1;
            out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        }
    }

    pub(super) fn on_output_landed(
        &mut self,
        id: AttemptId,
        output: u32,
        result: Result<HomeVersion, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        self.streams.end_landing();
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let object = attempt.assignment.outputs[output as usize];
        let run = attempt.assignment.run;
        let slot = &mut attempt.outputs[output as usize];
        if slot.cached {
            self.cache.release(object);
        }
        match result {
            Ok(version) => {
                if slot.cached {
                    if let Some(held) = self.held.get_mut(&object) {
                        held.version = Some(version.clone());
                        let bytes = held.clone();
                        self.report_replica(Some(id), object, &bytes, false, out);
                    }
                    self.home.keep(object, run, HomeAnswer { version, in_place: false });
                }
            }
            Err(error) => {
                let kind = match error.kind {
                    TransferErrorKind::Shortage => FailureKind::Node,
                    // The stored copy was damaged or is gone: another attempt has to make it again.
                    TransferErrorKind::Corrupt | TransferErrorKind::NotHeld | TransferErrorKind::Dropped => {
                        FailureKind::Node
                    }
                    _ if slot.cached && !self.cache.is_ready(object) => FailureKind::Node,
                    _ => FailureKind::StageOut,
                };
                slot.failure.get_or_insert(Failure { kind, message: error.message });
                // Treated like an output that had not set out: nobody wants what this attempt made.
                if slot.cached && attempt.cancelled {
                    self.doomed.insert(object);
                }
            }
        }
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.n_outputs_pending -= 1;
        self.end_when_landed(id, out);
        self.drop_if_doomed(object, out);
    }

    pub(super) fn end_when_landed(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if attempt.n_outputs_pending > 0 {
            return;
        }
        let result = match attempt.outputs.iter().find_map(|o| o.failure.clone()) {
            // The dispatcher process that cancelled the attempt may be dead when this report arrives, and the
            // next process wants the task done. It is no fault of the task that its outputs are not home.
            Some(failure) if attempt.cancelled => Err(Failure { kind: FailureKind::ExecutorLost, ..failure }),
            Some(failure) => Err(failure),
            None => Ok(()),
        };
        attempt.state = State::Ended;
        self.n_storing -= 1;
        if result.is_err() {
            self.forget_staying(id, out);
        }
        out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        self.tell(id, NodeMessage::OutputsHome { task: id.0, attempt: id.1, result }, out);
    }

    /// Keeps outputs that are not home yet from going there: at once those that have not set out, the others
    /// if the driver can still stop them.
    pub(super) fn stop_landing(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let queued: Vec<Landing> = self.landing_queue.iter().filter(|l| l.attempt == id).copied().collect();
        for landing in queued {
            self.landing_queue.remove(&landing);
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            let object = attempt.assignment.outputs[landing.output as usize];
            let output = &mut attempt.outputs[landing.output as usize];
            let message = "the attempt was ended before its outputs were home".into();
            output.failure = Some(Failure { kind: FailureKind::StageOut, message });
            attempt.n_outputs_pending -= 1;
            if output.cached {
                self.cache.release(object);
                self.doomed.insert(object);
                self.drop_if_doomed(object, out);
            }
        }
        if self.attempts[&id].n_outputs_pending > 0 {
            out.push(NodeAction::Halt { task: id.0, attempt: id.1 });
        }
        self.end_when_landed(id, out);
    }

    pub(super) fn begin_landings(&mut self, out: &mut Vec<NodeAction>) {
        while self.streams.has_room_at_home(&self.config) {
            let Some(landing) = self.landing_queue.pop_first() else { return };
            let (task, attempt) = landing.attempt;
            let a = &self.attempts[&landing.attempt];
            let object = a.assignment.outputs[landing.output as usize];
            let cached = a.outputs[landing.output as usize].cached;
            self.streams.begin_landing();
            out.push(NodeAction::Land { task, attempt, output: landing.output, object, cached });
        }
    }

    pub(super) fn on_cancel(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            // The attempt is unknown here: report that it ended, so that the dispatcher does not wait for it.
            let (task, attempt) = id;
            let report = Arc::new(AttemptReport {
                task,
                attempt,
                outcome: Outcome::Cancelled,
                times: Times { received: now, ..Times::default() },
                inputs: vec![],
                in_memory: vec![],
                outputs: vec![],
                cpu_ns: 0,
                rss_bytes_max: 0,
                left: None,
            });
            out.push(NodeAction::Tell { message: NodeMessage::AttemptEnded { report } });
            return;
        };
        if attempt.cancelled {
            return;
        }
        attempt.cancelled = true;
        match attempt.state {
            State::Sizing | State::Blocked | State::Staging | State::Queued => {
                self.end(id, Outcome::Cancelled, out)
            }
            State::Running => out.push(NodeAction::Kill { task: id.0, attempt: id.1 }),
            State::Landing => self.stop_landing(id, out),
            // The attempt ends as cancelled.
            State::Storing => out.push(NodeAction::Halt { task: id.0, attempt: id.1 }),
            State::Ended => {}
        }
    }

    pub(super) fn fail(&mut self, id: AttemptId, failure: Failure, out: &mut Vec<NodeAction>) {
        self.end(id, Outcome::Failed(failure), out);
    }

    /// Ends an attempt without outputs to bring home: releases what it holds and reports.
    pub(super) fn end(&mut self, id: AttemptId, outcome: Outcome, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if attempt.state == State::Ended {
            return;
        }
        let (seq, state) = (attempt.seq, attempt.state);
        self.n_storing -= u32::from(state == State::Storing);
        self.blocked.remove(&seq);
        self.slots.leave(seq);
        self.unpin_all(id, out);
        if matches!(state, State::Sizing | State::Blocked | State::Staging) {
            self.stop_waiting(id);
        }
        let report = self.report(id, outcome);
        self.attempts.get_mut(&id).expect("attempt is here").state = State::Ended;
        out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        self.tell(id, NodeMessage::AttemptEnded { report }, out);
        self.take_back_private(id, out);
    }

    /// Reports that copies which only this attempt could read are gone with it.
    pub(super) fn take_back_private(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        for (object, digest) in std::mem::take(&mut attempt.reported_private) {
            if self.held.get(&object).is_none_or(|held| held.digest != digest) {
                self.tell(id, NodeMessage::ReplicaDropped(object), out);
            }
        }
    }

    pub(super) fn report(&self, id: AttemptId, outcome: Outcome) -> Arc<AttemptReport> {
        let a = &self.attempts[&id];
        let told = a.inputs.iter().filter(|input| input.outcome.is_some());
        let in_memory = told.zip(0..).filter(|(input, _)| input.in_memory).map(|(_, i)| i).collect();
        let inputs = a.inputs.iter().zip(&a.assignment.inputs).filter_map(|(input, assigned)| {
            Some(InputReport {
                object: assigned.object,
                outcome: input.outcome?,
                size_bytes: input.size_bytes,
                wait_ns: input.wait_ns,
            })
        });
        let outputs = a.outputs.iter().enumerate().filter_map(|(i, o)| {
            let s = o.stored.as_ref()?;
            let (digest, size_bytes, marks) = (s.digest, s.size_bytes, o.marks);
            Some(OutputReport { output: i as u32, digest, size_bytes, marks })
        });
        Arc::new(AttemptReport {
            task: id.0,
            attempt: id.1,
            outcome,
            times: a.times,
            inputs: inputs.collect(),
            in_memory,
            outputs: outputs.collect(),
            cpu_ns: a.cpu_ns,
            rss_bytes_max: a.rss_bytes_max,
            left: a.left.clone(),
        })
    }

    pub(super) fn forget_outputs(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = &self.attempts[&id];
        let cached: Vec<ObjectId> = attempt
            .outputs
            .iter()
            .zip(&attempt.assignment.outputs)
            .filter(|(o, _)| o.cached)
            .map(|(_, object)| *object)
            .collect();
        for object in cached {
            self.staying.remove(&object);
            self.cache.release(object);
            self.doomed.insert(object);
            self.drop_if_doomed(object, out);
        }
    }

    /// An attempt has failed after all: what it made does not stay here.
    pub(super) fn forget_staying(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let assignment = &self.attempts[&id].assignment;
        let objects: Vec<ObjectId> =
            assignment.staying.iter().map(|output| assignment.outputs[*output as usize]).collect();
        for object in objects {
            if self.staying.remove(&object) {
                self.cache.release(object);
                self.doomed.insert(object);
                self.drop_if_doomed(object, out);
            }
        }
    }
}
