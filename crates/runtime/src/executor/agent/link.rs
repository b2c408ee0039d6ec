//! The way to the dispatcher: connecting and greeting, words gathered into batches, and going to another dispatcher of
//! the group.
//!
//! What is said while nobody listens waits; what programs printed is bounded, and the oldest goes first.

use super::programs::explain_failure;
use super::*;
use eyas_core::group::to_try;

pub(super) const RECONNECT_WAIT: Duration = Duration::from_millis(250);
/// How long words to the dispatcher wait for company while the slots have work. Waking it for each short
/// task costs several times what it does for the task.
const HOLD: Duration = Duration::from_millis(20);
/// So many words wait for no more.
const HOLD_N_MAX: usize = 128;

impl Agent {
    /// Tries to reach the dispatcher, after `wait`, on a task of its own.
    pub(super) fn connect(&self, wait: Duration) {
        let (inputs, path, fallback) =
            (self.inputs.clone(), self.options.join.clone(), self.identity.clone());
        let (member, known, n_tries) = (self.member, self.address.clone(), self.n_tries as usize);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // A restarted dispatcher has written a new address; while it is away there is no file.
            let address = match (Join::read(&path), known) {
                (Ok(join), known) => Ok(address_to_try(&join, member, known, n_tries)),
                (Err(_), Some(known)) => Ok(known),
                (Err(e), None) => Err(e),
            };
            let input = match address {
                Err(e) => Input::NotConnected { error: e.into() },
                Ok(address) => match net::connect(&address, &fallback).await {
                    Ok((reader, writer)) => Input::Connected { reader, writer },
                    Err(error) => Input::NotConnected { error },
                },
            };
            let _ = inputs.send(input);
        });
    }

    pub(super) fn on_connected(&mut self, mut reader: net::Reader, writer: Writer) {
        self.life += 1;
        let life = self.life;
        let held = self.core.held().into_iter().map(|(object, bytes)| Held {
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            // Home has no version of what stays on the nodes.
            origin: self.book.find_name(object).map(str::to_string).and_then(|name| {
                let version =
                    bytes.version.or_else(|| name.starts_with(RUN_FILE).then(HomeVersion::default))?;
                Some((name, version))
            }),
        });
        let offer = Offer {
            name: self.options.name.clone(),
            slots: self.options.slots,
            memory_bytes: self.options.memory_bytes,
            cache_bytes: self.options.cache_bytes,
            held: held.collect(),
            attempts: self.core.attempts(),
            owner: self.known_as.map(|k| k.incarnation),
        };
        let hello = Hello::Executor(ExecutorHello {
            offer,
            data_address: self.data_address.clone(),
            data_id: self.data_id,
            known_as: self.known_as.map(|k| k.executor),
            member: self.member,
        });
        writer.send(&hello);
        self.link = Some(Link { writer, welcomed: false, since_hello: vec![], out: vec![] });
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            if let Ok(Some(welcome)) = reader.next::<Welcome>().await {
                if inputs.send(Input::Welcomed { welcome, life }).is_err() {
                    return;
                }
                while let Ok(Some(batch)) = reader.next::<Vec<ToExecutor>>().await {
                    if inputs.send(Input::FromDispatcher { batch, life }).is_err() {
                        return;
                    }
                }
            }
            let _ = inputs.send(Input::Disconnected { life });
        });
    }

    pub(super) fn on_welcomed(&mut self, welcome: Welcome) -> Result<(), ExecutorError> {
        let Welcome::Executor { executor, incarnation, journal, member, now, settings } = welcome else {
            let reason = match welcome {
                Welcome::Redirected { member, address } => {
                    self.redirect(member, address);
                    return Ok(());
                }
                Welcome::NotMine => {
                    self.look_elsewhere("the dispatcher that answers did not give out the work that is here");
                    return Ok(());
                }
                Welcome::Refused { reason } => reason,
                _ => "it took this executor for a client".into(),
            };
            return Err(NetError::Refused(reason).into());
        };
        if self.known_as.is_some_and(|k| k.journal == journal && k.incarnation > incarnation) {
            // What this one would give out was given out before, or is being given out by the other one.
            self.look_elsewhere(
                "the dispatcher that answers is an earlier one than the last, or a copy of an earlier one",
            );
            return Ok(());
        }
        if self.known_as.is_none_or(|k| k.incarnation != incarnation) {
            self.book.forget_pairs();
            self.permits.clear();
            // Another process said so.
            self.going = None;
        }
        eyas_text::say!("eyas: the dispatcher has taken this executor in, as number {executor}");
        self.known_as = Some(KnownAs { journal, incarnation, executor });
        self.member = member;
        self.n_tries = 0;
        self.last_try = LastTry::default();
        self.dispatchers_clock.said(now);
        self.settings = settings;
        self.rights.connected(self.settings.lease_ns);
        self.home_share.number = 0;
        self.home_use.forget_told();
        self.last_contact = Instant::now();
        self.next_status = Instant::now();
        self.core.reconnected();
        let mut again: Vec<NodeMessage> = self.core.unrecorded().collect();
        if let Some(link) = &mut self.link {
            link.welcomed = true;
            // An attempt may have ended since the hello, and what it read was told on the connection before.
            again.append(&mut link.since_hello);
            link.out.extend(self.printed.drain(..).map(|printed| FromExecutor::Printed(Box::new(printed))));
        }
        let cache_bytes = self.core.cache().budget_bytes();
        if cache_bytes != self.options.cache_bytes {
            again.push(NodeMessage::CacheResized { cache_bytes });
        }
        for message in again {
            self.tell(message);
        }
        Ok(())
    }

    /// Who answered is not the dispatcher whose work this executor has. It may be at this address again later, or at
    /// another one; when the lease is over before, this executor ends with what it has.
    fn look_elsewhere(&mut self, why: &str) {
        self.life += 1;
        self.link = None;
        self.last_try = LastTry::Failed(why.into());
        self.n_tries += 1;
        self.connect(RECONNECT_WAIT);
    }

    /// This executor belongs to another dispatcher of the group.
    pub(super) fn redirect(&mut self, member: MemberId, address: String) {
        self.life += 1;
        self.link = None;
        self.member = Some(member);
        // Where it is not known, somebody who knows is asked after a while.
        let wait = if address.is_empty() { RECONNECT_WAIT } else { Duration::ZERO };
        self.n_tries = u32::from(address.is_empty());
        self.address = Some(address).filter(|a| !a.is_empty()).or(self.address.take());
        self.connect(wait);
    }

    /// Goes where it was told to go, once nothing is left to do here or to be recorded.
    pub(super) fn go_elsewhere(&mut self) {
        if !self.core.attempts().is_empty() || !self.link.as_ref().is_some_and(|l| l.welcomed) {
            return;
        }
        let Some((member, address)) = self.going.take() else { return };
        self.flush();
        if let Some(link) = self.link.take() {
            let reason = format!("it goes to dispatcher {}, which has more to do", member.0 + 1);
            link.writer.send(&vec![FromExecutor::Bye { reason }]);
        }
        self.known_as = None;
        self.core.moved();
        self.redirect(member, address);
    }

    pub(super) fn tell(&mut self, mut message: NodeMessage) {
        let about_cache = matches!(message, NodeMessage::ReplicaAdded(_) | NodeMessage::ReplicaDropped(_));
        if about_cache && let Some(link) = self.link.as_mut().filter(|l| !l.welcomed) {
            link.since_hello.push(message);
            return;
        }
        match &mut message {
            NodeMessage::ReplicaAdded(added) => match self.book.theirs(added.object) {
                Some(object) => added.object = object,
                // This dispatcher has not named it yet; the hello told of it.
                None => return,
            },
            NodeMessage::ReplicaDropped(object) => match self.book.theirs(*object) {
                Some(theirs) => *object = theirs,
                None => return,
            },
            NodeMessage::AttemptEnded { report } => {
                let report = Arc::make_mut(report);
                for input in &report.inputs {
                    if matches!(
                        input.outcome,
                        CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace
                    ) {
                        self.counters.local_bytes += input.size_bytes;
                    }
                }
                let book = &self.book;
                report.inputs.retain_mut(|input| match book.theirs(input.object) {
                    Some(object) => {
                        input.object = object;
                        true
                    }
                    None => false,
                });
                if let Outcome::Failed(failure) = &mut report.outcome
                    && let Some(context) = self.attempts.get(&(report.task, report.attempt))
                {
                    explain_failure(failure, context);
                }
            }
            NodeMessage::PrefetchFailed { object, .. } => match self.book.theirs(*object) {
                Some(theirs) => *object = theirs,
                None => return,
            },
            NodeMessage::InputMoved(moved) => match self.book.theirs(moved.object) {
                Some(object) => {
                    moved.object = object;
                    if let Target::Cache(ours) = &mut moved.target {
                        *ours = object;
                    }
                }
                None => return,
            },
            NodeMessage::OutputsHome { .. }
            | NodeMessage::CacheResized { .. }
            | NodeMessage::PartsRemoved { .. } => {}
        }
        // What the cache holds and what it may hold are told together.
        let status = matches!(message, NodeMessage::CacheResized { .. }).then(|| self.status());
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed) {
            link.out.push(FromExecutor::Node(message));
            link.out.extend(status.map(|status| FromExecutor::Status(Box::new(status))));
        }
    }

    /// Where home is limited, the dispatcher divides it by who uses it.
    pub(super) fn report_home(&mut self) {
        // Before the first word of a dispatcher about its shares an answer would be to another one.
        if self.home_share.number == 0 {
            return;
        }
        let (n_streams, moved_bytes) = (self.core.n_home_streams(), self.homes.moved_bytes());
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed)
            && let Some(report) = self.home_use.report(clock::now(), n_streams, moved_bytes, self.home_share)
        {
            link.out.push(FromExecutor::Home(report));
        }
    }

    /// Sends what there is to say, now or, while the slots have more to do than this takes, a little later.
    pub(super) fn flush_or_hold(&mut self) {
        let n_words = self.link.as_ref().map_or(0, |l| l.out.len());
        let busy = self.attempts.len() > 4 * self.options.slots as usize;
        if n_words == 0 {
            self.send_by = None;
        } else if !busy || n_words >= HOLD_N_MAX {
            self.flush();
        } else {
            self.send_by.get_or_insert_with(|| Instant::now() + HOLD);
        }
    }

    pub(super) fn flush(&mut self) {
        self.send_by = None;
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed && !l.out.is_empty()) {
            link.writer.send(&link.out);
            link.out.clear();
        }
    }
}

pub(super) struct Link {
    pub(super) writer: Writer,
    pub(super) welcomed: bool,
    /// Changes of the cache since the hello, which listed what it held then.
    pub(super) since_hello: Vec<NodeMessage>,
    pub(super) out: Vec<FromExecutor>,
}

/// Where to look for the dispatcher: first where it was, then where the join file says, in a group also at others, which
/// know where it is now.
pub(super) fn address_to_try(
    join: &Join,
    member: Option<MemberId>,
    known: Option<String>,
    n_tries: usize,
) -> String {
    if join.members.is_empty() && member.is_none() {
        return join.address.clone();
    }
    let theirs = member.and_then(|m| join.members.get(m.0 as usize)).filter(|a| !a.is_empty());
    let all = join.members.iter().filter(|a| !a.is_empty());
    to_try(known.as_ref(), theirs, &join.address, all, n_tries).clone()
}
