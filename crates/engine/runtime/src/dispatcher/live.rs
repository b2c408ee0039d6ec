//! The effects of a live dispatcher's session: the journal's file, connections, the event log, tickets.

use super::arrival::Line;
use super::group::Whereabouts;
use super::older;
use super::queries::KeptQueries;
use crate::clock;
use crate::eventlog::asked::{About, Index, lines_about, printed_by, read_printed};
use crate::eventlog::whole::{drop_task, read_part};
use crate::eventlog::{EventLog, Needed};
use eyas_core::event::{Action, Event};
use eyas_core::log::{EVENTS_FILE, FailureLine, PRINTED_FILE};
use eyas_data::peer::{Ticket, TicketKey};
use eyas_journal::{ErrorKind, Health, Journal};
use eyas_net::Writer;
use eyas_session::dispatcher::{Answer, Outside, Permission, Record, Seq, Survey, with_live};
use eyas_terms::{Failure, MemberId, RunId, TaskId, Timestamp};
use eyas_wire::message::*;
use eyas_wire::relay::{Passed, RELAY_ITSELF};
use eyas_wire::users::{KnownKeys, UserKey};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long an answer waits for the event log, if the log must first have everything; the journal has it
/// already.
const LOGGED_MAX: Duration = Duration::from_secs(10);
/// How long to wait before the next try when the journal is full for the moment.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// What of the log has to be in its files before an answer is made of them.
#[derive(Clone, Copy, PartialEq)]
enum LogAwaited {
    /// Everything logged so far.
    All,
    /// The same, but a log whose disk hangs delays the answer by [`LOGGED_MAX`] at most.
    AllSoon,
    Nothing,
}

/// See the module.
pub(super) struct Live {
    dir: PathBuf,
    journal: Arc<Journal>,
    /// Requests for a clean journal that the thread has not fulfilled yet; more than 0 while the thread runs.
    n_cleanings_wanted: Arc<AtomicU32>,
    ticket_key: TicketKey,
    pub(super) log: Option<EventLog>,
    pub(super) lines: HashMap<u64, Line>,
    pub(super) relays: BTreeMap<u64, Line>,
    /// Our connections to the other dispatchers of the group.
    pub(super) links: BTreeMap<MemberId, Writer>,
    /// The addresses of the group's dispatchers, and the tasks that have to be sent them.
    pub(super) whereabouts: Option<Whereabouts>,
    /// Users who are let in.
    pub(super) users: Arc<KnownKeys>,
    queries: KeptQueries,
    /// The connections of executors.
    executors: HashSet<u64>,
    /// Where in the file the output of each task is.
    printed: Arc<Mutex<Index>>,
}

impl Live {
    pub fn new(dir: PathBuf, journal: Arc<Journal>, ticket_key: TicketKey, queries: KeptQueries) -> Live {
        Live {
            dir,
            journal,
            n_cleanings_wanted: Arc::default(),
            ticket_key,
            log: None,
            lines: HashMap::new(),
            relays: BTreeMap::new(),
            links: BTreeMap::new(),
            whereabouts: None,
            users: Arc::default(),
            queries,
            executors: HashSet::new(),
            printed: Arc::default(),
        }
    }

    /// The dispatcher ends: the event log is written, and messages queued on connections may still leave.
    pub fn into_writers(self) -> Vec<Writer> {
        drop(self.log);
        let own = self.lines.into_values().filter(|line| !line.writer.is_behind_relay());
        let relays = self.relays.into_values().inspect(|line| {
            line.writer.pass(RELAY_ITSELF, Passed::Ends);
        });
        own.chain(relays).map(|line| line.writer).collect()
    }

    /// Sends what `make` makes of the files in the directory, on a thread of its own.
    fn answer_from_disk(
        &mut self,
        connection: u64,
        number: u64,
        awaited: LogAwaited,
        make: impl FnOnce(&Path) -> ReplyBody + Send + 'static,
    ) {
        let flushed = self.log.as_mut().filter(|_| awaited != LogAwaited::Nothing).map(EventLog::flush);
        let Some(writer) = self.writer(connection).cloned() else { return };
        let dir = self.dir.clone();
        tokio::task::spawn_blocking(move || {
            // If the log has ended, its files are complete.
            let _ = match (flushed, awaited) {
                (Some(flushed), LogAwaited::AllSoon) => flushed.recv_timeout(LOGGED_MAX).is_ok(),
                (Some(flushed), _) => flushed.recv().is_ok(),
                (None, _) => true,
            };
            writer.send(&Reply { number, body: make(&dir) });
        });
    }

    fn writer(&self, connection: u64) -> Option<&Writer> {
        self.lines.get(&connection).map(|line| &line.writer)
    }

    fn reply(&self, connection: u64, number: u64, body: ReplyBody) {
        if let Some(writer) = self.writer(connection) {
            writer.send(&Reply { number, body });
        }
    }
}

/// Removes records from the journal that are not needed any more, and writes those of older versions anew.
fn clean(journal: &Journal) -> eyas_journal::Result<()> {
    let covers = journal.begin_segment()?;
    let read = |bytes: &[u8]| Record::from_bytes(bytes).map_err(|why| journal.cannot_read(&why));
    let mut survey = Survey::default();
    journal.read(covers)?.try_for_each(|_, bytes| read(bytes).map(|record| survey.take(&record)))??;
    let mut cleaning = survey.end();
    journal.compact(covers, |push| {
        let mut keep = |record: &Record<'_>| push(&record.to_bytes());
        journal.read(covers)?.try_for_each(|_, bytes| {
            let mut record = read(bytes)?;
            older::renew(&mut record);
            cleaning.take(&record, &mut keep)
        })??;
        cleaning.end(keep)
    })?;
    Ok(())
}

fn say_not_cleaned(error: impl Display) {
    eyas_text::say!("eyas: the journal was not cleaned of forgotten runs, and goes on as it is: {error}");
}

/// So many queries are sent in one frame.
const QUERIES_AT_ONCE: usize = 1000;

fn send_queries(writer: &Writer, Queries(queries): &Queries) {
    for some in queries.chunks(QUERIES_AT_ONCE) {
        writer.send(&vec![ToExecutor::Queries(Queries(some.to_vec()))]);
    }
}

impl Outside for Live {
    fn append(&mut self, record: &Record<'_>) -> Result<Seq, String> {
        let bytes = record.to_bytes();
        let appended =
            self.journal.append_uncommitted(&bytes).or_else(|_| self.journal.append_waiting(&bytes));
        appended.map(|seq| seq.0).map_err(|e| e.to_string())
    }

    fn try_append(&mut self, record: &Record<'_>) -> Result<Seq, String> {
        let bytes = record.to_bytes();
        loop {
            match self.journal.append_uncommitted(&bytes) {
                Ok(seq) => return Ok(seq.0),
                Err(e) => match self.journal.health() {
                    // The journal is not broken, only slow.
                    Health::Good if e.kind == ErrorKind::Full => std::thread::sleep(FULL_WAIT),
                    Health::Stalled(stall) => return Err(stall.to_string()),
                    Health::Good | Health::Closed => return Err(e.to_string()),
                },
            }
        }
    }

    fn commit(&mut self, now: bool) {
        match now {
            true => self.journal.commit(),
            false => self.journal.commit_soon(),
        }
    }

    fn flush(&mut self) {
        // The journal's notice reports what is wrong with the disk.
        let _ = self.journal.flush();
    }

    fn clean_journal(&mut self) {
        if self.n_cleanings_wanted.fetch_add(1, Ordering::AcqRel) > 0 {
            return; // the thread cleans the journal once more
        }
        let (journal, n_wanted) = (self.journal.clone(), self.n_cleanings_wanted.clone());
        let clean_as_often = move || {
            loop {
                let n = n_wanted.load(Ordering::Acquire);
                clean(&journal).unwrap_or_else(say_not_cleaned);
                if n_wanted.fetch_sub(n, Ordering::AcqRel) == n {
                    break;
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("cleans journal".into()).spawn(clean_as_often) {
            self.n_cleanings_wanted.store(0, Ordering::Release);
            say_not_cleaned(e);
        }
    }

    fn cut_log(&mut self, from_run: RunId, from_task: TaskId) {
        if let Some(log) = &mut self.log {
            log.cut(Needed { from_run, from_task });
        }
    }

    fn welcome(&mut self, connection: u64, welcome: Welcome) {
        let Some(writer) = self.writer(connection) else { return };
        writer.send(&welcome);
        if matches!(welcome, Welcome::Executor { .. }) {
            send_queries(writer, &self.queries.all());
            self.executors.insert(connection);
        }
    }

    fn keep_queries(&mut self, queries: Queries) -> Result<(), String> {
        let fresh = self.queries.add(queries).map_err(|error| {
            format!("the dispatcher cannot keep what signed URLs need beside its journal: {error}")
        })?;
        for writer in self.executors.iter().filter_map(|connection| self.writer(*connection)) {
            send_queries(writer, &fresh);
        }
        Ok(())
    }

    fn send(&mut self, connection: u64, batch: &mut Vec<ToExecutor>) {
        if let Some(writer) = self.writer(connection) {
            writer.send(batch);
        }
    }

    fn answer(&mut self, connection: u64, number: u64, answer: Answer) {
        match answer {
            Answer::Now(body) => self.reply(connection, number, body),
            Answer::Logged(body) if self.log.is_none() => self.reply(connection, number, body),
            Answer::Logged(body) => {
                self.answer_from_disk(connection, number, LogAwaited::AllSoon, move |_| body)
            }
            Answer::Explained(mut explained) => {
                self.answer_from_disk(connection, number, LogAwaited::All, move |dir| {
                    let About { lines, lives } = lines_about(&dir.join(EVENTS_FILE), explained.task);
                    (explained.log_lines, explained.lives) = (lines, lives);
                    explained.printed = printed_by(&dir.join(PRINTED_FILE), explained.task);
                    ReplyBody::Explained(explained)
                });
            }
            Answer::Printed { asked, live } => {
                let index = self.printed.clone();
                self.answer_from_disk(connection, number, LogAwaited::All, move |dir| {
                    let mut tasks = [asked];
                    read_printed(&index, &dir.join(PRINTED_FILE), &mut tasks);
                    let [asked] = tasks;
                    ReplyBody::Printed(Box::new(with_live(asked, live)))
                });
            }
            Answer::PrintedPart { task, attempt, at, drop } => {
                self.answer_from_disk(connection, number, LogAwaited::All, move |dir| {
                    let bytes = match drop {
                        true => {
                            drop_task(dir, task, attempt);
                            vec![]
                        }
                        false => read_part(dir, task, attempt, at),
                    };
                    ReplyBody::PrintedPart { bytes }
                });
            }
            Answer::Prints { run, mut tasks, next, is_early } => {
                let index = self.printed.clone();
                // The ends of these tasks are durable, so what they printed is in the file, also while a disk refuses more.
                self.answer_from_disk(connection, number, LogAwaited::Nothing, move |dir| {
                    read_printed(&index, &dir.join(PRINTED_FILE), &mut tasks);
                    ReplyBody::Prints { run, tasks, next, is_early }
                });
            }
        }
    }

    fn tell_member(&mut self, member: MemberId, message: &FromMember) {
        if let Some(link) = self.links.get(&member) {
            link.send(&std::slice::from_ref(message));
        }
    }

    fn close(&mut self, connection: u64) {
        if let Some(line) = self.lines.remove(&connection) {
            line.writer.close();
        }
        self.executors.remove(&connection);
    }

    fn permit(&self, permission: &Permission) -> Permit {
        let Permission { digest, size_bytes, holder_id, requester_id, expires_unix_ms } = *permission;
        let digest = eyas_data::Digest::from(digest.0);
        let ticket =
            Ticket::issue(&self.ticket_key, digest, size_bytes, holder_id, requester_id, expires_unix_ms);
        Permit { expires_unix_ms, mac: ticket.mac }
    }

    fn know_users(&mut self, keys: Vec<UserKey>) {
        self.users.set(keys);
    }

    fn keep_addresses(&mut self, addresses: &[String]) {
        if let Some(whereabouts) = &mut self.whereabouts {
            whereabouts.changed(addresses);
        }
    }

    fn log_event(&mut self, now: Timestamp, event: &Event) {
        if let Some(log) = &mut self.log {
            log.event(now, event);
        }
    }

    fn log_action(&mut self, now: Timestamp, action: &Action) {
        if let Some(log) = &mut self.log {
            log.action(now, action);
        }
    }

    fn log_printed(&mut self, printed: Box<Printed>) {
        if let Some(log) = &self.log {
            log.printed(printed);
        }
    }

    fn log_failure(&mut self, task: TaskId, failure: &Failure) {
        if let Some(log) = &self.log {
            log.failure(FailureLine { task, failure: failure.clone() });
        }
    }

    fn keep_printed(&mut self, connection: u64, part: PrintedPart) {
        let Some(writer) = self.writer(connection) else { return };
        match &self.log {
            Some(log) => log.part(part, writer.clone()),
            None => {
                let PrintedPart { task, attempt, .. } = part;
                writer.send(&vec![ToExecutor::PrintedKept { task, attempt, upto: None }]);
            }
        }
    }

    fn log_settled(&mut self, ticked: bool) {
        if let Some(log) = self.log.as_mut().filter(|_| ticked) {
            log.hand_over();
        }
    }

    fn n_log_lines_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, EventLog::n_lost)
    }

    fn usage(&self) -> (u64, u64) {
        let (own, children) = clock::cpu_ns();
        (own + children, clock::rss_bytes())
    }

    fn say(&mut self, line: String) {
        eyas_text::say!("{line}");
    }
}
