//! How many further nodes the predicted work needs: the arithmetic of `demand`, as one function of numbers that the event log
//! keeps ([`Sizing`]), so that each decision can be computed again from the log.
//!
//! Two times rule it. A node that is requested now is there after the *start-up time* L. Until it has been there for the *stay*
//! it shall have work: the time within which queued tasks should have started (`start_within_ns`), or L where
//! that is longer, as a node should work for as long as it took to come; but no longer than [`STAY_NS_MAX`]. So:
//!
//!   - slots that are there have L + stay, the *horizon*, for what is queued, what is expected to arrive, and what waits at nodes
//!     behind other tasks. A busy slot has it less half of its task's time; a task that is longer than the horizon frees
//!     its slot with the probability horizon / time;
//!   - tasks that are longer than the horizon take their slots first; shorter tasks share what is left;
//!   - new slots have the stay for what remains. A task that is longer than the stay takes new slots of its own.
//!
//! Where nodes take longer to come than tasks should wait, a queue says too late that nodes lack. So there are to be nodes for
//! the rate that is expected when new ones could be there, too: as many slots as tasks keep busy at that rate, and a margin that
//! grows with the square root of it ([`MARGIN`]) and is the larger, the longer nodes take to come.
//!
//! Slots are shares of nodes here: of tasks of which a node holds `k` at once, for their cpus, memory, gpus or named resources,
//! each takes one `k`-th of a node's slots.
//!
//! A queue that the slots which are there finish before a new node could come asks for nothing. Tasks of which nothing is
//! predicted take their slots each, but for them there are never more new nodes than there are nodes. Tasks that are too large
//! for a node as it is expected ask for one node in all, and only where there is none and none on its way: it may turn out
//! to be larger.

use super::work::{NODE_PARTS, WorkAhead};
use serde::{Deserialize, Serialize};

/// A new node is expected to work for at most this long, however long it takes to come: time in a batch system's queue is
/// not paid for.
pub const STAY_NS_MAX: u64 = 60_000_000_000;
/// So many times the square root of the slots that are busy at a steady rate there are beside them, so that few tasks wait:
/// square-root staffing (S. Halfin, W. Whitt: *Heavy-traffic limits for queues with many exponential servers*, 1981).
const MARGIN: f64 = 1.5;
/// Work for less than this part of one node is left to the nodes that are there.
const PART_OF_NODE: f64 = 0.05;

/// The numbers that `demand` asks for nodes by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sizing {
    /// Ready tasks by predicted time.
    pub queued: Vec<WorkAhead>,
    /// Ready tasks of which nothing is predicted.
    pub unknown: WorkAhead,
    /// Ready tasks that are too large for a node as it is expected.
    pub n_too_large: u64,
    /// What is expected to arrive until the horizon.
    pub arriving: WorkAhead,
    /// Nodes, in parts, that tasks keep busy at the rate which is expected when new nodes could be there.
    pub busy_parts: u64,
    /// Tasks that nodes have, by predicted time.
    pub running: Vec<WorkAhead>,
    /// What all tasks that nodes have take of nodes, those that wait there behind others, too; in parts.
    pub running_parts: u64,
    pub n_busy_slots: u64,
    pub n_free_slots: u64,
    /// Nodes that are there and stay, and nodes on their way.
    pub n_nodes: u32,
    pub n_pending: u32,
    pub slots_per_node: u32,
    pub start_within_ns: u64,
    /// The time from a request for nodes until they are there, as measured so far; 0: not measured.
    pub start_up_ns: u64,
}

impl Sizing {
    /// How long a new node shall have work.
    pub fn stay_ns(&self) -> u64 {
        self.start_up_ns.min(STAY_NS_MAX).max(self.start_within_ns).max(1)
    }

    /// How far the look ahead goes.
    pub fn horizon_ns(&self) -> u64 {
        self.start_up_ns.saturating_add(self.stay_ns())
    }

    /// The predicted time of all queued tasks together.
    pub fn queued_ns(&self) -> u64 {
        self.queued.iter().fold(0, |sum, work| sum.saturating_add(work.ns))
    }

    /// The slots that are to be there for the rate at which tasks arrive.
    fn slots_for_rate(&self) -> f64 {
        let busy = self.busy_parts as f64 / NODE_PARTS as f64 * f64::from(self.slots_per_node.max(1));
        let too_late_ns = self.start_up_ns.saturating_sub(self.start_within_ns);
        let margin = MARGIN * busy.sqrt() * too_late_ns as f64 / self.start_up_ns.max(1) as f64;
        busy + margin
    }

    /// Nodes that are needed beyond those that are there or on their way, and how many of them for tasks of which nothing is predicted.
    pub fn n_lacking(&self) -> (u32, u32) {
        let (horizon, stay) = (self.horizon_ns() as f64, self.stay_ns() as f64);
        let slots_per_node = f64::from(self.slots_per_node.max(1));
        let slots_of = |parts: u64| parts as f64 / NODE_PARTS as f64 * slots_per_node;
        // What nodes have beyond their slots waits there.
        let running = slots_of(self.running_parts);
        let share_behind = ((running - self.n_busy_slots as f64) / running.max(f64::MIN_POSITIVE)).max(0.0);
        let waiting = self.queued.iter().chain([&self.arriving]);
        let waiting = waiting.map(|work| (slots_of(work.parts), work.mean_ns()));
        let behind = self.running.iter().map(|work| (slots_of(work.parts) * share_behind, work.mean_ns()));
        let (mut n_long, mut short_ns, mut short_slots) = (0.0, 0.0, 0.0);
        for (n, ns) in waiting.chain(behind) {
            if ns >= horizon {
                n_long += n;
            } else {
                short_ns += n * ns;
                short_slots += n * (ns / stay).min(1.0);
            }
        }
        // Slots that can start something, and their time.
        let (mut n_starts, mut has_ns) = (self.n_free_slots as f64, self.n_free_slots as f64 * horizon);
        for work in &self.running {
            let (n, ns) = (slots_of(work.parts) * (1.0 - share_behind), work.mean_ns());
            let freed = (horizon / ns.max(1.0)).min(1.0);
            n_starts += n * freed;
            has_ns += n * if ns < horizon { horizon - ns / 2.0 } else { freed * horizon / 2.0 };
        }
        let n_unknown = slots_of(self.unknown.parts);
        let n_whole = n_long + n_unknown;
        let whole_left = (n_whole - n_starts).max(0.0);
        let has_ns = if n_starts > n_whole { has_ns * (1.0 - n_whole / n_starts) } else { 0.0 };
        let short_left = if short_ns > has_ns { (short_ns - has_ns) / short_ns * short_slots } else { 0.0 };
        let unknown_left = if n_whole > 0.0 { whole_left * n_unknown / n_whole } else { 0.0 };
        // Nodes on their way are for predicted tasks first.
        let pending = f64::from(self.n_pending) * slots_per_node;
        let known_left = whole_left - unknown_left + short_left;
        let unknown_left = (unknown_left - (pending - known_left).max(0.0)).max(0.0);
        let known_left = (known_left - pending).max(0.0);
        let n_have = self.n_nodes.saturating_add(self.n_pending);
        let nodes_of = |slots: f64| {
            let part = if n_have == 0 { 0.0 } else { PART_OF_NODE };
            // As `as` saturates, work of any size is a number of nodes.
            // Parts were rounded down, and what is left of that is no node.
            (slots / slots_per_node - part - 1e-9).ceil().max(0.0) as u32
        };
        let rate_left = self.slots_for_rate() - f64::from(n_have) * slots_per_node;
        let known_left = known_left.max(rate_left);
        let n_known = nodes_of(known_left);
        let n_all = nodes_of(known_left + unknown_left);
        let mut n_unknown = (n_all - n_known).min(n_have.max(1));
        if self.n_too_large > 0 && n_have == 0 && n_known + n_unknown == 0 {
            n_unknown = 1;
        }
        (n_known.saturating_add(n_unknown), n_unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// Nodes of one slot that are to start tasks within 10 s.
    fn base() -> Sizing {
        Sizing { slots_per_node: 1, start_within_ns: 10 * S, ..Sizing::default() }
    }

    /// Tasks of which each takes a node.
    fn work(n: u64, each_ns: u64) -> WorkAhead {
        WorkAhead { n, ns: n * each_ns, parts: n * NODE_PARTS }
    }

    /// `n` busy nodes whose tasks take `each_ns`.
    fn busy(n: u64, each_ns: u64) -> Sizing {
        let running = vec![work(n, each_ns)];
        Sizing { n_nodes: n as u32, n_busy_slots: n, running_parts: n * NODE_PARTS, running, ..base() }
    }

    #[test]
    fn labels_of_10_ms_beside_labels_of_10_minutes_are_not_taken_for_tasks_of_a_minute() {
        // Their mean is 44 s, by which a hundred tasks would need a hundred nodes. The short ones are a second of work.
        let queued = vec![work(100, 10 * MS), work(8, 600 * S)];
        assert_eq!(Sizing { queued, ..base() }.n_lacking(), (9, 0));
        let queued = vec![work(100_000, 10 * MS), work(8, 600 * S)];
        assert_eq!(
            Sizing { queued, ..base() }.n_lacking(),
            (108, 0),
            "1,000 s of work in 10 s, and 8 long ones"
        );
    }

    #[test]
    fn a_queue_that_is_done_before_a_node_could_come_asks_for_none() {
        let queued = vec![work(600, 100 * MS)];
        let two = Sizing { queued, ..busy(2, 100 * MS) };
        assert_eq!(two.n_lacking(), (4, 0), "60 s of work, 20 of which are done in 10 s");
        assert_eq!(Sizing { start_up_ns: 30 * S, ..two.clone() }.n_lacking(), (0, 0));
        // Seven minutes of work are worth a node that takes 30 s to come and then works for as long as that.
        let more = Sizing { queued: vec![work(4200, 100 * MS)], start_up_ns: 30 * S, ..two };
        assert_eq!(more.n_lacking(), (10, 0));
    }

    #[test]
    fn a_slow_queue_of_a_batch_system_is_asked_for_what_is_left_when_it_answers() {
        let slow = Sizing { start_up_ns: 600 * S, ..busy(2, S) };
        assert_eq!((slow.stay_ns(), slow.horizon_ns()), (60 * S, 660 * S));
        let ask = |n| Sizing { queued: vec![work(n, S)], ..slow.clone() }.n_lacking().0;
        assert_eq!((ask(1300), ask(1800)), (0, 8), "two nodes do 1,320 tasks until then");
    }

    #[test]
    fn what_is_expected_to_arrive_is_asked_for_before_it_is_there() {
        let busy = Sizing { start_up_ns: 10 * S, ..busy(4, S) };
        assert_eq!(busy.n_lacking(), (0, 0));
        // Six seconds of work per second, and nodes for four.
        let arriving = work(6 * 20, S);
        assert_eq!(
            Sizing { arriving, ..busy.clone() }.n_lacking(),
            (5, 0),
            "also what piles up until nodes come"
        );
        assert_eq!(Sizing { arriving: work(3 * 20, S), ..busy }.n_lacking(), (0, 0));
    }

    #[test]
    fn where_nodes_come_late_there_are_some_more_than_the_rate_keeps_busy() {
        let at = |start_up_s: u64, n: u64| {
            let busy = busy(n, S);
            Sizing { start_up_ns: start_up_s * S, busy_parts: 16 * NODE_PARTS, ..busy }.n_lacking().0
        };
        // Sixteen slots are busy; beside them 1.5 times 4, less a fifth where nodes take 50 s and tasks may wait for 10 s.
        assert_eq!((at(50, 4), at(50, 20), at(50, 21)), (17, 1, 0));
        assert_eq!((at(5, 4), at(5, 16)), (12, 0), "nodes come in time, so no margin is needed");
    }

    #[test]
    fn tasks_behind_others_at_a_node_wait_too() {
        let stocked = Sizing { running_parts: 8 * NODE_PARTS, running: vec![work(8, 100 * S)], ..busy(4, S) };
        assert_eq!(stocked.n_lacking(), (4, 0));
        assert_eq!(
            Sizing { n_free_slots: 4, ..stocked }.n_lacking(),
            (0, 0),
            "they are taken back for idle slots"
        );
    }

    #[test]
    fn tasks_of_which_nothing_is_predicted_double_the_nodes_and_others_do_not_wait_for_that() {
        let unknown = |n_nodes| Sizing { unknown: work(1000, 0), n_nodes, ..base() }.n_lacking();
        assert_eq!((unknown(0), unknown(1), unknown(8)), ((1, 1), (1, 1), (8, 8)));
        let both = Sizing { unknown: work(1000, 0), n_nodes: 2, queued: vec![work(20, 100 * S)], ..base() };
        assert_eq!(both.n_lacking(), (22, 2));
    }

    #[test]
    fn tasks_take_the_part_of_a_node_that_they_need() {
        let queued = |n, n_per_node| {
            let mut predicted = super::super::work::Predicted::default();
            predicted.add_queued(n, Some(100 * S), n_per_node);
            Sizing { queued: predicted.queued, slots_per_node: 4, ..base() }.n_lacking()
        };
        assert_eq!(
            (queued(12, 4), queued(12, 2), queued(12, 1), queued(12, 16)),
            ((3, 0), (6, 0), (12, 0), (1, 0))
        );
        assert_eq!(queued(12, 3), (4, 0), "three of them leave a slot idle");
        let large = Sizing { n_too_large: 9, ..base() };
        assert_eq!(large.n_lacking(), (1, 1));
        assert_eq!(Sizing { n_too_large: 9, ..busy(1, S) }.n_lacking(), (0, 0));
    }

    #[test]
    fn a_small_rest_is_no_reason_for_a_node_unless_there_is_none() {
        let queued = vec![work(1, 10 * MS)];
        assert_eq!(Sizing { queued: queued.clone(), ..base() }.n_lacking(), (1, 0));
        assert_eq!(Sizing { queued, ..busy(1, 600 * S) }.n_lacking(), (0, 0));
    }

    /// The fewest new nodes with which a plain schedule starts all tasks in time: one task after the other, the
    /// longest first, each on the slot that is free first. New slots are there at `start_up_ns`.
    fn naive(tasks: &[u64], n_free: u64, start_up_ns: u64, horizon_ns: u64) -> u32 {
        let starts_in_time = |n_new: u32| {
            let mut free: Vec<u64> = vec![0; n_free as usize];
            free.extend(vec![start_up_ns; n_new as usize]);
            let mut tasks = tasks.to_vec();
            tasks.sort_unstable_by(|a, b| b.cmp(a));
            tasks.iter().all(|ns| {
                let Some(slot) = free.iter_mut().min() else { return false };
                let is_in_time = *slot < horizon_ns;
                *slot += ns;
                is_in_time
            })
        };
        (0..).find(|n| starts_in_time(*n)).expect("with a node for each task all start")
    }

    fn lengths() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            (1u64..2000, 0u32..6).prop_map(|(ms, scale)| ms * MS * 4u64.pow(scale) / 16),
            0..60,
        )
    }

    fn sizing_of(tasks: &[u64], n_free: u64, start_up_s: u64) -> Sizing {
        let mut predicted = super::super::work::Predicted::default();
        tasks.iter().for_each(|ns| predicted.add_queued(1, Some(*ns), 1));
        Sizing {
            queued: predicted.queued,
            n_free_slots: n_free,
            n_nodes: n_free as u32,
            start_up_ns: start_up_s * S,
            ..base()
        }
    }

    proptest! {
        /// Work that divides well, as the formula has it, needs no more nodes than the schedule of whole tasks and one that
        /// classes may add; and with twice as many, and one for each class, the schedule starts everything.
        #[test]
        fn it_is_close_to_a_plain_schedule(tasks in lengths(), n_free in 0u64..8, start_up_s in 0u64..30) {
            let sizing = sizing_of(&tasks, n_free, start_up_s);
            let n = sizing.n_lacking().0;
            let plain = naive(&tasks, n_free, sizing.start_up_ns, sizing.horizon_ns());
            prop_assert!(n <= 2 * plain + n_free as u32 + 2, "{n} nodes, the schedule needs {plain}");
            prop_assert!(plain <= 2 * n + 2, "{n} nodes, the schedule needs {plain}");
        }

        #[test]
        fn more_work_needs_no_fewer_nodes_and_more_nodes_leave_no_more_to_ask_for(
            tasks in lengths(), more in lengths(), n_free in 0u64..8, start_up_s in 0u64..30, n_pending in 0u32..9,
        ) {
            let sizing = sizing_of(&tasks, n_free, start_up_s);
            let n = sizing.n_lacking().0;
            let all: Vec<u64> = tasks.iter().chain(&more).copied().collect();
            let same_nodes = Sizing { n_nodes: sizing.n_nodes, ..sizing_of(&all, n_free, start_up_s) };
            prop_assert!(same_nodes.n_lacking().0 + 1 >= n);
            prop_assert!(sizing_of(&tasks, n_free + 1, start_up_s).n_lacking().0 <= n);
            let coming = Sizing { n_pending, ..sizing.clone() }.n_lacking().0;
            prop_assert!(coming <= n.saturating_sub(n_pending) + 1 && coming + n_pending + 1 >= n);
        }
    }
}
