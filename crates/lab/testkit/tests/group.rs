//! What one dispatcher of several decides, event by event: files that cross, parts of runs and additions to
//! them, executors that change dispatchers. Whole groups are tested in `group_chaos.rs`.

use eyas_core::collective::BatchId;
use eyas_core::dispatcher::TaskState;
use eyas_core::event::*;
use eyas_core::group::split::split_addition;
use eyas_core::group::{
    Carried, Courier, FileState, KnownFiles, LinkMessage, MemberLoad, Membership, RunLinks, SharedFile,
    owner_of,
};
use eyas_terms::location::CatalogLocation;
use eyas_terms::needs::Size;
use eyas_terms::*;
use eyas_testkit::build::{Task, reads, task};
use eyas_testkit::home::digest_of;
use eyas_testkit::script::Cluster;
use std::collections::BTreeSet;

const RUN: RunId = RunId(1);

/// A name that member `owner` of `n` has.
fn name_at(owner: u32, n: u32, hint: &str) -> String {
    let mut names = (0..).map(|i| format!("run:{hint}{i}"));
    names.find(|name| owner_of(name, n) == MemberId(owner)).expect("names go on for ever")
}

/// Member `me` of two.
fn member(me: u32) -> Cluster {
    Cluster::with(|config| config.group = Some(Membership { me: MemberId(me), n_members: 2 }))
}

fn part_of(c: &mut Cluster, tasks: &[Task], links: RunLinks) {
    let run = RUN;
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    c.feed(Event::RunLinked { run, links });
    for task in tasks {
        c.feed(Event::ArrayAdded { run, array: task.array() });
    }
    c.feed(Event::RunCommitted { run });
}

fn message_from(c: &mut Cluster, from: u32, message: LinkMessage) {
    c.feed(Event::MemberTold { member: MemberId(from), messages: vec![message] });
}

fn shared(location: &str) -> SharedFile {
    SharedFile { run: RUN, location: location.into() }
}

fn held(holders: &[u32]) -> FileState {
    let holders = holders.iter().map(|h| ExecutorId(*h)).collect();
    FileState::Held { digest: digest_of("x"), size_bytes: 10, holders, carried: Carried::No }
}

#[test]
fn a_reader_waits_for_the_owner_and_fetches_from_the_executor_that_the_owner_names() {
    let x = name_at(1, 2, "x");
    let mut c = member(0);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    c.expect(&["tell 1 reads [] settled []"]);
    c.node(1, 1);
    part_of(&mut c, &[task("r").reads(&x)], RunLinks::default());
    c.expect(&[&format!("tell 1 subscribed [{x}], settled 1")]);
    let state = held(&[2, 4]);
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: state.clone() });
    c.expect(&["assign 0.1 to 1"]);
    let input = &c.assignments[0].inputs[0];
    assert!(input.stays && input.known.as_ref().is_some_and(|k| k.digest == digest_of("x")));
    assert_eq!(input.sources.len(), 2);
    // The same message again changes nothing.
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state });
    c.expect(&[]);
    c.done(1, (0, 1)).expect(&["end 0 done", "end run 1", &format!("tell 1 unsubscribed [{x}]")]);
}

#[test]
fn a_holder_that_lacks_the_file_is_reported_to_the_owner_and_the_reader_waits_for_another() {
    let x = name_at(1, 2, "x");
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("r").reads(&x)], RunLinks::default());
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: held(&[2]) });
    c.expect(&[
        "tell 1 reads [] settled []",
        &format!("tell 1 subscribed [{x}], settled 1"),
        "assign 0.1 to 1",
    ]);
    c.failed(1, (0, 1), FailureKind::InputLost).expect(&[&format!("tell 1 missed {x}")]);
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: FileState::Expected });
    c.expect(&[]);
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: held(&[4]) });
    c.expect(&["assign 0.2 to 1"]);
    c.done(1, (0, 2)).expect(&["end 0 done", "end run 1", &format!("tell 1 unsubscribed [{x}]")]);
}

/// The first member, whose part of the run has written `x` and ended.
fn with_written(x: &str) -> Cluster {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes(x)], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    c.done(1, (0, 1)).expect(&["end 0 done", "end run 1"]);
    c
}

#[test]
fn a_file_stays_until_every_member_is_settled_and_the_last_has_read_it() {
    let x = name_at(0, 2, "x");
    let mut c = with_written(&x);
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x)] });
    c.expect(&[&format!("tell 1 {x} on 1")]);
    message_from(&mut c, 1, LinkMessage::Settled { run: RUN });
    c.expect(&[]);
    let scoped = format!("run:here.1/{}", &x[4..]);
    // The file's only holder is lost: a task elsewhere reads the file, so it is made again.
    c.lost(1).expect(&[&format!("revive 0 for {scoped}"), &format!("tell 1 {x} expected")]);
    c.node(3, 1).expect(&["assign 0.65537 to 3"]);
    c.done(3, (0, 65537)).expect(&["end 0 done", "end run 1", &format!("tell 1 {x} on 3")]);
    message_from(&mut c, 1, LinkMessage::Unsubscribed { files: vec![shared(&x)] });
    c.expect(&[&format!("drop {scoped} on 3")]);
}

/// Its part of the run had ended when a later run read what home had by then, so that it read these other bytes, too.
#[test]
fn a_task_that_runs_again_after_its_part_ended_reads_no_newer_version() {
    let x = name_at(0, 2, "x");
    let mut c = member(0);
    c.node(1, 1).node(3, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[reads("in").writes(&x)], RunLinks::default());
    c.take();
    c.has(1, "in", "old", Some("old")).done(1, (0, 1)).expect(&["end 0 done", "end run 1"]);
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x)] });
    c.take();
    let run = RunId(2);
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    c.feed(Event::RunLinked { run, links: RunLinks::default() });
    c.feed(Event::ArrayAdded { run, array: reads("in").array() });
    c.feed(Event::RunCommitted { run });
    assert!(c.take().contains(&"assign 1.1 to 1".to_string()));
    c.has(1, "in", "new", Some("new")).done(1, (1, 1)).take();
    let said = c.lost(1).take();
    assert!(said.contains(&"end 0 failed InputChanged".to_string()), "{said:?}");
}

#[test]
fn readers_learn_that_a_file_has_no_maker_or_that_its_maker_failed() {
    let (x, y) = (name_at(0, 2, "x"), name_at(0, 2, "y"));
    let mut c = member(0);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes(&x)], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "tell 1 settled 1"]);
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x), shared(&y)] });
    c.expect(&[&format!("tell 1 {x} expected, {y} never")]);
    c.node(1, 1).expect(&["assign 0.1 to 1"]);
    c.failed(1, (0, 1), FailureKind::ExitCode(1));
    c.expect(&["end 0 failed ExitCode(1)", "end run 1", &format!("tell 1 {x} never")]);

    let z = name_at(1, 2, "z");
    let mut c = member(0);
    part_of(&mut c, &[task("r").reads(&z)], RunLinks::default());
    let state = FileState::Never { message: "task `w` failed".into(), cancelled: false };
    message_from(&mut c, 1, LinkMessage::File { file: shared(&z), state });
    c.expect(&["end 0 failed InputUnavailable", "end run 1"]);
}

#[test]
fn a_result_at_home_is_waited_for_by_its_name() {
    let mut owner = member(0);
    owner.node(1, 1);
    owner.feed(Event::MemberConnected { member: MemberId(1) });
    let links = RunLinks { imports: vec![], exports: vec!["/out".into()] };
    part_of(&mut owner, &[task("w").writes("/out")], links);
    owner.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    message_from(&mut owner, 1, LinkMessage::Reads { files: vec![shared("/out")], settled: vec![RUN] });
    owner.expect(&["tell 1 /out expected"]);
    owner.done(1, (0, 1)).expect(&[]);
    owner.home(1, (0, 1), true).expect(&["end 0 done", "end run 1", "tell 1 /out at home"]);

    let mut reader = member(1);
    reader.node(2, 1);
    let links = RunLinks { imports: vec![("/out".into(), MemberId(0))], exports: vec![] };
    part_of(&mut reader, &[task("r").reads("/out")], links);
    reader.expect(&[]);
    message_from(&mut reader, 0, LinkMessage::File { file: shared("/out"), state: FileState::AtHome });
    reader.expect(&["assign 0.1 to 2"]);
    reader.done(2, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

/// Opens the part that a member has of a submission into the run.
fn open_added(c: &mut Cluster, number: u32, tasks: &[Task], links: RunLinks) -> RunId {
    let run = RunId(number);
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: Some(RUN) });
    c.feed(Event::RunLinked { run, links });
    tasks.iter().for_each(|task| c.feed(Event::ArrayAdded { run, array: task.array() }));
    run
}

#[test]
fn a_part_that_has_ended_goes_on_with_what_is_added_and_keeps_what_others_may_read() {
    let (x, y) = (name_at(0, 2, "x"), name_at(0, 2, "y"));
    let mut c = with_written(&x);
    let run = open_added(&mut c, 7, &[task("v").reads(&x).writes(&y)], RunLinks::default());
    assert_eq!(c.core.work().find_run(RUN).unwrap().ended, None);
    message_from(&mut c, 1, LinkMessage::Settled { run: RUN });
    c.expect(&[]);
    assert!(!c.core.is_accepted(run));
    c.feed(Event::RunCommitted { run });
    assert!(c.core.is_accepted(run));
    c.expect(&["assign 1.1 to 1", "tell 1 settled 7"]);
    // The other member has not said yet that no task of its part of the addition reads these files.
    c.done(1, (1, 1)).expect(&["end 1 done", "end run 1"]);
    message_from(&mut c, 1, LinkMessage::Settled { run });
    let dropped = format!("drop run:here.1/{} run:here.1/{} on 1", &x[4..], &y[4..]);
    c.expect(&[&dropped]);
    // A repeated message names it, too.
    c.feed(Event::MemberSilent { member: MemberId(1) });
    c.feed(Event::MemberConnected { member: MemberId(1) });
    c.expect(&["tell 1 reads [] settled [RunId(1), RunId(7)]"]);
}

#[test]
fn what_is_given_up_lets_a_part_end_again() {
    let x = name_at(0, 2, "x");
    let mut c = member(0);
    c.node(1, 1);
    part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
    c.done(1, (0, 1)).home(1, (0, 1), true).expect(&["assign 0.1 to 1", "end 0 done", "end run 1"]);
    let links = RunLinks { imports: vec![], exports: vec!["/out".into()] };
    let run = open_added(&mut c, 7, &[task("v").writes(&x)], links);
    c.feed(Event::RunAborted { run });
    c.expect(&["end run 1"]);
}

#[test]
fn a_member_tells_what_it_knows_of_files() {
    let (x, y, z) = (name_at(0, 2, "x"), name_at(1, 2, "y"), name_at(0, 2, "z"));
    let mut c = member(0);
    c.node(1, 1);
    let tasks = [task("w").writes(&x).writes(&y), task("h").writes("/out"), task("late").writes("/late")];
    part_of(&mut c, &tasks, RunLinks::default());
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    let run = open_added(&mut c, 7, &[], RunLinks::default());
    let reader = task("r").reads(&x).reads(&y).reads(&z).reads("/late").reads("/elsewhere").array();
    let known = c.core.consult(run, &reader);
    assert_eq!(known.makes, BTreeSet::from([x.clone(), y.clone(), "/late".into()]));
    assert!(known.dropped.is_empty() && known.clash.is_none());
    for (name, first) in [(&y, "w"), (&"/out".to_string(), "h")] {
        let clash = c.core.consult(run, &task("v").writes(name).array()).clash.expect("two write it");
        assert!(clash.starts_with(&format!("tasks `{first}` and `v` both write `{name}`")), "{clash}");
    }
    let here = KnownFiles::default();
    let parts = split_addition(&[(*reader).clone()], &[known, here.clone()]).unwrap_err();
    assert_eq!(parts, format!("task `r` reads `{z}`, which no task of the run writes"));
    let gone = KnownFiles { dropped: BTreeSet::from([z.clone()]), ..KnownFiles::default() };
    let why = split_addition(&[(*task("r").reads(&z).array()).clone()], &[gone, here]).unwrap_err();
    assert!(why.starts_with(&format!("task `r` reads `{z}`, which was dropped")), "{why}");
}

/// A result at home that a task of the first submission still makes, and one of another member reads.
#[test]
fn an_added_reader_at_another_dispatcher_learns_when_a_result_is_home() {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
    c.expect(&["tell 1 reads [] settled []", "assign 0.1 to 1", "tell 1 settled 1"]);
    let run = open_added(&mut c, 7, &[], RunLinks { imports: vec![], exports: vec!["/out".into()] });
    // The member that has committed the submission first subscribes first.
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared("/out")] });
    c.expect(&["tell 1 /out expected"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&["tell 1 settled 7"]);
    c.done(1, (0, 1)).home(1, (0, 1), true);
    c.expect(&["end 0 done", "end run 1", "tell 1 /out at home"]);
}

/// What an executor that comes back offers, with the attempt `0.1` of the process `owner`.
fn with_work_of(owner: u64) -> Offer {
    let attempts = vec![(TaskId(0), AttemptNo(1))];
    Offer {
        slots: 1,
        memory_bytes: 1_000,
        cache_bytes: 1_000,
        attempts,
        owner: Some(owner),
        ..Offer::default()
    }
}

#[test]
fn only_work_of_the_same_journal_is_taken_over() {
    let recovered = |journal: &[u64]| {
        let mut c = member(0);
        part_of(&mut c, &[task("w").writes("/out")], RunLinks::default());
        journal.iter().for_each(|i| c.feed(Event::Began { incarnation: *i, gave_nothing: false }));
        c.feed(Event::Recovered);
        c
    };
    let executor = ExecutorId(1);
    // The executor belongs to another member, or to an earlier user of this directory: its attempt has the
    // number of this task.
    let mut c = recovered(&[10, 30]);
    assert!(!c.core.is_own_work(&with_work_of(20)));
    c.feed(Event::ExecutorJoined { executor, offer: with_work_of(20) });
    c.wait(3).expect(&["assign 0.1 to 1"]);
    // An earlier process with this journal gave the attempt out.
    let mut c = recovered(&[10, 30]);
    assert!(c.core.is_own_work(&with_work_of(10)));
    c.feed(Event::ExecutorJoined { executor, offer: with_work_of(10) });
    c.wait(3).expect(&[]);
    c.done(1, (0, 1)).home(1, (0, 1), true).expect(&["end 0 done", "end run 1"]);
    // An executor without attempts is welcome, wherever it was before.
    assert!(c.core.is_own_work(&Offer { attempts: vec![], ..with_work_of(20) }));
}

#[test]
fn an_idle_executor_goes_to_the_dispatcher_that_it_can_help() {
    let mut c = member(0);
    c.node(1, 1).node(3, 1);
    let load = MemberLoad { n_slots: 2, n_ready: 9, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(1).expect(&[]);
    c.wait(3).expect(&["send 1 to 1"]);
    c.feed(Event::MemberLoadChanged {
        member: MemberId(1),
        load: MemberLoad { n_slots: 3, n_ready: 3, ..MemberLoad::default() },
    });
    c.wait(5).expect(&[]);
}

fn size(cpus: u32, memory_bytes: u64) -> Size {
    Size { cpu_parts: u64::from(cpus) * 1000, memory_bytes, ..Size::default() }
}

#[test]
fn an_idle_executor_goes_where_it_alone_is_large_enough() {
    let mut c = member(0);
    c.node(1, 1).node(3, 4);
    let load = MemberLoad { n_slots: 9, unfit: vec![size(2, 10), size(8, 0)], ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(4).expect(&["send 3 to 1"]);
}

#[test]
fn an_idle_executor_stays_while_a_task_waits_that_fits_it() {
    let mut c = Cluster::with(|config| {
        config.group = Some(Membership { me: MemberId(0), n_members: 2 });
        config.placement = "max-cache-hit".into();
    });
    let load = MemberLoad { n_slots: 9, unfit: vec![size(2, 0)], ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.node(1, 2);
    c.run(&[reads("a").cpus(2), reads("a").cpus(2).priority(-1)]);
    c.expect(&["assign 0.1 to 1"]).has(1, "a", "a", Some("1")).node(3, 2).wait(9).expect(&[]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 1.1 to 1"]);
    c.wait(4).expect(&["send 3 to 1"]);
    c.done(1, (1, 1)).expect(&["end 1 done", "end run 1"]);
}

#[test]
fn a_task_fails_as_too_large_only_where_no_dispatcher_has_a_node_for_it() {
    let mut c = member(0);
    c.run(&[task("large").cpus(4), task("never").cpus(9)]);
    c.node(1, 1);
    let load = |offers| MemberLoad { n_slots: 4, offers, ..MemberLoad::default() };
    // It is not known yet what the other member has.
    c.wait(20).expect(&[]);
    assert_eq!(c.core.load().unfit, [size(4, 0), size(9, 0)]);
    assert_eq!((c.core.load().n_ready, c.core.load().offers), (0, vec![size(1, 1_000_000_000)]));
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load: load(vec![size(4, 10), size(2, 20)]) });
    c.wait(17).expect(&["end 1 failed NeverFits"]);
    let TaskState::Ready { reason: Some(reason) } = c.state(0) else { panic!("{:?}", c.state(0)) };
    assert!(reason.contains("another dispatcher"), "{reason}");
    c.node(3, 4).expect(&["assign 0.1 to 3"]).done(3, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

/// It waited for ever: a node that is large enough may come of another dispatcher, but what the cluster lacks does not.
#[test]
fn a_task_that_needs_more_than_the_cluster_has_waits_for_no_other_dispatcher() {
    let mut c = Cluster::with(|config| {
        config.group = Some(Membership { me: MemberId(0), n_members: 2 });
        config.resources = [("vcs".to_string(), 1)].into();
    });
    c.run(&[task("licences").needs("vcs", 2)]);
    c.node(1, 1);
    let load = MemberLoad { n_slots: 4, offers: vec![size(4, 10)], ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(16).take();
    c.wait(1).take();
    assert_eq!(c.state(0), TaskState::Failed);
    let failures = c.core.work().runs().flat_map(|(_, r)| r.failures.iter());
    let said: Vec<&str> = failures.map(|(_, failure)| failure.message.as_str()).collect();
    assert_eq!(said, ["the task needs 2 of `vcs`; the whole cluster has 1"]);
}

/// It counted as one that ends here, and was told to drain while it was on its way.
#[test]
fn an_executor_that_goes_to_another_dispatcher_is_not_drained_for_its_walltime() {
    let mut c = member(0);
    let walltime = Some(Walltime { whole_ns: 80_000_000_000, left_ns: 80_000_000_000 });
    c.offers(1, Offer { slots: 1, cache_bytes: 1_000_000, walltime, ..Offer::default() }).node(3, 1);
    let load = MemberLoad { n_slots: 2, n_ready: 9, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(1).expect(&[]);
    c.wait(3).expect(&["send 1 to 1"]);
    let load = MemberLoad { n_slots: 3, n_ready: 3, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(75).expect(&[]);
}

fn courier(name: &str, slots: u32) -> Option<Courier> {
    Some(Courier { name: name.into(), size: size(slots, 1_000_000_000) })
}

/// The first member, whose task reads `x` of the other member; the only node here does not reach the node that has it.
fn with_unreached(x: &str) -> Cluster {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("r").reads(x)], RunLinks::default());
    message_from(&mut c, 1, LinkMessage::File { file: shared(x), state: held(&[2]) });
    c.feed(Event::PeerUnreachable { executor: ExecutorId(1), peer: ExecutorId(2) });
    c.failed(1, (0, 1), FailureKind::InputLost).take();
    message_from(&mut c, 1, LinkMessage::File { file: shared(x), state: held(&[2]) });
    c.expect(&[]);
    assert!(c.core.load().calls);
    // The other member's node is larger.
    let load = MemberLoad { n_slots: 4, candidate: courier("n9", 4), ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(1).expect(&[&format!("tell 1 carry {x}")]);
    assert_eq!(c.core.load().courier, courier("n9", 4));
    assert!(!c.core.load().calls, "the courier is to get the file first");
    c
}

fn carried(carried: Carried) -> FileState {
    let FileState::Held { digest, size_bytes, holders, .. } = held(&[2]) else { unreachable!() };
    FileState::Held { digest, size_bytes, holders, carried }
}

#[test]
fn a_task_whose_input_no_node_of_its_dispatcher_reaches_runs_on_the_courier_that_brings_it() {
    let x = name_at(1, 2, "x");
    let mut c = with_unreached(&x);
    assert_eq!(
        c.core.waits_for(TaskId(0)),
        format!(
            "`{x}`, as no node here reaches a node that has it: node `n9` brings it from another dispatcher"
        )
    );
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: carried(Carried::Yes) });
    c.expect(&[]);
    assert!(c.core.load().calls);
    // It has lost the file on the way: it has to get it once more.
    c.node(9, 4).expect(&[&format!("tell 1 carry {x}")]);
    assert!(!c.core.load().calls);
    c.has(9, &format!("run:here.1/{}", &x[4..]), "x", None).expect(&["assign 0.2 to 9"]);
    c.done(9, (0, 2)).take();
    assert_eq!(c.state(0), TaskState::Done);
}

#[test]
fn a_task_fails_whose_input_the_courier_cannot_get() {
    let x = name_at(1, 2, "x");
    let mut c = with_unreached(&x);
    message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: carried(Carried::Never) });
    for attempt in 2.. {
        c.take();
        if c.state(0) == TaskState::Failed {
            break;
        }
        c.failed(1, (0, attempt), FailureKind::InputLost);
        message_from(&mut c, 1, LinkMessage::File { file: shared(&x), state: carried(Carried::Never) });
        c.wait(60);
        assert!(attempt < 10, "it fails at some time");
    }
}

/// The first member has made `x`. The other member's nodes do not reach it, and the courier has come.
fn with_courier_at_the_owner(x: &str, writes: Task) -> Cluster {
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[writes.writes(x)], RunLinks::default());
    c.done(1, (0, 1)).home(1, (0, 1), true);
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(x)] });
    let load = MemberLoad { calls: true, candidate: courier("n9", 4), ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(1);
    message_from(&mut c, 1, LinkMessage::Carry { file: shared(x) });
    assert!(c.core.load().calls);
    let load = MemberLoad { n_slots: 1, calls: true, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.take();
    let scoped = format!("run:here.1/{}", &x[4..]);
    c.node(9, 4).expect(&[&format!("prefetch {scoped} to 9")]);
    c.wait(1).expect(&[]);
    c
}

#[test]
fn the_courier_copies_the_file_and_goes_back_with_it() {
    let x = name_at(0, 2, "x");
    let mut c = with_courier_at_the_owner(&x, task("w"));
    let scoped = format!("run:here.1/{}", &x[4..]);
    c.has(9, &scoped, &scoped, None);
    assert!(c.take().contains(&format!("tell 1 {x} on 9 1, carried")));
    c.wait(1).expect(&["send 9 to 1"]);
    c.lost(9).take();
    // It is lent now, and carried as before. Where it has lost the file, the reader says so.
    message_from(&mut c, 1, LinkMessage::Carry { file: shared(&x) });
    c.expect(&[&format!("tell 1 {x} on 1")]);
    assert!(c.core.load().calls);
}

#[test]
fn a_file_that_the_courier_does_not_reach_is_made_again_there() {
    let x = name_at(0, 2, "x");
    let mut c = with_courier_at_the_owner(&x, task("w"));
    c.feed(Event::PeerUnreachable { executor: ExecutorId(9), peer: ExecutorId(1) });
    assert!(c.take().contains(&"rerun 0.32768 on 9".into()));
    c.wait(1).expect(&[]);
    c.done(9, (0, 32768));
    assert!(c.take().contains(&format!("tell 1 {x} on 9 1, carried")));
    c.wait(1).expect(&["send 9 to 1"]);
}

#[test]
fn a_maker_that_also_writes_home_is_revived_on_the_courier() {
    let x = name_at(0, 2, "x");
    let mut c = with_courier_at_the_owner(&x, task("w").writes("home"));
    c.feed(Event::PeerUnreachable { executor: ExecutorId(9), peer: ExecutorId(1) });
    let said = c.take();
    assert!(said.iter().any(|said| said.starts_with("revive 0")), "{said:?}");
    let TaskState::Reserved { executor, .. } = c.wait(1).state(0) else { panic!("{:?}", c.state(0)) };
    assert_eq!(executor, ExecutorId(9));
}

#[test]
fn a_courier_that_nobody_has_is_replaced_after_a_minute() {
    let x = name_at(1, 2, "x");
    let mut c = with_unreached(&x);
    let load = MemberLoad { n_slots: 2, candidate: courier("n6", 2), ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(50);
    assert_eq!(c.core.load().courier, courier("n9", 4));
    c.wait(12).take();
    assert_eq!(c.core.load().courier, courier("n6", 2));
}

/// This dispatcher has just started again, and the courier is on its way between two others.
#[test]
fn a_task_that_the_courier_is_large_enough_for_does_not_fail_while_no_dispatcher_has_it() {
    let mut c = member(0);
    c.node(1, 1);
    let load = MemberLoad { n_slots: 1, courier: courier("n9", 4), ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    part_of(&mut c, &[task("big").cpus(4)], RunLinks::default());
    c.wait(55).take();
    assert!(!matches!(c.state(0), TaskState::Failed), "{}", c.core.waits_for(TaskId(0)));
    c.wait(10).wait(17).take();
    assert_eq!(c.state(0), TaskState::Failed);
}

/// The only executor that has it went to another dispatcher, and does not give it.
#[test]
fn a_file_that_no_lent_copy_gives_to_the_courier_is_made_again() {
    let x = name_at(0, 2, "x");
    let mut c = member(0);
    c.node(1, 1);
    c.feed(Event::MemberConnected { member: MemberId(1) });
    part_of(&mut c, &[task("w").writes(&x)], RunLinks::default());
    c.done(1, (0, 1)).home(1, (0, 1), true);
    message_from(&mut c, 1, LinkMessage::Subscribed { files: vec![shared(&x)] });
    let load = MemberLoad {
        unfit: vec![size(1, 0)],
        calls: true,
        candidate: courier("n9", 4),
        ..MemberLoad::default()
    };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    assert!(c.wait(4).take().contains(&"send 1 to 1".into()));
    c.lost(1).take();
    message_from(&mut c, 1, LinkMessage::Carry { file: shared(&x) });
    c.take();
    let scoped = format!("run:here.1/{}", &x[4..]);
    assert!(c.node(9, 4).take().contains(&format!("prefetch {scoped} to 9")), "as others have it");
    let object = c.core.work().catalog().find(CatalogLocation::of(&scoped)).expect("it was read");
    let failure = |batch| Event::PrefetchFailed {
        executor: ExecutorId(9),
        batch: BatchId(batch),
        object,
        kind: TransferErrorKind::Unavailable,
    };
    (0..9).for_each(|batch| c.feed(failure(batch)));
    let said = c.wait(12).take();
    assert!(said.iter().any(|said| said.starts_with("revive 0")), "{said:?}");
}

/// On its way it was in nobody's load.
#[test]
fn a_task_does_not_fail_as_too_large_while_the_node_for_it_is_on_its_way() {
    let mut c = member(0);
    c.node(1, 1).node(3, 4);
    let load = |unfit| MemberLoad { n_slots: 1, unfit, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load: load(vec![size(4, 0)]) });
    c.wait(4).expect(&["send 3 to 1"]);
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load: load(vec![]) });
    c.lost(3).take();
    c.run(&[task("large").cpus(4)]);
    c.wait(30).expect(&[]);
    // It has got lost.
    c.wait(30).wait(17).expect(&["end 0 failed NeverFits", "end run 1"]);
}
