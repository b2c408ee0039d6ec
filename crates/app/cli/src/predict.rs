//! `eyas predict`: how long work takes on a cluster, before it is run there.
//!
//! In: a task list, a workflow, or a recorded run; and the clusters to compare. Out: a table with a line for
//! each cluster, and one sentence of advice. The properties of programs and files come from a recorded run,
//! or from a few probes that are run here. With `--from RUN` the run itself is predicted first, and shown
//! beside what was measured.
//!
//! Not here: the model and the range (`eyas_sim::predict`), and how accurate it is
//! (`docs/guides/predict.md`).

use crate::print::plural;
use crate::sim::{bad, named_machine, write_json};
use crate::{Exit, Fault};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_sim::machine::Faults;
use eyas_sim::predict::{Prediction, Question};
use std::io::Write;
use table::Row;
use work::{Machines, note};

mod args;
mod table;
mod work;

pub use args::PredictArgs;

pub fn predict(args: Box<PredictArgs>) -> Result<Exit, Fault> {
    if args.price.is_some_and(|p| !(p.is_finite() && p >= 0.0)) {
        return Err(bad("--price has to be a number from 0"));
    }
    if args.nodes.contains(&0) {
        return Err(bad("--nodes has to be at least 1"));
    }
    // Names are checked first, so that no probe runs for a command with a mistake.
    for name in args.placement.iter().map(Some).chain([None]) {
        args.policy.scheduling(DispatcherConfig::default(), name.map(String::as_str))?;
    }
    let faults = Faults { losses_per_node_hour: args.losses_per_hour, ..Faults::default() };
    faults.check().map_err(bad)?;
    let given = args.machine.machine.as_deref().map(named_machine).transpose()?.map(Machines::known);

    let from = args.from.as_deref().map(|path| args.recorded(path)).transpose()?;
    let replayed = from.as_ref().map(|from| args.replay(from)).transpose()?;
    let (work, Machines { machine, ends }, base) = args.work(from, given)?;
    let machine = args.machine.change(machine)?;
    let ends = ends.into_iter().map(|end| args.machine.change(end)).collect::<Result<Vec<_>, _>>()?;
    let scheduling = args.policy.scheduling(base, None)?;
    let question = Question {
        machine: &machine,
        ends: &ends,
        scheduling: &scheduling,
        faults: &faults,
        workload: &|rng| work.make(rng),
        n_worlds: args.worlds,
        seed: args.seed,
    };
    let rows = args.table(&question)?;
    // Advice prefers cases without failures, if there are any.
    let table: Vec<Prediction> = rows.iter().filter_map(|row| row.answer.clone().ok()).collect();
    let sound: Vec<Prediction> = table.iter().filter(|p| p.summary.n_failed == 0).cloned().collect();
    let advice = args.advice(&question, if sound.is_empty() { &table } else { &sound })?;
    write!(eyas_text::stdout(), "{}\n{advice}\n", args.text(&rows, &machine))?;
    if let Some(path) = &args.json {
        let predicted = |p: &Prediction| {
            serde_json::json!({
                "nodes": p.case.nodes, "cache_bytes": p.case.cache_bytes, "placement": p.case.placement,
                "makespan_min_s": p.makespan_s.0, "makespan_max_s": p.makespan_s.1,
                "cost": args.price.map(|price| price * p.node_hours(machine.slots_per_node)),
                "summary": p.summary,
            })
        };
        let row = |row: &Row| match &row.answer {
            Ok(p) => predicted(p),
            Err(why) => serde_json::json!({
                "nodes": row.case.nodes, "cache_bytes": row.case.cache_bytes, "placement": row.case.placement,
                "cannot_be": why,
            }),
        };
        let all = serde_json::json!({
            "machine": machine, "ends": ends, "scheduling": scheduling, "seed": args.seed, "replayed": replayed,
            "predictions": rows.iter().map(row).collect::<Vec<_>>(), "advice": advice,
        });
        write_json(path, &all)?;
    }
    match table.iter().map(|p| p.summary.n_failed).max() {
        None | Some(0) => Ok(Exit::Good),
        Some(n) => {
            note(format!("up to {} fail in these predictions", plural(n, "task")));
            Ok(Exit::TasksFailed)
        }
    }
}
