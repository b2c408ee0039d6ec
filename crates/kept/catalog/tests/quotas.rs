//! Quotas against a naive sum: after each put and each removal the catalog says what counting all files of all committed versions
//! says, and refuses exactly what would be too much. On both databases.

mod common;

use common::{Databases, InFiles, NOW, Server, alice, bob, drafted, file};
use eyas_catalog::{Caller, Catalog, Error, File, Key, Put, Sealed, put};
use eyas_terms::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The files of committed versions, by label and number, with the owner of each label.
#[derive(Default)]
struct Naive {
    owners: BTreeMap<String, String>,
    versions: BTreeMap<(String, u32), Vec<File>>,
    allowed: BTreeMap<String, u64>,
}

impl Naive {
    /// Each object once, whatever version, data set and path it is in.
    fn used(&self, owner: &str, more: &[File]) -> u64 {
        let of_owner = self.versions.iter().filter(|((label, _), _)| self.owners[label] == owner);
        let files = of_owner.flat_map(|(_, files)| files).chain(more);
        let objects: BTreeSet<_> = files.map(|file| (file.digest, file.size_bytes)).collect();
        objects.iter().map(|(_, size_bytes)| size_bytes).sum()
    }

    fn allowed(&self, owner: &str) -> u64 {
        let own = self.allowed.get(&format!("user:{owner}")).or_else(|| self.allowed.get("everyone"));
        own.copied().unwrap_or(u64::MAX)
    }

    fn may_add(&self, owner: &str, files: &[File]) -> bool {
        let (before, after) = (self.used(owner, &[]), self.used(owner, files));
        after == before || after <= self.allowed(owner)
    }
}

fn some_files(rng: &mut Rng) -> Vec<File> {
    let n = 1 + rng.below(4) as usize;
    // Few contents, so that most are shared; one of them is empty.
    (0..n).map(|n| file(&format!("f{n}"), &"x".repeat(10 * rng.below(9) as usize))).collect()
}

fn lives_through(catalog: &Catalog, seed: u64, n_steps: u32) {
    let mut rng = Rng::new(seed);
    let mut naive = Naive::default();
    let callers = [alice(), bob()];
    let (mut n_put, mut n_refused, mut n_removed) = (0, 0, 0);
    for step in 0..n_steps {
        match rng.below(10) {
            0..=4 => {
                let label = format!("s{}", rng.below(6) + 6 * u64::from(step / 40));
                let caller = &callers[rng.below(2) as usize];
                let owner = naive.owners.get(&label).cloned().unwrap_or_else(|| caller.name.clone());
                // Whoever may write somebody else's data set puts into the owner's room.
                let operator = Caller { is_operator: true, ..caller.clone() };
                if catalog.require_writable(&operator, &label).is_err() {
                    continue;
                }
                let files = some_files(&mut rng);
                let draft = drafted(catalog, &operator, &label, &files);
                let may = naive.may_add(&owner, &files);
                match catalog.commit(&operator, &draft, &[], NOW) {
                    Ok(()) => {
                        assert!(may, "seed {seed}, step {step}: `{label}` of {owner} was too much");
                        naive.owners.insert(label.clone(), owner);
                        naive.versions.insert((label, draft.key.version.unwrap()), files);
                        n_put += 1;
                    }
                    Err(Error::Denied(said)) => {
                        assert!(!may, "seed {seed}, step {step}: {said}");
                        catalog.abandon(&draft).unwrap();
                        n_refused += 1;
                    }
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            5 => {
                // What is taken over is counted, and never refused.
                let (label, owner) = (format!("taken{step}"), &callers[rng.below(2) as usize].name);
                let files = some_files(&mut rng);
                let key = Key { label: label.clone(), version: Some(3) };
                let sealed = Sealed {
                    key,
                    owner: owner.clone(),
                    created_ms: NOW,
                    copies: 1,
                    tags: vec![],
                    acl: Default::default(),
                    files: files.clone(),
                };
                assert_eq!(catalog.adopt(&alice(), &[sealed.clone(), sealed], NOW).unwrap(), 1);
                naive.owners.insert(label.clone(), owner.clone());
                naive.versions.insert((label, 3), files);
            }
            6 | 7 if !naive.versions.is_empty() => {
                let nth = rng.below(naive.versions.len() as u64) as usize;
                let (label, number) = naive.versions.keys().nth(nth).unwrap().clone();
                let owner = Caller::user(naive.owners[&label].clone());
                let version = (rng.below(2) == 0).then_some(number);
                catalog.remove(&owner, &Key { label: label.clone(), version }, NOW).unwrap();
                naive
                    .versions
                    .retain(|(of, n), _| *of != label || version.is_some_and(|number| *n != number));
                n_removed += 1;
            }
            _ => {
                let who = ["user:alice", "user:bob", "everyone"][rng.below(3) as usize];
                let bytes = (rng.below(4) > 0).then(|| rng.below(300));
                catalog.set_quota(&alice(), &who.parse().unwrap(), bytes, NOW).unwrap();
                match bytes {
                    Some(bytes) => naive.allowed.insert(who.into(), bytes),
                    None => naive.allowed.remove(who),
                };
            }
        }
        let quotas = catalog.quotas().unwrap();
        for owner in ["alice", "bob"] {
            let shown = quotas.users.iter().find(|usage| usage.user == owner);
            let used = shown.map_or(0, |usage| usage.used_bytes);
            assert_eq!(used, naive.used(owner, &[]), "seed {seed}, step {step}: what {owner} has");
            if let Some(usage) = shown {
                assert_eq!(usage.allowed_bytes.unwrap_or(u64::MAX), naive.allowed(owner));
                assert_eq!(usage.is_own, naive.allowed.contains_key(&format!("user:{owner}")));
            }
        }
        assert_eq!(quotas.everyone_bytes, naive.allowed.get("everyone").copied());
    }
    assert!(n_put > 0 && n_refused > 0 && n_removed > 0, "seed {seed}: {n_put}, {n_refused}, {n_removed}");
}

/// Of several programs that commit at once, those get through that fit together, and no others.
fn several_at_once(databases: &dyn Databases) {
    let url = databases.url("quota_race");
    let catalog = Catalog::init(&url, NOW).unwrap();
    catalog.set_quota(&alice(), &"user:alice".parse().unwrap(), Some(250), NOW).unwrap();
    let commit = |n: usize, who: &Caller| {
        let catalog = Catalog::open(&url, NOW).unwrap();
        let bytes = format!("{n:0>100}");
        let draft = drafted(&catalog, who, &format!("{}-{n}", who.name), &[file("a", &bytes)]);
        catalog.commit(who, &draft, &[], NOW)
    };
    let commit = &commit;
    let done = std::thread::scope(|scope| {
        let alices: Vec<_> = (0..6).map(|n| scope.spawn(move || commit(n, &alice()))).collect();
        let bobs: Vec<_> = (0..6).map(|n| scope.spawn(move || commit(n, &bob()))).collect();
        for bobs in bobs {
            bobs.join().unwrap().unwrap();
        }
        alices.into_iter().map(|done| done.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 2, "{done:?}");
    assert!(done.iter().all(|done| matches!(done, Ok(()) | Err(Error::Denied(_)))), "{done:?}");
    let used: Vec<_> =
        catalog.quotas().unwrap().users.into_iter().map(|usage| (usage.user, usage.used_bytes)).collect();
    assert_eq!(used, [("alice".into(), 200), ("bob".into(), 600)]);
}

fn what_is_refused_is_said(catalog: &Catalog) {
    let everyone = "everyone".parse().unwrap();
    catalog.set_quota(&bob(), &everyone, Some(100), NOW).unwrap();
    let draft = drafted(catalog, &alice(), "x", &[file("a", &"a".repeat(60)), file("b", &"a".repeat(60))]);
    catalog.commit(&alice(), &draft, &[], NOW).unwrap();
    let draft = drafted(catalog, &alice(), "y", &[file("a", &"b".repeat(41))]);
    let said = catalog.commit(&alice(), &draft, &[], NOW).unwrap_err().to_string();
    assert_eq!(
        said,
        "`alice` may have 100 B of data in this catalog and has 60 B, and `y` would add at least 41 B: nothing was put; \
         `eyas data rm` makes room, and whoever keeps the catalog can give more: eyas data quota user:alice BYTES"
    );
    assert!(catalog.show(&alice(), &"y".parse().unwrap()).is_err());
    // The draft is still open, and goes through once there is room.
    catalog.set_quota(&bob(), &"user:alice".parse().unwrap(), Some(101), NOW).unwrap();
    catalog.commit(&alice(), &draft, &[], NOW).unwrap();
    let refused = catalog.set_quota(&bob(), &"group:md".parse().unwrap(), Some(1), NOW).unwrap_err();
    assert!(refused.to_string().contains("`group:md` is a group"), "{refused}");
    let acts = catalog.recent(&alice(), 100).unwrap();
    let said: Vec<_> =
        acts.iter().filter(|act| act.entry.verb == "quota").map(|act| &*act.entry.detail).collect();
    assert_eq!(said, ["user:alice=101", "everyone=100"]);
}

#[test]
fn in_files() {
    let databases = InFiles::new();
    for seed in 0..20 {
        lives_through(&databases.catalog(&format!("seed{seed}")), seed, 200);
    }
    several_at_once(&databases);
    what_is_refused_is_said(&databases.catalog("said"));
}

#[test]
fn on_a_server() {
    let databases = Server::start();
    for seed in 100..103 {
        lives_through(&databases.catalog(&format!("seed{seed}")), seed, 150);
    }
    several_at_once(&databases);
    what_is_refused_is_said(&databases.catalog("said"));
}

/// A put that is too much leaves nothing at the site, not even for a moment; what is there already costs nothing.
#[test]
fn a_refused_put_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = InFiles::new();
    let catalog = catalog.catalog("put");
    let site = eyas_catalog::Folder::make(&folder.path().join("site"), "here").unwrap();
    let address = folder.path().join("site").display().to_string();
    let new = eyas_catalog::NewSite { name: "here", address: &address, ..Default::default() };
    catalog.add_site(&alice(), &new, NOW).unwrap();
    let source = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (one, two, same) = (source("one", &[1; 600]), source("two", &[2; 600]), source("same", &[1; 600]));
    catalog.set_quota(&bob(), &"user:alice".parse().unwrap(), Some(1000), NOW).unwrap();
    let put = |label: &str, sources: &[&std::path::PathBuf]| {
        let sources: Vec<_> = sources.iter().map(|path| (*path).clone()).collect();
        let what = Put { sources: &sources, is_made: false, label, copies: None, tags: &[], now_ms: NOW };
        put(&catalog, &site, &alice(), &what, &mut |_, _| {})
    };
    put("first", &[&one]).unwrap();
    let objects = || eyas_catalog::Holding::objects(&site).unwrap().len();
    assert_eq!(objects(), 1);
    let said = put("second", &[&two, &same]).unwrap_err().to_string();
    assert!(said.contains("has 600 B, and `second` would add at least 600 B"), "{said}");
    assert_eq!(objects(), 1, "nothing was copied");
    assert_eq!(
        catalog.begin(&bob(), "second", None, NOW).unwrap().key.to_string(),
        "second@1",
        "the label is free"
    );
    put("third", &[&one, &same]).unwrap();
    assert_eq!(catalog.quotas().unwrap().users[0].used_bytes, 600);
}
