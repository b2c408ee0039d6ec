//! eyas-sim: the core of eyas on machines that are not here.
//!
//! The state machines of `eyas-core` decide without I/O; this crate drives them with a virtual clock and
//! with models of what they ask for. It takes no decision of its own: what runs where, what is fetched from
//! whom, what is evicted and how many nodes there are is what the live system would have done.
//!
//! | module | |
//! |---|---|
//! | [`agenda`] | what is to happen, in order of time |
//! | [`world`] | the virtual clock, and what happens to what the state machines ask for |
//! | [`fluid`] | disks, links and storage that flows share |
//! | [`machine`] | what a cluster is made of; the papers' machines |
//! | [`workload`] | what is submitted, and when |
//! | [`outcome`] | what came out |
//! | [`model`] | the formulas of Raicu09 for how long a workload takes, without living through it |
//! | [`predict`] | a machine as a recorded run saw it, and how long work takes on machines like it |

#![forbid(unsafe_code)]

pub mod agenda;
pub mod fluid;
pub mod group;
pub mod machine;
pub mod model;
pub mod outcome;
pub mod predict;
pub mod workload;
pub mod world;
