//! Readers of values that options take, and of the names of tasks; an error says what can be written.

use crate::{Exit, Fault};
use clap::ValueEnum;
use eyas_core::dispatcher::{CollectiveMode, KeepRuns};
use eyas_core::network::NetworkUse;
use eyas_tasklist::{parse_bytes, parse_duration, parse_rate};
use eyas_terms::TaskId;
use eyas_text::shown;
use eyas_wire::message::TaskName;

/// How many nodes there are: at least `min`, at most `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes {
    pub min: u32,
    pub max: u32,
}

impl Nodes {
    pub fn fixed(n: u32) -> Nodes {
        Nodes { min: n, max: n }
    }
    pub fn are_fixed(self) -> bool {
        self.min == self.max
    }
}

impl std::fmt::Display for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.min, self.max)
    }
}

/// Most nodes of a local cluster.
const NODES_MAX: u32 = 1024;

pub fn nodes(text: &str) -> Result<Nodes, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= NODES_MAX);
    let nodes = match text.split_once("..") {
        Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Nodes { min, max }),
        None => number(text).map(Nodes::fixed),
    };
    match nodes {
        Some(Nodes { max: 0, .. }) => Err("there must be at least 1 node".into()),
        Some(Nodes { min, max }) if min > max => {
            Err(format!("at least {min} nodes and at most {max} cannot both be"))
        }
        Some(nodes) => Ok(nodes),
        None => Err(format!("write a number from 1 to {NODES_MAX}, or a range such as 1..4")),
    }
}

/// A part of `--system-users`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SystemUser {
    Ids { first: u32, last: u32 },
    Account { user: String, account: String },
}

impl std::fmt::Display for SystemUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SystemUser::Ids { first, last } => write!(f, "{first}-{last}"),
            SystemUser::Account { user, account } => write!(f, "{user}={account}"),
        }
    }
}

/// A command that runs programs in containers: words between blanks.
pub fn container_command(text: &str) -> Result<String, String> {
    const HOLES: [&str; 3] = ["{image}", "{sandbox}", "{node}"];
    if !text.contains("{image}") {
        return Err("it does not say {image}, so it runs no container; write, say, apptainer exec --bind {node} --pwd {sandbox} {image}".into());
    }
    if text.trim_start().starts_with('{') {
        return Err("it begins with no program".into());
    }
    let unknown =
        text.match_indices('{').find(|(at, _)| !HOLES.iter().any(|hole| text[*at..].starts_with(hole)));
    match unknown {
        Some((at, _)) => {
            let hole: String =
                text[at..].split_inclusive('}').next().unwrap_or_default().chars().take(30).collect();
            Err(format!("{} stands for nothing; there are {}", eyas_text::shown(&hole), HOLES.join(", ")))
        }
        None => Ok(text.to_owned()),
    }
}

pub fn system_users(text: &str) -> Result<SystemUser, String> {
    if let Some((user, account)) = text.split_once('=') {
        if let Some(why) = eyas_wire::users::why_no_name(user) {
            return Err(why);
        }
        return match account.is_empty() {
            true => Err(format!("write an account of the machine behind `{user}=`")),
            false => Ok(SystemUser::Account { user: user.into(), account: account.into() }),
        };
    }
    let ids = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (first, last) = ids.ok_or("write a range of ids, such as 70000-70099, or USER=ACCOUNT")?;
    Ok(SystemUser::Ids { first, last })
}

/// Where nodes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum ProviderKind {
    /// Processes of this machine
    #[default]
    Local,
    /// Commands of yours: --start, --list and --stop
    Command,
    /// Hosts of --hosts, by ssh
    Ssh,
    /// The nodes of the allocation that this command runs in: Slurm, Grid Engine, PBS
    Allocation,
    /// The nodes of a Ray cluster
    Ray,
    /// Batch systems and clouds, through Parsl
    Slurm,
    GridEngine,
    Pbspro,
    Torque,
    Lsf,
    Htcondor,
    Kubernetes,
    Aws,
    Azure,
    Googlecloud,
}

impl ProviderKind {
    /// Whether a Python process asks for nodes: jobs of a batch system, machines of a cloud, or nodes of Ray.
    pub fn is_batch(self) -> bool {
        use ProviderKind::*;
        !matches!(self, Local | Command | Ssh | Allocation)
    }

    pub fn name(self) -> &'static str {
        match self {
            ProviderKind::Local => "local",
            ProviderKind::Command => "command",
            ProviderKind::Ssh => "ssh",
            ProviderKind::Allocation => "allocation",
            ProviderKind::Ray => eyas_runtime::provider::RAY,
            ProviderKind::Slurm => "slurm",
            ProviderKind::GridEngine => "grid-engine",
            ProviderKind::Pbspro => "pbspro",
            ProviderKind::Torque => "torque",
            ProviderKind::Lsf => "lsf",
            ProviderKind::Htcondor => "htcondor",
            ProviderKind::Kubernetes => "kubernetes",
            ProviderKind::Aws => "aws",
            ProviderKind::Azure => "azure",
            ProviderKind::Googlecloud => "googlecloud",
        }
    }
}

pub fn provider_kind(text: &str) -> Result<ProviderKind, String> {
    let all = ProviderKind::value_variants();
    let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
    all.iter()
        .find(|kind| kind.name() == text)
        .copied()
        .ok_or_else(|| format!("there is no such provider; choose one of {}", names.join(", ")))
}

/// An option of Parsl's: its name and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOption {
    pub name: String,
    pub value: serde_json::Value,
}

/// A value that is JSON is what it says, such as `true`, `8` or `["a"]`; any other is a text.
pub fn option(text: &str) -> Result<BatchOption, String> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err("write a name, = and a value, such as qos=long".into());
    };
    let value = serde_json::from_slice(value.as_bytes()).unwrap_or_else(|_| value.into());
    Ok(BatchOption { name: name.into(), value })
}
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|e| e.to_string())
}
pub fn rate(text: &str) -> Result<u64, String> {
    parse_rate(text).map_err(|e| e.to_string())
}
pub fn duration(text: &str) -> Result<u64, String> {
    let d = parse_duration(text).map_err(|e| e.to_string())?;
    u64::try_from(d.as_nanos()).map_err(|_| "that is too long".to_string())
}

/// How long a job may live.
pub fn job_time(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0 => Err("a job needs some time; write for example 1h".into()),
        ns => Ok(ns),
    }
}

pub fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("write at least 1 byte, such as 20GiB".into()),
        n => Ok(n),
    }
}

/// An executor tries to reach a dispatcher about once a second.
pub fn lease(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0..1_000_000_000 => Err("write a time of at least 1s".into()),
        ns => Ok(ns),
    }
}

pub fn window(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "write a number of tasks, at least 1".into())
}

pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.8".into())
}

/// An address to listen on: port 0 is a free one.
pub fn host_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let is_host = |host: &str| {
        let is_v6 = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && !host.contains(char::is_whitespace)
            && (is_v6 || !host.contains([':', '/', '[', ']']))
    };
    match parts.filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok()) {
        Some(_) => Ok(text.into()),
        None => Err("write HOST:PORT, such as 0.0.0.0:7700".into()),
    }
}

/// An address to connect to.
pub fn address(text: &str) -> Result<String, String> {
    match host_port(text) {
        Ok(text) if !text.ends_with(":0") => Ok(text),
        _ => Err("write HOST:PORT, such as login1:7700".into()),
    }
}

/// `all` is a rule without a limit.
pub fn kept_runs(text: &str) -> Result<KeepRuns, String> {
    let mut rule = KeepRuns::default();
    if text == "all" {
        return Ok(rule);
    }
    for part in text.split(',') {
        let is_new = match part.parse() {
            Ok(n) => rule.n_runs.replace(n).is_none(),
            Err(_) => {
                let age_ns = duration(part)
                    .map_err(|e| format!("{part} is neither a number of runs nor a time: {e}"))?;
                rule.age_ns.replace(age_ns).is_none()
            }
        };
        if !is_new {
            return Err("write one number of runs and one time at most, such as 20,30d".into());
        }
    }
    Ok(rule)
}

pub fn collectives(text: &str) -> Result<CollectiveMode, String> {
    CollectiveMode::by_name(text)
        .ok_or_else(|| format!("there is no such mode; choose one of {}", CollectiveMode::NAMES.join(", ")))
}

pub fn network(text: &str) -> Result<NetworkUse, String> {
    let names = NetworkUse::ALL.map(NetworkUse::name);
    let found = NetworkUse::ALL.into_iter().find(|known| known.name() == text);
    found.ok_or_else(|| format!("there is no such way; choose one of {}", names.join(", ")))
}

/// `#12` is a task's number, any other text is the user's own id.
pub fn task_name(text: &str) -> Result<TaskName, Fault> {
    match text.strip_prefix('#') {
        Some(digits) => match digits.parse() {
            Ok(n) => Ok(TaskName::Number(TaskId(n))),
            Err(_) => {
                Err(Fault::new(Exit::BadInput, format!("{} is not a task number; write #12", shown(text))))
            }
        },
        None => Ok(TaskName::User(text.into())),
    }
}
