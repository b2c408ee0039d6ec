//! 2Mark on the cluster: which requests the stores hear of, and how their orders are carried out.
//!
//! The stores themselves, and what figure 6 of Raicu09 has to say, are in [`crate::eviction::stores`]. Here is what ties them to the
//! rest of the dispatcher:
//!
//! * an attempt that is given out is a request for each input that it reads through the cache; the request ends with the attempt's
//!   program;
//! * what executors report of their replicas says what is in a store;
//! * an order to drop is [`Action::DropReplicas`]; an order to move is [`Action::Prefetch`], whose source is the store that the object
//!   leaves, and then an order to drop. These prefetches belong to no collective: their batches have numbers from [`BATCHES_FROM`] on.
//!
//! Files that are not at home, that lie on a node's own disk or that are made on the node take room, and never leave by an order. So no
//! last copy is dropped. What attempts use is never ordered away, and executors refuse to drop what they hold for another reason.
//!
//! After a restart of the dispatcher all marks are gone: what is held counts as not requested.

use super::{Dispatcher, Executors};
use crate::collective::BatchId;
use crate::event::{Action, AssignedInput, Assignment, Making};
use crate::eviction::stores::{Order, Stores};
use eyas_terms::location::MadeLocation;
use eyas_terms::{AttemptNo, ExecutorId, ObjectId, TaskId};
use std::collections::BTreeMap;

/// Collectives never begin so many batches.
const BATCHES_FROM: u64 = 1 << 52;

/// See the module.
#[derive(Default)]
pub(super) struct TwoMark {
    pub(super) stores: Stores,
    /// What attempts read at stores, each until its program has ended.
    uses: BTreeMap<(TaskId, AttemptNo), (ExecutorId, Vec<ObjectId>)>,
    orders: Vec<Order>,
    n_batches: u64,
}

impl TwoMark {
    /// What it holds is reported afterwards.
    fn joined(&mut self, executors: &Executors, executor: ExecutorId) {
        let Some(e) = executors.by_id.get(&executor) else { return };
        self.stores.joined(executor, e.offer.cache_bytes, e.offer.slots);
        if e.draining {
            self.stores.away(executor);
        }
        for (at, objects) in self.uses.values().filter(|(at, _)| *at == executor) {
            objects.iter().for_each(|object| self.stores.pin(*at, *object, None));
        }
    }

    pub(super) fn executor_lost(&mut self, executor: ExecutorId) {
        self.stores.left(executor, &mut self.orders);
        self.uses.retain(|_, (at, _)| *at != executor);
    }

    pub(super) fn resized(&mut self, executor: ExecutorId, cache_bytes: u64) {
        self.stores.resized(executor, cache_bytes, &mut self.orders);
    }

    /// The program of an attempt has ended, or the attempt is over.
    pub(super) fn ended(&mut self, task: TaskId, attempt: AttemptNo) {
        if let Some((at, objects)) = self.uses.remove(&(task, attempt)) {
            self.stores.ended(at, &objects, &mut self.orders);
        }
    }

    /// A prefetch has failed; `false`: it was none of these.
    pub(super) fn prefetch_failed(&mut self, executor: ExecutorId, batch: BatchId, object: ObjectId) -> bool {
        let is_ours = batch.0 >= BATCHES_FROM;
        if is_ours {
            self.stores.not_moved(executor, object, &mut self.orders);
        }
        is_ours
    }
}

impl Dispatcher {
    /// An executor joined, for the first time or again.
    pub(super) fn store_joined(&mut self, executor: ExecutorId) {
        self.two_mark.stores.left(executor, &mut self.two_mark.orders);
        let e = self.schedule.executors.by_id.get(&executor);
        let Some(e) = e.filter(|e| e.offer.exchanges) else { return };
        // Attempts that an earlier process gave out.
        for (task, attempt) in &e.assigned {
            let is_over = self.schedule.attempts.reserved.get(task).is_none_or(|r| r.landing);
            if is_over || self.two_mark.uses.contains_key(&(*task, *attempt)) {
                continue;
            }
            let (array, i) = self.work.tasks.locate(*task);
            let array = self.work.tasks.arrays[array.0 as usize].array.clone();
            let mut objects = self.work.inputs_of(self.work.tasks.run_of(*task), &array, i);
            objects.sort_unstable();
            objects.dedup();
            self.two_mark.uses.insert((*task, *attempt), (executor, objects));
        }
        self.two_mark.joined(&self.schedule.executors, executor);
    }

    /// An attempt is about to be given out: the stores hear of it, and what leaves for it leaves before.
    pub(super) fn request_inputs(
        &mut self,
        executor: ExecutorId,
        assignment: &Assignment,
        out: &mut Vec<Action>,
    ) {
        if !self.two_mark.stores.has(executor) {
            return;
        }
        let catalog = &self.work.catalog;
        let mut requests: Vec<(ObjectId, Option<u64>)> = vec![];
        for input in assignment.inputs.iter().filter(|input| !input.direct) {
            if requests.iter().all(|(object, _)| *object != input.object)
                && !self.residents.is_own(executor, input.object)
            {
                requests.push((input.object, catalog.size_bytes(input.object)));
            }
        }
        self.settle_stores(out);
        let TwoMark { stores, uses, orders, .. } = &mut self.two_mark;
        stores.request(executor, &requests, orders);
        let objects = requests.into_iter().map(|(object, _)| object).collect();
        uses.insert((assignment.task, assignment.attempt), (executor, objects));
        self.settle_stores(out);
    }

    /// The stores hear of a replica, also again when what is known of the object has changed.
    pub(super) fn store_has(&mut self, executor: ExecutorId, object: ObjectId) {
        if !self.two_mark.stores.has(executor) || self.residents.without_copy(object).any(|e| e == executor) {
            return;
        }
        let catalog = &self.work.catalog;
        let Some(size_bytes) = catalog.size_bytes(object) else { return };
        let is_at_home = catalog.version(object).is_some() && !self.intermediates.has(object);
        let is_made = MadeLocation::of(catalog.location(object).text()).is_some();
        let is_fixed = !is_at_home || is_made || self.residents.is_own(executor, object);
        let TwoMark { stores, orders, .. } = &mut self.two_mark;
        stores.arrived(executor, object, size_bytes, is_fixed, orders);
    }

    /// Carries out what the stores have ordered.
    pub(super) fn settle_stores(&mut self, out: &mut Vec<Action>) {
        // A move that cannot be begun makes further orders.
        while !self.two_mark.orders.is_empty() {
            for order in std::mem::take(&mut self.two_mark.orders) {
                match order {
                    Order::Drop { at, object } => {
                        self.drop_replica(at, object);
                        out.push(Action::DropReplicas { executor: at, objects: vec![object] });
                    }
                    Order::Move { object, from, to } => self.move_object(object, from, to, out),
                    Order::BeginPhase { at } => out.push(Action::BeginPhase { executor: at }),
                }
            }
        }
    }

    fn move_object(&mut self, object: ObjectId, from: ExecutorId, to: ExecutorId, out: &mut Vec<Action>) {
        let known = self.work.known_bytes(object).filter(|_| self.work.catalog.holds(from, object));
        if known.is_none() {
            return self.two_mark.stores.not_moved(to, object, &mut self.two_mark.orders);
        }
        let input = AssignedInput {
            object,
            known,
            sources: vec![from],
            check_home: false,
            direct: false,
            watched: false,
            stays: false,
            making: Making::No,
        };
        let batch = BatchId(BATCHES_FROM + self.two_mark.n_batches);
        self.two_mark.n_batches += 1;
        out.push(Action::Prefetch { executor: to, batch, inputs: vec![input], awaits: false });
    }

    /// The objects in the store of an executor, each with whether it is local-marked and global-marked; ascending. Empty where the
    /// executor's eviction is another one.
    pub fn marks(&self, executor: ExecutorId) -> Vec<(ObjectId, bool, bool)> {
        self.two_mark.stores.marks(executor)
    }
}
