//! The objects that a node holds on disk, and how nodes fetch them from each other.
//!
//! Input: instructions of the executor ("reserve", "fetch these from there", "remove that").
//! Output: files in the cache directory, bytes on the data plane, and typed errors.
//!
//! * [`store`]: the cache directory. A hard budget, BLAKE3 while bytes stream, entries that appear by rename.
//! * [`peer`]: the data plane. Every executor serves its store over TCP to whoever has a ticket.
//! * [`bench`]: the rates of both, measured next to what the machine can do.
//!
//! Everything here blocks and may be called from many threads. There is no async runtime, and no clock except
//! the one by which tickets expire.
//!
//! Not here: any decision. Which object to evict, where to fetch from and when is decided in `eyas-core`;
//! this crate refuses what would break a promise (budget, digest, ticket), as a second line of defence.

pub mod bench;
mod digest;
mod error;
mod groups;
mod halt;
pub mod peer;
pub mod store;

pub use digest::{Digest, DigestParseError};
pub use error::{Error, ErrorKind, Result, Status};
pub use groups::{BLOCK_BYTES, GROUP_BYTES, Grouping, Groups, n_groups, values_beside};
pub use halt::Halt;
pub use peer::{
    ClientTls, FetchEnd, FetchItem, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions, Ticket,
    TicketKey,
};
pub use store::{InMemory, Incoming, LinkAbility, Reservation, Store, Stored, Usage};

/// Bytes from the operating system that nobody can guess; at most 256.
pub fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the buffer is as long as said and lives through the call.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) } {
        n if n == N as isize => Ok(bytes),
        _ => Err(std::io::Error::last_os_error()),
    }
}
