//! How one object is written beyond its bytes: which writer writes it, and what may still stop that writer.
//!
//! A writer may be stopped for minutes and go on when another one has long done its work. Two things keep its bytes from
//! home then. Its [`Fence`] is asked between blocks and right before the name appears. And a later writer of the
//! same object removes the parts of earlier ones before its own name appears ([`Part::replaces`]), so whoever is stopped
//! between the last question and the rename finds nothing to rename. Why that leaves no gap, with its assumptions:
//! `docs/decisions/0026-landing-fence.md`.

use crate::Location;
use crate::error::{self, Error, ErrorKind, Status};
use std::path::Path;

const WRITE: &str = "write";

/// Asked while an object is being written. A refusal is a sentence's end: why the writing was given up.
pub trait Fence: Sync {
    /// Between two blocks.
    fn may_go_on(&self) -> Result<(), String>;

    /// When all bytes are at home under a temporary name, right before the name appears. May wait for an answer.
    fn may_appear(&self) -> Result<(), String>;

    /// A temporary object is about to be made. A reader of the note that finds no end of it may remove the object.
    fn part_begins(&self, part: &Path) {
        let _ = part;
    }

    /// It is gone, or has become the object.
    fn part_ended(&self, part: &Path) {
        let _ = part;
    }
}

/// Lets everything pass.
pub struct Open;

impl Fence for Open {
    fn may_go_on(&self) -> Result<(), String> {
        Ok(())
    }

    fn may_appear(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Names the writer of a temporary object. Of two with the same `work` the one with the smaller (`epoch`, `number`) is
/// the earlier one, and has no right to the object any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Equal for all writers of one object for the same purpose, and for no other writer.
    pub work: u64,
    pub epoch: u64,
    pub number: u32,
    /// There may be parts of earlier writers: they are removed before this one's object appears. Costs a listing of
    /// the directory.
    pub replaces: bool,
}

/// One writing.
#[derive(Clone, Copy)]
pub struct Put<'a> {
    /// The expected size, so that a full disk is noticed before the first byte.
    pub size_hint_bytes: Option<u64>,
    /// Permission bits of the object, where the home has such; `None`: what this process makes files with.
    pub mode: Option<u32>,
    /// When the object was modified, in nanoseconds since 1970, where the home keeps that; `None`: now.
    pub modified_ns: Option<i64>,
    /// Of a directory: the times of all that is in it, as [`eyas_folder::Tree::times`] gives them. Empty: now.
    pub times: &'a [i64],
    pub part: Part,
    /// The name below this directory comes from outside: whatever is on the way below it, no symbolic link is followed. For files
    /// of homes with paths.
    pub below: Option<&'a Path>,
    pub fence: &'a dyn Fence,
}

impl Put<'_> {
    /// By a writer that has no rival and is not stopped.
    pub fn simple(size_hint_bytes: Option<u64>) -> Put<'static> {
        Put {
            size_hint_bytes,
            mode: None,
            modified_ns: None,
            times: &[],
            part: Part::default(),
            below: None,
            fence: &Open,
        }
    }

    /// [`Fence::may_go_on`], as an error where it refuses.
    pub(crate) fn may_go_on(&self, location: &Location) -> error::Result<()> {
        self.fence.may_go_on().map_err(|why| given_up(WRITE, location, why))
    }

    /// [`Fence::may_appear`], as an error where it refuses.
    pub(crate) fn may_appear(&self, location: &Location) -> error::Result<()> {
        self.fence.may_appear().map_err(|why| given_up(WRITE, location, why))
    }
}

pub(crate) fn given_up(operation: &'static str, location: impl std::fmt::Display, why: String) -> Error {
    Error::new(ErrorKind::GivenUp, Status::Permanent, operation, location, why)
}
