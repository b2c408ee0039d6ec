//! Names like `/KEY/path` on their way to files that a program reads.

use crate::error::{Error, ErrorKind, Result};
use crate::{Input, Opened, Outside};
use eyas_catalog::Key;
use eyas_text::{line_of, reason, shown_path};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Puts copies of the inputs under their names into a folder. Gives what each one is, with its version.
pub fn stage(
    opened: &Opened,
    inputs: &[Input],
    folder: &Path,
    explain: Option<&dyn Outside>,
) -> Result<Vec<String>> {
    let mut from = vec![];
    for (input, key) in inputs.iter().zip(settle(opened, inputs)?) {
        let reader = opened.reader(&key, input.site.as_deref())?;
        let target = folder.join(&input.name);
        let parent = target.parent().expect("it lies in the folder");
        fs::create_dir_all(parent).map_err(|error| {
            Error::new(
                ErrorKind::Other,
                format!("cannot make the folder {}: {}", shown_path(parent), reason(&error)),
            )
        })?;
        let sites = match &input.path {
            Some(path) => {
                let file = reader.file(path)?;
                BTreeSet::from([reader.get(file, &target)?.to_owned()])
            }
            None => reader.get_all(&target)?.sites,
        };
        let path = input.path.as_ref().map(|path| format!("/{path}")).unwrap_or_default();
        let text = format!("/{key}{path} as {}", input.name.display());
        if let Some(outside) = explain {
            let place = |site: &String| match reader.is_near(site) {
                true => format!("{site} (on this machine)"),
                false => format!("{site} (over the network)"),
            };
            let sites = sites.iter().map(place).collect::<Vec<_>>().join(", ");
            outside.say(&format!(
                "input {}: from the site {sites}, for a program on this machine",
                line_of(&text)
            ));
        }
        from.push(text);
    }
    Ok(from)
}

/// The version that each input is of. What the newest versions are is settled once, so that all inputs that name a label are of one
/// version.
pub fn settle(opened: &Opened, inputs: &[Input]) -> Result<Vec<Key>> {
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    let mut keys = vec![];
    for input in inputs {
        let label = input.key.label.as_str();
        let version = match (input.key.version, newest.get(label)) {
            (Some(version), _) | (None, Some(&version)) => version,
            (None, None) => {
                let version = opened.catalog.show(&opened.caller, &input.key)?.newest.version;
                newest.insert(label, version);
                version
            }
        };
        keys.push(Key { label: label.to_owned(), version: Some(version) });
    }
    Ok(keys)
}
