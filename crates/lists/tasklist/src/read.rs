//! Task lists as JSON Lines: one task per line, blank lines allowed.
//!
//! Memory holds the folded form and the sets of ids and outputs. The text of a line is dropped when the next
//! line is read, unless an earlier task reads a directory that a later task may write.

use crate::contain;
use crate::error::{Error, ErrorKind, Result, shown};
use crate::line;
use crate::lines::Lines;
use crate::list::{Builder, Origin, Refused, TaskList};
use crate::location;
use crate::reduce;
use crate::several::Several;
use std::io::BufRead;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// What is read, for messages: a file's name or "standard input".
    pub origin: String,
    /// A task without an `id` gets this prefix and the number of its line.
    pub id_prefix: String,
    /// The tasks are added to a run, so other tasks may write the `run:` files that they read.
    pub is_addition: bool,
    /// The image of the container that tasks run in which name none.
    pub container: Option<String>,
    /// A longer line is refused, so that a wrong file (an image, say) is not read into memory as one line.
    pub line_bytes_max: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            origin: "task list".into(),
            id_prefix: String::new(),
            is_addition: false,
            container: None,
            line_bytes_max: 256 << 20,
        }
    }
}

/// Reads a whole task list; relative paths in it are taken from `base_dir`.
///
/// Gives the whole list or the first mistake, so nothing is started from a list that is broken further down.
pub fn read(reader: impl BufRead, base_dir: &Path, options: &ReadOptions) -> Result<TaskList> {
    let origin = |e: Error| e.origin(&options.origin);
    let base = location::base_text(base_dir).map_err(origin)?;
    let mut several = Several::new(base_dir, base.clone());
    let mut builder = Builder::new(base, &options.id_prefix);
    if options.is_addition {
        builder.has_others();
    }
    let mut lines = Lines::new(reader, options.line_bytes_max, "a task list");
    // Lines are kept from the first task on that reads a directory which no earlier task writes: a later task
    // may write it.
    let mut waiting: Vec<(u64, String)> = vec![];
    while let Some((number, text)) = lines.next().map_err(origin)? {
        if text.trim().is_empty() {
            continue;
        }
        let task = parse(text, number).map_err(origin)?;
        several.learn(&task);
        if !waiting.is_empty() || several.reads_directory(&task) {
            waiting.push((number, text.to_owned()));
            continue;
        }
        take(&mut builder, &mut several, options, task, text, number).map_err(origin)?;
    }
    for (number, text) in waiting {
        let task = parse(&text, number).map_err(origin)?;
        take(&mut builder, &mut several, options, task, &text, number).map_err(origin)?;
    }
    builder.expect(several.expected);
    builder.finish().map_err(origin)
}

/// Adds the task on a line, or the parts that it is split into.
fn take(
    builder: &mut Builder,
    several: &mut Several<'_>,
    options: &ReadOptions,
    mut task: line::Task<'_>,
    text: &str,
    number: u64,
) -> Result<()> {
    contain::drop_unwanted(&mut task);
    several.expand(&mut task, number).map_err(|refused| explain(refused, text, number))?;
    for mut task in reduce::expand(task, &options.id_prefix, number).map_err(|e| e.at(number, None))? {
        contain::contain(&mut task, options.container.as_deref()).map_err(|e| e.at(number, None))?;
        builder.add(&task, number).map_err(|refused| explain(refused, text, number))?;
    }
    Ok(())
}

fn parse(text: &str, number: u64) -> Result<line::Task<'_>> {
    line::parse(text).map_err(|e| {
        let column = e.column;
        e.at(number, column)
    })
}

pub(crate) fn explain(refused: Refused, text: &str, number: u64) -> Error {
    match refused {
        Refused::Bad { error, at } => {
            let offset = at.map(|at| (at as usize).wrapping_sub(text.as_ptr() as usize));
            // A copy (made for a string with escapes) lies outside the line and has no column.
            let before = offset.filter(|offset| *offset < text.len()).and_then(|offset| text.get(..offset));
            error.at(number, before.map(|before| before.chars().count() as u64 + 1))
        }
        Refused::SameId { id, first } => Error::new(
            ErrorKind::Conflict,
            format!("the id {} is taken by the task on line {}", shown(&id), first.number),
        )
        .hint("give each task an id of its own, or leave ids out")
        .field("id")
        .at(number, None),
        Refused::SamePromise { location, first } => {
            let way_out = "one of them adds the task that writes it; leave it out of the other";
            said_before(number, &first, &location, "promises", way_out).field("promises").at(number, None)
        }
        Refused::SameOutput { location, first } => {
            let way_out = "every output has one writer; give one of them another name";
            said_before(number, &first, &location, "writes", way_out).field("outputs").at(number, None)
        }
    }
}

/// The error for line `number`, whose task writes or promises (`does`) the same as the task at `first`, which
/// may be the same task.
fn said_before(number: u64, first: &Origin, location: &str, does: &str, way_out: &str) -> Error {
    let location = shown(location);
    if first.number == number {
        return Error::new(ErrorKind::Conflict, format!("the task {does} {location} twice"));
    }
    let (id, line) = (shown(&first.id), first.number);
    let message = format!("the task {does} {location}, and so does task {id} on line {line}");
    Error::new(ErrorKind::Conflict, message).hint(way_out)
}
