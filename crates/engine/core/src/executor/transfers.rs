//! Transfers into this node: wanted, begun within the limits, ended; for attempts, and ahead of them for collectives.

use super::streams::Uses;
use super::transfer_queue::QueuePlace;
use super::transfer_queue::{Line, WaitsFor};
use super::{Attempt, AttemptId, Executor, Expect, Here, State, Transfer};
use crate::cache::Reserve;
use crate::collective::BatchId;
use crate::event::{
    AssignedInput, Fetched, InputMoved, NodeAction, NodeMessage, Source, Target, TransferError,
    TransferErrorKind,
};
use eyas_terms::{CacheOutcome, Failure, FailureKind, ObjectId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

impl Executor {
    /// Joins the transfer to `target`, or queues it.
    pub(super) fn want(&mut self, target: Target, id: AttemptId, input: u32) {
        if let Some(transfer) = self.transfers.get_mut(&target) {
            transfer.waiters.push((id, input));
            self.change_line(target);
            return;
        }
        let attempt = &self.attempts[&id];
        let assigned = &attempt.assignment.inputs[input as usize];
        let expect = attempt.inputs[input as usize].expect.clone();
        // The size is what was reserved: an object counts with the size of its largest input.
        let inputs = attempt.by_object.of(assigned.object);
        let size_bytes = inputs.map(|i| attempt.inputs[i as usize].size_bytes).max().unwrap_or(0);
        let mut sources: VecDeque<Source> = assigned.sources.iter().map(|e| Source::Peer(*e)).collect();
        if expect.known.is_none() || matches!(target, Target::Private { .. }) {
            // Peers can only be asked for bytes with a known digest.
            sources.clear();
        }
        if !assigned.stays {
            sources.push_back(Source::Home);
        }
        let transfer = Transfer {
            object: assigned.object,
            size_bytes,
            expect,
            sources,
            active: None,
            shares: false,
            place: None,
            waiters: vec![(id, input)],
            story: vec![],
            batch: None,
            awaits: false,
            watched: assigned.watched,
            made_of: self.find_packed(id, input),
        };
        self.transfers.insert(target, Box::new(transfer));
        self.queue_up(target);
    }

    /// The transfer waits behind all others to be begun.
    pub(super) fn queue_up(&mut self, target: Target) {
        let line = self.line_of(&self.transfers[&target]);
        let place = self.transfer_queue.put(line, target);
        self.transfers.get_mut(&target).expect("just seen").place = Some(place);
    }

    /// Those who wait for the transfer have changed: if it is queued, it stands in the line of the first one.
    pub(super) fn change_line(&mut self, target: Target) {
        let transfer = &self.transfers[&target];
        let line = self.line_of(transfer);
        if let Some(place) = transfer.place.filter(|place| place.line() != line) {
            let place = self.transfer_queue.change_line(place, line);
            self.transfers.get_mut(&target).expect("just seen").place = Some(place);
        }
    }

    /// The line of the queue that a transfer belongs to.
    pub(super) fn line_of(&self, transfer: &Transfer) -> Line {
        let first = transfer.waiters.first().filter(|_| self.config.inputs_in_turn);
        let waits_for = match transfer.made_of {
            Some(_) => WaitsFor::Various,
            None => WaitsFor::of(&transfer.sources, self.is_small(transfer)),
        };
        Line { attempt: first.map(|(id, _)| *id), waits_for }
    }

    /// Whether the object shares a stream if it comes from a peer.
    fn is_small(&self, transfer: &Transfer) -> bool {
        transfer.size_bytes <= self.config.small_bytes_max && self.config.small_bytes_max > 0
    }

    /// Fetches an object for attempts to come. Space is taken from objects that may be evicted; if that is
    /// not enough, the request is refused.
    pub(super) fn prefetch(
        &mut self,
        batch: BatchId,
        awaits: bool,
        input: &AssignedInput,
        out: &mut Vec<NodeAction>,
    ) {
        let AssignedInput { object, known: Some(known), sources, stays, .. } = input else {
            return self.prefetch_failed(batch, input.object, TransferErrorKind::Unavailable, out);
        };
        let expect = Expect { known: Some(known.clone()), version: None };
        let mut sources: VecDeque<Source> = sources.iter().map(|e| Source::Peer(*e)).collect();
        if !stays {
            sources.push_back(Source::Home);
        }
        let target = Target::Cache(*object);
        match self.look(*object, &expect) {
            Here::Right => {
                // The object is here or on its way. In the latter case, ask the sources that the dispatcher
                // names now.
                if let Some(transfer) = self.transfers.get_mut(&target) {
                    (transfer.batch, transfer.awaits) = (Some(batch), awaits);
                    if transfer.active.is_none() {
                        transfer.sources = sources;
                        self.change_line(target);
                    }
                }
            }
            Here::Absent => {
                let mut evicted = vec![];
                let granted = self.cache.reserve(*object, known.size_bytes, &mut evicted);
                for object in evicted {
                    self.evicted(object, out);
                }
                if granted != Reserve::Granted {
                    return self.prefetch_failed(batch, *object, TransferErrorKind::NoSpace, out);
                }
                let transfer = Transfer {
                    object: *object,
                    size_bytes: known.size_bytes,
                    expect,
                    sources,
                    active: None,
                    shares: false,
                    place: None,
                    waiters: vec![],
                    story: vec![],
                    batch: Some(batch),
                    awaits,
                    watched: false,
                    made_of: None,
                };
                self.transfers.insert(target, Box::new(transfer));
                self.queue_up(target);
            }
            Here::Stale | Here::Taken => {
                self.prefetch_failed(batch, *object, TransferErrorKind::Temporary, out)
            }
        }
    }

    pub(super) fn prefetch_failed(
        &mut self,
        batch: BatchId,
        object: ObjectId,
        kind: TransferErrorKind,
        out: &mut Vec<NodeAction>,
    ) {
        out.push(NodeAction::Tell { message: NodeMessage::PrefetchFailed { batch, object, kind } });
    }

    pub(super) fn on_transfer_ended(
        &mut self,
        now: Timestamp,
        target: Target,
        source: Source,
        result: Result<Fetched, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(transfer) = self.transfers.get_mut(&target) else { return };
        if transfer.active != Some(source) {
            return;
        }
        transfer.active = None;
        let shares = std::mem::take(&mut transfer.shares);
        self.streams.end(target, Uses::of(source, shares, transfer.made_of.is_some()));
        let written_bytes = result.as_ref().map_or(0, |fetched| fetched.size_bytes);
        self.space.transfer_ended(transfer.size_bytes, written_bytes);
        match result {
            Err(TransferError { kind: TransferErrorKind::Larger { bytes }, .. }) => {
                self.on_larger(target, bytes, out)
            }
            Ok(bytes) if matches!(target, Target::Cache(_)) && bytes.size_bytes > transfer.size_bytes => {
                let message =
                    format!("it has {} bytes, {} were expected", bytes.size_bytes, transfer.size_bytes);
                let error = TransferError { kind: TransferErrorKind::Changed, message };
                self.on_source_failed(now, target, source, error, out);
            }
            Ok(bytes) => self.on_arrived(now, target, source, &bytes, out),
            Err(error) => self.on_source_failed(now, target, source, error, out),
        }
    }

    /// The bytes of a transfer have arrived: updates the cache, reports to the dispatcher, and lets the
    /// waiting attempts go on.
    fn on_arrived(
        &mut self,
        now: Timestamp,
        target: Target,
        source: Source,
        bytes: &Fetched,
        out: &mut Vec<NodeAction>,
    ) {
        let transfer = self.transfers.remove(&target).expect("a transfer that ends is here");
        match target {
            Target::Cache(object) => self.keep_arrived(object, &transfer, bytes, out),
            // The attempt ended while its copy was on its way, or had to go back to wait for space.
            Target::Private { task, attempt, input } if transfer.waiters.is_empty() => {
                out.push(NodeAction::DropPrivate { task, attempt, input });
            }
            Target::Private { task, attempt, .. } => {
                self.report_private((task, attempt), &transfer, bytes, out);
            }
        }
        if transfer.watched && matches!(target, Target::Private { .. }) {
            let received = transfer.waiters.first().and_then(|(id, _)| self.attempts.get(id));
            let moved = InputMoved {
                target,
                object: transfer.object,
                source,
                moved_bytes: bytes.size_bytes,
                size_bytes: bytes.size_bytes,
                moving_ns: received.map_or(0, |a| now.since_ns(a.times.received)),
                is_all: true,
            };
            out.push(NodeAction::Tell { message: NodeMessage::InputMoved(moved) });
        }
        let first = match (source, target) {
            (_, Target::Private { .. }) => CacheOutcome::Direct,
            (Source::Peer(from), _) => CacheOutcome::RemoteHit { from },
            (Source::Home, _) if transfer.made_of.is_some() => CacheOutcome::Made,
            (Source::Home, _) => CacheOutcome::Miss,
        };
        for (n, (id, i)) in transfer.waiters.iter().enumerate() {
            let Some(attempt) = self.attempts.get_mut(id) else { continue };
            let input = &mut attempt.inputs[*i as usize];
            input.outcome = Some(if n == 0 { first } else { CacheOutcome::Joined });
            input.size_bytes = bytes.size_bytes;
            let wanted = attempt.added.get(i).map_or(attempt.times.received, |added| added.named);
            input.wait_ns = now.since_ns(wanted);
            attempt.n_missing -= 1;
            match self.is_added(*id, *i) {
                true => self.brought(*id, *i, out),
                false => self.start_when_ready(now, *id),
            }
        }
        if let Target::Cache(object) = target {
            self.drop_if_doomed(object, out);
            self.take_into_memory(object, false, out);
        }
    }

    /// Keeps a copy that has come into the cache, and reports it to the dispatcher.
    fn keep_arrived(
        &mut self,
        object: ObjectId,
        transfer: &Transfer,
        bytes: &Fetched,
        out: &mut Vec<NodeAction>,
    ) {
        self.cache.commit(object, bytes.size_bytes);
        let mut made = bytes.clone();
        if let Some(packed) = transfer.made_of.and_then(|packed| self.held.get(&packed)) {
            // The version is that of the very bytes that it was made of.
            made.version = packed.version.clone().or(made.version);
        }
        let bytes = &made;
        let known = transfer.expect.known.as_ref();
        let known_version = known.map(|k| k.version.clone()).filter(|v| !v.stamp.is_empty());
        let version = bytes.version.clone().or(known_version);
        self.held.insert(object, Fetched { version, ..bytes.clone() });
        if let Some(version) = &bytes.version {
            self.home.was_read(object, version);
        }
        let by = transfer.waiters.first().map(|w| w.0);
        if !self.report_served(object, bytes, out) || by.is_some() {
            self.report_replica(by, object, bytes, false, out);
        }
    }

    /// Reports which bytes an attempt has for itself alone, if it is the first reader of its run: the whole
    /// run must read what this attempt read.
    fn report_private(
        &mut self,
        id: AttemptId,
        transfer: &Transfer,
        bytes: &Fetched,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(version) = &bytes.version else { return };
        self.home.was_read(transfer.object, version);
        if transfer.expect.known.is_some() {
            return;
        }
        if let Some(attempt) = self.attempts.get_mut(&id) {
            // The report is taken back when the attempt has ended, as no other attempt can have this copy.
            attempt.reported_private.push((transfer.object, bytes.digest));
            self.report_replica(Some(id), transfer.object, bytes, true, out);
        }
    }

    /// A source did not give the bytes: the next source is asked, or all waiting attempts fail or wait for
    /// space.
    fn on_source_failed(
        &mut self,
        now: Timestamp,
        target: Target,
        source: Source,
        error: TransferError,
        out: &mut Vec<NodeAction>,
    ) {
        if let (Source::Peer(peer), TransferErrorKind::Unreachable) = (source, error.kind) {
            out.push(NodeAction::Tell { message: NodeMessage::PeerUnreachable { peer } });
        }
        let transfer = self.transfers.get_mut(&target).expect("a transfer that ends is here");
        transfer.story.push(match source {
            Source::Peer(peer) => format!("executor {peer} ({})", error.message),
            Source::Home => format!("home ({})", error.message),
        });
        let hopeless = matches!(
            error.kind,
            TransferErrorKind::Changed | TransferErrorKind::NoSpace | TransferErrorKind::Unmakeable
        );
        let has_more = !transfer.sources.is_empty();
        if !hopeless && has_more && self.is_awaited(target) {
            self.queue_up(target);
            return;
        }
        let transfer = self.transfers.remove(&target).expect("just seen");
        let is_private = matches!(target, Target::Private { .. });
        if let Target::Cache(object) = target {
            self.cache.abort(object);
            self.doomed.remove(&object);
        }
        let no_space = error.kind == TransferErrorKind::NoSpace;
        if no_space {
            self.on_no_space(now, if is_private { transfer.size_bytes } else { 0 }, out);
        }
        let failure = transfer.failure(&error);
        for (id, input) in &transfer.waiters {
            if self.is_added(*id, *input) {
                self.not_brought(*id, *input, &error, out);
                continue;
            }
            if no_space && (!is_private || self.may_find_room(*id)) {
                self.wait_for_space(*id, is_private, out);
                continue;
            }
            let mut failure = match self.attempts.contains_key(id) {
                true if no_space => self.why_no_room(*id, &failure.message),
                _ => failure.clone(),
            };
            let stays = |a: &Attempt| a.assignment.inputs[*input as usize].stays;
            if failure.kind == FailureKind::InputUnavailable && self.attempts.get(id).is_some_and(stays) {
                failure.kind = FailureKind::InputLost;
            }
            self.fail(*id, failure, out);
        }
        if let Some(batch) = transfer.batch {
            self.prefetch_failed(batch, transfer.object, error.kind, out);
        }
        if !is_private {
            self.not_served(transfer.object, &error, out);
        }
    }

    /// Whether an attempt, a collective or another node waits for this transfer.
    pub fn is_awaited(&self, target: Target) -> bool {
        self.transfers.get(&target).is_some_and(|transfer| {
            let is_served = self.serving.contains_key(&transfer.object);
            !transfer.waiters.is_empty() || transfer.batch.is_some() || is_served
        })
    }

    /// Whether an attempt or another node waits for home's answer about the object.
    pub fn is_asked(&self, object: ObjectId) -> bool {
        let is_served = self.serving.contains_key(&object);
        self.home
            .asking(object)
            .is_some_and(|asking| is_served || !asking.waiters.is_empty() || !asking.later.is_empty())
    }

    /// Whether a copy of the object is to come into the cache, from the source that was asked or from the
    /// next one.
    pub fn is_fetching(&self, object: ObjectId) -> bool {
        self.transfers.contains_key(&Target::Cache(object))
    }

    pub(super) fn begin_transfers(&mut self, out: &mut Vec<NodeAction>) {
        let is_in_program =
            |a: &Attempt| matches!(a.state, State::Queued | State::Running) && a.n_missing == 0;
        if self.alone.is_some_and(|id| is_in_program(&self.attempts[&id])) {
            return;
        }
        self.streams.look_at_small(&self.config);
        let mut walk = self.transfer_queue.walk();
        let mut on_their_way = BTreeMap::new();
        while (self.streams.has_room(&self.config) || self.config.small_bytes_max > 0)
            && let Some(step) = walk.next()
        {
            let target = self.transfer_queue.target(step.place);
            if !self.streams.has_room_for(&self.config, step.place.line().waits_for) {
                continue;
            }
            if let Some(id) = step.place.line().attempt {
                // What was found before holds until the next transfer begins.
                let n_active = self.streams.n_active();
                let (seen_at, moving) = on_their_way.entry(id).or_insert((usize::MAX, OnTheirWay::None));
                if *seen_at != n_active {
                    (*seen_at, *moving) = (n_active, self.on_their_way(id));
                }
                match *moving {
                    OnTheirWay::One(input) if self.asked_first(target) != Some((id, input)) => {
                        walk.pass_over(step, self.places_of_input(id, input));
                        continue;
                    }
                    OnTheirWay::Several => continue,
                    OnTheirWay::One(_) | OnTheirWay::None => {}
                }
            }
            walk.go_on(step, &self.transfer_queue);
            if let Some(source) = self.choose_source(target) {
                self.begin_transfer(target, source, out);
            }
        }
    }

    /// The attempt and the number of its input that a transfer was begun for.
    fn asked_first(&self, target: Target) -> Option<(AttemptId, u32)> {
        self.transfers[&target].waiters.first().copied()
    }

    /// Which inputs of an attempt are on their way into this node, for it or for others.
    fn on_their_way(&self, id: AttemptId) -> OnTheirWay {
        let Some(attempt) = self.attempts.get(&id) else { return OnTheirWay::None };
        let mut found = None;
        for target in self.streams.targets() {
            let (of_cache, private) = match *target {
                Target::Cache(object) => (Some(attempt.by_object.of(object)), None),
                Target::Private { task, attempt, input } => (None, (id == (task, attempt)).then_some(input)),
            };
            for input in of_cache.into_iter().flatten().chain(private) {
                if found.is_some_and(|other| other != input) {
                    return OnTheirWay::Several;
                }
                found = Some(input);
            }
        }
        found.map_or(OnTheirWay::None, OnTheirWay::One)
    }

    /// Where transfers wait that were asked for by this attempt for this input.
    fn places_of_input(&self, id: AttemptId, input: u32) -> impl Iterator<Item = QueuePlace> {
        let object = self.attempts[&id].assignment.inputs[input as usize].object;
        let (task, attempt) = id;
        let targets = [Target::Cache(object), Target::Private { task, attempt, input }];
        targets.into_iter().filter_map(move |target| {
            let transfer = self.transfers.get(&target)?;
            transfer.place.filter(|_| transfer.waiters.first() == Some(&(id, input)))
        })
    }

    /// The source that a queued transfer may be begun from now; its position among those that are left to try.
    fn choose_source(&self, target: Target) -> Option<usize> {
        let transfer = &self.transfers[&target];
        let (streams, config) = (&self.streams, &self.config);
        let (small, has_room) = (self.is_small(transfer), streams.has_room(config));
        let home_has_room = has_room && streams.has_room_at_home(config);
        let peers_left = transfer.sources.iter().any(|s| matches!(s, Source::Peer(_)));
        transfer.sources.iter().position(|source| match source {
            Source::Peer(peer) => streams.has_room_at(config, *peer, small),
            Source::Home if transfer.made_of.is_some() => {
                has_room && !peers_left && !self.awaits_packed(transfer)
            }
            // Home is the last resort: a busy peer is waited for, and shared storage is spared.
            Source::Home => !peers_left && home_has_room,
        })
    }

    /// Begins a queued transfer from the source at position `choice`.
    fn begin_transfer(&mut self, target: Target, choice: usize, out: &mut Vec<NodeAction>) {
        let small = self.is_small(&self.transfers[&target]);
        let transfer = self.transfers.get_mut(&target).expect("queued transfer is here");
        let source = transfer.sources.remove(choice).expect("position is in range");
        self.transfer_queue.remove(transfer.place.take().expect("it is queued"));
        transfer.active = Some(source);
        transfer.shares = small && source != Source::Home;
        self.space.transfer_began(transfer.size_bytes);
        // What is made on the node uses nothing of home, as the packed file is here.
        self.streams.begin(
            &self.config,
            target,
            Uses::of(source, transfer.shares, transfer.made_of.is_some()),
        );
        out.push(NodeAction::Fetch {
            target,
            object: transfer.object,
            source,
            known: transfer.expect.known.clone(),
            size_bytes: transfer.size_bytes,
            awaits: std::mem::take(&mut transfer.awaits) && source != Source::Home,
            watched: transfer.watched,
            packed: transfer.made_of.filter(|_| source == Source::Home),
        });
    }
}

/// Inputs of one attempt that are on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnTheirWay {
    None,
    One(u32),
    Several,
}

impl Transfer {
    /// The failure for the attempts that wait: the last source's error, and all sources that were tried if
    /// there were several.
    fn failure(&self, error: &TransferError) -> Failure {
        let message = match self.story.len() {
            0 | 1 => error.message.clone(),
            _ => format!("{}; tried {}", error.message, self.story.join(", ")),
        };
        Failure { message, ..failure_of(error) }
    }
}

pub(super) fn failure_of(error: &TransferError) -> Failure {
    let kind = match error.kind {
        TransferErrorKind::Changed => FailureKind::InputChanged,
        TransferErrorKind::Unmakeable => FailureKind::InputUnmakeable,
        TransferErrorKind::NoSpace
        | TransferErrorKind::Dropped
        | TransferErrorKind::GivenUp
        | TransferErrorKind::Shortage => FailureKind::Node,
        _ => FailureKind::InputUnavailable,
    };
    Failure { kind, message: error.message.clone() }
}
