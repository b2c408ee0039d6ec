//! Pegasus abstract workflows: the YAML of 5.x, with catalogs inside or in files beside it.
//!
//! Taken: jobs with arguments, uses, standard streams and profiles (`env`; `pegasus`: cores, memory in MB, runtime in
//! seconds), jobDependencies, replicaCatalog, transformationCatalog. Where a catalog is not inside, `replicas.yml` and
//! `transformations.yml` in the workflow's folder are read, as the planner does.
//!
//! The words of `arguments` are joined with blanks and split by the shell's rules, as the planner and its launcher do.
//! A transformation that is `stageable` is an input and is started as `./NAME`; one that is `installed` is started
//! at its path; one that no catalog has is started by its name.
//!
//! Refused: sub-workflows, containers, files that are read and written. Not used: sites, checksums, hints for
//! clustering and other planning.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::model::{Builder, Task, Use, Workflow, plain_name};
use crate::words;
use crate::yaml::{self, Node};
use eyas_core::array::Command;
use rustc_hash::FxHashMap;
use std::path::Path;

/// A program of the transformation catalog.
pub(crate) struct Program {
    pub pfn: String,
    /// It is brought along.
    pub stageable: bool,
}

/// How a job starts, in what Pegasus's formats have in common.
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

/// Where a file is, out of the physical names that a catalog has: what eyas can read comes first.
pub(crate) fn best_pfn<'a>(pfns: impl Iterator<Item = &'a str>) -> Option<String> {
    let rank = |pfn: &str| match pfn.split_once("://") {
        None | Some(("file", _)) => 0,
        Some(("http" | "https", _)) => 1,
        Some(_) => 2,
    };
    pfns.min_by_key(|pfn| rank(pfn)).map(str::to_owned)
}

/// `dir` is the folder of the file, for catalogs beside it.
pub(crate) fn parse(text: &str, stem: &str, dir: Option<&Path>) -> Result<Workflow> {
    let root = yaml::parse(text)?;
    if root.get("pegasus").is_none() && root.get("jobs").is_none() {
        return Err(Error::broken("this is no Pegasus workflow: it has neither `pegasus` nor `jobs`"));
    }
    let version = root.text("pegasus")?.unwrap_or("5.0");
    if !version.starts_with("5.") && version != "5" {
        let message = format!("this is a Pegasus workflow of version {}, and 5.x is known", shown(version));
        return Err(Error::new(ErrorKind::Unknown, message).at(root.line));
    }
    // A YAML file that was cut is often still YAML; what Pegasus writes ends with a dependency and a line feed.
    if !text.ends_with('\n') && root.get("jobDependencies").is_none() {
        return Err(Error::new(ErrorKind::Truncated, "the file breaks off: its last line has no end")
            .hint("if it is whole, end it with a line feed"));
    }
    let mut b = Builder::new(root.text("name")?.unwrap_or(stem));
    let beside = |name: &str| -> Result<Option<Node>> {
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
    for job in root.list("jobs")? {
        add_job(&mut b, job, &programs)?;
    }
    for dependency in root.list("jobDependencies")? {
        let find = |b: &Builder, node: &Node, id: &str| {
            let message = format!("`jobDependencies` has {}, which is no job", shown(id));
            b.find_task(id).ok_or_else(|| Error::broken(message).at(node.line))
        };
        let parent = find(&b, dependency, dependency.need("id", "a dependency")?)?;
        for child in dependency.list("children")? {
            let id = child.scalar().ok_or_else(|| Error::broken("a child is no id").at(child.line))?;
            let child = find(&b, child, id)?;
            b.link(parent, child);
        }
    }
    let written = b.written();
    let replicas = match root.get("replicaCatalog") {
        Some(_) => None,
        None => beside("replicas.yml")?,
    };
    let catalog = root.get("replicaCatalog").or(replicas.as_ref());
    for replica in catalog.map_or(Ok(&[][..]), |catalog| catalog.list("replicas"))? {
        let lfn = plain_name(replica.need("lfn", "a replica")?).into_owned();
        let pfns = replica.list("pfns")?.iter().filter_map(|pfn| pfn.text("pfn").ok()?);
        let location = best_pfn(pfns).or(replica.text("pfn")?.map(str::to_owned));
        let Some(number) = b.known_number(&lfn) else { continue };
        // A copy of what a job writes is no reason to read an old one.
        if !written[number as usize] {
            b.file_mut(number).location = location;
        }
    }
    b.finish()
}

fn programs_of(catalog: &Node) -> Result<FxHashMap<String, Program>> {
    let mut programs = FxHashMap::default();
    for t in catalog.list("transformations")? {
        let name = full_name(t, "a transformation")?;
        if let Some(site) = t.list("sites")?.first() {
            if site.get("container").is_some() {
                let message =
                    format!("transformation {} wants a container, which eyas cannot start", shown(&name));
                return Err(Error::new(ErrorKind::Unsupported, message).at(site.line));
            }
            let pfn = site.need("pfn", "a site of a transformation")?.to_owned();
            let stageable = site.text("type")?.is_some_and(|t| t.eq_ignore_ascii_case("stageable"));
            programs.insert(name, Program { pfn, stageable });
        }
    }
    Ok(programs)
}

/// `namespace::name:version`, of what there is.
fn full_name(node: &Node, of: &str) -> Result<String> {
    let name = node.need("name", of)?;
    Ok(joined_name(node.text("namespace")?, name, node.text("version")?))
}

pub(crate) fn joined_name(namespace: Option<&str>, name: &str, version: Option<&str>) -> String {
    let namespace = namespace.map_or(String::new(), |n| format!("{n}::"));
    let version = version.map_or(String::new(), |v| format!(":{v}"));
    format!("{namespace}{name}{version}")
}

/// The word that starts a transformation, which is an input of the task if it is brought along.
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
        Some(program) => program.pfn.strip_prefix("file://").unwrap_or(&program.pfn).to_owned(),
        None => name.to_owned(),
    }
}

fn add_job(b: &mut Builder, job: &Node, programs: &FxHashMap<String, Program>) -> Result<()> {
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
    // Streams are in `uses` as well; files written by hand may leave that out.
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
        for (name, value) in profiles.get("env").map_or(&[][..], Node::map) {
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

fn add_use(b: &mut Builder, task: &mut Task, u: &Node) -> Result<()> {
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
