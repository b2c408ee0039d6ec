//! Parts of files in folders of this machine: each is right or is refused, whether it was verified before or not.

use eyas_catalog::{Access, Caller, Catalog, Compared, Folder, Known, NewSite, PartReader, Put, put};
use eyas_data::{GROUP_BYTES, Groups};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const NOW: i64 = 1_000;

fn alice() -> Caller {
    Caller { name: "alice".into(), groups: vec![], is_operator: true }
}

/// A catalog with one folder, in which a file is; its records of comparisons count.
struct Scene {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    object: PathBuf,
    compared: Arc<Compared>,
    parts: PartReader,
}

impl Scene {
    fn new(size: usize) -> Scene {
        // On a disk: the records count for files of disks only.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = |name: &str| dir.path().join(name);
        let bytes: Vec<u8> = (0..size).map(|n| (n / 7 + n / 4096) as u8).collect();
        fs::write(path("x"), &bytes).unwrap();
        let compared = Arc::new(Compared::open(&path("records")).unwrap());
        let catalog = Catalog::init(&format!("sqlite:{}", path("catalog.db").display()), NOW).unwrap();
        let catalog = catalog.remembering(Some(compared.clone()));
        let folder = Folder::make(&path("here"), "here").unwrap();
        let address = path("here").display().to_string();
        let site = NewSite { name: "here", address: &address, ..NewSite::default() };
        catalog.add_site(&alice(), &site, NOW).unwrap();
        let sources = [path("x")];
        let what =
            Put { sources: &sources, is_made: false, label: "set", copies: None, tags: &[], now_ms: NOW };
        put(&catalog, &*catalog.holding("here").unwrap(), &alice(), &what, &mut |_, _| {}).unwrap();
        let digest = Groups::read(&mut &bytes[..], size as u64).unwrap().digest();
        let known = Arc::new(Known::new(Access { catalog, caller: alice() }));
        let parts = known.parts(&"set".parse().unwrap(), "x", None, &|_| true, || NOW).unwrap();
        let object = folder.path_of(digest);
        fs::set_permissions(&object, fs::Permissions::from_mode(0o644)).unwrap();
        Scene { dir, bytes, object, compared, parts }
    }

    /// Reads a part, which is right where there is one.
    fn reads(&self, start: usize, end: usize, compared: Option<&Compared>) -> bool {
        let mut buffer = vec![];
        let place = self.parts.read_near(&(start as u64..end as u64), compared, &mut buffer);
        place.is_some_and(|place| {
            let expected = &self.bytes[start..end.min(self.bytes.len())];
            assert!(buffer[place..][..expected.len()] == *expected, "{start} to {end}");
            true
        })
    }

    fn change(&self, at: u64) {
        // Later than what was noted, by any clock.
        thread::sleep(Duration::from_millis(20));
        OpenOptions::new().write(true).open(&self.object).unwrap().write_all_at(b"?!", at).unwrap();
    }

    fn groups_kept(&self) -> usize {
        fs::read_dir(self.dir.path().join("here/groups")).map_or(0, Iterator::count)
    }
}

const GROUP: usize = GROUP_BYTES as usize;
const SIZE: usize = 30 * GROUP + 1234;

#[test]
fn parts_are_right_wherever_they_begin() {
    let scene = Scene::new(SIZE);
    for (start, end) in
        [(0, GROUP), (GROUP, 3 * GROUP), (5, 2 * GROUP + 7), (29 * GROUP, SIZE), (0, SIZE + 99)]
    {
        assert!(scene.reads(start, end, None), "{start} to {end}");
    }
    // Few bytes of a file that nobody has verified are read with their group, by others.
    assert!(!scene.reads(10, 20, None) && !scene.reads(SIZE, SIZE + 5, None));
    let whole = |size: usize| Scene::new(size).reads(0, size, None);
    assert!(whole(1) && whole(GROUP) && whole(GROUP + 1));
}

/// A byte that changes is found in its group, and the rest of the file is not read from there any more.
#[test]
fn a_damaged_part_is_refused() {
    let scene = Scene::new(SIZE);
    assert!(scene.reads(0, 2 * GROUP, None));
    scene.change(3 * GROUP_BYTES + 17);
    assert!(scene.reads(0, 2 * GROUP, None) && scene.reads(4 * GROUP, 8 * GROUP, None));
    assert!(!scene.reads(2 * GROUP, 5 * GROUP, None));
    assert!(!scene.reads(0, 2 * GROUP, None), "others say what is wrong with the copy");
    assert!(scene.parts.read(3..4).is_err());
}

/// What was put here need not be verified, until somebody writes to it.
#[test]
fn a_file_that_was_put_is_known() {
    let scene = Scene::new(SIZE);
    let file = fs::File::open(&scene.object).unwrap();
    let compared = Some(&*scene.compared);
    // Its rights were changed after the put, which may have been anything.
    assert!(!scene.compared.knows(&file, scene.parts.file().digest));
    assert!(!scene.reads(10, 20, compared) && scene.reads(0, GROUP, compared));
    fs::remove_file(&scene.object).unwrap();
    let again = Scene::new(SIZE);
    let records = Some(&*again.compared);
    let sources = [again.dir.path().join("x")];
    let what =
        Put { sources: &sources, is_made: false, label: "again", copies: None, tags: &[], now_ms: NOW };
    let url = format!("sqlite:{}", again.dir.path().join("catalog.db").display());
    let catalog = Catalog::open(&url, NOW).unwrap().remembering(Some(again.compared.clone()));
    put(&catalog, &*catalog.holding("here").unwrap(), &alice(), &what, &mut |_, _| {}).unwrap();
    let file = fs::File::open(&again.object).unwrap();
    if !again.compared.knows(&file, again.parts.file().digest) {
        // This file system may have other rules.
        return;
    }
    assert!(
        again.reads(10, 20, records) && again.reads(0, SIZE, records) && again.reads(SIZE - 3, SIZE, records)
    );
    fs::set_permissions(&again.object, fs::Permissions::from_mode(0o644)).unwrap();
    again.change(7 * GROUP_BYTES);
    assert!(!again.reads(10, 20, records), "it changed");
    assert!(!again.reads(7 * GROUP, 8 * GROUP, records));
}

/// The values of a large object's groups are there before anybody asks.
#[test]
fn groups_are_kept_when_an_object_is_made() {
    assert_eq!(Scene::new(SIZE).groups_kept(), 0, "it is small");
    let scene = Scene::new(200 * GROUP);
    assert_eq!(scene.groups_kept(), 1);
    let kept = fs::read_dir(scene.dir.path().join("here/groups")).unwrap().next().unwrap().unwrap().path();
    let values: Vec<[u8; 32]> = fs::read(kept).unwrap().as_chunks().0.to_vec();
    assert!(Groups::check(scene.parts.file().digest, scene.bytes.len() as u64, values).is_some());
    assert!(Path::new(&scene.object).exists() && scene.reads(100 * GROUP, 102 * GROUP, None));
}
