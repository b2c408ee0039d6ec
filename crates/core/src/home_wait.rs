//! How long a node waits for a home that does not answer.
//!
//! A home may be away for a minute or two: its server is restarted, a link is cut, a file system fails over. If
//! each transfer failed then, all tasks that read or write there would fail within seconds, and so would the
//! run. So a transfer that fails for a reason which may pass is tried again, as long as that home has answered
//! this node before and has been silent for less than the limit. A home that never answered is not waited for:
//! its name is likely wrong, and the user should hear that at once.
//!
//! In: what each try of a transfer found, with the time. Out: how long the transfer waits before its next try,
//! if there is one. The waits double, and each is shortened by a random part, so that the nodes do not all come
//! back in the same moment.
//!
//! Where the home answers other transfers and fails this one alone, the fault lies with the object. Then this
//! transfer is tried [`ALONE_MAX`] more times at most.
//!
//! Not here: the tries within one request, which follow each other within seconds (`eyas_storage::retry`), and
//! what a home is: the caller names it.

use crate::types::Timestamp;
use std::collections::BTreeMap;

/// The first wait of a transfer, in nanoseconds; it doubles from try to try.
const WAIT_NS: u64 = 1_000_000_000;
const WAIT_NS_MAX: u64 = 15_000_000_000;
/// How often a transfer is tried again although the home answers others.
pub const ALONE_MAX: u32 = 3;

/// What one transfer has found so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    n_failed: u32,
    /// Tries that failed after the home had answered another transfer.
    n_alone: u32,
    last: Option<Timestamp>,
}

/// A home that has answered before and does not now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away<'a> {
    pub home: &'a str,
    pub since: Timestamp,
    /// The error of the last try.
    pub why: &'a str,
}

#[derive(Debug)]
struct Known {
    answered: Timestamp,
    /// Since when each try has failed, and why the last one did.
    away: Option<(Timestamp, String)>,
}

/// The homes of one node. See the module's header.
#[derive(Debug)]
pub struct HomeWait {
    limit_ns: u64,
    homes: BTreeMap<String, Known>,
}

impl HomeWait {
    /// `limit_ns`: how long a home is waited for; 0: not at all.
    pub fn new(limit_ns: u64) -> HomeWait {
        HomeWait { limit_ns, homes: BTreeMap::new() }
    }

    /// The home has answered, be it that it does not have the object. Gives since when it had been away, if it had.
    pub fn answered(&mut self, now: Timestamp, home: &str) -> Option<Timestamp> {
        match self.homes.get_mut(home) {
            Some(known) => {
                known.answered = now;
                known.away.take().map(|(since, _)| since)
            }
            None => {
                self.homes.insert(home.into(), Known { answered: now, away: None });
                None
            }
        }
    }

    /// A try of a transfer has failed for a reason that may pass. Gives how long to wait before the next try, in
    /// nanoseconds; `None`: the transfer has failed. `random`: any number.
    pub fn failed(
        &mut self,
        now: Timestamp,
        home: &str,
        tries: &mut Tries,
        why: &str,
        random: u64,
    ) -> Option<u64> {
        let known = self.homes.get_mut(home)?;
        let since = known.away.get_or_insert_with(|| (now, String::new())).0;
        if let Some((_, said)) = &mut known.away {
            said.clear();
            said.push_str(why);
        }
        let is_alone = tries.last.is_some_and(|last| known.answered > last);
        tries.n_alone += u32::from(is_alone);
        tries.n_failed += 1;
        tries.last = Some(now);
        if tries.n_alone >= ALONE_MAX || now.since_ns(since) >= self.limit_ns {
            return None;
        }
        let wait_ns = (WAIT_NS << (tries.n_failed - 1).min(10)).min(WAIT_NS_MAX);
        Some(wait_ns / 2 + random % (wait_ns / 2 + 1))
    }

    /// The homes that are away.
    pub fn away(&self) -> impl Iterator<Item = Away<'_>> {
        self.homes.iter().filter_map(|(home, known)| {
            let (since, why) = known.away.as_ref()?;
            Some(Away { home, since: *since, why })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(s: u64) -> Timestamp {
        Timestamp(s * S)
    }

    #[test]
    fn a_home_that_answered_before_is_waited_for_until_the_limit() {
        let mut homes = HomeWait::new(120 * S);
        assert_eq!(homes.answered(at(1), "h"), None);
        let (mut tries, mut now, mut waits) = (Tries::default(), at(10), vec![]);
        while let Some(wait_ns) = homes.failed(now, "h", &mut tries, "refused", u64::MAX) {
            waits.push(wait_ns);
            now = now.plus_ns(wait_ns);
        }
        assert!(now >= at(130) && now < at(146), "{now:?}");
        assert!(waits.iter().all(|ns| *ns <= WAIT_NS_MAX), "{waits:?}");
        assert!(waits.is_sorted_by_key(|ns| ns.div_ceil(WAIT_NS_MAX)), "{waits:?}");
        let away = Away { home: "h", since: at(10), why: "refused" };
        assert_eq!(homes.away().collect::<Vec<_>>(), [away]);
        // Another transfer does not wait the whole time once more.
        assert_eq!(homes.failed(now, "h", &mut Tries::default(), "refused", 0), None);
        assert_eq!(homes.answered(at(200), "h"), Some(at(10)));
        assert_eq!(homes.away().count(), 0);
        assert!(homes.failed(at(201), "h", &mut Tries::default(), "refused", 0).is_some());
    }

    #[test]
    fn a_home_that_never_answered_is_not_waited_for() {
        let mut homes = HomeWait::new(120 * S);
        homes.answered(at(0), "other");
        assert_eq!(homes.failed(at(1), "h", &mut Tries::default(), "refused", 0), None);
        assert_eq!(homes.away().count(), 0);
    }

    #[test]
    fn no_home_is_waited_for_with_a_limit_of_0() {
        let mut homes = HomeWait::new(0);
        homes.answered(at(0), "h");
        assert_eq!(homes.failed(at(1), "h", &mut Tries::default(), "refused", 0), None);
    }

    #[test]
    fn an_object_that_fails_alone_does_not_wait_for_ever() {
        let mut homes = HomeWait::new(120 * S);
        let (mut tries, mut n_tries) = (Tries::default(), 0);
        for s in 0..100 {
            homes.answered(at(2 * s), "h");
            if homes.failed(at(2 * s + 1), "h", &mut tries, "503", 0).is_none() {
                break;
            }
            n_tries += 1;
        }
        assert_eq!(n_tries, ALONE_MAX);
    }

    #[test]
    fn nodes_do_not_come_back_in_one_moment() {
        let mut homes = HomeWait::new(120 * S);
        homes.answered(at(0), "h");
        let mut wait = |random| homes.failed(at(1), "h", &mut Tries::default(), "refused", random).unwrap();
        assert_eq!(wait(0), WAIT_NS / 2);
        assert_eq!(wait(WAIT_NS / 2), WAIT_NS);
        assert!((0..1000).map(|i| wait(i * 7919 * 7919)).all(|ns| (WAIT_NS / 2..=WAIT_NS).contains(&ns)));
    }
}
