//! `eyas data user`: who uses a catalog in PostgreSQL beside who keeps it.

use super::open::{Opened, open};
use crate::print::plural;
use crate::{Exit, Fault, json};
use clap::{Args, Subcommand};
use eyas_catalog::Unheard;
use eyas_text::{line_of, say};

#[derive(Args)]
pub struct UserArgs {
    #[command(subcommand)]
    verb: UserVerb,
}

#[derive(Subcommand)]
enum UserVerb {
    /// Let a user of the database use the catalog and its stores, or give one new keys and other groups
    Add(AddArgs),
    /// Let a user in no more, neither to the catalog nor to its stores; what is theirs stays
    Remove(RemoveArgs),
    /// The users; to a user, their own entry
    List(ListArgs),
}

#[derive(Args)]
struct AddArgs {
    /// As the database knows them (`createuser NAME`)
    name: String,
    /// A group that access lists mean by group:NAME (may be given more than once)
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
}

#[derive(Args)]
struct RemoveArgs {
    name: String,
}

#[derive(Args)]
struct ListArgs {
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn user(db: Option<&str>, args: &UserArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    match &args.verb {
        UserVerb::Add(AddArgs { name, groups }) => {
            let unheard = catalog.add_user(&caller, name, groups, now_ms)?;
            show!("{} may use {}", line_of(name), catalog.name());
            Ok(tell_unheard(&unheard))
        }
        UserVerb::Remove(RemoveArgs { name }) => {
            let unheard = catalog.remove_user(&caller, name, now_ms)?;
            show!("{} may use {} no more", line_of(name), catalog.name());
            Ok(tell_unheard(&unheard))
        }
        UserVerb::List(ListArgs { json }) => {
            let users = catalog.users()?;
            if *json {
                json::write(&users)?;
                return Ok(Exit::Good);
            }
            for user in users {
                let groups = if user.groups.is_empty() { "-".into() } else { user.groups.join(",") };
                let stores = plural(user.n_stores, "store");
                show!("{:<16} {:<16} a key to {stores}", line_of(&user.name), line_of(&groups));
            }
            Ok(Exit::Good)
        }
    }
}

/// Says which stores were not told. Until they are, the change does not hold there.
fn tell_unheard(unheard: &Unheard) -> Exit {
    for (site, reason) in unheard {
        say!(
            "the site `{site}` was not told, and does as before until `eyas data repair` or `eyas data tend` tells it: {}",
            line_of(reason)
        );
    }
    if unheard.is_empty() { Exit::Good } else { Exit::TasksFailed }
}
