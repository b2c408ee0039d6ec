//! The folders of a cluster: of its dispatchers and of its nodes.

use std::path::{Path, PathBuf};

/// What the name of a node of this machine begins with.
pub const NODE: &str = "node";

/// The name that users know the node with that number by; also the name of its folder.
pub fn node_name(number: u32) -> String {
    format!("{NODE}{number}")
}

/// The folder among a machine's temporary files that nodes of this user have theirs in; a script of the provider makes it.
pub fn nodes_dir_name() -> String {
    // SAFETY: a plain query.
    format!("eyas-nodes-{}", unsafe { libc::getuid() })
}

/// The user's folder that the variable names, else the usual one below the home folder; `None`: neither is known. A variable that is
/// empty counts as not set.
pub fn user_folder(variable: &str, usual: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(usual)))
}

/// The dispatcher's folder within a cluster's.
pub fn dispatcher_dir(cluster_dir: &Path) -> PathBuf {
    cluster_dir.join("dispatcher")
}

/// Like [`dispatcher_dir`], for the dispatcher with that number among several, counted from 1.
pub fn dispatcher_dir_of(cluster_dir: &Path, number: u32) -> PathBuf {
    match number {
        1 => dispatcher_dir(cluster_dir),
        n => cluster_dir.join(format!("dispatcher{n}")),
    }
}

/// The folders of all dispatchers that shared a cluster with the dispatcher of `dir`, as far as they are
/// beside it.
pub fn member_dirs(dir: PathBuf) -> Vec<PathBuf> {
    // If the log has a problem, its reader reports that.
    let (Ok(Some(group)), Some(cluster)) = (eyas_report::membership(&dir), dir.parent()) else {
        return vec![dir];
    };
    if dir != dispatcher_dir_of(cluster, group.me.0 + 1) {
        return vec![dir];
    }
    let all = (1..=group.n_members).map(|k| dispatcher_dir_of(cluster, k));
    all.filter(|dir| dir.join(eyas_core::log::EVENTS_FILE).exists()).collect()
}

/// The folders of a cluster's nodes.
pub fn node_dirs(dir: &Path) -> Vec<PathBuf> {
    let is_node = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(NODE.as_bytes());
    let nodes = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_node);
    nodes.map(|e| e.path()).collect()
}
