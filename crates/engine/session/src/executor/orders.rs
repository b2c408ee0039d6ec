//! What the messages of a dispatcher ask of an executor: events for the node's state machine, and work for its driver.
//!
//! [`DispatcherLink::hear`] puts the executor's own numbers of objects in place of the dispatcher's, so that no driver has to translate.

use super::{Book, DispatcherLink};
use eyas_core::event::*;
use eyas_core::executor::Executor;
use eyas_core::home_share::HomeShare;
use eyas_terms::array::TaskSpec;
use eyas_terms::*;
use eyas_wire::message::*;
use eyas_wire::users::Principal;

/// Permissions to fetch an object from an executor.
pub type Permits = Vec<((ObjectId, ExecutorId), Permit)>;

/// What a driver has to do about one message. Objects have the executor's own numbers.
#[derive(Debug)]
pub enum Order {
    /// Feed the state machine these events, in this order. There may be none.
    Feed(Vec<NodeEvent>),
    /// Keep what this new attempt needs, and feed the state machine [`NodeEvent::Assigned`].
    /// `principal`: whose task it is. `prints_whole`: everything that its program prints is wanted.
    Begin {
        assignment: Box<Assignment>,
        spec: TaskSpec,
        permits: Permits,
        principal: Principal,
        prints_whole: bool,
    },
    /// The files that the program of a watched attempt has made are these outputs, or may not be any; then its end is to be fed.
    Admit { task: TaskId, attempt: AttemptNo, outputs: Result<Vec<ObjectId>, String> },
    /// Keep the permissions, and feed the state machine the event.
    Prefetch { permits: Permits, event: NodeEvent },
    /// Keep to this share of home storage, and feed the state machine the event.
    ShareHome { share: HomeShare, event: NodeEvent },
    /// Keep where these executors serve their caches, and their names on the data plane.
    MeetPeers(Vec<(ExecutorId, String, u32)>),
    /// Remove what these attempts, and earlier ones of the same tasks, may have left at home, where their outputs go.
    RemoveParts(Vec<(TaskId, AttemptNo, Vec<String>)>),
    /// Answer with [`NodeMessage::PlacesFound`].
    FindPlaces(Vec<(ObjectId, String)>),
    /// Answer with [`NodeMessage::PeersProbed`].
    ProbePeers(Vec<ExecutorId>),
    /// Keep these queries of signed URLs, for reading from home.
    LearnQueries(Queries),
    /// Answer with what the program of this attempt has printed so far.
    Look { ask: u64, task: TaskId, attempt: AttemptNo },
    /// Send what the attempt printed from byte `upto` on; `None`: nothing more of it.
    SendPrinted { task: TaskId, attempt: AttemptNo, upto: Option<u64> },
    /// Renew the lease: the dispatcher has answered a status. While nothing is to do here, the next one is due within `idle_ns`.
    RenewLease { idle_ns: u64 },
    /// Call [`DispatcherLink::go`] as soon as nothing is left to do here: another dispatcher of the group is the right one now.
    Move,
    /// End the executor's process.
    End { reason: String },
}

impl DispatcherLink {
    /// Takes one message of the dispatcher that has welcomed this executor.
    ///
    /// * `home_streams_max`: the most streams from and to home that this executor ever uses.
    /// * `has_attempt`: whether the driver has this attempt already; then its assignment is repeated and asks for nothing.
    pub fn hear(
        &mut self,
        message: ToExecutor,
        core: &Executor,
        book: &mut Book,
        home_streams_max: u32,
        has_attempt: impl Fn(TaskId, AttemptNo) -> bool,
    ) -> Order {
        let event = match message {
            ToExecutor::Assign(assign) => {
                let AssignTask { mut assignment, spec, permits, principal, prints_whole } = *assign;
                if has_attempt(assignment.task, assignment.attempt) {
                    return Order::Feed(vec![]);
                }
                let locations = spec.inputs.iter().map(|(_, location)| location);
                let permits = adopt_inputs(book, &mut assignment.inputs, locations, permits);
                for (output, (_, location)) in assignment.outputs.iter_mut().zip(&spec.outputs) {
                    let ours = book.intern(location);
                    book.pair(ours, *output);
                    *output = ours;
                }
                return Order::Begin { assignment, spec, permits, principal, prints_whole };
            }
            ToExecutor::Prefetch { batch, mut inputs, locations, permits, awaits } => {
                let permits = adopt_inputs(book, &mut inputs, locations.iter(), permits);
                let event = NodeEvent::PrefetchRequested { batch, inputs, awaits };
                return Order::Prefetch { permits, event };
            }
            ToExecutor::AddInput { task, attempt, location, mut input, permits } => {
                let inputs = input.as_mut().map_or(&mut [][..], |input| std::slice::from_mut(&mut **input));
                let permits = adopt_inputs(book, inputs, [&location].into_iter(), permits);
                let event = NodeEvent::InputAdded { task, attempt, location, input };
                return Order::Prefetch { permits, event };
            }
            ToExecutor::AdmitOutputs { task, attempt, outputs } => {
                // The driver has the locations, in this order, and names them.
                return Order::Admit { task, attempt, outputs };
            }
            ToExecutor::Home(share) => {
                let event = NodeEvent::HomeShared { streams: share.streams.min(home_streams_max) };
                return Order::ShareHome { share, event };
            }
            ToExecutor::Named { objects } => {
                for (theirs, location, digest) in objects {
                    let ours = book.intern_known(&location, digest);
                    book.pair(ours, theirs);
                    if !core.cache().is_ready(ours) {
                        self.tell(book, NodeMessage::ReplicaDropped(ours));
                    }
                }
                return Order::Feed(vec![]);
            }
            ToExecutor::Recorded { ended } => {
                let event = |(task, attempt)| NodeEvent::EndRecorded { task, attempt };
                return Order::Feed(ended.into_iter().map(event).collect());
            }
            ToExecutor::Forgotten { ended } => {
                let event = |(task, attempt)| NodeEvent::EndForgotten { task, attempt };
                return Order::Feed(ended.into_iter().map(event).collect());
            }
            ToExecutor::Redirect { member, address } => {
                self.redirect(member, address);
                return Order::Move;
            }
            ToExecutor::Peers { peers } => return Order::MeetPeers(peers),
            ToExecutor::RemoveParts { attempts } => return Order::RemoveParts(attempts),
            ToExecutor::FindPlaces { objects } => {
                let adopt =
                    |(theirs, location): (ObjectId, String)| (adopt_name(book, theirs, &location), location);
                return Order::FindPlaces(objects.into_iter().map(adopt).collect());
            }
            ToExecutor::ReadHome { object, location, run } => {
                NodeEvent::ReadRequested { object: adopt_name(book, object, &location), run }
            }
            ToExecutor::ProbePeers { peers } => return Order::ProbePeers(peers),
            ToExecutor::Queries(queries) => return Order::LearnQueries(queries),
            ToExecutor::Look { ask, task, attempt } => return Order::Look { ask, task, attempt },
            ToExecutor::PrintedKept { task, attempt, upto } => {
                return Order::SendPrinted { task, attempt, upto };
            }
            ToExecutor::Beat { idle_ns } => return Order::RenewLease { idle_ns },
            ToExecutor::Shutdown { reason } => return Order::End { reason },
            ToExecutor::Recall { task, attempt } => NodeEvent::RecallRequested { task, attempt },
            ToExecutor::Cancel { task, attempt } => NodeEvent::CancelRequested { task, attempt },
            ToExecutor::CancelPrefetch { objects } => {
                NodeEvent::PrefetchCancelled { objects: all_ours(book, objects) }
            }
            ToExecutor::Drop { objects } => NodeEvent::DropRequested { objects: all_ours(book, objects) },
        };
        Order::Feed(vec![event])
    }
}

/// Our number of an object that the dispatcher names.
fn adopt_name(book: &mut Book, theirs: ObjectId, location: &str) -> ObjectId {
    let ours = book.intern(location);
    book.pair(ours, theirs);
    ours
}

/// Our numbers of those of the dispatcher's objects that have one.
fn all_ours(book: &Book, theirs: Vec<ObjectId>) -> Vec<ObjectId> {
    theirs.into_iter().filter_map(|object| book.ours(object)).collect()
}

/// Gives inputs our numbers. Gives the permissions to fetch them: a dispatcher sends one for each source of each input whose
/// bytes it knows.
fn adopt_inputs<'a>(
    book: &mut Book,
    inputs: &mut [AssignedInput],
    locations: impl Iterator<Item = &'a String>,
    permits: Vec<Permit>,
) -> Permits {
    let mut permits = permits.into_iter();
    let mut adopted = vec![];
    for (input, location) in inputs.iter_mut().zip(locations) {
        let ours = book.intern_known(location, input.known.as_ref().map(|known| known.digest));
        book.pair(ours, input.object);
        input.object = ours;
        if input.known.is_some() {
            let of_input = input.sources.iter().zip(permits.by_ref());
            adopted.extend(of_input.map(|(source, permit)| ((ours, *source), permit)));
        }
    }
    adopted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::link::tests::{Side, side};
    use eyas_terms::array::Command;

    const HOME_STREAMS_MAX: u32 = 4;

    impl Side {
        fn hear(&mut self, message: ToExecutor) -> Order {
            self.link.hear(message, &self.core, &mut self.book, HOME_STREAMS_MAX, |_, _| false)
        }

        /// Whatever is asked of home or fetched is not there.
        fn feed(&mut self, event: NodeEvent) {
            let none = || TransferError { kind: TransferErrorKind::Unavailable, message: "none".into() };
            let mut events = std::collections::VecDeque::from([event]);
            while let Some(event) = events.pop_front() {
                let mut actions = vec![];
                self.core.handle(Timestamp(0), event, &mut actions);
                events.extend(actions.into_iter().filter_map(|action| match action {
                    NodeAction::AskHome { object, .. } => {
                        Some(NodeEvent::HomeAnswered { object, result: Err(none()) })
                    }
                    NodeAction::Fetch { target, source, .. } => {
                        Some(NodeEvent::TransferEnded { target, source, result: Err(none()) })
                    }
                    _ => None,
                }));
            }
        }
    }

    /// An executor that was welcomed, and whose numbers of objects differ from the dispatcher's.
    fn welcomed() -> Side {
        let mut side = side();
        side.book.intern("own");
        side.enter(1, 1);
        side
    }

    fn digest(n: u8) -> Digest {
        Digest([n; 32])
    }

    fn input(theirs: u32, known: Option<Digest>, sources: &[u32]) -> AssignedInput {
        let version = HomeVersion::default();
        AssignedInput {
            object: ObjectId(theirs),
            known: known.map(|digest| Known { digest, size_bytes: 1, version, marks: None }),
            sources: sources.iter().map(|executor| ExecutorId(*executor)).collect(),
            check_home: false,
            direct: false,
            watched: false,
            stays: false,
            making: Default::default(),
        }
    }

    fn permit(n: u64) -> Permit {
        Permit { expires_unix_ms: n, mac: [0; 32] }
    }

    fn assign() -> AssignTask {
        let file = |location: &str| (location.to_string(), location.to_string());
        AssignTask {
            assignment: Box::new(Assignment {
                task: TaskId(1),
                attempt: AttemptNo(2),
                run: RunId(1),
                cpus: 1,
                inputs: vec![input(50, None, &[8]), input(51, Some(digest(1)), &[8, 9])],
                outputs: vec![ObjectId(52)],
                staying: vec![],
                private_inputs: false,
                repeated: false,
                alone: false,
                needs: None,
                why: Why::default(),
            }),
            spec: TaskSpec {
                inputs: vec![file("a"), file("b")],
                outputs: vec![file("c")],
                ..TaskSpec::new("t".into(), Command::Shell("true".into()))
            },
            permits: vec![permit(1), permit(2)],
            principal: Principal::User("ada".into()),
            prints_whole: false,
        }
    }

    #[test]
    fn an_assignment_gets_the_executors_own_numbers_and_only_known_bytes_have_permits() {
        let mut s = welcomed();
        let order = s.hear(ToExecutor::Assign(Box::new(assign())));
        let Order::Begin { assignment, permits, principal, .. } = order else { panic!("{order:?}") };
        assert_eq!(principal, Principal::User("ada".into()));
        let [a, b, c] = ["a", "b", "c"].map(|location| s.book.intern(location));
        assert_eq!(assignment.inputs.iter().map(|i| i.object).collect::<Vec<_>>(), [a, b]);
        assert_eq!(assignment.outputs, [c]);
        assert_eq!([a, b, c].map(|ours| s.book.theirs(ours)), [50, 51, 52].map(|n| Some(ObjectId(n))));
        let expect = [((b, ExecutorId(8)), permit(1)), ((b, ExecutorId(9)), permit(2))];
        assert_eq!(permits, expect);
    }

    #[test]
    fn an_assignment_that_comes_again_asks_for_nothing() {
        let mut s = welcomed();
        let message = ToExecutor::Assign(Box::new(assign()));
        let has_attempt = |task, attempt| (task, attempt) == (TaskId(1), AttemptNo(2));
        let order = s.link.hear(message, &s.core, &mut s.book, HOME_STREAMS_MAX, has_attempt);
        assert!(matches!(order, Order::Feed(events) if events.is_empty()));
        assert_eq!(s.book.ours(ObjectId(52)), None);
    }

    #[test]
    fn an_object_that_is_named_and_not_held_is_reported_as_dropped() {
        let mut s = welcomed();
        let objects = vec![(ObjectId(50), "a".into(), Some(digest(1)))];
        assert!(matches!(s.hear(ToExecutor::Named { objects }), Order::Feed(events) if events.is_empty()));
        assert_eq!(s.link.take_words(), [FromExecutor::Node(NodeMessage::ReplicaDropped(ObjectId(50)))]);
    }

    #[test]
    fn messages_become_events_about_the_executors_own_objects() {
        let mut s = welcomed();
        let inputs = vec![input(50, Some(digest(1)), &[8])];
        let (batch, locations) = (eyas_core::collective::BatchId(3), vec!["a".into()]);
        let prefetch =
            ToExecutor::Prefetch { batch, inputs, locations, permits: vec![permit(1)], awaits: false };
        let order = s.hear(prefetch);
        let a = s.book.intern("a");
        let Order::Prefetch { permits, event: NodeEvent::PrefetchRequested { inputs, .. } } = order else {
            panic!("{order:?}")
        };
        assert_eq!((permits, inputs[0].object), (vec![((a, ExecutorId(8)), permit(1))], a));

        // An object that this executor has never heard of is left out.
        let objects = vec![ObjectId(50), ObjectId(60)];
        let (task, attempt) = (TaskId(1), AttemptNo(2));
        let ended = vec![(task, attempt), (TaskId(3), AttemptNo(1))];
        for (message, expect) in [
            (
                ToExecutor::CancelPrefetch { objects: objects.clone() },
                vec![NodeEvent::PrefetchCancelled { objects: vec![a] }],
            ),
            (ToExecutor::Drop { objects }, vec![NodeEvent::DropRequested { objects: vec![a] }]),
            (ToExecutor::Cancel { task, attempt }, vec![NodeEvent::CancelRequested { task, attempt }]),
            (ToExecutor::Recall { task, attempt }, vec![NodeEvent::RecallRequested { task, attempt }]),
            (ToExecutor::Recorded { ended: ended.clone() }, ended.into_iter().map(end_recorded).collect()),
        ] {
            let order = s.hear(message);
            assert!(matches!(&order, Order::Feed(events) if *events == expect), "{order:?}");
        }
    }

    fn end_recorded((task, attempt): (TaskId, AttemptNo)) -> NodeEvent {
        NodeEvent::EndRecorded { task, attempt }
    }

    /// A long life: each run names files that no other run names.
    #[test]
    fn a_book_does_not_grow_with_the_runs_that_are_over() {
        let mut s = welcomed();
        for run in 0..200 {
            for i in 0..20_u32 {
                let number = run * 100 + i * 3;
                let mut given = assign();
                given.assignment.task = TaskId(u64::from(number));
                given.assignment.inputs =
                    vec![input(number, None, &[8]), input(number + 1, Some(digest(1)), &[8, 9])];
                given.assignment.outputs = vec![ObjectId(number + 2)];
                let named = |what: &str| (what.to_string(), format!("{what} {number}"));
                given.spec.inputs = vec![named("a"), named("b")];
                given.spec.outputs = vec![named("c")];
                let (task, attempt) = (given.assignment.task, given.assignment.attempt);
                let Order::Begin { assignment, .. } = s.hear(ToExecutor::Assign(Box::new(given))) else {
                    panic!("an assignment begins an attempt")
                };
                s.feed(NodeEvent::Assigned { assignment });
                s.link.forget_names(&s.core, &mut s.book, 100);
                let needed = s.book.find_name(s.book.ours(ObjectId(number)).expect("it was paired"));
                assert_eq!(needed, Some(format!("a {number}").as_str()), "an attempt needs it");
                s.feed(NodeEvent::CancelRequested { task, attempt });
                s.feed(NodeEvent::EndRecorded { task, attempt });
            }
        }
        s.link.forget_names(&s.core, &mut s.book, 100);
        assert!(s.book.n_names() <= 100, "{} names of 200 runs", s.book.n_names());
        // A number of before means nothing, and the file gets a new one.
        assert_eq!(s.book.ours(ObjectId(0)), None);
        assert!(s.book.intern("a 0").0 >= 200 * 20 * 3, "no number is given twice");
    }

    #[test]
    fn a_share_of_home_is_cut_to_what_the_executor_ever_uses() {
        let mut s = welcomed();
        for (streams, expect) in [(2, 2), (u32::MAX, HOME_STREAMS_MAX)] {
            let share = HomeShare { number: 1, bytes_per_s: None, streams };
            let order = s.hear(ToExecutor::Home(share));
            let Order::ShareHome { share: kept, event } = order else { panic!("{order:?}") };
            assert_eq!((kept, event), (share, NodeEvent::HomeShared { streams: expect }));
        }
    }

    #[test]
    fn a_redirected_executor_is_to_move() {
        let mut s = welcomed();
        let redirect = ToExecutor::Redirect { member: MemberId(2), address: "there".into() };
        assert!(matches!(s.hear(redirect), Order::Move));
        assert!(s.link.is_going());
    }
}
