//! From which site a reader takes a copy, and which site gets what a program has made.
//!
//! Input: the sites, with where they are and what each is busy with, and a turn. Output: the order in which the sites are asked.
//! The rules for a reader, first to last:
//!
//! * a site on the reader's own machine comes before all others; of several such sites, the first that is given;
//! * a site that has said what it is busy with comes before a site that has said nothing;
//! * an idle site comes before a busy one, and of two busy sites the one with fewer transfers and programs;
//! * sites that are equal so far rotate: each turn begins with the next of them, by name.
//!
//! The rules for a site that gets files:
//!
//! * a site with room comes before a site without;
//! * a site on the own machine comes before all others, and a folder before a store;
//! * an idle site comes before a busy one, and of two idle or two busy sites the one with more room;
//! * stores that are equal so far rotate, and of folders the one whose name is smaller comes first.
//!
//! Source: *Local computation on remote data* (`Wozniak06` §III-C.1): "The preferred output location is a server on the local
//! host, but if this is not available [...] a server that is not currently busy will be selected. In the worst case, a remote, busy
//! machine will be selected. If any required input files from the system have replicas on a local server, these hosts are selected
//! as data sources. Otherwise, a remote, idle service will be selected [...]". That transfers count as well as programs is from
//! §III-C.3. Deviations: the paper does not say which of several idle or several busy sites is taken; room is its concern only
//! where a replica is made.

use crate::rotate_equal;
use std::cmp::Reverse;

/// What a site is busy with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Load {
    /// Requests that move bytes of objects, or read objects through.
    pub n_transfers: u32,
    /// Programs that run at the site.
    pub n_programs: u32,
}

impl Load {
    pub fn is_idle(self) -> bool {
        self.n_all() == 0
    }

    fn n_all(self) -> u64 {
        u64::from(self.n_transfers) + u64::from(self.n_programs)
    }
}

/// A site with a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'s> {
    pub site: &'s str,
    /// Whether the copy is on the reader's own machine.
    pub is_near: bool,
    /// `None`: the site has said nothing, or was not asked.
    pub load: Option<Load>,
}

/// The places of the sites in the list, in the order in which a reader asks them. `turn` is one more for each choice.
pub fn order(sources: &[Source<'_>], turn: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    let rank = |n: &usize| {
        let Source { is_near, load, .. } = sources[*n];
        match is_near {
            true => (false, false, *n as u64),
            false => (true, load.is_none(), load.map_or(0, Load::n_all)),
        }
    };
    order.sort_by_key(|n| (rank(n), sources[*n].site));
    rotate_equal(&mut order, rank, turn);
    order
}

/// A site that may get files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'s> {
    pub site: &'s str,
    /// Whether the site is on the machine on which the files are.
    pub is_near: bool,
    pub is_folder: bool,
    /// Whether the site has room for more than a trifle.
    pub has_room: bool,
    pub room_bytes: u64,
    /// `None`: the site has said nothing, or was not asked.
    pub load: Option<Load>,
}

/// The places of the sites in the list, in the order in which they are tried. `turn` is one more for each choice.
pub fn order_targets(targets: &[Target<'_>], turn: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..targets.len()).collect();
    let rank = |n: &usize| {
        let Target { is_near, is_folder, has_room, room_bytes, load, .. } = targets[*n];
        let is_idle = load.is_some_and(Load::is_idle);
        (
            !has_room,
            !is_near,
            !is_folder,
            !is_idle,
            Reverse(room_bytes),
            is_folder.then_some(targets[*n].site),
        )
    };
    order.sort_by_key(|n| (rank(n), targets[*n].site));
    rotate_equal(&mut order, rank, turn);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Option<Load> = Some(Load { n_transfers: 0, n_programs: 0 });

    fn busy(n_transfers: u32, n_programs: u32) -> Option<Load> {
        Some(Load { n_transfers, n_programs })
    }

    fn far(site: &str, load: Option<Load>) -> Source<'_> {
        Source { site, is_near: false, load }
    }

    fn names<'s>(sources: &[Source<'s>], turn: u64) -> Vec<&'s str> {
        order(sources, turn).into_iter().map(|n| sources[n].site).collect()
    }

    #[test]
    fn local_comes_before_idle_and_idle_before_busy() {
        let near = Source { site: "near", is_near: true, load: busy(3, 3) };
        let sources =
            [far("silent", None), far("sends", busy(1, 0)), far("runs", busy(0, 2)), far("idle", IDLE), near];
        for turn in 0..3 {
            assert_eq!(names(&sources, turn), ["near", "idle", "sends", "runs", "silent"]);
        }
    }

    #[test]
    fn equal_sites_take_turns_and_those_on_the_own_machine_do_not() {
        let far =
            [far("c", IDLE), far("a", IDLE), far("b", IDLE), far("x", busy(1, 0)), far("y", busy(0, 1))];
        let firsts = (0..6).map(|turn| names(&far, turn));
        let expect = ["abcxy", "bcayx", "cabxy", "abcyx", "bcaxy", "cabyx"];
        assert_eq!(firsts.map(|names| names.concat()).collect::<Vec<_>>(), expect);
        let near = ["folder", "b", "a"].map(|site| Source { site, is_near: true, load: None });
        assert_eq!((names(&near, 0), names(&near, 1)), (vec!["folder", "b", "a"], vec!["folder", "b", "a"]));
    }

    /// Takes the best of the rest again and again, by the rules as the header says them.
    fn naive<'s>(sources: &[Source<'s>], turn: u64) -> Vec<&'s str> {
        let is_before = |a: usize, b: usize| {
            let (x, y) = (&sources[a], &sources[b]);
            if x.is_near || y.is_near {
                return x.is_near && (!y.is_near || a < b);
            }
            match (x.load, y.load) {
                (Some(x), Some(y)) => x.n_transfers + x.n_programs < y.n_transfers + y.n_programs,
                (Some(_), None) => true,
                (None, _) => false,
            }
        };
        let mut rest: Vec<usize> = (0..sources.len()).collect();
        let mut found = vec![];
        while !rest.is_empty() {
            let is_best = |n: &usize| rest.iter().all(|other| !is_before(*other, *n));
            let mut best: Vec<usize> = rest.iter().copied().filter(is_best).collect();
            best.sort_by_key(|n| sources[*n].site);
            for n in 0..best.len() {
                found.push(sources[best[(n + turn as usize) % best.len()]].site);
            }
            rest.retain(|n| !best.contains(n));
        }
        found
    }

    /// The same for sites that get files.
    fn naive_targets(targets: &[Target<'_>], turn: u64) -> Vec<usize> {
        let is_before = |a: &Target<'_>, b: &Target<'_>| {
            let is_idle = |of: &Target<'_>| of.load == IDLE;
            if a.has_room != b.has_room {
                return a.has_room;
            }
            if a.is_near != b.is_near {
                return a.is_near;
            }
            if a.is_folder != b.is_folder {
                return a.is_folder;
            }
            if is_idle(a) != is_idle(b) {
                return is_idle(a);
            }
            a.room_bytes > b.room_bytes || (a.room_bytes == b.room_bytes && a.is_folder && a.site < b.site)
        };
        let mut rest: Vec<usize> = (0..targets.len()).collect();
        let mut found = vec![];
        while !rest.is_empty() {
            let is_best = |n: &usize| rest.iter().all(|other| !is_before(&targets[*other], &targets[*n]));
            let mut best: Vec<usize> = rest.iter().copied().filter(is_best).collect();
            best.sort_by_key(|n| targets[*n].site);
            let first = turn as usize % best.len();
            found.extend_from_slice(&best[first..]);
            found.extend_from_slice(&best[..first]);
            rest.retain(|n| !best.contains(n));
        }
        found
    }

    fn loads() -> impl Strategy<Value = Option<Load>> {
        prop::option::of(
            (0u32..3, 0u32..2).prop_map(|(n_transfers, n_programs)| Load { n_transfers, n_programs }),
        )
    }

    proptest! {
        #[test]
        fn readers_ask_in_the_order_of_the_rules(of in prop::collection::vec((any::<bool>(), loads()), 0..10), turn in 0u64..20) {
            let sites: Vec<String> = (0..of.len()).map(|n| format!("s{}", n * 7 % 10)).collect();
            let sources: Vec<Source<'_>> = of
                .iter()
                .zip(&sites)
                .map(|(&(is_near, load), site)| Source { site, is_near, load })
                .collect();
            prop_assert_eq!(names(&sources, turn), naive(&sources, turn));
        }

        #[test]
        fn files_go_where_the_rules_say(
            of in prop::collection::vec((any::<[bool; 3]>(), 0u64..2, loads()), 0..10), turn in 0u64..20,
        ) {
            let sites: Vec<String> = (0..of.len()).map(|n| format!("s{}", n * 7 % 10)).collect();
            let targets: Vec<Target<'_>> = of
                .iter()
                .zip(&sites)
                .map(|(&([is_near, is_folder, has_room], room_bytes, load), site)| {
                    Target { site, is_near, is_folder, has_room, room_bytes, load }
                })
                .collect();
            prop_assert_eq!(order_targets(&targets, turn), naive_targets(&targets, turn));
        }
    }
}
