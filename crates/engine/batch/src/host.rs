//! Which nodes of a batch system a host is.

use crate::BatchNode;
use eyas_host::{host_name, names_of_host, short_of};
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};

/// The nodes that are on a host, by its names or its addresses. host : a name, a full name, or an address.
pub fn nodes_on(host: &str, nodes: &[BatchNode]) -> BTreeSet<String> {
    let mut own = vec![host.to_owned()];
    own.extend(short_of(host));
    let this = names_of_host(&host_name());
    if this.iter().any(|name| name == host) {
        own.extend(this);
    }
    let is_named = |node: &&BatchNode| node.names.iter().any(|name| own.contains(name));
    let named: BTreeSet<String> = nodes.iter().filter(is_named).map(|node| node.name.clone()).collect();
    if !named.is_empty() {
        return named;
    }
    let addresses = |name: &str| -> BTreeSet<IpAddr> {
        let found = (name, 0).to_socket_addrs().into_iter().flatten();
        found.map(|address| address.ip()).collect()
    };
    let wanted = addresses(host);
    let is_there = |node: &&BatchNode| node.names.iter().any(|name| !addresses(name).is_disjoint(&wanted));
    nodes.iter().filter(is_there).map(|node| node.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_any_of_its_hosts_names() {
        let node = |names: &[&str]| BatchNode {
            name: names[0].to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            takes_jobs: true,
            n_busy: 0,
        };
        let nodes = [node(&["n1"]), node(&["n2", "10.1.2.3"])];
        let on = |host: &str| nodes_on(host, &nodes).into_iter().collect::<Vec<_>>();
        assert_eq!(
            (on("n1"), on("n1.example.org"), on("10.1.2.3")),
            (vec!["n1".into()], vec!["n1".into()], vec!["n2".into()])
        );
        assert!(on("10.1.2.4").is_empty());
    }
}
