//! The executor's end of a slot process.

use crate::error::Error;
use crate::protocol::{SlotCommand, SlotConfig, encode_frame};
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A slot process that has been started. Dropping `stream` ends it and the program that it runs; the holder
/// of `process` should then wait for it.
#[derive(Debug)]
pub struct SlotHandle {
    pub pid: u32,
    /// Blocking; set it to non-blocking for tokio.
    pub stream: UnixStream,
    pub process: Child,
}

/// Starts `exe` with `args`, which has to call [`crate::slot_main`] with descriptor 0 before anything else,
/// and sends it `config`. Its first report says whether it is ready.
pub fn spawn_slot(exe: &Path, args: &[impl AsRef<OsStr>], config: SlotConfig) -> Result<SlotHandle, Error> {
    let failed = |source| Error::system("start the slot process", exe.display().to_string(), source);
    let (mut stream, theirs) = UnixStream::pair().map_err(failed)?;
    // No pre_exec hook: with one, the standard library would fork this process instead of spawning.
    let process = Command::new(exe)
        .args(args)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut frame = Vec::new();
    encode_frame(&SlotCommand::Configure(config), &mut frame)?;
    stream.write_all(&frame).map_err(failed)?;
    Ok(SlotHandle { pid: process.id(), stream, process })
}
