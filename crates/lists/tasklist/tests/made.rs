//! Inputs that nodes make of packed files: what a task list says, and what the task has.

use eyas_tasklist::{ReadOptions, read, read_commands, to_jsonl};
use eyas_terms::array::{Command, TaskArray, TaskSpec};
use std::path::Path;

fn tasks(text: &str) -> Result<Vec<(TaskSpec, String)>, String> {
    let list =
        read(text.as_bytes(), Path::new("/base"), &ReadOptions::default()).map_err(|e| e.to_string())?;
    let each = |a: &TaskArray| (0..a.n_tasks).map(|i| (a.expand(i), to_jsonl(a, i))).collect::<Vec<_>>();
    Ok(list.arrays.iter().flat_map(each).collect())
}

/// The inputs of the only task that has `given` beside its command.
fn inputs_of(given: &str) -> Result<Vec<(String, String)>, String> {
    let read = tasks(&format!("{{\"command\":[\"a\"],{given}}}"))?;
    let (task, line) = &read[0];
    let again = tasks(line)?;
    assert_eq!(again[0].0, *task, "what is written is read as the same task");
    assert_eq!(again[0].1, *line);
    Ok(task.inputs.clone())
}

/// The inputs of the only task with these.
fn inputs(given: &str) -> Result<Vec<(String, String)>, String> {
    inputs_of(&format!("\"inputs\":{given}"))
}

#[test]
fn a_packed_input_is_two_files_of_the_task() {
    for (given, expect) in [
        (
            r#"{"x":{"from":"d/x.gz","unpack":"gzip"}}"#,
            [(".packed/x", "/base/d/x.gz"), ("x", "made:gzip:/base/d/x.gz")],
        ),
        (
            r#"[{"from":"/d/e.tar.zst","unpack":"tar"}]"#,
            [(".packed/e", "/d/e.tar.zst"), ("e", "made:tar:/d/e.tar.zst/")],
        ),
        (
            r#"[{"environment":"s3://b/e.tgz"}]"#,
            [(".packed/e", "s3://b/e.tgz"), ("e", "made:environment:s3://b/e.tgz/")],
        ),
        (
            r#"{"x/":{"from":"x.zip","unpack":"zip"}}"#,
            [(".packed/x", "/base/x.zip"), ("x", "made:zip:/base/x.zip/")],
        ),
        (
            r#"{"x":{"from":"r","make":["a b",":{in}","{out}"]}}"#,
            [(".packed/x", "/base/r"), ("x", "made:run=a%20b,%3a%7bin%7d,%7bout%7d:/base/r")],
        ),
        (r#"{"x/":{"from":"file:///a%2Ab/","make":["a","{in}{out}"]}}"#, [("", ""), ("", "")]),
    ] {
        let found = inputs(given);
        if expect[0].0.is_empty() {
            assert!(found.unwrap_err().contains("made of one"), "{given}");
            continue;
        }
        let expect = expect.map(|(name, location)| (name.to_owned(), location.to_owned()));
        assert_eq!(found.unwrap(), expect, "{given}");
    }
    let both = inputs(r#"{"x.gz":"x.gz","x":{"from":"x.gz","unpack":"gzip"}}"#).unwrap();
    let names: Vec<&str> = both.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x.gz", ".packed/x", "x"], "the task may have the packed file, too");
}

#[test]
fn a_reader_waits_for_whoever_writes_the_packed_file() {
    let text = r#"{"command":["a"],"outputs":["x.tar"]}
{"command":["b"],"inputs":[{"from":"x.tar","unpack":"tar"}]}"#;
    let list = read(text.as_bytes(), Path::new("/base"), &ReadOptions::default()).unwrap();
    assert_eq!(list.n_dependencies, 1);
    let nobody = inputs(r#"[{"from":"run:x.tar","unpack":"tar"}]"#).unwrap_err();
    assert!(nobody.contains("run:x.tar"), "{nobody}");
}

/// The inputs of the only task, which runs in a container.
fn contained(image: &str, more: &str) -> Result<Vec<(String, String)>, String> {
    inputs_of(&format!("\"container\":{image}{more}"))
}

#[test]
fn a_container_is_an_input_of_the_task() {
    let pair = |name: &str, location: &str| (name.to_owned(), location.to_owned());
    let packed = |at: &str| {
        let made = format!("made:container:{at}/");
        vec![pair(".packed/.eyas-container", at), pair(".eyas-container", &made)]
    };
    assert_eq!(contained(r#""i/x.tar.zst""#, "").unwrap(), packed("/base/i/x.tar.zst"));
    assert_eq!(contained(r#""s3://b/x.tar""#, "").unwrap(), packed("s3://b/x.tar"));
    assert_eq!(contained(r#""file:///a%2Ab.zip""#, "").unwrap(), packed("/a*b.zip"));
    assert_eq!(contained(r#""x.SIF""#, "").unwrap(), [pair(".eyas-container", "/base/x.SIF")]);
    let both = contained(r#""/i.tar""#, r#","inputs":["x"],"env":{"A":"b"}"#).unwrap();
    assert_eq!(both, [vec![pair("x", "/base/x")], packed("/i.tar")].concat());
    // The parts of a reduction run in it as well.
    let parts = tasks(
        r#"{"command":"sort {inputs} > o","inputs":["a","b","c"],"outputs":["o"],"reduce":2,"container":"/i.tar"}"#,
    )
    .unwrap();
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|(task, _)| task.inputs.ends_with(&packed("/i.tar"))));
    for (image, more, said) in [
        (r#""""#, "", "no name of one file"),
        (r#""*.tar""#, "", "no name of one file"),
        (r#""rootfs/""#, "", "no name of one file"),
        (r#""made:tar:/a""#, "", "no name of one file"),
        (r#""i.tar""#, r#","dynamic":true"#, "does not reach the dispatcher"),
        (r#""i.tar""#, r#","inputs":{".eyas-container":"x"}"#, "for the image of a container"),
    ] {
        let error = contained(image, more).expect_err(image);
        assert!(error.contains(said), "{image}: {error}");
    }
}

#[test]
fn a_container_of_all_tasks_is_that_of_those_which_name_none() {
    let options = ReadOptions { container: Some("all.tar".into()), ..ReadOptions::default() };
    let text = "{\"command\":[\"a\"]}\n{\"command\":[\"a\"],\"container\":\"own.tar\"}\n";
    let list = read(text.as_bytes(), Path::new("/base"), &options).unwrap();
    let images: Vec<String> = list
        .arrays
        .iter()
        .flat_map(|array| (0..array.n_tasks).map(|i| array.expand(i).inputs[1].1.clone()))
        .collect();
    assert_eq!(images, ["made:container:/base/all.tar/", "made:container:/base/own.tar/"]);
    let list = read_commands("ls\n".as_bytes(), Path::new("/base"), &options).unwrap();
    let task = list.arrays[0].expand(0);
    assert_eq!(task.command, Command::Shell("ls".into()), "there is no folder to change to");
    assert_eq!(task.inputs[0].1, "/base/all.tar");
}

#[test]
fn what_is_wrong_is_said() {
    for (given, said) in [
        (r#"{"x":{"from":"a","unpack":"tarr"}}"#, "did you mean `tar`?"),
        (r#"{"x":{"unpack":"tar"}}"#, "does not say the file"),
        (r#"{"x":{"from":"a"}}"#, "then one of `unpack` and `make`"),
        (
            r#"{"x":{"from":"a","unpack":"tar","make":["x","{in}","{out}"]}}"#,
            "then one of `unpack` and `make`",
        ),
        (r#"{"x/":{"from":"a","unpack":"gzip"}}"#, "makes a file"),
        (r#"{"x":{"from":"*.gz","unpack":"gzip"}}"#, "stands for several files"),
        (r#"{"x":{"from":"a","make":["x","{in}"]}}"#, "{out}"),
        (r#"{"x":{"from":"a","make":[]}}"#, "names no program"),
        (r#"{"x":"made:tar:/a/"}"#, "how eyas itself names"),
        (r#"{"d":{"from":"a","unpack":"tar"},"d/x":"x"}"#, "is a file of the sandbox and the directory of"),
    ] {
        let error = inputs(given).expect_err(given);
        assert!(error.contains(said), "{given}: {error}");
    }
    let output = tasks(r#"{"command":["a"],"outputs":{"x":{"from":"a","unpack":"tar"}}}"#).unwrap_err();
    assert!(output.contains("only inputs are made"), "{output}");
}
