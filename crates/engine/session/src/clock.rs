//! Another machine's clock.

use eyas_terms::Timestamp;

/// Below that it is the message's way, not the clocks, that differs.
const DIFFERENCE_NS_MIN: u64 = 100_000_000;

/// By how many nanoseconds a clock that said `there` is ahead of the one here, which says `here` now. Small differences
/// count as none.
pub fn ahead_ns(here: Timestamp, there: Timestamp) -> i64 {
    let ahead_ns = i128::from(there.0) - i128::from(here.0);
    let ahead_ns = ahead_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    if ahead_ns.unsigned_abs() < DIFFERENCE_NS_MIN { 0 } else { ahead_ns }
}

/// What a clock that is ahead by `ahead_ns` says when it is `here` here.
pub fn there(here: Timestamp, ahead_ns: i64) -> Timestamp {
    Timestamp(here.0.saturating_add_signed(ahead_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_hours_off_is_followed_and_the_way_of_a_message_is_not() {
        let (here, hour_ns) = (Timestamp(1_000_000_000_000_000), 3_600_000_000_000);
        for off_ns in [hour_ns, -hour_ns] {
            let ahead = ahead_ns(here, there(here, off_ns));
            assert_eq!(ahead, off_ns);
            assert_eq!(there(here.plus_ns(5), ahead), there(here, off_ns).plus_ns(5));
        }
        assert_eq!(ahead_ns(here, here.plus_ns(99_999_999)), 0);
        assert_eq!(ahead_ns(Timestamp(0), Timestamp(u64::MAX)), i64::MAX);
    }
}
