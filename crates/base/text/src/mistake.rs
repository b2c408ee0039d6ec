//! How a mistake in something that a user wrote is said: its place, one sentence, and a hint on a line of its own.

use crate::{line_of, reason};
use std::fmt;
use std::io;

/// A mistake, to be displayed. Texts that come from outside have to be fit for users in `message` and `hint`.
#[derive(Default)]
pub struct Mistake<'a> {
    /// What was read: a file's name, "standard input", an option; it may be empty.
    pub origin: &'a str,
    /// Counted from 1.
    pub line: Option<u64>,
    /// In characters, counted from 1.
    pub column: Option<u64>,
    /// One sentence without its place.
    pub message: &'a str,
    /// What the system said.
    pub source: Option<&'a io::Error>,
    pub hint: Option<&'a str>,
}

impl fmt::Display for Mistake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = line_of(self.origin).to_string();
        for (word, number) in [("line", self.line), ("column", self.column)] {
            if let Some(number) = number {
                let comma = if place.is_empty() { "" } else { ", " };
                place.push_str(&format!("{comma}{word} {number}"));
            }
        }
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(self.message)?;
        if let Some(source) = self.source {
            write!(f, ": {}", reason(source))?;
        }
        self.hint.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}
