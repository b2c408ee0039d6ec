//! Keys with which other stores may copy certain objects of this one, for a short time.
//!
//! Each is a certificate of its own, which the door of the store lets in while it is known. Whoever comes with it may ask for the
//! bytes of the objects of its permit, and for nothing else.

use eyas_data::Digest;
use eyas_wire::identity::{Identity, IdentityError};
use eyas_wire::users::{KnownKeys, UserKey};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a store may wait until it uses a permit. A connection that has begun goes on.
const VALID_FOR: Duration = Duration::from_secs(600);
/// Permits at a time.
const PERMITS_MAX: usize = 1000;

/// The permits that a store has given.
#[derive(Default)]
pub(crate) struct Permits {
    /// Keys that the door lets in beside the store's own: of permits and of users.
    pub(crate) keys: Arc<KnownKeys>,
    users: Mutex<Vec<UserKey>>,
    /// Set once the store is served.
    own: OnceLock<(Identity, UserKey)>,
    given: Mutex<HashMap<UserKey, GivenPermit>>,
}

struct GivenPermit {
    digests: Arc<HashSet<Digest>>,
    until: Instant,
}

/// What somebody who has come through the door may do.
#[derive(Clone)]
pub(crate) enum May {
    /// They have the store's join file.
    Everything,
    /// They have a permit for these objects.
    Copy(Arc<HashSet<Digest>>),
    /// They have a user's key. Whose it is, and what that one may do, is asked at each request.
    AsUser(UserKey),
}

impl Permits {
    /// The identity with which the store is served.
    pub(crate) fn serve_with(&self, identity: &Identity) -> Result<(), IdentityError> {
        let key = identity.key()?;
        self.own.get_or_init(|| (identity.clone(), key));
        Ok(())
    }

    /// A new key for these objects, as text; why there is none.
    pub(crate) fn give(&self, digests: Vec<Digest>, now: Instant) -> Result<Vec<u8>, String> {
        let (own, _) = self.own.get().ok_or("the store is not served yet")?;
        let identity = own.for_user().map_err(|error| error.to_string())?;
        let key = identity.key().map_err(|error| error.to_string())?;
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, given| given.until > now);
        if given.len() >= PERMITS_MAX {
            return Err(format!("it has given {PERMITS_MAX} permits already: try again later"));
        }
        given.insert(
            key,
            GivenPermit { digests: Arc::new(digests.into_iter().collect()), until: now + VALID_FOR },
        );
        self.open_door(&given);
        Ok(serde_json::to_vec(&identity).expect("plain strings"))
    }

    /// The connection that was made with a key is over: it is for one.
    pub(crate) fn end(&self, key: Option<UserKey>) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if key.is_some_and(|key| given.remove(&key).is_some()) {
            self.open_door(&given);
        }
    }

    /// The door lets in users with these keys from now on, and no others.
    pub(crate) fn set_users(&self, users: Vec<UserKey>) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        *self.users.lock().unwrap_or_else(PoisonError::into_inner) = users;
        self.open_door(&given);
    }

    fn open_door(&self, given: &HashMap<UserKey, GivenPermit>) {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        self.keys.set(given.keys().chain(&*users).copied());
    }

    /// What the holder of a key may do; `None`: nothing any more.
    pub(crate) fn of(&self, key: Option<UserKey>, now: Instant) -> Option<May> {
        let (_, own) = self.own.get()?;
        if key == Some(*own) {
            return Some(May::Everything);
        }
        let key = key?;
        if self.users.lock().unwrap_or_else(PoisonError::into_inner).contains(&key) {
            return Some(May::AsUser(key));
        }
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let given = given.get(&key).filter(|given| given.until > now)?;
        Some(May::Copy(given.digests.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_for_its_objects_and_its_time() {
        let permits = Permits::default();
        let start = Instant::now();
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert!(permits.give(vec![a], start).is_err() && permits.of(None, start).is_none());
        let own = Identity::generate().unwrap();
        permits.serve_with(&own).unwrap();
        let given: Identity = serde_json::from_slice(&permits.give(vec![a], start).unwrap()).unwrap();
        let key = given.key().unwrap();
        assert!(permits.keys.has(&key) && !permits.keys.has(&own.key().unwrap()));
        assert!(matches!(permits.of(Some(own.key().unwrap()), start), Some(May::Everything)));
        let Some(May::Copy(digests)) = permits.of(Some(key), start) else { panic!("it is known") };
        assert!(digests.contains(&a) && !digests.contains(&b));
        // It has nothing of the key of the store.
        assert!(given.secret().is_empty());
        assert!(permits.of(Some(key), start + VALID_FOR).is_none());
        // It is for one connection.
        permits.end(own.key().ok());
        assert!(permits.of(Some(key), start).is_some());
        permits.end(Some(key));
        assert!(permits.of(Some(key), start).is_none() && !permits.keys.has(&key));
        let again: Identity = serde_json::from_slice(&permits.give(vec![a], start).unwrap()).unwrap();
        let key = again.key().unwrap();
        permits.give(vec![b], start + VALID_FOR).unwrap();
        assert!(!permits.keys.has(&key), "the door does not let it in any more");
        for _ in 1..PERMITS_MAX {
            permits.given.lock().unwrap().insert(
                UserKey(eyas_data::random_bytes().unwrap()),
                GivenPermit { digests: Arc::default(), until: start + 3 * VALID_FOR },
            );
        }
        assert!(permits.give(vec![b], start + VALID_FOR).unwrap_err().contains("1000 permits"));
    }
}
