//! Folders that tasks write, for formats in which a target may be a folder.
//!
//! A folder that a task writes counts as one file whose name ends in `/`, as directories do everywhere in
//! eyas. If a task reads such a folder, or a file in it that no task writes by itself, the task reads the
//! whole folder.
//!
//! A target is a folder if
//!
//!   1. its name ends in `/`, or
//!   2. some task names a file in it, or
//!   3. the command of its task makes it with `mkdir`.
//!
//! A folder that no task writes stands for the files in it: those that tasks write there or, if there are
//! none, those that are found when the tasks are made ([`crate::tasks`]).

use crate::model::{Builder, FileNo, Task, Use};
use eyas_terms::array::Command;
use rustc_hash::{FxHashMap, FxHashSet};

/// Finds the folders among the files that tasks write and read. `declared` are names of files that ended in
/// `/`.
pub(crate) fn settle(b: &mut Builder, declared: &FxHashSet<String>) {
    let names: Vec<String> = b.files().iter().map(|f| f.name.clone()).collect();
    let mut written = b.written();
    let folders = written_folders(b, &names, declared);
    let results = take_in(b, &names, &folders, &mut written);
    let only_made = only_made(b, &names, &folders, &written);
    for &file in folders.values() {
        b.rename(file, format!("{}/", names[file as usize]));
    }
    only_made.iter().for_each(|file| b.file_mut(*file).result = Some(false));
    results.iter().for_each(|file| b.file_mut(*file).result = Some(true));
    let all =
        Folders { folders: &folders, inside: inside(&names, &written), names: &names, written: &written };
    for (task, _) in b.tasks_mut() {
        task.inputs = all.inputs(std::mem::take(&mut task.inputs));
    }
}

/// Folders that tasks write, by name.
fn written_folders(
    b: &mut Builder,
    names: &[String],
    declared: &FxHashSet<String>,
) -> FxHashMap<String, FileNo> {
    // Names of all folders that files lie in.
    let mut parents: FxHashSet<&str> = FxHashSet::default();
    for name in names {
        for parent in ancestors(name) {
            if !parents.insert(parent) {
                break;
            }
        }
    }
    let mut folders = FxHashMap::default();
    for (task, _) in b.tasks_mut() {
        let made = made_by(task);
        for u in &task.outputs {
            let name = &names[u.file as usize];
            if declared.contains(name) || parents.contains(name.as_str()) || made.contains(name) {
                folders.insert(name.clone(), u.file);
            }
        }
    }
    folders
}

/// A file that a task writes into a folder that the task writes, too, becomes a part of the folder and no
/// longer an output of its own. Gives the folders that are results because such a file is one.
fn take_in(
    b: &mut Builder,
    names: &[String],
    folders: &FxHashMap<String, FileNo>,
    written: &mut [bool],
) -> Vec<FileNo> {
    let mut is_read = vec![false; names.len()];
    for (task, _) in b.tasks_mut() {
        task.inputs.iter().for_each(|u| is_read[u.file as usize] = true);
    }
    let mut results = vec![];
    for (task, files) in b.tasks_mut() {
        let own: FxHashSet<FileNo> = task.outputs.iter().map(|u| u.file).collect();
        task.outputs.retain(|u| {
            let n = u.file as usize;
            let above = ancestors(&names[n]).filter_map(|name| folders.get(name));
            let Some(folder) = above.filter(|folder| own.contains(folder)).last() else { return true };
            written[n] = false;
            if files[n].result.unwrap_or(!is_read[n]) {
                results.push(*folder);
            }
            false
        });
    }
    results
}

/// Folders that a task only makes with `mkdir` and that other tasks fill. They are no results by
/// themselves, because at home the files written into them make them.
fn only_made(
    b: &mut Builder,
    names: &[String],
    folders: &FxHashMap<String, FileNo>,
    written: &[bool],
) -> Vec<FileNo> {
    let filled: FxHashSet<&str> =
        names.iter().enumerate().filter(|(n, _)| written[*n]).flat_map(|(_, name)| ancestors(name)).collect();
    let mut only = vec![];
    for (task, _) in b.tasks_mut() {
        let Some(Command::Shell(line)) = &task.command else { continue };
        let makes_only =
            line.trim_start().starts_with("mkdir ") && !line.contains([';', '&', '|', '\n', '>']);
        let made = task.outputs.iter().filter(|u| filled.contains(names[u.file as usize].as_str()));
        only.extend(made.map(|u| u.file).filter(|_| makes_only));
    }
    only.retain(|file| folders.contains_key(&names[*file as usize]));
    only
}

/// By folder that no task writes as a whole: the files that tasks write below it.
fn inside<'n>(names: &'n [String], written: &[bool]) -> FxHashMap<&'n str, Vec<FileNo>> {
    let mut inside: FxHashMap<&str, Vec<FileNo>> = FxHashMap::default();
    for (n, name) in names.iter().enumerate().filter(|(n, _)| written[*n]) {
        ancestors(name).for_each(|parent| inside.entry(parent).or_default().push(n as FileNo));
    }
    inside
}

struct Folders<'a> {
    folders: &'a FxHashMap<String, FileNo>,
    inside: FxHashMap<&'a str, Vec<FileNo>>,
    names: &'a [String],
    written: &'a [bool],
}

impl Folders<'_> {
    /// The inputs, where a folder replaces the files that come with it.
    fn inputs(&self, given: Vec<Use>) -> Vec<Use> {
        let mut inputs = Vec::with_capacity(given.len());
        let mut whole: Vec<FileNo> = vec![];
        for u in given {
            if self.written[u.file as usize] {
                inputs.push(u);
                continue;
            }
            let name = self.names[u.file as usize].as_str();
            let within = ancestors(name).filter_map(|folder| self.folders.get(folder)).last();
            match (within, self.inside.get(name)) {
                (Some(file), _) => whole.push(*file),
                (None, Some(all)) => inputs.extend(all.iter().map(|file| Use::of(*file))),
                (None, None) => inputs.push(u),
            }
        }
        whole.sort_unstable();
        whole.dedup();
        whole.retain(|file| inputs.iter().all(|u| u.file != *file || u.name.is_some()));
        inputs.extend(whole.iter().map(|file| Use::of(*file)));
        inputs
    }
}

/// The folders that `name` lies in, the nearest first.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(parent, _)| parent)).skip(1)
}

/// The folders that a task's command makes.
fn made_by(task: &Task) -> FxHashSet<String> {
    let Some(Command::Shell(line)) = &task.command else { return FxHashSet::default() };
    let mut made = FxHashSet::default();
    let mut is_made = false;
    for word in line.replace([';', '(', ')', '&', '|'], " ; ").split_whitespace() {
        let bare = word.trim_matches(['"', '\'']);
        if bare == ";" {
            is_made = false;
        } else if !is_made {
            is_made = bare.rsplit('/').next() == Some("mkdir");
        } else if !bare.starts_with('-') {
            let folder = bare.trim_start_matches("./").trim_end_matches('/');
            made.extend(std::iter::once(folder).chain(ancestors(folder)).map(str::to_owned));
        }
    }
    made
}
