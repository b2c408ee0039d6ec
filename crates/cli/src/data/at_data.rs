//! `eyas at-data`: a program that is not changed runs on files of data sets, and what it makes becomes a data set.
//!
//! Mode *local* (`LCRD`, local computation on remote data, `Wozniak06` §III-C.1): names like `/KEY/path` are resolved to
//! copies, the files are put under the names that the program knows into a new folder, and the program runs there on this
//! machine. Each byte of an input is verified while it is copied.
//!
//! Nothing is kept of a program that fails: a data set comes into being with all its outputs, or not at all.

use super::open::{Opened, now_ms, open};
use super::program::{OnSignal, Temporary, run};
use super::put::{label_or_new, say_put, tags_of};
use crate::fault::bad;
use crate::print::reason;
use crate::{Exit, Fault};
use clap::{Args, ValueEnum};
use eyas_catalog::{Caller, Catalog, Key, Put, Tag, is_plain_path};
use eyas_text::{line_of, say, shown, shown_path};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Args)]
pub struct AtDataArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    db: Option<String>,
    /// A file of a data set, or a whole data set as a directory, under the name that the program knows (may be given
    /// more than once)
    #[arg(long = "input", value_name = "NAME=/KEY[/PATH]")]
    inputs: Vec<Input>,
    /// What the program makes under a name, and its path in the new data set (may be given more than once)
    #[arg(long = "output", value_name = "NAME=PATH")]
    outputs: Vec<Output>,
    /// A tag of the new data set (may be given more than once)
    #[arg(long = "tag", value_name = "NAME=VALUE", requires = "outputs")]
    tags: Vec<String>,
    /// The label of the new data set; one that is there gets a new version. Without it, a new one is made up
    #[arg(long, requires = "outputs")]
    label: Option<String>,
    /// How many copies of the new data set there should be; `eyas data repair` makes them [default: 1]
    #[arg(long, value_name = "N", requires = "outputs", value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: Option<u32>,
    /// The site that gets the outputs [default: the one with most room that is up]
    #[arg(long, value_name = "SITE", requires = "outputs")]
    site: Option<String>,
    /// Where the program runs
    #[arg(long, value_enum, default_value_t = Mode::Local)]
    mode: Mode,
    /// Say from which site each input comes
    #[arg(long)]
    explain: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// On this machine, in a folder with copies of the inputs
    Local,
}

/// `HCl=/reagents@2/hcl`
#[derive(Clone)]
struct Input {
    name: PathBuf,
    key: Key,
    /// `None` means all files.
    path: Option<String>,
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Input, String> {
        let (name, place) = text.split_once('=').ok_or("write NAME=/KEY/PATH")?;
        let place =
            place.strip_prefix('/').ok_or("a data set is named with a slash before it: NAME=/KEY/PATH")?;
        let (key, path) = match place.split_once('/') {
            Some((key, "")) => (key, None),
            Some((key, path)) => (key, Some(path.to_owned())),
            None => (place, None),
        };
        let key = key.parse::<Key>().map_err(|error| error.to_string())?;
        Ok(Input { name: relative(name)?, key, path })
    }
}

/// `NaCl=salt`
#[derive(Clone)]
struct Output {
    name: PathBuf,
    path: PathBuf,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Output, String> {
        let (name, path) = text.split_once('=').ok_or("write NAME=PATH, as in result.dat=2026/result.dat")?;
        Ok(Output { name: relative(name)?, path: relative(path)? })
    }
}

/// A path that stays in the folder that it is taken from.
fn relative(text: &str) -> Result<PathBuf, String> {
    match is_plain_path(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "{} is no name of a file: it is relative, without `.`, `..` or empty parts",
            shown(text)
        )),
    }
}

pub fn at_data(args: &AtDataArgs) -> Result<Exit, Fault> {
    let Mode::Local = args.mode;
    refuse_twins("--input", args.inputs.iter().map(|input| &input.name))?;
    refuse_twins("--output", args.outputs.iter().map(|output| &output.path))?;
    refuse_twins("--output", args.outputs.iter().map(|output| &output.name))?;
    let tags = tags_of(&args.tags)?;
    let opened = open(args.db.as_deref())?;
    let Opened { catalog, caller, .. } = &opened;
    let site = match (&args.site, args.outputs.is_empty()) {
        (_, true) => None,
        (Some(site), false) => Some(site.clone()),
        (None, false) => Some(super::keep::roomiest(catalog)?),
    };
    // What cannot be written in the end is refused before the program runs.
    if let Some(site) = &site {
        catalog.holding(site)?;
    }
    if let Some(label) = &args.label {
        catalog.require_writable(caller, label)?;
    }

    let work = Work::new()?;
    let on_signal = OnSignal::listen(work.top.path.clone())?;
    let from = on_signal.unless_ending(stage(&opened, &args.inputs, &work.inside, args.explain))?;
    let status = on_signal.unless_ending(run(&args.command, &work.inside, &on_signal))?;
    let program = shown(&args.command[0]);
    if !status.success() {
        let lost = if args.outputs.is_empty() { "" } else { "; no data set was made" };
        let exit = if status.asked { Exit::Interrupted } else { Exit::TasksFailed };
        return Err(Fault::new(exit, format!("{program} ended with {}{lost}", status.text())));
    }
    let Some(site) = site else { return Ok(Exit::Good) };
    on_signal.unless_ending(gather(&args.outputs, &work, &args.command[0]))?;
    let made = Made { command: &args.command, from: &from, site: &site, tags: &tags };
    on_signal.unless_ending(keep(catalog, caller, args, &work, &made))
}

fn refuse_twins<'a>(option: &str, names: impl Iterator<Item = &'a PathBuf>) -> Result<(), Fault> {
    let mut seen: Vec<&PathBuf> = vec![];
    for name in names {
        if let Some(other) = seen.iter().find(|other| name.starts_with(other) || other.starts_with(name)) {
            let what = match *other == name {
                true => format!("{option} names {} twice", shown_path(name)),
                false => format!(
                    "{option} names {} and {}, and one would lie in the other",
                    shown_path(other),
                    shown_path(name)
                ),
            };
            return Err(bad(what));
        }
        seen.push(name);
    }
    Ok(())
}

/// The folders of this command: the program works in `inside`, and outputs wait in `outputs`.
struct Work {
    inside: PathBuf,
    outputs: PathBuf,
    top: Temporary,
}

impl Work {
    fn new() -> Result<Work, Fault> {
        let top = Temporary::new("at-data")?;
        Ok(Work { inside: top.folder("work")?, outputs: top.folder("outputs")?, top })
    }
}

/// Puts copies of the inputs under their names into a folder. Gives what each one is, with its version.
fn stage(opened: &Opened, inputs: &[Input], folder: &Path, explain: bool) -> Result<Vec<String>, Fault> {
    let Opened { catalog, caller, now_ms } = opened;
    let mut from = vec![];
    // What the newest versions are is settled once, so that all inputs that name a label are of one version.
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    for input in inputs {
        let label = input.key.label.as_str();
        let version = match (input.key.version, newest.get(label)) {
            (Some(version), _) | (None, Some(&version)) => version,
            (None, None) => {
                let version = catalog.show(caller, &input.key)?.newest.version;
                newest.insert(label, version);
                version
            }
        };
        let key = Key { label: label.to_owned(), version: Some(version) };
        let reader = catalog.reader(caller, &key, *now_ms)?;
        let target = folder.join(&input.name);
        let parent = target.parent().expect("it lies in the folder");
        fs::create_dir_all(parent).map_err(|error| {
            Fault::new(
                Exit::Other,
                format!("cannot make the folder {}: {}", shown_path(parent), reason(&error)),
            )
        })?;
        let sites = match &input.path {
            Some(path) => {
                let file = reader.file(path)?;
                BTreeSet::from([reader.get(file, &target)?.to_owned()])
            }
            None => reader.get_all(&target)?.sites,
        };
        let path = input.path.as_ref().map(|path| format!("/{path}")).unwrap_or_default();
        let text = format!("/{key}{path} as {}", input.name.display());
        if explain {
            let sites = sites.into_iter().collect::<Vec<_>>().join(", ");
            say!("input {}: from the site {sites}, on this machine", line_of(&text));
        }
        from.push(text);
    }
    Ok(from)
}

/// Moves the outputs to where they are put from.
fn gather(outputs: &[Output], work: &Work, program: &str) -> Result<(), Fault> {
    let failed = |what: String| {
        Fault::new(Exit::TasksFailed, format!("{} made {what}; no data set was made", shown(program)))
    };
    let kind_of =
        |output: &Output| fs::symlink_metadata(work.inside.join(&output.name)).map(|of| of.file_type());
    let absent: Vec<String> = outputs
        .iter()
        .filter(|output| kind_of(output).is_err())
        .map(|output| shown_path(&output.name).to_string())
        .collect();
    if !absent.is_empty() {
        return Err(failed(format!("no {}, which --output names", absent.join(" and no "))));
    }
    for output in outputs {
        let kind = kind_of(output)?;
        if !kind.is_file() && !kind.is_dir() {
            let what = if kind.is_symlink() { "a symbolic link" } else { "neither a file nor a directory" };
            return Err(failed(format!(
                "{}, which is {what}, and a data set has files only",
                shown_path(&output.name)
            )));
        }
    }
    let inside = fs::canonicalize(&work.inside)?;
    for output in outputs {
        let from = work.inside.join(&output.name);
        // A directory on the way may be a symbolic link of the program's, to files that are not its own.
        let parent = from.parent().map(fs::canonicalize).transpose()?;
        if !parent.is_some_and(|parent| parent.starts_with(&inside)) {
            return Err(failed(format!("{} outside of its folder", shown_path(&output.name))));
        }
        let target = work.outputs.join(&output.path);
        let cannot_move = |error: std::io::Error| {
            failed(format!("{}, which cannot be moved: {}", shown_path(&output.name), reason(&error)))
        };
        fs::create_dir_all(target.parent().expect("it lies in the folder")).map_err(cannot_move)?;
        let metadata = fs::symlink_metadata(&from).map_err(cannot_move)?;
        if metadata.is_dir() {
            // Only a directory that may be written to can be moved into another one.
            let mode = metadata.permissions().mode() | 0o700;
            fs::set_permissions(&from, fs::Permissions::from_mode(mode)).map_err(cannot_move)?;
        }
        fs::rename(&from, &target).map_err(cannot_move)?;
    }
    Ok(())
}

/// What a data set was made by, and where it goes.
struct Made<'a> {
    command: &'a [String],
    from: &'a [String],
    site: &'a str,
    tags: &'a [Tag],
}

fn keep(
    catalog: &Catalog,
    caller: &Caller,
    args: &AtDataArgs,
    work: &Work,
    made: &Made<'_>,
) -> Result<Exit, Fault> {
    let holding = catalog.holding(made.site)?;
    let label = label_or_new(args.label.as_deref())?;
    let sources = [work.outputs.clone()];
    let what =
        Put { sources: &sources, label: &label, copies: args.copies, tags: made.tags, now_ms: now_ms() };
    let done = eyas_catalog::put(catalog, &*holding, caller, &what, &mut |_, _| {}).map_err(|error| {
        // A path is said as it would be in the data set. The program has run, so its input was right.
        let below = format!("{}/", work.outputs.display());
        let reason = error.to_string().replace(&below, "");
        let exit = if error.is_temporary() { Exit::Other } else { Exit::TasksFailed };
        Fault::new(exit, format!("{reason}; no data set was made"))
    })?;
    let from = if made.from.is_empty() { String::new() } else { format!(" on {}", made.from.join(", ")) };
    let key = &done.key;
    let detail = format!("version {} by {}{from}", key.version.unwrap_or(0), made.command.join(" "));
    catalog.note(caller, key, "at-data", &detail, now_ms())?;
    say_put(catalog, caller, &done, made.site)?;
    Ok(Exit::Good)
}
