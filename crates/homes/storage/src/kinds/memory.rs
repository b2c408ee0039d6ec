//! Homes in memory, for the tests of this crate alone: a whole kind of home in one file, with one line in `kind.rs`.

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::version::Version;
use crate::{Capabilities, Home, HomesConfig, Listed, Listing, Location, Opened, Put, Stat};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CAPABILITIES: Capabilities = Capabilities {
    name: "memory",
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: false,
    list: false,
    remove: true,
    local_path: false,
    directories: false,
    rename: false,
    make_directory: false,
    modes: false,
};

pub(crate) struct Memory;

impl Kind for Memory {
    fn schemes(&self) -> &'static [&'static str] {
        &["memory"]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let Some(path) = percent_decode(url.rest).filter(|path| path.contains('/')) else {
            return Err(Refusal::new("names no object", "write memory://NAME/PATH"));
        };
        out.push_str("memory://");
        push_encoded(out, &path, is_path_mark, false);
        Ok(Spelling::Url)
    }

    fn open(&self, _config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(MemoryHome::default()))
    }
}

/// The bytes of each object, and how many were written before it.
#[derive(Default)]
struct MemoryHome(Mutex<BTreeMap<Location, (Arc<[u8]>, u64)>>);

impl MemoryHome {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<Location, (Arc<[u8]>, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, operation: &'static str, location: &Location) -> Result<(Arc<[u8]>, Stat)> {
        match self.objects().get(location) {
            Some((bytes, number)) => Ok((bytes.clone(), stat_of(bytes, *number))),
            None => Err(missing(operation, location)),
        }
    }
}

fn missing(operation: &'static str, location: &Location) -> Error {
    Error::new(ErrorKind::NotFound, Status::Permanent, operation, location, "there is no such object")
}

fn stat_of(bytes: &[u8], number: u64) -> Stat {
    let size_bytes = bytes.len() as u64;
    Stat { size_bytes, version: Version::from_text(format!("size={size_bytes};number={number}")) }
}

impl Home for MemoryHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        self.find("stat", location).map(|(_, stat)| stat)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        let (bytes, stat) = self.find("read", location)?;
        let range = range.unwrap_or(0..stat.size_bytes);
        if range.start > range.end || range.end > stat.size_bytes {
            return Err(Error::range_outside("read", location, &range, stat.size_bytes));
        }
        let wanted = bytes[range.start as usize..range.end as usize].to_vec();
        let reader = Box::new(std::io::Cursor::new(wanted));
        Ok(Opened { location: location.clone(), stat, range, reader, file: None, times: vec![] })
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes).map_err(|error| Error::from_read("write", location, error))?;
        put.may_appear(location)?;
        let mut objects = self.objects();
        let number = objects.values().map(|(_, number)| number + 1).max().unwrap_or(0);
        let stat = stat_of(&bytes, number);
        objects.insert(location.clone(), (bytes.into(), number));
        Ok(stat)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        Err(Error::unsupported("list", listing.directory(), CAPABILITIES.name))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        self.objects().remove(location).map(drop).ok_or_else(|| missing("remove", location))
    }
}

#[test]
fn conformance_through_the_list_of_kinds() {
    let base: Location = "Memory://a/b".parse().unwrap();
    assert_eq!(base.as_str(), "memory://a/b");
    let homes = crate::Homes::new(HomesConfig::default()).unwrap();
    crate::conformance::run(&**homes.get(&base), &base);
}
