//! Tests of the options of all verbs.

use super::*;
use crate::help::{MORE, WIDTH, names_of_verbs, overview};
use clap::CommandFactory;
use eyas_core::dispatcher::KeepRuns;

/// With one dispatcher and with several.
#[test]
fn a_cluster_keeps_its_last_hundred_runs_unless_the_user_says_otherwise() {
    let rule_of = |words: &[&str]| match Cli::try_parse_from(words).map(|cli| cli.verb) {
        Ok(Verb::Up(up)) => up.keep.rule(),
        Ok(_) => panic!("{words:?} is another verb"),
        Err(error) => panic!("{words:?}: {error}"),
    };
    let last = |n_runs| Some(KeepRuns { n_runs: Some(n_runs), age_ns: None });
    for dispatchers in ["1", "3"] {
        let up = ["eyas", "up", "--dispatchers", dispatchers];
        assert_eq!(rule_of(&up), last(100));
        assert_eq!(rule_of(&[&up[..], &["--keep-runs", "7"]].concat()), last(7));
        assert_eq!(rule_of(&[&up[..], &["--keep-runs", "all"]].concat()), None);
    }
}

/// What is the same live and simulated has one name, and the other name that it once had is understood.
#[test]
fn options_have_one_name_live_and_simulated() {
    Cli::command().debug_assert();
    for (option, value) in [
        ("--idle-release", "5s"),
        ("--release-idle", "5s"),
        ("--utilisation-threshold", "0.9"),
        ("--threshold", "0.9"),
    ] {
        for verb in [&["eyas", "up"][..], &["eyas", "run", "l.jsonl"], &["eyas", "sim", "allpairs"]] {
            let words = verb.iter().copied().chain([option, value]);
            let refused = Cli::try_parse_from(words).err().map(|e| e.to_string());
            assert_eq!(refused, None, "{verb:?} {option}");
        }
    }
    let mut command = Cli::command();
    for verb in [&["up"][..], &["run"], &["map"], &["sim", "allpairs"], &["sim", "trace"]] {
        let of =
            verb.iter().fold(&mut command, |of, name| of.find_subcommand_mut(name).expect("it is a verb"));
        let help = of.render_long_help().to_string();
        assert!(help.contains("--idle-release") && help.contains("--utilisation-threshold"), "{verb:?}");
        assert!(!help.contains("--release-idle") && !help.contains("--threshold"), "{verb:?}");
    }
}

/// clap looks for two arguments of one name in debug builds only; in a release build the first one would take the values of both.
#[test]
fn no_verb_has_two_arguments_of_one_name() {
    fn check(command: &clap::Command, path: &str) {
        let mut seen = std::collections::BTreeSet::new();
        for argument in command.get_arguments() {
            let names = argument.get_long_and_visible_aliases().unwrap_or_default();
            let names = names.into_iter().map(|name| format!("--{name}"));
            let short = argument.get_short().map(|name| format!("-{name}"));
            for name in names.chain(short).chain([argument.get_id().to_string()]) {
                assert!(seen.insert(name.clone()), "{path} has two arguments {name}");
            }
        }
        command.get_subcommands().for_each(|verb| check(verb, &format!("{path} {}", verb.get_name())));
    }
    let mut command = Cli::command();
    command.build();
    check(&command, "eyas");
}

/// A profile may hold every option that shapes a cluster, and nothing else.
#[test]
fn keys_of_profiles_are_the_options_of_a_cluster() {
    let command = Cli::command();
    let up = command.find_subcommand("up").expect("it is a verb");
    // What eyas says to processes of its own is hidden, and is no key.
    let shown = up.get_arguments().filter(|option| !option.is_hide_set());
    let mut options: Vec<&str> = shown.filter_map(|option| option.get_long()).collect();
    options.retain(|name| !matches!(*name, "help" | "profile"));
    let mut keys: Vec<&str> = eyas_config::KEYS.iter().map(|key| key.name).collect();
    options.sort_unstable();
    keys.sort_unstable();
    assert_eq!(options, keys);
    for key in eyas_config::KEYS {
        let mut options = up.get_arguments();
        let option = options.find(|option| option.get_long() == Some(key.name)).expect("as above");
        let is_switch = !option.get_action().takes_values();
        let may_repeat = matches!(option.get_action(), clap::ArgAction::Append);
        assert_eq!(is_switch, key.kind == eyas_config::Kind::Switch, "{}", key.name);
        assert_eq!(
            may_repeat,
            matches!(
                key.kind,
                eyas_config::Kind::Paths | eyas_config::Kind::Texts | eyas_config::Kind::Table
            ),
            "{}",
            key.name
        );
    }
}

#[test]
fn values_that_mean_nothing_are_refused_with_what_is_allowed() {
    let refusal = |option: &str, value: &str| {
        let words = ["eyas", "up", &format!("--{option}={value}")].map(str::to_string);
        Cli::try_parse_from(words).err().map(|e| e.to_string()).unwrap_or_default()
    };
    for (option, bad, good, sentence) in [
        ("listen", "nonsense", "0.0.0.0:0", "write HOST:PORT, such as 0.0.0.0:7700"),
        ("listen", "a:b", "[::1]:7700", "write HOST:PORT, such as 0.0.0.0:7700"),
        ("listen", "::1:7", "login1:65535", "write HOST:PORT"),
        ("advertise", "", "login1:7700", "write HOST:PORT, such as login1:7700"),
        ("advertise", "login1:0", "10.0.0.1:1", "write HOST:PORT, such as login1:7700"),
        ("lease", "0s", "1s", "write a time of at least 1s"),
        ("window", "0", "1", "write a number of tasks, at least 1"),
        ("utilisation-threshold", "3", "1", "write a share from 0 to 1, such as 0.8"),
        ("utilisation-threshold", "nan", "0", "write a share from 0 to 1, such as 0.8"),
        ("cache", "0", "1", "write at least 1 byte, such as 20GiB"),
        (
            "provider",
            "slurmm",
            "ssh",
            "there is no such provider; choose one of local, command, ssh, allocation",
        ),
    ] {
        let said = refusal(option, bad);
        assert!(said.contains(&format!("--{option} <")) && said.contains(sentence), "{option}: {said}");
        assert_eq!(refusal(option, good), "", "{option}={good}");
    }
}

#[test]
fn the_overview_has_each_verb_once() {
    let command = Cli::command();
    let mut verbs: Vec<&str> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name()).collect();
    let mut grouped: Vec<&str> = names_of_verbs().collect();
    verbs.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(verbs, grouped);
    let text = overview(Cli::command()).to_string();
    assert!(text.contains("\nWork:\n  map          One command over"), "{text}");
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
        let n_headings = long.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).count();
        assert!(!long.contains("decides by:\n  <COMMAND>"), "{verb}: {long}");
        assert!(n_headings >= 3 && options(&long) > options(&short), "{verb}: {long}");
    }
}
