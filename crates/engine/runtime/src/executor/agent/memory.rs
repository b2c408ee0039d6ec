//! Files of the cache that are held in memory, on a thread of their own: to bring a file there may mean to read it from the disk.
//!
//! Which files these are is decided elsewhere ([`eyas_core::executor::memory`]). The thread does one thing after the other, in the order
//! in which it was asked, so that what leaves has left before the next file comes.

use super::input::{Inputs, send_event};
use crate::machine;
use eyas_core::event::{NodeEvent, NotHeldInMemory};
use eyas_data::{ErrorKind, InMemory, Store};
use eyas_terms::{Digest, ObjectId};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// Programs keep so much memory beside what is held; the room is measured, and used only afterwards.
const SPARE_BYTES: u64 = 32 << 20;

enum Order {
    Hold { object: ObjectId, file: Option<Digest>, is_unwanted: Arc<AtomicBool> },
    Leave(ObjectId),
    Measure,
}

/// See the module.
pub(super) struct Memory {
    orders: Sender<Order>,
    /// For each file on its way into memory: whether it is not wanted any more.
    unwanted: HashMap<ObjectId, Arc<AtomicBool>>,
}

impl Memory {
    pub(super) fn start(store: Store, inputs: Inputs) -> Memory {
        let (orders, received) = mpsc::channel();
        allow_locks();
        std::thread::spawn(move || {
            Holder { store, inputs, held: BTreeMap::new(), was_refused: false }.run(received)
        });
        Memory { orders, unwanted: HashMap::new() }
    }

    /// `file`: its bytes; `None` if it is no single file here.
    pub(super) fn hold(&mut self, object: ObjectId, file: Option<Digest>) {
        let is_unwanted = Arc::<AtomicBool>::default();
        self.unwanted.insert(object, Arc::clone(&is_unwanted));
        let _ = self.orders.send(Order::Hold { object, file, is_unwanted });
    }

    pub(super) fn leave(&mut self, object: ObjectId) {
        if let Some(is_unwanted) = self.unwanted.remove(&object) {
            is_unwanted.store(true, Ordering::Relaxed);
        }
        let _ = self.orders.send(Order::Leave(object));
    }

    /// The thread has done what [`Memory::hold`] asked for, or not.
    pub(super) fn answered(&mut self, object: ObjectId) {
        self.unwanted.remove(&object);
    }

    pub(super) fn measure(&self) {
        let _ = self.orders.send(Order::Measure);
    }
}

/// What the thread has.
struct Holder {
    store: Store,
    inputs: Inputs,
    held: BTreeMap<ObjectId, InMemory>,
    was_refused: bool,
}

impl Holder {
    fn run(mut self, orders: Receiver<Order>) {
        for order in orders {
            match order {
                Order::Hold { object, file, is_unwanted } => {
                    let result = self.hold(object, file, &is_unwanted);
                    send_event(&self.inputs, NodeEvent::MemoryAnswered { object, result });
                }
                Order::Leave(object) => drop(self.held.remove(&object)),
                Order::Measure => {
                    let room_bytes = machine::memory_room_bytes().saturating_sub(SPARE_BYTES);
                    send_event(&self.inputs, NodeEvent::MemoryMeasured { room_bytes });
                }
            }
        }
    }

    fn hold(
        &mut self,
        object: ObjectId,
        file: Option<Digest>,
        is_unwanted: &AtomicBool,
    ) -> Result<(), NotHeldInMemory> {
        let digest = file.ok_or(NotHeldInMemory::Gone)?;
        let is_unwanted = || is_unwanted.load(Ordering::Relaxed);
        let held = self.store.hold_in_memory(&digest.0.into(), |bytes| match is_unwanted() {
            true => Err(io::Error::other("it is not wanted any more")),
            false if machine::memory_room_bytes() < SPARE_BYTES + bytes => {
                Err(io::Error::other("programs of this node need the memory that is left"))
            }
            false => Ok(()),
        });
        match held {
            Ok(held) => {
                self.held.insert(object, held);
                Ok(())
            }
            Err(e) if is_unwanted() || e.kind == ErrorKind::NotHeld => Err(NotHeldInMemory::Gone),
            Err(e) => {
                if !std::mem::replace(&mut self.was_refused, true) {
                    eyas_text::say!(
                        "eyas: no more files of the cache can be held in memory now: {e}; those that are not held are read from the \
                         disk. If the system limits what processes may lock, raise that limit (`ulimit -l`, `memlock` in \
                         /etc/security/limits.conf, LimitMEMLOCK= of a systemd unit), or give a smaller --cache-memory"
                    );
                }
                Err(NotHeldInMemory::Refused)
            }
        }
    }
}

/// Lets this process lock as much as it may.
fn allow_locks() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Memlock);
    limit.current = limit.maximum;
    // Where that is refused, the limit is what it was, and shows itself when files are to be held.
    let _ = setrlimit(Resource::Memlock, limit);
}
