//! The connection to the dispatcher: when and where to connect, how long the lease lasts, and how messages
//! are gathered into batches.
//!
//! The messages and their order are the session's ([`ExecutorSession`]).

use super::input::{Input, Inputs};
use super::node::NodeState;
use super::{ExecutorError, LastTry, NetError, Writer, net};
use crate::clock;
use eyas_core::event::NodeMessage;
use eyas_core::group::to_try;
use eyas_session::executor::link::About;
use eyas_session::executor::pace::{Beats, Patience, Retry, Silence};
use eyas_session::executor::places::place_to_try;
use eyas_session::executor::{ExecutorSession, Welcomed};
use eyas_terms::*;
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long messages to the dispatcher wait for further messages while the slots have work. Waking the
/// dispatcher for each short task costs several times what the dispatcher does for the task.
const HOLD: Duration = Duration::from_millis(20);
/// When this many messages wait, they are sent at once.
const HOLD_N_MAX: usize = 128;
/// How long the end of this process waits for its last messages to leave.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Connection {
    about: About,
    identity: Identity,
    /// The join file, which has the dispatcher's address.
    join: PathBuf,
    /// The sending end of the connection. `None`: there is no connection.
    writer: Option<Writer>,
    /// Counts connections, so that a late message of an earlier one is recognised.
    life: u64,
    /// Where the dispatcher was last, in a group of them.
    address: Option<String>,
    /// Failed attempts to connect since the last welcome.
    n_tries: u32,
    last_try: LastTry,
    silence: Silence,
    settings: Settings,
    beats: Beats,
    retry: Retry,
    /// When the messages that wait for further ones are sent at the latest. `None`: no message waits.
    send_by: Option<Instant>,
    inputs: Inputs,
}

/// By a clock that nobody sets.
fn monotonic_now() -> Timestamp {
    Timestamp(clock::monotonic_ns())
}

impl Connection {
    /// There is no connection yet; see [`Self::connect`].
    pub(super) fn new(about: About, identity: Identity, join: PathBuf, inputs: Inputs) -> Connection {
        let retry = Retry::new(u64::from(about.data_id));
        let settings = Settings {
            lease_ns: 15_000_000_000,
            heartbeat_ns: 1_000_000_000,
            capture_head_bytes: 16 << 10,
            capture_tail_bytes: 16 << 10,
        };
        Connection {
            about,
            identity,
            join,
            writer: None,
            life: 0,
            address: None,
            n_tries: 0,
            last_try: LastTry::default(),
            silence: Silence::new(monotonic_now()),
            beats: Beats::new(settings.heartbeat_ns),
            settings,
            retry,
            send_by: None,
            inputs,
        }
    }

    pub(super) fn join(&self) -> &Path {
        &self.join
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    pub(super) fn about_mut(&mut self) -> &mut About {
        &mut self.about
    }

    /// The dispatcher's latest settings for leases and captured output, or the defaults before it has sent
    /// any.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a message of connection `life` comes from the present connection.
    pub(super) fn is_current(&self, life: u64) -> bool {
        self.life == life
    }

    // ------------------------------------------------------------ to a dispatcher

    /// Tries to reach the dispatcher, after `wait`, on a task of its own.
    pub(super) fn connect(&self, member: Option<MemberId>, wait: Duration) {
        let (inputs, path, fallback) = (self.inputs.clone(), self.join.clone(), self.identity.clone());
        let (known, n_tries) = (self.address.clone(), self.n_tries as usize);
        let who = u64::from(self.about.data_id);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // A restarted dispatcher has written a new address; while it is away there is no file.
            let address = match (Join::read(&path), known) {
                (Ok(join), _) if join.members.is_empty() && member.is_none() => {
                    Ok(place_to_try(who, &join.relays, &join.address, n_tries).to_owned())
                }
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

    /// Tries again after a failure. Errors: a dispatcher that this executor has never met says that it is no member.
    pub(super) fn on_not_connected(
        &mut self,
        error: NetError,
        session: &ExecutorSession,
    ) -> Result<(), ExecutorError> {
        if matches!(error, NetError::NotAMember { .. }) && session.link().known_as().is_none() {
            return Err(error.into());
        }
        self.try_again(error.to_string(), session);
        Ok(())
    }

    /// There is a connection: greets the dispatcher, and listens to it on a task of its own.
    pub(super) fn on_connected(
        &mut self,
        mut reader: net::FrameReader,
        writer: Writer,
        session: &mut ExecutorSession,
    ) {
        self.life += 1;
        let life = self.life;
        let hello = session.connect(&self.about);
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

    /// The dispatcher has answered the hello. If this executor was accepted, gives the messages that it has
    /// to repeat; otherwise it tries elsewhere. Errors: the dispatcher refuses it for good.
    pub(super) fn on_welcome(
        &mut self,
        welcome: Welcome,
        node: &mut NodeState,
    ) -> Result<Option<Vec<NodeMessage>>, ExecutorError> {
        let welcomed = node.session.welcome(welcome, &self.about);
        let (executor, now, settings, again) = match welcomed {
            Welcomed::Taken { executor, now, settings, again } => (executor, now, settings, again),
            Welcomed::Elsewhere(why) => {
                self.look_elsewhere(why, &mut node.session);
                return Ok(None);
            }
            Welcomed::Redirected(_, address) => {
                self.go_to(address, &mut node.session);
                return Ok(None);
            }
            Welcomed::Refused(reason) => return Err(NetError::Refused(reason).into()),
        };
        eyas_text::say!("eyas: the dispatcher has taken this executor in, as number {executor}");
        self.n_tries = 0;
        self.last_try = LastTry::default();
        node.clock.said(now);
        self.settings = settings;
        self.silence.heard(monotonic_now());
        self.beats = Beats::new(self.settings.heartbeat_ns);
        self.retry.succeeded();
        Ok(Some(again))
    }

    /// The dispatcher that answered is not the one whose work this executor has. The right one may come to
    /// this address later, or be at another address. If the lease ends before that, this executor ends with
    /// the work that it has.
    fn look_elsewhere(&mut self, why: &str, session: &mut ExecutorSession) {
        self.life += 1;
        self.disconnect(session);
        self.try_again(why.into(), session);
    }

    /// Goes to the dispatcher of the group that this executor belongs to, which is at `address`. Empty: the
    /// dispatcher that answered does not know that address.
    fn go_to(&mut self, address: String, session: &mut ExecutorSession) {
        self.life += 1;
        self.disconnect(session);
        // Where the address is not known, a dispatcher that knows it is asked after a while.
        let wait = if address.is_empty() { self.retry_wait() } else { Duration::ZERO };
        self.n_tries = u32::from(address.is_empty());
        self.address = Some(address).filter(|a| !a.is_empty()).or(self.address.take());
        self.connect(session.link().member(), wait);
    }

    /// Goes to the dispatcher that the present one has named, once no work is left here and nothing is left
    /// to be recorded.
    pub(super) fn go_elsewhere(&mut self, session: &mut ExecutorSession) {
        let Some((_, address, words)) = session.go() else { return };
        if let Some(writer) = &self.writer {
            writer.send(&words);
        }
        self.go_to(address, session);
    }

    /// The connection broke: makes a new one.
    pub(super) fn on_disconnected(&mut self, session: &mut ExecutorSession) {
        let lease_s = self.settings.lease_ns / 1_000_000_000;
        eyas_text::say!("eyas: the connection to the dispatcher broke; trying again for up to {lease_s} s");
        self.silence.broke(monotonic_now(), session.link().is_welcomed());
        self.disconnect(session);
        self.last_try = LastTry::Failed("the connection broke".into());
        let wait = self.retry_wait();
        self.connect(session.link().member(), wait);
    }

    /// How long to wait before the next attempt to connect.
    fn retry_wait(&mut self) -> Duration {
        Duration::from_nanos(self.retry.failed())
    }

    fn disconnect(&mut self, session: &mut ExecutorSession) {
        session.disconnect();
        self.writer = None;
    }

    fn try_again(&mut self, why: String, session: &ExecutorSession) {
        self.last_try = LastTry::Failed(why);
        self.n_tries += 1;
        let wait = self.retry_wait();
        self.connect(session.link().member(), wait);
    }

    // ------------------------------------------------------------ time

    /// Goes to another dispatcher if it is time to. Errors: no dispatcher has answered for the length of the lease.
    pub(super) fn on_tick(&mut self, session: &mut ExecutorSession) -> Result<(), ExecutorError> {
        if session.link().is_going() {
            self.go_elsewhere(session);
        }
        let lease_ns = self.settings.lease_ns;
        let (is_connected, is_welcomed) = (session.link().is_connected(), session.link().is_welcomed());
        match self.silence.judge(monotonic_now(), lease_ns, is_connected, is_welcomed) {
            Patience::Waits => {}
            Patience::ConnectsAgain => {
                self.disconnect(session);
                self.last_try = LastTry::Failed("the dispatcher fell silent".into());
                self.life += 1;
                self.connect(session.link().member(), Duration::ZERO);
            }
            Patience::Ends => {
                let lease_s = Duration::from_nanos(lease_ns).as_secs();
                return Err(ExecutorError::LeaseEnded { lease_s, last: self.last_try.clone() });
            }
        }
        Ok(())
    }

    /// Whether a status is due. If so, it counts as sent. `is_idle`: no attempt is here.
    pub(super) fn take_due_status(&mut self, is_idle: bool) -> bool {
        self.beats.take_due(monotonic_now(), is_idle)
    }

    /// The dispatcher has answered a status; see [`Beats::answered`].
    pub(super) fn status_answered(&mut self, idle_ns: u64) {
        self.beats.answered(idle_ns);
    }

    // ------------------------------------------------------------ messages

    /// The dispatcher was heard just now.
    pub(super) fn was_heard(&mut self) {
        self.silence.heard(monotonic_now());
    }

    /// When [`Self::flush`] is due at the latest, if messages wait.
    pub(super) fn send_by(&self) -> Option<Instant> {
        self.send_by
    }

    /// Sends the waiting messages: now or, while the slots have more to do than this takes, a little later.
    pub(super) fn flush_or_hold(&mut self, session: &mut ExecutorSession) {
        let (n_words, n_attempts) = (session.link().n_words(), session.attempts().len());
        let is_busy = n_attempts > 4 * self.about.slots as usize;
        if n_words == 0 {
            self.send_by = None;
        } else if !is_busy || n_words >= HOLD_N_MAX {
            self.flush(session);
        } else {
            self.send_by.get_or_insert_with(|| Instant::now() + HOLD);
        }
    }

    pub(super) fn flush(&mut self, session: &mut ExecutorSession) {
        self.send_by = None;
        let words = session.take_words();
        if let Some(writer) = self.writer.as_ref().filter(|_| !words.is_empty()) {
            writer.send(&words);
        }
    }

    /// Says goodbye, if there is a connection: this process ends.
    pub(super) fn say_bye(&self, reason: String) {
        if let Some(writer) = &self.writer {
            writer.send(&vec![FromExecutor::Bye { reason }]);
        }
    }

    /// Waits until the last messages have left.
    pub(super) async fn finish(self) {
        if let Some(writer) = self.writer {
            let _ = tokio::time::timeout(LAST_WORDS_MAX, writer.finish()).await;
        }
    }
}

/// The address at which to look for a dispatcher of a group: first its last known address, then the one in the join
/// file, then other members, which know its present address.
fn address_to_try(join: &Join, member: Option<MemberId>, known: Option<String>, n_tries: usize) -> String {
    let theirs = member.and_then(|m| join.members.get(m.0 as usize)).filter(|a| !a.is_empty());
    let all = join.members.iter().filter(|a| !a.is_empty());
    to_try(known.as_ref(), theirs, &join.address, all, n_tries).clone()
}
