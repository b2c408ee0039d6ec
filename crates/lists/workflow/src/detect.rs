//! The format of a file, by its name and its beginning.

use crate::error::{Error, ErrorKind, Result};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// eyas's own task list, for `eyas-tasklist`.
    JsonLines,
    /// One shell line per task; also for `eyas-tasklist`.
    Commands,
    /// WfFormat of WfCommons.
    WfFormat,
    /// Abstract workflow of Pegasus 5, YAML.
    Pegasus,
    /// Abstract workflow of older Pegasus, XML.
    Dax,
    Makeflow,
    /// Makeflow in JX, its language on top of JSON.
    Jx,
    /// A script in Swift/K.
    Swift,
}

impl Format {
    /// The name that users know the format by.
    pub fn name(self) -> &'static str {
        match self {
            Format::JsonLines => "a task list (JSON Lines)",
            Format::Commands => "a list of commands",
            Format::WfFormat => "WfCommons WfFormat",
            Format::Pegasus => "a Pegasus workflow (YAML)",
            Format::Dax => "a Pegasus DAX (XML)",
            Format::Makeflow => "a Makeflow",
            Format::Jx => "a Makeflow in JX",
            Format::Swift => "a Swift script",
        }
    }
}

/// The number of bytes at the beginning of a file that [`detect`] needs.
pub const HEAD_BYTES: usize = 64 << 10;

const KNOWN: &str = "known are task lists (JSON Lines), lists of commands (.txt), WfCommons WfFormat, Pegasus workflows (YAML and DAX), Makeflow (classic and JX) and Swift scripts";

/// Name endings of lists of commands, whose content has no mark of its own.
const COMMANDS: [&str; 4] = ["txt", "cmd", "cmds", "commands"];

/// The format of the file `path`, which begins with `head`. A file without the marks of any other format is
/// a task list; the reader of task lists says what is wrong with it.
pub fn detect(path: &Path, head: &[u8]) -> Result<Format> {
    // The last character may be cut. Text before it that is not UTF-8 is left to the reader of task lists.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or(""),
        Err(_) => return Ok(Format::JsonLines),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    let unknown = |what: &str| {
        Err(Error::new(ErrorKind::Unknown, format!("this is {what}, which is no workflow that eyas knows"))
            .hint(KNOWN))
    };
    match ending.as_str() {
        "jx" => return Ok(Format::Jx),
        "swift" => return Ok(Format::Swift),
        _ => {}
    }
    // JX has comments, and a Makeflow may begin with comments, too, but never with a bracket.
    let bare = without_comments(text);
    if bare.starts_with('{') {
        return match ending.as_str() {
            "jsonl" | "ndjson" => Ok(Format::JsonLines),
            _ => match top_key(
                bare,
                &["command", "schemaVersion", "workflow", "rules", "define", "cwlVersion"],
            ) {
                Some("schemaVersion" | "workflow") => Ok(Format::WfFormat),
                Some("rules" | "define") => Ok(Format::Jx),
                Some("cwlVersion") => unknown("a CWL document"),
                _ => Ok(Format::JsonLines),
            },
        };
    }
    if text.starts_with('<') {
        return match text.contains("<adag") || matches!(ending.as_str(), "dax") {
            true => Ok(Format::Dax),
            false => unknown("XML without an `adag`"),
        };
    }
    let has_line = |wanted: &dyn Fn(&str) -> bool| text.lines().any(wanted);
    let is_pegasus = |line: &str| {
        ["pegasus:", "x-pegasus:", "jobs:", "jobDependencies:"].iter().any(|key| line.starts_with(key))
    };
    if has_line(&is_pegasus) {
        return Ok(Format::Pegasus);
    }
    match ending.as_str() {
        "makeflow" | "mf" => return Ok(Format::Makeflow),
        "jsonl" | "ndjson" | "json" => return Ok(Format::JsonLines),
        "yml" | "yaml" => return unknown("YAML without `pegasus` or `jobs`"),
        "cwl" => return unknown("a CWL document"),
        "nf" => return unknown("a Nextflow script"),
        "smk" => return unknown("a Snakefile"),
        "wdl" => return unknown("a WDL document"),
        _ => {}
    }
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    if name == "Snakefile" {
        return unknown("a Snakefile");
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_rule = |line: &str| {
        !line.starts_with([' ', '\t', '"', '['])
            && line.contains(':')
            && !line.trim_end().ends_with(['{', '}'])
    };
    let mut before_is_rule = false;
    let has_rule = lines.any(|line| {
        let found = before_is_rule && line.starts_with('\t');
        before_is_rule = is_rule(line) || (before_is_rule && line.starts_with('@'));
        found
    });
    match name.to_ascii_lowercase().contains("makeflow") || has_rule {
        true => Ok(Format::Makeflow),
        false if COMMANDS.contains(&ending.as_str()) => Ok(Format::Commands),
        false => Ok(Format::JsonLines),
    }
}

/// `text` from its first line that is neither empty nor a comment.
fn without_comments(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    rest
}

/// The first of `wanted` that is a key of the outermost object in `text`, which begins with `{` and may be
/// cut.
fn top_key<'a>(text: &str, wanted: &[&'a str]) -> Option<&'a str> {
    let bytes = text.as_bytes();
    let mut depth = 0u32;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return None;
                }
            }
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                let string = text.get(start..at.min(bytes.len()))?;
                let is_key = text.get(at + 1..)?.trim_start().starts_with(':');
                if depth == 1
                    && is_key
                    && let Some(key) = wanted.iter().find(|w| **w == string)
                {
                    return Some(key);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_name_and_beginning() {
        use Format::*;
        for (path, head, expect) in [
            ("x.json", r#"{"name":"a","schemaVersion":"1.5","#, WfFormat),
            ("x", "\u{feff} {\n \"description\":\"the \\\"command\\\": x\",\n\"workflow\": {", WfFormat),
            ("x.json", r#"{"id":"workflow","command":["a"],"inputs":{"workflow":"x"}}"#, JsonLines),
            ("x.jsonl", r#"{"workflow":1}"#, JsonLines),
            ("x", "", JsonLines),
            ("x", "\u{1}\u{2}", JsonLines),
            ("w.yml", "x-pegasus:\n  a: 1\npegasus: 5.0.4\n", Pegasus),
            ("w", "---\n# c\nname: x\njobs:\n- id: a\n", Pegasus),
            ("w", "<?xml version=\"1.0\"?>\n<!-- c -->\n<adag name=\"x\">", Dax),
            ("Makeflow", "A=1\n", Makeflow),
            ("w.jx", "# c\n{}", Jx),
            ("w.swift", "# c\n{", Swift),
            ("w", r#"{"rules":[]}"#, Jx),
            ("w.json", "# c\n\n# d\n{\n# e\n\"define\": {}, \"rules\": []}", Jx),
            ("w", "# c\nA=1\nout: in\n\tcp in out\n", Makeflow),
            ("w", "out: in\n@CORES=2\n\tcp in out\n", Makeflow),
            ("w.json", "[1]", JsonLines),
            ("a:b", "hello: world\n", JsonLines),
        ] {
            assert_eq!(detect(Path::new(path), head.as_bytes()).unwrap(), expect, "{path}: {head}");
        }
        assert_eq!(detect(Path::new("x.png"), b"\x89PNG").unwrap(), JsonLines);
        assert_eq!(detect(Path::new("x"), b"{\"workflow\":\"\xc3").unwrap(), WfFormat);
    }

    #[test]
    fn other_peoples_formats_are_named() {
        for (path, head, expect) in [
            ("w.xml", "<html>", "XML without an `adag`"),
            ("w.cwl", "cwlVersion: v1.2\n", "CWL"),
            ("w.yaml", "a: 1\n", "YAML without"),
            ("Snakefile", "rule all:\n", "Snakefile"),
        ] {
            let error = detect(Path::new(path), head.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains("hint: known are"), "{error}");
        }
    }
}
