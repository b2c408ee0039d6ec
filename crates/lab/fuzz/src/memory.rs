//! An allocator that counts, and ends the process where more is held than any input may ask for.
//!
//! A program that fuzzes installs it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one input may make its reader hold.
pub const BYTES_MAX: usize = 1 << 30;
/// The process's exit status then.
pub const STATUS: i32 = 86;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// What was held when the input began.
static BASE: AtomicUsize = AtomicUsize::new(0);

pub struct Counting;

/// An input begins: what is held now is not its own.
pub fn begin() {
    let held = HELD.load(Ordering::Relaxed);
    BASE.store(held, Ordering::Relaxed);
    MOST.store(held, Ordering::Relaxed);
}

/// The most that was held at a time since [`begin`], in bytes.
pub fn most() -> usize {
    MOST.load(Ordering::Relaxed).saturating_sub(BASE.load(Ordering::Relaxed))
}

fn count(more: usize) {
    let held = HELD.fetch_add(more, Ordering::Relaxed) + more;
    if held > MOST.load(Ordering::Relaxed) {
        MOST.store(held, Ordering::Relaxed);
        if held - BASE.load(Ordering::Relaxed).min(held) > BYTES_MAX {
            crate::place::die("more than 1 GiB was held", STATUS);
        }
    }
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match new_size.checked_sub(layout.size()) {
            Some(more) => count(more),
            None => _ = HELD.fetch_sub(layout.size() - new_size, Ordering::Relaxed),
        }
        // SAFETY: as the caller guarantees.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(memory, layout) }
    }
}
