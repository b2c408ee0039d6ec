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
    /// The same, but it takes all printable ASCII
    #[arg(long)]
    ascii_names: bool,
    /// The longest name below URL that it takes, in bytes
    #[arg(long, value_name = "N")]
    name_bytes_max: Option<usize>,
}

/// A broken promise ends the program with a panic that names the location.
pub fn homes(args: &HomesArgs) -> Result<Exit, Fault> {
    let bad = |e| Fault::new(Exit::BadInput, e);
    let place: Location = args.place.parse().map_err(bad)?;
    let homes = Homes::new(HomesConfig::default()).map_err(bad)?;
    let home = &**homes.get(&place);
    let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_ascii = |name: &str| name.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    conformance::run_with_names(home, &place, |name| {
        !(args.plain_names && !is_plain(name)
            || args.ascii_names && !is_ascii(name)
            || args.no_line_breaks && name.contains('\n')
            || args.name_bytes_max.is_some_and(|most| name.len() > most))
    });
    show!("the `{}` home at {place} keeps every promise", home.capabilities().name);
    Ok(Exit::Good)
}
