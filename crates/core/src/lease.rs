//! Until when an executor may make its attempts' results appear at home without having heard more.
//!
//! A dispatcher that does not hear an executor for its lease gives the executor's attempts to others; one that was
//! restarted does so [`RETURN_GRACE_NS`] later. The executor cannot know when either was last heard, but it knows
//! when it *sent* what was answered, and that was before. So its right ends that long after it sent the
//! latest word that has an answer, however late the answer came to be read: an executor that was stopped reads, when it
//! goes on, answers to what it had said before.
//!
//! After a reconnect only answers on the new connection count. The dispatcher has said by then which attempts it
//! wants no more, and words keep their order.
//!
//! Times are of a clock of the executor's machine that nobody sets and that goes on while a process, or the
//! machine, is stopped.

use crate::dispatcher::RETURN_GRACE_NS;
use crate::types::Timestamp;
use std::collections::VecDeque;

/// The right to land, of one executor. See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    length_ns: u64,
    /// When words were sent that wait for their answer, oldest first.
    asked: VecDeque<Timestamp>,
    /// When the latest word was sent that was answered on this connection.
    answered: Option<Timestamp>,
}

impl Lease {
    /// A connection began: what was asked before will not be answered.
    ///
    /// * `lease_ns`: after which silence the dispatcher gives an executor up.
    pub fn connected(&mut self, lease_ns: u64) {
        let shorter = lease_ns.min(RETURN_GRACE_NS);
        // Clocks of two machines do not run at one speed.
        *self = Lease { length_ns: shorter - shorter / 8, ..Lease::default() };
    }

    /// Something is sent now that will be answered.
    pub fn asked(&mut self, now: Timestamp) {
        self.asked.push_back(now);
    }

    /// The dispatcher answered the oldest question.
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
        // Stopped here; the answers lay in the socket all the while.
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
