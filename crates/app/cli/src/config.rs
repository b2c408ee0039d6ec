//! `eyas config check`: what is wrong with a file of profiles, and where `eyas.toml` may lie.

use crate::args::ClusterArgs;
use crate::dirs::config_files;
use crate::fault::{bad, usage_of};
use crate::print::plural;
use crate::up::UpArgs;
use crate::{Exit, Fault, local};
use clap::{Args, Parser, Subcommand};
use eyas_cluster::provide::line_refusal;
use eyas_config::{Config, Error, Profile, Setting, Wrong};
use eyas_text::{line_of, shown, shown_path};
use std::path::{Path, PathBuf};

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

/// The options of `eyas up`, which a profile holds.
#[derive(Parser)]
struct UpOptions {
    #[command(flatten)]
    up: UpArgs,
}

/// These settings as `eyas up` takes them.
fn parsed(settings: &[Setting]) -> Result<UpArgs, clap::Error> {
    let words = std::iter::once("eyas".to_string()).chain(settings.iter().flat_map(words_of));
    UpOptions::try_parse_from(words).map(|options| options.up)
}

/// A setting as it is typed.
pub fn words_of(setting: &Setting) -> impl Iterator<Item = String> {
    let name = setting.key.name;
    setting.values.iter().map(move |value| match setting.key.kind {
        eyas_config::Kind::Switch => format!("--{name}"),
        _ => format!("--{name}={value}"),
    })
}

/// All that is wrong with a file that could not be read as a whole, in the order of its lines.
pub fn all_of(wrong: &Wrong) -> Vec<String> {
    let read = wrong.complaints.iter().map(|complaint| (complaint.line, wrong.sentence(complaint)));
    let values = wrong.profiles.iter().flat_map(|profile| wrong_values(&wrong.path, profile));
    let mut all: Vec<(usize, String)> = read.chain(values).collect();
    all.sort_by_key(|(line, _)| *line);
    all.into_iter().map(|(_, sentence)| sentence).collect()
}

/// Values that options do not take: the line, and a sentence.
pub fn wrong_values(path: &Path, profile: &Profile) -> Vec<(usize, String)> {
    let wrong = |setting: &Setting| {
        let reason = match parsed(std::slice::from_ref(setting)) {
            Ok(args) => meaningless(&args, setting)?,
            Err(e) => {
                // What clap says of a value, without its heading and its advice on how to get help.
                let text = usage_of(&e);
                let said = text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default();
                let reason = said.split_once(">': ").map_or(said, |(_, reason)| reason).trim();
                // So says the standard library.
                reason.replace("invalid digit found in string", "write a whole number")
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
fn meaningless(args: &UpArgs, setting: &Setting) -> Option<String> {
    let name = setting.key.name;
    let fault = match (name, setting.values.first()) {
        ("start" | "list" | "stop", Some(line)) => line_refusal(name, line).map(Fault::from),
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
        let refusals = match parsed(&profile.settings) {
            Ok(args) => {
                let cluster = ClusterArgs { provide: args.provide, ..args.cluster };
                all.extend(wrong_options(path, profile, &cluster));
                local::faults(&cluster).into_iter().map(|fault| fault.message).collect()
            }
            Err(e) => vec![usage_of(&e).lines().next().unwrap_or_default().to_string()],
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
    match cluster.provide.shape_with(&cluster.node).wrong_options() {
        Ok(wrong) => wrong
            .into_iter()
            .map(|why| format!("{path}, line {line}: profile {name}: {}", line_of(&why.to_string())))
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
        None => (false, config_files()?),
    };
    let mut wrong = vec![];
    let mut n_read = 0;
    for path in &places {
        match eyas_config::read(path) {
            Ok(None) => continue,
            Ok(Some(Config { path, profiles, homes, home_on: _ })) => {
                let mut said: Vec<String> =
                    profiles.iter().flat_map(|profile| complaints(&path, profile)).collect();
                said.extend(homes.into_iter().filter_map(|home| crate::declared::complaint(&path, home)));
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
