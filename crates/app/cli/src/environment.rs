//! `--env` and `--env-file`: variables that the programs of tasks get besides those of the node.

use crate::Fault;
use crate::fault::bad;
use crate::print::reason;
use clap::Args;
use eyas_tasklist::{TaskList, quoted};
use eyas_terms::array::{CONTAINER_NAME, Pattern, Piece, WATCH_VARIABLE};
use eyas_text::{shown, shown_path};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args, Clone, Default)]
pub struct EnvArgs {
    /// A variable for the programs of all tasks: NAME=VALUE, or NAME for the value that it has here, such as PATH or VIRTUAL_ENV
    /// (may be given more than once)
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub variables: Vec<String>,
    /// A file with such a variable on each line; blank lines and lines that begin with # are skipped
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
}

impl EnvArgs {
    /// The variables by name. What stands on the command line counts more than the file.
    pub fn read(&self) -> Result<BTreeMap<String, String>, Fault> {
        let mut all = BTreeMap::new();
        if let Some(path) = &self.env_file {
            let at = |why: &str| bad(format!("--env-file {}: {why}", shown_path(path)));
            let text = std::fs::read_to_string(path).map_err(|e| at(&reason(&e)))?;
            for (n, line) in text.lines().enumerate() {
                let line = line.trim_end_matches('\r');
                if line.trim().is_empty() || line.trim_start().starts_with('#') {
                    continue;
                }
                let (name, value) = variable(line).map_err(|why| at(&format!("line {}: {why}", n + 1)))?;
                all.insert(name, value);
            }
        }
        for text in &self.variables {
            let (name, value) = variable(text).map_err(|why| bad(format!("--env {}: {why}", shown(text))))?;
            all.insert(name, value);
        }
        Ok(all)
    }

    /// Adds the variables to all tasks; what a task declares itself counts more.
    pub fn add_to(&self, list: &mut TaskList) -> Result<(), Fault> {
        let variables = self.read()?;
        for array in &mut list.arrays {
            for (name, value) in &variables {
                let literal = Pattern::literal(name);
                let is_there = |own: &Pattern| match own.0[..] {
                    [Piece::Literal(_)] => *own == literal,
                    _ => (0..array.n_tasks).any(|task| array.fill(own, task) == *name),
                };
                if !array.template.env.iter().any(|(own, _)| is_there(own)) {
                    array.template.env.push((literal, Pattern::literal(value)));
                }
            }
        }
        Ok(())
    }

    /// The variables as lines for the shell of a node.
    pub fn lines(&self) -> Result<Vec<String>, Fault> {
        Ok(self.read()?.iter().map(|(name, value)| format!("export {name}={}", quoted(value))).collect())
    }

    /// Gives the variables to this process and to all that it starts from now on.
    pub fn set(&self) -> Result<(), Fault> {
        for (name, value) in self.read()? {
            // SAFETY: commands that call this have one thread then.
            unsafe { std::env::set_var(name, value) };
        }
        Ok(())
    }
}

/// Whether the programs of all tasks are watched.
#[derive(Args, Clone, Copy, Default)]
pub struct WatchArgs {
    /// Watch the programs: files that they name below their working directory and that are no inputs come from this directory
    /// when they are named, and what they make is brought here
    #[arg(long)]
    pub watch: bool,
}

impl WatchArgs {
    /// All tasks of the list are watched, where that was asked for.
    pub fn add_to(self, list: &mut TaskList) -> Result<(), Fault> {
        if !self.watch {
            return Ok(());
        }
        let here =
            eyas_storage::Location::from_path(&crate::dirs::working()?).map_err(crate::homes::fault)?;
        for array in &mut list.arrays {
            let template = &mut array.template;
            if template.inputs.iter().any(|(name, _)| *name == Pattern::literal(CONTAINER_NAME)) {
                return Err(bad(
                    "--watch: a task in a container is not watched; declare its files".to_owned()
                ));
            }
            if !template.env.iter().any(|(name, _)| *name == Pattern::literal(WATCH_VARIABLE)) {
                template.env.push((Pattern::literal(WATCH_VARIABLE), Pattern::literal(here.as_str())));
            }
        }
        Ok(())
    }
}

/// The name and the value of a variable.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.to_owned())),
        None => (text.trim(), None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
        return Err("write it as NAME=VALUE, where NAME has letters, digits and `_`".into());
    }
    let value = match value {
        Some(value) => value,
        None => match std::env::var(name) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => {
                return Err(format!("there is no variable {name} here; write {name}=VALUE"));
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(format!("the value that {name} has here is not UTF-8"));
            }
        },
    };
    match (name, value.contains('\0')) {
        (_, true) => Err("the value holds a NUL byte".into()),
        (WATCH_VARIABLE, false) => {
            let here = std::env::current_dir().map_err(|error| error.to_string())?;
            let at = eyas_storage::Location::parse(&value, &here).map_err(|error| error.to_string())?;
            Ok((name.into(), at.as_str().to_owned()))
        }
        (_, false) => Ok((name.into(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_tasklist::ReadOptions;
    use std::path::Path;

    #[test]
    fn variables_are_added_to_tasks_that_do_not_declare_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        std::fs::write(&file, "# comment\n\nA=from file\r\nB=two=2\n").unwrap();
        let args = EnvArgs { variables: vec!["A=1".into(), "PATH".into()], env_file: Some(file.clone()) };
        let text = "{\"command\": \"a\", \"env\": {\"A\": \"own\"}}\n{\"command\": \"b\"}\n";
        let mut list =
            eyas_tasklist::read(text.as_bytes(), Path::new("/base"), &ReadOptions::default()).unwrap();
        args.add_to(&mut list).unwrap();
        let mut tasks: Vec<_> =
            list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect();
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        let of = |task: usize, name: &str| {
            let found = tasks[task].env.iter().filter(|(own, _)| own == name).map(|(_, v)| v.clone());
            found.collect::<Vec<_>>().join("|")
        };
        assert_eq!([of(0, "A"), of(1, "A"), of(0, "B")], ["own", "1", "two=2"]);
        assert_eq!(of(1, "PATH"), std::env::var("PATH").unwrap());
        assert!(args.lines().unwrap().contains(&"export B=two=2".to_string()));
        std::fs::write(&file, "A=1\nB C\n").unwrap();
        let why = args.read().unwrap_err().message;
        assert!(why.contains("line 2: write it as NAME=VALUE"), "{why}");
        let args = EnvArgs { variables: vec!["EYAS_NOT_THERE".into()], env_file: None };
        assert!(args.read().unwrap_err().message.contains("there is no variable EYAS_NOT_THERE here"));
    }
}
