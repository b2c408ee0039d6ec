//! One connection: plain or TLS, buffered for reading, and the hello that both sides exchange.
//!
//! Not here: requests and answers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::{Hello, PROTOCOL_VERSION, Put, Role, Take, TicketKey};
use crate::store::BLOCK_BYTES;
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"eyasdata";

/// Every version's hello starts with these: magic and version.
const PREFIX_BYTES: usize = 8 + 2;
const CLIENT_HELLO_BYTES: usize = PREFIX_BYTES + 32 + 4;
const SERVER_HELLO_BYTES: usize = CLIENT_HELLO_BYTES + 32;

/// Bytes that a sender may have queued in the kernel before they leave.
const UNSENT_BYTES_MAX: libc::c_int = 64 << 10;

/// The most bytes that a receiver lets arrive before it wakes. With more, the sender's window, which opens as
/// we read, could run empty.
const WAKE_BYTES_MAX: usize = 128 << 10;

/// The last byte of the server's hello, so that a client sends no tickets to a peer that refuses it.
const WELCOME: u8 = 1;
const NOT_WELCOME: u8 = 0;

/// A socket that another thread can shut down while it is used: one descriptor, shared.
#[derive(Clone)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Socket {
        Socket(Arc::new(stream))
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.0
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) enum Wire {
    Plain(Socket),
    TlsServer(Box<StreamOwned<ServerConnection, Socket>>),
    TlsClient(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Wire {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket.stream(),
            Wire::TlsServer(stream) => stream.sock.stream(),
            Wire::TlsClient(stream) => stream.sock.stream(),
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
pub(super) struct Connection {
    pub(super) wire: Wire,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of bytes from which on the kernel reports the socket as readable.
    wake_at: libc::c_int,
    idle_ms: libc::c_int,
}

impl Connection {
    /// Every read and write on the socket fails after `idle` without progress.
    pub(super) fn new(wire: Wire, idle: Duration) -> io::Result<Connection> {
        let buffer = vec![0; BLOCK_BYTES];
        let mut connection = Connection { wire, buffer, start: 0, end: 0, wake_at: 1, idle_ms: 0 };
        connection.wire.socket().set_nodelay(true)?;
        connection.set_idle_timeout(idle)?;
        Ok(connection)
    }

    pub(super) fn set_idle_timeout(&mut self, idle: Duration) -> io::Result<()> {
        self.idle_ms = libc::c_int::try_from(idle.as_millis().max(1)).unwrap_or(libc::c_int::MAX);
        self.wire.socket().set_read_timeout(Some(idle))?;
        self.wire.socket().set_write_timeout(Some(idle))
    }

    /// Lets the sender run only [`UNSENT_BYTES_MAX`] ahead of the wire, so that the bytes are still in the
    /// processor's cache when they leave; a queue of the usual megabytes goes to memory and back. Bytes on
    /// the wire are not limited, so this costs nothing on a long path. For large objects only: many small
    /// ones would only wait more often.
    pub(super) fn keep_send_queue_short(&self) -> io::Result<()> {
        set_option(self.wire.socket(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    }

    /// Bytes that have been received and not consumed.
    pub(super) fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// Waits until at least `n` bytes (at most [`BLOCK_BYTES`]) are in the buffer. True if they were not
    /// there yet, which means that the sender is slower than we are. The bytes that arrived are in the buffer
    /// also after an error.
    pub(super) fn wait(&mut self, n: usize) -> io::Result<bool> {
        if self.start + n > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.buffered());
        }
        let mut waited = false;
        while self.buffered() < n {
            let missing = n - self.buffered();
            let read = match &mut self.wire {
                Wire::Plain(socket) => read_now(socket.stream(), &mut self.buffer[self.end..]),
                tls => {
                    waited |= !is_readable(tls.socket(), 0)?;
                    tls.read(&mut self.buffer[self.end..])
                }
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(k) => self.end += k,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && matches!(self.wire, Wire::Plain(_)) => {
                    waited = true;
                    self.wake_at(missing)?;
                    if !is_readable(self.wire.socket(), self.idle_ms)? {
                        return self.late(n);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(waited)
    }

    /// Fewer bytes than were waited for arrived in time; they are still in the kernel.
    fn late(&mut self, n: usize) -> io::Result<bool> {
        let missing = n - self.buffered();
        if let Wire::Plain(socket) = &self.wire {
            self.end += read_now(socket.stream(), &mut self.buffer[self.end..][..missing]).unwrap_or(0);
        }
        if self.buffered() < n { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(true) }
    }

    /// Has the kernel wake us when `n` bytes have arrived, not for each packet.
    fn wake_at(&mut self, n: usize) -> io::Result<()> {
        let n = libc::c_int::try_from(n.min(WAKE_BYTES_MAX)).expect("a few KiB");
        if n != self.wake_at {
            set_option(self.wire.socket(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, n)?;
            self.wake_at = n;
        }
        Ok(())
    }

    /// The bytes that have been received and not consumed, at most `most` of them.
    pub(super) fn buffer(&self, most: usize) -> &[u8] {
        &self.buffer[self.start..self.end.min(self.start + most)]
    }

    /// Consumes `n` bytes of the buffer.
    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves the bytes in the buffer, at most `most`, into `block`; a full buffer is swapped, not copied.
    pub(super) fn take_block(&mut self, most: usize, block: &mut Vec<u8>) {
        let n = most.min(self.buffered());
        if n == self.buffer.len() {
            block.resize(BLOCK_BYTES, 0);
            std::mem::swap(&mut self.buffer, block);
        } else {
            block.clear();
            block.extend_from_slice(self.buffer(n));
        }
        self.consume(n);
    }

    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.wait(N)?;
        let bytes = *self.buffer(N).first_chunk().expect("as many bytes as waited for");
        self.consume(N);
        Ok(bytes)
    }

    /// Whether the other side has closed the connection, as far as is known without waiting.
    pub(super) fn hung_up(&self) -> bool {
        poll(self.wire.socket(), libc::POLLRDHUP, 0).is_ok_and(|known| known)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    /// Sends `head` and then `n` bytes of `file` from `offset`. A plain connection sends the file's pages
    /// directly: bytes that are passed on are copied once into this node, and not again out of it.
    pub(super) fn send_piece(&mut self, head: &[u8], file: &File, offset: u64, n: usize) -> io::Result<()> {
        let Wire::Plain(socket) = &self.wire else {
            let mut bytes = vec![0; head.len() + n];
            bytes[..head.len()].copy_from_slice(head);
            file.read_exact_at(&mut bytes[head.len()..], offset)?;
            return self.send(&bytes);
        };
        let fd = socket.stream().as_raw_fd();
        send_all(fd, head, libc::MSG_MORE)?;
        let mut at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut left = n;
        while left > 0 {
            // SAFETY: both descriptors are open, and `at` lives through the call.
            let sent = unsafe { libc::sendfile(fd, file.as_raw_fd(), &raw mut at, left) };
            match usize::try_from(sent) {
                // The file is shorter than was announced.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => left -= sent,
                Err(_) => interrupted_or_failed()?,
            }
        }
        Ok(())
    }

    /// The client's half of the hello. Returns the id of the server.
    pub(super) fn greet(&mut self, key: &TicketKey, client_id: u32) -> Result<u32> {
        const OPERATION: &str = "greet a peer";
        let lost = |e| Error::net(OPERATION, "the connection ended during the hello", e);
        let client_nonce = crate::random_bytes().map_err(lost)?;

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
                // The hello says enough for the peer to report the reason; whether it arrives does not matter
                // here.
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
        let server_nonce = crate::random_bytes().map_err(lost)?;
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

fn read_now(socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the socket is open, and `into` is as long as said and lives through the call.
    let n =
        unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether within `timeout_ms` there are bytes to read, or the end of the stream, or an error.
fn is_readable(socket: &TcpStream, timeout_ms: libc::c_int) -> io::Result<bool> {
    poll(socket, libc::POLLIN, timeout_ms)
}

fn poll(socket: &TcpStream, events: libc::c_short, timeout_ms: libc::c_int) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one pollfd, alive through the call, whose socket is open.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        0 => Ok(false),
        1.. => Ok(true),
        // Interrupted by a signal: treated as readable, and the read will show.
        _ => interrupted_or_failed().map(|()| true),
    }
}

fn set_option(
    socket: &TcpStream,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and `value` is the C int that these options take, alive through the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn send_all(fd: RawFd, mut bytes: &[u8], flags: libc::c_int) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the socket is open, and the bytes live through the call.
        let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL | flags) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => interrupted_or_failed()?,
        }
    }
    Ok(())
}

/// What to do after a failed system call: `Ok` means try again.
fn interrupted_or_failed() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
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
