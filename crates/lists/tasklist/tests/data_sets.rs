//! Files of data sets as inputs and outputs.

use eyas_tasklist::{MapSpec, ReadOptions, TaskList, map, read};
use eyas_terms::array::{TaskArray, TaskSpec};
use std::path::Path;

fn tasks(list: &TaskList) -> Vec<TaskSpec> {
    let all = |a: &TaskArray| (0..a.n_tasks).map(|i| a.expand(i)).collect::<Vec<_>>();
    list.arrays.iter().inspect(|a| assert_eq!(a.check(), Ok(()))).flat_map(all).collect()
}

fn list_in(dir: &str, lines: &[&str]) -> Result<TaskList, String> {
    read(lines.join("\n").as_bytes(), Path::new(dir), &ReadOptions::default()).map_err(|e| e.to_string())
}

/// Where the task of the line writes to.
fn outputs(dir: &str, line: &str) -> Vec<String> {
    let list = list_in(dir, &[line]).unwrap_or_else(|e| panic!("{line}: {e}"));
    tasks(&list).remove(0).outputs.into_iter().map(|(_, location)| location).collect()
}

#[test]
fn a_label_that_is_made_up_is_the_tasks_own() {
    let line = |id: &str, command: &str, output: &str| {
        format!(
            r#"{{"id": "{id}", "command": "{command}", "inputs": ["data:adk@2/x"], "outputs": {output}}}"#
        )
    };
    let label = |dir: &str, line: &str| {
        let location = outputs(dir, line).remove(0);
        let label = location.strip_prefix("data://").unwrap().split_once('/').unwrap().0.to_owned();
        assert!(label.starts_with('d') && label.len() == 13, "{location}");
        label
    };
    let output = r#"{"n": "data:?kind=count"}"#;
    let first = label("/base", &line("a", "wc", output));
    assert_eq!(label("/base", &line("a", "wc", output)), first, "the same task has the same label");
    let others = [
        label("/other", &line("a", "wc", output)),
        label("/base", &line("b", "wc", output)),
        label("/base", &line("a", "wc -l", output)),
        label("/base", &line("a", "wc", r#"{"m": "data:?kind=count"}"#)),
        label("/base", &line("a", "wc", r#"{"n": "data:?kind=sum"}"#)),
    ];
    assert!(!others.contains(&first));
    assert_eq!(outputs("/base", &line("a", "wc", output))[0], format!("data://{first}/n?kind=count"));
}

#[test]
fn outputs_may_have_labels_and_paths() {
    let line = r#"{"id": "a", "command": "x", "stdout": "data:log?of=a",
        "outputs": {"o/n 1": "data:result?a=b&c=d/", "m": "data:other/m?a=b", "k": "data:plain/k"}}"#;
    let line = line.replace('\n', "");
    let mut found = outputs("/base", &line);
    found.sort();
    let expect = [
        "data://log/stdout?of=a",
        "data://other/m?a=b",
        "data://plain/k",
        "data://result/o/n%201?a=b&c=d%2F",
    ];
    assert_eq!(found, expect);
}

#[test]
fn what_is_no_data_set_is_refused() {
    for (output, words) in [
        (r#"["data:?a=b"]"#, "gives no name in the sandbox"),
        (r#"{"n": "data:adk"}"#, "names no file of a data set"),
        (r#"{"n": "data:?a"}"#, "has a tag without a value"),
        (r#"{"n": "data:a b?a=b"}"#, "has no valid label"),
        (r#"{"n": "data:adk/../x"}"#, "leads out of its data set"),
    ] {
        let line = format!(r#"{{"id": "a", "command": "x", "outputs": {output}}}"#);
        let error = list_in("/base", &[&line]).map(drop).unwrap_err();
        assert!(error.contains(words) && error.contains("outputs"), "{output}: {error}");
    }
}

/// A task waits for another one whose output it reads, where both write the location in the same way.
#[test]
fn a_task_may_read_what_another_one_writes() {
    let list = list_in(
        "/base",
        &[
            r#"{"id": "a", "command": "x", "outputs": {"n": "data:result?a=b"}}"#,
            r#"{"id": "b", "command": "x", "inputs": {"n": "data:result/n?a=b"}}"#,
            r#"{"id": "c", "command": "x", "outputs": ["data:plain/k"]}"#,
            r#"{"id": "d", "command": "x", "inputs": ["data:plain/k"]}"#,
        ],
    );
    assert_eq!(list.unwrap().n_dependencies, 2);
}

#[test]
fn a_label_has_one_writer() {
    for (first, second) in [
        (r#"{"n": "data:result/x"}"#, r#"{"n": "data:result/y"}"#),
        (r#"{"n": "data:result?a=b"}"#, r#"{"n": "data:result?a=c"}"#),
    ] {
        let line =
            |id: &str, outputs: &str| format!(r#"{{"id": "{id}", "command": "x", "outputs": {outputs}}}"#);
        let error = list_in("/base", &[&line("a", first), &line("b", second)]).map(drop).unwrap_err();
        assert!(error.contains("`data:result`") && error.contains("`a`"), "{error}");
    }
    let both = r#"{"id": "a", "command": "x", "outputs": {"n": "data:one/x", "m": "data:one/y"}}"#;
    assert!(list_in("/base", &[both]).is_err());
}

/// Names of files are not read as parts of a URL.
#[test]
fn what_a_map_puts_into_a_location_means_itself() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["50%.txt", "a%41", "x?a=b", "c d&e"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let spec = MapSpec {
        paths: vec!["*".into()],
        out: vec!["data:{index}/{name}?of={name}".into()],
        command: vec!["x".into()],
        base_dir: dir.path().into(),
        ..MapSpec::default()
    };
    let mut found: Vec<String> =
        tasks(&map(&spec, None).unwrap()).into_iter().map(|mut task| task.outputs.remove(0).1).collect();
    found.sort();
    let expect = [
        "data://0/50%25.txt?of=50%25.txt",
        "data://1/a%2541?of=a%2541",
        "data://2/c%20d%26e?of=c%20d%26e",
        "data://3/x%3Fa%3Db?of=x%3Fa=b",
    ];
    assert_eq!(found, expect);
}
