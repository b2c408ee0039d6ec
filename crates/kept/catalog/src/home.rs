//! Data sets as home storage: runs read files of data sets, and what they make becomes data sets.
//!
//! A location is `data:LABEL/PATH` or `data:LABEL@VERSION/PATH` ([`DataPlace`]). Without a version the newest is meant.
//!
//! * Reading: each byte is compared with the file's digest before the reader sees the file's end. Where a site breaks off, the
//!   next one goes on; a copy with wrong bytes is noted, and the reader gets an error, upon which it tries again.
//! * Writing: an object makes a version of the data set `LABEL` that has this one file, with the tags behind the `?`. Where
//!   the newest version has that file and no other, nothing is made, so that a task may be repeated.
//! * Where a file is: the hosts of the sites with a good copy, so that tasks may be run there.
//!
//! The catalog is opened when it is asked first, in each process by itself, and anew when it was away.

use crate::error::{Error, Result};
use crate::holding::Holding;
use crate::key::Key;
use crate::own_host::OwnHost;
use crate::parts::{Access, Known};
use crate::put::{commit, end};
use crate::reading::{Holder, Readable};
use crate::sealed::File;
use crate::sets::check_path;
use crate::sites::ReplicaState;
use crate::tags::Tag;
use eyas_data::Digest;
use eyas_storage::{
    Capabilities, DATA_CAPABILITIES, DataPlace, ErrorKind, Fence, Home, LeftOut, Listed, Listing, Location,
    Opened, PartPlace, Put, Stat, Status,
};
use eyas_text::shown;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

type AtHome<T> = eyas_storage::Result<T>;

/// A file of at most so many bytes is read and compared before anybody gets a byte of it.
const SMALL_BYTES: u64 = 1 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are read ahead.
const PIECES_AHEAD: usize = 8;

/// The home of data sets.
pub struct DataHome {
    open: Box<dyn Fn() -> Result<Access> + Send + Sync>,
    /// Milliseconds since 1970.
    now_ms: fn() -> i64,
    /// This machine, as sites may call it. It is asked for when it is needed.
    host: LazyLock<OwnHost, Box<dyn FnOnce() -> OwnHost + Send>>,
    known: Mutex<Option<Arc<Known>>>,
}

impl DataHome {
    /// `open` opens the catalog. `host` says what this machine is called.
    pub fn new(
        open: Box<dyn Fn() -> Result<Access> + Send + Sync>,
        now_ms: fn() -> i64,
        host: Box<dyn FnOnce() -> OwnHost + Send>,
    ) -> DataHome {
        DataHome { open, now_ms, host: LazyLock::new(host), known: Mutex::new(None) }
    }

    /// Asks the catalog. It is opened anew the next time where the database failed.
    fn ask<T>(
        &self,
        operation: &'static str,
        location: &Location,
        question: impl FnOnce(&Arc<Known>, &DataPlace) -> Result<T>,
    ) -> AtHome<T> {
        let place =
            DataPlace::of(location).ok_or_else(|| Error::bad(format!("{location} is no file of a data set")));
        let known = || -> Result<Arc<Known>> {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.is_none() {
                let access = (self.open)()?;
                *known = Some(Arc::new(Known::new(access)));
            }
            Ok(known.clone().expect("it was just opened"))
        };
        place.and_then(|place| question(&known()?, &place)).map_err(|error| {
            if error.is_of_database() {
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            at_home(operation, location, &error)
        })
    }

    fn readable(&self, operation: &'static str, location: &Location) -> AtHome<(Arc<Known>, Readable)> {
        self.ask(operation, location, |known, place| {
            let Access { catalog, caller } = &known.access;
            if place.path.is_empty() || place.path.ends_with('/') {
                let inside = if place.path.is_empty() { String::new() } else { format!(" {}", shown(&place.path)) };
                return Err(Error::bad(format!(
                    "it is a directory{inside} of the data set `{0}`, and no file: `eyas data ls {0}` lists the files",
                    place.key
                )));
            }
            let mut readable = catalog.readable(caller, &place.key.parse()?, &place.path)?;
            known.put_in_order(&mut readable.holders, &|holder| self.is_near(holder), (self.now_ms)());
            Ok((known.clone(), readable))
        })
    }

    /// Whether a site is on this machine.
    fn is_near(&self, holder: &Holder) -> bool {
        match holder.host() {
            Some(host) => self.host.is(host),
            // A folder of the machine on which the catalog was asked about it.
            None => std::path::Path::new(&holder.address).is_dir(),
        }
    }

    /// What has to be known before a byte is written: who gets the file, and what is there now.
    fn prepare(&self, known: &Arc<Known>, place: &DataPlace) -> Result<Prepared> {
        let Access { catalog, caller } = &known.access;
        let (key, tags) = written(place)?;
        catalog.require_writable(caller, &key.label)?;
        let before = catalog.only_file(caller, &key, &place.path)?;
        let (site, holding) = known.target(&|site| self.is_near(&Holder::of(site)), (self.now_ms)())?;
        Ok(Prepared { known: known.clone(), label: key.label, tags, before, site, holding })
    }

    /// Makes a version of a file whose bytes have come to the site and take their place by `keep`.
    fn commit(&self, prepared: &Prepared, file: &File, keep: impl FnOnce() -> Result<()>) -> Result<()> {
        let Prepared { known, label, tags, site, holding, .. } = prepared;
        let (Access { catalog, caller }, now_ms) = (&known.access, (self.now_ms)());
        let draft = catalog.begin(caller, label, None, now_ms)?;
        let done = catalog
            .add(&draft, std::slice::from_ref(file))
            .and_then(|()| catalog.expect_put(site, &[file.digest], now_ms))
            .and_then(|_| keep())
            .and_then(|()| catalog.note_replicas(site, &[file.digest], ReplicaState::Ready, now_ms))
            .and_then(|_| {
                commit(catalog, &**holding, &draft, now_ms, &|| {
                    catalog.commit_alone(caller, &draft, &file.path, tags, now_ms)
                })
            });
        if done.is_err() {
            // The next one may have more room.
            known.forget_target();
        }
        end(catalog, &**holding, caller, draft, done).map(|_| ())
    }
}

/// A file that is about to be written.
struct Prepared {
    known: Arc<Known>,
    label: String,
    tags: Vec<Tag>,
    /// What the newest version has.
    before: Option<File>,
    site: String,
    holding: Arc<dyn Holding>,
}

impl Home for DataHome {
    fn capabilities(&self) -> &'static Capabilities {
        &DATA_CAPABILITIES
    }

    fn stat(&self, location: &Location) -> AtHome<Stat> {
        self.readable("stat", location).map(|(_, readable)| stat_of(&readable.file))
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> AtHome<Opened> {
        let (known, readable) = self.readable("read", location)?;
        if range.is_some() {
            let reason = "a part of a file cannot be compared with the digest of the whole";
            let kind = ErrorKind::Unsupported;
            return Err(eyas_storage::Error::new(kind, Status::Permanent, "read", location, reason));
        }
        let stat = stat_of(&readable.file);
        let size_bytes = stat.size_bytes;
        let pump = Pump { known, readable, location: location.clone(), now_ms: self.now_ms, sent_bytes: 0 };
        let reader: Box<dyn Read + Send> = match size_bytes <= SMALL_BYTES {
            true => Box::new(io::Cursor::new(pump.whole()?)),
            false => Box::new(pump.start()),
        };
        Ok(Opened {
            location: location.clone(),
            stat,
            range: 0..size_bytes,
            reader,
            file: None,
            times: vec![],
        })
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> AtHome<Stat> {
        let (prepared, path) = self
            .ask("write", location, |known, place| Ok((self.prepare(known, place)?, place.path.clone())))?;
        let site = &prepared.site;
        let failed = |error: io::Error| {
            // The next one may have more room.
            prepared.known.forget_target();
            Error::Failed(format!("cannot write into the site `{site}`: {error}; nothing was put"))
        };
        let given_up =
            |why| eyas_storage::Error::new(ErrorKind::GivenUp, Status::Permanent, "write", location, why);
        let mut batch = prepared.holding.batch().map_err(|error| at_home("write", location, &error))?;
        let mut fenced = Fenced { body, fence: put.fence, stopped: None };
        let added = batch.add(&mut fenced);
        let (digest, size_bytes) = match (added, fenced.stopped) {
            (_, Some(Stopped::GivenUp(why))) => return Err(given_up(why)),
            (_, Some(Stopped::Source(error))) => {
                return Err(eyas_storage::Error::from_read("write", location, error));
            }
            (added, None) => added.map_err(|error| at_home("write", location, &failed(error)))?,
        };
        put.fence.may_appear().map_err(given_up)?;
        let is_executable = put.mode.is_some_and(|mode| mode & 0o100 != 0);
        let file = File { path, size_bytes, digest, is_executable };
        if prepared.before.as_ref() != Some(&file) {
            self.ask("write", location, |known, _| {
                let Access { catalog, caller } = &known.access;
                catalog.require_room(caller, &prepared.label, std::slice::from_ref(&file))?;
                self.commit(&prepared, &file, || batch.keep().map_err(failed))
            })?;
        }
        Ok(stat_of(&file))
    }

    fn list(&self, listing: &Listing) -> AtHome<Listed> {
        let directory = listing.directory();
        let found = self.ask("list", directory, |known, place| {
            let Access { catalog, caller } = &known.access;
            let files = catalog.files(caller, &place.key.parse()?)?;
            let above = place.path.trim_end_matches('/');
            let below = |path: &str| match above {
                "" => Some(path.to_owned()),
                above => Some(path.strip_prefix(above)?.strip_prefix('/')?.to_owned()),
            };
            let found: Vec<String> = files.iter().filter_map(|file| below(&file.path)).collect();
            if found.is_empty() {
                return Err(Error::NotFound(format!(
                    "`{}` has no files below {}: `eyas data ls {0}` lists them",
                    place.key,
                    shown(above)
                )));
            }
            Ok(found)
        })?;
        let is_wanted = |path: &&String| match listing {
            Listing::Under(_) => true,
            Listing::Glob { pattern, .. } => matches(pattern, path),
        };
        // The directory's text may have a query, and has a `/` at its end.
        let mut listed = Listed::default();
        for path in found.iter().filter(is_wanted) {
            match directory.join(path) {
                Ok(location) => listed.found.push(location),
                Err(error) => listed.left_out.push(LeftOut::new(path, error)),
            }
        }
        listed.found.sort();
        Ok(listed)
    }

    fn remove(&self, location: &Location) -> AtHome<()> {
        let reason = "a run removes no data set; `eyas data rm` does";
        Err(eyas_storage::Error::new(ErrorKind::Unsupported, Status::Permanent, "remove", location, reason))
    }

    fn places(&self, location: &Location) -> AtHome<Vec<PartPlace>> {
        let (_, readable) = self.readable("look up", location)?;
        let host_of = |holder: &Holder| match holder.host() {
            Some(host) => Some(host.to_owned()),
            None => self.host.name().filter(|_| self.is_near(holder)).cloned(),
        };
        let hosts: Vec<String> = readable.holders.iter().filter_map(host_of).collect();
        match hosts.is_empty() {
            true => Ok(vec![]),
            false => Ok(vec![PartPlace { range: 0..readable.file.size_bytes, hosts }]),
        }
    }
}

/// What a place says that is written to: its data set, without a version, and tags.
///
/// # Errors
/// Nothing can ever be written there: the label, the path or a tag is wrong, or it names a version.
pub fn written(place: &DataPlace) -> Result<(Key, Vec<Tag>)> {
    let key: Key = place.key.parse()?;
    if key.version.is_some() {
        return Err(Error::bad(format!(
            "a version never changes; write data:{}/PATH without `@`, which makes a new one",
            key.label
        )));
    }
    if place.path.is_empty() || place.path.ends_with('/') {
        return Err(Error::bad(format!(
            "{} names a directory of `{}`, and what is written is one file: write data:{1}/PATH",
            shown(&format!("data:{}/{}", key.label, place.path)),
            key.label
        )));
    }
    check_path(&place.path)?;
    let mut tags: Vec<Tag> = vec![];
    for text in &place.tags {
        let tag = Tag::parse(text)?;
        if tags.iter().any(|other| other.name == tag.name) {
            return Err(Error::bad(format!(
                "the tag `{}` is given twice; a data set has one value of it",
                tag.name
            )));
        }
        tags.push(tag);
    }
    Ok((key, tags))
}

fn stat_of(file: &File) -> Stat {
    let File { size_bytes, digest, is_executable, .. } = file;
    // What follows the line break is shown to programs, and is no part of the version.
    let mode = if *is_executable { "\nmode=755" } else { "" };
    let version = eyas_storage::Version::from_text(format!("size={size_bytes};digest={digest}{mode}"));
    Stat { size_bytes: *size_bytes, version }
}

fn at_home(operation: &'static str, location: &Location, error: &Error) -> eyas_storage::Error {
    let (kind, status) = match error {
        Error::NotFound(_) => (ErrorKind::NotFound, Status::Permanent),
        Error::Denied(_) => (ErrorKind::PermissionDenied, Status::Permanent),
        Error::BadInput(_) | Error::Query(_) => (ErrorKind::InvalidName, Status::Permanent),
        Error::Conflict(_) => (ErrorKind::Io, Status::Permanent),
        // Somebody has to do something first, and waiting for an answer would not help.
        Error::Failed(_) | Error::Full { .. } | Error::Newer { .. } | Error::Database { .. } => {
            (ErrorKind::Io, Status::Permanent)
        }
        Error::Busy { .. } => (ErrorKind::Busy, Status::Persistent),
        Error::Locked { .. } | Error::Away { .. } | Error::Unreached { .. } | Error::Collided { .. } => {
            (ErrorKind::Io, Status::Temporary)
        }
    };
    eyas_storage::Error::new(kind, status, operation, location, error.to_string())
}

/// Whether a path below a directory matches a pattern; `**` stands for any number of directories, and hidden names match only a
/// pattern with a dot.
fn matches(pattern: &str, path: &str) -> bool {
    fn all(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            (["**", rest @ ..], _) => {
                all(rest, path)
                    || matches!(path, [first, below @ ..] if !first.starts_with('.') && all(pattern, below))
            }
            ([part, rest @ ..], [name, below @ ..]) => {
                let is_hidden = name.starts_with('.') && !part.starts_with('.');
                !is_hidden && eyas_storage::pattern::matches(part, name) && all(rest, below)
            }
            _ => false,
        }
    }
    let parts = |text| <str>::split(text, '/').filter(|part| !part.is_empty()).collect::<Vec<&str>>();
    all(&parts(pattern), &parts(path))
}

/// A body that ends with an error once its writer may not go on, and remembers why it ended.
struct Fenced<'a> {
    body: &'a mut dyn Read,
    fence: &'a dyn Fence,
    stopped: Option<Stopped>,
}

enum Stopped {
    GivenUp(String),
    Source(io::Error),
}

impl Read for Fenced<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let stopped = match (self.fence.may_go_on(), self.body.read(piece)) {
            (Err(why), _) => Stopped::GivenUp(why),
            (Ok(()), Err(error)) if error.kind() != io::ErrorKind::Interrupted => Stopped::Source(error),
            (Ok(()), read) => return read,
        };
        self.stopped = Some(stopped);
        Err(io::ErrorKind::Other.into())
    }
}

/// Brings the bytes of a file from its sites.
struct Pump {
    known: Arc<Known>,
    readable: Readable,
    location: Location,
    now_ms: fn() -> i64,
    sent_bytes: u64,
}

/// How bringing from one site ended.
enum Brought {
    Whole,
    /// The next site may go on.
    Stopped(Error),
    /// What was given on is not the file.
    Wrong(Error),
    /// Nobody wants the bytes any more.
    Unwanted,
}

impl Pump {
    /// All bytes at once.
    fn whole(mut self) -> AtHome<Vec<u8>> {
        let mut last = None;
        for n in 0..self.readable.holders.len() {
            let mut bytes = vec![];
            self.sent_bytes = 0;
            let brought = self.bring(n, &mut blake3::Hasher::new(), &mut |piece| {
                bytes.extend_from_slice(piece);
                true
            });
            match brought {
                Brought::Whole => return Ok(bytes),
                Brought::Stopped(error) | Brought::Wrong(error) => last = Some(error),
                Brought::Unwanted => unreachable!("a vector takes all"),
            }
        }
        Err(self.nobody(last))
    }

    /// Begins to bring them, by a thread.
    fn start(self) -> Ahead {
        let (sender, receiver) = sync_channel(PIECES_AHEAD);
        std::thread::spawn(move || self.run(&sender));
        Ahead { receiver, piece: vec![], at: 0, is_over: false }
    }

    /// Sends all bytes, and then an empty piece. The last piece waits until all of them have been compared.
    fn run(mut self, sender: &SyncSender<AtHome<Vec<u8>>>) {
        let (mut hasher, mut held) = (blake3::Hasher::new(), vec![]);
        let mut last = None;
        for n in 0..self.readable.holders.len() {
            let brought = self.bring(n, &mut hasher, &mut |piece| {
                let before = std::mem::replace(&mut held, piece.to_vec());
                before.is_empty() || sender.send(Ok(before)).is_ok()
            });
            match brought {
                Brought::Whole => {
                    let _ = sender.send(Ok(held)).and_then(|()| sender.send(Ok(vec![])));
                    return;
                }
                Brought::Unwanted => return,
                Brought::Stopped(error) => last = Some(error),
                Brought::Wrong(error) => {
                    // Another try reads another copy.
                    let (kind, status) = (ErrorKind::Io, Status::Temporary);
                    let text = error.to_string();
                    let error = eyas_storage::Error::new(kind, status, "read", &self.location, text);
                    let _ = sender.send(Err(error));
                    return;
                }
            }
        }
        let _ = sender.send(Err(self.nobody(last)));
    }

    fn nobody(&self, last: Option<Error>) -> eyas_storage::Error {
        let none = || Error::NotFound("no site has a good copy of it".into());
        at_home("read", &self.location, &last.unwrap_or_else(none))
    }

    /// Brings the rest of the bytes from the `n`-th site.
    fn bring(
        &mut self,
        n: usize,
        hasher: &mut blake3::Hasher,
        give: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Brought {
        let site = self.readable.holders[n].name.clone();
        let (digest, size_bytes) = (self.readable.file.digest, self.readable.file.size_bytes);
        let is_first = self.sent_bytes == 0;
        let broken = |what: &str| Error::Conflict(format!("the copy at the site `{site}` is {what}"));
        let reached = match self.known.reach(&site) {
            Ok(reached) => reached,
            Err(error) => return Brought::Stopped(error),
        };
        let mut from = match reached.open(digest) {
            Ok(Some(from)) => from,
            Ok(None) => {
                self.note_bad(n);
                return Brought::Stopped(broken("missing"));
            }
            Err(error) => return Brought::Stopped(error),
        };
        let away = |error: &io::Error| Error::Unreached { site: site.clone(), reason: error.to_string() };
        // What was given on already came from other sites.
        if let Err(error) = io::copy(&mut (&mut *from).take(self.sent_bytes), &mut io::sink()) {
            return Brought::Stopped(away(&error));
        }
        let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(size_bytes).unwrap_or(PIECE_BYTES).max(1))];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&piece[..n]);
                    self.sent_bytes += n as u64;
                    if self.sent_bytes > size_bytes {
                        break;
                    }
                    if !give(&piece[..n]) {
                        return Brought::Unwanted;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Brought::Stopped(away(&error)),
            }
        }
        if Digest(*hasher.finalize().as_bytes()) == digest && self.sent_bytes == size_bytes {
            // Where another site began, it counts what it gave as well.
            reached.note_reads(&HashMap::from([(digest, size_bytes)]));
            return Brought::Whole;
        }
        match is_first {
            true => self.note_bad(n),
            // Bytes of several sites cannot be told apart, so each is asked to read its copy through.
            false => (0..=n).for_each(|n| self.verify(n)),
        }
        Brought::Wrong(broken("damaged: it has other bytes than its digest says"))
    }

    /// Has a site read its copy through, and notes what it says.
    fn verify(&self, n: usize) {
        let site = &self.readable.holders[n].name;
        let digest = self.readable.file.digest;
        // An audit finds it, too.
        let _ = self
            .known
            .reach(site)
            .and_then(|reached| self.known.access.catalog.doubt(&*reached, digest, (self.now_ms)()));
    }

    fn note_bad(&self, n: usize) {
        let (holder, digest) = (&self.readable.holders[n], self.readable.file.digest);
        self.known.access.catalog.note_bad(holder, digest, (self.now_ms)());
    }
}

/// Bytes that a thread reads ahead.
struct Ahead {
    receiver: Receiver<AtHome<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl Read for Ahead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.is_over && !to.is_empty() {
            match self.receiver.recv() {
                Ok(Ok(piece)) => {
                    self.is_over = piece.is_empty();
                    (self.piece, self.at) = (piece, 0);
                }
                Ok(Err(error)) => return Err(io::Error::other(error)),
                Err(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let n = to.len().min(self.piece.len() - self.at);
        to[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, path, expect) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "log/a.txt", false),
            ("**/*.txt", "a.txt", true),
            ("**/*.txt", "log/old/a.txt", true),
            ("**/*.txt", ".log/a.txt", false),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("log/[ab]?.txt", "log/a1.txt", true),
            ("log/*", "log", false),
            ("**", "log/a", true),
        ] {
            assert_eq!(matches(pattern, path), expect, "{pattern} {path}");
        }
    }
}
