//! What all homes of buckets share: `s3`, `gs` and `az` have flat names in a bucket, in which a `/` has no meaning of its own.
//!
//! * The text of a location, `SCHEME://BUCKET/KEY`. Escapes such as `%20` in a key are decoded, so a percent sign is written as
//!   `%25`; every other character means itself, `?` and `#` too.
//! * Listings, from pages of keys ([`Pages`]), as if the parts of a key between its `/` were directories.
//! * The sending of a large object's parts, several at once ([`send_parts`]).
//!
//! Not here: requests, credentials, and what a server's refusals mean.

pub(crate) mod signing;

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::put::given_up;
use crate::tree::{self, Children, Names, Tree};
use crate::{LeftOut, Listed, Listing, Location, Put};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

const WRITE: &str = "write";
const LIST: &str = "list";

/// Larger objects are sent in parts of this size. S3 wants at least 5 MiB, Google a multiple of 256 KiB.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Parts of one object that are on their way at the same time.
const PARTS_AT_ONCE: usize = 3;
/// The longest key that any of them allows.
const KEY_BYTES_MAX: usize = 1024;

/// Appends the canonical text of a URL whose scheme is `scheme`.
///
/// * `hint`: how such a URL is written.
pub(crate) fn canonical(
    url: Url<'_>,
    scheme: &'static str,
    hint: &'static str,
    out: &mut String,
) -> std::result::Result<Spelling, Refusal> {
    let (bucket, key) = url.rest.split_once('/').unwrap_or((url.rest, ""));
    if bucket.contains('@') || bucket.contains(':') {
        return Err(Refusal::of_credentials());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._$".contains(&byte);
    if bucket.is_empty() || !bucket.bytes().all(is_name) {
        return Err(Refusal::new("has no valid bucket name", hint));
    }
    let Some(key) = percent_decode(key) else {
        return Err(Refusal::new("has a `%` that begins no escape", "write %25 for a percent sign"));
    };
    if key.contains('\0') {
        return Err(Refusal::new("holds a NUL byte", None));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::new("has a key of more than 1,024 bytes, which no such home allows", None));
    }
    out.push_str(scheme);
    out.push_str("://");
    out.push_str(bucket);
    out.push('/');
    push_encoded(out, &key, is_path_mark, false);
    Ok(Spelling::Url)
}

/// The bucket and the percent-encoded key of a location.
pub(crate) fn bucket_and_key(location: &Location) -> (&str, &str) {
    let text = location.as_str();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split_once('/').unwrap_or((rest, ""))
}

/// [`bucket_and_key`] of an object of the home that has this scheme.
pub(crate) fn place_of<'a>(
    operation: &'static str,
    location: &'a Location,
    scheme: &str,
) -> Result<(&'a str, &'a str)> {
    check_scheme(operation, location, scheme)?;
    match bucket_and_key(location) {
        (_, "") => {
            let reason = "it names a bucket, and an object in it is needed";
            Err(Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason))
        }
        place => Ok(place),
    }
}

fn check_scheme(operation: &'static str, location: &Location, scheme: &str) -> Result<()> {
    match location.scheme() == scheme {
        true => Ok(()),
        false => {
            Err(Error::unsupported(operation, location, scheme).with_context("scheme", location.scheme()))
        }
    }
}

/// Appends a query to a URL, which has none yet.
pub(crate) fn push_query(url: &mut String, query: &[(&str, &str)]) {
    for (i, (name, value)) in query.iter().enumerate() {
        url.push(if i == 0 { '?' } else { '&' });
        url.push_str(name);
        url.push('=');
        push_encoded(url, value, |byte| b"-._~".contains(&byte), false);
    }
}

const OF_MARK: &str = "its key ends in `/`, so it can be no file";

impl Page {
    /// Adds a key with the size of its object, if that is known by now.
    pub(crate) fn add(&mut self, key: String, size_bytes: Option<u64>) {
        if key.ends_with('/') && size_bytes != Some(0) {
            self.marks.push(key.clone());
        }
        self.keys.push(key);
    }

    /// The object of the last key has no bytes.
    pub(crate) fn is_empty_object(&mut self) {
        self.marks.pop_if(|mark| self.keys.last() == Some(mark));
    }

    /// The last key is that of a directory.
    pub(crate) fn take_back(&mut self) {
        self.is_empty_object();
        self.keys.pop();
    }
}

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub keys: Vec<String>,
    /// Those of them that end in `/` and have bytes, so that they are more than the mark of a directory.
    pub marks: Vec<String>,
    /// What all keys below one `/` begin with, that sign included.
    pub prefixes: Vec<String>,
    /// Asks for the next page.
    pub next: Option<String>,
}

/// A home that can be asked which keys there are.
pub(crate) trait Pages {
    /// Its only scheme.
    fn scheme(&self) -> &'static str;

    /// A page of the keys of a bucket that begin with `prefix`.
    ///
    /// * `delimiter`: keys that have it behind the prefix are told as what they begin with. Empty: all keys are told.
    /// * `token`: [`Page::next`] of the page before, or empty.
    fn page(&self, directory: &Location, prefix: &str, delimiter: &str, token: &str) -> Result<Page>;
}

/// Calls `found` with each page of the keys that begin with `prefix`.
fn each_page(
    pages: &dyn Pages,
    directory: &Location,
    prefix: &str,
    delimiter: &str,
    found: &mut dyn FnMut(Page),
) -> Result<()> {
    let mut token = String::new();
    loop {
        let mut page = pages.page(directory, prefix, delimiter, &token)?;
        let next = page.next.take();
        found(page);
        match next {
            Some(next) if next != token && !next.is_empty() => token = next,
            _ => return Ok(()),
        }
    }
}

/// [`crate::Home::list`].
pub(crate) fn list(pages: &dyn Pages, listing: &Listing) -> Result<Listed> {
    let directory = listing.directory();
    check_scheme(LIST, directory, pages.scheme())?;
    // What a directory's keys begin with: its own key with a `/` behind it; nothing for a whole bucket.
    let mut prefix = percent_decode(bucket_and_key(directory).1).unwrap_or_default();
    if !prefix.is_empty() && !prefix.ends_with('/') {
        prefix.push('/');
    }
    let names = match listing {
        Listing::Glob { pattern, .. } => tree::glob(&Keys { pages, directory, prefix }, pattern)?,
        Listing::Under(_) => {
            let mut names = Names::default();
            let mut is_there = prefix.is_empty();
            each_page(pages, directory, &prefix, "", &mut |page| {
                is_there |= !page.keys.is_empty();
                let files = page.keys.iter().filter(|key| !key.ends_with('/'));
                names.found.extend(files.filter_map(|key| key.strip_prefix(&prefix)).map(str::to_owned));
                names.left_out.extend(page.marks.iter().map(|key| LeftOut::new(key, OF_MARK)));
            })?;
            if !is_there {
                return Err(nothing_below(directory));
            }
            names
        }
    };
    Ok(Listed::of(directory, names))
}

/// The keys below a directory, one level at a time.
struct Keys<'a> {
    pages: &'a dyn Pages,
    directory: &'a Location,
    prefix: String,
}

impl Tree for Keys<'_> {
    fn children(&self, directory: &str, begins: &str) -> Result<Children> {
        let above = format!("{}{directory}", self.prefix);
        let mut children = Children::default();
        let mut is_there = false;
        each_page(self.pages, self.directory, &format!("{above}{begins}"), "/", &mut |page| {
            is_there |= !page.keys.is_empty() || !page.prefixes.is_empty();
            let name = |key: &String| key.strip_prefix(&above).map(str::to_owned);
            // A key that ends in `/` marks a directory and is no file.
            children.files.extend(page.keys.iter().filter_map(name).filter(|name| !name.is_empty()));
            let cut = |name: String| name.strip_suffix('/').map(str::to_owned);
            // Keys with an empty part, as `a//b`, have a directory without a name.
            children.directories.extend(page.prefixes.iter().filter_map(name).filter_map(cut));
            let marks = page.marks.iter().filter_map(name);
            children.left_out.extend(marks.map(|name| (name, OF_MARK.to_owned())));
        })?;
        // A directory is there as long as a key is below it; a bucket always.
        if !is_there && !begins.is_empty() && !above.is_empty() {
            each_page(self.pages, self.directory, &above, "/", &mut |page| {
                is_there |= !page.keys.is_empty() || !page.prefixes.is_empty();
            })?;
        }
        match is_there || above.is_empty() {
            true => Ok(children),
            false => Err(nothing_below(self.directory)),
        }
    }
}

fn nothing_below(directory: &Location) -> Error {
    let reason = "there is no object whose key begins so";
    Error::new(ErrorKind::NotFound, Status::Permanent, LIST, directory, reason)
}

/// The next bytes of a source, fewer than `want_bytes` only at its end. `before_bytes` were read already.
pub(crate) fn read_part(
    location: &Location,
    body: &mut dyn Read,
    want_bytes: usize,
    before_bytes: u64,
    put: &Put,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut block = vec![0; 256 << 10];
    while bytes.len() < want_bytes {
        put.fence.may_go_on().map_err(|why| given_up(WRITE, location, why))?;
        let want = block.len().min(want_bytes - bytes.len());
        match body.read(&mut block[..want]) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let at = before_bytes + bytes.len() as u64;
                let context = format!("reading byte {at} of what was to be written");
                return Err(Error::from_read(WRITE, location, error).with_context("failed at", context));
            }
        }
    }
    Ok(bytes)
}

/// Sends `first`, which is a whole part, and what follows it in `body`, several parts at once. Gives the size of all.
///
/// * `part_bytes`: the size of the part with this number, from 1.
/// * `send`: sends one part, by its number. It tries again by itself.
pub(crate) fn send_parts(
    location: &Location,
    first: Vec<u8>,
    body: &mut dyn Read,
    put: &Put,
    part_bytes: fn(u32) -> usize,
    send: &(dyn Fn(u32, &[u8]) -> Result<()> + Sync),
) -> Result<u64> {
    let failed: Mutex<Option<Error>> = Mutex::default();
    let has_failed = || failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let mut size_bytes: u64 = 0;
    let (sender, receiver) = sync_channel::<(u32, Vec<u8>)>(0);
    let receiver = Mutex::new(receiver);
    let read = std::thread::scope(|scope| {
        // The channel is owned by the parts' reader, so that the threads end when it does.
        let sender = sender;
        for _ in 0..PARTS_AT_ONCE {
            scope.spawn(|| {
                while let Some((number, bytes)) = next_part(&receiver) {
                    // After a failure parts are taken and dropped, so that their reader does not wait for ever.
                    if has_failed() {
                        continue;
                    }
                    if let Err(error) = send(number, &bytes) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
        let mut number = 0;
        let mut bytes = first;
        loop {
            number += 1;
            size_bytes += bytes.len() as u64;
            let is_last = bytes.len() < part_bytes(number);
            // The threads end after this loop, not before.
            let _ = sender.send((number, bytes));
            if is_last || has_failed() {
                return Ok(());
            }
            bytes = read_part(location, body, part_bytes(number + 1), size_bytes, put)?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    read.map(|()| size_bytes)
}

fn next_part(parts: &Mutex<Receiver<(u32, Vec<u8>)>>) -> Option<(u32, Vec<u8>)> {
    parts.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
