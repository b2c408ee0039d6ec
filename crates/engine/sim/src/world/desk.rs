//! The dispatcher's desk: what came for the dispatcher waits here until it has time, and what it decides leaves from here.
//!
//! The dispatcher handles one event after the other, and each task that it gives out takes some time. All messages to one node
//! that follow from one event travel together. There is no journal here: what the core wants recorded counts as recorded at once.

use super::hardware::NodePlace;
use super::nodes::Nodes;
use super::record::Record;
use super::time::{Ev, Time};
use super::work::ArrivingWork;
use crate::machine::{CutLinks, Machine};
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::{Action, Event, NodeEvent};
use eyas_terms::{ExecutorId, Timestamp};
use std::collections::VecDeque;

/// See the module.
pub(super) struct Desk {
    dispatch_ns: u64,
    message_ns: u64,
    between_latency_ns: u64,
    cut_links: Option<CutLinks>,
    core: Dispatcher,
    inbox: VecDeque<Event>,
    free_at: u64,
    /// An [`Ev::Dispatch`] is on the agenda.
    is_due: bool,
    /// The time of the [`Ev::Wake`] that is on the agenda.
    wake_due: Option<Timestamp>,
    outbox: Outbox,
    /// An empty list, kept so that its memory is used again.
    actions: Vec<Action>,
}

impl Desk {
    pub fn new(machine: &Machine, config: DispatcherConfig) -> Result<Desk, String> {
        Ok(Desk {
            dispatch_ns: machine.dispatch_ns,
            message_ns: machine.message_ns,
            between_latency_ns: machine.sites.map_or(0, |sites| sites.between_latency_ns),
            cut_links: machine.cut_links.clone(),
            core: Dispatcher::new(config)?,
            inbox: VecDeque::new(),
            free_at: 0,
            is_due: false,
            wake_due: None,
            outbox: Outbox::default(),
            actions: vec![],
        })
    }

    pub fn core(&self) -> &Dispatcher {
        &self.core
    }

    /// Something came for the dispatcher.
    pub fn tell(
        &mut self,
        event: Event,
        time: &mut Time,
        work: &ArrivingWork,
        nodes: &mut Nodes,
        record: &mut Record,
    ) {
        self.inbox.push_back(event);
        self.look(time, work, nodes, record);
    }

    /// The dispatcher has time again.
    pub fn on_free(&mut self, time: &mut Time, work: &ArrivingWork, nodes: &mut Nodes, record: &mut Record) {
        self.is_due = false;
        self.look(time, work, nodes, record);
    }

    /// The dispatcher asked to hear the time now, and hears it unless it has taken that back since.
    pub fn on_woken(&mut self, time: &mut Time, work: &ArrivingWork, nodes: &mut Nodes, record: &mut Record) {
        self.wake_due = None;
        if self.core.wake_at().is_some_and(|at| at <= time.now) {
            self.tell(Event::Ticked, time, work, nodes, record);
        }
    }

    /// Handles what has come, as far as the dispatcher has time.
    fn look(&mut self, time: &mut Time, work: &ArrivingWork, nodes: &mut Nodes, record: &mut Record) {
        while self.free_at <= time.now.0
            && let Some(event) = self.inbox.pop_front()
        {
            self.handle(event, time, work, nodes, record);
        }
        if !self.inbox.is_empty() && !self.is_due {
            self.is_due = true;
            time.at(self.free_at, Ev::Dispatch);
        }
        if self.wake_due.is_none()
            && self.inbox.is_empty()
            && let Some(at) = self.core.wake_at()
        {
            self.wake_due = Some(at);
            time.at(at.0.max(time.now.0), Ev::Wake);
        }
    }

    fn handle(
        &mut self,
        event: Event,
        time: &mut Time,
        work: &ArrivingWork,
        nodes: &mut Nodes,
        record: &mut Record,
    ) {
        record.log_event(time.now, &event);
        if let Event::AttemptEnded { executor, report } = &event {
            record.recorder.reported(report);
            let cpus = work.batch_of(report.task).array.template.cpus;
            nodes.count_given(*executor, record, |given| given - cpus);
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(time.now, event, &mut actions);
        let mut n_assigned = 0;
        for action in &actions {
            if let Action::Assign { executor, assignment } | Action::RerunTask { executor, assignment } =
                action
            {
                n_assigned += 1;
                nodes.count_given(*executor, record, |given| given + assignment.cpus);
            }
        }
        record.recorder.queues(time.now, self.core.n_ready());
        self.free_at = time.now.0 + n_assigned * self.dispatch_ns;
        for action in actions.drain(..) {
            record.log_action(time.now, &action);
            if let Action::ProbePeers { executor, peers } = &action {
                self.probe(*executor, peers, time, nodes);
            }
            self.carry_out(action, time.now, work, record);
        }
        self.actions = actions;
        self.outbox.send(self.free_at + self.message_ns, time);
    }

    /// An executor measures round trips, and reports them.
    fn probe(&self, executor: ExecutorId, peers: &[ExecutorId], time: &mut Time, nodes: &Nodes) {
        let is_cut = |from: &NodePlace, to: &NodePlace| {
            self.cut_links.as_ref().is_some_and(|links| links.cuts(from.number, to.number))
        };
        let place = |e: &ExecutorId| nodes.find(e.0).map(|node| node.place);
        let round_trip = |peer: &ExecutorId| {
            let (from, to) = (place(&executor)?, place(peer)?);
            let way_ns = if from.site == to.site { 0 } else { self.between_latency_ns };
            (!is_cut(&from, &to)).then_some((*peer, 2 * (self.message_ns + way_ns)))
        };
        let round_trips: Vec<(ExecutorId, u64)> = peers.iter().filter_map(round_trip).collect();
        let took_ns = round_trips.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
        time.after(took_ns + 2 * self.message_ns, Ev::Probed { node: executor.0, round_trips });
    }

    fn carry_out(&mut self, action: Action, now: Timestamp, work: &ArrivingWork, record: &mut Record) {
        match action {
            Action::Assign { executor, assignment } | Action::RerunTask { executor, assignment } => {
                self.outbox.put(executor, NodeEvent::Assigned { assignment })
            }
            Action::CancelAttempt { executor, task, attempt } => {
                self.outbox.put(executor, NodeEvent::CancelRequested { task, attempt })
            }
            Action::RecallAttempt { executor, task, attempt } => {
                self.outbox.put(executor, NodeEvent::RecallRequested { task, attempt })
            }
            Action::DropReplicas { executor, objects } => {
                self.outbox.put(executor, NodeEvent::DropRequested { objects })
            }
            Action::Prefetch { executor, batch, inputs, awaits } => {
                self.outbox.put(executor, NodeEvent::PrefetchRequested { batch, inputs, awaits })
            }
            Action::CancelPrefetch { executor, objects } => {
                self.outbox.put(executor, NodeEvent::PrefetchCancelled { objects })
            }
            Action::ReadHome { executor, object, run } => {
                self.outbox.put(executor, NodeEvent::ReadRequested { object, run })
            }
            // It was carried out before.
            Action::ProbePeers { .. } => {}
            // No simulated program names a file that it has not declared.
            Action::AddInput { .. } | Action::AdmitOutputs { .. } => {}
            // Simulated home storage does not know where its files lie.
            Action::FindPlaces { .. } => {}
            Action::EndTask { task, outcome, by } => {
                if let Some((executor, attempt)) = by {
                    self.outbox.put(executor, NodeEvent::EndRecorded { task, attempt });
                }
                record.task_ended(now, work.batch_of(task).at, &outcome)
            }
            Action::ForgetAttempt { executor, task, attempt } => {
                self.outbox.put(executor, NodeEvent::EndRecorded { task, attempt })
            }
            Action::ReviveTask { .. } => record.task_revived(),
            Action::EndRun { .. } => record.run_ended(),
            Action::RefuseRun { message, .. } => record.run_refused(message),
            Action::RecordGivenUp { task, attempt } => {
                self.inbox.push_back(Event::AttemptGivenUp { task, attempt })
            }
            Action::RecordGivesOut => self.inbox.push_back(Event::GivesOut),
            Action::EndCollective { record: ended } => record.recorder.collective_ended(ended),
            // These actions are only for the event log.
            Action::FoundPattern { .. }
            | Action::BeginPhase { .. }
            | Action::BeginPush { .. }
            | Action::EndPush { .. } => {}
            // Simulated clusters keep all runs.
            Action::ForgetRun { .. } => {}
            // Executors know the dispatcher's numbers here, and have no connections that could be forgotten.
            Action::NameObjects { .. } | Action::ForgetExecutor { .. } => {}
            // Simulated home storage has no half-written files, and the machine has its limits.
            Action::RemoveParts { .. } | Action::ShareHome { .. } => {}
            // Nodes that drain are looked for at each look.
            Action::DrainExecutor { .. } => {}
            // There is one dispatcher.
            Action::TellMember { .. } | Action::SendAway { .. } => {}
        }
    }
}

/// The messages to nodes that follow from one event.
#[derive(Default)]
struct Outbox {
    messages: Vec<(u32, Vec<NodeEvent>)>,
}

impl Outbox {
    /// Among so many of the last messages one to the same node is looked for.
    const LOOKED_AT: usize = 8;

    /// Messages to one node travel together.
    fn put(&mut self, node: ExecutorId, event: NodeEvent) {
        let mut last = self.messages.iter_mut().rev().take(Outbox::LOOKED_AT);
        match last.find(|(to, _)| *to == node.0) {
            Some((_, events)) => events.push(event),
            None => self.messages.push((node.0, vec![event])),
        }
    }

    /// All messages arrive at `at_ns`.
    fn send(&mut self, at_ns: u64, time: &mut Time) {
        for (node, events) in self.messages.drain(..) {
            time.at(at_ns, Ev::ToNode { node, events });
        }
    }
}
