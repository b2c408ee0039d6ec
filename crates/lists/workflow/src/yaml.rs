//! YAML as a tree in which every value knows its line, so that messages can name the place.
//!
//! Scalars stay text: the reader of a format decides which are numbers (`version: 1.10` is no 1.1). Aliases
//! are copied, and copies are limited ([`crate::limit`]), so that a small file cannot ask for all memory.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::limit::Allowance;
use eyas_text::line_of;
use rustc_hash::FxHashMap;
use saphyr_parser::{Event, Parser, ScalarStyle};

/// The memory of a value in addition to its text.
const NODE_BYTES: u64 = 64;
/// The deepest nesting of values.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct YamlNode {
    pub line: u32,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// `null`, `~` or nothing.
    Null,
    Scalar(String),
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

impl YamlNode {
    /// The memory that the value takes, roughly.
    fn n_bytes(&self) -> u64 {
        NODE_BYTES
            + match &self.value {
                Value::Null => 0,
                Value::Scalar(text) => text.len() as u64,
                Value::List(list) => list.iter().map(YamlNode::n_bytes).sum(),
                Value::Map(map) => map.iter().map(|(key, node)| key.len() as u64 + node.n_bytes()).sum(),
            }
    }

    /// The value under `key` of a map; `None` also for a value that is no map, and for `null`.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        let Value::Map(map) = &self.value else { return None };
        let (_, node) = map.iter().find(|(k, _)| k == key)?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The text under `key`, if there is a value; a value that is no text is refused.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) => match node.scalar() {
                Some(text) => Ok(Some(text)),
                None => Err(Error::broken(format!("`{key}` is not one value")).at(node.line)),
            },
        }
    }

    /// The text under `key`, which must be there.
    pub fn need(&self, key: &str, of: &str) -> Result<&str> {
        self.text(key)?.ok_or_else(|| Error::broken(format!("{of} has no `{key}`")).at(self.line))
    }

    /// The list under `key`; an absent key gives an empty list.
    pub fn list(&self, key: &str) -> Result<&[YamlNode]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(YamlNode { value: Value::List(list), .. }) => Ok(list),
            Some(node) => Err(Error::broken(format!("`{key}` is not a list")).at(node.line)),
        }
    }

    pub fn map(&self) -> &[(String, YamlNode)] {
        match &self.value {
            Value::Map(map) => map,
            _ => &[],
        }
    }
}

/// A list or map that is being read: its line, its anchor, its values so far, and in a map the key that
/// waits for its value.
struct Open {
    line: u32,
    anchor: usize,
    value: Value,
    key: Option<String>,
}

/// The first document of `text`.
pub(crate) fn parse(text: &str) -> Result<YamlNode> {
    let mut open: Vec<Open> = vec![];
    let mut anchors: FxHashMap<usize, YamlNode> = FxHashMap::default();
    let mut allowance = Allowance::of_file(text.len());
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| {
            let line = e.marker().line() as u32;
            let at_end = text.lines().count() <= line as usize;
            match at_end {
                // The parser has a limit of its own, which it reaches before ours.
                _ if e.info().contains("recursion limit") => Error::broken("values are nested too deep"),
                true => Error::new(
                    ErrorKind::Truncated,
                    format!("the file breaks off, or is no YAML: {}", line_of(e.info())),
                ),
                false => Error::broken(format!("this is no YAML: {}", line_of(e.info()))),
            }
            .at(line)
        })?;
        let line = span.start.line() as u32;
        let mut begin = |value, anchor| {
            if open.len() >= DEPTH_MAX {
                return Err(Error::broken(format!("values are nested more than {DEPTH_MAX} deep")).at(line));
            }
            open.push(Open { line, anchor, value, key: None });
            Ok(())
        };
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if is_null { Value::Null } else { Value::Scalar(text.into_owned()) };
                (YamlNode { line, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                begin(Value::List(vec![]), anchor)?;
                continue;
            }
            Event::MappingStart(anchor, _) => {
                begin(Value::Map(vec![]), anchor)?;
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = open.pop() else { continue };
                (YamlNode { line: done.line, value: done.value }, done.anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    return Err(Error::broken("an alias stands inside what it stands for").at(line));
                };
                allowance.take(node.n_bytes(), "aliases stand for").map_err(|e| e.at(line))?;
                (node.clone(), 0)
            }
            _ => continue,
        };
        if anchor > 0 {
            allowance.take(node.n_bytes(), "aliases stand for").map_err(|e| e.at(line))?;
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            None => return Ok(node),
            Some(Open { value: Value::List(list), .. }) => list.push(node),
            Some(Open { value: Value::Map(map), key, .. }) => match key.take() {
                Some(key) => map.push((key, node)),
                None => match node.value {
                    Value::Scalar(text) => {
                        *key = Some(text);
                    }
                    _ => return Err(Error::broken("a key is not one word").at(line)),
                },
            },
            Some(_) => {}
        }
    }
    Err(Error::broken(format!("there is nothing in {}", shown("the file"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_lines() {
        let node = parse("a: 1.10\nb:\n- x: &n {y: 'null'}\n  z: *n\n- ~\nc:\n").unwrap();
        assert_eq!(node.text("a").unwrap(), Some("1.10"));
        let list = node.list("b").unwrap();
        assert_eq!((list.len(), list[0].line), (2, 3));
        assert_eq!(list[0].get("z").unwrap().text("y").unwrap(), Some("null"));
        assert!(node.get("c").is_none() && node.list("c").unwrap().is_empty());
        assert!(node.need("d", "the file").unwrap_err().to_string().contains("the file has no `d`"));
        assert!(node.list("a").unwrap_err().to_string().contains("line 1: `a` is not a list"));
    }

    #[test]
    fn what_is_no_yaml_is_refused() {
        for (text, expect) in [
            ("a: [1, 2\n", "breaks off"),
            ("a: b: c\nd: 1\ne: 1\n", "line 1"),
            ("", "nothing"),
            (&"[".repeat(60), "breaks off"),
            (&"[".repeat(100), "deep"),
            (&format!("a: {}{}\n", "[".repeat(100), "]".repeat(100)), "deep"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text:?}: {error}");
        }
        let laughs: String = (1..12)
            .map(|i| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(",")))
            .collect();
        let error = parse(&format!("a0: &a0 x\n{laughs}")).unwrap_err().to_string();
        assert!(error.contains("aliases"), "{error}");
    }
}
