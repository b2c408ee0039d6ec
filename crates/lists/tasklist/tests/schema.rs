//! The reference page, the JSON Schema and the reader say the same.
//!
//! The schema is read by a small validator of the keywords that it uses. `pattern` is left out: a regular
//! expression library for one test is too much, and what the patterns say is tested at the reader.

use eyas_tasklist::{FIELDS, ReadOptions, read};
use serde_json::Value;
use std::path::Path;

const SCHEMA: &str = include_str!("../../../../docs/reference/task-list.schema.json");
const PAGE: &str = include_str!("../../../../docs/reference/task-list.md");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn is_read(line: &str) -> bool {
    read(line.as_bytes(), Path::new("/base"), &ReadOptions::default()).is_ok()
}

/// Does `value` satisfy `schema`? Panics at a keyword it does not know.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    schema.as_object().unwrap().iter().all(|(keyword, want)| {
        let length = |n: Option<usize>| n.is_none_or(|n| n as u64 >= want.as_u64().unwrap());
        let number = value.as_f64();
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "default" | "pattern" => true,
            "$ref" => {
                accepts(root, root.pointer(want.as_str().unwrap().strip_prefix('#').unwrap()).unwrap(), value)
            }
            "type" => match want.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                other => panic!("type {other}"),
            },
            "anyOf" => want.as_array().unwrap().iter().any(|s| accepts(root, s, value)),
            "required" => value
                .as_object()
                .is_none_or(|o| want.as_array().unwrap().iter().all(|k| o.contains_key(k.as_str().unwrap()))),
            "properties" => value
                .as_object()
                .is_none_or(|o| o.iter().all(|(k, v)| want.get(k).is_none_or(|s| accepts(root, s, v)))),
            "additionalProperties" => value.as_object().is_none_or(|o| {
                let others =
                    o.iter().filter(|(k, _)| schema.get("properties").is_none_or(|p| p.get(k).is_none()));
                others.into_iter().all(|(_, v)| want != &Value::Bool(false) && accepts(root, want, v))
            }),
            "propertyNames" => {
                value.as_object().is_none_or(|o| o.keys().all(|k| accepts(root, want, &k.as_str().into())))
            }
            "items" => value.as_array().is_none_or(|a| a.iter().all(|v| accepts(root, want, v))),
            "enum" => want.as_array().unwrap().contains(value),
            "minItems" => length(value.as_array().map(Vec::len)),
            "minLength" => length(value.as_str().map(|s| s.chars().count())),
            "minimum" => number.is_none_or(|n| n >= want.as_f64().unwrap()),
            "exclusiveMinimum" => number.is_none_or(|n| n > want.as_f64().unwrap()),
            "maximum" => number.is_none_or(|n| n <= want.as_f64().unwrap()),
            other => panic!("the keyword {other} is not known to this test"),
        }
    })
}

#[test]
fn the_three_have_the_same_fields() {
    let schema = schema();
    let mut in_schema: Vec<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    in_schema.sort_unstable();
    let mut expect = FIELDS.to_vec();
    expect.sort_unstable();
    assert_eq!(in_schema, expect);
    let on_page: Vec<&str> = PAGE
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` | "))
        .map(|(f, _)| f)
        .take(FIELDS.len())
        .collect();
    assert_eq!(on_page, FIELDS);
}

#[test]
fn schema_and_reader_agree_on_every_kind_of_value() {
    let schema = schema();
    let values = [
        "null",
        "true",
        "0",
        "1",
        "-1",
        "1.5",
        "4294967296",
        "2147483648",
        "\"\"",
        "\"x\"",
        "\"1\"",
        "[]",
        "[\"x\"]",
        "[1]",
        "[\"\"]",
        "{}",
        "{\"x\":\"y\"}",
        "{\"x\":1}",
        "{\"x\":\"\"}",
        "{\"\":\"y\"}",
    ];
    let mut n_accepted = 0;
    for field in FIELDS {
        for value in values {
            // Texts that only a pattern, which this test leaves out, can tell apart.
            if matches!((*field, value), ("memory" | "walltime", "\"x\"" | "\"\"") | ("command", "[\"\"]")) {
                continue;
            }
            let line = match *field {
                "command" => format!("{{\"command\":{value}}}"),
                // What the reader asks of such a task besides is not in a schema.
                "reduce" => {
                    format!("{{\"command\":[\"a\",\"{{inputs}}\"],\"outputs\":[\"o\"],\"reduce\":{value}}}")
                }
                field => format!("{{\"command\":[\"a\"],\"{field}\":{value}}}"),
            };
            let in_schema = accepts(&schema, &schema, &serde_json::from_str(&line).unwrap());
            assert_eq!(in_schema, is_read(&line), "{line}");
            n_accepted += usize::from(in_schema);
        }
    }
    assert!(n_accepted > 30, "{n_accepted}");
    for line in ["{}", "[]", "5", r#"{"command":["a"],"x":1}"#] {
        assert!(!accepts(&schema, &schema, &serde_json::from_str(line).unwrap()) && !is_read(line), "{line}");
    }
}

#[test]
fn the_examples_of_the_page_are_read() {
    let examples: Vec<&str> = PAGE.lines().filter(|l| l.starts_with('{')).collect();
    assert_eq!(examples.len(), 17);
    let schema = schema();
    for line in &examples {
        assert!(accepts(&schema, &schema, &serde_json::from_str(line).unwrap()), "{line}");
    }
    let list = examples.join("\n");
    let read = read(list.as_bytes(), Path::new("/base"), &ReadOptions::default());
    // One of them is taken apart into four.
    assert_eq!(read.unwrap_or_else(|e| panic!("{e}")).n_tasks, 20);
}
