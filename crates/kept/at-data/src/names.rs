//! Names that a program knows, and what they stand for.

use eyas_catalog::{Key, is_plain_path};
use eyas_text::shown;
use std::path::PathBuf;
use std::str::FromStr;

/// `HCl=/reagents@2/hcl`, or `HCl=/@attic/reagents@2/hcl` for the copy at a site
#[derive(Clone)]
pub struct Input {
    pub name: PathBuf,
    /// The site whose copies are read. `None` means any.
    pub site: Option<String>,
    pub key: Key,
    /// `None` means all files.
    pub path: Option<String>,
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Input, String> {
        let (name, place) = text.split_once('=').ok_or("write NAME=/KEY/PATH")?;
        let place =
            place.strip_prefix('/').ok_or("a data set is named with a slash before it: NAME=/KEY/PATH")?;
        let (site, place) = match place.strip_prefix('@').map(|place| place.split_once('/')) {
            Some(Some((site, place))) => (Some(site.to_owned()), place),
            Some(None) => return Err("behind a site stands a data set: NAME=/@SITE/KEY/PATH".into()),
            None => (None, place),
        };
        let (key, path) = match place.split_once('/') {
            Some((key, "")) => (key, None),
            Some((key, path)) => (key, Some(path.to_owned())),
            None => (place, None),
        };
        let key = key.parse::<Key>().map_err(|error| error.to_string())?;
        Ok(Input { name: relative(name)?, site, key, path })
    }
}

/// `NaCl=salt`
#[derive(Clone)]
pub struct Output {
    pub name: PathBuf,
    pub path: PathBuf,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Output, String> {
        let (name, path) = text.split_once('=').ok_or("write NAME=PATH, as in result.dat=2026/result.dat")?;
        Ok(Output { name: relative(name)?, path: relative(path)? })
    }
}

/// A path that stays in the folder that it is taken from.
fn relative(text: &str) -> Result<PathBuf, String> {
    match is_plain_path(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "{} is no name of a file: it is relative, without `.`, `..` or empty parts",
            shown(text)
        )),
    }
}
