//! One node of a cluster: the checks of its options, and how its executor is given them.

use crate::args::{NodeArgs, SystemUser};
use crate::{Exit, Fault, equipment};
use eyas_core::eviction;
use eyas_runtime::executor::system_users::{SystemUsers, usual_locks};
use eyas_text::shown_path;
use std::collections::BTreeMap;

/// Checks the settings for a node that do not depend on its machine.
pub fn check_eviction(node: &NodeArgs) -> Result<(), Fault> {
    equipment::by_name(&node.resources).map_err(|e| Fault::new(Exit::BadInput, e))?;
    eviction::by_name(&node.eviction).map(drop).map_err(|e| Fault::new(Exit::BadInput, e))
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

/// The options of an executor that are the same for all nodes.
pub fn node_arguments(node: &NodeArgs) -> Vec<String> {
    let NodeArgs { slots, cache, memory, gpus, resources, gpu_names, eviction, grace, home_wait, .. } = node;
    let NodeArgs { home_local, system_users, container_command, line_shell, .. } = node;
    let mut list = vec!["--cache".into(), cache.to_string(), "--eviction".into(), eviction.clone()];
    if let Some(slots) = slots {
        list.extend(["--slots".into(), slots.to_string()]);
    }
    if let Some(memory) = memory {
        list.extend(["--memory".into(), memory.to_string()]);
    }
    if !gpu_names.is_empty() {
        list.extend(["--gpu-names".into(), gpu_names.join(",")]);
    } else if let Some(gpus) = gpus {
        list.extend(["--gpus".into(), gpus.to_string()]);
    }
    for amount in resources {
        list.extend(["--resource".into(), amount.to_string()]);
    }
    if *grace > 0 {
        list.extend(["--grace".into(), format!("{}ms", grace.div_ceil(1_000_000))]);
    }
    list.extend(["--home-wait".into(), format!("{}ms", home_wait.div_ceil(1_000_000))]);
    if let Some(command) = container_command {
        list.extend(["--container-command".into(), command.clone()]);
    }
    if let Some(shell) = line_shell {
        list.extend(["--line-shell".into(), shell.name().into()]);
    }
    for local in home_local {
        list.extend(["--home-local".into(), local.display().to_string()]);
    }
    for part in system_users {
        list.extend(["--system-users".into(), part.to_string()]);
    }
    list
}
