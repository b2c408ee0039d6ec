//! `eyas-lab sim`: the papers' workloads on a simulated cluster, and experiments that compare.
//!
//! The options, the table and the files that come out are those of `eyas sim` ([`eyas_cli::sim`]).

mod experiments;

use clap::{Args, Subcommand};
use experiments::{
    DispatchersArgs, ExchangeArgs, FileGroupsArgs, StealingArgs, dispatchers, exchange, file_groups, stealing,
};
use eyas_cli::args::{bytes, duration};
use eyas_cli::sim::Common;
use eyas_cli::{Exit, Fault};
use eyas_core::placement;
use eyas_papers::workload::{mi, stacking, sw};

#[derive(Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Tasks that arrive faster and faster (equation 12 of the data diffusion paper)
    Mi(MiArgs),
    /// Tasks that arrive in growing waves (equation 13)
    Sw(SwArgs),
    /// Many small cuts from few images (table 3)
    Stacking(StackingArgs),
    /// How many tasks a second several dispatchers give out, without and with files that cross between them
    Dispatchers(DispatchersArgs),
    /// Tasks queued at the node of their first input, without and with work stealing, beside a queue for all
    Stealing(StealingArgs),
    /// Tasks that read whole groups of files, with caches that know the groups and caches that do not
    FileGroups(FileGroupsArgs),
    /// The data diffusion paper's workloads on caches that do not hold them: each cache alone, and caches that exchange files (2Mark)
    Exchange(ExchangeArgs),
}

#[derive(Args)]
struct MiArgs {
    #[arg(long, value_name = "N", default_value_t = mi::MiConfig::default().n_tasks)]
    tasks: u64,
    /// Different files that tasks read
    #[arg(long, value_name = "N", default_value_t = mi::MiConfig::default().n_files)]
    files: u64,
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    file_size: u64,
    /// Compute time of each program
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    compute: u64,
    /// Tasks per second in the first minute
    #[arg(long, value_name = "TASKS", default_value_t = mi::MiConfig::default().rate_first)]
    rate_first: u64,
    /// Tasks per second that arrive at most
    #[arg(long, value_name = "TASKS", default_value_t = mi::MiConfig::default().rate_max)]
    rate_max: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct SwArgs {
    /// How long tasks arrive
    #[arg(long, value_name = "TIME", default_value = "6505s", value_parser = duration)]
    duration: u64,
    /// Different files that tasks read
    #[arg(long, value_name = "N", default_value_t = sw::SwConfig::default().n_files)]
    files: u64,
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    file_size: u64,
    /// Compute time of each program
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    compute: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct StackingArgs {
    /// Objects per image, a row of table 3: 1, 1.38, 2, 3, 4, 5, 10, 20, 30
    #[arg(long, default_value = "1.38")]
    locality: String,
    /// Images of 2 MB compressed, or of 6 MB
    #[arg(long, default_value = "gz", value_parser = ["gz", "fit"])]
    format: String,
    #[command(flatten)]
    common: Common,
}

pub fn sim(args: SimArgs) -> Result<Exit, Fault> {
    match args.what {
        What::Mi(a) => {
            let config = mi::MiConfig {
                n_tasks: a.tasks,
                n_files: a.files,
                file_bytes: a.file_size,
                compute_ns: a.compute,
                rate_first: a.rate_first,
                rate_max: a.rate_max,
                ..mi::MiConfig::default()
            };
            a.common.run("tg-anl-64", |_| mi::mi(a.common.seed, config))
        }
        What::Sw(a) => {
            let config = sw::SwConfig {
                duration_s: a.duration / 1_000_000_000,
                n_files: a.files,
                file_bytes: a.file_size,
                compute_ns: a.compute,
            };
            a.common.run("tg-anl-100", |_| sw::sw(a.common.seed, config))
        }
        What::Stacking(a) => {
            let (gz, locality) = (a.format == "gz", stacking::find_locality(&a.locality)?);
            let uses_caches = a.common.placement.as_deref() != Some(placement::first_available::NAME);
            a.common.run("tg-anl-64-2008", |machine| {
                let config = stacking::StackingConfig {
                    locality,
                    format: if gz { stacking::Format::Gz } else { stacking::Format::Fit },
                    uncompress: match uses_caches {
                        true => stacking::Uncompress::OncePerNode,
                        false => stacking::Uncompress::EachTask,
                    },
                    disk_bytes_per_s: machine.disk_bytes_per_s as u64,
                    ..stacking::StackingConfig::default()
                };
                stacking::stacking(a.common.seed, config)
            })
        }
        What::Dispatchers(a) => dispatchers(&a),
        What::Stealing(a) => stealing(&a),
        What::FileGroups(a) => file_groups(&a),
        What::Exchange(a) => exchange(&a),
    }
}
