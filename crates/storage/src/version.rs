//! Which state of an object: an opaque tag that is equal when the bytes are, as far as the home can tell.
//!
//! The text is `size=N`, then `;mtime_ns=N`, `;etag=...`, `;generation=N`, `;modified=...` or, for a directory, `;contents=...`. Inode numbers and device numbers are left
//! out: they differ between the nodes that mount one file system, and a restored backup is the same object.
//!
//! Behind that may come lines of what programs are shown of the object beside its bytes: `modified=...`, where the version itself
//! has no time, and `mode=...` for the permissions of a file that has not the usual ones. They are no part of the version: versions that differ in them alone
//! are equal (the core's `HomeVersion` compares them in the same way).
//!
//! A rewrite of equal size within one tick of the file system's clock (4 ms on many kernels, 1 s on some servers) has
//! the same version; only a digest sees it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::{Duration, UNIX_EPOCH};

const MODIFIED: &str = "modified=";
const MODE: &str = "mode=";
/// The permissions of most files, which are not written down.
const MODE_USUAL: u32 = 0o644;

/// An opaque, comparable tag of one state of an object. It may be stored as its text.
#[derive(Clone)]
pub struct Version {
    tag: u64,
    text: String,
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.itself() == other.itself()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        self.itself().cmp(other.itself())
    }
}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.itself().hash(state);
    }
}

impl Version {
    /// A stored version.
    pub fn from_text(text: impl Into<String>) -> Version {
        let text = text.into();
        Version { tag: crate::fnv1a64(itself(&text).as_bytes()), text }
    }

    /// The same version of an object that a server says was modified at `date`.
    fn shown(self, date: Option<&str>) -> Version {
        match date.filter(|date| !date.contains('\n')) {
            Some(date) => Version { text: format!("{}\n{MODIFIED}{date}", self.text), ..self },
            None => self,
        }
    }

    /// From the metadata of a file; `modified_ns` since 1970.
    pub(crate) fn of_file(size_bytes: u64, modified_ns: i128, mode: u32) -> Version {
        let mode = match mode & 0o777 {
            MODE_USUAL => String::new(),
            other => format!("\n{MODE}{other:o}"),
        };
        Version::from_text(format!("size={size_bytes};mtime_ns={modified_ns}{mode}"))
    }

    /// Of a directory as one object; `stamp` of all names, sizes and times in it.
    pub(crate) fn of_directory(size_bytes: u64, stamp: u64) -> Version {
        Version::from_text(format!("size={size_bytes};contents={stamp:016x}"))
    }

    /// From the headers of an answer. The ETag is preferred, because Last-Modified knows whole seconds only.
    pub(crate) fn of_http(size_bytes: u64, etag: Option<&str>, last_modified: Option<&str>) -> Version {
        match (etag, last_modified) {
            (Some(etag), date) => Version::from_text(format!("size={size_bytes};etag={etag}")).shown(date),
            (None, Some(date)) => Version::from_text(format!("size={size_bytes};{MODIFIED}{date}")),
            (None, None) => Version::from_text(format!("size={size_bytes}")),
        }
    }

    /// By the number that a home gives to each state of an object.
    pub(crate) fn of_generation(size_bytes: u64, generation: &str, last_modified: Option<&str>) -> Version {
        Version::from_text(format!("size={size_bytes};generation={generation}")).shown(last_modified)
    }

    /// The text without what is only shown.
    fn itself(&self) -> &str {
        itself(&self.text)
    }

    /// When the object was last modified, in nanoseconds since 1970, if the home says it.
    pub fn modified_ns(&self) -> Option<i64> {
        let nearest = |ns: i128| i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX });
        let said = self.text.split(['\n', ';']);
        said.filter_map(|part| part.split_once('='))
            .filter_map(|(key, said)| match key {
                "mtime_ns" => said.parse().ok().map(nearest),
                // HDFS says milliseconds.
                "modified" => match said.parse::<i128>() {
                    Ok(ms) => ms.checked_mul(1_000_000).map(nearest),
                    Err(_) => ns_of_date(said),
                },
                _ => None,
            })
            .next_back()
    }

    /// The permission bits of the object, if its home has such.
    pub fn mode(&self) -> Option<u32> {
        match self.text.rsplit_once(MODE) {
            Some((_, mode)) => u32::from_str_radix(mode, 8).ok(),
            None => self.text.contains(";mtime_ns=").then_some(MODE_USUAL),
        }
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
        let (size, state) = match self.itself().split_once(';') {
            Some((size, state)) => (size, state.split_once('=')),
            None => (self.itself(), None),
        };
        (size.strip_prefix("size=").unwrap_or(size), state)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.text)
    }
}

fn itself(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(itself, _)| itself)
}

fn ns_of_date(date: &str) -> Option<i64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
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
        let file = |size_bytes, ns| Version::of_file(size_bytes, ns, 0o644);
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
        let version = Version::of_file(10, 12, 0o644);
        let back = Version::from_text(version.text());
        assert_eq!((&back, back.tag()), (&version, version.tag()));
        assert_ne!(version.tag(), Version::of_file(10, 13, 0o644).tag());
    }

    #[test]
    fn what_programs_are_shown_is_no_part_of_the_version() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let second = 784_111_777_000_000_000;
        for (version, modified_ns, mode) in [
            (Version::of_file(1, 12, 0o644), Some(12), Some(0o644)),
            (Version::of_file(1, -12, 0o100_755), Some(-12), Some(0o755)),
            (Version::of_file(1, i128::MAX, 0o600), Some(i64::MAX), Some(0o600)),
            (Version::of_directory(1, 12), None, None),
            (Version::of_http(1, Some("\"a;modified=b\""), date), Some(second), None),
            (Version::of_http(1, Some("\"a\""), None), None, None),
            (Version::of_http(1, None, date), Some(second), None),
            (Version::of_http(1, None, Some("yesterday")), None, None),
            (Version::of_generation(1, "17", date), Some(second), None),
            (Version::from_text("size=1;file=2;modified=784111777123"), Some(second + 123_000_000), None),
            (Version::from_text(""), None, None),
        ] {
            assert_eq!((version.modified_ns(), version.mode()), (modified_ns, mode), "{version:?}");
        }
        let tagged = |date| Version::of_http(1, Some("\"a\""), date);
        assert_eq!((tagged(date), tagged(date).tag()), (tagged(None), tagged(None).tag()));
        assert_eq!(Version::of_file(1, 2, 0o755), Version::of_file(1, 2, 0o644));
        assert_ne!(Version::of_http(1, None, date), Version::of_http(1, None, None));
    }
}
