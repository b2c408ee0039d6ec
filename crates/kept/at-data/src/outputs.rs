//! What a program made, on its way into a new data set: all of it or nothing.

use crate::error::{Error, ErrorKind, Result};
use crate::work::WorkFolder;
use crate::{MadeSet, Output, Request, label_or_new, now_ms};
use eyas_catalog::{Caller, Catalog, File, Put, put_in_place};
use eyas_text::{reason, shown, shown_path};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Moves the outputs to where they are put from.
pub fn gather(outputs: &[Output], work: &WorkFolder, program: &str) -> Result<()> {
    let failed = |what: String| {
        Error::new(ErrorKind::Program, format!("{} made {what}; no data set was made", shown(program)))
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

/// What a data set is made by, and where it goes.
pub struct Origin<'a> {
    pub command: &'a [String],
    pub from: &'a [String],
    pub site: String,
}

/// Puts the outputs into the catalog as one version. in_place : the files that the site has taken by itself.
pub fn keep(
    catalog: &Catalog,
    caller: &Caller,
    request: &Request,
    work: &WorkFolder,
    made: Origin<'_>,
    in_place: Option<&[File]>,
) -> Result<Option<MadeSet>> {
    let holding = catalog.holding(&made.site)?;
    let label = label_or_new(request.label.as_deref())?;
    let sources = [work.outputs.clone()];
    if in_place.is_none() {
        catalog.make_room_for(&*holding, &sources, now_ms())?;
    }
    let what = Put {
        sources: &sources,
        is_made: true,
        label: &label,
        copies: request.copies,
        tags: &request.tags,
        now_ms: now_ms(),
    };
    let put = match in_place {
        Some(files) => put_in_place(catalog, &*holding, caller, &what, files),
        None => eyas_catalog::put(catalog, &*holding, caller, &what, &mut |_, _| {}),
    };
    let done = put.map_err(|error| {
        // A path is said as it would be in the data set. The program has run, so its input was right.
        let below = format!("{}/", work.outputs.display());
        let reason = error.to_string().replace(&below, "");
        let kind = if error.is_temporary() { ErrorKind::Other } else { ErrorKind::Program };
        Error::new(kind, format!("{reason}; no data set was made"))
    })?;
    let from = if made.from.is_empty() { String::new() } else { format!(" on {}", made.from.join(", ")) };
    let key = &done.key;
    let detail = format!("version {} by {}{from}", key.version.unwrap_or(0), made.command.join(" "));
    catalog.note(caller, key, "at-data", &detail, now_ms())?;
    Ok(Some(MadeSet { done, site: made.site }))
}
