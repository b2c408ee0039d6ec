//! Which source is near, where the network has several sites.
//!
//! The rules, for an executor that lacks an object:
//!   1. A holder in its own site serves it. If all of these serve as many attempts as they may, it waits for one of
//!      them, or reads from home where home gives its site more than a link inside the site does.
//!   2. If the object is on its way into the site, from wherever, the executor waits for it: an object crosses the
//!      links into a site once.
//!   3. Otherwise the object comes from where the link into this site is fastest: home, or a holder in another site.
//!      The best transfer that was seen on a link counts, as it depends least on other traffic. A link that was never
//!      used is tried.
//!
//! Several objects on one link share it, so the link counts with the part of it that one more object would get.
//!
//! An executor that chooses which object to fetch for most tasks per byte counts an object that would have to cross a link
//! into its site as larger than it is ([`Affinity::crossing_cost`]).
//!
//! As long as the network is one site ([`crate::network`]), nothing here has a say.

use super::rank::Heat;
use super::*;
use crate::network::Link;

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
    /// The executors that each object is on its way to, with the link that it comes over. Kept while there are sites.
    inbound: FxHashMap<ObjectId, Vec<(Seat, Way)>>,
    /// Objects that are on their way over each link.
    n_on: FxHashMap<Way, u32>,
}

/// From where (`None`: home) into which site.
type Way = (Option<u32>, u32);

impl Near {
    fn site(&self, seat: Seat) -> Option<u32> {
        self.site_at.get(seat.0 as usize).copied().flatten()
    }

    pub fn joined(&mut self, executor: ExecutorId, seat: Seat) {
        if let Some(sites) = &self.sites {
            let i = seat.0 as usize;
            self.site_at.resize(self.site_at.len().max(i + 1), None);
            self.site_at[i] = sites.site_of(executor);
        }
    }

    /// `from`: the executor that sends the object; `None`: it comes from home.
    pub fn set_out(&mut self, object: ObjectId, seat: Seat, from: Option<Seat>) {
        if let Some(here) = self.site(seat) {
            let way = (from.and_then(|from| self.site(from)), here);
            self.inbound.entry(object).or_default().push((seat, way));
            *self.n_on.entry(way).or_default() += 1;
        }
    }

    /// The object is no longer on its way to `seat`.
    pub fn stopped(&mut self, object: ObjectId, seat: Seat) {
        let Some(inbound) = self.inbound.get_mut(&object) else { return };
        let Some(at) = inbound.iter().position(|(other, _)| *other == seat) else { return };
        let (_, way) = inbound.swap_remove(at);
        *self.n_on.get_mut(&way).expect("it was counted") -= 1;
        if inbound.is_empty() {
            self.inbound.remove(&object);
        }
    }

    /// Bytes per second that one more object would get over a link, if all objects on it shared it evenly. Without end
    /// if the link was never used.
    fn share(&self, from: Option<u32>, to: u32, link: &Link) -> f64 {
        best(link) / f64::from(1 + self.n_on.get(&(from, to)).copied().unwrap_or(0))
    }
}

impl Affinity {
    pub(super) fn settle_sites(&mut self, sites: Option<Arc<Sites>>) {
        if let (Some(before), Some(now)) = (&self.near.sites, &sites)
            && before.sites == now.sites
        {
            // Only rates have changed. What is on its way is over the same links as before.
            self.near.sites = Some(Arc::clone(now));
            return;
        }
        self.near = Near { sites, ..Near::default() };
        self.ask_all_again();
        if self.near.sites.is_none() {
            return;
        }
        let seated = || self.seated.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)));
        seated().for_each(|(i, seated)| self.near.joined(seated.id, Seat(i as u32)));
        for (i, seated) in seated() {
            let mut coming: Vec<ObjectId> = seated.coming.keys().copied().collect();
            coming.sort_unstable();
            for object in coming {
                let from = match seated.coming[&object].source {
                    Source::Peer(from) => self.seat_of.get(&from).copied(),
                    Source::Home => None,
                };
                self.near.set_out(object, Seat(i as u32), from);
            }
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
        if heat == Heat::Cold || self.spared.contains(object) {
            return Nearby::Unknown;
        }
        let (Some(sites), Some(here)) = (self.near.sites.clone(), self.near.site(seat)) else {
            return Nearby::Unknown;
        };
        let (mut near, mut far, mut is_held_here) = (None, None, false);
        self.visit_near_and_far(catalog, seat, object, |site, load, holder| {
            if site.is_none_or(|site| site == here) {
                is_held_here = true;
                if near.is_none_or(|(least, _)| load < least) {
                    near = Some((load, holder));
                }
            } else if let Some(site) = site {
                let rate = self.near.share(Some(site), here, sites.link(here, site));
                if far.is_none_or(|(most, least, _)| (rate, Reverse(load)) > (most, Reverse(least))) {
                    far = Some((rate, load, holder));
                }
            }
        });
        let n_max = self.uploads_full();
        let may_read = catalog.version(object).is_some() || heat == Heat::Arriving;
        let is_full = self.config.home_reads_max > 0 && self.n_home_reads >= self.config.home_reads_max;
        let home = if may_read && !is_full { self.near.share(None, here, sites.home(here)) } else { 0.0 };
        let peer = |holder: Seat| Nearby::From(Source::Peer(self.executor_at(holder).id));
        let is_coming = || {
            let seats = self.near.inbound.get(&object);
            seats.is_some_and(|seats| seats.iter().any(|(_, (_, to))| *to == here))
        };
        if is_held_here || is_coming() {
            return match near {
                Some((load, holder)) if load < n_max => peer(holder),
                // A link that was never used is no reason to leave the site.
                _ if home.is_finite() && home > HOME_FASTER * best(sites.link(here, here)) => {
                    Nearby::From(Source::Home)
                }
                _ => Nearby::Wait,
            };
        }
        match far {
            Some((rate, load, holder)) if rate > home => match load < n_max {
                true => peer(holder),
                false => Nearby::Wait,
            },
            _ if home > 0.0 => Nearby::From(Source::Home),
            _ => Nearby::Wait,
        }
    }

    /// How many times as long an object takes to `seat` as one that is in its site, because it would have to cross a link
    /// into the site; at most [`CROSSING_MAX`].
    pub(super) fn crossing_cost(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> f64 {
        let (Some(sites), Some(here)) = (&self.near.sites, self.near.site(seat)) else { return 1.0 };
        let mut is_here =
            self.near.inbound.get(&object).into_iter().flatten().any(|(_, (_, to))| *to == here);
        let mut rate = best(sites.home(here));
        self.visit_near_and_far(catalog, seat, object, |site, _, _| {
            is_here |= site == Some(here);
            if let Some(site) = site {
                rate = rate.max(best(sites.link(site, here)));
            }
        });
        let inside = best(sites.link(here, here));
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
                visit(self.near.site(holder), self.uploads[holder.0 as usize], holder);
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
