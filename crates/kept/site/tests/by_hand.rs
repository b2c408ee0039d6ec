//! The wire is spoken by hand, with the certificates of users: what a store refuses does not hang on what our own programs ask.

// The messages themselves, which the crate shows nobody.
#[allow(dead_code)]
#[path = "../src/protocol.rs"]
mod protocol;

use eyas_catalog::{Acl, File, Folder, Holding, Reach, Sealed, StoreUser};
use eyas_data::Digest;
use eyas_net::{FrameReader, Writer};
use eyas_site::{Remote, Store, StoreOptions, Stores};
use eyas_wire::identity::{Identity, Join};
use protocol::{Ask, Tell};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const ALICES: &[u8] = b"what alice has measured";

struct Served {
    runtime: Runtime,
    /// The join file with the store's own key.
    own: String,
    address: String,
}

impl Served {
    fn start(root: &Path, identity: &Identity) -> Served {
        let store =
            Arc::new(Store::new(Folder::make(root, "one").unwrap(), StoreOptions::default()).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut join = Join::new(address.clone(), "one".into(), String::new(), identity.clone());
        join.store = Some("one".into());
        let identity = identity.clone();
        runtime.spawn(async move { store.serve(listener, &identity).await });
        Served { runtime, own: serde_json::to_string(&join).unwrap(), address }
    }

    /// A user's key, and what the store is told of it.
    fn user(&self, name: &str, groups: &[&str]) -> (Identity, StoreUser) {
        let (join, key) = Stores.key_for(&self.own, name).unwrap();
        let join: Join = serde_json::from_str(&join).unwrap();
        assert!(join.identity.secret().is_empty(), "a user has nothing of the store's secret");
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        (join.identity, StoreUser { name: name.into(), groups, key })
    }

    fn connect(&self, identity: &Identity) -> Result<Spoken<'_>, String> {
        let connected = self.runtime.block_on(eyas_net::connect(&self.address, identity));
        let (reader, writer) = connected.map_err(|error| error.to_string())?;
        Ok(Spoken { served: self, reader, writer })
    }
}

/// A connection on which frames are sent and read one by one.
struct Spoken<'a> {
    served: &'a Served,
    reader: FrameReader,
    writer: Writer,
}

impl Spoken<'_> {
    /// All that is answered up to the end; nothing, where the connection ends.
    fn ask(&mut self, asks: &[Ask]) -> Vec<Tell> {
        asks.iter().for_each(|ask| assert!(self.writer.send(ask)));
        let mut all = vec![];
        loop {
            let next =
                async { tokio::time::timeout(Duration::from_secs(30), self.reader.next::<Tell>()).await };
            match self.served.runtime.block_on(next).expect("it answers") {
                Ok(Some(Tell::Beat | Tell::Waits)) => {}
                Ok(Some(tell)) => {
                    let is_last = matches!(
                        tell,
                        Tell::Done
                            | Tell::Missing
                            | Tell::Failed(_)
                            | Tell::Site { .. }
                            | Tell::Permit(_)
                            | Tell::Claimed(_)
                            | Tell::Load { .. }
                            | Tell::Blocks(..)
                    );
                    all.push(tell);
                    if is_last {
                        return all;
                    }
                }
                Ok(None) | Err(_) => return all,
            }
        }
    }

    fn refusal(&mut self, ask: Ask) -> String {
        let said = format!("{ask:?}");
        match &self.ask(&[ask])[..] {
            [Tell::Failed(reason)] => reason.clone(),
            other => panic!("{said} is answered with {other:?}"),
        }
    }

    fn read(&mut self, digest: Digest) -> Vec<u8> {
        let answers = self.ask(&[Ask::Read(digest)]);
        assert!(matches!(answers.last(), Some(Tell::Done)), "{answers:?}");
        let pieces = answers.iter().filter_map(|tell| match tell {
            Tell::Piece(piece) => Some(piece.to_vec()),
            _ => None,
        });
        pieces.flatten().collect()
    }

    fn bring(&mut self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let piece = Ask::Piece(bytes.to_vec().into());
        let answers = self.ask(&[Ask::Begin, Ask::Add, piece, Ask::Whole(digest), Ask::Keep]);
        assert!(matches!(&answers[..], [Tell::Done]), "{answers:?}");
        digest
    }
}

fn sealed(key: &str, owner: &str, acl: &[(&str, &str)], digests: &[Digest]) -> Sealed {
    let files = digests.iter().enumerate().map(|(n, digest)| File {
        path: format!("f{n}"),
        size_bytes: 1,
        digest: *digest,
        is_executable: false,
    });
    let acl: Acl =
        acl.iter().map(|(subject, rights)| ((*subject).to_owned(), rights.parse().unwrap())).collect();
    let (owner, files) = (owner.into(), files.collect());
    Sealed { key: key.parse().unwrap(), owner, created_ms: 1, copies: 1, tags: vec![], acl, files }
}

fn seal(sealed: &Sealed) -> Ask {
    Ask::Seal { key: sealed.key.to_string(), text: sealed.text().into() }
}

fn plan(digest: Digest) -> Ask {
    let plan = serde_json::json!({"inputs": [{"files": [{"digest": digest, "path": "f0"}]}], "command": ["cat", "f0"]});
    Ask::Run { plan: serde_json::to_vec(&plan).unwrap().into(), keeps_outputs: false }
}

#[test]
fn a_store_asks_its_own_list_who_may_do_what() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("one");
    let identity = Identity::generate().unwrap();
    let served = Served::start(&root, &identity);
    let keeper = Remote::connect(&served.own).unwrap();
    let mut batch = keeper.batch().unwrap();
    let (alices, _) = batch.add(&mut &*ALICES).unwrap();
    batch.keep().unwrap();
    let given = sealed("set@1", "alice", &[("group:md", "rl")], &[alices]);
    assert!(keeper.seal(&given.key, &given.text()).unwrap());

    // Nobody has told the store of them.
    let ((bo, bo_known), (cy, cy_known)) = (served.user("bo", &["md"]), served.user("cy", &[]));
    assert!(served.connect(&bo).is_err() && served.connect(&cy).is_err());
    keeper.set_users(&[bo_known, cy_known.clone()]).unwrap();
    let mode = std::fs::metadata(root.join("users.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // A group of bo's may read the object; nobody but alice may run programs on it.
    let mut bos = served.connect(&bo).unwrap();
    assert_eq!(bos.read(alices), ALICES);
    assert!(bos.refusal(plan(alices)).contains("`bo` may not run programs on the object"));
    // A permit would outlive bo's key.
    assert!(bos.refusal(Ask::Permit(vec![alices])).contains("only who has the store's own key"));

    // Cy has no right, whatever is asked.
    let mut cys = served.connect(&cy).unwrap();
    let mine = sealed("mine@1", "cy", &[], &[alices]);
    let wider = sealed("set@1", "alice", &[("user:cy", "r")], &[alices]);
    let of_cy = sealed("set@2", "cy", &[], &[]);
    let aside = || eyas_catalog::Aside { digest: alices, by: "me".into() };
    let asks = vec![
        Ask::Read(alices),
        Ask::Copy(alices),
        Ask::ReadAt(alices, 0, 5),
        Ask::ReadBlocks(alices, 0, 0, 1),
        Ask::Groups(alices, ALICES.len() as u64),
        Ask::Verify(vec![alices]),
        Ask::Permit(vec![alices]),
        plan(alices),
        seal(&mine),
        seal(&wider),
        seal(&of_cy),
        Ask::Objects,
        Ask::SetAside(vec![alices]),
        Ask::Aside,
        Ask::Settle { unneeded: vec![aside()], needed: vec![] },
        Ask::SealDigests,
        Ask::Unseal("set@1".into()),
        Ask::Claim("mine".into()),
        Ask::Reads,
        Ask::Fetch { address: served.address.clone(), key: bytes::Bytes::new(), digests: vec![alices] },
        Ask::Users(vec![cy_known.clone()]),
    ];
    for ask in asks {
        let reason = cys.refusal(ask);
        assert!(
            reason.contains("`cy`") && (reason.contains("may") || reason.contains("own key")),
            "{reason}"
        );
    }
    assert!(matches!(&cys.ask(&[Ask::SealKeys])[..], [Tell::Done]), "there is nothing that cy may see");
    assert_eq!(bos.read(alices), ALICES);

    // What cy brings is cy's, and may be put together with nothing of others.
    let own = cys.bring(b"what cy has made");
    assert_eq!(cys.read(own), b"what cy has made");
    let both = sealed("mine@1", "cy", &[], &[own, alices]);
    assert!(cys.refusal(seal(&both)).contains("has neither brought the object"));
    let ended = cys.ask(&[seal(&sealed("mine@1", "cy", &[("user:bo", "r")], &[own]))]);
    assert!(matches!(&ended[..], [Tell::Done]), "{ended:?}");
    assert_eq!(bos.read(own), b"what cy has made");
    // Who changes the rights needs more than to read.
    assert!(
        bos.refusal(seal(&sealed("mine@1", "cy", &[("user:bo", "rwlax")], &[own]))).contains("may not say")
    );
    let ended = cys.ask(&[seal(&sealed("mine@1", "cy", &[], &[own]))]);
    assert!(matches!(&ended[..], [Tell::Done]), "{ended:?}");
    assert!(bos.refusal(Ask::Read(own)).contains("`bo` may not read"));

    // Bo's key is taken back: the connection that is there ends, and no other one begins.
    keeper.set_users(&[cy_known]).unwrap();
    assert!(bos.refusal(Ask::Read(alices)).contains("was taken back"));
    assert!(bos.ask(&[Ask::Site]).is_empty());
    assert!(served.connect(&bo).is_err());

    // All of it is on the store's own disk.
    drop((keeper, bos, cys));
    let Served { runtime, .. } = served;
    runtime.shutdown_timeout(Duration::from_secs(5));
    let again = Served::start(&root, &identity);
    assert!(again.connect(&bo).is_err());
    let mut cys = again.connect(&cy).unwrap();
    assert_eq!(cys.read(own), b"what cy has made");
    assert!(cys.refusal(Ask::Read(alices)).contains("`cy` may not read"));
}

/// The keys of the seals that this side may see.
fn keys(spoken: &mut Spoken<'_>) -> Vec<String> {
    let answers = spoken.ask(&[Ask::SealKeys]);
    assert!(matches!(answers.last(), Some(Tell::Done)), "{answers:?}");
    let keys = answers.into_iter().filter_map(|tell| match tell {
        Tell::SealKeys(keys) => Some(keys),
        _ => None,
    });
    let mut keys: Vec<String> = keys.flatten().collect();
    keys.sort();
    keys
}

fn done(spoken: &mut Spoken<'_>, sealed: &Sealed) {
    let ended = spoken.ask(&[seal(sealed)]);
    assert!(matches!(&ended[..], [Tell::Done]), "{} is answered with {ended:?}", sealed.key);
}

/// A user who said first that a label is theirs kept its owner's seal out, and that of the catalog's keeper.
#[test]
fn who_seals_first_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("one");
    let identity = Identity::generate().unwrap();
    let served = Served::start(&root, &identity);
    let keeper = Remote::connect(&served.own).unwrap();
    let users = ["alice", "bo", "cy", "dee"].map(|name| served.user(name, &[]));
    keeper.set_users(&users.iter().map(|(_, known)| known.clone()).collect::<Vec<_>>()).unwrap();
    let [mut alice, mut bo, mut cy, mut dee] = users.each_ref().map(|(key, _)| served.connect(key).unwrap());
    let (hers, his, cys) =
        (alice.bring(ALICES), bo.bring(b"what bo has made"), cy.bring(b"what cy has made"));

    // The store knows no such label, so it is whose anybody says.
    done(&mut bo, &sealed("night@1", "bo", &[("user:dee", "r")], &[his]));
    done(&mut bo, &sealed("night@7", "bo", &[], &[his]));
    let of_alice = sealed("night@1", "alice", &[("user:cy", "rw")], &[hers]);
    done(&mut alice, &of_alice);
    assert_eq!((cy.read(hers), dee.read(his)), (ALICES.to_vec(), b"what bo has made".to_vec()));
    assert!(bo.refusal(Ask::Read(hers)).contains("`bo` may not read"));
    assert_eq!(
        (keys(&mut alice), keys(&mut bo)),
        (vec!["night@1".into()], vec!["night@1".into(), "night@7".into()])
    );
    // Nobody says anything in the name of somebody who has given them no right.
    assert!(
        bo.refusal(seal(&sealed("night@2", "alice", &[("user:cy", "rw")], &[his]))).contains("may not say")
    );
    // What they do not agree on is told to whoever makes a catalog of it.
    let (versions, unreadable) = keeper.seals().unwrap();
    assert_eq!(versions.iter().map(|version| version.key.to_string()).collect::<Vec<_>>(), ["night@7"]);
    assert!(unreadable.len() == 1 && unreadable[0].contains("night@1: users of the store"), "{unreadable:?}");
    assert_eq!(keeper.seal_digests().unwrap()["night@7"], Digest([0; 32]), "nobody but bo has said it");

    // Cy may write alice's data set, and says ahead of her what its second version is. Her own word is not kept out.
    done(&mut cy, &sealed("night@2", "alice", &[("user:cy", "rw")], &[cys]));
    let second = sealed("night@2", "alice", &[("user:cy", "rw"), ("user:dee", "r")], &[hers, hers]);
    assert!(cy.refusal(seal(&second)).contains("may not say"), "cy may not let dee in");
    done(&mut alice, &second);
    assert_eq!(dee.read(hers), ALICES);
    assert!(dee.refusal(Ask::Read(cys)).contains("`dee` may not read"));
    // A version has the files that its user said first.
    let other = sealed("night@2", "alice", &[("user:cy", "rw"), ("user:dee", "r")], &[hers]);
    assert!(matches!(&alice.ask(&[seal(&other)])[..], [Tell::OtherSeal, Tell::Done]));
    // Rights that are taken back are taken back in whosever words the version is.
    done(&mut alice, &sealed("night@1", "alice", &[], &[hers]));
    done(&mut alice, &sealed("night@2", "alice", &[], &[hers, hers]));
    assert!(cy.refusal(Ask::Read(hers)).contains("`cy` may not read"));
    assert!(cy.refusal(seal(&sealed("night@3", "alice", &[], &[cys]))).contains("may not say"));

    // The keeper's word takes the place of all others: the catalog says that the label is alice's.
    let first = sealed("night@1", "alice", &[], &[hers]);
    assert!(keeper.seal(&first.key, &first.text()).unwrap());
    assert_eq!(
        (keys(&mut bo), keys(&mut cy), keys(&mut alice)),
        (vec![], vec!["night@2".into()], vec!["night@1".into(), "night@2".into()])
    );
    assert!(dee.refusal(Ask::Read(his)).contains("`dee` may not read"));
    assert!(bo.refusal(seal(&sealed("night@8", "bo", &[], &[his]))).contains("may not say"));
    // An owner's own word is no stranger's: after a restore from a backup it may be the newer one.
    assert!(!keeper.seal(&other.key, &other.text()).unwrap());
    let second = sealed("night@2", "alice", &[], &[hers, hers]);
    assert!(keeper.seal(&second.key, &second.text()).unwrap());
    assert_eq!(keys(&mut cy), Vec::<String>::new(), "what cy had said is gone");
    assert_eq!(keeper.seal_digests().unwrap()["night@2"], Digest::of(&second.text()));
    keeper.unseal(&second.key).unwrap();
    assert_eq!(keeper.seal_keys().unwrap(), ["night@1"]);
    // Where the keeper's seal is there, the owner's changes stand in its place.
    let shared = sealed("night@1", "alice", &[("user:cy", "r")], &[hers]);
    done(&mut alice, &shared);
    assert_eq!((cy.read(hers), keeper.seals().unwrap().0), (ALICES.to_vec(), vec![shared]));

    // All of it is on the store's own disk.
    done(&mut bo, &sealed("own@1", "bo", &[("user:dee", "r")], &[his]));
    drop((keeper, alice, bo, cy, dee));
    let Served { runtime, .. } = served;
    runtime.shutdown_timeout(Duration::from_secs(5));
    let again = Served::start(&root, &identity);
    let mut dee = again.connect(&users[3].0).unwrap();
    assert_eq!((keys(&mut dee), dee.read(his)), (vec!["own@1".into()], b"what bo has made".to_vec()));
}
