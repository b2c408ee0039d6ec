//! Transfers that wait for a home which has answered before and does not now.
//!
//! Which home is waited for, and how long: [`eyas_core::home_wait`]. Here are the clock, the sleep and the words.

use super::home_io::given_up;
use crate::clock;
use eyas_core::event::{TransferError, TransferErrorKind};
use eyas_core::home_wait::{HomeWait, Tries};
use eyas_data::Halt;
use eyas_text::{line_of, shown};
use eyas_wire::message::HomeAway;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a transfer that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// The homes of this node. All clones are one.
#[derive(Clone)]
pub(super) struct HomeWaits {
    homes: Arc<Mutex<HomeWait>>,
    limit: Duration,
}

impl HomeWaits {
    pub(super) fn new(limit: Duration) -> HomeWaits {
        let homes = HomeWait::new(limit.as_nanos().try_into().unwrap_or(u64::MAX));
        HomeWaits { homes: Arc::new(Mutex::new(homes)), limit }
    }

    fn lock(&self) -> MutexGuard<'_, HomeWait> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `attempt`, which asks the home of `location`, again and again while that home is waited for. Gives what
    /// the last try found; `GivenUp` once `halt` is set.
    pub(super) fn patiently<T>(
        &self,
        location: &str,
        halt: &Halt,
        mut attempt: impl FnMut() -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        let (home, mut tries) = (home_of(location), Tries::default());
        loop {
            let result = attempt();
            let Some(wait_ns) = self.note(home, &result, &mut tries) else { return result };
            let until = Instant::now() + Duration::from_nanos(wait_ns);
            while Instant::now() < until {
                if halt.is_stopped() {
                    return Err(given_up());
                }
                std::thread::sleep(LOOK);
            }
        }
    }

    /// How long to wait before the next try, in nanoseconds; `None`: there is none.
    fn note<T>(&self, home: &str, result: &Result<T, TransferError>, tries: &mut Tries) -> Option<u64> {
        let now = clock::now();
        let mut homes = self.lock();
        match result {
            Err(TransferError { kind: TransferErrorKind::Temporary, message }) => {
                let was_away = homes.away().any(|away| away.home == home);
                let random = RandomState::new().hash_one(now);
                let wait_ns = homes.failed(now, home, tries, message, random);
                if wait_ns.is_some() && !was_away {
                    eyas_text::say!(
                        "eyas: {} does not answer, and this node waits up to {} for it: {}",
                        shown(home),
                        seconds(self.limit.as_nanos() as u64),
                        line_of(message)
                    );
                }
                wait_ns
            }
            // These are about this node or this attempt, and say nothing of home.
            Err(TransferError {
                kind: TransferErrorKind::GivenUp | TransferErrorKind::Shortage | TransferErrorKind::Corrupt,
                ..
            }) => None,
            _ => {
                if let Some(since) = homes.answered(now, home) {
                    let away = seconds(now.since_ns(since));
                    eyas_text::say!("eyas: {} answers again after {away}", shown(home));
                }
                None
            }
        }
    }

    /// The homes that do not answer.
    pub(super) fn away(&self) -> Vec<HomeAway> {
        let homes = self.lock();
        let away = homes.away();
        away.map(|a| HomeAway { home: a.home.into(), since: a.since, why: a.why.into() }).collect()
    }
}

fn seconds(ns: u64) -> String {
    format!("{} s", ns.div_ceil(1_000_000_000))
}

/// The part of a location that names the server; of a path, its first directory.
fn home_of(location: &str) -> &str {
    let begin = match location.find("://") {
        Some(at) => at + 3,
        None => 1.min(location.len()),
    };
    let end = location[begin..].find('/').map_or(location.len(), |at| begin + at);
    &location[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(kind: TransferErrorKind) -> Result<(), TransferError> {
        Err(TransferError { kind, message: "no".into() })
    }

    #[test]
    fn a_home_is_named_by_its_server() {
        let homes = [
            ("http://h:80/a/b", "http://h:80"),
            ("s3://bucket/key", "s3://bucket"),
            ("/nfs/a/b", "/nfs"),
            ("/a", "/a"),
            ("http://h", "http://h"),
            ("/", "/"),
            ("", ""),
        ];
        for (location, home) in homes {
            assert_eq!(home_of(location), home);
        }
    }

    #[test]
    fn a_transfer_goes_on_when_its_home_is_back() {
        let waits = HomeWaits::new(Duration::from_secs(60));
        let halt = Halt::default();
        assert!(waits.patiently("http://h/a", &halt, || failing(TransferErrorKind::Unavailable)).is_err());
        let mut n_tries = 0;
        let result = waits.patiently("http://h/b", &halt, || {
            n_tries += 1;
            assert!(n_tries == 1 || waits.away().len() == 1);
            if n_tries < 3 { failing(TransferErrorKind::Temporary) } else { Ok(()) }
        });
        assert_eq!((n_tries, result.is_ok(), waits.away().len()), (3, true, 0));
    }

    #[test]
    fn a_transfer_that_nobody_wants_any_more_waits_no_longer() {
        let waits = HomeWaits::new(Duration::from_secs(60));
        let halt = Halt::default();
        assert!(waits.patiently("/d/a", &halt, || Ok(())).is_ok());
        halt.stop();
        let error = waits.patiently("/d/b", &halt, || failing(TransferErrorKind::Temporary)).unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::GivenUp);
    }
}
