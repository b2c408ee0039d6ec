//! What the fuzzer has found, each in its smallest form, so that it stays mended whatever the generators become.

use eyas_fuzz::memory::Counting;
use eyas_fuzz::{Rng, Target, round, targets, watch};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn target(name: &str) -> Box<dyn Target> {
    targets::all().into_iter().find(|t| t.name() == name).expect("a target of that name")
}

/// Panics where the target does; too much memory or time ends the process.
fn read(name: &str, bytes: &[u8]) {
    watch::begin(0, 0);
    if let Err(panic) = round::read(&mut *target(name), bytes) {
        panic!("{name}: {} at {}", panic.message, panic.place);
    }
    watch::end();
}

/// A recorded log with one line changed.
fn log_with(find: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    let log = target("events");
    for number in 0.. {
        let text = String::from_utf8(log.make(&mut Rng::new(1, "events", number))).expect("JSON is UTF-8");
        let Some(line) = text.lines().find(|line| line.contains(find)) else { continue };
        return text.replace(line, &change(line)).into_bytes();
    }
    unreachable!("some log has it")
}

/// `line` with the number behind `key` replaced.
fn with_number(line: &str, key: &str, number: &str) -> String {
    let at = line.find(key).expect("the key is there") + key.len();
    let n = line[at..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{}{number}{}", &line[..at], &line[at + n..])
}

#[test]
fn numbers_in_a_damaged_log() {
    watch::start();
    for (find, key) in [
        ("executor_joined", "\"slots\":"),
        ("executor_joined", "\"cache_bytes\":"),
        ("attempt_ended", "\"object\":"),
        ("attempt_ended", "\"task\":"),
        ("attempt_ended", "\"size_bytes\":"),
        ("attempt_ended", "\"exited\":"),
        ("attempt_ended", "\"started\":"),
        ("attempt_ended", "\"wait_ns\":"),
        ("\"end_task\"", "\"task\":"),
        ("\"t\":", "\"t\":"),
        ("\"assign\"", "\"executor\":"),
        ("\"assign\"", "\"task\":"),
        ("hits_enough", "\"hits_enough\":"),
        ("array_added", "\"first_index\":"),
        ("array_added", "\"ends\":["),
    ] {
        for number in ["63", "1099511627776", "4294967295", "9223372036854775808", "18446744073709551615"] {
            read("events", &log_with(find, |line| with_number(line, key, number)));
        }
    }
}

#[test]
fn text_in_a_damaged_log_and_in_other_files_is_not_repeated_as_it_is() {
    let log = log_with("eyas_event_log", |line| line.replace("\"look_ahead\"", "\"look\\u001b_ahead\""));
    read("events", &log);
    read("events", &log_with("eyas_event_log", |line| line.replace("affinity\"", "\\u001b[2J\"")));
    read("events", &log_with("\"assign\"", |line| line.replace("\"affinity\"", "\"\\u202e\"")));
    let long = "x".repeat(100_000);
    read("join", format!("\"{long}\"").as_bytes());
    read("tasks", format!("\"{long}\"\n").as_bytes());
    read("dax", b"<adag><job \x01id='a'/></adag>");
    read("dax", format!("<adag><{long}></adag>").as_bytes());
    read("jx", format!("{{\"rules\": [template({})]}}", "{},".repeat(1000)).as_bytes());
    read("jx", "{\"rules\": [{\"command\": \"a\", \"outputs\": [\"\u{202e}x\"]}]}".as_bytes());
    read("makeflow", "a:\n\tLOCAL\u{202e}\n".as_bytes());
}

#[test]
fn wfformat_says_all_that_the_others_say() {
    read(
        "pegasus",
        b"name: ''\njobs:\n- {id: a, name: p, uses: [{lfn: /, type: input}, {lfn: /x, type: output}]}\n",
    );
    read("jx", b"{\"rules\": [{\"command\": \"a\", \"outputs\": [\"/0\", \"/d/0\"]}]}");
    read("dax", b"<adag name=''><job id='a' name='p' runtime='7674285375'/></adag>");
    read("wfformat", br#"{"workflow":{"specification":{"tasks":[{"name":"s"}],"files":[]},"execution":{}}}"#);
}

#[test]
fn what_grows_or_lasts_more_than_its_text_explains() {
    watch::start();
    let lists: String = (1..60).map(|i| format!(",\"V{i}\":[V{},V{}]", i - 1, i - 1)).collect();
    let define = format!("{{\"define\":{{\"V0\":[1]{lists}}},");
    read("jx", format!("{define}\"rules\":[x for x in [1] if V59 == [V58,V58]]}}").as_bytes());
    let env: String = (0..60_000).map(|i| format!("\"k{i}\":1,")).collect();
    read("jx", format!("{{\"rules\":[{{\"command\":\"c\",\"environment\":{{{env}}}}}]}}").as_bytes());
    // Each its own kind, and all before it as parents.
    let tasks: Vec<_> = (0..600)
        .map(|i| {
            let parents: Vec<String> = (0..i).map(|p| format!("t{p}")).collect();
            serde_json::json!({"name": format!("t{i}"), "id": format!("t{i}"), "parents": parents})
        })
        .collect();
    let workflow = serde_json::json!({"workflow": {"specification": {"tasks": tasks, "files": []}}});
    read("wfformat", workflow.to_string().as_bytes());
    // Files of one name in many folders.
    let uses: String = (0..20_000).map(|i| format!("<uses name='{i}/x' link='output'/>")).collect();
    read("dax", format!("<adag><job id='a' name='p'>{uses}</job></adag>").as_bytes());
}

/// What a client may send, and what a dispatcher then asks of it.
#[test]
fn a_group_of_tasks_whose_numbers_are_too_large() {
    use eyas_terms::array::{Command, Pattern, Piece, TaskArray, TaskForm};
    let template = TaskForm::new(Pattern(vec![Piece::Index]), Command::Exec(vec![Pattern::literal("p")]));
    let array = TaskArray { n_tasks: 2, first_index: u64::MAX, template, columns: vec![], needs: None };
    assert_eq!(array.check(), Err("the numbers of its tasks are too large".into()));
}

/// Tasks of eight kinds gather side by side, so a list is folded into another order than that of its lines.
#[test]
fn a_list_is_the_same_in_another_order() {
    let of_kind = |id: &str, n_words: usize| {
        let line = serde_json::json!({"id": id, "command": vec!["p"; n_words]});
        format!("{line}\n")
    };
    let mut lines = of_kind("seventh", 7) + &of_kind("eighth", 8);
    lines.extend((0..7).map(|i| of_kind(&format!("t{i}"), 1 + i % 6)));
    lines += &of_kind("again", 7);
    lines.extend((10..16).map(|i| of_kind(&format!("t{i}"), 1 + i - 10)));
    lines += &of_kind("ninth", 9);
    lines += &of_kind("eighth-again", 8);
    read("tasks", lines.as_bytes());
}

#[test]
fn an_element_with_a_long_name_lacks_an_attribute() {
    let name = "x".repeat(100_000);
    read(
        "dax",
        format!("<adag><job id='a' name='p'><argument><file{name}/></argument></job></adag>").as_bytes(),
    );
    read("dax", format!("<adag><job id='a' name='p'><argument><{name}/></argument></job></adag>").as_bytes());
}

/// What functions make is counted before it is made, and what comparing takes before it is done.
#[test]
fn functions_and_regular_expressions_that_ask_for_too_much() {
    watch::start();
    let text = "x".repeat(100_000);
    let jx = |define: &str, value: &str| {
        let rules = format!("[{{\"command\":\"a\",\"outputs\":[\"o\"],\"environment\":{{\"A\":{value}}}}}]");
        read("jx", format!("{{\"define\":{{\"T\":\"{text}\"{define}}},\"rules\":{rules}}}").as_bytes());
    };
    jx(",\"L\":[T for i in range(1000000)]", "join(L)");
    jx("", &format!("template(\"{}\")", "{T}".repeat(50_000)));
    jx("", &format!("format(\"{}\",{})", "%s".repeat(20_000), vec!["T"; 20_000].join(",")));
    let quotes: String = (1..13).map(|i| format!(",\"Q{i}\":Q{} + Q{}", i - 1, i - 1)).collect();
    jx(&format!(",\"Q0\":\"{}\"{quotes}", "'".repeat(20_000)), "escape(Q12)");
    jx(",\"L\":[like(T, \"(.*y?){1000}b\") for i in range(1000)]", "\"\" + len(L)");
    jx(",\"L\":[like(\"\" + i, \"((a?){90}){90}b\" + i) for i in range(100000)]", "\"\" + len(L)");

    let pegasus = |lfn: &str, pfn: &str, names: &[String]| {
        let mut file = format!(
            "pegasus: '5.0'\nreplicaCatalog:\n  replicas:\n  - {{lfn: '{lfn}', regex: true, pfns: [{{site: l, pfn: '/p/{pfn}'}}]}}\njobs:\n- type: job\n  id: j\n  name: p\n  uses:\n"
        );
        names.iter().for_each(|name| file.push_str(&format!("  - {{lfn: {name}, type: input}}\n")));
        read("pegasus", file.as_bytes());
    };
    pegasus("(a*)", &"[1]".repeat(100_000), &["a".repeat(500_000)]);
    let names: Vec<String> = (0..200).map(|i| format!("{}{i}", "a".repeat(5000))).collect();
    pegasus("((a?){100}){100}b", "x", &names);
}

/// What a dispatcher is told that knows no run, by a member that was never there, and then nothing more.
#[test]
fn members_in_their_plain_form() {
    let members = target("members");
    for number in 0..3 {
        read("members", &members.make(&mut Rng::new(1, "members", number)));
    }
}

/// Numbers beyond all that can be, from those who speak to a dispatcher: `who` as in the target.
#[test]
fn numbers_that_members_say() {
    use eyas_core::event::NodeMessage;
    use eyas_core::group::{Carried, FileState, LinkMessage, MemberLoad, SharedFile};
    use eyas_terms::RunId;
    use eyas_terms::{Digest, ExecutorId};
    use eyas_wire::message::{FromExecutor, FromMember, Request, RequestBody};
    const CLIENT: u8 = 0;
    const EXECUTOR: u8 = 1;
    const MEMBER: u8 = 3;
    const JOINS: u8 = 4;
    fn step(who: u8, message: &impl serde::Serialize) -> Vec<u8> {
        let body = postcard::to_stdvec(message).expect("plain values");
        [&[who][..], &(body.len() as u32).to_le_bytes(), &body].concat()
    }
    let hello = eyas_fuzz::targets::members::hello(0, 2, None);
    let joins = step(JOINS, &hello);
    let (run, name) = (RunId(u32::MAX), "w".to_owned());
    let join_run = RequestBody::JoinRun {
        run,
        opened_by: 1,
        name,
        keep: eyas_wire::message::Keep::default(),
        into: None,
    };
    let file = SharedFile { run: RunId(1), location: "run:x".into() };
    let (digest, holders) = (Digest([1; 32]), vec![ExecutorId(0)]);
    let state = FileState::Held { digest, size_bytes: u64::MAX, holders, carried: Carried::No };
    let load = MemberLoad { n_slots: u64::MAX, n_ready: u64::MAX, ..MemberLoad::default() };
    for said in [
        step(CLIENT, &Request { number: 1, body: join_run }),
        step(MEMBER, &[FromMember::Load(load)]),
        step(MEMBER, &[FromMember::Said(vec![LinkMessage::File { file, state }])]),
        step(EXECUTOR, &[FromExecutor::Node(NodeMessage::CacheResized { cache_bytes: u64::MAX })]),
    ] {
        for kind in 0..3 {
            read("members", &[&[kind][..], &joins, &said, &joins, &said].concat());
        }
    }
}

/// A step of the target `members`: who speaks, as there, and what.
fn said(who: u8, message: &impl serde::Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("plain values");
    [&[who][..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// What a client asks in the target `members`, of a dispatcher that is alone.
fn asked(bodies: &[eyas_wire::message::RequestBody]) -> Vec<u8> {
    let requests = bodies.iter().map(|body| eyas_wire::message::Request { number: 7, body: body.clone() });
    requests.fold(vec![0], |mut all, request| {
        all.extend(said(0, &request));
        all
    })
}

#[test]
fn who_watches_a_submission_that_is_given_up() {
    use eyas_terms::RunId;
    use eyas_wire::message::RequestBody::{AbortRun, OpenRun, WatchRun};
    let run = RunId(1);
    let open = OpenRun { name: "w".into(), keep: eyas_wire::message::Keep::default(), into: None };
    read("members", &asked(&[open, WatchRun { run, interval_ns: 0 }, AbortRun { run }]));
}

/// The second task writes what the first one does. Giving the submission up goes no further than noting it did.
#[test]
fn a_refused_array_of_a_hundred_million_tasks_is_soon_forgotten() {
    use eyas_terms::RunId;
    use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm};
    use eyas_wire::message::RequestBody::{AddArray, CommitRun, OpenRun};
    watch::start();
    let run = RunId(1);
    for is_promise in [false, true] {
        let mut template = TaskForm::new(Pattern::literal("t"), Command::Exec(vec![Pattern::literal("p")]));
        match is_promise {
            false => template.outputs = vec![(Pattern::literal("o"), Pattern::literal("/o"))],
            true => template.promises = vec!["run:o".into()],
        }
        let array =
            TaskArray { n_tasks: 100_000_000, first_index: 0, template, columns: vec![], needs: None };
        assert_eq!(array.check(), Ok(()));
        let open = OpenRun { name: "w".into(), keep: eyas_wire::message::Keep::default(), into: None };
        read("members", &asked(&[open, AddArray { run, array: array.into() }, CommitRun { run }]));
    }
}
