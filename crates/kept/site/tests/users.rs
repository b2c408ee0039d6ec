//! A catalog in PostgreSQL that one role has made and others use, with real stores: by eyas, and by SQL.

#[path = "../../catalog/tests/common/mod.rs"]
mod common;

use common::{NOW, Server};
use eyas_catalog::{Caller, Catalog, Error, Folder, Joining, Key, NewSite, Put, Reach, Rights, Subject};
use eyas_site::{Remote, Store, StoreOptions, Stores};
use eyas_wire::identity::{Identity, Join};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A store that is served until it is dropped.
struct Served {
    runtime: Option<Runtime>,
    address: String,
    identity: Identity,
    /// Its join file, with its own key.
    join: String,
}

impl Served {
    fn start(root: &Path, name: &str) -> Served {
        Served::start_at(root, name, "127.0.0.1:0", Identity::generate().unwrap())
    }

    fn start_at(root: &Path, name: &str, at: &str, identity: Identity) -> Served {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = Folder::make(&root.join(name), name).unwrap();
        let store = Arc::new(Store::new(folder, StoreOptions::default()).unwrap());
        let listener = runtime.block_on(TcpListener::bind(at)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut join = Join::new(address.clone(), name.into(), String::new(), identity.clone());
        join.store = Some(name.into());
        let serving = identity.clone();
        runtime.spawn(async move { store.serve(listener, &serving).await });
        let join = serde_json::to_string(&join).unwrap();
        Served { runtime: Some(runtime), address, identity, join }
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

fn add(catalog: &Catalog, caller: &Caller, join: &str) {
    let remote = Remote::connect(join).unwrap();
    let new = NewSite {
        name: eyas_catalog::Holding::name(&remote),
        address: remote.address(),
        join: Some(join),
        ..NewSite::default()
    };
    catalog.join_site(caller, &remote, &new, Joining::Comes, NOW).unwrap();
}

/// A user of the catalog, as commands have one.
struct As {
    catalog: Catalog,
    caller: Caller,
}

impl As {
    fn open(url: &str) -> eyas_catalog::Result<As> {
        let catalog = Catalog::open(url, NOW)?.reaching(Box::new(Stores));
        // Who runs the program is not asked where the database knows better.
        let caller = catalog.caller(Caller::user("keeper"))?;
        Ok(As { catalog, caller })
    }

    fn put(&self, root: &Path, label: &str, text: &str) -> eyas_catalog::Result<Key> {
        let source = root.join(format!("{}-{label}", self.caller.name));
        fs::write(&source, text).unwrap();
        let (sources, holding) = ([source], self.catalog.holding("one")?);
        let what = Put { sources: &sources, is_made: false, label, copies: Some(2), tags: &[], now_ms: NOW };
        let done = eyas_catalog::put(&self.catalog, &*holding, &self.caller, &what, &mut |_, _| {})?;
        assert!(done.unsealed.is_none(), "{:?}", done.unsealed);
        Ok(done.key)
    }

    fn get(&self, root: &Path, label: &str) -> eyas_catalog::Result<String> {
        let reader = self.catalog.reader(&self.caller, &label.parse().unwrap(), NOW)?;
        let target = root.join("got");
        let _ = fs::remove_file(&target);
        reader.get(&reader.files()[0], &target)?;
        Ok(fs::read_to_string(target).unwrap())
    }

    fn share(&self, label: &str, who: &str, rights: &str) -> eyas_catalog::Result<()> {
        let entry: (Subject, Rights) = (who.parse().unwrap(), rights.parse().unwrap());
        let key = label.parse().unwrap();
        self.catalog.set_acl(&self.caller, &key, &[entry], NOW)?;
        let unheard = self.catalog.spread_rights(&self.caller, &key)?;
        assert!(unheard.is_empty(), "{unheard:?}");
        Ok(())
    }

    fn labels(&self) -> Vec<String> {
        let found = self.catalog.find(&self.caller, None, 100).unwrap();
        let mut labels: Vec<String> = found.into_iter().map(|set| set.label).collect();
        labels.sort();
        labels
    }
}

fn refused<T>(done: eyas_catalog::Result<T>, words: &str) {
    match done {
        Err(error) => assert!(error.to_string().contains(words), "{error}"),
        Ok(_) => panic!("it was expected to say {words:?}"),
    }
}

#[test]
fn a_second_role_uses_what_the_first_one_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let server = Server::start();
    let url = server.owned_by("keeper", "shared");
    for role in ["bo", "cy"] {
        server.command(&format!("CREATE ROLE {role} LOGIN"));
    }
    drop(Catalog::init(&url("keeper"), NOW).unwrap());
    let keeper = As::open(&url("keeper")).unwrap();
    let (one, mut two) = (Served::start(root, "one"), Served::start(root, "two"));
    add(&keeper.catalog, &keeper.caller, &one.join);
    keeper.put(root, "hidden", "nobody else's").unwrap();
    keeper.put(root, "shown", "for a group").unwrap();
    keeper.share("shown", "group:md", "rl").unwrap();

    // Who was not let in is told so in one sentence.
    refused(As::open(&url("bo")), "lets users in: eyas data user add");
    refused(
        keeper.catalog.add_user(&keeper.caller, "di", &[], NOW),
        "has no user `di`, whom its owner makes: createuser",
    );
    for (name, groups) in [("bo", vec!["md".to_owned()]), ("cy", vec![])] {
        assert!(keeper.catalog.add_user(&keeper.caller, name, &groups, NOW).unwrap().is_empty());
    }
    // A store that comes later knows them, too.
    add(&keeper.catalog, &keeper.caller, &two.join);
    let users = keeper.catalog.users().unwrap();
    let users: Vec<_> = users.iter().map(|user| (user.name.as_str(), user.n_stores)).collect();
    assert_eq!(users, [("bo", 2), ("cy", 2)]);

    let (bo, cy) = (As::open(&url("bo")).unwrap(), As::open(&url("cy")).unwrap());
    assert_eq!((bo.caller.name.as_str(), &bo.caller.groups[..]), ("bo", &["md".to_owned()][..]));
    assert_eq!(bo.labels(), ["shown"]);
    assert_eq!(bo.get(root, "shown").unwrap(), "for a group");
    refused(bo.get(root, "hidden"), "there is no data set `hidden` that you may list");
    refused(bo.put(root, "hidden", "x"), "the label `hidden` is not free");
    bo.put(root, "bos", "what bo has made").unwrap();
    bo.put(root, "bos", "and has made again").unwrap();
    assert!(cy.labels().is_empty() && keeper.labels() == ["hidden", "shown"]);
    bo.share("bos", "user:cy", "rwl").unwrap();
    assert_eq!(cy.get(root, "bos").unwrap(), "and has made again");
    cy.put(root, "bos", "cy's version").unwrap();
    assert_eq!(bo.get(root, "bos").unwrap(), "cy's version");
    refused(cy.share("bos", "user:cy", "rwlax"), "has not got the right to admin");
    refused(cy.put(root, "shown", "x"), "the label `shown` is not free");
    bo.catalog.tag(&bo.caller, &"bos".parse().unwrap(), &common::tags(&["kind=try"]), &[], NOW).unwrap();
    assert_eq!(common::labels(&cy.catalog, &cy.caller, "kind = try"), ["bos"]);
    // Equal bytes of two users are one object, which each has brought.
    cy.put(root, "same", "nobody else's").unwrap();
    assert_eq!(cy.get(root, "same").unwrap(), "nobody else's");

    // Only who sees all of it repairs it.
    refused(bo.catalog.repair(NOW, &mut |_| {}), "can repair, as its user `bo` sees a part of it");
    refused(bo.catalog.audit("one", NOW, &mut |_| {}), "can audit");
    refused(bo.catalog.add_user(&bo.caller, "bo", &[], NOW), "can add a user");
    let repair = keeper.catalog.repair(NOW, &mut |_| {}).unwrap();
    assert!(repair.short.is_empty() && repair.away.is_empty() && repair.n_copies > 0, "{repair:?}");
    let at_two = bo.catalog.reader(&bo.caller, &"bos".parse().unwrap(), NOW).unwrap().only_at("two").unwrap();
    at_two.get(&at_two.files()[0], &root.join("at-two")).unwrap();
    drop(at_two);

    by_sql(&server);

    // Removed, bo reaches neither the catalog nor a store, with the key that bo still has.
    let key_to = |site: &str| {
        let sql = format!(
            "SELECT join_text FROM site_key WHERE site_id = (SELECT id FROM site WHERE name = '{site}')"
        );
        server.ask("bo", "shared", &sql).unwrap()
    };
    let (kept, kept_of_two) = (key_to("one"), key_to("two"));
    assert!(Stores.reach("one", &kept).is_ok() && Stores.reach("two", &kept_of_two).is_ok());
    let here = bo.catalog.holding("one").unwrap();
    two.end();
    let unheard = keeper.catalog.remove_user(&keeper.caller, "bo", NOW).unwrap();
    assert!(matches!(&unheard[..], [(site, _)] if site == "two"), "{unheard:?}");
    refused(bo.catalog.find(&bo.caller, None, 1), "does not let its user do this");
    refused(Stores.reach("one", &kept), "does not let this user in");
    let digest = eyas_data::Digest::of(b"cy's version");
    assert!(here.open(digest).is_err(), "nor by a connection that was there");
    assert_eq!(cy.get(root, "bos").unwrap(), "cy's version", "others go on");
    refused(keeper.catalog.remove_user(&keeper.caller, "bo", NOW), "the catalog has no user `bo`");
    // A store that was away hears of it from the first look after it is back.
    let (at, identity) = (two.address.clone(), two.identity.clone());
    let two = Served::start_at(root, "two", &at, identity);
    assert!(Stores.reach("two", &kept_of_two).is_ok());
    assert!(keeper.catalog.repair(NOW, &mut |_| {}).unwrap().away.is_empty());
    refused(Stores.reach("two", &kept_of_two), "does not let this user in");

    // And comes back with new keys.
    keeper.catalog.add_user(&keeper.caller, "bo", &[], NOW).unwrap();
    assert_eq!(As::open(&url("bo")).unwrap().labels(), ["bos"]);
    refused(Stores.reach("one", &kept), "does not let this user in");
    assert!(matches!(As::open(&url("bo")).unwrap().get(root, "shown"), Err(Error::NotFound(_))));
    drop((one, two));
}

/// What a user of the database reads and writes without eyas.
fn by_sql(server: &Server) {
    let bo = |sql: &str| server.ask("bo", "shared", sql);
    assert_eq!(bo("SELECT DISTINCT who FROM site_key").unwrap(), "bo");
    let own =
        server.ask("keeper", "shared", "SELECT join_text FROM site_key WHERE who = '' LIMIT 1").unwrap();
    let own: Join = serde_json::from_str(&own).unwrap();
    let secret = String::from_utf8(own.identity.secret().to_vec()).unwrap();
    for table in [
        "site_key", "site", "member", "trail", "data_set", "version", "file", "object", "tag", "acl",
        "replica",
    ] {
        let rows = bo(&format!("SELECT t::text FROM {table} t")).unwrap();
        assert!(!rows.contains(&secret), "{table}");
        assert!(table == "replica" || !rows.contains("hidden"), "{table}: {rows}");
    }
    assert_eq!(bo("SELECT label FROM data_set ORDER BY label").unwrap(), "bos\nshown");
    assert_eq!(bo("SELECT DISTINCT s.label FROM file f JOIN version v ON v.id = f.version_id JOIN data_set s ON s.id = v.set_id \
                   ORDER BY 1").unwrap(), "bos\nshown");
    let secrets = "SELECT id FROM data_set WHERE label = 'hidden'";
    let id = server.ask("keeper", "shared", secrets).unwrap();
    let version = format!("SELECT id FROM version WHERE set_id = {id}");
    let version = server.ask("keeper", "shared", &version).unwrap();
    for sql in [
        format!("INSERT INTO acl (set_id, subject, rights) VALUES ({id}, 'user:bo', 'rl')"),
        "INSERT INTO acl (set_id, subject, rights) SELECT id, 'user:bo', 'rwlax' FROM data_set WHERE label = 'shown'".into(),
        "UPDATE data_set SET owner = 'bo'".into(),
        "INSERT INTO data_set (label, owner, created_ms, copies, newest, n_files, size_bytes) \
         VALUES ('false', 'keeper', 1, 1, 0, 0, 0)".into(),
        format!("INSERT INTO version (set_id, number, state, created_ms, n_files, size_bytes) VALUES ({id}, 9, 'open', 1, 0, 0)"),
        format!("INSERT INTO file (version_id, path, object_id, is_executable) SELECT {version}, 'x', min(id), 0 FROM object"),
        "INSERT INTO trail (at_ms, caller, verb, detail) VALUES (1, 'keeper', 'put', '')".into(),
        "DELETE FROM trail".into(),
        "UPDATE site SET address = 'mine:1'".into(),
        "UPDATE site_key SET join_text = ''".into(),
        "INSERT INTO member (name, group_names, added_ms) VALUES ('bo', 'all', 1)".into(),
        "UPDATE member SET group_names = 'all'".into(),
        "UPDATE quota SET allowed_bytes = 1".into(),
        "ALTER TABLE acl DISABLE ROW LEVEL SECURITY".into(),
    ] {
        let reason = bo(&sql).expect_err(&sql);
        assert!(["permission denied", "row-level security", "must be owner"].iter().any(|words| reason.contains(words)), "{sql}: {reason}");
    }
    // Another one's bytes cannot be made part of what is one's own, by their number or by a digest that one does not know.
    let object = server
        .ask("keeper", "shared", &format!("SELECT object_id FROM file WHERE version_id = {version}"))
        .unwrap();
    let open = "INSERT INTO version (set_id, number, state, created_ms, n_files, size_bytes) \
                SELECT id, 99, 'open', 1, 0, 0 FROM data_set WHERE label = 'bos'";
    bo(open).unwrap();
    let of_bos = "SELECT id FROM version WHERE number = 99";
    let reason = bo(&format!(
        "INSERT INTO file (version_id, path, object_id, is_executable) SELECT id, 'x', {object}, 0 FROM ({of_bos}) v"
    ));
    assert!(reason.as_ref().is_err_and(|reason| reason.contains("row-level security")), "{reason:?}");
    assert_eq!(bo(&format!("SELECT count(*) FROM object WHERE id = {object}")).unwrap(), "0");
    for sql in ["INSERT INTO claim (who, object_id) SELECT 'bo', 1", "SELECT eyas_claim('cy', '\\x00')"] {
        assert!(bo(sql).is_err(), "{sql}");
    }
    assert_eq!(bo("SELECT eyas_claim('bo', '\\x00') IS NULL").unwrap(), "t");
    let gone = bo(&format!("UPDATE replica SET state = 'deleting' WHERE object_id = {object}"));
    assert_eq!(gone.unwrap(), "");
    let mine = bo("UPDATE replica SET state = 'deleting'");
    assert!(mine.is_err_and(|reason| reason.contains("row-level security")));
    let states = format!("SELECT DISTINCT state FROM replica WHERE object_id = {object}");
    assert_eq!(server.ask("keeper", "shared", &states).unwrap(), "ready");
    bo("DELETE FROM version WHERE number = 99").unwrap();
    // What is not seen is not changed.
    for sql in [
        format!("DELETE FROM file WHERE version_id = {version}"),
        format!("DELETE FROM acl WHERE set_id <> {id}"),
        format!("UPDATE version SET state = 'removed' WHERE id = {version}"),
        format!("UPDATE data_set SET copies = 1 WHERE id = {id}"),
    ] {
        bo(&sql).unwrap();
    }
    let count = |sql: &str| server.ask("keeper", "shared", sql).unwrap();
    assert_eq!(count(&format!("SELECT count(*) FROM file WHERE version_id = {version}")), "1");
    assert_eq!(count("SELECT count(*) FROM acl WHERE subject = 'group:md'"), "1");
    assert_eq!(count(&format!("SELECT state FROM version WHERE id = {version}")), "committed");
    assert_eq!(count(&format!("SELECT copies FROM data_set WHERE id = {id}")), "2");
    // Bo's own list is bo's to change.
    assert_eq!(count("SELECT count(*) FROM acl WHERE subject = 'user:cy'"), "0");
    bo("INSERT INTO acl (set_id, subject, rights) SELECT id, 'user:cy', 'rwl' FROM data_set WHERE label = 'bos'").unwrap();
}
