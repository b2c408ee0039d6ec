//! `demand`: as many nodes as the queued work needs; releases the nodes that are worth least. Our own policy.
//!
//! What the paper's policies lack: a queue of a thousand tasks of 10 ms is little work, and a queue of eight
//! tasks of ten minutes is much, but the length of the queue says the opposite. And "idle for 30 s" hardly
//! ever comes true when placement spreads few tasks over many nodes, each of which has a task now and then.
//!
//! **More nodes.** The predicted run times of the queued tasks by label, the rate at which work arrived over the last minutes
//! ([`super::work::Arrivals`]), and the time that nodes took to come so far say how much work is left at the time when new
//! nodes could be there. As many nodes are requested, all in one request, as start that within `start_within_ns`, or within as long as
//! they took to come ([`super::sizing`]). Pending nodes count. While no task of a run has ended and nothing is predicted, at most as
//! many nodes are requested as there are.
//!
//! **Fewer nodes.** A node is surplus when the other nodes would have sufficed at the busiest look of the
//! last `release_idle_ns`, with `headroom`. Any node that is idle now may be the one to go. Among idle nodes,
//! those go first whose cache is worth least: fewest bytes that no other node has, then fewest bytes, then
//! longest idle. No node goes that would be requested again at once, because of what is queued or expected to arrive.
//!
//! **Floor.** A share (`warm_share`) of the largest number of nodes that were busy at once stays until
//! `warm_ns` after the last task, so that the next wave of tasks finds nodes with data.
//!
//! Why requests and releases look at different things: requests follow the queue, releases follow the busy
//! slots, so that nodes that are at work are not released because the queue has just become empty.

use super::decision::Why;
use super::sizing::Sizing;
use super::work::Arrivals;
use super::{NodeView, Policy, View};
use eyas_terms::{ExecutorId, Timestamp};
use std::cmp::Reverse;
use std::collections::VecDeque;

pub const NAME: &str = "demand";

#[derive(Debug, Default)]
pub(super) struct ByDemand {
    /// Busy slots at the looks of the last `release_idle_ns`, without those that a later look reaches: the
    /// first is the largest.
    peaks: VecDeque<(Timestamp, u64)>,
    /// The last time when nodes were lacking, or the time of the first look.
    last_lack: Option<Timestamp>,
    /// The largest number of nodes that had tasks at once, since there was last no task for `warm_ns`.
    n_busy_max: u32,
    last_work: Timestamp,
    arrivals: Arrivals,
    /// The numbers of the last look.
    sizing: Sizing,
}

impl ByDemand {
    fn observe(&mut self, view: &View) {
        self.arrivals.note(view.now, view.predicted.arrived);
        let n_busy = view.nodes.iter().filter(|n| !n.is_idle()).count() as u32;
        if view.n_ready + view.n_running > 0 {
            self.last_work = view.now;
        } else if view.now.since_ns(self.last_work) >= view.config.warm_ns {
            self.n_busy_max = 0;
        }
        self.n_busy_max = self.n_busy_max.max(n_busy);
        let n_slots = view.n_busy_slots();
        while self.peaks.back().is_some_and(|(_, peak)| *peak <= n_slots) {
            self.peaks.pop_back();
        }
        self.peaks.push_back((view.now, n_slots));
        let window_ns = view.config.release_idle_ns.unwrap_or(0);
        while self.peaks.front().is_some_and(|(at, _)| view.now.since_ns(*at) > window_ns) {
            self.peaks.pop_front();
        }
    }

    /// The number of nodes that should stay, even if they are idle now.
    fn n_keep(&self, view: &View) -> u32 {
        let config = view.config;
        let peak = self.peaks.front().map_or(0, |(_, peak)| *peak);
        let busy = peak as f64 * (1.0 + config.headroom) / f64::from(config.slots_per_node);
        let warm = f64::from(self.n_busy_max) * config.warm_share;
        busy.max(warm).ceil() as u32
    }
}

impl Policy for ByDemand {
    fn n_lacking(&mut self, view: &View) -> u32 {
        self.observe(view);
        let n_busy_slots = view.n_busy_slots();
        let mut sizing = Sizing {
            queued: view.predicted.queued.clone(),
            unknown: view.predicted.queued_unknown,
            n_too_large: view.predicted.n_too_large,
            running: view.predicted.running.clone(),
            running_parts: view.predicted.running_parts(),
            n_busy_slots,
            n_free_slots: view.n_slots() - n_busy_slots,
            n_nodes: view.nodes.len() as u32,
            n_pending: view.n_pending,
            slots_per_node: view.config.slots_per_node,
            start_within_ns: view.config.start_within_ns,
            start_up_ns: view.start_up_ns,
            ..Sizing::default()
        };
        sizing.arriving = self.arrivals.expected(sizing.horizon_ns());
        sizing.busy_parts = self.arrivals.busy_parts(sizing.start_up_ns);
        self.sizing = sizing;
        let n_nodes = self.sizing.n_lacking().0;
        if n_nodes > 0 || self.last_lack.is_none() {
            self.last_lack = Some(view.now);
        }
        n_nodes
    }

    fn why_lacking(&self, _view: &View) -> Why {
        Why::Work { n_lacking: self.sizing.n_lacking().0, sizing: Box::new(self.sizing.clone()) }
    }

    fn releasable(&mut self, view: &View, go: &mut Vec<ExecutorId>) {
        let Some(release_idle_ns) = view.config.release_idle_ns else { return };
        // Nodes that were requested a moment ago have not had time to get work.
        if self.last_lack.is_none_or(|at| view.now.since_ns(at) < release_idle_ns) || view.n_pending > 0 {
            return;
        }
        let n_surplus = (view.nodes.len() as u32).saturating_sub(self.n_keep(view)) as usize;
        let mut idle: Vec<&NodeView> = view.nodes.iter().filter(|n| n.is_idle()).collect();
        idle.sort_unstable_by_key(|n| {
            (n.sole_bytes, n.cached_bytes, Reverse(n.idle_ns(view.now)), n.executor)
        });
        idle.truncate(n_surplus);
        let lacks_without = |gone: &[&NodeView]| {
            let n_slots: u64 = gone.iter().map(|n| u64::from(n.slots)).sum();
            let (n_free_slots, n_nodes) = (self.sizing.n_free_slots - n_slots, view.nodes.len() - gone.len());
            let rest = Sizing { n_free_slots, n_nodes: n_nodes as u32, ..self.sizing.clone() };
            rest.n_lacking().0 > 0
        };
        while !idle.is_empty() && lacks_without(&idle) {
            idle.pop();
        }
        go.extend(idle.iter().map(|n| n.executor));
    }

    fn why_releasable(&self, view: &View) -> Why {
        Why::Surplus { n_keep: self.n_keep(view), window_ns: view.config.release_idle_ns.unwrap_or(0) }
    }
}
