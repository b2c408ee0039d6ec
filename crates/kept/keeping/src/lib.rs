//! eyas-keeping: which copies of kept objects are to be made, where to, and from which site.
//!
//! Input: sites with their room and the domain that each may be lost together with; objects with how many copies there should be
//! and who has one. Output: copies to make, and what is short of copies though none can be made.
//!
//! Source: the asynchronous replication of GEMS (`Wozniak06` §I: "a replica creation process as an asynchronous data
//! pre-staging process", §III-A). The rules:
//!
//! * a copy goes to a site that has none, and to a domain that has none as long as there is one with room;
//! * among those, to one to which nobody else brings copies now, so that a slow one holds up nothing that can go elsewhere;
//! * among those, to the site with the largest part of its room free, so that sites fill alike;
//! * it comes from a site of the target's domain if one has it, else from the holder that gives the fewest copies of this plan;
//! * objects that have only one good copy come first, the ones with most copies last.
//!
//! A copy at a site that is being drained counts as a source, and no longer as a copy. One at a site that went away a short
//! time ago counts as a copy as long as two good ones are within reach: most sites come back soon. Nothing here ever asks for a
//! good copy to be dropped.

#![forbid(unsafe_code)]

//!
//! Nothing here does I/O, reads a clock or draws a random number: `clippy.toml` beside this crate is the core's.
//!
//! | module | decides |
//! |---|---|
//! | this one | which copies are made |
//! | [`detours`] | through which site a copy goes where two sites cannot reach each other |
//! | [`nearness`] | which hosts are near kept data, for a program that reads it |
//! | [`sources`] | from which site a reader takes a copy, and which site gets what a program has made |
//! | [`spare`] | which files get spare copies, and which of these go |
//! | [`verification`] | which copies are read through now |

pub mod detours;
pub mod nearness;
pub mod sources;
pub mod spare;
pub mod verification;

use std::collections::{BTreeMap, BTreeSet};

/// A site by its place in the list.
pub type SiteNo = usize;
/// An object by its place in the list.
pub type ObjectNo = usize;

/// With fewer good copies within reach, nobody waits for a site to come back.
const AT_STAKE: usize = 2;

/// A place that keeps copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Sites of one domain may be lost together.
    pub domain: u32,
    pub takes: Takes,
    /// Bytes that it may keep in all, and how many of them it has.
    pub keep_bytes: u64,
    pub used_bytes: u64,
    /// Whether somebody else brings copies there now.
    pub is_busy: bool,
}

/// Whether copies are made at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Copies,
    /// It does not answer or cannot be written to now. What it has counts where it is among the good copies.
    NothingNow,
    /// It is being drained, and what it has must be elsewhere, too.
    Nothing,
}

/// An object and who has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub size_bytes: u64,
    /// How many copies there should be.
    pub wanted: u32,
    /// Sites with a good copy.
    pub ready: Vec<SiteNo>,
    /// Whether a site that does not answer has a good copy.
    pub is_away: bool,
    /// Sites that are getting one.
    pub coming: Vec<SiteNo>,
    /// Sites with a good copy that went away a short time ago.
    pub resting: Vec<SiteNo>,
    /// Sites that may not get one, as their copy was found to be bad and is still there.
    pub barred: Vec<SiteNo>,
}

/// A copy to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    pub object: ObjectNo,
    pub from: SiteNo,
    pub to: SiteNo,
}

/// Why an object stays short of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// No site has a good copy.
    Lost,
    /// Only sites that do not answer have one.
    Away,
    /// All sites that may have a copy have one.
    TooFewSites,
    /// The sites without one have no room.
    NoRoom,
    /// A site without one takes nothing now, and the others have no room.
    NotNow,
}

/// What is to be done, and what cannot be.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Plan {
    pub copies: Vec<Copy>,
    /// Objects with how many copies are missing after the plan, and why.
    pub short: Vec<(ObjectNo, u32, Short)>,
}

/// Has those that are equal in an order take turns: in each run of equal ones, the one at the place `turn` comes first and those
/// before it come last.
fn rotate_equal<T, R: PartialEq>(order: &mut [T], rank: impl Fn(&T) -> R, turn: u64) {
    for equal in order.chunk_by_mut(|a, b| rank(a) == rank(b)) {
        let first = turn % equal.len() as u64;
        equal.rotate_left(first as usize);
    }
}

/// The copies that bring every object to what is wanted, as far as sites and room go.
pub fn plan(sites: &[Site], objects: &[Object]) -> Plan {
    let mut used: Vec<u64> = sites.iter().map(|site| site.used_bytes).collect();
    let mut given: BTreeMap<SiteNo, u32> = BTreeMap::new();
    let mut plan = Plan::default();
    let mut order: Vec<ObjectNo> = (0..objects.len()).collect();
    order.sort_by_key(|&n| (counting(sites, &objects[n]).len(), n));
    for n in order {
        let object = &objects[n];
        let mut having = counting(sites, object);
        let missing = (object.wanted as usize).saturating_sub(having.len());
        for i in 0..missing {
            let left = (missing - i) as u32;
            if object.ready.is_empty() {
                plan.short.push((n, left, if object.is_away { Short::Away } else { Short::Lost }));
                break;
            }
            match target(sites, &used, object, &having) {
                Ok(to) => {
                    let from = source(sites, object, to, &given);
                    plan.copies.push(Copy { object: n, from, to });
                    used[to] = used[to].saturating_add(object.size_bytes);
                    *given.entry(from).or_default() += 1;
                    having.push(to);
                }
                Err(short) => {
                    plan.short.push((n, left, short));
                    break;
                }
            }
        }
    }
    plan
}

/// Sites whose copies count: good or coming, and to stay.
fn counting(sites: &[Site], object: &Object) -> Vec<SiteNo> {
    let stay = |of: &[SiteNo]| -> BTreeSet<SiteNo> {
        of.iter().copied().filter(|&site| sites[site].takes != Takes::Nothing).collect()
    };
    let mut counting = stay(&object.ready);
    // The last good copy within reach waits for nobody.
    let rest = if counting.len() >= AT_STAKE { &object.resting[..] } else { &[] };
    counting.extend(stay(rest).into_iter().chain(stay(&object.coming)));
    counting.into_iter().collect()
}

fn target(sites: &[Site], used: &[u64], object: &Object, having: &[SiteNo]) -> Result<SiteNo, Short> {
    let lacks = |site: SiteNo| !having.contains(&site) && !object.barred.contains(&site);
    let has_room = |site: SiteNo| {
        used[site].checked_add(object.size_bytes).is_some_and(|after| after <= sites[site].keep_bytes)
    };
    let that = |takes: Takes| (0..sites.len()).filter(move |&site| sites[site].takes == takes && lacks(site));
    let candidates: Vec<SiteNo> = that(Takes::Copies).collect();
    let is_apart = |site: SiteNo| having.iter().all(|&other| sites[other].domain != sites[site].domain);
    // Parts of the room that are free are compared without rounding: free / keep, crosswise.
    let free = |site: SiteNo| u128::from(sites[site].keep_bytes.saturating_sub(used[site]));
    let freer = |a: SiteNo, b: SiteNo| {
        let (a_part, b_part) =
            (free(a) * u128::from(sites[b].keep_bytes), free(b) * u128::from(sites[a].keep_bytes));
        a_part.cmp(&b_part)
    };
    let n_candidates = candidates.len();
    let with_room = candidates.into_iter().filter(|&site| has_room(site));
    let waits_less = |a: SiteNo, b: SiteNo| sites[b].is_busy.cmp(&sites[a].is_busy);
    let best = with_room.max_by(|&a, &b| {
        is_apart(a).cmp(&is_apart(b)).then(waits_less(a, b)).then(freer(a, b)).then(b.cmp(&a))
    });
    best.ok_or_else(|| match (that(Takes::NothingNow).next(), n_candidates) {
        (Some(_), _) => Short::NotNow,
        (None, 0) => Short::TooFewSites,
        (None, _) => Short::NoRoom,
    })
}

fn source(sites: &[Site], object: &Object, to: SiteNo, given: &BTreeMap<SiteNo, u32>) -> SiteNo {
    let is_far = |site: SiteNo| sites[site].domain != sites[to].domain;
    let n_given = |site: SiteNo| given.get(&site).copied().unwrap_or(0);
    let nearest = object.ready.iter().copied().min_by_key(|&site| (is_far(site), n_given(site), site));
    nearest.expect("a plan is made for objects that somebody has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;

    const ROOM: u64 = 1000;

    fn site(domain: u32) -> Site {
        Site { domain, takes: Takes::Copies, keep_bytes: ROOM, used_bytes: 0, is_busy: false }
    }

    /// One in so many takes nothing, half of them only for now.
    pub(super) fn takes(rng: &mut Rng, part: u64) -> Takes {
        match rng.below(2 * part) {
            0 => Takes::Nothing,
            1 => Takes::NothingNow,
            _ => Takes::Copies,
        }
    }

    fn object(wanted: u32, ready: &[SiteNo]) -> Object {
        let (coming, resting, barred) = (vec![], vec![], vec![]);
        Object { size_bytes: 10, wanted, ready: ready.into(), is_away: false, coming, resting, barred }
    }

    fn check(
        sites: &[Site],
        objects: &[Object],
        copies: &[(ObjectNo, SiteNo, SiteNo)],
        short: &[(ObjectNo, u32, Short)],
    ) {
        let plan = plan(sites, objects);
        let made: Vec<_> = plan.copies.iter().map(|copy| (copy.object, copy.from, copy.to)).collect();
        assert_eq!((made.as_slice(), plan.short.as_slice()), (copies, short));
    }

    #[test]
    fn copies_go_to_other_domains_first() {
        let sites = [site(0), site(0), site(1)];
        check(&sites, &[object(2, &[0])], &[(0, 0, 2)], &[]);
        check(&sites, &[object(3, &[0])], &[(0, 0, 2), (0, 0, 1)], &[]);
        check(&sites, &[object(1, &[0])], &[], &[]);
        check(&sites, &[object(2, &[0, 1])], &[], &[]);
    }

    #[test]
    fn what_has_fewest_copies_comes_first_and_sources_take_turns() {
        let sites = [site(0), site(1), site(2), site(3)];
        let objects = [object(3, &[0, 1]), object(3, &[0])];
        // The second object's copies are planned first: to the two emptiest sites.
        check(&sites, &objects, &[(1, 0, 1), (1, 0, 2), (0, 1, 3)], &[]);
    }

    #[test]
    fn a_source_in_the_targets_domain_is_near() {
        let sites = [site(0), site(1), site(1)];
        let full = [Site { used_bytes: ROOM, ..sites[0] }, Site { used_bytes: ROOM, ..sites[1] }, sites[2]];
        check(&full, &[object(3, &[0, 1])], &[(0, 1, 2)], &[]);
    }

    #[test]
    fn a_drained_sites_copy_is_a_source_only() {
        let sites = [Site { takes: Takes::Nothing, ..site(0) }, site(1)];
        check(&sites, &[object(1, &[0])], &[(0, 0, 1)], &[]);
        check(&sites, &[object(2, &[0])], &[(0, 0, 1)], &[(0, 1, Short::TooFewSites)]);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let sites = [site(0), site(1)];
        check(&sites, &[object(3, &[])], &[], &[(0, 3, Short::Lost)]);
        let away = Object { is_away: true, ..object(3, &[]) };
        check(&sites, &[away], &[], &[(0, 3, Short::Away)]);
        check(&sites, &[object(3, &[0])], &[(0, 0, 1)], &[(0, 1, Short::TooFewSites)]);
        let full = [site(0), Site { used_bytes: ROOM - 9, ..site(1) }];
        check(&full, &[object(2, &[0])], &[], &[(0, 1, Short::NoRoom)]);
        let unwritten = Site { takes: Takes::NothingNow, ..site(2) };
        check(&[site(0), site(1), unwritten], &[object(3, &[0])], &[(0, 0, 1)], &[(0, 1, Short::NotNow)]);
        check(&[full[0], full[1], unwritten], &[object(2, &[0])], &[], &[(0, 1, Short::NotNow)]);
        check(&[full[0], full[1], unwritten], &[object(3, &[0, 2])], &[], &[(0, 1, Short::NoRoom)]);
        check(&[site(0), unwritten], &[object(3, &[0, 1])], &[], &[(0, 1, Short::TooFewSites)]);
        let barred = Object { barred: vec![1], ..object(2, &[0]) };
        check(&sites, &[barred], &[], &[(0, 1, Short::TooFewSites)]);
        let coming = Object { coming: vec![1], ..object(2, &[0]) };
        check(&sites, &[coming], &[], &[]);
    }

    #[test]
    fn a_site_that_rests_counts_while_two_copies_are_within_reach() {
        let away = Site { takes: Takes::NothingNow, ..site(2) };
        let sites = [site(0), site(1), away, site(3)];
        let resting = |ready: &[SiteNo]| Object { resting: vec![2], is_away: true, ..object(3, ready) };
        check(&sites, &[resting(&[0, 1])], &[], &[]);
        check(&sites, &[resting(&[0])], &[(0, 0, 1), (0, 0, 3)], &[]);
        check(&sites, &[resting(&[])], &[], &[(0, 3, Short::Away)]);
        // It has waited long enough.
        check(&sites, &[Object { resting: vec![], ..resting(&[0, 1]) }], &[(0, 0, 3)], &[]);
        // A copy at a site that will go is no second one.
        let drained = [site(0), Site { takes: Takes::Nothing, ..site(1) }, away, site(3)];
        check(&drained, &[resting(&[0, 1])], &[(0, 0, 3)], &[(0, 1, Short::NotNow)]);
    }

    #[test]
    fn a_busy_site_gets_what_can_go_nowhere_else() {
        let busy = Site { is_busy: true, ..site(1) };
        let fuller = Site { used_bytes: 500, ..site(2) };
        check(&[site(0), busy, fuller], &[object(2, &[0])], &[(0, 0, 2)], &[]);
        check(&[site(0), busy], &[object(2, &[0])], &[(0, 0, 1)], &[]);
        // Another domain is worth the wait.
        check(&[site(0), busy, site(0)], &[object(2, &[0])], &[(0, 0, 1)], &[]);
    }

    #[test]
    fn room_is_shared_by_a_plan() {
        let sites = [site(0), Site { keep_bytes: 25, ..site(1) }];
        let objects = vec![object(2, &[0]); 3];
        check(&sites, &objects, &[(0, 0, 1), (1, 0, 1)], &[(2, 1, Short::NoRoom)]);
    }

    /// Whatever the sites and objects: a plan keeps to the rules, and leaves nothing out that could be done.
    #[test]
    fn random_plans_keep_the_rules() {
        let mut rng = Rng::new(7);
        for _ in 0..3000 {
            let n_sites = 1 + rng.below(6) as usize;
            let sites: Vec<Site> = (0..n_sites)
                .map(|_| Site {
                    domain: rng.below(3) as u32,
                    takes: takes(&mut rng, 5),
                    keep_bytes: rng.below(100),
                    used_bytes: rng.below(60),
                    is_busy: rng.below(4) == 0,
                })
                .collect();
            let some = |rng: &mut Rng, part: u64| -> Vec<SiteNo> {
                (0..n_sites).filter(|_| rng.below(part) == 0).collect()
            };
            let objects: Vec<Object> = (0..rng.below(8))
                .map(|_| Object {
                    size_bytes: rng.below(20),
                    wanted: rng.below(4) as u32,
                    ready: some(&mut rng, 3),
                    is_away: rng.below(2) == 0,
                    coming: some(&mut rng, 6),
                    resting: some(&mut rng, 6),
                    barred: some(&mut rng, 8),
                })
                .collect();
            let plan = plan(&sites, &objects);
            let mut used: Vec<u64> = sites.iter().map(|site| site.used_bytes).collect();
            let mut having: Vec<Vec<SiteNo>> =
                objects.iter().map(|object| counting(&sites, object)).collect();
            for copy in &plan.copies {
                let object = &objects[copy.object];
                assert!(object.ready.contains(&copy.from) && sites[copy.to].takes == Takes::Copies);
                assert!(!object.barred.contains(&copy.to) && !having[copy.object].contains(&copy.to));
                assert!(having[copy.object].len() < object.wanted as usize, "one too many");
                having[copy.object].push(copy.to);
                used[copy.to] += object.size_bytes;
                assert!(used[copy.to] <= sites[copy.to].keep_bytes, "no room");
            }
            for (n, object) in objects.iter().enumerate() {
                let missing = (object.wanted as usize).saturating_sub(having[n].len()) as u32;
                let said =
                    plan.short.iter().find(|(short, ..)| *short == n).map_or(0, |(_, missing, _)| *missing);
                assert_eq!(missing, said);
                let could = |site: SiteNo| {
                    sites[site].takes == Takes::Copies
                        && !having[n].contains(&site)
                        && !object.barred.contains(&site)
                        && used[site] + object.size_bytes <= sites[site].keep_bytes
                };
                if missing > 0 && !object.ready.is_empty() {
                    assert!(!(0..n_sites).any(could), "a copy could have been made");
                }
            }
        }
    }
}
