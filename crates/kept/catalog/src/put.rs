//! From files on this machine to a committed version: walked, hashed while they are copied into a site, sealed.

use crate::access::Caller;
use crate::asking::{any_turn, ask_all};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::{BATCH_BYTES, BATCH_FILES};
use crate::holding::{Condition, Holding, Remembering};
use crate::key::Key;
use crate::own::Own;
use crate::reached::room_of;
use crate::sealed::File;
use crate::sets::Draft;
use crate::sites::{ReplicaState, Site, SiteState};
use crate::tags::Tag;
use eyas_data::Digest;
use eyas_folder::{LeftOut, files_below};
use eyas_keeping::sources::{Load, Target, order_targets};
use eyas_text::shown_path;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A site with less room is asked last.
const SOME_ROOM: u64 = 1 << 20;
/// The room of disks is compared in steps of so many bytes.
const ROUNDED: u64 = 1 << 30;

/// Pauses between two tries to commit what a repair may have aside.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(640);

/// What a data set is made of.
#[derive(Debug, Clone)]
pub struct Put<'a> {
    /// Files, and directories whose files keep their names from there on.
    pub sources: &'a [PathBuf],
    /// Whether a program made them, which may have put links to anything there: then links must lead to what it made.
    pub is_made: bool,
    pub label: &'a str,
    /// How many copies there should be; `None` leaves it.
    pub copies: Option<u32>,
    pub tags: &'a [Tag],
    pub now_ms: i64,
}

/// A data set that was put.
#[derive(Debug)]
pub struct Done {
    /// With its version.
    pub key: Key,
    /// Why the site did not write down what the version is.
    pub unsealed: Option<Error>,
    /// How many numbers before its own were left out, as sites have versions of theirs that the catalog does not know: it may have been
    /// restored from an older backup.
    pub n_left_out: u32,
    /// What was left out below the sources, as it is eyas's own: a catalog, the folder of a site, keys.
    pub left_out: Vec<PathBuf>,
    /// What was left out below the sources, as it is no file, may not be read, or has no name that a data set can have.
    pub odd: Vec<LeftOut>,
}

/// Puts files into a site and commits them as a version. `progress` is called with the files and bytes that are done.
///
/// # Errors
/// A source is not there, is neither a file nor a directory, or changes while it is read; none of the files can be read; the caller may not
/// write the data set, or it is more than its owner may have.
/// Then nothing is committed.
pub fn put(
    catalog: &Catalog,
    site: &dyn Holding,
    caller: &Caller,
    what: &Put<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Done> {
    let Walked { sources, left_out, mut odd } = walk(what.sources, what.is_made, &Own::of(catalog))?;
    catalog.require_writable(caller, what.label)?;
    require_room(catalog, caller, what.label, &sources)?;
    require_room_at(catalog, site.name(), &sources)?;
    let draft = catalog.begin(caller, what.label, what.copies, what.now_ms)?;
    let add = &mut |files: &[File]| catalog.add(&draft, files);
    let done = store(catalog, site, &sources, what.now_ms, progress, &mut odd, add).and_then(|n_files| {
        if n_files == 0 {
            return Err(nothing(&left_out, &odd));
        }
        commit(catalog, site, &draft, what.now_ms, &|| catalog.commit(caller, &draft, what.tags, what.now_ms))
    });
    Ok(Done { left_out, odd, ..end(catalog, site, caller, draft, done)? })
}

/// Copies what a program has made below a folder into a site, without a catalog; [`put_in_place`] makes a data set of it. Nothing is
/// kept where an error ends it.
///
/// # Errors
/// There is no file, or something that is none; a file cannot be read; the site cannot be written.
pub fn take_in(site: &dyn Holding, folder: &Path) -> Result<Vec<File>> {
    let sources = [folder.to_owned()];
    let Walked { sources, left_out, odd } = walk(&sources, true, &Own::default())?;
    if !left_out.is_empty() || sources.is_empty() {
        return Err(nothing(&left_out, &odd));
    }
    let mut batch = site.batch()?;
    let files: Result<Vec<File>> = sources
        .iter()
        .map(|source| {
            let from = source.open()?.map_err(|error| cannot_put(source, &error))?;
            read(source, from, site.name(), &mut |from| batch.add(from))
        })
        .collect();
    let files = files?;
    batch.keep().map_err(|error| cannot_write(site.name(), &error))?;
    Ok(files)
}

/// Commits files whose bytes a site has taken already ([`take_in`]) as a version. The site reads them through.
///
/// # Errors
/// The caller may not write the data set, or it is more than its owner or the site may have; the site has not got a file. Then nothing is
/// committed, and the next repair removes the files from the site.
pub fn put_in_place(
    catalog: &Catalog,
    site: &dyn Holding,
    caller: &Caller,
    what: &Put<'_>,
    files: &[File],
) -> Result<Done> {
    catalog.require_writable(caller, what.label)?;
    let draft = catalog.begin(caller, what.label, what.copies, what.now_ms)?;
    let put = || {
        catalog.add(&draft, files)?;
        let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
        catalog.expect_put(site.name(), &digests, what.now_ms)?;
        catalog.require_room(caller, what.label, files)?;
        let mut good = vec![];
        site.verify_all(&digests, &mut |n, condition| {
            if condition == Condition::Good {
                good.push(digests[n]);
            }
        })?;
        catalog.note_replicas(site.name(), &good, ReplicaState::Ready, what.now_ms)?;
        commit(catalog, site, &draft, what.now_ms, &|| catalog.commit(caller, &draft, what.tags, what.now_ms))
    };
    let done = put();
    end(catalog, site, caller, draft, done)
}

fn cannot_write(site: &str, error: &io::Error) -> Error {
    Error::Failed(format!("cannot write into the site `{site}`: {error}; nothing was put"))
}

impl Catalog {
    /// The site that gets files where nobody names one, see [`eyas_keeping::sources::order_targets`]; `near` are the sites on this
    /// machine.
    ///
    /// # Errors
    /// There is no site that is up, or none can be reached.
    pub fn target(&self, near: &dyn Fn(&Site) -> bool) -> Result<String> {
        let load = |site: &str| self.holding(site).and_then(|holding| holding.load()).ok();
        self.first_reached(near, &load, &|site| self.holding(site).map(|_| site.to_owned()))
    }

    /// What `reach` makes of the first site that it can reach, in the order of [`eyas_keeping::sources::order_targets`]. Room is
    /// what the catalog's limits leave, and of folders their disks. `load` asks a site what it is busy with, where that counts. All
    /// replicas are looked at, so this is nothing for each file.
    ///
    /// # Errors
    /// There is no site that is up, or none can be reached, for these reasons.
    pub(crate) fn first_reached<T>(
        &self,
        near: &dyn Fn(&Site) -> bool,
        load: &(dyn Fn(&str) -> Option<Load> + Sync),
        reach: &dyn Fn(&str) -> Result<T>,
    ) -> Result<T> {
        let room = |site: &Site| {
            let limit = site.keep_bytes.unwrap_or(u64::MAX).saturating_sub(site.size_bytes);
            match site.is_store {
                true => limit,
                // One that is away says so when it is reached. Folders of one disk, which others write to, have equal room.
                false => self.holding(&site.name).map_or(limit, |holding| {
                    let room = room_of(site, &*holding).saturating_sub(site.size_bytes);
                    if room < ROUNDED { room } else { room - room % ROUNDED }
                }),
            }
        };
        let mut sites = self.sites()?;
        sites.retain(|site| site.state == SiteState::Up);
        let target = |site| {
            let room_bytes = room(site);
            let (is_near, is_folder, has_room) = (near(site), !site.is_store, room_bytes >= SOME_ROOM);
            Target { site: &site.name, is_near, is_folder, has_room, room_bytes, load: None }
        };
        let mut targets: Vec<Target<'_>> = sites.iter().map(target).collect();
        if !targets.iter().any(|target| target.has_room && (target.is_near || target.is_folder)) {
            let names: Vec<&str> = targets.iter().map(|target| target.site).collect();
            let loads = if names.len() > 1 { ask_all(&names, load) } else { vec![] };
            targets.iter_mut().zip(loads).for_each(|(target, load)| target.load = load);
        }
        let mut reasons = vec![];
        for n in order_targets(&targets, any_turn()) {
            match reach(targets[n].site) {
                Ok(reached) => return Ok(reached),
                Err(error) => reasons.push(error),
            }
        }
        if reasons.is_empty() {
            let why = "the catalog has no site that is up: `eyas data site NAME FOLDER` adds one";
            return Err(Error::Conflict(why.into()));
        }
        if let [_] = &reasons[..] {
            return Err(reasons.remove(0));
        }
        let texts: Vec<String> = reasons.iter().map(Error::to_string).collect();
        let text = format!("no site can be reached: {}", texts.join("; "));
        Err(if reasons.iter().any(Error::is_temporary) { Error::Failed(text) } else { Error::Conflict(text) })
    }
}

/// Commits a draft whose bytes were put at a site. A repair may have an object aside for a moment, as it was not needed before, and who
/// looks in that moment says that it is missing. Then the site is asked again, for a short while.
pub(crate) fn commit(
    catalog: &Catalog,
    site: &dyn Holding,
    draft: &Draft,
    now_ms: i64,
    commit: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let committed = commit();
        if !matches!(committed, Err(Error::Conflict(_))) || pause > LAST_PAUSE {
            return committed;
        }
        let lacking = catalog.lacking(draft)?;
        if lacking.is_empty() {
            return committed;
        }
        let expected = catalog.expect(site.name(), &lacking, now_ms)?;
        catalog.come_back(site, expected, now_ms)?;
        thread::sleep(pause);
        pause *= 2;
    }
}

/// Ends a draft: where something failed it is given up, and else the site writes down what the version is.
pub(crate) fn end(
    catalog: &Catalog,
    site: &dyn Holding,
    caller: &Caller,
    draft: Draft,
    done: Result<()>,
) -> Result<Done> {
    if let Err(error) = done {
        // The first error is the one to be read.
        let _ = catalog.abandon(&draft);
        return Err(error);
    }
    // The data set is there, whatever becomes of the seal; the next repair writes it again.
    let sealed = catalog.sealed(caller, &draft.key)?;
    let unsealed = match site.seal(&sealed.key, &sealed.text()) {
        Ok(true) => None,
        // The catalog went back in time, and this site could not be asked before.
        Ok(false) => {
            catalog.forget_written();
            catalog.withdraw(&draft)?;
            return Err(Error::Conflict(format!(
                "the site `{}` has written down another `{}`, which this catalog does not know; nothing was put: try again, \
                 and another number is given",
                site.name(),
                draft.key
            )));
        }
        Err(error) => Some(error),
    };
    Ok(Done { unsealed, left_out: vec![], odd: vec![], n_left_out: draft.n_left_out, key: draft.key })
}

/// Refuses files that are too much for the owner of the data set before a byte of them is copied. Where they would be too much if all
/// their bytes were new, they are read to see which are, until that is too much.
fn require_room(catalog: &Catalog, caller: &Caller, label: &str, sources: &[Source]) -> Result<()> {
    let Some(room) = catalog.room(caller, label)? else { return Ok(()) };
    if bytes_of(sources)? <= room.free_bytes() {
        return Ok(());
    }
    let mut seen = HashSet::new();
    let mut added_bytes = 0;
    for sources in sources.chunks(BATCH_FILES) {
        let mut objects = BTreeMap::new();
        for source in sources {
            if let Some((digest, size_bytes)) = digest_of(source)?
                && seen.insert(digest)
            {
                objects.insert(digest, size_bytes);
            }
        }
        added_bytes += catalog.new_bytes(&room, &objects)?;
        room.require(added_bytes, label)?;
    }
    Ok(())
}

/// Refuses files that are more than the site may keep before a byte of them is copied. Where they would be too much if all their bytes were
/// new, they are read to see which are.
fn require_room_at(catalog: &Catalog, site: &str, sources: &[Source]) -> Result<()> {
    let Some(free_bytes) = catalog.free_at(site)? else { return Ok(()) };
    if bytes_of(sources)? <= free_bytes {
        return Ok(());
    }
    let objects: HashMap<Digest, u64> =
        sources.iter().filter_map(|source| digest_of(source).transpose()).collect::<Result<_>>()?;
    catalog.require_room_at(site, &objects)
}

fn bytes_of(sources: &[Source]) -> Result<u64> {
    sources.iter().try_fold(0_u64, |sum, source| match fs::metadata(&source.path) {
        Ok(found) => Ok(sum.saturating_add(found.len())),
        Err(error) if source.can_be_left_out(&error) => Ok(sum),
        Err(error) => Err(cannot_put(source, &error)),
    })
}

/// Reads a file; its digest and its size in bytes. `None`: it is left out.
fn digest_of(source: &Source) -> Result<Option<(Digest, u64)>> {
    let mut hasher = blake3::Hasher::new();
    let Ok(mut from) = source.open()? else { return Ok(None) };
    let size_bytes = io::copy(&mut from, &mut hasher).map_err(|error| cannot_put(source, &error))?;
    Ok(Some((Digest(*hasher.finalize().as_bytes()), size_bytes)))
}

fn cannot_put(source: &Source, error: &io::Error) -> Error {
    Error::Conflict(format!("cannot put {}: {error}", shown_path(&source.path)))
}

/// Copies the files' bytes into the site in batches; how many files there were. Each is added to the catalog before its bytes take their
/// places. What cannot be read comes to what is `odd`.
fn store(
    catalog: &Catalog,
    site: &dyn Holding,
    sources: &[Source],
    now_ms: i64,
    progress: &mut dyn FnMut(u64, u64),
    odd: &mut Vec<LeftOut>,
    add: &mut dyn FnMut(&[File]) -> Result<()>,
) -> Result<u64> {
    let (mut n_files, mut n_bytes) = (0, 0);
    let mut rest = sources;
    while !rest.is_empty() {
        let mut batch = site.batch()?;
        let mut files = vec![];
        let mut batch_bytes = 0;
        while let Some((source, after)) = rest.split_first()
            && files.len() < BATCH_FILES
            && batch_bytes < BATCH_BYTES
        {
            rest = after;
            let from = match source.open()? {
                Ok(from) => from,
                Err(why) => {
                    odd.push(LeftOut::of_bytes(source.path.as_os_str().as_bytes(), why));
                    continue;
                }
            };
            let file = read(source, from, site.name(), &mut |from| batch.add(from))?;
            batch_bytes += file.size_bytes;
            n_files += 1;
            n_bytes += file.size_bytes;
            progress(n_files, n_bytes);
            files.push(file);
        }
        if files.is_empty() {
            continue;
        }
        // The catalog knows that they are needed before they are there, so that no repair removes them.
        add(&files)?;
        let digests: Vec<_> = files.iter().map(|file| file.digest).collect();
        catalog.expect_put(site.name(), &digests, now_ms)?;
        batch.keep().map_err(|error| cannot_write(site.name(), &error))?;
        catalog.note_replicas(site.name(), &digests, ReplicaState::Ready, now_ms)?;
    }
    Ok(n_files)
}

/// A file to be put.
struct Source {
    path: PathBuf,
    name: String,
    /// It was found in a directory that may have files in it which cannot be put.
    is_listed: bool,
}

impl Source {
    /// Opens it; the inner error says why it is left out.
    ///
    /// # Errors
    /// It cannot be read, and nothing is put without it.
    fn open(&self) -> Result<io::Result<fs::File>> {
        match fs::File::open(&self.path) {
            Err(error) if !self.can_be_left_out(&error) => Err(cannot_put(self, &error)),
            opened => Ok(opened),
        }
    }

    /// Whether the error says something of this file, and nothing of the others, as `eyas cp -r` judges it.
    fn can_be_left_out(&self, error: &io::Error) -> bool {
        self.is_listed && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
    }
}

fn read(
    source: &Source,
    mut from: fs::File,
    site: &str,
    add: &mut dyn FnMut(&mut dyn Read) -> io::Result<(eyas_data::Digest, u64)>,
) -> Result<File> {
    let explain = |error: io::Error| cannot_put(source, &error);
    let before = from.metadata().map_err(explain)?;
    let mut reading = Remembering::new(&mut from);
    let added = add(&mut reading);
    let (digest, size_bytes) = match (added, reading.failure) {
        (Ok(added), _) => added,
        (Err(_), Some(failure)) => return Err(explain(failure)),
        (Err(error), None) => return Err(cannot_write(site, &error)),
    };
    let after = fs::metadata(&source.path).map_err(explain)?;
    if stamp(&before) != stamp(&after) || size_bytes != before.len() {
        return Err(Error::Conflict(format!(
            "{} changed while it was read; nothing was put: try again when nobody writes there",
            shown_path(&source.path)
        )));
    }
    let is_executable = before.permissions().mode() & 0o100 != 0;
    Ok(File { path: source.name.clone(), size_bytes, digest, is_executable })
}

fn stamp(of: &Metadata) -> (u64, u64, u64, i64, i64) {
    (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec())
}

/// What the sources of a put have in them.
struct Walked {
    /// By their names in the data set.
    sources: Vec<Source>,
    left_out: Vec<PathBuf>,
    odd: Vec<LeftOut>,
}

/// The files that the sources name. What is eyas's own is left out below a directory, and refused where it is named itself.
fn walk(sources: &[PathBuf], is_made: bool, own: &Own) -> Result<Walked> {
    let (mut found, mut left_out, mut odd) = (vec![], vec![], vec![]);
    for source in sources {
        let kind = fs::metadata(source)
            .map_err(|error| Error::bad(format!("cannot put {}: {error}", shown_path(source))))?
            .file_type();
        if let Some(what) = own.is_own(source) {
            return Err(Error::bad(format!(
                "{} is {what}, which belongs to eyas and into no data set: name something else",
                shown_path(source)
            )));
        }
        if kind.is_dir() {
            let mut refused = None;
            let mut skips = |path: &Path, _: &OsStr| {
                if is_made && leads_out_of(path, source) {
                    refused = refused.take().or_else(|| Some(of_link(path)));
                    return true;
                }
                let is_own = own.is_own(path).is_some();
                if is_own {
                    left_out.push(path.to_path_buf());
                }
                is_own
            };
            let below = files_below(source, &mut skips)
                .map_err(|error| Error::bad(format!("cannot read {}: {error}", shown_path(source))))?;
            if let Some(error) = refused {
                return Err(error);
            }
            if let Some(LeftOut { name, why }) = below.left_out.first().filter(|_| is_made) {
                return Err(Error::bad(format!("{name} can be in no data set: {why}")));
            }
            odd.extend(below.left_out);
            let listed = |name: String| Source { path: source.join(&name), name, is_listed: !is_made };
            found.extend(below.files.into_iter().map(listed));
        } else {
            let name = source.file_name().unwrap_or_default();
            if !kind.is_file() {
                let what = shown_path(source);
                return Err(Error::bad(format!(
                    "{what} is neither a file nor a directory; a data set has files only"
                )));
            }
            let name = text_of(Path::new(name), source)?;
            found.push(Source { path: source.clone(), name, is_listed: false });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(Error::bad(format!(
            "{} and {} would both become {}",
            shown_path(&pair[0].path),
            shown_path(&pair[1].path),
            eyas_text::shown(&pair[0].name)
        )));
    }
    if found.is_empty() {
        return Err(nothing(&left_out, &odd));
    }
    Ok(Walked { sources: found, left_out, odd })
}

/// The refusal of sources of which all was left out.
fn nothing(left_out: &[PathBuf], odd: &[LeftOut]) -> Error {
    let but = left_out.first().map(|first| format!(" but eyas's own, such as {}", shown_path(first)));
    let but = but.or_else(|| {
        let LeftOut { name, why } = odd.first()?;
        Some(format!(" but what can be in no data set, such as {name}: {why}"))
    });
    Error::bad(format!("there is no file in what is to be put{}", but.unwrap_or_default()))
}

/// Whether `path` is a link to something outside of a directory, or to nothing.
fn leads_out_of(path: &Path, directory: &Path) -> bool {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let target = || fs::canonicalize(path).ok().zip(fs::canonicalize(directory).ok());
    is_link && !target().is_some_and(|(target, directory)| target.starts_with(directory))
}

fn of_link(path: &Path) -> Error {
    Error::bad(format!(
        "{} is a symbolic link to something that the program did not make; a data set has files only",
        shown_path(path)
    ))
}

fn text_of(name: &Path, whole: &Path) -> Result<String> {
    name.to_str().map(str::to_owned).ok_or_else(|| {
        Error::bad(format!(
            "the name of {} is not UTF-8: rename it to put it into a data set",
            shown_path(whole)
        ))
    })
}
