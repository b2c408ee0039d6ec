//! An executor's side of its connection to a dispatcher: hello and welcome, messages that wait to be sent, and the change to
//! another dispatcher of the group.
//!
//! A hello lists what the cache holds. Messages about the cache that come after the hello wait until the welcome. Messages that
//! come while there is no dispatcher are dropped. The executor reports the ends of attempts again after the next welcome
//! ([`Executor::unrecorded`]); the dispatcher learns all else from the next hello, or asks again.

use super::Book;
use eyas_core::event::*;
use eyas_core::executor::Executor;
use eyas_terms::needs::Equipment;
use eyas_terms::*;
use eyas_wire::message::*;
use std::sync::Arc;

/// Who welcomed this executor last, and what it is called there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownAs {
    /// The dispatcher's journal, over all its processes.
    pub journal: u64,
    pub incarnation: u64,
    pub executor: ExecutorId,
}

/// What an executor offers, beside what it holds and does.
#[derive(Clone, Debug)]
pub struct About {
    pub name: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub equipment: Equipment,
    pub cache_bytes: u64,
    /// Memory that holds files of the cache, beside `memory_bytes`.
    pub cache_memory_bytes: u64,
    /// As in [`ExecutorHello`].
    pub data_address: String,
    pub data_id: u32,
    /// How long it lives, as it is when the hello is said.
    pub walltime: Option<Walltime>,
    /// Files at home that lie on its machine.
    pub nearby: Nearby,
}

/// What a dispatcher's first frame means.
pub enum Welcomed {
    /// This executor is taken in. What it has to say again is to be told now.
    Taken {
        executor: ExecutorId,
        now: Timestamp,
        settings: Settings,
        again: Vec<NodeMessage>,
    },
    /// The dispatcher is not the one whose work is here, and why. It may be at that address again later.
    Elsewhere(&'static str),
    /// Another dispatcher of the group is the right one. An empty address is not known.
    Redirected(MemberId, String),
    Refused(String),
}

struct Connection {
    is_welcomed: bool,
    /// Changes of the cache since the hello, which listed what it held then.
    since_hello: Vec<NodeMessage>,
    out: Vec<FromExecutor>,
}

/// See the module.
#[derive(Default)]
pub struct DispatcherLink {
    connection: Option<Connection>,
    known_as: Option<KnownAs>,
    /// Whose this executor is, in a group of dispatchers.
    member: Option<MemberId>,
    /// Where it goes when it has nothing left.
    going: Option<(MemberId, String)>,
}

impl DispatcherLink {
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub fn is_welcomed(&self) -> bool {
        self.connection.as_ref().is_some_and(|c| c.is_welcomed)
    }

    pub fn known_as(&self) -> Option<KnownAs> {
        self.known_as
    }

    /// Of the dispatcher process that welcomed this executor last; 0 before the first.
    pub fn incarnation(&self) -> u64 {
        self.known_as.map_or(0, |k| k.incarnation)
    }

    pub fn member(&self) -> Option<MemberId> {
        self.member
    }

    /// There is a connection: what is to be said first on it.
    pub fn connect(&mut self, core: &Executor, book: &Book, about: &About) -> ExecutorHello {
        self.connection = Some(Connection { is_welcomed: false, since_hello: vec![], out: vec![] });
        let held = core.held().into_iter().map(|(object, bytes)| HeldObject {
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            // Home has no version of what stays on the nodes.
            origin: book.find_name(object).and_then(|name| {
                let stays = CatalogLocation::of(name).stays();
                Some((name.to_string(), bytes.version.or_else(|| stays.then(HomeVersion::default))?))
            }),
        });
        let offer = Offer {
            name: about.name.clone(),
            slots: about.slots,
            memory_bytes: about.memory_bytes,
            equipment: about.equipment.clone(),
            cache_bytes: about.cache_bytes,
            cache_memory_bytes: about.cache_memory_bytes,
            held: held.collect(),
            attempts: core.attempts(),
            owner: self.known_as.map(|k| k.incarnation),
            walltime: about.walltime,
            nearby: Box::new(about.nearby.clone()),
            exchanges: core.exchanges(),
        };
        ExecutorHello {
            offer,
            data_address: about.data_address.clone(),
            data_id: about.data_id,
            known_as: self.known_as.map(|k| k.executor),
            member: self.member,
        }
    }

    /// The connection is gone, or given up.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// The dispatcher has answered the hello. `about`: as it was said there.
    pub fn welcome(
        &mut self,
        welcome: Welcome,
        core: &mut Executor,
        book: &mut Book,
        about: &About,
    ) -> Welcomed {
        let Welcome::Executor { executor, incarnation, journal, member, now, settings } = welcome else {
            self.connection = None;
            return match welcome {
                Welcome::Redirected { member, address } => {
                    self.member = Some(member);
                    Welcomed::Redirected(member, address)
                }
                Welcome::NotMine => {
                    Welcomed::Elsewhere("the dispatcher that answers did not give out the work that is here")
                }
                Welcome::Refused { reason } => Welcomed::Refused(reason),
                _ => Welcomed::Refused("it took this executor for a client".into()),
            };
        };
        if self.known_as.is_some_and(|k| k.journal == journal && k.incarnation > incarnation) {
            // What this one would give out was given out before, or is being given out by the other one.
            self.connection = None;
            return Welcomed::Elsewhere(
                "the dispatcher that answers is an earlier one than the last, or a copy of an earlier one",
            );
        }
        if self.known_as.is_none_or(|k| k.incarnation != incarnation) {
            book.forget_pairs();
            // Another process said so.
            self.going = None;
        }
        self.known_as = Some(KnownAs { journal, incarnation, executor });
        self.member = member;
        core.reconnected();
        let mut again: Vec<NodeMessage> = core.unrecorded().collect();
        if let Some(connection) = &mut self.connection {
            connection.is_welcomed = true;
            // An attempt may have ended since the hello, and what it read was told on the connection before.
            again.append(&mut connection.since_hello);
        }
        let cache_bytes = core.cache().budget_bytes();
        if cache_bytes != about.cache_bytes {
            again.push(NodeMessage::CacheResized { cache_bytes });
        }
        Welcomed::Taken { executor, now, settings, again }
    }

    /// Says what the node's state machine has to say, in the dispatcher's numbers. `false`: nobody hears it now.
    pub fn tell(&mut self, book: &Book, mut message: NodeMessage) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.is_welcomed {
            if matches!(message, NodeMessage::ReplicaAdded(_) | NodeMessage::ReplicaDropped(_)) {
                connection.since_hello.push(message);
            }
            return false;
        }
        let is_known = translate(book, &mut message);
        if is_known {
            connection.out.push(FromExecutor::Node(message));
        }
        is_known
    }

    /// Forgets the names of objects that nothing needs here, once there are many: more than `n_min`, and more than
    /// twice as many as were left the last time. Between a hello and its welcome nothing is forgotten, because
    /// what has left the cache meanwhile has yet to be told by its name.
    pub fn forget_names(&self, core: &Executor, book: &mut Book, n_min: usize) {
        if self.is_welcomed() && book.has_grown(n_min) {
            book.forget_names(&core.needed_objects());
        }
    }

    /// Says anything else. `false`: nobody hears it now.
    pub fn say(&mut self, message: FromExecutor) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|c| c.is_welcomed) else { return false };
        connection.out.push(message);
        true
    }

    /// How many words wait to be sent.
    pub fn n_words(&self) -> usize {
        self.connection.as_ref().map_or(0, |c| c.out.len())
    }

    /// What waits to be sent, as one frame. The caller's buffer, which is empty, takes the place of the words.
    pub fn take_words(&mut self) -> Vec<FromExecutor> {
        self.connection.as_mut().filter(|c| c.is_welcomed).map_or(vec![], |c| std::mem::take(&mut c.out))
    }

    /// The dispatcher wants this executor to go to another one of the group when it has nothing left.
    pub fn redirect(&mut self, member: MemberId, address: String) {
        self.going = Some((member, address));
    }

    pub fn is_going(&self) -> bool {
        self.going.is_some()
    }

    /// Where this executor goes now, if nothing is left to do here or to be recorded. What waited is to be sent before, with
    /// the goodbye as the last word; then it belongs to the other one.
    pub fn go(&mut self, core: &mut Executor) -> Option<(MemberId, String, Vec<FromExecutor>)> {
        if !core.attempts().is_empty() || !self.is_welcomed() {
            return None;
        }
        let (member, address) = self.going.take()?;
        let reason = format!("it goes to dispatcher {}, which has more to do", member.0 + 1);
        let mut words = self.take_words();
        words.push(FromExecutor::Bye { reason });
        self.connection = None;
        self.known_as = None;
        self.member = Some(member);
        core.moved();
        Some((member, address, words))
    }
}

/// Puts the dispatcher's numbers in place of ours. `false`: it has not named what this is about; its next hello tells of it.
fn translate(book: &Book, message: &mut NodeMessage) -> bool {
    let of = |object: &mut ObjectId| match book.theirs(*object) {
        Some(theirs) => {
            *object = theirs;
            true
        }
        None => false,
    };
    match message {
        NodeMessage::ReplicaAdded(added) => of(&mut added.object),
        NodeMessage::ReplicaDropped(object)
        | NodeMessage::PrefetchFailed { object, .. }
        | NodeMessage::HomeNotRead { object, .. } => of(object),
        NodeMessage::PlacesFound { asked, placed } => {
            asked.retain_mut(&of);
            placed.retain_mut(|placed| of(&mut placed.object));
            true
        }
        NodeMessage::InputMoved(moved) => {
            let is_known = of(&mut moved.object);
            if let Target::Cache(object) = &mut moved.target {
                *object = moved.object;
            }
            is_known
        }
        NodeMessage::AttemptEnded { report } => {
            // The state machine keeps the report, too, so changing it means copying it.
            if !report.inputs.is_empty() {
                Arc::make_mut(report).inputs.retain_mut(|input| of(&mut input.object));
            }
            true
        }
        NodeMessage::OutputsHome { .. }
        | NodeMessage::FileOpened { .. }
        | NodeMessage::FilesMade { .. }
        | NodeMessage::CacheResized { .. }
        | NodeMessage::PeersProbed { .. }
        | NodeMessage::PeerUnreachable { .. }
        | NodeMessage::PartsRemoved { .. } => true,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use eyas_core::cache::CacheConfig;
    use eyas_core::executor::ExecutorConfig;

    /// An executor's side, for the tests of this module and of the ones beside it.
    pub(in crate::executor) struct Side {
        pub(in crate::executor) core: Executor,
        pub(in crate::executor) book: Book,
        pub(in crate::executor) link: DispatcherLink,
    }

    fn about() -> About {
        About {
            name: "n".into(),
            slots: 1,
            memory_bytes: 0,
            equipment: Equipment::default(),
            cache_bytes: 100,
            cache_memory_bytes: 0,
            data_address: String::new(),
            data_id: 1,
            walltime: None,
            nearby: Nearby::default(),
        }
    }

    pub(in crate::executor) fn side() -> Side {
        let cache = CacheConfig { budget_bytes: 100, eviction: "lru".into(), seed: 0, groups: true };
        let config = ExecutorConfig {
            equipment: Equipment::default(),
            slots: 1,
            cache,
            transfers_max: 1,
            transfers_per_peer_max: 1,
            home_streams_max: 1,
            inputs_in_turn: false,
            small_bytes_max: 0,
            small_per_peer_max: 0,
            memory: Default::default(),
        };
        Side { core: Executor::new(config).unwrap(), book: Book::default(), link: DispatcherLink::default() }
    }

    fn welcome(journal: u64, incarnation: u64) -> Welcome {
        let settings =
            Settings { lease_ns: 1, heartbeat_ns: 1, capture_head_bytes: 0, capture_tail_bytes: 0 };
        let (executor, member, now) = (ExecutorId(1), None, Timestamp(1));
        Welcome::Executor { executor, incarnation, journal, member, now, settings }
    }

    impl Side {
        pub(in crate::executor) fn enter(&mut self, journal: u64, incarnation: u64) -> Welcomed {
            self.link.connect(&self.core, &self.book, &about());
            self.link.welcome(welcome(journal, incarnation), &mut self.core, &mut self.book, &about())
        }
    }

    #[test]
    fn a_change_of_the_cache_between_hello_and_welcome_is_said_after_the_welcome() {
        let mut s = side();
        let object = s.book.intern("x");
        s.link.connect(&s.core, &s.book, &about());
        assert!(!s.link.tell(&s.book, NodeMessage::ReplicaDropped(object)));
        let taken = s.link.welcome(welcome(1, 1), &mut s.core, &mut s.book, &about());
        let Welcomed::Taken { again, .. } = taken else { panic!("it is taken in") };
        assert_eq!(again, [NodeMessage::ReplicaDropped(object)]);
        // A dispatcher that has not named the object does not hear of it.
        assert!(!s.link.tell(&s.book, again[0].clone()));
        s.book.pair(object, ObjectId(7));
        assert!(s.link.tell(&s.book, again[0].clone()));
        let words = s.link.take_words();
        assert_eq!(words, [FromExecutor::Node(NodeMessage::ReplicaDropped(ObjectId(7)))]);
        assert_eq!(s.link.n_words(), 0);
    }

    #[test]
    fn another_process_of_the_dispatcher_has_other_numbers_and_an_earlier_one_is_not_joined() {
        let mut s = side();
        let object = s.book.intern("x");
        assert!(matches!(s.enter(5, 8), Welcomed::Taken { .. }));
        s.book.pair(object, ObjectId(7));
        assert!(matches!(s.enter(5, 8), Welcomed::Taken { .. }));
        assert_eq!(s.book.theirs(object), Some(ObjectId(7)), "it is the same process");
        assert!(matches!(s.enter(5, 9), Welcomed::Taken { .. }));
        assert_eq!(s.book.theirs(object), None);
        assert!(matches!(s.enter(5, 8), Welcomed::Elsewhere(_)));
        assert!(!s.link.is_connected());
        assert!(matches!(s.enter(6, 2), Welcomed::Taken { .. }), "another journal, another count");
    }

    #[test]
    fn a_redirected_executor_says_goodbye_as_its_last_word_and_belongs_to_the_other_then() {
        let mut s = side();
        s.enter(1, 1);
        s.link.redirect(MemberId(2), "there".into());
        s.link.say(FromExecutor::Status(Box::default()));
        let (member, address, words) = s.link.go(&mut s.core).expect("it has nothing left");
        assert_eq!((member, address.as_str()), (MemberId(2), "there"));
        assert!(matches!(words[..], [FromExecutor::Status(_), FromExecutor::Bye { .. }]));
        assert_eq!((s.link.member(), s.link.known_as()), (Some(MemberId(2)), None));
        assert!(!s.link.is_connected() && !s.link.is_going());
    }
}
