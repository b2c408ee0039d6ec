//! One small file of each format: what is understood, and what is refused with which words.

use eyas_core::array::Command;
use eyas_workflow::{Format, Options, Workflow, format_of, parse, read, to_list, to_specs};
use std::fs;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn of_file(name: &str, format: Format) -> Workflow {
    let path = data(name);
    assert_eq!(format_of(&path).unwrap(), format);
    read(&path, format).unwrap()
}

fn text(name: &str) -> String {
    fs::read_to_string(data(name)).unwrap()
}

fn refused(format: Format, text: &str, expect: &str) {
    let error =
        parse(format, text, "w", None).err().unwrap_or_else(|| panic!("{expect}: is taken")).to_string();
    assert!(error.contains(expect), "expected {expect:?}, got: {error}");
    assert!(!error.contains('\n') || error.contains("\nhint: "), "{error}");
}

fn names<'a>(w: &'a Workflow, uses: &[eyas_workflow::Use]) -> Vec<&'a str> {
    uses.iter().map(|u| w.files[u.file as usize].name.as_str()).collect()
}

fn argv(words: &[&str]) -> Option<Command<String>> {
    Some(Command::Exec(words.iter().map(|w| (*w).to_owned()).collect()))
}

fn options(dir: &Path) -> Options {
    Options { check_inputs: false, ..Options::beside(&dir.join("w")) }
}

fn tasks(w: &Workflow) -> Vec<eyas_core::array::TaskSpec> {
    to_specs(w, &options(Path::new("/work"))).unwrap()
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

// ---------------------------------------------------------------- WfFormat

#[test]
fn a_generated_montage_is_read() {
    let w = of_file("montage-58.json", Format::WfFormat);
    assert_eq!((w.name.as_str(), w.tasks.len()), ("Montage-synthetic-instance", 58));
    let t = &w.tasks[0];
    assert_eq!((t.id.as_str(), t.stage.as_str(), t.inputs.len()), ("mProject_00000001", "mProject", 2));
    assert_eq!(t.measured.runtime_ns, Some(1_263_481_000_000));
    assert!(w.files.iter().all(|f| f.size_bytes.is_some()));
    assert!(w.tasks.iter().all(|t| t.parents.is_empty()), "files say who waits for whom");
    let list = to_list(&w, &options(Path::new("/d"))).unwrap();
    assert_eq!(list.n_tasks, 58);
}

const OLD: &str = r#"{"name":"old","schemaVersion":"1.3","workflow":{"makespan":9,"executedAt":"x","tasks":[
 {"name":"search_ID0000002","id":"ID2","type":"compute","runtime":4,"cores":1.5,"parents":["split_ID0000001"],
  "command":{"program":"blastp","arguments":["-q","q1"]},
  "files":[{"link":"input","name":"q1","size":500},{"link":"input","name":"db","path":"home","size":9000},
           {"link":"output","name":"h1","size":10}]},
 {"name":"split_ID0000001","id":"ID1","runtime":1.5,"parents":[],
  "files":[{"link":"input","name":"seqs","size":1000},{"link":"output","name":"q1","size":500}]},
 {"name":"report","parents":["ID2"],"files":[]}]}}"#;

#[test]
fn older_wfformats_are_read() {
    for old in [
        OLD.to_owned(),
        OLD.replace("\"size\":", "\"sizeInBytes\":").replace("\"runtime\":", "\"runtimeInSeconds\":"),
        OLD.replace("\"tasks\":", "\"jobs\":").replace("1.3", "1.1"),
    ] {
        let w = parse(Format::WfFormat, &old, "w", None).unwrap();
        let search = &w.tasks[0];
        assert_eq!((search.stage.as_str(), search.cpus), ("search", 2));
        assert_eq!(search.command, argv(&["blastp", "-q", "q1"]));
        assert_eq!(search.measured.runtime_ns, Some(4_000_000_000));
        assert_eq!(names(&w, &search.inputs), ["q1", "home/db"]);
        assert_eq!((w.tasks[2].stage.as_str(), &w.tasks[2].parents), ("report", &vec![0]));
    }
}

#[test]
fn wrong_wfformats_are_refused() {
    let good = text("montage-58.json");
    refused(Format::WfFormat, &good[..good.len() / 2], "breaks off");
    refused(Format::WfFormat, "{}", "no `workflow`");
    refused(
        Format::WfFormat,
        r#"{"schemaVersion":"2.0","workflow":{}}"#,
        "WfFormat `2.0`, and 1.0 to 1.6 are known",
    );
    refused(Format::WfFormat, r#"{"workflow":{}}"#, "neither `specification` nor `tasks` nor `jobs`");
    refused(Format::WfFormat, r#"{"workflow":{"tasks":[]}}"#, "no tasks");
    refused(Format::WfFormat, "{\n\"workflow\": 3}", "line 2");
    refused(
        Format::WfFormat,
        &OLD.replace("[\"ID2\"]", "[\"ID9\"]"),
        "task `report` has `ID9` as parent, which is no task",
    );
    refused(
        Format::WfFormat,
        &OLD.replace("\"h1\"", "\"q1\""),
        "two tasks write `q1`: `search_ID0000002` and `split_ID0000001`",
    );
    refused(Format::WfFormat, &OLD.replace("\"runtime\":4", "\"runtime\":-4"), "cannot have run for -4 s");
    refused(Format::WfFormat, &OLD.replace("\"output\"", "\"both\""), "neither `input` nor `output`");
}

#[test]
fn a_wfformat_without_commands_runs_only_as_stand_ins() {
    let w = parse(Format::WfFormat, OLD, "w", None).unwrap();
    let error = to_list(&w, &options(Path::new("/d"))).unwrap_err().to_string();
    assert!(
        error.contains("task `split_ID0000001` has no command") && error.contains("--stand-ins"),
        "{error}"
    );
    let stand_ins = Options { stand_ins: true, ..options(Path::new("/d")) };
    let split = to_specs(&w, &stand_ins).unwrap().into_iter().find(|t| t.label == "split").unwrap();
    assert_eq!(split.command, Command::Shell("head -c 500 /dev/zero > q1".into()));
    assert_eq!((split.inputs, split.outputs), (vec![], vec![pair("q1", "run:q1")]));
}

// ---------------------------------------------------------------- Pegasus

#[test]
fn a_pegasus_workflow_is_read() {
    let w = of_file("diamond.yml", Format::Pegasus);
    assert_eq!((w.name.as_str(), w.tasks.len()), ("diamond", 3));
    assert_eq!(w.tasks[0].command, argv(&["/usr/bin/true", "-i", "f.a", "-n", "5", "-x", "1.5", "--flag"]));
    assert_eq!(w.tasks[2].parents, [1], "no file links the third job to the second");
    let tasks = tasks(&w);
    let [first, second, third] = tasks.as_slice() else { panic!("three tasks") };
    assert_eq!(first.inputs, [pair("f.a", "/tmp/f.a")]);
    // `f b2` is not wanted and nobody reads it; `f.b1` stays on the nodes.
    assert_eq!(first.outputs, [pair("f.b1", "run:f.b1"), pair("f b2", "run:f b2")]);
    assert_eq!(second.command, Command::Shell("(\n./st f.b1 --o x y > f.c\n) && : > .eyas-after".into()));
    assert_eq!(second.inputs, [pair("st", "/home/me/bin/st.sh"), pair("f.b1", "run:f.b1")]);
    assert_eq!(second.outputs, [pair("f.c", "/work/f.c"), pair(".eyas-after", "run:.after/ID0000002")]);
    assert_eq!(
        (second.env.clone(), second.cpus, second.memory_bytes),
        (vec![pair("FOO", "bar")], 2, Some(2048 << 20))
    );
    assert_eq!(third.inputs, [pair(".after/1", "run:.after/ID0000002")]);
    assert_eq!(w.tasks[1].measured.runtime_ns, Some(30_000_000_000));
}

#[test]
fn catalogs_beside_a_pegasus_workflow_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("workflow.yml");
    let jobs = "pegasus: 5.0\njobs:\n- {type: job, name: p, id: a, uses: [{lfn: x, type: input}]}\n";
    fs::write(&path, jobs).unwrap();
    let plain = read(&path, Format::Pegasus).unwrap();
    assert_eq!((plain.name.as_str(), &plain.tasks[0].command), ("workflow", &argv(&["p"])));
    let beside = "replicas:\n- lfn: x\n  pfns:\n  - {site: far, pfn: 'gsiftp://h/x'}\n  - {site: local, pfn: /data/x}\n";
    fs::write(dir.path().join("replicas.yml"), beside).unwrap();
    let programs = "transformations:\n- name: p\n  sites:\n  - {name: local, pfn: /opt/p, type: installed}\n";
    fs::write(dir.path().join("transformations.yml"), programs).unwrap();
    let w = read(&path, Format::Pegasus).unwrap();
    assert_eq!(w.tasks[0].command, argv(&["/opt/p"]));
    assert_eq!(w.files[0].location.as_deref(), Some("/data/x"));
}

#[test]
fn wrong_pegasus_workflows_are_refused() {
    let good = text("diamond.yml");
    let check = |from: &str, to: &str, expect: &str| {
        let broken = good.replacen(from, to, 1);
        assert_ne!(broken, good, "{from}");
        refused(Format::Pegasus, &broken, expect);
    };
    check("pegasus: 5.0.4", "pegasus: 6.0", "version `6.0`, and 5.x is known");
    check("- type: job", "- type: subWorkflow", "job `ID0000001` is a `subWorkflow`");
    check("type: output", "type: inout", "as `inout`, which eyas cannot do");
    check(
        "id: ID0000002",
        "id: ID0000001",
        "two jobs".replace("jobs", "tasks have the id `ID0000001`").as_str(),
    );
    check("- id: ID0000002\n  children", "- id: ID7\n  children", "`ID7`, which is no job");
    check("  - 5\n", "  - \"'5\"\n", "a quotation in the arguments of job `ID0000001` does not end");
    check("lfn: f b2", "lfn: f.a", "writes `f.a`, which it reads");
    check("lfn: f.c", "lfn: f.b1", "two tasks write `f.b1`: `ID0000001` on line");
    check(
        "- id: ID0000002\n  children:\n  - ID0000003",
        "- id: ID0000002\n  children:\n  - ID0000001",
        "in a circle",
    );
    let at = good.find("stageOut: true").unwrap();
    refused(Format::Pegasus, &good[..at + 5], "breaks off");
    refused(Format::Pegasus, "a: 1\n", "neither `pegasus` nor `jobs`");
}

// ---------------------------------------------------------------- DAX

#[test]
fn a_dax_2_is_read() {
    let w = of_file("montage.dax", Format::Dax);
    assert_eq!((w.name.as_str(), w.tasks.len()), ("test", 4));
    assert_eq!(w.tasks[0].command, argv(&["mProjectPP", "-X", "a.fits", "p_a.fits", "region.hdr"]));
    assert_eq!(w.tasks[0].measured.runtime_ns, Some(13_590_000_000));
    assert_eq!(w.tasks[2].command, Some(Command::Shell("mAdd p_a.fits p_b.fits > mosaic.fits".into())));
    assert_eq!((w.tasks[2].cpus, &w.tasks[2].env), (2, &vec![pair("MODE", "fast")]));
    assert_eq!(w.tasks[3].parents, [2]);
    assert_eq!(w.tasks[1].line, Some(10));
    let tasks = tasks(&w);
    assert_eq!(tasks[0].outputs, [pair("p_a.fits", "run:p_a.fits")]);
    assert_eq!(tasks[2].outputs[0], pair("mosaic.fits", "/work/mosaic.fits"));
}

#[test]
fn a_dax_3_is_read() {
    let w = of_file("diamond3.dax", Format::Dax);
    let tasks = tasks(&w);
    assert_eq!(tasks[0].command, Command::Exec(["./pre", "-i", "f.a", "-o", "f.b"].map(String::from).into()));
    assert_eq!(tasks[0].inputs, [pair("pre", "/opt/bin/pre"), pair("f.a", "/data/f.a")]);
    assert_eq!(tasks[1].command, Command::Exec(["/usr/bin/keg", "-i", "f.b"].map(String::from).into()));
    assert_eq!(tasks[1].outputs, [pair("f.c", "/work/f.c")]);
}

#[test]
fn wrong_dax_files_are_refused() {
    let good = text("montage.dax");
    refused(Format::Dax, &good[..good.len() - 9], "breaks off");
    refused(Format::Dax, &good[..good.len() / 2], "breaks off");
    refused(Format::Dax, &good.replace("version=\"2.1\"", "version=\"7.0\""), "DAX `7.0`");
    refused(
        Format::Dax,
        &good.replace("id=\"ID00001\"", "id=\"ID00000\""),
        "line 10: two tasks have the id `ID00000`; the other is on line 4",
    );
    refused(Format::Dax, &good.replace("ref=\"ID00003\"", "ref=\"IDX\""), "`IDX`, which is no job");
    refused(
        Format::Dax,
        &good.replace("<job id=\"ID00003\" name", "<dax id=\"ID00003\" file"),
        "`ID00003` is a whole workflow",
    );
    refused(Format::Dax, &good.replace("size=\"304\"", "size=\"big\""), "no number: `big`");
    refused(Format::Dax, "<a><b></a>\n<c/>\n", "no XML");
}

// ---------------------------------------------------------------- Makeflow

#[test]
fn a_makeflow_is_read() {
    let w = of_file("words.makeflow", Format::Makeflow);
    assert_eq!(w.name, "words");
    let stages: Vec<(&str, &str)> = w.tasks.iter().map(|t| (t.id.as_str(), t.stage.as_str())).collect();
    assert_eq!(stages, [("one.n", "count"), ("two.n", "count"), ("total.txt", "sum")]);
    let lines: Vec<_> = w.tasks.iter().map(|t| t.command.clone().unwrap()).collect();
    assert_eq!(lines[0], Command::Shell("wc -w < one.txt > one.n".into()));
    assert_eq!(lines[1], Command::Shell("./c.sh two.txt  > two.n".into()));
    let sum = r#"cat one.n two.n | awk '{s += $1} END {print s}' > total.txt; echo "done $HOME" > log"#;
    assert_eq!(lines[2], Command::Shell(sum.into()));
    let tasks = tasks(&w);
    assert_eq!(tasks[0].id, "one.n");
    assert_eq!(tasks[0].outputs, [pair("one.n", "/work/one.n")], "declared, although it is read as well");
    assert_eq!(tasks[2].inputs, [pair("one.n", "/work/one.n"), pair("two.n", "run:two.n")]);
    assert_eq!(tasks[2].outputs, [pair("total.txt", "/work/total.txt"), pair("log", "/work/log")]);
    let two = &tasks[1];
    assert_eq!(two.inputs[1], pair("c.sh", "/work/count.sh"));
    assert_eq!((two.cpus, two.memory_bytes, &two.env), (2, Some(100 << 20), &vec![pair("LC_ALL", "C")]));
    assert_eq!(w.files.iter().find(|f| f.name == "one.txt").unwrap().size_bytes, Some(10 << 10));
}

#[test]
fn wrong_makeflows_are_refused() {
    let check = |text: &str, expect: &str| refused(Format::Makeflow, text, expect);
    check("a: b\n\tcat b > a", "line 2: the file breaks off");
    check("x=1\na: b\n", "line 2: the file breaks off: a rule has no command");
    check("a: b\nc: d\n\tx\n", "line 1: the rule before this one has no command");
    check("a: b\n\tx\n\ty\n", "line 3: there is no rule for this command");
    check("a: b\n\tcat $(NOT_SET_ANYWHERE) > a\n", "line 2: the variable `NOT_SET_ANYWHERE` is not set");
    check("a: b\n\techo $$ > a\n", "line 2: a `$` begins no variable");
    check("a: b\n\tMAKEFLOW sub.makeflow\n", "line 2: a makeflow inside a makeflow");
    check("a: b\n\techo 'x > a\n", "line 2: a quotation does not end");
    check("hello there\n", "line 1: `hello` is neither a rule nor a variable");
    check(".UMBRELLA SPEC x\n", "the directive `.UMBRELLA SPEC x` is not known");
    check("a: b\n@CORES=many\n\tx\n", "CORES is no number: `many`");
    check("a: b\n\tx\na: c\n\ty\n", "two tasks have the id `a`; the other is on line 1");
    check("a: b\n\tx\nb: a\n\ty\n", "in a circle, each for the one before it: `b` on line 3, `a` on line 1");
    check("A=$(B)\n", "the variable `B` is not set");
}

// ---------------------------------------------------------------- to tasks

#[test]
fn missing_inputs_and_names_outside_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let makeflow = "a: in1 in2 in3\n\tcat in1 in2 in3 > a\n";
    let w = parse(Format::Makeflow, makeflow, "w", None).unwrap();
    fs::write(dir.path().join("in1"), "").unwrap();
    let o = Options { check_inputs: true, origin: "w.makeflow".into(), ..options(dir.path()) };
    let error = to_list(&w, &o).unwrap_err().to_string();
    let expect =
        "w.makeflow, line 1: `in2`, which task `a` reads and no task writes, is missing: there is no file";
    assert!(
        error.starts_with(expect) && error.contains("and so is 1 other") && error.contains("--inputs"),
        "{error}"
    );
    fs::write(dir.path().join("in2"), "").unwrap();
    fs::write(dir.path().join("in3"), "").unwrap();
    assert_eq!(to_list(&w, &o).unwrap().n_tasks, 1);

    let w = parse(Format::Makeflow, "../a: b\n\tx\n", "w", None).unwrap();
    let error = to_list(&w, &options(dir.path())).unwrap_err().to_string();
    assert!(error.contains("task `../a` calls a file `../a`, which lies outside of its sandbox"), "{error}");
}

#[test]
fn only_parents_that_no_chain_of_files_leads_to_get_markers() {
    let yaml = "pegasus: 5.0\njobs:\n\
        - {name: p, id: a, uses: [{lfn: x, type: output}]}\n\
        - {name: p, id: b, uses: [{lfn: x, type: input}, {lfn: y, type: output}]}\n\
        - {name: p, id: c, uses: [{lfn: y, type: input}]}\n\
        - {name: p, id: 'd/d'}\n\
        jobDependencies:\n- {id: a, children: [b, c]}\n- {id: 'd/d', children: [c]}\n";
    let w = parse(Format::Pegasus, yaml, "w", None).unwrap();
    assert_eq!(w.tasks[2].parents, [0, 3]);
    let tasks = tasks(&w);
    assert_eq!(tasks[0].outputs, [pair("x", "run:x")], "c waits for a by x and y");
    assert_eq!(tasks[2].inputs, [pair("y", "run:y"), pair(".after/3", "run:.after/#3")]);
    assert_eq!(tasks[3].outputs, [pair(".eyas-after", "run:.after/#3")]);
    assert_eq!(tasks[3].command, Command::Shell("p && : > .eyas-after".into()));
}
