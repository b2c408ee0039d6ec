//! The faults of a world.

use super::*;

impl World {
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
                let node = &mut self.nodes[n];
                node.cut_until = self.now.plus_ns(lasts);
                if let Some(life) = node.life {
                    self.after(0, Ev::NodeCut { n, life });
                    let takes = self.lasts(3 * S);
                    self.after(takes, Ev::Cut { life });
                }
            }
            Fault::KillDispatcher => self.kill_dispatcher(),
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
                let accepted = |p: &Plan| match p.state {
                    PlanState::Accepted(run) if p.into.is_none() => Some(run),
                    _ => None,
                };
                let runs: Vec<RunId> = self.plans.iter().filter_map(accepted).collect();
                if runs.is_empty() {
                    return;
                }
                let run = runs[self.rng.below(runs.len() as u64) as usize];
                let whole = self.chance(200);
                let pick = self.rng.next_u64();
                self.with_process(|process, now| {
                    let core = process.core();
                    let of_run: Vec<TaskId> =
                        core.work().tasks().filter(|t| core.work().run_of(*t) == run).collect();
                    if of_run.is_empty() {
                        return; // the run is forgotten
                    }
                    let task = (!whole).then(|| of_run[(pick % of_run.len() as u64) as usize]);
                    process.cancel(now, run, task);
                });
            }
            Fault::FillDisk(n) => {
                self.nodes[n].others_bytes = self.upto(self.disk_of(n));
                let lasts = self.lasts(60 * S);
                self.after(lasts, Ev::Fault(Fault::FreeDisk(n)));
            }
            Fault::FreeDisk(n) => self.nodes[n].others_bytes = 0,
            Fault::Forget => {
                let pick = self.rng.next_u64();
                self.with_process(|process, now| {
                    let runs: Vec<RunId> = process.core().work().runs().map(|(run, _)| run).collect();
                    if let Some(run) = runs.get((pick % runs.len().max(1) as u64) as usize) {
                        process.forget(now, *run);
                    }
                });
            }
            Fault::FillJournal => {
                let lasts = self.lasts(30 * S);
                self.full_until = self.full_until.max(self.now.plus_ns(lasts));
                self.set_full(true);
                self.after(lasts, Ev::Fault(Fault::FreeJournal));
            }
            Fault::FreeJournal => {
                if self.now >= self.full_until {
                    self.set_full(false);
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
}
