//! The homes that are reached by commands, as the sections `[home.NAME]` of `eyas.toml` declare them.
//!
//! Every process looks for itself, in the places of `eyas.toml`, or in the file that EYAS_HOMES names. The nodes of a cluster
//! on this machine work in the folder in which it was started.

use crate::Fault;
use crate::dirs::config_files;
use crate::fault::bad;
use eyas_config::{Error, Home, Wrong};
use eyas_storage::{COMMANDS, Declared, PRESETS};
use std::path::{Path, PathBuf};

/// Names the file in which the homes of commands stand.
const VARIABLE: &str = "EYAS_HOMES";

/// Makes the declared homes known to this process. What is wrong elsewhere in the file is left to those who need it, and
/// `eyas config` says what is wrong with a home, too.
pub fn declare() -> Result<(), Fault> {
    let places = files()?;
    let (mut homes, mut wrong): (Vec<Declared>, Vec<String>) = (vec![], vec![]);
    for path in &places {
        let found = match eyas_config::read(path) {
            Ok(Some(config)) => config.homes,
            Ok(None) | Err(Error::NoProfile { .. }) => continue,
            Err(Error::Wrong(wrong)) => wrong.homes,
            Err(e) => return Err(bad(e)),
        };
        for home in found {
            // The first place counts most.
            if homes.iter().any(|known| known.name == home.name) {
                continue;
            }
            match declared(home.clone()) {
                Ok(home) => homes.push(home),
                Err(_) => wrong.extend(complaint(path, home)),
            }
        }
    }
    eyas_storage::declare(homes);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(bad(wrong.join("\n"))),
    }
}

/// The directories that lie on the own disk of a machine with one of these names, by the rules `[[home-on]]` of all files.
pub fn own_directories(names: &[String]) -> Result<Vec<PathBuf>, Fault> {
    let mut found: Vec<PathBuf> = vec![];
    for path in files()? {
        let rules = match eyas_config::read(&path) {
            Ok(None) => continue,
            Ok(Some(config)) => config.home_on,
            // What is wrong elsewhere in the file is left to those who need it.
            Err(Error::Wrong(Wrong { home_on: Some(rules), .. })) => rules,
            Err(e) => return Err(bad(e)),
        };
        for rule in rules {
            let is_here = rule.hosts.iter().any(|host| names.contains(host));
            if is_here && !rule.prefix.is_dir() {
                let (file, prefix) = (eyas_text::shown_path(&path), eyas_text::shown_path(&rule.prefix));
                let why = format!("{file}, line {}: {prefix} is no directory of this machine", rule.line);
                let hint = format!("the rule says that it lies on the disk of {}", rule.hosts.join(", "));
                return Err(bad(why).hint(hint));
            }
            if is_here && !found.contains(&rule.prefix) {
                found.push(rule.prefix);
            }
        }
    }
    Ok(found)
}

/// Where `eyas.toml` is looked for.
fn files() -> Result<Vec<PathBuf>, Fault> {
    match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(vec![PathBuf::from(path)]),
        None => config_files(),
    }
}

/// What is wrong with a home of the file at `path`, as a sentence.
pub fn complaint(path: &Path, home: Home) -> Option<String> {
    let line = home.line;
    declared(home).err().map(|e| format!("{}, line {line}: {e}", eyas_text::shown_path(path)))
}

fn declared(home: Home) -> Result<Declared, String> {
    let name = home.name.clone();
    let wrong = |why: String| format!("the home {}: {why}", eyas_text::shown(&name));
    let mut declared = Declared { name: home.name, ..Declared::default() };
    let one = |key: &str, texts: Vec<String>| match <[String; 1]>::try_from(texts) {
        Ok([text]) => Ok(text),
        Err(_) => Err(wrong(format!("`{key}` is one text"))),
    };
    for (key, texts) in home.values {
        match key.as_str() {
            "preset" => {
                let wanted = one(&key, texts)?;
                let Some((_, commands)) = PRESETS.iter().find(|(name, _)| *name == wanted) else {
                    let known: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
                    return Err(wrong(format!(
                        "there is no preset `{wanted}`; there are {}",
                        known.join(", ")
                    )));
                };
                for (name, line) in *commands {
                    // What the section itself says counts more.
                    declared.commands.entry((*name).into()).or_insert_with(|| (*line).into());
                }
            }
            "missing" => declared.missing = texts,
            "denied" => declared.denied = texts,
            name if COMMANDS.contains(&name) => {
                let line = one(&key, texts)?;
                match line.is_empty() {
                    // An empty line takes a command of a preset away.
                    true => declared.commands.remove(&key),
                    false => declared.commands.insert(key, line),
                };
            }
            other => {
                let known = format!("preset, missing, denied, {}", COMMANDS.join(", "));
                return Err(wrong(format!("an unknown key {}; keys are {known}", eyas_text::shown(other))));
            }
        }
    }
    declared.check().map_err(wrong)?;
    Ok(declared)
}
