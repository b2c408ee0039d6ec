//! Where an executor looks for its dispatcher, where the dispatcher has relays.
//!
//! Thousands of executors must not all choose the same relay, nor go to the dispatcher itself because one relay is gone.

/// The dispatcher itself is tried once in so many tries, as long as relays are known.
const DIRECT_EVERY: usize = 8;

/// Where to go at the `n_tries`th try in a row: to the relays, in an order that is the executor's own, and at times to the
/// dispatcher itself. Without relays it is always the dispatcher.
///
/// * `who`: a number of the executor; others have others;
/// * `relays`, `direct`: addresses of the relays and of the dispatcher, as the join file names them.
///
/// The order is that of digests of number and address (rendezvous hashing): each relay is the first choice of as many
/// executors, and when one goes, those who had chosen it spread over all others.
pub fn place_to_try<'a>(who: u64, relays: &'a [String], direct: &'a str, n_tries: usize) -> &'a str {
    let turn = n_tries % DIRECT_EVERY;
    if relays.is_empty() || turn == DIRECT_EVERY - 1 {
        return direct;
    }
    let mut order: Vec<(u64, &String)> = relays.iter().map(|relay| (weight(who, relay), relay)).collect();
    order.sort_unstable();
    order[turn % order.len()].1
}

/// FNV-1a of the address, mixed with the number.
fn weight(who: u64, relay: &str) -> u64 {
    let begin = who.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325;
    let hash =
        relay.bytes().fold(begin, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HEAD: &str = "head:7700";

    fn relays(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("node{i}:7701")).collect()
    }

    #[test]
    fn executors_spread_over_the_relays_and_those_of_a_lost_one_over_all_others() {
        let all = relays(60);
        let mut of_each: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for who in 0..54_000 {
            of_each.entry(place_to_try(who, &all, HEAD, 0)).or_default().push(who);
        }
        assert_eq!(of_each.len(), 60);
        assert!(of_each.values().all(|of_one| (750..1250).contains(&of_one.len())));
        let mut next: BTreeMap<&str, usize> = BTreeMap::new();
        for who in &of_each["node7:7701"] {
            *next.entry(place_to_try(*who, &all, HEAD, 1)).or_default() += 1;
        }
        assert!(!next.contains_key("node7:7701") && next.len() > 50);
        assert!(next.values().all(|n| *n < 60), "{next:?}");
        // Whoever is not at the lost relay stays where it is when the join file names one less.
        let fewer: Vec<String> = all.iter().filter(|relay| *relay != "node7:7701").cloned().collect();
        for (relay, of_one) in of_each.iter().filter(|(relay, _)| **relay != "node7:7701") {
            assert!(of_one.iter().all(|who| place_to_try(*who, &fewer, HEAD, 0) == *relay));
        }
    }

    #[test]
    fn the_dispatcher_itself_is_tried_at_last_and_always_where_there_are_no_relays() {
        let few = relays(2);
        let tried: Vec<&str> = (0..16).map(|n| place_to_try(5, &few, HEAD, n)).collect();
        assert_eq!(tried.iter().filter(|place| **place == HEAD).count(), 2);
        assert_eq!((tried[7], tried[15]), (HEAD, HEAD));
        assert!(tried[0] != tried[1] && tried[0] == tried[2]);
        assert_eq!(place_to_try(5, &[], HEAD, 0), HEAD);
    }
}
