//! From which folder the runs of a cluster were given, and which of them were waited for. Commands that name no run mean those of their
//! own folder first.
//!
//! A dispatcher's folder has a line for each run that a command of this machine gave it, and one for each that was waited for to its
//! end. Nothing depends on these lines but what is meant by default, so what cannot be written or read is left out.

use eyas_terms::RunId;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "given.jsonl";
/// A file that is longer is written anew with its newest lines.
const BYTES_MAX: u64 = 1 << 20;
const LINES_KEPT: usize = 1000;

#[derive(Serialize, Deserialize)]
struct SubmittedRun {
    run: u32,
    folder: String,
    /// It was waited for there, and not given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    waited: bool,
}

fn here() -> Option<String> {
    Some(std::env::current_dir().ok()?.to_string_lossy().into_owned())
}

/// Notes that a run was given from the working folder to the dispatcher in `dir`.
pub fn note(dir: &Path, run: RunId) {
    add(dir, run, false);
}

/// Notes that a run was waited for in the working folder, and how it ended was said.
pub fn note_waited(dir: &Path, run: RunId) {
    add(dir, run, true);
}

fn add(dir: &Path, RunId(run): RunId, waited: bool) {
    let Some(folder) = here() else { return };
    let path = dir.join(FILE);
    if fs::metadata(&path).is_ok_and(|file| file.len() > BYTES_MAX) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines[lines.len().saturating_sub(LINES_KEPT)..].join("\n") + "\n";
        let part = path.with_extension("part");
        let _ = fs::write(&part, kept).and_then(|()| fs::rename(&part, &path));
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    if let (Ok(mut file), Ok(line)) = (file, serde_json::to_string(&SubmittedRun { run, folder, waited })) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// The runs that were given from the working folder to the dispatcher in `dir`, the newest first.
pub fn from_here(dir: &Path) -> Vec<RunId> {
    lines_from_here(dir).filter(|given| !given.waited).map(|given| RunId(given.run)).collect()
}

/// Those of them of which nobody there has been told how they ended.
pub fn not_waited_for(dir: &Path) -> Vec<RunId> {
    let waited: HashSet<u32> =
        lines_from_here(dir).filter(|given| given.waited).map(|given| given.run).collect();
    from_here(dir).into_iter().filter(|run| !waited.contains(&run.0)).collect()
}

/// What the file says of the working folder, the newest first.
fn lines_from_here(dir: &Path) -> impl Iterator<Item = SubmittedRun> {
    let here = here();
    let text = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
    let given =
        text.lines().rev().filter_map(|line| serde_json::from_slice::<SubmittedRun>(line.as_bytes()).ok());
    let of_here = given.filter(|given| Some(&given.folder) == here.as_ref());
    of_here.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_this_folder_are_found_the_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(from_here(dir.path()), []);
        note(dir.path(), RunId(1));
        let other =
            serde_json::to_string(&SubmittedRun { run: 2, folder: "/elsewhere".into(), waited: false })
                .unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, fs::read_to_string(&path).unwrap() + &other + "\n{\"torn").unwrap();
        note(dir.path(), RunId(3));
        note(dir.path(), RunId(4));
        // The line after a torn one is lost with it.
        assert_eq!(from_here(dir.path()), [RunId(4), RunId(1)]);
        note_waited(dir.path(), RunId(1));
        assert_eq!(from_here(dir.path()), [RunId(4), RunId(1)]);
        assert_eq!(not_waited_for(dir.path()), [RunId(4)]);
        fs::write(&path, "x".repeat(BYTES_MAX as usize) + "\n").unwrap();
        note(dir.path(), RunId(5));
        note(dir.path(), RunId(6));
        assert_eq!(from_here(dir.path())[..1], [RunId(6)]);
    }
}
