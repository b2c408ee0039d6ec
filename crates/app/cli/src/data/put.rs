//! Verbs that change a data set or copy it to here.

use super::dead::refuse_dead;
use super::open::{Opened, compared, open};
use super::outside::Terminal;
use crate::fault::bad;
use crate::print::{plural, size};
use crate::{Exit, Fault};
use clap::Args;
use eyas_at_data::program::Unfinished;
use eyas_at_data::{label_or_new, target};
use eyas_catalog::{Caller, Catalog, Done, Folder, Key, Put, Rights, Site, SiteState, Subject, Tag};
use eyas_storage::LeftOut;
use eyas_text::{say, shown, shown_path};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct PutArgs {
    /// Files, and directories whose files keep their names from there on
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The label of the data set; one that is there gets a new version. Without it, a new one is made up
    #[arg(long)]
    label: Option<String>,
    /// A tag, which `eyas data find` finds; may be given again
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    tags: Vec<String>,
    /// How many copies there should be; `eyas data repair` makes them [default: 1]
    #[arg(long, value_name = "N")]
    copies: Option<u32>,
    /// The site that gets the first copy [default: one on this machine, else an idle one with most room]
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
}

pub fn put(db: Option<&str>, args: PutArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    let catalog = catalog.remembering(compared());
    let tags = tags_of(&args.tags)?;
    let site = match args.site {
        Some(site) => site,
        None => target(&catalog)?,
    };
    let is_draining = |known: &Site| known.name == site && known.state != SiteState::Up;
    if catalog.sites()?.iter().any(is_draining) {
        return Err(bad(format!(
            "the site `{site}` gives up its copies and takes no more: name another one"
        )));
    }
    args.sources.iter().try_for_each(|source| refuse_dead(source))?;
    let holding = catalog.holding(&site)?;
    let label = label_or_new(args.label.as_deref())?;
    // A store drops by itself what was on its way.
    let folder = catalog.sites()?.into_iter().find(|known| known.name == site && !known.is_store);
    let folder = folder.and_then(|known| Folder::open(Path::new(&known.address)).ok());
    let _unfinished = Unfinished::new(&Terminal, PathBuf::new(), move || {
        if let Some(folder) = &folder {
            folder.clear_own_incoming();
        }
    })?;
    catalog.make_room_for(&*holding, &args.sources, now_ms)?;
    let what = Put {
        sources: &args.sources,
        is_made: false,
        label: &label,
        copies: args.copies,
        tags: &tags,
        now_ms,
    };
    let is_live = eyas_text::stderr_is_terminal();
    let mut last = Instant::now();
    let done = eyas_catalog::put(&catalog, &*holding, &caller, &what, &mut |n_files, n_bytes| {
        if is_live && last.elapsed() >= Duration::from_millis(200) {
            last = Instant::now();
            let _ = eyas_text::redraw_line(&format!("{}, {}", plural(n_files, "file"), size(n_bytes)));
        }
    });
    if is_live {
        let _ = eyas_text::clear_line();
    }
    let done = done?;
    LeftOut::say_all(&done.odd);
    say_put(&catalog, &caller, &done, &site)?;
    match done.odd.len() as u64 {
        0 => Ok(Exit::Good),
        n => Err(Fault::new(
            Exit::Other,
            format!("{} could not be put, and all others are", plural(n, "name")),
        )),
    }
}

/// Says what was put, and prints the label alone on standard output.
pub fn say_put(catalog: &Catalog, caller: &Caller, done: &Done, site: &str) -> Result<(), Fault> {
    let key = &done.key;
    if let Some(error) = &done.unsealed {
        say!("the site did not write down what the version is ({error}); `eyas data repair` tries again");
    }
    if let Some(first) = done.left_out.first() {
        say!(
            "left out: {}{}, which belong to eyas itself (a catalog, the folder of a site, or keys)",
            shown_path(first),
            match done.left_out.len() as u64 - 1 {
                0 => String::new(),
                n => format!(" and {n} more"),
            }
        );
    }
    let set = catalog.show(caller, key)?;
    let version = set.versions.iter().find(|version| Some(version.number) == key.version);
    let version = version.expect("it was just committed");
    say!(
        "put {} of {} as version {} of `{}`, at the site `{site}`",
        plural(version.n_files, "file"),
        size(version.size_bytes),
        version.number,
        key.label
    );
    if done.n_left_out > 0 {
        say!(
            "sites have {} of `{}` before it that this catalog does not know, as after it was restored from an older backup: \
             `eyas data rebuild FOLDER` (or `--join FILE`) takes them in",
            plural(u64::from(done.n_left_out), "version"),
            key.label
        );
    }
    if set.copies > 1 {
        say!("{} copies are asked for: `eyas data repair` makes the others", set.copies);
    }
    show!("{}", key.label);
    Ok(())
}

pub fn tags_of(texts: &[String]) -> Result<Vec<Tag>, Fault> {
    let mut tags: Vec<Tag> = vec![];
    for text in texts {
        let tag = Tag::parse(text)?;
        if tags.iter().any(|other| other.name == tag.name) {
            return Err(bad(format!(
                "the tag `{}` is given twice; a data set has one value of it",
                tag.name
            )));
        }
        tags.push(tag);
    }
    Ok(tags)
}

#[derive(Args)]
pub struct GetArgs {
    /// LABEL, LABEL@VERSION, or one of them with /PATH for one file
    #[arg(value_name = "KEY")]
    key: String,
    /// The new directory, or the new file; it must not be there yet
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Read the copies at this site, and at no other one [default: copies on this machine, else at a site that is idle]
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
}

pub fn get(db: Option<&str>, args: &GetArgs) -> Result<Exit, Fault> {
    let opened = open(db)?;
    let (key, path) = Key::with_path(&args.key)?;
    refuse_dead(&args.target)?;
    let reader = opened.reader(&key, args.site.as_deref())?;
    if std::fs::symlink_metadata(&args.target).is_ok() {
        return Err(bad(format!("{} is there already; nothing was copied", shown_path(&args.target))));
    }
    let _unfinished = Unfinished::new(&Terminal, eyas_catalog::beside(&args.target), || {})?;
    if let Some(path) = path {
        reader.get(reader.file(path)?, &args.target)?;
        return Ok(Exit::Good);
    }
    let n_bytes = reader.get_all(&args.target)?.size_bytes;
    let n_files = plural(reader.files().len() as u64, "file");
    say!("{n_files} of {} are in {}", size(n_bytes), shown_path(&args.target));
    Ok(Exit::Good)
}

#[derive(Args)]
pub struct TagArgs {
    #[arg(value_name = "LABEL")]
    key: Key,
    /// Tags, in place of others of their names
    #[arg(value_name = "NAME=VALUE", required_unless_present = "away")]
    tags: Vec<String>,
    /// Take this tag away; may be given again
    #[arg(long = "remove", value_name = "NAME")]
    away: Vec<String>,
}

pub fn tag(db: Option<&str>, args: &TagArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    catalog.tag(&caller, &args.key, &tags_of(&args.tags)?, &args.away, now_ms)?;
    Ok(Exit::Good)
}

#[derive(Args)]
pub struct AclArgs {
    #[arg(value_name = "LABEL")]
    key: Key,
    /// Whom to give which rights: user:NAME=rl, group:NAME=rwla, everyone=r; `user:NAME=` takes them away
    #[arg(value_name = "WHO=RIGHTS")]
    entries: Vec<String>,
}

pub fn acl(db: Option<&str>, args: &AclArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    let mut entries: Vec<(Subject, Rights)> = vec![];
    for entry in &args.entries {
        let (who, rights) = entry.rsplit_once('=').ok_or_else(|| {
            bad(format!("{} is no entry of an access list: write user:NAME=rl", shown(entry)))
        })?;
        entries.push((who.parse()?, rights.parse()?));
    }
    if !entries.is_empty() {
        catalog.set_acl(&caller, &args.key, &entries, now_ms)?;
        for (site, reason) in catalog.spread_rights(&caller, &args.key)? {
            say!(
                "the site `{site}` does not know these rights yet, and is told by the next `eyas data repair`: {reason}"
            );
        }
    }
    let owner = catalog.show(&caller, &args.key)?.newest.owner;
    show!("user:{owner}=rwlax  (the owner)");
    for (who, rights) in catalog.acl(&caller, &args.key)? {
        show!("{who}={rights}");
    }
    Ok(Exit::Good)
}

#[derive(Args)]
pub struct RmArgs {
    /// LABEL for all versions, LABEL@VERSION for one
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<Key>,
}

pub fn rm(db: Option<&str>, args: &RmArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, now_ms } = open(db)?;
    for key in &args.keys {
        catalog.remove(&caller, key, now_ms)?;
    }
    say!("`eyas data repair` frees the room of what no data set needs any more");
    Ok(Exit::Good)
}
