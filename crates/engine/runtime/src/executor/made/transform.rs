//! Programs that make objects: transforms of the user, and what a packed environment has to be told of its new place.

use super::BLOCK_BYTES;
use eyas_data::Halt;
use eyas_terms::recipe::{IN, OUT};
use eyas_text::{shown, shown_bytes};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// The name of the file that a transform makes, in the folder that it is given.
pub(super) const RESULT: &str = "result";

/// How often it is looked whether a program has ended, or is not wanted any more.
const LOOK: Duration = Duration::from_millis(5);

/// The program by which an environment of conda-pack learns where it is.
const CONDA_UNPACK: &str = "bin/conda-unpack";

/// Runs a user's transform. It makes the directory `work` itself, or [`RESULT`] in it. An error says what went wrong.
pub(super) fn run(
    words: &[String],
    from: &Path,
    work: &Path,
    makes_directory: bool,
    halt: &Halt,
) -> Result<(), String> {
    let out = if makes_directory { work.to_path_buf() } else { work.join(RESULT) };
    let (from, to) = (from.to_string_lossy(), out.to_string_lossy());
    let words: Vec<String> = words.iter().map(|word| word.replace(IN, &from).replace(OUT, &to)).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(work);
    finish(command, &words[0], &work.with_extension("said"), halt)?;
    if makes_directory {
        return Ok(());
    }
    match fs::symlink_metadata(&out) {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(_) => Err(format!("it made no file at {OUT}, but something else")),
        Err(_) => Err(format!("it ended without an error, and made nothing at {OUT}")),
    }
}

/// Tells a freshly unpacked environment where it is, if it asks for that.
pub(super) fn settle_environment(root: &Path, halt: &Halt) -> Result<(), String> {
    let program = root.join(CONDA_UNPACK);
    if !program.exists() {
        return Ok(());
    }
    let mut command = Command::new(&program);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(root.join("bin")).chain(std::env::split_paths(&paths));
    let path = std::env::join_paths(paths).map_err(|e| e.to_string())?;
    command.env("PATH", path).current_dir(root);
    finish(command, CONDA_UNPACK, &root.with_extension("said"), halt)
}

/// Runs a program to its end. `said`: a file for what it prints.
fn finish(mut command: Command, name: &str, said: &Path, halt: &Halt) -> Result<(), String> {
    let result = end_of(&mut command, said, halt);
    let last = last_line(said).unwrap_or_default();
    let _ = fs::remove_file(said);
    match result {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with status {code}"),
                (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
            };
            Err(if last.is_empty() { how } else { format!("{how} and said {last}") })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(format!("this node has no program {}", shown(name)))
        }
        Err(e) => Err(format!("{} could not be run: {e}", shown(name))),
    }
}

fn end_of(command: &mut Command, said: &Path, halt: &Halt) -> io::Result<ExitStatus> {
    let out = File::options().create(true).truncate(true).write(true).open(said)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
    let executor = std::process::id();
    // SAFETY: plain system calls, after which the process goes on as it was. The program dies with this executor.
    unsafe {
        command.pre_exec(move || {
            eyas_runner::reaper::end_with(executor, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Err(e) = halt.check() {
            // SAFETY: the group is that of our child, which was not waited for yet.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            return Err(e);
        }
        std::thread::sleep(LOOK);
    }
}

/// The last line that a program printed, for a message.
fn last_line(said: &Path) -> Option<String> {
    let mut file = File::open(said).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(BLOCK_BYTES as u64))).ok()?;
    let mut text = vec![];
    file.read_to_end(&mut text).ok()?;
    let line = text.split(|byte| *byte == b'\n').rev().find(|line| !line.trim_ascii().is_empty())?;
    Some(shown_bytes(&line[..line.len().min(300)]).to_string())
}
