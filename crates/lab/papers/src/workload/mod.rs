//! The papers' workloads, as the simulator takes them ([`eyas_sim::workload`]).
//!
//! | module | gives |
//! |---|---|
//! | [`mi`], [`sw`] | the synthetic streams of `Raicu09` §5.1 and §5.2 |
//! | [`stacking`] | the image stacking workloads of table 3, §6 |
//! | [`shapes`] | the applications of `Zhang12`, by their tables |
//! | [`grouped`] | tasks that read whole groups of files |

mod arrivals;
pub mod grouped;
pub mod mi;
pub mod shapes;
pub mod stacking;
pub mod sw;
