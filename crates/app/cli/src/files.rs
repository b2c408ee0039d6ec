//! `eyas mv`, `rm`, `mkdir`, `chmod` and `stat`: names, directories and permissions at home.
//!
//! What a home can do at once, it does itself. Elsewhere an object is moved by a copy, and its old name goes only when the copy is
//! complete and the object has not changed meanwhile. Such a copy replaces nothing: two homes may be two ways to one storage, and then
//! what would be replaced is the object itself.

use crate::cp::{CopyTarget, LeftOut, Source, copy, copy_all, sources_of, target_of};
use crate::dirs::working;
use crate::homes::{self, named};
use crate::print::size;
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_storage::{Error, ErrorKind, Homes, Listed, Listing, Location, PartPlace, Status};
use eyas_text::{plural, shown};
use serde::Serialize;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Args)]
pub struct MvArgs {
    /// Files, patterns in quotes, or directories (a `/` at the end, except for paths): paths or URLs
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    /// The new name, or a directory for the old names: one that exists here, or one that ends in `/`
    #[arg(value_name = "TARGET")]
    target: String,
}

#[derive(Args)]
pub struct RmArgs {
    /// Files, patterns in quotes, or directories with -r: paths or URLs
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    /// Remove directories with all that is below them; links are removed, and not what they lead to
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    force: bool,
}

#[derive(Args)]
pub struct MkdirArgs {
    /// Directories: paths or URLs. Those above them are made, too
    #[arg(value_name = "DIRECTORY", required = true)]
    directories: Vec<String>,
    /// Is taken, as those above are made in any case
    #[arg(short, long, hide = true)]
    parents: bool,
}

#[derive(Args)]
pub struct ChmodArgs {
    /// The new permission bits, as an octal number: 644
    #[arg(value_name = "MODE", value_parser = mode)]
    mode: u32,
    /// Files or directories, or patterns in quotes: paths or URLs
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
}

#[derive(Args)]
pub struct StatArgs {
    /// Files, or patterns in quotes: paths or URLs
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// One JSON value on standard output
    #[arg(long)]
    json: bool,
}

fn mode(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| "write an octal number up to 777, as in 644".into())
}

/// A word that names a directory, as its location; `None`: it names something else.
fn directory_of(word: &str) -> Result<Option<Location>, Fault> {
    let bare = homes::location(match word.trim_end_matches('/') {
        "" => "/",
        bare => bare,
    });
    let is_link = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let is_local_directory =
        bare.as_ref().is_ok_and(|bare| bare.path().is_some_and(|path| path.is_dir() && !is_link(path)));
    match word.ends_with('/') || is_local_directory {
        true => homes::location(&format!("{}/", word.trim_end_matches('/'))).map(Some),
        false => Ok(None),
    }
}

/// The own name of a directory.
fn name_of(directory: &Location) -> Result<String, Fault> {
    Ok(homes::location(directory.as_str().trim_end_matches('/'))?.file_name())
}

/// A whole home, or the folder that the user is in, is nothing that is moved or removed by a slip of a finger.
fn refuse_whole_home(verb: &str, location: &Location) -> Result<(), Fault> {
    let text = location.as_str();
    let below_host =
        |rest: &str| rest.split_once('/').is_some_and(|(_, path)| !path.trim_matches('/').is_empty());
    // Links and `..` lead elsewhere than they seem to.
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let what = match (location.path().map(real), text.split_once("://")) {
        (Some(path), _) if path == Path::new("/") => "all of a home",
        (Some(path), _) if real(&working()?).starts_with(&path) => "the folder that you are in, or above it",
        (None, Some((_, rest))) if !below_host(rest) => "all of a home",
        _ => return Ok(()),
    };
    let message = format!("{} is {what}; nothing was done", named(location));
    let hint = format!("name what is below it, as in `eyas {verb} {}NAME`", named(location));
    Err(Fault::new(Exit::BadInput, message).hint(hint))
}

// ---------------------------------------------------------------- mv

pub fn mv(args: MvArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let left_out = LeftOut::default();
    let (mut sources, mut directories) = (vec![], vec![]);
    for word in &args.sources {
        let is_link = std::fs::symlink_metadata(word).is_ok_and(|found| found.is_symlink());
        match directory_of(word)? {
            Some(directory) => directories.push(directory),
            // The link itself, wherever it leads.
            None if is_link => {
                let location = homes::location(word)?;
                sources.push(Source { name: location.file_name(), location, is_listed: false });
            }
            None => sources.extend(sources_of(&homes, word, false, &left_out)?.objects),
        }
    }
    let into = sources.len() + directories.len() > 1 || homes::names_a_directory(&args.target);
    for directory in directories {
        refuse_whole_home("mv", &directory)?;
        match directory.has_flat_names() {
            true => sources.extend(objects_below(&homes, &directory, into, &left_out)?),
            false => move_directory(&homes, &directory, &args.target, into)?,
        }
    }
    if sources.is_empty() {
        return Ok(Exit::Good);
    }
    let into = into || sources.iter().any(|source| source.name.contains('/'));
    copy_all(sources, (&args.target, into), left_out, &|to, from, moving| {
        move_object(&homes, to, from, false, &|n| moving.moved(n))
    })
}

/// All objects whose names begin with that of a directory, where there are no directories. They keep their names from it on, and with
/// `into` its own name before that.
fn objects_below(
    homes: &Homes,
    directory: &Location,
    into: bool,
    left_out: &LeftOut,
) -> Result<Vec<Source>, Fault> {
    let mut sources = sources_of(homes, directory.as_str(), true, left_out)?.objects;
    if sources.is_empty() {
        return Err(homes::nothing(directory.as_str()));
    }
    if into {
        let above = name_of(directory)?;
        sources.iter_mut().for_each(|source| source.name = format!("{above}/{}", source.name));
    }
    Ok(sources)
}

fn move_directory(homes: &Homes, directory: &Location, target: &str, into: bool) -> Result<(), Fault> {
    let target_directory = target_of(target)?;
    let to = match into {
        true => target_directory.below(&name_of(directory)?).map_err(homes::fault)?,
        false => target_directory,
    };
    match homes.rename(directory, &to).map_err(homes::fault)? {
        true => Ok(()),
        false => {
            let (from, to) = (named(directory), named(&to));
            let message = format!(
                "the directory {from} cannot get the name {to}, which is at another home or file system"
            );
            let hint = format!("`eyas cp -r {from} {to}` copies it; then `eyas rm -r {from}`");
            Err(Fault::new(Exit::BadInput, message).hint(hint))
        }
    }
}

/// Moves an object. `may_replace`: the two names are known to be of two objects, so what has the new one may go.
pub fn move_object(
    homes: &Homes,
    to: &CopyTarget<'_>,
    from: &Location,
    may_replace: bool,
    moved: &dyn Fn(u64),
) -> Result<(), Error> {
    let refuse = |kind, why: &str| Error::new(kind, Status::Permanent, "move", from, why);
    if to.location == from {
        return Err(refuse(ErrorKind::InvalidName, "it has this name already"));
    }
    if homes.rename(from, to.location)? {
        return Ok(());
    }
    if !homes.get(from).capabilities().remove {
        // Says in the home's words that nothing can be removed there, before anything is copied.
        return homes.remove(from);
    }
    match homes.stat(to.location) {
        _ if may_replace => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => {
            let why = format!(
                "{} is there already, and a move between homes replaces nothing; copy and remove it yourself",
                to.location
            );
            return Err(refuse(ErrorKind::InvalidName, &why));
        }
    }
    let (read, written) = copy(homes, to, from, moved)?;
    if homes.stat(to.location)?.version.contradicts(&written.version) {
        let why = format!("somebody else has written {} meanwhile; it is kept", to.location);
        return Err(refuse(ErrorKind::Changed, &why));
    }
    if homes.stat(from)?.version.contradicts(&read.version) {
        let why = format!("it changed while it was copied to {}; both are kept", to.location);
        return Err(refuse(ErrorKind::Changed, &why));
    }
    homes.remove(from)
}

// ---------------------------------------------------------------- rm

pub fn rm(args: RmArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let (mut objects, mut directories) = (vec![], vec![]);
    for word in &args.places {
        match directory_of(word)? {
            Some(directory) if args.recursive => {
                refuse_whole_home("rm", &directory)?;
                directories.push(directory);
            }
            Some(_) => {
                let message = format!("{} names a directory; nothing was removed", shown(word));
                return Err(
                    Fault::new(Exit::BadInput, message).hint("-r removes it with all that is below it")
                );
            }
            None => {
                for location in named_by(&homes, word, args.force)? {
                    match args.recursive && location.path().is_none() && is_no_file(&homes, &location)? {
                        true => {
                            refuse_whole_home("rm", &location)?;
                            directories.push(location);
                        }
                        false => objects.push(location),
                    }
                }
            }
        }
    }
    let removed = Removed::default();
    for directory in directories {
        if homes.get(&directory).capabilities().make_directory {
            removed.take(homes.remove_directory(&directory), args.force);
            continue;
        }
        let Listed { found, left_out, .. } =
            homes.list(&Listing::Under(directory.clone())).map_err(homes::fault)?;
        eyas_storage::LeftOut::say_all(&left_out);
        removed.n_failed.fetch_add(left_out.len() as u64, Ordering::Relaxed);
        if found.is_empty() && left_out.is_empty() && !args.force {
            return Err(homes::nothing(directory.as_str()));
        }
        objects.extend(found);
    }
    homes::each(objects.len(), &|n| {
        removed.take(homes.remove(&objects[n]).map(|()| 1), args.force);
        Ok(())
    })?;
    removed.end()
}

/// Whether there is no file of this name, so that it may be that of a directory.
fn is_no_file(homes: &Homes, location: &Location) -> Result<bool, Fault> {
    match homes.stat(location) {
        Ok(_) => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotAFile) => Ok(true),
        Err(error) => Err(homes::fault(error)),
    }
}

/// The objects that a word names: one, or all that match a pattern.
pub fn named_by(homes: &Homes, word: &str, may_be_none: bool) -> Result<Vec<Location>, Fault> {
    match homes::listing(word)? {
        listing @ Listing::Glob { .. } => {
            let Listed { found, left_out, .. } = homes.list(&listing).map_err(homes::fault)?;
            eyas_storage::LeftOut::say_all(&left_out);
            match found.is_empty() {
                true if may_be_none => Ok(homes::called(homes, word).into_iter().collect()),
                true => Ok(vec![homes::called(homes, word)?]),
                false => Ok(found),
            }
        }
        Listing::Under(_) => Ok(vec![homes::location(word)?]),
    }
}

/// What was removed, and what was not.
#[derive(Default)]
struct Removed {
    n_files: AtomicU64,
    n_failed: AtomicU64,
}

impl Removed {
    fn take(&self, result: Result<u64, Error>, may_be_none: bool) {
        match result {
            Ok(n) => drop(self.n_files.fetch_add(n, Ordering::Relaxed)),
            Err(error) if may_be_none && error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                eyas_text::say!("eyas: {error}");
                self.n_files.fetch_add(error.n_removed(), Ordering::Relaxed);
                self.n_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn end(self) -> Result<Exit, Fault> {
        let (n_files, n_failed) = (self.n_files.into_inner(), self.n_failed.into_inner());
        eyas_text::say!("removed {}", plural(n_files, "file"));
        match n_failed {
            0 => Ok(Exit::Good),
            n => Err(Fault::new(Exit::Other, format!("{} could not be removed", plural(n, "name")))),
        }
    }
}

// ---------------------------------------------------------------- mkdir, chmod, stat

pub fn mkdir(args: MkdirArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    for word in &args.directories {
        if word.is_empty() {
            return Err(Fault::new(Exit::BadInput, "a directory needs a name"));
        }
        let location = homes::location(&format!("{}/", word.trim_end_matches('/')))?;
        homes.make_directory(&location).map_err(|error| {
            let is_flat = location.has_flat_names();
            let fault = homes::fault(error);
            match is_flat {
                true => fault.hint("names with a `/` in them need no directory there"),
                false => fault,
            }
        })?;
    }
    Ok(Exit::Good)
}

pub fn chmod(args: ChmodArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let mut places = vec![];
    for word in &args.places {
        places.extend(named_by(&homes, word, false)?);
    }
    homes::each_by_itself(places.len(), "changed", &|n| homes.set_mode(&places[n], args.mode))?;
    Ok(Exit::Good)
}

/// What is known of an object without reading it.
#[derive(Serialize)]
struct ObjectStory {
    location: String,
    size_bytes: u64,
    /// Equal texts mean equal bytes, as far as the home can tell.
    version: String,
    /// Nanoseconds since 1970, where the home says it.
    modified_ns: Option<i64>,
    /// Three octal digits, where the home has permissions.
    mode: Option<String>,
    /// The hosts that have parts of it on their disks, where the home says it.
    hosts: Vec<String>,
}

impl ObjectStory {
    fn of(homes: &Homes, location: &Location) -> Result<ObjectStory, Error> {
        let stat = homes.stat(location)?;
        let mode = homes.mode(location)?.map(|mode| format!("{:03o}", mode & 0o777));
        let mut hosts: Vec<String> =
            homes.places(location)?.into_iter().flat_map(|PartPlace { hosts, .. }| hosts).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Ok(ObjectStory {
            location: location.to_string(),
            size_bytes: stat.size_bytes,
            version: stat.version.shown(),
            modified_ns: stat.version.modified_ns(),
            mode,
            hosts,
        })
    }

    fn show(&self) {
        show!("{}", self.location);
        show!("  size      {} ({} B)", size(self.size_bytes), self.size_bytes);
        show!("  version   {}", self.version);
        if let Some(mode) = &self.mode {
            show!("  mode      {mode}");
        }
        if !self.hosts.is_empty() {
            show!("  on hosts  {}", self.hosts.join(", "));
        }
    }
}

pub fn stat(args: StatArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let mut files = vec![];
    for word in &args.files {
        if directory_of(word)?.is_some() {
            let message = format!("{} is a directory", shown(word));
            return Err(Fault::new(Exit::BadInput, message).hint("`eyas ls -l` lists what is in it"));
        }
        files.extend(named_by(&homes, word, false)?);
    }
    let stories: Vec<Mutex<Option<ObjectStory>>> = files.iter().map(|_| Mutex::default()).collect();
    let looked = homes::each_by_itself(files.len(), "looked at", &|n| {
        let story = ObjectStory::of(&homes, &files[n])?;
        *stories[n].lock().expect("no holder panics") = Some(story);
        Ok(())
    });
    let stories: Vec<ObjectStory> =
        stories.into_iter().filter_map(|story| story.into_inner().expect("no holder panics")).collect();
    match args.json {
        true => json::write(&stories)?,
        false => stories.iter().for_each(ObjectStory::show),
    }
    looked.map(|()| Exit::Good)
}
