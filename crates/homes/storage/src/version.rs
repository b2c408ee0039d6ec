//! Which state of an object: an opaque tag. Two equal versions are one state of the object.
//!
//! How much a version says is its [`Strength`]. A version that does not prove that the bytes are the same has the number of the
//! look that it comes from (`;seen=...`), so it equals no version of another look, also not of one that found nothing new.
//!
//! The text is `size=N`, for versions that are not strong `;seen=...`, and then `;mtime_ns=N`, `;etag=...`, `;generation=N`,
//! `;modified=...`, `;stamp=...` or, for a directory, `;contents=...`; nothing where the home says nothing. Behind the time of a
//! file stand its inode and the time of its last change of any kind (`;file=INODE.NS`), because a file that was renamed to its
//! place brings its own time along.
//!
//! A rewrite in place, of equal size and within one tick of the file system's clock (4 ms on many kernels) has the same version;
//! only a digest sees it. So a time in whole seconds is weak while it is young.
//!
//! Behind that may come lines of what programs are shown of the object beside its bytes: `modified=...`, where the version itself
//! has no time, `mtime_ns=...`, where the object's writer has noted one, and `mode=...` for the permissions of a file that has not
//! the usual ones. They are no part of the version: versions that differ in them alone are equal (the core's `HomeVersion` compares
//! them in the same way).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A second write may have come within the same second, as long as that second is no older than this.
const YOUNG: Duration = Duration::from_secs(2);
/// The same where two clocks are compared that nobody has set by each other.
const YOUNG_BY_OUR_CLOCK: Duration = Duration::from_secs(60);

/// How much the version of an object says of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Other bytes have another version.
    Strong,
    /// The home says something, which other bytes may have as well.
    Weak,
    /// The home says no more than a size.
    Unknown,
}

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
    fn with_date(self, date: Option<&str>) -> Version {
        match date.filter(|date| !date.contains('\n')) {
            Some(date) => self.with(&format!("{MODIFIED}{date}")),
            None => self,
        }
    }

    /// The same version of an object whose writer says when it was modified, in nanoseconds since 1970.
    pub(crate) fn with_time(self, modified_ns: Option<i64>) -> Version {
        match modified_ns {
            Some(modified_ns) => self.with(&format!("mtime_ns={modified_ns}")),
            None => self,
        }
    }

    /// The same version with a line of what programs are shown.
    fn with(self, line: &str) -> Version {
        Version { text: format!("{}\n{line}", self.text), ..self }
    }

    /// From the metadata of a file; times since 1970. `inode`: with the time of its last change of any kind; `None` where inodes
    /// are not the file system's own. `mode`: its permissions.
    pub(crate) fn of_file(
        size_bytes: u64,
        modified_ns: i128,
        inode: Option<(u64, i128)>,
        mode: u32,
    ) -> Version {
        let file = inode.map_or(String::new(), |(inode, changed_ns)| format!(";file={inode}.{changed_ns}"));
        let is_whole = |ns: i128| ns % 1_000_000_000 == 0;
        let latest_ns = inode.map_or(modified_ns, |(_, changed_ns)| changed_ns.max(modified_ns));
        let state = format!("mtime_ns={modified_ns}{file}");
        let version =
            match is_whole(modified_ns) && is_whole(latest_ns) && is_young(latest_ns / 1_000_000_000)
                || inode.is_none() && is_made_up(modified_ns)
            {
                true => Version::weak(size_bytes, &state),
                false => Version::strong(size_bytes, &state),
            };
        match mode & 0o777 {
            MODE_USUAL => version,
            other => version.with(&format!("{MODE}{other:o}")),
        }
    }

    /// By a time in whole seconds since 1970, if there is one.
    pub(crate) fn of_seconds(size_bytes: u64, modified_s: Option<i64>, mode: u32) -> Version {
        match modified_s {
            Some(seconds) => Version::of_file(size_bytes, i128::from(seconds) * 1_000_000_000, None, mode),
            None => Version::unknown(size_bytes),
        }
    }

    /// By what a command printed about the object.
    pub(crate) fn of_stamp(size_bytes: u64, stamp: &str) -> Version {
        let state = format!("stamp={stamp}");
        match stamp.split_whitespace().next() {
            None => Version::unknown(size_bytes),
            // Seconds since 1970: another number of some ten digits changes nothing by being taken for them.
            Some(first) if first.parse::<i64>().is_ok_and(is_young) => Version::weak(size_bytes, &state),
            Some(_) => Version::strong(size_bytes, &state),
        }
    }

    /// The home says no more than the size.
    pub(crate) fn unknown(size_bytes: u64) -> Version {
        Version::from_text(format!("size={size_bytes};seen={:016x}", new_look()))
    }

    fn weak(size_bytes: u64, state: &str) -> Version {
        Version::from_text(format!("size={size_bytes};seen={:016x};{state}", new_look()))
    }

    fn strong(size_bytes: u64, state: &str) -> Version {
        Version::from_text(format!("size={size_bytes};{state}"))
    }

    /// Of a directory as one object; `stamp` of all names, sizes and times in it.
    pub(crate) fn of_directory(size_bytes: u64, stamp: u64) -> Version {
        Version::from_text(format!("size={size_bytes};contents={stamp:016x}"))
    }

    /// From the headers of an answer. The ETag is preferred, because Last-Modified knows whole seconds only; it is strong some
    /// seconds later (RFC 9110, section 8.8.2.2). `now`: the server's own time.
    pub(crate) fn of_http(
        size_bytes: u64,
        etag: Option<&str>,
        last_modified: Option<&str>,
        now: Option<SystemTime>,
    ) -> Version {
        // Some servers write the mark of a weak one in lower case.
        let bare =
            |etag: &str| etag.len() - if etag.starts_with("W/") || etag.starts_with("w/") { 2 } else { 0 };
        let is_weak = |etag: &str| bare(etag) < etag.len();
        let etag = etag.filter(|etag| !etag[etag.len() - bare(etag)..].trim_matches('"').is_empty());
        let last_modified =
            last_modified.filter(|date| ns_of_date(date).is_none_or(|ns| !is_made_up(ns.into())));
        let is_old =
            last_modified.and_then(|date| httpdate::parse_http_date(date).ok()).is_some_and(|date| {
                let (now, young) = match now {
                    Some(now) => (now, YOUNG),
                    None => (SystemTime::now(), YOUNG_BY_OUR_CLOCK),
                };
                now.duration_since(date).is_ok_and(|age| age > young)
            });
        let version = match (etag, last_modified) {
            (Some(etag), _) if !is_weak(etag) => Version::strong(size_bytes, &format!("etag={etag}")),
            (Some(etag), Some(date)) if is_old => {
                Version::strong(size_bytes, &format!("etag={etag} of {date}"))
            }
            (Some(etag), _) => Version::weak(size_bytes, &format!("etag={etag}")),
            (None, Some(date)) if is_old => Version::strong(size_bytes, &format!("modified={date}")),
            (None, Some(date)) => Version::weak(size_bytes, &format!("modified={date}")),
            (None, None) => Version::unknown(size_bytes),
        };
        // Where the date is the version itself, it is shown with it.
        version.with_date(last_modified.filter(|_| etag.is_some()))
    }

    /// By the number that a home gives to each state of an object.
    pub(crate) fn of_generation(size_bytes: u64, generation: &str, last_modified: Option<&str>) -> Version {
        Version::from_text(format!("size={size_bytes};generation={generation}")).with_date(last_modified)
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

    pub fn strength(&self) -> Strength {
        match (self.parts(), self.is_of_one_look()) {
            ((_, None), _) => Strength::Unknown,
            ((_, Some(_)), true) => Strength::Weak,
            ((_, Some(_)), false) => Strength::Strong,
        }
    }

    /// Whether the two show that the bytes differ. Where they do not, only equal strong versions show that the bytes are the same.
    pub fn contradicts(&self, other: &Version) -> bool {
        let ((size, state), (other_size, other_state)) = (self.parts(), other.parts());
        size != other_size || state.is_some_and(|state| other_state.is_some_and(|other| state != other))
    }

    /// What the home says beside the size, for people.
    pub fn shown(&self) -> String {
        self.parts().1.map_or(String::new(), |(key, value)| format!("{key}={value}"))
    }

    fn is_of_one_look(&self) -> bool {
        self.itself().split(';').nth(1).is_some_and(|part| part.starts_with("seen="))
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
        if changes.is_empty() && old.file() != new.file() {
            changes.push("the file itself is another one, or was touched".into());
        }
        if changes.is_empty() { "no difference that shows".into() } else { changes.join(", ") }
    }

    /// Size, and key and value of what the home says beside it, without the inode of a file.
    fn parts(&self) -> (&str, Option<(&str, &str)>) {
        let (size, rest) = self.itself().split_once(';').unwrap_or((self.itself(), ""));
        let state = match rest.strip_prefix("seen=") {
            Some(seen) => seen.split_once(';').map_or("", |(_, state)| state),
            None => rest,
        };
        let state = state.split_once('=').map(|(key, value)| match key {
            "mtime_ns" => (key, value.split(';').next().unwrap_or(value)),
            _ => (key, value),
        });
        (size.strip_prefix("size=").unwrap_or(size), state)
    }

    /// What a file is, where its name and time do not say it.
    fn file(&self) -> Option<&str> {
        self.itself().split_once(";mtime_ns=")?.1.split_once(";file=").map(|(_, file)| file)
    }
}

/// Whether these seconds since 1970 are so near that a second write may still come in the same second. What lies ahead is
/// near as well: the clocks differ.
fn is_young(seconds: impl Into<i128>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| i128::from(now.as_secs()));
    let age = now - seconds.into();
    age <= i128::from(YOUNG.as_secs()) && age > -i128::from(YOUNG_BY_OUR_CLOCK.as_secs())
}

/// Whether a time is of the first day of 1970: whoever has no time to give says 0, or 1.
fn is_made_up(ns: i128) -> bool {
    (0..86_400_000_000_000).contains(&ns)
}

/// A number that no other look at an object has, on whatever machine.
fn new_look() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static N_LOOKS: AtomicU64 = AtomicU64::new(0);
    let first = *FIRST.get_or_init(|| RandomState::new().build_hasher().finish());
    crate::splitmix64(first ^ crate::splitmix64(N_LOOKS.fetch_add(1, Relaxed)))
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
        let file = |size_bytes, modified_ns| Version::of_file(size_bytes, modified_ns, None, 0o644);
        check(
            &file(10, 784_111_777_000_000_001),
            &file(20, 784_111_777_000_000_002),
            "size 10 -> 20 B, modified Sun, 06 Nov 1994 08:49:37.000000001 UTC -> Sun, 06 Nov 1994 08:49:37.000000002 UTC",
        );
        check(&file(1, -5), &file(1, i128::MAX), &format!("modified -5 -> {}", i128::MAX));
        check(&file(1, 5), &file(1, 5), "no difference that shows");
        let directory = Version::of_directory;
        check(&directory(1, 5), &directory(2, 6), "size 1 -> 2 B, names, sizes or times in it");
        let inode = |inode| Version::of_file(1, 5, Some((inode, 6)), 0o644);
        check(&inode(7), &inode(8), "the file itself is another one, or was touched");
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").ok();
        let http = |size_bytes, etag, date| Version::of_http(size_bytes, etag, date, now);
        check(&http(1, Some("\"a;=\""), None), &http(1, Some("\"b\""), Some("x")), "ETag \"a;=\" -> \"b\"");
        check(&http(1, None, None), &http(1, None, Some("then")), "no date -> modified then");
    }

    #[test]
    fn text_is_enough() {
        let version = Version::of_file(10, 12, None, 0o644);
        let back = Version::from_text(version.text());
        assert_eq!((&back, back.tag()), (&version, version.tag()));
        assert_ne!(version.tag(), Version::of_file(10, 13, None, 0o644).tag());
    }

    #[test]
    fn what_programs_are_shown_is_no_part_of_the_version() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let second = 784_111_777_000_000_000;
        for (version, modified_ns, mode) in [
            (Version::of_file(1, 12, None, 0o644), Some(12), Some(0o644)),
            (Version::of_file(1, -12, None, 0o100_755), Some(-12), Some(0o755)),
            (Version::of_file(1, i128::MAX, None, 0o600), Some(i64::MAX), Some(0o600)),
            (Version::of_directory(1, 12), None, None),
            (Version::of_http(1, Some("\"a;modified=b\""), date, None), Some(second), None),
            (Version::of_http(1, Some("\"a\""), None, None), None, None),
            (Version::of_http(1, None, date, None), Some(second), None),
            (Version::of_http(1, None, Some("yesterday"), None), None, None),
            (Version::of_generation(1, "17", date), Some(second), None),
            (Version::from_text("size=1;file=2;modified=784111777123"), Some(second + 123_000_000), None),
            (Version::from_text(""), None, None),
        ] {
            assert_eq!((version.modified_ns(), version.mode()), (modified_ns, mode), "{version:?}");
        }
        let tagged = |date| Version::of_http(1, Some("\"a\""), date, None);
        assert_eq!((tagged(date), tagged(date).tag()), (tagged(None), tagged(None).tag()));
        let of_mode = |mode| Version::of_file(1, i128::from(second) + 2, None, mode);
        assert_eq!(of_mode(0o755), of_mode(0o644));
        assert_ne!(Version::of_http(1, None, date, None), Version::of_http(1, None, None, None));
    }

    #[test]
    fn what_proves_nothing_equals_no_other_look() {
        const DATE: Option<&str> = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let at = |text: &str| httpdate::parse_http_date(text).ok();
        let (soon, later) = (at("Sun, 06 Nov 1994 08:49:39 GMT"), at("Sun, 06 Nov 1994 08:49:40 GMT"));
        let check = |make: &dyn Fn() -> Version, strength| {
            let (one, other) = (make(), make());
            assert_eq!(one.strength(), strength, "{one:?}");
            assert_eq!(Version::from_text(one.text()).strength(), strength, "{one:?}");
            assert_eq!(one == other, strength == Strength::Strong, "{one:?}");
            assert!(!one.contradicts(&other), "{one:?}");
        };
        use Strength::{Strong, Unknown, Weak};
        check(&|| Version::of_http(1, None, None, later), Unknown);
        check(&|| Version::of_http(1, Some("\"\""), None, later), Unknown);
        check(&|| Version::of_http(1, Some("w/\"\""), None, later), Unknown);
        check(&|| Version::of_http(1, Some("w/\"a\""), None, later), Weak);
        check(&|| Version::of_http(1, None, Some("Thu, 01 Jan 1970 00:00:00 GMT"), later), Unknown);
        check(&|| Version::of_http(1, None, Some("Thu, 01 Jan 1970 00:00:01 GMT"), later), Unknown);
        check(&|| Version::of_seconds(1, Some(0), 0o644), Weak);
        check(&|| Version::of_http(1, Some("\"a\""), None, None), Strong);
        check(&|| Version::of_http(1, Some("W/\"a\""), None, later), Weak);
        check(&|| Version::of_http(1, Some("W/\"a\""), DATE, later), Strong);
        check(&|| Version::of_http(1, None, DATE, soon), Weak);
        check(&|| Version::of_http(1, None, DATE, later), Strong);
        check(&|| Version::of_http(1, None, DATE, None), Strong);
        check(&|| Version::of_http(1, None, Some("yesterday"), later), Weak);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        check(&|| Version::of_seconds(1, None, 0o644), Unknown);
        check(&|| Version::of_seconds(1, Some(now), 0o644), Weak);
        check(&|| Version::of_seconds(1, Some(now - 10), 0o644), Strong);
        check(&|| Version::of_stamp(1, ""), Unknown);
        check(&|| Version::of_stamp(1, &format!("{now} 17")), Weak);
        check(&|| Version::of_stamp(1, "2024-01-01 00:00:00"), Strong);
        check(
            &|| Version::of_file(1, 1_000_000_001, Some((1, i128::from(now) * 1_000_000_000 + 5)), 0o644),
            Strong,
        );
        assert!(Version::unknown(1).contradicts(&Version::unknown(2)));
        assert!(Version::of_stamp(1, "a").contradicts(&Version::of_stamp(1, "b")));
    }
}
