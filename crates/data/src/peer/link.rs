//! One connection: plain or TLS, buffered for reading, and the hello that both sides exchange.
//!
//! Not here: requests and answers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::{Hello, PROTOCOL_VERSION, Put, Role, Take, TicketKey};
use crate::store::BLOCK_BYTES;
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"eyasdata";

/// What every version starts with: magic and version.
const PREFIX_BYTES: usize = 8 + 2;
const CLIENT_HELLO_BYTES: usize = PREFIX_BYTES + 32 + 4;
const SERVER_HELLO_BYTES: usize = CLIENT_HELLO_BYTES + 32;

/// Bytes that a sender has queued in the kernel and that have not left yet.
const UNSENT_BYTES_MAX: libc::c_int = 64 << 10;

/// The server's last byte of the hello, so that a client does not send tickets to a peer that will not have it.
const WELCOME: u8 = 1;
const NOT_WELCOME: u8 = 0;

pub(super) enum Wire {
    Plain(TcpStream),
    TlsServer(Box<StreamOwned<ServerConnection, TcpStream>>),
    TlsClient(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::TlsServer(stream) => &stream.sock,
            Wire::TlsClient(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.read(into),
            Wire::TlsServer(stream) => stream.read(into),
            Wire::TlsClient(stream) => stream.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.write(bytes),
            Wire::TlsServer(stream) => stream.write(bytes),
            Wire::TlsClient(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(socket) => socket.flush(),
            Wire::TlsServer(stream) => stream.flush(),
            Wire::TlsClient(stream) => stream.flush(),
        }
    }
}

/// A connection with one read buffer. Payload is used straight from the buffer, so it is copied once.
pub(super) struct Link {
    pub(super) wire: Wire,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Link {
    /// Every read and write on the socket fails after `idle` without progress.
    pub(super) fn new(wire: Wire, idle: Duration) -> io::Result<Link> {
        let link = Link { wire, buffer: vec![0; BLOCK_BYTES], start: 0, end: 0 };
        link.wire.socket().set_nodelay(true)?;
        link.set_idle_timeout(idle)?;
        Ok(link)
    }

    pub(super) fn set_idle_timeout(&self, idle: Duration) -> io::Result<()> {
        self.wire.socket().set_read_timeout(Some(idle))?;
        self.wire.socket().set_write_timeout(Some(idle))
    }

    /// Lets the sender run only [`UNSENT_BYTES_MAX`] ahead of the wire, so that the bytes are still in the
    /// processor's cache when they leave; a queue of the usual megabytes goes to memory and back. What is under way
    /// is not limited by it, so it costs nothing on a long path. For large objects: many small ones would only wait
    /// more often.
    pub(super) fn keep_send_queue_short(&self) -> io::Result<()> {
        let value = UNSENT_BYTES_MAX;
        // SAFETY: the socket is open, and `value` is the C int that the option takes, alive through the call.
        let result = unsafe {
            libc::setsockopt(
                self.wire.socket().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes that have been received and not consumed.
    pub(super) fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// Waits for `n` bytes, at most [`BLOCK_BYTES`], and gives all that are there. Does not consume them.
    pub(super) fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.start + n > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.buffered());
        }
        while self.buffered() < n {
            match self.wire.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(k) => self.end += k,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Consumes `n` bytes that were peeked at.
    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves at least `least` and at most `most` bytes, which is at most [`BLOCK_BYTES`], into `block`, and waits for no
    /// more than `least`; a full buffer is swapped, not copied. If the connection breaks, `block` gets what did arrive.
    pub(super) fn take_block(&mut self, least: usize, most: usize, block: &mut Vec<u8>) -> io::Result<()> {
        let result = self.peek(least).map(drop);
        let n = most.min(self.buffered());
        if n == self.buffer.len() {
            block.resize(BLOCK_BYTES, 0);
            std::mem::swap(&mut self.buffer, block);
        } else {
            block.clear();
            block.extend_from_slice(&self.buffer[self.start..self.start + n]);
        }
        self.consume(n);
        result
    }

    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = *self.peek(N)?.first_chunk().expect("as many bytes as asked for");
        self.consume(N);
        Ok(bytes)
    }

    /// Whether the other side has closed the connection, as far as is known without waiting.
    pub(super) fn hung_up(&self) -> bool {
        let fd = self.wire.socket().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one pollfd, alive through the call, whose socket is open.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    /// The client's half of the hello. Returns the id of the server.
    pub(super) fn greet(&mut self, key: &TicketKey, client_id: u32) -> Result<u32> {
        const OPERATION: &str = "greet a peer";
        let lost = |e| Error::net(OPERATION, "the connection ended during the hello", e);
        let client_nonce = nonce().map_err(lost)?;

        let mut hello = [0; CLIENT_HELLO_BYTES];
        put_hello(&mut hello, &client_nonce, client_id);
        self.send(&hello).map_err(lost)?;

        check_prefix(&self.take().map_err(lost)?, OPERATION)?;
        let rest: [u8; SERVER_HELLO_BYTES - PREFIX_BYTES] = self.take().map_err(lost)?;
        let mut take = Take { bytes: &rest };
        let server_nonce = take.take();
        let server_id = u32::from_le_bytes(take.take());
        let hello = Hello { client_nonce, server_nonce, client_id, server_id };
        if key.proof(Role::Server, &hello) != blake3::Hash::from_bytes(take.take()) {
            return Err(wrong_secret(OPERATION));
        }
        self.send(key.proof(Role::Client, &hello).as_bytes()).map_err(lost)?;
        match self.take::<1>().map_err(lost)? {
            [WELCOME] => Ok(server_id),
            _ => Err(wrong_secret(OPERATION)),
        }
    }

    /// The server's half of the hello. Returns the id of the client.
    pub(super) fn welcome(&mut self, key: &TicketKey, server_id: u32) -> Result<u32> {
        const OPERATION: &str = "welcome a peer";
        let lost = |e| Error::net(OPERATION, "the connection ended during the hello", e);
        let prefix: [u8; PREFIX_BYTES] = self.take().map_err(lost)?;
        if let Err(error) = check_prefix(&prefix, OPERATION) {
            if matches!(error.kind, ErrorKind::WrongVersion { .. }) {
                // Enough for the peer to say why; whether it arrives does not matter to us.
                let mut hello = [0; SERVER_HELLO_BYTES];
                put_hello(&mut hello[..CLIENT_HELLO_BYTES], &[0; 32], 0);
                let _ = self.send(&hello);
            }
            return Err(error);
        }
        let rest: [u8; CLIENT_HELLO_BYTES - PREFIX_BYTES] = self.take().map_err(lost)?;
        let mut take = Take { bytes: &rest };
        let client_nonce = take.take();
        let client_id = u32::from_le_bytes(take.take());
        let server_nonce = nonce().map_err(lost)?;
        let hello = Hello { client_nonce, server_nonce, client_id, server_id };

        let mut ours = [0; SERVER_HELLO_BYTES];
        put_hello(&mut ours[..CLIENT_HELLO_BYTES], &server_nonce, server_id);
        ours[CLIENT_HELLO_BYTES..].copy_from_slice(key.proof(Role::Server, &hello).as_bytes());
        self.send(&ours).map_err(lost)?;

        let proof = blake3::Hash::from_bytes(self.take().map_err(lost)?);
        let known = proof == key.proof(Role::Client, &hello);
        self.send(&[if known { WELCOME } else { NOT_WELCOME }]).map_err(lost)?;
        if known { Ok(client_id) } else { Err(wrong_secret(OPERATION)) }
    }
}

fn put_hello(into: &mut [u8], nonce: &[u8; 32], id: u32) {
    let mut put = Put { bytes: into };
    put.put(&MAGIC);
    put.put(&PROTOCOL_VERSION.to_le_bytes());
    put.put(nonce);
    put.put(&id.to_le_bytes());
}

fn check_prefix(prefix: &[u8; PREFIX_BYTES], operation: &'static str) -> Result<()> {
    let mut take = Take { bytes: prefix };
    if take.take() != MAGIC {
        return Err(Error::new(ErrorKind::Protocol, operation, "it is no data port of eyas, or expects TLS"));
    }
    let theirs = u16::from_le_bytes(take.take());
    if theirs == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::WrongVersion { ours: PROTOCOL_VERSION, theirs },
        operation,
        format!("it speaks version {theirs} of the data protocol, we speak {PROTOCOL_VERSION}"),
    ))
}

fn wrong_secret(operation: &'static str) -> Error {
    Error::new(ErrorKind::WrongSecret, operation, "it does not have the secret of this cluster")
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0u8; 32];
    // SAFETY: the buffer is as long as said and lives through the call.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        32 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}
