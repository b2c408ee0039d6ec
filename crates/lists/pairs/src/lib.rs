//! eyas-pairs: All-Pairs, a function of every item of one set with every item of another.
//!
//! | module | |
//! |---|---|
//! | [`plan`] | decides which pairs go into one task, a *tile* |
//! | [`assign`] | the same by a user's file, with the nodes and the places that it names |
//! | [`records`] | items that are records of files: where one begins, and what it is called |
//! | [`command`] | the command that computes a pair, and which number of what it prints is the pair's value |
//! | [`tile`] | the program that computes the pairs of a tile on a node, and what its result looks like |
//! | [`matrix`] | the result of all tiles, on a disk |
//!
//! `plan` is held to the rules of `eyas-core`: `clippy.toml` beside this crate is the core's.
//!
//! Not here: the verb `eyas pairs`, which finds the items and makes tasks of the tiles (`eyas-cli`).

pub mod assign;
#[allow(clippy::disallowed_methods)]
pub mod command;
#[allow(clippy::disallowed_types)]
pub mod matrix;
pub mod plan;
pub mod records;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod tile;

pub use plan::*;
