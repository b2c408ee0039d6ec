//! Sites on other machines: a *store* serves the folder of a site, and whoever has its join file uses it as if it were here.
//!
//! ```text
//! catalog's side                      store
//! TLS with the join file's keys, preamble (eyas-net)
//! Ask::Site                        →
//!                                  ← Tell::Site
//! Ask::Read, Ask::Verify, …        →
//!                                  ← answers of that request, the last of which ends it
//! Ask::Begin, Add, Piece…, Whole … →           (a batch; nothing is answered before its end)
//! Ask::Keep                        →
//!                                  ← Tell::Done
//! ```
//!
//! Stores also fetch objects from each other, when the catalog's side says so:
//!
//! ```text
//! catalog's side              store that has them          store that gets them
//! Ask::Permit(digests)      →
//!                           ← Tell::Permit(key)
//! Ask::Fetch(address, key)  →                              →
//!                                                        ← TLS with that key, Ask::Copy, …
//!                             pieces                     →
//!                           ←                            ← Tell::Found, once all are on its disk
//! ```
//!
//! * [`Store`]: the side that has the folder.
//! * [`Remote`]: the side of the catalog; it is an `eyas_catalog::Holding`.
//! * [`Hub`]: where the two meet when the store cannot be reached.
//!
//! Objects are sent in pieces, and neither side queues more than a few of them. A batch is sent without waiting for the store, which
//! hashes what arrives and compares it with what the sender hashed. While a store works on a request it says so every few seconds,
//! so that a store that hangs is known from one that reads a large object.
//!
//! Users of a store have keys of their own, and what each may do, the store itself decides (`users`).
//!
//! Invariants: a batch whose connection breaks leaves nothing. A permit's key reads the objects for which it was made, and does nothing else. Nothing in a message names a path: objects are named by digests and
//! seals by keys. What a program made has paths below a folder, and the catalog's side takes no other ones.
//!
//! Not here: which copies are made (`eyas_keeping`), and what rights a data set gives to whom (`eyas_catalog`).

#![forbid(unsafe_code)]

mod fetching;
mod hub;
mod pace;
mod permits;
mod programs;
mod protocol;
mod remote;
mod store;
mod users;

pub use hub::{AtHub, Hub, HubReport};
pub use programs::Programs;
pub use remote::{Ran, Remote, RunAtSite, Stores};
pub use store::{Store, StoreOptions};
