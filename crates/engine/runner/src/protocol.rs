//! The messages between the executor and a slot process.
//!
//! A frame is a `u32` length in little endian and that many bytes of postcard. Both ends are the same binary,
//! so the format carries no version. Encoding and decoding work on byte buffers and know no socket: the
//! executor drives them from tokio, the slot process from blocking calls.
//!
//! Order: `Configure` first, answered by `Ready` or `Refused`. Then `Start` any number of times (the slot
//! runs them one after the other), `Cancel` and `Release` by key. A report that names a sandbox which is not
//! `kept` has to be answered by `Release` once the outputs have been taken out of it.

use crate::error::{Error, Status};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest frame that is accepted; a longer one means that the stream is broken.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

/// Bytes that are usually text: file names, arguments and output need not be UTF-8.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteString(pub Vec<u8>);

impl ByteString {
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl std::ops::Deref for ByteString {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for ByteString {
    fn from(value: &T) -> Self {
        Self(value.as_ref().as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(value: Vec<u8>) -> Self {
        Self(value)
    }
}

impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

// Written by hand, because a derived implementation writes and reads a `Vec<u8>` element by element.
impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteString;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<ByteString, E> {
                Ok(ByteString(value.to_vec()))
            }
            fn visit_byte_buf<E: de::Error>(self, value: Vec<u8>) -> Result<ByteString, E> {
                Ok(ByteString(value))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

/// Executor to slot process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotCommand {
    /// First and once.
    Configure(SlotConfig),
    /// Run this after everything that was started before.
    Start(Box<RunSpec>),
    /// End this attempt, running or queued. Unknown keys (it has just ended) are ignored.
    Cancel { key: u64 },
    /// The outputs of this attempt have been taken, so its sandbox may be removed.
    Release { key: u64 },
    /// What has this attempt printed so far? Answered with `Printed`.
    Look { key: u64 },
}

/// Settings that hold for every task of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotConfig {
    /// Existing directory in which the slot makes its sandboxes (`s<pid>-<n>`). On the file system of the
    /// cache, so that inputs can be hard links and outputs can be renamed.
    pub sandbox_root: ByteString,
    /// The whole environment that tasks start from. `EYAS_SANDBOX`, `TMPDIR` and `PWD` are set to the
    /// sandbox by the slot; a task's own list overrides everything.
    pub base_env: Vec<(ByteString, ByteString)>,
    /// Time between SIGTERM and SIGKILL when an attempt is cancelled or over its walltime.
    pub term_grace_ns: u64,
    /// Time between two checks of the memory of a task that has a memory limit.
    pub memory_poll_ns: u64,
    /// How long a report may wait for further reports while the next task runs and more are queued. A slot
    /// that is idle or has nothing queued never waits.
    pub report_hold_ns: u64,
    /// A task that runs for this long is reported as started.
    pub start_report_after_ns: u64,
    /// How long to wait for killed processes to disappear before they are reported as unkillable.
    pub reap_wait_ns: u64,
    /// The soft limit of descriptors for the slot and its programs; `None`: the limit that the slot was
    /// started with.
    pub descriptors_max: Option<u64>,
}

impl SlotConfig {
    /// Defaults: the caller's own environment, 2 s of grace, memory checked every 100 ms.
    pub fn new(sandbox_root: &Path) -> Self {
        Self {
            sandbox_root: sandbox_root.into(),
            base_env: std::env::vars_os().map(|(k, v)| ((&k).into(), (&v).into())).collect(),
            term_grace_ns: 2_000_000_000,
            memory_poll_ns: 100_000_000,
            report_hold_ns: 5_000_000,
            start_report_after_ns: 20_000_000,
            reap_wait_ns: 10_000_000_000,
            descriptors_max: None,
        }
    }
}

/// A system user, as the kernel knows one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups. An id that eyas made up has none.
    pub groups: Vec<u32>,
    /// The value of `USER` and `LOGNAME`.
    pub name: ByteString,
    /// The value of `HOME`; `None`: it is the sandbox.
    pub home: Option<ByteString>,
}

/// One attempt of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Chosen by the executor, unique among the attempts that this slot has not finished with.
    pub key: u64,
    pub program: Program,
    /// In addition to [`SlotConfig::base_env`]; of two values for a name, the last one counts.
    pub env: Vec<(ByteString, ByteString)>,
    pub inputs: Vec<Input>,
    /// Names relative to the sandbox; their parent directories are made. A name that ends in `/` is a
    /// directory.
    pub outputs: Vec<ByteString>,
    pub walltime_ns: Option<u64>,
    /// Limit of the resident memory of all the task's processes together.
    pub memory_bytes: Option<u64>,
    pub capture: CaptureLimits,
    /// Leave the sandbox behind; it then belongs to the reader of the report.
    pub keep_sandbox: bool,
    /// Files in the sandbox that also get everything that the program prints: for standard output and for
    /// standard error.
    pub tee: [Option<ByteString>; 2],
    /// Everything that the program prints to standard output is wanted, and not only its ends.
    pub prints_whole: bool,
    /// The system user that the program runs as. `None`: that of the slot process.
    pub account: Option<Account>,
    /// Whose root file system the program has. `None`: that of the slot process.
    pub container: Option<Box<Container>>,
    /// Where the supervisor of a watched program listens ([`crate::seccomp`]): the folder of its socket.
    pub watched: Option<ByteString>,
}

/// A root file system for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Absolute path of the folder that was made of the image (see [`crate::container`]), or of the image's file.
    pub image: ByteString,
    /// What the image is called in messages.
    pub name: ByteString,
    /// Whether `image` is such a folder.
    pub is_unpacked: bool,
    pub kind: ContainerKind,
}

/// What gives programs their root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerKind {
    /// `bwrap`; for an image that is unpacked.
    Bubblewrap,
    /// Apptainer or Singularity; for an image's file.
    Apptainer,
    /// These words, with the program's own behind them. `{image}`, `{sandbox}` and `{node}` stand for paths.
    Command(Vec<ByteString>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Program and arguments, looked up in the task's `PATH` unless the name has a slash. No shell.
    Exec(Vec<ByteString>),
    /// A line for a shell, see [`crate::shell`].
    Shell(ByteString),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Relative to the sandbox. A name that ends in `/` is a directory: it is made from the object, or from
    /// the directory, at `source`, and is always a copy.
    pub name: ByteString,
    /// Absolute path of the cached object.
    pub source: ByteString,
    pub mode: InputMode,
    /// The task starts this file as a program, so that it is a copy with the execute bits set: a link would share the mode of the
    /// cached object.
    pub executable: bool,
    /// The permissions of a copy. `None`: those of the source, as far as the mask allows, with which its owner can write.
    pub permissions: Option<u32>,
    /// When a copy was modified, in nanoseconds since 1970. `None`: when the source was. A link has the time of the source.
    pub modified_ns: Option<i64>,
    /// When the files in a directory that is made from an object were modified, see [`eyas_folder::Times`].
    pub times: Vec<i64>,
    /// The source lies at home, where only what the program's account may read is read.
    pub at_home: bool,
    /// The digest of its bytes, where it is known.
    pub digest: Option<[u8; 32]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputMode {
    /// Hard link; if that is refused, reflink, then copy.
    Link,
    /// A private copy that the task may write to (reflink where possible).
    Copy,
    /// A symbolic link to a directory that all tasks of the node share.
    Shared,
}

/// Of each stream the first `head_bytes` and the last `tail_bytes` are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureLimits {
    pub head_bytes: u32,
    pub tail_bytes: u32,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self { head_bytes: 16 << 10, tail_bytes: 48 << 10 }
    }
}

/// From slot process to executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotReport {
    /// Answer to `Configure`.
    Ready {
        pid: i32,
    },
    /// Answer to a `Configure` that cannot be followed; the slot process ends.
    Refused {
        message: String,
    },
    /// The program runs. Left out for attempts that end within
    /// [`SlotConfig::start_report_after_ns`].
    Started {
        key: u64,
        pid: i32,
        spawned_ns: u64,
    },
    Ended(Box<RunReport>),
    /// The output of the attempt so far; `None` if the attempt does not run here.
    Printed {
        key: u64,
        printed: Option<Box<(Captured, Captured)>>,
    },
}

/// Everything about an attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    pub key: u64,
    pub exit: ExitKind,
    pub times: Times,
    pub usage: Usage,
    pub stdout: Captured,
    pub stderr: Captured,
    /// Path of a file with all of standard output, if that is wanted and the ends are not all of it. The file is the reader's of the report.
    pub printed_at: Option<ByteString>,
    /// As long as the spec's list when the program was started, else empty.
    pub outputs: Vec<OutputState>,
    /// How each input was put there; as long as the spec's list unless the set-up failed.
    pub inputs: Vec<LinkKind>,
    /// Bytes that were free on the file system of the sandbox when the program was about to start, less what
    /// does not count; `None` if not known.
    pub free_bytes: Option<u64>,
    /// The program failed or did not make an output, and at that time the file system of its sandbox had no
    /// room for more.
    pub disk_was_full: bool,
    /// Bytes written so far by this slot process and all programs that it has run. `None` if they are not
    /// counted.
    pub written_bytes: Option<u64>,
    /// Set if the program failed or did not make an output: the bytes written so far by all slot processes of
    /// this one's parent and their programs, including programs that still run.
    pub all_written_bytes: Option<u64>,
    /// Indexes of linked inputs whose cached object has changed since before the task.
    pub inputs_modified: Vec<u32>,
    /// Processes that were still alive when the program had ended, and were killed.
    pub n_leftovers_killed: u32,
    /// Processes that did not disappear; the slot should be replaced.
    pub n_unkillable: u32,
    /// What a program that ended well made besides its outputs.
    pub new_files: Option<Box<NewFiles>>,
    /// Path of the sandbox if it still exists: there are outputs to take, or it is kept.
    pub sandbox: Option<ByteString>,
    pub kept: bool,
}

/// Files in a sandbox that are neither inputs nor outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFiles {
    pub n_files: u64,
    /// Paths in the sandbox of the first few.
    pub names: Vec<ByteString>,
}

/// How an attempt ended. If eyas ended it, the reason for that comes before the exit status that resulted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitKind {
    Exited(i32),
    Signaled {
        signal: i32,
        core: bool,
    },
    OverWalltime,
    /// `peak_bytes`: the highest value that was seen, which need not be the true peak.
    OverMemory {
        peak_bytes: u64,
    },
    Cancelled,
    /// A program that stays ended with this status, and had not said how its task ended.
    Unanswered {
        status: i32,
    },
    /// A program that stays closed the connection by which it would have answered, and was ended.
    HungUp,
    /// The sandbox was ready but the program could not be executed.
    NotStarted {
        kind: NotStartedKind,
        message: String,
    },
    /// The sandbox could not be prepared.
    SetupFailed {
        kind: SetupKind,
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotStartedKind {
    CommandNotFound,
    /// The file exists but may not be executed.
    NotExecutable,
    /// Neither a binary of this machine nor a script with a `#!` line, or its interpreter is missing.
    BadFormat,
    /// Arguments and environment are larger than the system allows, or hold a NUL byte.
    BadArguments,
    /// Out of processes or memory.
    NoResources,
    /// What runs programs in containers is not here, or may not make one.
    NoContainer,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetupKind {
    NoSpace,
    /// A cached object is missing.
    SourceMissing,
    PermissionDenied,
    /// A name is absolute, has `..`, or is used twice.
    BadName,
    Other,
}

impl ExitKind {
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }

    /// Whether the same attempt could succeed later or on another node, as far as eyas can know.
    pub fn status(&self) -> Status {
        match self {
            Self::SetupFailed { kind: SetupKind::BadName, .. } => Status::Permanent,
            Self::SetupFailed { .. } => Status::Temporary,
            Self::NotStarted { kind: NotStartedKind::NoResources, .. } => Status::Temporary,
            _ => Status::Permanent,
        }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, comparable between processes of one machine; 0 for a step that was not
/// reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The `Start` was read from the socket.
    pub received_ns: u64,
    /// The slot was free and began the set-up.
    pub begun_ns: u64,
    pub setup_done_ns: u64,
    /// The program is executing.
    pub spawned_ns: u64,
    /// The program's end was seen.
    pub exited_ns: u64,
    /// Remaining processes are gone and outputs were examined.
    pub finished_ns: u64,
}

/// What the task used, summed over the processes that the kernel accounts to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    /// Largest resident set of one process. It is at least that of the slot process, which the kernel counts
    /// until the program is executed.
    pub process_rss_max_bytes: u64,
    /// Largest sum over all processes that was seen; 0 without a memory limit.
    pub tree_rss_max_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_write_bytes: u64,
}

/// The ends of one output stream. `head` and `tail` do not overlap; in between
/// `total_bytes - head.len() - tail.len()` bytes are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    pub head: ByteString,
    pub tail: ByteString,
    pub total_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputState {
    Missing,
    /// A regular file. `path` is where it really is, relative to the sandbox; it differs from the declared
    /// name if that name is, or goes through, a symbolic link. `n_links` > 1 means that the file has other
    /// names too, so it should be copied, not moved.
    File {
        path: ByteString,
        size_bytes: u64,
        mode: u32,
        /// When the program wrote to it last, or the time that it gave it, in nanoseconds since 1970.
        modified_ns: i64,
        n_links: u64,
    },
    /// A directory that was declared as a directory; `path` as above, `size_bytes` is its size as one object.
    Directory {
        path: ByteString,
        size_bytes: u64,
    },
    /// Something that cannot be collected, in words: "a directory", "a symbolic link out of the sandbox".
    NotAFile {
        what: String,
    },
}

impl OutputState {
    /// Whether the output can be collected.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Directory { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    HardLink,
    Reflink,
    Copy,
    SymbolicLink,
}

struct Appender<'a>(&'a mut Vec<u8>);

impl Flavor for Appender<'_> {
    type Output = ();
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends one frame to `out`. On an error (the frame would be too long) `out` is unchanged.
pub fn encode_frame<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let outcome = postcard::serialize_with_flavor(message, Appender(out));
    let length = out.len() - start - 4;
    if outcome.is_err() || length > FRAME_BYTES_MAX {
        out.truncate(start);
        let mut error =
            Error::protocol("a message for the slot socket", format!("{length} bytes are too many"));
        error.operation = "encode";
        return Err(error);
    }
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    consumed: usize,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that were read from the socket, in pieces of any size.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.consumed == self.buffer.len() {
            self.buffer.clear();
            self.consumed = 0;
        } else if self.consumed > 64 << 10 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, or `None` until more bytes have arrived. After an error the stream is
    /// unusable.
    pub fn next_message<T: de::DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        let rest = &self.buffer[self.consumed..];
        let Some((header, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Error::protocol("a frame of the slot socket", format!("its length is {length}")));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(body)
            .map_err(|error| Error::protocol("a frame of the slot socket", error.to_string()))?;
        self.consumed += 4 + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> RunSpec {
        RunSpec {
            key: 7,
            program: Program::Exec(vec!["a b".into(), ByteString(vec![0xff, b'\n'])]),
            env: vec![("K".into(), "v".into())],
            inputs: vec![Input {
                name: "-x".into(),
                source: "/c/1".into(),
                mode: InputMode::Link,
                executable: true,
                permissions: Some(0o640),
                modified_ns: Some(-1),
                times: vec![1, i64::MIN],
                at_home: false,
                digest: Some([3; 32]),
            }],
            outputs: vec!["o".into()],
            walltime_ns: Some(1),
            memory_bytes: None,
            capture: CaptureLimits::default(),
            keep_sandbox: false,
            tee: [None, Some("log".into())],
            prints_whole: true,
            account: Some(Account {
                uid: 70_000,
                gid: 70_000,
                groups: vec![5],
                name: "ada".into(),
                home: None,
            }),
            container: Some(Box::new(Container {
                image: "/i".into(),
                name: "i.tar".into(),
                is_unpacked: true,
                kind: ContainerKind::Command(vec!["run".into()]),
            })),
            watched: Some("/n".into()),
        }
    }

    #[test]
    fn frames_survive_any_cutting() {
        let commands = [
            SlotCommand::Start(Box::new(spec())),
            SlotCommand::Cancel { key: 9 },
            SlotCommand::Start(Box::new(spec())),
        ];
        let mut bytes = Vec::new();
        for command in &commands {
            encode_frame(command, &mut bytes).unwrap();
        }
        for piece in [1, 3, 50, bytes.len()] {
            let mut decoder = Decoder::new();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(piece) {
                decoder.extend(chunk);
                while let Some(command) = decoder.next_message::<SlotCommand>().unwrap() {
                    seen.push(command);
                }
            }
            assert_eq!(seen, commands);
        }
    }

    #[test]
    fn garbage_is_refused() {
        let mut decoder = Decoder::new();
        decoder.extend(&[0xff; 16]);
        assert!(decoder.next_message::<SlotCommand>().is_err());
        let mut decoder = Decoder::new();
        decoder.extend(&[1, 0, 0, 0, 0xee]);
        let error = decoder.next_message::<SlotCommand>().unwrap_err();
        assert_eq!(error.status, Status::Permanent);
    }
}
