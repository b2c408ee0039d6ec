//! The attempts of a node, as far as its dispatcher and its state machine are concerned, and what the ends of their programs mean.
//!
//! In: what the state machine asks for, and how programs ended. Out: whether an end counts, is held back for a moment, or is none
//! because the program was only taken back from its slot.
//!
//! Not here: sandboxes, slots, files, and the words in which a failure is told.

use eyas_core::event::{Assignment, NodeAction};
use eyas_terms::{AttemptNo, ObjectId, RunId, TaskId};
use std::collections::HashMap;

/// Names an attempt of a task.
pub type AttemptId = (TaskId, AttemptNo);

/// How long after a program's end by a signal the same signal may still reach the executor's process.
pub const SIGNAL_PATIENCE_NS: u64 = 500_000_000;

/// Signals that batch systems and people send to all processes of a job, by their numbers on Linux: HUP, INT, KILL, USR1, USR2,
/// TERM, XCPU.
const SENT_TO_ALL: [i32; 7] = [1, 2, 9, 10, 12, 15, 24];

/// What is known of an attempt from its assignment until nothing of it is needed any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub run: RunId,
    /// The dispatcher process that gave it out.
    pub incarnation: u64,
    /// An earlier attempt of the task may have left something at home.
    pub is_repeated: bool,
    pub inputs: Vec<ObjectId>,
    pub outputs: Vec<ObjectId>,
    /// Positions of the outputs that are put into the cache.
    cached_outputs: Vec<u32>,
    /// It is not to begin any more, and its program is to end.
    pub is_killed: bool,
    /// Its outputs no longer need to go home.
    pub is_halted: bool,
    /// Its program was taken back from its slot, and another slot is to run it.
    is_withdrawn: bool,
}

impl Attempt {
    /// Whether an output is kept in the cache. If so, its object.
    pub fn find_cached_output(&self, output: u32) -> Option<ObjectId> {
        self.cached_outputs.contains(&output).then(|| self.outputs[output as usize])
    }
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this status.
    Exited(i32),
    Signaled(i32),
    /// The slot was asked to end it, or not to begin it.
    Cancelled,
    /// In any other way: it was not started, or it met a limit.
    Other,
}

impl Ended {
    /// The signal that ended the program, as the kernel says it or as shells and many programs do.
    fn signal(self) -> Option<i32> {
        match self {
            Ended::Signaled(signal) => Some(signal),
            Ended::Exited(status) => Some(status - 128),
            Ended::Cancelled | Ended::Other => None,
        }
    }

    /// Whether the signal that ended the program may be meant for all processes of the node's job: batch systems send it to
    /// programs and to the executor's process, and which of them gets it first is a matter of chance.
    pub fn may_be_of_all(self) -> bool {
        self.signal().is_some_and(|signal| SENT_TO_ALL.contains(&signal))
    }

    /// Whether the program was killed, as the kernel does where memory is short.
    pub fn is_kill(self) -> bool {
        self.signal() == Some(9)
    }
}

/// What the end of a program means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is to be judged once more after [`SIGNAL_PATIENCE_NS`]: the signal may be meant for the whole node.
    Hold,
    /// It was only taken back from its slot: another slot is to run it.
    RunAgain,
    Counts,
    /// It counts. The node was told to end while the program ran, so a failure is not the program's own.
    CountsAsNodes,
    /// Nothing is known of the attempt any more.
    Nothing,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Attempts {
    // Boxed: attempts are large, and a map moves its values.
    by_id: HashMap<AttemptId, Box<Attempt>>,
}

impl Attempts {
    pub fn has(&self, id: AttemptId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub fn find(&self, id: AttemptId) -> Option<&Attempt> {
        self.by_id.get(&id).map(|attempt| &**attempt)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The dispatcher process `incarnation` has assigned an attempt.
    pub(super) fn begin(&mut self, assignment: &Assignment, incarnation: u64) {
        let attempt = Attempt {
            run: assignment.run,
            incarnation,
            is_repeated: assignment.repeated,
            inputs: assignment.inputs.iter().map(|input| input.object).collect(),
            outputs: assignment.outputs.clone(),
            cached_outputs: vec![],
            is_killed: false,
            is_halted: false,
            is_withdrawn: false,
        };
        self.by_id.insert((assignment.task, assignment.attempt), Box::new(attempt));
    }

    /// The driver is about to carry this out.
    pub(super) fn note(&mut self, action: &NodeAction) {
        match *action {
            NodeAction::StoreOutput { task, attempt, output, cache_bytes: Some(_), .. } => {
                self.change((task, attempt), |of| of.cached_outputs.push(output));
            }
            NodeAction::Kill { task, attempt } => self.change((task, attempt), |of| of.is_killed = true),
            NodeAction::Halt { task, attempt } => self.change((task, attempt), |of| of.is_halted = true),
            NodeAction::CleanUp { task, attempt } => drop(self.by_id.remove(&(task, attempt))),
            _ => {}
        }
    }

    /// Its program has made these further outputs.
    pub(super) fn found(&mut self, id: AttemptId, outputs: &[ObjectId]) {
        self.change(id, |of| of.outputs.extend(outputs));
    }

    fn change(&mut self, id: AttemptId, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.by_id.get_mut(&id) {
            change(attempt);
        }
    }

    /// The program of an attempt waits behind another one, and is to be taken back from its slot. `false`: it has been already, or
    /// it is to end.
    pub fn withdraw(&mut self, id: AttemptId) -> bool {
        let Some(attempt) = self.by_id.get_mut(&id) else { return false };
        !attempt.is_killed && !std::mem::replace(&mut attempt.is_withdrawn, true)
    }

    /// A program has ended. `was_held`: its end was held back before. `node_ends`: this node was told to end.
    pub fn judge(&mut self, id: AttemptId, ended: Ended, was_held: bool, node_ends: bool) -> Verdict {
        let Some(attempt) = self.by_id.get_mut(&id) else { return Verdict::Nothing };
        if !was_held && !node_ends && ended.may_be_of_all() {
            return Verdict::Hold;
        }
        let was_withdrawn = std::mem::take(&mut attempt.is_withdrawn);
        if was_withdrawn && ended == Ended::Cancelled && !attempt.is_killed {
            return Verdict::RunAgain;
        }
        if node_ends { Verdict::CountsAsNodes } else { Verdict::Counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::event::Why;

    const ID: AttemptId = (TaskId(1), AttemptNo(1));

    fn attempts() -> Attempts {
        let mut attempts = Attempts::default();
        let assignment = Assignment {
            task: ID.0,
            attempt: ID.1,
            run: RunId(1),
            cpus: 1,
            inputs: vec![],
            outputs: vec![ObjectId(5)],
            staying: vec![],
            private_inputs: false,
            repeated: false,
            alone: false,
            needs: None,
            why: Why::default(),
        };
        attempts.begin(&assignment, 3);
        attempts
    }

    #[test]
    fn an_end_by_a_signal_is_held_once_and_not_where_the_node_ends() {
        for ended in [Ended::Signaled(15), Ended::Exited(128 + 15), Ended::Signaled(9)] {
            let mut of = attempts();
            assert_eq!(of.judge(ID, ended, false, false), Verdict::Hold, "{ended:?}");
            assert_eq!(of.judge(ID, ended, true, false), Verdict::Counts, "{ended:?}");
            assert_eq!(of.judge(ID, ended, true, true), Verdict::CountsAsNodes, "{ended:?}");
            assert_eq!(of.judge(ID, ended, false, true), Verdict::CountsAsNodes, "{ended:?}");
        }
        // A fault of the program itself, and statuses that look like none of these signals.
        for ended in [Ended::Signaled(11), Ended::Exited(1), Ended::Exited(0), Ended::Other] {
            assert_eq!(attempts().judge(ID, ended, false, false), Verdict::Counts, "{ended:?}");
        }
    }

    #[test]
    fn a_program_that_was_taken_back_runs_again_unless_it_is_to_end() {
        let mut of = attempts();
        assert!(of.withdraw(ID) && !of.withdraw(ID));
        assert_eq!(of.judge(ID, Ended::Cancelled, false, false), Verdict::RunAgain);
        // It had begun meanwhile, and ended by itself.
        assert!(of.withdraw(ID));
        assert_eq!(of.judge(ID, Ended::Exited(0), false, false), Verdict::Counts);
        assert!(of.withdraw(ID));
        of.note(&NodeAction::Kill { task: ID.0, attempt: ID.1 });
        assert_eq!(of.judge(ID, Ended::Cancelled, false, false), Verdict::Counts);
        assert!(!of.withdraw(ID), "it is to end");
    }

    #[test]
    fn what_is_cleaned_up_is_forgotten() {
        let mut of = attempts();
        let (task, attempt) = ID;
        let object = ObjectId(5);
        of.note(&NodeAction::StoreOutput { task, attempt, output: 0, object, cache_bytes: Some(1) });
        assert_eq!(of.find(ID).and_then(|of| of.find_cached_output(0)), Some(object));
        of.note(&NodeAction::CleanUp { task, attempt });
        assert!(!of.has(ID) && of.is_empty());
        assert_eq!(of.judge(ID, Ended::Exited(0), false, false), Verdict::Nothing);
    }
}
