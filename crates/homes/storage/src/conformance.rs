//! One suite for every adaptor: what a [`Home`] declares in its capabilities has to hold.
//!
//! Give it a location below which it may do as it likes. A home that cannot write has to hold [`objects`] there before.
//! Every finding is a panic that names the location.
//!
//! It is no part of `eyas`: tests of adaptors run it, and `eyas-lab homes` does at real servers. A feature that leaves it out
//! would only have everything compiled twice.

use crate::{Error, ErrorKind, Fence, Home, Listing, Location, Open, Part, Put, Stat, Status, Strength};
use std::io::{self, Read};
use std::sync::LazyLock;

/// As long as all homes allow, with room for what is put before it and for a temporary name.
static LONG: LazyLock<String> =
    LazyLock::new(|| [240, 240, 240, 150].map(|n| "long-name-".repeat(n / 10)).join("/"));

/// Name (relative, literal) and content of the objects that the suite reads.
pub fn objects() -> Vec<Object> {
    vec![
        ("empty", Vec::new()),
        ("one", b"x".to_vec()),
        ("a b/c'd\"e?f%41", b"odd name".to_vec()),
        ("-rf", b"leading dash".to_vec()),
        ("line\nbreak é*[1]", b"newline and wildcards".to_vec()),
        ("plus+and&is=semi;comma,tilde~at@dollar$bang!(1)", b"what queries and forms are made of".to_vec()),
        ("日本/e\u{301} und é", b"the same letter in two forms, and letters of three bytes".to_vec()),
        (&LONG, b"a long name".to_vec()),
        ("large", (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
    ]
}

/// Runs the whole suite.
pub fn run(home: &dyn Home, base: &Location) {
    run_on(home, base, &objects());
}

/// The suite for a server that takes no names with a line break in them.
pub fn run_without_line_breaks(home: &dyn Home, base: &Location) {
    run_with_names(home, base, |name| !name.contains('\n'));
}

/// The suite for a server, or a tool before it, that does not take all names. `takes`: whether it takes a relative one.
pub fn run_with_names(home: &dyn Home, base: &Location, takes: impl Fn(&str) -> bool) {
    let mut objects = objects();
    objects.retain(|(name, _)| takes(name));
    run_on(home, base, &objects);
}

/// An object that the suite reads.
type Object = (&'static str, Vec<u8>);

fn run_on(home: &dyn Home, base: &Location, objects: &[Object]) {
    let can = home.capabilities();
    let missing = base.join("missing").unwrap();
    if can.write {
        writing(home, base, objects);
        fencing(home, base);
    } else {
        let error = home.write(&missing, &mut io::empty(), None).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unsupported, Status::Permanent));
    }
    if can.read {
        reading(home, base, can.stat, objects);
    }
    if can.read_range {
        ranges(home, base, objects);
    }
    let is_unsupported = |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    if can.list {
        listing(home, base, objects);
    } else {
        is_unsupported(home.list(&Listing::Under(base.clone())).unwrap_err());
    }
    if !can.local_path {
        assert_eq!(home.local_path(&missing), None);
    }
    managing(home, base);
    if can.remove {
        removing(home, base, objects);
    } else {
        is_unsupported(home.remove(&missing).unwrap_err());
    }
}

/// Names, directories and permission bits, of homes that have them; the others refuse and change nothing.
fn managing(home: &dyn Home, base: &Location) {
    let can = home.capabilities();
    let at = |name: &str| base.join(name).unwrap();
    let is_unsupported = |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let kind_of = |error: Error| error.kind();
    if !can.make_directory {
        is_unsupported(home.make_directory(&at("folder/")).unwrap_err());
        is_unsupported(home.remove_directory(&at("folder/")).unwrap_err());
    }
    if !can.modes {
        is_unsupported(home.set_mode(&at("folder"), 0o600).unwrap_err());
    }
    if !can.rename {
        assert!(!home.rename(&at("missing"), &at("folder")).unwrap(), "it is left to the caller");
        return;
    }
    let bytes_of = |location: &Location| read(home, location, None);
    let write = |name: &str, bytes: &[u8]| home.write(&at(name), &mut &*bytes, None).unwrap();
    assert_eq!(home.rename(&at("no name"), &at("x")).map_err(kind_of), Err(ErrorKind::NotFound));
    write("named/a b%20", b"new");
    write("named/older", b"older");
    assert!(home.rename(&at("named/a b%20"), &at("named/older")).unwrap());
    assert_eq!(bytes_of(&at("named/older")).unwrap(), b"new", "an older object is replaced");
    assert_eq!(bytes_of(&at("named/a b%20")).map_err(kind_of), Err(ErrorKind::NotFound));
    assert!(home.rename(&at("named/older"), &at("above/é/[1]")).unwrap());
    assert_eq!(bytes_of(&at("above/é/[1]")).unwrap(), b"new", "parent directories are created");
    if can.modes {
        for mode in [0o600, 0o751, 0o644] {
            home.set_mode(&at("above/é/[1]"), mode).unwrap();
            assert_eq!(home.mode(&at("above/é/[1]")).unwrap(), Some(mode));
        }
        assert_eq!(home.set_mode(&at("no name"), 0o600).map_err(kind_of), Err(ErrorKind::NotFound));
    }
    if !can.make_directory {
        return;
    }
    write("above/file", b"1");
    assert_eq!(home.rename(&at("above"), &at("x")).map_err(kind_of), Err(ErrorKind::NotAFile));
    assert!(home.rename(&at("above/"), &at("whole/below")).unwrap());
    assert_eq!(bytes_of(&at("whole/below/é/[1]")).unwrap(), b"new");
    home.make_directory(&at("taken/")).unwrap();
    home.make_directory(&at("taken")).unwrap();
    write("taken/x", b"1");
    home.rename(&at("whole/"), &at("taken")).expect_err("a directory replaces nothing");
    assert_eq!(bytes_of(&at("taken/x")).unwrap(), b"1");
    assert!(home.make_directory(&at("taken/x")).is_err(), "there is a file of this name");
    write("single", b"2");
    home.rename(&at("single"), &at("taken")).expect_err("a file replaces no directory");
    home.write(&at("taken"), &mut &b"2"[..], None).expect_err("a file replaces no directory");
    home.rename(&at("taken/x"), &at("taken")).expect_err("nor the one that it is in");
    assert_eq!(bytes_of(&at("taken/x")).unwrap(), b"1");
    home.remove(&at("single")).unwrap();
    home.make_directory(&at("whole/a b/c")).unwrap();
    let listed = home.list(&Listing::Under(at("whole"))).unwrap();
    assert_eq!((listed.found.len(), listed.empty), (2, vec!["a b/c".to_owned()]));
    assert_eq!(home.remove_directory(&at("taken/x")).map_err(kind_of), Err(ErrorKind::NotAFile));
    assert_eq!(home.remove_directory(&at("whole")).unwrap(), 2);
    assert_eq!(home.remove_directory(&at("whole")).map_err(kind_of), Err(ErrorKind::NotFound));
    assert_eq!(home.remove_directory(&at("taken/")).unwrap(), 1);
    assert_eq!(home.remove_directory(&at("named/")).unwrap(), 0);
    // A server that has removed a directory may have been known to have it.
    write("whole/again", b"1");
    assert_eq!(home.remove_directory(&at("whole/")).unwrap(), 1);
}

/// Reads one range and checks that its metadata belongs to it.
fn read(home: &dyn Home, location: &Location, range: Option<std::ops::Range<u64>>) -> crate::Result<Vec<u8>> {
    let mut opened = home.open(location, range.clone())?;
    assert_eq!(&opened.location, location);
    assert_eq!(opened.range, range.unwrap_or(0..opened.stat.size_bytes), "{location}");
    let mut bytes = Vec::new();
    opened.reader.read_to_end(&mut bytes).map_err(|error| Error::from_read("read", location, error))?;
    assert_eq!(bytes.len() as u64, opened.range.end - opened.range.start, "{location}");
    // The end stays the end.
    assert_eq!(opened.reader.read(&mut [0; 1]).unwrap(), 0, "{location}");
    opened.check_unchanged().unwrap();
    Ok(bytes)
}

/// Two looks at one state of an object are the same, as far as its version says so.
fn agree(one: &Stat, other: &Stat, what: &str) {
    assert!(!one.version.contradicts(&other.version), "{what}: {one:?}, {other:?}");
    if one.version.strength() == Strength::Strong && other.version.strength() == Strength::Strong {
        assert_eq!(one, other, "{what}");
    }
}

fn writing(home: &dyn Home, base: &Location, objects: &[Object]) {
    for (name, bytes) in objects {
        let location = base.join(name).unwrap();
        let stat = home.write(&location, &mut &bytes[..], Some(bytes.len() as u64)).unwrap();
        assert_eq!(stat.size_bytes, bytes.len() as u64, "{location}");
        if home.capabilities().stat {
            agree(&home.stat(&location).unwrap(), &stat, "the version is that of the result");
        }
    }
    let deep = base.join("new/directories/x").unwrap();
    home.write(&deep, &mut &b"1"[..], None).unwrap();
    let old = home.stat(&deep).unwrap();
    let new = home.write(&deep, &mut &b"22"[..], None).unwrap();
    assert_ne!(old.version, new.version, "a replaced object has another version");
    if home.capabilities().read {
        assert_eq!(read(home, &deep, None).unwrap(), b"22");
    }
    // A source that breaks leaves the older object as it was.
    struct Breaks(bool);
    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(0);
            if std::mem::replace(&mut self.0, true) {
                Err(io::ErrorKind::BrokenPipe.into())
            } else {
                Ok(buffer.len())
            }
        }
    }
    let error = home.write(&deep, &mut Breaks(false), None).unwrap_err();
    assert_eq!(error.status(), Status::Temporary, "{error}");
    if home.capabilities().atomic_rename {
        agree(&home.stat(&deep).unwrap(), &new, "a failed write leaves the older object");
    }
    let fresh = base.join("new/never").unwrap();
    home.write(&fresh, &mut Breaks(false), None).unwrap_err();
    assert_eq!(home.stat(&fresh).unwrap_err().kind(), ErrorKind::NotFound, "a failed write leaves nothing");
    // An object that is long enough for every kind of home to write it in parts.
    let long = base.join("new/long").unwrap();
    let size_bytes = 17 * 1024 * 1024 + 1;
    let source = || io::repeat(7).take(size_bytes);
    let mut broken = source().take(9 * 1024 * 1024).chain(Breaks(true));
    home.write(&long, &mut broken, Some(size_bytes)).unwrap_err();
    assert_eq!(
        home.stat(&long).unwrap_err().kind(),
        ErrorKind::NotFound,
        "a write that broke leaves nothing"
    );
    let stat = home.write(&long, &mut source(), Some(size_bytes)).unwrap();
    assert_eq!(stat.size_bytes, size_bytes);
    agree(&home.stat(&long).unwrap(), &stat, "the version is that of the result");
    if home.capabilities().read {
        let bytes = read(home, &long, None).unwrap();
        assert!(bytes.len() as u64 == size_bytes && bytes.iter().all(|byte| *byte == 7), "{long}");
    }
    if home.capabilities().remove {
        home.remove(&long).unwrap();
    }
}

/// A writer that is stopped right before its name appears, and what happens meanwhile.
struct Stopped<'a>(&'a (dyn Fn() -> Result<(), String> + Sync));

impl Fence for Stopped<'_> {
    fn may_go_on(&self) -> Result<(), String> {
        Ok(())
    }

    fn may_appear(&self) -> Result<(), String> {
        (self.0)()
    }
}

fn fencing(home: &dyn Home, base: &Location) {
    let location = base.join("new/fenced").unwrap();
    fn put(fence: &dyn Fence, number: u32) -> Put<'_> {
        let part = Part { work: 1, epoch: 1, number, replaces: number > 1 };
        Put { size_hint_bytes: None, mode: None, modified_ns: None, times: &[], part, below: None, fence }
    }
    let refuse = || Err("of a test".to_string());
    let error = home.put(&location, &mut &b"refused"[..], &put(&Stopped(&refuse), 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GivenUp, "{error}");
    assert_eq!(
        home.stat(&location).unwrap_err().kind(),
        ErrorKind::NotFound,
        "a refused write leaves nothing"
    );
    if home.capabilities().fences {
        let overtaken = || {
            home.put(&location, &mut &b"later"[..], &put(&Open, 2)).unwrap();
            Ok(())
        };
        let error = home.put(&location, &mut &b"earlier"[..], &put(&Stopped(&overtaken), 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GivenUp, "{error}");
        if home.capabilities().read {
            assert_eq!(read(home, &location, None).unwrap(), b"later");
        }
    }
    let end = home.put(&location, &mut &b"latest"[..], &put(&Open, 3)).unwrap();
    assert_eq!(end.size_bytes, 6);
}

fn reading(home: &dyn Home, base: &Location, can_stat: bool, objects: &[Object]) {
    for (name, bytes) in objects {
        let location = base.join(name).unwrap();
        let opened = home.open(&location, None).unwrap();
        assert_eq!(opened.stat.size_bytes, bytes.len() as u64, "{location}");
        if can_stat {
            agree(&home.stat(&location).unwrap(), &opened.stat, "stat and open agree");
            if let Some(at_once) = home.stat_at_once(&location) {
                agree(&at_once, &opened.stat, "the same at once");
            }
        }
        drop(opened);
        assert!(read(home, &location, None).unwrap() == *bytes, "{location}: other bytes than written");
    }
    let missing = base.join("missing").unwrap();
    for error in [home.stat(&missing).err().filter(|_| can_stat), home.open(&missing, None).err()] {
        let Some(error) = error else { continue };
        assert_eq!((error.kind(), error.status()), (ErrorKind::NotFound, Status::Permanent), "{error}");
        assert!(error.to_string().contains("missing"), "{error}");
    }
    // Many readers at once, each with its own place.
    let (name, bytes) = objects.last().unwrap();
    let location = base.join(name).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read(home, &location, None).unwrap() == *bytes));
        }
    });
}

fn ranges(home: &dyn Home, base: &Location, objects: &[Object]) {
    for (name, bytes) in objects {
        let location = base.join(name).unwrap();
        let size = bytes.len() as u64;
        for range in [0..size, 0..size / 2, size / 3..size, size.saturating_sub(1)..size, 0..0, size..size] {
            let expect = &bytes[range.start as usize..range.end as usize];
            assert!(read(home, &location, Some(range.clone())).unwrap() == expect, "{location} {range:?}");
        }
        for range in [0..size + 1, size..size + 1, size + 1..size + 2, size + 1..size + 1] {
            let error = home.open(&location, Some(range.clone())).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidRange, "{range:?}: {error}");
        }
    }
}

fn listing(home: &dyn Home, base: &Location, objects: &[Object]) {
    let under = home.list(&Listing::Under(base.clone())).unwrap().found;
    for (name, _) in objects {
        let location = base.join(name).unwrap();
        assert!(under.binary_search(&location).is_ok(), "{location} is not listed");
        assert_eq!(home.list(&Listing::Under(base.clone())).unwrap().found, under, "the order is fixed");
    }
    let glob = |pattern: &str| {
        home.list(&Listing::Glob { directory: base.clone(), pattern: pattern.into() }).unwrap().found
    };
    assert_eq!(glob("l?rg*"), [base.join("large").unwrap()]);
    assert_eq!(glob("*.none"), []);
    let missing = base.join("missing").unwrap();
    assert_eq!(home.list(&Listing::Under(missing)).unwrap_err().kind(), ErrorKind::NotFound);
}

fn removing(home: &dyn Home, base: &Location, objects: &[Object]) {
    for (name, _) in objects {
        let location = base.join(name).unwrap();
        home.remove(&location).unwrap();
        assert_eq!(home.remove(&location).unwrap_err().kind(), ErrorKind::NotFound, "{location}");
    }
}
