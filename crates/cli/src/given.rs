//! From which folder the runs of a cluster were given. Commands that name no run mean those of their own folder first.
//!
//! A dispatcher's folder has a line for each run that a command of this machine gave it. Nothing depends on these lines but what is
//! meant by default, so what cannot be written or read is left out.

use crate::dirs::working;
use eyas_terms::RunId;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "given.jsonl";
/// A file that is longer is written anew with its newest lines.
const BYTES_MAX: u64 = 1 << 20;
const LINES_KEPT: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Given {
    run: u32,
    folder: String,
}

fn here() -> Option<String> {
    Some(working().ok()?.to_string_lossy().into_owned())
}

/// Notes that a run was given from the working folder to the dispatcher in `dir`.
pub fn note(dir: &Path, RunId(run): RunId) {
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
    if let (Ok(mut file), Ok(line)) = (file, serde_json::to_string(&Given { run, folder })) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// The runs that were given from the working folder to the dispatcher in `dir`, the newest first.
pub fn from_here(dir: &Path) -> Vec<RunId> {
    let Some(here) = here() else { return vec![] };
    let text = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
    let given = text.lines().rev().filter_map(|line| serde_json::from_slice::<Given>(line.as_bytes()).ok());
    given.filter(|given| given.folder == here).map(|given| RunId(given.run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_this_folder_are_found_the_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(from_here(dir.path()), []);
        note(dir.path(), RunId(1));
        let other = serde_json::to_string(&Given { run: 2, folder: "/elsewhere".into() }).unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, fs::read_to_string(&path).unwrap() + &other + "\n{\"torn").unwrap();
        note(dir.path(), RunId(3));
        note(dir.path(), RunId(4));
        // The line after a torn one is lost with it.
        assert_eq!(from_here(dir.path()), [RunId(4), RunId(1)]);
        fs::write(&path, "x".repeat(BYTES_MAX as usize) + "\n").unwrap();
        note(dir.path(), RunId(5));
        note(dir.path(), RunId(6));
        assert_eq!(from_here(dir.path())[..1], [RunId(6)]);
    }
}
