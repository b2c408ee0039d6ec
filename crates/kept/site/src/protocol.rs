//! What the two sides say to each other.

use bytes::Bytes;
use eyas_catalog::{Aside, Condition, SitePlace, StoreUser};
use eyas_data::Digest;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of an object that are sent at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Bytes that a sender queues before it waits.
pub(crate) const QUEUED_BYTES: usize = 2 << 20;
/// Digests in one message.
pub(crate) const DIGESTS: usize = 10_000;
/// How often a store says that it is there.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// How long a store may say nothing.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a store keeps a connection on which nothing is asked.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long the catalog's side uses such a connection again: shorter, so that no request meets its end.
pub(crate) const IDLE_USED: Duration = Duration::from_secs(30);
/// How long a place is waited for at a store, or at a hub, that has none: as nodes wait for a home, where nobody says otherwise.
pub(crate) const PLACE_WAIT_MAX: Duration = Duration::from_secs(300);

/// From the catalog's side.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Who are you? The first request.
    Site,
    Objects,
    /// Read these through.
    Verify(Vec<Digest>),
    /// The bytes of an object.
    Read(Digest),
    SetAside(Vec<Digest>),
    Aside,
    Settle {
        unneeded: Vec<Aside>,
        needed: Vec<Aside>,
    },
    SealDigests,
    SealTexts,
    Seal {
        key: String,
        text: Bytes,
    },
    Unseal(String),
    /// From now on the folder is this catalog's.
    Claim(String),
    /// A batch begins; until `Keep`, nothing is answered.
    Begin,
    /// An object of the batch begins.
    Add,
    Piece(Bytes),
    /// The object is complete, and the sender has found this digest.
    Whole(Digest),
    /// The sender cannot read on: the object that has begun is dropped.
    Broken,
    /// The object that was complete last is dropped again.
    Undo,
    Keep,
    Abandon,
    /// The chaining values of the groups of an object of this size, read through.
    Groups(Digest, u64),
    /// So many bytes of an object from a place on.
    ReadAt(Digest, u64, u32),
    /// What are you busy with, and how many programs may you run?
    Load,
    /// Run a program by this plan.
    Run {
        plan: Bytes,
        /// What the program makes becomes objects of the store, and is not sent.
        keeps_outputs: bool,
    },
    /// Whoever waits for the program is there.
    Alive,
    /// The bytes of an object, for a copy: it does not count as read.
    Copy(Digest),
    /// How much was read of which objects since the last time?
    Reads,
    /// A key with which another store may copy these objects.
    Permit(Vec<Digest>),
    /// Copy objects from the store at this address, with the key of a permit.
    Fetch {
        address: String,
        key: Bytes,
        digests: Vec<Digest>,
    },
    /// So many blocks of an object's group, from a block on: the number of the group, that of the first block, how many.
    ReadBlocks(Digest, u64, u8, u8),
    /// The keys of all seals; for a user, of those of data sets of which they have a right.
    SealKeys,
    /// From now on, let in these users and no others.
    Users(Vec<StoreUser>),
}

impl Ask {
    /// Whether the answer moves bytes of objects or reads objects through, so that the store is busy with it.
    pub(crate) fn is_transfer(&self) -> bool {
        matches!(
            self,
            Ask::Verify(_)
                | Ask::Read(_)
                | Ask::Copy(_)
                | Ask::ReadAt(..)
                | Ask::ReadBlocks(..)
                | Ask::Groups(..)
                | Ask::Fetch { .. }
                | Ask::Begin
        )
    }
}

/// From the store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Tell {
    Site {
        name: String,
        keep_bytes: Option<u64>,
        place: SitePlace,
    },
    /// The number of the folder.
    Claimed(String),
    Objects(Vec<Digest>),
    Aside(Vec<Aside>),
    /// The number of an object in the request, and what it turned out to be.
    Found(u32, FoundCopy),
    Piece(Bytes),
    /// The object is not there.
    Missing,
    SealDigests(Vec<(String, Digest)>),
    SealTexts(Vec<(String, Result<Bytes, String>)>),
    /// The request is done.
    Done,
    /// The request could not be carried out, for this reason.
    Failed(String),
    /// The store is there.
    Beat,
    Groups(Vec<[u8; 32]>),
    /// What the store is busy with.
    Load {
        n_transfers: u32,
        n_programs: u32,
        /// How many programs may run at a time; `None`: it runs none for others.
        n_programs_max: Option<u32>,
    },
    /// As many programs run as may; or, at first, there are as many connections as the store takes.
    Busy,
    /// What a program has printed, and whether as an error.
    Printed(bool, Bytes),
    /// How the program ended; what it made follows.
    Report(Bytes),
    /// A file that the program made begins; its pieces follow.
    Output {
        path: String,
        is_executable: bool,
    },
    /// A file that the program made is an object of the store now.
    Kept {
        path: String,
        size_bytes: u64,
        digest: Digest,
        is_executable: bool,
    },
    /// Objects with the bytes that were read of them.
    Reads(Vec<(Digest, u64)>),
    Permit(Bytes),
    /// Blocks of a group, and the values of what is beside them.
    Blocks(Bytes, Vec<[u8; 32]>),
    /// The request waits for its turn: as many are served as may be.
    Waits,
    SealKeys(Vec<String>),
    /// There is a seal of another version under that key, and it stays.
    OtherSeal,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum FoundCopy {
    Good,
    Bad,
    Missing,
}

impl From<Condition> for FoundCopy {
    fn from(condition: Condition) -> FoundCopy {
        match condition {
            Condition::Good => FoundCopy::Good,
            Condition::Bad => FoundCopy::Bad,
            Condition::Missing => FoundCopy::Missing,
        }
    }
}

impl From<FoundCopy> for Condition {
    fn from(found: FoundCopy) -> Condition {
        match found {
            FoundCopy::Good => Condition::Good,
            FoundCopy::Bad => Condition::Bad,
            FoundCopy::Missing => Condition::Missing,
        }
    }
}
