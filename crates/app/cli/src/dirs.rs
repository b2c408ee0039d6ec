//! Folders on this machine: of this user's state, of the cluster of `eyas up`, and of one embedded run.

use crate::print::reason;
use crate::{Exit, Fault};
use eyas_cluster::dirs::user_folder;
use eyas_text::shown_path;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// This user's folder for clusters and runs that were given none: `$EYAS_STATE`, or one under the
/// system's folder for temporary files. On local disk, because caches live here.
pub fn state_dir() -> Result<PathBuf, Fault> {
    let uid = rustix::process::getuid().as_raw();
    let hint = "set EYAS_STATE to a folder of your own";
    let Some(dir) = std::env::var_os("EYAS_STATE").map(PathBuf::from) else {
        let dir = std::env::temp_dir().join(format!("eyas-{uid}"));
        make_among_others(&dir).map_err(|why| Fault::new(Exit::Other, why).hint(hint))?;
        return Ok(dir);
    };
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot use {} for state: {}", shown_path(&dir), reason(&e)))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(fail)?;
    let meta = std::fs::metadata(&dir).map_err(fail)?;
    if meta.uid() != uid {
        let message = format!("{} belongs to another user", shown_path(&dir));
        return Err(Fault::new(Exit::Other, message).hint(hint));
    }
    Ok(dir)
}

/// Makes a folder of this user's, unless it is there, in one in which everybody makes some. Errors: a sentence; somebody else may
/// have been first, with a folder of theirs or a link to anywhere.
pub fn make_among_others(dir: &Path) -> Result<(), String> {
    let make = || {
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(dir)?.metadata()
    };
    let why_not = match make() {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => {
            "it is a symbolic link or no folder"
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied && dir.exists() => "it belongs to another user",
        Err(e) => return Err(format!("cannot use {}: {}", shown_path(dir), reason(&e))),
        Ok(found) if found.uid() != rustix::process::getuid().as_raw() => "it belongs to another user",
        Ok(found) if found.mode() & 0o022 != 0 => "others may write in it",
        Ok(_) => return Ok(()),
    };
    Err(format!("cannot use {}: {why_not}; remove it", shown_path(dir)))
}

/// The folder of the cluster that `eyas up` starts.
pub fn default_cluster_dir() -> Result<PathBuf, Fault> {
    Ok(state_dir()?.join("cluster"))
}

/// A folder for one embedded run.
pub fn new_run_dir() -> Result<PathBuf, Fault> {
    let runs = state_dir()?.join("runs");
    std::fs::create_dir_all(&runs)?;
    let stamp = eyas_runtime::clock::now().0 / 1_000_000;
    let dir = runs.join(format!("{stamp}-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

/// The folder in which this command was started.
pub fn working() -> Result<PathBuf, Fault> {
    std::env::current_dir().map_err(|e| {
        let message = match e.kind() {
            ErrorKind::NotFound => {
                "the folder in which this command was started has been removed".to_string()
            }
            _ => format!("cannot use the folder in which this command was started: {}", reason(&e)),
        };
        Fault::new(Exit::BadInput, message).hint("change to another folder")
    })
}

/// Where `eyas.toml` may lie, for a command in this folder.
pub fn config_files() -> Result<Vec<PathBuf>, Fault> {
    let home = user_folder("XDG_CONFIG_HOME", ".config");
    Ok(eyas_config::places(&working()?, home.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_among_those_of_others_is_no_link_and_nobody_elses() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("tmp/eyas-1");
        make_among_others(&dir).unwrap();
        make_among_others(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make_among_others(&dir).unwrap_err().ends_with("others may write in it; remove it"));
        fs::remove_dir(&dir).unwrap();
        // Also one that leads to nothing, which would be made there.
        for target in ["nowhere", "."] {
            symlink(target, &dir).unwrap();
            let why = make_among_others(&dir).unwrap_err();
            assert!(why.contains("it is a symbolic link or no folder"), "{why}");
            fs::remove_file(&dir).unwrap();
        }
        assert_eq!(fs::read_dir(tmp.path().join("tmp")).unwrap().count(), 0);
    }
}
