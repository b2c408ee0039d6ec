//! Pegasus abstract workflows: the YAML of 5.x, with catalogs inside or in files beside it.
//!
//! Read: jobs with arguments, uses, standard streams and profiles (`env`; `pegasus`: cores, memory in MB,
//! runtime in seconds), jobDependencies, replicaCatalog, transformationCatalog. If a catalog is not inside,
//! `replicas.yml` and `transformations.yml` in the workflow's folder are read, as the planner does.
//!
//! The words of `arguments` are joined with blanks and split by the shell's rules, as the planner and its
//! launcher do. A transformation that is `stageable` is an input and is started as `./NAME`; a
//! transformation that is `installed` is started at its path; a transformation that is in no catalog is
//! started by its name.
//!
//! Replicas with `regex: true` are read, with the expressions that `regex-lite` understands.
//!
//! A job of type `pegasusWorkflow` becomes the jobs of the workflow that it names, if that file is there.
//!
//! Refused: other kinds of sub-workflows, containers, files that are read and written. Not used: sites,
//! checksums, hints for clustering and other planning.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::model::{Builder, Task, TaskNo, Use, Workflow, plain_name};
use crate::pattern::{Pattern, PatternWork};
use crate::words;
use crate::yaml::{self, YamlNode};
use eyas_storage::canonical::Url;
use eyas_terms::array::Command;
use eyas_text::shown_path;
use regex_lite::Captures;
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;

/// The deepest nesting of workflows in workflows.
const INNER_MAX: u32 = 8;

/// A program of the transformation catalog.
pub(crate) struct Program {
    pub pfn: String,
    /// The program is brought along as an input.
    pub stageable: bool,
    /// The container that the program wants to run in.
    pub container: Option<String>,
}

/// The start of a job, as far as Pegasus's formats have it in common.
pub(crate) struct Start {
    pub argv: Vec<String>,
    pub stdin: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
}

impl Start {
    pub fn command(self) -> Command<String> {
        if self.stdin.is_none() && self.stdout.is_none() && self.stderr.is_none() {
            return Command::Exec(self.argv);
        }
        let mut line = words::line(&self.argv);
        for (sign, file) in [("<", self.stdin), (">", self.stdout), ("2>", self.stderr)] {
            if let Some(file) = file {
                line.push_str(&format!(" {sign} {}", words::quoted(&plain_name(&file))));
            }
        }
        Command::Shell(line)
    }
}

/// The location of a file, chosen among the physical names in a catalog: a location that eyas can read
/// comes first.
pub(crate) fn best_pfn<'a>(pfns: impl Iterator<Item = &'a str>) -> Option<String> {
    let rank = |pfn: &str| match Url::split(pfn) {
        None => 0,
        Some(url) if url.path().is_some() => 0,
        Some(url) if url.is_known() => 1,
        Some(_) => 2,
    };
    pfns.min_by_key(|pfn| rank(pfn)).map(str::to_owned)
}

/// The path that a physical name means, if it is a path or another spelling of one; otherwise the name
/// itself.
fn path_or_url(pfn: String) -> String {
    Url::split(&pfn).and_then(Url::path).unwrap_or(pfn)
}

/// `dir` is the folder of the file, where catalogs and inner workflows are looked for.
pub(crate) fn parse(text: &str, stem: &str, dir: Option<&Path>) -> Result<Workflow> {
    builder(text, stem, dir, 0)?.finish()
}

/// Reads a workflow that is nested in `depth` other workflows.
fn builder(text: &str, stem: &str, dir: Option<&Path>, depth: u32) -> Result<Builder> {
    let root = yaml::parse(text)?;
    if root.get("pegasus").is_none() && root.get("jobs").is_none() {
        return Err(Error::broken("this is no Pegasus workflow: it has neither `pegasus` nor `jobs`"));
    }
    let version = root.text("pegasus")?.unwrap_or("5.0");
    if !version.starts_with("5.") && version != "5" {
        let message = format!("this is a Pegasus workflow of version {}, and 5.x is known", shown(version));
        return Err(Error::new(ErrorKind::Unknown, message).at(root.line));
    }
    // A YAML file that was cut is often still YAML. A file written by Pegasus ends with a dependency and a
    // line feed.
    if !text.ends_with('\n') && root.get("jobDependencies").is_none() {
        return Err(Error::new(ErrorKind::Truncated, "the file breaks off: its last line has no end")
            .hint("if it is whole, end it with a line feed"));
    }
    let mut b = Builder::new(root.text("name")?.unwrap_or(stem), text.len());
    let beside = |name: &str| -> Result<Option<YamlNode>> {
        let Some(text) = dir.and_then(|dir| std::fs::read_to_string(dir.join(name)).ok()) else {
            return Ok(None);
        };
        yaml::parse(&text).map(Some).map_err(|e| e.origin(name))
    };
    let programs = match root.get("transformationCatalog") {
        Some(catalog) => programs_of(catalog)?,
        None => {
            beside("transformations.yml")?.as_ref().map_or_else(|| Ok(FxHashMap::default()), programs_of)?
        }
    };
    let replicas = match root.get("replicaCatalog") {
        Some(catalog) => Replicas::of(catalog)?,
        None => beside("replicas.yml")?.as_ref().map_or_else(|| Ok(Replicas::default()), Replicas::of)?,
    };
    let mut inner: FxHashMap<String, Ends> = FxHashMap::default();
    for job in root.list("jobs")? {
        match job.text("type")? {
            Some("pegasusWorkflow") => {
                let id = job.need("id", "a job")?;
                let ends = add_inner(&mut b, job, id, &replicas, dir.unwrap_or(Path::new(".")), depth)?;
                inner.insert(id.to_owned(), ends);
            }
            _ => add_job(&mut b, job, &programs)?,
        }
    }
    for dependency in root.list("jobDependencies")? {
        let find = |b: &Builder, node: &YamlNode, id: &str| {
            let message = format!("`jobDependencies` has {}, which is no job", shown(id));
            match (inner.get(id), b.find_task(id)) {
                (Some(ends), _) => Ok(ends.clone()),
                (None, Some(task)) => Ok(Ends { first: vec![task], last: vec![task] }),
                (None, None) => Err(Error::broken(message).at(node.line)),
            }
        };
        let parent = find(&b, dependency, dependency.need("id", "a dependency")?)?;
        for child in dependency.list("children")? {
            let id = child.scalar().ok_or_else(|| Error::broken("a child is no id").at(child.line))?;
            let child = find(&b, child, id)?;
            for parent in &parent.last {
                child.first.iter().for_each(|child| b.link(*parent, *child));
            }
        }
    }
    place(&mut b, &replicas)?;
    Ok(b)
}

/// The tasks of a job that wait for no other task of the job (`first`), and those that no other task of the
/// job waits for (`last`). A job is one task, or an inner workflow.
#[derive(Clone)]
struct Ends {
    first: Vec<TaskNo>,
    last: Vec<TaskNo>,
}

/// Adds the tasks of the workflow that a job of type `pegasusWorkflow` runs. Files in the job's own `uses`,
/// results and inputs have the same name inside and outside; other files that the inner tasks write get
/// names of their own. The arguments are for Pegasus's planner and are not used.
fn add_inner(
    b: &mut Builder,
    job: &YamlNode,
    id: &str,
    replicas: &Replicas,
    dir: &Path,
    depth: u32,
) -> Result<Ends> {
    let name = job.need("file", "a job that is a workflow")?;
    let wrong = |message: String| Error::new(ErrorKind::Unsupported, message).at(job.line);
    if depth >= INNER_MAX {
        return Err(wrong(format!("workflows are more than {INNER_MAX} deep in each other")));
    }
    let of_catalog = replicas.find(&plain_name(name))?.map(path_or_url);
    let places = of_catalog.iter().map(|path| dir.join(path)).chain([dir.join(name)]);
    let Some(path) = places.clone().find(|path| path.is_file()) else {
        let looked: Vec<String> = places.map(|path| shown_path(&path).to_string()).collect();
        let message = format!(
            "the workflow {} of job {} is not there: looked for {}",
            shown(name),
            shown(id),
            looked.join(" and ")
        );
        return Err(Error::new(ErrorKind::Missing, message)
            .hint("one that a job makes cannot be read ahead: run what makes it first, then the rest")
            .at(job.line));
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Error::io("read", format!("cannot read the inner workflow {}", shown_path(&path)), e))?;
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let inner = builder(&text, &stem, path.parent(), depth + 1).map_err(|e| {
        let line = e.line.map_or(String::new(), |line| format!(", line {line}"));
        let message = format!("in the inner workflow {}{line}: {}", shown_path(&path), e.message);
        let error = Error::new(e.kind, message).at(job.line);
        e.hint.iter().fold(error, |error, hint| error.hint(hint.clone()))
    })?;
    let mut shared: FxHashSet<String> = FxHashSet::default();
    for u in job.list("uses")? {
        shared.insert(plain_name(u.need("lfn", "a use")?).into_owned());
    }
    let predecessors = inner.predecessors();
    let base = b.absorb(inner, id, &|file| shared.contains(&file.name) || file.result == Some(true))?;
    let mut has_successor = vec![false; predecessors.len()];
    predecessors.iter().flatten().for_each(|p| has_successor[*p as usize] = true);
    let pick = |is_end: &dyn Fn(usize) -> bool| -> Vec<TaskNo> {
        (0..predecessors.len()).filter(|n| is_end(*n)).map(|n| base + n as TaskNo).collect()
    };
    Ok(Ends { first: pick(&|n| predecessors[n].is_empty()), last: pick(&|n| !has_successor[n]) })
}

/// The longest location of a replica after parts of a file's name are put into it.
const LOCATION_BYTES_MAX: usize = 16 << 10;

/// The locations of files, by a replica catalog.
#[derive(Default)]
struct Replicas {
    by_name: FxHashMap<String, String>,
    /// In the order of the catalog. In a location, `[0]` stands for the name and `[1]` for the text of the
    /// first group.
    by_pattern: Vec<(Pattern, String)>,
    work: PatternWork,
}

impl Replicas {
    fn of(catalog: &YamlNode) -> Result<Replicas> {
        let mut replicas = Replicas::default();
        for replica in catalog.list("replicas")? {
            let lfn = replica.need("lfn", "a replica")?;
            let pfns = replica.list("pfns")?.iter().filter_map(|pfn| pfn.text("pfn").ok()?);
            let Some(location) = best_pfn(pfns).or(replica.text("pfn")?.map(str::to_owned)) else { continue };
            match replica.text("regex")?.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
                false => drop(replicas.by_name.insert(plain_name(lfn).into_owned(), location)),
                true => {
                    let message = |e: String| {
                        let why = eyas_text::line_of(&e);
                        format!("{} is no regular expression that is understood: {why}", shown(lfn))
                    };
                    let pattern = Pattern::new(lfn);
                    let pattern = pattern.map_err(|e| Error::broken(message(e)).at(replica.line))?;
                    if !replicas.work.count_compiling(&pattern) {
                        return Err(too_much_work());
                    }
                    replicas.by_pattern.push((pattern, location));
                }
            }
        }
        Ok(replicas)
    }

    /// The location of the file `name`: its own entry, otherwise that of the first pattern that matches the
    /// whole name.
    fn find(&self, name: &str) -> Result<Option<String>> {
        if let Some(location) = self.by_name.get(name) {
            return Ok(Some(location.clone()));
        }
        for (pattern, location) in &self.by_pattern {
            if let Some(groups) = pattern.captures(name, &self.work).ok_or_else(too_much_work)? {
                return filled(location, &groups).map(Some);
            }
        }
        Ok(None)
    }
}

fn too_much_work() -> Error {
    let message = "comparing the files with the regular expressions of the replica catalog takes too long";
    Error::new(ErrorKind::Unsupported, message).hint("name the files themselves, or use simpler expressions")
}

/// `location` with the texts of the groups in place of `[0]`, `[1]`, ...
fn filled(location: &str, groups: &Captures) -> Result<String> {
    let mut out = String::new();
    let mut rest = location;
    while let Some((before, after)) = rest.split_once('[') {
        let number = after.split_once(']').and_then(|(n, after)| Some((n.parse::<usize>().ok()?, after)));
        out.push_str(before);
        match number.filter(|(n, _)| *n < groups.len()) {
            Some((n, after)) => {
                out.push_str(groups.get(n).map_or("", |group| group.as_str()));
                rest = after;
            }
            None => {
                out.push('[');
                rest = after;
            }
        }
        if out.len() > LOCATION_BYTES_MAX {
            let message = format!("the place {} becomes longer than any path", shown(location));
            return Err(Error::broken(message));
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Sets the locations of files that no job writes. A file that a job writes gets none, so that an old copy
/// is not read in its place.
fn place(b: &mut Builder, replicas: &Replicas) -> Result<()> {
    for (n, is_written) in b.written().into_iter().enumerate() {
        let file = b.file_mut(n as u32);
        if is_written {
            file.location = None;
        } else if file.location.is_none() {
            file.location = replicas.find(&file.name)?;
        }
    }
    Ok(())
}

fn programs_of(catalog: &YamlNode) -> Result<FxHashMap<String, Program>> {
    let mut programs = FxHashMap::default();
    for t in catalog.list("transformations")? {
        let name = full_name(t, "a transformation")?;
        if let Some(site) = t.list("sites")?.first() {
            let container = site.get("container");
            let container = container.map(|c| c.scalar().unwrap_or("of its own").to_owned());
            let pfn = site.need("pfn", "a site of a transformation")?.to_owned();
            let stageable = site.text("type")?.is_some_and(|t| t.eq_ignore_ascii_case("stageable"));
            programs.insert(name, Program { pfn, stageable, container });
        }
    }
    Ok(programs)
}

/// `namespace::name:version`, as far as the parts are there.
fn full_name(node: &YamlNode, of: &str) -> Result<String> {
    let name = node.need("name", of)?;
    Ok(joined_name(node.text("namespace")?, name, node.text("version")?))
}

pub(crate) fn joined_name(namespace: Option<&str>, name: &str, version: Option<&str>) -> String {
    let namespace = namespace.map_or(String::new(), |n| format!("{n}::"));
    let version = version.map_or(String::new(), |v| format!(":{v}"));
    format!("{namespace}{name}{version}")
}

/// The word that starts a transformation. A transformation that is brought along becomes an input of the
/// task.
pub(crate) fn program(
    b: &mut Builder,
    task: &mut Task,
    full: &str,
    name: &str,
    programs: &FxHashMap<String, Program>,
) -> String {
    match programs.get(full) {
        Some(program) if program.stageable => {
            let file = b.file(&format!("{name} ({})", program.pfn));
            b.file_mut(file).location = Some(program.pfn.clone());
            task.inputs.push(Use { name: Some(name.into()), ..Use::of(file) });
            format!("./{name}")
        }
        Some(program) => path_or_url(program.pfn.clone()),
        None => name.to_owned(),
    }
}

fn add_job(b: &mut Builder, job: &YamlNode, programs: &FxHashMap<String, Program>) -> Result<()> {
    let line = job.line;
    let id = job.need("id", "a job")?.to_owned();
    let kind = job.text("type")?.unwrap_or("job");
    if kind != "job" {
        let message = format!("job {} is a {}, which eyas cannot run", shown(&id), shown(kind));
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint("plan and run the inner workflow by itself, or put its jobs into this one")
            .at(line));
    }
    let name = job.need("name", "a job")?.to_owned();
    let full = full_name(job, "a job")?;
    let mut task = Task { id, stage: name.clone(), line: Some(line), ..Task::default() };
    if let Some(container) = programs.get(&full).and_then(|program| program.container.as_ref()) {
        let message = format!(
            "job {} wants its program {} to run in the container {}, which eyas cannot start",
            shown(&task.id),
            shown(&full),
            shown(container)
        );
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint(
                "take `container` out of the transformation, and install the program on the nodes, or let its `pfn` be a script \
                 that starts the container (`apptainer exec IMAGE PROGRAM \"$@\"`)",
            )
            .at(line));
    }
    let program = program(b, &mut task, &full, &name, programs);
    let mut words = vec![];
    for argument in job.list("arguments")? {
        let text = argument
            .scalar()
            .or_else(|| argument.text("lfn").ok().flatten())
            .ok_or_else(|| Error::broken("an argument is not one value").at(argument.line))?;
        words.push(text);
    }
    let text = words.join(" ");
    let words = words::split(&text).ok_or_else(|| {
        let of = shown(&task.id);
        Error::broken(format!("a quotation in the arguments of job {of} does not end")).at(line)
    })?;
    let stream = |key: &str| -> Result<Option<String>> {
        let Some(node) = job.get(key) else { return Ok(None) };
        Ok(Some(match node.scalar() {
            Some(text) => text.to_owned(),
            None => node.need("lfn", "a standard stream")?.to_owned(),
        }))
    };
    let start = Start {
        argv: std::iter::once(program).chain(words).collect(),
        stdin: stream("stdin")?,
        stdout: stream("stdout")?,
        stderr: stream("stderr")?,
    };
    for u in job.list("uses")? {
        add_use(b, &mut task, u)?;
    }
    // Streams are listed in `uses` as well, but files written by hand may leave that out.
    for (file, is_input) in [(&start.stdin, true), (&start.stdout, false), (&start.stderr, false)] {
        if let Some(file) = file {
            let file = b.file(&plain_name(file));
            let list = if is_input { &mut task.inputs } else { &mut task.outputs };
            if !list.iter().any(|u| u.file == file) {
                list.push(Use::of(file));
            }
        }
    }
    task.command = Some(start.command());
    if let Some(profiles) = job.get("profiles") {
        for (name, value) in profiles.get("env").map_or(&[][..], YamlNode::map) {
            let value = value.scalar().unwrap_or("");
            task.env.push((name.clone(), value.to_owned()));
        }
        if let Some(pegasus) = profiles.get("pegasus") {
            let number = |key: &str| -> Result<Option<f64>> {
                let Some(text) = pegasus.text(key)? else { return Ok(None) };
                let value = text.parse::<f64>().ok().filter(|n| n.is_finite() && (0.0..1e12).contains(n));
                let message =
                    format!("the profile `{key}` of job {} is no number: {}", shown(&task.id), shown(text));
                value.map(Some).ok_or_else(|| Error::broken(message).at(pegasus.line))
            };
            let (cores, memory_mb, runtime) = (number("cores")?, number("memory")?, number("runtime")?);
            task.cpus = cores.unwrap_or(1.0).ceil().clamp(1.0, 1e6) as u32;
            task.memory_bytes = memory_mb.filter(|mb| *mb > 0.0).map(|mb| (mb * f64::from(1 << 20)) as u64);
            task.measured.runtime_ns = runtime.map(|s| (s.min(1e9) * 1e9) as u64);
        }
    }
    b.task(task)?;
    Ok(())
}

fn add_use(b: &mut Builder, task: &mut Task, u: &YamlNode) -> Result<()> {
    let lfn = u.need("lfn", "a use")?;
    let file = b.file(&plain_name(lfn));
    if let Some(size) = u.text("size")? {
        let message = || Error::broken(format!("the size of {} is no number", shown(lfn))).at(u.line);
        b.file_mut(file).size_bytes = Some(size.parse().map_err(|_| message())?);
    }
    let is_true = |key: &str| -> Result<Option<bool>> {
        Ok(u.text(key)?.map(|text| text.eq_ignore_ascii_case("true")))
    };
    let used = Use { optional: is_true("optional")?.unwrap_or(false), ..Use::of(file) };
    match u.need("type", "a use")? {
        "input" => task.inputs.push(used),
        "output" => {
            b.file_mut(file).result = is_true("stageOut")?;
            task.outputs.push(used);
        }
        "executable" => {
            let name = plain_name(lfn).into_owned();
            task.inputs.push(Use { name: Some(name), ..used });
        }
        other => {
            let message = format!(
                "job {} uses {} as {}, which eyas cannot do",
                shown(&task.id),
                shown(lfn),
                shown(other)
            );
            return Err(Error::new(ErrorKind::Unsupported, message).at(u.line));
        }
    }
    Ok(())
}
