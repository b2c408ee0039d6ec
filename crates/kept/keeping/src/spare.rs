//! Which files get more copies than their data sets ask for, because they are read much, and which of these copies go again.
//!
//! Input: sites with their room and what was read there; objects with how many copies are asked for, who has one, and how much was
//! read of them lately ([`decayed`]). Output: copies to drop, and copies to make. A *spare copy* is one beyond what is asked for.
//!
//! Source: the asynchronous replication of GEMS (`Wozniak06` §I), and its reference 25, "Applying feedback control to a replica
//! management system". That paper was not at hand, so the law is ours. Two quantities are measured at each look and held at their
//! set points by making and dropping copies:
//!
//! * *load*: how often each copy of an object is read through in about a half-life. An object with `n` copies and `x` reads has the
//!   load `x / n`. It gains a copy while `x / (n + 1)` is at least [`Goals::reads_per_copy`], so the number of its copies is
//!   proportional to its reading; it loses a spare one when `x / n` falls below half of that.
//! * *free space*: [`Goals::free_part`] of the room of each site stays free. Copies are made only at sites with more, and a look uses
//!   half of what a site has beyond the set point. When a site has less than half of the set point, spare copies leave it, the
//!   least read first, until it is back at the set point.
//!
//! Where room or the budget of bytes is short, a copy may take the place of spare ones that are read at most half as much. All
//! three halves are the hysteresis: a copy that was just made goes only after a half-life without reads, or for one that is read twice as much.
//!
//! Invariants: a copy is dropped only while as many other good copies as are asked for are at sites that answer and stay. These are
//! the [`Drop::keepers`], and whoever drops a copy reads them through first. They lie in as many domains as before, up to the number
//! that is asked for. So good copies are never traded for one.

use super::{Copy, ObjectNo, Site, SiteNo, Takes};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The part of a set point below which something is undone, and the part of an excess that one look uses.
const HALF: f64 = 0.5;
/// How often a look searches for copies that make way for others.
const SEARCHES_MAX: usize = 1000;

/// A site and what readers take from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SiteReadings {
    pub site: Site,
    /// Bytes that were read there lately, as [`decayed`].
    pub read_bytes: f64,
    /// Such bytes with which it is busy, and gets no further spare copies; infinite: nobody said.
    pub read_bytes_max: f64,
}

/// An object that was read, or that has spare copies.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    pub size_bytes: u64,
    /// How many copies are asked for.
    pub wanted: u32,
    /// Sites that answer and have a good copy.
    pub ready: Vec<SiteNo>,
    /// Good copies at sites that do not answer.
    pub n_away: u32,
    /// Sites that may not get one, as they have a bad copy or do not answer.
    pub barred: Vec<SiteNo>,
    /// Bytes that were read of it lately, as [`decayed`].
    pub read_bytes: f64,
}

/// The set points and the limits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goals {
    /// The part of each site's room that stays free, from 0 to 1.
    pub free_part: f64,
    /// How often each copy is read through, in decayed reads; above 0.
    pub reads_per_copy: f64,
    /// Most bytes of spare copies at all sites together.
    pub spare_bytes_max: u64,
    /// Most copies of an object.
    pub copies_max: u32,
    /// Bytes of copies that this look may make. One copy is made if this is not 0, however large it is.
    pub made_bytes_max: u64,
}

/// Why a copy is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// It is hardly read any more.
    Cold,
    /// Its site has too little free space, or there are too many bytes of spare copies.
    Room,
    /// Another object is read at least twice as much and needs its room.
    Displaced,
    /// It was made while a site was away that is back.
    Back,
}

/// A spare copy to drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drop {
    pub object: ObjectNo,
    pub site: SiteNo,
    /// Sites whose copies have to be read through and found good first.
    pub keepers: Vec<SiteNo>,
    pub why: Why,
}

/// What is to be done: first the drops, then the copies.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Plan {
    pub drops: Vec<Drop>,
    pub copies: Vec<Copy>,
}

/// What is left of a count of bytes after a time, if half of it is forgotten in each half-life. Counts of readings that go on evenly
/// tend to 1.44 times what is read in a half-life. Times are in milliseconds; one from the future is now.
pub fn decayed(read_bytes: f64, age_ms: i64, half_life_ms: u64) -> f64 {
    let half_lives = age_ms.max(0) as f64 / half_life_ms.max(1) as f64;
    read_bytes * libm::exp2(-half_lives)
}

/// The spare copies to drop and to make now.
pub fn plan(places: &[SiteReadings], objects: &[Object], goals: &Goals) -> Plan {
    let mut look = Look::new(places, objects, goals);
    look.drop_cold();
    look.drop_for_budget();
    look.drop_for_free_space();
    look.grow();
    look.plan
}

/// The spare copies at a site that leave it so that at least `n_bytes` become free, the least read first; fewer bytes where there
/// are not enough of them.
pub fn make_way(places: &[SiteReadings], objects: &[Object], site: SiteNo, n_bytes: u64) -> Vec<Drop> {
    // Nothing is held at a set point here.
    let none =
        Goals { free_part: 0.0, reads_per_copy: 1.0, spare_bytes_max: 0, copies_max: 0, made_bytes_max: 0 };
    let mut look = Look::new(places, objects, &none);
    let mut freed = 0;
    for object in look.least_read() {
        if freed >= n_bytes {
            break;
        }
        if look.drop_at(object, site, Why::Room) {
            freed += objects[object].size_bytes;
        }
    }
    look.plan.drops
}

/// The copies that were made while a site was away, and that may go now that it is back.
pub fn undo(places: &[SiteReadings], objects: &[Object], made: &[(ObjectNo, SiteNo)]) -> Vec<Drop> {
    let none =
        Goals { free_part: 0.0, reads_per_copy: 1.0, spare_bytes_max: 0, copies_max: 0, made_bytes_max: 0 };
    let mut look = Look::new(places, objects, &none);
    for &(object, site) in made {
        look.drop_at(object, site, Why::Back);
    }
    look.plan.drops
}

/// A number of reads per copy, in an order. It is never NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Load(f64);

impl Eq for Load {}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Load) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Load) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A plan that is being made.
struct Look<'a> {
    places: &'a [SiteReadings],
    objects: &'a [Object],
    goals: &'a Goals,
    plan: Plan,
    /// Sites with a copy of each object that answer and stay, without those whose copy is to be dropped.
    ready: Vec<Vec<SiteNo>>,
    /// Sites that are to get one. It is no copy on which a drop may rely.
    coming: Vec<Vec<SiteNo>>,
    /// All good copies of each object after what is planned.
    n_copies: Vec<u32>,
    used: Vec<u64>,
    spare_bytes: u64,
    /// Objects of which a copy is to be dropped.
    dropped: BTreeSet<ObjectNo>,
}

impl<'a> Look<'a> {
    fn new(places: &'a [SiteReadings], objects: &'a [Object], goals: &'a Goals) -> Look<'a> {
        let stays = |site: &SiteNo| places[*site].site.takes != Takes::Nothing;
        let ready: Vec<Vec<SiteNo>> = objects
            .iter()
            .map(|object| {
                let mut ready: Vec<SiteNo> = object.ready.iter().copied().filter(stays).collect();
                ready.sort_unstable();
                ready.dedup();
                ready
            })
            .collect();
        let n_copies: Vec<u32> =
            objects.iter().zip(&ready).map(|(object, ready)| ready.len() as u32 + object.n_away).collect();
        let spare = |(object, n): (&Object, &u32)| spare_of(object, *n).saturating_mul(object.size_bytes);
        let spare_bytes = objects.iter().zip(&n_copies).map(spare).fold(0, u64::saturating_add);
        let used = places.iter().map(|place| place.site.used_bytes).collect();
        let (plan, coming) = (Plan::default(), vec![vec![]; objects.len()]);
        let dropped = BTreeSet::new();
        Look { places, objects, goals, plan, ready, coming, n_copies, used, spare_bytes, dropped }
    }

    /// How often an object was read through.
    fn reads(&self, object: ObjectNo) -> f64 {
        let Object { size_bytes, read_bytes, .. } = self.objects[object];
        // Copies of an empty object are of no use to readers.
        if size_bytes == 0 || !read_bytes.is_finite() { 0.0 } else { read_bytes.max(0.0) / size_bytes as f64 }
    }

    fn load(&self, object: ObjectNo) -> Load {
        Load(self.reads(object) / f64::from(self.n_copies[object].max(1)))
    }

    /// The load that each copy would have with one more.
    fn next_load(&self, object: ObjectNo) -> Load {
        Load(self.reads(object) / f64::from(self.n_copies[object].saturating_add(1)))
    }

    /// The objects with spare copies, the least read first.
    fn least_read(&self) -> Vec<ObjectNo> {
        let has_spare = |n: &ObjectNo| spare_of(&self.objects[*n], self.n_copies[*n]) > 0;
        let mut order: Vec<ObjectNo> = (0..self.objects.len()).filter(has_spare).collect();
        order.sort_by_key(|&n| (self.load(n), n));
        order
    }

    fn keep_bytes(&self, site: SiteNo) -> u64 {
        self.places[site].site.keep_bytes
    }

    /// Bytes that a site has beyond so large a part of its room; below 0: that it lacks.
    fn beyond(&self, site: SiteNo, free_part: f64) -> i128 {
        let keep_bytes = self.keep_bytes(site);
        let set_point = (keep_bytes as f64 * free_part.clamp(0.0, 1.0)).ceil();
        i128::from(keep_bytes) - i128::from(self.used[site]) - set_point as i128
    }

    /// The sites whose copies stay if the one at `site` is dropped; `None`: it has to stay.
    fn keepers(&self, object: ObjectNo, site: SiteNo) -> Option<Vec<SiteNo>> {
        let ready = &self.ready[object];
        let wanted = self.objects[object].wanted.max(1) as usize;
        let others: Vec<SiteNo> = ready.iter().copied().filter(|&other| other != site).collect();
        if others.len() == ready.len() || others.len() < wanted {
            return None;
        }
        let domain = |site: SiteNo| self.places[site].site.domain;
        let n_domains = |sites: &[SiteNo]| {
            let domains: BTreeSet<u32> = sites.iter().map(|&site| domain(site)).collect();
            domains.len().min(wanted)
        };
        if n_domains(&others) < n_domains(ready) {
            return None;
        }
        // The first one of each domain, then the rest.
        let mut seen = BTreeSet::new();
        let (mut keepers, rest): (Vec<SiteNo>, Vec<SiteNo>) =
            others.iter().partition(|&&site| seen.insert(domain(site)));
        keepers.extend(rest);
        keepers.truncate(wanted);
        Some(keepers)
    }

    /// Plans to drop the copy at a site; whether it may go.
    fn drop_at(&mut self, object: ObjectNo, site: SiteNo, why: Why) -> bool {
        let Some(keepers) = self.keepers(object, site) else { return false };
        if spare_of(&self.objects[object], self.n_copies[object]) == 0 {
            return false;
        }
        let size_bytes = self.objects[object].size_bytes;
        self.plan.drops.push(Drop { object, site, keepers, why });
        self.dropped.insert(object);
        self.ready[object].retain(|&other| other != site);
        self.n_copies[object] -= 1;
        self.used[site] = self.used[site].saturating_sub(size_bytes);
        self.spare_bytes = self.spare_bytes.saturating_sub(size_bytes);
        true
    }

    /// Plans to drop one copy of an object, where the least part of the room is free; whether one may go.
    fn drop_one(&mut self, object: ObjectNo, why: Why) -> bool {
        let mut sites = self.ready[object].clone();
        let free_part =
            |site: SiteNo| Load(self.beyond(site, 0.0) as f64 / self.keep_bytes(site).max(1) as f64);
        sites.sort_by_key(|&site| (free_part(site), site));
        sites.into_iter().any(|site| self.drop_at(object, site, why))
    }

    fn drop_cold(&mut self) {
        let least = Load(self.goals.reads_per_copy * HALF);
        for object in self.least_read() {
            while self.load(object) < least && self.drop_one(object, Why::Cold) {}
        }
    }

    fn drop_for_budget(&mut self) {
        for object in self.least_read() {
            while self.spare_bytes > self.goals.spare_bytes_max && self.drop_one(object, Why::Room) {}
        }
    }

    fn drop_for_free_space(&mut self) {
        let is_short = |site: &SiteNo| self.beyond(*site, self.goals.free_part * HALF) < 0;
        let short: Vec<SiteNo> = (0..self.places.len()).filter(is_short).collect();
        for site in short {
            for object in self.least_read() {
                if self.beyond(site, self.goals.free_part) >= 0 {
                    break;
                }
                self.drop_at(object, site, Why::Room);
            }
        }
    }

    fn grow(&mut self) {
        let limit = |site| (self.beyond(site, self.goals.free_part).max(0) as f64 * HALF) as u64;
        let step_bytes: Vec<u64> = (0..self.places.len()).map(limit).collect();
        let (mut came, mut given) = (vec![0_u64; self.places.len()], BTreeMap::new());
        let (mut made_bytes, mut n_searches) = (0_u64, 0);
        let mut candidates: BinaryHeap<(Load, Reverse<ObjectNo>)> = (0..self.objects.len())
            .map(|object| (self.next_load(object), Reverse(object)))
            .filter(|(load, _)| load.0 >= self.goals.reads_per_copy)
            .collect();
        while let Some((load, Reverse(object))) = candidates.pop() {
            // What was dropped in this look does not come back in it.
            if self.dropped.contains(&object) {
                continue;
            }
            let size_bytes = self.objects[object].size_bytes;
            let is_first = made_bytes == 0 && self.goals.made_bytes_max > 0;
            if !is_first && made_bytes.saturating_add(size_bytes) > self.goals.made_bytes_max {
                break;
            }
            let Object { wanted, ref ready, .. } = self.objects[object];
            // What lacks copies gets them by the rules of the policy first.
            if ready.is_empty()
                || self.n_copies[object] < wanted
                || self.n_copies[object] >= self.goals.copies_max
            {
                continue;
            }
            let sites = self.targets(object);
            let fits = |site: SiteNo| {
                self.beyond(site, self.goals.free_part) >= i128::from(size_bytes)
                    && (came[site] == 0 || came[site] + size_bytes <= step_bytes[site])
            };
            let is_within = self.spare_bytes.saturating_add(size_bytes) <= self.goals.spare_bytes_max;
            match sites.iter().copied().find(|&site| fits(site)) {
                Some(to) if is_within => {
                    let from = self.source(object, to, &given);
                    self.plan.copies.push(Copy { object, from, to });
                    *given.entry(from).or_default() += 1;
                    came[to] += size_bytes;
                    made_bytes = made_bytes.saturating_add(size_bytes);
                    self.take(object, to);
                    let next = self.next_load(object);
                    if next.0 >= self.goals.reads_per_copy {
                        candidates.push((next, Reverse(object)));
                    }
                }
                // The copy itself is made in the next look, when the room is seen to be free.
                found if n_searches < SEARCHES_MAX => {
                    n_searches += 1;
                    if let Some(&to) = found.as_ref().or(sites.first()) {
                        self.displace(object, to, load);
                    }
                }
                _ => {}
            }
        }
    }

    /// The sites that may get a copy of an object: other domains first, then those that are read least, then those with most free room.
    fn targets(&self, object: ObjectNo) -> Vec<SiteNo> {
        let having: Vec<SiteNo> = self.ready[object].iter().chain(&self.coming[object]).copied().collect();
        let may = |&site: &SiteNo| {
            let place = &self.places[site];
            place.site.takes == Takes::Copies
                && place.read_bytes < place.read_bytes_max
                && place.site.keep_bytes >= self.objects[object].size_bytes
                && !having.contains(&site)
                && !self.objects[object].ready.contains(&site)
                && !self.objects[object].barred.contains(&site)
        };
        let mut sites: Vec<SiteNo> = (0..self.places.len()).filter(may).collect();
        let is_near = |site: SiteNo| {
            having.iter().any(|&other| self.places[other].site.domain == self.places[site].site.domain)
        };
        // Those that have no room come last, so that the first one is also the one for which copies make way.
        let lacks = |site: SiteNo| {
            self.beyond(site, self.goals.free_part) < i128::from(self.objects[object].size_bytes)
        };
        let free =
            |site: SiteNo| Load(-(self.beyond(site, 0.0) as f64) / self.keep_bytes(site).max(1) as f64);
        sites.sort_by_key(|&site| {
            (lacks(site), is_near(site), Load(self.places[site].read_bytes), free(site), site)
        });
        sites
    }

    fn source(&self, object: ObjectNo, to: SiteNo, given: &BTreeMap<SiteNo, u32>) -> SiteNo {
        let is_far = |site: SiteNo| self.places[site].site.domain != self.places[to].site.domain;
        let n_given = |site: SiteNo| given.get(&site).copied().unwrap_or(0);
        // A copy at a site that is being drained is a good source, too.
        let ready = self.objects[object].ready.iter().copied();
        let nearest =
            ready.min_by_key(|&site| (is_far(site), n_given(site), Load(self.places[site].read_bytes), site));
        nearest.expect("only objects with a good copy get further ones")
    }

    fn take(&mut self, object: ObjectNo, to: SiteNo) {
        let size_bytes = self.objects[object].size_bytes;
        self.used[to] = self.used[to].saturating_add(size_bytes);
        self.coming[object].push(to);
        self.n_copies[object] += 1;
        self.spare_bytes = self.spare_bytes.saturating_add(size_bytes);
    }

    /// Plans to drop spare copies that are read at most half as much as a copy of this object would be, if they make way for
    /// one at `to`. Their room is this object's then.
    fn displace(&mut self, object: ObjectNo, to: SiteNo, load: Load) {
        let size_bytes = self.objects[object].size_bytes;
        let mut lacks = (i128::from(size_bytes) - self.beyond(to, self.goals.free_part)).max(0);
        let spare_after = i128::from(self.spare_bytes) + i128::from(size_bytes);
        let mut excess = (spare_after - i128::from(self.goals.spare_bytes_max)).max(0);
        let mut victims = vec![];
        for other in self.least_read() {
            if other == object || (lacks <= 0 && excess <= 0) || self.load(other).0 > load.0 * HALF {
                break;
            }
            let site = match lacks > 0 {
                true => Some(to),
                false => self.ready[other].iter().copied().find(|&site| self.keepers(other, site).is_some()),
            };
            let Some(site) = site.filter(|&site| self.keepers(other, site).is_some()) else { continue };
            let freed = i128::from(self.objects[other].size_bytes);
            victims.push((other, site));
            excess -= freed;
            if site == to {
                lacks -= freed;
            }
        }
        if lacks > 0 || excess > 0 || victims.is_empty() {
            return;
        }
        for (other, site) in victims {
            self.drop_at(other, site, Why::Displaced);
        }
        self.take(object, to);
    }
}

/// Copies of an object beyond what is asked for.
fn spare_of(object: &Object, n_copies: u32) -> u64 {
    u64::from(n_copies.saturating_sub(object.wanted.max(1)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::takes;
    use super::*;
    use eyas_terms::rng::Rng;

    const ROOM: u64 = 1000;
    const GOALS: Goals = Goals {
        free_part: 0.1,
        reads_per_copy: 4.0,
        spare_bytes_max: 1 << 40,
        copies_max: 8,
        made_bytes_max: 1 << 40,
    };

    fn place(domain: u32) -> SiteReadings {
        let site = Site { domain, takes: Takes::Copies, keep_bytes: ROOM, used_bytes: 0, is_busy: false };
        SiteReadings { site, read_bytes: 0.0, read_bytes_max: f64::INFINITY }
    }

    fn places(n: u32) -> Vec<SiteReadings> {
        (0..n).map(place).collect()
    }

    /// An object of ten bytes that was read through so often.
    fn object(wanted: u32, ready: &[SiteNo], reads: f64) -> Object {
        let ready = ready.to_vec();
        Object { size_bytes: 10, wanted, ready, n_away: 0, barred: vec![], read_bytes: reads * 10.0 }
    }

    /// The drops as object, site and reason, and the copies as object, source and target.
    fn check(
        places: &[SiteReadings],
        objects: &[Object],
        goals: &Goals,
        drops: &[(ObjectNo, SiteNo, Why)],
        copies: &[(ObjectNo, SiteNo, SiteNo)],
    ) {
        let plan = plan(places, objects, goals);
        let dropped: Vec<_> = plan.drops.iter().map(|drop| (drop.object, drop.site, drop.why)).collect();
        let made: Vec<_> = plan.copies.iter().map(|copy| (copy.object, copy.from, copy.to)).collect();
        assert_eq!((dropped.as_slice(), made.as_slice()), (drops, copies));
    }

    #[test]
    fn copies_are_in_proportion_to_reading() {
        let sites = places(4);
        check(&sites, &[object(1, &[0], 7.9)], &GOALS, &[], &[]);
        check(&sites, &[object(1, &[0], 8.0)], &GOALS, &[], &[(0, 0, 1)]);
        check(&sites, &[object(1, &[0], 13.0)], &GOALS, &[], &[(0, 0, 1), (0, 0, 2)]);
        check(&sites, &[object(1, &[0], 900.0)], &Goals { copies_max: 2, ..GOALS }, &[], &[(0, 0, 1)]);
        // A copy that is elsewhere for a while counts.
        check(&sites, &[Object { n_away: 1, ..object(1, &[0], 8.0) }], &GOALS, &[], &[]);
        // What lacks copies gets them by the policy.
        check(&sites, &[object(3, &[0], 900.0)], &GOALS, &[], &[]);
        check(&sites, &[Object { barred: vec![1, 2], ..object(1, &[0], 8.0) }], &GOALS, &[], &[(0, 0, 3)]);
    }

    #[test]
    fn what_is_read_no_more_falls_back_to_its_policy() {
        let sites = places(4);
        check(&sites, &[object(1, &[0, 1], 4.0)], &GOALS, &[], &[]);
        check(&sites, &[object(1, &[0, 1], 3.9)], &GOALS, &[(0, 0, Why::Cold)], &[]);
        let all = [(0, 0, Why::Cold), (0, 1, Why::Cold)];
        check(&sites, &[object(2, &[0, 1, 2, 3], 0.0)], &GOALS, &all, &[]);
        check(&sites, &[object(4, &[0, 1, 2, 3], 0.0)], &GOALS, &[], &[]);
        // Of the copies at sites that answer, as many as are asked for stay.
        check(&sites, &[Object { n_away: 2, ..object(2, &[0, 1], 0.0) }], &GOALS, &[], &[]);
        let draining = [
            place(0),
            place(1),
            SiteReadings { site: Site { takes: Takes::Nothing, ..sites[2].site }, ..sites[2] },
        ];
        check(&draining, &[object(2, &[0, 1, 2], 0.0)], &GOALS, &[], &[]);
    }

    #[test]
    fn the_copies_that_stay_are_apart_and_named() {
        let sites = [place(0), place(0), place(1)];
        let plan = plan(&sites, &[object(2, &[0, 1, 2], 0.0)], &GOALS);
        assert_eq!(plan.drops, [Drop { object: 0, site: 0, keepers: vec![1, 2], why: Why::Cold }]);
        // The fullest site loses its copy first, unless it is alone in its domain.
        let full = SiteReadings { site: Site { used_bytes: 900, ..sites[2].site }, ..sites[2] };
        check(&[place(0), place(0), full], &[object(2, &[0, 1, 2], 0.0)], &GOALS, &[(0, 0, Why::Cold)], &[]);
        check(&[place(0), place(2), full], &[object(2, &[0, 1, 2], 0.0)], &GOALS, &[(0, 2, Why::Cold)], &[]);
    }

    #[test]
    fn a_part_of_each_site_stays_free() {
        let used = |bytes| SiteReadings { site: Site { used_bytes: bytes, ..place(1).site }, ..place(1) };
        // At the set point, nothing comes. Between it and its half, nothing goes.
        check(&[place(0), used(891)], &[object(1, &[0], 9.0)], &GOALS, &[], &[]);
        check(&[place(0), used(890)], &[object(1, &[0], 9.0)], &GOALS, &[], &[(0, 0, 1)]);
        let spares = vec![object(1, &[0, 1], 9.0), object(1, &[0, 1], 8.0), object(1, &[0, 1], 10.0)];
        check(&[place(0), used(950)], &spares, &GOALS, &[], &[]);
        let all = [(1, 1, Why::Room), (0, 1, Why::Room), (2, 1, Why::Room)];
        check(&[place(0), used(951)], &spares, &GOALS, &all, &[]);
        check(&[place(0), used(951)], &spares[1..], &GOALS, &[(0, 1, Why::Room), (1, 1, Why::Room)], &[]);
        // A look uses half of what is beyond the set point.
        let read = vec![object(1, &[0], 9.0); 6];
        check(&[place(0), used(880)], &read, &GOALS, &[], &[(0, 0, 1)]);
        check(&[place(0), used(860)], &read, &GOALS, &[], &[(0, 0, 1), (1, 0, 1)]);
    }

    #[test]
    fn budgets_hold() {
        let sites = places(3);
        let read = vec![object(1, &[0], 9.0), object(1, &[0], 30.0)];
        let budget = |spare_bytes_max| Goals { spare_bytes_max, copies_max: 2, ..GOALS };
        check(&sites, &read, &budget(10), &[], &[(1, 0, 1)]);
        check(&sites, &read, &budget(9), &[], &[]);
        let spares = vec![object(1, &[0, 1], 9.0), object(1, &[0, 2], 30.0)];
        check(&sites, &spares, &budget(10), &[(0, 0, Why::Room)], &[]);
        check(&sites, &read, &Goals { made_bytes_max: 0, ..GOALS }, &[], &[]);
        let slowly = Goals { made_bytes_max: 1, ..GOALS };
        check(&sites, &read, &slowly, &[], &[(1, 0, 1)]);
    }

    #[test]
    fn what_is_read_twice_as_much_takes_the_place() {
        let sites = [place(0), place(1)];
        let one = Goals { spare_bytes_max: 10, ..GOALS };
        let pair = |reads| vec![object(1, &[0, 1], 8.0), object(1, &[0], reads)];
        check(&sites, &pair(15.9), &one, &[], &[]);
        check(&sites, &pair(16.0), &one, &[(0, 0, Why::Displaced)], &[]);
        // In the next look it comes, and the other one does not take its place back.
        let after = vec![object(1, &[1], 8.0), object(1, &[0], 16.0)];
        check(&sites, &after, &one, &[], &[(1, 0, 1)]);
        let full = SiteReadings { site: Site { used_bytes: 900, ..sites[1].site }, ..sites[1] };
        check(&[place(0), full], &pair(16.0), &GOALS, &[(0, 1, Why::Displaced)], &[]);
    }

    #[test]
    fn copies_go_where_little_is_read_and_busy_sites_get_none() {
        let read = |domain, read_bytes| SiteReadings { read_bytes, read_bytes_max: 100.0, ..place(domain) };
        check(
            &[read(0, 0.0), read(1, 50.0), read(2, 20.0)],
            &[object(1, &[0], 9.0)],
            &GOALS,
            &[],
            &[(0, 0, 2)],
        );
        check(
            &[read(0, 0.0), read(1, 50.0), read(0, 20.0)],
            &[object(1, &[0], 9.0)],
            &GOALS,
            &[],
            &[(0, 0, 1)],
        );
        check(&[read(0, 0.0), read(1, 100.0)], &[object(1, &[0], 9.0)], &GOALS, &[], &[]);
        // It comes from where little is read, too.
        let sites = [read(0, 90.0), read(1, 50.0), read(2, 20.0)];
        check(&sites, &[object(1, &[0, 1], 12.0)], &GOALS, &[], &[(0, 1, 2)]);
    }

    #[test]
    fn spare_copies_make_way_for_what_comes() {
        let objects = vec![object(1, &[0, 1], 9.0), object(1, &[0, 1], 8.0), object(2, &[0, 1], 0.0)];
        let sites = [place(0), place(1)];
        let way = |n_bytes| -> Vec<ObjectNo> {
            make_way(&sites, &objects, 1, n_bytes).iter().map(|drop| drop.object).collect()
        };
        assert_eq!((way(0), way(1), way(11), way(1000)), (vec![], vec![1], vec![1, 0], vec![1, 0]));
    }

    #[test]
    fn readings_are_forgotten_by_halves() {
        assert_eq!(decayed(80.0, 0, 1000), 80.0);
        assert_eq!(decayed(80.0, 3000, 1000), 10.0);
        assert_eq!(decayed(80.0, -5, 1000), 80.0);
        assert_eq!(decayed(80.0, i64::MAX, 1), 0.0);
        assert!(decayed(80.0, 1, 0) <= 40.0);
    }

    fn random_places(rng: &mut Rng, n: usize) -> Vec<SiteReadings> {
        let place = |rng: &mut Rng| SiteReadings {
            site: Site {
                domain: rng.below(3) as u32,
                takes: takes(rng, 6),
                keep_bytes: rng.below(200),
                used_bytes: rng.below(150),
                is_busy: false,
            },
            read_bytes: rng.below(100) as f64,
            read_bytes_max: if rng.below(4) == 0 { 50.0 } else { f64::INFINITY },
        };
        (0..n).map(|_| place(rng)).collect()
    }

    fn random_objects(rng: &mut Rng, n_sites: usize) -> Vec<Object> {
        let some =
            |rng: &mut Rng, part: u64| (0..n_sites).filter(|_| rng.below(part) == 0).collect::<Vec<_>>();
        let object = |rng: &mut Rng| Object {
            size_bytes: rng.below(20),
            wanted: rng.below(4) as u32,
            ready: some(rng, 2),
            n_away: rng.below(6).saturating_sub(4) as u32,
            barred: some(rng, 8),
            read_bytes: if rng.below(3) == 0 { 0.0 } else { rng.below(400) as f64 },
        };
        (0..rng.below(12)).map(|_| object(rng)).collect()
    }

    /// Whatever the sites and objects: a plan keeps to the rules that the header says.
    #[test]
    fn random_plans_keep_the_rules() {
        let mut rng = Rng::new(11);
        let mut seen = [0; 4];
        for round in 0..20_000 {
            let n_sites = 1 + rng.below(6) as usize;
            let places = random_places(&mut rng, n_sites);
            let objects = random_objects(&mut rng, n_sites);
            let goals = Goals {
                free_part: rng.below(4) as f64 / 10.0,
                reads_per_copy: 1.0 + rng.below(5) as f64,
                spare_bytes_max: rng.below(120),
                copies_max: 1 + rng.below(6) as u32,
                made_bytes_max: rng.below(100),
            };
            let plan = plan(&places, &objects, &goals);
            let stays = |site: &SiteNo| places[*site].site.takes != Takes::Nothing;
            let mut ready: Vec<BTreeSet<SiteNo>> =
                objects.iter().map(|object| object.ready.iter().copied().filter(stays).collect()).collect();
            let mut used: Vec<i128> = places.iter().map(|place| i128::from(place.site.used_bytes)).collect();
            let domain = |site: &SiteNo| places[*site].site.domain;
            for Drop { object: n, site, keepers, why } in &plan.drops {
                let object = &objects[*n];
                let wanted = object.wanted.max(1) as usize;
                let before: BTreeSet<u32> = ready[*n].iter().map(domain).collect();
                if *why == Why::Displaced {
                    let load = |n: usize, n_copies: u32| {
                        objects[n].read_bytes / objects[n].size_bytes as f64 / f64::from(n_copies)
                    };
                    let least = 2.0 * load(*n, ready[*n].len() as u32 + object.n_away);
                    let is_hot = |m: usize| load(m, ready[m].len() as u32 + objects[m].n_away + 1) >= least;
                    assert!((0..objects.len()).any(is_hot), "round {round}: nobody reads twice as much");
                }
                assert!(ready[*n].remove(site), "round {round}: only what is there is dropped");
                used[*site] -= i128::from(object.size_bytes);
                let named: BTreeSet<SiteNo> = keepers.iter().copied().collect();
                assert!(named.len() == wanted && named.is_subset(&ready[*n]), "round {round}: {keepers:?}");
                let after: BTreeSet<u32> = named.iter().map(domain).collect();
                assert!(after.len() >= before.len().min(wanted), "round {round}: no domain is given up");
                seen[*why as usize] += 1;
            }
            // Those on which a drop relied are not dropped later.
            for drop in &plan.drops {
                assert!(ready[drop.object].len() >= objects[drop.object].wanted.max(1) as usize);
            }
            let copies_of = |n: usize, ready: &[BTreeSet<SiteNo>]| ready[n].len() as u32 + objects[n].n_away;
            let spare_bytes = |ready: &[BTreeSet<SiteNo>]| -> u64 {
                let spare =
                    |(n, object): (usize, &Object)| spare_of(object, copies_of(n, ready)) * object.size_bytes;
                objects.iter().enumerate().map(spare).sum()
            };
            for (n, object) in objects.iter().enumerate() {
                let n_copies = copies_of(n, &ready);
                let reads =
                    if object.size_bytes == 0 { 0.0 } else { object.read_bytes / object.size_bytes as f64 };
                let is_cold = spare_of(object, n_copies) > 0
                    && reads / f64::from(n_copies) < goals.reads_per_copy / 2.0;
                let may_go = |site: &SiteNo| {
                    let rest: BTreeSet<SiteNo> =
                        ready[n].iter().copied().filter(|other| other != site).collect();
                    let wanted = object.wanted.max(1) as usize;
                    let n_domains = |of: &BTreeSet<SiteNo>| {
                        of.iter().map(domain).collect::<BTreeSet<_>>().len().min(wanted)
                    };
                    rest.len() >= wanted && n_domains(&rest) >= n_domains(&ready[n])
                };
                assert!(!(is_cold && ready[n].iter().any(may_go)), "round {round}: {n} is cold and stays");
            }
            let mut made_bytes = 0;
            for copy in &plan.copies {
                let object = &objects[copy.object];
                let place = &places[copy.to];
                assert!(object.ready.contains(&copy.from) && place.site.takes == Takes::Copies);
                assert!(!object.barred.contains(&copy.to) && place.read_bytes < place.read_bytes_max);
                assert!(ready[copy.object].insert(copy.to), "round {round}: one copy for each site");
                assert!(
                    !plan.drops.iter().any(|drop| drop.object == copy.object),
                    "round {round}: to and fro"
                );
                let n_copies = copies_of(copy.object, &ready);
                assert!(n_copies > object.wanted && n_copies <= goals.copies_max);
                let load = object.read_bytes / object.size_bytes as f64 / f64::from(n_copies);
                assert!(load >= goals.reads_per_copy, "round {round}: it is not read that much");
                used[copy.to] += i128::from(object.size_bytes);
                let free = i128::from(place.site.keep_bytes) - used[copy.to];
                assert!(
                    free as f64 >= place.site.keep_bytes as f64 * goals.free_part,
                    "round {round}: no room"
                );
                made_bytes += object.size_bytes;
                assert!(made_bytes <= goals.made_bytes_max || made_bytes == object.size_bytes);
                seen[3] += 1;
            }
            assert!(goals.made_bytes_max > 0 || plan.copies.is_empty());
            if !plan.copies.is_empty() {
                assert!(spare_bytes(&ready) <= goals.spare_bytes_max, "round {round}: the budget");
            }
        }
        assert!(seen.iter().all(|&n| n > 100), "each case came often enough: {seen:?}");
    }

    /// With room for all, looks lead to the number of copies that a formula says, and then nothing changes any more.
    #[test]
    fn with_enough_room_the_number_of_copies_is_that_of_the_formula() {
        let mut rng = Rng::new(5);
        for round in 0..500 {
            let n_sites = 2 + rng.below(8) as u32;
            let places: Vec<SiteReadings> = (0..n_sites)
                .map(|n| SiteReadings { site: Site { keep_bytes: 1 << 40, ..place(n).site }, ..place(n) })
                .collect();
            let object = |rng: &mut Rng| {
                let n_ready = 1 + rng.below(u64::from(n_sites)) as usize;
                let wanted = 1 + rng.below(n_ready as u64) as u32;
                let ready: Vec<SiteNo> = (0..n_ready).collect();
                Object { read_bytes: rng.below(600) as f64, ..object(wanted, &ready, 0.0) }
            };
            let mut objects: Vec<Object> = (0..20).map(|_| object(&mut rng)).collect();
            let goals = Goals { copies_max: n_sites, ..GOALS };
            let naive: Vec<u32> = objects
                .iter()
                .map(|object| {
                    let mut n = object.ready.len() as u32;
                    let reads = object.read_bytes / 10.0;
                    while n > object.wanted && reads / f64::from(n) < 2.0 {
                        n -= 1;
                    }
                    n.max(((reads / 4.0) as u32).min(n_sites))
                })
                .collect();
            for _ in 0..50 {
                apply(&plan(&places, &objects, &goals), &mut objects);
            }
            let n_copies: Vec<u32> = objects.iter().map(|object| object.ready.len() as u32).collect();
            assert_eq!(n_copies, naive, "round {round}");
            assert_eq!(
                plan(&places, &objects, &goals),
                Plan::default(),
                "round {round}: nothing changes any more"
            );
        }
    }

    fn apply(plan: &Plan, objects: &mut [Object]) {
        for drop in &plan.drops {
            objects[drop.object].ready.retain(|&site| site != drop.site);
        }
        for copy in &plan.copies {
            objects[copy.object].ready.push(copy.to);
        }
    }

    /// A catalog over time: readers with a few favourites, which change, and puts that take room.
    struct World {
        rng: Rng,
        places: Vec<SiteReadings>,
        objects: Vec<Object>,
        /// The objects from the most to the least read.
        favourites: Vec<ObjectNo>,
        /// The sum of the weights of a Zipf distribution up to each rank.
        weights: Vec<f64>,
        goals: Goals,
        n_made: u64,
        n_dropped: u64,
    }

    const LOOK_MS: i64 = 60_000;
    const HALF_LIFE_MS: u64 = 20 * 60_000;
    const N_OBJECTS: usize = 300;
    const READS_PER_LOOK: u64 = 60;

    impl World {
        fn new(seed: u64) -> World {
            let mut rng = Rng::new(seed);
            let n_sites = 8;
            let places: Vec<SiteReadings> = (0..n_sites)
                .map(|n| SiteReadings {
                    site: Site { keep_bytes: 4000, ..place(n / 2).site },
                    ..place(n / 2)
                })
                .collect();
            let objects = (0..N_OBJECTS)
                .map(|n| {
                    let ready = [n % 8, (n + 2) % 8];
                    Object { size_bytes: 20 + rng.below(40), ..object(2, &ready, 0.0) }
                })
                .collect();
            let weights = (1..=N_OBJECTS)
                .scan(0.0, |sum, rank| {
                    *sum += 1.0 / rank as f64;
                    Some(*sum)
                })
                .collect();
            let favourites = (0..N_OBJECTS).collect();
            let goals = Goals { copies_max: 6, ..GOALS };
            let mut world =
                World { rng, places, objects, favourites, weights, goals, n_made: 0, n_dropped: 0 };
            world.measure();
            world
        }

        /// The used room of each site, as it is found.
        fn measure(&mut self) {
            for (n, place) in self.places.iter_mut().enumerate() {
                let here = self.objects.iter().filter(|object| object.ready.contains(&n));
                place.site.used_bytes = here.map(|object| object.size_bytes).sum();
            }
        }

        fn look(&mut self, n_reads: u64) {
            for object in &mut self.objects {
                object.read_bytes = decayed(object.read_bytes, LOOK_MS, HALF_LIFE_MS);
            }
            for place in &mut self.places {
                place.read_bytes = decayed(place.read_bytes, LOOK_MS, HALF_LIFE_MS);
            }
            for _ in 0..n_reads {
                let all = self.weights[N_OBJECTS - 1];
                let at = self.rng.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
                let rank = self.weights.partition_point(|&sum| sum < at).min(N_OBJECTS - 1);
                let object = &mut self.objects[self.favourites[rank]];
                object.read_bytes += object.size_bytes as f64;
                let site = object.ready[self.rng.below(object.ready.len() as u64) as usize];
                self.places[site].read_bytes += object.size_bytes as f64;
            }
            let plan = plan(&self.places, &self.objects, &self.goals);
            self.n_made += plan.copies.len() as u64;
            self.n_dropped += plan.drops.len() as u64;
            apply(&plan, &mut self.objects);
            self.measure();
            assert!(self.objects.iter().all(|object| object.ready.len() >= 2), "never below the policy");
        }

        fn mean_copies(&self, ranks: std::ops::Range<usize>) -> f64 {
            let n = ranks.len();
            let copies = ranks.map(|rank| self.objects[self.favourites[rank]].ready.len());
            copies.sum::<usize>() as f64 / n as f64
        }

        fn free_part(&self) -> f64 {
            let free =
                |place: &SiteReadings| 1.0 - place.site.used_bytes as f64 / place.site.keep_bytes as f64;
            self.places.iter().map(free).fold(1.0, f64::min)
        }
    }

    /// Spare copies follow the reading when favourites change, space stays at the set point, and copies do not come and go.
    #[test]
    fn spare_copies_follow_a_hot_set_that_moves() {
        for seed in 0..5 {
            let mut world = World::new(seed);
            for phase in 0..4 {
                for _ in 0..150 {
                    world.look(READS_PER_LOOK);
                    assert!(world.free_part() >= 0.1, "seed {seed}: {}", world.free_part());
                }
                let (hot, cold) = (world.mean_copies(0..10), world.mean_copies(100..N_OBJECTS));
                assert!(hot >= 5.0 && cold < 2.2, "seed {seed}, phase {phase}: {hot} and {cold}");
                world.favourites.rotate_left(90);
            }
            // Once reading is even, few copies move: at most a few in a hundred each look.
            world.favourites.rotate_right(90);
            let before = world.n_made + world.n_dropped;
            (0..100).for_each(|_| world.look(READS_PER_LOOK));
            let n_spare: usize = world.objects.iter().map(|object| object.ready.len() - 2).sum();
            let per_look = (world.n_made + world.n_dropped - before) as f64 / 100.0;
            assert!(per_look < 0.04 * n_spare as f64, "seed {seed}: {per_look} of {n_spare} in each look");
            // Nobody reads any more.
            (0..300).for_each(|_| world.look(0));
            assert!(world.objects.iter().all(|object| object.ready.len() == 2), "seed {seed}");
        }
    }

    /// Puts take room: it comes from spare copies, and what the set point leaves free is free again.
    #[test]
    fn puts_get_their_room_from_spare_copies() {
        let mut world = World::new(9);
        (0..150).for_each(|_| world.look(READS_PER_LOOK));
        let spare = |world: &World| world.objects.iter().map(|object| object.ready.len() - 2).sum::<usize>();
        let before = spare(&world);
        assert!(before > 50, "{before}");
        for n in 0..40 {
            for site in [n % 8, (n + 3) % 8] {
                world.objects.push(Object { size_bytes: 100, ..object(2, &[site, (site + 2) % 8], 0.0) });
            }
            world.measure();
            world.look(READS_PER_LOOK);
            let room: i64 = world.places.iter().map(|place| 3600 - place.site.used_bytes as i64).sum();
            assert!(room >= -8 * 200 || spare(&world) == 0, "room comes back: {room}");
        }
        assert!(spare(&world) < before);
    }
}
