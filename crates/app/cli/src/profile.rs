//! `--profile NAME`: options that stand in `eyas.toml`.
//!
//! A profile is carried out by adding its options to the command line, where they are not given already. So a value in the file
//! passes the same reader as one that is typed, and a typed one wins.

use crate::Fault;
use crate::args::{ProvideArgs, ProviderKind};
use crate::config::{all_of, words_of, wrong_values};
use crate::dirs::config_files;
use crate::fault::bad;
use crate::verb::{Cli, Verb};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};
use eyas_config::{Error, Profile, Setting};
use eyas_text::shown;
use std::ffi::OsString;

/// The program and its verb, which options of ours stand behind: there are none before the verb.
const N_FIRST: usize = 2;

/// The words of the command line with what they leave to others: see [`with_profile`] and [`with_all_hosts`].
pub fn expand(words: Vec<OsString>) -> Result<Vec<OsString>, Fault> {
    with_all_hosts(with_profile(words)?)
}

/// The words of the command line with the options of the profile that they name, if they name one. What is wrong with the
/// words themselves is left to their reader.
fn with_profile(words: Vec<OsString>) -> Result<Vec<OsString>, Fault> {
    let Ok(matches) = Cli::command().try_get_matches_from(&words) else { return Ok(words) };
    let Some((n_first, verb, of_verb)) = innermost(&matches) else { return Ok(words) };
    let Ok(Some(name)) = of_verb.try_get_one::<String>("profile") else { return Ok(words) };
    let (path, profile) = match eyas_config::find_profile(&config_files()?, name) {
        Ok(found) => found,
        Err(Error::Wrong(wrong)) => return Err(bad(all_of(&wrong).join("\n"))),
        Err(e) => return Err(bad(e)),
    };
    // What cannot be together is said by the verb, which also has what was typed.
    let wrong: Vec<String> =
        wrong_values(&path, &profile).into_iter().map(|(_, sentence)| sentence).collect();
    if !wrong.is_empty() {
        return Err(bad(wrong.join("\n")));
    }
    let is_elsewhere =
        |setting: &Setting| setting.key.name == "provider" && setting.values != [ProviderKind::Local.name()];
    if verb == ["map"] && profile.settings.iter().any(is_elsewhere) {
        let name = shown(name);
        let message = format!("`eyas map` takes nodes of this machine only, and profile {name} has others");
        let hint =
            "write the tasks with --to-list FILE, without --profile, then `eyas run FILE --profile NAME`";
        return Err(bad(message).hint(hint));
    }
    let absent = absent_by_choice(of_verb, &profile);
    let (unused, used): (Vec<&Setting>, Vec<&Setting>) = profile
        .settings
        .iter()
        .filter(|setting| is_open(&verb, of_verb, setting))
        .partition(|setting| absent.contains(&setting.key.name));
    if let (false, Some(kind)) = (unused.is_empty(), typed_provider(of_verb)) {
        let names: Vec<String> = unused.iter().map(|setting| format!("`{}`", setting.key.name)).collect();
        let (names, profile, kind) = (names.join(", "), shown(name), kind.name());
        eyas_text::say!(
            "note: {names} of profile {profile}: not used, as --provider {kind} has no such option"
        );
    }
    let options = used.into_iter().flat_map(words_of);
    let mut all = words[..n_first].to_vec();
    all.extend(options.map(OsString::from));
    all.extend_from_slice(&words[n_first..]);
    Ok(all)
}

/// The verb that is meant, or the verb of a verb such as `check` of `provider`; and how many words come before its options.
fn innermost(matches: &ArgMatches) -> Option<(usize, Vec<&str>, &ArgMatches)> {
    let (mut name, mut of) = matches.subcommand()?;
    let mut verbs = vec![name];
    while let Some(inner) = of.subcommand() {
        (name, of) = inner;
        verbs.push(name);
    }
    Some((1 + verbs.len(), verbs, of))
}

/// The words with `--nodes` where nodes are on hosts that are known by name and nobody says how many: one on each.
fn with_all_hosts(words: Vec<OsString>) -> Result<Vec<OsString>, Fault> {
    let Ok(cli) = Cli::try_parse_from(&words) else { return Ok(words) };
    let provide = match &cli.verb {
        Verb::Up(args) => &args.provide,
        Verb::Run(args) => &args.provide,
        Verb::Pairs(args) => &args.provide,
        _ => return Ok(words),
    };
    if !matches!(provide.provider, ProviderKind::Ssh | ProviderKind::Allocation) {
        return Ok(words);
    }
    let matches = Cli::command().get_matches_from(&words);
    let of_verb = matches.subcommand().map(|(_, of_verb)| of_verb);
    if of_verb.and_then(|of| of.value_source("nodes")) != Some(ValueSource::DefaultValue) {
        return Ok(words);
    }
    let Some(hosts) = provide.shape().hosts()? else { return Ok(words) };
    let mut all = words[..N_FIRST].to_vec();
    all.push(format!("--nodes={}", hosts.names.len()).into());
    all.extend_from_slice(&words[N_FIRST..]);
    Ok(all)
}

fn typed_provider(of_verb: &ArgMatches) -> Option<ProviderKind> {
    let typed = of_verb.try_get_one::<ProviderKind>("provider").ok()??;
    (of_verb.value_source("provider") == Some(ValueSource::CommandLine)).then_some(*typed)
}

/// Options that the typed provider does not have, where the profile is about another one.
fn absent_by_choice(of_verb: &ArgMatches, profile: &Profile) -> Vec<&'static str> {
    let Some(kind) = typed_provider(of_verb) else { return vec![] };
    let of_profile = profile.settings.iter().find(|setting| setting.key.name == "provider");
    let is_same = of_profile.is_some_and(|setting| setting.values == [kind.name()]);
    if is_same { vec![] } else { ProvideArgs::absent_options(kind) }
}

/// Whether the verb has such an option, and nobody typed it.
fn is_open(verb: &[&str], of_verb: &ArgMatches, setting: &Setting) -> bool {
    let command = Cli::command();
    let inner =
        |of: &'_ clap::Command, name: &&str| of.find_subcommand(name).cloned().expect("it was just parsed");
    let verb = verb.iter().fold(command, |of, name| inner(&of, name));
    let mut options = verb.get_arguments();
    let Some(option) = options.find(|option| option.get_long() == Some(setting.key.name)) else {
        return false;
    };
    of_verb.value_source(option.get_id().as_str()) != Some(ValueSource::CommandLine)
}
