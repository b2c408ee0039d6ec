//! Fair shares: of several users, whose ready tasks placement looks at.
//!
//! One user alone has the whole queue, and nothing here costs or changes anything. Of several users, one has the
//! *turn*: the one whose use of the cluster is the least for their weight. Only tasks of this user are in the queue, so
//! every policy works as it does for one user, with all that it knows of files. The turn passes on when the use of its user is
//! [`TURN_NS`] of all slots ahead of another user's. Other users' tasks are *guests* in the queue while the user whose turn it is
//! has no task that fits the idle slots, so no slot stays idle for fairness.
//!
//! Use is the time for which a user's programs ran, in slot-nanoseconds. It halves every [`HALF_LIFE_NS`], so that a past week
//! weighs nothing today. What was given out and has not ended counts with the time that it is expected to take, or for which it has been
//! given out if that is longer, so that a user with an empty past does not take all nodes for hours before their use shows.
//!
//! Invariant: while somebody has the turn, only their tasks and those of guests are in the queue; with one user, the invariant of
//! [`super::ready`] holds.
//!
//! Source: our own; decayed use as batch systems have it. The use of before a restart is not known after it.

use super::{Schedule, Workload};
use crate::means::{RUNS_SMOOTHED, smooth};
use crate::placement::QueueKey;
use eyas_terms::{OwnerId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far the use of the user whose turn it is may get ahead of another user's, as time of all slots.
const TURN_NS: f64 = 500e6;
/// Use halves in this time: an hour.
const HALF_LIFE_NS: u64 = 3_600_000_000_000;
/// Use decays in steps, of which this many make a half-life.
const DECAY_STEPS: u64 = 16;
/// What one step leaves of it: the 16th root of a half.
const DECAY: f64 = 0.957_603_280_698_573_7;
/// A user who comes is at most this far behind another one, as time of all slots: whoever had the cluster alone for long waits for a
/// newcomer's tasks, and not for hours.
const BEHIND_MAX_NS: f64 = 600e9;
/// How long a task is expected to run as long as no task has ended.
const RUN_NS_ASSUMED: u64 = 10_000_000_000;
/// What waits behind full slots is taken back for the user whose turn it is if it is expected to run for at least this long.
const LONG_NS: u64 = 2_000_000_000;
/// Placement looks at this many times the tasks that a turn is expected to give out, within bounds: enough to choose
/// by their files, and few enough to be put away when the turn ends.
const LOOK_FACTOR: f64 = 8.0;
const LOOK_MIN: usize = 64;
const LOOK_MAX: usize = 4096;
/// For so long after a user's last task, the queue is still kept short for the others: taking a long queue apart and putting it together
/// again for each task of somebody who submits one now and then would cost more than it gives.
const REST_NS: u64 = 600_000_000_000;

/// What is known of one user.
#[derive(Debug)]
struct Share {
    name: Arc<str>,
    weight: u32,
    n_ready: u64,
    /// Those of the ready tasks that are in the queue.
    n_queued: u64,
    /// Slots for which the user's tasks were given out and have not ended, and for each of them when that was, summed up.
    held: u64,
    given_ns: u128,
    /// Slot-nanoseconds of attempts that have ended, decayed.
    used: f64,
    /// What is added to what the user is compared by, so that they began not too far behind the others; decayed, too.
    handicap: f64,
    /// Smoothed run time.
    run_ns: Option<u64>,
    /// When the user last had a task that was ready or given out.
    active: Option<Timestamp>,
}

impl Share {
    fn new(name: Arc<str>) -> Share {
        Share {
            name,
            weight: 1,
            n_ready: 0,
            n_queued: 0,
            held: 0,
            given_ns: 0,
            used: 0.0,
            handicap: 0.0,
            run_ns: None,
            active: None,
        }
    }
}

/// What one user has of the cluster, for people to see.
#[derive(Clone, PartialEq, Debug)]
pub struct UserShare {
    pub name: Arc<str>,
    pub weight: u32,
    pub n_ready: u64,
    /// Slots for which tasks of the user were given out and have not ended.
    pub n_slots: u64,
    /// Slot-nanoseconds, of which half counts after an hour.
    pub used_slot_ns: u64,
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) owner: OwnerId,
    /// How many of their tasks placement looks at.
    look: usize,
    /// Whether the owner's first tasks are no longer those of the queue.
    stale: bool,
    /// Whether tasks of other users are in the queue.
    has_guests: bool,
}

/// All users that have had runs. See the module's header.
#[derive(Debug, Default)]
pub(super) struct Shares {
    users: Vec<Share>,
    by_name: BTreeMap<Arc<str>, OwnerId>,
    now: Timestamp,
    /// Until when `used` has decayed.
    decayed: Timestamp,
    /// Smoothed run time of all tasks.
    run_ns: Option<u64>,
    n_slots: u64,
    pub(super) turn: Option<Turn>,
}

impl Shares {
    /// The number of a user; a new one if there is none yet. Runs of nobody in particular belong to the empty name.
    pub(super) fn number(&mut self, name: &str) -> OwnerId {
        if self.users.is_empty() {
            self.users.push(Share::new("".into()));
            self.by_name.insert("".into(), OwnerId::default());
        }
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let (id, name): (_, Arc<str>) = (OwnerId(self.users.len() as u32), name.into());
        self.users.push(Share::new(name.clone()));
        self.by_name.insert(name, id);
        id
    }

    /// How much of the cluster a user may have, compared with others; at least 1.
    pub(super) fn set_weight(&mut self, name: &str, weight: u32) {
        let id = self.number(name);
        self.users[id.0 as usize].weight = weight.max(1);
    }

    fn share_mut(&mut self, owner: OwnerId) -> &mut Share {
        if self.users.is_empty() {
            self.number("");
        }
        &mut self.users[owner.0 as usize]
    }

    pub(super) fn ready(&mut self, owner: OwnerId, n: u64) {
        let now = self.now;
        self.share_mut(owner);
        let comes = |user: &Share| user.n_ready + user.held == 0;
        if self.users.len() > 1 && comes(&self.users[owner.0 as usize]) {
            let others = self.users.iter().filter(|user| !comes(user)).map(|user| self.standing(user));
            let least = others.fold(0.0, f64::max) - BEHIND_MAX_NS * self.n_slots as f64;
            let own = self.standing(&self.users[owner.0 as usize]);
            self.users[owner.0 as usize].handicap += (least - own).max(0.0);
        }
        let share = self.share_mut(owner);
        (share.n_ready, share.active) = (share.n_ready + n, Some(now));
    }

    pub(super) fn not_ready(&mut self, owner: OwnerId) {
        self.share_mut(owner).n_ready -= 1;
    }

    pub(super) fn queued(&mut self, owner: OwnerId) {
        self.share_mut(owner).n_queued += 1;
    }

    pub(super) fn not_queued(&mut self, owner: OwnerId) {
        self.share_mut(owner).n_queued -= 1;
    }

    /// A task of the user was given out, for so many slots. A task without a whole one counts as if it had one.
    pub(super) fn held(&mut self, owner: OwnerId, cpus: u32, at: Timestamp) {
        let (share, n) = (self.share_mut(owner), u64::from(cpus.max(1)));
        share.held += n;
        share.given_ns += u128::from(n) * u128::from(at.0);
    }

    /// It has them no longer.
    pub(super) fn not_held(&mut self, owner: OwnerId, cpus: u32, at: Timestamp) {
        let (now, n) = (self.now, u64::from(cpus.max(1)));
        let share = self.share_mut(owner);
        share.held -= n;
        share.given_ns -= u128::from(n) * u128::from(at.0);
        share.active = Some(now);
    }

    /// An attempt of the user ended, whose program ran for so long.
    pub(super) fn ran(&mut self, owner: OwnerId, cpus: u32, run_ns: u64) {
        let share = self.share_mut(owner);
        share.used += f64::from(cpus.max(1)) * run_ns as f64;
        smooth(&mut share.run_ns, run_ns.max(1), RUNS_SMOOTHED);
        smooth(&mut self.run_ns, run_ns.max(1), RUNS_SMOOTHED);
    }

    /// How long a task of a user is expected to run.
    fn expected_ns(&self, user: &Share) -> u64 {
        user.run_ns.or(self.run_ns).unwrap_or(RUN_NS_ASSUMED)
    }

    /// What users are compared by: their use, with that of the tasks that run, for a weight of 1.
    fn standing(&self, user: &Share) -> f64 {
        let since_ns = (u128::from(user.held) * u128::from(self.now.0)).saturating_sub(user.given_ns);
        let running = (user.held as f64 * self.expected_ns(user) as f64).max(since_ns as f64);
        (user.used + running) / f64::from(user.weight) + user.handicap
    }

    /// Whether tasks of a user that wait behind full slots are taken back for the user whose turn it is.
    pub(super) fn makes_way(&self, owner: OwnerId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.owner != owner)
            && self.users.get(owner.0 as usize).is_some_and(|user| self.expected_ns(user) >= LONG_NS)
    }

    /// Time has passed.
    fn pass(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        let step_ns = HALF_LIFE_NS / DECAY_STEPS;
        let n_steps = self.now.since_ns(self.decayed) / step_ns;
        if n_steps > 0 {
            self.decayed = self.decayed.plus_ns(n_steps * step_ns);
            let left = (0..n_steps.min(64 * DECAY_STEPS)).fold(1.0, |left, _| left * DECAY);
            self.users.iter_mut().for_each(|u| (u.used, u.handicap) = (u.used * left, u.handicap * left));
        }
    }

    /// Whether several users share the cluster now.
    fn is_shared(&self) -> bool {
        let is_active =
            |u: &&Share| u.n_ready + u.held > 0 || u.active.is_some_and(|at| self.now.since_ns(at) < REST_NS);
        self.users.len() > 1 && self.users.iter().filter(is_active).nth(1).is_some()
    }

    /// The users with ready tasks, each with what they are compared by.
    fn contenders(&self) -> impl Iterator<Item = (f64, OwnerId)> {
        let ids = (0..).map(OwnerId).zip(&self.users).filter(|(_, u)| u.n_ready > 0);
        ids.map(|(id, u)| (self.standing(u), id))
    }

    /// Whose turn it should be, with `n_slots` in the cluster: it passes on only with a distance, as every change of it costs a while.
    fn next(&self, n_slots: u64) -> Option<OwnerId> {
        let (_, first) = self.contenders().min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let Some(turn) = &self.turn else { return Some(first) };
        let (present, least) = (&self.users[turn.owner.0 as usize], &self.users[first.0 as usize]);
        let allowance = TURN_NS * n_slots as f64 / f64::from(present.weight);
        let goes_on = present.n_ready > 0 && self.standing(present) <= self.standing(least) + allowance;
        Some(if goes_on { turn.owner } else { first })
    }

    fn begin(&mut self, owner: OwnerId, n_slots: u64) {
        let n_given = TURN_NS * n_slots as f64 / self.expected_ns(&self.users[owner.0 as usize]) as f64;
        let look = ((LOOK_FACTOR * n_given) as usize).clamp(LOOK_MIN, LOOK_MAX);
        self.turn = Some(Turn { owner, look, stale: false, has_guests: false });
    }

    /// How many tasks of a user are in the queue.
    pub(super) fn n_queued(&self, owner: OwnerId) -> u64 {
        self.users.get(owner.0 as usize).map_or(0, |u| u.n_queued)
    }

    /// Why tasks of a user are not looked at now, as a sentence; `None` if they are.
    pub(super) fn why_not(&self, owner: OwnerId) -> Option<String> {
        let turn = self.turn.as_ref().filter(|turn| turn.owner != owner)?;
        let name = |id: OwnerId| match &*self.users[id.0 as usize].name {
            "" => "the cluster's owner".to_string(),
            name => format!("user {}", eyas_text::shown(name)),
        };
        Some(format!(
            "slots go to {} first, who has had less of the cluster for their weight than {}",
            name(turn.owner),
            name(owner)
        ))
    }

    pub(super) fn name_of(&self, owner: OwnerId) -> &str {
        self.users.get(owner.0 as usize).map_or("", |user| &user.name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = UserShare> {
        self.users.iter().map(|u| UserShare {
            name: u.name.clone(),
            weight: u.weight,
            n_ready: u.n_ready,
            n_slots: u.held,
            used_slot_ns: u.used as u64,
        })
    }

    /// Panics when the counts of a user are not those that are given: ready tasks, those of them in the queue, and slots.
    pub(super) fn check(&self, counts: &BTreeMap<OwnerId, (u64, u64, u64)>) {
        for (id, u) in (0..).map(OwnerId).zip(&self.users) {
            let expected = counts.get(&id).copied().unwrap_or_default();
            assert_eq!((u.n_ready, u.n_queued, u.held), expected, "user `{}`", u.name);
            let is_in = self.turn.as_ref().is_none_or(|t| t.owner == id || t.has_guests);
            assert!(is_in || u.n_queued == 0, "tasks of `{}` are in the queue in another's turn", u.name);
        }
    }
}

impl Schedule {
    /// Before tasks are given out: time has passed, and guests leave when no slot is idle, so that the next one is offered to the user
    /// whose turn it is first. While slots are idle they stay: a task that waits for its inputs would begin to wait anew.
    pub(super) fn begin_placing(&mut self, work: &Workload, now: Timestamp) {
        self.shares.pass(now);
        self.shares.n_slots = self.ready.queue.n_slots_total();
        let Some(Turn { owner, has_guests: true, .. }) = self.shares.turn else { return };
        if !self.ready.has_idle_slot() {
            self.fold_where(work, |other| other != owner);
            self.shares.turn.as_mut().expect("it is somebody's turn").has_guests = false;
        }
    }

    /// Settles whose turn it is. `true`: the cluster is shared, and the queue is filled.
    pub(super) fn take_turns(&mut self, work: &mut Workload, now: Timestamp) -> bool {
        if !self.shares.is_shared() {
            if self.shares.turn.is_some() {
                self.fold_where(work, |_| true);
                self.shares.turn = None;
            }
            return false;
        }
        let n_slots = self.ready.queue.n_slots_total();
        let Some(next) = self.shares.next(n_slots) else { return true };
        let goes_on = self.shares.turn.as_ref().is_some_and(|turn| turn.owner == next && !turn.stale);
        if !goes_on {
            self.fold_where(work, |_| true);
            self.shares.begin(next, n_slots);
        }
        let look = self.shares.turn.as_ref().map_or(0, |turn| turn.look as u64).min(self.most_queued());
        let n_more = look.saturating_sub(self.shares.n_queued(next));
        self.unfold_of(work, now, next, n_more);
        true
    }

    /// Where slots are idle for which no task of the queue is: further tasks enter, of the user who has fewest in the queue first.
    /// `false`: there are none.
    pub(super) fn let_guests_in(&mut self, work: &mut Workload, now: Timestamp) -> bool {
        let Some(Turn { owner, .. }) = self.shares.turn else { return false };
        let n_idle = self.ready.queue.n_slots_total() - self.ready.queue.n_slots_active();
        if n_idle == 0 {
            return false;
        }
        let waits = |(_, id): &(f64, OwnerId)| {
            self.ready.backlog.first_of(*id).is_some() && self.shares.n_queued(*id) < self.most_queued()
        };
        let waiting =
            self.shares.contenders().filter(waits).map(|(at, id)| (self.shares.n_queued(id), at, id));
        let first = waiting.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        let Some((_, _, next)) = first else { return false };
        let turn = self.shares.turn.as_mut().expect("it is somebody's turn");
        turn.has_guests |= next != owner;
        // Twice as many each time, as those that are there do not fit.
        let before = self.shares.n_queued(next);
        self.unfold_of(work, now, next, n_idle.max(before));
        self.shares.n_queued(next) > before
    }

    /// How many tasks of one user may be in the queue: those that do not fit leave room in it for others'.
    fn most_queued(&self) -> u64 {
        LOOK_MAX.min(self.ready.queue.capacity() / 3).max(1) as u64
    }

    /// Up to `n` further tasks of a user enter the queue.
    fn unfold_of(&mut self, work: &mut Workload, now: Timestamp, owner: OwnerId, n: u64) {
        for _ in 0..n {
            if self.ready.queue.is_full() {
                return;
            }
            let Some((key, array, i)) = self.ready.backlog.pop_first_of(owner) else { return };
            self.unfold(work, now, key, array, i);
        }
    }

    /// Puts the tasks of some users from the queue back into the backlog.
    fn fold_where(&mut self, work: &Workload, of: impl Fn(OwnerId) -> bool) {
        for size in self.ready.queue.sizes() {
            for key in self.ready.queue.tasks_of_size(size) {
                if of(work.owner_of(key.task)) {
                    self.fold(work, key);
                }
            }
        }
    }

    /// Tasks of a user have become ready that may come before some that are in the queue.
    pub(super) fn look_again(&mut self, owner: OwnerId) {
        let first = self.ready.backlog.first_of(owner);
        let is_before = first.is_some_and(|first| self.ready.queue.last().is_some_and(|last| first < last));
        if let Some(turn) = self.shares.turn.as_mut().filter(|turn| turn.owner == owner && is_before) {
            turn.stale = true;
        }
    }

    /// Whether a task that is ready again goes into the queue at once, in a cluster that is shared; `None`: it is not.
    pub(super) fn enters_at_once(&self, work: &Workload, key: QueueKey) -> Option<bool> {
        let turn = self.shares.turn.as_ref()?;
        let owner = work.owner_of(key.task);
        let is_first = self.ready.backlog.first_of(owner).is_none_or(|first| key < first);
        Some(turn.owner == owner && is_first)
    }
}
