//! `eyas warm`: brings files of home to nodes of a cluster before any task reads them.

use crate::args::JoinArgs;
use crate::connect::connect;
use crate::follow::follow;
use crate::homes::{self, named};
use crate::print::plural;
use crate::running::say_warning;
use crate::runtimes::client_runtime;
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_client::Client;
use eyas_storage::{ErrorKind, LeftOut, Listing};
use eyas_tasklist::TaskList;
use eyas_terms::PushRecord;
use eyas_terms::location::{Location, MadeLocation};
use eyas_text::shown;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Files that are missing are named up to this number.
const MISSING_SHOWN: usize = 20;

#[derive(Args)]
pub struct WarmArgs {
    /// Files of home: files, directories (all files below), patterns in quotes such as 's3://bucket/run1/*.fa'; paths or URLs
    #[arg(value_name = "PLACE", required_unless_present = "tasks")]
    places: Vec<String>,
    /// All inputs of this task list, list of commands or workflow that are at home and that none of its tasks makes
    #[arg(long, value_name = "TASKS")]
    tasks: Option<PathBuf>,
    /// Only to these nodes, by their names in `eyas status` [default: all nodes that are there]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Print what is where as JSON on standard output, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: WorkflowArgs,
    #[command(flatten)]
    join: JoinArgs,
}

/// The files that are wanted, each once.
#[derive(Default)]
struct Wanted {
    files: Vec<String>,
    seen: HashSet<String>,
}

impl Wanted {
    fn add(&mut self, file: &str) {
        if self.seen.insert(file.to_owned()) {
            self.files.push(file.to_owned());
        }
    }
}

pub fn warm(args: WarmArgs) -> Result<Exit, Fault> {
    let file = clusters::work_join(&args.join)?;
    let mut wanted = Wanted::default();
    for place in &args.places {
        find_files(place, &mut wanted)?;
    }
    if let Some(tasks) = &args.tasks {
        add_inputs(&ListFile::find(tasks, &args.files)?.read()?, &mut wanted);
        if wanted.files.is_empty() {
            let message = format!(
                "no task of {} has an input at home that no task makes",
                shown(&tasks.display().to_string())
            );
            return Err(Fault::new(Exit::BadInput, message));
        }
    }
    let name = match (&args.tasks, &args.places[..]) {
        (Some(tasks), _) => format!("warm --tasks {}", tasks.display()),
        (None, [place]) => format!("warm {place}"),
        (None, places) => format!("warm {} and {} more", places[0], places.len() - 1),
    };
    client_runtime().block_on(async {
        let mut client = connect(&file).await?;
        check_nodes(&mut client, &args.nodes).await?;
        let run = client.push(&name, &wanted.files, &args.nodes, say_warning).await?;
        if let Some(dir) = client.target().dir_here() {
            eyas_cluster::given::note(dir, run);
        }
        if !args.json {
            eyas_text::say!("run {run}: {} to push", plural(wanted.files.len() as u64, "file"));
        }
        let end = follow(client, run, None, None).await?;
        let push = end.push();
        if args.json {
            json::write(&push)?;
        } else if let Some(push) = push {
            say_missing(push);
        }
        if push.is_none() && end.exit == Exit::Good {
            let message = "the dispatcher was started anew, and does not know how the push ended";
            return Err(
                Fault::new(Exit::Other, message).hint("push again: what is there is not sent once more")
            );
        }
        Ok(end.exit)
    })
}

/// The files of home that words mean, each once, as locations.
pub fn files_of(places: &[String]) -> Result<Vec<String>, Fault> {
    let mut wanted = Wanted::default();
    places.iter().try_for_each(|place| find_files(place, &mut wanted))?;
    Ok(wanted.files)
}

/// The files that a word means.
fn find_files(place: &str, wanted: &mut Wanted) -> Result<(), Fault> {
    let homes = homes::open()?;
    let listing = homes::listing(place)?;
    let mut why_no_file = None;
    if !matches!(listing, Listing::Glob { .. }) {
        // A file is wanted as it is named: nodes may see a home that this machine does not.
        let location = homes::location(place)?;
        if !location.is_directory() && !place.ends_with('/') {
            match homes.stat(&location) {
                Ok(_) => {
                    wanted.add(location.as_str());
                    return Ok(());
                }
                Err(error) => why_no_file = Some(error),
            }
        }
    }
    let listed = match (homes.list(&listing), why_no_file) {
        // Such a home has files only.
        (Err(error), Some(why)) if error.kind() == ErrorKind::Unsupported => return Err(homes::fault(why)),
        (listed, _) => listed.map_err(homes::fault)?,
    };
    LeftOut::say_all(&listed.left_out);
    if listed.found.is_empty() {
        wanted.add(homes::called(&homes, place)?.as_str());
    }
    listed.found.iter().for_each(|found| wanted.add(found.as_str()));
    Ok(())
}

/// The inputs of a list's tasks that are at home before the list runs.
fn add_inputs(list: &TaskList, wanted: &mut Wanted) {
    let mut made = HashSet::new();
    let mut text = String::new();
    let fill = |array: &eyas_terms::array::TaskArray, pattern, i, text: &mut String| {
        text.clear();
        array.fill_into(pattern, i, text);
    };
    for array in &list.arrays {
        for (_, pattern) in &array.template.outputs {
            for i in 0..array.n_tasks {
                fill(array, pattern, i, &mut text);
                made.insert(text.clone());
            }
        }
    }
    for array in &list.arrays {
        for i in 0..array.n_tasks {
            for (_, pattern) in &array.template.inputs {
                fill(array, pattern, i, &mut text);
                let is_at_home = !Location::of(&text).stays() && MadeLocation::of(&text).is_none();
                if is_at_home && !made.contains(&text) {
                    wanted.add(&text);
                }
            }
        }
    }
}

/// Names of nodes that are wrong are said before anything moves.
async fn check_nodes(client: &mut Client, names: &[String]) -> Result<(), Fault> {
    if names.is_empty() {
        return Ok(());
    }
    let status = client.status().await?;
    let there: Vec<&str> = status.executors.iter().map(|node| node.name.as_str()).collect();
    match names.iter().find(|name| !there.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let all: Vec<String> =
                there.iter().take(MISSING_SHOWN).map(|name| shown(name).to_string()).collect();
            let message = format!("the cluster has no node {}; it has {}", shown(name), all.join(", "));
            Err(Fault::new(Exit::BadInput, message).hint("`eyas status` shows the names of all nodes"))
        }
    }
}

/// What a push did not bring.
fn say_missing(push: &PushRecord) {
    for missing in push.missing.iter().take(MISSING_SHOWN) {
        let place = Path::new(&missing.file);
        let file =
            homes::location(&place.to_string_lossy()).map_or(missing.file.clone(), |l| named(&l).to_string());
        match (missing.file.is_empty(), missing.node.is_empty()) {
            (true, _) => eyas_text::say!("missing: node {}: {}", shown(&missing.node), missing.why),
            (_, true) => eyas_text::say!("missing: {} on all nodes: {}", shown(&file), missing.why),
            _ => eyas_text::say!("missing: {} on {}: {}", shown(&file), shown(&missing.node), missing.why),
        }
    }
}
