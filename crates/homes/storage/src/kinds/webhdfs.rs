//! `webhdfs` and `swebhdfs` homes: files of HDFS, by its HTTP interface (WebHDFS), without and with TLS.
//!
//! The name node answers questions, and says for each transfer which data node has or takes the bytes. It is asked for that
//! address in a body (`noredirect`), because a header cannot hold every name. Of the data nodes that have a file the name
//! node names the one that is nearest to whoever asks, so a reader on such a machine reads over no network.
//!
//! Version and bytes come from two answers, so the version is asked before a file is read and once more behind its last byte.
//!
//! An object is written under the name of a part beside it and renamed when all bytes are there, over an older one. A later
//! writer removes the parts of earlier ones first, and nothing is left that they could rename.
//!
//! Who asks is `HADOOP_USER_NAME`, or else this user's name, as for Hadoop's own tools. HDFS with Kerberos is not supported.

use crate::canonical::{Refusal, Spelling, Url, canonical_of, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::parts::{PART_PREFIX, part_named, part_path};
use crate::put::given_up;
use crate::tree::{self, Children, Tree};
use crate::version::Version;
use crate::web::{self, Source};
use crate::wrappers::retry::Backoff;
use crate::{Capabilities, Home, HomesConfig, Listed, Listing, Location, Opened, Part, PartPlace, Put, Stat};
use serde_json::Value;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use ureq::http::{Request, Response};
use ureq::{Agent, Body, SendBody};

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";
const RENAME: &str = "rename";
const MAKE_DIRECTORY: &str = "make the directory";
const SET_MODE: &str = "change the permissions of";
const PLACES: &str = "find the hosts of";

const CAPABILITIES: Capabilities = Capabilities {
    name: "webhdfs",
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: true,
    list: true,
    remove: true,
    local_path: false,
    directories: false,
    rename: true,
    make_directory: true,
    modes: true,
};

/// The kind of files in HDFS.
pub(crate) struct Hdfs;

impl Kind for Hdfs {
    fn schemes(&self) -> &'static [&'static str] {
        &["webhdfs", "swebhdfs"]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn knows_places(&self) -> bool {
        true
    }

    /// As with `dav`; HDFS takes several `/` for one, and so is one name spelt in one way.
    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let (authority, path) = url.rest.split_once('/').unwrap_or((url.rest, ""));
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let rest = format!("{authority}/{}", path.join("/"));
        canonical_of(Url { scheme: url.scheme, rest: &rest }, ["webhdfs", "swebhdfs"], out)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(HdfsHome(Arc::new(Client {
            agent: web::agent_config(&config.http).build().into(),
            backoff: Backoff::new(config.retries.clone()),
            user: user_name(),
        }))))
    }
}

/// The name that files are made under.
fn user_name() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    set("HADOOP_USER_NAME")
        .or_else(|| set("USER"))
        .or_else(|| set("LOGNAME"))
        .unwrap_or_else(|| "root".into())
}

/// Files in HDFS. Connections are kept and shared by all threads.
pub struct HdfsHome(Arc<Client>);

struct Client {
    agent: Agent,
    backoff: Backoff,
    user: String,
}

/// What HDFS says of one name.
struct FoundName {
    /// Empty for the name that was asked for.
    name: String,
    is_directory: bool,
    stat: Stat,
}

impl FoundName {
    fn read(status: &Value) -> Option<FoundName> {
        let number = |key: &str| status.get(key).and_then(Value::as_u64);
        let size_bytes = number("length")?;
        let (file, modified) = (number("fileId")?, number("modificationTime")?);
        Some(FoundName {
            name: status.get("pathSuffix")?.as_str()?.to_owned(),
            is_directory: status.get("type")?.as_str()? == "DIRECTORY",
            // Each file that is made has a number of its own, also under a name that was there before.
            stat: Stat {
                size_bytes,
                version: Version::from_text(format!("size={size_bytes};file={file};modified={modified}")),
            },
        })
    }
}

/// The address of an object at the name node, up to the `?`.
fn url_of(operation: &'static str, location: &Location) -> Result<String> {
    let (scheme, rest) = match location.as_str().split_once("://") {
        Some(("webhdfs", rest)) => ("http", rest),
        Some(("swebhdfs", rest)) => ("https", rest),
        _ => {
            let error = Error::unsupported(operation, location, CAPABILITIES.name);
            return Err(error.with_context("scheme", location.scheme()));
        }
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(format!("{scheme}://{authority}/webhdfs/v1/{path}"))
}

/// The path of an object within HDFS, decoded.
fn path_of(location: &Location) -> String {
    let rest = location.as_str().split_once("://").map_or("", |(_, rest)| rest);
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    format!("/{}", percent_decode(path).unwrap_or_else(|| path.to_owned()))
}

fn encoded(text: &str) -> String {
    let mut out = String::new();
    push_encoded(&mut out, text, is_path_mark, false);
    out
}

impl Client {
    fn send(
        &self,
        operation: &'static str,
        location: &Location,
        (method, url): (&str, &str),
        body: Option<(SendBody<'_>, Option<u64>)>,
    ) -> Result<Response<Body>> {
        let mut builder = Request::builder().method(method).uri(url);
        if let Some((_, size_bytes)) = &body {
            builder = builder.header("content-type", "application/octet-stream");
            if let Some(size_bytes) = size_bytes {
                builder = builder.header("content-length", *size_bytes);
            }
        }
        let body = body.map(|(body, _)| body);
        let answer = web::send(&self.agent, operation, location, (builder, &[]), body, |_| Ok(()))?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refusal(operation, location, answer)),
        }
    }

    /// One question to the name node. `more`: what stands behind the operation, each beginning with a `&`.
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        (method, op): (&str, &str),
        more: &str,
    ) -> Result<Value> {
        self.ask_at(operation, location, &url_of(operation, location)?, (method, op), more)
    }

    fn ask_at(
        &self,
        operation: &'static str,
        location: &Location,
        url: &str,
        (method, op): (&str, &str),
        more: &str,
    ) -> Result<Value> {
        let url = format!("{url}?op={op}&user.name={}{more}", encoded(&self.user));
        let answer = self.send(operation, location, (method, &url), None)?;
        let mut text = Vec::new();
        let read = answer.into_body().into_reader().read_to_end(&mut text);
        read.map_err(|error| web::from_body(operation, location, error))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text).map_err(|_| not_hdfs(operation, location))
    }

    /// The address at a data node that the name node gives for a transfer.
    fn data_node(
        &self,
        operation: &'static str,
        location: &Location,
        url: &str,
        how: (&str, &str),
        more: &str,
    ) -> Result<String> {
        let answer = self.ask_at(operation, location, url, how, &format!("&noredirect=true{more}"))?;
        let address = answer.get("Location").and_then(Value::as_str);
        let address = address.ok_or_else(|| not_hdfs(operation, location))?;
        // The name node leaves letters beyond ASCII as they are.
        let mut out = String::new();
        push_encoded(&mut out, address, |byte| byte.is_ascii_graphic(), true);
        Ok(out)
    }

    fn find(&self, operation: &'static str, location: &Location) -> Result<FoundName> {
        let answer = self.ask(operation, location, ("GET", "GETFILESTATUS"), "")?;
        let found = answer.get("FileStatus").and_then(FoundName::read);
        found.ok_or_else(|| not_hdfs(operation, location))
    }

    fn stat(&self, operation: &'static str, location: &Location) -> Result<Stat> {
        let found = self.find(operation, location)?;
        match found.is_directory {
            false => Ok(found.stat),
            true => {
                let reason = "it is a directory";
                Err(Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason))
            }
        }
    }

    /// What is directly in a directory, whose address is `url`.
    /// What is in a directory, and the names of what the server says too little of.
    fn list(&self, location: &Location, url: &str) -> Result<(Vec<FoundName>, Vec<String>)> {
        let answer = self.ask_at(LIST, location, url, ("GET", "LISTSTATUS"), "")?;
        let list =
            answer.get("FileStatuses").and_then(|list| list.get("FileStatus")).and_then(Value::as_array);
        let list = list.ok_or_else(|| not_hdfs(LIST, location))?;
        let (mut found, mut odd) = (vec![], vec![]);
        for status in list {
            match FoundName::read(status) {
                Some(known) => found.push(known),
                None => odd.extend(status.get("pathSuffix").and_then(Value::as_str).map(str::to_owned)),
            }
        }
        if found.iter().any(|found: &FoundName| found.name.is_empty()) {
            let reason = "it is a file and no directory";
            return Err(Error::new(ErrorKind::NotFound, Status::Permanent, LIST, location, reason));
        }
        Ok((found, odd))
    }

    /// `false`: there was nothing.
    fn delete(&self, operation: &'static str, location: &Location, url: &str) -> Result<bool> {
        let answer = self.ask_at(operation, location, url, ("DELETE", "DELETE"), "")?;
        Ok(answer.get("boolean").and_then(Value::as_bool) == Some(true))
    }

    /// Removes the parts of earlier writers than `part` from the directory of `location`.
    fn remove_earlier(&self, location: &Location, part: &Part) -> Result<()> {
        let url = url_of(REMOVE, location)?;
        let directory = url.rsplit_once('/').map_or(url.as_str(), |(directory, _)| directory);
        let (names, _) = match self.list(location, directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for FoundName { name, .. } in names {
            let is_earlier = part_named(&name).is_some_and(|other| {
                other.work == part.work && (other.epoch, other.number) < (part.epoch, part.number)
            });
            if is_earlier {
                self.delete(REMOVE, location, &format!("{directory}/{}", encoded(&name)))?;
            }
        }
        Ok(())
    }

    fn put_and_rename(&self, location: &Location, part: &str, body: &mut dyn Read, put: &Put) -> Result<()> {
        let url = url_of(WRITE, location)?;
        let part_url = format!(
            "{}{}",
            url.rsplit_once('/').map_or("", |(d, _)| d),
            &part[part.rfind('/').unwrap_or(0)..]
        );
        let mut more = "&overwrite=true".to_string();
        if let Some(mode) = put.mode {
            more += &format!("&permission={:o}", mode & 0o777);
        }
        let address =
            self.backoff.run(|_| self.data_node(WRITE, location, &part_url, ("PUT", "CREATE"), &more))?;
        let mut source = Source::new(body, put.fence, location);
        let body = SendBody::from_reader(&mut source);
        let sent = self.send(WRITE, location, ("PUT", &address), Some((body, put.size_hint_bytes)));
        source.check(put.size_hint_bytes)?;
        sent?;
        if put.part.replaces {
            self.remove_earlier(location, &put.part)?;
        }
        put.may_appear(location)?;
        let to = encoded(&path_of(location));
        let more = format!("&renameoptions=OVERWRITE&destination={to}");
        self.backoff.run(|n_tries| {
            match self.ask_at(WRITE, location, &part_url, ("PUT", "RENAME"), &more) {
                Ok(_) => Ok(()),
                // After a lost answer: the try before did it, or a later writer has removed the part.
                Err(error) if error.kind() == ErrorKind::NotFound && n_tries > 1 => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let why = "a later attempt has removed what this one had written".to_string();
                    Err(given_up(WRITE, location, why))
                }
                Err(error) => Err(error),
            }
        })
    }
}

/// What a refusal of HDFS means. Its body names the exception.
fn refusal(operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
    use Status::{Permanent, Persistent, Temporary};
    let by_code = web::refusal_of(operation, location, &answer);
    let body: Value = serde_json::from_slice(&web::head_of(answer)).unwrap_or_default();
    let field = |key: &str| body.get("RemoteException").and_then(|e| e.get(key)).and_then(Value::as_str);
    let Some(exception) = field("exception") else { return by_code };
    let (kind, status) = match exception {
        "FileNotFoundException" => (ErrorKind::NotFound, Permanent),
        "AccessControlException" | "SecurityException" | "AuthorizationException" | "InvalidToken" => {
            (ErrorKind::PermissionDenied, Permanent)
        }
        "NSQuotaExceededException" | "DSQuotaExceededException" => (ErrorKind::NoSpace, Persistent),
        "StandbyException" | "RetriableException" | "SafeModeException" | "LeaseExpiredException" => {
            (ErrorKind::Io, Temporary)
        }
        "InvalidPathException" | "IllegalArgumentException" | "HadoopIllegalArgumentException" => {
            (ErrorKind::InvalidName, Permanent)
        }
        _ => (by_code.kind(), by_code.status()),
    };
    let message = field("message").unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    let reason = format!("HDFS says: {message} ({exception})");
    Error::new(kind, status, operation, location, reason).with_retry_after(by_code.retry_after())
}

fn not_hdfs(operation: &'static str, location: &Location) -> Error {
    let reason = "the server did not answer as WebHDFS does";
    Error::new(ErrorKind::Io, Status::Permanent, operation, location, reason)
}

impl Home for HdfsHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        self.0.stat(STAT, location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        let stat = self.0.stat(READ, location)?;
        let range = range.unwrap_or(0..stat.size_bytes);
        if range.start > range.end || range.end > stat.size_bytes {
            return Err(Error::range_outside(READ, location, &range, stat.size_bytes));
        }
        let reader: Box<dyn Read + Send> = match range.is_empty() {
            true => Box::new(io::empty()),
            false => {
                let size_bytes = range.end - range.start;
                let more = format!("&offset={}&length={size_bytes}", range.start);
                let url = url_of(READ, location)?;
                let address = self.0.data_node(READ, location, &url, ("GET", "OPEN"), &more)?;
                let answer = self.0.send(READ, location, ("GET", &address), None)?;
                let body = web::body_of(location, answer, size_bytes);
                let checked = Some((self.0.clone(), stat.clone()));
                Box::new(Checked { body, location: location.clone(), left_bytes: size_bytes, checked })
            }
        };
        Ok(Opened { location: location.clone(), stat, range, reader, file: None, times: vec![] })
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let text = location.as_str();
        let (directory, name) = text.rsplit_once('/').unwrap_or((text, ""));
        let part = part_path(Path::new(directory), name.as_bytes(), &put.part);
        put.fence.part_begins(&part);
        let written = self.0.put_and_rename(location, &part.to_string_lossy(), body, put);
        if written.is_ok() || self.remove_part(&part).is_ok() {
            put.fence.part_ended(&part);
        }
        written?;
        self.0.backoff.run(|_| self.0.stat(WRITE, location))
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        let is_ours = |text: &&str| text.starts_with("webhdfs://") || text.starts_with("swebhdfs://");
        let Some(text) = part.to_str().filter(is_ours) else { return Ok(()) };
        if !text.rsplit('/').next().is_some_and(|name| name.starts_with(PART_PREFIX)) {
            return Ok(());
        }
        let location: Location = text.parse()?;
        let url = url_of(REMOVE, &location)?;
        self.0.backoff.run(|_| self.0.delete(REMOVE, &location, &url)).map(|_| ())
    }

    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        self.0.remove_earlier(location, part)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let directory = listing.directory();
        let url = url_of(LIST, directory)?.trim_end_matches('/').to_owned();
        let tree = Folder { client: &self.0, directory, url };
        let names = match listing {
            Listing::Under(_) => tree::walk(&tree)?,
            Listing::Glob { pattern, .. } => tree::glob(&tree, pattern)?,
        };
        Ok(Listed::of(directory, names))
    }

    /// An empty directory would be removed, too, so the name is looked at first.
    fn remove(&self, location: &Location) -> Result<()> {
        self.0.stat(REMOVE, location)?;
        match self.0.delete(REMOVE, location, &url_of(REMOVE, location)?)? {
            true => Ok(()),
            false => {
                let reason = "there is no such file";
                Err(Error::new(ErrorKind::NotFound, Status::Permanent, REMOVE, location, reason))
            }
        }
    }

    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        let (url, new) = (url_of(RENAME, from)?, url_of(RENAME, to)?);
        if !web::are_at_one_server(&url, &new) {
            return Ok(false);
        }
        if self.0.find(RENAME, from)?.is_directory != from.ends_in_slash() {
            let what = if from.ends_in_slash() { "it is no directory" } else { "it is a directory" };
            return Err(Error::new(ErrorKind::NotAFile, Status::Permanent, RENAME, from, what));
        }
        let path = path_of(to);
        let path = path.trim_end_matches('/');
        if let Some((above, _)) = new.trim_end_matches('/').rsplit_once('/') {
            self.0.ask_at(RENAME, to, above, ("PUT", "MKDIRS"), "")?;
        }
        // With `NONE` a name that is taken is an error, also that of an empty directory.
        let option = if from.ends_in_slash() { "NONE" } else { "OVERWRITE" };
        let more = format!("&renameoptions={option}&destination={}", encoded(path));
        self.0.ask_at(RENAME, from, url.trim_end_matches('/'), ("PUT", "RENAME"), &more)?;
        Ok(true)
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        self.0.ask(MAKE_DIRECTORY, location, ("PUT", "MKDIRS"), "").map(drop)
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        if !self.0.find(REMOVE, location)?.is_directory {
            let reason = "it is no directory";
            return Err(Error::new(ErrorKind::NotAFile, Status::Permanent, REMOVE, location, reason));
        }
        let n_files = self.list(&Listing::Under(location.clone()))?.found.len() as u64;
        self.0.ask(REMOVE, location, ("DELETE", "DELETE"), "&recursive=true")?;
        Ok(n_files)
    }

    fn mode(&self, location: &Location) -> Result<Option<u32>> {
        let answer = self.0.ask(STAT, location, ("GET", "GETFILESTATUS"), "")?;
        let bits = answer.get("FileStatus").and_then(|status| status.get("permission")?.as_str());
        Ok(bits.and_then(|bits| u32::from_str_radix(bits, 8).ok()))
    }

    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        let more = format!("&permission={:o}", mode & 0o777);
        self.0.ask(SET_MODE, location, ("PUT", "SETPERMISSION"), &more).map(drop)
    }

    fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        let answer = self.0.ask(PLACES, location, ("GET", "GETFILEBLOCKLOCATIONS"), "")?;
        let list = answer.get("BlockLocations").and_then(|list| list.get("BlockLocation"));
        let list = list.and_then(Value::as_array).ok_or_else(|| not_hdfs(PLACES, location))?;
        let place = |block: &Value| {
            let start = block.get("offset")?.as_u64()?;
            let hosts = block.get("hosts")?.as_array()?.iter().filter_map(Value::as_str);
            let range = start..start + block.get("length")?.as_u64()?;
            Some(PartPlace { range, hosts: hosts.map(str::to_owned).collect() })
        };
        Ok(list.iter().filter_map(place).collect())
    }
}

/// The directories below the place of a listing.
struct Folder<'a> {
    client: &'a Client,
    directory: &'a Location,
    /// Without a `/` at its end.
    url: String,
}

impl Tree for Folder<'_> {
    fn children(&self, directory: &str, _begins: &str) -> Result<Children> {
        let url = format!("{}/{}", self.url, encoded(directory.trim_end_matches('/')));
        let mut children = Children::default();
        let (found, odd) = self.client.list(self.directory, &url)?;
        let why = "the server does not say its size, its time and its number";
        children.left_out.extend(odd.into_iter().map(|name| (name, why.to_owned())));
        for FoundName { name, is_directory, .. } in found {
            match is_directory {
                true => children.directories.push(name),
                false if !name.starts_with(PART_PREFIX) => children.files.push(name),
                false => {}
            }
        }
        Ok(children)
    }
}

/// A body, behind whose last byte the version is asked once more.
struct Checked<R> {
    body: R,
    location: Location,
    left_bytes: u64,
    checked: Option<(Arc<Client>, Stat)>,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.body.read(buffer)?;
        self.left_bytes -= n as u64;
        if self.left_bytes == 0
            && let Some((client, stat)) = self.checked.take()
        {
            let now = client.stat(READ, &self.location)?;
            if now.version.contradicts(&stat.version) {
                let difference = Version::describe_change(&stat.version, &now.version);
                return Err(Error::changed(READ, &self.location, difference).into());
            }
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_spelling() {
        let canonical = |text: &str| text.parse::<Location>().map(|location| location.as_str().to_owned());
        for text in ["webhdfs://H:9870/a b/c", "WebHDFS://h:9870//a%20b/./c/", "webhdfs://h:9870/a%20b//c"] {
            assert_eq!(canonical(text).unwrap(), "webhdfs://h:9870/a%20b/c", "{text}");
        }
        assert!(canonical("webhdfs://me:secret@h/x").is_err());
        let location: Location = "webhdfs://h:9870/a b/50%25+é".parse().unwrap();
        assert_eq!(path_of(&location), "/a b/50%+é");
        assert_eq!(url_of(STAT, &location).unwrap(), "http://h:9870/webhdfs/v1/a%20b/50%25%2B%C3%A9");
    }
}
