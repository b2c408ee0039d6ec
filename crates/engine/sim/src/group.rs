//! Several dispatchers on a virtual clock: how many tasks a second a group gives out.
//!
//! In: a [`GroupCase`]. Out: a [`GroupSummary`]. The dispatchers are those of `eyas-core`, with the submission split and the messages
//! between them as live; each handles one event after the other and takes its time for it:
//!
//! | a dispatcher | takes |
//! |---|---|
//! | gives out a task | `decision_ns` (from its queue to its end, as [`crate::machine::Machine::dispatch_ns`]) |
//! | sends or receives a message about a file that crosses | `link_ns` a file |
//!
//! Nodes are as simple as can be: slots, a queue, and the time of a message to fetch a file that they lack. Nodes never limit the
//! rate here, so this model says how dispatchers scale and nothing else; [`crate::world`] is for all other questions.

use crate::agenda::Agenda;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_core::group::split::split;
use eyas_core::group::{LinkMessage, Membership};
use eyas_terms::array::{Command, Pattern, Piece, TaskArray, TaskForm};
use eyas_terms::*;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

const S: u64 = 1_000_000_000;
const RUN: RunId = RunId(1);

/// The group, its nodes and its tasks.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct GroupCase {
    pub n_dispatchers: u32,
    /// All nodes together; shared out evenly.
    pub n_nodes: u32,
    pub slots_per_node: u32,
    pub n_tasks: u32,
    /// Run time of a program.
    pub task_ns: u64,
    /// Half of the tasks make a file each, and the others read one of these each and make another. Of the files that are read, all
    /// but one in `n_dispatchers` cross to another dispatcher.
    pub crossing: bool,
    pub decision_ns: u64,
    pub link_ns: u64,
    pub message_ns: u64,
}

/// How fast a group was.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct GroupSummary {
    pub tasks_per_s: f64,
    pub makespan_ns: u64,
    /// Files that a dispatcher announced to another one, whose tasks read them.
    pub n_crossed: u64,
    /// Share of the time in which the busiest dispatcher, and the least busy one, had something to do.
    pub busiest: f64,
    pub least_busy: f64,
}

enum Ev {
    ToMember {
        member: u32,
        event: Event,
    },
    /// The member has time again.
    Handle {
        member: u32,
    },
    ToNode {
        node: u32,
        assignment: Box<Assignment>,
    },
    Drop {
        node: u32,
        objects: Vec<ObjectId>,
    },
    Ended {
        node: u32,
        assignment: Box<Assignment>,
        started: u64,
    },
    Tick,
}

/// One dispatcher of the group: its core, what waits to be handled by it, and how busy it was.
struct ModelledDispatcher {
    core: Dispatcher,
    inbox: VecDeque<Event>,
    free_at: u64,
    busy_ns: u64,
    /// An [`Ev::Handle`] is on the agenda.
    due: bool,
    ended: bool,
}

struct MemberNode {
    member: u32,
    id: ExecutorId,
    n_idle: u32,
    queue: VecDeque<Box<Assignment>>,
    store: FxHashSet<ObjectId>,
}

struct World<'a> {
    case: &'a GroupCase,
    now: u64,
    agenda: Agenda<Ev>,
    members: Vec<ModelledDispatcher>,
    nodes: Vec<MemberNode>,
    n_crossed: u64,
    actions: Vec<Action>,
}

/// Simulates one case. `Err`: the case is impossible, or its tasks never end, in one sentence.
pub fn simulate_group(case: &GroupCase) -> Result<GroupSummary, String> {
    let n = case.n_dispatchers;
    if n == 0 || case.n_nodes < n || case.slots_per_node == 0 || case.n_tasks < 2 {
        return Err("a group has at least one dispatcher, as many nodes with slots, and two tasks".into());
    }
    let mut members = vec![];
    for me in 0..n {
        let group = (n > 1).then_some(Membership { me: MemberId(me), n_members: n });
        let core = Dispatcher::new(DispatcherConfig { group, ..DispatcherConfig::default() })?;
        members.push(ModelledDispatcher {
            core,
            inbox: VecDeque::new(),
            free_at: 0,
            busy_ns: 0,
            due: false,
            ended: false,
        });
    }
    let mut world = World {
        case,
        now: 0,
        agenda: Agenda::default(),
        members,
        nodes: vec![],
        n_crossed: 0,
        actions: vec![],
    };
    world.begin()?;
    world.live()
}

impl World<'_> {
    fn begin(&mut self) -> Result<(), String> {
        let n = self.case.n_dispatchers;
        for member in 0..n {
            for other in (0..n).filter(|o| *o != member) {
                self.tell(member, Event::MemberConnected { member: MemberId(other) });
            }
        }
        for k in 0..self.case.n_nodes {
            let (member, id) = (k % n, ExecutorId(k + 1));
            let slots = self.case.slots_per_node;
            let node =
                MemberNode { member, id, n_idle: slots, queue: VecDeque::new(), store: FxHashSet::default() };
            self.nodes.push(node);
            let offer = Offer {
                name: format!("node{}", k + 1),
                slots,
                memory_bytes: u64::MAX >> 8,
                cache_bytes: u64::MAX >> 8,
                ..Offer::default()
            };
            self.tell(member, Event::ExecutorJoined { executor: id, offer });
        }
        for (part, member) in split(&arrays(self.case), n)?.into_iter().zip(0..) {
            self.tell(
                member,
                Event::RunOpened { run: RUN, name: "simulated".into(), keep: false, into: None },
            );
            if n > 1 {
                self.tell(member, Event::RunLinked { run: RUN, links: part.links });
                self.tell(member, Event::RunPatterns { run: RUN, patterns: part.patterns });
            }
            for array in part.arrays {
                self.tell(member, Event::ArrayAdded { run: RUN, array: Arc::new(array) });
            }
            self.tell(member, Event::RunCommitted { run: RUN });
        }
        self.schedule(S, Ev::Tick);
        Ok(())
    }

    fn live(mut self) -> Result<GroupSummary, String> {
        while !self.members.iter().all(|m| m.ended) {
            let Some((at_ns, event)) = self.agenda.pop() else {
                return Err("nothing will ever happen again, and there are tasks left".into());
            };
            self.now = at_ns;
            self.on(event);
            if self.now > 100_000 * S {
                return Err("the tasks never end".into());
            }
        }
        let makespan_ns = self.now.max(1);
        let shares = || self.members.iter().map(|m| m.busy_ns as f64 / makespan_ns as f64);
        Ok(GroupSummary {
            tasks_per_s: f64::from(self.case.n_tasks) * 1e9 / makespan_ns as f64,
            makespan_ns,
            n_crossed: self.n_crossed,
            busiest: shares().fold(0.0, f64::max),
            least_busy: shares().fold(f64::INFINITY, f64::min),
        })
    }

    fn schedule(&mut self, at_ns: u64, ev: Ev) {
        self.agenda.put(at_ns, ev);
    }

    fn tell(&mut self, member: u32, event: Event) {
        self.members[member as usize].inbox.push_back(event);
        self.handle(member);
    }

    fn on(&mut self, ev: Ev) {
        match ev {
            Ev::ToMember { member, event } => self.tell(member, event),
            Ev::Handle { member } => {
                self.members[member as usize].due = false;
                self.handle(member);
            }
            Ev::ToNode { node, assignment } => {
                self.nodes[node as usize].queue.push_back(assignment);
                self.start(node);
            }
            Ev::Drop { node, objects } => {
                for object in objects {
                    self.nodes[node as usize].store.remove(&object);
                }
            }
            Ev::Ended { node, assignment, started } => self.ended(node, &assignment, started),
            Ev::Tick => {
                for member in 0..self.case.n_dispatchers {
                    self.tell(member, Event::Ticked);
                }
                self.schedule(self.now + S, Ev::Tick);
            }
        }
    }

    /// The member handles the events that have come, as far as it has time.
    fn handle(&mut self, member: u32) {
        loop {
            let m = &mut self.members[member as usize];
            if m.free_at > self.now {
                if !m.inbox.is_empty() && !std::mem::replace(&mut m.due, true) {
                    let at_ns = m.free_at;
                    self.schedule(at_ns, Ev::Handle { member });
                }
                return;
            }
            let Some(event) = m.inbox.pop_front() else { return };
            let heard = match &event {
                Event::MemberTold { messages, .. } => messages.iter().map(n_files).sum(),
                _ => 0,
            };
            let mut actions = std::mem::take(&mut self.actions);
            m.core.handle(Timestamp(self.now), event, &mut actions);
            let mut cost_ns = heard * self.case.link_ns;
            for action in &actions {
                cost_ns += match action {
                    Action::Assign { .. } => self.case.decision_ns,
                    Action::TellMember { messages, .. } => {
                        messages.iter().map(n_files).sum::<u64>() * self.case.link_ns
                    }
                    _ => 0,
                };
            }
            m.free_at = self.now + cost_ns;
            m.busy_ns += cost_ns;
            let at_ns = m.free_at + self.case.message_ns;
            for action in actions.drain(..) {
                self.act(member, at_ns, action);
            }
            self.actions = actions;
        }
    }

    fn act(&mut self, member: u32, at_ns: u64, action: Action) {
        // Executors are numbered through over all members.
        let node = |executor: ExecutorId| executor.0 - 1;
        match action {
            Action::Assign { executor, assignment } => {
                self.schedule(at_ns, Ev::ToNode { node: node(executor), assignment })
            }
            Action::DropReplicas { executor, objects } => {
                self.schedule(at_ns, Ev::Drop { node: node(executor), objects })
            }
            Action::TellMember { member: to, messages } => {
                let is_file = |m: &LinkMessage| matches!(m, LinkMessage::File { .. });
                self.n_crossed += messages.iter().filter(|m| is_file(m)).count() as u64;
                let event = Event::MemberTold { member: MemberId(member), messages };
                self.schedule(at_ns, Ev::ToMember { member: to.0, event })
            }
            Action::EndRun { .. } => self.members[member as usize].ended = true,
            // Programs are short and no node is lost here: a task that is asked back has begun, and a file that is sent ahead is
            // fetched later.
            _ => {}
        }
    }

    fn start(&mut self, node: u32) {
        while self.nodes[node as usize].n_idle > 0 {
            let n = &mut self.nodes[node as usize];
            let Some(assignment) = n.queue.pop_front() else { return };
            n.n_idle -= 1;
            let fetches = assignment.inputs.iter().any(|input| !n.store.contains(&input.object));
            let fetch_ns = if fetches { 2 * self.case.message_ns } else { 0 };
            let at_ns = self.now + fetch_ns + self.case.task_ns;
            let started = self.now + fetch_ns;
            self.schedule(at_ns, Ev::Ended { node, assignment, started });
        }
    }

    fn ended(&mut self, number: u32, assignment: &Assignment, started: u64) {
        let (now, message_ns) = (self.now, self.case.message_ns);
        let node = &mut self.nodes[number as usize];
        node.n_idle += 1;
        let (member, executor) = (node.member, node.id);
        let mut added = vec![];
        for input in &assignment.inputs {
            if node.store.insert(input.object)
                && let Some(known) = &input.known
            {
                let (object, digest, size_bytes) = (input.object, known.digest, known.size_bytes);
                added.push(ReplicaAdded {
                    object,
                    digest,
                    size_bytes,
                    version: None,
                    run: None,
                    private: false,
                });
            }
        }
        let outputs = assignment.outputs.iter().zip(0..).map(|(object, output)| {
            node.store.insert(*object);
            let mut digest = [member as u8; 32];
            digest[..4].copy_from_slice(&object.0.to_le_bytes());
            OutputReport { output, digest: Digest(digest), size_bytes: 1000, marks: None }
        });
        let report = AttemptReport {
            task: assignment.task,
            attempt: assignment.attempt,
            outcome: Outcome::Done,
            times: Times { started: Timestamp(started), exited: Timestamp(now), ..Times::default() },
            inputs: vec![],
            in_memory: vec![],
            outputs: outputs.collect(),
            cpu_ns: self.case.task_ns,
            rss_bytes_max: 0,
            left: None,
        };
        if !added.is_empty() {
            let event = Event::ReplicasChanged { executor, added, dropped: vec![] };
            self.schedule(now + message_ns, Ev::ToMember { member, event });
        }
        let event = Event::AttemptEnded { executor, report: report.into() };
        self.schedule(now + message_ns, Ev::ToMember { member, event });
        self.start(number);
    }
}

/// How many files a message speaks of.
fn n_files(message: &LinkMessage) -> u64 {
    match message {
        LinkMessage::Reads { files, .. }
        | LinkMessage::Subscribed { files }
        | LinkMessage::Unsubscribed { files } => files.len() as u64,
        LinkMessage::Missed { .. } | LinkMessage::Carry { .. } | LinkMessage::File { .. } => 1,
        LinkMessage::Settled { .. } => 0,
    }
}

fn arrays(case: &GroupCase) -> Vec<TaskArray> {
    let name = |prefix: &str| Pattern(vec![Piece::Literal(prefix.into()), Piece::Index]);
    let array = |n_tasks: u32, id: &str, input: Option<&str>, output: Option<&str>| {
        let file = |prefix: Option<&str>| -> Vec<(Pattern, Pattern)> {
            prefix.map(|p| (Pattern::literal("file"), name(p))).into_iter().collect()
        };
        let template = TaskForm {
            inputs: file(input),
            outputs: file(output),
            ..TaskForm::new(name(id), Command::Exec(vec![Pattern::literal("true")]))
        };
        TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None }
    };
    if !case.crossing {
        return vec![array(case.n_tasks, "t", None, None)];
    }
    let half = case.n_tasks / 2;
    let (a, b) = (run_file("a"), run_file("b"));
    vec![array(case.n_tasks - half, "a", None, Some(&a)), array(half, "b", Some(&a), Some(&b))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(n_dispatchers: u32, crossing: bool) -> GroupCase {
        GroupCase {
            n_dispatchers,
            n_nodes: 16,
            slots_per_node: 8,
            n_tasks: 8000,
            task_ns: 10_000_000,
            crossing,
            decision_ns: S / 1322,
            link_ns: S / 13220,
            message_ns: 2_000_000,
        }
    }

    #[test]
    fn dispatchers_add_up() {
        for crossing in [false, true] {
            let alone = simulate_group(&case(1, crossing)).unwrap();
            assert!((1200.0..1330.0).contains(&alone.tasks_per_s), "{alone:?}");
            let four = simulate_group(&case(4, crossing)).unwrap();
            let ratio = four.tasks_per_s / alone.tasks_per_s;
            assert!(ratio > 3.0, "{ratio}: {four:?}");
            assert_eq!(four.n_crossed > 0, crossing);
            assert_eq!(four, simulate_group(&case(4, crossing)).unwrap(), "the same again");
        }
    }

    #[test]
    fn a_group_without_nodes_is_refused() {
        assert!(simulate_group(&GroupCase { n_nodes: 1, ..case(2, false) }).is_err());
    }
}
