//! Transfers that wait for a home which does not answer.
//!
//! Which home is waited for, and how long: [`eyas_terms::home_wait`]. Here are the clock, the sleep and the words. A
//! transfer that waits holds no thread.

use super::home_io::given_up;
use crate::clock;
use eyas_core::event::{TransferError, TransferErrorKind};
use eyas_data::Halt;
use eyas_terms::home_wait::{HomeWait, Tries};
use eyas_text::{line_of, shown};
use eyas_wire::message::{HOMES_AWAY_MAX, HomeAway, MAY_NOT_READ};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often a transfer that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);
const DATA: &str = "data:";
/// So many objects that a node has read are asked about where another one is refused.
const READ_MAX: usize = 4;
/// The longest reason that is reported.
const WHY_BYTES_MAX: usize = 300;

/// A transfer that is tried until it ends.
struct Transfer<A, D> {
    location: String,
    home: String,
    tries: Tries,
    /// Of an output: the right to write there, as a home of its own.
    writing: Option<(String, Tries)>,
    halt: Halt,
    attempt: A,
    done: D,
}

/// What a node finds that asks about another object after it was refused one.
enum Around {
    /// The home is away for all, with words that stand before the reason.
    Away(String),
    /// Others are given.
    Open,
    /// This node has read nothing else there.
    Unknown,
}

fn is_refused<T>(result: &Result<T, TransferError>) -> bool {
    matches!(result, Err(TransferError { kind: TransferErrorKind::Refused, .. }))
}

/// Asks home whether this node may still read an object.
type Look = dyn Fn(&str) -> Result<(), TransferError> + Send + Sync;

/// The homes of this node. All clones are one.
#[derive(Clone)]
pub(super) struct HomeWaits {
    homes: Arc<Mutex<Homes>>,
    limit: Duration,
    look: Arc<Look>,
}

struct Homes {
    wait: HomeWait,
    /// Homes of which this node has said that it waits for them.
    said: BTreeSet<String>,
    /// By home: the objects that this node last read there, the latest first.
    read: BTreeMap<String, VecDeque<String>>,
}

impl HomeWaits {
    pub(super) fn new(limit: Duration, look: Arc<Look>) -> HomeWaits {
        let wait = HomeWait::new(limit.as_nanos().try_into().unwrap_or(u64::MAX));
        let homes = Homes { wait, said: BTreeSet::new(), read: BTreeMap::new() };
        HomeWaits { homes: Arc::new(Mutex::new(homes)), limit, look }
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
        let home = home_of(location).to_owned();
        // A refusal in a file system is about one folder, so others that may be written say nothing of it.
        let is_writing = tries.trusts() && !location.starts_with('/');
        let writing = is_writing.then(|| (format!("{home} (writing)"), Tries::of_input()));
        let location = location.to_owned();
        let transfer = Transfer { location, home, tries, writing, halt: halt.clone(), attempt, done };
        let waits = self.clone();
        tokio::task::spawn_blocking(move || waits.try_once(transfer));
    }

    fn try_once<T, A, D>(self, mut transfer: Transfer<A, D>)
    where
        T: 'static,
        A: FnMut() -> Result<T, TransferError> + Send + 'static,
        D: FnOnce(Result<T, TransferError>) + Send + 'static,
    {
        let Transfer { location, home, tries, writing, halt, attempt, .. } = &mut transfer;
        if halt.is_stopped() {
            self.give_up(home, tries, writing);
            return (transfer.done)(Err(given_up()));
        }
        let is_first = tries.is_first() && writing.as_ref().is_none_or(|(_, tries)| tries.is_first());
        if is_first && let Some(error) = self.refuse(home, writing.as_ref()) {
            return (transfer.done)(Err(error));
        }
        let mut result = attempt();
        if writing.is_none() && is_refused(&result) {
            match self.look_around(home, location) {
                Around::Away(why) => {
                    result = result.map_err(|refused| TransferError {
                        kind: TransferErrorKind::HomeAway,
                        message: format!("{why}{}", refused.message),
                    });
                }
                // The right may have come back in this moment.
                Around::Open => result = attempt(),
                Around::Unknown => {}
            }
        }
        let Some(wait_ns) = self.note(&result, location, home, tries, writing) else {
            let result = result.map_err(|error| self.last(error, home, writing.as_ref()));
            return (transfer.done)(result);
        };
        tokio::spawn(async move {
            let until = Instant::now() + Duration::from_nanos(wait_ns);
            while Instant::now() < until && !transfer.halt.is_stopped() {
                tokio::time::sleep(LOOK).await;
            }
            tokio::task::spawn_blocking(move || self.try_once(transfer));
        });
    }

    /// What it means that this node may not read an object. If it may not read any of what it read before either, the rights
    /// of the node are gone, which a person cures. Otherwise the refusal is about this object.
    fn look_around(&self, home: &str, location: &str) -> Around {
        let before = self.lock().read.get(home).cloned().unwrap_or_default();
        let mut around = Around::Unknown;
        for object in before.iter().filter(|before| *before != location) {
            match (self.look)(object).map_err(|error| error.kind) {
                Err(TransferErrorKind::Refused) => {
                    around = Around::Away(format!("{MAY_NOT_READ} {}: ", shown(object)));
                }
                Err(TransferErrorKind::HomeAway | TransferErrorKind::HomeBusy) => {
                    return Around::Away(String::new());
                }
                _ => return Around::Open,
            }
        }
        around
    }

    /// The error of a transfer that need not try, as its home has been silent for longer than it is waited for.
    fn refuse(&self, home: &str, writing: Option<&(String, Tries)>) -> Option<TransferError> {
        let mut homes = self.lock();
        let now = clock::now();
        [Some(home), writing.map(|(home, _)| home.as_str())].into_iter().flatten().find_map(|home| {
            let away = homes.wait.refuse(now, home)?;
            let message =
                format!("{} does not answer: {}{}", shown(home), away.why, self.waited(away.for_ns));
            Some(TransferError { kind: TransferErrorKind::HomeAway, message })
        })
    }

    /// The error with which a transfer ends; after the whole wait it says how long the wait was.
    fn last(&self, error: TransferError, home: &str, writing: Option<&(String, Tries)>) -> TransferError {
        let (kind, home) = match (error.kind, writing) {
            (TransferErrorKind::Refused, Some((writing, _))) => {
                (TransferErrorKind::Unavailable, writing.as_str())
            }
            (TransferErrorKind::Refused, None) => (TransferErrorKind::Unavailable, home),
            (TransferErrorKind::HomeAway | TransferErrorKind::HomeBusy, _) => {
                (TransferErrorKind::HomeAway, home)
            }
            _ => return error,
        };
        let waited = self.lock().wait.overdue_ns(clock::now(), home).map(|for_ns| self.waited(for_ns));
        TransferError { kind, message: format!("{}{}", error.message, waited.unwrap_or_default()) }
    }

    fn waited(&self, for_ns: u64) -> String {
        let limit = seconds(self.limit.as_nanos() as u64);
        format!("; it has not answered this node for {}, and --home-wait is {limit}", seconds(for_ns))
    }

    /// A transfer is over, or goes on, without a word about its home.
    fn give_up(&self, home: &str, tries: &mut Tries, writing: &mut Option<(String, Tries)>) {
        let mut homes = self.lock();
        homes.wait.given_up(home, tries);
        if let Some((home, tries)) = writing {
            homes.wait.given_up(home, tries);
        }
    }

    /// How long to wait before the next try, in nanoseconds; `None`: there is none.
    fn note<T>(
        &self,
        result: &Result<T, TransferError>,
        location: &str,
        home: &str,
        tries: &mut Tries,
        writing: &mut Option<(String, Tries)>,
    ) -> Option<u64> {
        match result {
            Err(TransferError {
                kind: kind @ (TransferErrorKind::HomeAway | TransferErrorKind::HomeBusy),
                message,
            }) => {
                if *kind == TransferErrorKind::HomeBusy {
                    tries.heard_busy();
                }
                self.failed(home, tries, message)
            }
            Err(TransferError { kind: TransferErrorKind::Refused, message }) => {
                self.answered(home, tries);
                let (home, tries) = writing.as_mut()?;
                self.failed(home, tries, message)
            }
            // These are home's answers.
            Ok(_)
            | Err(TransferError {
                kind:
                    TransferErrorKind::Changed | TransferErrorKind::Unavailable | TransferErrorKind::Unmakeable,
                ..
            }) => {
                self.answered(home, tries);
                match (writing, result) {
                    (Some((home, tries)), Ok(_)) => self.answered(home, tries),
                    (None, Ok(_)) if !tries.trusts() => {
                        let mut homes = self.lock();
                        let read = homes.read.entry(home.into()).or_default();
                        if read.front().is_none_or(|latest| latest != location) {
                            read.retain(|before| before != location);
                            read.push_front(location.into());
                            read.truncate(READ_MAX);
                        }
                    }
                    _ => {}
                }
                None
            }
            // The others are about this node or this attempt, and say nothing of home.
            Err(_) => {
                self.give_up(home, tries, writing);
                None
            }
        }
    }

    fn failed(&self, home: &str, tries: &mut Tries, message: &str) -> Option<u64> {
        let now = clock::now();
        let mut homes = self.lock();
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

    fn answered(&self, home: &str, tries: &mut Tries) {
        let mut homes = self.lock();
        let away_ns = homes.wait.answered(clock::now(), home, tries);
        if homes.said.remove(home) {
            eyas_text::say!("eyas: {} answers again after {}", shown(home), seconds(away_ns.unwrap_or(0)));
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
/// are mounted there. All data sets have one catalog.
pub(super) fn home_of(location: &str) -> &str {
    if let Some(data) = location.get(..DATA.len()).filter(|begin| *begin == DATA) {
        return data;
    }
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
            ("data:set@2/a/b", "data:"),
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

    fn waits(limit_ms: u64) -> HomeWaits {
        let asked_again = || panic!("nothing was refused");
        HomeWaits::new(Duration::from_millis(limit_ms), Arc::new(move |_| asked_again()))
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
        let waits = waits(60_000);
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
        let waits = waits(1);
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
        let waits = waits(60_000);
        let disk = || failing(TransferErrorKind::Temporary);
        let error = end(&waits, "/d/a", Tries::of_output(), &Halt::default(), disk).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Temporary);
    }

    #[tokio::test]
    async fn a_transfer_that_nobody_wants_any_more_waits_no_longer() {
        let waits = waits(60_000);
        let halt = Halt::default();
        let stops = halt.clone();
        let away = move || {
            stops.stop();
            failing(TransferErrorKind::HomeAway)
        };
        let error = end(&waits, "/d/b", Tries::of_output(), &halt, away).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::GivenUp);
    }

    fn refused() -> Result<(), TransferError> {
        failing(TransferErrorKind::Refused)
    }

    #[tokio::test]
    async fn a_refused_input_waits_where_the_node_may_not_read_what_it_read_before() {
        let is_shut = Arc::new(AtomicU32::new(0));
        let door = is_shut.clone();
        let look = move |object: &str| match (door.load(Ordering::Relaxed), object) {
            (0, _) | (2, "s3://b/b") => Ok(()),
            _ => refused(),
        };
        let waits = HomeWaits::new(Duration::from_secs(60), Arc::new(look));
        let halt = Halt::default();
        // Nothing was read there before.
        let error = end(&waits, "s3://b/a", Tries::of_input(), &halt, refused).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Unavailable);
        assert!(end(&waits, "s3://b/b", Tries::of_input(), &halt, || Ok(())).await.is_ok());
        // Another one answers, so the refusal is about this one.
        let n_tries = Arc::new(AtomicU32::new(0));
        let counted = n_tries.clone();
        let alone = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            refused()
        };
        let error = end(&waits, "s3://b/a", Tries::of_input(), &halt, alone).await.unwrap_err();
        assert_eq!((error.kind, n_tries.load(Ordering::Relaxed)), (TransferErrorKind::Unavailable, 2));
        // What was read last is refused by itself, and what was read before it is not.
        assert!(end(&waits, "s3://b/c", Tries::of_input(), &halt, || Ok(())).await.is_ok());
        is_shut.store(2, Ordering::Relaxed);
        let error = end(&waits, "s3://b/a", Tries::of_input(), &halt, refused).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Unavailable);
        // None is given, until a person has acted.
        is_shut.store(1, Ordering::Relaxed);
        let door = is_shut.clone();
        let until_open = move || match door.fetch_add(1, Ordering::Relaxed) {
            0..=1 => refused(),
            _ => Ok(()),
        };
        assert!(end(&waits, "s3://b/a", Tries::of_input(), &halt, until_open).await.is_ok());
    }

    #[tokio::test]
    async fn a_refused_output_waits_where_the_node_wrote_before_and_no_other_is_written_now() {
        let waits = waits(60_000);
        let halt = Halt::default();
        let error = end(&waits, "s3://b/o", Tries::of_output(), &halt, refused).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Unavailable);
        assert!(end(&waits, "s3://b/p", Tries::of_output(), &halt, || Ok(())).await.is_ok());
        let n_tries = Arc::new(AtomicU32::new(0));
        let until_2 = move || match n_tries.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => refused(),
            _ => Ok(()),
        };
        assert!(end(&waits, "s3://b/o", Tries::of_output(), &halt, until_2).await.is_ok());
        // A path's refusal is about its folder.
        assert!(end(&waits, "/d/h/p", Tries::of_output(), &halt, || Ok(())).await.is_ok());
        let error = end(&waits, "/d/h/o", Tries::of_output(), &halt, refused).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn an_input_of_a_new_home_that_says_that_it_is_busy_waits() {
        let waits = waits(60_000);
        let n_tries = Arc::new(AtomicU32::new(0));
        let until_1 = move || match n_tries.fetch_add(1, Ordering::Relaxed) {
            0 => failing(TransferErrorKind::HomeBusy),
            _ => Ok(()),
        };
        assert!(end(&waits, "data:d/a", Tries::of_input(), &Halt::default(), until_1).await.is_ok());
    }
}
