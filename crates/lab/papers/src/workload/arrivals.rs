//! Streams of tasks that arrive at a rate, each reading one file chosen at random.
//!
//! Within an interval of constant rate, `A` tasks are due evenly: the `j`-th, counted from 1, is due `j /
//! A` seconds after the interval began. A client that sent each task by itself would cost a message per
//! task. `Raicu09` does not say what its client does; ours collects the tasks that are due within a slot of
//! [`SLOT_NS`] and submits them when the last of them is due. So no task comes early, and no task comes
//! later than a slot. Rates below 10 tasks/s are exact, and the last task of a stream is exactly on time.
//! All of it is integer arithmetic.
//!
//! The file is drawn uniformly from `0..n_files`, independently for each task.

use eyas_sim::workload::{ArrivingTasks, Compute, MS_NS, SECOND_NS, template};
use eyas_terms::Timestamp;
use eyas_terms::array::{Column, Part, Pattern, Piece, TaskArray, Template};
use eyas_terms::rng::Rng;
use std::fmt::Write;
use std::sync::Arc;

/// The time for which a client collects tasks before it submits them: short beside the response times of
/// seconds that are studied.
pub(super) const SLOT_NS: u64 = 100 * MS_NS;

pub(super) struct Arrivals<R> {
    /// Tasks per second, for one interval after the other.
    rates: R,
    interval_ns: u64,
    n_files: u64,
    rng: Rng,
    template: Template,
    compute: Compute,
    /// Tasks still to come.
    n_left: u64,
    n_submitted: u64,
    /// Tasks per second in the interval under way, and the time when that interval began.
    rate: u64,
    begin_ns: u64,
    next_begin_ns: u64,
    /// The end of the last slot looked at, and the number of tasks due until then; both are counted from
    /// the beginning of the interval.
    slot_end_ns: u64,
    n_due: u64,
}

impl<R: Iterator<Item = u64>> Arrivals<R> {
    /// At most `n_tasks` tasks; `interval_ns` is not 0.
    pub(super) fn new(
        name: &str,
        seed: u64,
        rates: R,
        interval_ns: u64,
        n_files: u64,
        compute_ns: u64,
        n_tasks: u64,
    ) -> Self {
        let literal = |text: &str| Piece::Literal(text.into());
        let file = Piece::Column { column: 0, part: Part::Whole };
        let id = Pattern(vec![Piece::Index]);
        Arrivals {
            rates,
            interval_ns,
            n_files,
            rng: Rng::new(seed),
            template: template(id, name, vec![Pattern(vec![literal("f"), file])], vec![]),
            compute: Compute::Same(compute_ns),
            n_left: n_tasks,
            n_submitted: 0,
            rate: 0,
            begin_ns: 0,
            next_begin_ns: 0,
            // The first step then behaves as if an interval had just ended.
            slot_end_ns: interval_ns,
            n_due: 0,
        }
    }
}

impl<R: Iterator<Item = u64>> Iterator for Arrivals<R> {
    type Item = ArrivingTasks;

    fn next(&mut self) -> Option<ArrivingTasks> {
        let n = loop {
            if self.n_left == 0 {
                return None;
            }
            if self.slot_end_ns == self.interval_ns {
                self.rate = self.rates.next()?;
                self.begin_ns = self.next_begin_ns;
                self.next_begin_ns += self.interval_ns;
                (self.slot_end_ns, self.n_due) = (0, 0);
            }
            self.slot_end_ns = (self.slot_end_ns + SLOT_NS).min(self.interval_ns);
            let due = u128::from(self.slot_end_ns) * u128::from(self.rate) / u128::from(SECOND_NS);
            let n = (due as u64 - self.n_due).min(self.n_left);
            if n > 0 {
                break n;
            }
        };
        self.n_due += n;
        self.n_left -= n;
        let due_ns = (u128::from(self.n_due) * u128::from(SECOND_NS)).div_ceil(u128::from(self.rate)) as u64;

        let (mut files, mut text) = (Column::default(), String::new());
        for _ in 0..n {
            text.clear();
            let _ = write!(text, "{}", self.rng.below(self.n_files));
            assert!(files.push(&text), "a slot's numbers fit a column");
        }
        files.shrink_to_fit();
        let array = TaskArray {
            n_tasks: n as u32,
            first_index: self.n_submitted,
            template: self.template.clone(),
            columns: vec![files],
            needs: None,
        };
        self.n_submitted += n;
        let at = Timestamp(self.begin_ns + due_ns);
        Some(ArrivingTasks { at, array: Arc::new(array), compute: self.compute.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(rates: &[u64], n_tasks: u64) -> Vec<(u64, u32)> {
        let stream = Arrivals::new("t", 1, rates.iter().copied(), SECOND_NS, 10, 0, n_tasks);
        stream.map(|s| (s.at.0 / MS_NS, s.array.n_tasks)).collect()
    }

    #[test]
    fn tasks_are_due_evenly_and_never_submitted_early() {
        assert_eq!(arrivals(&[1, 0, 2], 99), [(1000, 1), (2500, 1), (3000, 1)]);
        // 25 tasks/s: one is due every 40 ms, so 2 or 3 in a slot of 100 ms.
        let expect = [(80, 2), (200, 3), (280, 2), (400, 3), (480, 2), (600, 3), (680, 2), (800, 3)];
        assert_eq!(arrivals(&[25], 20), expect);
    }

    #[test]
    fn a_stream_is_cut_at_its_last_task() {
        assert_eq!(arrivals(&[1000, 1000], 1234).last(), Some(&(1234, 34)));
        assert_eq!(arrivals(&[3], 99).iter().map(|a| a.1).sum::<u32>(), 3);
    }
}
