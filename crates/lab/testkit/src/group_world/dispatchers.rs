//! Dispatchers of the world: their processes, journals, and connections to each other.

use super::*;

impl World {
    pub(super) fn with(&mut self, m: usize, act: impl FnOnce(&mut Process, Timestamp)) {
        let Some(mut process) = self.members[m].process.take() else { return };
        act(&mut process, self.now);
        let News { ended, revived, forgotten, durable, to_nodes, to_members, to_clients, closed, .. } =
            process.settle(self.now);
        for run in forgotten {
            self.trace(format!("             {m}: forgot {run:?}"));
            if m == 0 {
                self.check_forgotten(run);
            }
        }
        for (task, outcome, by) in ended {
            self.trace(format!("             {m}: ended {task:?} {outcome:?}"));
            self.check_ended(m, &process, task, &outcome, by);
        }
        for (task, lost) in revived {
            self.trace(format!("             {m}: revived {task:?} for {lost:?}"));
            self.members[m].promised.remove(&task);
            self.n_revivals += 1;
        }
        for task in durable {
            self.check_durable(m, &process, task);
        }
        let (incarnation, n_records) = (process.incarnation(), process.journal().records.len());
        self.members[m].process = Some(process);
        for (life, n, batch) in to_nodes {
            for message in &batch {
                self.check_message(m, n, message);
            }
            let at = self.arrival(life, true);
            self.after(at, Ev::ToNode { n, life, batch });
        }
        for (member, message) in to_members {
            let (from, to) = (m, member.0 as usize);
            if let Some(life) = self.links.get(&(from, to)).copied() {
                let at = self.arrival(life, false);
                self.after(at, Ev::ToMember { from, to, life, message });
            }
        }
        for (life, number, body) in to_clients {
            let at = self.arrival(life, true);
            self.after(at, Ev::ToClient { life, number, body });
        }
        for (life, n) in closed {
            let at = self.arrival(life, true);
            self.after(at, Ev::NodeCut { n, life });
        }
        if n_records > self.members[m].n_scheduled {
            let takes = self.lasts(self.o.durable_ns_max);
            let member = &mut self.members[m];
            let n = n_records;
            member.n_scheduled = n;
            member.durable_at = member.durable_at.max(self.now.0 + takes);
            let at = member.durable_at - self.now.0;
            self.after(at, Ev::Durable { m, incarnation, n });
        }
    }

    pub(super) fn on_start_member(&mut self, m: usize) {
        let member = &mut self.members[m];
        if member.process.is_some() {
            return;
        }
        member.n_processes += 1;
        // The incarnations of processes differ between all members, as times do.
        let incarnation = member.n_processes * u64::from(self.o.n_members) + m as u64;
        let process = Process::start(&member.config, incarnation, self.now, &mut member.journal);
        for (task, run) in &member.promised {
            if process.journal().is_forgotten(*run) {
                continue;
            }
            let state = process.core().task_state(*task);
            assert_eq!(
                state,
                TaskState::Done,
                "promise 1: {task:?} of member {m} was done before the restart"
            );
        }
        self.check_restarted(m, &process);
        self.members[m].process = Some(process);
        self.with(m, |_, _| ());
    }

    pub(super) fn kill_member(&mut self, m: usize) {
        let Some(process) = self.members[m].process.take() else { return };
        let connections: Vec<(u64, usize)> = process.connections().collect();
        self.members[m].journal = process.into_journal();
        let member = &self.members[m];
        let n_durable = member.journal.n_durable;
        let n_more = (member.journal.records.len() - n_durable) as u64;
        let kept = n_durable + self.upto(n_more) as usize;
        let member = &mut self.members[m];
        member.journal.records.truncate(kept);
        member.journal.n_durable = kept;
        member.n_scheduled = kept;
        for (life, n) in connections {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::NodeCut { n, life });
        }
        for other in (0..self.members.len()).filter(|other| *other != m) {
            if let Some(life) = self.links.remove(&(m, other)) {
                self.after(S / 5, Ev::LinkTry { from: m, to: other });
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::Cut { m: other, life });
            }
            if let Some(life) = self.links.get(&(other, m)).copied() {
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::MemberLost { from: other, to: m, life });
            }
        }
        let clients: Vec<u64> = self.lives_of_clients(m);
        for life in clients {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::ClientCut { life });
        }
        let away = self.lasts(self.o.away_ns_max);
        self.after(away, Ev::StartMember { m });
    }

    pub(super) fn on_link_try(&mut self, from: usize, to: usize) {
        if self.links.contains_key(&(from, to)) {
            return;
        }
        let is_cut = self.links_cut_until.get(&(from, to)).is_some_and(|until| *until > self.now);
        if is_cut || self.members[from].process.is_none() || self.members[to].process.is_none() {
            return self.after(S / 5, Ev::LinkTry { from, to });
        }
        let life = self.next_life;
        self.links.insert((from, to), life);
        self.next_life += 1;
        let (theirs, ours, n) = (MemberId(to as u32), MemberId(from as u32), self.members.len() as u32);
        self.with(to, |process, now| process.on_member_connected(now, life, ours, n));
        self.with(from, |process, now| process.on_member_reached(now, theirs));
    }
}
