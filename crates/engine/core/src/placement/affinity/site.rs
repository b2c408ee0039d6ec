//! What the executors of one site have together, and what should cross a slow link into it.
//!
//! Behind a slow link, what counts is what the *site* has: an object that one executor has comes to its neighbours in next to no
//! time. So each site has the indexes of an executor (`hints`): the tasks whose inputs are all in the site, and the objects that
//! would complete the inputs of tasks there.
//!
//! The rules, for an executor in a site whose links are slow ([`Affinity::is_slow`]):
//!   1. While the tasks whose inputs are in the site last for less than [`AHEAD`] times the time of a crossing, and the link has
//!      room, the object that completes most tasks there crosses; tasks that other sites can run as well count in part. Crossings go
//!      one after the other ([`CROSSINGS_MAX`]): the first object is of use while the second one is on its way.
//!   2. Otherwise the executor takes a task whose inputs are all in the site; those first that lack one object here.
//!   3. Nothing crosses for a task that executors elsewhere will have run by then.
//!
//! The indexes are hints, as those of executors are: each entry is checked when it is used.

use super::choose::Worth;
use super::rank::{Heat, Rank, bucket_of};
use super::seated::Full;
use super::tasks::Bundle;
use super::{Affinity, Choice};
use crate::catalog::Catalog;
use crate::executor_set::Seat;
use crate::placement::Reason;
use eyas_terms::{ObjectId, Timestamp};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// So many objects at once cross a slow link: the first one is of use while the next one is on its way.
pub(super) const CROSSINGS_MAX: u32 = 1;
/// Small objects may cross together: as many as the link carries within this time.
pub(super) const TOGETHER_S: f64 = 0.5;
/// The same, while the rate of the link is not known.
pub(super) const TOGETHER_BYTES: u64 = 4 << 20;
/// Objects cross ahead while the tasks whose inputs are in the site last for less than so many times the time of a crossing.
const AHEAD: f64 = 3.0;
/// So many entries of the list of whole tasks are looked at to see how long they last.
const COUNTED_MAX: usize = 4096;
/// So many objects are looked at to find one that can cross a link now.
const CANDIDATES_MAX: usize = 200;
/// With more stale entries among them, the list is cleaned.
const STALE_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Stock {
    /// Objects that executors of the site hold, or that are on their way to some.
    pub objects: FxHashSet<ObjectId>,
    /// By class: bundles whose inputs are all in the site.
    whole: Vec<Full>,
    /// By class: objects that would complete the inputs of some tasks here, with an upper bound of the number of these tasks.
    near: Vec<Rank>,
    pub n_slots: u32,
}

impl Stock {
    fn whole(&mut self, class: u32) -> &mut Full {
        if self.whole.len() <= class as usize {
            self.whole.resize_with(class as usize + 1, Full::default);
        }
        &mut self.whole[class as usize]
    }

    fn near(&mut self, class: u32) -> &mut Rank {
        if self.near.len() <= class as usize {
            self.near.resize_with(class as usize + 1, Rank::default);
        }
        &mut self.near[class as usize]
    }
}

impl Affinity {
    pub(super) fn stock(&self, site: u32) -> &Stock {
        &self.near.stocks[site as usize]
    }

    /// Whether an executor of `site` has `object`, or will have it.
    pub(super) fn is_in_site(&self, site: u32, object: ObjectId) -> bool {
        self.stock(site).objects.contains(&object)
    }

    /// `object` is on an executor of the site, or on its way to one.
    pub(super) fn site_gains(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) {
        let Some(site) = self.near.site(seat) else { return };
        if !self.near.stocks[site as usize].objects.insert(object) {
            return;
        }
        let n = self.tasks.n_readers(object);
        let mut bundles = vec![];
        if n > self.config.readers_max {
            let single = |class: &u32| self.tasks.single(*class, object);
            bundles.extend(self.tasks.class_order.iter().filter_map(single));
        } else {
            bundles.extend(self.tasks.readers_around(object, 0).map(|reader| reader.bundle));
        }
        for bundle in bundles {
            if !self.site_counts(catalog, site, bundle, self.tasks.bundle(bundle).n_tasks) {
                self.push_whole(site, bundle);
            }
        }
    }

    /// `seat` does not have `object` any more, and it is not on its way there.
    pub(super) fn site_may_lose(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) {
        let Some(site) = self.near.site(seat) else { return };
        if !self.is_in_site(site, object) || self.near.is_inbound(object, site) {
            return;
        }
        let mut is_held = false;
        self.visit_holders(catalog, object, 0, |holder| {
            is_held = self.near.site(holder) == Some(site);
            if is_held { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if is_held || !self.near.stocks[site as usize].objects.remove(&object) {
            return;
        }
        let readers = self.tasks.readers_around(object, 0).take(self.config.readers_max);
        let readers: Vec<u32> = readers.map(|reader| reader.bundle).collect();
        for bundle in readers {
            self.site_counts(catalog, site, bundle, self.tasks.bundle(bundle).n_tasks);
        }
    }

    /// The indexes of a site that has just been found, whose `objects` are known.
    pub(super) fn site_sees_queue(&mut self, catalog: &Catalog) {
        for bundle in self.tasks.all_bundles().collect::<Vec<_>>() {
            self.site_sees(catalog, bundle, self.tasks.bundle(bundle).n_tasks, true);
        }
    }

    /// So many more tasks of a bundle are in the queue. `is_head`: among them is its oldest one.
    pub(super) fn site_sees(&mut self, catalog: &Catalog, bundle: u32, n_tasks: u32, is_head: bool) {
        for site in 0..self.near.stocks.len() as u32 {
            if !self.site_counts(catalog, site, bundle, n_tasks) && is_head {
                self.push_whole(site, bundle);
            }
        }
    }

    /// Counts so many tasks of a bundle for the object that would complete their inputs, if it is one that `site` lacks. `false`: all
    /// of them are in the site.
    fn site_counts(&mut self, catalog: &Catalog, site: u32, bundle: u32, n_tasks: u32) -> bool {
        let (n, lack) = self.lacks_of_site(site, bundle);
        if let (1, Some(lack)) = (n, lack) {
            let (class, size_bytes) = (self.tasks.bundle(bundle).class, self.size_of(catalog, lack));
            self.near.stocks[site as usize].near(class).add(lack, n_tasks, size_bytes, Heat::Cold);
        }
        n > 0
    }

    /// The number of inputs of `bundle` that `site` lacks, at most 2, and the last one seen.
    pub(super) fn lacks_of_site(&self, site: u32, bundle: u32) -> (u32, Option<ObjectId>) {
        let (mut n, mut lack) = (0, None);
        for input in self.tasks.inputs(bundle) {
            if !self.is_in_site(site, input.object) {
                (n, lack) = (n + 1, Some(input.object));
                if n == 2 {
                    break;
                }
            }
        }
        (n, lack)
    }

    fn push_whole(&mut self, site: u32, bundle: u32) {
        let class = self.tasks.bundle(bundle).class;
        let entry = Reverse((self.tasks.head(bundle).0, bundle));
        self.near.stocks[site as usize].whole(class).heap.push(entry);
        let full = self.near.stocks[site as usize].whole(class);
        if full.heap.len() > full.limit.max(COUNTED_MAX) {
            self.clean_whole(site, class);
        }
    }

    /// Takes stale entries out of a site's list of whole bundles.
    fn clean_whole(&mut self, site: u32, class: u32) {
        let mut full = std::mem::take(self.near.stocks[site as usize].whole(class));
        full.heap.retain(|Reverse((task, bundle))| {
            self.tasks.is_bundle(*bundle, class)
                && self.tasks.head(*bundle).0 == *task
                && self.lacks_of_site(site, *bundle).0 == 0
        });
        full.limit = 2 * full.heap.len();
        *self.near.stocks[site as usize].whole(class) = full;
    }

    /// Whether the tasks of `class` whose inputs are all in the site keep its slots busy for so many nanoseconds.
    fn has_stock(&mut self, site: u32, class: u32, ns: f64) -> bool {
        let n_slots = f64::from(self.stock(site).n_slots.max(1));
        // However quick a crossing is beside a task: without any task there is nothing to do.
        let n_wanted = (ns * n_slots / self.times.run_ns_expected()).ceil().clamp(1.0, 1e9) as u64;
        let Some(full) = self.stock(site).whole.get(class as usize) else { return false };
        let (mut n_tasks, mut n_stale) = (0, 0);
        for Reverse((_, bundle)) in full.heap.iter().take(COUNTED_MAX) {
            if n_tasks >= n_wanted {
                return true;
            }
            match self.tasks.is_bundle(*bundle, class) && self.lacks_of_site(site, *bundle).0 == 0 {
                true => n_tasks += u64::from(self.tasks.bundle(*bundle).n_tasks),
                false => n_stale += 1,
            }
        }
        if n_stale > STALE_MAX {
            self.clean_whole(site, class);
        }
        n_tasks >= n_wanted
    }

    /// Whether `site` has tasks of `class` for so long that an object of the usual size need not cross a link now.
    pub(super) fn need_not_cross(&mut self, site: u32, class: u32) -> bool {
        let rate = self.near.rate((None, site));
        let crossing_ns = self.sizes.assumed_bytes as f64 * 1e9 / rate;
        rate.is_finite() && self.has_stock(site, class, AHEAD * crossing_ns)
    }

    /// What the executor at `seat`, in a site behind slow links, should do for a task of `class`; see the module.
    pub(super) fn choose_in_site(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
    ) -> Option<Choice> {
        let site = self.near.site(seat)?;
        if !self.is_behind_slow_links(site) {
            return None;
        }
        self.best_crossing(catalog, now, seat, site, class)
            .or_else(|| self.best_near(catalog, now, seat, class).map(|(_, choice)| choice))
            .or_else(|| self.whole_in_site(catalog, now, seat, site, class))
    }

    /// The object that should cross a link into `site` now.
    fn best_crossing(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        class: u32,
    ) -> Option<Choice> {
        self.near.stocks[site as usize].near.get(class as usize)?.first(Heat::Cold)?;
        if !self.near.has_room_into(site, CROSSINGS_MAX) || self.need_not_cross(site, class) {
            return None;
        }
        let mut at = self.near.stocks[site as usize].near[class as usize].first(Heat::Cold);
        let mut best: Option<(u16, Choice)> = None;
        for _ in 0..CANDIDATES_MAX {
            let Some(entry) = at else { break };
            if best.as_ref().is_some_and(|(bucket, _)| *bucket >= entry.bucket) {
                break;
            }
            let object = entry.object;
            at = self.near.stocks[site as usize].near[class as usize].after(&entry);
            let is_here = self.is_in_site(site, object);
            if !is_here && self.route(catalog, now, seat, object).is_none() {
                continue;
            }
            let (worth, left) = match is_here {
                true => (Worth::default(), 0),
                false => self.recount_in_site(site, class, object),
            };
            let size_bytes = self.size_of(catalog, object);
            if worth.n_tasks != entry.n_tasks {
                let rank = &mut self.near.stocks[site as usize].near[class as usize];
                rank.set(object, worth.n_tasks, size_bytes, Heat::Cold);
                at = at.and_then(|next| rank.get(next.object).copied());
            }
            let Some((_, bundle)) = worth.oldest else { continue };
            let bucket = bucket_of(left, size_bytes);
            if best.as_ref().is_none_or(|(other, _)| bucket > *other)
                && self.plan_for(catalog, now, seat, bundle)
            {
                best = Some((bucket, Choice { bundle, reason: Reason::Brings { n_tasks: worth.n_tasks } }));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// The use of `object` for `site`, and how many of these tasks are left to it: a task whose inputs are all in other sites is shared
    /// with these.
    fn recount_in_site(&self, site: u32, class: u32, object: ObjectId) -> (Worth, u32) {
        let (mut worth, mut left) = (Worth::default(), 0.0);
        let others = || (0..self.near.stocks.len() as u32).filter(|other| *other != site);
        for reader in self.tasks.readers_around(object, 0).take(self.config.readers_max) {
            if reader.class == class && self.lacks_of_site(site, reader.bundle).0 == 1 {
                let n_tasks = self.tasks.bundle(reader.bundle).n_tasks;
                let n_able =
                    others().filter(|other| self.lacks_of_site(*other, reader.bundle).0 == 0).count();
                worth.add(reader.bundle, n_tasks, self.tasks.head(reader.bundle).0);
                left += f64::from(n_tasks) / (1 + n_able) as f64;
            }
        }
        (worth, left.ceil() as u32)
    }

    /// The oldest bundles whose inputs are all in the site.
    fn whole_in_site(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        class: u32,
    ) -> Option<Choice> {
        let mut put_back = vec![];
        let mut found = None;
        while put_back.len() < self.config.tries {
            let Some(full) = self.near.stocks[site as usize].whole.get_mut(class as usize) else { break };
            let Some(Reverse((task, bundle))) = full.heap.pop() else { break };
            if !self.tasks.is_bundle(bundle, class) || self.lacks_of_site(site, bundle).0 > 0 {
                continue;
            }
            let head = self.tasks.head(bundle).0;
            put_back.push(Reverse((head, bundle)));
            if head != task {
                continue;
            }
            if let Some(choice) = self.take_waiting(catalog, now, seat, bundle) {
                found = Some(choice);
                break;
            }
        }
        self.near.stocks[site as usize].whole(class).heap.extend(put_back);
        found
    }

    /// Each site has what its executors hold and what is on its way to them, and counts no object for fewer tasks than it would
    /// complete.
    pub(super) fn check_stocks(&self, catalog: &Catalog) {
        for (site, stock) in self.near.stocks.iter().enumerate() {
            let (mut expected, mut n_slots) = (FxHashSet::default(), 0);
            for (seat, seated) in self.executors.by_seat.iter().enumerate() {
                let Some(seated) = seated else { continue };
                if self.near.site(Seat(seat as u32)) == Some(site as u32) {
                    expected.extend(catalog.objects_on(seated.id));
                    expected.extend(seated.coming.keys());
                    n_slots += seated.room.slots_total;
                }
            }
            assert_eq!(stock.objects, expected, "site {site}");
            assert_eq!(stock.n_slots, n_slots, "site {site}");
            let mut completes: BTreeMap<(u32, ObjectId), u32> = BTreeMap::new();
            for bundle in self.tasks.all_bundles() {
                if let (1, Some(lack)) = self.lacks_of_site(site as u32, bundle)
                    && self.tasks.n_readers(lack) <= self.config.readers_max
                {
                    let Bundle { class, n_tasks, .. } = self.tasks.bundle(bundle);
                    *completes.entry((*class, lack)).or_default() += n_tasks;
                }
            }
            for ((class, lack), n_tasks) in completes {
                let counted = stock.near.get(class as usize).and_then(|near| near.get(lack));
                assert!(
                    counted.is_some_and(|e| e.n_tasks >= n_tasks),
                    "site {site}: {lack:?} completes {n_tasks} tasks"
                );
            }
        }
    }
}
