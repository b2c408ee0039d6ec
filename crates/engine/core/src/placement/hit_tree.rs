//! An ordered set of ready tasks that answers "which is the first task with this many files on that
//! executor?" in logarithmic time.
//!
//! In: tasks with rows that say which executor holds how many of their inputs, and changes of single
//! replicas. Out: the first task after a key that has a given bit.
//!
//! A task of a tree with `L` levels has `2L - 1` *planes*, each a row of one bit per [`Seat`]:
//!   - `at_least(l)`: its inputs are cached there to level `l` or more, `1 <= l <= L`, level `L` is all of them;
//!   - `best(l)`: no executor has more of its inputs, and this one is at level `l`. `best(L) = at_least(L)`.
//!
//! The tree is a treap in queue order; every node also keeps the OR of its subtree for each plane, so a search
//! walks straight down to the first task. Up to [`N_EXACT`] inputs a level is a number of inputs. Tasks with
//! more share a tree of [`N_EXACT`] levels in which level `l` is `l/8` of the inputs, and keep exact counts
//! beside, so that `best` is exact as well.
//!
//! Invariants, checked by `HitTree::sanity_check` in tests:
//!   1. in-order is queue order, parents have larger ranks than children;
//!   2. a node's subtree rows are the OR of its own rows and its children's subtree rows;
//!   3. the planes of a node follow from its counts of inputs by seat.
//!
//! Why not one ordered set per executor: an object on 300 executors would cost 300 insertions for each of its
//! readers; here it costs 5 words. Ranks are a hash of the task's number, so no randomness is needed and a
//! replay builds the same tree; the tree's shape never affects a result.

use super::QueueKey;
use crate::catalog::HoldersView;
use crate::executor_set::{Seat, SeatSet, has, seats_in};
use eyas_terms::ObjectId;
use eyas_terms::rng::Rng;
use std::ops::Range;

/// Up to this many inputs per task hits are compared exactly, beyond in fractions of this.
pub(super) const N_EXACT: usize = 8;
/// Trees are numbered by inputs per task: 0 to [`N_EXACT`], then one for all larger tasks.
pub(super) const N_CLASSES: usize = N_EXACT + 2;

pub(super) fn class_of(n_inputs: usize) -> usize {
    n_inputs.min(N_EXACT + 1)
}

pub(super) const NIL: u32 = u32::MAX;

/// One input of a task in the window.
pub(super) struct Input {
    pub object: ObjectId,
    /// Where this task is in the object's list of readers.
    pub reader_index: u32,
}

/// The fields that a walk through the tree reads, kept small for the processor's caches.
#[derive(Clone, Copy)]
struct TreeNode {
    key: QueueKey,
    up: u32,
    left: u32,
    right: u32,
    /// Inputs on the executor that has most of them; 0: no executor has any, the task is *cold*.
    most: u32,
    /// Some task of this subtree is cold.
    cold_below: bool,
}

/// The fields that are needed only when the task itself changes.
#[derive(Default)]
struct Detail {
    inputs: Box<[Input]>,
    /// Inputs by seat; only in the tree of large tasks.
    counts: Box<[u32]>,
}

/// What a search looks for.
#[derive(Clone, Copy)]
pub(super) enum Want {
    Any,
    Cold,
    /// The bit of the seat in a plane.
    Bit(usize, Seat),
}

pub(super) struct HitTree {
    /// 0 in the tree of tasks without inputs.
    n_levels: usize,
    exact: bool,
    /// Words per row.
    n_words: usize,
    nodes: Vec<TreeNode>,
    /// The further fields of the same nodes.
    details: Vec<Detail>,
    /// Rows of node `i`: its `n_planes * n_words` words start at `i` times that number.
    own: Vec<u64>,
    below: Vec<u64>,
    root: u32,
    /// The first task in queue order.
    head: u32,
    free: Vec<u32>,
    len: usize,
    scratch: Vec<u64>,
}

/// Spreads task numbers evenly.
fn rank_of(key: QueueKey) -> u64 {
    Rng::new(key.task.0).next_u64()
}

/// `rows[to..][..len] |= rows[from..][..len]`; the ranges do not overlap. Gives whether that changed
/// anything.
#[inline]
fn or_within(rows: &mut [u64], to: usize, from: usize, len: usize) -> bool {
    let (target, source) = if to < from {
        let (low, high) = rows.split_at_mut(from);
        (&mut low[to..to + len], &high[..len])
    } else {
        let (low, high) = rows.split_at_mut(to);
        (&mut high[..len], &low[from..from + len])
    };
    let mut news = 0;
    for (t, s) in target.iter_mut().zip(source) {
        news |= s & !*t;
        *t |= s;
    }
    news != 0
}

impl HitTree {
    pub fn new(class: usize, n_words: usize) -> HitTree {
        HitTree {
            n_levels: class.min(N_EXACT),
            exact: class <= N_EXACT,
            n_words,
            nodes: Vec::new(),
            details: Vec::new(),
            own: Vec::new(),
            below: Vec::new(),
            root: NIL,
            head: NIL,
            free: Vec::new(),
            len: 0,
            scratch: Vec::new(),
        }
    }

    #[inline]
    pub fn n_levels(&self) -> usize {
        self.n_levels
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn at_least(&self, level: usize) -> usize {
        level - 1
    }

    #[inline]
    pub fn best(&self, level: usize) -> usize {
        if level == self.n_levels { level - 1 } else { self.n_levels + level - 1 }
    }

    #[inline]
    fn n_planes(&self) -> usize {
        (2 * self.n_levels).saturating_sub(1)
    }

    /// Words of all planes of one node.
    #[inline]
    fn stride(&self) -> usize {
        self.n_planes() * self.n_words
    }

    #[inline]
    fn plane(&self, node: u32, plane: usize) -> Range<usize> {
        let start = node as usize * self.stride() + plane * self.n_words;
        start..start + self.n_words
    }

    #[inline]
    fn node(&self, i: u32) -> &TreeNode {
        &self.nodes[i as usize]
    }

    #[inline]
    fn node_mut(&mut self, i: u32) -> &mut TreeNode {
        &mut self.nodes[i as usize]
    }

    #[inline]
    pub fn key(&self, node: u32) -> QueueKey {
        self.node(node).key
    }

    pub fn inputs(&self, node: u32) -> &[Input] {
        &self.details[node as usize].inputs
    }

    pub fn input_mut(&mut self, node: u32, input: u32) -> &mut Input {
        &mut self.details[node as usize].inputs[input as usize]
    }

    /// Inputs on the executor that has most of them.
    pub fn most(&self, node: u32) -> u32 {
        self.node(node).most
    }

    /// The level that `count` inputs of `node` make.
    #[inline]
    pub fn level(&self, node: u32, count: u32) -> usize {
        if self.exact || count == 0 {
            return count as usize;
        }
        (N_EXACT * count as usize / self.inputs(node).len()).max(1)
    }

    /// Inputs of `node` that are cached on `seat`.
    #[inline]
    pub fn count(&self, node: u32, seat: Seat) -> u32 {
        if !self.exact {
            return self.details[node as usize].counts.get(seat.0 as usize).copied().unwrap_or(0);
        }
        (0..self.n_levels).take_while(|&p| has(&self.own[self.plane(node, p)], seat)).count() as u32
    }

    /// The seats that hold as many inputs of `node` as anyone; `None` for a cold task.
    pub fn best_row(&self, node: u32) -> Option<&[u64]> {
        let most = self.most(node);
        (most > 0).then(|| &self.own[self.plane(node, self.best(self.level(node, most)))])
    }

    /// The OR of `plane` over all tasks.
    pub fn all_row(&self, plane: usize) -> Option<&[u64]> {
        (self.root != NIL).then(|| &self.below[self.plane(self.root, plane)])
    }

    /// Calls `choose` with the seats that hold most inputs of `node`; as long as it refuses, with seats that
    /// hold fewer, down to one. `choose` must accept only seats of `allowed`.
    pub fn best_among(
        &self,
        node: u32,
        allowed: &[u64],
        choose: impl Fn(&[u64]) -> Option<Seat>,
    ) -> Option<Seat> {
        if let Some(seat) = self.best_row(node).and_then(&choose) {
            return Some(seat);
        }
        if self.exact {
            let most = self.most(node) as usize;
            return (0..most).rev().find_map(|p| choose(&self.own[self.plane(node, p)]));
        }
        let most = seats_in(allowed).map(|s| self.count(node, s)).max().filter(|most| *most > 0)?;
        let mut row = SeatSet::default();
        seats_in(allowed).filter(|s| self.count(node, *s) == most).for_each(|s| row.set(s, true));
        choose(row.words())
    }

    // ---- searching

    #[inline]
    fn own_has(&self, node: u32, want: Want) -> bool {
        match want {
            Want::Any => true,
            Want::Cold => self.node(node).most == 0,
            Want::Bit(plane, seat) => has(&self.own[self.plane(node, plane)], seat),
        }
    }

    #[inline]
    fn below_has(&self, node: u32, want: Want) -> bool {
        node != NIL
            && match want {
                Want::Any => true,
                Want::Cold => self.node(node).cold_below,
                Want::Bit(plane, seat) => has(&self.below[self.plane(node, plane)], seat),
            }
    }

    /// The first task in queue order that `want` holds for.
    #[inline]
    pub fn first(&self, want: Want) -> Option<u32> {
        if let Want::Any = want {
            return (self.head != NIL).then_some(self.head);
        }
        self.below_has(self.root, want).then(|| self.first_below(self.root, want))
    }

    /// `want` must hold for some task of the subtree.
    fn first_below(&self, mut node: u32, want: Want) -> u32 {
        loop {
            let TreeNode { left, right, .. } = *self.node(node);
            if self.below_has(left, want) {
                node = left;
            } else if self.own_has(node, want) {
                return node;
            } else {
                node = right;
            }
        }
    }

    /// The first task after `after` that `want` holds for.
    pub fn next(&self, after: QueueKey, want: Want) -> Option<u32> {
        let mut node = self.root;
        // Nodes after `after` that were passed on the way down, the first in queue order last.
        let mut passed: Vec<u32> = Vec::new();
        while self.below_has(node, want) {
            if self.key(node) > after {
                passed.push(node);
                node = self.node(node).left;
            } else {
                node = self.node(node).right;
            }
        }
        while let Some(node) = passed.pop() {
            let right = self.node(node).right;
            if self.own_has(node, want) {
                return Some(node);
            }
            if self.below_has(right, want) {
                return Some(self.first_below(right, want));
            }
        }
        None
    }

    /// The last task in queue order.
    pub fn last(&self) -> Option<u32> {
        let mut node = self.root;
        while node != NIL && self.node(node).right != NIL {
            node = self.node(node).right;
        }
        (node != NIL).then_some(node)
    }

    // ---- tasks come and go

    /// Adds a task. `holders` gives the holders of each input, in the order of `inputs`; seats outside
    /// `seated` do not count.
    pub fn insert<'a>(
        &mut self,
        key: QueueKey,
        inputs: Box<[Input]>,
        holders: impl Fn(ObjectId) -> HoldersView<'a>,
        seated: &[u64],
    ) -> u32 {
        let node = TreeNode { key, up: NIL, left: NIL, right: NIL, most: 0, cold_below: false };
        let detail = Detail { inputs, counts: Box::default() };
        let stride = self.stride();
        let i = match self.free.pop() {
            Some(i) => {
                self.nodes[i as usize] = node;
                self.details[i as usize] = detail;
                if stride > 0 {
                    self.own[i as usize * stride..][..stride].fill(0);
                }
                i
            }
            None => {
                self.nodes.push(node);
                self.details.push(detail);
                self.own.resize(self.nodes.len() * stride, 0);
                self.below.resize(self.nodes.len() * stride, 0);
                self.nodes.len() as u32 - 1
            }
        };
        self.len += 1;
        if self.exact {
            self.fill_exact(i, holders, seated);
        } else {
            self.fill_counted(i, holders, seated);
        }
        let at = i as usize * stride..(i as usize + 1) * stride;
        self.below[at.clone()].copy_from_slice(&self.own[at]);
        self.node_mut(i).cold_below = self.node(i).most == 0;
        self.attach(i);
        i
    }

    /// Each holder of an input moves up one level: a unary counter per seat, 64 seats at a time.
    fn fill_exact<'a>(&mut self, i: u32, holders: impl Fn(ObjectId) -> HoldersView<'a>, seated: &[u64]) {
        let (n_levels, n_words) = (self.n_levels, self.n_words);
        let start = i as usize * self.stride();
        let rows = &mut self.own[start..start + n_levels * n_words];
        let mut raise = |word: usize, mut bits: u64| {
            let mut level = 0;
            while bits != 0 && level < n_levels {
                let row = &mut rows[level * n_words + word];
                (*row, bits) = (*row | bits, *row & bits);
                level += 1;
            }
        };
        for input in &self.details[i as usize].inputs {
            match holders(input.object) {
                HoldersView::List(list) => {
                    for seat in list.iter().filter(|s| has(seated, **s)) {
                        raise(seat.0 as usize / 64, 1 << (seat.0 % 64));
                    }
                }
                HoldersView::Words(words) => {
                    for (word, (bits, here)) in words.iter().zip(seated).enumerate() {
                        raise(word, bits & here);
                    }
                }
            }
        }
        let most =
            (0..n_levels).take_while(|l| rows[l * n_words..][..n_words].iter().any(|w| *w != 0)).count();
        self.node_mut(i).most = most as u32;
        if 0 < most && most < n_levels {
            let (from, to) = (self.plane(i, self.at_least(most)), self.plane(i, self.best(most)));
            self.own.copy_within(from, to.start);
        }
    }

    fn fill_counted<'a>(&mut self, i: u32, holders: impl Fn(ObjectId) -> HoldersView<'a>, seated: &[u64]) {
        let mut counts = vec![0u32; self.n_words * 64].into_boxed_slice();
        for input in self.inputs(i) {
            match holders(input.object) {
                HoldersView::List(list) => {
                    list.iter().filter(|s| has(seated, **s)).for_each(|s| counts[s.0 as usize] += 1);
                }
                HoldersView::Words(words) => {
                    let words = words.iter().zip(seated).map(|(w, m)| w & m);
                    for (word, bits) in words.enumerate().filter(|(_, bits)| *bits != 0) {
                        seats_in(&[bits]).for_each(|s| counts[word * 64 + s.0 as usize] += 1);
                    }
                }
            }
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        for (seat, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for plane in 0..self.level(i, count) {
                self.set_own(i, plane, Seat(seat as u32));
            }
        }
        self.details[i as usize].counts = counts;
        self.node_mut(i).most = most;
        self.fill_best(i);
    }

    /// Writes the plane of the best executors from counts or levels; only its own row.
    fn fill_best(&mut self, i: u32) {
        let most = self.most(i);
        let level = self.level(i, most);
        if level == 0 || level == self.n_levels {
            return;
        }
        let to = self.plane(i, self.best(level));
        if self.exact {
            let from = self.plane(i, self.at_least(level));
            self.own.copy_within(from, to.start);
            return;
        }
        self.own[to].fill(0);
        let best = self.best(level);
        for seat in 0..self.n_words * 64 {
            if self.details[i as usize].counts[seat] == most {
                self.set_own(i, best, Seat(seat as u32));
            }
        }
    }

    #[inline]
    fn set_own(&mut self, i: u32, plane: usize, seat: Seat) {
        let start = self.plane(i, plane).start;
        self.own[start + seat.0 as usize / 64] |= 1 << (seat.0 % 64);
    }

    fn attach(&mut self, i: u32) {
        let key = self.key(i);
        if self.root == NIL {
            (self.root, self.head) = (i, i);
            return;
        }
        if key < self.key(self.head) {
            self.head = i;
        }
        let mut at = self.root;
        loop {
            let next = if key < self.node(at).key { self.node(at).left } else { self.node(at).right };
            if next == NIL {
                break;
            }
            at = next;
        }
        if key < self.node(at).key {
            self.node_mut(at).left = i;
        } else {
            self.node_mut(at).right = i;
        }
        self.node_mut(i).up = at;
        let (stride, cold) = (self.stride(), self.node(i).cold_below);
        while at != NIL {
            let news = or_within(&mut self.below, at as usize * stride, i as usize * stride, stride);
            let node = self.node_mut(at);
            if !news && node.cold_below >= cold {
                // Then nothing changes further up either.
                break;
            }
            node.cold_below |= cold;
            at = node.up;
        }
        let rank = rank_of(key);
        while self.node(i).up != NIL && rank_of(self.key(self.node(i).up)) < rank {
            let p = self.rotate_up(i);
            // The subtree is the same as it was below the old parent.
            let from = p as usize * stride;
            self.below.copy_within(from..from + stride, i as usize * stride);
            self.node_mut(i).cold_below = self.node(p).cold_below;
            self.refresh(p);
        }
        if self.node(i).up == NIL {
            self.root = i;
        }
    }

    /// `x` takes its parent's place, which becomes its child. Gives the parent. Subtree rows are not touched.
    fn rotate_up(&mut self, x: u32) -> u32 {
        let p = self.node(x).up;
        let g = self.node(p).up;
        let inner;
        if self.node(p).left == x {
            inner = self.node(x).right;
            self.node_mut(p).left = inner;
            self.node_mut(x).right = p;
        } else {
            inner = self.node(x).left;
            self.node_mut(p).right = inner;
            self.node_mut(x).left = p;
        }
        if inner != NIL {
            self.node_mut(inner).up = p;
        }
        self.node_mut(p).up = x;
        self.node_mut(x).up = g;
        self.replace_child(g, p, x);
        p
    }

    fn replace_child(&mut self, parent: u32, old: u32, new: u32) {
        if parent == NIL {
            self.root = new;
        } else if self.node(parent).left == old {
            self.node_mut(parent).left = new;
        } else {
            self.node_mut(parent).right = new;
        }
    }

    /// Subtree rows of `i` from its own and its children's; whether anything changed.
    ///
    /// Rows without words are not compared, and are not filled in [`Self::insert`]: the C library asks a processor with AVX-512
    /// for no bytes at the address of an empty vector, where there is no memory, and that takes longer than all else here.
    fn refresh(&mut self, i: u32) -> bool {
        let stride = self.stride();
        let at = i as usize * stride..(i as usize + 1) * stride;
        let TreeNode { left, right, most, cold_below, .. } = *self.node(i);
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.own[at.clone()]);
        let mut cold = most == 0;
        for child in [left, right] {
            if child != NIL {
                let rows = &self.below[child as usize * stride..][..stride];
                for (t, s) in self.scratch.iter_mut().zip(rows) {
                    *t |= s;
                }
                cold |= self.node(child).cold_below;
            }
        }
        let changed = cold != cold_below || stride > 0 && self.below[at.clone()] != *self.scratch;
        if changed {
            self.below[at].copy_from_slice(&self.scratch);
            self.node_mut(i).cold_below = cold;
        }
        changed
    }

    /// Takes a task out; gives its inputs.
    pub fn remove(&mut self, i: u32) -> Box<[Input]> {
        if i == self.head {
            // Nothing is to its left, so what follows is below on the right or its parent.
            let TreeNode { mut right, up, .. } = *self.node(i);
            self.head = up;
            while right != NIL {
                (self.head, right) = (right, self.node(right).left);
            }
        }
        // Down to at most one child, which then takes its place.
        let mut n_rotated = 0;
        let (only, up) = loop {
            let TreeNode { left, right, up, .. } = *self.node(i);
            match (left, right) {
                (NIL, only) | (only, NIL) => break (only, up),
                _ => {
                    let left_first = rank_of(self.key(left)) > rank_of(self.key(right));
                    self.rotate_up(if left_first { left } else { right });
                    n_rotated += 1;
                }
            }
        };
        if only != NIL {
            self.node_mut(only).up = up;
        }
        self.replace_child(up, i, only);
        // The rotated nodes have new subtrees in any case; further up, a row may turn out to be as before.
        let mut at = up;
        for _ in 0..n_rotated {
            self.refresh(at);
            at = self.node(at).up;
        }
        while at != NIL && self.refresh(at) {
            at = self.node(at).up;
        }
        self.free.push(i);
        self.len -= 1;
        std::mem::take(&mut self.details[i as usize]).inputs
    }

    // ---- replicas come and go

    /// One input of `i` appeared on `seat` (`appeared`) or vanished from it.
    pub fn replica_changed(&mut self, i: u32, seat: Seat, appeared: bool) {
        let old = self.count(i, seat);
        let new = if appeared { old + 1 } else { old - 1 };
        if !self.exact {
            self.details[i as usize].counts[seat.0 as usize] = new;
        }
        let (old_level, new_level) = (self.level(i, old), self.level(i, new));
        let most = self.most(i);
        let most_level = self.level(i, most);
        if new_level > old_level {
            self.set_bit(i, self.at_least(new_level), seat);
        } else if new_level < old_level {
            self.clear_bit(i, self.at_least(old_level), seat);
        }
        if appeared && new > most {
            if most > 0 && most_level < self.n_levels {
                self.clear_plane(i, self.best(most_level));
            }
            self.node_mut(i).most = new;
            if new_level < self.n_levels {
                self.set_bit(i, self.best(new_level), seat);
            }
            if most == 0 {
                self.refresh_cold(i);
            }
        } else if appeared && new == most && new_level < self.n_levels {
            self.set_bit(i, self.best(new_level), seat);
        } else if !appeared && old == most {
            if old_level < self.n_levels {
                self.clear_bit(i, self.best(old_level), seat);
            }
            let rest = self.plane(i, self.best(old_level));
            if self.own[rest].iter().all(|w| *w == 0) {
                // No executor has as many any more; `seat` itself has one less.
                self.node_mut(i).most = new;
                if new == 0 {
                    self.refresh_cold(i);
                } else if new_level < self.n_levels {
                    self.fill_best(i);
                    self.refresh_plane(i, self.best(new_level));
                }
            }
        }
    }

    fn set_bit(&mut self, i: u32, plane: usize, seat: Seat) {
        self.set_own(i, plane, seat);
        let (word, bit) = (seat.0 as usize / 64, 1u64 << (seat.0 % 64));
        let mut at = i;
        while at != NIL {
            let below = self.plane(at, plane).start + word;
            if self.below[below] & bit != 0 {
                return;
            }
            self.below[below] |= bit;
            at = self.node(at).up;
        }
    }

    fn clear_bit(&mut self, i: u32, plane: usize, seat: Seat) {
        let (word, bit) = (seat.0 as usize / 64, 1u64 << (seat.0 % 64));
        let own = self.plane(i, plane).start + word;
        self.own[own] &= !bit;
        let want = Want::Bit(plane, seat);
        let mut at = i;
        while at != NIL {
            let TreeNode { left, right, up, .. } = *self.node(at);
            if self.own_has(at, want) || self.below_has(left, want) || self.below_has(right, want) {
                return;
            }
            let below = self.plane(at, plane).start + word;
            self.below[below] &= !bit;
            at = up;
        }
    }

    fn clear_plane(&mut self, i: u32, plane: usize) {
        let own = self.plane(i, plane);
        self.own[own].fill(0);
        self.refresh_plane(i, plane);
    }

    /// Subtree rows of one plane, from `i` upwards.
    fn refresh_plane(&mut self, i: u32, plane: usize) {
        let mut at = i;
        while at != NIL {
            let TreeNode { left, right, up, .. } = *self.node(at);
            let row = self.plane(at, plane);
            self.scratch.clear();
            self.scratch.extend_from_slice(&self.own[row.clone()]);
            for child in [left, right] {
                if child != NIL {
                    let below = self.plane(child, plane);
                    for (t, s) in self.scratch.iter_mut().zip(&self.below[below]) {
                        *t |= s;
                    }
                }
            }
            if self.below[row.clone()] == *self.scratch {
                return;
            }
            self.below[row].copy_from_slice(&self.scratch);
            at = up;
        }
    }

    fn refresh_cold(&mut self, i: u32) {
        let mut at = i;
        while at != NIL {
            let TreeNode { left, right, up, most, cold_below, .. } = *self.node(at);
            let below = |child: u32| child != NIL && self.node(child).cold_below;
            let cold = most == 0 || below(left) || below(right);
            if cold == cold_below {
                return;
            }
            self.node_mut(at).cold_below = cold;
            at = up;
        }
    }

    /// Makes room for seats below `64 * n_words`.
    pub fn grow(&mut self, n_words: usize) {
        let (old, n_rows) = (self.n_words, self.nodes.len() * self.n_planes());
        let widen = |rows: &[u64]| {
            let mut wide = vec![0; n_rows * n_words];
            for row in 0..n_rows {
                wide[row * n_words..][..old].copy_from_slice(&rows[row * old..][..old]);
            }
            wide
        };
        (self.own, self.below) = (widen(&self.own), widen(&self.below));
        self.n_words = n_words;
        for detail in self.details.iter_mut().filter(|d| !d.counts.is_empty()) {
            let mut counts = std::mem::take(&mut detail.counts).into_vec();
            counts.resize(n_words * 64, 0);
            detail.counts = counts.into_boxed_slice();
        }
    }

    pub fn heap_bytes(&self) -> usize {
        let of_detail = |d: &Detail| d.inputs.len() * size_of::<Input>() + d.counts.len() * 4;
        (self.own.capacity() + self.below.capacity() + self.scratch.capacity()) * 8
            + self.nodes.capacity() * size_of::<TreeNode>()
            + self.details.capacity() * size_of::<Detail>()
            + self.details.iter().map(of_detail).sum::<usize>()
            + self.free.capacity() * 4
    }

    /// Panics when an invariant of the module's header does not hold. `count` recomputes how many of a task's
    /// inputs a seat holds.
    pub fn sanity_check(&self, count: impl Fn(&[Input], Seat) -> u32) {
        let mut seen = Vec::new();
        self.check_below(self.root, NIL, &mut seen);
        assert_eq!(seen.len(), self.len);
        assert_eq!(seen.first().copied().unwrap_or(NIL), self.head);
        assert_eq!(seen.len() + self.free.len(), self.nodes.len());
        assert!(seen.is_sorted_by(|a, b| self.key(*a) < self.key(*b)));
        for &i in &seen {
            let counts: Vec<u32> =
                (0..self.n_words as u32 * 64).map(|s| count(self.inputs(i), Seat(s))).collect();
            let most = counts.iter().copied().max().unwrap_or(0);
            assert_eq!(self.most(i), most);
            for (seat, &count) in counts.iter().enumerate() {
                let seat = Seat(seat as u32);
                assert_eq!(self.count(i, seat), count, "{:?} {seat:?}", self.key(i));
                let level = self.level(i, count);
                for l in 1..=self.n_levels {
                    let bit = |plane: usize| has(&self.own[self.plane(i, plane)], seat);
                    assert_eq!(bit(self.at_least(l)), level >= l, "{:?} {seat:?} {l}", self.key(i));
                    if l < self.n_levels {
                        let best = count > 0 && count == most && level == l;
                        assert_eq!(bit(self.best(l)), best, "{:?} {seat:?} {l}", self.key(i));
                    }
                }
            }
        }
    }

    fn check_below(&self, i: u32, up: u32, seen: &mut Vec<u32>) {
        if i == NIL {
            return;
        }
        let TreeNode { key, left, right, most, cold_below, .. } = *self.node(i);
        assert_eq!(self.node(i).up, up);
        assert!(up == NIL || rank_of(self.key(up)) >= rank_of(key));
        self.check_below(left, i, seen);
        seen.push(i);
        self.check_below(right, i, seen);
        let below = |child: u32| child != NIL && self.node(child).cold_below;
        assert_eq!(cold_below, most == 0 || below(left) || below(right));
        for plane in 0..self.n_planes() {
            for (word, at) in self.plane(i, plane).enumerate() {
                let child = |c: u32| if c == NIL { 0 } else { self.below[self.plane(c, plane).start + word] };
                assert_eq!(self.below[at], self.own[at] | child(left) | child(right));
            }
        }
    }
}
