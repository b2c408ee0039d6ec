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
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let bare = bare_spawn_rate(n, slots)?;
        let ours = slot_spawn_rate(&exe, &["__slot"], &sandbox_root, n, slots, ahead)?;
        println!("round {round}: bare {bare:.0}/s, slots {ours:.0}/s, ratio {:.3}", ours / bare);
        ratios.push(ours / bare);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ratios.len() / 2]);
    std::fs::remove_dir(&sandbox_root)?;
    Ok(())
}
