//! Lines that a disk does not take.
//!
//! They wait in memory until it does. What is more than [`ALL_BYTES`] is lost but for the lines that say what became of runs, tasks
//! and executors; where lines are lost, a [`LostLines`] says so. When the log ends and its disk still takes nothing, the last lines in
//! the file give way to that line ([`say_last`]).

use super::cut::is_of_state;
use eyas_core::log::{HEADER_START, Line, LostLines, What};
use eyas_terms::Timestamp;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Up to here all lines wait.
const ALL_BYTES: usize = 4 << 20;
/// Up to here those that say what became of something.
const ENDS_BYTES: usize = 64 << 20;
/// Of the end of a file, among which its last lines are looked for.
const LAST_BYTES: u64 = 1 << 20;

/// Lines in their order. A line may have been written in part: then its rest stands first.
#[derive(Default)]
pub(super) struct HeldLines {
    bytes: Vec<u8>,
    /// Bytes at the beginning of `bytes` that were given.
    n_given: usize,
    /// Lines that were lost and of which the log does not say so yet, and where in `bytes` they stood.
    gap: Option<(usize, LostLines)>,
    /// Lost lines, those of which the log says so included.
    n_lost: u64,
}

impl HeldLines {
    /// Takes whole lines.
    ///
    /// * `has_rest`: they begin with the rest of a line, whose first part is in the file.
    pub fn take(&mut self, lines: &[u8], has_rest: bool) {
        if has_rest || self.bytes.len() + lines.len() <= ALL_BYTES {
            return self.bytes.extend_from_slice(lines);
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if is_kept(line) && self.bytes.len() + line.len() <= ENDS_BYTES {
                self.bytes.extend_from_slice(line);
                continue;
            }
            let t = time_of(line);
            let (at, lost) =
                self.gap.unwrap_or((self.bytes.len(), LostLines { lines: 0, from: t, until: t }));
            self.gap = Some((at, lost.and(LostLines { lines: 1, from: t, until: t })));
            self.n_lost += 1;
        }
    }

    /// Gives bytes to `write`, which says how many it took, until it takes none.
    pub fn give(&mut self, mut write: impl FnMut(&[u8]) -> usize) {
        while self.n_given < self.bytes.len() || self.gap.is_some() {
            match self.gap {
                Some((at, lost)) if at == self.n_given => {
                    let line = text_of(&lost);
                    let n_written = write(&line);
                    if n_written == 0 {
                        break;
                    }
                    self.gap = None;
                    // A rest of it goes first.
                    self.bytes.splice(..at, line[n_written..].iter().copied());
                    self.n_given = 0;
                }
                gap => {
                    let upto = gap.map_or(self.bytes.len(), |(at, _)| at);
                    match write(&self.bytes[self.n_given..upto]) {
                        0 => break,
                        n_written => self.n_given += n_written,
                    }
                }
            }
        }
        if self.n_given > 0 {
            self.bytes.drain(..self.n_given);
            self.gap = self.gap.map(|(at, lost)| (at - self.n_given, lost));
            self.n_given = 0;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.gap.is_none()
    }

    /// Lines that wait.
    pub fn n_waiting(&self) -> u64 {
        n_lines(&self.bytes)
    }

    pub fn n_lost(&self) -> u64 {
        self.n_lost
    }

    /// Lost lines of which the log does not say so yet.
    pub fn lost(&self) -> Option<LostLines> {
        self.gap.map(|(_, lost)| lost)
    }
}

/// Whether a line says what became of a run, a task or an executor.
fn is_kept(line: &[u8]) -> bool {
    const ENDS: [&[u8]; 4] = [b"end_task", b"task_restored", b"task_revived", b"revive_task"];
    let name = line[..line.len().min(64)].split(|byte| *byte == b'"').nth(5);
    is_of_state(line) || name.is_some_and(|name| ENDS.contains(&name))
}

/// The time of a line; that of the first moment for the rest of a line.
fn time_of(line: &[u8]) -> Timestamp {
    let digits = line.strip_prefix(b"{\"t\":").unwrap_or_default();
    let n_digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Timestamp(std::str::from_utf8(&digits[..n_digits]).ok().and_then(|t| t.parse().ok()).unwrap_or(0))
}

fn text_of(lost: &LostLines) -> Vec<u8> {
    let mut lines = super::Lines::default();
    lines.push(&Line { t: lost.until, what: What::Lost(*lost) });
    lines.into_bytes()
}

/// The number of line ends.
pub(super) fn n_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Writes over the last lines of the file at `path` that these are lost, with those of which nothing is known (`lost`) and others of
/// which nothing is in the file (`n_unwritten`). Nothing is done where the file has no such lines.
pub(super) fn say_last(path: &Path, lost: Option<LostLines>, n_unwritten: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let end = file.metadata()?.len();
    let from = end.saturating_sub(LAST_BYTES);
    let mut last = vec![0; (end - from) as usize];
    file.read_exact_at(&mut last, from)?;
    let ends = last.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    for at in ends.take_while(|at| !last[*at..].starts_with(HEADER_START)) {
        let mut all = LostLines { lines: n_unwritten, from: Timestamp(u64::MAX), until: Timestamp(0) };
        all = lost.map_or(all, |lost| all.and(lost));
        for line in last[at..].split_inclusive(|byte| *byte == b'\n') {
            let t = time_of(line);
            all = all.and(LostLines { lines: u64::from(line.ends_with(b"\n")), from: t, until: t });
        }
        let mut line = text_of(&all);
        if line.len() <= last.len() - at {
            line.pop();
            line.resize(last.len() - at - 1, b' ');
            line.push(b'\n');
            return file.write_all_at(&line, from + at as u64);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::event::{Action, Event};
    use eyas_terms::rng::Rng;
    use eyas_terms::{Outcome, RunId, TaskId};

    fn line(what: What, t: u64) -> Vec<u8> {
        let mut lines = super::super::Lines::default();
        lines.push(&Line { t: Timestamp(t), what });
        lines.into_bytes()
    }

    fn end(t: u64) -> Vec<u8> {
        line(What::Out(Action::EndTask { task: TaskId(t), outcome: Outcome::Done, by: None }), t)
    }

    /// A line of `n_bytes` or a few more that may be lost.
    fn noise(t: u64, n_bytes: usize) -> Vec<u8> {
        line(
            What::In(Event::FilesWanted { run: RunId(1), files: vec!["x".repeat(n_bytes)], nodes: vec![] }),
            t,
        )
    }

    fn parsed(bytes: &[u8]) -> Vec<Line> {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| serde_json::from_slice(line).expect("whole lines")).collect()
    }

    /// However the disk takes a few bytes at a time: whole lines, in their order, and for each time either its line or one that says
    /// that it is lost.
    #[test]
    fn what_is_not_written_at_last_is_said_to_be_lost() {
        for seed in 0..3 {
            let (mut rng, mut held, mut disk) = (Rng::new(seed), HeldLines::default(), vec![]);
            let n_lines = 3_000;
            for t in 0..n_lines {
                let line = if rng.below(4) == 0 { end(t) } else { noise(t, 5_000) };
                held.take(&line, false);
                // Now and then a little of it is taken; for some worlds all at the end only.
                if seed % 3 > 0 && rng.below(200) == 0 {
                    let mut room = rng.below(1 << 20) as usize;
                    held.give(|bytes| {
                        let n_bytes = bytes.len().min(room).min(1 + rng.below(100_000) as usize);
                        room -= n_bytes;
                        disk.extend_from_slice(&bytes[..n_bytes]);
                        n_bytes
                    });
                }
            }
            held.give(|bytes| {
                disk.extend_from_slice(bytes);
                bytes.len()
            });
            assert!(held.is_empty() && held.lost().is_none(), "seed {seed}");
            let lines = parsed(&disk);
            let said = lines.iter().filter_map(|line| match line.what {
                What::Lost(lost) => Some(lost),
                _ => None,
            });
            let said: Vec<LostLines> = said.collect();
            let n_lost: u64 = said.iter().map(|lost| lost.lines).sum();
            assert!(n_lost > 0 || seed % 3 > 0, "seed {seed}: the test loses lines");
            assert_eq!(n_lost, held.n_lost(), "seed {seed}");
            assert_eq!(n_lost + (lines.len() - said.len()) as u64, n_lines, "seed {seed}");
            let there: Vec<u64> = lines
                .iter()
                .filter(|line| !matches!(line.what, What::Lost(_)))
                .map(|line| line.t.0)
                .collect();
            assert!(there.is_sorted(), "seed {seed}");
            for t in (0..n_lines).filter(|t| there.binary_search(t).is_err()) {
                assert!(
                    said.iter().any(|lost| (lost.from.0..=lost.until.0).contains(&t)),
                    "seed {seed}: {t}"
                );
            }
        }
    }

    #[test]
    fn the_ends_of_tasks_wait_longer_than_other_lines() {
        let mut held = HeldLines::default();
        (0..2_000).for_each(|t| held.take(&[noise(t, 5_000), end(t)].concat(), false));
        let mut disk = vec![];
        held.give(|bytes| {
            disk.extend_from_slice(bytes);
            bytes.len()
        });
        let lines = parsed(&disk);
        assert_eq!(lines.iter().filter(|line| matches!(line.what, What::Out(_))).count(), 2_000);
        // The gap is told where it begins.
        let at = lines.iter().position(|line| matches!(line.what, What::Lost(_))).unwrap();
        assert!(matches!(lines[at - 2].what, What::In(_)), "{at}");
        assert!(lines[at..].iter().all(|line| !matches!(line.what, What::In(_))), "{at}");
    }

    #[test]
    fn the_last_lines_of_a_file_give_way_to_what_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let header = b"{\"eyas_event_log\":1}\n".to_vec();
        let lines: Vec<Vec<u8>> = (1..9).map(end).collect();
        for torn in [0, 7] {
            std::fs::write(&path, [&header[..], &lines.concat(), &lines[0][..torn]].concat()).unwrap();
            let n_bytes = std::fs::metadata(&path).unwrap().len();
            let lost = LostLines { lines: 3, from: Timestamp(20), until: Timestamp(30) };
            say_last(&path, Some(lost), 10).unwrap();
            let text = std::fs::read(&path).unwrap();
            assert_eq!(text.len() as u64, n_bytes, "it takes no more room than there was");
            let kept = parsed(&text[header.len()..]);
            let Some(What::Lost(all)) = kept.last().map(|line| &line.what) else { panic!("{kept:?}") };
            let n_gone = 8 - (kept.len() - 1) as u64;
            assert!(n_gone >= 1, "{kept:?}");
            assert_eq!((all.lines, all.until), (13 + n_gone, Timestamp(30)));
        }
        // A header stays.
        std::fs::write(&path, &header).unwrap();
        say_last(&path, None, 10).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), header);
    }
}
