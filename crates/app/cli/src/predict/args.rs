//! The words of `eyas predict`.

use crate::args::bytes;
use crate::sim::{MachineArgs, MissingArgs, PolicyArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct PredictArgs {
    /// A task list, a workflow with run times, or the folder of a recorded run
    #[arg(value_name = "TASKS|WORKFLOW|RUN", required_unless_present = "from")]
    pub what: Option<PathBuf>,
    /// A recorded run to learn from; it is predicted itself first, beside what was measured
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Only this run of the recorded log [default: all]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// Nodes, several after commas [default: 1, 2 and 4 times those recorded, or 1,4,16]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Cache of each node, several after commas [default: the machine's]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    pub cache: Vec<u64>,
    /// Placement policies, several after commas [default: that of the recorded run, or of `eyas run`]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    pub placement: Vec<String>,
    /// What a node costs in an hour, in any money
    #[arg(long, value_name = "MONEY")]
    pub price: Option<f64>,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub missing: MissingArgs,
    /// Tasks of the list that are run here to learn from, where no recorded run is given [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub probe: Option<u32>,
    /// Processors that the nodes of a recorded local cluster shared [default: this machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub processors: Option<u32>,
    /// Share of the nodes that is lost in an hour
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub losses_per_hour: f64,
    /// Worlds with other rates and run times, for the range
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub worlds: u32,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Also write everything to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
