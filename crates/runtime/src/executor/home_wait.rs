//! Transfers that wait for a home which does not answer.
//!
//! Which home is waited for, and how long: [`eyas_core::home_wait`]. Here are the clock, the sleep and the words. A
//! transfer that waits holds no thread.

use super::home_io::given_up;
use crate::clock;
use eyas_core::event::{TransferError, TransferErrorKind};
use eyas_core::home_wait::{HomeWait, Tries};
use eyas_data::Halt;
use eyas_text::{line_of, shown};
use eyas_wire::message::{HOMES_AWAY_MAX, HomeAway};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often a transfer that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// The longest reason that is reported.
const WHY_BYTES_MAX: usize = 300;

/// A transfer that is tried until it ends.
struct Transfer<A, D> {
    home: String,
    tries: Tries,
    halt: Halt,
    attempt: A,
    done: D,
}

/// The homes of this node. All clones are one.
#[derive(Clone)]
pub(super) struct HomeWaits {
    homes: Arc<Mutex<Homes>>,
    limit: Duration,
}

struct Homes {
    wait: HomeWait,
    /// Homes of which this node has said that it waits for them.
    said: BTreeSet<String>,
}

impl HomeWaits {
    pub(super) fn new(limit: Duration) -> HomeWaits {
        let wait = HomeWait::new(limit.as_nanos().try_into().unwrap_or(u64::MAX));
        HomeWaits { homes: Arc::new(Mutex::new(Homes { wait, said: BTreeSet::new() })), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Homes> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `attempt`, which asks the home of `location` and blocks its thread, again and again while that home is waited
    /// for. `done` gets what the last try found, or `GivenUp` once `halt` is set. Both run on threads for blocking work.
    pub(super) fn patiently<T: 'static>(
        &self,
        location: &str,
        tries: Tries,
        halt: &Halt,
        attempt: impl FnMut() -> Result<T, TransferError> + Send + 'static,
        done: impl FnOnce(Result<T, TransferError>) + Send + 'static,
    ) {
        let transfer = Transfer { home: home_of(location).into(), tries, halt: halt.clone(), attempt, done };
        let waits = self.clone();
        tokio::task::spawn_blocking(move || waits.try_once(transfer));
    }

    fn try_once<T, A, D>(self, mut transfer: Transfer<A, D>)
    where
        T: 'static,
        A: FnMut() -> Result<T, TransferError> + Send + 'static,
        D: FnOnce(Result<T, TransferError>) + Send + 'static,
    {
        if transfer.halt.is_stopped() {
            self.lock().wait.given_up(&transfer.home, &mut transfer.tries);
            return (transfer.done)(Err(given_up()));
        }
        if transfer.tries.is_first()
            && let Some(error) = self.refuse(&transfer.home)
        {
            return (transfer.done)(Err(error));
        }
        let result = (transfer.attempt)();
        let Some(wait_ns) = self.note(&transfer.home, &result, &mut transfer.tries) else {
            return (transfer.done)(self.with_wait(&transfer.home, result));
        };
        tokio::spawn(async move {
            let until = Instant::now() + Duration::from_nanos(wait_ns);
            while Instant::now() < until && !transfer.halt.is_stopped() {
                tokio::time::sleep(LOOK).await;
            }
            tokio::task::spawn_blocking(move || self.try_once(transfer));
        });
    }

    /// The error of a transfer that need not try, as its home has been silent for longer than it is waited for.
    fn refuse(&self, home: &str) -> Option<TransferError> {
        let mut homes = self.lock();
        let away = homes.wait.refuse(clock::now(), home)?;
        let message = format!("{} does not answer: {}{}", shown(home), away.why, self.waited(away.for_ns));
        Some(TransferError { kind: TransferErrorKind::HomeAway, message })
    }

    /// The same result; an error after the whole wait says how long the wait was.
    fn with_wait<T>(&self, home: &str, result: Result<T, TransferError>) -> Result<T, TransferError> {
        result.map_err(|error| match self.lock().wait.overdue_ns(clock::now(), home) {
            Some(for_ns) if error.kind == TransferErrorKind::HomeAway => {
                TransferError { message: format!("{}{}", error.message, self.waited(for_ns)), ..error }
            }
            _ => error,
        })
    }

    fn waited(&self, for_ns: u64) -> String {
        let limit = seconds(self.limit.as_nanos() as u64);
        format!("; it has not answered this node for {}, and --home-wait is {limit}", seconds(for_ns))
    }

    /// How long to wait before the next try, in nanoseconds; `None`: there is none.
    fn note<T>(&self, home: &str, result: &Result<T, TransferError>, tries: &mut Tries) -> Option<u64> {
        let now = clock::now();
        let mut homes = self.lock();
        match result {
            Err(TransferError { kind: TransferErrorKind::HomeAway, message }) => {
                let random = RandomState::new().hash_one(now);
                let wait_ns = homes.wait.failed(now, home, tries, &reason(message), random);
                let is_away = homes.wait.away(now).any(|away| away.home == home);
                if is_away && homes.said.insert(home.into()) {
                    eyas_text::say!(
                        "eyas: {} does not answer, and this node waits up to {} for it: {}",
                        shown(home),
                        seconds(self.limit.as_nanos() as u64),
                        line_of(&reason(message))
                    );
                }
                wait_ns
            }
            // These are home's answers.
            Ok(_)
            | Err(TransferError {
                kind:
                    TransferErrorKind::Changed | TransferErrorKind::Unavailable | TransferErrorKind::Unmakeable,
                ..
            }) => {
                let away_ns = homes.wait.answered(now, home, tries);
                if homes.said.remove(home) {
                    let away = seconds(away_ns.unwrap_or(0));
                    eyas_text::say!("eyas: {} answers again after {away}", shown(home));
                }
                None
            }
            // The others are about this node or this attempt, and say nothing of home.
            Err(_) => {
                homes.wait.given_up(home, tries);
                None
            }
        }
    }

    /// The homes that transfers wait for.
    pub(super) fn away(&self) -> Vec<HomeAway> {
        let homes = self.lock();
        let away = homes.wait.away(clock::now()).take(HOMES_AWAY_MAX);
        away.map(|a| HomeAway { home: a.home.into(), for_ns: a.for_ns, why: a.why.into() }).collect()
    }
}

/// The error's message without what stands behind `?` in URLs, where signatures are, and not too long.
fn reason(message: &str) -> String {
    let mut text = String::new();
    let mut is_query = false;
    for c in message.chars() {
        match c {
            '?' => is_query = true,
            '`' | ' ' => is_query = false,
            _ => {}
        }
        if !is_query && text.len() < WHY_BYTES_MAX {
            text.push(c);
        }
    }
    text
}

/// The part of a location that names its home: the server of a URL; of a path the first two directories, as file systems
/// are mounted there.
pub(super) fn home_of(location: &str) -> &str {
    let (begin, n_parts) = match location.find("://") {
        Some(at) => (at + 3, 1),
        None => (1.min(location.len()), 2),
    };
    let slashes = location[begin..].match_indices('/').map(|(at, _)| begin + at);
    let end = slashes.take(n_parts).nth(n_parts - 1).unwrap_or(location.len());
    &location[..end]
}

fn seconds(ns: u64) -> String {
    format!("{} s", ns.div_ceil(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn failing(kind: TransferErrorKind) -> Result<(), TransferError> {
        Err(TransferError { kind, message: "no".into() })
    }

    #[test]
    fn a_home_is_named_by_its_server_or_the_place_of_a_mount() {
        let homes = [
            ("http://h:80/a/b", "http://h:80"),
            ("s3://bucket/key", "s3://bucket"),
            ("/nfs/a/b", "/nfs/a"),
            ("/nfs/a/b/c", "/nfs/a"),
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
    fn no_signature_is_reported() {
        let message = "cannot read `https://h/a?X-Amz-Signature=abc&b=c`: 503 (tries: 5)";
        assert_eq!(reason(message), "cannot read `https://h/a`: 503 (tries: 5)");
        assert!(reason(&"long ".repeat(1000)).len() <= WHY_BYTES_MAX);
    }

    /// What a transfer ends with.
    async fn end(
        waits: &HomeWaits,
        location: &str,
        tries: Tries,
        halt: &Halt,
        attempt: impl FnMut() -> Result<(), TransferError> + Send + 'static,
    ) -> Result<(), TransferError> {
        let (ended, end) = tokio::sync::oneshot::channel();
        waits.patiently(location, tries, halt, attempt, move |result| ended.send(result).unwrap());
        end.await.unwrap()
    }

    #[tokio::test]
    async fn a_transfer_goes_on_when_its_home_is_back() {
        let waits = HomeWaits::new(Duration::from_secs(60));
        let halt = Halt::default();
        let absent = || failing(TransferErrorKind::Unavailable);
        assert!(end(&waits, "http://h/a", Tries::of_input(), &halt, absent).await.is_err());
        let n_tries = Arc::new(AtomicU32::new(0));
        let counted = n_tries.clone();
        let back_at_3 = move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => failing(TransferErrorKind::HomeAway),
            _ => Ok(()),
        };
        assert!(end(&waits, "http://h/b", Tries::of_input(), &halt, back_at_3).await.is_ok());
        assert_eq!((n_tries.load(Ordering::Relaxed), waits.away().len()), (3, 0));
    }

    #[tokio::test]
    async fn a_transfer_that_fails_after_the_wait_says_so_and_the_next_does_not_try() {
        let waits = HomeWaits::new(Duration::from_millis(1));
        let halt = Halt::default();
        assert!(end(&waits, "/d/h/a", Tries::of_input(), &halt, || Ok(())).await.is_ok());
        let away = || {
            std::thread::sleep(Duration::from_millis(5));
            failing(TransferErrorKind::HomeAway)
        };
        let said = "no; it has not answered this node for ";
        let error = end(&waits, "/d/h/b", Tries::of_input(), &halt, away).await.unwrap_err();
        assert!(
            error.message.starts_with(said) && error.message.ends_with("--home-wait is 1 s"),
            "{error:?}"
        );
        let never = || panic!("it does not try");
        let error = end(&waits, "/d/h/c", Tries::of_input(), &halt, never).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::HomeAway);
        assert!(error.message.starts_with(&format!("`/d/h` does not answer: {said}")), "{error:?}");
    }

    #[tokio::test]
    async fn an_error_of_this_node_is_not_waited_for() {
        let waits = HomeWaits::new(Duration::from_secs(60));
        let disk = || failing(TransferErrorKind::Temporary);
        let error = end(&waits, "/d/a", Tries::of_output(), &Halt::default(), disk).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Temporary);
    }

    #[tokio::test]
    async fn a_transfer_that_nobody_wants_any_more_waits_no_longer() {
        let waits = HomeWaits::new(Duration::from_secs(60));
        let halt = Halt::default();
        let stops = halt.clone();
        let away = move || {
            stops.stop();
            failing(TransferErrorKind::HomeAway)
        };
        let error = end(&waits, "/d/b", Tries::of_output(), &halt, away).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::GivenUp);
    }
}
