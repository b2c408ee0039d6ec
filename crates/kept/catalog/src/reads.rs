//! What readers have taken of the objects of a folder: lines of a file beside the objects.
//!
//! ```text
//! FOLDER/reads        DIGEST BYTES     one line for each object that a reader has finished with
//! ```
//!
//! Readers of a folder are processes of their own, so each appends what it has read, and no database is asked. Whoever looks after
//! the copies takes the file away and adds it up ([`take`]). The counts only say which objects are read much: a line that is lost,
//! because the file is full, cannot be written, or is taken at the same moment, does no harm.

use eyas_data::Digest;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of the file with which readers write no more lines, until somebody takes it away: about 57,000 objects.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Appends what was read.
pub(crate) fn append(file: &Path, read: &HashMap<Digest, u64>) {
    let text: String = read
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(digest, n_bytes)| format!("{digest} {n_bytes}\n"))
        .collect();
    if text.is_empty() {
        return;
    }
    // One write appends all lines together, whoever else writes. Without them, the objects count as not read.
    let _ = fs::OpenOptions::new().append(true).create(true).open(file).and_then(|mut to| {
        if to.metadata()?.len() < FILE_BYTES_MAX { to.write_all(text.as_bytes()) } else { Ok(()) }
    });
}

/// Takes the file away, by way of `taken`, and adds it up. What cannot be understood is left out.
///
/// # Errors
/// The file cannot be read or taken away.
pub(crate) fn take(file: &Path, taken: &Path) -> io::Result<HashMap<Digest, u64>> {
    let mut sums: HashMap<Digest, u64> = HashMap::new();
    match fs::rename(file, taken) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(sums),
        other => other?,
    }
    let text = fs::read(taken)?;
    fs::remove_file(taken)?;
    for line in String::from_utf8_lossy(&text).lines() {
        let read = line.split_once(' ').and_then(|(digest, n)| Some((digest.parse().ok()?, n.parse().ok()?)));
        if let Some((digest, n_bytes)) = read {
            let sum: &mut u64 = sums.entry(digest).or_default();
            *sum = sum.saturating_add(n_bytes);
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_added_up_and_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let (file, taken) = (dir.path().join("reads"), dir.path().join("taken"));
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        append(&file, &HashMap::from([(a, 5), (b, 0)]));
        append(&file, &HashMap::from([(a, 7), (b, u64::MAX)]));
        append(&file, &HashMap::from([(b, 1)]));
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"half a li").unwrap();
        assert_eq!(take(&file, &taken).unwrap(), HashMap::from([(a, 12), (b, u64::MAX)]));
        assert!(take(&file, &taken).unwrap().is_empty());
        // A file that nobody takes away does not grow for ever.
        fs::write(&file, vec![b'\n'; FILE_BYTES_MAX as usize]).unwrap();
        append(&file, &HashMap::from([(a, 5)]));
        assert!(take(&file, &taken).unwrap().is_empty());
        append(&dir.path().join("no/such/folder"), &HashMap::from([(a, 5)]));
    }
}
