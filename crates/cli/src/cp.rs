//! `eyas cp`: copies objects between homes, several at once. A name appears only when all its bytes are there.

use crate::homes::{self, Moving};
use crate::{Exit, Fault};
use clap::Args;
use eyas_storage::{Homes, Listing, Location, label_of};
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

#[derive(Args)]
pub struct CpArgs {
    /// Files, or patterns in quotes: paths or URLs
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<String>,
    /// The new name, or a directory for the old names: one that exists here, or one that ends in `/`
    #[arg(value_name = "TARGET")]
    target: String,
    /// Copy all files below the directories that the sources name, with their names from there on
    #[arg(short, long)]
    recursive: bool,
}

pub fn cp(args: CpArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let mut sources = vec![];
    for word in &args.sources {
        sources.extend(sources_of(&homes, word, args.recursive)?);
    }
    let into = args.recursive || sources.len() > 1 || homes::names_a_directory(&args.target);
    // The location of a directory as one object ends in `/`, that of files in it does not.
    let bare = homes::location(match args.target.trim_end_matches('/') {
        "" => "/",
        bare => bare,
    });
    // A data set has a `/` behind its label in any case.
    let target = bare.or_else(|_| homes::location(&args.target))?;
    let mut copies: BTreeMap<Location, Location> = BTreeMap::new();
    for (source, name) in sources {
        let to = if into { target.join(&name).map_err(homes::fault)? } else { target.clone() };
        if let Some(other) = copies.insert(to.clone(), source.clone()) {
            let message = format!("{} and {} would both become {}", other, source, to);
            return Err(Fault::new(Exit::BadInput, message));
        }
    }
    refuse_larger_sets(copies.keys())?;
    let copies: Vec<(Location, Location)> = copies.into_iter().collect();
    let moving = Moving::new(copies.len());
    homes::each(copies.len(), &|n| {
        let (to, from) = &copies[n];
        let opened = homes.open(from, None).map_err(homes::fault)?;
        let size_bytes = opened.stat.size_bytes;
        let mut body = Counted { reader: opened.reader, moving: &moving };
        homes.write(to, &mut body, Some(size_bytes)).map_err(homes::fault)?;
        moving.done();
        Ok(())
    })?;
    moving.end();
    Ok(Exit::Good)
}

/// What is written into a data set file by file is a data set of one file.
fn refuse_larger_sets<'l>(targets: impl Iterator<Item = &'l Location>) -> Result<(), Fault> {
    let mut labels = BTreeSet::new();
    for label in targets.filter_map(|target| label_of(target.as_str())) {
        if !labels.insert(label) {
            let message = format!(
                "several files would become the data set `{label}`, and each would replace the one before"
            );
            return Err(Fault::new(Exit::BadInput, message)
                .hint(format!("`eyas data put FILE... --label {label}` makes one data set of them")));
        }
    }
    Ok(())
}

/// The objects that a word stands for, each with its name in a target directory.
fn sources_of(homes: &Homes, word: &str, is_recursive: bool) -> Result<Vec<(Location, String)>, Fault> {
    let one = |location: Location| {
        let name = location.file_name();
        (location, name)
    };
    let is_here = std::fs::symlink_metadata(word).is_ok();
    let listing = homes::listing(word)?;
    match &listing {
        Listing::Glob { .. } if !is_here => {
            let found = homes.list(&listing).map_err(homes::fault)?;
            match found.is_empty() {
                true => Err(homes::nothing(word)),
                false => Ok(found.into_iter().map(one).collect()),
            }
        }
        _ if is_recursive => {
            let directory = homes::location(word)?;
            let found = homes.list(&Listing::Under(directory.clone())).map_err(homes::fault)?;
            let below = |location: Location| {
                let name = location.name_below(&directory).unwrap_or_else(|| location.file_name());
                (location, name)
            };
            Ok(found.into_iter().map(below).collect())
        }
        _ => {
            if std::path::Path::new(word).is_dir() {
                let message = format!("{} is a directory", shown(word));
                return Err(Fault::new(Exit::BadInput, message).hint("-r copies the files below it"));
            }
            Ok(vec![one(homes::location(word)?)])
        }
    }
}

struct Counted<'a> {
    reader: Box<dyn Read + Send>,
    moving: &'a Moving,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.moving.moved(n as u64);
        Ok(n)
    }
}
