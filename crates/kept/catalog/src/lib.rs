//! The durable replica catalog: data sets that are named, tagged, found and versioned, where their copies are, who may do what.
//!
//! Input: requests of a [`Caller`] (make a data set, commit it, tag it, find, share, remove) and reports of sites (a copy is
//! ready, was verified, is bad). Output: rows of a database, and answers as data.
//!
//! Source: the searchable metadatabase of GEMS (`Wozniak06` §III). A *data set* has a label, an owner, tags and versions; a *version* is a set
//! of files that never changes once it is committed; a file's bytes are an *object*, named by its BLAKE3 digest; an object
//! has *replicas*, each at a *site*.
//!
//! * [`Catalog`]: one type over both databases, SQLite (embedded) and PostgreSQL (`db`, `schema`).
//! * [`query`]: the language of `find`.
//! * [`Compared`]: which files of this machine were compared with their digest lately, by any process of this user.
//! * [`Holding`]: what a site can be asked; [`Folder`]: a site's folder on this machine. Stores elsewhere are [`Reach`]ed by the caller.
//!
//! Invariants: nothing is committed of which a file has no ready replica, or that is more than its owner may have. No text from outside gets into a
//! statement but as a value. Whoever lacks the right to list a data set gets the same answer as if there were none.
//!
//! Not here: sockets, clocks (each call takes the time), and any decision about when and where copies are made.

mod access;
mod adopt;
mod asking;
mod carried;
mod catalog;
mod compared;
mod copying;
mod db;
mod error;
mod exact;
mod folder;
mod holding;
mod home;
mod joining;
mod keeping;
mod key;
mod making;
mod own;
mod own_host;
mod parts;
mod put;
pub mod query;
mod quotas;
mod reached;
mod reading;
mod reads;
mod restored;
mod rights;
mod rows;
mod schema;
mod sealed;
mod sets;
mod sites;
mod spare;
mod standing;
mod tags;
mod users;
mod written;

pub use access::Caller;
pub use adopt::Rebuilt;
pub use asking::any_turn;
pub use carried::{CarriedFile, CarriedSite, Fetcher};
pub use catalog::Catalog;
pub use compared::{Began, Compared};
pub use copying::beside;
pub use error::{Error, Result};
pub use exact::Exact;
pub use folder::{Folder, SaidBy, has_ended, writer_mark};
pub use holding::{Arrivals, Aside, Blocks, Condition, Holding, Permit, Reach, SitePlace, StoreUser};
pub use home::{DataHome, written};
pub use joining::Joining;
pub use keeping::{Audit, Repair, Rests, ShortFile, reason_of};
pub use key::{Key, NEW, check_label, label_of};
pub use own_host::OwnHost;
pub use parts::{Access, Known, PartReader};
pub use put::{Done, Put, put, put_in_place, take_in};
pub use quotas::{Quotas, Usage};
pub use reading::{Got, SetReader};
pub use rights::{Acl, Right, Rights, Subject, rights_of};
pub use sealed::{File, Sealed};
pub use sets::{DataSet, Draft, Entry, FoundSet, Version, is_plain_path};
pub use sites::{NewSite, Replica, ReplicaState, Site, SiteState, Whereabouts, host_of};
pub use spare::{SpareSet, Spared};
pub use standing::{Act, ShortSet, SiteStanding, Standing};
pub use tags::{Kind, Tag, date_text};
pub use users::{Unheard, User};
pub use written::Unknown;
