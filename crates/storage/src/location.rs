//! Where bytes live at home: an absolute path, or an `http(s)` URL.
//!
//! Input: what people write. Output: one canonical text per location; [`Location::parse`] of a displayed location gives
//! the same location again.
//!
//! * A plain path is taken literally: spaces, quotes, newlines, `%`, `#` and a leading dash mean themselves.
//! * `file://` URLs are percent-decoded (RFC 8089) and displayed as the plain path they name.
//! * A path that ends in `/` names a directory, which is one object: all that is in it. It is another location than that of a
//!   file of the name.
//! * In `http(s)` URLs what a URL may not hold (spaces, unicode) is percent-encoded; escapes already there are kept.
//!
//! Why `..` stays inside a path: `a/..` is not `.` when `a` is a symbolic link, so removing it could name other bytes
//! than the program next to it would read. Only a *leading* `..` is resolved, against the base directory, which has
//! no symbolic links in it when it comes from `getcwd`.
//!
//! Not here: credentials in URLs. They would end in logs, so such a URL is refused.

use crate::error::{Error, ErrorKind, Result, Status};
use eyas_text::shown;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

const PARSE: &str = "use the location";

/// The schemes that are understood, for messages.
pub const SCHEMES: &[&str] = &["file", "http", "https"];

/// How a location is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// A path of this machine's file name space.
    File,
    /// HTTP without encryption.
    Http,
    /// HTTP inside TLS.
    Https,
}

/// The name of persistent bytes: scheme and canonical text. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    scheme: Scheme,
    /// The absolute path, or the whole URL.
    text: Arc<str>,
}

impl Location {
    /// Reads a path or URL; a relative path is resolved against `base`, an absolute directory (best from `getcwd`).
    ///
    /// Errors (`InvalidName`): empty text, NUL bytes, unknown scheme, malformed URL, `base` not absolute or not UTF-8.
    pub fn parse(text: &str, base: &Path) -> Result<Location> {
        if let Some(url) = Location::parse_url(text)? {
            return Ok(url);
        }
        if text.starts_with('/') {
            return Location::from_absolute(text);
        }
        let base = match base.to_str() {
            Some(base) if base.starts_with('/') => base,
            Some(base) => {
                return Err(invalid(
                    text,
                    format!("it is relative and the base {base} is not absolute", base = shown(base)),
                ));
            }
            None => return Err(invalid(text, "it is relative and the base directory's name is not UTF-8")),
        };
        // Joining by hand: leading `..` shorten the base, later ones stay (see the module header).
        let slash = if text.ends_with('/') { "/" } else { "" };
        let mut base: Vec<&str> = base.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let mut parts = text.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
        while parts.next_if(|part| *part == "..").is_some() {
            if base.last() == Some(&"..") {
                base.push("..");
            } else {
                base.pop();
            }
        }
        base.extend(parts);
        Location::from_absolute(&format!("/{}{slash}", base.join("/")))
    }

    /// An absolute path as it is, without looking for a scheme.
    pub fn from_path(path: &Path) -> Result<Location> {
        match path.to_str() {
            Some(text) if text.starts_with('/') => Location::from_absolute(text),
            Some(text) => Err(invalid(text, "an absolute path is needed here")),
            None => Err(invalid(&path.to_string_lossy(), "its name is not UTF-8")),
        }
    }

    fn from_absolute(text: &str) -> Result<Location> {
        if text.contains('\0') {
            return Err(invalid(text, "a path cannot hold a NUL byte"));
        }
        let mut canonical = String::with_capacity(text.len());
        for part in text.split('/') {
            // The parent of the root is the root.
            if part.is_empty() || part == "." || (part == ".." && canonical.is_empty()) {
                continue;
            }
            canonical.push('/');
            canonical.push_str(part);
        }
        if canonical.is_empty() || text.ends_with('/') {
            canonical.push('/');
        }
        Ok(Location { scheme: Scheme::File, text: canonical.into() })
    }

    /// `None`: the text is no URL, but a path.
    fn parse_url(text: &str) -> Result<Option<Location>> {
        if text.is_empty() {
            return Err(invalid(text, "it is empty"));
        }
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
        if !is_scheme {
            return Ok(None);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "file" => Location::from_file_url(text, rest).map(Some),
            "http" => Location::from_http_url(Scheme::Http, text, rest).map(Some),
            "https" => Location::from_http_url(Scheme::Https, text, rest).map(Some),
            other => Err(invalid(
                text,
                format!(
                    "the scheme {other} is unknown; known are a plain path and {}",
                    SCHEMES.join(", "),
                    other = shown(other)
                ),
            )),
        }
    }

    fn from_file_url(text: &str, rest: &str) -> Result<Location> {
        let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(invalid(text, "a file URL names an absolute path on this machine: file:///path"));
        }
        let decoded = percent_decode(path).ok_or_else(|| {
            invalid(
                text,
                "it has a `%` escape that is none; write the plain path, or `%25` for a percent sign",
            )
        })?;
        Location::from_absolute(&decoded)
    }

    fn from_http_url(scheme: Scheme, text: &str, rest: &str) -> Result<Location> {
        if rest.contains('#') {
            return Err(invalid(
                text,
                "`#` starts a fragment, which servers never see; in a name write `%23`",
            ));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(invalid("(URL with credentials)", "credentials in a URL would end in logs"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let is_plain = !host.is_empty() && host.chars().all(is_host);
        let is_v6 = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        if !is_plain && !is_v6 {
            return Err(invalid(text, format!("{host} is no host name", host = shown(host))));
        }
        let port = match port {
            None => None,
            Some(port) => match port.parse::<u16>() {
                Ok(port) => Some(port),
                Err(_) => {
                    return Err(invalid(text, format!("{port} is no port number", port = shown(port))));
                }
            },
        };
        let default_port = if scheme == Scheme::Http { 80 } else { 443 };
        let mut url = format!("{}://{}", scheme.name(), host.to_ascii_lowercase());
        if let Some(port) = port.filter(|port| *port != default_port) {
            url.push_str(&format!(":{port}"));
        }
        if !tail.starts_with('/') {
            url.push('/');
        }
        encode_into(&mut url, tail, "/?:@!$&'()*+,;=", true);
        Ok(Location { scheme, text: url.into() })
    }

    /// How it is reached.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The canonical text, as displayed: an absolute path or a URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The absolute path of a `file` location, without the `/` that a directory ends in.
    pub fn path(&self) -> Option<&Path> {
        let text = self.text.strip_suffix('/').filter(|text| !text.is_empty()).unwrap_or(&self.text);
        (self.scheme == Scheme::File).then(|| Path::new(text))
    }

    /// Whether it names a directory as one object.
    pub fn is_directory(&self) -> bool {
        self.scheme == Scheme::File && self.text.len() > 1 && self.text.ends_with('/')
    }

    /// The location as a URL; for a path `file://` with everything unusual percent-encoded.
    pub fn to_url(&self) -> String {
        if self.scheme != Scheme::File {
            return self.text.to_string();
        }
        let mut url = String::from("file://");
        encode_into(&mut url, &self.text, "/", false);
        url
    }

    /// The last part of the path, percent-decoded for URLs; empty for a root.
    pub fn file_name(&self) -> String {
        let (path, _) = self.split_query();
        let path = if self.is_directory() { path.trim_end_matches('/') } else { path };
        let name = path.rsplit('/').next().unwrap_or("");
        match self.scheme {
            Scheme::File => name.to_owned(),
            _ => percent_decode(name).unwrap_or_else(|| name.to_owned()),
        }
    }

    /// The location of `name` (one name or a relative path, taken literally) below this directory.
    pub fn join(&self, name: &str) -> Result<Location> {
        let (path, query) = self.split_query();
        let slash = if path.ends_with('/') { "" } else { "/" };
        match self.scheme {
            Scheme::File => Location::from_absolute(&format!("{path}{slash}{name}")),
            _ => {
                let mut url = format!("{path}{slash}");
                encode_into(&mut url, name, "/", false);
                url.push_str(query);
                Ok(Location { scheme: self.scheme, text: url.into() })
            }
        }
    }

    /// The text without and the text of a query; a path has none.
    fn split_query(&self) -> (&str, &str) {
        match self.scheme {
            Scheme::File => (&self.text, ""),
            _ => self.text.split_at(self.text.find('?').unwrap_or(self.text.len())),
        }
    }
}

impl Scheme {
    /// As written in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::File => "file",
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({:?})", &*self.text)
    }
}

/// Reads back what `Display` wrote; a relative path is refused.
impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Location> {
        match Location::parse_url(text)? {
            Some(url) => Ok(url),
            None => Location::from_path(Path::new(text)),
        }
    }
}

fn invalid(text: &str, reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidName, Status::Permanent, PARSE, text, reason)
}

/// Appends `text` with every byte escaped that is neither unreserved (RFC 3986) nor in `keep`.
fn encode_into(out: &mut String, text: &str, keep: &str, keep_escapes: bool) {
    let bytes = text.as_bytes();
    for (index, &byte) in bytes.iter().enumerate() {
        let escape = keep_escapes
            && byte == b'%'
            && bytes.get(index + 1..index + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        if byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || keep.as_bytes().contains(&byte)
            || escape
        {
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
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] == b'%' {
            let high = (*bytes.get(index + 1)? as char).to_digit(16)?;
            let low = (*bytes.get(index + 2)? as char).to_digit(16)?;
            out.push((high * 16 + low) as u8);
            index += 3;
        } else {
            out.push(bytes[index]);
            index += 1;
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Location> {
        Location::parse(text, Path::new("/base/dir"))
    }

    #[test]
    fn paths_and_urls() {
        let check = |text: &str, expect: &str| assert_eq!(parse(text).unwrap().as_str(), expect, "{text:?}");
        check("/a/b", "/a/b");
        check("/a//./b", "/a/b");
        check("/a//./b//", "/a/b/");
        check("/.//", "/");
        check("/", "/");
        check("/../a", "/a");
        check("x", "/base/dir/x");
        check("./x", "/base/dir/x");
        check("../x", "/base/x");
        check("../../../../x", "/x");
        check("a/../x", "/base/dir/a/../x");
        check("-rf", "/base/dir/-rf");
        check("a b'\"\n%41#é", "/base/dir/a b'\"\n%41#é");
        check("file:///a/b", "/a/b");
        check("FILE://localhost/a%20b%25", "/a b%");
        check("a:b", "/base/dir/a:b");
        check("HTTP://Example.ORG:80", "http://example.org/");
        check("https://h:8443/a b/é?q=1&r=%2f", "https://h:8443/a%20b/%C3%A9?q=1&r=%2f");
        check("http://[::1]:9/x%zz", "http://[::1]:9/x%25zz");
    }

    #[test]
    fn refusals_say_why() {
        let check = |text: &str, expect: &str| {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::InvalidName, Status::Permanent));
            assert!(error.to_string().contains(expect), "{text:?}: {error}");
        };
        check("", "empty");
        check("a\0b", "NUL");
        check("s3://bucket/key", "the scheme `s3` is unknown; known are a plain path and file, http, https");
        check("file://host/a", "this machine");
        check("file:///a%zz", "%25");
        check("file:///a%ff", "escape");
        check("http:///a", "host");
        check("http://h:99999/a", "port");
        check("http://h/a#b", "fragment");
        check("http://user:secret@h/a", "credentials");
        assert!(!parse("http://user:secret@h/a").unwrap_err().to_string().contains("secret"));
        assert!(Location::parse("x", Path::new("rel")).unwrap_err().to_string().contains("not absolute"));
        assert!("x".parse::<Location>().is_err());
    }

    #[test]
    fn names_join_and_come_back() {
        let odd = "a b?#%é'\n-";
        for base in ["/d", "/", "http://h/d", "http://h"] {
            let joined = parse(base).unwrap().join(odd).unwrap();
            assert_eq!(joined.file_name(), odd, "{joined}");
            assert_eq!(joined.to_string().parse::<Location>().unwrap(), joined);
        }
        assert_eq!(parse("http://h/d?t=1").unwrap().join("x").unwrap().as_str(), "http://h/d/x?t=1");
    }

    proptest! {
        #[test]
        fn any_path_round_trips(path in "(/|\\.\\.|[^\\x00]){0,40}", base in "/([^\\x00/]{1,8}/?){0,4}") {
            // Only a text that is a URL may be refused.
            if let Ok(location) = Location::parse(&path, Path::new(&base)) {
                let text = location.to_string();
                prop_assert_eq!(&text.parse::<Location>().unwrap(), &location);
                prop_assert_eq!(&Location::parse(&text, Path::new("/elsewhere")).unwrap(), &location);
                prop_assert_eq!(&location.to_url().parse::<Location>().unwrap(), &location);
            } else {
                prop_assert!(path.is_empty() || path.contains("://"), "{:?} was refused", path);
            }
        }

        #[test]
        fn any_http_url_round_trips(tail in "(/|%|\\?|[^#]){0,40}", name in "[^/\\x00]{1,20}") {
            let location: Location = format!("http://h.example/{tail}").parse().unwrap();
            prop_assert_eq!(&location.to_string().parse::<Location>().unwrap(), &location);
            prop_assert!(location.as_str().is_ascii() && !location.as_str().contains(' '));
            prop_assert_eq!(location.join(&name).unwrap().file_name(), name);
        }
    }
}
