//! Fluid model: flows that share resources, each at its max-min fair rate.
//!
//! In: resources with a capacity, flows that begin and are cancelled. Out: when which flow ends.
//!
//! A flow crosses up to [`CROSSED_MAX`] resources and is held back by one of them, its *bottleneck*: the one whose
//! fair share, its *level*, is lowest. Flows with the same bottleneck run at the same rate, so their group needs one
//! clock, the bytes that each of them has moved so far: a flow ends when that clock reaches the value noted when it
//! began. A change of the rate touches the group's clock, not its flows.
//!
//! A new level is passed on to the other resources that the group's flows cross, and flows change their bottleneck, only
//! when it differs by more than `tolerance` from the one passed on before. With `tolerance` 0 rates are the exact max-min
//! fair allocation (Bertsekas and Gallager, "Data Networks", §6.5.2; compared in the tests with filling step by step); with a
//! few per cent, thousands of flows through one shared store cost some tens of steps per change instead of thousands.
//!
//! Invariants, checked by [`Fluid::sanity_check`]: a resource's load never exceeds its capacity by more than the tolerance
//! allows; every flow has a bottleneck among the resources it crosses.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Most resources that one flow crosses.
pub const CROSSED_MAX: usize = 5;
/// Flows that end within so many bytes of each other end together.
const SLACK_BYTES: f64 = 0.5;
/// Relative difference below which two levels are equal: far above rounding, far below meaning.
const ROUNDING: f64 = 1e-9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResourceId(pub u32);

/// Names a flow until it has ended; never used again after that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowId {
    slot: u32,
    generation: u32,
}

struct Resource {
    capacity: f64,
    /// The sum of the rates of flows that cross this resource and are held back by another one, by the levels that were passed on.
    foreign: f64,
    /// The number of flows held back here, their common rate, and the rate that was passed on to other resources.
    n_group: u32,
    level: f64,
    passed_on: f64,
    /// Bytes that each flow of the group has moved since the clock was started, and when that was true.
    clock: f64,
    clock_ns: u64,
    ends: BinaryHeap<EndAt>,
    /// All flows that cross this resource.
    members: Vec<u32>,
    dirty: bool,
    /// Counts changes of what ends next, so that outdated entries of `upcoming` are seen.
    version: u32,
}

/// A flow ends when its group's clock reads so much.
#[derive(Clone, Copy)]
struct EndAt {
    clock: f64,
    flow: FlowId,
}

impl PartialEq for EndAt {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for EndAt {}
impl PartialOrd for EndAt {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for EndAt {
    /// Earlier is greater, for a heap that gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.clock.total_cmp(&self.clock).then(other.flow.cmp(&self.flow))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Upcoming {
    at_ns: u64,
    resource: u32,
    version: u32,
}

struct Flow<T> {
    generation: u32,
    /// `None`: the slot is free.
    tag: Option<T>,
    crossed: [u32; CROSSED_MAX],
    n_crossed: u8,
    /// Index into `crossed`.
    bottleneck: u8,
    /// Position in each resource's `members`.
    member_at: [u32; CROSSED_MAX],
    end_clock: f64,
}

impl<T> Flow<T> {
    fn crossed(&self) -> &[u32] {
        &self.crossed[..self.n_crossed as usize]
    }
    fn held_by(&self) -> u32 {
        self.crossed[self.bottleneck as usize]
    }
    /// Whether `end`, found in the heap of `resource`, still says when this flow ends.
    fn is_awaited_by(&self, end: &EndAt, resource: u32) -> bool {
        self.generation == end.flow.generation
            && self.tag.is_some()
            && self.held_by() == resource
            && self.end_clock == end.clock
    }
}

/// See the module. `T` is what the driver wants back when a flow ends.
pub struct Fluid<T> {
    tolerance: f64,
    resources: Vec<Resource>,
    flows: Vec<Flow<T>>,
    free: Vec<u32>,
    upcoming: BinaryHeap<std::cmp::Reverse<Upcoming>>,
    dirty: Vec<u32>,
    /// Empty lists, kept so that their memory is used again: `(limit elsewhere, flow)`, and flows that end.
    limits: Vec<(f64, u32)>,
    over: Vec<u32>,
    n_flows: usize,
}

impl<T: Copy> Fluid<T> {
    /// `tolerance`: relative, 0 for exact rates.
    pub fn new(tolerance: f64) -> Fluid<T> {
        Fluid {
            tolerance,
            resources: vec![],
            flows: vec![],
            free: vec![],
            upcoming: BinaryHeap::new(),
            dirty: vec![],
            limits: vec![],
            over: vec![],
            n_flows: 0,
        }
    }

    /// Adds a resource; `bytes_per_s` is above 0.
    pub fn add(&mut self, bytes_per_s: f64) -> ResourceId {
        assert!(bytes_per_s > 0.0, "a resource without capacity never ends a flow");
        self.resources.push(Resource {
            capacity: bytes_per_s,
            foreign: 0.0,
            n_group: 0,
            level: bytes_per_s,
            passed_on: bytes_per_s,
            clock: 0.0,
            clock_ns: 0,
            ends: BinaryHeap::new(),
            members: vec![],
            dirty: false,
            version: 0,
        });
        ResourceId(self.resources.len() as u32 - 1)
    }

    pub fn n_flows(&self) -> usize {
        self.n_flows
    }

    /// Begins a flow of `bytes` through distinct resources.
    pub fn begin(&mut self, now_ns: u64, bytes: u64, crossed: &[ResourceId], tag: T) -> FlowId {
        assert!(
            !crossed.is_empty() && crossed.len() <= CROSSED_MAX,
            "a flow crosses 1 to {CROSSED_MAX} resources"
        );
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flows.push(Flow {
                generation: 0,
                tag: None,
                crossed: [0; CROSSED_MAX],
                n_crossed: 0,
                bottleneck: 0,
                member_at: [0; CROSSED_MAX],
                end_clock: 0.0,
            });
            self.flows.len() as u32 - 1
        });
        self.n_flows += 1;
        let flow = &mut self.flows[slot as usize];
        flow.tag = Some(tag);
        flow.n_crossed = crossed.len() as u8;
        for (i, r) in crossed.iter().enumerate() {
            flow.crossed[i] = r.0;
            let members = &mut self.resources[r.0 as usize].members;
            flow.member_at[i] = members.len() as u32;
            members.push(slot);
        }
        let level = |i: &u8| self.level_with_one_more(crossed[*i as usize].0);
        let lowest = (0..crossed.len() as u8).min_by(|a, b| level(a).total_cmp(&level(b)).then(a.cmp(b)));
        self.flows[slot as usize].bottleneck = lowest.expect("a flow crosses something");
        self.join(now_ns, slot, bytes as f64);
        self.settle(now_ns);
        FlowId { slot, generation: self.flows[slot as usize].generation }
    }

    /// Ends a flow early; nothing happens if it has ended.
    pub fn cancel(&mut self, now_ns: u64, flow: FlowId) {
        if self.is_current(flow) {
            self.remove(now_ns, flow.slot);
            self.settle(now_ns);
        }
    }

    /// When the next flow ends, if nothing changes before.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&std::cmp::Reverse(next)) = self.upcoming.peek() {
            if self.resources[next.resource as usize].version == next.version {
                return Some(next.at_ns);
            }
            self.upcoming.pop();
        }
        None
    }

    /// Ends what ends at `now_ns`, which is what [`Fluid::next_ns`] gave, and adds its tags to `ended`.
    pub fn advance(&mut self, now_ns: u64, ended: &mut Vec<T>) {
        let mut over = std::mem::take(&mut self.over);
        while let Some(at_ns) = self.next_ns()
            && at_ns <= now_ns
        {
            let std::cmp::Reverse(next) = self.upcoming.pop().expect("it was just seen");
            self.run_clock(now_ns, next.resource);
            let r = &mut self.resources[next.resource as usize];
            // Times are whole nanoseconds, so what a flow moves in one of them cannot be told apart.
            let reached = r.clock + SLACK_BYTES + r.level * 1e-9;
            while let Some(end) = r.ends.peek()
                && end.clock <= reached
            {
                let end = r.ends.pop().expect("it was just seen");
                let flow = &mut self.flows[end.flow.slot as usize];
                if flow.is_awaited_by(&end, next.resource) {
                    // The flow is taken at once, because a flow that left and came back may stand in the heap twice.
                    ended.extend(flow.tag.take());
                    over.push(end.flow.slot);
                }
            }
            r.version += 1;
            for slot in over.drain(..) {
                self.remove(now_ns, slot);
            }
            self.touch(next.resource);
            self.settle(now_ns);
            self.announce(now_ns, next.resource);
        }
        self.over = over;
    }

    /// What the flow is for; `None` when it has ended.
    pub fn tag(&self, flow: FlowId) -> Option<T> {
        if self.is_current(flow) { self.flows[flow.slot as usize].tag } else { None }
    }

    /// Bytes that a flow has still to move; `None`: it has ended.
    pub fn left(&self, now_ns: u64, flow: FlowId) -> Option<f64> {
        let f = self.flows.get(flow.slot as usize).filter(|f| f.generation == flow.generation)?;
        f.tag.as_ref()?;
        let group = &self.resources[f.held_by() as usize];
        let clock = group.clock + group.level * (now_ns.saturating_sub(group.clock_ns)) as f64 / 1e9;
        Some((f.end_clock - clock).max(0.0))
    }

    /// Bytes per second that a flow moves now; `None`: it has ended.
    pub fn rate(&self, flow: FlowId) -> Option<f64> {
        self.is_current(flow).then(|| self.resources[self.flows[flow.slot as usize].held_by() as usize].level)
    }

    fn is_current(&self, flow: FlowId) -> bool {
        let f = &self.flows[flow.slot as usize];
        f.generation == flow.generation && f.tag.is_some()
    }

    // ------------------------------------------------------------ groups

    /// Brings a group's clock to `now_ns`.
    fn run_clock(&mut self, now_ns: u64, resource: u32) {
        let r = &mut self.resources[resource as usize];
        if r.n_group > 0 {
            r.clock += r.level * (now_ns - r.clock_ns) as f64 * 1e-9;
        } else {
            r.clock = 0.0;
            r.ends.clear();
        }
        r.clock_ns = now_ns;
    }

    /// Puts a flow with so many bytes left into the group of its bottleneck.
    fn join(&mut self, now_ns: u64, slot: u32, bytes: f64) {
        let at = self.flows[slot as usize].held_by();
        self.run_clock(now_ns, at);
        let r = &mut self.resources[at as usize];
        r.n_group += 1;
        let flow = &mut self.flows[slot as usize];
        flow.end_clock = r.clock + bytes;
        let id = FlowId { slot, generation: flow.generation };
        r.ends.push(EndAt { clock: flow.end_clock, flow: id });
        // The other resources know the level from before this flow; `settle` passes the new one on.
        let rate = r.passed_on;
        self.change_foreign(slot, at, rate);
        self.touch(at);
    }

    /// Takes a flow out of its group; gives the bytes that it still has to move.
    fn part(&mut self, now_ns: u64, slot: u32) -> f64 {
        let at = self.flows[slot as usize].held_by();
        self.run_clock(now_ns, at);
        let r = &mut self.resources[at as usize];
        r.n_group -= 1;
        let left = (self.flows[slot as usize].end_clock - r.clock).max(0.0);
        let rate = r.passed_on;
        self.change_foreign(slot, at, -rate);
        self.touch(at);
        left
    }

    fn remove(&mut self, now_ns: u64, slot: u32) {
        self.part(now_ns, slot);
        let flow = &self.flows[slot as usize];
        let (n, crossed, member_at) = (flow.n_crossed as usize, flow.crossed, flow.member_at);
        for i in 0..n {
            let members = &mut self.resources[crossed[i] as usize].members;
            members.swap_remove(member_at[i] as usize);
            if let Some(&moved) = members.get(member_at[i] as usize) {
                let moved = &mut self.flows[moved as usize];
                let j = moved.crossed().iter().position(|c| *c == crossed[i]).expect("members cross it");
                moved.member_at[j] = member_at[i];
            }
        }
        let flow = &mut self.flows[slot as usize];
        flow.tag = None;
        flow.generation += 1;
        self.free.push(slot);
        self.n_flows -= 1;
    }

    /// The other resources of a flow hear that its rate, set at `at`, changed by so much.
    fn change_foreign(&mut self, slot: u32, at: u32, by: f64) {
        let flow = &self.flows[slot as usize];
        let (n, crossed) = (flow.n_crossed as usize, flow.crossed);
        for other in crossed[..n].iter().filter(|r| **r != at) {
            self.resources[*other as usize].foreign += by;
            self.touch(*other);
        }
    }

    fn touch(&mut self, resource: u32) {
        let r = &mut self.resources[resource as usize];
        if !r.dirty {
            r.dirty = true;
            self.dirty.push(resource);
        }
    }

    // ------------------------------------------------------------ levels

    /// The rate that a new flow would have if `resource` held it back.
    fn level_with_one_more(&self, resource: u32) -> f64 {
        let r = &self.resources[resource as usize];
        (r.capacity - r.foreign) / f64::from(r.n_group + 1)
    }

    /// Recomputes levels until no resource has a new one to pass on.
    fn settle(&mut self, now_ns: u64) {
        // Levels move towards the fair ones, the lowest first; the bound is for rounding that goes round in circles.
        let n_steps = 1000 + 100 * self.dirty.len();
        let mut next = 0;
        while next < self.dirty.len() {
            let resource = self.dirty[next];
            next += 1;
            self.resources[resource as usize].dirty = false;
            if next < n_steps {
                self.relevel(now_ns, resource);
            } else {
                self.announce(now_ns, resource);
            }
        }
        self.dirty.clear();
    }

    fn relevel(&mut self, now_ns: u64, resource: u32) {
        self.run_clock(now_ns, resource);
        let r = &mut self.resources[resource as usize];
        let n_members = r.members.len();
        if n_members == 0 {
            (r.level, r.passed_on, r.foreign) = (r.capacity, r.capacity, 0.0);
            return;
        }
        let left = r.capacity - r.foreign;
        if self.tolerance > 0.0 && r.n_group > 0 && left > 0.0 {
            let level = left / f64::from(r.n_group);
            if (level - r.passed_on).abs() <= self.tolerance * r.passed_on {
                r.level = level;
                return self.announce(now_ns, resource);
            }
        } else if self.tolerance > 0.0 && r.n_group == 0 && left >= 0.0 {
            // No flow is held back here. The level that a flow would have is that of the fastest one and what is left
            // beside it, and finding that one takes a look at all flows. The capacity is never below it: what a flow
            // has too much by that makes this resource full, and then it is shared out. A level below the fastest
            // flow's rate would be wrong: it takes flows over that it does not hold back, and they go back again.
            (r.level, r.passed_on) = (r.capacity, r.capacity);
            return;
        }
        self.fill(now_ns, resource);
    }

    /// Shares a resource out anew: flows that others hold back to less than an even share of what is left keep that,
    /// the rest is held back here.
    fn fill(&mut self, now_ns: u64, resource: u32) {
        let mut limits = std::mem::take(&mut self.limits);
        limits.clear();
        let r = &self.resources[resource as usize];
        for &slot in &r.members {
            let others = self.flows[slot as usize].crossed().iter().filter(|q| **q != resource);
            let limit = others.map(|q| self.resources[*q as usize].passed_on).fold(f64::INFINITY, f64::min);
            limits.push((limit, slot));
        }
        limits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut left, mut n_below) = (r.capacity, 0);
        let level = loop {
            let level = left / (limits.len() - n_below) as f64;
            // The last flow may have all that is left, whether it can use that or not.
            if limits[n_below].0 >= level * (1.0 - ROUNDING) || n_below + 1 == limits.len() {
                break level;
            }
            left -= limits[n_below].0;
            n_below += 1;
        };
        if limits[n_below].0 < level * (1.0 - ROUNDING) {
            n_below += 1;
        }
        let level = level.max(r.capacity * 1e-9);
        let news = (level - r.passed_on).abs() > ROUNDING * r.passed_on;
        let by = level - r.passed_on;
        for (i, &(_, slot)) in limits.iter().enumerate() {
            let is_here = self.flows[slot as usize].held_by() == resource;
            match (is_here, i >= n_below) {
                (true, true) if news => self.change_foreign(slot, resource, by),
                (true, false) => {
                    let left = self.part(now_ns, slot);
                    self.flows[slot as usize].bottleneck = self.lowest_beside(slot, resource);
                    self.join(now_ns, slot, left);
                }
                _ => {}
            }
        }
        let r = &mut self.resources[resource as usize];
        (r.level, r.passed_on) = (level, level);
        for &(_, slot) in &limits[n_below..] {
            let flow = &self.flows[slot as usize];
            if flow.held_by() != resource {
                let here = flow.crossed().iter().position(|q| *q == resource).expect("members cross it");
                let left = self.part(now_ns, slot);
                self.flows[slot as usize].bottleneck = here as u8;
                self.join(now_ns, slot, left);
            }
        }
        // The moves above marked this resource as well, which has just been recomputed.
        self.announce(now_ns, resource);
        self.limits = limits;
    }

    /// Where a flow is held back, of what it crosses beside `resource`; an index into that.
    fn lowest_beside(&self, slot: u32, resource: u32) -> u8 {
        let crossed = self.flows[slot as usize].crossed();
        let level = |i: &usize| self.resources[crossed[*i] as usize].passed_on;
        (0..crossed.len())
            .filter(|i| crossed[*i] != resource)
            .min_by(|a, b| level(a).total_cmp(&level(b)).then(a.cmp(b)))
            .expect("something else holds it back") as u8
    }

    /// Notes when the next flow of a group ends.
    fn announce(&mut self, now_ns: u64, resource: u32) {
        let r = &mut self.resources[resource as usize];
        r.version += 1;
        while let Some(end) = r.ends.peek() {
            if self.flows[end.flow.slot as usize].is_awaited_by(end, resource) {
                let left_ns = ((end.clock - r.clock).max(0.0) / r.level * 1e9).ceil();
                let at_ns = now_ns.saturating_add(left_ns as u64);
                let upcoming = Upcoming { at_ns, resource, version: r.version };
                self.upcoming.push(std::cmp::Reverse(upcoming));
                return;
            }
            r.ends.pop();
        }
    }

    /// Checks the module's invariants; panics when one is broken. For tests.
    pub fn sanity_check(&self) {
        for (i, r) in self.resources.iter().enumerate() {
            let load: f64 = r
                .members
                .iter()
                .map(|s| self.resources[self.flows[*s as usize].held_by() as usize].level)
                .sum();
            let slack = 1.0 + 4.0 * self.tolerance + 1e-6;
            assert!(load <= r.capacity * slack, "resource {i}: {load} of {}", r.capacity);
            let group = r.members.iter().filter(|s| self.flows[**s as usize].held_by() == i as u32).count();
            assert_eq!(group, r.n_group as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GB: f64 = 1e9;
    const S: u64 = 1_000_000_000;

    /// Max-min fair rates by filling all flows evenly until a resource is full (the textbook's way).
    fn filled(capacities: &[f64], flows: &[Vec<usize>]) -> Vec<f64> {
        let mut rates = vec![0.0; flows.len()];
        let mut frozen = vec![false; flows.len()];
        let mut left = capacities.to_vec();
        while frozen.iter().any(|f| !f) {
            let n_of = |r: usize| flows.iter().zip(&frozen).filter(|(f, z)| !**z && f.contains(&r)).count();
            let (tight, step) = (0..left.len())
                .filter(|r| n_of(*r) > 0)
                .map(|r| (r, left[r] / n_of(r) as f64))
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .expect("an unfrozen flow crosses something");
            for f in 0..flows.len() {
                if !frozen[f] {
                    rates[f] += step;
                    for r in &flows[f] {
                        left[*r] -= step;
                    }
                }
            }
            for f in 0..flows.len() {
                frozen[f] |= flows[f].contains(&tight);
            }
        }
        rates
    }

    #[test]
    fn two_flows_share_and_the_second_is_alone_at_the_end() {
        let mut fluid = Fluid::new(0.0);
        let disk = fluid.add(GB);
        fluid.begin(0, 1_000_000_000, &[disk], 'a');
        fluid.begin(0, 3_000_000_000, &[disk], 'b');
        let mut ended = vec![];
        assert_eq!(fluid.next_ns(), Some(2 * S));
        fluid.advance(2 * S, &mut ended);
        assert_eq!(fluid.next_ns(), Some(4 * S));
        fluid.advance(4 * S, &mut ended);
        assert_eq!((ended, fluid.next_ns()), (vec!['a', 'b'], None));
    }

    #[test]
    fn what_one_cannot_use_the_others_get() {
        let mut fluid = Fluid::new(0.0);
        let (home, slow, quick) = (fluid.add(1000.0), fluid.add(100.0), fluid.add(5000.0));
        let a = fluid.begin(0, 10_000_000, &[home, slow], 'a');
        let b = fluid.begin(0, 10_000_000, &[home, quick], 'b');
        assert_eq!((fluid.rate(a), fluid.rate(b)), (Some(100.0), Some(900.0)));
        fluid.cancel(0, b);
        let c = fluid.begin(0, 10_000_000, &[slow], 'c');
        assert_eq!((fluid.rate(a), fluid.rate(b), fluid.rate(c)), (Some(50.0), None, Some(50.0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
        #[test]
        fn rates_are_max_min_fair(
            capacities in prop::collection::vec(1u32..1000, 1..8),
            steps in prop::collection::vec((prop::collection::btree_set(0usize..8, 1..4), any::<prop::sample::Index>(), 0u8..3), 1..40),
        ) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let mut fluid = Fluid::new(0.0);
            let ids: Vec<ResourceId> = capacities.iter().map(|c| fluid.add(*c)).collect();
            let mut live: Vec<(FlowId, Vec<usize>)> = vec![];
            for (step, (crossed, which, kind)) in steps.into_iter().enumerate() {
                let now = step as u64;
                if kind == 0 && !live.is_empty() {
                    let (flow, _) = live.swap_remove(which.index(live.len()));
                    fluid.cancel(now, flow);
                } else {
                    let crossed: Vec<usize> = crossed.into_iter().filter(|r| *r < ids.len()).collect();
                    if crossed.is_empty() { continue; }
                    let through: Vec<ResourceId> = crossed.iter().map(|r| ids[*r]).collect();
                    live.push((fluid.begin(now, u64::MAX >> 12, &through, ()), crossed));
                }
                fluid.sanity_check();
                let expected = filled(&capacities, &live.iter().map(|l| l.1.clone()).collect::<Vec<_>>());
                for ((flow, _), expected) in live.iter().zip(expected) {
                    let rate = fluid.rate(*flow).expect("it runs");
                    prop_assert!((rate - expected).abs() <= expected * 1e-5, "{rate} for {expected} at step {step}");
                }
            }
        }

        #[test]
        fn everything_ends_and_no_byte_is_moved_faster_than_it_can_be(
            sizes in prop::collection::vec((1u64..1_000_000, 0usize..4, 0usize..4, 0u64..1000), 1..60),
        ) {
            let mut fluid = Fluid::new(0.03);
            let ids: Vec<ResourceId> = (1..=4).map(|i| fluid.add(f64::from(i) * 1e6)).collect();
            let mut begins: Vec<_> = sizes.clone();
            begins.sort_by_key(|b| b.3);
            let (mut ended, mut n, mut now) = (vec![], 0, 0);
            let mut begins = begins.into_iter().enumerate().peekable();
            loop {
                let at = begins.peek().map(|(_, b)| b.3 * 1_000_000);
                let (begin, time) = match (at, fluid.next_ns()) {
                    (None, None) => break,
                    (Some(a), Some(e)) if a <= e => (true, a),
                    (Some(a), None) => (true, a),
                    (_, Some(e)) => (false, e),
                };
                prop_assert!(time >= now);
                now = time;
                if begin {
                    let (i, (bytes, a, b, _)) = begins.next().unwrap();
                    let mut through = vec![ids[a]];
                    if b != a { through.push(ids[b]); }
                    fluid.begin(now, bytes, &through, i);
                    n += 1;
                } else {
                    fluid.advance(now, &mut ended);
                }
                fluid.sanity_check();
            }
            prop_assert_eq!(ended.len(), n);
            for r in 0..4 {
                let bytes: u64 = sizes.iter().filter(|s| s.1 == r || s.2 == r).map(|s| s.0).sum();
                let least_ns = bytes as f64 / ((r + 1) as f64 * 1e6) * 1e9 / 1.2;
                prop_assert!(now as f64 >= least_ns);
            }
        }
    }
}
