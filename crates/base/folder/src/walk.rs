//! The files below a directory, for those who read or list them one by one.
//!
//! Links are followed: one to a file counts as a file, and one to a directory as a directory, unless it leads back to one
//! that the walk is in. What cannot be brought is named with the reason, and the others are found all the same. Directories that
//! link to each other have more ways through them than anybody can list, so that a walk enters known directories so often only.

use crate::tree::kind_of;
use eyas_text::{say, shown, shown_bytes};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is named of all that was left out.
const NAMED_MAX: usize = 20;
/// Behind links a walk enters directories so often that it has been in before, by other ways.
pub const AGAIN_MAX: usize = 50_000;

/// Something that is not among the files that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// As it is shown to people.
    pub name: String,
    pub why: String,
}

impl LeftOut {
    pub fn new(name: &str, why: impl ToString) -> LeftOut {
        LeftOut { name: shown(name).to_string(), why: why.to_string() }
    }

    /// `name` need not be UTF-8.
    pub fn of_bytes(name: &[u8], why: impl ToString) -> LeftOut {
        LeftOut { name: shown_bytes(name).to_string(), why: why.to_string() }
    }

    /// Says it on standard error. `n_before`: how many were said before; of many, only the first are named.
    pub fn say(&self, n_before: usize) {
        match n_before {
            0..NAMED_MAX => say!("left out {}: {}", self.name, self.why),
            NAMED_MAX => say!("more are left out, which are not named"),
            _ => {}
        }
    }

    pub fn say_all(all: &[LeftOut]) {
        all.iter().enumerate().for_each(|(n, left_out)| left_out.say(n));
    }
}

/// The reason for a name that is not UTF-8.
pub const NOT_UTF8: &str = "its name is not UTF-8, so no task could name it; rename it";
/// The reason for a link whose target is not there.
pub const NOWHERE: &str = "it is a symbolic link that leads nowhere";

/// The reason for more directories behind links than [`AGAIN_MAX`].
pub const AGAIN: &str =
    "links lead to directories that were listed before, too often for all to be listed again";

/// A directory that may be entered.
#[derive(Clone, Copy)]
pub struct Entered {
    /// Its number on this machine.
    id: (u64, u64),
    is_link: bool,
}

impl Entered {
    const NONE: Entered = Entered { id: (0, 0), is_link: false };
}

/// A directory that a walk is in, with those that it came through.
pub struct Above<'a> {
    here: Entered,
    above: Option<&'a Above<'a>>,
    /// Of the directory where the walk starts; others have nothing in it.
    walked: RefCell<Walked>,
}

/// The directories that a walk has entered, and how often one that it had been in before.
#[derive(Default)]
struct Walked {
    entered: HashSet<(u64, u64)>,
    n_again: usize,
}

impl<'a> Above<'a> {
    pub fn of(directory: &Path) -> io::Result<Above<'static>> {
        let metadata = fs::metadata(directory)?;
        let here = Entered {
            id: (metadata.dev(), metadata.ino()),
            is_link: directory.components().as_path().is_symlink(),
        };
        Ok(Above { here, ..Above::none() })
    }

    /// None: a walk that has entered no directory.
    pub fn none() -> Above<'static> {
        Above { here: Entered::NONE, above: None, walked: RefCell::default() }
    }

    /// In a directory of this one, which [`look`] found.
    pub fn enter(&'a self, here: Entered) -> Above<'a> {
        Above { here, above: Some(self), walked: RefCell::default() }
    }

    pub fn here(&self) -> Entered {
        self.here
    }

    fn has(&self, id: (u64, u64)) -> bool {
        self.here.id == id || self.above.is_some_and(|above| above.has(id))
    }

    /// Whether the walk may enter what it found here. What lies behind no link is entered always.
    fn may_enter(&self, found: Entered) -> bool {
        // How the walk came to its start counts for nothing.
        if let Some(above) = self.above {
            return above.may_enter(Entered { is_link: found.is_link || self.here.is_link, ..found });
        }
        let mut walked = self.walked.borrow_mut();
        if !walked.entered.insert(found.id) && found.is_link {
            walked.n_again += 1;
        }
        !found.is_link || walked.n_again <= AGAIN_MAX
    }
}

/// What a name in a directory stands for, links being followed.
pub enum Kind {
    File,
    Directory(Entered),
    /// A link whose target is not there.
    Nowhere,
    /// Nothing that can be read as a file, and why.
    Neither(String),
}

/// What `entry` is. `above`: the directory that it is in, for a walk that enters what it finds; `None`: it is entered in any case.
pub fn look(entry: &DirEntry, above: Option<&Above<'_>>) -> io::Result<Kind> {
    let kind = entry.file_type()?;
    if kind.is_file() {
        return Ok(Kind::File);
    }
    let metadata = match fs::metadata(entry.path()) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && kind.is_symlink() => {
            return Ok(Kind::Nowhere);
        }
        Err(error) => return Ok(Kind::Neither(error.to_string())),
    };
    let found = Entered { id: (metadata.dev(), metadata.ino()), is_link: kind.is_symlink() };
    Ok(match () {
        () if metadata.is_file() => Kind::File,
        () if !metadata.is_dir() => Kind::Neither(format!("it is {}, and no file", kind_of(&metadata))),
        () if above.is_some_and(|above| above.has(found.id)) => {
            Kind::Neither("it is a symbolic link back to a directory around it".into())
        }
        () if above.is_some_and(|above| !above.may_enter(found)) => Kind::Neither(AGAIN.into()),
        () => Kind::Directory(found),
    })
}

/// What [`files_below`] found.
#[derive(Debug, Default)]
pub struct Below {
    /// The names of the files from the directory on, in no order.
    pub files: Vec<String>,
    pub left_out: Vec<LeftOut>,
    /// The directories in which nothing was found, as the files; the first one itself has an empty name.
    pub empty: Vec<String>,
}

/// All files below `directory`. `skips` says by path and last name what does not count.
///
/// # Errors
/// The directory itself cannot be read. One below that cannot is left out.
pub fn files_below(directory: &Path, skips: &mut dyn FnMut(&Path, &OsStr) -> bool) -> io::Result<Below> {
    let mut below = Below::default();
    list(directory, "", &Above::of(directory)?, skips, &mut below)?;
    Ok(below)
}

fn list(
    directory: &Path,
    prefix: &str,
    above: &Above<'_>,
    skips: &mut dyn FnMut(&Path, &OsStr) -> bool,
    below: &mut Below,
) -> io::Result<()> {
    let n_found = |below: &Below| below.files.len() + below.left_out.len() + below.empty.len();
    let n_before = n_found(below);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if skips(&path, &name) {
            continue;
        }
        let left_out = |why: &dyn ToString| LeftOut::of_bytes(path.as_os_str().as_bytes(), why.to_string());
        let Some(name) = name.to_str() else {
            below.left_out.push(left_out(&NOT_UTF8));
            continue;
        };
        match look(&entry, Some(above))? {
            Kind::File => below.files.push(format!("{prefix}{name}")),
            Kind::Nowhere => below.left_out.push(left_out(&NOWHERE)),
            Kind::Neither(why) => below.left_out.push(left_out(&why)),
            Kind::Directory(found) => {
                let listed = list(&path, &format!("{prefix}{name}/"), &above.enter(found), skips, below);
                match listed {
                    // It was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => below.left_out.push(left_out(&format!("cannot list it: {error}"))),
                    Ok(()) => {}
                }
            }
        }
    }
    if n_found(below) == n_before {
        below.empty.push(prefix.trim_end_matches('/').to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_but_not_in_circles_and_the_rest_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("real/deep")).unwrap();
        fs::create_dir_all(top.join("real/bare/inner")).unwrap();
        fs::create_dir_all(dir.path().join("far")).unwrap();
        for name in ["top/real/deep/a", "far/b", "top/real/.part", "far/c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        symlink("../far", top.join("linked")).unwrap();
        symlink("../far/c", top.join("file")).unwrap();
        symlink("..", top.join("real/up")).unwrap();
        symlink("../top", dir.path().join("far/back")).unwrap();
        symlink("nowhere", top.join("lost")).unwrap();
        fs::write(top.join(OsStr::from_bytes(b"\xff")), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
        let mut below = files_below(&top, &mut |_, name| name == ".part").unwrap();
        below.files.sort();
        assert_eq!(below.files, ["file", "linked/b", "linked/c", "real/deep/a"]);
        assert_eq!(below.empty, ["real/bare/inner"]);
        assert_eq!(files_below(&top.join("real/bare/inner"), &mut |_, _| false).unwrap().empty, [""]);
        let mut said: Vec<String> = below
            .left_out
            .iter()
            .map(|left| format!("{}: {}", left.name.rsplit('/').next().unwrap_or_default(), left.why))
            .collect();
        said.sort();
        let back = "it is a symbolic link back to a directory around it";
        let expect = [
            format!("back`: {back}"),
            format!("lost`: {NOWHERE}"),
            "socket`: it is a socket, and no file".into(),
            format!("up`: {back}"),
        ];
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(expect.iter().all(|line| said.contains(line)), "{said:?}");
        assert!(said.iter().any(|line| line.ends_with(NOT_UTF8)), "{said:?}");
        assert!(files_below(&top.join("none"), &mut |_, _| false).is_err());
    }

    /// Nine directories that link to each other have a million ways through them.
    #[test]
    fn directories_that_link_to_each_other_are_listed_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: u32| dir.path().join(format!("d{i}"));
        for i in 0..9 {
            fs::create_dir(path(i)).unwrap();
            fs::write(path(i).join("file"), "").unwrap();
            (0..9).filter(|j| *j != i).for_each(|j| symlink(path(j), path(i).join(format!("l{j}"))).unwrap());
        }
        let below = files_below(dir.path(), &mut |_, _| false).unwrap();
        // Each directory is entered for the first time once, behind a link or not.
        assert!((AGAIN_MAX..AGAIN_MAX + 18).contains(&below.files.len()), "{}", below.files.len());
        assert!((0..9).all(|i| below.files.contains(&format!("d{i}/file"))), "what is no link is listed");
        assert!(below.left_out.iter().any(|left| left.why == AGAIN));
    }
}
