//! What a dispatcher's session needs from its driver, as a trait.

use super::Record;
use eyas_core::event::{Action, Event};
use eyas_terms::{AttemptNo, Failure, MemberId, RunId, TaskId, Timestamp};
use eyas_wire::message::*;
use eyas_wire::users::UserKey;

/// Where a record is in the journal: larger for later ones.
pub type Seq = u64;

/// An answer to a client.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// To be sent at once.
    Now(ReplyBody),
    /// To be sent when the event log has everything that was said to it so far: whoever hears it may read the log next.
    Logged(ReplyBody),
    /// The event log's lines about the task, and what the task printed, are still missing.
    Explained(Box<Explained>),
    /// What the task's ended attempts printed is missing; `live` is of the one that runs, if one does, and is added last ([`super::with_live`]).
    Printed { asked: TaskPrinted, live: Option<Printed> },
    /// What these tasks printed is missing; the rest is as in [`ReplyBody::Prints`].
    Prints { run: RunId, tasks: Vec<TaskPrinted>, next: Option<u64>, is_early: bool },
    /// The bytes from `at` on of what the attempt printed are missing. `drop`: parts of the task's output are not needed any more.
    PrintedPart { task: TaskId, attempt: AttemptNo, at: u64, drop: bool },
}

/// A fetch that is permitted: the holder serves these bytes to the requester until then.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Permission {
    pub digest: eyas_terms::Digest,
    pub size_bytes: u64,
    /// Names on the data plane.
    pub holder_id: u32,
    pub requester_id: u32,
    /// By the holder's clock.
    pub expires_unix_ms: u64,
}

/// Journal, connections, event log and words for people, as a session sees them. Connections have numbers that the driver
/// chose; what is sent on one that is gone goes nowhere.
pub trait Outside {
    /// Appends a record, however long that takes. It may wait for the next commit. `Err`: the journal is closed for good, and why.
    fn append(&mut self, record: &Record<'_>) -> Result<Seq, String>;

    /// The same, unless the disk takes nothing now. `Err`: why it takes nothing.
    fn try_append(&mut self, record: &Record<'_>) -> Result<Seq, String>;

    /// Has what was appended written. `now`: somebody waits for it.
    fn commit(&mut self, now: bool);

    /// Waits until what was appended is on the disk, or the disk takes nothing.
    fn flush(&mut self);

    /// Has records that are not needed any more taken out of the journal, by [`super::Survey`] and [`super::Cleaning`]. That may
    /// take a while, in which the session goes on.
    fn clean_journal(&mut self);

    /// Nobody asks any more for what the event log says of runs before `from_run`, nor for what tasks before `from_task` printed.
    fn cut_log(&mut self, from_run: RunId, from_task: TaskId);

    /// The first frame on a connection.
    fn welcome(&mut self, connection: u64, welcome: Welcome);

    /// One frame to an executor. The session's buffer comes back empty.
    fn send(&mut self, connection: u64, batch: &mut Vec<ToExecutor>);

    /// One frame to a client.
    fn answer(&mut self, connection: u64, number: u64, answer: Answer);

    /// One message on our own connection to another dispatcher of the group.
    fn tell_member(&mut self, member: MemberId, message: &FromMember);

    /// Ends a connection; the session has forgotten it.
    fn close(&mut self, connection: u64);

    /// The proof of a permission.
    fn permit(&self, permission: &Permission) -> Permit;

    /// Whom the driver lets in beside members, in place of those before.
    fn know_users(&mut self, keys: Vec<UserKey>);

    /// Keeps queries of signed URLs apart from the journal, so that the next process has them, and sends them to all executors: to
    /// those that are here now, and to each that is welcomed later, before anything else. `Err`: why they cannot be kept.
    fn keep_queries(&mut self, queries: Queries) -> Result<(), String>;

    /// Where the dispatchers of the group are has changed: it is to be kept, and those who connect to them are to hear of it.
    fn keep_addresses(&mut self, addresses: &[String]);

    /// The core heard this.
    fn log_event(&mut self, now: Timestamp, event: &Event);

    /// The core decided this.
    fn log_action(&mut self, now: Timestamp, action: &Action);

    /// What an ended attempt printed, to be kept.
    fn log_printed(&mut self, printed: Box<Printed>);

    /// Why a task has failed, to be kept beside what it printed.
    fn log_failure(&mut self, task: TaskId, failure: &Failure);

    /// A part of what an attempt printed, to be kept. The executor at `connection` is told by [`ToExecutor::PrintedKept`] when it is
    /// written, or that it cannot be.
    fn keep_printed(&mut self, connection: u64, part: PrintedPart);

    /// All inputs that were there have been taken. `ticked`: some time has passed since the last that was said so.
    fn log_settled(&mut self, ticked: bool);

    /// Lines of the event log that could not be written.
    fn n_log_lines_lost(&self) -> u64;

    /// What the process itself used so far: processor time in nanoseconds, resident bytes.
    fn usage(&self) -> (u64, u64);

    /// A line for the people who run the dispatcher.
    fn say(&mut self, line: String);
}
