//! Verbs that show data sets and change nothing.

use super::open::{Opened, open};
use crate::print::{count, plural, size};
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_catalog::{FoundSet, Key, ReplicaState, Site, SiteState, Whereabouts, date_text};
use eyas_text::line_of;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most data sets that are shown unless the user says otherwise.
const LISTED_MAX: u64 = 100;

#[derive(Args)]
pub struct FindArgs {
    /// Such as 'protein = adk and frames > 90'; without it, all data sets
    #[arg(value_name = "QUERY")]
    query: Option<String>,
    /// Most data sets that are shown
    #[arg(long, value_name = "N", default_value_t = LISTED_MAX)]
    limit: u64,
    /// Print labels only, for scripts
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn find(db: Option<&str>, args: &FindArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(db)?;
    let mut found = catalog.find(&caller, args.query.as_deref(), args.limit.saturating_add(1))?;
    let is_more = found.len() as u64 > args.limit;
    found.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
    if args.json {
        json::write(&found)?;
        return Ok(Exit::Good);
    }
    if args.quiet {
        for set in &found {
            show!("{}", set.label);
        }
    } else {
        let width = found.iter().map(|set| set.label.len()).max().unwrap_or(0);
        for set in &found {
            show!("{:<width$}  {}", set.label, brief(set));
        }
    }
    match (found.len(), is_more) {
        (0, _) => eyas_text::say!("no data set that you may list matches"),
        (n, true) => eyas_text::say!("the newest {}; `eyas data find --limit N` shows more", count(n as u64)),
        _ => {}
    }
    Ok(Exit::Good)
}

/// `@2  3 files  1.2 MiB  alice  2026-11-25  protein=adk frames=90`
fn brief(set: &FoundSet) -> String {
    format!(
        "@{:<3} {:>12} {:>10}  {:<10}  {}  {}",
        set.version,
        plural(set.n_files, "file"),
        size(set.size_bytes),
        line_of(&set.owner),
        &date_text(set.created_ms)[..10],
        line_of(&tags_of(&set.tags))
    )
}

fn tags_of(tags: &BTreeMap<String, String>) -> String {
    let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    tags.join(" ")
}

#[derive(Args)]
pub struct KeyArgs {
    /// LABEL, or LABEL@VERSION
    #[arg(value_name = "KEY")]
    key: Key,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct LsArgs {
    /// LABEL, or LABEL@VERSION [default: all data sets, as `eyas data find` lists them]
    #[arg(value_name = "KEY")]
    key: Option<Key>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
    /// Show sizes and digests, too
    #[arg(short, long)]
    long: bool,
}

pub fn ls(db: Option<&str>, args: &LsArgs) -> Result<Exit, Fault> {
    let Some(key) = &args.key else {
        let all = FindArgs { query: None, limit: LISTED_MAX, quiet: false, json: args.json };
        return find(db, &all);
    };
    let Opened { catalog, caller, .. } = open(db)?;
    let files = catalog.files(&caller, key)?;
    if args.json {
        json::write(&files)?;
        return Ok(Exit::Good);
    }
    for file in files {
        match args.long {
            true => {
                let mark = if file.is_executable { '*' } else { ' ' };
                show!("{:>10}  {}  {}{mark}", size(file.size_bytes), file.digest, line_of(&file.path));
            }
            false => show!("{}", line_of(&file.path)),
        }
    }
    Ok(Exit::Good)
}

pub fn show(db: Option<&str>, args: &KeyArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(db)?;
    let set = catalog.show(&caller, &args.key)?;
    if args.json {
        json::write(&set)?;
        return Ok(Exit::Good);
    }
    show!("label     {}", set.newest.label);
    show!("owner     {}", line_of(&set.newest.owner));
    show!("created   {}", date_text(set.newest.created_ms));
    show!("copies    {} of each file are asked for", set.copies);
    for (name, value) in &set.newest.tags {
        show!("tag       {name}={}", line_of(value));
    }
    for version in &set.versions {
        show!(
            "version   @{}  {}  {}  {}",
            version.number,
            date_text(version.committed_ms),
            plural(version.n_files, "file"),
            size(version.size_bytes)
        );
    }
    Ok(Exit::Good)
}

/// A copy, in JSON.
#[derive(serde::Serialize)]
struct WhereRow<'c> {
    #[serde(flatten)]
    replica: &'c Whereabouts,
    /// Why its site cannot be reached from here now; `null`: it answers.
    away: Option<&'c String>,
}

pub fn whereabouts(db: Option<&str>, args: &KeyArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(db)?;
    let replicas = catalog.whereabouts(&caller, &args.key)?;
    let sites = catalog.sites()?;
    let held: BTreeSet<&str> = replicas.iter().map(|replica| &*replica.site).collect();
    let asked = sites.iter().filter(|site| site.state != SiteState::Gone && held.contains(&*site.name));
    let away = catalog.away(asked.map(|site| &*site.name))?;
    if args.json {
        let rows: Vec<_> =
            replicas.iter().map(|replica| WhereRow { replica, away: away.get(&replica.site) }).collect();
        json::write(&rows)?;
        return Ok(Exit::Good);
    }
    let copies = catalog.show(&caller, &args.key)?.copies;
    let is_up = |site: &&Site| site.state == SiteState::Up && !away.contains_key(&site.name);
    let up: HashSet<String> = sites.iter().filter(is_up).map(|site| site.name.clone()).collect();
    let mut n_good: BTreeMap<&str, u64> = BTreeMap::new();
    for replica in &replicas {
        let counts = replica.state == ReplicaState::Ready && up.contains(&replica.site);
        *n_good.entry(&replica.path).or_default() += u64::from(counts);
    }
    // One line for all files that are at the same sites.
    let mut sites_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for replica in &replicas {
        let site = match replica.state {
            ReplicaState::Ready if away.contains_key(&replica.site) => format!("{} (away)", replica.site),
            ReplicaState::Ready => replica.site.clone(),
            ReplicaState::Creating => format!("{} (comes)", replica.site),
            ReplicaState::Bad => format!("{} (bad)", replica.site),
            ReplicaState::Deleting => format!("{} (goes)", replica.site),
        };
        sites_of.entry(&replica.path).or_default().push(site);
    }
    let files = catalog.files(&caller, &args.key)?;
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in &files {
        let mut sites = sites_of.get(&*file.path).map(|sites| sites.join(", ")).unwrap_or_default();
        let n_good = n_good.get(&*file.path).copied().unwrap_or(0);
        if let n_spare @ 1.. = n_good.saturating_sub(u64::from(copies)) {
            sites += &format!(" ({n_spare} more than asked for)");
        }
        alike.entry(sites).or_default().push(&file.path);
    }
    for (sites, paths) in alike {
        let sites = if sites.is_empty() { "no site".to_owned() } else { sites };
        match paths.as_slice() {
            [path] => show!("{}: {sites}", line_of(path)),
            paths => show!("{}: {sites}", plural(paths.len() as u64, "file")),
        }
    }
    for (site, reason) in &away {
        eyas_text::say!("the site `{}` cannot be reached now: {}", line_of(site), line_of(reason));
    }
    Ok(Exit::Good)
}

pub fn history(db: Option<&str>, args: &KeyArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(db)?;
    let entries = catalog.history(&caller, &args.key)?;
    if args.json {
        json::write(&entries)?;
        return Ok(Exit::Good);
    }
    for entry in entries {
        let (at, who) = (date_text(entry.at_ms), line_of(&entry.caller));
        show!("{at}  {who:<10}  {:<7}  {}", entry.verb, line_of(&entry.detail));
    }
    Ok(Exit::Good)
}
