//! The states of wants: which source each shall come from, and what happens to the wants behind it.

use super::{CollectiveAction, Collectives, HOLDERS_SEEN, Pair, State, Want, take_bytes};
use crate::catalog::Catalog;
use crate::collective::{CollectiveId, CollectiveKind, Way, plan};
use crate::event::Source;
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

impl Collectives {
    pub(super) fn receivers_of(&self, object: ObjectId) -> Vec<ExecutorId> {
        self.wanting.get(&object).map_or(vec![], |r| r.iter().copied().collect())
    }

    /// Makes the tree of a collective whose objects go along one: the wants that wait get parents, and the nodes
    /// between these and the holders get relays. Gives all of these wants, from the holders on.
    pub(super) fn raise_tree(&mut self, id: CollectiveId, catalog: &Catalog) -> Vec<Pair> {
        let Some(live) = self.live.get(&id) else { return vec![] };
        let Way::ArchiveTree { arity } = live.way else { return vec![] };
        let up = live.kind == CollectiveKind::Gather;
        let (mut legs, mut root) = (vec![], None);
        for pair in &live.wants {
            let Some(want) = self.wants.get(pair).filter(|w| w.state == State::Held) else { continue };
            if catalog.seat(pair.0).is_none() {
                continue; // it was lost just now, and its wants are about to be given up
            }
            let Some(holder) = catalog.holders_of(pair.1).next() else { continue };
            let (of_tree, node) = if up { (pair.0, holder) } else { (holder, pair.0) };
            // An object from or to another root than the first one's goes straight.
            if *root.get_or_insert(of_tree) == of_tree && node != of_tree {
                legs.push((node, want.item));
            }
        }
        let Some(root) = root else { return vec![] };
        let mut pairs = vec![];
        let mut ranks: BTreeMap<ExecutorId, u32> = BTreeMap::new();
        for want in plan::archive_tree(&legs, root, arity, up) {
            let pair = (want.executor, want.item.object);
            if catalog.holds(pair.0, pair.1) {
                continue;
            }
            pairs.push(pair);
            let n_ranks = ranks.len() as u32;
            let rank = *ranks.entry(pair.0).or_insert(n_ranks);
            match self.wants.entry(pair) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    if known.state == State::Held {
                        (known.parent, known.rank) = (want.parent, rank);
                    }
                    if known.collectives.contains(&id) {
                        continue;
                    }
                    known.collectives.push(id);
                }
                Entry::Vacant(vacant) => {
                    let way = Way::ArchiveTree { arity };
                    vacant.insert(Want { rank, ..Want::new(want.item, want.parent, way, id) });
                    self.wanting.entry(pair.1).or_default().insert(pair.0);
                }
            }
            self.live.get_mut(&id).expect("it was just read").relays.insert(pair);
        }
        pairs
    }

    /// Finds out which source a want comes from, and queues it there.
    pub(super) fn place(&mut self, pair: Pair, catalog: &Catalog) {
        if let Some(state) = self.find_source(pair, None, catalog) {
            return self.set_state(pair, state);
        }
        let Some(want) = self.wants.get_mut(&pair) else { return };
        if !want.avoid.is_empty() {
            // All holders failed: they are asked again later, as often as tries are left.
            want.avoid.clear();
            self.retry.insert(pair);
        }
        self.set_state(pair, State::Nowhere);
    }

    pub(super) fn set_state(&mut self, pair: Pair, state: State) {
        let Some(want) = self.wants.get_mut(&pair) else { return };
        if let State::Ready(old) = want.state
            && let Some(n) = self.n_queued.get_mut(&old)
        {
            *n = n.saturating_sub(1);
        }
        let (old, bytes) = (want.state.source(), want.item.size_bytes);
        want.state = state;
        want.asked |= matches!(state, State::Issued(..));
        self.count_bytes(pair.0, old, state.source(), bytes);
        let want = &self.wants[&pair];
        match state {
            State::Below(parent) => self.below.entry((parent, pair.1)).or_default().push(pair.0),
            State::Ready(source) => {
                let id = (want.collectives[0], want.rank, pair.0, source);
                *self.n_queued.entry(source).or_default() += 1;
                let queue = self.queues.entry(id).or_default();
                queue.push_back(pair.1);
                // A blocked queue is tried as well; it becomes blocked again at once.
                self.open.insert(id);
            }
            State::Held | State::Nowhere | State::Issued(..) => {}
        }
    }

    /// A want of `bytes` shall come from `new` in place of `old`.
    pub(super) fn count_bytes(
        &mut self,
        receiver: ExecutorId,
        old: Option<Source>,
        new: Option<Source>,
        bytes: u64,
    ) {
        if let Some(old) = old {
            take_bytes(&mut self.bytes_into, receiver, bytes);
            take_bytes(&mut self.bytes_from, old, bytes);
        }
        if let Some(new) = new {
            *self.bytes_into.entry(receiver).or_default() += bytes;
            *self.bytes_from.entry(new).or_default() += bytes;
        }
    }

    /// `Ready` or `Below`; `None` if no node can be the source. Never `except`.
    pub(super) fn find_source(
        &self,
        pair: Pair,
        except: Option<ExecutorId>,
        catalog: &Catalog,
    ) -> Option<State> {
        let (receiver, object) = pair;
        let want = self.wants.get(&pair)?;
        let streams = want.way.streams();
        let may = |e: &ExecutorId| *e != receiver && Some(*e) != except && !want.avoid.contains(e);
        let through = |e: ExecutorId| -> Option<State> {
            let state = self.wants.get(&(e, object))?.state;
            if state == State::Held || self.leads_to(e, receiver, object, catalog) {
                None
            } else if streams && matches!(state, State::Issued(..)) {
                Some(State::Ready(Source::Peer(e)))
            } else {
                Some(State::Below(e))
            }
        };
        if let Some(parent) = want.parent.filter(may) {
            if catalog.holds(parent, object) {
                return Some(State::Ready(Source::Peer(parent)));
            }
            if let Some(state) = through(parent) {
                return Some(state);
            }
        }
        let load = |e: &ExecutorId| {
            let source = Source::Peer(*e);
            let count = |m: &BTreeMap<Source, u32>| m.get(&source).copied().unwrap_or(0);
            (count(&self.n_out) + count(&self.n_queued), *e)
        };
        let holders = catalog.holders_of(object).filter(may).take(HOLDERS_SEEN);
        if let Some(holder) = holders.min_by_key(load) {
            return Some(State::Ready(Source::Peer(holder)));
        }
        let others = self.wanting.get(&object).into_iter().flatten().copied().filter(may);
        // A node that is about to read home counts as well, so that home is read once.
        let will_have = |e: &ExecutorId| {
            let state = self.wants.get(&(*e, object)).map(|w| w.state);
            matches!(state, Some(State::Issued(..) | State::Ready(Source::Home)))
        };
        if let Some(state) = others.filter(will_have).take(HOLDERS_SEEN).find_map(through) {
            return Some(state);
        }
        want.item.at_home.then_some(State::Ready(Source::Home))
    }

    /// Whether `from` gets the object from `to`, directly or through other nodes.
    ///
    /// A holder gets it from no node. Its want may still exist, because the catalog has all replicas of a
    /// message at once, while they are reported here one by one. Two nodes that were planned below each other
    /// and hold what both wanted would look like a circle until then. The walk passes each receiver at most
    /// once, so it is over after as many steps as there are receivers; a longer path is a circle, and no want
    /// joins a circle.
    pub(super) fn leads_to(
        &self,
        from: ExecutorId,
        to: ExecutorId,
        object: ObjectId,
        catalog: &Catalog,
    ) -> bool {
        let n_receivers = self.wanting.get(&object).map_or(0, BTreeSet::len);
        let mut at = from;
        for _ in 0..=n_receivers {
            if at == to {
                return true;
            }
            if catalog.holds(at, object) {
                return false;
            }
            at = match self.wants.get(&(at, object)).map(|w| w.state) {
                Some(State::Below(e) | State::Ready(Source::Peer(e)) | State::Issued(_, Source::Peer(e))) => {
                    e
                }
                _ => return false,
            };
        }
        true
    }

    /// Wants that waited for `pair` are placed again: its transfer begins, has ended, or will not happen.
    pub(super) fn place_below(&mut self, pair: Pair, catalog: &Catalog) {
        for receiver in self.below.remove(&pair).unwrap_or_default() {
            let child = (receiver, pair.1);
            if self.wants.get(&child).is_some_and(|w| w.state == State::Below(pair.0)) {
                self.place(child, catalog);
            }
        }
    }

    /// Removes a want from all collections.
    pub(super) fn leave(&mut self, pair: Pair) -> Option<Want> {
        self.unissue(pair);
        let want = self.wants.remove(&pair)?;
        self.count_bytes(pair.0, want.state.source(), None, want.item.size_bytes);
        if let State::Ready(source) = want.state
            && let Some(n) = self.n_queued.get_mut(&source)
        {
            *n = n.saturating_sub(1);
        }
        if let Some(receivers) = self.wanting.get_mut(&pair.1) {
            receivers.remove(&pair.0);
            if receivers.is_empty() {
                self.wanting.remove(&pair.1);
            }
        }
        self.retry.remove(&pair);
        Some(want)
    }

    pub(super) fn give_up(
        &mut self,
        now: Timestamp,
        pair: Pair,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let Some(want) = self.wants.get(&pair) else { return };
        if want.asked {
            out.push(CollectiveAction::CancelPrefetch { executor: pair.0, objects: vec![pair.1] });
        }
        let want = self.leave(pair).expect("it was just read");
        self.rehang(pair, want.parent, catalog);
        let mut begun = vec![];
        for id in want.collectives {
            if let Some(live) = self.live.get_mut(&id) {
                if live.relays.remove(&pair) {
                    continue;
                }
                live.n_left -= 1;
                // The making of the object will no longer be reported here.
                if live.unmade.remove(&pair.1) && live.unmade.is_empty() {
                    live.ready = Some(now);
                    begun.push(id);
                }
                self.end_if_done(now, id, catalog, out);
            }
        }
        self.place_held(begun.clone(), catalog);
        begun.into_iter().for_each(|id| self.all_exist(id, out));
    }

    /// `gone` will not have the object, so its children get its parent.
    pub(super) fn rehang(&mut self, gone: Pair, parent: Option<ExecutorId>, catalog: &Catalog) {
        let (executor, object) = gone;
        for receiver in self.receivers_of(object) {
            let child = (receiver, object);
            let want = self.wants.get_mut(&child).expect("it is among those that want it");
            if want.parent == Some(executor) {
                want.parent = parent;
            }
            let streamed = matches!(want.state, State::Issued(_, s) if s == Source::Peer(executor));
            let hangs = streamed || want.state == State::Below(executor);
            if hangs && !catalog.holds(executor, object) {
                if streamed {
                    self.unissue(child);
                }
                self.count_moved(child);
                self.place(child, catalog);
            }
        }
        self.below.remove(&gone);
    }

    pub(super) fn count_moved(&mut self, pair: Pair) {
        let Some(want) = self.wants.get(&pair) else { return };
        for id in &want.collectives {
            if let Some(live) = self.live.get_mut(id) {
                live.n_moved += 1;
            }
        }
    }
}
