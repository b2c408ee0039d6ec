//! Small files that are written anew as a whole: whoever reads one sees the new content or the old one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes the file anew.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("tmp");
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, path)
}

/// The same; when it returns, the new content outlives a power cut.
pub fn replace_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("tmp");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(path.parent().expect("it lies in a directory"))?.sync_all()
}
