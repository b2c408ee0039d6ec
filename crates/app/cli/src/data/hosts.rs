//! `eyas data hosts`: on which hosts data sets lie, in the words of a batch system that eyas does not drive.
//!
//! Source: GEMSRUN (`Wozniak06` §IV-A, strategy B): a request "results in a list of potential compute sites that host the required
//! data. The user then specifies those hosts in the Condor submit files via automated client tools".

use super::open::{Opened, open};
use crate::fault::bad;
use crate::print::size;
use crate::{Exit, Fault, json};
use clap::{Args, ValueEnum};
use eyas_batch::{BatchNode, BatchSystem, Target, nodes_on};
use eyas_catalog::{Key, ReplicaState, Site, host_of};
use eyas_host::host_name;
use eyas_keeping::nearness::{Host, Ranked, rank};
use eyas_text::{line_of, say};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Args)]
pub struct HostsArgs {
    /// LABEL, LABEL@VERSION, or one of them with /PATH for one file
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    /// In whose words
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Plain)]
    format: Format,
    /// The node of the DAG that the line is for
    #[arg(long, value_name = "NAME", required_if_eq("format", "dagman"))]
    job: Option<String>,
    /// Print one JSON value in place of text
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A host on each line, the one that holds most first
    Plain,
    /// Lines of a submit file of HTCondor
    Condor,
    /// A line of a DAG of HTCondor, whose submit file has `requirements = $(eyas_hosts)`
    Dagman,
    /// A line of a batch script of Slurm
    Slurm,
    /// A line of a batch script of Grid Engine
    GridEngine,
    /// A line of a batch script of PBS, for the first host: PBS has no words for one of several
    Pbs,
}

/// A host with copies, in JSON.
#[derive(Serialize)]
struct HostRow<'a> {
    host: &'a str,
    held_bytes: u64,
    all_bytes: u64,
}

/// What is asked for, and which sites that answer have it.
struct Asked {
    /// Each file: its size in bytes, and the sites.
    files: Vec<(u64, BTreeSet<String>)>,
    /// The host of each site.
    host_of: BTreeMap<String, String>,
}

impl Asked {
    fn all_bytes(&self) -> u64 {
        self.files.iter().map(|(size_bytes, _)| size_bytes).sum()
    }

    /// Hosts by what they hold, those with most first; such that hold nothing are left out. names : what a host is called, which may
    /// be nothing or several.
    fn ranked(&self, names: &dyn Fn(&str) -> BTreeSet<String>) -> Vec<Ranked> {
        let names_of: BTreeMap<&str, BTreeSet<String>> =
            self.host_of.iter().map(|(site, host)| (&**site, names(host))).collect();
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        for (size_bytes, sites) in &self.files {
            let hosts: BTreeSet<&str> =
                sites.iter().flat_map(|site| &names_of[&**site]).map(String::as_str).collect();
            hosts.into_iter().for_each(|host| *held.entry(host).or_default() += size_bytes);
        }
        let hosts = held.into_iter().map(|(name, held_bytes)| Host {
            name: name.to_owned(),
            held_bytes,
            takes_programs: true,
            n_busy: 0,
            n_transfers: 0,
        });
        rank(hosts.collect(), self.all_bytes(), 0)
    }
}

pub fn hosts(db: Option<&str>, args: &HostsArgs) -> Result<Exit, Fault> {
    let opened = open(db)?;
    let asked = asked(&opened, &args.keys)?;
    let same = |host: &str| BTreeSet::from([host.to_owned()]);
    let all = asked.ranked(&same);
    let Some(best) = all.first() else {
        return Err(Fault::new(Exit::Other, "no site that answers has a copy")
            .hint("`eyas data where` shows the sites and why they do not answer"));
    };
    if args.json {
        let rows = all.iter().map(|of| HostRow {
            host: &of.host.name,
            held_bytes: of.host.held_bytes,
            all_bytes: asked.all_bytes(),
        });
        json::write(&rows.collect::<Vec<_>>())?;
        return Ok(Exit::Good);
    }
    if best.moved_bytes > 0 && args.format != Format::Plain {
        say!(
            "no host holds all of it; {} would move to {}",
            size(best.moved_bytes),
            line_of(&best.host.name)
        );
    }
    match args.format {
        Format::Plain => {
            for Ranked { host, .. } in &all {
                show!("{}  {} of {} B", line_of(&host.name), host.held_bytes, asked.all_bytes());
            }
        }
        Format::Condor => {
            show!("requirements = {}", one_of(&all));
            show!("rank = {}", rank_of(&all));
        }
        Format::Dagman => {
            let job = args.job.as_deref().unwrap_or_default();
            if job.is_empty() || job.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(bad("--job has to be the name of a node of the DAG, without spaces"));
            }
            show!("VARS {job} eyas_hosts=\"{}\"", one_of(&all).replace('"', "\\\""));
        }
        Format::Slurm => aimed(&asked, eyas_batch::Kind::Slurm.system())?,
        Format::GridEngine => aimed(&asked, eyas_batch::Kind::GridEngine.system())?,
        Format::Pbs => show!("#PBS -l select=1:host={}", line_of(&best.host.name)),
    }
    Ok(Exit::Good)
}

/// Looks the keys up, and asks the sites whether they are there.
fn asked(opened: &Opened, keys: &[String]) -> Result<Asked, Fault> {
    let Opened { catalog, caller, .. } = opened;
    let mut files = vec![];
    for text in keys {
        let (key, path) = Key::with_path(text)?;
        let mut sites_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for replica in catalog.whereabouts(caller, &key)? {
            if replica.state == ReplicaState::Ready {
                sites_of.entry(replica.path).or_default().insert(replica.site);
            }
        }
        let n_before = files.len();
        for file in catalog.files(caller, &key)? {
            if path.is_none_or(|path| path == file.path) {
                files.push((file.size_bytes, sites_of.remove(&file.path).unwrap_or_default()));
            }
        }
        if let (Some(path), true) = (path, files.len() == n_before) {
            return Err(bad(format!("the data set `{key}` has no file `{}`", line_of(path)))
                .hint(format!("`eyas data ls {key}` lists the files")));
        }
    }
    let held: BTreeSet<String> = files.iter().flat_map(|(_, sites)| sites).cloned().collect();
    let away = catalog.away(held.iter().map(String::as_str))?;
    for (site, reason) in &away {
        say!("the site `{}` cannot be reached now: {}", line_of(site), line_of(reason));
    }
    files.iter_mut().for_each(|(_, sites)| sites.retain(|site| !away.contains_key(site)));
    let host_of_site = |site: &Site| match site.is_store {
        true => host_of(&site.address).to_owned(),
        false => host_name(),
    };
    let known = catalog.sites()?;
    let host_of = known.iter().map(|site| (site.name.clone(), host_of_site(site))).collect();
    Ok(Asked { files, host_of })
}

/// Those that hold all, or else those that hold most.
fn wanted(all: &[Ranked]) -> impl Iterator<Item = &Ranked> {
    all.iter().filter(|of| of.moved_bytes == all[0].moved_bytes)
}

/// A condition of HTCondor: the machine is one of those that hold most.
fn one_of(all: &[Ranked]) -> String {
    wanted(all).map(|of| is_machine(&of.host.name)).collect::<Vec<_>>().join(" || ")
}

/// What HTCondor prefers machines by: the bytes that they hold.
fn rank_of(all: &[Ranked]) -> String {
    let of_one =
        |of: &Ranked| format!("ifThenElse({}, {}, 0)", is_machine(&of.host.name), of.host.held_bytes);
    all.iter().map(of_one).collect::<Vec<_>>().join(" + ")
}

/// HTCondor knows machines by their full names, and has their addresses beside them.
fn is_machine(host: &str) -> String {
    let literal = |text: &str| {
        let shown =
            |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_string() } else { format!("[{c}]") };
        text.chars().map(shown).collect::<String>()
    };
    match host.parse::<IpAddr>() {
        Ok(_) => format!("regexp(\"^<[[]?{}[]]?:\", TARGET.MyAddress)", literal(host)),
        Err(_) if host.contains('.') => format!("TARGET.Machine == \"{}\"", line_of(host)),
        Err(_) => format!("regexp(\"^{}([.]|$)\", TARGET.Machine, \"i\")", literal(host)),
    }
}

/// Prints the line of a batch script that aims a job at the nodes that hold most.
fn aimed(asked: &Asked, system: &dyn BatchSystem) -> Result<(), Fault> {
    let no_answer = |error: eyas_batch::Error| Fault::new(Exit::Other, error.message);
    let nodes: Vec<BatchNode> = system.nodes().map_err(no_answer)?;
    let all = asked.ranked(&|host| nodes_on(host, &nodes));
    if all.is_empty() {
        return Err(bad(format!("no host with a copy is a node of {}", system.name())));
    }
    let hosts: Vec<String> = wanted(&all).map(|of| of.host.name.clone()).collect();
    for option in system.aim(&Target { hosts: &hosts, all: &nodes, is_soft: false }) {
        show!("{} {option}", system.directive());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let sites = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let host_of = [("a", "n1"), ("b", "n2"), ("c", "n2"), ("d", "10.1.2.3")];
        Asked {
            files: vec![(100, sites(&["a", "b", "c"])), (10, sites(&["a", "d"])), (1, sites(&[]))],
            host_of: host_of.map(|(site, host)| (site.to_owned(), host.to_owned())).into(),
        }
    }

    #[test]
    fn hosts_come_by_what_they_hold_and_a_file_counts_once() {
        let all = asked().ranked(&|host| BTreeSet::from([host.to_owned()]));
        let held: Vec<(&str, u64)> = all.iter().map(|of| (&*of.host.name, of.host.held_bytes)).collect();
        assert_eq!(held, [("n1", 110), ("n2", 100), ("10.1.2.3", 10)]);
        assert_eq!(wanted(&all).count(), 1);
        let none = asked()
            .ranked(&|host| if host == "n1" { BTreeSet::new() } else { BTreeSet::from([host.into()]) });
        assert_eq!(none[0].host.name, "n2");
    }

    #[test]
    fn machines_are_named_as_condor_has_them() {
        assert_eq!(is_machine("n1.example.org"), "TARGET.Machine == \"n1.example.org\"");
        assert_eq!(is_machine("n-1"), "regexp(\"^n-1([.]|$)\", TARGET.Machine, \"i\")");
        assert_eq!(is_machine("10.1.2.3"), "regexp(\"^<[[]?10[.]1[.]2[.]3[]]?:\", TARGET.MyAddress)");
    }
}
