//! A fuzzer for everything that reads bytes of others: frames, tickets, the data plane, the journal, event logs, task
//! lists, workflow files.
//!
//! In: a seed. Out: for each [`Target`] any number of inputs, each made from the seed, the target's name and the
//! input's number alone, so three words name a finding, and it can be made again anywhere. An input is something
//! valid ([`Target::make`], which knows the format) with some [`mutate`]d pieces.
//!
//! A finding is: a panic, which includes every check in a target's [`Target::run`]; a signal, such as that of an
//! overflowing stack; more than [`memory::BYTES_MAX`] held at a time; more than [`watch::CPU_S_MAX`] of processor time
//! for one input.
//!
//! Why not cargo-fuzz: it needs a nightly compiler. What is missed is coverage as a guide; what is gained is that
//! generators know the formats, and that the same inputs run as an ordinary test (`tests/short.rs`).
//!
//! Not here: attacks that need time or several processes; those are worlds of `eyas-testkit` and `tests/`.

pub mod arbitrary;
pub mod memory;
pub mod mutate;
pub mod place;
pub mod rng;
pub mod round;
pub mod targets;
pub mod watch;

pub use rng::Rng;

/// Something that reads bytes.
pub trait Target {
    fn name(&self) -> &'static str;

    /// Bytes that are valid, or nearly so.
    fn make(&self, rng: &mut Rng) -> Vec<u8>;

    /// Pieces of the format, which mutations put in.
    fn words(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the input is JSON, or lines of it, so that mutations may change its tree.
    fn is_json(&self) -> bool {
        false
    }

    /// One of so many inputs is what [`Self::make`] made, without changes.
    fn left_alone_one_in(&self) -> usize {
        8
    }

    /// Reads `bytes`; panics where that breaks what is promised.
    fn run(&mut self, bytes: &[u8]);
}

/// Input `number` of `target`.
pub fn input(target: &dyn Target, seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, target.name(), number);
    let bytes = target.make(&mut rng);
    mutate::mutate(bytes, target, &mut rng)
}
