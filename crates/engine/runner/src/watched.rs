//! How the program of a watched task and its supervisor in the executor's process meet: through a socket in the executor's folder.
//!
//! The slot process says which program it is about to start and where its sandbox is; then the program sends the listener of its filter
//! ([`crate::seccomp`]) itself, between its fork and its beginning.

use crate::seccomp::{Filter, Listener};
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The socket's name in the folder.
const NAME: &str = "watch";
/// The longest message: a number and the path of a sandbox.
const HELLO_BYTES_MAX: usize = 8 + libc::PATH_MAX as usize;

/// A program that is about to begin, or that was not started after all.
pub struct Meeting {
    from: OwnedFd,
    /// See [`crate::RunSpec::key`].
    pub key: u64,
    pub sandbox: PathBuf,
}

impl Meeting {
    /// Waits until the program has put its filter on. `None`: it never did.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listener(&self) -> io::Result<Option<Listener>> {
        Listener::receive(&self.from)
    }
}

/// The supervisor's end.
pub struct Door(OwnedFd);

impl Door {
    /// Listens in `folder`, where an earlier process may have listened.
    ///
    /// # Errors
    /// The folder may not be written.
    pub fn open(folder: &Path) -> io::Result<Door> {
        let _ = std::fs::remove_file(folder.join(NAME));
        let door = socket()?;
        with_address(folder, |address, len| {
            // SAFETY: the address lives until the call is over.
            check(unsafe { libc::bind(door.as_raw_fd(), address, len) })
        })?;
        // SAFETY: a plain call.
        check(unsafe { libc::listen(door.as_raw_fd(), 64) })?;
        Ok(Door(door))
    }

    /// The next program. `None`: whoever came is nobody whom this process has started, and was turned away.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn next(&self) -> io::Result<Option<Meeting>> {
        let null: *mut libc::c_void = std::ptr::null_mut();
        // SAFETY: no address is asked for.
        let fd = unsafe { libc::accept4(self.0.as_raw_fd(), null.cast(), null.cast(), libc::SOCK_CLOEXEC) };
        check(fd)?;
        // SAFETY: it has just been opened, and nobody else has it.
        let from = unsafe { OwnedFd::from_raw_fd(fd) };
        if !is_own(&from) {
            return Ok(None);
        }
        let mut hello = vec![0; HELLO_BYTES_MAX];
        // SAFETY: the kernel writes at most as many bytes as there is room for.
        let n = unsafe { libc::recv(from.as_raw_fd(), hello.as_mut_ptr().cast(), hello.len(), 0) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        hello.truncate(n);
        let Some((key, sandbox)) = hello.split_first_chunk::<8>() else { return Ok(None) };
        let sandbox = PathBuf::from(std::ffi::OsString::from_vec(sandbox.to_vec()));
        Ok(Some(Meeting { from, key: u64::from_le_bytes(*key), sandbox }))
    }
}

/// The slot process's end: the filter of a program that is about to be started, whose supervisor is told of it.
pub(crate) fn meet(folder: &Path, key: u64, sandbox: &Path) -> io::Result<Filter> {
    let to = socket()?;
    with_address(folder, |address, len| {
        // SAFETY: the address lives until the call is over.
        check(unsafe { libc::connect(to.as_raw_fd(), address, len) })
    })?;
    let mut hello = key.to_le_bytes().to_vec();
    hello.extend_from_slice(sandbox.as_os_str().as_bytes());
    // SAFETY: the kernel reads the bytes.
    let n = unsafe { libc::send(to.as_raw_fd(), hello.as_ptr().cast(), hello.len(), libc::MSG_NOSIGNAL) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Filter::of_writer(to))
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a plain call; the descriptor is new, and nobody else has it.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Calls with the address of the socket in `folder`. The path of a folder may be longer than an address, so it is opened.
fn with_address<T>(
    folder: &Path,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> io::Result<T>,
) -> io::Result<T> {
    let folder = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    // SAFETY: zero is a value of each of its fields.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (place, byte) in address.sun_path.iter_mut().zip(path.bytes()) {
        *place = byte as libc::c_char;
    }
    call((&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t)
}

/// Whether a process of this process's user is at the other end.
fn is_own(socket: &OwnedFd) -> bool {
    // SAFETY: zero is a value of each of its fields.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the kernel writes at most as many bytes as there are.
    let status =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len) };
    status == 0 && peer.uid == rustix::process::geteuid().as_raw()
}

fn check(status: RawFd) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
