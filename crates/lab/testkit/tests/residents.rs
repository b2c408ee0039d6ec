//! Files at home that lie on an executor's own machine: who gets the tasks that read them, and how others get the files.

use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::build::{reads, task};
use eyas_testkit::home::digest_of;
use eyas_testkit::script::{Cluster, NodeScript, version};

fn owner(own: &[&str]) -> Offer {
    let nearby = Nearby { own: own.iter().map(|text| text.to_string()).collect(), ..Nearby::default() };
    Offer { slots: 1, cache_bytes: 1_000_000, nearby: Box::new(nearby), ..Offer::default() }
}

fn on_host(host: &str) -> Offer {
    let nearby = Nearby { own: vec![], told: vec!["hdfs://".into()], hosts: vec![host.into()] };
    Offer { slots: 1, cache_bytes: 1_000_000, nearby: Box::new(nearby), ..Offer::default() }
}

fn two_owners() -> Cluster {
    let mut c = Cluster::with(|config| config.placement = "max-cache-hit".into());
    c.offers(1, owner(&["/a"])).offers(2, owner(&["/b"]));
    c
}

/// The answer of an executor that was asked to read a file for others.
fn was_read(c: &mut Cluster, executor: u32, location: &str, bytes: &str, run: RunId) {
    let object = c.core.work().catalog().find(CatalogLocation::of(location)).expect("a task reads it");
    let (digest, version) = (digest_of(bytes), Some(version(bytes, 10)));
    let added = ReplicaAdded { object, digest, size_bytes: 10, version, run: Some(run), private: false };
    let executor = ExecutorId(executor);
    c.feed(Event::ReplicasChanged { executor, added: vec![added], dropped: vec![] });
}

fn not_read(c: &mut Cluster, executor: u32, location: &str, kind: TransferErrorKind) {
    let object = c.core.work().catalog().find(CatalogLocation::of(location)).expect("a task reads it");
    let error = TransferError { kind, message: "of a test".into() };
    c.feed(Event::HomeNotRead { executor: ExecutorId(executor), object, error });
}

fn places(c: &mut Cluster, placed: &[(&str, &[(&str, u64)])]) {
    let placed: Vec<Placed> = placed
        .iter()
        .map(|(location, hosts)| Placed {
            object: c.core.work().catalog().find(CatalogLocation::of(location)).expect("a task reads it"),
            size_bytes: 10,
            hosts: hosts.iter().map(|(host, bytes)| (host.to_string(), *bytes)).collect(),
        })
        .collect();
    let asked = placed.iter().map(|placed| placed.object).collect();
    c.feed(Event::PlacesFound { executor: ExecutorId(1), asked, placed });
}

#[test]
fn a_task_goes_to_the_disk_that_its_input_lies_on() {
    let mut c = two_owners();
    c.run(&[reads("/b/x"), reads("/a/x")]);
    c.expect(&["assign 0.1 to 2", "assign 1.1 to 1"]);
    // Nobody has read a byte of either, and there is a replica of each.
    assert!(c.assignments.iter().all(|a| a.inputs[0].known.is_none() && a.why.n_hits == 1));
    c.done(1, (1, 1)).done(2, (0, 1)).take();
    // An evicted copy takes nothing from the disk.
    let object = c.core.work().catalog().find(CatalogLocation::of("/b/x")).unwrap();
    c.feed(Event::ReplicasChanged { executor: ExecutorId(2), added: vec![], dropped: vec![object] });
    assert!(c.core.work().catalog().holds(ExecutorId(2), object));
    // One that comes later has what was named before.
    c.offers(3, owner(&["/b/"]));
    c.run(&[reads("/b/x").priority(1), reads("/b/x")]);
    c.expect(&["assign 2.1 to 2", "assign 3.1 to 3"]);
    c.lost(3).take();
    assert!(!c.core.work().catalog().holds(ExecutorId(3), object));
    c.done(2, (2, 1)).take();
    c.done(2, (3, 2)).take();
}

#[test]
fn without_rules_nothing_is_resident() {
    let mut c = Cluster::new();
    c.node(1, 1).run(&[reads("/a/x")]);
    c.expect(&["assign 0.1 to 1"]);
    assert_eq!(c.core.work().catalog().n_replicas(), 0);
}

#[test]
fn an_input_on_another_disk_is_read_there_first() {
    let mut c = two_owners();
    let run = c.run(&[task("both").reads("/a/x").reads("/b/x")]);
    let asked = c.take();
    let (here, there, away) = match asked[0].as_str() {
        "read /b/x on 2" => (1, 2, "/b/x"),
        "read /a/x on 1" => (2, 1, "/a/x"),
        other => panic!("{other}"),
    };
    was_read(&mut c, there, away, "bytes", run);
    c.expect(&[&format!("assign 0.1 to {here}")]);
    let inputs = &c.assignments[0].inputs;
    let [away, own] = [there, here].map(|owner| inputs[owner as usize - 1].clone());
    assert_eq!(away.sources, [ExecutorId(there)]);
    assert!(
        away.known.is_some() && away.stays && !away.check_home && !away.direct,
        "home is out of reach: {away:?}"
    );
    assert!(own.check_home && own.sources.is_empty(), "it is read in place: {own:?}");
    c.done(here, (0, 1)).take();
    // The next run asks the owner whether the file has changed.
    let run = c.run(&[task("again").reads("/a/x").reads("/b/x")]);
    let asked = c.take();
    assert!(asked.len() == 1 && asked[0].starts_with("read /"), "{asked:?}");
    let (location, owner) = if asked[0].ends_with('2') { ("/b/x", 2) } else { ("/a/x", 1) };
    was_read(&mut c, owner, location, "bytes", run);
    let given = c.take();
    assert!(given[0].starts_with("assign 1.1"), "{given:?}");
}

/// Executor 2 has `/b` and is busy with task 0; executor 1 is idle and gets what it can.
fn busy_owner() -> Cluster {
    let mut c = Cluster::with(|config| config.placement = "max-compute-util".into());
    c.offers(2, owner(&["/b"])).run(&[reads("/b/busy")]);
    c.expect(&["assign 0.1 to 2"]).node(1, 1);
    c
}

#[test]
fn what_was_read_for_an_earlier_run_is_no_answer_for_a_later_one() {
    let mut c = busy_owner();
    let first = c.run(&[reads("/b/x")]);
    c.expect(&["read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "bytes", first);
    c.expect(&["assign 1.1 to 1"]);
    c.done(1, (1, 1)).take();
    let second = c.run(&[reads("/b/x")]);
    c.expect(&["read /b/x on 2"]);
    // This report was on its way when the owner was asked.
    was_read(&mut c, 2, "/b/x", "bytes", first);
    c.expect(&[]);
    was_read(&mut c, 2, "/b/x", "newer", second);
    c.expect(&["assign 2.1 to 1"]);
    let known = c.assignments.last().unwrap().inputs[0].known.clone();
    assert_eq!(known.map(|known| known.digest), Some(digest_of("newer")));
    c.done(1, (2, 1)).done(2, (0, 1)).take();
}

#[test]
fn what_its_owner_read_in_place_says_nothing_of_copies() {
    let mut c = busy_owner();
    let first = c.run(&[reads("/b/x")]);
    c.expect(&["read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "bytes", first);
    c.expect(&["assign 1.1 to 1"]);
    c.done(1, (1, 1)).run(&[reads("/elsewhere")]);
    c.expect(&["end 1 done", "end run 2", "assign 2.1 to 1"]);
    // The file changes. A task of the next run reads the new bytes where they lie.
    c.done(2, (0, 1)).take();
    let second = c.run(&[reads("/b/x").priority(1), reads("/b/busy"), reads("/b/x").priority(-1)]);
    c.expect(&["assign 3.1 to 2"]);
    let mut report = c.report((3, 1), Outcome::Done);
    report.inputs[0].outcome = CacheOutcome::InPlace;
    c.feed(Event::AttemptEnded { executor: ExecutorId(2), report: report.into() });
    c.expect(&["end 3 done", "assign 4.1 to 2"]);
    c.done(1, (2, 1)).expect(&["end 2 done", "end run 3", "read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "newer", second);
    c.expect(&["assign 5.1 to 1"]);
    c.done(1, (5, 1)).done(2, (4, 1)).take();
}

#[test]
fn a_file_that_changed_for_an_earlier_run_is_read_once_more_for_a_later_one() {
    let mut c = busy_owner();
    let first = c.run(&[reads("/b/x"), reads("/b/x")]);
    c.expect(&["read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "bytes", first);
    c.expect(&["assign 1.1 to 1"]);
    // No copy is left, and tasks of both runs wait for another one.
    let object = c.core.work().catalog().find(CatalogLocation::of("/b/x")).unwrap();
    c.feed(Event::ReplicasChanged { executor: ExecutorId(2), added: vec![], dropped: vec![object] });
    c.done(1, (1, 1)).expect(&["end 1 done", "read /b/x on 2"]);
    let second = c.run(&[reads("/b/x")]);
    c.expect(&[]);
    was_read(&mut c, 2, "/b/x", "newer", first);
    c.expect(&["drop /b/x on 2", "end 2 failed InputChanged", "end run 2", "read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "newer", second);
    c.expect(&["assign 3.1 to 1"]);
    c.done(1, (3, 1)).done(2, (0, 1)).take();
}

#[test]
fn what_its_owner_cannot_read_is_looked_for_at_home() {
    let mut c = two_owners();
    c.run(&[task("both").reads("/a/x").reads("/b/x")]);
    let mut reader = 0;
    for _ in 0..3 {
        let asked = c.take();
        let (location, owner) = if asked[0].ends_with('2') { ("/b/x", 2) } else { ("/a/x", 1) };
        assert_eq!(asked, [format!("read {location} on {owner}")]);
        not_read(&mut c, owner, location, TransferErrorKind::Unavailable);
        reader = 3 - owner;
    }
    c.expect(&[&format!("assign 0.1 to {reader}")]);
    assert!(c.assignments[0].inputs.iter().all(|input| !input.stays && input.sources.is_empty()));
    c.done(reader, (0, 1)).take();
}

#[test]
fn an_owner_without_room_is_asked_again_later() {
    let mut c = busy_owner();
    let run = c.run(&[reads("/b/x")]);
    for _ in 0..5 {
        c.expect(&["read /b/x on 2"]);
        not_read(&mut c, 2, "/b/x", TransferErrorKind::NoSpace);
        c.expect(&[]).wait(1);
    }
    c.expect(&["read /b/x on 2"]);
    was_read(&mut c, 2, "/b/x", "bytes", run);
    c.expect(&["assign 1.1 to 1"]);
    c.done(1, (1, 1)).done(2, (0, 1)).take();
}

#[test]
fn an_owner_that_never_has_room_is_not_waited_for_with_each_file() {
    let mut c = busy_owner();
    c.run(&[reads("/b/x"), reads("/b/y")]);
    let (mut n_s, mut n_given) = (0, 0);
    while n_given < 2 {
        let actions = c.take();
        for location in ["/b/x", "/b/y"] {
            if actions.contains(&format!("read {location} on 2")) {
                not_read(&mut c, 2, location, TransferErrorKind::NoSpace);
            }
        }
        for task in [1, 2] {
            if actions.contains(&format!("assign {task}.1 to 1")) {
                n_given += 1;
                c.done(1, (task, 1));
            }
        }
        if actions.is_empty() {
            n_s += 1;
            assert!(n_s < 1_000, "it is waited for for ever");
            c.wait(1);
        }
    }
    assert!((600..620).contains(&n_s), "{n_s} s");
    c.done(2, (0, 1)).take();
}

#[test]
fn files_that_push_each_other_out_of_their_owners_cache_are_looked_for_at_home() {
    let mut c = busy_owner();
    let run = c.run(&[task("both").reads("/b/x").reads("/b/y")]);
    let object = |c: &Cluster, location| c.core.work().catalog().find(CatalogLocation::of(location)).unwrap();
    let mut n_reads = 0;
    loop {
        let actions = c.take();
        if actions.iter().any(|action| action == "assign 1.1 to 1") {
            break;
        }
        for location in ["/b/x", "/b/y"] {
            if actions.contains(&format!("read {location} on 2")) {
                n_reads += 1;
                assert!(n_reads < 30, "its owner reads for ever");
                let other = object(&c, if location == "/b/x" { "/b/y" } else { "/b/x" });
                c.feed(Event::ReplicasChanged {
                    executor: ExecutorId(2),
                    added: vec![],
                    dropped: vec![other],
                });
                was_read(&mut c, 2, location, location, run);
            }
        }
    }
    c.done(1, (1, 1)).done(2, (0, 1)).take();
}

#[test]
fn an_owner_that_is_lost_is_not_waited_for() {
    let mut c = two_owners();
    c.run(&[task("both").reads("/a/x").reads("/b/x")]);
    let asked = c.take();
    let owner = if asked[0].ends_with('2') { 2 } else { 1 };
    c.lost(owner);
    // Home is what is left.
    c.expect(&[&format!("assign 0.1 to {}", 3 - owner)]);
    c.done(3 - owner, (0, 1)).take();
}

#[test]
fn a_silent_owner_is_waited_for() {
    let mut c = two_owners();
    c.offers(3, owner(&["/c"])).silent(1).silent(2);
    c.run(&[reads("/a/x")]);
    c.expect(&[]);
    c.offers(1, owner(&["/a"])).expect(&["assign 0.1 to 1"]);
    c.done(1, (0, 1)).take();
}

#[test]
fn home_says_where_files_lie_before_the_first_task_is_given_out() {
    let mut c = Cluster::with(|config| config.placement = "max-cache-hit".into());
    c.offers(1, on_host("h1")).offers(2, on_host("h2"));
    c.run(&[reads("hdfs://n/x"), reads("hdfs://n/y"), reads("/elsewhere")]);
    c.expect(&["ask 1 where hdfs://n/x hdfs://n/y is"]);
    let halves: &[(&str, u64)] = &[("h1", 4), ("h2", 6)];
    places(&mut c, &[("hdfs://n/x", halves), ("hdfs://n/y", &[("h1", 10)])]);
    c.expect(&["assign 0.1 to 2", "assign 1.1 to 1"]);
    let input = &c.assignments[0].inputs[0];
    assert!(input.sources.is_empty() && input.known.is_none(), "it is read from home: {input:?}");
    c.done(1, (1, 1)).done(2, (0, 1)).take();
}

#[test]
fn a_home_that_does_not_say_is_waited_for_a_second() {
    let mut c = Cluster::new();
    c.offers(1, on_host("h1"));
    c.run(&[reads("hdfs://n/x")]);
    c.expect(&["ask 1 where hdfs://n/x is"]);
    assert_eq!(c.core.wake_at(), Some(c.now.plus_ns(1_000_000_000)));
    c.wait(1).expect(&["assign 0.1 to 1"]);
    c.done(1, (0, 1)).take();
}

// ---------------------------------------------------------------- the executor's side

#[test]
fn an_owner_reads_its_file_into_its_cache_and_says_so_once() {
    let mut n = NodeScript::new(1, 100);
    n.read_for_others("x", 1).expect(&["ask x"]);
    n.answer("x", "bytes", 10).expect(&["fetch x from home"]);
    n.arrived("x", None, "bytes", 10).expect(&["tell has x"]);
    // For the same run home is not asked again; for a later one it is, and the copy is still right.
    n.read_for_others("x", 1).expect(&["tell has x"]);
    n.read_for_others("x", 2).expect(&["ask x"]);
    n.answer("x", "bytes", 10).expect(&["tell has x"]);
    // Another version takes its place.
    n.read_for_others("x", 3).expect(&["ask x"]);
    n.answer("x", "newer", 10).expect(&["evict x", "tell lost x", "fetch x from home"]);
    n.missed("x", None, TransferErrorKind::Unavailable).expect(&["tell not read x"]);
    n.read_for_others("large", 3).expect(&["ask large"]);
    n.answer("large", "bytes", 101).expect(&["tell not read large"]);
}

#[test]
fn what_was_being_read_when_a_later_run_asks_is_compared_with_homes_answer_for_that_run() {
    let mut n = NodeScript::new(1, 100);
    n.read_for_others("x", 1).expect(&["ask x"]);
    n.answer("x", "bytes", 10).expect(&["fetch x from home"]);
    n.read_for_others("x", 2).expect(&["ask x"]);
    n.arrived("x", None, "bytes", 10).expect(&["tell has x"]);
    n.answer("x", "newer", 10).expect(&["evict x", "tell lost x", "fetch x from home"]);
    n.arrived("x", None, "newer", 10).expect(&["tell has x"]);
}
