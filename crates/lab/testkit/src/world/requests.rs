//! Clients of a world with one dispatcher: each says all that it has to say at one moment, and hears the answers at once. A client
//! that adds tasks to a run may go away before it has sent them all.

use super::plans::{Kind, PlanState};
use super::{S, World};
use crate::happening::Ev;
use crate::process::{NO_SPACE, Process};
use eyas_terms::RunId;

impl World {
    pub(super) fn submit(&mut self, plan: usize) {
        if self.plans[plan].state != PlanState::Waits || self.members[0].process.is_none() {
            return;
        }
        if let Some(whole) = self.plans[plan].into {
            return self.open_addition(plan, whole);
        }
        let keep = self.plans[plan].keep;
        let arrays = self.plans[plan].arrays.clone();
        let mut run = Err(String::new());
        let users = self.o.users;
        let wants: Vec<String> = match self.o.pushes {
            true => (0..self.o.n_objects).map(|i| self.object_name(i)).collect(),
            false => vec![],
        };
        self.with(0, |process, now| {
            process.wants = wants;
            run = match users {
                true => {
                    process.meet_strangers(now);
                    process.submit_as(now, plan as u64, &arrays, keep)
                }
                false => process.submit(now, &arrays, keep),
            }
        });
        self.plans[plan].state = match run {
            Ok(run) => {
                self.account.run_since.insert(run, self.calendar.now);
                PlanState::Submitted(run)
            }
            // A client that is refused because the journal is full tries again later.
            Err(why) if why.contains(NO_SPACE) => return self.after(S, Ev::Submit { plan }),
            Err(why) if why.contains("fits no node") && self.may_fit_no_node() => PlanState::Refused,
            Err(why) => panic!("promise 4: a submission is refused that clashes with nothing: {why}"),
        };
    }

    /// Whether some tasks of this world may be larger than every node that is there or may come.
    fn may_fit_no_node(&self) -> bool {
        self.o.task_is_wide + self.o.task_has_memory > 0 || self.o.resources
    }

    fn open_addition(&mut self, plan: usize, whole: usize) {
        let whole = match self.plans[whole].state {
            PlanState::Accepted(run) => run,
            PlanState::Refused => {
                self.plans[plan].state = PlanState::Refused;
                return;
            }
            // Later; when the faults are over, every tick tries again.
            _ => return,
        };
        let arrays = self.plans[plan].arrays.clone();
        let mut opened = Err(String::new());
        let token = format!("plan {plan}");
        self.with(0, |process, now| opened = process.open_addition(now, whole, &token, &arrays));
        match opened {
            Ok(run) => {
                self.plans[plan].state = PlanState::Opened(run);
                let goes_away = self.fault(200);
                let takes = self.lasts(3 * S);
                self.after(takes, Ev::Complete { plan, run, goes_away });
            }
            Err(why) if why.contains(NO_SPACE) => self.after(S, Ev::Submit { plan }),
            Err(why) => self.refused(plan, &why),
        }
    }

    pub(super) fn complete(&mut self, plan: usize, run: RunId, goes_away: bool) {
        if self.plans[plan].state != PlanState::Opened(run) || self.members[0].process.is_none() {
            return;
        }
        if goes_away {
            self.with(0, |process, now| process.client_gone(now, run));
            self.plans[plan].state = PlanState::Waits;
            let wait = self.lasts(5 * S);
            return self.after(wait, Ev::Submit { plan });
        }
        let mut done = Ok(());
        self.with(0, |process, now| done = process.commit(now, run));
        match done {
            Ok(()) => {
                assert!(self.plans[plan].kind == Kind::Good, "tasks are added that clash with the run's");
                self.plans[plan].state = PlanState::Submitted(run);
            }
            Err(why) => self.refused(plan, &why),
        }
    }

    /// Tasks cannot be added to a run, because it is over, a file that they read is gone, or they clash with
    /// other tasks.
    fn refused(&mut self, plan: usize, why: &str) {
        let late = ["has ended", "was cancelled", "was dropped", "was forgotten"];
        let is_late = late.iter().any(|part| why.contains(part));
        assert!(is_late || self.plans[plan].kind != Kind::Good, "tasks are not added: {why}");
        self.plans[plan].state = PlanState::Refused;
    }

    /// The dispatcher has read its journal back: clients whose submissions it has not submit again.
    pub(super) fn see_after_restart(&mut self, process: &Process) {
        for plan in &mut self.plans {
            if let PlanState::Opened(_) = plan.state {
                plan.state = PlanState::Waits;
            }
            if let PlanState::Submitted(run) | PlanState::Accepted(run) = plan.state {
                let is_there = process.journal().is_committed(run);
                assert!(
                    is_there || matches!(plan.state, PlanState::Submitted(_)),
                    "promise 1: {run:?} is lost"
                );
                plan.state = if is_there { PlanState::Accepted(run) } else { PlanState::Waits };
            }
        }
    }
}
