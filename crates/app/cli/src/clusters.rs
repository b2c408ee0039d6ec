//! The cluster that a command means if it names none, in words.
//!
//! Commands that only look (`status`, `top`, `logs`, `explain`, `tasks`, `cancel`, `report`) and commands that give work or end a
//! cluster (`submit`, `wait`, `down`) mean different ones: see [`eyas_cluster::known`].

use crate::args::JoinArgs;
use crate::dirs::state_dir;
use crate::{Exit, Fault};
use eyas_client::JoinFile;
use eyas_cluster::kept;
use eyas_cluster::known::{Kind, KnownCluster, KnownClusters};
use eyas_text::shown_path;
use std::path::Path;

/// The clusters of this user on this machine.
pub fn known() -> Result<KnownClusters, Fault> {
    Ok(KnownClusters::of(state_dir()?))
}

pub fn describe(known: &KnownCluster) -> String {
    match known.kind {
        Kind::Up => format!("the cluster of `eyas up` in {}", shown_path(&known.dir)),
        Kind::Run(pid) => format!("the run of process {pid} in {}", shown_path(&known.dir)),
    }
}

/// The cluster that a looking command means.
pub enum Meant {
    /// The cluster with this join file.
    Live(JoinFile),
    /// A cluster that is no longer up; its folder has its log.
    Ended(KnownCluster),
}

/// The cluster that a looking command means: the named one, else the first that can be asked or has a run.
pub fn find(join: &JoinArgs) -> Result<Meant, Fault> {
    if let Some(file) = join.named() {
        return Ok(Meant::Live(file));
    }
    match known()?.newest() {
        None => Err(none_up()),
        Some(newest) if newest.is_up() => Ok(Meant::Live(newest.join_file())),
        Some(newest) => Ok(Meant::Ended(newest)),
    }
}

/// The join file for a command that looks at a running cluster: the given one, else that of the newest
/// running cluster.
pub fn look_join(join: &JoinArgs) -> Result<JoinFile, Fault> {
    if let Some(file) = join.named() {
        return Ok(file);
    }
    let running = known()?.running();
    match &running[..] {
        [] => Err(none_up_now()),
        [one] => Ok(one.join_file()),
        [newest, others @ ..] => {
            eyas_text::say!(
                "note: this is {}; {} more: `eyas status --all` shows all",
                describe(newest),
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
    match join.named() {
        Some(file) => Ok(file),
        None => match known()?.for_work() {
            Some(known) => Ok(known.join_file()),
            None => Err(none_up_for_work()),
        },
    }
}

/// As [`none_up_now`], and a word about `eyas run` or `eyas map` where one has a cluster of its own.
fn none_up_for_work() -> Fault {
    let running = known().map(|known| known.running()).unwrap_or_default();
    match running.first() {
        Some(of_run) => Fault::new(Exit::Cluster, "no cluster of `eyas up` is up").hint(format!(
            "{} is going on, and ends with its own tasks; --join {} names it",
            describe(of_run),
            of_run.join_file().path().display()
        )),
        None => none_up_now(),
    }
}

/// The join file of the cluster of `eyas up` that was given work last, if it was killed. `is_meant` is asked about the folder of
/// its dispatcher.
pub fn killed_join(is_meant: impl Fn(&Path) -> bool) -> Option<JoinFile> {
    let known = known().ok()?.newest_of_up()?;
    (known.was_killed() && is_meant(&known.dispatcher_dir())).then(|| known.join_file())
}

pub fn none_up() -> Fault {
    Fault::new(Exit::Cluster, "no cluster is up")
        .hint("start one with `eyas up`, or name one with --join FILE or EYAS_JOIN")
}

/// The message when no dispatcher listens; it mentions a cluster that was killed.
fn none_up_now() -> Fault {
    let Ok(all) = known() else { return none_up() };
    match all.newest_of_up().filter(KnownCluster::was_killed) {
        Some(known) => {
            let how = match all.default_dir() == known.dir {
                true => "`eyas up`".to_string(),
                false => format!("`eyas up --dir {}`", known.dir.display()),
            };
            let with = match kept::provider(&known.dispatcher_dir()) {
                Some(kind) => format!(" with the options that it had (--provider {kind} and the others)"),
                None => String::new(),
            };
            Fault::new(Exit::Cluster, "no cluster is up; the last one was ended without a word")
                .hint(format!("{how}{with} starts it again and goes on with what was submitted to it"))
        }
        None => none_up(),
    }
}
