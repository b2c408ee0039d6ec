//! Which source is near, where the network has several sites.
//!
//! The rules, for an executor that lacks an object:
//!   1. A holder in its own site serves it. If all of these serve as many attempts as they may, it waits for one of
//!      them, or reads from home where home gives its site more than a link inside the site does.
//!   2. If the object is on its way into the site, from wherever, the executor waits for it: an object crosses the
//!      links into a site once.
//!   3. Otherwise the object comes from where the link into this site is fastest: home, or a holder in another site.
//!      The best transfer that was seen on a link counts, as it depends least on other traffic. A link of which nothing is
//!      known is used where no other one has room.
//!   4. Over a slow link only a few objects come at the same time, and the others wait ([`super::site`]).
//!
//! Several objects on one link share it, so the link counts with the part of it that one more object would get. Home that is
//! quick for one site alone is next to that site, and what comes from home to other sites comes over that site's links.
//!
//! An executor that chooses which object to fetch for most tasks per byte counts an object that would have to cross a link
//! into its site as larger than it is ([`Affinity::crossing_cost`]).
//!
//! As long as the network is one site ([`crate::network`]), nothing here has a say.

use super::kin::{ITEMS_CROSSING_MAX, Parts};
use super::rank::Heat;
use super::site::{CROSSINGS_MAX, Stock, TOGETHER_BYTES, TOGETHER_S};
use super::{Affinity, spread};
use crate::catalog::Catalog;
use crate::event::{InputMoved, Source};
use crate::executor_set::Seat;
use crate::network::{Link, NetworkUse, OBSERVED_BYTES_MIN, Sites};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The rate of a copy inside a site, until one has been seen.
const INSIDE_ASSUMED_BYTES_PER_S: f64 = 100e6;

/// A link is slow if a copy inside a site is more than so many times as fast.
const SLOW_FACTOR: f64 = 3.0;

/// Home gives a site more than a link inside the site only if it is this many times as fast: a read from home takes of
/// what all sites share.
const HOME_FASTER: f64 = 2.0;

/// However slow the links into a site are, an object that crosses one counts as at most so many times as large.
const CROSSING_MAX: f64 = 16.0;

/// The answer of the rules.
pub(super) enum Nearby {
    /// The rules have no say.
    Unknown,
    Wait,
    From(Source),
}

/// The sites, by seat, and what is on its way into them.
#[derive(Default)]
pub(super) struct Near {
    sites: Option<Arc<Sites>>,
    site_at: Vec<Option<u32>>,
    /// The executors that each object is on its way to, with the link that it comes over and its size. Kept while there are
    /// sites.
    inbound: FxHashMap<ObjectId, Vec<(Seat, Way, u64)>>,
    /// What is on its way over each link.
    on: FxHashMap<Way, Load>,
    /// Bytes per second of the best read from home into each site that is under way or has ended, as its progress showed it.
    home_seen: Vec<f64>,
    /// What came from home into each site while anything was on its way. Where many reads share a quick home, each of them is slow.
    from_home: Vec<Flow>,
    now: Timestamp,
    /// What the task that is being planned would bring over each link.
    planned: FxHashMap<Way, u32>,
    /// What each site has.
    pub stocks: Vec<Stock>,
    /// The part of each class of tiles that each site has.
    pub parts: Parts,
    /// Executors that are measuring how far they are from others. Nothing is moved to them until that is known.
    awaited: BTreeSet<ExecutorId>,
}

/// All reads from home into a site together.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Since when something has been on its way; `None`: nothing is, or it set out before the sites were known.
    since: Option<Timestamp>,
    busy_ns: u64,
    bytes: u64,
}

impl Flow {
    /// Bytes per second, 0 as long as too little has come.
    fn rate(&self, now: Timestamp) -> f64 {
        let ns = self.busy_ns + self.since.map_or(0, |since| now.since_ns(since));
        match self.bytes >= OBSERVED_BYTES_MIN && ns > 0 {
            true => self.bytes as f64 * 1e9 / ns as f64,
            false => 0.0,
        }
    }
}

/// What is on its way over a link.
#[derive(Clone, Copy, Default)]
struct Load {
    n: u32,
    bytes: u64,
}

/// From where (`None`: home) into which site.
type Way = (Option<u32>, u32);

impl Near {
    /// Whether executors are known to stand in several sites.
    pub(super) fn has_sites(&self) -> bool {
        self.sites.is_some()
    }

    pub fn site(&self, seat: Seat) -> Option<u32> {
        self.site_at.get(seat.0 as usize).copied().flatten()
    }

    pub fn forget_awaited(&mut self, executor: ExecutorId) {
        self.awaited.remove(&executor);
    }

    pub fn is_awaited(&self, executor: ExecutorId) -> bool {
        !self.awaited.is_empty() && self.awaited.contains(&executor)
    }

    pub fn joined(&mut self, executor: ExecutorId, seat: Seat) {
        if let Some(sites) = &self.sites {
            let i = seat.0 as usize;
            self.site_at.resize(self.site_at.len().max(i + 1), None);
            self.site_at[i] = sites.site_of(executor);
        }
    }

    /// The executor at `seat` is gone, and nothing is on its way to it any more.
    pub fn left(&mut self, seat: Seat) {
        if let Some(site) = self.site_at.get_mut(seat.0 as usize) {
            *site = None;
        }
    }

    /// The executor at `seat` has another number of slots than before.
    pub fn change_slots(&mut self, seat: Seat, before: u32, now: u32) {
        if let Some(site) = self.site(seat) {
            let n = &mut self.stocks[site as usize].n_slots;
            *n = (*n + now).saturating_sub(before);
        }
    }

    /// These objects are on the executor at `seat`, or on their way there. For sites whose indexes have not been made yet.
    fn site_has(&mut self, seat: Seat, objects: impl IntoIterator<Item = ObjectId>) {
        if let Some(site) = self.site(seat) {
            self.stocks[site as usize].objects.extend(objects);
        }
    }

    /// `from`: the executor that sends the object; `None`: it comes from home.
    pub fn set_out(&mut self, object: ObjectId, bytes: u64, seat: Seat, from: Option<Seat>) {
        if let Some(here) = self.site(seat) {
            let way = (from.and_then(|from| self.site(from)), here);
            self.inbound.entry(object).or_default().push((seat, way, bytes));
            let load = self.on.entry(way).or_default();
            load.n += 1;
            load.bytes += bytes;
            if load.n == 1 && way.0.is_none() {
                self.from_home[here as usize].since = Some(self.now);
            }
        }
    }

    /// The object has come to `seat`.
    pub fn landed(&mut self, object: ObjectId, seat: Seat) {
        let from_home = |(other, way, _): &&(Seat, Way, u64)| *other == seat && way.0.is_none();
        if let Some(&(_, (_, here), bytes)) = self.inbound.get(&object).into_iter().flatten().find(from_home)
        {
            let flow = &mut self.from_home[here as usize];
            flow.bytes += if flow.since.is_some() { bytes } else { 0 };
        }
        self.stopped(object, seat);
    }

    pub fn pass(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// The object is no longer on its way to `seat`.
    pub fn stopped(&mut self, object: ObjectId, seat: Seat) {
        let Some(inbound) = self.inbound.get_mut(&object) else { return };
        let Some(at) = inbound.iter().position(|(other, ..)| *other == seat) else { return };
        let (_, way, bytes) = inbound.swap_remove(at);
        let load = self.on.get_mut(&way).expect("it was counted");
        load.n -= 1;
        load.bytes -= bytes;
        if load.n == 0 && way.0.is_none() {
            let flow = &mut self.from_home[way.1 as usize];
            flow.busy_ns += flow.since.take().map_or(0, |since| self.now.since_ns(since));
        }
        if inbound.is_empty() {
            self.inbound.remove(&object);
        }
    }

    /// Whether `object` is on its way to an executor of `site`.
    pub fn is_inbound(&self, object: ObjectId, site: u32) -> bool {
        self.inbound.get(&object).into_iter().flatten().any(|(_, (_, to), _)| *to == site)
    }

    /// Bytes per second of the best transfer that was seen on a link, without end if none was seen.
    pub fn rate(&self, way: Way) -> f64 {
        let own = self.own_rate(way);
        match self.same_way(way) {
            Some(same) if !own.is_finite() => self.own_rate(same),
            Some(same) if self.own_rate(same).is_finite() => own.max(self.own_rate(same)),
            _ => own,
        }
    }

    fn own_rate(&self, (from, to): Way) -> f64 {
        let Some(sites) = &self.sites else { return f64::INFINITY };
        let Some(from) = from else {
            let all = self.from_home[to as usize].rate(self.now);
            let (ended, seen) = (best(sites.home(to)), self.home_seen[to as usize].max(all));
            return if ended.is_finite() {
                ended.max(seen)
            } else if seen > 0.0 {
                seen
            } else {
                ended
            };
        };
        best(sites.link(to, from))
    }

    /// The site that home is in or next to: the only one for which home is known to be quick.
    fn home_site(&self) -> Option<u32> {
        let is_quick = |site: &u32| {
            let rate = self.own_rate((None, *site));
            rate.is_finite() && rate * SLOW_FACTOR >= self.inside()
        };
        let mut quick = (0..self.stocks.len() as u32).filter(is_quick);
        quick.next().filter(|_| quick.next().is_none())
    }

    /// What comes from home to another site than home's comes over the same link as what comes from executors at home's site.
    fn same_way(&self, (from, to): Way) -> Option<Way> {
        let home = self.home_site().filter(|home| *home != to)?;
        match from {
            None => Some((Some(home), to)),
            Some(from) => (from == home).then_some((None, to)),
        }
    }

    fn load(&self, way: Way) -> Load {
        let own = |way: &Way| self.on.get(way).copied().unwrap_or_default();
        let (one, same) = (own(&way), self.same_way(way).as_ref().map(own).unwrap_or_default());
        Load { n: one.n + same.n, bytes: one.bytes + same.bytes }
    }

    /// Bytes per second of a copy between two executors of one site: the best that was seen in any site.
    fn inside(&self) -> f64 {
        let rates = (0..self.stocks.len() as u32).map(|site| self.own_rate((Some(site), site)));
        rates.filter(|rate| rate.is_finite()).max_by(f64::total_cmp).unwrap_or(INSIDE_ASSUMED_BYTES_PER_S)
    }

    /// Whether one more object may set out over any link into `site` now, over each of which `n_max` may be on their way.
    pub fn has_room_into(&self, site: u32, n_max: u32) -> bool {
        let others = (0..self.stocks.len() as u32).filter(|other| *other != site).map(Some);
        others.chain([None]).any(|from| self.has_room((from, site), n_max))
    }

    /// Whether what comes over this link takes much longer than a copy inside the site. A link of which nothing is known yet
    /// counts as slow: that is known a moment after its first use.
    fn is_slow(&self, way: Way) -> bool {
        let rate = self.rate(way);
        !rate.is_finite() || rate * SLOW_FACTOR < self.inside()
    }

    /// Whether one more object may set out over this link now, of which `n_max` may be on their way.
    fn has_room(&self, way: Way, n_max: u32) -> bool {
        let Load { n, bytes } = self.load(way);
        if n < n_max || !self.is_slow(way) {
            return true;
        }
        let rate = self.rate(way);
        let together = if rate.is_finite() { (rate * TOGETHER_S) as u64 } else { TOGETHER_BYTES };
        bytes < together
    }

    /// Bytes per second that one more object would get over a link, if all objects on it shared it evenly. Without end
    /// if the link was never used.
    fn share(&self, way: Way) -> f64 {
        self.rate(way) / f64::from(1 + self.load(way).n)
    }

    /// The same for one more object of the task that is being planned.
    fn share_of_plan(&self, way: Way) -> f64 {
        let planned = |way: &Way| self.planned.get(way).copied().unwrap_or(0);
        let n_planned = planned(&way) + self.same_way(way).as_ref().map_or(0, planned);
        let rate = match self.rate(way) {
            rate if rate.is_finite() || way.0.is_none() => rate,
            // A link of which nothing is known is taken to be as quick as the one to home, if that is known: otherwise it would
            // never be used.
            _ => Some(self.rate((None, way.1))).filter(|rate| rate.is_finite()).unwrap_or(0.0),
        };
        rate / f64::from(1 + self.load(way).n + n_planned)
    }

    /// A task is about to be planned.
    pub fn begin_plan(&mut self) {
        self.planned.clear();
    }

    /// The task that is being planned would bring an object over this link.
    fn plan(&mut self, way: Way) {
        *self.planned.entry(way).or_default() += 1;
    }

    /// The sites in an order in which the site that is next to home stands in the middle, as what comes to it crosses no slow
    /// link: of parts that follow each other, those at the ends have fewer neighbours.
    pub fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.stocks.len() as u32).collect();
        if let Some(home) = self.home_site() {
            order.retain(|site| *site != home);
            order.insert(order.len().div_ceil(2), home);
        }
        order
    }
}

impl Affinity {
    /// `executor` begins, or has ended, to measure how far it is from others.
    pub(super) fn set_awaited(&mut self, executor: ExecutorId, is_awaited: bool) {
        let is_new = match is_awaited {
            true => self.near.awaited.insert(executor),
            false => self.near.awaited.remove(&executor),
        };
        if is_new && !is_awaited {
            self.asking.all_again(&self.executors.seats);
        }
    }

    pub(super) fn settle_sites(&mut self, catalog: &Catalog, sites: Option<Arc<Sites>>) {
        if let (Some(before), Some(now)) = (&self.near.sites, &sites)
            && before.sites == now.sites
        {
            // Only rates have changed. What is on its way is over the same links as before.
            self.near.sites = Some(Arc::clone(now));
            return;
        }
        let n_sites = sites.as_ref().map_or(0, |sites| sites.sites.len());
        let stocks = (0..n_sites).map(|_| Stock::default()).collect();
        let awaited = std::mem::take(&mut self.near.awaited);
        let (home_seen, from_home) = (vec![0.0; n_sites], vec![Flow::default(); n_sites]);
        let now = self.near.now;
        self.near = Near { sites, stocks, home_seen, from_home, now, awaited, ..Near::default() };
        self.asking.all_again(&self.executors.seats);
        if self.near.sites.is_none() {
            return;
        }
        let seated = || self.executors.by_seat.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)));
        seated().for_each(|(i, seated)| self.near.joined(seated.id, Seat(i as u32)));
        let mut coming: Vec<(Seat, ObjectId, Option<Seat>)> = vec![];
        let mut here: Vec<(Seat, ExecutorId)> = vec![];
        for (i, seated) in seated() {
            let seat = Seat(i as u32);
            here.push((seat, seated.id));
            for (object, one) in &seated.coming {
                let from = match one.source {
                    Source::Peer(from) => self.executors.seat_of.get(&from).copied(),
                    Source::Home => None,
                };
                coming.push((seat, *object, from));
            }
        }
        coming.sort_unstable();
        for (seat, object, from) in coming {
            self.near.set_out(object, self.size_of(catalog, object), seat, from);
            self.near.site_has(seat, [object]);
        }
        // Nothing is known of how long these have been on their way.
        self.near.from_home.iter_mut().for_each(|flow| flow.since = None);
        for (seat, executor) in here {
            self.near.change_slots(seat, 0, self.executors.at(seat).room.slots_total);
            self.near.site_has(seat, catalog.objects_on(executor));
        }
        self.site_sees_queue(catalog);
    }

    /// How far a read from home into the site of `seat` has come.
    pub(super) fn see_home(&mut self, seat: Seat, moved: &InputMoved) {
        if let Some(site) = self.near.site(seat)
            && moved.moved_bytes >= OBSERVED_BYTES_MIN
        {
            let rate = moved.moved_bytes as f64 * 1e9 / moved.moving_ns.max(1) as f64;
            let seen = &mut self.near.home_seen[site as usize];
            *seen = seen.max(rate);
        }
    }

    /// The source of `object` for `seat` by the rules of this module.
    pub(super) fn near_source(
        &mut self,
        catalog: &Catalog,
        seat: Seat,
        object: ObjectId,
        heat: Heat,
    ) -> Nearby {
        let (Some(_), Some(here)) = (&self.near.sites, self.near.site(seat)) else {
            return Nearby::Unknown;
        };
        if self.spared.contains(object) {
            return match self.config.network.learns() {
                true => self.spared_source(catalog, seat, here, object, heat),
                false => Nearby::Unknown,
            };
        }
        if heat == Heat::Cold && !self.is_behind_slow_links(here) {
            return Nearby::Unknown;
        }
        let (mut near, mut far, mut is_held_here) = (None, None, false);
        self.visit_near_and_far(catalog, seat, object, |site, load, holder| {
            if site.is_none_or(|site| site == here) {
                is_held_here = true;
                if near.is_none_or(|(least, _)| load < least) {
                    near = Some((load, holder));
                }
            } else if site.is_some() && self.near.has_room((site, here), CROSSINGS_MAX) {
                let rate = self.near.share((site, here));
                // A link of which nothing is known is only tried where nothing else is left.
                let rate = if rate.is_finite() { rate } else { 0.0 };
                if far.is_none_or(|(most, least, _)| (rate, Reverse(load)) > (most, Reverse(least))) {
                    far = Some((rate, load, holder));
                }
            }
        });
        let n_max = self.uploads.full;
        if self.config.network == NetworkUse::Ping {
            return match near {
                Some((load, holder)) if load < n_max => {
                    Nearby::From(Source::Peer(self.executors.at(holder).id))
                }
                _ => Nearby::Unknown,
            };
        }
        let home = match self.may_read_home(catalog, here, object, heat, CROSSINGS_MAX) {
            true => self.near.share((None, here)),
            false => 0.0,
        };
        let peer = |holder: Seat| Nearby::From(Source::Peer(self.executors.at(holder).id));
        if is_held_here || self.near.is_inbound(object, here) {
            return match near {
                Some((load, holder)) if load < n_max => peer(holder),
                // A link that was never used is no reason to leave the site.
                _ if home.is_finite() && home > HOME_FASTER * self.near.rate((Some(here), here)) => {
                    Nearby::From(Source::Home)
                }
                _ => Nearby::Wait,
            };
        }
        if self.comes_too_late(catalog, here, object) {
            return Nearby::Wait;
        }
        match far {
            Some((rate, load, holder)) if rate > home || home == 0.0 => match load < n_max {
                true => peer(holder),
                false => Nearby::Wait,
            },
            _ if home > 0.0 => Nearby::From(Source::Home),
            _ => Nearby::Wait,
        }
    }

    /// Whether `object` may be read from home into `here` now.
    fn may_read_home(&self, catalog: &Catalog, here: u32, object: ObjectId, heat: Heat, n_max: u32) -> bool {
        let may_read = heat != Heat::Warm || catalog.version(object).is_some();
        let is_full = self.config.home_reads_max > 0 && self.home.n >= self.config.home_reads_max;
        may_read && !is_full && self.near.has_room((None, here), n_max)
    }

    /// The source of an object that leaves home once for each site: an executor of the own site, if one has it or will have it;
    /// else the quickest link into the site.
    fn spared_source(
        &mut self,
        catalog: &Catalog,
        seat: Seat,
        here: u32,
        object: ObjectId,
        heat: Heat,
    ) -> Nearby {
        let mut near: Option<(u32, Seat)> = None;
        let mut far: Option<(f64, u32, Seat, u32)> = None;
        let mut is_held_here = false;
        self.visit_near_and_far(catalog, seat, object, |site, load, holder| match site {
            Some(site) if site != here => {
                let rate = self.near.share_of_plan((Some(site), here));
                if self.near.has_room((Some(site), here), ITEMS_CROSSING_MAX)
                    && far.is_none_or(|(most, least, ..)| (rate, Reverse(load)) > (most, Reverse(least)))
                {
                    far = Some((rate, load, holder, site));
                }
            }
            _ => {
                is_held_here = true;
                if near.is_none_or(|(least, _)| load < least) {
                    near = Some((load, holder));
                }
            }
        });
        let n_max = self.uploads.full;
        let peer = |holder: Seat| Nearby::From(Source::Peer(self.executors.at(holder).id));
        if is_held_here || self.near.is_inbound(object, here) {
            return match near {
                Some((load, holder)) if load < n_max => peer(holder),
                _ => Nearby::Wait,
            };
        }
        let home = match self.may_read_home(catalog, here, object, heat, ITEMS_CROSSING_MAX) {
            true => self.near.share_of_plan((None, here)),
            false => 0.0,
        };
        // Home is spared where another link is as quick, and not where only a slow link would spare it.
        match far {
            Some((rate, load, holder, site)) if rate >= home => match load < n_max {
                true => {
                    let found = peer(holder);
                    self.near.plan((Some(site), here));
                    found
                }
                false => Nearby::Wait,
            },
            _ if home > 0.0 => {
                self.near.plan((None, here));
                Nearby::From(Source::Home)
            }
            _ => Nearby::Wait,
        }
    }

    /// Whether all queued tasks will have run before `object` has crossed a slow link into `site`, and executors of other sites
    /// can run those that read it sooner. As long as nothing runs anywhere, nothing comes too late.
    fn comes_too_late(&self, catalog: &Catalog, site: u32, object: ObjectId) -> bool {
        // Slots that are idle now wait for a crossing, too, so they take nothing of what is queued.
        let n_busy = self.executors.n_slots_total.saturating_sub(self.executors.n_slots_idle);
        let (Some(run_ns), true) = (self.times.run_ns, n_busy > 0) else { return false };
        let crossing_ns = self.crossing_ns(catalog, site, object);
        let rest_ns = self.tasks.len() as f64 * run_ns as f64 / n_busy as f64;
        let has_it = |other: u32| {
            other != site
                && self.near.stocks[other as usize].n_slots > 0
                && (self.is_in_site(other, object)
                    || self.near.rate((None, other)).is_finite() && !self.near.is_slow((None, other)))
        };
        crossing_ns.is_finite() && rest_ns < crossing_ns && (0..self.near.stocks.len() as u32).any(has_it)
    }

    /// Whether all that comes into `site` takes much longer than a copy inside it.
    pub(super) fn is_behind_slow_links(&self, site: u32) -> bool {
        self.config.network.learns() && self.near.is_slow((None, site))
    }

    /// The site of `seat`, if it is behind slow links.
    pub(super) fn slow_site(&self, seat: Seat) -> Option<u32> {
        self.near.site(seat).filter(|site| self.is_behind_slow_links(*site))
    }

    /// Whether `a` and `b` are known to be in different sites.
    pub(super) fn are_apart(&self, a: Seat, b: Seat) -> bool {
        self.near.site(a).zip(self.near.site(b)).is_some_and(|(a, b)| a != b)
    }

    /// The time that `object` takes into `site`, in nanoseconds, if it goes alone; without end if that is not known.
    pub(super) fn crossing_ns(&self, catalog: &Catalog, site: u32, object: ObjectId) -> f64 {
        let mut rate: Option<f64> = None;
        let mut see = |way: Way| {
            let one = self.near.rate(way);
            if one.is_finite() {
                rate = Some(rate.map_or(one, |rate| rate.max(one)));
            }
        };
        if self.heat(catalog, object) != Heat::Warm || catalog.version(object).is_some() {
            see((None, site));
        }
        self.visit_holders(catalog, object, 0, |holder| {
            if let Some(from) = self.near.site(holder).filter(|from| *from != site) {
                see((Some(from), site));
            }
            ControlFlow::Continue(())
        });
        rate.map_or(f64::INFINITY, |rate| self.size_of(catalog, object) as f64 * 1e9 / rate)
    }

    /// The time until a copy of `object` is on `seat`, in nanoseconds, by where the object is. `None`: nothing is known of that.
    pub(super) fn copy_by_site_ns(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> Option<f64> {
        let site = self.near.site(seat)?;
        let ns = match self.is_in_site(site, object) {
            true => self.size_of(catalog, object) as f64 * 1e9 / self.near.inside(),
            false => self.crossing_ns(catalog, site, object),
        };
        ns.is_finite().then_some(ns)
    }

    /// How many times as long an object takes to `seat` as one that is in its site, because it would have to cross a link
    /// into the site; at most [`CROSSING_MAX`].
    pub(super) fn crossing_cost(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> f64 {
        let (Some(_), Some(here)) = (&self.near.sites, self.near.site(seat)) else { return 1.0 };
        let mut is_here = self.near.is_inbound(object, here);
        let mut rate = self.near.rate((None, here));
        self.visit_near_and_far(catalog, seat, object, |site, _, _| {
            is_here |= site == Some(here);
            if let Some(site) = site {
                rate = rate.max(self.near.rate((Some(site), here)));
            }
        });
        if self.config.network == NetworkUse::Ping {
            return if is_here { 1.0 } else { CROSSING_MAX };
        }
        let inside = self.near.rate((Some(here), here));
        match is_here || !rate.is_finite() || !inside.is_finite() {
            true => 1.0,
            false => (inside / rate).clamp(1.0, CROSSING_MAX),
        }
    }

    /// Visits some holders of `object` other than `seat`, with their sites and loads.
    fn visit_near_and_far(
        &self,
        catalog: &Catalog,
        seat: Seat,
        object: ObjectId,
        mut visit: impl FnMut(Option<u32>, u32, Seat),
    ) {
        self.visit_holders(catalog, object, spread(seat, object), |holder| {
            if holder != seat {
                visit(self.near.site(holder), self.uploads.of(holder), holder);
            }
            ControlFlow::Continue(())
        });
    }
}

/// Bytes per second of the best transfer that was seen on `link`, without end if there was none.
fn best(link: &Link) -> f64 {
    match link.n_transfers {
        0 => f64::INFINITY,
        _ => link.best_bytes_per_s,
    }
}
