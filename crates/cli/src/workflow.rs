//! Workflow files: found out, run, converted, drawn, and written from a run's log.

use crate::args::JoinArgs;
use crate::{Exit, Fault, commands, local};
use clap::{Args, ValueEnum};
use eyas_core::RunId;
use eyas_tasklist::{ReadOptions, TaskList};
use eyas_wire::identity::Join;
use eyas_workflow::{Format, Options, TasksError, Workflow, wfformat};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the files of a workflow are, for every format but task lists, which say it themselves.
#[derive(Args, Clone, Default)]
pub struct WorkflowArgs {
    /// Folder of a workflow's input files [default: the workflow file's]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// Folder for a workflow's results [default: the workflow file's]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Instead of its program, each task of a workflow writes files of the recorded sizes
    #[arg(long)]
    pub stand_ins: bool,
}

#[derive(Args)]
pub struct ConvertArgs {
    /// A task list, WfCommons WfFormat, Pegasus YAML or DAX, or Makeflow
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
    /// A task list, WfCommons WfFormat, Pegasus YAML or DAX, or Makeflow
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the drawing (SVG) goes; `-` is standard output [default: the file's name with .svg, here]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
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

/// What is in `path`. A pipe can be read only once, so it is taken for a task list.
fn format_of(path: &Path) -> Result<Format, Fault> {
    match path != Path::new("-") && path.is_file() {
        true => Ok(eyas_workflow::format_of(path)?),
        false => Ok(Format::JsonLines),
    }
}

/// The task list in `path`, or that of the workflow in it.
pub fn list_of(path: &Path, args: &WorkflowArgs) -> Result<TaskList, Fault> {
    list_in(path, args, &ReadOptions::default())
}

/// As [`list_of`]; a task list is read with these options.
pub fn list_in(path: &Path, args: &WorkflowArgs, read: &ReadOptions) -> Result<TaskList, Fault> {
    let format = format_of(path)?;
    if format == Format::JsonLines {
        if args.inputs.is_some() || args.out.is_some() || args.stand_ins {
            let message =
                format!("`{}` is a task list, which says itself where its files are", path.display());
            return Err(Fault::new(Exit::BadInput, message)
                .hint("--inputs, --out and --stand-ins are for workflow files"));
        }
        return commands::read_list_with(path, read);
    }
    let workflow = eyas_workflow::read(path, format)?;
    Ok(eyas_workflow::to_list(&workflow, &options(path, args, true))?)
}

fn options(path: &Path, args: &WorkflowArgs, check_inputs: bool) -> Options {
    let mut options = Options { check_inputs, stand_ins: args.stand_ins, ..Options::beside(path) };
    if let Some(dir) = &args.inputs {
        options.inputs_dir = dir.clone();
    }
    if let Some(dir) = &args.out {
        options.out_dir = dir.clone();
    }
    options
}

/// What is in `path` in its neutral form, task lists included.
fn read(path: &Path) -> Result<Workflow, Fault> {
    let format = format_of(path)?;
    if format == Format::JsonLines {
        let list = commands::read_list(path)?;
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if list.n_tasks == 0 {
            return Err(Fault::new(Exit::BadInput, format!("there are no tasks in `{}`", path.display())));
        }
        return Ok(eyas_workflow::from_arrays(&list.arrays, &stem)?);
    }
    Ok(eyas_workflow::read(path, format)?)
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
            let mut out = BufWriter::new(std::io::stdout().lock());
            write(&mut out)?;
            out.flush()?;
        }
        Some(path) => {
            let done = File::create(path).and_then(|file| {
                let mut out = BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            });
            let why = |e| format!("cannot write `{}`: {}", path.display(), crate::print::reason(&e));
            done.map_err(|e| Fault::new(Exit::Other, why(e)))?;
        }
    }
    Ok(())
}

pub fn convert(args: ConvertArgs) -> Result<Exit, Fault> {
    let output = args.output.as_deref();
    match args.to {
        Target::Wfformat => {
            let workflow = read(&args.file)?;
            write_to(output, |out| wfformat::write(&workflow, &now(), out))?;
        }
        Target::Jsonl => {
            let list = match format_of(&args.file)? {
                Format::JsonLines => commands::read_list(&args.file)?,
                format => {
                    let workflow = eyas_workflow::read(&args.file, format)?;
                    eyas_workflow::to_list(&workflow, &options(&args.file, &args.files, false))?
                }
            };
            write_to(output, |out| {
                for array in &list.arrays {
                    for i in 0..array.n_tasks {
                        writeln!(out, "{}", eyas_tasklist::to_jsonl(array, i))?;
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(Exit::Good)
}

pub fn graph(args: GraphArgs) -> Result<Exit, Fault> {
    let workflow = read(&args.file)?;
    let drawing = eyas_workflow::svg(&workflow, &eyas_workflow::stages(&workflow));
    let stem = args.file.file_stem().filter(|_| args.file != Path::new("-"));
    let path = args.output.unwrap_or_else(|| match stem {
        Some(stem) => PathBuf::from(stem).with_extension("svg"),
        None => PathBuf::from("-"),
    });
    write_to(Some(&path), |out| out.write_all(drawing.as_bytes()))?;
    if path != Path::new("-") {
        writeln!(std::io::stdout(), "{}", path.display())?;
    }
    Ok(Exit::Good)
}

pub fn export(args: ExportArgs) -> Result<Exit, Fault> {
    let dirs = match (&args.dir, local::join_path(&args.join)) {
        (Some(dir), _) => local::ended_dirs(Some(dir))?,
        (None, Ok(join)) => {
            let dir = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?.dir;
            local::member_dirs(PathBuf::from(dir))
        }
        (None, Err(_)) => local::ended_dirs(None)?,
    };
    let workflow = eyas_report::workflow(&dirs, args.run.map(RunId))?;
    if let [dir] = &dirs[..]
        && let Ok(Some(group)) = eyas_report::membership(dir)
    {
        let n = group.n_members;
        eprintln!(
            "this is the part that one of {n} dispatchers had; name the folder that theirs lie in with --dir"
        );
    }
    write_to(Some(&args.wfformat), |out| wfformat::write(&workflow, &now(), out))?;
    if args.wfformat != Path::new("-") {
        writeln!(std::io::stdout(), "{}", args.wfformat.display())?;
    }
    Ok(Exit::Good)
}
