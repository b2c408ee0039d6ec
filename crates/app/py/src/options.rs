//! What Python says of a cluster: arguments with values of Python, as the fields that the command line reads its options into.

use eyas_cli::args::values::{
    address, bytes, collectives, container_command, duration, host_port, job_time, lease, network, rate,
    some_bytes,
};
use eyas_cli::args::{Amount, BatchOption, ClusterArgs, Nodes, ProviderKind};
use eyas_cli::{Exit, Fault};
use eyas_cluster::values::{amount, gpus, nodes, system_users};
use eyas_text::Shell;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

const S_NS: f64 = 1e9;
/// As many seconds as nanoseconds have room for in a number.
const SECONDS_MAX: f64 = 1e10;

/// A value of Python.
#[derive(FromPyObject, Clone, PartialEq, Debug)]
pub enum Value {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
    Path(PathBuf),
    Named(BTreeMap<String, Value>),
    Several(Vec<Value>),
}

/// As Python writes it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(true) => f.write_str("True"),
            Value::Flag(false) => f.write_str("False"),
            Value::Whole(n) => write!(f, "{n}"),
            Value::Number(n) => write!(f, "{n}"),
            Value::Text(text) => write!(f, "'{}'", eyas_text::line_of(text)),
            Value::Path(path) => write!(f, "'{}'", eyas_text::line_of(&path.display().to_string())),
            Value::Named(of) => {
                let of: Vec<String> = of.iter().map(|(name, value)| format!("'{name}': {value}")).collect();
                write!(f, "{{{}}}", of.join(", "))
            }
            Value::Several(of) => {
                let of: Vec<String> = of.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", of.join(", "))
            }
        }
    }
}

type Read<T> = Result<T, String>;

impl Value {
    fn flag(&self) -> Read<bool> {
        match self {
            Value::Flag(is) => Ok(*is),
            _ => Err("give True or False".into()),
        }
    }

    fn whole<T: TryFrom<i64>>(&self, min: i64, max: i64) -> Read<T> {
        let found = match self {
            Value::Whole(n) => Some(*n),
            // As a word of the command line would say it.
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        let n = found.filter(|n| (min..=max).contains(n)).and_then(|n| T::try_from(n).ok());
        n.ok_or_else(|| format!("give a whole number from {min} to {max}"))
    }

    fn text(&self) -> Read<String> {
        match self {
            Value::Text(text) => Ok(text.clone()),
            Value::Path(path) => path.to_str().map(str::to_owned).ok_or_else(|| "it is no text".into()),
            _ => Err("give a text".into()),
        }
    }

    fn path(&self) -> Read<PathBuf> {
        match self {
            Value::Path(path) => Ok(path.clone()),
            Value::Text(text) => Ok(text.into()),
            _ => Err("give a path".into()),
        }
    }

    /// A value that the command line reads from a text, or a whole number that stands for itself there.
    fn read<T>(&self, read: impl Fn(&str) -> Read<T>) -> Read<T> {
        match self {
            Value::Whole(n) => read(&n.to_string()),
            _ => read(&self.text()?),
        }
    }

    /// A time in nanoseconds: a number of seconds, or a text that says its unit.
    fn time(&self, read: impl Fn(&str) -> Read<u64>) -> Read<u64> {
        let seconds = match self {
            Value::Whole(n) => *n as f64,
            Value::Number(n) => *n,
            _ => {
                let hint = || "give seconds, or a text such as '10min'".to_string();
                return read(&self.text().map_err(|_| hint())?);
            }
        };
        match (0.0..=SECONDS_MAX).contains(&seconds) {
            true => read(&format!("{}ns", (seconds * S_NS).round() as u64)),
            false => Err("give seconds, from 0 on".into()),
        }
    }

    /// Several values, or one alone.
    fn each<T>(&self, read: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
        match self {
            Value::Several(of) => of.iter().map(read).collect(),
            one => Ok(vec![read(one)?]),
        }
    }

    fn nodes(&self) -> Read<Nodes> {
        match self {
            Value::Several(of) => match &of[..] {
                [Value::Whole(min), Value::Whole(max)] => nodes(&format!("{min}..{max}")),
                _ => Err("give two whole numbers, the fewest and the most".into()),
            },
            Value::Number(_) | Value::Flag(_) | Value::Named(_) => {
                Err("give a whole number, or two: the fewest and the most".into())
            }
            other => other.read(nodes),
        }
    }

    /// Amounts of resources: `{"licence": 4}`, or texts such as `"licence=4"`.
    fn amounts(&self) -> Read<Vec<Amount>> {
        match self {
            Value::Named(of) => of.iter().map(|(name, n)| amount(&format!("{name}={n}"))).collect(),
            other => other.each(|one| one.read(amount)),
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Value::Flag(is) => (*is).into(),
            Value::Whole(n) => (*n).into(),
            Value::Number(n) => (*n).into(),
            Value::Text(text) => text.clone().into(),
            Value::Path(path) => path.display().to_string().into(),
            Value::Named(of) => of.iter().map(|(name, value)| (name.clone(), value.json())).collect(),
            Value::Several(of) => of.iter().map(Value::json).collect(),
        }
    }

    /// Options of the batch system's provider, by name.
    fn batch_options(&self) -> Read<Vec<BatchOption>> {
        match self {
            Value::Named(of) => {
                Ok(of.iter().map(|(name, of)| BatchOption { name: name.clone(), value: of.json() }).collect())
            }
            other => other.each(|one| one.read(eyas_cluster::values::option)),
        }
    }
}

fn share(value: &Value) -> Read<f64> {
    let found = match value {
        Value::Number(n) => Some(*n),
        Value::Whole(n) => Some(*n as f64),
        _ => None,
    };
    found.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| "give a share from 0 to 1, such as 0.8".into())
}

/// Sets the field of an argument. `None`: there is no such argument.
fn set(args: &mut ClusterArgs, name: &str, value: &Value) -> Option<Read<()>> {
    let ClusterArgs { nodes, provision, dispatchers, dir, node, policy, provide, profile: _ } = args;
    macro_rules! fields {
        ($($name:literal => $field:expr, $read:expr;)*) => {
            match name {
                $($name => Some($read.map(|value| $field = value)),)*
                _ => None,
            }
        };
    }
    fields! {
        "nodes" => *nodes, value.nodes();
        "dispatchers" => *dispatchers, value.whole(1, 64);
        "dir" => *dir, value.path().map(Some);
        "provisioning" => provision.provisioning, value.text().map(Some);
        "idle_release" => provision.idle_release, value.time(duration).map(Some);
        "slots" => node.slots, value.whole(1, 4096).map(Some);
        "cache" => node.cache, value.read(some_bytes);
        "cache_memory" => node.cache_memory, value.read(bytes);
        "memory" => node.memory, value.read(bytes).map(Some);
        "gpus" => node.gpus, value.read(gpus).map(Some);
        "resource" => node.resources, value.amounts();
        "eviction" => node.eviction, value.text();
        "grace" => node.grace, value.time(duration);
        "home_wait" => node.home_wait, value.time(duration);
        "container_command" => node.container_command, value.read(container_command).map(Some);
        "line_shell" => node.line_shell, value.read(Shell::of_name).map(Some);
        "home_local" => node.home_local, value.each(Value::path);
        "system_users" => node.system_users, value.each(|one| one.read(system_users));
        "placement" => policy.placement, value.text();
        "window" => policy.window, value.whole(1, i64::MAX);
        "utilisation_threshold" => policy.utilisation_threshold, share(value);
        "collectives" => policy.collectives, value.read(collectives);
        "network" => policy.network, value.read(network);
        "home_streams" => policy.home_streams, value.whole(1, u32::MAX.into()).map(Some);
        "home_rate" => policy.home_rate, value.read(rate).map(Some);
        "cluster_resource" => policy.cluster_resources, value.amounts();
        "lease" => policy.lease, value.time(lease);
        "no_event_log" => policy.no_event_log, value.flag();
        "provider" => provide.provider, value.read(ProviderKind::by_name);
        "hosts" => provide.hosts, value.path().map(Some);
        "ssh" => provide.ssh, value.text().map(Some);
        "program" => provide.program, value.path().map(Some);
        "start" => provide.start, value.text().map(Some);
        "list" => provide.list, value.text().map(Some);
        "stop" => provide.stop, value.text().map(Some);
        "address" => provide.address, value.text().map(Some);
        "list_every" => provide.list_every, value.time(duration).map(Some);
        "partition" => provide.partition, value.text().map(Some);
        "queue" => provide.queue, value.text().map(Some);
        "account" => provide.account, value.text().map(Some);
        "nodes_per_job" => provide.nodes_per_job, value.whole(1, 1000).map(Some);
        "options" => provide.options, value.batch_options();
        "python" => provide.python, value.path().map(Some);
        "walltime" => provide.walltime, value.time(job_time).map(Some);
        "node_dir" => provide.node_dir, value.text().map(Some);
        "scratch_age" => provide.scratch_age, value.time(duration).map(Some);
        "setup" => provide.setup, value.each(Value::text);
        "listen" => provide.listen, value.read(host_port).map(Some);
        "advertise" => provide.advertise, value.read(address).map(Some);
    }
}

/// What the arguments of a cluster say. `python`: the Python that asks, which has what batch systems are reached through. Errors name
/// the argument.
pub fn cluster_args(given: Vec<(String, Value)>, python: PathBuf) -> Result<ClusterArgs, Fault> {
    let bad = |message: String| Fault::new(Exit::BadInput, message);
    let mut args = ClusterArgs::by_default();
    let has_nodes = given.iter().any(|(name, _)| name == "nodes");
    for (name, value) in given {
        match set(&mut args, name.trim_matches('_'), &value) {
            Some(read) => read.map_err(|why| bad(format!("{name} is {value}: {why}")))?,
            None => {
                let name = eyas_text::shown(&name).to_string();
                return Err(bad(format!("eyas.Cluster has no argument {name}"))
                    .hint("help(eyas.ClusterOptions) names them all"));
            }
        }
    }
    let provide = &mut args.provide;
    if provide.provider.is_batch() && provide.python.is_none() {
        provide.python = Some(python);
    }
    // Hosts that are known by name are all meant where nobody says how many.
    if !has_nodes && let Some(hosts) = provide.shape().hosts()? {
        args.nodes = Nodes::fixed(hosts.names.len() as u32);
    }
    Ok(args)
}
