//! The dispatcher as one of a group: connections among dispatchers, runs in parts, executors that belong elsewhere.
//!
//! Each dispatcher has a connection of its own to each other one, on which only it speaks; what is said for the state
//! machines is theirs ([`eyas_core::group`]). When one comes up, everything that the other needs to know is said
//! again, so nothing is numbered or acknowledged.
//!
//! A run is opened at the first member, which is also the one that decides: a client hands each part to its dispatcher,
//! has all others *prepare* theirs (durable; from then on they do not give up on their own), and commits at the first
//! one. What that has in its journal is what happened: it tells the others, and tells those again that were away. A run
//! that it does not know was not committed.
//!
//! What is added to a run in parts is a submission in parts into it. The first member lets in one after the other; each of the
//! others begins with it when it has heard what became of the one before. So what a client hears when it asks all members about files
//! ([`eyas_core::dispatcher::Dispatcher::consult`]) holds until its own submission is decided.
//!
//! Where the members are is kept in `group.json` and told at each connection; a member comes back at the port that it had, if
//! it can, and tells the others where it is if not.
//!
//! Not here: how a submission is split ([`eyas_core::group::split`]), what files cross (`core`'s `exchange`).

use super::service::{Effect, Input, Service};
use super::{DispatcherError, DispatcherOptions, JOIN_FILE, Record};
use crate::clock::{self, DispatchersClock};
use crate::net::{self, Writer};
use eyas_core::array::TaskArray;
use eyas_core::event::{AssignedInput, Event};
use eyas_core::group::{MemberLoad, Membership, RunLinks, home_of};
use eyas_core::pattern::RunPatterns;
use eyas_core::*;
use eyas_text::shown_path;
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

const GROUP_FILE: &str = "group.json";
/// How long a dispatcher waits before it tries again to reach another one.
const LINK_WAIT: Duration = Duration::from_millis(200);
/// An executor that was sent to another dispatcher is counted there for so long, until that one tells its load.
const SENT_NS: u64 = 3_000_000_000;

/// Which of several dispatchers this one is.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    pub membership: Membership,
    /// Join file of another member: whose cluster this is, and where that one is. The first member needs none.
    pub join: Option<PathBuf>,
}

/// What outlives the process.
#[derive(Serialize, Deserialize)]
struct Kept {
    membership: Membership,
    /// Where each member was last.
    addresses: Vec<String>,
    /// Port that this one listened on.
    port: u16,
}

/// `Err`: the directory is a group's, and this dispatcher was not told that it is one of several.
pub(super) fn check_alone(dir: &Path) -> Result<(), DispatcherError> {
    let Some(Kept { membership: Membership { me, n_members }, .. }) = read_kept(dir) else { return Ok(()) };
    let (dir, k) = (shown_path(dir), me.0 + 1);
    let what =
        format!("{dir} is of dispatcher {k} of {n_members}; start it as that, with --member {k}/{n_members}");
    Err(DispatcherError::Config(what))
}

/// The join file that a member was given.
pub(super) fn read_told(options: &DispatcherOptions) -> Result<Option<Join>, DispatcherError> {
    let path = options.group.as_ref().and_then(|g| g.join.as_ref());
    match path.map(|path| Join::read(path)).transpose() {
        // It was here before, and knows the others without that file, whose dispatcher may be away.
        Err(_) if read_kept(&options.dir).is_some() => Ok(None),
        told => Ok(told?),
    }
}

fn read_kept(dir: &Path) -> Option<Kept> {
    serde_json::from_slice(&std::fs::read(dir.join(GROUP_FILE)).ok()?).ok()
}

/// A member that was asked for any free port takes the one it had, so that those who know it find it again.
pub(super) async fn earlier_listener(options: &DispatcherOptions, dir: &Path) -> Option<TcpListener> {
    options.group.as_ref()?;
    let host = options.listen.strip_suffix(":0")?;
    let kept = read_kept(dir)?;
    TcpListener::bind(format!("{host}:{}", kept.port)).await.ok()
}

/// See the module.
pub(super) struct Group {
    membership: Membership,
    port: u16,
    /// Where the members are; empty where that is not known.
    addresses: Vec<String>,
    /// The same for those who connect to them.
    tell_addresses: Option<watch::Sender<Vec<String>>>,
    join: Option<Join>,
    /// Our connections to others, and theirs to us.
    links: BTreeMap<MemberId, Writer>,
    members: HashMap<u64, MemberId>,
    /// Others' executors: where they serve their caches, and their names on the data plane.
    foreign: HashMap<ExecutorId, (String, u32)>,
    /// Which of ours know which of those.
    told: HashSet<(ExecutorId, ExecutorId)>,
    /// The clocks of the others, as far as they have told them.
    clocks: BTreeMap<MemberId, DispatchersClock>,
    loads: BTreeMap<MemberId, MemberLoad>,
    load_told: Option<MemberLoad>,
    /// Executors that were sent elsewhere and may not be in the others' loads yet.
    sent: Vec<(MemberId, u64, Timestamp)>,
    /// Runs in parts.
    linked: BTreeSet<RunId>,
    /// Prepared here; the first member says what becomes of them.
    in_doubt: BTreeSet<RunId>,
}

impl Group {
    pub fn new(membership: Membership) -> Group {
        Group {
            membership,
            port: 0,
            addresses: vec![],
            tell_addresses: None,
            join: None,
            links: BTreeMap::new(),
            members: HashMap::new(),
            foreign: HashMap::new(),
            told: HashSet::new(),
            clocks: BTreeMap::new(),
            loads: BTreeMap::new(),
            load_told: None,
            sent: vec![],
            linked: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
        }
    }

    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn address(&self, member: MemberId) -> String {
        self.addresses.get(member.0 as usize).cloned().unwrap_or_default()
    }
}

impl Service {
    // ------------------------------------------------------------ members

    /// Learns where the others are, and begins to connect to them.
    pub fn join_group(
        &mut self,
        options: &GroupOptions,
        told: Option<&Join>,
        bound: SocketAddr,
        join: &mut Join,
        inputs: &mpsc::Sender<Input>,
    ) -> Result<(), DispatcherError> {
        let membership @ Membership { me, n_members } = options.membership;
        let dir = shown_path(&self.dir).to_string();
        let kept = read_kept(&self.dir);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.membership != membership) {
            let Membership { me, n_members } = kept.membership;
            let what = format!("{dir} is of dispatcher {} of {n_members}", me.0 + 1);
            return Err(DispatcherError::Config(format!("{what}; that does not change")));
        }
        if let Some(told) = told.filter(|told| told.cluster != join.cluster) {
            let what = format!("{dir} is of cluster {}, the join file of {}", join.cluster, told.cluster);
            return Err(DispatcherError::Config(what));
        }
        let mut addresses = kept.map_or_else(Vec::new, |kept| kept.addresses);
        addresses.resize(n_members as usize, String::new());
        if let Some(told) = told {
            let known =
                if told.members.is_empty() { std::slice::from_ref(&told.address) } else { &told.members };
            for (address, known) in addresses.iter_mut().zip(known) {
                if !known.is_empty() {
                    address.clone_from(known);
                }
            }
        }
        addresses[me.0 as usize].clone_from(&join.address);
        join.members.clone_from(&addresses);
        let (tell, hear) = watch::channel(addresses.clone());
        for member in membership.others() {
            let link = Link { member, membership, addresses: hear.clone(), inputs: inputs.clone() };
            tokio::spawn(link.keep(join.identity.clone()));
        }
        let group = self.group.as_mut().expect("it was made with the same options");
        group.port = bound.port();
        group.addresses = addresses;
        group.tell_addresses = Some(tell);
        group.join = Some(join.clone());
        self.keep_group();
        Ok(())
    }

    fn keep_group(&self) {
        let Some(group) = &self.group else { return };
        let kept =
            Kept { membership: group.membership, addresses: group.addresses.clone(), port: group.port };
        let (path, fresh) = (self.dir.join(GROUP_FILE), self.dir.join("group.tmp"));
        let bytes = serde_json::to_vec_pretty(&kept).expect("plain values");
        // What is lost with it is told again by the others.
        if std::fs::write(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, &path)).is_err() {
            eyas_text::say!("eyas: cannot write {}", shown_path(&path));
        }
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
        if !changed {
            return;
        }
        if let Some(tell) = &group.tell_addresses {
            let _ = tell.send(group.addresses.clone());
        }
        if let Some(join) = &mut group.join {
            join.members.clone_from(&group.addresses);
            if let Err(e) = join.write(&self.dir.join(JOIN_FILE)) {
                eyas_text::say!("eyas: {e}");
            }
        }
        self.keep_group();
    }

    pub(super) fn on_member(
        &mut self,
        connection: u64,
        member: MemberId,
        n_members: u32,
        addresses: Vec<String>,
    ) {
        let ours = self.group.as_ref().map(|g| g.membership);
        let writer = self.connections[&connection].writer.clone();
        if !ours.is_some_and(|o| o.n_members == n_members && o.me != member && member.0 < n_members) {
            let who = ours.map_or("the only one".into(), |o| format!("{} of {}", o.me.0 + 1, o.n_members));
            let reason =
                format!("this dispatcher is {who}, it has no place for {} of {n_members}", member.0 + 1);
            writer.send(&Welcome::Refused { reason });
            return;
        }
        self.learn_addresses(member, &addresses);
        let group = self.group.as_mut().expect("seen above");
        writer.send(&Welcome::Member { addresses: group.addresses.clone(), now: clock::now() });
        group.members.insert(connection, member);
    }

    pub(super) fn member_gone(&mut self, connection: u64) {
        if let Some(group) = &mut self.group {
            group.members.remove(&connection);
        }
    }

    pub(super) fn on_link_up(&mut self, member: MemberId, writer: Writer) {
        let Some(group) = &mut self.group else { return };
        group.links.insert(member, writer);
        eyas_text::say!("eyas: dispatcher {} of the group is connected", member.0 + 1);
        group.load_told = None;
        let ours = self.executors.keys().copied().collect::<Vec<_>>();
        let peers = ours.into_iter().map(|executor| self.peer(executor)).collect();
        self.tell_member(member, FromMember::Peers(peers));
        self.feed(Event::MemberConnected { member });
        self.ask_doubts();
        self.tell_load();
    }

    pub(super) fn on_link_down(&mut self, member: MemberId) {
        let Some(group) = &mut self.group else { return };
        if group.links.remove(&member).is_some() {
            eyas_text::say!("eyas: the connection to dispatcher {} of the group broke", member.0 + 1);
        }
        group.loads.remove(&member);
        self.feed(Event::MemberSilent { member });
    }

    pub(super) fn tell_member(&self, member: MemberId, message: FromMember) {
        if let Some(link) = self.group.as_ref().and_then(|g| g.links.get(&member)) {
            link.send(&vec![message]);
        }
    }

    fn tell_members(&self, message: &FromMember) {
        for link in self.group.iter().flat_map(|g| g.links.values()) {
            link.send(&std::slice::from_ref(message));
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
            };
            if let Some(what) = self.core.find_nonsense(&event) {
                let who = format!("dispatcher {} of {n_members}", member.0 + 1);
                eyas_text::say!("eyas: {who} speaks of {what}; its connection is closed");
                return self.on_disconnected(connection);
            }
            match event {
                Event::MemberLoadChanged { load, .. } => self.on_load(member, load),
                event => self.feed(event),
            }
        }
    }

    /// What people should know: members that are not there.
    pub(super) fn group_warning(&self) -> Option<String> {
        let group = self.group.as_ref()?;
        let away: Vec<String> = group
            .membership
            .others()
            .filter(|m| !group.links.contains_key(m))
            .map(|m| (m.0 + 1).to_string())
            .collect();
        let n = group.membership.n_members;
        (!away.is_empty()).then(|| format!("no connection to dispatcher {} of {n}", away.join(", ")))
    }

    // ------------------------------------------------------------ executors

    fn peer(&self, executor: ExecutorId) -> (ExecutorId, String, u32, String) {
        let e = &self.executors[&executor];
        let name = self.executor_names.get(&executor).cloned().unwrap_or_default();
        (executor, e.data_address.clone(), e.data_id, name)
    }

    /// The others hear of an executor before they hear what it holds.
    pub(super) fn tell_peers_of(&mut self, executor: ExecutorId) {
        let Some(group) = &mut self.group else { return };
        // It may be another process than the one that was told.
        group.told.retain(|(ours, _)| *ours != executor);
        self.tell_members(&FromMember::Peers(vec![self.peer(executor)]));
        self.tell_load();
    }

    fn on_foreign(&mut self, peers: Vec<(ExecutorId, String, u32, String)>) {
        let Some(group) = &mut self.group else { return };
        for (executor, address, data_id, name) in peers {
            let new = (address, data_id);
            if group.foreign.get(&executor) != Some(&new) {
                group.told.retain(|(_, foreign)| *foreign != executor);
                group.foreign.insert(executor, new);
                self.executor_names.insert(executor, name);
            }
        }
    }

    pub(super) fn learn_clock(&mut self, member: MemberId, now: Timestamp) {
        if let Some(group) = &mut self.group {
            group.clocks.entry(member).or_default().said(now);
        }
    }

    /// Now, by the clock that `executor` goes by: that of its dispatcher, where it is another one's.
    pub(super) fn clock_of(&self, executor: ExecutorId) -> Timestamp {
        let theirs = self
            .group
            .as_ref()
            .and_then(|g| g.clocks.get(&eyas_core::group::giver_of(executor.0, g.membership.n_members)));
        theirs.map_or_else(clock::now, DispatchersClock::now)
    }

    pub(super) fn foreign_data_id(&self, executor: ExecutorId) -> Option<u32> {
        self.group.as_ref()?.foreign.get(&executor).map(|(_, data_id)| *data_id)
    }

    /// Before `executor` is sent to others' executors it is told where they are.
    pub(super) fn tell_foreign_peers(&mut self, executor: ExecutorId, inputs: &[AssignedInput]) {
        let Some(group) = &mut self.group else { return };
        let mut peers = vec![];
        for source in inputs.iter().flat_map(|i| &i.sources) {
            if !self.executors.contains_key(source)
                && let Some((address, data_id)) = group.foreign.get(source)
                && group.told.insert((executor, *source))
            {
                peers.push((*source, address.clone(), *data_id));
            }
        }
        if !peers.is_empty() {
            self.tell(executor, ToExecutor::Peers { peers });
        }
    }

    /// The member that an executor should be at, if not here. Whoever was welcomed anywhere says where that was.
    pub(super) fn elsewhere(&mut self, hello: &ExecutorHello) -> Option<(MemberId, String)> {
        let now = clock::now();
        let ours = self.core.load();
        let group = self.group.as_mut()?;
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
            && let Some(e) = self.executors.get(&executor)
        {
            group.foreign.insert(executor, (e.data_address.clone(), e.data_id));
        }
    }

    pub(super) fn send_away(&mut self, executor: ExecutorId, member: MemberId) {
        let Some(group) = &self.group else { return };
        let address = group.address(member);
        self.tell(executor, ToExecutor::Redirect { member, address });
    }

    fn on_load(&mut self, member: MemberId, load: MemberLoad) {
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
        let load = self.core.load();
        let Some(group) = &mut self.group else { return };
        if group.load_told.as_ref() != Some(&load) {
            group.load_told = Some(load.clone());
            self.tell_members(&FromMember::Load(load));
        }
    }

    // ------------------------------------------------------------ runs in parts

    fn opens_runs(&self) -> bool {
        self.group.as_ref().is_none_or(|g| g.membership.me == MemberId(0))
    }

    /// Why no run can be opened here, if it cannot.
    pub(super) fn why_not_opened(&self) -> Option<String> {
        (!self.opens_runs()).then(|| "the runs of a group are opened at its first dispatcher".into())
    }

    /// Whether `run` is one in parts, as far as this member was told.
    pub(super) fn is_in_parts(&self, run: RunId) -> bool {
        self.group.as_ref().is_some_and(|g| g.linked.contains(&run))
    }

    /// Whether what became of the run `whole`, or of a submission into it, is decided and not known here yet. `again`: it is
    /// begun anew, so the first member has given up what has its token.
    fn is_in_doubt(&mut self, again: &Addition) -> bool {
        let Some(group) = &self.group else { return false };
        let into = |run: &RunId| self.addition_of(*run).filter(|a| a.run == again.run);
        let given_up = group.in_doubt.iter().find(|run| into(run).is_some_and(|a| a.token == again.token));
        if let Some(run) = given_up.copied() {
            self.forget_prepared(run);
            self.abort(run);
        }
        let Some(group) = &self.group else { return false };
        group
            .in_doubt
            .iter()
            .any(|run| *run == again.run || self.addition_of(*run).is_some_and(|a| a.run == again.run))
    }

    pub(super) fn on_join_run(&mut self, connection: u64, request: Request) {
        let Request { number, body: RequestBody::JoinRun { run, name, keep, into } } = request else {
            return;
        };
        if self.group.as_ref().is_some_and(|g| g.in_doubt.contains(&run)) {
            // The first member gives the number again: it was killed before it had the other run for sure.
            self.forget_prepared(run);
            self.abort(run);
        }
        if let Some(addition) = &into
            && self.is_in_doubt(addition)
        {
            // The first member does one after the other, and tells in a moment what became of the one before.
            let body = RequestBody::JoinRun { run, name, keep, into };
            return self.deferred.push((connection, Request { number, body }));
        }
        let whole = into.as_ref().map(|addition| addition.run);
        let why_not = match whole {
            // There are as many numbers as runs; the last one leaves none for the next.
            _ if run.0 == u32::MAX => Some(format!("there cannot be a run {run}")),
            _ if self.group.is_none() || self.opens_runs() || self.core.find_run(run).is_some() => {
                Some(format!("run {run} cannot have a part here"))
            }
            Some(whole) => self.core.why_closed(whole),
            None => None,
        };
        if let Some(reason) = why_not {
            return self.reply(connection, number, ReplyBody::Refused { reason });
        }
        self.next_run = self.next_run.max(run.0 + 1);
        let was_over = whole.is_some_and(|whole| self.is_over(whole));
        self.open(connection, run, name, keep, into);
        self.reply(connection, number, ReplyBody::RunOpened { run, was_over });
    }

    pub(super) fn on_consult(&mut self, connection: u64, number: u64, run: RunId, array: &TaskArray) {
        let body = match array.check() {
            Err(why) => ReplyBody::Refused { reason: format!("a group of tasks is malformed: {why}") },
            Ok(()) if self.submitting.get(&run) != Some(&connection) => {
                ReplyBody::Refused { reason: format!("run {run} is not being submitted by this client") }
            }
            Ok(()) => ReplyBody::Consulted(Box::new(self.core.consult(run, array))),
        };
        self.reply(connection, number, body);
    }

    pub(super) fn on_link_run(
        &mut self,
        connection: u64,
        number: u64,
        run: RunId,
        links: RunLinks,
        patterns: RunPatterns,
    ) {
        if self.group.is_none() || self.submitting.get(&run) != Some(&connection) {
            let reason = format!("run {run} has no parts");
            return self.reply(connection, number, ReplyBody::Refused { reason });
        }
        if self.journal_submission(run, &Record::RunLinked { run, links: Cow::Borrowed(&links) }) {
            self.on_linked(run, links);
        }
        if patterns != RunPatterns::default()
            && self.journal_submission(run, &Record::RunPatterns { run, patterns: Cow::Borrowed(&patterns) })
        {
            self.feed(Event::RunPatterns { run, patterns });
        }
        if let Some(reason) = self.refused.get(&run).cloned() {
            self.reply(connection, number, ReplyBody::Refused { reason });
        }
    }

    pub(super) fn on_linked(&mut self, run: RunId, links: RunLinks) {
        if let Some(group) = &mut self.group {
            group.linked.insert(run);
            self.feed(Event::RunLinked { run, links });
        }
    }

    pub(super) fn on_prepare_run(&mut self, connection: u64, number: u64, run: RunId) {
        if self.submitting.get(&run) != Some(&connection) {
            let reason = format!("run {run} is not being submitted by this client");
            self.reply(connection, number, ReplyBody::Refused { reason });
        } else if let Some(reason) = self.refused.remove(&run) {
            self.abort(run);
            self.reply(connection, number, ReplyBody::Refused { reason });
        } else {
            let effect = Effect::RunPrepared { connection, number, run };
            self.journal(&Record::RunPrepared { run }, Some(effect));
        }
    }

    /// A part is durable: its client may go now.
    pub(super) fn on_prepared(&mut self, connection: u64, number: u64, run: RunId) {
        if self.submitting.remove(&run).is_none() {
            return; // the client went away before
        }
        self.note_prepared(run);
        let n_tasks = self.core.find_run(run).map_or(0, |r| r.n_tasks);
        self.reply(connection, number, ReplyBody::RunPrepared { run, n_tasks });
    }

    pub(super) fn note_prepared(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.in_doubt.insert(run);
        }
    }

    pub(super) fn forget_prepared(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.in_doubt.remove(&run);
        }
    }

    /// The first member tells what became of a submission in parts. Who does not hear it asks.
    pub(super) fn tell_decided(&self, run: RunId) {
        if self.opens_runs() {
            let committed = self.core.is_accepted(run);
            self.tell_members(&FromMember::Decided { run, committed });
        }
    }

    /// Asks the first member for what is in doubt here: from time to time, as its word may have come too early or not at
    /// all.
    pub(super) fn ask_doubts(&self) {
        let Some(group) = self.group.as_ref().filter(|group| !group.in_doubt.is_empty()) else { return };
        let runs = group.in_doubt.iter().copied().collect();
        self.tell_member(MemberId(0), FromMember::InDoubt { runs });
    }

    fn on_doubts(&self, member: MemberId, runs: &[RunId]) {
        // What is not known here was never committed.
        for run in runs.iter().copied().filter(|run| self.opens_runs() && !self.submitting.contains_key(run))
        {
            let committed = self.core.is_accepted(run);
            self.tell_member(member, FromMember::Decided { run, committed });
        }
    }

    fn on_decided(&mut self, run: RunId, committed: bool) {
        if !self.group.as_mut().is_some_and(|group| group.in_doubt.remove(&run)) {
            return;
        }
        if committed {
            // Should it not become durable: it would be in doubt again, and told the same again.
            self.journal(&Record::RunCommitted { run }, None);
            self.on_committed(run);
        } else {
            self.abort(run);
        }
    }
}

/// Our connection to another dispatcher, made again whenever it breaks.
struct Link {
    member: MemberId,
    membership: Membership,
    addresses: watch::Receiver<Vec<String>>,
    inputs: mpsc::Sender<Input>,
}

impl Link {
    async fn keep(mut self, identity: Identity) {
        loop {
            let addresses = self.addresses.borrow_and_update().clone();
            let address = &addresses[self.member.0 as usize];
            if !address.is_empty() && self.hold(address, &addresses, &identity).await.is_none() {
                return; // the dispatcher is ending
            }
            tokio::select! {
                () = tokio::time::sleep(LINK_WAIT) => {}
                changed = self.addresses.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Connects, and returns when that is over. `None`: nobody listens to us any more.
    async fn hold(&self, address: &str, addresses: &[String], identity: &Identity) -> Option<()> {
        let Membership { me, n_members } = self.membership;
        let hello = Hello::Member { member: me, n_members, addresses: addresses.to_vec() };
        let Ok((mut reader, writer, welcome)) = net::enter(address, identity, &hello).await else {
            return Some(());
        };
        match welcome {
            Welcome::Member { addresses, now } => {
                let told = Input::Addresses { member: self.member, addresses, now };
                self.inputs.send(told).await.ok()?;
            }
            Welcome::Refused { reason } => {
                eyas_text::say!("eyas: the dispatcher at {address} refused: {reason}");
                return Some(());
            }
            _ => return Some(()),
        }
        self.inputs.send(Input::LinkUp { member: self.member, writer }).await.ok()?;
        // It says nothing; this ends when the connection does.
        while let Ok(Some(())) = reader.next::<()>().await {}
        self.inputs.send(Input::LinkDown { member: self.member }).await.ok()
    }
}
