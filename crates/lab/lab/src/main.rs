//! `eyas-lab`: the program with which developers measure eyas, reproduce papers and look for broken promises. Users do not need it.
//!
//! It uses the library of the program `eyas` (`eyas_cli`), and starts the `eyas` beside it where it needs a real cluster.

// As in `eyas`: all that is printed passes `eyas_text::Printer`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate eyas_cli;

mod bench;
mod chaos;
mod durability;
mod homes;
mod repro;
mod sim;
mod worlds;

use clap::{Parser, Subcommand};
use eyas_cli::{Exit, Fault};
use std::process::ExitCode;

/// What eyas can do on a machine, what the papers' evaluations give, and worlds in which eyas is attacked.
#[derive(Parser)]
#[command(name = "eyas-lab", bin_name = "eyas-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// Made once in the life of the program.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Verb {
    /// Benchmarks of this build on this machine, each beside a reference that is measured in the same run
    Bench(bench::BenchArgs),
    /// Simulates the evaluation of the data diffusion paper, and writes a page with the paper's numbers beside ours
    Repro(repro::ReproArgs),
    /// Simulates the papers' workloads, and compares policies and numbers of dispatchers in them
    Sim(sim::SimArgs),
    /// Simulates worlds full of faults, each drawn from its seed, and checks every promise in them
    Chaos(chaos::ChaosArgs),
    /// Simulates catalogs over ten years, and sets how many files they lose beside the Markov chain
    Durability(durability::DurabilityArgs),
    /// Checks every promise of home storage at a real home, below a place in which it may do as it likes
    Homes(homes::HomesArgs),
    /// Compares a placement policy with others on random machines and workloads
    Worlds(worlds::WorldsArgs),
}

fn main() -> ExitCode {
    eyas_cli::live(|cli: Cli| run(cli.verb))
}

fn run(verb: Verb) -> Result<Exit, Fault> {
    match verb {
        Verb::Bench(args) => bench::bench(args),
        Verb::Repro(args) => repro::repro(args),
        Verb::Sim(args) => sim::sim(args),
        Verb::Chaos(args) => chaos::chaos(&args),
        Verb::Durability(args) => durability::durability(&args),
        Verb::Homes(args) => homes::homes(&args),
        Verb::Worlds(args) => worlds::compare_all(&args),
    }
}
