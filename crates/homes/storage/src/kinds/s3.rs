//! `s3` homes: buckets of Amazon S3 and of the many servers that speak its protocol.
//!
//! An object appears with one request, all of it at once: a small object's own, or the last one of an upload in parts. An
//! upload that fails is ended, and while it is under way it is noted ([`Fence::part_begins`](crate::Fence)) as
//! `s3://BUCKET/KEY?uploadId=ID`, so that whoever reads the note can end it. Between its beginning and the note lies the time
//! of one answer. What a writer leaves that is killed in it, the next large write to the same key ends, or
//! [`end_unfinished`](crate::Home::end_unfinished).
//!
//! A write takes several requests and its source cannot be read twice, so here each request is tried again by itself.
//!
//! The protocol has no way to refuse one particular upload later: a writer that is stopped between the last question to its
//! fence and its last request is kept out by the lease alone (`fences: false`).
//!
//! Not here: credentials and endpoint (`account`), reading ([`crate::web`]), names and
//! listings ([`crate::kinds::bucket`]).

mod account;
mod answer;

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::kinds::bucket::signing::Accounts;
use crate::kinds::bucket::{self, PART_BYTES, Page, Pages, bucket_and_key, push_query, read_part};
use crate::put::given_up;
use crate::version::Version;
use crate::web::{self, Asker};
use crate::wrappers::retry::Backoff;
use crate::{
    Capabilities, Home, HomesConfig, HttpConfig, Listed, Listing, Location, Opened, Put, RetryConfig, Stat,
};
use account::Account;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ureq::http::{HeaderMap, Request, Response};
use ureq::{Agent, Body};

const SCHEME: &str = "s3";

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";

/// The protocol allows 10,000 parts, so the parts of very large objects grow.
const PARTS_OF_ONE_SIZE: u32 = 1000;

const CAPABILITIES: Capabilities = Capabilities {
    name: "s3",
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

/// The kind of objects in buckets.
pub(crate) struct Buckets;

impl Kind for Buckets {
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
        bucket::canonical(url, SCHEME, "write s3://BUCKET/KEY", out)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(S3Home::new(config.http.clone(), config.retries.clone())?))
    }
}

/// Objects in buckets, by the credentials and the endpoint of the environment.
pub struct S3Home {
    http: HttpConfig,
    agent: Agent,
    account: Accounts<Account>,
    backoff: Backoff,
    /// The regions of buckets that are not in the account's region, as the server has said.
    regions: Mutex<BTreeMap<String, String>>,
}

/// What is asked of a bucket.
struct Question<'a> {
    method: &'static str,
    /// The bucket and the percent-encoded key.
    place: (&'a str, &'a str),
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'static str, &'a str)],
    body: &'a [u8],
}

impl S3Home {
    /// Opens no connection, and looks for no credentials yet. Errors: the authority file of `http` cannot be read.
    pub fn new(mut http: HttpConfig, retries: RetryConfig) -> Result<S3Home> {
        let bundle = std::env::var_os("AWS_CA_BUNDLE").map(std::path::PathBuf::from);
        if let Some(file) = bundle.filter(|file| file.is_file()) {
            http.ca_file = Some(file);
        }
        // A redirect goes to another region, where the same signature is wrong.
        let config = web::agent_config(&http)?.max_redirects(0).max_redirects_will_error(false);
        Ok(S3Home {
            agent: config.build().into(),
            http,
            account: Accounts::default(),
            backoff: Backoff::new(retries),
            regions: Mutex::default(),
        })
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one signed request, and once more if the bucket turns out to be in another region, or if renewed credentials are
    /// there.
    fn send(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        self.account
            .ask(|| Account::find(&self.http), |account| self.send_as(account, operation, location, question))
    }

    fn send_as(
        &self,
        account: &Account,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        let bucket = question.place.0;
        let mut has_moved = false;
        loop {
            let region = self.regions().get(bucket).cloned().unwrap_or_else(|| account.region.clone());
            let builder = Request::builder().method(question.method).uri(url_of(
                account.endpoint.as_deref(),
                &region,
                question,
            ));
            let body = matches!(question.method, "PUT" | "POST").then_some(question.body);
            let request = (builder, question.headers);
            let answer = web::send(&self.agent, operation, location, request, body, |request| {
                account.sign(&region, request, operation, location)
            })?;
            let other = web::header(answer.headers(), "x-amz-bucket-region").filter(|other| *other != region);
            match (answer.status().as_u16(), other) {
                (301 | 307 | 400, Some(other)) if account.endpoint.is_none() && !has_moved => {
                    self.regions().insert(bucket.to_owned(), other.to_owned());
                    has_moved = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// [`S3Home::send`], where every answer but a success is an error.
    fn ask_for(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        web::whole(self, operation, location, self.send(operation, location, question)?)
    }

    /// The object's stat after a write whose answer named this tag.
    fn stat_written(&self, location: &Location, size_bytes: u64, etag: Option<&str>) -> Result<Stat> {
        match etag.filter(|etag| !etag.is_empty()) {
            Some(etag) => {
                let etag = format!("\"{}\"", etag.trim_matches('"'));
                Ok(Stat { size_bytes, version: Version::of_http(size_bytes, Some(&etag), None, None) })
            }
            None => self.backoff.run(|_| self.stat(location)),
        }
    }

    fn put_small(&self, location: &Location, body: &[u8], put: &Put) -> Result<Stat> {
        put.fence.may_appear().map_err(|why| given_up(WRITE, location, why))?;
        let place = place_of(WRITE, location)?;
        let time = web::text_of_time(put.modified_ns);
        let noted = noting(time.as_ref());
        let question = Question { method: "PUT", place, query: &[], headers: &noted, body };
        let (headers, _) = self.backoff.run(|_| self.ask_for(WRITE, location, &question))?;
        self.stat_written(location, body.len() as u64, web::header(&headers, "etag"))
    }

    /// Uploads `first`, which is a whole part, and what follows it in `body`.
    fn put_large(&self, location: &Location, first: Vec<u8>, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let place = place_of(WRITE, location)?;
        // What a killed writer of this object left would stay, and be paid for. Not everybody may list uploads.
        let _ = self.end_uploads(location, |key, wanted| key == wanted);
        let time = web::text_of_time(put.modified_ns);
        let noted = noting(time.as_ref());
        let begin = Question { method: "POST", place, query: &[("uploads", "")], headers: &noted, body: &[] };
        let (_, xml) = self.backoff.run(|_| self.ask_for(WRITE, location, &begin))?;
        let Some(id) = answer::text_at(&xml, "UploadId") else {
            let reason = "the server gave no name to the upload";
            return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
        };
        let note = note_of(location, &id);
        put.fence.part_begins(Path::new(&note));
        let written = self.put_parts(location, &id, first, body, put);
        let is_gone = written.is_ok() || self.end_upload(location, &id).is_ok();
        if is_gone {
            put.fence.part_ended(Path::new(&note));
        }
        written
    }

    fn put_parts(
        &self,
        location: &Location,
        id: &str,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let place = place_of(WRITE, location)?;
        let tags: Mutex<BTreeMap<u32, String>> = Mutex::default();
        let size_bytes = bucket::send_parts(location, first, body, put, part_bytes, &|number, bytes| {
            let text = number.to_string();
            let query = [("partNumber", text.as_str()), ("uploadId", id)];
            let question = Question { method: "PUT", place, query: &query, headers: &[], body: bytes };
            let (headers, _) = self.backoff.run(|_| self.ask_for(WRITE, location, &question))?;
            let tag = web::header(&headers, "etag").unwrap_or_default().to_owned();
            tags.lock().unwrap_or_else(PoisonError::into_inner).insert(number, tag);
            Ok(())
        })?;
        put.fence.may_appear().map_err(|why| given_up(WRITE, location, why))?;
        let tags = tags.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut xml = String::from("<CompleteMultipartUpload>");
        for (number, tag) in tags {
            let tag = tag.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
            xml.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"));
        }
        xml.push_str("</CompleteMultipartUpload>");
        let query = [("uploadId", id)];
        let question = Question { method: "POST", place, query: &query, headers: &[], body: xml.as_bytes() };
        let (_, xml) = self.backoff.run(|n_tries| match self.complete(location, &question) {
            // The try before did it, and only its answer was lost.
            Err(error) if n_tries > 1 && error.kind() == ErrorKind::NotFound => Ok(Default::default()),
            other => other,
        })?;
        self.stat_written(location, size_bytes, answer::text_at(&xml, "ETag").as_deref())
    }

    /// The end of an upload. The server may find out that it failed after it began its answer with a success.
    fn complete(&self, location: &Location, question: &Question<'_>) -> Result<(HeaderMap, Vec<u8>)> {
        let (headers, xml) = self.ask_for(WRITE, location, question)?;
        match answer::text_at(&xml, "Code") {
            None => Ok((headers, xml)),
            Some(code) => {
                let reason = format!("the server could not join the parts ({code})");
                Err(Error::new(ErrorKind::Http(500), Status::Temporary, WRITE, location, reason))
            }
        }
    }

    /// Ends all uploads to keys that `is_meant`, which is asked with the key and that of `location`. Gives their number.
    fn end_uploads(&self, location: &Location, is_meant: impl Fn(&str, &str) -> bool) -> Result<u64> {
        let (bucket, key) = bucket_and_key(location);
        let wanted = percent_decode(key).unwrap_or_default();
        let (mut n_ended, mut after) = (0, None::<(String, String)>);
        loop {
            let mut query = vec![("uploads", ""), ("prefix", wanted.as_str())];
            if let Some((key, id)) = &after {
                query.extend([("key-marker", key.as_str()), ("upload-id-marker", id.as_str())]);
            }
            let question =
                Question { method: "GET", place: (bucket, ""), query: &query, headers: &[], body: &[] };
            let (_, xml) = self.backoff.run(|_| self.ask_for(LIST, location, &question))?;
            let answer::Uploads { uploads, next } = answer::uploads(&xml);
            for (key, id) in uploads.iter().filter(|(key, _)| is_meant(key, &wanted)) {
                let mut text = format!("{SCHEME}://{bucket}/");
                push_encoded(&mut text, key, is_path_mark, false);
                self.end_upload(&text.parse()?, id)?;
                n_ended += 1;
            }
            match next {
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                _ => return Ok(n_ended),
            }
        }
    }

    /// Removes the parts of an upload. An upload that is not there is no error.
    fn end_upload(&self, location: &Location, id: &str) -> Result<()> {
        let place = place_of(REMOVE, location)?;
        let query = [("uploadId", id)];
        let question = Question { method: "DELETE", place, query: &query, headers: &[], body: &[] };
        match self.backoff.run(|_| self.ask_for(REMOVE, location, &question)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The header that notes the time of a file.
fn noting(time: Option<&String>) -> Vec<(&'static str, &str)> {
    time.map(|time| ("x-amz-meta-mtime", time.as_str())).into_iter().collect()
}

impl Pages for S3Home {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn page(&self, directory: &Location, prefix: &str, delimiter: &str, token: &str) -> Result<Page> {
        let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("prefix", prefix)];
        if !delimiter.is_empty() {
            query.push(("delimiter", delimiter));
        }
        if !token.is_empty() {
            query.push(("continuation-token", token));
        }
        let place = (bucket_and_key(directory).0, "");
        let question = Question { method: "GET", place, query: &query, headers: &[], body: &[] };
        let (_, xml) = self.backoff.run(|_| self.ask_for(LIST, directory, &question))?;
        Ok(answer::page(&xml))
    }
}

fn part_bytes(number: u32) -> usize {
    PART_BYTES << ((number.saturating_sub(1)) / PARTS_OF_ONE_SIZE).min(6)
}

/// How an upload is noted while it is under way.
fn note_of(location: &Location, id: &str) -> String {
    let mut note = format!("{location}?uploadId=");
    push_encoded(&mut note, id, |_| false, false);
    note
}

/// The location and the name of an upload, from its note.
fn upload_of(note: &Path) -> Option<(Location, String)> {
    let (location, id) = note.to_str()?.rsplit_once("?uploadId=")?;
    Some((location.parse().ok().filter(|l: &Location| l.scheme() == SCHEME)?, percent_decode(id)?))
}

/// The bucket and the percent-encoded key of an object.
fn place_of<'a>(operation: &'static str, location: &'a Location) -> Result<(&'a str, &'a str)> {
    bucket::place_of(operation, location, SCHEME)
}

/// The URL of a question. Amazon's own servers know a bucket by the name of the host, except one with a dot in its name, which
/// no certificate covers; all others know it by the path.
fn url_of(endpoint: Option<&str>, region: &str, question: &Question<'_>) -> String {
    let (bucket, key) = question.place;
    let mut url = match endpoint {
        Some(endpoint) => format!("{endpoint}/{bucket}/{key}"),
        None if bucket.contains('.') => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
        None => format!("https://{bucket}.s3.{region}.amazonaws.com/{key}"),
    };
    push_query(&mut url, question.query);
    url
}

impl Asker for S3Home {
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
        self.send(operation, location, &Question { method, place, query: &[], headers: &headers, body: &[] })
    }

    /// By the code in the body, which says more than the status.
    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        let by_status = web::refusal_of(operation, location, &answer);
        let http = answer.status().as_u16();
        let xml = web::head_of(answer);
        let Some(code) = answer::text_at(&xml, "Code").filter(|code| !code.is_empty()) else {
            return by_status;
        };
        let message = answer::text_at(&xml, "Message").unwrap_or_default();
        let bucket = bucket_and_key(location).0;
        let account = self.account.found();
        let profile = account.as_ref().map_or("default", |account| account.profile());
        let (kind, status, reason) = match code.as_str() {
            "NoSuchKey" => (ErrorKind::NotFound, Status::Permanent, "there is no such object".into()),
            "NoSuchUpload" => (ErrorKind::NotFound, Status::Permanent, "there is no such upload".into()),
            "NoSuchBucket" => {
                let endpoint = account.as_ref().and_then(|account| account.endpoint.as_deref());
                let reason = format!("there is no bucket `{bucket}` at {}", endpoint.unwrap_or("Amazon S3"));
                (ErrorKind::NotFound, Status::Permanent, reason)
            }
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "InvalidClientTokenId" => {
                let reason = format!(
                    "the server does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY, or the profile `{profile}` in ~/.aws/credentials"
                );
                (ErrorKind::PermissionDenied, self.account.status_of_refusal(), reason)
            }
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                let reason =
                    format!("the credentials have expired ({code}); get new ones, as by `aws sso login`");
                (ErrorKind::PermissionDenied, self.account.status_of_refusal(), reason)
            }
            "RequestTimeTooSkewed" => {
                let reason =
                    "the clocks of this machine and of the server differ by more than the server allows";
                (ErrorKind::PermissionDenied, Status::Permanent, reason.into())
            }
            "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => {
                let reason = format!(
                    "access is denied ({code}): these credentials may not {operation} it, or it is not there and they may not \
                     list the bucket"
                );
                (ErrorKind::PermissionDenied, Status::Permanent, reason)
            }
            "SlowDown" | "RequestLimitExceeded" | "ThrottlingException" => {
                let reason = format!("the server asks for fewer requests ({code})");
                (ErrorKind::Http(http), Status::Temporary, reason)
            }
            "RequestTimeout" | "InternalError" | "OperationAborted" => {
                (ErrorKind::Http(http), Status::Temporary, format!("the server answered {http} ({code})"))
            }
            _ => {
                let colon = if message.is_empty() { "" } else { ": " };
                let reason = format!("the server answered {http} ({code}{colon}{message})");
                (by_status.kind(), by_status.status(), reason)
            }
        };
        Error::new(kind, status, operation, location, reason).with_retry_after(by_status.retry_after())
    }

    fn explains_in_bodies(&self) -> bool {
        true
    }
}

impl Home for S3Home {
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
        self.account.get(|| Account::find(&self.http))?.require_credentials(WRITE, location)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        place_of(WRITE, location)?;
        let first = read_part(location, body, PART_BYTES, 0, put)?;
        match first.len() < PART_BYTES {
            true => self.put_small(location, &first, put),
            false => self.put_large(location, first, body, put),
        }
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        match upload_of(part) {
            Some((location, id)) => self.end_upload(&location, &id),
            None => Ok(()),
        }
    }

    fn end_unfinished(&self, place: &Location) -> Result<u64> {
        self.end_uploads(place, |key, wanted| {
            let below = key.strip_prefix(wanted);
            below.is_some_and(|rest| {
                wanted.is_empty() || wanted.ends_with('/') || rest.is_empty() || rest.starts_with('/')
            })
        })
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        bucket::list(self, listing)
    }

    /// Servers say nothing of an object that was not there, so they are asked first.
    fn remove(&self, location: &Location) -> Result<()> {
        let place = place_of(REMOVE, location)?;
        web::stat(self, location)?;
        let question = Question { method: "DELETE", place, query: &[], headers: &[], body: &[] };
        self.ask_for(REMOVE, location, &question).map(drop)
    }
}
