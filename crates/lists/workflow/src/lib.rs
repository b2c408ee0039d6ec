//! eyas-workflow: reads workflow files of other systems into one neutral form, makes tasks of it, and
//! writes it again.
//!
//! In: a file of any format in [`detect::Format`], or a task list. Out: a [`Workflow`], a
//! [`TaskList`](eyas_tasklist::TaskList) that can be run, WfFormat, a drawing.
//!
//! Invariants:
//!   1. a [`Workflow`] can be done: ids differ, a file has one writer, no task waits for itself;
//!   2. what a format can say and eyas cannot do is refused in one sentence, and never left out so that
//!      something else runs; what does not matter for running (sites, checksums, unknown keys) is skipped;
//!   3. a workflow that was written as WfFormat and read again is the same workflow.
//!
//! | module | does |
//! |---|---|
//! | [`model`] | the neutral form, and its invariants |
//! | [`detect`] | the format of a file |
//! | `wfformat`, `pegasus`, `dax`, `makeflow`, `makeflow_jx`, `swift` | one format each |
//! | [`tasks`] | to task lists and back: locations of files, dependencies without files |
//! | [`stages`] | stages and the patterns between them, from the graph alone |
//! | `svg` | a drawing of stages |
//! | `folders` | folders that tasks write, for Makeflow |
//! | `naming` | the stage that a task belongs to, by its names |
//! | `yaml`, `jx`, `words` | YAML with lines; JSON with expressions; shell words |
//!
//! Not here: running tasks; finding patterns at run time (`eyas-core`).

#![forbid(unsafe_code)]

mod dax;
pub mod detect;
pub mod error;
mod folders;
mod jx;
mod limit;
mod makeflow;
mod makeflow_jx;
pub mod model;
mod naming;
mod pattern;
mod pegasus;
pub mod stages;
mod svg;
mod swift;
pub mod tasks;
pub mod wfformat;
mod words;
mod yaml;

pub use detect::{Format, HEAD_BYTES, detect};
pub use error::{Error, ErrorKind, Result, Status};
pub use makeflow_jx::JxArguments;
pub use model::{File, Machine, Measured, Run, Task, Use, Workflow};
pub use stages::{Pattern, Stages, stages};
pub use svg::svg;
pub use swift::SwiftArguments;
pub use tasks::{Options, TasksError, forget_places_of_results, from_arrays, to_list, to_specs};

use std::io::{Read, Write};
use std::path::Path;

/// The format of the file at `path`.
pub fn format_of(path: &Path) -> Result<Format> {
    let origin = path.display().to_string();
    let fail = |e| Error::io("read", "cannot read the workflow", e).origin(&origin);
    let mut head = vec![];
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(fail)?;
    detect(path, &head).map_err(|e| e.origin(&origin))
}

/// Reads the workflow in the file `path`, which is in `format`. Task lists are not read here, see
/// [`from_arrays`].
pub fn read(path: &Path, format: Format) -> Result<Workflow> {
    read_with(path, format, &Arguments::default())
}

/// What a user gives to the programs that some formats are.
#[derive(Default)]
pub struct Arguments {
    pub jx: JxArguments,
    pub swift: SwiftArguments,
}

/// The same, with what the user gives. What a Swift script prints goes to standard error.
pub fn read_with(path: &Path, format: Format, given: &Arguments) -> Result<Workflow> {
    let origin = path.display().to_string();
    let with_origin = |e: Error| e.origin(&origin);
    let bytes =
        std::fs::read(path).map_err(|e| with_origin(Error::io("read", "cannot read the workflow", e)))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() as u32 + 1;
        with_origin(Error::broken("the file is not UTF-8").at(line))
    })?;
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let mut print = |text: &str| {
        // A failure to print is no reason to end.
        let _ = eyas_text::stderr().write_all(text.as_bytes());
    };
    parse_with(format, &text, &stem, path.parent(), given, &mut print).map_err(with_origin)
}

/// Reads a workflow from `text`. A workflow without a name is called `stem`; `dir` is the folder in which
/// catalogs beside the file are looked for.
pub fn parse(format: Format, text: &str, stem: &str, dir: Option<&Path>) -> Result<Workflow> {
    parse_with(format, text, stem, dir, &Arguments::default(), &mut |_| {})
}

fn parse_with(
    format: Format,
    text: &str,
    stem: &str,
    dir: Option<&Path>,
    given: &Arguments,
    print: &mut dyn FnMut(&str),
) -> Result<Workflow> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::WfFormat => wfformat::parse(text, stem),
        Format::Pegasus => pegasus::parse(text, stem, dir),
        Format::Dax => dax::parse(text, stem),
        Format::Makeflow => makeflow::parse(text, stem, &|name| std::env::var(name).ok()),
        Format::Jx => makeflow_jx::parse(text, stem, &given.jx, &|name| std::env::var(name).ok(), dir),
        Format::Swift => swift::parse(text, stem, dir, &given.swift, print),
        Format::JsonLines | Format::Commands => {
            Err(Error::new(ErrorKind::Unsupported, "a task list is read by the reader of task lists"))
        }
    }
}
