//! Files of data sets as home storage: `data:LABEL/PATH`, `data:LABEL@VERSION/PATH`.
//!
//! What data sets are, a catalog knows, which stands above this crate. So the home itself is given by the program
//! ([`provide_data`]); here is only how its locations are written.
//!
//! A location that is written to may have tags behind a `?`, as in `data:LABEL/PATH?protein=adk&frames=90`. They belong to the
//! location's text, and mean nothing where it is read.

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::scheme::DATA;
use crate::{Capabilities, Home, HomesConfig, Listed, Listing, Location, Opened, PartPlace, Put, Stat};
use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What the home of data sets can do.
pub const DATA_CAPABILITIES: Capabilities = Capabilities {
    name: "data",
    read: true,
    read_range: false,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: false,
    list: true,
    remove: false,
    local_path: false,
    directories: false,
    rename: false,
    make_directory: false,
    modes: false,
};

type Provider = Box<dyn Fn() -> Arc<dyn Home> + Send + Sync>;

static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// How this process makes the home of data sets, whose capabilities are [`DATA_CAPABILITIES`]. Only the first call counts. It is made
/// whether it will be used or not, so it opens nothing before it is asked.
pub fn provide_data(provider: Provider) {
    PROVIDER.get_or_init(|| provider);
}

/// A file of a data set, as a location names it.
#[derive(Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// `LABEL` or `LABEL@VERSION`.
    pub key: String,
    /// The path in the data set; empty in the directory of a listing.
    pub path: String,
    /// `NAME=VALUE`.
    pub tags: Vec<String>,
}

impl DataPlace {
    /// The parts of a location; `None`: it is at another home.
    pub fn of(location: &Location) -> Option<DataPlace> {
        let rest = location.as_str().strip_prefix(DATA)?.strip_prefix("://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (key, path) = place.split_once('/')?;
        let tags = query.split('&').filter(|tag| !tag.is_empty()).map(percent_decode);
        Some(DataPlace { key: key.into(), path: percent_decode(path)?, tags: tags.collect::<Option<_>>()? })
    }
}

/// The label of the data set that a canonical location names a file of; `None`: it is at another home.
pub fn label_of(location: &str) -> Option<&str> {
    let rest = location.strip_prefix(DATA)?.strip_prefix("://")?;
    let (key, _) = rest.split_once('/')?;
    Some(key.split_once('@').map_or(key, |(label, _)| label))
}

/// An output that is to become a data set and is written without its path: `data:?TAG=VALUE` or `data:LABEL?TAG=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewData<'t> {
    /// Empty: it is to be made up.
    pub label: &'t str,
    tags: &'t str,
}

impl<'t> NewData<'t> {
    /// `None`: the text is another location.
    pub fn of(text: &'t str) -> Option<NewData<'t>> {
        let url = Url::split(text).filter(|url| url.scheme.eq_ignore_ascii_case(DATA))?;
        let (label, tags) = url.rest.split_once('?').filter(|(label, _)| !label.contains('/'))?;
        Some(NewData { label, tags })
    }

    /// Its location, with a label and the path of its file.
    pub fn location(&self, label: &str, path: &str) -> String {
        let path = path.replace('%', "%25").replace('?', "%3F");
        format!("{DATA}://{label}/{path}?{}", self.tags)
    }
}

pub(crate) struct Data;

impl Kind for Data {
    fn schemes(&self) -> &'static [&'static str] {
        &[DATA]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &DATA_CAPABILITIES
    }

    fn has_tags(&self) -> bool {
        true
    }

    fn knows_places(&self) -> bool {
        true
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let hint = "write data:LABEL/PATH, or data:LABEL@VERSION/PATH; `eyas data find` knows the labels; \
                    a file of that name is ./data:...";
        let (place, tags) =
            url.rest.split_once('?').map_or((url.rest, None), |(place, tags)| (place, Some(tags)));
        let (key, path) = place.split_once('/').ok_or(Refusal::new("names no file of a data set", hint))?;
        // The last one stands for what a template puts in.
        let is_key = |c: u8| c.is_ascii_alphanumeric() || b"_-.@\x01".contains(&c);
        if key.is_empty() || !key.bytes().all(is_key) {
            return Err(Refusal::new("has no valid label of a data set", hint));
        }
        let decoded = percent_decode(path)
            .ok_or(Refusal::new("has a wrong escape", "a percent sign is written %25"))?;
        if decoded.split('/').any(|part| matches!(part, "." | "..")) || decoded.contains(['\0']) {
            return Err(Refusal::new("leads out of its data set", hint));
        }
        out.push_str(DATA);
        out.push_str("://");
        push_encoded(out, key, |byte| is_path_mark(byte) || byte == b'@', true);
        for part in decoded.split('/').filter(|part| !part.is_empty()) {
            out.push('/');
            push_encoded(out, part, is_path_mark, false);
        }
        // The directory of a listing.
        if decoded.is_empty() || decoded.ends_with('/') {
            out.push('/');
        }
        let mut mark = '?';
        for tag in tags.unwrap_or_default().split('&').filter(|tag| !tag.is_empty()) {
            let why = "has a tag without a value behind the `?`";
            let tag = percent_decode(tag).filter(|tag| tag.contains('='));
            let tag = tag.ok_or(Refusal::new(why, "write data:LABEL/PATH?NAME=VALUE&NAME=VALUE"))?;
            out.push(mark);
            push_encoded(out, &tag, |byte| byte != b'/' && is_path_mark(byte) || byte == b'=', false);
            mark = '&';
        }
        Ok(Spelling::Url)
    }

    fn open(&self, _config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(PROVIDER.get().map_or_else(|| Arc::new(Absent) as Arc<dyn Home>, |provider| provider()))
    }
}

/// The home of a program that has no catalog.
struct Absent;

impl Absent {
    fn refuse<T>(&self, operation: &'static str, location: &Location) -> Result<T> {
        let reason = "this program knows no catalog of data sets";
        Err(Error::new(ErrorKind::Unsupported, Status::Permanent, operation, location, reason))
    }
}

impl Home for Absent {
    fn capabilities(&self) -> &'static Capabilities {
        &DATA_CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        self.refuse("stat", location)
    }

    fn open(&self, location: &Location, _: Option<Range<u64>>) -> Result<Opened> {
        self.refuse("read", location)
    }

    fn put(&self, location: &Location, _: &mut dyn Read, _: &Put) -> Result<Stat> {
        self.refuse("write", location)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        self.refuse("list", listing.directory())
    }

    fn remove(&self, location: &Location) -> Result<()> {
        self.refuse("remove", location)
    }

    fn places(&self, _: &Location) -> Result<Vec<PartPlace>> {
        Ok(vec![])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_location() {
        for (text, expect) in [
            ("data:adk/frames.txt", "data://adk/frames.txt"),
            ("data://adk/frames.txt", "data://adk/frames.txt"),
            ("DATA:adk@3/log//run 1.txt", "data://adk@3/log/run%201.txt"),
            ("data:adk/50%25?a b=c/d&e=f%26g", "data://adk/50%25?a%20b=c%2Fd&e=f%26g"),
            ("data:adk/x?", "data://adk/x"),
            ("data:adk/x?at=/a/", "data://adk/x?at=%2Fa%2F"),
            ("data:adk/", "data://adk/"),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.as_str(), expect, "{text}");
            assert_eq!(location.as_str().parse::<Location>().unwrap(), location);
        }
        let location: Location = "data:adk@3/log/a%3Fb?x=1&y=a%26b".parse().unwrap();
        let place = DataPlace::of(&location).unwrap();
        assert_eq!((&*place.key, &*place.path), ("adk@3", "log/a?b"));
        assert_eq!(place.tags, ["x=1", "y=a&b"]);
        assert_eq!(location.file_name(), "a?b");
        assert_eq!(DataPlace::of(&"/data/adk/x".parse().unwrap()), None);
    }

    #[test]
    fn new_data_sets_get_their_paths() {
        let of = |text| NewData::of(text).map(|new| (new.label, new.location("made", "50%?.txt")));
        let whole = "data://made/50%25%3F.txt?a=b";
        assert_eq!(of("data:?a=b"), Some(("", whole.into())));
        assert_eq!(of("data://adk?a=b"), Some(("adk", whole.into())));
        assert_eq!(whole.parse::<Location>().unwrap().file_name(), "50%?.txt");
        for other in ["data:adk/x?a=b", "data:adk", "/data?a=b", "http://h?a=b"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn what_names_no_file_is_refused() {
        for (text, why) in [
            ("data:adk", "names no file"),
            ("data:/x", "label"),
            ("data:a b/x", "label"),
            ("data:adk/../x", "out of its data set"),
            ("data:adk/%zz", "%25"),
            ("data:adk/x?tag", "without a value"),
        ] {
            let error = text.parse::<Location>().unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
