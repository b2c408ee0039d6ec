//! Regular expressions that come with a file, and a limit of the work that matching them may take.
//!
//! Matching takes time in proportion to the text's length *and* to the size of the compiled pattern, which
//! a few letters can make large: `((a?){100}){100}`. So a [`Pattern`] knows its size, and code that matches
//! many texts counts its work in a [`PatternWork`], which has a limit.

use regex_lite::{Captures, Regex, RegexBuilder};
use std::cell::Cell;

/// Sizes of a compiled pattern that are tried, as powers of two of bytes. Patterns that people write take
/// about a thousand bytes.
const SIZES: std::ops::RangeInclusive<u32> = 9..=20;
/// The most work for all comparisons of a file, in bytes of text times bytes of pattern. A processor does 2
/// to 30 of these in a nanosecond.
const WORK_MAX: u64 = 1 << 33;
/// The work of compiling one byte of a pattern, in the same unit.
const COMPILING: u64 = 64;

/// A regular expression that must match a whole text.
pub(crate) struct Pattern {
    regex: Regex,
    size_bytes: u64,
}

impl Pattern {
    /// The error says what is wrong with `text`.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let whole = format!("^(?:{text})$");
        let mut last = None;
        // The library tells the size of a pattern only by failing at a limit, so growing limits are tried.
        for size in SIZES {
            match RegexBuilder::new(&whole).size_limit(1 << size).build() {
                Ok(regex) => return Ok(Pattern { regex, size_bytes: 1 << size }),
                Err(e) => last = Some(e.to_string()),
            }
        }
        Err(last.unwrap_or_default())
    }

    /// `None`: the work was too much, see [`PatternWork::do_some`].
    pub fn matches(&self, text: &str, work: &PatternWork) -> Option<bool> {
        work.do_some(self, text).then(|| self.regex.is_match(text))
    }

    /// As [`Self::matches`], with the groups of the pattern.
    pub fn captures<'t>(&self, text: &'t str, work: &PatternWork) -> Option<Option<Captures<'t>>> {
        work.do_some(self, text).then(|| self.regex.captures(text))
    }
}

/// The work done with the patterns of one file.
#[derive(Default)]
pub(crate) struct PatternWork(Cell<u64>);

impl PatternWork {
    /// Counts a comparison; `false`: the limit does not allow it. The reader of the file turns that into an
    /// error.
    fn do_some(&self, pattern: &Pattern, text: &str) -> bool {
        self.count((text.len() as u64 + 1).saturating_mul(pattern.size_bytes))
    }

    /// Counts the compiling of a pattern; `false`: the limit is passed.
    pub fn count_compiling(&self, pattern: &Pattern) -> bool {
        self.count(COMPILING * pattern.size_bytes)
    }

    fn count(&self, more: u64) -> bool {
        self.0.set(self.0.get().saturating_add(more));
        self.0.get() <= WORK_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_counted_by_what_it_is_compiled_to() {
        let (small, large) = (Pattern::new("a.*\\.fits").unwrap(), Pattern::new("((a?){20}){20}b").unwrap());
        assert!(
            small.size_bytes <= 2048 && large.size_bytes > 10_000,
            "{} {}",
            small.size_bytes,
            large.size_bytes
        );
        let work = PatternWork::default();
        let text = "a".repeat(10_000);
        let n = (0..1000).take_while(|_| large.matches(&text, &work) == Some(false)).count();
        assert!((1..100).contains(&n), "{n}");
        assert_eq!(small.matches("a.fits", &PatternWork::default()), Some(true));
        assert!(Pattern::new("((a?){100}){1000}").is_err_and(|e| e.contains("size")));
        assert!(Pattern::new("(").is_err());
    }
}
