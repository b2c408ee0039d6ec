//! The help that people see first: the verbs in groups, and of the verbs with many options those that count.

use crate::print::wrapped;
use crate::verb::Cli;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;
use std::fmt::Write;

/// The columns that help takes at most, as `max_term_width` of [`Cli`] says.
const WIDTH: usize = 100;

/// All verbs, by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Work",
        &["map", "pairs", "run", "submit", "wait", "cancel", "convert", "graph", "export", "predict", "sim"],
    ),
    ("Look", &["status", "top", "tasks", "logs", "explain", "report", "topology", "replay"]),
    ("Cluster", &["up", "down", "user", "forget", "config", "bench"]),
    ("Files and data", &["home", "ls", "cp", "cat", "data", "match", "at-data", "access", "mount", "store"]),
    ("Parts of a cluster", &["dispatcher", "executor", "provider"]),
];

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
pub fn overview() -> clap::builder::StyledStr {
    let mut command = Cli::command().help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        verbs()
    ));
    command.render_help()
}

fn verbs() -> String {
    let command = Cli::command();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "\n{heading}:");
        for name in names {
            let verb = command.find_subcommand(name);
            let about = verb.and_then(clap::Command::get_about).map(ToString::to_string).unwrap_or_default();
            let mut first = *name;
            for line in wrapped(&about, WIDTH - 14) {
                let _ = writeln!(text, "  {:<11} {line}", std::mem::take(&mut first));
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

/// What stands below the options that count.
pub const MORE: &str = "`--help` shows all options.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_has_each_verb_once() {
        let command = Cli::command();
        let mut verbs: Vec<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name())
            .collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        verbs.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(verbs, grouped);
        let text = overview().to_string();
        assert!(text.contains("\nWork:\n  map         One command over"), "{text}");
        assert!(text.contains("--version") && text.contains("Exit status: 0"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn the_short_help_of_large_verbs_fits_a_screen() {
        for verb in ["run", "map", "pairs", "submit", "up"] {
            let mut command = Cli::command();
            command.build();
            let command = command.find_subcommand_mut(verb).expect("it is a verb");
            let short = command.render_help().to_string();
            assert!(short.lines().count() <= 50, "{verb}: {} lines\n{short}", short.lines().count());
            assert!(short.contains(MORE), "{verb}: {short}");
            let options = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('-')).count();
            assert!(options(&short) <= 16, "{verb}: {short}");
            let long = command.render_long_help().to_string();
            assert!(!long.contains(MORE) && long.contains("Exit status"), "{verb}");
            let n_headings =
                long.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).count();
            assert!(!long.contains("decides by:\n  <COMMAND>"), "{verb}: {long}");
            assert!(n_headings >= 3 && options(&long) > options(&short), "{verb}: {long}");
        }
    }
}
