//! Where a service (a dispatcher, a store) listens, and the addresses by which others reach it.
//!
//! The port of a service outlives its process, so that executors find a dispatcher that was started again where it was.
//! Nodes of other machines learn an address from a file that somebody has to write anew, over a file system that may show it late. A
//! restarted dispatcher gives nothing out for [`eyas_core::dispatcher::RETURN_GRACE_NS`]; an executor that finds it only after
//! that may see its tasks begun elsewhere.

use eyas_host::host_name;
use eyas_text::shown_path;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use tokio::net::TcpListener;

const PORT_FILE: &str = "port";

/// Another spelling of an address of which this machine has no such interface: some have a loopback for IPv6 alone.
pub fn by_ipv6(address: &str, error: &io::Error) -> Option<String> {
    let port = address.strip_prefix("127.0.0.1:")?;
    (error.kind() == io::ErrorKind::AddrNotAvailable).then(|| format!("[::1]:{port}"))
}

/// Listens on `host:port`, and notes the port in `dir` for the next process. Port 0 is the one of the process before, or any.
pub async fn listen(address: &str, dir: &Path) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = match earlier_listener(address, dir).await {
        Some(listener) => listener,
        None => match TcpListener::bind(address).await {
            Err(error) => match by_ipv6(address, &error) {
                Some(other) => match earlier_listener(&other, dir).await {
                    Some(listener) => listener,
                    None => TcpListener::bind(other).await?,
                },
                None => return Err(error),
            },
            Ok(listener) => listener,
        },
    };
    let bound = listener.local_addr()?;
    keep_port(dir, bound.port());
    Ok((listener, bound))
}

/// Listens on the port of the process before, where any port will do and that one is free.
async fn earlier_listener(address: &str, dir: &Path) -> Option<TcpListener> {
    let host = address.strip_suffix(":0")?;
    let kept: u16 = std::fs::read_to_string(dir.join(PORT_FILE)).ok()?.trim().parse().ok()?;
    TcpListener::bind(format!("{host}:{kept}")).await.ok()
}

fn keep_port(dir: &Path, port: u16) {
    // Without the file the next process takes another port, which executors learn from the join file.
    let path = dir.join(PORT_FILE);
    if let Err(e) = std::fs::write(&path, format!("{port}\n")) {
        eyas_text::say!("eyas: cannot write {}: {e}", shown_path(&path));
    }
}

/// An address that others can connect to: a wildcard address is none.
pub fn advertised(bound: SocketAddr) -> String {
    match bound.ip().is_unspecified() {
        true => format!("{}:{}", host_name(), bound.port()),
        false => bound.to_string(),
    }
}

/// The address for processes of this machine.
pub fn here(mut bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() {
        bound.set_ip(match bound {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    bound
}
