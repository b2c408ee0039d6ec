//! The scheduling window: the ready tasks that are looked at, the holders of their inputs, and the executors'
//! room.
//!
//! In: the dispatcher's reports, made in step with its queue and its catalog:
//!   - [`Window::enter`], [`Window::leave`] for the first `capacity` tasks of the queue;
//!   - [`Window::executor_joined`], [`Window::executor_left`], [`Window::set_room`];
//!   - [`Window::replica_added`], [`Window::replica_dropped`], after the catalog said that this is news.
//!
//! Out: answers to the policies, by way of `choice`, and to `explain` ([`Window::standing`]).
//!
//! Tasks of equal size (cpus, memory, needs) form a *shape*, which knows the executors that have room for it.
//! Within a shape, tasks with equally many inputs share one `HitTree`. So each question to the window is a
//! question to a handful of trees. Only executors that have joined count as holders. An executor that drains
//! or is lost is reported as left, even if the catalog still has it as a source of transfers, and no task
//! waits for it.
//!
//! Invariants, checked by `Window::sanity_check` in tests: all indexes equal their recomputation from tasks, catalog and rooms.
//!
//! Cost: entering, leaving: logarithmic in the window times words of a row. A replica: constant per task of the window
//! that reads the object. Memory: 2 to 4 rows (`n_executors / 8` bytes) per task with one or two inputs,
//! 1 to 3 MB at 1,000 executors and 3,200 tasks.
//!
//! Not here: which tasks enter (the dispatcher keeps the first tasks of its queue here), and policy.

use super::hit_tree::{HitTree, Input, N_CLASSES, Want, class_of};
use super::{Lasts, NeedsId, QueueKey, ReadyTask, Room, Stage, TaskSize};
use crate::catalog::Catalog;
use crate::executor_set::{Seat, SeatSet, next_common3, seats_in};
use eyas_terms::{ExecutorId, ObjectId, TaskId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// See the module.
pub struct Window {
    capacity: usize,
    pub(super) shapes: Vec<Shape>,
    place_of: FxHashMap<TaskId, TaskPlace>,
    readers: FxHashMap<ObjectId, Vec<InputReader>>,
    seat_of: FxHashMap<ExecutorId, Seat>,
    /// By seat.
    seated: Vec<Option<SeatedExecutor>>,
    is_seated: SeatSet,
    /// Executors by their number of idle slots, those with none left out.
    by_idle: BTreeMap<u32, SeatSet>,
    by_ahead: BTreeMap<u32, SeatSet>,
    n_slots_total: u64,
    n_slots_idle: u64,
    /// Where the search among equals begins: behind the executor that was given a task last, so that all get
    /// their turn.
    turn: Seat,
    /// Words per row of seats.
    n_words: usize,
}

#[derive(Clone, Copy)]
pub(super) struct SeatedExecutor {
    pub id: ExecutorId,
    pub room: Room,
}

/// The tasks of one size and expected time. Kept when empty, and then used for the next new size.
pub(super) struct Shape {
    pub size: TaskSize,
    pub lasts: Lasts,
    /// Bit `c`: `trees[c]` holds tasks.
    occupied: u16,
    idle: SeatSet,
    ahead: SeatSet,
    /// Executors that are too small for such a task even when they have no other task, and executors that
    /// rest.
    unable: SeatSet,
    pub trees: [HitTree; N_CLASSES],
}

impl Shape {
    pub fn fitting(&self, stage: Stage) -> &SeatSet {
        match stage {
            Stage::Idle => &self.idle,
            Stage::Ahead => &self.ahead,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    fn set_room(&mut self, seat: Seat, room: &Room) {
        self.idle.set(seat, room.fits(Stage::Idle, self.size, self.lasts));
        self.ahead.set(seat, room.fits(Stage::Ahead, self.size, self.lasts));
        self.unable.set(seat, !room.is_worth_waiting_for(self.size, self.lasts));
    }
}

/// Where a task of the window is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskPlace {
    pub shape: u32,
    pub class: u32,
    pub node: u32,
}

/// A task that reads an object, and which of its inputs the object is.
#[derive(Clone, Copy)]
struct InputReader {
    place: TaskPlace,
    input: u32,
}

/// The state of one task in the window; for `explain`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    pub n_inputs: u32,
    /// Inputs held by the executor that holds most of them.
    pub n_hits_best: u32,
    /// The executors that hold that many; empty if no executor holds any.
    pub best_holders: Vec<ExecutorId>,
    /// Executors with idle slots for it, and with room ahead for it.
    pub n_fit_idle: usize,
    pub n_fit_ahead: usize,
}

impl Window {
    /// `capacity`: `W`, at least 1.
    pub fn new(capacity: usize) -> Window {
        Window {
            capacity,
            shapes: Vec::new(),
            place_of: FxHashMap::default(),
            readers: FxHashMap::default(),
            seat_of: FxHashMap::default(),
            seated: Vec::new(),
            is_seated: SeatSet::default(),
            by_idle: BTreeMap::new(),
            by_ahead: BTreeMap::new(),
            n_slots_total: 0,
            n_slots_idle: 0,
            turn: Seat(0),
            n_words: 1,
        }
    }

    // ---- tasks

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn len(&self) -> usize {
        self.place_of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.place_of.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub fn contains(&self, task: TaskId) -> bool {
        self.place_of.contains_key(&task)
    }

    /// The last task in queue order, which has to leave when an earlier one enters a full window.
    pub fn last(&self) -> Option<QueueKey> {
        self.trees().filter_map(|(_, tree)| tree.last().map(|n| tree.key(n))).max()
    }

    /// The sizes of the tasks that are here, each once.
    pub fn sizes(&self) -> Vec<TaskSize> {
        let shapes = self.shapes.iter().filter(|s| !s.is_empty());
        let mut sizes: Vec<_> = shapes.map(|s| s.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The first task in queue order that has these needs.
    pub fn first_with(&self, needs: NeedsId) -> Option<QueueKey> {
        self.first(Want::Any, |shape| shape.size.needs == needs).map(|place| self.key(place))
    }

    /// The tasks of one size, in queue order.
    pub fn tasks_of_size(&self, size: TaskSize) -> Vec<QueueKey> {
        let mut keys = vec![];
        for (place, tree) in self.trees() {
            let shape = self.shape(place);
            if shape.size == size {
                let mut at = tree.first(Want::Any);
                while let Some(node) = at {
                    keys.push(tree.key(node));
                    at = tree.next(tree.key(node), Want::Any);
                }
            }
        }
        keys.sort_unstable();
        keys
    }

    /// How many tasks of one size are here.
    pub fn n_of_size(&self, size: TaskSize) -> usize {
        let is_such = |place: &TaskPlace| self.shape(*place).size == size;
        self.trees().filter(|(place, _)| is_such(place)).map(|(_, tree)| tree.len()).sum()
    }

    /// Adds a task. It must not be in the window yet, and the window must have room.
    pub fn enter(&mut self, catalog: &Catalog, task: &ReadyTask) {
        let shape = self.shape_for(task.size(), task.lasts);
        let class = class_of(task.inputs.len());
        let inputs: Box<[Input]> =
            task.inputs.iter().map(|&object| Input { object, reader_index: 0 }).collect();
        let tree = &mut self.shapes[shape].trees[class];
        let holders = |object| catalog.holders_view(object);
        let node = tree.insert(task.key, inputs, holders, self.is_seated.words());
        let place = TaskPlace { shape: shape as u32, class: class as u32, node };
        for (input, &object) in task.inputs.iter().enumerate() {
            let readers = self.readers.entry(object).or_default();
            tree.input_mut(node, input as u32).reader_index = readers.len() as u32;
            readers.push(InputReader { place, input: input as u32 });
        }
        self.shapes[shape].occupied |= 1 << class;
        let old = self.place_of.insert(task.key.task, place);
        assert!(old.is_none(), "task {} entered the window twice", task.key.task);
    }

    /// Takes a task out; `false`: it was not in the window.
    pub fn leave(&mut self, task: TaskId) -> bool {
        let Some(place) = self.place_of.remove(&task) else { return false };
        let inputs = self.tree_mut(place).remove(place.node);
        if self.tree(place).is_empty() {
            self.shapes[place.shape as usize].occupied &= !(1 << place.class);
        }
        for input in inputs {
            let readers = self.readers.get_mut(&input.object).expect("a task in the window reads it");
            readers.swap_remove(input.reader_index as usize);
            let moved = readers.get(input.reader_index as usize).copied();
            if readers.is_empty() {
                self.readers.remove(&input.object);
            }
            if let Some(InputReader { place, input: which }) = moved {
                self.tree_mut(place).input_mut(place.node, which).reader_index = input.reader_index;
            }
        }
        true
    }

    fn shape_for(&mut self, size: TaskSize, lasts: Lasts) -> usize {
        let same = |s: &Shape| (s.size, s.lasts) == (size, lasts);
        if let Some(i) = self.shapes.iter().position(same) {
            return i;
        }
        let i = self.shapes.iter().position(Shape::is_empty).unwrap_or_else(|| {
            self.shapes.push(Shape {
                size,
                lasts,
                occupied: 0,
                idle: SeatSet::default(),
                ahead: SeatSet::default(),
                unable: SeatSet::default(),
                trees: std::array::from_fn(|class| HitTree::new(class, self.n_words)),
            });
            self.shapes.len() - 1
        });
        let shape = &mut self.shapes[i];
        (shape.size, shape.lasts) = (size, lasts);
        for seat in self.is_seated.iter() {
            let room = self.seated[seat.0 as usize].expect("an executor has this seat").room;
            shape.set_room(seat, &room);
        }
        i
    }

    // ---- executors

    /// From now on `executor` may hold inputs and be given tasks. It must have joined the catalog; what it
    /// holds there counts. Joining twice changes nothing.
    pub fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId) {
        if self.seat_of.contains_key(&executor) {
            return;
        }
        let seat = catalog.seat(executor).expect("an executor joins the catalog first");
        let i = seat.0 as usize;
        if i >= self.seated.len() {
            self.seated.resize(i + 1, None);
        }
        if i >= self.n_words * 64 {
            // A quarter more than needed, because growing rewrites all rows.
            self.n_words = (i / 64 + 1) * 5 / 4 + 1;
            for tree in self.shapes.iter_mut().flat_map(|s| &mut s.trees) {
                tree.grow(self.n_words);
            }
        }
        self.seat_of.insert(executor, seat);
        self.seated[i] = Some(SeatedExecutor { id: executor, room: Room::NONE });
        self.shapes.iter_mut().for_each(|shape| shape.set_room(seat, &Room::NONE));
        self.is_seated.insert(seat);
        for object in catalog.objects_on(executor) {
            self.replica_changed(object, seat, true);
        }
    }

    /// `executor` gets no more tasks and no longer counts as a holder; `objects` are the objects that it
    /// held, as given by [`Catalog::executor_left`] or [`Catalog::objects_on`].
    pub fn executor_left(&mut self, executor: ExecutorId, objects: &[ObjectId]) {
        self.set_room(executor, Room::NONE);
        let Some(seat) = self.seat_of.remove(&executor) else { return };
        for &object in objects {
            self.replica_changed(object, seat, false);
        }
        self.seated[seat.0 as usize] = None;
        self.is_seated.remove(seat);
        self.shapes.iter_mut().for_each(|shape| {
            shape.unable.remove(seat);
        });
    }

    /// Replaces what is known of the room on `executor`; nothing happens if it has not joined.
    pub fn set_room(&mut self, executor: ExecutorId, room: Room) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        let seated = self.seated[seat.0 as usize].as_mut().expect("an executor has this seat");
        let old = std::mem::replace(&mut seated.room, room);
        if room.slots_idle < old.slots_idle || room.ahead < old.ahead {
            self.turn = Seat(seat.0 + 1);
        }
        self.n_slots_total = self.n_slots_total - u64::from(old.slots_total) + u64::from(room.slots_total);
        self.n_slots_idle = self.n_slots_idle - u64::from(old.slots_idle) + u64::from(room.slots_idle);
        move_between(&mut self.by_idle, seat, old.idle_rank(), room.idle_rank());
        move_between(&mut self.by_ahead, seat, old.ahead, room.ahead);
        for shape in &mut self.shapes {
            shape.set_room(seat, &room);
        }
    }

    pub fn room(&self, executor: ExecutorId) -> Option<Room> {
        Some(self.executor_at(*self.seat_of.get(&executor)?).room)
    }

    pub fn n_executors(&self) -> usize {
        self.is_seated.len()
    }

    /// Slots of all executors.
    pub fn n_slots_total(&self) -> u64 {
        self.n_slots_total
    }

    /// Slots that a task holds.
    pub fn n_slots_active(&self) -> u64 {
        self.n_slots_total - self.n_slots_idle
    }

    // ---- replicas

    /// To be called when [`Catalog::add_replica`] returned `true`.
    pub fn replica_added(&mut self, executor: ExecutorId, object: ObjectId) {
        if let Some(&seat) = self.seat_of.get(&executor) {
            self.replica_changed(object, seat, true);
        }
    }

    /// To be called when [`Catalog::drop_replica`] returned `true`.
    pub fn replica_dropped(&mut self, executor: ExecutorId, object: ObjectId) {
        if let Some(&seat) = self.seat_of.get(&executor) {
            self.replica_changed(object, seat, false);
        }
    }

    fn replica_changed(&mut self, object: ObjectId, seat: Seat, appeared: bool) {
        for reader in self.readers.get(&object).into_iter().flatten() {
            let TaskPlace { shape, class, node } = reader.place;
            self.shapes[shape as usize].trees[class as usize].replica_changed(node, seat, appeared);
        }
    }

    // ---- answers

    fn tree_mut(&mut self, place: TaskPlace) -> &mut HitTree {
        &mut self.shapes[place.shape as usize].trees[place.class as usize]
    }

    pub(super) fn tree(&self, place: TaskPlace) -> &HitTree {
        &self.shapes[place.shape as usize].trees[place.class as usize]
    }

    pub(super) fn key(&self, place: TaskPlace) -> QueueKey {
        self.tree(place).key(place.node)
    }

    pub(super) fn shape(&self, place: TaskPlace) -> &Shape {
        &self.shapes[place.shape as usize]
    }

    pub(super) fn executor_at(&self, seat: Seat) -> &SeatedExecutor {
        self.seated[seat.0 as usize].as_ref().expect("an executor has this seat")
    }

    pub(super) fn has_any_room(&self) -> bool {
        !self.by_idle.is_empty() || !self.by_ahead.is_empty()
    }

    /// The trees that hold tasks, with their place (the node is 0).
    pub(super) fn trees(&self) -> impl Iterator<Item = (TaskPlace, &HitTree)> + '_ {
        self.shapes.iter().enumerate().flat_map(|(s, shape)| {
            let mut rest = shape.occupied;
            std::iter::from_fn(move || {
                let class = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some((TaskPlace { shape: s as u32, class, node: 0 }, &shape.trees[class as usize]))
            })
        })
    }

    /// The first task in queue order that `want` holds for, of the trees that `allowed` holds for.
    pub(super) fn first(&self, want: Want, allowed: impl Fn(&Shape) -> bool) -> Option<TaskPlace> {
        self.trees()
            .filter(|(place, _)| allowed(self.shape(*place)))
            .filter_map(|(place, tree)| tree.first(want).map(|node| TaskPlace { node, ..place }))
            .min_by_key(|place| self.key(*place))
    }

    /// Where the search among equals begins.
    pub fn turn(&self) -> Seat {
        self.turn
    }

    /// Among the executors on which the shape fits, the one with most room of that stage; of equals, the next
    /// in turn.
    pub(super) fn next_free(&self, shape: &Shape, stage: Stage) -> Option<Seat> {
        Some(self.roomiest(shape.fitting(stage).words(), shape, stage)?.1)
    }

    /// Among the executors of `row` on which the shape fits, the one with most room of that stage (of equals,
    /// the next in turn), and its room.
    pub(super) fn roomiest(&self, row: &[u64], shape: &Shape, stage: Stage) -> Option<(u32, Seat)> {
        let by_room = match stage {
            Stage::Idle => &self.by_idle,
            Stage::Ahead => &self.by_ahead,
        };
        let fitting = shape.fitting(stage).words();
        let first = |seats: &SeatSet| next_common3(row, fitting, seats.words(), self.turn);
        by_room.iter().rev().find_map(|(&n, seats)| first(seats).map(|seat| (n, seat)))
    }

    /// The first task in queue order whose best holders are all too small for it or rest, while an executor
    /// has idle slots for it: that executor, and the task. Where all nodes are alike and none rests, nothing
    /// is searched.
    pub(super) fn find_stranded(&self) -> Option<(ExecutorId, QueueKey)> {
        let first = |(place, tree): (TaskPlace, &HitTree)| {
            let Shape { idle, unable, .. } = self.shape(place);
            let n_levels = if idle.is_empty() || unable.is_empty() { 0 } else { tree.n_levels() };
            let is_stranded = |node: &u32| {
                tree.best_row(*node).is_some_and(|row| seats_in(row).all(|seat| unable.contains(seat)))
            };
            let of_level = |level| {
                let plane = tree.best(level);
                let of_seat = |seat| {
                    let want = Want::Bit(plane, seat);
                    let next = |node: &u32| tree.next(tree.key(*node), want);
                    std::iter::successors(tree.first(want), next).find(is_stranded)
                };
                let awaited = seats_in(tree.all_row(plane)?).filter(|seat| unable.contains(*seat));
                awaited.filter_map(of_seat).map(|node| tree.key(node)).min()
            };
            Some(((1..=n_levels).filter_map(of_level).min()?, place))
        };
        let (key, place) = self.trees().filter_map(first).min_by_key(|(key, _)| *key)?;
        Some((self.executor_at(self.next_free(self.shape(place), Stage::Idle)?).id, key))
    }

    /// The state of `task`; `None` if it is not in the window.
    pub fn standing(&self, task: TaskId) -> Option<Standing> {
        let place = *self.place_of.get(&task)?;
        let (tree, shape) = (self.tree(place), self.shape(place));
        let best = tree.best_row(place.node).unwrap_or(&[]);
        Some(Standing {
            n_inputs: tree.inputs(place.node).len() as u32,
            n_hits_best: tree.most(place.node),
            best_holders: crate::executor_set::seats_in(best).map(|s| self.executor_at(s).id).collect(),
            n_fit_idle: shape.idle.len(),
            n_fit_ahead: shape.ahead.len(),
        })
    }

    /// Heap bytes held.
    pub fn heap_bytes(&self) -> usize {
        let trees = self.shapes.iter().flat_map(|s| &s.trees).map(HitTree::heap_bytes).sum::<usize>();
        let readers = self.readers.values().map(|r| r.capacity() * size_of::<InputReader>()).sum::<usize>();
        trees
            + readers
            + self.shapes.capacity() * size_of::<Shape>()
            + self.place_of.capacity() * size_of::<(TaskId, TaskPlace)>()
            + self.readers.capacity() * size_of::<(ObjectId, Vec<InputReader>)>()
            + self.seated.capacity() * size_of::<Option<SeatedExecutor>>()
    }

    /// Panics when an index differs from its recomputation.
    pub fn sanity_check(&self, catalog: &Catalog) {
        let mut n_inputs = 0;
        for (s, shape) in self.shapes.iter().enumerate() {
            let occupied = |c: usize| shape.occupied & (1 << c) != 0;
            assert!((0..N_CLASSES).all(|c| occupied(c) != shape.trees[c].is_empty()));
            for (c, tree) in shape.trees.iter().enumerate().filter(|(_, t)| !t.is_empty()) {
                tree.sanity_check(|inputs, seat| match self.seated.get(seat.0 as usize) {
                    Some(Some(seated)) => {
                        inputs.iter().filter(|i| catalog.holds(seated.id, i.object)).count() as u32
                    }
                    _ => 0,
                });
                let mut at = tree.first(Want::Any);
                while let Some(node) = at {
                    let key = tree.key(node);
                    assert!(self.place_of[&key.task] == TaskPlace { shape: s as u32, class: c as u32, node });
                    for (i, input) in tree.inputs(node).iter().enumerate() {
                        let reader = self.readers[&input.object][input.reader_index as usize];
                        assert!(self.key(reader.place) == key && reader.input == i as u32);
                        n_inputs += 1;
                    }
                    at = tree.next(key, Want::Any);
                }
            }
            let (size, lasts) = (shape.size, shape.lasts);
            for (set, belongs) in [
                (
                    &shape.idle,
                    &(|m: &SeatedExecutor| m.room.fits(Stage::Idle, size, lasts))
                        as &dyn Fn(&SeatedExecutor) -> bool,
                ),
                (&shape.ahead, &|m| m.room.fits(Stage::Ahead, size, lasts)),
                (&shape.unable, &|m| !m.room.is_worth_waiting_for(size, lasts)),
            ] {
                let is_in = |i: &usize| self.seated[*i].as_ref().is_some_and(belongs);
                let expect = (0..self.seated.len()).filter(is_in);
                assert!(set.iter().map(|s| s.0 as usize).eq(expect));
            }
        }
        assert_eq!(n_inputs, self.readers.values().map(Vec::len).sum::<usize>());
        assert!(self.readers.values().all(|r| !r.is_empty()));
        assert_eq!(self.len(), self.trees().map(|(_, tree)| tree.len()).sum::<usize>());
        let here = || self.seated.iter().flatten();
        assert_eq!(self.n_slots_total, here().map(|m| u64::from(m.room.slots_total)).sum::<u64>());
        assert_eq!(self.n_slots_idle, here().map(|m| u64::from(m.room.slots_idle)).sum::<u64>());
        assert_eq!(self.seat_of.len(), here().count());
        for (by, room_of) in [
            (&self.by_idle, (|m: &SeatedExecutor| m.room.idle_rank()) as fn(&SeatedExecutor) -> u32),
            (&self.by_ahead, |m: &SeatedExecutor| m.room.ahead),
        ] {
            assert_eq!(
                by.values().map(SeatSet::len).sum::<usize>(),
                here().filter(|m| room_of(m) > 0).count()
            );
            for (&n, seats) in by {
                assert!(n > 0 && seats.iter().all(|s| room_of(self.executor_at(s)) == n));
            }
        }
    }
}

/// Moves `seat` from the set of those with `old` to the set of those with `new`; there is no set for 0.
pub(super) fn move_between(by: &mut BTreeMap<u32, SeatSet>, seat: Seat, old: u32, new: u32) {
    if old == new {
        return;
    }
    if old > 0 {
        let set = by.get_mut(&old).expect("the seat is in the set of its room");
        set.remove(seat);
        if set.is_empty() {
            by.remove(&old);
        }
    }
    if new > 0 {
        by.entry(new).or_default().insert(seat);
    }
}
