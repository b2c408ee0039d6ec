//! eyas-terms: the vocabulary. Plain data that everybody needs, and nothing that decides where or when.
//!
//! | module | |
//! |---|---|
//! | `types` | identifiers, time, digests and outcomes, which are names of this crate |
//! | [`array`] | the folded form of many tasks |
//! | [`needs`] | gpus, named resources and parts of processors: what a task asks for, and what is left of a node |
//! | [`location`] | whether a file lives at home or stays on the nodes |
//! | [`home_wait`] | how long somebody waits for a home that does not answer |
//! | [`recipe`] | what a node makes of a packed file |
//! | [`phase`] | where a task is in its life |
//! | [`processors`] | how busy a node's processors are |
//! | [`push`] | how an active push of files to nodes stands |
//! | [`rng`] | random numbers from a seed |
//!
//! `clippy.toml` beside this crate is the core's.

#![forbid(unsafe_code)]

pub mod array;
pub mod home_wait;
pub mod location;
pub mod needs;
pub mod phase;
pub mod processors;
pub mod push;
pub mod recipe;
pub mod rng;
mod types;

pub use location::{CatalogLocation, Location, MadeLocation, RUN_FILE, is_directory, run_file};
pub use phase::TaskPhase;
pub use push::{MissingFile, PushRecord};
pub use types::*;
