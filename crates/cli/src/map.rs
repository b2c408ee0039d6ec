//! `eyas map`: one command over files, parameters and tables, as tasks.

use crate::args::MapArgs;
use crate::commands::{RunRequest, nothing_to_do, run_list, what_is_left};
use crate::hints::{self, MapWords};
use crate::print::{plural, reason};
use crate::resume::Origin;
use crate::{Exit, Fault, replaces, workflow};
use eyas_tasklist::{ListInput, MapSpec, Source, Table};
use eyas_text::{shown, shown_path};
use std::fs::File;
use std::path::Path;

/// Words among the files of a map that begin a further source, as in GNU parallel.
const COMBINE: &str = ":::";
const GO_ALONG: &str = ":::+";

pub fn map(args: Box<MapArgs>) -> Result<Exit, Fault> {
    let args = *args;
    let folder = std::env::current_dir()?;
    let from_stdin = args.paths.iter().any(|p| p == "-");
    let mut with = args.with.clone();
    for name in files_named(&args.command, args.shell, &folder) {
        if !with.iter().chain(&args.paths).any(|given| *given == name) {
            eyas_text::say!("note: {}, which the command names, is an input of every task", shown(&name));
            with.push(name);
        }
    }
    let (paths, more) = sources(&args)?;
    let (cpus, needs) = crate::equipment::needs_of_task(args.cpus, args.task_gpus, &args.task_resources)
        .map_err(|e| Fault::new(Exit::BadInput, e))?;
    let spec = MapSpec {
        paths,
        more,
        range: args.range.clone(),
        with,
        out: args.out.clone(),
        command: args.command.clone(),
        shell: args.shell,
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
        shell: args.shell,
        files: &args.paths,
        with: &spec.with,
        holes: &eyas_tasklist::hole_names(&spec, from_stdin)?,
        base_dir: &folder,
    };
    hints::of_map(&words).iter().for_each(|hint| eyas_text::say!("note: {hint}"));
    let list = if from_stdin {
        let mut stdin = std::io::stdin().lock();
        let input = ListInput { reader: &mut stdin, origin: "standard input", ends_in_nul: args.null };
        eyas_tasklist::map(&spec, Some(input))?
    } else {
        eyas_tasklist::map(&spec, None)?
    };
    let origin = Origin::Map { folder, command: args.command, out: args.out };
    let prints_nothing_else = spec.out.is_empty();
    let left = what_is_left(list, origin, &args.resume, args.join.as_deref())?;
    let Some(request) = left else { return nothing_to_do(args.json) };
    if let Some(path) = &args.to_list {
        workflow::write_list(&request.list, Some(path))?;
        if path != Path::new("-") {
            let n = plural(request.list.n_tasks, "task");
            eyas_text::say!("{n} written to {}; `eyas run` runs them", shown_path(path));
        }
        return Ok(Exit::Good);
    }
    replaces::check(&request.list, args.replace, false)?;
    let is_default = prints_nothing_else && !args.json && !args.no_print && !args.cluster.policy.no_event_log;
    let prints = args.print || is_default;
    run_list(RunRequest { prints, ..request }, args.join.as_deref(), &args.cluster, args.json)
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

/// Words of a map's command that are files here, such as the script in `python3 cutout.py {in} {out}`: a task
/// runs in a sandbox of its own and would not find them. Only plain names are found. A file in another folder
/// has to be given by `--with`, as its place in the sandbox cannot be guessed.
pub(crate) fn files_named(command: &[String], shell: bool, base_dir: &Path) -> Vec<String> {
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
