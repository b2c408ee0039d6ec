//! `eyas data quota`: how much data each user has in a catalog, and may have.

use super::open::{Opened, open};
use crate::args::bytes;
use crate::fault::bad;
use crate::print::size;
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_catalog::{Quotas, Subject};
use eyas_text::line_of;

#[derive(Args)]
pub struct QuotaArgs {
    /// user:NAME, or everyone for users who have no quota of their own; without it, all users are listed
    #[arg(value_name = "WHO")]
    who: Option<Subject>,
    /// Most bytes that the data sets of this user take, or `none` to take the quota away
    #[arg(value_name = "BYTES", requires = "who", value_parser = quota)]
    quota: Option<Quota>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
struct Quota(Option<u64>);

fn quota(text: &str) -> Result<Quota, String> {
    match text {
        "none" => Ok(Quota(None)),
        text => bytes(text).map(|bytes| Quota(Some(bytes))),
    }
}

pub fn quotas(db: Option<&str>, args: &QuotaArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    if let (Some(who), Some(Quota(bytes))) = (&args.who, args.quota) {
        catalog.set_quota(&caller, who, bytes, now_ms)?;
    }
    let mut quotas = catalog.quotas()?;
    if let Some(who) = &args.who {
        let who = who.to_string();
        match who.strip_prefix("user:") {
            Some(user) => quotas.users.retain(|usage| usage.user == user),
            None if who == "everyone" => {}
            None => {
                return Err(bad(format!("{who} is a group, and data sets belong to users: write user:NAME")));
            }
        }
    }
    match args.json {
        true => json::write(&quotas)?,
        false => show(&quotas),
    }
    Ok(Exit::Good)
}

fn show(quotas: &Quotas) {
    let allowed = |bytes: Option<u64>| bytes.map_or("no limit".to_owned(), size);
    for usage in &quotas.users {
        let whose = if usage.is_own { "" } else { "  (as everyone)" };
        let (used, allowed) = (size(usage.used_bytes), allowed(usage.allowed_bytes));
        show!("user:{:<16} {used:>10} of {allowed}{whose}", line_of(&usage.user));
    }
    show!("{:<21} {:>10} of {}", "everyone", "", allowed(quotas.everyone_bytes));
}
