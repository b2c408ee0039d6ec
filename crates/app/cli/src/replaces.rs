//! Files that already exist where a run would write: reported before anything starts, or refused.
//!
//! In: a list of tasks. The places of outputs are checked as this machine sees them; a place that it does not
//! see counts as empty. These cases are found:
//!
//! * outputs that can never be written: where a directory or a device is, below a file, also one that the run writes, by a name or
//!   a path that is too long, at a home that takes none; and, if the tasks run here, where this user may not write or replace what
//!   is there, behind a link or below one that leads nowhere, or at a home without credentials for it; two outputs that are one file
//!   by two spellings, through a link or a bind mount: refused;
//! * files that outputs would replace, and directories that are not empty: this is reported, and refused with
//!   `--no-replace`;
//! * the same for stand-ins, whose zeros must never replace a file: refused;
//! * an output that is an input of the same run under another name (through a symbolic link): refused, as the
//!   run would read what it is about to replace. Under the same name the two are one file, and it links two
//!   tasks. The same for the list or table that the tasks come from.
//!
//! A folder in which many names are looked up is listed once, so that a million outputs do not cause a
//! million requests to shared storage.

use crate::print::count;
use crate::{Exit, Fault};
use clap::Args;
use eyas_storage::{ErrorKind, Homes, HomesConfig, Location, Status};
use eyas_tasklist::{NAME_BYTES_MAX, TaskList};
use eyas_terms::array::{Pattern, Piece, TaskArray, WATCH_VARIABLE};
use eyas_text::shown_path;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Names looked up in one folder before the folder is listed.
const ASKED_MAX: u32 = 512;
/// The longest path that a system call takes.
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize - 1;
/// The longest name of a file that an output has beside its place until it is whole.
const PART_BYTES: usize = 80;

#[derive(Args, Clone, Copy, Default)]
pub struct ReplaceArgs {
    /// Refuse to start when a file, or a directory with something in it, exists where an output goes
    #[arg(long)]
    pub no_replace: bool,
}

/// Reports how many files `list` would replace, or refuses. `are_stand_ins`: the list's programs only write
/// zeros.
///
/// * `is_here`: the tasks run on this machine, with the rights of this process.
/// * `origin`: the file that the tasks come from.
pub fn check(
    list: &TaskList,
    args: ReplaceArgs,
    are_stand_ins: bool,
    is_here: bool,
    origin: Option<&Path>,
) -> Result<(), Fault> {
    let mark = Pattern::literal(WATCH_VARIABLE);
    let mut env = list.arrays.iter().flat_map(|array| &array.template.env);
    if args.no_replace && env.any(|(name, _)| *name == mark) {
        let message =
            "--no-replace cannot be kept: what programs write that are watched is not known before they run";
        return Err(Fault::new(Exit::BadInput, message.to_owned())
            .hint("leave out --no-replace, or declare the outputs and do not watch"));
    }
    let mut disk = Disk::default();
    check_places(list, &mut disk, is_here)?;
    check_homes(list, is_here)?;
    let mut found: FxHashSet<String> = FxHashSet::default();
    for_each_path(
        list,
        |array| &array.template.outputs,
        |path| {
            let is_there = match path.strip_suffix('/') {
                Some(directory) => has_something(directory)?,
                None => matches!(disk.find(path), Some(Kind::File | Kind::Link)),
            };
            if is_there && !found.contains(path) {
                found.insert(path.to_owned());
            }
            Ok(())
        },
    )?;
    if found.is_empty() {
        return Ok(());
    }
    let what = said(&found);
    let all = |(all, example): &(String, Option<String>)| match example {
        Some(example) => format!("{all}, among them {example}"),
        None => all.clone(),
    };
    let files = what.iter().map(all).collect::<Vec<_>>().join(" and ");
    if are_stand_ins {
        return Err(Fault::new(Exit::BadInput, format!("stand-ins would replace {files}, with zeros"))
            .hint("--out DIR puts what they write into another folder"));
    }
    if args.no_replace {
        return Err(Fault::new(Exit::BadInput, format!("the run would replace {files}"))
            .hint("name another place for its outputs, or leave out --no-replace"));
    }
    let mut places: FxHashMap<PathBuf, &str> = FxHashMap::default();
    for path in &found {
        if let Some(real) = disk.real_place(path) {
            places.insert(real, path);
        }
    }
    let of_origin = origin.and_then(|origin| disk.seen.first_of_file(&fs::canonicalize(origin).ok()?));
    if let Some(output) = of_origin.and_then(|real| real.ancestors().find_map(|at| places.get(at).copied())) {
        let message = format!(
            "the run would replace {}, which its tasks come from, by its output {}",
            shown_path(origin.unwrap_or(Path::new(""))),
            shown_path(Path::new(output))
        );
        return Err(Fault::new(Exit::BadInput, message).hint("name another place for the output"));
    }
    for_each_path(
        list,
        |array| &array.template.inputs,
        |path| {
            if found.contains(path) {
                return Ok(());
            }
            let real = match disk.find(path) {
                None | Some(Kind::Folder | Kind::Other) => return Ok(()),
                Some(Kind::Link | Kind::File) => disk.real_place(path),
            };
            // The output itself, or a directory that contains it.
            let output = real.as_deref().and_then(|real| real.ancestors().find_map(|at| places.get(at)));
            let Some(output) = output else { return Ok(()) };
            let message = format!(
                "the run would replace one of its inputs: its output {} is the input {}",
                shown_path(Path::new(output)),
                shown_path(Path::new(path))
            );
            Err(Fault::new(Exit::BadInput, message).hint("name another place for the output"))
        },
    )?;
    let all: Vec<String> = what.iter().map(|(all, _)| all.clone()).collect();
    let examples: Vec<&str> = what.iter().filter_map(|(_, example)| example.as_deref()).collect();
    let among =
        if examples.is_empty() { String::new() } else { format!(", among them {}", examples.join(" and ")) };
    eyas_text::say!("note: {} will be replaced{among}", all.join(" and "));
    Ok(())
}

/// Refuses outputs that can never be written, and two that are one file.
fn check_places(list: &TaskList, disk: &mut Disk, is_here: bool) -> Result<(), Fault> {
    let refused = |path: &str, why: String| {
        let message = format!("the output {} can never be written: {why}", shown_path(Path::new(path)));
        Err(Fault::new(Exit::BadInput, message).hint("name another place for the output"))
    };
    let (mut has_links, mut has_directories) = (false, false);
    for_each_path(
        list,
        |array| &array.template.outputs,
        |path| {
            let bare = path.trim_end_matches('/');
            if bare.split('/').any(|part| part.len() > NAME_BYTES_MAX) {
                return refused(path, format!("a part of it has more than {NAME_BYTES_MAX} bytes"));
            }
            let folder_bytes = bare.rfind('/').unwrap_or(0);
            if bare.len().max(folder_bytes + 1 + PART_BYTES) > PATH_BYTES_MAX {
                let why = format!(
                    "paths of this machine have {PATH_BYTES_MAX} bytes at most, and eyas needs {PART_BYTES} of them"
                );
                return refused(path, why);
            }
            let own = disk.find(bare);
            let own_link = matches!(own, Some(Kind::Link));
            let shown = match own {
                Some(Kind::Link) => match fs::metadata(bare) {
                    Ok(found) => Some(kind(found.file_type())),
                    Err(error) if !is_here || error.kind() == std::io::ErrorKind::PermissionDenied => None,
                    Err(_) => {
                        let to = fs::read_link(bare).unwrap_or_default();
                        let why = format!("it is a symbolic link to {}, which is not there", shown_path(&to));
                        return refused(path, why);
                    }
                },
                own => own,
            };
            match shown {
                Some(Kind::Folder) if bare == path => {
                    return refused(path, "it is a directory (a location that ends in `/` takes one)".into());
                }
                Some(Kind::Other) => return refused(path, "there is something that is no file".into()),
                _ => {}
            }
            let real = if own_link { disk.real_place(path) } else { None };
            let at = real.as_deref().and_then(Path::to_str).unwrap_or(bare);
            let place = disk.place(at);
            has_links |= place.is_linked || own_link;
            has_directories |= bare != path;
            match &place.why_not {
                Some((why, is_of_here)) if is_here || !is_of_here => return refused(path, why.clone()),
                _ => {}
            }
            if is_here && own.is_some() && place.keeps_what_is_there && is_of_another(Path::new(at)) {
                let why =
                    "it belongs to another user, and in its folder users may only replace what is theirs";
                return refused(path, why.into());
            }
            Ok(())
        },
    )?;
    let within = disk.outputs_within();
    if !has_links && !has_directories && within.is_empty() {
        // Equal spellings were refused when the list was read.
        return Ok(());
    }
    let mut directories: FxHashSet<PathBuf> = FxHashSet::default();
    if has_directories {
        for_each_path(
            list,
            |array| &array.template.outputs,
            |path| {
                if path.ends_with('/') {
                    directories.extend(disk.real_output(path));
                }
                Ok(())
            },
        )?;
    }
    let mut places: FxHashMap<PathBuf, String> = FxHashMap::default();
    for_each_path(
        list,
        |array| &array.template.outputs,
        |path| {
            let Some(real) = disk.real_output(path) else { return Ok(()) };
            let what = if path.ends_with('/') { "a directory that is written as a whole" } else { "a file" };
            if let Some(folder) = within.get(&real) {
                let folder = shown_path(Path::new(folder));
                return refused(
                    path,
                    format!("it is {what}, and another output goes into the folder {folder}"),
                );
            }
            if !path.ends_with('/') && directories.contains(&real) {
                return refused(path, "another output is a directory of this name".into());
            }
            match places.get(&real).filter(|other| *other != path) {
                Some(other) => {
                    let [one, two] =
                        [other.as_str(), path].map(|path| shown_path(Path::new(path)).to_string());
                    let message =
                        format!("two tasks write one file: {one} and {two} are {}", shown_path(&real));
                    Err(Fault::new(Exit::BadInput, message).hint("give each output a file of its own"))
                }
                None => {
                    places.insert(real, path.to_owned());
                    Ok(())
                }
            }
        },
    )
}

/// Refuses outputs at homes that take none, or that this process has no credentials for if the tasks run here.
fn check_homes(list: &TaskList, is_here: bool) -> Result<(), Fault> {
    let mut homes: Option<Homes> = None;
    let mut asked: FxHashSet<String> = FxHashSet::default();
    let mut text = String::new();
    for array in &list.arrays {
        for (_, location) in &array.template.outputs {
            let has_one_home = match location.0.first() {
                Some(Piece::Literal(first)) => first.starts_with('/') || home_of(first).is_some(),
                _ => false,
            };
            let n_different = if has_one_home { array.n_tasks.min(1) } else { array.n_tasks };
            for i in 0..n_different {
                text.clear();
                array.fill_into(location, i, &mut text);
                let Some(home) = home_of(&text).filter(|home| !asked.contains(*home)) else { continue };
                asked.insert(home.to_owned());
                let Ok(at) = text.parse::<Location>() else { continue };
                let homes = match &homes {
                    Some(homes) => homes,
                    None => match Homes::new(HomesConfig::default()) {
                        Ok(new) => &*homes.insert(new),
                        // Whoever writes says so.
                        Err(_) => return Ok(()),
                    },
                };
                if let Err(error) = homes.may_write(&at)
                    && (is_here || error.kind() == ErrorKind::Unsupported)
                    && error.status() != Status::Temporary
                {
                    return Err(Fault::new(Exit::BadInput, error.to_string())
                        .hint("name another place for the output"));
                }
            }
        }
    }
    Ok(())
}

/// The scheme and the authority of a URL.
fn home_of(location: &str) -> Option<&str> {
    let (scheme, rest) = location.split_once("://").filter(|(scheme, _)| !scheme.contains('/'))?;
    Some(&location[..scheme.len() + 3 + rest.find('/')?])
}

/// What would be replaced, files and directories, in words, with one example of each. The example is the
/// smallest name, so that the same files give the same sentence.
fn said(found: &FxHashSet<String>) -> Vec<(String, Option<String>)> {
    let (directories, files): (Vec<&String>, Vec<&String>) =
        found.iter().partition(|path| path.ends_with('/'));
    let kind = |paths: Vec<&String>, one: &str, several: &str, with: [&str; 2]| {
        let example = shown_path(Path::new(paths.iter().min()?)).to_string();
        Some(match paths.len() as u64 {
            1 => (format!("the existing {one} {example}{}", with[0]), None),
            n => (format!("{} existing {several}{}", count(n), with[1]), Some(example)),
        })
    };
    let all = [
        kind(files, "file", "files", ["", ""]),
        kind(
            directories,
            "directory",
            "directories",
            [" with all that is in it", " with all that is in them"],
        ),
    ];
    all.into_iter().flatten().collect()
}

/// Whether a directory exists and is not empty.
fn has_something(directory: &str) -> Result<bool, Fault> {
    match fs::metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => {
            let path = shown_path(Path::new(directory));
            let message = format!("an output is the directory {path}, and a file has that name");
            Err(Fault::new(Exit::BadInput, message)
                .hint("remove the file, or name another place for the output"))
        }
        Ok(_) => Ok(fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())),
        Err(_) => Ok(false),
    }
}

/// Calls `visit` with each local path among the files that `of` picks; a path that is the same for all tasks
/// of an array, once.
fn for_each_path(
    list: &TaskList,
    of: impl Fn(&TaskArray) -> &[(Pattern, Pattern)],
    mut visit: impl FnMut(&str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut path = String::new();
    for array in &list.arrays {
        for (_, location) in of(array).iter().filter(|(_, l)| array.may_begin(l, "/")) {
            let n_different = if location.is_constant() { array.n_tasks.min(1) } else { array.n_tasks };
            for i in 0..n_different {
                path.clear();
                array.fill_into(location, i, &mut path);
                if path.starts_with('/') {
                    visit(&path)?;
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Link,
    Folder,
    /// A device, a pipe or a socket.
    Other,
}

/// The folder that an output goes into, which need not be there yet.
struct OutputFolder {
    /// Without symbolic links, and the same for a folder and for another place where it is mounted.
    real: PathBuf,
    is_linked: bool,
    /// Why nothing can be written there, and whether that is about this machine or this user's rights.
    why_not: Option<(String, bool)>,
    /// This user may not replace there what belongs to others.
    keeps_what_is_there: bool,
}

impl OutputFolder {
    fn of(folder: &Path, seen: &mut SeenFolders) -> OutputFolder {
        let mut missing = vec![];
        for at in folder.ancestors() {
            let mut keeps_what_is_there = false;
            let why_not = match fs::metadata(at) {
                Ok(found) if found.is_dir() => {
                    keeps_what_is_there = missing.is_empty() && is_sticky_for_me(&found);
                    may_not_be_written(at)
                        .then(|| (format!("the folder {} may not be written", shown_path(at)), true))
                }
                Ok(_) => Some((format!("{} is a file and no folder", shown_path(at)), false)),
                // What cannot be seen from here, a node may see.
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => None,
                Err(_) => match fs::read_link(at) {
                    Ok(to) => {
                        let (at, to) = (shown_path(at), shown_path(&to));
                        Some((format!("{at} is a symbolic link to {to}, which is not there"), true))
                    }
                    Err(_) => {
                        missing.extend(at.file_name());
                        continue;
                    }
                },
            };
            let mut real = fs::canonicalize(at).map_or_else(|_| at.to_owned(), |real| seen.first(&real));
            let is_linked = real != at;
            real.extend(missing.iter().rev());
            return OutputFolder { real, is_linked, why_not, keeps_what_is_there };
        }
        OutputFolder { real: folder.to_owned(), is_linked: false, why_not: None, keeps_what_is_there: false }
    }
}

/// The folders of this machine that were looked at.
#[derive(Default)]
struct SeenFolders {
    by_path: FxHashMap<PathBuf, PathBuf>,
    by_id: FxHashMap<(u64, u64), PathBuf>,
}

impl SeenFolders {
    /// The path by which the folder `real` was first seen here. Without links, a folder has several where it is mounted several
    /// times.
    fn first(&mut self, real: &Path) -> PathBuf {
        if let Some(first) = self.by_path.get(real) {
            return first.clone();
        }
        let (Some(above), Some(name)) = (real.parent(), real.file_name()) else { return real.to_owned() };
        let own = self.first(above).join(name);
        let first = match fs::symlink_metadata(real) {
            Ok(found) if found.is_dir() => {
                self.by_id.entry((found.dev(), found.ino())).or_insert(own).clone()
            }
            _ => own,
        };
        self.by_path.insert(real.to_owned(), first.clone());
        first
    }

    /// As [`SeenFolders::first`], of a file.
    fn first_of_file(&mut self, real: &Path) -> Option<PathBuf> {
        Some(self.first(real.parent()?).join(real.file_name()?))
    }
}

/// What exists on this machine, by folder.
#[derive(Default)]
struct Disk {
    folders: FxHashMap<String, Folder>,
    places: FxHashMap<String, OutputFolder>,
    seen: SeenFolders,
}

#[derive(Default)]
struct Folder {
    n_asked: u32,
    /// The content of the folder; empty if it cannot be read.
    listed: Option<FxHashMap<OsString, Kind>>,
}

impl Disk {
    /// The folder of an absolute path.
    fn place(&mut self, path: &str) -> &OutputFolder {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !self.places.contains_key(parent) {
            self.places.insert(parent.to_owned(), OutputFolder::of(folder(parent), &mut self.seen));
        }
        &self.places[parent]
    }

    /// `path` is absolute.
    fn find(&mut self, path: &str) -> Option<Kind> {
        let (parent, name) = path.rsplit_once('/')?;
        if !self.folders.contains_key(parent) {
            // A folder that does not exist needs no further requests.
            let listed = (!folder(parent).is_dir()).then(FxHashMap::default);
            self.folders.insert(parent.to_owned(), Folder { listed, ..Folder::default() });
        }
        let entry = self.folders.get_mut(parent)?;
        entry.n_asked += 1;
        if entry.n_asked > ASKED_MAX && entry.listed.is_none() {
            let all = fs::read_dir(folder(parent)).into_iter().flatten().flatten();
            let kinds = all.filter_map(|e| Some((e.file_name(), kind(e.file_type().ok()?))));
            entry.listed = Some(kinds.collect());
        }
        match &entry.listed {
            Some(listed) => listed.get(std::ffi::OsStr::new(name)).copied(),
            None => Some(kind(fs::symlink_metadata(path).ok()?.file_type())),
        }
    }

    /// Where a file of this name would be written: links in its folder are followed, and so is its own.
    fn real_place(&mut self, path: &str) -> Option<PathBuf> {
        if path.ends_with('/') {
            return fs::canonicalize(path).ok().map(|real| self.seen.first(&real));
        }
        if matches!(self.find(path), Some(Kind::Link)) {
            return self.seen.first_of_file(&fs::canonicalize(path).ok()?);
        }
        let (_, name) = path.rsplit_once('/')?;
        Some(self.place(path).real.join(name))
    }

    /// As [`Disk::real_place`], of an output, also where nothing is yet.
    fn real_output(&mut self, path: &str) -> Option<PathBuf> {
        let bare = path.trim_end_matches('/');
        let (_, name) = bare.rsplit_once('/')?;
        let behind = match self.find(bare) {
            Some(Kind::Link) => self.real_place(path),
            _ => None,
        };
        Some(behind.unwrap_or_else(|| self.place(bare).real.join(name)))
    }

    /// The names beside outputs that are folders of other outputs, or above those, each with such a folder.
    fn outputs_within(&self) -> FxHashMap<PathBuf, String> {
        let folders: FxHashSet<&Path> = self.places.values().map(|place| place.real.as_path()).collect();
        let mut above: FxHashSet<&Path> = FxHashSet::default();
        let mut within = FxHashMap::default();
        for (written, place) in &self.places {
            for at in place.real.ancestors().take_while(|at| above.insert(at)) {
                if at.parent().is_some_and(|parent| folders.contains(parent)) {
                    within.insert(at.to_owned(), written.clone());
                }
            }
        }
        within
    }
}

/// The folder before the last `/` of a path.
fn folder(parent: &str) -> &Path {
    Path::new(if parent.is_empty() { "/" } else { parent })
}

/// Whether this user may not replace what others have in a folder.
fn is_sticky_for_me(folder: &fs::Metadata) -> bool {
    let me = me();
    folder.permissions().mode() & libc::S_ISVTX != 0 && me != 0 && me != folder.uid()
}

fn is_of_another(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() != me())
}

fn me() -> u32 {
    // SAFETY: it cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process has no right to write in a folder.
fn may_not_be_written(folder: &Path) -> bool {
    let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: `folder` ends in NUL.
    let refused = unsafe { libc::access(folder.as_ptr(), libc::W_OK) } != 0;
    let error = std::io::Error::last_os_error().raw_os_error();
    refused && matches!(error, Some(libc::EACCES | libc::EROFS))
}

fn kind(of: fs::FileType) -> Kind {
    match of {
        of if of.is_dir() => Kind::Folder,
        of if of.is_symlink() => Kind::Link,
        of if of.is_file() => Kind::File,
        _ => Kind::Other,
    }
}
