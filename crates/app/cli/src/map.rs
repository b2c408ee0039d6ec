//! `eyas map`: one command over files, parameters and tables, as tasks.

use crate::args::{Amount, amount};
use crate::args::{ClusterArgs, ResumeArgs, bytes, duration};
use crate::data::check_outputs;
use crate::environment::{EnvArgs, WatchArgs};
use crate::equipment;
use crate::help::{self, EXIT_STATUS};
use crate::hints::{self, MapWords};
use crate::print::{plural, reason};
use crate::programs;
use crate::replaces::{self, ReplaceArgs};
use crate::resume::Origin;
use crate::running::{RunRequest, may_print, nothing_to_do, run_list, what_is_left};
use crate::{Exit, Fault, workflow};
use clap::Args;
use eyas_client::JoinFile;
use eyas_storage::pattern::matches;
use eyas_tasklist::{ListInput, MapSpec, Source, Table, TaskList};
use eyas_text::{Shell, shown, shown_path};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Words among the files of a map that begin a further source, as in GNU parallel.
const COMBINE: &str = ":::";
const GO_ALONG: &str = ":::+";

/// The heading of options about a task.
const EACH_TASK: &str = "Each task";

/// What tasks of a map have in common.
#[derive(Args)]
#[command(
    mut_args(|arg| help::short(arg, &["param", "csv", "range", "out", "with", "shell", "env", "retries", "resume", "dry-run", "join", "slots"])),
    after_help = help::MORE,
    after_long_help = EXIT_STATUS
)]
pub struct MapArgs {
    /// Files, URLs or quoted patterns: each file makes one task. `-` reads names from standard input. Each file after
    /// `:::` is combined with each file before it; files after `:::+` are paired with the files before it, in their
    /// order
    #[arg(value_name = "FILES")]
    pub paths: Vec<String>,
    /// A parameter and its values: A,B,C or numbers A..B or A..B:STEP, without B; 001..101 keeps its zeros. Each value makes a task, in
    /// combination with all files and other parameters; {NAME} in the command is the value (may be given more than once)
    #[arg(long = "param", value_name = "NAME=VALUES", value_parser = parameter)]
    pub params: Vec<Parameter>,
    /// A table with a header: each row makes one task, and the names of its columns are holes in the command, such as
    /// {sample}
    #[arg(long, value_name = "FILE", conflicts_with = "tsv")]
    pub csv: Option<PathBuf>,
    /// The same, with tabs between columns
    #[arg(long, value_name = "FILE")]
    pub tsv: Option<PathBuf>,
    /// Columns of the table that name files, which become inputs
    #[arg(long = "files", value_name = "COLUMN,...", value_delimiter = ',')]
    pub file_columns: Vec<String>,
    /// One task for each number A..B instead of files
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub range: Option<std::ops::Range<u64>>,
    /// Where the output goes: a path or URL with {stem}, {name}, {index}, {//}, ... (may be given more than once)
    #[arg(long, value_name = "TEMPLATE")]
    pub out: Vec<String>,
    /// Bring home all files that a task makes besides its outputs, into a directory for each task, such as kept/{stem}
    /// [default: new/{index}]
    #[arg(long, value_name = "TEMPLATE", require_equals = true, num_args = 0..=1, default_missing_value = "new/{index}")]
    pub keep_new: Option<String>,
    /// A further input of every task, such as the script that is run: a file, a quoted pattern, or a directory, whose files are
    /// below its name (may be given more than once)
    #[arg(long, value_name = "FILE")]
    pub with: Vec<String>,
    /// The image of a container that every task runs in: a packed root file system, an OCI archive, or a .sif
    #[arg(long, value_name = "IMAGE")]
    pub container: Option<String>,
    /// Show what each task prints when it has ended, in the order of the tasks [default: where no output is declared]
    #[arg(long, overrides_with = "no_print")]
    pub print: bool,
    /// Do not show what tasks print
    #[arg(long)]
    pub no_print: bool,
    /// Names on standard input end in NUL bytes
    #[arg(short = '0', long)]
    pub null: bool,
    /// Hand the command to the shell: bash, so that a pipe fails with any of its parts, or sh on nodes without it; --shell=sh and
    /// --shell=bash choose
    #[arg(long, value_name = "SHELL", require_equals = true, value_parser = Shell::of_name)]
    pub shell: Option<Option<Shell>>,
    /// Slots that a task holds while it runs; with 0.5, two tasks share a slot
    #[arg(help_heading = EACH_TASK, long, default_value = "1", value_name = "CPUS", value_parser = equipment::parts)]
    pub cpus: u64,
    /// Gpus that a task holds while it runs; with 0.25, four tasks share a gpu [default: none]
    #[arg(help_heading = EACH_TASK, long = "task-gpus", value_name = "GPUS", value_parser = equipment::parts)]
    pub task_gpus: Option<u64>,
    /// A named resource that a task holds while it runs (may be given more than once)
    #[arg(help_heading = EACH_TASK, long = "task-resource", value_name = "NAME=N", value_parser = amount)]
    pub task_resources: Vec<Amount>,
    /// Memory that a task may use; it is ended when it uses more [default: no limit]
    #[arg(help_heading = EACH_TASK, long = "task-memory", value_name = "BYTES", value_parser = bytes)]
    pub task_memory: Option<u64>,
    /// Time after which a task is ended, such as 90s or 1h30m [default: no limit]
    #[arg(help_heading = EACH_TASK, long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// Further attempts after a failure
    #[arg(long, default_value_t = 0, help_heading = EACH_TASK)]
    pub retries: u32,
    /// Tasks with a larger number start first
    #[arg(help_heading = EACH_TASK, long, default_value_t = 0, allow_hyphen_values = true)]
    pub priority: i32,
    /// Groups tasks in reports
    #[arg(long, default_value = "", help_heading = EACH_TASK)]
    pub label: String,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    #[command(flatten)]
    pub resume: ResumeArgs,
    /// Print how the run ended as JSON on standard output, and nothing else there; for programs
    #[arg(long, conflicts_with_all = ["print", "dry_run", "to_list"])]
    pub json: bool,
    /// Write the tasks that would run into this file, for `eyas run FILE`, and start nothing; `-` is standard output. With --watch
    /// the tasks run, and are written with the files that they were seen to read and make
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub to_list: Option<PathBuf>,
    /// Join file of a cluster that is up [default: a cluster of its own, for this run]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The command, with {in} {out} {stem} {name} {index}, {} {/} {.} {/.} {//} {2} {NAME}, ...
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A parameter of a map.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub values: Vec<String>,
}

/// Values that a parameter may have; each is kept.
const VALUES_MAX: u64 = 10_000_000;

fn parameter(text: &str) -> Result<Parameter, String> {
    let (name, values) = text
        .split_once('=')
        .filter(|(name, values)| !name.is_empty() && !values.is_empty())
        .ok_or("write it as NAME=A,B,C, NAME=0..10 or NAME=0.1..0.5:0.1")?;
    let values = match numbers(values) {
        Some(numbers) => numbers?,
        None => values.split(',').map(str::to_owned).collect(),
    };
    Ok(Parameter { name: name.into(), values })
}

/// The numbers of `A..B` or `A..B:STEP`, without B, as they are written in decimals; `None`: the text is no range of numbers.
fn numbers(text: &str) -> Option<Result<Vec<String>, String>> {
    let (from, rest) = text.split_once("..")?;
    let (to, step) = match rest.split_once(':') {
        Some((to, step)) => (to, Some(step)),
        None => (rest, None),
    };
    let is_number =
        |text: &str| text.starts_with(|c: char| "+-.0123456789".contains(c)) && text.parse::<f64>().is_ok();
    let is_range = is_number(from) && is_number(to);
    is_range.then(|| numbers_from(from, to, step))
}

fn numbers_from(from: &str, to: &str, step: Option<&str>) -> Result<Vec<String>, String> {
    let places = |text: &str| text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let n_places = [from, to, step.unwrap_or("1")].into_iter().map(places).max().unwrap_or(0);
    // All numbers as whole ones, in units of the last place, so that no step is rounded.
    let whole = |text: &str| -> Result<i128, String> {
        let (before, after) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{before}{after:0<n_places$}");
        let is_decimal = after.chars().all(|c| c.is_ascii_digit()) && n_places <= 18;
        digits.parse().ok().filter(|_| is_decimal).ok_or_else(|| {
            format!("`{text}` is not written in decimals with at most 18 places; write the values as A,B,C")
        })
    };
    let (first, end) = (whole(from)?, whole(to)?);
    let step = match step {
        Some(step) => whole(step)?,
        None if n_places == 0 => 1,
        None => {
            return Err(format!(
                "a range of numbers with a fraction needs a step, such as {from}..{to}:0.1; or write the values as A,B,C"
            ));
        }
    };
    match () {
        () if step <= 0 => Err("the step of a range is a number above 0".into()),
        () if first >= end => {
            Err(format!("the range {from}..{to} is empty; its second number is not among its values"))
        }
        () if (end - first - 1) / step >= i128::from(VALUES_MAX) => {
            Err(format!("a parameter may have {VALUES_MAX} values at most"))
        }
        () => {
            let unit = 10i128.pow(n_places as u32);
            // As shells do: a zero before the first number or the last one gives all the width of the wider one.
            let digits =
                |text: &str| text.split('.').next().unwrap_or("").trim_start_matches(['+', '-']).len();
            let is_wide =
                |text: &str| text.trim_start_matches(['+', '-']).starts_with('0') && digits(text) > 1;
            let width = if is_wide(from) || is_wide(to) { digits(from).max(digits(to)) } else { 0 };
            let written = |n: i128| {
                let sign = if n < 0 { "-" } else { "" };
                let (whole, rest) = (n.abs() / unit, n.abs() % unit);
                match n_places {
                    0 => format!("{sign}{whole:0width$}"),
                    _ => format!("{sign}{whole:0width$}.{rest:0n_places$}"),
                }
            };
            Ok((0..=(end - first - 1) / step).map(|k| written(first + k * step)).collect())
        }
    }
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parts = text.split_once("..").and_then(|(a, b)| Some(a.parse::<u64>().ok()?..b.parse::<u64>().ok()?));
    match parts {
        Some(range) if range.start < range.end => Ok(range),
        Some(_) => Err("the range is empty".into()),
        None => Err("write it as 0..1000".into()),
    }
}

/// The tasks of a map, and where they come from.
pub(crate) fn list_of(args: &MapArgs) -> Result<(TaskList, Origin), Fault> {
    let folder = crate::dirs::working()?;
    let from_stdin = args.paths.iter().any(|p| p == "-");
    // What a watched program's command names may be what it writes, and comes by itself where it is read.
    let with = match args.watch.watch {
        true => args.with.clone(),
        false => with_named(&args.with, &args.paths, &args.command, args.shell.is_some(), &folder),
    };
    let (paths, more) = sources(args)?;
    let new = args.keep_new.iter().map(|template| format!("{}/", template.trim_end_matches('/')));
    let out: Vec<String> = args.out.iter().cloned().chain(new).collect();
    let (cpus, needs) = equipment::needs_of_task(args.cpus, args.task_gpus, &args.task_resources)
        .map_err(|e| Fault::new(Exit::BadInput, e))?;
    let spec = MapSpec {
        paths,
        more,
        range: args.range.clone(),
        with,
        container: args.container.clone(),
        out: out.clone(),
        keep_new: args.keep_new.is_some(),
        command: for_shell(args.shell.flatten(), &args.command),
        shell: args.shell.is_some(),
        cpus,
        needs,
        memory_bytes: args.task_memory,
        walltime_ns: args.walltime,
        retries: args.retries,
        priority: args.priority,
        label: args.label.clone(),
        base_dir: folder.clone(),
        ..MapSpec::default()
    };
    let words = MapWords {
        command: &args.command,
        shell: args.shell.is_some(),
        files: &args.paths,
        with: &spec.with,
        has_outputs: !spec.out.is_empty() || spec.keep_new,
        holes: &eyas_tasklist::hole_names(&spec, from_stdin)?,
        base_dir: &folder,
    };
    if !args.watch.watch {
        hints::of_map(&words).iter().for_each(|hint| eyas_text::say!("note: {hint}"));
    }
    let mut list = if from_stdin {
        let mut stdin = std::io::stdin().lock();
        let input = ListInput { reader: &mut stdin, origin: "standard input", ends_in_nul: args.null };
        eyas_tasklist::map(&spec, Some(input))?
    } else {
        eyas_tasklist::map(&spec, None)?
    };
    args.env.add_to(&mut list)?;
    args.watch.add_to(&mut list)?;
    Ok((list, Origin::Map { folder, command: spec.command.clone(), out }))
}

pub fn map(args: Box<MapArgs>) -> Result<Exit, Fault> {
    let args = *args;
    let (list, origin) = list_of(&args)?;
    let prints_nothing_else = args.out.is_empty();
    let join = args.join.map(JoinFile::named);
    let left = what_is_left(list, origin, &args.resume, join.as_ref())?;
    let Some(request) = left else { return nothing_to_do(args.json) };
    if let Some(path) = args.to_list.as_ref().filter(|_| !args.watch.watch) {
        workflow::write_list(&request.list, Some(path))?;
        if path != Path::new("-") {
            let n = plural(request.list.n_tasks, "task");
            eyas_text::say!("{n} written to {}; `eyas run` runs them", shown_path(path));
        }
        return Ok(Exit::Good);
    }
    let is_here = join.is_none() && !args.cluster.provide.is_elsewhere();
    check_outputs(&request.list, is_here)?;
    programs::check(&request.list, is_here)?;
    replaces::check(
        &request.list,
        args.replace,
        false,
        is_here,
        args.csv.as_deref().or(args.tsv.as_deref()),
    )?;
    let is_default = prints_nothing_else && !args.json && !args.no_print;
    let prints = may_print(args.print || is_default, &args.cluster);
    let declare = args.to_list.filter(|_| args.watch.watch);
    run_list(RunRequest { prints, declare, ..request }, join.as_ref(), &args.cluster, args.json)
}

/// The words of a command that is a line for the shell that was chosen.
pub(crate) fn for_shell(chosen: Option<Shell>, command: &[String]) -> Vec<String> {
    let mut words = command.to_vec();
    if let (Some(shell), Some(first)) = (chosen, words.first_mut()) {
        first.insert_str(0, shell.first_line());
    }
    words
}

/// The first files, and the sources that they are combined with.
fn sources(args: &MapArgs) -> Result<(Vec<String>, Vec<Source>), Fault> {
    let bad = |message: String| Fault::new(Exit::BadInput, message);
    let mut groups: Vec<(bool, Vec<String>)> = vec![(false, vec![])];
    for word in &args.paths {
        match word.as_str() {
            COMBINE | GO_ALONG => groups.push((word == GO_ALONG, vec![])),
            _ => groups.last_mut().expect("there is one").1.push(word.clone()),
        }
    }
    // For `eyas map ::: a b ::: c d`.
    if groups.len() > 1 && groups[0].1.is_empty() {
        let (is_linked, _) = groups[1];
        if is_linked {
            return Err(bad(format!("`{GO_ALONG}` goes along with files before it, and there are none")));
        }
        groups.remove(0);
    }
    let mut groups = groups.into_iter();
    let (_, mut paths) = groups.next().expect("there is one");
    let mut more = vec![];
    for (is_linked, paths) in groups {
        if paths.is_empty() {
            let sign = if is_linked { GO_ALONG } else { COMBINE };
            return Err(bad(format!("there are no files behind `{sign}`")));
        }
        if paths.iter().any(|path| path == "-") {
            let message = "`-` stands among the first files only, and standard input is read once".to_owned();
            return Err(bad(message));
        }
        more.push(Source::Files { paths, is_linked });
    }
    paths.retain(|path| path != "-");
    more.extend(
        args.params.iter().map(|p| Source::Values { name: p.name.clone(), values: p.values.clone() }),
    );
    let table = match (&args.csv, &args.tsv) {
        (Some(path), _) => Some(table(path, b',')?),
        (None, Some(path)) => Some(table(path, b'\t')?),
        (None, None) => None,
    };
    match table {
        Some(table) => more.push(Source::Table { table, files: args.file_columns.clone() }),
        None if !args.file_columns.is_empty() => {
            return Err(bad("--files names columns of a table, and there is none".into())
                .hint("--csv FILE or --tsv FILE is the table"));
        }
        None => {}
    }
    Ok((paths, more))
}

fn table(path: &Path, delimiter: u8) -> Result<Table, Fault> {
    if path == Path::new("-") {
        return Ok(Table::read(std::io::stdin().lock(), delimiter, "standard input")?);
    }
    let file = File::open(path).map_err(|e| {
        Fault::new(Exit::BadInput, format!("cannot read the table {}: {}", shown_path(path), reason(&e)))
    })?;
    Ok(Table::read(file, delimiter, &path.display().to_string())?)
}

/// The further inputs of all tasks: those of `--with`, and files that the command names.
pub(crate) fn with_named(
    with: &[String],
    paths: &[String],
    command: &[String],
    shell: bool,
    base_dir: &Path,
) -> Vec<String> {
    let mut with = with.to_vec();
    for name in files_named(command, shell, base_dir) {
        if !with.iter().any(|given| matches(given, &name)) && !paths.contains(&name) {
            eyas_text::say!("note: {}, which the command names, is an input of every task", shown(&name));
            with.push(name);
        }
    }
    with
}

/// Words of a map's command that are files here, such as the script in `python3 cutout.py {in} {out}`: a task
/// runs in a sandbox of its own and would not find them. Only plain names are found. A file in another folder
/// has to be given by `--with`, as its place in the sandbox cannot be guessed.
fn files_named(command: &[String], shell: bool, base_dir: &Path) -> Vec<String> {
    let words: Vec<&str> = match shell {
        true => command.iter().flat_map(|line| line.split_whitespace()).collect(),
        false => command.iter().map(String::as_str).collect(),
    };
    let mut names = vec![];
    for word in words {
        let name = word.strip_prefix("./").unwrap_or(word);
        let is_plain = !name.is_empty() && !name.contains(['/', '{', '}']);
        if is_plain && base_dir.join(name).is_file() && !names.iter().any(|n| n == name) {
            names.push(name.to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_words_or_numbers() {
        let values = |text: &str| parameter(text).map(|p| (p.name, p.values.join("|")));
        assert_eq!(values("e=1e-5,x"), Ok(("e".into(), "1e-5|x".into())));
        assert_eq!(values("n=8..11"), Ok(("n".into(), "8|9|10".into())));
        assert_eq!(values("n=a..b"), Ok(("n".into(), "a..b".into())));
        assert_eq!(values("n=-1..2"), Ok(("n".into(), "-1|0|1".into())));
        assert_eq!(values("n=08..11"), Ok(("n".into(), "08|09|10".into())));
        assert_eq!(values("n=1..010:4"), Ok(("n".into(), "001|005|009".into())));
        assert_eq!(values("n=-01..2"), Ok(("n".into(), "-01|00|01".into())));
        assert_eq!(values("x=00.5..1:.5"), Ok(("x".into(), "00.5".into())));
        assert_eq!(values("n=0..10:4"), Ok(("n".into(), "0|4|8".into())));
        assert_eq!(values("x=0.1..0.5:0.1"), Ok(("x".into(), "0.1|0.2|0.3|0.4".into())));
        assert_eq!(values("x=-.5..1:.25"), Ok(("x".into(), "-0.50|-0.25|0.00|0.25|0.50|0.75".into())));
        assert_eq!(values("x=1..2:0.5"), Ok(("x".into(), "1.0|1.5".into())));
        assert_eq!(values("t=../a,b"), Ok(("t".into(), "../a|b".into())));
        assert_eq!(values("f=a=b,"), Ok(("f".into(), "a=b|".into())));
        for (text, expect) in [
            ("n", "NAME="),
            ("=1", "NAME="),
            ("n=", "NAME="),
            ("n=3..3", "empty"),
            ("x=0.1..0.5", "needs a step, such as 0.1..0.5:0.1"),
            ("x=0..1:0", "above 0"),
            ("x=0..1:b", "decimals"),
            ("x=1e-3..1e-1:1e-3", "decimals"),
            ("x=0..1e3", "decimals"),
            ("n=0..99999999999", "at most"),
        ] {
            assert!(values(text).is_err_and(|e| e.contains(expect)), "{text}");
        }
    }
}
