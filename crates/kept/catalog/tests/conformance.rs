//! One suite for both databases: what a catalog does, whatever it is kept in.

mod common;

use common::{Databases, InFiles, NOW, Server, alice, bob, drafted, file, labels, put, tags};
use eyas_catalog::{Caller, Catalog, Error, Folder, Key, NewSite, Put, ReplicaState, Right, SiteState};
use eyas_data::Digest;

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// What an error says, of what was expected to fail.
fn refusal<T>(result: eyas_catalog::Result<T>) -> String {
    match result {
        Ok(_) => panic!("it was expected to fail"),
        Err(error) => error.to_string(),
    }
}

fn add_site(catalog: &Catalog, name: &str, address: &str) -> eyas_catalog::Result<()> {
    catalog.add_site(&alice(), &NewSite { name, address, ..NewSite::default() }, NOW)
}

fn check_all(databases: &dyn Databases) {
    versions_never_change(&databases.catalog("versions"));
    nothing_is_committed_without_a_copy(&databases.catalog("copies"));
    paths_stay_inside(&databases.catalog("paths"));
    tags_are_found_as_what_they_are(&databases.catalog("tags"));
    text_from_outside_is_a_value(&databases.catalog("injection"));
    what_may_not_be_listed_is_not_there(&databases.catalog("access"));
    removed_sets_leave_their_history(&databases.catalog("removal"));
    replicas_follow_what_sites_say(&databases.catalog("replicas"));
    many_files_and_pages(&databases.catalog("many"));
    repairs_make_what_is_missing(&databases.catalog("repairs"));
    a_repair_takes_in_what_the_catalog_does_not_know(&databases.catalog("unknown"));
    how_it_stands_is_seen(&databases.catalog("standing"));
    a_catalog_is_made_once_and_newer_ones_are_refused(databases);
    several_at_a_time(databases);
}

#[test]
fn in_files() {
    check_all(&InFiles::new());
}

#[test]
fn on_a_server() {
    check_all(&Server::start());
}

/// Without reaching any site, as these are none: what is short, what is bad, what was done, and who may see that.
fn how_it_stands_is_seen(catalog: &Catalog) {
    put(catalog, &alice(), "one", &[]);
    put(catalog, &alice(), "two", &[]);
    catalog.note_replicas("here", &[Digest::of(b"two")], ReplicaState::Bad, NOW + 5).unwrap();
    let standing = catalog.standing(&alice(), NOW).unwrap();
    let [here] = &standing.sites[..] else { panic!("{standing:?}") };
    assert!(here.away.as_ref().is_some_and(|why| why.contains("no site's folder")), "{here:?}");
    assert_eq!((here.n_bad, here.oldest_verified_ms, here.n_made, here.n_verified), (1, Some(NOW), 1, 1));
    assert_eq!(here.room_bytes, None);
    let short: Vec<_> = standing
        .short
        .iter()
        .map(|s| (s.key.as_deref().unwrap(), s.n_files, s.n_missing, s.n_without))
        .collect();
    assert_eq!(short, [("one", 1, 1, 1), ("two", 1, 1, 1)], "no site answers");
    assert_eq!(catalog.standing(&alice(), NOW + 1).unwrap().sites[0].n_made, 0);
    let keys: Vec<_> = catalog.standing(&bob(), NOW).unwrap().short.into_iter().map(|s| s.key).collect();
    assert_eq!(keys, [None], "nobody tells him names");

    let done = |caller: &Caller, limit| -> Vec<(String, Option<String>)> {
        let acts = catalog.recent(caller, limit).unwrap();
        acts.into_iter().map(|act| (act.entry.verb, act.label)).collect()
    };
    let alices = done(&alice(), 100);
    assert_eq!(alices[0], ("put".into(), Some("two".into())));
    assert!(alices.contains(&("site".into(), None)), "{alices:?}");
    assert_eq!(done(&alice(), 1).len(), 1);
    assert!(done(&bob(), 100).iter().all(|(_, label)| label.is_none()), "he may not list them");

    let named = |caller: &Caller| -> Vec<_> {
        let mut repair = catalog.repair(NOW, &mut |_| {}).unwrap();
        assert!(repair.short.iter().all(|short| short.key.is_none()), "{repair:?}");
        catalog.name_short(caller, &mut repair).unwrap();
        repair.short.into_iter().map(|short| (short.key, short.path)).collect()
    };
    let [one, two] = ["one", "two"].map(|label| (Some(label.to_owned()), Some("a".to_owned())));
    assert_eq!(named(&alice()), [two, one.clone()], "what is lost comes first");
    assert_eq!(named(&bob()), [(None, None), (None, None)]);
    catalog
        .set_acl(&alice(), &key("one"), &[("user:bob".parse().unwrap(), "l".parse().unwrap())], NOW)
        .unwrap();
    assert_eq!(named(&bob()), [(None, None), one]);
}

fn versions_never_change(catalog: &Catalog) {
    let draft = drafted(catalog, &alice(), "adk", &[file("b/x", "1"), file("a", "22")]);
    assert_eq!(draft.key, key("adk@1"));
    assert!(
        refusal(catalog.show(&alice(), &key("adk"))).contains("no data set `adk`"),
        "it is not committed yet"
    );
    catalog.commit(&alice(), &draft, &tags(&["protein=adk"]), NOW).unwrap();
    assert!(refusal(catalog.add(&draft, &[file("c", "3")])).contains("does not change any more"));
    assert!(refusal(catalog.commit(&alice(), &draft, &[], NOW)).contains("does not change any more"));
    let second = drafted(catalog, &alice(), "adk", &[file("a", "333")]);
    assert_eq!(catalog.show(&alice(), &key("adk")).unwrap().newest.version, 1, "the second is still open");
    catalog.commit(&alice(), &second, &[], NOW + 5).unwrap();

    let set = catalog.show(&alice(), &key("adk")).unwrap();
    assert_eq!((set.newest.version, set.newest.n_files, set.newest.size_bytes), (2, 1, 3));
    assert_eq!(set.newest.tags["protein"], "adk", "tags are the data set's");
    let numbers: Vec<(u32, i64)> =
        set.versions.iter().map(|version| (version.number, version.committed_ms)).collect();
    assert_eq!(numbers, [(1, NOW), (2, NOW + 5)]);
    assert_eq!(catalog.files(&alice(), &key("adk@1")).unwrap(), [file("a", "22"), file("b/x", "1")]);
    assert_eq!(catalog.files(&alice(), &key("adk")).unwrap(), [file("a", "333")]);
    assert!(refusal(catalog.files(&alice(), &key("adk@3"))).contains("no version 3"));

    // A draft that is given up leaves nothing: its number is the next one's.
    let third = drafted(catalog, &alice(), "adk", &[file("a", "4444")]);
    catalog.abandon(&third).unwrap();
    assert!(catalog.commit(&alice(), &third, &[], NOW).is_err());
    assert_eq!(catalog.begin(&alice(), "adk", None, NOW).unwrap().key, key("adk@3"));
    assert_eq!(catalog.show(&alice(), &key("adk")).unwrap().newest.version, 2);

    // The first one that fails does not keep the label: version 1 is the first that is committed, also of somebody else.
    let failed = drafted(catalog, &alice(), "fresh", &[file("a", "55555")]);
    catalog.abandon(&failed).unwrap();
    assert_eq!(catalog.begin(&bob(), "fresh", None, NOW).unwrap().key, key("fresh@1"));
}

fn nothing_is_committed_without_a_copy(catalog: &Catalog) {
    let draft = drafted(catalog, &alice(), "x", &[file("a", "1"), file("b", "2")]);
    catalog.note_replicas("here", &[Digest::of(b"2")], ReplicaState::Bad, NOW).unwrap();
    let said = refusal(catalog.commit(&alice(), &draft, &[], NOW));
    assert!(said.contains("`b` has no copy at any site"), "{said}");
    catalog.note_replicas("here", &[Digest::of(b"2")], ReplicaState::Ready, NOW).unwrap();
    catalog.commit(&alice(), &draft, &[], NOW).unwrap();

    let empty = catalog.begin(&alice(), "empty", None, NOW).unwrap();
    assert!(refusal(catalog.commit(&alice(), &empty, &[], NOW)).contains("has no files"));
    // A digest stands for one size.
    let wrong = eyas_catalog::File { size_bytes: 7, ..file("c", "1") };
    assert!(refusal(catalog.add(&empty, &[wrong])).contains("has 1 bytes in the catalog"));
}

fn paths_stay_inside(catalog: &Catalog) {
    let draft = catalog.begin(&alice(), "x", None, NOW).unwrap();
    for wrong in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\0b", &"x".repeat(5000)] {
        assert!(refusal(catalog.add(&draft, &[file(wrong, "1")])).contains("cannot be a file"), "{wrong}");
    }
    assert!(refusal(catalog.add(&draft, &[file("a", "1"), file("a", "2")])).contains("twice"));
    catalog.add(&draft, &[file("a", "1")]).unwrap();
    assert!(refusal(catalog.add(&draft, &[file("a", "1")])).contains("twice"));
    catalog.add(&draft, &[file("a-b", "1"), file("a/b", "2"), file("größe '\"%_", "3")]).unwrap();
    add_site(catalog, "here", "/disk").unwrap();
    let digests = [Digest::of(b"1"), Digest::of(b"2"), Digest::of(b"3")];
    assert_eq!(catalog.note_replicas("here", &digests, ReplicaState::Ready, NOW).unwrap(), 3);
    let said = refusal(catalog.commit(&alice(), &draft, &[], NOW));
    assert!(said.contains("`a` cannot be a file and the directory of `a/b`"), "{said}");
}

fn tags_are_found_as_what_they_are(catalog: &Catalog) {
    put(catalog, &alice(), "one", &["protein=adk", "frames=90", "made=2026-01-02", "id=007"]);
    put(catalog, &alice(), "two", &["protein=adk", "frames=1e3", "made=2026-11-25T12:00"]);
    put(catalog, &alice(), "three", &["protein=ubq", "frames=many", "note=it's 50% \\ done_"]);
    let check =
        |query: &str, expected: &[&str]| assert_eq!(labels(catalog, &alice(), query), expected, "{query}");
    check("protein = adk", &["two", "one"]);
    check("protein = adk and frames > 90", &["two"]);
    check("PROTEIN = adk", &[]);
    check("frames >= 90 AND frames < 1000", &["one"]);
    check("frames = 90..1000", &["two", "one"]);
    check("frames = '90'", &["one"]);
    check("frames = many or frames = 1e3", &["three", "two"]);
    check("frames = 1000", &[]);
    check("frames = 1000..1000", &["two"]);
    check("frames != 90", &["three", "two"]);
    check("not frames = 90", &["three", "two"]);
    check("note != x", &["three"]);
    check("not note = x", &["three", "two", "one"]);
    check("has note", &["three"]);
    check("not has note and protein in (adk, ubq)", &["two", "one"]);
    check("protein not in (adk)", &["three"]);
    check("made < 2026-06-01", &["one"]);
    check("made = 2026-11-25..2026-11-26", &["two"]);
    check("made > 90", &[]);
    check("id = 7", &[]);
    check("id = 007", &["one"]);
    check("id = 7..7", &["one"]);
    check("id in (7, 0007)", &[]);
    check("id != 7", &["one"]);
    check("protein like 'a%'", &["two", "one"]);
    check("protein like 'A%'", &[]);
    check("protein like _bq", &["three"]);
    check("note like 'it''s 50_ \\ done_'", &["three"]);
    check("note like '%\\%'", &["three"]);
    check("label = one or owner = nobody", &["one"]);
    check("label like 't%' and files = 1", &["three", "two"]);
    check("size < 4", &["two", "one"]);
    check("size >= 1KB", &[]);
    check("created = 2027-01-15..2027-01-16", &["three", "two", "one"]);
    check("nothing = 1", &[]);
    check("(protein = adk or protein = ubq) and not (frames = 90 or has note)", &["two"]);

    catalog.tag(&alice(), &key("one"), &tags(&["protein=ubq", "new=1"]), &["id".into()], NOW).unwrap();
    check("protein = adk", &["two"]);
    check("has id", &[]);
    let said = refusal(catalog.tag(&alice(), &key("one"), &tags(&["new=2"]), &["id".into()], NOW));
    assert!(said.contains("has no tag `id`; nothing was changed"), "{said}");
    check("new = 1", &["one"]);
    identifiers_are_no_numbers(catalog);
}

/// Values that a number of 64 bits with a point takes for one, and others that are written in two ways.
fn identifiers_are_no_numbers(catalog: &Catalog) {
    let ids = [
        "0e12345",
        "0e99999",
        "9007199254740993",
        "9007199254740992",
        "02134",
        "2134",
        "1E10",
        "10e9",
        "-0",
        "0",
        "0.0",
    ];
    for (n, id) in ids.iter().enumerate() {
        put(catalog, &alice(), &format!("id{n}"), &[&format!("number={id}")]);
    }
    let check =
        |query: &str, expected: &[&str]| assert_eq!(labels(catalog, &alice(), query), expected, "{query}");
    for (n, id) in ids.iter().enumerate() {
        check(&format!("number = {id}"), &[&format!("id{n}")]);
        check(&format!("number in ('{id}', x)"), &[&format!("id{n}")]);
    }
    check("number > 9007199254740992 and number < 1e16", &["id2"]);
    check("number > 9007199254740991 and number <= 9007199254740992.0", &["id3"]);
    check("number = 2134..2134", &["id5", "id4"]);
    check("number = -0..0", &["id10", "id9", "id8", "id1", "id0"]);
    check("number >= 10000000000 and number < 10000000000.00000000000001", &["id7", "id6"]);
}

fn text_from_outside_is_a_value(catalog: &Catalog) {
    let evil = "x'; DROP TABLE tag; --";
    put(catalog, &alice(), "evil", &[&format!("a={evil}"), "b=\"quoted\" ?1 $1 ?"]);
    let quoted = evil.replace('\'', "''");
    assert_eq!(labels(catalog, &alice(), &format!("a = '{quoted}'")), ["evil"]);
    assert_eq!(labels(catalog, &alice(), "b = '\"quoted\" ?1 $1 ?'"), ["evil"]);
    assert_eq!(labels(catalog, &Caller::user("' OR '1'='1"), "has a"), Vec::<String>::new());
    assert_eq!(labels(catalog, &alice(), "a like '%''%' or b like '%?%'"), ["evil"]);
}

fn what_may_not_be_listed_is_not_there(catalog: &Catalog) {
    put(catalog, &alice(), "mine", &["x=1"]);
    let mine = key("mine");
    let set = |text: &str| {
        let (subject, rights) = text.split_once('=').unwrap();
        catalog.set_acl(&alice(), &mine, &[(subject.parse().unwrap(), rights.parse().unwrap())], NOW)
    };
    let there_is_none = "there is no data set `mine` that you may list";
    for refused in [
        refusal(catalog.show(&bob(), &mine)),
        refusal(catalog.files(&bob(), &mine)),
        refusal(catalog.whereabouts(&bob(), &mine)),
        refusal(catalog.tag(&bob(), &mine, &[], &[], NOW)),
        refusal(catalog.remove(&bob(), &mine, NOW)),
        refusal(catalog.acl(&bob(), &mine)),
        refusal(catalog.history(&bob(), &mine)),
        refusal(catalog.require(&bob(), &mine, Right::Read)),
        refusal(catalog.set_copies(&bob(), &mine, 2, NOW)),
        refusal(catalog.begin(&bob(), "mine", None, NOW)),
    ] {
        assert!(refused.contains(there_is_none), "{refused}");
    }
    // The label of what is there, is being made or was removed is refused in the same words.
    put(catalog, &alice(), "gone", &[]);
    catalog.remove(&alice(), &key("gone"), NOW).unwrap();
    let made = catalog.begin(&alice(), "made", None, NOW).unwrap();
    for label in ["mine", "gone", "made"] {
        assert_eq!(
            refusal(catalog.begin(&bob(), label, None, NOW)),
            format!(
                "the label `{label}` is not free, and there is no data set `{label}` that you may list: choose another label"
            )
        );
    }
    catalog.abandon(&made).unwrap();
    assert!(
        refusal(catalog.begin(&bob(), "new", None, NOW)).contains("no data set is given the label `new`")
    );
    assert_eq!(labels(catalog, &bob(), "x = 1"), Vec::<String>::new());
    let operator = Caller { is_operator: true, ..bob() };
    assert_eq!(labels(catalog, &operator, "x = 1"), ["mine"]);

    set("user:bob=l").unwrap();
    assert_eq!(labels(catalog, &bob(), "x = 1"), ["mine"]);
    let said = refusal(catalog.require(&bob(), &mine, Right::Read));
    assert_eq!(
        said,
        "`bob` has not got the right to read (r) the data set `mine` of `alice`, who can give it: eyas data acl mine user:bob=lr"
    );
    assert!(refusal(catalog.begin(&bob(), "mine", None, NOW)).contains("the right to write (w)"));
    assert!(refusal(catalog.remove(&bob(), &mine, NOW)).contains("the right to admin (a)"));
    set("group:md=rwl").unwrap();
    let member = Caller { groups: vec!["md".into()], ..bob() };
    catalog.require(&member, &mine, Right::Write).unwrap();
    assert!(catalog.require(&bob(), &mine, Right::Write).is_err());
    let listed: Vec<String> =
        catalog.acl(&alice(), &mine).unwrap().iter().map(|(who, rights)| format!("{who}={rights}")).collect();
    assert_eq!(listed, ["group:md=rwl", "user:bob=l"]);
    set("user:bob=").unwrap();
    assert!(refusal(catalog.show(&bob(), &mine)).contains(there_is_none));
    set("everyone=l").unwrap();
    assert_eq!(labels(catalog, &Caller::user("somebody"), "x = 1"), ["mine"]);
}

fn removed_sets_leave_their_history(catalog: &Catalog) {
    put(catalog, &alice(), "x", &["a=1"]);
    let second = drafted(catalog, &alice(), "x", &[file("a", "second")]);
    catalog.commit(&alice(), &second, &[], NOW).unwrap();
    catalog.remove(&alice(), &key("x@2"), NOW + 1).unwrap();
    assert_eq!(
        catalog.show(&alice(), &key("x")).unwrap().newest.version,
        1,
        "the older one is the newest again"
    );
    assert_eq!(catalog.take_unneeded("here").unwrap(), [Digest::of(b"second")]);
    catalog.remove(&alice(), &key("x"), NOW + 2).unwrap();
    assert!(catalog.show(&alice(), &key("x")).is_err());
    assert_eq!(labels(catalog, &alice(), "a = 1"), Vec::<String>::new());
    assert!(refusal(catalog.begin(&alice(), "x", None, NOW)).contains("is not given again"));
    let history = catalog.history(&alice(), &key("x")).unwrap();
    let verbs: Vec<(&str, i64)> = history.iter().map(|entry| (&*entry.verb, entry.at_ms - NOW)).collect();
    assert_eq!(verbs, [("put", 0), ("put", 0), ("remove", 1), ("remove", 2)]);
    let mut unneeded = catalog.take_unneeded("here").unwrap();
    unneeded.sort();
    let mut both = [Digest::of(b"second"), Digest::of(b"x")];
    both.sort();
    assert_eq!(unneeded, both, "what was not said to be deleted is asked for again");
}

fn replicas_follow_what_sites_say(catalog: &Catalog) {
    put(catalog, &alice(), "x", &[]);
    let there = NewSite {
        name: "there",
        address: "/other",
        domain: Some("hall"),
        keep_bytes: Some(1 << 40),
        ..NewSite::default()
    };
    catalog.add_site(&alice(), &there, NOW).unwrap();
    assert!(refusal(add_site(catalog, "there", "/third")).contains("a site `there` already"));
    let digest = Digest::of(b"x");
    assert_eq!(
        catalog
            .note_replicas("there", &[digest, Digest::of(b"foreign")], ReplicaState::Creating, NOW)
            .unwrap(),
        1
    );
    let at = |catalog: &Catalog| -> Vec<(String, ReplicaState, Option<i64>)> {
        let all = catalog.whereabouts(&alice(), &key("x")).unwrap();
        all.into_iter().map(|replica| (replica.site, replica.state, replica.verified_ms)).collect()
    };
    let here = ("here".to_owned(), ReplicaState::Ready, Some(NOW));
    assert_eq!(at(catalog), [here.clone(), ("there".into(), ReplicaState::Creating, None)]);
    assert_eq!(catalog.holders(&alice(), &key("x")).unwrap()[&digest], ["here"]);
    catalog.note_replicas("there", &[digest], ReplicaState::Ready, NOW + 9).unwrap();
    assert_eq!(catalog.holders(&alice(), &key("x")).unwrap()[&digest], ["here", "there"]);
    catalog.note_replicas("there", &[digest], ReplicaState::Bad, NOW + 10).unwrap();
    assert_eq!(
        at(catalog),
        [here, ("there".into(), ReplicaState::Bad, Some(NOW + 9))],
        "when it was last good stays"
    );
    let sites = catalog.sites().unwrap();
    let shown: Vec<(&str, &str, u64, u64)> =
        sites.iter().map(|site| (&*site.name, &*site.domain, site.n_replicas, site.size_bytes)).collect();
    assert_eq!(shown, [("here", "here", 1, 1), ("there", "hall", 0, 0)]);
    catalog.set_site_state(&alice(), "here", SiteState::Gone, NOW).unwrap();
    assert!(catalog.holders(&alice(), &key("x")).unwrap().is_empty());
    assert!(
        refusal(catalog.note_replicas("nowhere", &[], ReplicaState::Ready, NOW))
            .contains("no site `nowhere`")
    );
}

fn many_files_and_pages(catalog: &Catalog) {
    let files: Vec<_> =
        (0..2345).map(|n| file(&format!("d{}/f{n}", n % 7), &format!("{}", n % 2000))).collect();
    let draft = drafted(catalog, &alice(), "many", &files);
    catalog.commit(&alice(), &draft, &[], NOW).unwrap();
    assert_eq!(catalog.show(&alice(), &key("many")).unwrap().newest.n_files, 2345);
    assert_eq!(catalog.files(&alice(), &key("many")).unwrap().len(), 2345);
    for n in 0..30 {
        put(catalog, &alice(), &format!("s{n}"), &["x=1"]);
    }
    let page: Vec<String> =
        catalog.find(&alice(), Some("x = 1"), 3).unwrap().into_iter().map(|set| set.label).collect();
    assert_eq!(page, ["s29", "s28", "s27"]);
    assert_eq!(catalog.find(&alice(), None, 2).unwrap().len(), 2);
}

/// A copy was missing when somebody looked, and is there again.
fn a_repair_takes_in_what_the_catalog_does_not_know(catalog: &Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::make(&dir.path().join("site"), "site").unwrap();
    add_site(catalog, "site", dir.path().join("site").to_str().unwrap()).unwrap();
    catalog.repair(NOW, &mut |_| {}).unwrap();
    let (source, object) = (dir.path().join("x"), folder.path_of(Digest::of(b"bytes")));
    std::fs::write(&source, "bytes").unwrap();
    let what = Put { sources: &[source], is_made: false, label: "x", copies: None, tags: &[], now_ms: NOW };
    eyas_catalog::put(catalog, &folder, &alice(), &what, &mut |_, _| {}).unwrap();
    let aside = dir.path().join("aside");
    std::fs::rename(&object, &aside).unwrap();
    assert_eq!(catalog.audit("site", NOW, &mut |_| {}).unwrap().missing, [Digest::of(b"bytes")]);
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().short.len(), 1);
    // Other bytes are no copy.
    std::fs::write(&object, "other").unwrap();
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().short.len(), 1);
    std::fs::rename(&aside, &object).unwrap();
    assert_eq!(catalog.repair(NOW, &mut |_| {}).unwrap().short, []);
    assert_eq!(catalog.holders(&alice(), &key("x")).unwrap()[&Digest::of(b"bytes")], ["site"]);
}

/// Three sites and more objects than one statement asks for. Each loss is made good, and nothing else is copied.
fn repairs_make_what_is_missing(catalog: &Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let folders: Vec<Folder> = ["one", "two", "three"]
        .iter()
        .map(|name| {
            let path = dir.path().join(name);
            add_site(catalog, name, path.to_str().unwrap()).unwrap();
            Folder::make(&path, name).unwrap()
        })
        .collect();
    let sources = dir.path().join("sources");
    std::fs::create_dir(&sources).unwrap();
    let n_files: u64 = 1201;
    for n in 0..n_files {
        std::fs::write(sources.join(n.to_string()), n.to_string()).unwrap();
    }
    let put_in = |label: &str, copies: u32, sources: &[std::path::PathBuf]| {
        let what = Put { sources, is_made: false, label, copies: Some(copies), tags: &[], now_ms: NOW };
        eyas_catalog::put(catalog, &folders[0], &alice(), &what, &mut |_, _| {}).unwrap();
    };
    put_in("many", 2, std::slice::from_ref(&sources));
    put_in("single", 1, &[sources.join("7")]);
    let repair = || catalog.repair(NOW, &mut |_| {}).unwrap();
    let n_good = || -> Vec<u64> {
        ["one", "two", "three"]
            .iter()
            .map(|site| catalog.audit(site, NOW, &mut |_| {}).unwrap().n_good)
            .collect()
    };
    assert_eq!((repair().n_copies, repair().n_copies), (n_files, 0));
    assert_eq!((n_good()[0], n_good().iter().sum::<u64>()), (n_files, 2 * n_files));

    // One file is wanted in a third place, as another data set has it.
    catalog.set_copies(&alice(), &key("single"), 3, NOW).unwrap();
    assert_eq!((repair().n_copies, repair().n_copies), (1, 0));

    // A site that is being drained does not count, and gives. Then it comes back, and nothing is missing.
    catalog.set_site_state(&alice(), "one", SiteState::Draining, NOW).unwrap();
    let drained = repair();
    assert_eq!(drained.n_copies, n_files - 1);
    assert_eq!(drained.short.len(), 1, "no third site takes copies: {:?}", drained.short);
    catalog.set_site_state(&alice(), "one", SiteState::Up, NOW).unwrap();
    assert_eq!((repair().n_copies, repair().short.len()), (0, 0));

    // No site takes copies: everything is short, and nothing is lost.
    for site in ["one", "two", "three"] {
        catalog.set_site_state(&alice(), site, SiteState::Draining, NOW).unwrap();
    }
    let idle = repair();
    assert_eq!((idle.n_copies, idle.short.len() as u64), (0, n_files));
}

fn a_catalog_is_made_once_and_newer_ones_are_refused(databases: &dyn Databases) {
    let url = databases.url("made");
    let said = refusal(Catalog::open(&url, NOW));
    assert!(said.contains("`eyas data init` makes one"), "{said}");
    put(&Catalog::init(&url, NOW).unwrap(), &alice(), "x", &["a=1"]);
    assert_eq!(labels(&Catalog::init(&url, NOW).unwrap(), &alice(), "a = 1"), ["x"], "nothing is lost");
    assert_eq!(labels(&Catalog::open(&url, NOW).unwrap(), &alice(), "a = 1"), ["x"]);
    pretend_newer(&url);
    for refused in [refusal(Catalog::open(&url, NOW)), refusal(Catalog::init(&url, NOW))] {
        assert!(refused.contains("use the newer eyas that wrote it"), "{refused}");
    }
}

/// What a newer program does to the tables.
fn pretend_newer(url: &str) {
    let sql = "INSERT INTO eyas_schema (version, applied_ms) VALUES (99, 0)";
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            rusqlite::Connection::open(path).unwrap().execute(sql, ()).unwrap();
        }
        None => {
            postgres::Client::connect(url, postgres::NoTls).unwrap().execute(sql, &[]).unwrap();
        }
    }
}

/// Several programs put versions of one data set, and each version gets a number of its own.
fn several_at_a_time(databases: &dyn Databases) {
    let url = databases.url("race");
    put(&Catalog::init(&url, NOW).unwrap(), &alice(), "x", &[]);
    let put_some = &|who: &str| {
        let catalog = Catalog::open(&url, NOW).unwrap();
        for n in 0..15 {
            let text = format!("{who}{n}");
            let draft = drafted(&catalog, &alice(), "x", &[file("a", &text), file("b", &format!("{n}"))]);
            catalog.commit(&alice(), &draft, &tags(&[&format!("{who}{n}=1")]), NOW).unwrap();
        }
    };
    // Each transaction of one program is in the way of the other five: none of them may give up.
    std::thread::scope(|scope| {
        for who in ["p", "q", "r", "s", "t", "u"] {
            scope.spawn(move || put_some(who));
        }
    });
    let set = Catalog::open(&url, NOW).unwrap().show(&alice(), &key("x")).unwrap();
    assert_eq!(set.versions.len(), 91);
    assert_eq!(set.newest.version, 91);
    assert_eq!(set.newest.tags.len(), 90);
}

#[test]
fn databases_that_are_none_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let check = |url: &str, part: &str| {
        let said = match Catalog::init(url, NOW) {
            Ok(_) => panic!("{url} was opened"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(part), "{url}: {said}");
    };
    check("mysql://x/y", "names no database that eyas knows");
    check("sqlite:", "the path of the catalog is missing");
    check(&format!("sqlite:{}/no/such/folder/x.db", dir.path().display()), "does its folder exist");
    let text = dir.path().join("text");
    std::fs::write(&text, "this is a text of more than sixteen bytes, and no database at all").unwrap();
    check(text.to_str().unwrap(), "is a file, but not an eyas catalog");
    check("postgres://u:secret@127.0.0.1:1/x", "cannot reach the database `x` at 127.0.0.1");
    match Catalog::init("postgres://u:secret@127.0.0.1:1/x", NOW) {
        Err(error @ Error::Away { .. }) => {
            assert!(error.is_temporary());
            assert!(!error.to_string().contains("secret"));
        }
        _ => panic!("nobody listens there"),
    }
}
