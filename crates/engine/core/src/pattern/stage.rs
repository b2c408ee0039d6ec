//! The stage that a task belongs to.
//!
//! In: a task's label, its command, and how many files it reads and writes. Out: the stage's name. Tasks with
//! the same name in one run are one stage (`Zhang12` §V-F.1: "the name of the stage, which could be the
//! application binary names").
//!
//! Why the numbers of files are part of the name: without labels, one program often serves two stages (`awk`,
//! `python3`), and a task that reads a thousand files is in another stage than a task that reads one. The
//! numbers are put into classes, so that a merge of 900 files and a merge of 1,000 stay together.

use super::GATHER_INPUTS_MIN;
use eyas_terms::array::{Command, Pattern, Piece, TaskArray, file_name};
use eyas_text::Shell;

/// Programs that run another program, named by the first argument that is not an option.
const INTERPRETERS: [&str; 12] =
    ["env", "sh", "bash", "dash", "python", "perl", "ruby", "Rscript", "julia", "node", "nice", "time"];

/// The name of the stage of a task with this label and program that reads and writes this many files.
pub fn stage_name(label: &str, program: &str, n_inputs: usize, n_outputs: usize) -> String {
    if label.is_empty() {
        format!("{program}({}→{})", class(n_inputs), class(n_outputs))
    } else {
        label.to_owned()
    }
}

/// The program of a stage with that name: the name without the numbers of files.
pub fn program_of_stage(name: &str) -> &str {
    name.strip_suffix(')')
        .and_then(|name| name.rsplit_once('('))
        .filter(|(_, shape)| shape.contains('→'))
        .map_or(name, |(program, _)| program)
}

fn class(n: usize) -> &'static str {
    match n {
        0 => "0",
        1 => "1",
        _ if n < GATHER_INPUTS_MIN as usize => "few",
        _ => "many",
    }
}

/// The name of task `i`'s stage; `i < n_tasks`.
pub fn stage_of_task(array: &TaskArray, i: u32) -> String {
    let form = &array.template;
    let program = if form.label.is_empty() { program_of(array, i) } else { String::new() };
    stage_name(&form.label, &program, form.inputs.len(), form.outputs.len())
}

/// Whether all tasks of an array are of one stage, so that [`stage_of_task`] need be called only once.
pub fn is_one_stage(array: &TaskArray) -> bool {
    let literal = |p: &Pattern| p.0.iter().all(|piece| matches!(piece, Piece::Literal(_)));
    let form = &array.template;
    !form.label.is_empty()
        || match &form.command {
            // An interpreter's options may be literal and its script not, so only the literal beginning is
            // looked at.
            Command::Exec(argv) => {
                let n_literal = argv.iter().take_while(|p| literal(p)).count();
                n_literal == argv.len() || !program_in(words(array, 0).take(n_literal)).1
            }
            Command::Shell(line) => match line.0.first() {
                Some(Piece::Literal(text)) => Shell::without(text)
                    .rsplit_once(char::is_whitespace)
                    .is_some_and(|(whole, _)| !program_in(whole.split_whitespace().map(str::to_owned)).1),
                _ => false,
            },
        }
}

fn words(array: &TaskArray, i: u32) -> Box<dyn Iterator<Item = String> + '_> {
    match &array.template.command {
        Command::Exec(argv) => Box::new(argv.iter().map(move |p| array.fill(p, i))),
        Command::Shell(line) => {
            let line = array.fill(line, i);
            Box::new(
                Shell::without(&line).split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter(),
            )
        }
    }
}

fn program_of(array: &TaskArray, i: u32) -> String {
    program_in(words(array, i)).0
}

/// The program that the words of a command start, or the script of an interpreter. `None`: an interpreter
/// without a script.
pub fn started_by(words: impl Iterator<Item = String>) -> Option<String> {
    match program_in(words) {
        (program, false) => Some(program),
        (_, true) => None,
    }
}

/// The program that these words start, and whether a further word could have changed that.
fn program_in(words: impl Iterator<Item = String>) -> (String, bool) {
    let mut program = String::new();
    for word in words {
        let is_option = word.starts_with('-');
        let is_setting = !word.starts_with('/') && word.contains('=');
        if is_setting || (is_option && !program.is_empty()) {
            continue;
        }
        let name = file_name(&word);
        program = name.to_owned();
        // `python3.11` is `python`.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if !INTERPRETERS.contains(&plain) {
            return (program, false);
        }
    }
    (program, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::array::{Column, TaskForm};

    fn array(command: Command<Pattern>, label: &str) -> TaskArray {
        let mut column = Column::default();
        assert!(column.push("a.py") && column.push("b.py"));
        TaskArray {
            needs: None,
            n_tasks: 2,
            first_index: 0,
            columns: vec![column],
            template: TaskForm {
                inputs: vec![(Pattern::literal("x"), Pattern::literal("x"))],
                label: label.into(),
                ..TaskForm::new(Pattern::literal("t"), command)
            },
        }
    }

    #[test]
    fn a_stage_is_named_by_label_else_by_program_and_shape() {
        let literal = |words: &[&str]| Command::Exec(words.iter().map(|w| Pattern::literal(*w)).collect());
        let check = |command: Command<Pattern>, label: &str, name: [&str; 2], one: bool| {
            let array = array(command, label);
            assert_eq!([stage_of_task(&array, 0), stage_of_task(&array, 1)], name);
            assert_eq!(is_one_stage(&array), one, "{name:?}");
        };
        check(literal(&["/usr/bin/mProject", "-h", "x"]), "", ["mProject(1→0)"; 2], true);
        check(literal(&["mProject"]), "project", ["project"; 2], true);
        check(literal(&["python3.11", "-u", "tools/fit.py", "x"]), "", ["fit.py(1→0)"; 2], true);
        check(literal(&["env", "A=1", "sort"]), "", ["sort(1→0)"; 2], true);
        let mut script = vec![Pattern::literal("python3"), Pattern::column(0)];
        check(Command::Exec(script.clone()), "", ["a.py(1→0)", "b.py(1→0)"], false);
        script[0] = Pattern::literal("cut");
        check(Command::Exec(script), "", ["cut(1→0)"; 2], true);
        let line = Pattern(vec![Piece::Literal("A=1 grep x ".into()), Piece::Index]);
        check(Command::Shell(line), "", ["grep(1→0)"; 2], true);
    }
}
