//! The catalog's side: a connection to a store that waits at a hub.

use super::{Coming, FromHub, MeetingKey, No};
use crate::remote::{NotIn, in_words};
use eyas_net::{FrameReader, NetError, Stream, Writer};
use eyas_wire::identity::{Identity, Join};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than the hub waits for the store.
const THROUGH_MAX: Duration = super::ANSWER_MAX.saturating_add(Duration::from_secs(5));

/// Connects to the store with these keys through its hub. `address` is said of the store in errors.
///
/// # Errors
/// Why the store is not reached.
pub(crate) async fn knock(
    hub: &Join,
    address: &str,
    identity: &Identity,
) -> Result<(FrameReader, Writer), NotIn> {
    let mut stream = come(hub).await.map_err(NotIn::Other)?;
    let key = MeetingKey::of(identity);
    let asked = async {
        stream.send(&Coming::Knock(key)).await?;
        stream.next::<FromHub>().await
    };
    let at = &hub.address;
    let reason = match timeout(THROUGH_MAX, asked).await {
        Ok(Ok(Some(FromHub::Through))) => {
            let config = identity.client_config().map_err(|error| NotIn::Other(error.to_string()))?;
            let met = eyas_net::connect_over(stream.into_tcp(), address, config).await;
            return met.map(Stream::split).map_err(|error| NotIn::Other(in_words(error)));
        }
        Ok(Ok(Some(FromHub::No(no @ (No::Busy | No::Full))))) => return Err(NotIn::Busy(no.in_words(at))),
        Ok(Ok(Some(FromHub::No(no)))) => no.in_words(at),
        Ok(Ok(Some(_))) => format!("its hub at {at} answers what was not asked"),
        // It may have had to make room at its door.
        Ok(Ok(None) | Err(NetError::Broken(_))) => {
            return Err(NotIn::Busy(format!("its hub at {at} closed the connection")));
        }
        Ok(Err(error)) => format!("its hub at {at}: {error}"),
        Err(_) => format!("its hub at {at} did not answer"),
    };
    Err(NotIn::Other(reason))
}

/// A connection to a hub; nothing was said on it.
pub(super) async fn come(hub: &Join) -> Result<Stream, String> {
    let config = hub.identity.client_config().map_err(|error| error.to_string())?;
    eyas_net::connect_stream(None, &hub.address, config).await.map_err(|error| match error {
        NetError::Connect { address, source } => {
            format!("nothing answers at its hub, {address} ({source}): is `eyas data hub` running there?")
        }
        NetError::NotAMember { address, .. } => format!(
            "the hub at {address} does not accept the key that this join file has of it: start the store with the hub's new \
             join file, and give the catalog the store's new one"
        ),
        NetError::NoAnswer { address } | NetError::AtDoor { address, .. } => {
            format!("its hub at {address} did not answer within 10 s")
        }
        other => format!("its hub at {}: {other}", hub.address),
    })
}

impl No {
    /// In words that follow the name of a site.
    pub(super) fn in_words(self, hub: &str) -> String {
        match self {
            No::NotHere => format!(
                "its hub at {hub} has no connection of a store with this key: is `eyas store --hub` running, and is this \
                 its newest join file?"
            ),
            No::Silent => format!("it is connected to its hub at {hub}, and did not answer within 10 s"),
            No::Busy => {
                format!("its hub at {hub} has as many connections of it as it takes, or of this machine")
            }
            No::Taken => format!(
                "its hub at {hub} has a connection of a store with this key already: is another copy of the folder served?"
            ),
            No::Full => format!("its hub at {hub} has as many connections as it takes"),
        }
    }
}
