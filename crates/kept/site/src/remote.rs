//! The side of the catalog: a store elsewhere, used like a folder of this machine.

use crate::protocol::{
    Ask, BEAT, DIGESTS, IDLE_USED, PIECE_BYTES, PLACE_WAIT_MAX, QUEUED_BYTES, SILENCE_MAX, Tell,
};
use bytes::Bytes;
use eyas_catalog::{
    Arrivals, Aside, Blocks, Condition, Error, Holding, Key, Permit, Reach, Result, Sealed, SitePlace,
    StoreUser, is_plain_path,
};
use eyas_data::{Digest, n_groups};
use eyas_keeping::sources::Load;
use eyas_net::{NetError, Writer};
use eyas_terms::Timestamp;
use eyas_terms::home_wait::{HomeWait, Tries};
use eyas_wire::identity::{Identity, Join};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Answers that have arrived and were not used yet.
const WAITING: usize = 8;

/// The thread that all connections of this process share.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime with one thread can be made")
    })
}

/// Reaches the stores whose join files a catalog has.
pub struct Stores;

impl Reach for Stores {
    fn reach(&self, site: &str, join: &str) -> Result<Box<dyn Holding>> {
        let remote = Remote::connect(join)?;
        match remote.name == site {
            true => Ok(Box::new(remote)),
            false => Err(Error::Conflict(format!(
                "the store at {} is the site `{}` now, not `{site}`",
                remote.address, remote.name
            ))),
        }
    }

    fn key_for(&self, join: &str, user: &str) -> Result<(String, [u8; 32])> {
        let bad =
            |reason: String| Error::BadInput(format!("the join file of the store is damaged: {reason}"));
        let own: Join = serde_json::from_str(join).map_err(|error| bad(error.to_string()))?;
        if own.through.is_some() {
            return Err(Error::Conflict(
                "the store waits at a hub, where only who has its own key reaches it, and no user".into(),
            ));
        }
        let (of_user, key) = own.for_user(user).map_err(|error| bad(error.to_string()))?;
        Ok((serde_json::to_string(&of_user).expect("plain strings"), key.0))
    }
}

/// Why there is no connection, in words that follow the name of a site.
pub(crate) enum NotIn {
    /// There is no place for it now.
    Busy(String),
    Other(String),
}

/// What a store says of itself.
struct Site {
    name: String,
    keep_bytes: Option<u64>,
    place: SitePlace,
}

fn say_waits(site: &str, reason: &str) {
    let most_s = PLACE_WAIT_MAX.as_secs();
    eyas_text::say!("the site `{site}` has no place now: {reason}; it is waited for up to {most_s} s");
}

/// Says that this side is there, until it is dropped.
struct Alive(tokio::task::JoinHandle<()>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where a program printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    ToStdout,
    ToStderr,
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::Conflict(format!("cannot write {}: {error}", eyas_text::shown_path(path)))
}

/// How a program at a site ended.
pub struct RunAtSite {
    /// What its plan's reader says of it.
    pub report: Vec<u8>,
    /// The files that it made, where the store keeps them.
    pub kept: Vec<eyas_catalog::File>,
}

/// A store elsewhere. Connections are kept for the next request.
pub struct Remote {
    name: String,
    address: String,
    keep_bytes: Option<u64>,
    place: SitePlace,
    route: Route,
    /// Connections on which nothing is asked, and since when.
    idle: Mutex<Vec<(Link, Instant)>>,
}

/// How a store is reached.
struct Route {
    identity: Identity,
    /// Whether the identity is a user's, and not the store's own.
    is_user: bool,
    /// The hub at which the store waits, if it has no address of its own.
    hub: Option<Box<Join>>,
}

impl Remote {
    /// Connects to the store that has written this join file.
    ///
    /// # Errors
    /// The text is no join file of a store; the store does not answer, or does not let us in.
    pub fn connect(join: &str) -> Result<Remote> {
        let join: Join = serde_json::from_slice(join.as_bytes())
            .map_err(|error| Error::BadInput(format!("the join file of the store is damaged: {error}")))?;
        let Some(name) = join.store else {
            return Err(Error::BadInput(format!(
                "the join file is of the dispatcher at {}, not of a store: `eyas store` writes the one that is needed",
                join.address
            )));
        };
        let mut remote = Remote {
            name,
            address: join.address,
            keep_bytes: None,
            place: SitePlace::default(),
            route: Route { identity: join.identity, is_user: join.user.is_some(), hub: join.through },
            idle: Mutex::default(),
        };
        let (link, Site { name, keep_bytes, place }) = remote.new_link()?;
        (remote.name, remote.keep_bytes, remote.place) = (name, keep_bytes, place);
        remote.put_back(link);
        Ok(remote)
    }

    /// `host:port`
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Most bytes that the store keeps.
    pub fn keep_bytes(&self) -> Option<u64> {
        self.keep_bytes
    }

    /// What the store is busy with, and how many programs it may run; `None`: it runs none for others.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn load_and_programs(&self) -> Result<(Load, Option<u32>)> {
        let mut link = self.link()?;
        link.send(&Ask::Load);
        match link.next().map_err(|reason| self.away(reason))? {
            Tell::Load { n_transfers, n_programs, n_programs_max } => {
                self.put_back(link);
                Ok((Load { n_transfers, n_programs }, n_programs_max))
            }
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the store run a program by a plan. What it prints is given to `printed`, as an error or not, and what it made is put below
    /// `outputs`; `None`: it becomes objects of the store. Returns its report; `None`: as many programs run there as may. The store ends
    /// the program if this process ends, or is cut off from it.
    ///
    /// # Errors
    /// The store does not answer, runs no program now, or lost the program; a file cannot be written here.
    pub fn run(
        &self,
        plan: Vec<u8>,
        outputs: Option<&Path>,
        printed: &mut dyn FnMut(Ran, &[u8]),
    ) -> Result<Option<RunAtSite>> {
        let mut link = self.link()?;
        link.send(&Ask::Run { plan: plan.into(), keeps_outputs: outputs.is_none() });
        let writer = link.writer.clone();
        let _alive = Alive(runtime().spawn(async move {
            loop {
                tokio::time::sleep(BEAT).await;
                writer.send(&Ask::Alive);
            }
        }));
        let (mut report, mut file, mut kept) = (None, None, vec![]);
        loop {
            match link.next().map_err(|reason| self.away(reason))? {
                Tell::Printed(is_error, piece) => {
                    printed(if is_error { Ran::ToStderr } else { Ran::ToStdout }, &piece);
                }
                Tell::Busy => return Ok(None),
                Tell::Report(found) => report = Some(found.to_vec()),
                Tell::Output { path, is_executable } => {
                    let Some(outputs) = outputs else {
                        return Err(self.unexpected(Tell::Output { path, is_executable }));
                    };
                    file = Some(self.output(outputs, &path, is_executable)?);
                }
                Tell::Kept { path, size_bytes, digest, is_executable } if outputs.is_none() => {
                    kept.push(eyas_catalog::File { path, size_bytes, digest, is_executable });
                }
                Tell::Piece(piece) => {
                    let Some((file, path)) = &mut file else {
                        return Err(self.unexpected(Tell::Piece(piece)));
                    };
                    file.write_all(&piece).map_err(|error| cannot_write(path, &error))?;
                }
                Tell::Done => break,
                other => return Err(self.unexpected(other)),
            }
        }
        // What was said to keep the program going may still be answered on this connection, so it is used no more.
        let report = report.ok_or_else(|| self.away("it answers without a report of the program".into()))?;
        Ok(Some(RunAtSite { report, kept }))
    }

    /// A new file below `outputs`.
    fn output(&self, outputs: &Path, path: &str, is_executable: bool) -> Result<(File, PathBuf)> {
        if !is_plain_path(path) {
            return Err(self.away(format!("it names {} as an output", eyas_text::shown(path))));
        }
        let path = outputs.join(path);
        let mode = if is_executable { 0o755 } else { 0o644 };
        let made = fs::create_dir_all(path.parent().expect("it is below"))
            .and_then(|()| fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path));
        made.map_err(|error| cannot_write(&path, &error)).map(|file| (file, path))
    }

    fn away(&self, reason: String) -> Error {
        Error::Unreached { site: self.name.clone(), reason }
    }

    fn unexpected(&self, tell: Tell) -> Error {
        match tell {
            Tell::Failed(reason) => {
                Error::Conflict(format!("the site `{}` reports: {}", self.name, eyas_text::line_of(&reason)))
            }
            _ => self.away("it answers what was not asked".into()),
        }
    }

    fn link(&self) -> Result<Link> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is said on a connection that waits, but that it is over.
        idle.retain(|(link, since)| {
            since.elapsed() < IDLE_USED && link.answers.is_empty() && !link.answers.is_closed()
        });
        match idle.pop() {
            Some((link, _)) => Ok(link),
            None => {
                drop(idle);
                self.new_link().map(|(link, _)| link)
            }
        }
    }

    /// A new connection, and what the store says of itself. Where there is no place for it now, it is tried again for a while.
    fn new_link(&self) -> Result<(Link, Site)> {
        let began = Instant::now();
        let mut waits = HomeWait::new(PLACE_WAIT_MAX.as_nanos() as u64);
        // It has answered, so it is there.
        let mut tries = Tries::of_output();
        let mut has_said = false;
        loop {
            let reason = match Link::connect(&self.name, &self.address, &self.route) {
                Ok((link, Tell::Site { name, keep_bytes, place })) => {
                    return Ok((link, Site { name, keep_bytes, place }));
                }
                Ok((_, other)) => return Err(self.unexpected(other)),
                Err(NotIn::Other(reason)) => return Err(self.away(reason)),
                Err(NotIn::Busy(reason)) => reason,
            };
            let now = Timestamp(began.elapsed().as_nanos() as u64);
            let random = RandomState::new().hash_one(now);
            let Some(wait_ns) = waits.failed(now, &self.name, &mut tries, &reason, random) else {
                return Err(self.away(format!("{reason}, for {} s", began.elapsed().as_secs())));
            };
            if !has_said && waits.away(now).next().is_some() {
                has_said = true;
                say_waits(&self.name, &reason);
            }
            std::thread::sleep(Duration::from_nanos(wait_ns));
        }
    }

    /// Keeps a connection on which nothing is left unsaid.
    fn put_back(&self, link: Link) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((link, Instant::now()));
    }

    /// Sends a request, and gives each message of the answer to `take` up to the end.
    fn ask(&self, ask: &Ask, take: &mut dyn FnMut(Tell) -> Option<Tell>) -> Result<()> {
        match self.ask_for_one(ask, take)? {
            true => Ok(()),
            false => Err(self.unexpected(Tell::Missing)),
        }
    }

    /// The same for one object; whether it is there.
    fn ask_for_one(&self, ask: &Ask, take: &mut dyn FnMut(Tell) -> Option<Tell>) -> Result<bool> {
        let mut link = self.link()?;
        link.send(ask);
        let is_there = loop {
            match link.next().map_err(|reason| self.away(reason))? {
                Tell::Done => break true,
                Tell::Missing => break false,
                failed @ Tell::Failed(_) => {
                    self.put_back(link);
                    return Err(self.unexpected(failed));
                }
                tell => {
                    if let Some(other) = take(tell) {
                        return Err(self.unexpected(other));
                    }
                }
            }
        };
        self.put_back(link);
        Ok(is_there)
    }

    /// Asks for the bytes of an object; `None`: it is not there.
    fn begin_object(&self, ask: &Ask) -> Result<Option<Box<dyn Read + '_>>> {
        let mut link = self.link()?;
        link.send(ask);
        let (piece, is_over) = match link.next().map_err(|reason| self.away(reason))? {
            Tell::Piece(piece) => (piece, false),
            Tell::Done => (Bytes::new(), true),
            Tell::Missing => {
                self.put_back(link);
                return Ok(None);
            }
            other => return Err(self.unexpected(other)),
        };
        let mut object = Object { site: self, link: Some(link), piece };
        if is_over {
            object.close();
        }
        Ok(Some(Box::new(object)))
    }
}

impl Holding for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &SitePlace {
        &self.place
    }

    fn claim(&self, catalog: &str) -> Result<String> {
        let mut link = self.link()?;
        link.send(&Ask::Claim(catalog.into()));
        match link.next().map_err(|reason| self.away(reason))? {
            Tell::Claimed(folder_id) => {
                self.put_back(link);
                Ok(folder_id)
            }
            other => Err(self.unexpected(other)),
        }
    }

    fn unseal(&self, key: &Key) -> Result<()> {
        self.ask(&Ask::Unseal(key.to_string()), &mut Some)
    }

    fn batch(&self) -> Result<Box<dyn Arrivals + '_>> {
        let link = self.link()?;
        link.send(&Ask::Begin);
        Ok(Box::new(Batch { site: self, link: Some(link) }))
    }

    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        self.begin_object(&Ask::Read(digest))
    }

    fn open_to_copy(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        self.begin_object(&Ask::Copy(digest))
    }

    /// A store at a hub has no address at which others reach it.
    fn permit(&self, digests: &[Digest]) -> Result<Option<Permit>> {
        if self.route.hub.is_some() {
            return Ok(None);
        }
        let mut key = None;
        let mut link = self.link()?;
        link.send(&Ask::Permit(digests.to_vec()));
        match link.next().map_err(|reason| self.away(reason))? {
            Tell::Permit(given) => key = Some(given.to_vec()),
            Tell::Failed(_) => {}
            other => return Err(self.unexpected(other)),
        }
        self.put_back(link);
        Ok(key.map(|key| Permit { address: self.address.clone(), key }))
    }

    fn fetch(
        &self,
        from: &Permit,
        digests: &[Digest],
        found: &mut dyn FnMut(usize, Condition),
    ) -> Result<bool> {
        let (address, key) = (from.address.clone(), Bytes::copy_from_slice(&from.key));
        let ask = Ask::Fetch { address, key, digests: digests.to_vec() };
        self.ask(&ask, &mut |tell| match tell {
            Tell::Found(at, condition) if (at as usize) < digests.len() => {
                found(at as usize, condition.into());
                None
            }
            other => Some(other),
        })?;
        Ok(true)
    }

    fn load(&self) -> Result<Load> {
        self.load_and_programs().map(|(load, _)| load)
    }

    fn set_users(&self, users: &[StoreUser]) -> Result<()> {
        self.ask(&Ask::Users(users.to_vec()), &mut Some)
    }

    fn take_reads(&self) -> Result<HashMap<Digest, u64>> {
        let mut all = HashMap::new();
        self.ask(&Ask::Reads, &mut |tell| match tell {
            Tell::Reads(read) => {
                all.extend(read);
                None
            }
            other => Some(other),
        })?;
        Ok(all)
    }

    fn groups(&self, digest: Digest, size_bytes: u64) -> Result<Option<Vec<[u8; 32]>>> {
        let mut all = vec![];
        self.ask_for_one(&Ask::Groups(digest, size_bytes), &mut |tell| match tell {
            Tell::Groups(values) if (all.len() + values.len()) as u64 <= n_groups(size_bytes) => {
                all.extend(values);
                None
            }
            other => Some(other),
        })
        .map(|is_there| is_there.then_some(all))
    }

    fn read_at(&self, digest: Digest, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let most = u32::try_from(range.end.saturating_sub(range.start)).unwrap_or(u32::MAX);
        let mut part = Vec::with_capacity(most as usize);
        self.ask_for_one(&Ask::ReadAt(digest, range.start, most), &mut |tell| match tell {
            Tell::Piece(piece) if part.len() + piece.len() <= most as usize => {
                part.extend_from_slice(&piece);
                None
            }
            other => Some(other),
        })
        .map(|is_there| is_there.then_some(part))
    }

    fn read_blocks(&self, digest: Digest, n: u64, blocks: Range<usize>) -> Result<Option<Blocks>> {
        let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let mut link = self.link()?;
        link.send(&Ask::ReadBlocks(digest, n, small(blocks.start), small(blocks.len())));
        // One message is all of the answer.
        let answer = link.next().map_err(|reason| self.away(reason))?;
        let answer = match answer {
            Tell::Blocks(bytes, beside) => Ok(Some(Blocks { bytes: bytes.into(), beside })),
            Tell::Missing => Ok(None),
            failed @ Tell::Failed(_) => Err(self.unexpected(failed)),
            other => return Err(self.unexpected(other)),
        };
        self.put_back(link);
        answer
    }

    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        for (n, digests) in digests.chunks(DIGESTS).enumerate() {
            let mut n_found = 0;
            self.ask(&Ask::Verify(digests.to_vec()), &mut |tell| match tell {
                Tell::Found(at, condition) if (at as usize) < digests.len() => {
                    n_found += 1;
                    found(n * DIGESTS + at as usize, condition.into());
                    None
                }
                other => Some(other),
            })?;
            if n_found != digests.len() {
                return Err(self.away(format!("it answered for {n_found} of {} objects", digests.len())));
            }
        }
        Ok(())
    }

    fn objects(&self) -> Result<Vec<Digest>> {
        let mut all = vec![];
        self.ask(&Ask::Objects, &mut |tell| match tell {
            Tell::Objects(digests) => {
                all.extend(digests);
                None
            }
            other => Some(other),
        })?;
        Ok(all)
    }

    fn set_aside(&self, digests: &[Digest]) -> Result<()> {
        digests.chunks(DIGESTS).try_for_each(|digests| self.ask(&Ask::SetAside(digests.to_vec()), &mut Some))
    }

    fn aside(&self) -> Result<Vec<Aside>> {
        let mut all = vec![];
        self.ask(&Ask::Aside, &mut |tell| match tell {
            Tell::Aside(aside) => {
                all.extend(aside);
                None
            }
            other => Some(other),
        })?;
        Ok(all)
    }

    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()> {
        let settle = |unneeded: &[Aside], needed: &[Aside]| {
            self.ask(&Ask::Settle { unneeded: unneeded.to_vec(), needed: needed.to_vec() }, &mut Some)
        };
        needed.chunks(DIGESTS).try_for_each(|needed| settle(&[], needed))?;
        unneeded.chunks(DIGESTS).try_for_each(|unneeded| settle(unneeded, &[]))
    }

    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool> {
        let text = Bytes::copy_from_slice(text);
        let mut is_written = true;
        self.ask(&Ask::Seal { key: key.to_string(), text }, &mut |tell| match tell {
            Tell::OtherSeal => {
                is_written = false;
                None
            }
            other => Some(other),
        })?;
        Ok(is_written)
    }

    fn seal_keys(&self) -> Result<Vec<String>> {
        let mut all = vec![];
        self.ask(&Ask::SealKeys, &mut |tell| match tell {
            Tell::SealKeys(keys) => {
                all.extend(keys);
                None
            }
            other => Some(other),
        })?;
        Ok(all)
    }

    fn seal_digests(&self) -> Result<HashMap<String, Digest>> {
        let mut all = HashMap::new();
        self.ask(&Ask::SealDigests, &mut |tell| match tell {
            Tell::SealDigests(digests) => {
                all.extend(digests);
                None
            }
            other => Some(other),
        })?;
        Ok(all)
    }

    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        let (mut versions, mut unreadable) = (vec![], vec![]);
        self.ask(&Ask::SealTexts, &mut |tell| match tell {
            Tell::SealTexts(texts) => {
                for (key, text) in texts {
                    match text.and_then(|text| Sealed::of_text(&text)) {
                        Ok(version) => versions.push(version),
                        Err(reason) => {
                            unreadable.push(format!(
                                "{}.json: {}",
                                eyas_text::line_of(&key),
                                eyas_text::line_of(&reason)
                            ));
                        }
                    }
                }
                None
            }
            other => Some(other),
        })?;
        Ok((versions, unreadable))
    }
}

/// An object that is being read.
struct Object<'a> {
    site: &'a Remote,
    /// `None` once the object has ended.
    link: Option<Link>,
    piece: Bytes,
}

impl Object<'_> {
    fn close(&mut self) {
        if let Some(link) = self.link.take() {
            self.site.put_back(link);
        }
    }
}

impl Read for Object<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(link) = &mut self.link else { return Ok(0) };
            match link.next().map_err(io::Error::other)? {
                Tell::Piece(piece) => self.piece = piece,
                Tell::Done => self.close(),
                Tell::Failed(reason) => {
                    return Err(io::Error::other(eyas_text::line_of(&reason).to_string()));
                }
                _ => return Err(io::Error::other("it answers what was not asked")),
            }
        }
        let n = into.len().min(self.piece.len());
        into[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

/// A batch on its way to a store.
struct Batch<'a> {
    site: &'a Remote,
    /// `None` once the batch has ended.
    link: Option<Link>,
}

impl Batch<'_> {
    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("the batch has not ended")
    }
}

impl Arrivals for Batch<'_> {
    fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let link = self.link();
        link.send_slowly(&Ask::Add)?;
        let mut hasher = blake3::Hasher::new();
        let mut size_bytes = 0;
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => {
                    piece.truncate(n);
                    hasher.update(&piece);
                    size_bytes += n as u64;
                    link.send_slowly(&Ask::Piece(piece.into()))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    link.send_slowly(&Ask::Broken)?;
                    return Err(error);
                }
            }
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        link.send_slowly(&Ask::Whole(digest))?;
        Ok((digest, size_bytes))
    }

    fn undo(&mut self) -> io::Result<()> {
        self.link().send_slowly(&Ask::Undo)
    }

    fn keep(mut self: Box<Self>) -> io::Result<()> {
        let mut link = self.link.take().expect("the batch has not ended");
        link.send_slowly(&Ask::Keep)?;
        match link.next().map_err(io::Error::other)? {
            Tell::Done => {
                self.site.put_back(link);
                Ok(())
            }
            Tell::Failed(reason) => {
                self.site.put_back(link);
                Err(io::Error::other(eyas_text::line_of(&reason).to_string()))
            }
            _ => Err(io::Error::other("it answers what was not asked")),
        }
    }
}

/// A connection. It is used by one request at a time.
struct Link {
    /// The name of the site, for what is said of it.
    site: String,
    writer: Writer,
    answers: mpsc::Receiver<std::result::Result<Tell, String>>,
    heard: Arc<Mutex<Heard>>,
}

/// What was heard of a store.
struct Heard {
    /// When it said something last.
    at: Instant,
    /// Since when the request waits for its turn.
    waits_since: Option<Instant>,
    /// That one had to wait was said, once for a connection.
    has_said: bool,
}

impl Link {
    /// A new connection, and the store's first answer.
    fn connect(site: &str, address: &str, route: &Route) -> std::result::Result<(Link, Tell), NotIn> {
        let connecting = async {
            match &route.hub {
                None => eyas_net::connect(address, &route.identity)
                    .await
                    .map_err(|error| match error {
                        NetError::NotAMember { address, .. } if route.is_user => NotIn::Other(format!(
                            "the store at {address} does not let this user in (the key was taken back, or the store was not told of it \
                             yet): whoever keeps the catalog tells it: eyas data user add NAME"
                        )),
                        error => NotIn::Other(in_words(error)),
                    }),
                Some(hub) => crate::hub::knock(hub, address, &route.identity).await,
            }
        };
        let (mut reader, writer) = runtime().block_on(connecting)?;
        let (answered, answers) = mpsc::channel(WAITING);
        let heard = Arc::new(Mutex::new(Heard { at: Instant::now(), waits_since: None, has_said: false }));
        let hearing = heard.clone();
        runtime().spawn(async move {
            let note = |is_waiting: Option<bool>| {
                let heard = &mut *hearing.lock().unwrap_or_else(PoisonError::into_inner);
                heard.at = Instant::now();
                heard.waits_since = match is_waiting {
                    Some(true) => heard.waits_since.or(Some(heard.at)),
                    Some(false) => None,
                    None => heard.waits_since,
                };
            };
            loop {
                let next = match reader.next::<Tell>().await {
                    Ok(Some(Tell::Beat)) => {
                        note(None);
                        continue;
                    }
                    Ok(Some(Tell::Waits)) => {
                        note(Some(true));
                        continue;
                    }
                    Ok(Some(tell)) => Ok(tell),
                    Ok(None) => Err("it closed the connection".into()),
                    Err(error) => Err(in_words(error)),
                };
                let is_over = next.is_err();
                if answered.send(next).await.is_err() || is_over {
                    return;
                }
                note(Some(false));
            }
        });
        let mut link = Link { site: site.into(), writer, answers, heard };
        link.send(&Ask::Site);
        match link.next().map_err(NotIn::Other)? {
            Tell::Busy => Err(NotIn::Busy("it has as many connections as it takes".into())),
            answer => Ok((link, answer)),
        }
    }

    fn send(&self, ask: &Ask) {
        // Whether it arrives, the answer says.
        self.writer.send(ask);
    }

    /// Sends when little waits to be sent.
    fn send_slowly(&mut self, ask: &Ask) -> io::Result<()> {
        loop {
            match runtime().block_on(async { timeout(SILENCE_MAX / 3, self.writer.room(QUEUED_BYTES)).await })
            {
                Ok(true) => {
                    self.send(ask);
                    return Ok(());
                }
                // Why the store has gone, it may have said before.
                Ok(false) => {
                    let reason = match self.next() {
                        Ok(Tell::Failed(reason)) | Err(reason) => reason,
                        Ok(_) => "the connection was closed".into(),
                    };
                    return Err(io::Error::other(reason));
                }
                Err(_) => self.go_on().map_err(io::Error::other)?,
            }
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing has come for a while. Why it is not waited for any more, if it is not.
    fn go_on(&self) -> std::result::Result<(), String> {
        let mut heard = self.heard();
        if heard.at.elapsed() >= SILENCE_MAX {
            return Err(format!("it has said nothing for {} s", SILENCE_MAX.as_secs()));
        }
        let Some(since) = heard.waits_since else { return Ok(()) };
        let reason = "it serves as many requests as it may";
        if since.elapsed() >= PLACE_WAIT_MAX {
            return Err(format!("{reason}, for {} s", PLACE_WAIT_MAX.as_secs()));
        }
        if !std::mem::replace(&mut heard.has_said, true) {
            say_waits(&self.site, reason);
        }
        Ok(())
    }

    /// The next message, or why there is none.
    fn next(&mut self) -> std::result::Result<Tell, String> {
        self.heard().at = Instant::now();
        loop {
            match runtime().block_on(async { timeout(SILENCE_MAX / 3, self.answers.recv()).await }) {
                Ok(Some(answer)) => return answer,
                Ok(None) => return Err("the connection was closed".into()),
                Err(_) => self.go_on()?,
            }
        }
    }
}

/// What went wrong with a connection. Errors of the network speak of dispatchers.
pub(crate) fn in_words(error: NetError) -> String {
    match error {
        NetError::Connect { address, source } => {
            format!("nothing answers at {address} ({source}): is `eyas store` running there?")
        }
        NetError::NotAMember { address, .. } => format!(
            "the store at {address} does not accept this join file: `eyas data site --join FILE` takes its new one"
        ),
        NetError::NoAnswer { address } | NetError::AtDoor { address, .. } => {
            format!("what listens at {address} did not answer within 10 s")
        }
        other => other.to_string(),
    }
}
