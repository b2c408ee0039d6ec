//! eyas-papers: the evaluations of the papers, on simulated machines.
//!
//! In: nothing but seeds. Out: runs whose numbers stand beside those of the papers. `eyas-lab` shows them; no part of the
//! program `eyas` needs this crate.
//!
//! | module | |
//! |---|---|
//! | [`experiment`] | the papers' evaluations as a list of runs, and ours beside it |
//! | [`workload`] | the papers' workloads |
//! | [`durability`] | a catalog over years, beside the Markov chain |

#![forbid(unsafe_code)]

pub mod durability;
pub mod experiment;
pub mod workload;
