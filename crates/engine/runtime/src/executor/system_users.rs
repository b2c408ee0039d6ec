//! Which system user the programs of each user run as, where an executor of root is given some.
//!
//! An id that eyas makes up for a user belongs to one executor at a time, on the whole machine: a lock on a file says so.
//!
//! ```text
//! /run/eyas/system-users/<id>   the cluster and the user that have the id, or had it last; locked by their executor
//! ```
//!
//! A user gets the id that they had before, if it is free, else one that nobody had, else the one that was unused longest. Before
//! an id is used, the processes that run with it are ended; before it passes on to another user, the files that it left in
//! folders for temporary files are removed. An id stays its user's until the executor ends.
//!
//! Not here: how a program gets its ids (`eyas-runner`), who is a user (the dispatcher).

use eyas_runner::{Account, ByteString, sandbox};
use eyas_text::{shown, shown_path};
use eyas_wire::users::Principal;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Below are the ids of the system itself.
const ID_MIN: u32 = 1000;
/// Above are ids that older file systems and programs do not know.
const ID_MAX: u32 = i32::MAX as u32;
/// Ids that systems give a meaning: nobody, and none in 16 bits.
const TAKEN: [u32; 2] = [NOBODY, 65_535];
const NOBODY: u32 = 65_534;
/// The most ids of one executor.
pub const IDS_MAX: u32 = 10_000;
/// What is needed to run programs as others, to give them files, to take these back, and to end them, and to follow their names
/// without `/proc`: the names and numbers of capabilities.
const CAPABILITIES: [(&str, u32); 8] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_FOWNER", 3),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_SYS_CHROOT", 18),
    ("CAP_SYS_ADMIN", 21),
];
/// Folders for everybody's temporary files, and for message queues.
const TEMPORARY: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"];
/// Lists of what processes share through System V's calls, and how one of each is removed.
const SHARED: [(&str, unsafe fn(libc::c_int)); 3] = [
    ("/proc/sysvipc/shm", |id| unsafe {
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
    }),
    ("/proc/sysvipc/msg", |id| unsafe {
        libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut());
    }),
    ("/proc/sysvipc/sem", |id| unsafe {
        libc::semctl(id, 0, libc::IPC_RMID);
    }),
];
/// What the owner of a cluster is called in the environment of their programs.
const OWNER: &str = "eyas";

/// The system users that an executor gives to programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemUsers {
    /// Ids that belong to nobody on the machine.
    pub first: u32,
    pub last: u32,
    /// The accounts of the machine that users have, by the users' names. All others get an id.
    pub accounts: BTreeMap<String, String>,
    /// Where the locks are.
    pub locks: PathBuf,
}

/// The folder of the locks of all executors of a machine.
pub fn usual_locks() -> PathBuf {
    PathBuf::from("/run/eyas/system-users")
}

impl SystemUsers {
    /// Whether this machine and this process can do that. An error is a sentence that says why not.
    pub fn check(&self) -> Result<(), String> {
        let SystemUsers { first, last, accounts, .. } = self;
        let range = format!("--system-users {first}-{last}");
        if first > last {
            return Err(format!("{range} names no id: the first one is above the last one"));
        }
        if *first < ID_MIN || *last > ID_MAX {
            return Err(format!(
                "{range} is not within {ID_MIN}-{ID_MAX}: other ids have a meaning for the system"
            ));
        }
        if last - first >= IDS_MAX {
            return Err(format!("{range} is more than the {IDS_MAX} ids that an executor looks after"));
        }
        if let Some(taken) = TAKEN.iter().find(|id| (*first..=*last).contains(*id)) {
            return Err(format!("{range} has the id {taken} in it, which systems use themselves"));
        }
        if rustix::process::geteuid().as_raw() != 0 {
            return Err(
                "--system-users needs an executor that runs as root, because only root may run programs as \
                        others; leave it out, or start the executor as root"
                    .into(),
            );
        }
        let has = effective_capabilities().map_err(|e| format!("cannot read /proc/self/status: {e}"))?;
        if let Some((name, _)) = CAPABILITIES.iter().find(|(_, bit)| has & (1 << bit) == 0) {
            return Err(format!(
                "--system-users needs the capability {name}, which this process of root lacks: it may be in a container \
                 that has taken it away"
            ));
        }
        for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
            let text = fs::read_to_string(map).map_err(|e| format!("cannot read {map}: {e}"))?;
            if !covers(&text, *first, *last) {
                return Err(format!(
                    "{range} is not among the ids of the user namespace that this process is in ({map}); choose ids \
                     that are there"
                ));
            }
        }
        for (file, what) in [("/etc/passwd", "the user"), ("/etc/group", "the group")] {
            if let Some((name, id)) = named_within(&read_if_there(file)?, *first, *last) {
                return Err(format!(
                    "{range} has the id {id} in it, which is that of {what} {}",
                    shown(&name)
                ));
            }
        }
        for file in ["/etc/subuid", "/etc/subgid"] {
            if let Some(name) = granted_within(&read_if_there(file)?, *first, *last) {
                return Err(format!(
                    "{range} has ids in it that {file} grants to {} for containers",
                    shown(&name)
                ));
            }
        }
        accounts.iter().try_for_each(|(user, name)| account_of(user, name).map(drop))
    }
}

/// Whether programs of other system users can reach `dir` by its name. An error is a sentence that names the folder that they
/// cannot enter.
pub fn check_folder(dir: &Path) -> Result<(), String> {
    // The folder itself is opened by its executor.
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        let Ok(meta) = fs::metadata(above) else { continue };
        if meta.mode() & 0o001 == 0 {
            return Err(format!(
                "with --system-users, programs have to reach {}, and {} may be entered by its owner alone; give --dir or \
                 --node-dir a folder below one that all may enter, such as /var/lib/eyas",
                shown_path(dir),
                shown_path(above)
            ));
        }
    }
    Ok(())
}

/// Lets other system users pass through a folder of this process, and see nothing of what is in it.
pub(super) fn let_pass(dir: &Path) -> io::Result<()> {
    let mode = fs::metadata(dir)?.mode() & 0o7777;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode & !0o066 | 0o011))
}

/// Whether a variable of this process's environment may be handed on to programs that run as others. Those that lead to storage and
/// to secrets of whoever started the executor are not.
pub(super) fn is_for_others(name: &[u8]) -> bool {
    const SECRETS: [&str; 7] = ["SECRET", "TOKEN", "PASSW", "CREDENTIAL", "PRIVATE", "API_KEY", "ACCESS_KEY"];
    const OF_STORAGE: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "EYAS_", "SSH_", "KRB5"];
    const OF_USER: [&str; 6] = ["HOME", "USER", "LOGNAME", "MAIL", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY"];
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    !(SECRETS.iter().any(|part| name.contains(part))
        || OF_STORAGE.iter().any(|begin| name.starts_with(begin))
        || OF_USER.contains(&name.as_str())
        || name.starts_with("XDG_"))
}

/// Whoever no user is known for: has the rights on files that everybody has.
pub(super) fn nobody() -> Account {
    Account { uid: NOBODY, gid: NOBODY, groups: vec![], name: "nobody".into(), home: None }
}

pub(super) fn is_nobody(account: &Account) -> bool {
    account.uid == NOBODY
}

/// The accounts of this executor's users, as far as they have come.
pub(super) struct Pool {
    options: SystemUsers,
    /// A name for the cluster, from which its secret does not follow.
    cluster: String,
    accounts: BTreeMap<String, Account>,
    /// The locks of ids that are used.
    held: BTreeMap<u32, File>,
}

impl Pool {
    /// `secret`: the cluster's.
    pub(super) fn new(options: SystemUsers, secret: &[u8]) -> Result<Pool, String> {
        options.check()?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&options.locks);
        made.map_err(|e| format!("cannot make {}: {e}", shown_path(&options.locks)))?;
        let mut hasher = blake3::Hasher::new_derive_key("eyas: the cluster that an id is used in");
        hasher.update(secret);
        let cluster = hasher.finalize().to_hex()[..16].to_string();
        Ok(Pool { options, cluster, accounts: BTreeMap::new(), held: BTreeMap::new() })
    }

    /// The account of whose task it is. An error is a sentence.
    pub(super) fn account(&mut self, principal: &Principal) -> Result<Account, String> {
        // No user has the empty name.
        let user = match principal {
            Principal::Owner => "",
            Principal::User(name) => name,
            Principal::Nobody => return Err("the dispatcher does not say whose task this is".into()),
        };
        if let Some(account) = self.accounts.get(user) {
            return Ok(account.clone());
        }
        let account = match self.options.accounts.get(user) {
            Some(name) => account_of(user, name)?,
            None => {
                let id = self.take_id(user)?;
                let name = if user.is_empty() { OWNER } else { user };
                Account { uid: id, gid: id, groups: vec![], name: name.into(), home: None }
            }
        };
        self.accounts.insert(user.into(), account.clone());
        Ok(account)
    }

    fn take_id(&mut self, user: &str) -> Result<u32, String> {
        let SystemUsers { first, last, locks, .. } = &self.options;
        let mine = format!("{}\n{user}\n", self.cluster);
        let mut had = vec![];
        let mut fresh = vec![];
        let mut others = vec![];
        for id in (*first..=*last).filter(|id| !self.held.contains_key(id)) {
            let path = locks.join(id.to_string());
            match (fs::read_to_string(&path), fs::metadata(&path).and_then(|meta| meta.modified())) {
                (Ok(text), _) if text == mine => had.push(id),
                (Ok(text), Ok(_)) if text.is_empty() => fresh.push(id),
                (_, Ok(time)) => others.push((time, id)),
                _ => fresh.push(id),
            }
        }
        others.sort_unstable();
        let order = had.into_iter().chain(fresh).chain(others.into_iter().map(|(_, id)| id));
        for id in order {
            let path = locks.join(id.to_string());
            let fail = |e: io::Error| format!("cannot use {}: {e}", shown_path(&path));
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(fail)?;
            if file.try_lock().is_err() || is_known(id) {
                continue;
            }
            let mut before = String::new();
            file.read_to_string(&mut before).map_err(fail)?;
            end_processes(id).map_err(fail)?;
            if before != mine {
                sweep(id);
                file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
                file.write_all(mine.as_bytes()).map_err(fail)?;
            }
            let _ = file.set_modified(SystemTime::now());
            self.held.insert(id, file);
            return Ok(id);
        }
        Err(format!(
            "no system user is left on this node for the user {}: all of --system-users {first}-{last} are used; give it \
             more ids",
            shown(user)
        ))
    }
}

/// The account of the machine that a user has.
fn account_of(user: &str, name: &str) -> Result<Account, String> {
    let of = format!("--system-users {user}={name}");
    let c_name = CString::new(name).map_err(|_| format!("{of} has a NUL byte"))?;
    let mut buffer = vec![0 as libc::c_char; 64 << 10];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all places are valid, and the texts of the entry are in the buffer, which lives on.
    let (uid, gid, home) = unsafe {
        let failed = libc::getpwnam_r(
            c_name.as_ptr(),
            entry.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        );
        if found.is_null() {
            let why = match failed {
                0 => "this machine has no such account".to_string(),
                code => io::Error::from_raw_os_error(code).to_string(),
            };
            return Err(format!("{of}: {why}"));
        }
        let entry = entry.assume_init();
        (entry.pw_uid, entry.pw_gid, CStr::from_ptr(entry.pw_dir).to_bytes().to_vec())
    };
    if uid == 0 || gid == 0 {
        return Err(format!("{of}: programs of a user are not run as root"));
    }
    let mut n_groups: libc::c_int = 256;
    let mut groups = vec![0; n_groups as usize];
    // SAFETY: there is room for as many groups as are announced.
    let n = unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &mut n_groups) };
    if n < 0 {
        return Err(format!("{of}: that account is in more than {} groups", groups.len()));
    }
    groups.truncate(n_groups as usize);
    if groups.contains(&0) {
        return Err(format!("{of}: that account is in the group of root"));
    }
    Ok(Account { uid, gid, groups, name: name.into(), home: Some(ByteString(home)) })
}

/// Whether the machine knows the id as a user's, also by a directory service.
fn is_known(id: u32) -> bool {
    let mut buffer = vec![0 as libc::c_char; 16 << 10];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all places are valid.
    unsafe { libc::getpwuid_r(id, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found) };
    !found.is_null()
}

fn effective_capabilities() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim();
    Ok(u64::from_str_radix(hex, 16).unwrap_or(0))
}

fn read_if_there(path: &str) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(format!("cannot read {path}: {e}")),
    }
}

/// Whether a user namespace's map has all of these ids.
fn covers(map: &str, first: u32, last: u32) -> bool {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().ok());
        let (inside, _, n) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(inside..inside + n)
    });
    let ranges: Vec<_> = ranges.collect();
    (first..=last).all(|id| ranges.iter().any(|range| range.contains(&u64::from(id))))
}

/// A line of a file such as `/etc/passwd` whose id is one of these.
fn named_within(text: &str, first: u32, last: u32) -> Option<(String, u32)> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        (first..=last).contains(&id).then(|| (name.to_string(), id))
    })
}

/// Who has some of these ids by a file such as `/etc/subuid`.
fn granted_within(text: &str, first: u32, last: u32) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, begin) = (fields.next()?, fields.next()?.parse::<u64>().ok()?);
        let n = fields.next()?.trim().parse::<u64>().ok()?;
        (begin <= u64::from(last) && u64::from(first) < begin + n).then(|| name.to_string())
    })
}

/// Ends all processes that run with the id, on the whole machine.
fn end_processes(id: u32) -> io::Result<()> {
    for _ in 0..200 {
        let pids = processes_of(id)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(io::Error::other("processes that run with this id do not end"))
}

fn processes_of(id: u32) -> io::Result<Vec<libc::pid_t>> {
    let mut pids = vec![];
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let ids: BTreeSet<u32> =
            line("Uid:").unwrap_or("").split_whitespace().filter_map(|id| id.parse().ok()).collect();
        // A zombie is dead already.
        if ids.contains(&id) && !line("State:").unwrap_or("").trim().starts_with('Z') {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Removes what the id has left among everybody's temporary files and in memory that programs share.
fn sweep(id: u32) {
    for (list, remove) in SHARED {
        for left in shared_by(&fs::read_to_string(list).unwrap_or_default(), id) {
            // SAFETY: the call takes a number and nothing else; at worst there is no such thing any more.
            unsafe { remove(left) };
        }
    }
    for dir in TEMPORARY {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if fs::symlink_metadata(entry.path()).is_ok_and(|meta| meta.uid() == id) {
                let _ = sandbox::remove_tree(&entry.path());
            }
        }
    }
}

/// The numbers of what the user or its maker `id` has in a list of the kernel, whose first line names its columns.
fn shared_by(list: &str, id: u32) -> Vec<libc::c_int> {
    let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let Some(names) = lines.next() else { return vec![] };
    let column = |name: &str| names.iter().position(|column| *column == name);
    let number = names.iter().position(|column| ["shmid", "msqid", "semid"].contains(column));
    let (Some(number), Some(uid), Some(cuid)) = (number, column("uid"), column("cuid")) else {
        return vec![];
    };
    let is_of =
        |fields: &[&str], column: usize| fields.get(column).is_some_and(|text| text.parse() == Ok(id));
    lines
        .filter(|fields| is_of(fields, uid) || is_of(fields, cuid))
        .filter_map(|fields| fields.get(number)?.parse().ok())
        .collect()
}

const ACL: &CStr = c"system.posix_acl_access";
const ACL_VERSION: u32 = 2;
/// Kinds of entries of an access list.
const OF_OWNER: u16 = 0x01;
const OF_USER: u16 = 0x02;
const OF_GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OF_OTHERS: u16 = 0x20;

/// Lets the account enter `dir`, a folder of mode 0550 of root's, by the folder's access list. Whoever was let in before stays so.
/// The folder's mode does not change.
pub(super) fn let_in(dir: &Path, account: &Account) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut old = vec![0u8; 64 << 10];
    // SAFETY: the names are NUL-terminated, and the kernel writes no more than there is room for.
    let n = unsafe { libc::getxattr(path.as_ptr(), ACL.as_ptr(), old.as_mut_ptr().cast(), old.len()) };
    old.truncate(usize::try_from(n).unwrap_or(0));
    let mut users: BTreeSet<u32> = old
        .get(4..)
        .unwrap_or_default()
        .chunks_exact(8)
        .filter(|entry| u16::from_le_bytes([entry[0], entry[1]]) == OF_USER)
        .map(|entry| u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]))
        .collect();
    if !users.insert(account.uid) {
        return Ok(());
    }
    const READ_AND_ENTER: u16 = 0o5;
    const NO_ID: u32 = u32::MAX;
    let named = users.into_iter().map(|id| (OF_USER, READ_AND_ENTER, id));
    let entries = std::iter::once((OF_OWNER, READ_AND_ENTER, NO_ID)).chain(named).chain([
        (OF_GROUP, READ_AND_ENTER, NO_ID),
        (MASK, READ_AND_ENTER, NO_ID),
        (OF_OTHERS, 0, NO_ID),
    ]);
    let mut list = ACL_VERSION.to_le_bytes().to_vec();
    for (kind, rights, id) in entries {
        list.extend(kind.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    // SAFETY: the names are NUL-terminated, and the kernel reads as many bytes as there are.
    match unsafe { libc::setxattr(path.as_ptr(), ACL.as_ptr(), list.as_ptr().cast(), list.len(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why an account may not read the file or the folder `path`, with everything in it; `Ok` if it may. `path` is followed as the account
/// would follow it.
pub(super) fn may_read(account: &Account, path: &Path) -> io::Result<()> {
    let _acting = account.act()?;
    let mut left = vec![path.to_path_buf()];
    let mut is_first = true;
    while let Some(path) = left.pop() {
        let kind = match std::mem::take(&mut is_first) {
            true => fs::metadata(&path)?.file_type(),
            false => fs::symlink_metadata(&path)?.file_type(),
        };
        if kind.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if !kind.is_symlink() {
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_root() -> bool {
        // SAFETY: a plain query.
        unsafe { libc::geteuid() == 0 }
    }

    fn options(first: u32, last: u32, locks: &Path) -> SystemUsers {
        SystemUsers { first, last, accounts: BTreeMap::new(), locks: locks.to_path_buf() }
    }

    fn refusal(first: u32, last: u32) -> String {
        options(first, last, Path::new("/nowhere")).check().unwrap_err()
    }

    #[test]
    fn ids_that_others_have_are_refused_by_name() {
        assert!(refusal(70_010, 70_000).contains("names no id"));
        assert!(refusal(0, 10).contains("not within 1000-"));
        assert!(refusal(65_000, 66_000).contains("the id 65534"));
        assert!(refusal(70_000, 90_000).contains("more than the 10000 ids"));
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1007:1007::/home/ada:/bin/sh\n";
        assert_eq!(named_within(passwd, 1000, 1010), Some(("ada".into(), 1007)));
        assert_eq!(named_within(passwd, 1, 1006), None);
        let granted = "ada:100000:65536\n";
        assert_eq!(granted_within(granted, 165_535, 165_540), Some("ada".into()));
        assert_eq!(granted_within(granted, 165_536, 165_540), None);
        assert_eq!(granted_within(granted, 99_000, 99_999), None);
        assert!(covers("         0          0 4294967295\n", 70_000, 70_099));
        assert!(!covers("0 1000 1\n1 100000 65536\n", 70_000, 70_099));
    }

    #[test]
    fn each_user_has_an_id_of_their_own_on_the_whole_machine_and_gets_it_again() {
        if !is_root() {
            return assert!(refusal(70_000, 70_099).contains("runs as root"));
        }
        let dir = tempfile::tempdir().unwrap();
        let pool = |secret: &[u8]| Pool::new(options(71_000, 71_003, dir.path()), secret).unwrap();
        let mut one = pool(b"one");
        let user = |name: &str| Principal::User(name.into());
        let ids = [Principal::Owner, user("ada"), user("bo")].map(|who| one.account(&who).unwrap().uid);
        assert_eq!(ids, [71_000, 71_001, 71_002]);
        assert_eq!(one.account(&user("ada")).unwrap().uid, 71_001);
        assert_eq!(one.account(&user("ada")).unwrap().gid, 71_001);
        // Another executor's users are others, also those of the same name.
        let mut other = pool(b"one");
        assert_eq!(other.account(&user("ada")).unwrap().uid, 71_003);
        assert!(other.account(&Principal::Nobody).is_err(), "a task of nobody's runs as somebody");
        let why = other.account(&user("cy")).unwrap_err();
        assert!(why.contains("for the user `cy`") && why.contains("71000-71003"), "{why}");
        drop(one);
        let mut again = pool(b"one");
        assert_eq!(again.account(&user("bo")).unwrap().uid, 71_002, "bo has the id of before");
        assert_eq!(again.account(&user("ada")).unwrap().uid, 71_001);
        // The one that was unused longest passes on, with nothing left of it.
        let left = Path::new("/tmp").join(format!("eyas-test-{}", std::process::id()));
        fs::write(&left, "secret").unwrap();
        std::os::unix::fs::chown(&left, Some(71_000), Some(71_000)).unwrap();
        let stray = std::process::Command::new("sleep").arg("600").spawn_as(71_000);
        // SAFETY: plain calls of the kernel; `mine` is a valid place for the answer.
        let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600) };
        let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
        let mut of_segment = unsafe { std::mem::zeroed::<libc::shmid_ds>() };
        let mut of_queue = unsafe { std::mem::zeroed::<libc::msqid_ds>() };
        unsafe {
            assert_eq!(libc::shmctl(segment, libc::IPC_STAT, &mut of_segment), 0);
            of_segment.shm_perm.uid = 71_000;
            assert_eq!(libc::shmctl(segment, libc::IPC_SET, &mut of_segment), 0);
            assert_eq!(libc::msgctl(queue, libc::IPC_STAT, &mut of_queue), 0);
            of_queue.msg_perm.uid = 71_000;
            assert_eq!(libc::msgctl(queue, libc::IPC_SET, &mut of_queue), 0);
        }
        assert_eq!(again.account(&user("dee")).unwrap().uid, 71_000);
        assert!(!left.exists(), "a file of the id's last user is left");
        for (what, list) in [("memory", "/proc/sysvipc/shm"), ("a queue", "/proc/sysvipc/msg")] {
            let left = shared_by(&fs::read_to_string(list).unwrap(), 71_000);
            assert!(left.is_empty(), "{what} of the id's last user is left");
        }
        assert!(!stray.wait_with_output().unwrap().status.success(), "the id's process was ended");
    }

    #[test]
    fn what_is_shared_is_found_by_its_user_and_its_maker() {
        let list = "       key      shmid perms   size   uid   gid  cuid  cgid\n\
                    0 7 600 4096 70001 0 0 0\n0 8 600 4096 0 0 70001 0\n0 9 600 4096 0 0 0 0\n";
        assert_eq!(shared_by(list, 70_001), [7, 8]);
        assert_eq!(shared_by(list, 0), [7, 8, 9]);
        assert!(shared_by("", 70_001).is_empty() && shared_by("other columns\n1 2\n", 2).is_empty());
    }

    trait SpawnAs {
        fn spawn_as(&mut self, id: u32) -> std::process::Child;
    }

    impl SpawnAs for std::process::Command {
        fn spawn_as(&mut self, id: u32) -> std::process::Child {
            use std::os::unix::process::CommandExt;
            self.uid(id).gid(id).spawn().unwrap()
        }
    }

    #[test]
    fn a_tree_lets_in_those_who_were_named_and_keeps_its_mode() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("x"), "x").unwrap();
        fs::set_permissions(tree.join("x"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o550)).unwrap();
        let account = |uid| Account { uid, ..nobody() };
        let can = |uid| may_read(&account(uid), &tree.join("x")).is_ok();
        assert!(!can(72_001));
        for uid in [72_001, 72_002, 72_001] {
            let_in(&tree, &account(uid)).unwrap();
        }
        assert_eq!([72_001, 72_002, 72_003].map(can), [true, true, false]);
        assert_eq!(fs::metadata(&tree).unwrap().mode() & 0o7777, 0o550);
    }

    #[test]
    fn a_folder_is_readable_if_all_of_it_is() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("in/x"), "x").unwrap();
        std::os::unix::fs::symlink("/root", dir.path().join("in/link")).unwrap();
        assert!(may_read(&nobody(), dir.path()).is_ok());
        fs::set_permissions(dir.path().join("in/x"), fs::Permissions::from_mode(0o600)).unwrap();
        let why = may_read(&nobody(), dir.path()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn variables_with_secrets_are_kept_back() {
        for name in ["AWS_PROFILE", "MY_API_TOKEN", "Db_Password", "HOME", "XDG_RUNTIME_DIR", "EYAS_JOIN"] {
            assert!(!is_for_others(name.as_bytes()), "{name}");
        }
        for name in ["PATH", "LANG", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONPATH", "MODULEPATH"] {
            assert!(is_for_others(name.as_bytes()), "{name}");
        }
    }
}
