//! The attempts of one node, found by their ids.
//!
//! Each event looks its attempt up several times. With some thousand attempts whose ends are not recorded yet, a tree
//! costs more for that than everything else that a short task needs here, so they are in a hash map. Whoever goes
//! through all of them in an order that can be seen gets them in the order of their ids.

use super::{Attempt, AttemptId};
use rustc_hash::FxHashMap;
use std::ops::Index;

/// See the module. Each attempt is boxed: attempts are large, and a map moves its values.
#[derive(Default)]
pub(super) struct Attempts(FxHashMap<AttemptId, Box<Attempt>>);

impl Attempts {
    pub(super) fn get(&self, id: &AttemptId) -> Option<&Attempt> {
        self.0.get(id).map(|attempt| &**attempt)
    }

    pub(super) fn get_mut(&mut self, id: &AttemptId) -> Option<&mut Attempt> {
        self.0.get_mut(id).map(|attempt| &mut **attempt)
    }

    pub(super) fn contains_key(&self, id: &AttemptId) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn insert(&mut self, id: AttemptId, attempt: Box<Attempt>) {
        self.0.insert(id, attempt);
    }

    pub(super) fn remove(&mut self, id: &AttemptId) -> Option<Box<Attempt>> {
        self.0.remove(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All ids, ascending.
    pub(super) fn ids(&self) -> Vec<AttemptId> {
        let mut ids: Vec<AttemptId> = self.0.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// All attempts, in the order of their ids.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (AttemptId, &Attempt)> + Clone {
        self.ids().into_iter().map(|id| (id, &self[&id]))
    }

    /// Changes each attempt by itself, in whatever order.
    #[allow(clippy::disallowed_methods, reason = "each attempt is changed by itself")]
    pub(super) fn change_each(&mut self, change: impl FnMut(&mut Attempt)) {
        self.0.values_mut().map(|attempt| &mut **attempt).for_each(change);
    }
}

impl Index<&AttemptId> for Attempts {
    type Output = Attempt;

    fn index(&self, id: &AttemptId) -> &Attempt {
        self.get(id).expect("attempt is here")
    }
}
