//! Checks the invariants of the header of [`super`] one by one.

use super::{Collectives, QueueId, State};
use crate::catalog::Catalog;
use std::collections::BTreeMap;

impl Collectives {
    /// Checks the module's invariants; panics when one is broken. For tests. All replicas of the catalog must
    /// have been reported to [`Collectives::handle`].
    pub fn sanity_check(&self, catalog: &Catalog) {
        let (mut n_in, mut n_out) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
        for (id, batch) in &self.batches {
            *n_in.entry(batch.executor).or_default() += 1;
            *n_out.entry(batch.source).or_default() += 1;
            assert!(self.deadlines.contains(&(batch.deadline, *id)));
            for object in &batch.objects {
                let state = self.wants[&(batch.executor, *object)].state;
                assert_eq!(state, State::Issued(*id, batch.source));
            }
            assert!(batch.above.is_none_or(|above| above < *id), "{id:?} waits for a later batch");
        }
        assert_eq!(self.deadlines.len(), self.batches.len());
        assert!(n_in.iter().all(|(e, n)| *n <= self.config.in_max && self.n_in[e] == *n));
        assert!(n_out.iter().all(|(s, n)| *n <= self.out_max(*s) && self.n_out[s] == *n));
        assert_eq!(self.n_in.values().sum::<u32>() as usize, self.batches.len());
        assert_eq!(self.n_out.values().sum::<u32>() as usize, self.batches.len());
        assert!(self.open.is_empty());
        let (mut bytes_into, mut bytes_from) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
        for (pair, want) in &self.wants {
            if let Some(source) = want.state.source().filter(|_| want.item.size_bytes > 0) {
                *bytes_into.entry(pair.0).or_default() += want.item.size_bytes;
                *bytes_from.entry(source).or_default() += want.item.size_bytes;
            }
            assert!(self.wanting[&pair.1].contains(&pair.0));
            assert!(
                !want.collectives.is_empty() && want.collectives.iter().all(|c| self.live.contains_key(c))
            );
            match want.state {
                State::Issued(id, _) => assert!(self.batches[&id].objects.contains(&pair.1)),
                State::Below(parent) => {
                    assert!(self.wants.contains_key(&(parent, pair.1)), "{pair:?} waits for nobody");
                    assert!(!self.leads_to(parent, pair.0, pair.1, catalog), "{pair:?} waits for itself");
                    assert!(self.below[&(parent, pair.1)].contains(&pair.0));
                }
                State::Ready(source) => {
                    let mut queues = self.queues.iter().filter(|(id, _)| (id.2, id.3) == (pair.0, source));
                    let (id, _) = queues.find(|(_, q)| q.contains(&pair.1)).expect("what is ready is queued");
                    let waits_in = self.blocked_in.values().any(|b| b.contains(id));
                    let waits_out = self.blocked_out.get(&source).is_some_and(|b| b.contains(id));
                    assert!(waits_in || waits_out, "{pair:?} waits for no stream");
                }
                State::Held | State::Nowhere => {}
            }
        }
        let holds = |sums: &BTreeMap<_, u64>, executor| sums.get(executor).copied().unwrap_or(0);
        assert!(
            self.bytes_into
                .keys()
                .chain(bytes_into.keys())
                .all(|e| holds(&self.bytes_into, e) == holds(&bytes_into, e))
        );
        assert!(bytes_from.iter().all(|(s, bytes)| self.bytes_from.get(s) == Some(bytes)));
        assert_eq!(self.bytes_from.values().sum::<u64>(), bytes_from.values().sum::<u64>());
        for (executor, blocked) in &self.blocked_in {
            let is_full = self.n_in.get(executor) == Some(&self.config.in_max);
            let is_in_round = |id: &QueueId| self.n_into.contains_key(&(id.0, *executor));
            assert!(is_full || blocked.iter().all(is_in_round));
        }
        for (source, blocked) in &self.blocked_out {
            let is_full = self.n_out.get(source) == Some(&self.out_max(*source));
            let is_in_round = |id: &QueueId| self.n_in_rounds.contains_key(&(id.0, *source));
            assert!(is_full || blocked.iter().all(is_in_round));
        }
        let n_left: usize = self.live.values().map(|l| l.n_left as usize + l.relays.len()).sum();
        assert_eq!(n_left, self.wants.values().map(|w| w.collectives.len()).sum::<usize>());
    }
}
