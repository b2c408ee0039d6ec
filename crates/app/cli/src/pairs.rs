//! `eyas pairs`: a program for every pair of files of two sets (All-Pairs, `Miceli10` §3), and the matrix of the numbers that it
//! prints.
//!
//! Which pairs go into one task is decided by [`eyas_pairs`]. Each of these tiles becomes a task with the tile's items as
//! inputs, whose program is this program ([`tile`]). Its result is a small file beside the matrix. When the run has ended, the
//! results are put together ([`matrix`]).
//!
//! The folder of the results also has the plan, so that `--resume` finds the same tiles, whatever the cluster is then. What is up to
//! date is decided as for every list (decision 0018).

use crate::args::{ClusterArgs, ProvideArgs, ResumeArgs};
use crate::environment::EnvArgs;
use crate::fault::bad;
use crate::help::{self, EXIT_STATUS};
use crate::print::{count, plural, reason, size};
use crate::replaces::ReplaceArgs;
use crate::resume::Origin;
use crate::running::{self, run_list, what_is_left};
use crate::{Exit, Fault, connect, map, runtimes};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use eyas_client::JoinFile;
use eyas_pairs::assign::{AssignedPlace, Unusable, assigned};
use eyas_pairs::matrix::Matrix;
use eyas_pairs::records::Records;
use eyas_pairs::tile::{self, Order, RESULT, RecordFile, RecordFiles, SELF, TILE_ARGUMENT};
use eyas_pairs::{
    Chunk, Item, Machine, PAIR_NS_ASSUMED, Refusal, Shape, Sizes, TILE_NS_MAX, Tiling, command,
};
use eyas_storage::{Homes, HomesConfig, Location};
use eyas_tasklist::{FileSet, NAME_BYTES_MAX, TaskList, find_set, fold_tasks, name_of_file, shared_inputs};
use eyas_terms::array::{Command as TaskCommand, GatherHint, Hint, Hints, TaskSpec};
use eyas_terms::needs::Needs;
use eyas_text::{Shell, shown, shown_path};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many cells without a value are named with their reasons.
const MISSING_NAMED: u64 = 10;
const PLAN_FILE: &str = "plan.json";
/// The ending of the folder beside a matrix that is not whole yet.
const TILES: &str = ".tiles";
/// How long a cluster that is up may take to say what it has.
const NODES_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(
    mut_args(|arg| help::short(arg, &["self", "records", "out", "with", "shell", "resume", "dry-run", "join", "nodes", "slots"])),
    after_help = help::MORE,
    after_long_help = EXIT_STATUS
)]
pub struct PairsArgs {
    /// The two sets: each a quoted pattern, a directory, a URL, or @FILE, a list with a file on each line. With --self, one set
    #[arg(value_name = "SET", required = true)]
    pub sets: Vec<String>,
    /// Where the matrix goes: a file that ends in .csv or .npy
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Compare the files of one set with each other
    #[arg(long = "self")]
    pub own: bool,
    /// The items are not files but the records of files: the sequences of FASTA files, or the rows of CSV files, each with the
    /// first row, which has the names of columns
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(Records::NAMES).map(|name| Records::of_name(&name).expect("it is one of the names")))]
    pub records: Option<Records>,
    /// The value of a pair does not depend on the order of its files: half of the matrix is computed, and mirrored
    #[arg(long, requires = "own")]
    pub symmetric: bool,
    /// A pair that fails fails its task, and so the run [default: only its own cell stays empty]
    #[arg(long)]
    pub strict: bool,
    /// Items of each set in one task, such as 20, or of the first and of the second, such as 1x40; a task computes all pairs of
    /// them [default: chosen by caches, sizes and slots]
    #[arg(long, value_name = "ITEMS", value_parser = chunk)]
    pub chunk: Option<Chunk>,
    /// Compute the pairs that this file of JSON names, and no others. Each assignment is one task: {"assignments": [{"rows": ["x",
    /// "y"], "columns": ["z"], "pairs": [["v", "z"]], "resource": "site1", "from": "/data"}]}. Nodes with that resource compute it,
    /// and its files are read from that folder or URL
    #[arg(long, value_name = "FILE", conflicts_with_all = ["chunk", "pair_time"])]
    pub assign: Option<PathBuf>,
    /// How long the program takes for a pair, for the choice of tasks [default: 100ms is assumed]
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    pub pair_time: Option<u64>,
    /// Keep the results of tasks, so that a later --resume computes only what has changed
    #[arg(long)]
    pub keep_tiles: bool,
    /// A further input of every task, such as the script that is run: a file, a quoted pattern, or a directory, whose files are
    /// below its name (may be given more than once)
    #[arg(long, value_name = "FILE")]
    pub with: Vec<String>,
    /// Hand the command to the shell: bash, so that a pipe fails with any of its parts, or sh on nodes without it; --shell=sh and
    /// --shell=bash choose
    #[arg(long, value_name = "SHELL", require_equals = true, value_parser = Shell::of_name)]
    pub shell: Option<Option<Shell>>,
    /// Memory that a task may use; it is ended when it uses more [default: no limit]
    #[arg(long = "task-memory", value_name = "BYTES", value_parser = crate::args::bytes)]
    pub task_memory: Option<u64>,
    /// Time after which a task, with all its pairs, is ended, such as 90s or 1h30m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    pub task_walltime: Option<u64>,
    /// Further attempts of a task after a failure
    #[arg(long, default_value_t = 0)]
    pub retries: u32,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    #[command(flatten)]
    pub resume: ResumeArgs,
    /// Print how the run ended as JSON on standard output, and nothing else there; for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
    /// Join file of a cluster that is up [default: a cluster of its own, for this run]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
    /// The program, with {a} and {b} for the two files of a pair; its last printed number is the pair's value. With {pairs}
    /// instead, it gets a file with the names of the two files of a pair on each line, and prints a number for each
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub fn pairs(args: PairsArgs) -> Result<Exit, Fault> {
    let folder = crate::dirs::working()?;
    let args = PairsArgs { command: map::for_shell(args.shell.flatten(), &args.command), ..args };
    command::Command::parse(&args.command, args.shell.is_some())?;
    let out = Out::of(&args)?;
    let mut with: Vec<(String, String)> = vec![];
    for word in map::with_named(&args.with, &[], &args.command, args.shell.is_some(), &folder) {
        for input in shared_inputs(&word, &folder)? {
            // A pattern and a name may both mean the file.
            if !with.contains(&input) {
                with.push(input);
            }
        }
    }
    let sets = Sets::find(&args, &folder)?;
    let plan = Plan::find(&args, &sets, &out)?;
    if args.resume.resume.is_some() && !args.resume.dry_run {
        forget_failed(&plan, &out.tiles);
    }
    let n_pairs: u64 = plan.tiling.tiles.iter().map(|tile| tile.n_pairs(plan.shape)).sum();
    eyas_text::say!("{} in {}", plural(n_pairs, "pair"), plural(plan.tiling.tiles.len() as u64, "tile"));
    let mut list = task_list(&args, &sets, &plan, &out, &with, &folder)?;
    args.env.add_to(&mut list)?;
    let mut words = vec!["pairs".to_owned()];
    words.extend(args.sets.iter().cloned());
    words.extend(args.command.iter().cloned());
    let origin = Origin::Map { folder, command: words, out: vec![args.out.display().to_string()] };
    let join = args.join.clone().map(JoinFile::named);
    let left = what_is_left(list, origin, &args.resume, join.as_ref())?;
    if args.resume.dry_run {
        return Ok(Exit::Good);
    }
    let exit = match left {
        None => running::nothing_to_do(args.json)?,
        Some(request) => {
            plan.write(&out.tiles)?;
            let cluster = ClusterArgs { provide: args.provide.clone(), ..args.cluster.clone() };
            run_list(request, join.as_ref(), &cluster, args.json)?
        }
    };
    match exit {
        Exit::Good | Exit::TasksFailed => {}
        _ => return Ok(exit),
    }
    collect(&args, &sets, &plan, &out)
}

// ---------------------------------------------------------------- places

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Npy,
}

/// Where the matrix goes, and where the results of tiles are until then.
struct Out {
    path: PathBuf,
    format: Format,
    tiles: PathBuf,
}

impl Out {
    fn of(args: &PairsArgs) -> Result<Out, Fault> {
        let path = std::path::absolute(&args.out)?;
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Format::Csv,
            Some("npy") => Format::Npy,
            _ => {
                let message = format!("--out {} ends neither in .csv nor in .npy", shown_path(&args.out));
                return Err(bad(message).hint("the ending says in which format the matrix is written"));
            }
        };
        if args.replace.no_replace && path.exists() {
            return Err(bad(format!("the run would replace the existing file {}", shown_path(&path)))
                .hint("name another place for the matrix, or leave out --no-replace"));
        }
        let name = path.file_name().unwrap_or_default().as_bytes();
        // With its ending the name of the folder may not be longer than a name can be.
        let mut tiles = OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_MAX - TILES.len())]).to_owned();
        tiles.push(TILES);
        let tiles = path.with_file_name(tiles);
        Ok(Out { path, format, tiles })
    }

    fn tile(&self, n: usize) -> PathBuf {
        self.tiles.join(format!("{n}.tile"))
    }
}

// ---------------------------------------------------------------- sets

/// The items of one set.
struct Set {
    names: Vec<String>,
    sizes: Vec<u64>,
    /// The file of each item; where items are records, the files that have them.
    locations: Vec<String>,
    /// Where items are records: the number of the first item of each file.
    firsts: Vec<u32>,
}

impl Set {
    fn find(word: &str, records: Option<Records>, folder: &Path) -> Result<Set, Fault> {
        let set = find_set(word, folder)?;
        if let Some(first) = set.repeated.first() {
            let n = plural(set.repeated.len() as u64, "file");
            let verb = if set.repeated.len() == 1 { "is" } else { "are" };
            eyas_text::say!(
                "note: {n} of {} {verb} named more than once, among them {}; each has one row or column",
                shown(word),
                shown(first)
            );
        }
        let found = match records {
            None => {
                let sizes = sizes_of(&set)?;
                Set { names: set.names, sizes, locations: set.locations, firsts: vec![] }
            }
            Some(format) => Set::of_records(format, set)?,
        };
        if u32::try_from(found.names.len()).is_err() {
            return Err(bad(format!("the set {} has more than 4,294,967,295 items", shown(word))));
        }
        if let (Some(format), true) = (records, found.names.is_empty()) {
            let what = if format == Records::Fasta { "no sequence" } else { "no row below its first" };
            return Err(bad(format!("the set {} is empty: there is {what} in it", shown(word))));
        }
        Ok(found)
    }

    fn of_records(format: Records, files: FileSet) -> Result<Set, Fault> {
        let homes = Homes::new(HomesConfig::default()).map_err(|e| Fault::new(Exit::Other, e))?;
        let mut set = Set { names: vec![], sizes: vec![], locations: files.locations, firsts: vec![] };
        let mut n_of_name: HashMap<String, u32> = HashMap::new();
        for location in &set.locations {
            set.firsts.push(u32::try_from(set.names.len()).unwrap_or(u32::MAX));
            let parsed = Location::parse(location, Path::new("/"));
            let opened = parsed.and_then(|location| homes.open(&location, None)).map_err(bad)?;
            let split = format.split(opened.reader, |record| {
                // Names of rows and columns differ from each other.
                let n = n_of_name.entry(record.name.clone()).or_default();
                *n += 1;
                let name = if record.name.is_empty() { "record" } else { &record.name };
                set.names.push(if *n > 1 { format!("{name}#{n}") } else { name.to_owned() });
                set.sizes.push(record.bytes.len() as u64);
                Ok(())
            });
            split.map_err(|why| {
                bad(format!("cannot split {} into records: {why}", shown(location)))
                    .hint("--records says how the files of a set are split; without it, each file is an item")
            })?;
        }
        Ok(set)
    }

    /// The files, by their index, that the items of these numbers are in. The numbers ascend.
    fn files_of(&self, items: impl Iterator<Item = u32>) -> BTreeSet<usize> {
        items.map(|n| self.firsts.partition_point(|first| *first <= n) - 1).collect()
    }
}

struct Sets {
    a: Set,
    /// `None`: the first set again.
    b: Option<Set>,
    records: Option<Records>,
    sizes: Sizes,
}

impl Sets {
    fn find(args: &PairsArgs, folder: &Path) -> Result<Sets, Fault> {
        let (a, b) = match (&args.sets[..], args.own) {
            ([a], true) => (a, None),
            ([a, b], false) => (a, Some(b)),
            ([a], false) => {
                return Err(bad(format!("there is one set, {}, and a pair needs two", shown(a))).hint(
                    "name a second set, or add --self to compare the files of one set with each other",
                ));
            }
            (sets, _) => {
                let wanted = if args.own { "one set goes" } else { "two sets go" };
                return Err(bad(format!("{} sets are given, and {wanted} into pairs", sets.len())).hint(
                    "put quotes around a pattern, such as 'a/*.fa', so that the shell leaves it as it is",
                ));
            }
        };
        let find = |word: &String| Set::find(word, args.records, folder);
        let (a, b) = (find(a)?, b.map(find).transpose()?);
        let sizes = match &b {
            Some(b) => Sizes::two(&a.sizes, &b.sizes),
            None => Sizes::own(&a.sizes, args.symmetric),
        };
        Ok(Sets { a, b, records: args.records, sizes })
    }

    fn second(&self) -> &Set {
        self.b.as_ref().unwrap_or(&self.a)
    }

    fn name(&self, item: Item) -> &str {
        match item {
            Item::A(n) => &self.a.names[n as usize],
            Item::B(n) => &self.second().names[n as usize],
        }
    }

    /// What the tiles of a plan are made for: the same sets, chunk and assignments give the same text.
    fn digest(&self, chunk: Option<Chunk>, assignments: Option<&[u8]>) -> String {
        let mut hasher = blake3::Hasher::new();
        for set in [Some(&self.a), self.b.as_ref()] {
            hasher.update(b"\0\0");
            let names = |set: &&Set| if self.records.is_some() { set.names.clone() } else { vec![] };
            for text in set.into_iter().flat_map(|set| set.locations.iter().cloned().chain(names(&set))) {
                hasher.update(text.as_bytes());
                hasher.update(b"\0");
            }
        }
        let chunk = match chunk {
            Some(Chunk { rows, columns }) if rows != columns => format!("{rows}x{columns}"),
            square => format!("{:?}", square.map(|chunk| chunk.rows)),
        };
        hasher.update(format!("{:?} {chunk}", self.sizes.shape()).as_bytes());
        if let Some(text) = assignments {
            hasher.update(b"\0assignments\0");
            hasher.update(text);
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// What the task of a tile reads of its sets: names in the sandbox with locations, and where its records are.
    fn inputs(&self, items: &[Item]) -> (Vec<(String, String)>, Option<RecordFiles>) {
        let file = |folder: String, location: &String| {
            let name = name_of_file(location);
            let name = if name.is_empty() { "item" } else { &name };
            (format!("{folder}/{name}"), location.clone())
        };
        let Some(format) = self.records else {
            let of = |item: &Item| match item {
                Item::A(n) => file(format!("a/{n}"), &self.a.locations[*n as usize]),
                Item::B(n) => file(format!("b/{n}"), &self.second().locations[*n as usize]),
            };
            return (items.iter().map(of).collect(), None);
        };
        let mut inputs = vec![];
        let mut files_of = |letter: &str, set: &Set, items: Vec<u32>| -> Vec<RecordFile> {
            let files = set.files_of(items.into_iter()).into_iter();
            let named = files.map(|k| {
                let (path, location) = file(format!("set-{letter}/{k}"), &set.locations[k]);
                inputs.push((path.clone(), location));
                RecordFile { first: set.firsts[k], path }
            });
            named.collect()
        };
        let a = items.iter().filter_map(|item| if let Item::A(n) = item { Some(*n) } else { None });
        let b = items.iter().filter_map(|item| if let Item::B(n) = item { Some(*n) } else { None });
        let a = files_of("a", &self.a, a.collect());
        let b = files_of("b", self.second(), b.collect());
        (inputs, Some(RecordFiles { format, a, b }))
    }
}

/// The size of each file, as its home says it.
fn sizes_of(set: &FileSet) -> Result<Vec<u64>, Fault> {
    let mut homes = None;
    let mut size = |location: &String| -> Result<u64, Fault> {
        if location.starts_with('/') {
            let meta = std::fs::metadata(location)
                .map_err(|e| bad(format!("cannot look at {}: {}", shown(location), reason(&e))))?;
            return Ok(meta.len());
        }
        let homes = match &mut homes {
            Some(homes) => homes,
            none => none.insert(Homes::new(HomesConfig::default()).map_err(|e| Fault::new(Exit::Other, e))?),
        };
        let parsed = Location::parse(location, Path::new("/"));
        Ok(parsed.and_then(|location| homes.stat(&location)).map_err(bad)?.size_bytes)
    };
    set.locations.iter().map(&mut size).collect()
}

// ---------------------------------------------------------------- the plan

/// The tiles of a run.
#[derive(Serialize, Deserialize)]
struct Plan {
    version: u32,
    /// What the tiles are made for ([`Sets::digest`]).
    sets: String,
    shape: Shape,
    #[serde(flatten)]
    tiling: Tiling,
    /// Of each tile where the user assigned them; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<AssignedPlace>,
}

const PLAN_VERSION: u32 = 2;

impl Plan {
    /// The plan of the run that goes on, or a new one.
    fn find(args: &PairsArgs, sets: &Sets, out: &Out) -> Result<Plan, Fault> {
        let assignments = args.assign.as_deref().map(|file| {
            std::fs::read(file)
                .map_err(|e| bad(format!("cannot read the assignments {}: {}", shown_path(file), reason(&e))))
        });
        let assignments = assignments.transpose()?;
        let digest = sets.digest(args.chunk, assignments.as_deref());
        if args.resume.resume.is_some()
            && let Some(plan) = Plan::read(&out.tiles).filter(|plan| plan.sets == digest)
        {
            return Ok(plan);
        }
        let machine = machine(args)?;
        let (tiling, places) = match (&assignments, &args.assign) {
            (Some(text), Some(file)) => {
                let (rows, columns) = (&sets.a.names, &sets.second().names);
                assigned(text, rows, columns, &sets.sizes, machine.cache_bytes).map_err(|why| match why {
                    Unusable::Sets(refusal) => refused(refusal, sets),
                    Unusable::Text(why) => bad(format!(
                        "the assignments {} cannot be used: {why}",
                        shown_path(file)
                    ))
                    .hint(
                        "rows and columns are called as in the matrix; `eyas pairs --help` shows such a file",
                    ),
                })?
            }
            _ => {
                let tiling = match args.chunk {
                    Some(chunk) => eyas_pairs::grid(&sets.sizes, chunk, &machine),
                    None => eyas_pairs::plan(&sets.sizes, &machine),
                };
                (tiling.map_err(|refusal| refused(refusal, sets))?, vec![])
            }
        };
        Ok(Plan { version: PLAN_VERSION, sets: digest, shape: sets.sizes.shape(), tiling, places })
    }

    fn read(dir: &Path) -> Option<Plan> {
        let text = std::fs::read(dir.join(PLAN_FILE)).ok()?;
        serde_json::from_slice(&text).ok().filter(|plan: &Plan| plan.version == PLAN_VERSION)
    }

    fn write(&self, dir: &Path) -> Result<(), Fault> {
        let cannot = |e: std::io::Error| {
            Fault::new(Exit::Other, format!("cannot keep results in {}: {}", shown_path(dir), reason(&e)))
        };
        std::fs::create_dir_all(dir).map_err(cannot)?;
        std::fs::write(dir.join(PLAN_FILE), serde_json::to_vec(self).expect("a plan is plain data"))
            .map_err(cannot)
    }
}

fn refused(refusal: Refusal, sets: &Sets) -> Fault {
    match refusal {
        Refusal::Empty { is_first } => {
            bad(format!("the {} set has no items", if is_first { "first" } else { "second" }))
        }
        Refusal::TooLarge { row, column, bytes, cache_bytes } => {
            let second = if sets.b.is_some() { Item::B(column) } else { Item::A(column) };
            bad(format!(
                "the pair of {} and {} has {}, and a node's cache takes {}",
                shown(sets.name(Item::A(row))),
                shown(sets.name(second)),
                size(bytes),
                size(cache_bytes)
            ))
            .hint("give nodes a larger cache with --cache")
        }
        Refusal::ChunkTooLarge { bytes, cache_bytes } => bad(format!(
            "the files of a tile of that --chunk have {}, and a node's cache takes {}",
            size(bytes),
            size(cache_bytes)
        ))
        .hint("give a smaller --chunk or a larger --cache, or leave out --chunk"),
        Refusal::TooMany => bad("the sets have more than 4,503,599,627,370,496 pairs"),
    }
}

/// Reads `20` or `1x40`.
fn chunk(text: &str) -> Result<Chunk, String> {
    let (rows, columns) = text.split_once('x').unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..), Ok(columns @ 1..)) => Ok(Chunk { rows, columns }),
        _ => Err("a chunk is a number of items, such as 20, or two such numbers, such as 1x40".into()),
    }
}

/// What is known of the cluster: its options, or what one that is up says.
fn machine(args: &PairsArgs) -> Result<Machine, Fault> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let cluster = &args.cluster;
    let n_nodes = cluster.nodes.max.max(1);
    let mut machine = Machine {
        n_nodes,
        n_slots: cluster.node.slots.unwrap_or((processors / n_nodes).max(1)),
        cache_bytes: cluster.node.cache,
        pair_ns: args.pair_time.unwrap_or(PAIR_NS_ASSUMED),
        tile_ns_max: TILE_NS_MAX,
    };
    if let Some(file) = args.join.clone().map(JoinFile::named) {
        let status = runtimes::client_runtime().block_on(async {
            let mut client = connect::connect(&file).await?;
            match tokio::time::timeout(NODES_PATIENCE, client.status()).await {
                Ok(status) => Ok::<_, Fault>(Some(status?)),
                Err(_) => Ok(None),
            }
        })?;
        let nodes = status.map_or(vec![], |status| status.executors);
        if let (Some(slots), Some(cache)) =
            (nodes.iter().map(|node| node.slots).max(), nodes.iter().map(|node| node.cache_bytes).min())
        {
            machine.n_nodes = nodes.len() as u32;
            machine.n_slots = slots.max(1);
            machine.cache_bytes = cache;
        }
    }
    Ok(machine)
}

// ---------------------------------------------------------------- tasks

fn task_list(
    args: &PairsArgs,
    sets: &Sets,
    plan: &Plan,
    out: &Out,
    with: &[(String, String)],
    folder: &Path,
) -> Result<TaskList, Fault> {
    let place = |path: PathBuf| {
        path.into_os_string()
            .into_string()
            .map_err(|path| bad(format!("the name {} is not UTF-8", shown_path(Path::new(&path)))))
    };
    let mut tasks = Vec::with_capacity(plan.tiling.tiles.len());
    for (n, tile) in plan.tiling.tiles.iter().enumerate() {
        let (mut inputs, records) = sets.inputs(&tile.items(plan.shape));
        let shell = args.shell.is_some();
        let order = Order { shape: plan.shape, tile: tile.clone(), records, strict: args.strict, shell };
        let order = serde_json::to_string(&order).expect("an order is plain data");
        let mut words = vec![SELF.to_owned(), TILE_ARGUMENT.to_owned(), order];
        words.extend(args.command.iter().cloned());
        let at = plan.places.get(n).cloned().unwrap_or_default();
        if let Some(from) = &at.from {
            for (_, location) in &mut inputs {
                *location = read_from(from, location, folder)?;
            }
        }
        inputs.extend(with.iter().cloned());
        let needs =
            at.resource.map(|name| Box::new(Needs { resources: [(name, 1)].into(), ..Needs::default() }));
        let spec = TaskSpec {
            inputs,
            outputs: vec![(RESULT.to_owned(), place(out.tile(n))?)],
            memory_bytes: args.task_memory,
            walltime_ns: args.task_walltime,
            retries: args.retries,
            priority: plan.tiling.priority(n),
            label: "pairs".into(),
            // The tiles were chosen so that each node reads few items. A copy of an item to all nodes would undo that.
            hints: Hints { multicast: Hint::Once, scatter: Hint::Never, gather: GatherHint::Never },
            ..TaskSpec::new(format!("tile-{n}"), TaskCommand::Exec(words))
        };
        tasks.push((spec, needs));
    }
    Ok(fold_tasks(tasks, folder, "eyas pairs")?)
}

/// The file of the same name in the folder or below the URL `from`.
fn read_from(from: &str, location: &str, folder: &Path) -> Result<String, Fault> {
    let name = name_of_file(location);
    let place = Location::parse(from, folder).map_err(bad)?;
    Ok(place.below(&name).map_err(bad)?.to_string())
}

/// Removes results in which some pair failed, so that their tiles are computed again.
fn forget_failed(plan: &Plan, dir: &Path) {
    for n in 0..plan.tiling.tiles.len() {
        let path = dir.join(format!("{n}.tile"));
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let mut has_failed = false;
        let read = tile::read_result(&text, |_, _, cell| has_failed |= cell.is_err());
        if has_failed || read.is_err() {
            let _ = std::fs::remove_file(path);
        }
    }
}

// ---------------------------------------------------------------- the matrix

/// The first few cells without a value, and the number of all.
#[derive(Default)]
struct Missing {
    named: Vec<String>,
    n: u64,
}

impl Missing {
    fn add(&mut self, text: impl FnOnce() -> String) {
        if self.n < MISSING_NAMED {
            self.named.push(text());
        }
        self.n += 1;
    }
}

fn collect(args: &PairsArgs, sets: &Sets, plan: &Plan, out: &Out) -> Result<Exit, Fault> {
    let cannot = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot write the matrix {}: {}", shown_path(&out.path), reason(&e)))
            .hint(format!("the results are in {}", shown_path(&out.tiles)))
    };
    // Under a name of its own until it is whole.
    let part = |ending: &str| {
        let mut path = out.path.clone().into_os_string();
        path.push(format!(".{}.{ending}", std::process::id()));
        PathBuf::from(path)
    };
    let (columns, rows) = (&sets.second().names, &sets.a.names);
    let npy = match out.format {
        Format::Npy => part("part"),
        Format::Csv => crate::dirs::state_dir()?.join(format!("pairs-{}.npy", std::process::id())),
    };
    let mut matrix = Matrix::create(&npy, rows.len(), columns.len()).map_err(cannot)?;
    let mut missing = Missing::default();
    for (n, tile) in plan.tiling.tiles.iter().enumerate() {
        let read =
            std::fs::read_to_string(out.tile(n)).map_err(|e| reason(&e).to_string()).and_then(|text| {
                tile::read_result(&text, |row, column, cell| {
                    let (row, column) = (row as usize, column as usize);
                    match cell {
                        Ok(_) if row >= rows.len() || column >= columns.len() => {}
                        Ok(value) => {
                            matrix.set(row, column, value);
                            if plan.shape == Shape::Half {
                                matrix.set(column, row, value);
                            }
                        }
                        Err(why) => missing.add(|| {
                            let name = |names: &Vec<String>, n: usize| {
                                shown(names.get(n).map_or("?", String::as_str)).to_string()
                            };
                            format!("{} and {}: {why}", name(rows, row), name(columns, column))
                        }),
                    }
                })
            });
        if read.is_err() {
            let n_pairs = tile.n_pairs(plan.shape);
            let first = tile.pairs(plan.shape).next();
            missing.add(|| {
                let (row, column) = first.unwrap_or_default();
                format!(
                    "all {} of task tile-{n}, from {} and {} on: the task has no result (`eyas explain tile-{n}` says why)",
                    plural(n_pairs, "pair"),
                    shown(&rows[row as usize]),
                    shown(&columns[column as usize])
                )
            });
            missing.n += n_pairs.saturating_sub(1);
        }
    }
    match out.format {
        Format::Npy => drop(matrix),
        Format::Csv => {
            let csv = part("part");
            let written = File::create(&csv).and_then(|file| {
                let mut to = BufWriter::with_capacity(1 << 20, file);
                matrix.write_csv(&mut to, rows, columns)?;
                to.flush()
            });
            drop(matrix);
            let _ = std::fs::remove_file(&npy);
            written.map_err(cannot)?;
        }
    }
    std::fs::rename(part("part"), &out.path).map_err(cannot)?;
    let n_cells = rows.len() as u64 * columns.len() as u64;
    // Where pairs are assigned by hand, the other cells are empty, and nothing is missing.
    let n_assigned = plan.tiling.tiles.iter().map(|tile| tile.n_pairs(plan.shape)).sum();
    let what = format!(
        "{} × {} matrix in {}",
        count(rows.len() as u64),
        count(columns.len() as u64),
        shown_path(&out.path)
    );
    if missing.n == 0 {
        match plan.places.is_empty() {
            true => eyas_text::say!("{what}: all {} have a value", plural(n_cells, "cell")),
            false => {
                eyas_text::say!("{what}: all {} that are assigned have a value", plural(n_assigned, "pair"))
            }
        }
        if !args.keep_tiles {
            let _ = std::fs::remove_dir_all(&out.tiles);
        }
        return Ok(Exit::Good);
    }
    let verb = if missing.n == 1 { "has" } else { "have" };
    eyas_text::say!("{what}: {} {verb} no value", plural(missing.n, "pair"));
    missing.named.iter().for_each(|text| eyas_text::say!("  {text}"));
    let n_named = missing.named.len() as u64;
    if missing.n > n_named && n_named == MISSING_NAMED {
        eyas_text::say!("  and more; the empty cells of the matrix are all of them");
    }
    eyas_text::say!("hint: the same command with --resume computes only what is missing");
    Ok(Exit::TasksFailed)
}
