//! The shape of what one stage reads of another, by counts alone.
//!
//! In: [`Counts`] of files, reads, writers and readers. Out: one [`Shape`]. No threshold is used, so the
//! result says what a flow *is* and not what pays. `eyas graph` uses it to draw a workflow, and
//! [`super::Patterns`] to find pipelines and reduces while a run goes on. A gather of two files is a gather
//! here; whether it is worth a collective depends on the thresholds of [`super::PatternConfig`].
//!
//! Not here: the counting.

/// What moves from the tasks of one stage to those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub n_files: u64,
    /// The number of pairs of a task and a file that it reads.
    pub n_reads: u64,
    pub n_writers: u64,
    pub n_readers: u64,
    /// The reading program is the one that writes.
    pub is_own: bool,
}

/// See [`shape`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shape {
    /// Each reader has its own file, and each writer one reader.
    Pipeline,
    /// The same files for many readers.
    Multicast,
    /// Files of few writers, each for another reader.
    Scatter,
    /// Files of many writers for one reader, or in groups for fewer readers.
    Gather,
    /// A gather by a program that also gathers its own output.
    Reduce,
    /// Many to many without any of these structures.
    Exchange,
    /// No files: one stage waits for the other.
    Order,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Shape::Pipeline => "pipeline",
            Shape::Multicast => "multicast",
            Shape::Scatter => "scatter",
            Shape::Gather => "gather",
            Shape::Reduce => "reduce",
            Shape::Exchange => "exchange",
            Shape::Order => "order",
        }
    }
}

/// The shape of a flow, by the first of these rules that holds:
///
/// * no files: order;
/// * as many files, writers and readers, each file read once: pipeline (also one to one);
/// * files are read more than once and each reader reads all of them: multicast;
/// * each file is read once, by fewer tasks than there are files: gather, and reduce if the program reads its own;
/// * each file is read once, by more tasks than write: scatter;
/// * files are read by at least twice as many tasks as write them: multicast;
/// * else: exchange.
pub fn shape(counts: &Counts) -> Shape {
    let &Counts { n_files, n_reads, n_writers, n_readers, is_own } = counts;
    let once = n_reads == n_files;
    match () {
        () if n_files == 0 => Shape::Order,
        () if once && n_writers == n_readers && n_files == n_readers => Shape::Pipeline,
        () if n_readers > 1 && n_reads == n_files.saturating_mul(n_readers) => Shape::Multicast,
        () if once && n_readers < n_files.max(n_writers) && n_readers <= n_writers => match is_own {
            true => Shape::Reduce,
            false if n_writers == n_readers => Shape::Pipeline,
            false => Shape::Gather,
        },
        () if once => Shape::Scatter,
        () if n_readers >= n_writers.saturating_mul(2) => Shape::Multicast,
        () => Shape::Exchange,
    }
}
