//! What users write, turned into folded task arrays.
//!
//! Input: a task list ([`read`], JSON Lines), a list of commands ([`read_commands`]) or a template over files
//! or numbers ([`map`]). Output: a [`TaskList`] of [`eyas_terms::array::TaskArray`]s, or one [`Error`] that
//! says where the mistake is and what to do about it.
//!
//! Invariants:
//!   1. folding is lossless: expanding a list gives the tasks that were written;
//!   2. a list is given whole or not at all, so a mistake on the last line starts nothing;
//!   3. in a list all ids differ, no two tasks write one output, no tasks wait for each other in a circle;
//!   4. one file has one text: every location is an absolute path, a normalised URL or `run:NAME`;
//!   5. a file that stays on the nodes (`run:NAME`) is written by a task of the list.
//!
//! | module | does |
//! |---|---|
//! | `line` | one line of JSON to one task |
//! | `location` | paths and URLs to their one text |
//! | `fold` | many tasks of one shape to a template and columns |
//! | `list` | what must hold between tasks: ids, outputs, circles |
//! | `read`, `commands`, `map`, `given` | the doors: lines, lines for the shell, a template over files, tasks that a program has in hand |
//! | `reduce` | a task that may be applied to any part of its inputs, as a tree |
//! | `several` | inputs that stand for several files: patterns, directories |
//! | `glob`, `template` | patterns over file names, holes in words |
//! | `spec`, `source` | the request of a map, and what users give as its sources: files, parameters, tables |
//! | `rows`, `files` | what these sources stand for |
//! | `units` | sizes, durations, rates |
//! | `older` | tasks that an older version wrote down |
//!
//! Not here: whether other inputs exist or outputs can be written; home storage reports that when it is asked
//! for them.

#![forbid(unsafe_code)]

mod commands;
mod contain;
mod dataset;
mod error;
mod file;
mod files;
mod fold;
mod given;
mod glob;
mod line;
mod lines;
mod list;
mod location;
mod made;
mod map;
mod older;
mod read;
mod reduce;
mod rows;
mod several;
mod shell;
mod source;
mod spec;
mod template;
mod units;
mod write;

pub use commands::read_commands;
pub use error::{Error, ErrorKind, Problem, Result, Status};
pub use eyas_folder::NAME_BYTES_MAX;
pub use files::{FileSet, ListInput, find_set, name_of_file, shared as shared_inputs};
pub use given::fold_tasks;
pub use line::FIELDS;
pub use list::TaskList;
pub use location::RUN_FILE;
pub use map::{hole_names, map};
pub use older::{renew_locations, renewed_location};
pub use read::{ReadOptions, read};
pub use shell::quoted;
pub use source::{Source, Table};
pub use spec::MapSpec;
pub use template::{Holes, Segment, fill, fill_line, parse as parse_holes};
pub use units::{parse_bytes, parse_duration, parse_parts, parse_rate};
pub use write::to_jsonl;
