//! The side that has the folder: it answers requests, each with a thread of its own.
//!
//! A request has a place among those that are served at a time, and gives it back at its end; the others wait in the order in which they
//! came. So a connection on which nothing is asked keeps nobody out, and one that asks much takes turns with the others. A program has
//! no such place, as there is a limit on programs.

use crate::pace::Pace;
use crate::permits::{May, Permits};
use crate::programs::{Programs, inputs_of};
use crate::protocol::{Ask, BEAT, DIGESTS, IDLE_MAX, PIECE_BYTES, QUEUED_BYTES, Tell};
use crate::users::Users;
use bytes::Bytes;
use eyas_catalog::{Arrivals, Blocks, Folder, Holding, Right, Sealed, StoreUser};
use eyas_data::Digest;
use eyas_net::{FrameReader, Writer};
use eyas_wire::identity::Identity;
use eyas_wire::users::UserKey;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// Requests that are served at a time: each has a thread and a few pieces of memory.
const PLACES: usize = 64;
/// Connections at a time, so that they and the files of those that are served fit into the usual 1024 descriptors.
const CONNECTIONS_MAX: usize = 512;
/// How long the first request of a connection may take to come.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// For how long a connection keeps its place for the next request while nobody else waits for one.
const LINGER: Duration = Duration::from_millis(50);
/// Connections at a time that have not proved that they know the join file.
const STRANGERS_MAX: usize = 16;
/// How long a connection may take nothing of what is sent to it, or send nothing of what it has begun, before its place is given to
/// others.
const DEAF_MAX: Duration = Duration::from_secs(600);
/// Objects whose reading is counted until somebody asks.
const COUNTED_MAX: usize = 100_000;
/// What is said to a user who was let in before.
const TAKEN_BACK: &str = "the key of this user was taken back: whoever keeps the catalog gives a new one with `eyas data user add NAME`";
/// Requests of a connection that wait for its thread.
const WAITING: usize = 8;

/// What a store allows.
#[derive(Debug, Default)]
pub struct StoreOptions {
    /// Most bytes of objects that it keeps.
    pub keep_bytes: Option<u64>,
    /// Most bytes of objects per second that it sends and receives.
    pub rate_bytes_per_s: Option<u64>,
    /// That it runs programs for those who have its join file.
    pub programs: Option<Programs>,
}

/// Serves the folder of a site.
pub struct Store {
    pub(crate) folder: Folder,
    options: StoreOptions,
    pace: Option<Pace>,
    pub(crate) programs: Option<Programs>,
    /// Bytes of the objects that are there.
    held_bytes: AtomicU64,
    /// Bytes of objects that are on their way.
    arriving_bytes: AtomicU64,
    n_connections: AtomicUsize,
    /// Requests that move bytes of objects or read objects through.
    n_transfers: AtomicUsize,
    places: Arc<Semaphore>,
    /// Requests that wait for a place.
    n_waiting: AtomicUsize,
    /// Bytes that were given of each object since somebody asked.
    read: Mutex<HashMap<Digest, u64>>,
    pub(crate) permits: Permits,
    pub(crate) users: Users,
}

impl Store {
    /// A store of this folder. What unfinished writers left in it is removed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(folder: Folder, mut options: StoreOptions) -> eyas_catalog::Result<Store> {
        folder.clear_incoming(Duration::ZERO)?;
        let held_bytes = AtomicU64::new(folder.held_bytes()?);
        let (permits, users) = (Permits::default(), Users::of_folder(folder.root())?);
        permits.set_users(users.keys());
        let pace = options.rate_bytes_per_s.map(Pace::new);
        let programs = options.programs.take();
        Ok(Store {
            folder,
            options,
            pace,
            programs,
            held_bytes,
            arriving_bytes: AtomicU64::new(0),
            n_connections: AtomicUsize::new(0),
            n_transfers: AtomicUsize::new(0),
            places: Arc::new(Semaphore::new(PLACES)),
            n_waiting: AtomicUsize::new(0),
            read: Mutex::default(),
            permits,
            users,
        })
    }

    /// The name of the site.
    pub fn name(&self) -> &str {
        self.folder.name()
    }

    /// Bytes of the objects that it has.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Serves those who have the join file with this identity, until the future is dropped.
    ///
    /// # Errors
    /// The identity is damaged.
    pub async fn serve(
        self: Arc<Store>,
        listener: TcpListener,
        identity: &Identity,
    ) -> Result<(), eyas_net::NetError> {
        self.permits.serve_with(identity)?;
        let config = identity.server_config_with(self.permits.keys.clone())?;
        let store = self;
        eyas_net::keep_door(listener, config, STRANGERS_MAX, move |_, _, reader, writer| {
            converse(store.clone(), reader, writer)
        })
        .await;
        Ok(())
    }

    /// Counts bytes of objects that are there now.
    pub(crate) fn count_held(&self, n_bytes: u64) {
        self.held_bytes.fetch_add(n_bytes, Ordering::Relaxed);
    }

    /// Takes room for bytes that arrive.
    fn take_room(&self, n_bytes: u64) -> io::Result<()> {
        let before = self.held_bytes() + self.arriving_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        match self.options.keep_bytes {
            Some(most) if before + n_bytes > most => {
                take_off(&self.arriving_bytes, n_bytes);
                Err(io::Error::other(format!("it keeps at most {most} bytes, and has {before}")))
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes of an object that were given to a reader.
    fn count_read(&self, digest: Digest, n_bytes: u64) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if n_bytes > 0 && (read.len() < COUNTED_MAX || read.contains_key(&digest)) {
            *read.entry(digest).or_default() += n_bytes;
        }
    }

    /// What was read since the last time: what this process gave, and what programs on this machine took from the folder.
    fn take_reads(&self) -> eyas_catalog::Result<Vec<(Digest, u64)>> {
        let mut read = self.folder.take_reads()?;
        let given = std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner));
        for (digest, n_bytes) in given {
            let sum = read.entry(digest).or_default();
            *sum = sum.saturating_add(n_bytes);
        }
        Ok(read.into_iter().collect())
    }

    pub(crate) fn slow_down(&self, n_bytes: usize) {
        if let Some(pace) = &self.pace {
            thread::sleep(pace.wait(n_bytes, Instant::now()));
        }
    }
}

fn take_off(from: &AtomicU64, n_bytes: u64) {
    let less = |bytes: u64| Some(bytes.saturating_sub(n_bytes));
    let _ = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// One more of something, until this is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    fn of(n: &AtomicUsize) -> Counted<'_> {
        n.fetch_add(1, Ordering::Relaxed);
        Counted(n)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is served. A permit is over with it.
struct Served {
    store: Arc<Store>,
    key: Option<UserKey>,
    writer: Writer,
    handle: Handle,
    may: May,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.store.permits.end(self.key);
    }
}

pub(crate) async fn converse(store: Arc<Store>, mut reader: FrameReader, writer: Writer) {
    let _counted = Counted::of(&store.n_connections);
    let key = reader.peer();
    let Some(may) = store.permits.of(key, Instant::now()) else { return };
    if store.n_connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
        writer.send(&Tell::Busy);
        writer.finish().await;
        return;
    }
    let beats = tokio::spawn({
        let writer = writer.clone();
        async move {
            loop {
                tokio::time::sleep(BEAT).await;
                if !writer.send(&Tell::Beat) {
                    return;
                }
            }
        }
    });
    let (asks, inbox) = mpsc::channel(WAITING);
    let served = Arc::new(Served { store: store.clone(), key, writer, handle: Handle::current(), may });
    let receive = async {
        while let Ok(Some(ask)) = reader.next::<Ask>().await {
            if asks.send(ask).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        () = served.answer_all(inbox) => {}
    }
    beats.abort();
}

impl Served {
    /// Answers what is asked, until nothing is for a while, or the connection is over.
    async fn answer_all(self: &Arc<Served>, mut inbox: mpsc::Receiver<Ask>) {
        let mut patience = FIRST_MAX;
        while let Ok(Some(ask)) = timeout(patience, inbox.recv()).await {
            patience = IDLE_MAX;
            let place = match ask {
                Ask::Run { .. } => None,
                _ => Some(self.place().await),
            };
            let (back, returned) = oneshot::channel();
            let served = self.clone();
            let begun = thread::Builder::new().name("site".into()).spawn(move || {
                let Served { store, writer, handle, may, .. } = &*served;
                let (writer, handle, may) = (writer.clone(), handle.clone(), may.clone());
                if let Some(inbox) = (Answering { store, inbox, writer, handle, may }).run(ask, place) {
                    let _ = back.send(inbox);
                }
            });
            // A thread that gives the connection up ends it.
            match (begun, returned.await) {
                (Ok(_), Ok(rest)) => inbox = rest,
                _ => return,
            }
        }
    }

    /// Waits for a place, behind those who came before.
    async fn place(&self) -> OwnedSemaphorePermit {
        let Store { places, n_waiting, .. } = &*self.store;
        if let Ok(place) = places.clone().try_acquire_owned() {
            return place;
        }
        self.writer.send(&Tell::Waits);
        let _counted = Counted::of(n_waiting);
        places.clone().acquire_owned().await.expect("nobody closes it")
    }
}

/// The answers on one connection.
pub(crate) struct Answering<'a> {
    store: &'a Store,
    inbox: mpsc::Receiver<Ask>,
    writer: Writer,
    handle: Handle,
    may: May,
}

/// The connection is gone.
pub(crate) struct Gone;

impl<'a> Answering<'a> {
    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the other side asks next.
    pub(crate) fn inbox(&mut self) -> &mut mpsc::Receiver<Ask> {
        &mut self.inbox
    }

    /// Answers a request, and those that follow at once while nobody else waits for the place. Gives back where requests come from;
    /// `None`: the connection is over.
    fn run(mut self, mut ask: Ask, mut place: Option<OwnedSemaphorePermit>) -> Option<mpsc::Receiver<Ask>> {
        loop {
            if matches!(ask, Ask::Run { .. }) {
                place = None;
            }
            let end = match self.answer(ask) {
                Ok(end) => end,
                Err(Stopped::Gone(Gone)) => return None,
                Err(Stopped::Failed(reason)) => Tell::Failed(reason),
            };
            self.send(&end).ok()?;
            if place.is_none() || self.store.n_waiting.load(Ordering::Relaxed) > 0 {
                return Some(self.inbox);
            }
            let Answering { inbox, handle, .. } = &mut self;
            match handle.block_on(async { timeout(LINGER, inbox.recv()).await }) {
                Ok(next) => ask = next?,
                Err(_) => return Some(self.inbox),
            }
        }
    }

    /// What the other side sends next of what it has begun; `None`: it is gone, or says nothing.
    fn hear(&mut self) -> Option<Ask> {
        hear(&mut self.inbox, &self.handle)
    }

    /// Answers one request, all but the last message, which is returned.
    fn answer(&mut self, ask: Ask) -> Result<Tell, Stopped> {
        let store = self.store;
        let folder = &store.folder;
        if let May::Copy(digests) = &self.may
            && !matches!(&ask, Ask::Copy(digest) if digests.contains(digest))
        {
            return Err(Stopped::Failed("the permit is for copying other objects".into()));
        }
        if let Some(user) = self.user()? {
            self.refuse_unless(&user, &ask)?;
        }
        let _counted = ask.is_transfer().then(|| Counted::of(&store.n_transfers));
        match ask {
            Ask::Site => {
                let keep_bytes = self.store.options.keep_bytes;
                // Whose it is may have changed since the store began.
                let mut place = folder.again()?.place().clone();
                place.rate_bytes_per_s = self.store.options.rate_bytes_per_s;
                if let Some(most) = keep_bytes {
                    let taken = self.store.held_bytes() + self.store.arriving_bytes.load(Ordering::Relaxed);
                    place.free_bytes = place.free_bytes.min(most.saturating_sub(taken));
                }
                return Ok(Tell::Site { name: folder.name().to_owned(), keep_bytes, place });
            }
            Ask::Objects => {
                let objects = folder.objects()?;
                for digests in objects.chunks(DIGESTS) {
                    self.send(&Tell::Objects(digests.to_vec()))?;
                }
                // Others may have removed some.
                let sizes = objects.iter().filter_map(|digest| folder.size_of(*digest));
                self.store.held_bytes.store(sizes.sum(), Ordering::Relaxed);
            }
            Ask::Verify(digests) => {
                let mut sent = Ok(());
                folder.verify_all(&digests, &mut |n, condition| {
                    if sent.is_ok() {
                        let n = u32::try_from(n).expect("a request has fewer");
                        sent = self.send(&Tell::Found(n, condition.into()));
                    }
                })?;
                sent?;
            }
            Ask::Read(digest) => return self.read(digest, true),
            Ask::Copy(digest) => return self.read(digest, false),
            Ask::Permit(digests) => {
                let key = self.store.permits.give(digests, Instant::now())?;
                return Ok(Tell::Permit(key.into()));
            }
            Ask::Fetch { address, key, digests } => self.fetch(&address, &key, &digests)?,
            Ask::Reads => {
                for read in self.store.take_reads()?.chunks(DIGESTS) {
                    self.send(&Tell::Reads(read.to_vec()))?;
                }
            }
            Ask::Groups(digest, size_bytes) => {
                let Some(values) = folder.groups(digest, size_bytes)? else { return Ok(Tell::Missing) };
                for values in values.chunks(DIGESTS) {
                    self.send(&Tell::Groups(values.to_vec()))?;
                }
            }
            Ask::ReadAt(digest, start, length) => {
                return self.read_at(digest, start..start + u64::from(length));
            }
            Ask::ReadBlocks(digest, n, first, n_blocks) => {
                let first = usize::from(first);
                let blocks = first..first + usize::from(n_blocks);
                let Some(Blocks { bytes, beside }) = folder.read_blocks(digest, n, blocks)? else {
                    return Ok(Tell::Missing);
                };
                self.store.slow_down(bytes.len());
                self.store.count_read(digest, bytes.len() as u64);
                return Ok(Tell::Blocks(bytes.into(), beside));
            }
            Ask::SetAside(digests) => folder.set_aside(&digests)?,
            Ask::Aside => {
                for aside in folder.aside()?.chunks(DIGESTS) {
                    self.send(&Tell::Aside(aside.to_vec()))?;
                }
            }
            Ask::Settle { unneeded, needed } => {
                // They come from elsewhere, and become names of files.
                if unneeded.iter().chain(&needed).any(|aside| aside.by.contains('/')) {
                    return Err(Stopped::Failed("what is set aside has no such name".into()));
                }
                let n_bytes = unneeded.iter().map(|aside| folder.size_aside(aside)).sum();
                folder.settle(&unneeded, &needed)?;
                take_off(&self.store.held_bytes, n_bytes);
            }
            Ask::SealDigests => {
                let digests: Vec<(String, Digest)> = folder.seal_digests()?.into_iter().collect();
                for digests in digests.chunks(DIGESTS) {
                    self.send(&Tell::SealDigests(digests.to_vec()))?;
                }
            }
            Ask::SealTexts => {
                let visible = self.visible()?;
                let is_visible = |name: &String| visible.as_ref().is_none_or(|keys| keys.contains(name));
                for (name, text) in folder.seal_texts()?.into_iter().filter(|(name, _)| is_visible(name)) {
                    self.send(&Tell::SealTexts(vec![(name, text.map(Bytes::from))]))?;
                }
            }
            Ask::Seal { key, text } => {
                let sealed = Sealed::of_text(&text).map_err(|reason| format!("it is no seal: {reason}"))?;
                if sealed.key.to_string() != key || sealed.key.version.is_none() {
                    return Err(Stopped::Failed("the seal is of another version".into()));
                }
                let is_written = match self.user()? {
                    None => store.users.seal(folder, sealed, &text)?,
                    Some(user) => match store.users.why_not_seal(folder, &user, &sealed)? {
                        Some(reason) => return Err(Stopped::Failed(reason)),
                        None => store.users.seal_as(folder, &user, &sealed, &text)?,
                    },
                };
                if !is_written {
                    self.send(&Tell::OtherSeal)?;
                }
            }
            Ask::SealKeys => {
                let visible = self.visible()?;
                let mut keys = folder.seal_keys()?;
                keys.retain(|key| visible.as_ref().is_none_or(|visible| visible.contains(key)));
                for keys in keys.chunks(DIGESTS) {
                    self.send(&Tell::SealKeys(keys.to_vec()))?;
                }
            }
            Ask::Unseal(key) => store.users.unseal(folder, &key.parse()?)?,
            Ask::Users(users) => {
                store
                    .users
                    .set(users)
                    .map_err(|error| format!("it cannot write the list of its users: {error}"))?;
                store.permits.set_users(store.users.keys());
            }
            Ask::Claim(catalog) => {
                return Ok(Tell::Claimed(folder.claim(eyas_text::line_of(&catalog).to_string().as_str())?));
            }
            Ask::Begin => self.take_batch()?,
            Ask::Load => {
                let counts = self.store.programs.as_ref().map(Programs::counts);
                let n_transfers = self.store.n_transfers.load(Ordering::Relaxed);
                return Ok(Tell::Load {
                    n_transfers: u32::try_from(n_transfers).unwrap_or(u32::MAX),
                    n_programs: counts.map_or(0, |(n_running, _)| n_running),
                    n_programs_max: counts.map(|(_, n_max)| n_max),
                });
            }
            Ask::Run { plan, keeps_outputs } => return self.run_program(&plan, keeps_outputs),
            // The program has ended meanwhile.
            Ask::Alive => return Ok(Tell::Beat),
            Ask::Add | Ask::Piece(_) | Ask::Whole(_) | Ask::Broken | Ask::Undo | Ask::Keep | Ask::Abandon => {
                return Err(Stopped::Failed("no batch has begun".into()));
            }
        }
        Ok(Tell::Done)
    }

    /// Whose key the other side has proved to have, now; `None`: the store's own, or that of a permit.
    ///
    /// # Errors
    /// The key was taken back: the connection is over.
    pub(crate) fn user(&self) -> Result<Option<Arc<StoreUser>>, Stopped> {
        let May::AsUser(key) = &self.may else { return Ok(None) };
        match self.store.users.of(key) {
            Some(user) => Ok(Some(user)),
            None => {
                self.writer.send(&Tell::Failed(TAKEN_BACK.into()));
                Err(Gone.into())
            }
        }
    }

    /// The keys of the seals that the other side may see; `None`: all.
    fn visible(&self) -> Result<Option<HashSet<String>>, Stopped> {
        let user = self.user()?;
        Ok(user.map(|user| self.store.users.keys_for(&self.store.folder, &user)).transpose()?)
    }

    /// What a user may ask. There is one list, so that a new request is nobody's but the owner's until it stands here.
    fn refuse_unless(&self, user: &StoreUser, ask: &Ask) -> Result<(), Stopped> {
        match ask {
            // What they may seal is looked at with the seal. What belongs to a batch has no meaning outside of one.
            Ask::Site
            | Ask::Load
            | Ask::Alive
            | Ask::Begin
            | Ask::SealKeys
            | Ask::SealTexts
            | Ask::Seal { .. } => Ok(()),
            Ask::Add | Ask::Piece(_) | Ask::Whole(_) | Ask::Broken | Ask::Undo | Ask::Keep | Ask::Abandon => {
                Ok(())
            }
            Ask::Read(digest)
            | Ask::Copy(digest)
            | Ask::ReadAt(digest, ..)
            | Ask::ReadBlocks(digest, ..)
            | Ask::Groups(digest, ..) => self.require(user, Right::Read, &[*digest]),
            Ask::Verify(digests) => self.require(user, Right::Read, digests),
            Ask::Run { plan, .. } => {
                let inputs = inputs_of(plan).map_err(|error| format!("the plan cannot be read: {error}"))?;
                self.require(user, Right::Execute, &inputs)
            }
            Ask::Objects
            | Ask::SetAside(_)
            | Ask::Aside
            | Ask::Settle { .. }
            | Ask::SealDigests
            | Ask::Unseal(_)
            | Ask::Claim(_)
            | Ask::Reads
            // It would outlive the user's key.
            | Ask::Permit(_)
            | Ask::Fetch { .. }
            | Ask::Users(_) => Err(Stopped::Failed(format!(
                "{} is a user of this store, and only who has the store's own key may do that",
                eyas_text::shown(&user.name)
            ))),
        }
    }

    fn require(&self, user: &StoreUser, right: Right, digests: &[Digest]) -> Result<(), Stopped> {
        match self.store.users.lacking(&self.store.folder, user, right, digests)? {
            None => Ok(()),
            Some(digest) => {
                let what = if right == Right::Execute { "run programs on" } else { "read" };
                Err(Stopped::Failed(format!(
                    "{} may not {what} the object {digest} here: no data set that this store knows gives that right; one that was \
                     given lately is known after the next `eyas data repair`",
                    eyas_text::shown(&user.name)
                )))
            }
        }
    }

    fn read(&self, digest: Digest, is_counted: bool) -> Result<Tell, Stopped> {
        let Some(mut object) = self.store.folder.open(digest)? else { return Ok(Tell::Missing) };
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = object.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(Tell::Done);
            }
            if is_counted {
                self.store.count_read(digest, piece.len() as u64);
            }
            self.store.slow_down(piece.len());
            self.user()?;
            self.send(&Tell::Piece(piece.into()))?;
        }
    }

    fn read_at(&self, digest: Digest, range: Range<u64>) -> Result<Tell, Stopped> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + PIECE_BYTES as u64);
            let Some(piece) = self.store.folder.read_at(digest, start..end)? else {
                return Ok(Tell::Missing);
            };
            if piece.is_empty() {
                break;
            }
            start += piece.len() as u64;
            self.store.count_read(digest, piece.len() as u64);
            self.store.slow_down(piece.len());
            self.user()?;
            self.send(&Tell::Piece(piece.into()))?;
        }
        Ok(Tell::Done)
    }

    /// Receives a batch. A failure is told when the batch ends, as nobody listens before.
    fn take_batch(&mut self) -> Result<(), Stopped> {
        let store = self.store;
        let mut taken = TakenRoom::new(store);
        let mut batch = store.folder.batch().map_err(|error| error.to_string());
        // What was begun last is not there, so an `Undo` has nothing to do.
        let mut is_dropped = false;
        loop {
            match self.hear() {
                None => return Err(Gone.into()),
                Some(Ask::Abandon) => return Ok(()),
                Some(Ask::Keep) => {
                    let user = self.user()?;
                    batch?.keep().map_err(|error| error.to_string())?;
                    store.count_held(taken.n_bytes());
                    if let Some(user) = user {
                        store.users.note_brought(&user, taken.digests.iter().copied());
                    }
                    return Ok(());
                }
                Some(Ask::Add) => {
                    let mut object = Incoming::new(&mut self.inbox, &self.handle, &mut taken);
                    let added = batch.as_mut().ok().map(|batch| batch.add(&mut object));
                    let Some(end) = object.end() else { return Err(Gone.into()) };
                    is_dropped = matches!(end, End::Broken);
                    let failure = match (added, end) {
                        (None, _) => None,
                        (Some(Ok((found, _))), End::Whole(sent)) if found == sent => None,
                        (Some(Ok(_)), _) => Some("an object changed on its way".into()),
                        (Some(Err(_)), End::Broken) => undo(&mut batch),
                        (Some(Err(error)), End::Whole(_)) => Some(error.to_string()),
                    };
                    batch = failure.map_or(batch, Err);
                }
                Some(Ask::Undo) if is_dropped => is_dropped = false,
                Some(Ask::Undo) => {
                    taken.undo();
                    batch = undo(&mut batch).map_or(batch, Err);
                }
                Some(_) => batch = Err("a batch has only objects in it".into()),
            }
        }
    }

    pub(crate) fn send(&self, tell: &Tell) -> Result<(), Gone> {
        self.writer.send(tell);
        let room = async { timeout(DEAF_MAX, self.writer.room(QUEUED_BYTES)).await };
        match self.handle.block_on(room) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Gone),
        }
    }
}

fn hear(inbox: &mut mpsc::Receiver<Ask>, handle: &Handle) -> Option<Ask> {
    handle.block_on(async { timeout(DEAF_MAX, inbox.recv()).await }).ok().flatten()
}

/// Takes back what was added last to a batch that has not failed; why that cannot be done.
fn undo(batch: &mut Result<Box<dyn Arrivals + '_>, String>) -> Option<String> {
    batch.as_mut().ok()?.undo().err().map(|error| error.to_string())
}

/// Why a request was not carried out.
pub(crate) enum Stopped {
    Gone(Gone),
    Failed(String),
}

impl From<Gone> for Stopped {
    fn from(gone: Gone) -> Stopped {
        Stopped::Gone(gone)
    }
}

impl From<eyas_catalog::Error> for Stopped {
    fn from(error: eyas_catalog::Error) -> Stopped {
        Stopped::Failed(error.to_string())
    }
}

impl From<String> for Stopped {
    fn from(reason: String) -> Stopped {
        Stopped::Failed(reason)
    }
}

/// The room that a batch has taken. What is not kept is given back.
pub(crate) struct TakenRoom<'a> {
    store: &'a Store,
    /// The bytes of each object. One that the folder has already, or that came before, takes none.
    added: Vec<u64>,
    digests: HashSet<Digest>,
}

impl<'a> TakenRoom<'a> {
    pub(crate) fn new(store: &'a Store) -> TakenRoom<'a> {
        TakenRoom { store, added: vec![], digests: HashSet::new() }
    }

    /// Another object begins.
    pub(crate) fn begin(&mut self) {
        self.added.push(0);
    }

    /// Takes room for bytes of the object that began last.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&mut self, n_bytes: u64) -> io::Result<()> {
        self.store.take_room(n_bytes)?;
        *self.added.last_mut().expect("an object has begun") += n_bytes;
        Ok(())
    }

    pub(crate) fn undo(&mut self) {
        if let Some(n_bytes) = self.added.pop() {
            take_off(&self.store.arriving_bytes, n_bytes);
        }
    }

    /// The object that came last is complete.
    pub(crate) fn complete(&mut self, digest: Digest) {
        if !self.digests.insert(digest) || self.store.folder.size_of(digest).is_some() {
            self.undo();
            self.added.push(0);
        }
    }

    pub(crate) fn n_bytes(&self) -> u64 {
        self.added.iter().sum()
    }
}

impl Drop for TakenRoom<'_> {
    fn drop(&mut self) {
        while !self.added.is_empty() {
            self.undo();
        }
    }
}

/// How the sender ended an object.
#[derive(Debug, Clone, Copy)]
enum End {
    Whole(Digest),
    Broken,
}

/// The bytes of an object that arrives, up to the message that ends it.
struct Incoming<'a, 'b> {
    inbox: &'a mut mpsc::Receiver<Ask>,
    handle: &'a Handle,
    taken: &'a mut TakenRoom<'b>,
    piece: Bytes,
    end: Option<End>,
    /// The sender is gone, or says what has no place here.
    is_lost: bool,
}

impl<'a, 'b> Incoming<'a, 'b> {
    fn new(
        inbox: &'a mut mpsc::Receiver<Ask>,
        handle: &'a Handle,
        taken: &'a mut TakenRoom<'b>,
    ) -> Incoming<'a, 'b> {
        taken.begin();
        Incoming { inbox, handle, taken, piece: Bytes::new(), end: None, is_lost: false }
    }

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        if self.is_lost || self.end.is_some() {
            return None;
        }
        match hear(self.inbox, self.handle) {
            Some(Ask::Piece(piece)) => return Some(piece),
            Some(Ask::Whole(digest)) => {
                self.end = Some(End::Whole(digest));
                self.taken.complete(digest);
            }
            Some(Ask::Broken) => {
                self.end = Some(End::Broken);
                self.taken.undo();
            }
            _ => self.is_lost = true,
        }
        None
    }

    /// How the sender ended the object, after all that was sent of it; `None`: it did not.
    fn end(&mut self) -> Option<End> {
        while self.next().is_some() {}
        self.end
    }
}

impl Read for Incoming<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.next() {
                Some(piece) => {
                    let n_bytes = piece.len();
                    self.taken.store.slow_down(n_bytes);
                    self.taken.take(n_bytes as u64)?;
                    self.piece = piece;
                }
                None if matches!(self.end, Some(End::Whole(_))) => return Ok(0),
                None => return Err(io::Error::other("the sender did not send the whole object")),
            }
        }
        let n = into.len().min(self.piece.len());
        into[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}
