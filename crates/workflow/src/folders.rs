//! Folders that tasks write, for formats in which a target may be one.
//!
//! eyas moves files. A folder that a task writes goes as one: the task packs it into `NAME.tar` when its command has ended
//! well, and each task that reads it, or a file in it that nobody writes by itself, unpacks it before its command begins. As a
//! result it goes home packed. The bytes depend on what is in the folder and on nothing else.
//!
//! A target is a folder if
//!
//!   1. its name ends in `/`, or
//!   2. somebody names a file in it, or
//!   3. its task's command makes it with `mkdir`.
//!
//! A folder that nobody writes is the files that are in it: those that tasks write there, or, where there are none, those that are
//! found when the tasks are made ([`crate::tasks`]).

use crate::model::{Builder, FileNo, Task, Use};
use crate::words;
use eyas_core::array::Command;
use eyas_tasklist::PACK;
use rustc_hash::{FxHashMap, FxHashSet};

/// Replaces the folders among what tasks write and read; `declared` are names of files that ended in `/`.
pub(crate) fn settle(b: &mut Builder, declared: &FxHashSet<String>) {
    let written = b.written();
    let names: Vec<String> = b.files().iter().map(|f| f.name.clone()).collect();
    // Names of all folders that files lie in.
    let mut parents: FxHashSet<&str> = FxHashSet::default();
    for name in &names {
        let mut name = name.as_str();
        while let Some((parent, _)) = name.rsplit_once('/')
            && parents.insert(parent)
        {
            name = parent;
        }
    }
    // Folders that tasks write, by the number that stood for them: name, and number of the archive.
    let mut folders: FxHashMap<FileNo, String> = FxHashMap::default();
    for (task, _) in b.tasks_mut() {
        let made = made_by(task);
        for u in &task.outputs {
            let name = &names[u.file as usize];
            if declared.contains(name) || parents.contains(name.as_str()) || made.contains(name) {
                folders.insert(u.file, name.clone());
            }
        }
    }
    let mut archives: FxHashMap<String, FileNo> = FxHashMap::default();
    for (&file, name) in &folders {
        let mut archive = format!("{name}.tar");
        while b.known_number(&archive).is_some() {
            archive.push_str(".tar");
        }
        archives.insert(name.clone(), file);
        b.rename(file, archive);
    }
    // What tasks write below folders that nobody writes.
    let mut inside: FxHashMap<&str, Vec<FileNo>> = FxHashMap::default();
    for (n, name) in names.iter().enumerate().filter(|(n, _)| written[*n]) {
        let mut at = name.as_str();
        while let Some((parent, _)) = at.rsplit_once('/') {
            inside.entry(parent).or_default().push(n as FileNo);
            at = parent;
        }
    }
    for (task, files) in b.tasks_mut() {
        let archive_name = |file: FileNo| files[file as usize].name.as_str();
        let mut unpacked: Vec<FileNo> = vec![];
        let mut inputs = Vec::with_capacity(task.inputs.len());
        for u in std::mem::take(&mut task.inputs) {
            if folders.contains_key(&u.file) {
                unpacked.push(u.file);
                continue;
            }
            let name = names[u.file as usize].as_str();
            if written[u.file as usize] {
                inputs.push(u);
                continue;
            }
            let within = ancestors(name).find_map(|folder| archives.get(folder));
            match (within, inside.get(name)) {
                (Some(file), _) => unpacked.push(*file),
                (None, Some(all)) => inputs.extend(all.iter().map(|file| Use::of(*file))),
                (None, None) => inputs.push(u),
            }
        }
        unpacked.sort_unstable();
        unpacked.dedup();
        inputs.extend(unpacked.iter().map(|file| Use::of(*file)));
        task.inputs = inputs;
        let packed: Vec<(&str, &str)> = task
            .outputs
            .iter()
            .filter_map(|u| Some((archive_name(u.file), folders.get(&u.file)?.as_str())))
            .collect();
        if packed.is_empty() && unpacked.is_empty() {
            continue;
        }
        let line = match task.command.take() {
            Some(Command::Shell(line)) => format!("(\n{line}\n)"),
            Some(Command::Exec(argv)) => words::line(&argv),
            None => continue,
        };
        let unpack = unpacked.iter().map(|file| format!("tar -xf {}", words::quoted(archive_name(*file))));
        let pack = packed
            .iter()
            .map(|(archive, folder)| format!("{PACK} {} {}", words::quoted(archive), words::quoted(folder)));
        let parts: Vec<String> = unpack.chain([line]).chain(pack).collect();
        task.command = Some(Command::Shell(parts.join(" && ")));
        for u in &mut task.outputs {
            if folders.contains_key(&u.file) {
                u.name = None;
            }
        }
    }
}

/// The folders that `name` lies in, the nearest first.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(parent, _)| parent)).skip(1)
}

/// Names that a task's command makes folders of.
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
