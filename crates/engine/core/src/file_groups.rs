//! File groups: objects that have always been requested together.
//!
//! In: the objects that each attempt requests. Out: the other objects of an object's group. Nobody declares a group: two objects
//! are in one group as long as every request for one of them was a request for the other, too.
//!
//! Source: Doraimani08, who call such a group a *filecule*; Miceli10 (conclusions) leaves the use of such groups to future work.
//! Here the groups are kept up to date by splitting: the objects of a request that are new begin a group, and a group of which a
//! request takes a part becomes two.
//!
//! Invariants: an object is in one group, and a group has no object twice. A request costs O(1) for each of its
//! objects. At most [`OBJECTS_MAX`] objects are remembered, in some 24 bytes each.
//!
//! Not here: what is done about a group ([`crate::cache`]); groups of files in a run's dataflow ([`crate::pattern`]).

use eyas_terms::ObjectId;
use rustc_hash::FxHashMap;

/// So many objects are remembered; what is not in the cache is forgotten then.
pub const OBJECTS_MAX: usize = 1 << 18;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct FileGroups {
    /// The group of an object, and its position there. Never iterated, as its order means nothing.
    places: FxHashMap<ObjectId, PlaceInGroup>,
    groups: Vec<Vec<ObjectId>>,
    /// Empty groups, for new ones.
    unused: Vec<u32>,
    /// For each group that a request has come to: where the objects go that are split off.
    splits: FxHashMap<u32, u32>,
}

#[derive(Clone, Copy, Debug)]
struct PlaceInGroup {
    group: u32,
    at: u32,
}

impl FileGroups {
    /// These objects are requested together; the caller names each of them once.
    ///
    /// * `is_here`: whether an object is in the cache; asked only when too many are remembered.
    pub fn requested(&mut self, objects: &[ObjectId], is_here: impl Fn(ObjectId) -> bool) {
        if self.places.len() + objects.len() > OBJECTS_MAX {
            self.forget(is_here);
            if self.places.len() + objects.len() > OBJECTS_MAX {
                return;
            }
        }
        let mut of_new = None;
        for &object in objects {
            match self.places.get(&object).copied() {
                None => {
                    let group = *of_new.get_or_insert_with(|| new_group(&mut self.groups, &mut self.unused));
                    self.put(object, group);
                }
                // All objects of a group go to the same new one. If all of them have gone in the end, the group has only
                // another number.
                Some(PlaceInGroup { group, .. }) => {
                    let (groups, unused) = (&mut self.groups, &mut self.unused);
                    let to = *self.splits.entry(group).or_insert_with(|| new_group(groups, unused));
                    self.take(object);
                    self.put(object, to);
                }
            }
        }
        self.splits.clear();
    }

    /// The objects of an object's group, itself among them; none if it was never requested.
    pub fn group_of(&self, object: ObjectId) -> &[ObjectId] {
        self.places.get(&object).map_or(&[], |place| &self.groups[place.group as usize])
    }

    /// Whether two objects are in one group.
    pub fn are_mates(&self, one: ObjectId, other: ObjectId) -> bool {
        let group = |object| self.places.get(&object).map(|place| place.group);
        group(one).is_some() && group(one) == group(other)
    }

    /// Objects that are remembered.
    pub fn n_objects(&self) -> usize {
        self.places.len()
    }

    fn put(&mut self, object: ObjectId, group: u32) {
        let members = &mut self.groups[group as usize];
        self.places.insert(object, PlaceInGroup { group, at: members.len() as u32 });
        members.push(object);
    }

    fn take(&mut self, object: ObjectId) {
        let Some(PlaceInGroup { group, at }) = self.places.remove(&object) else { return };
        let members = &mut self.groups[group as usize];
        members.swap_remove(at as usize);
        if let Some(moved) = members.get(at as usize) {
            self.places.insert(*moved, PlaceInGroup { group, at });
        }
        if members.is_empty() {
            self.unused.push(group);
        }
    }

    /// Forgets objects that are not in the cache.
    fn forget(&mut self, is_here: impl Fn(ObjectId) -> bool) {
        let mut gone: Vec<ObjectId> = self.groups.iter().flatten().copied().collect();
        gone.retain(|object| !is_here(*object));
        gone.into_iter().for_each(|object| self.take(object));
    }

    /// Panics when an invariant of the module's header is broken. For tests.
    pub fn sanity_check(&self) {
        let mut n_members = 0;
        for (group, members) in (0u32..).zip(&self.groups) {
            n_members += members.len();
            for (at, object) in (0u32..).zip(members) {
                let place = self.places[object];
                assert_eq!((place.group, place.at), (group, at), "{object:?} knows its place");
            }
        }
        assert_eq!(n_members, self.places.len(), "every object is in one group");
        let n_empty = self.groups.iter().filter(|members| members.is_empty()).count();
        assert_eq!(n_empty, self.unused.len(), "empty groups are used again");
    }
}

fn new_group(groups: &mut Vec<Vec<ObjectId>>, unused: &mut Vec<u32>) -> u32 {
    unused.pop().unwrap_or_else(|| {
        groups.push(vec![]);
        u32::try_from(groups.len() - 1).expect("not more groups than objects")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    fn ids(numbers: &[u32]) -> Vec<ObjectId> {
        numbers.iter().copied().map(ObjectId).collect()
    }

    fn group(groups: &FileGroups, object: u32) -> Vec<u32> {
        let mut members: Vec<u32> = groups.group_of(ObjectId(object)).iter().map(|o| o.0).collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn what_is_requested_together_is_a_group_until_a_part_is_requested_alone() {
        let mut groups = FileGroups::default();
        groups.requested(&ids(&[1, 2, 3, 9]), |_| true);
        groups.requested(&ids(&[4, 5, 9]), |_| true);
        assert_eq!(group(&groups, 1), [1, 2, 3]);
        assert_eq!(group(&groups, 4), [4, 5]);
        assert_eq!(group(&groups, 9), [9], "a file that many read is a group of its own");
        groups.requested(&ids(&[2]), |_| true);
        assert_eq!((group(&groups, 1), group(&groups, 2)), (vec![1, 3], vec![2]));
        groups.requested(&ids(&[1, 3]), |_| true);
        assert_eq!(group(&groups, 3), [1, 3]);
        assert_eq!(group(&groups, 7), [0u32; 0]);
        groups.sanity_check();
    }

    /// The definition itself: objects are in one group if the same requests named them.
    #[test]
    fn groups_are_those_of_the_definition() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut groups = FileGroups::default();
            let mut requests_of: BTreeMap<ObjectId, BTreeSet<u32>> = BTreeMap::new();
            for request in 0..rng.below(12) as u32 {
                let objects: Vec<ObjectId> = (0..20).map(ObjectId).filter(|_| rng.below(3) == 0).collect();
                for object in &objects {
                    requests_of.entry(*object).or_default().insert(request);
                }
                groups.requested(&objects, |_| true);
                groups.sanity_check();
            }
            for (object, requests) in &requests_of {
                let alike = requests_of.iter().filter(|(_, other)| *other == requests).map(|(o, _)| o.0);
                assert_eq!(group(&groups, object.0), alike.collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_in_the_cache_is_remembered() {
        let mut groups = FileGroups::default();
        let is_here = |object: ObjectId| object.0 < 100;
        let n = OBJECTS_MAX as u32;
        for first in (0..n + 1000).step_by(100) {
            groups.requested(&(first..first + 100).map(ObjectId).collect::<Vec<_>>(), is_here);
            assert!(groups.n_objects() <= OBJECTS_MAX);
        }
        groups.sanity_check();
        assert_eq!(group(&groups, 5).len(), 100);
        assert_eq!(group(&groups, 500), [0u32; 0]);
        assert_eq!(group(&groups, n + 950).len(), 100);
        // Where all are in the cache, nothing new is learnt.
        let mut groups = FileGroups::default();
        groups.requested(&(0..n).map(ObjectId).collect::<Vec<_>>(), |_| true);
        groups.requested(&ids(&[n, n + 1]), |_| true);
        assert_eq!((groups.n_objects(), group(&groups, n)), (OBJECTS_MAX, vec![]));
    }
}
