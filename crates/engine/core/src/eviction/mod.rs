//! Eviction: which replica leaves a full cache first.
//!
//! A policy proposes, and [`crate::cache::Cache`] decides: the cache reports to the policy what happens to
//! each object, and asks for a [`Eviction::victim`] when it needs room. The policy does not decide which
//! objects are candidates. The cache takes an object out of the *candidates* ([`Eviction::held`]) while it is
//! being created, pinned, or the last copy of an output, and puts it back ([`Eviction::freed`]) afterwards.
//! So a policy never meets an object that must stay, and never scans past one.
//!
//! Objects are named by [`Row`], the small dense number of their entry in the cache, so that a policy keeps
//! plain vectors and needs no map of its own. Every order that a policy uses is total (ties end in a
//! counter), and none comes from a hash.
//!
//! | name | file | leaves first |
//! |---|---|---|
//! | `random` | [`random`] | any candidate, each equally likely |
//! | `fifo` | [`fifo`] | the object that entered first |
//! | `lru` | [`lru`] | the object whose last use is longest ago |
//! | `lfu` | [`lfu`] | the object that was used least often; among equals, as `lru` |
//! | `two-mark` | [`two_mark`] | any candidate that was not requested in this phase, each equally likely |
//! | `two-mark-exchange` | [`stores`] | what the dispatcher says, which knows all stores; without its word, as `two-mark` |
//!
//! To add a policy: its file, and a line in [`POLICIES`].
//!
//! Not here: byte budgets, pins and promises ([`crate::cache`]); dropping replicas for other reasons
//! than space.

pub mod fifo;
#[cfg(test)]
mod golden;
pub mod lfu;
pub mod lru;
pub mod random;
mod ranked;
pub mod stores;
pub mod two_mark;

use eyas_terms::rng::Rng;
use std::fmt;

/// The number of an object's entry in its cache: dense, and used again once the object has left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row(pub u32);

/// Chooses which object leaves a full cache. The module says who calls which method when.
pub trait Eviction: fmt::Debug + Send {
    /// Space for an object has been reserved in `row`. The object is no candidate yet. Whatever the policy
    /// remembers of an earlier object in this row is void.
    fn inserted(&mut self, row: Row);
    /// The object has been requested once more, whether it is a candidate or not.
    fn accessed(&mut self, row: Row);
    /// A candidate must stay for now, or has left the cache.
    fn held(&mut self, row: Row);
    /// An object that was no candidate is one from now on.
    fn freed(&mut self, row: Row);
    /// The candidate that should leave next; `None` when there is no candidate. It stays a candidate until
    /// the cache calls [`Eviction::held`].
    fn victim(&mut self, rng: &mut Rng) -> Option<Row>;
    /// Whether `row` is a candidate, for `sanity_check`.
    fn is_candidate(&self, row: Row) -> bool;
    /// How many candidates there are, for `sanity_check`.
    fn n_candidates(&self) -> usize;
}

/// Every policy by the name used in configuration.
pub const POLICIES: &[(&str, fn() -> Box<dyn Eviction>)] = &[
    ("fifo", || Box::new(fifo::Fifo::default())),
    ("lfu", || Box::new(lfu::Lfu::default())),
    ("lru", || Box::new(lru::Lru::default())),
    ("random", || Box::new(random::Random::default())),
    ("two-mark", || Box::new(two_mark::TwoMark::default())),
    (stores::EXCHANGES, || Box::new(two_mark::TwoMark::default())),
];

/// A new policy that knows no object yet.
pub fn by_name(name: &str) -> Result<Box<dyn Eviction>, UnknownEviction> {
    match POLICIES.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make()),
        None => Err(UnknownEviction { name: name.to_owned() }),
    }
}

/// A configuration names a policy that does not exist. Trying again cannot help.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownEviction {
    pub name: String,
}

impl fmt::Display for UnknownEviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no eviction policy {}; choose one of", eyas_text::shown(&self.name))?;
        for (i, (name, _)) in POLICIES.iter().enumerate() {
            write!(f, "{}`{name}`", if i == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownEviction {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = by_name("mru").unwrap_err().to_string();
        let known = "`fifo`, `lfu`, `lru`, `random`, `two-mark`, `two-mark-exchange`";
        assert_eq!(error, format!("there is no eviction policy `mru`; choose one of {known}"));
    }

    #[test]
    fn every_policy_is_found_by_its_name_and_starts_empty() {
        for (name, _) in POLICIES {
            let mut policy = by_name(name).unwrap();
            assert_eq!(policy.n_candidates(), 0);
            assert_eq!(policy.victim(&mut Rng::new(0)), None);
        }
    }
}
