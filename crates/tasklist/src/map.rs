//! One command over many files, or over a range of numbers.
//!
//! Holes: `{name}` is the input's file name, `{stem}` that without its ending, `{index}` the task's number;
//! `{in}` and `{out}`, `{out2}`, ... are names in the sandbox, for the command alone. A name that begins with a
//! dash is given as `./-name`, and in a line for the shell every hole is quoted, so that any file name is safe.
//!
//! An output has its file name as its name in the sandbox too; where that is taken (`in/a.txt` to `out/a.txt`),
//! `out-` is put before it. Over a range that is done as soon as the names could meet for some number.
//!
//! Files become folded chunks as in [`crate::read`]. A range becomes one template without columns: ten million
//! tasks cost as much as one.
//!
//! Not here: which files a program opens on its own. Inputs are what is mapped over and what `with` names.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::glob;
use crate::line::{File, Task};
use crate::list::{Builder, Refused, TaskList};
use crate::location;
use crate::template::{self, Hole, Segment, quoted};
use eyas_core::array::{Command, Pattern, Piece, TaskArray, TaskForm, stem};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What `eyas map` was asked for.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// Paths, URLs and patterns; one task for each file. A path that exists is never read as a pattern.
    pub paths: Vec<String>,
    /// One task for each number instead.
    pub range: Option<Range<u64>>,
    /// Further inputs of every task, under their file names.
    pub with: Vec<String>,
    /// Templates of the outputs' locations: `{name}`, `{stem}`, `{index}`.
    pub out: Vec<String>,
    /// Templates of the command's words: `{in}`, `{out}`, `{out2}`, ..., `{name}`, `{stem}`, `{index}`.
    pub command: Vec<String>,
    /// Join the words with spaces and hand them to the shell.
    pub shell: bool,
    /// A task's id is this and its input, or its number in a range.
    pub id_prefix: String,
    /// At least 1.
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    pub retries: u32,
    pub priority: i32,
    pub label: String,
    /// Relative paths are taken from here.
    pub base_dir: PathBuf,
}

impl Default for MapSpec {
    fn default() -> MapSpec {
        MapSpec {
            paths: Vec::new(),
            range: None,
            with: Vec::new(),
            out: Vec::new(),
            command: Vec::new(),
            shell: false,
            id_prefix: String::new(),
            cpus: 1,
            memory_bytes: None,
            walltime_ns: None,
            retries: 0,
            priority: 0,
            label: String::new(),
            base_dir: ".".into(),
        }
    }
}

/// Paths that come from a file or from standard input, one a line; patterns are not looked for in them.
pub struct ListInput<'a> {
    pub reader: &'a mut dyn BufRead,
    /// For messages.
    pub origin: &'a str,
    /// They end in NUL bytes, not in line ends (`find -print0`).
    pub ends_in_nul: bool,
}

/// The tasks of `spec`, over its paths and then those of `list`. A file that is named twice has one task.
pub fn map(spec: &MapSpec, list: Option<ListInput<'_>>) -> Result<TaskList> {
    if spec.cpus == 0 {
        return Err(Error::invalid("a task needs at least 1 cpu").field("cpus"));
    }
    if spec.command.is_empty() {
        return Err(Error::invalid("there is no command").hint("write it after `--`").field("command"));
    }
    // A program's name may hold spaces, but then it is there.
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
        Some(range) if spec.paths.is_empty() && list.is_none() => over_range(spec, range.clone(), &base),
        Some(_) => Err(Error::invalid("a map is over files or over a range, not over both")),
        None => over_files(spec, list, &base),
    }
}

struct Templates {
    out: Vec<Vec<Segment>>,
    command: Vec<Vec<Segment>>,
}

fn parse_templates(spec: &MapSpec) -> Result<Templates> {
    let has_files = spec.range.is_none();
    let mut holes = vec![Hole::Index];
    if has_files {
        holes.extend([Hole::Stem, Hole::Name]);
    }
    let out =
        spec.out.iter().map(|text| template::parse("the output", text, &holes)).collect::<Result<_>>()?;
    if has_files {
        holes.push(Hole::In);
    }
    holes.extend((0..spec.out.len()).map(Hole::Out));
    let parse = |text: &String| {
        template::parse("the command's", text, &holes).map_err(|e| {
            match spec.out.is_empty() && text.contains("{out") {
                true => e.hint("say where outputs go, like --out 'results/{name}'"),
                false => e,
            }
        })
    };
    let command = match spec.shell {
        false => spec.command.iter().map(parse).collect::<Result<_>>()?,
        true => vec![parse(&spec.command.join(" "))?],
    };
    Ok(Templates { out, command })
}

/// Locations and names in the sandbox of the inputs that all tasks share.
fn common_inputs(spec: &MapSpec, base: &str) -> Result<Vec<(String, String)>> {
    let read = |path: &String| {
        let found = literal_path(path, &spec.base_dir).map_err(|e| e.field("with"))?;
        let mut location = String::new();
        location::push_location(&mut location, found, base)?;
        Ok((location::file_name(&location).into_owned(), location))
    };
    spec.with.iter().map(read).collect()
}

/// A path that must exist as a file, or a URL.
fn literal_path<'p>(path: &'p str, base: &Path) -> Result<&'p str> {
    if location::split_scheme(path).is_some() {
        return Ok(path);
    }
    match fs::metadata(base.join(path)) {
        Ok(meta) if meta.is_dir() => Err(Error::invalid(format!("{} is a directory", shown(path)))
            .hint(format!("write '{}/*' for the files in it", path.trim_end_matches('/')))),
        Ok(_) => Ok(path),
        Err(e) => Err(Error::io(format!("cannot find {}", shown(path)), e)),
    }
}

fn over_files(spec: &MapSpec, list: Option<ListInput<'_>>, base: &str) -> Result<TaskList> {
    let templates = parse_templates(spec)?;
    let with = common_inputs(spec, base)?;
    let files = find_files(spec, list, base)?;
    let mut builder = Builder::new(base.into(), &spec.id_prefix);
    for (index, location) in files.iter().enumerate() {
        let task = file_task(spec, &templates, &with, location, index, base)?;
        builder.add(&task, index as u64).map_err(|refused| match refused {
            Refused::Bad { error, .. } => in_task_of(location, error),
            Refused::SameId { id, .. } => {
                Error::new(ErrorKind::Conflict, format!("two tasks have the id {}", shown(&id)))
            }
            // These tasks promise nothing.
            Refused::SamePromise { location, .. } => {
                Error::new(ErrorKind::Conflict, format!("{} is promised twice", shown(&location)))
            }
            Refused::SameOutput { location: output, first } if first.number == index as u64 => Error::new(
                ErrorKind::Conflict,
                format!("two outputs of the task for {} are {}", shown(location), shown(&output)),
            ),
            Refused::SameOutput { location: output, first } => Error::new(
                ErrorKind::Conflict,
                format!(
                    "two inputs give one output {}: {} and {}",
                    shown(&output),
                    shown(&files[first.number as usize]),
                    shown(location)
                ),
            )
            .hint("use {name} or {index} in the output, so that each input has its own"),
        })?;
    }
    builder.finish()
}

fn in_task_of(location: &str, error: Error) -> Error {
    let with_place = Error::new(error.kind, format!("the task for {}: {}", shown(location), error.message));
    match &error.hint {
        Some(hint) => with_place.hint(hint.as_str()),
        None => with_place,
    }
}

/// Canonical locations of all files, each once, in the order in which they were asked for.
fn find_files(spec: &MapSpec, list: Option<ListInput<'_>>, base: &str) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    let mut add = |path: &str| -> Result<()> {
        let mut location = String::new();
        location::push_location(&mut location, path, base)?;
        if seen.insert(location.clone()) {
            files.push(location);
        }
        Ok(())
    };
    for path in &spec.paths {
        let is_pattern = glob::has_wildcard(path)
            && location::split_scheme(path).is_none()
            && fs::symlink_metadata(spec.base_dir.join(path)).is_err();
        if is_pattern {
            for found in glob::glob(path, &spec.base_dir)? {
                add(&found)?;
            }
        } else {
            add(literal_path(path, &spec.base_dir)?)?;
        }
    }
    if let Some(list) = list {
        read_list(list, &mut |path| add(literal_path(path, &spec.base_dir)?))?;
    }
    if files.is_empty() {
        return Err(
            Error::new(ErrorKind::NotFound, "there are no input files").hint("name files, or use a range")
        );
    }
    Ok(files)
}

fn read_list(list: ListInput<'_>, add: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let end = if list.ends_in_nul { 0 } else { b'\n' };
    let mut buffer = Vec::new();
    let mut number = 0;
    loop {
        buffer.clear();
        number += 1;
        let at = |e: Error| e.origin(list.origin).at(number, None);
        if list.reader.read_until(end, &mut buffer).map_err(|e| at(Error::io("cannot read the list", e)))?
            == 0
        {
            return Ok(());
        }
        if buffer.last() == Some(&end) {
            buffer.pop();
        }
        match std::str::from_utf8(&buffer) {
            Ok("") => {}
            Ok(path) => add(path).map_err(at)?,
            Err(_) => {
                let name = shown(&String::from_utf8_lossy(&buffer));
                return Err(at(Error::invalid(format!(
                    "the name {name} is not UTF-8, so no task could name it"
                ))));
            }
        }
    }
}

/// The task for one input, written out.
fn file_task<'a>(
    spec: &'a MapSpec,
    templates: &Templates,
    with: &'a [(String, String)],
    input: &'a str,
    index: usize,
    base: &str,
) -> Result<Task<'a>> {
    let name = location::file_name(input);
    let value = |hole: Hole| match hole {
        Hole::Stem => stem(&name).to_owned(),
        Hole::Index => index.to_string(),
        _ => name.clone().into_owned(),
    };
    let mut inputs = vec![File { name: Some(name.clone()), location: Cow::Borrowed(input) }];
    for (name, location) in with {
        inputs.push(File { name: Some(Cow::Borrowed(name)), location: Cow::Borrowed(location) });
    }
    let mut outputs: Vec<File<'a>> = Vec::with_capacity(templates.out.len());
    for template in &templates.out {
        let mut location = String::new();
        location::push_location(&mut location, &template::fill(template, &value), base)
            .map_err(|e| in_task_of(input, e))?;
        let mut name = location::file_name(&location).into_owned();
        while inputs.iter().chain(&outputs).any(|f| f.name.as_deref() == Some(&name)) {
            name.insert_str(0, "out-");
        }
        outputs.push(File { name: Some(name.into()), location: location.into() });
    }
    let word = |hole: Hole| {
        let text = match hole {
            Hole::In => dashed(&name),
            Hole::Out(k) => dashed(outputs[k].name.as_deref().unwrap_or_default()),
            hole => value(hole),
        };
        if spec.shell { quoted(&text) } else { text }
    };
    let mut words = templates.command.iter().map(|t| Cow::Owned(template::fill(t, &word)));
    let command = match spec.shell {
        true => Command::Shell(words.next().unwrap_or_default()),
        false => Command::Exec(words.collect()),
    };
    Ok(Task {
        id: Some(Cow::Owned(format!("{}{}", spec.id_prefix, id_of(input, base)))),
        command,
        inputs,
        outputs,
        env: Vec::new(),
        cpus: spec.cpus,
        memory_bytes: spec.memory_bytes,
        walltime_ns: spec.walltime_ns,
        retries: spec.retries,
        priority: spec.priority,
        label: Cow::Borrowed(&spec.label),
        dynamic: false,
        hints: Default::default(),
        promises: Vec::new(),
        reduce: None,
    })
}

/// What a task over `input` is called: its path as seen from `base`, or its URL. It goes into messages, so
/// what would break a line is escaped.
fn id_of<'i>(input: &'i str, base: &str) -> Cow<'i, str> {
    let inside = input.strip_prefix(base.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    let path = inside.unwrap_or(input);
    if !path.contains(char::is_control) {
        return Cow::Borrowed(path);
    }
    let mut id = String::new();
    for c in path.chars() {
        match c {
            c if c.is_control() => id.extend(c.escape_default()),
            c => id.push(c),
        }
    }
    Cow::Owned(id)
}

/// `name` as a path that no program takes for an option.
fn dashed(name: &str) -> String {
    if name.starts_with('-') { format!("./{name}") } else { name.into() }
}

fn over_range(spec: &MapSpec, range: Range<u64>, base: &str) -> Result<TaskList> {
    let n_tasks = range.end.saturating_sub(range.start);
    if n_tasks == 0 {
        return Err(Error::invalid(format!("the range {}..{} is empty", range.start, range.end)));
    }
    let templates = parse_templates(spec)?;
    let with = common_inputs(spec, base)?;

    // One task through the same checks as any list; numbers do not change what they find.
    let sample: Vec<Pattern> =
        templates.out.iter().map(|t| location_pattern(t, base)).collect::<Result<_>>()?;
    for (k, out) in sample.iter().enumerate() {
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
        if let Some(other) = (0..k).find(|j| may_meet(&sample[*j], out)) {
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
    let mut names: Vec<Pattern> = sample.iter().map(name_of).collect();
    for k in 0..names.len() {
        let meets = |name: &Pattern, others: &[Pattern]| {
            inputs.iter().map(|(n, _)| n).chain(others).any(|other| may_meet(other, name))
        };
        let (before, this) = names.split_at_mut(k);
        // Ends: no digit is in what is put before, so only a name that goes on like it can still be met.
        while meets(&this[0], before) {
            this[0].0.insert(0, Piece::Literal("out-".into()));
            this[0] = joined(&this[0]);
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
        outputs: names.into_iter().zip(sample).collect(),
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
        arrays.push(TaskArray { n_tasks, first_index, template: template.clone(), columns: Vec::new() });
        first_index += u64::from(n_tasks);
    }
    check_first(&arrays[0], base)?;
    Ok(TaskList { arrays, n_tasks, n_dependencies: 0 })
}

/// The first task of a range through the checks of every task: names in the sandbox, blank commands, NUL.
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
        cpus: task.cpus,
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
    Builder::new(base.into(), "").add(&task, 0).map_err(|refused| match refused {
        Refused::Bad { error, .. } => error,
        Refused::SameId { id: text, .. }
        | Refused::SameOutput { location: text, .. }
        | Refused::SamePromise { location: text, .. } => {
            Error::new(ErrorKind::Conflict, format!("{} is there twice", shown(&text)))
        }
    })
}

/// Stands for the index while a template is read as a location; no location that is typed has it.
const MARK: &str = "\u{1}";
/// What a URL makes of it.
const MARK_IN_URL: &str = "%01";

fn location_pattern(template: &[Segment], base: &str) -> Result<Pattern> {
    let n_holes = template.iter().filter(|s| matches!(s, Segment::Hole(_))).count();
    let mut location = String::new();
    location::push_location(&mut location, &template::fill(template, &|_| MARK.into()), base)?;
    let mark = if location.starts_with('/') { MARK } else { MARK_IN_URL };
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

fn word_pattern(template: &[Segment], names: &[Pattern], shell: bool) -> Pattern {
    let mut pieces = Vec::new();
    for segment in template {
        match segment {
            Segment::Text(text) => pieces.push(Piece::Literal(text.clone())),
            Segment::Hole(Hole::Out(k)) => {
                let name = &names[*k];
                if matches!(name.0.first(), Some(Piece::Literal(text)) if text.starts_with('-')) {
                    pieces.push(Piece::Literal("./".into()));
                }
                // Digits need no quotes, so quoting piece by piece is quoting the whole.
                pieces.extend(name.0.iter().map(|piece| match piece {
                    Piece::Literal(text) if shell => Piece::Literal(quoted(text)),
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

/// Could the two give one string, for whatever numbers? `true` may be wrong, `false` never is.
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
            head_a.len() > head_b.len() + tail_b.len()
                && head_a.starts_with(head_b)
                && head_a.ends_with(tail_b)
        }
        (false, true) => may_meet(b, a),
        (false, false) => {
            // Where one literal goes on, the other has digits of its number.
            let heads = head_a.strip_prefix(head_b).or_else(|| head_b.strip_prefix(head_a));
            let tails = tail_a.strip_suffix(tail_b).or_else(|| tail_b.strip_suffix(tail_a));
            let is_digit = |c: char| c.is_ascii_digit();
            let heads = heads.is_some_and(|more| more.is_empty() || more.starts_with(is_digit));
            let tails = tails.is_some_and(|more| more.is_empty() || more.ends_with(is_digit));
            heads && tails
        }
    }
}
