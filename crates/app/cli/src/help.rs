//! The help that people see first: the verbs in groups, and of the verbs with many options those that count.

use crate::print::wrapped;
use clap::{Arg, Command};
use std::ffi::OsString;
use std::fmt::Write;

/// The columns that help takes at most, as `max_term_width` of the command line says.
pub const WIDTH: usize = 100;

/// All verbs, by what they are for.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Work",
        &[
            "map", "pairs", "run", "submit", "wait", "cancel", "warm", "convert", "graph", "export",
            "predict", "model", "sim",
        ],
    ),
    ("Look", &["status", "top", "tasks", "logs", "explain", "report", "topology", "replay"]),
    ("Cluster", &["up", "down", "user", "forget", "config", "bench"]),
    (
        "Files and data",
        &[
            "home", "ls", "cp", "mv", "rm", "mkdir", "chmod", "stat", "cat", "data", "match", "at-data",
            "access", "mount", "store",
        ],
    ),
    ("Parts of a cluster", &["dispatcher", "executor", "relay", "provider"]),
    ("This program", &["completions", "man"]),
];

/// The verbs that people type, in the order of the help.
pub fn names_of_verbs() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied())
}

/// Whether the words ask for the help of the whole program.
pub fn is_overview(words: &[OsString]) -> bool {
    let is_help = |word: &OsString| word == "-h" || word == "--help" || word == "help";
    match words {
        [] | [_] => true,
        [_, only] => is_help(only),
        _ => false,
    }
}

/// The help of the whole program, with its verbs in groups.
pub fn overview(command: Command) -> clap::builder::StyledStr {
    let verbs = verbs(&command);
    let mut command = command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        verbs
    ));
    command.render_help()
}

fn verbs(command: &Command) -> String {
    let mut text = String::new();
    let width = crate::progress::columns_of(1).map_or(WIDTH, |columns| columns.clamp(40, WIDTH));
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "\n{heading}:");
        for name in names {
            let verb = command.find_subcommand(name);
            let about = verb.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default();
            let mut first = *name;
            for line in wrapped(&about, width - 15) {
                let _ = writeln!(text, "  {:<12} {line}", std::mem::take(&mut first));
            }
        }
    }
    text
}

/// Options of verbs that belong to no part of a cluster; a heading of options before them would count for them, too.
const GENERAL: [&str; 8] = ["join", "json", "keep", "env", "env-file", "to-list", "no-replace", "keep-runs"];

/// Leaves an option out of `-h` unless it is one of those that count.
pub fn short(arg: Arg, counting: &[&str]) -> Arg {
    let arg = match arg.get_long() {
        None => arg.help_heading(None::<&str>),
        Some(long) if GENERAL.contains(&long) => arg.help_heading(None::<&str>),
        Some("dispatchers" | "dir") => arg.help_heading("The cluster"),
        Some(_) => arg,
    };
    let shows = arg.is_positional() || arg.get_long().is_some_and(|long| counting.contains(&long));
    if shows { arg } else { arg.hide_short_help(true) }
}

/// What stands below all help.
pub const EXIT_STATUS: &str = "Exit status: 0 all tasks ended well, 1 some did not, \
    2 the input is wrong and nothing was started, 3 no cluster answers, 4 anything else, 130 interrupted.";

/// What stands below the options that count.
pub const MORE: &str = "`--help` shows all options.";
