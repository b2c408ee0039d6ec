//! The output of tasks, prepared for users: the new part of a stream, what was cut, and whole runs in order.
//!
//! A node keeps the first and the last bytes of each stream. A mark stands in place of the bytes between
//! them.

use crate::Fault;
use crate::print::size;
use eyas_client::Client;
use eyas_report::calls;
use eyas_terms::{AttemptNo, RunId};
use eyas_text::shown;
use eyas_wire::message::{Captured, Printed, PrintedState, TaskPrinted, WhichTasks};
use std::collections::BTreeMap;

/// How to keep everything that a program prints.
pub const KEEP_ALL: &str =
    "\"stdout\": \"FILE\" in a task list keeps all, and so does --shell with --out FILE and > {out} in a map";

/// A piece of a stream.
#[derive(PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    Bytes(&'a [u8]),
    /// So many bytes from this place in the stream on, of which nothing is known here.
    Cut {
        at: u64,
        n_bytes: u64,
    },
}

impl Piece<'_> {
    /// The sentence in place of bytes that were not kept.
    pub fn cut_mark(n_bytes: u64) -> String {
        format!("\n[... {} not kept; {KEEP_ALL} ...]\n", size(n_bytes))
    }
}

/// The pieces of a stream beyond its first `seen` bytes.
pub fn beyond(captured: &Captured, seen: u64) -> Vec<Piece<'_>> {
    let Captured { head, tail, total_bytes } = captured;
    let after_head = seen.max(head.len() as u64);
    let tail_at = total_bytes.saturating_sub(tail.len() as u64).max(head.len() as u64);
    let from = |bytes: &'_ [u8], n: u64| bytes.len().min(n as usize);
    let mut pieces = vec![Piece::Bytes(&head[from(head, seen)..])];
    if after_head < tail_at {
        pieces.push(Piece::Cut { at: after_head, n_bytes: tail_at - after_head });
    }
    pieces.push(Piece::Bytes(&tail[from(tail, after_head.saturating_sub(tail_at))..]));
    pieces.retain(|piece| *piece != Piece::Bytes(b""));
    pieces
}

/// How much of a task's attempts was shown, so that only new output is shown next.
#[derive(Default)]
pub struct ShownOutput(BTreeMap<AttemptNo, [u64; 2]>);

impl ShownOutput {
    /// The new pieces of an attempt's two streams, which count as shown from here on; and whether this is the
    /// attempt's first output.
    pub fn take<'a>(&mut self, printed: &'a Printed) -> ([Vec<Piece<'a>>; 2], bool) {
        let is_first = !self.0.contains_key(&printed.attempt);
        let streams = [&printed.stdout, &printed.stderr];
        let answer = calls::is_answer(&printed.stdout.head).then_some(&printed.stdout);
        if streams.iter().all(|stream| stream.total_bytes == 0 || Some(*stream) == answer) {
            return ([vec![], vec![]], false);
        }
        let seen = self.0.entry(printed.attempt).or_default();
        let mut i = 0;
        let pieces = streams.map(|stream| {
            let pieces = if Some(stream) == answer { vec![] } else { beyond(stream, seen[i]) };
            seen[i] = seen[i].max(stream.total_bytes);
            i += 1;
            pieces
        });
        (pieces, is_first)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The message for a task that has printed nothing.
pub fn nothing_printed(task: &TaskPrinted) -> String {
    let name = shown(&task.user_id);
    let because = |reason: &Option<String>| reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
    match task.state {
        PrintedState::Queued => format!("task {name} is queued and has not begun{}", because(&task.reason)),
        PrintedState::Given => {
            format!(
                "task {name} is at an executor and has not begun: its inputs are on their way, or it waits for a slot"
            )
        }
        PrintedState::Running => format!("task {name} runs and has printed nothing so far"),
        PrintedState::Silent => {
            format!(
                "task {name} is at an executor that does not answer now; what it has printed is not known"
            )
        }
        PrintedState::Done => format!("task {name} printed nothing"),
        PrintedState::Failed => format!("task {name} failed and printed nothing{}", because(&task.reason)),
        PrintedState::Cancelled => format!("task {name} was cancelled and printed nothing"),
    }
}

/// The heading over the output of one of several tasks.
pub fn heading(task: &TaskPrinted) -> String {
    let what = match task.state {
        PrintedState::Failed => "failed",
        PrintedState::Done => "is done",
        PrintedState::Cancelled => "was cancelled",
        _ => "has not ended",
    };
    let why =
        task.reason.as_ref().map_or(String::new(), |reason| format!(": {}", eyas_text::line_of(reason)));
    format!("=== task {} of run {} {what}{why}", shown(&task.user_id), task.run)
}

/// The output of the tasks of a run, in their order, as far as it is known.
pub struct Prints {
    run: Option<RunId>,
    which: WhichTasks,
    next: Option<u64>,
}

impl Prints {
    /// `run`: `None` for the newest run.
    pub fn new(run: Option<RunId>, which: WhichTasks) -> Prints {
        Prints { run, which, next: Some(0) }
    }

    /// The run, once it is known.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// The next few tasks; none if there are no more, or not yet.
    pub async fn pull(&mut self, client: &mut Client) -> Result<Vec<TaskPrinted>, Fault> {
        while let Some(from) = self.next {
            let prints = client.prints(self.run, self.which, from).await?;
            (self.run, self.next) = (Some(prints.run), prints.next);
            if !prints.tasks.is_empty() || prints.is_early {
                return Ok(prints.tasks);
            }
        }
        Ok(vec![])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(total: u64, ends: usize) -> (Vec<u8>, Captured) {
        let whole: Vec<u8> = (0..total).map(|i| b'a' + (i % 26) as u8).collect();
        let head_end = whole.len().min(ends);
        let tail_at = head_end.max(whole.len().saturating_sub(ends));
        let (head, tail) = (whole[..head_end].to_vec(), whole[tail_at..].to_vec());
        (whole, Captured { head, tail, total_bytes: total })
    }

    /// However a stream grows between two looks: what is shown and what is said to be missing are the whole of it.
    #[test]
    fn what_is_shown_piece_by_piece_is_the_whole_but_for_what_is_said_to_be_cut() {
        for steps in [vec![0, 3, 10, 30, 31, 80, 81], vec![100], vec![5, 5, 12, 200], vec![10, 20, 21]] {
            let (mut seen, mut at) = (ShownOutput::default(), 0);
            for total in steps {
                let (whole, stdout) = captured(total, 10);
                let printed = Printed { stdout, ..Printed::default() };
                for piece in &seen.take(&printed).0[0] {
                    match piece {
                        Piece::Bytes(bytes) => {
                            assert_eq!(*bytes, &whole[at..at + bytes.len()]);
                            at += bytes.len();
                        }
                        Piece::Cut { at: from, n_bytes } => {
                            assert_eq!(*from, at as u64);
                            at += *n_bytes as usize;
                        }
                    }
                }
                assert_eq!(at as u64, total);
            }
        }
    }

    #[test]
    fn a_log_whose_bytes_were_replaced_does_no_harm() {
        let odd = Captured { head: vec![b'x'; 30], tail: vec![], total_bytes: 10 };
        assert_eq!(beyond(&odd, 50), vec![]);
        let odd = Captured { head: vec![b'x'; 30], tail: vec![b'y'; 30], total_bytes: 40 };
        assert_eq!(beyond(&odd, 0).len(), 2);
    }
}
