//! The order within a block: its opening, a tile of middle size, the rest, and what is kept back for the end.
//!
//! All of them read items of the block only, so the node that computes the opening needs nothing that it does not need for the block.

use super::{KEPT_BACK, Kinds, Machine, Rect, SMALL_PART, Shape, Sizes, TASK_NS, Tile, WORTH_A_TASK, divide};
use std::collections::{BTreeMap, BTreeSet};

/// A block is begun with its opening if it has so many times the opening's pairs.
const OPENING_PART: u64 = 4;
/// Between an opening and its block comes a tile of middle size if the block has so many times the opening's pairs.
const MIDDLE_PART: u64 = 32;

/// The parts of the last block of a slot are tiles of their own if each takes at least so long: the time that a slot may be behind
/// others at the end goes down in steps.
const PART_NS_MIN: u64 = 20_000_000_000;

/// For each item of a set: whether an opening reads it already, and how many of the blocks read it.
struct TakenItems {
    is_taken: Vec<bool>,
    /// Before item `i`, the blocks read so many items in total.
    reads: Vec<u64>,
}

impl TakenItems {
    fn new(n_items: u32, sides: impl Iterator<Item = (u32, u32)>) -> TakenItems {
        let mut changes = vec![0i64; n_items as usize + 1];
        for (first, end) in sides.filter(|(first, end)| first < end) {
            changes[first as usize] += 1;
            changes[end as usize] -= 1;
        }
        let mut reads = vec![0];
        let (mut n_readers, mut sum) = (0, 0);
        for change in &changes[..n_items as usize] {
            n_readers += change;
            sum += n_readers as u64;
            reads.push(sum);
        }
        TakenItems { is_taken: vec![false; n_items as usize], reads }
    }

    /// A part of `side` that no opening reads yet: at most as large as the part that each of the blocks gets of the items that
    /// they share. `None`: all are read already.
    fn take(&mut self, (first, end): (u32, u32)) -> Option<(u32, u32)> {
        let length = u64::from(end.saturating_sub(first));
        let n_reads = self.reads[end as usize] - self.reads[first as usize];
        let wanted = (length * length).div_ceil(n_reads.max(1)) as u32;
        let mut best = (first, first);
        let mut start = first;
        for at in first..=end {
            if at == end || self.is_taken[at as usize] {
                if at - start > best.1 - best.0 {
                    best = (start, at);
                }
                start = at + 1;
            }
        }
        let found = (best.0, best.1.min(best.0.saturating_add(wanted)));
        self.is_taken[found.0 as usize..found.1 as usize].fill(true);
        (found.0 < found.1).then_some(found)
    }
}

/// The openings of those blocks that `firsts` numbers, by these numbers. A block may have none.
pub(super) fn openings(sizes: &Sizes, blocks: &[Rect], firsts: &BTreeSet<usize>) -> BTreeMap<usize, Rect> {
    let (shape, whole) = (sizes.shape(), sizes.whole());
    let of_firsts = || firsts.iter().map(|at| blocks[*at]);
    let both = |block: Rect| {
        let common = (block.rows.0.max(block.columns.0), block.rows.1.min(block.columns.1));
        (shape != Shape::Two && common.0 < common.1).then_some(common)
    };
    let columns = |block: Rect| {
        // A block that meets the diagonal reads what its rows and columns have in common once.
        match both(block) {
            Some(common) => (common.1.min(block.columns.1), block.columns.1),
            None => block.columns,
        }
    };
    let (mut a, mut b) = match shape {
        Shape::Two => (
            TakenItems::new(whole.rows.1, of_firsts().map(|block| block.rows)),
            TakenItems::new(whole.columns.1, of_firsts().map(|block| block.columns)),
        ),
        Shape::Own | Shape::Half => {
            let sides = of_firsts().map(|block| block.rows).chain(of_firsts().map(columns));
            (TakenItems::new(whole.rows.1, sides), TakenItems::new(0, std::iter::empty()))
        }
    };
    let mut found = BTreeMap::new();
    for at in firsts {
        let block = blocks[*at];
        // A block that lies mostly beside the diagonal begins there, as it would not read its columns otherwise.
        let beside = |common: (u32, u32)| (common.1, block.columns.1.max(common.1));
        let is_beside =
            |common: &(u32, u32)| 2 * (block.columns.1 - common.1.min(block.columns.1)) > common.1 - common.0;
        let opening = match both(block) {
            Some(common) if shape == Shape::Half && is_beside(&common) => {
                a.take(common).and_then(|rows| a.take(beside(common)).map(|columns| Rect { rows, columns }))
            }
            Some(common) => a.take(common).map(|side| Rect { rows: side, columns: side }),
            None => a.take(block.rows).and_then(|rows| {
                let columns = if shape == Shape::Two { b.take(block.columns) } else { a.take(block.columns) };
                columns.map(|columns| Rect { rows, columns })
            }),
        };
        let n_pairs = opening.map_or(0, |rect| rect.n_pairs(shape));
        if let Some(opening) = opening
            && (1..=block.n_pairs(shape) / OPENING_PART).contains(&n_pairs)
        {
            found.insert(*at, opening.trimmed(shape));
        }
    }
    found
}

/// `inner` made larger within `outer`, each side to the geometric mean of both lengths.
fn middle(inner: Rect, outer: Rect) -> Rect {
    let side = |inner: (u32, u32), outer: (u32, u32)| {
        let length = (f64::from(inner.1 - inner.0) * f64::from(outer.1 - outer.0)).sqrt().round() as u32;
        let first = inner.0.min(outer.1 - length.min(outer.1));
        (first.max(outer.0), (first.max(outer.0) + length).max(inner.1).min(outer.1))
    };
    Rect { rows: side(inner.rows, outer.rows), columns: side(inner.columns, outer.columns) }
}

/// What is left of `rect` without the pairs of `hole`.
fn without(rect: Rect, hole: Rect, shape: Shape) -> Vec<Rect> {
    let within = |side: (u32, u32), of: (u32, u32)| (side.0.clamp(of.0, of.1), side.1.clamp(of.0, of.1));
    let (rows, columns) = (within(hole.rows, rect.rows), within(hole.columns, rect.columns));
    if rows.0 >= rows.1 || columns.0 >= columns.1 {
        return vec![rect];
    }
    let parts = [
        Rect { rows: (rect.rows.0, rows.0), ..rect },
        Rect { rows, columns: (rect.columns.0, columns.0) },
        Rect { rows, columns: (columns.1, rect.columns.1) },
        Rect { rows: (rows.1, rect.rows.1), ..rect },
    ];
    parts.into_iter().map(|part| part.trimmed(shape)).filter(|part| part.n_pairs(shape) > 0).collect()
}

/// The last block of a slot.
pub(super) struct Last {
    /// It is also the slot's first.
    pub is_only: bool,
}

/// Adds the tiles of one block; `last`: it is the last block of a slot.
pub(super) fn add_block(
    sizes: &Sizes,
    machine: &Machine,
    block: Rect,
    opening: Option<Rect>,
    last: Option<Last>,
    tiles: &mut Kinds<Vec<Tile>>,
) {
    let shape = sizes.shape();
    let n_pairs = block.n_pairs(shape);
    let small_pairs_min = (WORTH_A_TASK * TASK_NS).div_ceil(machine.pair_ns.max(1));
    let small_pairs = (n_pairs / SMALL_PART).max(small_pairs_min);
    let mut parts = match last.is_some() && n_pairs >= u64::from(KEPT_BACK) * small_pairs {
        true => divide(sizes, block, u64::from(KEPT_BACK)),
        false => vec![block],
    };
    let kept = if parts.len() > 1 { parts.pop() } else { None };
    let mut kept: Vec<Rect> = kept.into_iter().collect();
    if let Some(opening) = opening {
        let mut begun = opening;
        tiles.opening.push(Tile { rects: vec![opening] });
        if n_pairs >= MIDDLE_PART * opening.n_pairs(shape) {
            begun = middle(opening, block).trimmed(shape);
            let rects = without(begun, opening, shape);
            if !rects.is_empty() {
                tiles.middle.push(Tile { rects });
            }
        }
        let rest =
            |parts: Vec<Rect>| parts.into_iter().flat_map(|part| without(part, begun, shape)).collect();
        parts = rest(parts);
        kept = rest(kept);
    }
    let is_long = parts.iter().all(|part| part.n_pairs(shape).saturating_mul(machine.pair_ns) >= PART_NS_MIN);
    let to = if last.as_ref().is_some_and(|last| !last.is_only) { &mut tiles.late } else { &mut tiles.block };
    if last.is_some() && is_long {
        to.extend(parts.into_iter().map(|part| Tile { rects: vec![part] }));
    } else if !parts.is_empty() {
        to.push(Tile { rects: parts });
    }
    for part in kept {
        let n_small = (part.n_pairs(shape) / small_pairs).max(1);
        tiles.small.extend(divide(sizes, part, n_small).into_iter().map(|rect| Tile { rects: vec![rect] }));
    }
}
