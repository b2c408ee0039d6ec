//! `eyas ls`: what is at home below a directory, or what matches a pattern.

use crate::homes::{self, named};
use crate::print::size;
use crate::{Exit, Fault};
use clap::Args;
use eyas_storage::{LeftOut, Listed, Listing};
use eyas_text::plural;
use std::sync::Mutex;

#[derive(Args)]
pub struct LsArgs {
    /// A directory, a file, or a pattern in quotes such as 's3://bucket/run1/*.fa'; a path or a URL
    #[arg(value_name = "PLACE")]
    place: String,
    /// Show sizes and versions, too: one more question to home for each object
    #[arg(short, long)]
    long: bool,
}

pub fn ls(args: LsArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let listing = homes::listing(&args.place)?;
    let is_pattern = matches!(listing, Listing::Glob { .. });
    let one = || homes::location(&args.place).ok().filter(|one| homes.stat(one).is_ok());
    let Listed { mut found, left_out, .. } = match homes.list(&listing) {
        // A file's name is that of no directory.
        Err(error) => match one() {
            Some(file) => Listed { found: vec![file], ..Listed::default() },
            None => return Err(homes::fault(error)),
        },
        Ok(listed) => listed,
    };
    if found.is_empty() && left_out.is_empty() {
        found.extend(one());
        if found.is_empty() && is_pattern {
            return Err(homes::nothing(&args.place));
        }
    }
    LeftOut::say_all(&left_out);
    let end = || match left_out.len() as u64 {
        0 => Ok(Exit::Good),
        n => Err(Fault::new(
            Exit::Other,
            format!("{n} of {} were left out", plural(found.len() as u64 + n, "object")),
        )),
    };
    if !args.long {
        for location in &found {
            show!("{}", named(location));
        }
        return end();
    }
    let stats: Vec<Mutex<String>> = found.iter().map(|_| Mutex::default()).collect();
    homes::each_by_itself(found.len(), "looked at", &|n| {
        let stat = homes.stat(&found[n])?;
        let version = stat.version.shown();
        *stats[n].lock().expect("no holder panics") = format!("{:>10}  {version:<44}", size(stat.size_bytes));
        Ok(())
    })?;
    for (location, stat) in found.iter().zip(stats) {
        show!("{}  {}", stat.into_inner().expect("no holder panics"), named(location));
    }
    end()
}
