//! `eyas-lab homes`: the conformance suite of home storage at a real home.

use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_storage::{Homes, HomesConfig, Location, conformance};

#[derive(Args)]
pub struct HomesArgs {
    /// A place below which the suite may write and remove what it likes
    #[arg(value_name = "URL")]
    place: String,
    /// The server takes no names with a line break in them
    #[arg(long)]
    no_line_breaks: bool,
    /// The server, or a tool before it, takes letters, digits and dashes only
    #[arg(long)]
    plain_names: bool,
}

/// A broken promise ends the program with a panic that names the location.
pub fn homes(args: &HomesArgs) -> Result<Exit, Fault> {
    let bad = |e| Fault::new(Exit::BadInput, e);
    let place: Location = args.place.parse().map_err(bad)?;
    let homes = Homes::new(HomesConfig::default()).map_err(bad)?;
    let home = &**homes.get(&place);
    match (args.plain_names, args.no_line_breaks) {
        (true, _) => conformance::run_with_plain_names(home, &place),
        (false, true) => conformance::run_without_line_breaks(home, &place),
        (false, false) => conformance::run(home, &place),
    }
    show!("the `{}` home at {place} keeps every promise", home.capabilities().name);
    Ok(Exit::Good)
}
