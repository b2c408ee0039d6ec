//! `eyas dispatcher`: the part that holds the queue and decides.

use crate::args::{KeepArgs, PolicyArgs, address, host_port};
use crate::runtimes::{serve, service_runtime};
use crate::{Exit, Fault, local};
use clap::Args;
use eyas_core::group::Membership;
use eyas_runtime::dispatcher::{DispatcherOptions, GroupOptions};
use eyas_terms::MemberId;
use std::path::PathBuf;

#[derive(Args)]
pub struct DispatcherArgs {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = host_port)]
    pub listen: String,
    /// Address that others are told, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    /// Journal, event log and join file
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// It is the K-th of N dispatchers which share one cluster, such as 2/3
    #[arg(long, value_name = "K/N", value_parser = member)]
    pub member: Option<Membership>,
    /// Join file of another dispatcher of the group; all but the first one started need it
    #[arg(long, value_name = "FILE", requires = "member")]
    pub group: Option<PathBuf>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

pub fn dispatcher(args: DispatcherArgs) -> Result<Exit, Fault> {
    local::check_policy(&args.policy)?;
    let policy = PolicyArgs { keep_runs: args.keep.rule(), ..args.policy.clone() };
    let config = local::dispatcher_config(&policy);
    let options = DispatcherOptions {
        listen: args.listen,
        advertise: args.advertise,
        config,
        home_streams: args.policy.home_streams,
        home_rate_bytes_per_s: args.policy.home_rate,
        event_log: !args.policy.no_event_log,
        until_stdin_closes: args.until_stdin_closes,
        // A single dispatcher is a group of one.
        group: args
            .member
            .filter(|m| m.n_members > 1)
            .map(|membership| GroupOptions { membership, join: args.group }),
        ..DispatcherOptions::local(&args.dir)
    };
    serve(&service_runtime()?, eyas_runtime::dispatcher::run(options))
        .map(|()| Exit::Good)
        .map_err(|e| Fault::new(Exit::Cluster, e))
}
fn member(text: &str) -> Result<Membership, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=64).contains(n));
    match text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?))) {
        Some((k, n)) if k <= n => Ok(Membership { me: MemberId(k - 1), n_members: n }),
        _ => Err("write it as 2/3: the second of three, of at most 64".into()),
    }
}
