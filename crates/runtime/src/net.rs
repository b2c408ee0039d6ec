//! Connections of the control plane: TLS among members, a preamble, then frames.
//!
//! [`connect`] and [`accept`] give a [`Reader`] and a [`Writer`] once both sides have shown that they are
//! members and speak the same protocol version. Each side of a connection has a task of its own, so a
//! slow reader on the other end never blocks whoever writes.

use eyas_wire::frame::{self, FrameError, PREAMBLE_BYTES};
use eyas_wire::identity::{Identity, IdentityError};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How long a new connection may take until both sides have spoken.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

#[derive(thiserror::Error, Debug)]
pub enum NetError {
    #[error("cannot reach the dispatcher at {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error(
        "the dispatcher at {address} does not let this join file in ({why}); \
         it belongs to another cluster or to an earlier one"
    )]
    NotAMember { address: String, why: String },
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
    /// One of several; with the others nothing can be done.
    #[error("{0}")]
    Away(String),
}

/// Reads frames.
pub struct Reader {
    stream: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    body: Vec<u8>,
}

impl Reader {
    /// The next frame, or `None` when the other side closed the connection between two frames.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, NetError> {
        let mut header = [0; 4];
        match self.stream.read_exact(&mut header).await {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let n_bytes = frame::body_len(header)?;
        // Memory for what arrives, not for what is announced.
        self.body.clear();
        self.body.reserve(n_bytes.min(1 << 20));
        (&mut self.stream).take(n_bytes as u64).read_to_end(&mut self.body).await?;
        if self.body.len() < n_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let message = frame::decode(&self.body)?;
        if self.body.capacity() > 4 << 20 {
            self.body = Vec::new();
        }
        Ok(Some(message))
    }
}

/// Queues frames for a task that writes them; never blocks. The connection closes when all clones and
/// everything queued are gone.
#[derive(Clone)]
pub struct Writer {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    /// Its sending end lives in the task that writes.
    over: watch::Receiver<()>,
}

impl Writer {
    /// `false` when the connection is gone.
    pub fn send<T: Serialize>(&self, message: &T) -> bool {
        let mut out = Vec::with_capacity(256);
        frame::encode(message, &mut out);
        self.frames.send(out).is_ok()
    }

    /// Lets go of the connection and waits until everything queued has left, or cannot leave any more.
    /// A clone that is still held keeps the connection open, and this waiting.
    pub async fn finish(self) {
        let Writer { frames, mut over } = self;
        drop(frames);
        let _ = over.changed().await;
    }
}

fn split<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S) -> (Reader, Writer) {
    let (read, mut write) = tokio::io::split(stream);
    let (frames, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let (writing, over) = watch::channel(());
    tokio::spawn(async move {
        let _writing = writing;
        let mut batch = Vec::new();
        while let Some(frame) = queue.recv().await {
            // Everything that waits goes in one write.
            batch.extend_from_slice(&frame);
            while batch.len() < 1 << 20
                && let Ok(frame) = queue.try_recv()
            {
                batch.extend_from_slice(&frame);
            }
            if write.write_all(&batch).await.is_err() || write.flush().await.is_err() {
                return;
            }
            batch.clear();
        }
        let _ = write.shutdown().await;
    });
    let stream = BufReader::with_capacity(64 << 10, Box::new(read) as Box<dyn AsyncRead + Send + Unpin>);
    (Reader { stream, body: vec![] }, Writer { frames, over })
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

/// Connects to a dispatcher as a member.
pub async fn connect(address: &str, identity: &Identity) -> Result<(Reader, Writer), NetError> {
    let connector = TlsConnector::from(identity.client_config()?);
    let attempt = async {
        let tcp = TcpStream::connect(address)
            .await
            .map_err(|source| NetError::Connect { address: address.into(), source })?;
        tcp.set_nodelay(true)?;
        let not_a_member =
            |e: io::Error| NetError::NotAMember { address: address.into(), why: e.to_string() };
        let mut tls = connector.connect(Identity::server_name(), tcp).await.map_err(not_a_member)?;
        // In TLS 1.3 the server judges our certificate after our side is done, so its "no" comes here.
        match greet(&mut tls).await {
            Err(NetError::Broken(e)) => Err(not_a_member(e)),
            other => other.map(|()| tls),
        }
    };
    let tls = tokio::time::timeout(HANDSHAKE_MAX, attempt)
        .await
        .map_err(|_| NetError::NoAnswer { address: address.into() })??;
    Ok(split(tls))
}

/// Lets a member in; anybody else is an error.
pub async fn accept(tcp: TcpStream, config: Arc<rustls::ServerConfig>) -> Result<(Reader, Writer), NetError> {
    tcp.set_nodelay(true)?;
    let attempt = async {
        let mut tls = TlsAcceptor::from(config).accept(tcp).await?;
        greet(&mut tls).await.map(|()| tls)
    };
    let tls = tokio::time::timeout(HANDSHAKE_MAX, attempt).await.map_err(|_| NetError::Closed)??;
    Ok(split(tls))
}
