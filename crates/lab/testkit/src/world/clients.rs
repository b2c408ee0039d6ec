//! Clients of the world: each tries to have one plan accepted, with the session of a live client.
//!
//! A client has a connection to each dispatcher. It breaks and is made again, or not: a client may go away at
//! any time. The next client then has to find out what became of the submission. A client that submits a run
//! asks the first dispatcher whether the run was accepted; a client that adds to a run repeats the submission
//! with the same token.

use super::plans::{Kind, Plan, PlanState};
use super::{S, World};
use crate::happening::{Asks, Ev, Next, Parts};
use crate::home::digest_of;
use crate::process::NO_SPACE;
use eyas_core::group::split::Part;
use eyas_session::client::{Input, No, Output, Submission};
use eyas_terms::array::TaskSpec;
use eyas_terms::*;
use eyas_wire::message::{Addition, Keep, ReplyBody, RequestBody};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long until a client connects again, or another client tries again.
const RETRY_NS: u64 = S / 4;

/// All clients, and their connections.
#[derive(Default)]
pub(super) struct Clients {
    by_number: BTreeMap<u64, Client>,
    n_clients: u64,
    /// The client and the dispatcher of each connection.
    lives: BTreeMap<u64, (u64, usize)>,
    cut_until: BTreeMap<usize, Timestamp>,
}

impl Clients {
    /// The connections to dispatcher `m`.
    pub(super) fn lives_at(&self, m: usize) -> Vec<u64> {
        self.by_number.values().filter_map(|client| client.lines[m]).collect()
    }
}

/// One try at a plan.
struct Client {
    plan: usize,
    submission: Submission,
    /// The connection to each member, while there is one.
    lines: Vec<Option<u64>>,
}

impl World {
    // ------------------------------------------------------------ tries

    /// A client submits a plan, if it is time to; otherwise later.
    pub(super) fn try_plan(&mut self, plan: usize) {
        match self.plans[plan].state {
            PlanState::Waits => {}
            PlanState::Unknown(run) => match self.what_became_of(plan, run) {
                Some(true) => return self.plans[plan].state = PlanState::Accepted(run),
                Some(false) => self.plans[plan].state = PlanState::Waits,
                None => return self.after(S, Ev::Submit { plan }),
            },
            PlanState::Tries
            | PlanState::Opened(_)
            | PlanState::Submitted(_)
            | PlanState::Accepted(_)
            | PlanState::Refused => return,
        }
        let p = &self.plans[plan];
        if p.after.iter().any(|other| !self.plans[*other].is_decided()) {
            return self.after(S / 2, Ev::Submit { plan });
        }
        let mut into = None;
        if p.token_of != plan && !self.plans[p.token_of].is_accepted() {
            return self.plans[plan].state = PlanState::Refused;
        }
        if let Some(whole) = p.into {
            let run = match self.plans[whole].state {
                PlanState::Accepted(run) => run,
                PlanState::Refused => return self.plans[plan].state = PlanState::Refused,
                _ => return self.after(S / 2, Ev::Submit { plan }),
            };
            if self.reads_in_vain(plan) {
                return self.plans[plan].state = PlanState::Refused;
            }
            let digest = digest_of(&format!("tasks of plan {}", p.digest_of));
            into = Some(Addition { run, token: format!("plan {}", p.token_of), digest });
        }
        let n_members = self.members.len();
        let p = &mut self.plans[plan];
        p.state = PlanState::Tries;
        p.n_tries += 1;
        let name = name_of_try(plan, p.n_tries);
        let keep = Keep { files: p.keep, printed: false };
        let submission = Submission::new(n_members, name, keep, into);
        self.clients.n_clients += 1;
        let c = self.clients.n_clients;
        self.clients.by_number.insert(c, Client { plan, submission, lines: vec![None; n_members] });
        (0..n_members).for_each(|m| self.connect_client(c, m));
        let is_here = self.clients.by_number[&c].lines.iter().map(Option::is_some).collect();
        self.tell_client(c, Input::Begin { is_here });
    }

    /// Whether the run was accepted; `None` while the first member is away or has not decided.
    fn what_became_of(&self, plan: usize, run: RunId) -> Option<bool> {
        let process = self.members[0].process.as_ref()?;
        let core = process.core();
        let name = name_of_try(plan, self.plans[plan].n_tries);
        if process.journal().was_forgotten_as(run, &name) {
            return Some(true); // The run has ended, too.
        }
        // After a restart the run's number may have been given again.
        match core.work().find_run(run).filter(|r| r.name == name) {
            Some(_) => core.is_accepted(run).then_some(true),
            None => Some(false),
        }
    }

    /// Whether a task of the plan reads a result that no task was asked to make, so that it would fail.
    fn reads_in_vain(&self, plan: usize) -> bool {
        let p = &self.plans[plan];
        let accepted = self.plans.iter().filter(|other| other.is_accepted());
        let arrays = accepted.chain([p]).flat_map(|p| &p.arrays);
        let written: BTreeSet<String> = arrays.flat_map(|a| a.expand(0).outputs).map(|(_, l)| l).collect();
        let mut inputs = p.arrays.iter().flat_map(|a| a.expand(0).inputs);
        inputs.any(|(_, l)| l.starts_with("out/") && !written.contains(&l))
    }

    fn connect_client(&mut self, c: u64, m: usize) {
        let is_cut = self.clients.cut_until.get(&m).is_some_and(|until| *until > self.calendar.now);
        if self.members[m].process.is_none() || is_cut {
            return;
        }
        let life = self.links.connect(m);
        self.clients.lives.insert(life, (c, m));
        self.clients.by_number.get_mut(&c).expect("it is there").lines[m] = Some(life);
        self.with(m, |process, now| process.on_client_connected(now, life));
    }

    pub(super) fn on_client_connect(&mut self, c: u64, m: usize) {
        if self.clients.by_number.get(&c).is_some_and(|client| client.lines[m].is_none()) {
            self.connect_client(c, m);
            if self.clients.by_number[&c].lines[m].is_none() {
                self.after(RETRY_NS, Ev::ClientConnect { c, m });
            }
        }
    }

    // ------------------------------------------------------------ the client's inputs and outputs

    fn tell_client(&mut self, c: u64, input: Input) {
        let Some(mut client) = self.clients.by_number.remove(&c) else { return };
        let mut inputs = VecDeque::from([input]);
        let mut answer = None;
        while let Some(input) = inputs.pop_front() {
            let mut out = vec![];
            client.submission.handle(input, &mut out);
            for output in out {
                match output {
                    Output::Ask { member, ticket, body } => match client.lines[member] {
                        Some(life) => self.client_says(life, ticket, body),
                        None => inputs.push_back(Input::Lost { member }),
                    },
                    Output::Say { member, body } => {
                        client.lines[member]
                            .into_iter()
                            .for_each(|life| self.client_says(life, 0, body.clone()));
                    }
                    // Long enough to be killed meanwhile.
                    Output::Split(splitting) => {
                        let takes = self.lasts(S);
                        let parts = splitting.compute();
                        let ids = |part: &Part| part.arrays.iter().map(|a| a.expand(0).id).collect();
                        self.plans[client.plan].shares = parts.iter().flatten().map(ids).collect();
                        self.after(takes, Ev::Split { c, parts: Parts(parts) });
                    }
                    Output::Answer(word) => answer = Some(word),
                }
            }
        }
        let (plan, run) = (client.plan, client.submission.run());
        self.clients.by_number.insert(c, client);
        match answer {
            None => {}
            Some(Ok(ReplyBody::RunOpened { .. })) => {
                self.account.run_since.insert(run, self.calendar.now);
                self.on_opened(c, plan);
            }
            Some(Ok(ReplyBody::RunAccepted { run, again, .. })) => {
                self.leave(c);
                self.on_accepted(plan, run, again);
            }
            Some(Ok(other)) => panic!("a submission is answered with {other:?}"),
            Some(Err(no)) => {
                self.leave(c);
                self.on_refused(plan, run, no);
            }
        }
    }

    fn client_says(&mut self, life: u64, number: u64, body: RequestBody) {
        let at = self.arrival(life, false);
        self.after(at, Ev::FromClient { life, number, body: Asks(body) });
    }

    pub(super) fn on_client_said(&mut self, life: u64, number: u64, body: Asks) {
        let m = self.links.lives[&life];
        self.with(m, |process, now| process.on_request(now, life, number, body.0));
    }

    pub(super) fn on_split(&mut self, c: u64, parts: Parts) {
        self.tell_client(c, Input::Split(parts.0));
    }

    pub(super) fn on_to_client(&mut self, life: u64, ticket: u64, body: ReplyBody) {
        let (c, member) = self.clients.lives[&life];
        if self.clients.by_number.get(&c).is_some_and(|client| client.lines[member] == Some(life)) {
            self.tell_client(c, Input::Answered { member, ticket, body });
        }
    }

    /// The client notices that a connection is gone.
    pub(super) fn on_client_cut(&mut self, life: u64) {
        let (c, member) = self.clients.lives[&life];
        let Some(client) =
            self.clients.by_number.get_mut(&c).filter(|client| client.lines[member] == Some(life))
        else {
            return;
        };
        client.lines[member] = None;
        self.after(RETRY_NS, Ev::ClientConnect { c, m: member });
        self.tell_client(c, Input::Lost { member });
    }

    /// Connections of clients to a member break, and are not made again for a while. The clients notice that
    /// later.
    pub(super) fn cut_clients(&mut self, m: usize) {
        let lasts = self.lasts(self.o.away_ns_max);
        self.clients.cut_until.insert(m, self.calendar.now.plus_ns(lasts));
        for life in self.clients.lives_at(m) {
            self.after(0, Ev::ClientCut { life });
            let takes = self.lasts(3 * S);
            self.after(takes, Ev::Cut { life });
        }
    }

    /// The client is gone, and its connections with it.
    fn leave(&mut self, c: u64) {
        let client = self.clients.by_number.remove(&c).expect("it is there");
        for life in client.lines.into_iter().flatten() {
            let at = self.arrival(life, false);
            self.after(at, Ev::Cut { life });
        }
    }

    fn on_opened(&mut self, c: u64, plan: usize) {
        for array in self.plans[plan].arrays.clone() {
            self.tell_client(c, Input::Array(array));
        }
        let leaves = self.faults && self.rng.below(1000) < self.o.clients_leave;
        let next = match leaves {
            false => Next::Commit,
            true if self.rng.below(2) == 0 => Next::Abort,
            true => Next::Leave,
        };
        let takes = self.lasts(S);
        self.after(takes, Ev::ClientNext { c, next });
        if leaves {
            // A client that sends tasks may be killed at any step after that, too.
            let takes = self.lasts(3 * S);
            self.after(takes, Ev::ClientNext { c, next: Next::Leave });
        }
    }

    pub(super) fn on_client_next(&mut self, c: u64, next: Next) {
        let Some(client) = self.clients.by_number.get(&c) else { return };
        let (plan, run) = (client.plan, client.submission.run());
        match next {
            Next::Commit => return self.tell_client(c, Input::Commit),
            Next::Abort => self.tell_client(c, Input::Abort),
            Next::Leave => {}
        }
        self.leave(c);
        self.try_again(plan, run);
    }

    // ------------------------------------------------------------ the results of submissions

    /// A try has broken off.
    fn try_again(&mut self, plan: usize, run: RunId) {
        let p = &mut self.plans[plan];
        p.state = match p.into.is_none() && run != RunId::default() {
            true => PlanState::Unknown(run),
            false => PlanState::Waits,
        };
        let wait = RETRY_NS + self.lasts(2 * S);
        self.after(wait, Ev::Submit { plan });
    }

    fn on_accepted(&mut self, plan: usize, run: RunId, again: bool) {
        self.trace.add(format!("             plan {plan} is accepted as {run:?}, again {again}"));
        let p = &self.plans[plan];
        let whole = p.into.map(|whole| self.plans[whole].state);
        assert!(
            whole.is_none_or(|whole| whole == PlanState::Accepted(run)),
            "tasks were to be added to another run than {run:?}"
        );
        match p.kind {
            Kind::Good => {
                assert!(!again || p.n_tries > 1, "plan {plan} was accepted before it was submitted")
            }
            Kind::Again => assert!(again, "promise 1: what was added is added again: plan {plan}"),
            kind => panic!("plan {plan} is accepted, and it is {kind:?}"),
        }
        self.plans[plan].state = PlanState::Accepted(run);
    }

    fn on_refused(&mut self, plan: usize, run: RunId, no: No) {
        match no {
            No::Absent(_) | No::Away(_) => self.try_again(plan, run),
            // The journal of some dispatcher has no room at present.
            No::Refused(reason) if reason.contains(NO_SPACE) => self.try_again(plan, run),
            No::Refused(reason) => {
                self.trace.add(format!("             plan {plan} is refused: {reason}"));
                if self.is_rightly_refused(plan, &reason) {
                    self.plans[plan].state = PlanState::Refused;
                } else {
                    // The rest of an earlier try is in the way. It is given up in a moment.
                    let own = self.plans[plan].is_own_clash(&reason);
                    assert!(
                        own && self.plans[plan].into.is_none() && self.plans[plan].n_tries > 1,
                        "promise 4: plan {plan} is refused without a cause: {reason}"
                    );
                    self.try_again(plan, RunId::default());
                }
            }
        }
    }

    /// Whether the reason for refusing a submission is true.
    fn is_rightly_refused(&self, plan: usize, reason: &str) -> bool {
        let p = &self.plans[plan];
        let Some(whole) = p.into else { return false };
        let has = |words: &str| reason.contains(words);
        let tasks = self.tasks_of(whole);
        let ended = if self.o.is_plain() { &self.account.ever_done } else { &self.account.ever_ended };
        let is_done = |id: &String| ended.contains(id);
        let is_over = tasks.iter().all(|task| is_done(&task.id));
        if has("has ended; submit a run of its own") {
            return is_over;
        }
        if has("was cancelled") {
            return self.o.n_cancels > 0;
        }
        if has("has ended and was forgotten") {
            return is_over && self.plans[whole].run().is_some_and(|run| self.is_forgotten(run));
        }
        match p.kind {
            Kind::OtherTasks => return has("was used to add other tasks"),
            Kind::Clash if has("both write") => return true,
            Kind::Vain if has("which no task of the run writes") => return true,
            Kind::Circle if has("in a circle") || has("both write") => return true,
            _ => {}
        }
        let makes = |task: &TaskSpec, location: &String| {
            task.outputs.iter().any(|(_, l)| l == location) || task.promises.contains(location)
        };
        let own: Vec<TaskSpec> = p.arrays.iter().map(|array| array.expand(0)).collect();
        let inputs = own.iter().flat_map(|task| &task.inputs).map(|(_, l)| l);
        let mut inputs = inputs.filter(|l| Location::of(l).stays() && has(l.as_str()));
        if has("which no task of the run writes") {
            return inputs.any(|l| !tasks.iter().chain(&own).any(|task| makes(task, l)));
        }
        if has("which was dropped when the last task that read it had ended") {
            return inputs.any(|l| {
                let mut files =
                    |task: &&TaskSpec| task.inputs.iter().chain(&task.outputs).any(|(_, f)| f == l);
                let mut concerned = tasks.iter().filter(&mut files).peekable();
                concerned.peek().is_some() && concerned.all(|task| is_done(&task.id))
            });
        }
        false
    }

    /// The tasks that a run was accepted with, and the tasks that were added to it since.
    pub(super) fn tasks_of(&self, whole: usize) -> Vec<TaskSpec> {
        let of_run = |(i, p): &(usize, &Plan)| {
            (*i == whole || p.into == Some(whole)) && p.kind == Kind::Good && p.is_accepted()
        };
        let plans = self.plans.iter().enumerate().filter(of_run);
        plans
            .filter(|(_, p)| p.kind == Kind::Good)
            .flat_map(|(_, p)| &p.arrays)
            .map(|a| a.expand(0))
            .collect()
    }
}

fn name_of_try(plan: usize, n_tries: u64) -> String {
    format!("plan {plan}, try {n_tries}")
}
