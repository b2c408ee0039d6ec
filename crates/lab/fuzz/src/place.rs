//! Where a fuzzing process is, for whoever finds out what it died of, and its death with a word about that place.
//!
//! The place (which target, which input) is in memory that is shared with the process that started this one, so it
//! survives every kind of death.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Targets that there can be.
pub const TARGETS_MAX: usize = 32;

/// Where a process is.
#[repr(C)]
pub struct FuzzPlace {
    /// Plus one; 0: at no input.
    pub(crate) target: AtomicU64,
    /// Inputs begun, by target.
    pub(crate) begun: [AtomicU64; TARGETS_MAX],
    /// Processor time of the process when the input began, in nanoseconds.
    pub(crate) since_ns: AtomicU64,
    /// The most that an input held, in bytes, and the most that one took, in nanoseconds, by target.
    pub(crate) most_bytes: [AtomicU64; TARGETS_MAX],
    pub(crate) most_ns: [AtomicU64; TARGETS_MAX],
}

static PLACE: AtomicPtr<FuzzPlace> = AtomicPtr::new(std::ptr::null_mut());
static OWN: FuzzPlace = FuzzPlace::new();

impl FuzzPlace {
    const fn new() -> FuzzPlace {
        FuzzPlace {
            target: AtomicU64::new(0),
            begun: [const { AtomicU64::new(0) }; TARGETS_MAX],
            since_ns: AtomicU64::new(0),
            most_bytes: [const { AtomicU64::new(0) }; TARGETS_MAX],
            most_ns: [const { AtomicU64::new(0) }; TARGETS_MAX],
        }
    }

    /// The place in `file`, which whoever has it open shares. It lives as long as the process.
    pub fn shared(file: &File) -> io::Result<&'static FuzzPlace> {
        let n_bytes = size_of::<FuzzPlace>();
        file.set_len(n_bytes as u64)?;
        // SAFETY: a new mapping of a file of that length; it is never unmapped.
        let memory = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), n_bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is aligned, as long as a `Place`, zeroed, and only ever used through atomics.
        Ok(unsafe { &*memory.cast::<FuzzPlace>() })
    }

    pub fn begun(&self, target: usize) -> u64 {
        self.begun[target].load(Ordering::Relaxed)
    }

    /// The target whose input was being read, and the input's number.
    pub fn current(&self) -> Option<(usize, u64)> {
        let target = self.target.load(Ordering::Relaxed).checked_sub(1)? as usize;
        Some((target, self.begun(target) - 1))
    }

    pub fn most(&self, target: usize) -> (u64, u64) {
        let of = |list: &[AtomicU64]| list[target].load(Ordering::Relaxed);
        (of(&self.most_bytes), of(&self.most_ns))
    }
}

/// This process's place is `place` from now on.
pub fn share(place: &'static FuzzPlace) {
    PLACE.store(std::ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
}

pub fn place() -> &'static FuzzPlace {
    let place = PLACE.load(Ordering::Relaxed);
    // SAFETY: null or a `Place` that lives as long as the process.
    unsafe { place.as_ref() }.unwrap_or(&OWN)
}

/// Says why, and at which input, and ends the process; allocates nothing.
pub fn die(why: &str, status: i32) -> ! {
    let mut text = [0u8; 256];
    let mut n = 0;
    let mut put = |bytes: &[u8]| {
        for byte in bytes {
            if n < text.len() {
                text[n] = *byte;
                n += 1;
            }
        }
    };
    let digits = |mut value: u64, put: &mut dyn FnMut(&[u8])| {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        put(&digits[at..]);
    };
    put(b"fuzz: ");
    put(why.as_bytes());
    if let Some((target, number)) = place().current() {
        put(b", target ");
        digits(target as u64, &mut put);
        put(b", input ");
        digits(number, &mut put);
    }
    put(b"\n");
    // SAFETY: the bytes are valid for their length; `_exit` runs nothing of this process.
    unsafe {
        libc::write(2, text.as_ptr().cast(), n);
        libc::_exit(status)
    }
}
