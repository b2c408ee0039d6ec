//! Which state of an object: an opaque tag that is equal when the bytes are, as far as the home can tell.
//!
//! The text is `size=N`, then `;mtime_ns=N`, `;etag=...`, `;generation=N`, `;modified=...` or, for a directory, `;contents=...`. Inode numbers and device numbers are left
//! out: they differ between the nodes that mount one file system, and a restored backup is the same object.
//!
//! A rewrite of equal size within one tick of the file system's clock (4 ms on many kernels, 1 s on some servers) has
//! the same version; only a digest sees it.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

/// An opaque, comparable tag of one state of an object. It may be stored as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    tag: u64,
    text: String,
}

impl Version {
    /// A stored version.
    pub fn from_text(text: impl Into<String>) -> Version {
        let text = text.into();
        Version { tag: crate::fnv1a64(text.as_bytes()), text }
    }

    /// From the metadata of a file; `modified_ns` since 1970.
    pub(crate) fn of_file(size_bytes: u64, modified_ns: i128) -> Version {
        Version::from_text(format!("size={size_bytes};mtime_ns={modified_ns}"))
    }

    /// Of a directory as one object; `stamp` of all names, sizes and times in it.
    pub(crate) fn of_directory(size_bytes: u64, stamp: u64) -> Version {
        Version::from_text(format!("size={size_bytes};contents={stamp:016x}"))
    }

    /// From the headers of an answer. The ETag is preferred, because Last-Modified knows whole seconds only.
    pub(crate) fn of_http(size_bytes: u64, etag: Option<&str>, last_modified: Option<&str>) -> Version {
        Version::from_text(match (etag, last_modified) {
            (Some(etag), _) => format!("size={size_bytes};etag={etag}"),
            (None, Some(date)) => format!("size={size_bytes};modified={date}"),
            (None, None) => format!("size={size_bytes}"),
        })
    }

    /// By the number that a home gives to each state of an object.
    pub(crate) fn of_generation(size_bytes: u64, generation: &str) -> Version {
        Version::from_text(format!("size={size_bytes};generation={generation}"))
    }

    /// The text form, for storing.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A 64-bit hash of the text, the same on every machine; enough for a hint, not for a proof.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What differs, for a sentence like "changed since it was submitted (size 10 -> 20 B, modified ...)".
    pub fn describe_change(old: &Version, new: &Version) -> String {
        let (old_size, old_state) = old.parts();
        let (new_size, new_state) = new.parts();
        let mut changes = Vec::new();
        if old_size != new_size {
            changes.push(format!("size {old_size} -> {new_size} B"));
        }
        if old_state != new_state {
            changes.push(match (old_state, new_state) {
                // Two stamps say nothing to people.
                (Some(("contents", _)), Some(("contents", _))) => "names, sizes or times in it".into(),
                (Some((a, old)), Some((b, new))) if a == b => {
                    let (old, new) = (readable(a, old), readable(a, new));
                    format!("{} {old} -> {new}", label(a))
                }
                (old, new) => format!("{} -> {}", whole(old), whole(new)),
            });
        }
        if changes.is_empty() { "no difference that shows".into() } else { changes.join(", ") }
    }

    /// Size, and key and value of the rest.
    fn parts(&self) -> (&str, Option<(&str, &str)>) {
        let (size, state) = match self.text.split_once(';') {
            Some((size, state)) => (size, state.split_once('=')),
            None => (self.text.as_str(), None),
        };
        (size.strip_prefix("size=").unwrap_or(size), state)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.text)
    }
}

fn label(key: &str) -> &str {
    match key {
        "mtime_ns" | "modified" => "modified",
        "etag" => "ETag",
        other => other,
    }
}

fn whole(state: Option<(&str, &str)>) -> String {
    match state {
        Some((key, value)) => format!("{} {}", label(key), readable(key, value)),
        None => "no date".into(),
    }
}

/// Modification times in UTC with their nanoseconds: two states within one second are common.
fn readable(key: &str, value: &str) -> String {
    let ns = match value.parse::<u64>() {
        // A u64 of nanoseconds ends in the year 2554, well inside what the date can be written for.
        Ok(ns) if key == "mtime_ns" => ns,
        _ => return value.to_owned(),
    };
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_nanos(ns));
    match date.strip_suffix(" GMT") {
        Some(date) => format!("{date}.{:09} UTC", ns % 1_000_000_000),
        None => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_words() {
        let check = |old: &Version, new: &Version, expect: &str| {
            assert_eq!(Version::describe_change(old, new), expect);
        };
        let file = Version::of_file;
        check(
            &file(10, 784_111_777_000_000_001),
            &file(20, 784_111_777_000_000_002),
            "size 10 -> 20 B, modified Sun, 06 Nov 1994 08:49:37.000000001 UTC -> Sun, 06 Nov 1994 08:49:37.000000002 UTC",
        );
        check(&file(1, -5), &file(1, i128::MAX), &format!("modified -5 -> {}", i128::MAX));
        check(&file(1, 5), &file(1, 5), "no difference that shows");
        let directory = Version::of_directory;
        check(&directory(1, 5), &directory(2, 6), "size 1 -> 2 B, names, sizes or times in it");
        let http = Version::of_http;
        check(&http(1, Some("\"a;=\""), None), &http(1, Some("\"b\""), Some("x")), "ETag \"a;=\" -> \"b\"");
        check(&http(1, None, None), &http(1, None, Some("then")), "no date -> modified then");
    }

    #[test]
    fn text_is_enough() {
        let version = Version::of_file(10, 12);
        let back = Version::from_text(version.text());
        assert_eq!((&back, back.tag()), (&version, version.tag()));
        assert_ne!(version.tag(), Version::of_file(10, 13).tag());
    }
}
