//! A file of a task.

use std::borrow::Cow;

/// A file of a task as it is written.
pub(crate) struct File<'a> {
    /// The file's name in the sandbox; `None`: the file name of the location.
    pub name: Option<Cow<'a, str>>,
    pub location: Cow<'a, str>,
}
