//! The two parts of the algorithm (Raicu09 figures 4 and 5) on the indexes of the window.
//!
//! In: a [`Window`], and which rule ([`Mode`]) applies to which part of an executor's room. Out: a decision.
//! The headers of the policies explain how the figures are read; this file puts that into code, and `naive`
//! does the same by scanning everything.

use super::hit_tree::{HitTree, Want};
use super::window::TaskPlace;
use super::{ExecutorId, Mode, Pick, QueueKey, Room, Stage, Unplaced, Window};
use crate::executor_set::{Seat, seats_in};
use std::cmp::{Ordering, Reverse};

/// Tries the stages in order; the first in which something can be placed makes the decision.
pub(super) fn place(
    window: &Window,
    stages: &[(Stage, Mode)],
    n_tasks_max: usize,
    picks: &mut Vec<Pick>,
) -> Result<ExecutorId, Unplaced> {
    picks.clear();
    for &(stage, mode) in stages {
        if let Some(seat) = notify(window, stage, mode) {
            let seated = window.executor_at(seat);
            let mut pick_up = PickUp { window, seat, stage, mode, n_tasks_max, room: seated.room, picks };
            if mode != Mode::FirstAvailable {
                pick_up.take(Part::Hits);
            }
            if pick_up.picks.is_empty() {
                pick_up.take(Part::Rest);
            }
            assert!(!picks.is_empty(), "an executor is only notified of a task that it can take");
            return Ok(seated.id);
        }
    }
    Err(why_not(window, stages))
}

/// Part 1, figure 4: which executor is notified; `None` if nothing can be placed in this stage.
fn notify(window: &Window, stage: Stage, mode: Mode) -> Option<Seat> {
    let head_fitting = || window.first(Want::Any, |shape| !shape.fitting(stage).is_empty());
    let next_free = |place: TaskPlace| window.next_free(window.shape(place), stage);
    let roomiest = |place: TaskPlace, row: &[u64]| Some(window.roomiest(row, window.shape(place), stage)?.1);
    match mode {
        Mode::FirstAvailable => next_free(head_fitting()?),
        Mode::MaxComputeUtil => {
            let head = head_fitting()?;
            let fitting = window.shape(head).fitting(stage);
            window
                .tree(head)
                .best_among(head.node, fitting.words(), |row| roomiest(head, row))
                .or_else(|| next_free(head))
        }
        Mode::MaxCacheHit => {
            let head = window.first(Want::Any, |_| true)?;
            let of_head = match window.tree(head).best_row(head.node) {
                Some(holders) => roomiest(head, holders),
                None => next_free(head),
            };
            of_head.or_else(|| roomiest_awaited(window, stage)).or_else(|| {
                let cold = window.first(Want::Cold, |shape| !shape.fitting(stage).is_empty())?;
                next_free(cold)
            })
        }
    }
}

/// Among the executors with room for a task of which they are a best holder, the one with most room; of
/// equals, the next in turn.
fn roomiest_awaited(window: &Window, stage: Stage) -> Option<Seat> {
    let awaited = window.trees().flat_map(|(place, tree)| {
        let shape = window.shape(place);
        let of_level = move |level| window.roomiest(tree.all_row(tree.best(level))?, shape, stage);
        (1..=tree.n_levels()).filter_map(of_level)
    });
    let turn = window.turn();
    awaited.min_by_key(|(room, seat)| (Reverse(*room), *seat < turn, *seat)).map(|(_, seat)| seat)
}

/// Part 2, figure 5: which tasks the notified executor gets.
struct PickUp<'a> {
    window: &'a Window,
    seat: Seat,
    stage: Stage,
    mode: Mode,
    n_tasks_max: usize,
    /// The room of the executor that is left.
    room: Room,
    picks: &'a mut Vec<Pick>,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// By hit rate, then queue order.
    Hits,
    /// Tasks without hits, in queue order.
    Rest,
}

/// Walks one tree in the order in which its tasks are picked.
struct Cursor<'a> {
    tree: &'a HitTree,
    place: TaskPlace,
    /// The level of `node`; 0 in the tree of tasks without inputs, and of all tasks in [`Part::Rest`].
    level: usize,
    node: u32,
}

impl PickUp<'_> {
    fn take(&mut self, part: Part) {
        let window = self.window;
        let mut cursors: Vec<Cursor> = window
            .trees()
            .filter(|(place, _)| self.fits(*place))
            .filter_map(|(place, tree)| {
                let start = if part == Part::Hits { tree.n_levels() } else { 0 };
                self.seek(tree, part, start, None).map(|(level, node)| Cursor { tree, place, level, node })
            })
            .collect();
        while self.picks.len() < self.n_tasks_max
            && let Some(i) = (0..cursors.len()).min_by(|&a, &b| cursors[a].cmp(&cursors[b], part))
        {
            let Cursor { tree, place, level, node } = cursors[i];
            let shape = window.shape(place);
            self.room = self.room.after(self.stage, shape.size);
            let n_hits = if part == Part::Hits { tree.count(node, self.seat) } else { 0 };
            let n_inputs = tree.inputs(node).len() as u32;
            self.picks.push(Pick {
                key: tree.key(node),
                n_hits,
                n_inputs,
                rule: super::Rule::Paper(self.mode),
                stage: self.stage,
            });
            if self.picks.len() == self.n_tasks_max {
                return;
            }
            match self.seek(tree, part, level, Some(tree.key(node))) {
                Some((level, node)) => (cursors[i].level, cursors[i].node) = (level, node),
                None => {
                    cursors.swap_remove(i);
                }
            }
            cursors.retain(|cursor| self.fits(cursor.place));
        }
    }

    fn fits(&self, place: TaskPlace) -> bool {
        let shape = self.window.shape(place);
        self.room.fits(self.stage, shape.size, shape.lasts)
    }

    /// The next task of `tree`: of `level` and after `after`, or of a lower level.
    fn seek(
        &self,
        tree: &HitTree,
        part: Part,
        level: usize,
        after: Option<QueueKey>,
    ) -> Option<(usize, u32)> {
        let find = |after: Option<QueueKey>, want: Want| match after {
            None => tree.first(want),
            Some(key) => tree.next(key, want),
        };
        if level == 0 {
            let want = match (part, self.mode) {
                (Part::Rest, Mode::MaxCacheHit) => Want::Cold,
                // Hits of a tree without levels: its tasks have no inputs, so all are at hand.
                _ if part == Part::Rest || tree.n_levels() == 0 => Want::Any,
                _ => return None,
            };
            return find(after, want).map(|node| (0, node));
        }
        let mut after = after;
        for level in (1..=level).rev() {
            let plane = match self.mode {
                Mode::MaxCacheHit => tree.best(level),
                _ => tree.at_least(level),
            };
            while let Some(node) = find(after, Want::Bit(plane, self.seat)) {
                // Tasks of higher levels have all been picked, otherwise this level would not be looked at;
                // there are at most `m`.
                if tree.level(node, tree.count(node, self.seat)) == level {
                    return Some((level, node));
                }
                after = Some(tree.key(node));
            }
            after = None;
        }
        None
    }
}

impl Cursor<'_> {
    /// The better pick is the smaller.
    fn cmp(&self, other: &Cursor, part: Part) -> Ordering {
        let by_key = self.tree.key(self.node).cmp(&other.tree.key(other.node));
        match part {
            Part::Rest => by_key,
            Part::Hits => {
                let ((a, of_a), (b, of_b)) = (self.rate(), other.rate());
                (b * of_a).cmp(&(a * of_b)).then(by_key)
            }
        }
    }

    /// Hit rate as a fraction.
    fn rate(&self) -> (usize, usize) {
        if self.tree.n_levels() == 0 { (1, 1) } else { (self.level, self.tree.n_levels()) }
    }
}

fn why_not(window: &Window, stages: &[(Stage, Mode)]) -> Unplaced {
    let Some(head) = window.first(Want::Any, |_| true) else { return Unplaced::NothingReady };
    if window.n_executors() == 0 {
        return Unplaced::NoExecutor;
    }
    if !window.has_any_room() {
        return Unplaced::NoneFree;
    }
    let (task, shape) = (window.key(head).task, window.shape(head));
    let fits_somewhere = stages.iter().any(|(stage, _)| !shape.fitting(*stage).is_empty());
    if fits_somewhere
        && let Some(holder) = window.tree(head).best_row(head.node).and_then(|row| seats_in(row).next())
    {
        return Unplaced::WaitingForHolder { task, executor: window.executor_at(holder).id };
    }
    Unplaced::NothingFits { task, cpus: shape.size.cpus, memory_bytes: shape.size.memory_bytes }
}
