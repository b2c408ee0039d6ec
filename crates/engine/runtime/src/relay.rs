//! A relay's process: it takes in executors, and passes their frames on to the dispatcher on one connection.
//!
//! TLS of the executors ends here, so that the dispatcher has the memory of one connection for all of them. A relay keeps
//! nothing and decides nothing: what is on its way is lost with it, as with a connection that breaks. It takes executors in
//! only while it has the dispatcher's welcome; so they look elsewhere as soon as it has not.
//!
//! Of messages it knows one kind by its first bytes: a status of an executor waits a moment for others, because waking the
//! dispatcher for each costs several times what the dispatcher does for it.
//!
//! What waits here has an end. Towards the dispatcher each executor has at most one frame under way beside a short queue that
//! all share in turn. Towards an executor a relay never waits, as all others would wait with it: one that does not take what it
//! is sent loses its connection.
//!
//! Not here: what the frames look like ([`eyas_wire::relay`]), the dispatcher's side (`dispatcher/relays.rs`), and how
//! executors choose a relay ([`eyas_session::executor::places`]).

use crate::{address, descriptors};
use eyas_client::Target;
use eyas_net::{self as net, FrameReader, NetError, Writer};
use eyas_text::{line_of, say};
use eyas_wire::frame::FRAME_BYTES_MAX;
use eyas_wire::identity::{Identity, IdentityError, Join};
use eyas_wire::message::{Hello, Welcome};
use eyas_wire::relay::{self, Passed, RELAY_ITSELF};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{timeout, timeout_at};

/// How long a relay waits before it tries again to reach its dispatcher. Executors find a dispatcher that was started again
/// within a grace only if their relay is there well before that.
const RETRY: Duration = Duration::from_millis(100);
/// How long an executor that was let in may take to say something.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Frames of executors that wait for the dispatcher's connection.
const UP_FRAMES_MAX: usize = 64;
/// Bytes that wait on the dispatcher's connection before further frames wait for it.
const UP_BYTES_MAX: usize = 256 << 10;
/// How long a status of an executor waits for others at most, and how many bytes do.
const HOLD: Duration = Duration::from_millis(100);
const HELD_BYTES_MAX: usize = 16 << 10;
/// An executor for which more waits has lost its connection.
const DOWN_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Executors whose hello the dispatcher has not answered yet, of each relay. With more, the statuses of those that it has
/// welcomed would wait behind all hellos, for longer than it waits for a status.
const OPENING_MAX: usize = 16;
/// How often a relay says that it is there.
const ALIVE: Duration = Duration::from_secs(10);
/// A dispatcher of which nothing was heard for this long is taken to be gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long the dispatcher's last messages to executors may take to leave.
const LEAVE_MAX: Duration = Duration::from_millis(500);
/// The most connections at a time that have not yet proved to be members.
const STRANGERS_MAX: usize = 256;
/// How long no dispatcher may answer, until one has said how long.
const LEASE: Duration = Duration::from_secs(15);

/// How a relay is started.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    pub target: Target,
    /// `host:port`; port 0 picks a free one, which stays the same.
    pub listen: String,
    /// The address that executors are told, if it differs from the address listened on.
    pub advertise: Option<String>,
}

#[derive(thiserror::Error, Debug)]
pub enum RelayError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("no dispatcher answered for {lease_s} s; the last try: {last}")]
    LeaseEnded { lease_s: u64, last: String },
}

/// Runs a relay until `stop`, or until its dispatcher ends or does not answer for the length of the lease. Errors: it cannot
/// begin, or no dispatcher has answered for that long.
pub async fn run(options: RelayOptions, stop: impl Future<Output = ()>) -> Result<(), RelayError> {
    let strangers_max = descriptors::raise().share(8, 16, STRANGERS_MAX);
    let identity = options.target.join().identity.clone();
    let mut relay = Relay {
        path: options.target.path().to_path_buf(),
        dispatcher: options.target.join().address.clone(),
        server_config: identity.server_config()?,
        identity,
        listen: options.listen,
        advertise: options.advertise,
        strangers_max,
        lease: LEASE,
        has_met: false,
    };
    tokio::select! {
        result = relay.live() => result,
        () = stop => Ok(()),
    }
}

struct Relay {
    /// The join file, which has the dispatcher's address.
    path: PathBuf,
    /// The dispatcher's last known address.
    dispatcher: String,
    identity: Identity,
    server_config: Arc<rustls::ServerConfig>,
    listen: String,
    advertise: Option<String>,
    strangers_max: usize,
    lease: Duration,
    /// A dispatcher has welcomed this relay.
    has_met: bool,
}

/// How a connection to the dispatcher ended.
enum End {
    /// The dispatcher has ended for good.
    OfDispatcher,
    Lost(String),
}

impl Relay {
    async fn live(&mut self) -> Result<(), RelayError> {
        let mut answered = Instant::now();
        loop {
            let last = match self.serve_once().await {
                Ok(End::OfDispatcher) => {
                    say!("eyas: the dispatcher ends, and so does this relay");
                    return Ok(());
                }
                Ok(End::Lost(why)) => {
                    answered = Instant::now();
                    let lease_s = self.lease.as_secs();
                    say!(
                        "eyas: the dispatcher is lost: {}; trying again for up to {lease_s} s",
                        line_of(&why)
                    );
                    why
                }
                Err(RelayError::Net(refused @ NetError::Refused(_))) => return Err(refused.into()),
                Err(RelayError::Net(error @ NetError::NotAMember { .. })) if !self.has_met => {
                    return Err(error.into());
                }
                Err(error @ RelayError::Listen { .. }) if !self.has_met => return Err(error),
                Err(error) => error.to_string(),
            };
            if answered.elapsed() > self.lease {
                return Err(RelayError::LeaseEnded { lease_s: self.lease.as_secs(), last });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// One connection to the dispatcher, from its beginning to its end.
    async fn serve_once(&mut self) -> Result<End, RelayError> {
        // A restarted dispatcher has written a new address; while it is away there is no file.
        if let Ok(join) = Join::read(&self.path) {
            self.dispatcher = join.address;
        }
        let (mut reader, writer) = net::connect(&self.dispatcher, &self.identity).await?;
        let listener = self.listen().await?;
        let bound = listener.local_addr().map_err(NetError::from)?;
        let address = self.advertise.clone().unwrap_or_else(|| address::advertised(bound));
        writer.send(&Hello::Relay { address: address.clone() });
        self.lease = match reader.first::<Welcome>().await? {
            Some(Welcome::Relay { lease_ns }) => Duration::from_nanos(lease_ns),
            Some(Welcome::Refused { reason }) => return Err(NetError::Refused(reason).into()),
            _ => return Err(NetError::Closed.into()),
        };
        self.has_met = true;
        say!("eyas: the relay takes executors in at {address}, for the dispatcher at {}", self.dispatcher);

        let (up, queue) = mpsc::channel(UP_FRAMES_MAX);
        let opening = Arc::new(Semaphore::new(OPENING_MAX));
        let below =
            Arc::new(Below { all: Mutex::default(), last: AtomicU32::new(RELAY_ITSELF), opening, up });
        let _closing = Closing(below.clone());
        let serving = below.clone();
        let door =
            net::keep_door(listener, self.server_config.clone(), self.strangers_max, move |_, peer, r, w| {
                serving.clone().serve(peer, r, w)
            });
        let end = tokio::select! {
            end = hear(reader, &below) => end,
            () = pass_up(queue, &writer) => End::Lost("the connection is over".into()),
            () = say_alive(&writer) => End::Lost("the connection is over".into()),
            () = door => unreachable!("the door is kept for ever"),
        };
        if matches!(end, End::OfDispatcher) {
            below.finish().await;
        }
        Ok(end)
    }

    /// Listens on the port of the time before.
    async fn listen(&mut self) -> Result<TcpListener, RelayError> {
        let listener = TcpListener::bind(&self.listen).await;
        let listener =
            listener.map_err(|source| RelayError::Listen { address: self.listen.clone(), source })?;
        if let (Some(host), Ok(bound)) = (self.listen.strip_suffix(":0"), listener.local_addr()) {
            self.listen = format!("{host}:{}", bound.port());
        }
        Ok(listener)
    }
}

/// Passes on what the dispatcher says.
async fn hear(mut reader: FrameReader, below: &Below) -> End {
    loop {
        let body = match timeout(SILENCE_MAX, reader.next_body()).await {
            Ok(Ok(Some(body))) => body,
            Ok(Ok(None)) => return End::Lost("it closed the connection".into()),
            Ok(Err(error)) => return End::Lost(error.to_string()),
            Err(_) => return End::Lost(format!("nothing was heard of it for {} s", SILENCE_MAX.as_secs())),
        };
        match relay::decode(body) {
            Ok((number, Passed::Frame(body))) => below.give(number, body),
            Ok((number, Passed::Closed)) => drop(below.lock().remove(&number)),
            Ok((_, Passed::Alive)) => {}
            Ok((_, Passed::Ends)) => return End::OfDispatcher,
            Ok((_, Passed::Opened { .. })) => return End::Lost("it opens connections to itself".into()),
            Err(error) => return End::Lost(NetError::from(error).to_string()),
        }
    }
}

/// Passes frames of executors on as fast as the dispatcher takes them.
async fn pass_up(mut queue: mpsc::Receiver<Frame>, writer: &Writer) {
    while let Some(mut held) = queue.recv().await {
        let until = tokio::time::Instant::now() + HOLD;
        while held.may_wait && held.bytes.len() < HELD_BYTES_MAX {
            match timeout_at(until, queue.recv()).await {
                Ok(Some(frame)) => {
                    held.bytes.extend_from_slice(&frame.bytes);
                    held.may_wait = frame.may_wait;
                }
                Ok(None) | Err(_) => break,
            }
        }
        if !writer.room(UP_BYTES_MAX).await || !writer.send_encoded(held.bytes) {
            return;
        }
    }
}

async fn say_alive(writer: &Writer) {
    while writer.pass(RELAY_ITSELF, Passed::Alive) {
        tokio::time::sleep(ALIVE).await;
    }
}

/// A whole frame for the dispatcher.
struct Frame {
    bytes: Vec<u8>,
    /// It is a status, which may wait for others.
    may_wait: bool,
}

impl Frame {
    fn new(number: u32, passed: Passed<'_>) -> Frame {
        let may_wait = matches!(passed, Passed::Frame(body) if relay::is_status(body));
        let mut bytes = vec![];
        relay::encode(number, passed, &mut bytes);
        Frame { bytes, may_wait }
    }
}

/// The executors that are connected, for as long as one connection to the dispatcher lasts.
struct Below {
    all: Mutex<HashMap<u32, Executor>>,
    /// The number of the newest one.
    last: AtomicU32,
    opening: Arc<Semaphore>,
    /// To the dispatcher. Those who wait for room have their turn in the order in which they came.
    up: mpsc::Sender<Frame>,
}

/// An executor's connection. When it is dropped, what is queued still leaves, and nothing more is read.
struct Executor {
    writer: Writer,
    _reading: oneshot::Sender<()>,
    /// Until the dispatcher has answered its hello.
    opening: Option<OwnedSemaphorePermit>,
}

impl Below {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Executor>> {
        self.all.lock().expect("nothing panics with it")
    }

    /// One connection, from its first frame to its end.
    async fn serve(self: Arc<Self>, peer: SocketAddr, mut reader: FrameReader, writer: Writer) {
        let Ok(Ok(Some(hello))) = timeout(HELLO_MAX, reader.next_body()).await else { return };
        let Ok(turn) = self.opening.clone().acquire_owned().await else { return };
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let opened = Frame::new(number, Passed::Opened { peer, hello });
        let (reading, mut closed) = oneshot::channel();
        self.lock().insert(number, Executor { writer, _reading: reading, opening: Some(turn) });
        let pass_all = async {
            if self.up.send(opened).await.is_err() {
                return;
            }
            while let Ok(Some(body)) = reader.next_body().await {
                if self.up.send(Frame::new(number, Passed::Frame(body))).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = pass_all => {}
            // The dispatcher, or this relay, has closed the connection.
            _ = &mut closed => {}
        }
        self.lock().remove(&number);
        let _ = self.up.send(Frame::new(number, Passed::Closed)).await;
    }

    /// Sends an executor a frame with this body, unless too much waits for it already.
    fn give(&self, number: u32, body: &[u8]) {
        let mut all = self.lock();
        let Some(executor) = all.get_mut(&number) else { return };
        executor.opening = None;
        let waits = executor.writer.n_queued_bytes();
        if waits <= DOWN_BYTES_MAX {
            executor.writer.send_body(body);
        } else {
            all.remove(&number);
            say!(
                "eyas: executor {number} of this relay does not take what it is sent ({waits} bytes wait), and loses its connection"
            );
        }
    }

    /// Closes all connections, once what is queued has left.
    async fn finish(&self) {
        let all = std::mem::take(&mut *self.lock());
        let leave = async {
            for executor in all.into_values() {
                executor.writer.finish().await;
            }
        };
        let _ = timeout(LEAVE_MAX, leave).await;
    }
}

/// Closes all connections when the one to the dispatcher is over.
struct Closing(Arc<Below>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.lock().clear();
    }
}
