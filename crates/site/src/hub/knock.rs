//! The catalog's side: a connection to a store that waits at a hub.

use super::{Coming, FromHub, MeetingKey, No};
use crate::remote::in_words;
use eyas_net::{NetError, Reader, Stream, Writer};
use eyas_wire::identity::{Identity, Join};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than the hub waits for the store.
const THROUGH_MAX: Duration = super::ANSWER_MAX.saturating_add(Duration::from_secs(5));

/// Connects to the store with these keys through its hub. `address` is said of the store in errors.
///
/// # Errors
/// Why the store is not reached, in words that follow the name of its site.
pub(crate) async fn knock(
    hub: &Join,
    address: &str,
    identity: &Identity,
) -> Result<(Reader, Writer), String> {
    let mut stream = come(hub).await?;
    let key = MeetingKey::of(identity);
    let asked = async {
        stream.send(&Coming::Knock(key)).await?;
        stream.next::<FromHub>().await
    };
    match timeout(THROUGH_MAX, asked).await {
        Ok(Ok(Some(FromHub::Through))) => {}
        Ok(Ok(Some(FromHub::No(no)))) => return Err(no.in_words(&hub.address)),
        Ok(Ok(Some(_))) => return Err(format!("its hub at {} answers what was not asked", hub.address)),
        Ok(Ok(None)) => return Err(format!("its hub at {} closed the connection", hub.address)),
        Ok(Err(error)) => return Err(format!("its hub at {}: {error}", hub.address)),
        Err(_) => return Err(format!("its hub at {} did not answer", hub.address)),
    }
    let config = identity.client_config().map_err(|error| error.to_string())?;
    let met = eyas_net::connect_over(stream.into_tcp(), address, config).await;
    met.map(Stream::split).map_err(in_words)
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
            No::Busy => format!("too many connections wait for it at its hub at {hub}: try again later"),
            No::Taken => format!(
                "its hub at {hub} has a connection of a store with this key already: is another copy of the folder served?"
            ),
            No::Full => format!("its hub at {hub} has as many connections as it takes: try again later"),
        }
    }
}
