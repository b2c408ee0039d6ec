//! Commands that end with this process, however it ends.
//!
//! A command leads a group of its own, so that a key at the terminal is not for it; then nobody ends it where this process is
//! killed. The signal by which the kernel tells of a parent's end goes to the command alone and not to what it has started, and
//! comes when the thread ends that started the command. So one helper for all commands reads the numbers of their groups from a
//! socket. When the socket closes, this process is gone, and the helper kills the groups that are left.
//!
//! A command says its own number before its program begins, so there is no moment in which it is unknown.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// What the helper runs: `+ N` names a group, `- N` one that has ended.
const HELPER: &str = "trap '' HUP INT QUIT TERM USR1 USR2; g=' '
while read -r what n; do case $what in
+) g=\"$g$n \";;
-) case $g in *\" $n \"*) g=\"${g%%\" $n \"*} ${g#*\" $n \"}\";; esac;;
esac; done
for n in $g; do kill -9 \"-$n\"; done";

struct Helper {
    socket: Arc<UnixStream>,
    process: Child,
}

static HELPER_OF_ALL: Mutex<Option<Helper>> = Mutex::new(None);

/// The socket of a helper that lives. An executor ends whatever a slot process left behind, and the helper and commands with that.
fn socket() -> io::Result<Arc<UnixStream>> {
    let mut helper = HELPER_OF_ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Helper { socket, process }) = &mut *helper
        && matches!(process.try_wait(), Ok(None))
    {
        return Ok(socket.clone());
    }
    let (ours, its) = UnixStream::pair()?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(HELPER).current_dir("/").process_group(0);
    command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(Stdio::null());
    let socket = Arc::new(ours);
    *helper = Some(Helper { socket: socket.clone(), process: command.spawn()? });
    Ok(socket)
}

/// Sends a line, unless the helper is gone. It may be called between fork and exec: it allocates nothing.
fn say(socket: &UnixStream, what: u8, mut group: u32) {
    let (mut line, mut at) = (*b"            \n", 11);
    line[0] = what;
    while group > 0 {
        line[at] = b'0' + (group % 10) as u8;
        (group, at) = (group / 10, at - 1);
    }
    // SAFETY: the bytes are there; no signal comes of a helper that is gone.
    unsafe { libc::send(socket.as_raw_fd(), line.as_ptr().cast(), line.len(), libc::MSG_NOSIGNAL) };
}

/// Holds the name of a group at the helper. Whoever has waited for the command drops it.
pub(crate) struct Tie {
    socket: Arc<UnixStream>,
    group: u32,
}

impl Drop for Tie {
    fn drop(&mut self) {
        say(&self.socket, b'-', self.group);
    }
}

/// Starts a command as the leader of a group that ends with this process.
pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, Tie)> {
    let socket = socket()?;
    let kept = socket.clone();
    command.process_group(0);
    // SAFETY: plain system calls.
    unsafe {
        command.pre_exec(move || {
            say(&kept, b'+', libc::getpid().unsigned_abs());
            Ok(())
        });
    }
    let child = command.spawn()?;
    let group = child.id();
    Ok((child, Tie { socket, group }))
}

/// Runs a command without input to its end.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (child, _tie) = spawn(command)?;
    child.wait_with_output()
}
