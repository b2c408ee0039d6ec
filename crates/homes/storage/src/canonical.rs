//! Texts that people write, each to the one text of the file that it means, so that equal files have equal texts.
//!
//! Task lists are read with this as well as [`crate::Location`], so the two cannot disagree.
//!
//! * A path is absolute, without empty parts and `.`. It is taken literally: spaces, quotes, newlines, `%`, `#` and a
//!   leading dash mean themselves.
//! * A path that ends in `/` names a directory as one object: another location than that of a file of this name.
//! * What a URL means is said by its kind of home (`Kind::canonical`). All canonical URLs have the form
//!   `scheme://authority/path?query`.
//!
//! Why `..` stays inside a path: `a/..` is not `.` when `a` is a symbolic link, so removing it could name other bytes
//! than the program next to it would read. Only a *leading* `..` is resolved, against the base directory, which has
//! no symbolic links in it when it comes from `getcwd`.
//!
//! The canonical text is appended to a text of the caller, because a million locations are written one behind the other.

use crate::scheme::{DATA, KindNo};
use std::borrow::Cow;
use std::fmt::Write;

/// Why a text is no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Completes a sentence whose subject is the text: "has no valid host name".
    pub why: &'static str,
    /// What to write instead, as a sentence without its end.
    pub hint: Option<&'static str>,
    /// The text holds a secret, so no message may show it.
    pub is_secret: bool,
}

impl Refusal {
    pub(crate) fn new(why: &'static str, hint: impl Into<Option<&'static str>>) -> Refusal {
        Refusal { why, hint: hint.into(), is_secret: false }
    }

    pub(crate) fn of_credentials() -> Refusal {
        Refusal { why: "has credentials in it, and they would end in logs", hint: None, is_secret: true }
    }
}

/// How a URL spells its location.
pub enum Spelling {
    /// It is another spelling of this absolute path, which need not be canonical.
    Path(String),
    /// It is a URL, whose canonical text has been appended.
    Url,
}

/// A text of the form `scheme://rest` or `data:rest`, as a user wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Url<'t> {
    pub scheme: &'t str,
    pub rest: &'t str,
}

impl<'t> Url<'t> {
    /// `None`: the text is a path.
    #[inline]
    pub fn split(text: &'t str) -> Option<Url<'t>> {
        let (scheme, rest) = text.split_once(':')?;
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest,
            None if scheme.eq_ignore_ascii_case(DATA) => return Some(Url { scheme, rest }),
            None => return None,
        };
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
        is_scheme.then_some(Url { scheme, rest })
    }

    /// Appends the URL's canonical text to `out`, or gives the path that it is another spelling of. `None`: no kind of home
    /// has this scheme.
    pub fn canonical(self, out: &mut String) -> Option<Result<Spelling, Refusal>> {
        KindNo::find(self.scheme).map(|kind| kind.get().canonical(self, out))
    }

    /// The path that the URL is another spelling of. `None`: it is at another home, or it is refused.
    pub fn path(self) -> Option<String> {
        match self.canonical(&mut String::new()) {
            Some(Ok(Spelling::Path(path))) => Some(path),
            _ => None,
        }
    }

    /// Whether it is a pattern of several files: it has one of `*?[` in its path, and its home can list.
    pub fn is_pattern(self) -> bool {
        self.split_pattern().is_some()
    }

    /// The URL of the directory that a pattern begins in, and the pattern below it, in which nothing is escaped. `None`: it is
    /// no pattern.
    pub(crate) fn split_pattern(self) -> Option<(String, String)> {
        let kind = KindNo::find(self.scheme)?.get();
        let (authority, path) = self.rest.split_once('/')?;
        // Behind a `?` are the tags of a data set.
        let marks: &[char] = if kind.has_tags() { &['*', '['] } else { &['*', '?', '['] };
        let at = path.find(marks)?;
        if !kind.capabilities().list || !kind.schemes_are_urls() {
            return None;
        }
        let (above, pattern) = path.split_at(path[..at].rfind('/').map_or(0, |slash| slash + 1));
        let decoded: Option<Vec<String>> = pattern.split('/').map(decoded_pattern).collect();
        Some((format!("{}://{authority}/{above}", self.scheme), decoded?.join("/")))
    }

    /// Whether it ends in `/` and stands for the objects below it: its home can list, and has no directories as objects.
    pub fn is_folder(self) -> bool {
        let lists = |kind: KindNo| {
            let kind = kind.get();
            kind.capabilities().list && !kind.capabilities().directories && kind.schemes_are_urls()
        };
        self.rest.ends_with('/') && !self.is_pattern() && KindNo::find(self.scheme).is_some_and(lists)
    }

    /// Whether there is a kind of home for it.
    pub fn is_known(self) -> bool {
        KindNo::find(self.scheme).is_some()
    }
}

/// The canonical text of a directory that relative paths start from, from its absolute path. It has no `/` at its end, so that
/// of the root is empty.
pub fn base_text(directory: &str) -> String {
    let mut base = String::with_capacity(directory.len());
    push_parts(&mut base, 0, directory);
    base
}

/// Appends the canonical text of a path; `base` comes from [`base_text`].
#[inline]
pub fn push_path(out: &mut String, path: &str, base: &str) {
    let start = out.len();
    if path.starts_with('/') {
        push_parts(out, start, path);
    } else {
        let (base, below) = up(base, path);
        out.push_str(base);
        push_parts(out, start, below);
    }
    if path.ends_with('/') || out.len() == start {
        out.push('/');
    }
}

/// Resolves the leading `..` of `path`.
fn up<'t>(mut base: &'t str, mut path: &'t str) -> (&'t str, &'t str) {
    loop {
        let (part, rest) = path.split_once('/').unwrap_or((path, ""));
        match part {
            "" if rest.is_empty() => break,
            "" | "." => {}
            ".." if base.ends_with("/..") => break,
            ".." => base = base.rsplit_once('/').map_or("", |(parent, _)| parent),
            _ => break,
        }
        path = rest;
    }
    (base, path)
}

/// Appends `/part` for each part of `path`; what is in `out` from `start` on is the path so far.
fn push_parts(out: &mut String, start: usize, path: &str) {
    for part in path.split('/') {
        // The parent of the root is the root.
        if part.is_empty() || part == "." || (part == ".." && out.len() == start) {
            continue;
        }
        out.push('/');
        out.push_str(part);
    }
}

/// The last part of the path of a location, percent-decoded for URLs; empty for a root. Without the `/` that a directory
/// ends in.
pub fn file_name(location: &str) -> Cow<'_, str> {
    let Some((_, rest)) = location.split_once("://").filter(|_| !location.starts_with('/')) else {
        return location.trim_end_matches('/').rsplit('/').next().unwrap_or("").into();
    };
    let path = rest.split('?').next().unwrap_or(rest);
    let name = path.split_once('/').map_or("", |(_, path)| path).rsplit('/').next().unwrap_or("");
    // An escaped `/` does not make a path of a name.
    match percent_decode(name).filter(|decoded| !decoded.contains(['/', '\0'])) {
        Some(decoded) => decoded.into(),
        None => name.into(),
    }
}

/// Whether a path or a query may hold this mark unescaped (RFC 3986).
pub(crate) fn is_url_mark(byte: u8) -> bool {
    is_path_mark(byte) || b"?:@!$&'()*+,;=".contains(&byte)
}

/// Whether this mark means nothing but itself anywhere in a path.
pub(crate) fn is_path_mark(byte: u8) -> bool {
    matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/')
}

/// Appends `text` with every byte escaped that is neither a letter, a digit nor a mark that `keeps` names. Escapes that are
/// there already stay with `keep_escapes`.
pub(crate) fn push_encoded(out: &mut String, text: &str, keeps: impl Fn(u8) -> bool, keep_escapes: bool) {
    let bytes = text.as_bytes();
    // Where the bytes begin that have to be appended as they are.
    let mut from = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        let is_escape = || {
            let hex = bytes.get(i + 1..i + 3);
            keep_escapes && byte == b'%' && hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        };
        if byte.is_ascii_alphanumeric() || keeps(byte) || is_escape() {
            continue;
        }
        // Only ASCII is kept, so the piece is whole characters. An empty one may lie within a character.
        if from < i {
            out.push_str(&text[from..i]);
        }
        from = i + 1;
        // Writing to a text never fails.
        let _ = write!(out, "%{byte:02X}");
    }
    if from < text.len() {
        out.push_str(&text[from..]);
    }
}

/// A part of a pattern without escapes. An escaped sign that would have a meaning in a pattern stands for itself.
fn decoded_pattern(part: &str) -> Option<String> {
    let mut literal = part.to_owned();
    for (escape, class) in [("%2A", "[*]"), ("%3F", "[?]"), ("%5B", "[[]")] {
        literal = literal.replace(escape, class).replace(&escape.to_ascii_lowercase(), class);
    }
    percent_decode(&literal)
}

/// `None`: a `%` without two hexadecimal digits, or the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == b'%' {
            let high = (*bytes.get(i + 1)? as char).to_digit(16)?;
            let low = (*bytes.get(i + 2)? as char).to_digit(16)?;
            out.push((high * 16 + low) as u8);
            i += 3;
        } else {
            out.push(bytes[i]);
            i += 1;
        }
    }
    String::from_utf8(out).ok()
}

/// The text of a URL with host, port and path, of a scheme over HTTP or its fellow over HTTPS (`names`, in this order).
pub(crate) fn canonical_of(
    url: Url<'_>,
    names: [&'static str; 2],
    out: &mut String,
) -> std::result::Result<Spelling, Refusal> {
    let (authority, path) = url.rest.split_once('/').unwrap_or((url.rest, ""));
    if authority.contains('@') {
        return Err(Refusal::of_credentials());
    }
    let Some(path) = percent_decode(path) else {
        return Err(Refusal::new("has a `%` that begins no escape", "write %25 for a percent sign"));
    };
    if path.contains('\0') {
        return Err(Refusal::new("holds a NUL byte", None));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Refusal::new("leads upwards with `..`", None));
    }
    let is_secure = url.scheme.eq_ignore_ascii_case(names[1]);
    let scheme = if is_secure { "https" } else { "http" };
    let mut of_web = String::new();
    Url { scheme, rest: authority }.canonical(&mut of_web).unwrap_or(Ok(Spelling::Url))?;
    out.push_str(names[usize::from(is_secure)]);
    out.push_str(of_web.strip_prefix(scheme).unwrap_or(&of_web));
    push_encoded(out, &path, is_path_mark, false);
    Ok(Spelling::Url)
}
