//! Objects on web servers, for every kind of home that reads them by HTTP/1.1: whole, in ranges, and their size and version.
//!
//! Sizes come from `Content-Length` or `Content-Range`. A server that tells neither (a chunked answer) is read once to
//! count and once to deliver, because every caller has to know a size before it reserves space. A server that ignores
//! ranges is read from its start and the unwanted head is skipped. So is one of the web that refuses them, with whatever answer.
//!
//! Bytes are taken as the server stores them: no compression is asked for and none is undone.
//!
//! Time limits are on connecting, on the first byte of an answer and on each wait for more, never on a whole body: a
//! large object on a slow link is no fault.
//!
//! Not here: how a request is made, and with which credentials ([`Asker`]).

use crate::error::{Error, ErrorKind, Result, Status};
use crate::put::given_up;
use crate::version::Version;
use crate::{Fence, Location, Opened, Stat};
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use ureq::config::ConfigBuilder;
use ureq::http::request::{Builder, Parts};
use ureq::http::{HeaderMap, Request, Response};
use ureq::middleware::MiddlewareNext;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, AsSendBody, Body, SendBody};

/// How much of a refusal's body is read.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";

/// How one kind of home asks its server.
pub(crate) trait Asker: Send + Sync {
    /// Sends one request for the object, or with `is_head` for its headers alone. Every answer comes back, errors of the
    /// server too.
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>>;

    /// What an answer means that is no success.
    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        refusal_of(operation, location, &answer)
    }

    /// Whether what the server says to HEAD, and to a request for a part, is what it says to GET. Of any server of the web that is
    /// not known: some have no HEAD, some sign links for GET only, some say another length, and some answer 404 or 501 to whoever
    /// asks for a part.
    fn trusts_head(&self) -> bool {
        true
    }

    /// The body of a refusal says why, so a refused HEAD, which has no body, is asked again by GET.
    fn explains_in_bodies(&self) -> bool {
        false
    }
}

/// Connections that are kept for the next request when nobody uses them: in all, and to one server. Many small objects are read
/// at the same time, and whoever finds no connection has to make one.
const IDLE_CONNECTIONS_MAX: usize = 256;
const IDLE_CONNECTIONS_PER_SERVER_MAX: usize = 128;

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
    /// Trust the authorities in this PEM file instead of the usual public ones, as sites with their own need. Where it cannot be used,
    /// each request by TLS fails and says so, and no other.
    pub ca_file: Option<PathBuf>,
    /// Variables that may name such a file where `ca_file` does not; the first that is set and not empty counts.
    pub ca_variables: &'static [&'static str],
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
            ca_variables: &["SSL_CERT_FILE"],
        }
    }
}

/// Why nobody can be trusted: the file of authorities that the user named cannot be used.
#[derive(Debug)]
struct NoAuthorities(String);

impl std::error::Error for NoAuthorities {}

impl fmt::Display for NoAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client's settings that all kinds of home share.
pub(crate) fn agent_config(config: &HttpConfig) -> ConfigBuilder<AgentScope> {
    let mut builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(config.redirects_max)
        .user_agent(concat!("eyas/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .max_idle_connections(IDLE_CONNECTIONS_MAX)
        .max_idle_connections_per_host(IDLE_CONNECTIONS_PER_SERVER_MAX)
        .timeout_connect(Some(config.connect_timeout))
        .timeout_recv_response(Some(config.answer_timeout))
        .timeout_per_read(Some(config.stall_timeout));
    if !config.proxy_from_env {
        builder = builder.proxy(None);
    }
    let of_variable = |name: &&'static str| {
        let file = std::env::var_os(name).filter(|file| !file.is_empty())?;
        Some((*name, PathBuf::from(file)))
    };
    let named = config.ca_file.clone().map(|file| ("the setting ca_file", file));
    let Some((by, file)) = named.or_else(|| config.ca_variables.iter().find_map(of_variable)) else {
        return builder;
    };
    let certificates = match read_certificates(&file) {
        Ok(certificates) => certificates,
        Err(why) => {
            let why = format!(
                "{by} names `{}` as the authorities to trust, and {why}; name a file of certificates in PEM form, or none for the \
                 usual authorities",
                file.display()
            );
            builder = builder.middleware(move |request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                match request.uri().scheme_str() == Some("https") {
                    true => Err(ureq::Error::Other(Box::new(NoAuthorities(why.clone())))),
                    false => next.handle(request),
                }
            });
            vec![]
        }
    };
    // Without a certificate nobody is trusted, whom an answer by plain HTTP sends to TLS neither.
    builder.tls_config(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}

/// Sends one request. Every answer comes back, errors of the server too.
///
/// * `request`: method, URL and the headers that the kind of home always sends.
/// * `headers`: the headers of this request.
/// * `body`: `None` where the method has no body.
/// * `sign`: adds the credentials, as the last thing before the request is sent.
///
/// Errors: no valid request, `sign` failed, or the server did not answer.
pub(crate) fn send<B: AsSendBody>(
    agent: &Agent,
    operation: &'static str,
    location: &Location,
    (mut request, headers): (Builder, &[(&str, &str)]),
    body: Option<B>,
    sign: impl FnOnce(&mut Parts) -> Result<()>,
) -> Result<Response<Body>> {
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let invalid = |error: ureq::http::Error| from_ureq(operation, location, error.into());
    let (mut parts, ()) = request.body(()).map_err(invalid)?.into_parts();
    sign(&mut parts)?;
    let answer = match body {
        Some(body) => agent.run(Request::from_parts(parts, body)),
        None => agent.run(Request::from_parts(parts, ())),
    };
    answer.map_err(|error| from_ureq(operation, location, error))
}

/// Whether two URLs have the same scheme, host and port.
pub(crate) fn are_at_one_server(one: &str, other: &str) -> bool {
    one.splitn(4, '/').take(3).eq(other.splitn(4, '/').take(3))
}

/// The value of the header `range` for these bytes, which are one or more.
pub(crate) fn range_text(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// The beginning of a refusal's body, at most 64 KiB. Where the body breaks off, what has come of it counts: that only makes
/// the message shorter.
pub(crate) fn head_of(answer: Response<Body>) -> Vec<u8> {
    let mut head = Vec::new();
    let _ = answer.into_body().into_reader().take(REFUSAL_BYTES_MAX).read_to_end(&mut head);
    head
}

/// Asks for a part, and for the whole object where the server may refuse nothing but the part. Where it refuses both, that is
/// said of the whole one.
fn ask_part(
    asker: &dyn Asker,
    operation: &'static str,
    location: &Location,
    range: &Range<u64>,
) -> Result<Response<Body>> {
    let answer = asker.ask(operation, location, false, Some(range))?;
    match answer.status().as_u16() {
        // Those that say something of the server as it is now are meant.
        416 | 408 | 425 | 429 | 502..=504 => Ok(answer),
        400..=599 if !asker.trusts_head() => {
            drop(answer);
            asker.ask(operation, location, false, None)
        }
        _ => Ok(answer),
    }
}

/// Starts reading the whole object or a range of it.
pub(crate) fn open(asker: &dyn Asker, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
    match range {
        None => open_whole(asker, location),
        Some(range) => open_range(asker, location, range),
    }
}

/// Starts reading the first `most_bytes` of an object, or all of it if it has no more or the server knows no ranges.
pub(crate) fn open_first(asker: &dyn Asker, location: &Location, most_bytes: u64) -> Result<Opened> {
    let wanted = 0..most_bytes.max(1);
    let answer = ask_part(asker, READ, location, &wanted)?;
    match (answer.status().as_u16(), content_range(answer.headers())) {
        (206, Some((Some(given), Some(size_bytes))))
            if given.start == 0 && given.end == wanted.end.min(size_bytes) =>
        {
            let stat = stat_of(size_bytes, answer.headers());
            let body = HttpReader::new(location, answer, 0, given.end, true);
            Ok(Opened {
                location: location.clone(),
                stat,
                range: given,
                reader: Box::new(body),
                file: None,
                times: vec![],
            })
        }
        (200, _) => whole_of(asker, location, answer),
        // An empty object has no first byte, and some servers know no ranges of some objects.
        (206 | 416, _) => open_whole(asker, location),
        _ => Err(asker.refusal(READ, location, answer)),
    }
}

/// Reads the whole body to count its bytes, for servers that do not give a size.
fn measure(asker: &dyn Asker, operation: &'static str, location: &Location) -> Result<u64> {
    let answer = checked(asker, operation, location, asker.ask(operation, location, false, None)?)?;
    io::copy(&mut answer.into_body().into_reader(), &mut io::sink())
        .map_err(|error| from_body(operation, location, error))
}

/// An answer that should carry the whole object.
fn open_whole(asker: &dyn Asker, location: &Location) -> Result<Opened> {
    let answer = checked(asker, READ, location, asker.ask(READ, location, false, None)?)?;
    if answer.status() != 200 {
        return Err(unexpected(READ, location, &answer, "the whole object was asked for"));
    }
    whole_of(asker, location, answer)
}

/// The object of an answer that carries all of it.
fn whole_of(asker: &dyn Asker, location: &Location, answer: Response<Body>) -> Result<Opened> {
    let (size_bytes, answer) = match content_length(answer.headers()) {
        Some(size_bytes) => (size_bytes, answer),
        None => {
            // The connection is given up before another is used for counting.
            drop(answer);
            let size_bytes = measure(asker, READ, location)?;
            let answer = checked(asker, READ, location, asker.ask(READ, location, false, None)?)?;
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
        times: vec![],
    })
}

fn open_range(asker: &dyn Asker, location: &Location, range: Range<u64>) -> Result<Opened> {
    let opened = |stat, range, reader| Opened {
        location: location.clone(),
        stat,
        range,
        reader,
        file: None,
        times: vec![],
    };
    if range.start >= range.end {
        // HTTP has no way to ask for nothing.
        let stat = self::stat(asker, location)?;
        if range.start > range.end || range.end > stat.size_bytes {
            return Err(Error::range_outside(READ, location, &range, stat.size_bytes));
        }
        return Ok(opened(stat, range, Box::new(io::empty())));
    }
    let answer = ask_part(asker, READ, location, &range)?;
    let part = content_range(answer.headers());
    if answer.status() == 416 {
        let size_bytes = match part {
            Some((_, Some(size_bytes))) => size_bytes,
            _ => self::stat(asker, location)?.size_bytes,
        };
        return Err(Error::range_outside(READ, location, &range, size_bytes));
    }
    let answer = checked(asker, READ, location, answer)?;
    if answer.status() == 200 {
        let size_bytes = match content_length(answer.headers()) {
            Some(size_bytes) => size_bytes,
            None => measure(asker, READ, location)?,
        };
        if range.end > size_bytes {
            return Err(Error::range_outside(READ, location, &range, size_bytes));
        }
        let stat = stat_of(size_bytes, answer.headers());
        let body = HttpReader::new(location, answer, range.start, range.end - range.start, false);
        return Ok(opened(stat, range, Box::new(body)));
    }
    if part.is_none() && content_length(answer.headers()) == Some(0) {
        // What Azurite says of an empty object, in place of 416.
        return Err(Error::range_outside(READ, location, &range, 0));
    }
    let (Some((Some(given), total)), 206) = (part, answer.status().as_u16()) else {
        return Err(unexpected(READ, location, &answer, "a part of the object was asked for"));
    };
    let size_bytes = match total {
        Some(size_bytes) => size_bytes,
        None => self::stat(asker, location)?.size_bytes,
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

/// The headers and the whole body of an answer that has to be a success.
pub(crate) fn whole(
    asker: &dyn Asker,
    operation: &'static str,
    location: &Location,
    answer: Response<Body>,
) -> Result<(HeaderMap, Vec<u8>)> {
    let (parts, body) = checked(asker, operation, location, answer)?.into_parts();
    let mut bytes = Vec::new();
    body.into_reader().read_to_end(&mut bytes).map_err(|error| from_body(operation, location, error))?;
    Ok((parts.headers, bytes))
}

/// Size and version of an object.
pub(crate) fn stat(asker: &dyn Asker, location: &Location) -> Result<Stat> {
    if asker.trusts_head() {
        let head = asker.ask(STAT, location, true, None)?;
        match head.status().as_u16() {
            200 => {
                if let Some(size_bytes) = content_length(head.headers()) {
                    return Ok(stat_of(size_bytes, head.headers()));
                }
            }
            // Servers that have no HEAD, and links that are signed for GET only.
            400 | 403 | 405 | 501 => {}
            _ if !asker.explains_in_bodies() => {
                checked(asker, STAT, location, head)?;
            }
            _ => {}
        }
    }
    let mut answer = ask_part(asker, STAT, location, &(0..1))?;
    if answer.status() == 416 {
        // An empty object has no first byte, and this answer need not give its version.
        answer = asker.ask(STAT, location, false, None)?;
    }
    let answer = checked(asker, STAT, location, answer)?;
    let total_bytes = content_range(answer.headers()).and_then(|(_, total)| total);
    let size_bytes = match (answer.status().as_u16(), total_bytes, content_length(answer.headers())) {
        (206, Some(size_bytes), _) | (200, _, Some(size_bytes)) => size_bytes,
        (200 | 206, _, _) => measure(asker, STAT, location)?,
        _ => return Err(unexpected(STAT, location, &answer, "the size was asked for")),
    };
    Ok(stat_of(size_bytes, answer.headers()))
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

/// The body of an answer that has to give exactly `size_bytes`.
pub(crate) fn body_of(
    location: &Location,
    answer: Response<Body>,
    size_bytes: u64,
) -> impl Read + Send + use<> {
    HttpReader::new(location, answer, 0, size_bytes, true)
}

/// The bytes that are sent, as long as the fence lets them.
pub(crate) struct Source<'a> {
    body: &'a mut dyn Read,
    fence: &'a dyn Fence,
    location: &'a Location,
    n_bytes: u64,
    /// The body has no more bytes.
    has_ended: bool,
    failed: Option<Error>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(body: &'a mut dyn Read, fence: &'a dyn Fence, location: &'a Location) -> Source<'a> {
        Source { body, fence, location, n_bytes: 0, has_ended: false, failed: None }
    }

    /// When the request is over: whether all bytes could be read.
    pub(crate) fn check(self, size_hint_bytes: Option<u64>) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match size_hint_bytes.filter(|size_bytes| *size_bytes != self.n_bytes) {
            None => Ok(()),
            Some(size_bytes) => {
                let reason = format!("{} B came in place of the {size_bytes} B announced", self.n_bytes);
                // A body of another size has changed here: waiting for the home does not help. Else the home took no more of it.
                let status = match self.has_ended || self.n_bytes > size_bytes {
                    true => Status::Permanent,
                    false => Status::Temporary,
                };
                Err(Error::new(ErrorKind::Io, status, WRITE, self.location, reason))
            }
        }
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let failed = match self.fence.may_go_on() {
            Err(why) => given_up(WRITE, self.location, why),
            Ok(()) => match self.body.read(buffer) {
                Ok(n) => {
                    self.n_bytes += n as u64;
                    self.has_ended |= n == 0 && !buffer.is_empty();
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    let context = format!("reading byte {} of what was to be written", self.n_bytes);
                    Error::from_read(WRITE, self.location, error).with_context("failed at", context)
                }
            },
        };
        self.failed.get_or_insert(failed);
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

/// By the usual alphabet, filled up with `=`.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            match n <= three.len() {
                true => out.push(char::from(SIGNS[(bits >> (18 - 6 * n)) as usize & 63])),
                false => out.push('='),
            }
        }
    }
    out
}

/// The certificates in a PEM file. Errors: the rest of a sentence that has named the file.
fn read_certificates(file: &Path) -> std::result::Result<Vec<Certificate<'static>>, String> {
    let pem = std::fs::read(file).map_err(|error| format!("it cannot be read: {error}"))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(format!("it cannot be understood: {error}")),
        }
    }
    match certificates.is_empty() {
        true => Err("it holds no certificate in PEM form".into()),
        false => Ok(certificates),
    }
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
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

/// What the headers of an answer say. Google's number of an object's generation says more than its ETag, which is another one
/// by each of its interfaces.
pub(crate) fn stat_of(size_bytes: u64, headers: &HeaderMap) -> Stat {
    let version = match header(headers, "x-goog-generation") {
        Some(generation) => Version::of_generation(size_bytes, generation, header(headers, "last-modified")),
        None => Version::of_http(
            size_bytes,
            header(headers, "etag"),
            header(headers, "last-modified"),
            server_time(headers),
        ),
    };
    Stat { size_bytes, version: version.with_time(noted_time(headers)) }
}

/// Headers in which writers of objects note when a file was modified, as rclone and s3fs do: for S3, Azure and Google.
const NOTED_TIME: [&str; 3] = ["x-amz-meta-mtime", "x-ms-meta-mtime", "x-goog-meta-mtime"];

/// What such a header says, in nanoseconds since 1970.
fn noted_time(headers: &HeaderMap) -> Option<i64> {
    let text = NOTED_TIME.iter().find_map(|name| header(headers, name))?;
    let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.get(..part.len().min(9)).filter(|part| part.bytes().all(|c| c.is_ascii_digit()))?;
    let ns: i64 = format!("{digits:0<9}").parse().ok()?;
    let seconds: i64 = seconds.parse().ok().filter(|seconds| *seconds >= 0)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// The text for such a header. `None`: a time before 1970, or none.
pub(crate) fn text_of_time(modified_ns: Option<i64>) -> Option<String> {
    let ns = modified_ns.filter(|ns| *ns >= 0)?;
    Some(format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000))
}

/// The server's own time.
pub(crate) fn server_time(headers: &HeaderMap) -> Option<SystemTime> {
    header(headers, "date").and_then(|date| httpdate::parse_http_date(date).ok())
}

/// Seconds, or a date, which is read against the server's own clock.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = header(headers, "retry-after")?;
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    Some(then.duration_since(server_time(headers).unwrap_or_else(SystemTime::now)).unwrap_or(Duration::ZERO))
}

/// What an answer means that is no success, by its status alone.
pub(crate) fn refusal_of(operation: &'static str, location: &Location, answer: &Response<Body>) -> Error {
    let code = answer.status().as_u16();
    let (kind, status) = kind_of(code);
    let name = answer.status().canonical_reason().unwrap_or("no known status");
    let reason = format!("the server answered {code} ({name})");
    Error::new(kind, status, operation, location, reason).with_retry_after(retry_after(answer.headers()))
}

/// What the status of a failed request means, and whether the same request may succeed later.
pub(crate) fn kind_of(code: u16) -> (ErrorKind, Status) {
    use Status::{Permanent, Temporary};
    match code {
        404 | 410 => (ErrorKind::NotFound, Permanent),
        401 | 403 => (ErrorKind::PermissionDenied, Permanent),
        408 | 425 | 429 => (ErrorKind::Http(code), Temporary),
        501 | 505 => (ErrorKind::Http(code), Permanent),
        500..=599 => (ErrorKind::Http(code), Temporary),
        _ => (ErrorKind::Http(code), Permanent),
    }
}

/// The answer if it is a success; otherwise what the asker makes of it.
fn checked(
    asker: &dyn Asker,
    operation: &'static str,
    location: &Location,
    answer: Response<Body>,
) -> Result<Response<Body>> {
    match answer.status().is_success() {
        true => Ok(answer),
        false => Err(asker.refusal(operation, location, answer)),
    }
}

/// An answer that is a success, but to another question.
fn unexpected(operation: &'static str, location: &Location, answer: &Response<Body>, asked: &str) -> Error {
    let code = answer.status().as_u16();
    let reason = format!("the server answered {code} although {asked}");
    Error::new(ErrorKind::Http(code), Status::Permanent, operation, location, reason)
}

/// Why TLS refuses a server's certificate, in words for people; `None`: the error is about something else. `error`: what rustls says.
fn refused_certificate(error: &str) -> Option<String> {
    let (_, kind) = error.split_once("invalid peer certificate: ")?;
    let is = |words: &[&str]| words.iter().any(|word| kind.contains(word));
    Some(if is(&["UnknownIssuer"]) {
        "this machine does not know who signed it; SSL_CERT_FILE=FILE names authorities of your own".into()
    } else if is(&["CaUsedAsEndEntity"]) {
        "it is that of an authority (CA:TRUE), which a server cannot have; make it without, or sign another one with it".into()
    } else if is(&["NotValidYet", "not valid yet", "not yet valid", "Expired", "expired"]) {
        format!("it is not valid at this time, or the clock of this machine is off ({kind})")
    } else if is(&["NotValidForName", "not valid for name"]) {
        format!("it is for another name than the URL has ({kind})")
    } else {
        kind.to_string()
    })
}

pub(crate) fn from_body(operation: &'static str, location: &Location, error: io::Error) -> Error {
    from_ureq(operation, location, ureq::Error::from(error))
}

pub(crate) fn from_ureq(operation: &'static str, location: impl fmt::Display, error: ureq::Error) -> Error {
    use Status::{Permanent, Temporary};
    let (kind, status) = match &error {
        ureq::Error::Io(io) => {
            // TLS reports an untrusted or wrong certificate as invalid data. Whatever else the network reports, another
            // connection may do better.
            let status = if io.kind() == io::ErrorKind::InvalidData { Permanent } else { Temporary };
            let reason = match refused_certificate(&io.to_string()) {
                Some(why) => format!("the server's certificate is refused: {why}"),
                None => format!("the connection failed: {io}"),
            };
            return Error::new(ErrorKind::Io, status, operation, location, reason).with_source(error);
        }
        ureq::Error::Timeout(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
            (ErrorKind::Io, Temporary)
        }
        // A broken answer, such as a chunk cut short.
        ureq::Error::Protocol(_) | ureq::Error::ConnectProxyFailed(_) | ureq::Error::BodyStalled => {
            (ErrorKind::Io, Temporary)
        }
        // The client's words have the URL in them, that of a redirect too, and a query may be a secret.
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            let reason = "it, or where its server sends whoever asks, is no URL that can be asked for";
            return Error::new(ErrorKind::InvalidName, Permanent, operation, location, reason);
        }
        ureq::Error::Other(other) if other.is::<NoAuthorities>() => {
            return Error::new(ErrorKind::Io, Permanent, operation, location, other.to_string());
        }
        _ => (ErrorKind::Io, Permanent),
    };
    Error::new(kind, status, operation, location, error.to_string()).with_source(error)
}
