//! A group of dispatchers: which of them has a name, and what they say to each other.
//!
//! The name space is spread by rendezvous hashing (highest random weight; Thaler and Ravishankar, "Using Name-Based
//! Mappings to Increase Hit Rates", 1998): a name belongs to the member with the highest weight for it. Everybody who
//! knows the number of members finds the same owner, names spread evenly, and with one member more only those names
//! move that the new one gets.
//!
//! A task is queued at the owner of its key ([`split`]), and that dispatcher owns all files that it makes (`Zhang12` §V-A to
//! C: each dispatcher with the metadata server beside it). A dispatcher whose tasks read a file of another one
//! *subscribes* there, and is told each time that the file's [`FileState`] changes.
//!
//! Why states and not happenings: each side sends on its own connection all that concerns the other one when the
//! connection comes up, then changes, in order. What was said before a connection broke, or before either process was
//! killed, is said again; saying it twice changes nothing. So a link needs no numbers, acknowledgements or journal.
//!
//! Not here: how a dispatcher keeps to it (`dispatcher/exchange.rs`), how the messages travel (the driver).

pub mod split;

use crate::types::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which member of how large a group a dispatcher is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Membership {
    pub me: MemberId,
    pub n_members: u32,
}

impl Membership {
    pub fn others(self) -> impl Iterator<Item = MemberId> {
        (0..self.n_members).map(MemberId).filter(move |m| *m != self.me)
    }

    /// The next number after `last` that only this member gives out; numbers begin with 1. One of several members gives
    /// every `n_members`th, and never one below what it has seen others give.
    pub fn next_number(self, last: u32) -> u32 {
        let n = self.n_members;
        last + 1 + (self.me.0 + n - last % n) % n
    }
}

/// The member that gave out a number, see [`Membership::next_number`]. Nobody gives 0; whoever speaks of it errs.
pub fn giver_of(number: u32, n_members: u32) -> MemberId {
    MemberId(number.saturating_sub(1) % n_members)
}

/// Makes neighbouring numbers unlike each other: SplitMix64's output function.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bits: the same on every machine and in every version, as it says where journalled tasks are.
fn hash_of(name: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The member that has `name`, in a group of `n_members` (at least 1).
pub fn owner_of(name: &str, n_members: u32) -> MemberId {
    let hash = hash_of(name);
    let weight = |m: &u32| mix(hash ^ mix((u64::from(*m) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    MemberId((0..n_members).max_by_key(|m| (weight(m), std::cmp::Reverse(*m))).expect("a group has members"))
}

/// A file by the name that all members know it by: `run:NAME` as users write it, or a location at home.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct SharedFile {
    pub run: RunId,
    pub location: String,
}

/// What the owner of a file says of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// It is to be made, or made again; or everybody who has it is silent.
    Expected,
    /// It is at home.
    AtHome,
    /// These executors have it, of the owner's.
    Held { digest: Digest, size_bytes: u64, holders: Vec<ExecutorId> },
    /// It will not be: why, and whether somebody wanted that.
    Never { message: String, cancelled: bool },
}

/// More slots, or tasks that could start, than a member has. What goes beyond is a mistake somewhere, and sums of it could not
/// be computed.
const LOAD_MAX: u64 = 1 << 40;

impl MemberLoad {
    /// `Err` names what no member can have.
    pub fn check(&self) -> Result<(), String> {
        match (self.n_slots > LOAD_MAX, self.n_ready > LOAD_MAX) {
            (true, _) => Err(format!("{} slots", self.n_slots)),
            (_, true) => Err(format!("{} tasks that could start", self.n_ready)),
            _ => Ok(()),
        }
    }
}

/// What one dispatcher of a group says to another.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum LinkMessage {
    /// The sender's tasks read exactly these files of the receiver's. Of the runs named no more will be added.
    /// Replaces all that was said before.
    Reads { files: Vec<SharedFile>, settled: Vec<RunId> },
    /// The sender's tasks read these, too.
    Subscribed { files: Vec<SharedFile> },
    /// Nobody at the sender reads these any more.
    Unsubscribed { files: Vec<SharedFile> },
    /// All tasks of the sender's part of the run are known.
    Settled { run: RunId },
    /// None of these holders gave the file: who else? Always answered with [`LinkMessage::File`].
    Missed { file: SharedFile, holders: Vec<ExecutorId> },
    /// A file of the sender's is in this state now.
    File { file: SharedFile, state: FileState },
}

/// Slots and memory: what a task asks for, or an executor has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug, Default)]
pub struct Size {
    pub cpus: u32,
    pub memory_bytes: u64,
}

impl Size {
    pub fn is_within(self, other: Size) -> bool {
        self.cpus <= other.cpus && self.memory_bytes <= other.memory_bytes
    }
}

/// How much a member has to do, told about once a second.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct MemberLoad {
    /// Slots of its executors that take work.
    pub n_slots: u64,
    /// Ready tasks that one of these is large enough for.
    pub n_ready: u64,
    /// Sizes of ready tasks that none of these is large enough for, the smallest first.
    #[serde(default)]
    pub unfit: Vec<Size>,
    /// Sizes of its executors, without those that are within another one.
    #[serde(default)]
    pub offers: Vec<Size>,
}

impl MemberLoad {
    /// Whether it has an executor that is large enough for a task of that size.
    pub fn can_take(&self, size: Size) -> bool {
        self.offers.iter().any(|offer| size.is_within(*offer))
    }
}

/// What one part of a run has to know of the others. Files that the rule of names finds (`run:NAME` at the owner of its
/// name) are not listed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct RunLinks {
    /// Files that tasks of this part read and tasks of another member make.
    pub imports: Vec<(String, MemberId)>,
    /// Locations at home that tasks of this part write and tasks of other parts read.
    pub exports: Vec<String>,
}

/// What one member knows of the files that tasks name which are to be added to a run: as users write them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct KnownFiles {
    /// Those that they read and tasks of this member make, or promise: they stay on the nodes, or are on their way home.
    pub makes: BTreeSet<String>,
    /// Those that they read and tasks of this member made, and nobody has any more.
    pub dropped: BTreeSet<String>,
    /// Those that they write or promise and a task of this member has promised.
    pub promised: BTreeSet<String>,
    /// A task of this member writes what one of them writes, too: a sentence.
    pub clash: Option<String>,
}

/// How the part of a run ended that one member has. Two members speak of the same end of the run when they know the same number
/// of submissions into it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PartEnd {
    /// Submissions into the run that are part of it.
    pub n_added: u32,
    /// By the member's own clock.
    pub ended: Timestamp,
}

/// Where an executor goes that may go anywhere: to the member with fewest slots.
pub fn member_for(n_slots: impl Iterator<Item = (MemberId, u64)>) -> Option<MemberId> {
    n_slots.min_by_key(|(member, n)| (*n, *member)).map(|(member, _)| member)
}

/// The member that an executor belongs to which says hello to `me`: the one that welcomed it last, or that it was sent to
/// (`told`); whoever was nowhere goes where fewest slots are. `n_slots` has all that are there, `me` among them.
pub fn home_of(
    me: MemberId,
    told: Option<MemberId>,
    n_slots: impl Iterator<Item = (MemberId, u64)>,
) -> MemberId {
    told.or_else(|| member_for(n_slots)).unwrap_or(me)
}

/// Where an executor looks for its dispatcher at its `n_tries`th try in a row: first where that was when somebody last said
/// so, then where the join file has it, then at everybody, who know where it is now.
///
/// * `member`: where the join file has the member that it belongs to;
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
    use crate::rng::Rng;

    #[test]
    fn owners_are_pinned() {
        // They are in journals: a change of the hash loses files of runs under way.
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
                // Now and then somebody hears of it.
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
