//! Maps over files and ranges: which tasks come out, and which requests are refused.

use eyas_tasklist::{Error, ErrorKind, ListInput, MapSpec, Source, Table, TaskList, map};
use eyas_terms::array::{Command, TaskSpec};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tempfile::TempDir;

/// A directory with these files.
fn dir(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    dir
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn spec(base: &Path, paths: &[&str], out: &[&str], command: &[&str]) -> MapSpec {
    MapSpec {
        paths: strings(paths),
        out: strings(out),
        command: strings(command),
        base_dir: base.into(),
        ..MapSpec::default()
    }
}

fn tasks(list: &TaskList) -> Vec<TaskSpec> {
    list.arrays
        .iter()
        .inspect(|a| assert_eq!(a.check(), Ok(())))
        .flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i)))
        .collect()
}

fn argv(task: &TaskSpec) -> Vec<&str> {
    match &task.command {
        Command::Exec(argv) => argv.iter().map(String::as_str).collect(),
        Command::Shell(line) => vec![line],
    }
}

fn pair(a: &str, b: impl AsRef<Path>) -> (String, String) {
    (a.into(), b.as_ref().to_str().unwrap().into())
}

/// `spec` is refused with these words.
fn refuses(spec: &MapSpec, kind: ErrorKind, words: &[&str]) -> Error {
    let error = map(spec, None).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{:?} lacks {word:?}", error.to_string());
    }
    error
}

#[test]
fn one_task_a_file_in_order_of_names() {
    let dir = dir(&[
        "sky/b.fits.gz",
        "sky/a.fits.gz",
        "sky/notes.txt",
        "sky/.c.fits.gz",
        "sky/d.fits.gz/x",
        "cut.py",
    ]);
    let base = dir.path();
    let mut spec = spec(
        base,
        &["sky/*.fits.gz"],
        &["cut/{stem}.npy", "log/{name}.{index}"],
        &["python3", "cut.py", "{in}", "-o={out}", "{out2}", "{{}}"],
    );
    spec.with = strings(&["cut.py"]);
    let list = map(&spec, None).unwrap();
    assert_eq!((list.n_tasks, list.arrays.len()), (2, 1));
    let tasks = tasks(&list);
    assert_eq!(tasks[1].id, "sky/b.fits.gz");
    assert_eq!(argv(&tasks[1]), ["python3", "cut.py", "b.fits.gz", "-o=b.npy", "b.fits.gz.1", "{}"]);
    assert_eq!(
        tasks[1].inputs,
        [pair("b.fits.gz", base.join("sky/b.fits.gz")), pair("cut.py", base.join("cut.py"))]
    );
    assert_eq!(
        tasks[1].outputs,
        [pair("b.npy", base.join("cut/b.npy")), pair("b.fits.gz.1", base.join("log/b.fits.gz.1"))]
    );
    assert_eq!(argv(&tasks[0])[2], "a.fits.gz");
}

#[test]
fn what_a_pattern_found_is_a_file_whatever_its_name_begins_with() {
    let names = ["data:1", "http:x", "run:1.txt", "~"];
    let dir = dir(&names);
    let at = |name: &str| dir.path().join(name);
    let list = map(&spec(dir.path(), &["*"], &["{name}.o", "{name}.p"], &["p", "{in}"]), None).unwrap();
    let tasks = tasks(&list);
    assert_eq!(tasks.len(), names.len());
    for (task, name) in tasks.iter().zip(names) {
        assert_eq!(task.inputs, [pair(name, at(name))]);
        let (first, second) = (format!("{name}.o"), format!("{name}.p"));
        assert_eq!(task.outputs, [pair(&first, at(&first)), pair(&second, at(&second))]);
    }
    let list = map(&spec(dir.path(), &["run:1.txt"], &[], &["p", "{in}"]), None).unwrap();
    assert_eq!(crate::tasks(&list)[0].inputs, [pair("run:1.txt", at("run:1.txt"))]);
}

#[test]
fn patterns_find_what_a_shell_would() {
    let dir = dir(&["a/x.d", "a/b/x.d", "a/b/c/y.d", "z.d", "a[1].d", "a1.d"]);
    let found = |patterns: &[&str]| -> Vec<String> {
        let list = map(&spec(dir.path(), patterns, &[], &["p"]), None).unwrap();
        let base = format!("{}/", dir.path().to_str().unwrap());
        tasks(&list).iter().map(|t| t.inputs[0].1.strip_prefix(&base).unwrap().to_owned()).collect()
    };
    assert_eq!(found(&["**/*.d"]), ["a/b/c/y.d", "a/b/x.d", "a/x.d", "a1.d", "a[1].d", "z.d"]);
    assert_eq!(found(&["a/**/x.d"]), ["a/b/x.d", "a/x.d"]);
    assert_eq!(found(&["a/**"]), ["a/b/c/y.d", "a/b/x.d", "a/x.d"]);
    assert_eq!(found(&["**/**/**/x.d"]), found(&["**/x.d"]));
    assert_eq!(found(&["*/x.d"]), ["a/x.d"]);
    // What exists is meant, patterns come second; what is named twice is one task.
    assert_eq!(found(&["a[1].d", "[z]*", "./z.d", "a?.d"]), ["a[1].d", "z.d", "a1.d"]);
    let absolute = format!("{}/?.d", dir.path().to_str().unwrap());
    assert_eq!(found(&[&absolute]), ["z.d"]);
}

#[test]
fn odd_names_are_safe_with_and_without_a_shell() {
    let names = ["-rf.d", "a b.d", "it's.d", "new\nline.d", "naïve.d", "$(x).d"];
    let dir = dir(&names);
    let mut spec = spec(dir.path(), &["*.d"], &["o/{stem}.o"], &["cat", "{in}", "{out}"]);
    let list = map(&spec, None).unwrap();
    let mut expect: Vec<&str> = names.to_vec();
    expect.sort_unstable();
    for (task, name) in tasks(&list).iter().zip(&expect) {
        assert_eq!(task.inputs, [pair(name, dir.path().join(name))]);
        let stem = name.strip_suffix(".d").unwrap();
        let dash = if name.starts_with('-') { "./" } else { "" };
        assert_eq!(argv(task), ["cat", &format!("{dash}{name}"), &format!("{dash}{stem}.o")]);
    }
    // The shell itself says whether it reads back the names.
    spec.shell = true;
    spec.command = strings(&["printf '%s|'", "{in}", "{out} {index}"]);
    for (i, (task, name)) in tasks(&map(&spec, None).unwrap()).iter().zip(&expect).enumerate() {
        let Command::Shell(line) = &task.command else { panic!("no shell") };
        let said = std::process::Command::new("/bin/sh").args(["-c", line]).output().unwrap();
        let dash = if name.starts_with('-') { "./" } else { "" };
        let stem = name.strip_suffix(".d").unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{dash}{name}|{dash}{stem}.o|{i}|"));
    }
}

#[test]
fn an_output_that_has_its_inputs_name_is_told_apart() {
    let dir = dir(&["in/a.txt"]);
    let list =
        map(&spec(dir.path(), &["in/*"], &["x/{name}", "y/{name}"], &["p", "{in}", "{out}", "{out2}"]), None)
            .unwrap();
    let task = &tasks(&list)[0];
    assert_eq!(argv(task), ["p", "a.txt", "out-a.txt", "out-out-a.txt"]);
    assert_eq!(task.outputs[0], pair("out-a.txt", dir.path().join("x/a.txt")));
}

#[test]
fn urls_and_lists_of_names() {
    let dir = dir(&["a b", "*", "c"]);
    let spec = spec(dir.path(), &["http://h/d/e%20f.gz?k=1"], &[], &["p", "{in}", "{stem}"]);
    for (text, ends_in_nul) in [("a b\n*\n\nc\n./c", false), ("a b\0*\0c", true)] {
        let list = ListInput { reader: &mut text.as_bytes(), origin: "standard input", ends_in_nul };
        let list = map(&spec, Some(list)).unwrap();
        let commands: Vec<_> = tasks(&list).iter().map(|t| argv(t)[1..].join("|")).collect();
        assert_eq!(commands, ["e f.gz|e f", "a b|a b", "*|*", "c|c"]);
    }
    let list = ListInput { reader: &mut &b"c\nmissing\n"[..], origin: "standard input", ends_in_nul: false };
    let error = map(&spec, Some(list)).unwrap_err();
    assert!(error.to_string().starts_with("standard input, line 2: cannot find `missing`"), "{error}");
}

#[test]
fn what_cannot_be_found_is_named() {
    let dir = dir(&["d/e/x"]);
    let base = dir.path();
    let shown = base.to_str().unwrap();
    let with = |paths: &[&str]| spec(base, paths, &[], &["p"]);
    refuses(
        &with(&["d/*.fits"]),
        ErrorKind::NotFound,
        &["no file matches `d/*.fits`", &format!("looked in `{shown}/d/`")],
    );
    refuses(&with(&["d/*"]), ErrorKind::NotFound, &["it matches 1 directories, but a task needs files"]);
    refuses(&with(&["nowhere/*"]), ErrorKind::NotFound, &["cannot look in", "nowhere"]);
    refuses(&with(&["d/e/x/*"]), ErrorKind::NotFound, &["cannot look in", "d/e/x/"]);
    refuses(&with(&["missing"]), ErrorKind::NotFound, &["cannot find `missing`"]);
    refuses(&with(&["d"]), ErrorKind::Invalid, &["`d` is a directory", "hint: write 'd/*'"]);
    refuses(&with(&["gopher://b/k"]), ErrorKind::Invalid, &["the scheme `gopher`"]);
    refuses(&with(&[]), ErrorKind::NotFound, &["no input files"]);
    let mut missing = with(&["d/e/x"]);
    missing.with = strings(&["cut.py"]);
    refuses(&missing, ErrorKind::NotFound, &["cannot find `cut.py`"]);

    std::os::unix::fs::symlink("gone", base.join("link")).unwrap();
    // The task of a link that leads nowhere fails by itself.
    let list = map(&with(&["l*"]), None).unwrap();
    assert_eq!(tasks(&list).len(), 1);
    fs::write(base.join(OsStr::from_bytes(b"bad\xff.u")), "").unwrap();
    refuses(&with(&["*.u"]), ErrorKind::Invalid, &["no file matches `*.u` but what was left out"]);
}

#[test]
fn wrong_requests_are_refused() {
    let dir = dir(&["a.fits", "a.fits.gz"]);
    let with = |out: &[&str], command: &[&str]| spec(dir.path(), &["a.*"], out, command);
    refuses(
        &with(&["{stem}.npy"], &["p"]),
        ErrorKind::Conflict,
        &["two inputs give one output", "a.npy", "/a.fits` and ", "/a.fits.gz`", "use {name} or {index}"],
    );
    refuses(
        &with(&["o/{index}", "o/{index}"], &["p"]),
        ErrorKind::Conflict,
        &["two outputs of the task for"],
    );
    refuses(
        &with(&["{in}"], &["p"]),
        ErrorKind::Invalid,
        &["unknown hole `{in}`", "known here are {index} {stem} {name}"],
    );
    refuses(&with(&[], &["p", "{out}"]), ErrorKind::Invalid, &["unknown hole `{out}`"]);
    refuses(&with(&["{index}"], &["p", "{otu}"]), ErrorKind::Invalid, &["did you mean `{out}`?"]);
    refuses(&with(&["{name}"], &["p"]), ErrorKind::Invalid, &["the task for", "which it reads"]);
    refuses(&with(&[], &[]), ErrorKind::Invalid, &["no command"]);
    let both = MapSpec { range: Some(0..3), ..with(&[], &["p"]) };
    refuses(&both, ErrorKind::Invalid, &["not over both"]);
}

fn range(range: std::ops::Range<u64>, out: &[&str], command: &[&str]) -> MapSpec {
    MapSpec { range: Some(range), ..spec(Path::new("/base"), &[], out, command) }
}

#[test]
fn a_range_is_a_template_and_nothing_more() {
    let mut spec =
        range(5..10_000_005, &["o/{index}/r-{index}.txt"], &["p", "{index}", "{out}", "x{{{index}}}"]);
    spec.id_prefix = "t".into();
    let list = map(&spec, None).unwrap();
    assert_eq!((list.n_tasks, list.arrays.len()), (10_000_000, 1));
    let array = &list.arrays[0];
    assert_eq!((array.check(), array.heap_bytes()), (Ok(()), 0));
    let task = array.expand(7);
    assert_eq!((task.id.as_str(), argv(&task)), ("t12", vec!["p", "12", "r-12.txt", "x{12}"]));
    assert_eq!(task.outputs, [pair("r-12.txt", "/base/o/12/r-12.txt")]);

    let huge = map(&range(0..10_000_000_000, &[], &["p"]), None).unwrap();
    assert_eq!(huge.arrays.iter().map(|a| u64::from(a.n_tasks)).sum::<u64>(), 10_000_000_000);
    let last = huge.arrays.last().unwrap();
    assert_eq!(last.expand(last.n_tasks - 1).id, "9999999999");

    let staying = map(&range(0..2, &["run:part/{index}"], &["p", "{out}"]), None).unwrap();
    assert_eq!(tasks(&staying)[1].outputs, [pair("1", "run:part/1")]);
    let url = map(&range(0..2, &["http://h/a b/{index}"], &["p", "{out}"]), None).unwrap();
    assert_eq!(url.arrays[0].expand(1).outputs, [pair("1", "http://h/a%20b/1")]);
    let shell = MapSpec { shell: true, ..range(0..2, &["o/it's {index}"], &["touch {out}"]) };
    let shell = map(&shell, None).unwrap().arrays[0].expand(1);
    assert_eq!(argv(&shell), ["touch 'it'\\''s '1"]);
}

#[test]
fn outputs_of_a_range_cannot_meet() {
    refuses(
        &range(0..9, &["o/r"], &["p"]),
        ErrorKind::Conflict,
        &["tasks 0 and 1 write one output `o/r`", "use {index}"],
    );
    assert!(map(&range(0..1, &["o/r"], &["p"]), None).is_ok());
    refuses(
        &range(0..99, &["a{index}", "a1{index}"], &["p"]),
        ErrorKind::Conflict,
        &["may be one file", "different endings"],
    );
    refuses(&range(3..3, &[], &["p"]), ErrorKind::Invalid, &["the range 3..3 is empty"]);
    refuses(&range(0..3, &[], &["p", "{in}"]), ErrorKind::Invalid, &["unknown hole `{in}`"]);
    refuses(&range(0..3, &["o/{index}/.."], &["p"]), ErrorKind::Invalid, &["names a directory by no name"]);

    // Different places, but one name in the sandbox.
    let list =
        map(&range(0..3, &["o/{index}.txt", "log/{index}.txt"], &["p", "{out}", "{out2}"]), None).unwrap();
    assert_eq!(argv(&list.arrays[0].expand(2)), ["p", "2.txt", "out-2.txt"]);
    let list = map(
        &range(0..3, &["a/out{index}-5", "b/out-5{index}", "c/out-{index}"], &["{out}|{out2}|{out3}"]),
        None,
    )
    .unwrap();
    assert_eq!(argv(&list.arrays[0].expand(2)), ["out2-5|out-52|out-out-2"]);
    // A name without a number meets a bare number only where it is one.
    let list = map(&range(0..3, &["a/{index}", "b/{index}/log"], &["{out}|{out2}"]), None).unwrap();
    assert_eq!(argv(&list.arrays[0].expand(2)), ["2|log"]);
    let list = map(&range(0..3, &["a/{index}", "b/{index}/7"], &["{out}|{out2}"]), None).unwrap();
    assert_eq!(argv(&list.arrays[0].expand(2)), ["2|out-7"]);
    let dir = dir(&["7.txt"]);
    let mut with =
        MapSpec { range: Some(0..9), ..spec(dir.path(), &[], &["o/{index}.txt"], &["p", "{out}"]) };
    with.with = strings(&["7.txt"]);
    let task = map(&with, None).unwrap().arrays[0].expand(7);
    assert_eq!((argv(&task), &task.inputs[0].0[..]), (vec!["p", "out-7.txt"], "7.txt"));
    with.out = strings(&["{index}.txt"]);
    refuses(&with, ErrorKind::Conflict, &["may be the input"]);
}

fn files(paths: &[&str], is_linked: bool) -> Source {
    Source::Files { paths: strings(paths), is_linked }
}

fn values(name: &str, values: &[&str]) -> Source {
    Source::Values { name: name.into(), values: strings(values) }
}

#[test]
fn the_signs_of_gnu_parallel_in_commands_and_outputs() {
    let dir = dir(&["in/a.tar.gz", "in/-b", "c"]);
    let command = ["p", "{}", "{.}", "{/}", "{/.}", "{//}", "{1}", "{1/.}", "{stem}"];
    let list =
        map(&spec(dir.path(), &["in/*", "c"], &["o/{//}/{/.}", "m/{}", "n/{.}.x"], &command), None).unwrap();
    let tasks = tasks(&list);
    assert_eq!(argv(&tasks[0])[1..], ["./-b", "./-b", "-b", "-b", "in", "./-b", "-b", "-b"]);
    assert_eq!(
        argv(&tasks[1])[1..],
        ["a.tar.gz", "a.tar", "a.tar.gz", "a.tar", "in", "a.tar.gz", "a.tar", "a"]
    );
    let places = |task: &TaskSpec| -> Vec<String> {
        let base = format!("{}/", dir.path().to_str().unwrap());
        task.outputs.iter().map(|(_, at)| at.strip_prefix(&base).unwrap().to_owned()).collect()
    };
    assert_eq!(places(&tasks[1]), ["o/in/a.tar", "m/in/a.tar.gz", "n/in/a.tar.x"]);
    assert_eq!(places(&tasks[2]), ["o/c", "m/c", "n/c.x"]);
}

#[test]
fn sources_are_combined_and_the_last_one_changes_first() {
    let dir = dir(&["a/x.txt", "a/y.txt", "b/x.txt"]);
    let map_over = |paths: &[&str], more: Vec<Source>, out: &str, command: &[&str]| {
        map(&MapSpec { more, ..spec(dir.path(), paths, &[out], command) }, None)
    };
    let list = map_over(
        &["a/*"],
        vec![files(&["b/x.txt", "a/x.txt"], false), values("e", &["1e-5", "-1"])],
        "o/{1/.}-{2//}-{e}",
        &["p", "{in}", "{in2}", "{1}", "{2}", "{e}", "{}"],
    )
    .unwrap();
    let tasks = tasks(&list);
    assert_eq!((tasks.len(), list.arrays.iter().map(|a| a.n_tasks).sum::<u32>()), (8, 8));
    // Tasks of one shape stay in order; one with a file twice has another shape.
    let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
    assert_eq!(ids[..3], ["a/x.txt,b/x.txt,e=1e-5", "a/x.txt,b/x.txt,e=-1", "a/y.txt,b/x.txt,e=1e-5"]);
    let twice = tasks.iter().find(|t| t.id == "a/x.txt,a/x.txt,e=1e-5").unwrap();
    // Of two inputs with one name the second has another one in the sandbox, and what is one file is one input.
    assert_eq!(argv(&tasks[0])[1..], ["x.txt", "in2-x.txt", "x.txt", "in2-x.txt", "1e-5", "x.txt"]);
    assert_eq!(argv(twice)[1..], ["x.txt", "x.txt", "x.txt", "x.txt", "1e-5", "x.txt"]);
    assert_eq!((tasks[0].inputs.len(), twice.inputs.len()), (2, 1));
    assert_eq!(tasks[1].outputs[0].1, dir.path().join("o/x-b--1").to_str().unwrap());

    let list =
        map_over(&["a/*"], vec![files(&["b/x.txt", "b/x.txt"], true)], "o/{index}", &["p", "{1}", "{2}"]);
    let ids: Vec<String> = self::tasks(&list.unwrap()).into_iter().map(|t| t.id).collect();
    assert_eq!(ids, ["a/x.txt,b/x.txt", "a/y.txt,b/x.txt"]);

    let refused = |paths: &[&str], more: Vec<Source>, out: &str, expect: &str| {
        let error = map_over(paths, more, out, &["p"]).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused(&["a/*"], vec![files(&["b/x.txt"], true)], "{index}", "1 files go along with 2 one by one");
    refused(&[], vec![files(&["b/x.txt"], true)], "{index}", "there are none");
    refused(&["a/*"], vec![values("index", &["1"])], "{index}", "{index} is a hole of its own");
    refused(&["a/*"], vec![values("e", &["1"]), values("e", &["2"])], "{index}", "have the name `e`");
    refused(&["a/*"], vec![values("e", &[])], "{index}", "the parameter `e` has no values");
    refused(
        &["a/*"],
        vec![values("e", &["1", "2"])],
        "o/{name}",
        "two tasks give one output `o/x.txt`"
            .replace("o/x.txt", dir.path().join("o/x.txt").to_str().unwrap())
            .as_str(),
    );
    refused(&["a/*"], vec![values("e", &["1"])], "{f}", "known here are {index} {e} {stem} {name} {1}");
    let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let many = |name: &str| Source::Values { name: name.into(), values: many.clone() };
    refused(&[], vec![many("a"), many("b")], "{index}", "100000 × 100000 combinations");
}

#[test]
fn rows_of_a_table_are_tasks_and_its_columns_holes() {
    let dir = dir(&["r/a.fq", "r/b.fq", "r/ref.fa"]);
    let table = |text: &str| Table::read(text.as_bytes(), b',', "t.csv").unwrap();
    let of = |text: &str, columns: &[&str], out: &str, command: &[&str]| {
        let more = vec![Source::Table { table: table(text), files: strings(columns) }];
        map(&MapSpec { more, ..spec(dir.path(), &[], &[out], command) }, None)
    };
    let text = "sample,reads,name\ns1,r/a.fq,\"x, y\"\ns2,r/b.fq,z\n";
    let list = of(
        text,
        &["reads"],
        "o/{sample}.{reads/.}",
        &["p", "{sample}", "{reads}", "{in}", "{name}", "{reads//}"],
    );
    let found = tasks(&list.unwrap());
    assert_eq!(found[0].id, "s1");
    assert_eq!(argv(&found[0])[1..], ["s1", "a.fq", "a.fq", "x, y", "r"]);
    assert_eq!(found[0].inputs, [pair("a.fq", dir.path().join("r/a.fq"))]);
    assert_eq!(found[1].outputs, [pair("s2.b", dir.path().join("o/s2.b"))]);

    // Without files nothing is an input; ids are numbers where the first column names no row.
    let found = tasks(&of("k\n1\n1\n", &[], "o/{index}", &["p", "{k}"]).unwrap());
    assert_eq!((found[1].id.as_str(), found[1].inputs.len()), ("row2", 0));

    for (text, columns, expect) in [
        ("a,b\nr/a.fq,1\nr/zz.fq,2\n", &["a"][..], "t.csv, line 3: cannot find `r/zz.fq`"),
        ("a,b\n,1\n", &["a"], "t.csv, line 2: the column `a` names files, and is empty here"),
        ("reads,b\nr/a.fq,1\n", &["read"], "did you mean `reads`? it has reads, b"),
        ("in,b\nr/a.fq,1\n", &[], "{in} is a hole of its own"),
    ] {
        let error = of(text, columns, "o/{index}", &["p"]).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
}

/// Values, names of files and cells of tables are often somebody else's.
#[test]
fn no_hole_leads_out_of_the_folder_that_an_output_names() {
    let dir = dir(&["in/a.fq", "in/...gz", "in/b/c.fq"]);
    let over = |path: &str, out: &str| map(&spec(dir.path(), &[path], &[out], &["p"]), None);
    let with = |value: &str, out: &str| {
        map(&MapSpec { more: vec![values("a", &[value])], ..spec(dir.path(), &[], &[out], &["p"]) }, None)
    };
    let at = |list: Result<TaskList, Error>| {
        let base = format!("{}/", dir.path().to_str().unwrap());
        let location = tasks(&list.unwrap())[0].outputs[0].1.clone();
        location.strip_prefix(&base).map_or(location.clone(), str::to_owned)
    };
    for (value, out, expected) in [
        ("x", "{a}/y", "x/y"),
        ("x/z", "o/{a}/y", "o/x/z/y"),
        ("..x", "o/{a}", "o/..x"),
        ("x..", "{a}/y", "x../y"),
        (".", "o/{a}/y", "o/y"),
        ("x", "o/../{a}", "o/../x"),
        ("x", "{a}/../y", "x/../y"),
        // The user's own template says that the column holds all of it.
        ("/n/y", "{a}", "/n/y"),
        ("/n", "{a}/y", "/n/y"),
        ("s3://b", "{a}/y", "s3://b/y"),
        ("s3://b/y", "{a}", "s3://b/y"),
        ("../n/y", "../{a/}", "../y"),
    ] {
        let expected = match expected.strip_prefix("../") {
            Some(rest) => format!("{}/{rest}", dir.path().parent().unwrap().to_str().unwrap()),
            None => expected.to_owned(),
        };
        assert_eq!(at(with(value, out)), expected, "{value} in {out}");
    }
    for (value, out) in [
        ("..", "o/{a}/y"),
        ("../../etc", "{a}/y"),
        ("x/../../y", "o/{a}"),
        ("..", "o/{a}"),
        (".", "o/.{a}/y"),
        ("", "{a}/y"),
        ("../y", "s3://b/o/{a}"),
    ] {
        let error = with(value, out).unwrap_err().to_string();
        let words = format!("leads out of the folder that the output `{out}` names");
        assert!(error.contains(&words), "{value} in {out}: {error}");
    }
    assert_eq!(at(over("in/a.fq", "{.}.out")), "in/a.out");
    assert_eq!(at(over("in/a.fq", "{//}/../o/{name}")), "in/../o/a.fq");
    assert_eq!(at(over("in/b/../a.fq", "{//}/o")), "in/b/../o");
    assert!(over("in/b/../../in/a.fq", "o/{//}/x").is_err());
    assert!(over("in/...gz", "o/{/.}/x").is_err(), "its name without an ending is `..`");
}

/// A table of genes has tens of thousands of columns. With a time that grows with their square this would take minutes.
#[test]
fn a_table_may_have_very_many_columns() {
    let names: Vec<String> = (0..60_000).map(|n| format!("gene{n}")).collect();
    let text = format!("{}\n{}\n", names.join(","), vec!["1"; names.len()].join(","));
    let table = Table::read(text.as_bytes(), b',', "t.csv").unwrap();
    let more = vec![Source::Table { table, files: vec![] }];
    let spec = |command: &[&str]| MapSpec { more: more.clone(), ..spec(Path::new("/"), &[], &[], command) };
    assert_eq!(argv(&tasks(&map(&spec(&["p", "{gene59999}"]), None).unwrap())[0]), ["p", "1"]);
}
