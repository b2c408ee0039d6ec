//! A submission to three members, word by word.

use super::{Input, No, Output, Submission};
use eyas_core::group::KnownFiles;
use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm};
use eyas_terms::{Digest, RunId};
use eyas_wire::message::{Addition, Keep, ReplyBody, RequestBody};
use std::sync::Arc;

const RUN: RunId = RunId(7);

/// A submission, and what it has said since somebody looked.
struct Case {
    submission: Submission,
    said: Vec<String>,
    tickets: Vec<u64>,
    told: Option<Result<ReplyBody, No>>,
}

impl Case {
    fn new(into: Option<RunId>) -> Case {
        let into = into.map(|run| Addition { run, token: "t".into(), digest: Digest::default() });
        let submission = Submission::new(3, "a run".into(), Keep::default(), into);
        let mut case = Case { submission, said: vec![], tickets: vec![0; 3], told: None };
        case.take(Input::Begin { is_here: vec![true; 3] });
        case
    }

    fn take(&mut self, input: Input) -> &mut Case {
        let mut out = vec![];
        self.submission.handle(input, &mut out);
        for output in out {
            let (member, body) = match output {
                Output::Ask { member, ticket, body } => {
                    self.tickets[member] = ticket;
                    (member, body)
                }
                Output::Say { member, body } => (member, body),
                Output::Split(splitting) => {
                    let parts = splitting.compute();
                    self.take(Input::Split(parts));
                    continue;
                }
                Output::Answer(told) => {
                    assert!(self.told.replace(told).is_none(), "it is told one thing at a time");
                    continue;
                }
            };
            let what = match body {
                RequestBody::OpenRun { .. } => "open",
                RequestBody::JoinRun { .. } => "join",
                RequestBody::Consult { .. } => "consult",
                RequestBody::LinkRun { .. } => "link",
                RequestBody::AddArray { .. } => "add",
                RequestBody::PrepareRun { .. } => "prepare",
                RequestBody::CommitRun { .. } => "commit",
                RequestBody::AbortRun { .. } => "abort",
                other => panic!("it says {other:?}"),
            };
            self.said.push(format!("{what} {member}"));
        }
        self
    }

    fn answer(&mut self, member: usize, body: ReplyBody) -> &mut Case {
        let ticket = self.tickets[member];
        self.take(Input::Answered { member, ticket, body })
    }

    fn opened(&mut self, member: usize) -> &mut Case {
        self.answer(member, ReplyBody::RunOpened { run: RUN, was_over: false, incarnation: 1 })
    }

    fn prepared(&mut self, member: usize) -> &mut Case {
        self.answer(member, ReplyBody::RunPrepared { run: RUN, n_tasks: 1 })
    }

    fn refused(&mut self, member: usize, reason: &str) -> &mut Case {
        self.answer(member, ReplyBody::Refused { reason: reason.into() })
    }

    fn says(&mut self, expected: &[&str]) -> &mut Case {
        assert_eq!(std::mem::take(&mut self.said), expected);
        self
    }

    /// Opened, and three tasks that go to a member each.
    fn filled(into: Option<RunId>) -> Case {
        let mut case = Case::new(into);
        case.says(&["open 0"]).opened(0);
        assert!(matches!(case.told.take(), Some(Ok(ReplyBody::RunOpened { .. }))));
        let template = TaskForm::new(Pattern::literal("t"), Command::Exec(vec![Pattern::literal("work")]));
        let array = TaskArray { n_tasks: 3, first_index: 0, columns: vec![], template, needs: None };
        case.take(Input::Array(Arc::new(array))).take(Input::Commit).says(&["join 1", "join 2"]);
        case
    }
}

const HAND_OUT: [&str; 8] =
    ["link 0", "add 0", "link 1", "add 1", "prepare 1", "link 2", "add 2", "prepare 2"];

#[test]
fn the_first_member_commits_when_all_others_have_prepared() {
    let mut case = Case::filled(None);
    case.opened(2).says(&[]).opened(1).says(&HAND_OUT);
    case.prepared(1).says(&[]).prepared(2).says(&["commit 0"]);
    case.answer(0, ReplyBody::RunAccepted { run: RUN, n_tasks: 1, again: false }).says(&[]);
    assert_eq!(case.told, Some(Ok(ReplyBody::RunAccepted { run: RUN, n_tasks: 3, again: false })));
}

#[test]
fn all_members_are_asked_before_an_addition_is_split() {
    let mut case = Case::filled(Some(RunId(1)));
    case.opened(1).opened(2).says(&["consult 0", "consult 1", "consult 2"]);
    let known = || ReplyBody::Consulted(Box::<KnownFiles>::default());
    case.answer(0, known()).answer(1, known()).says(&[]).answer(2, known()).says(&HAND_OUT);
}

#[test]
fn the_first_refusal_gives_the_reason_when_all_members_have_answered() {
    let mut case = Case::filled(None);
    case.opened(1).opened(2).says(&HAND_OUT);
    case.refused(2, "why").refused(2, "there is no such run").says(&[]);
    case.prepared(1).says(&["abort 0", "abort 1", "abort 2"]);
    assert_eq!(case.told, Some(Err(No::Refused("why".into()))));
}

#[test]
fn a_member_that_was_lost_is_away_though_it_is_connected_again() {
    let mut case = Case::filled(Some(RunId(1)));
    case.opened(1).opened(2).take(Input::Lost { member: 2 });
    let known = || ReplyBody::Consulted(Box::<KnownFiles>::default());
    case.answer(0, known()).answer(1, known());
    assert_eq!(case.told, Some(Err(No::Away(2))));
    // Before it joins, a member has nothing to lose.
    let mut case = Case::new(None);
    case.take(Input::Lost { member: 1 }).opened(0).take(Input::Commit);
    case.says(&["open 0", "join 1", "join 2"]);
}

#[test]
fn nothing_goes_on_without_the_first_member() {
    let mut case = Case::filled(None);
    case.opened(1).take(Input::Lost { member: 0 });
    case.says(&["abort 0", "abort 1", "abort 2"]);
    assert_eq!(case.told.take(), Some(Err(No::Away(0))));
    case.opened(2).says(&[]);
    assert_eq!(case.told, None);
}

#[test]
fn a_submission_that_was_accepted_before_is_not_submitted_again() {
    let mut case = Case::new(Some(RunId(1)));
    let accepted = ReplyBody::RunAccepted { run: RunId(1), n_tasks: 3, again: true };
    case.says(&["open 0"]).answer(0, accepted.clone()).says(&[]);
    assert_eq!(case.told, Some(Ok(accepted)));
}
