//! eyas-report: what the event log of a run says, in numbers, in a picture and in words.
//!
//! In: a dispatcher's directory with the files of [`eyas_core::log`]. Out:
//!
//! | module | gives |
//! |---|---|
//! | [`fold`] | runs, tasks, attempts and executors as the lines of a log say them, for all readers below |
//! | [`read`](mod@read) | [`RunLog`]: compact records of runs, tasks, attempts and executors |
//! | [`metrics`](mod@metrics) | [`Report`]: the metrics of `Raicu09` §5.1 with their formulas, and time series |
//! | [`verdict`](mod@verdict) | what limited the run, in words |
//! | [`bound`](mod@bound) | the least time that a run could have taken |
//! | [`gantt`] | what ran when, by node and slot |
//! | [`stages`](mod@stages) | what each stage of a workflow read, wrote and took |
//! | [`html`](mod@html) | one self-contained page of one report, or of two side by side |
//! | [`explain`] | the story of one task in words |
//! | [`calls`] | which tasks are calls of functions, whose packed arguments and answers say nothing to people |
//! | [`nodes`] | why nodes were requested and released, in words |
//! | [`printed`] | what failed tasks printed |
//! | [`topology`](mod@topology) | sites, rates and latencies of the network, from what was transferred |
//! | [`declared`](mod@declared) | the tasks of a run with the files that watched programs were seen to read and make |
//! | [`workflow`](mod@workflow) | a run as a workflow, with measured times and sizes |
//! | [`group`] | the logs of several dispatchers as one |
//! | [`memo`] | what a run made of what, by digests, so that it can be resumed |
//! | [`replay`](mod@replay) | whether the core, fed the logged events again, takes the logged actions |
//!
//! Invariants: nothing but the log is read, and nothing is written ([`memo`] reads and writes one small file of its own); the rules by
//! which lines become states stand in [`fold`] alone; memory grows with tasks and attempts, not with bytes of log; a log that ends in
//! the middle of a line (its writer was killed) is a good log.
//!
//! Why a crate of its own: report, explanation and replay also work on the directory of a run whose
//! dispatcher has ended long ago, on a machine that never ran it.
//!
//! Not here: the grammar (`eyas_core::log`), writing the log (`eyas-runtime`), progress lines (`eyas-cli`).

#![forbid(unsafe_code)]

mod bins;
pub mod bound;
pub mod calls;
mod chain;
mod chart;
pub mod declared;
pub mod error;
pub mod explain;
pub mod fold;
pub mod gantt;
pub mod group;
pub mod html;
pub mod lines;
mod measure;
pub mod memo;
pub mod metrics;
pub mod nodes;
pub mod printed;
pub mod read;
pub mod replay;
mod series;
pub mod stages;
pub mod topology;
mod units;
pub mod verdict;
pub mod workflow;

pub use bound::Bound;
pub use error::{Error, ErrorKind, Status};
pub use explain::{FileStory, TaskStory, explain_lines, file_lines, file_story, story_from_dir};
pub use group::{membership, newest_run, read_group, story_from_group};
pub use html::html;
pub use lines::{lost_lines, lost_sentence};
pub use memo::Memo;
pub use metrics::{ArrivalRow, Comparison, Report, compare, metrics, metrics_of};
pub use nodes::{NodesStory, nodes_lines, nodes_story};
pub use printed::{FailedTask, failed_printed};
pub use read::{How, RunLog, read};
pub use replay::{Difference, ReplayOutcome, replay};
pub use stages::StageRow;
pub use topology::{Topology, topology, topology_lines, topology_svg};
pub use verdict::{Cause, CauseShare, Verdict};
pub use workflow::workflow;
