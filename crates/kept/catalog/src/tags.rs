//! Tags: `name=value` of a data set, where a value that looks like a number or a date also is one.

use crate::error::{Error, Result};
use crate::exact::Exact;
use eyas_text::shown;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// What every data set has, so that no tag may be called so.
pub const FIELDS: [&str; 5] = ["label", "owner", "created", "size", "files"];
/// Words of the query language.
pub const WORDS: [&str; 6] = ["and", "or", "not", "like", "in", "has"];

/// Most bytes of a tag's name, and of its value.
const NAME_BYTES_MAX: usize = 100;
const VALUE_BYTES_MAX: usize = 4096;

/// What a value is, besides text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number(Exact),
    /// A day or a moment, in nanoseconds since 1970 in UTC.
    Date(Exact),
}

impl Kind {
    /// What the text of a value is. `1e3` and `-0.5` are numbers; `2026-11-25` and `2026-11-25T12:00:00Z` are dates.
    pub fn of(text: &str) -> Kind {
        if let Some(number) = Exact::of(text) {
            return Kind::Number(number);
        }
        match date_of(text).and_then(|moment| Exact::of(&moment.to_string())) {
            Some(moment) => Kind::Date(moment),
            None => Kind::Text,
        }
    }

    /// The kind's name in the database.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Number(_) => "number",
            Kind::Date(_) => "date",
        }
    }

    /// Where it stands among others of its kind, as the database keeps it. A text has no such place.
    pub(crate) fn ordinal(&self) -> Option<&str> {
        match self {
            Kind::Text => None,
            Kind::Number(number) | Kind::Date(number) => Some(number.key()),
        }
    }
}

/// Nanoseconds since 1970 of a day, or of a moment with or without a zone; without one it is UTC.
pub(crate) fn date_of(text: &str) -> Option<i128> {
    if text.len() < 10 || !text.as_bytes()[..4].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let moment = match text.len() {
        10 => text
            .parse::<Date>()
            .ok()?
            .to_datetime(jiff::civil::Time::midnight())
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp(),
        _ => match text.parse::<jiff::Timestamp>() {
            Ok(moment) => moment,
            Err(_) => text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
        },
    };
    Some(moment.as_nanosecond())
}

/// A moment as people read it, `2026-11-25 12:00:00` in UTC.
pub fn date_text(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{ms} ms after 1970"),
    }
}

/// A tag of a data set.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Tag {
    pub name: String,
    pub value: String,
}

impl Tag {
    /// # Errors
    /// The name is no word (a letter, then letters, digits, `_`, `-`, `.`), is one of the language's own, or is too long;
    /// the value is too long or has a NUL character.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Result<Tag> {
        let (name, value) = (name.into(), value.into());
        let is_word = name.starts_with(|c: char| c.is_alphabetic())
            && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        if !is_word {
            return Err(Error::bad(format!(
                "{} is no name of a tag: a letter, then letters, digits, `_`, `-` or `.`",
                shown(&name)
            )));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::bad(format!(
                "the name of the tag {} is longer than {NAME_BYTES_MAX} bytes",
                shown(&name).at_most(40)
            )));
        }
        let lower = name.to_lowercase();
        if FIELDS.contains(&lower.as_str()) {
            return Err(Error::bad(format!(
                "a tag cannot be called `{name}`, as each data set has a field of that name: choose another name"
            )));
        }
        if WORDS.contains(&lower.as_str()) {
            return Err(Error::bad(format!(
                "a tag cannot be called `{name}`, which is a word of the query language: choose another name"
            )));
        }
        if value.len() > VALUE_BYTES_MAX || value.contains('\0') {
            return Err(Error::bad(format!(
                "the value of the tag `{name}` has a NUL character or more than {VALUE_BYTES_MAX} bytes"
            )));
        }
        Ok(Tag { name, value })
    }

    /// A tag as users write it, `name=value`.
    pub fn parse(text: &str) -> Result<Tag> {
        match text.split_once('=') {
            Some((name, value)) => Tag::new(name.trim(), value.trim()),
            None => Err(Error::bad(format!("{} is no tag: write name=value", shown(text)))),
        }
    }

    pub fn kind(&self) -> Kind {
        Kind::of(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_look_like() {
        let check = |text: &str, kind: Kind| assert_eq!(Kind::of(text), kind, "{text}");
        let number = |text: &str| Kind::Number(Exact::of(text).unwrap());
        let seconds = |n: i64| Kind::Date(Exact::of(&format!("{n}e9")).unwrap());
        check("adk", Kind::Text);
        check("90", number("90"));
        check("-1.5e3", number("-1500"));
        check("1e999", number("1e999"));
        check("1e9999999999", Kind::Text);
        check("inf", Kind::Text);
        check("nan", Kind::Text);
        check("e", Kind::Text);
        check("", Kind::Text);
        check("1970-01-02", seconds(86400));
        check("1970-01-01T01:00", seconds(3600));
        check("1970-01-01T01:00:00Z", seconds(3600));
        check("1970-01-01T01:00:00+01:00", seconds(0));
        check("2026-13-01", Kind::Text);
        check("2026-02-30", Kind::Text);
    }

    #[test]
    fn names_that_would_mislead_are_refused() {
        for wrong in ["", "1st", "a b", "owner", "Size", "and", "HAS", "a'b", "-x", &"x".repeat(101)] {
            assert!(Tag::new(wrong, "1").is_err(), "{wrong}");
        }
        assert!(Tag::new("größe.z-1_a", "it's; DROP TABLE tag").is_ok());
        assert!(Tag::new("x", "\0").is_err());
        assert_eq!(Tag::parse("x = a=b ").unwrap(), Tag { name: "x".into(), value: "a=b".into() });
        assert!(Tag::parse("x").is_err());
    }
}
