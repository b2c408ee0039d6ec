//! The work of a node that takes time: programs, transfers, and the files that they read, write and spoil.

use super::account::{Witness, WitnessKey};
use super::{MS, S, World};
use crate::happening::{AttemptId, Ev, Fault, NodeWork};
use crate::home::{Content, hash};
use crate::node::{Stored, own_disk};
use eyas_core::event::*;
use eyas_session::executor::attempts::SIGNAL_PATIENCE_NS;
use eyas_session::executor::{Ended, Verdict};
use eyas_terms::home_wait::Tries;
use eyas_terms::*;
use std::collections::BTreeSet;

/// What batch systems send to all programs of a job whose time is over: XCPU. Nothing else here ends a program by it.
const JOBS_SIGNAL: i32 = 24;

/// The name of the home of a world.
const HOME: &str = "home";

/// What becomes of work that may be a request to home.
enum Asked {
    Goes(NodeWork),
    /// It is done later.
    Waits,
    /// It has failed for this reason.
    Fails(NodeWork, TransferError),
}

impl World {
    pub(super) fn start(&mut self, (n, epoch): (usize, u64), id: AttemptId, staged: &[Staged]) {
        self.nodes[n].contexts.get_mut(&id).expect("what starts was assigned").runs = true;
        let node = &self.nodes[n];
        let context = &node.contexts[&id];
        let mut seen = vec![];
        for (i, (staged, input)) in staged.iter().zip(&context.assignment.inputs).enumerate() {
            let location = node.session.book().location(input.object).to_string();
            let digest = match staged {
                Staged::Cached(object) => node.stored(*object).map(|s| s.digest),
                Staged::Private => node.private.get(&(id, i as u32)).map(|s| s.digest),
                Staged::InPlace(_) => self.home.find(&location).map(|c| c.digest),
                // What is made of it is here.
                Staged::Unneeded => continue,
            };
            let digest = digest.unwrap_or_else(|| panic!("promise 2: {id:?} starts without {location}"));
            seen.push((location, digest, matches!(staged, Staged::InPlace(_))));
        }
        let since = self.account.run_since[&context.assignment.run];
        for (location, digest, _) in &seen {
            let had = match CatalogLocation::of(location).stays() {
                true => self.account.made.get(location).is_some_and(|made| made.contains(digest)),
                false => self.home.had(location, *digest, since),
            };
            assert!(had, "promise 2: {id:?} starts with bytes of {location} that home did not have then");
        }
        let read: Vec<Digest> = seen.iter().map(|(_, digest, _)| *digest).collect();
        let outputs = context.outputs.iter().enumerate().map(|(i, l)| {
            if self.o.linked {
                return (l.clone(), self.made_of(&context.name, &read, i));
            }
            let differs = self.o.outputs_differ || self.o.staying_differ && CatalogLocation::of(l).stays();
            let how = if differs { format!("{n} {epoch} {id:?}") } else { String::new() };
            (l.clone(), self.bytes_of(&format!("{l} by task {how}"), 0).0)
        });
        let incarnation = node.session.attempts().find(id).expect("what starts was assigned").incarnation;
        let witness = Witness {
            name: context.name.clone(),
            seen: seen.clone(),
            outputs: outputs.collect(),
            incarnation,
            spoiled: false,
        };
        self.nodes[n].contexts.get_mut(&id).expect("seen above").seen = seen;
        self.account.witnesses.insert(self.key_of(n, id), witness);
        let takes = self.lasts(self.o.program_ns_max);
        if self.o.scratch_bytes_max > 0 {
            let free_bytes = self.free_bytes(n);
            let node = &mut self.nodes[n];
            let context = node.contexts.get_mut(&id).expect("seen above");
            (context.free_bytes, context.written_before_bytes) = (free_bytes, node.written_bytes);
            self.after(takes / 4, Ev::Done { n, epoch, work: NodeWork::Scratch { id } });
        }
        self.after(takes, Ev::Done { n, epoch, work: NodeWork::Program { id } });
        // Drawn by itself, so that all else in this world stays as it is.
        let drawn = hash(self.o.seed, format!("withdrawn {n} {epoch} {id:?}").as_bytes());
        if self.faults && self.o.midway && drawn.is_multiple_of(8) {
            self.after(takes / 2, Ev::Done { n, epoch, work: NodeWork::Withdraw { id } });
        }
    }

    /// The bytes of an output that follow from its task and the bytes that it reads.
    pub(super) fn made_of(&self, name: &str, read: &[Digest], output: usize) -> Digest {
        self.bytes_of(&format!("{name} {read:?} {output}"), 0).0
    }

    /// Where an attempt's witness is.
    fn key_of(&self, n: usize, id: AttemptId) -> WitnessKey {
        (self.nodes[n].giver_of[&id], n, id.0, id.1)
    }

    fn witness_of(&self, n: usize, id: AttemptId) -> &Witness {
        &self.account.witnesses[&self.key_of(n, id)]
    }

    /// Some batch systems send a signal to all programs of a job a moment before they end it. `true`: they have just done so, and
    /// the end comes as the same fault once more.
    pub(super) fn signal_programs(&mut self, n: usize) -> bool {
        let epoch = self.nodes[n].epoch;
        let drawn = hash(self.o.seed, format!("signals {n} {epoch}").as_bytes());
        if drawn.is_multiple_of(2) || std::mem::replace(&mut self.nodes[n].is_signalled, true) {
            return false;
        }
        let mut ids = vec![];
        for (id, context) in self.nodes[n].contexts.iter_mut().filter(|(_, c)| c.runs) {
            context.signal = Some(JOBS_SIGNAL);
            ids.push(*id);
        }
        for id in ids {
            self.after(MS, Ev::Done { n, epoch, work: NodeWork::Program { id } });
        }
        let wait = drawn % (SIGNAL_PATIENCE_NS / 5 * 4);
        self.after(wait.max(2 * MS), Ev::Fault(Fault::WalltimeEnds(n, epoch)));
        true
    }

    /// An end that the whole node met is never told as a program's own.
    pub(super) fn check_told(&self, message: &NodeMessage) {
        if let NodeMessage::AttemptEnded { report } = message
            && let Outcome::Failed(failure) = &report.outcome
        {
            let is_of_job = failure.kind == FailureKind::Signal(JOBS_SIGNAL);
            assert!(!is_of_job, "promise 1: the end of a job is told as a failure of {:?}", report.task);
        }
    }

    /// A program is taken back from its slot if it still waits there; the slot says so a moment later.
    fn withdraw(&mut self, n: usize, id: AttemptId) {
        let node = &mut self.nodes[n];
        let Some(context) = node.contexts.get_mut(&id).filter(|c| c.runs) else { return };
        if node.session.withdraw(id) {
            // It may have begun just then: then it ends in its own time, as what runs again does.
            context.withdrawn = id.0.0.is_multiple_of(2);
            if context.withdrawn {
                self.end_program(n, id, false);
            }
        }
    }

    /// Inputs of an attempt that are rotten are found and dropped, and the attempt ends. `true`: it has.
    pub(super) fn refuse_rotten(&mut self, n: usize, id: AttemptId, staged: &[Staged]) -> bool {
        let node = &self.nodes[n];
        let cached = staged.iter().filter_map(|staged| match staged {
            Staged::Cached(object) => node.session.book().digest(*object),
            Staged::Private | Staged::Unneeded | Staged::InPlace(_) => None,
        });
        let rotten: BTreeSet<Digest> = cached.filter(|digest| node.rotten.contains(digest)).collect();
        // Another attempt that was to start at the same moment has found it.
        let is_gone = staged.iter().any(|staged| {
            matches!(staged, Staged::Cached(object) if node.session.book().digest(*object).is_none()
                && self.o.warm && self.account.damaged.contains(&(n, *object)))
        });
        for digest in &rotten {
            self.find_corrupt(n, *digest);
        }
        if is_gone || !rotten.is_empty() {
            let now = self.clock_of(n);
            let exit = Exit {
                result: Err(Failure { kind: FailureKind::Node, message: "an input was damaged".into() }),
                started: now,
                exited: now,
                cpu_ns: 0,
                rss_bytes_max: 0,
                left: None,
                found: vec![],
                outputs: vec![],
                inputs_modified: vec![],
                inputs_damaged: vec![],
                disk: None,
            };
            self.feed(n, NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
        }
        is_gone || !rotten.is_empty()
    }

    /// A piece of work that a node began is over.
    pub(super) fn on_done(&mut self, n: usize, work: NodeWork) {
        let (work, mut refused) = match self.home_takes(n, work) {
            Asked::Goes(work) => (work, None),
            Asked::Waits => return,
            Asked::Fails(work, error) => (work, Some(error)),
        };
        let error = |kind, message: &str| TransferError { kind, message: message.into() };
        let event = match work {
            NodeWork::Hold { object } => {
                let result = match self.rng.below(8) {
                    0 => Err(NotHeldInMemory::Refused),
                    1 => Err(NotHeldInMemory::Gone),
                    _ => Ok(()),
                };
                NodeEvent::MemoryAnswered { object, result }
            }
            NodeWork::Ask { object } => {
                let location = self.nodes[n].session.book().location(object).to_string();
                assert!(!CatalogLocation::of(&location).stays(), "home is asked for {location}");
                let own = format!("{}/", own_disk(self.nodes[n].number));
                let in_place = location.starts_with("local/") || location.starts_with(&own);
                let result = match self.home.find(&location) {
                    _ if let Some(error) = refused.take() => Err(error),
                    _ if self.home.is_down => Err(error(TransferErrorKind::Temporary, "home is down")),
                    Some(content) => Ok(HomeAnswer { version: content.version.clone(), in_place }),
                    None => Err(error(TransferErrorKind::Unavailable, "it does not exist")),
                };
                NodeEvent::HomeAnswered { object, result }
            }
            NodeWork::Moved { moved } => NodeEvent::TransferMoved { moved },
            NodeWork::Fetch { target, object, source, known, size_bytes, began } => {
                let result = match source {
                    _ if let Some(error) = refused.take() => Err(error),
                    _ if self.fault(self.o.transfer_fails) => {
                        let kinds = [
                            TransferErrorKind::NotHeld,
                            TransferErrorKind::Busy,
                            TransferErrorKind::Corrupt,
                            TransferErrorKind::Temporary,
                            TransferErrorKind::NoSpace,
                        ];
                        Err(error(kinds[self.rng.below(5) as usize], "bad luck"))
                    }
                    Source::Home => {
                        self.read_home(n, object, known.as_ref(), (size_bytes, target), began.as_ref())
                    }
                    Source::Peer(peer) if self.is_out_of_reach(n, peer) => {
                        Err(error(TransferErrorKind::Unreachable, "there is no way to it"))
                    }
                    // The peer reads what it has found on its disk through before it sends it.
                    Source::Peer(peer) if self.is_rotten_at(n, peer, known.as_ref()) => {
                        Err(error(TransferErrorKind::Corrupt, "its copy is damaged"))
                    }
                    Source::Peer(peer) => {
                        let holder = self.nodes[n].peers.get(&peer).map(|p| &self.nodes[*p]);
                        let holder = holder.filter(|h| h.is_up && h.stopped.is_none());
                        let held = holder.zip(known).and_then(|(h, known)| h.serves(known.digest));
                        held.map(|s| Fetched { digest: s.digest, size_bytes: s.size_bytes, version: None })
                            .ok_or_else(|| error(TransferErrorKind::NotHeld, "it is not there"))
                    }
                };
                let result = result.and_then(|bytes| match self.has_space(n, bytes.size_bytes) {
                    true => Ok(bytes),
                    false => Err(error(TransferErrorKind::NoSpace, "the disk is full")),
                });
                if let Ok(bytes) = &result {
                    let node = &mut self.nodes[n];
                    if source == Source::Home {
                        node.home_bytes += bytes.size_bytes;
                    }
                    let stored = Stored { digest: bytes.digest, size_bytes: bytes.size_bytes };
                    match target {
                        Target::Cache(_) => {
                            node.place(&stored);
                            let event = NodeEvent::TransferEnded { target, source, result };
                            return self.pass_word(n, stored.digest, event);
                        }
                        Target::Private { task, attempt, input } => {
                            node.private.insert(((task, attempt), input), stored);
                        }
                    }
                }
                NodeEvent::TransferEnded { target, source, result }
            }
            NodeWork::Again { .. } => unreachable!("it was taken apart before"),
            NodeWork::Withdraw { id } => return self.withdraw(n, id),
            NodeWork::Held { id } => return self.end_program(n, id, true),
            NodeWork::Word { event, .. } => self.nodes[n].take_word(event),
            NodeWork::Scratch { id } => return self.write_scratch(n, id),
            NodeWork::Program { id } => return self.end_program(n, id, false),
            NodeWork::Store { id, output, cache_bytes, .. } => {
                let (_, digest) = self.witness_of(n, id).outputs[output as usize];
                let size_bytes = self.output_bytes(digest);
                let has_space = cache_bytes.is_none() || self.has_space(n, size_bytes);
                let is_kept = !self.fault(self.o.transfer_fails / 4) && has_space;
                let result = match is_kept {
                    true => Ok(Fetched { digest, size_bytes, version: None }),
                    false => Err(error(TransferErrorKind::NoSpace, "the disk is full")),
                };
                let event =
                    NodeEvent::OutputStored { task: id.0, attempt: id.1, output, marks: None, result };
                if is_kept && cache_bytes.is_some() {
                    self.nodes[n].written_bytes += size_bytes;
                    self.nodes[n].place(&Stored { digest, size_bytes });
                    return self.pass_word(n, digest, event);
                }
                event
            }
            NodeWork::Land { id, output, object, cached } => {
                let (location, digest) = self.witness_of(n, id).outputs[output as usize].clone();
                assert!(!CatalogLocation::of(&location).stays(), "{location} goes home");
                let held = self.nodes[n].stored(object).map(|s| s.digest);
                let is_there = !cached || held == Some(digest);
                let was_damaged = self.account.damaged.contains(&(n, object));
                assert!(is_there || was_damaged, "promise 3: the last copy of {location} is gone");
                let node = &self.nodes[n];
                // An output that was asked to stop may be at home a moment before the request arrives.
                let halted = node.session.attempts().find(id).is_some_and(|a| a.is_halted);
                let has_fence = self.o.n_stops > 0;
                if has_fence && !halted && is_there && !node.lease.holds(self.calendar.now) {
                    // Right before the name would appear: wait until the dispatcher has confirmed that the
                    // attempt is still wanted.
                    let epoch = node.epoch;
                    let work = NodeWork::Land { id, output, object, cached };
                    return self.after(S / 5, Ev::Done { n, epoch, work });
                }
                let result = if let Some(error) = refused.take() {
                    Err(error)
                } else if !is_there {
                    Err(error(TransferErrorKind::Corrupt, "the stored output was damaged"))
                } else if halted && (has_fence || self.fault(self.o.halt_stops)) {
                    Err(error(TransferErrorKind::GivenUp, "it is not wanted any more"))
                } else if self.home.is_down || self.fault(self.o.transfer_fails / 4) {
                    Err(error(TransferErrorKind::Temporary, "it does not arrive"))
                } else {
                    self.check_landing(n, id, &location);
                    let size_bytes = self.output_bytes(digest);
                    Ok(self.home.write(self.calendar.now, &location, digest, size_bytes))
                };
                NodeEvent::OutputLanded { task: id.0, attempt: id.1, output, result }
            }
        };
        self.feed(n, event);
        self.go_elsewhere(n);
    }

    /// Whether a home that is busy takes a request, where the work of node `n` is one. The node waits as the live executor does.
    fn home_takes(&mut self, n: usize, work: NodeWork) -> Asked {
        let (mut work, again) = match work {
            NodeWork::Again { work, tries } => (*work, Some(tries)),
            work => (work, None),
        };
        let node = &mut self.nodes[n];
        let first = match &work {
            _ if self.o.home_takes == 0 => return Asked::Goes(work),
            NodeWork::Ask { object } | NodeWork::Fetch { object, source: Source::Home, .. } => {
                // What is on disks of nodes is not at that home.
                let location = node.session.book().location(*object);
                if ["local/", "own/"].iter().any(|begin| location.starts_with(begin)) {
                    return Asked::Goes(work);
                }
                Tries::of_input()
            }
            NodeWork::Land { .. } => Tries::of_output(),
            _ => return Asked::Goes(work),
        };
        let mut tries = again.unwrap_or(first);
        let halted = matches!(&work, NodeWork::Land { id, .. }
            if node.session.attempts().find(*id).is_some_and(|a| a.is_halted));
        if halted && again.is_some() {
            node.homes.given_up(HOME, &mut tries);
            let message = "it is not wanted any more".into();
            return Asked::Fails(work, TransferError { kind: TransferErrorKind::GivenUp, message });
        }
        if self.home.takes(self.calendar.now, self.o.home_takes) {
            node.homes.answered(self.calendar.now, HOME, &mut tries);
            if let (NodeWork::Fetch { object, began, .. }, true) = (&mut work, again.is_some()) {
                *began = self.home.find(node.session.book().location(*object)).cloned();
            }
            return Asked::Goes(work);
        }
        tries.heard_busy();
        let random = hash(self.o.seed, format!("busy {n} {}", self.calendar.n_events).as_bytes());
        match node.homes.failed(self.calendar.now, HOME, &mut tries, "it is busy", random) {
            Some(wait_ns) => {
                let epoch = node.epoch;
                let work = NodeWork::Again { work: Box::new(work), tries };
                self.after(wait_ns, Ev::Done { n, epoch, work });
                Asked::Waits
            }
            None => {
                let message = "home is busy".into();
                Asked::Fails(work, TransferError { kind: TransferErrorKind::HomeAway, message })
            }
        }
    }

    /// Whether node `n` cannot make a connection to a peer.
    fn is_out_of_reach(&self, n: usize, peer: ExecutorId) -> bool {
        let (Some(islands), Some(&holder)) = (self.o.islands, self.nodes[n].peers.get(&peer)) else {
            return false;
        };
        self.calendar.now.0 < self.o.islands_until_ns && islands.part(self.o.seed, n as u64, holder as u64)
    }

    /// Whether the copy that a peer is asked for is rotten. If so, the peer notices.
    fn is_rotten_at(&mut self, n: usize, peer: ExecutorId, known: Option<&Known>) -> bool {
        let (Some(&holder), Some(known)) = (self.nodes[n].peers.get(&peer), known) else { return false };
        let node = &self.nodes[holder];
        let is_rotten = node.is_up && node.stopped.is_none() && node.rotten.contains(&known.digest);
        if is_rotten {
            self.find_corrupt(holder, known.digest);
        }
        is_rotten
    }

    /// The driver receives the event about bytes that were stored for the cache: at once, or after a moment
    /// in which other bytes may be dropped.
    pub(super) fn pass_word(&mut self, n: usize, digest: Digest, event: NodeEvent) {
        if !self.o.equal {
            let event = self.nodes[n].take_word(event);
            return self.feed(n, event);
        }
        let (epoch, takes) = (self.nodes[n].epoch, self.lasts(20 * MS));
        self.after(takes, Ev::Done { n, epoch, work: NodeWork::Word { digest, event } });
    }

    pub(super) fn output_bytes(&self, digest: Digest) -> u64 {
        self.o.file_bytes.unwrap_or(u64::from(digest.0[0]) * self.o.object_bytes_max / 256)
    }

    /// Reads as the live executor does: the version is checked first, and again at the end.
    pub(super) fn read_home(
        &mut self,
        n: usize,
        object: ObjectId,
        known: Option<&Known>,
        (size_bytes, target): (u64, Target),
        began: Option<&Content>,
    ) -> Result<Fetched, TransferError> {
        let error = |kind, message: &str| Err(TransferError { kind, message: message.into() });
        if self.home.is_down {
            return error(TransferErrorKind::Temporary, "home is down");
        }
        let content = match (began, self.home.find(self.nodes[n].session.book().location(object))) {
            // Results land by a rename: a reader of the old file reads all of it.
            (Some(began), Some(now)) if began.digest == now.digest => began,
            (None, _) | (_, None) => return error(TransferErrorKind::Unavailable, "it does not exist"),
            _ => return error(TransferErrorKind::Changed, "it changed while it was read"),
        };
        if known.is_some_and(|k| k.digest != content.digest) {
            return error(TransferErrorKind::Changed, "it changed since this run first read it");
        }
        if matches!(target, Target::Cache(_)) && content.version.size_bytes > size_bytes {
            return error(TransferErrorKind::Changed, "it grew");
        }
        Ok(Fetched {
            digest: content.digest,
            size_bytes: content.version.size_bytes,
            version: Some(content.version.clone()),
        })
    }

    /// The number of bytes that a task's program writes: much for some tasks, little for most.
    pub(super) fn scratch_bytes(&self, task: TaskId) -> u64 {
        let drawn = hash(self.o.seed, format!("scratch {}", task.0).as_bytes());
        (self.o.scratch_bytes_max >> (drawn % 4)).max(1)
    }

    pub(super) fn write_scratch(&mut self, n: usize, id: AttemptId) {
        let (bytes, free_bytes) = (self.scratch_bytes(id.0), self.free_bytes(n));
        let node = &mut self.nodes[n];
        let Some(context) = node.contexts.get_mut(&id).filter(|c| c.runs) else { return };
        node.written_bytes += bytes.min(free_bytes);
        node.scratch.insert(id, bytes.min(free_bytes));
        context.had_no_room = bytes > free_bytes;
        if context.had_no_room {
            let (epoch, takes) = (node.epoch, self.lasts(10 * MS));
            self.after(takes, Ev::Done { n, epoch, work: NodeWork::Program { id } });
        }
    }

    pub(super) fn end_program(&mut self, n: usize, id: AttemptId, was_held: bool) {
        if self.nodes[n].contexts.get(&id).is_none_or(|c| !c.runs && !was_held) {
            return;
        }
        if self.waits_for_additions(n, id) {
            let epoch = self.nodes[n].epoch;
            return self.after(S / 2, Ev::Done { n, epoch, work: NodeWork::Program { id } });
        }
        let context = self.nodes[n].contexts.get_mut(&id).expect("seen above");
        context.runs = false;
        let was_withdrawn = std::mem::take(&mut context.withdrawn);
        let context = context.clone();
        let is_killed = self.nodes[n].is_killed(id);
        let ends_itself = !was_withdrawn && context.signal.is_none();
        let failed = ends_itself && self.fault(self.o.task_fails) || context.had_no_room;
        let ended = match context.signal {
            _ if is_killed || was_withdrawn => Ended::Cancelled,
            Some(signal) => Ended::Signaled(signal),
            None => Ended::Exited(i32::from(failed)),
        };
        match self.nodes[n].session.judge(id, ended, was_held, false) {
            Verdict::Hold => {
                let epoch = self.nodes[n].epoch;
                return self.after(SIGNAL_PATIENCE_NS, Ev::Done { n, epoch, work: NodeWork::Held { id } });
            }
            Verdict::RunAgain => {
                self.nodes[n].contexts.get_mut(&id).expect("seen above").runs = true;
                return;
            }
            Verdict::Counts | Verdict::CountsAsNodes => {}
            Verdict::Nothing => panic!("the driver knows {id:?}, and the session does not"),
        }
        // The program leaves nothing behind, so a check of the disk now may find room.
        self.nodes[n].scratch.remove(&id);
        let (mut inputs_modified, mut written) = (vec![], None);
        if !context.assignment.private_inputs && self.fault(self.o.task_writes_input) {
            for (i, input) in context.assignment.inputs.iter().enumerate() {
                let (location, digest, _) = &context.seen[i];
                // Only inputs that are linked from the cache can be written to.
                if self.nodes[n].private.contains_key(&(id, i as u32)) || location.starts_with("local/") {
                    continue;
                }
                if self.nodes[n].stored(input.object).is_some_and(|s| s.digest == *digest) {
                    let digest = *digest;
                    inputs_modified.extend(self.linked_inputs(n, id, digest));
                    self.spoil(n, digest);
                    written = Some(digest);
                    break;
                }
            }
        }
        let failure = |kind| Err(Failure { kind, message: String::new() });
        let result = if let Some(signal) = context.signal {
            failure(FailureKind::Signal(signal))
        } else if is_killed {
            failure(FailureKind::Signal(15))
        } else if failed {
            failure(FailureKind::ExitCode(1))
        } else {
            Ok(())
        };
        let outputs = &self.witness_of(n, id).outputs;
        let sizes = outputs.iter().map(|(_, digest)| Some(self.output_bytes(*digest))).collect();
        let now = self.clock_of(n);
        let exit = Exit {
            result,
            started: now,
            exited: now,
            cpu_ns: 0,
            rss_bytes_max: 0,
            left: None,
            found: vec![],
            outputs: sizes,
            inputs_damaged: inputs_modified.clone(),
            inputs_modified,
            disk: (self.o.scratch_bytes_max > 0).then(|| DiskSeen {
                free_bytes: context.free_bytes,
                is_full: self.free_bytes(n) == 0,
                wrote_bytes: Some(self.nodes[n].written_bytes - context.written_before_bytes),
                is_said: false,
            }),
        };
        self.feed(n, NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
        // All other objects with these bytes have lost them, too.
        if let Some(digest) = written {
            self.find_corrupt(n, digest);
        }
    }

    /// Whether the program of an attempt, if nothing ends it, goes on because a client has yet to add tasks.
    fn waits_for_additions(&self, n: usize, id: AttemptId) -> bool {
        let node = &self.nodes[n];
        let context = &node.contexts[&id];
        let is_ended = context.withdrawn || context.signal.is_some() || context.had_no_room;
        !is_ended && !node.is_killed(id) && !self.may_end(&context.name)
    }

    /// The inputs of an attempt that are links to the cached file of these bytes.
    pub(super) fn linked_inputs(&self, n: usize, id: AttemptId, digest: Digest) -> Vec<u32> {
        let node = &self.nodes[n];
        let context = &node.contexts[&id];
        let is_link = |i: &u32| {
            let (_, seen, in_place) = &context.seen[*i as usize];
            *seen == digest && !in_place && !node.private.contains_key(&(id, *i))
        };
        match context.assignment.private_inputs {
            true => vec![],
            false => (0..context.seen.len() as u32).filter(is_link).collect(),
        }
    }

    /// A cached file changes on disk; every program that runs with a link to it has wrong bytes.
    pub(super) fn spoil(&mut self, n: usize, digest: Digest) {
        let running = self.nodes[n].contexts.iter().filter(|(_, c)| c.runs).map(|(id, _)| *id);
        for id in running.collect::<Vec<_>>() {
            if !self.linked_inputs(n, id, digest).is_empty() {
                let key = self.key_of(n, id);
                self.account.witnesses.get_mut(&key).expect("it runs").spoiled = true;
            }
        }
    }

    /// The driver notices that a cached file has changed: all objects with these bytes are lost.
    pub(super) fn find_corrupt(&mut self, n: usize, digest: Digest) {
        for object in self.nodes[n].session.book().objects_with(digest) {
            self.account.damaged.insert((n, object));
            self.feed(n, NodeEvent::FoundCorrupt { object });
        }
    }
}
