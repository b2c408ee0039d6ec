//! The catalog that a command means, who asks, and what time it is.

use crate::{Exit, Fault};
pub use eyas_at_data::{Opened, own_host};
use eyas_catalog::{Caller, Catalog, Compared, Error};
use eyas_text::{say, shown_path};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a command waits for a database that takes no connection. Each try to open it waits for some of this time.
const BUSY_MAX: Duration = Duration::from_secs(50);

pub fn open(db: Option<&str>) -> Result<Opened, Fault> {
    let now_ms = now_ms();
    let catalog = reaching(patiently(&url(db)?, now_ms)?);
    let caller = catalog.caller(caller())?;
    Ok(Opened { catalog, caller, now_ms })
}

/// Opens a catalog, and waits where its database takes no connection now.
fn patiently(url: &str, now_ms: i64) -> eyas_catalog::Result<Catalog> {
    let begun = Instant::now();
    let mut is_first = true;
    loop {
        match Catalog::open(url, now_ms) {
            Err(Error::Busy { database, reason }) if begun.elapsed() < BUSY_MAX => {
                if std::mem::take(&mut is_first) {
                    say!(
                        "{database} takes no connection now ({reason}); this command waits for up to a minute"
                    );
                }
            }
            opened => return opened,
        }
    }
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
    let caches = eyas_cluster::dirs::user_folder("XDG_CACHE_HOME", ".cache")?;
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
    let uid = rustix::process::getuid().as_raw();
    // Without it, nothing says that there are namespaces.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_else(|_| WHOLE_MAP.into());
    if is_whole(&map) {
        return Caller::user(user_of(uid).map_or_else(|| format!("uid{uid}"), |(name, _)| name));
    }
    let outside = outside(uid, &map);
    Caller::user(outside.and_then(|id| known_outside(id, uid, &map)).unwrap_or_else(|| match outside {
        Some(id) => format!("uid{id}@namespace"),
        None => "nobody@namespace".into(),
    }))
}

/// The user ids of a system outside of user namespaces, as `/proc/self/uid_map` says them. Only where all ids are those of the system,
/// a namespace has this, too.
const WHOLE_MAP: &str = "0 0 4294967295";

fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(WHOLE_MAP.split(' '))
}

/// What a user of a user namespace is around it.
fn outside(uid: libc::uid_t, map: &str) -> Option<libc::uid_t> {
    map.lines().find_map(|line| {
        let words: Vec<u32> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [first, outer, n] = words[..] else { return None };
        let place = uid.checked_sub(first)?;
        if place < n { outer.checked_add(place) } else { None }
    })
}

/// The name of the user with the number `id` around a user namespace, in which that is `uid`. Whoever makes a namespace chooses the ids
/// that it has, root's too, may make others in it, and may bring a file with names. So the file has to be of somebody outside, and the
/// user's home folder of this user.
fn known_outside(id: libc::uid_t, uid: libc::uid_t, map: &str) -> Option<String> {
    let names = std::fs::metadata("/etc/passwd").ok()?;
    let (name, home) = user_of(id)?;
    let home = std::fs::symlink_metadata(home).ok()?;
    (outside(names.uid(), map).is_none() && home.uid() == uid).then_some(name)
}

/// The name and the home folder of a user.
fn user_of(uid: libc::uid_t) -> Option<(String, PathBuf)> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid, and the length is that of the buffer.
    let status =
        unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has filled the entry, whose texts end in a NUL byte within the buffer.
    let (name, home) = unsafe { (CStr::from_ptr((*found).pw_name), CStr::from_ptr((*found).pw_dir)) };
    let home = PathBuf::from(std::ffi::OsStr::from_bytes(home.to_bytes()));
    Some((name.to_string_lossy().into_owned(), home))
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
    let home = eyas_cluster::dirs::user_folder("XDG_DATA_HOME", ".local/share");
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

#[cfg(test)]
mod tests {
    use super::{is_whole, outside};

    #[test]
    fn ids_of_a_namespace_are_not_those_of_the_system() {
        assert!(is_whole("         0          0 4294967295\n"));
        // A namespace in a namespace does not show the ids of the system.
        for map in ["0 0 1\n", "0 1000 1\n", "0 0 4294967295\n1 1 1\n", ""] {
            assert!(!is_whole(map), "{map}");
        }
        let map = "0 1000 1\n1 100000 65536\n";
        assert_eq!(
            [0, 7, 65536, 65537].map(|uid| outside(uid, map)),
            [Some(1000), Some(100_006), Some(165_535), None]
        );
        assert_eq!(outside(0, ""), None);
    }
}
