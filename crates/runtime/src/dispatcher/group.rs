//! The addresses of the dispatchers of a group, and the connections to them.
//!
//! The members' addresses are kept in `group.json` and sent on each new connection. A restarted member takes
//! the port that it had, if it can ([`super::port`]), and otherwise sends its new address to the others.
//!
//! Not here: the messages between members (`eyas-session`), and how a submission is split
//! ([`eyas_core::group::split`]).

use super::service::{Arrival, Service};
use super::{DispatcherError, DispatcherOptions, JOIN_FILE};
use eyas_core::MemberId;
use eyas_core::group::Membership;
use eyas_net as net;
use eyas_session::dispatcher::Input;
use eyas_text::shown_path;
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const GROUP_FILE: &str = "group.json";
/// How long a dispatcher waits before it tries again to reach another one.
const LINK_WAIT: Duration = Duration::from_millis(200);

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
struct Kept {
    membership: Membership,
    /// The last known address of each member.
    addresses: Vec<String>,
}

/// `Err`: the directory belongs to a member of a group, but this dispatcher was started without a group.
pub(super) fn check_alone(dir: &Path) -> Result<(), DispatcherError> {
    let Some(Kept { membership: Membership { me, n_members }, .. }) = read_kept(dir) else { return Ok(()) };
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

fn read_kept(dir: &Path) -> Option<Kept> {
    serde_json::from_slice(&std::fs::read(dir.join(GROUP_FILE)).ok()?).ok()
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
    /// A member has a new address.
    pub fn changed(&mut self, addresses: &[String]) {
        let _ = self.address_sender.send(addresses.to_vec());
        self.join.members = addresses.to_vec();
        if let Err(e) = self.join.write(&self.dir.join(JOIN_FILE)) {
            eyas_text::say!("eyas: {e}");
        }
        self.keep(addresses);
    }

    fn keep(&self, addresses: &[String]) {
        let kept = Kept { membership: self.membership, addresses: addresses.to_vec() };
        let (path, fresh) = (self.dir.join(GROUP_FILE), self.dir.join("group.tmp"));
        let bytes = serde_json::to_vec_pretty(&kept).expect("plain values");
        // If the file is lost, the others send the addresses again.
        if std::fs::write(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, &path)).is_err() {
            eyas_text::say!("eyas: cannot write {}", shown_path(&path));
        }
    }
}

impl Service {
    /// Learns the addresses of the other members, and begins to connect to them.
    pub fn join_group(
        &mut self,
        options: &GroupOptions,
        given: Option<&Join>,
        join: &mut Join,
        inputs: &mpsc::Sender<Arrival>,
    ) -> Result<(), DispatcherError> {
        let membership @ Membership { me, n_members } = options.membership;
        let dir = shown_path(&self.dir).to_string();
        let kept = read_kept(&self.dir);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.membership != membership) {
            let Membership { me, n_members } = kept.membership;
            let what = format!("{dir} is of dispatcher {} of {n_members}", me.0 + 1);
            return Err(DispatcherError::Config(format!("{what}; that does not change")));
        }
        if let Some(given) = given.filter(|given| given.cluster != join.cluster) {
            let what = format!("{dir} is of cluster {}, the join file of {}", join.cluster, given.cluster);
            return Err(DispatcherError::Config(what));
        }
        let mut addresses = kept.map_or_else(Vec::new, |kept| kept.addresses);
        addresses.resize(n_members as usize, String::new());
        if let Some(given) = given {
            let known =
                if given.members.is_empty() { std::slice::from_ref(&given.address) } else { &given.members };
            for (address, known) in addresses.iter_mut().zip(known) {
                if !known.is_empty() {
                    address.clone_from(known);
                }
            }
        }
        addresses[me.0 as usize].clone_from(&join.address);
        join.members.clone_from(&addresses);
        let (address_sender, addresses_now) = watch::channel(addresses.clone());
        for member in membership.others() {
            let link = Link { member, membership, addresses: addresses_now.clone(), inputs: inputs.clone() };
            tokio::spawn(link.keep(join.identity.clone()));
        }
        let whereabouts =
            Whereabouts { dir: self.dir.clone(), membership, address_sender, join: join.clone() };
        whereabouts.keep(&addresses);
        self.session.outside_mut().whereabouts = Some(whereabouts);
        self.session.begin_with_addresses(addresses);
        Ok(())
    }
}

/// Our connection to another dispatcher; it is made again whenever it breaks.
struct Link {
    member: MemberId,
    membership: Membership,
    addresses: watch::Receiver<Vec<String>>,
    inputs: mpsc::Sender<Arrival>,
}

impl Link {
    async fn keep(mut self, identity: Identity) {
        loop {
            let addresses = self.addresses.borrow_and_update().clone();
            let address = &addresses[self.member.0 as usize];
            if !address.is_empty() && self.hold(address, &addresses, &identity).await.is_none() {
                return; // the dispatcher is ending
            }
            tokio::select! {
                () = tokio::time::sleep(LINK_WAIT) => {}
                changed = self.addresses.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Connects, and returns when the connection has ended. `None`: this dispatcher's loop has ended.
    async fn hold(&self, address: &str, addresses: &[String], identity: &Identity) -> Option<()> {
        let Membership { me, n_members } = self.membership;
        let hello = Hello::Member { member: me, n_members, addresses: addresses.to_vec() };
        let Ok((mut reader, writer, welcome)) = net::enter(address, identity, &hello).await else {
            return Some(());
        };
        match welcome {
            Welcome::Member { addresses, now } => {
                let input = Input::Addresses { member: self.member, addresses, now };
                self.inputs.send(Arrival::Session(input)).await.ok()?;
            }
            Welcome::Refused { reason } => {
                eyas_text::say!("eyas: the dispatcher at {address} refused: {reason}");
                return Some(());
            }
            _ => return Some(()),
        }
        self.inputs.send(Arrival::LinkUp { member: self.member, writer }).await.ok()?;
        // The other side sends nothing; this loop ends when the connection does.
        while let Ok(Some(())) = reader.next::<()>().await {}
        self.inputs.send(Arrival::LinkDown { member: self.member }).await.ok()
    }
}
