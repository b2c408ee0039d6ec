//! What could not be read: each file is named once.

use eyas_catalog::Error;
use eyas_text::{say, shown};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The files of which it was said that they cannot be read, by their numbers; and the sites of which something was said.
#[derive(Clone, Default)]
pub(crate) struct SaidFiles(Arc<Mutex<HashSet<u64>>>, Arc<Mutex<HashSet<String>>>);

impl SaidFiles {
    /// The number of an error for the program. What no number can say is printed, once for each file. `is_name`: it was looked for by
    /// a name that any program may make up.
    pub(crate) fn errno(&self, number: u64, name: &str, is_name: bool, error: &Error) -> i32 {
        match error {
            Error::NotFound(_) if is_name => return libc::ENOENT,
            Error::Denied(_) if is_name => return libc::EACCES,
            _ => {}
        }
        self.say(number, &format!("{} cannot be read: {error}", shown(name)));
        if matches!(error, Error::Denied(_)) { libc::EACCES } else { libc::EIO }
    }

    /// The number of an error for a program that has named a site. What is wrong is printed once for each site, as the program would only
    /// say that there is no such file.
    pub(crate) fn errno_of_site(&self, site: &str, error: &Error) -> i32 {
        let is_new = self.1.lock().unwrap_or_else(PoisonError::into_inner).insert(site.to_owned());
        if is_new {
            say!("{error}");
        }
        if matches!(error, Error::NotFound(_)) { libc::ENOENT } else { libc::EIO }
    }

    pub(crate) fn say(&self, number: u64, text: &str) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
            say!("{text}");
        }
    }

    /// How many there are.
    pub(crate) fn n(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
