//! `eyas submit --into RUN`: adds tasks to a run that goes on, also from one of its own tasks.
//!
//! A submission carries a token, and the dispatcher accepts nothing twice under one token. So when the
//! connection breaks, the client in a task simply tries again until the dispatcher is back. When an attempt
//! that had added its tasks is repeated, the next attempt adds nothing: within a task the token is a digest
//! of the list.
//!
//! Within a task, relative paths that lead into its sandbox are refused, because the sandbox is removed when
//! the task ends.

use crate::data::check_outputs;
use crate::environment::{EnvArgs, WatchArgs};
use crate::print::plural;
use crate::replaces::{self, ReplaceArgs};
use crate::running::{nothing_to_do, say_warning};
use crate::runtimes::client_runtime;
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault, json};
use eyas_client::{Accepted, Client, JoinFile};
use eyas_net::NetError;
use eyas_tasklist::{ReadOptions, TaskList};
use eyas_terms::{Digest, RunId};
use eyas_wire::message::Addition;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the client in a task waits for a dispatcher that does not answer: a restart takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// The task that this program is part of.
struct Within {
    id: String,
    sandbox: String,
}

impl Within {
    fn find() -> Option<Within> {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Some(Within { id: var("EYAS_TASK")?, sandbox: var("EYAS_SANDBOX")? })
    }
}

/// What is added to a run, in the words of `eyas submit`.
pub struct Asked<'a> {
    pub tasks: &'a Path,
    pub files: &'a WorkflowArgs,
    pub env: &'a EnvArgs,
    pub watch: WatchArgs,
    pub replace: ReplaceArgs,
    pub token: Option<&'a str>,
    pub json: bool,
}

/// Adds these tasks to `run`.
pub fn add(args: &Asked<'_>, file: &JoinFile, run: RunId) -> Result<Exit, Fault> {
    let within = Within::find();
    let own = args.token.map_or_else(random_token, str::to_string);
    let id_prefix = match (&within, &args.token) {
        (Some(task), None) => format!("{}.", task.id),
        _ => format!("{own}."),
    };
    let options = ReadOptions { id_prefix, is_addition: true, ..ReadOptions::default() };
    let tasks = ListFile::find(args.tasks, args.files)?;
    if within.is_some() && tasks.is_of_commands() {
        let message = "a list of commands runs in the folder from which it is submitted, and a task's goes when it ends";
        return Err(Fault::new(Exit::BadInput, message).hint("what a task adds is a task list (JSON Lines)"));
    }
    if within.is_some() && args.watch.watch {
        let message =
            "--watch takes files below the folder from which it is asked for, and a task's goes when it ends";
        return Err(
            Fault::new(Exit::BadInput, message).hint("declare the files of the tasks that a task adds")
        );
    }
    let mut list = tasks.read_with(&options)?;
    args.env.add_to(&mut list)?;
    args.watch.add_to(&mut list)?;
    if let Some(task) = &within {
        refuse_sandbox(&list, &task.sandbox)?;
    }
    let digest = digest_of(&list)?;
    let token = match (&within, &args.token) {
        (Some(task), None) => format!("{} {}", task.id, blake3::Hash::from_bytes(digest.0).to_hex()),
        _ => own,
    };
    if list.n_tasks == 0 {
        eyas_text::say!("there are no tasks: nothing to add");
        return nothing_to_do(args.json);
    }
    check_outputs(&list, false)?;
    replaces::check(&list, args.replace, args.files.stand_ins, false, Some(args.tasks))?;
    let addition = Addition { run, token, digest };
    let name = args.tasks.display().to_string();
    let accepted = client_runtime().block_on(insist(file, &name, &list, &addition, within.is_some()))?;
    let tasks = plural(list.n_tasks, "task");
    match accepted.again {
        again if args.json => json::write(&json::Submitted { run, n_tasks: list.n_tasks, again })?,
        false => writeln!(eyas_text::stdout(), "run {run}: {tasks} added")?,
        true => writeln!(eyas_text::stdout(), "run {run}: {tasks} had been added before")?,
    }
    Ok(Exit::Good)
}

/// Repeats the submission while no dispatcher answers; a program outside of tasks is told at once that none
/// does.
async fn insist(
    file: &JoinFile,
    name: &str,
    list: &TaskList,
    addition: &Addition,
    is_patient: bool,
) -> Result<Accepted, NetError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (addition, arrays) = (addition.clone(), list.shared_arrays());
        let said =
            async { Client::connect(&file.read()?).await?.add(name, addition, arrays, say_warning).await };
        match said.await {
            Err(e) if is_patient && can_pass(&e) && Instant::now() < until => tokio::time::sleep(PAUSE).await,
            said => return said,
        }
    }
}

/// Whether it may succeed in a moment: the dispatcher is away, or its join file is, which disappears and
/// comes back with it.
fn can_pass(e: &NetError) -> bool {
    match e {
        NetError::Connect { .. }
        | NetError::NoAnswer { .. }
        | NetError::AtDoor { .. }
        | NetError::Broken(_)
        | NetError::Closed
        | NetError::Away(_)
        | NetError::Identity(_)
        // A dispatcher that dies while it greets looks like this, and so does another program that has its
        // port in the meantime.
        | NetError::NotAMember { .. } => true,
        NetError::Frame(_) | NetError::Refused(_) => false,
    }
}

pub(crate) fn digest_of(list: &TaskList) -> Result<Digest, Fault> {
    let mut hasher = blake3::Hasher::new();
    for array in &list.arrays {
        serde_json::to_writer(&mut hasher, array).map_err(|e| Fault::new(Exit::Other, e))?;
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// A token that no other client has.
fn random_token() -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&eyas_runtime::clock::now().0.to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(eyas_host::host_name().as_bytes());
    hasher.finalize().to_hex()[..8].to_string()
}

fn refuse_sandbox(list: &TaskList, sandbox: &str) -> Result<(), Fault> {
    let sandbox = format!("{}/", sandbox.trim_end_matches('/'));
    let mut location = String::new();
    for array in &list.arrays {
        let files = array.template.inputs.iter().chain(&array.template.outputs);
        for (_, pattern) in files.filter(|(_, l)| array.may_begin(l, &sandbox)) {
            for i in 0..array.n_tasks {
                location.clear();
                array.fill_into(pattern, i, &mut location);
                if let Some(name) = location.strip_prefix(&sandbox) {
                    let id = array.fill(&array.template.id, i);
                    let message = format!(
                        "task `{id}` names `{name}` in the sandbox of the task that adds it, which goes when that ends"
                    );
                    return Err(Fault::new(Exit::BadInput, message).hint(
                        "hand files on as outputs of the adding task (`run:NAME`), and name files at home by absolute paths",
                    ));
                }
            }
        }
    }
    Ok(())
}
