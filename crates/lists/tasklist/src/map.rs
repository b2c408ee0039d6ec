//! One command over many files, numbers, parameter values, or rows of a table.
//!
//! Holes: `{name}` is the input's file name, `{stem}` that without its ending, `{index}` the task's number;
//! `{in}`, `{in2}`, ... and `{out}`, `{out2}`, ... are names in the sandbox, for the command alone. `{}` is the first input, `{2}`
//! that of the second source, `{sample}` the value of a parameter or column of that name, each also with the signs of GNU
//! parallel (`{/}`, `{.}`, `{/.}`, `{//}`): in the command what stands for a file is its name in the sandbox, in an output its path.
//! A name that begins with a dash is given as `./-name`, and in a line for the shell every hole is quoted, so that any text is safe.
//!
//! An output has its file name as its name in the sandbox, too. If that name is taken (`in/a.txt` to
//! `out/a.txt`), `out-` is put before it. Over a range, that is done as soon as the names could be equal for
//! some number. An input whose name is taken gets `in2-` before it, with the number of its column. Where that is
//! longer than a file name may be, the name is cut before its ending; the file at home has its whole name.
//!
//! Tasks over sources become folded chunks as in [`crate::read`]. A range becomes one template without columns: ten million
//! tasks cost as much as one.
//!
//! Not here: files that a program opens on its own. The inputs are the files that are mapped over and those
//! named by `with`.

use crate::NAME_BYTES_MAX;
use crate::contain::{NOWHERE, drop_unwanted};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::file::File;
use crate::files::{self, ListInput};
use crate::line::Task;
use crate::list::{Builder, Refused, TaskList};
use crate::made;
use crate::rows::{self, Column, Name};
use crate::shell::LineQuotes;
use crate::spec::MapSpec;
use crate::template::{self, Hole, Holes, Part, Segment};
use crate::{glob, location};
use eyas_terms::array::{Command, NEW_NAME, Pattern, Piece, TaskArray, TaskForm, stem};
use eyas_terms::needs::Needs;
use std::borrow::Cow;
use std::ops::Range;

fn needs_of(spec: &MapSpec) -> Option<Box<Needs>> {
    (!spec.needs.is_empty()).then(|| Box::new(spec.needs.clone()))
}

/// The tasks of `spec`, over its paths and then those of `list`. A file that is named twice gets one task.
pub fn map(spec: &MapSpec, list: Option<ListInput<'_>>) -> Result<TaskList> {
    if spec.cpus == 0 {
        return Err(Error::invalid("a task needs at least 1 cpu").field("cpus"));
    }
    spec.needs.check().map_err(Error::invalid)?;
    if spec.command.is_empty() {
        return Err(Error::invalid("there is no command").hint("write it after `--`").field("command"));
    }
    // A program's name may contain spaces, but then the program exists.
    if let ([line], false) = (&spec.command[..], spec.shell)
        && line.contains(char::is_whitespace)
        && !spec.base_dir.join(line).exists()
    {
        return Err(Error::invalid(format!("there is no program {}", shown(line)))
            .hint("leave out the quotes around the whole command, or add --shell")
            .field("command"));
    }
    let base = location::base_text(&spec.base_dir)?;
    match &spec.range {
        Some(range) if spec.paths.is_empty() && spec.more.is_empty() && list.is_none() => {
            over_range(spec, range.clone(), &base)
        }
        Some(_) if spec.more.is_empty() => {
            Err(Error::invalid("a map is over files or over a range, not over both"))
        }
        Some(_) => Err(Error::invalid("a map is over a range or over other sources, not over both")
            .hint("a parameter can have numbers as its values, such as --param n=0..10")),
        None => over_sources(spec, list, &base),
    }
}

struct Templates {
    out: Vec<Vec<Segment<Hole>>>,
    command: Vec<Vec<Segment<Hole>>>,
}

/// The holes of a map over `columns`: those for its outputs, and those for its command.
fn holes(spec: &MapSpec, columns: &[Column]) -> (Holes<Hole>, Holes<Hole>) {
    let (mut out, mut inputs) = (Holes::default(), Holes::default());
    out.add_named("index", Hole::Index);
    let files: Vec<usize> = (0..columns.len()).filter(|c| columns[*c].is_file).collect();
    let hole = |column: usize, part: Part| Hole::Column { column, part };
    // The user's own names come before the built-in names.
    for (c, column) in columns.iter().enumerate() {
        if let Name::Text(name) = &column.name
            && !name.is_empty()
        {
            out.add_named(name, hole(c, Part::Whole));
            for (sign, part) in Part::SIGNS {
                out.add(format!("{name}{sign}"), hole(c, part));
            }
        }
    }
    if let Some(&first) = files.first() {
        out.add_named("stem", hole(first, Part::Stem));
        out.add_named("name", hole(first, Part::Name));
    }
    for (c, column) in columns.iter().enumerate() {
        if let Name::Number(n) = column.name {
            if columns.len() > 1 {
                out.add_named(n.to_string(), hole(c, Part::Whole));
            }
            for (sign, part) in Part::SIGNS {
                out.add(format!("{n}{sign}"), hole(c, part));
            }
        }
    }
    // `{}` means the first file, or the only column that there is.
    if let Some(main) = files.first().copied().or_else(|| (columns.len() == 1).then_some(0)) {
        for (sign, part) in Part::SIGNS {
            out.add(sign, hole(main, part));
        }
    }
    for (n, c) in files.iter().enumerate() {
        let name = if n == 0 { "in".to_owned() } else { format!("in{}", n + 1) };
        inputs.add_named(name, hole(*c, Part::Whole));
    }
    let mut command = out.clone();
    for name in inputs.names() {
        if let Some(hole) = inputs.get(name) {
            command.add_named(name, hole);
        }
    }
    for k in 0..spec.out.len() {
        let name = if k == 0 { "out".to_owned() } else { format!("out{}", k + 1) };
        command.add_named(name, Hole::Out(k));
    }
    (out, command)
}

/// The names of all holes that the command of `spec` may have.
pub fn hole_names(spec: &MapSpec, has_list: bool) -> Result<Vec<String>> {
    let columns = columns_of(spec, has_list)?;
    Ok(holes(spec, &columns).1.names().map(str::to_owned).collect())
}

fn columns_of(spec: &MapSpec, has_list: bool) -> Result<Vec<Column>> {
    match spec.range {
        Some(_) => Ok(vec![]),
        None => rows::columns(spec, has_list),
    }
}

fn parse_templates(spec: &MapSpec, columns: &[Column]) -> Result<Templates> {
    let (holes_of_out, holes) = holes(spec, columns);
    let out = spec
        .out
        .iter()
        .map(|text| template::parse("the output", text, &holes_of_out))
        .collect::<Result<_>>()?;
    let parse = |text: &String| {
        template::parse("the command's", text, &holes).map_err(|e| {
            let table = spec.paths.iter().find(|path| path.ends_with(".csv") || path.ends_with(".tsv"));
            match (spec.out.is_empty() && text.contains("{out"), table) {
                (true, _)
                    if spec.command.iter().any(|word| word == "--out" || word.starts_with("--out=")) =>
                {
                    e.hint("`--out` stands behind `--`, so it is a word of the command; write it before `--`")
                }
                (true, _) => e.hint("say where outputs go, like --out 'results/{name}'"),
                (false, Some(table)) => e.hint(format!(
                    "for a task from each row of the table, with holes of its columns' names: --{} {}",
                    &table[table.len() - 3..],
                    shown(table)
                )),
                (false, None) => e,
            }
        })
    };
    let command = match spec.shell {
        false => spec.command.iter().map(parse).collect::<Result<_>>()?,
        true => vec![parse(&spec.command.join(" "))?],
    };
    Ok(Templates { out, command })
}

/// Names in the sandbox and locations of the inputs that all tasks share.
fn common_inputs(spec: &MapSpec, base: &str) -> Result<Vec<(String, String)>> {
    let mut inputs: Vec<(String, String)> = vec![];
    for word in &spec.with {
        for input in files::shared(word, &spec.base_dir).map_err(|e| e.field("with"))? {
            // A pattern and a name may both mean the file.
            if !inputs.contains(&input) {
                inputs.push(input);
            }
        }
    }
    let of_container = spec.container.as_deref().map(made::container_files).transpose()?;
    for (name, at) in of_container.into_iter().flatten() {
        let mut location = String::new();
        location::push_location(&mut location, &at, base)?;
        inputs.push((name, location));
    }
    Ok(inputs)
}

/// Each combination is kept with its files, so a larger number is most likely a mistake.
const COMBINATIONS_MAX: u64 = 100_000_000;

fn over_sources(spec: &MapSpec, list: Option<ListInput<'_>>, base: &str) -> Result<TaskList> {
    let columns = rows::columns(spec, list.is_some())?;
    let templates = parse_templates(spec, &columns)?;
    let making = Making { spec, columns: &columns, templates, with: common_inputs(spec, base)?, base };
    let sources = rows::rows(spec, list, base)?;
    let n_tasks = sources.iter().try_fold(1u64, |n, source| n.checked_mul(source.rows.len() as u64));
    let Some(n_tasks) = n_tasks.filter(|n| *n <= COMBINATIONS_MAX) else {
        let numbers: Vec<String> = sources.iter().map(|source| source.rows.len().to_string()).collect();
        let message = format!(
            "the sources have {} combinations; at most {COMBINATIONS_MAX} can be one run",
            numbers.join(" × ")
        );
        return Err(Error::invalid(message).hint("`:::+` takes files pair by pair instead"));
    };
    // The last source changes from task to task.
    let rows_of = |index: u64| -> Vec<usize> {
        let mut rest = index;
        let mut rows: Vec<usize> = vec![0; sources.len()];
        for (row, source) in rows.iter_mut().zip(&sources).rev() {
            *row = (rest % source.rows.len() as u64) as usize;
            rest /= source.rows.len() as u64;
        }
        rows
    };
    let over_one_file = columns.len() == 1 && columns[0].is_file;
    // The name of a task in messages.
    let called = |index: u64| -> String {
        let rows = rows_of(index);
        let of = sources.iter().zip(rows);
        match over_one_file {
            true => of.map(|(source, row)| source.rows[row][0].clone()).collect(),
            false => of.map(|(source, row)| source.ids[row].as_str()).collect::<Vec<_>>().join(","),
        }
    };
    let mut builder = Builder::new(base.into(), &spec.id_prefix);
    for index in 0..n_tasks {
        let rows = rows_of(index);
        let texts = sources.iter().zip(&rows).flat_map(|(source, row)| &source.rows[*row]);
        let texts: Vec<Text<'_>> =
            columns.iter().zip(texts).map(|(c, text)| Text::of(c, text, base)).collect();
        let ids: Vec<&str> = sources.iter().zip(&rows).map(|(s, row)| s.ids[*row].as_str()).collect();
        let this = || called(index);
        let mut task = making.task(texts, &ids.join(","), index).map_err(|e| in_task_of(&this(), e))?;
        drop_unwanted(&mut task);
        builder.add(&task, index).map_err(|refused| match refused {
            Refused::Bad { error, .. } => in_task_of(&this(), error),
            Refused::SameId { id, .. } => {
                Error::new(ErrorKind::Conflict, format!("two tasks have the id {}", shown(&id)))
            }
            // These tasks promise nothing.
            Refused::SamePromise { location, .. } => {
                Error::new(ErrorKind::Conflict, format!("{} is promised twice", shown(&location)))
            }
            Refused::SameOutput { location: output, first } if first.number == index => Error::new(
                ErrorKind::Conflict,
                format!("two outputs of the task for {} are {}", shown(&this()), shown(&output)),
            ),
            Refused::SameOutput { location: output, first } => {
                let what = if over_one_file { "inputs" } else { "tasks" };
                let (one, other) = (called(first.number), this());
                let message = format!(
                    "two {what} give one output {}: {} and {}",
                    shown(&output),
                    shown(&one),
                    shown(&other)
                );
                Error::new(ErrorKind::Conflict, message).hint(match over_one_file {
                    true => "use {name} or {index} in the output, so that each input has its own",
                    false => {
                        "use a hole of each source in the output, or {index}, so that each task has its own"
                    }
                })
            }
        })?;
    }
    builder.finish()
}

/// The text of one column in one task, in the forms that holes use.
struct Text<'a> {
    /// A file's canonical location; `None`: the text is no file.
    location: Option<&'a str>,
    /// A file's path as seen from the folder where the map was given; or the text itself.
    path: &'a str,
    name: Cow<'a, str>,
    /// A file's name in the sandbox.
    inside: String,
}

impl<'a> Text<'a> {
    fn of(column: &Column, text: &'a str, base: &str) -> Text<'a> {
        let inside = String::new();
        if column.is_file {
            let name = location::file_name(text);
            return Text { location: Some(text), path: location::path_of(text, base), name, inside };
        }
        let name = text.rsplit('/').next().unwrap_or(text);
        Text { location: None, path: text, name: name.into(), inside }
    }

    /// The text for a hole; `in_command`: a file's name in the sandbox is used in place of its path.
    /// Whether this part is taken from the text of a URL as it is; names of files are decoded.
    fn is_encoded(&self, part: Part) -> bool {
        let is_name = matches!(part, Part::Name | Part::Stem | Part::NameNoEnding);
        !is_name && self.location.is_some_and(location::is_url)
    }

    /// Whether this part begins with the name of a file or of a folder, whatever that looks like.
    fn is_of_file(&self, part: Part) -> bool {
        let is_name = matches!(part, Part::Name | Part::Stem | Part::NameNoEnding);
        self.location.is_some_and(|location| is_name || location.starts_with('/'))
    }

    fn part(&self, part: Part, in_command: bool) -> String {
        let whole = |text: &str| match self.location {
            Some(_) if in_command => dashed(text),
            _ => text.to_owned(),
        };
        let text = if in_command && self.location.is_some() { &self.inside } else { self.path };
        match part {
            Part::Whole => whole(text),
            Part::NoEnding => whole(without_ending(text)),
            Part::Name => self.name.clone().into_owned(),
            Part::Stem => stem(&self.name).to_owned(),
            Part::NameNoEnding => without_ending(&self.name).to_owned(),
            Part::Folder => match self.path.rsplit_once('/') {
                Some(("", _)) => "/".to_owned(),
                Some((folder, _)) => folder.to_owned(),
                None => ".".to_owned(),
            },
        }
    }
}

/// `path` without the ending of its file name: `a/b.tar.gz` gives `a/b.tar`, `a.b/c` and `.profile` stay.
fn without_ending(path: &str) -> &str {
    let name_at = path.rfind('/').map_or(0, |at| at + 1);
    match path[name_at..].rfind('.') {
        Some(at) if at > 0 => &path[..name_at + at],
        _ => path,
    }
}

/// The common parts of all tasks of a map.
struct Making<'a> {
    spec: &'a MapSpec,
    columns: &'a [Column],
    templates: Templates,
    with: Vec<(String, String)>,
    base: &'a str,
}

impl Making<'_> {
    /// Makes the task for one combination.
    fn task<'t>(&'t self, mut texts: Vec<Text<'t>>, id: &str, index: u64) -> Result<Task<'t>> {
        let Making { spec, templates, with, base, .. } = self;
        let mut inputs: Vec<File<'t>> = vec![];
        for (column, text) in texts.iter_mut().enumerate() {
            let Some(location) = text.location else { continue };
            // A file that appears twice is one input.
            if let Some(same) = inputs.iter().find(|f| f.location == location) {
                text.inside = same.name.as_deref().unwrap_or_default().to_owned();
                continue;
            }
            let is_taken = |name: &str| inputs.iter().any(|f| f.name.as_deref() == Some(name));
            text.inside = apart(&format!("in{}-", column + 1), &text.name, &is_taken);
            inputs.push(File { name: Some(text.inside.clone().into()), location: Cow::Borrowed(location) });
        }
        for (name, location) in with {
            if inputs.iter().any(|f| f.location == *location && f.name.as_deref() == Some(name)) {
                continue;
            }
            inputs.push(File { name: Some(Cow::Borrowed(name)), location: Cow::Borrowed(location) });
        }
        let value = |hole: Hole| match hole {
            Hole::Column { column, part } => texts[column].part(part, false),
            _ => index.to_string(),
        };
        let mut outputs: Vec<File<'t>> = Vec::with_capacity(templates.out.len());
        for (k, template) in templates.out.iter().enumerate() {
            let mut location = String::new();
            let text = match template::fill(template, &|_| String::new()) {
                bare if location::is_url(&bare) => template::fill(template, &|hole| match hole {
                    // It is a part of a URL already.
                    Hole::Column { column, part } if texts[column].is_encoded(part) => value(hole),
                    _ => encoded(&value(hole)),
                }),
                _ => template::fill(template, &value),
            };
            let begins_with_name = matches!(template.first(), Some(Segment::Hole(Hole::Column { column, part }))
                if texts[*column].is_of_file(*part));
            let text = if begins_with_name { glob::as_file(text) } else { text };
            self.require_name(k, &value)?;
            self.require_below(k, &texts, &value)?;
            location::push_location(&mut location, &text, base)?;
            let is_taken =
                |name: &str| inputs.iter().chain(&outputs).any(|f| f.name.as_deref() == Some(name));
            let name = match spec.is_all_new(k) {
                true => NEW_NAME.to_owned(),
                false => apart("out-", &location::file_name(&location), &is_taken),
            };
            outputs.push(File { name: Some(name.into()), location: location.into() });
        }
        let word = |hole: Hole| match hole {
            Hole::Out(k) => dashed(outputs[k].name.as_deref().unwrap_or_default()),
            Hole::Column { column, part } => texts[column].part(part, true),
            Hole::Index => index.to_string(),
        };
        let fill = if spec.shell { template::fill_line } else { template::fill };
        let mut words = templates.command.iter().map(|t| Cow::Owned(fill(t, &word)));
        let command = match spec.shell {
            true => Command::Shell(words.next().unwrap_or_default()),
            false => Command::Exec(words.collect()),
        };
        Ok(Task {
            id: Some(Cow::Owned(format!("{}{id}", spec.id_prefix))),
            inputs,
            outputs,
            cpus: spec.cpus,
            needs: needs_of(spec),
            memory_bytes: spec.memory_bytes,
            walltime_ns: spec.walltime_ns,
            retries: spec.retries,
            priority: spec.priority,
            label: Cow::Borrowed(&spec.label),
            ..Task::new(command)
        })
    }

    /// Refuses output `k` if nothing but empty texts stands for its last part: it would be the folder above.
    fn require_name(&self, k: usize, value: &dyn Fn(Hole) -> String) -> Result<()> {
        let marked = template::fill(&self.templates.out[k], &|hole| format!("{MARK}{}", value(hole)));
        let own = marked.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if own.is_empty() || own.contains(|c| c != '\u{1}') {
            return Ok(());
        }
        let empty = self.templates.out[k].iter().rev().find_map(|segment| match segment {
            Segment::Hole(Hole::Column { column, .. }) => Some(&self.columns[*column].name),
            _ => None,
        });
        let why = match empty {
            Some(Name::Text(name)) => format!("{} is empty", shown(name)),
            _ => "the name of its file is empty".to_owned(),
        };
        let out = shown(&self.spec.out[k]);
        Err(Error::invalid(format!("{why} there, and the output {out} would be a whole folder")).hint(
            "fill the cell or leave the row out, or let the output's last part hold more, such as r-{index}",
        ))
    }
}

impl Making<'_> {
    /// Refuses output `k` if `..` in its holes leads out of the folder that its template names. The paths of files that are mapped over
    /// lead anywhere where they begin the template, and so does a hole that is the whole template: then the user says so. A hole at the
    /// beginning may hold an absolute path or a URL.
    fn require_below(&self, k: usize, texts: &[Text<'_>], value: &dyn Fn(Hole) -> String) -> Result<()> {
        let template = &self.templates.out[k];
        let is_free = match template.first() {
            Some(Segment::Hole(Hole::Column { column, .. })) => {
                template.len() == 1 || texts[*column].location.is_some()
            }
            _ => false,
        };
        // `{a}/x` names a folder of the root where `a` is empty, which no value says.
        let mut leads_out = match template.first() {
            Some(Segment::Hole(hole)) if template.len() > 1 && value(*hole).is_empty() => {
                Some(*hole).filter(|_| template::fill(template, value).starts_with('/'))
            }
            _ => None,
        };
        // The last part of the path so far, and a hole that a piece of it is from.
        let (mut part, mut of) = (String::new(), None);
        for (n, segment) in template.iter().enumerate() {
            let (text, hole) = match segment {
                Segment::Text(text) => (text.clone(), None),
                Segment::Hole(hole) => (value(*hole), Some(*hole).filter(|_| n > 0 || !is_free)),
            };
            for (n, piece) in text.split('/').enumerate() {
                if n > 0 {
                    leads_out = leads_out.or(of.filter(|_| part == ".."));
                    (part, of) = (String::new(), None);
                }
                part.push_str(piece);
                of = if piece.is_empty() { of } else { hole.or(of) };
            }
        }
        leads_out = leads_out.or(of.filter(|_| part == ".."));
        let Some(hole) = leads_out else { return Ok(()) };
        let out = shown(&self.spec.out[k]);
        let message = format!("{} leads out of the folder that the output {out} names", shown(&value(hole)));
        Err(Error::invalid(message).hint(
            "write `..` in the output itself; where a column holds whole paths, it is the whole output, as --out '{COLUMN}'",
        ))
    }
}

/// A longer ending of a name is not kept where the name is shortened.
const ENDING_BYTES_MAX: usize = 64;

/// What stays of an ending where a name is shortened.
fn kept(ending: &str) -> &str {
    if ending.len() > ENDING_BYTES_MAX { "" } else { ending }
}

/// The most bytes that a name can have, over all numbers.
fn longest(name: &Pattern) -> usize {
    let bytes = |piece: &Piece| match piece {
        Piece::Literal(text) => text.len(),
        _ => INDEX_DIGITS_MAX,
    };
    name.0.iter().map(bytes).sum()
}

/// Digits of the largest number that a range may have.
const INDEX_DIGITS_MAX: usize = 20;

/// A name in the sandbox that is not taken: `own`, with `word` before it as often as it takes.
fn apart(word: &str, own: &str, is_taken: &dyn Fn(&str) -> bool) -> String {
    let mut name = own.to_owned();
    for n in 1.. {
        if !is_taken(&name) {
            break;
        }
        let mut before = match n {
            1..=8 => word.repeat(n),
            _ => format!("{n}-{word}"),
        };
        let room = NAME_BYTES_MAX - before.len();
        if own.len() <= room {
            before.push_str(own);
        } else {
            let without = without_ending(own);
            let ending = kept(&own[without.len()..]);
            let mut end = (room - ending.len()).min(without.len());
            while !own.is_char_boundary(end) {
                end -= 1;
            }
            before.push_str(&own[..end]);
            before.push_str(ending);
        }
        name = before;
    }
    name
}

fn in_task_of(location: &str, error: Error) -> Error {
    let with_place = Error::new(error.kind, format!("the task for {}: {}", shown(location), error.message));
    match &error.hint {
        Some(hint) => with_place.hint(hint.as_str()),
        None => with_place,
    }
}

/// `name` as a path that no program mistakes for an option.
pub(crate) fn dashed(name: &str) -> String {
    if name.starts_with('-') { format!("./{name}") } else { name.into() }
}

fn over_range(spec: &MapSpec, range: Range<u64>, base: &str) -> Result<TaskList> {
    let n_tasks = range.end.saturating_sub(range.start);
    if n_tasks == 0 {
        return Err(Error::invalid(format!("the range {}..{} is empty", range.start, range.end)));
    }
    if n_tasks > RANGE_TASKS_MAX {
        let message = format!(
            "the range {}..{} is {n_tasks} tasks, and at most {RANGE_TASKS_MAX} can be one run",
            range.start, range.end
        );
        return Err(Error::invalid(message).hint("let each task do more, or map parts of the range"));
    }
    let templates = parse_templates(spec, &[])?;
    let with = common_inputs(spec, base)?;

    // One task goes through the checks of any list; the numbers do not change their result.
    let sample: Vec<Pattern> =
        templates.out.iter().map(|t| location_pattern(t, base)).collect::<Result<_>>()?;
    for (k, out) in sample.iter().enumerate() {
        if is_unwanted(out) {
            continue;
        }
        let has_index = out.0.contains(&Piece::Index);
        if !has_index && n_tasks > 1 {
            let message = format!(
                "tasks {} and {} write one output {}",
                range.start,
                range.start + 1,
                shown(&spec.out[k])
            );
            return Err(Error::new(ErrorKind::Conflict, message).hint("use {index} in the output"));
        }
        if let Some(other) = (0..k).find(|j| !is_unwanted(&sample[*j]) && may_meet(&sample[*j], out)) {
            let message = format!(
                "the outputs {} and {} may be one file for some numbers",
                shown(&spec.out[other]),
                shown(&spec.out[k])
            );
            return Err(Error::new(ErrorKind::Conflict, message)
                .hint("put them into different directories, or give them different endings"));
        }
        if let Some((_, input)) = with.iter().find(|(_, input)| may_meet(&Pattern::literal(input), out)) {
            let message = format!("the output {} may be the input {}", shown(&spec.out[k]), shown(input));
            return Err(Error::new(ErrorKind::Conflict, message).hint("write the output to another place"));
        }
    }

    let literal = |text: &str| Pattern::literal(text);
    let inputs: Vec<(Pattern, Pattern)> = with.iter().map(|(n, l)| (literal(n), literal(l))).collect();
    let name_of = |(k, location)| if spec.is_all_new(k) { literal(NEW_NAME) } else { name_of(location) };
    let mut names: Vec<Pattern> = sample.iter().enumerate().map(name_of).collect();
    for (k, whole) in sample.iter().enumerate() {
        let meets = |name: &Pattern, others: &[Pattern]| {
            inputs.iter().map(|(n, _)| n).chain(others).any(|other| may_meet(other, name))
        };
        let (before, this) = names.split_at_mut(k);
        // This ends: the prefix contains no digit, so only a name that begins with it can still be equal.
        while meets(&this[0], before) {
            this[0].0.insert(0, Piece::Literal("out-".into()));
            this[0] = joined(&this[0]);
            // A task has one number, so its sandbox can do without.
            if longest(&this[0]) > NAME_BYTES_MAX {
                let ending = match whole.0.last() {
                    Some(Piece::Literal(text)) => text.rfind('.').map_or("", |at| kept(&text[at..])),
                    _ => "",
                };
                this[0] = literal(&format!("out-{}{ending}", k + 1));
            }
        }
    }
    let words: Vec<Pattern> = templates.command.iter().map(|t| word_pattern(t, &names, spec.shell)).collect();
    let command = match (spec.shell, words) {
        (true, words) => Command::Shell(words.into_iter().next().unwrap_or_default()),
        (false, words) => Command::Exec(words),
    };
    let mut id = Vec::new();
    if !spec.id_prefix.is_empty() {
        id.push(Piece::Literal(spec.id_prefix.clone()));
    }
    id.push(Piece::Index);
    let template = TaskForm {
        id: Pattern(id),
        command,
        inputs,
        outputs: names.into_iter().zip(sample).filter(|(_, at)| !is_unwanted(at)).collect(),
        env: Vec::new(),
        cpus: spec.cpus,
        memory_bytes: spec.memory_bytes,
        walltime_ns: spec.walltime_ns,
        retries: spec.retries,
        priority: spec.priority,
        label: spec.label.clone(),
        dynamic: false,
        hints: Default::default(),
        promises: Vec::new(),
    };
    let mut arrays = Vec::new();
    let mut first_index = range.start;
    while first_index < range.end {
        let n_tasks = u32::try_from(range.end - first_index).unwrap_or(u32::MAX);
        arrays.push(TaskArray {
            n_tasks,
            first_index,
            template: template.clone(),
            columns: Vec::new(),
            needs: needs_of(spec),
        });
        first_index += u64::from(n_tasks);
    }
    check_first(&arrays[0], base)?;
    Ok(TaskList { arrays, n_tasks, n_dependencies: 0 })
}

fn is_unwanted(location: &Pattern) -> bool {
    *location == Pattern::literal(NOWHERE)
}

/// Checks the first task of a range like every task: names in the sandbox, blank commands, NUL.
fn check_first(array: &TaskArray, base: &str) -> Result<()> {
    let task = array.expand(0);
    let file = |(name, location): &(String, String)| File {
        name: Some(name.clone().into()),
        location: location.clone().into(),
    };
    let task = Task {
        id: Some(task.id.into()),
        command: match task.command {
            Command::Exec(argv) => Command::Exec(argv.into_iter().map(Cow::Owned).collect()),
            Command::Shell(line) => Command::Shell(line.into()),
        },
        inputs: task.inputs.iter().map(file).collect(),
        outputs: task.outputs.iter().map(file).collect(),
        env: Vec::new(),
        container: None,
        cpus: task.cpus,
        needs: array.needs.clone(),
        memory_bytes: task.memory_bytes,
        walltime_ns: task.walltime_ns,
        retries: task.retries,
        priority: task.priority,
        label: task.label.into(),
        dynamic: task.dynamic,
        hints: task.hints,
        promises: Vec::new(),
        reduce: None,
    };
    let mut builder = Builder::new(base.into(), "");
    builder.add(&task, 0).map_err(|refused| match refused {
        Refused::Bad { error, .. } => error,
        Refused::SameId { id: text, .. }
        | Refused::SameOutput { location: text, .. }
        | Refused::SamePromise { location: text, .. } => {
            Error::new(ErrorKind::Conflict, format!("{} is there twice", shown(&text)))
        }
    })?;
    builder.finish().map(drop)
}

/// The limit on tasks of a range. They are folded, but an array has at most 2³² tasks and a copy of the
/// template.
const RANGE_TASKS_MAX: u64 = 1_000_000_000_000;
/// Stands for the index while a template is parsed as a location; no location that is typed contains it.
const MARK: &str = "\u{1}";
/// The form of the mark in a URL.
const MARK_IN_URL: &str = "%01";

/// What a hole gives, as a part of a URL: its marks mean themselves.
fn encoded(text: &str) -> String {
    text.replace('%', "%25").replace('?', "%3F").replace('&', "%26")
}

fn location_pattern(template: &[Segment<Hole>], base: &str) -> Result<Pattern> {
    let n_holes = template.iter().filter(|s| matches!(s, Segment::Hole(_))).count();
    let mut location = String::new();
    location::push_location(&mut location, &template::fill(template, &|_| MARK.into()), base)?;
    let mark = if location::is_url(&location) { MARK_IN_URL } else { MARK };
    let pattern = split_at_marks(&location, mark);
    if pattern.0.iter().filter(|p| **p == Piece::Index).count() != n_holes {
        return Err(Error::invalid(format!("the output {} holds a control character", shown(&location))));
    }
    Ok(pattern)
}

/// The file name at the end of a location.
fn name_of(location: &Pattern) -> Pattern {
    let text: String = location
        .0
        .iter()
        .map(|piece| match piece {
            Piece::Literal(text) => text.as_str(),
            _ => MARK,
        })
        .collect();
    split_at_marks(&location::file_name(&text), MARK)
}

/// `text` with the index in place of each `mark`.
fn split_at_marks(text: &str, mark: &str) -> Pattern {
    let mut pieces = Vec::new();
    for (i, text) in text.split(mark).enumerate() {
        if i > 0 {
            pieces.push(Piece::Index);
        }
        if !text.is_empty() {
            pieces.push(Piece::Literal(text.into()));
        }
    }
    Pattern(pieces)
}

fn word_pattern(template: &[Segment<Hole>], names: &[Pattern], shell: bool) -> Pattern {
    let (mut pieces, mut quotes) = (Vec::new(), LineQuotes::default());
    for segment in template {
        match segment {
            Segment::Text(text) => {
                quotes.pass(text);
                pieces.push(Piece::Literal(text.clone()));
            }
            Segment::Hole(Hole::Out(k)) => {
                let name = &names[*k];
                if matches!(name.0.first(), Some(Piece::Literal(text)) if text.starts_with('-')) {
                    pieces.push(Piece::Literal("./".into()));
                }
                // Digits need no quotes, so quoting each piece quotes the whole.
                pieces.extend(name.0.iter().map(|piece| match piece {
                    Piece::Literal(text) if shell => Piece::Literal(quotes.word(text)),
                    piece => piece.clone(),
                }));
            }
            Segment::Hole(_) => pieces.push(Piece::Index),
        }
    }
    joined(&Pattern(pieces))
}

/// The same pattern with neighbouring literals joined.
fn joined(pattern: &Pattern) -> Pattern {
    let mut pieces: Vec<Piece> = Vec::new();
    for piece in &pattern.0 {
        match (pieces.last_mut(), piece) {
            (Some(Piece::Literal(text)), Piece::Literal(more)) => text.push_str(more),
            (_, piece) => pieces.push(piece.clone()),
        }
    }
    Pattern(pieces)
}

/// Whether two patterns could give the same string, for any numbers. `true` may be wrong, `false` never is.
fn may_meet(a: &Pattern, b: &Pattern) -> bool {
    fn text(piece: Option<&Piece>) -> &str {
        match piece {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }
    fn ends(pattern: &Pattern) -> (&str, &str) {
        (text(pattern.0.first()), text(pattern.0.last()))
    }
    let is_text = |p: &Pattern| !p.0.contains(&Piece::Index);
    let ((head_a, tail_a), (head_b, tail_b)) = (ends(a), ends(b));
    match (is_text(a), is_text(b)) {
        (true, true) => head_a == head_b,
        (true, false) => {
            // Between its ends, one number begins and one ends.
            let between = head_a.strip_prefix(head_b).and_then(|rest| rest.strip_suffix(tail_b));
            let is_digit = |c: char| c.is_ascii_digit();
            between.is_some_and(|rest| rest.starts_with(is_digit) && rest.ends_with(is_digit))
        }
        (false, true) => may_meet(b, a),
        (false, false) => {
            // Where one literal continues, the other has digits of its number.
            let heads = head_a.strip_prefix(head_b).or_else(|| head_b.strip_prefix(head_a));
            let tails = tail_a.strip_suffix(tail_b).or_else(|| tail_b.strip_suffix(tail_a));
            let is_digit = |c: char| c.is_ascii_digit();
            let heads = heads.is_some_and(|more| more.is_empty() || more.starts_with(is_digit));
            let tails = tails.is_some_and(|more| more.is_empty() || more.ends_with(is_digit));
            heads && tails
        }
    }
}
