//! What the journal holds. A record's first byte is its kind, so that later versions can add kinds.

use eyas_core::group::RunLinks;
use eyas_core::pattern::RunPatterns;
use eyas_terms::array::TaskArray;
use eyas_terms::{AttemptNo, Digest, Outcome, RunId, TaskId, Timestamp};
use eyas_wire::message::Addition;
use eyas_wire::users::{ClusterRights, UserKey};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The kind of [`Record::ArrayAdded`], and a field that holds nothing.
const ARRAY_ADDED: u8 = 1;
const NONE: u8 = 0;

/// One journal record.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Record<'a> {
    RunOpened {
        run: RunId,
        name: String,
        /// Its files that stay on the nodes are kept when nobody will read them any more.
        keep: bool,
        /// Its tasks are added to a run that goes on.
        into: Option<Addition>,
    },
    ArrayAdded {
        run: RunId,
        array: Cow<'a, TaskArray>,
    },
    /// Until this one is there, the run's tasks do not exist.
    RunCommitted {
        run: RunId,
    },
    RunAborted {
        run: RunId,
    },
    TaskEnded {
        task: TaskId,
        outcome: Outcome,
        outputs: Vec<(Digest, u64)>,
    },
    CancelRequested {
        run: RunId,
        task: Option<TaskId>,
    },
    /// It had ended well and runs again, because a file that it had made was lost.
    TaskRevived {
        task: TaskId,
    },
    /// It is a part of a run that is spread over a group of dispatchers.
    RunLinked {
        run: RunId,
        links: Cow<'a, RunLinks>,
    },
    /// This part is complete; from now on only the member that opened the run says what becomes of it.
    RunPrepared {
        run: RunId,
    },
    /// A dispatcher process began; what it gives out is known by its name. The first one names the journal.
    Began {
        incarnation: u64,
        /// The directory was put here from elsewhere, perhaps as it was some time ago: what earlier processes gave out is not
        /// known to be what the journal says of it.
        is_moved: bool,
    },
    /// When a run was opened, and when its last task ended: the latest of each counts.
    RunOpenedAt {
        run: RunId,
        at: Timestamp,
    },
    RunEndedAt {
        run: RunId,
        at: Timestamp,
    },
    /// The attempt was given up, and may still end well where nobody hears of it: that does not count.
    AttemptGivenUp {
        task: TaskId,
        attempt: AttemptNo,
    },
    /// The patterns of the whole of which the run is a part.
    RunPatterns {
        run: RunId,
        patterns: Cow<'a, RunPatterns>,
    },
    /// The run has ended and nothing of it is needed any more.
    RunForgotten {
        run: RunId,
    },
    /// Runs with smaller numbers have been opened, and so many tasks numbered. It stands where records of forgotten runs were.
    Numbered {
        next_run: u32,
        n_tasks: u64,
    },
    /// This process gives out no task until it has recorded that it does.
    GivesNothing {
        incarnation: u64,
    },
    GivesOut {
        incarnation: u64,
    },
    /// The run is a user's; it comes after the run was opened.
    RunOwned {
        run: RunId,
        owner: String,
    },
    /// A user is let in, with these rights and this part of the cluster; the latest of a name counts.
    UserSet {
        name: String,
        key: UserKey,
        rights: ClusterRights,
        weight: u32,
    },
    UserRemoved {
        name: String,
    },
    /// Everything that the run's tasks print is kept; it comes after the run was opened.
    RunPrintsWhole {
        run: RunId,
    },
    /// The run wants these files of home on these nodes; it comes between its opening and its commit.
    FilesWanted {
        run: RunId,
        files: Cow<'a, [String]>,
        nodes: Cow<'a, [String]>,
    },
    /// This process may give out tasks with smaller numbers than this before the journal has them: the tasks of later processes have
    /// other numbers.
    NumbersTaken {
        n_tasks: u64,
    },
}

impl Record<'_> {
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("records hold nothing that postcard cannot write")
    }
    pub fn from_bytes(bytes: &[u8]) -> Result<Record<'static>, String> {
        match postcard::from_bytes(bytes) {
            // A journal of a version whose tasks had no needs: the array is the record's end, and ends before them.
            Err(postcard::Error::DeserializeUnexpectedEnd) if bytes.first() == Some(&ARRAY_ADDED) => {
                postcard::from_bytes(&[bytes, &[NONE]].concat())
            }
            read => read,
        }
        .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::array::{Command, Pattern, TaskForm};
    use eyas_terms::needs::Needs;

    fn array(needs: Option<Needs>) -> TaskArray {
        let command = Command::Exec(vec![Pattern::literal("true")]);
        let template = TaskForm::new(Pattern::literal("t"), command);
        TaskArray { n_tasks: 3, first_index: 0, template, columns: vec![], needs: needs.map(Box::new) }
    }

    #[test]
    fn an_array_of_a_version_without_needs_is_read() {
        let record = Record::ArrayAdded { run: RunId(1), array: Cow::Owned(array(None)) };
        let bytes = record.to_bytes();
        let (last, older) = bytes.split_last().expect("a record has bytes");
        assert_eq!(*last, NONE);
        assert_eq!(Record::from_bytes(older), Ok(record.clone()));
        assert_eq!(Record::from_bytes(&bytes), Ok(record));
        assert!(Record::from_bytes(&older[..older.len() - 1]).is_err(), "a cut record is none");
        let needs = Needs { gpu_parts: 500, ..Needs::default() };
        let record = Record::ArrayAdded { run: RunId(1), array: Cow::Owned(array(Some(needs))) };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
    }
}
