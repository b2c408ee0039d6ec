//! `eyas status`: what a cluster has and does, as tables or as JSON.

use crate::args::JoinArgs;
use crate::connect::connect;
use crate::print::{count, last_decision, nodes_of, plural, size, time};
use crate::progress::line_of_push;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_client::JoinFile;
use eyas_terms::needs::in_parts;
use eyas_text::line_of;
use eyas_wire::message::{ClusterStatus, ExecutorLine};
use std::io::Write;

/// Characters of the names in the tables of `eyas status`.
const NODE_CHARS_MAX: usize = 60;
const RUN_CHARS_MAX: usize = 120;

#[derive(Args)]
pub struct StatusArgs {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Show each cluster on this machine: those of `eyas up`, and those of `eyas run` and `eyas map` while they run
    #[arg(long, conflicts_with = "join")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

pub fn status(args: StatusArgs) -> Result<Exit, Fault> {
    if !args.all {
        let status = status_of(&clusters::look_join(&args.join)?)?;
        match args.json {
            true => json::write(&status)?,
            false => write_status(&status)?,
        }
        return Ok(Exit::Good);
    }
    let running = clusters::known()?.running();
    if running.is_empty() {
        clusters::look_join(&args.join)?;
    }
    let mut all = vec![];
    for known in running {
        // A cluster that has ended since is skipped.
        let Ok(status) = status_of(&known.join_file()) else { continue };
        if args.json {
            all.push(
                serde_json::json!({ "dir": known.dir, "join": known.join_file().path(), "status": status }),
            );
            continue;
        }
        writeln!(eyas_text::stdout(), "=== {}", clusters::describe(&known))?;
        write_status(&status)?;
        writeln!(eyas_text::stdout())?;
    }
    if args.json {
        json::write(&all)?;
    }
    Ok(Exit::Good)
}

/// What tasks hold of gpus and named resources; nothing where there are none.
fn write_equipment(status: &ClusterStatus, width: usize) -> Result<(), Fault> {
    let in_use = |e: &ExecutorLine| {
        let gpus = (e.equipment.gpus > 0)
            .then(|| format!("gpus {}/{}", in_parts(e.held.gpu_parts.into()), e.equipment.gpus));
        let named =
            e.equipment.resources.iter().map(|(name, n)| {
                format!("{} {}/{n}", line_of(name), e.held.resources.get(name).unwrap_or(&0))
            });
        gpus.into_iter().chain(named).collect::<Vec<_>>().join(", ")
    };
    let nodes =
        status.executors.iter().map(|e| (line_of(&e.name).at_most(NODE_CHARS_MAX).to_string(), in_use(e)));
    let of_cluster = status.resources.iter().map(|r| format!("{} {}/{}", line_of(&r.name), r.n_held, r.n));
    let of_cluster = ("cluster".to_string(), of_cluster.collect::<Vec<_>>().join(", "));
    let mut out = eyas_text::stdout();
    for (i, (name, in_use)) in nodes.chain([of_cluster]).filter(|(_, in_use)| !in_use.is_empty()).enumerate()
    {
        if i == 0 {
            writeln!(out, "\n{:<width$} in use", "resources")?;
        }
        writeln!(out, "{name:<width$} {in_use}")?;
    }
    Ok(())
}

fn status_of(file: &JoinFile) -> Result<ClusterStatus, Fault> {
    client_runtime().block_on(async {
        let mut client = connect(file).await?;
        Ok(client.status().await?)
    })
}

fn write_status(status: &ClusterStatus) -> Result<(), Fault> {
    let mut out = eyas_text::stdout();
    let up = time(status.now.since_ns(status.started));
    writeln!(out, "cluster {}, up {up}, placement {}", status.cluster, line_of(&status.placement))?;
    if let Some(provisioner) = &status.provisioner {
        let nodes = nodes_of(provisioner, status);
        writeln!(out, "{nodes}, provisioning {}", provisioner.policy)?;
        if let Some(calls) = &provisioner.calls {
            writeln!(
                out,
                "the batch system was asked {}: {}",
                plural(calls.total(), "time"),
                calls.in_words()
            )?;
        }
        if let Some(last) = last_decision(provisioner, status) {
            writeln!(out, "{last}")?;
        }
    }
    let troubles = status.provisioner.iter().flat_map(|provisioner| &provisioner.troubles);
    for warning in troubles.chain(&status.warnings) {
        writeln!(out, "warning: {}", line_of(warning))?;
    }
    // Nodes from elsewhere have longer names than `node12`.
    let names =
        status.executors.iter().map(|e| line_of(&e.name).at_most(NODE_CHARS_MAX).to_string().chars().count());
    let width = names.max().unwrap_or(0).clamp(10, NODE_CHARS_MAX);
    let holds = status.executors.iter().any(|e| e.status.memory_bytes > 0);
    let memory = if holds { format!(" {:>19}", "in memory") } else { String::new() };
    writeln!(
        out,
        "\n{:<width$} {:<10} {:>7} {:>8} {:>22} {:>10} {:>10} {:>10}{memory}",
        "node", "state", "running", "assigned", "cache", "local", "peers", "home"
    )?;
    for e in &status.executors {
        let memory = match e.status.memory_bytes {
            0 => String::new(),
            bytes => format!(" {:>19}", format!("{} / {}", size(e.status.memory_used_bytes), size(bytes))),
        };
        let cache = format!("{} / {}", size(e.status.cache_used_bytes), size(e.cache_bytes));
        let running = format!("{}/{}", e.status.running.len(), e.slots);
        writeln!(
            out,
            "{:<width$} {:<10} {running:>7} {:>8} {cache:>22} {:>10} {:>10} {:>10}{memory}",
            line_of(&e.name).at_most(NODE_CHARS_MAX),
            e.state,
            e.n_assigned,
            size(e.status.local_bytes),
            size(e.status.peer_bytes),
            size(e.status.home_read_bytes),
        )?;
    }
    if status.executors.is_empty() {
        writeln!(out, "(no executor has joined)")?;
    }
    write_equipment(status, width)?;
    let blocks = status.provisioner.iter().flat_map(|provisioner| &provisioner.blocks);
    for (i, block) in blocks.enumerate() {
        if i == 0 {
            writeln!(out, "\n{:<24} {:<10} {:<10} why", "block", "state", "id")?;
        }
        let (name, id) = (line_of(&block.name).at_most(NODE_CHARS_MAX), line_of(&block.id));
        let (state, id) = (line_of(&block.state), id.at_most(NODE_CHARS_MAX).to_string());
        let line = format!("{name:<24} {state:<10} {id:<10} {}", line_of(&block.why));
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "\n{:>4} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9}  name",
        "run", "tasks", "waiting", "placed", "done", "failed", "cancelled"
    )?;
    for r in &status.runs {
        let owner = if r.owner.is_empty() { String::new() } else { format!(" ({})", line_of(&r.owner)) };
        writeln!(
            out,
            "{:>4} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9}  {}{owner}",
            r.run.0,
            count(r.n_tasks),
            count(r.n_waiting + r.n_ready),
            count(r.n_reserved + r.n_running + r.n_landing),
            count(r.n_done),
            count(r.n_failed),
            count(r.n_cancelled),
            line_of(&r.name).at_most(RUN_CHARS_MAX)
        )?;
        if let Some(push) = &r.push {
            writeln!(out, "     {}", line_of_push(push))?;
        }
    }
    if status.runs.is_empty() {
        writeln!(out, "(no run: nothing was submitted, or what was is forgotten)")?;
    }
    Ok(())
}
