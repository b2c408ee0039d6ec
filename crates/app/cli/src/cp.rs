//! `eyas cp`: copies objects between homes, several at once. A name appears only when all its bytes are there.
//!
//! Names that a listing gives come from outside. One that leads out of the target, or that cannot be a file's there, is left out
//! and named; the others are copied, and the command fails.

use crate::given_up::COPIES;
use crate::homes::{self, Moving};
use crate::{Exit, Fault};
use clap::Args;
use eyas_runtime::machine::umask;
use eyas_storage::{
    Error, ErrorKind, Homes, LeftOut as Omitted, Listed, Listing, Location, Put, Stat, label_of,
};
use eyas_text::{plural, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;

#[derive(Args)]
pub struct CpArgs {
    /// Files, or patterns in quotes: paths or URLs
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    /// The new name, or a directory for the old names: one that exists here, or one that ends in `/`
    #[arg(value_name = "TARGET")]
    target: String,
    /// Copy all files below the directories that the sources name, with their names from there on
    #[arg(short, long)]
    recursive: bool,
}

pub fn cp(args: CpArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let left_out = LeftOut::default();
    let (mut sources, mut empty) = (vec![], vec![]);
    for word in &args.sources {
        let found = sources_of(&homes, word, args.recursive, &left_out)?;
        sources.extend(found.objects);
        empty.extend(found.empty);
    }
    make_empty(&homes, &empty, &args.target, &left_out)?;
    let into = args.recursive || sources.len() > 1 || homes::names_a_directory(&args.target);
    copy_all(sources, (&args.target, into), left_out, &|to, from, moving| {
        copy(&homes, to, from, &|n| moving.moved(n)).map(drop)
    })
}

/// Makes the directories at the target that have no files in them at the source. `empty`: directories of sources, and names from there
/// on.
fn make_empty(
    homes: &Homes,
    empty: &[(Location, String)],
    target: &str,
    left_out: &LeftOut,
) -> Result<(), Fault> {
    let target = target_of(target)?;
    let has_directories = homes.get(&target).capabilities().make_directory;
    for (directory, name) in empty {
        let from = directory.join(name).map_err(homes::fault)?;
        match has_directories.then(|| homes.make_directory_below(&target, name)) {
            None => left_out.add(&from, &"it is an empty directory, and the target has no directories"),
            Some(Err(error)) if is_of_one(error.kind()) => left_out.add(&from, &error),
            Some(made) => made.map_err(homes::fault)?,
        }
    }
    Ok(())
}

/// The location of a target. That of a directory as one object ends in `/`, that of files in it does not.
pub fn target_of(word: &str) -> Result<Location, Fault> {
    let bare = homes::location(match word.trim_end_matches('/') {
        "" => "/",
        bare => bare,
    });
    // A data set has a `/` behind its label in any case.
    bare.or_else(|_| homes::location(word))
}

/// A place of a copy.
pub struct CopyTarget<'a> {
    pub location: &'a Location,
    /// The name below this directory comes from outside.
    pub below: Option<&'a Path>,
}

/// Copies an object. Gives what was read, and what was written. `moved` is told of the bytes.
pub fn copy(
    homes: &Homes,
    to: &CopyTarget<'_>,
    from: &Location,
    moved: &dyn Fn(u64),
) -> Result<(Stat, Stat), Error> {
    let opened = homes.open(from, None)?;
    let stat = opened.stat;
    let (mode, modified_ns) = (stat.version.mode().map(|mode| mode & !umask()), stat.version.modified_ns());
    let mut body = Counted { reader: opened.reader, moved };
    let put =
        Put { below: to.below, mode, modified_ns, fence: &COPIES, ..Put::simple(Some(stat.size_bytes)) };
    let written = homes.put(to.location, &mut body, &put)?;
    Ok((stat, written))
}

/// Gives each source its place at the target, and does `work` for each.
///
/// * `into`: the target is a directory for the sources' names.
pub fn copy_all(
    mut sources: Vec<Source>,
    (word, into): (&str, bool),
    left_out: LeftOut,
    work: &(dyn Fn(&CopyTarget<'_>, &Location, &Moving) -> Result<(), Error> + Sync),
) -> Result<Exit, Fault> {
    let target = target_of(word)?;
    let n_found = sources.len() + left_out.n();
    if into && !target.has_flat_names() {
        sources = without_files_as_directories(sources, &left_out);
    }
    let mut copies: BTreeMap<Location, Source> = BTreeMap::new();
    for source in sources {
        let to = match into {
            true => match target.below(&source.name) {
                Ok(to) => to,
                Err(error) if source.is_listed => {
                    left_out.add(&source.location, &error);
                    continue;
                }
                Err(error) => return Err(homes::fault(error)),
            },
            false => target.clone(),
        };
        let location = source.location.clone();
        if let Some(other) = copies.insert(to.clone(), source) {
            let message = format!("{} and {location} would both become {to}", other.location);
            return Err(Fault::new(Exit::BadInput, message));
        }
    }
    refuse_larger_sets(copies.keys())?;
    let copies: Vec<(Location, Source)> = copies.into_iter().collect();
    let moving = Moving::new(copies.len());
    COPIES.end_when_asked();
    let copy_one = |n: usize| {
        let (to, from) = &copies[n];
        let below = target.path().filter(|_| into && from.is_listed);
        moving.begin(&from.location);
        let done = work(&CopyTarget { location: to, below }, &from.location, &moving);
        moving.leave(&from.location);
        match done {
            Ok(()) => moving.done(),
            Err(error) if from.is_listed && is_of_one(error.kind()) => left_out.add(&from.location, &error),
            Err(error) => return Err(homes::fault(error)),
        }
        Ok(())
    };
    moving.watch(|| homes::each(copies.len(), &copy_one))?;
    moving.end();
    left_out.end(n_found)
}

/// Whether an error says something of one object, and nothing of the others.
fn is_of_one(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::InvalidName | ErrorKind::NotAFile | ErrorKind::PermissionDenied
    )
}

/// The objects that are not copied although others are.
#[derive(Default)]
pub struct LeftOut(Mutex<usize>);

impl LeftOut {
    fn add(&self, object: &Location, why: &dyn std::fmt::Display) {
        self.take(&Omitted::new(object.as_str(), why));
    }

    fn take(&self, omitted: &Omitted) {
        let mut n = self.0.lock().expect("no holder panics");
        omitted.say(*n);
        *n += 1;
    }

    fn n(&self) -> usize {
        *self.0.lock().expect("no holder panics")
    }

    fn end(self, n_found: usize) -> Result<Exit, Fault> {
        match self.0.into_inner().expect("no holder panics") {
            0 => Ok(Exit::Good),
            n => Err(Fault::new(
                Exit::Other,
                format!("{n} of {} were left out", plural(n_found as u64, "object")),
            )),
        }
    }
}

/// What can be copied into directories: of an object and others whose names go on behind its name, the object alone.
fn without_files_as_directories(sources: Vec<Source>, left_out: &LeftOut) -> Vec<Source> {
    let names: BTreeSet<String> = sources.iter().map(|source| source.name.clone()).collect();
    let file_above = |name: &str| {
        let mut above = name.match_indices('/').map(|(at, _)| &name[..at]);
        above.find(|above| names.contains(*above)).map(str::to_owned)
    };
    let is_possible = |source: &Source| match file_above(&source.name) {
        None => true,
        Some(above) => {
            left_out.add(
                &source.location,
                &format!("{} is an object, too, and cannot be a directory as well", shown(&above)),
            );
            false
        }
    };
    sources.into_iter().filter(is_possible).collect()
}

/// What is written into a data set file by file is a data set of one file.
fn refuse_larger_sets<'l>(targets: impl Iterator<Item = &'l Location>) -> Result<(), Fault> {
    let mut labels = BTreeSet::new();
    for label in targets.filter_map(|target| label_of(target.as_str())) {
        if !labels.insert(label) {
            let message = format!(
                "several files would become the data set `{label}`, and each would replace the one before"
            );
            return Err(Fault::new(Exit::BadInput, message)
                .hint(format!("`eyas data put FILE... --label {label}` makes one data set of them")));
        }
    }
    Ok(())
}

/// An object that is copied.
pub struct Source {
    pub location: Location,
    /// Its name in a target directory.
    pub name: String,
    /// A home has named it, and not the user.
    pub is_listed: bool,
}

/// What a word stands for.
#[derive(Default)]
pub struct Sources {
    pub objects: Vec<Source>,
    /// Directories in which nothing is: a directory that the user named, and the name from there on.
    pub empty: Vec<(Location, String)>,
}

/// What a word stands for.
pub fn sources_of(
    homes: &Homes,
    word: &str,
    is_recursive: bool,
    left_out: &LeftOut,
) -> Result<Sources, Fault> {
    let one = |location: Location, is_listed| {
        let name = location.file_name();
        Source { location, name, is_listed }
    };
    let list = |listing: &Listing| -> Result<Listed, Fault> {
        let listed = homes.list(listing).map_err(homes::fault)?;
        listed.left_out.iter().for_each(|omitted| left_out.take(omitted));
        Ok(listed)
    };
    let only = |objects: Vec<Source>| Ok(Sources { objects, ..Sources::default() });
    let listing = homes::listing(word)?;
    match &listing {
        Listing::Glob { .. } => {
            let found = list(&listing)?.found;
            match found.is_empty() && left_out.n() == 0 {
                true => only(vec![one(homes::called(homes, word)?, false)]),
                false => only(found.into_iter().map(|location| one(location, true)).collect()),
            }
        }
        _ if is_recursive => {
            let directory = homes::location(word)?;
            let Listed { found, empty, .. } = list(&Listing::Under(directory.clone()))?;
            let below = |location: Location| {
                let name = location.name_below(&directory).unwrap_or_else(|| location.file_name());
                Source { location, name, is_listed: true }
            };
            let objects = found.into_iter().map(below).collect();
            let empty = empty.into_iter().map(|name| (directory.clone(), name)).collect();
            Ok(Sources { objects, empty })
        }
        _ => {
            if Path::new(word).is_dir() {
                let message = format!("{} is a directory", shown(word));
                return Err(Fault::new(Exit::BadInput, message).hint("-r copies the files below it"));
            }
            only(vec![one(homes::location(word)?, false)])
        }
    }
}

struct Counted<'a> {
    reader: Box<dyn Read + Send>,
    moved: &'a dyn Fn(u64),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.reader.read(buffer)?;
        (self.moved)(n as u64);
        Ok(n)
    }
}
