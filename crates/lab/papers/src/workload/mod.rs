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

use eyas_sim::workload::{
    ArrivingTasks, Compute, Error, MB, MS_NS, SECOND_NS, Sizes, UNPACKED_RATIO, Workload, at_least_one,
    links, sanity, template,
};
use eyas_terms::Timestamp;
use eyas_terms::array::{Pattern, TaskArray, Template};
use rustc_hash::FxHashMap;
use std::sync::Arc;
