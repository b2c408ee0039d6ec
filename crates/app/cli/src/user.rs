//! `eyas user`: who shares a cluster with its owner, with which rights and which part of it.

use crate::args::JoinArgs;
use crate::fault::bad;
use crate::print::{plural, time};
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters};
use clap::{Args, Subcommand};
use eyas_client::Client;
use eyas_cluster::users::{NotLetIn, let_in};
use eyas_text::{line_of, shown_path};
use eyas_wire::message::UserLine;
use eyas_wire::users::ClusterRights;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
pub struct UserArgs {
    #[command(subcommand)]
    verb: UserVerb,
}

#[derive(Subcommand)]
enum UserVerb {
    /// Let a user in: writes the join file with which their commands reach the cluster
    Add(AddArgs),
    /// Change what a user may do, or their part of the cluster
    Set(SetArgs),
    /// Take a user's key back; their connections are closed, and what they have submitted goes on
    Remove(RemoveArgs),
    /// All users: what they may do, and what they have of the cluster
    List(ListArgs),
}

#[derive(Args)]
struct AddArgs {
    /// Letters, digits and . _ - @ +
    name: String,
    /// Some of submit, see, cancel and operate, with commas between them, or none [default: submit]
    #[arg(long, value_name = "RIGHTS")]
    rights: Option<ClusterRights>,
    /// The user's part of the cluster while others want it, too: a user of weight 2 gets twice as much as one of weight 1
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// The join file to write; it must not exist [default: NAME.json]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    join: JoinArgs,
}

#[derive(Args)]
struct SetArgs {
    name: String,
    /// Some of submit, see, cancel and operate, with commas between them, or none
    #[arg(long, value_name = "RIGHTS", required_unless_present = "weight")]
    rights: Option<ClusterRights>,
    /// The user's part of the cluster while others want it, too
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    #[command(flatten)]
    join: JoinArgs,
}

#[derive(Args)]
struct RemoveArgs {
    name: String,
    #[command(flatten)]
    join: JoinArgs,
}

#[derive(Args)]
struct ListArgs {
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    join: JoinArgs,
}

pub fn user(args: UserArgs) -> Result<Exit, Fault> {
    match args.verb {
        UserVerb::Add(args) => add(args),
        UserVerb::Set(args) => set(&args),
        UserVerb::Remove(args) => remove(&args),
        UserVerb::List(args) => list(&args),
    }
}

fn add(args: AddArgs) -> Result<Exit, Fault> {
    let target = clusters::look_join(&args.join)?.read().map_err(bad)?;
    let out = args.out.unwrap_or_else(|| PathBuf::from(format!("{}.json", args.name)));
    let user = client_runtime()
        .block_on(let_in(&target, &args.name, &out, args.rights, args.weight))
        .map_err(|error| match error {
            NotLetIn::IsThere(_) => bad(format!("{error}; name another file with --out")),
            error => error.into(),
        })?;
    writeln!(
        eyas_text::stdout(),
        "{} is let in with {}, which is their key to the cluster; rights: {}",
        line_of(&args.name),
        shown_path(&out),
        user.rights
    )?;
    Ok(Exit::Good)
}

fn set(args: &SetArgs) -> Result<Exit, Fault> {
    let target = clusters::look_join(&args.join)?.read()?;
    let users = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        Ok::<_, Fault>(client.set_user(&args.name, None, args.rights, args.weight).await?)
    })?;
    if let Some(user) = users.iter().find(|user| user.name == args.name) {
        let (name, rights, weight) = (line_of(&user.name), user.rights, user.weight);
        writeln!(eyas_text::stdout(), "{name}: rights {rights}, weight {weight}")?;
    }
    Ok(Exit::Good)
}

fn remove(args: &RemoveArgs) -> Result<Exit, Fault> {
    let target = clusters::look_join(&args.join)?.read()?;
    let users = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        Ok::<_, Fault>(client.remove_user(&args.name).await?)
    })?;
    let n_runs = users.iter().find(|user| user.name == args.name).map_or(0, |user| user.n_runs);
    let name = line_of(&args.name);
    writeln!(eyas_text::stdout(), "the key of {name} opens the cluster no more")?;
    if n_runs > 0 {
        eyas_text::say!(
            "{} of {name} {} on: `eyas status` shows them, `eyas cancel --run N` ends one",
            plural(n_runs, "run"),
            if n_runs == 1 { "goes" } else { "go" }
        );
    }
    Ok(Exit::Good)
}

fn list(args: &ListArgs) -> Result<Exit, Fault> {
    let target = clusters::look_join(&args.join)?.read()?;
    let users = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        Ok::<_, Fault>(client.users().await?)
    })?;
    let mut out = eyas_text::stdout();
    if args.json {
        let lines: Vec<serde_json::Value> = users.iter().map(in_json).collect();
        writeln!(out, "{}", serde_json::Value::from(lines))?;
        return Ok(Exit::Good);
    }
    let name = |user: &UserLine| match user.name.as_str() {
        "" => "(owner)".to_string(),
        name => line_of(name).to_string(),
    };
    let width = users.iter().map(|user| name(user).chars().count()).max().unwrap_or(0).max("user".len());
    writeln!(
        out,
        "{:<width$} {:>6} {:>5} {:>9} {:>6} {:>12}  rights",
        "user", "weight", "runs", "ready", "slots", "used lately"
    )?;
    for user in &users {
        writeln!(
            out,
            "{:<width$} {:>6} {:>5} {:>9} {:>6} {:>12}  {}",
            name(user),
            user.weight,
            user.n_runs,
            user.n_ready,
            user.n_slots,
            time(user.used_slot_ns),
            user.rights
        )?;
    }
    Ok(Exit::Good)
}

/// A user as `eyas user list --json` and the Python package have them.
pub(crate) fn in_json(user: &UserLine) -> serde_json::Value {
    let rights: Vec<String> = user.rights.to_string().split(',').map(str::to_string).collect();
    serde_json::json!({
        "name": user.name,
        "is_owner": user.name.is_empty(),
        "rights": rights.into_iter().filter(|right| right != "none").collect::<Vec<_>>(),
        "weight": user.weight,
        "runs": user.n_runs,
        "ready": user.n_ready,
        "slots": user.n_slots,
        "used_slot_s": user.used_slot_ns as f64 / 1e9,
    })
}
