//! Where bytes live at home: an absolute path, or a URL of a known kind.
//!
//! Input: what people write. Output: one canonical text per location ([`crate::canonical`]); [`Location::parse`] of a
//! displayed location gives the same location again.

use crate::canonical::{self, Refusal, Spelling, Url};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::scheme::{DATA, KindNo, schemes};
use crate::signed::without_secrets;
use eyas_text::shown;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

const PARSE: &str = "use the location";

/// The name of persistent bytes: canonical text, and the kind of home that it belongs to. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    kind: KindNo,
    /// The absolute path, or the whole URL.
    text: Arc<str>,
}

impl Location {
    /// Reads a path or URL; a relative path is resolved against `base`, an absolute directory (best from `getcwd`).
    /// Errors (`InvalidName`): empty text, NUL bytes, unknown scheme, malformed URL, `base` not absolute or not UTF-8.
    pub fn parse(text: &str, base: &Path) -> Result<Location> {
        if let Some(url) = Location::parse_url(text)? {
            return Ok(url);
        }
        if text.starts_with('/') {
            return Location::from_absolute(text);
        }
        match base.to_str() {
            Some(base) if base.starts_with('/') => Location::from_parts(text, &canonical::base_text(base)),
            Some(base) => {
                let base = shown(base);
                Err(invalid(text, format!("it is relative and the base {base} is not absolute")))
            }
            None => Err(invalid(text, "it is relative and the base directory's name is not UTF-8")),
        }
    }

    /// An absolute path as it is, without looking for a scheme.
    pub fn from_path(path: &Path) -> Result<Location> {
        match path.to_str() {
            Some(text) if text.starts_with('/') => Location::from_absolute(text),
            Some(text) => Err(invalid(text, "an absolute path is needed here")),
            None => Err(invalid(&path.to_string_lossy(), "its name is not UTF-8")),
        }
    }

    fn from_absolute(path: &str) -> Result<Location> {
        Location::from_parts(path, "")
    }

    fn from_parts(path: &str, base: &str) -> Result<Location> {
        if path.contains('\0') || base.contains('\0') {
            return Err(invalid(path, "a path cannot hold a NUL byte"));
        }
        let mut text = String::with_capacity(base.len() + path.len() + 1);
        canonical::push_path(&mut text, path, base);
        Ok(Location { kind: KindNo::OF_PATHS, text: text.into() })
    }

    /// `None`: the text is no URL, but a path.
    fn parse_url(text: &str) -> Result<Option<Location>> {
        if text.is_empty() {
            return Err(invalid(text, "it is empty"));
        }
        let Some(url) = Url::split(text) else { return Ok(None) };
        let Some(kind) = KindNo::find(url.scheme) else {
            let known: Vec<&str> = schemes().collect();
            let scheme = url.scheme.to_ascii_lowercase();
            let reason = format!(
                "the scheme {} is unknown; known are a plain path and {}",
                shown(&scheme),
                known.join(", ")
            );
            return Err(invalid(text, reason));
        };
        let mut canonical = String::with_capacity(text.len());
        match kind.get().canonical(url, &mut canonical) {
            Ok(Spelling::Path(path)) => Location::from_absolute(&path).map(Some),
            Ok(Spelling::Url) => Ok(Some(Location { kind, text: canonical.into() })),
            Err(refusal) => Err(refused(text, refusal)),
        }
    }

    /// The kind of home that it belongs to.
    pub(crate) fn kind(&self) -> KindNo {
        self.kind
    }

    /// The scheme of the location as a URL.
    pub fn scheme(&self) -> &str {
        match self.text.split_once("://") {
            Some((scheme, _)) if !self.is_path() => scheme,
            _ => self.kind.get().schemes()[0],
        }
    }

    /// The canonical text, as displayed: an absolute path or a URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether its home is reached by programs and files of this machine's, with whatever rights this process has: data sets, and homes
    /// that the user has declared. Plain paths are something else.
    pub fn is_by_programs_of_machine(&self) -> bool {
        self.scheme() == DATA || self.kind.get().schemes_are_declared()
    }

    fn is_path(&self) -> bool {
        self.text.starts_with('/')
    }

    /// The absolute path where the location is one, without the `/` that a directory ends in.
    pub fn path(&self) -> Option<&Path> {
        let text = self.text.strip_suffix('/').filter(|text| !text.is_empty()).unwrap_or(&self.text);
        self.is_path().then(|| Path::new(text))
    }

    /// Whether it names a directory as one object.
    pub fn is_directory(&self) -> bool {
        self.text.len() > 1 && self.text.ends_with('/') && self.kind.get().capabilities().directories
    }

    /// Whether it is written as a directory, for [`Home::rename`](crate::Home::rename).
    pub fn ends_in_slash(&self) -> bool {
        self.text.ends_with('/')
    }

    /// The last part of the path, percent-decoded for URLs; empty for a root.
    pub fn file_name(&self) -> String {
        canonical::file_name(&self.text).into_owned()
    }

    /// What [`Location::join`] made this location of, below `directory`. `None`: it is not below it.
    pub fn name_below(&self, directory: &Location) -> Option<String> {
        let above = directory.text.trim_end_matches('/');
        let below = self.text.strip_prefix(above)?.strip_prefix('/').filter(|below| !below.is_empty())?;
        match self.is_path() {
            true => Some(below.to_owned()),
            false => canonical::percent_decode(below.split('?').next().unwrap_or(below)),
        }
    }

    /// Whether names below this directory may be any text, as the home makes no directories of them.
    pub fn has_flat_names(&self) -> bool {
        self.kind.get().names_are_flat()
    }

    /// [`Location::join`] for a name from outside.
    ///
    /// # Errors
    /// The name leads elsewhere than below this directory, or cannot be a file's there.
    pub fn below(&self, name: &str) -> Result<Location> {
        match eyas_folder::why_not_below(name.as_bytes()).filter(|_| !self.has_flat_names()) {
            None => self.join(name),
            Some(why) => Err(invalid(name, format!("as a name below {} it {why}", shown(self.as_str())))),
        }
    }

    /// The location of `name` (one name or a relative path, taken literally) below this directory.
    pub fn join(&self, name: &str) -> Result<Location> {
        let (path, query) = match self.is_path() {
            true => (&*self.text, ""),
            false => self.text.split_at(self.text.find('?').unwrap_or(self.text.len())),
        };
        let slash = if path.ends_with('/') { "" } else { "/" };
        if self.is_path() {
            return Location::from_absolute(&format!("{path}{slash}{name}"));
        }
        let mut url = format!("{path}{slash}");
        canonical::push_encoded(&mut url, name, canonical::is_path_mark, false);
        url.push_str(query);
        Ok(Location { kind: self.kind, text: url.into() })
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

fn refused(text: &str, Refusal { why, hint, is_secret }: Refusal) -> Error {
    let text = if is_secret { "(URL with credentials)" } else { text };
    match hint {
        Some(hint) => invalid(text, format!("it {why}; {hint}")),
        None => invalid(text, format!("it {why}")),
    }
}

fn invalid(text: &str, reason: impl Into<String>) -> Error {
    let text = without_secrets(text);
    Error::new(ErrorKind::InvalidName, Status::Permanent, PARSE, text, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_text::{HIDDEN_CHARS, HIDDEN_QUERY};
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
        check("https://h:8443/a b/é", "https://h:8443/a%20b/%C3%A9");
        let hidden = format!("?{HIDDEN_QUERY}{}", "0a".repeat(HIDDEN_CHARS / 2));
        check(&format!("https://h/a b{hidden}"), &format!("https://h/a%20b{hidden}"));
        check("http://[::1]:9/x%zz", "http://[::1]:9/x%25zz");
        check("S3://Bucket.a/a b+c%20d?#é", "s3://Bucket.a/a%20b%2Bc%20d%3F%23%C3%A9");
        check("s3://bucket", "s3://bucket/");
        check("DAV://Host:80/a b%20?#", "dav://host/a%20b%20%3F%23");
        check("davs://h:443", "davs://h/");
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
        check(
            "gopher://bucket/key",
            "the scheme `gopher` is unknown; known are a plain path and file, http, https, s3, gs, az, dav, davs",
        );
        check("s3:///key", "bucket");
        check("s3://b/50%", "%25");
        check(&format!("s3://b/{}", "k".repeat(1025)), "1,024 bytes");
        check("s3://key:secret@b/x", "credentials");
        check("file://host/a", "this machine");
        check("file:///a%zz", "%25");
        check("file:///a%ff", "escape");
        check("file:///a%00b", "NUL");
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
        for base in ["/d", "/", "http://h/d", "http://h", "s3://b/d", "s3://b", "dav://h:1/d"] {
            let joined = parse(base).unwrap().join(odd).unwrap();
            assert_eq!(joined.file_name(), odd, "{joined}");
            assert_eq!(joined.name_below(&parse(base).unwrap()).as_deref(), Some(odd));
            assert_eq!(parse(base).unwrap().name_below(&joined), None);
            assert_eq!(joined.to_string().parse::<Location>().unwrap(), joined);
        }
        let joined = parse("http://h/d?t=1").unwrap().join("x").unwrap();
        assert!(joined.as_str().starts_with("http://h/d/x?hidden="), "{joined}");
    }

    proptest! {
        #[test]
        fn any_path_round_trips(path in "(/|\\.\\.|[^\\x00]){0,40}", base in "/([^\\x00/]{1,8}/?){0,4}") {
            // Only a text that is a URL may be refused.
            if let Ok(location) = Location::parse(&path, Path::new(&base)) {
                let text = location.to_string();
                prop_assert_eq!(&text.parse::<Location>().unwrap(), &location);
                prop_assert_eq!(&Location::parse(&text, Path::new("/elsewhere")).unwrap(), &location);
                let url = crate::url_of_path(location.as_str());
                prop_assert!(location.path().is_none() || url.parse::<Location>().unwrap() == location);
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
