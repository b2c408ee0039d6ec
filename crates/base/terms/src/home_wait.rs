//! How long a node waits for a home that does not answer.
//!
//! A home may be away for a minute or two: its server is restarted, a link is cut, a file system fails over. If
//! each transfer failed then, all tasks that read or write there would fail within seconds, and so would the
//! run. So a transfer that fails for a reason which may pass is tried again, while its home has been silent for
//! less than the limit. An input is waited for only where that home has answered this node before: a home that
//! never answered likely has a wrong name, and the user should hear that at once. An output is waited for in any
//! case, because its program would have to run again; so is an input of a home that says itself that it is busy.
//!
//! In: what each try of a transfer found, with the time. Out: how long the transfer waits before its next try,
//! if there is one. The waits double, and each is shortened by a random part, so that the nodes do not all come
//! back in the same moment.
//!
//! Where the home answers other transfers and fails this one alone, the fault lies with the object. Then this
//! transfer is tried [`ALONE_MAX`] more times in a row at most. Not so where the home says that it is busy: then it takes
//! others and not this one by chance, and this transfer is tried again until it has itself waited for the limit.
//!
//! Once a home has been silent for longer than the limit, what is new does not try at all: it fails with the reason of
//! the last try, so that a run whose home is gone ends soon. One transfer in [`WAIT_NS_MAX`] still tries. A home that has said
//! itself to one transfer alone that it is busy has not been silent: that may be the one object.
//!
//! An outage is over when the home answers, or when nobody has waited for it for a while: what is heard later is
//! a new outage, which is waited for anew.
//!
//! Not here: the tries within one request, which follow each other within seconds (`eyas_storage::Retry`), and
//! what a home is: the caller names it.

use crate::Timestamp;
use std::collections::BTreeMap;

/// The first wait of a transfer, in nanoseconds; it doubles from try to try.
const WAIT_NS: u64 = 1_000_000_000;
const WAIT_NS_MAX: u64 = 15_000_000_000;
/// How often in a row a transfer is tried again although the home answers others.
pub const ALONE_MAX: u32 = 3;
/// A home that has failed for less time is not called away: a single request may just have had bad luck.
const SHORT_NS: u64 = 5_000_000_000;
/// If nobody waits and the last failure is older, the outage is over as far as anybody knows.
const FORGOTTEN_NS: u64 = 2 * WAIT_NS_MAX;

/// What one transfer has found so far.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    /// Whether the home is waited for although it has never answered this node.
    trusts: bool,
    waits: bool,
    n_failed: u32,
    /// Tries in a row that failed after the home had answered another transfer.
    n_alone: u32,
    last: Option<Timestamp>,
    /// The home has said after the last try that it is busy.
    is_busy: bool,
    /// When the home first said so to this transfer.
    busy_since: Option<Timestamp>,
}

impl Tries {
    pub fn of_input() -> Tries {
        Tries {
            trusts: false,
            waits: false,
            n_failed: 0,
            n_alone: 0,
            last: None,
            is_busy: false,
            busy_since: None,
        }
    }

    /// The home itself has said that it is there, though it takes nothing now. So it is waited for in any case.
    pub fn heard_busy(&mut self) {
        self.trusts = true;
        self.is_busy = true;
    }

    /// Whether the home is waited for although it has never answered this node.
    pub fn trusts(&self) -> bool {
        self.trusts
    }

    /// Whether it has not failed yet.
    pub fn is_first(&self) -> bool {
        self.n_failed == 0
    }

    pub fn of_output() -> Tries {
        Tries { trusts: true, ..Tries::of_input() }
    }
}

/// A home that transfers wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away<'a> {
    pub home: &'a str,
    pub for_ns: u64,
    /// The error of the last try.
    pub why: &'a str,
}

#[derive(Debug)]
struct Outage {
    since: Timestamp,
    last: Timestamp,
    why: String,
    /// Transfers that have failed in it.
    n_failed: u32,
    /// Some of them have heard nothing of the home.
    is_silent: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// When it answered last.
    answered: Option<Timestamp>,
    outage: Option<Outage>,
    /// Transfers that wait for it.
    n_waiting: u32,
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

    /// The home has answered a transfer, be it that it does not have the object. The transfer is over. Gives how long
    /// the home had been away, in nanoseconds, if it had.
    pub fn answered(&mut self, now: Timestamp, home: &str, tries: &mut Tries) -> Option<u64> {
        let known = match self.homes.get_mut(home) {
            Some(known) => known,
            None => self.homes.entry(home.into()).or_default(),
        };
        known.answered = Some(now);
        known.n_waiting -= u32::from(std::mem::take(&mut tries.waits));
        known.outage.take().map(|outage| now.since_ns(outage.since))
    }

    /// A try of a transfer has failed for a reason that may pass. Gives how long to wait before the next try, in
    /// nanoseconds; `None`: the transfer has failed, and is over. `random`: any number.
    pub fn failed(
        &mut self,
        now: Timestamp,
        home: &str,
        tries: &mut Tries,
        why: &str,
        random: u64,
    ) -> Option<u64> {
        if self.limit_ns == 0 {
            return None;
        }
        if tries.trusts && !self.homes.contains_key(home) {
            self.homes.insert(home.into(), Known::default());
        }
        let known = self.homes.get_mut(home)?;
        if known.answered.is_none() && !tries.trusts {
            return None;
        }
        let is_old = |outage: &mut Outage| now.since_ns(outage.last) > FORGOTTEN_NS;
        if known.n_waiting == 0 {
            known.outage.take_if(is_old);
        }
        let is_new = known.outage.is_none();
        let outage = known.outage.get_or_insert_with(|| Outage {
            since: now,
            last: now,
            why: String::new(),
            n_failed: 0,
            is_silent: false,
        });
        outage.last = now;
        why.clone_into(&mut outage.why);
        let is_busy = std::mem::take(&mut tries.is_busy);
        outage.n_failed += u32::from(is_new || tries.is_first());
        outage.is_silent |= !is_busy;
        if is_busy {
            tries.busy_since.get_or_insert(now);
        }
        let is_alone =
            !is_busy && tries.last.is_some_and(|last| known.answered.is_some_and(|answered| answered > last));
        tries.n_alone = if is_alone { tries.n_alone + 1 } else { 0 };
        tries.n_failed += 1;
        tries.last = Some(now);
        let since = tries.busy_since.map_or(outage.since, |since| since.min(outage.since));
        if tries.n_alone >= ALONE_MAX || now.since_ns(since) >= self.limit_ns {
            self.given_up(home, tries);
            return None;
        }
        known.n_waiting += u32::from(!std::mem::replace(&mut tries.waits, true));
        let wait_ns = (WAIT_NS << (tries.n_failed - 1).min(10)).min(WAIT_NS_MAX);
        Some(wait_ns / 2 + random % (wait_ns / 2 + 1))
    }

    /// A transfer is over without a word about its home.
    pub fn given_up(&mut self, home: &str, tries: &mut Tries) {
        if let Some(known) = self.homes.get_mut(home) {
            known.n_waiting -= u32::from(std::mem::take(&mut tries.waits));
        }
    }

    /// Whether a transfer that begins now need not try, because its home has been silent for longer than the limit. Gives the home and
    /// what is known of it then. One transfer after the other is let through to see whether the home is back.
    pub fn refuse<'a>(&'a mut self, now: Timestamp, home: &'a str) -> Option<Away<'a>> {
        let for_ns = self.overdue_ns(now, home)?;
        let outage = self.homes.get_mut(home)?.outage.as_mut()?;
        let is_of_one = outage.n_failed == 1 && !outage.is_silent;
        if is_of_one || now.since_ns(outage.last) >= WAIT_NS_MAX {
            outage.last = now;
            return None;
        }
        Some(Away { home, for_ns, why: &outage.why })
    }

    /// For how long a home has been silent, in nanoseconds, if that is longer than it is waited for.
    pub fn overdue_ns(&self, now: Timestamp, home: &str) -> Option<u64> {
        let outage = self.homes.get(home)?.outage.as_ref()?;
        let for_ns = now.since_ns(outage.since);
        (self.limit_ns > 0 && for_ns >= self.limit_ns).then_some(for_ns)
    }

    /// The homes that transfers wait for.
    pub fn away(&self, now: Timestamp) -> impl Iterator<Item = Away<'_>> {
        self.homes.iter().filter_map(move |(home, known)| {
            let outage = known.outage.as_ref().filter(|_| known.n_waiting > 0)?;
            let for_ns = now.since_ns(outage.since);
            (for_ns >= SHORT_NS).then_some(Away { home, for_ns, why: &outage.why })
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

    /// Homes that have the limit of two minutes, of which `h` has answered.
    fn homes() -> HomeWait {
        let mut homes = HomeWait::new(120 * S);
        assert_eq!(homes.answered(at(0), "h", &mut Tries::of_input()), None);
        homes
    }

    #[test]
    fn a_home_that_answered_before_is_waited_for_until_the_limit() {
        let mut homes = homes();
        let (mut tries, mut now, mut waits) = (Tries::of_input(), at(10), vec![]);
        // With the largest random part, the waits are whole.
        let largest = |n: usize| (WAIT_NS << n.min(10)).min(WAIT_NS_MAX) / 2;
        while let Some(wait_ns) = homes.failed(now, "h", &mut tries, "refused", largest(waits.len())) {
            waits.push(wait_ns);
            now = now.plus_ns(wait_ns);
            assert_eq!(homes.away(now).count(), usize::from(now >= at(15)));
        }
        assert_eq!(waits[..6], [S, 2 * S, 4 * S, 8 * S, 15 * S, 15 * S]);
        assert!(now >= at(130) && now < at(146), "{now:?}");
        assert_eq!(homes.away(now).count(), 0, "nobody waits any more");
        // Another transfer of that time does not wait the whole time once more.
        assert_eq!(homes.failed(now, "h", &mut Tries::of_input(), "refused", 0), None);
        assert_eq!(homes.answered(at(200), "h", &mut Tries::of_input()), Some(190 * S));
        assert!(homes.failed(at(201), "h", &mut Tries::of_input(), "refused", 0).is_some());
    }

    #[test]
    fn after_the_limit_one_transfer_in_15_s_still_tries() {
        let mut homes = homes();
        let mut first = Tries::of_input();
        homes.failed(at(10), "h", &mut first, "refused", 0).unwrap();
        assert_eq!(homes.refuse(at(100), "h"), None, "it is waited for");
        assert_eq!(homes.failed(at(131), "h", &mut first, "refused", 0), None);
        assert_eq!(homes.overdue_ns(at(131), "h"), Some(121 * S));
        let away = Away { home: "h", for_ns: 130 * S, why: "refused" };
        assert_eq!(homes.refuse(at(140), "h"), Some(away));
        let refused: Vec<u64> = (132..180).filter(|s| homes.refuse(at(*s), "h").is_none()).collect();
        assert_eq!(refused, [146, 161, 176]);
        homes.answered(at(180), "h", &mut Tries::of_input());
        assert_eq!(homes.refuse(at(181), "h"), None);
        assert_eq!(homes.overdue_ns(at(181), "h"), None);
        let mut never = HomeWait::new(0);
        never.answered(at(0), "h", &mut Tries::of_input());
        assert_eq!(never.refuse(at(1), "h"), None);
        assert_eq!(never.overdue_ns(at(1), "h"), None);
    }

    #[test]
    fn what_is_waited_for_is_said_with_the_last_reason() {
        let mut homes = homes();
        let mut tries = Tries::of_input();
        homes.failed(at(10), "h", &mut tries, "refused", 0).unwrap();
        homes.failed(at(16), "h", &mut tries, "no route", 0).unwrap();
        let away = Away { home: "h", for_ns: 10 * S, why: "no route" };
        assert_eq!(homes.away(at(20)).collect::<Vec<_>>(), [away]);
        homes.answered(at(21), "h", &mut tries);
        assert_eq!(homes.away(at(30)).count(), 0);
        assert!(homes.homes.values().all(|known| known.n_waiting == 0));
    }

    #[test]
    fn an_outage_that_nobody_waited_for_is_over() {
        let mut homes = homes();
        let mut tries = Tries::of_input();
        homes.failed(at(10), "h", &mut tries, "refused", 0).unwrap();
        homes.given_up("h", &mut tries);
        assert_eq!(homes.away(at(3600)).count(), 0);
        // An hour later the home may have been there and gone again.
        assert!(homes.failed(at(3600), "h", &mut Tries::of_input(), "refused", 0).is_some());
    }

    #[test]
    fn an_input_is_not_waited_for_at_a_home_that_never_answered_and_an_output_is() {
        let mut homes = homes();
        assert_eq!(homes.failed(at(1), "new", &mut Tries::of_input(), "refused", 0), None);
        let mut output = Tries::of_output();
        assert!(homes.failed(at(2), "new", &mut output, "refused", 0).is_some());
        assert_eq!(homes.failed(at(3), "new", &mut Tries::of_input(), "refused", 0), None);
        assert_eq!(homes.failed(at(122), "new", &mut output, "refused", 0), None);
    }

    #[test]
    fn an_input_is_waited_for_at_a_home_that_never_answered_but_says_that_it_is_busy() {
        let mut homes = homes();
        let mut tries = Tries::of_input();
        tries.heard_busy();
        assert!(homes.failed(at(1), "new", &mut tries, "too many clients", 0).is_some());
        assert_eq!(homes.failed(at(121), "new", &mut tries, "too many clients", 0), None);
    }

    #[test]
    fn one_object_of_a_busy_home_keeps_no_others_from_trying() {
        let mut homes = homes();
        let fail = |homes: &mut HomeWait, tries: &mut Tries, now: u64| {
            tries.heard_busy();
            homes.failed(at(now), "h", tries, "503", 0)
        };
        let mut one = Tries::of_input();
        assert!(fail(&mut homes, &mut one, 1).is_some() && fail(&mut homes, &mut one, 122).is_none());
        assert_eq!(homes.refuse(at(123), "h"), None);
        // Where the next one hears it, too, it is the home, until that answers.
        assert_eq!(fail(&mut homes, &mut Tries::of_input(), 123), None);
        assert!(homes.refuse(at(124), "h").is_some());
        assert!(homes.answered(at(125), "h", &mut Tries::of_input()).is_some());
        assert_eq!(homes.refuse(at(126), "h"), None);
        // A home that one transfer does not reach at all may be gone.
        let mut other = Tries::of_input();
        assert!(homes.failed(at(130), "h", &mut other, "refused", 0).is_some());
        assert_eq!(homes.failed(at(250), "h", &mut other, "refused", 0), None);
        assert!(homes.refuse(at(251), "h").is_some());
    }

    #[test]
    fn no_home_is_waited_for_with_a_limit_of_0() {
        let mut homes = HomeWait::new(0);
        homes.answered(at(0), "h", &mut Tries::of_input());
        for mut tries in [Tries::of_input(), Tries::of_output()] {
            assert_eq!(homes.failed(at(1), "h", &mut tries, "refused", 0), None);
        }
    }

    #[test]
    fn an_object_that_fails_alone_does_not_wait_for_ever() {
        let mut homes = homes();
        let (mut tries, mut n_tries) = (Tries::of_input(), 0);
        for s in 1..100 {
            homes.answered(at(2 * s), "h", &mut Tries::of_input());
            if homes.failed(at(2 * s + 1), "h", &mut tries, "503", 0).is_none() {
                break;
            }
            n_tries += 1;
        }
        assert_eq!(n_tries, ALONE_MAX);
    }

    /// Found by worlds of busy stores (`--with busy --from 592`).
    #[test]
    fn a_home_that_is_busy_and_takes_others_is_waited_for_until_the_limit() {
        let mut homes = homes();
        let (mut tries, mut now) = (Tries::of_input(), at(10));
        loop {
            tries.heard_busy();
            let Some(wait_ns) = homes.failed(now, "h", &mut tries, "too many requests", 0) else { break };
            now = now.plus_ns(wait_ns);
            homes.answered(now, "h", &mut Tries::of_input());
        }
        assert!(now >= at(130) && now < at(146), "{now:?}");
    }

    #[test]
    fn a_home_that_comes_and_goes_is_waited_for() {
        let mut homes = homes();
        let mut tries = Tries::of_input();
        for s in 1..100 {
            assert!(homes.failed(at(10 * s), "h", &mut tries, "refused", 0).is_some(), "{s}");
            if s % 2 == 0 {
                homes.answered(at(10 * s + 5), "h", &mut Tries::of_input());
            }
        }
    }

    #[test]
    fn nodes_do_not_come_back_in_one_moment() {
        let mut homes = homes();
        let mut wait = |random| homes.failed(at(1), "h", &mut Tries::of_input(), "refused", random).unwrap();
        assert_eq!(wait(0), WAIT_NS / 2);
        assert_eq!(wait(WAIT_NS / 2), WAIT_NS);
        assert!((0..1000).map(|i| wait(i * 7919 * 7919)).all(|ns| (WAIT_NS / 2..=WAIT_NS).contains(&ns)));
    }
}
