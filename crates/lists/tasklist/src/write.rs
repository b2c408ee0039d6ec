//! Writes tasks as JSON Lines, for round trips and for `submit` from one cluster to another.

use crate::glob::stands_for_several;
use crate::line::{GATHER_HINTS, HINTS, MULTICAST_HINTS};
use crate::made;
use eyas_terms::array::{CONTAINER_NAME, Command, Hints, STDERR_NAME, STDOUT_NAME, TaskArray};
use eyas_terms::needs::in_parts;
use serde_json::{Value, json};

/// Task `i` of `array` as one line without its end; reading it gives the same task. `i < n_tasks`.
pub fn to_jsonl(array: &TaskArray, i: u32) -> String {
    let task = array.expand(i);
    let mut line = String::from("{");
    let mut put = |name: &str, value: String| {
        let comma = if line.len() > 1 { "," } else { "" };
        line.push_str(&format!("{comma}\"{name}\":{value}"));
    };
    let text = |s: &str| Value::from(s).to_string();
    // Written by hand: a JSON map of this library would sort the names, and order is part of a task.
    let place = |location: &str, is_input: bool| match location.starts_with('/')
        && stands_for_several(location)
        && (is_input || !location.ends_with('/'))
    {
        // A path would be read as a pattern, or as the files in a directory.
        true => text(&eyas_storage::url_of_path(location)),
        // Whoever runs the list has to know the query.
        false => text(&eyas_storage::signed::with_secrets(location)),
    };
    let files = |list: &[(String, String)], are_inputs: bool| {
        let one = |(name, at): &(String, String)| format!("{}:{}", text(name), place(at, are_inputs));
        let each =
            list.iter().enumerate().filter_map(|(i, file)| match made::written(file, list.get(i + 1)) {
                Some(form) => form,
                None => Some(one(file)),
            });
        let inner: Vec<String> = each.collect();
        format!("{{{}}}", inner.join(","))
    };
    let pairs = |list: &[(String, String)]| {
        let inner: Vec<String> = list.iter().map(|(a, b)| format!("{}:{}", text(a), text(b))).collect();
        format!("{{{}}}", inner.join(","))
    };
    put("id", text(&task.id));
    match &task.command {
        Command::Exec(argv) => put("command", json!(argv).to_string()),
        Command::Shell(shell) => put("command", text(shell)),
    }
    let (printed, outputs): (Vec<_>, Vec<_>) = task
        .outputs
        .iter()
        .cloned()
        .partition(|(name, _)| [STDOUT_NAME, STDERR_NAME].contains(&name.as_str()));
    for (name, list, are_inputs) in [("inputs", &task.inputs, true), ("outputs", &outputs, false)] {
        let is_only_container = are_inputs && list.iter().all(|(name, _)| name.ends_with(CONTAINER_NAME));
        if !list.is_empty() && !is_only_container {
            put(name, files(list, are_inputs));
        }
    }
    if !task.env.is_empty() {
        put("env", pairs(&task.env));
    }
    if let Some(image) = made::container(&task.inputs) {
        put("container", image);
    }
    for (name, location) in &printed {
        put(if name == STDOUT_NAME { "stdout" } else { "stderr" }, text(location));
    }
    let needs = array.needs.as_deref();
    match needs.map_or(0, |needs| needs.cpu_parts) {
        0 if task.cpus == 1 => {}
        0 => put("cpus", task.cpus.to_string()),
        parts => put("cpus", in_parts(parts.into())),
    }
    if let Some(needs) = needs.filter(|needs| needs.gpu_parts > 0) {
        put("gpus", in_parts(needs.gpu_parts.into()));
    }
    if let Some(needs) = needs.filter(|needs| !needs.resources.is_empty()) {
        put("resources", json!(needs.resources).to_string());
    }
    if let Some(bytes) = task.memory_bytes {
        put("memory", bytes.to_string());
    }
    if let Some(ns) = task.walltime_ns {
        let is_whole = ns % 1_000_000_000 == 0;
        put("walltime", if is_whole { (ns / 1_000_000_000).to_string() } else { format!("\"{ns}ns\"") });
    }
    if task.retries != 0 {
        put("retries", task.retries.to_string());
    }
    if task.priority != 0 {
        put("priority", task.priority.to_string());
    }
    if !task.label.is_empty() {
        put("label", text(&task.label));
    }
    if task.dynamic {
        put("dynamic", "true".into());
    }
    if !task.promises.is_empty() {
        let names: Vec<String> = task.promises.iter().map(|name| text(name)).collect();
        put("promises", format!("[{}]", names.join(",")));
    }
    if !task.hints.is_auto() {
        put("hints", hints(&task.hints));
    }
    line.push('}');
    line
}

fn hints(hints: &Hints) -> String {
    fn word<T: PartialEq>(known: &[(&'static str, T)], hint: T) -> &'static str {
        known.iter().find(|(_, h)| *h == hint).map_or("auto", |(word, _)| word)
    }
    let said = [
        ("multicast", word(&MULTICAST_HINTS, hints.multicast)),
        ("scatter", word(&HINTS, hints.scatter)),
        ("gather", word(&GATHER_HINTS, hints.gather)),
    ];
    let said = said.iter().filter(|(_, word)| *word != "auto");
    let said: Vec<String> = said.map(|(name, word)| format!("\"{name}\":\"{word}\"")).collect();
    format!("{{{}}}", said.join(","))
}
