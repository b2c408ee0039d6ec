//! eyas-sim: the core of eyas on machines that are not here.
//!
//! The state machines of `eyas-core` decide without I/O; this crate drives them with a virtual clock and
//! with models of what they ask for. It takes no decision of its own: what runs where, what is fetched from
//! whom, what is evicted and how many nodes there are is what the live system would have done.
//!
//! | module | |
//! |---|---|
//! | [`fluid`] | disks, links and storage that flows share |
//! | [`workload`] | what is submitted, and when |

pub mod fluid;
pub mod workload;
