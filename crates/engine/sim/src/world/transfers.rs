//! Transfers into nodes, from home and from peers.
//!
//! A peer may be asked for an object that it is only about to receive, and sends it on while it receives it. The latency of a
//! transfer's first byte is added at the transfer's end, where it delays the task and does not change other flows.
//!
//! Where the machine limits how many copies a node sends at once, those beyond wait at their sender in the order in which they were
//! asked for.

use super::hardware::{HOME_SITE, Hardware, Purpose};
use super::nodes::Nodes;
use super::time::{Ev, Time};
use crate::fluid::{FlowId, ResourceId};
use eyas_core::event::{InputMoved, NodeEvent, Source, Target, WATCH_NS_MIN};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// As live, a source is asked for an object that it is about to receive for so long, and so often.
const AWAIT_NS_MAX: u64 = 30 * super::S;
const AWAIT_STEP_NS: u64 = 5_000_000;
/// How often a receiver looks whether its source has sent on the last byte.
const SENT_ON_STEP_NS: u64 = 1_000_000;

/// What an executor asks for.
pub(super) struct Ask {
    pub target: Target,
    pub source: Source,
    pub object: ObjectId,
    pub size_bytes: u64,
    /// The source may only be about to receive the object.
    pub awaits: bool,
    /// The dispatcher wants to hear how far the transfer has come.
    pub watched: bool,
    pub made: Option<Making>,
}

/// The node makes the object of a packed one.
#[derive(Clone, Copy)]
pub(super) struct Making {
    /// Bytes of what is made.
    pub bytes: u64,
    /// The packed one is in the node's cache; otherwise it is read from home while the object is made.
    pub is_packed_here: bool,
}

struct Transfer {
    target: Target,
    source: Source,
    object: ObjectId,
    flow: Option<FlowId>,
    size_bytes: u64,
    /// It crosses the link between two sites.
    is_between: bool,
    /// Until this moment the source may only be about to receive the object.
    patience_ends: Timestamp,
    watched: bool,
    made: Option<Making>,
    since: Timestamp,
    /// The node does not reach the source.
    is_cut: bool,
}

/// A transfer that is over.
pub(super) struct Ended {
    pub target: Target,
    pub source: Source,
    pub object: ObjectId,
    /// The object has come. `false`: the source was not reached, or did not have it any more.
    pub is_here: bool,
    /// The node did not reach the source.
    pub is_cut: bool,
    /// It crossed the link between two sites.
    pub is_between: bool,
    /// The bytes that came from elsewhere; `None`: the node made the object of what it had.
    pub moved_bytes: Option<u64>,
}

/// See the module. The number of a transfer that has ended is given to a new one.
#[derive(Default)]
pub(super) struct Transfers {
    transfers: Vec<Option<Transfer>>,
    free: Vec<u32>,
    /// Nodes that have sent copies, where the machine limits how many they send at once.
    senders: BTreeMap<ExecutorId, Sender>,
}

#[derive(Default)]
struct Sender {
    /// Copies under way, and some that have ended.
    flows: Vec<FlowId>,
    /// The receivers and transfers whose turn has not come.
    waiting: VecDeque<(u32, u32)>,
}

impl Sender {
    fn has_room(&mut self, hardware: &Hardware<'_>, sends_max: u32) -> bool {
        self.flows.retain(|flow| hardware.goes_on(*flow));
        self.flows.len() < sends_max as usize
    }
}

impl Transfers {
    /// Node `number` asks for an object.
    pub fn ask(
        &mut self,
        number: u32,
        ask: Ask,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        nodes: &mut Nodes,
    ) {
        let transfer = self.free.pop().unwrap_or_else(|| {
            self.transfers.push(None);
            self.transfers.len() as u32 - 1
        });
        let Ask { target, source, object, size_bytes, awaits, watched, made } = ask;
        self.transfers[transfer as usize] = Some(Transfer {
            target,
            source,
            object,
            flow: None,
            size_bytes,
            is_between: false,
            patience_ends: time.now.plus_ns(if awaits { AWAIT_NS_MAX } else { 0 }),
            watched,
            made,
            since: time.now,
            is_cut: false,
        });
        let asks_home = source == Source::Home && !made.is_some_and(|making| making.is_packed_here);
        let opened = if asks_home { hardware.opened_at(time.now) } else { None };
        match opened {
            Some(at_ns) => time.at(at_ns, Ev::Opened { node: number, transfer }),
            None => self.begin(number, transfer, time, hardware, nodes),
        }
    }

    /// The bytes begin to flow, if the source has them.
    pub fn begin(
        &mut self,
        number: u32,
        transfer: u32,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        nodes: &mut Nodes,
    ) {
        let Some(asked) = self.transfers[transfer as usize].as_mut() else { return };
        let Some(to) = nodes.find(number).map(|node| node.place) else { return };
        if let Source::Peer(peer) = asked.source
            && let Some(notice_ns) = nodes.find(peer.0).and_then(|peer| hardware.cut_ns(&to, &peer.place))
        {
            asked.is_cut = true;
            return time.after(notice_ns, Ev::Fetched { node: number, transfer });
        }
        let awaits = time.now < asked.patience_ends;
        let sends = match asked.source {
            Source::Peer(peer) if nodes.serves(peer, asked.object, awaits) => {
                hardware.machine.costs.sends_max.map(|sends_max| (peer, sends_max))
            }
            _ => None,
        };
        if let Some((peer, sends_max)) = sends {
            let sender = self.senders.entry(peer).or_default();
            if !sender.has_room(hardware, sends_max) {
                return sender.waiting.push_back((number, transfer));
            }
        }
        let cached = matches!(asked.target, Target::Cache(_));
        let mut from_site = HOME_SITE;
        let mut crossed: Option<Vec<ResourceId>> = match asked.source {
            // It uses the node's disk, and nothing else that others use.
            Source::Home if asked.made.is_some_and(|making| making.is_packed_here) => {
                from_site = to.site;
                Some(vec![to.disk])
            }
            Source::Home if cached => Some(vec![hardware.home, to.client, to.link_in, to.disk]),
            Source::Home => Some(vec![hardware.home, to.client, to.link_in]),
            Source::Peer(peer) => {
                let from = nodes.find(peer.0).filter(|_| nodes.serves(peer, asked.object, awaits));
                from_site = from.map_or(to.site, |peer| peer.place.site);
                let free = hardware.machine.costs.free_senders;
                from.map(|peer| match free {
                    true => vec![to.link_in, to.disk],
                    false => vec![peer.place_of(asked.object), peer.place.link_out, to.link_in, to.disk],
                })
            }
        };
        if let Some(crossed) = &mut crossed {
            crossed.extend(hardware.between(from_site, to.site));
        }
        match crossed {
            Some(crossed) => {
                asked.is_between = from_site != to.site;
                let node = nodes.find_mut(number).expect("it was just seen");
                let purpose = Purpose::Fetch { node: number, transfer };
                let flow = hardware.begin(time.now, &mut node.flows, asked.size_bytes, &crossed, purpose);
                asked.flow = Some(flow);
                if let Some((peer, _)) = sends {
                    self.senders.entry(peer).or_default().flows.push(flow);
                }
                if asked.watched {
                    time.after(WATCH_NS_MIN, Ev::Moved { node: number, transfer, flow });
                }
                if cached {
                    node.begin_receiving(asked.object);
                }
            }
            None if awaits => time.after(AWAIT_STEP_NS, Ev::Awaited { node: number, transfer }),
            // The source does not have it any more. Learning that takes one question and its answer.
            None => time.after(2 * hardware.machine.message_ns, Ev::Fetched { node: number, transfer }),
        }
    }

    /// A copy from `peer` has ended: those that wait there take their turns.
    fn send_next(
        &mut self,
        peer: ExecutorId,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        nodes: &mut Nodes,
    ) {
        let Some(sends_max) = hardware.machine.costs.sends_max else { return };
        while let Some(sender) = self.senders.get_mut(&peer)
            && sender.has_room(hardware, sends_max)
            && let Some((node, transfer)) = sender.waiting.pop_front()
        {
            self.begin(node, transfer, time, hardware, nodes);
        }
    }

    /// The event that tells the executor how far a watched transfer has come. `None`: the transfer has ended.
    pub fn on_moved(
        &self,
        number: u32,
        transfer: u32,
        flow: FlowId,
        time: &mut Time,
        hardware: &Hardware<'_>,
        nodes: &Nodes,
    ) -> Option<NodeEvent> {
        let &Transfer { target, source, object, size_bytes, since, .. } =
            self.transfers[transfer as usize].as_ref()?;
        let left = hardware.left(time.now, flow).filter(|_| nodes.is_there(number))?;
        let moving_ns = time.now.since_ns(since);
        let moved_bytes = size_bytes.saturating_sub(left as u64);
        let moved = InputMoved { target, object, source, moved_bytes, size_bytes, moving_ns, is_all: false };
        // The next report comes when the transfer has taken twice as long.
        time.after(moving_ns.max(WATCH_NS_MIN), Ev::Moved { node: number, transfer, flow });
        Some(NodeEvent::TransferMoved { moved })
    }

    /// All bytes have flowed that the source had.
    pub fn on_flow_ended(
        &mut self,
        number: u32,
        transfer: u32,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        nodes: &mut Nodes,
    ) {
        let &Transfer { source, object, is_between, made, .. } =
            self.transfers[transfer as usize].as_ref().expect("it is under way");
        if let Source::Peer(peer) = source {
            self.send_next(peer, time, hardware, nodes);
            if nodes.find(peer.0).is_some_and(|peer| peer.is_receiving(object)) {
                // The source sends the object on while it receives it, so it cannot have sent the last byte before it has that byte.
                return time.after(SENT_ON_STEP_NS, Ev::SentOn { node: number, transfer });
            }
        }
        let making_ns =
            |making: Making| (making.bytes as f64 / hardware.machine.costs.made_bytes_per_s * 1e9) as u64;
        let latency_ns = match (source, made) {
            (Source::Home, Some(making)) if making.is_packed_here => making_ns(making),
            (Source::Home, made) => hardware.machine.home_latency_ns + made.map_or(0, making_ns),
            (Source::Peer(_), _) => 2 * hardware.machine.message_ns,
        };
        let way_ns =
            hardware.machine.sites.filter(|_| is_between).map_or(0, |sites| 2 * sites.between_latency_ns);
        time.after(latency_ns + way_ns, Ev::Fetched { node: number, transfer });
    }

    /// The transfer is over, whether the object has come or not.
    pub fn end(&mut self, number: u32, transfer: u32, nodes: &mut Nodes) -> Ended {
        let ended = self.transfers[transfer as usize].take().expect("each transfer ends once");
        self.free.push(transfer);
        let Transfer { target, source, object, flow, made, size_bytes, is_between, is_cut, .. } = ended;
        let moved_bytes =
            if made.is_some_and(|making| making.is_packed_here) { None } else { Some(size_bytes) };
        if flow.is_some()
            && let Some(node) = nodes.find_mut(number)
        {
            node.end_receiving(object);
        }
        Ended { target, source, object, is_here: flow.is_some(), is_cut, is_between, moved_bytes }
    }

    /// A node is gone: transfers from it to other nodes break off, and no sender waits for it.
    pub fn break_off(&mut self, peer: u32, time: &mut Time, hardware: &mut Hardware<'_>, nodes: &mut Nodes) {
        for (transfer, of) in self.transfers.iter_mut().enumerate() {
            if let Some(of) = of
                && of.source == Source::Peer(ExecutorId(peer))
                && let Some(flow) = of.flow.take()
                && let Some(Purpose::Fetch { node, .. }) = hardware.break_off(time.now, flow)
            {
                let transfer = transfer as u32;
                time.after(hardware.machine.message_ns, Ev::Fetched { node, transfer });
            }
        }
        let senders: Vec<ExecutorId> = self.senders.keys().copied().collect();
        for sender in senders {
            self.send_next(sender, time, hardware, nodes);
        }
    }
}
