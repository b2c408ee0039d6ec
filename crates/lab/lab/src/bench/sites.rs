//! `eyas-lab bench sites`: simulated sites with slow links between them, with what is measured of the network, with
//! round trips alone, and without.

use super::table::{Row, Table};
use super::{Common, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::network::NetworkUse;
use eyas_papers::experiment::sites::{Load, run};
use eyas_sim::outcome::Summary;

#[derive(Args)]
pub struct SitesArgs {
    /// Number of sites, with eight nodes each; 50 Mbit/s between each two of them
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    sites: u32,
    /// Number of seeds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &SitesArgs) -> Result<Exit, Fault> {
    args.common.run(|_| {
        let mut table = Table::new(format!("sites: {} simulated sites of 8 nodes", args.sites));
        for load in Load::ALL {
            note(load.name());
            let all = |network: NetworkUse| -> Result<Vec<Summary>, Fault> {
                let one = |seed| run(load, args.sites, network, seed).map_err(|e| Fault::new(Exit::Other, e));
                (1..=args.rounds).map(one).collect()
            };
            let unknown = all(NetworkUse::Off)?;
            let of = |all: &[Summary], value: fn(&Summary) -> f64| {
                median(&all.iter().map(value).collect::<Vec<f64>>())
            };
            let rows: [(&str, &str, fn(&Summary) -> f64); 4] = [
                ("time", "s", |s| s.makespan_s),
                ("from home", "GB", |s| s.moved_home_bytes as f64 / 1e9),
                ("between nodes", "GB", |s| s.moved_peer_bytes as f64 / 1e9),
                ("between sites", "GB", |s| s.moved_between_bytes as f64 / 1e9),
            ];
            for network in [NetworkUse::Measured, NetworkUse::Passive, NetworkUse::Ping] {
                let known = all(network)?;
                let name = format!("{}, {}", load.name(), network.name());
                for (what, unit, value) in rows {
                    let row = Row::new(format!("{name}: {what}"), of(&known, value), unit)
                        .against("network unknown", of(&unknown, value));
                    let is_goal = what == "time" && network == NetworkUse::Measured;
                    table.row(if is_goal { row.target("0.70", "0.50") } else { row });
                }
            }
        }
        Ok(table)
    })
}
