//! Until when an executor, without a further answer from its dispatcher, may let results appear at home.
//!
//! A dispatcher that does not hear an executor for the length of its lease gives the executor's attempts to
//! others; a restarted dispatcher does so [`RETURN_GRACE_NS`] later. The executor cannot know when the
//! dispatcher last heard it. But it knows when it *sent* a message that was answered, and that was earlier.
//! So its right ends one lease after it sent the latest answered message, however late it reads the answer.
//! This matters for an executor that was stopped: when it goes on, it reads answers to messages that it had
//! sent long before.
//!
//! After a reconnect, only answers on the new connection count. By then the dispatcher has said which
//! attempts it no longer wants, and messages keep their order.
//!
//! Times are from a clock of the executor's machine that nobody sets, and that goes on while a process or the
//! machine is stopped.

use crate::dispatcher::RETURN_GRACE_NS;
use eyas_terms::Timestamp;
use std::collections::VecDeque;

/// The right to land, of one executor. See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    length_ns: u64,
    /// When the messages that wait for their answer were sent, oldest first.
    asked: VecDeque<Timestamp>,
    /// When the latest message that was answered on this connection was sent.
    answered: Option<Timestamp>,
}

impl Lease {
    /// A connection began: earlier messages will not be answered.
    ///
    /// * `lease_ns`: the silence after which the dispatcher gives an executor up.
    pub fn connected(&mut self, lease_ns: u64) {
        let shorter = lease_ns.min(RETURN_GRACE_NS);
        // Clocks of two machines do not run at the same speed.
        *self = Lease { length_ns: shorter - shorter / 8, ..Lease::default() };
    }

    /// A message is sent now that will be answered.
    pub fn asked(&mut self, now: Timestamp) {
        self.asked.push_back(now);
    }

    /// The dispatcher answered the oldest message.
    pub fn was_answered(&mut self) {
        if let Some(asked) = self.asked.pop_front() {
            self.answered = Some(asked);
        }
    }

    /// Whether results may appear at home now.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.answered.is_some_and(|since| now.since_ns(since) < self.length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn connected(lease_ns: u64) -> Lease {
        let mut lease = Lease::default();
        lease.connected(lease_ns);
        lease
    }

    #[test]
    fn it_holds_from_the_sending_of_what_was_answered() {
        let mut lease = connected(15 * S);
        assert!(!lease.holds(Timestamp(0)), "nothing was answered yet");
        lease.asked(Timestamp(S));
        lease.was_answered();
        assert!(lease.holds(Timestamp(S)));
        assert!(lease.holds(Timestamp(S + RETURN_GRACE_NS * 7 / 8 - 1)));
        assert!(!lease.holds(Timestamp(S + RETURN_GRACE_NS * 7 / 8)));
    }

    #[test]
    fn answers_that_are_read_late_do_not_prolong_it() {
        let mut lease = connected(15 * S);
        (0..3).for_each(|i| lease.asked(Timestamp(i * S / 10)));
        // The executor is stopped here; the answers are in the socket meanwhile.
        (0..3).for_each(|_| lease.was_answered());
        assert!(!lease.holds(Timestamp(9 * S)));
        lease.asked(Timestamp(9 * S));
        lease.was_answered();
        assert!(lease.holds(Timestamp(9 * S)));
    }

    #[test]
    fn a_new_connection_begins_without_it() {
        let mut lease = connected(15 * S);
        lease.asked(Timestamp(0));
        lease.was_answered();
        lease.asked(Timestamp(1));
        lease.connected(15 * S);
        assert!(!lease.holds(Timestamp(2)));
        lease.was_answered();
        assert!(!lease.holds(Timestamp(2)), "an answer to nothing that was asked here");
    }

    #[test]
    fn a_short_lease_of_the_dispatcher_is_kept() {
        let mut lease = connected(S);
        lease.asked(Timestamp(0));
        lease.was_answered();
        assert!(lease.holds(Timestamp(S * 7 / 8 - 1)));
        assert!(!lease.holds(Timestamp(S * 7 / 8)));
    }
}
