//! Programs on a node: each waits for a slot, reads its cached inputs, computes and writes its outputs. The node then brings the
//! outputs home.

use super::SimNode;
use crate::world::AttemptId;
use crate::world::hardware::{HOME_SITE, Hardware, LandedOutput, Purpose};
use crate::world::record::Record;
use crate::world::time::{Ev, Time};
use crate::world::work::ArrivingWork;
use eyas_core::event::{Exit, NodeEvent};
use eyas_terms::{Failure, FailureKind, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

struct Program {
    started: Timestamp,
    /// What it still has to read from memory.
    memory_bytes: u64,
    output_bytes: u64,
}

/// Bytes of inputs that a program reads, by where they are when it is handed over.
#[derive(Clone, Copy, Default)]
pub(in crate::world) struct Reads {
    pub disk_bytes: u64,
    pub memory_bytes: u64,
}

/// The slots of one node.
pub(in crate::world) struct Slots {
    n_idle: u32,
    /// Programs that were handed over before a slot was free, and what each of them will read.
    handed: VecDeque<(AttemptId, Reads)>,
    programs: FxHashMap<AttemptId, Program>,
}

impl Slots {
    pub fn new(n_slots: u32) -> Slots {
        Slots { n_idle: n_slots, handed: VecDeque::new(), programs: FxHashMap::default() }
    }

    pub fn n_idle(&self) -> u32 {
        self.n_idle
    }

    /// Whether this program has a slot.
    pub fn has(&self, attempt: AttemptId) -> bool {
        self.programs.contains_key(&attempt)
    }
}

impl SimNode {
    /// The program starts, or waits for a slot.
    pub fn hand_over(
        &mut self,
        attempt: AttemptId,
        reads: Reads,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
    ) {
        if self.slots.n_idle > 0 {
            self.slots.n_idle -= 1;
            self.start(attempt, reads, time, hardware, work);
        } else {
            self.slots.handed.push_back((attempt, reads));
        }
    }

    fn start(
        &mut self,
        attempt: AttemptId,
        reads: Reads,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
    ) {
        let output_bytes = work.output_sizes(attempt.0).sum();
        let Reads { disk_bytes: input_bytes, memory_bytes } = reads;
        self.slots.programs.insert(attempt, Program { started: time.now, memory_bytes, output_bytes });
        match hardware.scratch_made_at(time.now) {
            Some(at_ns) => time.at(at_ns, Ev::ScratchMade { node: self.number, attempt, input_bytes }),
            None => self.read(attempt, input_bytes, time, hardware, work),
        }
    }

    /// The program reads its cached inputs from the disk, then those in memory.
    pub fn read(
        &mut self,
        attempt: AttemptId,
        input_bytes: u64,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
    ) {
        if input_bytes > 0 {
            let purpose = Purpose::Read { node: self.number, attempt };
            hardware.begin(time.now, &mut self.flows, input_bytes, &[self.place.disk], purpose);
        } else {
            self.read_memory(attempt, time, hardware, work);
        }
    }

    /// The program reads what it has in memory, then computes.
    pub fn read_memory(
        &mut self,
        attempt: AttemptId,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
    ) {
        let program = self.slots.programs.get_mut(&attempt);
        match program.map_or(0, |program| std::mem::take(&mut program.memory_bytes)) {
            0 => self.compute(attempt, time, hardware, work),
            bytes => {
                let purpose = Purpose::Read { node: self.number, attempt };
                hardware.begin(time.now, &mut self.flows, bytes, &[self.place.memory], purpose);
            }
        }
    }

    /// The program computes, if it has not been ended.
    fn compute(&mut self, attempt: AttemptId, time: &mut Time, hardware: &Hardware<'_>, work: &ArrivingWork) {
        if self.slots.has(attempt) {
            let compute_ns = (work.compute_ns(attempt.0) as f64 / self.place.speed) as u64;
            let delay_ns = hardware.machine.task_overhead_ns + compute_ns;
            time.after(delay_ns, Ev::Computed { node: self.number, attempt });
        }
    }

    /// The program has computed, and writes its outputs. Gives the event that tells the executor of its end; `None` while it still
    /// writes.
    pub fn on_computed(
        &mut self,
        attempt: AttemptId,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
        record: &mut Record,
    ) -> Option<NodeEvent> {
        let output_bytes = self.slots.programs.get(&attempt)?.output_bytes;
        if output_bytes == 0 {
            return self.on_written(attempt, time, hardware, work, record);
        }
        let bytes = (output_bytes as f64 * hardware.machine.costs.disk_write) as u64;
        let purpose = Purpose::Write { node: self.number, attempt };
        hardware.begin(time.now, &mut self.flows, bytes, &[self.place.disk], purpose);
        None
    }

    /// The program has ended. Gives the event that tells the executor so; `None` if the program was killed before.
    pub fn on_written(
        &mut self,
        attempt: AttemptId,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
        record: &mut Record,
    ) -> Option<NodeEvent> {
        let Program { started, .. } = self.slots.programs.remove(&attempt)?;
        self.free_slot(time, hardware, work);
        let exit = Exit {
            cpu_ns: work.compute_ns(attempt.0),
            outputs: work.output_sizes(attempt.0).map(Some).collect(),
            ..exit(Ok(()), started, time.now)
        };
        record.recorder.ran(started, time.now);
        let (task, attempt) = attempt;
        Some(NodeEvent::ProgramEnded { task, attempt, exit })
    }

    /// Kills a program. Its reading or writing goes on without it, as in a page cache. Gives the event that tells the executor so;
    /// `None` if there is no such program.
    pub fn kill(
        &mut self,
        attempt: AttemptId,
        time: &mut Time,
        hardware: &mut Hardware<'_>,
        work: &ArrivingWork,
    ) -> Option<NodeEvent> {
        let handed = self.slots.handed.iter().position(|(id, _)| *id == attempt);
        if let Some(at) = handed {
            self.slots.handed.remove(at);
        } else {
            self.slots.programs.remove(&attempt)?;
            self.free_slot(time, hardware, work);
        }
        let failure = Failure { kind: FailureKind::Signal(9), message: "it was ended".into() };
        let (task, attempt) = attempt;
        Some(NodeEvent::ProgramEnded { task, attempt, exit: exit(Err(failure), time.now, time.now) })
    }

    /// Brings an output home. The cost of writing there is taken for the whole way: home is the slowest part of it.
    pub fn bring_home(
        &mut self,
        output: LandedOutput,
        size_bytes: u64,
        time: &Time,
        hardware: &mut Hardware<'_>,
    ) {
        let bytes = (size_bytes as f64 * hardware.machine.costs.home_write) as u64;
        let mut crossed = vec![self.place.disk, self.place.link_out, self.place.client, hardware.home];
        crossed.extend(hardware.between(self.place.site, HOME_SITE));
        let purpose = Purpose::Land { node: self.number, output };
        hardware.begin(time.now, &mut self.flows, bytes, &crossed, purpose);
    }

    /// The next program that was handed over takes the slot.
    fn free_slot(&mut self, time: &mut Time, hardware: &mut Hardware<'_>, work: &ArrivingWork) {
        match self.slots.handed.pop_front() {
            Some((attempt, reads)) => self.start(attempt, reads, time, hardware, work),
            None => self.slots.n_idle += 1,
        }
    }
}

fn exit(result: Result<(), Failure>, started: Timestamp, exited: Timestamp) -> Exit {
    Exit {
        result,
        started,
        exited,
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
        found: vec![],
        outputs: vec![],
        inputs_modified: vec![],
        inputs_damaged: vec![],
        disk: None,
    }
}
