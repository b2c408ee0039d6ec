//! Folding: turns a chunk of tasks of one shape into a template and the columns in which the tasks differ.
//!
//! A [`Chunk`] keeps the strings of its tasks back to back; a *slot* is one string of the shape (the id, the
//! third argument, the location of the first input). [`Chunk::fold`] writes each slot as a pattern, trying in
//! this order:
//!
//!   1. the same string in all tasks: a literal;
//!   2. pieces of columns that are there already, found by walking the strings of two tasks side by side;
//!   3. a number that goes up by one with each task: the index, which costs nothing;
//!   4. a new column with what varies between the common beginning and the common end.
//!
//! Invariant: a pattern from 2 or 3 is used only after it has given back the slot's string for *every* task.
//! So folding is lossless, however the pattern was guessed.
//!
//! Why locations first: they are the longest strings, and names and arguments mostly consist of parts of
//! them.

use eyas_terms::array::{Column, Command, Hints, Part, Pattern, Piece, TaskArray, TaskForm, file_name, stem};
use eyas_terms::needs::Needs;
use std::fmt::Write;

/// A chunk with more tasks than this is full. The number is large enough to make a template's cost per task
/// small, and small enough for one message.
pub(crate) const TASKS_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 512 * 1024;

/// A slot may be pieced together from this many of the first and of the last columns. Without a limit, a task
/// with thousands of inputs would compare every string with every column.
const COLUMNS_NEAR: usize = 8;

/// What all tasks of a chunk have in common; the strings are counted, not compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// `None`: a line for the shell.
    pub argc: Option<usize>,
    pub n_inputs: usize,
    pub n_outputs: usize,
    pub n_env: usize,
    pub cpus: u32,
    pub needs: Option<Box<Needs>>,
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    pub retries: u32,
    pub priority: i32,
    pub label: String,
    pub dynamic: bool,
    pub hints: Hints,
    pub promises: Vec<String>,
}

impl Shape {
    /// Slots are: id, command, then (location, name) of inputs and outputs, then (name, value) of env.
    pub fn n_slots(&self) -> usize {
        self.env_slot() + 2 * self.n_env
    }
    pub fn input_slot(&self) -> usize {
        1 + self.argc.unwrap_or(1)
    }
    pub fn output_slot(&self) -> usize {
        self.input_slot() + 2 * self.n_inputs
    }
    pub fn env_slot(&self) -> usize {
        self.output_slot() + 2 * self.n_outputs
    }
}

pub(crate) struct Chunk {
    pub shape: Shape,
    /// All strings, task by task, slot by slot.
    text: String,
    /// `ends[k]` is the end of string `k` in `text`.
    ends: Vec<u32>,
    n_slots: usize,
}

impl Chunk {
    pub fn new(shape: Shape) -> Chunk {
        let n_slots = shape.n_slots();
        Chunk { shape, text: String::new(), ends: Vec::new(), n_slots }
    }
    pub fn n_tasks(&self) -> usize {
        self.ends.len() / self.n_slots
    }
    pub fn is_full(&self) -> bool {
        self.n_tasks() >= TASKS_MAX || self.text.len() >= TEXT_BYTES_MAX
    }
    /// Adds the next string: `write` appends it. Gives what was written, or `None` above 4 GiB of text.
    pub fn push_with<E>(
        &mut self,
        write: impl FnOnce(&mut String) -> Result<(), E>,
    ) -> Result<Option<&str>, E> {
        let start = self.text.len();
        write(&mut self.text)?;
        let Ok(end) = u32::try_from(self.text.len()) else { return Ok(None) };
        self.ends.push(end);
        Ok(Some(&self.text[start..]))
    }
    /// String `slot` of task `i`.
    pub fn get(&self, i: usize, slot: usize) -> &str {
        let k = i * self.n_slots + slot;
        let start = if k == 0 { 0 } else { self.ends[k - 1] as usize };
        &self.text[start..self.ends[k] as usize]
    }

    /// The folded form of its tasks; at least one. `first_index` is used when no string needs another.
    pub fn fold(&self, first_index: u64) -> TaskArray {
        let mut fold = Fold { chunk: self, n: self.n_tasks(), first_index: None, columns: Vec::new() };
        let shape = &self.shape;
        let mut patterns: Vec<Option<Pattern>> = vec![None; self.n_slots];
        for slot in (shape.input_slot()..shape.env_slot()).chain(0..self.n_slots) {
            if patterns[slot].is_none() {
                patterns[slot] = Some(fold.slot(slot));
            }
        }
        let Fold { n, first_index: found_index, mut columns, .. } = fold;
        columns.iter_mut().for_each(Column::shrink_to_fit);
        let mut next = patterns.into_iter().flatten();
        let mut take = || next.next().unwrap_or_default();
        let id = take();
        let command = match shape.argc {
            Some(argc) => Command::Exec((0..argc).map(|_| take()).collect()),
            None => Command::Shell(take()),
        };
        let mut files = |count| -> Vec<(Pattern, Pattern)> {
            (0..count)
                .map(|_| {
                    let location = take();
                    (take(), location)
                })
                .collect()
        };
        let (inputs, outputs) = (files(shape.n_inputs), files(shape.n_outputs));
        let env = (0..shape.n_env).map(|_| (take(), take())).collect();
        TaskArray {
            n_tasks: n as u32,
            first_index: found_index.unwrap_or(first_index),
            template: TaskForm {
                id,
                command,
                inputs,
                outputs,
                env,
                cpus: shape.cpus,
                memory_bytes: shape.memory_bytes,
                walltime_ns: shape.walltime_ns,
                retries: shape.retries,
                priority: shape.priority,
                label: shape.label.clone(),
                dynamic: shape.dynamic,
                promises: shape.promises.clone(),
                hints: shape.hints,
            },
            columns,
            needs: shape.needs.clone(),
        }
    }
}

struct Fold<'c> {
    chunk: &'c Chunk,
    n: usize,
    first_index: Option<u64>,
    columns: Vec<Column>,
}

impl Fold<'_> {
    fn slot(&mut self, slot: usize) -> Pattern {
        let first = self.chunk.get(0, slot);
        // The task furthest from the first shows most of what varies.
        let Some(other) = (1..self.n).rev().find(|i| self.chunk.get(*i, slot) != first) else {
            return literal(first);
        };
        if let Some(pattern) = self.pieced(slot, other)
            && self.gives_back(&pattern, slot, self.first_index)
        {
            return pattern;
        }
        let (start, end) = self.common_ends(slot);
        if self.first_index.is_none()
            && let Some((pattern, index)) = self.counting(slot, start, end)
        {
            self.first_index = Some(index);
            return pattern;
        }
        let mut column = Column::default();
        for i in 0..self.n {
            let value = self.chunk.get(i, slot);
            // The column cannot be full: its text is part of the chunk's text, which has less than 4 GiB.
            let _ = column.push(&value[start..value.len() - end]);
        }
        self.columns.push(column);
        let mut pieces = literal(&first[..start]).0;
        pieces.push(Piece::Column { column: self.columns.len() as u32 - 1, part: Part::Whole });
        pieces.extend(literal(&first[first.len() - end..]).0);
        Pattern(pieces)
    }

    /// Length of the beginning and of the end that all strings of `slot` share, in bytes, not overlapping.
    fn common_ends(&self, slot: usize) -> (usize, usize) {
        let first = self.chunk.get(0, slot);
        let bytes = first.as_bytes();
        let common = |a: &mut dyn Iterator<Item = (&u8, &u8)>| a.take_while(|(x, y)| x == y).count();
        let mut start = first.len();
        for i in 1..self.n {
            start = common(&mut bytes[..start].iter().zip(self.chunk.get(i, slot).as_bytes()));
        }
        while !first.is_char_boundary(start) {
            start -= 1;
        }
        let mut end = first.len() - start;
        for i in 1..self.n {
            let value = &self.chunk.get(i, slot).as_bytes()[start..];
            end = common(&mut bytes[bytes.len() - end..].iter().rev().zip(value.iter().rev()));
        }
        while !first.is_char_boundary(first.len() - end) {
            end -= 1;
        }
        (start, end)
    }

    /// `slot` as text with a number that is `index + i` in task `i`.
    fn counting(&self, slot: usize, start: usize, end: usize) -> Option<(Pattern, u64)> {
        let first = self.chunk.get(0, slot);
        // 19 and 20 share no digit, 10 and 11 do: the whole number must be cut out.
        let is_digit = |c: char| c.is_ascii_digit();
        let start = first[..start].trim_end_matches(is_digit).len();
        let end = first[first.len() - end..].trim_start_matches(is_digit).len();
        let digits = first.get(start..first.len() - end)?;
        let index: u64 = digits.parse().ok().filter(|n: &u64| n.to_string() == digits)?;
        let mut pieces = literal(&first[..start]).0;
        pieces.push(Piece::Index);
        pieces.extend(literal(&first[first.len() - end..]).0);
        let pattern = Pattern(pieces);
        self.gives_back(&pattern, slot, Some(index)).then_some((pattern, index))
    }

    /// Guesses how `slot` is made of columns and the index, from tasks 0 and `other`.
    fn pieced(&self, slot: usize, other: usize) -> Option<Pattern> {
        let mut candidates: Vec<(Piece, String, String)> = Vec::new();
        let n = self.columns.len();
        let near = (0..n.min(COLUMNS_NEAR)).chain(n.saturating_sub(COLUMNS_NEAR).max(COLUMNS_NEAR.min(n))..n);
        for c in near {
            for part in [Part::Whole, Part::Name, Part::Stem] {
                let of = |i| part_of(self.columns[c].get(i), part).to_owned();
                candidates.push((Piece::Column { column: c as u32, part }, of(0), of(other)));
            }
        }
        if let Some(index) = self.first_index {
            candidates.push((Piece::Index, index.to_string(), (index + other as u64).to_string()));
        }
        // A candidate that is the same in both tasks explains no difference; an empty string fits everywhere.
        candidates.retain(|(_, a, b)| a != b && !a.is_empty() && !b.is_empty());

        let (mut a, mut b) = (self.chunk.get(0, slot), self.chunk.get(other, slot));
        let mut pieces: Vec<Piece> = Vec::new();
        while !(a.is_empty() && b.is_empty()) {
            let best = candidates
                .iter()
                .filter(|(_, x, y)| a.starts_with(x.as_str()) && b.starts_with(y.as_str()))
                // The first of equals: whole before name before stem, old columns before new.
                .rev()
                .max_by_key(|(_, x, y)| x.len() + y.len());
            if let Some((piece, x, y)) = best {
                pieces.push(piece.clone());
                (a, b) = (&a[x.len()..], &b[y.len()..]);
                continue;
            }
            let c = a.chars().next().filter(|c| b.starts_with(*c))?;
            match pieces.last_mut() {
                Some(Piece::Literal(text)) => text.push(c),
                _ => pieces.push(Piece::Literal(c.into())),
            }
            (a, b) = (&a[c.len_utf8()..], &b[c.len_utf8()..]);
        }
        Some(Pattern(pieces))
    }

    /// Does `pattern` give the string of `slot` for every task?
    fn gives_back(&self, pattern: &Pattern, slot: usize, first_index: Option<u64>) -> bool {
        let mut number = String::new();
        (0..self.n).all(|i| {
            let mut rest = self.chunk.get(i, slot);
            for piece in &pattern.0 {
                let text = match piece {
                    Piece::Literal(text) => text.as_str(),
                    Piece::Column { column, part } => part_of(self.columns[*column as usize].get(i), *part),
                    Piece::Index => {
                        let Some(index) = first_index.and_then(|n| n.checked_add(i as u64)) else {
                            return false;
                        };
                        number.clear();
                        let _ = write!(number, "{index}");
                        &number
                    }
                };
                match rest.strip_prefix(text) {
                    Some(after) => rest = after,
                    None => return false,
                }
            }
            rest.is_empty()
        })
    }
}

fn part_of(value: &str, part: Part) -> &str {
    match part {
        Part::Whole => value,
        Part::Name => file_name(value),
        Part::Stem => stem(value),
    }
}

/// A literal; nothing for the empty string.
fn literal(text: &str) -> Pattern {
    if text.is_empty() { Pattern::default() } else { Pattern::literal(text) }
}
