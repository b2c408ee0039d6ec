//! The neutral form: WfFormat out and in again, stages and their patterns, the drawing.

use eyas_terms::array::{Command, Hints};
use eyas_workflow::stages::{Flow, pattern};
use eyas_workflow::{
    File, Format, Machine, Measured, Options, Pattern, Run, Task, Use, Workflow, parse, read, stages, svg,
    to_list, wfformat,
};
use proptest::prelude::*;
use std::path::Path;

fn written(w: &Workflow) -> String {
    let mut out = vec![];
    wfformat::write(w, "2026-11-22T00:00:00Z", &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn again(w: &Workflow) -> Workflow {
    parse(Format::WfFormat, &written(w), "w", None).unwrap()
}

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

const ALL: [(&str, Format); 5] = [
    ("montage-58.json", Format::WfFormat),
    ("diamond.yml", Format::Pegasus),
    ("montage.dax", Format::Dax),
    ("diamond3.dax", Format::Dax),
    ("words.makeflow", Format::Makeflow),
];

#[test]
fn every_format_goes_through_wfformat_unchanged() {
    for (name, format) in ALL {
        let w = read(&data(name), format).unwrap();
        assert_eq!(again(&w), w, "{name}");
    }
}

#[test]
fn every_format_can_be_a_task_list_and_come_back() {
    for (name, format) in ALL {
        let w = read(&data(name), format).unwrap();
        let stand_ins = w.tasks.iter().any(|t| t.command.is_none());
        let options = Options { check_inputs: false, stand_ins, ..Options::beside(&data(name)) };
        let list = to_list(&w, &options).unwrap();
        assert_eq!(list.n_tasks as usize, w.tasks.len(), "{name}");
    }
}

#[test]
fn a_promised_file_stays_on_the_nodes_in_any_form() {
    let lines = concat!(
        r#"{"id":"p","command":["p"],"dynamic":true,"promises":["run:x"]}"#,
        "\n",
        r#"{"id":"r","command":["r"],"inputs":["run:x"]}"#,
        "\n"
    );
    let list = eyas_tasklist::read(lines.as_bytes(), Path::new("/base"), &Default::default()).unwrap();
    let w = again(&eyas_workflow::from_arrays(&list.arrays, "promised").unwrap());
    let list = to_list(&w, &Options::beside(Path::new("/base/w.json"))).unwrap();
    let specs: Vec<_> = list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect();
    assert_eq!(specs[0].promises, ["run:x"]);
    assert_eq!(specs[1].inputs, [("x".to_string(), "run:x".to_string())]);
}

#[test]
fn packed_inputs_and_needs_are_the_same_in_any_form() {
    let lines = concat!(
        r#"{"command":["a"],"inputs":{"z":{"from":"in/z.gz","unpack":"gzip"}}}"#,
        "\n",
        r#"{"command":["b"],"inputs":{"d":{"from":"in/d.tar","unpack":"tar"},"c":"in/c"}}"#,
        "\n",
        r#"{"command":["c"],"inputs":{"i/":{"from":"run:r","make":["m","{in}","{out}"]}}}"#,
        "\n",
        r#"{"command":["d"],"outputs":["run:r"],"container":"image.tar"}"#,
        "\n",
        r#"{"command":["e"],"cpus":2.5,"gpus":0.25,"resources":{"licence":2}}"#,
        "\n",
        r#"{"command":["f"],"gpus":3}"#,
        "\n"
    );
    let specs = |list: &eyas_tasklist::TaskList| -> Vec<_> {
        list.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect()
    };
    let list = eyas_tasklist::read(lines.as_bytes(), Path::new("/base"), &Default::default()).unwrap();
    let w = again(&eyas_workflow::from_arrays(&list.arrays, "packed").unwrap());
    let options = Options { check_inputs: false, ..Options::beside(Path::new("/base/w.json")) };
    let back = to_list(&w, &options).unwrap();
    for (task, before) in specs(&back).iter().zip(specs(&list)) {
        let of = |task: &eyas_terms::array::TaskSpec| (task.inputs.clone(), task.outputs.clone(), task.cpus);
        assert_eq!(of(task), of(&before));
    }
    let needs = |list: &eyas_tasklist::TaskList| -> Vec<_> {
        list.arrays.iter().flat_map(|a| vec![a.needs.clone(); a.n_tasks as usize]).collect()
    };
    assert_eq!(needs(&back), needs(&list));
    let wrong = written(&w).replace("\"gpu_parts\": 3000", "\"gpu_parts\": 3001");
    let error = parse(Format::WfFormat, &wrong, "w", None).unwrap_err().to_string();
    assert!(error.contains("cannot need what it says: `gpus` above 1 is no whole number"), "{error}");
}

/// A workflow that can be done: tasks read only files that earlier tasks write, with names and ids of all
/// kinds.
fn any_workflow() -> impl Strategy<Value = Workflow> {
    let text = "[a-z0-9/ .é_-]{1,8}";
    let command = prop_oneof![
        Just(None),
        proptest::collection::vec("[ -~]{0,6}", 1..4).prop_map(|argv| Some(Command::Exec(argv))),
        Just(Some(Command::Exec(vec!["/bin/sh".into(), "-c".into(), "x".into()]))),
        "[ -~]{0,9}".prop_map(|line| Some(Command::Shell(line))),
    ];
    // Nanoseconds up to a million seconds, milliseconds beyond.
    let runtime = prop_oneof![
        0..1_000_000_000_000_000u64,
        (1_000_000_000..1_000_000_000_000u64).prop_map(|ms| ms * 1_000_000)
    ];
    let measured = (
        proptest::option::of(runtime),
        proptest::option::of(0..1u64 << 50),
        proptest::option::of(any::<u64>()),
        proptest::option::of("[a-z]{1,4}"),
    );
    let task = (
        command,
        (text, "[a-z]{0,5}", proptest::collection::vec((text, text), 0..2)),
        proptest::collection::vec((any::<u16>(), proptest::option::of(text), any::<bool>()), 0..5),
        0..3usize,
        proptest::collection::vec(any::<u16>(), 0..3),
        (
            1..5u32,
            proptest::option::of(1..1u64 << 60),
            proptest::option::of(1..1u64 << 60),
            0..4u32,
            -9..9i32,
        ),
        measured,
        proptest::option::of(1..99u32),
    );
    let file = (
        text,
        proptest::option::of("[/a-z]{1,5}"),
        proptest::option::of(any::<u64>()),
        any::<Option<bool>>(),
    );
    let run = proptest::option::of(("[0-9]{4}", 0..1_000_000_000_000_000u64, proptest::option::of(1..9u32)));
    ("[ -~]{1,9}", proptest::collection::vec(task, 1..9), proptest::collection::vec(file, 30..31), run)
        .prop_map(|(name, tasks, files, run)| {
            let mut w = Workflow { name, ..Workflow::default() };
            for (n, (name, location, size_bytes, result)) in files.into_iter().enumerate() {
                // Plain relative names, all different.
                let name =
                    name.split('/').filter(|p| !p.is_empty() && *p != ".").collect::<Vec<_>>().join("/");
                w.files.push(File { name: format!("{n}-{name}"), location, size_bytes, result });
            }
            let mut free = 6u32..30;
            for (n, (command, (id, stage, env), inputs, n_outputs, parents, limits, m, line)) in
                tasks.into_iter().enumerate()
            {
                let bound = free.start;
                let mut uses: Vec<Use> = vec![];
                for (file, name, optional) in inputs {
                    let file = u32::from(file) % bound;
                    if uses.iter().all(|u| u.file != file) {
                        uses.push(Use { file, name, optional });
                    }
                }
                let writers = w.writers();
                let by_file: Vec<u32> = uses.iter().filter_map(|u| writers[u.file as usize]).collect();
                let mut parents: Vec<u32> = match n {
                    0 => vec![],
                    n => parents.into_iter().map(|p| u32::from(p) % n as u32).collect(),
                };
                parents.retain(|p| !by_file.contains(p));
                parents.sort_unstable();
                parents.dedup();
                w.tasks.push(Task {
                    id: format!("{id}{n}"),
                    stage,
                    command,
                    env,
                    inputs: uses,
                    outputs: free.by_ref().take(n_outputs).map(Use::of).collect(),
                    parents,
                    needs: None,
                    cpus: limits.0,
                    memory_bytes: limits.1,
                    walltime_ns: limits.2,
                    retries: limits.3,
                    priority: limits.4,
                    dynamic: limits.3 % 2 == 1,
                    hints: Hints::default(),
                    promises: if limits.3 % 2 == 1 { vec!["run:later".into()] } else { vec![] },
                    measured: Measured { runtime_ns: m.0, cpu_ns: m.1, rss_bytes_max: m.2, machine: m.3 },
                    line,
                });
            }
            w.is_for_sh = w.tasks.len() % 2 == 1;
            w.run = run.map(|(executed_at, makespan_ns, n_cores)| Run {
                executed_at,
                makespan_ns,
                machines: vec![Machine { name: "node-1".into(), n_cores }],
            });
            w
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn wfformat_out_and_in_loses_nothing(w in any_workflow()) {
        prop_assert_eq!(again(&w), w);
    }

    #[test]
    fn what_is_written_keeps_the_rules_of_the_schema(w in any_workflow()) {
        let json: serde_json::Value = serde_json::from_str(&written(&w)).unwrap();
        let plain = |v: &serde_json::Value| {
            let text = v.as_str().unwrap();
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        prop_assert_eq!(json["schemaVersion"].as_str(), Some("1.5"));
        prop_assert!(!json["name"].as_str().unwrap().is_empty());
        let (spec, exec) = (&json["workflow"]["specification"], &json["workflow"]["execution"]);
        for t in spec["tasks"].as_array().unwrap() {
            prop_assert!(plain(&t["id"]) && !t["name"].as_str().unwrap().is_empty());
            for list in ["parents", "children", "inputFiles", "outputFiles"] {
                prop_assert!(t[list].as_array().unwrap().iter().all(plain), "{}", t);
            }
        }
        for f in spec["files"].as_array().unwrap() {
            prop_assert!(plain(&f["id"]) && f["sizeInBytes"].is_u64());
        }
        prop_assert!(exec["makespanInSeconds"].is_number() && exec["executedAt"].is_string());
        for t in exec["tasks"].as_array().unwrap() {
            prop_assert!(plain(&t["id"]) && t["runtimeInSeconds"].is_number() && t["coreCount"].as_f64() >= Some(1.0));
            if let Some(command) = t.get("command") {
                prop_assert!(!command["program"].as_str().unwrap().is_empty());
                let arguments = command.get("arguments").and_then(|a| a.as_array());
                prop_assert!(arguments.is_none_or(|a| a.iter().all(|a| !a.as_str().unwrap().is_empty())));
            }
        }
    }

    #[test]
    fn any_workflow_has_stages_in_layers_and_a_drawing(w in any_workflow()) {
        let stages = stages(&w);
        prop_assert_eq!(stages.stages.iter().map(|s| s.tasks.len()).sum::<usize>(), w.tasks.len());
        for e in stages.edges.iter().filter(|e| e.from != e.to) {
            prop_assert!(stages.stages[e.from].layer < stages.stages[e.to].layer);
        }
        let drawing = svg(&w, &stages).unwrap();
        roxmltree::Document::parse(&drawing).unwrap();
    }
}

#[test]
fn the_stages_of_montage() {
    let w = read(&data("montage-58.json"), Format::WfFormat).unwrap();
    let stages = stages(&w);
    let found: Vec<(&str, usize)> = stages.stages.iter().map(|s| (s.name.as_str(), s.tasks.len())).collect();
    assert_eq!(found[0], ("mProject", 12), "{found:?}");
    let edge = |from: &str, to: &str| {
        let e = stages
            .edges
            .iter()
            .find(|e| stages.stages[e.from].name == from && stages.stages[e.to].name == to);
        e.unwrap_or_else(|| panic!("{from} to {to}"))
    };
    assert_eq!(edge("mDiffFit", "mConcatFit").pattern, Pattern::Gather);
    assert_eq!(edge("mConcatFit", "mBgModel").pattern, Pattern::Pipeline);
    assert_eq!(edge("mBgModel", "mBackground").pattern, Pattern::Multicast);
    assert_eq!(edge("mProject", "mBackground").pattern, Pattern::Pipeline);
    let drawing = svg(&w, &stages).unwrap();
    let document = roxmltree::Document::parse(&drawing).unwrap();
    let n = document.descendants().filter(|n| n.tag_name().name() == "circle").count();
    assert_eq!(n, 58, "a dot for each task");
}

#[test]
fn patterns_by_their_figures() {
    for (n_files, n_reads, n_writers, n_readers, expect) in [
        (0, 0, 0, 0, Pattern::Order),
        (1, 1, 1, 1, Pattern::Pipeline),
        (9, 9, 9, 9, Pattern::Pipeline),
        (1, 9, 1, 9, Pattern::Multicast),
        (2, 18, 2, 9, Pattern::Multicast),
        (9, 9, 1, 9, Pattern::Scatter),
        (9, 9, 9, 1, Pattern::Gather),
        (9, 9, 9, 3, Pattern::Gather),
        (18, 18, 9, 3, Pattern::Gather),
        (9, 9, 1, 1, Pattern::Pipeline),
        (18, 18, 9, 9, Pattern::Pipeline),
        (9, 14, 9, 7, Pattern::Exchange),
        (4, 24, 4, 12, Pattern::Multicast),
    ] {
        let flow = Flow { n_files, bytes: 0, n_reads, n_writers, n_readers };
        assert_eq!(pattern(&flow, false), expect, "{flow:?}");
    }
    let tree = Flow { n_files: 8, bytes: 0, n_reads: 8, n_writers: 8, n_readers: 4 };
    assert_eq!(pattern(&tree, true), Pattern::Reduce);
}

#[test]
fn stages_that_wait_for_each_other_are_taken_apart() {
    let makeflow = "1: in\n\tsplit in\n2: 1\n\tmerge 1\n3: 2\n\tsplit 2\n4: 3\n\tmerge 3\n5: 4\n\tmerge 4\n";
    let w = parse(Format::Makeflow, makeflow, "w", None).unwrap();
    let names: Vec<String> = stages(&w).stages.into_iter().map(|s| s.name).collect();
    assert_eq!(
        names,
        ["split (level 1)", "merge (level 2)", "split (level 3)", "merge (level 4)", "merge (level 5)"]
    );
}

#[test]
fn a_hundred_thousand_tasks_are_read_and_made_a_list() {
    // 100,000 tasks on one input, and one task that reads the outputs of all of them.
    let n = 100_000;
    let mut tasks: Vec<String> = (0..n)
        .map(|i| format!(r#"{{"name":"a","id":"a{i}","parents":[],"children":["z"],"inputFiles":["in"],"outputFiles":["o{i}"]}}"#))
        .collect();
    let all: Vec<String> = (0..n).map(|i| format!("\"o{i}\"")).collect();
    let all = all.join(",");
    tasks.push(format!(
        r#"{{"name":"z","id":"z","parents":[],"children":[],"inputFiles":[{all}],"outputFiles":["end"]}}"#
    ));
    let tasks = tasks.join(",");
    let text = format!(
        r#"{{"name":"big","schemaVersion":"1.5","workflow":{{"specification":{{"tasks":[{tasks}],"files":[]}}}}}}"#
    );
    let w = parse(Format::WfFormat, &text, "w", None).unwrap();
    assert_eq!(w.tasks.len(), n + 1);
    let options = Options { check_inputs: false, stand_ins: true, ..Options::beside(Path::new("w.json")) };
    assert_eq!(to_list(&w, &options).unwrap().n_dependencies, n as u64);
    let edge = &stages(&w).edges[0];
    assert_eq!((edge.pattern, edge.flow.n_files), (Pattern::Gather, n as u64));
}
