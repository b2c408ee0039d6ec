//! Which file a command names, and why a file could not be executed.
//!
//! The search in `PATH` is done here and not by `execvpe`, so that a failure can be explained, a file without
//! `#!` is never handed to a shell silently, and the result is remembered from task to task.

use crate::protocol::NotStartedKind;
use crate::{TAKE_RETURNS_OUT, sys};
use eyas_text::{shown, shown_bytes};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Used when the task's environment has no `PATH`.
pub const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
const N_REMEMBERED_MAX: usize = 256;

/// Why a program did not start.
#[derive(Debug)]
pub struct NotStarted {
    pub kind: NotStartedKind,
    pub message: String,
}

impl NotStarted {
    pub fn new(kind: NotStartedKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Remembers the paths of programs.
#[derive(Default)]
pub struct Finder {
    /// Keyed by `PATH`, NUL, program.
    found: HashMap<Vec<u8>, CString>,
    key: Vec<u8>,
}

impl Finder {
    /// The path to execute, with `sandbox` as working directory.
    pub fn find(&mut self, program: &[u8], path: &[u8], sandbox: &Path) -> Result<CString, NotStarted> {
        let bad = |_| NotStarted::new(NotStartedKind::BadArguments, "the command's name holds a NUL byte");
        if program.is_empty() {
            return Err(NotStarted::new(NotStartedKind::CommandNotFound, "the command is empty"));
        }
        if program.contains(&b'/') {
            return sys::c_string(program).map_err(bad);
        }
        self.key.clear();
        self.key.extend_from_slice(path);
        self.key.push(0);
        self.key.extend_from_slice(program);
        if let Some(found) = self.found.get(&self.key) {
            return Ok(found.clone());
        }
        let mut not_executable = None;
        let mut may_remember = true;
        for part in path.split(|&b| b == b':') {
            let part = if part.is_empty() { b"." } else { part };
            // The content of a relative part differs from sandbox to sandbox.
            may_remember &= part.starts_with(b"/");
            let candidate = [part, b"/", program].concat();
            let absolute = sandbox.join(OsStr::from_bytes(&candidate));
            let Ok(absolute) = sys::c_string(absolute.as_os_str().as_bytes()) else { continue };
            let is_file = sys::stat_at(libc::AT_FDCWD, &absolute, 0)
                .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
            if is_file && rustix::fs::access(&absolute, rustix::fs::Access::EXEC_OK).is_ok() {
                let found = sys::c_string(&candidate).map_err(bad)?;
                if may_remember {
                    if self.found.len() >= N_REMEMBERED_MAX {
                        self.found.clear();
                    }
                    self.found.insert(self.key.clone(), found.clone());
                }
                return Ok(found);
            }
            if is_file && not_executable.is_none() {
                not_executable = Some(candidate);
            }
        }
        let name = String::from_utf8_lossy(program);
        Err(match not_executable {
            Some(file) => NotStarted::new(
                NotStartedKind::NotExecutable,
                format!("command {name} is not executable: {}", shown_bytes(&file), name = shown(&name)),
            ),
            None => NotStarted::new(
                NotStartedKind::CommandNotFound,
                format!(
                    "command not found: {name} (PATH={})",
                    String::from_utf8_lossy(path),
                    name = shown(&name)
                ),
            ),
        })
    }

    /// Forgets everything, because a remembered program has moved. Returns whether anything was remembered.
    pub fn forget(&mut self) -> bool {
        let had_any = !self.found.is_empty();
        self.found.clear();
        had_any
    }
}

/// Words for an error of `execve`.
pub fn explain(program: &CStr, sandbox: &Path, errno: i32) -> NotStarted {
    use NotStartedKind::*;
    let name = program.to_string_lossy();
    let file = sandbox.join(OsStr::from_bytes(program.to_bytes()));
    let (kind, message) = match errno {
        libc::ENOENT | libc::ENOTDIR | libc::ELOOP if !file.exists() => {
            (CommandNotFound, format!("command not found: there is no file {name}", name = shown(&name)))
        }
        libc::ENOENT => match interpreter(&file) {
            // The kernel takes the end of the line for a part of the name.
            Some(interpreter) if interpreter.ends_with('\r') => (
                BadFormat,
                format!(
                    "command {name} begins with a line that ends in a carriage return (\\r), as files of Windows do, so the system \
                     looks for the interpreter {interpreter}; {TAKE_RETURNS_OUT}",
                    name = shown(&name),
                    interpreter = shown(&interpreter)
                ),
            ),
            Some(interpreter) => (
                BadFormat,
                format!(
                    "command {name} needs the interpreter {interpreter}, which is not here",
                    name = shown(&name),
                    interpreter = shown(&interpreter)
                ),
            ),
            None => (
                BadFormat,
                format!("command {name} needs a program loader that is not here", name = shown(&name)),
            ),
        },
        libc::EACCES if file.is_dir() => {
            (NotExecutable, format!("command {name} is a directory", name = shown(&name)))
        }
        libc::EACCES | libc::EPERM => (
            NotExecutable,
            format!(
                "command {name} is not executable (no permission, or its file system is mounted noexec)",
                name = shown(&name)
            ),
        ),
        libc::ENOEXEC => (
            BadFormat,
            format!(
                "command {name} is neither a program for this machine nor a script that starts with `#!`",
                name = shown(&name)
            ),
        ),
        libc::E2BIG => (
            BadArguments,
            format!(
                "arguments and environment of {name} are longer than the system allows",
                name = shown(&name)
            ),
        ),
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::EINTR => (
            NoResources,
            format!(
                "no process, memory or descriptor left to start {name}: {}",
                errno_text(errno),
                name = shown(&name)
            ),
        ),
        _ => {
            (Other, format!("command {name} cannot be executed: {}", errno_text(errno), name = shown(&name)))
        }
    };
    NotStarted { kind, message }
}

fn errno_text(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

/// The interpreter that the `#!` line of a script names.
fn interpreter(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    std::fs::File::open(file).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let interpreter = line.trim_start().split([' ', '\t']).next()?;
    (!interpreter.is_empty()).then(|| interpreter.to_owned())
}
