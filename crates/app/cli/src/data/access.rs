//! `eyas access` and `eyas mount`: files of data sets under names that every program can open.
//!
//! With `access` the names `/eyas/KEY/path` exist for one program and what it starts, and what it writes below `/eyas/new` becomes a
//! data set. With `mount` a data set, or all of them, are a directory for everybody of this user. Either way a byte is verified before
//! a program sees it.

use super::dead::refuse_dead;
use super::open::{Opened, compared, now_ms, open, own_host};
use super::outside::Terminal;
use super::put::{say_put, tags_of};
use crate::args::some_bytes;
use crate::fault::bad;
use crate::print::{plural, reason};
use crate::runtimes::client_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use clap::Args;
use eyas_access::{DataFiles, Filter, Keeper, Mount, Notified, Options};
use eyas_at_data::program::{OnSignal, Temporary, run_beginning};
use eyas_at_data::{label_or_new, target};
use eyas_catalog::{Access, Key, NEW, Put, Tag};
use eyas_text::{say, shown, shown_path};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a program sees data sets, and where it writes new ones.
const ROOT: &str = "eyas";
/// The kernel's door to file systems in user space.
const FUSE: &str = "/dev/fuse";
/// How often a mount that waits for its end is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct AccessArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    db: Option<String>,
    /// A tag of the data set that is made of /eyas/new (may be given more than once)
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    tags: Vec<String>,
    /// The label of that data set; one that is there gets a new version. Without it, a new one is made up
    #[arg(long)]
    label: Option<String>,
    /// How many copies of it there should be; `eyas data repair` makes them [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: Option<u32>,
    /// The site that gets it [default: one on this machine, else an idle one with most room]
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// Memory for parts of files that were read
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = some_bytes)]
    memory: u64,
    /// How the program is shown data sets: by a file system of the machine, or by calls that wait until a file is complete
    /// [default: fuse where the machine allows it, else seccomp]
    #[arg(long, value_name = "WAY")]
    by: Option<By>,
    /// Say which way is taken, and why
    #[arg(long)]
    explain: bool,
    /// The program and its arguments, which may name /eyas/KEY/PATH, /eyas/KEY@VERSION/PATH, /eyas/@SITE/KEY/PATH
    /// for the copy at a site, and /eyas/new/PATH. The command ends with
    /// the program's exit status, or with 128 and the number of the signal that ended it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How a program is shown data sets.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    // A file system: parts of files come when they are read.
    Fuse,
    // Calls of the program that open a file wait until all of it is there.
    Seccomp,
}

/// The data sets that a program is shown.
enum Shown {
    Mounted(Mount),
    Notified(Notified),
}

impl Shown {
    /// How many files the program could not read.
    fn n_unread(&self) -> usize {
        match self {
            Shown::Mounted(mounted) => {
                if mounted.has_ended() {
                    say!("the data sets at /{ROOT} were taken away while the program ran");
                }
                mounted.n_unread() + usize::from(mounted.has_ended())
            }
            Shown::Notified(notified) => notified.n_unread(),
        }
    }

    /// What a process has to do between its fork and the program; it may make plain system calls only.
    fn beginning(&self, filter: Option<Filter>) -> impl Fn() -> io::Result<()> + Send + Sync + use<> {
        let doors = match self {
            Shown::Mounted(_) => files_open_at(Path::new(FUSE)),
            Shown::Notified(_) => vec![],
        };
        move || {
            // As long as somebody has them, the kernel waits for answers, also for those of a command that was killed.
            for door in &doors {
                // SAFETY: nobody uses it in this process.
                unsafe { libc::close(*door) };
            }
            filter.as_ref().map_or(Ok(()), Filter::put_on)
        }
    }
}

#[derive(Args)]
pub struct MountArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    db: Option<String>,
    /// Memory for parts of files that were read
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = some_bytes)]
    memory: u64,
    /// LABEL, LABEL@VERSION, or / for all data sets, each in a directory of its label
    #[arg(value_name = "KEY")]
    key: String,
    /// An empty directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn access(args: &AccessArgs) -> Result<Exit, Fault> {
    let tags = tags_of(&args.tags)?;
    let by = choose(args)?;
    // First of all, as later there are threads.
    eyas_access::enter(ROOT).map_err(|error| {
        let message = format!("no program can be shown data sets on this machine: {}", reason(&error));
        Fault::new(Exit::Other, message)
            .hint("`eyas at-data` gives a program copies of the files that it names")
    })?;
    let temporary = Temporary::new("access")?;
    let keeper = Arc::new(Keeper::begin(|| remove_unseen(&temporary.path, &Path::new("/").join(ROOT)))?);
    let Opened { catalog, caller, .. } = open(args.db.as_deref())?;
    // What cannot be written in the end is refused before the program runs.
    let site = match &args.site {
        Some(site) => Some(site.clone()),
        None => target(&catalog).ok(),
    };
    if let (Some(site), true) = (&site, args.site.is_some()) {
        catalog.holding(site)?;
    }
    if let Some(label) = &args.label {
        catalog.require_writable(&caller, label)?;
    }
    let new = temporary.folder(NEW)?;
    let root = Path::new("/").join(ROOT);
    let options = options(None, Some(NEW.into()), args.memory);
    let access = Access { catalog, caller };
    let cannot_show = |error: io::Error| cannot_mount(&root, &error);
    let (shown_sets, filter) = match by {
        By::Fuse => (Shown::Mounted(mounted(DataFiles::new(access, options)?, &root)?), None),
        By::Seccomp => {
            let view = temporary.folder("view")?;
            fs::create_dir(view.join(NEW))?;
            eyas_access::bind_read_only(&view, &root).map_err(cannot_show)?;
            let (notified, filter) = Notified::begin(access, options, &view, &root, keeper.clone())?;
            (Shown::Notified(notified), Some(filter))
        }
    };
    eyas_access::bind_below_own(&new, &root.join(NEW))
        .map_err(|error| cannot_mount(&root.join(NEW), &error))?;

    // A directory at which something is shown cannot be removed.
    let hide = move || {
        keeper.let_go();
        eyas_access::unbind(&root);
    };
    let on_signal = OnSignal::listen_and(&Terminal, temporary.path.clone(), hide.clone())?;
    let here = crate::dirs::working()?;
    let ended = run_beginning(&args.command, &here, &here, &on_signal, shown_sets.beginning(filter));
    let n_unread = shown_sets.n_unread();
    drop(shown_sets);
    hide();
    let ended = on_signal.unless_ending(ended)?;
    let program = shown(&args.command[0]);
    let has_written = fs::read_dir(&new)?.next().is_some();
    let lost = if has_written { "; no data set was made" } else { "" };
    if !ended.success() {
        // A program that was asked to end may end well, and its work is not done.
        let exit = if ended.asked { Exit::Interrupted } else { Exit::Own(ended.code()) };
        let asked = if ended.asked { "this command was asked to end: " } else { "" };
        return Err(Fault::new(exit, format!("{asked}{program} ended with {}{lost}", ended.text())));
    }
    if n_unread > 0 {
        let what = plural(n_unread as u64, "file");
        let message = format!("{program} ended well, but {what} could not be read{lost}");
        return Err(Fault::new(Exit::TasksFailed, message));
    }
    if !has_written {
        if args.label.is_some() || !tags.is_empty() {
            return Err(Fault::new(
                Exit::TasksFailed,
                format!("{program} wrote nothing below /{ROOT}/{NEW}; no data set was made"),
            ));
        }
        return Ok(Exit::Good);
    }
    let made = make(args, &tags, site, &new);
    if made.is_err() {
        // The program has done its work.
        say!("what {program} wrote is in {}", shown_path(&new));
        temporary.keep();
    }
    on_signal.unless_ending(made)
}

/// Removes the folder of a command that was killed, which may still be shown in its view.
fn remove_unseen(folder: &Path, root: &Path) {
    eyas_access::unbind(root);
    let _ = eyas_runner::sandbox::remove_tree(folder);
}

/// Makes a data set of what the program has written.
fn make(args: &AccessArgs, tags: &[Tag], site: Option<String>, new: &Path) -> Result<Exit, Fault> {
    // The program has run, so its input was right, and the catalog was there.
    let failed = |error: eyas_catalog::Error| {
        // A path is said as the program knows it.
        let text = error.to_string().replace(&new.display().to_string(), &format!("/{ROOT}/{NEW}"));
        let exit = if error.is_temporary() { Exit::Other } else { Exit::TasksFailed };
        Fault::new(exit, format!("{text}; no data set was made"))
    };
    // The connection from before may have been idle for days.
    let Opened { catalog, caller, .. } = open(args.db.as_deref())
        .map_err(|fault| Fault::new(Exit::Other, format!("{}; no data set was made", fault.message)))?;
    let catalog = catalog.remembering(compared());
    let site = site.map_or_else(|| target(&catalog), Ok).map_err(failed)?;
    let holding = catalog.holding(&site).map_err(failed)?;
    let label = label_or_new(args.label.as_deref())?;
    let sources = [new.to_owned()];
    catalog.make_room_for(&*holding, &sources, now_ms()).map_err(failed)?;
    let what =
        Put { sources: &sources, is_made: true, label: &label, copies: args.copies, tags, now_ms: now_ms() };
    let done = eyas_catalog::put(&catalog, &*holding, &caller, &what, &mut |_, _| {}).map_err(failed)?;
    let detail = format!("version {} by {}", done.key.version.unwrap_or(0), args.command.join(" "));
    catalog.note(&caller, &done.key, "access", &detail, now_ms())?;
    say_put(&catalog, &caller, &done, &site)?;
    Ok(Exit::Good)
}

pub fn mount(args: &MountArgs) -> Result<Exit, Fault> {
    has_fuse()?;
    refuse_dead(&args.directory)?;
    let key = match args.key.as_str() {
        "/" => None,
        key => Some(key.strip_prefix('/').unwrap_or(key).parse::<Key>()?),
    };
    let is_empty = fs::read_dir(&args.directory).map(|mut entries| entries.next().is_none());
    match is_empty {
        Ok(true) => {}
        Ok(false) => {
            return Err(bad(format!(
                "{} has files in it: name an empty directory",
                shown_path(&args.directory)
            )));
        }
        Err(error) => return Err(cannot_mount(&args.directory, &error)),
    }
    let Opened { catalog, caller, .. } = open(args.db.as_deref())?;
    let files = DataFiles::new(Access { catalog, caller }, options(key.clone(), None, args.memory))?;
    let runtime = client_runtime();
    let mut asked_to_end = {
        let _guard = runtime.enter();
        AskedToEnd::listen_to_all()?
    };
    let mounted = mounted(files, &args.directory)?;
    let what = key.map_or("all data sets are".to_owned(), |key| format!("`{key}` is"));
    say!("{what} at {}, until this command is ended", shown_path(&args.directory));
    while !mounted.has_ended() {
        let asked = runtime.block_on(async { tokio::time::timeout(LOOK, asked_to_end.next()).await });
        if asked.is_ok() {
            break;
        }
    }
    let n_unread = mounted.n_unread();
    mounted.end(&args.directory);
    if n_unread > 0 {
        let what = plural(n_unread as u64, "file");
        return Err(Fault::new(
            Exit::TasksFailed,
            format!("{what} could not be read by those who wanted to"),
        ));
    }
    Ok(Exit::Good)
}

fn options(key: Option<Key>, empty: Option<String>, memory_bytes: u64) -> Options {
    Options { key, empty, memory_bytes, compared: compared(), host: own_host(), now_ms }
}

/// The files of this process that were opened by a path.
fn files_open_at(path: &Path) -> Vec<RawFd> {
    let Ok(all) = fs::read_dir("/proc/self/fd") else { return vec![] };
    let found = all.flatten().filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == path));
    found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn open_fuse() -> io::Result<()> {
    fs::OpenOptions::new().read(true).write(true).open(FUSE).map(drop)
}

/// # Errors
/// The kernel has no file systems in user space for this user.
fn has_fuse() -> Result<(), Fault> {
    open_fuse().map_err(|error| {
        let message = format!(
            "data sets cannot be shown as files on this machine: {}: {}",
            shown_path(Path::new(FUSE)),
            reason(&error)
        );
        Fault::new(Exit::Other, message)
            .hint("`eyas access` shows them to one program without it; `eyas at-data` gives a program copies of files")
    })
}

/// The way in which a program is shown data sets. It is said where somebody wants to know, or where it is not the usual one.
fn choose(args: &AccessArgs) -> Result<By, Fault> {
    let (by, why) = match (args.by, open_fuse()) {
        (Some(By::Fuse), _) => {
            has_fuse()?;
            (By::Fuse, "you asked for it".to_owned())
        }
        (Some(By::Seccomp), _) => (By::Seccomp, "you asked for it".to_owned()),
        (None, Ok(())) => (By::Fuse, "this machine allows it".to_owned()),
        (None, Err(error)) => {
            (By::Seccomp, format!("{} cannot be used ({})", shown_path(Path::new(FUSE)), reason(&error)))
        }
    };
    if args.explain || (by == By::Seccomp && args.by.is_none()) {
        let (way, what) = match by {
            By::Fuse => ("FUSE", "parts of a file come when they are read"),
            By::Seccomp => ("seccomp", "a file comes as a whole when it is opened"),
        };
        say!("the program sees data sets by {way}, as {why}: {what}");
    }
    Ok(by)
}

fn mounted(files: DataFiles, directory: &Path) -> Result<Mount, Fault> {
    eyas_access::mount(files, directory).map_err(|error| cannot_mount(directory, &error))
}

/// Mounts for users who are not root.
const HELPER: &str = "fusermount3";

fn cannot_mount(directory: &Path, error: &io::Error) -> Fault {
    let fault =
        Fault::new(Exit::Other, format!("cannot mount at {}: {}", shown_path(directory), reason(error)));
    let has_helper = eyas_host::programs(HELPER).next().is_some();
    let may_need_it = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    match may_need_it && !has_helper && directory.is_dir() {
        true => fault.hint(format!(
            "a user who is not root mounts by the program `{HELPER}`, which is not in PATH: install the package fuse3"
        )),
        false => fault,
    }
}
