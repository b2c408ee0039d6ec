//! The clusters on this machine, and the cluster that a command means if it names none.
//!
//! `$STATE/clusters` has a link to the folder of each cluster that was used here: by `eyas up`, and by `eyas
//! run` and `eyas map`, whose clusters last as long as they do. A link's name begins with the time when the
//! cluster was last given work, so the newest comes first. A link is removed when another run takes the
//! folder, or when the folder is gone. Whether a dispatcher listens there is found out by asking it.
//!
//! Commands that only look (`status`, `top`, `logs`, `explain`, `tasks`, `cancel`, `report`) mean a cluster that has runs of their own
//! folder ([`given`]), and one that is up before one that has ended; then a run that goes on; then the newest cluster, whoever started
//! it. Commands that give work or end a cluster (`submit`, `wait`, `down`) mean the newest cluster of `eyas up`.

use crate::args::JoinArgs;
use crate::dirs::{default_cluster_dir, dispatcher_dir, state_dir};
use crate::{Exit, Fault, given, kept};
use eyas_client::{Choice, JoinFile};
use eyas_runtime::dispatcher::JOIN_FILE;
use eyas_runtime::locks::{dispatcher_lock, holder_of};
use eyas_terms::RunId;
use eyas_text::shown_path;
use eyas_wire::identity::Join;
use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of clusters that are remembered; the oldest are forgotten first.
const KEPT_MAX: usize = 64;

/// The command that started a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `eyas up`: the cluster stays.
    Up,
    /// `eyas run` or `eyas map`, in the process of that number: the cluster ends with it.
    Run(u32),
}

/// A cluster that was used on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownCluster {
    /// The folder that contains the folders of the dispatchers and nodes.
    pub dir: PathBuf,
    pub kind: Kind,
}

impl KnownCluster {
    pub fn join(&self) -> PathBuf {
        dispatcher_dir(&self.dir).join(JOIN_FILE)
    }

    pub fn join_file(&self) -> JoinFile {
        JoinFile::new(self.join(), Choice::Found)
    }

    /// Whether a dispatcher listens at the address in the join file. A dispatcher that was killed leaves its
    /// file behind.
    pub fn is_up(&self) -> bool {
        let join = self.join();
        join.exists() && listens(&join)
    }

    /// Its runs that were given from the working folder, the newest first.
    pub fn runs_from_here(&self) -> Vec<RunId> {
        given::from_here(&dispatcher_dir(&self.dir))
    }

    /// Whether it is up or has a run in its log.
    pub fn can_be_asked(&self) -> bool {
        self.is_up() || self.has_run()
    }

    /// Whether the cluster's log has a run.
    fn has_run(&self) -> bool {
        let dirs = crate::dirs::member_dirs(dispatcher_dir(&self.dir));
        eyas_report::newest_run(&dirs).is_ok_and(|run| run.is_some())
    }

    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Up => format!("the cluster of `eyas up` in {}", shown_path(&self.dir)),
            Kind::Run(pid) => format!("the run of process {pid} in {}", shown_path(&self.dir)),
        }
    }
}

fn links_dir() -> Result<PathBuf, Fault> {
    Ok(state_dir()?.join("clusters"))
}

/// The name of a link: the time, and the kind of cluster.
fn name_of(now_ms: u64, kind: Kind) -> String {
    match kind {
        Kind::Up => format!("{now_ms:015}-{}-up", std::process::id()),
        Kind::Run(pid) => format!("{now_ms:015}-{pid}-run"),
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    let mut parts = name.split('-').skip(1);
    let pid = parts.next()?.parse().ok()?;
    match parts.next()? {
        "up" => Some(Kind::Up),
        "run" => Some(Kind::Run(pid)),
        _ => None,
    }
}

/// Remembers that the cluster in `dir`, an absolute path, is given work now.
pub fn remember(dir: &Path, kind: Kind) -> Result<(), Fault> {
    let links = links_dir()?;
    fs::create_dir_all(&links)?;
    let now_ms = eyas_runtime::clock::now().0 / 1_000_000;
    let fresh = links.join(name_of(now_ms, kind));
    let _ = fs::remove_file(&fresh);
    std::os::unix::fs::symlink(dir, &fresh)?;
    let mut seen = 0;
    for (link, target) in links_newest_first(&links) {
        let is_other = target.as_deref() == Some(dir) && link != fresh;
        let is_gone = target.is_none_or(|target| !target.exists());
        seen += 1;
        if is_other || is_gone || seen > KEPT_MAX {
            let _ = fs::remove_file(link);
        }
    }
    Ok(())
}

/// Remembers that the cluster with this folder of its dispatcher was given work, if it is a cluster of this machine.
pub fn remember_work(dispatcher_dir: &Path) {
    let Some(dir) = dispatcher_dir.parent() else { return };
    let known = all().unwrap_or_default().into_iter().find(|known| known.dir == dir);
    if let Some(known) = known {
        let _ = remember(dir, known.kind);
    }
}

fn links_newest_first(links: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(links).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.sort();
    all.into_iter().rev().map(|link| (link.clone(), fs::read_link(link).ok())).collect()
}

/// All clusters that were used here and whose folder still exists, newest first.
pub fn all() -> Result<Vec<KnownCluster>, Fault> {
    let mut found: Vec<KnownCluster> = vec![];
    for (link, target) in links_newest_first(&links_dir()?) {
        let kind = link.file_name().and_then(|name| kind_of(name.to_str()?));
        if let (Some(dir), Some(kind)) = (target.filter(|dir| dir.exists()), kind) {
            found.push(KnownCluster { dir, kind });
        }
    }
    let default = default_cluster_dir()?;
    let is_known =
        |known: &KnownCluster| known.dir == default || default.canonicalize().is_ok_and(|d| d == known.dir);
    if dispatcher_dir(&default).exists() && !found.iter().any(is_known) {
        found.push(KnownCluster { dir: default, kind: Kind::Up });
    }
    Ok(found)
}

/// The clusters that are up, in the order of [`as_meant`].
pub fn running() -> Result<Vec<KnownCluster>, Fault> {
    Ok(as_meant()?.into_iter().filter(KnownCluster::is_up).collect())
}

/// All clusters in the order in which a looking command means them: see the module.
pub fn as_meant() -> Result<Vec<KnownCluster>, Fault> {
    let mut all = all()?;
    all.sort_by_cached_key(|known| match (known.runs_from_here().is_empty(), known.kind) {
        (false, _) => u8::from(!known.is_up()),
        (true, Kind::Run(_)) if known.is_up() => 2,
        (true, _) => 3,
    });
    Ok(all)
}

/// The cluster that a looking command means.
pub enum Meant {
    /// The cluster with this join file.
    Live(JoinFile),
    /// A cluster that is no longer up; its folder has its log.
    Ended(KnownCluster),
}

/// The cluster that a looking command means: the named one, else the first of [`as_meant`] that can be asked or has a run.
pub fn find(join: &JoinArgs) -> Result<Meant, Fault> {
    if let Some(file) = join.named() {
        return Ok(Meant::Live(file));
    }
    match newest()? {
        None => Err(none_up()),
        Some(newest) if newest.is_up() => Ok(Meant::Live(newest.join_file())),
        Some(newest) => Ok(Meant::Ended(newest)),
    }
}

/// The first of [`as_meant`] that is up or has a run in its log.
pub fn newest() -> Result<Option<KnownCluster>, Fault> {
    Ok(as_meant()?.into_iter().find(KnownCluster::can_be_asked))
}

/// The join file for a command that looks at a running cluster: the given one, else that of the newest
/// running cluster.
pub fn look_join(join: &JoinArgs) -> Result<JoinFile, Fault> {
    if let Some(file) = join.named() {
        return Ok(file);
    }
    let running = running()?;
    match &running[..] {
        [] => Err(none_up_now()),
        [one] => Ok(one.join_file()),
        [newest, others @ ..] => {
            eyas_text::say!(
                "note: this is {}; {} more: `eyas status --all` shows all",
                newest.describe(),
                match others.len() {
                    1 => "there is 1".into(),
                    n => format!("there are {n}"),
                }
            );
            Ok(newest.join_file())
        }
    }
}

/// The join file for a command that gives work, waits or ends a cluster: the given one, else that of the
/// newest cluster of `eyas up`.
pub fn work_join(join: &JoinArgs) -> Result<JoinFile, Fault> {
    if let Some(file) = join.named() {
        return Ok(file);
    }
    let ups: Vec<KnownCluster> = all()?.into_iter().filter(|known| known.kind == Kind::Up).collect();
    if let Some(up) = ups.iter().find(|up| up.is_up()) {
        return Ok(up.join_file());
    }
    // A cluster whose dispatcher is alive but does not listen yet is being started.
    match ups.iter().find(|up| holder_of(&dispatcher_lock(&dispatcher_dir(&up.dir))).is_some()) {
        Some(starting) => Ok(starting.join_file()),
        None => Err(none_up_for_work()),
    }
}

/// As [`none_up_now`], and a word about `eyas run` or `eyas map` where one has a cluster of its own.
fn none_up_for_work() -> Fault {
    match running().unwrap_or_default().first() {
        Some(of_run) => Fault::new(Exit::Cluster, "no cluster of `eyas up` is up").hint(format!(
            "{} is going on, and ends with its own tasks; --join {} names it",
            of_run.describe(),
            of_run.join().display()
        )),
        None => none_up_now(),
    }
}

/// The join file of the cluster of `eyas up` that was given work last, if it was killed. `is_meant` is asked about the folder of
/// its dispatcher.
pub fn killed_join(is_meant: impl Fn(&Path) -> bool) -> Option<JoinFile> {
    let known = all().ok()?.into_iter().find(|known| known.kind == Kind::Up)?;
    (known.join().exists() && is_meant(&dispatcher_dir(&known.dir))).then(|| known.join_file())
}

pub fn none_up() -> Fault {
    Fault::new(Exit::Cluster, "no cluster is up")
        .hint("start one with `eyas up`, or name one with --join FILE or EYAS_JOIN")
}

/// The message when no dispatcher listens; it mentions a cluster that was killed.
fn none_up_now() -> Fault {
    let newest_up = all().unwrap_or_default().into_iter().find(|known| known.kind == Kind::Up);
    match newest_up.filter(|known| known.join().exists()) {
        Some(known) => {
            let is_default = default_cluster_dir().is_ok_and(|default| default == known.dir);
            let how = match is_default {
                true => "`eyas up`".to_string(),
                false => format!("`eyas up --dir {}`", known.dir.display()),
            };
            let with = match kept::provider(&dispatcher_dir(&known.dir)) {
                Some(kind) => format!(" with the options that it had (--provider {kind} and the others)"),
                None => String::new(),
            };
            Fault::new(Exit::Cluster, "no cluster is up; the last one was ended without a word")
                .hint(format!("{how}{with} starts it again and goes on with what was submitted to it"))
        }
        None => none_up(),
    }
}

/// Whether a dispatcher listens at the address in the file.
fn listens(join: &Path) -> bool {
    let Ok(join) = Join::read(join) else { return true };
    let answers = |address: &String| {
        let at = address.to_socket_addrs();
        at.is_ok_and(|mut all| all.any(|at| TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok()))
    };
    // Any dispatcher of a group counts.
    std::iter::once(&join.address).chain(&join.members).any(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_tell_who_and_sort_by_time() {
        let (up, run) = (name_of(7, Kind::Up), name_of(123_456_789_012, Kind::Run(42)));
        assert_eq!((kind_of(&up), kind_of(&run)), (Some(Kind::Up), Some(Kind::Run(42))));
        assert!(up < run);
        assert_eq!(kind_of("something else"), None);
    }
}
