//! Random numbers that are the same everywhere, and the odd values that formats stumble over.

use eyas_terms::rng::{self as terms, fnv1a64};

pub struct Rng(terms::Rng);

impl Rng {
    /// For input `number` of the target `name`.
    pub fn new(seed: u64, name: &str, number: u64) -> Rng {
        let name = fnv1a64(name.as_bytes());
        let mut rng = Rng(terms::Rng::new(seed ^ name.rotate_left(17) ^ number.wrapping_mul(terms::STEP)));
        rng.next_u64();
        rng
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A power of two below 2 to the `usual`, once in a while to the `rare`.
    pub fn power(&mut self, usual: usize, rare: usize) -> usize {
        let most = if self.one_in(8) { rare } else { usual };
        1 << self.below(most)
    }

    /// Mostly small, sometimes at an edge.
    pub fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => *self.pick(&EDGES),
            1 => self.next_u64() >> self.below(64),
            _ => self.below(10) as u64,
        }
    }

    /// A name: mostly plain, so that names meet.
    pub fn name(&mut self) -> String {
        match self.below(12) {
            0 => (*self.pick(&ODD_NAMES)).to_owned(),
            1 => format!("{}/{}", self.pick(&ODD_NAMES), self.below(9)),
            _ => format!("{}{}", self.pick(&["a", "b", "out/c", "d.txt", "f_"]), self.below(6)),
        }
    }
}

pub const EDGES: [u64; 14] = [
    0,
    1,
    127,
    128,
    255,
    65_535,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 1,
    u64::MAX,
    1 << 53,
];

pub const ODD_NAMES: [&str; 24] = [
    "",
    ".",
    "..",
    "../x",
    "/",
    "/abs/x",
    "a//b",
    "a/./b",
    "x/",
    "-rf",
    "~",
    "a b",
    "a'b",
    "a\"b",
    "$(x)",
    "a\nb",
    "a\tb",
    "\u{1b}[2J",
    "\u{202e}gnp",
    "日本語",
    "run:x",
    "http://h/x?y",
    "file:///x",
    "a\u{0}b",
];
