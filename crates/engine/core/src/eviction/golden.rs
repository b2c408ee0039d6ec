//! Golden numbers: hits of each policy at several cache sizes on the trace `traces/zipf-loop.txt`.
//!
//! They change only when the meaning of a policy changes, which needs a reason. The trace is made by
//! [`trace`]; `traces/README.md` says how to write it again.

use crate::cache::{Cache, CacheConfig, Reserve};
use eyas_terms::ObjectId;
use eyas_terms::rng::Rng;
use std::fmt::Write;

const TRACE: &str = include_str!("../../../../../traces/zipf-loop.txt");

/// The text of the trace. Two of three requests go to 600 objects whose popularity is proportional
/// to 1/rank (ranks are shuffled over the ids); each third request is the next of a loop over 120 others.
fn trace() -> String {
    const N_ZIPF: u64 = 600;
    const N_LOOP: u64 = 120;
    const N_REQUESTS: u64 = 6_000;
    let mut rng = Rng::new(20_090_501);
    // 1 to 64 KiB, small ones more often: a random power of two plus a random part of it.
    let sizes_bytes: Vec<u64> = (0..N_ZIPF + N_LOOP)
        .map(|_| {
            let base_bytes = 1_024u64 << rng.below(6);
            base_bytes + rng.below(base_bytes)
        })
        .collect();
    let mut by_rank: Vec<u64> = (0..N_ZIPF).collect();
    for i in (1..by_rank.len()).rev() {
        by_rank.swap(i, rng.below(i as u64 + 1) as usize);
    }
    // Integers only, so that every machine makes the same file.
    let mut cumulative = Vec::new();
    let mut weight = 0;
    for rank in 1..=N_ZIPF {
        weight += 1_000_000_000 / rank;
        cumulative.push(weight);
    }
    let mut text = String::from("# object size_bytes; synthetic, see README.md beside this file\n");
    for request in 0..N_REQUESTS {
        let object = if request % 3 == 2 {
            N_ZIPF + request / 3 % N_LOOP
        } else {
            let draw = rng.below(weight);
            by_rank[cumulative.partition_point(|&below| below <= draw)]
        };
        writeln!(text, "{object} {}", sizes_bytes[object as usize]).unwrap();
    }
    text
}

fn requests() -> impl Iterator<Item = (ObjectId, u64)> {
    TRACE.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (object, size_bytes) = line.split_once(' ').unwrap();
        (ObjectId(object.parse().unwrap()), size_bytes.parse().unwrap())
    })
}

/// Hits, and their bytes, when one task after another reads one object.
fn replay(eviction: &str, budget_bytes: u64) -> (u32, u64) {
    let mut cache =
        Cache::new(CacheConfig { budget_bytes, eviction: eviction.to_owned(), seed: 1, groups: true })
            .unwrap();
    let (mut n_hits, mut hit_bytes) = (0, 0);
    let mut evicted = Vec::new();
    for (object, size_bytes) in requests() {
        if cache.is_ready(object) {
            n_hits += 1;
            hit_bytes += size_bytes;
        } else {
            assert_eq!(cache.reserve(object, size_bytes, &mut evicted), Reserve::Granted);
            cache.commit(object, size_bytes);
        }
        cache.touch(object);
    }
    cache.sanity_check();
    (n_hits, hit_bytes)
}

#[test]
fn the_committed_trace_is_what_its_generator_makes() {
    assert!(TRACE == trace(), "traces/zipf-loop.txt differs; see traces/README.md");
}

#[test]
#[ignore = "not a test: prints the trace, see traces/README.md"]
fn print_the_trace() {
    // The test runner may have begun a line.
    print!("\n{}", trace());
}

#[test]
fn hits_and_bytes_are_what_they_were() {
    // Budgets in KiB; the 619 objects have 9,332 KiB, so that the last one loses nothing.
    const BUDGETS_KIB: [u64; 5] = [512, 1_024, 2_048, 4_096, 16_384];
    let golden = [
        ("fifo", [(1180, 15669648), (1562, 22465215), (2012, 29979942), (3870, 59558774), (5381, 83135007)]),
        ("lfu", [(1972, 31922219), (2457, 38699745), (2744, 42239343), (4848, 74895483), (5381, 83135007)]),
        ("lru", [(1387, 18456279), (1824, 26982464), (2298, 35304013), (4724, 73172385), (5381, 83135007)]),
        (
            "random",
            [(1155, 15323767), (1630, 23803647), (2498, 38260186), (4027, 62041413), (5381, 83135007)],
        ),
        (
            "two-mark",
            [(1343, 18315341), (1759, 25656612), (2251, 34775914), (4495, 68906462), (5381, 83135007)],
        ),
        // Without a dispatcher's word it is the same.
        (
            "two-mark-exchange",
            [(1343, 18315341), (1759, 25656612), (2251, 34775914), (4495, 68906462), (5381, 83135007)],
        ),
    ];
    for ((name, _), (golden_name, golden_hits)) in super::POLICIES.iter().zip(golden) {
        assert_eq!(*name, golden_name, "every policy has its golden numbers");
        assert_eq!(BUDGETS_KIB.map(|kib| replay(name, kib * 1_024)), golden_hits, "{name}");
    }
    assert_eq!(super::POLICIES.len(), golden.len(), "every policy has its golden numbers");
}
