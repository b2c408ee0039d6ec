//! The name of this machine, and how much memory it has.

/// This machine's name.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length; the call writes at most that and ends it with NUL.
    let ok = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } == 0;
    let end = name.iter().position(|b| *b == 0).unwrap_or(0);
    match std::str::from_utf8(&name[..end]) {
        Ok(text) if ok && !text.is_empty() => text.to_string(),
        _ => "localhost".to_string(),
    }
}

/// The names and addresses by which others may know this machine, beginning with `name`.
pub fn names_of_host(name: &str) -> Vec<String> {
    let host = host_name();
    let mut names = vec![name.to_string(), host.clone()];
    names.extend(host.split_once('.').map(|(short, _)| short.to_string()));
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), 0)).into_iter().flatten();
    names.extend(addresses.map(|at| at.ip()).filter(|ip| !ip.is_loopback()).map(|ip| ip.to_string()));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// Memory of this machine in bytes.
pub fn memory_bytes() -> u64 {
    // SAFETY: plain queries without arguments in memory.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(0) as u64).saturating_mul(size.max(0) as u64)
}
