//! The room that stays free on a disk where files grow that nobody declared.

use std::fs::File;

/// So much of a disk stays free for what has to go on there, or this part of a small disk.
const FREE_BYTES_MIN: u64 = 256 << 20;
const FREE_PART: u64 = 4;

/// Whether so much stays free on the file's disk when `more_bytes` are written that it has use for everything else. A file system
/// that does not say how large it is has room.
pub fn has_room(file: &File, more_bytes: u64) -> bool {
    let Some(disk) = rustix::fs::fstatvfs(file).ok().filter(|disk| disk.f_blocks > 0) else { return true };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    bytes(disk.f_bavail) >= more_bytes.saturating_add(FREE_BYTES_MIN.min(bytes(disk.f_blocks) / FREE_PART))
}
