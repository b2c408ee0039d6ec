//! The catalog that a command means, who asks, and what time it is.

use crate::{Exit, Fault};
use eyas_catalog::{Caller, Catalog, Compared, Error, Key, Reader};
use eyas_runtime::machine::{host_name, names_of_host};
use eyas_text::shown_path;
use std::path::PathBuf;
use std::sync::Arc;

/// A catalog that was opened for a command.
pub struct Opened {
    pub catalog: Catalog,
    pub caller: Caller,
    pub now_ms: i64,
}

impl Opened {
    /// Begins to read a version; copies on this machine come first.
    pub fn reader(&self, key: &Key) -> Result<Reader<'_>, Fault> {
        let names = names_of_host(&host_name());
        let reader = self.catalog.reader(&self.caller, key, self.now_ms)?;
        Ok(reader.near_first(&|host| names.iter().any(|own| own == host))?)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let exit = match error {
            Error::Unreached { .. } | Error::Failed(_) | Error::Full { .. } => Exit::Other,
            Error::Newer { .. } => Exit::BadInput,
            ref error if error.is_of_database() => Exit::Other,
            _ => Exit::BadInput,
        };
        Fault::new(exit, error)
    }
}

pub fn open(db: Option<&str>) -> Result<Opened, Fault> {
    let now_ms = now_ms();
    let catalog = reaching(Catalog::open(&url(db)?, now_ms)?);
    Ok(Opened { catalog, caller: caller(), now_ms })
}

/// A catalog that reaches stores on other machines, too.
pub fn reaching(catalog: Catalog) -> Catalog {
    catalog.reaching(Box::new(eyas_site::Stores))
}

/// Which files this user's commands have compared with their digests lately; `None`: nothing can be noted there.
pub fn compared() -> Option<Arc<Compared>> {
    compared_file().and_then(|path| Compared::open(&path).ok()).map(Arc::new)
}

/// Where it is noted which files were compared with their digest: it may be removed at any time.
fn compared_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    // The specification has relative paths ignored.
    caches.is_absolute().then(|| caches.join("eyas/compared"))
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    (eyas_runtime::clock::now().0 / 1_000_000) as i64
}

/// Whoever runs this program, by the name that the system knows. The rights to the database are the system's or the
/// server's to check.
pub fn caller() -> Caller {
    // SAFETY: a plain query.
    let uid = unsafe { libc::getuid() };
    Caller::user(user_name(uid).unwrap_or_else(|| format!("uid{uid}")))
}

fn user_name(uid: libc::uid_t) -> Option<String> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid, and the length is that of the buffer.
    let status =
        unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has filled the entry, whose name ends in a NUL byte within the buffer.
    let name = unsafe { std::ffi::CStr::from_ptr((*found).pw_name) };
    Some(name.to_string_lossy().into_owned())
}

/// The catalog that is meant, by option or variable, or this user's.
pub fn url(db: Option<&str>) -> Result<String, Fault> {
    match db {
        Some(url) => Ok(url.to_owned()),
        None => Ok(format!("sqlite:{}", folder()?.join("catalog.db").display())),
    }
}

/// This user's folder for what is kept for good: `$XDG_DATA_HOME/eyas`. It is made where it is not there.
pub fn folder() -> Result<PathBuf, Fault> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    let Some(home) = home else {
        let message = "neither XDG_DATA_HOME nor HOME is set, so there is no folder for the catalog";
        return Err(Fault::new(Exit::BadInput, message).hint("name a catalog: --db sqlite:PATH"));
    };
    let folder = home.join("eyas");
    std::fs::create_dir_all(&folder).map_err(|error| {
        let reason = crate::print::reason(&error);
        Fault::new(Exit::Other, format!("cannot make the folder {}: {reason}", shown_path(&folder)))
    })?;
    Ok(folder)
}
