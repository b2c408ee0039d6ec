//! Which nodes are neighbours.

/// A torus `x * y * z` that is full: `x * y * z` is the number of nodes, `x <= y <= z`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torus {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

impl Torus {
    /// The torus of `n_nodes` that is nearest to a cube: with the least sum of its edges. O(sqrt(n) *
    /// sqrt(sqrt(n))).
    pub fn of(n_nodes: u32) -> Torus {
        let n = n_nodes.max(1);
        let divisors = |n: u32| (1..=n.isqrt()).filter(move |d| n.is_multiple_of(*d));
        let shapes = divisors(n).flat_map(|x| divisors(n / x).map(move |y| Torus { x, y, z: n / x / y }));
        let ordered = shapes.filter(|t| t.x <= t.y && t.y <= t.z);
        ordered.min_by_key(|t| t.x + t.y + t.z).expect("1 * 1 * n is one")
    }

    /// Up to 6 others, each once, in the order +x, -x, +y, -y, +z, -z. `rank < n_nodes`, which counts along x first.
    pub fn neighbours_of(self, rank: u32) -> impl Iterator<Item = u32> {
        let Torus { x, y, z } = self;
        let (i, j, k) = (rank % x, rank / x % y, rank / x / y);
        let at = move |i: u32, j: u32, k: u32| (k % z * y + j % y) * x + i % x;
        let all = [
            at(i + 1, j, k),
            at(i + x - 1, j, k),
            at(i, j + 1, k),
            at(i, j + y - 1, k),
            at(i, j, k + 1),
            at(i, j, k + z - 1),
        ];
        (0..6).filter(move |n| all[*n] != rank && !all[..*n].contains(&all[*n])).map(move |n| all[n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_near_to_a_cube_as_the_divisors_allow() {
        let shape = |n| {
            let t = Torus::of(n);
            (t.x, t.y, t.z)
        };
        assert_eq!([shape(64), shape(8), shape(63)], [(4, 4, 4), (2, 2, 2), (3, 3, 7)]);
        assert_eq!([shape(1), shape(4), shape(7), shape(12)], [(1, 1, 1), (1, 2, 2), (1, 1, 7), (2, 2, 3)]);
    }

    #[test]
    fn neighbours_are_mutual_distinct_and_others() {
        for n in 1..200 {
            let torus = Torus::of(n);
            for rank in 0..n {
                let of: Vec<u32> = torus.neighbours_of(rank).collect();
                assert!(
                    of.iter().all(|r| *r < n && *r != rank && torus.neighbours_of(*r).any(|b| b == rank))
                );
                let distinct: std::collections::BTreeSet<_> = of.iter().collect();
                assert_eq!(distinct.len(), of.len());
            }
        }
        assert_eq!(Torus::of(64).neighbours_of(0).collect::<Vec<_>>(), [1, 3, 4, 12, 16, 48]);
        assert_eq!(Torus::of(2).neighbours_of(0).collect::<Vec<_>>(), [1]);
        assert_eq!(Torus::of(1).neighbours_of(0).count(), 0);
    }
}
