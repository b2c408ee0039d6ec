//! An executor's side, whole: the node's state machine, the names of its objects, its attempts, and what is owed to the
//! dispatcher.
//!
//! In: messages of the dispatcher, and what the driver did and saw. Out: messages for the dispatcher, and actions to carry out
//! ([`ExecutorSession::next_action`]), one after the other: what the session knows of attempts follows each action at the moment
//! at which the driver gets it.
//!
//! The live executor and the nodes of the fault worlds drive this same code. They differ in what a file, a program, a connection
//! and a clock are.

use super::attempts::{AttemptId, Attempts, Ended, Verdict};
use super::book::{Book, unless_dropped};
use super::link::{About, DispatcherLink, Welcomed};
use super::orders::Order;
use eyas_core::event::*;
use eyas_core::eviction::UnknownEviction;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_terms::*;
use eyas_wire::message::*;
use std::collections::VecDeque;

/// See the module.
pub struct ExecutorSession {
    core: Executor,
    book: Book,
    link: DispatcherLink,
    attempts: Attempts,
    /// What the state machine has asked for and is not carried out yet, in its order.
    actions: VecDeque<NodeAction>,
    /// Empty between two calls.
    asked: Vec<NodeAction>,
    /// The most streams from and to home that this executor ever uses.
    home_streams_max: u32,
}

impl ExecutorSession {
    /// Of an executor whose cache is empty. Errors: the configuration names an eviction policy that does not exist.
    pub fn new(config: ExecutorConfig) -> Result<ExecutorSession, UnknownEviction> {
        Ok(ExecutorSession {
            home_streams_max: config.home_streams_max,
            core: Executor::new(config)?,
            book: Book::default(),
            link: DispatcherLink::default(),
            attempts: Attempts::default(),
            actions: VecDeque::new(),
            asked: vec![],
        })
    }

    /// The cache holds these `objects` from an earlier process, and `book` has their names ([`Book::restore`]).
    pub fn restore(&mut self, book: Book, objects: Vec<(ObjectId, Fetched)>) {
        self.book = book;
        for (object, bytes) in objects {
            self.core.restore(object, bytes, &mut self.asked);
        }
        self.actions.extend(self.asked.drain(..));
    }

    pub fn core(&self) -> &Executor {
        &self.core
    }

    pub fn book(&self) -> &Book {
        &self.book
    }

    pub fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// What is said to which dispatcher; what changes it goes through the session.
    pub fn link(&self) -> &DispatcherLink {
        &self.link
    }

    // ------------------------------------------------------------ the state machine

    /// Something happened at `now`, by the dispatcher's clock.
    pub fn feed(&mut self, now: Timestamp, event: NodeEvent) {
        self.core.handle(now, event, &mut self.asked);
        self.actions.extend(self.asked.drain(..));
    }

    /// The next action to carry out.
    pub fn next_action(&mut self) -> Option<NodeAction> {
        let action = self.actions.pop_front()?;
        self.attempts.note(&action);
        Some(action)
    }

    /// Work on a file is over: the event that is to be fed. Bytes for the cache count as stored, and belong to their object, if
    /// the cache has them still; `holds` says so.
    pub fn settle(&mut self, event: NodeEvent, holds: impl Fn(&Digest) -> bool) -> NodeEvent {
        let Some(object) = self.object_of(&event) else { return event };
        let event = unless_dropped(event, holds);
        if let NodeEvent::TransferEnded { result: Ok(bytes), .. }
        | NodeEvent::OutputStored { result: Ok(bytes), .. } = &event
        {
            self.book.set_digest(object, bytes.digest);
        }
        event
    }

    /// The object of the cache whose bytes the event is about, if it is about any.
    fn object_of(&self, event: &NodeEvent) -> Option<ObjectId> {
        match event {
            NodeEvent::TransferEnded { target: Target::Cache(object), .. } => Some(*object),
            NodeEvent::OutputStored { task, attempt, output, .. } => {
                self.attempts.find((*task, *attempt))?.find_cached_output(*output)
            }
            _ => None,
        }
    }

    /// An object leaves the cache: the bytes that are to be removed, unless another object has the same ones.
    pub fn evict(&mut self, object: ObjectId) -> Option<Digest> {
        self.book.clear_digest(object)
    }

    /// See [`Attempts::withdraw`].
    pub fn withdraw(&mut self, id: AttemptId) -> bool {
        self.attempts.withdraw(id)
    }

    /// See [`Attempts::judge`].
    pub fn judge(&mut self, id: AttemptId, ended: Ended, was_held: bool, node_ends: bool) -> Verdict {
        self.attempts.judge(id, ended, was_held, node_ends)
    }

    /// The dispatcher has admitted the files that the program of a watched attempt made, at these locations and with these numbers of
    /// its own, as further outputs. Gives our numbers.
    pub fn admit(&mut self, id: AttemptId, locations: &[String], theirs: &[ObjectId]) -> Vec<ObjectId> {
        let mut ours = vec![];
        for (location, theirs) in locations.iter().zip(theirs) {
            let object = self.book.intern(location);
            self.book.pair(object, *theirs);
            ours.push(object);
        }
        self.attempts.found(id, &ours);
        ours
    }

    // ------------------------------------------------------------ the dispatcher

    /// There is a connection: what is to be said first on it.
    pub fn connect(&mut self, about: &About) -> ExecutorHello {
        self.link.connect(&self.core, &self.book, about)
    }

    /// The connection is gone, or given up.
    pub fn disconnect(&mut self) {
        self.link.disconnect();
    }

    /// See [`DispatcherLink::welcome`].
    pub fn welcome(&mut self, welcome: Welcome, about: &About) -> Welcomed {
        self.link.welcome(welcome, &mut self.core, &mut self.book, about)
    }

    /// What one message of the dispatcher asks for. An attempt that is given out again asks for nothing.
    pub fn hear(&mut self, message: ToExecutor) -> Order {
        let attempts = &self.attempts;
        let has_attempt = |task, attempt| attempts.has((task, attempt));
        let order = self.link.hear(message, &self.core, &mut self.book, self.home_streams_max, has_attempt);
        if let Order::Begin { assignment, .. } = &order {
            self.attempts.begin(assignment, self.link.incarnation());
        }
        order
    }

    /// Says what the state machine has to say.
    pub fn tell(&mut self, message: NodeMessage) {
        self.link.tell(&self.book, message);
    }

    /// Says anything else. `false`: nobody hears it now.
    pub fn say(&mut self, message: FromExecutor) -> bool {
        self.link.say(message)
    }

    /// What waits to be sent, as one frame.
    pub fn take_words(&mut self) -> Vec<FromExecutor> {
        self.link.take_words()
    }

    /// Goes to another dispatcher of the group, if it is to and nothing is left to do here; see [`DispatcherLink::go`].
    pub fn go(&mut self) -> Option<(MemberId, String, Vec<FromExecutor>)> {
        self.link.go(&mut self.core)
    }

    /// Forgets the names of objects that nothing needs here, once there are more than `n_min`.
    pub fn forget_names(&mut self, n_min: usize) {
        self.link.forget_names(&self.core, &mut self.book, n_min);
    }
}
