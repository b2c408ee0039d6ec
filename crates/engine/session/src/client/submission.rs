//! One submission to a group of dispatchers: of a run in parts, or of tasks that are added to one.
//!
//! The first member opens it and gives it a number. When all tasks are known, the other members join. From then on no part of the
//! run ends or drops a file. So the answers to two questions still hold when the submission is decided: what do the members know
//! of its files, and would its tasks wait for themselves? Then the tasks are split and every member gets its part. All members
//! but the first *prepare* their parts, and the commit at the first member decides (see [`crate::dispatcher`], module `parts`).
//!
//! Each step asks some members at once, and is over when all of them have answered or are lost. If several members refuse, the
//! user gets the reason of one of them. All members are then told to give the submission up. If the first member
//! of the group is lost, the submission ends.
//!
//! If a connection breaks, the member gives up every part that came over it and is not prepared. So a member whose connection was
//! lost once is away for this submission, also when there is a new connection to it. Whoever submits may try again, and with the token of
//! an addition nothing is added twice.
//!
//! Not here: connections, and the work of splitting, which takes long for long lists ([`Splitting`]).

use super::circle::Search;
use eyas_core::dispatcher::has_ended;
use eyas_core::group::KnownFiles;
use eyas_core::group::split::{Part, split, split_addition};
use eyas_terms::RunId;
use eyas_terms::array::TaskArray;
use eyas_wire::message::{Addition, Keep, ReplyBody, RequestBody};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a submission is not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum No {
    /// This member was not there when it began, and all are needed.
    Absent(usize),
    /// This member was lost on the way. Where that was the first one and the commit was asked for, nobody knows what became of the
    /// submission until that member says so.
    Away(usize),
    /// A sentence.
    Refused(String),
}

#[derive(Clone, Debug)]
pub enum Input {
    /// These members are there; the submission is opened.
    Begin { is_here: Vec<bool> },
    /// Some of its tasks.
    Array(Arc<TaskArray>),
    /// The client has sent all arrays.
    Commit,
    /// Whoever submits gives it up, before the commit.
    Abort,
    /// A reply to a request with this ticket.
    Answered { member: usize, ticket: u64, body: ReplyBody },
    /// The connection to a member is gone, or was not there when it was needed.
    Lost { member: usize },
    /// What came of [`Output::Split`].
    Split(Result<Vec<Part>, String>),
}

#[derive(Debug)]
pub enum Output {
    /// A request to a member; replies to it come with this ticket, which several requests may share.
    Ask { member: usize, ticket: u64, body: RequestBody },
    /// A request to which no reply is wanted.
    Say { member: usize, body: RequestBody },
    /// Work to be done, however long that takes.
    Split(Splitting),
    /// The answer to whoever submits: one when the submission is opened, and one when it is committed. If the first answer is
    /// not `RunOpened`, no second one follows.
    Answer(Result<ReplyBody, No>),
}

/// The work of splitting a submission among the members.
#[derive(Debug)]
pub struct Splitting {
    arrays: Vec<Arc<TaskArray>>,
    known: Option<Vec<KnownFiles>>,
    n_members: u32,
}

impl Splitting {
    /// `Err`: why there can be no such run, in a sentence.
    pub fn compute(self) -> Result<Vec<Part>, String> {
        let arrays: Vec<TaskArray> = self.arrays.into_iter().map(Arc::unwrap_or_clone).collect();
        match self.known {
            Some(known) => split_addition(&arrays, &known),
            None => split(&arrays, self.n_members),
        }
    }
}

enum Step {
    New,
    Opening,
    /// It has its number; its tasks come.
    Filling,
    Joining,
    /// All members are asked about the files of array `next`.
    Consulting {
        next: usize,
        known: Vec<KnownFiles>,
    },
    Searching {
        search: Search,
        known: Vec<KnownFiles>,
    },
    Splitting,
    HandingOut,
    Committing {
        /// At all members but the first.
        n_tasks: u64,
    },
    Over,
}

/// What has come of what a member was asked in the present step.
#[derive(Clone, Debug)]
enum Asked {
    Nothing,
    Waits,
    Answered(Result<ReplyBody, No>),
}

/// See the module.
pub struct Submission {
    name: String,
    keep: Keep,
    into: Option<Addition>,
    arrays: Vec<Arc<TaskArray>>,
    /// As the first member numbered it.
    run: RunId,
    /// The incarnation of the first member's process that opened it.
    opened_by: u64,
    /// The first member's part of the run that is added to had ended.
    was_over: bool,
    step: Step,
    /// Of the present step.
    ticket: u64,
    /// By member.
    asked: Vec<Asked>,
    lost: BTreeSet<usize>,
}

impl Submission {
    pub fn new(n_members: usize, name: String, keep: Keep, into: Option<Addition>) -> Submission {
        Submission {
            name,
            keep,
            into,
            arrays: vec![],
            run: RunId::default(),
            opened_by: 0,
            was_over: false,
            step: Step::New,
            ticket: 0,
            asked: vec![Asked::Nothing; n_members],
            lost: BTreeSet::new(),
        }
    }

    /// The number that the first member gave it, once it has.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Takes one input; what is to be done comes out.
    pub fn handle(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin { is_here } => self.begin(&is_here, out),
            Input::Array(array) => self.arrays.push(array),
            Input::Commit if matches!(self.step, Step::Filling) => self.join(out),
            Input::Abort => {
                self.step = Step::Over;
                out.push(Output::Say { member: 0, body: RequestBody::AbortRun { run: self.run } });
            }
            Input::Answered { member, ticket, body } => {
                if ticket == self.ticket && matches!(self.asked[member], Asked::Waits) {
                    self.asked[member] = Asked::Answered(match body {
                        ReplyBody::Refused { reason } => Err(No::Refused(reason)),
                        ReplyBody::OpenerGone => Err(No::Away(0)),
                        body => Ok(body),
                    });
                }
            }
            Input::Lost { member } => {
                // The others have nothing of it before they join.
                if member == 0 || !matches!(self.step, Step::New | Step::Opening | Step::Filling) {
                    self.lost.insert(member);
                    if matches!(self.asked[member], Asked::Waits) {
                        self.asked[member] = Asked::Answered(Err(No::Away(member)));
                    }
                }
            }
            Input::Split(Ok(parts)) if matches!(self.step, Step::Splitting) => self.hand_out(parts, out),
            Input::Split(Err(reason)) if matches!(self.step, Step::Splitting) => {
                self.give_up(No::Refused(reason), out)
            }
            // It was given up before.
            Input::Commit | Input::Split(_) => {}
        }
        let is_underway = matches!(
            self.step,
            Step::Joining
                | Step::Consulting { .. }
                | Step::Searching { .. }
                | Step::Splitting
                | Step::HandingOut
        );
        if is_underway && self.lost.contains(&0) {
            // It has given the submission up, and may give its number to another one.
            self.give_up(No::Away(0), out);
        }
        self.go_on(out);
    }

    // ------------------------------------------------------------ asking

    /// A step begins that asks members.
    fn next_step(&mut self, step: Step) {
        self.step = step;
        self.ticket += 1;
        self.asked.fill(Asked::Nothing);
    }

    fn ask(&mut self, member: usize, body: RequestBody, out: &mut Vec<Output>) {
        if self.lost.contains(&member) {
            self.asked[member] = Asked::Answered(Err(No::Away(member)));
            return;
        }
        self.asked[member] = Asked::Waits;
        out.push(Output::Ask { member, ticket: self.ticket, body });
    }

    fn ask_each(&mut self, first: usize, body: impl Fn(&Submission) -> RequestBody, out: &mut Vec<Output>) {
        for member in first..self.asked.len() {
            self.ask(member, body(self), out);
        }
    }

    /// What the members answered, in their order, if all have; or why one did not.
    fn answers(&mut self) -> Option<Result<Vec<ReplyBody>, No>> {
        if self.asked.iter().any(|asked| matches!(asked, Asked::Waits)) {
            return None;
        }
        let asked = self.asked.iter_mut().map(|asked| std::mem::replace(asked, Asked::Nothing));
        let answers = asked.filter_map(|asked| match asked {
            Asked::Answered(answer) => Some(answer),
            _ => None,
        });
        Some(answers.collect())
    }

    fn go_on(&mut self, out: &mut Vec<Output>) {
        while !matches!(self.step, Step::New | Step::Filling | Step::Splitting | Step::Over) {
            let Some(answers) = self.answers() else { return };
            // Before that no member has anything of it, and after that the first one says what became of it.
            let is_held = !matches!(self.step, Step::Opening | Step::Committing { .. });
            let done = answers.and_then(|answers| self.on_answers(answers, out));
            match done {
                Err(no) if is_held => self.give_up(no, out),
                Err(no) => {
                    self.step = Step::Over;
                    out.push(Output::Answer(Err(no)));
                }
                Ok(()) => {}
            }
        }
    }

    /// All that were asked in this step have answered. Unless something is wrong, the next one begins.
    fn on_answers(&mut self, answers: Vec<ReplyBody>, out: &mut Vec<Output>) -> Result<(), No> {
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Opening => self.on_opened(answers, out),
            Step::Joining => self.on_joined(answers, out),
            Step::Consulting { next, known } => self.on_consulted(next, known, answers, out),
            Step::Searching { search, known } => self.on_upstream(search, known, answers, out),
            Step::HandingOut => self.on_prepared(answers, out),
            Step::Committing { n_tasks } => self.on_committed(n_tasks, answers, out),
            Step::New | Step::Filling | Step::Splitting | Step::Over => unreachable!("nobody was asked"),
        }
    }

    /// All members are told. Those who have prepared hear it from the first one, too, as it may be away now.
    fn give_up(&mut self, no: No, out: &mut Vec<Output>) {
        self.step = Step::Over;
        for member in 0..self.asked.len() {
            out.push(Output::Say { member, body: RequestBody::AbortRun { run: self.run } });
        }
        out.push(Output::Answer(Err(no)));
    }

    // ------------------------------------------------------------ the steps

    fn begin(&mut self, is_here: &[bool], out: &mut Vec<Output>) {
        if let Some(member) = is_here.iter().position(|is_here| !is_here) {
            self.step = Step::Over;
            out.push(Output::Answer(Err(No::Absent(member))));
            return;
        }
        self.next_step(Step::Opening);
        let (name, keep, into) = (self.name.clone(), self.keep, self.into.clone());
        self.ask(0, RequestBody::OpenRun { name, keep, into }, out);
    }

    fn on_opened(&mut self, answers: Vec<ReplyBody>, out: &mut Vec<Output>) -> Result<(), No> {
        if let [ReplyBody::RunOpened { run, was_over, incarnation }] = &answers[..] {
            (self.run, self.was_over, self.opened_by) = (*run, *was_over, *incarnation);
            self.step = Step::Filling;
        }
        // Where it was accepted before, that is all.
        out.extend(answers.into_iter().map(|answer| Output::Answer(Ok(answer))));
        Ok(())
    }

    fn join(&mut self, out: &mut Vec<Output>) {
        self.next_step(Step::Joining);
        let join = |s: &Submission| RequestBody::JoinRun {
            run: s.run,
            opened_by: s.opened_by,
            name: s.name.clone(),
            keep: s.keep,
            into: s.into.clone(),
        };
        self.ask_each(1, join, out);
    }

    /// From here on no part of the run that is added to ends, or drops a file.
    fn on_joined(&mut self, answers: Vec<ReplyBody>, out: &mut Vec<Output>) -> Result<(), No> {
        let mut all_over = self.was_over;
        for answer in answers {
            match answer {
                ReplyBody::RunOpened { was_over, .. } => all_over &= was_over,
                _ => return Err(makes_no_sense()),
            }
        }
        match &self.into {
            Some(addition) if all_over => Err(No::Refused(has_ended(addition.run))),
            Some(_) => self.consult(0, vec![KnownFiles::default(); self.asked.len()], out),
            None => self.split(None, out),
        }
    }

    /// Asks all members what they know of the files that array `next` names.
    fn consult(&mut self, next: usize, known: Vec<KnownFiles>, out: &mut Vec<Output>) -> Result<(), No> {
        let Some(array) = self.arrays.get(next).cloned() else {
            return match Search::begin(&self.arrays, &known) {
                Some(search) => self.search(search, known, out),
                None => self.split(Some(known), out),
            };
        };
        self.next_step(Step::Consulting { next, known });
        self.ask_each(0, |s| RequestBody::Consult { run: s.run, array: array.clone() }, out);
        Ok(())
    }

    fn on_consulted(
        &mut self,
        next: usize,
        mut known: Vec<KnownFiles>,
        answers: Vec<ReplyBody>,
        out: &mut Vec<Output>,
    ) -> Result<(), No> {
        for (known, answer) in known.iter_mut().zip(answers) {
            let ReplyBody::Consulted(more) = answer else { return Err(makes_no_sense()) };
            known.makes.extend(more.makes);
            known.dropped.extend(more.dropped);
            known.promised.extend(more.promised);
            known.clash = known.clash.take().or(more.clash);
        }
        self.consult(next + 1, known, out)
    }

    /// Looks for tasks that would write, or promise, what was promised to others that they wait for.
    fn search(
        &mut self,
        mut search: Search,
        known: Vec<KnownFiles>,
        out: &mut Vec<Output>,
    ) -> Result<(), No> {
        let Some(locations) = search.step() else {
            return match search.circle() {
                Some(circle) => Err(No::Refused(circle)),
                None => self.split(Some(known), out),
            };
        };
        self.next_step(Step::Searching { search, known });
        let locations = Arc::new(locations);
        self.ask_each(0, |s| RequestBody::Upstream { run: s.run, locations: locations.clone() }, out);
        Ok(())
    }

    fn on_upstream(
        &mut self,
        mut search: Search,
        known: Vec<KnownFiles>,
        answers: Vec<ReplyBody>,
        out: &mut Vec<Output>,
    ) -> Result<(), No> {
        for answer in answers {
            let ReplyBody::Upstream(found) = answer else { return Err(makes_no_sense()) };
            search.learn(found);
        }
        self.search(search, known, out)
    }

    fn split(&mut self, known: Option<Vec<KnownFiles>>, out: &mut Vec<Output>) -> Result<(), No> {
        self.step = Step::Splitting;
        let (arrays, n_members) = (std::mem::take(&mut self.arrays), self.asked.len() as u32);
        out.push(Output::Split(Splitting { arrays, known, n_members }));
        Ok(())
    }

    /// Every member gets its part. All but the first say when theirs is durable; of those the first refusal tells the reason.
    fn hand_out(&mut self, parts: Vec<Part>, out: &mut Vec<Output>) {
        self.next_step(Step::HandingOut);
        for (member, part) in parts.into_iter().enumerate() {
            let run = self.run;
            let link = RequestBody::LinkRun { run, links: part.links, patterns: part.patterns };
            let arrays = part.arrays.into_iter().map(|array| (run, Arc::new(array)));
            let arrays = arrays.map(|(run, array)| RequestBody::AddArray { run, array });
            let prepare = (member > 0).then_some(RequestBody::PrepareRun { run });
            for body in [link].into_iter().chain(arrays).chain(prepare) {
                match member {
                    // What it refuses it refuses again when it is to commit.
                    0 => out.push(Output::Say { member, body }),
                    _ => self.ask(member, body, out),
                }
            }
        }
    }

    fn on_prepared(&mut self, answers: Vec<ReplyBody>, out: &mut Vec<Output>) -> Result<(), No> {
        let mut n_tasks = 0;
        for answer in answers {
            match answer {
                ReplyBody::RunPrepared { n_tasks: n, .. } => n_tasks += n,
                _ => return Err(makes_no_sense()),
            }
        }
        self.next_step(Step::Committing { n_tasks });
        self.ask(0, RequestBody::CommitRun { run: self.run }, out);
        Ok(())
    }

    fn on_committed(
        &mut self,
        n_tasks: u64,
        answers: Vec<ReplyBody>,
        out: &mut Vec<Output>,
    ) -> Result<(), No> {
        match answers[..] {
            [ReplyBody::RunAccepted { run, n_tasks: n, .. }] => {
                let accepted = ReplyBody::RunAccepted { run, n_tasks: n_tasks + n, again: false };
                out.push(Output::Answer(Ok(accepted)));
                Ok(())
            }
            _ => Err(makes_no_sense()),
        }
    }
}

fn makes_no_sense() -> No {
    No::Refused("the dispatcher's answer to a submission makes no sense".into())
}
