//! What happens to wants and batches when an object arrived, failed, was made or given up, or took too long.

use super::{CollectiveAction, Collectives, Pair, QueueId, State};
use crate::catalog::Catalog;
use crate::collective::links::Observation;
use crate::collective::{BatchId, CollectiveId};
use crate::event::{Source, TransferErrorKind};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use std::collections::BTreeMap;

impl Collectives {
    pub(super) fn on_replica_added(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        object: ObjectId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        if !self.wanting.contains_key(&object) {
            return;
        }
        let pair = (executor, object);
        self.observe(now, pair);
        let ready = self.made(now, object);
        if let Some(want) = self.leave(pair) {
            for id in &want.collectives {
                let Some(live) = self.live.get_mut(id) else { continue };
                if live.relays.remove(&pair) {
                    continue;
                }
                live.n_left -= 1;
                live.n_arrived += 1;
                live.arrived_bytes += want.item.size_bytes;
                self.end_if_done(now, *id, catalog, out);
            }
        }
        self.place_held(ready.clone(), catalog);
        for receiver in self.receivers_of(object) {
            if self.wants.get(&(receiver, object)).is_some_and(|w| w.state == State::Nowhere) {
                self.place((receiver, object), catalog);
            }
        }
        self.place_below(pair, catalog);
        ready.into_iter().for_each(|id| self.all_exist(id, out));
    }

    /// An object has arrived, perhaps the last one of its batch.
    pub(super) fn observe(&mut self, now: Timestamp, pair: Pair) {
        let Some(State::Issued(id, source)) = self.wants.get(&pair).map(|w| w.state) else { return };
        let batch = self.batches.get_mut(&id).expect("an issued want has a batch");
        batch.n_arrived += 1;
        if batch.n_arrived == batch.n_asked && batch.above.is_none() && source != Source::Home {
            // Batches that were issued after this one count, too.
            let at_end = self.n_in[&pair.0].max(self.n_out[&source]);
            self.observed.push(Observation {
                n_objects: batch.n_asked,
                bytes: batch.bytes,
                duration_ns: now.since_ns(batch.issued),
                n_sharing: batch.n_sharing.max(at_end),
            });
        }
    }

    /// The object exists, or nobody waits for it any more. Gives the collectives of which all objects exist now.
    pub(super) fn made(&mut self, now: Timestamp, object: ObjectId) -> Vec<CollectiveId> {
        let mut ready = vec![];
        for (id, live) in &mut self.live {
            if live.unmade.remove(&object) && live.unmade.is_empty() {
                live.ready = Some(now);
                ready.push(*id);
            }
        }
        ready
    }

    /// These collectives begin.
    pub(super) fn place_held(&mut self, begun: Vec<CollectiveId>, catalog: &Catalog) {
        for id in begun {
            // A want below another one is placed after it.
            let mut pairs = self.raise_tree(id, catalog);
            pairs.extend(self.live.get(&id).into_iter().flat_map(|live| &live.wants));
            for pair in pairs {
                if self.wants.get(&pair).is_some_and(|w| w.state == State::Held) {
                    self.place(pair, catalog);
                }
            }
        }
    }

    pub(super) fn on_failed(
        &mut self,
        now: Timestamp,
        pair: Pair,
        batch: BatchId,
        kind: TransferErrorKind,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        // The failure is of a batch that was replaced; its successor is still under way.
        let Some(State::Issued(current, source)) = self.wants.get(&pair).map(|w| w.state) else { return };
        if current != batch {
            return;
        }
        self.unissue(pair);
        let want = self.wants.get_mut(&pair).expect("it was just read");
        want.asked = false;
        want.n_tries += 1;
        let is_final = match kind {
            TransferErrorKind::NoSpace
            | TransferErrorKind::Changed
            | TransferErrorKind::Unavailable
            | TransferErrorKind::Refused
            | TransferErrorKind::Unmakeable
            | TransferErrorKind::GivenUp => true,
            TransferErrorKind::NotHeld
            | TransferErrorKind::Busy
            | TransferErrorKind::Corrupt
            | TransferErrorKind::Temporary
            | TransferErrorKind::HomeAway
            | TransferErrorKind::HomeBusy
            | TransferErrorKind::Dropped
            | TransferErrorKind::Larger { .. }
            | TransferErrorKind::Shortage
            | TransferErrorKind::Unreachable => want.n_tries >= self.config.tries_max,
        };
        if let Source::Peer(peer) = source {
            want.avoid.push(peer);
        }
        if is_final {
            self.give_up(now, pair, catalog, out);
        } else {
            self.count_moved(pair);
            self.place(pair, catalog);
        }
    }

    pub(super) fn on_executor_lost(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let first = (executor, ObjectId(0));
        let last = (executor, ObjectId(u32::MAX));
        let received: Vec<Pair> = self.wants.range(first..=last).map(|(pair, _)| *pair).collect();
        for pair in &received {
            // The receiver is gone, so there is nobody to send a cancellation to.
            self.wants.get_mut(pair).expect("it was just seen").asked = false;
        }
        for pair in received {
            // A relay may have been cancelled meanwhile: it goes with the last want of its collective.
            self.give_up(now, pair, catalog, out);
        }
        let source = Source::Peer(executor);
        let mut moving: Vec<Pair> = vec![];
        for batch in self.batches.values().filter(|b| b.source == source) {
            moving.extend(batch.objects.iter().map(|o| (batch.executor, *o)));
        }
        for pair in &moving {
            self.unissue(*pair);
        }
        self.queues.retain(|id, _| id.2 != executor);
        let queued: Vec<QueueId> = self.queues.keys().filter(|q| q.3 == source).copied().collect();
        for id in queued {
            let objects = self.queues.remove(&id).unwrap_or_default();
            moving.extend(objects.into_iter().map(|o| (id.2, o)));
        }
        for pair in moving {
            if self.wants.get(&pair).is_some_and(|w| matches!(w.state, State::Nowhere | State::Ready(_))) {
                self.count_moved(pair);
                self.place(pair, catalog);
            }
        }
        self.blocked_in.remove(&executor);
        self.blocked_out.remove(&source);
        self.n_in.remove(&executor);
        self.n_out.remove(&source);
        self.n_queued.remove(&source);
    }

    pub(super) fn on_abandoned(
        &mut self,
        now: Timestamp,
        id: CollectiveId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let Some(live) = self.live.get_mut(&id) else { return };
        live.n_left = 0;
        let mut pairs = std::mem::take(&mut live.wants);
        let n_wanted = pairs.len() as u32;
        pairs.extend(std::mem::take(&mut live.relays));
        self.cancel(id, pairs, catalog, out);
        self.end(now, id, n_wanted, out);
    }

    /// The collective needs these wants no more.
    pub(super) fn cancel(
        &mut self,
        id: CollectiveId,
        pairs: Vec<Pair>,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let mut cancelled: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        let mut orphans = vec![];
        for pair in pairs {
            let Some(want) = self.wants.get_mut(&pair) else { continue };
            want.collectives.retain(|c| *c != id);
            if !want.collectives.is_empty() {
                if want.state == State::Held {
                    self.place(pair, catalog);
                }
                continue;
            }
            if want.asked {
                cancelled.entry(pair.0).or_default().push(pair.1);
            }
            if let Some(want) = self.leave(pair) {
                orphans.push((pair, want.parent));
            }
        }
        for (pair, parent) in orphans {
            self.rehang(pair, parent, catalog);
        }
        out.extend(
            cancelled
                .into_iter()
                .map(|(executor, objects)| CollectiveAction::CancelPrefetch { executor, objects }),
        );
    }

    pub(super) fn on_ticked(&mut self, now: Timestamp, catalog: &Catalog, out: &mut Vec<CollectiveAction>) {
        for pair in std::mem::take(&mut self.retry) {
            if self.wants.get(&pair).is_some_and(|w| w.state == State::Nowhere) {
                self.place(pair, catalog);
            }
        }
        let late: Vec<BatchId> =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, batch)| *batch).collect();
        // The former sources of wants that were moved just now; wants below them are judged by these.
        let mut moved: BTreeMap<Pair, Source> = BTreeMap::new();
        for id in late {
            let Some(batch) = self.batches.get(&id) else { continue };
            let (executor, source, objects) = (batch.executor, batch.source, batch.objects.clone());
            for object in objects {
                let pair = (executor, object);
                // A relay goes with the last want of its collective, which may just have been given up.
                let Some(want) = self.wants.get_mut(&pair) else { continue };
                want.n_tries += 1;
                if want.n_tries >= self.config.tries_max {
                    self.give_up(now, pair, catalog, out);
                    continue;
                }
                let may_move = match source {
                    Source::Home => false,
                    Source::Peer(parent) => {
                        let above = match self.wants.get(&(parent, object)).map(|w| w.state) {
                            Some(State::Issued(_, above)) => Some(above),
                            _ => moved.get(&(parent, object)).copied(),
                        };
                        match above {
                            // The parent still receives: the parent is at fault if its own source has
                            // everything.
                            Some(Source::Peer(above)) => catalog.holds(above, object),
                            Some(Source::Home) => true,
                            None => !self.wants.contains_key(&(parent, object)),
                        }
                    }
                };
                if may_move
                    && let Source::Peer(parent) = source
                    && let Some(state @ State::Ready(_)) = self.find_source(pair, Some(parent), catalog)
                {
                    self.unissue(pair);
                    self.wants.get_mut(&pair).expect("it was just read").avoid.push(parent);
                    moved.insert(pair, source);
                    self.count_moved(pair);
                    self.set_state(pair, state);
                }
            }
            if let Some(batch) = self.batches.get(&id) {
                // The wants that stay in the batch get more time.
                let n_tries = batch.objects.iter().filter_map(|o| self.wants.get(&(executor, *o)));
                let n_tries = n_tries.map(|w| w.n_tries).max().unwrap_or(0);
                let deadline = now.plus_ns(self.patience_ns(batch, n_tries));
                let batch = self.batches.get_mut(&id).expect("it was just read");
                self.deadlines.remove(&(batch.deadline, id));
                batch.deadline = deadline;
                self.deadlines.insert((deadline, id));
            }
        }
    }
}
