//! Values that options of a cluster's parts have, each written as it is read.

use eyas_terms::needs::{AMOUNT_MAX, GPUS_MAX, check_name};
use std::collections::BTreeMap;
use std::fmt;

/// Most nodes of a local cluster.
const NODES_MAX: u32 = 1024;

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

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.min, self.max)
    }
}

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

/// `NAME=N`: so many of a named resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Amount {
    pub name: String,
    pub n: u32,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.n)
    }
}

/// Reads `NAME=N`.
pub fn amount(text: &str) -> Result<Amount, String> {
    let (name, n) = text.split_once('=').ok_or("write NAME=N, such as licence.vcs=4")?;
    check_name(name)?;
    match n.parse() {
        Ok(n) if (1..=AMOUNT_MAX).contains(&n) => Ok(Amount { name: name.into(), n }),
        _ => Err(format!("the number after `=` is a whole number from 1 to {AMOUNT_MAX}")),
    }
}

/// The amounts by name; `Err` names one that is there twice.
pub fn by_name(amounts: &[Amount]) -> Result<BTreeMap<String, u32>, String> {
    let mut all = BTreeMap::new();
    for Amount { name, n } in amounts {
        if all.insert(name.clone(), *n).is_some() {
            return Err(format!("the resource `{name}` is given twice"));
        }
    }
    Ok(all)
}

/// The gpus of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gpus {
    /// All that the machine has, or those that the batch system gave this process.
    Auto,
    Number(u32),
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gpus::Auto => f.write_str("auto"),
            Gpus::Number(n) => write!(f, "{n}"),
        }
    }
}

/// Reads a number of gpus, or `auto`.
pub fn gpus(text: &str) -> Result<Gpus, String> {
    match text.parse() {
        Ok(n) if n <= GPUS_MAX => Ok(Gpus::Number(n)),
        _ if text == "auto" => Ok(Gpus::Auto),
        _ => Err(format!("write a whole number up to {GPUS_MAX}, or auto")),
    }
}

/// A part of `--system-users`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SystemUser {
    Ids { first: u32, last: u32 },
    Account { user: String, account: String },
}

impl fmt::Display for SystemUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SystemUser::Ids { first, last } => write!(f, "{first}-{last}"),
            SystemUser::Account { user, account } => write!(f, "{user}={account}"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_gpus_are_read_as_they_are_written() {
        assert_eq!(amount("licence.vcs=4").map(|a| a.to_string()), Ok("licence.vcs=4".into()));
        for wrong in ["licence", "=3", "a=0", "a=-1", "two words=1", "gpus=2"] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
        assert_eq!(gpus("auto"), Ok(Gpus::Auto));
        assert_eq!(gpus("2"), Ok(Gpus::Number(2)));
        assert!(gpus("-1").is_err() && gpus("many").is_err());
        assert!(by_name(&[amount("a=1").expect("one"), amount("a=2").expect("two")]).is_err());
    }
}
