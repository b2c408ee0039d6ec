//! The dispatcher as one of a group: what dispatchers tell each other, and executors that belong elsewhere.
//!
//! Each dispatcher has a connection of its own to each other one, on which only it speaks; what is said for the state
//! machines is theirs ([`eyas_core::group`]). When one comes up, everything that the other needs to know is said
//! again, so nothing is numbered or acknowledged.

use super::executors::ServedAt;
use super::{Connection, Outside, Session};
use crate::clock;
use eyas_core::event::Event;
use eyas_core::group::{MemberLoad, Membership, giver_of, home_of};
use eyas_terms::{ExecutorId, MemberId, RunId, Timestamp};
use eyas_wire::message::{ExecutorHello, FromMember, ToExecutor, Welcome};
use eyas_wire::users::Principal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// An executor that was sent to another dispatcher is counted there for so long, until that one tells its load.
const SENT_NS: u64 = 3_000_000_000;

/// What a dispatcher knows of the others.
pub(super) struct Group {
    membership: Membership,
    /// Where the members are; empty where that is not known.
    addresses: Vec<String>,
    /// Those to which we have a connection.
    links: BTreeSet<MemberId>,
    /// Theirs to us.
    members: BTreeMap<u64, MemberId>,
    /// Others' executors: where they serve their caches.
    foreign: HashMap<ExecutorId, Arc<ServedAt>>,
    /// By how much the clocks of the others are ahead, as far as they have told them.
    clocks_ahead_ns: BTreeMap<MemberId, i64>,
    loads: BTreeMap<MemberId, MemberLoad>,
    load_told: Option<MemberLoad>,
    /// Executors that were sent elsewhere and may not be in the others' loads yet.
    sent: Vec<(MemberId, u64, Timestamp)>,
    /// Runs in parts.
    pub(super) linked: BTreeSet<RunId>,
    /// Prepared here; the first member says what becomes of them.
    pub(super) in_doubt: BTreeSet<RunId>,
    /// The incarnation of the first member's latest process that is known to have opened a submission.
    pub(super) last_opener: u64,
}

impl Group {
    pub(super) fn new(membership: Membership) -> Group {
        Group {
            membership,
            addresses: vec![],
            links: BTreeSet::new(),
            members: BTreeMap::new(),
            foreign: HashMap::new(),
            clocks_ahead_ns: BTreeMap::new(),
            loads: BTreeMap::new(),
            load_told: None,
            sent: vec![],
            linked: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            last_opener: 0,
        }
    }

    pub(super) fn is_first(&self) -> bool {
        self.membership.me == MemberId(0)
    }

    pub(super) fn n_others(&self) -> usize {
        self.membership.n_members as usize - 1
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn address(&self, member: MemberId) -> String {
        self.addresses.get(member.0 as usize).cloned().unwrap_or_default()
    }
}

impl<O: Outside> Session<O> {
    /// Where the members are when this process begins: as an earlier one `kept` it, but where the join file of another member
    /// says more (`given`), and at `own` this one. Gives the addresses of all.
    pub fn begin_with_addresses(&mut self, kept: Vec<String>, given: &[String], own: &str) -> &[String] {
        let Some(group) = &mut self.group else { return &[] };
        group.addresses = kept;
        group.addresses.resize(group.membership.n_members as usize, String::new());
        for (address, known) in group.addresses.iter_mut().zip(given) {
            if !known.is_empty() {
                address.clone_from(known);
            }
        }
        group.addresses[group.membership.me.0 as usize] = own.into();
        &group.addresses
    }

    /// Another member said where members are. Of itself it knows best.
    pub(super) fn learn_addresses(&mut self, from: MemberId, addresses: &[String]) {
        let Some(group) = &mut self.group else { return };
        let mut changed = false;
        for (i, (known, told)) in group.addresses.iter_mut().zip(addresses).enumerate() {
            let is_better = known.is_empty() || i == from.0 as usize;
            if i != group.membership.me.0 as usize && is_better && !told.is_empty() && known != told {
                known.clone_from(told);
                changed = true;
            }
        }
        if changed {
            self.outside.keep_addresses(&group.addresses);
        }
    }

    /// `Err`: this is no member of our group, and the answer to its hello.
    pub(super) fn on_member(
        &mut self,
        connection: u64,
        member: MemberId,
        n_members: u32,
        addresses: Vec<String>,
    ) -> Result<(), Welcome> {
        let ours = self.group.as_ref().map(|g| g.membership);
        if !ours.is_some_and(|o| o.n_members == n_members && o.me != member && member.0 < n_members) {
            let who = ours.map_or("the only one".into(), |o| format!("{} of {}", o.me.0 + 1, o.n_members));
            let reason =
                format!("this dispatcher is {who}, it has no place for {} of {n_members}", member.0 + 1);
            return Err(Welcome::Refused { reason });
        }
        self.connections.insert(connection, Connection::of(Principal::Owner));
        self.learn_addresses(member, &addresses);
        let group = self.group.as_mut().expect("seen above");
        group.members.insert(connection, member);
        let welcome = Welcome::Member { addresses: group.addresses.clone(), now: self.now };
        self.outside.welcome(connection, welcome);
        Ok(())
    }

    /// A member's connection to us is gone, if it is one's: what it said of its load is not true for long.
    pub(super) fn member_gone(&mut self, connection: u64) {
        let Some(group) = &mut self.group else { return };
        let Some(member) = group.members.remove(&connection) else { return };
        // It may have another connection already, on which it has said it again.
        if group.members.values().all(|other| *other != member) && group.loads.remove(&member).is_some() {
            self.feed(Event::MemberLoadChanged { member, load: MemberLoad::default() });
        }
    }

    pub(super) fn on_member_reached(&mut self, member: MemberId) {
        let Some(group) = &mut self.group else { return };
        group.links.insert(member);
        group.load_told = None;
        self.say(format!("eyas: dispatcher {} of the group is connected", member.0 + 1));
        let ours = self.executors.by_id.keys().copied().collect::<Vec<_>>();
        let peers = ours.into_iter().map(|executor| self.peer(executor)).collect();
        self.tell_member(member, &FromMember::Peers(peers));
        self.feed(Event::MemberConnected { member });
        self.ask_doubts();
        self.tell_known_runs(member);
        self.tell_all_ended(member);
        self.tell_load();
    }

    pub(super) fn on_member_lost(&mut self, member: MemberId) {
        let Some(group) = &mut self.group else { return };
        if group.links.remove(&member) {
            self.say(format!("eyas: the connection to dispatcher {} of the group broke", member.0 + 1));
        }
        self.feed(Event::MemberSilent { member });
        self.end_inquiry();
    }

    pub(super) fn tell_member(&mut self, member: MemberId, message: &FromMember) {
        if self.group.as_ref().is_some_and(|group| group.links.contains(&member)) {
            self.outside.tell_member(member, message);
        }
    }

    pub(super) fn tell_members(&mut self, message: &FromMember) {
        for member in self.group.iter().flat_map(|group| &group.links) {
            self.outside.tell_member(*member, message);
        }
    }

    pub(super) fn on_member_batch(&mut self, connection: u64, batch: Vec<FromMember>) {
        let Some(group) = &mut self.group else { return };
        let Some(member) = group.members.get(&connection).copied() else { return };
        let n_members = group.membership.n_members;
        for message in batch {
            let event = match message {
                FromMember::Said(messages) => Event::MemberTold { member, messages },
                FromMember::Load(load) => Event::MemberLoadChanged { member, load },
                FromMember::Peers(peers) => {
                    self.on_foreign(peers);
                    continue;
                }
                FromMember::InDoubt { runs } => {
                    self.on_doubts(member, &runs);
                    continue;
                }
                FromMember::Decided { run, committed } => {
                    self.on_decided(run, committed);
                    continue;
                }
                FromMember::AskEnded { number, runs } => {
                    self.on_asked_ended(member, number, runs);
                    continue;
                }
                FromMember::PartsEnded { number, parts } => {
                    self.on_parts_ended(member, number, parts);
                    continue;
                }
                FromMember::Forgotten { run } => {
                    self.on_forgotten_elsewhere(member, [run].into());
                    continue;
                }
                FromMember::KnownRuns { runs, next_run } => {
                    self.on_known_runs(member, runs, next_run);
                    continue;
                }
                FromMember::AllEnded { runs } => {
                    self.on_all_ended(member, runs);
                    continue;
                }
            };
            if let Some(what) = self.core.work().find_nonsense(&event) {
                let who = format!("dispatcher {} of {n_members}", member.0 + 1);
                self.say(format!("eyas: {who} speaks of {what}; its connection is closed"));
                return self.on_disconnected(connection);
            }
            match event {
                Event::MemberLoadChanged { load, .. } => self.on_load(member, load),
                event => self.feed(event),
            }
        }
    }

    /// The other members to which there is no connection.
    pub(super) fn members_away(&self) -> Vec<MemberId> {
        let Some(group) = &self.group else { return vec![] };
        group.membership.others().filter(|member| !group.links.contains(member)).collect()
    }

    /// What people should know: members that are not there.
    pub(super) fn group_warning(&self) -> Option<String> {
        let away: Vec<String> = self.members_away().iter().map(|m| (m.0 + 1).to_string()).collect();
        let n = self.group.as_ref()?.membership.n_members;
        (!away.is_empty()).then(|| format!("no connection to dispatcher {} of {n}", away.join(", ")))
    }

    pub(super) fn peer(&self, executor: ExecutorId) -> (ExecutorId, String, u32, String) {
        let e = &self.executors.by_id[&executor];
        let name = self.executors.names.get(executor).unwrap_or_default().to_owned();
        (executor, e.served_at.address.clone(), e.served_at.data_id, name)
    }

    /// The others hear of an executor before they hear what it holds.
    pub(super) fn tell_peers_of(&mut self, executor: ExecutorId) {
        if self.group.is_none() {
            return;
        }
        let peer = self.peer(executor);
        self.tell_members(&FromMember::Peers(vec![peer]));
        self.tell_load();
    }

    pub(super) fn on_foreign(&mut self, peers: Vec<(ExecutorId, String, u32, String)>) {
        let Some(group) = &mut self.group else { return };
        for (executor, address, data_id, name) in peers {
            let new = ServedAt { address, data_id };
            if group.foreign.get(&executor).is_none_or(|known| **known != new) {
                group.foreign.insert(executor, Arc::new(new));
                self.executors.names.insert(executor, name);
            }
        }
    }

    pub(super) fn learn_clock(&mut self, member: MemberId, now: Timestamp) {
        if let Some(group) = &mut self.group {
            group.clocks_ahead_ns.insert(member, clock::ahead_ns(self.now, now));
        }
    }

    /// Now, by the clock that `executor` goes by: that of its dispatcher, where it is another one's.
    pub(super) fn clock_of(&self, executor: ExecutorId) -> Timestamp {
        let theirs =
            |g: &Group| g.clocks_ahead_ns.get(&giver_of(executor.0, g.membership.n_members)).copied();
        clock::there(self.now, self.group.as_ref().and_then(theirs).unwrap_or(0))
    }

    /// When it was `there` by the clock of `member`, by our own.
    pub(super) fn here(&self, member: MemberId, there: Timestamp) -> Timestamp {
        let ahead_ns = self.group.as_ref().and_then(|g| g.clocks_ahead_ns.get(&member).copied()).unwrap_or(0);
        clock::there(there, ahead_ns.saturating_neg())
    }

    /// Where an executor of another dispatcher serves its cache.
    pub(super) fn foreign_served(&self, executor: ExecutorId) -> Option<&Arc<ServedAt>> {
        self.group.as_ref()?.foreign.get(&executor)
    }

    /// The member that an executor should be at, if not here. Whoever was welcomed anywhere says where that was.
    pub(super) fn elsewhere(&mut self, hello: &ExecutorHello) -> Option<(MemberId, String)> {
        let now = self.now;
        let group = self.group.as_mut()?;
        // It looks at all executors.
        let ours = self.core.load();
        let me = group.membership.me;
        group.sent.retain(|(_, _, at)| now.since_ns(*at) < SENT_NS);
        // Those that have said hello; one that has not told its load yet has just begun.
        let there = group.members.values().map(|member| {
            let n_slots = group.loads.get(member).map_or(0, |load| load.n_slots);
            let sent = group.sent.iter().filter(|(to, _, _)| to == member);
            (*member, n_slots + sent.map(|(_, slots, _)| slots).sum::<u64>())
        });
        let member = home_of(me, hello.member, there.chain([(me, ours.n_slots)]));
        if member == me {
            return None;
        }
        if hello.member.is_none() {
            group.sent.push((member, u64::from(hello.offer.slots), now));
        }
        Some((member, group.address(member)))
    }

    /// An executor says goodbye. If it goes to another member, it may still be asked for files.
    pub(super) fn remember_peer(&mut self, executor: ExecutorId) {
        if let Some(group) = &mut self.group
            && let Some(e) = self.executors.by_id.get(&executor)
        {
            group.foreign.insert(executor, e.served_at.clone());
        }
    }

    pub(super) fn send_away(&mut self, executor: ExecutorId, member: MemberId) {
        let Some(group) = &self.group else { return };
        let address = group.address(member);
        self.tell(executor, ToExecutor::Redirect { member, address });
    }

    pub(super) fn on_load(&mut self, member: MemberId, load: MemberLoad) {
        let Some(group) = &mut self.group else { return };
        // Those that were sent there are in it, or will be in a moment.
        let before = group.loads.insert(member, load.clone());
        if before.as_ref().is_none_or(|b| b.n_slots != load.n_slots) {
            group.sent.retain(|(to, _, _)| *to != member);
        }
        if before.as_ref() != Some(&load) {
            self.feed(Event::MemberLoadChanged { member, load });
        }
    }

    pub(super) fn tell_load(&mut self) {
        if self.group.is_none() {
            return;
        }
        let load = self.core.load();
        let Some(group) = &mut self.group else { return };
        if group.load_told.as_ref() != Some(&load) {
            group.load_told = Some(load.clone());
            self.tell_members(&FromMember::Load(load));
        }
    }
}
