//! Programs that a run on this machine would not find, looked for before it starts.

use crate::{Exit, Fault};
use eyas_tasklist::TaskList;
use eyas_terms::array::{CONTAINER_NAME, Command, Pattern, Piece, TaskArray};
use eyas_text::shown;
use rustc_hash::FxHashMap;
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Refuses a list whose tasks all need programs that no folder of `PATH` has, and tells of the tasks where only some do. `is_here`: the
/// tasks run on this machine, with the `PATH` of this process.
///
/// Not looked for: programs of containers, those that are paths or differ from task to task, and those of tasks with a `PATH` of
/// their own.
pub fn check(list: &TaskList, is_here: bool) -> Result<(), Fault> {
    let Some(path) = env::var_os("PATH").filter(|_| is_here) else { return Ok(()) };
    let folders: Vec<_> = env::split_paths(&path).collect();
    // What a relative folder has differs from sandbox to sandbox.
    if !folders.iter().all(|folder| folder.is_absolute()) {
        return Ok(());
    }
    let is_program =
        |file: &Path| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let mut is_absent: FxHashMap<&str, bool> = FxHashMap::default();
    let (mut first, mut n_lacking) = (None, 0);
    for array in &list.arrays {
        let Some(name) = program_of(array) else { continue };
        let find = || !folders.iter().any(|folder| is_program(&folder.join(name)));
        if *is_absent.entry(name).or_insert_with(find) {
            first.get_or_insert(name);
            n_lacking += u64::from(array.n_tasks);
        }
    }
    let Some(name) = first else { return Ok(()) };
    let missing =
        format!("command not found: {} is in no folder of PATH ({})", shown(name), path.to_string_lossy());
    if n_lacking < list.n_tasks {
        eyas_text::say!("note: {missing}; {n_lacking} of {} tasks will fail for such a reason", list.n_tasks);
        return Ok(());
    }
    let hint = match Path::new(name).is_file() {
        true => format!("a file of this folder is brought by `--with {name}` and started as `./{name}`"),
        false => "correct its name, install it, or put its folder on PATH".into(),
    };
    Err(Fault::new(Exit::BadInput, format!("{missing}, so no task was started")).hint(hint))
}

/// The name of the program that all tasks of an array start, if it is looked for in `PATH`.
fn program_of(array: &TaskArray) -> Option<&str> {
    let template = &array.template;
    let Command::Exec(argv) = &template.command else { return None };
    let [Piece::Literal(name)] = argv.first()?.0.as_slice() else { return None };
    let is = |of: &Pattern, what: &str| matches!(of.0.as_slice(), [Piece::Literal(text)] if text == what);
    let is_elsewhere = template.env.iter().any(|(variable, _)| is(variable, "PATH"))
        || template.inputs.iter().any(|(input, _)| is(input, CONTAINER_NAME));
    (!is_elsewhere && !name.is_empty() && !name.contains('/')).then_some(name)
}
