//! Batches: which wants travel together, when they are asked for, and how long they may take.

use super::{
    ASKING_SHARE, Batch, CollectiveAction, Collectives, Pair, QueueId, SOURCES_MAX, State, take_one,
};
use crate::catalog::Catalog;
use crate::collective::cost::SPLIT_OBJECTS_MIN;
use crate::collective::{BatchId, Way};
use crate::event::Source;
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use std::collections::{BTreeSet, VecDeque};

impl Collectives {
    pub(super) fn out_max(&self, source: Source) -> u32 {
        if source == Source::Home { self.config.home_max } else { self.config.out_max }
    }

    /// Serves queues as far as streams are free.
    pub(super) fn issue(&mut self, now: Timestamp, catalog: &Catalog, out: &mut Vec<CollectiveAction>) {
        // A queue that was served goes behind the others, so that sources take turns.
        let mut again = BTreeSet::new();
        while !self.open.is_empty() || !again.is_empty() {
            let Some(id) = self.open.pop_first() else {
                self.open = std::mem::take(&mut again);
                continue;
            };
            let (collective, _, receiver, source) = id;
            if self.n_in.get(&receiver).copied().unwrap_or(0) >= self.config.in_max {
                self.blocked_in.entry(receiver).or_default().push(id);
                continue;
            }
            let way = self.live.get(&collective).map_or(Way::Archives, |l| l.way);
            let in_rounds = way == Way::Binomial;
            let in_round = self.n_in_rounds.get(&(collective, source)).copied().unwrap_or(0);
            if self.n_out.get(&source).copied().unwrap_or(0) >= self.out_max(source)
                || (in_rounds && in_round > 0)
            {
                self.blocked_out.entry(source).or_default().push(id);
                continue;
            }
            if in_rounds
                && let Source::Peer(peer) = source
                && self.n_into.contains_key(&(collective, peer))
            {
                // The peer has some of the objects: they go on together when all are there.
                self.blocked_in.entry(peer).or_default().push(id);
                continue;
            }
            let one_by_one = matches!(way, Way::PlainFetches | Way::AsyncGather);
            let n_max = if one_by_one { 1 } else { self.batch_len(id, in_rounds) };
            let objects = self.take_batch(id, n_max, catalog);
            if self.queues.get(&id).is_some_and(|q| !q.is_empty()) {
                again.insert(id);
            } else {
                self.queues.remove(&id);
            }
            if !objects.is_empty() {
                self.issue_batch(now, id, objects, in_rounds, catalog, out);
            }
        }
    }

    /// The number of objects that the next batch of a queue may have. Requests get shorter towards the end,
    /// so that all streams of the receiver end at about the same time, but not so short that asking takes a
    /// large part of the time.
    pub(super) fn batch_len(&self, id: QueueId, in_rounds: bool) -> usize {
        let n_max = self.config.batch_objects_max as usize;
        let (collective, rank, receiver, source) = id;
        let Some(first) = self.queues.get(&id).and_then(VecDeque::front).filter(|_| !in_rounds) else {
            return n_max;
        };
        let size_bytes = self.wants.get(&(receiver, *first)).map_or(0, |w| w.item.size_bytes);
        let link = if source == Source::Home { &self.links.home } else { &self.links.peer };
        let n_streams = self.config.in_max as usize;
        let each_s = link.per_object_s + n_streams as f64 * link.bytes_s(size_bytes);
        let worth_asking = (ASKING_SHARE * link.latency_s / each_s.max(1e-9)).ceil() as usize;
        let from = (collective, rank, receiver, Source::Peer(ExecutorId(0)));
        let of_receiver = self.queues.range(from..=(collective, rank, receiver, Source::Home));
        let n_left: usize = of_receiver.map(|(_, queue)| queue.len()).sum();
        n_left.div_ceil(2 * n_streams).max(worth_asking).max(SPLIT_OBJECTS_MIN as usize).min(n_max)
    }

    /// Takes the wants of a queue that can be asked for in one request. Wants that cannot come from there any
    /// more are placed anew.
    pub(super) fn take_batch(&mut self, id: QueueId, n_max: usize, catalog: &Catalog) -> Vec<ObjectId> {
        let (.., receiver, source) = id;
        let (mut objects, mut bytes) = (vec![], 0u64);
        // For streamed objects: the source's batch, and the position in it that was reached.
        let mut followed: Option<(BatchId, usize)> = None;
        while objects.len() < n_max && bytes < self.config.batch_bytes_max {
            let Some(object) = self.queues.get_mut(&id).and_then(VecDeque::pop_front) else { break };
            let pair = (receiver, object);
            let Some(want) = self.wants.get(&pair).filter(|w| w.state == State::Ready(source)) else {
                continue;
            };
            let is_there = match source {
                Source::Home => true,
                Source::Peer(peer) => catalog.holds(peer, object),
            };
            if is_there {
                bytes = bytes.saturating_add(want.item.size_bytes);
                // The state is set at once, because the want may be in the queue twice.
                self.set_state(pair, State::Issued(BatchId(self.n_batches), source));
                objects.push(object);
                continue;
            }
            let Source::Peer(peer) = source else { continue };
            let above = match self.wants.get(&(peer, object)).map(|w| w.state) {
                Some(State::Issued(above, _)) if want.way.streams() => above,
                _ => {
                    self.place(pair, catalog);
                    if self.wants.get(&pair).is_some_and(|w| w.state == State::Ready(source)) {
                        // The only source is the planned one again, which does not have the object: try again
                        // at the next tick.
                        self.set_state(pair, State::Nowhere);
                        self.retry.insert(pair);
                    }
                    continue;
                }
            };
            if !matches!(want.way, Way::ArchiveTree { .. }) {
                let at = self.batches[&above].objects.iter().position(|o| *o == object);
                let at = at.expect("an issued want is in its batch");
                if followed.is_some_and(|(batch, last)| batch != above || at < last) {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.push_front(object);
                    }
                    break;
                }
                followed = Some((above, at));
            }
            bytes = bytes.saturating_add(want.item.size_bytes);
            self.set_state(pair, State::Issued(BatchId(self.n_batches), source));
            objects.push(object);
        }
        objects
    }

    pub(super) fn issue_batch(
        &mut self,
        now: Timestamp,
        id: QueueId,
        objects: Vec<ObjectId>,
        in_rounds: bool,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let (collective, _, executor, source) = id;
        let batch_id = BatchId(self.n_batches);
        self.n_batches += 1;
        *self.n_in.entry(executor).or_default() += 1;
        *self.n_out.entry(source).or_default() += 1;
        if in_rounds {
            *self.n_in_rounds.entry((collective, source)).or_default() += 1;
            *self.n_into.entry((collective, executor)).or_default() += 1;
        }
        let n_tries = objects.iter().map(|o| self.wants[&(executor, *o)].n_tries).max().unwrap_or(0);
        let candidates = objects.iter().filter_map(|o| match source {
            Source::Peer(peer) if !catalog.holds(peer, *o) => match self.wants.get(&(peer, *o))?.state {
                State::Issued(above, _) => Some(above),
                _ => None,
            },
            _ => None,
        });
        let above = candidates.max_by_key(|above| (self.batches[above].deadline, *above));
        let n_sharing = self.n_in[&executor].max(self.n_out[&source]);
        let mut batch = Batch {
            collective,
            executor,
            source,
            deadline: now,
            in_rounds,
            above,
            issued: now,
            n_asked: objects.len() as u32,
            n_arrived: 0,
            bytes: objects.iter().map(|o| self.wants[&(executor, *o)].item.size_bytes).sum(),
            n_sharing,
            objects,
        };
        batch.deadline = now.plus_ns(self.patience_ns(&batch, n_tries));
        // A batch that is streamed from a node cannot end before that node's own batch.
        if let Some(above) = above.and_then(|above| self.batches.get(&above)) {
            batch.deadline = batch.deadline.max(above.deadline);
        }
        let first = batch.objects[0];
        let mut sources = vec![source];
        let others = catalog.holders_of(first).map(Source::Peer);
        let others = others.filter(|s| *s != source && *s != Source::Peer(executor));
        sources.extend(others.take(SOURCES_MAX - 1));
        if source != Source::Home && self.wants[&(executor, first)].item.at_home {
            sources.push(Source::Home);
        }
        let objects = batch.objects.clone();
        self.deadlines.insert((batch.deadline, batch_id));
        self.batches.insert(batch_id, batch);
        out.push(CollectiveAction::Prefetch {
            executor,
            batch: batch_id,
            objects: objects.clone(),
            sources,
            awaits: above.is_some(),
        });
        for object in objects {
            self.place_below((executor, object), catalog);
        }
    }

    /// How long a batch may take before it is late.
    pub(super) fn patience_ns(&self, batch: &Batch, n_tries: u8) -> u64 {
        let link = if batch.source == Source::Home { &self.links.home } else { &self.links.peer };
        let bytes = batch.objects.iter().filter_map(|o| self.wants.get(&(batch.executor, *o)));
        let bytes = bytes.map(|w| w.item.size_bytes).fold(0, u64::saturating_add);
        let at = |m: Option<&u32>| m.copied().unwrap_or(1);
        let sharing = at(self.n_in.get(&batch.executor)).max(at(self.n_out.get(&batch.source)));
        let predicted_s =
            link.request_s(batch.objects.len() as u64, bytes.saturating_mul(u64::from(sharing)));
        let patience_ns = self.config.grace_ns as f64 + self.config.late_factor * predicted_s * 1e9;
        (patience_ns * f64::from(1u32 << n_tries.min(16))) as u64
    }

    /// Takes a want out of its batch (its state is then `Nowhere`). If it was the last of the batch, the
    /// batch's streams are free.
    pub(super) fn unissue(&mut self, pair: Pair) {
        let Some(want) = self.wants.get_mut(&pair) else { return };
        let State::Issued(id, source) = want.state else { return };
        want.state = State::Nowhere;
        let bytes = want.item.size_bytes;
        self.count_bytes(pair.0, Some(source), None, bytes);
        let batch = self.batches.get_mut(&id).expect("an issued want has a batch");
        batch.objects.retain(|o| *o != pair.1);
        if !batch.objects.is_empty() {
            return;
        }
        let batch = self.batches.remove(&id).expect("it was just read");
        self.deadlines.remove(&(batch.deadline, id));
        let free = |n: Option<&mut u32>| {
            if let Some(n) = n {
                *n -= 1;
            }
        };
        free(self.n_in.get_mut(&pair.0));
        free(self.n_out.get_mut(&source));
        if batch.in_rounds {
            take_one(&mut self.n_in_rounds, (batch.collective, source));
            take_one(&mut self.n_into, (batch.collective, pair.0));
        }
        self.open.extend(self.blocked_in.remove(&pair.0).unwrap_or_default());
        self.open.extend(self.blocked_out.remove(&source).unwrap_or_default());
    }
}
