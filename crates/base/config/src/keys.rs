//! The keys of a profile. Each has the name of the option that it stands for, without the dashes.

/// What stands behind a key. Whether a text or a number means something, the option's own reader says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A text or a number.
    Value,
    /// A file or a folder. One that is relative is looked up from the folder that `eyas.toml` lies in.
    Path,
    /// One path or a list of paths.
    Paths,
    /// One text or a list of texts.
    Texts,
    /// A section of its own: each of its keys is one value of the option, NAME=JSON.
    Table,
    /// `true` sets the option, `false` leaves it out.
    Switch,
}

/// A key of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind }
}

/// All keys, in the order of the reference page.
pub const KEYS: &[Key] = &[
    // Nodes
    key("nodes", Kind::Value),
    key("provisioning", Kind::Value),
    key("idle-release", Kind::Value),
    // Nodes from elsewhere
    key("provider", Kind::Value),
    key("hosts", Kind::Path),
    key("ssh", Kind::Value),
    key("program", Kind::Value),
    key("start", Kind::Value),
    key("list", Kind::Value),
    key("stop", Kind::Value),
    key("address", Kind::Value),
    key("list-every", Kind::Value),
    key("partition", Kind::Value),
    key("queue", Kind::Value),
    key("account", Kind::Value),
    key("nodes-per-job", Kind::Value),
    key("options", Kind::Table),
    key("python", Kind::Value),
    key("walltime", Kind::Value),
    key("node-dir", Kind::Value),
    key("scratch-age", Kind::Value),
    key("setup", Kind::Texts),
    key("listen", Kind::Value),
    key("advertise", Kind::Value),
    // Each node
    key("slots", Kind::Value),
    key("memory", Kind::Value),
    key("gpus", Kind::Value),
    key("resource", Kind::Texts),
    key("cache", Kind::Value),
    key("cache-memory", Kind::Value),
    key("eviction", Kind::Value),
    key("grace", Kind::Value),
    key("home-wait", Kind::Value),
    key("container-command", Kind::Value),
    key("line-shell", Kind::Value),
    key("home-local", Kind::Paths),
    key("system-users", Kind::Texts),
    // The cluster
    key("dispatchers", Kind::Value),
    key("dir", Kind::Path),
    key("placement", Kind::Value),
    key("window", Kind::Value),
    key("utilisation-threshold", Kind::Value),
    key("collectives", Kind::Value),
    key("network", Kind::Value),
    key("home-streams", Kind::Value),
    key("home-rate", Kind::Value),
    key("cluster-resource", Kind::Texts),
    key("lease", Kind::Value),
    key("no-event-log", Kind::Switch),
    key("keep-runs", Kind::Value),
    // The programs of tasks
    key("env", Kind::Texts),
    key("env-file", Kind::Path),
];

/// The key with that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}
