//! `eyas-lab`: the program with which developers measure eyas, reproduce papers and look for broken promises. Users do not need it.
//!
//! It uses the library of the program `eyas` (`eyas_cli`), and starts the `eyas` beside it where it needs a real cluster.

// As in `eyas`: all that is printed passes `eyas_text::Printer`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate eyas_cli;

mod bench;
mod chaos;
mod repro;
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

#[derive(Subcommand)]
enum Verb {
    /// What this machine and this build do together, in figures, each beside a reference
    Bench(bench::BenchArgs),
    /// The evaluation of the data diffusion paper, simulated, beside the paper's numbers
    Repro(repro::ReproArgs),
    /// Worlds full of faults, each drawn from its seed, in which every promise is checked
    Chaos(chaos::ChaosArgs),
    /// Random machines and workloads: a placement policy against others on each
    Worlds(worlds::WorldsArgs),
}

fn main() -> ExitCode {
    eyas_cli::live(|cli: Cli| run(cli.verb))
}

fn run(verb: Verb) -> Result<Exit, Fault> {
    match verb {
        Verb::Bench(args) => bench::bench(args),
        Verb::Repro(args) => repro::repro(args),
        Verb::Chaos(args) => chaos::chaos(&args),
        Verb::Worlds(args) => worlds::compare_all(&args),
    }
}
