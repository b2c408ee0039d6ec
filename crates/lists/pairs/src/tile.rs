//! One tile on a node: the user's program for each of its pairs, and a small file with the results.
//!
//! The tile's task starts this program, `eyas`, again, in a sandbox with the items of the tile: item `i` of the first set is the
//! only file in `a/i`, item `j` of the second set the only file in `b/j`. A node finds `eyas` as [`SELF`]: the process that starts
//! a task's program is a slot process of the executor, which runs the executor's own program.
//!
//! A result is text, one line for each pair: its row, its column, and its value, or `!` and the reason why there is none.
//! A pair that fails costs only itself, unless the user wants it otherwise. A program that cannot be started at all ends the tile.

use crate::command::{Command, Hole, last_number};
use crate::records::Records;
use crate::{Item, Shape, Tile};
use eyas_text::{line_of, reason, shown};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

/// First argument of the process that computes a tile.
pub const TILE_ARGUMENT: &str = "__pairs";
/// The program of the process that starts this one.
pub const SELF: &str = "/proc/self/exe";
/// The result's name in the sandbox.
pub const RESULT: &str = "tile";
/// The first line of a result. The number changes when the format does.
const HEAD: &str = "eyas tile 1";
const PAIRS_FILE: &str = "pairs.txt";
/// At most so many bytes at the end of what a program printed are read.
const PRINTED_MAX: u64 = 64 << 10;
const REASON_CHARS_MAX: usize = 200;

/// What a tile's process is told, as JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Order {
    pub shape: Shape,
    pub tile: Tile,
    /// The items are records of these files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordFiles>,
    /// A pair that fails fails the tile.
    pub strict: bool,
    pub shell: bool,
}

/// The files in the sandbox that the records of a tile are in, for each set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordFiles {
    pub format: Records,
    pub a: Vec<RecordFile>,
    pub b: Vec<RecordFile>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordFile {
    /// The number of the file's first record in its set.
    pub first: u32,
    pub path: String,
}

/// A value, or why there is none.
pub type Cell = Result<f64, String>;

/// The process of one tile: its exit status.
pub fn tile_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { status, message }) => {
            eyas_text::say!("error: {message}");
            ExitCode::from(status)
        }
    }
}

struct Failed {
    status: u8,
    message: String,
}

fn failed(message: impl std::fmt::Display) -> Failed {
    Failed { status: 1, message: message.to_string() }
}

fn run() -> Result<(), Failed> {
    let mut words = std::env::args_os().skip(2).map(|word| {
        word.into_string().map_err(|word| failed(format!("the word {} is not UTF-8", word.display())))
    });
    let order = words.next().ok_or_else(|| failed("a tile's process needs an order"))??;
    let order: Order =
        serde_json::from_slice(order.as_bytes()).map_err(|e| failed(format!("the order is not one: {e}")))?;
    let words = words.collect::<Result<Vec<String>, Failed>>()?;
    let command = Command::parse(&words, order.shell).map_err(|e| failed(e.message.clone()))?;
    if let Some(records) = &order.records {
        take_out(records, &order)?;
    }
    let a = items("a")?;
    let b = match order.shape {
        Shape::Two => items("b")?,
        Shape::Own | Shape::Half => a.clone(),
    };
    let mut result = Writer::new(Path::new(RESULT)).map_err(|e| failed(reason(&e)))?;
    let mut runner = Runner::new().map_err(|e| failed(reason(&e)))?;
    let find = |set: &HashMap<u32, String>, n: u32| {
        set.get(&n).cloned().ok_or_else(|| failed(format!("item {n} of the tile is not in its sandbox")))
    };
    let pairs = order
        .tile
        .pairs(order.shape)
        .map(|(row, column)| Ok((row, column, find(&a, row)?, find(&b, column)?)));
    if command.takes_many {
        let pairs = pairs.collect::<Result<Vec<_>, Failed>>()?;
        let cells = many(&command, &mut runner, &pairs, order.strict)?;
        for ((row, column, ..), cell) in pairs.iter().zip(cells) {
            result.add(*row, *column, &cell).map_err(|e| failed(reason(&e)))?;
        }
    } else {
        for pair in pairs {
            let (row, column, a, b) = pair?;
            let fill = |hole| if hole == Hole::A { a.clone() } else { b.clone() };
            let cell = one(&command.filled(fill), &mut runner)?;
            if let (true, Err(why)) = (order.strict, &cell) {
                return Err(failed(format!("the pair of {} and {} failed: {why}", shown(&a), shown(&b))));
            }
            result.add(row, column, &cell).map_err(|e| failed(reason(&e)))?;
        }
    }
    result.finish().map_err(|e| failed(reason(&e)))
}

/// Takes the records of a tile out of their files, each into a file of its own.
fn take_out(records: &RecordFiles, order: &Order) -> Result<(), Failed> {
    let items: BTreeSet<Item> = order.tile.items(order.shape).into_iter().collect();
    let sets: [(&str, &Vec<RecordFile>, fn(u32) -> Item); 2] =
        [("a", &records.a, Item::A), ("b", &records.b, Item::B)];
    for (folder, files, item) in sets {
        for RecordFile { first, path } in files {
            let cannot =
                |why: String| failed(format!("cannot take the records out of {}: {why}", shown(path)));
            let file = File::open(path).map_err(|e| cannot(reason(&e).to_string()))?;
            let mut n = *first;
            let split = records.format.split(file, |record| {
                if items.contains(&item(n)) {
                    let folder = Path::new(folder).join(n.to_string());
                    let to = folder.join(records.format.file_name(&record.name));
                    std::fs::create_dir_all(&folder)
                        .and_then(|()| std::fs::write(&to, &record.bytes))
                        .map_err(|e| reason(&e).to_string())?;
                }
                n += 1;
                Ok(())
            });
            split.map_err(cannot)?;
        }
    }
    Ok(())
}

/// The items of a set that are in the sandbox, by number.
fn items(set: &str) -> Result<HashMap<u32, String>, Failed> {
    let cannot = |e: std::io::Error| failed(format!("cannot look at the items of the tile: {}", reason(&e)));
    let mut items = HashMap::new();
    for folder in std::fs::read_dir(set).map_err(cannot)? {
        let folder = folder.map_err(cannot)?;
        let Some(n) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for item in std::fs::read_dir(folder.path()).map_err(cannot)? {
            let path = item.map_err(cannot)?.path();
            let text = path.to_str().ok_or_else(|| failed("the name of an item is not UTF-8"))?;
            items.insert(n, text.to_owned());
        }
    }
    Ok(items)
}

/// The value of one pair.
fn one(words: &[String], runner: &mut Runner) -> Result<Cell, Failed> {
    let ended = runner.run(words)?;
    if !ended.success() {
        return Ok(Err(runner.why(ended)));
    }
    let printed = runner.printed();
    Ok(last_number(&printed).ok_or_else(|| match printed.trim().lines().last() {
        None => "the program printed nothing".into(),
        Some(line) => format!("the program printed no number; its last line is {}", shown(line)),
    }))
}

type Pair = (u32, u32, String, String);

/// The values of many pairs from one program.
fn many(command: &Command, runner: &mut Runner, pairs: &[Pair], strict: bool) -> Result<Vec<Cell>, Failed> {
    let file = File::create(PAIRS_FILE).map_err(|e| failed(reason(&e)))?;
    let mut file = BufWriter::new(file);
    for (_, _, a, b) in pairs {
        writeln!(file, "{a}\t{b}").map_err(|e| failed(reason(&e)))?;
    }
    file.flush().map_err(|e| failed(reason(&e)))?;
    let ended = runner.run(&command.filled(|_| PAIRS_FILE.into()))?;
    let why = match ended.success() {
        false => runner.why(ended),
        true => {
            let printed = runner.all_printed().map_err(|e| failed(reason(&e)))?;
            let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
            if lines.len() == pairs.len() {
                let no_number = |line: &str| format!("there is no number in its line {}", shown(line));
                let cells: Vec<Cell> =
                    lines.iter().map(|line| last_number(line).ok_or_else(|| no_number(line))).collect();
                match cells.iter().find_map(|cell| cell.as_ref().err()).filter(|_| strict) {
                    Some(why) => return Err(failed(why)),
                    None => return Ok(cells),
                }
            }
            format!("the program printed {} lines for {} pairs", lines.len(), pairs.len())
        }
    };
    match strict {
        true => Err(failed(why)),
        false => Ok(vec![Err(why); pairs.len()]),
    }
}

/// Starts one program after the other, with its two streams into files that are emptied in between: a program may leave processes
/// behind that hold a pipe open for ever.
struct Runner {
    stdout: File,
    stderr: File,
}

fn unnamed_file() -> std::io::Result<File> {
    // A dot keeps it out of the way of patterns in the user's command.
    let name = format!(".eyas-{}", std::process::id());
    let file = OpenOptions::new().read(true).append(true).create(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

impl Runner {
    fn new() -> std::io::Result<Runner> {
        Ok(Runner { stdout: unnamed_file()?, stderr: unnamed_file()? })
    }

    fn run(&mut self, words: &[String]) -> Result<ExitStatus, Failed> {
        let (program, arguments) = words.split_first().expect("a command has words");
        let own = |file: &File| -> Result<Stdio, Failed> {
            file.set_len(0).and_then(|()| file.try_clone()).map(Stdio::from).map_err(|e| failed(reason(&e)))
        };
        // A program that came along as a further input is in the sandbox, which no search finds.
        let is_here = !program.contains('/') && Path::new(program).is_file();
        let program = if is_here { format!("./{program}") } else { program.clone() };
        let status = std::process::Command::new(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(own(&self.stdout)?)
            .stderr(own(&self.stderr)?)
            .status();
        status.map_err(|e| Failed {
            status: 127,
            message: format!("cannot start {}: {}", shown(&program), reason(&e)),
        })
    }

    fn printed(&mut self) -> String {
        tail(&mut self.stdout)
    }

    fn all_printed(&mut self) -> std::io::Result<String> {
        let mut text = vec![];
        self.stdout.seek(SeekFrom::Start(0))?;
        self.stdout.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Why a program failed, with the last line that it wrote to its standard error.
    fn why(&mut self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("the program ended with exit status {code}"),
            (None, Some(signal)) => format!("the program was ended by signal {signal}"),
            (None, None) => "the program did not end well".to_owned(),
        };
        match tail(&mut self.stderr).trim().lines().last() {
            Some(line) if !line.trim().is_empty() => format!("{how}: {}", line.trim()),
            _ => how,
        }
    }
}

/// The end of a file as text.
fn tail(file: &mut File) -> String {
    let mut text = vec![];
    let length = file.metadata().map_or(0, |meta| meta.len());
    let start = length.saturating_sub(PRINTED_MAX);
    let _ = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    // The first line may have lost its beginning.
    match start > 0 {
        true => text.split_once(char::is_whitespace).map_or(String::new(), |(_, rest)| rest.to_owned()),
        false => text,
    }
}

struct Writer(BufWriter<File>);

impl Writer {
    fn new(path: &Path) -> std::io::Result<Writer> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "{HEAD}")?;
        Ok(Writer(file))
    }

    fn add(&mut self, row: u32, column: u32, cell: &Cell) -> std::io::Result<()> {
        match cell {
            // The shortest text that is read back as the same number.
            Ok(value) => writeln!(self.0, "{row} {column} {value:?}"),
            Err(why) => {
                let why = line_of(why).at_most(REASON_CHARS_MAX);
                writeln!(self.0, "{row} {column} ! {why}")
            }
        }
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Calls `each` with row, column and value of each line of a result.
pub fn read_result(text: &str, mut each: impl FnMut(u32, u32, Cell)) -> Result<(), String> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(format!("it does not begin with `{HEAD}`"));
    }
    for line in lines {
        let bad = || format!("there is a line {} in it", shown(line));
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (Some(row), Some(column)) = (number(), number()) else { return Err(bad()) };
        let cell = match words.next() {
            Some(text) if text.starts_with("! ") => Err(text[2..].to_owned()),
            Some(text) => Ok(text.parse().map_err(|_| bad())?),
            None => return Err(bad()),
        };
        each(row, column, cell);
    }
    Ok(())
}
