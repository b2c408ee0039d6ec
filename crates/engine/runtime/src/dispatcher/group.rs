//! The addresses of the dispatchers of a group.
//!
//! They are kept in `group.json` and sent on each new connection ([`super::links`]). A restarted member takes the port
//! that it had, if it can ([`super::address`]), and otherwise sends its new address to the others.
//!
//! Not here: whose word about an address counts, and the messages between members (`eyas-session`); how a submission is
//! split ([`eyas_core::group::split`]).

use super::{DispatcherError, DispatcherOptions, JOIN_FILE};
use crate::files;
use eyas_core::group::Membership;
use eyas_text::shown_path;
use eyas_wire::identity::Join;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tokio::sync::watch;

const GROUP_FILE: &str = "group.json";

/// This dispatcher's place among several.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    pub membership: Membership,
    /// Join file of another member, which names the cluster and that member's address. The first member needs
    /// none.
    pub join: Option<PathBuf>,
}

/// The data that outlives the process.
#[derive(Serialize, Deserialize)]
struct KeptGroup {
    membership: Membership,
    /// The last known address of each member.
    addresses: Vec<String>,
}

/// `Err`: the directory belongs to a member of a group, but this dispatcher was started without a group.
pub(super) fn check_alone(dir: &Path) -> Result<(), DispatcherError> {
    let Some(KeptGroup { membership: Membership { me, n_members }, .. }) = read_kept(dir) else {
        return Ok(());
    };
    let (dir, k) = (shown_path(dir), me.0 + 1);
    let what =
        format!("{dir} is of dispatcher {k} of {n_members}; start it as that, with --member {k}/{n_members}");
    Err(DispatcherError::Config(what))
}

/// Reads the join file that a member was started with.
pub(super) fn read_given_join(options: &DispatcherOptions) -> Result<Option<Join>, DispatcherError> {
    let path = options.group.as_ref().and_then(|g| g.join.as_ref());
    match path.map(|path| Join::read(path)).transpose() {
        // This member has run before and knows the others without that file, whose dispatcher may be away.
        Err(_) if read_kept(&options.dir).is_some() => Ok(None),
        given => Ok(given?),
    }
}

fn read_kept(dir: &Path) -> Option<KeptGroup> {
    serde_json::from_slice(&std::fs::read(dir.join(GROUP_FILE)).ok()?).ok()
}

/// The addresses that an earlier process of this member has kept.
pub(super) fn kept_addresses(dir: &Path, membership: Membership) -> Result<Vec<String>, DispatcherError> {
    let Some(kept) = read_kept(dir) else { return Ok(vec![]) };
    if kept.membership != membership {
        let Membership { me, n_members } = kept.membership;
        let what = format!("{} is of dispatcher {} of {n_members}", shown_path(dir), me.0 + 1);
        return Err(DispatcherError::Config(format!("{what}; that does not change")));
    }
    Ok(kept.addresses)
}

/// The addresses that the join file of another member names. `join`: our own, of the same cluster.
pub(super) fn given_addresses<'a>(
    dir: &Path,
    given: Option<&'a Join>,
    join: &Join,
) -> Result<&'a [String], DispatcherError> {
    match given {
        None => Ok(&[]),
        Some(given) if given.cluster != join.cluster => {
            let (dir, ours, theirs) = (shown_path(dir), &join.cluster, &given.cluster);
            let what = format!("{dir} is of cluster {ours}, the join file of {theirs}");
            Err(DispatcherError::Config(what))
        }
        // A dispatcher that is alone so far names only itself.
        Some(given) if given.members.is_empty() => Ok(std::slice::from_ref(&given.address)),
        Some(given) => Ok(&given.members),
    }
}

/// The members' addresses, as this member keeps them and passes them on.
pub(super) struct Whereabouts {
    dir: PathBuf,
    membership: Membership,
    /// Sends the addresses to the tasks that connect to the members.
    address_sender: watch::Sender<Vec<String>>,
    join: Join,
}

impl Whereabouts {
    /// `join`: the member's own join file, with the addresses of all.
    pub fn begin(dir: &Path, membership: Membership, join: Join) -> Whereabouts {
        let address_sender = watch::Sender::new(join.members.clone());
        let whereabouts = Whereabouts { dir: dir.to_path_buf(), membership, address_sender, join };
        whereabouts.keep();
        whereabouts
    }

    /// The addresses now, and whenever they change.
    pub fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.address_sender.subscribe()
    }

    /// A member has a new address.
    pub fn changed(&mut self, addresses: &[String]) {
        let _ = self.address_sender.send(addresses.to_vec());
        self.join.members = addresses.to_vec();
        if let Err(e) = self.join.write(&self.dir.join(JOIN_FILE)) {
            eyas_text::say!("eyas: {e}");
        }
        self.keep();
    }

    fn keep(&self) {
        let kept = KeptGroup { membership: self.membership, addresses: self.join.members.clone() };
        let path = self.dir.join(GROUP_FILE);
        // If the file is lost, the others send the addresses again.
        if files::replace(&path, &serde_json::to_vec_pretty(&kept).expect("plain values")).is_err() {
            eyas_text::say!("eyas: cannot write {}", shown_path(&path));
        }
    }
}
