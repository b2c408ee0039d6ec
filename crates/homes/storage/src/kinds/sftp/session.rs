//! One connection to an SFTP server: version 3 of the protocol (draft-ietf-secsh-filexfer-02), over a process of `ssh`.
//!
//! `ssh` makes the connection, so `~/.ssh/config`, the agent and the list of known hosts count as for every other use of it, and
//! no question is ever asked.
//!
//! A connection is used by one thread at a time. Requests may be under way before the answers to earlier ones are read.

use crate::Location;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::tied::{self, Tie};
use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// Every server takes blocks of this size.
pub(super) const BLOCK_BYTES: usize = 32 << 10;
/// Longer answers are none.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What `ssh` says is kept up to here.
const SAID_BYTES_MAX: usize = 4 << 10;

pub(super) const OPEN: u8 = 3;
pub(super) const CLOSE: u8 = 4;
pub(super) const READ: u8 = 5;
pub(super) const WRITE: u8 = 6;
pub(super) const LSTAT: u8 = 7;
pub(super) const FSTAT: u8 = 8;
pub(super) const SETSTAT: u8 = 9;
pub(super) const FSETSTAT: u8 = 10;
pub(super) const OPENDIR: u8 = 11;
pub(super) const READDIR: u8 = 12;
pub(super) const REMOVE: u8 = 13;
pub(super) const MKDIR: u8 = 14;
pub(super) const RMDIR: u8 = 15;
pub(super) const REALPATH: u8 = 16;
pub(super) const STAT: u8 = 17;
pub(super) const RENAME: u8 = 18;
pub(super) const EXTENDED: u8 = 200;

const INIT: u8 = 1;
const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;

/// What a server tells of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub size_bytes: u64,
    /// Type and permissions, as in `stat(2)`.
    pub mode: Option<u32>,
    /// Seconds since 1970.
    pub modified: Option<u32>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A code, 0 for a success, and the server's words.
    Status(u32, String),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
}

/// The codes of [`Answer::Status`] that mean more than a failure.
pub(super) mod code {
    pub const OK: u32 = 0;
    pub const EOF: u32 = 1;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const PERMISSION_DENIED: u32 = 3;
    pub const UNSUPPORTED: u32 = 8;
}

/// The fields of a request behind its number.
#[derive(Default)]
pub(super) struct Fields(Vec<u8>);

impl Fields {
    pub(super) fn text(mut self, bytes: &[u8]) -> Fields {
        self.0.extend((bytes.len() as u32).to_be_bytes());
        self.0.extend(bytes);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Fields {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Fields {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Attributes: when it was read and modified, in seconds since 1970.
    pub(super) fn times(self, seconds: u32) -> Fields {
        self.u32(8).u32(seconds).u32(seconds)
    }

    /// Attributes: permissions, or none at all.
    pub(super) fn mode(self, mode: Option<u32>) -> Fields {
        match mode {
            Some(mode) => self.u32(4).u32(mode),
            None => self.u32(0),
        }
    }
}

/// Takes the fields of an answer apart. `None`: it is shorter than it says.
struct AnswerFields<'a>(&'a [u8]);

impl<'a> AnswerFields<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.bytes(n as usize)
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let flags = self.u32()?;
        let mut attributes = Attributes::default();
        if flags & 1 != 0 {
            attributes.size_bytes = self.u64()?;
        }
        if flags & 2 != 0 {
            self.bytes(8)?;
        }
        if flags & 4 != 0 {
            attributes.mode = Some(self.u32()?);
        }
        if flags & 8 != 0 {
            self.u32()?;
            attributes.modified = Some(self.u32()?);
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.u32()? {
                self.text()?;
                self.text()?;
            }
        }
        Some(attributes)
    }

    /// The number of the request, and the answer to it.
    fn answer(&mut self) -> Option<(u32, Answer)> {
        let kind = self.u8()?;
        let id = self.u32()?;
        let answer = match kind {
            STATUS => {
                let code = self.u32()?;
                // Old servers say no words.
                let words = self.text().unwrap_or_default();
                Answer::Status(code, String::from_utf8_lossy(words).into_owned())
            }
            HANDLE => Answer::Handle(self.text()?.to_vec()),
            DATA => Answer::Data(self.text()?.to_vec()),
            NAME => {
                let mut names = Vec::new();
                for _ in 0..self.u32()? {
                    let name = self.text()?.to_vec();
                    // As `ls -l` writes it, for people.
                    self.text()?;
                    names.push((name, self.attributes()?));
                }
                Answer::Names(names)
            }
            ATTRS => Answer::Attributes(self.attributes()?),
            _ => return None,
        };
        Some((id, answer))
    }
}

/// A connection to a server.
pub(super) struct Session {
    child: Child,
    _tie: Tie,
    /// `None` when it is being ended.
    to: Option<BufWriter<ChildStdin>>,
    from: BufReader<ChildStdout>,
    /// What `ssh` says on its standard error, and whether that is over.
    said: Arc<Mutex<Vec<u8>>>,
    listener: Option<std::thread::JoinHandle<()>>,
    last_id: u32,
    /// Answers that came before those to earlier requests.
    early: BTreeMap<u32, Answer>,
    /// The extensions of the protocol that the server announced.
    extensions: Vec<Vec<u8>>,
}

impl Session {
    /// Connects to `user@host:port`, of which only the host has to be there.
    pub(super) fn begin(operation: &'static str, location: &Location, authority: &str) -> Result<Session> {
        let (user, place) = match authority.split_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (place, None),
        };
        let mut command = Command::new("ssh");
        for option in
            ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
        {
            command.args(["-o", option]);
        }
        // Only bytes of the protocol may come out of it.
        command.args(["-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes"]);
        if let Some(port) = port {
            command.args(["-p", port]);
        }
        if let Some(user) = user {
            command.args(["-l", user]);
        }
        command.args(["-s", "--", host.trim_start_matches('[').trim_end_matches(']'), "sftp"]);
        // A key that interrupts eyas is not for it: eyas ends it by itself.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, tie) = tied::spawn(&mut command).map_err(|error| {
            let reason = format!("cannot start `ssh`, by which sftp goes: {error}");
            Error::new(ErrorKind::Io, Status::Permanent, operation, location, reason)
        })?;
        let (to, from, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(mut errors)) = (to, from, errors) else {
            unreachable!("all three are pipes");
        };
        let said: Arc<Mutex<Vec<u8>>> = Arc::default();
        let heard = said.clone();
        let listener = std::thread::Builder::new().name("ssh".into()).spawn(move || {
            let mut block = [0; 512];
            while let Ok(n @ 1..) = errors.read(&mut block) {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                let room = SAID_BYTES_MAX - heard.len().min(SAID_BYTES_MAX);
                heard.extend(&block[..n.min(room)]);
            }
        });
        let mut session = Session {
            child,
            _tie: tie,
            to: Some(BufWriter::with_capacity(2 * BLOCK_BYTES, to)),
            from: BufReader::with_capacity(2 * BLOCK_BYTES, from),
            said,
            listener: listener.ok(),
            last_id: 0,
            early: BTreeMap::new(),
            extensions: Vec::new(),
        };
        match session.greet() {
            Ok(()) => Ok(session),
            Err(error) => Err(session.lost(operation, location, &error)),
        }
    }

    fn greet(&mut self) -> io::Result<()> {
        self.write(&[INIT, 0, 0, 0, 3])?;
        let bytes = self.read()?;
        let mut taken = AnswerFields(&bytes);
        let (Some(VERSION), Some(3..)) = (taken.u8(), taken.u32()) else {
            return Err(io::Error::other("it does not speak version 3 of SFTP"));
        };
        while let (Some(name), Some(_)) = (taken.text(), taken.text()) {
            self.extensions.push(name.to_vec());
        }
        Ok(())
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let to = self.to.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        to.write_all(&(message.len() as u32).to_be_bytes())?;
        to.write_all(message)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.to.as_mut().ok_or(io::ErrorKind::NotConnected)?.flush()?;
        let mut length = [0; 4];
        self.from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(io::Error::other("it does not answer as SFTP does"));
        }
        let mut message = vec![0; length];
        self.from.read_exact(&mut message)?;
        Ok(message)
    }

    pub(super) fn knows(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension.as_bytes())
    }

    /// Sends a request, and gives its number.
    pub(super) fn send(&mut self, kind: u8, fields: Fields) -> io::Result<u32> {
        self.last_id = self.last_id.wrapping_add(1);
        let mut message = Vec::with_capacity(5 + fields.0.len());
        message.push(kind);
        message.extend(self.last_id.to_be_bytes());
        message.extend(fields.0);
        self.write(&message)?;
        Ok(self.last_id)
    }

    /// Waits for the answer to a request.
    pub(super) fn answer(&mut self, id: u32) -> io::Result<Answer> {
        loop {
            if let Some(answer) = self.early.remove(&id) {
                return Ok(answer);
            }
            let message = self.read()?;
            let Some((of, answer)) = AnswerFields(&message).answer() else {
                return Err(io::Error::other("it does not answer as SFTP does"));
            };
            self.early.insert(of, answer);
        }
    }

    /// Why the connection is no more, by what `ssh` has said. The session is of no use after that.
    pub(super) fn lost(&mut self, operation: &'static str, location: &Location, error: &io::Error) -> Error {
        self.end();
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let lower = said.to_ascii_lowercase();
        let (kind, status, hint) = if lower.contains("host key verification failed") {
            let hint = "; log in once by hand, with `ssh`, so that the host's key is known";
            (ErrorKind::PermissionDenied, Status::Permanent, hint)
        } else if lower.contains("permission denied") || lower.contains("too many authentication failures") {
            let hint = "; it has to be possible without a password, by a key or an agent";
            (ErrorKind::PermissionDenied, Status::Permanent, hint)
        } else if lower.contains("subsystem request failed") {
            (ErrorKind::Unsupported, Status::Permanent, "; the host has no SFTP")
        } else {
            (ErrorKind::Io, Status::Temporary, "")
        };
        let reason = match last {
            Some(last) => format!("`ssh` says: {last}{hint}"),
            None => format!("the connection by `ssh` broke ({error})"),
        };
        Error::new(kind, status, operation, location, reason)
    }

    fn end(&mut self) {
        // It ends when there is nothing more to read.
        self.to = None;
        // It may wait for a network that is gone. What it has to say it has said.
        let mut is_over = false;
        for _ in 0..20 {
            is_over = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            if is_over {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if !is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // A connection that several share may keep the pipe open, so the listener is waited for only when it is over.
        if let Some(listener) = self.listener.take() {
            for _ in 0..20 {
                if listener.is_finished() {
                    let _ = listener.join();
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let check = |kind: u8, fields: Fields, expect: Option<Answer>| {
            let mut message = vec![kind, 0, 0, 0, 7];
            message.extend(&fields.0);
            assert_eq!(AnswerFields(&message).answer(), expect.map(|answer| (7, answer)), "{message:?}");
            // One that is cut short is none, and no reason to panic.
            for n in 0..message.len() {
                let _ = AnswerFields(&message[..n]).answer();
            }
        };
        let fields = Fields::default;
        check(STATUS, fields().u32(2).text(b"gone").text(b"en"), Some(Answer::Status(2, "gone".into())));
        check(STATUS, fields().u32(1), Some(Answer::Status(1, String::new())));
        check(DATA, fields().text(b"abc"), Some(Answer::Data(b"abc".to_vec())));
        check(HANDLE, fields().u32(5).u32(0), None);
        let all = fields().u32(0x8000_000f).u64(9).u32(1).u32(2).u32(0o100644).u32(3).u32(4);
        let expect = Attributes { size_bytes: 9, mode: Some(0o100644), modified: Some(4) };
        check(ATTRS, all.u32(1).text(b"a@b").text(b"c"), Some(Answer::Attributes(expect)));
        let names = fields().u32(1).text(b"n").text(b"-rw n").u32(0);
        check(NAME, names, Some(Answer::Names(vec![(b"n".to_vec(), Attributes::default())])));
        check(99, fields(), None);
    }
}
