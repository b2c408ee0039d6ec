//! Random trees: what is packed is unpacked as it was, equal trees are equal bytes, and no other bytes are taken.

use eyas_folder::{Error, MAGIC, Modes, Packed, Times, Tree, time_of, unpack};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A directory in memory: the naive twin of what is on the disk.
type Dir = BTreeMap<Vec<u8>, Node>;

#[derive(Debug, Clone, PartialEq)]
enum Node {
    File { bytes: Vec<u8>, is_program: bool },
    Link(Vec<u8>),
    Dir(Dir),
}

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, so that names are often prefixes of each other; among them bytes that are no UTF-8.
    let letter =
        prop_oneof![Just(b'a'), Just(b'.'), Just(b'-'), Just(b' '), Just(b'\n'), Just(0xff), Just(0xc3)];
    prop::collection::vec(letter, 1..4).prop_filter("a name", |name| name != b"." && name != b"..")
}

fn a_dir() -> impl Strategy<Value = Dir> {
    let leaf = prop_oneof![
        3 => (prop::collection::vec(any::<u8>(), 0..40), any::<bool>())
            .prop_map(|(bytes, is_program)| Node::File { bytes, is_program }),
        1 => prop_oneof![Just(b"a".to_vec()), Just(b"a/b".to_vec()), Just(b"./\xff".to_vec())].prop_map(Node::Link),
    ];
    let node = leaf.prop_recursive(4, 40, 6, |inner| {
        prop::collection::btree_map(a_name(), inner, 0..6).prop_map(Node::Dir)
    });
    prop::collection::btree_map(a_name(), node, 0..6)
}

/// Makes it; `backwards`: in the other order, and by names that are changed afterwards.
fn make(dir: &Dir, at: &Path, backwards: bool) {
    fs::create_dir(at).unwrap();
    let mut all: Vec<_> = dir.iter().collect();
    if backwards {
        all.reverse();
    }
    for (name, node) in all {
        let path = at.join(OsString::from_vec(name.clone()));
        match node {
            Node::Dir(inner) => make(inner, &path, backwards),
            Node::Link(target) => symlink(OsString::from_vec(target.clone()), &path).unwrap(),
            Node::File { bytes, is_program } => {
                fs::write(&path, bytes).unwrap();
                let mode = match (is_program, backwards) {
                    (true, false) => 0o755,
                    (true, true) => 0o700,
                    (false, false) => 0o644,
                    (false, true) => 0o606,
                };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

fn read(at: &Path) -> Dir {
    let mut dir = Dir::new();
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        let node = if kind.is_dir() {
            Node::Dir(read(&path))
        } else if kind.is_symlink() {
            Node::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            Node::File { bytes: fs::read(&path).unwrap(), is_program: mode & 0o100 != 0 }
        };
        dir.insert(entry.file_name().into_vec(), node);
    }
    dir
}

fn pack(at: &Path) -> Vec<u8> {
    let tree = Tree::of(at).unwrap();
    let size_bytes = tree.size_bytes();
    let mut bytes = vec![];
    Packed::new(at, tree).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, size_bytes, "the size is known before");
    bytes
}

fn unpack_to(mut bytes: &[u8], at: &Path) -> Result<(), Error> {
    fs::create_dir(at).unwrap();
    unpack(&mut bytes, at, Modes::USUAL, Times::NOW, false, &mut || true)
}

/// What is outside of the directory that is unpacked into.
fn around(at: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unpacking_is_the_inverse_and_equal_trees_are_equal_bytes(dir in a_dir()) {
        let top = tempfile::tempdir().unwrap();
        make(&dir, &top.path().join("one"), false);
        make(&dir, &top.path().join("other"), true);
        let bytes = pack(&top.path().join("one"));
        prop_assert_eq!(&pack(&top.path().join("other")), &bytes);
        unpack_to(&bytes, &top.path().join("back")).unwrap();
        prop_assert_eq!(read(&top.path().join("back")), dir);
        prop_assert_eq!(pack(&top.path().join("back")), bytes);
    }

    #[test]
    fn other_trees_are_other_bytes(one in a_dir(), other in a_dir()) {
        let top = tempfile::tempdir().unwrap();
        make(&one, &top.path().join("one"), false);
        make(&other, &top.path().join("other"), false);
        prop_assert_eq!(pack(&top.path().join("one")) == pack(&top.path().join("other")), one == other);
    }

    /// Whatever is taken has one form, and nothing is made outside.
    #[test]
    fn bytes_that_were_changed_are_refused_or_those_of_another_tree(
        dir in a_dir(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(), Just(b'/'), Just(b'.'), Just(0), Just(b'l'), Just(b'd'), Just(b'f')
        ]), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let top = tempfile::tempdir().unwrap();
        make(&dir, &top.path().join("one"), false);
        let mut bytes = pack(&top.path().join("one"));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let back = top.path().join("back");
        if unpack_to(&bytes, &back).is_ok() {
            prop_assert_eq!(pack(&back), bytes);
        }
        prop_assert_eq!(around(top.path()), ["back", "one"]);
    }
}

/// The bytes of a directory with these entries, each with its letter and its name, and what follows them.
fn forged(entries: &[(u8, &[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (letter, name, rest) in entries {
        bytes.push(*letter);
        if *letter != b'.' {
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(*name);
        }
        bytes.extend(*rest);
    }
    bytes
}

const FIVE: &[u8] = b"\x05\0\0\0\0\0\0\0hello";
const END: (u8, &[u8], &[u8]) = (b'.', b"", b"");

#[test]
fn nothing_that_a_bad_peer_says_leads_out() {
    let link = |target: &str| [&(target.len() as u32).to_le_bytes()[..], target.as_bytes()].concat();
    let (up, abs, back) = (link("../outside"), link("/tmp"), link("a/../../outside"));
    let inside = link("b");
    for (entries, expect) in [
        (vec![(b'f', &b"../outside"[..], FIVE), END], "a path"),
        (vec![(b'f', b"/tmp/outside", FIVE), END], "a path"),
        (vec![(b'f', b"..", FIVE), END], "is none"),
        (vec![(b'd', b"..", b""), (b'f', b"outside", FIVE), END, END], "is none"),
        (vec![(b'd', b".", b""), END, END], "is none"),
        (vec![(b'f', b"", FIVE), END], "is none"),
        (vec![(b'f', b"a\0b", FIVE), END], "a path"),
        (vec![(b'l', b"a", &up), END], "leads out"),
        (vec![(b'l', b"a", &abs), END], "leads out"),
        (vec![(b'l', b"z", &back), END], "leads out"),
        // First a link, then something through it: no name is there twice.
        (vec![(b'l', b"a", &inside), (b'd', b"a", b""), (b'f', b"x", FIVE), END, END], "not in order"),
        (vec![(b'l', b"a", &inside), (b'f', b"a", FIVE), END], "not in order"),
        (vec![(b'f', b"b", FIVE), (b'f', b"a", FIVE), END], "not in order"),
        (vec![(b'f', b"a", b"\xff\xff\xff\xff\xff\xff\xff\x7fhello"), END], "end in its middle"),
        (vec![(b'p', b"a", b""), END], "unknown kind"),
        (vec![END, END], "go on behind"),
        (vec![(b'd', b"a", b""), END], "end in its middle"),
    ] {
        let top = tempfile::tempdir().unwrap();
        let error = unpack_to(&forged(&entries), &top.path().join("back")).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} for {expect}");
        assert_eq!(around(top.path()), ["back"]);
    }
    let top = tempfile::tempdir().unwrap();
    assert!(unpack_to(b"", &top.path().join("a")).is_err());
    assert!(
        unpack_to(b"!<arch>\nxyz", &top.path().join("b"))
            .unwrap_err()
            .to_string()
            .contains("begin otherwise")
    );
}

#[test]
fn what_is_no_file_and_links_that_lead_out_are_refused_by_name() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("d");
    let refused = |expect: &str| {
        let error = Tree::of(&dir).unwrap_err().to_string();
        assert_eq!(error, expect);
    };
    fs::create_dir_all(dir.join("sub")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.join("sub/s")).unwrap();
    refused("`sub/s` in it is a socket");
    drop(socket);
    fs::remove_file(dir.join("sub/s")).unwrap();
    symlink("../../etc", dir.join("sub/l")).unwrap();
    refused("`sub/l` in it is a symbolic link to `../../etc`, which leads out of the directory");
    fs::remove_file(dir.join("sub/l")).unwrap();
    symlink("/etc", dir.join("l")).unwrap();
    refused(
        "`l` in it is a symbolic link to `/etc`, which is an absolute path: elsewhere it leads to something else",
    );
    fs::remove_file(dir.join("l")).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "").unwrap();
    refused("it is a file, not a directory");
}

#[test]
fn what_changes_while_it_is_read_is_noticed() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("a"), "one").unwrap();
    for other in ["two and more", "2"] {
        fs::write(top.path().join("a"), "one").unwrap();
        let tree = Tree::of(top.path()).unwrap();
        fs::write(top.path().join("a"), other).unwrap();
        let error = Packed::new(top.path(), tree).read_to_end(&mut vec![]).unwrap_err();
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        assert!(matches!(inner, Some(Error::Changed { .. })), "{error}");
    }
}

#[test]
fn who_does_not_want_it_any_more_is_heard() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("one")).unwrap();
    fs::write(top.path().join("one/a"), vec![1; 1 << 20]).unwrap();
    let bytes = pack(&top.path().join("one"));
    fs::create_dir(top.path().join("back")).unwrap();
    let mut n_asked = 0;
    let ended =
        unpack(&mut &bytes[..], &top.path().join("back"), Modes::USUAL, Times::NOW, true, &mut || {
            n_asked += 1;
            n_asked < 2
        });
    assert!(matches!(ended, Err(Error::GivenUp)));
    assert!(fs::metadata(top.path().join("back/a")).unwrap().len() < 1 << 20);
}

#[test]
fn times_are_told_beside_the_bytes() {
    let top = tempfile::tempdir().unwrap();
    let one = top.path().join("one");
    fs::create_dir_all(one.join("d/e")).unwrap();
    symlink("d", one.join("c")).unwrap();
    for (i, name) in ["a", "d/e/f", "d/g", "h"].into_iter().enumerate() {
        let file = fs::File::create(one.join(name)).unwrap();
        file.set_modified(time_of(1_000_000_007 * i as i64 - 5)).unwrap();
    }
    let (tree, bytes) = (Tree::of(&one).unwrap(), pack(&one));
    for flush in [false, true] {
        let back = top.path().join(format!("back {flush}"));
        fs::create_dir(&back).unwrap();
        let times = Times { known: tree.times(), otherwise: Some(7) };
        unpack(&mut &bytes[..], &back, Modes::USUAL, times, flush, &mut || true).unwrap();
        assert_eq!(Tree::of(&back).unwrap().times(), tree.times());
        assert_eq!(pack(&back), bytes);
    }
    // What nobody knows has one time.
    let some = top.path().join("some");
    fs::create_dir(&some).unwrap();
    let times = Times { known: &tree.times()[..2], otherwise: Some(7) };
    unpack(&mut &bytes[..], &some, Modes::USUAL, times, false, &mut || true).unwrap();
    let expected = [tree.times()[0], tree.times()[1], 7, 7, 7, 7, 7];
    assert_eq!(Tree::of(&some).unwrap().times(), expected);
}
