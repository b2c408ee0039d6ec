//! DAX: the XML that Pegasus had before its YAML (2.x and 3.x), and that many published workflows are in.
//!
//! Read: `job` with `argument` (text with `file` and `filename` inside), `uses`, `stdin`, `stdout`,
//! `stderr`, the profiles `env` and, of `pegasus`, cores, memory (MB) and runtime (s), the attributes
//! `runtime` (s) and `size` (bytes) that generators write; `child` with `parent`; `file` and `executable`
//! with `pfn` at the top. Arguments become words as in [`crate::pegasus`].
//!
//! Refused: `dag` and `dax` (workflows in workflows), `link="inout"`. Not used: `transformation`,
//! `metadata`, `invoke`.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::model::{Builder, Task, TaskNo, Use, Workflow, plain_name};
use crate::pegasus::{Program, Start, best_pfn, joined_name, program};
use crate::words;
use eyas_text::line_of;
use roxmltree::{Document, Node, ParsingOptions};
use rustc_hash::FxHashMap;

pub(crate) fn parse(text: &str, stem: &str) -> Result<Workflow> {
    if let Some(line) = find_entities(text) {
        let message = "the file defines entities, which eyas does not expand: a few lines of them can stand for \
                       more text than there is memory";
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint("write out what they stand for, for instance with `xmllint --noent`")
            .at(line));
    }
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| {
        let line = e.pos().row;
        // The reader stands at the end of the text when an element was not closed.
        let at_end = matches!(
            e,
            roxmltree::Error::UnclosedRootNode
                | roxmltree::Error::UnexpectedEndOfStream
                | roxmltree::Error::NoRootNode
        ) || text.lines().count() <= line as usize;
        match at_end {
            true => Error::new(ErrorKind::Truncated, "the file breaks off before its end")
                .at((line > 1).then_some(line)),
            false => Error::broken(format!("this is no XML: {}", line_of(&e.to_string()))).at(line),
        }
    })?;
    // `text_pos_at` counts from the beginning each time. Lines are asked for in order, so one pass is
    // enough for all of them.
    let starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line_of = |node: Node| starts.partition_point(|start| *start <= node.range().start) as u32;
    let root = document.root_element();
    if root.tag_name().name() != "adag" {
        let message = format!("this is no DAX: its root is {}, not `adag`", shown(root.tag_name().name()));
        return Err(Error::new(ErrorKind::Unknown, message));
    }
    let version = root.attribute("version").unwrap_or("3");
    if !matches!(version.split('.').next(), Some("1" | "2" | "3")) {
        let message = format!("this is DAX {}, and 2.x and 3.x are known", shown(version));
        return Err(Error::new(ErrorKind::Unknown, message).at(line_of(root)));
    }
    let mut b = Builder::new(root.attribute("name").unwrap_or(stem), text.len());
    let mut programs: FxHashMap<String, Program> = FxHashMap::default();
    for node in elements(root).filter(|node| node.tag_name().name() == "executable") {
        let name = need(node, "name", line_of(node))?;
        let Some(pfn) = best_pfn(pfns(node)) else { continue };
        let stageable = node.attribute("installed").is_some_and(|i| i.eq_ignore_ascii_case("false"));
        let full = joined_name(node.attribute("namespace"), name, node.attribute("version"));
        programs.insert(full, Program { pfn, stageable, container: None });
    }
    let mut locations: Vec<(String, String)> = vec![];
    for node in elements(root) {
        let line = line_of(node);
        match node.tag_name().name() {
            "job" => add_job(&mut b, node, &programs, line)?,
            "file" => {
                if let Some(pfn) = best_pfn(pfns(node)) {
                    locations.push((plain_name(need(node, "name", line)?).into_owned(), pfn));
                }
            }
            kind @ ("dag" | "dax") => {
                let id = shown(node.attribute("id").unwrap_or(""));
                let message =
                    format!("job {id} is a whole workflow ({}), which eyas cannot run", shown(kind));
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .hint("run the inner workflow by itself, or put its jobs into this one")
                    .at(line));
            }
            _ => {}
        }
    }
    for child in elements(root).filter(|node| node.tag_name().name() == "child") {
        let find = |node: Node, b: &Builder| -> Result<TaskNo> {
            let id = need(node, "ref", line_of(node))?;
            let message = format!("a dependency names {}, which is no job", shown(id));
            b.find_task(id).ok_or_else(|| Error::broken(message).at(line_of(node)))
        };
        let to = find(child, &b)?;
        for parent in elements(child).filter(|node| node.tag_name().name() == "parent") {
            let from = find(parent, &b)?;
            b.link(from, to);
        }
    }
    let written = b.written();
    for (name, location) in locations {
        if let Some(file) = b.known_number(&name).filter(|file| !written[*file as usize]) {
            b.file_mut(file).location = Some(location);
        }
    }
    b.finish()
}

/// The line on which the file's own DTD defines an entity, if it does.
fn find_entities(text: &str) -> Option<u32> {
    let mut rest = text;
    // The parts that may come before the root element: declarations, comments, and one DTD.
    let dtd = loop {
        rest = rest.trim_start();
        let (begin, end) = match rest {
            _ if rest.starts_with("<!DOCTYPE") => break rest,
            _ if rest.starts_with("<?") => ("<?", "?>"),
            _ if rest.starts_with("<!--") => ("<!--", "-->"),
            _ => return None,
        };
        let at = rest[begin.len()..].find(end)?;
        rest = &rest[begin.len() + at + end.len()..];
    };
    let (mut at, mut is_inside) = (0, false);
    while let Some(c) = dtd[at..].chars().next() {
        let here = &dtd[at..];
        let past = |begin: usize, end: &str| here[begin..].find(end).map(|n| begin + n + end.len());
        at += match c {
            '[' => {
                is_inside = true;
                1
            }
            '>' if !is_inside => return None,
            ']' if is_inside => return None,
            '<' if here.starts_with("<!--") => past(4, "-->")?,
            '<' if here.starts_with("<!ENTITY") => {
                let before = &text[..text.len() - here.len()];
                return Some(before.matches('\n').count() as u32 + 1);
            }
            '"' => past(1, "\"")?,
            '\'' => past(1, "'")?,
            c => c.len_utf8(),
        };
    }
    None
}

fn elements<'a, 'd>(node: Node<'a, 'd>) -> impl Iterator<Item = Node<'a, 'd>> + use<'a, 'd> {
    node.children().filter(Node::is_element)
}

fn pfns<'a>(node: Node<'a, 'a>) -> impl Iterator<Item = &'a str> {
    elements(node).filter(|n| n.tag_name().name() == "pfn").filter_map(|n| n.attribute("url"))
}

fn need<'a>(node: Node<'a, 'a>, attribute: &str, line: u32) -> Result<&'a str> {
    node.attribute(attribute).ok_or_else(|| {
        let tag = shown(node.tag_name().name());
        Error::broken(format!("a {tag} has no `{attribute}`")).at(line)
    })
}

/// The file's name: in `file` in DAX 2.x, in `name` in 3.x.
fn file_name<'a>(node: Node<'a, 'a>, line: u32) -> Result<&'a str> {
    node.attribute("file").map_or_else(|| need(node, "name", line), Ok)
}

fn add_job(b: &mut Builder, job: Node, programs: &FxHashMap<String, Program>, line: u32) -> Result<()> {
    let id = need(job, "id", line)?.to_owned();
    let name = need(job, "name", line)?.to_owned();
    let full = joined_name(job.attribute("namespace"), &name, job.attribute("version"));
    let mut task = Task { id, stage: name.clone(), line: Some(line), ..Task::default() };
    let number = |text: Option<&str>, what: &str| -> Result<Option<f64>> {
        let Some(text) = text else { return Ok(None) };
        let value = text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && (0.0..1e19).contains(n));
        let message = format!("the {what} of a file or job is no number: {}", shown(text));
        value.map(Some).ok_or_else(|| Error::broken(message).at(line))
    };
    task.measured.runtime_ns =
        number(job.attribute("runtime"), "runtime")?.map(|s| (s.min(1e9) * 1e9) as u64);
    let start_word = program(b, &mut task, &full, &name, programs);
    let mut text = String::new();
    let mut start = Start { argv: vec![start_word], stdin: None, stdout: None, stderr: None };
    for node in elements(job) {
        match node.tag_name().name() {
            "argument" => {
                for part in node.children() {
                    match part.is_element() {
                        true => text.push_str(file_name(part, line)?),
                        false => text.push_str(part.text().unwrap_or("")),
                    }
                }
            }
            "uses" => {
                let name = file_name(node, line)?;
                let file = b.file(&plain_name(name));
                if let Some(size) = number(node.attribute("size"), "size")? {
                    b.file_mut(file).size_bytes = Some(size as u64);
                }
                let is_true = |key: &str| node.attribute(key).map(|v| v.eq_ignore_ascii_case("true"));
                let used = Use { optional: is_true("optional").unwrap_or(false), ..Use::of(file) };
                match node.attribute("link").map(str::to_ascii_lowercase).as_deref() {
                    Some("output") => {
                        b.file_mut(file).result = is_true("transfer");
                        task.outputs.push(used);
                    }
                    Some("input") | None => task.inputs.push(used),
                    Some(other) => {
                        let of = shown(&task.id);
                        let message = format!(
                            "job {of} uses {} as {}, which eyas cannot do",
                            shown(name),
                            shown(other)
                        );
                        return Err(Error::new(ErrorKind::Unsupported, message).at(line));
                    }
                }
            }
            "stdin" => start.stdin = Some(file_name(node, line)?.into()),
            "stdout" => start.stdout = Some(file_name(node, line)?.into()),
            "stderr" => start.stderr = Some(file_name(node, line)?.into()),
            "profile" => {
                let value = node.text().unwrap_or("").trim();
                let space = node.attribute("namespace").unwrap_or("").to_ascii_lowercase();
                match (space.as_str(), node.attribute("key").unwrap_or("")) {
                    ("env", key) if !key.is_empty() => task.env.push((key.into(), value.into())),
                    ("pegasus", "cores") => {
                        let cores = number(Some(value), "profile `cores`")?;
                        task.cpus = cores.unwrap_or(1.0).ceil().clamp(1.0, 1e6) as u32;
                    }
                    ("pegasus", "memory") => {
                        let mb = number(Some(value), "profile `memory`")?.filter(|mb| *mb > 0.0);
                        task.memory_bytes = mb.map(|mb| (mb.min(1e12) * f64::from(1 << 20)) as u64);
                    }
                    ("pegasus", "runtime") => {
                        let s = number(Some(value), "profile `runtime`")?;
                        task.measured.runtime_ns = s.map(|s| (s.min(1e9) * 1e9) as u64);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    // Standard streams are often listed in `uses` as well.
    for (name, is_input) in [(&start.stdin, true), (&start.stdout, false), (&start.stderr, false)] {
        if let Some(name) = name {
            let file = b.file(&plain_name(name));
            let list = if is_input { &mut task.inputs } else { &mut task.outputs };
            if !list.iter().any(|u| u.file == file) {
                list.push(Use::of(file));
            }
        }
    }
    let words = words::split(&text).ok_or_else(|| {
        let of = shown(&task.id);
        Error::broken(format!("a quotation in the arguments of job {of} does not end")).at(line)
    })?;
    start.argv.extend(words);
    task.command = Some(start.command());
    b.task(task)?;
    Ok(())
}
