//! One small file of each format: what is understood, and what is refused with which message.

use eyas_terms::array::Command;
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

fn tasks(w: &Workflow) -> Vec<eyas_terms::array::TaskSpec> {
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
        assert_eq!((search.stage.as_str(), search.cpus), ("blastp", 2));
        assert_eq!(search.command, argv(&["blastp", "-q", "q1"]));
        assert_eq!(search.measured.runtime_ns, Some(4_000_000_000));
        assert_eq!(names(&w, &search.inputs), ["q1", "home/db"]);
        assert_eq!((w.tasks[2].stage.as_str(), &w.tasks[2].parents), ("report", &vec![0]));
    }
}

#[test]
fn names_that_several_tasks_have_are_kinds_of_tasks() {
    let kinds = OLD.replace("search_ID0000002", "P.QC").replace("split_ID0000001", "P.QC");
    let kinds = kinds.replace("\"parents\":[\"P.QC\"]", "\"parents\":[\"ID1\"]");
    let w = parse(Format::WfFormat, &kinds, "w", None).unwrap();
    let task_stages: Vec<(&str, &str)> = w.tasks.iter().map(|t| (t.id.as_str(), t.stage.as_str())).collect();
    assert_eq!(task_stages, [("ID2", "P.QC"), ("ID1", "P.QC"), ("report", "report")]);
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

/// A file with names as written by the systems whose runs WfCommons publishes. A task reads files that an
/// earlier task writes.
fn instance(tasks: &[(&str, &str, Option<&str>, &[&str], &[&str])]) -> String {
    let spec: Vec<_> = tasks
        .iter()
        .map(|(name, id, _, inputs, outputs)| {
            serde_json::json!({"name": name, "id": id, "parents": [], "children": [],
                "inputFiles": inputs, "outputFiles": outputs})
        })
        .collect();
    let executed: Vec<_> = tasks
        .iter()
        .map(|(_, id, program, ..)| {
            serde_json::json!({"id": id, "runtimeInSeconds": 1.0,
                "command": {"program": program.unwrap_or(""), "arguments": ["-a", id]}})
        })
        .collect();
    serde_json::json!({"name": "i", "schemaVersion": "1.5", "workflow": {
        "specification": {"tasks": spec, "files": []},
        "execution": {"makespanInSeconds": 1.0, "executedAt": "x", "tasks": executed}}})
    .to_string()
}

#[test]
fn tasks_called_by_program_and_number_are_of_one_stage() {
    let numbers: Vec<String> = (1..=40).map(|n| n.to_string()).collect();
    let mut tasks = vec![];
    for n in &numbers {
        let id: &str = format!("mProject_ID{n:0>7}").leak();
        tasks.push((id, id, Some("mProject"), &["raw"][..], vec![format!("p{n}")]));
    }
    let all: Vec<String> = numbers.iter().map(|n| format!("p{n}")).collect();
    let parts: Vec<&str> = all.iter().map(String::as_str).collect();
    let outputs: Vec<Vec<&str>> = tasks.iter().map(|t| t.4.iter().map(String::as_str).collect()).collect();
    let mut rows: Vec<(&str, &str, Option<&str>, &[&str], &[&str])> =
        tasks.iter().zip(&outputs).map(|(t, out)| (t.0, t.1, t.2, t.3, out.as_slice())).collect();
    rows.push(("mAdd_ID0000041", "mAdd_ID0000041", Some("/opt/mAdd"), &parts, &["mosaic"]));
    let w = parse(Format::WfFormat, &instance(&rows), "w", None).unwrap();
    let stages = eyas_workflow::stages(&w);
    let found: Vec<(&str, usize)> = stages.stages.iter().map(|s| (s.name.as_str(), s.tasks.len())).collect();
    assert_eq!(found, [("mProject", 40), ("mAdd", 1)]);
    assert_eq!(stages.edges[0].pattern, eyas_workflow::Pattern::Gather);
}

#[test]
fn files_in_the_work_folders_of_another_system_are_names_and_no_places() {
    let rows: &[(&str, &str, Option<&str>, &[&str], &[&str])] = &[
        (
            "P.QC",
            "P.QC_1",
            Some("g\" > x"),
            &["/home/me/reads.fq"],
            &["/b6/e9/qc.html", "/b6/e9/versions.yml"],
        ),
        ("P.QC", "P.QC_2", Some("g\" > y"), &[], &["/a1/07/qc.html", "/a1/07/versions.yml"]),
        (
            "P.ALL",
            "P.ALL_3",
            None,
            &["/b6/e9/versions.yml", "/a1/07/versions.yml", "/b6/e9/qc.html"],
            &["/c3/00/all.html"],
        ),
    ];
    let w = parse(Format::WfFormat, &instance(rows), "w", None).unwrap();
    let stand_ins = Options { stand_ins: true, ..options(Path::new("/d")) };
    let specs = to_specs(&w, &stand_ins).unwrap();
    assert_eq!(
        specs[0].outputs,
        [pair("qc.html", "run:b6/e9/qc.html"), pair("versions.yml", "run:b6/e9/versions.yml")]
    );
    assert_eq!(specs[0].inputs, [], "nobody has it, and stand-ins do without");
    assert_eq!(
        specs[2].inputs,
        [
            pair("b6/e9/versions.yml", "run:b6/e9/versions.yml"),
            pair("a1/07/versions.yml", "run:a1/07/versions.yml"),
            pair("qc.html", "run:b6/e9/qc.html")
        ]
    );
    assert_eq!(specs[2].outputs, [pair("all.html", "/d/c3/00/all.html")]);
    // A file that no task writes is looked for at its name.
    let rows = rows.iter().map(|row| (row.0, row.1, Some("true"), row.3, row.4)).collect::<Vec<_>>();
    let w = parse(Format::WfFormat, &instance(&rows), "w", None).unwrap();
    assert_eq!(tasks(&w)[0].inputs, [pair("reads.fq", "/home/me/reads.fq")]);
    assert_eq!(eyas_workflow::stages(&w).stages[0].tasks.len(), 2);
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
    // `f b2` is not declared as a result, so it stays on the nodes like `f.b1`, although no task reads it.
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

#[test]
fn a_job_that_is_a_workflow_becomes_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let outer = "pegasus: 5.0\njobs:\n\
        - {type: job, name: get, id: G, uses: [{lfn: page, type: output}, {lfn: tmp, type: output}]}\n\
        - {type: pegasusWorkflow, id: S, file: inner.yml, arguments: [--basename, x], uses: [{lfn: page, type: input}, {lfn: f.d, type: output}]}\n\
        - {type: job, name: wc, id: W, uses: [{lfn: f.d, type: input}, {lfn: tmp, type: input}]}\n\
        - {type: job, name: end, id: E}\n\
        jobDependencies:\n- {id: G, children: [S]}\n- {id: S, children: [E]}\n";
    let inner = "pegasus: 5.0\njobs:\n\
        - {type: job, name: pre, id: A, arguments: [tmp], uses: [{lfn: page, type: input}, {lfn: tmp, type: output}]}\n\
        - {type: job, name: other, id: B, uses: [{lfn: db, type: input}]}\n\
        - {type: job, name: post, id: C, uses: [{lfn: tmp, type: input}, {lfn: f.d, type: output}]}\n";
    let path = dir.path().join("outer.yml");
    fs::write(&path, outer).unwrap();
    let error = read(&path, Format::Pegasus).unwrap_err().to_string();
    assert!(error.contains("the workflow `inner.yml` of job `S` is not there: looked for"), "{error}");
    fs::write(dir.path().join("inner.yml"), inner).unwrap();
    let w = read(&path, Format::Pegasus).unwrap();
    let task_parents: Vec<(&str, Vec<u32>)> =
        w.tasks.iter().map(|t| (t.id.as_str(), t.parents.clone())).collect();
    // A parent that a file links already is not listed as a parent.
    let expect =
        [("G", vec![]), ("S.A", vec![]), ("S.B", vec![0]), ("S.C", vec![]), ("W", vec![]), ("E", vec![2, 3])];
    assert_eq!(task_parents, expect);
    assert_eq!(names(&w, &w.tasks[1].outputs), ["S/tmp"], "not the one of the outer workflow");
    let tasks = tasks(&w);
    assert_eq!(tasks[1].outputs[0], pair("tmp", "run:S/tmp"));
    assert_eq!(tasks[3].inputs, [pair("tmp", "run:S/tmp")]);
    assert_eq!(tasks[4].inputs, [pair("f.d", "run:f.d"), pair("tmp", "run:tmp")]);
    // Mistakes in an inner workflow are reported with their place, and a workflow that contains itself is
    // refused.
    fs::write(dir.path().join("inner.yml"), inner.replace("id: C", "id: B")).unwrap();
    let error = read(&path, Format::Pegasus).unwrap_err().to_string();
    assert!(
        error.contains("line 4: in the inner workflow") && error.contains("line 5: two tasks"),
        "{error}"
    );
    fs::write(dir.path().join("inner.yml"), outer).unwrap();
    let error = read(&path, Format::Pegasus).unwrap_err().to_string();
    assert!(error.contains("more than 8 deep in each other"), "{error}");
}

#[test]
fn replicas_by_pattern_say_where_files_are() {
    let yaml = "pegasus: 5.0\njobs:\n\
        - {type: job, name: p, id: a, uses: [{lfn: f.a, type: input}, {lfn: beta.csv, type: input}, {lfn: x, type: output}]}\n\
        - {type: job, name: p, id: b, uses: [{lfn: x, type: input}, {lfn: other, type: input}]}\n\
        replicaCatalog:\n  replicas:\n\
        \x20 - {lfn: '.\\.a', regex: true, pfns: [{site: local, pfn: 'file:///wrong'}]}\n\
        \x20 - {lfn: f.a, pfns: [{site: local, pfn: /own/f.a}]}\n\
        \x20 - {lfn: '(\\w+)\\.(csv|txt)', regex: true, pfns: [{site: local, pfn: 'file:///data/[2]/[1]/[0]'}]}\n\
        \x20 - {lfn: '.*', regex: true, pfns: [{site: local, pfn: '/rest/[0]'}]}\n";
    let w = parse(Format::Pegasus, yaml, "w", None).unwrap();
    let places: Vec<(&str, Option<&str>)> =
        w.files.iter().map(|f| (f.name.as_str(), f.location.as_deref())).collect();
    assert_eq!(
        places,
        [
            ("f.a", Some("/own/f.a")),
            ("beta.csv", Some("file:///data/csv/beta/beta.csv")),
            ("x", None),
            ("other", Some("/rest/other"))
        ]
    );
    refused(Format::Pegasus, &yaml.replace("'.*'", "'(?=x)'"), "`(?=x)` is no regular expression");
}

/// The locations are checked with home storage, which decides what a URL means.
#[test]
fn a_file_url_of_a_catalog_is_decoded() {
    let yaml = "pegasus: 5.0\njobs:\n\
        - {type: job, name: p, id: a, uses: [{lfn: f.a, type: input}, {lfn: x, type: output}]}\n\
        replicaCatalog:\n  replicas:\n\
        \x20 - {lfn: f.a, pfns: [{site: tape, pfn: 'gsiftp://h/f'}, {site: web, pfn: 'http://h/f'}, {site: local, pfn: 'FILE://localhost/a%20b'}]}\n\
        transformationCatalog:\n  transformations:\n\
        \x20 - {name: p, sites: [{name: local, pfn: 'file:///opt/my%20bin/p', type: installed}]}\n";
    let w = parse(Format::Pegasus, yaml, "w", None).unwrap();
    assert_eq!(w.tasks[0].command, argv(&["/opt/my bin/p"]));
    assert_eq!(tasks(&w)[0].inputs, [pair("f.a", "/a b")]);
}

#[test]
fn a_container_is_refused_only_where_a_job_wants_it() {
    let yaml = "pegasus: 5.0\njobs:\n- {type: job, name: p, id: a}\n\
        transformationCatalog:\n  transformations:\n\
        \x20 - {name: p, sites: [{name: local, pfn: /bin/p, type: installed}]}\n\
        \x20 - {name: q, sites: [{name: local, pfn: /bin/q, type: installed, container: centos}]}\n\
        \x20 containers: [{name: centos, type: docker, image: 'docker:///x'}]\n";
    assert_eq!(parse(Format::Pegasus, yaml, "w", None).unwrap().tasks[0].command, argv(&["/bin/p"]));
    let wanted = yaml.replace("name: p, id: a", "name: q, id: a");
    refused(Format::Pegasus, &wanted, "job `a` wants its program `q` to run in the container `centos`");
    refused(Format::Pegasus, &wanted, "hint: take `container` out");
}

#[test]
fn a_log_that_many_jobs_write_and_nobody_wants_is_left_out() {
    let dax = |transfer: &str, reader: &str| {
        let job = |n: u32| {
            format!(
                "<job id=\"j{n}\" name=\"p\"><uses file=\"log\" link=\"output\" transfer=\"{transfer}\"/>\
                 <uses file=\"o{n}\" link=\"output\"/>{}</job>",
                if n == 2 { reader } else { "" }
            )
        };
        format!("<adag version=\"2.1\" name=\"b\">{}{}</adag>", job(1), job(2))
    };
    let w = parse(Format::Dax, &dax("false", ""), "w", None).unwrap();
    assert_eq!(names(&w, &w.tasks[0].outputs), ["o1"]);
    refused(Format::Dax, &dax("true", ""), "two tasks write `log`");
    let three = dax("false", "")
        .replace("</adag>", "<job id=\"r\" name=\"r\"><uses file=\"log\" link=\"input\"/></job></adag>");
    refused(Format::Dax, &three, "two tasks write `log`");
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
    assert_eq!(lines[1], Command::Shell("./c.sh two.txt   > two.n".into()));
    let sum = r#"cat one.n two.n | awk '{s += $1} END {print s}' > total.txt; echo "done $HOME" > log"#;
    assert_eq!(lines[2], Command::Shell(sum.into()));
    let tasks = tasks(&w);
    assert_eq!(tasks[0].id, "one.n");
    assert_eq!(tasks[0].outputs, [pair("one.n", "/work/one.n")], "declared, although it is read as well");
    assert_eq!(tasks[2].inputs, [pair("one.n", "/work/one.n"), pair("two.n", "run:two.n")]);
    assert_eq!(tasks[2].outputs, [pair("total.txt", "/work/total.txt"), pair("log", "/work/log")]);
    let two = &tasks[1];
    assert_eq!(two.inputs[1], pair("c.sh", "/work/count.sh"));
    assert_eq!((two.cpus, two.memory_bytes, &two.env), (2, None, &vec![pair("LC_ALL", "C")]));
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

// ---------------------------------------------------------------- Makeflow as it is in the wild

fn line(task: &eyas_terms::array::TaskSpec) -> &str {
    match &task.command {
        Command::Shell(line) => eyas_text::Shell::without(line),
        Command::Exec(_) => panic!("a makeflow's commands are lines"),
    }
}

#[test]
fn a_makeflow_asks_for_memory_and_limits_none() {
    let text = ".MAKEFLOW CATEGORY merge\n.MAKEFLOW MEMORY 100\nall: one two\n@MEMORY=20\n\tcat one two > all # $CATEGORY\none:\n\techo ${CATEGORY} $CORES_NOT\n";
    let text = text.replace(" $CORES_NOT", "");
    let w = parse(Format::Makeflow, &format!("{text}two:\n\ttouch two\n"), "w", None).unwrap();
    assert!(w.tasks.iter().all(|t| t.memory_bytes.is_none()));
    assert_eq!(w.tasks[1].command, Some(Command::Shell("echo merge".into())), "the category is a variable");
    refused(Format::Makeflow, "a:\n@MEMORY=much\n\tx\n", "MEMORY is no number");
}

#[test]
fn quoted_names_of_a_makeflow_keep_their_blanks() {
    let text = "P=C D\n$(P) E:\n\tmake\nF \"$(P)\" G: 'x y' z\\ z\n    echo a:b > F; A=1 true\nQ=\"H I\" \"J K\"\n$(Q):\n\tq\nMAKEFLOW_OUTPUTS=\"C D\" J\n";
    let w = parse(Format::Makeflow, text, "w", None).unwrap();
    assert_eq!(names(&w, &w.tasks[0].outputs), ["C", "D", "E"]);
    assert_eq!(names(&w, &w.tasks[1].outputs), ["F", "C D", "G"]);
    assert_eq!(names(&w, &w.tasks[1].inputs), ["x y", "z z"]);
    assert_eq!(
        w.tasks[1].command,
        Some(Command::Shell("echo a:b > F; A=1 true".into())),
        "blanks do for a tab"
    );
    assert_eq!(names(&w, &w.tasks[2].outputs), ["H I", "J K"]);
    let results: Vec<&str> =
        w.files.iter().filter(|f| f.result == Some(true)).map(|f| f.name.as_str()).collect();
    assert_eq!(results, ["C D"]);
    // All names are in one pair of quotes.
    let w = parse(Format::Makeflow, "a b:\n\tx\nMAKEFLOW_OUTPUTS=\"a b\"\n", "w", None).unwrap();
    assert!(w.files.iter().all(|f| f.result == Some(true)));
}

#[test]
fn folders_that_tasks_write_go_as_one() {
    let text = "MAKEFLOW_OUTPUTS=seen\n\
        made odd: in\n\tmkdir -p made/sub;cp in odd&&cp in made/sub/x\n\
        said/: in\n\t./p in\n\
        known known/1: in\n\t./k in\n\
        seen: made said/ known/1 known/2\n\tcat made/sub/x said/* known/1 known/2 > seen\n";
    let w = parse(Format::Makeflow, text, "w", None).unwrap();
    let tasks = tasks(&w);
    assert_eq!(tasks[0].outputs, [pair("made", "run:made/"), pair("odd", "/work/odd")]);
    assert_eq!(line(&tasks[0]), "mkdir -p made/sub;cp in odd&&cp in made/sub/x");
    assert_eq!(tasks[1].outputs, [pair("said", "run:said/")]);
    let known = tasks.iter().find(|t| t.id == "known").unwrap();
    assert_eq!(known.outputs, [pair("known", "run:known/")]);
    let seen = tasks.iter().find(|t| t.id == "seen").unwrap();
    let inputs: Vec<&str> = seen.inputs.iter().map(|(_, at)| at.as_str()).collect();
    assert_eq!(inputs, ["run:made/", "run:said/", "run:known/"]);
    assert_eq!(line(seen), "cat made/sub/x said/* known/1 known/2 > seen");
}

#[test]
fn a_folder_is_a_result_where_something_in_it_is_and_made_at_home_by_those_who_fill_it() {
    let at_home = |text: &str| {
        let w = parse(Format::Makeflow, text, "w", None).unwrap();
        let tasks = tasks(&w);
        tasks.into_iter().flat_map(|t| t.outputs).map(|(_, at)| at).collect::<Vec<_>>()
    };
    assert_eq!(at_home("d d/1 d/2: in\n\t./k\nseen: d/1\n\t./s\n"), ["/work/d/", "/work/seen"]);
    assert_eq!(at_home("d d/1: in\n\t./k\nseen: d/1\n\t./s\n"), ["run:d/", "/work/seen"]);
    assert_eq!(
        at_home("MAKEFLOW_OUTPUTS=d/1\nd d/1: in\n\t./k\nseen: d\n\t./s\n")[0],
        "/work/d/",
        "who asks for a file in it gets all of it"
    );
    assert_eq!(
        at_home("d:\n\tmkdir d\nd/1: d\n\t./k\nd/2: in\n\t./k\n"),
        ["run:d/", "/work/d/1", "/work/d/2"]
    );
    assert_eq!(at_home("d:\n\tmkdir -p d\nd/1: in\n\t./k\n"), ["run:d/", "/work/d/1"]);
    // A task that puts a file into a folder wants the folder as a result.
    let w = parse(Format::Makeflow, "d:\n\tmkdir d; date > d/0\nd/1: in\n\t./k\n", "w", None).unwrap();
    let said = to_list(&w, &options(Path::new("/work"))).unwrap_err().to_string();
    assert!(
        said.contains("`/work/d/1`, which lies in the directory `/work/d/` that task `d` writes"),
        "{said}"
    );
}

#[test]
fn folders_keep_their_names_in_wfformat_and_stand_ins_make_them() {
    let text =
        "a/made: in\n\tmkdir -p a/made\nseen: a/made in\n\tls a/made > seen\nlast: seen\n\tmkdir last\n";
    let w = parse(Format::Makeflow, text, "w", None).unwrap();
    let mut written = vec![];
    eyas_workflow::wfformat::write(&w, "2026-11-22T00:00:00Z", &mut written).unwrap();
    let again = parse(Format::WfFormat, std::str::from_utf8(&written).unwrap(), "w", None).unwrap();
    let (before, after) = (tasks(&w), tasks(&again));
    for (one, other) in before.iter().zip(&after) {
        assert_eq!((&one.inputs, &one.outputs), (&other.inputs, &other.outputs));
    }
    assert_eq!(before[2].outputs, [pair("last", "/work/last/")]);
    let mut sized = w.clone();
    sized.files.iter_mut().for_each(|f| f.size_bytes = Some(100));
    let o = Options { stand_ins: true, ..options(Path::new("/work")) };
    let made = to_specs(&sized, &o).unwrap();
    assert_eq!(line(&made[0]), "mkdir -p a/made && head -c 70 /dev/zero > a/made/zeros");
    sized.files.iter_mut().for_each(|f| f.size_bytes = Some(12));
    assert_eq!(line(&to_specs(&sized, &o).unwrap()[2]), "mkdir -p last");
}

#[test]
fn a_folder_that_nobody_writes_is_the_files_in_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("in/deep/empty")).unwrap();
    fs::write(dir.path().join("in/b"), "").unwrap();
    fs::write(dir.path().join("in/deep/a"), "").unwrap();
    let text = "out: in\n\tls -R in > out\nparts/1:\n\tx\nparts/2:\n\ty\nall: parts\n\tcat parts/* > all\n";
    let w = parse(Format::Makeflow, text, "w", None).unwrap();
    let o = Options { check_inputs: true, ..options(dir.path()) };
    let tasks = to_specs(&w, &o).unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    assert_eq!(tasks[0].inputs, [pair("in/b", &at("in/b")), pair("in/deep/a", &at("in/deep/a"))]);
    assert_eq!(tasks[3].inputs, [pair("parts/1", "run:parts/1"), pair("parts/2", "run:parts/2")]);
}

// ---------------------------------------------------------------- Makeflow in JX

const JX: &str = r#"# Counts words, part by part.
{
  "define": { "N": 2, "PARTS": [template("part.{i}") for i in range(N)], "TOOL": "./count.sh" },
  "environment": { "LC_ALL": "C", "MODE": "all" },
  "default_category": "usual",
  "categories": {
    "usual": { "resources": { "cores": 1, "memory": 100, "disk": 1000 } },
    "count": { "environment": { "MODE": "count" }, "resources": { "cores": 3, "memory": 512, "wall-time": 60 } },
  },
  "rules": [
    { "command": "mkdir -p all && cat " + join([p + ".n" for p in PARTS]) + " > all/sum",
      "inputs": [p + ".n" for p in PARTS],
      "outputs": ["all"],   # a folder
    },
    {
      "command": format("%s part > %s.n", TOOL, p),
      "inputs": [TOOL, "/bin/sh", { "dag_name": p, "task_name": "part" }],
      "outputs": [p + ".n"],
      "category": "count",
      "environment": { "PART": p },
      "resources": { "cores": 2 },
    } for p in PARTS,
    { "command": "split words", "inputs": ["words"], "outputs": PARTS, "local_job": true },
    { "command": "ls" },
  ]
}
"#;

#[test]
fn a_makeflow_in_jx_is_read() {
    let w = parse(Format::Jx, JX, "w", None).unwrap();
    let task_stages: Vec<(&str, &str)> = w.tasks.iter().map(|t| (t.id.as_str(), t.stage.as_str())).collect();
    assert_eq!(
        task_stages,
        [
            ("all", "cat"),
            ("part.0.n", "count"),
            ("part.1.n", "count"),
            ("part.0", "split"),
            ("line-24-5", "ls")
        ]
    );
    let tasks = tasks(&w);
    assert_eq!(line(&tasks[0]), "mkdir -p all && cat part.0.n part.1.n > all/sum");
    assert_eq!(tasks[0].outputs, [pair("all", "/work/all/")]);
    let count = &tasks[2];
    assert_eq!(line(count), "./count.sh part > part.1.n");
    assert_eq!(count.inputs, [pair("count.sh", "/work/count.sh"), pair("part", "run:part.1")]);
    assert_eq!(count.env, [pair("LC_ALL", "C"), pair("MODE", "count"), pair("PART", "part.1")]);
    assert_eq!((count.cpus, count.walltime_ns, count.memory_bytes), (2, Some(60_000_000_000), None));
    assert_eq!(tasks[0].env, [pair("LC_ALL", "C"), pair("MODE", "all")]);
    assert_eq!(w.tasks[0].line, Some(11));
}

#[test]
fn wrong_makeflows_in_jx_are_refused() {
    let check = |from: &str, to: &str, expect: &str| {
        let broken = JX.replacen(from, to, 1);
        assert_ne!(broken, JX, "{from}");
        refused(Format::Jx, &broken, expect);
    };
    check("\"rules\"", "\"rule\"", "it has no `rules`");
    check("range(N)", "range(M)", "line 3: the name `M` is not defined");
    check("\"command\": \"split words\"", "\"workflow\": \"x.jx\"", "a workflow inside a workflow");
    check("\"command\": \"ls\"", "\"commands\": \"ls\"", "line 24: a rule has no `command`");
    check("\"cores\": 2", "\"cores\": \"2\"", "`cores` is a text, and a whole number from 0 is wanted");
    check("\"outputs\": PARTS", "\"outputs\": N", "`outputs` is a number, and a list is wanted");
    check("\"dag_name\"", "\"dagname\"", "a file has no `dag_name`");
    check("\"outputs\": PARTS", "\"outputs\": [\"part.0.n\"]", "two tasks have the id `part.0.n`");
    refused(Format::Jx, &JX[..JX.len() - 20], "breaks off");
    refused(Format::Jx, "[]", "it has no `rules`");
    refused(Format::Jx, "{\"rules\": [3]}", "`a rule` is a number, and an object is wanted");
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

    // Nothing is named after the last part of such a location; the list that was made of it was refused without its line.
    for location in ["s3://../..", "s3://bucket/dir/."] {
        let script = format!(
            "type file;\napp (file o) cat (file i) {{ \"cat\" @i stdout=@o; }}\nfile a <single_file_mapper; file=\"{location}\">;\n\
             file b <\"b\">;\nb = cat(a);\n"
        );
        let w = parse(Format::Swift, &script, "w", None).unwrap();
        let error = to_list(&w, &options(dir.path())).unwrap_err().to_string();
        let expect = format!("has a file `{location}`, whose last part is no name of a file");
        assert!(error.contains(&expect) && error.contains("line "), "{error}");
    }
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

#[test]
fn a_line_keeps_its_shell_behind_a_marker_and_through_wfformat() {
    let one = |line: &str| {
        format!(
            r#"{{"id":"a","command":{{"program":"/bin/sh","arguments":["-c",{}]}}}}"#,
            serde_json::to_string(line).unwrap()
        )
    };
    let check = |line: &str, for_sh: bool, expect: &str| {
        let text = format!(
            r#"{{"workflow":{{"specification":{{"tasks":[{{"name":"a","id":"a","children":["b"]}},{{"name":"b","id":"b"}}]}},
            "execution":{{"eyasForSh":{for_sh},"tasks":[{},{}]}}}}}}"#,
            one(line),
            one("true").replace(r#""id":"a""#, r#""id":"b""#)
        );
        let w = parse(Format::WfFormat, &text, "w", None).unwrap();
        assert_eq!(w.is_for_sh, for_sh);
        assert_eq!(tasks(&w)[0].command, Command::Shell(expect.into()), "{line}");
    };
    check("a | b", false, "(\na | b\n) && : > .eyas-after");
    check("a | b", true, "(\na | b\n) && : > .eyas-after");
    check("a", true, "#!/bin/sh\n(\na\n) && : > .eyas-after");
    check("#!/bin/sh\na | b", false, "#!/bin/sh\n(\na | b\n) && : > .eyas-after");
    check("#!/bin/bash\na", true, "#!/bin/bash\n(\na\n) && : > .eyas-after");
}

// ---------------------------------------------------------------- places of results

const PLACED: &str = concat!(
    r#"{"id":"a","command":["a"],"inputs":{"i":"/in/x"},"outputs":{"a":"/home/me/out/a"}}"#,
    "\n",
    r#"{"id":"b","command":["b"],"inputs":{"a":"/home/me/out/a"},"outputs":{"b":"/home/me/out/deep/b","t":"run:t"}}"#,
    "\n",
    r#"{"id":"c","command":["c"],"inputs":{"t":"run:t"},"outputs":{"deep":"/home/me/out/c"}}"#,
    "\n"
);

fn placed(lines: &str) -> Workflow {
    let list = eyas_tasklist::read(lines.as_bytes(), Path::new("/base"), &Default::default()).unwrap();
    eyas_workflow::from_arrays(&list.arrays, "placed").unwrap()
}

#[test]
fn results_leave_their_places_for_the_folder_that_the_user_names() {
    let out = |w: &Workflow, wins: bool| -> Vec<Vec<(String, String)>> {
        let options = Options { out_dir_wins: wins, out_dir: "/else".into(), ..options(Path::new("/work")) };
        let mut specs = to_specs(w, &options).unwrap();
        specs.sort_by(|a, b| a.id.cmp(&b.id));
        specs.into_iter().map(|t| t.outputs).collect()
    };
    let w = placed(PLACED);
    assert_eq!(out(&w, false)[0], [pair("a", "/home/me/out/a")], "where the list says");
    let b = [pair("b", "/else/deep/b"), pair("t", "run:t")];
    assert_eq!(out(&w, true), [vec![pair("a", "/else/a")], b.to_vec(), vec![pair("deep", "/else/c")]]);

    let mut forgotten = w.clone();
    eyas_workflow::forget_places_of_results(&mut forgotten);
    assert!(
        forgotten.writers().iter().zip(&forgotten.files).all(|(w, f)| w.is_none() || f.location.is_none())
    );
    assert_eq!(out(&forgotten, false), out(&w, true));
    assert_eq!(forgotten.files[0], w.files[0], "inputs stay where they are");
}

#[test]
fn names_of_results_that_are_taken_keep_more_of_their_places() {
    let w = placed(&PLACED.replace("run:t", "run:deep/b"));
    let mut forgotten = w.clone();
    eyas_workflow::forget_places_of_results(&mut forgotten);
    let names: Vec<&str> = forgotten.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["/in/x", "out/a", "deep/b", "out/c", "out/deep/b"]);
}

#[test]
fn a_result_in_the_place_of_an_input_is_refused() {
    let w = placed(&PLACED.replace("/in/x", "/else/c"));
    let options = Options { out_dir_wins: true, out_dir: "/else".into(), ..options(Path::new("/work")) };
    let error = to_specs(&w, &options).unwrap_err().to_string();
    let expect =
        "task `c` would write its result `/home/me/out/c` to `/else/c`, which is an input of task `a`";
    assert!(error.contains(expect) && error.contains("hint: --out"), "{error}");
}
