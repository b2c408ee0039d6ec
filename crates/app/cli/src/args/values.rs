//! Readers of values that options take, and of the names of tasks; an error says what can be written.

use crate::{Exit, Fault};
use eyas_core::dispatcher::{CollectiveMode, KeepRuns};
use eyas_core::network::NetworkUse;
use eyas_tasklist::{parse_bytes, parse_duration, parse_rate};
use eyas_terms::TaskId;
use eyas_text::shown;
use eyas_wire::message::TaskName;

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
