//! Bytes that the allocator has given out, so that what a structure holds can be counted exactly.

/// Heap bytes in use now, where the C library tells (glibc).
#[cfg(target_env = "gnu")]
pub fn heap_bytes() -> Option<u64> {
    // SAFETY: a query without arguments; it takes the allocator's own locks.
    let info = unsafe { libc::mallinfo2() };
    Some(info.uordblks as u64 + info.hblkhd as u64)
}

#[cfg(not(target_env = "gnu"))]
pub fn heap_bytes() -> Option<u64> {
    None
}

/// What `make` leaves on the heap, in bytes, and what it made.
pub fn held_by<T>(make: impl FnOnce() -> T) -> (Option<u64>, T) {
    let before = heap_bytes();
    let made = make();
    let after = heap_bytes();
    (before.zip(after).map(|(before, after)| after.saturating_sub(before)), made)
}
