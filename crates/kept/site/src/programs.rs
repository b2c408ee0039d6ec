//! Programs that a store runs for those who have its join file: mode *remote* of `eyas at-data`.
//!
//! Each has a folder of its own below the store's, with a plan of which the store reads only the inputs, and is run by a command of the store's
//! own program, which knows the plan. What it prints is sent on at once. At its end its report and what it made are sent, and the
//! folder is removed. When the connection breaks, the program is ended: nobody would have what it makes.
//!
//! Source: *Remote* (`Wozniak06` §III-C.3, RCRD).

use crate::protocol::{Ask, PIECE_BYTES, SILENCE_MAX, Tell};
use crate::store::{Answering, Gone, Stopped, TakenRoom};
use eyas_data::Digest;
use eyas_text::line_of;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TryRecvError;

/// How often a program is looked at that prints nothing.
const LOOK: Duration = Duration::from_millis(50);
/// How long a program may take to end when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(15);
/// The largest report.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// That a store runs programs, and how.
#[derive(Debug)]
pub struct Programs {
    /// How many at a time.
    n_max: u32,
    /// The command; the path of a plan and of its folder follow.
    command: Vec<OsString>,
    /// Where the folders of programs are made.
    folder: PathBuf,
    n_running: AtomicU32,
}

impl Programs {
    /// `folder` is made, and emptied of what an earlier store left there.
    ///
    /// # Errors
    /// The folder cannot be made or emptied.
    pub fn new(n_max: u32, command: Vec<OsString>, folder: PathBuf) -> io::Result<Programs> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Programs { n_max, command, folder, n_running: AtomicU32::new(0) })
    }

    /// How many run now, and how many may.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.n_running.load(Ordering::Relaxed).min(self.n_max), self.n_max)
    }

    fn take_place(&self) -> Option<ProgramPlace<'_>> {
        let place = |n: u32| (n < self.n_max).then_some(n + 1);
        let taken = self.n_running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place);
        taken.is_ok().then_some(ProgramPlace(&self.n_running))
    }

    /// A new folder with a plan in it, and one for outputs.
    fn folder_for(&self, plan: &[u8]) -> io::Result<ProgramFolder> {
        let name = format!("{:016x}", u64::from_ne_bytes(eyas_data::random_bytes()?));
        let work = ProgramFolder(self.folder.join(name));
        let mut make = fs::DirBuilder::new();
        make.mode(0o700).create(&work.0)?;
        make.create(work.outputs())?;
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(work.plan());
        file.and_then(|mut file| file.write_all(plan))?;
        Ok(work)
    }

    fn start(&self, work: &ProgramFolder) -> io::Result<Child> {
        let (program, arguments) = self.command.split_first().expect("it names a program");
        let mut command = Command::new(program);
        command.args(arguments).arg(work.plan()).arg("--folder").arg(&work.0).current_dir(&work.0);
        // A store's variables may have its keys, and lead to what only the store is to load.
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_for_programs(name)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let store = std::process::id();
        // The thread that starts it lives as long as the program.
        eyas_runner::reaper::ends_with(&mut command, store, libc::SIGTERM);
        eyas_runner::reaper::close_others(&mut command);
        command.spawn()
    }
}

/// Whether programs get a variable of the store's: those that say who and where they are.
fn is_for_programs(name: &OsStr) -> bool {
    const NAMES: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];
    name.to_str().is_some_and(|name| NAMES.contains(&name) || name.starts_with("LC_"))
}

/// The place that a program has among those that may run.
struct ProgramPlace<'a>(&'a AtomicU32);

impl Drop for ProgramPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The folder of a program; it vanishes.
struct ProgramFolder(PathBuf);

impl ProgramFolder {
    fn plan(&self) -> PathBuf {
        self.0.join("plan.json")
    }
    fn report(&self) -> PathBuf {
        self.0.join("report.json")
    }
    fn outputs(&self) -> PathBuf {
        self.0.join("outputs")
    }
}

impl Drop for ProgramFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store begins again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that is running; it is ended when it is dropped.
struct Running(Child);

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let asked = Instant::now();
        // The command ends the program that it runs.
        // Nobody has waited for the process, so the number is its own.
        let _ = kill_process(self.pid(), Signal::TERM);
        while asked.elapsed() < END_PATIENCE {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(LOOK);
        }
        // A group's number is that of the process which leads it.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Answering<'_> {
    /// Runs a program by a plan. What it makes becomes objects here, or is sent.
    pub(crate) fn run_program(&mut self, plan: &[u8], keeps_outputs: bool) -> Result<Tell, Stopped> {
        let Some(programs) = &self.store().programs else {
            return Err(Stopped::Failed("it runs no programs; `eyas store --programs N` lets it".into()));
        };
        let Some(_place) = programs.take_place() else { return Ok(Tell::Busy) };
        let failed = |what: &str, error: &io::Error| Stopped::Failed(format!("{what}: {error}"));
        let work =
            programs.folder_for(plan).map_err(|e| failed("it cannot make a folder for the program", &e))?;
        let child = programs.start(&work).map_err(|e| failed("it cannot run programs", &e))?;
        let mut running = Running(child);
        let printed = listen(&mut running.0);
        // A network that is cut says nothing of it.
        let mut heard = Instant::now();
        loop {
            match printed.recv_timeout(LOOK) {
                Ok((is_error, piece)) => self.send(&Tell::Printed(is_error, piece.into()))?,
                Err(RecvTimeoutError::Timeout) => {}
                // All ends of the pipes are closed. A process that the program left behind may hold one; its group is ended with it.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
            }
            self.user()?;
            match self.inbox().try_recv() {
                Ok(Ask::Alive) => heard = Instant::now(),
                Err(TryRecvError::Empty) if heard.elapsed() < SILENCE_MAX => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) | Ok(_) => return Err(Gone.into()),
            }
            if running.0.try_wait().map_err(|e| failed("it lost the program", &e))?.is_some() {
                break;
            }
        }
        // Where nothing is left of the group, that is no harm.
        let _ = kill_process_group(running.pid(), Signal::KILL);
        while let Ok((is_error, piece)) = printed.recv_timeout(LOOK) {
            self.send(&Tell::Printed(is_error, piece.into()))?;
        }
        let report =
            read_report(&work.report()).map_err(|e| failed("the program ended and left no report", &e))?;
        self.send(&Tell::Report(report.into()))?;
        match keeps_outputs {
            true => self.keep_outputs(&work.outputs())?,
            false => self.send_outputs(&work.outputs())?,
        }
        Ok(Tell::Done)
    }

    /// Takes what a program made into the store.
    fn keep_outputs(&self, folder: &Path) -> Result<(), Stopped> {
        let failed =
            |error: io::Error| Stopped::Failed(format!("it cannot keep what the program made: {error}"));
        let files = files_below(folder).map_err(failed)?;
        if files.is_empty() {
            return Ok(());
        }
        let sizes: io::Result<Vec<u64>> = files.iter().map(|path| Ok(fs::metadata(path)?.len())).collect();
        let n_bytes = sizes.map_err(failed)?.iter().sum();
        let mut taken = TakenRoom::new(self.store());
        taken.begin();
        taken.take(n_bytes).map_err(failed)?;
        let kept = eyas_catalog::take_in(&self.store().folder, folder)?;
        self.store().count_held(n_bytes);
        if let Some(user) = self.user()? {
            self.store().users.note_brought(&user, kept.iter().map(|file| file.digest));
        }
        for eyas_catalog::File { path, size_bytes, digest, is_executable } in kept {
            self.send(&Tell::Kept { path, size_bytes, digest, is_executable })?;
        }
        Ok(())
    }

    fn send_outputs(&self, folder: &Path) -> Result<(), Stopped> {
        let failed =
            |error: io::Error| Stopped::Failed(format!("it cannot read what the program made: {error}"));
        for path in files_below(folder).map_err(failed)? {
            let file = fs::File::open(&path).map_err(failed)?;
            let is_executable = file.metadata().map_err(failed)?.mode() & 0o100 != 0;
            let name = path.strip_prefix(folder).expect("it is below");
            let Some(name) = name.to_str() else {
                let name = name.display().to_string();
                return Err(Stopped::Failed(format!(
                    "the program made {}, whose name is no text",
                    line_of(&name)
                )));
            };
            self.send(&Tell::Output { path: name.to_owned(), is_executable })?;
            loop {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                if (&file).take(PIECE_BYTES as u64).read_to_end(&mut piece).map_err(failed)? == 0 {
                    break;
                }
                self.store().slow_down(piece.len());
                self.send(&Tell::Piece(piece.into()))?;
            }
        }
        Ok(())
    }
}

/// The objects that a program by this plan gets. The rest of the plan is for whoever follows it.
pub(crate) fn inputs_of(plan: &[u8]) -> serde_json::Result<Vec<Digest>> {
    #[derive(serde::Deserialize)]
    struct Plan {
        inputs: Vec<Input>,
    }
    #[derive(serde::Deserialize)]
    struct Input {
        files: Vec<File>,
    }
    #[derive(serde::Deserialize)]
    struct File {
        digest: Digest,
    }
    let plan: Plan = serde_json::from_slice(plan)?;
    Ok(plan.inputs.into_iter().flat_map(|input| input.files).map(|file| file.digest).collect())
}

/// What a program prints: whether as an error, and a piece of it.
fn listen(child: &mut Child) -> Receiver<(bool, Vec<u8>)> {
    let (sender, printed) = sync_channel(4);
    if let Some(stdout) = child.stdout.take() {
        pass_on(stdout, false, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        pass_on(stderr, true, sender);
    }
    printed
}

fn pass_on(mut from: impl io::Read + Send + 'static, is_error: bool, to: SyncSender<(bool, Vec<u8>)>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if to.send((is_error, buffer[..n].to_vec())).is_err() {
                return;
            }
        }
    });
}

fn read_report(path: &Path) -> io::Result<Vec<u8>> {
    let mut report = vec![];
    fs::File::open(path)?.take(REPORT_BYTES_MAX).read_to_end(&mut report)?;
    Ok(report)
}

/// All files below a folder, which holds files and folders only.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (vec![], vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            match kind.is_dir() {
                true => folders.push(entry.path()),
                false if kind.is_file() => files.push(entry.path()),
                false => return Err(io::Error::other("a data set has files only")),
            }
        }
    }
    files.sort();
    Ok(files)
}
