//! Unpacks archives into directory trees.
//!
//! Nothing is written outside the tree: names that lead out of it are refused, and so are names below a symbolic link.
//! A symbolic link itself is unpacked as it is, wherever it leads. The permissions to read and to execute and the times
//! are kept. Owners, devices and pipes are not kept.

use eyas_data::Halt;
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path};

/// How the bytes of an archive begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Plain,
    Gzip,
    Zstd,
    Zip,
}

impl Kind {
    pub fn of(bytes: &mut impl BufRead) -> io::Result<Kind> {
        let begin = bytes.fill_buf()?;
        match begin {
            [0x1f, 0x8b, ..] => Ok(Kind::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Kind::Zstd),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Ok(Kind::Zip),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(not_supported("xz")),
            [b'B', b'Z', b'h', ..] => Err(not_supported("bzip2")),
            [] => Err(damaged("it is empty")),
            _ => Ok(Kind::Plain),
        }
    }
}

fn not_supported(what: &str) -> io::Error {
    damaged(&format!("it is compressed with {what}, which eyas does not know; compress it with gzip or zstd"))
}

pub(super) fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Makes the tree of a tar archive in the folder `into`.
pub(super) fn untar(bytes: impl BufRead, kind: Kind, into: &Path, halt: &Halt) -> io::Result<()> {
    with_plain(bytes, kind, |bytes| untar_plain(bytes, into, halt))
}

/// Calls `read` with the bytes of a tar archive that may be compressed.
pub(super) fn with_plain(
    mut bytes: impl BufRead,
    kind: Kind,
    read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    match kind {
        Kind::Plain => read(&mut bytes),
        Kind::Gzip => read(&mut flate2::bufread::MultiGzDecoder::new(bytes)),
        Kind::Zstd => read(&mut zstd::stream::read::Decoder::with_buffer(bytes)?),
        Kind::Zip => Err(damaged("it is a zip archive; say `zip`")),
    }
}

fn untar_plain(bytes: &mut dyn Read, into: &Path, halt: &Halt) -> io::Result<()> {
    let mut archive = tar::Archive::new(bytes);
    let mut n_entries = 0u64;
    for entry in archive.entries()? {
        halt.check()?;
        let mut entry = entry?;
        n_entries += 1;
        unpack_entry(&mut entry, into)?;
    }
    if n_entries == 0 {
        return Err(damaged("there is nothing in it"));
    }
    // The checksum of what it is compressed with stands behind the archive's own end.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

/// Puts what an archive has into the folder `into`, unless it is a device or a pipe.
pub(super) fn unpack_entry<R: Read>(entry: &mut tar::Entry<'_, R>, into: &Path) -> io::Result<()> {
    let kind = entry.header().entry_type();
    if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
        return Ok(());
    }
    if !entry.unpack_in(into)? {
        let name = entry.path_bytes().into_owned();
        return Err(damaged(&format!("its entry {} leads out of it", eyas_text::shown_bytes(&name))));
    }
    if kind.is_dir() {
        // What comes behind it has to be put in, whatever rights the archive gives.
        let path = into.join(strip_root(&entry.path()?));
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

fn strip_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Makes the tree of a zip archive in the folder `into`.
pub(super) fn unzip(bytes: File, into: &Path, halt: &Halt) -> io::Result<()> {
    let mut archive = zip::ZipArchive::new(io::BufReader::new(bytes))?;
    for i in 0..archive.len() {
        halt.check()?;
        let mut entry = archive.by_index(i)?;
        let shown = eyas_text::shown(&entry.name().unwrap_or_default()).to_string();
        let Some(name) = entry.enclosed_name() else {
            return Err(damaged(&format!("its entry {shown} leads out of it")));
        };
        if entry.is_dir() {
            make_directories(into, &name, &shown)?;
            continue;
        }
        if let Some(above) = name.parent() {
            make_directories(into, above, &shown)?;
        }
        let path = into.join(&name);
        if entry.is_symlink() {
            let mut target = vec![];
            entry.by_ref().take(4096).read_to_end(&mut target)?;
            symlink(std::ffi::OsStr::from_bytes(&target), &path)?;
            continue;
        }
        let mode = 0o600 | entry.unix_mode().unwrap_or(0) & 0o111;
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        io::copy(&mut entry, &mut file)?;
    }
    match archive.is_empty() {
        true => Err(damaged("there is nothing in it")),
        false => Ok(()),
    }
}

/// Makes the directories of `name`, none of which may be a link.
fn make_directories(into: &Path, name: &Path, shown: &str) -> io::Result<()> {
    let mut path = into.to_path_buf();
    for part in name.components() {
        let Component::Normal(part) = part else { continue };
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => {
                return Err(damaged(&format!("its entry {shown} lies below something that is no directory")));
            }
            Err(_) => fs::create_dir(&path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A tar archive with one entry of this name and kind.
    fn tar_of(name: &str, kind: tar::EntryType, link: &str, more: Option<(&str, &[u8])>) -> Vec<u8> {
        let mut archive = tar::Builder::new(vec![]);
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o755);
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        // By hand, as the builder refuses names that lead out.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, io::empty()).unwrap();
        if let Some((name, content)) = more {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, name, content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn untar_all(bytes: &[u8], into: &Path) -> io::Result<()> {
        let mut bytes = io::BufReader::new(bytes);
        let kind = Kind::of(&mut bytes)?;
        untar(bytes, kind, into, &Halt::default())
    }

    #[test]
    fn nothing_is_written_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (into, outside) = (dir.path().join("into"), dir.path().join("outside"));
        fs::create_dir(&into).unwrap();
        fs::create_dir(&outside).unwrap();
        let file = tar::EntryType::Regular;
        assert!(untar_all(&tar_of("../x", file, "", None), &into).is_err());
        assert!(untar_all(&tar_of("a/../../x", file, "", None), &into).is_err());
        let through = tar_of("d", tar::EntryType::Symlink, outside.to_str().unwrap(), Some(("d/x", b"out")));
        assert!(untar_all(&through, &into).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn the_end_of_a_compressed_archive_counts() {
        let dir = tempfile::tempdir().unwrap();
        let tar = tar_of("d/", tar::EntryType::Directory, "", Some(("d/run", b"#!/bin/sh\n")));
        let mut gz = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        gz.write_all(&tar).unwrap();
        let gz = gz.finish().unwrap();
        let zst = zstd::stream::encode_all(&tar[..], 1).unwrap();
        for (i, whole) in [&tar, &gz, &zst].into_iter().enumerate() {
            let into = dir.path().join(i.to_string());
            fs::create_dir(&into).unwrap();
            untar_all(whole, &into).unwrap();
            assert_eq!(fs::metadata(into.join("d/run")).unwrap().permissions().mode() & 0o111, 0o111);
        }
        let mut torn = gz.clone();
        torn.truncate(gz.len() - 4);
        let mut flipped = gz.clone();
        *flipped.last_mut().unwrap() ^= 1;
        *flipped.iter_mut().rev().nth(5).unwrap() ^= 1;
        for bad in [torn, flipped, b"no archive at all".to_vec(), vec![]] {
            let into = tempfile::tempdir().unwrap();
            assert!(untar_all(&bad, into.path()).is_err());
        }
        let xz = untar_all(b"\xfd7zXZ\0", dir.path()).unwrap_err().to_string();
        assert!(xz.contains("compressed with xz"), "{xz}");
    }
}
