//! The rules between the tasks of one list, checked while the list grows.
//!
//! A [`Builder`] takes tasks one by one and keeps them folded. Tasks of one shape stay in order and are
//! collected in one chunk. Chunks of a few shapes are collected side by side, so that a list that alternates
//! between two kinds of task folds as well as two lists.
//!
//! Checked here: names in the sandbox, locations, equal ids, an output that is written or promised twice,
//! circles, and files in directories that are written as a whole.
//!
//! Why the sets keep 32 bits of a hash and a place instead of a string: the strings are in the folded form
//! already, and a list of millions can afford only 12 bytes per id or output. When two hashes are equal, the
//! strings themselves are compared, so a collision costs time but never refuses a good list.

use crate::dataset;
use crate::error::{Error, ErrorKind, Result, shown};
use crate::file::File;
use crate::fold::{Chunk, Shape};
use crate::line::Task;
use crate::location::{self, RUN_FILE};
use eyas_folder::why_not_below;
use eyas_terms::array::{Command, Pattern, Piece, STDERR_NAME, STDOUT_NAME, TaskArray, WATCH_VARIABLE};
use eyas_terms::is_directory;
use eyas_terms::location::is_made_tree;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::BuildHasher;

/// The number of chunks that are collected side by side. A further shape closes the chunk that has waited
/// longest.
const OPEN_MAX: usize = 8;

/// A whole list, checked and folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskList {
    pub arrays: Vec<TaskArray>,
    pub n_tasks: u64,
    /// Inputs that another task of the list writes, counted once per reading task.
    pub n_dependencies: u64,
}

impl TaskList {
    /// The arrays in the form in which they are sent: one at a time, however long the list is.
    pub fn shared_arrays(&self) -> impl Iterator<Item = std::sync::Arc<TaskArray>> {
        self.arrays.iter().cloned().map(std::sync::Arc::new)
    }
}

/// Where the task at a place of the list came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub id: String,
    /// The number that was given to [`Builder::add`].
    pub number: u64,
}

/// Why a task was refused.
pub(crate) enum Refused {
    /// The task is wrong by itself. `at` is where the offending text begins; it may be a copy of what was
    /// read.
    Bad {
        error: Error,
        at: Option<*const u8>,
    },
    SameId {
        id: String,
        first: Origin,
    },
    SameOutput {
        location: String,
        first: Origin,
    },
    /// The task promises a file that another task promises.
    SamePromise {
        location: String,
        first: Origin,
    },
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Bad { error, at: None }
    }
}

/// Blames the text `culprit`.
pub(crate) fn bad(culprit: &str, error: Error) -> Refused {
    Refused::Bad { error, at: Some(culprit.as_ptr()) }
}

/// What has to be checked at the end of the list.
#[derive(Default)]
pub(crate) struct Expected {
    /// Patterns that matched nothing, by their location: a task may write a file of that name.
    pub unmatched: Vec<(String, Error)>,
    /// Directories that were read, ending in `/`: no task may write there. Each with the line and the text of
    /// the input.
    pub directories: Vec<(String, u64, String)>,
}

/// A string of the list: its `hash`, and where it is.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    bundle: u32,
    /// For ids: the task's place in its bundle. For outputs: that place times the outputs per task, plus the
    /// output's number.
    place: u32,
}

/// The tasks of one array, folded or still being collected.
struct Bundle {
    array: Option<TaskArray>,
    numbers: Numbers,
    n_outputs: u32,
}

/// The numbers that were given to the tasks of a bundle.
enum Numbers {
    /// Task `i` has `first + i * step`.
    Even {
        first: u64,
        step: u64,
        n: u64,
    },
    List(Vec<u64>),
}

impl Numbers {
    fn get(&self, i: u32) -> u64 {
        match self {
            Numbers::Even { first, step, .. } => first + step * u64::from(i),
            Numbers::List(numbers) => numbers[i as usize],
        }
    }
    fn push(&mut self, number: u64) {
        match self {
            Numbers::Even { n: 0, .. } => *self = Numbers::Even { first: number, step: 0, n: 1 },
            Numbers::Even { first, step, n } if *n == 1 => (*step, *n) = (number - *first, 2),
            Numbers::Even { first, step, n } if number == *first + *step * *n => *n += 1,
            Numbers::Even { first, step, n } => {
                let mut list: Vec<u64> = (0..*n).map(|i| *first + *step * i).collect();
                list.push(number);
                *self = Numbers::List(list);
            }
            Numbers::List(list) => list.push(number),
        }
    }
}

struct Open {
    bundle: u32,
    chunk: Chunk,
}

pub(crate) struct Builder {
    base: String,
    id_prefix: String,
    bundles: Vec<Bundle>,
    /// The chunk used last is last.
    open: Vec<Open>,
    ids: HashTable<Entry>,
    outputs: HashTable<Entry>,
    /// Labels of data sets that outputs become, with the place of the task.
    labels: BTreeMap<String, (u32, u32)>,
    hasher: DefaultHashBuilder,
    /// The task that promises each file: its bundle and place.
    promises: BTreeMap<String, (u32, u32)>,
    n_tasks: u64,
    /// Some output may be a directory.
    has_directories: bool,
    /// Tasks outside the list may write `run:` files, too.
    is_part: bool,
    expected: Expected,
}

impl Builder {
    /// `base` comes from [`location::base_text`]. A task without an id gets `id_prefix` and its number.
    pub fn new(base: String, id_prefix: &str) -> Builder {
        Builder {
            base,
            id_prefix: id_prefix.into(),
            bundles: Vec::new(),
            open: Vec::new(),
            ids: HashTable::new(),
            outputs: HashTable::new(),
            labels: BTreeMap::new(),
            hasher: DefaultHashBuilder::default(),
            promises: BTreeMap::new(),
            n_tasks: 0,
            has_directories: false,
            is_part: false,
            expected: Expected::default(),
        }
    }

    /// Notes what has to be checked when the list is complete.
    pub fn expect(&mut self, expected: Expected) {
        self.expected = expected;
    }

    /// The list is added to a run that has other tasks.
    pub fn has_others(&mut self) {
        self.is_part = true;
    }

    /// Adds a task; `number` grows from call to call. After an error the builder cannot be used any more.
    pub fn add(&mut self, task: &Task<'_>, number: u64) -> std::result::Result<(), Refused> {
        let at = self.open_for(task);
        let Open { bundle, chunk } = &mut self.open[at];
        let bundle = *bundle;
        let place = chunk.n_tasks();
        push_task(chunk, task, number, &self.id_prefix, &self.base)?;
        check_sandbox(chunk, place, task)?;
        check_outputs_are_not_inputs(chunk, place, task)?;
        self.bundles[bundle as usize].numbers.push(number);
        self.has_directories |= task.outputs.iter().any(|file| file.location.ends_with('/'));

        let place = place as u32;
        if let Some(first) = self.insert(Which::Id, bundle, place, 0) {
            let id = self.open[at].chunk.get(place as usize, 0).to_owned();
            return Err(Refused::SameId { id, first: self.origin(first.bundle, first.place) });
        }
        for k in 0..task.outputs.len() {
            if let Some(first) = self.insert(Which::Output, bundle, place, k as u32) {
                let chunk = &self.open[at].chunk;
                let location = chunk.get(place as usize, chunk.shape.output_slot() + 2 * k).to_owned();
                let n_outputs = self.bundles[first.bundle as usize].n_outputs;
                return Err(Refused::SameOutput {
                    location,
                    first: self.origin(first.bundle, first.place / n_outputs),
                });
            }
        }
        for k in 0..task.outputs.len() {
            let chunk = &self.open[at].chunk;
            let location = chunk.get(place as usize, chunk.shape.output_slot() + 2 * k);
            // A data set of one file has one writer, whatever its path and its tags are.
            let Some(label) = eyas_storage::label_of(location) else { continue };
            if let Some(&(bundle, place)) = self.labels.get(label) {
                let location = format!("data:{label}");
                return Err(Refused::SameOutput { location, first: self.origin(bundle, place) });
            }
            self.labels.insert(label.to_owned(), (bundle, place));
        }
        for location in &task.promises {
            check_promise(task, location)?;
            if let Some((bundle, place)) = self.promises.insert(location.to_string(), (bundle, place)) {
                return Err(Refused::SamePromise {
                    location: location.to_string(),
                    first: self.origin(bundle, place),
                });
            }
        }
        self.n_tasks += 1;
        if self.open[at].chunk.is_full() {
            self.close(at);
        }
        Ok(())
    }

    /// Checks for circles and gives the complete list.
    pub fn finish(mut self) -> Result<TaskList> {
        while !self.open.is_empty() {
            self.close(0);
        }
        self.ids = HashTable::new();
        self.check_promises()?;
        self.check_expected()?;
        self.check_directories()?;
        let n_dependencies = self.check_dependencies()?;
        let arrays = self.bundles.into_iter().filter_map(|g| g.array).collect();
        Ok(TaskList { arrays, n_tasks: self.n_tasks, n_dependencies })
    }

    /// The index in `open` of the chunk for tasks like this one.
    fn open_for(&mut self, task: &Task<'_>) -> usize {
        if let Some(at) = self.open.iter().rposition(|o| is_of_shape(task, &o.chunk.shape)) {
            let open = self.open.remove(at);
            self.open.push(open);
        } else {
            if self.open.len() == OPEN_MAX {
                self.close(0);
            }
            let bundle = self.bundles.len() as u32;
            let numbers = Numbers::Even { first: 0, step: 0, n: 0 };
            self.bundles.push(Bundle { array: None, numbers, n_outputs: task.outputs.len() as u32 });
            self.open.push(Open { bundle, chunk: Chunk::new(shape_of(task)) });
        }
        self.open.len() - 1
    }

    fn close(&mut self, at: usize) {
        let Open { bundle, chunk } = self.open.remove(at);
        if chunk.n_tasks() > 0 {
            let bundle = &mut self.bundles[bundle as usize];
            bundle.array = Some(chunk.fold(bundle.numbers.get(0)));
        }
    }

    fn origin(&self, bundle: u32, place: u32) -> Origin {
        let id =
            with_text(&self.bundles, &self.open, Which::Id, bundle, place, &mut String::new(), str::to_owned);
        Origin { id, number: self.bundles[bundle as usize].numbers.get(place) }
    }

    /// Adds a string, which is in the list already, to its set; gives the equal string that was there before.
    fn insert(&mut self, which: Which, bundle: u32, place: u32, k: u32) -> Option<Entry> {
        let (bundles, open) = (&self.bundles, &self.open);
        let n_outputs = bundles[bundle as usize].n_outputs;
        let place = match which {
            Which::Id => place,
            Which::Output => place * n_outputs + k,
        };
        let mut scratch = String::new();
        with_text(bundles, open, which, bundle, place, &mut scratch, |text| {
            let set = if which == Which::Id { &mut self.ids } else { &mut self.outputs };
            let hash = self.hasher.hash_one(text) as u32;
            let found = find(set, bundles, open, which, hash, text);
            if found.is_none() {
                set.insert_unique(spread(hash), Entry { hash, bundle, place }, |e| spread(e.hash));
            }
            found
        })
    }

    /// Checks that no task promises a file that a task of the list writes.
    fn check_promises(&self) -> Result<()> {
        for (location, (bundle, place)) in &self.promises {
            if let Some(entry) = self.find_output(location) {
                let n_outputs = self.bundles[entry.bundle as usize].n_outputs;
                let (writer, promiser) =
                    (self.origin(entry.bundle, entry.place / n_outputs), self.origin(*bundle, *place));
                let message = format!(
                    "task {} promises {}, which task {} writes",
                    shown(&promiser.id),
                    shown(location),
                    shown(&writer.id)
                );
                return Err(Error::new(ErrorKind::Conflict, message)
                    .hint("a promise is for what a task that is added later writes; leave it out")
                    .field("promises")
                    .at(promiser.number, None));
            }
        }
        Ok(())
    }

    /// Checks that each pattern without a match is the name of a file that a task writes, and that no task
    /// writes into a directory that is read.
    fn check_expected(&mut self) -> Result<()> {
        let Expected { unmatched, directories } = std::mem::take(&mut self.expected);
        let unwritten = unmatched.into_iter().find(|(location, _)| self.find_output(location).is_none());
        if let Some((_, error)) = unwritten {
            return Err(error);
        }
        if directories.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for array in self.bundles.iter().filter_map(|bundle| bundle.array.as_ref()) {
            for ((_, location), i) in
                array.template.outputs.iter().flat_map(|o| (0..array.n_tasks).map(move |i| (o, i)))
            {
                text.clear();
                array.fill_into(location, i, &mut text);
                let within = directories.iter().find(|(directory, ..)| text.starts_with(directory));
                let Some((_, number, directory)) = within else { continue };
                let writer = array.fill(&array.template.id, i);
                let message = format!(
                    "`inputs`: the directory {} is read as it is now, and task {} of the list writes {} there",
                    shown(directory),
                    shown(&writer),
                    shown(&text)
                );
                return Err(Error::new(ErrorKind::Conflict, message)
                    .hint("name the files that other tasks write one by one, so that the task waits for them")
                    .field("inputs")
                    .at(*number, None));
            }
        }
        Ok(())
    }

    /// A directory is written as a whole: no other task may write below it, and no task may read a part of
    /// it.
    fn check_directories(&self) -> Result<()> {
        if !self.has_directories {
            return Ok(());
        }
        let writer = |entry: Entry| {
            let n_outputs = self.bundles[entry.bundle as usize].n_outputs;
            self.origin(entry.bundle, entry.place / n_outputs)
        };
        let mut text = String::new();
        for array in self.bundles.iter().filter_map(|bundle| bundle.array.as_ref()) {
            for ((_, location), i) in
                array.template.outputs.iter().flat_map(|o| (0..array.n_tasks).map(move |i| (o, i)))
            {
                text.clear();
                array.fill_into(location, i, &mut text);
                let Some((above, entry)) = self.written_above(&text).filter(|_| text.starts_with('/')) else {
                    continue;
                };
                let id = array.fill(&array.template.id, i);
                let message = format!(
                    "task {} writes {}, which lies in the directory {} that task {} writes as a whole",
                    shown(&id),
                    shown(&text),
                    shown(above),
                    shown(&writer(entry).id)
                );
                return Err(Error::new(ErrorKind::Conflict, message)
                    .hint("one of them would take the other one's away; give them different places")
                    .field("outputs"));
            }
        }
        let mut found = None;
        self.for_each_input(&mut |maker, reader, location| {
            if maker.is_some() || found.is_some() {
                return;
            }
            let (other, way) = match location.strip_suffix('/') {
                Some(file) => (file.to_owned(), "write it without the `/` at its end"),
                None => (format!("{location}/"), "write it with a `/` at its end"),
            };
            if let Some(entry) = self.find_output(&other) {
                let what = if is_directory(&other) { "a directory" } else { "a file" };
                let said = format!("which task {} writes as {what}", shown(&writer(entry).id));
                found = Some((reader, location.to_owned(), said, way.to_owned()));
            } else if let Some((above, entry)) = self.written_above(location) {
                let (id, above) = (writer(entry).id, shown(above));
                let said = format!("which lies in the directory {above} that task {} writes", shown(&id));
                found = Some((reader, location.to_owned(), said, format!("let it read all of {above}")));
            }
        });
        let Some((reader, location, said, way)) = found else { return Ok(()) };
        let reader = self.task_at(&self.starts(), reader);
        let message = format!("task {} reads {}, {said}", shown(&reader.id), shown(&location));
        Err(Error::new(ErrorKind::Conflict, message).hint(way).field("inputs").at(reader.number, None))
    }

    /// The directory above `location` that a task writes, if there is one.
    fn written_above<'t>(&self, location: &'t str) -> Option<(&'t str, Entry)> {
        let ends = location.match_indices('/').map(|(at, _)| &location[..=at]);
        ends.filter(|above| above.len() < location.len() && is_directory(above))
            .find_map(|above| Some((above, self.find_output(above)?)))
    }

    fn find_output(&self, location: &str) -> Option<Entry> {
        let hash = self.hasher.hash_one(location) as u32;
        find(&self.outputs, &self.bundles, &self.open, Which::Output, hash, location)
    }

    /// Counts dependencies; an error names the tasks of a circle.
    ///
    /// As long as every task reads only what tasks before it write, the list itself is an order that works,
    /// and the edges need not even be collected.
    ///
    /// A file that stays on the nodes must have a writer in the list, or a task that promises it: nobody else
    /// could make it. The readers of a promised file wait at least for the promising task, so that task may
    /// be part of a circle, too.
    fn check_dependencies(&self) -> Result<u64> {
        let mut n_dependencies = 0;
        let mut goes_back = false;
        let mut unwritten = None;
        self.for_each_input(&mut |writer, reader, location| match writer {
            Some(writer) => {
                n_dependencies += 1;
                goes_back |= writer >= reader;
            }
            None if location.starts_with(RUN_FILE) && unwritten.is_none() => {
                unwritten = Some((reader, location.to_owned()))
            }
            None => {}
        });
        if let Some((reader, location)) = unwritten.filter(|_| !self.is_part) {
            return Err(self.unwritten_error(reader, &location));
        }
        if goes_back {
            let mut edges = Vec::with_capacity(n_dependencies as usize);
            self.for_each_input(&mut |writer, reader, _| edges.extend(writer.map(|writer| (writer, reader))));
            if let Some(circle) = find_circle(&edges) {
                return Err(self.circle_error(&circle));
            }
        }
        Ok(n_dependencies)
    }

    /// The task with this number, counted through all bundles.
    fn task_at(&self, starts: &[u64], task: u64) -> Origin {
        let bundle = starts.partition_point(|s| *s <= task) - 1;
        self.origin(bundle as u32, (task - starts[bundle]) as u32)
    }

    fn unwritten_error(&self, reader: u64, location: &str) -> Error {
        let origin = self.task_at(&self.starts(), reader);
        let message = format!("task {} reads {}, which no task writes", shown(&origin.id), shown(location));
        Error::new(ErrorKind::NotFound, message)
            .hint("a run: file is made by a task of the same list, or promised by one; name a file at home by its path")
            .field("inputs")
            .at(origin.number, None)
    }

    fn circle_error(&self, circle: &[u64]) -> Error {
        const NAMED_MAX: usize = 8;
        let starts = self.starts();
        let names: Vec<String> = circle
            .iter()
            .take(NAMED_MAX)
            .map(|task| {
                let origin = self.task_at(&starts, *task);
                format!("{} (line {})", shown(&origin.id), origin.number)
            })
            .collect();
        let more = match circle.len() - names.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Error::new(
            ErrorKind::Conflict,
            format!(
                "tasks wait for each other in a circle, each reads what the one before it writes: {}{more}",
                names.join(", ")
            ),
        )
        .hint("break the circle by renaming one of their outputs or inputs")
        .field("inputs")
    }

    /// The numbers of the tasks, counted through all bundles, at which the bundles start.
    fn starts(&self) -> Vec<u64> {
        let mut start = 0;
        self.bundles
            .iter()
            .map(|g| {
                let this = start;
                start += g.array.as_ref().map_or(0, |a| u64::from(a.n_tasks));
                this
            })
            .collect()
    }

    /// Calls `f` with the writer in the list, if there is one, the reader and the location of each input. All
    /// bundles are folded. Inputs that cannot depend on anything are left out.
    fn for_each_input(&self, f: &mut dyn FnMut(Option<u64>, u64, &str)) {
        let starts = self.starts();
        let writer_of = |text: &str| {
            if let Some((bundle, place)) = self.promises.get(text) {
                return Some(starts[*bundle as usize] + u64::from(*place));
            }
            let entry = self.find_output(text)?;
            let bundle = entry.bundle as usize;
            Some(starts[bundle] + u64::from(entry.place / self.bundles[bundle].n_outputs))
        };
        let mut text = String::new();
        for (bundle, start) in self.bundles.iter().zip(&starts) {
            let Some(array) = &bundle.array else { continue };
            for (_, location) in &array.template.inputs {
                if self.outputs.is_empty() && self.promises.is_empty() && !array.may_begin(location, RUN_FILE)
                {
                    continue;
                }
                let is_same = location.0.iter().all(|piece| matches!(piece, Piece::Literal(_)));
                let mut writer = None;
                for i in 0..array.n_tasks {
                    if i == 0 || !is_same {
                        text.clear();
                        array.fill_into(location, i, &mut text);
                        writer = writer_of(&text);
                    }
                    f(writer, start + u64::from(i), &text);
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Which {
    Id,
    Output,
}

/// Calls `f` with the string at a place, in a folded bundle or an open chunk.
fn with_text<R>(
    bundles: &[Bundle],
    open: &[Open],
    which: Which,
    bundle: u32,
    place: u32,
    scratch: &mut String,
    f: impl FnOnce(&str) -> R,
) -> R {
    let Bundle { array, n_outputs, .. } = &bundles[bundle as usize];
    let (task, k) = match which {
        Which::Id => (place, 0),
        Which::Output => (place / n_outputs, (place % n_outputs) as usize),
    };
    let Some(array) = array else {
        let chunk = &open.iter().find(|o| o.bundle == bundle).expect("a bundle is folded or open").chunk;
        let slot = if which == Which::Id { 0 } else { chunk.shape.output_slot() + 2 * k };
        return f(chunk.get(task as usize, slot));
    };
    let pattern: &Pattern = match which {
        Which::Id => &array.template.id,
        Which::Output => &array.template.outputs[k].1,
    };
    scratch.clear();
    array.fill_into(pattern, task, scratch);
    f(scratch)
}

fn find(
    set: &HashTable<Entry>,
    bundles: &[Bundle],
    open: &[Open],
    which: Which,
    hash: u32,
    text: &str,
) -> Option<Entry> {
    let mut scratch = String::new();
    let is_equal = |e: &Entry| {
        e.hash == hash
            && with_text(bundles, open, which, e.bundle, e.place, &mut scratch, |other| other == text)
    };
    set.find(spread(hash), is_equal).copied()
}

/// The hash table uses bits from both ends of the 64.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn is_of_shape(task: &Task<'_>, shape: &Shape) -> bool {
    argc_of(task) == shape.argc
        && task.inputs.len() == shape.n_inputs
        && task.outputs.len() == shape.n_outputs
        && task.env.len() == shape.n_env
        && task.cpus == shape.cpus
        && task.needs == shape.needs
        && task.memory_bytes == shape.memory_bytes
        && task.walltime_ns == shape.walltime_ns
        && task.retries == shape.retries
        && task.priority == shape.priority
        && task.label == shape.label
        && task.dynamic == shape.dynamic
        && task.hints == shape.hints
        && task.promises == shape.promises
}

fn shape_of(task: &Task<'_>) -> Shape {
    Shape {
        argc: argc_of(task),
        n_inputs: task.inputs.len(),
        n_outputs: task.outputs.len(),
        n_env: task.env.len(),
        cpus: task.cpus,
        needs: task.needs.clone(),
        memory_bytes: task.memory_bytes,
        walltime_ns: task.walltime_ns,
        retries: task.retries,
        priority: task.priority,
        label: task.label.clone().into_owned(),
        dynamic: task.dynamic,
        hints: task.hints,
        promises: task.promises.iter().map(|name| name.clone().into_owned()).collect(),
    }
}

fn argc_of(task: &Task<'_>) -> Option<usize> {
    match &task.command {
        Command::Exec(argv) => Some(argv.len()),
        Command::Shell(_) => None,
    }
}

type Pushed = std::result::Result<(), Refused>;

fn check_promise(task: &Task<'_>, location: &str) -> Pushed {
    let why = match location::push_location(&mut String::new(), location, "/") {
        Err(e) => return Err(e.field("promises").into()),
        Ok(()) if !location.starts_with(RUN_FILE) => {
            "only a file that stays on the nodes, run:NAME, can be promised"
        }
        Ok(()) if !task.dynamic => "a task that promises files has to be one that may add tasks",
        Ok(()) => return Ok(()),
    };
    let error = Error::invalid(format!("`promises`: {why}")).field("promises");
    Err(match task.dynamic {
        true => error.into(),
        false => error.hint("say `\"dynamic\": true`").into(),
    })
}

/// Appends the strings of `task` to `chunk`, in the order of its slots, each checked.
fn push_task(chunk: &mut Chunk, task: &Task<'_>, number: u64, id_prefix: &str, base: &str) -> Pushed {
    let id: Cow<'_, str> = match &task.id {
        Some(id) => {
            if id.is_empty() || id.chars().any(char::is_control) {
                let why = if id.is_empty() { "is empty" } else { "holds control characters" };
                return Err(bad(id, Error::invalid(format!("the `id` {why}")).field("id")));
            }
            Cow::Borrowed(id)
        }
        None => format!("{id_prefix}{number}").into(),
    };
    push_text(chunk, "id", &id)?;
    match &task.command {
        Command::Exec(argv) => {
            if argv.first().is_none_or(|program| program.is_empty()) {
                return Err(Error::invalid("`command` names no program").field("command").into());
            }
            argv.iter().try_for_each(|word| push_text(chunk, "command", word))?;
        }
        Command::Shell(line) => {
            if line.trim().is_empty() {
                return Err(bad(line, Error::invalid("`command` is blank").field("command")));
            }
            push_text(chunk, "command", line)?;
        }
    }
    task.inputs.iter().try_for_each(|file| push_file(chunk, "inputs", file, base))?;
    for file in &task.outputs {
        match dataset::whole(task, file, &id, base)? {
            Some(location) => {
                let whole = File { location: location.into(), name: file.name.clone() };
                push_file(chunk, "outputs", &whole, base)?;
            }
            None => push_file(chunk, "outputs", file, base)?,
        }
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (name, value) in &task.env {
        let why = if name.is_empty() {
            Some("a variable in `env` has no name".to_owned())
        } else if name.contains('=') {
            Some(format!("the variable {} in `env` has a `=` in its name", shown(name)))
        } else if !names.insert(name) {
            Some(format!("the variable {} is in `env` twice", shown(name)))
        } else {
            None
        };
        if let Some(why) = why {
            return Err(bad(name, Error::invalid(why).field("env")));
        }
        push_text(chunk, "env", name)?;
        match (&**name, value.is_empty()) {
            (WATCH_VARIABLE, true) => push_text(chunk, "env", if base.is_empty() { "/" } else { base })?,
            (WATCH_VARIABLE, false) => push(chunk, "env", |out| {
                let pushed = location::push_location(out, value, base);
                pushed.map_err(|e| {
                    bad(value, Error::invalid(format!("{WATCH_VARIABLE}: {}", e.message)).field("env"))
                })
            })?,
            _ => push_text(chunk, "env", value)?,
        }
    }
    Ok(())
}

fn push_text(chunk: &mut Chunk, field: &str, text: &str) -> Pushed {
    if text.contains('\0') {
        let error = Error::invalid(format!("`{field}` holds a NUL byte, which no program can be given"));
        return Err(bad(text, error.field(field)));
    }
    push(chunk, field, |out| {
        out.push_str(text);
        Ok(())
    })
}

fn push(chunk: &mut Chunk, field: &str, write: impl FnOnce(&mut String) -> Pushed) -> Pushed {
    match chunk.push_with(write)? {
        Some(_) => Ok(()),
        None => Err(Error::invalid("the task has more than 4 GiB of text").field(field).into()),
    }
}

fn push_file(chunk: &mut Chunk, field: &str, file: &File<'_>, base: &str) -> Pushed {
    let mut start = 0;
    let mut derived = None;
    let mut is_whole = false;
    push(chunk, field, |out| {
        start = out.len();
        location::push_location(out, &file.location, base).map_err(|e| {
            let named = match &file.name {
                Some(name) => format!(" {}", shown(name)),
                None => String::new(),
            };
            let message = format!("`{field}`{named}: {}", e.message);
            let hint = e.hint.clone();
            let error = Error::invalid(message).field(field);
            bad(
                &file.location,
                match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                },
            )
        })?;
        if file.name.is_none() {
            derived = Some(location::file_name(&out[start..]).into_owned());
        }
        is_whole = is_directory(&out[start..]);
        if is_whole && field == "outputs" && format!("{base}/").starts_with(&out[start..]) {
            let message = format!(
                "`outputs`: the directory {} has the list itself in it, and would be replaced as a whole",
                shown(&file.location)
            );
            return Err(bad(&file.location, Error::invalid(message).field(field)));
        }
        Ok(())
    })?;
    let name = file.name.as_deref().or(derived.as_deref()).unwrap_or("");
    if is_whole && [STDOUT_NAME, STDERR_NAME].contains(&name) {
        let message =
            format!("{} names a directory, and what is printed goes to a file", shown(&file.location));
        return Err(bad(&file.location, Error::invalid(message).field(field)));
    }
    // The location says that it is a directory; a final `/` in the name means the same.
    let name = if is_whole { name.strip_suffix('/').unwrap_or(name) } else { name };
    if let Some(why) = why_not_below(name.as_bytes()) {
        let culprit = file.name.as_ref().unwrap_or(&file.location);
        let error = match file.name {
            Some(_) => {
                let hint = match name.ends_with('/') {
                    true => "a directory as a whole has a location that ends in `/`, too",
                    false => "names in the sandbox are relative paths without `.`, `..` and empty parts",
                };
                Error::invalid(format!("`{field}`: the name {} {why}", shown(name))).hint(hint)
            }
            None => {
                Error::invalid(format!("`{field}`: {} gives no name in the sandbox", shown(&file.location)))
                    .hint("write an object: {\"name in the sandbox\": \"location\"}")
            }
        };
        return Err(bad(culprit, error.field(field)));
    }
    push(chunk, field, |out| {
        out.push_str(name);
        Ok(())
    })
}

/// Checks that no two files of task `i` have the same place in its sandbox, and that none is below another.
/// An input directory is an exception, as it is the task's own copy.
fn check_sandbox(chunk: &Chunk, i: usize, task: &Task<'_>) -> Pushed {
    let shape = &chunk.shape;
    let n_files = shape.n_inputs + shape.n_outputs;
    if n_files < 2 {
        return Ok(());
    }
    let name = |k: usize| chunk.get(i, shape.input_slot() + 2 * k + 1);
    // Nothing can be put into a directory that is shared.
    let is_open = |k: usize| {
        let location = || chunk.get(i, shape.input_slot() + 2 * k);
        k < shape.n_inputs && is_directory(location()) && !is_made_tree(location())
    };
    let is_within = |a: usize, b: usize| is_within(name(a), name(b)) && (name(a) == name(b) || !is_open(b));
    let clash = if n_files <= 8 {
        (0..n_files)
            .flat_map(|a| (0..a).map(move |b| (b, a)))
            .find(|&(b, a)| is_within(a, b) || is_within(b, a))
    } else {
        // Sorted part by part, the names below a name follow it directly.
        let mut sorted: Vec<usize> = (0..n_files).collect();
        sorted.sort_by(|&a, &b| name(a).split('/').cmp(name(b).split('/')));
        sorted.windows(2).map(|w| (w[0], w[1])).find(|&(a, b)| is_within(b, a))
    };
    let Some((a, b)) = clash else { return Ok(()) };
    let side = |k: usize| if k < shape.n_inputs { "input" } else { "output" };
    let message = if name(a) != name(b) {
        format!("{} is a file of the sandbox and the directory of {}", shown(name(a)), shown(name(b)))
    } else if side(a) == side(b) {
        format!("two {}s are named {} in the sandbox", side(a), shown(name(a)))
    } else {
        format!(
            "an input and an output are both named {} in the sandbox; inputs are read-only",
            shown(name(a))
        )
    };
    let k = a.max(b);
    let (field, file) = match k.checked_sub(shape.n_inputs) {
        None => ("inputs", &task.inputs[k]),
        Some(k) => ("outputs", &task.outputs[k]),
    };
    let error = Error::invalid(message).field(field);
    Err(match &file.name {
        Some(name) => bad(name, error),
        None => bad(&file.location, error.hint("write an object: {\"name in the sandbox\": \"location\"}")),
    })
}

/// Whether `name` is the same as `top`, or below it.
fn is_within(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_outputs_are_not_inputs(chunk: &Chunk, i: usize, task: &Task<'_>) -> Pushed {
    let shape = &chunk.shape;
    let location = |slot: usize, k: usize| chunk.get(i, slot + 2 * k);
    // A sorted look-up only where comparing all with all would be slow.
    let inputs: Option<BTreeMap<&str, ()>> = (shape.n_inputs * shape.n_outputs > 64)
        .then(|| (0..shape.n_inputs).map(|k| (location(shape.input_slot(), k), ())).collect());
    for (k, file) in task.outputs.iter().enumerate() {
        let output = location(shape.output_slot(), k);
        let is_input = match &inputs {
            Some(inputs) => inputs.contains_key(output),
            None => (0..shape.n_inputs).any(|k| location(shape.input_slot(), k) == output),
        };
        if is_input {
            let error = Error::invalid(format!("the task writes {}, which it reads", shown(output)))
                .hint("write the output to another place");
            return Err(bad(&file.location, error.field("outputs")));
        }
    }
    Ok(())
}

/// Finds tasks that wait for each other, in order: each reads what the one before it writes, and the first
/// what the last writes. `edges` are (writer, reader). Removes, again and again, the tasks that wait for none
/// (Kahn62).
fn find_circle(edges: &[(u64, u64)]) -> Option<Vec<u64>> {
    let mut tasks: Vec<u64> = edges.iter().flat_map(|(w, r)| [*w, *r]).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let place = |task: u64| tasks.binary_search(&task).unwrap_or(0);
    let mut edges: Vec<(usize, usize)> = edges.iter().map(|(w, r)| (place(*w), place(*r))).collect();
    edges.sort_unstable();
    let mut n_waits = vec![0usize; tasks.len()];
    edges.iter().for_each(|(_, r)| n_waits[*r] += 1);
    let mut free: Vec<usize> = (0..tasks.len()).filter(|t| n_waits[*t] == 0).collect();
    while let Some(writer) = free.pop() {
        let from = edges.partition_point(|(w, _)| *w < writer);
        for (_, reader) in edges[from..].iter().take_while(|(w, _)| *w == writer) {
            n_waits[*reader] -= 1;
            if n_waits[*reader] == 0 {
                free.push(*reader);
            }
        }
    }
    // Every task that is left waits for another one that is left, so going back from writer to writer must
    // meet itself.
    let mut writer_of: BTreeMap<usize, usize> = BTreeMap::new();
    for (w, r) in &edges {
        if n_waits[*w] > 0 && n_waits[*r] > 0 {
            writer_of.insert(*r, *w);
        }
    }
    let mut path = vec![*writer_of.keys().next()?];
    loop {
        let writer = writer_of[path.last()?];
        if let Some(at) = path.iter().position(|t| *t == writer) {
            let mut circle: Vec<u64> = path[at..].iter().map(|t| tasks[*t]).collect();
            circle.reverse();
            return Some(circle);
        }
        path.push(writer);
    }
}
