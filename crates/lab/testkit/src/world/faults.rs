//! The faults of a world.

use super::plans::Plan;
use super::{MS, S, World};
use crate::happening::{Ev, Fault};
use eyas_terms::*;

impl World {
    /// Draws when which faults come.
    pub(super) fn draw_faults(&mut self) {
        type Make = fn(usize, usize, usize) -> Fault;
        // Linked tasks are forgotten also when all has ended.
        let n_forgets_late = if self.o.linked { self.o.n_forgets } else { 0 };
        let mut kinds: [(u64, Make); 16] = [
            (self.o.n_node_kills, |n, _, _| Fault::KillNode(n)),
            (self.o.n_stops, |n, _, _| Fault::Stop(n)),
            (self.o.n_link_cuts, |n, _, _| Fault::Cut(n)),
            (self.o.n_dispatcher_kills, |_, m, _| Fault::KillDispatcher(m)),
            (self.o.n_member_cuts, |_, m, to| Fault::CutMember(m, to)),
            (self.o.n_client_cuts, |_, m, _| Fault::CutClients(m)),
            (self.o.n_home_outages, |_, _, _| Fault::HomeDown),
            (self.o.n_home_changes, |_, _, _| Fault::ChangeHome),
            (self.o.n_corruptions, |n, _, _| Fault::Corrupt(n)),
            (self.o.n_cancels, |_, _, _| Fault::Cancel),
            (self.o.n_drains, |n, _, _| Fault::Drain(n)),
            (self.o.n_disk_fills, |n, _, _| Fault::FillDisk(n)),
            (self.o.n_journal_fills, |_, m, _| Fault::FillJournal(m)),
            (self.o.n_forgets - n_forgets_late, |_, _, _| Fault::Forget),
            (self.o.n_provider_kills, |_, _, _| Fault::KillProvider),
            (self.o.n_relay_kills, |n, _, _| Fault::KillRelay(n)),
        ];
        if self.o.linked {
            // So these worlds were drawn before they had other faults.
            kinds[..4].rotate_right(1);
        }
        let (n_members, n_nodes) = (self.members.len() as u64, self.nodes.len() as u64);
        for (count, fault) in kinds {
            for _ in 0..count {
                let (mut m, mut to) = (0, 0);
                let at = self.upto(self.o.faults_until_ns);
                if n_members > 1 {
                    m = self.rng.below(n_members);
                }
                let n = self.rng.below(n_nodes) as usize;
                if n_members > 1 {
                    to = (m + 1 + self.rng.below(n_members - 1)) % n_members;
                }
                self.after(at, Ev::Fault(fault(n, m as usize, to as usize)));
            }
        }
        for _ in 0..n_forgets_late {
            let at = self.upto(2 * self.o.faults_until_ns);
            self.after(at, Ev::Fault(Fault::Forget));
        }
    }

    pub(super) fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::KillNode(n) => self.stop_node(n),
            Fault::WalltimeEnds(n, epoch) => {
                if self.nodes[n].epoch == epoch && self.nodes[n].is_up {
                    if self.signal_programs(n) {
                        return;
                    }
                    // A batch system may be quicker than the last words.
                    if self.nodes[n].session.link().is_welcomed() && self.chance(500) {
                        self.nodes[n].say_bye();
                        self.flush_node(n);
                    }
                    self.stop_node(n);
                }
            }
            Fault::Stop(n) => {
                if !self.nodes[n].is_up || self.nodes[n].stopped.is_some() {
                    return;
                }
                let lasts = S + self.upto(self.o.stop_ns_max);
                self.after(lasts, Ev::Fault(Fault::Continue(n)));
                self.nodes[n].stopped = Some(vec![]);
                // Nothing is heard of the node until the dispatcher gives the connection up.
                if let Some(life) = self.nodes[n].life
                    && lasts > 3 * S
                {
                    let takes = S + self.upto(2 * S);
                    self.after(takes, Ev::Cut { life });
                    self.after(takes + MS, Ev::NodeCut { n, life });
                }
            }
            Fault::Continue(n) => {
                // They are in the queue until they happen, so that checks see what is on its way.
                for ev in self.nodes[n].stopped.take().unwrap_or_default() {
                    self.after(0, ev);
                }
            }
            Fault::Cut(n) => {
                let lasts = self.lasts(self.o.cut_ns_max);
                let takes = if self.nodes[n].life.is_some() { self.lasts(3 * S) } else { 0 };
                self.cut_node(n, lasts, takes);
            }
            Fault::KillRelay(n) => {
                // The dispatcher hears of a process that dies at once, and of a machine that dies later.
                let takes = if self.chance(500) { 0 } else { self.lasts(3 * S) };
                let n_relays = self.o.n_relays as usize;
                for n in (n % n_relays..self.nodes.len()).step_by(n_relays) {
                    let lasts = self.lasts(3 * S);
                    self.cut_node(n, lasts, takes);
                }
            }
            Fault::KillDispatcher(m) => self.kill_dispatcher(m),
            Fault::CutMember(from, to) => {
                let lasts = self.lasts(self.o.away_ns_max);
                self.links.cut_until.insert((from, to), self.calendar.now.plus_ns(lasts));
                if let Some(life) = self.links.between.get(&(from, to)).copied() {
                    self.after(0, Ev::MemberLost { from, to, life });
                }
            }
            Fault::CutClients(m) => self.cut_clients(m),
            Fault::KillProvider => self.kill_provider(),
            Fault::HomeDown => {
                self.home.is_down = true;
                let lasts = self.lasts(5 * S);
                self.after(lasts, Ev::Fault(Fault::HomeUp));
            }
            Fault::HomeUp => self.home.is_down = false,
            Fault::ChangeHome => {
                let location = self.object();
                self.change_home(&location);
            }
            Fault::Corrupt(n) => {
                let held = self.nodes[n].session.book().held();
                if self.nodes[n].is_up && !held.is_empty() {
                    let (_, digest) = held[self.rng.below(held.len() as u64) as usize];
                    self.spoil(n, digest);
                    self.find_corrupt(n, digest);
                    self.flush_node(n);
                }
            }
            Fault::Cancel => {
                let runs = self.accepted_runs();
                if runs.is_empty() {
                    return;
                }
                let run = runs[self.rng.below(runs.len() as u64) as usize];
                let whole = self.chance(200);
                let pick = self.rng.next_u64();
                let n_members = self.members.len();
                // A task is cancelled where it is, and a run everywhere.
                let at = if whole {
                    0..n_members
                } else {
                    pick as usize % n_members..pick as usize % n_members + 1
                };
                for m in at {
                    self.with(m, |process, now| {
                        let work = process.core().work();
                        let of_run: Vec<TaskId> = work.tasks().filter(|t| work.run_of(*t) == run).collect();
                        if of_run.is_empty() {
                            return; // The run is forgotten, or it has no task here.
                        }
                        let task = (!whole).then(|| of_run[(pick % of_run.len() as u64) as usize]);
                        process.cancel(now, run, task);
                    });
                }
            }
            Fault::FillDisk(n) => {
                self.nodes[n].others_bytes = self.upto(self.disk_of(n));
                let lasts = self.lasts(60 * S);
                self.after(lasts, Ev::Fault(Fault::FreeDisk(n)));
            }
            Fault::FreeDisk(n) => self.nodes[n].others_bytes = 0,
            Fault::Forget => {
                let pick = self.rng.next_u64();
                let accepted = self.o.linked.then(|| self.accepted_runs());
                self.with(0, |process, now| {
                    let known = || process.core().work().runs().map(|(run, _)| run).collect();
                    let runs: Vec<RunId> = accepted.unwrap_or_else(known);
                    if let Some(run) = runs.get((pick % runs.len().max(1) as u64) as usize) {
                        process.forget(now, *run);
                    }
                });
            }
            Fault::FillJournal(m) => {
                let lasts = self.lasts(30 * S);
                let until = &mut self.members[m].full_until;
                *until = (*until).max(self.calendar.now.plus_ns(lasts));
                self.set_full(m, true);
                self.after(lasts, Ev::Fault(Fault::FreeJournal(m)));
            }
            Fault::FreeJournal(m) => {
                if self.calendar.now >= self.members[m].full_until {
                    self.set_full(m, false);
                }
            }
            Fault::Drain(n) => {
                let node = &mut self.nodes[n];
                node.is_draining = true;
                node.asks_to_go = true;
                self.flush_node(n);
            }
        }
    }

    /// Cuts a node off for so long; the dispatcher hears of it after `takes`.
    fn cut_node(&mut self, n: usize, lasts_ns: u64, takes_ns: u64) {
        let node = &mut self.nodes[n];
        node.cut_until = self.calendar.now.plus_ns(lasts_ns);
        if let Some(life) = node.life {
            self.after(0, Ev::NodeCut { n, life });
            self.after(takes_ns, Ev::Cut { life });
        }
    }

    /// Runs that clients know as accepted.
    fn accepted_runs(&self) -> Vec<RunId> {
        self.plans.iter().filter(|plan| plan.into.is_none()).filter_map(Plan::run).collect()
    }
}
