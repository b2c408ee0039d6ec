//! A program that is run for the user, with the standard streams of the command; and a folder that vanishes with the command.

use crate::Outside;
use crate::error::{Error, ErrorKind, Result};
use crate::stranger::StrangerBox;
use eyas_catalog::{has_ended, writer_mark};
use eyas_host::host_name;
use eyas_text::{plural, reason, say, shown, shown_path};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a program may take to end when it is asked to, before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How often the program is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A file in a [`Temporary`] folder that its command holds a lock on, with the machine's name in it.
const LOCK: &str = ".lock";
/// The same until it is locked.
const NEW_LOCK: &str = ".new";

/// A folder that vanishes with this command. Where the command is killed, a later one of the same verb removes it.
pub struct Temporary {
    pub path: PathBuf,
    _lock: File,
}

impl Temporary {
    /// `verb` is the command's, for its name.
    pub fn new(verb: &str) -> Result<Temporary> {
        let folder = std::env::temp_dir();
        let hint = "the variable TMPDIR names another folder for temporary files";
        let made = Temporary::below(&folder, verb, hint)?;
        remove_orphans(&folder, verb);
        Ok(made)
    }

    /// The same in another folder; `hint` says how a user chooses that one.
    pub fn below(folder: &Path, verb: &str, hint: &str) -> Result<Temporary> {
        let random = u32::from_ne_bytes(eyas_data::random_bytes()?);
        let path = folder.join(name_of(verb, &writer_mark(), random));
        make(&path).map_err(|error| error.hint(hint))?;
        let lock = lock(&path).map_err(|error| {
            let _ = eyas_runner::sandbox::remove_tree(&path);
            Error::new(ErrorKind::Other, format!("cannot write to {}: {}", shown_path(&path), reason(&error)))
                .hint(hint)
        })?;
        Ok(Temporary { path, _lock: lock })
    }

    /// Leaves the folder where it is.
    pub fn keep(self) {
        // Without it, nobody takes the folder for that of a command that was killed.
        let _ = fs::remove_file(self.path.join(LOCK));
        std::mem::forget(self);
    }

    /// A new folder in it.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        make(&path).map(|()| path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if eyas_runner::sandbox::remove_tree(&self.path).is_err() {
            say!("the folder {} could not be removed", shown_path(&self.path));
        }
    }
}

/// A name that says with `mark` which process has made it, see [`eyas_catalog::writer_mark`].
fn name_of(verb: &str, mark: &str, random: u32) -> String {
    format!("eyas-{verb}-{mark}-{random:08x}")
}

/// Marks a new folder as that of this process.
fn lock(folder: &Path) -> std::io::Result<File> {
    // Nobody finds it before it is locked.
    let (new, path) = (folder.join(NEW_LOCK), folder.join(LOCK));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(host_name().as_bytes())?;
    file.try_lock()?;
    fs::rename(&new, &path)?;
    Ok(file)
}

/// Removes the folders of commands of this user that were killed on this machine: nobody holds their locks. One that was killed before
/// it had a lock has left nothing in its folder, and is known by the folder's name.
fn remove_orphans(folder: &Path, verb: &str) {
    let begin = format!("eyas-{verb}-");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(mark) = name.as_encoded_bytes().strip_prefix(begin.as_bytes()) else { continue };
        let is_own = entry.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
        if is_own && !entry.path().join(LOCK).exists() {
            if str::from_utf8(mark).is_ok_and(has_ended) {
                let _ = fs::remove_file(entry.path().join(NEW_LOCK));
                // What has anything else in it was kept.
                let _ = fs::remove_dir(entry.path());
            }
            continue;
        }
        let is_orphan = || -> std::io::Result<bool> {
            let mut lock = File::open(entry.path().join(LOCK))?;
            let mut host = String::new();
            lock.read_to_string(&mut host)?;
            Ok(is_own && host == host_name() && lock.try_lock().is_ok())
        };
        if is_orphan().unwrap_or(false) {
            let _ = eyas_runner::sandbox::remove_tree(&entry.path());
        }
    }
}

fn make(path: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path).map_err(|error| {
        Error::new(
            ErrorKind::Other,
            format!("cannot make the folder {}: {}", shown_path(path), reason(&error)),
        )
    })
}

/// What ^C and the signal of a batch system do: while the program runs, they end it; before and after, they end this command,
/// whose folder is removed first.
pub struct OnSignal(Arc<Mutex<Running>>);

#[derive(Default)]
pub struct Running {
    /// The program's process, until it has been waited for.
    pid: Option<u32>,
    /// When the program was asked to end.
    asked: Option<Instant>,
    /// Nothing is unfinished any more.
    is_whole: bool,
}

impl OnSignal {
    pub fn listen(outside: &dyn Outside, top: PathBuf) -> Result<OnSignal> {
        OnSignal::listen_and(outside, top, || {})
    }

    /// The same; `leave` does what else is to be done when this command ends, before `top` is removed.
    pub fn listen_and(
        outside: &dyn Outside,
        top: PathBuf,
        leave: impl Fn() + Send + 'static,
    ) -> Result<OnSignal> {
        let running = Arc::new(Mutex::new(Running::default()));
        let shared = running.clone();
        let mut asked_to_end = outside.listen()?;
        std::thread::spawn(move || {
            loop {
                asked_to_end.next();
                let mut running = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(pid) = running.pid else {
                    if !running.is_whole {
                        leave();
                        remove_in_use(&top);
                    }
                    asked_to_end.end();
                };
                running.asked.get_or_insert_with(Instant::now);
                // Nobody has waited for the process yet, so the number is still its own. A program that a key has stopped learns of
                // it by the second signal.
                for signal in [Signal::TERM, Signal::CONT] {
                    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, signal));
                }
            }
        });
        Ok(OnSignal(running))
    }

    /// The same result. An error may only be that the folder is being removed because of a signal; then the lock is held until
    /// this process is gone, so that it ends as interrupted.
    pub fn unless_ending<T, E>(&self, result: std::result::Result<T, E>) -> std::result::Result<T, E> {
        result.inspect_err(|_| drop(self.lock()))
    }

    /// Signals wait as long as this is held.
    pub fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this command would leave half done: a signal that asks it to end has that removed first.
pub struct Unfinished(OnSignal);

impl Unfinished {
    /// The file or folder at `path` is unfinished, and what `remove` takes away.
    pub fn new(
        outside: &dyn Outside,
        path: PathBuf,
        remove: impl Fn() + Send + 'static,
    ) -> Result<Unfinished> {
        OnSignal::listen_and(outside, path, remove).map(Unfinished)
    }
}

impl Drop for Unfinished {
    /// What is whole stays. A signal that is being answered ends this process.
    fn drop(&mut self) {
        self.0.lock().is_whole = true;
    }
}

/// Removes a file, or a folder in which another thread may still make files.
fn remove_in_use(top: &Path) {
    for _ in 0..100 {
        let _ = eyas_runner::sandbox::remove_tree(top);
        if !top.exists() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// How a program ended, and whether it was asked to.
pub struct Ended {
    pub status: ExitStatus,
    pub asked: bool,
}

impl Ended {
    pub fn success(&self) -> bool {
        self.status.success() && !self.asked
    }

    /// As a shell says how it ended: its exit status, or 128 and the number of the signal.
    pub fn code(&self) -> u8 {
        let signal = self.status.signal().map(|signal| 128 + signal);
        self.status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }

    pub fn text(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => self.status.to_string(),
        }
    }
}

/// Runs a program in a folder, with the standard streams of this command. Processes that it leaves behind are ended. A program that is
/// named by a path is looked for from `here`.
pub fn run(command: &[String], here: &Path, folder: &Path, on_signal: &OnSignal) -> Result<Ended> {
    run_beginning(command, here, folder, on_signal, || Ok(()))
}

/// The same. `begin` is called in the new process before the program; it may make plain system calls only.
pub fn run_beginning(
    command: &[String],
    here: &Path,
    folder: &Path,
    on_signal: &OnSignal,
    begin: impl Fn() -> std::io::Result<()> + Send + Sync + 'static,
) -> Result<Ended> {
    let (program, arguments) = command.split_first().expect("a command has a first word");
    // A program that is named by a path from here is meant, also where it runs in another folder.
    let path = match program.contains('/') && !folder.join(program).exists() {
        true => here.join(program),
        false => PathBuf::from(program),
    };
    let mut command = Command::new(&path);
    command.args(arguments).current_dir(folder);
    run_to_its_end(command, program, on_signal, begin)
}

/// Runs a program of somebody who is not known here in a box, which shows nothing of `hidden` but the program's folder.
pub fn run_in_box(
    command: &[String],
    stranger_box: &StrangerBox,
    folder: &Path,
    hidden: &Path,
    on_signal: &OnSignal,
) -> Result<Ended> {
    let (program, arguments) = command.split_first().expect("a command has a first word");
    let path = stranger_box.program(program, folder, hidden).map_err(Error::input)?;
    // bubblewrap has given up its rights when it goes into the folder. Those around the folder are open to this user alone.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
    stranger_box.give(folder)?;
    let mut command = stranger_box.command(&path, folder, hidden);
    command.args(arguments);
    eyas_runner::reaper::close_others(&mut command);
    run_to_its_end(command, program, on_signal, || Ok(()))
}

fn run_to_its_end(
    mut command: Command,
    program: &str,
    on_signal: &OnSignal,
    begin: impl Fn() -> std::io::Result<()> + Send + Sync + 'static,
) -> Result<Ended> {
    eyas_runner::reaper::become_reaper()?;
    let mut running = on_signal.lock();
    let this_command = std::process::id();
    // SAFETY: plain system calls, after which the process goes on as it was.
    unsafe {
        command.pre_exec(move || {
            // Without this command nobody would have what the program makes. It is the main thread that starts it.
            eyas_runner::reaper::end_with(this_command, libc::SIGTERM);
            begin()
        });
    }
    let mut child = command.spawn().map_err(|error| {
        let refused = Error::input(format!("cannot run {}: {}", shown(program), reason(&error)));
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                refused.hint("name a program that is on the PATH, or a path with a slash")
            }
            std::io::ErrorKind::ResourceBusy => {
                refused.hint("somebody else answers calls of this process, as within `eyas access --by seccomp`: --by fuse")
            }
            _ => refused,
        }
    })?;
    running.pid = Some(child.id());
    drop(running);
    loop {
        let mut running = on_signal.lock();
        if let Some(status) = child.try_wait()? {
            running.pid = None;
            let asked = running.asked.is_some();
            drop(running);
            // What still runs could change what it made while that is looked at.
            match eyas_runner::reaper::end_strays(&[], END_PATIENCE) {
                0 => return Ok(Ended { status, asked }),
                n => {
                    let left = plural(n as u64, "process");
                    let message = format!("{} left {left} that cannot be ended", shown(program));
                    return Err(Error::new(ErrorKind::Program, message));
                }
            }
        }
        if running.asked.is_some_and(|asked| asked.elapsed() > END_PATIENCE) {
            child.kill()?;
        }
        drop(running);
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_left_that_was_killed_before_it_had_a_lock_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let own = writer_mark();
        let here = own.split('-').nth(1).unwrap();
        let folder = |pid: u32, random: u32, file: Option<&str>| {
            let path = dir.path().join(name_of("v", &format!("{pid}-{here}"), random));
            fs::create_dir(&path).unwrap();
            if let Some(file) = file {
                fs::write(path.join(file), "").unwrap();
            }
            path
        };
        let gone = [folder(ended.id(), 1, None), folder(ended.id(), 2, Some(NEW_LOCK))];
        let elsewhere =
            dir.path().join(name_of("v", &format!("{}-{}", ended.id(), "0".repeat(here.len())), 5));
        fs::create_dir(&elsewhere).unwrap();
        let stay = [folder(ended.id(), 3, Some("kept")), folder(std::process::id(), 4, None), elsewhere];
        remove_orphans(dir.path(), "v");
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stay.iter().all(|path| path.exists()));
    }
}
