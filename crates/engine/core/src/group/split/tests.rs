use super::*;
use eyas_terms::array::{Command, TaskForm};
use eyas_terms::location::Location;
use eyas_terms::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

fn literal(text: &str) -> Piece {
    Piece::Literal(text.into())
}

fn template(inputs: Vec<Pattern>, outputs: Vec<Pattern>) -> TaskForm<Pattern> {
    let named = |list: Vec<Pattern>| {
        (0..).zip(list).map(|(n, l): (u32, _)| (Pattern::literal(format!("f{n}")), l)).collect()
    };
    TaskForm {
        inputs: named(inputs),
        outputs: named(outputs),
        ..TaskForm::new(
            Pattern(vec![literal("t"), Piece::Index]),
            Command::Exec(vec![Pattern::literal("true")]),
        )
    }
}

fn numbered(n_tasks: u32, inputs: Vec<Pattern>, outputs: Vec<Pattern>) -> TaskArray {
    TaskArray { n_tasks, first_index: 0, template: template(inputs, outputs), columns: vec![], needs: None }
}

fn by_index(prefix: &str) -> Pattern {
    Pattern(vec![literal(prefix), Piece::Index])
}

fn single(id: &str, inputs: &[String], outputs: &[String]) -> TaskArray {
    let patterns = |list: &[String]| list.iter().map(Pattern::literal).collect();
    let mut array = numbered(1, patterns(inputs), patterns(outputs));
    array.template.id = Pattern::literal(id);
    array
}

fn tasks_of(part: &Part) -> Vec<eyas_terms::array::TaskSpec> {
    part.arrays.iter().flat_map(|a| (0..a.n_tasks).map(|i| a.expand(i))).collect()
}

#[test]
fn a_range_without_files_is_cut_and_costs_nothing_per_task() {
    let parts = split(&[numbered(10_000_001, vec![], vec![])], 4).unwrap();
    let n: Vec<u32> = parts.iter().map(|p| p.arrays.iter().map(|a| a.n_tasks).sum()).collect();
    assert_eq!(n.iter().sum::<u32>(), 10_000_001);
    assert!(n.iter().all(|n| n.abs_diff(2_500_000) <= 1), "{n:?}");
    assert!(parts.iter().all(|p| p.arrays.len() == 1 && p.arrays[0].columns.is_empty()));
}

#[test]
fn tasks_that_read_one_file_meet_and_a_common_script_is_no_key() {
    let mut column = Column::default();
    for i in 0..1000 {
        assert!(column.push(&format!("tile/{}", i % 100)));
    }
    let script = Pattern::literal("cut.py");
    let mut array = numbered(1000, vec![script, Pattern::column(0)], vec![by_index("out/")]);
    array.columns.push(column);
    let parts = split(&[array], 3).unwrap();
    let mut at: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (member, part) in parts.iter().enumerate() {
        assert!((250..450).contains(&tasks_of(part).len()), "{}", tasks_of(part).len());
        for task in tasks_of(part) {
            at.entry(task.inputs[1].1.clone()).or_default().insert(member);
            // The number stays the task's own.
            assert_eq!(task.id[1..], task.outputs[0].1["out/".len()..]);
        }
    }
    assert!(at.values().all(|members| members.len() == 1));
}

#[test]
fn two_writers_of_one_file_are_refused_wherever_they_are() {
    let (x, y, z) = ("run:x".to_string(), "run:y".to_string(), "run:z".to_string());
    let a = single("a", &[], &[x.clone(), y.clone()]);
    let b = single("b", &[], &[z, y.clone()]);
    let refusal = split(&[a, b], 2).unwrap_err();
    assert!(refusal.starts_with("tasks `a` and `b` both write `run:y`"), "{refusal}");
    let home = |id: &str| single(id, &[], &["/out/1".into()]);
    assert!(split(&[home("a"), home("b")], 2).is_err());
}

/// Over random workflows: every task is in one part, unchanged; and every reader finds its maker by the rule of names
/// and its part's links.
#[test]
fn parts_hold_every_task_once_and_readers_find_their_makers() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let n_members = 1 + rng.below(5) as u32;
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for t in 0..rng.below(60) {
            let mut inputs: Vec<String> = vec![];
            for _ in 0..rng.below(4) {
                inputs.push(match made.len() as u64 {
                    0 => format!("/in/{}", rng.below(9)),
                    n => made[rng.below(n) as usize].clone(),
                });
            }
            let outputs: Vec<String> = (0..rng.below(4))
                .map(|o| format!("{}{t}.{o}", if rng.below(3) == 0 { "/out/" } else { "run:" }))
                .collect();
            made.extend(outputs.iter().cloned());
            arrays.push(single(&format!("s{t}"), &inputs, &outputs));
        }
        arrays.push(numbered(1 + rng.below(50) as u32, vec![], vec![by_index("run:n")]));
        arrays.push(numbered(1 + rng.below(50) as u32, vec![by_index("run:n")], vec![]));
        arrays.last_mut().unwrap().template.id = by_index("r");
        let parts = split(&arrays, n_members).unwrap();
        assert_eq!(parts.len(), n_members as usize);
        let whole = Part { arrays, ..Part::default() };
        let mut all: BTreeMap<String, _> = tasks_of(&whole).into_iter().map(|t| (t.id.clone(), t)).collect();
        let mut makers: BTreeMap<String, MemberId> = BTreeMap::new();
        for (part, member) in parts.iter().zip(0..) {
            for array in &part.arrays {
                array.check().unwrap();
            }
            for task in tasks_of(part) {
                assert_eq!(all.remove(&task.id), Some(task.clone()), "seed {seed}");
                makers.extend(task.outputs.iter().map(|(_, l)| (l.clone(), MemberId(member))));
            }
        }
        assert!(all.is_empty(), "seed {seed}: {all:?}");
        for (part, member) in parts.iter().zip((0..).map(MemberId)) {
            for location in tasks_of(part).iter().flat_map(|t| &t.inputs).map(|(_, l)| l) {
                let Some(maker) = makers.get(location).filter(|m| **m != member) else { continue };
                let named = part.links.imports.iter().find(|(l, _)| l == location).map(|(_, m)| *m);
                let stays = Location::of(location).stays();
                let found = named.or(stays.then(|| owner_of(location, n_members)));
                assert_eq!(found, Some(*maker), "seed {seed}: {location}");
                assert!(stays || parts[maker.0 as usize].links.exports.contains(location));
            }
        }
    }
}

/// One task splits a file for sixteen that search it for one query, and one merges what they found.
fn blast() -> Vec<TaskArray> {
    let file = |kind: &str, i: u32| format!("run:{kind}{i}");
    let all = |kind: &str| (0..16).map(|i| file(kind, i)).collect::<Vec<_>>();
    let mut tasks = vec![
        single("split", &[], &all("part")),
        single("query", &[], &["run:query".into()]),
        single("merge", &all("found"), &["merged".into()]),
    ];
    tasks.iter_mut().for_each(|task| task.template.label = task.fill(&task.template.id, 0));
    for i in 0..16 {
        let mut search =
            single(&format!("s{i}"), &[file("part", i), "run:query".into()], &[file("found", i)]);
        search.template.label = "search".into();
        tasks.push(search);
    }
    tasks
}

#[test]
fn each_part_is_told_the_patterns_of_the_whole() {
    let arrays = blast();
    let parts = split(&arrays, 4).unwrap();
    let sentences: Vec<String> = parts[0].patterns.found.iter().map(ToString::to_string).collect();
    let expect = [
        "gather: a task of stage merge reads 16 files of stage search (threshold 8)",
        "multicast: up to 16 tasks of stage search read the same file of stage query (threshold 4)",
        "scatter: a task of stage split writes 16 files, read by 16 tasks of stage search (threshold 8)",
    ];
    assert_eq!(sentences.into_iter().collect::<BTreeSet<_>>(), expect.map(String::from).into());
    for (part, member) in parts.iter().zip(0..) {
        assert_eq!(part.patterns.found, parts[0].patterns.found);
        // Named are the files that its own tasks write or read and that others have to do with, too.
        let tasks = tasks_of(part);
        let named =
            |l: &String| tasks.iter().any(|t| t.inputs.iter().chain(&t.outputs).any(|(_, of)| of == l));
        assert!(part.patterns.multicast.iter().chain(&part.patterns.parts).all(named));
        let searches = tasks.iter().any(|t| t.id.starts_with('s') && t.id != "split");
        let makes = owner_of("run:query", 4).0 == member;
        assert_eq!(part.patterns.multicast == ["run:query"], searches || makes, "{member}");
    }
    let n_parts: usize = parts.iter().map(|p| p.patterns.parts.len()).sum();
    assert!(
        (16..=32).contains(&n_parts),
        "{n_parts}: with the maker and with the reader, where that is another"
    );
    assert_eq!(split(&arrays, 1).unwrap()[0].patterns, RunPatterns::default(), "one part shows all itself");
    let plain = split(&[numbered(100, vec![by_index("in/")], vec![])], 4).unwrap();
    assert!(plain.iter().all(|p| p.patterns == RunPatterns::default()));
}

#[test]
fn what_is_added_gathers_what_was_there() {
    let files: Vec<String> = (0..9).map(|i| format!("run:old{i}")).collect();
    let mut known = vec![KnownFiles::default(), KnownFiles::default()];
    known[1].makes.extend(files.iter().cloned());
    let mut view = single("view", &files, &["out".into()]);
    view.template.label = "view".into();
    let parts = split_addition(&[view], &known).unwrap();
    let found: Vec<String> = parts[0].patterns.found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["gather: a task of stage view reads 9 files of stage (other tasks) (threshold 8)"]);
}
