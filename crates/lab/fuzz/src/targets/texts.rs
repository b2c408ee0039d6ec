//! Task lists, maps, and the words of the command line.

use crate::{Rng, Target};
use eyas_storage::Location;
use eyas_tasklist::{
    ListInput, MapSpec, ReadOptions, Source, Table, TaskList, map, read, read_commands, to_jsonl,
};
use std::io::Write;
use std::path::Path;

const BASE: &str = "/base";
/// Lists of more tasks are not looked at one by one.
const TASKS_LOOKED_AT_MAX: u64 = 20_000;

/// A message to people: not empty, not endless, and nothing in it that a terminal obeys.
pub fn check_message(message: &str) {
    assert!(!message.trim().is_empty(), "an empty message");
    assert!(message.len() < 20_000, "a message of {} bytes", message.len());
    let bad = message.chars().find(|c| eyas_text::is_unsafe(*c) && *c != '\n');
    assert!(bad.is_none(), "a message with {bad:?}: {message:?}");
}

/// A list reads as the same when it is written line by line. The same tasks may come in another order: those of one shape
/// gather in one array.
pub fn check_list(list: &TaskList) {
    if list.n_tasks > TASKS_LOOKED_AT_MAX {
        return;
    }
    let mut lines = vec![];
    let mut specs = vec![];
    for array in &list.arrays {
        for i in 0..array.n_tasks {
            lines.extend_from_slice(to_jsonl(array, i).as_bytes());
            lines.push(b'\n');
            specs.push(array.expand(i));
        }
    }
    match read(&lines[..], Path::new(BASE), &ReadOptions::default()) {
        Ok(again) => {
            let mut again: Vec<_> =
                again.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect();
            specs.sort_by(|a, b| a.id.cmp(&b.id));
            again.sort_by(|a, b| a.id.cmp(&b.id));
            if let Some((one, other)) = specs.iter().zip(&again).find(|(one, other)| one != other) {
                panic!("a task reads as another when it is written: {one:?}, then {other:?}");
            }
            assert_eq!(specs.len(), again.len(), "tasks are lost when they are written");
        }
        Err(e) => panic!("a list that is written cannot be read: {e}"),
    }
}

pub struct TaskLists;

impl Target for TaskLists {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let mut text = vec![];
        let n = 1 + rng.below(6);
        for i in 0..n {
            let mut task = serde_json::json!({});
            task["command"] = match rng.below(3) {
                0 => serde_json::json!(format!("echo {}", rng.name())),
                _ => serde_json::json!(["prog", rng.name()]),
            };
            if !rng.one_in(4) {
                task["id"] = format!("t{i}").into();
            }
            for (key, prefix) in [("inputs", "in"), ("outputs", "out")] {
                let location = |rng: &mut Rng| match rng.below(4) {
                    0 => format!("run:{}", rng.below(6)),
                    1 => rng.name(),
                    _ => format!("{prefix}/{i}.{}", rng.below(6)),
                };
                task[key] = match rng.below(3) {
                    0 => serde_json::json!((0..rng.below(4)).map(|_| location(rng)).collect::<Vec<_>>()),
                    1 => serde_json::json!({rng.name(): location(rng)}),
                    _ => continue,
                };
            }
            for key in ["cpus", "memory", "walltime", "retries", "priority", "reduce"] {
                if rng.one_in(8) {
                    task[key] = match rng.below(3) {
                        0 => serde_json::json!(rng.number()),
                        1 => serde_json::json!(*rng.pick(&["4GiB", "1.5h", "30 min", "x", ""])),
                        _ => serde_json::json!(2),
                    };
                }
            }
            if rng.one_in(8) {
                task["command"] = "cat {inputs} > s".into();
                task["inputs"] =
                    serde_json::json!((0..rng.below(40)).map(|k| format!("p{k}")).collect::<Vec<_>>());
                task["outputs"] = serde_json::json!([format!("s{i}")]);
                task["reduce"] = (2 + rng.below(4)).into();
            }
            if rng.one_in(8) {
                task["env"] = serde_json::json!({"A": rng.name()});
                task["dynamic"] = true.into();
                task["promises"] = serde_json::json!(["run:p"]);
                task["label"] = rng.name().into();
                task["hints"] = serde_json::json!({"multicast": true});
            }
            let _ = writeln!(text, "{task}");
        }
        text
    }

    fn words(&self) -> &'static [&'static str] {
        &[
            "\"reduce\":2",
            "\"hints\":{}",
            "\"promises\":[\"run:x\"]",
            "\"dynamic\":true",
            "\\u0000",
            "\\ud800",
            "\\n",
            "{inputs}",
            "\r\n",
            "1e400",
        ]
    }

    fn is_json(&self) -> bool {
        true
    }

    fn run(&mut self, bytes: &[u8]) {
        for is_addition in [false, true] {
            let options = ReadOptions { is_addition, id_prefix: "p.".into(), ..ReadOptions::default() };
            match read(bytes, Path::new(BASE), &options) {
                // What is added may read what others write, which a list of its own may not.
                Ok(list) if !is_addition => {
                    check_list(&list);
                    let workflow = (list.n_tasks > 0 && list.n_tasks <= TASKS_LOOKED_AT_MAX)
                        .then(|| eyas_workflow::from_arrays(&list.arrays, "w"));
                    if let Some(Err(error)) = workflow {
                        check_message(&error.to_string());
                    }
                }
                Ok(_) => {}
                Err(error) => check_message(&error.to_string()),
            }
        }
    }
}

/// `eyas map`: the first lines are its arguments, the others what it is given.
pub struct Maps;

impl Target for Maps {
    fn name(&self) -> &'static str {
        "map"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let outs =
            ["out/{name}", "o/{stem}.txt", "{index}", "x{index}/{name}", "{in}.out", "run:{index}", "fixed"];
        let words = [
            "{in}", "{out}", "{name}", "{{x}}", "{index}", "plain", "{out2}", "a b", "{}", "{/.}", "{2//}",
            "{e}", "{a}",
        ];
        let mut text = format!(
            "{}\n{}\n{} {}\n{}\n",
            rng.number(),
            rng.pick(&outs),
            rng.pick(&words),
            rng.pick(&words),
            rng.pick(&["", "lib.so", "run:x"])
        );
        for _ in 0..rng.below(8) {
            text.push_str(&rng.name());
            text.push(if rng.one_in(9) { '\0' } else { '\n' });
        }
        text.into_bytes()
    }

    fn words(&self) -> &'static [&'static str] {
        &[
            "{in}",
            "{in2}",
            "{out}",
            "{stem}",
            "{index}",
            "{",
            "}",
            "}}",
            "\u{1}",
            "%01",
            "http://h/",
            "{}",
            "{/}",
            "{.}",
            "{/.}",
            "{//}",
            "{1.}",
            "{2}",
            "{e/}",
            "{a}",
            "a,b\n",
            "\"\"",
            ",",
        ]
    }

    fn run(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.splitn(5, '\n');
        let mut line = || lines.next().unwrap_or("");
        let (number, out, command, with, names) = (line(), line(), line(), line(), line());
        let end = number.parse::<u64>().unwrap_or(3);
        let spec = MapSpec {
            out: vec![out.to_owned()],
            with: Some(with).filter(|w| !w.is_empty()).map(str::to_owned).into_iter().collect(),
            command: command.split(' ').map(str::to_owned).collect(),
            shell: end % 2 == 1,
            base_dir: BASE.into(),
            ..MapSpec::default()
        };
        let mut reader = names.as_bytes();
        let input = ListInput { reader: &mut reader, origin: "names", ends_in_nul: names.contains('\0') };
        let shell = MapSpec { command: vec![command.to_owned()], ..spec.clone() };
        let spec = if spec.shell { shell } else { spec };
        match map(&spec, Some(input)) {
            Ok(list) => check_list(&list),
            Err(error) => check_message(&error.to_string()),
        }
        let over_range = MapSpec { range: Some(end.saturating_sub(5)..end), ..spec.clone() };
        match map(&over_range, None) {
            Ok(list) => check_list(&list),
            Err(error) => check_message(&error.to_string()),
        }
        // The same text as a table, in combination with a parameter and with URLs, which need not be there.
        let table = match Table::read(names.as_bytes(), b',', "a table") {
            Ok(table) => table,
            Err(error) => return check_message(&error.to_string()),
        };
        let urls = |n: u64| (0..n).map(|i| format!("http://h/d{}/{i}.x", i % 2)).collect::<Vec<_>>();
        let files = table.columns.first().filter(|_| end % 3 == 0).cloned().into_iter().collect();
        let more = vec![
            Source::Files { paths: urls(2), is_linked: end % 5 == 0 },
            Source::Values { name: "e".into(), values: vec!["1".into(), with.to_owned()] },
            Source::Table { table, files },
        ];
        let combined = MapSpec { paths: urls(end % 3), with: vec![], more, ..spec };
        match map(&combined, None) {
            Ok(list) => check_list(&list),
            Err(error) => check_message(&error.to_string()),
        }
    }
}

/// Lists of commands.
pub struct Commands;

impl Target for Commands {
    fn name(&self) -> &'static str {
        "commands"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let mut text = vec![];
        for i in 0..1 + rng.below(6) {
            let _ = match rng.below(4) {
                0 => writeln!(text, "# {}", rng.name()),
                1 => writeln!(text, "echo {}", rng.name()),
                2 => writeln!(text, "A=1 cat {{in:{}}} > {{out:o/{i}}}", rng.name()),
                _ => writeln!(text, "sort {{in:o/{}}} {{in:a}} | tee {{out:{}}}", rng.below(6), rng.name()),
            };
        }
        text
    }

    fn words(&self) -> &'static [&'static str] {
        &[
            "{in:",
            "{out:",
            "}",
            "{in:a}",
            "{out:http://h/x}",
            "{in:run:x}",
            "\\\n",
            "\r\n",
            "#!",
            "#",
            "=",
            "{",
            "\t",
        ]
    }

    fn run(&mut self, bytes: &[u8]) {
        match read_commands(bytes, Path::new(BASE), &ReadOptions::default()) {
            Ok(list) => check_list(&list),
            Err(error) => check_message(&error.to_string()),
        }
    }
}

/// Sizes, times, places, and what is printed.
pub struct Words;

impl Target for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(4) {
            0 => format!(
                "{}{}",
                rng.number(),
                rng.pick(&["KiB", "MB", " GiB", "/s", "h", "ms", "d", "e9", ".5T"])
            ),
            1 => format!("http://user@[::{}]:{}/a/../{}?q#f", rng.below(9), rng.number(), rng.name()),
            2 => format!("file://{}/{}", rng.pick(&["", "localhost", "h"]), rng.name()),
            _ => rng.name(),
        }
        .into_bytes()
    }

    fn words(&self) -> &'static [&'static str] {
        &["\u{1b}[31m", "\u{1b}]0;", "\u{9b}", "\u{202e}", "%2f", "%", "..", "//", "e999", "-", "0x"]
    }

    fn run(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for error in [
            eyas_tasklist::parse_bytes(&text).err().map(|e| e.to_string()),
            eyas_tasklist::parse_duration(&text).err().map(|e| e.to_string()),
            eyas_tasklist::parse_rate(&text).err().map(|e| e.to_string()),
        ] {
            error.iter().for_each(|e| check_message(e));
        }
        match Location::parse(&text, Path::new(BASE)) {
            Ok(location) => {
                let again = Location::parse(&location.to_string(), Path::new("/other"));
                match again {
                    Ok(again) => assert_eq!(again, location, "a place reads as another"),
                    Err(e) => panic!("a place that is written cannot be read: {e}"),
                }
            }
            Err(error) => check_message(&error.to_string()),
        }
        let plain = eyas_text::line_of(&text).to_string();
        assert!(!plain.chars().any(eyas_text::is_unsafe));
        let name = eyas_text::shown_bytes(bytes).to_string();
        assert!(!name.chars().any(eyas_text::is_unsafe) && name.len() < 12 * 400);
    }
}
