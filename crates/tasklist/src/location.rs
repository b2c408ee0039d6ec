//! Paths and URLs, each to its one text, so that equal files have equal strings.
//!
//! * A path is absolute, without empty parts and `.`. Leading `..` are resolved against the base directory;
//!   later ones stay, because `a/..` is not `.` when `a` is a symbolic link.
//! * `file://` URLs become the path they name.
//! * A path or a `run:NAME` that ends in `/` is a directory, which is one object: another one than a file of that name.
//! * `run:NAME` is a file that stays on the nodes: NAME is a relative path within the run's own name space.
//! * In `http(s)` URLs scheme and host are lower case, the scheme's own port is left out and what a URL may
//!   not hold is percent-encoded. Credentials are refused: they would end in logs.
//!
//! Home storage reads these texts back unchanged.
//!
//! Not here: whether there is anything at a location.

use crate::error::{Error, Result, shown};
use std::borrow::Cow;
use std::path::Path;

/// The schemes that are understood, for messages.
const SCHEMES: &str = "a plain path, run:, file://, http:// and https://";

/// Begins the location of a file that stays on the nodes.
pub const RUN_FILE: &str = eyas_core::RUN_FILE;

/// The text of a base directory; relative ones are taken from the working directory.
pub(crate) fn base_text(dir: &Path) -> Result<String> {
    let absolute = std::path::absolute(dir)
        .map_err(|e| Error::io(format!("cannot tell where the directory {} is", dir.display()), e))?;
    let text = absolute.to_str().ok_or_else(|| {
        Error::invalid(format!("the name of the directory {} is not UTF-8", absolute.display()))
    })?;
    let mut canonical = String::new();
    push_parts(&mut canonical, 0, text);
    Ok(canonical)
}

/// Appends the one text of the file `text`; `base` comes from [`base_text`].
pub(crate) fn push_location(out: &mut String, text: &str, base: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid("a location is empty"));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!("the location {} holds a NUL byte", shown(text))));
    }
    if let Some(name) = text.strip_prefix(RUN_FILE) {
        return push_run_file(out, text, name);
    }
    if let Some((scheme, rest)) = split_scheme(text) {
        return match scheme.to_ascii_lowercase().as_str() {
            "file" => push_file_url(out, text, rest),
            "http" => push_http_url(out, "http", 80, text, rest),
            "https" => push_http_url(out, "https", 443, text, rest),
            other => Err(Error::invalid(format!(
                "the scheme {other} of {} is unknown",
                shown(text),
                other = shown(other)
            ))
            .hint(format!("known are {SCHEMES}"))),
        };
    }
    push_path(out, text, base)
}

fn push_run_file(out: &mut String, text: &str, name: &str) -> Result<()> {
    let why = match name {
        "" => Some("has no name"),
        _ if name.starts_with('/') => Some("has an absolute name"),
        _ if name.split('/').any(|part| part == "..") => Some("leads out of the run with `..`"),
        _ => None,
    };
    if let Some(why) = why {
        return Err(Error::invalid(format!("the location {} {why}", shown(text))).hint(
            "write run:NAME or run:DIR/NAME for a file that stays on the nodes, run:DIR/ for a directory",
        ));
    }
    out.push_str(RUN_FILE);
    let start = out.len();
    for part in name.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if out.len() > start {
            out.push('/');
        }
        out.push_str(part);
    }
    if out.len() == start {
        return Err(Error::invalid(format!("the location {} has no name", shown(text))));
    }
    if name.ends_with('/') {
        out.push('/');
    }
    Ok(())
}

/// `None`: the text is a path.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let rest = rest.strip_prefix("//")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
    is_scheme.then_some((scheme, rest))
}

/// The name of the file at a location that [`push_location`] wrote.
pub(crate) fn file_name(location: &str) -> Cow<'_, str> {
    if location.starts_with('/') || location.starts_with(RUN_FILE) {
        let location = location.strip_prefix(RUN_FILE).unwrap_or(location);
        return eyas_core::array::file_name(location).into();
    }
    let path = location.split_once("://").map_or(location, |(_, rest)| rest);
    let path = path.split('?').next().unwrap_or(path);
    let name = path.split_once('/').map_or("", |(_, path)| path).rsplit('/').next().unwrap_or("");
    match percent_decode(name) {
        Some(decoded) => decoded.into(),
        None => name.into(),
    }
}

fn push_path(out: &mut String, text: &str, base: &str) -> Result<()> {
    let bare = text.trim_end_matches('/');
    if let "" | "." | ".." = bare.rsplit('/').next().unwrap_or(bare) {
        return Err(Error::invalid(format!(
            "the location {} names a directory by no name of its own",
            shown(text)
        ))
        .hint("write the name of a file, or that of a directory with a `/` behind it"));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(Error::invalid(format!(
            "in {} the `~` stands for itself: only shells know it",
            shown(text)
        ))
        .hint("write the whole path, or ./~ for a directory of that name"));
    }
    let start = out.len();
    push_file(out, start, text, base);
    if bare.len() < text.len() {
        out.push('/');
    }
    Ok(())
}

fn push_file(out: &mut String, start: usize, text: &str, base: &str) {
    if text.starts_with('/') {
        return push_parts(out, start, text);
    }
    let mut parts = text;
    let mut base = base;
    loop {
        let (part, rest) = parts.split_once('/').unwrap_or((parts, ""));
        match part {
            "" | "." => {}
            ".." if base.ends_with("/..") => break,
            ".." => base = base.rsplit_once('/').map_or("", |(parent, _)| parent),
            _ => break,
        }
        parts = rest;
    }
    out.push_str(base);
    push_parts(out, start, parts);
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

fn push_file_url(out: &mut String, text: &str, rest: &str) -> Result<()> {
    let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(Error::invalid(format!("{} does not name a file of this machine", shown(text)))
            .hint("write file:///path, with three slashes"));
    }
    let decoded = percent_decode(path).ok_or_else(|| {
        Error::invalid(format!("{} has a `%` that begins no escape", shown(text)))
            .hint("write %25 for a percent sign, or the plain path")
    })?;
    if decoded.contains('\0') {
        return Err(Error::invalid(format!("the location {} holds a NUL byte", shown(text))));
    }
    push_path(out, &decoded, "")
}

fn push_http_url(out: &mut String, scheme: &str, default_port: u16, text: &str, rest: &str) -> Result<()> {
    if rest.contains('#') {
        return Err(Error::invalid(format!("{} has a fragment, which servers never see", shown(text)))
            .hint("write %23 for a `#` in a name"));
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(Error::invalid("a URL has credentials in it, and they would end in logs"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_plain = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    if !is_plain && !is_v6 {
        return Err(Error::invalid(format!("{} has no valid host name", shown(text))));
    }
    out.push_str(scheme);
    out.push_str("://");
    out.extend(host.chars().map(|c| c.to_ascii_lowercase()));
    match port.map(str::parse::<u16>) {
        None => {}
        Some(Ok(port)) if port == default_port => {}
        Some(Ok(port)) => out.push_str(&format!(":{port}")),
        Some(Err(_)) => return Err(Error::invalid(format!("{} has no valid port number", shown(text)))),
    }
    if !tail.starts_with('/') {
        out.push('/');
    }
    push_encoded(out, tail);
    Ok(())
}

/// Escapes what a URL may not hold (RFC 3986); escapes that are there already stay.
fn push_encoded(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    for (i, &byte) in bytes.iter().enumerate() {
        let is_escape =
            byte == b'%' && bytes.get(i + 1..i + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        if byte.is_ascii_alphanumeric() || b"-._~/?:@!$&'()*+,;=".contains(&byte) || is_escape {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// `None`: a `%` without two hexadecimal digits, or the result is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<String> {
        let mut out = String::from("before");
        push_location(&mut out, text, "/base/dir").map(|()| out.split_off(6))
    }

    #[test]
    fn every_file_has_one_text() {
        for (text, expect) in [
            ("/a/b", "/a/b"),
            ("/a//./b", "/a/b"),
            ("/../a", "/a"),
            ("x", "/base/dir/x"),
            ("./x", "/base/dir/x"),
            ("../x", "/base/x"),
            ("x/", "/base/dir/x/"),
            ("./a//x//", "/base/dir/a/x/"),
            ("/a/x/", "/a/x/"),
            ("file:///a/x/", "/a/x/"),
            ("run:x", "run:x"),
            ("run:a//./x/", "run:a/x/"),
            ("../../../../x", "/x"),
            ("a/../x", "/base/dir/a/../x"),
            ("-rf", "/base/dir/-rf"),
            ("a b'\"\n%41#é", "/base/dir/a b'\"\n%41#é"),
            ("file:///a/b", "/a/b"),
            ("FILE://localhost/a%20b%25", "/a b%"),
            ("a:b", "/base/dir/a:b"),
            ("HTTP://Example.ORG:80", "http://example.org/"),
            ("https://h:8443/a b/é?q=1&r=%2f", "https://h:8443/a%20b/%C3%A9?q=1&r=%2f"),
            ("http://[::1]:9/x%zz", "http://[::1]:9/x%25zz"),
        ] {
            assert_eq!(parse(text).unwrap(), expect, "{text:?}");
        }
        assert_eq!(base_text(Path::new("/a/./b//")).unwrap(), "/a/b");
        assert_eq!(base_text(Path::new("/")).unwrap(), "");
    }

    #[test]
    fn what_is_no_file_is_refused_with_a_reason() {
        for (text, expect) in [
            ("", "empty"),
            ("a\0b", "NUL"),
            ("file:///a%00b", "NUL"),
            ("/", "names a directory by no name"),
            ("..", "names a directory by no name"),
            ("../", "names a directory by no name"),
            ("a/./", "names a directory by no name"),
            ("run:", "has no name"),
            ("run:./", "has no name"),
            ("run:../x/", "leads out of the run"),
            ("s3://bucket/key", "the scheme `s3` of `s3://bucket/key` is unknown\nhint: known are"),
            ("file://host/a", "three slashes"),
            ("file:///a%zz", "%25"),
            ("http:///a", "host"),
            ("http://h:99999/a", "port"),
            ("http://h/a#b", "fragment"),
            ("http://user:secret@h/a", "credentials"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains("secret"), "{text:?}: {error}");
        }
    }

    #[test]
    fn names_of_files() {
        for (location, expect) in [
            ("/a/b c", "b c"),
            ("/a/b c/", "b c"),
            ("run:a/b/", "b"),
            ("http://h/x/a%20b.fits?token=/1", "a b.fits"),
            ("http://h/", ""),
            ("http://h/a%zz", "a%zz"),
        ] {
            assert_eq!(file_name(location), expect);
        }
    }

    proptest! {
        #[test]
        fn the_text_of_a_location_is_its_own_text(text in "(/|\\.\\.|http://h/|file:///|[^\\x00]){1,12}") {
            if let Ok(location) = parse(&text) {
                prop_assert_eq!(parse(&location).unwrap(), location);
            }
        }
    }
}
