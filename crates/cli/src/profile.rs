//! `--profile NAME` and `eyas config check`: options that stand in `eyas.toml`.
//!
//! A profile is carried out by adding its options to the command line, where they are not given already. So a value in the file
//! passes the same reader as one that is typed, and a typed one wins.

use crate::args::{Cli, ClusterArgs, ConfigArgs, ConfigVerb, ProviderKind, Verb};
use crate::print::plural;
use crate::{Exit, Fault, batch, local};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};
use eyas_config::{Config, Profile, Setting};
use eyas_text::{line_of, shown, shown_path};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The verb whose options a profile holds.
const VERB: &str = "up";

/// Where `eyas.toml` may lie, for a command in this folder.
fn places() -> Result<Vec<PathBuf>, Fault> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    Ok(eyas_config::places(&std::env::current_dir()?, home.as_deref()))
}

fn bad(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::BadInput, e)
}

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
    let (path, profile) = eyas_config::find_profile(&places()?, name).map_err(bad)?;
    // What cannot be together is said by the verb, which also has what was typed.
    if let Some(complaint) = wrong_values(&path, &profile).into_iter().next() {
        return Err(bad(complaint));
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
    let options =
        profile.settings.iter().filter(|setting| is_open(&verb, of_verb, setting)).flat_map(words_of);
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
    let Some(hosts) = provide.hosts()? else { return Ok(words) };
    let mut all = words[..N_FIRST].to_vec();
    all.push(format!("--nodes={}", hosts.names.len()).into());
    all.extend_from_slice(&words[N_FIRST..]);
    Ok(all)
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

/// A setting as it is typed.
fn words_of(setting: &Setting) -> impl Iterator<Item = String> {
    let name = setting.key.name;
    setting.values.iter().map(move |value| match setting.key.kind {
        eyas_config::Kind::Switch => format!("--{name}"),
        _ => format!("--{name}={value}"),
    })
}

/// Values that options do not take, in sentences.
fn wrong_values(path: &Path, profile: &Profile) -> Vec<String> {
    let wrong = |setting: &Setting| {
        let words = ["eyas".to_string(), VERB.into()].into_iter().chain(words_of(setting));
        let e = Cli::command().try_get_matches_from(words).err()?;
        // What clap says of a value, without its heading and its advice on how to get help.
        let text = e.render().to_string();
        let said = text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default().trim();
        let reason = said.split_once(">': ").map_or(said, |(_, reason)| reason);
        let (line, key) = (setting.line, setting.key.name);
        let values = setting.values.join(", ");
        Some(format!(
            "{}, line {line}: `{key}` cannot be {}: {}",
            shown_path(path),
            shown(&values),
            line_of(reason)
        ))
    };
    profile.settings.iter().filter_map(wrong).collect()
}

/// All that is wrong with a profile, in sentences.
fn complaints(path: &Path, profile: &Profile) -> Vec<String> {
    let mut all = wrong_values(path, profile);
    if all.is_empty() {
        // Names of policies, and what cannot be together.
        let words = ["eyas".to_string(), VERB.into()];
        let words = words.into_iter().chain(profile.settings.iter().flat_map(words_of));
        let refusal = match Cli::try_parse_from(words) {
            Ok(Cli { verb: Verb::Up(args) }) => {
                let cluster = ClusterArgs { provide: args.provide, ..args.cluster };
                all.extend(wrong_options(path, profile, &cluster));
                local::check(&cluster).err().map(|fault| fault.message)
            }
            Ok(_) => None,
            Err(e) => Some(e.render().to_string().lines().next().unwrap_or_default().to_string()),
        };
        let (line, name) = (profile.line, shown(&profile.name));
        all.extend(
            refusal
                .map(|why| format!("{}, line {line}: profile {name}: {}", shown_path(path), line_of(&why))),
        );
    }
    all
}

/// Options that Parsl does not take. Where there is no Parsl, that is said and nothing is wrong.
fn wrong_options(path: &Path, profile: &Profile, cluster: &ClusterArgs) -> Vec<String> {
    if !cluster.provide.provider.is_batch() {
        return vec![];
    }
    let line = profile.settings.iter().find(|s| s.key.name == "options").map_or(profile.line, |s| s.line);
    let (path, name) = (shown_path(path), shown(&profile.name));
    match batch::wrong_options(&cluster.provide, &cluster.node) {
        Ok(wrong) => wrong
            .into_iter()
            .map(|why| format!("{path}, line {line}: profile {name}: {}", line_of(&why)))
            .collect(),
        Err(why) => {
            eyas_text::say!("note: the options of profile {name} were not checked: {why}");
            vec![]
        }
    }
}

pub fn config(args: ConfigArgs) -> Result<Exit, Fault> {
    let ConfigVerb::Check { file } = args.verb;
    let (given, places) = match file {
        Some(file) => (true, vec![file]),
        None => (false, places()?),
    };
    let mut wrong = vec![];
    let mut n_read = 0;
    for path in &places {
        match eyas_config::read(path) {
            Ok(None) => continue,
            Ok(Some(Config { path, profiles })) => {
                let said: Vec<String> =
                    profiles.iter().flat_map(|profile| complaints(&path, profile)).collect();
                if said.is_empty() {
                    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
                    let list =
                        if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
                    let n = plural(profiles.len() as u64, "profile");
                    crate::show!("{}: {n}{}", path.display(), line_of(&list));
                }
                wrong.extend(said);
            }
            Err(e) => wrong.push(e.to_string()),
        }
        n_read += 1;
    }
    if n_read == 0 {
        let list: Vec<String> = places.iter().map(|path| shown_path(path).to_string()).collect();
        let fault = bad(format!("there is no {}", list.join(", and no ")));
        return Err(if given {
            fault
        } else {
            fault.hint("docs/reference/eyas-toml.md says what may stand in it")
        });
    }
    match wrong.is_empty() {
        true => Ok(Exit::Good),
        false => Err(bad(wrong.join("\n"))),
    }
}
