//! A group of dispatchers: which member owns a name, and which messages members send each other.
//!
//! Names are distributed by rendezvous hashing (highest random weight; Thaler and Ravishankar, "Using
//! Name-Based Mappings to Increase Hit Rates", 1998): a name belongs to the member with the highest weight
//! for it. Everybody who knows the number of members finds the same owner, and names spread evenly. With one
//! member more, only those names move that the new member gets.
//!
//! A task is queued at the owner of its key ([`split`]), and that dispatcher owns all files that the task
//! makes (`Zhang12` §V-A to C: each dispatcher with the metadata server beside it). A dispatcher whose tasks
//! read a file of another dispatcher *subscribes* there, and receives the file's [`FileState`] each time it
//! changes.
//!
//! Why states and not events: when a connection comes up, each side sends on its own connection everything
//! that concerns the other side, and after that the changes, in order. What was sent before a connection
//! broke, or before either process was killed, is sent again; receiving it twice changes nothing. So a link
//! needs no numbers, acknowledgements or journal.
//!
//! Not here: what a dispatcher does with these messages (`dispatcher/exchange.rs`), how they travel (the
//! driver).

pub mod split;

use eyas_terms::needs::Size;
use eyas_terms::rng::{STEP, fnv1a64, mix};
use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of a dispatcher in its group, and the size of the group.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Membership {
    pub me: MemberId,
    pub n_members: u32,
}

impl Membership {
    pub fn others(self) -> impl Iterator<Item = MemberId> {
        (0..self.n_members).map(MemberId).filter(move |m| *m != self.me)
    }

    /// The next number after `last` that only this member gives out; numbers begin with 1. Each member gives
    /// out every `n_members`th number, and never one below a number that it has seen from others.
    pub fn next_number(self, last: u32) -> u32 {
        let n = self.n_members;
        last + 1 + (self.me.0 + n - last % n) % n
    }
}

/// The member that gave out a number, see [`Membership::next_number`]. No member gives out 0; a message with
/// 0 is an error.
pub fn giver_of(number: u32, n_members: u32) -> MemberId {
    MemberId(number.saturating_sub(1) % n_members)
}

/// The member that owns `name`, in a group of `n_members` (at least 1). It is the same on every machine and in every version, because
/// it determines where journalled tasks are.
pub fn owner_of(name: &str, n_members: u32) -> MemberId {
    let hash = fnv1a64(name.as_bytes());
    let weight = |m: &u32| mix(hash ^ mix((u64::from(*m) + 1).wrapping_mul(STEP)));
    MemberId((0..n_members).max_by_key(|m| (weight(m), std::cmp::Reverse(*m))).expect("a group has members"))
}

/// A file by the name that all members know it by: `run:NAME` as users write it, or a location at home.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct SharedFile {
    pub run: RunId,
    pub location: String,
}

/// Whether the group's courier has a copy of a file, as the file's owner knows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum Carried {
    #[default]
    No,
    Yes,
    /// It was to get one, and cannot.
    Never,
}

/// The state of a file, as its owner reports it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// The file is to be made, or made again; or all its holders are silent.
    Expected,
    /// It is at home.
    AtHome,
    /// These executors of the owner hold the file.
    Held {
        digest: Digest,
        size_bytes: u64,
        holders: Vec<ExecutorId>,
        #[serde(default)]
        carried: Carried,
    },
    /// The file will not be made: the reason, and whether that is because a user cancelled.
    Never { message: String, cancelled: bool },
}

/// More slots, or tasks that could start, than a member can have. A larger number is a mistake, and sums of
/// such numbers could overflow.
const LOAD_MAX: u64 = 1 << 40;

impl FileState {
    /// Whether the courier has a copy.
    pub fn is_carried(&self) -> bool {
        matches!(self, FileState::Held { carried: Carried::Yes, .. })
    }
}

impl MemberLoad {
    /// `Err` names a value that no member can have.
    pub fn check(&self) -> Result<(), String> {
        match (self.n_slots > LOAD_MAX, self.n_ready > LOAD_MAX) {
            (true, _) => Err(format!("{} slots", self.n_slots)),
            (_, true) => Err(format!("{} tasks that could start", self.n_ready)),
            _ => {
                let couriers = self.candidate.iter().chain(&self.courier).map(|courier| &courier.size);
                self.unfit.iter().chain(&self.offers).chain(couriers).try_for_each(Size::check)
            }
        }
    }
}

/// A message from one dispatcher of a group to another.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum LinkMessage {
    /// The sender's tasks read exactly these files of the receiver, and the sender knows all its tasks of the
    /// runs in `settled`. Replaces everything that was sent before.
    Reads { files: Vec<SharedFile>, settled: Vec<RunId> },
    /// The sender's tasks read these files, too.
    Subscribed { files: Vec<SharedFile> },
    /// No task of the sender reads these files any more.
    Unsubscribed { files: Vec<SharedFile> },
    /// All tasks of the sender's part of the run are known.
    Settled { run: RunId },
    /// None of these holders had the file: asks for other holders. Always answered with
    /// [`LinkMessage::File`].
    Missed { file: SharedFile, holders: Vec<ExecutorId> },
    /// No executor of the sender reaches a holder of the file, and the group's courier has no copy: it is to get one at the
    /// receiver.
    Carry { file: SharedFile },
    /// A file of the sender is now in this state.
    File { file: SharedFile, state: FileState },
}

/// The load of a member, reported about once a second.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct MemberLoad {
    /// Slots of the member's executors that take work.
    pub n_slots: u64,
    /// Ready tasks for which one of these executors is large enough.
    pub n_ready: u64,
    /// Sizes of ready tasks for which none of these executors is large enough, the smallest first.
    #[serde(default)]
    pub unfit: Vec<Size>,
    /// Sizes of the member's executors, without sizes that are contained in another one.
    #[serde(default)]
    pub offers: Vec<Size>,
    /// Tasks of the member wait for the group's courier.
    #[serde(default)]
    pub calls: bool,
    /// The executor that may be the courier: the present one if the member has it, else the member's largest.
    #[serde(default)]
    pub candidate: Option<Courier>,
    /// The group's courier, as far as the member knows. The first member chooses it.
    #[serde(default)]
    pub courier: Option<Courier>,
}

/// An executor that takes files along from one member to another, because executors cannot reach each other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Courier {
    /// Its name, as each member gives it another number.
    pub name: String,
    pub size: Size,
}

impl MemberLoad {
    /// Whether the member has an executor that is large enough for a task of that size.
    pub fn can_take(&self, size: &Size) -> bool {
        self.offers.iter().any(|offer| size.is_within(offer))
    }
}

/// What one part of a run has to know of the other parts. A `run:NAME` file that is made by the member that
/// owns its name is not listed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct RunLinks {
    /// Files that tasks of this part read and tasks of another member make.
    pub imports: Vec<(String, MemberId)>,
    /// Locations at home that tasks of this part write and tasks of other parts read.
    pub exports: Vec<String>,
}

/// What one member knows of files that are named by tasks which are to be added to a run. Locations as users
/// write them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct KnownFiles {
    /// Files that the added tasks read and that tasks of this member make or promise: they stay on the nodes,
    /// or are on their way home.
    pub makes: BTreeSet<String>,
    /// Files that the added tasks read, that tasks of this member made, and that were dropped since.
    pub dropped: BTreeSet<String>,
    /// Files that the added tasks write or promise and that a task of this member has promised.
    pub promised: BTreeSet<String>,
    /// A sentence, if a task of this member writes a file that one of the added tasks writes, too.
    pub clash: Option<String>,
}

/// How the part of a run that one member has ended. Two members speak of the same end of the run when they know
/// the same number of submissions into it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PartEnd {
    /// The number of submissions into the run that have become part of it.
    pub n_added: u32,
    /// By the member's own clock.
    pub ended: Timestamp,
}

/// The member for an executor that may go to any: the member with the fewest slots.
pub fn member_for(n_slots: impl Iterator<Item = (MemberId, u64)>) -> Option<MemberId> {
    n_slots.min_by_key(|(member, n)| (*n, *member)).map(|(member, _)| member)
}

/// The member for an executor that says hello to `me`: the one that welcomed it last, or that it was sent to
/// (`told`). If there is none, the member with the fewest slots. `n_slots` has all members that are
/// connected, including `me`.
pub fn home_of(
    me: MemberId,
    told: Option<MemberId>,
    n_slots: impl Iterator<Item = (MemberId, u64)>,
) -> MemberId {
    told.or_else(|| member_for(n_slots)).unwrap_or(me)
}

/// The address where an executor looks for its dispatcher at its `n_tries`th try in a row. It first tries the
/// last known address, then the address in the join file, then every other member, which know the
/// dispatcher's present address.
///
/// * `member`: the address that the join file has for the executor's member;
/// * `first`: the dispatcher whose join file it is.
pub fn to_try<'a, T: ?Sized>(
    known: Option<&'a T>,
    member: Option<&'a T>,
    first: &'a T,
    all: impl Iterator<Item = &'a T>,
    n_tries: usize,
) -> &'a T {
    let mut places: Vec<&T> = known.into_iter().chain(member).chain([first]).collect();
    places.extend(all);
    places[n_tries % places.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;

    #[test]
    fn owners_are_pinned() {
        // These owners are in journals: a change of the hash would lose files of runs under way.
        let names = ["run:a", "run:b", "run:tile/17.fits", "", "run:ü"];
        let owners: Vec<u32> = names.iter().map(|n| owner_of(n, 4).0).collect();
        assert_eq!(owners, [1, 0, 2, 2, 0]);
    }

    #[test]
    fn names_spread_evenly_over_any_number_of_members() {
        for n_members in [1, 2, 3, 4, 7, 8, 16] {
            let n_names = 20_000;
            let mut counts = vec![0u32; n_members as usize];
            for i in 0..n_names {
                counts[owner_of(&format!("run:stage2/part{i:05}.fits"), n_members).0 as usize] += 1;
            }
            let expected = f64::from(n_names) / f64::from(n_members);
            for count in counts {
                let off = (f64::from(count) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{count} of {n_names} at one of {n_members}");
            }
        }
    }

    #[test]
    fn with_one_member_more_names_move_only_to_it() {
        let mut rng = Rng::new(7);
        for _ in 0..20_000 {
            let (name, n) = (format!("run:{:x}", rng.next_u64()), 1 + rng.below(12) as u32);
            let (before, after) = (owner_of(&name, n), owner_of(&name, n + 1));
            assert!(before == after || after == MemberId(n), "{name}: {before} of {n}, then {after}");
        }
    }

    #[test]
    fn members_never_give_out_the_same_number() {
        for n_members in 1..6 {
            let mut rng = Rng::new(u64::from(n_members));
            let (mut given, mut seen) = (std::collections::BTreeSet::new(), vec![0; n_members as usize]);
            for _ in 0..500 {
                let me = MemberId(rng.below(u64::from(n_members)) as u32);
                let membership = Membership { me, n_members };
                let number = membership.next_number(seen[me.0 as usize]);
                assert!(number > seen[me.0 as usize] && given.insert(number));
                assert_eq!(giver_of(number, n_members), me);
                seen[me.0 as usize] = number;
                // Now and then a member learns of the number.
                let other = rng.below(u64::from(n_members)) as usize;
                seen[other] = seen[other].max(number);
            }
        }
        let alone = Membership { me: MemberId(0), n_members: 1 };
        assert_eq!((alone.next_number(0), alone.next_number(1)), (1, 2));
    }

    #[test]
    fn an_executor_goes_where_slots_are_fewest() {
        let slots = [(MemberId(0), 4), (MemberId(1), 2), (MemberId(2), 2)];
        assert_eq!(member_for(slots.into_iter()), Some(MemberId(1)));
    }
}
