//! `http` and `https` homes: read only, by HTTP/1.1.
//!
//! Redirects are followed; the final answer counts. How objects are read is in [`crate::web`].
//!
//! Not here: writing, listing, credentials (what is served to anybody needs none). Retries are in [`crate::Retry`], also for a body that ends early.

use crate::canonical::{Refusal, Spelling, Url, is_url_mark, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::signed;
use crate::web::{self, Asker};
use crate::{Capabilities, Home, HomesConfig, HttpConfig, Listed, Listing, Location, Opened, Put, Stat};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use ureq::http::Response;
use ureq::{Agent, Body};

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
    rename: false,
    make_directory: false,
    modes: false,
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

    /// Scheme and host are in lower case, the scheme's own port is left out, and what a URL may not hold is percent-encoded. A query is
    /// kept apart ([`signed`]).
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
        signed::hide(out, start);
        Ok(Spelling::Url)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(HttpHome::new(config.http.clone())))
    }
}

/// Objects on web servers. Connections are kept and shared by all threads.
#[derive(Debug)]
pub struct HttpHome {
    agent: Agent,
}

impl HttpHome {
    /// Opens no connection yet.
    pub fn new(config: HttpConfig) -> HttpHome {
        HttpHome { agent: web::agent_config(&config).build().into() }
    }
}

impl Asker for HttpHome {
    fn ask(
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
        let Some(url) = signed::reveal(location.as_str()) else {
            let reason = "the query of this URL is not known here: it is kept out of all texts, so give the URL itself again";
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                Status::Permanent,
                operation,
                location,
                reason,
            ));
        };
        let mut request = if is_head { self.agent.head(&*url) } else { self.agent.get(&*url) };
        if let Some(range) = range {
            request = request.header("range", web::range_text(range));
        }
        request.call().map_err(|error| web::from_ureq(operation, location, error))
    }

    fn trusts_head(&self) -> bool {
        false
    }
}

impl Home for HttpHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        web::stat(self, location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        web::open(self, location, range)
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        web::open_first(self, location, most_bytes)
    }

    fn put(&self, location: &Location, _body: &mut dyn Read, _put: &Put) -> Result<Stat> {
        Err(Error::unsupported("write", location, CAPABILITIES.name))
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        Err(Error::unsupported("list", listing.directory(), CAPABILITIES.name))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        Err(Error::unsupported("remove", location, CAPABILITIES.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Status};
    use crate::testserver::{Fault, TestServer};
    use crate::version::Version;
    use crate::web::retry_after;
    use crate::wrappers::retry::{Retry, RetryConfig};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use ureq::http::HeaderMap;

    fn home() -> HttpHome {
        HttpHome::new(HttpConfig { proxy_from_env: false, ..HttpConfig::default() })
    }

    fn read(opened: Opened) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut opened = opened;
        match opened.reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Error::from_read("read", &opened.location, error)),
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
        let heads = [200, 302, 403, 404, 500, 501].map(Fault::Head);
        let ranges = [400, 403, 404, 405, 410, 500, 501].map(Fault::Range);
        let others = [Fault::NoRanges, Fault::Chunked, Fault::NoHead, Fault::Redirect, Fault::NoLength];
        for fault in heads.into_iter().chain(ranges).chain(others).chain([Fault::NoVersion]) {
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
        let error = HttpHome::new(config).open(&location, None).and_then(read).unwrap_err();
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
        let ca_file = dir.path().join("ca.pem");
        std::fs::write(&ca_file, made.cert.pem()).unwrap();
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
        // Between two requests a server may close a connection that the client keeps; a live home tries again, too.
        let home_with = Retry::new(Arc::new(with(&ca_file)), RetryConfig::default());
        assert_eq!(home_with.stat(&location).unwrap().size_bytes, 100_000);
        assert!(home_with.open(&location, Some(5..50_000)).and_then(read).unwrap() == vec![7; 49_995]);
        let error = home().stat(&location).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Permanent), "{error}");
        assert!(error.to_string().contains("SSL_CERT_FILE=FILE names authorities of your own"), "{error}");
        // One that is for other names, and one that is an authority's.
        let refused = |params: rcgen::CertificateParams| {
            let key = rcgen::KeyPair::generate().unwrap();
            let made = params.self_signed(&key).unwrap();
            std::fs::write(&ca_file, made.pem()).unwrap();
            let front = crate::testserver::TlsFront::start(&server, made.der().clone(), &key.serialize_der());
            with(&ca_file).stat(&front.url("x")).unwrap_err().to_string()
        };
        let other = rcgen::CertificateParams::new(["elsewhere.example.org".to_owned()]).unwrap();
        let error = refused(other);
        assert!(error.contains("it is for another name than the URL has"), "{error}");
        let mut authority = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let error = refused(authority);
        assert!(error.contains("it is that of an authority (CA:TRUE)"), "{error}");
        let mut old = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        old.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let error = refused(old);
        assert!(error.contains("it is not valid at this time"), "{error}");
    }

    /// A file of authorities that cannot be used is said by each request that would need it. No other fails for it.
    #[test]
    fn authorities_that_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let server = TestServer::start();
        server.put(&server.url("x"), vec![7; 1_000]);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der();
        let front = crate::testserver::TlsFront::start(&server, made.cert.der().clone(), &key);
        let (empty, broken, none) =
            (dir.path().join("empty.pem"), dir.path().join("broken.pem"), dir.path().join("none.pem"));
        std::fs::write(&empty, "").unwrap();
        std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\n%%\n-----END CERTIFICATE-----\n").unwrap();
        for (file, why) in [
            (&empty, "it holds no certificate in PEM form"),
            (&broken, "it cannot be understood: "),
            (&none, "it cannot be read: No such file"),
            (&dir.path().to_owned(), "it cannot be read: Is a directory"),
        ] {
            let home = HttpHome::new(HttpConfig {
                proxy_from_env: false,
                ca_file: Some(file.clone()),
                ..HttpConfig::default()
            });
            assert_eq!(home.stat(&server.url("x")).unwrap().size_bytes, 1_000);
            let error = home.stat(&front.url("x")).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&format!("names `{}`", file.display())) && said.contains(why), "{said}");
            assert_eq!(error.status(), Status::Permanent);
        }
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
