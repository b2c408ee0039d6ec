//! Counts the bytes that the allocator has given out, so that the memory of a structure is known exactly.

/// Heap bytes in use now, if the C library reports them (glibc from 2.33 on; the program runs with older
/// ones, too).
#[cfg(target_env = "gnu")]
pub fn heap_bytes() -> Option<u64> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: every function of this name has this signature.
    let mallinfo2: extern "C" fn() -> libc::mallinfo2 = unsafe { std::mem::transmute(found) };
    // A query without arguments; it takes the allocator's own locks.
    let info = mallinfo2();
    Some(info.uordblks as u64 + info.hblkhd as u64)
}

#[cfg(not(target_env = "gnu"))]
pub fn heap_bytes() -> Option<u64> {
    None
}

/// The bytes that `make` leaves on the heap, and the value that it made.
pub fn held_by<T>(make: impl FnOnce() -> T) -> (Option<u64>, T) {
    let before = heap_bytes();
    let made = make();
    let after = heap_bytes();
    (before.zip(after).map(|(before, after)| after.saturating_sub(before)), made)
}
