//! `eyas.toml`: options that are kept under a name, so that nobody has to type them.
//!
//! ```toml
//! [profile.small]
//! nodes = "1..4"
//! slots = 2
//! cache = "20GiB"
//! ```
//!
//! ```toml
//! [home.rc]            # files at rc://REMOTE/PATH
//! preset = "rclone"
//! ```
//!
//! ```toml
//! [[home-on]]          # files below /data/a lie on node1's own disk
//! prefix = "/data/a"
//! hosts = ["node1"]
//! ```
//!
//! A key of a profile has the name of an option of `eyas up` and `eyas run`, and its value is what the option takes. [`parse`] reads a file
//! and reports everything that is wrong with it at once, each with its line; [`find_profile`] looks in the places where
//! such a file may lie. What the keys of a home mean is said by home storage.
//!
//! Not here: what an option means, and whether its value is one that it takes. The command line asks its own reader.

#![forbid(unsafe_code)]

mod keys;

pub use keys::{KEYS, Key, Kind};

use eyas_text::{line_of, nearest, shown, shown_path};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The file's name, in every place.
pub const FILE: &str = "eyas.toml";
/// The table of profiles.
const PROFILES: &str = "profile";
/// The table of homes that are reached by commands.
const HOMES: &str = "home";
/// The list of rules that say on whose disks files lie.
const HOME_ON: &str = "home-on";

/// A file that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// In the order of the file.
    pub profiles: Vec<Profile>,
    /// In the order of the file.
    pub homes: Vec<Home>,
    /// In the order of the file.
    pub home_on: Vec<HomeOn>,
}

/// A rule: files below a directory lie on the own disks of some hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeOn {
    /// The line of the heading; the first line is 1.
    pub line: usize,
    pub prefix: PathBuf,
    /// At least one.
    pub hosts: Vec<String>,
}

/// A home that is reached by commands, as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    pub name: String,
    /// The line of the heading; the first line is 1.
    pub line: usize,
    /// Names with their texts, each name at most once.
    pub values: Vec<(String, Vec<String>)>,
}

/// Options under a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    pub name: String,
    /// The line of the heading; the first line is 1.
    pub line: usize,
    /// In the order of the file; each key at most once.
    pub settings: Vec<Setting>,
}

/// An option of a profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    pub key: &'static Key,
    /// From 1.
    pub line: usize,
    /// What stands behind the option on a command line, once for each value; of a switch that is set, one empty text.
    pub values: Vec<String>,
}

/// Something that is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// From 1.
    pub line: usize,
    /// One sentence.
    pub message: String,
    pub hint: Option<String>,
}

/// What is wrong with a file, at least one thing. The text has a line for each, and hints on lines of their own.
#[derive(Debug)]
pub struct Wrong {
    pub path: PathBuf,
    pub complaints: Vec<Complaint>,
    /// What could be read of it, so that what is wrong with that can be said as well.
    pub profiles: Vec<Profile>,
    /// The same of homes.
    pub homes: Vec<Home>,
    /// The rules for disks; `None`: something is wrong with one of them.
    pub home_on: Option<Vec<HomeOn>>,
}

impl Wrong {
    /// The complaint as people see it.
    pub fn sentence(&self, complaint: &Complaint) -> String {
        let Complaint { line, message, hint } = complaint;
        let hint = hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"));
        format!("{}, line {line}: {message}{hint}", shown_path(&self.path))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.complaints.iter().map(|complaint| self.sentence(complaint)).collect();
        f.write_str(&all.join("\n"))
    }
}

/// Why there is no profile.
#[derive(Debug)]
pub enum Error {
    /// A file is there and cannot be read.
    Unreadable {
        path: PathBuf,
        source: io::Error,
    },
    Wrong(Wrong),
    /// No file has such a profile.
    NoProfile {
        name: String,
        known: Vec<String>,
        read: Vec<PathBuf>,
        places: Vec<PathBuf>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &[PathBuf], word: &str| {
            let all: Vec<String> = paths.iter().map(|path| shown_path(path).to_string()).collect();
            all.join(word)
        };
        match self {
            Error::Unreadable { path, source } => write!(f, "cannot read {}: {source}", shown_path(path)),
            Error::Wrong(wrong) => wrong.fmt(f),
            Error::NoProfile { name, read, places, .. } if read.is_empty() => {
                write!(f, "there is no profile {}: there is no {}", shown(name), list(places, ", and no "))
            }
            Error::NoProfile { name, known, read, .. } => {
                write!(f, "there is no profile {} in {}", shown(name), list(read, " or "))?;
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                match nearest(name, &names) {
                    Some(near) => write!(f, "\nhint: did you mean {}?", shown(near)),
                    None if known.is_empty() => write!(f, "\nhint: a profile is a section [profile.NAME]"),
                    None => write!(f, "\nhint: there are {}", line_of(&known.join(", "))),
                }
            }
        }
    }
}

impl std::error::Error for Error {}

/// Where `eyas.toml` may lie, the place that counts most first: the working folder, then the user's folder of
/// configuration (`config_home`, if there is one).
pub fn places(working: &Path, config_home: Option<&Path>) -> Vec<PathBuf> {
    let user = config_home.map(|home| home.join("eyas").join(FILE));
    std::iter::once(working.join(FILE)).chain(user).collect()
}

/// Reads the file at that path. `Ok(None)`: there is none, or none can be seen there, because its folder may not be entered, as
/// where `HOME` is another user's.
pub fn read(path: &Path) -> Result<Option<Config>, Error> {
    // A pipe would be waited for, and a device read for ever.
    let text = std::fs::metadata(path).and_then(|found| match found.is_file() {
        true => std::fs::read_to_string(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    });
    match text {
        Ok(text) => parse(path, &text).map(Some).map_err(Error::Wrong),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && path.symlink_metadata().is_err() => Ok(None),
        Err(source) => Err(Error::Unreadable { path: path.into(), source }),
    }
}

/// The profile with that name and the file it is in: the first of `places` that has it. A file with mistakes before that is an
/// error, because what stands in it may have been meant.
pub fn find_profile(places: &[PathBuf], name: &str) -> Result<(PathBuf, Profile), Error> {
    let (mut known, mut seen) = (vec![], vec![]);
    for path in places {
        let Some(config) = read(path)? else { continue };
        if let Some(profile) = config.profiles.iter().find(|profile| profile.name == name) {
            return Ok((config.path, profile.clone()));
        }
        known.extend(config.profiles.into_iter().map(|profile| profile.name));
        seen.push(config.path);
    }
    Err(Error::NoProfile { name: name.into(), known, read: seen, places: places.to_vec() })
}

/// Reads the text of a file that lies at `path`. `Err`: all that is wrong with it, in the order of lines.
pub fn parse(path: &Path, text: &str) -> Result<Config, Wrong> {
    let mut reader =
        ProfileReader { text, folder: path.parent().unwrap_or(Path::new("")), complaints: vec![] };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or(0..0);
        reader.complain(&at, line_of(error.message().trim()).to_string(), None);
    }
    // Where brackets or quotes are missing, what follows is read wrongly and would only be blamed for that.
    let is_readable = reader.complaints.is_empty();
    let (profiles, homes, home_on) =
        if is_readable { reader.read(document.get_ref()) } else { (vec![], vec![], None) };
    if reader.complaints.is_empty() {
        return Ok(Config { path: path.into(), profiles, homes, home_on: home_on.unwrap_or_default() });
    }
    reader.complaints.sort_by_key(|complaint| complaint.line);
    Err(Wrong { path: path.into(), complaints: reader.complaints, profiles, homes, home_on })
}

struct ProfileReader<'a> {
    text: &'a str,
    /// Of the file.
    folder: &'a Path,
    complaints: Vec<Complaint>,
}

impl ProfileReader<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn complain(&mut self, at: &Range<usize>, message: String, hint: Option<String>) {
        let line = self.line(at);
        self.complaints.push(Complaint { line, message, hint });
    }

    fn read(&mut self, document: &DeTable<'_>) -> (Vec<Profile>, Vec<Home>, Option<Vec<HomeOn>>) {
        let (mut profiles, mut homes, mut home_on) = (vec![], vec![], Some(vec![]));
        for (name, value) in document {
            if name.get_ref() == HOMES {
                homes = self.read_homes(value);
                continue;
            }
            if name.get_ref() == HOME_ON {
                let n_before = self.complaints.len();
                let rules = self.read_home_on(value);
                home_on = (self.complaints.len() == n_before).then_some(rules);
                continue;
            }
            if name.get_ref() != PROFILES {
                let message = format!("an unknown section {}", shown(name.get_ref()));
                let hint = "a profile is a section [profile.NAME], a home [home.NAME], and a rule for disks of nodes \
                            [[home-on]]; there is nothing else at the top";
                self.complain(&name.span(), message, Some(hint.into()));
                continue;
            }
            let Some(tables) = value.get_ref().as_table() else {
                self.complain(&value.span(), "`profile` is not a section".into(), None);
                continue;
            };
            for (name, value) in tables {
                let Some(table) = value.get_ref().as_table() else {
                    let message = format!("{} stands outside of a profile", shown(name.get_ref()));
                    let hint = "a profile is a section [profile.NAME]";
                    self.complain(&name.span(), message, Some(hint.into()));
                    continue;
                };
                let line = self.line(&name.span());
                let settings = self.read_settings(table);
                profiles.push(Profile { name: name.get_ref().to_string(), line, settings });
            }
        }
        profiles.sort_by_key(|profile| profile.line);
        (profiles, homes, home_on)
    }

    fn read_home_on(&mut self, value: &toml::Spanned<DeValue<'_>>) -> Vec<HomeOn> {
        let hint =
            || Some("write [[home-on]] with prefix = \"/DIRECTORY\" and hosts = [\"HOST\"]".to_string());
        let Some(rules) = value.get_ref().as_array() else {
            self.complain(&value.span(), "`home-on` is not a list of sections".into(), hint());
            return vec![];
        };
        let mut read = vec![];
        for rule in rules {
            let Some(table) = rule.get_ref().as_table() else {
                self.complain(&rule.span(), "`home-on` is not a list of sections".into(), hint());
                continue;
            };
            let (mut prefix, mut hosts) = (None, vec![]);
            for (key, value) in table {
                let name: &str = key.get_ref();
                match (name, self.values(Kind::Texts, value.get_ref())) {
                    ("prefix", Ok(texts)) if texts.len() == 1 && texts[0].starts_with('/') => {
                        prefix = Some(PathBuf::from(&texts[0]));
                    }
                    ("hosts", Ok(texts)) if !texts.is_empty() => hosts = texts,
                    ("prefix", _) => {
                        let message = "`prefix` wants a directory as a whole path in quotes";
                        self.complain(&value.span(), message.into(), hint());
                    }
                    ("hosts", _) => {
                        let message = "`hosts` wants a list of names in quotes";
                        self.complain(&value.span(), message.into(), hint());
                    }
                    _ => self.complain(&key.span(), format!("an unknown key {}", shown(name)), hint()),
                }
            }
            match prefix {
                Some(prefix) if !hosts.is_empty() => {
                    read.push(HomeOn { line: self.line(&rule.span()), prefix, hosts });
                }
                _ => self.complain(&rule.span(), "`home-on` needs `prefix` and `hosts`".into(), hint()),
            }
        }
        read
    }

    fn read_homes(&mut self, value: &toml::Spanned<DeValue<'_>>) -> Vec<Home> {
        let mut homes = vec![];
        let Some(tables) = value.get_ref().as_table() else {
            self.complain(&value.span(), "`home` is not a section".into(), None);
            return homes;
        };
        for (name, value) in tables {
            let Some(table) = value.get_ref().as_table() else {
                let message = format!("{} stands outside of a home", shown(name.get_ref()));
                self.complain(&name.span(), message, Some("a home is a section [home.NAME]".into()));
                continue;
            };
            let mut values = vec![];
            for (key, value) in table {
                match self.values(Kind::Texts, value.get_ref()) {
                    Ok(texts) => values.push((key.get_ref().to_string(), texts)),
                    Err(wanted) => {
                        let what = what_it_is(value.get_ref());
                        let message = format!("{} is {what}, and wants {wanted}", shown(key.get_ref()));
                        self.complain(&value.span(), message, None);
                    }
                }
            }
            let line = self.line(&name.span());
            homes.push(Home { name: name.get_ref().to_string(), line, values });
        }
        homes.sort_by_key(|home| home.line);
        homes
    }

    fn read_settings(&mut self, table: &DeTable<'_>) -> Vec<Setting> {
        let mut settings = vec![];
        for (name, value) in table {
            let line = self.line(&name.span());
            let Some(key) = keys::find(name.get_ref()) else {
                let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
                let hint = match nearest(name.get_ref(), &known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("keys are {}", known.join(", ")),
                };
                self.complain(&name.span(), format!("an unknown key {}", shown(name.get_ref())), Some(hint));
                continue;
            };
            match self.values(key.kind, value.get_ref()) {
                Ok(values) => settings.push(Setting { key, line, values }),
                Err(wanted) => {
                    let message =
                        format!("`{}` is {}, and wants {wanted}", key.name, what_it_is(value.get_ref()));
                    self.complain(&value.span(), message, None);
                }
            }
        }
        settings.sort_by_key(|setting| setting.line);
        settings
    }

    /// What stands behind the option. `Err`: what is wanted instead.
    fn values(&self, kind: Kind, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
        let path = |text: &str| self.folder.join(text).display().to_string();
        match (kind, value) {
            (Kind::Switch, DeValue::Boolean(true)) => Ok(vec![String::new()]),
            (Kind::Switch, DeValue::Boolean(false)) => Ok(vec![]),
            (Kind::Switch, _) => Err("true or false"),
            (Kind::Value, DeValue::String(text)) => Ok(vec![text.to_string()]),
            (Kind::Value, DeValue::Integer(n)) if n.radix() == 10 => Ok(vec![n.as_str().into()]),
            (Kind::Value, DeValue::Float(x)) => Ok(vec![x.as_str().into()]),
            (Kind::Value, _) => Err("a text in quotes, or a number"),
            (Kind::Texts, DeValue::String(text)) => Ok(vec![text.to_string()]),
            (Kind::Texts, DeValue::Array(list)) => {
                let all: Option<Vec<String>> =
                    list.iter().map(|item| item.get_ref().as_str().map(str::to_string)).collect();
                all.ok_or("a list of texts in quotes")
            }
            (Kind::Texts, _) => Err("a text in quotes, or a list of such"),
            (Kind::Table, DeValue::Table(table)) => {
                let pair = |(name, value): (_, &toml::Spanned<DeValue<'_>>)| {
                    Some(format!("{name}={}", json_of(value.get_ref())?))
                };
                let all = table.iter().map(|(name, value)| pair((name.get_ref(), value)));
                all.collect::<Option<_>>().ok_or("values that are no dates")
            }
            (Kind::Table, _) => Err("a section of names with values, or { name = value }"),
            (Kind::Path | Kind::Paths, DeValue::String(text)) => Ok(vec![path(text)]),
            (Kind::Path, _) => Err("a path in quotes"),
            (Kind::Paths, DeValue::Array(list)) => {
                let all: Option<Vec<String>> =
                    list.iter().map(|item| item.get_ref().as_str().map(path)).collect();
                all.ok_or("a list of paths in quotes")
            }
            (Kind::Paths, _) => Err("a path in quotes, or a list of such"),
        }
    }
}

/// A value as JSON, which has no dates.
fn json_of(value: &DeValue<'_>) -> Option<serde_json::Value> {
    use serde_json::Value;
    Some(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(n) => Value::from(i64::from_str_radix(n.as_str(), n.radix()).ok()?),
        DeValue::Float(x) => Value::from(x.as_str().parse::<f64>().ok()?),
        DeValue::Boolean(is_set) => Value::from(*is_set),
        DeValue::Datetime(_) => return None,
        DeValue::Array(list) => list.iter().map(|item| json_of(item.get_ref())).collect::<Option<_>>()?,
        DeValue::Table(table) => {
            let pair =
                |(name, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
                    Some((name.get_ref().to_string(), json_of(value.get_ref())?))
                };
            Value::Object(table.iter().map(pair).collect::<Option<_>>()?)
        }
    })
}

fn what_it_is(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(n) if n.radix() != 10 => "a number that is not decimal",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

#[cfg(test)]
mod tests;
