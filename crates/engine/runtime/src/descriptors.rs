//! How many files and sockets this process may have open.
//!
//! The usual soft limit of 1,024 is meant for programs that use `select`. eyas has a descriptor for each
//! connection and each file that is being transferred, so it takes what the hard limit allows. Programs that
//! it runs get the limit that they would have had without eyas: some programs close every descriptor up to
//! it.

use std::sync::OnceLock;

/// With fewer descriptors than this, a large cluster or many strangers that connect may use them up.
const ENOUGH: u64 = 4096;

/// More than this is of no use, and some systems allow a thousand million.
const USEFUL: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    /// The soft limit that this process was started with.
    pub before: u64,
    /// The soft limit now.
    pub now: u64,
}

/// Raises the soft limit to the hard limit; reports once on standard error if that is little.
pub fn raise() -> Descriptors {
    static DONE: OnceLock<Descriptors> = OnceLock::new();
    *DONE.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the answer.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
            return Descriptors { before: 1024, now: 1024 };
        }
        let before = limit.rlim_cur;
        let wanted = limit.rlim_max.min(USEFUL).max(before);
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: `raised` lives through the call.
        let now = match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } {
            0 => wanted,
            _ => before,
        };
        if now < ENOUGH {
            eprintln!(
                "eyas: this process may have only {now} files and connections open at once; with many nodes that is \
                 too few. Raise the hard limit to {ENOUGH} or more (`ulimit -Hn`, `nofile` in \
                 /etc/security/limits.conf, LimitNOFILE= of a systemd unit)"
            );
        }
        Descriptors { before, now }
    })
}

impl Descriptors {
    /// One part in `of_which` of all descriptors, but at least `least` and at most `most`.
    pub fn share(self, of_which: u64, least: usize, most: usize) -> usize {
        usize::try_from(self.now / of_which).unwrap_or(usize::MAX).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let Descriptors { now, .. } = raise();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the answer.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
        assert_eq!(limit.rlim_cur, now);
        assert!(now == limit.rlim_max.min(USEFUL) || now > USEFUL, "{limit:?}");
    }

    #[test]
    fn shares_have_a_floor_and_a_ceiling() {
        let few = Descriptors { before: 64, now: 64 };
        assert_eq!((few.share(8, 16, 128), few.share(2, 16, 128)), (16, 32));
        assert_eq!(Descriptors { before: 64, now: 1 << 20 }.share(8, 16, 128), 128);
    }
}
