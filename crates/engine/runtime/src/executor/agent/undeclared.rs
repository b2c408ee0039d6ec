//! Files that the programs of watched tasks read and make without a declaration: what their supervisors ask, and what the core and
//! the dispatcher answer.

use super::input::Input;
use super::printing::HeldEnd;
use super::{Agent, AttemptId};
use crate::executor::home_io::{home_error, parse};
use crate::executor::supervisor::Program;
use crate::executor::watched_files::{Answer, Copy, Entries, Entry, FoundFiles, MadeFile};
use eyas_core::event::*;
use eyas_storage::{ErrorKind, Homes, Listing, Location};
use eyas_terms::{Failure, FailureKind, ObjectId};
use eyas_text::shown;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

impl Agent {
    /// A watched program opens a file that is not in its sandbox.
    pub(super) fn on_file_named(&mut self, key: u64, name: &str, reply: Sender<Answer<Copy>>) {
        let Some(id) = self.attempts.find_id(key) else { return };
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        let location = match location_of(attempt.spec.watched_at(), name) {
            Ok(location) => location.as_str().to_owned(),
            Err(why) => {
                let _ = reply.send(Err(why));
                return;
            }
        };
        let waiting = attempt.naming.entry(location.clone()).or_default();
        waiting.push(reply);
        if waiting.len() > 1 {
            return;
        }
        let (task, attempt) = id;
        self.node.feed(NodeEvent::FileOpened { task, attempt, location });
    }

    /// A file that a program has named is here, or cannot be had.
    pub(super) fn bring(
        &mut self,
        id: AttemptId,
        location: &str,
        brought: Result<(u32, Staged), TransferError>,
    ) {
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        let waiting = attempt.naming.remove(location).unwrap_or_default();
        let answer = match brought {
            Ok((_, Staged::Cached(object))) => Ok(self.node.book().digest(object).map(|digest| Copy {
                path: self.objects.path_of(digest),
                modified_ns: self.objects.modified_ns(object, self.node.book()),
                mode: Some(self.objects.mode_of_input(object, false)),
            })),
            Ok((input, Staged::Private)) => {
                Ok(Some(Copy { path: self.private.path(id, input), modified_ns: None, mode: None }))
            }
            Ok((_, Staged::InPlace(object))) => {
                let path = Path::new(self.node.book().location(object)).to_owned();
                let of = path.metadata().ok();
                let mode = of.as_ref().map(|of| of.mode() & 0o777);
                let modified_ns = of.map(|of| of.mtime() * 1_000_000_000 + of.mtime_nsec());
                Ok(Some(Copy { path, modified_ns, mode }))
            }
            Ok((_, Staged::Unneeded)) => Ok(None),
            Err(error) if error.kind == TransferErrorKind::Unavailable => Ok(None),
            Err(error) => Err(error.message),
        };
        for reply in waiting {
            let _ = reply.send(answer.clone());
        }
    }

    /// A watched program asks about a name that is not in its sandbox.
    pub(super) fn on_entry_named(&self, key: u64, name: &str, reply: Sender<Answer<Entry>>) {
        self.ask_home(key, name, reply, |homes, place, _| look_up(homes, place));
    }

    /// A watched program wants to know what is in a directory of home.
    pub(super) fn on_folder_named(&self, key: u64, name: &str, reply: Sender<Answer<Entries>>) {
        self.ask_home(key, name, reply, list);
    }

    /// Asks home on a thread of its own.
    fn ask_home<T: Send + 'static>(
        &self,
        key: u64,
        name: &str,
        reply: Sender<Answer<T>>,
        ask: impl FnOnce(&Homes, &Location, &Path) -> Answer<T> + Send + 'static,
    ) {
        let Some(attempt) = self.attempts.find_id(key).and_then(|id| self.attempts.find(id)) else { return };
        let place = match name.is_empty() {
            true => parse(attempt.spec.watched_at().unwrap_or_default()).map_err(|error| error.message),
            false => location_of(attempt.spec.watched_at(), name),
        };
        let (homes, own) = (self.home.homes(), self.supervisors.own_folder().to_owned());
        tokio::task::spawn_blocking(move || {
            let is_own = |place: &Location| real_path(place).is_some_and(|path| path.starts_with(&own));
            let _ = reply.send(place.and_then(|place| match is_own(&place) {
                true => Ok(None),
                false => ask(&homes, &place, &own),
            }));
        });
    }

    /// A watched program has ended. What it made is looked for on a thread of its own.
    pub(super) fn watched_ended(&mut self, id: AttemptId, program: Arc<Program>, mut exit: Box<Exit>) {
        if let Some(errors) = program.errors() {
            let failure = match &exit.result {
                Ok(()) => Failure {
                    kind: FailureKind::InputUnavailable,
                    message: format!(
                        "the program ended well, but could not have all that it named: {errors}"
                    ),
                },
                Err(failure) => Failure {
                    message: format!("{}; while it ran, {errors}", failure.message),
                    ..failure.clone()
                },
            };
            exit.result = Err(failure);
        }
        let Some(attempt) = self.attempts.find(id) else { return };
        if exit.result.is_err() {
            // Its end removes files.
            tokio::task::spawn_blocking(move || drop(program));
            return self.end_found(id, exit);
        }
        let (inputs, key) = (self.inputs.clone(), attempt.key);
        tokio::task::spawn_blocking(move || {
            let made = program.made();
            let _ = inputs.send(Input::FilesFound { key, exit, made });
        });
    }

    /// It is known what a watched program made.
    pub(super) fn on_files_found(
        &mut self,
        key: u64,
        mut exit: Box<Exit>,
        made: Result<Vec<MadeFile>, String>,
    ) {
        let Some(id) = self.attempts.find_id(key) else { return };
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        let at = attempt.spec.watched_at();
        let located = made.and_then(|made| {
            let location = |made: &MadeFile| Ok(location_of(at, &made.name)?.as_str().to_owned());
            let locations = made.iter().map(location).collect::<Result<Vec<_>, String>>()?;
            Ok((made, locations))
        });
        match located {
            Ok((made, _)) if made.is_empty() => self.end_found(id, exit),
            Ok((made, locations)) => {
                let (task, number) = id;
                let event = NodeEvent::FilesMade { task, attempt: number, locations: locations.clone() };
                attempt.found = Some(FoundFiles { exit, made, locations });
                self.node.feed(event);
            }
            Err(message) => {
                exit.result = Err(Failure { kind: FailureKind::StageOut, message });
                self.end_found(id, exit)
            }
        }
    }

    /// The dispatcher has said whether the files that a watched program made are outputs of its attempt.
    pub(super) fn on_admitted(&mut self, id: AttemptId, outputs: Result<Vec<ObjectId>, String>) {
        let Some(attempt) = self.attempts.find_mut(id) else { return };
        let Some(FoundFiles { mut exit, made, locations }) = attempt.found.take() else { return };
        match outputs {
            Ok(theirs) => {
                exit.outputs.extend(made.iter().map(|made| Some(made.size_bytes)));
                attempt.admit(made, &locations);
                exit.found = self.node.session.admit(id, &locations, &theirs);
            }
            Err(message) => exit.result = Err(Failure { kind: FailureKind::StageOut, message }),
        }
        self.end_found(id, exit);
    }

    /// An attempt is to end whose program has ended already.
    pub(super) fn give_found_up(&mut self, id: AttemptId) -> bool {
        let Some(found) = self.attempts.find_mut(id).and_then(|attempt| attempt.found.take()) else {
            return false;
        };
        self.end_found(id, found.exit);
        true
    }

    fn end_found(&mut self, id: AttemptId, exit: Box<Exit>) {
        let Some(attempt) = self.attempts.find(id) else { return };
        let key = attempt.key;
        let ended: Vec<HeldEnd> = match self.leaving.has_begun() {
            true => vec![(id, exit)],
            false => self.printing.hold(id, key, *exit, &mut self.node.session),
        };
        self.end_printed(ended);
    }
}

/// Where a name below a sandbox is at home.
fn location_of(at: Option<&str>, name: &str) -> Result<Location, String> {
    let at = at.ok_or_else(|| "the task is not watched".to_owned())?;
    parse(at).map_err(|error| error.message)?.below(name).map_err(|error| error.to_string())
}

/// Where a place of this machine's files really is, behind links.
fn real_path(place: &Location) -> Option<PathBuf> {
    place.path()?.canonicalize().ok()
}

/// What home has at a place.
fn look_up(homes: &Homes, place: &Location) -> Answer<Entry> {
    if let Some(path) = place.path() {
        return match std::fs::metadata(path) {
            Err(error) if is_nothing(&error) => Ok(None),
            of => of.map(|of| entry_of(&of)).map_err(|error| error.to_string()),
        };
    }
    match homes.stat(place) {
        Ok(stat) => {
            let (size_bytes, mode) = (stat.size_bytes, stat.version.mode());
            Ok(Some(Entry::File { size_bytes, modified: None, mode }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(list(homes, place, Path::new("/"))?.map(|_| Entry::Folder))
        }
        Err(error) => Err(home_error(&error).message),
    }
}

/// What is in a directory at home, without `own`, this executor's own directory, which a sandbox would otherwise have in itself. `None`:
/// there is no such directory.
fn list(homes: &Homes, folder: &Location, own: &Path) -> Answer<Entries> {
    if let Some(path) = folder.path() {
        return list_path(path, own).map_err(|error| error.to_string());
    }
    let listed = match homes.list(&Listing::Under(folder.clone())) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        listed => listed.map_err(|error| home_error(&error).message)?,
    };
    let mut entries = BTreeMap::new();
    for file in &listed.found {
        let Some(name) = file.name_below(folder) else { continue };
        match name.split_once('/') {
            Some((first, _)) => _ = entries.insert(first.to_owned(), Entry::Folder),
            None => _ = look_up(homes, file)?.map(|entry| entries.insert(name, entry)),
        }
    }
    // Homes that have no directories say nothing where nothing is.
    Ok((!entries.is_empty()).then_some(entries))
}

/// Names that are not UTF-8 have no location, so no program is shown them, and links that lead back to a directory around them would
/// lead on without end.
fn list_path(path: &Path, own: &Path) -> std::io::Result<Option<Entries>> {
    let found = match std::fs::read_dir(path) {
        Err(error) if is_nothing(&error) => return Ok(None),
        found => found?,
    };
    let folder = path.canonicalize()?;
    let mut entries = BTreeMap::new();
    for entry in found {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let real = match entry.file_type()?.is_symlink() {
            true => entry.path().canonicalize().unwrap_or_default(),
            false => folder.join(&name),
        };
        if real == own || folder.starts_with(&real) {
            continue;
        }
        // A link counts as what it leads to.
        let Ok(of) = std::fs::metadata(&real) else { continue };
        entries.extend(entry_of(&of).map(|entry| (name, entry)));
    }
    Ok(Some(entries))
}

fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// `None`: neither a file nor a directory.
fn entry_of(of: &std::fs::Metadata) -> Option<Entry> {
    let file =
        || Entry::File { size_bytes: of.len(), modified: of.modified().ok(), mode: Some(of.mode() & 0o777) };
    if of.is_dir() { Some(Entry::Folder) } else { of.is_file().then(file) }
}

/// Why a task cannot be watched on this node; `None`: it can.
pub(super) fn why_not_watched(task: &eyas_terms::array::TaskSpec, has_account: bool) -> Option<String> {
    let what = if has_account {
        "programs of this node run as system users of their own (--system-users)"
    } else if task.inputs.iter().any(|(name, _)| name == eyas_terms::array::CONTAINER_NAME) {
        "it runs in a container"
    } else {
        return None;
    };
    Some(format!("the program of task {} cannot be watched: {what}; declare its files", shown(&task.id)))
}
