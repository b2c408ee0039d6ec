//! The nodes of a world: their processes, connections, disks and clocks, and the actions of their executors.

use super::{LARGE_DISK_BYTES, LARGE_MEMORY_BYTES, LEASE_NS, MS, S, World};
use crate::happening::{AttemptId, Ev, Fault, NodeWork};
use crate::home::{Content, hash};
use crate::node::Folder;
use crate::process::ToNode;
use eyas_core::event::*;
use eyas_core::group::to_try;
use eyas_terms::rng::Rng;
use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl World {
    pub(super) fn on_start_node(&mut self, n: usize) {
        self.provided_node_came(n);
        if self.nodes[n].is_up {
            return;
        }
        // Worlds of linked tasks are older than this chance, and do not draw it unless they have it.
        let may_survive = self.o.cache_survives > 0 || !self.o.linked;
        let survives = may_survive && self.chance(self.o.cache_survives);
        let ahead_ns = self.wrong_clock();
        let now = self.clock_time(ahead_ns);
        let other = self.find_folder(n);
        let actions = self.nodes[n].start(now, survives, other);
        self.nodes[n].ahead_ns = ahead_ns;
        self.nodes[n].last_contact = self.calendar.now;
        self.set_clock(n);
        let epoch = self.nodes[n].epoch;
        if self.o.walltime_ns_max > 0 && self.faults {
            let whole_ns = self.o.walltime_ns_max / 4 + self.upto(self.o.walltime_ns_max / 4 * 3);
            self.nodes[n].walltime = Some((whole_ns, self.calendar.now.plus_ns(whole_ns)));
            self.after(whole_ns, Ev::Fault(Fault::WalltimeEnds(n, epoch)));
        }
        self.act(n, actions, true);
        self.after(MS, Ev::Connect { n, epoch });
        self.after(S, Ev::NodeTick { n, epoch });
    }

    /// The folder of another cluster's executor that a process of this node takes over, if it does. The chance has a generator of its
    /// own for each process.
    fn find_folder(&self, n: usize) -> Option<Folder> {
        let epoch = self.nodes[n].epoch;
        let rng = &mut Rng::new(hash(self.o.seed, format!("folder {n} {epoch}").as_bytes()));
        if !self.o.warm || rng.below(3) == 0 {
            return None;
        }
        let mut left_bytes = match self.disk_of(n) {
            0 => u64::MAX,
            disk_bytes => disk_bytes.saturating_sub(self.nodes[n].others_bytes),
        };
        let mut folder = Folder { files: BTreeMap::new(), origins: HashMap::new(), rotten: BTreeSet::new() };
        let mut places = BTreeSet::new();
        let mut add =
            |origin: Option<(&str, &HomeVersion)>, digest: Digest, size_bytes: u64, is_rotten: bool| {
                // Equal bytes are one file.
                let is_there = folder.files.contains_key(&digest);
                if !is_there && size_bytes > left_bytes {
                    return;
                }
                if !is_there {
                    left_bytes -= size_bytes;
                    folder.files.insert(digest, size_bytes);
                    if is_rotten {
                        folder.rotten.insert(digest);
                    }
                }
                // A place has the bytes that came from it last.
                if let Some((location, version)) = origin
                    && places.insert(location.to_string())
                {
                    folder.origins.entry(digest).or_default().push((location.to_string(), version.clone()));
                }
            };
        for location in self.home.locations().filter(|location| !location.starts_with("local/")) {
            let all = self.home.all(location);
            let content = match rng.below(3) {
                0 => &all[rng.below(all.len() as u64) as usize],
                _ => &all[all.len() - 1],
            };
            let Content { digest, version, .. } = content;
            match rng.below(6) {
                0 => {}
                // Its place is not known any more.
                1 => add(None, *digest, version.size_bytes, rng.below(3) == 0),
                2 => add(Some((location, version)), *digest, version.size_bytes, true),
                _ => add(Some((location, version)), *digest, version.size_bytes, false),
            }
        }
        // What an earlier run of the same lists made: other bytes that were at home then, or the same ones.
        for array in self.plans.iter().flat_map(|plan| &plan.arrays) {
            for location in
                (0..array.n_tasks).flat_map(|i| array.expand(i).outputs).map(|(_, location)| location)
            {
                let (of_old, old) = self.bytes_of(&format!("old {location}"), 0);
                let (same, _) = self.bytes_of(&format!("{location} by task "), 0);
                let stays = CatalogLocation::of(&location).stays();
                let size_bytes = if self.o.equal { old } else { self.output_bytes(of_old) };
                let version = HomeVersion { size_bytes, stamp: "of an earlier run".into() };
                match rng.below(6) {
                    0 if !stays => add(Some((&location, &version)), of_old, size_bytes, rng.below(4) == 0),
                    1 => add(None, same, self.output_bytes(same), rng.below(4) == 0),
                    _ => {}
                }
            }
        }
        Some(folder)
    }

    pub(super) fn stop_node(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if !node.is_up {
            return;
        }
        node.is_up = false;
        node.stopped = None;
        let life = node.disconnect();
        self.replay_node(n);
        if let Some(life) = life {
            let takes = self.lasts(3 * S);
            self.after(takes.max(self.o.message_ns_max), Ev::Cut { life });
        }
        let away = self.lasts(10 * S);
        if self.provided_node() != Some(n) {
            self.after(away, Ev::StartNode { n });
        }
    }

    pub(super) fn on_connect(&mut self, n: usize, epoch: u64) {
        let node = &mut self.nodes[n];
        if !node.is_up || node.epoch != epoch || node.life.is_some() {
            return;
        }
        if node.cut_until > self.calendar.now {
            let wait = node.cut_until.since_ns(self.calendar.now).max(S / 4);
            self.after(wait, Ev::Connect { n, epoch });
            return;
        }
        let all: Vec<usize> = (0..self.members.len()).collect();
        let theirs = node.session.link().member().map(|m| m.0 as usize);
        let m = *to_try(node.sent_to.as_ref(), theirs.as_ref(), &all[0], all.iter(), node.n_tries);
        if self.members[m].process.is_none() {
            node.n_tries += 1;
            return self.after(S / 4, Ev::Connect { n, epoch });
        }
        self.set_clock(n);
        let life = self.links.connect(m);
        self.members[m].process.as_mut().expect("just seen").on_connected(life, n);
        let node = &mut self.nodes[n];
        let hello = node.connect(self.calendar.now, life);
        node.lease.connected(LEASE_NS);
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { life, batch: vec![hello] });
    }

    pub(super) fn on_to_node(&mut self, n: usize, life: u64, batch: Vec<ToNode>) {
        for message in batch {
            if self.nodes[n].life != Some(life) {
                return;
            }
            let now = self.clock_of(n);
            let events = self.nodes[n].events_of(now, message);
            if self.nodes[n].life.is_none() {
                // It was turned away, leaves, and looks elsewhere.
                let epoch = self.nodes[n].epoch;
                self.after(MS, Ev::Cut { life });
                return self.after(S / 4, Ev::Connect { n, epoch });
            }
            self.nodes[n].last_contact = self.calendar.now;
            events.into_iter().for_each(|event| self.feed(n, event));
            if self.nodes[n].is_ended {
                self.flush_node(n);
                return self.stop_node(n);
            }
        }
        self.go_elsewhere(n);
        self.flush_node(n);
    }

    /// A node that is to go to another dispatcher says goodbye when it has no work left.
    pub(super) fn go_elsewhere(&mut self, n: usize) {
        let now = self.clock_of(n);
        let Some((life, batch)) = self.nodes[n].go(now) else { return };
        let epoch = self.nodes[n].epoch;
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { life, batch });
        let at = self.arrival(life, false);
        self.after(at, Ev::Cut { life });
        self.after(MS, Ev::Connect { n, epoch });
    }

    pub(super) fn on_node_tick(&mut self, n: usize, epoch: u64) {
        let node = &mut self.nodes[n];
        if !node.is_up || node.epoch != epoch {
            return;
        }
        node.beat();
        if self.o.n_stops > 0 && node.session.link().is_welcomed() {
            node.lease.asked(self.calendar.now);
        }
        let is_lost = node.life.is_none() && self.calendar.now.since_ns(node.last_contact) > LEASE_NS;
        let leaves = node.is_draining && node.session.core().is_idle() && node.session.link().is_welcomed();
        if is_lost {
            return self.stop_node(n);
        }
        if leaves {
            self.nodes[n].say_bye();
            self.flush_node(n);
            return self.stop_node(n);
        }
        self.after(S, Ev::NodeTick { n, epoch });
        self.feed(n, NodeEvent::Ticked);
        self.measure_space(n);
        self.go_elsewhere(n);
        self.flush_node(n);
    }

    /// The size of a node's disk; 0: larger than anything here.
    pub(super) fn disk_of(&self, n: usize) -> u64 {
        let is_large = self.o.uneven && self.nodes[n].memory_bytes == LARGE_MEMORY_BYTES;
        match self.o.disk_bytes {
            0 => 0,
            disk_bytes if is_large => disk_bytes.max(LARGE_DISK_BYTES),
            disk_bytes => disk_bytes,
        }
    }

    /// Measures as the live executor does once a second.
    pub(super) fn measure_space(&mut self, n: usize) {
        if self.disk_of(n) > 0 {
            let (_, beside) = self.nodes[n].bytes_on_disk();
            let room_bytes = self.disk_of(n).saturating_sub(beside);
            let disk_bytes = self.disk_of(n);
            self.feed(n, NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
        }
    }

    /// The free bytes on the disk of a node.
    pub(super) fn free_bytes(&self, n: usize) -> u64 {
        let (cached, beside) = self.nodes[n].bytes_on_disk();
        self.disk_of(n).saturating_sub(cached + beside)
    }

    /// Whether this many bytes more fit on the disk of a node, not counting bytes that they replace.
    pub(super) fn has_space(&self, n: usize, more_bytes: u64) -> bool {
        let (cached, beside) = self.nodes[n].bytes_on_disk();
        self.disk_of(n) == 0 || cached + beside + more_bytes <= self.disk_of(n)
    }

    pub(super) fn flush_node(&mut self, n: usize) {
        let now = self.clock_of(n);
        self.nodes[n].report_home(now);
        let Some((life, batch)) = self.nodes[n].take_words() else { return };
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { life, batch });
    }

    pub(super) fn feed(&mut self, n: usize, event: NodeEvent) {
        let corrupt = match &event {
            NodeEvent::FoundCorrupt { .. } => true,
            NodeEvent::ProgramEnded { exit, .. } => !exit.inputs_modified.is_empty(),
            _ => false,
        };
        let now = self.clock_of(n);
        let actions = self.nodes[n].feed(now, event);
        self.act(n, actions, corrupt);
    }

    /// The present time in the node's view.
    pub(super) fn clock_of(&self, n: usize) -> Timestamp {
        self.clock_time(self.nodes[n].ahead_ns).plus_ns(self.nodes[n].clock_ahead_ns)
    }

    /// The node's estimate of the dispatcher's clock becomes wrong by another amount.
    pub(super) fn set_clock(&mut self, n: usize) {
        if self.o.clock_ahead_ns_max > 0 {
            self.nodes[n].clock_ahead_ns = self.upto(self.o.clock_ahead_ns_max);
        }
    }

    /// Carries out the actions of a state machine. `corrupt`: bytes may be dropped although an attempt needs
    /// them.
    pub(super) fn act(&mut self, n: usize, actions: Vec<NodeAction>, corrupt: bool) {
        let ended: Vec<AttemptId> = actions
            .iter()
            .filter_map(|a| match a {
                NodeAction::CleanUp { task, attempt } => Some((*task, *attempt)),
                _ => None,
            })
            .collect();
        let epoch = self.nodes[n].epoch;
        let transfer_ns_max = self.o.transfer_ns_max;
        for action in actions {
            self.trace.add(format!("             node {n} {action:?}"));
            match action {
                NodeAction::AskHome { object, .. } => {
                    let takes = self.lasts(transfer_ns_max / 4);
                    self.after(takes, Ev::Done { n, epoch, work: NodeWork::Ask { object } });
                }
                NodeAction::Fetch { target, object, source, known, size_bytes, watched, .. } => {
                    let takes = self.lasts(transfer_ns_max);
                    if watched && self.o.midway {
                        let (moved_bytes, moving_ns) = (size_bytes / 2, takes / 2);
                        let moved = InputMoved {
                            target,
                            object,
                            source,
                            moved_bytes,
                            size_bytes,
                            moving_ns,
                            is_all: false,
                        };
                        self.after(takes / 2, Ev::Done { n, epoch, work: NodeWork::Moved { moved } });
                    }
                    let began = self.home.find(self.nodes[n].session.book().location(object)).cloned();
                    let work = NodeWork::Fetch { target, object, source, known, size_bytes, began };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                NodeAction::Evict { object } => {
                    if !corrupt {
                        self.check_eviction(n, object, &ended);
                    }
                    self.nodes[n].evict(object);
                }
                NodeAction::HoldInMemory { object } => {
                    let takes = self.lasts(transfer_ns_max / 8);
                    self.after(takes, Ev::Done { n, epoch, work: NodeWork::Hold { object } });
                }
                // Nobody sees it.
                NodeAction::LeaveMemory { .. } => {}
                NodeAction::Start { task, attempt, inputs, gpus, .. } => {
                    if self.refuse_rotten(n, (task, attempt), &inputs) {
                        continue;
                    }
                    self.start((n, epoch), (task, attempt), &inputs);
                    self.check_resources(n, (task, attempt), gpus);
                }
                NodeAction::Kill { task, attempt } => {
                    if self.nodes[n].contexts.contains_key(&(task, attempt)) {
                        let takes = self.lasts(MS);
                        self.after(
                            takes,
                            Ev::Done { n, epoch, work: NodeWork::Program { id: (task, attempt) } },
                        );
                    }
                }
                // The session has noted it.
                NodeAction::Halt { .. } => {}
                NodeAction::StoreOutput { task, attempt, output, object, cache_bytes } => {
                    let takes = self.lasts(transfer_ns_max / 8);
                    let work = NodeWork::Store { id: (task, attempt), output, object, cache_bytes };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                NodeAction::Land { task, attempt, output, object, cached } => {
                    let takes = self.lasts(transfer_ns_max);
                    let work = NodeWork::Land { id: (task, attempt), output, object, cached };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                // Programs of worlds are not watched.
                NodeAction::Bring { .. } => {}
                NodeAction::DropPrivate { task, attempt, input } => {
                    self.nodes[n].private.remove(&((task, attempt), input));
                }
                NodeAction::CleanUp { task, attempt } => {
                    let node = &mut self.nodes[n];
                    node.contexts.remove(&(task, attempt));
                    node.private.retain(|(id, _), _| *id != (task, attempt));
                    node.scratch.remove(&(task, attempt));
                }
                NodeAction::Tell { message } => {
                    self.check_told(&message);
                    self.nodes[n].tell(message);
                }
            }
        }
        self.check_store(n);
    }
}
