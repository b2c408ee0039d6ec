//! The stage of a task of another system, found from its names alone.
//!
//! Systems that write WfFormat name a task after its kind, or give it a name of its own, or join both in
//! one name (`mProject_ID0000001`). The stage is, in this order:
//!
//!   1. the file's name for the kind of task: a category, or a name that is not the task's own. If other
//!      tasks of the file have such a name, a name without a number is a kind, too: the kind of a task that is
//!      alone in its stage;
//!   2. the program that the task starts, if the file gives it in one word; for an interpreter, its script;
//!   3. the task's own name without its number.

use crate::words;
use eyas_core::pattern::started_by;

/// Whether `name` says what kind the task `id` is, and not which task it is.
pub(crate) fn is_kind(name: &str, id: &str) -> bool {
    name != id && !matches!(numbered(name).1, Number::Id)
}

/// The stage of the task `id` that is called `name` and starts `program` with `arguments`.
///
/// * `has_kinds`: names of other tasks in the file are kinds ([`is_kind`]).
pub(crate) fn stage(
    name: &str,
    id: &str,
    program: Option<&str>,
    arguments: &[String],
    has_kinds: bool,
) -> String {
    let (head, number) = numbered(name);
    if is_kind(name, id) || (has_kinds && matches!(number, Number::None)) {
        return name.to_owned();
    }
    let program = program.filter(|program| is_word(program)).and_then(|program| {
        started_by(std::iter::once(program.to_owned()).chain(arguments.iter().cloned()))
            .filter(|started| is_word(started))
            .or_else(|| shell_line(arguments).map(words::program).filter(|started| is_word(started)))
    });
    program.unwrap_or_else(|| head.to_owned())
}

/// Whether `program` is one word. Some readers give a piece of a script where the schema wants a program.
fn is_word(program: &str) -> bool {
    !program.is_empty() && program.chars().all(|c| c.is_alphanumeric() || "._+-/:@".contains(c))
}

fn shell_line(arguments: &[String]) -> Option<&str> {
    match arguments {
        [option, line] if option == "-c" => Some(line),
        _ => None,
    }
}

enum Number {
    None,
    /// A number as in `count_12`.
    Plain,
    /// A number as in `count_ID0000012`.
    Id,
}

/// `name` without the number at its end, and the form of that number. A name that is nothing but a number
/// stays as it is.
fn numbered(name: &str) -> (&str, Number) {
    let head = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if head.len() == name.len() {
        return (name, Number::None);
    }
    let (rest, number) = match head.strip_suffix("ID").or_else(|| head.strip_suffix("id")) {
        Some(rest) => (rest, Number::Id),
        None => (head, Number::Plain),
    };
    match rest.strip_suffix(['_', '-', '.', ':']) {
        Some(kind) if !kind.is_empty() => (kind, number),
        _ => (name, Number::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_by_names_and_programs() {
        let check = |name: &str, id: &str, program: Option<&str>, arguments: &[&str], expect: &str| {
            let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            assert_eq!(stage(name, id, program, &arguments, false), expect, "{name}, {id}, {program:?}");
        };
        // Names of Pegasus and Makeflow, as WfCommons publishes them.
        check("mProject_ID0000001", "mProject_ID0000001", Some("mProject"), &[], "mProject");
        check("mProject_ID0000001", "ID0000001", None, &[], "mProject");
        check("map_map_HEP2_1_ID000012", "map_map_HEP2_1_ID000012", Some("map"), &["-x"], "map");
        check("bowtie2-build_ID03", "bowtie2-build_ID03", Some("/opt/bowtie2-build"), &[], "bowtie2-build");
        // Generated workflows have no programs.
        check("mProject_00000001", "mProject_00000001", None, &[], "mProject");
        check("mProject", "mProject_00000001", None, &[], "mProject");
        // Nextflow: the name is the kind, and the program is a piece of a script.
        check("CORE.RNA.FASTQC", "CORE.RNA.FASTQC_2", Some("g\" > x\n  END"), &[], "CORE.RNA.FASTQC");
        check("CORE.STEP_2", "CORE.STEP_2_7", None, &[], "CORE.STEP_2");
        check("FASTQC_2", "FASTQC_2", Some("')\n END"), &[], "FASTQC");
        // The names of interpreters say nothing, their scripts do.
        check("fit_1", "fit_1", Some("python3"), &["-u", "bin/fit.py"], "fit.py");
        check("fit_1", "fit_1", Some("python3"), &[], "fit");
        check("t_1", "t_1", Some("/bin/sh"), &["-c", "sort a | uniq > b"], "sort");
        // A name without a number.
        check("total", "total", None, &[], "total");
        check("ID0000001", "ID0000001", None, &[], "ID0000001");
        check("_1", "_1", None, &[], "_1");
        check("17", "17", None, &[], "17");
    }

    #[test]
    fn a_task_alone_in_its_stage_is_called_by_it_where_the_file_names_kinds() {
        for (has_kinds, expect) in [(true, "mAdd"), (false, "wrapper")] {
            assert_eq!(stage("mAdd", "mAdd", Some("bin/wrapper"), &[], has_kinds), expect);
        }
        assert_eq!(stage("mAdd_ID07", "mAdd_ID07", Some("bin/wrapper"), &[], true), "wrapper");
        assert!(is_kind("mProject", "mProject-1") && !is_kind("mProject_ID01", "ID01") && !is_kind("a", "a"));
    }
}
