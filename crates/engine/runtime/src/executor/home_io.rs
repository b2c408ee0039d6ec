//! Bytes between home storage, the cache and private files, hashed on the way; and errors in the core's
//! terms.

use super::shown::{marks_of, mode_of_input};
use super::system_users::is_nobody;
use eyas_core::event::*;
use eyas_data::{ErrorKind as DataErrorKind, Halt, Incoming, Store};
use eyas_folder::{Packed, Tree, UNKNOWN_TIME_NS, holes, time_of};
use eyas_runner::Account;
use eyas_runner::account::ReadAs;
use eyas_storage::{ErrorKind as StorageErrorKind, Homes, Location, Opened, Strength, Version};
use eyas_terms::*;
use eyas_text::shown;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// So many bytes at a time.
const PIECE_BYTES: usize = 256 << 10;

pub(super) fn parse(text: &str) -> Result<Location, TransferError> {
    Location::parse(text, Path::new("/")).map_err(|e| home_error(&e))
}

pub(super) fn version_of(stat: &eyas_storage::Stat) -> HomeVersion {
    HomeVersion { size_bytes: stat.size_bytes, stamp: stat.version.text().into() }
}

pub(super) fn temporary(message: &str) -> TransferError {
    TransferError { kind: TransferErrorKind::Temporary, message: message.into() }
}

pub(super) fn given_up() -> TransferError {
    TransferError { kind: TransferErrorKind::GivenUp, message: "the attempt was ended meanwhile".into() }
}

/// A file that no other user may read, whatever the rights of the original are. It is never a file that
/// exists already.
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let make = || File::options().write(true).create_new(true).mode(0o600).open(path);
    match (make(), path.parent()) {
        // The folder was removed meanwhile.
        (Err(e), Some(folder)) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new().mode(0o700).create(folder)?;
            make()
        }
        (made, _) => made,
    }
}

pub(super) fn home_error(e: &eyas_storage::Error) -> TransferError {
    let kind = match e.kind() {
        StorageErrorKind::Changed => TransferErrorKind::Changed,
        StorageErrorKind::NoSpace => TransferErrorKind::NoSpace,
        StorageErrorKind::GivenUp => TransferErrorKind::GivenUp,
        StorageErrorKind::Shortage => TransferErrorKind::Shortage,
        StorageErrorKind::Busy | StorageErrorKind::Http(429) => TransferErrorKind::HomeBusy,
        StorageErrorKind::PermissionDenied if e.status() == eyas_storage::Status::Permanent => {
            TransferErrorKind::Refused
        }
        // It is about this object, so others of its home do not wait.
        StorageErrorKind::InUse => TransferErrorKind::Unavailable,
        _ if e.status() == eyas_storage::Status::Permanent => TransferErrorKind::Unavailable,
        _ => TransferErrorKind::HomeAway,
    };
    TransferError { kind, message: e.to_string() }
}

pub(super) fn data_error(e: &eyas_data::Error) -> TransferError {
    let kind = match e.kind {
        DataErrorKind::NotHeld => TransferErrorKind::NotHeld,
        DataErrorKind::Busy => TransferErrorKind::Busy,
        DataErrorKind::Corrupt | DataErrorKind::DigestMismatch { .. } => TransferErrorKind::Corrupt,
        DataErrorKind::NoSpace => TransferErrorKind::NoSpace,
        DataErrorKind::GivenUp => TransferErrorKind::GivenUp,
        DataErrorKind::Shortage => TransferErrorKind::Shortage,
        // Another cluster's executor may have the same private address.
        DataErrorKind::Unreachable | DataErrorKind::WrongSecret => TransferErrorKind::Unreachable,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: e.to_string() }
}

/// Opens an object at home with the rights of `reader`, or with those of this process. At a network home, everybody has the rights that
/// the credentials of this process give.
pub(super) fn open_at_home(
    homes: &Homes,
    location: &Location,
    reader: Option<&Account>,
) -> Result<Opened, TransferError> {
    let Some(account) = reader else { return homes.open(location, None).map_err(|e| home_error(&e)) };
    if location.is_by_programs_of_machine() {
        return Err(TransferError {
            kind: TransferErrorKind::Unavailable,
            message: by_programs(location.as_str()),
        });
    }
    if location.path().is_none() {
        return homes.open(location, None).map_err(|e| home_error(&e));
    }
    let opened = {
        let _acting = account.act().map_err(|e| disk_error("act as the user of a task", &e))?;
        homes.open(location, None)
    };
    match opened {
        Ok(opened) => {
            // Of a directory, files are opened while it is read.
            let reader = Box::new(ReadAs { account: Some(account.clone()), bytes: opened.reader });
            Ok(Opened { reader, ..opened })
        }
        // It is not known yet whose task will need the object. Who comes for it reads it with their own rights.
        Err(e) if is_nobody(account) => {
            Err(TransferError { kind: TransferErrorKind::GivenUp, message: e.to_string() })
        }
        Err(e) => {
            let TransferError { kind, message } = of_account(home_error(&e));
            let name = shown(&account.name.to_string()).to_string();
            let message =
                format!("{message}; it is read as the task's system user {name} with the id {}", account.uid);
            Err(TransferError { kind, message })
        }
    }
}

/// The same error, where the rights were those of one account: of others' rights, and so of the home, it says nothing.
pub(super) fn of_account(error: TransferError) -> TransferError {
    match error.kind {
        TransferErrorKind::Refused => TransferError { kind: TransferErrorKind::Unavailable, ..error },
        _ => error,
    }
}

/// Why a user's task cannot use a location on a node with `--system-users`.
pub(super) fn by_programs(location: &str) -> String {
    format!(
        "{} is reached by programs of the node with its own rights, so on a node with --system-users only tasks of the \
         cluster's owner may use it",
        shown(location)
    )
}

/// Reads an object from home into the cache or into a private file, hashing on the way. `early`: its bytes, if they came with
/// home's answer about it.
///
/// `moved` is called with the number of bytes that have arrived, piece by piece.
///
/// `reader`: see [`open_at_home`].
///
/// If the digest is known, it alone decides whether home's bytes changed: a task that runs twice writes the
/// same bytes twice, with another stamp the second time. If the size differs, nothing need be read.
#[allow(clippy::too_many_arguments, reason = "one call, each of its own kind")]
pub(super) fn read_home(
    homes: &Homes,
    store: &Store,
    text: &str,
    early: Option<Opened>,
    known: Option<&Known>,
    size_bytes: u64,
    private: Option<&Path>,
    by_file: bool,
    reader: Option<&Account>,
    halt: &Halt,
    moved: &mut dyn FnMut(u64),
) -> Result<Fetched, TransferError> {
    let location = parse(text)?;
    // Bytes that came early were read with the rights of this process.
    let is_everybodys = || location.path().is_none() && !location.is_by_programs_of_machine();
    let mut opened = match early.filter(|_| reader.is_none() || is_everybodys()) {
        Some(opened) => opened,
        None => open_at_home(homes, &location, reader)?,
    };
    let version = version_of(&opened.stat);
    let other = known.filter(|k| !k.version.stamp.is_empty() && k.version != version);
    let new_version = opened.stat.version.clone();
    let changed = || {
        let message = match other {
            Some(known) => {
                let old = Version::from_text(known.version.stamp.to_string());
                let change = match old.strength() == Strength::Strong || old.contradicts(&new_version) {
                    true => Version::describe_change(&old, &new_version),
                    false => "it has other bytes; its server gives no version that shows that".into(),
                };
                format!("{text} changed since this run first read it ({change})", text = shown(text))
            }
            None => format!(
                "{text} has other bytes than this run read before, with the same size and time stamp",
                text = shown(text)
            ),
        };
        TransferError { kind: TransferErrorKind::Changed, message }
    };
    if other.is_some_and(|known| known.size_bytes != version.size_bytes) {
        return Err(changed());
    }
    let expected = known.map(|k| k.digest);
    let (digest, size_bytes) = match private {
        Some(path) => {
            let read = read_into_file(&mut opened.reader, text, path, halt, moved)?;
            if expected.is_some_and(|e| e != read.0) {
                return Err(changed());
            }
            mark_private(path, &version, &opened.times).map_err(|e| disk_error("make a private copy", &e))?;
            read
        }
        None => {
            let size = version.size_bytes;
            if size > size_bytes {
                let message = format!(
                    "{text} grew from {size_bytes} to {size} bytes while it was being read",
                    text = shown(text)
                );
                return Err(TransferError { kind: TransferErrorKind::Changed, message });
            }
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?;
            let mut incoming = store.begin(reservation.until(halt));
            let whole_file = opened.file.clone().filter(|_| by_file);
            match whole_file {
                Some(file) => {
                    incoming.fill_from_file(&file).map_err(|e| fill_error(&e, text, size))?;
                    if expected.is_none() {
                        opened.check_unchanged().map_err(|e| home_error(&e))?;
                    }
                }
                None => read_into_store(&mut opened.reader, text, size, &mut incoming, moved)?,
            }
            let stored = match expected {
                Some(digest) => incoming.finish_timed(digest.0.into(), &opened.times),
                None => incoming.finish(None),
            };
            let stored = stored.map_err(|e| match e.kind {
                DataErrorKind::DigestMismatch { .. } => changed(),
                _ => data_error(&e),
            })?;
            if expected.is_none() && !opened.times.is_empty() {
                // A directory without its times is whole all the same.
                let _ = store.keep_times(&stored.digest, &opened.times);
            }
            (Digest(stored.digest.into()), stored.size)
        }
    };
    Ok(Fetched { digest, size_bytes, version: Some(version) })
}

/// Gives a private copy what programs are shown of it beside its bytes. `times`: see [`eyas_data::Store::keep_times`].
fn mark_private(path: &Path, version: &HomeVersion, times: &[i64]) -> std::io::Result<()> {
    let (modified_ns, mode) = marks_of(version);
    let file = File::options().write(true).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode_of_input(mode, false)))?;
    file.set_modified(time_of(modified_ns.unwrap_or(UNKNOWN_TIME_NS)))?;
    if times.is_empty() {
        return Ok(());
    }
    let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
    std::fs::write(times_beside(path), bytes)
}

/// Where the times in a private copy of a directory are.
pub(super) fn times_beside(private: &Path) -> PathBuf {
    private.with_extension("times")
}

/// The times in a private copy of a directory.
pub(super) fn times_of_private(private: &Path) -> Vec<i64> {
    let bytes = std::fs::read(times_beside(private)).unwrap_or_default();
    bytes.chunks_exact(8).map(|time| i64::from_le_bytes(time.try_into().expect("8 bytes"))).collect()
}

/// Reads all of `reader` into a private file at `path`. Gives digest and size.
fn read_into_file(
    reader: &mut impl Read,
    text: &str,
    path: &Path,
    halt: &Halt,
    moved: &mut dyn FnMut(u64),
) -> Result<(Digest, u64), TransferError> {
    let file = private_file(path).map_err(|e| disk_error("make a private copy", &e))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut size_bytes = 0;
    loop {
        halt.check().map_err(|_| given_up())?;
        let piece = read_piece(reader, text, &mut buffer)?;
        if piece.is_empty() {
            return Ok((Digest(*hasher.finalize().as_bytes()), size_bytes));
        }
        hasher.update(piece);
        holes::append(&file, piece).map_err(|e| disk_error("make a private copy", &e))?;
        size_bytes += piece.len() as u64;
        moved(piece.len() as u64);
    }
}

/// Reads all of `reader` into the store, which has reserved `size_bytes`.
fn read_into_store(
    reader: &mut impl Read,
    text: &str,
    size_bytes: u64,
    incoming: &mut Incoming,
    moved: &mut dyn FnMut(u64),
) -> Result<(), TransferError> {
    let mut buffer = vec![0; buffer_bytes(size_bytes)];
    loop {
        let piece = read_piece(reader, text, &mut buffer)?;
        if piece.is_empty() {
            return Ok(());
        }
        incoming.append(piece).map_err(|e| fill_error(&e, text, size_bytes))?;
        moved(piece.len() as u64);
    }
}

/// How large a buffer is worth while for an object of this size.
fn buffer_bytes(size_bytes: u64) -> usize {
    // One byte more shows that an object has grown.
    usize::try_from(size_bytes).map_or(PIECE_BYTES, |size| (size + 1).min(PIECE_BYTES))
}

/// The next bytes of an object at home; none at its end.
fn read_piece<'a>(
    reader: &mut impl Read,
    text: &str,
    buffer: &'a mut [u8],
) -> Result<&'a [u8], TransferError> {
    match reader.read(buffer) {
        Ok(n) => Ok(&buffer[..n]),
        Err(e) => Err(home_error(&eyas_storage::Error::from_read("read", text, e))),
    }
}

/// An object that had `size_bytes` when it was opened cannot be kept in the store. So many bytes were reserved, so only more
/// than that can be over the budget.
fn fill_error(e: &eyas_data::Error, text: &str, size_bytes: u64) -> TransferError {
    match e.kind {
        DataErrorKind::OverBudget { .. } => {
            let message = format!(
                "{} gave more than the {size_bytes} bytes that it had when it was opened: it grew while it was \
                 being read, or is no ordinary file",
                shown(text)
            );
            TransferError { kind: TransferErrorKind::Changed, message }
        }
        _ => data_error(e),
    }
}

pub(super) fn disk_error(operation: &str, e: &std::io::Error) -> TransferError {
    let kind = match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS) => TransferErrorKind::NoSpace,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => TransferErrorKind::Shortage,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: format!("cannot {operation} on this node: {e}") }
}

/// A file or a directory that is open.
pub(super) struct Source {
    pub bytes: Box<dyn Read>,
    pub size_bytes: u64,
    /// Of a directory: the times of all that is in it.
    pub times: Vec<i64>,
}

impl Source {
    pub(super) fn of_file(file: File) -> std::io::Result<Source> {
        let size_bytes = file.metadata()?.len();
        Ok(Source { bytes: Box::new(file), size_bytes, times: vec![] })
    }
}

/// Opens a file or a directory.
pub(super) fn open_object(path: &Path) -> std::io::Result<Source> {
    if path.is_dir() {
        let tree = Tree::of(path)?;
        let (size_bytes, times) = (tree.size_bytes(), tree.times().to_vec());
        return Ok(Source { bytes: Box::new(Packed::new(path, tree)), size_bytes, times });
    }
    Source::of_file(File::open(path)?)
}

/// Opens an output in a sandbox that may have other processes of `account` in it: whatever such a process
/// puts in the place of the output, only what the account may read is read.
pub(super) fn open_output(path: &Path, account: &Account) -> std::io::Result<Source> {
    let _acting = account.act()?;
    if path.is_dir() {
        let Source { bytes, size_bytes, times } = open_object(path)?;
        let bytes = Box::new(ReadAs { account: Some(account.clone()), bytes });
        return Ok(Source { bytes, size_bytes, times });
    }
    Source::of_file(open_output_file(path)?)
}

fn is_dir(path: &Path, account: Option<&Account>) -> bool {
    account.map(Account::act).transpose().is_ok_and(|_acting| path.is_dir())
}

/// A regular file that is no link. The caller acts as whoever owns the sandbox.
fn open_output_file(path: &Path) -> std::io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no file any more")),
    }
}

/// Hashes an output and puts it into the cache, or only hashes it. A directory is packed on its way.
///
/// `account`: the system user of the program, if it has one of its own. Then the output is copied: a process of that user may
/// have the file open or mapped, and would write to the cache.
pub(super) fn keep_output(
    store: &Store,
    path: &Path,
    n_links: u64,
    cache_bytes: Option<u64>,
    account: Option<&Account>,
    halt: &Halt,
) -> Result<Fetched, TransferError> {
    let open = |path: &Path| match account {
        Some(account) => open_output(path, account),
        None => open_object(path),
    };
    let fetched = |stored: eyas_data::Stored| Fetched {
        digest: Digest(stored.digest.into()),
        size_bytes: stored.size,
        version: None,
    };
    match cache_bytes {
        Some(size) => {
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?.until(halt);
            if is_dir(path, account) {
                let Source { mut bytes, times, .. } =
                    open(path).map_err(|e| disk_error("read an output", &e))?;
                let mut incoming = store.begin(reservation);
                let mut block = vec![0; PIECE_BYTES];
                loop {
                    match bytes.read(&mut block).map_err(|e| disk_error("read an output", &e))? {
                        0 => break,
                        n => incoming.append(&block[..n]).map_err(|e| data_error(&e))?,
                    }
                }
                let stored = incoming.finish(None).map_err(|e| data_error(&e))?;
                // A directory without its times is whole all the same.
                let _ = store.keep_times(&stored.digest, &times);
                return Ok(fetched(stored));
            }
            if n_links > 1 || account.is_some() {
                // Another process can still write to this file.
                let file = {
                    let acting = account.map(Account::act).transpose();
                    acting.and_then(|_acting| match account {
                        Some(_) => open_output_file(path),
                        None => File::open(path),
                    })
                };
                let file = file.map_err(|e| disk_error("read an output", &e))?;
                let mut incoming = store.begin(reservation);
                incoming.fill_from_file(&file).map_err(|e| data_error(&e))?;
                return incoming.finish(None).map(fetched).map_err(|e| data_error(&e));
            }
            store.adopt(path, reservation).map(fetched).map_err(|e| data_error(&e))
        }
        None => {
            let mut file = open(path).map_err(|e| disk_error("read an output", &e))?.bytes;
            let mut hasher = blake3::Hasher::new();
            let (mut block, mut size_bytes) = (vec![0; PIECE_BYTES], 0);
            loop {
                halt.check().map_err(|_| given_up())?;
                let n = match file.read(&mut block) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(disk_error("read an output", &e)),
                };
                hasher.update(&block[..n]);
                size_bytes += n as u64;
            }
            Ok(Fetched { digest: Digest(*hasher.finalize().as_bytes()), size_bytes, version: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file under `/proc` is empty when it is asked for its size, and gives bytes all the same: just what a file does
    /// that grows between the look and the read.
    #[test]
    fn a_file_that_gives_more_than_it_had_is_named_with_what_happened() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("cache"), 1 << 20).unwrap();
        let homes = Homes::new(eyas_storage::HomesConfig::default()).unwrap();
        let error = read_home(
            &homes,
            &store,
            "/proc/version",
            None,
            None,
            1 << 20,
            None,
            true,
            None,
            &Halt::default(),
            &mut |_| {},
        )
        .expect_err("an error");
        assert_eq!(error.kind, TransferErrorKind::Changed, "{}", error.message);
        assert_eq!(
            error.message,
            "`/proc/version` gave more than the 0 bytes that it had when it was opened: it grew while it was being \
             read, or is no ordinary file"
        );
    }

    #[test]
    fn the_last_try_is_reported_whatever_came_of_it() {
        use super::super::{ExecutorError, LastTry};
        let told = |last| ExecutorError::LeaseEnded { lease_s: 3, last }.to_string();
        assert_eq!(
            told(LastTry::default()),
            "no dispatcher answered for 3 s; a try to connect is still without an answer"
        );
        assert_eq!(told(LastTry::Failed("no".into())), "no dispatcher answered for 3 s; the last try: no");
    }
}
