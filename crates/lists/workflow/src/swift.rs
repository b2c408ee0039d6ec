//! Scripts in Swift/K, the language of the Swift parallel scripting system.
//!
//! In: a script, and the arguments that it is given. Out: a [`Workflow`]: each call of an app is a task. All
//! tasks are known before the first one runs, so a script that decides by what a task writes is refused.
//! Source: Swift/K's user guide, and its grammar `resources/swiftscript.g` (0.96).
//!
//! | module | |
//! |---|---|
//! | `lex`, `parse`, `ast` | from the text to statements |
//! | `engine` | does statements as soon as what they read is there; variables, types, calls |
//! | `values` | types, values, and the cells that hold them |
//! | `mappers` | names of files |
//! | `functions` | functions that every script has |
//! | `regexes` | regular expressions, with a limit of their work |
//! | `commands` | calls of apps become tasks |
//!
//! A file that the script names is a result; one that it does not name is called `_concurrent/VARIABLE.NUMBER`,
//! and is a result if no task reads it.

mod ast;
mod commands;
mod engine;
mod functions;
mod lex;
mod mappers;
mod parse;
mod regexes;
#[cfg(test)]
mod tests;
mod values;

use crate::error::{Error, ErrorKind, Result, shown};
use crate::model::Workflow;
use std::path::{Path, PathBuf};

/// What a user gives a script.
#[derive(Clone, Debug, Default)]
pub struct SwiftArguments {
    /// Names and values, for the function `arg`.
    pub(crate) values: Vec<(String, String)>,
    /// Programs of `ext` mappers may run while the script is read.
    pub runs_mappers: bool,
    /// The folder of input files. `None`: that of the script.
    pub inputs: Option<PathBuf>,
}

impl SwiftArguments {
    /// Adds arguments such as `-n=10`. The error says what is wrong with one.
    pub fn add(&mut self, arguments: &[String]) -> std::result::Result<(), String> {
        for argument in arguments {
            let named = argument.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
            match named.and_then(|rest| rest.split_once('=')).filter(|(name, _)| !name.is_empty()) {
                Some((name, value)) => self.values.push((name.to_owned(), value.to_owned())),
                None => {
                    return Err(format!(
                        "{} is no argument of a script, which is -NAME=VALUE",
                        shown(argument)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The most files that imports bring in.
const FILES_MAX: usize = 1000;

/// `print` is called with what the script prints.
pub(crate) fn parse(
    text: &str,
    stem: &str,
    dir: Option<&Path>,
    given: &SwiftArguments,
    print: &mut dyn FnMut(&str),
) -> Result<Workflow> {
    let mut reader = parse::ScriptReader::default();
    let mut files: Vec<PathBuf> = vec![PathBuf::new()];
    let mut n_bytes = text.len();
    let name_of = |files: &[PathBuf], e: Error| match e.part {
        0 => e,
        n => e.origin(&files.get(n as usize).map_or(String::new(), |path| path.display().to_string())),
    };
    // The script itself, where it lies under its own name: what imports it has it already.
    let own = dir.and_then(|dir| dir.join(format!("{stem}.swift")).canonicalize().ok());
    let own = own.filter(|own| mappers::read_text(own).is_ok_and(|there| there == text));
    let mut open: Vec<(PathBuf, String)> = vec![(PathBuf::new(), text.to_owned())];
    while let Some((path, text)) = open.pop() {
        let number = files.iter().position(|known| *known == path).unwrap_or(0);
        let imports = reader.read(&text, number as u16).map_err(|e| name_of(&files, e))?;
        for (name, at) in imports {
            // The functions of both standard libraries are always there.
            if matches!(&*name, "stdlib" | "stdlib.v1" | "stdlib.v2") {
                continue;
            }
            let Some(dir) = dir else {
                let message = format!("the import {} has no folder to be looked for in", shown(&name));
                return Err(name_of(&files, at.error(ErrorKind::Missing, message)));
            };
            let beside = path.parent().map(|inner| dir.join(inner)).unwrap_or_else(|| dir.to_path_buf());
            let target = beside.join(format!("{name}.swift"));
            let target = target.canonicalize().map_err(|e| {
                let message = format!("the import {} cannot be read", eyas_text::shown_path(&target));
                name_of(&files, at.error(ErrorKind::Missing, message).caused(e))
            })?;
            if own.as_ref() == Some(&target) || files.contains(&target) {
                continue;
            }
            if files.len() > FILES_MAX {
                return Err(name_of(
                    &files,
                    at.unsupported(format!("more than {FILES_MAX} files are imported")),
                ));
            }
            let inner = mappers::read_text(&target).map_err(|e| {
                let message = format!("the import {} cannot be read", eyas_text::shown_path(&target));
                name_of(&files, at.error(ErrorKind::Missing, message).caused(e))
            })?;
            n_bytes += inner.len();
            files.push(target.clone());
            open.push((target, inner));
        }
    }
    // A script that is named without a folder is in this one.
    let here = Path::new(".");
    let folder = given.inputs.as_deref().or(dir).map(|dir| if dir == Path::new("") { here } else { dir });
    let engine = engine::Engine::new(&reader.program, given, folder, print, stem, n_bytes);
    engine.and_then(engine::Engine::run).map_err(|e| name_of(&files, e))
}
