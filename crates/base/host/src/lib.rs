//! What this machine is called, by which names and addresses others know it, and where its programs are.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// This machine's name.
pub fn host_name() -> String {
    match rustix::system::uname().nodename().to_str() {
        Ok(name) if !name.is_empty() => name.to_string(),
        _ => "localhost".to_string(),
    }
}

/// The names and addresses by which others may know this machine, beginning with `name`. Its name may lead to a loopback address only,
/// as in Debian's hosts file, so the addresses of its interfaces are among them; those that every machine has are not.
pub fn names_of_host(name: &str) -> Vec<String> {
    let host = host_name();
    let mut names = vec![name.to_string(), host.clone()];
    names.extend(short_of(&host));
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let found = (host.as_str(), 0).to_socket_addrs().into_iter().flatten().map(|at| at.ip());
    let (routes, list) = (read("/proc/net/fib_trie"), read("/proc/net/if_inet6"));
    let own = own_v4(&routes).chain(own_v6(&list));
    let all: Vec<IpAddr> = found.chain(own).collect();
    let is_of_all = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    };
    names.extend(all.iter().filter(|address| !is_of_all(address)).map(IpAddr::to_string));
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// Where programs are looked for if the variable `PATH` is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The files that `name` may mean as a program of this process, the one that would be started first. See [`programs_in`].
pub fn programs<N: AsRef<OsStr>>(name: N) -> impl Iterator<Item = PathBuf> + use<N> {
    programs_in(&std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into()), name)
}

/// The files that `name` may mean as a program, in the order of the folders of `path`, which is a value of the variable `PATH`. Each is a
/// regular file that may be executed. As for shells, an empty folder is the working folder, and a name with a slash is itself the file.
pub fn programs_in<N: AsRef<OsStr>>(path: &OsStr, name: N) -> impl Iterator<Item = PathBuf> + use<N> {
    let name = Path::new(name.as_ref());
    let places: Vec<PathBuf> = match name.as_os_str().as_encoded_bytes() {
        [] => vec![],
        bytes if bytes.contains(&b'/') => vec![name.into()],
        // The empty path with a name is the name alone.
        _ => std::env::split_paths(path).map(|folder| folder.join(name)).collect(),
    };
    places.into_iter().filter(|place| is_program(place))
}

fn is_program(place: &Path) -> bool {
    place.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The name of a host without its domain; `None`: it has none, or is an address.
pub fn short_of(host: &str) -> Option<String> {
    let (short, _) = host.split_once('.')?;
    host.parse::<IpAddr>().is_err().then(|| short.to_owned())
}

/// The addresses of this machine in the kernel's table of routes, in which each stands on the line before `/32 host LOCAL`.
fn own_v4(routes: &str) -> impl Iterator<Item = IpAddr> {
    routes.lines().zip(routes.lines().skip(1)).filter_map(|(address, kind)| {
        let address: Ipv4Addr = address.trim().strip_prefix("|-- ")?.parse().ok()?;
        (kind.trim() == "/32 host LOCAL").then_some(IpAddr::from(address))
    })
}

/// The addresses in the kernel's list of those of version 6, each in 32 digits at the start of its line.
fn own_v6(list: &str) -> impl Iterator<Item = IpAddr> {
    list.lines().filter_map(|line| {
        let digits = line.get(..32)?;
        Some(IpAddr::from(Ipv6Addr::from_bits(u128::from_str_radix(digits, 16).ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_shells_find_them() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (first, second) = (make("b/tool", 0o755), make("c/tool", 0o700));
        make("a/tool", 0o644);
        std::fs::create_dir_all(dir.path().join("d/tool")).unwrap();
        let folders = ["none", "a", "d", "b", "c"].map(|name| dir.path().join(name));
        let path = std::env::join_paths(folders).unwrap();
        let found = |path: &OsStr, name: &OsStr| programs_in(path, name).collect::<Vec<_>>();
        assert_eq!(found(&path, "tool".as_ref()), [first.clone(), second]);
        assert_eq!(found(&path, "".as_ref()), [] as [PathBuf; 0]);
        assert_eq!(found("/nowhere".as_ref(), first.as_os_str()), [first]);
        assert_eq!(found(&path, dir.path().join("a/tool").as_ref()), [] as [PathBuf; 0]);
        std::env::set_current_dir(dir.path().join("b")).unwrap();
        assert_eq!(found(":/nowhere".as_ref(), "tool".as_ref()), [PathBuf::from("tool")]);
        std::env::set_current_dir("/").unwrap();
    }

    #[test]
    fn own_addresses_are_those_that_the_kernel_calls_so() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.93.8.0\n        \
                      /24 link UNICAST\n     |-- 10.93.8.10\n        /32 host LOCAL\n     |-- 10.93.8.255\n        /32 link BROADCAST\n";
        assert_eq!(own_v4(routes).collect::<Vec<_>>(), [IpAddr::from([10, 93, 8, 10])]);
        let list = "fd000000000000000000000000000003 02 40 00 80 eth0\nnonsense\n";
        assert_eq!(own_v6(list).collect::<Vec<_>>(), ["fd00::3".parse::<IpAddr>().unwrap()]);
    }
}
