//! How a data set, or a version of it, is named: `LABEL` or `LABEL@3`.

use crate::error::{Error, Result};
use eyas_text::shown;
use std::fmt;
use std::str::FromStr;

const LABEL_BYTES_MAX: usize = 100;
/// The name beside those of data sets at which programs write what becomes a new one.
pub const NEW: &str = "new";

/// A data set's label, and a version if one is meant; without one it is the newest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub label: String,
    pub version: Option<u32>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.label),
            None => f.write_str(&self.label),
        }
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Key> {
        let (label, version) = match text.split_once('@') {
            Some((label, version)) => match version.parse::<u32>() {
                Ok(version) if version > 0 => (label, Some(version)),
                _ => {
                    return Err(Error::bad(format!(
                        "{} is no key: behind @ stands a version, 1 or more",
                        shown(text)
                    )));
                }
            },
            None => (text, None),
        };
        check_label(label)?;
        Ok(Key { label: label.into(), version })
    }
}

impl Key {
    /// A data set or version, or with `/PATH` one file of it, as users write it.
    pub fn with_path(text: &str) -> Result<(Key, Option<&str>)> {
        match text.split_once('/') {
            Some((key, path)) => Ok((key.parse()?, Some(path))),
            None => Ok((text.parse()?, None)),
        }
    }
}

/// # Errors
/// The label is empty, too long, or has other characters than ASCII letters, digits, `_`, `-` and `.`.
pub fn check_label(label: &str) -> Result<()> {
    let is_label = label.len() <= LABEL_BYTES_MAX
        && label.starts_with(|c: char| c.is_ascii_alphanumeric())
        && label.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.".contains(&c));
    match is_label {
        true => Ok(()),
        false => Err(Error::bad(format!(
            "{} is no label (of a data set or a site): a letter or digit, then letters, digits, `_`, `-` or `.`, at most {LABEL_BYTES_MAX}",
            shown(label).at_most(80)
        ))),
    }
}

/// # Errors
/// The label stands for something else where labels are names, so no data set is given it any more. One that has it keeps it.
pub(crate) fn check_new_label(label: &str) -> Result<()> {
    match label {
        NEW => Err(Error::bad(format!(
            "no data set is given the label `{NEW}`, as /eyas/{NEW} is where programs write new ones: choose another label"
        ))),
        _ => Ok(()),
    }
}

/// A label for a data set that was given none: `d` and twelve characters that stand for 60 bits of `random`. Characters that are
/// easily taken for others (`i`, `l`, `o`, `u`) do not occur.
pub fn label_of(random: u64) -> String {
    const CHARACTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let characters = (0..12).map(|n| char::from(CHARACTERS[(random >> (5 * n)) as usize & 31]));
    std::iter::once('d').chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = |text: &str| text.parse::<Key>().map(|key| key.to_string());
        assert_eq!(key("adk").unwrap(), "adk");
        assert_eq!(key("adk-1.2_b@12").unwrap(), "adk-1.2_b@12");
        for wrong in ["", "@1", "a@", "a@0", "a@x", "a@1@2", "a/b", "..", "-a", "a b", "é", &"x".repeat(101)]
        {
            assert!(key(wrong).is_err(), "{wrong}");
        }
        assert!(check_new_label(NEW).is_err() && check_new_label("newer").is_ok());
        assert_eq!(label_of(0), "d000000000000");
        assert!(label_of(u64::MAX).parse::<Key>().is_ok());
    }
}
