//! Data sets as home storage: what is read is right or an error, and what is written is a data set or nothing.

use eyas_catalog::{
    Access, Arrivals, Aside, Caller, Catalog, Condition, DataHome, Folder, Holding, Key, Known, NewSite,
    OwnHost, Put, Reach, Result, Sealed, SitePlace,
};
use eyas_data::{BLOCK_BYTES, Digest, GROUP_BYTES, n_groups};
use eyas_storage::{ErrorKind, Fence, Home, Listing, Location, Put as Write, Status};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const NOW: i64 = 1_000;

fn alice() -> Caller {
    Caller { name: "alice".into(), groups: vec![], is_operator: true }
}

/// After how many bytes reading breaks off, by site.
type Breaks = Arc<Mutex<HashMap<String, u64>>>;

/// A folder whose readers may break off.
struct Brittle {
    folder: Folder,
    breaks: Breaks,
}

struct Breaking<'a> {
    from: Box<dyn Read + 'a>,
    left: u64,
}

impl Read for Breaking<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let most = piece.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.from.read(&mut piece[..most])?;
        self.left -= n as u64;
        Ok(n)
    }
}

impl Holding for Brittle {
    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        let left = self.breaks.lock().unwrap().get(self.folder.name()).copied().unwrap_or(u64::MAX);
        let opened = self.folder.open(digest)?;
        Ok(opened.map(|from| Box::new(Breaking { from, left }) as Box<dyn Read + '_>))
    }
    fn name(&self) -> &str {
        self.folder.name()
    }
    fn place(&self) -> &SitePlace {
        self.folder.place()
    }
    fn claim(&self, catalog: &str) -> Result<String> {
        self.folder.claim(catalog)
    }
    fn batch(&self) -> Result<Box<dyn Arrivals + '_>> {
        self.folder.batch()
    }
    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        self.folder.verify_all(digests, found)
    }
    fn objects(&self) -> Result<Vec<Digest>> {
        self.folder.objects()
    }
    fn set_aside(&self, digests: &[Digest]) -> Result<()> {
        self.folder.set_aside(digests)
    }
    fn aside(&self) -> Result<Vec<Aside>> {
        self.folder.aside()
    }
    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()> {
        self.folder.settle(unneeded, needed)
    }
    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool> {
        self.folder.seal(key, text)
    }
    fn unseal(&self, key: &Key) -> Result<()> {
        self.folder.unseal(key)
    }
    fn seal_digests(&self) -> Result<HashMap<String, Digest>> {
        self.folder.seal_digests()
    }
    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        self.folder.seals()
    }
}

struct ReachBrittle {
    root: PathBuf,
    breaks: Breaks,
}

impl Reach for ReachBrittle {
    fn reach(&self, site: &str, _: &str) -> Result<Box<dyn Holding>> {
        Ok(Box::new(Brittle { folder: Folder::open(&self.root.join(site))?, breaks: self.breaks.clone() }))
    }
}

/// A catalog with two sites, and its home.
struct Scene {
    dir: tempfile::TempDir,
    home: DataHome,
    breaks: Breaks,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let breaks = Breaks::default();
        let catalog = catalog(dir.path(), &breaks, true);
        for (site, address) in [("one", "one.example:1"), ("two", "[::2]:2")] {
            Folder::make(&dir.path().join(site), site).unwrap();
            let new = NewSite { name: site, address, join: Some("{}"), ..NewSite::default() };
            catalog.add_site(&alice(), &new, NOW).unwrap();
        }
        let (root, shared) = (dir.path().to_owned(), breaks.clone());
        let open = move || Ok(Access { catalog: self::catalog(&root, &shared, false), caller: alice() });
        let home = DataHome::new(Box::new(open), || NOW, Box::new(|| OwnHost::new(vec!["here".into()])));
        Scene { dir, home, breaks }
    }

    fn catalog(&self) -> Catalog {
        catalog(self.dir.path(), &self.breaks, false)
    }

    /// Puts a file at both sites; returns its bytes and the paths of its copies.
    fn put(&self, label: &str, name: &str, size: usize) -> (Vec<u8>, [PathBuf; 2]) {
        let bytes: Vec<u8> = (0..size).map(|n| (n * n % 251) as u8).collect();
        let source = self.dir.path().join(name);
        fs::write(&source, &bytes).unwrap();
        let catalog = self.catalog();
        let what = Put { sources: &[source], is_made: false, label, copies: Some(2), tags: &[], now_ms: NOW };
        let site = catalog.holding("one").unwrap();
        eyas_catalog::put(&catalog, &*site, &alice(), &what, &mut |_, _| {}).unwrap();
        catalog.repair(NOW, &mut |_| {}).unwrap();
        let path =
            |site: &str| Folder::open(&self.dir.path().join(site)).unwrap().path_of(Digest::of(&bytes));
        let paths = [path("one"), path("two")];
        (bytes, paths)
    }

    /// Sites break off after so many bytes, and copies are damaged; whether one is good all the same.
    fn spoil(
        &self,
        paths: &[PathBuf; 2],
        size: usize,
        breaks: [Option<u64>; 2],
        is_damaged: [bool; 2],
    ) -> bool {
        let mut has_good = false;
        for (n, site) in ["one", "two"].into_iter().enumerate() {
            if let Some(at) = breaks[n] {
                self.breaks.lock().unwrap().insert(site.into(), at);
            }
            let is_damaged = is_damaged[n] && size > 0;
            if is_damaged {
                damage(&paths[n]);
            }
            has_good |= !is_damaged && breaks[n].is_none_or(|at| at > size as u64);
        }
        has_good
    }

    fn read(&self, location: &str) -> eyas_storage::Result<Vec<u8>> {
        let location: Location = location.parse().unwrap();
        let mut opened = self.home.open(&location, None)?;
        let mut bytes = vec![];
        let read = opened.reader.read_to_end(&mut bytes);
        read.map_err(|error| eyas_storage::Error::from_read("read", &location, error))?;
        assert_eq!(bytes.len() as u64, opened.stat.size_bytes);
        Ok(bytes)
    }

    fn write(&self, location: &str, bytes: &[u8]) -> eyas_storage::Result<()> {
        self.home.put(&location.parse().unwrap(), &mut &*bytes, &Write::simple(None)).map(drop)
    }

    fn n_objects(&self) -> usize {
        let objects =
            |site: &str| Folder::open(&self.dir.path().join(site)).unwrap().objects().unwrap().len();
        objects("one") + objects("two")
    }
}

fn catalog(root: &Path, breaks: &Breaks, is_new: bool) -> Catalog {
    let url = format!("sqlite:{}", root.join("catalog.db").display());
    let catalog = if is_new { Catalog::init(&url, NOW) } else { Catalog::open(&url, NOW) };
    let reach = ReachBrittle { root: root.to_owned(), breaks: breaks.clone() };
    catalog.unwrap().reaching(Box::new(reach))
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_is_read_by_any_of_its_names() {
    let scene = Scene::new();
    for size in [0, 1, 1 << 20, (1 << 20) + 1, 3_000_000] {
        let label = format!("set{size}");
        let (bytes, _) = scene.put(&label, "run 1?.txt", size);
        assert!(scene.read(&format!("data:{label}/run 1%3F.txt")).unwrap() == bytes);
        assert!(scene.read(&format!("data://{label}@1/run%201%3f.txt")).unwrap() == bytes);
    }
    let error = scene.read("data:set1@7/x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(scene.read("data:set1/x").unwrap_err().to_string().contains("eyas data ls set1"));
    assert_eq!(scene.read("data:other/x").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scene.read("data:-/x").unwrap_err().kind(), ErrorKind::InvalidName);
    let part = scene.home.open(&"data:set1/run 1%3f.txt".parse().unwrap(), Some(0..1)).unwrap_err();
    assert_eq!(part.kind(), ErrorKind::Unsupported);
}

#[test]
fn the_other_copy_is_read_where_one_is_damaged_or_gone() {
    for size in [1000, 3_000_000] {
        let scene = Scene::new();
        let (bytes, paths) = scene.put("set", "x", size);
        damage(&paths[0]);
        // Copies that are equally near take turns, so one of two reads asks for the damaged one.
        let reads = [scene.read("data:set/x"), scene.read("data:set/x")];
        let n_refused = reads.iter().filter(|read| read.is_err()).count();
        assert_eq!(n_refused, usize::from(size > 1000), "a small file is compared before it is given");
        for read in reads {
            match read {
                Ok(read) => assert!(read == bytes),
                Err(error) => assert_eq!(error.status(), Status::Temporary, "so that it is tried again"),
            }
        }
        assert!(scene.read("data:set/x").unwrap() == bytes);
        let bad = scene.catalog().whereabouts(&alice(), &"set".parse().unwrap()).unwrap();
        let damaged = bad.iter().find(|copy| copy.site == "one").unwrap();
        assert_eq!(damaged.state, eyas_catalog::ReplicaState::Bad, "the damage is noted");
        fs::remove_file(&paths[1]).unwrap();
        let error = scene.read("data:set/x").unwrap_err();
        assert!(error.to_string().contains("the copy at the site `two` is missing"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Sites break off anywhere, copies are damaged or not: what is read to its end is the file.
    #[test]
    fn no_wrong_byte_is_ever_read(
        size in prop_oneof![0..2000usize, 1_040_000..1_060_000usize, 2_000_000..2_100_000usize],
        breaks in prop::array::uniform2(prop::option::of(0..2_200_000u64)),
        is_damaged in prop::array::uniform2(prop::bool::weighted(0.3)),
    ) {
        let scene = Scene::new();
        let (bytes, paths) = scene.put("set", "x", size);
        let has_good = scene.spoil(&paths, size, breaks, is_damaged);
        let read = (0..3).find_map(|_| scene.read("data:set/x").ok());
        if let Some(read) = &read {
            prop_assert!(*read == bytes);
        }
        prop_assert!(read.is_some() || !has_good, "a good copy was there");
    }
}

#[test]
fn what_is_written_is_a_data_set_of_one_file() {
    let scene = Scene::new();
    scene.write("data:result/n.txt?kind=count&note=a%26b c", b"42").unwrap();
    assert_eq!(scene.read("data:result/n.txt").unwrap(), b"42");
    let found = scene.catalog().find(&alice(), Some("kind = count"), 10).unwrap();
    assert_eq!((found.len(), found[0].version), (1, 1));
    assert_eq!(found[0].tags["note"], "a&b c");
    // A task that is repeated changes nothing, and one that makes something else makes a version.
    scene.write("data:result/n.txt?kind=count", b"42").unwrap();
    assert_eq!(scene.catalog().show(&alice(), &"result".parse().unwrap()).unwrap().newest.version, 1);
    scene.write("data:result/n.txt?kind=count", b"43").unwrap();
    assert_eq!(scene.read("data:result@2/n.txt").unwrap(), b"43");
    assert_eq!(scene.read("data:result@1/n.txt").unwrap(), b"42");

    let refused = |location: &str, why: &str| {
        let before = scene.n_objects();
        let error = scene.write(location, b"other").unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(scene.n_objects(), before, "nothing is written that nobody knows of");
    };
    refused("data:result/other.txt", "has other files");
    refused("data:result@2/n.txt", "a version never changes");
    refused("data:result/n.txt?=x", "tag");
    scene.put("several", "a", 5);
    scene.put("several", "b", 6);
    refused("data:several/a", "has other files");
    assert_eq!(
        scene.home.remove(&"data:result/n.txt".parse().unwrap()).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

struct Refusing {
    from: u32,
    asked: Mutex<u32>,
}

impl Fence for Refusing {
    fn may_go_on(&self) -> std::result::Result<(), String> {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        if *asked > self.from { Err("the task runs elsewhere".into()) } else { Ok(()) }
    }
    fn may_appear(&self) -> std::result::Result<(), String> {
        Err("the task runs elsewhere".into())
    }
}

#[test]
fn a_writer_that_is_stopped_leaves_nothing() {
    let scene = Scene::new();
    for from in [0, 1, 100] {
        let fence = Refusing { from, asked: Mutex::new(0) };
        let put = Write { fence: &fence, ..Write::simple(None) };
        let location = "data:result/x".parse().unwrap();
        let error = scene.home.put(&location, &mut &b"bytes"[..], &put).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GivenUp, "{error}");
    }
    // Nor one whose source cannot be read.
    let mut broken = Breaking { from: Box::new(&b"bytes"[..]), left: 3 };
    let location = "data:result/x".parse().unwrap();
    let error = scene.home.put(&location, &mut broken, &Write::simple(None)).unwrap_err();
    assert!(!error.to_string().contains("site"), "its source is to blame: {error}");
    assert_eq!(scene.n_objects(), 0);
    assert!(scene.catalog().find(&alice(), None, 10).unwrap().is_empty());
}

#[test]
fn files_are_listed_and_their_places_known() {
    let scene = Scene::new();
    scene.put("set", "a 1.txt", 5);
    let list = |text: &str| -> Vec<String> {
        let found = scene.home.list(&Listing::parse(text, Path::new("/")).unwrap()).unwrap().found;
        found.iter().map(|location| location.as_str().to_owned()).collect()
    };
    assert_eq!(list("data:set/*.txt"), ["data://set/a%201.txt"]);
    assert_eq!(list("data:set@1/"), ["data://set@1/a%201.txt"]);
    assert!(list("data:set/*.fa").is_empty());
    let below = Listing::parse("data:set/log/*", Path::new("/")).unwrap();
    assert_eq!(scene.home.list(&below).unwrap_err().kind(), ErrorKind::NotFound);
    let places = scene.home.places(&"data:set/a 1.txt".parse().unwrap()).unwrap();
    assert_eq!(places.len(), 1);
    let mut hosts = places[0].hosts.clone();
    hosts.sort();
    assert_eq!((places[0].range.clone(), &*hosts), (0..5, &["::2".to_owned(), "one.example".to_owned()][..]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// The same of parts of a file, in any order.
    #[test]
    fn no_wrong_byte_is_ever_read_of_a_part(
        size in prop_oneof![0..2000usize, 60_000..70_000usize, 300_000..500_000usize],
        breaks in prop::array::uniform2(prop::option::of(0..500_000u64)),
        is_damaged in prop::array::uniform2(prop::bool::weighted(0.3)),
        wanted in prop::collection::vec((0..8u64, 1..8u64), 1..10),
    ) {
        let scene = Scene::new();
        let (bytes, paths) = scene.put("set", "x", size);
        let has_good = scene.spoil(&paths, size, breaks, is_damaged);
        let known = Arc::new(Known::new(Access { catalog: scene.catalog(), caller: alice() }));
        let parts = known.parts(&"set".parse().unwrap(), "x", None, &|_| false, || NOW).unwrap();
        for (first, n) in wanted {
            let first = first.min(n_groups(size as u64) - 1);
            let end = (first + n).min(n_groups(size as u64));
            let expect = (first * GROUP_BYTES) as usize..((end * GROUP_BYTES) as usize).min(size);
            match parts.read(first..end) {
                Ok(part) => prop_assert!(part == bytes[expect.clone()]),
                Err(error) => prop_assert!(!has_good, "a good copy was there: {error}"),
            }
            // Some blocks of the first group.
            let start = (expect.start as u64 + n * BLOCK_BYTES).min(size as u64) / BLOCK_BYTES * BLOCK_BYTES;
            let group_end = ((start / GROUP_BYTES + 1) * GROUP_BYTES).min(size as u64);
            let few = start..(start + n.min(3) * BLOCK_BYTES).min(group_end);
            match parts.read_blocks(few.clone()) {
                Ok(part) => prop_assert!(part == bytes[few.start as usize..few.end as usize]),
                Err(error) => prop_assert!(!has_good, "a good copy was there: {error}"),
            }
        }
    }
}
