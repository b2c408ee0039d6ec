//! Some inputs of each target, as a test: the same ones at each run.

use eyas_fuzz::memory::Counting;
use eyas_fuzz::{round, targets, watch};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Inputs of each target; those that open sockets or files are slower.
const N_INPUTS: u64 = 2000;
const N_SLOW: u64 = 60;
const SEED: u64 = 20_261_122;

#[test]
fn some_inputs_of_each_target() {
    watch::start();
    round::keep_panics();
    let mut findings = vec![];
    for (index, target) in targets::all().iter_mut().enumerate() {
        let n = match target.name() {
            "data-plane" | "members" | "journal" | "events" => N_SLOW,
            _ => N_INPUTS,
        };
        for number in 0..n {
            if let Err((_, panic)) = round::one(&mut **target, index, SEED, number) {
                findings.push(format!(
                    "{}:{SEED}:{number}: {} at {}",
                    target.name(),
                    panic.message,
                    panic.place
                ));
                break;
            }
        }
    }
    // The hook keeps what panics say; this one is for people.
    drop(std::panic::take_hook());
    assert!(findings.is_empty(), "make them again with `eyas-fuzz --again`:\n{}", findings.join("\n"));
}
