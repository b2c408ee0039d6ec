//! `eyas data`: data sets that are kept: put, found, got, shared, audited and repaired. `eyas match` and `eyas at-data`: programs
//! that run on them.
//!
//! The catalog is a database that this program opens itself; its sites are folders on this machine, and stores elsewhere
//! (`eyas store`).

mod access;
mod at_data;
mod dead;
mod home;
mod hosts;
mod hub;
mod keep;
mod look;
mod matching;
mod open;
mod outputs;
mod outside;
mod put;
mod quota;
mod store;
mod tend;
mod top;
mod user;

use crate::{Exit, Fault};
use clap::{Args, Subcommand};

pub use access::{AccessArgs, MountArgs, access, mount};
pub use at_data::{AtDataArgs, AtDataJobArgs, at_data, at_data_job};
pub use home::provide;
pub use matching::{MatchArgs, matching};
pub use outputs::check_outputs;
pub use store::{StoreArgs, store};

#[derive(Args)]
pub struct DataArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", global = true, hide_env_values = true)]
    db: Option<String>,
    #[command(subcommand)]
    verb: DataVerb,
}

#[derive(Subcommand)]
enum DataVerb {
    /// Make a catalog and its first site, or bring an older catalog up to date
    Init(keep::InitArgs),
    /// Put files and directories into a data set; prints its label
    Put(put::PutArgs),
    /// Data sets that match a query, the newest first
    Find(look::FindArgs),
    /// The files of a data set; without one, all data sets
    Ls(look::LsArgs),
    /// All about a data set: owner, tags, versions, copies
    Show(look::KeyArgs),
    /// Where the copies of a data set are
    Where(look::KeyArgs),
    /// The hosts that hold data sets, as a batch system wants them: for schedulers that eyas does not drive
    Hosts(hosts::HostsArgs),
    /// What was done with a data set, by whom and when
    History(look::KeyArgs),
    /// Copy a data set, or one file of it, to here
    Get(put::GetArgs),
    /// Give a data set tags, or take tags away
    Tag(put::TagArgs),
    /// Set how many copies of a data set there should be
    Copies(keep::CopiesArgs),
    /// Show or set who may do what with a data set
    Acl(put::AclArgs),
    /// Who uses a catalog in PostgreSQL beside who keeps it
    User(user::UserArgs),
    /// Show how much data each user has and may have, or set how much
    Quota(quota::QuotaArgs),
    /// Remove a data set, or one version of it
    Rm(put::RmArgs),
    /// Add a folder as a site, or list the sites
    Site(keep::SiteArgs),
    /// Serve as the place where stores that nobody can reach (`eyas store --hub`) and catalogs meet
    Hub(hub::HubArgs),
    /// Read every copy through, and say what is bad, missing or foreign
    Audit(keep::AuditArgs),
    /// Make the copies that are missing, and drop what nobody needs
    Repair(keep::RepairArgs),
    /// Make and verify copies again and again, until it is ended: repairs as soon as they are needed, and audits in small parts
    Tend(tend::TendArgs),
    /// A live view of sites, of what is short of copies, and of what was done last
    Top(top::TopArgs),
    /// Make the catalog anew from the folders of sites, when the catalog is lost
    Rebuild(keep::RebuildArgs),
    /// Have a site give up its copies: others get them, and it gets no more
    Drain(keep::DrainArgs),
}

pub fn data(args: DataArgs) -> Result<Exit, Fault> {
    let db = args.db.as_deref();
    match args.verb {
        DataVerb::Init(args) => keep::init(db, &args),
        DataVerb::Put(args) => put::put(db, args),
        DataVerb::Find(args) => look::find(db, &args),
        DataVerb::Ls(args) => look::ls(db, &args),
        DataVerb::Show(args) => look::show(db, &args),
        DataVerb::Where(args) => look::whereabouts(db, &args),
        DataVerb::Hosts(args) => hosts::hosts(db, &args),
        DataVerb::History(args) => look::history(db, &args),
        DataVerb::Get(args) => put::get(db, &args),
        DataVerb::Tag(args) => put::tag(db, &args),
        DataVerb::Copies(args) => keep::copies(db, &args),
        DataVerb::Acl(args) => put::acl(db, &args),
        DataVerb::User(args) => user::user(db, &args),
        DataVerb::Quota(args) => quota::quotas(db, &args),
        DataVerb::Rm(args) => put::rm(db, &args),
        DataVerb::Site(args) => keep::site(db, &args),
        DataVerb::Hub(args) => hub::hub(args),
        DataVerb::Audit(args) => keep::audit(db, &args),
        DataVerb::Repair(args) => keep::repair(db, &args),
        DataVerb::Tend(args) => tend::tend(db, &args),
        DataVerb::Top(args) => top::top(db, &args),
        DataVerb::Rebuild(args) => keep::rebuild(db, &args),
        DataVerb::Drain(args) => keep::drain(db, &args),
    }
}
