//! The side of a store: it keeps a connection out to a hub, and brings a stream for each knock.

use super::knock::come;
use super::{BEAT, Beat, Coming, FromHub, KNOCKS_MAX, MeetingKey, SILENCE_MAX};
use crate::store::{Store, converse};
use eyas_net::NetError;
use eyas_wire::identity::{Identity, Join};
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Streams at a time whose other end has not proved that it knows the store's join file.
const STRANGERS_MAX: usize = 16;
/// How long a store waits until it comes again: first, and at most.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What a store reports of its hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtHub {
    Connected,
    /// Why the store is not at its hub; it comes again.
    Away(String),
}

impl Store {
    /// Serves those who knock at a hub and have the join file with this identity, until the future is dropped. Where the
    /// connection to the hub breaks, the store comes again. `tell` hears of each change.
    ///
    /// # Errors
    /// An identity is damaged.
    pub async fn serve_through(
        self: Arc<Store>,
        hub: &Join,
        identity: &Identity,
        tell: &(dyn Fn(&AtHub) + Sync),
    ) -> Result<(), NetError> {
        self.permits.serve_with(identity)?;
        let config = identity.server_config_with(self.permits.keys.clone())?;
        hub.identity.client_config()?;
        let waiting = Waiting {
            store: self,
            hub: Arc::new(hub.clone()),
            key: MeetingKey::of(identity),
            config,
            knocks: Arc::new(Semaphore::new(KNOCKS_MAX)),
            strangers: Arc::new(Semaphore::new(STRANGERS_MAX)),
        };
        let mut streams = JoinSet::new();
        let mut n_failed = 0;
        let mut last = None;
        loop {
            let mut tell_new = |now: AtHub| {
                if last.as_ref() != Some(&now) {
                    tell(&now);
                    last = Some(now);
                }
            };
            let met = || {
                n_failed = 0;
                tell_new(AtHub::Connected);
            };
            let reason = waiting.stay(&mut streams, met).await;
            tell_new(AtHub::Away(reason));
            // Without a random number, the stores of a hub that was started again come all at once.
            let draw = eyas_data::random_bytes().map_or(u64::MAX, u64::from_ne_bytes);
            tokio::time::sleep(wait_after(n_failed, draw)).await;
            n_failed += 1;
        }
    }
}

/// Between half and all of the doubled wait, so that stores do not come all at once.
fn wait_after(n_failed: u32, draw: u64) -> Duration {
    let doubled = WAIT_FIRST.saturating_mul(1 << n_failed.min(16)).min(WAIT_MAX);
    doubled.mul_f64(0.5 + 0.5 * (draw as f64 / u64::MAX as f64))
}

struct Waiting {
    store: Arc<Store>,
    hub: Arc<Join>,
    key: MeetingKey,
    config: Arc<ServerConfig>,
    /// Knocks that wait until there are fewer strangers.
    knocks: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Waiting {
    /// Is at the hub for as long as the connection holds; why it does not. `met` is called once the hub knows the store.
    async fn stay(&self, streams: &mut JoinSet<()>, met: impl FnOnce()) -> String {
        let at = &self.hub.address;
        let mut stream = match come(&self.hub).await {
            Ok(stream) => stream,
            Err(reason) => return reason,
        };
        let hello = Coming::Store { key: self.key, name: self.store.name().to_owned() };
        let greeted = async {
            stream.send(&hello).await?;
            stream.next::<FromHub>().await
        };
        match timeout(SILENCE_MAX, greeted).await {
            Ok(Ok(Some(FromHub::Met))) => met(),
            Ok(Ok(Some(FromHub::No(no)))) => return no.in_words(at),
            Ok(Ok(_)) => return format!("its hub at {at} closed the connection"),
            Ok(Err(error)) => return format!("its hub at {at}: {error}"),
            Err(_) => return format!("its hub at {at} did not answer"),
        }
        let (mut reader, writer) = stream.split();
        let beats = async {
            while writer.send(&Beat) {
                tokio::time::sleep(BEAT).await;
            }
            format!("the connection to its hub at {at} broke")
        };
        let knocks = async {
            loop {
                match timeout(SILENCE_MAX, reader.next::<FromHub>()).await {
                    Ok(Ok(Some(FromHub::Knock(number)))) => self.answer(number, streams),
                    Ok(Ok(Some(_))) => {}
                    Ok(Ok(None)) => return format!("its hub at {at} closed the connection"),
                    Ok(Err(error)) => return format!("its hub at {at}: {error}"),
                    Err(_) => {
                        return format!("its hub at {at} has said nothing for {} s", SILENCE_MAX.as_secs());
                    }
                }
                while streams.try_join_next().is_some() {}
            }
        };
        tokio::select! {
            reason = beats => reason,
            reason = knocks => reason,
        }
    }

    /// Brings the hub a stream, and serves who is at its other end. With too many strangers, the knock waits.
    fn answer(&self, number: u64, streams: &mut JoinSet<()>) {
        // A hub lets no more wait.
        let Ok(knock) = self.knocks.clone().try_acquire_owned() else { return };
        let strangers = self.strangers.clone();
        let (store, hub, config) = (self.store.clone(), self.hub.clone(), self.config.clone());
        let answer = Coming::Answer(self.key, number);
        streams.spawn(async move {
            let stranger = strangers.acquire_owned().await;
            drop(knock);
            let Ok(mut stream) = come(&hub).await else { return };
            if stream.send(&answer).await.is_err() {
                return;
            }
            let met = eyas_net::accept(stream.into_tcp(), config).await;
            drop(stranger);
            if let Ok(stream) = met {
                let (reader, writer) = stream.split();
                converse(store, reader, writer).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_comes_again_later_and_later_and_never_at_a_fixed_time() {
        let least = |n_failed| wait_after(n_failed, 0).as_millis();
        let most = |n_failed| wait_after(n_failed, u64::MAX).as_millis();
        assert_eq!([least(0), most(0)], [250, 500]);
        assert_eq!([least(3), most(3)], [2000, 4000]);
        assert_eq!([least(6), most(60)], [15_000, 30_000]);
    }
}
