//! How fast a cache of a million objects is: `cargo run --release -p eyas-core --example cache_speed`.
//!
//! For each eviction policy it prints operations per second of
//! * fill: `reserve`, `commit` and `touch` of a new object, into an empty cache;
//! * hit: `pin`, `touch`, `unpin` of a random object, as for one input of one task;
//! * miss: the same into a full cache, so that each evicts another;
//! * busy miss: the same while half of all objects are pinned, which must make no difference.
//!
//! An optional argument gives the number of objects.

// Only this measuring program reads a clock; the crate itself does not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use eyas_core::cache::{Cache, CacheConfig, Reserve};
use eyas_core::eviction::POLICIES;
use eyas_terms::ObjectId;
use eyas_terms::rng::Rng;
use std::time::Instant;

const SIZE_BYTES: u64 = 1_000_000;

fn main() {
    let n_objects: u32 = match std::env::args().nth(1).map(|text| text.parse()) {
        None => 1_000_000,
        Some(Ok(n)) if (1..=1_000_000_000).contains(&n) => n,
        Some(_) => {
            eprintln!("error: the number of objects must be from 1 to 1000000000");
            std::process::exit(2);
        }
    };
    println!("{n_objects} objects; million operations per second");
    println!("{:<8}{:>10}{:>10}{:>10}{:>12}", "policy", "fill", "hit", "miss", "busy miss");
    for (name, _) in POLICIES {
        let [fill, hit, miss, busy_miss] = measure(name, n_objects);
        println!("{name:<8}{fill:>10.2}{hit:>10.2}{miss:>10.2}{busy_miss:>12.2}");
    }
}

fn measure(eviction: &str, n_objects: u32) -> [f64; 4] {
    let budget_bytes = u64::from(n_objects) * SIZE_BYTES;
    let config = CacheConfig { budget_bytes, eviction: eviction.to_owned(), seed: 1, groups: true };
    let mut cache = Cache::new(config).expect("a name from the registry");
    let mut rng = Rng::new(2);
    let mut next = 0;
    let mut evicted = Vec::new();

    let mut fetch = |cache: &mut Cache| {
        let object = ObjectId(next);
        next += 1;
        evicted.clear();
        assert_eq!(cache.reserve(object, SIZE_BYTES, &mut evicted), Reserve::Granted);
        cache.commit(object, SIZE_BYTES);
        cache.touch(object);
    };
    let fill = million_per_s(n_objects, || fetch(&mut cache));
    let hit = million_per_s(n_objects, || {
        let object = ObjectId(rng.below(u64::from(n_objects)) as u32);
        cache.pin(object);
        cache.touch(object);
        cache.unpin(object);
    });
    let miss = million_per_s(n_objects, || fetch(&mut cache));
    let pinned: Vec<ObjectId> = cache.iter().map(|(object, ..)| object).step_by(2).collect();
    pinned.iter().for_each(|&object| cache.pin(object));
    let busy_miss = million_per_s(n_objects, || fetch(&mut cache));
    cache.sanity_check();
    [fill, hit, miss, busy_miss]
}

fn million_per_s(n_times: u32, mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..n_times).for_each(|_| operation());
    f64::from(n_times) / start.elapsed().as_secs_f64() / 1e6
}
