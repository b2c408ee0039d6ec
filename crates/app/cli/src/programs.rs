//! Programs that a run on this machine would not find, looked for before it starts.

use crate::{Exit, Fault};
use eyas_tasklist::TaskList;
use eyas_terms::array::{CONTAINER_NAME, Command, TaskSpec};
use eyas_text::shown;
use rustc_hash::FxHashMap;
use std::env;
use std::path::Path;

/// Refuses a list whose tasks all need programs that no folder of `PATH` has, and tells of the tasks where only some do. `is_here`: the
/// tasks run on this machine, with the `PATH` of this process.
///
/// Not looked for: programs of containers, those that are paths, and those of tasks with a `PATH` of their own.
pub fn check(list: &TaskList, is_here: bool) -> Result<(), Fault> {
    let Some(path) = env::var_os("PATH").filter(|_| is_here) else { return Ok(()) };
    // What a relative folder has differs from sandbox to sandbox.
    if !env::split_paths(&path).all(|folder| folder.is_absolute()) {
        return Ok(());
    }
    let has_none = |name: &str| eyas_host::programs_in(&path, name).next().is_none();
    let mut is_absent: FxHashMap<String, bool> = FxHashMap::default();
    let (mut first, mut n_lacking) = (None, 0);
    for array in &list.arrays {
        let Command::Exec(argv) = &array.template.command else { continue };
        let Some(program) = argv.first() else { continue };
        let mut name = String::new();
        for i in 0..array.n_tasks {
            if i == 0 || !program.is_constant() {
                name = array.fill(program, i);
            }
            let is_lacking = match is_absent.get(&name) {
                Some(is_absent) => *is_absent,
                None => {
                    let is_lacking = !name.is_empty() && !name.contains('/') && has_none(&name);
                    is_absent.insert(name.clone(), is_lacking);
                    is_lacking
                }
            };
            if is_lacking && !looks_elsewhere(&array.expand(i)) {
                first.get_or_insert_with(|| name.clone());
                n_lacking += 1;
            }
        }
    }
    let Some(name) = first else { return Ok(()) };
    let path = path.to_string_lossy();
    let missing = format!("command not found: {} is in no folder of PATH ({path})", shown(&name));
    if n_lacking < list.n_tasks {
        eyas_text::say!("note: {missing}; {n_lacking} of {} tasks will fail for such a reason", list.n_tasks);
        return Ok(());
    }
    let hint = match Path::new(&name).is_file() {
        true => format!("a file of this folder is brought by `--with {name}` and started as `./{name}`"),
        false => "correct its name, install it, or put its folder on PATH".into(),
    };
    Err(Fault::new(Exit::BadInput, format!("{missing}, so no task was started")).hint(hint))
}

/// Whether a task's program is found in a container, or in a `PATH` of its own.
fn looks_elsewhere(task: &TaskSpec) -> bool {
    task.env.iter().any(|(variable, _)| variable == "PATH")
        || task.inputs.iter().any(|(name, _)| name == CONTAINER_NAME)
}
