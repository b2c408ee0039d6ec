//! `sftp` homes: files of hosts that are reached by `ssh`, with nothing there but its SFTP server.
//!
//! A location is `sftp://HOST/path`, where `USER@` before and `:PORT` behind the host are allowed. The host may be one of
//! `~/.ssh/config`. Paths are absolute.
//!
//! An object is written under the name of a part beside it and renamed when all bytes are there. As with paths of this machine,
//! a later writer removes the parts of earlier ones, so that one which was stopped finds nothing to rename.
//!
//! The protocol tells times in whole seconds: a rewrite of equal size within one second looks the same, so the version of a young
//! file is weak. An output gets the time that its program gave it, unless the file that it replaces has that time, too.
//!
//! Connections are kept for the next use. A reader or writer has one for itself.
//!
//! Not here: the protocol (`session`).

mod session;

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::parts::{PART_PREFIX, part_named, part_path};
use crate::put::given_up;
use crate::tree::{self, Children, Tree};
use crate::version::Version;
use crate::web::Source;
use crate::wrappers::retry::Backoff;
use crate::{Capabilities, Home, HomesConfig, Listed, Listing, Location, Opened, Part, Put, Stat};
use eyas_folder::{AGAIN, AGAIN_MAX, NOT_UTF8, NOWHERE};
use session::{Answer, Attributes, BLOCK_BYTES, Fields, Session, code};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const SCHEME: &str = "sftp";

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";
const LIST: &str = "list";
const OF_NO_FILE: &str = "it is a pipe, a socket or a device, and no file";
const REMOVE: &str = "remove";
const RENAME: &str = "rename";
const MAKE_DIRECTORY: &str = "make the directory";
const SET_MODE: &str = "change the permissions of";

/// Blocks that are asked for, or sent, before the answer to the first of them is there.
const BLOCKS_AHEAD: usize = 64;
/// Connections to one host that are kept while nobody uses them.
const IDLE_MAX: usize = 16;

const POSIX_RENAME: &str = "posix-rename@openssh.com";
const FSYNC: &str = "fsync@openssh.com";

const KIND_MASK: u32 = 0o170000;
const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const LINK: u32 = 0o120000;

const CAPABILITIES: Capabilities = Capabilities {
    name: SCHEME,
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: true,
    list: true,
    remove: true,
    local_path: false,
    directories: false,
    rename: true,
    make_directory: true,
    modes: true,
};

/// The kind of files on hosts of `ssh`.
pub(crate) struct Hosts;

impl Kind for Hosts {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let (authority, path) = url.rest.split_once('/').unwrap_or((url.rest, ""));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let is_name = |text: &str, more: &[u8]| {
            !text.is_empty()
                && !text.starts_with('-')
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        if let Some(user) = user {
            if user.contains(':') {
                return Err(Refusal::of_credentials());
            }
            if !is_name(user, b"-._") {
                return Err(Refusal::new("has no valid user name", "write sftp://USER@HOST/path"));
            }
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (place, None),
        };
        if !is_name(host, b"-._:[]") {
            return Err(Refusal::new("has no valid host name", "write sftp://HOST/path"));
        }
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(Refusal::new("has no valid port number", None));
        }
        let Some(path) = percent_decode(path) else {
            return Err(Refusal::new("has a `%` that begins no escape", "write %25 for a percent sign"));
        };
        if path.contains('\0') {
            return Err(Refusal::new("holds a NUL byte", None));
        }
        if path.split('/').any(|part| part == "..") {
            return Err(Refusal::new("leads upwards with `..`", None));
        }
        out.push_str("sftp://");
        out.push_str(authority);
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        for part in parts {
            out.push('/');
            push_encoded(out, part, is_path_mark, false);
        }
        if path.is_empty() || path.ends_with('/') {
            out.push('/');
        }
        Ok(Spelling::Url)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        let hosts = Arc::new(Connections::default());
        Ok(Arc::new(SftpHome { hosts, backoff: Backoff::new(config.retries.clone()) }))
    }
}

/// Files on hosts of `ssh`.
struct SftpHome {
    hosts: Arc<Connections>,
    backoff: Backoff,
}

/// The connections that nobody uses now, by user, host and port.
#[derive(Default)]
struct Connections {
    idle: Mutex<BTreeMap<String, Vec<Session>>>,
    /// A host takes few logins at the same time, so one is made after the other.
    login: Mutex<()>,
}

/// A connection for one use. It is kept for others only if [`Line::done`] is called.
struct Line {
    hosts: Arc<Connections>,
    session: Session,
    operation: &'static str,
    location: Location,
}

impl Connections {
    fn line(self: &Arc<Connections>, operation: &'static str, location: &Location) -> Result<Line> {
        let authority = authority_of(location);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(authority).and_then(Vec::pop);
        drop(idle);
        let session = match kept {
            Some(session) => session,
            None => {
                let _one = self.login.lock().unwrap_or_else(PoisonError::into_inner);
                Session::begin(operation, location, authority)?
            }
        };
        Ok(Line { hosts: self.clone(), session, operation, location: location.clone() })
    }
}

fn authority_of(location: &Location) -> &str {
    let text = location.as_str();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(authority, _)| authority)
}

/// The path on the host, as its server takes it.
fn path_of(location: &Location) -> String {
    let text = location.as_str();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    percent_decode(path).unwrap_or_else(|| path.to_owned())
}

fn check_scheme(operation: &'static str, location: &Location) -> Result<()> {
    match location.scheme() {
        SCHEME => Ok(()),
        other => Err(Error::unsupported(operation, location, SCHEME).with_context("scheme", other)),
    }
}

impl Line {
    /// Gives the connection back, after an answer to each of its requests.
    fn done(self) {
        let mut idle = self.hosts.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.entry(authority_of(&self.location).to_owned()).or_default();
        if kept.len() < IDLE_MAX {
            kept.push(self.session);
        }
    }

    /// The connection broke. Others to that host are likely to be broken, too.
    fn lost(&mut self, error: &io::Error) -> Error {
        let mut idle = self.hosts.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let others = idle.remove(authority_of(&self.location));
        drop(idle);
        drop(others);
        self.session.lost(self.operation, &self.location, error)
    }

    fn send(&mut self, kind: u8, fields: Fields) -> Result<u32> {
        self.session.send(kind, fields).map_err(|error| self.lost(&error))
    }

    fn answer(&mut self, id: u32) -> Result<Answer> {
        self.session.answer(id).map_err(|error| self.lost(&error))
    }

    fn ask(&mut self, kind: u8, fields: Fields) -> Result<Answer> {
        let id = self.send(kind, fields)?;
        self.answer(id)
    }

    /// What an answer means that is not what was asked for.
    fn refusal(&self, answer: &Answer) -> Error {
        let (kind, status, reason) = match answer {
            Answer::Status(code::NO_SUCH_FILE, _) => {
                (ErrorKind::NotFound, Status::Permanent, "there is no such file".to_owned())
            }
            Answer::Status(code::PERMISSION_DENIED, _) => {
                let reason = format!("this user may not {} it there", self.operation);
                (ErrorKind::PermissionDenied, Status::Permanent, reason)
            }
            Answer::Status(code::UNSUPPORTED, words) => {
                (ErrorKind::Unsupported, Status::Permanent, format!("the server says: {words}"))
            }
            // A full disk, too: the protocol has no number for it.
            Answer::Status(_, words) => {
                (ErrorKind::Io, Status::Temporary, format!("the server says: {words}"))
            }
            _ => (ErrorKind::Io, Status::Temporary, "the server answered another question".to_owned()),
        };
        Error::new(kind, status, self.operation, &self.location, reason)
    }

    fn expect_ok(&mut self, kind: u8, fields: Fields) -> Result<()> {
        match self.ask(kind, fields)? {
            Answer::Status(code::OK, _) => Ok(()),
            other => Err(self.refusal(&other)),
        }
    }

    fn handle(&mut self, kind: u8, fields: Fields) -> Result<Vec<u8>> {
        match self.ask(kind, fields)? {
            Answer::Handle(handle) => Ok(handle),
            other => Err(self.refusal(&other)),
        }
    }

    fn attributes(&mut self, kind: u8, of: &[u8]) -> Result<Attributes> {
        match self.ask(kind, Fields::default().text(of))? {
            Answer::Attributes(attributes) => Ok(attributes),
            other => Err(self.refusal(&other)),
        }
    }

    /// Size and version of a regular file.
    fn stat(&mut self, kind: u8, of: &[u8]) -> Result<Stat> {
        let attributes = self.attributes(kind, of)?;
        let what = match attributes.mode.map(|mode| mode & KIND_MASK) {
            None | Some(REGULAR) => {
                let size_bytes = attributes.size_bytes;
                let modified_s = attributes.modified.map(i64::from);
                let mode = attributes.mode.unwrap_or(0o644);
                return Ok(Stat { size_bytes, version: Version::of_seconds(size_bytes, modified_s, mode) });
            }
            Some(DIRECTORY) => "it is a directory",
            Some(_) => "it is not a regular file",
        };
        Err(Error::new(ErrorKind::NotAFile, Status::Permanent, self.operation, &self.location, what))
    }

    /// Makes the directories above a path that are not there.
    fn make_directories(&mut self, path: &str) -> Result<()> {
        let Some((directory, _)) = path.rsplit_once('/').filter(|(directory, _)| !directory.is_empty())
        else {
            return Ok(());
        };
        match self.attributes(session::STAT, directory.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.make_directories(directory)?;
        match self.ask(session::MKDIR, Fields::default().text(directory.as_bytes()).mode(None))? {
            Answer::Status(code::OK, _) => Ok(()),
            // Another writer has made it meanwhile.
            other => self
                .attributes(session::STAT, directory.as_bytes())
                .map(drop)
                .map_err(|_| self.refusal(&other)),
        }
    }

    /// Where a path leads without links.
    fn real(&mut self, path: &str) -> Result<Vec<u8>> {
        match self.ask(session::REALPATH, Fields::default().text(path.as_bytes()))? {
            Answer::Names(names) if names.len() == 1 => Ok(names.into_iter().next().expect("one").0),
            other => Err(self.refusal(&other)),
        }
    }

    /// What is directly in a directory.
    fn names(&mut self, directory: &str) -> Result<Vec<(Vec<u8>, Attributes)>> {
        let handle = self.handle(session::OPENDIR, Fields::default().text(directory.as_bytes()))?;
        let mut all = Vec::new();
        loop {
            match self.ask(session::READDIR, Fields::default().text(&handle))? {
                Answer::Names(names) => all.extend(names),
                Answer::Status(code::EOF, _) => break,
                other => return Err(self.refusal(&other)),
            }
        }
        self.expect_ok(session::CLOSE, Fields::default().text(&handle))?;
        all.retain(|(name, _)| name != b"." && name != b"..");
        Ok(all)
    }

    /// Removes a file; nothing there is no error.
    fn remove(&mut self, path: &str) -> Result<()> {
        match self.expect_ok(session::REMOVE, Fields::default().text(path.as_bytes())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the parts of earlier writers of the same object than `part`.
    fn remove_earlier(&mut self, directory: &str, part: &Part) -> Result<()> {
        let names = match self.names(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for (name, _) in names {
            let Some(name) = std::str::from_utf8(&name).ok() else { continue };
            let is_earlier = part_named(name).is_some_and(|found| {
                found.work == part.work && (found.epoch, found.number) < (part.epoch, part.number)
            });
            if is_earlier {
                self.remove(&format!("{}/{name}", directory.trim_end_matches('/')))?;
            }
        }
        Ok(())
    }

    /// Makes the file `part` of all bytes of a source.
    fn write(
        &mut self,
        part: &str,
        source: &mut Source<'_>,
        mode: Option<u32>,
        modified_s: Option<u32>,
    ) -> Result<()> {
        // To write, to make it, and only if it is not there.
        const FLAGS: u32 = 0x02 | 0x08 | 0x20;
        let fields = || Fields::default().text(part.as_bytes()).u32(FLAGS).mode(mode);
        let handle = match self.handle(session::OPEN, fields()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_directories(part)?;
                self.handle(session::OPEN, fields())?
            }
            other => other?,
        };
        let mut under_way = VecDeque::new();
        let (mut at, mut block, mut is_over) = (0u64, vec![0; BLOCK_BYTES], false);
        while !is_over || !under_way.is_empty() {
            if !is_over && under_way.len() < BLOCKS_AHEAD {
                let mut n = 0;
                while n < block.len() && !is_over {
                    match source.read(&mut block[n..]) {
                        Ok(0) => is_over = true,
                        Ok(more) => n += more,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(Error::from_read(WRITE, &self.location, error)),
                    }
                }
                if n > 0 {
                    let fields = Fields::default().text(&handle).u64(at).text(&block[..n]);
                    under_way.push_back(self.send(session::WRITE, fields)?);
                    at += n as u64;
                }
            } else if let Some(id) = under_way.pop_front() {
                match self.answer(id)? {
                    Answer::Status(code::OK, _) => {}
                    other => return Err(self.refusal(&other)),
                }
            }
        }
        if let Some(mode) = mode {
            // What the host's mask had taken away.
            self.expect_ok(session::FSETSTAT, Fields::default().text(&handle).mode(Some(mode & 0o7777)))?;
        }
        if let Some(seconds) = modified_s {
            // A host that does not take it keeps its own time.
            self.ask(session::FSETSTAT, Fields::default().text(&handle).times(seconds))?;
        }
        if self.session.knows(FSYNC) {
            self.expect_ok(session::EXTENDED, Fields::default().text(FSYNC.as_bytes()).text(&handle))?;
        }
        self.expect_ok(session::CLOSE, Fields::default().text(&handle))
    }

    /// Gives a part the name of its object.
    fn rename_part(&mut self, part: &str, path: &str) -> Result<()> {
        match self.rename(part, path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = "a later attempt has removed what this one had written".to_string();
                Err(given_up(WRITE, &self.location, why))
            }
            other => other,
        }
    }

    /// Gives a file another name, over an older file of that name.
    fn rename(&mut self, old: &str, path: &str) -> Result<()> {
        let both = |fields: Fields| fields.text(old.as_bytes()).text(path.as_bytes());
        match self.session.knows(POSIX_RENAME) {
            true => {
                let fields = both(Fields::default().text(POSIX_RENAME.as_bytes()));
                self.expect_ok(session::EXTENDED, fields)
            }
            // The protocol's own request refuses a name that is taken.
            false => {
                // Two names of one file, by a link above it: without the name that is removed there is no file.
                if let (Ok(real), Ok(other)) = (self.real(old), self.real(path))
                    && real == other
                {
                    return Ok(());
                }
                self.remove(path)?;
                self.expect_ok(session::RENAME, both(Fields::default()))
            }
        }
    }

    /// Whether there is a directory of this name, without following a link; `None`: there is nothing.
    fn is_directory(&mut self, path: &str) -> Result<Option<bool>> {
        match self.attributes(session::LSTAT, path.as_bytes()) {
            Ok(found) => Ok(Some(found.mode.map(|mode| mode & KIND_MASK) == Some(DIRECTORY))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn expect_directory(&mut self, path: &str, is_wanted: bool) -> Result<()> {
        let (kind, why) = match self.is_directory(path)? {
            Some(is_directory) if is_directory == is_wanted => return Ok(()),
            Some(true) => (ErrorKind::NotAFile, "it is a directory"),
            Some(false) => (ErrorKind::NotAFile, "it is no directory"),
            None => (ErrorKind::NotFound, "there is no such name"),
        };
        Err(Error::new(kind, Status::Permanent, self.operation, &self.location, why))
    }

    /// Removes a directory and all that is below it, and gives the number of what was no directory.
    fn remove_directory(&mut self, path: &str) -> Result<u64> {
        let mut n_files = 0;
        match self.remove_below(path, &mut n_files) {
            Ok(()) => Ok(n_files),
            Err(error) => Err(error.after_removing(n_files)),
        }
    }

    /// Removes a directory, and adds the files that are gone to `n_files`, also where it fails.
    fn remove_below(&mut self, path: &str, n_files: &mut u64) -> Result<()> {
        for (name, attributes) in self.names(path)? {
            let Ok(name) = String::from_utf8(name) else {
                let (kind, status) = (ErrorKind::InvalidName, Status::Permanent);
                return Err(Error::new(kind, status, self.operation, &self.location, NOT_UTF8));
            };
            let below = format!("{}/{name}", path.trim_end_matches('/'));
            match attributes.mode.map(|mode| mode & KIND_MASK) {
                Some(DIRECTORY) => self.remove_below(&below, n_files)?,
                _ => {
                    self.remove(&below)?;
                    *n_files += 1;
                }
            }
        }
        self.expect_ok(session::RMDIR, Fields::default().text(path.as_bytes()))
    }

    fn put(&mut self, (path, part): (&str, &str), body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let location = self.location.clone();
        let modified_s = put.modified_ns.and_then(|ns| u32::try_from(ns.div_euclid(1_000_000_000)).ok());
        // With the time of the file that it replaces it could be taken for that one.
        let mut is_new = |seconds: &u32| match self.attributes(session::STAT, path.as_bytes()) {
            Ok(found) => Ok(found.modified != Some(*seconds)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        };
        let modified_s = match modified_s {
            Some(seconds) if is_new(&seconds)? => Some(seconds),
            _ => None,
        };
        let mut source = Source::new(body, put.fence, &location);
        let written = self.write(part, &mut source, put.mode, modified_s);
        source.check(written.is_ok().then_some(put.size_hint_bytes).flatten())?;
        written?;
        if put.part.replaces {
            let directory = path.rsplit_once('/').map_or("/", |(directory, _)| directory);
            self.remove_earlier(directory, &put.part)?;
        }
        put.may_appear(&location)?;
        self.rename_part(part, path)?;
        self.stat(session::STAT, path.as_bytes())
    }
}

/// The bytes of a range of an open file, which is looked at once more behind the last one.
struct RangeReader {
    /// `None` at the end.
    line: Option<Line>,
    handle: Vec<u8>,
    stat: Stat,
    /// The next byte that is asked for, and the first one that is not wanted.
    next: u64,
    end: u64,
    /// Requests in the order of their bytes: number, first byte, number of bytes.
    under_way: VecDeque<(u32, u64, usize)>,
    block: io::Cursor<Vec<u8>>,
}

impl RangeReader {
    fn fill(&mut self) -> Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let ask = |line: &mut Line, handle: &[u8], at: u64, n: usize| {
            line.send(session::READ, Fields::default().text(handle).u64(at).u32(n as u32))
        };
        while self.under_way.len() < BLOCKS_AHEAD && self.next < self.end {
            let n = BLOCK_BYTES.min(usize::try_from(self.end - self.next).unwrap_or(usize::MAX));
            self.under_way.push_back((ask(line, &self.handle, self.next, n)?, self.next, n));
            self.next += n as u64;
        }
        if let Some((id, at, wanted)) = self.under_way.pop_front() {
            match line.answer(id)? {
                Answer::Data(bytes) if (1..=wanted).contains(&bytes.len()) => {
                    if bytes.len() < wanted {
                        // Servers may give less than was asked for.
                        let (at, rest) = (at + bytes.len() as u64, wanted - bytes.len());
                        self.under_way.push_front((ask(line, &self.handle, at, rest)?, at, rest));
                    }
                    self.block = io::Cursor::new(bytes);
                }
                Answer::Status(code::EOF, _) | Answer::Data(_) => {
                    let difference = format!("it ends before byte {}", at + wanted as u64);
                    return Err(Error::changed(READ, &line.location, difference));
                }
                other => return Err(line.refusal(&other)),
            }
            return Ok(());
        }
        let now = line.stat(session::FSTAT, &self.handle)?;
        if now.version.contradicts(&self.stat.version) {
            let difference = Version::describe_change(&self.stat.version, &now.version);
            return Err(Error::changed(READ, &line.location, difference));
        }
        line.expect_ok(session::CLOSE, Fields::default().text(&self.handle))?;
        if let Some(line) = self.line.take() {
            line.done();
        }
        Ok(())
    }
}

impl Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.block.read(buffer)? {
                0 if self.line.is_some() => self.fill()?,
                n => return Ok(n),
            }
        }
    }
}

impl Home for SftpHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        check_scheme(STAT, location)?;
        let mut line = self.hosts.line(STAT, location)?;
        let stat = line.stat(session::STAT, path_of(location).as_bytes());
        keep(line, stat)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        check_scheme(READ, location)?;
        let mut line = self.hosts.line(READ, location)?;
        let path = path_of(location);
        // A directory can be opened at some servers, and a pipe would be waited for.
        let looked = line.stat(session::STAT, path.as_bytes());
        if let Err(error) = looked {
            return keep(line, Err(error));
        }
        let handle =
            match line.handle(session::OPEN, Fields::default().text(path.as_bytes()).u32(1).mode(None)) {
                Ok(handle) => handle,
                Err(error) => return keep(line, Err(error)),
            };
        let stat = line.stat(session::FSTAT, &handle)?;
        let range = range.unwrap_or(0..stat.size_bytes);
        if range.start > range.end || range.end > stat.size_bytes {
            let closed = line.expect_ok(session::CLOSE, Fields::default().text(&handle));
            let outside = Error::range_outside(READ, location, &range, stat.size_bytes);
            return keep(line, closed.and(Err(outside)));
        }
        let reader = RangeReader {
            line: Some(line),
            handle,
            stat: stat.clone(),
            next: range.start,
            end: range.end,
            under_way: VecDeque::new(),
            block: io::Cursor::default(),
        };
        Ok(Opened {
            location: location.clone(),
            stat,
            range,
            reader: Box::new(reader),
            file: None,
            times: vec![],
        })
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        check_scheme(WRITE, location)?;
        let text = location.as_str();
        let (directory, name) = text.rsplit_once('/').unwrap_or((text, ""));
        let note = part_path(Path::new(directory), name.as_bytes(), &put.part);
        let (path, part) = (path_of(location), path_of(&note.to_string_lossy().parse()?));
        let mut line = self.hosts.line(WRITE, location)?;
        put.fence.part_begins(&note);
        let written = line.put((&path, &part), body, put);
        if written.is_ok() {
            put.fence.part_ended(&note);
            return keep(line, written);
        }
        // Its connection may be in the middle of something.
        drop(line);
        if self.remove_part(&note).is_ok() {
            put.fence.part_ended(&note);
        }
        written
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        let Some(text) = part.to_str().filter(|text| text.starts_with("sftp://")) else { return Ok(()) };
        if !text.rsplit('/').next().is_some_and(|name| name.starts_with(PART_PREFIX)) {
            return Ok(());
        }
        let location: Location = text.parse()?;
        self.backoff.run(|_| {
            let mut line = self.hosts.line(REMOVE, &location)?;
            let removed = line.remove(&path_of(&location));
            keep(line, removed)
        })
    }

    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        check_scheme(RENAME, from)?;
        if authority_of(from) != authority_of(to) {
            return Ok(false);
        }
        let (path, new) = (path_of(from), path_of(to));
        let (path, new) = (path.trim_end_matches('/'), new.trim_end_matches('/'));
        let mut line = self.hosts.line(RENAME, from)?;
        let renamed = line.expect_directory(path, from.ends_in_slash()).and_then(|()| {
            // A server that knows only the protocol's own request would have the older name removed first.
            let there = line.is_directory(new)?;
            if there == Some(true) || there.is_some() && from.ends_in_slash() {
                let reason = "there is a directory of the new name, or something that no directory replaces";
                return Err(Error::new(ErrorKind::NotAFile, Status::Permanent, RENAME, to, reason));
            }
            line.make_directories(new)?;
            line.rename(path, new).map(|()| true)
        });
        keep(line, renamed)
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        check_scheme(MAKE_DIRECTORY, location)?;
        let path = path_of(location);
        let mut line = self.hosts.line(MAKE_DIRECTORY, location)?;
        let made = line.make_directories(&format!("{}/", path.trim_end_matches('/'))).and_then(|()| {
            let found = line.attributes(session::STAT, path.as_bytes())?;
            match found.mode.map(|mode| mode & KIND_MASK) {
                Some(DIRECTORY) | None => Ok(()),
                Some(_) => {
                    let (kind, status) = (ErrorKind::NotAFile, Status::Permanent);
                    Err(Error::new(kind, status, MAKE_DIRECTORY, location, "there is a file of this name"))
                }
            }
        });
        keep(line, made)
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        check_scheme(REMOVE, location)?;
        let path = path_of(location);
        let path = path.trim_end_matches('/');
        let mut line = self.hosts.line(REMOVE, location)?;
        let removed = line.expect_directory(path, true).and_then(|()| line.remove_directory(path));
        keep(line, removed)
    }

    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        check_scheme(SET_MODE, location)?;
        let mut line = self.hosts.line(SET_MODE, location)?;
        let fields = Fields::default().text(path_of(location).as_bytes()).mode(Some(mode & 0o777));
        let changed = line.expect_ok(session::SETSTAT, fields);
        keep(line, changed)
    }

    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        let path = path_of(location);
        let mut line = self.hosts.line(REMOVE, location)?;
        let removed =
            line.remove_earlier(path.rsplit_once('/').map_or("/", |(directory, _)| directory), part);
        keep(line, removed)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let directory = listing.directory();
        check_scheme(LIST, directory)?;
        let line = Mutex::new(self.hosts.line(LIST, directory)?);
        let tree = Folder {
            line,
            real: Mutex::default(),
            followed: Mutex::default(),
            path: path_of(directory).trim_end_matches('/').to_owned(),
        };
        let names = match listing {
            Listing::Under(_) => tree::walk(&tree),
            Listing::Glob { pattern, .. } => tree::glob(&tree, pattern),
        };
        let names = keep(tree.line.into_inner().unwrap_or_else(PoisonError::into_inner), names)?;
        Ok(Listed::of(directory, names))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        check_scheme(REMOVE, location)?;
        let mut line = self.hosts.line(REMOVE, location)?;
        let path = path_of(location);
        let removed = line
            .stat(session::STAT, path.as_bytes())
            .and_then(|_| line.expect_ok(session::REMOVE, Fields::default().text(path.as_bytes())));
        keep(line, removed)
    }
}

/// Gives a connection back for the next use, if it may still be one.
fn keep<T>(line: Line, done: Result<T>) -> Result<T> {
    let is_sound = match &done {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotAFile,
    };
    if is_sound {
        line.done();
    }
    done
}

/// The directories of a host below the place of a listing.
struct Folder {
    line: Mutex<Line>,
    /// Directories on whose way links may be, and where they are.
    real: Mutex<HashMap<String, Vec<u8>>>,
    followed: Mutex<Followed>,
    /// Without a `/` at its end.
    path: String,
}

/// Where links have led, and how often one led where another had.
#[derive(Default)]
struct Followed {
    to: HashSet<Vec<u8>>,
    n_again: usize,
}

impl Followed {
    /// Whether one more link may be followed, which leads to that directory.
    fn may_go_on(&mut self, to: Vec<u8>) -> bool {
        self.n_again += usize::from(!self.to.insert(to));
        self.n_again <= AGAIN_MAX
    }
}

impl Folder {
    fn real(&self, line: &mut Line, path: &str) -> Result<Vec<u8>> {
        let known = self.real.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let real = line.real(path)?;
        self.real.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), real.clone());
        Ok(real)
    }

    /// Whether a link in a directory leads to a directory that may be entered; `Err`: it leads to nothing that can be read, and why.
    fn follow(
        &self,
        line: &mut Line,
        directory: &str,
        name: &str,
    ) -> Result<std::result::Result<bool, String>> {
        let path = format!("{}/{directory}{name}", self.path);
        let found = match line.attributes(session::STAT, path.as_bytes()) {
            Ok(found) => found,
            Err(error) if error.status() == Status::Temporary => return Err(error),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err(NOWHERE.into())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        match found.mode.map(|mode| mode & KIND_MASK) {
            Some(REGULAR) | None => return Ok(Ok(false)),
            Some(DIRECTORY) => {}
            Some(_) => return Ok(Err(OF_NO_FILE.into())),
        }
        let real = self.real(line, &path)?;
        let ends = directory.match_indices('/').map(|(at, _)| at + 1);
        for end in std::iter::once(0).chain(ends) {
            let around = format!("{}/{}", self.path, &directory[..end]);
            if self.real(line, &around)? == real {
                return Ok(Err("it is a symbolic link back to a directory around it".into()));
            }
        }
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(if followed.may_go_on(real) { Ok(true) } else { Err(AGAIN.into()) })
    }
}

impl Tree for Folder {
    fn children(&self, directory: &str, _begins: &str) -> Result<Children> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let path = format!("{}/{directory}", self.path);
        let mut children = Children::default();
        for (name, attributes) in line.names(&path)? {
            let name = match String::from_utf8(name) {
                Ok(name) => name,
                Err(error) => {
                    let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
                    children.left_out.push((name, NOT_UTF8.into()));
                    continue;
                }
            };
            match attributes.mode.map(|mode| mode & KIND_MASK) {
                _ if name.starts_with(PART_PREFIX) => {}
                Some(DIRECTORY) => children.directories.push(name),
                Some(REGULAR) | None => children.files.push(name),
                // A link counts as what it leads to.
                Some(LINK) => match self.follow(&mut line, directory, &name)? {
                    Ok(true) => children.directories.push(name),
                    Ok(false) => children.files.push(name),
                    Err(why) => children.left_out.push((name, why)),
                },
                Some(_) => children.left_out.push((name, OF_NO_FILE.into())),
            }
        }
        Ok(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_same_directories_are_followed_to_a_bound() {
        let mut followed = Followed::default();
        let n = (0..).take_while(|n| followed.may_go_on(vec![(n % 9) as u8])).count();
        assert_eq!(n, 9 + AGAIN_MAX);
        // Others lead to no end either.
        assert!(!followed.may_go_on(b"another".to_vec()));
    }

    #[test]
    fn urls_have_one_text() {
        let check = |text: &str, expect: &str| {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.as_str(), expect);
            assert_eq!(location.as_str().parse::<Location>().unwrap(), location);
        };
        check("SFTP://me@Host:2222//a/./b%20c", "sftp://me@Host:2222/a/b%20c");
        check("sftp://[::1]:22/a/", "sftp://[::1]:22/a/");
        assert_eq!(path_of(&"sftp://h/a%20b/é".parse().unwrap()), "/a b/é");
        for wrong in [
            "sftp://me:secret@h/a",
            "sftp:///a",
            "sftp://-oProxyCommand=x/a",
            "sftp://h/../a",
            "sftp://h:x/a",
        ] {
            let error = wrong.parse::<Location>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
