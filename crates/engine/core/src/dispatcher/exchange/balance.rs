//! Balance: which executors go to another dispatcher, and when.

use super::Exchange;
use crate::dispatcher::{Dispatcher, ExecutorState, Resources, Schedule};
use crate::event::Action;
use crate::group::MemberLoad;
use crate::placement::TaskSize;
use eyas_terms::needs::Size;
use eyas_terms::{ExecutorId, MemberId, ObjectId, Timestamp};
use std::cmp::Reverse;

/// How long an executor must have been idle before it goes to another dispatcher.
const IDLE_NS: u64 = 2_000_000_000;
/// For so long an executor that was sent away counts as one that may come back.
const SENT_NS: u64 = 60_000_000_000;
/// The largest number of task sizes that are reported to other dispatchers.
const SIZES_MAX: usize = 32;

/// Adds `size` to `sizes`, none of which is contained in another one.
fn add_largest(sizes: &mut Vec<Size>, size: Size) {
    if !sizes.iter().any(|other| size.is_within(other)) {
        sizes.retain(|other| !other.is_within(&size));
        sizes.push(size);
    }
}

impl Exchange {
    /// The sizes of the executors at the other dispatchers.
    pub(in crate::dispatcher) fn offers_elsewhere(&self) -> impl Iterator<Item = Size> {
        self.loads.values().flat_map(|load| &load.offers).chain(self.on_their_way()).cloned()
    }

    /// The sizes of executors that may be on their way from one dispatcher to another, and then are in nobody's load.
    fn on_their_way(&self) -> impl Iterator<Item = &Size> {
        self.sent.iter().map(|(_, size)| size).chain(&self.courier)
    }

    /// Whether another dispatcher has, or may have, an executor large enough for a task that fits none here.
    pub(in crate::dispatcher) fn may_come(&self, resources: &Resources, size: TaskSize) -> bool {
        let size = resources.full_size(size);
        // A dispatcher that cannot be reached may have any executor.
        let may = |load: &MemberLoad| load.can_take(&size);
        let loads = &self.loads;
        self.group.is_some_and(|group| group.others().any(|m| loads.get(&m).is_none_or(may)))
            || self.on_their_way().any(|offer| size.is_within(offer))
    }
}

impl Schedule {
    /// The load that is reported to the other dispatchers.
    pub fn load(&self) -> MemberLoad {
        let (mut n_slots, mut takes, mut offers): (u64, Vec<Size>, Vec<Size>) = (0, vec![], vec![]);
        for e in self.executors.by_id.values().filter(|e| !e.draining) {
            if e.silent_since.is_none() {
                n_slots += u64::from(e.offer.slots);
                add_largest(&mut takes, e.offer.size());
            }
            add_largest(&mut offers, e.offer.size());
        }
        let (mut n_ready, mut unfit) = (self.ready.n_tasks, vec![]);
        for of_queue in self.ready.queue.sizes() {
            let size = self.executors.resources.full_size(of_queue);
            if !takes.iter().any(|offer| size.is_within(offer)) {
                n_ready -= self.ready.queue.n_of_size(of_queue) as u64;
                unfit.push(size);
            }
        }
        unfit.sort_unstable();
        unfit.truncate(SIZES_MAX);
        MemberLoad { n_slots, n_ready, unfit, offers, ..MemberLoad::default() }
    }
}

impl Dispatcher {
    /// The load that is reported to the other dispatchers.
    pub fn load(&self) -> MemberLoad {
        let (candidate, courier) = match self.exchange.group {
            Some(_) => (self.courier_candidate(), self.told_courier()),
            None => (None, None),
        };
        MemberLoad { calls: self.calls_courier(), candidate, courier, ..self.schedule.load() }
    }

    pub(in crate::dispatcher) fn on_member_load(
        &mut self,
        now: Timestamp,
        member: MemberId,
        load: MemberLoad,
    ) {
        if let Some(courier) = &load.courier {
            self.hear_of_courier(now, member, courier);
        }
        self.exchange.loads.insert(member, load);
    }

    /// Sends an executor away that has been idle for a while and that no task here waits for. It goes to a
    /// dispatcher that has more ready tasks than slots, or that has tasks too large for all its own
    /// executors.
    pub(in crate::dispatcher) fn balance(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some(group) = self.exchange.group else { return };
        self.exchange.sent.retain(|(at, _)| now.since_ns(*at) < SENT_NS);
        if self.schedule.attempts.hold_until.is_some() {
            return;
        }
        let ready = self.schedule.ready.queue.sizes();
        let is_idle = |e: &ExecutorState| {
            e.assigned.is_empty()
                && e.is_connected()
                && now.since_ns(e.last_ended) >= IDLE_NS
                && !ready.iter().any(|size| self.schedule.executors.resources.is_able(e, *size))
        };
        let mut idle: Vec<ExecutorId> =
            self.schedule.executors.by_id.iter().filter(|(_, e)| is_idle(e)).map(|(id, _)| *id).collect();
        idle.retain(|executor| !self.needs_courier(*executor));
        if idle.is_empty() {
            self.exchange.idle_since = None;
            return;
        }
        let since = *self.exchange.idle_since.get_or_insert(now);
        if now.since_ns(since) < IDLE_NS {
            return;
        }
        let n_sole = |executor: &ExecutorId| {
            let objects = self.work.catalog.objects_on(*executor);
            let is_sole = |o: &&ObjectId| {
                self.intermediates.has(**o)
                    && self.work.catalog.n_holders(**o) == 1
                    && self.intermediates.files[*o].maker.is_some()
            };
            objects.iter().filter(is_sole).count()
        };
        let ours = (self.schedule.load().n_slots, group.me);
        let n_taking = self.schedule.executors.by_id.values().filter(|e| e.is_connected()).count();
        let has_more = !self.waits.n_missing.is_empty() || !self.schedule.attempts.reserved.is_empty();
        let mut best = None;
        for executor in idle {
            let offer = self.schedule.executors.by_id[&executor].offer.size();
            let n_sole = n_sole(&executor);
            for (member, load) in &self.exchange.loads {
                // A dispatcher whose tasks would wait for ever goes first.
                let unfit = load.unfit.iter().filter(|size| size.is_within(&offer));
                let is_starving = unfit.clone().next().is_some();
                if !is_starving && (load.n_ready <= load.n_slots || n_taking == 1 && has_more) {
                    continue;
                }
                // The executor may be the only holder of some files, and these would have to be made again.
                // That is accepted only where nothing else helps: not where another member has more slots and
                // no ready tasks. Otherwise executors that go in circles would take the files along each
                // time.
                let is_richer = |(m, l): (&MemberId, &MemberLoad)| {
                    (l.n_slots, *m) > ours
                        && l.n_ready == 0
                        && m != member
                        && unfit.clone().any(|size| l.can_take(size))
                };
                if n_sole > 0 && (!is_starving || self.exchange.loads.iter().any(is_richer)) {
                    continue;
                }
                let n_more = load.n_ready.saturating_sub(load.n_slots);
                let rank =
                    (Reverse(is_starving), n_sole, Reverse((n_more, *member)), offer.clone(), executor);
                if best.as_ref().is_none_or(|(known, _, _)| rank < *known) {
                    best = Some((rank, executor, *member));
                }
            }
        }
        let Some((_, executor, to)) = best else { return };
        // One executor at a time: the effect of this move should be seen before the next one.
        self.exchange.idle_since = Some(now);
        self.send_away(now, executor, to, out);
    }

    /// The executor takes no more tasks, and goes to another dispatcher when it has done those that it has.
    pub(in crate::dispatcher) fn send_away(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        to: MemberId,
        out: &mut Vec<Action>,
    ) {
        let e = self.schedule.executors.by_id.get_mut(&executor).expect("it was found above");
        (e.draining, e.moving_to) = (true, Some(to));
        self.exchange.sent.push((now, e.offer.size()));
        // It does not end here.
        self.schedule.executors.walltimes.forget(executor);
        self.schedule.executors.ends_changed();
        self.schedule.update_room(&self.work, executor);
        out.push(Action::SendAway { executor, member: to });
    }
}
