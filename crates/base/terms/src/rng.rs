//! Seeded pseudo-random numbers, the only randomness that a decision may use, and a hash that stays the same.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators",
//! OOPSLA 2014; constants of the public-domain `splitmix64.c` by Vigna): 8 bytes of state, the same
//! numbers on every machine, good enough to pick victims and break symmetry. Never for secrets.
//!
//! Why our own: the numbers are part of a replayed log's meaning, so they must not change when a
//! dependency does.

/// What the state grows by with each number: the odd number next to 2^64 divided by the golden ratio.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: makes neighbouring numbers unlike each other, each number another one.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the same on every machine and in every version, so it may be stored.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A stream of numbers that depends on its seed and on nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Every seed is as good as any other, 0 included.
    pub fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number in `0..n`, each equally likely; `n` is at least 1.
    ///
    /// Lemire, "Fast Random Integer Generation in an Interval" (2019): one multiplication, and a
    /// second draw only with probability below `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0");
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            let low = wide as u64;
            if low >= n || low >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_numbers() {
        let mut rng = Rng::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(fnv1a64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut rng = Rng::new(7);
        let mut n_seen = [0u32; 7];
        for _ in 0..70_000 {
            n_seen[rng.below(7) as usize] += 1;
        }
        // Binomial with mean 10,000 and standard deviation 93: five of them either way.
        assert!(n_seen.iter().all(|n| (9_535..=10_465).contains(n)), "{n_seen:?}");
        assert!((0..1_000).all(|_| rng.below(1) == 0));
        assert!((0..1_000).all(|_| rng.below(u64::MAX) < u64::MAX));
    }
}
