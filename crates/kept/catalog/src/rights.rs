//! Rights, whom they are given to, and what follows from a list of them. This is the same for the catalog and for stores.

use crate::error::{Error, Result};
use eyas_text::shown;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What one may do with a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Get its files.
    Read,
    /// Add versions, change tags.
    Write,
    /// See that it is there, with its tags and file names.
    List,
    /// Change who may do what, and remove it.
    Admin,
    /// Have programs run on it at the sites that hold it.
    Execute,
}

const RIGHTS: [(Right, char, &str); 5] = [
    (Right::Read, 'r', "read"),
    (Right::Write, 'w', "write"),
    (Right::List, 'l', "list"),
    (Right::Admin, 'a', "admin"),
    (Right::Execute, 'x', "execute"),
];

impl Right {
    pub(crate) fn letter(self) -> char {
        RIGHTS.iter().find(|(right, ..)| *right == self).expect("all rights are listed").1
    }
    pub(crate) fn name(self) -> &'static str {
        RIGHTS.iter().find(|(right, ..)| *right == self).expect("all rights are listed").2
    }
}

/// Rights as letters in their order, e.g. `rl`. Without letters: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights(pub(crate) Vec<Right>);

impl Rights {
    pub fn has(&self, right: Right) -> bool {
        self.0.contains(&right)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|right| write!(f, "{}", right.letter()))
    }
}

impl FromStr for Rights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Rights> {
        let right = |c: char| RIGHTS.iter().find(|(_, letter, _)| *letter == c).map(|(right, ..)| *right);
        let rights: Option<Vec<Right>> = text.chars().map(right).collect();
        let mut rights = rights.ok_or_else(|| {
            Error::bad(format!(
                "{} are no rights: letters of r (read), w (write), l (list), a (admin) and x (execute)",
                shown(text)
            ))
        })?;
        rights.sort();
        rights.dedup();
        Ok(Rights(rights))
    }
}

/// Who may do what with a data set beside its owner: a subject's text, and its rights.
pub type Acl = BTreeMap<String, Rights>;

/// The subjects of access lists that mean somebody.
pub(crate) fn subjects(name: &str, groups: &[String]) -> Vec<String> {
    let groups = groups.iter().map(|group| format!("group:{group}"));
    [format!("user:{name}"), "everyone".into()].into_iter().chain(groups).collect()
}

/// The rights of somebody of a data set: of its owner, all; of others, those that any entry of its access list gives them. A store
/// asks it of the seals that it has.
pub fn rights_of(name: &str, groups: &[String], owner: &str, acl: &Acl) -> Rights {
    if name == owner {
        return Rights(RIGHTS.iter().map(|(right, ..)| *right).collect());
    }
    let subjects = subjects(name, groups);
    Rights(
        subjects.iter().filter_map(|subject| acl.get(subject)).flat_map(|rights| rights.0.clone()).collect(),
    )
}

/// Whom an entry of an access list means: `user:bo`, `group:md` or `everyone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject(pub(crate) String);

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Subject {
    type Err = Error;

    fn from_str(text: &str) -> Result<Subject> {
        let is_named = ["user:", "group:"].iter().any(|kind| {
            text.strip_prefix(kind).is_some_and(|name| {
                !name.is_empty()
                    && name.len() <= 100
                    && !name.contains(|c: char| c.is_whitespace() || c.is_control())
            })
        });
        match is_named || text == "everyone" {
            true => Ok(Subject(text.into())),
            false => {
                Err(Error::bad(format!("{} is nobody: write user:NAME, group:NAME or everyone", shown(text))))
            }
        }
    }
}
