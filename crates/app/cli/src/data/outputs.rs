//! Outputs of a list that become data sets: what can never be written is refused before anything starts.

use super::home::access;
use crate::fault::bad;
use crate::{Exit, Fault};
use eyas_catalog::{Access, Error, written};
use eyas_storage::{DataPlace, Location};
use eyas_tasklist::TaskList;
use eyas_text::shown;
use std::collections::BTreeSet;

/// How such a location begins, as a list that was read has it.
const DATA: &str = "data://";
/// Labels for which the catalog is asked whether they may be written; the others are asked for when they are.
const ASKED_MAX: usize = 1000;

/// * `is_here`: the tasks run on this machine, so that its catalog is theirs.
///
/// # Errors
/// An output names a data set, a version or a tag that cannot be written; there is no catalog; or the catalog does not let this
/// user write there.
pub fn check_outputs(list: &TaskList, is_here: bool) -> Result<(), Fault> {
    let mut labels = BTreeSet::new();
    for array in &list.arrays {
        let outputs = array.template.outputs.iter().map(|(_, location)| location);
        for pattern in outputs.filter(|location| array.may_begin(location, DATA)) {
            let n_texts = if pattern.is_constant() { 1 } else { array.n_tasks };
            for i in 0..n_texts {
                let text = array.fill(pattern, i);
                if !text.starts_with(DATA) {
                    continue;
                }
                let refuse = |error: &dyn std::fmt::Display| {
                    let id = array.fill(&array.template.id, i);
                    bad(format!(
                        "task {}: the output {} cannot be written: {error}",
                        shown(&id),
                        shown(&text)
                    ))
                };
                let location: Location = text.parse().map_err(|error: eyas_storage::Error| refuse(&error))?;
                let place = DataPlace::of(&location).ok_or_else(|| refuse(&"it is no file of a data set"))?;
                let (key, _) = written(&place).map_err(|error| refuse(&error))?;
                if labels.len() < ASKED_MAX {
                    labels.insert(key.label);
                }
            }
        }
    }
    if labels.is_empty() || !is_here {
        return Ok(());
    }
    let what = "outputs of this list become data sets";
    let Access { catalog, caller } = access().map_err(|error| {
        let exit = if error.is_temporary() { Exit::Other } else { Exit::BadInput };
        // The names of nodes elsewhere are of no use here.
        let text = error.to_string();
        let text = text.split("; nodes on other machines").next().unwrap_or_default().to_owned();
        Fault::new(exit, format!("{what}, and {text}"))
    })?;
    for label in &labels {
        catalog.require_writable(&caller, label).map_err(|error| match error {
            error if error.is_of_database() => Fault::from(error),
            error @ (Error::Denied(_) | Error::Conflict(_) | Error::BadInput(_) | Error::NotFound(_)) => {
                bad(format!("{what}, and one cannot be written: {error}"))
            }
            error => Fault::from(error),
        })?;
    }
    Ok(())
}
