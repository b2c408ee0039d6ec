//! Fault worlds of every kind, in which the core's indexes are compared with scans, too.
//!
//! In: the first seed, and how many worlds. The kinds take turns, a seed each. Out: a line for each world that breaks
//! a promise; the search goes on after it. `eyas-lab chaos` shows one of them alone. The exit status is 1 where there
//! was one.
//!
//! It is an example of this crate and no part of `eyas-lab`, because the comparison with scans is a feature of the
//! core that programs for users are built without.

use eyas_testkit::options::Options;
use eyas_testkit::world;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Kinds that are drawn anew for each world.
const SOME: &str = "SOME";
/// The kind that gives a world several dispatchers.
const SEVERAL: &str = "dispatchers";

/// Mixtures that have found something.
const MIXED: [&str; 13] = [
    "--with uneven,stops,clocks",
    "--workflows --with uneven,stops,clocks",
    "--with uneven,stops,clocks,small",
    "--workflows --with uneven,stops,clocks,small",
    "--with uneven,stops,clocks,scratch",
    "--workflows --with uneven,stops,clocks,scratch",
    "--workflows --with uneven,stops,clocks,small,forget",
    "--workflows --with uneven,stops,small,forget,equal",
    "--workflows --with uneven,stops,small,forget,equal,walltimes,warm",
    "--workflows --with uneven,stops,forget,walltimes,resources,users",
    "--workflows --with uneven,stops,small,forget,walltimes,resources",
    "--workflows --with uneven,stops,forget,walltimes,resources,provided",
    "--with walltimes,resources,provided,users",
];

const GROUPS: [&str; 6] = [
    "--groups",
    "--groups --calm",
    "--groups --with uneven",
    "--groups --calm --with uneven",
    "--groups --calm --with forget",
    "--groups --with uneven,forget",
];

/// The options of `eyas-lab chaos` for each kind of world: every kind that can be added alone, and mixtures; all with one and
/// with several dispatchers.
fn all_kinds() -> Vec<String> {
    let of_one = || Options::KINDS.into_iter().filter(|kind| *kind != SEVERAL).chain([SOME; 5]);
    let alone = of_one().map(|kind| format!("--with {kind}"));
    let plain = ["", "--calm"].map(String::from).into_iter().chain(alone);
    let both = plain.flat_map(|kind| [format!("--workflows {kind}"), kind]);
    let alone: Vec<String> = both.chain(MIXED.map(String::from)).collect();
    let several = alone.iter().map(|kind| match kind.contains("--with") {
        true => format!("{kind},{SEVERAL}"),
        false => format!("{kind} --with {SEVERAL}"),
    });
    let of_groups = of_one().map(|kind| format!("--groups --with {kind}"));
    let several: Vec<String> = several.chain(GROUPS.map(String::from)).chain(of_groups).collect();
    alone.into_iter().chain(several).collect()
}

/// Lives through the world of `kind` and `seed`. The error is the promise that it breaks.
fn live_through(kind: &str, seed: u64) -> Result<(), String> {
    let (mut workflows, mut groups, mut calm, mut with) = (false, false, false, "");
    let mut words = kind.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--workflows" => workflows = true,
            "--groups" => groups = true,
            "--calm" => calm = true,
            "--with" => with = words.next().expect("a list of kinds follows"),
            other => unreachable!("{other} is no option of `eyas-lab chaos`"),
        }
    }
    let drawn = match (groups, workflows, calm) {
        (true, _, true) => Options::calm_groups(seed),
        (true, _, false) => Options::groups_from_seed(seed),
        (false, false, false) => Options::from_seed(seed),
        (false, false, true) => Options::calm(seed),
        (false, true, false) => Options::workflows_from_seed(seed),
        (false, true, true) => Options::calm_workflows(seed),
    };
    let additions = with.split(',').filter(|kind| !kind.is_empty());
    let options = additions.fold(drawn, |o, kind| o.with(kind).expect("worlds have the kind"));
    let lived = world::simulate(&options);
    lived.map(drop).map_err(|violation| violation.message)
}

fn main() -> ExitCode {
    let given: Vec<u64> = std::env::args().skip(1).take(2).filter_map(|word| word.parse().ok()).collect();
    let [from, n_worlds] = given[..] else {
        eprintln!(
            "usage: hunt FIRST_SEED N_WORLDS [TEXT]   (TEXT: only kinds whose options have it in them)"
        );
        return ExitCode::from(2);
    };
    let text = std::env::args().nth(3).unwrap_or_default();
    let kinds: Vec<String> = all_kinds().into_iter().filter(|kind| kind.contains(&text)).collect();
    if kinds.is_empty() {
        eprintln!("no kind of world has `{text}` among its options");
        return ExitCode::from(2);
    }
    std::panic::set_hook(Box::new(|_| {})); // A panic in a world is caught there, and becomes a violation.
    let started = Instant::now();
    let (next, n_found) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n_worlds {
                        return;
                    }
                    let (kind, seed) = (&kinds[(i % kinds.len() as u64) as usize], from + i);
                    let kind = match Options::some_kinds(seed)[..] {
                        [] => kind
                            .replace(&format!("--with {SOME},"), "--with ")
                            .replace(&format!("--with {SOME}"), ""),
                        ref drawn => kind.replace(SOME, &drawn.join(",")),
                    };
                    if let Err(message) = live_through(&kind, seed) {
                        n_found.fetch_add(1, Ordering::Relaxed);
                        let message = message.lines().next().unwrap_or_default();
                        println!("eyas-lab chaos {kind} --seeds 1 --from {seed}: {message}");
                    }
                    if (i + 1) % 5_000 == 0 {
                        println!("{} worlds, {} s", i + 1, started.elapsed().as_secs());
                    }
                }
            });
        }
    });
    let n_found = n_found.into_inner();
    println!(
        "{n_worlds} worlds of {} kinds, seeds {from} to {}, {} s: {n_found} broke a promise",
        kinds.len(),
        from + n_worlds.saturating_sub(1),
        started.elapsed().as_secs()
    );
    ExitCode::from(u8::from(n_found > 0))
}
