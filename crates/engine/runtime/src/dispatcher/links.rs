//! Our connections to the other dispatchers of a group, on which only we speak.

use super::arrival::Arrival;
use eyas_core::group::Membership;
use eyas_net as net;
use eyas_session::dispatcher::Input;
use eyas_terms::MemberId;
use eyas_wire::identity::Identity;
use eyas_wire::message::{Hello, Welcome};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long a dispatcher waits before it tries again to reach another one.
const LINK_WAIT: Duration = Duration::from_millis(200);

/// Keeps a connection to each other member, where `addresses` says that it is.
pub(super) fn keep_all(
    membership: Membership,
    identity: &Identity,
    addresses: &watch::Receiver<Vec<String>>,
    arrivals: &mpsc::Sender<Arrival>,
) {
    for member in membership.others() {
        let connection =
            MemberConnection { member, membership, addresses: addresses.clone(), arrivals: arrivals.clone() };
        tokio::spawn(connection.keep(identity.clone()));
    }
}

/// Our connection to another dispatcher; it is made again whenever it breaks.
struct MemberConnection {
    member: MemberId,
    membership: Membership,
    addresses: watch::Receiver<Vec<String>>,
    arrivals: mpsc::Sender<Arrival>,
}

impl MemberConnection {
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
                self.arrivals.send(Arrival::Session(input)).await.ok()?;
            }
            Welcome::Refused { reason } => {
                eyas_text::say!("eyas: the dispatcher at {address} refused: {reason}");
                return Some(());
            }
            _ => return Some(()),
        }
        self.arrivals.send(Arrival::MemberReached { member: self.member, writer }).await.ok()?;
        // The other side sends nothing; this loop ends when the connection does.
        while let Ok(Some(())) = reader.next::<()>().await {}
        self.arrivals.send(Arrival::MemberLost { member: self.member }).await.ok()
    }
}
