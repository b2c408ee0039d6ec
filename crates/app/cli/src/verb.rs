//! The command line of the whole program: its verbs, each with the arguments that the file of the verb declares.

use crate::args::JoinArgs;
use crate::cancel::CancelArgs;
use crate::cat::CatArgs;
use crate::config::ConfigArgs;
use crate::cp::CpArgs;
use crate::data::{AccessArgs, AtDataArgs, AtDataJobArgs, DataArgs, MatchArgs, MountArgs, StoreArgs};
use crate::dispatcher::DispatcherArgs;
use crate::executor::ExecutorArgs;
use crate::files::{ChmodArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
use crate::forget::ForgetArgs;
use crate::help::EXIT_STATUS;
use crate::home::HomeArgs;
use crate::logs::LogsArgs;
use crate::ls::LsArgs;
use crate::map::MapArgs;
use crate::model::ModelArgs;
use crate::provider::ProviderArgs;
use crate::relay::RelayArgs;
use crate::run::RunArgs;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::status::StatusArgs;
use crate::submit::SubmitArgs;
use crate::tasks::TasksArgs;
use crate::tell::{ExplainArgs, ReplayArgs, ReportArgs, TopologyArgs};
use crate::up::UpArgs;
use crate::user::UserArgs;
use crate::wait::WaitArgs;
use crate::warm::WarmArgs;
use crate::workflow::{ConvertArgs, ExportArgs, GraphArgs};
use crate::{bench, pairs, predict, sim};
use clap::{Parser, Subcommand};

/// Run many programs over many files, close to the data.
#[derive(Parser)]
#[command(
    name = "eyas",
    bin_name = "eyas",
    version,
    max_term_width = 100,
    after_help = EXIT_STATUS
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// One command over many files, parameters or rows of a table: one task for each
    Map(Box<MapArgs>),
    /// Compare every file of a set with every file of another (All-Pairs), and write the matrix of the results
    Pairs(Box<pairs::PairsArgs>),
    /// Run a list of tasks (JSON Lines) or of commands, or a workflow file, and wait for its end
    Run(RunArgs),
    /// Hand a list of tasks or commands, or a workflow file, to a cluster that is up, and return
    Submit(SubmitArgs),
    /// Wait for the end of what was submitted
    Wait(WaitArgs),
    /// Bring files of home to the nodes of a cluster that is up, before tasks read them
    Warm(Box<WarmArgs>),
    /// What the cluster is doing
    Status(StatusArgs),
    /// What the cluster is doing, live on the whole screen
    Top(JoinArgs),
    /// What tasks print, also while they run
    Logs(LogsArgs),
    /// A table of the tasks of a run: state, node, time, attempts, why they failed
    Tasks(TasksArgs),
    /// Why a task ran where it did, or why it waits, or why it failed; or why nodes came and went
    Explain(ExplainArgs),
    /// One page (and a JSON file) on what a run did
    Report(ReportArgs),
    /// Write a run as a workflow file, with measured times and sizes
    Export(ExportArgs),
    /// Make a task list, or WfCommons WfFormat, of a workflow file
    Convert(ConvertArgs),
    /// Draw a workflow by its stages
    Graph(GraphArgs),
    /// The network between nodes and to home, as transfers have shown it: rates, latencies, sites
    Topology(TopologyArgs),
    /// Feed a run's log to the decision core again and compare what it decides
    Replay(ReplayArgs),
    /// End tasks: some, or all of a run
    Cancel(CancelArgs),
    /// Have a cluster forget runs that have ended, and drop their files from the caches
    Forget(ForgetArgs),
    /// Start a cluster that stays until `eyas down`
    Up(UpArgs),
    /// End the cluster that `eyas up` started
    Down(JoinArgs),
    /// Simulate a workload on a cluster, with the decisions of a real one
    Sim(Box<sim::SimArgs>),
    /// Predict how long work would take on a cluster, and which cluster it needs
    Predict(Box<predict::PredictArgs>),
    /// How long a workload of a few numbers takes by the abstract model of data diffusion, and what bounds it
    Model(Box<ModelArgs>),
    /// Measure this machine, its disk, home storage and the network in a minute, and give advice
    Bench(bench::BenchArgs),
    /// Try what a home can do: files, S3 and all other places that tasks read from and write to
    Home(HomeArgs),
    /// List what is at home: below a directory, or what matches a pattern
    Ls(LsArgs),
    /// Copy files between homes
    Cp(CpArgs),
    /// Move or rename files and directories, at a home or between homes
    Mv(MvArgs),
    /// Remove files at home, and directories with -r
    Rm(RmArgs),
    /// Make directories at home
    Mkdir(MkdirArgs),
    /// Change the permissions of files at home, where a home has them
    Chmod(ChmodArgs),
    /// Size, version, permissions and hosts of files at home
    Stat(StatArgs),
    /// Print files at home
    Cat(CatArgs),
    /// Data sets that are kept: put, found, got, shared, audited and repaired
    Data(Box<DataArgs>),
    /// Serve a folder of this machine as a site that keeps copies of data sets, for catalogs on other machines
    Store(StoreArgs),
    /// The label of the newest data set that has certain tags
    Match(MatchArgs),
    /// Run a program on files of data sets; what it makes becomes a data set
    AtData(Box<AtDataArgs>),
    /// What a batch job of `eyas at-data` does on its host
    #[command(hide = true)]
    AtDataJob(AtDataJobArgs),
    /// Run a program that opens data sets where they are, as /eyas/KEY/PATH; what it writes below /eyas/new becomes a data set
    Access(AccessArgs),
    /// Show a data set, or all of them, as a directory
    Mount(MountArgs),
    /// Who shares the cluster with its owner: users, their rights, and their part of it
    User(UserArgs),
    /// Options that are kept in `eyas.toml`
    Config(ConfigArgs),
    /// The part that holds the queue and decides who runs what
    Dispatcher(DispatcherArgs),
    /// The part that runs tasks on one node and keeps its cache
    Executor(ExecutorArgs),
    /// A part between thousands of executors and their dispatcher, which has one connection for all of them
    Relay(RelayArgs),
    /// The part of a local cluster that starts and ends nodes
    Provider(ProviderArgs),
    /// Print what bash, zsh or fish need to complete eyas's words
    Completions(CompletionsArgs),
    /// Write eyas's pages for `man`, one for each command
    Man(ManArgs),
}

#[cfg(test)]
mod tests;
