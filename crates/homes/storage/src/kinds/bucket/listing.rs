//! Listings of flat names, from pages of keys, as if the parts of a key between its `/` were directories.

use super::bucket_and_key;
use crate::canonical::percent_decode;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::tree::{self, Children, Names, Tree};
use crate::{LeftOut, Listed, Listing, Location};

const LIST: &str = "list";

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

/// Gives a page of the keys of a bucket: of those that begin with the first text. Keys that have the second one behind it are told
/// as what they begin with; if it is empty, all keys are told. The third one is [`Page::next`] of the page before, or empty.
pub(super) type Pages<'a> = dyn Fn(&str, &str, &str) -> Result<Page> + 'a;

/// Calls `found` with each page of the keys that begin with `prefix`.
fn each_page(
    pages: &Pages<'_>,
    directory: &Location,
    prefix: &str,
    delimiter: &str,
    found: &mut dyn FnMut(Page),
) -> Result<()> {
    let mut token = String::new();
    loop {
        let mut page = pages(prefix, delimiter, &token)?;
        let next = page.next.take();
        found(page);
        match next {
            Some(next) if next == token => {
                let reason = "the server goes on with the same page for ever";
                return Err(Error::new(ErrorKind::Io, Status::Temporary, LIST, directory, reason));
            }
            Some(next) if !next.is_empty() => token = next,
            _ => return Ok(()),
        }
    }
}

/// [`crate::Home::list`], for a listing whose scheme is that of the home.
pub(super) fn list(pages: &Pages<'_>, listing: &Listing) -> Result<Listed> {
    let directory = listing.directory();
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
    pages: &'a Pages<'a>,
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
