//! What the agent knows of each attempt on this node beyond the state machine.

use super::{AttemptId, runner};
use crate::executor::system_users::nobody;
use crate::executor::watch::Watched;
use crate::executor::watched_files::{Answer, Copy, FoundFiles, MadeFile};
use eyas_data::Halt;
use eyas_runner::Account;
use eyas_session::executor as session;
use eyas_terms::array::TaskSpec;
use eyas_terms::*;
use eyas_wire::users::Principal;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// One attempt, from its assignment until it is cleaned up.
pub(super) struct Attempt {
    pub(super) spec: TaskSpec,
    /// Everything that its program prints is wanted.
    pub(super) prints_whole: bool,
    pub(super) principal: Principal,
    /// The system user that its program runs as, where programs have some. `Err`: why the user has none, as a sentence.
    pub(super) account: Option<Result<Account, String>>,
    /// The number by which slot processes know the attempt.
    pub(super) key: u64,
    /// The slot that runs the program, or ran it last.
    pub(super) slot: Option<usize>,
    /// `None` unless the program runs.
    pub(super) started: Option<Timestamp>,
    /// The directory where the outputs are until they are taken.
    sandbox: Option<PathBuf>,
    output_states: Vec<runner::OutputState>,
    /// The run that the slot was asked for. `None`: the program has ended, or must not begin anew.
    pub(super) run_spec: Option<runner::RunSpec>,
    /// So many slot processes have ended while they ran its program.
    pub(super) n_slots_lost: u32,
    /// The bytes that programs of this node were known to have written when this program was handed to a slot.
    pub(super) written_before_bytes: u64,
    /// Inputs that may be linked into the sandbox, because they are watched, with their positions.
    pub(super) watched: Vec<(u32, Watched)>,
    /// Inputs that are linked into the sandbox, with their positions.
    pub(super) linked: Vec<(u32, Digest)>,
    /// Stops the hashing and landing of the attempt's outputs.
    pub(super) halt: Halt,
    /// The numbers of the trees among its inputs, which stay as long as it needs them.
    pub(super) trees: Vec<u64>,
    /// Who waits for a file that its program has named, by the file's location.
    pub(super) naming: HashMap<String, Vec<Sender<Answer<Copy>>>>,
    /// Its program has ended, and made files that nobody declared.
    pub(super) found: Option<FoundFiles>,
    /// No input with this number or a higher one has a private copy that its program has named.
    pub(super) n_private: u32,
}

impl Attempt {
    /// The system user that its program runs as; `None`: that of this process.
    pub(super) fn account(&self) -> Option<&Account> {
        self.account.as_ref()?.as_ref().ok()
    }

    /// Whose rights count for files at home. `None`: those of this process, which the cluster's owner has everywhere.
    pub(super) fn at_home(&self) -> Option<Account> {
        let account = self.account.as_ref().filter(|_| self.principal != Principal::Owner)?;
        Some(account.clone().unwrap_or_else(|_| nobody()))
    }

    /// The program has ended, and its outputs are as `report` says.
    pub(super) fn program_ended(&mut self, report: &mut runner::RunReport) {
        self.run_spec = None;
        self.started = None;
        self.sandbox = report.sandbox.as_ref().map(|s| s.as_path().to_path_buf());
        self.output_states = std::mem::take(&mut report.outputs);
    }

    /// These files, which nobody declared, are its outputs, too.
    pub(super) fn admit(&mut self, made: Vec<MadeFile>, locations: &[String]) {
        for (made, location) in made.into_iter().zip(locations) {
            self.spec.outputs.push((made.name.clone(), location.clone()));
            self.output_states.push(made.state());
        }
    }

    pub(super) fn sandbox(&self) -> Option<&Path> {
        self.sandbox.as_deref()
    }

    /// Where the program left an output, and how many names (hard links) that file has. `None`: there is no
    /// such output.
    pub(super) fn output_path(&self, output: u32) -> Option<(PathBuf, u64)> {
        match self.output_states.get(output as usize)? {
            runner::OutputState::File { path, n_links, .. } => {
                Some((self.sandbox.as_ref()?.join(path.as_path()), *n_links))
            }
            runner::OutputState::Directory { path, .. } => {
                Some((self.sandbox.as_ref()?.join(path.as_path()), 1))
            }
            _ => None,
        }
    }

    /// Permission bits that the program gave an output, if it is a file.
    pub(super) fn output_mode(&self, output: u32) -> Option<u32> {
        match self.output_states.get(output as usize) {
            Some(runner::OutputState::File { mode, .. }) => Some(*mode),
            _ => None,
        }
    }

    /// What the program gave an output beside its bytes, if it is a file.
    pub(super) fn output_marks(&self, output: u32) -> Option<Marks> {
        match self.output_states.get(output as usize)? {
            runner::OutputState::File { mode, modified_ns, .. } => {
                Some(Marks { modified_ns: *modified_ns, mode: *mode & 0o777 })
            }
            _ => None,
        }
    }

    /// Bytes of an output that is at `path` now, if they can be found out.
    pub(super) fn output_bytes(&self, output: u32, path: Option<&Path>) -> Option<u64> {
        match self.output_states.get(output as usize) {
            Some(runner::OutputState::Directory { size_bytes, .. }) => Some(*size_bytes),
            _ => path.and_then(|p| p.metadata().ok()).map(|m| m.len()),
        }
    }
}

/// The attempts of this node.
#[derive(Default)]
pub(super) struct Attempts {
    /// Each attempt is boxed: attempts are large, and a map moves its values.
    by_id: FxHashMap<AttemptId, Box<Attempt>>,
    by_key: FxHashMap<u64, AttemptId>,
    n_keys: u64,
}

impl Attempts {
    /// An attempt was assigned.
    pub(super) fn begin(
        &mut self,
        id: AttemptId,
        (spec, prints_whole): (TaskSpec, bool),
        (principal, account): (Principal, Option<Result<Account, String>>),
        halt: Halt,
    ) {
        self.n_keys += 1;
        let key = self.n_keys;
        self.by_key.insert(key, id);
        let attempt = Box::new(Attempt {
            principal,
            account,
            spec,
            prints_whole,
            key,
            slot: None,
            started: None,
            sandbox: None,
            output_states: vec![],
            run_spec: None,
            n_slots_lost: 0,
            written_before_bytes: 0,
            watched: vec![],
            linked: vec![],
            halt,
            trees: vec![],
            naming: HashMap::new(),
            found: None,
            n_private: 0,
        });
        self.by_id.insert(id, attempt);
    }

    pub(super) fn find(&self, id: AttemptId) -> Option<&Attempt> {
        self.by_id.get(&id).map(|attempt| &**attempt)
    }

    pub(super) fn find_mut(&mut self, id: AttemptId) -> Option<&mut Attempt> {
        self.by_id.get_mut(&id).map(|attempt| &mut **attempt)
    }

    /// The attempt that slot processes know as `key`.
    pub(super) fn find_id(&self, key: u64) -> Option<AttemptId> {
        self.by_key.get(&key).copied()
    }

    pub(super) fn find_by_key_mut(&mut self, key: u64) -> Option<&mut Attempt> {
        self.find_mut(self.find_id(key)?)
    }

    /// The attempts that have this input.
    fn waiting<'a>(
        &'a self,
        object: ObjectId,
        all: &'a session::Attempts,
    ) -> impl Iterator<Item = (&'a AttemptId, &'a Attempt)> {
        let waits = move |id: &AttemptId| all.find(*id).is_some_and(|of| of.inputs.contains(&object));
        self.by_id.iter().filter(move |(id, _)| waits(id)).map(|(id, attempt)| (id, &**attempt))
    }

    /// Whose rights count when an object is read that attempts wait for, of `all` that are here. `None`: those of this process.
    pub(super) fn reader_of(&self, object: ObjectId, all: &session::Attempts) -> Option<Account> {
        // The owner's attempts come first, then the oldest.
        let waiting = self.waiting(object, all);
        let first = waiting.min_by_key(|(id, attempt)| (attempt.principal != Principal::Owner, **id));
        first.map_or_else(|| Some(nobody()), |(_, attempt)| attempt.at_home())
    }

    /// Whether attempts have this input, and none of them is of the cluster's owner.
    pub(super) fn are_of_users(&self, object: ObjectId, all: &session::Attempts) -> bool {
        let mut waiting = self.waiting(object, all).peekable();
        waiting.peek().is_some() && waiting.all(|(_, attempt)| attempt.principal != Principal::Owner)
    }

    pub(super) fn remove(&mut self, id: AttemptId) -> Option<Box<Attempt>> {
        let attempt = self.by_id.remove(&id)?;
        self.by_key.remove(&attempt.key);
        Some(attempt)
    }

    /// Attempts whose program runs, and since when, in the order of their ids.
    pub(super) fn running(&self) -> Vec<(TaskId, AttemptNo, Timestamp)> {
        let mut running: Vec<_> =
            self.by_id.iter().filter_map(|(id, a)| Some((id.0, id.1, a.started?))).collect();
        running.sort_unstable();
        running
    }

    /// Sandboxes whose outputs are still to be taken, in whatever order.
    pub(super) fn sandboxes(&self) -> Vec<PathBuf> {
        self.by_id.values().filter_map(|attempt| attempt.sandbox.clone()).collect()
    }

    /// What was written before a program began is not known any more.
    pub(super) fn forget_written(&mut self) {
        self.by_id.values_mut().for_each(|attempt| attempt.written_before_bytes = 0);
    }
}
