//! Hints on things that are allowed but most likely a mistake. They are printed before anything starts, and
//! the run goes on all the same.

use eyas_tasklist::TaskList;
use eyas_terms::array::Command;
use eyas_text::{Shell, shown};
use std::path::Path;

/// The number of arrays of a list whose first task is checked.
const ARRAYS_MAX: usize = 1000;
/// The number of words of a command for which files are looked for.
const WORDS_MAX: usize = 100;

/// The words of a map.
pub struct MapWords<'a> {
    pub command: &'a [String],
    pub shell: bool,
    /// Files and patterns, with a task for each; empty for a map over numbers.
    pub files: &'a [String],
    /// The names of the holes that the command may have.
    pub holes: &'a [String],
    /// Further names that exist in the sandbox.
    pub with: &'a [String],
    /// Outputs are declared.
    pub has_outputs: bool,
    pub base_dir: &'a Path,
}

/// Hints on a map, one sentence each.
pub fn of_map(map: &MapWords<'_>) -> Vec<String> {
    let mut hints = vec![];
    let has_hole = |hole: &str| map.command.iter().any(|word| word.replace("{{", "").contains(hole));
    let tells_of_sources = |hole: &&String| *hole != "index" && !hole.starts_with("out");
    // The bare name also stands for the file.
    let is_named = |file: &String| {
        let name = file.rsplit('/').next().unwrap_or(file);
        !name.is_empty() && map.command.iter().any(|word| word.contains(name))
    };
    if !map.files.is_empty()
        && !map.files.iter().any(is_named)
        && !map.holes.iter().filter(tells_of_sources).any(|hole| has_hole(&format!("{{{hole}}}")))
    {
        hints.push(
            "the command has no {in}, so it does not learn which file it is for; write {in} where the file's name goes"
                .to_string(),
        );
    }
    let is_out = |word: &String| word == "--out" || word.starts_with("--out=");
    if !map.has_outputs && map.command.iter().skip(1).any(is_out) {
        hints.push(
            "`--out` stands behind `--`, so it is a word of the command, and the task has no outputs; write it before `--`"
                .to_string(),
        );
    }
    if !map.shell {
        let of_shell = word_of_shell(map.command);
        hints.extend(
            of_shell.map(|word| {
                format!("without --shell the word {} is an argument like any other", shown(word))
            }),
        );
        let home = map.command.iter().find(|word| *word == "~" || word.starts_with("~/"));
        hints.extend(home.map(|word| {
            format!("without a shell the `~` in {} stands for itself; write the whole path", shown(word))
        }));
    }
    let words = map.command.iter().flat_map(|word| match map.shell {
        true => word.split_whitespace().collect(),
        false => vec![word.as_str()],
    });
    let undeclared = |word: &&str| {
        let name = word.strip_prefix("./").unwrap_or(word);
        let is_path = name.contains('/') && !name.starts_with('/') && !name.contains(['{', '}']);
        is_path
            && !map.with.iter().any(|with| with == name || with == word || is_below(name, with))
            && map.base_dir.join(name).is_file()
    };
    let mut said: Vec<&str> = vec![];
    for word in words.filter(undeclared) {
        if !said.contains(&word) {
            said.push(word);
            hints.push(format!(
                "{} is a file here and no input; `--with {word}` brings it into each sandbox, under its own name",
                shown(word)
            ));
        }
    }
    hints
}

/// Whether a path is below a directory.
fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

/// Programs whose words are names of files, so that a pattern among them is meant for a shell.
const TAKE_FILES: [&str; 20] = [
    "cat",
    "cp",
    "cut",
    "du",
    "file",
    "gzip",
    "gunzip",
    "head",
    "ln",
    "ls",
    "md5sum",
    "mv",
    "paste",
    "rm",
    "sha256sum",
    "sort",
    "stat",
    "tail",
    "touch",
    "wc",
];

/// The first word of a command without a shell that has a meaning only for one.
fn word_of_shell(argv: &[String]) -> Option<&String> {
    let program = argv.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    let takes_files = TAKE_FILES.contains(&program);
    argv.iter().find(|word| is_of_shell(word) || takes_files && word.contains(['*', '?']))
}

/// A word that has a meaning only for a shell.
fn is_of_shell(word: &str) -> bool {
    matches!(word, "|" | "||" | "&&" | ";" | "&" | "<" | ">" | ">>" | "2>" | "2>&1" | "&>")
        || word.len() > 1 && (word.starts_with('>') || word.starts_with("2>"))
}

/// Hints on a list, one of each kind: files beside the list that commands name and that are no files of their tasks, patterns that find
/// none, and shell words in a command without a shell.
pub fn of_list(list: &TaskList, base_dir: &Path) -> Vec<String> {
    let (mut lacks, mut renamed, mut finds_none, mut no_shell) = (
        LikelyMistakes::default(),
        LikelyMistakes::default(),
        LikelyMistakes::default(),
        LikelyMistakes::default(),
    );
    for array in list.arrays.iter().take(ARRAYS_MAX) {
        let task = array.expand(0);
        let words: Vec<&str> = match &task.command {
            Command::Exec(argv) => argv.iter().map(String::as_str).collect(),
            Command::Shell(line) => Shell::without(line).split_whitespace().collect(),
        };
        // A line of a list of commands without declared files runs in the folder of the files.
        let is_in_place = |line: &str| {
            Shell::without(line).starts_with("cd ") && task.inputs.is_empty() && task.outputs.is_empty()
        };
        if matches!(&task.command, Command::Shell(line) if is_in_place(line)) {
            continue;
        }
        let is_known = |word: &str| {
            let files = task.inputs.iter().chain(&task.outputs);
            files.clone().any(|(known, _)| known == word || is_below(word, known))
        };
        // The first word is a program, which is looked for elsewhere unless it is a path.
        let is_lacking = |(n, word): &(usize, &&str)| {
            let name = word.strip_prefix("./").unwrap_or(word);
            let is_name = !name.is_empty() && !name.starts_with(['/', '-', '~']);
            is_name && (*n > 0 || word.contains('/')) && !is_known(name) && base_dir.join(name).is_file()
        };
        // A program that is watched gets what it names.
        let is_watched = task.watched_at().is_some();
        let lacking = words.iter().enumerate().take(WORDS_MAX).filter(|_| !is_watched).find(is_lacking);
        if let Some((_, word)) = lacking {
            let here = std::path::absolute(base_dir.join(word.strip_prefix("./").unwrap_or(word)));
            let is_it = |location: &str| here.as_ref().is_ok_and(|here| Path::new(location) == here);
            match task.inputs.iter().find(|(_, location)| is_it(location)) {
                Some((name, _)) => {
                    renamed.take(
                        &task.id,
                        Some(&format!("{}, which is called {}", shown(word), shown(name))),
                        array.n_tasks,
                    );
                }
                None => lacks.take(&task.id, Some(word), array.n_tasks),
            }
        }
        if let Command::Exec(argv) = &task.command {
            no_shell.take(&task.id, word_of_shell(argv).map(String::as_str), array.n_tasks);
        } else if task.inputs.is_empty() && !is_watched {
            let is_pattern = |word: &&str| word.starts_with(['*', '?']) && word.len() < 64;
            finds_none.take(&task.id, words.iter().copied().skip(1).find(is_pattern), array.n_tasks);
        }
    }
    let lacks = lacks.first.as_ref().map(|(_, word)| {
        format!(
            "{} names {}, which is a file here and none of its own; a task finds its inputs in its sandbox, and nothing else of \
             yours",
            lacks.whose(),
            shown(word)
        )
    });
    let renamed = renamed.first.as_ref().map(|(_, words)| {
        format!("{} names {words} in its sandbox: the command has to name it so", renamed.whose())
    });
    let finds_none = finds_none.first.as_ref().map(|(_, word)| {
        format!(
            "{} has the pattern {} in its command, and no inputs that it could find; a task finds its inputs in its sandbox, and \
             nothing else of yours",
            finds_none.whose(),
            shown(word)
        )
    });
    let no_shell = no_shell.first.as_ref().map(|(_, word)| {
        format!(
            "{} has the word {} in a list of words, where it is an argument like any other; a command that is one string \
             goes to a shell",
            no_shell.whose(),
            shown(word)
        )
    });
    lacks.into_iter().chain(renamed).chain(finds_none).chain(no_shell).collect()
}

/// Tasks with a likely mistake: the first such task with the word that shows it, and their number.
#[derive(Default)]
struct LikelyMistakes {
    first: Option<(String, String)>,
    n: u64,
}

impl LikelyMistakes {
    fn take(&mut self, id: &str, word: Option<&str>, n_tasks: u32) {
        let Some(word) = word else { return };
        self.first.get_or_insert_with(|| (id.to_string(), word.to_string()));
        self.n += u64::from(n_tasks);
    }

    fn whose(&self) -> String {
        let id = self.first.as_ref().map_or("", |(id, _)| id);
        match self.n {
            0 | 1 => format!("task {}", shown(id)),
            n => format!("task {} (and {} more like it)", shown(id), n - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(command: &[&str], shell: bool, base_dir: &Path) -> Vec<String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_string()).collect();
        let holes = ["in", "out", "stem", "name", "index", ""].map(String::from);
        of_map(&MapWords {
            command: &command,
            shell,
            files: &["in/*.txt".into()],
            holes: &holes,
            with: &[],
            has_outputs: false,
            base_dir,
        })
    }

    #[test]
    fn each_likely_mistake_gets_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tools")).unwrap();
        std::fs::write(dir.path().join("tools/cut.py"), "").unwrap();
        for (command, shell, expect) in [
            (&["wc", "-l"][..], false, Some("no {in}")),
            (&["wc", "{{in}}"], false, Some("no {in}")),
            (&["wc", "{in}"], false, None),
            (&["wc", "{in}", ">", "{out}"], false, Some("without --shell the word `>`")),
            (&["wc", "{in}", ">{out}"], false, Some("without --shell the word `>{out}`")),
            (&["cp", "*", "{in}"], false, Some("without --shell the word `*`")),
            (&["find", ".", "-name", "*.x", "-newer", "{in}"], false, None),
            (&["wc < {in} > {out}"], true, None),
            (&["wc '{in}'"], true, None),
            (&["echo \"a {stem} b\""], true, None),
            (&["awk '{print $1}' {in}"], true, None),
            (&["echo \\'{in}\\'"], true, None),
            (&["cat", "~/x", "{in}"], false, Some("the `~` in `~/x`")),
            (&["cat ~/x {in}"], true, None),
            (&["python3", "tools/cut.py", "{in}"], false, Some("--with tools/cut.py")),
            (&["python3", "tools/other.py", "{in}"], false, None),
            (&["cat", "{in}", "--out", "{stem}.txt"], false, Some("`--out` stands behind `--`")),
            (&["cat", "{in}", "--out=x"], false, Some("`--out` stands behind `--`")),
        ] {
            let hints = hints(command, shell, dir.path());
            match expect {
                None => assert_eq!(hints, [""; 0], "{command:?}"),
                Some(text) => assert!(hints.len() == 1 && hints[0].contains(text), "{command:?}: {hints:?}"),
            }
        }
    }
}
