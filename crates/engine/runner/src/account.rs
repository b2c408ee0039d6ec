//! The system users that programs run as, where the executor may give them one of their own.
//!
//! Two things are here: an [`Account`], which a program gets before it is executed (`spawn.rs`), and [`Acting`], which
//! gives one thread of this process the rights of an account on files, for as long as it lives. Whatever a name of a
//! user's leads to is opened by a thread that acts as the user, so that the kernel decides about it and no check of
//! ours can come too early.
//!
//! The kernel keeps the ids of each thread apart; the C library changes those of all threads at once. So the system
//! calls are made directly.

use crate::protocol::Account;
use crate::sys;
use crate::without_proc::WithoutProc;
use std::io::{self, Read};
use std::marker::PhantomData;

impl Account {
    /// This thread has the rights of the account on files until the result is dropped, and sees no `/proc`. Its process id, its signals
    /// and its other rights stay. A thread that is started meanwhile begins with them, and keeps them.
    ///
    /// Errors: this process lacks the capabilities for it; then nothing has changed.
    pub fn act(&self) -> io::Result<Acting> {
        let acting = Acting {
            uid: fs_id(libc::SYS_setfsuid, u32::MAX),
            gid: fs_id(libc::SYS_setfsgid, u32::MAX),
            groups: groups()?,
            is_of_one_thread: PhantomData,
            _without_proc: WithoutProc::enter()?,
        };
        set_groups(&self.groups)?;
        fs_id(libc::SYS_setfsgid, self.gid);
        fs_id(libc::SYS_setfsuid, self.uid);
        let now = (fs_id(libc::SYS_setfsuid, u32::MAX), fs_id(libc::SYS_setfsgid, u32::MAX));
        // Where it failed, dropping `acting` restores the rest.
        match now == (self.uid, self.gid) {
            true => Ok(acting),
            false => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// See [`Account::act`]. It may be nested.
#[must_use]
pub struct Acting {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Rights are a thread's, so this stays on its thread.
    is_of_one_thread: PhantomData<*const ()>,
    /// Left after the ids were taken back.
    _without_proc: WithoutProc,
}

impl Drop for Acting {
    fn drop(&mut self) {
        fs_id(libc::SYS_setfsuid, self.uid);
        fs_id(libc::SYS_setfsgid, self.gid);
        // A thread that kept the rights of a user would do later work with them.
        set_groups(&self.groups).expect("a thread may take back the groups that it had");
    }
}

/// Reads `bytes` with the rights of an account, or with those of this process.
pub struct ReadAs<R> {
    pub account: Option<Account>,
    pub bytes: R,
}

impl<R: Read> Read for ReadAs<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let _acting = self.account.as_ref().map(Account::act).transpose()?;
        self.bytes.read(buffer)
    }
}

/// Sets an id that counts for files, and gives the one of before. An id that is none changes nothing.
fn fs_id(call: libc::c_long, id: u32) -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(call, id as libc::c_ulong) as u32 }
}

fn groups() -> io::Result<Vec<u32>> {
    // SAFETY: with no room, the call only counts; with room for that many, it fills them.
    unsafe {
        let n = sys::check(libc::getgroups(0, std::ptr::null_mut()))?;
        let mut groups = vec![0; n as usize];
        let n = sys::check(libc::getgroups(n, groups.as_mut_ptr()))?;
        groups.truncate(n as usize);
        Ok(groups)
    }
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many ids as it is told of.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    sys::check(result as libc::c_int).map(drop)
}

/// Gives this process, and the programs that it starts from now on, a session keyring of their own. The kernel lets whoever has
/// inherited one use its keys, whatever their ids are; those of root may be Kerberos tickets.
pub(crate) fn leave_keys() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: without a name, the call reads no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0) };
    match sys::check(result as libc::c_int) {
        // Where there are no keys, or nobody may use any, nothing is to be left.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES)) => Ok(()),
        result => result.map(drop),
    }
}

/// Takes the ids of an account for good, without capabilities and without a way to new ones, as the last step before a program is
/// executed. Makes plain system calls only, so that it may be called where memory is shared with another process. Returns an
/// error number, or 0.
///
/// # Safety
/// `groups` points to `n_groups` ids.
pub(crate) unsafe fn become_forever(uid: u32, gid: u32, groups: *const u32, n_groups: usize) -> libc::c_int {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // Effective, permitted and inheritable capabilities, in two halves.
    let none = [0u32; 6];
    let id = |id: u32| id as libc::c_ulong;
    // SAFETY: the caller's guarantee, and places on this stack.
    unsafe {
        let failed = libc::syscall(libc::SYS_setgroups, n_groups, groups) < 0
            || libc::syscall(libc::SYS_setresgid, id(gid), id(gid), id(gid)) < 0
            || libc::syscall(libc::SYS_setresuid, id(uid), id(uid), id(uid)) < 0
            || libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) < 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0;
        if failed { *libc::__errno_location() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn account(uid: u32) -> Account {
        Account { uid, gid: uid, groups: vec![], name: "x".into(), home: None }
    }

    #[test]
    fn a_thread_has_the_rights_of_an_account_only_while_it_acts() {
        if rustix::process::geteuid().as_raw() != 0 {
            return assert!(account(70_000).act().is_err(), "only root may act as others");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, owner) in [("mine", 70_000), ("another's", 70_001), ("root's", 0)] {
            fs::write(path(name), name).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
            chown(path(name), Some(owner), Some(owner)).unwrap();
        }
        let readable = || ["mine", "another's", "root's"].map(|name| fs::read(path(name)).is_ok());
        assert_eq!(readable(), [true; 3]);
        let (ask, asked) = std::sync::mpsc::channel();
        let (answer, answers) = std::sync::mpsc::channel();
        let all = ["mine", "another's", "root's"].map(path);
        std::thread::spawn(move || {
            asked.recv().unwrap();
            answer.send(all.map(|path| fs::read(path).is_ok())).unwrap();
        });
        let outer = account(70_000).act().unwrap();
        assert_eq!(readable(), [true, false, false]);
        assert!(fs::write(path("new"), "").is_err(), "the folder is root's");
        let inner = account(70_001).act().unwrap();
        assert_eq!(readable(), [false, true, false]);
        // A thread that was there before is not concerned.
        ask.send(()).unwrap();
        assert_eq!(answers.recv().unwrap(), ["mine", "another's", "root's"].map(|_| true));
        drop(inner);
        assert_eq!(readable(), [true, false, false]);
        drop(outer);
        assert_eq!(readable(), [true; 3]);
        let mut text = String::new();
        let file = fs::File::open(path("root's")).unwrap();
        // What is open is open.
        ReadAs { account: Some(account(70_000)), bytes: file }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "root's");
    }
}
