//! What a catalog keeps to when it went back in time, when sites go away, and when several repairs run at once.

mod common;

use common::{Databases, InFiles, NOW, Server, alice, bob, file};
use eyas_catalog::{Caller, Catalog, Done, Folder, Holding, Joining, NewSite, Put, Sealed, put};
use std::path::{Path, PathBuf};
use std::thread;

/// Adds a folder as a site.
fn with_site(catalog: &Catalog, root: &Path, name: &str, keep_bytes: Option<u64>) -> Folder {
    let path = root.join(name);
    let folder = Folder::make(&path, name).unwrap();
    let new = NewSite { name, address: path.to_str().unwrap(), keep_bytes, ..NewSite::default() };
    catalog.join_site(&alice(), &folder, &new, Joining::Comes, NOW).unwrap();
    folder
}

/// Puts a file of these bytes.
fn try_put(
    catalog: &Catalog,
    site: &Folder,
    caller: &Caller,
    label: &str,
    copies: u32,
    text: &str,
) -> eyas_catalog::Result<Done> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, text).unwrap();
    let what = Put { sources: &[path], is_made: false, label, copies: Some(copies), tags: &[], now_ms: NOW };
    put(catalog, &site.again().unwrap(), caller, &what, &mut |_, _| {})
}

fn n_objects(root: &Path, sites: &[&str]) -> usize {
    sites.iter().map(|site| Folder::open(&root.join(site)).unwrap().objects().unwrap().len()).sum()
}

#[test]
fn a_catalog_that_went_back_in_time_gives_no_number_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (root, database) = (dir.path(), dir.path().join("catalog.db"));
    let url = format!("sqlite:{}", database.display());
    let open = || Catalog::open(&url, NOW).unwrap();
    let catalog = Catalog::init(&url, NOW).unwrap();
    let site = with_site(&catalog, root, "here", None);
    try_put(&catalog, &site, &alice(), "x", 1, "one").unwrap();
    drop(catalog);
    let backup = std::fs::read(&database).unwrap();
    let catalog = open();
    try_put(&catalog, &site, &alice(), "x", 1, "two").unwrap();
    try_put(&catalog, &site, &bob(), "bobs", 1, "three").unwrap();
    drop(catalog);
    std::fs::write(&database, backup).unwrap();

    let catalog = open();
    let done = try_put(&catalog, &site, &alice(), "x", 1, "four").unwrap();
    assert_eq!((done.key.to_string().as_str(), done.n_left_out), ("x@3", 1));
    let refused = try_put(&catalog, &site, &alice(), "bobs", 1, "five").unwrap_err().to_string();
    assert!(refused.contains("the label `bobs` is not free"), "{refused}");
    assert_eq!(try_put(&catalog, &site, &bob(), "bobs", 1, "six").unwrap().key.to_string(), "bobs@2");
    let unknown = catalog.unknown_versions().unwrap();
    assert_eq!((unknown.len(), unknown[0].n_versions), (1, 2));
    // What is taken in is read again.
    let address = root.join("here").display().to_string();
    let new = NewSite { name: "here", address: &address, ..NewSite::default() };
    catalog.rebuild(&alice(), &site, &new, NOW).unwrap();
    assert!(catalog.unknown_versions().unwrap().is_empty());
    let versions = catalog.show(&alice(), &"x".parse().unwrap()).unwrap().versions;
    assert_eq!(versions.iter().map(|version| version.number).collect::<Vec<_>>(), [1, 2, 3]);
    let kept = catalog.files(&alice(), &"x@2".parse().unwrap()).unwrap();
    assert_eq!(kept, [file("a", "two")]);
    assert!(catalog.repair(NOW, &mut |_| {}).unwrap().short.is_empty());
}

/// The keys of what is put, or why it is not.
fn keys_put(catalog: &Catalog, site: &Folder, labels: &[&str]) -> Vec<String> {
    let put = |label: &&str| match try_put(catalog, site, &alice(), label, 1, label) {
        Ok(done) => done.key.to_string(),
        Err(error) => error.to_string(),
    };
    labels.iter().map(put).collect()
}

/// A site `far` that alone knows `x@2` is away after the catalog went back in time to when there was `x@1`. `back` takes it there, and
/// returns it opened anew; `begun` has `x@1` at `here`.
fn check_that_an_absent_site_is_waited_for(root: &Path, url: &str, back: &dyn Fn()) {
    let catalog = Catalog::open(url, NOW).unwrap();
    let here = Folder::open(&root.join("here")).unwrap();
    let far = Folder::open(&root.join("far")).unwrap();
    assert_eq!(keys_put(&catalog, &far, &["x", "y"]), ["x@2", "y@1"]);
    drop(catalog);
    back();
    let (there, away) = (root.join("far"), root.join("away"));
    std::fs::rename(&there, &away).unwrap();
    for _ in 0..2 {
        // Whoever opens the catalog next is refused as well.
        let catalog = Catalog::open(url, NOW).unwrap();
        for refused in keys_put(&catalog, &here, &["x", "y", "z", "x"]) {
            assert!(refused.contains("the site `far` cannot be reached"), "{refused}");
            assert!(refused.contains("older than what its sites know"), "{refused}");
        }
        assert_eq!(catalog.unknown_versions().unwrap(), []);
    }
    let catalog = Catalog::open(url, NOW).unwrap();
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(keys_put(&catalog, &here, &["x"]), ["x@3"]);
    // It has been looked at, and what it knows of others was not taken in.
    std::fs::rename(&there, &away).unwrap();
    let catalog = Catalog::open(url, NOW).unwrap();
    assert!(keys_put(&catalog, &here, &["y"])[0].contains("the site `far` cannot be reached"));
    std::fs::rename(&away, &there).unwrap();
    let address = there.display().to_string();
    let new = NewSite { name: "far", address: &address, ..NewSite::default() };
    catalog.rebuild(&alice(), &Folder::open(&there).unwrap(), &new, NOW).unwrap();
    std::fs::rename(&there, &away).unwrap();
    assert_eq!(keys_put(&catalog, &here, &["x", "y", "z"]), ["x@4", "y@2", "z@1"]);
    std::fs::rename(&away, &there).unwrap();
}

/// A catalog with two folders as sites, `here` and `far`, and `x@1` at `here`.
fn with_two_sites(root: &Path, url: &str) {
    let catalog = Catalog::init(url, NOW).unwrap();
    let here = with_site(&catalog, root, "here", None);
    with_site(&catalog, root, "far", None);
    assert_eq!(keys_put(&catalog, &here, &["x"]), ["x@1"]);
}

#[test]
fn no_number_is_given_while_a_site_is_away_that_may_know_it() {
    let dir = tempfile::tempdir().unwrap();
    let (root, database) = (dir.path(), dir.path().join("catalog.db"));
    let url = format!("sqlite:{}", database.display());
    with_two_sites(root, &url);
    let backup = std::fs::read(&database).unwrap();
    check_that_an_absent_site_is_waited_for(root, &url, &|| std::fs::write(&database, &backup).unwrap());
    // By one change.
    let (backup, catalog) = (std::fs::read(&database).unwrap(), Catalog::open(&url, NOW).unwrap());
    assert_eq!(keys_put(&catalog, &Folder::open(&root.join("far")).unwrap(), &["x"]), ["x@5"]);
    drop(catalog);
    std::fs::write(&database, &backup).unwrap();
    std::fs::rename(root.join("far"), root.join("away")).unwrap();
    let (here, catalog) = (Folder::open(&root.join("here")).unwrap(), Catalog::open(&url, NOW).unwrap());
    assert!(keys_put(&catalog, &here, &["x"])[0].contains("the site `far` cannot be reached"));
    // As the guide on backups does it, and with all that is beside the database.
    for is_all in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (root, database) = (dir.path(), dir.path().join("catalog.db"));
        let url = format!("sqlite:{}", database.display());
        with_two_sites(root, &url);
        let backup = std::fs::read(&database).unwrap();
        check_that_an_absent_site_is_waited_for(root, &url, &|| {
            std::fs::remove_file(&database).unwrap();
            if is_all {
                std::fs::remove_file(root.join("catalog.db-last")).unwrap();
            }
            std::fs::write(&database, &backup).unwrap();
        });
    }
}

#[test]
fn no_number_of_a_restored_server_is_given_while_a_site_is_away_that_may_know_it() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    let url = server.url("restored");
    with_two_sites(dir.path(), &url);
    let backup = server.dump("restored");
    check_that_an_absent_site_is_waited_for(dir.path(), &url, &|| server.restore("restored", &backup));
}

#[test]
fn a_site_that_is_away_keeps_nobody_from_putting_where_the_catalog_is_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let (root, database) = (dir.path(), dir.path().join("catalog.db"));
    let url = format!("sqlite:{}", database.display());
    with_two_sites(root, &url);
    let open = || Catalog::open(&url, NOW).unwrap();
    let (here, far) = (Folder::open(&root.join("here")).unwrap(), Folder::open(&root.join("far")).unwrap());
    assert_eq!(keys_put(&open(), &far, &["x"]), ["x@2"]);
    std::fs::rename(root.join("far"), root.join("away")).unwrap();
    assert_eq!(keys_put(&open(), &here, &["x", "y"]), ["x@3", "y@1"]);
    // All of a disk goes back, with what is beside the database: what the other sites say is the sign.
    let beside = root.join("catalog.db-last");
    let backup = (std::fs::read(&database).unwrap(), std::fs::read(&beside).unwrap());
    assert_eq!(keys_put(&open(), &here, &["y"]), ["y@2"]);
    std::fs::write(&database, &backup.0).unwrap();
    std::fs::write(&beside, &backup.1).unwrap();
    let catalog = open();
    assert!(keys_put(&catalog, &here, &["y"])[0].contains("the site `far` cannot be reached"));
    // One that is gone for good is replaced.
    let folder = Folder::make(&root.join("other"), "far").unwrap();
    let address = root.join("other").display().to_string();
    let new = NewSite { name: "far", address: &address, ..NewSite::default() };
    catalog.join_site(&alice(), &folder, &new, Joining::Replaces, NOW).unwrap();
    assert_eq!(keys_put(&catalog, &here, &["y"]), ["y@3"]);
}

#[test]
fn a_seal_is_not_overwritten_by_that_of_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::make(&dir.path().join("here"), "here").unwrap();
    let key = "x@1".parse().unwrap();
    let sealed = |text: &str, copies| Sealed {
        key: "x@1".parse().unwrap(),
        owner: "alice".into(),
        created_ms: NOW,
        copies,
        tags: vec![],
        acl: Default::default(),
        files: vec![file("a", text)],
    };
    assert!(folder.seal(&key, &sealed("one", 1).text()).unwrap());
    assert!(folder.seal(&key, &sealed("one", 2).text()).unwrap(), "the copies that are asked for change");
    assert!(!folder.seal(&key, &sealed("two", 2).text()).unwrap());
    assert_eq!(folder.seals().unwrap().0, [sealed("one", 2)]);
    assert_eq!(folder.seal_keys().unwrap(), ["x@1"]);
    let path = dir.path().join("here/seals/x@1.json");
    std::fs::write(&path, "damaged").unwrap();
    assert!(folder.seal(&key, &sealed("two", 2).text()).unwrap());
}

#[test]
fn copies_of_a_site_that_rests_count_and_what_was_made_meanwhile_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (root, sites) = (dir.path(), ["a", "b", "c", "d"]);
    let catalog = Catalog::init(&format!("sqlite:{}", root.join("catalog.db").display()), NOW).unwrap();
    let folders = sites.map(|name| with_site(&catalog, root, name, None));
    for n in 0..4 {
        try_put(&catalog, &folders[0], &alice(), &format!("three{n}"), 3, &format!("three{n}")).unwrap();
        try_put(&catalog, &folders[0], &alice(), &format!("two{n}"), 2, &format!("two{n}")).unwrap();
    }
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let n_before = n_objects(root, &sites);
    assert_eq!(n_before, 4 * 3 + 4 * 2);
    let holders = |key: String| catalog.holders(&alice(), &key.parse().unwrap()).unwrap();
    let n_at_b = |what: &str| {
        (0..4)
            .filter(|n| holders(format!("{what}{n}")).values().any(|at| at.contains(&"b".to_owned())))
            .count() as u64
    };
    let (threes, twos) = (n_at_b("three"), n_at_b("two"));
    assert!(threes > 0);
    let (here, away) = (root.join("b"), root.join("away"));
    std::fs::rename(&here, &away).unwrap();
    let resting = catalog.repair_while(&|_, answers| !answers, NOW, &mut |_| {}).unwrap();
    assert_eq!((resting.n_copies, resting.short.len()), (twos, 0), "only where one good copy is left");
    let made = catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(made.n_copies, threes);
    std::fs::rename(&away, &here).unwrap();
    catalog.repair(NOW, &mut |_| {}).unwrap();
    assert_eq!(n_objects(root, &sites), n_before);
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().n_copies, 0);
}

/// Several repairs at the same time make each copy once, and leave no claims.
fn check_repairs_at_one_time(databases: &dyn Databases) {
    let dir = tempfile::tempdir().unwrap();
    let (root, sites) = (dir.path(), ["a", "b", "c", "d"]);
    let url = databases.url("claims");
    let catalog = Catalog::init(&url, NOW).unwrap();
    let folders = sites.map(|name| with_site(&catalog, root, name, None));
    for n in 0..20 {
        try_put(&catalog, &folders[n % 2], &alice(), &format!("x{n}"), 2, &format!("{n}").repeat(1 << 16))
            .unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let other = Catalog::open(&url, NOW).unwrap();
                while other.repair(NOW, &mut |_| {}).unwrap().n_coming > 0 {
                    other.await_others(NOW, &mut |_| {}).unwrap();
                }
            });
        }
    });
    assert_eq!(n_objects(root, &sites), 40);
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().n_copies, 0);
}

#[test]
fn repairs_at_one_time_do_not_make_the_same_copies() {
    check_repairs_at_one_time(&InFiles::new());
}

#[test]
fn repairs_at_one_time_do_not_make_the_same_copies_on_a_server() {
    check_repairs_at_one_time(&Server::start());
}

#[test]
fn a_put_keeps_to_the_limit_of_a_site() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let catalog = Catalog::init(&format!("sqlite:{}", root.join("catalog.db").display()), NOW).unwrap();
    let site = with_site(&catalog, root, "small", Some(1000));
    try_put(&catalog, &site, &alice(), "a", 1, &"a".repeat(900)).unwrap();
    let refused = try_put(&catalog, &site, &alice(), "b", 1, &"b".repeat(900)).unwrap_err().to_string();
    assert!(refused.contains("keeps at most 1000 bytes and has 900, and 900 would come"), "{refused}");
    // What is there already takes no room, and what fits exactly fits.
    try_put(&catalog, &site, &alice(), "c", 1, &"a".repeat(900)).unwrap();
    try_put(&catalog, &site, &alice(), "d", 1, &"d".repeat(100)).unwrap();
    assert!(try_put(&catalog, &site, &alice(), "e", 1, "e").is_err());
    assert_eq!(site.held_bytes().unwrap(), 1000);
    // The label of what was refused is free, and nothing is left of it.
    assert_eq!(catalog.find(&alice(), None, 9).unwrap().len(), 3);
}

#[test]
fn what_belongs_to_eyas_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let below = root.join("mine/kept");
    std::fs::create_dir_all(&below).unwrap();
    let database = below.join("catalog.db");
    let catalog = Catalog::init(&format!("sqlite:{}", database.display()), NOW).unwrap();
    let site = with_site(&catalog, &below, "site", None);
    let keys = below.join("renamed");
    std::fs::write(&keys, r#"{"version": 1, "address": "a:1", "secret": "s", "key_pem": "k"}"#).unwrap();
    std::fs::write(below.join("data.json"), r#"{"secret": 1}"#).unwrap();
    std::fs::write(root.join("mine/catalog.db"), "of mine").unwrap();
    let put_of = |source: PathBuf, label: &str| {
        let what = Put { sources: &[source], is_made: false, label, copies: None, tags: &[], now_ms: NOW };
        put(&catalog, &site.again().unwrap(), &alice(), &what, &mut |_, _| {})
    };
    let done = put_of(root.join("mine"), "all").unwrap();
    let files = catalog.files(&alice(), &done.key).unwrap();
    let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["catalog.db", "kept/data.json"]);
    for own in [&database, &below.join("site"), &keys] {
        assert!(done.left_out.contains(own), "{own:?}");
        let refused = put_of(own.clone(), "one").unwrap_err().to_string();
        assert!(refused.contains("belongs to eyas"), "{refused}");
    }
}
