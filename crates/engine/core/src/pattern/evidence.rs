//! The patterns that were found, with the counts that show them; written to the event log and shown by `eyas
//! explain`.

use eyas_terms::ObjectId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The primitive dataflow patterns (`Zhang12` §II-A, figure 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum PatternKind {
    /// One piece of data is read by many tasks of a stage.
    Multicast,
    /// One task writes the files that many tasks read.
    Scatter,
    /// One task reads what many tasks wrote.
    Gather,
    /// A gather whose program may be applied to any part of the files, and is applied to its own output.
    Reduce,
    /// Each task reads what one task wrote for it alone.
    Pipeline,
}

impl PatternKind {
    pub const ALL: [PatternKind; 5] =
        [Self::Multicast, Self::Scatter, Self::Gather, Self::Reduce, Self::Pipeline];

    /// The name as it is spelt in configuration, logs and sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
            Self::Reduce => "reduce",
            Self::Pipeline => "pipeline",
        }
    }

    pub fn by_name(name: &str) -> Option<PatternKind> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

impl fmt::Display for PatternKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pattern that was found.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Evidence {
    pub pattern: PatternKind,
    /// The stage that writes; `None`: the files come from home.
    pub from: Option<String>,
    /// The stage that reads.
    pub to: String,
    /// Further stages: stages that write (gather), or stages that read (scatter).
    #[serde(default)]
    pub others: Vec<String>,
    /// The object that has the pattern, if it is one object, and the name that users know it by.
    pub object: Option<ObjectId>,
    #[serde(default)]
    pub file: Option<String>,
    /// The count that is compared with the threshold: tasks that read the file (multicast; if no object is
    /// named, the most for any file), files that a task writes (scatter) or reads (gather, reduce), 1 for a
    /// pipeline.
    pub count: u32,
    pub threshold: u32,
    /// Tasks of the reading stage that take part, and how many files of the pattern they read.
    pub n_tasks: u64,
    pub n_files: u64,
    /// The pattern holds because the user said so.
    #[serde(default)]
    pub hinted: bool,
}

impl Evidence {
    /// The same evidence, with the name that users know the object by.
    pub fn named(mut self, file: &str) -> Evidence {
        self.file = Some(file.to_owned());
        self
    }

    /// Whether tasks of `stage` take part in the pattern.
    pub fn concerns(&self, stage: &str) -> bool {
        self.to == stage
            || self.from.as_deref() == Some(stage)
            || self.others.iter().any(|other| other == stage)
    }
}

fn plural(n: impl Into<u64>, one: &str) -> String {
    eyas_text::plural(n.into(), one)
}

/// The verb that follows so many tasks.
fn reads<N: PartialEq + From<u8>>(n_tasks: N) -> &'static str {
    if n_tasks == N::from(1) { "reads" } else { "read" }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence { pattern, to, count, n_tasks, n_files, .. } = self;
        let stages = |first: &str| {
            let all: Vec<&str> =
                std::iter::once(first).chain(self.others.iter().map(String::as_str)).collect();
            match &all[..] {
                [one] => format!("stage {one}"),
                [all @ .., last] => format!("stages {} and {last}", all.join(", ")),
                [] => String::new(),
            }
        };
        let from = self.from.as_deref().map_or("from home".to_owned(), |s| match pattern {
            PatternKind::Scatter => format!("of stage {s}"),
            _ => format!("of {}", stages(s)),
        });
        write!(f, "{pattern}: ")?;
        match pattern {
            PatternKind::Multicast => match (&self.file, self.object) {
                (Some(file), _) => {
                    write!(f, "{} of stage {to} {} {file}", plural(*count, "task"), reads(*count))?
                }
                (None, Some(object)) => {
                    write!(f, "{} of stage {to} {} object {object}", plural(*count, "task"), reads(*count))?
                }
                (None, None) => write!(f, "up to {count} tasks of stage {to} read the same file {from}")?,
            },
            PatternKind::Scatter => {
                let from = self.from.as_deref().unwrap_or("?");
                write!(
                    f,
                    "a task of stage {from} writes {}, read by {} of {}",
                    plural(*count, "file"),
                    plural(*n_tasks, "task"),
                    stages(to)
                )?;
            }
            PatternKind::Gather => write!(f, "a task of stage {to} reads {} {from}", plural(*count, "file"))?,
            PatternKind::Reduce if self.hinted => {
                write!(f, "a task of stage {to} reads {} {from}", plural(*count, "file"))?
            }
            PatternKind::Reduce => {
                write!(
                    f,
                    "{} of stage {to} {} {} that the same program wrote, up to {count} at a time, each file once",
                    plural(*n_tasks, "task"),
                    reads(*n_tasks),
                    plural(*n_files, "file"),
                )?;
            }
            PatternKind::Pipeline => {
                write!(
                    f,
                    "{} of stage {to} {} {} {from}, each file by one task",
                    plural(*n_tasks, "task"),
                    reads(*n_tasks),
                    plural(*n_files, "file"),
                )?;
            }
        }
        match (self.hinted, pattern) {
            (true, PatternKind::Reduce) => write!(f, ", and may be applied to any part of them (hint)"),
            (true, _) => write!(f, " (hint)"),
            (false, PatternKind::Pipeline | PatternKind::Reduce) => Ok(()),
            (false, _) => write!(f, " (threshold {})", self.threshold),
        }
    }
}
