//! The lines of an event log, one at a time. Headers of lives are recognised, and torn ends are skipped.
//!
//! A dispatcher that was killed may leave its last line cut off. If it was restarted, the next life's header
//! stands on the next line, or on that same line, right behind the cut. Both are normal and are no errors; any
//! other line that the grammar does not know is one, and is named by its number.

use crate::error::{Error, ErrorKind};
use crate::units;
use eyas_core::event::{Action, Event};
use eyas_core::log::{EVENTS_FILE, HEADER_START, Header, LOG_VERSION, Line, LostLines, What};
use eyas_terms::Timestamp;
use eyas_text::{line_of, shown_path};
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    Header(Header),
    In(Timestamp, Event),
    Out(Timestamp, Action),
    /// The disk did not take lines that stood here.
    Lost(Timestamp, LostLines),
}

impl Entry {
    /// When it was written.
    pub fn t(&self) -> Timestamp {
        match self {
            Entry::Header(header) => header.t,
            Entry::In(t, _) | Entry::Out(t, _) | Entry::Lost(t, _) => *t,
        }
    }
}

#[derive(Deserialize)]
struct Version {
    eyas_event_log: u32,
}

/// Reads `events.jsonl` of one directory.
pub struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    buffer: Vec<u8>,
    /// The line behind the one in `buffer`, where it had to be read already.
    ahead: Option<Vec<u8>>,
    /// The line in `buffer` that was looked at last, from 1.
    number: u64,
    /// Where in `buffer` the entry that was given last stands.
    text: Range<usize>,
    /// Where in `buffer` a header begins that stands behind a torn line.
    behind: Option<usize>,
    torn: bool,
    n_torn: u64,
}

impl Lines {
    /// Opens the log in the dispatcher's directory `dir`.
    pub fn open(dir: &Path) -> Result<Lines, Error> {
        let path = dir.join(EVENTS_FILE);
        let file = File::open(&path).map_err(|e| Error::io(ErrorKind::Open, &path, e))?;
        Ok(Lines {
            path,
            file: BufReader::with_capacity(1 << 20, file),
            buffer: vec![],
            ahead: None,
            number: 0,
            text: 0..0,
            behind: None,
            torn: false,
            n_torn: 0,
        })
    }

    /// The number of the line that was given last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the log ends in the middle of a line.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// Lines that were cut off, the last one included.
    pub fn n_torn(&self) -> u64 {
        self.n_torn
    }

    /// The next entry, `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        self.next_if(|_| true)
    }

    /// The text of the entry that was given last.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.buffer[self.text.clone()])
    }

    /// The next entry that is a header, says what the log lacks, or whose text passes `wanted`. Other lines that do not pass are not parsed.
    pub fn next_if(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Result<Option<Entry>, Error> {
        loop {
            let start = match self.behind.take() {
                Some(start) => start,
                None => {
                    self.read_line()?;
                    if self.buffer.is_empty() {
                        return match self.number {
                            0 => Err(Error::new(
                                ErrorKind::NotALog,
                                "read the event log",
                                format!("{} is empty", shown_path(&self.path)),
                            )),
                            _ => Ok(None),
                        };
                    }
                    self.number += 1;
                    0
                }
            };
            let whole = self.buffer.ends_with(b"\n");
            self.text = start..self.buffer.len() - usize::from(whole);
            let text = &self.buffer[self.text.clone()];
            let is_header = text.starts_with(HEADER_START);
            if self.number == 1 && !is_header && !HEADER_START.starts_with(text) {
                return Err(Error::new(
                    ErrorKind::NotALog,
                    "read the event log",
                    format!("{} does not begin with the header of an event log", shown_path(&self.path)),
                ));
            }
            if !is_header && !is_of_lost(text) && !wanted(text) {
                if let Some(at) = find(text, HEADER_START) {
                    self.behind = Some(start + at);
                    self.n_torn += 1;
                }
                continue;
            }
            match parse(text, is_header) {
                Ok(entry) => return Ok(Some(entry)),
                Err(why) => {
                    // The first byte is skipped, or a broken header would be found again for ever.
                    if let Some(at) = text.get(1..).and_then(|rest| find(rest, HEADER_START)) {
                        self.behind = Some(start + 1 + at);
                        self.n_torn += 1;
                    } else if whole && why.kind != ErrorKind::Version && self.is_before_header()? {
                        self.n_torn += 1;
                    } else if whole || why.kind == ErrorKind::Version {
                        let context =
                            format!("line {} of {} {}", self.number, shown_path(&self.path), why.context);
                        return Err(Error { context, ..why });
                    } else {
                        self.torn = true;
                        self.n_torn += 1;
                        return Ok(None);
                    }
                }
            }
        }
    }
}

impl Lines {
    /// The next line, empty at the end of the file.
    fn read_line(&mut self) -> Result<(), Error> {
        if let Some(ahead) = self.ahead.take() {
            self.buffer = ahead;
            return Ok(());
        }
        self.buffer.clear();
        let read = self.file.read_until(b'\n', &mut self.buffer);
        read.map(drop).map_err(|e| Error::io(ErrorKind::Read, &self.path, e))
    }

    /// Whether the next line is a header, so that a life ended with the line in `buffer`.
    fn is_before_header(&mut self) -> Result<bool, Error> {
        let line = std::mem::take(&mut self.buffer);
        self.read_line()?;
        let ahead = std::mem::replace(&mut self.buffer, line);
        let is_header = ahead.starts_with(HEADER_START);
        self.ahead = Some(ahead);
        Ok(is_header)
    }
}

/// The context of an error goes on after "line 7 of `x`".
fn parse(text: &[u8], is_header: bool) -> Result<Entry, Error> {
    let wrong = |e: serde_json::Error| Error {
        source: Some(Box::new(e)),
        ..Error::new(ErrorKind::Line, "read the event log", "")
    };
    let described = |mut error: Error| {
        let why = error.source.as_ref().map(|e| e.to_string()).unwrap_or_default();
        // serde_json counts lines too, and there is only one.
        let why = why.replace(" at line 1 column ", " at column ");
        error.context = format!("is not a line of an event log: {}", line_of(&why));
        error
    };
    if is_header {
        let version: Version = serde_json::from_slice(text).map_err(wrong).map_err(described)?;
        if version.eyas_event_log != LOG_VERSION {
            return Err(Error::new(
                ErrorKind::Version,
                "read the event log",
                format!(
                    "begins an event log of version {}; this eyas reads version {LOG_VERSION}",
                    version.eyas_event_log
                ),
            ));
        }
        return serde_json::from_slice(text).map(Entry::Header).map_err(wrong).map_err(described);
    }
    let line: Line = serde_json::from_slice(text).map_err(wrong).map_err(described)?;
    if let What::In(Event::ArrayAdded { array, .. }) = &line.what
        && let Err(why) = array.check()
    {
        let why = format!("is not a line of an event log: a group of tasks is malformed: {why}");
        return Err(Error::new(ErrorKind::Line, "read the event log", why));
    }
    Ok(match line.what {
        What::In(event) => Entry::In(line.t, event),
        What::Out(action) => Entry::Out(line.t, action),
        What::Lost(lost) => Entry::Lost(line.t, lost),
    })
}

/// The name of the event or action in a line, such as `assign`. `None`: it has none where lines have theirs.
pub fn name_of(line: &[u8]) -> Option<&[u8]> {
    // `{"t":…,"in":{"name"`, or `{"t":…,"in":"name"}`.
    let head = &line[..line.len().min(96)];
    head.split(|byte| *byte == b'"').nth(5)
}

/// Whether a line says which lines the log lacks.
fn is_of_lost(line: &[u8]) -> bool {
    line[..line.len().min(64)].split(|byte| *byte == b'"').nth(3) == Some(b"lost")
}

/// What the logs in the dispatchers' directories `dirs` lack together, if anything. Errors: as of [`Lines::next_if`].
pub fn lost_lines(dirs: &[PathBuf]) -> Result<Option<LostLines>, Error> {
    let mut lost = None;
    for dir in dirs {
        let mut lines = Lines::open(dir)?;
        while let Some(entry) = lines.next_if(|_| false)? {
            if let Entry::Lost(_, more) = entry {
                lost = Some(lost.map_or(more, |lost: LostLines| lost.and(more)));
            }
        }
    }
    Ok(lost)
}

/// The sentence for people, without its full stop.
pub fn lost_sentence(lost: &LostLines) -> String {
    let from = units::date(lost.from.0).map_or(String::new(), |from| format!("from {from} on, "));
    format!(
        "the event log lacks {} of {}, {from}which its disk did not take: what is told here may be incomplete",
        units::plural(lost.lines, "line"),
        units::duration(lost.until.since_ns(lost.from))
    )
}

/// Where `needle` begins in `text`.
pub(crate) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|w| w == needle)
}
