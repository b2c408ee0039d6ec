//! `dav` and `davs` homes: WebDAV servers (RFC 4918), by HTTP and by HTTPS.
//!
//! An object is written under the name of a part beside it and moved to its own name when all bytes are there. Parts are noted
//! as URLs ([`Fence::part_begins`](crate::Fence)), so that whoever reads a note can remove them.
//!
//! Names and passwords come from `~/.netrc` (or the file that `NETRC` names), as for other programs, and a token from
//! `BEARER_TOKEN` or the file that `BEARER_TOKEN_FILE` names. A token is sent over HTTPS only.
//!
//! Not here: reading ([`crate::web`]).

use crate::canonical::{Refusal, Spelling, Url, canonical_of, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::parts::{PART_PREFIX, part_path, remove_late_part};
use crate::tree::{self, Children, Tree};
use crate::version::Version;
use crate::web::{self, Asker, Source, base64};
use crate::wrappers::retry::Backoff;
use crate::xml::each_text;
use crate::{Capabilities, Home, HomesConfig, Listed, Listing, Location, Opened, Put, Stat};
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use ureq::http::{Request, Response};
use ureq::{Agent, Body, SendBody};

const STAT: &str = "stat";
const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";
const RENAME: &str = "rename";
const MAKE_DIRECTORY: &str = "make the directory";

const CAPABILITIES: Capabilities = Capabilities {
    name: "webdav",
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: false,
    list: true,
    remove: true,
    local_path: false,
    directories: false,
    rename: true,
    make_directory: true,
    modes: false,
};

/// The kind of files on WebDAV servers.
pub(crate) struct Shares;

impl Kind for Shares {
    fn schemes(&self) -> &'static [&'static str] {
        &["dav", "davs"]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    /// Host and port by the rules of `http`; in the path every character but an escape means itself.
    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        canonical_of(url, ["dav", "davs"], out)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(DavHome {
            // `PROPFIND` and its fellows are methods that HTTP itself does not know.
            agent: web::agent_config(&config.http).allow_non_standard_methods(true).build().into(),
            backoff: Backoff::new(config.retries.clone()),
            directories: Mutex::default(),
            has_worked: AtomicBool::new(false),
        }))
    }
}

/// Files on WebDAV servers. Connections are kept and shared by all threads.
pub struct DavHome {
    agent: Agent,
    backoff: Backoff,
    /// URLs of directories that are known to be there.
    directories: Mutex<BTreeSet<String>>,
    /// The server has let this process in, so a later refusal is a matter of credentials that a person renews.
    has_worked: AtomicBool,
}

/// What a server says of one name.
#[derive(Debug, Default, PartialEq, Eq)]
struct FoundName {
    /// Percent-encoded, as the server writes it, without the `/` at the end.
    path: String,
    is_directory: bool,
    size_bytes: Option<u64>,
    etag: Option<String>,
    modified: Option<String>,
    /// The server's time, if it says it.
    now: Option<SystemTime>,
}

impl FoundName {
    /// From the answer to `PROPFIND`. Errors: it is not whole.
    fn read_all(operation: &'static str, location: &Location, xml: &[u8]) -> Result<Vec<FoundName>> {
        let mut found: Vec<FoundName> = Vec::new();
        let outermost = each_text(xml, &mut |at, text| {
            let text = text.trim();
            if at == "response/href" {
                // Some servers write whole URLs.
                let path = text.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
                let path = path.unwrap_or(text).trim_end_matches('/').to_owned();
                found.push(FoundName { path, ..FoundName::default() });
            }
            let (Some(last), Some(property)) = (found.last_mut(), at.strip_prefix("response/propstat/prop/"))
            else {
                return;
            };
            match property {
                "getcontentlength" => last.size_bytes = last.size_bytes.or(text.parse().ok()),
                "getetag" if !text.is_empty() => last.etag = Some(text.to_owned()),
                "getlastmodified" if !text.is_empty() => last.modified = Some(text.to_owned()),
                "resourcetype/collection" => last.is_directory = true,
                _ => {}
            }
        });
        outermost.check("multistatus", operation, location)?;
        Ok(found)
    }

    /// The name in a directory. What lies elsewhere keeps its whole path, which is no such name.
    fn name_in(&self, directory: &FoundName) -> String {
        let decoded = |path: &str| percent_decode(path).unwrap_or_else(|| path.to_owned());
        let path = decoded(&self.path);
        let below = path.strip_prefix(&decoded(&directory.path)).and_then(|below| below.strip_prefix('/'));
        below.map_or_else(|| path.clone(), str::to_owned)
    }
}

/// The URL that is asked for.
fn url_of(operation: &'static str, location: &Location) -> Result<String> {
    match location.as_str().split_once("://") {
        Some(("dav", rest)) => Ok(format!("http://{rest}")),
        Some(("davs", rest)) => Ok(format!("https://{rest}")),
        _ => {
            let error = Error::unsupported(operation, location, CAPABILITIES.name);
            Err(error.with_context("scheme", location.scheme()))
        }
    }
}

impl DavHome {
    fn send(
        &self,
        operation: &'static str,
        location: &Location,
        (method, url): (&str, &str),
        headers: &[(&str, &str)],
        body: Option<SendBody<'_>>,
    ) -> Result<Response<Body>> {
        let mut builder = Request::builder().method(method).uri(url);
        if let Some(value) = authorization(url) {
            builder = builder.header("authorization", value);
        }
        let answer = web::send(&self.agent, operation, location, (builder, headers), body, |_| Ok(()))?;
        self.has_worked.fetch_or(answer.status().is_success(), Ordering::Relaxed);
        Ok(answer)
    }

    /// What is known of a location, and with `depth` 1 of what is directly in it.
    fn find(
        &self,
        operation: &'static str,
        location: &Location,
        url: &str,
        depth: &str,
    ) -> Result<Vec<FoundName>> {
        let answer = self.send(operation, location, ("PROPFIND", url), &[("depth", depth)], None)?;
        if answer.status() != 207 {
            return Err(self.refusal(operation, location, answer));
        }
        let mut xml = Vec::new();
        let now = web::server_time(answer.headers());
        answer
            .into_body()
            .into_reader()
            .read_to_end(&mut xml)
            .map_err(|error| web::from_body(operation, location, error))?;
        let mut found = FoundName::read_all(operation, location, &xml)?;
        found.iter_mut().for_each(|found| found.now = now);
        Ok(found)
    }

    /// Makes the directories above a URL that are not there.
    fn make_directories(&self, location: &Location, url: &str) -> Result<()> {
        let Some((directory, _)) = url.rsplit_once('/') else { return Ok(()) };
        let above_root = url.find("://").map_or(0, |at| at + 3);
        if !directory[above_root..].contains('/') {
            return Ok(());
        }
        let is_known = |directory: &str| {
            self.directories.lock().unwrap_or_else(PoisonError::into_inner).contains(directory)
        };
        if is_known(directory) {
            return Ok(());
        }
        let is_there = match self.find(WRITE, location, &format!("{directory}/"), "0") {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            self.make_directories(location, directory)?;
            let url = format!("{directory}/");
            let answer = self.send(WRITE, location, ("MKCOL", &url), &[], None)?;
            // 405: another writer has made it meanwhile.
            if !answer.status().is_success() && answer.status() != 405 {
                return Err(self.refusal(WRITE, location, answer));
            }
        }
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
        Ok(())
    }

    /// Moves what is at one URL to another, in place of a file there. A server would remove a directory there with all that is below it.
    fn move_over(
        &self,
        operation: &'static str,
        location: &Location,
        from: &str,
        to: &str,
    ) -> Result<Response<Body>> {
        let by = |overwrite: &str| {
            let headers = [("destination", to), ("overwrite", overwrite)];
            self.send(operation, location, ("MOVE", from), &headers, None)
        };
        let answer = by("F")?;
        if answer.status() != 412 {
            return Ok(answer);
        }
        let found = self.find(operation, location, to, "0")?;
        if found.first().is_some_and(|found| found.is_directory) {
            let reason = "there is a directory of this name";
            return Err(Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason));
        }
        by("T")
    }

    fn forget_directories(&self) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn check_directory(&self, operation: &'static str, location: &Location, url: &str) -> Result<()> {
        match self.find(operation, location, url, "0")?.first() {
            Some(found) if found.is_directory => Ok(()),
            _ => {
                let reason = "it is a file and no directory";
                Err(Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason))
            }
        }
    }

    /// Removes what is at a URL; nothing there is no error. Gives whether something was there.
    fn delete(&self, location: &Location, url: &str) -> Result<bool> {
        let answer = self.send(REMOVE, location, ("DELETE", url), &[], None)?;
        match answer.status() {
            status if status.is_success() => Ok(true),
            status if status == 404 => Ok(false),
            _ => Err(self.refusal(REMOVE, location, answer)),
        }
    }

    fn put_and_move(
        &self,
        location: &Location,
        (url, part): (&str, &str),
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<()> {
        let mut source = Source::new(body, put.fence, location);
        let size = put.size_hint_bytes.map(|size_bytes| size_bytes.to_string());
        let headers: Vec<(&str, &str)> = size.iter().map(|size| ("content-length", size.as_str())).collect();
        let sent =
            self.send(WRITE, location, ("PUT", part), &headers, Some(SendBody::from_reader(&mut source)));
        source.check(put.size_hint_bytes)?;
        let answer = sent?;
        if !answer.status().is_success() {
            return Err(self.refusal(WRITE, location, answer));
        }
        put.may_appear(location)?;
        self.backoff.run(|n_tries| {
            let answer = self.move_over(WRITE, location, part, url)?;
            // 404 after a lost answer: the try before did it.
            match answer.status().is_success() || n_tries > 1 && answer.status() == 404 {
                true => Ok(()),
                false => Err(self.refusal(WRITE, location, answer)),
            }
        })
    }
}

/// The credentials for a URL, if this user has any.
fn authorization(url: &str) -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if url.starts_with("https://") {
        let token = set("BEARER_TOKEN").or_else(|| std::fs::read_to_string(set("BEARER_TOKEN_FILE")?).ok());
        if let Some(token) = token {
            return Some(format!("Bearer {}", token.trim()));
        }
    }
    let file = set("NETRC").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".netrc")))?;
    let authority = url.split_once("://")?.1.split('/').next()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    let (login, password) = netrc(&std::fs::read_to_string(file).ok()?, host)?;
    Some(format!("Basic {}", base64(format!("{login}:{password}").as_bytes())))
}

/// Name and password for a host: of the first `machine` of that name, else of `default`.
fn netrc(text: &str, host: &str) -> Option<(String, String)> {
    let mut words =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    let (mut is_for_host, mut login, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" if is_for_host => break,
            "machine" => is_for_host = words.next()? == host,
            "default" => is_for_host = true,
            "login" => login = words.next().filter(|_| is_for_host),
            "password" => password = words.next().filter(|_| is_for_host),
            _ => {}
        }
    }
    Some((login?.to_owned(), password?.to_owned()))
}

impl Asker for DavHome {
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>> {
        let url = url_of(operation, location)?;
        let range = range.map(web::range_text);
        let headers: Vec<(&str, &str)> = range.iter().map(|range| ("range", range.as_str())).collect();
        self.send(operation, location, (if is_head { "HEAD" } else { "GET" }, &url), &headers, None)
    }

    fn trusts_head(&self) -> bool {
        false
    }

    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        let error = web::refusal_of(operation, location, &answer);
        let why = match answer.status().as_u16() {
            401 => "the server wants a name and a password, and those of ~/.netrc, if any, are not right",
            507 => "the server has no space left",
            404 | 410 => "there is no such file",
            _ => return error,
        };
        let kind = if answer.status() == 507 { ErrorKind::NoSpace } else { error.kind() };
        let status = match answer.status().as_u16() {
            507 => Status::Persistent,
            401 if self.has_worked.load(Ordering::Relaxed) => Status::Persistent,
            _ => error.status(),
        };
        let reason = format!("{why} ({})", answer.status().as_u16());
        Error::new(kind, status, operation, location, reason)
    }
}

impl Home for DavHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    /// By a question that tells a directory from a file.
    fn stat(&self, location: &Location) -> Result<Stat> {
        let url = url_of(STAT, location)?;
        let found = self.find(STAT, location, &url, "0")?;
        let Some(found) = found.first() else { return web::stat(self, location) };
        if found.is_directory {
            let reason = "it is a directory";
            return Err(Error::new(ErrorKind::NotAFile, Status::Permanent, STAT, location, reason));
        }
        match found.size_bytes {
            Some(size_bytes) => {
                let (etag, modified) = (found.etag.as_deref(), found.modified.as_deref());
                let version = Version::of_http(size_bytes, etag, modified, found.now);
                Ok(Stat { size_bytes, version })
            }
            None => web::stat(self, location),
        }
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        web::open(self, location, range)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let url = url_of(WRITE, location)?;
        self.backoff.run(|_| self.make_directories(location, &url))?;
        let (directory, name) = url.rsplit_once('/').unwrap_or((&url, ""));
        let part = part_path(Path::new(directory), name.as_bytes(), &put.part);
        put.fence.part_begins(&part);
        let part_url = part.to_string_lossy().into_owned();
        let written = self.put_and_move(location, (&url, &part_url), body, put);
        // A server may keep the name locked until it has stored what came before the connection broke.
        if written.is_ok() || remove_late_part(|| self.delete(location, &part_url)).is_ok() {
            put.fence.part_ended(&part);
        }
        written?;
        self.backoff.run(|_| self.stat(location))
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        let url = part.to_str().filter(|url| url.starts_with("http://") || url.starts_with("https://"));
        let Some(url) = url else { return Ok(()) };
        let is_part = url.rsplit('/').next().is_some_and(|name| name.starts_with(PART_PREFIX));
        match is_part {
            true => self.delete(&format!("dav{}", &url[4..]).parse()?, url).map(|_| ()),
            false => Ok(()),
        }
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let directory = listing.directory();
        let url = url_of(LIST, directory)?;
        let tree = Shelf { home: self, directory, url: url.trim_end_matches('/').to_owned() };
        let names = match listing {
            Listing::Under(_) => tree::walk(&tree)?,
            Listing::Glob { pattern, .. } => tree::glob(&tree, pattern)?,
        };
        Ok(Listed::of(directory, names))
    }

    /// A `DELETE` of a directory would remove all that is in it, so the name is looked at first.
    fn remove(&self, location: &Location) -> Result<()> {
        self.stat(location)?;
        self.delete(location, &url_of(REMOVE, location)?).map(|_| ())
    }

    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        let (url, new) = (url_of(RENAME, from)?, url_of(RENAME, to)?);
        if !web::are_at_one_server(&url, &new) {
            return Ok(false);
        }
        match from.ends_in_slash() {
            true => self.check_directory(RENAME, from, &url)?,
            false => self.stat(from).map(drop)?,
        }
        self.make_directories(to, new.trim_end_matches('/'))?;
        let answer = match from.ends_in_slash() {
            true => {
                let headers = [("destination", new.as_str()), ("overwrite", "F")];
                self.send(RENAME, from, ("MOVE", &url), &headers, None)?
            }
            false => self.move_over(RENAME, to, &url, &new)?,
        };
        self.forget_directories();
        match answer.status() {
            status if status.is_success() => Ok(true),
            status if status == 412 => {
                let reason = "there is something of the new name, and a directory replaces nothing";
                Err(Error::new(ErrorKind::NotAFile, Status::Permanent, RENAME, to, reason))
            }
            _ => Err(self.refusal(RENAME, from, answer)),
        }
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        let url = format!("{}/", url_of(MAKE_DIRECTORY, location)?.trim_end_matches('/'));
        self.make_directories(location, &url)?;
        self.check_directory(MAKE_DIRECTORY, location, &url)
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        let url = format!("{}/", url_of(REMOVE, location)?.trim_end_matches('/'));
        self.check_directory(REMOVE, location, &url)?;
        let n_files = self.list(&Listing::Under(location.clone()))?.found.len() as u64;
        self.delete(location, &url)?;
        self.forget_directories();
        Ok(n_files)
    }
}

/// The directories of a server below the place of a listing.
struct Shelf<'a> {
    home: &'a DavHome,
    directory: &'a Location,
    /// Without a `/` at its end.
    url: String,
}

impl Tree for Shelf<'_> {
    fn children(&self, directory: &str, _begins: &str) -> Result<Children> {
        let mut url = format!("{}/", self.url);
        push_encoded(&mut url, directory, is_path_mark, false);
        let mut children = Children::default();
        let found = self.home.find(LIST, self.directory, &url, "1")?;
        // The first one is the directory itself, which servers may spell with other escapes than we do.
        let Some((above, found)) = found.split_first() else { return Ok(children) };
        for found in found {
            match (found.name_in(above), found.is_directory) {
                (name, true) => children.directories.push(name),
                (name, false) if !name.starts_with(PART_PREFIX) => children.files.push(name),
                _ => {}
            }
        }
        Ok(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_is_understood() {
        let xml = br#"<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">
            <D:response><D:href>/d/</D:href><D:propstat><D:prop><D:resourcetype><D:collection xmlns:D="DAV:"/></D:resourcetype>
              </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
            <D:response><D:href>http://h:1/d/a%20b</D:href><D:propstat><D:prop><D:resourcetype></D:resourcetype>
              <D:getcontentlength>7</D:getcontentlength><D:getetag>"x"</D:getetag></D:prop></D:propstat></D:response>
            </D:multistatus>"#;
        let at: Location = "dav://host/d/".parse().unwrap();
        assert!(FoundName::read_all(STAT, &at, &xml[..xml.len() - 3]).is_err());
        let found = FoundName::read_all(STAT, &at, xml).unwrap();
        assert_eq!(found[0], FoundName { path: "/d".into(), is_directory: true, ..FoundName::default() });
        assert_eq!(found[1].name_in(&found[0]), "a b");
        assert_eq!((found[1].size_bytes, found[1].etag.as_deref()), (Some(7), Some("\"x\"")));
    }

    #[test]
    fn only_a_body_that_has_ended_is_to_blame_for_its_size() {
        let location: Location = "dav://h/x".parse().unwrap();
        for (n_body, n_read, expect) in [
            (3, 9, Some(Status::Permanent)),
            (9, 3, Some(Status::Temporary)),
            (5, 9, None),
            (6, 9, Some(Status::Permanent)),
        ] {
            let mut body = &[7; 9][..n_body];
            let mut source = Source::new(&mut body, &crate::Open, &location);
            (&mut source).take(n_read).read_to_end(&mut vec![]).unwrap();
            assert_eq!(
                source.check(Some(5)).err().map(|error| error.status()),
                expect,
                "{n_read} of {n_body}"
            );
        }
    }

    #[test]
    fn a_name_elsewhere_keeps_its_path() {
        let found = |path: &str| FoundName { path: path.into(), ..FoundName::default() };
        for (path, expect) in [
            ("/a%20d/x", "x"),
            ("/a d/..%2F..%2Fx", "../../x"),
            ("/a%20d/..", ".."),
            ("/a%20d/s/x", "s/x"),
            ("/etc/passwd", "/etc/passwd"),
            ("/a%20dx", "/a dx"),
            ("/a%20d", "/a d"),
            ("x", "x"),
            ("/a%20d/%ff", "/a%20d/%ff"),
        ] {
            assert_eq!(found(path).name_in(&found("/a%20d")), expect, "{path}");
        }
    }

    #[test]
    fn passwords_are_found_by_host() {
        let text = "# machine h login no password no\nmachine h\n login me\n password p\ndefault login d password e\n";
        assert_eq!(netrc(text, "h"), Some(("me".into(), "p".into())));
        assert_eq!(netrc(text, "other"), Some(("d".into(), "e".into())));
        assert_eq!(netrc("machine h login me", "h"), None);
        for (text, expect) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("user:pass", "dXNlcjpwYXNz")]
        {
            assert_eq!(base64(text.as_bytes()), expect);
        }
    }
}
