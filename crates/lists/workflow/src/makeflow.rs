//! Makeflow in its classic form: rules as in Make, one command each.
//!
//! ```text
//! NAME=value   NAME+=value   export NAME   .MAKEFLOW CATEGORY name   .SIZE file 10M
//! targets : sources
//! @CORES=2
//! <tab>LOCAL program source > target
//! ```
//!
//! Quotes, escapes and substitution are as in cctools, see [`lexer`]: variables of the rule, of its category, of the file, of
//! the environment, in this order. A name that is not set anywhere is refused; `\$` is a dollar for the shell. A `\` at the end of a
//! line joins it with the next line, `#` begins a comment. `file->name` gives a file another name in the sandbox.
//!
//! A task is called by its first target and belongs to the stage of its CATEGORY, or of its program. CORES
//! is kept, MAKEFLOW_OUTPUTS names results, `.SIZE` gives sizes. MEMORY and DISK are requests to a batch
//! system and no limits of a task; they and LOCAL have no meaning here, because every task runs in a
//! sandbox. Files with absolute paths that no task writes are read from their paths. For folders see
//! [`crate::folders`].
//!
//! Refused: MAKEFLOW inside a command, UMBRELLA.

mod lexer;

use crate::error::{Error, ErrorKind, Result, shown};
use crate::folders;
use crate::limit::{Allowance, PIECE_BYTES};
use crate::model::{Builder, Task, Use, Workflow, plain_name};
use crate::words;
use eyas_terms::array::Command;
use lexer::{Item, Lexer, Variables};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;

/// The deepest nesting of substitutions.
const DEPTH_MAX: u32 = 32;
/// The longest value, list of files or command once its variables are filled in. A shell takes a line of
/// 128 KiB.
const EXPANDED_BYTES_MAX: usize = 4 << 20;
/// The characters that end a variable's name.
const NAME_ENDS: &str = "\\\"'$#\n\t ,.-(){},[]<>=+!?/:;|&*@%^~`";
/// The category of rules without a category.
const NO_CATEGORY: &str = "default";

/// `environment` gives the variables of the reader's own process.
pub(crate) fn parse(
    text: &str,
    stem: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Workflow> {
    let lines = logical_lines(text)?;
    let mut reader = MakeflowReader {
        b: Builder::new(stem, text.len()),
        allowance: RefCell::new(Allowance::of_file(text.len())),
        environment,
        variables: FxHashMap::default(),
        category: NO_CATEGORY.into(),
        exported: vec![],
        folders: FxHashSet::default(),
        rule: None,
    };
    for line in &lines {
        reader.line(line)?;
    }
    if let Some(rule) = &reader.rule {
        let message = "the file breaks off: a rule has no command";
        return Err(Error::new(ErrorKind::Truncated, message).at(rule.line));
    }
    // MAKEFLOW_OUTPUTS counts whatever category was current when it was set, because it is about the whole
    // file.
    let outputs = reader.variables.iter().filter(|((_, name), _)| name == "MAKEFLOW_OUTPUTS");
    let outputs: Vec<String> = outputs.map(|(_, names)| names.clone()).collect();
    for name in outputs.iter().flat_map(|names| split_files(names)) {
        // One pair of quotes may be around a name with blanks, or around all names.
        let whole = reader.b.known_number(&plain_name(&name));
        let parts = name.split_whitespace().filter_map(|name| reader.b.known_number(&plain_name(name)));
        let files: Vec<_> = match whole {
            Some(file) => vec![file],
            None => parts.collect(),
        };
        files.into_iter().for_each(|file| reader.b.file_mut(file).result = Some(true));
    }
    folders::settle(&mut reader.b, &reader.folders);
    Ok(Workflow { is_for_sh: true, ..reader.b.finish()? })
}

/// A line, with the lines that a `\` at its end joins to it; the `\` and the line feed are still there.
struct Line {
    number: u32,
    text: String,
}

fn logical_lines(text: &str) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = vec![];
    let mut joins = false;
    let n_lines = text.lines().count();
    for (n, line) in text.lines().enumerate() {
        match lines.last_mut().filter(|_| joins) {
            Some(last) => {
                last.text.push('\n');
                last.text.push_str(line);
            }
            None => lines.push(Line { number: n as u32 + 1, text: line.into() }),
        }
        let n_backslashes = line.bytes().rev().take_while(|b| *b == b'\\').count();
        joins = n_backslashes % 2 == 1 && lines.last().is_some_and(|line| !has_comment(&line.text));
    }
    let cut = joins || lines.last().is_some_and(|line| line.text.starts_with('\t') && !text.ends_with('\n'));
    if cut {
        return Err(Error::new(ErrorKind::Truncated, "the file breaks off inside a line")
            .hint("if it is whole, end its last line with a line feed")
            .at(n_lines as u32));
    }
    Ok(lines)
}

/// Whether a comment ends the line.
fn has_comment(text: &str) -> bool {
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (_, '\\') => drop(chars.next()),
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => return true,
            _ => {}
        }
    }
    false
}

/// The parts of a rule before its command.
struct Rule {
    line: u32,
    targets: Vec<Named>,
    sources: Vec<Named>,
    variables: FxHashMap<String, String>,
    category: String,
}

/// A file, and its name in the sandbox if that is a different name.
struct Named {
    file: String,
    own: Option<String>,
}

struct MakeflowReader<'a> {
    b: Builder,
    environment: &'a dyn Fn(&str) -> Option<String>,
    /// By category and name.
    variables: FxHashMap<(String, String), String>,
    category: String,
    exported: Vec<String>,
    /// Files whose names end in `/`.
    folders: FxHashSet<String>,
    rule: Option<Rule>,
    /// The allowance for everything that variables stand for in the whole file.
    allowance: RefCell<Allowance>,
}

impl MakeflowReader<'_> {
    fn line(&mut self, line: &Line) -> Result<()> {
        let at = |e: Error| if e.line.is_none() { e.at(line.number) } else { e };
        let text = line.text.as_str();
        let bare = text.trim();
        if bare.is_empty() || bare.starts_with('#') {
            return Ok(());
        }
        let colon = find_bare(text, ':');
        let equal = find_bare(text, '=');
        let is_rule = colon.is_some_and(|colon| equal.is_none_or(|equal| colon < equal));
        let may_be_command = self.rule.is_some() && !bare.starts_with('@');
        if text.starts_with('\t')
            || (text.starts_with(' ') && (may_be_command || (!is_rule && equal.is_none())))
        {
            return self.command(line).map_err(at);
        }
        if let Some(directive) = bare.strip_prefix('.').filter(|_| !is_rule) {
            return self.directive(directive).map_err(at);
        }
        if is_rule && !bare.starts_with('@') {
            if let Some(rule) = &self.rule {
                return Err(Error::broken("the rule before this one has no command")
                    .hint("a command is one line that begins with a tab")
                    .at(rule.line));
            }
            let (targets, sources) = text.split_at(colon.unwrap_or(0));
            let targets = self.files(targets).map_err(at)?;
            let sources = self.files(&sources[1..]).map_err(at)?;
            self.rule = Some(Rule {
                line: line.number,
                targets,
                sources,
                variables: FxHashMap::default(),
                category: self.category.clone(),
            });
            return Ok(());
        }
        // Blanks at the end belong to a value.
        let bare = text.trim_start();
        let bare = bare.strip_prefix('@').unwrap_or(bare);
        if let Some(names) = bare.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])) {
            if find_bare(names, '=').is_none() {
                let names = names.split('#').next().unwrap_or("");
                self.exported.extend(names.split_whitespace().map(str::to_owned));
                return Ok(());
            }
            let name = self.assign(names).map_err(at)?;
            self.exported.push(name);
            return Ok(());
        }
        if equal.is_some() {
            return self.assign(bare).map(|_| ()).map_err(at);
        }
        let first = bare.split_whitespace().next().unwrap_or("");
        Err(at(Error::broken(format!("{} is neither a rule nor a variable", shown(first)))
            .hint("a rule is `targets : sources`, and its command is a line that begins with a tab")))
    }

    /// Reads `NAME=value` or `NAME+=value`; gives the name.
    fn assign(&mut self, text: &str) -> Result<String> {
        let at = find_bare(text, '=').unwrap_or(0);
        let (name, value) = (&text[..at], &text[at + 1..]);
        let (name, is_more) = match name.strip_suffix('+') {
            Some(name) => (name, true),
            None => (name.strip_suffix(':').unwrap_or(name), false),
        };
        let name = name.trim().to_owned();
        if name.is_empty() || name.contains(|c| NAME_ENDS.contains(c)) {
            return Err(Error::broken(format!("{} is no name of a variable", shown(&name))));
        }
        let mut value = Lexer::new(value, self).value()?;
        if is_more {
            if let Some(own) = self.own_value(&name) {
                own.push(' ');
                own.push_str(&value);
                return Ok(name);
            }
            if let Some(before) = self.find(&name) {
                self.allowance.get_mut().take(before.len() as u64, "variables stand for")?;
                value = format!("{before} {value}");
            }
        }
        self.set(name.clone(), value);
        Ok(name)
    }

    /// The value that [`Self::set`] would replace.
    fn own_value(&mut self, name: &str) -> Option<&mut String> {
        match &mut self.rule {
            _ if matches!(name, "CATEGORY" | "SYMBOL") => None,
            Some(rule) => rule.variables.get_mut(name),
            None => self.variables.get_mut(&(self.category.clone(), name.to_owned())),
        }
    }

    fn set(&mut self, name: String, value: String) {
        let is_category = name == "CATEGORY" || name == "SYMBOL";
        match &mut self.rule {
            Some(rule) if is_category => rule.category = unquoted(&value).to_owned(),
            None if is_category => self.category = unquoted(&value).to_owned(),
            Some(rule) => drop(rule.variables.insert(name, value)),
            None => drop(self.variables.insert((self.category.clone(), name), value)),
        }
    }

    fn find(&self, name: &str) -> Option<String> {
        let category = self.rule.as_ref().map_or(&self.category, |rule| &rule.category);
        if name == "CATEGORY" {
            return Some(category.clone());
        }
        let of = |category: &str| self.variables.get(&(category.to_owned(), name.to_owned()));
        let own = self.rule.as_ref().and_then(|rule| rule.variables.get(name));
        own.or_else(|| of(category)).or_else(|| of(NO_CATEGORY)).cloned().or_else(|| (self.environment)(name))
    }

    fn directive(&mut self, text: &str) -> Result<()> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["MAKEFLOW", name @ ("CATEGORY" | "CORES" | "MEMORY" | "DISK"), value, ..] => {
                self.set((*name).into(), (*value).into());
                Ok(())
            }
            ["MAKEFLOW", "MODE" | "EXPORT", ..] => {
                if words[1] == "EXPORT" {
                    self.exported.extend(words[2..].iter().map(|w| (*w).to_owned()));
                }
                Ok(())
            }
            ["SIZE", file, size, ..] => {
                let bytes =
                    metric_bytes(size).ok_or_else(|| Error::broken(format!("{} is no size", shown(size))))?;
                let file = self.b.file(&plain_name(file));
                self.b.file_mut(file).size_bytes = Some(bytes);
                Ok(())
            }
            _ => {
                let message =
                    format!("the directive {} is not known", shown(&format!(".{}", words.join(" "))));
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    fn files(&mut self, text: &str) -> Result<Vec<Named>> {
        let items = Lexer::new(text, self).files()?;
        let mut files: Vec<Named> = vec![];
        let mut arrow = false;
        for item in items {
            let word = match item {
                Item::Space => continue,
                Item::Arrow => {
                    arrow = true;
                    continue;
                }
                Item::Name(word) => word,
            };
            let plain = plain_name(&word).into_owned();
            if word.ends_with('/') {
                self.folders.insert(plain.clone());
            }
            match files.last_mut().filter(|_| arrow) {
                Some(last) => last.own = Some(plain),
                None if arrow => return Err(Error::broken("a `->` has no file before it")),
                None => files.push(Named { file: plain, own: None }),
            }
            arrow = false;
        }
        match arrow {
            true => Err(Error::broken("a `->` has no name behind it")),
            false => Ok(files),
        }
    }

    fn command(&mut self, line: &Line) -> Result<()> {
        if self.rule.is_none() {
            return Err(Error::broken("there is no rule for this command")
                .hint("a rule has one command; join several with `&&`"));
        }
        let text = Lexer::new(&line.text, self).command()?;
        let mut command = text.trim();
        if command.is_empty() {
            return Ok(());
        }
        while let Some(rest) = command.strip_prefix("LOCAL").filter(|rest| rest.starts_with([' ', '\t'])) {
            command = rest.trim_start();
        }
        if command.strip_prefix("MAKEFLOW").is_some_and(|rest| rest.starts_with([' ', '\t'])) {
            let message = "a makeflow inside a makeflow is more than eyas can run";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("run the inner file by itself, or put its rules into this one"));
        }
        let number = |name: &str| -> Result<Option<u64>> {
            let find = |name: &str| self.find(name).map(|value| unquoted(&value).to_owned());
            let Some(text) = find(name).filter(|text| !text.is_empty()) else { return Ok(None) };
            let message = || Error::broken(format!("{name} is no number: {}", shown(&text)));
            text.trim()
                .parse::<f64>()
                .ok()
                .filter(|n| (0.0..1e12).contains(n))
                .map(|n| Some(n.ceil() as u64))
                .ok_or_else(message)
        };
        let (cores, _) = (number("CORES")?, number("MEMORY")?);
        let mut env = vec![];
        for name in &self.exported {
            if let Some(value) = self.find(name) {
                let n_bytes = 2 * PIECE_BYTES + (name.len() + value.len()) as u64;
                self.allowance.borrow_mut().take(n_bytes, "exported variables have")?;
                env.push((name.clone(), value));
            }
        }
        let Some(rule) = self.rule.take() else { return Ok(()) };
        let id = rule.targets.first().map_or_else(|| format!("line-{}", rule.line), |t| t.file.clone());
        let stage = match rule.category.as_str() {
            NO_CATEGORY => words::program(command),
            category => category.to_owned(),
        };
        let mut uses = |list: Vec<Named>, are_written: bool| -> Vec<Use> {
            let here = |named: &Named| are_written || !named.file.starts_with('/');
            let list = list.into_iter().filter(here);
            list.map(|named| Use { name: named.own, ..Use::of(self.b.file(&named.file)) }).collect()
        };
        let (inputs, outputs) = (uses(rule.sources, false), uses(rule.targets, true));
        self.b.task(Task {
            id,
            stage,
            command: Some(Command::Shell(command.to_owned())),
            env,
            inputs,
            outputs,
            cpus: cores.unwrap_or(1).clamp(1, 1_000_000) as u32,
            line: Some(rule.line),
            ..Task::default()
        })?;
        Ok(())
    }
}

impl Variables for MakeflowReader<'_> {
    fn name<'t>(&self, text: &'t str) -> &'t str {
        &text[..text.find(|c| NAME_ENDS.contains(c)).unwrap_or(text.len())]
    }

    fn value(&self, name: &str, depth: u32) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(Error::broken(format!("variables stand for each other more than {DEPTH_MAX} deep")));
        }
        let value = self.find(name).ok_or_else(|| {
            Error::broken(format!("the variable {} is not set", shown(name)))
                .hint("write `\\$` for a dollar that is meant for the shell")
        })?;
        self.allowance.borrow_mut().take(PIECE_BYTES + value.len() as u64, "variables stand for")?;
        Ok(value)
    }

    fn check_length(&self, n_bytes: usize) -> Result<()> {
        match n_bytes > EXPANDED_BYTES_MAX {
            true => {
                let message = format!(
                    "with what variables stand for, this is longer than {} MiB",
                    EXPANDED_BYTES_MAX >> 20
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            false => Ok(()),
        }
    }
}

/// The first place of `wanted` outside of quotations, escapes, comments and substitutions.
fn find_bare(text: &str, wanted: char) -> Option<usize> {
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\\') => drop(chars.next()),
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => return None,
            (None, c) if c == wanted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The names in a list of files, with `->` as a name of its own.
fn split_files(text: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match c {
            c if quote == Some(c) => quote = None,
            '\\' if quote != Some('\'') => word.extend(chars.next()),
            c if quote.is_some() => word.push(c),
            '\'' | '"' => quote = Some(c),
            '-' if chars.peek() == Some(&'>') => {
                chars.next();
                words.extend([std::mem::take(&mut word), "->".into()]);
            }
            c if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let inner = |q: char| value.strip_prefix(q).and_then(|v| v.strip_suffix(q));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

/// A size such as `10M`, by powers of 1024 as in cctools.
fn metric_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches(['b', 'B']).to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let value: f64 = digits.parse().ok()?;
    let bytes = value * (1u64 << shift) as f64;
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}
