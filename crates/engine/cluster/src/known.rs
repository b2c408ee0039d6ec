//! The clusters of a user on this machine.
//!
//! `$STATE/clusters` has a link to the folder of each cluster that was used here: by `eyas up`, and by `eyas
//! run` and `eyas map`, whose clusters last as long as they do. A link's name begins with the time when the
//! cluster was last given work, so the newest comes first. A link is removed when another run takes the
//! folder, or when the folder is gone. Whether a dispatcher listens there is found out by asking it.
//!
//! Who only looks ([`KnownClusters::as_meant`]) means a cluster that has runs of the working folder ([`given`]), and one that is up
//! before one that has ended; then a run that goes on; then the newest cluster, whoever started it. Who gives work or ends a cluster
//! ([`KnownClusters::for_work`]) means the newest cluster of `eyas up`.

use crate::dirs::{dispatcher_dir, member_dirs};
use crate::given;
use eyas_client::{Choice, JoinFile};
use eyas_runtime::dispatcher::JOIN_FILE;
use eyas_runtime::locks::{dispatcher_lock, holder_of};
use eyas_terms::RunId;
use eyas_wire::identity::Join;
use std::fs;
use std::io;
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
    pub fn dispatcher_dir(&self) -> PathBuf {
        dispatcher_dir(&self.dir)
    }

    /// A dispatcher that was killed leaves its file behind.
    pub fn join_file(&self) -> JoinFile {
        JoinFile::new(self.dispatcher_dir().join(JOIN_FILE), Choice::Found)
    }

    /// Whether a dispatcher listens at the address in the join file.
    pub fn is_up(&self) -> bool {
        let file = self.join_file();
        file.path().exists() && listens(&file)
    }

    /// Whether the cluster was ended without a word: its join file is there. Said of one that is not up.
    pub fn was_killed(&self) -> bool {
        self.join_file().path().exists()
    }

    /// Its runs that were given from the working folder, the newest first.
    pub fn runs_from_here(&self) -> Vec<RunId> {
        given::from_here(&self.dispatcher_dir())
    }

    /// Whether it is up or has a run in its log.
    pub fn can_be_asked(&self) -> bool {
        self.is_up() || self.has_run()
    }

    /// Whether the cluster's log has a run.
    fn has_run(&self) -> bool {
        let dirs = member_dirs(self.dispatcher_dir());
        eyas_report::newest_run(&dirs).is_ok_and(|run| run.is_some())
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct KnownClusters {
    state: PathBuf,
}

impl KnownClusters {
    /// Those that are remembered in this folder, a user's for state.
    pub fn of(state: PathBuf) -> KnownClusters {
        KnownClusters { state }
    }

    /// The folder of the cluster that stays where nobody named one.
    pub fn default_dir(&self) -> PathBuf {
        self.state.join("cluster")
    }

    fn links_dir(&self) -> PathBuf {
        self.state.join("clusters")
    }

    /// Remembers that the cluster in `dir`, an absolute path, is given work now.
    pub fn remember(&self, dir: &Path, kind: Kind) -> io::Result<()> {
        let links = self.links_dir();
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

    /// Remembers that the cluster with this folder of its dispatcher is given work now, if it is one of these.
    pub fn remember_work(&self, dispatcher_dir: &Path) {
        let Some(dir) = dispatcher_dir.parent() else { return };
        if let Some(known) = self.all().into_iter().find(|known| known.dir == dir) {
            let _ = self.remember(dir, known.kind);
        }
    }

    /// All clusters that were used here and whose folder still exists, newest first.
    pub fn all(&self) -> Vec<KnownCluster> {
        let mut found: Vec<KnownCluster> = vec![];
        for (link, target) in links_newest_first(&self.links_dir()) {
            let kind = link.file_name().and_then(|name| kind_of(name.to_str()?));
            if let (Some(dir), Some(kind)) = (target.filter(|dir| dir.exists()), kind) {
                found.push(KnownCluster { dir, kind });
            }
        }
        let default = self.default_dir();
        let is_known = |known: &KnownCluster| {
            known.dir == default || default.canonicalize().is_ok_and(|d| d == known.dir)
        };
        if dispatcher_dir(&default).exists() && !found.iter().any(is_known) {
            found.push(KnownCluster { dir: default, kind: Kind::Up });
        }
        found
    }

    /// The clusters that are up, in the order of [`Self::as_meant`].
    pub fn running(&self) -> Vec<KnownCluster> {
        self.as_meant().into_iter().filter(KnownCluster::is_up).collect()
    }

    /// All clusters in the order in which one who looks means them: see the module.
    pub fn as_meant(&self) -> Vec<KnownCluster> {
        let mut all = self.all();
        all.sort_by_cached_key(|known| match (known.runs_from_here().is_empty(), known.kind) {
            (false, _) => u8::from(!known.is_up()),
            (true, Kind::Run(_)) if known.is_up() => 2,
            (true, _) => 3,
        });
        all
    }

    /// The first of [`Self::as_meant`] that is up or has a run in its log.
    pub fn newest(&self) -> Option<KnownCluster> {
        self.as_meant().into_iter().find(KnownCluster::can_be_asked)
    }

    /// The cluster of `eyas up` that was given work last, up or not.
    pub fn newest_of_up(&self) -> Option<KnownCluster> {
        self.all().into_iter().find(|known| known.kind == Kind::Up)
    }

    /// The newest cluster of `eyas up` that is up, or else is being started.
    pub fn for_work(&self) -> Option<KnownCluster> {
        let ups: Vec<KnownCluster> = self.all().into_iter().filter(|known| known.kind == Kind::Up).collect();
        // A cluster whose dispatcher is alive but does not listen yet is being started.
        let is_starting =
            |known: &&KnownCluster| holder_of(&dispatcher_lock(&known.dispatcher_dir())).is_some();
        ups.iter().find(|known| known.is_up()).or_else(|| ups.iter().find(is_starting)).cloned()
    }
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

fn links_newest_first(links: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(links).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.sort();
    all.into_iter().rev().map(|link| (link.clone(), fs::read_link(link).ok())).collect()
}

/// Whether a dispatcher listens at the address in the file.
fn listens(file: &JoinFile) -> bool {
    let Ok(target) = file.read() else { return true };
    let Join { address, members, .. } = target.join();
    let answers = |address: &String| {
        let at = address.to_socket_addrs();
        at.is_ok_and(|mut all| all.any(|at| TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok()))
    };
    // Any dispatcher of a group counts.
    std::iter::once(address).chain(members).any(answers)
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
