//! What a program made, on its way into a new data set: all of it or nothing.

use super::super::open::now_ms;
use super::super::put::{label_or_new, say_put};
use super::args::{AtDataArgs, Output};
use super::work::Work;
use crate::print::reason;
use crate::{Exit, Fault};
use eyas_catalog::{Caller, Catalog, Put, Tag};
use eyas_text::{shown, shown_path};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Moves the outputs to where they are put from.
pub fn gather(outputs: &[Output], work: &Work, program: &str) -> Result<(), Fault> {
    let failed = |what: String| {
        Fault::new(Exit::TasksFailed, format!("{} made {what}; no data set was made", shown(program)))
    };
    let kind_of =
        |output: &Output| fs::symlink_metadata(work.inside.join(&output.name)).map(|of| of.file_type());
    let absent: Vec<String> = outputs
        .iter()
        .filter(|output| kind_of(output).is_err())
        .map(|output| shown_path(&output.name).to_string())
        .collect();
    if !absent.is_empty() {
        return Err(failed(format!("no {}, which --output names", absent.join(" and no "))));
    }
    for output in outputs {
        let kind = kind_of(output)?;
        if !kind.is_file() && !kind.is_dir() {
            let what = if kind.is_symlink() { "a symbolic link" } else { "neither a file nor a directory" };
            return Err(failed(format!(
                "{}, which is {what}, and a data set has files only",
                shown_path(&output.name)
            )));
        }
    }
    let inside = fs::canonicalize(&work.inside)?;
    for output in outputs {
        let from = work.inside.join(&output.name);
        // A directory on the way may be a symbolic link of the program's, to files that are not its own.
        let parent = from.parent().map(fs::canonicalize).transpose()?;
        if !parent.is_some_and(|parent| parent.starts_with(&inside)) {
            return Err(failed(format!("{} outside of its folder", shown_path(&output.name))));
        }
        let target = work.outputs.join(&output.path);
        let cannot_move = |error: std::io::Error| {
            failed(format!("{}, which cannot be moved: {}", shown_path(&output.name), reason(&error)))
        };
        fs::create_dir_all(target.parent().expect("it lies in the folder")).map_err(cannot_move)?;
        let metadata = fs::symlink_metadata(&from).map_err(cannot_move)?;
        if metadata.is_dir() {
            // Only a directory that may be written to can be moved into another one.
            let mode = metadata.permissions().mode() | 0o700;
            fs::set_permissions(&from, fs::Permissions::from_mode(mode)).map_err(cannot_move)?;
        }
        fs::rename(&from, &target).map_err(cannot_move)?;
    }
    Ok(())
}

/// What a data set was made by, and where it goes.
pub struct Made<'a> {
    pub command: &'a [String],
    pub from: &'a [String],
    pub site: &'a str,
    pub tags: &'a [Tag],
}

/// Puts the outputs into the catalog as one version.
pub fn keep(
    catalog: &Catalog,
    caller: &Caller,
    args: &AtDataArgs,
    work: &Work,
    made: &Made<'_>,
) -> Result<Exit, Fault> {
    let holding = catalog.holding(made.site)?;
    let label = label_or_new(args.label.as_deref())?;
    let sources = [work.outputs.clone()];
    catalog.make_room_for(&*holding, &sources, now_ms())?;
    let what = Put {
        sources: &sources,
        is_made: true,
        label: &label,
        copies: args.copies,
        tags: made.tags,
        now_ms: now_ms(),
    };
    let done = eyas_catalog::put(catalog, &*holding, caller, &what, &mut |_, _| {}).map_err(|error| {
        // A path is said as it would be in the data set. The program has run, so its input was right.
        let below = format!("{}/", work.outputs.display());
        let reason = error.to_string().replace(&below, "");
        let exit = if error.is_temporary() { Exit::Other } else { Exit::TasksFailed };
        Fault::new(exit, format!("{reason}; no data set was made"))
    })?;
    let from = if made.from.is_empty() { String::new() } else { format!(" on {}", made.from.join(", ")) };
    let key = &done.key;
    let detail = format!("version {} by {}{from}", key.version.unwrap_or(0), made.command.join(" "));
    catalog.note(caller, key, "at-data", &detail, now_ms())?;
    say_put(catalog, caller, &done, made.site)?;
    Ok(Exit::Good)
}
