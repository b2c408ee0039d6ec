//! Folded task arrays: many tasks as one template plus the strings in which they differ.
//!
//! A list of a million tasks is kept as a few hundred [`TaskArray`]s. Each holds one [`Template`],
//! whose strings are [`Pattern`]s, and [`Column`]s with one value per task. [`TaskArray::expand`]
//! makes the `i`-th [`TaskSpec`]; it is pure, so a task that is not needed yet costs only the bytes in
//! which it differs from its neighbours, and a `map` over a range costs nothing per task.
//!
//! Invariants, checked by [`TaskArray::check`] on everything that arrives from outside:
//!   1. every column has exactly `n_tasks` values;
//!   2. every piece names a column that exists.

use crate::needs::Needs;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One string per task, stored back to back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Column {
    text: String,
    /// `ends[i]` is the end of value `i` in `text`.
    ends: Vec<u32>,
}

impl Column {
    /// Adds one value. A column holds at most 4 GiB of text; `false` means that it is full.
    #[must_use]
    pub fn push(&mut self, value: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + value.len()) else { return false };
        self.text.push_str(value);
        self.ends.push(end);
        true
    }
    /// Value `i`; `i < len()`.
    pub fn get(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.text[start..self.ends[i] as usize]
    }
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Heap bytes held.
    pub fn heap_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * 4
    }
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// Which part of a column's value a piece takes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Whole,
    /// The last component of the path.
    Name,
    /// [`Part::Name`] without its extension; see [`stem`].
    Stem,
}

/// The file name in `path` without one extension, and without a compression suffix before that:
/// `sky/a.fits.gz` gives `a`, `v1.2.txt` gives `v1.2`, `.profile` gives `.profile`.
pub fn stem(path: &str) -> &str {
    fn cut(name: &str) -> Option<(&str, &str)> {
        name.rsplit_once('.').filter(|(head, _)| !head.is_empty())
    }
    let name = file_name(path);
    let inner = match cut(name) {
        Some((head, "gz" | "bz2" | "xz" | "zst" | "lz4" | "Z" | "fz")) => head,
        _ => name,
    };
    cut(inner).map_or(inner, |(head, _)| head)
}

/// The last component of `path`.
pub fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    Literal(String),
    Column {
        column: u32,
        part: Part,
    },
    /// The task's number within its run's `map`, counted from 0.
    Index,
}

/// A string with gaps that each task fills.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(transparent)]
pub struct Pattern(pub Vec<Piece>);

impl Pattern {
    pub fn literal(text: impl Into<String>) -> Pattern {
        Pattern(vec![Piece::Literal(text.into())])
    }
    pub fn column(column: u32) -> Pattern {
        Pattern(vec![Piece::Column { column, part: Part::Whole }])
    }
    /// Whether the pattern is the same for all tasks of an array.
    pub fn is_constant(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Literal(_)))
    }
}

/// An output of this name is everything that the program prints to its standard output.
pub const STDOUT_NAME: &str = ".eyas-stdout";
/// Like [`STDOUT_NAME`], for standard error.
pub const STDERR_NAME: &str = ".eyas-stderr";
/// An output of this name is the directory of all files that the program makes and that are no outputs of their own.
pub const NEW_NAME: &str = ".eyas-new";
/// An input of this name is the container that the program runs in: what nodes make of an image, or the image file itself if its format
/// is one that a program of the node's reads. The program does not find it in its sandbox.
pub const CONTAINER_NAME: &str = ".eyas-container";

/// A task that has this variable is watched: files that its program names below its sandbox, and that are none of its inputs, are
/// brought from below the location that is the variable's value, and what it makes goes there.
pub const WATCH_VARIABLE: &str = "EYAS_WATCH";

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Command<S> {
    /// Started directly, without a shell.
    Exec(Vec<S>),
    /// A line for a shell: bash where the node has it, else `/bin/sh`, unless its first line is `#!/bin/sh` or `#!/bin/bash`.
    Shell(S),
}

/// What every task of an array has in common; `S` is [`Pattern`] in a template, `String` in a task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct TaskForm<S> {
    /// The user's own name for the task.
    pub id: S,
    pub command: Command<S>,
    /// `(name in the sandbox, location)`.
    pub inputs: Vec<(S, S)>,
    /// `(name in the sandbox, location)`.
    pub outputs: Vec<(S, S)>,
    pub env: Vec<(S, S)>,
    /// Slots held while running, at least 1.
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    /// Further attempts after a failure of the task's own.
    pub retries: u32,
    /// Tasks with a larger priority go first.
    pub priority: i32,
    pub label: String,
    /// The task's program may add tasks to its run, so it is told how to reach the dispatcher.
    #[serde(default)]
    pub dynamic: bool,
    /// How the task's inputs are moved, if the user gives hints.
    #[serde(default)]
    pub hints: Hints,
    /// Files that stay on the nodes and that will be written by tasks which the program adds.
    #[serde(default)]
    pub promises: Vec<String>,
}

/// A user's hint about a collective that brings files to a stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Hint {
    /// The cost model decides.
    #[default]
    Auto,
    Always,
    /// Each task fetches its own inputs.
    Never,
    /// Each task fetches its own inputs, and each input leaves home once, as far as possible: other nodes take it from a node that
    /// has it or is reading it, also where home would be quicker. For a multicast only. It is the last variant because the number
    /// of a variant is what journals have.
    Once,
}

/// Like [`Hint`], for a gather, which can be done in two ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum GatherHint {
    #[default]
    Auto,
    /// In whichever way is predicted to end first.
    Always,
    /// When the last file is there.
    Collective,
    /// Each file when it appears.
    Async,
    Never,
}

/// A user's hints about how a task's inputs come to it. They hold for the task's stage; if tasks of one stage
/// have different hints, a hint that forbids comes first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Hints {
    /// Files that many tasks of the stage read.
    pub multicast: Hint,
    /// Files of one task that are dealt out to many of the stage.
    pub scatter: Hint,
    /// Files of many tasks that one task of the stage reads.
    pub gather: GatherHint,
}

impl Hints {
    pub fn is_auto(&self) -> bool {
        *self == Hints::default()
    }
}

pub type Template = TaskForm<Pattern>;
pub type TaskSpec = TaskForm<String>;

/// `n_tasks` tasks that share one template.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct TaskArray {
    pub n_tasks: u32,
    /// What [`Piece::Index`] gives for the first task.
    pub first_index: u64,
    pub template: Template,
    pub columns: Vec<Column>,
    /// What each task needs beside whole cpus and memory; `None`: nothing. It is the last field because a journal
    /// of a version that did not know it ends before it.
    #[serde(default)]
    pub needs: Option<Box<Needs>>,
}

impl TaskArray {
    /// `Err` names the first broken invariant.
    pub fn check(&self) -> Result<(), String> {
        for (c, column) in self.columns.iter().enumerate() {
            if column.len() != self.n_tasks as usize {
                return Err(format!("column {c} has {} values for {} tasks", column.len(), self.n_tasks));
            }
            let mut start = 0;
            for &end in &column.ends {
                if end < start || !column.text.is_char_boundary(end as usize) {
                    return Err(format!("column {c} is cut inside a character"));
                }
                start = end;
            }
        }
        let n = self.columns.len() as u32;
        let mut bad = None;
        self.template.for_each(&mut |pattern| {
            for piece in &pattern.0 {
                if let Piece::Column { column, .. } = piece
                    && *column >= n
                {
                    bad = Some(*column);
                }
            }
        });
        match bad {
            Some(column) => Err(format!("the template names column {column}, there are {n}")),
            None if self.template.cpus == 0 => Err("`cpus` is 0".into()),
            None if self.first_index.checked_add(self.n_tasks.into()).is_none() => {
                Err("the numbers of its tasks are too large".into())
            }
            None => self.needs.as_ref().map_or(Ok(()), |needs| needs.check()),
        }
    }

    /// Task `i` in full; `i < n_tasks`.
    pub fn expand(&self, i: u32) -> TaskSpec {
        self.template.map(&mut |p| self.fill(p, i))
    }

    /// `pattern` with task `i`'s values.
    pub fn fill(&self, pattern: &Pattern, i: u32) -> String {
        let mut text = String::new();
        self.fill_into(pattern, i, &mut text);
        text
    }

    /// Appends `pattern` with task `i`'s values to `text`.
    pub fn fill_into(&self, pattern: &Pattern, i: u32, text: &mut String) {
        for piece in &pattern.0 {
            match piece {
                Piece::Literal(s) => text.push_str(s),
                Piece::Column { column, part } => {
                    let value = self.columns[*column as usize].get(i as usize);
                    text.push_str(match part {
                        Part::Whole => value,
                        Part::Name => file_name(value),
                        Part::Stem => stem(value),
                    });
                }
                Piece::Index => {
                    let _ = write!(text, "{}", self.first_index + u64::from(i));
                }
            }
        }
    }

    /// Whether some task's text of `pattern` may begin with `prefix`.
    pub fn may_begin(&self, pattern: &Pattern, prefix: &str) -> bool {
        match pattern.0.first() {
            Some(Piece::Literal(text)) => text.starts_with(prefix) || prefix.starts_with(text.as_str()),
            Some(Piece::Column { column, part: Part::Whole }) => {
                let column = &self.columns[*column as usize];
                (0..column.len()).any(|i| column.get(i).starts_with(prefix))
            }
            Some(Piece::Column { .. } | Piece::Index) | None => false,
        }
    }

    /// Heap bytes held by the columns; the template is shared by all tasks.
    pub fn heap_bytes(&self) -> usize {
        self.columns.iter().map(Column::heap_bytes).sum()
    }
}

impl TaskForm<String> {
    /// The location below which a watched task's files are; `None`: it is not watched.
    pub fn watched_at(&self) -> Option<&str> {
        self.env.iter().rev().find(|(name, _)| name == WATCH_VARIABLE).map(|(_, at)| at.as_str())
    }
}

impl<S> TaskForm<S> {
    /// A task with one slot and no files, limits, retries or label. Set other fields beside it: `TaskForm {
    /// inputs, ..TaskForm::new(id, command) }`.
    pub fn new(id: S, command: Command<S>) -> TaskForm<S> {
        TaskForm {
            id,
            command,
            inputs: vec![],
            outputs: vec![],
            env: vec![],
            cpus: 1,
            memory_bytes: None,
            walltime_ns: None,
            retries: 0,
            priority: 0,
            label: String::new(),
            dynamic: false,
            hints: Hints::default(),
            promises: vec![],
        }
    }

    /// The same form with every string put through `f`.
    pub fn map<T>(&self, f: &mut impl FnMut(&S) -> T) -> TaskForm<T> {
        let mut pairs = |list: &[(S, S)]| list.iter().map(|(a, b)| (f(a), f(b))).collect();
        let (inputs, outputs, env) = (pairs(&self.inputs), pairs(&self.outputs), pairs(&self.env));
        TaskForm {
            id: f(&self.id),
            command: match &self.command {
                Command::Exec(argv) => Command::Exec(argv.iter().map(&mut *f).collect()),
                Command::Shell(line) => Command::Shell(f(line)),
            },
            inputs,
            outputs,
            env,
            cpus: self.cpus,
            memory_bytes: self.memory_bytes,
            walltime_ns: self.walltime_ns,
            retries: self.retries,
            priority: self.priority,
            label: self.label.clone(),
            dynamic: self.dynamic,
            hints: self.hints,
            promises: self.promises.clone(),
        }
    }

    /// Calls `f` with every string of the form, in a fixed order.
    pub fn for_each(&self, f: &mut impl FnMut(&S)) {
        let _ = self.map(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stem_drops_compression_and_one_extension() {
        for (path, expect) in [
            ("sky/a.fits.gz", "a"),
            ("v1.2.txt", "v1.2"),
            (".profile", ".profile"),
            ("dir.d/plain", "plain"),
            ("x.gz", "x"),
            ("a b.fna", "a b"),
            ("/", ""),
        ] {
            assert_eq!(stem(path), expect, "{path}");
        }
    }

    #[test]
    fn an_array_expands_to_its_tasks_and_a_range_costs_nothing_per_task() {
        let mut column = Column::default();
        assert!(column.push("sky/a.fits.gz") && column.push("sky/b.fits.gz"));
        let literal = |s: &str| Piece::Literal(s.into());
        let array = TaskArray {
            needs: None,
            n_tasks: 2,
            first_index: 7,
            columns: vec![column],
            template: TaskForm {
                inputs: vec![(
                    Pattern(vec![Piece::Column { column: 0, part: Part::Name }]),
                    Pattern::column(0),
                )],
                outputs: vec![(
                    Pattern::literal("out"),
                    Pattern(vec![
                        literal("cut/"),
                        Piece::Column { column: 0, part: Part::Stem },
                        literal(".npy"),
                    ]),
                )],
                ..TaskForm::new(
                    Pattern(vec![literal("t"), Piece::Index]),
                    Command::Exec(vec![Pattern::literal("cut"), Pattern::column(0)]),
                )
            },
        };
        assert_eq!(array.check(), Ok(()));
        let task = array.expand(1);
        assert_eq!(task.id, "t8");
        assert_eq!(task.inputs, [("b.fits.gz".into(), "sky/b.fits.gz".into())]);
        assert_eq!(task.outputs, [("out".into(), "cut/b.npy".into())]);

        let range = TaskArray { n_tasks: 10_000_000, columns: vec![], ..array.clone() };
        assert!(range.check().is_err(), "the template still names column 0");
        assert_eq!(range.heap_bytes(), 0);
    }
}
