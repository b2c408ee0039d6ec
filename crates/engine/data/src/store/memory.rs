//! Objects whose bytes the kernel keeps in memory.
//!
//! The bytes are the pages that programs and peers read anyway, from the very file that they have a link to. So nothing is copied, and
//! a program sees no difference but in time.

use super::{Store, not_held};
use crate::{Digest, Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Memory is locked in parts of this size, so that a part is soon read from the disk, and whoever waits may change his mind.
const PART_BYTES: usize = 16 << 20;

/// An object that stays in memory until this is dropped. Also when the object is removed from the cache, its blocks stay until then.
#[derive(Debug)]
pub struct InMemory {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: nothing is read or written through the address; it only names what is to be unmapped.
unsafe impl Send for InMemory {}

impl Drop for InMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nobody has a reference into it.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

impl InMemory {
    fn map(file: &File, bytes: usize) -> io::Result<InMemory> {
        // SAFETY: a new mapping at an address that the kernel chooses. Its memory is never accessed, so that it does no harm if the
        // file becomes shorter.
        let at = unsafe {
            let (access, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), bytes, access, shared, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(InMemory { at, bytes }) }
    }

    fn lock(&self, from: usize, bytes: usize) -> io::Result<()> {
        // SAFETY: the range lies within the mapping.
        match unsafe { libc::mlock(self.at.byte_add(from), bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Store {
    /// Brings the object into memory and keeps it there. `may_take` is asked before each part, with its bytes, and refuses by an error.
    ///
    /// Errors: `NotHeld`, also for an empty object; `Io` with what the kernel or `may_take` said.
    pub fn hold_in_memory(
        &self,
        digest: &Digest,
        mut may_take: impl FnMut(u64) -> io::Result<()>,
    ) -> Result<InMemory> {
        const OPERATION: &str = "hold an object in memory";
        let fail = |e| Error::io(OPERATION, digest.to_string(), e);
        let size = self.find(digest).filter(|size| *size > 0).ok_or_else(|| not_held(digest, OPERATION))?;
        let bytes = size as usize;
        let file = File::open(self.path_of(digest)).map_err(|e| self.gone(digest, OPERATION, e))?;
        let held = InMemory::map(&file, bytes).map_err(fail)?;
        for from in (0..bytes).step_by(PART_BYTES) {
            let part = PART_BYTES.min(bytes - from);
            may_take(part as u64).and_then(|()| held.lock(from, part)).map_err(fail)?;
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// Kibibytes that this process has locked.
    fn locked_kib(what: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn pages_are_locked_until_they_are_dropped_also_past_the_removal_of_the_object() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let path = dir.path().join("made");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let digest = store.adopt(&path, store.reserve(10_000).unwrap()).unwrap().digest;
        let mut asked = vec![];
        let held = store.hold_in_memory(&digest, |bytes| {
            asked.push(bytes);
            Ok(())
        });
        let held = held.unwrap();
        let locked = locked_kib("VmLck:");
        assert!(asked == [10_000] && locked >= 10, "{asked:?} {locked}");
        store.remove(&digest).unwrap();
        assert_eq!(locked_kib("VmLck:"), locked);
        drop(held);
        assert_eq!(locked_kib("VmLck:"), 0);
        let refused = store.hold_in_memory(&digest, |_| Ok(())).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotHeld);
    }

    #[test]
    fn what_is_refused_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let path = dir.path().join("made");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let digest = store.adopt(&path, store.reserve(10_000).unwrap()).unwrap().digest;
        let no = |_| Err(io::Error::other("not today"));
        let refused = store.hold_in_memory(&digest, no).unwrap_err().to_string();
        assert!(refused.contains("not today"), "{refused}");
    }
}
