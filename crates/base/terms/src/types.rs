//! The vocabulary: identifiers, time, digests and outcomes, which all other crates use.
//!
//! Identifiers are newtypes over small integers, so that two of them cannot be swapped and a
//! million of them stay cheap. Units end the name: `_ns` is nanoseconds, `_bytes` bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id!(/// One unit of work. Dense and in submission order, so it also breaks ties in every queue.
    TaskId(u64));
id!(/// One try at a task, counted from 1. `(TaskId, AttemptNo)` names a try for ever.
    AttemptNo(u32));
id!(/// A named immutable sequence of bytes, as numbered by one state machine (never on disk).
    ObjectId(u32));
id!(/// A process that runs tasks on one node and owns that node's cache.
    ExecutorId(u32));
id!(/// What one submission makes: the unit that a user waits for, cancels and reports on.
    RunId(u32));
id!(/// One folded group of tasks, see [`crate::array::TaskArray`].
    ArrayId(u32));
id!(/// A user whose runs share the cluster with those of others, as numbered by one dispatcher; 0: nobody in particular.
    OwnerId(u32));
id!(/// One dispatcher of a group, counted from 0 (people count from 1).
    MemberId(u32));
id!(/// The event that made an action necessary; actions and messages carry it for explanations.
    CauseId(u64));

/// The state of a node, as its dispatcher sees it. In messages and in JSON, a state is written as its name.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, Debug)]
#[serde(into = "&'static str", try_from = "String")]
pub enum NodeState {
    #[default]
    Connected,
    /// The connection to its executor is broken, and its work is not given up yet. It may be draining as well.
    Silent,
    /// The node takes no new tasks, and leaves when it has none left.
    Draining,
}

impl NodeState {
    pub const ALL: [NodeState; 3] = [NodeState::Connected, NodeState::Silent, NodeState::Draining];
}

impl From<NodeState> for &'static str {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::Connected => "connected",
            NodeState::Silent => "silent",
            NodeState::Draining => "draining",
        }
    }
}

impl TryFrom<String> for NodeState {
    type Error = &'static str;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        NodeState::ALL
            .into_iter()
            .find(|state| <&str>::from(*state) == word)
            .ok_or("no state of a node is called so")
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad((*self).into())
    }
}

/// Nanoseconds since an origin that the driver chose (live: the UNIX epoch; simulated: 0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default, Debug)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Nanoseconds from `earlier` to `self`, 0 when the clock stepped back.
    pub fn since_ns(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
    /// The moment `ns` nanoseconds later.
    pub fn plus_ns(self, ns: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ns))
    }
}

/// A BLAKE3 digest of an object's bytes. Text form: 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl std::str::FromStr for Digest {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let mut d = [0u8; 32];
        if s.len() != 64 || !s.is_ascii() {
            return Err(format!("a digest has 64 hex digits, not {}", s.len()));
        }
        for (i, b) in d.iter_mut().enumerate() {
            *b = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).map_err(|_| format!("`{s}` is not hex"))?;
        }
        Ok(Digest(d))
    }
}
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
    }
}
impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
        } else {
            <[u8; 32]>::deserialize(d).map(Digest)
        }
    }
}

/// The version of an object that home reported when it was read: enough to notice a later change.
#[derive(Clone, Serialize, Deserialize, Debug, Default)]
pub struct HomeVersion {
    /// Size at home.
    pub size_bytes: u64,
    /// An adaptor's opaque stamp (modification time, ETag); equal stamps mean equal content. What follows a line break is what
    /// programs are shown of the object beside its bytes, and is not compared.
    pub stamp: Arc<str>,
}

impl PartialEq for HomeVersion {
    fn eq(&self, other: &HomeVersion) -> bool {
        let compared = |version: &HomeVersion| version.stamp.find('\n').unwrap_or(version.stamp.len());
        self.size_bytes == other.size_bytes && self.stamp[..compared(self)] == other.stamp[..compared(other)]
    }
}

impl Eq for HomeVersion {}

/// What a file's maker gave it beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Marks {
    /// When the file was last modified, since 1970.
    pub modified_ns: i64,
    /// The file's permission bits.
    pub mode: u32,
}

/// Where the bytes of one requested input came from. Each request is counted once, from this value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum CacheOutcome {
    /// In this node's cache when the attempt was assigned.
    LocalHit,
    /// Copied from another executor's cache.
    RemoteHit { from: ExecutorId },
    /// Another attempt on this node was already fetching it; this one joined that transfer.
    Joined,
    /// Read from home storage.
    Miss,
    /// Not cached at all: read straight from home for this attempt only (`first-available`, or an
    /// object larger than the cache). Counts as a miss.
    Direct,
    /// Home is this node's own disk; nothing was copied.
    InPlace,
    /// Made on this node, of another input.
    Made,
}

/// How an attempt ended, as far as the node that ran it can tell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit status 0, every declared output made and its digest recorded.
    Done,
    /// The program ran and ended badly.
    Failed(Failure),
    /// A user asked for the end.
    Cancelled,
}

/// Why an attempt failed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    /// One sentence for users: what happened, to which thing, what was tried.
    pub message: String,
}

/// Classifies failures by who could repair them; decides whether another attempt may help.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Exit status other than 0.
    ExitCode(i32),
    /// Ended by a signal that eyas did not send.
    Signal(i32),
    /// Ran over its declared wall time and was ended.
    Walltime,
    /// Ran over its declared memory and was ended.
    Memory,
    /// The program could not be started (not found, not executable).
    NotStarted,
    /// An input could not be had from any replica or from home.
    InputUnavailable,
    /// An input at home is not what it was when this run first read it.
    InputChanged,
    /// A declared output was not there when the program ended.
    OutputMissing,
    /// An output could not be brought home.
    StageOut,
    /// The node could not do its part (disk full, sandbox could not be made).
    Node,
    /// The executor was lost too many times while this task was on it.
    ExecutorLost,
    /// The task asks for more than any executor has, or its inputs fit no cache.
    NeverFits,
    /// The program wrote to an input, or takes no files that are linked; the attempt is repeated with private copies.
    InputModified,
    /// Files that stay on the nodes did not fit into this node's cache beside the objects that have to stay.
    CacheFull,
    /// An input that exists only on nodes could not be had from any of the nodes that were asked; it may be
    /// made again.
    InputLost,
    /// The inputs of the task are larger than the whole disk of the node; another node may have a larger one.
    DiskTooSmall,
    /// The program failed while the disk that it shared with others may have had no room for all of them. It
    /// is tried again, in the end with the disk to itself.
    DiskShared,
    /// The files of the task that stay on the nodes are larger than this node's cache can ever be; another
    /// node may have a larger one.
    CacheTooSmall,
    /// Nodes ended at their walltime while the task ran, although it had most of their time.
    CutOff,
    /// An input that nodes make of a packed file could not be made: the file is damaged, or the transform failed.
    InputUnmakeable,
}

impl FailureKind {
    /// Whether the fault lies with the node, the storage or the network, not with the task: such
    /// attempts are tried again elsewhere without using up the user's `retries`.
    pub fn is_weather(self) -> bool {
        matches!(
            self,
            Self::Node
                | Self::ExecutorLost
                | Self::InputModified
                | Self::CacheFull
                | Self::InputLost
                | Self::DiskTooSmall
                | Self::DiskShared
                | Self::CacheTooSmall
        )
    }
    /// Whether trying again can never help.
    pub fn is_final(self) -> bool {
        matches!(self, Self::NeverFits | Self::InputChanged | Self::NotStarted | Self::CutOff)
    }
}

#[cfg(test)]
mod tests {
    use super::NodeState;

    #[test]
    fn a_state_of_a_node_is_its_word() {
        for state in NodeState::ALL {
            let quoted = format!("\"{state}\"");
            assert_eq!(serde_json::to_string(&state).expect("a word"), quoted);
            assert_eq!(serde_json::from_str::<NodeState>(&quoted).expect("a state"), state);
        }
        assert_eq!(format!("{:<10}|", NodeState::Silent), "silent    |");
        assert!(serde_json::from_str::<NodeState>("\"asleep\"").is_err());
    }
}
