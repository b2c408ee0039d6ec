//! Where a task is in its life, in one word: what answers, stories and tables of a task say.
//!
//! The word stands in messages, in JSON for programs and in sentences for people. It is written here and nowhere else.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where a task is in its life. In messages and in JSON it is its [`TaskPhase::word`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskPhase {
    /// Its submission is still arriving.
    Submitting,
    /// Other tasks have to end first.
    Waiting,
    /// In the queue.
    Ready,
    /// An executor has it, and its program has not started.
    Reserved,
    Running,
    /// Its program ended well, and its outputs are on their way home.
    Landing,
    /// It has ended, and the journal does not have that yet.
    Ending,
    Done,
    Failed,
    Cancelled,
    /// It had not ended when the log did.
    #[default]
    Unfinished,
}

impl TaskPhase {
    const ALL: [TaskPhase; 11] = [
        TaskPhase::Submitting,
        TaskPhase::Waiting,
        TaskPhase::Ready,
        TaskPhase::Reserved,
        TaskPhase::Running,
        TaskPhase::Landing,
        TaskPhase::Ending,
        TaskPhase::Done,
        TaskPhase::Failed,
        TaskPhase::Cancelled,
        TaskPhase::Unfinished,
    ];

    pub fn word(self) -> &'static str {
        match self {
            TaskPhase::Submitting => "submitting",
            TaskPhase::Waiting => "waiting",
            TaskPhase::Ready => "ready",
            TaskPhase::Reserved => "reserved",
            TaskPhase::Running => "running",
            TaskPhase::Landing => "landing",
            TaskPhase::Ending => "ending",
            TaskPhase::Done => "done",
            TaskPhase::Failed => "failed",
            TaskPhase::Cancelled => "cancelled",
            TaskPhase::Unfinished => "unfinished",
        }
    }

    /// The phase of that word; `None` if there is none.
    pub fn by_word(word: &str) -> Option<TaskPhase> {
        TaskPhase::ALL.into_iter().find(|phase| phase.word() == word)
    }
}

impl std::fmt::Display for TaskPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for TaskPhase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for TaskPhase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TaskPhase, D::Error> {
        let word = String::deserialize(deserializer)?;
        let unknown = || serde::de::Error::custom(format!("no task is `{word}`"));
        TaskPhase::by_word(&word).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_a_word_of_its_own() {
        for phase in TaskPhase::ALL {
            assert_eq!(TaskPhase::by_word(phase.word()), Some(phase));
            let json = serde_json::to_string(&phase).expect("a word is JSON");
            assert_eq!(json, format!("\"{phase}\""));
            assert_eq!(serde_json::from_str::<TaskPhase>(&json).expect("a word of ours"), phase);
        }
        let error = serde_json::from_str::<TaskPhase>("\"lost\"").expect_err("no such phase");
        assert!(error.to_string().starts_with("no task is `lost`"), "{error}");
    }
}
