//! `eyas-lab bench template`: the benchmark template of `Miceli10` (§4), and its figures 3 to 7.
//!
//! An experiment is a tuple ([`tuple`]): size of the files, number of assignments, machines, file system, replication, workers. It
//! is run as All-Pairs by `eyas pairs` on a cluster whose machines are network namespaces with shaped links, over real servers
//! ([`places`]), and its time is split by what the workers did ([`run`]). What the paper says of a figure stands beside ours
//! ([`claims`]).
//!
//! All machines share the processors and the disk of this one; their links are their own. Files are smaller than the paper's by
//! `--scale`. An experiment whose server is not on this machine is left out, and the output says so.

mod claims;
mod genome;
mod places;
mod run;
mod tuple;

use super::spaces::Spaces;
use super::table::Table;
use super::{Common, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
pub use genome::{PairArgs, pair};
use places::Places;
use run::Times;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;
use tuple::{Access, FIGURES, Tuple, experiments};

/// Machine 0 has the dispatcher, the client and the name node, and the paper's machines are 1 to 3.
const N_MACHINES: u32 = 4;

#[derive(Args)]
#[group(id = "what", required = true, multiple = true, args = ["figure", "all"])]
pub struct TemplateArgs {
    /// The figure of the paper to make (may be given more than once)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=7))]
    figure: Vec<u8>,
    /// All figures
    #[arg(long)]
    all: bool,
    /// How often each experiment is run; the figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Begin no further experiment after so many minutes; each is run once in any case
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// Files are smaller than the paper's by this factor
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    scale: u64,
    /// Rate of each machine's link, in and out, in Mbit/s
    #[arg(long, default_value_t = 400, value_name = "MBIT", value_parser = clap::value_parser!(u64).range(1..))]
    link: u64,
    /// One round with the fewest workers and files of a tenth, for a look
    #[arg(long)]
    quick: bool,
    /// The folder with Hadoop's classes, as `mvn -f tests/hdfs/pom.xml dependency:copy-dependencies -DoutputDirectory=DIR` fills it
    #[arg(long, default_value = "target/hdfs/lib", value_name = "DIR")]
    hadoop: PathBuf,
    /// Also draw the figures, as SVG files into this folder (needs matplotlib)
    #[arg(long, value_name = "DIR")]
    draw: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What came of an experiment.
#[derive(Serialize)]
struct Outcome {
    tuple: Tuple,
    /// The run whose t_c is the median (of an even number of runs the lower one of the two in the middle).
    times: Times,
    /// t_c of all runs, in seconds, the least first.
    all_t_c: Vec<f64>,
}

struct Outcomes(BTreeMap<Tuple, Outcome>);

impl Outcomes {
    fn find(&self, tuple: &Tuple) -> Option<&Times> {
        self.0.get(tuple).map(|outcome| &outcome.times)
    }
}

pub fn bench(args: &TemplateArgs) -> Result<Exit, Fault> {
    let figures: BTreeSet<u8> = match args.all {
        true => FIGURES.collect(),
        false => args.figure.iter().copied().collect(),
    };
    let (rounds, scale) = if args.quick { (1, args.scale * 10) } else { (args.rounds, args.scale) };
    let lacking: Vec<(Access, String)> =
        Access::ALL.into_iter().filter_map(|a| Some((a, places::lacks(a, &args.hadoop)?))).collect();
    args.common.run(|dir| {
        let all: BTreeSet<Tuple> = figures.iter().flat_map(|n| experiments(*n, args.quick)).collect();
        let used: BTreeSet<Access> = all.iter().map(|tuple| tuple.access).collect();
        let tuples: Vec<Tuple> =
            all.into_iter().filter(|t| lacking.iter().all(|(access, _)| *access != t.access)).collect();
        if tuples.is_empty() {
            return Err(failed("no experiment of these figures can be run here").hint(lacking[0].1.clone()));
        }
        let outcomes = measure(args, dir, &tuples, rounds, scale)?;
        let title = format!(
            "template: Miceli10, figures {}, files of 1/{scale}, links of {} Mbit/s, {rounds} rounds",
            figures.iter().map(u8::to_string).collect::<Vec<_>>().join(", "),
            args.link
        );
        let mut table = Table::new(title);
        for figure in &figures {
            claims::rows(*figure, &outcomes, &mut table);
        }
        for (access, why) in lacking.iter().filter(|(access, _)| used.contains(access)) {
            table.note(format!("Left out: {access}, because {why}."));
        }
        table.note(sheet(&outcomes));
        table.note(
            "Seconds; medians of the rounds by t_c, with the least and the most. t_x, t_I/O and t_compute are means over the workers.",
        );
        let runs: Vec<&Outcome> = outcomes.0.values().collect();
        table.details(serde_json::json!({ "scale": scale, "link_mbit": args.link, "rounds": rounds, "runs": runs }));
        if let Some(folder) = &args.draw {
            draw(folder, dir, &table)?;
        }
        Ok(table)
    })
}

/// The rounds are outermost, so that a busy minute of the machine falls on all experiments. Before them each server is used once,
/// because the first requests of a JVM take seconds.
fn measure(
    args: &TemplateArgs,
    dir: &std::path::Path,
    tuples: &[Tuple],
    rounds: u32,
    scale: u64,
) -> Result<Outcomes, Fault> {
    let spaces = Spaces::make(dir, N_MACHINES, args.link)?;
    let mut places = Places::make(&spaces, dir, scale, &args.hadoop, tuples)?;
    let mut all: BTreeMap<Tuple, Vec<Times>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for tuple in tuples {
        if !matches!(tuple.access, Access::Local | Access::Placed)
            && used.insert((tuple.access, tuple.machines.that_store()))
        {
            note(&format!("warming up: {tuple}"));
            run::run(tuple, &spaces, &places, &dir.join("run"))?;
        }
    }
    let begun = Instant::now();
    let is_late = || args.minutes.is_some_and(|n| begun.elapsed().as_secs() >= 60 * n);
    for round in 1..=rounds {
        for tuple in tuples {
            if round > 1 && is_late() {
                break;
            }
            places.check()?;
            let times = run::run(tuple, &spaces, &places, &dir.join("run"))?;
            note(&format!("round {round} of {rounds}: {tuple}: {:.2} s", times.t_c));
            all.entry(*tuple).or_default().push(times);
        }
    }
    let outcome = |(tuple, mut runs): (Tuple, Vec<Times>)| {
        runs.sort_by(|a, b| a.t_c.total_cmp(&b.t_c));
        let all_t_c = runs.iter().map(|times| times.t_c).collect();
        (tuple, Outcome { tuple, times: runs[(runs.len() - 1) / 2], all_t_c })
    };
    Ok(Outcomes(all.into_iter().map(outcome).collect()))
}

/// All experiments with the split of their times.
fn sheet(outcomes: &Outcomes) -> String {
    let mut text = format!(
        "{:5} {:12} {:6} {:>3} {:>2} {:>3}  {:>6} {:>13} {:>7} {:>6} {:>6} {:>9} {:>6} {:>8}\n",
        "M_c",
        "fs, m",
        "c_s",
        "N_c",
        "r",
        "N_w",
        "t_c",
        "least, most",
        "t_setup",
        "t_x",
        "t_I/O",
        "t_compute",
        "t_rest",
        "links MB"
    );
    for Outcome { tuple, times, all_t_c } in outcomes.0.values() {
        let (least, most) = (all_t_c[0], all_t_c[all_t_c.len() - 1]);
        text += &format!(
            "{:5} {:12} {:6} {:>3} {:>2} {:>3}  {:6.2} {:>13} {:7.2} {:6.2} {:6.3} {:9.3} {:6.2} {:8.0}\n",
            format!("{:?}", tuple.machines),
            tuple.access.to_string(),
            format!("{} MB", tuple.chunk.megabytes()),
            tuple.assignments,
            tuple.replicas,
            tuple.workers,
            times.t_c,
            format!("{least:.2} - {most:.2}"),
            times.t_setup,
            times.t_x,
            times.t_io,
            times.t_compute,
            times.t_rest,
            times.network_bytes as f64 / 1e6,
        );
    }
    text.trim_end().to_string()
}

fn draw(folder: &std::path::Path, dir: &std::path::Path, table: &Table) -> Result<(), Fault> {
    let file = dir.join("template.json");
    let figures = serde_json::json!({ "table": table });
    std::fs::write(&file, serde_json::to_vec(&figures).map_err(failed)?)?;
    std::fs::create_dir_all(folder)?;
    let said = eyas_cli::figures::draw(&["--template".into(), folder.into(), file]);
    match said {
        Ok(said) => note(&said),
        Err(why) => note(&format!("the figures are not drawn: {why}")),
    }
    Ok(())
}
