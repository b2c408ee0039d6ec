//! `http` and `https` homes: read only, by HTTP/1.1.
//!
//! Sizes come from `Content-Length` or `Content-Range`. A server that tells neither (a chunked answer) is read once to
//! count and once to deliver, because every caller has to know a size before it reserves space. A server that ignores
//! ranges is read from its start and the unwanted head is skipped.
//!
//! Bytes are taken as the server stores them: no compression is asked for and none is undone.
//!
//! Time limits are on connecting, on the first byte of an answer and on each wait for more, never on a whole body: a
//! large object on a slow link is no fault. Redirects are followed; the final answer counts.
//!
//! Not here: writing, listing, credentials (what is served to anybody needs none). Retries are in [`crate::Retry`], also for a body that ends early.

use crate::canonical::{Refusal, Spelling, Url, is_url_mark, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::version::Version;
use crate::{Capabilities, Home, HomesConfig, Listing, Location, Opened, Put, Stat};
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use ureq::http::{HeaderMap, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

const STAT: &str = "stat";
const READ: &str = "read";

const CAPABILITIES: Capabilities = Capabilities {
    name: "http",
    read: true,
    read_range: true,
    stat: true,
    write: false,
    atomic_rename: false,
    fences: false,
    list: false,
    remove: false,
    local_path: false,
    directories: false,
};

/// The kind of objects on web servers.
///
/// It knows no credentials. It takes the routes of the environment and the trusted authorities from [`HttpConfig`].
pub(crate) struct Web;

impl Kind for Web {
    fn schemes(&self) -> &'static [&'static str] {
        &["http", "https"]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    /// Scheme and host are in lower case, the scheme's own port is left out, and what a URL may not hold is percent-encoded.
    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let Url { scheme, rest } = url;
        if rest.contains('#') {
            let hint = "write %23 for a `#` in a name";
            return Err(Refusal::new("has a fragment, which servers never see", hint));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(Refusal::of_credentials());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let is_plain =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
        let is_v6 = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        if !is_plain && !is_v6 {
            return Err(Refusal::new("has no valid host name", None));
        }
        let default_port = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
        let start = out.len();
        out.push_str(scheme);
        out.push_str("://");
        out.push_str(host);
        out[start..].make_ascii_lowercase();
        match port.map(str::parse::<u16>) {
            None => {}
            Some(Ok(port)) if port == default_port => {}
            Some(Ok(port)) => out.push_str(&format!(":{port}")),
            Some(Err(_)) => return Err(Refusal::new("has no valid port number", None)),
        }
        if !tail.starts_with('/') {
            out.push('/');
        }
        push_encoded(out, tail, is_url_mark, true);
        Ok(Spelling::Url)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(HttpHome::new(config.http.clone())?))
    }
}

/// Time limits and routes; the defaults suit wide-area servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Until a connection stands, name lookup and TLS included.
    pub connect_timeout: Duration,
    /// From the request to the head of the answer.
    pub answer_timeout: Duration,
    /// Longest silence inside a body.
    pub stall_timeout: Duration,
    /// Redirects followed for one request.
    pub redirects_max: u32,
    /// Use `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, as clusters without a route to the outside need.
    pub proxy_from_env: bool,
    /// Trust the authorities in this PEM file instead of the usual public ones, as sites with their own need.
    pub ca_file: Option<PathBuf>,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            connect_timeout: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            redirects_max: 10,
            proxy_from_env: true,
            ca_file: None,
        }
    }
}

/// Objects on web servers. Connections are kept and shared by all threads.
#[derive(Debug)]
pub struct HttpHome {
    agent: Agent,
}

impl HttpHome {
    /// Opens no connection yet. Errors: `ca_file` cannot be read or holds no certificate.
    pub fn new(config: HttpConfig) -> Result<HttpHome> {
        let mut builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(config.redirects_max)
            .user_agent(concat!("eyas/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(config.connect_timeout))
            .timeout_recv_response(Some(config.answer_timeout))
            .timeout_per_read(Some(config.stall_timeout));
        if !config.proxy_from_env {
            builder = builder.proxy(None);
        }
        if let Some(file) = &config.ca_file {
            let roots = RootCerts::new_with_certs(&read_certificates(file)?);
            builder = builder.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(HttpHome { agent: builder.build().into() })
    }

    /// Sends one request; any answer that is no error for `operation` comes back.
    fn request(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>> {
        if !Web.schemes().contains(&location.scheme()) {
            let error = Error::unsupported(operation, location, CAPABILITIES.name);
            return Err(error.with_context("scheme", location.scheme()));
        }
        let url = location.as_str();
        let mut request = if is_head { self.agent.head(url) } else { self.agent.get(url) };
        if let Some(range) = range {
            request = request.header("Range", format!("bytes={}-{}", range.start, range.end - 1));
        }
        request.call().map_err(|error| from_ureq(operation, location, error))
    }

    /// Reads the whole body to count its bytes, for servers that do not give a size.
    fn measure(&self, operation: &'static str, location: &Location) -> Result<u64> {
        let answer = self.request(operation, location, false, None)?;
        check_status(operation, location, &answer)?;
        io::copy(&mut answer.into_body().into_reader(), &mut io::sink())
            .map_err(|error| from_body(operation, location, error))
    }

    /// An answer that should carry the whole object.
    fn open_whole(&self, location: &Location) -> Result<Opened> {
        let answer = self.request(READ, location, false, None)?;
        check_status(READ, location, &answer)?;
        if answer.status() != 200 {
            return Err(unexpected(READ, location, &answer, "the whole object was asked for"));
        }
        let (size_bytes, answer) = match content_length(answer.headers()) {
            Some(size_bytes) => (size_bytes, answer),
            None => {
                // The connection is given up before another is used for counting.
                drop(answer);
                let size_bytes = self.measure(READ, location)?;
                let answer = self.request(READ, location, false, None)?;
                check_status(READ, location, &answer)?;
                (size_bytes, answer)
            }
        };
        let stat = stat_of(size_bytes, answer.headers());
        let body = HttpReader::new(location, answer, 0, size_bytes, true);
        Ok(Opened {
            location: location.clone(),
            stat,
            range: 0..size_bytes,
            reader: Box::new(body),
            file: None,
        })
    }

    fn open_range(&self, location: &Location, range: Range<u64>) -> Result<Opened> {
        let opened =
            |stat, range, reader| Opened { location: location.clone(), stat, range, reader, file: None };
        if range.start >= range.end {
            // HTTP has no way to ask for nothing.
            let stat = self.stat(location)?;
            if range.start > range.end || range.end > stat.size_bytes {
                return Err(Error::range_outside(READ, location, &range, stat.size_bytes));
            }
            return Ok(opened(stat, range, Box::new(io::empty())));
        }
        let answer = self.request(READ, location, false, Some(&range))?;
        let told = content_range(answer.headers());
        if answer.status() == 416 {
            let size_bytes = match told {
                Some((_, Some(size_bytes))) => size_bytes,
                _ => self.stat(location)?.size_bytes,
            };
            return Err(Error::range_outside(READ, location, &range, size_bytes));
        }
        check_status(READ, location, &answer)?;
        if answer.status() == 200 {
            let size_bytes = match content_length(answer.headers()) {
                Some(size_bytes) => size_bytes,
                None => self.measure(READ, location)?,
            };
            if range.end > size_bytes {
                return Err(Error::range_outside(READ, location, &range, size_bytes));
            }
            let stat = stat_of(size_bytes, answer.headers());
            let body = HttpReader::new(location, answer, range.start, range.end - range.start, false);
            return Ok(opened(stat, range, Box::new(body)));
        }
        let (Some((Some(given), total)), 206) = (told, answer.status().as_u16()) else {
            return Err(unexpected(READ, location, &answer, "a part of the object was asked for"));
        };
        let size_bytes = match total {
            Some(size_bytes) => size_bytes,
            None => self.stat(location)?.size_bytes,
        };
        if range.end > size_bytes {
            return Err(Error::range_outside(READ, location, &range, size_bytes));
        }
        if given != range {
            let reason = format!(
                "the server sent bytes {}..{} instead of {}..{}",
                given.start, given.end, range.start, range.end
            );
            return Err(Error::new(ErrorKind::Io, Status::Permanent, READ, location, reason));
        }
        let stat = stat_of(size_bytes, answer.headers());
        let body = HttpReader::new(location, answer, 0, range.end - range.start, true);
        Ok(opened(stat, range, Box::new(body)))
    }
}

impl Home for HttpHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        let head = self.request(STAT, location, true, None)?;
        match head.status().as_u16() {
            200 => {
                if let Some(size_bytes) = content_length(head.headers()) {
                    return Ok(stat_of(size_bytes, head.headers()));
                }
            }
            // Servers that have no HEAD, and links that are signed for GET only.
            400 | 403 | 405 | 501 => {}
            _ => check_status(STAT, location, &head)?,
        }
        let mut answer = self.request(STAT, location, false, Some(&(0..1)))?;
        if answer.status() == 416 {
            // An empty object has no first byte, and this answer need not give its version.
            answer = self.request(STAT, location, false, None)?;
        }
        check_status(STAT, location, &answer)?;
        let told = content_range(answer.headers()).and_then(|(_, total)| total);
        let size_bytes = match (answer.status().as_u16(), told, content_length(answer.headers())) {
            (206, Some(size_bytes), _) | (200, _, Some(size_bytes)) => size_bytes,
            (200 | 206, _, _) => self.measure(STAT, location)?,
            _ => return Err(unexpected(STAT, location, &answer, "the size was asked for")),
        };
        Ok(stat_of(size_bytes, answer.headers()))
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        match range {
            None => self.open_whole(location),
            Some(range) => self.open_range(location, range),
        }
    }

    fn put(&self, location: &Location, _body: &mut dyn Read, _put: &Put) -> Result<Stat> {
        Err(Error::unsupported("write", location, CAPABILITIES.name))
    }

    fn list(&self, listing: &Listing) -> Result<Vec<Location>> {
        Err(Error::unsupported("list", listing.directory(), CAPABILITIES.name))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        Err(Error::unsupported("remove", location, CAPABILITIES.name))
    }
}

/// Gives exactly the expected bytes of a body, or says what is wrong with it.
struct HttpReader {
    body: ureq::BodyReader<'static>,
    location: Location,
    /// Bytes before the wanted ones, from a server that ignores ranges.
    skip_bytes: u64,
    size_bytes: u64,
    given_bytes: u64,
    /// The body has to end where the wanted bytes do.
    ends: bool,
}

impl HttpReader {
    fn new(
        location: &Location,
        answer: Response<Body>,
        skip_bytes: u64,
        size_bytes: u64,
        ends: bool,
    ) -> HttpReader {
        let body = answer.into_body().into_reader();
        HttpReader { body, location: location.clone(), skip_bytes, size_bytes, given_bytes: 0, ends }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.body.read(buffer) {
            Ok(n) => Ok(n),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(from_body(READ, &self.location, error)
                .with_context("received", format!("{} of {} B", self.given_bytes, self.size_bytes))
                .into()),
        }
    }

    fn ended_early(&self) -> io::Error {
        let reason = format!("the answer ended after {} of {} B", self.given_bytes, self.size_bytes);
        Error::new(ErrorKind::Io, Status::Temporary, READ, &self.location, reason).into()
    }
}

impl Read for HttpReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waste = [0; 8 * 1024];
        while self.skip_bytes > 0 {
            let want = waste.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
            match self.read_some(&mut waste[..want])? {
                0 => return Err(self.ended_early()),
                n => self.skip_bytes -= n as u64,
            }
        }
        let missing = self.size_bytes - self.given_bytes;
        if missing == 0 {
            // Reading the end also gives the connection back for the next request.
            if self.ends && self.read_some(&mut waste[..1])? != 0 {
                let difference = format!("the answer is longer than {} B", self.size_bytes);
                return Err(Error::changed(READ, &self.location, difference).into());
            }
            self.ends = false;
            return Ok(0);
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let want = buffer.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
        match self.read_some(&mut buffer[..want])? {
            0 => Err(self.ended_early()),
            n => {
                self.given_bytes += n as u64;
                Ok(n)
            }
        }
    }
}

fn read_certificates(file: &Path) -> Result<Vec<Certificate<'static>>> {
    let operation = "trust the authorities in";
    let pem = std::fs::read(file).map_err(|error| Error::from_io(operation, file.display(), error))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(from_ureq(operation, file.display(), error)),
        }
    }
    if certificates.is_empty() {
        let reason = "it holds no certificate in PEM form";
        return Err(Error::new(ErrorKind::Io, Status::Permanent, operation, file.display(), reason));
    }
    Ok(certificates)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-length")?.parse().ok()
}

/// `bytes 0-9/100` is `(Some(0..10), Some(100))`; `bytes */100` has no range, `bytes 0-9/*` no size.
fn content_range(headers: &HeaderMap) -> Option<(Option<Range<u64>>, Option<u64>)> {
    let (range, total) = header(headers, "content-range")?.strip_prefix("bytes")?.trim().split_once('/')?;
    let range = match range.trim().split_once('-') {
        Some((first, last)) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            Some(first..last.checked_add(1)?)
        }
        None => None,
    };
    Some((range, total.trim().parse().ok()))
}

fn stat_of(size_bytes: u64, headers: &HeaderMap) -> Stat {
    let version = Version::of_http(size_bytes, header(headers, "etag"), header(headers, "last-modified"));
    Stat { size_bytes, version }
}

/// Seconds, or a date, which is read against the server's own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = header(headers, "retry-after")?;
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let now = header(headers, "date").and_then(|date| httpdate::parse_http_date(date).ok());
    Some(then.duration_since(now.unwrap_or_else(SystemTime::now)).unwrap_or(Duration::ZERO))
}

fn check_status(operation: &'static str, location: &Location, answer: &Response<Body>) -> Result<()> {
    use Status::{Permanent, Temporary};
    let code = answer.status().as_u16();
    let (kind, status) = match code {
        200..=299 => return Ok(()),
        404 | 410 => (ErrorKind::NotFound, Permanent),
        401 | 403 => (ErrorKind::PermissionDenied, Permanent),
        408 | 425 | 429 => (ErrorKind::Http(code), Temporary),
        501 | 505 => (ErrorKind::Http(code), Permanent),
        500..=599 => (ErrorKind::Http(code), Temporary),
        _ => (ErrorKind::Http(code), Permanent),
    };
    let name = answer.status().canonical_reason().unwrap_or("no known status");
    let reason = format!("the server answered {code} ({name})");
    Err(Error::new(kind, status, operation, location, reason).with_retry_after(retry_after(answer.headers())))
}

/// An answer that is a success, but to another question.
fn unexpected(operation: &'static str, location: &Location, answer: &Response<Body>, asked: &str) -> Error {
    let code = answer.status().as_u16();
    let reason = format!("the server answered {code} although {asked}");
    Error::new(ErrorKind::Http(code), Status::Permanent, operation, location, reason)
}

fn from_body(operation: &'static str, location: &Location, error: io::Error) -> Error {
    from_ureq(operation, location, ureq::Error::from(error))
}

fn from_ureq(operation: &'static str, location: impl fmt::Display, error: ureq::Error) -> Error {
    use Status::{Permanent, Temporary};
    let (kind, status) = match &error {
        ureq::Error::Io(io) => {
            // TLS reports an untrusted or wrong certificate as invalid data. Whatever else the network reports, another
            // connection may do better.
            let status = if io.kind() == io::ErrorKind::InvalidData { Permanent } else { Temporary };
            let reason = format!("the connection failed: {io}");
            return Error::new(ErrorKind::Io, status, operation, location, reason).with_source(error);
        }
        ureq::Error::Timeout(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
            (ErrorKind::Io, Temporary)
        }
        // A broken answer, such as a chunk cut short.
        ureq::Error::Protocol(_) | ureq::Error::ConnectProxyFailed(_) | ureq::Error::BodyStalled => {
            (ErrorKind::Io, Temporary)
        }
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => (ErrorKind::InvalidName, Permanent),
        _ => (ErrorKind::Io, Permanent),
    };
    Error::new(kind, status, operation, location, error.to_string()).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testserver::{Fault, TestServer};

    fn home() -> HttpHome {
        HttpHome::new(HttpConfig { proxy_from_env: false, ..HttpConfig::default() }).unwrap()
    }

    fn read(opened: Opened) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut opened = opened;
        match opened.reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Error::from_read(READ, &opened.location, error)),
        }
    }

    #[test]
    fn conformance() {
        let server = TestServer::start();
        for (name, bytes) in crate::conformance::objects() {
            server.put(&server.url("base").join(name).unwrap(), bytes);
        }
        crate::conformance::run(&home(), &server.url("base"));
    }

    #[test]
    fn conformance_against_poor_servers() {
        for fault in [Fault::NoRanges, Fault::Chunked, Fault::NoHead, Fault::Redirect, Fault::NoLength] {
            let server = TestServer::start();
            for (name, bytes) in crate::conformance::objects() {
                server.put(&server.url("base").join(name).unwrap(), bytes);
            }
            server.set_fault(fault);
            crate::conformance::run(&home(), &server.url("base"));
        }
    }

    #[test]
    fn versions_follow_the_object() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, b"one".to_vec());
        let first = home().stat(&location).unwrap();
        let opened = home().open(&location, Some(1..2)).unwrap();
        assert_eq!(opened.stat, first);
        server.put(&location, b"two!".to_vec());
        let second = home().stat(&location).unwrap();
        assert_ne!(first.version, second.version);
        let words = Version::describe_change(&first.version, &second.version);
        assert!(words.starts_with("size 3 -> 4 B, ETag "), "{words}");
    }

    #[test]
    fn statuses_become_kinds() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, b"abc".to_vec());
        for (code, kind, status) in [
            (404, ErrorKind::NotFound, Status::Permanent),
            (410, ErrorKind::NotFound, Status::Permanent),
            (403, ErrorKind::PermissionDenied, Status::Permanent),
            (401, ErrorKind::PermissionDenied, Status::Permanent),
            (418, ErrorKind::Http(418), Status::Permanent),
            (429, ErrorKind::Http(429), Status::Temporary),
            (500, ErrorKind::Http(500), Status::Temporary),
            (503, ErrorKind::Http(503), Status::Temporary),
        ] {
            server.set_fault(Fault::Code(code));
            for error in [home().stat(&location).unwrap_err(), home().open(&location, None).err().unwrap()] {
                assert_eq!((error.kind(), error.status()), (kind, status), "{error}");
                assert!(error.to_string().contains(&code.to_string()), "{error}");
                let wait = (code == 429 || code == 503).then_some(Duration::from_secs(7));
                assert_eq!(error.retry_after(), wait);
            }
        }
    }

    #[test]
    fn a_body_cut_short_is_temporary() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, vec![7; 100_000]);
        for fault in [Fault::Truncate(50_000), Fault::TruncateChunked(50_000), Fault::Truncate(0)] {
            server.set_fault(fault);
            let error = home().open(&location, None).and_then(read).unwrap_err();
            assert_eq!(
                (error.kind(), error.status()),
                (ErrorKind::Io, Status::Temporary),
                "{fault:?}: {error}"
            );
        }
    }

    #[test]
    fn nobody_listening_is_temporary() {
        // A port that needs root and has no use since decades.
        let location: Location = "http://127.0.0.1:1/x".parse().unwrap();
        let error = home().stat(&location).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Temporary), "{error}");
    }

    #[test]
    fn silence_ends_in_a_timeout() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, vec![7; 1000]);
        server.set_fault(Fault::Stall(500));
        let short = Duration::from_millis(200);
        let config = HttpConfig { proxy_from_env: false, stall_timeout: short, ..HttpConfig::default() };
        let error = HttpHome::new(config).unwrap().open(&location, None).and_then(read).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Temporary), "{error}");
    }

    #[test]
    fn redirects_without_end_are_permanent() {
        let server = TestServer::start();
        let location = server.url("x");
        server.set_fault(Fault::RedirectLoop);
        let error = home().stat(&location).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Permanent), "{error}");
    }

    #[test]
    fn tls_with_a_private_authority() {
        let dir = tempfile::tempdir().unwrap();
        let server = TestServer::start();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (ca_file, empty) = (dir.path().join("ca.pem"), dir.path().join("empty.pem"));
        std::fs::write(&ca_file, made.cert.pem()).unwrap();
        std::fs::write(&empty, "nothing").unwrap();
        server.put(&server.url("x"), vec![7; 100_000]);
        let front = crate::testserver::TlsFront::start(
            &server,
            made.cert.der().clone(),
            &made.signing_key.serialize_der(),
        );
        let location = front.url("x");
        let with = |file: &Path| {
            HttpHome::new(HttpConfig {
                proxy_from_env: false,
                ca_file: Some(file.into()),
                ..HttpConfig::default()
            })
        };
        let home_with = with(&ca_file).unwrap();
        assert_eq!(home_with.stat(&location).unwrap().size_bytes, 100_000);
        assert!(home_with.open(&location, Some(5..50_000)).and_then(read).unwrap() == vec![7; 49_995]);
        let error = home().stat(&location).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Permanent), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
        assert!(with(&empty).unwrap_err().to_string().contains("no certificate"));
        assert_eq!(with(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn retry_after_by_date() {
        let mut headers = HeaderMap::new();
        headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        headers.insert("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(30)));
    }

    #[test]
    fn paths_belong_to_another_home() {
        let location: Location = "/tmp/x".parse().unwrap();
        assert_eq!(home().stat(&location).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
