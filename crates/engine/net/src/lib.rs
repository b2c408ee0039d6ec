//! eyas-net: connections of the control plane: TLS among members, a preamble, then frames.
//!
//! [`connect`] and [`keep_door`] give a [`FrameReader`] and a [`Writer`] once both sides have proved that they are
//! members and speak the same protocol version. Until then, the side that connects is a *stranger*. Only a
//! few strangers are allowed at a time: they cost memory and descriptors, and must keep no member out. Each
//! side of a connection has a task of its own, so a slow reader at the other end never blocks the sender.

#![forbid(unsafe_code)]

use eyas_wire::frame::{self, FrameError, PREAMBLE_BYTES};
use eyas_wire::identity::{Identity, IdentityError};
use eyas_wire::message::{Hello, Welcome};
use eyas_wire::relay::{self, Passed};
use eyas_wire::users::UserKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use rustls::ClientConfig;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// How long a new connection may take until both sides have spoken, however the bytes come.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a member waits before it connects again to a dispatcher with too many strangers.
const DOOR_WAIT: Duration = Duration::from_millis(50);
/// How long a new connection waits for room among the strangers: the longest if members have got through lately, the
/// shortest if none has. Without the shortest, a crowd of members could push each other out for ever.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(20);
const ROOM_WAIT_MIN: Duration = Duration::from_millis(1);
/// Connections that the system keeps until they are accepted; it may allow fewer.
const BACKLOG: i32 = 4096;
/// What is read ahead of the frame that is wanted: most frames of an executor are shorter. TLS has more behind it.
const READ_AHEAD_BYTES: usize = 1 << 10;
/// A connection keeps a buffer of this size for the next frame. With larger ones, the memory for the largest frame of
/// each of thousands of connections would add up.
const KEPT_BYTES: usize = 2 << 10;
/// All frames that wait go in one write, up to about this size.
const WRITE_BYTES: usize = 1 << 20;
/// How long accepting pauses when this process is out of descriptors or memory.
const SHORTAGE_WAIT: Duration = Duration::from_millis(20);

#[derive(thiserror::Error, Debug)]
pub enum NetError {
    #[error("cannot reach the dispatcher at {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error(
        "the dispatcher at {address} does not let this join file in ({why}); \
         it belongs to another cluster or to an earlier one, or to a user whose key was taken back"
    )]
    NotAMember { address: String, why: String },
    #[error(
        "the dispatcher at {address} closed the connection before it knew who we are ({source}), for {} s; \
         has it a crowd of strangers at its port?",
        HANDSHAKE_MAX.as_secs()
    )]
    AtDoor { address: String, source: io::Error },
    #[error("nobody answered at {address} within {} s", HANDSHAKE_MAX.as_secs())]
    NoAnswer { address: String },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the dispatcher refused: {0}")]
    Refused(String),
    #[error("the connection to the dispatcher was closed")]
    Closed,
    /// The dispatcher is one of several, and is away; the others cannot do what was asked.
    #[error("{0}")]
    Away(String),
}

/// Reads frames.
pub struct FrameReader {
    stream: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    body: Vec<u8>,
    peer: Option<UserKey>,
}

impl FrameReader {
    /// The key of the certificate of the side that connected to us.
    pub fn peer(&self) -> Option<UserKey> {
        self.peer
    }

    /// The next frame, or `None` when the other side closed the connection between two frames.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, NetError> {
        let message = read_frame(&mut self.stream, &mut self.body).await?;
        if self.body.capacity() > KEPT_BYTES {
            self.body = Vec::new();
        }
        Ok(message)
    }

    /// The body of the next frame as it is, or `None` as in [`Self::next`].
    pub async fn next_body(&mut self) -> Result<Option<&[u8]>, NetError> {
        if self.body.capacity() > KEPT_BYTES {
            self.body = Vec::new();
        }
        Ok(read_body(&mut self.stream, &mut self.body).await?.then_some(&*self.body))
    }
}

/// The next frame of a stream, read into `body`; `None` when the other side closed it between two frames.
async fn read_frame<S: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut S,
    body: &mut Vec<u8>,
) -> Result<Option<T>, NetError> {
    match read_body(stream, body).await? {
        true => Ok(Some(frame::decode(body)?)),
        false => Ok(None),
    }
}

/// Reads the body of the next frame. `false`: the other side closed the stream between two frames.
async fn read_body<S: AsyncRead + Unpin>(stream: &mut S, body: &mut Vec<u8>) -> Result<bool, NetError> {
    let mut header = [0; 4];
    match stream.read_exact(&mut header).await {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    let n_bytes = frame::body_len(header)?;
    // Memory is allocated for the bytes that arrive, not for the bytes that are announced.
    body.clear();
    body.reserve(n_bytes.min(1 << 20));
    stream.take(n_bytes as u64).read_to_end(body).await?;
    if body.len() < n_bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(true)
}

/// A connection of members that one task uses, frame by frame. Its TLS can be taken off, and then the two ends of the TCP
/// connection may speak something else.
pub struct Stream(TlsStream<TcpStream>);

impl Stream {
    /// Sends a frame, and waits until the system has it.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), NetError> {
        let mut out = Vec::with_capacity(256);
        frame::encode(message, &mut out);
        self.0.write_all(&out).await?;
        Ok(self.0.flush().await?)
    }

    /// As [`FrameReader::next`].
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, NetError> {
        read_frame(&mut self.0, &mut vec![]).await
    }

    /// As [`FrameReader::first`].
    pub async fn first<T: DeserializeOwned>(&mut self) -> Result<Option<T>, NetError> {
        timeout(HANDSHAKE_MAX, self.next()).await.map_err(|_| NetError::Closed)?
    }

    pub fn split(self) -> (FrameReader, Writer) {
        let certificate = match &self.0 {
            TlsStream::Server(stream) => stream.get_ref().1.peer_certificates().and_then(<[_]>::first),
            TlsStream::Client(_) => None,
        };
        let peer = certificate.map(|certificate| UserKey::of(certificate));
        let (reader, writer) = split(self.0);
        (FrameReader { peer, ..reader }, writer)
    }

    /// Takes TLS off. What the other side has sent without TLS is lost if it was sent before this side had read its last
    /// frame: the caller guarantees that nothing was.
    pub fn into_tcp(self) -> TcpStream {
        match self.0 {
            TlsStream::Client(stream) => stream.into_inner().0,
            TlsStream::Server(stream) => stream.into_inner().0,
        }
    }
}

/// Queues frames for a task that writes them; never blocks. The connection closes when all clones and
/// everything queued are gone.
#[derive(Clone)]
pub struct Writer {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<Queued>,
    /// The sending end is in the task that writes.
    over: watch::Receiver<()>,
    /// The connection is a relay's, and what is sent here is for the executor that has this number there.
    behind: Option<u32>,
}

impl Writer {
    /// `false` when the connection is gone.
    pub fn send<T: Serialize>(&self, message: &T) -> bool {
        let mut out = Vec::with_capacity(256);
        match self.behind {
            None => frame::encode(message, &mut out),
            Some(number) => relay::encode_message(number, message, &mut out),
        }
        self.send_encoded(out)
    }

    /// Sends a frame with this body.
    pub fn send_body(&self, body: &[u8]) -> bool {
        let mut out = Vec::with_capacity(4 + body.len());
        frame::encode_with(&mut out, |out| out.extend_from_slice(body));
        self.send_encoded(out)
    }

    /// Sends whole frames, header and all.
    pub fn send_encoded(&self, frames: Vec<u8>) -> bool {
        self.queued.n_bytes.fetch_add(frames.len(), Ordering::Relaxed);
        self.frames.send(frames).is_ok()
    }

    /// Says something of the connection `number` of a relay.
    pub fn pass(&self, number: u32, passed: Passed<'_>) -> bool {
        let mut out = Vec::with_capacity(16);
        relay::encode(number, passed, &mut out);
        self.send_encoded(out)
    }

    /// A writer to an executor at a relay, whose connection this one is for.
    pub fn behind(&self, number: u32) -> Writer {
        Writer { behind: Some(number), ..self.clone() }
    }

    pub fn is_behind_relay(&self) -> bool {
        self.behind.is_some()
    }

    /// Gives up the connection, as when the last clone is dropped: a relay has to be told.
    pub fn close(self) {
        if let Some(number) = self.behind {
            self.pass(number, Passed::Closed);
        }
    }

    /// Bytes that wait to be written.
    pub fn n_queued_bytes(&self) -> usize {
        self.queued.n_bytes.load(Ordering::Relaxed)
    }

    /// Waits until at most `n_bytes` are queued, so that a sender of much stays as slow as its receiver. `false` when the
    /// connection is gone.
    pub async fn room(&self, n_bytes: usize) -> bool {
        loop {
            let mut less = std::pin::pin!(self.queued.less.notified());
            less.as_mut().enable();
            if self.queued.is_over.load(Ordering::Acquire) {
                return false;
            }
            if self.n_queued_bytes() <= n_bytes {
                return true;
            }
            less.await;
        }
    }

    /// Gives up the connection and waits until everything queued has left, or cannot leave any more. A clone
    /// that is still held keeps the connection open, and prolongs this wait.
    pub async fn finish(self) {
        let Writer { frames, mut over, .. } = self;
        drop(frames);
        let _ = over.changed().await;
    }
}

/// What a [`Writer`] has queued, and whether its connection is gone.
#[derive(Default)]
struct Queued {
    n_bytes: AtomicUsize,
    is_over: AtomicBool,
    less: Notify,
}

/// Says that the connection is gone when the task that writes ends.
struct Over(Arc<Queued>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.less.notify_waiters();
    }
}

fn split<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S) -> (FrameReader, Writer) {
    let (read, mut write) = tokio::io::split(stream);
    let (frames, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let (writing, over) = watch::channel(());
    let queued = Arc::new(Queued::default());
    let at_end = Over(queued.clone());
    tokio::spawn(async move {
        let _writing = writing;
        while let Some(frame) = queue.recv().await {
            let mut batch = frame;
            while batch.len() < WRITE_BYTES
                && let Ok(frame) = queue.try_recv()
            {
                batch.extend_from_slice(&frame);
            }
            if write.write_all(&batch).await.is_err() || write.flush().await.is_err() {
                return;
            }
            at_end.0.n_bytes.fetch_sub(batch.len(), Ordering::Relaxed);
            at_end.0.less.notify_waiters();
        }
        let _ = write.shutdown().await;
    });
    let stream =
        BufReader::with_capacity(READ_AHEAD_BYTES, Box::new(read) as Box<dyn AsyncRead + Send + Unpin>);
    (FrameReader { stream, body: vec![], peer: None }, Writer { frames, queued, over, behind: None })
}

/// Exchanges preambles; the stream is then ready for frames.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<(), NetError> {
    stream.write_all(&frame::preamble()).await?;
    stream.flush().await?;
    let mut theirs = [0; PREAMBLE_BYTES];
    stream.read_exact(&mut theirs).await?;
    frame::check_preamble(&theirs)?;
    Ok(())
}

/// Connects to a dispatcher as a member. If too many strangers are connected to it, tries again for a while.
pub async fn connect(address: &str, identity: &Identity) -> Result<(FrameReader, Writer), NetError> {
    connect_from(None, address, identity.client_config()?).await
}

/// As [`connect`], for a process with many connections to one dispatcher.
///
/// * `source`: the address of this machine from which to connect. One address has some 28,000 ports.
/// * `config`: as [`Identity::client_config`] gives it; connections may share it.
pub async fn connect_from(
    source: Option<IpAddr>,
    address: &str,
    config: Arc<rustls::ClientConfig>,
) -> Result<(FrameReader, Writer), NetError> {
    connect_stream(source, address, config).await.map(Stream::split)
}

/// As [`connect_from`]; the connection is not split.
pub async fn connect_stream(
    source: Option<IpAddr>,
    address: &str,
    config: Arc<rustls::ClientConfig>,
) -> Result<Stream, NetError> {
    let connector = TlsConnector::from(config);
    let mut last = None;
    let attempt = async {
        loop {
            match connect_once(source, address, &connector).await {
                Err(NetError::AtDoor { source, .. }) => last = Some(source),
                result => return result,
            }
            tokio::time::sleep(DOOR_WAIT).await;
        }
    };
    let connected = timeout(HANDSHAKE_MAX, attempt).await;
    connected.unwrap_or_else(|_| {
        Err(match last {
            Some(source) => NetError::AtDoor { address: address.into(), source },
            None => NetError::NoAnswer { address: address.into() },
        })
    })
}

/// Connects to a dispatcher as a member and greets it; gives the connection and the dispatcher's answer. If
/// the dispatcher closes the connection before it answers, tries again for a while: until it has received the
/// whole greeting, it counts us among the strangers.
pub async fn enter(
    address: &str,
    identity: &Identity,
    hello: &Hello,
) -> Result<(FrameReader, Writer, Welcome), NetError> {
    let deadline = Instant::now() + HANDSHAKE_MAX;
    loop {
        let (mut reader, writer) = connect(address, identity).await?;
        writer.send(hello);
        let source = match reader.next::<Welcome>().await {
            Ok(Some(welcome)) => return Ok((reader, writer, welcome)),
            Ok(None) => io::ErrorKind::UnexpectedEof.into(),
            Err(NetError::Broken(e)) => e,
            Err(e) => return Err(e),
        };
        if Instant::now() >= deadline {
            return Err(NetError::AtDoor { address: address.into(), source });
        }
        tokio::time::sleep(DOOR_WAIT).await;
    }
}

/// A TCP connection from `source`, where one is given; then `address` is of the same family, and no name.
async fn connect_tcp(source: Option<IpAddr>, address: &str) -> io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect(address).await };
    let address: SocketAddr = address.parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

async fn connect_once(
    source: Option<IpAddr>,
    address: &str,
    connector: &TlsConnector,
) -> Result<Stream, NetError> {
    let tcp = connect_tcp(source, address)
        .await
        .map_err(|source| NetError::Connect { address: address.into(), source })?;
    enter_over(tcp, address, connector).await
}

/// As [`connect`], over a TCP connection that somebody else has made; `address` is its other end's, for errors.
pub async fn connect_over(
    tcp: TcpStream,
    address: &str,
    config: Arc<rustls::ClientConfig>,
) -> Result<Stream, NetError> {
    let connector = TlsConnector::from(config);
    let entered = timeout(HANDSHAKE_MAX, enter_over(tcp, address, &connector)).await;
    entered.unwrap_or_else(|_| Err(NetError::NoAnswer { address: address.into() }))
}

/// Why TLS failed. What the other side said by an alert has a name that means something to programmers only.
fn in_words(e: &io::Error) -> String {
    let text = e.to_string();
    match text.starts_with("received fatal alert") {
        true => "its key is not known there".into(),
        false => text,
    }
}

async fn enter_over(tcp: TcpStream, address: &str, connector: &TlsConnector) -> Result<Stream, NetError> {
    tcp.set_nodelay(true)?;
    // TLS gives the reason for a refusal. A connection that only ends gives none.
    let shown_out = |e: io::Error| match e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        true => NetError::NotAMember { address: address.into(), why: in_words(&e) },
        false => NetError::AtDoor { address: address.into(), source: e },
    };
    let mut tls = connector.connect(Identity::server_name(), tcp).await.map_err(shown_out)?;
    // In TLS 1.3 the server judges our certificate after our side is done, so its refusal arrives here: when
    // we read, and perhaps when we write, which does not give the reason.
    match greet(&mut tls).await {
        Err(NetError::Broken(e)) => match tls.read(&mut [0]).await {
            Err(why) if why.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => Err(shown_out(why)),
            _ => Err(shown_out(e)),
        },
        other => other.map(|()| Stream(tls.into())),
    }
}

/// Accepts members through `listener`, each with a number, and has them served by `serve`, a task for each. A
/// stranger is closed after [`HANDSHAKE_MAX`], or when `strangers_max` others have come and no member gets through.
pub async fn keep_door<S, F>(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    strangers_max: usize,
    serve: S,
) where
    S: Fn(u64, SocketAddr, FrameReader, Writer) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let split = move |connection, peer, stream: Stream| {
        let (reader, writer) = stream.split();
        serve(connection, peer, reader, writer)
    };
    keep_door_with(listener, config, strangers_max, |stream| std::future::ready(Ok(stream)), split).await;
}

/// As [`keep_door`]; connections are not split, and a member is a stranger until its first frame has come: so members that say nothing
/// keep nobody out either.
pub async fn keep_door_of_streams<T, S, F>(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    strangers_max: usize,
    serve: S,
) where
    T: DeserializeOwned + Send,
    S: Fn(SocketAddr, Stream, T) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let hear = |mut stream: Stream| async move {
        let first = stream.first::<T>().await?.ok_or(NetError::Closed)?;
        Ok((stream, first))
    };
    let serve = move |_, peer, (stream, first)| serve(peer, stream, first);
    keep_door_with(listener, config, strangers_max, hear, serve).await;
}

/// As [`keep_door`], where a member is one once `hear` is done.
async fn keep_door_with<M, H, G, S, F>(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    strangers_max: usize,
    hear: H,
    serve: S,
) where
    M: Send,
    H: Fn(Stream) -> G + Clone + Send + 'static,
    G: Future<Output = Result<M, NetError>> + Send,
    S: Fn(u64, SocketAddr, M) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    // A second call of `listen` only changes the length of the queue.
    let _ = rustix::net::listen(&listener, BACKLOG);
    let strangers = Arc::new(Strangers::default());
    let mut next_connection = 0;
    loop {
        let (tcp, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // A client left again, or this process is out of descriptors or memory; then a stranger has
                // to go.
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
                ) {
                    strangers.drop_oldest();
                }
                tokio::time::sleep(SHORTAGE_WAIT).await;
                continue;
            }
        };
        if has_left(&tcp) {
            continue;
        }
        next_connection += 1;
        strangers.make_room(strangers_max).await;
        let (connection, config, hear, serve, at_door) =
            (next_connection, config.clone(), hear.clone(), serve.clone(), strangers.clone());
        strangers.came(connection, || {
            tokio::spawn(async move {
                let met = match accept(tcp, config).await {
                    Ok(stream) => hear(stream).await,
                    Err(error) => Err(error),
                };
                // A stranger that had to go meanwhile is not served: this task ends at its next step, and a
                // served connection must stay readable.
                if !at_door.left(connection, met.is_ok()) {
                    return;
                }
                if let Ok(member) = met {
                    serve(connection, peer, member).await;
                }
            })
            .abort_handle()
        });
    }
}

/// Whether the side that connected has closed the connection again. When more members come than this process can let in
/// within [`HANDSHAKE_MAX`], those at the head of the system's queue have given up, and a handshake with each of them
/// would use up the time in which the next ones give up.
fn has_left(tcp: &TcpStream) -> bool {
    let mut look = [PollFd::new(tcp, PollFlags::RDHUP)];
    // With a time of 0 it does not wait.
    let n = poll(&mut look, Some(&Timespec::default()));
    n.is_ok_and(|n| n > 0) && look[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// The connections that have not proved yet that they are members.
#[derive(Default)]
struct Strangers {
    /// In the order of arrival.
    all: Mutex<BTreeMap<u64, AbortHandle>>,
    one_left: Notify,
    /// A member has got through since the door last looked.
    let_in: AtomicBool,
    /// Microseconds that the door waits for room before it drops a stranger.
    patience_us: AtomicU64,
}

impl Strangers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.all.lock().expect("only map operations happen under this lock")
    }

    /// `begin` starts the task that ends the stranger's stay; when it runs, the stranger is already entered
    /// here.
    fn came(&self, connection: u64, begin: impl FnOnce() -> AbortHandle) {
        let mut all = self.lock();
        let task = begin();
        all.insert(connection, task);
    }

    /// The connection is no stranger any more: it is a member's, or it is over. `false`: it had to go before.
    fn left(&self, connection: u64, is_member: bool) -> bool {
        let was_here = self.lock().remove(&connection).is_some();
        if was_here {
            self.let_in.fetch_or(is_member, Ordering::Relaxed);
            self.one_left.notify_one();
        }
        was_here
    }

    /// Has fewer than `most` strangers when it returns. After a restart of the dispatcher all executors come at once:
    /// they are strangers, too, and get through one after the other. Dropping the oldest would drop those who are about
    /// to get through. So the door waits while members get through, and drops a stranger when none does; with each one
    /// that it drops its patience is halved, down to a millisecond, until the next member gets through. A crowd that
    /// only holds connections open gains twice the first patience at most by each member that gets through.
    async fn make_room(&self, most: usize) {
        while self.lock().len() >= most.max(1) {
            if self.let_in.swap(false, Ordering::Relaxed) {
                self.patience_us.store(ROOM_WAIT_MAX.as_micros() as u64, Ordering::Relaxed);
            }
            let patience_us = self.patience_us.load(Ordering::Relaxed);
            let patience = Duration::from_micros(patience_us).max(ROOM_WAIT_MIN);
            if timeout(patience, self.one_left.notified()).await.is_err() {
                self.drop_oldest();
                self.patience_us.store(patience_us / 2, Ordering::Relaxed);
            }
        }
    }

    /// Ending the task closes the connection.
    fn drop_oldest(&self) {
        if let Some((_, task)) = self.lock().pop_first() {
            task.abort();
        }
    }
}

/// Accepts a member; any other connection is an error, and one that has not proved itself within [`HANDSHAKE_MAX`].
pub async fn accept(tcp: TcpStream, config: Arc<rustls::ServerConfig>) -> Result<Stream, NetError> {
    tcp.set_nodelay(true)?;
    let attempt = async {
        let mut tls = TlsAcceptor::from(config).accept(tcp).await?;
        greet(&mut tls).await.map(|()| tls)
    };
    let tls = timeout(HANDSHAKE_MAX, attempt).await.map_err(|_| NetError::Closed)??;
    Ok(Stream(tls.into()))
}

impl FrameReader {
    /// The first frame of a member, which has as long for it as for everything before.
    pub async fn first<T: DeserializeOwned>(&mut self) -> Result<Option<T>, NetError> {
        timeout(HANDSHAKE_MAX, self.next()).await.map_err(|_| NetError::Closed)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    const STRANGERS_MAX: usize = 16;

    /// A door on loopback; gives its address. Whoever gets through hears a number.
    async fn door(identity: &Identity) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = identity.server_config().unwrap();
        tokio::spawn(keep_door(
            listener,
            config,
            STRANGERS_MAX,
            |connection, _, mut reader, writer| async move {
                writer.send(&connection);
                let _ = reader.next::<u64>().await;
            },
        ));
        address
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    /// All executors of a dispatcher that was started again come at once: each new one pushed out the oldest stranger,
    /// which was the one that was about to get through.
    #[test]
    fn members_that_come_at_once_all_get_through_at_their_first_try() {
        runtime().block_on(async {
            let identity = Identity::generate().unwrap();
            let address = door(&identity).await;
            let mut all = JoinSet::new();
            for _ in 0..200 {
                let (address, connector) =
                    (address.clone(), TlsConnector::from(identity.client_config().unwrap()));
                all.spawn(async move {
                    let (mut reader, writer) = connect_once(None, &address, &connector).await?.split();
                    let number = reader.next::<u64>().await?;
                    drop(writer);
                    Ok::<_, NetError>(number)
                });
            }
            let met = all.join_all().await;
            let n_met = met.iter().filter(|met| matches!(met, Ok(Some(_)))).count();
            // A machine that stops for a while in the middle may push a few out.
            assert!(n_met >= 180, "{n_met} of 200 got through at once");
        });
    }

    #[test]
    fn a_crowd_that_only_holds_connections_open_keeps_no_member_out() {
        runtime().block_on(async {
            let identity = Identity::generate().unwrap();
            let address = door(&identity).await;
            for _ in 0..10 {
                let mut crowd = vec![];
                for _ in 0..5 * STRANGERS_MAX {
                    crowd.push(TcpStream::connect(&address).await.unwrap());
                }
                let (mut reader, _writer) = connect(&address, &identity).await.unwrap();
                assert!(reader.next::<u64>().await.unwrap().is_some());
            }
        });
    }

    #[test]
    fn a_connection_that_was_given_up_is_known_from_one_that_waits() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let mut gone = TcpStream::connect(at).await.unwrap();
            let mut waits = TcpStream::connect(at).await.unwrap();
            for stream in [&mut gone, &mut waits] {
                stream.write_all(b"the begin of a greeting").await.unwrap();
            }
            drop(gone);
            let (first, second) = (listener.accept().await.unwrap().0, listener.accept().await.unwrap().0);
            assert!(has_left(&first), "its bytes are still unread");
            assert!(!has_left(&second));
        });
    }

    /// A sender that waits for room never has more queued than it wants, and is woken when the other side is gone.
    #[test]
    fn a_sender_of_much_is_as_slow_as_its_receiver() {
        runtime().block_on(async {
            let (here, there) = tokio::io::duplex(4096);
            let (_, writer) = split(here);
            let (mut reader, there) = split(there);
            let receiving = tokio::spawn(async move {
                for _ in 0..200 {
                    let piece: Vec<u8> = reader.next().await.unwrap().unwrap();
                    assert_eq!(piece.len(), 10_000);
                }
                drop((reader, there));
            });
            for _ in 0..200 {
                assert!(writer.room(20_000).await);
                writer.send(&vec![7_u8; 10_000]);
                assert!(writer.n_queued_bytes() <= 20_000 + 10_010);
            }
            receiving.await.unwrap();
            // Nobody reads any more: the pipe is full or broken.
            while writer.send(&vec![7_u8; 10_000]) && writer.room(20_000).await {}
        });
    }

    #[test]
    fn a_connection_comes_from_the_address_that_was_asked_for() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap().to_string();
            let source: IpAddr = "127.0.0.5".parse().unwrap();
            let (stream, accepted) = tokio::join!(connect_tcp(Some(source), &at), listener.accept());
            assert_eq!(stream.unwrap().local_addr().unwrap().ip(), source);
            assert_eq!(accepted.unwrap().1.ip(), source);
        });
    }
}
