//! Verbs that keep the copies: sites, audit, repair.

use super::dead::refuse_dead;
use super::open::{self, Opened, caller, compared, now_ms, open};
use crate::args::{duration, some_bytes};
use crate::print::{plural, size};
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_catalog::{
    Audit, Catalog, Folder, Holding, Joining, Key, NewSite, Rebuilt, Repair, ShortFile, Site, SiteState,
    reason_of,
};
use eyas_keeping::verification::Pace;
use eyas_site::Remote;
use eyas_text::{line_of, say, shown_path};
use eyas_wire::identity::Join;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct InitArgs {
    /// The folder of the first site [default: `site` beside the catalog of this user; none for a catalog in PostgreSQL, whose users
    /// may be on many machines]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// The name of the first site
    #[arg(long, value_name = "NAME", default_value = "here")]
    site: String,
}

pub fn init(db: Option<&str>, args: &InitArgs) -> Result<Exit, Fault> {
    let url = open::url(db)?;
    let catalog = open::reaching(Catalog::init(&url, now_ms())?);
    let dir = match &args.dir {
        Some(dir) => Some(dir.clone()),
        // A folder of this user's would be nobody else's to use.
        None if is_of_server(&url) => None,
        None => Some(open::folder()?.join("site")),
    };
    if let (Some(dir), true) = (dir, catalog.sites()?.is_empty()) {
        let folder = Folder::make(&std::path::absolute(&dir)?, &args.site)?;
        let (address, _) = located(&dir)?;
        let new = NewSite { name: folder.name(), address: &address, ..NewSite::default() };
        catalog.join_site(&caller(), &folder, &new, Joining::Comes, now_ms())?;
    }
    let sites = catalog.sites()?;
    say!("the catalog is {}, with {}", catalog.name(), plural(sites.len() as u64, "site"));
    if sites.is_empty() {
        say!("where there is room: eyas store --dir FOLDER, and then here: eyas data site --join FILE");
    }
    Ok(Exit::Good)
}

fn is_of_server(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// The path of a site's folder, as the catalog keeps it.
fn located(dir: &Path) -> Result<(String, PathBuf), Fault> {
    let path = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    match path.to_str() {
        Some(text) => Ok((text.to_owned(), path)),
        None => Err(crate::fault::bad(format!(
            "the path {} is not UTF-8; choose another folder",
            eyas_text::shown_path(&path)
        ))),
    }
}

/// A store that is named by its join file, and the text of that file.
fn store_of(join: &Path) -> Result<(Remote, String), Fault> {
    let (_, text) = Join::read_of_store(join).map_err(|error| crate::fault::bad(error.to_string()))?;
    let connected = Remote::connect(&text);
    Ok((
        connected
            .map_err(|error| Fault::from(error).hint(format!("the join file is {}", shown_path(join))))?,
        text,
    ))
}

#[derive(Args)]
pub struct RebuildArgs {
    /// Folders of sites
    #[arg(value_name = "FOLDER", required_unless_present = "joins")]
    dirs: Vec<PathBuf>,
    /// The join file of a store; may be given again
    #[arg(long = "join", value_name = "FILE")]
    joins: Vec<PathBuf>,
}

/// Makes the catalog anew from what its sites have written down.
pub fn rebuild(db: Option<&str>, args: &RebuildArgs) -> Result<Exit, Fault> {
    let catalog = Catalog::init(&open::url(db)?, now_ms())?;
    let mut is_good = true;
    for dir in &args.dirs {
        let (address, path) = located(dir)?;
        let folder = Folder::open(&path)?;
        let new = NewSite { name: folder.name(), address: &address, ..NewSite::default() };
        let rebuilt = catalog.rebuild(&caller(), &folder, &new, now_ms())?;
        is_good &= tell_rebuilt(&address, &rebuilt);
    }
    for join in &args.joins {
        let (store, text) = store_of(join)?;
        let (name, address) = (store.name(), store.address());
        let new = NewSite {
            name,
            address,
            join: Some(&text),
            keep_bytes: store.keep_bytes(),
            ..NewSite::default()
        };
        let rebuilt = catalog.rebuild(&caller(), &store, &new, now_ms())?;
        is_good &= tell_rebuilt(address, &rebuilt);
    }
    Ok(if is_good { Exit::Good } else { Exit::TasksFailed })
}

/// Whether all seals could be read.
fn tell_rebuilt(site: &str, rebuilt: &Rebuilt) -> bool {
    show!(
        "{}: {} taken over, {} good, {} bad",
        line_of(site),
        plural(rebuilt.n_versions, "version"),
        plural(rebuilt.n_good, "object"),
        rebuilt.n_bad
    );
    for unreadable in &rebuilt.unreadable {
        say!("a seal cannot be read: {unreadable}");
    }
    rebuilt.unreadable.is_empty()
}

#[derive(Args)]
pub struct SiteArgs {
    /// The name of a new site; without it, all sites are listed
    #[arg(value_name = "NAME", requires = "dir")]
    name: Option<String>,
    /// Its folder, which is made
    #[arg(value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Add the site that `eyas store` serves on another machine and has written this file for; one that is there
    /// already gets its new address
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    join: Option<PathBuf>,
    /// Let it take the place of the site of its name, whose folder is gone for good
    #[arg(long)]
    replace: bool,
    /// What it may be lost together with, such as a room; copies are kept apart [default: its name]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Most bytes that it keeps [default: no limit, or that of the store]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    keep: Option<u64>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

/// A site as `--json` prints it.
#[derive(serde::Serialize)]
struct Listed {
    #[serde(flatten)]
    site: Site,
    /// Whether it can be reached now, and is the site that the catalog knows.
    answers: bool,
}

pub fn site(db: Option<&str>, args: &SiteArgs) -> Result<Exit, Fault> {
    let Opened { catalog, .. } = open(db)?;
    let how = if args.replace { Joining::Replaces } else { Joining::Comes };
    if let (Some(name), Some(dir)) = (&args.name, &args.dir) {
        refuse_dead(dir)?;
        let folder = Folder::make(&std::path::absolute(dir)?, name)?;
        let (address, _) = located(dir)?;
        let domain = args.domain.as_deref();
        let new = NewSite {
            name: folder.name(),
            address: &address,
            domain,
            keep_bytes: args.keep,
            ..NewSite::default()
        };
        catalog.join_site(&caller(), &folder, &new, how, now_ms())?;
    }
    if let Some(join) = &args.join {
        let (store, text) = store_of(join)?;
        let new = NewSite {
            name: store.name(),
            address: store.address(),
            domain: args.domain.as_deref(),
            keep_bytes: args.keep.or(store.keep_bytes()),
            join: Some(&text),
        };
        catalog.join_site(&caller(), &store, &new, how, now_ms())?;
    }
    let sites = catalog.sites()?;
    // Stores are asked all at once: one that is away answers late.
    let answers: Vec<bool> = std::thread::scope(|scope| {
        let ask = |name: String| {
            let catalog = &catalog;
            scope.spawn(move || catalog.holding(&name).is_ok())
        };
        let asked: Vec<_> = sites.iter().map(|site| ask(site.name.clone())).collect();
        asked.into_iter().map(|answer| answer.join().unwrap_or(false)).collect()
    });
    if args.json {
        let all = sites.into_iter().zip(answers).map(|(site, answers)| Listed { site, answers });
        json::write(&all.collect::<Vec<_>>())?;
        return Ok(Exit::Good);
    }
    for (site, answers) in sites.into_iter().zip(answers) {
        let keep = site.keep_bytes.map_or("no limit".to_owned(), size);
        let state = match site.state {
            SiteState::Gone => "gone",
            _ if !answers => "away",
            SiteState::Up => "up",
            SiteState::Draining => "draining",
        };
        show!(
            "{:<12} {state:<8} {:>14} {:>10} of {keep:<10} {:<12} {}",
            site.name,
            plural(site.n_replicas, "object"),
            size(site.size_bytes),
            line_of(&site.domain),
            line_of(&site.address)
        );
    }
    Ok(Exit::Good)
}

#[derive(Args)]
pub struct CopiesArgs {
    #[arg(value_name = "LABEL")]
    key: Key,
    #[arg(value_name = "N")]
    copies: u32,
}

pub fn copies(db: Option<&str>, args: &CopiesArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    catalog.set_copies(&caller, &args.key, args.copies, now_ms)?;
    say!("`eyas data repair` makes the copies that are missing");
    Ok(Exit::Good)
}

#[derive(Args)]
pub struct AuditArgs {
    /// Sites; without any, all
    #[arg(value_name = "SITE")]
    sites: Vec<String>,
    /// Read all copies now; this is what it does unless `--older` is given
    #[arg(long, conflicts_with = "older")]
    now: bool,
    /// Read only copies that were read through longer ago than this, or never; foreign ones are not looked for
    #[arg(long, value_name = "TIME", value_parser = duration)]
    older: Option<u64>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

impl AuditArgs {
    fn audit(&self, catalog: &Catalog, site: &str, now_ms: i64) -> eyas_catalog::Result<Audit> {
        match self.older {
            Some(older_ns) if !self.now => {
                let pace = Pace { period_ms: older_ns / 1_000_000, look_ms: 0, most_bytes: None };
                catalog.audit_due(site, pace, now_ms)
            }
            _ => catalog.audit(site, now_ms, &mut |_| {}),
        }
    }
}

pub fn audit(db: Option<&str>, args: &AuditArgs) -> Result<Exit, Fault> {
    let Opened { catalog, now_ms, .. } = open(db)?;
    let catalog = catalog.remembering(compared());
    let mut names = args.sites.clone();
    let sites = catalog.sites()?;
    if names.is_empty() {
        let sites = sites.iter().filter(|site| site.state != SiteState::Gone);
        names = sites.map(|site| site.name.clone()).collect();
    }
    let mut audits = vec![];
    let mut is_good = true;
    for name in &names {
        match args.audit(&catalog, name, now_ms) {
            Ok(audit) => {
                is_good &= audit.bad.is_empty() && audit.missing.is_empty();
                audits.push(audit);
            }
            Err(error) if error.is_of_database() => return Err(error.into()),
            Err(error) if !sites.iter().any(|site| site.name == *name) => return Err(error.into()),
            Err(error) => {
                is_good = false;
                say!("the site `{name}` was not audited: {error}");
            }
        }
    }
    if args.json {
        json::write(&audits)?;
    } else {
        for audit in &audits {
            show!(
                "{:<12} {} good ({}), {} bad, {} missing, {} foreign",
                audit.site,
                audit.n_good,
                size(audit.good_bytes),
                audit.bad.len(),
                audit.missing.len(),
                audit.foreign.len()
            );
            for (what, digests) in [
                ("bad", &audit.bad),
                ("missing", &audit.missing),
                ("found", &audit.found),
                ("foreign", &audit.foreign),
            ] {
                for digest in digests {
                    show!("  {what:<8} {digest}");
                }
            }
        }
    }
    Ok(if is_good { Exit::Good } else { Exit::TasksFailed })
}

#[derive(Args)]
pub struct RepairArgs {
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

/// How often a repair waits for others that make the same copies.
const AWAITED_MAX: usize = 20;

pub fn repair(db: Option<&str>, args: &RepairArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    let mut repair = catalog.repair(now_ms, &mut |_| {})?;
    // What others make now is waited for, and what they did not make is made then.
    for _ in 0..AWAITED_MAX {
        if repair.n_coming == 0 {
            break;
        }
        catalog.await_others(open::now_ms(), &mut |who| eyas_text::say!("note: {who}"))?;
        let before = repair;
        repair = catalog.repair(open::now_ms(), &mut |_| {})?;
        repair.n_copies += before.n_copies;
        repair.copied_bytes += before.copied_bytes;
        repair.n_removed += before.n_removed;
    }
    catalog.name_short(&caller, &mut repair)?;
    let is_done = repair.short.is_empty() && repair.n_not_made + repair.n_coming == 0;
    let exit = if is_done { Exit::Good } else { Exit::TasksFailed };
    if args.json {
        json::write(&repair)?;
        return Ok(exit);
    }
    show!(
        "{} made ({}), {} removed that nobody needs",
        plural(repair.n_copies, "copy"),
        size(repair.copied_bytes),
        plural(repair.n_removed, "object")
    );
    if repair.n_not_made > 0 {
        let n = plural(repair.n_not_made, "copy");
        say!("{n} could not be made; another `eyas data repair` tries again");
    }
    if repair.n_coming > 0 {
        say!("{} left to other repairs, which make copies now", plural(repair.n_coming, "copy"));
    }
    for (site, reason) in &repair.away {
        say!("the site `{site}` took no part: {reason}");
    }
    say_other(&repair);
    for unknown in catalog.unknown_versions()? {
        say!(
            "the site `{}` has written down {} that this catalog does not know, such as `{}`: `eyas data rebuild` takes them in",
            unknown.site,
            plural(unknown.n_versions, "version"),
            line_of(&unknown.example)
        );
    }
    for line in short_lines(&repair) {
        show!("{line}");
    }
    Ok(exit)
}

/// Says where sites have other versions under keys of the catalog.
pub fn say_other(repair: &Repair) {
    for (site, key) in &repair.other {
        say!(
            "the site `{site}` has written down another `{}` than this catalog has, and keeps it; a catalog that is made anew \
             from that site has that one",
            line_of(key)
        );
    }
}

/// What is short of copies. Files of one data set that are alike have one line.
pub fn short_lines(repair: &Repair) -> Vec<String> {
    let alike =
        |a: &ShortFile, b: &ShortFile| (&a.key, a.n_missing, a.reason) == (&b.key, b.n_missing, b.reason);
    let lines = repair.short.chunk_by(alike).map(|alike| {
        let first = &alike[0];
        let (others, lack) = match alike.len() as u64 - 1 {
            0 => (String::new(), "lacks"),
            n => (format!(" and {}", plural(n, "other file")), "lack"),
        };
        let of = match (&first.path, &first.key) {
            (Some(path), Some(key)) => format!("{}{others} of `{key}`", line_of(path)),
            _ => format!("{} of data sets that you may not list", plural(alike.len() as u64, "file")),
        };
        let n_missing = plural(u64::from(first.n_missing), "copy");
        format!("short: {of} {lack} {n_missing}: {}", reason_of(first.reason))
    });
    lines.collect()
}

#[derive(Args)]
pub struct DrainArgs {
    #[arg(value_name = "SITE")]
    site: String,
    /// Let it take copies again
    #[arg(long)]
    undo: bool,
}

pub fn drain(db: Option<&str>, args: &DrainArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    let state = if args.undo { SiteState::Up } else { SiteState::Draining };
    catalog.set_site_state(&caller, &args.site, state, now_ms)?;
    if !args.undo {
        say!("`eyas data repair` copies to other sites what `{}` has", args.site);
    }
    Ok(Exit::Good)
}
