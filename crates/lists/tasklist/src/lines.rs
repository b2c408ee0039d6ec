//! The lines of a list, one after the other, with a limit on their length.

use crate::error::{Error, Result};
use std::io::{BufRead, Read};

/// Reads a list line by line. Memory: one line.
pub(crate) struct Lines<'o, R> {
    reader: R,
    line_bytes_max: u64,
    /// The kind of list that was expected, for the message to a user who gave another file.
    kind: &'o str,
    number: u64,
    buffer: Vec<u8>,
}

impl<'o, R: BufRead> Lines<'o, R> {
    /// * `line_bytes_max`: a longer line is refused.
    /// * `kind`: the expected kind of list, with its article.
    pub fn new(reader: R, line_bytes_max: u64, kind: &'o str) -> Lines<'o, R> {
        Lines { reader, line_bytes_max, kind, number: 0, buffer: Vec::new() }
    }

    /// The number of the next line, from 1, and its text without the line end; `None` after the last line.
    ///
    /// Errors name the line: it cannot be read, is too long, or is not UTF-8.
    pub fn next(&mut self) -> Result<Option<(u64, &str)>> {
        self.buffer.clear();
        self.number += 1;
        let number = self.number;
        let limit = self.line_bytes_max.saturating_add(1);
        let n = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|e| Error::io("cannot read the list", e).at(number, None))?;
        if n == 0 {
            return Ok(None);
        }
        if n as u64 == limit && self.buffer.last() != Some(&b'\n') {
            let message = format!("the line has more than {} bytes", self.line_bytes_max);
            return Err(Error::invalid(message).hint(format!("is this {}?", self.kind)).at(number, None));
        }
        if number == 1 {
            refuse_utf_16(&self.buffer)?;
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|e| {
            let column = String::from_utf8_lossy(&self.buffer[..e.valid_up_to()]).chars().count() as u64 + 1;
            Error::invalid("the line is not UTF-8").at(number, Some(column))
        })?;
        let text = if number == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        Ok(Some((number, text.trim_end_matches(['\n', '\r']))))
    }
}

/// The error for a file that begins as Windows programs begin text in UTF-16.
pub(crate) fn refuse_utf_16(head: &[u8]) -> Result<()> {
    if [&b"\xff\xfe"[..], b"\xfe\xff"].iter().any(|mark| head.starts_with(mark)) {
        let hint = "`iconv -f UTF-16 -t UTF-8 FILE > NEW` writes it as UTF-8";
        return Err(Error::invalid("the file is UTF-16, and not UTF-8").hint(hint));
    }
    Ok(())
}
