//! Bytes that are copied and hashed.

use eyas_data::{Digest, Grouping, Groups};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes that are read at once: several whole groups.
pub(crate) const PIECE: usize = 256 * 1024;

/// Copies and hashes; returns the digest and how many bytes there were.
pub(crate) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(Digest, u64)> {
    copy_with(from, to, &mut vec![0; PIECE])
}

pub(crate) fn copy_with(
    from: &mut dyn Read,
    to: &mut dyn Write,
    piece: &mut [u8],
) -> io::Result<(Digest, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut size = 0;
    loop {
        match from.read(piece) {
            Ok(0) => return Ok((Digest(*hasher.finalize().as_bytes()), size)),
            Ok(n) => {
                hasher.update(&piece[..n]);
                to.write_all(&piece[..n])?;
                size += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The same, and the groups of what was copied.
pub(crate) fn copy_grouped(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<Groups> {
    let mut piece = vec![0; PIECE];
    let mut grouping = Grouping::default();
    loop {
        let mut n = 0;
        while n < piece.len() {
            match from.read(&mut piece[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let are_last = n < piece.len();
        grouping.add(&piece[..n], are_last);
        to.write_all(&piece[..n])?;
        if are_last {
            return Ok(grouping.end());
        }
    }
}

/// A name for what is being written, in the same directory, so that a rename puts it into its place.
pub fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let short: String = name.chars().take(40).collect();
    target.with_file_name(format!(".{short}.{}.part", std::process::id()))
}
