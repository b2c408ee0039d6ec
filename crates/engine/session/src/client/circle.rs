//! Finds tasks that wait for each other in a circle, over all members of a group.
//!
//! An added task can close a circle only through a file that it writes or promises and that another task has promised
//! before. The search begins at such a file. It goes from a file to its maker and from the maker to the maker's inputs,
//! step by step. In each step it asks all members at once who makes the files of that step.

use eyas_core::dispatcher::{Upstream, find_circle};
use eyas_core::group::KnownFiles;
use eyas_terms::array::TaskArray;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) struct Search {
    promised: BTreeSet<String>,
    makers: BTreeMap<String, Upstream>,
    seen: BTreeSet<String>,
    next: Vec<String>,
}

impl Search {
    /// `None`: nothing was promised that these tasks make, so there is no circle.
    pub fn begin(arrays: &[Arc<TaskArray>], known: &[KnownFiles]) -> Option<Search> {
        let promised: BTreeSet<String> = known.iter().flat_map(|k| &k.promised).cloned().collect();
        if promised.is_empty() {
            return None;
        }
        let mut makers = BTreeMap::new();
        for task in arrays.iter().flat_map(|array| (0..array.n_tasks).map(|i| array.expand(i))) {
            let inputs: Vec<String> = task.inputs.iter().map(|(_, location)| location.clone()).collect();
            for location in task.outputs.iter().map(|(_, location)| location).chain(&task.promises) {
                let (id, inputs) = (task.id.clone(), inputs.clone());
                makers.insert(location.clone(), Upstream { id, inputs });
            }
        }
        let (seen, next) = (promised.clone(), promised.iter().cloned().collect());
        Some(Search { promised, makers, seen, next })
    }

    /// The files that the members are to be asked about next. `None`: all that matters is known.
    pub fn step(&mut self) -> Option<Vec<String>> {
        while !self.next.is_empty() {
            let next = std::mem::take(&mut self.next);
            let (ours, theirs): (Vec<String>, Vec<String>) =
                next.into_iter().partition(|location| self.makers.contains_key(location));
            self.follow(&ours);
            if !theirs.is_empty() {
                return Some(theirs);
            }
        }
        None
    }

    /// What a member said of those files.
    pub fn learn(&mut self, found: Vec<(String, Upstream)>) {
        let locations: Vec<String> = found.iter().map(|(location, _)| location.clone()).collect();
        self.makers.extend(found);
        self.follow(&locations);
    }

    fn follow(&mut self, found: &[String]) {
        for input in found.iter().flat_map(|location| &self.makers[location].inputs) {
            if self.seen.insert(input.clone()) {
                self.next.push(input.clone());
            }
        }
    }

    /// The circle, if there is one, in a sentence.
    pub fn circle(self) -> Option<String> {
        let Search { promised, makers, .. } = self;
        find_circle(promised.into_iter(), |location| makers.get(location).cloned())
    }
}
