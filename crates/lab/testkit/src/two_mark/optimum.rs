//! The offline optimum of a small system, exactly: the least that a request sequence can cost.
//!
//! Brute force over all placements. The optimum may do what figure 6 may, at any time and not only when asked:
//! load from home into empty space (`s`), move an object into empty space on another store or exchange two
//! (1), drop (0). No object is on two stores.
//!
//! A [`CostTable`] function holds, for each placement, the least cost of having served the sequence so far and
//! being in that placement. Its minimum is the optimum of the sequence, and all of it what the future
//! depends on, so that a search can go on from it and recognise where it has been.

use super::{HOME, OBJECTS_MAX, Placement, Request, System};
use std::collections::HashMap;

/// All placements of a system, and what it costs to come from each to each.
#[derive(Debug)]
pub struct Optimum {
    pub(super) n_objects: usize,
    pub(super) placements: Vec<Placement>,
    /// For finding only.
    pub(super) index: HashMap<Placement, usize>,
    /// By placement, by placement.
    distances: Vec<Vec<u16>>,
}

/// By placement: cost above [`CostTable::optimum`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CostTable(pub(super) Box<[u16]>);

impl Optimum {
    /// Time and memory grow with the square of the number of placements: 141 for five objects on two stores
    /// with room for two.
    pub fn new(system: System, n_objects: usize) -> Self {
        assert!(n_objects <= OBJECTS_MAX && system.home_cost >= 1, "{system:?} with {n_objects} objects");
        let mut placements = vec![[HOME; OBJECTS_MAX]];
        let mut index = HashMap::from([(placements[0], 0)]);
        let mut moves: Vec<Vec<(usize, u16)>> = Vec::new();
        while moves.len() < placements.len() {
            let from = placements[moves.len()];
            let mut here = Vec::new();
            for_each_move(system, n_objects, &from, |to, cost| {
                let id = *index.entry(to).or_insert_with(|| {
                    placements.push(to);
                    placements.len() - 1
                });
                here.push((id, cost));
            });
            moves.push(here);
        }
        let distances = (0..placements.len()).map(|from| distances_from(from, &moves)).collect();
        Optimum { n_objects, placements, index, distances }
    }

    /// Of the empty sequence, with all stores empty.
    pub fn start(&self) -> CostTable {
        CostTable(self.distances[0].clone().into())
    }

    /// Serves one request more; gives by how much the optimum grew.
    pub fn serve(&self, work: &CostTable, request: Request) -> (CostTable, u16) {
        let mut next = vec![u16::MAX; work.0.len()].into_boxed_slice();
        for (from, placement) in self.placements.iter().enumerate() {
            if placement[request.object as usize] == request.store {
                for (to, distance) in next.iter_mut().zip(&self.distances[from]) {
                    *to = (*to).min(work.0[from] + distance);
                }
            }
        }
        let growth = *next.iter().min().expect("some placement serves the request");
        next.iter_mut().for_each(|cost| *cost -= growth);
        (CostTable(next), growth)
    }

    /// The least that a whole sequence costs.
    pub fn cost(&self, requests: &[Request]) -> u64 {
        let (mut work, mut cost) = (self.start(), 0);
        for &request in requests {
            let (next, growth) = self.serve(&work, request);
            (work, cost) = (next, cost + u64::from(growth));
        }
        cost
    }
}

/// Calls `reach` with every placement that is one move away and the cost of the move.
fn for_each_move(system: System, n_objects: usize, from: &Placement, mut reach: impl FnMut(Placement, u16)) {
    let has_space =
        |store: u8| from.iter().filter(|&&at| at == store).count() < usize::from(system.store_objects);
    for object in 0..n_objects {
        let at = from[object];
        let mut to = |store, cost| {
            let mut to = *from;
            to[object] = store;
            reach(to, cost);
        };
        if at != HOME {
            to(HOME, 0);
        }
        for store in (0..system.n_stores).filter(|&store| store != at && has_space(store)) {
            to(store, if at == HOME { system.home_cost } else { 1 });
        }
        for other in object + 1..n_objects {
            if at != HOME && from[other] != HOME && from[other] != at {
                let mut to = *from;
                to.swap(object, other);
                reach(to, 1);
            }
        }
    }
}

/// Dijkstra, with a bucket for each cost.
fn distances_from(from: usize, moves: &[Vec<(usize, u16)>]) -> Vec<u16> {
    let mut distances = vec![u16::MAX; moves.len()];
    let mut buckets = vec![vec![from]];
    distances[from] = 0;
    let mut cost = 0;
    while cost < buckets.len() {
        while let Some(placement) = buckets[cost].pop() {
            if usize::from(distances[placement]) < cost {
                continue;
            }
            for &(next, step) in &moves[placement] {
                let reached = cost + usize::from(step);
                if reached < usize::from(distances[next]) {
                    distances[next] = reached as u16;
                    buckets.resize(buckets.len().max(reached + 1), Vec::new());
                    buckets[reached].push(next);
                }
            }
        }
        cost += 1;
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::super::sequence;
    use super::*;
    use eyas_terms::rng::Rng;

    fn cost(n_stores: u8, store_objects: u8, home_cost: u16, requests: &str) -> u64 {
        let system = System { n_stores, store_objects, home_cost };
        Optimum::new(system, 4).cost(&sequence(requests))
    }

    #[test]
    fn by_hand() {
        assert_eq!(cost(2, 1, 7, ""), 0);
        assert_eq!(cost(2, 1, 7, "aX aX bY bY"), 14);
        // One exchange serves both.
        assert_eq!(cost(2, 1, 7, "aX bY aY bX"), 15);
        // a waits on Y while b is on X: one move to Y, one exchange.
        assert_eq!(cost(2, 1, 7, "aX bX aX"), 16);
        // Where home is as near as a neighbour, loading again is as good.
        assert_eq!(cost(2, 1, 1, "aX bX aX"), 3);
        // One store has nowhere to put a.
        assert_eq!(cost(1, 1, 7, "aX bX aX"), 21);
        assert_eq!(cost(1, 2, 7, "aX bX cX aX bX"), 28);
        // It moves a where there is space.
        assert_eq!(cost(3, 1, 7, "aX aY aZ"), 9);
    }

    /// One store alone is paging, whose optimum is known: drop what is needed the furthest in the future
    /// (Belady 1966).
    #[test]
    fn one_store_is_belady() {
        let system = System { n_stores: 1, store_objects: 3, home_cost: 1 };
        let optimum = Optimum::new(system, 6);
        let mut rng = Rng::new(3);
        for _ in 0..50 {
            let objects: Vec<u8> = (0..40).map(|_| rng.below(6) as u8).collect();
            let mut store: Vec<u8> = Vec::new();
            let mut n_faults = 0;
            for (now, object) in objects.iter().enumerate() {
                if !store.contains(object) {
                    n_faults += 1;
                    if store.len() == 3 {
                        let next_use =
                            |o: &u8| objects[now..].iter().position(|later| later == o).unwrap_or(99);
                        let last = (0..3).max_by_key(|&i| next_use(&store[i])).unwrap();
                        store.remove(last);
                    }
                    store.push(*object);
                }
            }
            let requests: Vec<_> = objects.iter().map(|&object| Request { object, store: 0 }).collect();
            assert_eq!(optimum.cost(&requests), n_faults, "{objects:?}");
        }
    }
}
