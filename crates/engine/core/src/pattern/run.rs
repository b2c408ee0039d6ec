//! The patterns of a run that is split over several dispatchers, as each part has to know them.
//!
//! In: all tasks of a submission, folded, and the part that each is in. Out: for each part the patterns of
//! the whole ([`RunPatterns`]), and the files that its own tasks write or read and whose pattern its own
//! tasks may not show. For example, a file that eight tasks read is no multicast to a dispatcher that has two
//! of these tasks.
//!
//! Only tasks of workflows are looked at, as in one dispatcher: arrays that read or write files which stay on
//! the nodes. The size of the result grows with the files that are read in more than one part; each of these
//! is already named in a part's tasks.
//!
//! For an addition, only its own tasks are looked at: files of the run that they read count as made
//! elsewhere, and earlier readers of a file do not count.
//!
//! Not here: what is decided by these patterns (`dispatcher/moves.rs`).

use super::{Evidence, PatternKind, Patterns, StageId, is_one_stage, stage_of_task};
use eyas_terms::array::{Pattern, TaskArray};
use eyas_terms::{ObjectId, RunId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The number of the run; there is only one here.
const RUN: RunId = RunId(1);

/// What one part of a run has to know of the patterns of the whole run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct RunPatterns {
    /// The patterns of the whole run.
    pub found: Vec<Evidence>,
    /// Files that tasks of this part write or read and that are multicast in the run; locations as users
    /// write them.
    pub multicast: Vec<String>,
    /// Files of the same kind that are parts of what one task scatters.
    pub parts: Vec<String>,
}

/// Files by number, and numbers by name.
#[derive(Default)]
struct Names {
    ids: FxHashMap<Rc<str>, ObjectId>,
    names: Vec<Rc<str>>,
    text: String,
}

impl Names {
    /// The files that these patterns name for task `i` of an array.
    fn of(&mut self, array: &TaskArray, patterns: &[(Pattern, Pattern)], i: u32) -> Vec<ObjectId> {
        let mut objects = Vec::with_capacity(patterns.len());
        for (_, pattern) in patterns {
            self.text.clear();
            array.fill_into(pattern, i, &mut self.text);
            objects.push(match self.ids.get(&*self.text) {
                Some(known) => *known,
                None => {
                    let (name, object) = (Rc::<str>::from(&*self.text), ObjectId(self.names.len() as u32));
                    self.names.push(name.clone());
                    self.ids.insert(name, object);
                    object
                }
            });
        }
        objects
    }
}

/// For each of `n_parts` parts, the patterns that it has to know.
///
/// * `part_of`: the part that task `i` of array `a` is in, below `n_parts`.
/// * `has_made`: whether a task that is not in `arrays` makes a file.
pub fn patterns_by_part(
    arrays: &[TaskArray],
    n_parts: u32,
    part_of: impl Fn(u32, u32) -> u32,
    has_made: impl Fn(&str) -> bool,
) -> Vec<RunPatterns> {
    let mut parts = vec![RunPatterns::default(); n_parts as usize];
    let stays = |array: &TaskArray, list: &[(Pattern, Pattern)]| list.iter().any(|(_, l)| array.may_stay(l));
    let is_workflow = |a: &TaskArray| stays(a, &a.template.inputs) || stays(a, &a.template.outputs);
    let workflow: Vec<(u32, &TaskArray)> =
        (0..).zip(arrays).filter(|(_, array)| is_workflow(array)).collect();
    if workflow.is_empty() {
        return parts;
    }
    let (mut patterns, mut names) = (Patterns::default(), Names::default());
    for (_, array) in &workflow {
        each_task(&mut patterns, array, |patterns, i, stage| {
            patterns.task_writes(stage, &names.of(array, &array.template.outputs, i));
        });
    }
    let n_made = names.names.len();
    for (_, array) in &workflow {
        each_task(&mut patterns, array, |patterns, i, stage| {
            let n_known = names.names.len().max(n_made);
            let inputs = names.of(array, &array.template.inputs, i);
            let is_new = |object: &ObjectId| object.0 as usize >= n_known;
            let elsewhere: Vec<ObjectId> = inputs
                .iter()
                .copied()
                .filter(|object| is_new(object) && has_made(&names.names[object.0 as usize]))
                .collect();
            patterns.made_elsewhere(RUN, &elsewhere);
            if !array.template.hints.is_auto() {
                patterns.learn_hints(stage, &array.template.hints);
            }
            patterns.task_reads(stage, &inputs);
        });
    }
    let found = patterns.of_run(RUN);
    parts.iter_mut().for_each(|part| part.found.clone_from(&found));
    // The parts in which each file with a pattern is named.
    let kinds: Vec<Option<PatternKind>> =
        (0..names.names.len() as u32).map(|o| patterns.kind_of(ObjectId(o))).collect();
    let mut at: BTreeSet<(ObjectId, u32)> = BTreeSet::new();
    for (a, array) in &workflow {
        for i in 0..array.n_tasks {
            let part = part_of(*a, i);
            for list in [&array.template.outputs, &array.template.inputs] {
                let files = names.of(array, list, i).into_iter();
                at.extend(files.filter(|o| kinds[o.0 as usize].is_some()).map(|object| (object, part)));
            }
        }
    }
    let at: Vec<(ObjectId, u32)> = at.into_iter().collect();
    // The pattern of a file that is in one part only shows there.
    for (object, part) in at.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1).flatten() {
        let part = &mut parts[*part as usize];
        let list = match kinds[object.0 as usize] {
            Some(PatternKind::Multicast) => &mut part.multicast,
            _ => &mut part.parts,
        };
        list.push(names.names[object.0 as usize].to_string());
    }
    parts
}

/// Calls `task` with each task of an array and its stage.
fn each_task(patterns: &mut Patterns, array: &TaskArray, mut task: impl FnMut(&mut Patterns, u32, StageId)) {
    let one = is_one_stage(array);
    let mut known = None;
    for i in 0..array.n_tasks {
        let stage = match known {
            Some(stage) if one => stage,
            _ => patterns.stage(RUN, &stage_of_task(array, i)),
        };
        known = Some(stage);
        task(patterns, i, stage);
    }
}
