//! Which earlier end is a task's own.
//!
//! A task's own ends are those of the task with the same id that did the same with files at the same locations
//! ([`PlaceDigest`]). Where ids have moved, as by a row that was put into a table, the only task with that place is the same
//! one, if the list has one such task, too. Where several tasks have one place, nothing but their ids tells them
//! apart, and a task without an end under its id is new.
//!
//! A task whose place is new, because files moved, may have the end of a task that the list does not have any more, with
//! the same bytes: that of the same id, or the only one. No end counts for two tasks.

use super::Tasks;
use eyas_report::memo::{Memo, PlaceDigest, Recipe, Record};
use eyas_terms::Digest;
use eyas_terms::array::TaskSpec;
use rustc_hash::FxHashMap;

/// So many earlier tasks with the same bytes are looked at for one that nobody has.
const EQUAL_MAX: usize = 64;

pub(super) struct Pairing<'a> {
    memo: &'a Memo,
    /// How many tasks of the list have each place that earlier tasks had.
    n_tasks: FxHashMap<PlaceDigest, u32>,
    /// By the number of a record: a task of the list has it.
    taken: Vec<bool>,
}

impl<'a> Pairing<'a> {
    pub(super) fn of(tasks: &Tasks<'_>, memo: &'a Memo) -> Pairing<'a> {
        let mut pairing = Pairing { memo, n_tasks: FxHashMap::default(), taken: vec![false; memo.len()] };
        let place_of = |spec: &TaskSpec| Some(Recipe::of(spec).place(spec)).filter(|p| memo.has_place(*p));
        for task in 0..tasks.n {
            if let Some(place) = place_of(&tasks.spec(task)) {
                *pairing.n_tasks.entry(place).or_default() += 1;
            }
        }
        for task in 0..tasks.n {
            let spec = tasks.spec(task);
            if let Some(place) = place_of(&spec) {
                let own = pairing.own(place, &spec.id);
                own.iter().for_each(|number| pairing.taken[*number as usize] = true);
            }
        }
        pairing
    }

    /// All ends of the task with this place and id, the oldest first.
    fn own(&self, place: PlaceDigest, id: &str) -> &'a [u32] {
        let own = self.memo.own(place, id);
        match own.is_empty() && self.n_tasks.get(&place) == Some(&1) {
            true => self.memo.only(place).unwrap_or(&[]),
            false => own,
        }
    }

    /// How a task with this key ended last, which may not have been well.
    pub(super) fn end_of(&mut self, spec: &TaskSpec, recipe: &Recipe, key: Digest) -> Option<&'a Record> {
        let memo = self.memo;
        let place = recipe.place(spec);
        if memo.has_place(place) {
            let mut own = self.own(place, &spec.id).iter().rev().map(|number| memo.get(*number));
            // In doubt about what was read, it is this.
            return own.find(|record| record.key_read().is_none_or(|read| read == key));
        }
        let number = self.moved(&spec.id, recipe, key)?;
        self.taken[number as usize] = true;
        Some(memo.get(number))
    }

    /// The record of a task that was elsewhere.
    fn moved(&self, id: &str, recipe: &Recipe, key: Digest) -> Option<u32> {
        let memo = self.memo;
        let is_free = |number: &u32| !self.taken[*number as usize];
        let same_id = memo.last_number_of(id).filter(is_free).filter(|number| {
            let record = memo.get(*number);
            record.recipe == *recipe && record.key_read().is_none_or(|read| read == key)
        });
        if same_id.is_some() {
            return same_id;
        }
        let equal = memo.find(key);
        if equal.len() > EQUAL_MAX {
            return None;
        }
        let mut free = equal.iter().copied().filter(is_free);
        let number = free.next_back()?;
        free.all(|other| memo.get(other).id == memo.get(number).id).then_some(number)
    }

    /// The last record of a task, whatever it read; without one, that of the task that had its id.
    pub(super) fn last_of(&self, spec: &TaskSpec, recipe: &Recipe) -> Option<&'a Record> {
        let memo = self.memo;
        match self.own(recipe.place(spec), &spec.id).last() {
            Some(own) => Some(memo.get(*own)),
            None => {
                let number = memo.last_number_of(&spec.id).filter(|number| !self.taken[*number as usize])?;
                Some(memo.get(number))
            }
        }
    }
}
