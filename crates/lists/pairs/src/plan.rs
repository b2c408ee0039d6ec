//! All-Pairs: which pairs go into one task.
//!
//! Source: `Miceli10` §3. All-Pairs applies a function to every pair of an item of set A and an item of set B (equation 3.1:
//! `P[i][j] = f(A[i], B[j])`). The paper sees a two-level assignment: first, which pairs go into an *assignment set*, and second,
//! which node computes that set. This module decides the first; an assignment set is called a [`Tile`] here, and each tile becomes
//! one task. The second is the placement of tasks, which other tasks have too (`eyas_core::placement`).
//!
//! In: the sizes of all items and what is known of the machine. Out: tiles in the order in which they are queued.
//!
//! How tiles are chosen ([`plan`]), here in blocks, and within each block in `steps`:
//!   1. The matrix is halved again and again into *blocks* of equal numbers of pairs, each time across the side that leaves the
//!      fewer bytes to read, until there is a block for each slot. So blocks are nearly square, and a node reads few items:
//!      for 4 slots and 40 × 40 items each slot needs 20 + 20 items. This works for any number of slots.
//!      Where a set is compared with itself, the pairs (i, j) and (j, i) read the same items. So half of the matrix is divided, and
//!      each block gets its mirror image: for 4 slots and 40 items the blocks read 100 items in place of 120.
//!   2. Blocks are halved further while their items do not fit a slot's part of the cache, while they take longer than
//!      [`Machine::tile_ns_max`], or while they have more pairs than one result should hold.
//!   3. The last block of each slot keeps a quarter of its pairs back, as small tiles that read nothing beyond what the block reads.
//!      They have a lower priority than all blocks. A slot that is done early takes small tiles of others, so the end of the run waits
//!      for a small tile and not for a block.
//!   4. The first block of each slot begins with a part of it, its *opening*. The openings of all slots have no item in common as
//!      far as possible, so together they fetch each item from home once and all at the same time; what a block reads beyond
//!      its opening comes from other nodes while openings are computed. Where an opening is small beside its block, a tile of
//!      middle size comes between them, for the same reason.
//!
//! The paper's chunk size `c_s` by hand gives a plain grid instead ([`grid`]), and its assignments by hand a tile for each
//! ([`by_hand`]); these compute the pairs that they name, and no others.
//!
//! Invariants, which the tests compare with a plain double loop:
//!   1. every pair that the shape asks for is in exactly one tile, and no other pair is in any;
//!   2. the items of a tile fit [`Machine::tile_bytes_max`] of the number of blocks that was chosen;
//!   3. the same input gives the same tiles on every machine.
//!
//! The plan assumes that all pairs take about the same time and that nodes are alike. Not here: how a tile is computed, and where
//! its result goes.

mod shape;
mod steps;

pub use shape::{Item, Rect, Shape, Sizes};

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs that are computed by one task, as rectangles of the matrix that have no pair in common.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tile {
    pub rects: Vec<Rect>,
}

impl Tile {
    pub fn n_pairs(&self, shape: Shape) -> u64 {
        self.rects.iter().map(|rect| rect.n_pairs(shape)).sum()
    }

    /// The items that the tile reads, each once: those of set A first, in order of their numbers.
    pub fn items(&self, shape: Shape) -> Vec<Item> {
        let mut items: Vec<Item> = self.rects.iter().flat_map(|rect| rect.items(shape)).collect();
        items.sort_unstable();
        items.dedup();
        items
    }

    /// The pairs of the tile, as row and column, row by row in each rectangle.
    pub fn pairs(&self, shape: Shape) -> impl Iterator<Item = (u32, u32)> {
        self.rects.iter().flat_map(move |rect| rect.pairs(shape))
    }
}

/// All pairs of a matrix, in tiles.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tiling {
    /// In the order of their kinds.
    pub tiles: Vec<Tile>,
    /// The number of tiles of each kind.
    pub n_of: Kinds<usize>,
}

/// Something for each kind of tile, in the order in which tiles are given out. Placement must not begin with a small tile on a node
/// that then computes another tile's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kinds<T> {
    pub opening: T,
    pub middle: T,
    pub block: T,
    /// Where slots have several blocks one after the other, what the last of them has.
    pub late: T,
    pub small: T,
}

impl Tiling {
    fn new(tiles: Kinds<Vec<Tile>>) -> Tiling {
        let Kinds { opening, middle, block, late, small } = tiles;
        let n_of = Kinds {
            opening: opening.len(),
            middle: middle.len(),
            block: block.len(),
            late: late.len(),
            small: small.len(),
        };
        Tiling { tiles: [opening, middle, block, late, small].into_iter().flatten().collect(), n_of }
    }

    /// The priority of the task of tile `n`. That of what comes last is below that of other tasks, so that no other run has to wait
    /// for a whole matrix. That of openings and of tiles of middle size is above it: they are few and short.
    pub fn priority(&self, n: usize) -> i32 {
        let Kinds { opening, middle, block, late, .. } = self.n_of;
        let mut end = 0;
        let ends = [(opening, 2), (middle, 1), (block, 0), (late, -1)].map(|(n_tiles, priority)| {
            end += n_tiles;
            (end, priority)
        });
        ends.into_iter().find(|(end, _)| n < *end).map_or(-2, |(_, priority)| priority)
    }
}

/// What tiles are chosen by.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// At least 1.
    pub n_nodes: u32,
    /// Slots of each node, at least 1.
    pub n_slots: u32,
    /// The budget of each node's cache.
    pub cache_bytes: u64,
    /// How long the program takes for one pair: measured, or assumed ([`PAIR_NS_ASSUMED`]).
    pub pair_ns: u64,
    /// No tile takes longer, as what a tile has done is lost with its node.
    pub tile_ns_max: u64,
}

/// The time of a pair where nothing is known.
pub const PAIR_NS_ASSUMED: u64 = 100_000_000;
/// The usual [`Machine::tile_ns_max`].
pub const TILE_NS_MAX: u64 = 600_000_000_000;
/// A tile's result is read at once by whoever collects it.
const TILE_PAIRS_MAX: u64 = 400_000;
/// Tiles read at most so many items in total (an item counts for each tile that reads it), because the queue holds the name of each.
/// Larger tiles have fewer: `p` pairs in `t` square tiles read `2 √(p t)` items.
const ITEMS_QUEUED_MAX: u64 = 400_000;
/// What a task costs beside its program: a slot's work, messages, links to inputs.
const TASK_NS: u64 = 3_000_000;
/// A small tile takes so many times what its task costs besides.
const WORTH_A_TASK: u64 = 20;
/// The part of a block that is kept back for the end, and the part of a block that a small tile has.
const KEPT_BACK: u32 = 4;
const SMALL_PART: u64 = 64;

impl Machine {
    fn n_slots_total(&self) -> u64 {
        u64::from(self.n_nodes.max(1)) * u64::from(self.n_slots.max(1))
    }

    /// The most bytes that a tile's items may have, where the slots have one tile each, or several one after the other. In the
    /// latter case the next tile's items are fetched while the present tile is computed, and need room as well.
    pub fn tile_bytes_max(&self, is_only_one: bool) -> u64 {
        let of_slot = self.cache_bytes / u64::from(self.n_slots.max(1));
        if is_only_one { of_slot } else { of_slot / 2 }
    }

    fn tile_pairs_max(&self, n_pairs: u64) -> u64 {
        let by_time = (self.tile_ns_max / self.pair_ns.max(1)).max(1);
        let n_tiles = ((ITEMS_QUEUED_MAX / 2).pow(2) / n_pairs.max(1)).max(1);
        by_time.max(n_pairs.div_ceil(n_tiles)).min(TILE_PAIRS_MAX)
    }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The set has no items.
    Empty { is_first: bool },
    /// A pair of these two items does not fit a node's cache.
    TooLarge { row: u32, column: u32, bytes: u64, cache_bytes: u64 },
    /// A tile of the chunk size that was given does not fit a node's cache.
    ChunkTooLarge { bytes: u64, cache_bytes: u64 },
    /// The sets have more pairs than can be counted here.
    TooMany,
}

/// Why there is no tile for each assignment of a user. Assignments are numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefusedAssignment {
    Sets(Refusal),
    /// Two assignments have this pair.
    Twice {
        row: u32,
        column: u32,
        first: usize,
        second: usize,
    },
    /// The items of an assignment do not fit a node's cache.
    TooLarge {
        n: usize,
        bytes: u64,
        cache_bytes: u64,
    },
}

/// Some pairs of a matrix, each once.
#[derive(Clone, Debug)]
pub struct Pairs {
    shape: Shape,
    pairs: BTreeSet<(u32, u32)>,
}

impl Pairs {
    pub fn new(shape: Shape) -> Pairs {
        Pairs { shape, pairs: BTreeSet::new() }
    }

    /// Where the order of a pair's items does not matter, the pair is the one that the matrix has.
    pub fn add(&mut self, row: u32, column: u32) {
        let is_turned = self.shape == Shape::Half && row > column;
        self.pairs.insert(if is_turned { (column, row) } else { (row, column) });
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The same pairs as rectangles: neighbouring columns of a row are one, and so are neighbouring rows with the same columns.
    fn rects(&self) -> Vec<Rect> {
        let mut done: Vec<Rect> = vec![];
        // The rectangles that the last row has a part of, by their columns.
        let mut open: BTreeMap<(u32, u32), Rect> = BTreeMap::new();
        let mut pairs = self.pairs.iter().copied().peekable();
        while let Some((row, first)) = pairs.next() {
            let mut columns = vec![(first, first + 1)];
            while let Some((_, column)) = pairs.next_if(|(next, _)| *next == row) {
                match columns.last_mut() {
                    Some(last) if last.1 == column => last.1 += 1,
                    _ => columns.push((column, column + 1)),
                }
            }
            let mut now = BTreeMap::new();
            for columns in columns {
                let above = open.get(&columns).filter(|rect| rect.rows.1 == row).map(|rect| rect.rows.0);
                if above.is_some() {
                    open.remove(&columns);
                }
                let first = above.unwrap_or(row);
                now.insert(columns, Rect { rows: (first, row + 1), columns });
            }
            done.extend(open.into_values());
            open = now;
        }
        done.extend(open.into_values());
        done
    }
}

/// Chooses tiles for a matrix; see the module's header.
pub fn plan(sizes: &Sizes, machine: &Machine) -> Result<Tiling, Refusal> {
    let (whole, n_pairs) = check(sizes)?;
    let shape = sizes.shape();
    let both_ns = machine.pair_ns.saturating_mul(2);
    if shape == Shape::Own && both_ns <= machine.tile_ns_max {
        return plan_folded(sizes, &Machine { pair_ns: both_ns, ..machine.clone() });
    }
    let n_slots = machine.n_slots_total();
    let n_by_pairs = n_pairs.div_ceil(machine.tile_pairs_max(n_pairs));
    // Each slot gets the same number of blocks.
    let mut n_blocks = n_slots * evened(n_by_pairs.div_ceil(n_slots).max(1));
    let blocks = loop {
        let blocks = divide(sizes, whole, n_blocks);
        let limit = machine.tile_bytes_max(blocks.len() as u64 <= n_slots);
        let n_too_large = blocks.iter().filter(|block| sizes.bytes(**block) > limit).count() as u64;
        if n_too_large == 0 || blocks.len() as u64 == n_pairs {
            break blocks;
        }
        let more = (n_blocks + n_too_large.max(n_blocks / 4)).next_multiple_of(n_slots).min(n_pairs);
        if more <= n_blocks {
            break blocks;
        }
        n_blocks = more;
    };
    let limit = machine.tile_bytes_max(blocks.len() as u64 <= n_slots);
    let mut fitting = vec![];
    for block in blocks {
        fit(sizes, block, limit, machine.cache_bytes, &mut fitting)?;
    }
    let mut kinds = Kinds::<Vec<Tile>>::default();
    if n_slots == 1 {
        kinds.block = fitting.into_iter().map(|rect| Tile { rects: vec![rect] }).collect();
        return Ok(Tiling::new(kinds));
    }
    let n = fitting.len() as u64;
    // The blocks of slot `s` are those from the `s`-th of `n_slots` equal parts of the list, which are neighbours.
    let first_of = |slot: u64| (slot * n / n_slots) as usize;
    let firsts: BTreeSet<usize> = (0..n_slots).map(first_of).collect();
    let lasts: BTreeSet<usize> = (1..=n_slots).map(|slot| first_of(slot).saturating_sub(1)).collect();
    let mut openings = steps::openings(sizes, &fitting, &firsts);
    for (at, block) in fitting.into_iter().enumerate() {
        let opening = openings.remove(&at).filter(|_| is_worth(machine, block.n_pairs(shape)));
        let last = lasts.contains(&at).then_some(steps::Last { is_only: n <= n_slots });
        steps::add_block(sizes, machine, block, opening, last, &mut kinds);
    }
    Ok(Tiling::new(kinds))
}

/// A plan for one set with itself in which the pairs `(i, j)` and `(j, i)` are in the same tile, because they read the same items: a
/// plan of half of the matrix, each tile with its mirror image. `machine` has the time of both pairs.
fn plan_folded(sizes: &Sizes, machine: &Machine) -> Result<Tiling, Refusal> {
    let Tiling { tiles, n_of } = plan(&sizes.folded(), machine)?;
    let unfolded = |tile: Tile| Tile { rects: tile.rects.into_iter().flat_map(Rect::unfolded).collect() };
    Ok(Tiling { tiles: tiles.into_iter().map(unfolded).collect(), n_of })
}

/// A number of blocks for each slot that is about `n`. Where there are many, it is a power of two, so that halving gives few
/// different shapes: tasks of one shape share a template, and cost the queue a third of what others cost.
fn evened(n: u64) -> u64 {
    const MANY: u64 = 8;
    match n {
        ..MANY => n,
        _ if n.next_power_of_two() * 5 >= n * 6 => n.next_power_of_two() / 2,
        _ => n.next_power_of_two(),
    }
}

/// Whether so many pairs take long enough to be divided into several tasks.
fn is_worth(machine: &Machine, n_pairs: u64) -> bool {
    n_pairs.saturating_mul(machine.pair_ns) >= WORTH_A_TASK * TASK_NS * u64::from(KEPT_BACK)
}

/// How many items of each set a tile of a plain grid has, each at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub rows: u32,
    pub columns: u32,
}

impl Chunk {
    /// The parts of a side of `whole` items that are `step` long; the last one may be shorter.
    fn parts(whole: u32, step: u32) -> impl Iterator<Item = (u32, u32)> {
        let step = step.max(1);
        (0..whole).step_by(step as usize).map(move |start| (start, start.saturating_add(step).min(whole)))
    }
}

/// Tiles of the size of `chunk`, at the edges of fewer items, row by row.
pub fn grid(sizes: &Sizes, chunk: Chunk, machine: &Machine) -> Result<Tiling, Refusal> {
    let (whole, _) = check(sizes)?;
    let shape = sizes.shape();
    let mut tiles = vec![];
    for rows in Chunk::parts(whole.rows.1, chunk.rows) {
        for columns in Chunk::parts(whole.columns.1, chunk.columns) {
            let rect = Rect { rows, columns }.trimmed(shape);
            if rect.n_pairs(shape) == 0 {
                continue;
            }
            let bytes = sizes.bytes(rect);
            if bytes > machine.cache_bytes {
                return Err(Refusal::ChunkTooLarge { bytes, cache_bytes: machine.cache_bytes });
            }
            tiles.push(Tile { rects: vec![rect] });
        }
    }
    Ok(Tiling::new(Kinds { block: tiles, ..Kinds::default() }))
}

/// A tile for each of `assignments`, in their order: what they have is computed, and nothing else.
pub fn by_hand(
    sizes: &Sizes,
    assignments: Vec<Pairs>,
    cache_bytes: u64,
) -> Result<Tiling, RefusedAssignment> {
    check(sizes).map_err(RefusedAssignment::Sets)?;
    let mut first_of: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut tiles = vec![];
    for (n, assignment) in assignments.into_iter().enumerate() {
        for (row, column) in &assignment.pairs {
            if let Some(first) = first_of.insert((*row, *column), n) {
                return Err(RefusedAssignment::Twice { row: *row, column: *column, first, second: n });
            }
        }
        let tile = Tile { rects: assignment.rects() };
        let bytes = tile.items(sizes.shape()).into_iter().map(|item| sizes.of(item)).sum();
        if bytes > cache_bytes {
            return Err(RefusedAssignment::TooLarge { n, bytes, cache_bytes });
        }
        tiles.push(tile);
    }
    Ok(Tiling::new(Kinds { block: tiles, ..Kinds::default() }))
}

fn check(sizes: &Sizes) -> Result<(Rect, u64), Refusal> {
    let whole = sizes.whole();
    if whole.rows.1 == 0 || whole.columns.1 == 0 {
        return Err(Refusal::Empty { is_first: whole.rows.1 == 0 });
    }
    let n_pairs = whole.n_pairs(sizes.shape());
    // Below this, all products here fit 64 bits.
    if n_pairs > 1 << 52 {
        return Err(Refusal::TooMany);
    }
    Ok((whole, n_pairs))
}

/// `rect` in `n` parts of about equal numbers of pairs, neighbours in order; in fewer where there are not so many pairs.
fn divide(sizes: &Sizes, rect: Rect, n: u64) -> Vec<Rect> {
    let mut parts = vec![];
    divide_into(sizes, rect.trimmed(sizes.shape()), n, &mut parts);
    parts
}

fn divide_into(sizes: &Sizes, rect: Rect, n: u64, parts: &mut Vec<Rect>) {
    let pairs = rect.n_pairs(sizes.shape());
    if pairs == 0 {
        return;
    }
    let n = n.min(pairs);
    let halves = if n > 1 { halve(sizes, rect, n / 2, n) } else { None };
    match halves {
        None => parts.push(rect),
        Some([first, second]) => {
            divide_into(sizes, first, n / 2, parts);
            divide_into(sizes, second, n - n / 2, parts);
        }
    }
}

/// Cuts `rect` so that the first part has about `n_first` of `n` parts of its pairs, across the side that leaves the fewer bytes to
/// the two parts together.
fn halve(sizes: &Sizes, rect: Rect, n_first: u64, n: u64) -> Option<[Rect; 2]> {
    let shape = sizes.shape();
    let goal = (u128::from(rect.n_pairs(shape)) * u128::from(n_first) / u128::from(n)) as u64;
    let cuts = [rect.cut_rows(shape, goal), rect.cut_columns(shape, goal)];
    let cost = |parts: &[Rect; 2]| {
        // What is furthest from the goal comes last: an uneven cut costs more than bytes do.
        let off = parts[0].n_pairs(shape).abs_diff(goal);
        let is_uneven = off * 4 > rect.n_pairs(shape) / n;
        (is_uneven, sizes.bytes(parts[0]) + sizes.bytes(parts[1]), off)
    };
    cuts.into_iter().flatten().min_by_key(cost)
}

/// Halves a block until its items fit `limit`, or until it is one pair; a pair that does not fit the whole cache is refused.
fn fit(
    sizes: &Sizes,
    block: Rect,
    limit: u64,
    cache_bytes: u64,
    fitting: &mut Vec<Rect>,
) -> Result<(), Refusal> {
    let bytes = sizes.bytes(block);
    if bytes <= limit {
        fitting.push(block);
        return Ok(());
    }
    match halve(sizes, block, 1, 2) {
        Some(halves) => halves.into_iter().try_for_each(|half| fit(sizes, half, limit, cache_bytes, fitting)),
        None if bytes <= cache_bytes => {
            fitting.push(block);
            Ok(())
        }
        None => Err(Refusal::TooLarge { row: block.rows.0, column: block.columns.0, bytes, cache_bytes }),
    }
}

#[cfg(test)]
mod tests;
