//! Holes: runs of zeros in a file that take no room on a disk.
//!
//! What is written by [`append`] has holes wherever there are long runs of zeros, whether its source had a hole there, zeros on its
//! disk, or was sent by a network, which knows no holes. So nothing has to be said of holes on the way. A look at a piece ends at its
//! first byte that is not zero, which costs nothing beside writing it; a piece of zeros is found four times as fast as it is hashed.
//! Pieces are so large that a file of many small holes does not become many small extents.

use rustix::fs::{FallocateFlags, SeekFrom as Whence, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The length of the pieces that become a hole if all their bytes are zero.
pub const HOLE_BYTES_MIN: usize = 64 << 10;

/// So many bytes are added up before the sum is looked at.
const LOOK_BYTES: usize = 1 << 10;

/// Writes `bytes` at the end of `file`, which is its position. Pieces of zeros become holes.
pub fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let n_data = run_bytes(rest, |piece| !may_be_hole(piece));
        if n_data > 0 {
            file.write_all(&rest[..n_data])?;
        }
        rest = &rest[n_data..];
        let n_zeros = run_bytes(rest, may_be_hole);
        if n_zeros > 0 {
            skip(file, n_zeros as u64)?;
        }
        rest = &rest[n_zeros..];
    }
    Ok(())
}

/// Writes `bytes` to `file` at `at`, where the file has only zeros now, or ends.
pub fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut at = at;
    for piece in bytes.chunks(HOLE_BYTES_MIN) {
        if !may_be_hole(piece) {
            file.write_all_at(piece, at)?;
        }
        at += piece.len() as u64;
    }
    file.set_len(at.max(file.metadata()?.len()))
}

/// A new file as a writer: see [`append`].
pub struct Appending<'a>(pub &'a File);

impl Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        append(self.0, bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies all of `from` to the empty file `to`, with its holes. `false`: it was given up, as `wanted` said, which is asked every
/// `piece_bytes`.
pub fn copy(
    mut from: &File,
    mut to: &File,
    piece_bytes: u64,
    wanted: &mut dyn FnMut() -> bool,
) -> io::Result<bool> {
    let size_bytes = from.metadata()?.len();
    let mut at = 0;
    while at < size_bytes {
        // A file system that knows no holes has data everywhere.
        let begin = match seek(from, Whence::Data(at)) {
            Ok(begin) => begin,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = seek(from, Whence::Hole(begin)).unwrap_or(size_bytes).max(begin + 1);
        from.seek(SeekFrom::Start(begin))?;
        to.seek(SeekFrom::Start(begin))?;
        at = begin;
        while at < end {
            if !wanted() {
                return Ok(false);
            }
            match io::copy(&mut from.take(piece_bytes.min(end - at)), &mut to)? {
                0 => return Ok(true),
                n => at += n,
            }
        }
    }
    to.set_len(size_bytes.max(to.metadata()?.len()))?;
    Ok(true)
}

/// The number of bytes at the beginning that lie in whole pieces of which `is_wanted` holds.
fn run_bytes(bytes: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> usize {
    bytes.chunks(HOLE_BYTES_MIN).take_while(|piece| is_wanted(piece)).map(<[u8]>::len).sum()
}

fn may_be_hole(piece: &[u8]) -> bool {
    piece.len() == HOLE_BYTES_MIN
        && piece.chunks(LOOK_BYTES).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}

fn skip(mut file: &File, n_bytes: u64) -> io::Result<()> {
    let at = file.stream_position()?;
    file.set_len(at + n_bytes)?;
    // Room that was reserved for the file is given back. Where that fails, the file reads as zeros all the same.
    let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, n_bytes);
    file.seek(SeekFrom::Start(at + n_bytes)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn sparse() -> Vec<u8> {
        let mut bytes = vec![0; 4 << 20];
        bytes[0] = 1;
        bytes[(2 << 20) + 5] = 2;
        bytes.extend(b"end");
        bytes
    }

    fn disk_bytes(file: &File) -> u64 {
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn zeros_become_holes_and_read_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        for piece_bytes in [1000, 64 << 10, 256 << 10, 4 << 20, 5 << 20] {
            let file = File::options().write(true).create(true).truncate(true).open(&path).unwrap();
            for piece in sparse().chunks(piece_bytes) {
                append(&file, piece).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), sparse(), "{piece_bytes}");
            let is_long = piece_bytes >= HOLE_BYTES_MIN;
            assert_eq!(disk_bytes(&file) < 1 << 20, is_long, "{piece_bytes}: {} bytes", disk_bytes(&file));
        }
    }

    #[test]
    fn room_that_was_reserved_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserved");
        let file = File::create(&path).unwrap();
        let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, sparse().len() as u64);
        append(&file, &sparse()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), sparse());
        assert!(disk_bytes(&file) < 1 << 20, "{}", disk_bytes(&file));
    }

    #[test]
    fn a_copy_has_the_holes_of_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            File::options().read(true).write(true).create_new(true).open(dir.path().join(name)).unwrap()
        };
        for (name, bytes) in
            [("sparse", sparse()), ("small", b"some".to_vec()), ("empty", vec![]), ("hole", vec![0; 1 << 20])]
        {
            let (from, to) = (make(name), make(&format!("{name} copy")));
            append(&from, &bytes).unwrap();
            assert!(copy(&from, &to, 1 << 20, &mut || true).unwrap());
            assert_eq!(fs::read(dir.path().join(format!("{name} copy"))).unwrap(), bytes, "{name}");
            assert!(disk_bytes(&to) <= disk_bytes(&from) + 8192, "{name}");
        }
        let to = make("at");
        sparse()
            .chunks(256 << 10)
            .enumerate()
            .for_each(|(i, piece)| write_at(&to, piece, (i as u64) << 18).unwrap());
        assert_eq!(fs::read(dir.path().join("at")).unwrap(), sparse());
        assert!(disk_bytes(&to) < 1 << 20);
        let (from, to) = (make("wanted"), make("not"));
        append(&from, b"some").unwrap();
        assert!(!copy(&from, &to, 1, &mut || false).unwrap());
    }
}
