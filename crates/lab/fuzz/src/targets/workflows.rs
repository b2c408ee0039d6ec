//! Workflow files of each format: what is read has stages, a drawing, a WfFormat that reads as the same, and a list.

use crate::{Rng, Target};
use eyas_workflow::{Format, Options, Workflow, detect, parse, stages, svg, to_list, wfformat};
use std::fmt::Write;
use std::path::Path;

pub struct Workflows {
    name: &'static str,
    format: Format,
    make: fn(&mut Rng) -> String,
    words: &'static [&'static str],
}

impl Workflows {
    pub fn wfformat() -> Workflows {
        Workflows { name: "wfformat", format: Format::WfFormat, make: make_wfformat, words: &WFFORMAT }
    }
    pub fn pegasus() -> Workflows {
        Workflows { name: "pegasus", format: Format::Pegasus, make: make_pegasus, words: &PEGASUS }
    }
    pub fn dax() -> Workflows {
        Workflows { name: "dax", format: Format::Dax, make: make_dax, words: &DAX }
    }
    pub fn makeflow() -> Workflows {
        Workflows { name: "makeflow", format: Format::Makeflow, make: make_makeflow, words: &MAKEFLOW }
    }
    pub fn jx() -> Workflows {
        Workflows { name: "jx", format: Format::Jx, make: make_jx, words: &JX }
    }
    pub fn swift() -> Workflows {
        Workflows { name: "swift", format: Format::Swift, make: make_swift, words: &SWIFT }
    }
}

impl Target for Workflows {
    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.one_in(BIG_ONE_IN) {
            true => big(self.format, rng).into_bytes(),
            false => (self.make)(rng).into_bytes(),
        }
    }

    fn words(&self) -> &'static [&'static str] {
        self.words
    }

    fn is_json(&self) -> bool {
        self.format == Format::WfFormat
    }

    fn run(&mut self, bytes: &[u8]) {
        let _ = detect(Path::new("w"), bytes);
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        match parse(self.format, text, "w", None) {
            // A comprehension of a few words may be a million tasks, of which several forms at once are much.
            Ok(workflow) if workflow.tasks.len() > TASKS_LOOKED_AT_MAX => {}
            Ok(workflow) => check(&workflow),
            Err(error) => super::texts::check_message(&error.to_string()),
        }
    }
}

/// Larger workflows are only read.
const TASKS_LOOKED_AT_MAX: usize = 20_000;

const WRITTEN_AT: &str = "2026-11-22T00:00:00Z";

fn check(workflow: &Workflow) {
    let stages = stages(workflow);
    match svg(workflow, &stages) {
        Ok(drawing) => {
            let options = roxmltree::ParsingOptions { nodes_limit: u32::MAX, ..Default::default() };
            if let Err(e) = roxmltree::Document::parse_with_options(&drawing, options) {
                panic!("the drawing is no XML: {e}");
            }
            assert!(!drawing.chars().any(|c| eyas_text::is_unsafe(c) && c != '\n'), "the drawing is unsafe");
        }
        Err(error) => super::texts::check_message(&error.to_string()),
    }

    let mut written = vec![];
    wfformat::write(workflow, WRITTEN_AT, &mut written).expect("memory takes it");
    let written = String::from_utf8(written).expect("JSON is UTF-8");
    let mut workflow = workflow.clone();
    // The schema wants a time; where none is known, that of writing stands for it.
    if let Some(run) = workflow.run.as_mut().filter(|run| run.executed_at.is_empty()) {
        run.executed_at = WRITTEN_AT.into();
    }
    let workflow = &workflow;
    match parse(Format::WfFormat, &written, "w", None) {
        Ok(again) if again != *workflow => {
            let (one, other) = (format!("{workflow:?}"), format!("{again:?}"));
            let n = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            let from = (0..=n.saturating_sub(60)).rev().find(|i| one.is_char_boundary(*i)).unwrap_or(0);
            let part = |text: &str| text.get(from..).unwrap_or("").chars().take(200).collect::<String>();
            panic!("WfFormat out and in gives another workflow: {}, then {}", part(&one), part(&other));
        }
        Ok(_) => {}
        // A script may only compute and print; WfFormat has no workflow without tasks, and says so.
        Err(e) if workflow.tasks.is_empty() => assert!(e.to_string().contains("no tasks"), "{e}"),
        Err(e) => panic!("WfFormat of it cannot be read: {e}"),
    }

    let options = Options { check_inputs: false, ..Options::beside(Path::new("/d/w")) };
    for stand_ins in [false, true] {
        match to_list(workflow, &Options { stand_ins, ..options.clone() }) {
            Ok(list) => {
                assert_eq!(list.n_tasks as usize, workflow.tasks.len());
                super::texts::check_list(&list);
            }
            Err(error) => super::texts::check_message(&error.to_string()),
        }
    }
}

// ---------------------------------------------------------------- generators

/// One of so many workflows is large in one direction, to find what takes longer than its size explains.
const BIG_ONE_IN: usize = 400;

/// Many of one thing: tasks in a chain, in layers, with all earlier ones as parents, files of one task, kinds of tasks,
/// files that all tasks read.
fn big(format: Format, rng: &mut Rng) -> String {
    let shape = rng.below(6);
    let n = match shape {
        2 => 50 + rng.below(250),
        _ => 500 + rng.below(4000),
    };
    let stage = |i: usize| if shape == 4 { format!("s{i}") } else { "s".to_owned() };
    // Of task `i`: parents, inputs, outputs.
    let of = |i: usize| -> (Vec<usize>, Vec<String>, Vec<String>) {
        let file = |k: usize| format!("d/f{k}");
        match shape {
            0 => (vec![], i.checked_sub(1).map(file).into_iter().collect(), vec![file(i)]),
            1 => ((i.saturating_sub(12)..i - i % 12).collect(), vec![], vec![file(i)]),
            2 => ((0..i).collect(), vec![], vec![]),
            3 if i == 0 => (vec![], (0..n).map(|k| format!("in{k}")).collect(), (0..n).map(file).collect()),
            3 => (vec![], vec![], vec![format!("o{i}")]),
            4 => (vec![], vec![file(i / 2)], vec![file(i + n)]),
            _ => (
                vec![i / 3].into_iter().filter(|p| *p != i).collect(),
                vec!["all".into()],
                vec![format!("{i}/same")],
            ),
        }
    };
    let n_tasks = if shape == 3 { 3 } else { n };
    let mut text = String::new();
    match format {
        Format::Dax => {
            text.push_str("<adag>");
            for i in 0..n_tasks {
                let (_, inputs, outputs) = of(i);
                let _ = write!(text, "<job id='j{i}' name='{}'>", stage(i));
                inputs.iter().for_each(|f| _ = write!(text, "<uses name='{f}' link='input'/>"));
                outputs.iter().for_each(|f| _ = write!(text, "<uses name='{f}' link='output'/>"));
                text.push_str("</job>\n");
            }
            for i in 0..n_tasks {
                for p in of(i).0 {
                    let _ = write!(text, "<child ref='j{i}'><parent ref='j{p}'/></child>");
                }
            }
            text.push_str("</adag>\n");
        }
        Format::Pegasus => {
            text.push_str("pegasus: '5.0'\njobs:\n");
            for i in 0..n_tasks {
                let (_, inputs, outputs) = of(i);
                let _ = write!(text, "- id: j{i}\n  name: {}\n  uses:\n", stage(i));
                inputs.iter().for_each(|f| _ = writeln!(text, "  - {{lfn: {f}, type: input}}"));
                outputs.iter().for_each(|f| _ = writeln!(text, "  - {{lfn: {f}, type: output}}"));
            }
            text.push_str("jobDependencies:\n");
            for i in 0..n_tasks {
                for p in of(i).0 {
                    let _ = writeln!(text, "- {{id: j{p}, children: [j{i}]}}");
                }
            }
        }
        Format::Makeflow => {
            for i in 0..n_tasks {
                let (_, inputs, outputs) = of(i);
                let _ = write!(
                    text,
                    "CATEGORY={}\no{i} {}: {}\n\ttrue\n",
                    stage(i),
                    outputs.join(" "),
                    inputs.join(" ")
                );
            }
        }
        Format::Jx => {
            text.push_str("{\"rules\": [");
            for i in 0..n_tasks {
                let (_, inputs, outputs) = of(i);
                let rule = serde_json::json!({"command": "true", "category": stage(i), "inputs": inputs, "outputs": outputs});
                let _ = writeln!(text, "{rule},");
            }
            text.push_str("]}");
        }
        Format::Swift => {
            for i in 0..n_tasks {
                let (_, inputs, outputs) = of(i);
                let of = |names: &[String]| {
                    (0..names.len()).map(|k| format!("file f{k}")).collect::<Vec<_>>().join(", ")
                };
                let _ = writeln!(text, "app ({}) a{i}({}) {{ true; }}", of(&outputs), of(&inputs));
                let named = |names: &[String]| {
                    names.iter().map(|name| name.replace('/', "_")).collect::<Vec<_>>().join(", ")
                };
                for name in &outputs {
                    let _ = writeln!(text, "file {} <\"{name}\">;", named(std::slice::from_ref(name)));
                }
                match outputs.is_empty() {
                    true => drop(writeln!(text, "a{i}({});", named(&inputs))),
                    false => drop(writeln!(text, "({}) = a{i}({});", named(&outputs), named(&inputs))),
                }
            }
        }
        _ => {
            let tasks: Vec<_> = (0..n_tasks)
                .map(|i| {
                    let (parents, inputs, outputs) = of(i);
                    let parents: Vec<String> = parents.iter().map(|p| format!("t{p}")).collect();
                    serde_json::json!({"name": stage(i), "id": format!("t{i}"), "parents": parents, "children": [],
                        "inputFiles": inputs, "outputFiles": outputs})
                })
                .collect();
            text = serde_json::json!({"name": "w", "schemaVersion": "1.5",
                "workflow": {"specification": {"tasks": tasks, "files": []}}})
            .to_string();
        }
    }
    text
}

fn make_wfformat(rng: &mut Rng) -> String {
    let n = 1 + rng.below(5);
    let id = |rng: &mut Rng| format!("t{}", rng.below(n));
    if rng.one_in(3) {
        // 1.0 to 1.4: files in the tasks.
        let tasks: Vec<_> = (0..n)
            .map(|i| {
                let files: Vec<_> = (0..rng.below(4))
                    .map(|_| {
                        serde_json::json!({"name": rng.name(), "link": rng.pick(&["input", "output"]), "size": rng.number(), "sizeInBytes": 7})
                    })
                    .collect();
                serde_json::json!({"name": format!("t{i}"), "id": format!("i{i}"), "category": "c", "parents": [id(rng)],
                    "children": [], "files": files, "runtime": 1.5, "cores": rng.number(), "command": {"program": "p", "arguments": [rng.name()]}})
            })
            .collect();
        let key = *rng.pick(&["tasks", "jobs"]);
        return serde_json::json!({"name": "w", "schemaVersion": "1.3", "workflow": {key: tasks}})
            .to_string();
    }
    let files: Vec<_> = (0..6)
        .map(|i| serde_json::json!({"id": format!("f{i}"), "sizeInBytes": rng.number(), "eyas": {"location": rng.name()}}))
        .collect();
    let tasks: Vec<_> = (0..n)
        .map(|i| {
            let uses = |rng: &mut Rng| (0..rng.below(3)).map(|_| format!("f{}", rng.below(6))).collect::<Vec<_>>();
            let (inputs, outputs) = (uses(rng), uses(rng));
            serde_json::json!({"name": "s", "id": format!("t{i}"), "parents": [id(rng)], "children": [], "inputFiles": inputs,
                "outputFiles": outputs, "eyas": {"input_names": [[0, rng.name()]], "optional_inputs": [rng.below(3)]}})
        })
        .collect();
    let done: Vec<_> = (0..n)
        .map(|i| {
            serde_json::json!({"id": format!("t{i}"), "runtimeInSeconds": 0.25, "coreCount": 1, "priority": 3, "avgCPU": 99.0,
                "memoryInBytes": rng.number(), "command": {"program": "/bin/sh", "arguments": ["-c", rng.name()]}, "machines": ["m"]})
        })
        .collect();
    serde_json::json!({"name": rng.name(), "schemaVersion": "1.5", "workflow": {
        "specification": {"tasks": tasks, "files": files},
        "execution": {"makespanInSeconds": 2.5, "executedAt": "2026-01-01T00:00:00Z", "tasks": done,
            "machines": [{"nodeName": "m", "cpu": {"coreCount": 4}}]}}})
    .to_string()
}

const WFFORMAT: [&str; 6] = [
    "\"eyas\":{\"command\":{\"Exec\":[\"a\"]}}",
    "\"promises\":[\"run:x\"]",
    "\"dynamic\":true",
    "1e400",
    "null",
    "\"\\ud800\"",
];

fn make_pegasus(rng: &mut Rng) -> String {
    let mut text = String::from("pegasus: '5.0.4'\nname: w\n");
    if rng.one_in(2) {
        let _ = write!(
            text,
            "replicaCatalog:\n  replicas:\n  - lfn: {}\n    pfns: [{{site: local, pfn: /p/{}}}]\n",
            rng.name(),
            rng.below(9)
        );
        if rng.one_in(2) {
            let _ = writeln!(
                text,
                "  - {{lfn: '{}', regex: true, pfns: [{{site: local, pfn: '/p/{}'}}]}}",
                rng.pick(&["([0-9])", ".*", "(a?){99}", "[0-5](x|y)*"]),
                rng.pick(&["[0]", "[1][1][0]", "[9]/[", "x"])
            );
        }
    }
    if rng.one_in(2) {
        text.push_str("transformationCatalog:\n  transformations:\n  - name: p0\n    sites:\n    - {name: l, pfn: /bin/p, type: stageable}\n");
    }
    text.push_str("jobs:\n");
    let n = 1 + rng.below(4);
    for i in 0..n {
        let _ = write!(
            text,
            "- type: job\n  id: j{i}\n  name: p{}\n  arguments: [-x, {}, 'a b']\n  uses:\n",
            rng.below(2),
            rng.below(9)
        );
        for _ in 0..rng.below(4) {
            let kind = *rng.pick(&["input", "output", "executable"]);
            let _ = writeln!(
                text,
                "  - {{lfn: {}, type: {kind}, stageOut: true, size: {}}}",
                rng.below(6),
                rng.number()
            );
        }
        if rng.one_in(3) {
            text.push_str("  stdout: out.txt\n  profiles:\n    env: {A: b}\n    pegasus: {cores: 2, memory: '100', runtime: 3}\n");
        }
    }
    if n > 1 {
        let _ = write!(text, "jobDependencies:\n- id: j{}\n  children: [j{}]\n", rng.below(n), rng.below(n));
    }
    text
}

const PEGASUS: [&str; 12] = [
    "&a ",
    "*a",
    "<<: *a",
    "- ",
    ": ",
    "!!str ",
    "|\n",
    ">-\n  ",
    "? ",
    "---\n",
    "type: pegasusWorkflow",
    "{}",
];

fn make_dax(rng: &mut Rng) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n");
    if rng.one_in(6) {
        text.push_str("<!DOCTYPE adag SYSTEM \"d.dtd\" [<!ELEMENT a ANY>]>\n");
    }
    let _ = writeln!(text, "<adag version=\"{}.1\" name=\"w\">", 2 + rng.below(2));
    if rng.one_in(2) {
        let _ = writeln!(
            text,
            "<file name=\"f{}\"><pfn url=\"file:///x/{}\" site=\"l\"/></file>",
            rng.below(6),
            rng.below(9)
        );
        text.push_str("<executable name=\"p0\" installed=\"false\"><pfn url=\"/bin/p\"/></executable>\n");
    }
    let n = 1 + rng.below(4);
    for i in 0..n {
        let _ = writeln!(
            text,
            "<job id=\"j{i}\" name=\"p{}\" runtime=\"{}.5\"><argument>-x <file name=\"f{}\"/> 'q'</argument>",
            rng.below(2),
            rng.below(9),
            rng.below(6)
        );
        for _ in 0..rng.below(4) {
            let link = *rng.pick(&["input", "output", "inout"]);
            let _ = writeln!(
                text,
                "<uses name=\"f{}\" link=\"{link}\" size=\"{}\" transfer=\"true\"/>",
                rng.below(6),
                rng.number()
            );
        }
        text.push_str("<profile namespace=\"env\" key=\"A\">b</profile><stdout name=\"o\"/></job>\n");
    }
    let _ = write!(
        text,
        "<child ref=\"j{}\"><parent ref=\"j{}\"/></child>\n</adag>\n",
        rng.below(n),
        rng.below(n)
    );
    text
}

const DAX: [&str; 12] = [
    "<job id='x' name='y'/>",
    "<!ENTITY a \"b\">",
    "&lt;",
    "&a;",
    "&#0;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "xmlns:a=\"b\"",
    "<?x?>",
    "<dax id='i'/>",
];

fn make_makeflow(rng: &mut Rng) -> String {
    let mut text = String::new();
    for i in 0..rng.below(4) {
        let _ = match rng.below(7) {
            0 => writeln!(text, "V{i}+=$(V{})x", rng.below(3)),
            1 => writeln!(text, "export V{i}"),
            2 => writeln!(text, "CATEGORY=c{i}"),
            3 => writeln!(text, ".SIZE f{} {}M", rng.below(6), rng.below(99)),
            4 => writeln!(text, "V{i}=\\$(V{})", rng.below(3)),
            5 => writeln!(text, "MAKEFLOW_OUTPUTS=f{}", rng.below(6)),
            _ => writeln!(text, "V{i}=\"a b\" 'c$(V9)' # note"),
        };
    }
    for i in 0..1 + rng.below(4) {
        let arrow = if rng.one_in(4) { "->n" } else { "" };
        let _ = write!(
            text,
            "o{i}{arrow}: f{} \\\n  {}\n",
            rng.below(6),
            rng.pick(&["", "o0", "/abs", "d/", "$(V0)"])
        );
        if rng.one_in(3) {
            let _ = writeln!(text, "@CORES={}", rng.below(9));
        }
        let _ = writeln!(text, "\t{}cat f$(V0) > o{i}", rng.pick(&["", "LOCAL ", "MAKEFLOW ", "A=b "]));
    }
    text
}

const MAKEFLOW: [&str; 14] = [
    "V0=x\n",
    "$(V0)",
    "${V1}",
    "$(V2)$(V2)$(V2)",
    "\\$",
    "\\\n",
    "->",
    "'",
    "\"",
    "export ",
    "CORES=1e9\n",
    "\t",
    "+=",
    ".MAKEFLOW CATEGORY x\n",
];

fn make_jx(rng: &mut Rng) -> String {
    let mut text = String::from("{\"define\": {\"N\": 3, \"V0\": [1, 2]");
    for i in 1..rng.below(5) {
        let _ = write!(
            text,
            ", \"V{i}\": {}",
            rng.pick(&[
                "V0 + V0",
                "[V0, V0]",
                "N * 2",
                "\"x\" + N",
                "{\"k\": V0}",
                "[x * y for x in V0 for y in range(N) if x != y]",
                "{\"k\": V0}[\"k\"][-1]",
                "[{\"n\": x, \"all\": V0} for x in range(N)]",
                "format(\"%03d.%s\", N, \"x\")",
                "join([\"a\", \"b\"], \",\")",
                "len(V0) + ceil(1.5) - floor(N / 2)",
                "N > 2 and not (N == 4)",
                "range(2, 2 * N, 2)",
                "template(\"{N}-{A}\", {\"A\": V0})",
                "(V0 + [N])[1:]",
                "like(\"a.c\", \"a.*\")",
                "basename(\"/d/x.txt\", \".txt\")",
                "keys({\"b\": 1, \"a\": 2})",
                "select([1, 2, 3], N > 2)",
                "project([{\"k\": 1}], k)"
            ])
        );
    }
    text.push_str("},\n\"rules\": [\n");
    for i in 0..1 + rng.below(3) {
        let name = format!("\"o{i}.\" + x");
        let _ = writeln!(
            text,
            "{{\"command\": {}{name}, \"inputs\": [{}], \"outputs\": [{name}], \"environment\": {{\"A\": N}}{}}} for x in {},",
            rng.pick(&[
                "\"cp \" + ",
                "format(\"cp %s > \", V0[0]) + ",
                "template(\"cp {N} \") + ",
                "\"a\" * 0 + "
            ]),
            rng.pick(&[
                "\"f\"",
                "{\"dag_name\": \"f\", \"task_name\": \"g\"}",
                "template(\"f{N}\")",
                "f for f in [\"a\", \"b\"]",
                "\"o0.\" + (x - 1)",
                "\"f\" + y for y in V0 if y > 1"
            ]),
            rng.pick(&[
                "",
                ", \"category\": \"c\"",
                ", \"local_job\": true",
                ", \"resources\": {\"cores\": N, \"memory\": 100, \"wall-time\": 60}",
                ", \"workflow\": \"inner.jx\"",
                ", \"args\": {\"N\": x}"
            ]),
            rng.pick(&[
                "range(N)",
                "V0",
                "[1]",
                "range(2) if x > 0",
                "V0 for y in range(2)",
                "range(N, 0, -1)"
            ])
        );
    }
    text.push_str(
        "],\n\"categories\": {\"c\": {\"resources\": {\"cores\": 2}, \"environment\": {\"B\": V0[0]}}}, \"default_category\": \"c\"}\n",
    );
    text
}

const JX: [&str; 25] = [
    "V0",
    " + ",
    "[V3, V3]",
    " == ",
    "range(999999999)",
    "format(\"%s%05d\", 1, 2)",
    "join(V0)",
    "template(\"{N}\")",
    "like(\"a+\")",
    "like(\"(a*)*b\")",
    "like(V0, \"((a?){90}){90}\")",
    "join([V0 for i in range(99999)])",
    "{N}{N}{N}{N}",
    "%s%s%900s",
    " for y in range(9999)",
    "-",
    "not ",
    " for x in V0",
    " if x",
    "[0]",
    "[1:]",
    "len(",
    "escape(",
    "ceil(1.5)",
    "# note\n",
];

fn make_swift(rng: &mut Rng) -> String {
    let mut text = String::from(
        "type file; type p { int x; file f; }\napp (file o) cat(file i[]) { cat filenames(i) stdout=@o; }\napp (file o) make(int n, string s = \"d\") { make n s @o; }\n(int r) add(int a, int b) { r = a + b; }\nfile parts[]; p all[]; int n = 3; string s = \"x\";\n",
    );
    for i in 0..1 + rng.below(6) {
        let value = *rng.pick(&[
            "n * 2",
            "add(n, 1)",
            "toInt(\"7\")",
            "length([1, 2])",
            "all[1].x",
            "n %/ 2",
            "strstr(s, \"x\")",
            "-n",
        ]);
        let _ = match rng.below(9) {
            0 => writeln!(text, "int v{i} = {value};"),
            1 => writeln!(text, "foreach k, j in [0:{}] {{ parts[j + {i}] = make({value}); }}", rng.below(5)),
            2 => writeln!(
                text,
                "file f{i} <single_file_mapper; file=strcat(s, {value}, \".o\")> = cat(parts);"
            ),
            3 => writeln!(text, "if ({value} > n) {{ all[{i}].x = 1; }} else {{ all[{i}].x = {value}; }}"),
            4 => writeln!(text, "iterate k {{ int w = k + {value}; }} until (w > {i} || k > 4);"),
            5 => writeln!(
                text,
                "file g{i}[] <simple_mapper; prefix=\"g\", suffix=s>; g{i}[{value}] = make({i});"
            ),
            6 => writeln!(
                text,
                "string t{i}[] = strsplit(sprintf(\"%s-%i\", s, {value}), \"-\"); trace(t{i}[0]);"
            ),
            7 => {
                writeln!(text, "switch ({value}) {{ case 1: trace(1); default: tracef(\"%q\\n\", [1, n]); }}")
            }
            _ => writeln!(
                text,
                "file h{i} <regexp_mapper; source=s, match=\"(.)\", transform=\"\\\\1{i}\">; h{i} = parts[0];"
            ),
        };
    }
    text
}

const SWIFT: [&str; 24] = [
    "foreach v, k in parts { trace(@v); }\n",
    "int n = 4;\n",
    "parts[0] = make(1);\n",
    "parts = parts;\n",
    "all[0].f = parts[0];\n",
    "f() { f(); } f();\n",
    "iterate i { } until (false);\n",
    "[1:999999999]",
    "int[auto] a; a << 1; foreach v in a { a << v; }\n",
    "strcat(s, s, s, s)",
    "@regexp(s, \"(a*)*b\", \"$1\")",
    "<ext; exec=\"true\">",
    "<csv_mapper; file=\"x\">",
    "global ",
    "external e;\n",
    "import \"x\";\n",
    "%%",
    "<<",
    "all.x",
    "[*]",
    "\"\\",
    "/*",
    "9223372036854775807",
    "((((((((",
];
