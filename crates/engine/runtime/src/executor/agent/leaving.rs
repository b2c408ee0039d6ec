//! An end of this process that is known in advance: its walltime, and the grace period after SIGTERM.
//!
//! The dispatcher hears of both in time, gives this executor nothing more and has other nodes copy what only it holds; once
//! nothing is left here, it ends the executor. What still runs at the end is stopped here a little earlier
//! ([`stop_before_ns`]), so that the last words are heard.

use super::super::Walltime;
use super::{Agent, FromExecutor};
use eyas_core::dispatcher::stop_before_ns;
use eyas_core::event;
use std::time::{Duration, Instant};

pub(super) struct Leaving {
    walltime: Option<Walltime>,
    grace: Duration,
    /// Since SIGTERM: when this process ends at the latest, and why, as a phrase after "because".
    announced: Option<(Instant, String)>,
}

impl Leaving {
    pub(super) fn new(walltime: Option<Walltime>, grace: Duration) -> Leaving {
        Leaving { walltime, grace, announced: None }
    }

    /// What the dispatcher is told of this process's time now.
    pub(super) fn offered(&self) -> Option<event::Walltime> {
        let left = |w: Walltime| w.ends.saturating_duration_since(Instant::now());
        let ns = |d: Duration| d.as_nanos().min(u128::from(u64::MAX)) as u64;
        self.walltime.map(|w| event::Walltime { whole_ns: ns(w.whole), left_ns: ns(left(w)) })
    }

    /// Whether somebody told this process to end.
    pub(super) fn has_begun(&self) -> bool {
        self.announced.is_some()
    }

    /// Why this process ends now, if its time is over.
    pub(super) fn find_end(&self) -> Option<String> {
        let now = Instant::now();
        if let Some((until, reason)) = self.announced.as_ref().filter(|(until, _)| now >= *until) {
            let _ = until;
            return Some(format!("{reason}, and its grace period is over"));
        }
        let w = self.walltime?;
        let before = Duration::from_nanos(stop_before_ns(w.whole.as_nanos() as u64));
        let is_over = now + before >= w.ends;
        is_over.then(|| format!("its walltime of {} s is over", w.whole.as_secs_f64()))
    }
}

impl Agent {
    /// SIGTERM: this process leaves within its grace period.
    pub(super) fn on_leave(&mut self, reason: String) {
        let grace = self.leaving.grace;
        let (since, is_known) = (Instant::now(), self.node.session.link().is_welcomed());
        self.leaving.announced = Some((since + grace, reason.clone()));
        self.announce_leaving();
        let is_idle = self.node.session.attempts().is_empty();
        if grace.is_zero() || (is_idle && !is_known) {
            self.stop = Some(reason);
            return;
        }
        eyas_text::say!(
            "eyas: this executor leaves within {} s, because {}",
            grace.as_secs_f64(),
            eyas_text::line_of(&reason)
        );
    }

    /// Tells the dispatcher that this process leaves, if it does.
    pub(super) fn announce_leaving(&mut self) {
        let Some((until, reason)) = &self.leaving.announced else { return };
        let within = until.saturating_duration_since(Instant::now());
        let (within_ns, reason) = (within.as_nanos() as u64, reason.clone());
        self.node.session.say(FromExecutor::Leaving { within_ns, reason });
    }
}
