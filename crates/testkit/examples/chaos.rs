//! Simulated worlds by the thousand: `chaos --seeds 0..1000 [--calm] [--tail 60] [--keep-going]`.
//!
//! Each world is drawn from its seed. A world that breaks a promise is printed with its options and the
//! last lines of its trace, and the program ends with status 1.

use eyas_testkit::options::Options;
use eyas_testkit::world::simulate;

fn main() {
    let mut seeds = 0..200;
    let (mut calm, mut tail, mut keep_going) = (false, 40, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--calm" => calm = true,
            "--keep-going" => keep_going = true,
            "--tail" => tail = args.next().and_then(|n| n.parse().ok()).unwrap_or(tail),
            "--seeds" => {
                let text = args.next().unwrap_or_default();
                let (from, to) = text.split_once("..").unwrap_or((&text, ""));
                let from = from.parse().unwrap_or(0);
                seeds = from..to.parse().unwrap_or(from + 1);
            }
            _ => {
                eprintln!("usage: chaos [--seeds A..B] [--calm] [--tail LINES] [--keep-going]");
                std::process::exit(2);
            }
        }
    }
    let alone = seeds.end - seeds.start == 1;
    let (mut n_events, mut ends, mut failing) = (0, [0; 3], vec![]);
    for seed in seeds.clone() {
        let options = if calm { Options::calm(seed) } else { Options::from_seed(seed) };
        if alone {
            println!("{options:?}");
        }
        match simulate(&options) {
            Ok(summary) => {
                n_events += summary.n_events;
                ends[0] += summary.n_done;
                ends[1] += summary.n_failed;
                ends[2] += summary.n_cancelled;
                if alone {
                    println!("{summary:?}");
                }
            }
            Err(violation) => {
                let from = violation.tail.len().saturating_sub(if keep_going { 0 } else { tail });
                if !keep_going {
                    println!("{options:?}");
                    violation.tail[from..].iter().for_each(|line| println!("{line}"));
                }
                println!("seed {seed}: {}", violation.message);
                failing.push(seed);
                if !keep_going {
                    std::process::exit(1);
                }
            }
        }
    }
    println!(
        "seeds {seeds:?}: {n_events} events; {} done, {} failed, {} cancelled",
        ends[0], ends[1], ends[2]
    );
    if !failing.is_empty() {
        println!("{} failing: {failing:?}", failing.len());
        std::process::exit(1);
    }
}
