//! The decision over a home that is a map, and memos that are written by hand.

use super::*;
use std::cell::RefCell;

fn digest(bytes: &str) -> Digest {
    Digest(*blake3::hash(bytes.as_bytes()).as_bytes())
}

/// A workflow, its home and what earlier runs left: each test changes one of the three.
struct World {
    lines: Vec<String>,
    home: FxHashMap<String, String>,
    memo: Memo,
    looked: RefCell<Vec<String>>,
}

/// `cat IN... > OUT`: what a task makes is made of its command, environment and inputs.
fn line(id: &str, command: &str, inputs: &[&str], outputs: &[&str]) -> String {
    let quoted = |list: &[&str]| list.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"id":"{id}","command":"{command}","inputs":[{}],"outputs":[{}],"label":"{id}"}}"#,
        quoted(inputs),
        quoted(outputs)
    )
}

impl World {
    /// a -> run:a.x -> b -> /h/b.y, and c from b.y: all of it done.
    fn done() -> World {
        let lines = vec![
            line("a", "make a", &["/h/raw", "/h/tool"], &["run:a.x"]),
            line("b", "make b", &["run:a.x"], &["/h/b.y"]),
            line("c", "make c", &["/h/b.y", "/h/tool"], &["/h/c.z"]),
        ];
        let mut world =
            World { lines, home: FxHashMap::default(), memo: Memo::default(), looked: RefCell::default() };
        for (at, bytes) in [("/h/raw", "raw"), ("/h/tool", "tool")] {
            world.home.insert(at.into(), bytes.into());
        }
        world.run();
        world
    }

    fn list(&self) -> TaskList {
        let text = self.lines.join("\n");
        eyas_tasklist::read(text.as_bytes(), Path::new("/h"), &Default::default()).unwrap()
    }

    /// Runs everything, in the order of the lines, which must be one that works.
    fn run(&mut self) {
        let list = self.list();
        let tasks = Tasks::new(&list);
        let mut on_nodes: FxHashMap<String, String> = FxHashMap::default();
        for task in 0..tasks.n {
            let spec = tasks.spec(task);
            let read = |at: &String| on_nodes.get(at).or(self.home.get(at)).expect("it is there").clone();
            let inputs: Vec<String> = spec.inputs.iter().map(|(_, at)| read(at)).collect();
            let mut outputs = vec![];
            for (name, at) in &spec.outputs {
                let bytes = format!("{:?} of {inputs:?} as {name}", spec.command);
                outputs.push((name.clone(), digest(&bytes)));
                match stays(at) {
                    true => on_nodes.insert(at.clone(), bytes),
                    false => self.home.insert(at.clone(), bytes),
                };
            }
            let digests = inputs.iter().map(|bytes| Some(digest(bytes)));
            let names = spec.inputs.iter().map(|(name, _)| name.clone());
            self.memo.add(Record {
                id: spec.id.clone(),
                recipe: Recipe::of(&spec),
                place: Some(Recipe::of(&spec).place(&spec)),
                ended: Ended::Well,
                inputs: names.zip(digests).collect(),
                outputs,
            });
        }
    }

    fn decide(&self) -> Decision {
        decide(&self.list(), &self.memo, |locations| {
            self.looked.borrow_mut().extend_from_slice(locations);
            let find =
                |at: &String| self.home.get(at).map_or(FoundFile::Missing, |b| FoundFile::Bytes(digest(b)));
            locations.iter().map(find).collect()
        })
    }

    /// Checks why each task runs, in the order of the lines, and that the shorter list can be submitted.
    #[track_caller]
    fn expect(&self, why: &[Option<Why>]) {
        let decision = self.decide();
        assert_eq!(decision.why, why);
        let short = shorten(self.list(), &decision, "tasks").unwrap();
        let tasks = Tasks::new(&short);
        let mut ids: Vec<String> = (0..tasks.n).map(|task| tasks.spec(task).id).collect();
        let all = self.list();
        let all = Tasks::new(&all);
        let expected = (0..all.n).filter(|task| why[*task].is_some()).map(|task| all.spec(task).id);
        let mut expected: Vec<String> = expected.collect();
        ids.sort();
        expected.sort();
        assert_eq!(ids, expected);
    }

    fn record_of(&self, id: &str) -> Record {
        self.memo.last_of(id).unwrap().clone()
    }
}

fn at(place: &str) -> String {
    place.into()
}

#[test]
fn what_was_done_is_not_done_again_and_each_file_is_read_once() {
    let world = World::done();
    world.expect(&[None, None, None]);
    world.looked.borrow_mut().clear();
    world.decide();
    let mut looked = world.looked.take();
    looked.sort();
    assert_eq!(looked, ["/h/b.y", "/h/c.z", "/h/raw", "/h/tool"]);
}

#[test]
fn a_changed_command_runs_with_its_descendants_and_the_makers_of_what_it_reads() {
    let mut world = World::done();
    world.lines[1] = line("b", "make b otherwise", &["run:a.x"], &["/h/b.y"]);
    world.expect(&[Some(Why::Needed(at("run:a.x"))), Some(Why::Command), Some(Why::ReadsNew(at("/h/b.y")))]);
}

#[test]
fn a_line_for_the_shell_is_not_the_program_of_the_same_words() {
    let mut world = World::done();
    world.lines[2] = world.lines[2].replace(r#""command":"make c""#, r#""command":["make c"]"#);
    world.expect(&[None, None, Some(Why::Command)]);
}

#[test]
fn a_changed_environment_runs_again_and_its_order_is_of_no_matter() {
    let mut world = World::done();
    let bare = world.lines[2].clone();
    let with = |env: &str| bare.replace(r#""label""#, &format!(r#""env":{env},"label""#));
    world.lines[2] = with(r#"{"A":"1","B":"2"}"#);
    world.expect(&[None, None, Some(Why::Environment)]);
    world.run();
    world.lines[2] = with(r#"{"B":"2","A":"1"}"#);
    world.expect(&[None, None, None]);
}

#[test]
fn what_says_nothing_about_the_result_changes_nothing() {
    let mut world = World::done();
    world.lines[2] = world.lines[2].replace(r#""label":"c""#, r#""label":"other","priority":5,"cpus":2"#);
    world.expect(&[None, None, None]);
}

#[test]
fn a_changed_input_runs_what_reads_it_and_the_same_bytes_run_nothing() {
    let mut world = World::done();
    // As long as before: nothing but the digest can tell.
    world.home.insert("/h/raw".into(), "war".into());
    world.expect(&[
        Some(Why::Input(at("/h/raw"))),
        Some(Why::ReadsNew(at("run:a.x"))),
        Some(Why::ReadsNew(at("/h/b.y"))),
    ]);
    // What comes out of it is not looked at.
    assert!(!world.looked.borrow().contains(&at("/h/c.z")));
    world.home.insert("/h/raw".into(), "raw".into());
    world.expect(&[None, None, None]);
}

#[test]
fn an_input_that_is_gone_is_a_reason() {
    let mut world = World::done();
    world.home.remove("/h/raw");
    let decision = world.decide();
    assert_eq!(decision.why[0], Some(Why::InputMissing(at("/h/raw"))));
}

#[test]
fn an_output_that_is_gone_or_altered_is_made_again() {
    let mut world = World::done();
    world.home.remove("/h/c.z");
    world.expect(&[None, None, Some(Why::OutputMissing(at("/h/c.z")))]);
    world.home.insert("/h/c.z".into(), "else".into());
    world.expect(&[None, None, Some(Why::OutputOther(at("/h/c.z")))]);
    world.run();
    // In the middle: its maker needs what stayed on the nodes, and what reads it has to wait for it.
    world.home.remove("/h/b.y");
    world.expect(&[
        Some(Why::Needed(at("run:a.x"))),
        Some(Why::OutputMissing(at("/h/b.y"))),
        Some(Why::ReadsNew(at("/h/b.y"))),
    ]);
}

#[test]
fn a_task_that_failed_or_did_not_end_runs_again() {
    for (ended, why) in
        [(Ended::Failed, Why::Failed), (Ended::Cancelled, Why::Cancelled), (Ended::Not, Why::NotEnded)]
    {
        let mut world = World::done();
        let mut memo = Memo::default();
        for id in ["a", "b"] {
            memo.add(world.record_of(id));
        }
        memo.add(Record { ended, outputs: vec![], ..world.record_of("c") });
        world.memo = memo;
        world.expect(&[None, None, Some(why)]);
    }
}

#[test]
fn what_was_read_in_place_is_not_known_and_runs_again() {
    let mut world = World::done();
    let mut record = world.record_of("c");
    record.inputs[1].1 = None;
    let mut memo = Memo::default();
    ["a", "b"].iter().for_each(|id| memo.add(world.record_of(id)));
    memo.add(record);
    world.memo = memo;
    world.expect(&[None, None, Some(Why::NotRecorded(at("/h/tool")))]);
}

#[test]
fn tasks_that_are_new_run_and_tasks_that_are_gone_are_no_matter() {
    let mut world = World::done();
    world.lines.remove(2);
    world.lines.push(line("d", "make d", &["run:a.x"], &["/h/d.w"]));
    world.expect(&[Some(Why::Needed(at("run:a.x"))), None, Some(Why::New)]);
}

#[test]
fn a_chain_on_the_nodes_runs_from_its_start_and_what_branched_off_does_not() {
    let mut world = World::done();
    world.lines = vec![
        line("a", "make a", &["/h/raw"], &["run:1"]),
        line("b", "make b", &["run:1"], &["run:2"]),
        line("c", "make c", &["run:2"], &["/h/end"]),
        line("d", "make d", &["run:1"], &["/h/side"]),
    ];
    world.run();
    world.expect(&[None, None, None, None]);
    world.home.remove("/h/end");
    world.expect(&[
        Some(Why::Needed(at("run:1"))),
        Some(Why::Needed(at("run:2"))),
        Some(Why::OutputMissing(at("/h/end"))),
        None,
    ]);
    // The order of the lines is not that of the work.
    world.lines.reverse();
    let whys: Vec<bool> = world.decide().why.iter().map(Option::is_some).collect();
    assert_eq!(whys, [false, true, true, true]);
}

#[test]
fn a_result_that_now_stays_on_the_nodes_is_known_and_one_that_now_goes_home_is_not_there() {
    let mut world = World::done();
    world.lines[1] = line("b", "make b", &["run:a.x"], &["run:b.y"]);
    world.lines[2] = line("c", "make c", &["run:b.y", "/h/tool"], &["/h/c.z"]);
    world.expect(&[None, None, None]);
    world.lines[0] = line("a", "make a", &["/h/raw", "/h/tool"], &["/h/a.x"]);
    world.lines[1] = line("b", "make b", &["/h/a.x"], &["run:b.y"]);
    let decision = world.decide();
    assert_eq!(decision.why[0], Some(Why::OutputMissing(at("/h/a.x"))));
}

#[test]
fn two_tasks_that_do_the_same_keep_what_each_of_them_made() {
    // Programs that give something else each time.
    let mut world = World::done();
    world.lines = vec![
        r#"{"id":"p","command":["dice"],"outputs":{"n":"/h/p"}}"#.into(),
        r#"{"id":"q","command":["dice"],"outputs":{"n":"/h/q"}}"#.into(),
    ];
    let list = world.list();
    let tasks = Tasks::new(&list);
    for (task, id, bytes) in [(0, "p", "3"), (1, "q", "5")] {
        world.home.insert(format!("/h/{id}"), bytes.into());
        let outputs = vec![("n".into(), digest(bytes))];
        let spec = tasks.spec(task);
        let recipe = Recipe::of(&spec);
        let place = Some(recipe.place(&spec));
        world.memo.add(Record { id: id.into(), recipe, place, ended: Ended::Well, inputs: vec![], outputs });
    }
    world.expect(&[None, None]);
}

#[test]
fn without_records_everything_runs_and_nothing_is_read() {
    let mut world = World::done();
    world.memo = Memo::default();
    world.expect(&[Some(Why::NoEarlierRun), Some(Why::NoEarlierRun), Some(Why::NoEarlierRun)]);
    assert!(world.looked.borrow().is_empty());
}

#[test]
fn what_is_known_is_carried_on_also_of_what_runs_again() {
    let mut world = World::done();
    world.home.remove("/h/b.y");
    let decision = world.decide();
    let known: Vec<&str> = decision.known.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(known, ["a"]);
}

/// Tasks of these ids, commands and inputs, without outputs, that ended so the last time.
fn ended(tasks: &[(&str, &str, &[&str], Ended)]) -> World {
    let mut world = World::done();
    world.lines = tasks.iter().map(|(id, command, inputs, _)| line(id, command, inputs, &[])).collect();
    world.memo = Memo::default();
    for at in ["/h/a/x", "/h/b/x", "/h/c/x"] {
        world.home.insert(at.into(), "the same".into());
    }
    world.run();
    let mut memo = Memo::default();
    for (id, _, _, ended) in tasks {
        memo.add(Record { ended: *ended, ..world.record_of(id) });
    }
    world.memo = memo;
    world
}

#[test]
fn equal_tasks_have_their_own_ends() {
    use Ended::*;
    let world = ended(&[
        ("0", "t", &[], Well),
        ("1", "t", &[], Failed),
        ("2", "t", &[], Cancelled),
        ("3", "t", &[], Not),
    ]);
    world.expect(&[None, Some(Why::Failed), Some(Why::Cancelled), Some(Why::NotEnded)]);
    // Of a task that was never there, nothing is known.
    let mut world = ended(&[("0", "t", &[], Well), ("1", "t", &[], Well)]);
    world.lines.push(line("2", "t", &[], &[]));
    world.expect(&[None, None, Some(Why::New)]);
}

#[test]
fn a_task_that_is_put_between_others_runs_alone() {
    let mut world =
        ended(&[("0", "a", &[], Ended::Well), ("1", "b", &[], Ended::Well), ("2", "c", &[], Ended::Well)]);
    let lines = [("0", "a"), ("1", "new"), ("2", "b"), ("3", "c")];
    world.lines = lines.iter().map(|(id, command)| line(id, command, &[], &[])).collect();
    world.expect(&[None, Some(Why::New), None, None]);
    // What is known is known under the new ids from then on.
    let known: Vec<String> = world.decide().known.into_iter().map(|r| r.id).collect();
    assert_eq!(known, ["0", "2", "3"]);
    // A task that knows its id does something else under another one.
    let mut world =
        ended(&[("0", "a $EYAS_TASK", &[], Ended::Well), ("1", "b $EYAS_TASK", &[], Ended::Well)]);
    world.lines = [("0", "new"), ("1", "a $EYAS_TASK"), ("2", "b $EYAS_TASK")]
        .iter()
        .map(|(id, command)| line(id, command, &[], &[]))
        .collect();
    assert_eq!(world.decide().n_running(), 3);
}

#[test]
fn equal_files_in_two_folders_are_two_tasks_wherever_they_stand() {
    use Ended::*;
    let (a, b, c) = (["/h/a/x"], ["/h/b/x"], ["/h/c/x"]);
    let mut world = ended(&[("0", "t", &a, Well), ("1", "t", &b, Failed)]);
    world.expect(&[None, Some(Why::Failed)]);
    world.lines = vec![line("0", "t", &c, &[]), line("1", "t", &a, &[]), line("2", "t", &b, &[])];
    world.expect(&[Some(Why::New), None, Some(Why::Failed)]);
    // A folder that was renamed is the same, and a copy of it is not.
    let mut world = ended(&[("0", "t", &a, Well)]);
    world.lines = vec![line("0", "t", &b, &[])];
    world.expect(&[None]);
    world.lines = vec![line("0", "t", &a, &[]), line("1", "t", &b, &[])];
    world.expect(&[None, Some(Why::New)]);
}

#[test]
fn a_failure_counts_more_than_an_earlier_end_and_less_for_other_bytes() {
    let mut world = ended(&[("0", "t", &["/h/a/x"], Ended::Well)]);
    let well = world.record_of("0");
    world.memo.add(Record {
        ended: Ended::Failed,
        inputs: vec![("x".into(), Some(digest("else")))],
        ..well.clone()
    });
    world.expect(&[None]);
    world.memo.add(Record { ended: Ended::Failed, inputs: vec![("x".into(), None)], ..well.clone() });
    world.expect(&[Some(Why::Failed)]);
    world.memo.add(well);
    world.expect(&[None]);
}
