//! Workflow files: recognised, run, converted, drawn, and written from a run's log.

use crate::args::JoinArgs;
use crate::print::reason;
use crate::{Exit, Fault, source};
use clap::{Args, ValueEnum};
use eyas_tasklist::{ReadOptions, TaskList};
use eyas_terms::RunId;
use eyas_text::{shown, shown_path};
use eyas_workflow::{Arguments, Format, Options, TasksError, Workflow, wfformat};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the files of a workflow are, for every format but task lists, which say it themselves.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Kinds of files")]
pub struct WorkflowArgs {
    /// Folder of a workflow's input files [default: the workflow file's]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// Folder for a workflow's results, also for results whose place the workflow file says [default: where the file
    /// says, else the workflow file's folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Each task of a workflow writes files of the recorded sizes instead of running its program; it never replaces a
    /// file
    #[arg(long)]
    pub stand_ins: bool,
    /// The file is a list of commands: each line is a task, for the shell [default: where its name ends in .txt, .cmds or
    /// .commands]
    #[arg(long)]
    pub commands: bool,
    /// The image of a container that all tasks of the list run in which name none: a packed root file system, an OCI archive,
    /// or a .sif
    #[arg(long, value_name = "IMAGE")]
    pub container: Option<String>,
    /// A file with an object in JX, whose values the names in a workflow in JX have, whatever its `define` says (may be given more
    /// than once)
    #[arg(long, value_name = "FILE")]
    pub jx_args: Vec<PathBuf>,
    /// A value for a name in a workflow in JX: NAME=EXPRESSION (may be given more than once)
    #[arg(long, value_name = "NAME=EXPRESSION")]
    pub jx_define: Vec<String>,
    /// Let the programs run that `ext` mappers of a Swift script name, here and with your rights, while the script is read
    #[arg(long)]
    pub run_mappers: bool,
    /// Arguments of a Swift script, behind `--`: -NAME=VALUE
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub script_arguments: Vec<String>,
}

impl WorkflowArgs {
    /// What the user gives to a workflow that is a program: values for names in JX, arguments of a Swift script.
    fn arguments(&self, path: &Path, format: Format) -> Result<Arguments, Fault> {
        let mut given = Arguments::default();
        for file in &self.jx_args {
            let refused =
                |why: String| Fault::new(Exit::BadInput, format!("--jx-args {}: {why}", shown_path(file)));
            let text = std::fs::read_to_string(file).map_err(|e| refused(reason(&e)))?;
            given.jx.add_object(&text).map_err(|e| refused(e.to_string()))?;
        }
        for text in &self.jx_define {
            let refused =
                |why: String| Fault::new(Exit::BadInput, format!("--jx-define {}: {why}", shown(text)));
            given.jx.add_definition(text).map_err(|e| refused(e.to_string()))?;
        }
        given.swift.add(&self.script_arguments).map_err(|why| Fault::new(Exit::BadInput, why))?;
        given.swift.runs_mappers = self.run_mappers;
        given.swift.inputs = self.inputs.clone();
        let has_jx = !(self.jx_args.is_empty() && self.jx_define.is_empty());
        let has_swift = self.run_mappers || !self.script_arguments.is_empty();
        for (is_given, of, what) in [
            (has_jx, Format::Jx, "--jx-args and --jx-define are for JX"),
            (has_swift, Format::Swift, "--run-mappers and arguments behind `--` are for Swift scripts"),
        ] {
            if is_given && format != of {
                let message = format!("{} is {}, and {what}", shown_path(path), format.name());
                return Err(Fault::new(Exit::BadInput, message));
            }
        }
        Ok(given)
    }
}

#[derive(Args)]
pub struct ConvertArgs {
    /// A task list, WfCommons WfFormat, Pegasus YAML or DAX, Makeflow, or a Swift script
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    pub to: Target,
    /// Where it goes [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub files: WorkflowArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// eyas's task list
    Jsonl,
    /// WfCommons WfFormat 1.5
    Wfformat,
}

#[derive(Args)]
pub struct GraphArgs {
    /// A task list, WfCommons WfFormat, Pegasus YAML or DAX, Makeflow, or a Swift script
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the drawing (SVG) goes; `-` is standard output [default: the file's name with .svg, here]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Let the programs run that `ext` mappers of a Swift script name, here and with your rights, while the script is read
    #[arg(long)]
    pub run_mappers: bool,
    /// Arguments of a Swift script, behind `--`: -NAME=VALUE
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub script_arguments: Vec<String>,
}

#[derive(Args)]
pub struct ExportArgs {
    /// The run [default: the newest]
    #[arg(value_name = "RUN")]
    pub run: Option<u32>,
    /// Write the run as WfCommons WfFormat 1.5, with measured times and sizes
    #[arg(long, value_name = "FILE", required = true)]
    pub wfformat: PathBuf,
    /// Directory of a run that is over [default: the cluster that is up, else the last run]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub join: JoinArgs,
}

impl From<eyas_workflow::Error> for Fault {
    fn from(e: eyas_workflow::Error) -> Fault {
        Fault::new(Exit::BadInput, e)
    }
}
impl From<TasksError> for Fault {
    fn from(e: TasksError) -> Fault {
        Fault::new(Exit::BadInput, e)
    }
}

/// The format of the file `path`. A pipe can be read only once, so it is taken for a task list.
fn format_of(path: &Path) -> Result<Format, Fault> {
    match path != Path::new("-") && path.is_file() {
        true => Ok(eyas_workflow::format_of(path)?),
        false => Ok(Format::JsonLines),
    }
}

fn is_list(format: Format) -> bool {
    matches!(format, Format::JsonLines | Format::Commands)
}

/// A file with tasks, whose format was found out.
pub struct ListFile<'a> {
    path: &'a Path,
    args: &'a WorkflowArgs,
    format: Format,
}

impl<'a> ListFile<'a> {
    /// The task list, list of commands or workflow in `path`, by its name, its content or the user's option.
    pub fn find(path: &'a Path, args: &'a WorkflowArgs) -> Result<ListFile<'a>, Fault> {
        let format = if args.commands { Format::Commands } else { format_of(path)? };
        Ok(ListFile { path, args, format })
    }

    /// Whether it is a list of commands.
    pub fn is_of_commands(&self) -> bool {
        self.format == Format::Commands
    }

    /// Whether it is a workflow file of another system, and no list of tasks or commands.
    pub fn is_workflow(&self) -> bool {
        !is_list(self.format)
    }

    /// The tasks.
    pub fn read(&self) -> Result<TaskList, Fault> {
        self.read_with(&ReadOptions::default())
    }

    /// The tasks; a task list is read with these options.
    pub fn read_with(&self, options: &ReadOptions) -> Result<TaskList, Fault> {
        let ListFile { path, args, format } = *self;
        let given = args.arguments(path, format)?;
        if is_list(format) {
            if args.inputs.is_some() || args.out.is_some() || args.stand_ins {
                let message = format!(
                    "{} is {}, which says itself where its files are",
                    shown_path(path),
                    format.name()
                );
                return Err(Fault::new(Exit::BadInput, message)
                    .hint("--inputs, --out and --stand-ins are for workflow files"));
            }
            let read = ReadOptions { container: args.container.clone(), ..options.clone() };
            return read_list_with(path, format, &read);
        }
        if args.container.is_some() {
            let message =
                format!("{} is a workflow, and --container is for lists of tasks", shown_path(path));
            return Err(Fault::new(Exit::BadInput, message)
                .hint("`eyas convert --to jsonl` makes a list of it, which can be run with --container"));
        }
        let workflow = eyas_workflow::read_with(path, format, &given)?;
        Ok(eyas_workflow::to_list(&workflow, &self::options(path, args, true))?)
    }
}

fn options(path: &Path, args: &WorkflowArgs, check_inputs: bool) -> Options {
    let mut options = Options { check_inputs, stand_ins: args.stand_ins, ..Options::beside(path) };
    if let Some(dir) = &args.inputs {
        options.inputs_dir = dir.clone();
    }
    if let Some(dir) = &args.out {
        options.out_dir = dir.clone();
        options.out_dir_wins = true;
    }
    options
}

fn no_tasks(path: &Path) -> Fault {
    Fault::new(Exit::BadInput, format!("there are no tasks in {}", shown_path(path)))
}

/// The content of `path` in the neutral form, task lists included.
fn read(path: &Path, args: &WorkflowArgs) -> Result<Workflow, Fault> {
    let format = format_of(path)?;
    let given = args.arguments(path, format)?;
    if is_list(format) {
        let list = read_list(path, format)?;
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if list.n_tasks == 0 {
            return Err(no_tasks(path));
        }
        return Ok(eyas_workflow::from_arrays(&list.arrays, &stem)?);
    }
    Ok(eyas_workflow::read_with(path, format, &given)?)
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wfformat::timestamp(since.as_secs().saturating_mul(1_000_000_000))
}

/// Calls `write` with the file `path`, or with standard output.
fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Fault> {
    match path.filter(|path| *path != Path::new("-")) {
        None => {
            let mut out = BufWriter::new(eyas_text::raw_unless_terminal());
            write(&mut out)?;
            out.flush()?;
        }
        Some(path) => {
            let done = File::create(path).and_then(|file| {
                let mut out = BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            });
            let why = |e| format!("cannot write {}: {}", shown_path(path), crate::print::reason(&e));
            done.map_err(|e| Fault::new(Exit::Other, why(e)))?;
        }
    }
    Ok(())
}

/// Writes a task list, one task a line, to the file `path` or to standard output.
pub fn write_list(list: &TaskList, path: Option<&Path>) -> Result<(), Fault> {
    write_to(path, |out| {
        for array in &list.arrays {
            for i in 0..array.n_tasks {
                writeln!(out, "{}", eyas_tasklist::to_jsonl(array, i))?;
            }
        }
        Ok(())
    })
}

pub fn convert(args: ConvertArgs) -> Result<Exit, Fault> {
    let output = args.output.as_deref();
    match args.to {
        Target::Wfformat => {
            let workflow = read(&args.file, &args.files)?;
            if workflow.tasks.is_empty() {
                return Err(no_tasks(&args.file));
            }
            write_to(output, |out| wfformat::write(&workflow, &now(), out))?;
        }
        Target::Jsonl => {
            let format = ListFile::find(&args.file, &args.files)?.format;
            let list = match is_list(format) {
                true => {
                    let container = args.files.container.clone();
                    read_list_with(&args.file, format, &ReadOptions { container, ..ReadOptions::default() })?
                }
                false => {
                    let given = args.files.arguments(&args.file, format)?;
                    let workflow = eyas_workflow::read_with(&args.file, format, &given)?;
                    eyas_workflow::to_list(&workflow, &options(&args.file, &args.files, false))?
                }
            };
            write_list(&list, output)?;
        }
    }
    Ok(Exit::Good)
}

pub fn graph(args: GraphArgs) -> Result<Exit, Fault> {
    let GraphArgs { run_mappers, script_arguments, .. } = args;
    let workflow =
        read(&args.file, &WorkflowArgs { run_mappers, script_arguments, ..WorkflowArgs::default() })?;
    let drawing = eyas_workflow::svg(&workflow, &eyas_workflow::stages(&workflow))?;
    let stem = args.file.file_stem().filter(|_| args.file != Path::new("-"));
    let path = args.output.unwrap_or_else(|| match stem {
        Some(stem) => PathBuf::from(stem).with_extension("svg"),
        None => PathBuf::from("-"),
    });
    write_to(Some(&path), |out| out.write_all(drawing.as_bytes()))?;
    if path != Path::new("-") {
        writeln!(eyas_text::raw_unless_terminal(), "{}", path.display())?;
    }
    Ok(Exit::Good)
}

pub fn export(args: ExportArgs) -> Result<Exit, Fault> {
    let dirs = source::log_dirs(&args.join, args.dir.as_deref())?;
    let workflow = eyas_report::workflow(&dirs, args.run.map(RunId))?;
    if let [dir] = &dirs[..]
        && let Ok(Some(group)) = eyas_report::membership(dir)
    {
        let n = group.n_members;
        eyas_text::say!(
            "this is the part that one of {n} dispatchers had; name the folder that theirs lie in with --dir"
        );
    }
    write_to(Some(&args.wfformat), |out| wfformat::write(&workflow, &now(), out))?;
    if args.wfformat != Path::new("-") {
        writeln!(eyas_text::raw_unless_terminal(), "{}", args.wfformat.display())?;
    }
    Ok(Exit::Good)
}

pub fn read_list(path: &Path, format: Format) -> Result<TaskList, Fault> {
    read_list_with(path, format, &ReadOptions::default())
}

/// Like [`read_list`]; this function sets the origin of the tasks in the options.
pub fn read_list_with(path: &Path, format: Format, options: &ReadOptions) -> Result<TaskList, Fault> {
    let base_dir = crate::dirs::working()?;
    let read = |reader: &mut dyn BufRead, options: &ReadOptions| match format {
        Format::Commands => eyas_tasklist::read_commands(reader, &base_dir, options),
        _ => eyas_tasklist::read(reader, &base_dir, options),
    };
    if path == Path::new("-") {
        let options = ReadOptions { origin: "standard input".into(), ..options.clone() };
        return Ok(read(&mut std::io::stdin().lock(), &options)?);
    }
    let name = path.display().to_string();
    let unreadable = |why: &str| {
        Fault::new(Exit::BadInput, format!("cannot read the task list {}: {why}", shown_path(path)))
    };
    let file = File::open(path).map_err(|e| unreadable(&reason(&e)))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(
            unreadable("it is a directory").hint("`eyas map` runs a command over the files of a directory")
        );
    }
    let options = ReadOptions { origin: name, ..options.clone() };
    Ok(read(&mut BufReader::with_capacity(1 << 20, file), &options)?)
}
