//! Regular expressions of a script, with a limit of the work that they may do.

use super::ast::At;
use crate::error::{Result, shown};
use regex_lite::{Captures, Regex, RegexBuilder};
use rustc_hash::FxHashMap;

/// The expressions that the script has used, and the work that they have done.
#[derive(Default)]
pub(super) struct Regexes {
    known: FxHashMap<String, (Regex, u64)>,
    work: u64,
}

/// The most work, in bytes of text times bytes of compiled pattern.
const WORK_MAX: u64 = 1 << 34;
/// Sizes of compiled patterns that are tried, as powers of two.
const SIZES: std::ops::RangeInclusive<u32> = 9..=18;

impl Regexes {
    fn find(&mut self, text: &str, pattern: &str, at: At) -> Result<Regex> {
        if !self.known.contains_key(pattern) {
            let sizes =
                SIZES.map(|size| (RegexBuilder::new(pattern).size_limit(1 << size).build(), 1 << size));
            let mut last = String::new();
            let mut made = None;
            for (result, size) in sizes {
                match result {
                    Ok(regex) => {
                        made = Some((regex, size));
                        break;
                    }
                    Err(e) => last = e.to_string(),
                }
            }
            let Some(made) = made else {
                let message = format!(
                    "the pattern {} is no regular expression: {}",
                    shown(pattern),
                    eyas_text::line_of(&last)
                );
                return Err(at.broken(message));
            };
            self.work = self.work.saturating_add(made.1 * 64);
            self.known.insert(pattern.to_owned(), made);
        }
        let (regex, size) = &self.known[pattern];
        self.work = self.work.saturating_add((text.len() as u64 + 16) * size);
        match self.work > WORK_MAX {
            true => Err(at.unsupported("the regular expressions of the script take too long")),
            false => Ok(regex.clone()),
        }
    }

    /// The first match of the pattern in `text`.
    pub fn groups<'t>(&mut self, text: &'t str, pattern: &str, at: At) -> Result<Option<Groups<'t>>> {
        let regex = self.find(text, pattern, at)?;
        Ok(regex.captures(text).map(|captures| Groups { text, captures }))
    }

    pub fn split(&mut self, text: &str, pattern: &str, at: At) -> Result<Vec<String>> {
        if pattern.is_empty() {
            return Ok(text.chars().map(|c| c.to_string()).collect());
        }
        Ok(self.find(text, pattern, at)?.split(text).map(str::to_owned).collect())
    }
}

pub(super) struct Groups<'t> {
    text: &'t str,
    captures: Captures<'t>,
}

impl Groups<'_> {
    pub fn group(&self, n: usize) -> &str {
        self.captures.get(n).map_or("", |group| group.as_str())
    }

    /// `with`, in which `\1` and `$1` stand for the first group, and so on.
    pub fn expand(&self, with: &str) -> String {
        let mut made = String::new();
        let mut chars = with.chars().peekable();
        while let Some(c) = chars.next() {
            let digit = chars.peek().and_then(|c| c.to_digit(10)).filter(|_| c == '\\' || c == '$');
            match digit {
                Some(digit) => {
                    chars.next();
                    made.push_str(self.group(digit as usize));
                }
                None => made.push(c),
            }
        }
        made
    }

    /// The text, with the match replaced.
    pub fn replaced(&self, with: &str) -> String {
        let (start, end) = self.captures.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()));
        format!("{}{}{}", &self.text[..start], self.expand(with), &self.text[end..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_filled_in() {
        let mut regexes = Regexes::default();
        let at = At::default();
        let groups = regexes.groups("ab-cd", "(a.)-(c)", at).unwrap().unwrap();
        assert_eq!(groups.expand("\\2$1\\9."), "cab.");
        assert_eq!(groups.replaced("x"), "xd");
        assert!(regexes.groups("x", "(", at).is_err());
    }
}
