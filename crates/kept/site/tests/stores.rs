//! A catalog whose sites are real stores, each served over TLS on loopback.

use eyas_catalog::{
    Arrivals, Aside, Caller, Catalog, Condition, Error, Folder, Holding, Joining, Key, NewSite, Permit, Put,
    Reach, Sealed, SitePlace, SiteState,
};
use eyas_data::{BLOCK_BYTES, Digest, GROUP_BYTES, Groups};
use eyas_keeping::sources::Load;
use eyas_site::{Remote, Store, StoreOptions, Stores};
use eyas_wire::identity::{Identity, Join};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const NOW: i64 = 1_800_000_000_000;

fn alice() -> Caller {
    Caller::user("alice")
}

/// A store in a folder. It ends when it is dropped; its connections are cut.
struct Served {
    path: PathBuf,
    join: String,
    address: String,
    store: Arc<Store>,
    runtime: Option<Runtime>,
}

impl Served {
    fn start(root: &Path, name: &str, options: StoreOptions) -> Served {
        Served::start_at(root, name, options, "127.0.0.1:0", &Identity::generate().unwrap())
    }

    fn start_at(root: &Path, name: &str, options: StoreOptions, at: &str, identity: &Identity) -> Served {
        let path = root.join(name);
        let folder = Folder::make(&path, name).unwrap();
        let store = Arc::new(Store::new(folder, options).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(at)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut join = Join::new(address.clone(), name.into(), path.display().to_string(), identity.clone());
        join.store = Some(name.into());
        let (serving, identity) = (store.clone(), identity.clone());
        runtime.spawn(async move { serving.serve(listener, &identity).await });
        let join = serde_json::to_string(&join).unwrap();
        Served { path, join, address, store, runtime: Some(runtime) }
    }

    fn remote(&self) -> Remote {
        Remote::connect(&self.join).unwrap()
    }

    fn add_to(&self, catalog: &Catalog) {
        let remote = self.remote();
        let new = NewSite {
            name: remote.name(),
            address: remote.address(),
            join: Some(&self.join),
            keep_bytes: remote.keep_bytes(),
            ..NewSite::default()
        };
        catalog.join_site(&alice(), &remote, &new, Joining::Comes, NOW).unwrap();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

fn catalog(root: &Path) -> Catalog {
    let url = format!("sqlite:{}", root.join("catalog.db").display());
    Catalog::init(&url, NOW).unwrap().reaching(Box::new(Stores))
}

/// Stores `one` and `two`, and a catalog whose sites they are.
fn two_stores(root: &Path) -> (Served, Served, Catalog) {
    let start = |name| Served::start(root, name, StoreOptions::default());
    let (one, two, catalog) = (start("one"), start("two"), catalog(root));
    one.add_to(&catalog);
    two.add_to(&catalog);
    (one, two, catalog)
}

/// Puts files of these names, whose contents begin with their names.
fn put(catalog: &Catalog, root: &Path, site: &str, files: &[(&str, usize)], copies: u32) -> Key {
    let source = root.join("source");
    let _ = fs::remove_dir_all(&source);
    for (name, n_bytes) in files {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(name, *n_bytes)).unwrap();
    }
    let sources = [source];
    let what =
        Put { sources: &sources, is_made: false, label: "set", copies: Some(copies), tags: &[], now_ms: NOW };
    let holding = catalog.holding(site).unwrap();
    eyas_catalog::put(catalog, &*holding, &alice(), &what, &mut |_, _| {}).unwrap().key
}

fn content(name: &str, n_bytes: usize) -> Vec<u8> {
    name.bytes().cycle().take(n_bytes).collect()
}

fn object_path(site: &Path, bytes: &[u8]) -> PathBuf {
    let name = Digest::of(bytes).to_string();
    site.join("objects").join(&name[..2]).join(name)
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Files of no bytes, of one, of some pieces and one byte, and below folders.
const FILES: [(&str, usize); 4] =
    [("empty", 0), ("one", 1), ("a/large", 3 * (256 << 10) + 1), ("a/b/c", 70_000)];

#[test]
fn data_is_put_into_stores_copied_between_them_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, catalog) = two_stores(dir.path());
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    assert!(catalog.sites().unwrap().iter().all(|site| site.is_store));
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.n_not_made, repair.short.len()), (4, 0, 0), "{repair:?}");
    assert_eq!(one.store.held_bytes(), two.store.held_bytes());

    // The first site loses one file and has another one damaged; what is read comes from the second one.
    let large = content("a/large", FILES[2].1);
    damage(&object_path(&one.path, &large));
    fs::remove_file(object_path(&one.path, b"o")).unwrap();
    let at_one = catalog.reader(&alice(), &key, NOW).unwrap().only_at("one").unwrap();
    for path in ["a/large", "one"] {
        assert!(at_one.get(at_one.file(path).unwrap(), &dir.path().join("bad")).is_err(), "{path}");
    }
    let target = dir.path().join("got");
    let got = catalog.reader(&alice(), &key, NOW).unwrap().get_all(&target).unwrap();
    assert_eq!(got.sites.iter().map(String::as_str).collect::<Vec<_>>(), ["one", "two"]);
    for (name, n_bytes) in FILES {
        assert!(fs::read(target.join(name)).unwrap() == content(name, n_bytes), "{name}");
    }
    // Both were noted as bad while they were read, and are made anew.
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.short.len()), (2, 0), "{repair:?}");
    let audit = catalog.audit("one", NOW, &mut |_| {}).unwrap();
    assert_eq!((audit.n_good, audit.bad.len(), audit.missing.len(), audit.foreign.len()), (4, 0, 0, 0));

    // The catalog is lost and made anew from one of the stores.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let anew = self::catalog(&other);
    let new = NewSite { name: "two", address: &two.address, join: Some(&two.join), ..NewSite::default() };
    let rebuilt = anew.rebuild(&alice(), &two.remote(), &new, NOW).unwrap();
    assert_eq!((rebuilt.n_versions, rebuilt.n_good, rebuilt.n_bad), (1, 4, 0));
    anew.reader(&alice(), &key, NOW).unwrap().get_all(&other.join("got")).unwrap();

    // What nobody needs is removed from the stores, and their room is free again; not from the one that was taken over.
    catalog.remove(&alice(), &"set".parse().unwrap(), NOW).unwrap();
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_removed, repair.away.len()), (4, 1), "{repair:?}");
    assert_eq!((one.store.held_bytes(), one.remote().objects().unwrap()), (0, vec![]));
    assert_eq!(two.remote().objects().unwrap().len(), 4);
}

#[test]
fn a_few_blocks_come_without_the_rest_of_their_group() {
    let dir = tempfile::tempdir().unwrap();
    let store = Served::start(dir.path(), "one", StoreOptions::default());
    let catalog = catalog(dir.path());
    store.add_to(&catalog);
    put(&catalog, dir.path(), "one", &FILES, 1);
    let large = content("a/large", FILES[2].1);
    let (digest, size) = (Digest::of(&large), large.len() as u64);
    let remote = store.remote();
    let values = remote.groups(digest, size).unwrap().unwrap();
    let groups = Groups::check(digest, size, values).unwrap();
    let blocks = remote.read_blocks(digest, 1, 2..5).unwrap().unwrap();
    let start = (GROUP_BYTES + 2 * BLOCK_BYTES) as usize;
    assert!(blocks.bytes == large[start..start + 3 * BLOCK_BYTES as usize]);
    assert_eq!(blocks.beside.len(), 4, "blocks 0 and 1, 5, 6 and 7, and 8 to 15");
    let block = BLOCK_BYTES as usize;
    assert!(groups.is_part(1, 2 * block, &blocks.bytes, &blocks.beside));
    // The last group has one byte.
    let last = remote.read_blocks(digest, 12, 0..1).unwrap().unwrap();
    assert!(groups.is_part(12, 0, &last.bytes, &last.beside));
    // What is not there is none, and does the store no harm.
    for (n, blocks) in [(12, 1..2), (13, 0..1), (1 << 40, 0..1), (u64::MAX, 0..255), (1, 200..255)] {
        let none = remote.read_blocks(digest, n, blocks).ok().flatten();
        assert!(none.is_none_or(|blocks| blocks.bytes.is_empty()), "{n}");
    }
    assert_eq!(remote.read_blocks(Digest::of(b"none"), 0, 0..1).unwrap(), None);
    damage(&object_path(&store.path, &large));
    let damaged = remote.read_blocks(digest, 0, 3..4).unwrap().unwrap();
    assert!(
        !groups.is_part(0, 3 * block, &damaged.bytes, &damaged.beside),
        "another block of the group is damaged"
    );
}

#[test]
fn a_store_that_is_away_is_named_and_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::generate().unwrap();
    let mut one = Served::start_at(dir.path(), "one", StoreOptions::default(), "127.0.0.1:0", &identity);
    let two = Served::start(dir.path(), "two", StoreOptions::default());
    let catalog = catalog(dir.path());
    one.add_to(&catalog);
    two.add_to(&catalog);
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    one.end();
    let error = catalog.audit("one", NOW, &mut |_| {}).unwrap_err();
    assert!(error.is_temporary());
    assert!(error.to_string().contains("the site `one` cannot be reached"), "{error}");
    let error = catalog.reader(&alice(), &key, NOW).unwrap().get_all(&dir.path().join("got")).unwrap_err();
    assert!(error.to_string().contains("`one` cannot be reached"), "{error}");
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(repair.away.len(), 1, "{repair:?}");
    assert_eq!((repair.n_copies, repair.short.len()), (0, 4), "{repair:?}");
    // A site that is away has lost nothing.
    assert!(catalog.whereabouts(&alice(), &key).unwrap().iter().all(|at| at.site == "one"));

    let address = one.address.clone();
    let back = Served::start_at(dir.path(), "one", StoreOptions::default(), &address, &identity);
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.n_not_made), (4, 0), "{repair:?}");
    // And at another address, with another key: the new join file is taken.
    drop(back);
    let moved = Served::start(dir.path(), "one", StoreOptions::default());
    moved.add_to(&catalog);
    assert_eq!(catalog.audit("one", NOW, &mut |_| {}).unwrap().n_good, 4);
}

#[test]
fn a_store_keeps_no_more_than_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { keep_bytes: Some(100_000), ..StoreOptions::default() };
    let one = Served::start(dir.path(), "one", options);
    let remote = one.remote();
    let mut batch = remote.batch().unwrap();
    batch.add(&mut content("x", 90_000).as_slice()).unwrap();
    batch.add(&mut content("y", 20_000).as_slice()).unwrap();
    let error = batch.keep().unwrap_err().to_string();
    assert!(error.contains("it keeps at most 100000 bytes"), "{error}");
    assert_eq!((remote.objects().unwrap(), one.store.held_bytes()), (vec![], 0));
    // The connection is good for the next batch, and equal objects count once.
    for _ in 0..2 {
        let mut batch = remote.batch().unwrap();
        batch.add(&mut content("x", 40_000).as_slice()).unwrap();
        batch.add(&mut content("x", 40_000).as_slice()).unwrap();
        batch.keep().unwrap();
        assert_eq!((remote.objects().unwrap().len(), one.store.held_bytes()), (1, 40_000));
    }
    remote.set_aside(&remote.objects().unwrap()).unwrap();
    remote.settle(&remote.aside().unwrap(), &[]).unwrap();
    assert_eq!((remote.objects().unwrap(), one.store.held_bytes()), (vec![], 0));
}

/// Gives some bytes and then fails.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the source is gone"));
        }
        let n = self.0.min(into.len());
        into[..n].fill(7);
        self.0 -= n;
        Ok(n)
    }
}

#[test]
fn what_is_taken_back_or_not_kept_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let remote = one.remote();
    let mut batch = remote.batch().unwrap();
    let (first, _) = batch.add(&mut b"first".as_slice()).unwrap();
    batch.add(&mut Failing(300_000)).unwrap_err();
    batch.undo().unwrap();
    batch.add(&mut b"second".as_slice()).unwrap();
    batch.undo().unwrap();
    let (third, _) = batch.add(&mut b"third".as_slice()).unwrap();
    batch.keep().unwrap();
    let mut kept = vec![first, third];
    kept.sort();
    assert_eq!((remote.objects().unwrap(), one.store.held_bytes()), (kept, 10));
    let mut batch = remote.batch().unwrap();
    batch.add(&mut content("z", 1_000_000).as_slice()).unwrap();
    drop(batch);
    let since = Instant::now();
    while one.store.held_bytes() != 10 || fs::read_dir(one.path.join("incoming")).unwrap().next().is_some() {
        assert!(since.elapsed() < Duration::from_secs(20), "what was not kept is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(remote.objects().unwrap().len(), 2);
}

/// Ten thousand digests fit in one request; conditions come back for the right ones.
#[test]
fn many_objects_are_verified_where_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let remote = one.remote();
    let mut batch = remote.batch().unwrap();
    let mut digests: Vec<Digest> =
        (0..30).map(|n: u32| batch.add(&mut n.to_string().as_bytes()).unwrap().0).collect();
    batch.keep().unwrap();
    damage(&object_path(&one.path, b"7"));
    digests.extend((0..11_000_u32).map(|n| Digest::of(&(n + 1_000_000).to_le_bytes())));
    let mut found = vec![None; digests.len()];
    remote
        .verify_all(&digests, &mut |n, condition| assert_eq!(found[n].replace(condition), None, "{n}"))
        .unwrap();
    for (n, condition) in found.into_iter().enumerate() {
        let expected = match n {
            7 => Condition::Bad,
            0..30 => Condition::Good,
            _ => Condition::Missing,
        };
        assert_eq!(condition, Some(expected), "{n}");
    }
}

#[test]
fn only_the_join_file_of_a_store_lets_in() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (
        Served::start(dir.path(), "one", StoreOptions::default()),
        Served::start(dir.path(), "two", StoreOptions::default()),
    );
    let refusal = |text: &str| Remote::connect(text).err().expect("it is refused").to_string();
    let of_one: Join = serde_json::from_str(&one.join).unwrap();
    let changed = |change: &dyn Fn(&mut Join)| {
        let mut join = of_one.clone();
        change(&mut join);
        serde_json::to_string(&join).unwrap()
    };
    let text = refusal(&changed(&|join| join.address.clone_from(&two.address)));
    assert!(text.contains("does not accept this join file"), "{text}");
    let text = refusal(&changed(&|join| join.store = None));
    assert!(text.contains("not of a store"), "{text}");
    let text = refusal(&changed(&|join| join.address = "127.0.0.1:1".into()));
    assert!(text.contains("is `eyas store` running there?"), "{text}");
    assert!(refusal("{}").contains("damaged"), "{}", refusal("{}"));
    // A catalog that has one store under another's name is answered in words.
    let catalog = catalog(dir.path());
    let new = NewSite { name: "three", address: &one.address, join: Some(&one.join), ..NewSite::default() };
    catalog.add_site(&alice(), &new, NOW).unwrap();
    let error = catalog.holding("three").err().unwrap().to_string();
    assert!(error.contains("is the site `one` now, not `three`"), "{error}");
}

#[test]
fn a_draining_store_gives_its_copies_to_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (
        Served::start(dir.path(), "one", StoreOptions::default()),
        Served::start(
            dir.path(),
            "two",
            StoreOptions { rate_bytes_per_s: Some(4 << 20), ..StoreOptions::default() },
        ),
    );
    let catalog = catalog(dir.path());
    one.add_to(&catalog);
    two.add_to(&catalog);
    let key = put(&catalog, dir.path(), "one", &FILES, 1);
    catalog.set_site_state(&alice(), "one", SiteState::Draining, NOW).unwrap();
    let since = Instant::now();
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    // 857,000 bytes at 4 MiB/s, of which a tenth of a second was saved up.
    assert!(since.elapsed() >= Duration::from_millis(80), "the rate is kept: {:?}", since.elapsed());
    assert_eq!((repair.n_copies, repair.short.len()), (4, 0), "{repair:?}");
    drop(one);
    catalog.reader(&alice(), &key, NOW).unwrap().get_all(&dir.path().join("got")).unwrap();
}

/// What a member may say and a catalog never does: the connection is ended or answered, and the store goes on.
#[test]
fn a_member_that_says_odd_things_does_not_end_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let join: Join = serde_json::from_str(&one.join).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut seed = 7_u64;
    for _ in 0..200 {
        runtime.block_on(async {
            let (mut reader, writer) = eyas_net::connect(&one.address, &join.identity).await.unwrap();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let bytes = seed.to_le_bytes();
                // The number of a request, and then bytes that stand for its content.
                writer.send(&(bytes[7] % 18, bytes[6], bytes[5]));
            }
            let answer = tokio::time::timeout(Duration::from_millis(20), reader.next::<u64>()).await;
            drop((answer, writer));
        });
    }
    let remote = one.remote();
    let mut batch = remote.batch().unwrap();
    batch.add(&mut b"whole".as_slice()).unwrap();
    batch.keep().unwrap();
    assert_eq!(remote.objects().unwrap(), [Digest::of(b"whole")]);
    assert!(fs::read_dir(one.path.join("seals")).unwrap().next().is_none());
}

/// Another catalog may not use a store, unless it takes it over because the first one is lost.
#[test]
fn a_store_belongs_to_one_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let first = catalog(dir.path());
    one.add_to(&first);
    let key = put(&first, dir.path(), "one", &FILES, 1);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let second = catalog(&other);
    let remote = one.remote();
    let new = NewSite { name: "one", address: &one.address, join: Some(&one.join), ..NewSite::default() };
    let refused = second.join_site(&alice(), &remote, &new, Joining::Comes, NOW).unwrap_err().to_string();
    assert!(refused.contains("belongs to another catalog"), "{refused}");
    assert_eq!(second.sites().unwrap(), []);
    second.rebuild(&alice(), &remote, &new, NOW).unwrap();
    second.reader(&alice(), &key, NOW).unwrap().get_all(&other.join("got")).unwrap();
    // The first one may not remove what is not its own any more.
    let refused = first.holding("one").err().unwrap().to_string();
    assert!(refused.contains("belongs to another catalog"), "{refused}");
}

/// A store of the same name with another folder is not taken for the one that is known.
#[test]
fn another_folder_of_the_same_name_replaces_nothing_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a"), dir.path().join("b"));
    let mut one = Served::start(&first, "one", StoreOptions::default());
    let two = Served::start(dir.path(), "two", StoreOptions::default());
    let catalog = catalog(dir.path());
    one.add_to(&catalog);
    two.add_to(&catalog);
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let empty = Served::start(&second, "one", StoreOptions::default());
    let remote = empty.remote();
    let new = NewSite { name: "one", address: &empty.address, join: Some(&empty.join), ..NewSite::default() };
    let refused = catalog.join_site(&alice(), &remote, &new, Joining::Comes, NOW).unwrap_err().to_string();
    assert!(refused.contains("this is another folder") && refused.contains("--replace"), "{refused}");
    assert_eq!(catalog.audit("one", NOW, &mut |_| {}).unwrap().n_good, 4);
    // The disk is gone for good: the new folder takes its place, and the repair sees that it is empty.
    one.end();
    catalog.join_site(&alice(), &remote, &new, Joining::Replaces, NOW).unwrap();
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.short.len()), (4, 0), "{repair:?}");
    assert_eq!(catalog.audit("one", NOW, &mut |_| {}).unwrap().n_good, 4);
    drop(two);
    catalog.reader(&alice(), &key, NOW).unwrap().get_all(&dir.path().join("got")).unwrap();
}

/// A copy that was missing and is there again is a copy again.
#[test]
fn copies_that_come_back_are_taken_in() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let catalog = catalog(dir.path());
    one.add_to(&catalog);
    let key = put(&catalog, dir.path(), "one", &FILES, 1);
    fs::rename(one.path.join("objects"), dir.path().join("aside")).unwrap();
    fs::create_dir(one.path.join("objects")).unwrap();
    assert_eq!(catalog.audit("one", NOW, &mut |_| {}).unwrap().missing.len(), 4);
    fs::remove_dir(one.path.join("objects")).unwrap();
    fs::rename(dir.path().join("aside"), one.path.join("objects")).unwrap();
    // One of them is damaged: it stays what it is.
    damage(&object_path(&one.path, b"o"));
    let audit = catalog.audit("one", NOW, &mut |_| {}).unwrap();
    assert_eq!((audit.n_good, audit.found.len(), audit.foreign.len()), (3, 3, 1), "{audit:?}");
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(repair.short.len(), 1, "{repair:?}");
    damage(&object_path(&one.path, b"o"));
    catalog.audit("one", NOW, &mut |_| {}).unwrap();
    catalog.reader(&alice(), &key, NOW).unwrap().get_all(&dir.path().join("got")).unwrap();
}

/// What is no file is no copy, holds nothing up, and makes way for a good one.
#[test]
fn odd_things_in_the_place_of_objects_are_bad_copies() {
    let dir = tempfile::tempdir().unwrap();
    let (one, _two, catalog) = two_stores(dir.path());
    put(&catalog, dir.path(), "one", &FILES, 2);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let place = |n: usize| {
        let path = object_path(&one.path, &content(FILES[n].0, FILES[n].1));
        fs::remove_file(&path).unwrap();
        path
    };
    let fifo = std::ffi::CString::new(place(1).to_str().unwrap()).unwrap();
    // SAFETY: the path ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let directory = place(2);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("x"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place(3)).unwrap();
    let audit = catalog.audit("one", NOW, &mut |_| {}).unwrap();
    assert_eq!((audit.n_good, audit.bad.len(), audit.missing.len()), (1, 3, 0), "{audit:?}");
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().n_copies, 3);
    assert_eq!(catalog.audit("one", NOW, &mut |_| {}).unwrap().n_good, 4);
}

/// A site that is away or cannot be written to is no site without room.
#[test]
fn what_is_short_for_sites_that_take_nothing_now_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, mut two, catalog) = two_stores(dir.path());
    put(&catalog, dir.path(), "one", &FILES, 2);
    let incoming = two.path.join("incoming");
    fs::remove_dir_all(&incoming).unwrap();
    fs::write(&incoming, "in the way").unwrap();
    let is_short = |away: &str| {
        let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
        let reasons: HashSet<_> =
            repair.short.iter().map(|short| eyas_catalog::reason_of(short.reason)).collect();
        assert_eq!(reasons, HashSet::from(["no other site can take a copy now"]), "{away}: {repair:?}");
        assert!(repair.away.iter().any(|(site, _)| site == "two"), "{away}: {repair:?}");
    };
    is_short("cannot be written to");
    two.end();
    is_short("does not answer");
}

/// A site that has no room gets what fits, and others get the rest; a bad copy goes once there are enough good ones.
#[test]
fn a_store_without_room_keeps_nothing_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let limit = StoreOptions { keep_bytes: Some(100_000), ..StoreOptions::default() };
    let small = Served::start(dir.path(), "small", limit);
    let catalog = catalog(dir.path());
    one.add_to(&catalog);
    small.add_to(&catalog);
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    let repair = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.n_not_made, repair.away.len()), (3, 0, 0), "{repair:?}");
    let reasons: Vec<_> = repair.short.iter().map(|short| eyas_catalog::reason_of(short.reason)).collect();
    assert_eq!(reasons, ["the other sites have no room"]);

    let two = Served::start(dir.path(), "two", StoreOptions::default());
    two.add_to(&catalog);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    // A bad copy at a site that gets no new ones goes away, too.
    catalog.set_copies(&alice(), &key, 1, NOW).unwrap();
    damage(&object_path(&small.path, b"o"));
    assert_eq!(catalog.audit("small", NOW, &mut |_| {}).unwrap().bad.len(), 1);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let audit = catalog.audit("small", NOW, &mut |_| {}).unwrap();
    assert_eq!((audit.bad.len(), audit.foreign.len()), (0, 0), "{audit:?}");
    assert!(!object_path(&small.path, b"o").exists());
}

/// Sites that are rebuilt from do not bring back what was removed.
#[test]
fn what_was_removed_stays_removed_when_the_catalog_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let first = catalog(dir.path());
    one.add_to(&first);
    put(&first, dir.path(), "one", &FILES, 1);
    first.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(fs::read_dir(one.path.join("seals")).unwrap().count(), 1);
    first.remove(&alice(), &"set".parse().unwrap(), NOW).unwrap();
    first.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(fs::read_dir(one.path.join("seals")).unwrap().count(), 0);
}

/// A folder in which somebody puts a file while its objects are listed, and which does not reach others.
struct Busy {
    folder: Folder,
    meanwhile: Box<dyn Fn() + Send + Sync>,
    /// How often it has tried to reach one.
    n_tries: Arc<AtomicUsize>,
}

impl Holding for Busy {
    fn objects(&self) -> eyas_catalog::Result<Vec<Digest>> {
        let listed = self.folder.objects();
        (self.meanwhile)();
        listed
    }
    fn permit(&self, _: &[Digest]) -> eyas_catalog::Result<Option<Permit>> {
        Ok(Some(Permit { address: "127.0.0.1:1".into(), key: vec![] }))
    }
    fn fetch(
        &self,
        _: &Permit,
        _: &[Digest],
        _: &mut dyn FnMut(usize, Condition),
    ) -> eyas_catalog::Result<bool> {
        self.n_tries.fetch_add(1, Ordering::Relaxed);
        Err(Error::Unreached { site: self.folder.name().into(), reason: "no way leads there".into() })
    }
    fn name(&self) -> &str {
        self.folder.name()
    }
    fn place(&self) -> &SitePlace {
        self.folder.place()
    }
    fn claim(&self, catalog: &str) -> eyas_catalog::Result<String> {
        self.folder.claim(catalog)
    }
    fn batch(&self) -> eyas_catalog::Result<Box<dyn Arrivals + '_>> {
        self.folder.batch()
    }
    fn open(&self, digest: Digest) -> eyas_catalog::Result<Option<Box<dyn Read + '_>>> {
        self.folder.open(digest)
    }
    fn verify_all(
        &self,
        digests: &[Digest],
        found: &mut dyn FnMut(usize, Condition),
    ) -> eyas_catalog::Result<()> {
        self.folder.verify_all(digests, found)
    }
    fn set_aside(&self, digests: &[Digest]) -> eyas_catalog::Result<()> {
        self.folder.set_aside(digests)
    }
    fn aside(&self) -> eyas_catalog::Result<Vec<Aside>> {
        self.folder.aside()
    }
    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> eyas_catalog::Result<()> {
        self.folder.settle(unneeded, needed)
    }
    fn seal(&self, key: &Key, text: &[u8]) -> eyas_catalog::Result<bool> {
        self.folder.seal(key, text)
    }
    fn unseal(&self, key: &Key) -> eyas_catalog::Result<()> {
        self.folder.unseal(key)
    }
    fn seal_digests(&self) -> eyas_catalog::Result<HashMap<String, Digest>> {
        self.folder.seal_digests()
    }
    fn seals(&self) -> eyas_catalog::Result<(Vec<Sealed>, Vec<String>)> {
        self.folder.seals()
    }
}

struct ReachBusy(PathBuf);

impl Reach for ReachBusy {
    fn reach(&self, _: &str, _: &str) -> eyas_catalog::Result<Box<dyn Holding>> {
        let (root, folder) = (self.0.clone(), Folder::open(&self.0.join("one"))?);
        let meanwhile = move || {
            let url = format!("sqlite:{}", root.join("catalog.db").display());
            let catalog = Catalog::open(&url, NOW).unwrap().reaching(Box::new(ReachBusy(root.clone())));
            put(&catalog, &root, "one", &FILES, 1);
        };
        Ok(Box::new(Busy { folder, meanwhile: Box::new(meanwhile), n_tries: Arc::default() }))
    }
}

/// Folders that do not reach each other.
struct ReachApart {
    root: PathBuf,
    n_tries: Arc<AtomicUsize>,
}

impl Reach for ReachApart {
    fn reach(&self, site: &str, _: &str) -> eyas_catalog::Result<Box<dyn Holding>> {
        let folder = Folder::open(&self.root.join(site))?;
        Ok(Box::new(Busy { folder, meanwhile: Box::new(|| ()), n_tries: self.n_tries.clone() }))
    }
}

/// Two sites that do not reach each other are not asked to in each repair: a try may take seconds.
#[test]
fn stores_that_do_not_reach_each_other_try_again_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let n_tries = Arc::new(AtomicUsize::new(0));
    let reach = ReachApart { root: dir.path().into(), n_tries: n_tries.clone() };
    let catalog = catalog(dir.path()).reaching(Box::new(reach));
    for name in ["one", "two"] {
        Folder::make(&dir.path().join(name), name).unwrap();
        let new = NewSite { name, address: "apart", join: Some("{}"), ..NewSite::default() };
        catalog.add_site(&alice(), &new, NOW).unwrap();
    }
    for (n, (seconds, expected)) in
        [(0, 1), (1, 1), (59, 1), (61, 2), (180, 2), (182, 3)].into_iter().enumerate()
    {
        let name = format!("f{n}");
        put(&catalog, dir.path(), "one", &[(&name, 1000 + n)], 2);
        let repair = catalog.repair(NOW + seconds * 1000, &mut |_| {}).unwrap();
        assert_eq!(repair.n_copies, 1, "a copy goes through this machine");
        assert_eq!(n_tries.load(Ordering::Relaxed), expected, "after {seconds} s");
    }
}

/// What is put while a site that came is compared with the catalog is not taken for lost.
#[test]
fn what_is_put_while_stock_is_taken_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    Folder::make(&dir.path().join("one"), "one").unwrap();
    let catalog = catalog(dir.path()).reaching(Box::new(ReachBusy(dir.path().into())));
    let new = NewSite { name: "one", address: "busy", join: Some("{}"), ..NewSite::default() };
    catalog.add_site(&alice(), &new, NOW).unwrap();
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let held = catalog.sites().unwrap()[0].n_replicas;
    assert_eq!(held, 4, "the copies that came are known");
}

/// What a store fetches from another one: the good objects are kept, and what is not as it should be is told.
#[test]
fn a_store_copies_from_another_one_what_its_permit_allows() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, _catalog) = two_stores(dir.path());
    let (from, to) = (one.remote(), two.remote());
    let mut batch = from.batch().unwrap();
    let contents: Vec<Vec<u8>> = FILES.iter().map(|(name, n_bytes)| content(name, *n_bytes)).collect();
    let mut digests: Vec<Digest> =
        contents.iter().map(|bytes| batch.add(&mut bytes.as_slice()).unwrap().0).collect();
    batch.keep().unwrap();
    damage(&object_path(&one.path, &contents[3]));
    let secret = digests.pop().unwrap();
    digests.extend([Digest::of(b"nowhere"), secret]);
    let fetch = |permit: &Permit, digests: &[Digest]| {
        let mut found = vec![None; digests.len()];
        to.fetch(permit, digests, &mut |n, condition| assert_eq!(found[n].replace(condition), None))
            .map(|is_done| (is_done, found))
    };
    let permit = from.permit(&digests).unwrap().unwrap();
    let expected =
        [Condition::Good, Condition::Good, Condition::Good, Condition::Missing, Condition::Bad].map(Some);
    assert_eq!(fetch(&permit, &digests).unwrap(), (true, expected.to_vec()));
    let mut kept = digests[..3].to_vec();
    kept.sort();
    assert_eq!(to.objects().unwrap(), kept);
    let n_bytes: usize = contents[..3].iter().map(Vec::len).sum();
    assert_eq!(two.store.held_bytes(), n_bytes as u64);
    assert_eq!(fs::read_dir(two.path.join("incoming")).unwrap().count(), 0);
    assert_eq!(from.take_reads().unwrap(), HashMap::new(), "a copy is no reading");

    // Nothing else can be done with the permit: no other object, no other request.
    to.set_aside(&to.objects().unwrap()).unwrap();
    to.settle(&to.aside().unwrap(), &[]).unwrap();
    let narrow = || from.permit(&digests[1..2]).unwrap().unwrap();
    assert_eq!(fetch(&narrow(), &digests[1..3]).unwrap(), (true, vec![Some(Condition::Good), None]));
    let mut join: Join = serde_json::from_str(&one.join).unwrap();
    join.identity = serde_json::from_slice(&narrow().key).unwrap();
    let refused = Remote::connect(&serde_json::to_string(&join).unwrap()).err().unwrap().to_string();
    assert!(refused.contains("the permit is for copying"), "{refused}");
    assert_eq!(from.objects().unwrap().len(), 4);

    // A store that cannot be reached, and a permit of another store.
    let away = Permit { address: "127.0.0.1:1".into(), ..permit.clone() };
    let error = fetch(&away, &digests).unwrap_err().to_string();
    assert!(error.contains("does not reach 127.0.0.1:1"), "{error}");
    let error = fetch(&Permit { address: two.address.clone(), ..permit }, &digests).unwrap_err().to_string();
    assert!(error.contains("does not accept"), "{error}");
}

/// The limits of both stores hold when they copy from each other.
#[test]
fn a_store_fetches_no_more_and_no_faster_than_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let limits = StoreOptions {
        keep_bytes: Some(1_000_000),
        rate_bytes_per_s: Some(1_000_000),
        ..StoreOptions::default()
    };
    let two = Served::start(dir.path(), "two", limits);
    let (from, to) = (one.remote(), two.remote());
    let mut batch = from.batch().unwrap();
    let small = batch.add(&mut content("s", 600_000).as_slice()).unwrap().0;
    let large = batch.add(&mut content("l", 1_100_000).as_slice()).unwrap().0;
    batch.keep().unwrap();
    let since = Instant::now();
    let permit = || from.permit(&[small, large]).unwrap().unwrap();
    to.fetch(&permit(), &[small], &mut |_, _| {}).unwrap();
    assert!(since.elapsed() > Duration::from_millis(400), "{:?}", since.elapsed());
    let error = to.fetch(&permit(), &[large], &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("it keeps at most 1000000 bytes"), "{error}");
    assert_eq!((to.objects().unwrap(), two.store.held_bytes()), (vec![small], 600_000));
    assert_eq!(to.place().rate_bytes_per_s, Some(1_000_000));
}

/// What readers take is counted once, whole or in parts; copies and audits are not.
#[test]
fn a_store_counts_what_it_gives_to_readers() {
    let dir = tempfile::tempdir().unwrap();
    let (one, _two, catalog) = two_stores(dir.path());
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    catalog.audit("one", NOW, &mut |_| {}).unwrap();
    let remote = one.remote();
    assert_eq!(remote.take_reads().unwrap(), HashMap::new());
    let large = Digest::of(&content("a/large", FILES[2].1));
    remote.read_at(large, 5..1005).unwrap();
    remote.groups(large, FILES[2].1 as u64).unwrap();
    let reader = catalog.reader(&alice(), &key, NOW).unwrap();
    reader.get(reader.file("a/b/c").unwrap(), &dir.path().join("got")).unwrap();
    // A program on the machine of the store reads its folder.
    let folder = Folder::open(&one.path).unwrap();
    folder.note_reads(&HashMap::from([(large, 30)]));
    let expected = HashMap::from([(large, 1030), (Digest::of(&content("a/b/c", 70_000)), 70_000)]);
    assert_eq!(remote.take_reads().unwrap(), expected);
    assert_eq!(remote.take_reads().unwrap(), HashMap::new());
}

/// A store that is busy with a transfer is asked after one that is idle; idle ones take turns.
#[test]
fn readers_go_to_the_store_that_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, catalog) = two_stores(dir.path());
    let key = put(&catalog, dir.path(), "one", &FILES, 2);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let (one, two) = (one.remote(), two.remote());
    let n_got = AtomicUsize::new(0);
    let from = || {
        let now_ms = NOW + n_got.fetch_add(1, Ordering::Relaxed) as i64;
        let reader = catalog.reader(&alice(), &key, now_ms).unwrap();
        let target = dir.path().join(format!("got-{now_ms}"));
        reader.get(reader.file("one").unwrap(), &target).unwrap().to_owned()
    };
    let idle = Load::default();
    let until = |store: &Remote, load: Load| {
        let begun = Instant::now();
        while store.load().unwrap() != load {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} is not {load:?}", store.name());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let both = [&one, &two];
    both.iter().for_each(|store| until(store, idle));
    assert_eq!([from(), from(), from(), from()], ["one", "two", "one", "two"]);
    for (busy, other) in [(&one, "two"), (&two, "one")] {
        // A batch is a transfer until it ends.
        let batch = busy.batch().unwrap();
        until(busy, Load { n_transfers: 1, ..idle });
        assert_eq!([from(), from(), from()], [other; 3]);
        drop(batch);
        until(busy, idle);
    }
    // Where both are busy, one of them is asked all the same.
    let _batches = both.map(|store| store.batch().unwrap());
    both.iter().for_each(|store| until(store, Load { n_transfers: 1, ..idle }));
    assert_ne!(from(), from());
    // The reader may have chosen.
    let reader = || catalog.reader(&alice(), &key, NOW).unwrap();
    let chosen = reader().only_at("one").unwrap();
    assert_eq!(chosen.get(chosen.file("one").unwrap(), &dir.path().join("chosen")).unwrap(), "one");
    assert!(reader().only_at("three").is_err_and(|error| error.to_string().contains("no site `three`")));
}

#[test]
fn connections_on_which_nothing_is_asked_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let idle: Vec<Remote> = (0..100).map(|_| one.remote()).collect();
    assert_eq!(one.remote().objects().unwrap(), []);
    assert_eq!(idle[0].objects().unwrap(), []);
}

#[test]
fn a_request_waits_where_as_many_are_served_as_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let one = Served::start(dir.path(), "one", StoreOptions::default());
    let (busy, other) = (one.remote(), one.remote());
    // A batch is served until it ends.
    let mut batches: Vec<_> = (0..64).map(|_| busy.batch().unwrap()).collect();
    for batch in &mut batches {
        batch.add(&mut b"x".as_slice()).unwrap();
    }
    let objects = std::thread::scope(|scope| {
        let asked = scope.spawn(|| other.objects());
        // One more place has to be free before it is its turn.
        std::thread::sleep(Duration::from_millis(200));
        assert!(!asked.is_finished());
        drop(batches.pop());
        asked.join().unwrap().unwrap()
    });
    assert_eq!(objects, []);
    for batch in batches {
        batch.keep().unwrap();
    }
    assert_eq!(other.objects().unwrap(), [Digest::of(b"x")]);
}
