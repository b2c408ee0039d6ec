//! Mappers: which file belongs to which place in a variable.

use super::ast::{At, Expression, Mapping, Symbol};
use super::engine::{Context, Engine, Stop};
use super::values::{CellNo, Key, KeyType, Mapper, Names, Simple, State, Step, Type, Value, Writer};
use crate::error::{Error, ErrorKind, shown};
use eyas_storage::pattern::matches;
use eyas_storage::{NOT_UTF8, NOWHERE};
use eyas_text::nearest;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

/// The most bytes of a file, or of what a program prints, that a mapper reads.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Names as users write them, in lower case and without `_`, and the name in messages.
const MAPPERS: [(&str, &str); 12] = [
    ("singlefilemapper", "single_file_mapper"),
    ("simplemapper", "simple_mapper"),
    ("concurrentmapper", "concurrent_mapper"),
    ("filesysmapper", "filesys_mapper"),
    ("filesystemmapper", "filesys_mapper"),
    ("fixedarraymapper", "fixed_array_mapper"),
    ("arraymapper", "array_mapper"),
    ("regexpmapper", "regexp_mapper"),
    ("structuredregexpmapper", "structured_regexp_mapper"),
    ("csvmapper", "csv_mapper"),
    ("ext", "ext"),
    ("externalmapper", "ext"),
];

/// Parameters of a mapper, with their values.
struct Parameters {
    mapper: &'static str,
    at: At,
    values: Vec<(Rc<str>, Value)>,
}

/// The text of a file that a script names. A pipe or a device is none, as it may have no end.
pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    let of = std::fs::metadata(path)?;
    if !of.is_file() {
        return Err(std::io::Error::other("it is a directory, a pipe or a device"));
    }
    let mut text = String::new();
    let n = std::fs::File::open(path)?.take(READ_BYTES_MAX + 1).read_to_string(&mut text)? as u64;
    match n > READ_BYTES_MAX {
        true => Err(std::io::Error::other(format!("it has more than {} MiB", READ_BYTES_MAX >> 20))),
        false => Ok(text),
    }
}

impl Parameters {
    fn find(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(own, _)| **own == *name).map(|(_, value)| value)
    }
    fn text(&self, name: &str) -> Result<Option<Rc<str>>, Error> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::Scalar(scalar)) => Ok(Some(scalar.text())),
            Some(Value::Cell(_)) => {
                Err(self.at.broken(format!("`{name}` of `{}` is a text or a number", self.mapper)))
            }
        }
    }
    fn wanted_text(&self, name: &str) -> Result<Rc<str>, Error> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }
    fn missing(&self, name: &str) -> Error {
        self.at.broken(format!("`{}` has no parameter `{name}`", self.mapper))
    }
    fn number(&self, name: &str, otherwise: usize) -> Result<usize, Error> {
        let Some(text) = self.text(name)? else { return Ok(otherwise) };
        text.trim().parse().ok().filter(|n| *n <= 1000).ok_or_else(|| {
            self.at.broken(format!("`{name}` of `{}` is no number up to 1000: {}", self.mapper, shown(&text)))
        })
    }
    /// Refuses what is not among `known`.
    fn check(&self, known: &[&str]) -> Result<(), Error> {
        match self.values.iter().find(|(name, _)| !known.contains(&&**name)) {
            None => Ok(()),
            Some((name, _)) => {
                let near = nearest(name, known).map_or(known.join(", "), |near| format!("{near}?"));
                let message = format!("`{}` has no parameter called {}", self.mapper, shown(name));
                Err(self.at.broken(message).hint(format!("its parameters: {near}")))
            }
        }
    }
}

impl<'a> Engine<'a> {
    /// Evaluates the mapping of a variable and, if nothing assigns the variable, finds the files in it.
    pub(super) fn map(
        &mut self,
        mapping: &'a Mapping,
        cell: CellNo,
        cx: &mut Context<'a>,
    ) -> Result<(), Stop> {
        let mapper = match mapping {
            Mapping::File(file) => {
                let name = self.text(file, "the name of a file", cx)?;
                Some(Mapper::Single(name))
            }
            Mapping::Mapper { name, parameters, at } => self.mapper(*name, parameters, *at, cx)?,
        };
        let is_input = cx.is_input;
        self.cells[cell as usize].names = match mapper {
            Some(mapper) => Names::By(Rc::new(mapper)),
            None => Names::Free,
        };
        if is_input {
            self.find_files(cell)?;
        }
        self.changed(cell);
        Ok(())
    }

    /// `None`: eyas chooses the names.
    fn mapper(
        &mut self,
        name: Symbol,
        parameters: &'a [(Symbol, Expression)],
        at: At,
        cx: &mut Context<'a>,
    ) -> Result<Option<Mapper>, Stop> {
        let written = self.name(name);
        let plain = written.to_ascii_lowercase().replace('_', "");
        let known = MAPPERS.iter().find(|(own, _)| *own == plain).map(|(_, name)| *name);
        let Some(mapper) = known else {
            let names: Vec<&str> = MAPPERS.iter().map(|(_, name)| *name).collect();
            let error = at.unsupported(format!("the mapper {} is not known", shown(&written)));
            let hint = match nearest(&written, &names) {
                Some(near) => format!("is it {near}?"),
                None => "known are single_file_mapper, simple_mapper, concurrent_mapper, filesys_mapper, fixed_array_mapper, array_mapper, regexp_mapper, structured_regexp_mapper, csv_mapper and ext".into(),
            };
            return Err(error.hint(hint).into());
        };
        let mut values = vec![];
        for (name, value) in parameters {
            let value = match (mapper, &*self.name(*name)) {
                // The files of that variable need not be there, only their names are needed.
                ("structured_regexp_mapper", "source") => self.value(value, None, cx)?,
                _ => {
                    let value = self.value(value, None, cx)?;
                    if let Value::Cell(cell) = value {
                        self.settled(cell)?;
                    }
                    value
                }
            };
            values.push((self.name(*name), value));
        }
        let given = Parameters { mapper, at, values };
        const FILES: [&str; 6] = ["location", "prefix", "suffix", "pattern", "padding", "separator"];
        let mapper = match mapper {
            "single_file_mapper" => {
                given.check(&["file"])?;
                let file = match given.find("file") {
                    Some(Value::Cell(cell)) => self.file_name(*cell)?,
                    _ => given.wanted_text("file")?,
                };
                Mapper::Single(file)
            }
            "simple_mapper" => {
                given.check(&FILES)?;
                Mapper::Simple(simple(&given)?)
            }
            "concurrent_mapper" => {
                given.check(&FILES[..4])?;
                return Ok(None);
            }
            "filesys_mapper" => {
                given.check(&FILES[..4])?;
                if !cx.is_input {
                    let message =
                        "`filesys_mapper` finds files that are there, and this variable is assigned";
                    return Err(at
                        .unsupported(message)
                        .hint("map it with simple_mapper or fixed_array_mapper")
                        .into());
                }
                let found = self.files_like(&simple(&given)?, at)?;
                table(found.into_iter().map(|(name, _)| name))
            }
            "fixed_array_mapper" | "array_mapper" => {
                given.check(&["files"])?;
                let files: Vec<Rc<str>> = match given.find("files") {
                    None => return Err(given.missing("files").into()),
                    Some(Value::Scalar(scalar)) => {
                        let text = scalar.text();
                        let is_between = |c: char| c.is_whitespace() || ",;:".contains(c);
                        text.split(is_between).filter(|name| !name.is_empty()).map(Into::into).collect()
                    }
                    Some(Value::Cell(cell)) => self.texts(*cell, at)?,
                };
                table(files.into_iter())
            }
            "regexp_mapper" => {
                given.check(&["source", "match", "transform"])?;
                let source = match given.find("source") {
                    Some(Value::Cell(cell)) => self.file_name(*cell)?,
                    _ => given.wanted_text("source")?,
                };
                let (matches, transform) = (given.wanted_text("match")?, given.wanted_text("transform")?);
                Mapper::Single(self.renamed(&source, &matches, &transform, at)?)
            }
            "structured_regexp_mapper" => {
                given.check(&["source", "match", "transform"])?;
                let Some(Value::Cell(source)) = given.find("source") else {
                    return Err(given.missing("source").into());
                };
                let (matches, transform) = (given.wanted_text("match")?, given.wanted_text("transform")?);
                Mapper::Renamed { source: *source, matches, transform }
            }
            "csv_mapper" => {
                given.check(&["file", "header", "skip", "hdelim", "delim"])?;
                self.csv(&given)?
            }
            _ => self.ext(&given)?,
        };
        Ok(Some(mapper))
    }

    /// The name of the file at `path` in a variable with this mapper.
    pub(super) fn mapped(&mut self, mapper: &Mapper, path: &[Step], at: At) -> Result<Option<Rc<str>>, Stop> {
        Ok(match mapper {
            Mapper::Single(name) => path.is_empty().then(|| name.clone()),
            Mapper::Simple(simple) => Some(simple.name(path).into()),
            Mapper::Table { places, numbers } => numbers.get(&path_text(path)).map(|n| places[*n].1.clone()),
            Mapper::Renamed { source, matches, transform } => {
                let mut cell = self.resolved(*source);
                for step in path {
                    let inner = match (&self.cells[cell as usize].state, step) {
                        (State::Array(array), Step::Element(key)) => array.items.get(key).copied(),
                        (State::Struct(members), Step::Member(name)) => {
                            let Type::Struct(of) = &self.cells[cell as usize].of else { return Ok(None) };
                            of.members.iter().position(|(_, own, _)| own == name).map(|n| members[n])
                        }
                        _ => None,
                    };
                    let Some(inner) = inner else {
                        return match step {
                            Step::Element(key) if self.closed(cell).is_err() => {
                                Err(Stop::Element(cell, key.clone()))
                            }
                            _ => Ok(None),
                        };
                    };
                    cell = self.resolved(inner);
                }
                let name = match &self.cells[cell as usize].state {
                    State::Scalar(scalar) => scalar.text(),
                    State::File { .. } => self.file_name(cell)?,
                    _ => return Err(Stop::Value(cell)),
                };
                Some(self.renamed(&name, matches, transform, at)?)
            }
        })
    }

    fn renamed(&mut self, name: &str, matches: &str, transform: &str, at: At) -> Result<Rc<str>, Error> {
        match self.regexes.groups(name, matches, at)? {
            Some(groups) => Ok(groups.expand(transform).into()),
            None => Err(at.broken(format!("the pattern {} does not match {}", shown(matches), shown(name)))),
        }
    }

    /// Fills a variable that nothing assigns with the files that its mapper finds.
    fn find_files(&mut self, cell: CellNo) -> Result<(), Stop> {
        let Names::By(mapper) = self.cells[cell as usize].names.clone() else { return Ok(()) };
        for path in self.places(&mapper, cell)? {
            let mut inner = Some(cell);
            for step in &path {
                inner = match inner {
                    Some(cell) => self.step_into(cell, step)?,
                    None => None,
                };
            }
            // A file that does not fit the variable's type is none of its files.
            let Some(leaf) = inner else { continue };
            if let State::File { writer, .. } = &mut self.cells[leaf as usize].state {
                *writer = Writer::Input;
            }
        }
        self.inputs_of(cell);
        Ok(())
    }

    /// Members of structs are inputs, also if no file was found.
    fn inputs_of(&mut self, cell: CellNo) {
        match &mut self.cells[cell as usize].state {
            State::File { writer, .. } => *writer = Writer::Input,
            State::Struct(members) => {
                let members = members.clone();
                members.iter().for_each(|member| self.inputs_of(*member));
            }
            State::Array(array) => {
                let items: Vec<CellNo> = array.items.values().copied().collect();
                items.into_iter().for_each(|item| self.inputs_of(item));
            }
            _ => {}
        }
    }

    /// The places that the mapper knows before anything is assigned.
    pub(super) fn places(&mut self, mapper: &Mapper, cell: CellNo) -> Result<Vec<Vec<Step>>, Stop> {
        let at = self.cells[cell as usize].at;
        Ok(match mapper {
            Mapper::Single(_) => vec![vec![]],
            Mapper::Table { places, .. } => places.iter().map(|(path, _)| path.clone()).collect(),
            Mapper::Simple(simple) => match &self.cells[cell as usize].of {
                Type::Array(_) => {
                    let found = self.files_like(simple, at)?;
                    found.into_iter().map(|(_, file)| simple.path(&file)).collect()
                }
                _ => vec![vec![]],
            },
            Mapper::Renamed { source, .. } => {
                let source = *source;
                self.settled(source)?;
                self.leaves(source).into_iter().map(|leaf| self.path_below(leaf, source)).collect()
            }
        })
    }

    /// Files in the folder of `simple` that match its pattern: names, and the last parts of the names.
    fn files_like(&mut self, simple: &Simple, at: At) -> Result<Vec<(Rc<str>, String)>, Error> {
        let glob = format!("{}{}{}", simple.prefix, simple.pattern, simple.suffix);
        if glob.contains("**") {
            return Err(at.unsupported("`**` in a pattern is not known").hint("name the folders one by one"));
        }
        let Some(base) = self.folder else {
            return Err(at.error(ErrorKind::Missing, "there is no folder to look for files in"));
        };
        let plain = |folder: &str| if folder == "./" { String::new() } else { folder.to_owned() };
        let mut folders = vec![plain(&simple.folder)];
        let parts: Vec<&str> = glob.split('/').filter(|part| !part.is_empty()).collect();
        let mut found = vec![];
        for (n, part) in parts.iter().enumerate() {
            let mut below = vec![];
            for folder in &folders {
                let path = base.join(folder);
                let fail = |e| {
                    let message = format!("the folder {} cannot be listed", eyas_text::shown_path(&path));
                    at.error(ErrorKind::Missing, message).caused(e)
                };
                for entry in std::fs::read_dir(&path).map_err(fail)? {
                    let entry = entry.map_err(fail)?;
                    let name = entry.file_name();
                    if !matches(part, &name.to_string_lossy()) {
                        continue;
                    }
                    let kind = std::fs::metadata(entry.path()).map(|found| (found.is_dir(), found.is_file()));
                    let is_last = n + 1 == parts.len();
                    let why = match (kind, name.to_str()) {
                        (Ok((is_folder, _)), _) if is_folder == is_last => continue,
                        (Ok((false, false)), _) => "it is neither a file nor a folder".into(),
                        (Ok(_), Some(name)) => {
                            below.push((format!("{folder}{name}"), name.to_owned()));
                            continue;
                        }
                        (Ok(_), None) => NOT_UTF8.to_owned(),
                        (Err(_), _) if !is_last => continue,
                        (Err(e), _) if e.kind() == std::io::ErrorKind::NotFound => NOWHERE.to_owned(),
                        (Err(e), _) => e.to_string(),
                    };
                    let path = entry.path();
                    let shown = eyas_text::shown_path(&path);
                    self.print(&format!("left out {shown}: {why}\n"));
                }
            }
            if n + 1 == parts.len() {
                found = below;
            } else {
                folders = below.into_iter().map(|(path, _)| format!("{path}/")).collect();
            }
        }
        found.sort_by_cached_key(|(path, _)| eyas_text::natural(path));
        Ok(found.into_iter().map(|(path, name)| (path.into(), name)).collect())
    }

    /// The text of the file `name`, which is there before the run.
    pub(super) fn read_file(&self, name: &str, at: At) -> Result<String, Error> {
        let Some(base) = self.folder else {
            return Err(
                at.error(ErrorKind::Missing, format!("there is no folder to read {} in", shown(name)))
            );
        };
        let path = base.join(name);
        let fail = |e| {
            let message = format!("{} cannot be read", eyas_text::shown_path(&path));
            at.error(ErrorKind::Missing, message).caused(e)
        };
        read_text(&path).map_err(fail)
    }

    fn csv(&mut self, given: &Parameters) -> Result<Mapper, Stop> {
        let file = match given.find("file") {
            Some(Value::Cell(cell)) => self.known_file(*cell, given.at)?,
            _ => given.wanted_text("file")?,
        };
        let text = self.read_file(&file, given.at)?;
        let delimiters = given.text("delim")?.unwrap_or_else(|| " \t,".into());
        let of_header = given.text("hdelim")?.unwrap_or_else(|| delimiters.clone());
        let has_header = given.text("header")?.is_none_or(|text| &*text == "true");
        let mut lines = text.lines();
        let split = |line: &str, delimiters: &str| -> Vec<String> {
            let parts = line.split(|c| delimiters.contains(c));
            parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let header: Option<Vec<String>> = match has_header {
            true => Some(split(lines.next().unwrap_or(""), &of_header)),
            false => None,
        };
        let mut places = vec![];
        for (row, line) in lines.skip(given.number("skip", 0)?).enumerate() {
            for (column, file) in split(line, &delimiters).into_iter().enumerate() {
                let name = match &header {
                    Some(header) => match header.get(column) {
                        Some(name) => name.clone(),
                        None => {
                            let message = format!(
                                "line {} of {} has more columns than its header",
                                row + 2,
                                shown(&file)
                            );
                            return Err(given.at.broken(message).into());
                        }
                    },
                    None => format!("column{}", column + 1),
                };
                places.push((
                    vec![Step::Element(Key::Int(row as i64)), Step::Member(name.into())],
                    file.as_str().into(),
                ));
            }
        }
        Ok(table_of(places))
    }

    /// Runs the program of an `ext` mapper and reads what it prints.
    fn ext(&mut self, given: &Parameters) -> Result<Mapper, Stop> {
        let at = given.at;
        let program = given.wanted_text("exec")?;
        if !self.given.runs_mappers {
            let message = format!(
                "the mapper `ext` would run {} here and now, to learn the names of files",
                shown(&program)
            );
            return Err(at.unsupported(message).hint("--run-mappers lets it, with your rights").into());
        }
        let Some(base) = self.folder else {
            return Err(at.unsupported("there is no folder to run a mapper in").into());
        };
        let is_here = !program.contains('/') && base.join(&*program).is_file();
        let path = if is_here { format!("./{program}") } else { program.to_string() };
        // The shell also starts programs whose first line names no interpreter, as users of Swift have them.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "\"$0\" \"$@\"", &path]);
        for (name, _) in given.values.iter().filter(|(name, _)| **name != *"exec") {
            let value = given.text(name)?.unwrap_or_default();
            command.arg(format!("-{name}")).arg(&*value);
        }
        let command = command.current_dir(base).stdin(Stdio::null()).stderr(Stdio::inherit());
        let fail = |e| at.error(ErrorKind::Missing, "the shell does not start").caused(e);
        let output = command.output().map_err(fail)?;
        if !output.status.success() {
            let message = format!("the mapper's program {} ended with {}", shown(&program), output.status);
            return Err(at.broken(message).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut places = vec![];
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let place = line.trim().split_once(char::is_whitespace);
            let Some((path, file)) = place.and_then(|(place, file)| Some((path_of(place)?, file.trim())))
            else {
                let message = format!(
                    "line {} that {} prints is no place and no file: {}",
                    n + 1,
                    shown(&program),
                    shown(line)
                );
                return Err(at
                    .broken(message)
                    .hint("a line is such as `[0].member name-of-the-file`")
                    .into());
            };
            places.push((path, file.into()));
        }
        Ok(table_of(places))
    }
}

/// A path such as `[0][name].member`, or `$` for the variable itself.
pub(super) fn path_of(text: &str) -> Option<Vec<Step>> {
    if text == "$" {
        return Some(vec![]);
    }
    let mut path = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']')?;
            let key = key.trim_matches('"');
            path.push(Step::Element(key.parse().map_or_else(|_| Key::Text(key.into()), Key::Int)));
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            path.push(Step::Member(name[..end].into()));
            rest = &name[end..];
        }
    }
    Some(path)
}

fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Element(key) => text.push_str(&format!("[{}]", key.scalar().text())),
            Step::Member(name) => text.push_str(&format!(".{name}")),
        }
    }
    text
}

fn table(files: impl Iterator<Item = Rc<str>>) -> Mapper {
    table_of(files.enumerate().map(|(n, file)| (vec![Step::Element(Key::Int(n as i64))], file)).collect())
}

fn table_of(places: Vec<(Vec<Step>, Rc<str>)>) -> Mapper {
    let numbers = places.iter().enumerate().map(|(n, (path, _))| (path_text(path), n)).collect();
    Mapper::Table { places, numbers }
}

fn simple(given: &Parameters) -> Result<Simple, Error> {
    let text = |name: &str| given.text(name).map(|text| text.as_deref().unwrap_or("").to_owned());
    let mut folder = text("location")?;
    if !folder.is_empty() && !folder.ends_with('/') {
        folder.push('/');
    }
    if folder == "./" {
        folder.clear();
    }
    Ok(Simple {
        folder,
        prefix: text("prefix")?,
        suffix: text("suffix")?,
        pattern: given.text("pattern")?.map_or("*".into(), |text| text.to_string()),
        padding: given.number("padding", 4)?,
        separator: given.text("separator")?.map_or("_".into(), |text| text.to_string()),
    })
}

impl Simple {
    fn name(&self, path: &[Step]) -> String {
        let mut name = format!("{}{}", self.folder, self.prefix);
        for (n, step) in path.iter().enumerate() {
            match step {
                Step::Element(Key::Int(number)) => {
                    name.push_str(&format!("{number:0>width$}", width = self.padding));
                }
                Step::Element(key) => name.push_str(&key.scalar().text()),
                Step::Member(member) => name.push_str(member),
            }
            if n + 2 == path.len() {
                name.push_str(&self.separator);
            } else if n + 2 < path.len() {
                name.push('.');
            }
        }
        name + &self.suffix
    }

    /// The place of the file `name` in an array.
    fn path(&self, name: &str) -> Vec<Step> {
        // The prefix may name a folder, too.
        let prefix = self.prefix.rsplit('/').next().unwrap_or("");
        let inner = name.strip_prefix(prefix).unwrap_or(name);
        let inner = inner.strip_suffix(self.suffix.as_str()).unwrap_or(inner);
        let parts: Vec<&str> = match self.separator.is_empty() {
            true => vec![inner],
            false => inner.split(self.separator.as_str()).collect(),
        };
        let parts = match (parts.as_slice(), inner.split_once('.')) {
            ([_], Some((one, other))) if !one.is_empty() && !other.is_empty() => vec![one, other],
            _ => parts,
        };
        let step = |part: &str| match part.parse() {
            Ok(number) if part.starts_with(|c: char| c.is_ascii_digit()) => Step::Element(Key::Int(number)),
            _ => Step::Member(part.into()),
        };
        parts.into_iter().map(step).collect()
    }
}

/// The key of `step` as keys of that type are.
pub(super) fn fitting(key: &Key, of: KeyType) -> Option<Key> {
    match (key, of) {
        (Key::Int(_), KeyType::Int | KeyType::Auto)
        | (Key::Text(_), KeyType::Text)
        | (Key::Bool(_), KeyType::Bool) => Some(key.clone()),
        (Key::Int(n), KeyType::Text) => Some(Key::Text(n.to_string().into())),
        (Key::Int(n), KeyType::Float) => Some(Key::Float((*n as f64).to_bits())),
        (Key::Float(_), KeyType::Float) => Some(key.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        for (name, pattern, expect) in [
            ("a.txt", "*.txt", true),
            ("a.txt", "a.???", true),
            ("a.txt", "*b*", false),
            ("", "*", true),
            ("abab", "*ab", true),
            ("é", "?", true),
        ] {
            assert_eq!(matches(pattern, name), expect, "{name} {pattern}");
        }
    }

    #[test]
    fn paths_as_programs_print_them() {
        let int = |n| Step::Element(Key::Int(n));
        assert_eq!(path_of("$"), Some(vec![]));
        assert_eq!(path_of("[0][12].b"), Some(vec![int(0), int(12), Step::Member("b".into())]));
        assert_eq!(path_of("a.b"), Some(vec![Step::Member("a".into()), Step::Member("b".into())]));
        assert_eq!((path_of("[0"), path_of("a..b")), (None, None));
    }

    #[test]
    fn simple_names_lead_back() {
        let simple = Simple {
            folder: "d/".into(),
            prefix: "p.".into(),
            suffix: ".x".into(),
            pattern: "*".into(),
            padding: 3,
            separator: "_".into(),
        };
        let path = vec![Step::Element(Key::Int(7)), Step::Member("h".into())];
        assert_eq!(simple.name(&path), "d/p.007_h.x");
        assert_eq!(simple.path("p.007_h.x"), path);
        assert_eq!(simple.name(&[]), "d/p..x");
    }
}
