//! When an executor says how it is, and when it tries again to connect.
//!
//! Ten thousand executors must not do the same thing at the same moment: a dispatcher that was started again would
//! have to turn most of them away. And those that have nothing to do need not speak every second.

use eyas_terms::Timestamp;
use eyas_terms::rng::Rng;

/// The mean wait after a connection broke. It doubles with each failure, up to the largest mean. That is less than
/// [`eyas_core::dispatcher::RETURN_GRACE_NS`]: an executor finds a dispatcher that is there again within this grace.
const RETRY_NS: u64 = 250_000_000;
const RETRY_NS_MAX: u64 = 1_000_000_000;

/// When an executor connects again.
#[derive(Clone, Debug)]
pub struct Retry {
    n_failures: u32,
    rng: Rng,
}

impl Retry {
    /// * `seed`: another one for each executor, so that they do not all come at the same moment.
    pub fn new(seed: u64) -> Retry {
        Retry { n_failures: 0, rng: Rng::new(seed) }
    }

    /// A connection broke or did not come about. Gives the nanoseconds until the next try: between a half and three
    /// halves of a mean that grows with the number of failures since the last welcome.
    pub fn failed(&mut self) -> u64 {
        let mean_ns = (RETRY_NS << self.n_failures.min(8)).min(RETRY_NS_MAX);
        self.n_failures += 1;
        mean_ns / 2 + self.rng.below(mean_ns)
    }

    /// A dispatcher has taken the executor in.
    pub fn succeeded(&mut self) {
        self.n_failures = 0;
    }
}

/// When an executor sends its status. The dispatcher answers each one, by which the executor knows that it may let
/// results appear at home ([`eyas_core::lease`]). So an executor that has work speaks often.
#[derive(Clone, Debug)]
pub struct Beats {
    every_ns: u64,
    idle_ns: u64,
    sent: Option<Timestamp>,
}

impl Beats {
    /// A status is due.
    ///
    /// * `every_ns`: the longest time between two statuses of an executor that has work.
    pub fn new(every_ns: u64) -> Beats {
        Beats { every_ns, idle_ns: every_ns, sent: None }
    }

    /// The dispatcher has answered a status.
    ///
    /// * `idle_ns`: the longest time between two statuses of an executor that has no work.
    pub fn answered(&mut self, idle_ns: u64) {
        self.idle_ns = idle_ns.max(self.every_ns);
    }

    /// When the next status is due; `None`: now. `now` is by a clock that nobody sets.
    pub fn due(&self, is_idle: bool) -> Option<Timestamp> {
        Some(self.sent?.plus_ns(if is_idle { self.idle_ns } else { self.every_ns }))
    }

    /// Whether a status is due. If so, it counts as sent.
    pub fn take_due(&mut self, now: Timestamp, is_idle: bool) -> bool {
        let is_due = self.due(is_idle).is_none_or(|due| due <= now);
        if is_due {
            self.sent = Some(now);
        }
        is_due
    }
}

/// For how long no dispatcher has answered. Times are by a clock that nobody sets.
#[derive(Clone, Debug)]
pub struct Silence {
    since: Timestamp,
}

/// What an executor does about a silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    Waits,
    /// Messages are lost on the network: the connection counts as broken, and a new one is made.
    ConnectsAgain,
    /// No dispatcher has answered for the length of the lease.
    Ends,
}

impl Silence {
    pub fn new(now: Timestamp) -> Silence {
        Silence { since: now }
    }

    /// A dispatcher was heard.
    pub fn heard(&mut self, now: Timestamp) {
        self.since = now;
    }

    /// The connection broke. That of a dispatcher which has taken the executor in was good until now, whatever was said on it:
    /// this process may have been stopped for longer than the lease, and has asked nobody meanwhile.
    pub fn broke(&mut self, now: Timestamp, was_welcomed: bool) {
        if was_welcomed {
            self.since = now;
        }
    }

    /// To be asked again and again. A connection that is made again has all of the lease.
    pub fn judge(
        &mut self,
        now: Timestamp,
        lease_ns: u64,
        is_connected: bool,
        is_welcomed: bool,
    ) -> Patience {
        if now.since_ns(self.since) <= lease_ns {
            return Patience::Waits;
        }
        match (is_connected, is_welcomed) {
            (false, _) => Patience::Ends,
            (true, false) => Patience::Waits,
            (true, true) => {
                self.since = now;
                Patience::ConnectsAgain
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::dispatcher::RETURN_GRACE_NS;

    const S: u64 = 1_000_000_000;

    #[test]
    fn executors_that_lost_the_same_dispatcher_come_back_at_different_times_and_within_its_grace() {
        let mut firsts = vec![];
        for seed in 0..1000 {
            let mut retry = Retry::new(seed);
            let waits: Vec<u64> = (0..20).map(|_| retry.failed()).collect();
            firsts.push(waits[0]);
            assert!(waits.iter().all(|wait| *wait < RETURN_GRACE_NS), "{waits:?}");
            assert!(waits[8..].iter().all(|wait| *wait >= RETRY_NS_MAX / 2), "{waits:?}");
            retry.succeeded();
            assert!(retry.failed() < 2 * RETRY_NS, "after a welcome it begins anew");
        }
        // Each of ten equal parts of the time gets about a tenth.
        for part in 0..10 {
            let from = RETRY_NS / 2 + part * RETRY_NS / 10;
            let n = firsts.iter().filter(|wait| (from..from + RETRY_NS / 10).contains(wait)).count();
            assert!((50..200).contains(&n), "{n} of 1000 after {from} ns");
        }
    }

    /// Which of the two is noticed first is chance: that the connection is gone, or that time has passed.
    #[test]
    fn an_executor_that_was_stopped_for_longer_than_its_lease_has_all_of_it_to_join_again() {
        let at = Timestamp;
        for connection_first in [false, true] {
            let mut silence = Silence::new(at(0));
            silence.heard(at(S));
            let woken = 100 * S;
            if connection_first {
                silence.broke(at(woken), true);
            } else {
                assert_eq!(silence.judge(at(woken), 5 * S, true, true), Patience::ConnectsAgain);
            }
            assert_eq!(silence.judge(at(woken + 5 * S), 5 * S, false, false), Patience::Waits);
            // What breaks before a welcome is no answer.
            silence.broke(at(woken + 5 * S), false);
            assert_eq!(silence.judge(at(woken + 5 * S + 1), 5 * S, true, false), Patience::Waits);
            assert_eq!(silence.judge(at(woken + 5 * S + 1), 5 * S, false, false), Patience::Ends);
        }
    }

    #[test]
    fn an_executor_without_work_speaks_as_often_as_it_was_told_and_one_with_work_every_second() {
        let mut beats = Beats::new(S);
        let at = Timestamp;
        assert!(beats.take_due(at(10 * S), true), "the first one is due at once");
        assert!(!beats.take_due(at(11 * S - 1), true));
        assert!(beats.take_due(at(11 * S), true), "nobody has told it anything else");
        beats.answered(20 * S);
        assert!(!beats.take_due(at(30 * S), true));
        assert!(beats.take_due(at(30 * S), false), "it was given work");
        assert!(!beats.take_due(at(31 * S - 1), false));
        assert!(beats.take_due(at(50 * S), true));
        beats.answered(1);
        assert!(!beats.take_due(at(51 * S - 1), true), "no dispatcher can make it speak more often");
    }
}
