//! Counts the commands that a batch system was given, by kind. Sites limit them, and users see the counts in the status.

use crate::files;
use eyas_wire::message::Calls;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file of a cluster's count, in the folder of its dispatcher.
const FILE: &str = "calls.json";

/// The purpose of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Submit,
    List,
    Cancel,
    Other,
}

/// The count of a cluster. It is kept in a file, so that it goes on when another process goes on with the cluster.
#[derive(Clone, Debug)]
pub struct CallCount(Arc<Mutex<KeptCalls>>);

#[derive(Debug)]
struct KeptCalls {
    calls: Calls,
    path: PathBuf,
}

impl CallCount {
    /// Goes on from what the file in that folder says.
    pub(super) fn of(dispatcher_dir: &Path) -> CallCount {
        let calls = calls_of(dispatcher_dir).unwrap_or_default();
        CallCount(Arc::new(Mutex::new(KeptCalls { calls, path: dispatcher_dir.join(FILE) })))
    }

    pub(super) fn get(&self) -> Calls {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls
    }

    pub(super) fn add(&self, purpose: Purpose, n: u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = &mut kept.calls;
        *match purpose {
            Purpose::Submit => &mut calls.n_submit,
            Purpose::List => &mut calls.n_list,
            Purpose::Cancel => &mut calls.n_cancel,
            Purpose::Other => &mut calls.n_other,
        } += n;
        // A count that cannot be written is still shown while this process lives.
        let text = serde_json::to_vec(&kept.calls).expect("numbers can be written");
        let _ = files::replace(&kept.path, &text);
    }
}

/// The count of the cluster whose dispatcher has that folder. `None`: nobody counted.
pub fn calls_of(dispatcher_dir: &Path) -> Option<Calls> {
    serde_json::from_slice(&std::fs::read(dispatcher_dir.join(FILE)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_on_in_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(calls_of(dir.path()), None);
        let count = CallCount::of(dir.path());
        count.add(Purpose::Submit, 1);
        count.clone().add(Purpose::List, 2);
        let next = CallCount::of(dir.path());
        next.add(Purpose::List, 1);
        next.add(Purpose::Other, 1);
        let expect = Calls { n_submit: 1, n_list: 3, n_cancel: 0, n_other: 1 };
        assert_eq!((next.get(), calls_of(dir.path())), (expect, Some(expect)));
        assert_eq!(expect.total(), 5);
    }
}
