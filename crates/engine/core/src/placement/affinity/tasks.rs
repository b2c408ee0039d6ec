//! The queue, by the inputs of its tasks.
//!
//! Tasks with the same inputs, size, expected time and priority differ only in their age. They form a *bundle*, and
//! all choices are made among bundles. Bundles of one size, expected time and priority form a *class*.
//!
//! In: tasks that enter and leave. Out: the bundles that read an object, the tasks of a bundle and of a class
//! in queue order, and per class the objects ranked by the number of tasks that read them alone (`single`)
//! or with others (`multi`).
//!
//! Invariants, checked by `Tasks::sanity_check`: a bundle has at least one task, and its tasks are in queue
//! order; an object has readers if and only if a bundle reads it; ranks are sums over bundles.
//!
//! Memory: 24 bytes per task, 24 per bundle and 24 per input of a bundle; about 20 per task for the order and
//! 10 per bundle to find it by its inputs; and the entries of an object in two ranks.

use super::super::{Lasts, QueueKey, ReadyTask, TaskSize};
use super::rank::{Heat, Rank};
use eyas_terms::{ObjectId, TaskId};
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hasher;

pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct TaskNode {
    task: TaskId,
    /// The time when the task entered, in milliseconds of a clock that wraps.
    entered_ms: u32,
    next: u32,
    prev: u32,
    bundle: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Bundle {
    first_edge: u32,
    pub n_inputs: u32,
    pub n_tasks: u32,
    head: u32,
    tail: u32,
    pub class: u32,
}

/// One input of a bundle.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub object: ObjectId,
    /// The position of this edge among the readers of the object.
    reader_index: u32,
}

/// A bundle, in the list of readers of one of its inputs. What walks need of a bundle of two inputs is
/// repeated here, because walks go through hundreds of readers and bundles lie all over the memory.
#[derive(Clone, Copy)]
pub(super) struct BundleReader {
    /// [`NIL`]: a gap.
    pub bundle: u32,
    pub class: u32,
    /// The other input of a bundle of two inputs; [`NIL`] for other bundles.
    other: u32,
    /// The number of the bundle's tasks; kept for bundles of two inputs only.
    n_tasks: u32,
}

impl BundleReader {
    const GAP: BundleReader = BundleReader { bundle: NIL, class: NIL, other: NIL, n_tasks: 0 };

    /// The bundle's other input and its number of tasks, if the bundle has two inputs.
    #[inline]
    pub fn sole_other(self) -> Option<(ObjectId, u32)> {
        (self.other != NIL).then_some((ObjectId(self.other), self.n_tasks))
    }
}

/// The bundles that read one object, in the order in which they came, with gaps. The order matters: bundles
/// that are close in one list are likely to be close in other lists, too.
#[derive(Default)]
struct Readers {
    list: Vec<BundleReader>,
    n_gaps: u32,
}

/// Tasks of one size, expected time and priority. An empty class is kept and used for the next new class.
#[derive(Default)]
pub(super) struct Class {
    pub priority: i32,
    pub size: TaskSize,
    pub lasts: Lasts,
    /// The class's tasks in queue order, each with its node.
    pub order: BTreeMap<TaskId, u32>,
    /// Objects ranked by the number of tasks that read nothing else (`single`), and by the number of tasks
    /// that read other objects, too (`multi`).
    pub single: Rank,
    pub multi: Rank,
    /// The bundle of the tasks without inputs, or [`NIL`].
    pub free: u32,
}

#[derive(Default)]
pub(super) struct Tasks {
    nodes: Vec<TaskNode>,
    free_nodes: Vec<u32>,
    bundles: Vec<Bundle>,
    free_bundles: Vec<u32>,
    by_content: HashTable<u32>,
    edges: Vec<Edge>,
    /// Unused stretches of `edges`, by length.
    free_edges: BTreeMap<u32, Vec<u32>>,
    readers: FxHashMap<ObjectId, Readers>,
    pub classes: Vec<Class>,
    /// Classes that have tasks: larger priority first, then larger and longer tasks, because small tasks fit
    /// anywhere.
    pub class_order: Vec<u32>,
    n_tasks: usize,
}

fn hash_content(class: u32, inputs: impl Iterator<Item = ObjectId>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u32(class);
    inputs.for_each(|object| hasher.write_u32(object.0));
    hasher.finish()
}

impl Tasks {
    pub fn len(&self) -> usize {
        self.n_tasks
    }

    fn find(&self, key: QueueKey) -> Option<(u32, u32)> {
        let of_priority = |c: &&u32| self.classes[**c as usize].priority == key.priority;
        let found = |c: &u32| Some((*c, *self.classes[*c as usize].order.get(&key.task)?));
        self.class_order.iter().filter(of_priority).find_map(found)
    }

    pub fn contains(&self, key: QueueKey) -> bool {
        self.find(key).is_some()
    }

    pub fn last(&self) -> Option<QueueKey> {
        let classes = self.class_order.iter().map(|c| &self.classes[*c as usize]);
        classes
            .filter_map(|c| {
                c.order.last_key_value().map(|(&task, _)| QueueKey { priority: c.priority, task })
            })
            .max()
    }

    /// The bundle of a task in the middle of a class: the first task at or after the place `part` / 2^32
    /// between the ids of the oldest and the newest task.
    pub fn bundle_at(&self, class: u32, part: u32) -> Option<u32> {
        let order = &self.classes[class as usize].order;
        let ((first, _), (last, _)) = (order.first_key_value()?, order.last_key_value()?);
        let offset = (u128::from(last.0 - first.0) * u128::from(part)) >> 32;
        let (_, &node) = order.range(TaskId(first.0 + offset as u64)..).next()?;
        Some(self.nodes[node as usize].bundle)
    }

    pub fn first(&self) -> Option<(QueueKey, u32)> {
        let first = |&c: &u32| {
            let class = &self.classes[c as usize];
            let (&task, _) = class.order.first_key_value()?;
            Some((QueueKey { priority: class.priority, task }, c))
        };
        self.class_order.iter().filter_map(first).min()
    }

    #[inline]
    pub fn bundle(&self, bundle: u32) -> &Bundle {
        &self.bundles[bundle as usize]
    }

    /// All bundles of tasks that read something.
    pub fn all_bundles(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.bundles.iter().zip(0..);
        all.filter(|(bundle, _)| bundle.n_tasks > 0 && bundle.n_inputs > 0).map(|(_, number)| number)
    }

    /// The bundle of a queued task.
    pub fn bundle_of(&self, key: QueueKey) -> Option<u32> {
        self.find(key).map(|(_, node)| self.nodes[node as usize].bundle)
    }

    #[inline]
    pub fn bundle_of_node(&self, node: u32) -> u32 {
        self.nodes[node as usize].bundle
    }

    #[inline]
    pub fn inputs(&self, bundle: u32) -> &[Edge] {
        let g = &self.bundles[bundle as usize];
        &self.edges[g.first_edge as usize..(g.first_edge + g.n_inputs) as usize]
    }

    /// The oldest task of a bundle, and the time when the task entered. The bundle must have tasks.
    #[inline]
    pub fn head(&self, bundle: u32) -> (TaskId, u32) {
        let node = &self.nodes[self.bundles[bundle as usize].head as usize];
        (node.task, node.entered_ms)
    }

    /// Whether `bundle` is the number of a bundle of `class`. A number may be used again for another bundle.
    #[inline]
    pub fn is_bundle(&self, bundle: u32, class: u32) -> bool {
        self.bundles.get(bundle as usize).is_some_and(|g| g.n_tasks > 0 && g.class == class)
    }

    pub fn key(&self, bundle: u32) -> QueueKey {
        let class = &self.classes[self.bundles[bundle as usize].class as usize];
        QueueKey { priority: class.priority, task: self.head(bundle).0 }
    }

    /// The bundles that read `object`, with gaps.
    #[inline]
    pub fn readers(&self, object: ObjectId) -> &[BundleReader] {
        self.readers.get(&object).map_or(&[], |r| &r.list)
    }

    pub fn n_readers(&self, object: ObjectId) -> usize {
        self.readers.get(&object).map_or(0, |r| r.list.len() - r.n_gaps as usize)
    }

    /// The number of tasks that read `object`.
    pub fn n_tasks_reading(&self, object: ObjectId) -> u64 {
        let of = |rank: &Rank| rank.get(object).map_or(0, |entry| u64::from(entry.n_tasks));
        let classes = self.class_order.iter().map(|c| &self.classes[*c as usize]);
        classes.map(|class| of(&class.single) + of(&class.multi)).sum()
    }

    /// The number of tasks that read `object` and nothing else.
    pub fn n_tasks_reading_only(&self, object: ObjectId) -> u64 {
        let of = |c: &u32| self.classes[*c as usize].single.get(object).map_or(0, |e| u64::from(e.n_tasks));
        self.class_order.iter().map(of).sum()
    }

    /// The bundles that read `object`. Bundles that came at about the same time as the one at place `start`
    /// of the list come first.
    pub fn bundles_around(&self, object: ObjectId, start: usize) -> impl Iterator<Item = u32> + '_ {
        self.readers_around(object, start).map(|reader| reader.bundle)
    }

    /// The same with each bundle's entry in the list.
    pub fn readers_around(&self, object: ObjectId, start: usize) -> impl Iterator<Item = BundleReader> + '_ {
        let readers = self.readers(object);
        let (mut up, mut down) = (start, start);
        let places = std::iter::from_fn(move || {
            if up < readers.len() && (up - start <= start - down || down == 0) {
                up += 1;
                return Some(up - 1);
            }
            down = down.checked_sub(1)?;
            Some(down)
        });
        places.map(|at| readers[at]).filter(|reader| reader.bundle != NIL)
    }

    /// The position of `bundle` in the list of readers of `object`, which is one of its inputs.
    pub fn place_among(&self, object: ObjectId, bundle: u32) -> usize {
        let edge = self.inputs(bundle).iter().find(|e| e.object == object);
        edge.map_or(0, |e| e.reader_index as usize)
    }

    /// The bundle of `class` that reads `object` and nothing else.
    pub fn single(&self, class: u32, object: ObjectId) -> Option<u32> {
        self.find_bundle(class, &[object])
    }

    fn find_bundle(&self, class: u32, inputs: &[ObjectId]) -> Option<u32> {
        let hash = hash_content(class, inputs.iter().copied());
        let is_it = |&g: &u32| {
            self.bundles[g as usize].class == class
                && self.inputs(g).iter().map(|e| e.object).eq(inputs.iter().copied())
        };
        self.by_content.find(hash, is_it).copied()
    }

    fn class_for(&mut self, priority: i32, size: TaskSize, lasts: Lasts) -> u32 {
        let same = |c: &&u32| {
            let class = &self.classes[**c as usize];
            (class.priority, class.size, class.lasts) == (priority, size, lasts)
        };
        if let Some(&class) = self.class_order.iter().find(same) {
            return class;
        }
        let unused = (0..self.classes.len()).find(|&c| self.classes[c].order.is_empty());
        let class = unused.unwrap_or_else(|| {
            self.classes.push(Class::default());
            self.classes.len() - 1
        });
        self.classes[class] = Class { priority, size, lasts, free: NIL, ..Class::default() };
        self.class_order.push(class as u32);
        let classes = &self.classes;
        self.class_order.sort_by_key(|&c| {
            let class = &classes[c as usize];
            (Reverse(class.priority), Reverse(class.size), Reverse(class.lasts))
        });
        class as u32
    }

    /// Adds a task whose `inputs` are distinct and ascending. Gives its bundle and whether it is the oldest
    /// there.
    pub fn enter(
        &mut self,
        task: &ReadyTask,
        inputs: &[ObjectId],
        entered_ms: u32,
        fact: impl Fn(ObjectId) -> (u64, Heat),
    ) -> (u32, bool) {
        let class = self.class_for(task.key.priority, task.size(), task.lasts);
        let bundle = self.find_bundle(class, inputs).unwrap_or_else(|| self.new_bundle(class, inputs));
        let task_id = task.key.task;
        // The search goes from both ends: a task that comes back is usually old, and a new task is the
        // newest.
        let (mut before, mut after) =
            (self.bundles[bundle as usize].tail, self.bundles[bundle as usize].head);
        let (prev, next) = loop {
            if before == NIL || self.nodes[before as usize].task < task_id {
                break (before, if before == NIL { after } else { self.nodes[before as usize].next });
            }
            if self.nodes[after as usize].task > task_id {
                break (self.nodes[after as usize].prev, after);
            }
            before = self.nodes[before as usize].prev;
            after = self.nodes[after as usize].next;
        };
        let node = TaskNode { task: task_id, entered_ms, next, prev, bundle };
        let at = match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        let g = &mut self.bundles[bundle as usize];
        g.n_tasks += 1;
        match prev {
            NIL => g.head = at,
            prev => self.nodes[prev as usize].next = at,
        }
        match next {
            NIL => g.tail = at,
            next => self.nodes[next as usize].prev = at,
        }
        let old = self.classes[class as usize].order.insert(task_id, at);
        assert!(old.is_none(), "task {task_id} entered twice");
        self.n_tasks += 1;
        self.count(bundle, 1, fact);
        (bundle, prev == NIL)
    }

    fn new_bundle(&mut self, class: u32, inputs: &[ObjectId]) -> u32 {
        let n_inputs = inputs.len() as u32;
        let unused = self.free_edges.get_mut(&n_inputs).and_then(Vec::pop);
        let first_edge = unused.unwrap_or_else(|| {
            let unset = Edge { object: ObjectId(0), reader_index: 0 };
            self.edges.resize(self.edges.len() + inputs.len(), unset);
            self.edges.len() as u32 - n_inputs
        });
        let g = Bundle { first_edge, n_inputs, n_tasks: 0, head: NIL, tail: NIL, class };
        let bundle = match self.free_bundles.pop() {
            Some(bundle) => {
                self.bundles[bundle as usize] = g;
                bundle
            }
            None => {
                self.bundles.push(g);
                self.bundles.len() as u32 - 1
            }
        };
        for (i, &object) in inputs.iter().enumerate() {
            let readers = self.readers.entry(object).or_default();
            let edge = first_edge + i as u32;
            self.edges[edge as usize] = Edge { object, reader_index: readers.list.len() as u32 };
            let other = if let [a, b] = inputs { a.0 ^ b.0 ^ object.0 } else { NIL };
            if readers.list.is_empty() {
                // Most objects have one reader.
                readers.list.reserve_exact(1);
            }
            readers.list.push(BundleReader { bundle, class, other, n_tasks: 0 });
        }
        if inputs.is_empty() {
            self.classes[class as usize].free = bundle;
        }
        let hash = hash_content(class, inputs.iter().copied());
        let (bundles, edges) = (&self.bundles, &self.edges);
        self.by_content.insert_unique(hash, bundle, |&g| {
            let g = &bundles[g as usize];
            let inputs = &edges[g.first_edge as usize..(g.first_edge + g.n_inputs) as usize];
            hash_content(g.class, inputs.iter().map(|e| e.object))
        });
        bundle
    }

    /// Takes a task out; `false`: the task was not in the queue.
    pub fn leave(&mut self, key: QueueKey, fact: impl Fn(ObjectId) -> (u64, Heat)) -> bool {
        let Some((class, at)) = self.find(key) else { return false };
        self.classes[class as usize].order.remove(&key.task);
        self.n_tasks -= 1;
        let TaskNode { next, prev, bundle, .. } = self.nodes[at as usize];
        self.free_nodes.push(at);
        self.count(bundle, -1, fact);
        let g = &mut self.bundles[bundle as usize];
        g.n_tasks -= 1;
        match prev {
            NIL => g.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => g.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        if self.bundles[bundle as usize].n_tasks == 0 {
            self.remove_bundle(bundle);
        }
        if self.classes[class as usize].order.is_empty() {
            self.class_order.retain(|c| *c != class);
        }
        true
    }

    fn remove_bundle(&mut self, bundle: u32) {
        let Bundle { first_edge, n_inputs, class, .. } = self.bundles[bundle as usize];
        let hash = hash_content(class, self.inputs(bundle).iter().map(|e| e.object));
        if let Ok(entry) = self.by_content.find_entry(hash, |g| *g == bundle) {
            entry.remove();
        }
        for edge in first_edge..first_edge + n_inputs {
            let Edge { object, reader_index } = self.edges[edge as usize];
            let readers = self.readers.get_mut(&object).expect("this bundle reads it");
            readers.list[reader_index as usize] = BundleReader::GAP;
            readers.n_gaps += 1;
            if readers.n_gaps as usize == readers.list.len() {
                self.readers.remove(&object);
            } else if readers.n_gaps as usize > readers.list.len() / 2 {
                readers.list.retain(|reader| reader.bundle != NIL);
                readers.n_gaps = 0;
                for (i, reader) in readers.list.iter().enumerate() {
                    let Bundle { first_edge, n_inputs, .. } = self.bundles[reader.bundle as usize];
                    let mut edges =
                        self.edges[first_edge as usize..(first_edge + n_inputs) as usize].iter_mut();
                    edges.find(|e| e.object == object).expect("it reads it").reader_index = i as u32;
                }
                readers.list.shrink_to(2 * readers.list.len());
            }
        }
        if n_inputs == 0 {
            self.classes[class as usize].free = NIL;
        } else {
            self.free_edges.entry(n_inputs).or_default().push(first_edge);
        }
        self.free_bundles.push(bundle);
    }

    /// Adds `by` tasks of `bundle` to the ranks of its inputs.
    fn count(&mut self, bundle: u32, by: i32, fact: impl Fn(ObjectId) -> (u64, Heat)) {
        let Bundle { first_edge, n_inputs, class, .. } = self.bundles[bundle as usize];
        let class = &mut self.classes[class as usize];
        let rank = if n_inputs == 1 { &mut class.single } else { &mut class.multi };
        for edge in &self.edges[first_edge as usize..(first_edge + n_inputs) as usize] {
            let (size_bytes, heat) = fact(edge.object);
            match u32::try_from(by) {
                Ok(by) => rank.add(edge.object, by, size_bytes, heat),
                Err(_) => {
                    let n_tasks = rank.get(edge.object).map_or(0, |entry| entry.n_tasks);
                    rank.set(edge.object, n_tasks.saturating_add_signed(by), size_bytes, heat);
                }
            }
            if n_inputs == 2 {
                let readers = self.readers.get_mut(&edge.object).expect("this bundle reads it");
                let n_tasks = &mut readers.list[edge.reader_index as usize].n_tasks;
                *n_tasks = n_tasks.saturating_add_signed(by);
            }
        }
    }

    /// The tasks of a bundle in queue order, with the times when they entered.
    pub fn tasks_of(&self, bundle: u32) -> Vec<(TaskId, u32)> {
        let mut tasks = vec![];
        let mut at = self.bundles[bundle as usize].head;
        while at != NIL {
            let node = &self.nodes[at as usize];
            tasks.push((node.task, node.entered_ms));
            at = node.next;
        }
        tasks
    }

    pub fn set_heat(&mut self, object: ObjectId, heat: Heat) {
        for &c in &self.class_order {
            let class = &mut self.classes[c as usize];
            class.single.set_heat(object, heat);
            class.multi.set_heat(object, heat);
        }
    }

    pub fn heap_bytes(&self) -> usize {
        let orders: usize = self.classes.iter().map(|c| c.order.len() * 20).sum();
        let ranks: usize = self.classes.iter().map(|c| c.single.heap_bytes() + c.multi.heap_bytes()).sum();
        let lists: usize = self.readers.values().map(|r| r.list.capacity() * size_of::<BundleReader>()).sum();
        self.nodes.capacity() * size_of::<TaskNode>()
            + (self.free_nodes.capacity() + self.free_bundles.capacity()) * 4
            + self.bundles.capacity() * size_of::<Bundle>()
            + self.by_content.allocation_size()
            + self.edges.capacity() * size_of::<Edge>()
            + self.readers.capacity() * size_of::<(ObjectId, Readers)>()
            + lists
            + orders
            + ranks
    }

    /// Panics when an invariant of the header does not hold.
    pub fn sanity_check(&self, heat_of: impl Fn(ObjectId) -> Heat) {
        let mut n_tasks = 0;
        let mut n_edges = 0;
        let mut seen = std::collections::BTreeSet::new();
        for &c in &self.class_order {
            let class = &self.classes[c as usize];
            assert!(!class.order.is_empty());
            let mut counts = [BTreeMap::new(), BTreeMap::new()];
            for (&task, &node) in &class.order {
                let bundle = self.nodes[node as usize].bundle;
                assert_eq!((self.nodes[node as usize].task, self.bundle(bundle).class), (task, c));
                n_tasks += 1;
                for edge in self.inputs(bundle) {
                    let rank = &mut counts[usize::from(self.bundle(bundle).n_inputs > 1)];
                    rank.entry(edge.object).or_insert((0, heat_of(edge.object))).0 += 1;
                }
                if !seen.insert(bundle) {
                    continue;
                }
                let of_bundle = self.tasks_of(bundle);
                assert!(of_bundle.is_sorted_by(|a, b| a.0 < b.0));
                assert_eq!(of_bundle.len(), self.bundle(bundle).n_tasks as usize);
                let inputs: Vec<ObjectId> = self.inputs(bundle).iter().map(|e| e.object).collect();
                assert_eq!(self.find_bundle(c, &inputs), Some(bundle));
                assert_eq!(class.free == bundle, inputs.is_empty());
                for edge in self.inputs(bundle) {
                    let at = self.readers(edge.object)[edge.reader_index as usize];
                    assert_eq!((at.bundle, at.class), (bundle, c));
                    let other = inputs.iter().copied().find(|o| *o != edge.object && inputs.len() == 2);
                    assert_eq!(at.sole_other(), other.map(|o| (o, self.bundle(bundle).n_tasks)));
                    n_edges += 1;
                }
            }
            assert_eq!(
                [class.single.sanity_check(), class.multi.sanity_check()],
                counts,
                "ranks of class {c}"
            );
        }
        assert_eq!((n_tasks, seen.len()), (self.n_tasks, self.by_content.len()));
        assert_eq!(n_edges, self.readers.keys().map(|o| self.n_readers(*o)).sum::<usize>());
        assert!(self.readers.keys().all(|o| self.n_readers(*o) > 0));
        let gaps = |r: &Readers| r.list.iter().filter(|reader| reader.bundle == NIL).count();
        assert!(self.readers.values().all(|r| gaps(r) == r.n_gaps as usize));
    }
}
