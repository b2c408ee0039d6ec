//! Whether the host that a store's address names is this machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a name is looked up. A name that is not found by then is taken for another machine's until this process ends.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);

/// This machine, by all that others may call it.
///
/// A store is registered under an address, and a machine has many: its name, the full name, an address of each interface. So the
/// addresses are compared, and a name stands for those that it leads to.
#[derive(Debug)]
pub struct OwnHost {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    looked_up: Mutex<BTreeMap<String, bool>>,
}

impl OwnHost {
    /// names : names and addresses of this machine, its own name first. Addresses that every machine has (loopback) are none of them:
    /// a tunnel to another machine has them, too.
    pub fn new(names: Vec<String>) -> OwnHost {
        let addresses = names.iter().filter_map(|name| name.parse().ok()).collect();
        OwnHost { names, addresses, looked_up: Mutex::default() }
    }

    /// The name that this machine gives itself.
    pub fn name(&self) -> Option<&String> {
        self.names.first()
    }

    /// Whether `host`, a name or an address, is this machine. A name that is not one of ours is looked up once, for a second at most.
    pub fn is(&self, host: &str) -> bool {
        if self.names.iter().any(|own| own.eq_ignore_ascii_case(host)) {
            return true;
        }
        if let Ok(address) = host.parse() {
            return self.addresses.contains(&address);
        }
        let mut looked_up = self.looked_up.lock().unwrap_or_else(PoisonError::into_inner);
        *looked_up.entry(host.to_owned()).or_insert_with(|| {
            addresses_of(host.to_owned()).iter().any(|address| self.addresses.contains(address))
        })
    }
}

/// The addresses of a host; none where nobody answers in time.
fn addresses_of(host: String) -> Vec<IpAddr> {
    let (said, heard) = channel();
    // A resolver takes as long as it wants and cannot be stopped, so another thread waits for it.
    thread::spawn(move || {
        let found = (host.as_str(), 0).to_socket_addrs();
        _ = said.send(found.map_or(vec![], |all| all.map(|at| at.ip()).collect()));
    });
    heard.recv_timeout(LOOK_UP_MAX).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_each_name_and_each_address_in_any_writing() {
        let own = OwnHost::new(["n1", "n1.example.org", "10.1.2.3", "fd00::3"].map(str::to_owned).to_vec());
        for same in ["n1", "N1.Example.org", "10.1.2.3", "fd00::3", "fd00:0:0::3", "FD00::3"] {
            assert!(own.is(same), "{same}");
        }
        for other in ["n2", "10.1.2.4", "fd00::4", "127.0.0.1", "127.0.1.1", "::1", "localhost", ""] {
            assert!(!own.is(other), "{other}");
        }
        assert_eq!(own.name().unwrap(), "n1");
    }

    #[test]
    fn a_name_stands_for_what_it_leads_to() {
        // No machine would call itself so; it stands for an address that a name leads to.
        let own = OwnHost::new(vec!["n1".into(), "127.0.0.1".into()]);
        assert!(own.is("localhost") && own.is("localhost"));
        assert!(!own.is("no-such-host.invalid"));
    }
}
