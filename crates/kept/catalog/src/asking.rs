//! Sites that are asked for copies: how each is reached, what it is busy with, and in which order they are asked.
//!
//! The order is decided in [`eyas_keeping::sources`]. A site is asked what it is busy with only where there is a choice between sites
//! on other machines, and its answer counts for a short while.

use crate::error::{Error, Result};
use crate::holding::Holding;
use eyas_keeping::sources::{Load, Source, order};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// For how long it counts what a site has said.
const SAID_FOR: Duration = Duration::from_secs(1);

/// What sites are busy with, as they have said, and whose turn it is.
pub(crate) struct Loads {
    said: Mutex<HashMap<String, (Option<Load>, Instant)>>,
    turn: AtomicU64,
}

/// A turn at which nobody else begins.
pub fn any_turn() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

impl Loads {
    /// Nothing is known yet. `turn` is the first turn: where each reader begins with another one, readers spread over all copies.
    pub(crate) fn new(turn: u64) -> Loads {
        Loads { said: Mutex::default(), turn: AtomicU64::new(turn) }
    }

    /// Notes what a site has said just now; `None`: it did not answer.
    pub(crate) fn note(&self, site: &str, load: Option<Load>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(site.to_owned(), (load, Instant::now()));
    }

    /// The places of holders in the list, in the order in which they are asked. holders : a site's name, and whether it is on this
    /// machine. `ask` is given the sites that have to be asked what they are busy with, and has their answers noted.
    pub(crate) fn order(&self, holders: &[(&str, bool)], ask: &dyn Fn(&[&str])) -> Vec<usize> {
        let is_choice = holders.len() > 1 && holders.iter().all(|(_, is_near)| !is_near);
        let said = |site: &str| -> Option<Option<Load>> {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.get(site).filter(|(_, at)| at.elapsed() < SAID_FOR).map(|(load, _)| *load)
        };
        let unheard: Vec<&str> =
            holders.iter().map(|(site, _)| *site).filter(|site| is_choice && said(site).is_none()).collect();
        if !unheard.is_empty() {
            ask(&unheard);
        }
        let source = |&(site, is_near)| Source { site, is_near, load: said(site).flatten() };
        let sources: Vec<Source<'_>> = holders.iter().map(source).collect();
        order(&sources, self.turn.fetch_add(1, Ordering::Relaxed))
    }
}

/// Asks sites what they are busy with, all at one time.
pub(crate) fn ask_all(sites: &[&str], ask: &(dyn Fn(&str) -> Option<Load> + Sync)) -> Vec<Option<Load>> {
    thread::scope(|scope| {
        let asking: Vec<_> = sites.iter().map(|site| scope.spawn(move || ask(site))).collect();
        asking.into_iter().map(|one| one.join().unwrap_or_default()).collect()
    })
}

/// Sites that are reached once, each when it is asked first.
pub(crate) struct Sites<'r> {
    reach: Box<dyn Fn(&str) -> Result<Box<dyn Holding>> + Send + Sync + 'r>,
    reached: BTreeMap<String, OnceLock<Result<Box<dyn Holding>>>>,
    loads: Loads,
}

impl<'r> Sites<'r> {
    /// Sites of these names, which `reach` reaches. `turn` is as in [`Loads::new`].
    pub(crate) fn new<'n>(
        names: impl IntoIterator<Item = &'n String>,
        turn: u64,
        reach: impl Fn(&str) -> Result<Box<dyn Holding>> + Send + Sync + 'r,
    ) -> Sites<'r> {
        let reached = names.into_iter().map(|name| (name.clone(), OnceLock::new())).collect();
        Sites { reach: Box::new(reach), reached, loads: Loads::new(turn) }
    }

    /// A site.
    ///
    /// # Errors
    /// [`Error::Unreached`]: it cannot be reached, or nobody knows where it is.
    pub(crate) fn get(&self, site: &str) -> Result<&dyn Holding> {
        let unreached = |reason| Error::Unreached { site: site.to_owned(), reason };
        let Some(known) = self.reached.get(site) else {
            return Err(unreached("nothing says where it is".into()));
        };
        match known.get_or_init(|| (self.reach)(site)) {
            Ok(reached) => Ok(&**reached),
            Err(error) => Err(unreached(error.reason())),
        }
    }

    /// A site, if somebody has asked it already and it was there.
    pub(crate) fn asked(&self, site: &str) -> Option<&dyn Holding> {
        self.reached.get(site)?.get()?.as_deref().ok()
    }

    /// Sites with a copy, in the order in which they are asked for it.
    pub(crate) fn order<'s>(&self, holders: &'s [String], is_near: &dyn Fn(&str) -> bool) -> Vec<&'s str> {
        let of: Vec<(&str, bool)> = holders.iter().map(|site| (&**site, is_near(site))).collect();
        let order = self.loads.order(&of, &|unheard| {
            let ask = |site: &str| self.get(site).and_then(Holding::load).ok();
            for (site, load) in unheard.iter().zip(ask_all(unheard, &ask)) {
                self.loads.note(site, load);
            }
        });
        order.into_iter().map(|n| of[n].0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn busy(n_transfers: u32) -> Option<Load> {
        Some(Load { n_transfers, n_programs: 0 })
    }

    /// Sites are asked only where there is a choice between others than this machine, and not again at once.
    #[test]
    fn sites_are_asked_where_there_is_a_choice() {
        let loads = Loads::new(5);
        let asked = RefCell::new(vec![]);
        let ask = |sites: &[&str]| {
            for (n, site) in sites.iter().enumerate() {
                asked.borrow_mut().push((*site).to_owned());
                loads.note(site, busy(1 - n as u32));
            }
        };
        assert_eq!(loads.order(&[("far", false)], &ask), [0]);
        assert_eq!(loads.order(&[("far", false), ("near", true)], &ask), [1, 0]);
        assert!(asked.borrow().is_empty());
        for _ in 0..3 {
            assert_eq!(loads.order(&[("a", false), ("b", false)], &ask), [1, 0], "`b` is idle");
        }
        assert_eq!(*asked.borrow(), ["a", "b"]);
    }

    #[test]
    fn equal_sites_take_turns() {
        let loads = Loads::new(5);
        let ask = |sites: &[&str]| sites.iter().for_each(|site| loads.note(site, busy(0)));
        let holders = [("a", false), ("b", false), ("c", false)];
        let firsts: Vec<usize> = (0..9).map(|_| loads.order(&holders, &ask)[0]).collect();
        assert!((0..3).all(|site| firsts.iter().filter(|first| **first == site).count() == 3), "{firsts:?}");
    }
}
