//! What the Python package does for the program: it draws figures by matplotlib, and writes tables by PyArrow.

use crate::print::reason;
use eyas_text::shown_path;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Has `python -m eyas.figures` draw with these arguments. Gives the last line that it printed. `Err`: one sentence, why nothing is drawn.
pub fn draw(arguments: &[PathBuf]) -> Result<String, String> {
    run_module("eyas.figures", arguments)
}

/// Has `python -m eyas.tables` write the events of a run, or of all runs, as Parquet. `Err`: one sentence, why nothing is written.
pub fn write_events(dirs: &[PathBuf], run: Option<u32>, out: &Path) -> Result<(), String> {
    let mut arguments = vec![PathBuf::from("--out"), out.to_path_buf()];
    arguments.extend(run.map(|run| PathBuf::from(format!("--run={run}"))));
    arguments.push("--".into());
    arguments.extend(dirs.iter().cloned());
    run_module("eyas.tables", &arguments).map(|_| ())
}

fn run_module(module: &str, arguments: &[PathBuf]) -> Result<String, String> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("python3")));
    let python = beside.filter(|path| path.is_file()).unwrap_or_else(|| "python3".into());
    let done = Command::new(&python)
        .args(["-m", module])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot start {}: {}", shown_path(&python), reason(&e)))?;
    let last_of = |said: &[u8]| {
        let said = String::from_utf8_lossy(said);
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_string()
    };
    if done.status.success() {
        return Ok(last_of(&done.stdout));
    }
    Err(last_of(&done.stderr).trim_start_matches("error: ").to_string())
}

/// Draws reports, given as name and JSON file, into a folder. With several, the first is what the others are compared with.
/// Gives how many figures there are.
pub fn draw_reports(folder: &Path, reports: &[(String, PathBuf)]) -> Result<u64, String> {
    let mut arguments = vec![PathBuf::from("--reports"), folder.to_path_buf()];
    for (name, path) in reports {
        arguments.push(format!("{}={}", name.replace('=', " "), path.display()).into());
    }
    let said = draw(&arguments)?;
    let n = said.split_whitespace().next().and_then(|word| word.parse().ok());
    n.ok_or_else(|| format!("the answer makes no sense: {said}"))
}
