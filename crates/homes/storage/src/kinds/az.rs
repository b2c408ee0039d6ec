//! `az` homes: containers of Azure Blob Storage.
//!
//! A location is `az://CONTAINER/BLOB`; the storage account is that of the environment.
//!
//! An object appears with one request, all of it at once: a small object's own, or the list of its blocks. Blocks of an upload
//! that failed belong to no object, and nobody can read them; Azure has no request that removes them, and does so by itself after
//! a week, or with the next writing of the object. Their names are those of one writer, so they are never mixed with others'.
//!
//! A write takes several requests and its source cannot be read twice, so here each request is tried again by itself.
//!
//! Not here: credentials and endpoint (`account`), reading ([`crate::web`]), names and listings ([`crate::kinds::bucket`]).

mod account;

use crate::canonical::{Refusal, Spelling, Url};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::kinds::bucket::signing::{self, Accounts};
use crate::kinds::bucket::{self, PART_BYTES, Page, Pages, bucket_and_key, push_query, read_part};
use crate::parts::part_path;
use crate::put::given_up;
use crate::web::{self, Asker};
use crate::wrappers::retry::Backoff;
use crate::xml::each_text;
use crate::{Capabilities, Home, HomesConfig, HttpConfig, Listed, Listing, Location, Opened, Put, Stat};
use account::Account;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use ureq::http::{HeaderMap, Request, Response};
use ureq::{Agent, Body};

const SCHEME: &str = "az";

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";

/// The version of the protocol that is spoken.
const PROTOCOL: &str = "2023-11-03";
/// Azure allows 50,000 blocks of one object, so the blocks of very large objects grow.
const BLOCKS_OF_ONE_SIZE: u32 = 10_000;

const CAPABILITIES: Capabilities = Capabilities {
    name: "az",
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
};

/// The kind of blobs in containers.
pub(crate) struct Containers;

impl Kind for Containers {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn names_are_flat(&self) -> bool {
        true
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        bucket::canonical(url, SCHEME, "write az://CONTAINER/BLOB", out)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(AzHome {
            agent: web::agent_config(&config.http)?.build().into(),
            http: config.http.clone(),
            account: Accounts::default(),
            backoff: Backoff::new(config.retries.clone()),
        }))
    }
}

/// Blobs in containers, by the account of the environment.
struct AzHome {
    http: HttpConfig,
    agent: Agent,
    account: Accounts<Account>,
    backoff: Backoff,
}

/// What is asked of a container.
struct Question<'a> {
    method: &'static str,
    /// The container and the percent-encoded name of the blob.
    place: (&'a str, &'a str),
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'static str, &'a str)],
    /// `None`: the method has no body.
    body: Option<&'a [u8]>,
}

impl AzHome {
    /// Sends one signed request, and once more if renewed credentials are there.
    fn send(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        self.account.ask(
            || Account::find(&self.http, operation, location),
            |account| self.send_as(account, operation, location, question),
        )
    }

    fn send_as(
        &self,
        account: &Account,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        let (container, blob) = question.place;
        let slash = if blob.is_empty() { "" } else { "/" };
        let mut url = format!("{}/{container}{slash}{blob}", account.endpoint);
        push_query(&mut url, question.query);
        let mut builder =
            Request::builder().method(question.method).uri(url).header("x-ms-version", PROTOCOL);
        // The length is signed, too.
        if let Some(body) = question.body {
            builder = builder.header("content-length", body.len().to_string());
        }
        web::send(&self.agent, operation, location, (builder, question.headers), question.body, |request| {
            account.sign(request, operation, location)
        })
    }

    /// [`AzHome::send`], again and again as long as that may help, where every answer but a success is an error.
    fn ask_for(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        self.backoff.run(|_| web::whole(self, operation, location, self.send(operation, location, question)?))
    }

    /// Makes an object with one request.
    fn put_whole(
        &self,
        location: &Location,
        (query, headers): (&[(&str, &str)], &[(&'static str, &str)]),
        body: &[u8],
        size_bytes: u64,
        put: &Put,
    ) -> Result<Stat> {
        put.fence.may_appear().map_err(|why| given_up(WRITE, location, why))?;
        let place = place_of(WRITE, location)?;
        let time = web::text_of_time(put.modified_ns);
        let noted = time.as_ref().map(|time| ("x-ms-meta-mtime", time.as_str()));
        let headers: Vec<_> = headers.iter().copied().chain(noted).collect();
        let question = Question { method: "PUT", place, query, headers: &headers, body: Some(body) };
        let (headers, _) = self.ask_for(WRITE, location, &question)?;
        match web::header(&headers, "etag") {
            Some(_) => Ok(web::stat_of(size_bytes, &headers)),
            None => self.backoff.run(|_| self.stat(location)),
        }
    }

    /// Sends blocks: `first`, which is a whole one, and what follows it in `body`. Then lists them.
    fn put_blocks(
        &self,
        location: &Location,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let place = place_of(WRITE, location)?;
        // All names of one object's blocks have to be of one length.
        let writer = part_path(Path::new(""), location.as_str().as_bytes(), &put.part);
        let writer = crate::fnv1a64(writer.as_os_str().as_encoded_bytes());
        let name_of = |number: u32| web::base64(format!("eyas-{writer:016x}-{number:08x}").as_bytes());
        let last = Mutex::new(0);
        let size_bytes = bucket::send_parts(location, first, body, put, block_bytes, &|number, bytes| {
            let name = name_of(number);
            let query = [("comp", "block"), ("blockid", name.as_str())];
            let question = Question { method: "PUT", place, query: &query, headers: &[], body: Some(bytes) };
            self.ask_for(WRITE, location, &question)?;
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = number.max(*last);
            Ok(())
        })?;
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for number in 1..=last {
            xml.push_str(&format!("<Latest>{}</Latest>", name_of(number)));
        }
        xml.push_str("</BlockList>");
        self.put_whole(location, (&[("comp", "blocklist")], &[]), xml.as_bytes(), size_bytes, put)
    }
}

fn block_bytes(number: u32) -> usize {
    PART_BYTES << ((number.saturating_sub(1)) / BLOCKS_OF_ONE_SIZE).min(6)
}

/// The container and the percent-encoded name of a blob.
fn place_of<'a>(operation: &'static str, location: &'a Location) -> Result<(&'a str, &'a str)> {
    bucket::place_of(operation, location, SCHEME)
}

impl Pages for AzHome {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn page(&self, directory: &Location, prefix: &str, delimiter: &str, token: &str) -> Result<Page> {
        let mut query = vec![("restype", "container"), ("comp", "list")];
        let more = [("prefix", prefix), ("delimiter", delimiter), ("marker", token)];
        query.extend(more.into_iter().filter(|(_, value)| !value.is_empty()));
        let place = (bucket_and_key(directory).0, "");
        let question = Question { method: "GET", place, query: &query, headers: &[], body: None };
        let (_, xml) = self.ask_for(LIST, directory, &question)?;
        Ok(page_of(&xml))
    }
}

/// From the answer to `List Blobs`. Accounts with directories of their own list these, too.
fn page_of(xml: &[u8]) -> Page {
    let mut page = Page::default();
    each_text(xml, &mut |at, text| match at {
        "Blobs/Blob/Name" => page.add(text.to_owned(), None),
        "Blobs/Blob/Properties/ResourceType" if text == "directory" => page.take_back(),
        "Blobs/Blob/Properties/Content-Length" if text == "0" => page.is_empty_object(),
        "Blobs/BlobPrefix/Name" => page.prefixes.push(text.to_owned()),
        "NextMarker" if !text.is_empty() => page.next = Some(text.to_owned()),
        _ => {}
    });
    page
}

impl Asker for AzHome {
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>> {
        let place = place_of(operation, location)?;
        let range = range.map(web::range_text);
        let headers: Vec<(&'static str, &str)> =
            range.iter().map(|range| ("range", range.as_str())).collect();
        let method = if is_head { "HEAD" } else { "GET" };
        self.send(operation, location, &Question { method, place, query: &[], headers: &headers, body: None })
    }

    /// By the code in a header, which says more than the status.
    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        let by_status = web::refusal_of(operation, location, &answer);
        let http = answer.status().as_u16();
        let Some(code) = web::header(answer.headers(), "x-ms-error-code").map(str::to_owned) else {
            return by_status;
        };
        let container = bucket_and_key(location).0;
        let found = self.account.found();
        let account = found.as_ref().map_or("", |account| account.name.as_str());
        let (kind, status, reason) = match code.as_str() {
            "BlobNotFound" | "ResourceNotFound" => {
                (ErrorKind::NotFound, Status::Permanent, "there is no such object".to_owned())
            }
            "ContainerNotFound" => {
                let reason = format!("the storage account `{account}` has no container `{container}`");
                (ErrorKind::NotFound, Status::Permanent, reason)
            }
            "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
                let reason = format!(
                    "the server does not accept the credentials for the storage account `{account}` ({code}): its key is \
                     another one, the token has expired, or the clock of this machine is off"
                );
                (ErrorKind::PermissionDenied, self.account.status_of_refusal(), reason)
            }
            "AuthorizationFailure"
            | "AuthorizationPermissionMismatch"
            | "InsufficientAccountPermissions"
            | "AccountIsDisabled"
            | "PublicAccessNotPermitted" => {
                let reason = format!(
                    "access is denied ({code}): these credentials may not {operation} it, or are not those of the storage \
                     account `{account}`"
                );
                (ErrorKind::PermissionDenied, Status::Permanent, reason)
            }
            "ServerBusy" => {
                let reason = format!("the server asks for fewer requests ({code})");
                (ErrorKind::Http(http), Status::Temporary, reason)
            }
            _ => {
                let reason = format!("the server answered {http} ({code})");
                (by_status.kind(), by_status.status(), reason)
            }
        };
        Error::new(kind, status, operation, location, reason).with_retry_after(by_status.retry_after())
    }
}

impl Home for AzHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        place_of(STAT, location)?;
        web::stat(self, location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        place_of(READ, location)?;
        web::open(self, location, range)
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        web::open_first(self, location, most_bytes)
    }

    fn may_write(&self, location: &Location) -> Result<()> {
        let account = self.account.get(|| Account::find(&self.http, WRITE, location))?;
        account.sign(&mut signing::unsent(), WRITE, location)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        place_of(WRITE, location)?;
        let first = read_part(location, body, PART_BYTES, 0, put)?;
        let size_bytes = first.len() as u64;
        match first.len() < PART_BYTES {
            true => {
                let headers = [("x-ms-blob-type", "BlockBlob")];
                self.put_whole(location, (&[], &headers), &first, size_bytes, put)
            }
            false => self.put_blocks(location, first, body, put),
        }
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        bucket::list(self, listing)
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let place = place_of(REMOVE, location)?;
        let question = Question { method: "DELETE", place, query: &[], headers: &[], body: None };
        web::whole(self, REMOVE, location, self.send(REMOVE, location, &question)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_names() {
        let xml = br#"<?xml version="1.0"?><EnumerationResults ContainerName="c"><Prefix>p</Prefix><Blobs>
            <Blob><Name>a b&amp;c</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>
            <Blob><Name>d</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>
            <BlobPrefix><Name>e/</Name></BlobPrefix></Blobs><NextMarker>n</NextMarker></EnumerationResults>"#;
        let expect = Page {
            keys: vec!["a b&c".into()],
            prefixes: vec!["e/".into()],
            next: Some("n".into()),
            ..Page::default()
        };
        assert_eq!(page_of(xml), expect);
        let last = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(page_of(last), Page::default());
    }
}
