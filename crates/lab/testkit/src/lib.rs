//! Builders, a simulator of the whole system, and checkers of the promises. Tests use it, and `eyas-lab chaos`; no
//! program that is given to users contains it.
//!
//! | module | gives |
//! |---|---|
//! | [`build`] | tasks and submissions in a line: `reads("x").writes("y")` |
//! | [`script`] | one dispatcher or one executor by a script: events in, exactly these actions out, books checked after each step |
//! | [`options`] | what a simulated world is made of and what goes wrong in it, all drawn from one seed |
//! | [`happening`] | what can happen in such a world |
//! | [`world`] | one or several dispatchers, executors and clients, virtual network, disks, programs, journals and time |
//! | [`home`] | home storage with every version that it ever had |
//! | [`two_mark`] | the sequential 2Mark over several stores, its offline optimum, and the search for what breaks its bound |
//! | [`process`] | a dispatcher process: the live dispatcher's session over a journal in memory |
//! | [`node`] | what the live executor does around its state machine, without its I/O |
//!
//! The simulator runs the state machines of `eyas-core` and the sessions of `eyas-session` as they are; only what surrounds
//! them is a model. Nothing here depends on the machine: one seed, one sequence of events, one trace hash.

#![forbid(unsafe_code)]

pub mod build;
pub mod happening;
pub mod home;
pub mod node;
pub mod options;
pub mod process;
pub mod script;
pub mod two_mark;
pub mod world;
