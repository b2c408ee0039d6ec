//! Users of a cluster: the keys by which they are known, and their rights.

use eyas_text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::RwLock;

/// The digest (BLAKE3) of a certificate. A user is whoever proves to have the private key of a known certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserKey(pub [u8; 32]);

impl UserKey {
    /// The key of a certificate in DER.
    pub fn of(certificate: &[u8]) -> UserKey {
        UserKey(*blake3::hash(certificate).as_bytes())
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserKey({})", &blake3::Hash::from(self.0).to_hex()[..8])
    }
}

/// Whose key the side that connected has proved to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visitor {
    /// The cluster's own key, which its owner, its nodes and its dispatchers have.
    Member,
    /// Another key, perhaps a user's.
    Other(UserKey),
}

/// Who asks for something, or whose a task is. It is always a value: that nothing is known of somebody gives them no right.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Principal {
    /// Whoever has the cluster's own key.
    Owner,
    /// The user of this name.
    User(String),
    /// A connection that was ended or never let in, or a run that is not there.
    Nobody,
}

impl Principal {
    /// `name`: as the core names whose a run is; the cluster's owner has the empty name. `None`: there is no such run.
    pub fn of_run(name: Option<&str>) -> Principal {
        match name {
            Some("") => Principal::Owner,
            Some(name) => Principal::User(name.to_owned()),
            None => Principal::Nobody,
        }
    }
}

/// The keys that a dispatcher lets in beside those of members.
#[derive(Debug, Default)]
pub struct KnownKeys(RwLock<BTreeSet<UserKey>>);

impl KnownKeys {
    /// Those that are let in from now on, in place of all before.
    pub fn set(&self, keys: impl IntoIterator<Item = UserKey>) {
        *self.0.write().expect("only set operations happen under this lock") = keys.into_iter().collect();
    }

    pub fn has(&self, key: &UserKey) -> bool {
        self.0.read().expect("only set operations happen under this lock").contains(key)
    }
}

/// What a user may do with a cluster. Their own runs they may see and cancel in any case.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct ClusterRights {
    /// Submit runs.
    pub submit: bool,
    /// See the runs of others.
    pub see: bool,
    /// Cancel and forget the runs of others.
    pub cancel: bool,
    /// Everything, with users, nodes and the cluster's end.
    pub operate: bool,
}

impl ClusterRights {
    pub const ALL: ClusterRights = ClusterRights { submit: true, see: true, cancel: true, operate: true };
    pub const NAMES: [&str; 4] = ["submit", "see", "cancel", "operate"];

    fn flags(&self) -> [bool; 4] {
        [self.submit, self.see, self.cancel, self.operate]
    }
}

impl fmt::Display for ClusterRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = ClusterRights::NAMES.iter().zip(self.flags());
        let names: Vec<&str> = named.filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        f.write_str(&if names.is_empty() { "none".into() } else { names.join(",") })
    }
}

impl FromStr for ClusterRights {
    type Err = String;

    fn from_str(text: &str) -> Result<ClusterRights, String> {
        let mut rights = ClusterRights::default();
        for name in text.split(',').map(str::trim).filter(|name| *name != "none") {
            match name {
                "submit" => rights.submit = true,
                "see" => rights.see = true,
                "cancel" => rights.cancel = true,
                "operate" => rights = ClusterRights::ALL,
                _ => {
                    return Err(format!(
                        "{} is no right: write some of submit, see, cancel and operate with commas between them, or none",
                        shown(name)
                    ));
                }
            }
        }
        Ok(rights)
    }
}

/// The longest name of a user.
const NAME_MAX: usize = 64;

/// What is wrong with the name of a user, as a sentence; `None` if nothing is.
pub fn why_no_name(name: &str) -> Option<String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_name = begins && name.len() <= NAME_MAX && name.chars().all(is_good);
    (!is_name).then(|| {
        format!(
            "{} cannot be the name of a user: a name begins with a letter or digit, has letters, digits and . _ - @ +, and at most \
             {NAME_MAX} of them",
            shown(name)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_written_as_they_are_read() {
        for text in ["none", "submit", "submit,see", "see,cancel", "submit,see,cancel,operate"] {
            assert_eq!(text.parse::<ClusterRights>().unwrap().to_string(), text);
        }
        assert_eq!("operate".parse::<ClusterRights>(), Ok(ClusterRights::ALL));
        let wrong = "submit,destroy".parse::<ClusterRights>().unwrap_err();
        assert!(wrong.contains("`destroy` is no right"), "{wrong}");
    }

    #[test]
    fn names_are_plain() {
        assert!(["bo", "ada.l", "x@lab", "7of9"].into_iter().all(|name| why_no_name(name).is_none()));
        let long = "n".repeat(65);
        for name in ["", ".bo", "a b", "bo\n", "../bo", "ä", &long] {
            assert!(why_no_name(name).is_some(), "{name:?}");
        }
    }
}
