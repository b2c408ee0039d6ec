//! The indexes of executors: the tasks whose inputs are all on an executor (`full`), and the objects that
//! are near it (`near`).
//!
//! The indexes are hints: each entry is checked when it is used. The other rules find what the indexes miss
//! because an object has too many readers or holders ([`Config::readers_max`], [`Config::holders_max`]).

use super::rank::Heat;
use super::seated::{Full, RankUpdate};
use super::{Affinity, FEW_TASKS, FoundReader, Walk, holds};
use crate::catalog::{Catalog, HoldersView};
use crate::executor_set::Seat;
use crate::placement::ReadyTask;
use eyas_terms::ObjectId;
use std::cmp::Reverse;
use std::ops::ControlFlow;

impl Affinity {
    /// The seated executors that hold `object`, at most `holders_max` of them. `start` says where in the
    /// list of holders the search begins.
    pub(super) fn some_holders(
        &self,
        catalog: &Catalog,
        object: ObjectId,
        start: usize,
        into: &mut Vec<Seat>,
    ) {
        into.clear();
        self.visit_holders(catalog, object, start, |seat| {
            into.push(seat);
            ControlFlow::Continue(())
        });
    }

    /// Visits seated executors that hold `object`, at most `holders_max` of them, until `visit`
    /// breaks.
    pub(super) fn visit_holders(
        &self,
        catalog: &Catalog,
        object: ObjectId,
        start: usize,
        mut visit: impl FnMut(Seat) -> ControlFlow<()>,
    ) {
        let n_max = self.config.holders_max;
        match catalog.holders_view(object) {
            HoldersView::List(list) => {
                let n = list.len();
                for i in 0..n.min(n_max) {
                    let seat = list[(start + i) % n];
                    if self.executors.seats.contains(seat) && visit(seat).is_break() {
                        return;
                    }
                }
            }
            HoldersView::Words(words) => {
                let n = words.len();
                let mut n_visited = 0;
                for i in 0..n {
                    let at = (start + i) % n;
                    let seated = self.executors.seats.words().get(at).copied().unwrap_or(0);
                    let mut rest = words[at] & seated;
                    while rest != 0 {
                        let seat = Seat(at as u32 * 64 + rest.trailing_zeros());
                        n_visited += 1;
                        if visit(seat).is_break() || n_visited == n_max {
                            return;
                        }
                        rest &= rest - 1;
                    }
                }
            }
        }
    }

    pub(super) fn heat(&self, catalog: &Catalog, object: ObjectId) -> Heat {
        self.facts(catalog).heat(object)
    }

    pub(super) fn reheat(&mut self, catalog: &Catalog, object: ObjectId) {
        if !self.tasks.readers(object).is_empty() {
            let heat = self.heat(catalog, object);
            self.tasks.set_heat(object, heat);
        }
    }

    pub(super) fn enter_at(&mut self, catalog: &Catalog, entered_ms: u32, task: &ReadyTask) {
        let mut inputs: Vec<ObjectId> = task
            .inputs
            .iter()
            .copied()
            .filter(|o| self.never_cached.is_empty() || !self.never_cached.contains(o))
            .collect();
        inputs.sort_unstable();
        let (tasks, facts) = self.tasks_and_facts(catalog);
        let (bundle, is_head) = tasks.enter(task, &inputs, entered_ms, |o| facts.of(o));
        if inputs.is_empty() {
            if is_head {
                self.asking.has_hits.clone_from(&self.executors.seats);
            }
            return;
        }
        self.asking.changed = true;
        let by_holders = |o: &ObjectId| catalog.n_holders(*o);
        let mut seats = std::mem::take(&mut self.seats);
        let least = *inputs.iter().min_by_key(|o| by_holders(o)).expect("there is one");
        if is_head && catalog.n_holders(least) > 0 {
            self.some_holders(catalog, least, task.key.task.0 as usize, &mut seats);
            for &seat in &seats {
                if inputs.iter().all(|o| *o == least || holds(catalog, seat, *o)) {
                    self.push_full(seat, bundle);
                }
            }
        }
        if inputs.len() > 1 {
            self.count_near(catalog, bundle, &inputs, &mut seats);
        }
        self.site_sees(catalog, bundle, 1, is_head);
        self.seats = seats;
        if self.tasks.len() <= FEW_TASKS {
            self.asking.all_again(&self.executors.seats);
        }
    }

    /// Adds a new task to `near` of the executors that lack one of its inputs. Such an executor holds at
    /// least one of the two inputs with fewest holders, so only the holders of these two are looked at.
    pub(super) fn count_near(
        &mut self,
        catalog: &Catalog,
        bundle: u32,
        inputs: &[ObjectId],
        seats: &mut Vec<Seat>,
    ) {
        let mut rarest = [inputs[0], inputs[1]];
        if catalog.n_holders(rarest[1]) < catalog.n_holders(rarest[0]) {
            rarest.swap(0, 1);
        }
        for &object in &inputs[2..] {
            let n = catalog.n_holders(object);
            if n < catalog.n_holders(rarest[0]) {
                rarest = [object, rarest[0]];
            } else if n < catalog.n_holders(rarest[1]) {
                rarest[1] = object;
            }
        }
        for (i, &object) in rarest.iter().enumerate() {
            let n_holders = catalog.n_holders(object);
            if n_holders == 0 || n_holders > self.config.holders_max {
                continue;
            }
            self.some_holders(catalog, object, 0, seats);
            for &seat in &*seats {
                if i == 1 && holds(catalog, seat, rarest[0]) {
                    continue; // counted as a holder of the rarest input
                }
                let seated = self.executors.at(seat);
                let mut lacks = inputs.iter().filter(|o| !seated.has(catalog, seat, **o));
                if let (Some(&object), None) = (lacks.next(), lacks.next()) {
                    let class = self.tasks.bundle(bundle).class;
                    self.add_near(catalog, seat, class, object, 1);
                }
            }
        }
    }

    pub(super) fn add_near(&mut self, catalog: &Catalog, seat: Seat, class: u32, object: ObjectId, by: u32) {
        let size_bytes = self.size_of(catalog, object);
        let seated = self.executors.at_mut(seat);
        seated.note_near(RankUpdate { object, class, n_tasks: by, size_bytes });
        self.asking.to_ask.insert(seat);
    }

    pub(super) fn push_full(&mut self, seat: Seat, bundle: u32) {
        let class = self.tasks.bundle(bundle).class as usize;
        let head = self.tasks.head(bundle).0;
        let full = &mut self.executors.at_mut(seat).full;
        if full.len() <= class {
            full.resize_with(class + 1, Full::default);
        }
        let full = &mut full[class];
        full.heap.push(Reverse((head, bundle)));
        if full.heap.len() > full.limit.max(64) {
            let tasks = &self.tasks;
            full.heap.retain(|Reverse((task, bundle))| {
                tasks.is_bundle(*bundle, class as u32) && tasks.head(*bundle).0 == *task
            });
            full.limit = 2 * full.heap.len();
        }
        self.asking.has_hits.insert(seat);
    }

    /// Walks through the readers of `object`, which has appeared on `seat` or is on its way there. `start`
    /// is the place in the list of readers where the walk begins, so that tasks that are close in the queue
    /// are ranked first.
    pub(super) fn walk_readers(
        &mut self,
        catalog: &Catalog,
        seat: Seat,
        object: ObjectId,
        start: usize,
        walk: Walk,
    ) {
        let n = self.tasks.n_readers(object);
        if n == 0 {
            return;
        }
        let arrived = walk != Walk::Coming;
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        if n > self.config.readers_max {
            if arrived {
                let single = |class: &u32| self.tasks.single(*class, object);
                found.extend(self.tasks.class_order.iter().filter_map(single).map(FoundReader::Full));
            }
        } else {
            let seated = self.executors.at(seat);
            let none_coming = seated.coming.is_empty();
            for reader in self.tasks.readers_around(object, start) {
                if let Some((other, n_tasks)) = reader.sole_other()
                    && !holds(catalog, seat, other)
                {
                    if walk != Walk::Landed && (none_coming || !seated.coming.contains_key(&other)) {
                        found.push(FoundReader::Near(reader.class, other, n_tasks));
                    }
                    continue;
                }
                let id = reader.bundle;
                let bundle = self.tasks.bundle(id);
                let mut all_held = arrived;
                let mut lack = None;
                let mut n_lacking = 0;
                for input in self.tasks.inputs(id).iter().filter(|e| e.object != object) {
                    if holds(catalog, seat, input.object) {
                        continue;
                    }
                    all_held = false;
                    if none_coming || !seated.coming.contains_key(&input.object) {
                        n_lacking += 1;
                        lack = Some(input.object);
                        if n_lacking > 1 {
                            break;
                        }
                    }
                }
                match (n_lacking, lack) {
                    (1, Some(lack)) if walk != Walk::Landed => {
                        found.push(FoundReader::Near(bundle.class, lack, bundle.n_tasks))
                    }
                    (0, _) if all_held => found.push(FoundReader::Full(id)),
                    _ => {}
                }
            }
        }
        for f in &found {
            match *f {
                FoundReader::Full(bundle) => self.push_full(seat, bundle),
                FoundReader::Near(class, object, n_tasks) => {
                    self.add_near(catalog, seat, class, object, n_tasks)
                }
            }
        }
        self.scratch = found;
    }
}
