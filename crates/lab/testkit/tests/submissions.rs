//! Submissions whose clients go away, with the real session and its journal.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::group::{Membership, RunLinks};
use eyas_core::pattern::RunPatterns;
use eyas_session::dispatcher::Record;
use eyas_terms::{MemberId, RunId, Timestamp};
use eyas_testkit::build::{reads, task};
use eyas_testkit::process::{Journal, Process};
use eyas_wire::message::{Keep, ReplyBody, RequestBody};

/// The session gave a submission up whose client went away while the journal wrote the commit. In a group it told
/// the other members so, and a process that was killed then found the commit when it read its journal.
#[test]
fn a_submission_whose_commit_is_being_written_is_not_given_up() {
    let now = Timestamp(1);
    let mut process = Process::start(&DispatcherConfig::default(), 1, now, &mut Journal::default());
    let run = process.submit(now, &[reads("x").array()], false).expect("nothing refuses it");
    process.client_gone(now, run);
    process.settle(now);
    let is_given_up = |record: &Record<'_>| matches!(record, Record::RunAborted { .. });
    assert!(!process.journal().records.iter().any(is_given_up), "only the disk decides now");
    process.on_durable(now, process.journal().records.len());
    process.settle(now);
    assert!(process.core().is_accepted(run));
    let mut journal = process.into_journal();
    let later = Process::start(&DispatcherConfig::default(), 2, now, &mut journal);
    assert!(later.core().is_accepted(run), "a later process finds the same");
}

/// A client prepares a part and gives it up at once, and another client's part has the same number before the record
/// of the first one is durable. The session took the second part for prepared then, and refused the rest of it.
#[test]
fn a_part_is_not_prepared_by_the_record_of_an_earlier_one_with_its_number() {
    let (now, run) = (Timestamp(1), RunId(2));
    let group = Some(Membership { me: MemberId(1), n_members: 2 });
    let config = DispatcherConfig { group, ..DispatcherConfig::default() };
    let mut process = Process::start(&config, 1, now, &mut Journal::default());
    let join = |name: &str| RequestBody::JoinRun {
        run,
        opened_by: 1,
        name: name.into(),
        keep: Keep::default(),
        into: None,
    };
    for life in [1, 2] {
        process.on_client_connected(now, life);
    }
    process.on_request(now, 1, 1, join("first"));
    process.on_request(now, 1, 2, RequestBody::PrepareRun { run });
    process.on_request(now, 1, 3, RequestBody::AbortRun { run });
    process.on_request(now, 2, 1, join("second"));
    process.on_durable(now, process.journal().records.len());
    process.settle(now);
    assert_eq!(process.in_doubt(), [], "nobody has prepared the second part");
    let (links, patterns) = (RunLinks::default(), RunPatterns::default());
    process.on_request(now, 2, 2, RequestBody::LinkRun { run, links, patterns });
    process.on_request(now, 2, 3, RequestBody::PrepareRun { run });
    process.on_durable(now, process.journal().records.len());
    let replies = process.settle(now).to_clients;
    let is_prepared = |(life, number, body): &(u64, u64, ReplyBody)| {
        (*life, *number) == (2, 3) && matches!(body, ReplyBody::RunPrepared { .. })
    };
    assert!(replies.iter().any(is_prepared), "{replies:?}");
    assert_eq!(process.in_doubt(), [run]);
}

/// A first dispatcher was killed, and the next process gave the number of its submission to another client. The first
/// client, which had not noticed yet, took the second one's place at another member, and the second was refused.
#[test]
fn a_client_whose_first_dispatcher_was_killed_does_not_take_the_place_of_a_later_one() {
    let (now, run) = (Timestamp(1), RunId(2));
    let group = Some(Membership { me: MemberId(1), n_members: 2 });
    let config = DispatcherConfig { group, ..DispatcherConfig::default() };
    let mut process = Process::start(&config, 1, now, &mut Journal::default());
    let join = |opened_by: u64, name: &str| RequestBody::JoinRun {
        run,
        opened_by,
        name: name.into(),
        keep: Keep::default(),
        into: None,
    };
    for life in [1, 2] {
        process.on_client_connected(now, life);
    }
    process.on_request(now, 2, 1, join(8, "later"));
    process.on_request(now, 1, 1, join(7, "earlier"));
    process.on_request(now, 1, 2, RequestBody::PrepareRun { run });
    process.on_request(now, 2, 2, RequestBody::PrepareRun { run });
    process.on_durable(now, process.journal().records.len());
    let replies = process.settle(now).to_clients;
    let of = |life: u64| -> Vec<&ReplyBody> {
        replies.iter().filter(|(to, ..)| *to == life).map(|(.., body)| body).collect()
    };
    assert_eq!(of(1), [&ReplyBody::OpenerGone, &ReplyBody::OpenerGone], "the first client tries again");
    assert!(matches!(of(2)[..], [ReplyBody::RunOpened { .. }, ReplyBody::RunPrepared { .. }]), "{replies:?}");
    assert_eq!(process.core().work().find_run(run).map(|r| r.name.as_str()), Some("later"));
}

/// Tasks without files start while the journal is written. A process that is killed then leaves attempts of tasks that the journal does
/// not have: no later process gives their numbers to others.
#[test]
fn tasks_without_files_start_ahead_and_their_numbers_are_not_given_again() {
    let (now, config) = (Timestamp(1), DispatcherConfig::default());
    let mut process = Process::start(&config, 1, now, &mut Journal::default());
    let starts = |process: &Process, run: RunId| {
        process.core().work().find_run(run).is_some_and(|state| state.started)
    };
    let submit = |process: &mut Process, is_durable: bool, array| {
        let run = process.submit(now, &[array], false).expect("nothing refuses it");
        if is_durable {
            process.on_durable(now, process.journal().records.len());
        }
        process.settle(now);
        run
    };
    let first = submit(&mut process, false, task("first").array());
    assert!(!starts(&process, first), "the journal does not say yet which numbers are taken");
    process.on_durable(now, process.journal().records.len());
    process.settle(now);
    let second = submit(&mut process, false, task("second").array());
    let reader = submit(&mut process, false, reads("x").array());
    assert!(starts(&process, first) && starts(&process, second) && !starts(&process, reader));
    let lost = process.core().next_task();
    let mut journal = process.into_journal();
    journal.records.truncate(journal.n_durable);
    for life in 2..4 {
        let mut later = Process::start(&config, life, now, &mut journal);
        assert!(later.core().next_task() >= lost, "life {life}");
        let run = submit(&mut later, true, task("later").array());
        assert_eq!(later.core().work().tasks_of(run, 0).count(), 1);
        assert!(later.core().work().tasks_of(run, 0).all(|task| task >= lost));
        journal = later.into_journal();
    }
}
