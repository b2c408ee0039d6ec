//! The way to the dispatcher: when to connect and to whom, and words gathered into batches. What is said, and in which order, is
//! the session's ([`eyas_session::executor::DispatcherLink`]).
//!
//! What programs printed while nobody listened waits; it is bounded, and the oldest goes first.

use super::programs::explain_failure;
use super::*;
use eyas_core::group::to_try;
use eyas_session::executor::Welcomed;

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
        let (member, known, n_tries) = (self.link.member(), self.address.clone(), self.n_tries as usize);
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
        let hello = self.link.connect(&self.core, &self.book, &self.about);
        writer.send(&Hello::Executor(hello));
        self.writer = Some(writer);
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
        let before = self.link.incarnation();
        let welcomed = self.link.welcome(welcome, &mut self.core, &mut self.book, &self.about);
        let (executor, now, settings, again) = match welcomed {
            Welcomed::Taken { executor, now, settings, again } => (executor, now, settings, again),
            Welcomed::Elsewhere(why) => {
                self.look_elsewhere(why);
                return Ok(());
            }
            Welcomed::Redirected(_, address) => {
                self.go_to(address);
                return Ok(());
            }
            Welcomed::Refused(reason) => return Err(NetError::Refused(reason).into()),
        };
        if self.link.incarnation() != before {
            self.permits.clear();
        }
        eyas_text::say!("eyas: the dispatcher has taken this executor in, as number {executor}");
        self.n_tries = 0;
        self.last_try = LastTry::default();
        self.dispatchers_clock.said(now);
        self.settings = settings;
        self.rights.connected(self.settings.lease_ns);
        self.home_share.number = 0;
        self.home_use.forget_told();
        self.last_contact = Instant::now();
        self.next_status = Instant::now();
        for printed in self.printed.drain(..) {
            self.link.say(FromExecutor::Printed(Box::new(printed)));
        }
        for message in again {
            self.tell(message);
        }
        Ok(())
    }

    pub(super) fn disconnect(&mut self) {
        self.link.disconnect();
        self.writer = None;
    }

    /// Who answered is not the dispatcher whose work this executor has. It may be at this address again later, or at
    /// another one; when the lease is over before, this executor ends with what it has.
    fn look_elsewhere(&mut self, why: &str) {
        self.life += 1;
        self.disconnect();
        self.last_try = LastTry::Failed(why.into());
        self.n_tries += 1;
        self.connect(RECONNECT_WAIT);
    }

    /// This executor belongs to another dispatcher of the group, which is there. Empty: nobody here knows where.
    fn go_to(&mut self, address: String) {
        self.life += 1;
        self.disconnect();
        // Where it is not known, somebody who knows is asked after a while.
        let wait = if address.is_empty() { RECONNECT_WAIT } else { Duration::ZERO };
        self.n_tries = u32::from(address.is_empty());
        self.address = Some(address).filter(|a| !a.is_empty()).or(self.address.take());
        self.connect(wait);
    }

    /// Goes where it was told to go, once nothing is left to do here or to be recorded.
    pub(super) fn go_elsewhere(&mut self) {
        let Some((_, address, words)) = self.link.go(&mut self.core) else { return };
        if let Some(writer) = &self.writer {
            writer.send(&words);
        }
        self.go_to(address);
    }

    pub(super) fn tell(&mut self, mut message: NodeMessage) {
        if let NodeMessage::AttemptEnded { report } = &mut message {
            self.complete(Arc::make_mut(report));
        }
        // What the cache holds and what it may hold are told together.
        let status = matches!(message, NodeMessage::CacheResized { .. }).then(|| self.status());
        self.link.tell(&self.book, message);
        if let Some(status) = status {
            self.link.say(FromExecutor::Status(Box::new(status)));
        }
    }

    /// Adds what only the driver knows of an attempt that has ended.
    fn complete(&mut self, report: &mut AttemptReport) {
        let is_local = |outcome: CacheOutcome| {
            matches!(outcome, CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace)
        };
        let local = report.inputs.iter().filter(|input| is_local(input.outcome));
        self.counters.local_bytes += local.map(|input| input.size_bytes).sum::<u64>();
        if let Outcome::Failed(failure) = &mut report.outcome
            && let Some(context) = self.attempts.get(&(report.task, report.attempt))
        {
            explain_failure(failure, context);
        }
    }

    /// Where home is limited, the dispatcher divides it by who uses it.
    pub(super) fn report_home(&mut self) {
        // Before the first word of a dispatcher about its shares an answer would be to another one.
        if self.home_share.number == 0 {
            return;
        }
        let (n_streams, moved_bytes) = (self.core.n_home_streams(), self.homes.moved_bytes());
        if self.link.is_welcomed()
            && let Some(report) = self.home_use.report(clock::now(), n_streams, moved_bytes, self.home_share)
        {
            self.link.say(FromExecutor::Home(report));
        }
    }

    /// Sends what there is to say, now or, while the slots have more to do than this takes, a little later.
    pub(super) fn flush_or_hold(&mut self) {
        let n_words = self.link.n_words();
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
        let words = self.link.take_words();
        if let Some(writer) = self.writer.as_ref().filter(|_| !words.is_empty()) {
            writer.send(&words);
        }
    }
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
