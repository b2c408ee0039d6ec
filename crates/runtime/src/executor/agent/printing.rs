//! The output of programs: the output so far, for users who ask while they run, and the final output, for the
//! dispatcher.
//!
//! The output of programs that ended while no dispatcher was connected is kept. It is bounded, and the oldest
//! goes first.

use super::attempts::Attempts;
use super::connection::Connection;
use super::{AttemptId, runner};
use crate::executor::slots::Slots;
use eyas_wire::message::{Captured, FromExecutor, Printed};
use std::collections::{HashMap, VecDeque};

/// The number of outputs that are kept for a dispatcher that is away.
const PRINTED_KEPT: usize = 1024;

/// The ends of standard output and of standard error.
type Streams = Box<(runner::Captured, runner::Captured)>;

/// See the module.
#[derive(Default)]
pub(super) struct Printing {
    /// Questions of the dispatcher that a slot process has not answered yet, by the key of the attempt, in their order.
    asks: HashMap<u64, Vec<u64>>,
    /// Output of programs that ended while no dispatcher was connected.
    unheard: VecDeque<Printed>,
}

impl Printing {
    /// The dispatcher asks for the output of an attempt so far: asks the slot process that runs it.
    pub(super) fn ask(
        &mut self,
        ask: u64,
        id: AttemptId,
        attempts: &Attempts,
        slots: &mut Slots,
        connection: &mut Connection,
    ) {
        let at = attempts.find(id).and_then(|attempt| Some((attempt.slot?, attempt.key)));
        match at {
            Some((slot, key)) => {
                self.asks.entry(key).or_default().push(ask);
                slots.look(slot, key);
            }
            None => answer(connection, ask, id, None),
        }
    }

    /// A slot process has answered one question about the attempt that it calls `key`.
    pub(super) fn on_answer(
        &mut self,
        key: u64,
        streams: Option<Streams>,
        attempts: &Attempts,
        connection: &mut Connection,
    ) {
        // Each question has one answer, in the order of the questions.
        let Some(asks) = self.asks.get_mut(&key) else { return };
        let ask = asks.remove(0);
        if asks.is_empty() {
            self.asks.remove(&key);
        }
        answer(connection, ask, attempts.find_id(key).unwrap_or_default(), streams);
    }

    /// The slot process that was asked about `key` is gone.
    pub(super) fn slot_gone(&mut self, key: u64, connection: &mut Connection) {
        for ask in self.asks.remove(&key).unwrap_or_default() {
            answer(connection, ask, AttemptId::default(), None);
        }
    }

    /// A program with this output has ended. Takes the texts out of `report`.
    pub(super) fn ended(
        &mut self,
        (task, attempt): AttemptId,
        report: &mut runner::RunReport,
        connection: &mut Connection,
    ) {
        // An empty output is reported only if an earlier attempt may have printed something.
        if report.stdout.total_bytes + report.stderr.total_bytes == 0 && attempt.0 <= 1 {
            return;
        }
        let (stdout, stderr) = (std::mem::take(&mut report.stdout), std::mem::take(&mut report.stderr));
        let printed = Printed { task, attempt, stdout: captured(stdout), stderr: captured(stderr) };
        if connection.is_welcomed() {
            connection.say(FromExecutor::Printed(Box::new(printed)));
            return;
        }
        if self.unheard.len() == PRINTED_KEPT {
            self.unheard.pop_front();
        }
        self.unheard.push_back(printed);
    }

    /// A dispatcher is connected again: sends it the outputs that were kept.
    pub(super) fn say_unheard(&mut self, connection: &mut Connection) {
        for printed in self.unheard.drain(..) {
            connection.say(FromExecutor::Printed(Box::new(printed)));
        }
    }
}

/// Answers the dispatcher's question `ask`. `streams`: `None` if the program has not begun, or is gone.
fn answer(connection: &mut Connection, ask: u64, (task, attempt): AttemptId, streams: Option<Streams>) {
    let has_begun = streams.is_some();
    let (stdout, stderr) = streams.map_or_else(Default::default, |streams| *streams);
    let printed = Printed { task, attempt, stdout: captured(stdout), stderr: captured(stderr) };
    connection.say(FromExecutor::Looked { ask, has_begun, printed: Box::new(printed) });
}

fn captured(c: runner::Captured) -> Captured {
    Captured { head: c.head.0, tail: c.tail.0, total_bytes: c.total_bytes }
}
