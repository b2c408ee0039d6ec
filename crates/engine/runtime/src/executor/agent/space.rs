//! What is known of this node's disks: the room that the cache's disk has, and how much programs have written.

use super::input::{Input, Inputs, send_event};
use crate::executor::made::trees::Trees;
use eyas_core::event::NodeEvent;
use eyas_data::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module. Where the kernel does not count what processes write, the counts stay at zero.
pub(super) struct Space {
    /// A measurement of the disks is under way.
    is_measuring: Arc<AtomicBool>,
    /// Bytes written by each slot process and by its programs that have ended, as the slot process reported them last.
    written_by_slot: BTreeMap<usize, u64>,
    /// The highest known sum over all present slot processes, including programs that still run.
    written_bytes: u64,
    /// How many slot processes were replaced.
    n_slot_lives: u64,
    inputs: Inputs,
}

impl Space {
    pub(super) fn new(inputs: Inputs) -> Space {
        Space {
            is_measuring: Arc::default(),
            written_by_slot: BTreeMap::new(),
            written_bytes: 0,
            n_slot_lives: 0,
            inputs,
        }
    }

    /// Measures the room for the cache `store`, and what the processes `slots` and their programs have
    /// written. The measurement has a thread of its own, because a disk may be slow to answer.
    pub(super) fn measure(&self, store: &Store, trees: &Trees, slots: Vec<u32>) {
        if self.is_measuring.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, trees) = (store.clone(), trees.clone());
        let (inputs, is_measuring) = (self.inputs.clone(), self.is_measuring.clone());
        let n_lives = self.n_slot_lives;
        tokio::task::spawn_blocking(move || {
            if let Ok((room_bytes, disk_bytes)) = store.room_bytes() {
                let room_bytes = room_bytes.saturating_add(trees.held_bytes());
                send_event(&inputs, NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
            }
            if let Some(bytes) = eyas_runner::tree::written_by_slots(slots) {
                let _ = inputs.send(Input::ProgramsWrote { bytes, n_lives });
            }
            is_measuring.store(false, Ordering::Release);
        });
    }

    /// Bytes that programs have written up to now, at least.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// A measurement found that `bytes` were written. It counts if no slot process was replaced since it
    /// began.
    pub(super) fn programs_wrote(&mut self, bytes: u64, n_lives: u64) {
        if n_lives == self.n_slot_lives {
            self.note(bytes);
        }
    }

    /// A program of `slot` has ended. `bytes`: what the slot process reported then, see `written_by_slot`.
    pub(super) fn program_ended(&mut self, slot: usize, bytes: Option<u64>) {
        self.written_by_slot.insert(slot, bytes.unwrap_or(0));
        self.note(self.written_by_slot.values().sum());
    }

    /// A slot process was replaced. What it had written can no longer be counted, so less is known from now
    /// on.
    pub(super) fn slot_replaced(&mut self, slot: usize) {
        self.n_slot_lives += 1;
        self.written_by_slot.remove(&slot);
        self.written_bytes = 0;
    }

    fn note(&mut self, bytes: u64) {
        self.written_bytes = self.written_bytes.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_began_before_a_slot_process_was_replaced_does_not_count() {
        let (inputs, _queue) = tokio::sync::mpsc::unbounded_channel();
        let mut space = Space::new(inputs);
        space.program_ended(0, Some(100));
        space.program_ended(1, Some(20));
        assert_eq!(space.written_bytes(), 120);
        space.programs_wrote(150, 0);
        space.programs_wrote(130, 0);
        assert_eq!(space.written_bytes(), 150, "what was written stays written");

        space.slot_replaced(0);
        assert_eq!(space.written_bytes(), 0);
        space.programs_wrote(160, 0);
        assert_eq!(space.written_bytes(), 0, "that look saw the process that is gone");
        space.programs_wrote(25, 1);
        space.program_ended(1, Some(30));
        assert_eq!(space.written_bytes(), 30);
    }
}
