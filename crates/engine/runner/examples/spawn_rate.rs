//! Starts of `/bin/true` per second, bare and through slot processes, in turns.
//!
//! `spawn_rate [N_TASKS] [N_SLOTS] [N_ROUNDS] [AHEAD]` prints one line a round and the medians.

use eyas_runner::bench::{bare_spawn_rate, slot_spawn_rate};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "__slot") {
        eyas_runner::slot_main(0);
    }
    let mut number = |default| args.next().map_or(Ok(default), |arg| arg.parse::<u32>());
    let (n, slots, rounds, ahead) = (number(3000)?, number(2)?, number(5)?, number(16)?);
    let sandbox_root = std::env::temp_dir().join(format!("eyas-spawn-rate-{}", std::process::id()));
    std::fs::create_dir(&sandbox_root)?;
    let exe = std::env::current_exe()?;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let bare = bare_spawn_rate(n, slots)?;
        let ours = slot_spawn_rate(&exe, &["__slot"], &sandbox_root, n, slots, ahead)?;
        rates.push(ours.tasks_per_s / bare.tasks_per_s);
        costs.push(ours.cpu_ns_per_task as f64 / bare.cpu_ns_per_task as f64);
        println!(
            "round {round}: bare {:.0}/s, {} us CPU a task; slots {:.0}/s, {} us CPU a task; ratio {:.3}",
            bare.tasks_per_s,
            bare.cpu_ns_per_task / 1000,
            ours.tasks_per_s,
            ours.cpu_ns_per_task / 1000,
            rates[rates.len() - 1],
        );
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    println!("medians: rate ratio {:.3}, CPU ratio {:.3}", median(rates), median(costs));
    std::fs::remove_dir(&sandbox_root)?;
    Ok(())
}
