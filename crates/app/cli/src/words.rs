//! What other programs ask for in words of the command line, so that a word means the same to all: the Python package.

use crate::args::ClusterArgs;
use crate::cp::CopyTarget;
use crate::fault::{bad, usage_of};
pub use crate::local::Room;
use crate::map::{MapArgs, list_of};
use crate::running::{remove_left, start_own};
use crate::tell::story_of;
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault, add, data, declared, dirs, files, local, progress, provide};
use clap::{Args, Parser};
use eyas_cluster::Cluster;
use eyas_runtime::provider::Share;
use eyas_storage::{Error, Homes, Location};
use eyas_tasklist::TaskList;
use eyas_terms::{Digest, RunId};
use eyas_text::shown_path;
use eyas_wire::message::{Explained, RunStatus, UserLine};
use std::path::{Path, PathBuf};

/// Has this process know the homes that the command line knows. `program`: the program `eyas`, which the parts of clusters are
/// processes of.
pub fn prepare(program: PathBuf) -> Result<(), Fault> {
    local::name_program(program);
    data::provide();
    declared::declare()
}

/// Options alone, of a verb that is not named.
#[derive(Parser)]
struct Options<A: Args> {
    #[command(flatten)]
    options: A,
}

fn parse<A: Args>(words: &[String]) -> Result<A, Fault> {
    let words = std::iter::once("eyas".to_string()).chain(words.iter().cloned());
    match Options::<A>::try_parse_from(words) {
        Ok(parsed) => Ok(parsed.options),
        Err(error) => {
            let text = usage_of(&error);
            let first = text.lines().next().unwrap_or_default();
            Err(Fault::new(Exit::BadInput, first.trim_start_matches("error: ")))
        }
    }
}

/// The files of home that words mean, each once, as locations: see `eyas warm`.
pub fn pushed_files(places: &[String]) -> Result<Vec<String>, Fault> {
    crate::warm::files_of(places)
}

/// Moves an object: see `eyas mv`. Two names of one bucket are of two objects, so there it replaces what has the new one.
pub fn move_object(homes: &Homes, from: &Location, to: &Location) -> Result<(), Error> {
    let root = |of: &Location| of.as_str().splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let is_one_bucket = from.has_flat_names() && root(from) == root(to);
    files::move_object(homes, &CopyTarget { location: to, below: None }, from, is_one_bucket, &|_| ())
}

/// Users of a cluster, in JSON as `eyas user list --json` prints them.
pub fn users_in_json(users: &[UserLine]) -> String {
    serde_json::Value::from(users.iter().map(crate::user::in_json).collect::<Vec<_>>()).to_string()
}

/// A cluster of this process.
pub struct OwnCluster {
    pub cluster: Cluster,
    /// For one task; `None`: nobody knows.
    pub room: Option<Room>,
    is_dir_ours: bool,
    /// What nodes elsewhere share with this machine.
    share: Option<Share>,
}

impl OwnCluster {
    /// Starts a cluster as `eyas run` does.
    pub fn start(args: &ClusterArgs) -> Result<OwnCluster, Fault> {
        let (cluster, is_dir_ours) = start_own(args)?;
        let provider = args.provide.provider;
        let share = provider.is_elsewhere().then(|| provide::shared_folder(&cluster, provider));
        let share = share.transpose()?;
        Ok(OwnCluster { cluster, room: Room::of(args)?, is_dir_ours, share })
    }

    /// A folder for files that go with the cluster, which is not made yet: all nodes can read it.
    pub fn spool(&self) -> PathBuf {
        self.share.as_ref().map_or(self.cluster.dir(), Share::dir).join("calls")
    }

    /// Ends all parts, and removes the caches where nobody named the folder. Gives a sentence for each thing that may be left.
    pub async fn end(self) -> Result<Vec<String>, Fault> {
        let dir = self.cluster.dir().to_path_buf();
        let nobody = async || std::future::pending().await;
        let left = self.cluster.end(false, nobody, || ()).await?;
        if let Some(share) = self.share {
            share.remove();
        }
        remove_left(&dir, self.is_dir_ours);
        Ok(left)
    }
}

/// The tasks of `eyas map` with these options over these files.
pub fn map_tasks(options: &[String], files: Vec<String>, command: &[String]) -> Result<TaskList, Fault> {
    if let Some(file) = files.iter().find(|file| *file == "-") {
        return Err(Fault::new(Exit::BadInput, format!("`{file}` is no file; name files, URLs or patterns")));
    }
    let behind = std::iter::once("--".to_string()).chain(command.iter().cloned());
    let words: Vec<String> = options.iter().cloned().chain(behind).collect();
    let mut args = parse::<MapArgs>(&words)?;
    args.paths = files;
    Ok(list_of(&args)?.0)
}

/// The tasks of a list in JSON Lines; relative names are taken from the working folder.
pub fn listed_tasks(lines: &str, origin: &str) -> Result<TaskList, Fault> {
    let options = eyas_tasklist::ReadOptions { origin: origin.into(), ..Default::default() };
    Ok(eyas_tasklist::read(lines.as_bytes(), &dirs::working()?, &options)?)
}

/// The tasks of a task list, a list of commands or a workflow in a file.
pub fn tasks_in(path: &Path) -> Result<TaskList, Fault> {
    ListFile::find(path, &parse::<WorkflowArgs>(&[])?)?.read()
}

/// How a run ended, in the lines that `eyas run` ends with.
pub fn closing_lines(status: &RunStatus) -> Vec<String> {
    progress::closing_lines(status)
}

/// The files that a word of the command line stands for: a name, a pattern, a folder or `@LIST`.
pub fn files_of(word: &str) -> Result<Vec<String>, Fault> {
    Ok(eyas_tasklist::find_set(word, &dirs::working()?)?.names)
}

/// What `eyas explain` says of a task.
pub fn story_lines(explained: Explained) -> String {
    eyas_report::explain_lines(&story_of(explained))
}

/// The digest of tasks that are added to a run, by which their dispatcher knows them again.
pub fn digest_of(list: &TaskList) -> Result<Digest, Fault> {
    add::digest_of(list)
}

/// The page of `eyas report` on a run, from the log in the folder of its dispatcher, and the same as JSON.
pub fn report_page(dispatcher_dir: &Path, run: RunId) -> Result<(String, String), Fault> {
    let log = eyas_report::read_group(&[dispatcher_dir.to_path_buf()])?;
    let report = eyas_report::metrics_of(&log, run)
        .ok_or_else(|| bad(format!("the log in {} has no run {run}", shown_path(dispatcher_dir))))?;
    let json = serde_json::to_string_pretty(&report).map_err(|e| Fault::new(Exit::Other, e))?;
    Ok((eyas_report::html(&report, None), json))
}
