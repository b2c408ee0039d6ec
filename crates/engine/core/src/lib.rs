//! eyas-core: every decision eyas takes, and nothing else.
//!
//! The state machines here take events and the time, and give back actions. There is no I/O, clock, thread or
//! unseeded randomness in this crate: the live runtime, the simulator and the replayer all drive the same
//! code. `clippy.toml` beside this crate lists the functions that would break that rule.
//!
//! | module | decides |
//! |---|---|
//! | [`dispatcher`] | which task runs where, and when its inputs start moving |
//! | [`executor`] | on one node: which transfer, which start, which stage-out comes next |
//! | [`placement`] | the placement policies and the index that makes them cheap |
//! | [`provisioning`] | how many nodes there should be |
//! | [`cache`], [`eviction`] | what a node keeps under a hard byte budget |
//! | [`collective`] | how the data of a pattern moves as one plan |
//! | [`pattern`] | which dataflow patterns tasks and files form |
//! | [`home_share`] | how much each executor may move from and to home storage |
//! | [`lease`] | until when an executor may let results appear at home |
//! | [`group`] | which of several dispatchers owns a name, and how a submission is split among them |
//! | [`catalog`] | which executor holds which replica, searchable both ways |
//! | [`heard`] | nothing: what executors say, as events of the dispatcher |

#![forbid(unsafe_code)]

pub mod cache;
pub mod catalog;
pub mod collective;
pub mod dispatcher;
pub mod event;
pub mod eviction;
pub mod executor;
pub mod executor_set;
pub mod file_groups;
pub mod group;
pub mod heard;
pub mod home_share;
pub mod lease;
pub mod log;
mod means;
pub mod network;
pub mod pattern;
pub mod placement;
pub mod provisioning;
