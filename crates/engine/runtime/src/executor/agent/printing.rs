//! The output of programs: the output so far, for users who ask while they run, and the final output, for the
//! dispatcher.
//!
//! The output of programs is kept until the dispatcher has recorded their ends: a dispatcher that is killed before may not have written
//! it, and the next one hears it again. What is kept is bounded, and the oldest tasks go first.
//!
//! Where everything that a program prints is wanted, its slot process has put into a file what is more than the ends. The end of
//! the program counts when the dispatcher has that file: parts of it are sent, one program after the other and each part when the
//! one before is kept, so that many nodes with much output fill the memory of no process.

use super::attempts::Attempts;
use super::{AttemptId, runner};
use crate::executor::slots::Slots;
use eyas_core::event::Exit;
use eyas_session::executor::ExecutorSession;
use eyas_wire::message::{Captured, FromExecutor, Printed, PrintedPart};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of outputs that are kept.
const PRINTED_KEPT: usize = 1024;

/// So much of an output is sent at once.
const PART_BYTES: usize = 256 << 10;

/// A program that has ended, and its end, which counts when its output is sent.
pub(super) type HeldEnd = (AttemptId, Box<Exit>);

/// The ends of standard output and of standard error.
type Streams = Box<(runner::Captured, runner::Captured)>;

/// See the module.
#[derive(Default)]
pub(super) struct Printing {
    /// Questions of the dispatcher that a slot process has not answered yet, by the key of the attempt, in their order.
    asks: HashMap<u64, Vec<u64>>,
    /// Output of programs whose ends no dispatcher has recorded.
    unrecorded: BTreeMap<AttemptId, Box<Printed>>,
    /// The output of programs that have ended, by the key of the attempt.
    files: HashMap<u64, File>,
    /// The first one sends; the dispatcher has what is before `at`.
    sending: VecDeque<Sending>,
}

struct Sending {
    held: HeldEnd,
    file: File,
    at: u64,
}

impl Sending {
    /// The next part; empty at the end. An error ends what is sent as well: the dispatcher has the length of the whole.
    fn read_part(&self) -> Vec<u8> {
        let mut part = vec![0; PART_BYTES];
        let mut n_read = 0;
        while n_read < part.len() {
            match self.file.read_at(&mut part[n_read..], self.at + n_read as u64) {
                Ok(0) => break,
                Ok(n) => n_read += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        part.truncate(n_read);
        part
    }
}

impl Printing {
    /// The dispatcher asks for the output of an attempt so far: asks the slot process that runs it.
    pub(super) fn ask(
        &mut self,
        ask: u64,
        id: AttemptId,
        attempts: &Attempts,
        slots: &mut Slots,
        session: &mut ExecutorSession,
    ) {
        let at = attempts.find(id).and_then(|attempt| Some((attempt.slot?, attempt.key)));
        match at {
            Some((slot, key)) => {
                self.asks.entry(key).or_default().push(ask);
                slots.look(slot, key);
            }
            None => answer(session, ask, id, None),
        }
    }

    /// A slot process has answered one question about the attempt that it calls `key`.
    pub(super) fn on_answer(
        &mut self,
        key: u64,
        streams: Option<Streams>,
        attempts: &Attempts,
        session: &mut ExecutorSession,
    ) {
        // Each question has one answer, in the order of the questions.
        let Some(asks) = self.asks.get_mut(&key) else { return };
        let ask = asks.remove(0);
        if asks.is_empty() {
            self.asks.remove(&key);
        }
        answer(session, ask, attempts.find_id(key).unwrap_or_default(), streams);
    }

    /// The slot process that was asked about `key` is gone.
    pub(super) fn slot_gone(&mut self, key: u64, session: &mut ExecutorSession) {
        for ask in self.asks.remove(&key).unwrap_or_default() {
            answer(session, ask, AttemptId::default(), None);
        }
    }

    /// A program with this output has ended. Takes the texts out of `report`.
    pub(super) fn ended(
        &mut self,
        (task, attempt): AttemptId,
        report: &mut runner::RunReport,
        session: &mut ExecutorSession,
    ) {
        // An empty output is reported only if an earlier attempt may have printed something.
        if report.stdout.total_bytes + report.stderr.total_bytes == 0 && attempt.0 <= 1 {
            return;
        }
        let (stdout, stderr) = (std::mem::take(&mut report.stdout), std::mem::take(&mut report.stderr));
        let printed = Printed { task, attempt, stdout: captured(stdout), stderr: captured(stderr) };
        let printed = Box::new(printed);
        session.say(FromExecutor::Printed(printed.clone()));
        if self.unrecorded.len() == PRINTED_KEPT {
            self.unrecorded.pop_first();
        }
        self.unrecorded.insert((task, attempt), printed);
    }

    /// The dispatcher has recorded the end of an attempt, or does not want it.
    pub(super) fn recorded(&mut self, id: AttemptId) {
        self.unrecorded.remove(&id);
    }

    /// A dispatcher is connected again: sends it the outputs that were kept. The answer to the last part may be lost.
    pub(super) fn was_welcomed(&mut self, session: &mut ExecutorSession) -> Vec<HeldEnd> {
        for printed in self.unrecorded.values() {
            session.say(FromExecutor::Printed(printed.clone()));
        }
        self.send_part(session)
    }

    /// The program of the attempt `key` has ended, and all that it printed is in this file, which has its name no longer.
    pub(super) fn take_file(&mut self, key: u64, path: &Path) {
        let file = File::open(path);
        let _ = std::fs::remove_file(path);
        self.files.extend(file.ok().map(|file| (key, file)));
    }

    /// Nothing of the attempt is needed any more.
    pub(super) fn forget(&mut self, key: u64) {
        self.files.remove(&key);
    }

    /// Sends what a program printed, if there is a file of it. Gives the ends that count now.
    pub(super) fn hold(
        &mut self,
        id: AttemptId,
        key: u64,
        exit: Exit,
        session: &mut ExecutorSession,
    ) -> Vec<HeldEnd> {
        let held = (id, Box::new(exit));
        let Some(file) = self.files.remove(&key) else { return vec![held] };
        self.sending.push_back(Sending { held, file, at: 0 });
        match self.sending.len() {
            1 => self.send_part(session),
            _ => vec![],
        }
    }

    /// The dispatcher has an output up to byte `upto`, or keeps no more of it. Gives the ends that count now.
    pub(super) fn kept(
        &mut self,
        id: AttemptId,
        upto: Option<u64>,
        session: &mut ExecutorSession,
    ) -> Vec<HeldEnd> {
        match (self.sending.front_mut().filter(|first| first.held.0 == id), upto) {
            (None, _) => vec![],
            (Some(first), Some(upto)) => {
                first.at = first.at.max(upto);
                self.send_part(session)
            }
            (Some(_), None) => self.let_go(id, session),
        }
    }

    /// No more of an output is to be sent. Gives the ends that count now.
    pub(super) fn let_go(&mut self, id: AttemptId, session: &mut ExecutorSession) -> Vec<HeldEnd> {
        let Some(at) = self.sending.iter().position(|sending| sending.held.0 == id) else { return vec![] };
        let mut ended: Vec<HeldEnd> =
            self.sending.remove(at).map(|sending| sending.held).into_iter().collect();
        if at == 0 {
            ended.extend(self.send_part(session));
        }
        ended
    }

    /// Sends the next part of the first output. Gives the ends of those that are sent whole.
    fn send_part(&mut self, session: &mut ExecutorSession) -> Vec<HeldEnd> {
        let mut ended = vec![];
        while let Some(first) = self.sending.front() {
            let bytes = first.read_part();
            if !bytes.is_empty() {
                let (task, attempt) = first.held.0;
                let part = PrintedPart { task, attempt, at: first.at, bytes };
                session.say(FromExecutor::PrintedPart(part));
                break;
            }
            ended.extend(self.sending.pop_front().map(|sending| sending.held));
        }
        ended
    }
}

/// Answers the dispatcher's question `ask`. `streams`: `None` if the program has not begun, or is gone.
fn answer(session: &mut ExecutorSession, ask: u64, (task, attempt): AttemptId, streams: Option<Streams>) {
    let has_begun = streams.is_some();
    let (stdout, stderr) = streams.map_or_else(Default::default, |streams| *streams);
    let printed = Printed { task, attempt, stdout: captured(stdout), stderr: captured(stderr) };
    session.say(FromExecutor::Looked { ask, has_begun, printed: Box::new(printed) });
}

fn captured(c: runner::Captured) -> Captured {
    Captured { head: c.head.0, tail: c.tail.0, total_bytes: c.total_bytes }
}
