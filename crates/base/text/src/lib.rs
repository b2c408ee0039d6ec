//! Text from outside, made fit for users: names of tasks and files, messages of peers, output of programs.
//!
//! Anybody who names a task or prints a line may put anything into it: escape sequences that move the cursor,
//! change the window's title or answer for the user, marks that reverse the direction of writing, line ends
//! that imitate a message of ours, a megabyte without a blank. Two layers protect the reader:
//!
//!   * [`shown`], [`shown_path`] and [`line_of`] make *one piece* fit for a message: it stays on its line,
//!     a long piece is shortened in the middle, with its length, and no URL in it has its query;
//!   * [`Printer`] filters *everything* that is printed on its way out. It knows nothing of names, so no
//!     command can forget it: everything except ordinary text, line ends and tabs is escaped.
//!
//! Escapes are written as in Rust: `\u{1b}`, `\n`, and `\x9b` for a byte that is not UTF-8. Ordinary Unicode stays.

#![forbid(unsafe_code)]

mod count;
mod markup;
mod mistake;
mod nearest;
mod printer;
mod shell;
mod size;
mod urls;

pub use count::{count, plural};
pub use markup::markup;
pub use mistake::Mistake;
pub use nearest::nearest;
pub use printer::{
    Printer, clear_line, printed_stderr, printed_stdout, raw_unless_terminal, redraw_line, stderr,
    stderr_is_terminal, stdout, stdout_is_terminal,
};

pub use shell::Shell;
pub use size::{size, size_beside};
use std::fmt;
use std::path::Path;
pub use urls::{HIDDEN_CHARS, HIDDEN_QUERY, is_hidden_query, is_of_web, without_query, without_secrets};

/// Prints a line for the user on standard error. A failure to print it is no reason to end.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::stderr(), $($text)*);
    }};
}

/// The system's error text, without its number.
pub fn reason(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Characters of a name that are shown; a longer name is shown with half of them from each end.
const NAME_CHARS_MAX: usize = 300;
/// The same limit for a path of this machine, which users copy: everything that a system call takes.
const PATH_CHARS_MAX: usize = 4096;
/// The same limit for a message that comes from elsewhere.
const LINE_CHARS_MAX: usize = 2000;

/// Whether a terminal may do something other than show `c`: control characters, characters that change the
/// direction of writing, other line ends, and invisible marks.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` in backticks, fit for a message.
pub fn shown(text: &str) -> Shown<'_> {
    Shown { text: text.as_bytes(), quote: "`", chars_max: NAME_CHARS_MAX }
}

/// Like [`shown`], for a name that may not be UTF-8.
pub fn shown_path(path: &Path) -> Shown<'_> {
    shown_bytes(path.as_os_str().as_encoded_bytes()).at_most(PATH_CHARS_MAX)
}

/// Like [`shown`], for a name that may not be UTF-8.
pub fn shown_bytes(text: &[u8]) -> Shown<'_> {
    Shown { text, quote: "`", chars_max: NAME_CHARS_MAX }
}

/// `text` on one line, for cells of tables and for messages that come from elsewhere.
pub fn line_of(text: &str) -> Shown<'_> {
    Shown { text: text.as_bytes(), quote: "", chars_max: LINE_CHARS_MAX }
}

/// See [`shown`] and [`line_of`].
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    text: &'a [u8],
    quote: &'static str,
    chars_max: usize,
}

impl Shown<'_> {
    /// Limits the text to `chars_max` characters.
    pub fn at_most(self, chars_max: usize) -> Self {
        Shown { chars_max, ..self }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_some() {
            // Cells of tables are padded.
            let plain = Shown { ..*self };
            return f.pad(&format!("{plain}"));
        }
        let is_one = !self.quote.is_empty();
        let text = &*urls::without_queries(self.text, |start| is_one && start == 0, urls::ends_in_web);
        f.write_str(self.quote)?;
        // The characters of short texts, which nearly all are, need not be counted.
        let n_chars = match text.len() > self.chars_max {
            true => units(text).count(),
            false => 0,
        };
        if n_chars <= self.chars_max {
            units(text).try_for_each(|unit| unit.write(f))?;
            return f.write_str(self.quote);
        }
        let n_first = self.chars_max.div_ceil(2);
        let n_last = self.chars_max / 2;
        units(text).take(n_first).try_for_each(|unit| unit.write(f))?;
        f.write_str("...")?;
        units(text).skip(n_chars - n_last).try_for_each(|unit| unit.write(f))?;
        f.write_str(self.quote)?;
        write!(f, " ({n_chars} characters)")
    }
}

/// A character, or a byte that is part of none.
#[derive(Clone, Copy)]
enum Unit {
    Char(char),
    Byte(u8),
}

impl Unit {
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        match self {
            Unit::Char(c) if is_unsafe(c) => write!(f, "{}", escaped(c)),
            Unit::Char(c) => f.write_char(c),
            Unit::Byte(byte) => write!(f, "\\x{byte:02x}"),
        }
    }
}

/// `\n`, `\t`, `\u{1b}`.
fn escaped(c: char) -> impl fmt::Display {
    // `escape_default` escapes all that is not ASCII, and this is only called for what is unsafe.
    c.escape_default()
}

fn units(text: &[u8]) -> impl Iterator<Item = Unit> {
    text.utf8_chunks().flat_map(|chunk| {
        chunk.valid().chars().map(Unit::Char).chain(chunk.invalid().iter().map(|byte| Unit::Byte(*byte)))
    })
}

/// The text in at most `n_chars_max` characters, of which there is at least one. One that is longer loses its beginning: names of
/// nodes of one cluster begin alike.
pub fn end_of(text: &str, n_chars_max: usize) -> String {
    match text.chars().count() {
        n if n <= n_chars_max => text.into(),
        n => std::iter::once('…').chain(text.chars().skip(n - n_chars_max + 1)).collect(),
    }
}

/// A key that sorts names as people count: `node2` before `node10`.
pub fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![];
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((word.to_string(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ordinary_stays_and_the_rest_is_escaped() {
        for (text, expect) in [
            ("a b", "`a b`"),
            ("", "``"),
            ("Ärzte-日本語-עברית-🧑\u{200d}🔬", "`Ärzte-日本語-עברית-🧑\u{200d}🔬`"),
            ("a\nb\tc\r", r"`a\nb\tc\r`"),
            ("\x1b]0;owned\x07", r"`\u{1b}]0;owned\u{7}`"),
            ("\u{9b}2J\u{7f}", r"`\u{9b}2J\u{7f}`"),
            ("gpj.\u{202e}exe\u{2066}\u{2028}", r"`gpj.\u{202e}exe\u{2066}\u{2028}`"),
            ("\u{feff}\u{200b}\u{e0041}", r"`\u{feff}\u{200b}\u{e0041}`"),
        ] {
            assert_eq!(shown(text).to_string(), expect);
        }
        assert_eq!(shown_bytes(b"a\xffb\x9b\xe2\x82").to_string(), r"`a\xffb\x9b\xe2\x82`");
        assert_eq!(shown_path(Path::new("/a/\u{7}")).to_string(), r"`/a/\u{7}`");
        assert_eq!(line_of("no\nhint: do it").to_string(), r"no\nhint: do it");
        assert_eq!(format!("{:<6}|{:>4}|", line_of("a\n"), line_of("b")), "a\\n   |   b|");
        assert_eq!(shown("https://h/x?k=5ec2e7").to_string(), "`https://h/x?...`");
        assert_eq!(line_of("no https://h/x?k=1").to_string(), "no https://h/x?...");
    }

    #[test]
    fn what_is_long_is_shortened_in_the_middle_with_its_length() {
        let exact = "x".repeat(NAME_CHARS_MAX);
        assert_eq!(shown(&exact).to_string(), format!("`{exact}`"));
        let wide = "日".repeat(NAME_CHARS_MAX);
        assert_eq!(shown(&wide).to_string(), format!("`{wide}`"));
        let long = format!("{}{}z", "a".repeat(150), "b".repeat(1_000_000));
        let text = shown(&long).to_string();
        assert_eq!(text, format!("`{}...{}z` (1000151 characters)", "a".repeat(150), "b".repeat(149)));
        assert_eq!(line_of("abcdef").at_most(3).to_string(), "ab...f (6 characters)");
    }

    #[test]
    fn the_end_of_a_text_has_room() {
        let ends = [
            ("node1", "node1"),
            ("eyas-1", "eyas-1"),
            ("eyas-12", "…as-12"),
            ("日本日本日本日", "…日本日本日"),
        ];
        for (text, end) in ends {
            assert_eq!(end_of(text, 6), end);
        }
    }

    #[test]
    fn names_are_sorted_as_people_count() {
        let mut names = ["node10", "node2", "b", "node2:1", ""];
        names.sort_by_cached_key(|n| natural(n));
        assert_eq!(names, ["", "b", "node2", "node2:1", "node10"]);
    }
}
