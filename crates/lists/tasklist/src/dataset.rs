//! Outputs that become data sets of the catalog, and what such a data set is called where the list gives it no label.
//!
//! How they are written is home storage's ([`NewData`]). The file's path in the data set is the output's name. A label that is made up is a function of what the task is, so a task that is run again makes a new version
//! of the same data set, or none where its file is the same.

use crate::error::{Error, Result, shown};
use crate::file::File;
use crate::line::Task;
use eyas_storage::NewData;
use eyas_terms::array::{Command, STDERR_NAME, STDOUT_NAME};
use std::borrow::Cow;

/// The location of an output with its label and path, where it is written without.
///
/// # Errors
/// The output has no name.
pub(crate) fn whole(task: &Task<'_>, file: &File<'_>, id: &str, base: &str) -> Result<Option<String>> {
    let Some(new) = NewData::of(&file.location) else { return Ok(None) };
    let Some(name) = &file.name else {
        let message = format!("`outputs`: {} gives no name in the sandbox", shown(&file.location));
        let hint = "write {NAME: \"data:?TAG=VALUE\"}, or data:LABEL/NAME?TAG=VALUE";
        return Err(Error::invalid(message).hint(hint).field("outputs"));
    };
    let label = match new.label {
        "" => Cow::Owned(label_of(task, file, id, base)),
        label => label.into(),
    };
    let path = match &**name {
        STDOUT_NAME => "stdout",
        STDERR_NAME => "stderr",
        name => name,
    };
    Ok(Some(new.location(&label, path)))
}

/// A label that no other task's output has: `d` and twelve hexadecimal digits.
fn label_of(task: &Task<'_>, file: &File<'_>, id: &str, base: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    };
    [base, id, &file.location, file.name.as_deref().unwrap_or("")].into_iter().for_each(&mut add);
    match &task.command {
        Command::Exec(words) => words.iter().for_each(|word| add(word)),
        Command::Shell(line) => add(line),
    }
    task.inputs.iter().for_each(|input| add(&input.location));
    format!("d{}", &hasher.finalize().to_hex()[..12])
}
