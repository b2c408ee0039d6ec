//! The kernel's interface to system calls that somebody else looks at before they are carried out (seccomp user notification).
//!
//! A filter that a process puts on itself, and that everything it starts has, stops calls that name a path until a supervisor has answered
//! ([`Listener`]). All other calls pass at once. Of the calls that ask about a path, those that name it from an open directory pass, too
//! (`find` makes one for each file): a directory of data sets is completed when it is opened.
//!
//! A filter sees numbers and no text, so the supervisor reads the path from the program's memory. The program may change it afterwards,
//! hence an answer must do no harm for any path.
//!
//! Source: `seccomp_unotify(2)`.

use std::io;
use std::mem::{offset_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What a call wants of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An open file, with these flags and mode.
    Open(i32),
    /// The same with rules for finding the path, which only the kernel knows to follow.
    OpenBy,
    /// A program to run.
    Run,
    /// To know something about what is there.
    Look { follows: bool },
    /// To go into a directory, from which names are looked up then.
    Enter,
    /// To give what is there another name, or another size. Only the filter for writers stops such calls.
    Change,
    /// To take the name away. Likewise.
    Remove,
    /// To make something that is no file. Likewise.
    Make,
}

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub id: u64,
    /// The thread that makes the call.
    pub pid: u32,
    pub kind: Kind,
    /// The directory from which the path is meant, as the call says it.
    pub directory: RawFd,
    /// Where the path is in the program's memory.
    pub path: u64,
    /// The directory and the path of the name that [`Kind::Change`] gives; 0: none.
    pub to: (RawFd, u64),
}

/// Calls that stop, whatever their directory.
#[cfg(target_arch = "x86_64")]
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_chdir,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS: &[libc::c_long] =
    &[libc::SYS_openat, libc::SYS_openat2, libc::SYS_execve, libc::SYS_execveat, libc::SYS_chdir];

/// Calls that stop where the path is meant from the program's present directory.
const FROM_HERE: &[libc::c_long] =
    &[libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat];

/// Calls that stop where what programs write is looked after, too.
#[cfg(target_arch = "x86_64")]
const OF_WRITERS: &[libc::c_long] = &[
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_truncate,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_WRITERS: &[libc::c_long] = &[
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_truncate,
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
];

/// Since Linux 6.6, with the same number on all architectures, of which `libc` knows it for some.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Ways to a file that no filter can follow; programs do without them.
const REFUSED: &[libc::c_long] = &[libc::SYS_io_uring_setup, libc::SYS_open_by_handle_at];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

impl Call {
    fn of(found: &libc::seccomp_notif) -> Call {
        let args = found.data.args;
        let nr = libc::c_long::from(found.data.nr);
        let mut to = (libc::AT_FDCWD, 0);
        let (kind, directory, path) = match nr {
            libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
                to = (args[2] as RawFd, args[3]);
                (Kind::Change, args[0] as RawFd, args[1])
            }
            libc::SYS_truncate => (Kind::Change, libc::AT_FDCWD, args[0]),
            libc::SYS_mkdirat | libc::SYS_mknodat => (Kind::Make, args[0] as RawFd, args[1]),
            libc::SYS_unlinkat => (Kind::Remove, args[0] as RawFd, args[1]),
            libc::SYS_fchmodat | SYS_FCHMODAT2 | libc::SYS_utimensat | libc::SYS_fchownat => {
                (Kind::Look { follows: true }, args[0] as RawFd, args[1])
            }
            libc::SYS_symlinkat => (Kind::Make, args[1] as RawFd, args[2]),
            libc::SYS_openat => (Kind::Open(args[2] as i32), args[0] as RawFd, args[1]),
            libc::SYS_openat2 => (Kind::OpenBy, args[0] as RawFd, args[1]),
            libc::SYS_execve => (Kind::Run, libc::AT_FDCWD, args[0]),
            libc::SYS_execveat => (Kind::Run, args[0] as RawFd, args[1]),
            libc::SYS_chdir => (Kind::Enter, libc::AT_FDCWD, args[0]),
            libc::SYS_newfstatat => {
                let follows = args[3] as i32 & libc::AT_SYMLINK_NOFOLLOW == 0;
                (Kind::Look { follows }, args[0] as RawFd, args[1])
            }
            libc::SYS_statx => {
                let follows = args[2] as i32 & libc::AT_SYMLINK_NOFOLLOW == 0;
                (Kind::Look { follows }, args[0] as RawFd, args[1])
            }
            libc::SYS_faccessat | libc::SYS_faccessat2 => {
                (Kind::Look { follows: true }, args[0] as RawFd, args[1])
            }
            libc::SYS_readlinkat => (Kind::Look { follows: false }, args[0] as RawFd, args[1]),
            other => Call::of_old(other, &args, &mut to),
        };
        Call { id: found.id, pid: found.pid, kind, directory, path, to }
    }

    #[cfg(target_arch = "x86_64")]
    fn of_old(nr: libc::c_long, args: &[u64; 6], to: &mut (RawFd, u64)) -> (Kind, RawFd, u64) {
        let kind = match nr {
            libc::SYS_open => Kind::Open(args[1] as i32),
            libc::SYS_creat => Kind::Open(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC),
            libc::SYS_rename | libc::SYS_link => {
                to.1 = args[1];
                Kind::Change
            }
            libc::SYS_mkdir | libc::SYS_mknod => Kind::Make,
            libc::SYS_unlink | libc::SYS_rmdir => Kind::Remove,
            libc::SYS_futimesat => return (Kind::Look { follows: true }, args[0] as RawFd, args[1]),
            libc::SYS_symlink => return (Kind::Make, libc::AT_FDCWD, args[1]),
            libc::SYS_lstat | libc::SYS_readlink | libc::SYS_lchown => Kind::Look { follows: false },
            _ => Kind::Look { follows: true },
        };
        (kind, libc::AT_FDCWD, args[0])
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_old(_: libc::c_long, args: &[u64; 6], _: &mut (RawFd, u64)) -> (Kind, RawFd, u64) {
        (Kind::Look { follows: true }, libc::AT_FDCWD, args[0])
    }
}

/// The filter as the kernel wants it. `of_writers`: for programs whose writes are looked after, too.
fn filter(of_writers: bool) -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_NOT_LESS: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let jump = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let refuse = |errno: i32| step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32);
    let (pass, stop) = (step(RETURN, libc::SECCOMP_RET_ALLOW), step(RETURN, libc::SECCOMP_RET_USER_NOTIF));
    let at = |offset: usize| step(LOAD, offset as u32);

    // Programs for another architecture have other numbers: their calls would not be seen, so they have none.
    let mut all = vec![
        at(offset_of!(libc::seccomp_data, arch)),
        jump(IF_EQUAL, ARCHITECTURE, 1, 0),
        refuse(libc::ENOSYS),
        at(offset_of!(libc::seccomp_data, nr)),
        // The same architecture has a second set of numbers, from here on.
        jump(IF_NOT_LESS, 0x4000_0000, 0, 1),
        refuse(libc::ENOSYS),
    ];
    for nr in REFUSED {
        all.extend([jump(IF_EQUAL, *nr as u32, 0, 1), refuse(libc::ENOSYS)]);
    }
    for nr in ALWAYS.iter().chain(if of_writers { OF_WRITERS } else { &[] }) {
        all.extend([jump(IF_EQUAL, *nr as u32, 0, 1), stop]);
    }
    for nr in FROM_HERE {
        all.extend([
            jump(IF_EQUAL, *nr as u32, 0, 4),
            // The lower half of the first argument: a directory is a number of 32 bits.
            at(offset_of!(libc::seccomp_data, args) + if cfg!(target_endian = "big") { 4 } else { 0 }),
            jump(IF_EQUAL, libc::AT_FDCWD as u32, 0, 1),
            stop,
            pass,
        ]);
    }
    all.push(pass);
    all
}

/// What a process needs to put the filter on itself, made before it is forked: then there is no memory to ask for.
pub struct Filter {
    steps: Vec<libc::sock_filter>,
    to: OwnedFd,
}

impl Filter {
    /// A filter, and the other end of what its listener is sent through.
    pub fn new() -> io::Result<(Filter, OwnedFd)> {
        let [to, from] = pair()?;
        Ok((Filter { steps: filter(false), to }, from))
    }

    /// A filter for a program whose writes are looked after, too. Its listener is sent through `to`.
    pub fn of_writer(to: OwnedFd) -> Filter {
        Filter { steps: filter(true), to }
    }

    /// Puts the filter on this process, and sends the listener to the supervisor. For a process between its fork and the program: it makes
    /// plain system calls only.
    ///
    /// # Errors
    /// The kernel has no such filters, or another supervisor looks at this process already (`EBUSY`).
    pub fn put_on(&self) -> io::Result<()> {
        let program =
            libc::sock_fprog { len: self.steps.len() as u16, filter: self.steps.as_ptr().cast_mut() };
        let listener = install(&program)?;
        let sent = send(self.to.as_raw_fd(), Some(listener));
        // SAFETY: nobody else has it. The supervisor's is another one.
        unsafe { libc::close(listener) };
        sent
    }
}

fn install(program: &libc::sock_fprog) -> io::Result<RawFd> {
    let try_with = |flags: libc::c_ulong| {
        // SAFETY: the filter lives until the call is over.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, program) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd as RawFd) }
    };
    let new = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Signals that do not end the program wait for the answer, where the kernel can do that.
    let try_both = || match try_with(new | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => try_with(new),
        other => other,
    };
    match try_both() {
        // Without rights a process may filter itself where what it starts gains none.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: a plain call.
            checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
            try_both()
        }
        other => other,
    }
}

/// Room for the header of one message with one descriptor.
#[repr(C, align(8))]
struct Room([u8; 64]);

/// Two ends through which messages go.
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors where it may.
    checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
    // SAFETY: both are open, and nobody else has them.
    Ok(pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Sends a message, with an open file or without.
pub fn send(to: RawFd, fd: Option<RawFd>) -> io::Result<()> {
    let (mut byte, mut room) = ([1_u8], Room([0; 64]));
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: zero is a value of each of its fields.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    // SAFETY: the room is large enough for one descriptor, and aligned; all of it lives until the call is over.
    unsafe {
        if let Some(fd) = fd {
            message.msg_control = room.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
        checked(libc::sendmsg(to, &message, libc::MSG_NOSIGNAL) as libc::c_int)
    }
}

/// Waits for a message: its byte, and the open file that came with it. `None`: nobody can send one any more.
pub fn receive(from: &OwnedFd) -> io::Result<Option<(u8, Option<OwnedFd>)>> {
    let (mut byte, mut room) = ([0_u8], Room([0; 64]));
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: zero is a value of each of its fields.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&room) as _;
    // SAFETY: all of it lives until the call is over.
    let n = unsafe { libc::recvmsg(from.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    checked(n as libc::c_int)?;
    if n == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has written the message, which has one descriptor or none.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (!header.is_null())
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    };
    Ok(Some((byte[0], fd)))
}

/// Where calls arrive.
pub struct Listener(OwnedFd);

impl Listener {
    /// Waits until a process has put its filter on; `None`: there is none, and all that could have one are gone.
    pub fn receive(from: &OwnedFd) -> io::Result<Option<Listener>> {
        let Some((_, Some(fd))) = receive(from)? else { return Ok(None) };
        // The program goes on at once, on the same processor. An older kernel cannot.
        // SAFETY: a plain call.
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1_u64) };
        Ok(Some(Listener(fd)))
    }

    pub fn of(fd: OwnedFd) -> Listener {
        Listener(fd)
    }

    pub fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next call; `None`: all processes with the filter have ended.
    pub fn next(&self) -> io::Result<Option<Call>> {
        self.next_within(None)
    }

    /// The same; `None`, too, where none comes in this time.
    pub fn next_within(&self, time: Option<Duration>) -> io::Result<Option<Call>> {
        let ms = time.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
        loop {
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the kernel writes where it may.
            let n = unsafe { libc::poll(&mut poll, 1, ms) };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            checked(n)?;
            if poll.revents & libc::POLLIN == 0 {
                return Ok(None);
            }
            // SAFETY: zero is a value of each of its fields; the kernel asks for it.
            let mut found: libc::seccomp_notif = unsafe { zeroed() };
            // SAFETY: the kernel writes where it may.
            let got = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut found) };
            match checked(got) {
                Ok(()) => return Ok(Some(Call::of(&found))),
                // Whoever made the call was killed meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the call still waits, so that what was read of its process is of that process.
    pub fn is_valid(&self, call: &Call) -> bool {
        // SAFETY: the kernel reads the number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &call.id) == 0 }
    }

    /// The kernel carries the call out.
    pub fn pass(&self, call: &Call) {
        self.answer(call, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    /// The call fails.
    pub fn fail(&self, call: &Call, errno: i32) {
        self.answer(call, -errno, 0);
    }

    fn answer(&self, call: &Call, error: i32, flags: u32) {
        let answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags };
        // Where it fails, whoever made the call is gone.
        // SAFETY: the kernel reads the answer.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &answer) };
    }

    /// The call gives the program this open file.
    pub fn give(&self, call: &Call, file: &OwnedFd, flags: i32) {
        let given = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: (flags & libc::O_CLOEXEC) as u32,
        };
        // SAFETY: the kernel reads the answer.
        let n = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &given) };
        if n < 0 {
            match io::Error::last_os_error().raw_os_error() {
                // The program has as many open files as it may.
                Some(errno @ (libc::EMFILE | libc::ENFILE)) => self.fail(call, errno),
                Some(libc::ENOENT) => {}
                // The file is complete, so the kernel can open it as well.
                _ => self.pass(call),
            }
        }
    }
}

pub fn checked(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
