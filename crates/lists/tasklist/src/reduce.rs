//! Splits a task that may be applied to any part of its inputs into a tree of tasks.
//!
//! In: a task with `reduce: k`. Out: tasks that each take at most `k` inputs. Their outputs stay on the nodes
//! (`run:.reduce/LINE/LEVEL.NUMBER`, with the prefix of ids before LINE) and are the inputs of the next
//! level; the last task makes the original task's own output. So a gather of a thousand files at one node
//! becomes partial results on many nodes, each near its files (`Zhang12` §II-A, §V-G).
//!
//! Invariants: each input is read by exactly one task; every task reads at least two, unless there is only
//! one task; the inputs keep their order from left to right, so that the program must be associative but need
//! not be commutative.
//!
//! Not here: where the parts run, which placement decides.

use crate::error::{Error, Result};
use crate::file::File;
use crate::line::Task;
use crate::location::{self, RUN_FILE};
use crate::map::dashed;
use crate::shell::LineQuotes;
use eyas_terms::array::{Command, file_name};
use std::borrow::Cow;

/// In the command, this is replaced by the names of a part's inputs.
const HOLE: &str = "{inputs}";
/// The text that the parts of one task may have together; each part has the command, the environment and the
/// label.
const PARTS_BYTES_MAX: u64 = 256 << 20;
/// An estimate of the length of the name of a part's output.
const MADE_BYTES: usize = 16;

/// The tasks that `task`, on line `number`, is split into; the task itself if it does not reduce.
pub(crate) fn expand<'a>(task: Task<'a>, id_prefix: &str, number: u64) -> Result<Vec<Task<'a>>> {
    let Some(arity) = task.reduce.map(|n| n as usize) else { return Ok(vec![task]) };
    if !has_hole(&task.command) {
        let message = "the command does not say where the inputs of a part go";
        return Err(Error::invalid(message).field("reduce").hint("write {inputs} in the command"));
    }
    let [output] = &task.outputs[..] else {
        let message = format!("a task that reduces writes one file, this one {}", task.outputs.len());
        return Err(Error::invalid(message).field("reduce"));
    };
    let n_bytes = parts_bytes(&task, arity);
    if n_bytes > PARTS_BYTES_MAX {
        let message = format!(
            "its parts would have {} MiB of text together, at most {} MiB can be",
            n_bytes >> 20,
            PARTS_BYTES_MAX >> 20
        );
        return Err(Error::invalid(message)
            .field("reduce")
            .hint("put a long command into a script, or let a part take more inputs"));
    }
    let out_name = Cow::from(name_of(output));
    let id = match &task.id {
        Some(id) => id.to_string(),
        None => format!("{id_prefix}{number}"),
    };
    let mut parts: Vec<File<'_>> = task
        .inputs
        .iter()
        .map(|file| File { name: Some(name_of(file).into()), location: file.location.clone() })
        .collect();
    let mut tasks = vec![];
    let mut level = 0;
    while parts.len() > arity {
        let n_groups = parts.len().div_ceil(arity);
        let n_parts = parts.len();
        let mut rest = parts.into_iter();
        parts = vec![];
        for k in 0..n_groups {
            // Groups as equal as possible.
            let n = (k + 1) * n_parts / n_groups - k * n_parts / n_groups;
            let mut group: Vec<File<'_>> = rest.by_ref().take(n).collect();
            if group.len() == 1 {
                parts.append(&mut group);
                continue;
            }
            // If the whole output is a directory, so is the output of each part.
            let slash = if output.location.ends_with('/') { "/" } else { "" };
            let made = format!("{RUN_FILE}.reduce/{}{number}/{level}.{k}{slash}", as_name(id_prefix));
            let made_here = File { name: Some(out_name.clone()), location: made.clone().into() };
            tasks.push(part(&task, format!("{id}~{level}.{k}"), group, made_here));
            parts.push(File { name: Some(format!("part-{level}.{k}").into()), location: made.into() });
        }
        level += 1;
    }
    let output = File { name: Some(out_name.clone()), location: output.location.clone() };
    let mut last = part(&task, id, parts, output);
    last.id = task.id.clone();
    tasks.push(last);
    Ok(tasks)
}

/// The largest number of tasks in a tree over `n_inputs`.
fn n_parts_of(n_inputs: usize, arity: usize) -> u64 {
    let (mut n_left, mut n_parts) = (n_inputs, 1);
    while n_left > arity {
        n_left = n_left.div_ceil(arity);
        n_parts += n_left as u64;
    }
    n_parts
}

/// The text of all parts together.
fn parts_bytes(task: &Task<'_>, arity: usize) -> u64 {
    let (command, n_holes) = match &task.command {
        Command::Exec(argv) => {
            (argv.iter().map(|word| word.len()).sum(), argv.iter().filter(|word| *word == HOLE).count())
        }
        Command::Shell(line) => (line.len(), line.matches(HOLE).count()),
    };
    let env: usize = task.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let output: usize = task.outputs.iter().map(|file| name_of(file).len()).sum();
    let id = task.id.as_ref().map_or(0, |id| id.len());
    let each = (command + env + output + id + task.label.len()) as u64;
    // Each input is named by one part, and so is the output of each part; every hole takes the names.
    let names: usize = task.inputs.iter().map(|file| name_of(file).len() + 2 * MADE_BYTES).sum();
    let n_parts = n_parts_of(task.inputs.len(), arity);
    each.saturating_mul(n_parts).saturating_add((names as u64).saturating_mul(n_holes as u64))
}

/// The text with all characters except letters and digits written as numbers, so that it can be part of a
/// name.
fn as_name(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => name.push(char::from(byte)),
            false => name.push_str(&format!("_{byte:02x}")),
        }
    }
    name
}

fn part<'a>(task: &Task<'a>, id: String, inputs: Vec<File<'a>>, output: File<'a>) -> Task<'a> {
    let names: Vec<String> = inputs.iter().map(name_of).collect();
    Task {
        id: Some(id.into()),
        command: fill(&task.command, &names),
        inputs,
        outputs: vec![output],
        env: task.env.clone(),
        container: task.container.clone(),
        cpus: task.cpus,
        needs: task.needs.clone(),
        memory_bytes: task.memory_bytes,
        walltime_ns: task.walltime_ns,
        retries: task.retries,
        priority: task.priority,
        label: task.label.clone(),
        dynamic: task.dynamic,
        hints: task.hints,
        promises: vec![],
        reduce: None,
    }
}

fn has_hole(command: &Command<Cow<'_, str>>) -> bool {
    match command {
        Command::Exec(argv) => argv.iter().any(|word| word == HOLE),
        Command::Shell(line) => line.contains(HOLE),
    }
}

fn fill<'a>(command: &Command<Cow<'a, str>>, names: &[String]) -> Command<Cow<'a, str>> {
    match command {
        Command::Exec(argv) => Command::Exec(
            argv.iter()
                .flat_map(|word| match word == HOLE {
                    true => names.iter().map(|name| Cow::Owned(name.clone())).collect(),
                    false => vec![word.clone()],
                })
                .collect(),
        ),
        Command::Shell(line) => {
            let (mut out, mut quotes) = (String::new(), LineQuotes::default());
            for (n, text) in line.split(HOLE).enumerate() {
                if n > 0 {
                    let words: Vec<String> = names.iter().map(|name| quotes.word(&dashed(name))).collect();
                    out.push_str(&words.join(" "));
                }
                quotes.pass(text);
                out.push_str(text);
            }
            Command::Shell(out.into())
        }
    }
}

fn name_of(file: &File<'_>) -> String {
    match &file.name {
        Some(name) => name.to_string(),
        None if location::is_url(&file.location) => location::file_name(&file.location).into_owned(),
        None => file_name(file.location.strip_prefix(RUN_FILE).unwrap_or(&file.location)).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::read::{ReadOptions, read};
    use eyas_terms::array::Command;
    use proptest::prelude::*;
    use std::path::Path;

    fn tasks(line: &str) -> Result<Vec<eyas_terms::array::TaskSpec>, String> {
        let list =
            read(line.as_bytes(), Path::new("/d"), &ReadOptions::default()).map_err(|e| e.to_string())?;
        Ok(list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect())
    }

    fn line(n: usize, arity: u32, command: &str) -> String {
        let inputs: Vec<String> = (0..n).map(|i| format!("\"x/{i}.txt\"")).collect();
        format!(
            r#"{{"id":"all","command":{command},"inputs":[{}],"outputs":["sum.txt"],"reduce":{arity}}}"#,
            inputs.join(",")
        )
    }

    #[test]
    fn few_inputs_are_one_task() {
        let tasks = tasks(&line(3, 4, r#"["sum","{inputs}","-o","sum.txt"]"#)).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].id, "all");
        let words = ["sum", "0.txt", "1.txt", "2.txt", "-o", "sum.txt"].map(String::from).to_vec();
        assert_eq!(tasks[0].command, Command::Exec(words));
    }

    #[test]
    fn many_inputs_are_a_tree_whose_parts_stay_on_the_nodes() {
        let tasks = tasks(&line(10, 4, r#""cat {inputs} > sum.txt""#)).unwrap();
        let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        let last = tasks.iter().find(|t| t.id == "all").unwrap();
        let from: Vec<&str> = last.inputs.iter().map(|(_, l)| l.as_str()).collect();
        assert_eq!(from, ["run:.reduce/1/0.0", "run:.reduce/1/0.1", "run:.reduce/1/0.2"]);
        assert_eq!(last.outputs[0].1, "/d/sum.txt");
        assert_eq!(last.command, Command::Shell("cat part-0.0 part-0.1 part-0.2 > sum.txt".into()));
        let first = tasks.iter().find(|t| t.id == "all~0.0").unwrap();
        assert_eq!(first.command, Command::Shell("cat 0.txt 1.txt 2.txt > sum.txt".into()));
    }

    /// Each part has the whole command, and each hole in it the names of all inputs of the part.
    #[test]
    fn parts_that_would_fill_the_memory_are_refused() {
        let long = "x".repeat(100_000);
        let error = tasks(&line(100_000, 2, &format!(r#"["a","{long}","{{inputs}}"]"#))).unwrap_err();
        assert!(error.contains("line 1: its parts would have 9"), "{error}");
        assert!(error.contains("MiB of text together, at most 256 MiB can be"), "{error}");
        let holes = "{inputs} ".repeat(20_000);
        let error = tasks(&line(10_000, 10_000, &format!(r#""cat {holes}""#))).unwrap_err();
        assert!(error.contains("its parts would have"), "{error}");
        assert!(tasks(&line(20_000, 2, r#""cat {inputs} > sum.txt""#)).is_ok());
    }

    #[test]
    fn mistakes_are_told() {
        let error = tasks(&line(3, 2, r#""cat * > sum.txt""#)).unwrap_err();
        assert!(error.contains("does not say where the inputs"), "{error}");
        let two = r#"{"command":"cat {inputs}","inputs":["a"],"outputs":["b","c"],"reduce":2}"#;
        assert!(tasks(two).unwrap_err().contains("writes one file, this one 2"));
        assert!(tasks(&line(3, 1, r#""cat {inputs} > sum.txt""#)).is_err());
    }

    proptest! {
        /// Every input once, in order, no task with more than it may take.
        #[test]
        fn a_tree_reads_all_in_order(n in 1usize..200, arity in 2u32..9) {
            let tasks = tasks(&line(n, arity, r#""cat {inputs} > sum.txt""#)).unwrap();
            prop_assert!(tasks.iter().all(|t| t.inputs.len() <= arity as usize));
            prop_assert!(tasks.len() == 1 || tasks.iter().all(|t| t.inputs.len() >= 2));
            // From the top down to the leaves.
            let mut leaves = vec![];
            let mut open = vec!["/d/sum.txt".to_string()];
            while let Some(location) = open.pop() {
                match tasks.iter().find(|t| t.outputs[0].1 == location) {
                    Some(task) => open.extend(task.inputs.iter().rev().map(|(_, l)| l.clone())),
                    None => leaves.push(location),
                }
            }
            prop_assert_eq!(leaves, (0..n).map(|i| format!("/d/x/{i}.txt")).collect::<Vec<_>>());
        }
    }
}
