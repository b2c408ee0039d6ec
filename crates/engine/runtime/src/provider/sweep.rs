//! Folders with the key of clusters that are dead: see [`super::share`].
//!
//! The folder of a cluster is removed when its provider ends. If the dispatcher and the provider were both killed, the folder
//! stays, and whoever starts a cluster next on that machine removes it. A cluster counts as dead only if all of this holds:
//!
//! - the folder says that both ran on this machine: it has this machine's name, its boot id and its namespace of processes;
//! - neither the dispatcher nor the provider that were last in its directory are alive;
//! - nobody listens at its address;
//! - nobody is starting it at this moment.
//!
//! A cluster that is started again after that gets a new folder, and the scripts of blocks that still wait in a queue are
//! written again.

use super::share::Share;
use crate::locks::{dispatcher_lock, names_living, provider_lock, start_lock};
use eyas_host::host_name;
use eyas_wire::identity::Join;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the folder of each cluster.
const OWNER: &str = "owner.json";
/// How long an address may take to refuse.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// Where the head of a cluster is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Owner {
    machine: String,
    /// The directory of the first dispatcher.
    dispatcher_dir: PathBuf,
}

/// This machine, as far as numbers of processes mean the same: in two containers they do not.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let numbers = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {} {}", host_name(), id.trim(), numbers.display())
}

/// Writes into the folder where the head of its cluster is.
pub fn claim(share: &Share, dispatcher_dir: &Path) -> std::io::Result<()> {
    let owner = Owner { machine: machine(), dispatcher_dir: dispatcher_dir.into() };
    share.write(OWNER, &serde_json::to_vec(&owner)?, 0o600)
}

/// Removes the folders of dead clusters in `state`, the user's folder for state. Gives the clusters.
pub fn sweep_shares(state: &Path) -> Vec<String> {
    let mut swept = vec![];
    for entry in std::fs::read_dir(Share::all_in(state)).into_iter().flatten().flatten() {
        let Ok(cluster) = entry.file_name().into_string() else { continue };
        let share = Share::of(state, &cluster);
        let owner = std::fs::read(share.dir().join(OWNER)).ok();
        let owner = owner.and_then(|text| serde_json::from_slice::<Owner>(&text).ok());
        let Some(owner) = owner.filter(|owner| owner.machine == machine()) else { continue };
        let dir = &owner.dispatcher_dir;
        // While it is held here, nobody starts the cluster. The directory itself may be gone.
        let lock = File::options().write(true).open(start_lock(dir)).ok();
        let is_being_started = lock.as_ref().is_some_and(|lock| lock.try_lock().is_err());
        let lives = names_living(&dispatcher_lock(dir)) || names_living(&provider_lock(dir));
        if !is_being_started && !lives && !is_listened_to(dir, &share.join()) {
            share.remove();
            swept.push(cluster);
        }
    }
    swept
}

/// Whether somebody may listen at the cluster's address.
fn is_listened_to(dispatcher_dir: &Path, for_nodes: &Path) -> bool {
    // The dispatcher's own file, which one that was killed leaves behind, has the address for this machine.
    let own = Join::read(&dispatcher_dir.join("join.json"));
    let Ok(join) = own.or_else(|_| Join::read(for_nodes)) else { return false };
    let is_refused = |at| {
        let tried = TcpStream::connect_timeout(&at, REFUSAL_MAX);
        tried.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    match join.address_here.as_ref().unwrap_or(&join.address).to_socket_addrs() {
        Ok(mut all) => all.any(|at| !is_refused(at)),
        // A name that nobody knows any more, or not at this moment.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_of_a_cluster_that_is_surely_dead_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let make = |cluster: &str, machine: &str, pid: Option<u32>, lock_of: &str| {
            let head = dir.path().join(cluster);
            std::fs::create_dir_all(head.join("journal")).unwrap();
            if let Some(pid) = pid {
                std::fs::write(head.join(lock_of), format!("{pid}\n")).unwrap();
            }
            let share = Share::of(&state, cluster);
            std::fs::create_dir_all(share.dir()).unwrap();
            let owner = Owner { machine: machine.into(), dispatcher_dir: head.clone() };
            share.write(OWNER, &serde_json::to_vec(&owner).unwrap(), 0o600).unwrap();
            head
        };
        let (here, own) = (machine(), std::process::id());
        make("dead", &here, None, "");
        make("elsewhere", "other 7 pid:[1]", None, "");
        make("dispatcher", &here, Some(own), "journal/lock");
        make("provider", &here, Some(own), "provider.lock");
        let starting = start_lock(&make("starting", &here, None, ""));
        let held = File::create(&starting).unwrap();
        held.lock().unwrap();
        // Of an eyas that wrote no owner, or of somebody else.
        std::fs::create_dir_all(Share::of(&state, "unknown").dir()).unwrap();
        // What is alive has another name than this program.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        make("renamed", &here, Some(child.id()), "journal/lock");
        let left = || {
            let all = std::fs::read_dir(Share::all_in(&state)).unwrap();
            let mut names: Vec<String> =
                all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(sweep_shares(&state), ["dead"]);
        assert_eq!(left(), ["dispatcher", "elsewhere", "provider", "renamed", "starting", "unknown"]);
        drop(held);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut swept = sweep_shares(&state);
        swept.sort();
        assert_eq!(swept, ["renamed", "starting"]);
        assert_eq!(sweep_shares(&dir.path().join("none")), Vec::<String>::new());
    }
}
