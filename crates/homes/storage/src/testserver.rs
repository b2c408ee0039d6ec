//! A small real HTTP/1.1 server on 127.0.0.1 for the tests: ranges, ETags, chunks, redirects, and faults on demand.
//!
//! One thread per connection, keep-alive; every thread ends when the server is dropped.

use crate::Location;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How the server misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Answers every request with this code.
    Code(u16),
    /// The next `n` requests get 503, then all is well.
    FailFirst(u32),
    /// Ignores `Range`.
    NoRanges,
    /// Answers requests for a range with this code, and others as ever.
    Range(u16),
    /// Sends bodies in chunks, without a length.
    Chunked,
    /// Ends bodies by closing the connection, without a length.
    NoLength,
    /// Answers HEAD with 405.
    NoHead,
    /// Answers HEAD with this code, and GET as ever; 200: with a length of 0.
    Head(u16),
    /// Tells no version.
    NoVersion,
    /// Tells no version, and sends at most this many bytes of each answer.
    TruncateNoVersion(usize),
    /// Every name redirects to `/r/<name>`.
    Redirect,
    /// Every name redirects to itself.
    RedirectLoop,
    /// Announces the whole body, sends at most this many bytes and closes.
    Truncate(usize),
    /// The same inside a chunked body.
    TruncateChunked(usize),
    /// Sends this many bytes and then nothing more, keeping the connection.
    Stall(usize),
}

pub(crate) struct TestServer {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    /// Path as in the request line → bytes and revision.
    objects: BTreeMap<String, (Arc<Vec<u8>>, u64)>,
    fault: Fault,
    n_requests: u64,
    revision: u64,
    is_closing: bool,
    connections: Vec<TcpStream>,
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new(Shared {
            objects: BTreeMap::new(),
            fault: Fault::None,
            n_requests: 0,
            revision: 0,
            is_closing: false,
            connections: Vec::new(),
        }));
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || {
                let mut threads = Vec::new();
                for stream in listener.incoming() {
                    let stream = stream.unwrap();
                    {
                        let mut shared = shared.lock().unwrap();
                        if shared.is_closing {
                            break;
                        }
                        shared.connections.push(stream.try_clone().unwrap());
                    }
                    let shared = shared.clone();
                    let end = stream.try_clone().unwrap();
                    threads.push(std::thread::spawn(move || {
                        // A client that goes away in the middle is no fault of the test.
                        let _ = serve(stream, &shared);
                        // Dropping would not do: the list of connections holds another handle.
                        let _ = end.shutdown(Shutdown::Both);
                    }));
                }
                for thread in threads {
                    thread.join().unwrap();
                }
            }
        });
        TestServer { address, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn url(&self, path: &str) -> Location {
        format!("http://{}/{path}", self.address).parse().unwrap()
    }

    pub(crate) fn put(&self, location: &Location, bytes: Vec<u8>) {
        let path = location.as_str().split_once("://").unwrap().1.split_once('/').unwrap().1;
        let mut shared = self.shared.lock().unwrap();
        shared.revision += 1;
        let revision = shared.revision;
        shared.objects.insert(format!("/{path}"), (Arc::new(bytes), revision));
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        self.shared.lock().unwrap().fault = fault;
    }

    pub(crate) fn n_requests(&self) -> u64 {
        self.shared.lock().unwrap().n_requests
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        {
            let mut shared = self.shared.lock().unwrap();
            shared.is_closing = true;
            for connection in &shared.connections {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn serve(stream: TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut words = request.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("").to_owned());
        let is_head = method == "HEAD";
        let mut range = None;
        let mut seen = BTreeSet::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                seen.insert(name.to_ascii_lowercase());
                if name.eq_ignore_ascii_case("range") {
                    let (first, last) = value.trim().strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                    range = Some((first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap()));
                }
            }
        }
        assert!(seen.contains("host"));
        let (mut fault, object) = {
            let mut shared = shared.lock().unwrap();
            shared.n_requests += 1;
            let fault = shared.fault;
            if let Fault::FailFirst(n) = fault {
                shared.fault = if n > 1 { Fault::FailFirst(n - 1) } else { Fault::None };
            }
            (fault, shared.objects.get(path.strip_prefix("/r").unwrap_or(&path)).cloned())
        };
        if let Fault::FailFirst(_) = fault {
            fault = Fault::Code(503);
        }
        let simple =
            |code: u16, more: &str| format!("HTTP/1.1 {code} Because\r\nContent-Length: 0\r\n{more}\r\n");
        match (fault, &object) {
            (Fault::Code(code), _) => {
                let more = if code == 429 || code == 503 { "Retry-After: 7\r\n" } else { "" };
                out.write_all(simple(code, more).as_bytes())?;
                continue;
            }
            (Fault::RedirectLoop, _) => {
                out.write_all(simple(302, &format!("Location: {path}\r\n")).as_bytes())?;
                continue;
            }
            (Fault::Redirect, _) if !path.starts_with("/r/") => {
                out.write_all(simple(307, &format!("Location: /r{path}\r\n")).as_bytes())?;
                continue;
            }
            (Fault::NoHead, _) if is_head => {
                out.write_all(simple(405, "").as_bytes())?;
                continue;
            }
            (Fault::Head(code), _) if is_head => {
                out.write_all(simple(code, "").as_bytes())?;
                continue;
            }
            (Fault::Range(code), _) if range.is_some() => {
                out.write_all(simple(code, "").as_bytes())?;
                continue;
            }
            (_, None) => {
                out.write_all(simple(404, "").as_bytes())?;
                continue;
            }
            _ => {}
        }
        let (bytes, revision) = object.unwrap();
        let range = range.filter(|_| fault != Fault::NoRanges);
        let etag = match fault {
            Fault::NoVersion | Fault::TruncateNoVersion(_) => String::new(),
            _ => format!("ETag: \"r{revision}\"\r\n"),
        };
        let (code, body, more) = match range {
            None => (200, &bytes[..], String::new()),
            Some((first, _)) if first >= bytes.len() => {
                let more = format!("Content-Range: bytes */{}\r\n", bytes.len());
                out.write_all(simple(416, &more).as_bytes())?;
                continue;
            }
            Some((first, last)) => {
                let end = bytes.len().min(last + 1);
                let more = format!("Content-Range: bytes {first}-{}/{}\r\n", end - 1, bytes.len());
                (206, &bytes[first..end], more)
            }
        };
        let is_chunked = matches!(fault, Fault::Chunked | Fault::TruncateChunked(_));
        let framing = match fault {
            _ if is_chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Fault::NoLength => "Connection: close\r\n".to_owned(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        write!(out, "HTTP/1.1 {code} Fine\r\n{framing}{etag}{more}\r\n")?;
        if is_head {
            continue;
        }
        let sent = match fault {
            Fault::Truncate(n)
            | Fault::TruncateNoVersion(n)
            | Fault::TruncateChunked(n)
            | Fault::Stall(n) => &body[..body.len().min(n)],
            _ => body,
        };
        if is_chunked {
            for chunk in sent.chunks(1000) {
                write!(out, "{:x}\r\n", chunk.len())?;
                out.write_all(chunk)?;
                out.write_all(b"\r\n")?;
            }
            if sent.len() == body.len() {
                out.write_all(b"0\r\n\r\n")?;
            }
        } else {
            out.write_all(sent)?;
        }
        match fault {
            Fault::Truncate(_)
            | Fault::TruncateNoVersion(_)
            | Fault::TruncateChunked(_)
            | Fault::NoLength => {
                return out.shutdown(Shutdown::Both);
            }
            Fault::Stall(_) => {
                // Until the client or the test gives up.
                lines.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
            _ => {}
        }
    }
}

/// TLS in front of a [`TestServer`]: one connection at a time, one request for each.
pub(crate) struct TlsFront {
    address: SocketAddr,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TlsFront {
    pub(crate) fn start(behind: &TestServer, certificate: CertificateDer<'static>, key: &[u8]) -> TlsFront {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.to_vec()).unwrap())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_closing = Arc::new(AtomicBool::new(false));
        let (closing, behind) = (is_closing.clone(), behind.address);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closing.load(Ordering::SeqCst) {
                    return;
                }
                // A client that does not trust us hangs up, as it should.
                drop(relay(stream.unwrap(), config.clone(), behind));
            }
        });
        TlsFront { address, is_closing, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> Location {
        format!("https://localhost:{}/{path}", self.address.port()).parse().unwrap()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn relay(stream: TcpStream, config: Arc<rustls::ServerConfig>, behind: SocketAddr) -> std::io::Result<()> {
    let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(connection, stream);
    let mut plain = TcpStream::connect(behind)?;
    let mut request = BufReader::new(&mut tls);
    loop {
        let mut line = String::new();
        if request.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        plain.write_all(line.as_bytes())?;
    }
    plain.write_all(b"Connection: close\r\n\r\n")?;
    plain.shutdown(Shutdown::Write)?;
    std::io::copy(&mut plain, &mut tls)?;
    tls.conn.send_close_notify();
    tls.flush()
}
