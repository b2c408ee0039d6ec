//! The transfers of one node that wait for a place, in the order in which they were asked for.
//!
//! Transfers that wait for the same thing stand in one line. A walk along the queue leaves a line out as soon as it knows that no
//! transfer in it can begin, and does not look at each of them: a task with 10,000 small inputs has 10,000 transfers in one line.
//! What a transfer waits for is room at its sources ([`WaitsFor`]). Where the inputs of an attempt come one after the other
//! ([`ExecutorConfig::inputs_in_turn`]), it is also the attempt that asked for it first: the walk passes over an attempt that has
//! an input on its way.
//!
//! Not here: which transfer may begin (`transfers`).

use super::AttemptId;
use crate::event::{Source, Target};
use eyas_terms::ExecutorId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// What all transfers of one line wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Line {
    /// The attempt that asked for the transfer first; `None`: no attempt waits for it, or that does not matter.
    pub attempt: Option<AttemptId>,
    pub waits_for: WaitsFor,
}

/// Where a transfer needs room to begin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum WaitsFor {
    /// Home alone.
    Home,
    /// Any of these peers; home has to wait until none of them is left. `small`: the object shares a stream.
    Peers { peers: [Option<ExecutorId>; PEERS_MAX], small: bool },
    /// More has to be known of each transfer.
    Various,
}

/// The largest number of peers that a line is made for. A dispatcher names no more.
pub(super) const PEERS_MAX: usize = 3;

impl WaitsFor {
    /// Of a transfer that has these sources left.
    pub fn of(sources: &VecDeque<Source>, small: bool) -> WaitsFor {
        let mut peers = [None; PEERS_MAX];
        let mut n_peers = 0;
        for source in sources {
            if let Source::Peer(peer) = source {
                match peers.get_mut(n_peers) {
                    Some(place) => *place = Some(*peer),
                    None => return WaitsFor::Various,
                }
                n_peers += 1;
            }
        }
        if n_peers == 0 {
            return WaitsFor::Home;
        }
        // In whatever order they are tried, the transfer can begin when one of them has room.
        peers[..n_peers].sort_unstable();
        WaitsFor::Peers { peers, small }
    }
}

/// Where a transfer stands in the queue. Places are ordered as the transfers were asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueuePlace {
    number: u64,
    line: Line,
}

impl QueuePlace {
    pub fn line(&self) -> Line {
        self.line
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct TransferQueue {
    next_number: u64,
    /// No line is empty.
    lines: BTreeMap<Line, BTreeMap<u64, Target>>,
}

impl TransferQueue {
    /// The transfer to `target` stands behind all others.
    pub fn put(&mut self, line: Line, target: Target) -> QueuePlace {
        let place = QueuePlace { number: self.next_number, line };
        self.next_number += 1;
        self.lines.entry(line).or_default().insert(place.number, target);
        place
    }

    pub fn remove(&mut self, place: QueuePlace) -> Target {
        let line = self.lines.get_mut(&place.line).expect("a transfer with a place is in the queue");
        let target = line.remove(&place.number).expect("a transfer with a place is in the queue");
        if line.is_empty() {
            self.lines.remove(&place.line);
        }
        target
    }

    /// Another attempt is now the first to wait for the transfer at `place`. Its place in the order stays.
    pub fn change_line(&mut self, place: QueuePlace, line: Line) -> QueuePlace {
        let target = self.remove(place);
        self.lines.entry(line).or_default().insert(place.number, target);
        QueuePlace { number: place.number, line }
    }

    pub fn target(&self, place: QueuePlace) -> Target {
        self.lines[&place.line][&place.number]
    }

    /// A walk along all places, in order.
    pub fn walk(&self) -> Walk {
        let first = |(line, targets): (&Line, &BTreeMap<u64, Target>)| {
            let (number, _) = targets.first_key_value().expect("no line is empty");
            Reverse(Step { place: QueuePlace { number: *number, line: *line }, goes_on: true })
        };
        Walk { heads: self.lines.iter().map(first).collect() }
    }

    /// The place behind this one in its line.
    fn next_in_line(&self, place: QueuePlace) -> Option<QueuePlace> {
        let line = self.lines.get(&place.line)?;
        let (number, _) = line.range(place.number + 1..).next()?;
        Some(QueuePlace { number: *number, ..place })
    }

    /// Where transfers to `target` stand; for tests and checks.
    pub fn places_of(&self, target: Target) -> Vec<QueuePlace> {
        let places = self.lines.iter().flat_map(|(line, targets)| {
            let of_target = targets.iter().filter(move |(_, t)| **t == target);
            of_target.map(|(number, _)| QueuePlace { number: *number, line: *line })
        });
        places.collect()
    }
}

/// A place that a walk has come to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub place: QueuePlace,
    /// The walk goes on along the line of this place.
    goes_on: bool,
}

/// A walk along the queue. Only the place that it stands at may be removed meanwhile, and nothing may be put in.
pub(super) struct Walk {
    /// The next place of each line that the walk goes along.
    heads: BinaryHeap<Reverse<Step>>,
}

impl Walk {
    /// The next place in the order.
    pub fn next(&mut self) -> Option<Step> {
        self.heads.pop().map(|Reverse(step)| step)
    }

    /// The walk goes on along the line of the place that it stands at. It is called before that place is removed.
    pub fn go_on(&mut self, step: Step, queue: &TransferQueue) {
        if step.goes_on
            && let Some(place) = queue.next_in_line(step.place)
        {
            self.heads.push(Reverse(Step { place, ..step }));
        }
    }

    /// Of the line of the place that the walk stands at, it only goes to those of `places` that it has not passed.
    pub fn pass_over(&mut self, step: Step, places: impl Iterator<Item = QueuePlace>) {
        if step.goes_on {
            let is_ahead =
                |place: &QueuePlace| place.line == step.place.line && place.number > step.place.number;
            let ahead = places.filter(is_ahead);
            self.heads.extend(ahead.map(|place| Reverse(Step { place, goes_on: false })));
        }
    }
}
