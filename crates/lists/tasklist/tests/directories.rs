//! Directories that tasks write as a whole: their locations, who may read them, and what may not lie in them.

use eyas_tasklist::{MapSpec, ReadOptions, TaskList, map, read, read_commands, to_jsonl};
use eyas_terms::array::{TaskArray, TaskSpec};
use std::fs;
use std::path::Path;

fn tasks(list: &TaskList) -> Vec<TaskSpec> {
    let all = |a: &TaskArray| (0..a.n_tasks).map(|i| a.expand(i)).collect::<Vec<_>>();
    list.arrays.iter().inspect(|a| assert_eq!(a.check(), Ok(()))).flat_map(all).collect()
}

fn list_in(dir: &Path, lines: &[String]) -> Result<TaskList, String> {
    read(lines.join("\n").as_bytes(), dir, &ReadOptions::default()).map_err(|e| e.to_string())
}

fn list(lines: &[String]) -> Result<TaskList, String> {
    list_in(Path::new("/base"), lines)
}

fn writes(id: &str, outputs: &str) -> String {
    format!(r#"{{"id": "{id}", "command": ["x"], "outputs": {outputs}}}"#)
}

fn reads(id: &str, inputs: &str) -> String {
    format!(r#"{{"id": "{id}", "command": ["x"], "inputs": {inputs}}}"#)
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[test]
fn a_location_that_ends_in_a_slash_is_a_directory() {
    for (outputs, expect) in [
        (r#"["out/r/"]"#, pair("r", "/base/out/r/")),
        (r#"{"r": "out//x/"}"#, pair("r", "/base/out/x/")),
        (r#"{"r/": "out/r/"}"#, pair("r", "/base/out/r/")),
        (r#"{"a/r": "run:r/"}"#, pair("a/r", "run:r/")),
        (r#"["file:///o/r%20/"]"#, pair("r ", "/o/r /")),
    ] {
        let read = list(&[writes("w", outputs)]).unwrap_or_else(|e| panic!("{outputs}: {e}"));
        assert_eq!(tasks(&read)[0].outputs, [expect], "{outputs}");
    }
    for (outputs, words) in [
        (r#"{"r/": "out/r"}"#, "`outputs`: the name `r/` names a directory, not a file"),
        (r#"["/"]"#, "names a directory by no name of its own"),
        (r#"["../"]"#, "names a directory by no name of its own"),
        (r#"["../base/"]"#, "the directory `../base/` has the list itself in it"),
        (r#"["/base/"]"#, "the directory `/base/` has the list itself in it"),
        (r#"["out/r/", "out/r/x"]"#, "which lies in the directory `/base/out/r/`"),
    ] {
        let said = list(&[writes("w", outputs)]).expect_err(outputs);
        assert!(said.contains(words), "{outputs}: {said}");
    }
    let said = list(&[r#"{"command": ["x"], "stdout": "d/"}"#.into()]).unwrap_err();
    assert!(said.contains("what is printed goes to a file"), "{said}");
}

#[test]
fn a_reader_waits_for_the_task_that_writes_the_directory_wherever_it_stands_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    // What an earlier run left there does not count.
    fs::create_dir_all(dir.path().join("out/r")).unwrap();
    fs::write(dir.path().join("out/r/old"), "").unwrap();
    let at = format!("{}/out/r/", dir.path().display());
    let (w, r) = (writes("w", r#"["out/r/"]"#), reads("r", r#"["./out/r/"]"#));
    for lines in [[w.clone(), r.clone()], [r.clone(), w.clone()]] {
        let list = list_in(dir.path(), &lines).unwrap();
        assert_eq!(list.n_dependencies, 1);
        let reader = tasks(&list).into_iter().find(|t| t.id == "r").unwrap();
        assert_eq!(reader.inputs, [pair("r", &at)]);
        // And so it is when the list is written and read again.
        let lines: Vec<String> = tasks(&list)
            .iter()
            .map(|t| {
                list.arrays
                    .iter()
                    .find_map(|a| {
                        (0..a.n_tasks).find_map(|i| (a.expand(i).id == t.id).then(|| to_jsonl(a, i)))
                    })
                    .unwrap()
            })
            .collect();
        assert_eq!(tasks(&list_in(Path::new("/elsewhere"), &lines).unwrap()), tasks(&list));
        // Its reader alone, too: a directory at home then, as one.
        let alone = lines.iter().find(|line| line.contains("\"r\",")).unwrap();
        assert_eq!(
            tasks(&list_in(Path::new("/elsewhere"), std::slice::from_ref(alone)).unwrap())[0].inputs,
            reader.inputs
        );
    }
    // Nobody writes it: the files that are in it.
    assert_eq!(tasks(&list_in(dir.path(), &[r]).unwrap())[0].inputs, [pair("r/old", &format!("{at}old"))]);
    let list = list(&[reads("r", r#"["run:d/"]"#), writes("w", r#"{"d": "run:d/"}"#)]).unwrap();
    assert_eq!(list.n_dependencies, 1);
}

#[test]
fn numbers_of_lines_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let lines = [reads("r", r#"["d/"]"#), String::new(), writes("w", r#"["d/"]"#), writes("w", r#"["e"]"#)];
    let said = list_in(dir.path(), &lines).unwrap_err();
    assert!(said.contains("line 4") && said.contains("the task on line 3"), "{said}");
    let said = list_in(dir.path(), &[lines[0].clone(), "{".into()]).unwrap_err();
    assert!(said.contains("line 2"), "{said}");
    let said = list_in(dir.path(), &[writes("w", r#"["e/"]"#), lines[0].clone()]).unwrap_err();
    assert!(said.contains("line 2") && said.contains("cannot list the directory `d/`"), "{said}");
}

#[test]
fn nobody_writes_or_reads_a_part_of_a_directory_that_is_one() {
    for (lines, words) in [
        (
            [writes("w", r#"["o/r/"]"#), writes("v", r#"["o/r/sub/x"]"#)],
            "task `v` writes `/base/o/r/sub/x`, which lies in the directory `/base/o/r/` that task `w` writes as a whole",
        ),
        ([writes("v", r#"["o/r/s/"]"#), writes("w", r#"["o/"]"#)], "that task `w` writes as a whole"),
        (
            [writes("w", r#"["o/r/"]"#), reads("v", r#"["o/r/x"]"#)],
            "task `v` reads `/base/o/r/x`, which lies in the directory `/base/o/r/` that task `w` writes\nhint: let it read all",
        ),
        (
            [writes("w", r#"["o/r/"]"#), reads("v", r#"["o/r"]"#)],
            "which task `w` writes as a directory\nhint: write it with a `/` at its end",
        ),
        ([writes("w", r#"["run:r/"]"#), reads("v", r#"["run:r"]"#)], "which task `w` writes as a directory"),
        ([writes("w", r#"["run:r", "o/"]"#), reads("v", r#"["run:r/"]"#)], "which task `w` writes as a file"),
        (
            [writes("w", r#"["run:r/"]"#), reads("v", r#"["run:r/x"]"#)],
            "which lies in the directory `run:r/`",
        ),
        ([writes("w", r#"["o/r/"]"#), writes("v", r#"["o//r/"]"#)], "and so does task `w`"),
    ] {
        let said = list(&lines).expect_err(words);
        assert!(said.contains(words), "{said}\nlacks {words}");
    }
    // A name that only begins alike, and what stays on the nodes, where a name is no place.
    assert!(list(&[writes("w", r#"["o/r/"]"#), writes("v", r#"["o/r2"]"#)]).is_ok());
    assert!(list(&[writes("w", r#"["run:r/"]"#), writes("v", r#"["run:r/x"]"#)]).is_ok());
}

#[test]
fn a_task_writes_into_its_own_copy_of_a_directory_that_it_reads() {
    let w = writes("w", r#"{"d": "run:d/"}"#);
    let ok = r#"{"id": "r", "command": ["x"], "inputs": ["run:d/"], "outputs": {"d/new": "out/new"}}"#;
    assert!(list(&[w.clone(), ok.into()]).is_ok());
    let same = r#"{"id": "r", "command": ["x"], "inputs": ["run:d/"], "outputs": {"d": "out/new/"}}"#;
    assert!(list(&[w, same.into()]).unwrap_err().contains("an input and an output are both named `d`"));
}

#[test]
fn maps_and_lists_of_commands_write_directories() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "").unwrap();
    let spec = MapSpec {
        paths: vec!["a.txt".into()],
        out: vec!["dir/{.}/".into()],
        command: vec!["mkdir".into(), "{out}".into()],
        base_dir: dir.path().into(),
        ..MapSpec::default()
    };
    let at = format!("{}/dir/a/", dir.path().display());
    let task = tasks(&map(&spec, None).unwrap()).remove(0);
    assert_eq!(task.outputs, [pair("a", &at)]);
    let range = MapSpec { range: Some(0..3), paths: vec![], out: vec!["o/{index}/".into()], ..spec.clone() };
    let list = map(&range, None).unwrap();
    assert_eq!(tasks(&list)[2].outputs, [pair("2", &format!("{}/o/2/", dir.path().display()))]);
    let nested = MapSpec { out: vec!["o/{index}/".into(), "o/{index}/log".into()], ..range };
    assert!(map(&nested, None).unwrap_err().to_string().contains("writes as a whole"));

    let text = "mkdir {out:o/r/}\nls {in:o/r/}\n";
    let list = read_commands(text.as_bytes(), Path::new("/base"), &ReadOptions::default()).unwrap();
    assert_eq!((list.n_dependencies, &tasks(&list)[1].inputs[..]), (1, &[pair("r", "/base/o/r/")][..]));
}

#[test]
fn parts_of_what_is_reduced_to_a_directory_are_directories() {
    let line = r#"{"id": "t", "command": "merge {inputs}", "inputs": ["a", "b", "c"], "outputs": ["o/"], "reduce": 2}"#;
    let list = tasks(&list(&[line.into()]).unwrap());
    assert!(
        list.iter().flat_map(|t| &t.outputs).all(|(name, at)| name == "o" && at.ends_with('/')),
        "{list:?}"
    );
}
