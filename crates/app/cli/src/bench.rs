//! `eyas bench`: measures this machine, its disk, its home storage and the network to another machine, in
//! less than a minute, and says what the figures mean for a cluster here.
//!
//! In: folders, and perhaps the address of another machine. Out: [`Figures`] for users or as JSON, with
//! advice. Files are written in separate folders, which are removed at the end.
//!
//! Not here: the cost of single parts of eyas beside a reference; that is `eyas-lab bench`.

mod advice;
mod folder;
mod measured;
mod network;

use crate::machine::Machine;
use crate::print::rate;
use crate::{Exit, Fault, dirs, json, local};
use clap::Args;
use eyas_text::shown_path;
use folder::Folder;
use measured::{Figures, Programs, bytes_per_s, short_time};
use std::path::PathBuf;

/// The number of programs that are started to measure the rate.
const N_PROGRAMS: u32 = 2_000;

#[derive(Args)]
pub struct BenchArgs {
    /// A folder of the shared storage that tasks read from and write to, to be measured, too
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// The folder whose disk would hold the caches [default: where `eyas run` makes its folders]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure the network to a machine where `eyas bench --serve` runs
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Answer the `eyas bench --to` of other machines at this address until ^C; whoever can reach it may measure
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["home", "dir", "to", "json"])]
    serve: Option<String>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn bench(args: &BenchArgs) -> Result<Exit, Fault> {
    if let Some(address) = &args.serve {
        return network::serve(address);
    }
    let machine = Machine::here();
    // First, because the other machine may not answer.
    let network =
        args.to.as_deref().map(|to| with_note("the network", || network::measure(to))).transpose()?;
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => dirs::state_dir()?,
    };
    let home = args.home.as_deref().map(|home| with_note("home", || folder::measure(home))).transpose()?;
    let disk = with_note("the disk for caches", || folder::measure(&dir))?;
    let programs = with_note("programs", || programs(&dir))?;
    let mut figures = Figures { machine: machine.ended(), programs, disk, home, network, advice: vec![] };
    figures.advice = advice::advice(&figures);
    match args.json {
        true => json::write(&figures)?,
        false => show!("{}", text(&figures)),
    }
    Ok(Exit::Good)
}

fn with_note<T>(what: &str, measure: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    if eyas_text::stderr_is_terminal() {
        eyas_text::say!("measuring {what} ...");
    }
    measure()
}

fn programs(dir: &std::path::Path) -> Result<Programs, Fault> {
    let n_slots = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let sandboxes = folder::Own::new(dir)?;
    let exe = local::program()?;
    let slots = |n| {
        let arguments = [local::SLOT_ARGUMENT];
        eyas_runner::bench::slot_spawn_rate(&exe, &arguments, sandboxes.path(), n, n_slots, 2)
            .map_err(|e| Fault::new(Exit::Other, e))
    };
    let bare = |n| eyas_runner::bench::bare_spawn_rate(n, n_slots).map_err(|e| Fault::new(Exit::Other, e));
    let (per_s, bare_per_s) = (slots(N_PROGRAMS)?.tasks_per_s, bare(N_PROGRAMS)?.tasks_per_s);
    Ok(Programs { per_s, bare_per_s })
}

fn text(figures: &Figures) -> String {
    let mut lines = vec![figures.machine.line()];
    let mut row = |name: &str, what: String| lines.push(format!("  {name:<10}{what}"));
    let Programs { per_s, bare_per_s } = &figures.programs;
    row("programs", format!("{} started as tasks are, {} by a bare loop", rate(*per_s), rate(*bare_per_s)));
    let mut folder = |name: &str, f: &Folder| {
        let memory = if f.is_in_memory { ", which is in memory" } else { "" };
        row(name, format!("{}{memory}", shown_path(&f.path)));
        row(
            "",
            format!("writes {}, reads {}", bytes_per_s(f.write_bytes_per_s), bytes_per_s(f.read_bytes_per_s)),
        );
        row(
            "",
            format!("{} readers at once: {} together", folder::N_READERS, bytes_per_s(f.readers_bytes_per_s)),
        );
        row(
            "",
            format!(
                "makes {} small files, opens and reads one in {}",
                rate(f.files_per_s),
                short_time(f.open_s)
            ),
        );
    };
    folder("disk", &figures.disk);
    if let Some(home) = &figures.home {
        folder("home", home);
    }
    if let Some(n) = &figures.network {
        let rates = (bytes_per_s(n.bytes_per_s), bytes_per_s(n.streams_bytes_per_s));
        row("network", format!("to {}: answers in {}", n.to, short_time(n.round_trip_s)));
        row("", format!("one stream {}, {} at once {} together", rates.0, network::N_STREAMS, rates.1));
    }
    lines.extend(figures.advice.iter().map(|advice| format!("advice: {advice}")));
    lines.join("\n")
}
