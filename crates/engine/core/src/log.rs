//! The grammar of the event log: JSON lines, the same live, simulated and replayed.
//!
//! A log is a sequence of *lives*, one per dispatcher process. Each starts with a [`Header`]; every later
//! line is a [`Line`]: an event that went into the core, or an action that came out, in that order and with
//! the time that the core was given, or [`LostLines`] in place of lines that the disk did not take. The output of programs is in a second file, of [`PrintedLine`]s and
//! [`FailureLine`]s.
//! `docs/reference/event-log.md` describes both for users.
//!
//! Not here: files. `eyas-runtime` writes them, `eyas-report` reads them.

use crate::dispatcher::DispatcherConfig;
use crate::event::{Action, Event};
use eyas_terms::*;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// Version of the grammar.
pub const LOG_VERSION: u32 = 1;
/// Names of the two files in a dispatcher's directory.
pub const EVENTS_FILE: &str = "events.jsonl";
pub const PRINTED_FILE: &str = "printed.jsonl";

/// How every header begins. It cannot occur inside another line: quotes in strings are escaped there.
pub const HEADER_START: &[u8] = br#"{"eyas_event_log":"#;

/// First line of a life.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Header {
    /// [`LOG_VERSION`].
    pub eyas_event_log: u32,
    pub eyas_version: String,
    pub t: Timestamp,
    /// The core's whole configuration, so that a replay makes the same core.
    pub config: DispatcherConfig,
    pub cluster: String,
    /// The life began earlier than this log: lines of forgotten runs are gone, and `t` is the time of the
    /// first line that is kept. Such a life cannot be replayed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Any later line.
#[derive(Clone, PartialEq, Deserialize, Debug)]
#[serde(try_from = "LineForm")]
pub struct Line {
    pub t: Timestamp,
    pub what: What,
}

#[derive(Clone, PartialEq, Debug)]
pub enum What {
    In(Event),
    Out(Action),
    Lost(LostLines),
}

/// Stands where the log lacks lines: its disk took none, and memory did not hold them until it did.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct LostLines {
    pub lines: u64,
    /// The times of the first and the last of them.
    pub from: Timestamp,
    pub until: Timestamp,
}

impl LostLines {
    /// Both together.
    pub fn and(self, other: LostLines) -> LostLines {
        LostLines {
            lines: self.lines.saturating_add(other.lines),
            from: self.from.min(other.from),
            until: self.until.max(other.until),
        }
    }
}

/// A line as it stands in a log. With `#[serde(flatten)]` each would be parsed twice, by twice as much code.
#[derive(Deserialize)]
struct LineForm {
    t: Timestamp,
    r#in: Option<Event>,
    out: Option<Action>,
    lost: Option<LostLines>,
}

impl TryFrom<LineForm> for Line {
    type Error = &'static str;

    fn try_from(form: LineForm) -> Result<Line, &'static str> {
        let what = match (form.r#in, form.out, form.lost) {
            (Some(event), None, None) => What::In(event),
            (None, Some(action), None) => What::Out(action),
            (None, None, Some(lost)) => What::Lost(lost),
            _ => return Err("it must have either `in` or `out`, or `lost`"),
        };
        Ok(Line { t: form.t, what })
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_struct("Line", 2)?;
        line.serialize_field("t", &self.t)?;
        match &self.what {
            What::In(event) => line.serialize_field("in", event)?,
            What::Out(action) => line.serialize_field("out", action)?,
            What::Lost(lost) => line.serialize_field("lost", lost)?,
        }
        line.end()
    }
}

/// What one attempt printed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct PrintedLine {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub stdout: PrintedStream,
    pub stderr: PrintedStream,
}

/// Why a task has failed, beside what its attempts printed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct FailureLine {
    pub task: TaskId,
    pub failure: Failure,
}

/// Adds what an attempt printed to what its task printed so far. A dispatcher that was started again hears it once more where the
/// one before it was killed before the attempt's end was recorded, and may have written it.
pub fn add_printed<T: PartialEq>(known: &mut Vec<T>, printed: T) {
    if !known.contains(&printed) {
        known.push(printed);
    }
}

/// The first and the last part of a stream; the bytes between them, `total_bytes` less both, are missing.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct PrintedStream {
    pub head: PrintedBytes,
    pub tail: PrintedBytes,
    pub total_bytes: u64,
}

/// Printed bytes as they came. In a log they are a text where they are UTF-8, and otherwise `{"hex":"…"}`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
#[serde(from = "PrintedForm", into = "PrintedForm")]
pub struct PrintedBytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PrintedForm {
    Text(String),
    Other { hex: String },
}

impl From<PrintedBytes> for PrintedForm {
    fn from(bytes: PrintedBytes) -> PrintedForm {
        String::from_utf8(bytes.0).map_or_else(
            |other| PrintedForm::Other {
                hex: other.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
            },
            PrintedForm::Text,
        )
    }
}

impl From<PrintedForm> for PrintedBytes {
    /// What is no hexadecimal number, which nobody wrote, is left out.
    fn from(form: PrintedForm) -> PrintedBytes {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        PrintedBytes(match form {
            PrintedForm::Text(text) => text.into_bytes(),
            PrintedForm::Other { hex } => hex.as_bytes().chunks(2).filter_map(byte).collect(),
        })
    }
}

impl From<&str> for PrintedBytes {
    fn from(text: &str) -> PrintedBytes {
        PrintedBytes(text.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::collective::{Choice, Expectation, LinkModel, Way};
    use crate::dispatcher::CollectiveMode;
    use crate::event::{Action, Assignment, Event, Why};
    use eyas_terms::*;

    #[test]
    fn printed_bytes_come_back_as_they_were() {
        for bytes in [&b""[..], b"a\nb", "größe".as_bytes(), b"\xff\x00a\xc3", b"{\"hex\":1}"] {
            let bytes = super::PrintedBytes(bytes.into());
            let written = serde_json::to_string(&bytes).expect("bytes are JSON");
            assert_eq!(serde_json::from_str::<super::PrintedBytes>(&written).expect("they are read"), bytes);
            assert_eq!(written.starts_with('"'), std::str::from_utf8(&bytes.0).is_ok());
        }
    }

    #[test]
    fn a_line_is_an_event_or_an_action() {
        let line = super::Line { t: Timestamp(7), what: super::What::In(Event::Ticked) };
        let written = serde_json::to_string(&line).expect("a line is JSON");
        assert_eq!(written, r#"{"t":7,"in":"ticked"}"#);
        assert_eq!(serde_json::from_str::<super::Line>(&written).expect("it is read"), line);
        for wrong in [r#"{"t":7}"#, r#"{"t":7,"in":"ticked","out":"ticked"}"#] {
            assert!(serde_json::from_str::<super::Line>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn expectations_in_logs_with_their_earlier_name_are_read() {
        let choice = Choice {
            way: Way::Binomial,
            predicted_ns: 1,
            considered: vec![],
            expectation: Some(Expectation { expected_ns: 2, doubt: 1.5 }),
            link: LinkModel::default(),
        };
        let written = serde_json::to_string(&choice).expect("a choice is JSON");
        let earlier = written.replacen("\"expectation\":", "\"told\":", 1);
        assert_ne!(written, earlier);
        assert_eq!(serde_json::from_str::<Choice>(&earlier).expect("the earlier name"), choice);
    }

    #[test]
    fn reruns_in_logs_with_their_earlier_name_are_read() {
        let assignment = Assignment {
            task: TaskId(1),
            attempt: AttemptNo(1 << 15),
            run: RunId(1),
            cpus: 1,
            inputs: vec![],
            outputs: vec![ObjectId(2)],
            staying: vec![0],
            private_inputs: false,
            repeated: false,
            alone: false,
            needs: None,
            why: Why::default(),
        };
        let action = Action::RerunTask { executor: ExecutorId(3), assignment: Box::new(assignment) };
        let written = serde_json::to_string(&action).expect("an action is JSON");
        assert!(written.starts_with(r#"{"rerun_task":"#), "{written}");
        let earlier = written.replacen("rerun_task", "replicate_task", 1);
        assert_eq!(serde_json::from_str::<Action>(&earlier).expect("the earlier name"), action);
        for name in ["task-rerun", "task-replication"] {
            let quoted = format!("\"{name}\"");
            assert_eq!(serde_json::from_str::<Way>(&quoted).expect("a way"), Way::TaskRerun);
            let mode = serde_json::from_str::<CollectiveMode>(&quoted).expect("a mode");
            assert_eq!((mode, CollectiveMode::by_name(name)), (CollectiveMode::TaskRerun, Some(mode)));
        }
    }
}
