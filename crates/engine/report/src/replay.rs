//! Promise 5: the same events give the same actions.
//!
//! Each life's events go, with their logged times, into a fresh [`Dispatcher`] made from that life's
//! header; what comes out is compared with the actions logged behind each event. The first difference ends
//! the replay. A life that was killed may lack the last actions of its last event, nothing else.

use crate::error::{Error, ErrorKind};
use crate::lines::{Entry, Lines};
use eyas_core::dispatcher::Dispatcher;
use eyas_core::event::{Action, Event};
use eyas_terms::Timestamp;
use std::path::Path;

#[derive(Clone, PartialEq, Debug)]
pub struct ReplayOutcome {
    /// Lives that were replayed.
    pub n_lives: u64,
    /// Lives whose first part is gone with forgotten runs, so that they cannot be replayed.
    pub n_shortened: u64,
    /// Lives that lack lines which their disk did not take. They are replayed up to there.
    pub n_lacking: u64,
    pub n_events: u64,
    /// Actions that were compared.
    pub n_actions: u64,
    /// Lives whose last line, or whose last event's last actions, are missing: they were killed.
    pub n_torn: u64,
    /// `None`: the core takes the logged actions.
    pub difference: Option<Difference>,
}

/// Where replay and log part.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// Of the log, from 1; where the log has an action too few, the line of the event.
    pub line: u64,
    /// Time of the event.
    pub t: Timestamp,
    pub event: Event,
    pub logged: Option<Action>,
    pub replayed: Option<Action>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let json = |action: &Option<Action>| match action {
            Some(action) => serde_json::to_string(action).unwrap_or_default(),
            None => "nothing".into(),
        };
        writeln!(f, "line {}: the replay takes another action than the log", self.line)?;
        writeln!(f, "  after    {}", serde_json::to_string(&self.event).unwrap_or_default())?;
        writeln!(f, "  logged   {}", json(&self.logged))?;
        write!(f, "  replayed {}", json(&self.replayed))
    }
}

/// One life on its way.
struct Life {
    core: Dispatcher,
    /// The event that was fed last, its line, and how many of its actions the log has shown.
    fed: Option<(u64, Timestamp, Event)>,
    actions: Vec<Action>,
    n_shown: usize,
}

impl Life {
    /// What the log should have shown before the next event.
    fn missing(&self) -> Option<Difference> {
        let replayed = self.actions.get(self.n_shown)?.clone();
        let (line, t, event) = self.fed.clone()?;
        Some(Difference { line, t, event, logged: None, replayed: Some(replayed) })
    }
}

/// Replays the log in the dispatcher's directory `dir`.
pub fn replay(dir: &Path) -> Result<ReplayOutcome, Error> {
    let mut lines = Lines::open(dir)?;
    let mut life: Option<Life> = None;
    let mut outcome = ReplayOutcome {
        n_lives: 0,
        n_shortened: 0,
        n_lacking: 0,
        n_events: 0,
        n_actions: 0,
        n_torn: 0,
        difference: None,
    };
    let mut n_cut = 0;
    while let Some(entry) = lines.next_entry()? {
        match entry {
            Entry::Header(header) => {
                n_cut += u64::from(life.as_ref().is_some_and(|l| l.missing().is_some()));
                if header.is_cut {
                    outcome.n_shortened += 1;
                    life = None;
                    continue;
                }
                let core = Dispatcher::new(header.config).map_err(|why| {
                    let context = format!("the configuration in line {}: {why}", lines.number());
                    Error::new(ErrorKind::Config, "replay the event log", context)
                })?;
                outcome.n_lives += 1;
                life = Some(Life { core, fed: None, actions: vec![], n_shown: 0 });
            }
            Entry::In(t, event) => {
                let Some(life) = &mut life else { continue };
                if let Some(difference) = life.missing() {
                    outcome.difference = Some(difference);
                    return Ok(outcome);
                }
                if let Some(what) = life.core.work().find_nonsense(&event) {
                    let context = format!("line {} speaks of {what}", lines.number());
                    return Err(Error::new(ErrorKind::Line, "replay the event log", context));
                }
                if let Event::NodesDecided { decision } = &event
                    && !decision.follows_from_its_numbers()
                {
                    let context = format!(
                        "line {} has a decision about nodes that its numbers do not give",
                        lines.number()
                    );
                    return Err(Error::new(ErrorKind::Line, "replay the event log", context));
                }
                outcome.n_events += 1;
                life.actions.clear();
                life.n_shown = 0;
                life.core.handle(t, event.clone(), &mut life.actions);
                life.fed = Some((lines.number(), t, event));
            }
            Entry::Out(_, logged) => {
                let Some(life) = &mut life else { continue };
                let replayed = life.actions.get(life.n_shown);
                if replayed != Some(&logged) {
                    let (_, t, event) = life.fed.clone().unwrap_or((0, Timestamp(0), Event::Ticked));
                    outcome.difference = Some(Difference {
                        line: lines.number(),
                        t,
                        event,
                        replayed: replayed.cloned(),
                        logged: Some(logged),
                    });
                    return Ok(outcome);
                }
                life.n_shown += 1;
                outcome.n_actions += 1;
            }
            Entry::Lost(..) => outcome.n_lacking += u64::from(life.take().is_some()),
        }
    }
    n_cut += u64::from(life.is_some_and(|l| l.missing().is_some()));
    // A life can lack actions and end in a cut line; it is torn once.
    outcome.n_torn = n_cut.max(lines.n_torn());
    Ok(outcome)
}
