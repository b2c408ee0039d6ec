//! The output filter: everything that eyas prints passes a [`Printer`].
//!
//! Text for users is escaped wherever it goes, so that a message reads the same on a terminal and in a file.
//! Data (a drawing, JSON, the output of a program) goes unchanged into a pipe or a file, and is escaped only
//! where a terminal would act on it. A program's output may keep its colours there, and nothing else.

use crate::is_unsafe;
use std::io::{self, IsTerminal, Write};

/// The most bytes of a colour's sequence; a longer sequence is not treated as a colour.
const COLOUR_BYTES_MAX: usize = 64;

/// Escapes everything that is no ordinary text, see the [crate's header](crate). Line ends and tabs pass.
pub struct Printer<W: Write> {
    inner: W,
    mode: Mode,
    /// A character or a sequence whose end has not been written yet.
    pending: Vec<u8>,
    /// A colour passed and was not reset.
    is_coloured: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Raw,
    Text,
    /// Sequences that only set colours and weights pass.
    Coloured,
}

/// Standard output for text that users read.
pub fn stdout() -> Printer<io::StdoutLock<'static>> {
    Printer::new(io::stdout().lock(), Mode::Text)
}

/// Standard error for text that users read.
pub fn stderr() -> Printer<io::StderrLock<'static>> {
    Printer::new(io::stderr().lock(), Mode::Text)
}

/// Standard output for data: unchanged, unless it is a terminal.
pub fn raw_unless_terminal() -> Printer<io::StdoutLock<'static>> {
    let mode = if io::stdout().is_terminal() { Mode::Text } else { Mode::Raw };
    Printer::new(io::stdout().lock(), mode)
}

/// Standard output for a program's output: unchanged, unless it is a terminal, which gets only text and
/// colours.
pub fn printed_stdout() -> Printer<io::StdoutLock<'static>> {
    let mode = if io::stdout().is_terminal() { Mode::Coloured } else { Mode::Raw };
    Printer::new(io::stdout().lock(), mode)
}

/// Standard error, like [`printed_stdout`].
pub fn printed_stderr() -> Printer<io::StderrLock<'static>> {
    let mode = if io::stderr().is_terminal() { Mode::Coloured } else { Mode::Raw };
    Printer::new(io::stderr().lock(), mode)
}

pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Shows `line` on standard error, a terminal, in place of the line at the cursor. No line end follows.
pub fn redraw_line(line: &str) -> io::Result<()> {
    write!(io::stderr().lock(), "\r\x1b[K{}", crate::line_of(line))
}

/// Clears the line at the cursor.
pub fn clear_line() -> io::Result<()> {
    redraw_line("")
}

/// What some bytes begin with.
enum Piece {
    /// This many bytes pass.
    Passes(usize),
    /// A colour of this many bytes.
    Colour(usize),
    /// This many bytes are one character that is escaped.
    Unsafe(usize, char),
    /// One byte that is part of no character.
    Byte(u8),
    /// More bytes are needed to decide.
    Unfinished,
}

impl<W: Write> Printer<W> {
    fn new(inner: W, mode: Mode) -> Printer<W> {
        Printer { inner, mode, pending: vec![], is_coloured: false }
    }

    /// Writes what was held back, and ends a colour that the text did not end.
    pub fn finish(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pass(&pending, true)?;
        if std::mem::take(&mut self.is_coloured) {
            self.inner.write_all(b"\x1b[0m")?;
        }
        self.inner.flush()
    }

    /// Passes on all of `bytes` except an unfinished end, which is kept unless `is_all`.
    fn pass(&mut self, bytes: &[u8], is_all: bool) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n_bytes = match self.piece(rest) {
                Piece::Passes(n_bytes) => {
                    self.inner.write_all(&rest[..n_bytes])?;
                    n_bytes
                }
                Piece::Colour(n_bytes) => {
                    self.is_coloured = !matches!(&rest[..n_bytes], b"\x1b[m" | b"\x1b[0m");
                    self.inner.write_all(&rest[..n_bytes])?;
                    n_bytes
                }
                Piece::Unsafe(n_bytes, c) => {
                    write!(self.inner, "{}", crate::escaped(c))?;
                    n_bytes
                }
                Piece::Byte(byte) => {
                    write!(self.inner, "\\x{byte:02x}")?;
                    1
                }
                Piece::Unfinished if !is_all => {
                    self.pending = rest.to_vec();
                    return Ok(());
                }
                // An escape, or the first bytes of a character.
                Piece::Unfinished => {
                    match rest[0].is_ascii() {
                        true => write!(self.inner, "{}", crate::escaped(char::from(rest[0])))?,
                        false => write!(self.inner, "\\x{:02x}", rest[0])?,
                    }
                    1
                }
            };
            rest = &rest[n_bytes..];
        }
        Ok(())
    }

    fn piece(&self, bytes: &[u8]) -> Piece {
        let is_plain = |b: &u8| (0x20..0x7f).contains(b) || matches!(b, b'\n' | b'\t');
        let n_plain = bytes.iter().take_while(|b| is_plain(b)).count();
        if n_plain > 0 {
            return Piece::Passes(n_plain);
        }
        if self.mode == Mode::Coloured && bytes[0] == 0x1b {
            return colour(bytes);
        }
        // Lines of a program may end as on other systems.
        if self.mode == Mode::Coloured && bytes[0] == b'\r' {
            return match bytes.get(1) {
                Some(b'\n') => Piece::Passes(2),
                Some(_) => Piece::Unsafe(1, '\r'),
                None => Piece::Unfinished,
            };
        }
        let first = &bytes[..bytes.len().min(4)];
        let valid = match std::str::from_utf8(first) {
            Ok(text) => text,
            Err(e) if e.valid_up_to() > 0 => {
                std::str::from_utf8(&first[..e.valid_up_to()]).expect("valid up to there")
            }
            Err(e) if e.error_len().is_none() => return Piece::Unfinished,
            Err(_) => return Piece::Byte(bytes[0]),
        };
        match valid.chars().next() {
            Some(c) if is_unsafe(c) => Piece::Unsafe(c.len_utf8(), c),
            Some(c) => Piece::Passes(c.len_utf8()),
            None => Piece::Unfinished,
        }
    }
}

/// `ESC [ numbers m`, which sets colours and weights and moves nothing.
fn colour(bytes: &[u8]) -> Piece {
    let is_number = |b: &u8| b.is_ascii_digit() || matches!(b, b';' | b':');
    let n_numbers = bytes.iter().skip(2).take(COLOUR_BYTES_MAX).take_while(|b| is_number(b)).count();
    match (bytes.get(1), bytes.get(2 + n_numbers)) {
        (Some(b'['), Some(b'm')) => Piece::Colour(3 + n_numbers),
        (None, _) => Piece::Unfinished,
        (Some(b'['), None) if n_numbers < COLOUR_BYTES_MAX => Piece::Unfinished,
        _ => Piece::Unsafe(1, '\x1b'),
    }
}

impl<W: Write> Write for Printer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.mode == Mode::Raw {
            return self.inner.write(bytes);
        }
        match self.pending.is_empty() {
            true => self.pass(bytes, false)?,
            false => {
                let mut all = std::mem::take(&mut self.pending);
                all.extend_from_slice(bytes);
                self.pass(&all, false)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Drop for Printer<W> {
    /// What cannot be written here could not be written before either, and the writer got that error.
    fn drop(&mut self) {
        if !self.pending.is_empty() || self.is_coloured {
            let _ = self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(mode: Mode, pieces: &[&[u8]]) -> String {
        let mut out = vec![];
        let mut printer = Printer::new(&mut out, mode);
        pieces.iter().for_each(|piece| printer.write_all(piece).unwrap());
        drop(printer);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whatever_is_printed_is_escaped_wherever_it_is_cut() {
        let text = "ok\n\tÄ日🧑\x1b[2J\x1b]0;t\x07\u{9b}1A\u{202e}\r\n".as_bytes();
        let text = [text, b"\xff\xc3"].concat();
        let expect = "ok\n\tÄ日🧑\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{9b}1A\\u{202e}\\r\n\\xff\\xc3";
        assert_eq!(through(Mode::Text, &[&text]), expect);
        for at in 0..text.len() {
            assert_eq!(through(Mode::Text, &[&text[..at], &text[at..]]), expect, "cut at {at}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(through(Mode::Text, &single), expect);
        assert_eq!(through(Mode::Raw, &[&text[..text.len() - 2]]).as_bytes(), &text[..text.len() - 2]);
    }

    #[test]
    fn a_programs_colours_pass_and_nothing_else_of_its_sequences() {
        for (text, expect) in [
            ("\x1b[1;31mred\x1b[0m\r\n", "\x1b[1;31mred\x1b[0m\r\n".to_owned()),
            ("\x1b[38:5:1mred", "\x1b[38:5:1mred\x1b[0m".into()),
            ("\x1b[2K\x1b[1A\x1b[?25l", r"\u{1b}[2K\u{1b}[1A\u{1b}[?25l".into()),
            ("\x1b]52;c;cm0=\x07", r"\u{1b}]52;c;cm0=\u{7}".into()),
            ("50%\r100%\r", r"50%\r100%\r".into()),
            ("\x1b[1;", r"\u{1b}[1;".into()),
            ("\x1b", r"\u{1b}".into()),
            ("\x1b\x1b[31m", "\\u{1b}\x1b[31m\x1b[0m".into()),
        ] {
            assert_eq!(through(Mode::Coloured, &[text.as_bytes()]), expect);
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(through(Mode::Coloured, &single), expect);
        }
        let long = format!("\x1b[{}m", "1;".repeat(1000));
        assert!(through(Mode::Coloured, &[long.as_bytes()]).starts_with(r"\u{1b}[1;"));
    }
}
