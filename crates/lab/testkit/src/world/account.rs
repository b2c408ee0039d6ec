//! What a world remembers of its programs and runs, by which it checks the promises.

use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet};

/// The dispatcher that gave an attempt out, the node, the task, and the attempt.
pub(super) type WitnessKey = (usize, usize, TaskId, AttemptNo);

/// The inputs that an attempt's program was given, and the outputs that it made.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    /// The user's name for the task.
    pub name: String,
    pub seen: Vec<(String, Digest, bool)>,
    pub outputs: Vec<(String, Digest)>,
    /// The dispatcher process that had assigned it.
    pub incarnation: u64,
    /// An input was changed while the program ran.
    pub spoiled: bool,
}

#[derive(Default)]
pub(super) struct Account {
    /// When each run was accepted.
    pub run_since: BTreeMap<RunId, Timestamp>,
    /// What the programs of attempts have read and made.
    pub witnesses: BTreeMap<WitnessKey, Witness>,
    /// Tasks that have ended well, also if they run again.
    pub ever_done: BTreeSet<String>,
    /// Tasks that have ended in any way.
    pub ever_ended: BTreeSet<String>,
    /// The bytes that done tasks have written to files that stay on the nodes, by location.
    pub made: BTreeMap<String, BTreeSet<Digest>>,
    /// How often a done task ran again, because a file of it was lost.
    pub n_revivals: u64,
    /// Cached objects that were once found damaged, by node.
    pub damaged: BTreeSet<(usize, ObjectId)>,
}
