use super::*;
use eyas_terms::rng::Rng;

const MB: u64 = 1_000_000;

/// `n` executors, each on its own host.
fn network(n: u32) -> Network {
    let mut network = Network::default();
    (0..n).for_each(|e| network.executor_joined(ExecutorId(e), &format!("host{e}")));
    network
}

fn observe(network: &mut Network, to: u32, from: u32, mb_per_s: f64) {
    let duration_ns = (10.0 / mb_per_s * 1e9) as u64;
    network.observe(ExecutorId(to), Some(ExecutorId(from)), 10 * MB, duration_ns);
}

/// The rate between two of three sites: executors with the same number modulo 3 are near each other.
fn of_three_sites(a: u32, b: u32, rng: &mut Rng) -> f64 {
    let rate = if a % 3 == b % 3 { 110.0 } else { 6.0 };
    // Other traffic makes a transfer slower.
    rate / (1.0 + rng.below(4) as f64)
}

#[test]
fn sites_are_found_from_few_pairs() {
    let (mut network, mut rng) = (network(24), Rng::new(3));
    for _ in 0..24 * 8 {
        let (a, b) = (rng.below(24) as u32, rng.below(24) as u32);
        if a != b {
            let rate = of_three_sites(a, b, &mut rng);
            observe(&mut network, a, b, rate);
        }
    }
    network.settle();
    let sites = network.sites().expect("three were made");
    let expected: Vec<Vec<ExecutorId>> =
        (0..3).map(|site| (0..8).map(|k| ExecutorId(site + 3 * k)).collect()).collect();
    assert_eq!(sites.sites, expected);
    let (inside, between) = (sites.link(0, 0).best_bytes_per_s, sites.link(0, 1).best_bytes_per_s);
    assert!(inside > 100e6 && between < 7e6, "{inside} {between}");
    assert_eq!(sites.link(0, 1), sites.link(1, 0));
}

#[test]
fn one_network_with_traffic_is_one_site() {
    for seed in 0..50 {
        let (mut network, mut rng) = (network(40), Rng::new(seed));
        for _ in 0..2_000 {
            let (a, b) = (rng.below(40) as u32, rng.below(40) as u32);
            // A transfer in twenty hangs.
            let slower = if rng.below(20) == 0 { 100.0 } else { 1.0 + rng.below(4) as f64 };
            if a != b {
                observe(&mut network, a, b, 110.0 / slower);
            }
            assert!(network.sites().is_none(), "seed {seed}: {:?}", network.sites());
        }
    }
}

#[test]
fn executors_of_one_host_are_near_and_say_nothing_of_the_network() {
    let mut network = Network::default();
    (0..4).for_each(|e| network.executor_joined(ExecutorId(e), if e < 2 { "a" } else { "b" }));
    for _ in 0..20 {
        observe(&mut network, 0, 1, 5_000.0);
        observe(&mut network, 2, 3, 5_000.0);
        observe(&mut network, 1, 2, 110.0);
    }
    network.settle();
    assert!(network.sites().is_none());
}

#[test]
fn small_files_and_strangers_say_nothing() {
    let mut network = network(3);
    let slow = |network: &mut Network, to, from, bytes| network.observe(to, Some(from), bytes, 1_000_000_000);
    observe(&mut network, 0, 1, 110.0);
    for _ in 0..20 {
        assert_eq!(slow(&mut network, ExecutorId(0), ExecutorId(2), 1_000), News::Nothing);
        assert_eq!(slow(&mut network, ExecutorId(0), ExecutorId(7), 10 * MB), News::Nothing);
    }
    network.settle();
    assert!(network.sites().is_none());
    // Four seconds for ten megabytes are evidence.
    (0..FAR_TRANSFERS_MIN).for_each(|_| observe(&mut network, 0, 2, 2.5));
    network.settle();
    assert_eq!(network.sites().map(|s| s.sites.len()), Some(2));
    network.executor_left(ExecutorId(2));
    network.settle();
    assert!(network.sites().is_none());
}

#[test]
fn a_rate_that_changes_is_no_change_of_sites() {
    let mut network = network(3);
    observe(&mut network, 0, 1, 110.0);
    (0..FAR_TRANSFERS_MIN).for_each(|_| observe(&mut network, 0, 2, 2.5));
    network.settle();
    assert_eq!(network.settle(), News::Nothing);
    // With so few observations, sites are found anew after each.
    let faster = network.observe(ExecutorId(0), Some(ExecutorId(2)), 3 * MB, 1_000_000_000);
    assert_eq!(faster, News::Rates);
    assert_eq!(network.sites().expect("two").link(0, 1).best_bytes_per_s, 3e6);
    network.executor_joined(ExecutorId(3), "host3");
    assert_eq!(network.settle(), News::Sites);
}

/// A link that was slow for a time is not slow for ever.
#[test]
fn sites_join_when_their_link_has_become_fast() {
    let mut network = network(4);
    let all = |network: &mut Network, between: f64| {
        for _ in 0..2 * RECENT {
            observe(network, 0, 1, 110.0);
            observe(network, 2, 3, 110.0);
            observe(network, 0, 2, between);
        }
        network.settle();
    };
    all(&mut network, 5.0);
    assert_eq!(network.sites().map(|s| s.sites.len()), Some(2));
    all(&mut network, 100.0);
    assert!(network.sites().is_none());
}

/// The definition, followed step by step over all pairs and all transfers.
fn naive(n: u32, seen: &[(u32, u32, f64)]) -> Vec<Vec<u32>> {
    let best_of = |a: u32, b: u32| {
        let of_pair = seen.iter().filter(|(x, y, _)| (*x, *y) == (a, b) || (*x, *y) == (b, a));
        of_pair.map(|(_, _, rate)| *rate).fold(0.0, f64::max)
    };
    let best = seen.iter().map(|(_, _, rate)| *rate).fold(0.0, f64::max);
    let mut group: Vec<u32> = (0..n).collect();
    for a in 0..n {
        for b in 0..n {
            if best_of(a, b) > 0.0 && best_of(a, b) * FAR_FACTOR >= best {
                let (from, to) = (group[a as usize], group[b as usize]);
                let (from, to) = (from.max(to), from.min(to));
                group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
            }
        }
    }
    let members = |g: u32| (0..n).filter(|i| group[*i as usize] == g).collect::<Vec<_>>();
    let mut all: Vec<Vec<u32>> = (0..n).filter(|g| group[*g as usize] == *g).map(members).collect();
    all.sort_by_key(|members| (std::cmp::Reverse(members.len()), members[0]));
    let mut sites: Vec<Vec<u32>> = vec![];
    for members in all {
        let n_between = |site: &[u32]| {
            let crosses = |(x, y, _): &&(u32, u32, f64)| {
                members.contains(x) && site.contains(y) || members.contains(y) && site.contains(x)
            };
            seen.iter().filter(crosses).count()
        };
        match sites.iter().position(|site| n_between(site) < FAR_TRANSFERS_MIN as usize) {
            Some(site) => sites[site].extend(members),
            None => sites.push(members),
        }
    }
    sites.iter_mut().for_each(|site| site.sort_unstable());
    sites.sort();
    sites
}

#[test]
fn sites_are_those_of_the_definition() {
    let mut n_apart = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(11) as u32;
        let mut network = network(n);
        let mut seen = vec![];
        for _ in 0..rng.below(60) {
            let (a, b) = (rng.below(u64::from(n)) as u32, rng.below(u64::from(n)) as u32);
            // No pair gets more transfers than are remembered.
            let n_pair = seen.iter().filter(|(x, y, _)| (*x, *y) == (a, b) || (*x, *y) == (b, a)).count();
            if a != b && n_pair < RECENT as usize {
                let rate = of_three_sites(a, b, &mut rng);
                observe(&mut network, a, b, rate);
                seen.push((a, b, rate));
            }
        }
        network.settle();
        let expected = naive(n, &seen);
        let got = network.sites().map_or_else(
            || vec![(0..n).collect::<Vec<u32>>()],
            |sites| sites.sites.iter().map(|s| s.iter().map(|e| e.0).collect()).collect(),
        );
        n_apart += usize::from(got.len() > 1);
        assert_eq!(got, expected, "seed {seed}: {seen:?}");
    }
    assert!(n_apart > 100, "only {n_apart} cases had more than one site");
}

#[test]
fn remembered_pairs_are_bounded() {
    let mut network = network(300);
    for a in 0..300 {
        for b in 0..a {
            observe(&mut network, a, b, 110.0);
        }
    }
    assert!(network.pairs.len() <= PAIRS_PER_EXECUTOR * 300);
    assert_eq!(network.pairs.len(), network.oldest.len());
}

fn round_trip(network: &mut Network, a: u32, b: u32, ms: f64) {
    network.observe_round_trip(ExecutorId(a), ExecutorId(b), (ms * 1e6) as u64);
}

#[test]
fn round_trips_find_sites_before_anything_moved_with_few_probes() {
    let mut network = Network::default();
    let mut n_probes = 0;
    for e in 0..24 {
        network.executor_joined(ExecutorId(e), &format!("host{e}"));
        loop {
            let asked = network.to_probe();
            if asked.is_empty() {
                break;
            }
            for (executor, peers) in asked {
                n_probes += peers.len();
                for peer in peers {
                    let ms = if executor.0 % 3 == peer.0 % 3 { 0.4 } else { 20.0 };
                    round_trip(&mut network, executor.0, peer.0, ms);
                }
            }
            network.settle();
        }
    }
    let sites = network.sites().expect("three were made");
    assert_eq!(sites.sites.len(), 3);
    for (site, executors) in sites.sites.iter().enumerate() {
        assert!(executors.iter().all(|e| e.0 as usize % 3 == site), "{executors:?}");
    }
    assert!(n_probes <= 3 * 24, "{n_probes}");
}

#[test]
fn a_quick_transfer_outweighs_a_long_round_trip() {
    let mut network = network(3);
    round_trip(&mut network, 0, 1, 20.0);
    round_trip(&mut network, 0, 2, 20.0);
    network.settle();
    assert_eq!(network.sites().map(|sites| sites.sites.len()), Some(2));
    // The first transfer of all is the best one, which says nothing about a long way.
    observe(&mut network, 0, 1, 6.0);
    network.settle();
    assert!(network.sites().is_some());
    observe(&mut network, 1, 2, 100.0);
    network.settle();
    assert!(network.sites().is_some());
    observe(&mut network, 0, 1, 90.0);
    network.settle();
    assert!(network.sites().is_none(), "{:?}", network.sites());
}

#[test]
fn executors_of_one_host_measure_nothing_between_them() {
    let mut network = Network::default();
    (0..4).for_each(|e| network.executor_joined(ExecutorId(e), if e < 3 { "here" } else { "there" }));
    assert_eq!(network.to_probe(), [(ExecutorId(3), vec![ExecutorId(0)])]);
}

#[test]
fn probes_of_one_executor_are_bounded_and_end_with_it() {
    let mut network = network(2);
    assert_eq!(network.to_probe(), vec![(ExecutorId(1), vec![ExecutorId(0)])]);
    assert_eq!(network.to_probe(), vec![]);
    network.executor_left(ExecutorId(1));
    network.executor_joined(ExecutorId(1), "host1");
    assert_eq!(network.to_probe().len(), 1);
    round_trip(&mut network, 1, 7, 20.0);
    assert!(network.sites().is_none(), "strangers say nothing");
}
