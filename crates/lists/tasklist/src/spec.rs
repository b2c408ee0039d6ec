//! The request of a map: what it is over, and what each task runs.

use crate::source::Source;
use eyas_terms::needs::Needs;
use std::ops::Range;
use std::path::PathBuf;

/// The request of `eyas map`.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// Paths, URLs and patterns; one task for each file. A path that exists is never read as a pattern.
    pub paths: Vec<String>,
    /// Further sources: there is one task for each combination.
    pub more: Vec<Source>,
    /// If set: one task for each number instead.
    pub range: Option<Range<u64>>,
    /// Further inputs of every task, under their file names.
    pub with: Vec<String>,
    /// The image of the container that every task runs in.
    pub container: Option<String>,
    /// Templates of the outputs' locations.
    pub out: Vec<String>,
    /// The last of `out` is the directory of all files that the program makes besides its outputs.
    pub keep_new: bool,
    /// Templates of the command's words.
    pub command: Vec<String>,
    /// Join the words with spaces and hand them to the shell.
    pub shell: bool,
    /// A task's id is this prefix and its input, or its number in a range.
    pub id_prefix: String,
    /// Rounded up, at least 1.
    pub cpus: u32,
    /// Gpus, named resources, and a part of a cpu.
    pub needs: Needs,
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    pub retries: u32,
    pub priority: i32,
    pub label: String,
    /// Relative paths are taken from here.
    pub base_dir: PathBuf,
}

impl Default for MapSpec {
    fn default() -> MapSpec {
        MapSpec {
            paths: Vec::new(),
            more: Vec::new(),
            range: None,
            with: Vec::new(),
            container: None,
            out: Vec::new(),
            keep_new: false,
            command: Vec::new(),
            shell: false,
            id_prefix: String::new(),
            cpus: 1,
            needs: Needs::default(),
            memory_bytes: None,
            walltime_ns: None,
            retries: 0,
            priority: 0,
            label: String::new(),
            base_dir: ".".into(),
        }
    }
}

impl MapSpec {
    /// Whether output `k` is the directory of all new files.
    pub(crate) fn is_all_new(&self, k: usize) -> bool {
        self.keep_new && k + 1 == self.out.len()
    }
}
