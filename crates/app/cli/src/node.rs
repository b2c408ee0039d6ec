//! One node of a cluster: the checks of its options, and how its executor is given them.

use crate::args::{NodeArgs, SystemUser};
use crate::print::size;
use crate::{Exit, Fault};
use eyas_cluster::options::NodeShape;
use eyas_cluster::values::by_name;
use eyas_core::eviction;
use eyas_runtime::executor::system_users::{SystemUsers, usual_locks};
use eyas_text::shown_path;
use std::collections::BTreeMap;

/// Checks the settings for a node that do not depend on its machine.
pub fn check_eviction(node: &NodeArgs) -> Result<(), Fault> {
    by_name(&node.resources).map_err(|e| Fault::new(Exit::BadInput, e))?;
    eviction::by_name(&node.eviction).map(drop).map_err(|e| Fault::new(Exit::BadInput, e))
}

/// Checks that a node with so much memory has some for tasks.
pub fn check_memory(node: &NodeArgs, memory: u64) -> Result<(), Fault> {
    if node.cache_memory == 0 || node.cache_memory < memory {
        return Ok(());
    }
    let (part, whole) = (size(node.cache_memory), size(memory));
    let message = format!("--cache-memory takes {part} of each node's memory, and a node has {whole}");
    Err(Fault::new(Exit::BadInput, message).hint("leave some for tasks; --memory says how much a node has"))
}

/// Checks the settings for a node, which would otherwise be refused after a folder was made.
pub fn check_node(node: &NodeArgs) -> Result<(), Fault> {
    check_eviction(node)?;
    let users = system_users(node).map_err(|e| Fault::new(Exit::BadInput, e))?;
    users.map_or(Ok(()), |users| users.check()).map_err(|e| Fault::new(Exit::BadInput, e))?;
    for dir in &node.home_local {
        if !dir.is_dir() {
            let message = format!("--home-local {} is not a directory", shown_path(dir));
            return Err(Fault::new(Exit::BadInput, message));
        }
    }
    Ok(())
}

/// The system users that the node gives to programs, if it does. An error is a sentence.
pub fn system_users(node: &NodeArgs) -> Result<Option<SystemUsers>, String> {
    let mut ids = None;
    let mut accounts = BTreeMap::new();
    for part in &node.system_users {
        let is_again = match part {
            SystemUser::Ids { first, last } => ids.replace((*first, *last)).is_some(),
            SystemUser::Account { user, account } => accounts.insert(user.clone(), account.clone()).is_some(),
        };
        if is_again {
            return Err(format!(
                "--system-users {part} is the second one for the same users; give each once"
            ));
        }
    }
    match ids {
        Some((first, last)) => Ok(Some(SystemUsers { first, last, accounts, locks: usual_locks() })),
        None if accounts.is_empty() => Ok(None),
        None => Err("--system-users needs a range of ids, too, such as 70000-70099, for the cluster's owner and users without \
                     an account"
            .into()),
    }
}

impl NodeArgs {
    /// What these options make of a node.
    pub fn shape(&self) -> NodeShape {
        let NodeArgs { slots, cache, memory, gpus, resources, gpu_names, eviction, grace, home_wait, .. } =
            self;
        let NodeArgs { home_local, system_users, container_command, line_shell, cache_memory, .. } = self;
        NodeShape {
            slots: *slots,
            cache_bytes: *cache,
            memory_bytes: *memory,
            cache_memory_bytes: *cache_memory,
            gpus: *gpus,
            gpu_names: gpu_names.clone(),
            resources: resources.clone(),
            eviction: eviction.clone(),
            grace_ns: *grace,
            home_wait_ns: *home_wait,
            container_command: container_command.clone(),
            line_shell: *line_shell,
            home_local: home_local.clone(),
            system_users: system_users.clone(),
            scratch: None,
        }
    }
}
