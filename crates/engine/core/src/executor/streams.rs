//! The transfers that are under way, counted by the limits that they share: of the node, of each peer and of home.

use super::ExecutorConfig;
use super::transfer_queue::WaitsFor;
use crate::event::{Source, Target};
use eyas_terms::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};

/// Small objects from one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmallFrom {
    pub n_active: u32,
    /// As many were under way as may be, and when it was last looked at, more than half of them were.
    pub is_full: bool,
}

/// What a transfer uses while it is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Uses {
    /// A stream of home.
    Home,
    /// A stream of its own from a peer.
    Peer(ExecutorId),
    /// The stream that small objects from a peer share.
    Shared(ExecutorId),
    /// Neither: the object is made on the node of one that is here.
    Nothing,
}

impl Uses {
    /// `shares`: from a peer, the object shares a stream. `is_made`: from home, the node makes it.
    pub fn of(source: Source, shares: bool, is_made: bool) -> Uses {
        match source {
            Source::Home if is_made => Uses::Nothing,
            Source::Home => Uses::Home,
            Source::Peer(peer) if shares => Uses::Shared(peer),
            Source::Peer(peer) => Uses::Peer(peer),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Streams {
    active: BTreeSet<Target>,
    /// How many of these share a stream.
    n_small: u32,
    pub(super) by_peer: BTreeMap<ExecutorId, u32>,
    /// Small transfers from each peer; those in `by_peer` are others.
    pub(super) small_by_peer: BTreeMap<ExecutorId, SmallFrom>,
    /// Transfers from home, and outputs on their way there.
    pub(super) n_home: u32,
}

impl Streams {
    /// Transfers that are under way, each with a stream of its own.
    pub fn n_own(&self) -> u32 {
        self.active.len() as u32 - self.n_small
    }

    /// Transfers that are under way.
    pub fn n_active(&self) -> usize {
        self.active.len()
    }

    /// What is under way, ascending.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.active.iter()
    }

    /// Streams from and to home.
    pub fn n_home(&self) -> u32 {
        self.n_home
    }

    pub fn has_room(&self, config: &ExecutorConfig) -> bool {
        self.n_own() < config.transfers_max
    }

    /// Whether home may be used by one more stream.
    pub fn has_room_at_home(&self, config: &ExecutorConfig) -> bool {
        self.n_home < config.home_streams_max
    }

    /// Whether a transfer of such a line may begin.
    pub fn has_room_for(&self, config: &ExecutorConfig, waits_for: WaitsFor) -> bool {
        let has_room = self.has_room(config);
        match waits_for {
            WaitsFor::Home => has_room && self.has_room_at_home(config),
            WaitsFor::Peers { peers, small } => {
                (has_room || small)
                    && peers.iter().flatten().any(|peer| self.has_room_at(config, *peer, small))
            }
            // A small one may begin all the same.
            WaitsFor::Various => has_room || config.small_bytes_max > 0,
        }
    }

    pub fn has_room_at(&self, config: &ExecutorConfig, peer: ExecutorId, small: bool) -> bool {
        if small {
            let is_full = self.small_by_peer.get(&peer).is_some_and(|small| small.is_full);
            return !is_full && config.small_per_peer_max > 0;
        }
        let n_active = self.by_peer.get(&peer).copied().unwrap_or(0);
        n_active < config.transfers_per_peer_max && self.has_room(config)
    }

    /// Peers of whose small objects half have come give others again.
    pub fn look_at_small(&mut self, config: &ExecutorConfig) {
        for small in self.small_by_peer.values_mut() {
            small.is_full &= small.n_active > config.small_per_peer_max / 2;
        }
    }

    pub fn begin(&mut self, config: &ExecutorConfig, target: Target, uses: Uses) {
        self.active.insert(target);
        match uses {
            Uses::Nothing => {}
            Uses::Home => self.n_home += 1,
            Uses::Shared(peer) => {
                self.n_small += 1;
                let small = self.small_by_peer.entry(peer).or_default();
                small.n_active += 1;
                small.is_full |= small.n_active >= config.small_per_peer_max;
            }
            Uses::Peer(peer) => *self.by_peer.entry(peer).or_default() += 1,
        }
    }

    pub fn end(&mut self, target: Target, uses: Uses) {
        self.active.remove(&target);
        match uses {
            Uses::Nothing => {}
            Uses::Home => self.n_home -= 1,
            Uses::Shared(peer) => {
                self.n_small -= 1;
                let small = self.small_by_peer.get_mut(&peer).expect("an active transfer is counted");
                small.n_active -= 1;
            }
            Uses::Peer(peer) => {
                *self.by_peer.get_mut(&peer).expect("an active transfer from a peer is counted") -= 1
            }
        }
    }

    /// An output sets out for home.
    pub fn begin_landing(&mut self) {
        self.n_home += 1;
    }

    pub fn end_landing(&mut self) {
        self.n_home -= 1;
    }

    /// Panics unless these transfers are under way and no limit is exceeded. For tests.
    pub fn check(&self, config: &ExecutorConfig, active: &BTreeMap<Target, Uses>) {
        assert!(active.keys().eq(&self.active), "active transfers are known");
        assert!(self.n_own() <= config.transfers_max);
        let count = |of: Uses| active.values().filter(|uses| **uses == of).count();
        for (peer, n) in &self.by_peer {
            assert_eq!(count(Uses::Peer(*peer)), *n as usize, "transfers from executor {peer} are counted");
            assert!(*n <= config.transfers_per_peer_max);
        }
        for (peer, small) in &self.small_by_peer {
            let n = small.n_active;
            assert_eq!(
                count(Uses::Shared(*peer)),
                n as usize,
                "small transfers from executor {peer} are counted"
            );
            let max = config.small_per_peer_max;
            assert!(n <= max && (small.is_full || n < max));
        }
        let is_shared = |uses: &&Uses| matches!(uses, Uses::Shared(_));
        assert_eq!(active.values().filter(is_shared).count(), self.n_small as usize);
        assert_eq!(self.n_small, self.small_by_peer.values().map(|small| small.n_active).sum::<u32>());
    }
}
