//! What is mounted: whether a path is a mount point, and on which hosts the files of GlusterFS and MooseFS lie.
//!
//! These two are made of the disks of many hosts, and each host may mount them. `/proc/self/mountinfo` says which mounts of this process
//! are such ones, and a file belongs to the mount with the number of its device.
//!
//! * GlusterFS answers in an extended attribute, with the host name of each brick that has the file;
//! * MooseFS answers through its tool `mfsfileinfo`, with the address of each chunk server that has a copy of a chunk.
//!
//! Not here: mounts that come after the question which there are ([`beginnings`]); files below symbolic links to such a mount.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::{Location, PartPlace};
use eyas_folder::place_of_mount;
use std::ffi::CString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const PLACES: &str = "find the hosts of";
/// Every user may read it. The one in the documentation of GlusterFS has `trusted.` before it and is for root only.
const PATHINFO: &std::ffi::CStr = c"glusterfs.pathinfo";
/// The kernel's longest value of an extended attribute.
const XATTR_BYTES_MAX: usize = 65_536;
/// The size of all chunks of MooseFS but the last one of a file.
const CHUNK_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Gluster,
    Moose,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// As `stat` numbers it.
    device: u64,
    point: PathBuf,
    system: System,
}

/// What the paths of all files begin with that lie on such a mount of this process.
pub(crate) fn beginnings() -> Vec<String> {
    let mounts = mounts().unwrap_or_default().into_iter();
    let points = mounts.filter_map(|mount| mount.point.into_os_string().into_string().ok());
    points.map(|point| format!("{}/", point.trim_end_matches('/'))).collect()
}

/// See [`crate::Home::places`]. An empty list: the file lies on no such mount.
pub(crate) fn places(path: &Path, location: &Location) -> Result<Vec<PartPlace>> {
    let failed = |error| Error::from_io(PLACES, location, error);
    let found = fs::metadata(path).map_err(failed)?;
    let mounts = mounts().map_err(failed)?;
    match mounts.iter().find(|mount| mount.device == found.dev()) {
        Some(mount) if found.is_file() => match mount.system {
            System::Gluster => places_in_gluster(path, &found).map_err(failed),
            System::Moose => places_in_moose(path, &found, location),
        },
        _ => Ok(vec![]),
    }
}

/// Whether a file system, or a part of one, is mounted right at `path` for this process. Links above it are followed.
pub(crate) fn is_point(path: &Path) -> bool {
    let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return true };
    let (Ok(above), Ok(mounts)) = (fs::canonicalize(above), fs::read("/proc/thread-self/mountinfo")) else {
        return false;
    };
    let real = above.join(name);
    let point = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(place_of_mount);
    mounts.split(|byte| *byte == b'\n').filter_map(point).any(|point| point == real)
}

fn mounts() -> io::Result<Vec<Mount>> {
    Ok(mounts_in(&fs::read("/proc/self/mountinfo")?))
}

/// The mounts in the text of `/proc/PID/mountinfo` (proc(5)).
fn mounts_in(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let system = match (kind.next()?, kind.next()?) {
            ("fuse.glusterfs", _) => System::Gluster,
            ("fuse" | "fuse.mfs" | "fuse.moosefs", source) if source.starts_with(r"mfs\043") => System::Moose,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
        let point = place_of_mount(fields.nth(1)?.as_bytes());
        Some(Mount { device, point, system })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

fn places_in_gluster(path: &Path, found: &Metadata) -> io::Result<Vec<PartPlace>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut value = vec![0u8; XATTR_BYTES_MAX];
    // SAFETY: both names end in a NUL byte, and `value` has room for as many bytes as the call is told.
    let n = unsafe {
        libc::getxattr(name.as_ptr(), PATHINFO.as_ptr(), value.as_mut_ptr().cast(), XATTR_BYTES_MAX)
    };
    value.truncate(usize::try_from(n).map_err(|_| io::Error::last_os_error())?);
    // Users may give files any name, and the answer repeats it.
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(bricks_in(&String::from_utf8_lossy(&value), &file, found.len()))
}

/// The places in an answer of GlusterFS about a file of this name, such as
/// `(<REPLICATE:v-replicate-0> <POSIX(/b):h1:/b/name> <POSIX(/b):h2:/b/name>)`.
fn bricks_in(answer: &str, name: &str, size_bytes: u64) -> Vec<PartPlace> {
    let mut bricks = answer.split("<POSIX(");
    // The bricks of a dispersed volume have pieces of stripes, so no host has a file.
    let is_dispersed = bricks.next().is_some_and(|before| before.contains("<EC:"));
    let host = |brick: &str| {
        let (root, rest) = brick.split_once("):")?;
        let (host, path) = rest.split_once(':')?;
        let is_whole = path.trim_end_matches([')', ' ', '\0']).strip_suffix('>')?.ends_with(name);
        (path.starts_with(root) && is_whole).then(|| host.to_owned())
    };
    // An answer that is not understood to its end says nothing.
    match bricks.map(host).collect::<Option<Vec<_>>>() {
        Some(hosts) if !is_dispersed => vec![PartPlace { range: 0..size_bytes, hosts }],
        _ => vec![],
    }
}

fn places_in_moose(path: &Path, found: &Metadata, location: &Location) -> Result<Vec<PartPlace>> {
    let mut command = Command::new("mfsfileinfo");
    let out = crate::tied::output(command.arg(path));
    let out = out.map_err(|error| {
        Error::from_io(PLACES, location, error).with_context("program", "mfsfileinfo of MooseFS")
    })?;
    if !out.status.success() {
        let reason = format!("mfsfileinfo ended with {}", out.status);
        return Err(Error::new(ErrorKind::Io, Status::Temporary, PLACES, location, reason));
    }
    Ok(chunks_in(&String::from_utf8_lossy(&out.stdout), found.len()))
}

/// The places in what `mfsfileinfo` prints of one file.
fn chunks_in(text: &str, size_bytes: u64) -> Vec<PartPlace> {
    let mut places: Vec<PartPlace> = vec![];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("\tchunk ") {
            let number = rest.split_once(':').and_then(|(number, _)| number.parse::<u64>().ok());
            let Some(start) = number.and_then(|number| number.checked_mul(CHUNK_BYTES)) else { continue };
            let range = start.min(size_bytes)..start.saturating_add(CHUNK_BYTES).min(size_bytes);
            places.push(PartPlace { range, hosts: vec![] });
        } else if let (Some(place), Some(copy)) = (places.last_mut(), line.strip_prefix("\t\tcopy "))
            && let Some(at) = copy.split_once(": ").and_then(|(_, at)| at.strip_suffix("(status:VALID)"))
            && let Some((host, _port)) = at.trim().rsplit_once(':')
        {
            place.hosts.push(host.to_owned());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(range: std::ops::Range<u64>, hosts: &[&str]) -> PartPlace {
        PartPlace { range, hosts: hosts.iter().map(|host| (*host).to_owned()).collect() }
    }

    #[test]
    fn only_mounts_that_know_places_count() {
        let text = br"29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
132 102 0:39 / /mnt/a\040b rw,relatime - fuse.glusterfs 10.0.0.1:/gv rw,user_id=0
320 163 0:42 / /m rw,nosuid,nodev - fuse mfs\04310.0.0.1:9421 rw,user_id=0
321 163 0:43 / /n rw - fuse rclone rw
";
        let mount = |minor, point: &str, system| Mount {
            device: libc::makedev(0, minor),
            point: point.into(),
            system,
        };
        let expect = [mount(39, "/mnt/a b", System::Gluster), mount(42, "/m", System::Moose)];
        assert_eq!(mounts_in(text), expect);
    }

    /// The first two are answers of GlusterFS 10.3.
    #[test]
    fn bricks_are_found() {
        let plain = "(<DISTRIBUTE:gv-dht> <POSIX(/b/g1):g1:/b/g1/d/a b > (<x>) ";
        assert_eq!(bricks_in(plain, "a b > (<x", 9), [place(0..9, &["g1"])]);
        let two = "(<REPLICATE:rv-replicate-0> <POSIX(/b/r):g2:/b/r/x> <POSIX(/b/r):g1:/b/r/x>) ";
        assert_eq!(bricks_in(two, "x", 9), [place(0..9, &["g2", "g1"])]);
        let pieces = "(<EC:ev-disperse-0> <POSIX(/b):g1:/b/x> <POSIX(/b):g2:/b/x> <POSIX(/b):g3:/b/x>)";
        assert_eq!(bricks_in(pieces, "x", 10), []);
        let lies = "(<DISTRIBUTE:gv-dht> <POSIX(/b):g1:/b/<POSIX(/c):g2:/c/x>)";
        assert_eq!(bricks_in(lies, "x", 9), []);
    }

    /// What `mfsfileinfo` 3.0.117 prints.
    #[test]
    fn chunks_are_found() {
        let text = "/m/f1:\n\tchunk 0: 0000000000000001_00000001 / (id:1 ver:1)\n\t\tcopy 1: 10.0.0.2:9422 (status:VALID)\n\
                    \t\tcopy 2: 10.0.0.4:9422 (status:WRONG VERSION)\n\
                    \tchunk 1: 0000000000000002_00000001 / (id:2 ver:1)\n\t\tcopy 1: 10.0.0.2:9422 (status:VALID)\n\
                    \t\tcopy 2: 10.0.0.3:9422 (status:VALID)\n";
        let expect =
            [place(0..CHUNK_BYTES, &["10.0.0.2"]), place(CHUNK_BYTES..70_000_000, &["10.0.0.2", "10.0.0.3"])];
        assert_eq!(chunks_in(text, 70_000_000), expect);
        assert_eq!(chunks_in("/m/empty:\n\tno chunks - empty file\n", 0), []);
    }
}
