//! Equation 11 of Raicu09 against every request sequence of small systems, and against an adversary on larger
//! ones: `cargo run --release -p eyas-testkit --example two_mark -- [SITUATIONS [SEEDS]]`.
//!
//! SITUATIONS (300,000 unless given) is where a search gives up; a million need some 1 to 2 GiB. SEEDS (1) is how
//! often the adversary plays each larger system. The first table has a line per system (`N` stores for `M`
//! objects, `s` the cost of home, over so many objects) and per reading of figure 6: whether equation 11 holds, or a
//! sequence on which it does not; for ours the *ratio*: the smallest c, to 1/20, with 2Mark <= c OPT + 2 s NM.

use eyas_core::rng::Rng;
use eyas_testkit::two_mark::search::{Bound, Verdict, every_sequence, hunt};
use eyas_testkit::two_mark::{Reading, System, text_of};

/// N, M, s, objects.
const EVERY_SEQUENCE: [(u8, u8, u16, usize); 18] = [
    (1, 2, 2, 4),
    (1, 3, 2, 5),
    (2, 1, 1, 3),
    (2, 1, 2, 3),
    (2, 1, 10, 3),
    (2, 1, 1, 4),
    (2, 1, 3, 4),
    (2, 1, 10, 4),
    (3, 1, 1, 3),
    (3, 1, 10, 3),
    (3, 1, 1, 4),
    (3, 1, 3, 4),
    (2, 2, 1, 3),
    (2, 2, 1, 4),
    (2, 2, 5, 4),
    (2, 2, 20, 4),
    (2, 2, 1, 5),
    (2, 2, 5, 5),
];

const HUNTS: [(u8, u8, u16, usize); 6] =
    [(2, 2, 5, 5), (2, 2, 3, 6), (3, 1, 5, 5), (4, 1, 5, 5), (2, 3, 5, 6), (2, 3, 5, 7)];

const READINGS: [Reading; 6] = [
    Reading::Ours,
    Reading::Line20AsPrinted,
    Reading::Line10Everywhere,
    Reading::Line27Unmarked,
    Reading::Line34FaultsOnly,
    Reading::WithoutLocalPhases,
];

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| match text.parse::<usize>() {
        Ok(number) => number,
        Err(_) => {
            eprintln!("error: `{text}` is not a number; usage: two_mark [SITUATIONS [SEEDS]]");
            std::process::exit(2);
        }
    });
    let n_situations_max = numbers.next().unwrap_or(300_000);
    let n_seeds = numbers.next().unwrap_or(1) as u64;

    for (n_stores, store_objects, home_cost, n_objects) in EVERY_SEQUENCE {
        let system = System { n_stores, store_objects, home_cost };
        let allowed = Bound::ratio_allowed_per_mille(system) as f64 / 1_000.0;
        println!("N={n_stores} M={store_objects} s={home_cost}, {n_objects} objects; allowed {allowed:.2}");
        for reading in READINGS {
            let every = |bound| every_sequence(system, reading, n_objects, bound, n_situations_max);
            let n_situations = match every(Bound::equation_11(system)) {
                Verdict::Holds { n_situations } => n_situations,
                Verdict::Unfinished { n_situations } => {
                    println!("  {reading:?}: unfinished, holds in {n_situations} situations");
                    continue;
                }
                Verdict::Broken { requests } => {
                    let way = match every(Bound::equation_11_at_most(system)) {
                        Verdict::Broken { requests } => requests,
                        _ => requests,
                    };
                    println!("  {reading:?}: BROKEN by {}", text_of(&way));
                    continue;
                }
            };
            print!("  {reading:?}: holds in all {n_situations} situations");
            if reading != Reading::Ours {
                println!();
                continue;
            }
            let (mut too_small, mut enough) = (0, Bound::ratio_allowed_per_mille(system));
            while enough - too_small > 50 {
                let middle = (too_small + enough) / 2;
                match every(Bound::ratio(system, middle)) {
                    Verdict::Holds { .. } => enough = middle,
                    _ => too_small = middle,
                }
            }
            let ratio = enough as f64 / 1_000.0;
            println!("; ratio {ratio:.2}");
        }
    }
    for seed in 0..n_seeds {
        for (n_stores, store_objects, home_cost, n_objects) in HUNTS {
            let system = System { n_stores, store_objects, home_cost };
            for reading in [Reading::Ours, Reading::Line20AsPrinted] {
                let bound = Bound::equation_11(system);
                let verdict = hunt(system, reading, n_objects, bound, 20, 150, &mut Rng::new(seed));
                let verdict = match verdict {
                    Verdict::Broken { requests } => format!("BROKEN by {}", text_of(&requests)),
                    Verdict::Holds { n_situations } | Verdict::Unfinished { n_situations } => {
                        format!("holds in {n_situations} situations")
                    }
                };
                println!(
                    "hunt, seed {seed}, N={n_stores} M={store_objects} s={home_cost}, {n_objects} objects, {reading:?}: {verdict}"
                );
            }
        }
    }
}
