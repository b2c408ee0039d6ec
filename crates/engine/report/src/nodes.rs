//! Why nodes were requested and released, in words: `eyas explain --nodes`.
//!
//! In: the decisions that a log holds ([`crate::fold::Nodes`]). Out: a line and a sentence for each, with the queue, the busy slots and
//! the predicted work at that time; and between them, in the order of time, a line for each node that was lost, for each dispatcher
//! process that went on, and where nobody could bring nodes any more, or somebody could again.

use crate::error::Error;
use crate::fold::{Fold, Gone, Life, NodeLoss, NodesDecision, ProviderChange};
use crate::lines::name_of;
use crate::units;
use eyas_core::provisioning::decision::{Basis, Decided, Decision, Why};
use eyas_core::provisioning::sizing::Sizing;
use eyas_core::provisioning::work::NODE_PARTS;
use eyas_terms::Timestamp;
use eyas_text::line_of;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The sentence for a log without decisions.
pub const NONE_DECIDED: &str = "Nobody has decided on nodes here: the nodes of this cluster were there from the start, or were \
                                started by hand. `--nodes 0..4` or `--provider` has eyas request and release them.";

/// The same where somebody could have brought nodes.
pub const NONE_NEEDED: &str = "`eyas provider` was there and has decided nothing: no node was needed, or it ended before it could \
                               request one. `eyas status` has its last word, and provider.log beside the dispatcher's log the rest.";

/// All decisions of one log.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodesStory {
    pub cluster: String,
    /// When the first dispatcher process of the log began, in nanoseconds since the epoch of the log's clock.
    pub began: Timestamp,
    pub decisions: Vec<ShownDecision>,
    /// When nobody brought nodes any more, and when somebody did again.
    pub providers: Vec<ShownProvider>,
    /// Whether there ever was somebody who could bring nodes.
    pub had_provider: bool,
    /// Nodes that were lost, or left without having been asked to.
    pub lost: Vec<ShownLoss>,
    /// When another dispatcher process went on.
    pub restarts: Vec<ShownRestart>,
}

/// A node is gone that nobody had asked to leave.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ShownLoss {
    /// Nanoseconds since [`NodesStory::began`].
    pub after_ns: u64,
    pub node: String,
    /// The same for people.
    pub sentence: String,
}

/// The dispatcher was started again.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ShownRestart {
    /// Nanoseconds since [`NodesStory::began`].
    pub after_ns: u64,
    /// The same for people.
    pub sentence: String,
}

/// Nobody brings nodes any more, or somebody does again.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ShownProvider {
    /// Nanoseconds since [`NodesStory::began`].
    pub after_ns: u64,
    pub is_back: bool,
    /// The same for people.
    pub sentence: String,
}

/// One decision.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ShownDecision {
    /// Nanoseconds since [`NodesStory::began`].
    pub after_ns: u64,
    /// More nodes (positive) or fewer.
    pub change: i64,
    /// The names of released nodes.
    pub released: Vec<String>,
    /// What was decided and why, for people.
    pub sentence: String,
    #[serde(flatten)]
    pub decision: Decision,
}

/// Reads the decisions about nodes from the log in the dispatcher's directory `dir`.
pub fn nodes_story(dir: &Path) -> Result<NodesStory, Error> {
    const NAMES: [&[u8]; 10] = [
        b"nodes_decided",
        b"nodes_expected",
        b"executor_joined",
        b"executor_silent",
        b"executor_draining",
        b"executor_leaving",
        b"executor_lost",
        b"forget_executor",
        b"drain_executor",
        b"send_away",
    ];
    let mut fold = Fold::of_runs();
    fold.read(dir, |line| name_of(line).is_some_and(|name| NAMES.contains(&name)), |_, _, _| ())?;
    let life = fold.lives.first();
    let began = life.map(|life| life.began).unwrap_or_default();
    let decisions = fold.nodes.decisions().iter().map(|decided| shown_decision(decided, began)).collect();
    let providers = fold.nodes.providers().iter().map(|change| shown_provider(*change, began)).collect();
    let cluster = life.map(|life| life.cluster.clone()).unwrap_or_default();
    let had_provider = fold.nodes.had_provider();
    let lost = fold.nodes.losses().iter().map(|loss| shown_loss(loss, began)).collect();
    let restarts = fold.lives.windows(2).map(|lives| shown_restart(&lives[0], &lives[1], began)).collect();
    Ok(NodesStory { cluster, began, decisions, providers, had_provider, lost, restarts })
}

fn shown_loss(loss: &NodeLoss, began: Timestamp) -> ShownLoss {
    let node = line_of(&loss.name);
    let sentence = match &loss.how {
        Gone::Left { reason } => format!("{node} left: {}", line_of(reason)),
        Gone::Silent { for_ns, announced } => {
            let sentence =
                format!("{node} was lost: nothing was heard of it for {}", units::duration(*for_ns));
            match announced {
                Some(why) => format!("{sentence}; it had announced its end: {}", line_of(why)),
                None => sentence,
            }
        }
    };
    ShownLoss { after_ns: loss.at.since_ns(began), node: loss.name.clone(), sentence }
}

fn shown_restart(before: &Life, life: &Life, began: Timestamp) -> ShownRestart {
    let away = units::duration(life.began.since_ns(before.last));
    let sentence = format!("the dispatcher was started again, {away} after the last word of the one before");
    ShownRestart { after_ns: life.began.since_ns(began), sentence }
}

fn shown_provider(change: ProviderChange, began: Timestamp) -> ShownProvider {
    let sentence = match change.is_back {
        true => "`eyas provider` is back, and nodes come and go again",
        false => "no node comes or goes any more, as `eyas provider` has been gone for too long",
    };
    ShownProvider { after_ns: change.at.since_ns(began), is_back: change.is_back, sentence: sentence.into() }
}

fn shown_decision(NodesDecision { decision, released }: &NodesDecision, began: Timestamp) -> ShownDecision {
    let change = match &decision.what {
        Decided::Requested { n_nodes } => i64::from(*n_nodes),
        Decided::Released { executors } => -(executors.len() as i64),
        Decided::Withdrawn { n_nodes } => -i64::from(*n_nodes),
    };
    ShownDecision {
        after_ns: decision.at.since_ns(began),
        change,
        released: released.clone(),
        sentence: sentence(decision),
        decision: decision.clone(),
    }
}

/// The story as text, which ends with a line end.
pub fn nodes_lines(story: &NodesStory) -> String {
    let mut text = String::new();
    if story.decisions.is_empty() {
        let none = if story.had_provider { NONE_NEEDED } else { NONE_DECIDED };
        let _ = writeln!(text, "{none}");
    }
    let mut before = None;
    // What nobody decided, with the change in the number of nodes.
    let lost = story.lost.iter().map(|loss| (loss.after_ns, "-1", &loss.sentence));
    let restarts = story.restarts.iter().map(|restart| (restart.after_ns, "", &restart.sentence));
    let providers = story.providers.iter().map(|change| (change.after_ns, "", &change.sentence));
    let mut others: Vec<_> = restarts.chain(lost).chain(providers).collect();
    others.sort_by_key(|(after_ns, ..)| *after_ns);
    let mut others = others.into_iter().peekable();
    let mut tell_until = |after_ns: u64, text: &mut String| {
        while let Some((at, change, sentence)) = others.next_if(|(at, ..)| *at <= after_ns) {
            let _ = writeln!(text, "\n{:>10}  {change:>3}  {sentence}.", units::duration(at));
        }
    };
    for shown in &story.decisions {
        let Decision { policy, seen, .. } = &shown.decision;
        let settings = (policy, seen.nodes_min, seen.nodes_max);
        // What the times count from is said before the first of them.
        if before.is_some() {
            tell_until(shown.after_ns, &mut text);
        }
        if before.replace(settings) != Some(settings) {
            let _ = writeln!(
                text,
                "Nodes of cluster {} by the policy {}, from {} to {}; times count from the cluster's start.",
                line_of(&story.cluster),
                line_of(policy),
                seen.nodes_min,
                seen.nodes_max
            );
        }
        tell_until(shown.after_ns, &mut text);
        let names = match shown.released.len() {
            0 => String::new(),
            _ => format!(
                " ({})",
                shown.released.iter().map(|name| line_of(name).to_string()).collect::<Vec<_>>().join(", ")
            ),
        };
        let change = format!("{:+}", shown.change);
        let _ = writeln!(
            text,
            "\n{:>10}  {change:>3}  {}{names}.",
            units::duration(shown.after_ns),
            shown.sentence
        );
        let _ = writeln!(text, "{:>17}{}.", "", seen_in_words(seen));
        if let Why::Work { sizing, .. } = &shown.decision.why {
            let _ = writeln!(text, "{:>17}{}.", "", sizing_in_words(sizing));
        }
    }
    tell_until(u64::MAX, &mut text);
    text
}

/// What was decided and why, without a full stop.
pub fn sentence(decision: &Decision) -> String {
    let nodes = |n: u32| units::plural(u64::from(n), "node");
    let what = match &decision.what {
        Decided::Requested { n_nodes } => format!("requested {}", nodes(*n_nodes)),
        Decided::Released { executors } => format!("released {}", nodes(executors.len() as u32)),
        Decided::Withdrawn { n_nodes } => format!("took back the request for {}", nodes(*n_nodes)),
    };
    let seen = &decision.seen;
    // Nothing but tasks for which nodes are too small as far as is known. A node that joins shows how large nodes are.
    let is_probe = seen.n_too_large > 0 && seen.n_ready == seen.n_too_large && seen.n_running == 0;
    let why = match &decision.why {
        Why::Tasks { .. } | Why::Work { .. } if is_probe => format!(
            "to see how large a node is, as {} for one of the expected size",
            too_large(seen.n_too_large)
        ),
        Why::BelowMinimum => {
            let is = if seen.nodes_min == 1 { "is" } else { "are" };
            format!("as at least {} {is} to be there", nodes(seen.nodes_min))
        }
        Why::Tasks { n_wanted, tasks_per_slot } => {
            let tasks = match tasks_per_slot {
                1 => "each task".to_string(),
                n => format!("every {n} tasks"),
            };
            format!("as {} would give room to {tasks}, queued or running", nodes(*n_wanted))
        }
        Why::Work { n_lacking, sizing }
            if sizing.queued_ns() == 0 && sizing.unknown.n + sizing.n_too_large > 0 =>
        {
            format!(
                "as nothing is known yet of how long the queued tasks take, and {} may be lacking",
                nodes(*n_lacking)
            )
        }
        Why::Work { n_lacking, .. } => format!("as the predicted work needs {} more", nodes(*n_lacking)),
        Why::NoTimeLeft => "as every task that waits takes longer than the time that is left there".into(),
        Why::Idle { idle_ns } => format!("idle for {} or longer", units::duration(*idle_ns)),
        Why::Surplus { n_keep, window_ns } => format!(
            "as {} would have been enough for the last {}, and nothing is expected that would need more",
            nodes(*n_keep),
            units::duration(*window_ns)
        ),
        Why::NothingWaits { for_ns } => format!("as no task has waited for {}", units::duration(*for_ns)),
        Why::AboveMaximum => format!("as no more than {} may be there", nodes(seen.nodes_max)),
    };
    format!("{what}, {why}")
}

/// The queue, the predicted work, the slots and the nodes.
fn seen_in_words(seen: &Basis) -> String {
    let n_sized = seen.n_ready.saturating_sub(seen.n_too_large);
    let there = format!(
        "{} of {} busy, {} there, {} on their way",
        units::count(seen.n_busy_slots),
        units::plural(seen.n_slots, "slot"),
        units::plural(u64::from(seen.n_nodes), "node"),
        seen.n_pending
    );
    let there = match seen.n_leaving {
        0 => there,
        n => format!("{there}, {n} leaving"),
    };
    if n_sized == 0 && seen.n_too_large > 0 {
        let queued = units::plural(seen.n_too_large, "task");
        return format!("{queued} queued, too large for a node of the expected size; {there}");
    }
    let mut text = format!("{} queued", units::plural(n_sized, "task"));
    if seen.queued_slots != n_sized && n_sized > 0 {
        let _ = write!(text, " that take {} at once", units::plural(seen.queued_slots, "slot"));
    }
    if n_sized > seen.n_unknown {
        let _ = write!(text, ", predicted to run for {} in all", units::duration(seen.queued_ns));
        if seen.n_unknown > 0 {
            let _ = write!(text, " without {} of unknown length", units::count(seen.n_unknown));
        }
    } else if n_sized > 0 {
        text += if n_sized == 1 { ", of unknown length" } else { ", all of unknown length" };
    }
    if seen.n_too_large > 0 {
        let _ = write!(text, "; beside them {} for a node of the expected size", too_large(seen.n_too_large));
    }
    format!("{text}; {there}")
}

fn too_large(n_tasks: u64) -> String {
    match n_tasks {
        1 => "1 task is too large".to_string(),
        n => format!("{} tasks are too large", units::count(n)),
    }
}

fn sizing_in_words(sizing: &Sizing) -> String {
    let mut text = match sizing.start_up_ns {
        0 => "How long a node takes to come is not measured yet".to_string(),
        ns => format!("A node takes {} to come, as measured so far", units::duration(ns)),
    };
    if sizing.arriving.n > 0 {
        let _ = write!(
            text,
            "; {} with {} of work are expected to arrive within {}",
            units::plural(sizing.arriving.n, "task"),
            units::duration(sizing.arriving.ns),
            units::duration(sizing.horizon_ns())
        );
    }
    if sizing.busy_parts > 0 {
        let slots = sizing.busy_parts as f64 / NODE_PARTS as f64 * f64::from(sizing.slots_per_node);
        let _ = write!(text, "; the rate that is expected then keeps {slots:.1} slots busy");
    }
    let _ = write!(text, "; what is left then is to start within {}", units::duration(sizing.stay_ns()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::provisioning::work::WorkAhead;
    use eyas_terms::ExecutorId;

    const S: u64 = 1_000_000_000;

    fn story(decisions: &[(Decided, Why)]) -> String {
        let seen = Basis {
            n_ready: 40,
            queued_ns: 400 * S,
            queued_slots: 40,
            n_busy_slots: 2,
            n_slots: 2,
            n_nodes: 1,
            nodes_max: 4,
            ..Basis::default()
        };
        let decision = |(what, why): &(Decided, Why)| {
            let released = match what {
                Decided::Released { .. } => vec!["node7".into()],
                _ => vec![],
            };
            let (what, why, policy) = (what.clone(), why.clone(), "demand".to_string());
            let decision = Decision { at: Timestamp(15 * S), policy, what, why, seen };
            super::shown_decision(&NodesDecision { decision, released }, Timestamp(5 * S))
        };
        let decisions = decisions.iter().map(decision).collect();
        nodes_lines(&NodesStory {
            cluster: "blue".into(),
            began: Timestamp(5 * S),
            decisions,
            providers: vec![],
            had_provider: false,
            lost: vec![],
            restarts: vec![],
        })
    }

    #[test]
    fn what_was_seen_is_a_sentence_whatever_is_known_of_the_tasks() {
        let of = |n_ready, n_too_large, n_unknown, queued_ns| {
            let seen = Basis {
                n_ready,
                n_too_large,
                n_unknown,
                queued_ns,
                queued_slots: n_ready - n_too_large,
                ..Basis::default()
            };
            seen_in_words(&seen).split("; 0 of").next().unwrap_or_default().to_string()
        };
        assert_eq!(of(3, 0, 3, 0), "3 tasks queued, all of unknown length");
        assert_eq!(of(1, 0, 1, 0), "1 task queued, of unknown length");
        assert_eq!(
            of(3, 1, 1, 2 * S),
            "2 tasks queued, predicted to run for 2.00 s in all without 1 of unknown length; \
             beside them 1 task is too large for a node of the expected size"
        );
        assert_eq!(of(2, 2, 0, 0), "2 tasks queued, too large for a node of the expected size");
    }

    #[test]
    fn a_node_for_a_task_that_is_too_large_is_requested_to_see_how_large_it_is() {
        let decision = |n_ready, n_running| Decision {
            at: Timestamp(S),
            policy: "exponential".into(),
            what: Decided::Requested { n_nodes: 1 },
            why: Why::Tasks { n_wanted: 1, tasks_per_slot: 1 },
            seen: Basis { n_ready, n_too_large: 1, n_running, ..Basis::default() },
        };
        assert_eq!(
            sentence(&decision(1, 0)),
            "requested 1 node, to see how large a node is, as 1 task is too large for one of the expected size"
        );
        for others in [decision(2, 0), decision(1, 1)] {
            assert!(sentence(&others).contains("as 1 node would give room to each task"));
        }
    }

    /// A node was requested at 20 s.
    fn requested() -> NodesDecision {
        let decision = Decision {
            at: Timestamp(20 * S),
            policy: "demand".into(),
            what: Decided::Requested { n_nodes: 1 },
            why: Why::BelowMinimum,
            seen: Basis::default(),
        };
        NodesDecision { decision, released: vec![] }
    }

    #[test]
    fn a_provider_that_was_gone_has_a_line_at_its_time() {
        let decided = requested();
        let of =
            |s: u64, is_back| shown_provider(ProviderChange { at: Timestamp(s * S), is_back }, Timestamp(0));
        let text = nodes_lines(&NodesStory {
            cluster: "blue".into(),
            began: Timestamp(0),
            decisions: vec![shown_decision(&decided, Timestamp(0))],
            providers: vec![of(10, false), of(30, true)],
            had_provider: true,
            lost: vec![],
            restarts: vec![],
        });
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in\n{text}"));
        assert!(at("10.0 s       no node comes or goes any more") < at("20.0 s   +1  requested 1 node"));
        assert!(at("20.0 s   +1  requested 1 node") < at("30.0 s       `eyas provider` is back"));
    }

    #[test]
    fn lost_nodes_and_restarts_have_their_lines_among_the_decisions() {
        let decision = requested().decision;
        let loss = |s: u64, name: &str, how| {
            shown_loss(&NodeLoss { at: Timestamp(s * S), name: name.into(), how }, Timestamp(0))
        };
        let reason = "it was told to stop (SIGTERM)".into();
        let announced = Some("its walltime of 1 h is about to end".into());
        let life = |began: u64, last: u64| Life {
            eyas_version: String::new(),
            cluster: "blue".into(),
            config: Default::default(),
            began: Timestamp(began * S),
            last: Timestamp(last * S),
        };
        let text = nodes_lines(&NodesStory {
            cluster: "blue".into(),
            began: Timestamp(0),
            decisions: vec![shown_decision(&NodesDecision { decision, released: vec![] }, Timestamp(0))],
            providers: vec![],
            had_provider: true,
            lost: vec![
                loss(10, "a\u{1b}", Gone::Left { reason }),
                loss(30, "b", Gone::Silent { for_ns: 60 * S, announced }),
                loss(31, "c", Gone::Silent { for_ns: 60 * S, announced: None }),
            ],
            restarts: vec![shown_restart(&life(0, 12), &life(15, 40), Timestamp(0))],
        });
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("    ") && !line.contains("busy")).collect();
        let expected = [
            "    10.0 s   -1  a\\u{1b} left: it was told to stop (SIGTERM).",
            "    15.0 s       the dispatcher was started again, 3.00 s after the last word of the one before.",
            "    20.0 s   +1  requested 1 node, as at least 0 nodes are to be there.",
            "    30.0 s   -1  b was lost: nothing was heard of it for 60.0 s; it had announced its end: its \
             walltime of 1 h is about to end.",
            "    31.0 s   -1  c was lost: nothing was heard of it for 60.0 s.",
        ];
        assert_eq!(lines, expected, "\n{text}");
        assert!(text.starts_with("Nodes of cluster blue"), "{text}");
    }

    #[test]
    fn a_request_says_what_waits_what_is_expected_and_how_long_a_node_takes() {
        let sizing = Sizing {
            queued: vec![WorkAhead { n: 40, ns: 400 * S, parts: 20 * NODE_PARTS }],
            arriving: WorkAhead { n: 12, ns: 120 * S, parts: 6 * NODE_PARTS },
            busy_parts: NODE_PARTS,
            start_up_ns: 3 * S,
            start_within_ns: 2 * S,
            slots_per_node: 2,
            ..Sizing::default()
        };
        let why = Why::Work { n_lacking: 3, sizing: Box::new(sizing) };
        assert_eq!(
            story(&[(Decided::Requested { n_nodes: 3 }, why)]),
            "Nodes of cluster blue by the policy demand, from 0 to 4; times count from the cluster's start.\n\
             \n    10.0 s   +3  requested 3 nodes, as the predicted work needs 3 nodes more.\n                 \
             40 tasks queued, predicted to run for 6 min 40 s in all; 2 of 2 slots busy, 1 node there, 0 on their way.\n                 \
             A node takes 3.00 s to come, as measured so far; 12 tasks with 2 min 00 s of work are expected to arrive within 6.00 s; \
             the rate that is expected then keeps 2.0 slots busy; what is left then is to start within 3.00 s.\n"
        );
    }

    #[test]
    fn each_reason_has_its_sentence_and_a_settings_line_stands_once() {
        let released = Decided::Released { executors: vec![ExecutorId(7)] };
        let one = Decided::Requested { n_nodes: 1 };
        let text = story(&[
            (one.clone(), Why::BelowMinimum),
            (one, Why::Tasks { n_wanted: 4, tasks_per_slot: 1 }),
            (released.clone(), Why::Idle { idle_ns: 30 * S }),
            (released.clone(), Why::NoTimeLeft),
            (released, Why::Surplus { n_keep: 2, window_ns: 30 * S }),
            (Decided::Withdrawn { n_nodes: 2 }, Why::NothingWaits { for_ns: 30 * S }),
            (Decided::Withdrawn { n_nodes: 2 }, Why::AboveMaximum),
        ]);
        for part in [
            "as at least 0 nodes are to be there",
            "as 4 nodes would give room to each task, queued or running",
            "-1  released 1 node, idle for 30.0 s or longer (node7).",
            "as every task that waits takes longer than the time that is left there",
            "as 2 nodes would have been enough for the last 30.0 s",
            "-2  took back the request for 2 nodes, as no task has waited for 30.0 s",
            "as no more than 4 nodes may be there",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(text.matches("times count").count(), 1);
        assert_eq!(story(&[]), format!("{NONE_DECIDED}\n"));
    }
}
