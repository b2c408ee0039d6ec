//! `--profile NAME` and `eyas config check`: options that stand in `eyas.toml`.
//!
//! A profile is carried out by adding its options to the command line, where they are not given already. So a value in the file
//! passes the same reader as one that is typed, and a typed one wins.

use crate::args::{ClusterArgs, ProvideArgs, ProviderKind};
use crate::print::plural;
use crate::verb::{Cli, Verb};
use crate::{Exit, Fault, batch, local, provide};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand};
use eyas_config::{Config, Error, Profile, Setting, Wrong};
use eyas_text::{line_of, shown, shown_path};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The verb whose options a profile holds.
const VERB: &str = "up";

#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Say what is wrong with a file of profiles: unknown keys with the nearest known one, and values that cannot be
    Check {
        /// The file [default: eyas.toml here, and the one in the user's folder of configuration]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

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
    let (path, profile) = match eyas_config::find_profile(&places()?, name) {
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
    let Some(hosts) = provide.hosts()? else { return Ok(words) };
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

/// A setting as it is typed.
fn words_of(setting: &Setting) -> impl Iterator<Item = String> {
    let name = setting.key.name;
    setting.values.iter().map(move |value| match setting.key.kind {
        eyas_config::Kind::Switch => format!("--{name}"),
        _ => format!("--{name}={value}"),
    })
}

/// All that is wrong with a file that could not be read as a whole, in the order of its lines.
fn all_of(wrong: &Wrong) -> Vec<String> {
    let read = wrong.complaints.iter().map(|complaint| (complaint.line, wrong.sentence(complaint)));
    let values = wrong.profiles.iter().flat_map(|profile| wrong_values(&wrong.path, profile));
    let mut all: Vec<(usize, String)> = read.chain(values).collect();
    all.sort_by_key(|(line, _)| *line);
    all.into_iter().map(|(_, sentence)| sentence).collect()
}

/// Values that options do not take: the line, and a sentence.
fn wrong_values(path: &Path, profile: &Profile) -> Vec<(usize, String)> {
    let wrong = |setting: &Setting| {
        let words = ["eyas".to_string(), VERB.into()].into_iter().chain(words_of(setting));
        let reason = match Cli::try_parse_from(words) {
            Ok(cli) => meaningless(cli, setting)?,
            Err(e) => {
                // What clap says of a value, without its heading and its advice on how to get help.
                let text = e.render().to_string();
                let said = text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default();
                said.split_once(">': ").map_or(said, |(_, reason)| reason).trim().to_string()
            }
        };
        let (line, key) = (setting.line, setting.key.name);
        let values = setting.values.join(", ");
        let sentence = format!(
            "{}, line {line}: `{key}` cannot be {}: {}",
            shown_path(path),
            shown(&values),
            line_of(&reason)
        );
        Some((line, sentence))
    };
    profile.settings.iter().filter_map(wrong).collect()
}

/// Why a value that an option takes means nothing: no policy has that name, a command has an unknown hole.
fn meaningless(cli: Cli, setting: &Setting) -> Option<String> {
    let Verb::Up(args) = cli.verb else { return None };
    let name = setting.key.name;
    let fault = match (name, setting.values.first()) {
        ("start" | "list" | "stop", Some(line)) => provide::line_fault(name, line),
        _ => local::policy_fault(&args.cluster, name),
    }?;
    Some(match fault.hint {
        Some(hint) => format!("{}; {hint}", fault.message),
        None => fault.message,
    })
}

/// The line of the option that a sentence names first, of those that the profile has; else that of its heading.
fn line_of_named(sentence: &str, profile: &Profile) -> usize {
    let place = |setting: &Setting| {
        let option = format!("--{}", setting.key.name);
        let is_end = |at: usize| !sentence[at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        sentence.match_indices(&option).find(|(at, _)| is_end(at + option.len())).map(|(at, _)| at)
    };
    let named = profile.settings.iter().filter_map(|setting| Some((place(setting)?, setting.line)));
    named.min().map_or(profile.line, |(_, line)| line)
}

/// All that is wrong with a profile, in sentences.
fn complaints(path: &Path, profile: &Profile) -> Vec<String> {
    let mut all: Vec<String> =
        wrong_values(path, profile).into_iter().map(|(_, sentence)| sentence).collect();
    if all.is_empty() {
        // What cannot be together.
        let words = ["eyas".to_string(), VERB.into()];
        let words = words.into_iter().chain(profile.settings.iter().flat_map(words_of));
        let refusals = match Cli::try_parse_from(words) {
            Ok(Cli { verb: Verb::Up(args) }) => {
                let cluster = ClusterArgs { provide: args.provide, ..args.cluster };
                all.extend(wrong_options(path, profile, &cluster));
                local::faults(&cluster).into_iter().map(|fault| fault.message).collect()
            }
            Ok(_) => vec![],
            Err(e) => vec![e.render().to_string().lines().next().unwrap_or_default().to_string()],
        };
        let sentence = |why: String| {
            let (line, name) = (line_of_named(&why, profile), shown(&profile.name));
            (line, format!("{}, line {line}: profile {name}: {}", shown_path(path), line_of(&why)))
        };
        let mut said: Vec<(usize, String)> = refusals.into_iter().map(sentence).collect();
        said.sort_by_key(|(line, _)| *line);
        all.extend(said.into_iter().map(|(_, sentence)| sentence));
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
            Err(Error::Wrong(of_file)) => wrong.extend(all_of(&of_file)),
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
