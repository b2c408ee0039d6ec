//! Objects that are made on this node of packed ones: once for all attempts that need them.
//!
//! An attempt that needs a made object has the packed one as the input before it. If the made one is here, or is
//! being made for others, the packed one is not needed. Otherwise both get room at once, the packed one is fetched
//! like any input, and then the driver is asked to read the made one "from home", which makes it. Later attempts
//! join that transfer. Both are ordinary entries of the cache after that: what leaves first is the eviction policy's
//! choice, and a packed object that nobody pins costs nothing but the room.
//!
//! How large the made object is, is known only when it has been made for the first time. Until then the size of the
//! packed one is reserved. Where that is too little, the driver keeps the result aside and says its size; more room is
//! taken then, or the attempts wait for it.
//!
//! Not here: what a recipe means (the driver), and that tasks have the packed file as an input (`eyas-tasklist`).

use super::{AttemptId, Executor, Here, Plan, Transfer};
use crate::cache::Reserve;
use crate::event::{Making, NodeAction, Source, Target, TransferError, TransferErrorKind};
use eyas_terms::ObjectId;

impl Executor {
    /// The packed object in this cache of which the attempt's input is made, if it is made of one.
    pub(super) fn find_packed(&self, id: AttemptId, input: u32) -> Option<ObjectId> {
        let attempt = &self.attempts[&id];
        let packed = (input as usize).checked_sub(1)?;
        let is_made = attempt.assignment.inputs[input as usize].making == Making::Made;
        // A packed object that is not read through the cache is read from home while the made one is made.
        let is_cached = attempt.inputs[packed].plan == Plan::Cache;
        (is_made && is_cached).then(|| attempt.assignment.inputs[packed].object)
    }

    /// Decides for each packed input of an attempt whether it is needed.
    pub(super) fn plan_packed(&mut self, id: AttemptId) {
        let attempt = &self.attempts[&id];
        let mut plans = vec![];
        for (i, assigned) in attempt.assignment.inputs.iter().enumerate() {
            if assigned.making != Making::Packed {
                continue;
            }
            let made = &attempt.inputs[i + 1];
            let object = attempt.assignment.inputs[i + 1].object;
            let is_here = made.plan == Plan::Cache && self.look(object, &made.expect) == Here::Right;
            // What is made for this attempt alone is read from home while it is made.
            let is_direct = made.plan == Plan::Private && !assigned.stays;
            let plan = match attempt.inputs[i].plan {
                Plan::Cache | Plan::Private if is_here || is_direct => Plan::Unneeded,
                Plan::Unneeded if !is_here && !is_direct => Plan::Cache,
                plan => plan,
            };
            plans.push((i, plan));
        }
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        for (i, plan) in plans {
            attempt.inputs[i].plan = plan;
        }
    }

    /// Whether the packed object is still on its way into this cache.
    pub(super) fn awaits_packed(&self, transfer: &Transfer) -> bool {
        transfer.made_of.is_some_and(|packed| self.is_fetching(packed))
    }

    /// An object was made that is larger than the room reserved for it. It is taken over if there is more room;
    /// otherwise the attempts wait, knowing its size.
    pub(super) fn on_larger(&mut self, target: Target, bytes: u64, out: &mut Vec<NodeAction>) {
        let transfer = self.transfers.get_mut(&target).expect("a transfer that ends is here");
        transfer.size_bytes = bytes;
        let (object, waiters) = (transfer.object, transfer.waiters.clone());
        for (id, _) in &waiters {
            let Some(attempt) = self.attempts.get_mut(id) else { continue };
            let of_object: Vec<u32> = attempt.by_object.of(object).collect();
            for i in of_object {
                attempt.inputs[i as usize].size_bytes = bytes;
            }
        }
        let mut evicted = vec![];
        let granted = match target {
            Target::Cache(object) => self.cache.grow(object, bytes, &mut evicted),
            Target::Private { .. } => Reserve::Granted,
        };
        for object in evicted {
            self.evicted(object, out);
        }
        if granted == Reserve::Granted {
            let transfer = self.transfers.get_mut(&target).expect("just seen");
            transfer.sources.push_front(Source::Home);
            self.queue_up(target);
            return;
        }
        let transfer = self.transfers.remove(&target).expect("just seen");
        self.cache.abort(object);
        self.doomed.remove(&object);
        let error = TransferError {
            kind: TransferErrorKind::NoSpace,
            message: format!("it has {bytes} bytes, and the cache has no room for them"),
        };
        for (id, i) in waiters {
            match self.is_added(id, i) {
                true => self.not_brought(id, i, &error, out),
                false => self.wait_for_space(id, false, out),
            }
        }
        if let Some(batch) = transfer.batch {
            self.prefetch_failed(batch, object, TransferErrorKind::NoSpace, out);
        }
        self.not_served(object, &error, out);
    }
}
