//! The state of runs and of the cluster, for users. Only what is durable counts.

use super::{Answer, Outside, Session};
use eyas_core::dispatcher::RunState;
use eyas_terms::{ExecutorId, RunId, Timestamp};
use eyas_text::{line_of, shown};
use eyas_wire::message::{
    ClusterResource, ClusterStatus, ExecutorLine, ExecutorStatus, HOMES_AWAY_MAX, HomeAway, LOG_LINES_LOST,
    ReplyBody, RunStatus,
};
use std::collections::BTreeMap;

/// Nodes that are unwell are named up to this number where only a run is looked at.
const UNWELL_MAX: usize = 5;

/// A client that hears of a run whenever something changed.
pub(super) struct Watch {
    pub(super) connection: u64,
    number: u64,
    run: RunId,
    interval_ns: u64,
    /// When it heard last.
    told: Timestamp,
}

impl<O: Outside> Session<O> {
    /// The homes that nodes wait for, each with the number of nodes and with what the node says that waits longest.
    fn away_by_home(&self) -> BTreeMap<&str, (u64, &HomeAway)> {
        let mut homes: BTreeMap<&str, (u64, &HomeAway)> = BTreeMap::new();
        for away in self.executors.by_id.values().flat_map(|e| e.status.away.iter().take(HOMES_AWAY_MAX)) {
            let (n_nodes, longest) = homes.entry(&away.home).or_insert((0, away));
            *n_nodes += 1;
            if away.for_ns > longest.for_ns {
                *longest = away;
            }
        }
        homes
    }

    /// What keeps tasks from going on, in sentences that stay the same while it lasts.
    fn troubles(&self) -> Vec<String> {
        let wait = |(home, (_, away)): (&str, (u64, &HomeAway))| match away.refuses() {
            true => format!(
                "nodes wait for {}, which no longer lets them read what they read before (eyas status)",
                shown(home)
            ),
            false => format!("nodes wait for {}, which does not answer (eyas status)", shown(home)),
        };
        let mut troubles = self.provision.troubles(self.now);
        troubles.extend(self.warning.clone());
        troubles.extend(self.core.unwell().take(UNWELL_MAX));
        troubles.extend(self.away_by_home().into_iter().take(HOMES_AWAY_MAX).map(wait));
        troubles
    }

    /// Why a task waits that could start: the core's reason, nodes that are on their way, and what keeps nodes from coming.
    pub(super) fn why_ready(&self, reason: Option<String>) -> Option<String> {
        let on_their_way = match self.pending_nodes() {
            (0, _) => None,
            (n, why) => {
                let nodes = if n == 1 {
                    "1 node is on its way".into()
                } else {
                    format!("{n} nodes are on their way")
                };
                Some(if why.is_empty() { nodes } else { format!("{nodes} ({})", line_of(&why)) })
            }
        };
        let mut all: Vec<String> = reason.into_iter().chain(on_their_way).collect();
        all.extend(self.provision.troubles(self.now));
        all.extend(self.homes_away());
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// A sentence for the home that this node has waited for longest, if it waits for one. A task that the node has, and whose
    /// program does not run, may wait for its inputs or its outputs.
    pub(super) fn home_that_node_waits_for(&self, executor: ExecutorId) -> Option<String> {
        let node = self.executors.by_id.get(&executor)?;
        let away = node.status.away.iter().max_by_key(|away| away.for_ns)?;
        let s = away.for_ns / 1_000_000_000;
        Some(format!(
            "its node waits for {}, which has {} for {s} s: {}",
            shown(&away.home),
            if away.refuses() { "refused it" } else { "not answered" },
            line_of(&away.why)
        ))
    }

    /// A sentence for each home that nodes wait for.
    fn homes_away(&self) -> Vec<String> {
        let homes = self.away_by_home();
        let n_more = homes.len().saturating_sub(HOMES_AWAY_MAX);
        let sentence = |(home, (n_nodes, away)): (&str, (u64, &HomeAway))| {
            let s = away.for_ns / 1_000_000_000;
            let nodes = if n_nodes == 1 { "1 node".into() } else { format!("{n_nodes} nodes") };
            let has = if away.refuses() { "refused" } else { "not answered" };
            format!("{} has {has} {nodes} for {s} s: {}", shown(home), line_of(&away.why))
        };
        let mut sentences: Vec<String> = homes.into_iter().take(HOMES_AWAY_MAX).map(sentence).collect();
        sentences.extend((n_more > 0).then(|| format!("{n_more} more homes have not answered nodes")));
        sentences
    }

    fn run_status(&self, run: RunId) -> RunStatus {
        let r: &RunState = self.core.work().find_run(run).expect("the run was looked up");
        let durable = self.recording.durable.get(&run).copied().unwrap_or_default();
        let (n_ended, known) = (durable.n(), r.ends.n());
        let n_running: usize = self
            .executors
            .by_id
            .iter()
            .map(|(id, e)| {
                let running = e.status.running.iter();
                running
                    .filter(|(t, a, _)| {
                        self.core.has_attempt(*id, *t, *a) && self.core.work().run_of(*t) == run
                    })
                    .count()
            })
            .sum();
        let n_running = (n_running as u64).min(r.tasks.n_reserved - r.tasks.n_landing);
        let (n_nodes_pending, pending_why) = self.pending_nodes();
        RunStatus {
            run,
            name: r.name.clone(),
            n_tasks: r.tasks.n_tasks,
            n_waiting: r.tasks.n_waiting,
            n_ready: r.tasks.n_ready,
            n_reserved: r.tasks.n_reserved - r.tasks.n_landing - n_running,
            n_running,
            // Ended, but not durable yet: not told as an end.
            n_landing: r.tasks.n_landing + known.saturating_sub(n_ended),
            n_done: durable.n_done,
            n_failed: durable.n_failed,
            n_cancelled: durable.n_cancelled,
            local_bytes: r.read.local_bytes,
            peer_bytes: r.read.peer_bytes,
            home_bytes: r.read.home_bytes,
            left: r.left.clone(),
            opened: r.opened,
            ended: r.ended.filter(|_| n_ended == r.tasks.n_tasks),
            failures: self.durable_failures(r, durable.n_failed),
            n_nodes: self.n_nodes(),
            n_nodes_pending,
            pending_why,
            troubles: self.troubles(),
            owner: self.core.owner_of(run).unwrap_or_default().to_owned(),
            push: self.core.push_of(run).map(Box::new),
        }
    }

    /// The latest failures that may be told: `n_failed` of the run's are durable, and they become so in order.
    fn durable_failures(&self, run: &RunState, n_failed: u64) -> Vec<(String, String)> {
        let n_told = run.failures.len().saturating_sub((run.ends.n_failed - n_failed) as usize);
        let told = run.failures.iter().take(n_told);
        told.map(|(task, failure)| (self.core.work().user_id(*task), failure.message.clone())).collect()
    }

    /// What the executor said last that its cache holds.
    pub(super) fn cached_bytes(&self, executor: ExecutorId) -> u64 {
        self.executors.by_id.get(&executor).map_or(0, |e| e.status.cache_used_bytes)
    }

    /// What the executor said last of itself, but for programs whose end it has told since.
    fn status_of(&self, executor: ExecutorId) -> ExecutorStatus {
        let mut status = self.executors.by_id.get(&executor).map(|e| e.status.clone()).unwrap_or_default();
        status.running.retain(|(task, attempt, _)| self.core.has_attempt(executor, *task, *attempt));
        status
    }

    /// For the user of a connection.
    pub(super) fn status(&self, connection: u64) -> ClusterStatus {
        let executors = self.core.executors().map(|(id, offer, n_assigned, state)| ExecutorLine {
            executor: id,
            name: offer.name.clone(),
            slots: offer.slots,
            equipment: offer.equipment.clone(),
            held: self.core.resources_held(id),
            n_assigned: n_assigned as u32,
            cache_bytes: offer.cache_bytes,
            state,
            status: self.status_of(id),
        });
        let (own_cpu_ns, own_rss_bytes) = self.outside.usage();
        let lost = self.outside.n_log_lines_lost();
        let lost = (lost > 0).then(|| format!("{lost} {LOG_LINES_LOST}"));
        ClusterStatus {
            cluster: self.options.cluster.clone(),
            now: self.now,
            started: self.started,
            placement: self.options.config.placement.clone(),
            runs: self
                .core
                .work()
                .runs()
                .filter(|(run, r)| r.committed && self.may_see(connection, *run))
                .map(|(run, _)| self.run_status(run))
                .collect(),
            executors: executors.collect(),
            own_cpu_ns,
            own_rss_bytes,
            warnings: self
                .warning
                .iter()
                .cloned()
                .chain(lost)
                .chain(self.group_warning())
                .chain(self.core.short_of_space())
                .chain(self.core.resting())
                .chain(self.core.out_of_reach())
                .chain(self.core.ending())
                .chain(self.homes_away())
                .chain(self.provision.why_none(self.now))
                .collect(),
            provisioner: self.shown_provisioner(),
            resources: self
                .core
                .cluster_resources()
                .into_iter()
                .map(|(name, n, n_held)| ClusterResource { name, n, n_held })
                .collect(),
        }
    }

    pub(super) fn tell_watchers(&mut self) {
        if self.watches.is_empty() {
            return;
        }
        let now = self.now;
        let mut watches = std::mem::take(&mut self.watches);
        watches.retain_mut(|watch| {
            let durable = self.recording.durable.get(&watch.run).copied().unwrap_or_default();
            let n_ended = durable.n();
            let over = self
                .core
                .work()
                .find_run(watch.run)
                .is_some_and(|r| r.ended.is_some() && n_ended == r.tasks.n_tasks);
            if !over && now.since_ns(watch.told) < watch.interval_ns {
                return true;
            }
            watch.told = now;
            if self.core.work().find_run(watch.run).is_none() {
                let reason = format!("the submission of run {} was given up", watch.run);
                self.refuse(watch.connection, watch.number, reason);
                return false;
            }
            let status = self.run_status(watch.run);
            self.tell_of_run(watch.connection, watch.number, status);
            !over
        });
        self.watches = watches;
    }

    /// That a run has ended is told when the event log says so, too: whoever hears it may read the log next.
    fn tell_of_run(&mut self, connection: u64, number: u64, status: RunStatus) {
        let over = status.ended.is_some();
        let body = ReplyBody::Run(Box::new(status));
        self.answer(connection, number, if over { Answer::Logged(body) } else { Answer::Now(body) });
    }

    pub(super) fn on_watch(&mut self, connection: u64, number: u64, run: RunId, interval_ns: u64) {
        if self.core.work().find_run(run).is_none() {
            let reason = self.no_run(run);
            return self.refuse(connection, number, reason);
        }
        let status = self.run_status(run);
        let over = status.ended.is_some();
        self.tell_of_run(connection, number, status);
        if !over {
            self.watches.push(Watch { connection, number, run, interval_ns, told: self.now });
        }
    }
}
