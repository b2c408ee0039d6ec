//! Task lists: what is accepted, what is refused and in which words, and that folding loses nothing.

use eyas_tasklist::{Error, ErrorKind, ReadOptions, TaskList, read, to_jsonl};
use eyas_terms::array::{Command, GatherHint, Hint, Hints, TaskArray, TaskSpec};
use proptest::prelude::*;
use std::path::Path;

fn read_text(text: &str) -> Result<TaskList, Error> {
    let options = ReadOptions { origin: "t.jsonl".into(), ..ReadOptions::default() };
    read(text.as_bytes(), Path::new("/base"), &options)
}

fn tasks(list: &TaskList) -> Vec<TaskSpec> {
    let all = |a: &TaskArray| (0..a.n_tasks).map(|i| a.expand(i)).collect::<Vec<_>>();
    list.arrays.iter().inspect(|a| assert_eq!(a.check(), Ok(()))).flat_map(all).collect()
}

/// The one task of one line.
fn task(line: &str) -> TaskSpec {
    let mut tasks = tasks(&read_text(line).unwrap_or_else(|e| panic!("{line}: {e}")));
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[test]
fn a_task_with_everything() {
    let got = task(
        r#"{"id": "t", "command": ["prog", "-x", "in.dat"], "inputs": {"in.dat": "../d/in.dat", "s/r": "file:///a%20b"},
            "outputs": {"o": "https://H/o"}, "env": {"A": "1", "B": ""}, "cpus": 2, "memory": "512MiB",
            "walltime": "1h30m", "retries": 3, "priority": -5, "label": "cut", "dynamic": true,
            "hints": {"gather": "collective", "scatter": "never"}}"#
            .replace('\n', " ")
            .as_str(),
    );
    let expect = TaskSpec {
        id: "t".into(),
        command: Command::Exec(vec!["prog".into(), "-x".into(), "in.dat".into()]),
        inputs: vec![pair("in.dat", "/d/in.dat"), pair("s/r", "/a b")],
        outputs: vec![pair("o", "https://h/o")],
        env: vec![pair("A", "1"), pair("B", "")],
        cpus: 2,
        memory_bytes: Some(512 << 20),
        walltime_ns: Some(5_400_000_000_000),
        retries: 3,
        priority: -5,
        label: "cut".into(),
        dynamic: true,
        hints: Hints { gather: GatherHint::Collective, scatter: Hint::Never, ..Hints::default() },
        promises: vec![],
    };
    assert_eq!(got, expect);
}

#[test]
fn defaults_and_short_forms() {
    let got = task(
        r#"{"command": "ls > out.txt", "inputs": ["d/a.fits", "http://h/x%20y.gz"], "outputs": ["out.txt"]}"#,
    );
    assert_eq!(got.id, "1");
    assert_eq!(got.command, Command::Shell("ls > out.txt".into()));
    assert_eq!(got.inputs, [pair("a.fits", "/base/d/a.fits"), pair("x y.gz", "http://h/x%20y.gz")]);
    assert_eq!(got.outputs, [pair("out.txt", "/base/out.txt")]);
    assert_eq!(
        (got.cpus, got.memory_bytes, got.walltime_ns, got.retries, got.priority),
        (1, None, None, 0, 0)
    );
    let limits = task(r#"{"command": ["a"], "memory": 1024, "walltime": 0.5}"#);
    assert_eq!((limits.memory_bytes, limits.walltime_ns), (Some(1024), Some(500_000_000)));
}

#[test]
fn blank_lines_crlf_a_byte_order_mark_and_a_missing_last_line_end_are_fine() {
    let list = read_text("\u{feff}{\"command\":[\"a\"]}\r\n\r\n  \n{\"command\":[\"b\"]}").unwrap();
    let ids: Vec<_> = tasks(&list).into_iter().map(|t| t.id).collect();
    assert_eq!(ids, ["1", "4"]);
    assert_eq!(read_text("").unwrap(), TaskList::default());
}

#[test]
fn names_may_hold_anything_that_a_file_name_may() {
    for name in ["a b", "it's \"x\"", "a\nb", "-rf", "naïve ☃", "$(x)`;&|", "a\\b", "d/e/f", "%41", "{in}"]
    {
        let json = serde_json::to_string(name).unwrap();
        let got = task(&format!(r#"{{"command": ["cat", {json}], "inputs": {{{json}: {json}}}}}"#));
        assert_eq!(got.inputs, [pair(name, &format!("/base/{name}"))]);
        assert_eq!(got.command, Command::Exec(vec!["cat".into(), name.into()]));
    }
}

/// `line` is refused on line 3 of a list; the error has `column`, `field` and these words.
fn refuses(line: &str, column: impl Into<Option<u64>>, field: &str, words: &[&str]) {
    let text = format!("{{\"command\":[\"a\"]}}\n\n{line}\n{{\"command\":[\"b\"]}}\n");
    let error = read_text(&text).expect_err(line);
    let shown = error.to_string();
    assert_eq!(error.line, Some(3), "{line}: {shown}");
    assert_eq!(error.column, column.into(), "{line}: {shown}");
    assert_eq!(error.field.as_deref().unwrap_or(""), field, "{line}: {shown}");
    assert!(shown.starts_with("t.jsonl, line 3"), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{line}: {shown:?} lacks {word:?}");
    }
}

#[test]
fn broken_json_is_refused_with_its_place_and_what_was_expected() {
    refuses(r#"{"command": ["a"] "cpus": 1}"#, 19, "", &["expected `,` or `}`"]);
    refuses(r#"{"command": ["é" 1]}"#, 18, "command", &["expected `,` or `]`"]);
    refuses(r#"{"command": ["a"]"#, 17, "", &["the line ends inside an object", "hint: a task is one line"]);
    refuses(r#"{"command": ["a"]}{"command": ["a"]}"#, 19, "", &["something follows the task"]);
    refuses("# a comment", 1, "", &["hint: JSON Lines have no comments"]);
    refuses(r#"["a"]"#, 1, "", &["expected a task", "without a list"]);
    refuses(
        r#"{command: ["a"]}"#,
        2,
        "",
        &["key must be a string", "hint: names and texts stand in double quotes"],
    );
    refuses("{'command': ['a']}", 2, "", &["hint: names and texts stand in double quotes"]);
    refuses("#!/bin/sh", 1, "", &["hint: a script is one task"]);
    refuses("x;y", 1, "", &["hint: each row of a table is a task"]);
    refuses("{\"command\": [\"a\tb\"]}", 16, "command", &["control character"]);
}

#[test]
fn promises_stand_for_what_will_be_added() {
    let plan = r#"{"id":"plan","command":["plan"],"dynamic":true,"promises":["run:x","run:d/y"]}"#;
    let reads = |name: &str| format!("{{\"id\":\"r\",\"command\":[\"r\"],\"inputs\":[{name:?}]}}\n");
    let list = read_text(&format!("{}{plan}\n", reads("run:d/y"))).unwrap();
    assert_eq!(list.n_dependencies, 1);
    let got = tasks(&list).into_iter().find(|t| t.id == "plan").unwrap();
    assert_eq!(got.promises, ["run:x", "run:d/y"]);
    let again = to_jsonl(&as_array(&got), 0);
    assert_eq!(again, plan);
    // Alone the promise is allowed, too: an added task may read the file.
    assert!(read_text(plan).is_ok());
    let refused = |text: &str| read_text(text).expect_err(text).to_string();
    assert!(
        refused(&format!("{plan}\n{}", reads("run:z")))
            .contains("task `r` reads `run:z`, which no task writes")
    );
}

#[test]
fn promises_that_cannot_be_are_refused() {
    let dynamic =
        |promises: &str| format!(r#"{{"command": ["a"], "dynamic": true, "promises": {promises}}}"#);
    refuses(&dynamic(r#"["/out"]"#), None, "promises", &["only a file that stays on the nodes, run:NAME"]);
    refuses(&dynamic(r#"["run:../x"]"#), None, "promises", &["`run:../x`"]);
    refuses(&dynamic(r#""run:x""#), 55, "promises", &["`promises`"]);
    refuses(&dynamic(r#"["run:x", "run:x"]"#), None, "promises", &["the task promises `run:x` twice"]);
    let alone = r#"{"command": ["a"], "promises": ["run:x"]}"#;
    refuses(alone, None, "promises", &["one that may add tasks", "hint: say `\"dynamic\": true`"]);
    let refused = |text: &str| read_text(text).expect_err(text).to_string();
    let p = |id: &str, more: &str| {
        format!(r#"{{"id": "{id}", "command": ["a"], "dynamic": true, "promises": ["run:x"]{more}}}"#) + "\n"
    };
    let twice = refused(&(p("p", "") + &p("q", "")));
    assert!(twice.contains("line 2: the task promises `run:x`, and so does task `p` on line 1"), "{twice}");
    let writes = r#"{"id": "w", "command": ["a"], "outputs": ["run:x"]}"#;
    for text in [p("p", "") + writes, format!("{writes}\n{}", p("p", ""))] {
        let both = refused(&text);
        assert!(both.contains("task `p` promises `run:x`, which task `w` writes"), "{both}");
    }
    // A reader of a promised file waits for the promising task.
    let reads = r#"{"id": "r", "command": ["a"], "inputs": ["run:x"], "outputs": ["run:y"]}"#;
    let circle = refused(&format!("{reads}\n{}", p("p", r#", "inputs": ["run:y"]"#)));
    assert!(circle.contains("in a circle") && circle.contains("`p` (line 2)"), "{circle}");
}

#[test]
fn wrong_fields_are_refused_by_name() {
    refuses(
        r#"{"command": ["a"], "inptus": {}}"#,
        27,
        "",
        &["unknown field `inptus`", "hint: did you mean `inputs`?"],
    );
    refuses(
        r#"{"zebra": 1}"#,
        8,
        "",
        &["unknown field `zebra`", "hint: the fields are id, command, shell, inputs"],
    );
    refuses(r#"{"command": ["a"], "command": ["b"]}"#, 28, "command", &["`command`: it is there twice"]);
    refuses(r#"{"id": "x"}"#, 11, "", &["no `command`", "hint: add \"command\""]);
    refuses(
        r#"{"id": 5, "command": ["a"]}"#,
        8,
        "id",
        &["`id`: invalid type: integer `5`, expected a string"],
    );
    refuses(r#"{"command": 5}"#, 13, "command", &["a list of strings, or one string for the shell"]);
    refuses(r#"{"command": ["a", 1]}"#, 19, "command", &["expected a string"]);
    refuses(r#"{"command": []}"#, None, "command", &["names no program"]);
    refuses(r#"{"command": [""]}"#, None, "command", &["names no program"]);
    refuses(r#"{"command": "  "}"#, 14, "command", &["blank"]);
    refuses(r#"{"command": ["a\u0000"]}"#, None, "command", &["NUL"]);
    refuses(
        r#"{"command": ["a"], "cpus": 0}"#,
        28,
        "cpus",
        &["`cpus`", "a number above 0, such as 2 or 0.25"],
    );
    refuses(r#"{"command": ["a"], "cpus": -0.5}"#, 31, "cpus", &["`cpus`", "a number above 0"]);
    refuses(r#"{"command": ["a"], "cpus": 0.0001}"#, 33, "cpus", &["`cpus`", "a number above 0"]);
    refuses(r#"{"command": ["a"], "cpus": "2"}"#, 30, "cpus", &["`cpus`", "a number above 0"]);
    refuses(r#"{"command": ["a"], "cpus": null}"#, 31, "cpus", &["`cpus`", "null"]);
    refuses(r#"{"command": ["a"], "retries": -1}"#, 32, "retries", &["from 0 to"]);
    refuses(r#"{"command": ["a"], "priority": 3000000000}"#, 41, "priority", &["-2147483648 to 2147483647"]);
    refuses(
        r#"{"command": ["a"], "memory": "2G"}"#,
        33,
        "memory",
        &["write GB or GiB", "hint: write a number"],
    );
    refuses(r#"{"command": ["a"], "memory": 0}"#, 30, "memory", &["at least 1 byte"]);
    refuses(
        r#"{"command": ["a"], "walltime": "soon"}"#,
        37,
        "walltime",
        &["`walltime`: `soon` is not a duration"],
    );
    refuses(r#"{"command": ["a"], "walltime": 0}"#, 32, "walltime", &["above 0"]);
    refuses(r#"{"command": ["a"], "walltime": 1e300}"#, 36, "walltime", &["out of range"]);
    refuses(r#"{"command": ["a"], "env": {"A": 1}}"#, 33, "env", &["expected a string"]);
    refuses(r#"{"command": ["a"], "env": {"A": "", "A": ""}}"#, 38, "env", &["`A` is in `env` twice"]);
    refuses(r#"{"command": ["a"], "env": {"A=B": ""}}"#, 29, "env", &["a `=` in its name"]);
    refuses(r#"{"command": ["a"], "id": ""}"#, 27, "id", &["`id` is empty"]);
    refuses(r#"{"command": ["a"], "id": "a\nb"}"#, None, "id", &["control characters"]);
}

#[test]
fn wrong_names_and_locations_are_refused() {
    let input = |name: &str| format!(r#"{{"command": ["a"], "inputs": {{"{name}": "x"}}}}"#);
    refuses(&input(""), 32, "inputs", &["the name `` is empty"]);
    refuses(&input("/etc/x"), 32, "inputs", &["is absolute"]);
    refuses(&input("a/../../b"), 32, "inputs", &["leads out with `..`"]);
    refuses(&input("./a"), 32, "inputs", &["has a part `.`"]);
    refuses(&input("a//b"), 32, "inputs", &["an empty part"]);
    refuses(&input(r"a\u0000"), None, "inputs", &["NUL"]);
    refuses(&input(&"x".repeat(256)), 32, "inputs", &["more than 255 bytes"]);
    let location = |text: &str| format!(r#"{{"command": ["a"], "inputs": {{"i": "{text}"}}}}"#);
    refuses(&location(""), 37, "inputs", &["`inputs` `i`: a location is empty"]);
    refuses(&location("gopher://b/k"), 37, "inputs", &["the scheme `gopher`", "hint: known are"]);
    refuses(&location("dir/"), 37, "inputs", &["cannot list the directory `dir/`"]);
    refuses(&location("~/x"), 37, "inputs", &["only shells know it", "hint: write the whole path"]);
    refuses(
        r#"{"command": ["a"], "inputs": ["http://h/"]}"#,
        32,
        "inputs",
        &["gives no name in the sandbox"],
    );
    refuses(
        r#"{"command": ["a"], "inputs": ["x/f", "y/f"]}"#,
        39,
        "inputs",
        &["two inputs are named `f`", "write an object"],
    );
    refuses(
        r#"{"command": ["a"], "inputs": {"f": "x", "f": "y"}}"#,
        42,
        "inputs",
        &["two inputs are named `f`"],
    );
    refuses(
        r#"{"command": ["a"], "outputs": {"f": "x", "f": "y"}}"#,
        43,
        "outputs",
        &["two outputs are named `f`"],
    );
    refuses(
        r#"{"command": ["a"], "inputs": {"f": "x"}, "outputs": {"f": "y"}}"#,
        55,
        "outputs",
        &["an input and an output are both named `f`"],
    );
    refuses(
        r#"{"command": ["a"], "inputs": {"f": "x"}, "outputs": {"f/g": "y"}}"#,
        55,
        "outputs",
        &["`f` is a file of the sandbox and the directory of `f/g`"],
    );
    refuses(
        r#"{"command": ["a"], "inputs": {"f": "x"}, "outputs": {"g": "./x"}}"#,
        60,
        "outputs",
        &["writes `/base/x`, which it reads"],
    );
    let many: Vec<String> = (0..20).map(|i| format!(r#""d/f{i}""#)).collect();
    let clash = format!(r#"{{"command": ["a"], "inputs": [{}, "e/f7"]}}"#, many.join(", "));
    let error = read_text(&clash).unwrap_err();
    assert!(error.message.contains("two inputs are named `f7`"), "{error}");
}

#[test]
fn a_line_that_is_no_text_is_refused() {
    let options = ReadOptions { line_bytes_max: 100, ..ReadOptions::default() };
    let error = read(&b"{\"command\":[\"\xff\"]}"[..], Path::new("/"), &options).unwrap_err();
    assert_eq!((error.line, error.column), (Some(1), Some(14)), "{error}");
    let long = [b'x'; 200];
    let error = read(&long[..], Path::new("/"), &options).unwrap_err();
    assert!(error.message.contains("more than 100 bytes"), "{error}");
}

#[test]
fn a_mistake_on_line_4711_gives_no_tasks_but_its_place() {
    let mut text: String = (0..4710).map(|i| format!("{{\"command\": [\"a\", \"{i}\"]}}\n")).collect();
    text.push_str("{\"command\": [\"a\",}\n");
    let error = read_text(&text).unwrap_err();
    assert_eq!((error.line, error.column), (Some(4711), Some(18)), "{error}");
}

#[test]
fn two_tasks_may_not_share_an_id_or_an_output() {
    // Far apart, so that the first is folded already when the second comes; and close together.
    for n_between in [0, 3, 9000] {
        let between: String =
            (0..n_between).map(|i| format!("{{\"id\": \"b{i}\", \"command\": [\"a\"]}}\n")).collect();
        let text = |a: &str, b: &str| {
            format!("\n{{\"command\":[\"a\"],{a}}}\n{between}{{\"command\":[\"a\"],{b}}}\n")
        };
        let last = n_between + 3;
        let error = read_text(&text(r#""id": "x""#, r#""id": "x""#)).unwrap_err();
        assert_eq!((error.kind, error.line), (ErrorKind::Conflict, Some(last)));
        assert!(error.message.contains("the id `x` is taken by the task on line 2"), "{error}");
        let error = read_text(&text(
            r#""id": "p", "outputs": {"r": "o/one", "x": "o/x"}"#,
            r#""id": "q", "outputs": {"r": "o/two", "y": "./o//x"}"#,
        ))
        .unwrap_err();
        assert_eq!((error.kind, error.line), (ErrorKind::Conflict, Some(last)));
        assert!(error.message.contains("writes `/base/o/x`, and so does task `p` on line 2"), "{error}");
    }
    // An id that a later line gets by default.
    let error = read_text("{\"id\":\"2\",\"command\":[\"a\"]}\n{\"command\":[\"a\"]}").unwrap_err();
    assert!(error.message.contains("the id `2` is taken"), "{error}");
    let error = read_text(r#"{"command":["a"],"outputs":{"a":"x","b":"x"}}"#).unwrap_err();
    assert!(error.message.contains("writes `/base/x` twice"), "{error}");
}

/// A list with a task `x>y` for each pair, which reads `x` and writes `y`.
fn chain(pairs: &[(&str, &str)]) -> String {
    pairs
        .iter()
        .map(|(a, b)| {
            format!("{{\"id\":\"{a}>{b}\",\"command\":[\"a\"],\"inputs\":{{\"i\":\"{a}\"}},\"outputs\":{{\"o\":\"{b}\"}}}}\n")
        })
        .collect()
}

#[test]
fn dependencies_are_counted_in_either_order_and_circles_are_named() {
    assert_eq!(read_text(&chain(&[("a", "b"), ("b", "c"), ("b", "d")])).unwrap().n_dependencies, 2);
    assert_eq!(read_text(&chain(&[("b", "c"), ("x", "b"), ("a", "x")])).unwrap().n_dependencies, 2);
    let error = read_text(&chain(&[("a", "b"), ("c", "d"), ("d", "e"), ("e", "c"), ("e", "f")])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(
        error.message.ends_with("`c>d` (line 2), `d>e` (line 3), `e>c` (line 4)")
            || error.message.ends_with("`d>e` (line 3), `e>c` (line 4), `c>d` (line 2)")
            || error.message.ends_with("`e>c` (line 4), `c>d` (line 2), `d>e` (line 3)"),
        "{error}"
    );
}

#[test]
fn folding_keeps_what_lists_usually_look_like_small() {
    let check = |line: &dyn Fn(u64) -> String, n_columns: usize| {
        let text: String = (0..5000).map(|i| line(i) + "\n").collect();
        let list = read_text(&text).unwrap();
        assert_eq!(list.arrays.len(), 2);
        for array in &list.arrays {
            assert_eq!(array.columns.len(), n_columns, "{:?}", array.template);
        }
    };
    // Counting costs nothing, wherever the number stands.
    check(
        &|i| {
            format!(
                r#"{{"command": ["p", "{i}"], "inputs": {{"in.{i}": "d/in.{i}"}}, "outputs": {{"o": "r/{i}.txt"}}, "id": "t{i}"}}"#
            )
        },
        0,
    );
    check(&|_| r#"{"command": ["true"]}"#.into(), 0);
    // One column for input, argument, shell line and output; one for ids that have nothing to do with it.
    let name = |i: u64| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    check(
        &|i| {
            format!(
                r#"{{"command": "cut {n}.fits > {n}.npy", "inputs": ["sky/{n}.fits"], "outputs": {{"{n}.npy": "cut/{n}.npy"}}, "id": "{n}"}}"#,
                n = name(i)
            )
        },
        1,
    );
    // Directories and endings that differ: the name and the stem of the column.
    check(
        &|i| {
            let (d, e) = (i % 7, ["fits", "fits.gz"][i as usize % 2]);
            format!(
                r#"{{"command": ["cut", "{n}.{e}"], "inputs": {{"{n}.{e}": "sky/{d}/{n}.{e}"}}, "outputs": {{"o": "cut/{n}.npy"}}, "id": "{n}"}}"#,
                n = name(i)
            )
        },
        1,
    );
}

#[test]
fn shapes_that_alternate_fold_as_well_as_shapes_in_a_row() {
    let text: String =
        (0..3000).map(|i| format!("{{\"command\": [\"a\"], \"label\": \"l{}\"}}\n", i % 6)).collect();
    assert_eq!(read_text(&text).unwrap().arrays.len(), 6);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab0-3]{0,3}",
        2 => "[a-c]{1,2}\\.(fits|fits\\.gz|d)",
        1 => "[^\\x00]{0,6}",
        1 => Just("é/ü.gz".to_owned()),
    ]
}

fn any_file() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ab]/[a-c0-2]{1,2}\\.(fits|gz)", 1 => "[ab0-9é' -]{1,4}", 1 => "x\n[a-c]"]
}

/// Strings of one task. The shape is drawn once for all, so that chunks have many tasks.
fn any_tasks() -> impl Strategy<Value = Vec<TaskSpec>> {
    (0..3usize, 0..3usize, 0..3usize, 1..4usize, any::<bool>()).prop_flat_map(
        |(n_in, n_out, n_env, argc, shell)| {
            let one = (
                prop::collection::vec(any_text(), argc),
                prop::collection::vec(any_file(), n_in),
                prop::collection::vec(any_file(), n_out),
                prop::collection::vec(any_text(), n_env),
                0..2u32,
            );
            prop::collection::vec(one, 1..30).prop_map(move |rows| {
                let row = |(i, (argv, ins, outs, env, retries)): (
                    usize,
                    (Vec<String>, Vec<String>, Vec<String>, Vec<String>, u32),
                )| {
                    let command = match shell {
                        true => Command::Shell(format!("x{}", argv.join(" "))),
                        false => Command::Exec(std::iter::once("p".into()).chain(argv).collect()),
                    };
                    TaskSpec {
                        id: format!("t{}", i * i),
                        command,
                        inputs: ins
                            .iter()
                            .enumerate()
                            .map(|(k, l)| (format!("i{k}/{l}"), format!("/d/{l}")))
                            .collect(),
                        // Own to the task, so that no output is written twice.
                        outputs: outs
                            .iter()
                            .enumerate()
                            .map(|(k, l)| (format!("o{k}/{l}"), format!("/o/{k}/{i}/{l}")))
                            .collect(),
                        env: env.iter().enumerate().map(|(k, v)| (format!("V{k}"), v.clone())).collect(),
                        cpus: 1 + retries,
                        memory_bytes: (retries > 0).then_some(1 << 30),
                        walltime_ns: (retries > 0).then_some(1_500_000_001),
                        retries,
                        priority: -(retries as i32),
                        label: "é".repeat(retries as usize),
                        dynamic: retries > 1,
                        promises: if retries > 1 { vec![format!("run:{i}")] } else { vec![] },
                        hints: match retries {
                            0 => Hints::default(),
                            1 => {
                                Hints { gather: GatherHint::Async, multicast: Hint::Once, ..Hints::default() }
                            }
                            _ => Hints { multicast: Hint::Never, scatter: Hint::Always, ..Hints::default() },
                        },
                    }
                };
                rows.into_iter().enumerate().map(row).collect()
            })
        },
    )
}

/// One task as an array with a template and nothing else.
fn as_array(task: &TaskSpec) -> TaskArray {
    use eyas_terms::array::Pattern;
    TaskArray {
        n_tasks: 1,
        first_index: 0,
        template: task.map(&mut |s: &String| Pattern::literal(s)),
        columns: vec![],
        needs: None,
    }
}

fn by_id(mut tasks: Vec<TaskSpec>) -> Vec<TaskSpec> {
    tasks.sort_by(|a, b| a.id.cmp(&b.id));
    tasks
}

proptest! {
    #[test]
    fn writing_and_reading_a_list_gives_the_same_tasks(expect in any_tasks()) {
        let text: String = expect.iter().map(|t| to_jsonl(&as_array(t), 0) + "\n").collect();
        let list = read_text(&text).unwrap();
        prop_assert_eq!(list.n_tasks as usize, expect.len());
        let got = tasks(&list);
        prop_assert_eq!(by_id(got), by_id(expect));
        let again: String =
            list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| to_jsonl(a, i) + "\n")).collect();
        prop_assert_eq!(by_id(tasks(&read_text(&again).unwrap())), by_id(tasks(&list)));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\{|\\}|\\[|\\]|\"|:|,|command|inputs|a|/|\\\\|\n|[0-9]|é){0,60}") {
        let _ = read_text(&text);
        let _ = read_text(&format!("{{\"command\":[\"a\"],{text}}}"));
    }

    #[test]
    fn a_circle_is_refused_exactly_when_there_is_one(edges in prop::collection::vec((0..8u32, 0..8u32), 1..10)) {
        let pairs: Vec<_> = edges.iter().enumerate().filter(|(i, (a, b))| {
            a != b && !edges[..*i].iter().any(|(x, y)| y == b && x != y)
        }).map(|(_, e)| *e).collect();
        let names: Vec<(String, String)> = pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let text = chain(&names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect::<Vec<_>>());
        // Reference: a file is reachable when it has no writer or its writer's input is.
        let mut reached: Vec<u32> = (0..8).filter(|f| !pairs.iter().any(|(_, b)| b == f)).collect();
        for _ in 0..8 {
            for (a, b) in &pairs {
                if reached.contains(a) && !reached.contains(b) {
                    reached.push(*b);
                }
            }
        }
        prop_assert_eq!(read_text(&text).is_ok(), reached.len() == 8);
    }
}

/// A folder with these files, all empty.
fn folder(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    dir
}

#[test]
fn patterns_and_directories_in_inputs_stand_for_files() {
    let dir = folder(&["d/a.txt", "d/b.txt", "d/b.dat", "d/.hidden", "d/e/c.txt", "odd*.txt", "oddity.txt"]);
    std::fs::create_dir(dir.path().join("d/.eyas-part-1")).unwrap();
    for half in ["d/.eyas-part-1/half", "d/e/.eyas-part-2"] {
        std::fs::write(dir.path().join(half), "").unwrap();
    }
    let inputs = |inputs: &str| {
        let line = format!("{{\"command\": [\"x\"], \"inputs\": {inputs}}}");
        let list = read(line.as_bytes(), dir.path(), &ReadOptions::default());
        list.map(|list| tasks(&list).remove(0).inputs).map_err(|e| e.to_string())
    };
    let at = |location: &str| format!("{}/{location}", dir.path().display());
    for (given, expect) in [
        (r#"["d/*.txt"]"#, vec![("a.txt", "d/a.txt"), ("b.txt", "d/b.txt")]),
        (
            r#"["oddity.txt", "d/b.???"]"#,
            vec![("oddity.txt", "oddity.txt"), ("b.dat", "d/b.dat"), ("b.txt", "d/b.txt")],
        ),
        (
            r#"{"in": "d/**/*.txt"}"#,
            vec![("in/a.txt", "d/a.txt"), ("in/b.txt", "d/b.txt"), ("in/c.txt", "d/e/c.txt")],
        ),
        (
            r#"["d/"]"#,
            vec![
                ("d/.hidden", "d/.hidden"),
                ("d/a.txt", "d/a.txt"),
                ("d/b.dat", "d/b.dat"),
                ("d/b.txt", "d/b.txt"),
                ("d/e/c.txt", "d/e/c.txt"),
            ],
        ),
        (r#"{"all": "./d/e/"}"#, vec![("all/c.txt", "d/e/c.txt")]),
        // Its own name comes first, and a URL is no pattern.
        (r#"["odd*.txt"]"#, vec![("odd*.txt", "odd*.txt")]),
    ] {
        let expect: Vec<_> = expect.iter().map(|(name, location)| pair(name, &at(location))).collect();
        assert_eq!(inputs(given).unwrap(), expect, "{given}");
    }
    assert_eq!(inputs(r#"["file:///x/a*"]"#).unwrap(), [pair("a*", "/x/a*")]);
    for (given, words) in [
        (r#"["d/*.fits"]"#, "no file matches `d/*.fits`"),
        (r#"["none/"]"#, "cannot list the directory `none/`"),
        (r#"["./"]"#, "gives no name in the sandbox"),
        (r#"{"a.txt": "d/a.txt", "a.txt/x": "d/"}"#, "a.txt"),
    ] {
        let said = inputs(given).unwrap_err();
        assert!(said.contains(words) && said.contains("line 1"), "{given}: {said}");
    }
}

/// What other tasks of the list write is not there yet, so a directory that is read now would lack it.
#[test]
fn what_the_list_writes_itself_is_not_found_by_looking() {
    let dir = folder(&["d/a.txt"]);
    let list = |lines: &[&str]| {
        read(lines.join("\n").as_bytes(), dir.path(), &ReadOptions::default()).map_err(|e| e.to_string())
    };
    let writes = |to: &str| format!(r#"{{"id": "w", "command": ["x"], "outputs": {{"o": "{to}"}}}}"#);
    let reads = |from: &str| format!(r#"{{"id": "r", "command": ["x"], "inputs": {{"i": "{from}"}}}}"#);
    let refused = list(&[&reads("d/"), &writes("d/new.txt")]).unwrap_err();
    assert!(refused.contains("line 1") && refused.contains("task `w` of the list writes"), "{refused}");
    assert!(list(&[&reads("d/"), &writes("e/new.txt")]).is_ok());
    // The name of a file that a task writes, whatever it looks like.
    assert_eq!(list(&[&reads("d/odd*"), &writes("d/odd*")]).unwrap().n_dependencies, 1);
    assert!(list(&[&reads("d/odd*"), &writes("d/other")]).is_err());
}

#[test]
fn a_list_that_is_written_names_files_and_no_patterns() {
    let dir = folder(&["d/a*.txt", "d/a 100%?.txt"]);
    let text = r#"{"id": "t", "command": ["x"], "inputs": {"a": "d/a*.txt", "b": "d/a 100%?.txt"}}"#;
    let first = read(text.as_bytes(), dir.path(), &ReadOptions::default()).unwrap();
    let line = to_jsonl(&first.arrays[0], 0);
    std::fs::remove_dir_all(dir.path().join("d")).unwrap();
    assert_eq!(tasks(&read_text(&line).unwrap()), tasks(&first));
}
