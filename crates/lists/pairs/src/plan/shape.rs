//! The matrix of all pairs: its shape, its rectangles, and the bytes that a rectangle reads.

use serde::{Deserialize, Serialize};

/// Which pairs are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Every item of one set with every item of another.
    Two,
    /// Every item of a set with every item of the same set, itself included.
    Own,
    /// As [`Shape::Own`], where the value of a pair does not depend on the order of its items: only pairs whose row is not
    /// below their column are computed.
    Half,
}

/// An item by its number in its set. Where both sets are the same, all items are of [`Item::A`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Item {
    A(u32),
    B(u32),
}

/// The rows and the columns of a rectangle of the matrix, each from the first to before the second number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub struct Rect {
    pub rows: (u32, u32),
    pub columns: (u32, u32),
}

impl From<[u32; 4]> for Rect {
    fn from([r0, r1, c0, c1]: [u32; 4]) -> Rect {
        Rect { rows: (r0, r1), columns: (c0, c1) }
    }
}

impl From<Rect> for [u32; 4] {
    fn from(rect: Rect) -> [u32; 4] {
        [rect.rows.0, rect.rows.1, rect.columns.0, rect.columns.1]
    }
}

fn length((first, end): (u32, u32)) -> u64 {
    u64::from(end.saturating_sub(first))
}

impl Rect {
    /// The number of pairs that are wanted.
    pub fn n_pairs(self, shape: Shape) -> u64 {
        let (n_rows, n_columns) = (length(self.rows), length(self.columns));
        if shape != Shape::Half || n_rows == 0 || n_columns == 0 {
            return n_rows * n_columns;
        }
        let (r0, r1) = (u64::from(self.rows.0), u64::from(self.rows.1));
        let (c0, c1) = (u64::from(self.columns.0), u64::from(self.columns.1));
        // Row i has the columns from max(c0, i) to before c1.
        let whole = r1.min(c0 + 1).saturating_sub(r0);
        let (first, end) = (r0.max(c0 + 1), r1.min(c1));
        let part = match end.checked_sub(first) {
            Some(n) if n > 0 => n * (c1 - first) - n * (n - 1) / 2,
            _ => 0,
        };
        whole * (c1 - c0) + part
    }

    /// Whether the pair is wanted.
    fn wants(shape: Shape, row: u32, column: u32) -> bool {
        shape != Shape::Half || row <= column
    }

    pub fn pairs(self, shape: Shape) -> impl Iterator<Item = (u32, u32)> {
        let columns = self.columns.0..self.columns.1;
        let rows = self.rows.0..self.rows.1;
        rows.flat_map(move |row| columns.clone().map(move |column| (row, column)))
            .filter(move |(row, column)| Rect::wants(shape, *row, *column))
    }

    /// The same pairs, without rows and columns at the edges that have none.
    pub fn trimmed(self, shape: Shape) -> Rect {
        if shape != Shape::Half {
            return self;
        }
        let rows = (self.rows.0, self.rows.1.min(self.columns.1));
        let columns = (self.columns.0.max(self.rows.0), self.columns.1);
        Rect { rows: (rows.0, rows.1.max(rows.0)), columns: (columns.0, columns.1.max(columns.0)) }
    }

    /// The items that the pairs read. The rectangle is trimmed.
    pub fn items(self, shape: Shape) -> impl Iterator<Item = Item> {
        let rows = (self.rows.0..self.rows.1).map(Item::A);
        let columns = (self.columns.0..self.columns.1).map(move |column| match shape {
            Shape::Two => Item::B(column),
            Shape::Own | Shape::Half => Item::A(column),
        });
        rows.chain(columns)
    }

    /// The pairs of this trimmed rectangle of [`Shape::Half`] and those with their items in the other order, as rectangles of
    /// [`Shape::Own`] that have no pair in common.
    pub fn unfolded(self) -> Vec<Rect> {
        let Rect { rows, columns } = self;
        // Rows and columns have these items in common. Left of them is a part that does not meet the diagonal.
        let common = (columns.0.clamp(rows.0, rows.1), rows.1);
        let apart = [
            Rect { rows: (rows.0, common.0), columns },
            Rect { rows: common, columns: (common.1, columns.1) },
        ];
        let with_mirror = |rect: Rect| [rect, Rect { rows: rect.columns, columns: rect.rows }];
        let square = Rect { rows: common, columns: common };
        let all = apart.into_iter().flat_map(with_mirror).chain([square]);
        all.filter(|rect| rect.n_pairs(Shape::Own) > 0).collect()
    }

    /// Two parts by a cut between two rows, of which the first has about `goal` pairs; `None`: there is one row.
    pub fn cut_rows(self, shape: Shape, goal: u64) -> Option<[Rect; 2]> {
        let parts = |at: u32| {
            [Rect { rows: (self.rows.0, at), ..self }, Rect { rows: (at, self.rows.1), ..self }]
                .map(|part| part.trimmed(shape))
        };
        cut(self.rows, |at| parts(at)[0].n_pairs(shape), goal).map(parts)
    }

    /// As [`Rect::cut_rows`], between two columns.
    pub fn cut_columns(self, shape: Shape, goal: u64) -> Option<[Rect; 2]> {
        let parts = |at: u32| {
            [Rect { columns: (self.columns.0, at), ..self }, Rect { columns: (at, self.columns.1), ..self }]
                .map(|part| part.trimmed(shape))
        };
        cut(self.columns, |at| parts(at)[0].n_pairs(shape), goal).map(parts)
    }
}

/// The place within `side` before which there are about `goal` pairs; `pairs` grows with the place.
fn cut(side: (u32, u32), pairs: impl Fn(u32) -> u64, goal: u64) -> Option<u32> {
    let (first, end) = side;
    if end.saturating_sub(first) < 2 {
        return None;
    }
    // The first place with at least `goal` pairs before it.
    let (mut low, mut high) = (first + 1, end - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if pairs(middle) >= goal { high = middle } else { low = middle + 1 }
    }
    let before = low - 1;
    let is_nearer = before > first && goal - pairs(before).min(goal) < pairs(low).abs_diff(goal);
    Some(if is_nearer { before } else { low })
}

/// The sizes of all items, and the shape of their matrix.
#[derive(Clone, Debug)]
pub struct Sizes {
    shape: Shape,
    /// Before item `i` of the set come so many bytes.
    a: Vec<u64>,
    /// Empty where both sets are the same.
    b: Vec<u64>,
}

fn sums(sizes: &[u64]) -> Vec<u64> {
    let mut sum = 0u64;
    let sums = sizes.iter().map(|size| {
        sum = sum.saturating_add(*size);
        sum
    });
    std::iter::once(0).chain(sums).collect()
}

impl Sizes {
    /// Every item of A with every item of B; `a` and `b` have the size of each item in bytes.
    pub fn two(a: &[u64], b: &[u64]) -> Sizes {
        Sizes { shape: Shape::Two, a: sums(a), b: sums(b) }
    }

    /// One set with itself; `is_symmetric`: in one order only.
    pub fn own(a: &[u64], is_symmetric: bool) -> Sizes {
        Sizes { shape: if is_symmetric { Shape::Half } else { Shape::Own }, a: sums(a), b: vec![] }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same items, where a pair and the pair with its items in the other order count as one.
    pub(super) fn folded(&self) -> Sizes {
        Sizes { shape: Shape::Half, ..self.clone() }
    }

    /// The whole matrix.
    pub fn whole(&self) -> Rect {
        let n = |sums: &Vec<u64>| sums.len().saturating_sub(1) as u32;
        let n_columns = if self.shape == Shape::Two { n(&self.b) } else { n(&self.a) };
        Rect { rows: (0, n(&self.a)), columns: (0, n_columns) }
    }

    /// The bytes of one item.
    pub(super) fn of(&self, item: Item) -> u64 {
        let (sums, n) = match item {
            Item::A(n) => (&self.a, n as usize),
            Item::B(n) => (&self.b, n as usize),
        };
        sums[n + 1] - sums[n]
    }

    /// The bytes of the items that the rectangle reads, each counted once.
    pub fn bytes(&self, rect: Rect) -> u64 {
        let of = |sums: &Vec<u64>, (first, end): (u32, u32)| match first < end {
            true => sums[end as usize] - sums[first as usize],
            false => 0,
        };
        if self.shape == Shape::Two {
            return of(&self.a, rect.rows).saturating_add(of(&self.b, rect.columns));
        }
        let both = (rect.rows.0.max(rect.columns.0), rect.rows.1.min(rect.columns.1));
        of(&self.a, rect.rows) + of(&self.a, rect.columns) - of(&self.a, both)
    }
}
