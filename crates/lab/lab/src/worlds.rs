//! `eyas-lab worlds`: a placement policy is compared with others in random worlds.
//!
//! The line of each world says what the world is and how long it took under each policy. At the end stand the worlds in which
//! the policy did worst, each with the command that repeats this world alone, and how many worlds took how much longer than with the
//! best of the other policies. The result of a seed does not depend on how many worlds are simulated at once.
//!
//! With `--collectives` nothing is compared with other policies: the predicted times of collectives stand beside the measured times.

use clap::Args;
use eyas_cli::args::values;
use eyas_cli::print::{count, plural, size};
use eyas_cli::sim::{bad, seconds, write_json};
use eyas_cli::{Exit, Fault};
use eyas_core::collective::lessons::PROMISE;
use eyas_core::collective::{CollectiveKind, CollectiveRecord};
use eyas_core::network::NetworkUse;
use eyas_core::placement;
use eyas_papers::experiment::worlds::{self, Compared, World, compare};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Args)]
pub struct WorldsArgs {
    /// Number of worlds
    #[arg(long, value_name = "N", default_value_t = 500)]
    seeds: u64,
    /// The seed of the first world
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// The placement policy that is judged; the default is that of `eyas run`. `hindsight`: the best of the others, as seen in a
    /// world where each task computes for up to 1 % more or less; what it loses is chance
    #[arg(long, value_name = "POLICY", default_value = worlds::PLACEMENT)]
    placement: String,
    /// The policies that the judged one is compared with
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',',
        default_values_t = worlds::OTHERS.map(String::from))]
    against: Vec<String>,
    /// What `affinity` knows of the network, as `--network` of `eyas run` has it
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = values::network)]
    network: NetworkUse,
    /// How near the predicted times of collectives are to the measured times, in worlds of stages whose files stay on the nodes, in
    /// place of comparing policies
    #[arg(long, conflicts_with_all = ["against", "worst", "at_most", "json"])]
    collectives: bool,
    /// Number of the worst worlds that are shown at the end
    #[arg(long, value_name = "N", default_value_t = 10)]
    worst: usize,
    /// Print only the summary at the end
    #[arg(long, short)]
    quiet: bool,
    /// End with status 1 if a world takes more than RATIO times as long as under the best of the other policies
    #[arg(long, value_name = "RATIO")]
    at_most: Option<f64>,
    /// Number of worlds that are simulated at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    jobs: Option<u64>,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

struct Lived {
    world: String,
    compared: Compared,
}

pub fn compare_all(args: &WorldsArgs) -> Result<Exit, Fault> {
    let Some(end) = args.from.checked_add(args.seeds).filter(|_| args.seeds > 0) else {
        return Err(bad("--seeds has to be at least 1, and the last seed below 2^64"));
    };
    let ours = Some(&args.placement).filter(|name| *name != worlds::HINDSIGHT);
    for name in args.against.iter().chain(ours) {
        placement::by_name(name, &placement::Config::default()).map_err(bad)?;
    }
    if args.collectives {
        return compare_predictions(args);
    }
    writeln!(
        eyas_text::stdout(),
        "eyas {}, seeds {}..{end}: {} against {}",
        env!("CARGO_PKG_VERSION"),
        args.from,
        args.placement,
        args.against.join(", ")
    )?;
    let live = |seed| {
        let mut world = World::from_seed(seed);
        world.network = args.network;
        let compared = compare(&world, &args.placement, &args.against)?;
        Ok(Lived { world: describe(&world), compared })
    };
    let all = each_world(args, live, line)?;
    if let Some(path) = &args.json {
        let of = |(i, l): (usize, &Lived)| {
            serde_json::json!({
                "seed": args.from + i as u64, "world": l.world, "ratio": l.compared.ratio(),
                "makespan_s": l.compared.makespan_s, "others_s": l.compared.others_s,
            })
        };
        let worlds: Vec<_> = all.iter().enumerate().map(of).collect();
        let json = serde_json::json!({
            "placement": args.placement, "against": args.against, "worlds": worlds,
        });
        write_json(path, &json)?;
    }
    write!(eyas_text::stdout(), "{}", summary(args, &all))?;
    let worst = all.iter().map(|l| l.compared.ratio()).fold(0.0, f64::max);
    match args.at_most {
        Some(most) if worst > most => Ok(Exit::TasksFailed),
        _ => Ok(Exit::Good),
    }
}

/// What `live` gives for each seed, in the order of seeds. A world's line is printed when all worlds before it have been.
fn each_world<T: Send>(
    args: &WorldsArgs,
    live: impl Fn(u64) -> Result<T, String> + Sync,
    line: impl Fn(u64, &T) -> String + Sync,
) -> Result<Vec<T>, Fault> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = args.jobs.map_or(processors, |n| n as usize).min(args.seeds as usize);
    // The results by seed, and how many of them are printed.
    let lived: Mutex<(Vec<Option<Result<T, String>>>, usize)> =
        Mutex::new(((0..args.seeds).map(|_| None).collect(), 0));
    let next = AtomicUsize::new(0);
    let live = || loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        if i as u64 >= args.seeds {
            return;
        }
        let one = live(args.from + i as u64);
        let mut all = lived.lock().expect("nobody panics with it");
        all.0[i] = Some(one);
        while let Some(Some(result)) = all.0.get(all.1) {
            if !args.quiet
                && let Ok(lived) = result
            {
                // The stream is locked for this line only, because every thread writes to it.
                let _ = writeln!(eyas_text::stdout(), "{}", line(args.from + all.1 as u64, lived));
            }
            all.1 += 1;
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs).map(|_| scope.spawn(live)).collect();
        live();
        others.into_iter().for_each(|t| t.join().expect("a world does not panic"));
    });
    let (all, _) = lived.into_inner().expect("nobody panics with it");
    all.into_iter().map(|one| one.expect("all have lived")).collect::<Result<_, _>>().map_err(bad)
}

/// Collectives of one kind: how many had something to bring and brought all of it, how many of these had a predicted time, and how many of those times
/// were near.
#[derive(Clone, Copy, Default)]
struct Predictions {
    n: u64,
    n_predicted: u64,
    n_near: u64,
}

impl Predictions {
    fn of<'a>(records: impl Iterator<Item = &'a CollectiveRecord>) -> Predictions {
        let mut sum = Predictions::default();
        for record in records.filter(|r| r.n_arrived == r.n_wanted && r.measured_ns() > 0) {
            sum.n += 1;
            let Some(ns) = record.predicted_ns() else { continue };
            let ratio = ns as f64 / record.measured_ns() as f64;
            sum.n_predicted += 1;
            sum.n_near += u64::from((1.0 / PROMISE..=PROMISE).contains(&ratio));
        }
        sum
    }

    fn text(&self, what: &str) -> String {
        let Predictions { n, n_predicted, n_near } = self;
        format!("{what}: predicted {n_predicted} of {n}, within {PROMISE} times {n_near}")
    }
}

fn compare_predictions(args: &WorldsArgs) -> Result<Exit, Fault> {
    let live = |seed| {
        let mut world = World::staying(seed);
        world.network = args.network;
        Ok((describe(&world), world.run(&args.placement)?.collectives))
    };
    let line = |seed, (world, seen): &(String, Vec<CollectiveRecord>)| {
        Predictions::of(seen.iter()).text(&format!("{seed:>6} {world}"))
    };
    let all = each_world(args, live, line)?;
    let seen = || all.iter().flat_map(|(_, records)| records);
    for kind in [CollectiveKind::Multicast, CollectiveKind::Scatter, CollectiveKind::Gather] {
        let of = Predictions::of(seen().filter(|r| r.kind == kind));
        writeln!(eyas_text::stdout(), "{}", of.text(&format!("{kind:?}").to_lowercase()))?;
    }
    let of = Predictions::of(seen().filter(|r| r.choice.is_some()));
    writeln!(eyas_text::stdout(), "{}", of.text(&plural(args.seeds, "world")))?;
    Ok(Exit::Good)
}

fn describe(world: &World) -> String {
    let m = &world.machine;
    let (n_files, bytes) = world.files();
    format!(
        "{:<6} {} of {} on {} x {}, {} in {}, disk {}/s, link {}/s, home {}/s, of it one node {}/s, caches of {}",
        world.kind.name(),
        plural(world.n_tasks(), "task"),
        seconds(world.compute_mean_s()),
        m.nodes,
        m.slots_per_node,
        size(bytes),
        plural(n_files, "file"),
        size(m.disk_bytes_per_s as u64),
        size(m.nic_bytes_per_s as u64),
        size(m.home_bytes_per_s as u64),
        size(m.home_client_bytes_per_s as u64),
        size(m.cache_bytes_per_node),
    )
}

fn line(seed: u64, lived: &Lived) -> String {
    let times: Vec<String> = lived.compared.others_s.iter().map(|s| seconds(*s)).collect();
    format!(
        "{:>6} {:>6.3}  {:>10} against {}; {}",
        seed,
        lived.compared.ratio(),
        seconds(lived.compared.makespan_s),
        times.join(", "),
        lived.world
    )
}

fn summary(args: &WorldsArgs, all: &[Lived]) -> String {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*b].compared.ratio().total_cmp(&all[*a].compared.ratio()));
    let mut text = String::new();
    for &i in order.iter().take(args.worst).take_while(|i| all[**i].compared.ratio() > 1.0) {
        let lived = &all[i];
        let best = &args.against[lived.compared.best().0];
        text += &format!(
            "{:.3} of {best}: {}\n      eyas-lab worlds --seeds 1 --from {}\n",
            lived.compared.ratio(),
            lived.world,
            args.from + i as u64
        );
    }
    let beyond = |limit: f64| all.iter().filter(|l| l.compared.ratio() > limit).count() as u64;
    let ratios: Vec<f64> = order.iter().map(|i| all[*i].compared.ratio()).collect();
    let mean_log = ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    text += &format!(
        "{}: {} takes {:.3} of the best of the others' time in the geometric mean, {:.3} in the median, {:.3} at most; \
         more than 1 % longer in {}, 5 % in {}, 10 % in {}\n",
        plural(all.len() as u64, "world"),
        args.placement,
        mean_log.exp(),
        ratios[ratios.len() / 2],
        ratios[0],
        count(beyond(1.01)),
        count(beyond(1.05)),
        count(beyond(1.10)),
    );
    text
}
