//! Lists of commands: each line for the shell is a task. Blank lines and comments are skipped.
//!
//! `{in:PATH}` declares an input and stands for its name in the sandbox, `{out:PATH}` does the same for an
//! output. An input may be a pattern, which stands for the names of its files, or a directory. Everything else in a line is for the shell, including braces. A task that declares a file runs in
//! a sandbox with its inputs, like tasks of other lists. A task that declares none runs in the folder from
//! which the list was submitted; eyas does not know what it reads and writes there. In a container it runs in a sandbox, too.

use crate::contain;
use crate::error::{Error, Result, shown};
use crate::file::File;
use crate::glob::{is_url_folder, stands_for_several};
use crate::line::Task;
use crate::lines::Lines;
use crate::list::Builder;
use crate::location;
use crate::read::{ReadOptions, explain};
use crate::several::Several;
use crate::shell::{LineQuotes, quoted};
use crate::{TaskList, map};
use eyas_terms::array::Command;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::path::Path;

const INPUT: &str = "{in:";
const OUTPUT: &str = "{out:";

/// Reads a list of commands; relative paths are taken from `base_dir`. Gives the whole list or the first
/// mistake.
pub fn read_commands(reader: impl BufRead, base_dir: &Path, options: &ReadOptions) -> Result<TaskList> {
    let origin = |e: Error| e.origin(&options.origin);
    let base = location::base_text(base_dir).map_err(origin)?;
    let mut several = Several::new(base_dir, base.clone());
    let mut builder = Builder::new(base.clone(), &options.id_prefix);
    if options.is_addition {
        builder.has_others();
    }
    let mut lines = Lines::new(reader, options.line_bytes_max, "a list of commands");
    loop {
        let Some((number, text)) = lines.next().map_err(origin)? else {
            builder.expect(several.expected);
            return builder.finish().map_err(origin);
        };
        let at = |e: Error| origin(e.at(number, None));
        let line = text.trim();
        if number == 1 && line.starts_with("#!") {
            return Err(at(Error::invalid("this is a script, and each line of a list of commands is a task of its own")
                .hint("without its first line it is a list of commands; as one task a script is a line like `sh script.sh`")));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.ends_with('\\') && !line.ends_with("\\\\") {
            let message = "the line ends in a backslash, as if it went on in the next";
            return Err(at(Error::invalid(message).hint("a task is one line")));
        }
        let mut task = task(line, number, &mut several, &base, options.container.is_some()).map_err(at)?;
        contain::contain(&mut task, options.container.as_deref()).map_err(at)?;
        contain::drop_unwanted(&mut task);
        builder.add(&task, number).map_err(|refused| origin(explain(refused, text, number)))?;
    }
}

/// The task on `line`. In a container, there is no folder from which the list was submitted.
fn task<'l>(
    line: &'l str,
    number: u64,
    several: &mut Several<'_>,
    base: &str,
    is_contained: bool,
) -> Result<Task<'l>> {
    let (mut inputs, mut outputs): (Vec<File<'l>>, Vec<File<'l>>) = (vec![], vec![]);
    let mut names = Names::default();
    let (mut command, mut quotes) = (String::new(), LineQuotes::default());
    let mut rest = line;
    while let Some((at, mark)) = next_mark(rest) {
        quotes.pass(&rest[..at]);
        command.push_str(&rest[..at]);
        let path = &rest[at + mark.len()..];
        let Some(end) = path.find('}') else {
            let message = format!("{} is never closed", shown(mark));
            return Err(Error::invalid(message).hint(format!("write it as {mark}PATH}}")));
        };
        rest = &path[end + 1..];
        let path = &path[..end];
        let location = |path: &str| {
            let mut location = String::new();
            location::push_location(&mut location, path, base).map(|()| location)
        };
        if mark == INPUT && !path.ends_with('/') && several.is_directory(path) {
            let at = location(&format!("{path}/"))?;
            let (name, is_new) = names.of(mark, &at, "in", inputs.len());
            if is_new {
                inputs.extend(several.below(path, number)?.iter().map(|below| File {
                    name: Some(format!("{name}/{below}").into()),
                    location: format!("{at}{below}").into(),
                }));
            }
            command.push_str(&quotes.word(&map::dashed(&name)));
            continue;
        }
        if mark == INPUT && is_url_folder(path) {
            let (name, is_new) = names.of(mark, &location(path)?, "in", inputs.len());
            if is_new {
                inputs.extend(several.below_url(path)?.iter().map(|(below, at)| File {
                    name: Some(format!("{name}/{below}").into()),
                    location: at.clone().into(),
                }));
            }
            command.push_str(&quotes.word(&map::dashed(&name)));
            continue;
        }
        let found = match mark == INPUT && !path.ends_with('/') && stands_for_several(path) {
            true => several.find(path, number)?,
            false => None,
        };
        let (files, prefix) = if mark == INPUT { (&mut inputs, "in") } else { (&mut outputs, "out") };
        for (n, path) in found.as_deref().unwrap_or(&[path.to_owned()]).iter().enumerate() {
            let at = location(path)?;
            let (name, is_new) = names.of(mark, &at, prefix, files.len());
            if n > 0 {
                command.push(' ');
            }
            command.push_str(&quotes.word(&map::dashed(&name)));
            if is_new {
                files.push(File { name: Some(name.into()), location: at.into() });
            }
        }
    }
    command.push_str(rest);
    if inputs.is_empty() && outputs.is_empty() && !is_contained {
        command = format!("cd {} || exit; {line}", quoted(base));
    }
    Ok(Task {
        inputs,
        outputs,
        // Otherwise all lines that first change the folder would be one stage.
        label: program(line).into(),
        ..Task::new(Command::Shell(command.into()))
    })
}

/// The names that the files of a line have in the sandbox.
#[derive(Default)]
struct Names {
    /// By the mark and the location; that of a directory ends in a slash.
    known: HashMap<(&'static str, String), String>,
    taken: HashSet<String>,
}

impl Names {
    /// The name of the file at `location`, and whether it is new. If the file's own name is taken, something that begins with
    /// `prefix` is put before it.
    fn of(&mut self, mark: &'static str, location: &str, prefix: &str, n_before: usize) -> (String, bool) {
        let key = (mark, location.to_owned());
        if let Some(name) = self.known.get(&key) {
            return (name.clone(), false);
        }
        let own = location::file_name(location).into_owned();
        let mut name = own.clone();
        let mut n = n_before + 1;
        while !self.taken.insert(name.clone()) {
            name = format!("{prefix}{n}-{own}");
            n += 1;
        }
        self.known.insert(key, name.clone());
        (name, true)
    }
}

fn next_mark(text: &str) -> Option<(usize, &'static str)> {
    let mark_at = |(at, _): (usize, &str)| {
        let mark = [INPUT, OUTPUT].into_iter().find(|mark| text[at..].starts_with(mark))?;
        Some((at, mark))
    };
    text.match_indices('{').find_map(mark_at)
}

/// The name of the program at the beginning of a line, after variables that are set for it.
fn program(line: &str) -> String {
    let is_setting = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let word = line.split_whitespace().find(|word| !is_setting(word)).unwrap_or("");
    let is_name = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    word.rsplit('/').next().unwrap_or(word).chars().filter(|c| is_name(*c)).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::array::TaskSpec;

    fn read(text: &str) -> Result<Vec<TaskSpec>> {
        let list = read_commands(text.as_bytes(), Path::new("/ba se"), &ReadOptions::default())?;
        let all = list.arrays.iter().flat_map(|array| (0..array.n_tasks).map(|i| array.expand(i)));
        Ok(all.collect())
    }

    #[test]
    fn a_line_is_a_task_and_files_are_declared_in_it() {
        let tasks = read("# comment\n\n  echo {a,b} > x  \r\nA=1 /bin/sort {in:in/a b} {in:in/a b} {in:-c} -o {out:o/a b}\n").unwrap();
        assert_eq!(tasks.len(), 2);
        let of = |id: &str| tasks.iter().find(|task| task.id == id).unwrap();
        let plain = of("3");
        assert_eq!(plain.command, Command::Shell("cd '/ba se' || exit; echo {a,b} > x".into()));
        assert_eq!((plain.inputs.len(), plain.label.as_str()), (0, "echo"));
        let staged = of("4");
        let command = "A=1 /bin/sort 'a b' 'a b' ./-c -o 'out1-a b'";
        assert_eq!(staged.command, Command::Shell(command.into()));
        let file = |name: &str, at: &str| (name.to_owned(), at.to_owned());
        assert_eq!(staged.inputs, [file("a b", "/ba se/in/a b"), file("-c", "/ba se/-c")]);
        assert_eq!(
            (&staged.outputs[..], staged.label.as_str()),
            (&[file("out1-a b", "/ba se/o/a b")][..], "sort")
        );
    }

    #[test]
    fn inputs_may_be_patterns_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("nr/deep")).unwrap();
        for name in ["ref.fa", "ref.fa.bwt", "nr/one", "nr/deep/two"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let text = "bwa {in:ref.fa} {in:ref.fa*} > {out:x}\nblast {in:nr} {in:nr} > {out:y}\ncat {in:x*} > {out:z}\n";
        let options = ReadOptions::default();
        let list = read_commands(text.replace("{in:x*}", "{in:x}").as_bytes(), dir.path(), &options).unwrap();
        let tasks: Vec<_> = list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect();
        let of = |id: &str| tasks.iter().find(|task| task.id == id).unwrap();
        assert_eq!(of("1").command, Command::Shell("bwa ref.fa ref.fa ref.fa.bwt > x".into()));
        assert_eq!(of("1").inputs.len(), 2);
        assert_eq!(of("2").command, Command::Shell("blast nr nr > y".into()));
        let file = |name: &str| (name.to_owned(), format!("{base}/{name}"));
        assert_eq!(of("2").inputs, [file("nr/deep/two"), file("nr/one")]);
        // What a task writes may not be meant by a pattern, which is looked up before.
        let error = read_commands(text.as_bytes(), dir.path(), &options).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("no file matches `x*`"), "{error}");
        let error = read_commands(&b"cat {in:nr} > {out:nr/z}\n"[..], dir.path(), &options).unwrap_err();
        assert!(error.to_string().contains("is read as it is now"), "{error}");
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, expect) in [
            ("echo\n\necho \\\n", "task list, line 3: the line ends in a backslash"),
            ("#!/bin/sh\necho\n", "task list, line 1: this is a script"),
            ("cat {in:a\n", "task list, line 1: `{in:` is never closed"),
            ("cat {in:gopher://a}\n", "task list, line 1: the scheme `gopher`"),
            (
                "a > {out:o}\nb > {out:o}\n",
                "task list, line 2: the task writes `/ba se/o`, and so does task `1` on line 1",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
    }

    #[test]
    fn what_is_written_as_a_task_list_is_the_same() {
        let text = "echo $HOME \"it's\"\ncat {in:a} > {out:b}\n";
        let list = read_commands(text.as_bytes(), Path::new("/base"), &ReadOptions::default()).unwrap();
        let lines: String =
            list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| crate::to_jsonl(a, i) + "\n")).collect();
        let again = crate::read(lines.as_bytes(), Path::new("/other"), &ReadOptions::default()).unwrap();
        assert_eq!(again.arrays, list.arrays);
    }
}
