//! Verbs that keep the copies: sites, audit, repair.

use super::open::{self, Opened, caller, now_ms, open};
use crate::args::some_bytes;
use crate::print::{plural, size};
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_catalog::{Catalog, Error, Folder, Key, SiteState, reason_of};
use eyas_text::{line_of, say};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct InitArgs {
    /// The folder of the first site [default: `site` beside the catalog of this user]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// The name of the first site
    #[arg(long, value_name = "NAME", default_value = "here")]
    site: String,
}

pub fn init(db: Option<&str>, args: &InitArgs) -> Result<Exit, Fault> {
    let url = open::url(db)?;
    let catalog = Catalog::init(&url, now_ms())?;
    if catalog.sites()?.is_empty() {
        let dir = match &args.dir {
            Some(dir) => dir.clone(),
            None => open::folder()?.join("site"),
        };
        add(&catalog, &args.site, &dir, None, None)?;
    }
    let sites = catalog.sites()?;
    say!("the catalog is {}, with {}", catalog.name(), plural(sites.len() as u64, "site"));
    Ok(Exit::Good)
}

fn add(
    catalog: &Catalog,
    name: &str,
    dir: &Path,
    domain: Option<&str>,
    keep: Option<u64>,
) -> Result<(), Fault> {
    let folder = Folder::make(&std::path::absolute(dir)?, name)?;
    let address = std::fs::canonicalize(dir)?;
    let address = address.to_str().ok_or_else(|| {
        crate::fault::bad(format!(
            "the path {} is not UTF-8; choose another folder",
            eyas_text::shown_path(&address)
        ))
    })?;
    Ok(catalog.add_site(&caller(), folder.name(), address, domain, keep, now_ms())?)
}

/// The site that is up, is on this machine and has the most room.
pub fn roomiest(catalog: &Catalog) -> Result<String, Fault> {
    let up = catalog.sites()?.into_iter().filter(|site| site.state == SiteState::Up);
    let here = up.filter(|site| catalog.folder(&site.name).is_ok());
    let room =
        |site: &eyas_catalog::Site| site.keep_bytes.unwrap_or(u64::MAX).saturating_sub(site.size_bytes);
    let best = here.max_by(|a, b| room(a).cmp(&room(b)).then(b.name.cmp(&a.name)));
    best.map(|site| site.name).ok_or_else(|| {
        Fault::new(Exit::BadInput, "the catalog has no site that is up on this machine")
            .hint("add one: eyas data site NAME FOLDER")
    })
}

#[derive(Args)]
pub struct RebuildArgs {
    /// Folders of sites
    #[arg(value_name = "FOLDER", required = true)]
    dirs: Vec<PathBuf>,
}

/// Makes the catalog anew from what its sites have written down.
pub fn rebuild(db: Option<&str>, args: &RebuildArgs) -> Result<Exit, Fault> {
    let catalog = Catalog::init(&open::url(db)?, now_ms())?;
    let mut exit = Exit::Good;
    for dir in &args.dirs {
        let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
        let rebuilt = catalog.rebuild(&caller(), &dir, None, now_ms())?;
        show!(
            "{}: {} taken over, {} good, {} bad",
            line_of(&dir.to_string_lossy()),
            plural(rebuilt.n_versions, "version"),
            plural(rebuilt.n_good, "object"),
            rebuilt.n_bad
        );
        for unreadable in &rebuilt.unreadable {
            exit = Exit::TasksFailed;
            say!("a seal cannot be read: {unreadable}");
        }
    }
    Ok(exit)
}

#[derive(Args)]
pub struct SiteArgs {
    /// The name of a new site; without it, all sites are listed
    #[arg(value_name = "NAME", requires = "dir")]
    name: Option<String>,
    /// Its folder, which is made
    #[arg(value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// What it may be lost together with, such as a room; copies are kept apart [default: its name]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Most bytes that it keeps [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    keep: Option<u64>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn site(db: Option<&str>, args: &SiteArgs) -> Result<Exit, Fault> {
    let Opened { catalog, .. } = open(db)?;
    if let (Some(name), Some(dir)) = (&args.name, &args.dir) {
        add(&catalog, name, dir, args.domain.as_deref(), args.keep)?;
    }
    let sites = catalog.sites()?;
    if args.json {
        json::write(&sites)?;
        return Ok(Exit::Good);
    }
    for site in sites {
        let keep = site.keep_bytes.map_or("no limit".to_owned(), size);
        let state = match site.state {
            SiteState::Up => "up",
            SiteState::Draining => "draining",
            SiteState::Gone => "gone",
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
    /// Sites; without any, all that are on this machine
    #[arg(value_name = "SITE")]
    sites: Vec<String>,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn audit(db: Option<&str>, args: &AuditArgs) -> Result<Exit, Fault> {
    let Opened { catalog, now_ms, .. } = open(db)?;
    let mut names = args.sites.clone();
    if names.is_empty() {
        let sites = catalog.sites()?.into_iter().filter(|site| site.state != SiteState::Gone);
        names = sites.map(|site| site.name).collect();
    }
    let mut audits = vec![];
    let mut is_good = true;
    for name in &names {
        match catalog.audit(name, now_ms, &mut |_| {}) {
            Ok(audit) => {
                is_good &= audit.bad.is_empty() && audit.missing.is_empty();
                audits.push(audit);
            }
            Err(error @ (Error::Locked { .. } | Error::Away { .. } | Error::Database { .. })) => {
                return Err(error.into());
            }
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
            for (what, digests) in
                [("bad", &audit.bad), ("missing", &audit.missing), ("foreign", &audit.foreign)]
            {
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

pub fn repair(db: Option<&str>, args: &RepairArgs) -> Result<Exit, Fault> {
    let Opened { catalog, now_ms, .. } = open(db)?;
    let repair = catalog.repair(now_ms, &mut |_| {})?;
    let exit = if repair.short.is_empty() { Exit::Good } else { Exit::TasksFailed };
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
    for (site, reason) in &repair.away {
        say!("the site `{site}` took no part: {reason}");
    }
    for short in &repair.short {
        show!(
            "short: {} of `{}` lacks {}: {}",
            line_of(&short.path),
            short.key,
            plural(u64::from(short.n_missing), "copy"),
            reason_of(short.reason)
        );
    }
    Ok(exit)
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
