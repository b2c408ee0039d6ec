//! A box for programs of strangers: what somebody else has a machine run sees its own folder and the machine's programs, and nothing
//! else of the machine.
//!
//! The box is made by bubblewrap (`bwrap`), as containers of tasks are (`container.rs` in `eyas-runner`). In it a program finds
//!
//! | what | how |
//! |---|---|
//! | its folder, at the path that it has on the machine | it may write there; it is the working directory and `HOME` |
//! | `/usr`, `/opt`, `/bin`, `/sbin`, `/lib*` | read-only |
//! | of `/etc`, what programs need to run ([`OF_ETC`]) | read-only |
//! | folders that the machine's owner has named | read-only |
//! | `/tmp` | empty, and gone with the program |
//! | `/dev` | `null`, `zero`, `full`, `random`, `urandom` and terminals |
//! | `/proc` | the processes of the box |
//! | the network | none |
//! | its user | `nobody`, without capabilities |
//!
//! Where the process that starts it is root, the program really is the user [`NOBODY`]: bubblewrap makes the box as root, and `setpriv`
//! gives root up in it. For any other user the box has a namespace of users, in which the program has that number and the machine sees
//! that user.
//!
//! Source: the identity box of `Wozniak06` §III-C.3: "The file server used in this work allows the user to execute jobs inside an isolated
//! 'identity box'". Deviation: there a visitor has an identity that access lists know; here a program has none.

use eyas_text::{line_of, shown, shown_path};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user and the group that no file belongs to.
pub const NOBODY: u32 = 65534;

/// Folders of the system that programs see.
const SYSTEM: [&str; 9] =
    ["/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Files and folders of `/etc` without which common programs do not run.
pub const OF_ETC: [&str; 15] = [
    "alternatives",
    "fonts",
    "group",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "perl",
    "ssl/openssl.cnf",
    "R",
];

/// What makes boxes on this machine.
pub struct StrangerBox {
    bubblewrap: PathBuf,
    /// What gives root up, where this process is root.
    setpriv: Option<PathBuf>,
    /// Folders that the owner of the machine lets programs see.
    shown: Vec<PathBuf>,
}

impl StrangerBox {
    /// * `shown`: further folders that programs see, by their whole paths.
    ///
    /// # Errors
    /// A sentence: the machine lacks a program that the box needs.
    pub fn find(shown: &[PathBuf]) -> Result<StrangerBox, String> {
        let found = |name: &str| in_path(name).next();
        let bubblewrap = found("bwrap").ok_or(
            "programs of others run in a box, and this machine has no program bwrap: install bubblewrap (apt install bubblewrap, dnf \
             install bubblewrap)",
        )?;
        let is_root = rustix::process::geteuid().is_root();
        let setpriv = is_root.then(|| {
            found("setpriv").ok_or(
                "programs of others do not run as root, and this machine has no program setpriv: install util-linux",
            )
        });
        Ok(StrangerBox { bubblewrap, setpriv: setpriv.transpose()?, shown: shown.to_vec() })
    }

    /// Makes a box and runs nothing of importance in it.
    ///
    /// * `folder`: a folder that the box shows.
    ///
    /// # Errors
    /// A sentence: this machine does not let bubblewrap make the box, or cannot run programs in it.
    pub fn check(&self, folder: &Path) -> Result<(), String> {
        let program = self.program("true", folder, folder)?;
        let mut command = self.command(&program, folder, folder);
        let done = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", shown_path(&self.bubblewrap)))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(format!(
                "this machine does not let bwrap make the box in which programs of others run: {}",
                line_of(String::from_utf8_lossy(&done.stderr).trim())
            )),
        }
    }

    /// Makes what is in a folder the program's own, so that it may write there.
    ///
    /// # Errors
    /// The owner cannot be changed.
    pub fn give(&self, folder: &Path) -> io::Result<()> {
        match self.setpriv {
            Some(_) => give(folder),
            None => Ok(()),
        }
    }

    /// The path of a program in the box.
    ///
    /// * `folder`: the program's folder; a path that is not absolute begins there.
    /// * `hidden`: a folder of which nothing but `folder` is shown.
    ///
    /// # Errors
    /// A sentence: the box shows no such program.
    pub fn program(&self, name: &str, folder: &Path, hidden: &Path) -> Result<PathBuf, String> {
        let is_seen = |path: &Path| {
            let is_in = |path: &Path| {
                let system = SYSTEM.iter().map(Path::new);
                path.starts_with(folder)
                    || (!path.starts_with(hidden)
                        && system
                            .chain(self.shown.iter().map(PathBuf::as_path))
                            .any(|of| path.starts_with(of)))
            };
            is_in(path) && fs::canonicalize(path).is_ok_and(|whole| is_in(&whole))
        };
        let found = match name.contains('/') {
            true => in_path(folder.join(name)).find(|path| is_seen(path)),
            false => in_path(name).find(|path| is_seen(path)),
        };
        found.ok_or_else(|| {
            let others: Vec<String> = self.shown.iter().map(|path| shown_path(path).to_string()).collect();
            let others = if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) };
            format!(
                "cannot run {}: the box in which programs of others run here shows no such program, only those in /usr, /opt, /bin and \
                 /sbin{others}",
                shown(name)
            )
        })
    }

    /// What runs a program in a new box; its arguments follow.
    ///
    /// * `program`: as [`StrangerBox::program`] gives it.
    /// * `folder`, `hidden`: as there.
    pub fn command(&self, program: &Path, folder: &Path, hidden: &Path) -> Command {
        let mut command = Command::new(&self.bubblewrap);
        // The program ends with the process that has started it, and all that it has started ends with the program.
        command.args([
            "--die-with-parent",
            "--new-session",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
        ]);
        command.args(["--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]);
        match self.setpriv {
            Some(_) => command.args(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]),
            None => {
                let nobody = NOBODY.to_string();
                command.args(["--unshare-user", "--uid", &nobody, "--gid", &nobody])
            }
        };
        for path in SYSTEM {
            match fs::read_link(path) {
                Ok(target) => command.arg("--symlink").arg(target).arg(path),
                Err(_) => command.args(["--ro-bind-try", path, path]),
            };
        }
        command.args(["--dir", "/etc"]);
        for name in OF_ETC {
            let path = Path::new("/etc").join(name);
            command.arg("--ro-bind-try").arg(&path).arg(&path);
        }
        command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]);
        for path in &self.shown {
            make_above(&mut command, path);
            command.arg("--ro-bind").args([path, path]);
        }
        // It may lie in what is shown.
        command.arg("--tmpfs").arg(hidden);
        make_above(&mut command, folder);
        command.arg("--bind").args([folder, folder]).arg("--chdir").arg(folder);
        command.arg("--setenv").arg("HOME").arg(folder).args(["--unsetenv", "TMPDIR"]);
        command.args(["--setenv", "USER", "nobody", "--setenv", "LOGNAME", "nobody", "--"]);
        if let Some(setpriv) = &self.setpriv {
            let nobody = NOBODY.to_string();
            // What bubblewrap makes is root's, and older ones cannot be told otherwise.
            command.args(["/bin/sh", "-c", "chmod 1777 /tmp /dev/shm; exec \"$0\" \"$@\""]);
            command.arg(setpriv).args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--"]);
        }
        command.arg(program);
        command
    }
}

/// Makes the directories above a path in the box. bubblewrap would make them so that root alone may go through them.
fn make_above(command: &mut Command, path: &Path) {
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|path| path.parent().is_some()).collect();
    for path in above.into_iter().rev() {
        command.arg("--dir").arg(path);
    }
}

/// The programs of this name in the folders of `PATH`. What the working folder has is none of them.
fn in_path(name: impl AsRef<OsStr>) -> impl Iterator<Item = PathBuf> {
    eyas_host::programs(name).filter(|path| path.is_absolute())
}

fn give(path: &Path) -> io::Result<()> {
    chown(path, Some(NOBODY), Some(NOBODY))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path())?;
        }
    }
    Ok(())
}
