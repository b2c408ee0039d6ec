//! `gs` homes: buckets of Google Cloud Storage, by its JSON interface.
//!
//! A location is `gs://BUCKET/NAME`. The version of an object is its generation.
//!
//! An object appears with one request, all of it at once: a small object's own, or the last piece of an upload that goes on where
//! it broke. An upload that fails is ended. One whose writer was killed shows nothing to anybody, and Google forgets it after a
//! week; it is not noted on disk, because its URL lets whoever has it write.
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
use crate::put::given_up;
use crate::version::Version;
use crate::web::{self, Asker};
use crate::wrappers::retry::Backoff;
use crate::{Capabilities, Home, HomesConfig, HttpConfig, Listed, Listing, Location, Opened, Put, Stat};
use account::Account;
use serde_json::Value;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

const SCHEME: &str = "gs";

const STAT: &str = "stat";
const READ: &str = "read";
const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";

const CAPABILITIES: Capabilities = Capabilities {
    name: "gs",
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

/// The kind of objects in Google's buckets.
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
        bucket::canonical(url, SCHEME, "write gs://BUCKET/NAME", out)
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        // An answer of 308 says how much of an upload has come, and leads nowhere.
        let agent = web::agent_config(&config.http)?.max_redirects(0).max_redirects_will_error(false);
        Ok(Arc::new(GsHome {
            agent: agent.build().into(),
            http: config.http.clone(),
            account: Accounts::default(),
            backoff: Backoff::new(config.retries.clone()),
        }))
    }
}

/// Objects in Google's buckets, by the credentials of the environment.
struct GsHome {
    http: HttpConfig,
    agent: Agent,
    account: Accounts<Account>,
    backoff: Backoff,
}

/// What is asked of a bucket.
struct Question<'a> {
    method: &'static str,
    url: String,
    headers: &'a [(&'static str, &'a str)],
    /// `None`: the method has no body.
    body: Option<&'a [u8]>,
}

impl GsHome {
    fn account(&self) -> Result<Arc<Account>> {
        self.account.get(|| Account::find(&self.http))
    }

    /// The URL of an object, or of a bucket's objects for an empty key.
    fn url_of(&self, (bucket, key): (&str, &str), query: &[(&str, &str)]) -> Result<String> {
        let slash = if key.is_empty() { "" } else { "/" };
        // Here a `/` in a name is no sign of the URL. Everything else is escaped already.
        let key = key.replace('/', "%2F");
        let mut url = format!("{}/storage/v1/b/{bucket}/o{slash}{key}", self.account()?.endpoint);
        push_query(&mut url, query);
        Ok(url)
    }

    /// Sends one signed request, and once more if renewed credentials are there.
    fn send(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        let send = |account: &Account| {
            let request = (Request::builder().method(question.method).uri(&question.url), question.headers);
            web::send(&self.agent, operation, location, request, question.body, |request| {
                account.sign(request, operation, location)
            })
        };
        self.account.ask(|| Account::find(&self.http), send)
    }

    /// [`GsHome::send`], where every answer but a success is an error, and a success is a value of JSON.
    fn ask_for(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Value> {
        let answer = self.send(operation, location, question)?;
        let (_, json) = web::whole(self, operation, location, answer)?;
        read_json(operation, location, &json)
    }

    fn upload_url(&self, location: &Location, kind: &str) -> Result<String> {
        let (bucket, key) = place_of(WRITE, location)?;
        Ok(format!(
            "{}/upload/storage/v1/b/{bucket}/o?uploadType={kind}&name={}",
            self.account()?.endpoint,
            key.replace('/', "%2F")
        ))
    }

    fn put_small(&self, location: &Location, body: &[u8], put: &Put) -> Result<Stat> {
        put.fence.may_appear().map_err(|why| given_up(WRITE, location, why))?;
        let headers = [("content-type", "application/octet-stream")];
        let question = Question {
            method: "POST",
            url: self.upload_url(location, "media")?,
            headers: &headers,
            body: Some(body),
        };
        stat_in(WRITE, location, &self.backoff.run(|_| self.ask_for(WRITE, location, &question))?)
    }

    /// Uploads `first`, which is a whole piece, and what follows it in `body`.
    fn put_large(&self, location: &Location, first: Vec<u8>, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        // By this one sees later that an answer was lost, and not the upload.
        let before = match self.backoff.run(|_| self.stat(location)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let headers = [("x-upload-content-type", "application/octet-stream")];
        let begin = Question {
            method: "POST",
            url: self.upload_url(location, "resumable")?,
            headers: &headers,
            body: Some(&[]),
        };
        let (headers, _) =
            self.backoff.run(|_| web::whole(self, WRITE, location, self.send(WRITE, location, &begin)?))?;
        let Some(session) = web::header(&headers, "location").map(str::to_owned) else {
            let reason = "the server gave no URL for the upload";
            return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
        };
        let written = self.put_pieces(location, (&session, before.as_ref()), first, body, put);
        if written.is_err() {
            // Google forgets it anyway, after a week.
            let end = Question { method: "DELETE", url: session, headers: &[], body: None };
            let _ = self.send(WRITE, location, &end);
        }
        written
    }

    /// * `before`: the object that was there when the upload began.
    fn put_pieces(
        &self,
        location: &Location,
        (session, before): (&str, Option<&Stat>),
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let (mut piece, mut at) = (first, 0u64);
        loop {
            // The last piece is the one that says how long the whole is, so it has to be known as such when it is sent.
            let next = match piece.len() < PART_BYTES {
                true => Vec::new(),
                false => read_part(location, body, PART_BYTES, at + piece.len() as u64, put)?,
            };
            let end = at + piece.len() as u64;
            let total = next.is_empty().then_some(end);
            if total.is_some() {
                put.fence.may_appear().map_err(|why| given_up(WRITE, location, why))?;
            }
            match (self.put_piece(location, session, &piece, at, total), total) {
                (Ok(Some(stat)), Some(_)) => return Ok(stat),
                (Ok(None), None) => {}
                (Ok(_), _) => {
                    let reason = "the server has another view of how much of the upload has come";
                    return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
                }
                // The upload is over. Either a try did it whose answer was lost, or the server has given it up.
                (Err(error), Some(size_bytes)) if matches!(error.kind(), ErrorKind::NotFound) => {
                    return match self.backoff.run(|_| self.stat(location)) {
                        Ok(stat) if stat.size_bytes == size_bytes && Some(&stat) != before => Ok(stat),
                        _ => Err(error.with_status(Status::Temporary)),
                    };
                }
                (Err(error), _) => return Err(error),
            }
            (piece, at) = (next, end);
        }
    }

    /// Sends the bytes from `at` on. Bytes that have come before are skipped by the server. Gives the object where `total` is known.
    fn put_piece(
        &self,
        location: &Location,
        session: &str,
        piece: &[u8],
        at: u64,
        total: Option<u64>,
    ) -> Result<Option<Stat>> {
        let end = at + piece.len() as u64;
        let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
        let mut came = at;
        loop {
            let answer = self.backoff.run(|_| {
                let range = format!("bytes {came}-{}/{total}", end - 1);
                let headers = [("content-range", range.as_str())];
                // A piece is far smaller than any address space.
                let body = Some(&piece[(came - at) as usize..]);
                let question = Question { method: "PUT", url: session.to_owned(), headers: &headers, body };
                let answer = self.send(WRITE, location, &question)?;
                match answer.status().as_u16() {
                    308 => Ok(answer),
                    _ if answer.status().is_success() => Ok(answer),
                    _ => Err(self.refusal(WRITE, location, answer)),
                }
            })?;
            if answer.status() != 308 {
                let (_, json) = web::whole(self, WRITE, location, answer)?;
                return stat_in(WRITE, location, &read_json(WRITE, location, &json)?).map(Some);
            }
            let told = web::header(answer.headers(), "range").and_then(|range| range.rsplit('-').next());
            let told = told.and_then(|last| last.parse::<u64>().ok()).map_or(0, |last| last + 1);
            match told {
                told if told >= end => return Ok(None),
                // A part of the piece has come.
                told if told > came => came = told,
                _ => {
                    let reason = format!("the server took {told} B of the upload in place of {end} B");
                    return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
                }
            }
        }
    }
}

fn read_json(operation: &'static str, location: &Location, json: &[u8]) -> Result<Value> {
    serde_json::from_slice(json).map_err(|error| {
        let reason = format!("the server's answer is no JSON ({error})");
        Error::new(ErrorKind::Io, Status::Temporary, operation, location, reason)
    })
}

/// Size and generation of an object, from the server's description of it.
fn stat_in(operation: &'static str, location: &Location, object: &Value) -> Result<Stat> {
    let size_bytes = object["size"].as_str().and_then(|size| size.parse().ok());
    match (size_bytes, object["generation"].as_str()) {
        (Some(size_bytes), Some(generation)) => {
            Ok(Stat { size_bytes, version: Version::of_generation(size_bytes, generation, None) })
        }
        _ => {
            let reason = "the server told neither size nor generation";
            Err(Error::new(ErrorKind::Io, Status::Temporary, operation, location, reason))
        }
    }
}

/// The bucket and the percent-encoded name of an object.
fn place_of<'a>(operation: &'static str, location: &'a Location) -> Result<(&'a str, &'a str)> {
    bucket::place_of(operation, location, SCHEME)
}

impl Pages for GsHome {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn page(&self, directory: &Location, prefix: &str, delimiter: &str, token: &str) -> Result<Page> {
        let mut query = vec![("fields", "items(name,size),prefixes,nextPageToken")];
        let more = [("prefix", prefix), ("delimiter", delimiter), ("pageToken", token)];
        query.extend(more.into_iter().filter(|(_, value)| !value.is_empty()));
        let url = self.url_of((bucket_and_key(directory).0, ""), &query)?;
        let question = Question { method: "GET", url, headers: &[], body: None };
        let json = self.backoff.run(|_| self.ask_for(LIST, directory, &question))?;
        Ok(page_of(&json))
    }
}

fn page_of(json: &Value) -> Page {
    let all = |name: &str| json[name].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut page = Page { prefixes: all("prefixes").filter_map(text).collect(), ..Page::default() };
    for item in all("items") {
        if let Some(name) = text(&item["name"]) {
            page.add(name, item["size"].as_str().and_then(|size| size.parse().ok()));
        }
    }
    page.next = text(&json["nextPageToken"]);
    page
}

impl Asker for GsHome {
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>> {
        let url = self.url_of(place_of(operation, location)?, &[("alt", "media")])?;
        // Without it Google unpacks objects that are marked as packed, and their sizes are others then.
        let mut headers = vec![("accept-encoding", "gzip")];
        let range = range.map(web::range_text);
        headers.extend(range.iter().map(|range| ("range", range.as_str())));
        let method = if is_head { "HEAD" } else { "GET" };
        self.send(operation, location, &Question { method, url, headers: &headers, body: None })
    }

    /// By what the body says, where the status does not say it.
    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        let by_status = web::refusal_of(operation, location, &answer);
        let http = answer.status().as_u16();
        let said = String::from_utf8_lossy(&web::head_of(answer)).into_owned();
        let bucket = bucket_and_key(location).0;
        let reason = match http {
            404 if said.contains("bucket does not exist") || operation == LIST => {
                format!("there is no bucket `{bucket}` at Google Cloud Storage")
            }
            404 => "there is no such object".to_owned(),
            401 => "the server does not accept the credentials (401): they are wrong or have expired; get new ones, as by \
                    `gcloud auth application-default login`"
                .to_owned(),
            403 => format!(
                "access is denied (403): these credentials may not {operation} it, or it is not there and they may not list \
                 the bucket"
            ),
            429 => "the server asks for fewer requests (429)".to_owned(),
            _ => return by_status,
        };
        let status = if http == 401 { self.account.status_of_refusal() } else { by_status.status() };
        Error::new(by_status.kind(), status, operation, location, reason)
            .with_retry_after(by_status.retry_after())
    }
}

impl Home for GsHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        let url = self.url_of(place_of(STAT, location)?, &[("fields", "size,generation")])?;
        let question = Question { method: "GET", url, headers: &[], body: None };
        stat_in(STAT, location, &self.ask_for(STAT, location, &question)?)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        place_of(READ, location)?;
        web::open(self, location, range)
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        web::open_first(self, location, most_bytes)
    }

    fn may_write(&self, location: &Location) -> Result<()> {
        self.account()?.sign(&mut signing::unsent(), WRITE, location)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        place_of(WRITE, location)?;
        let first = read_part(location, body, PART_BYTES, 0, put)?;
        match first.len() < PART_BYTES {
            true => self.put_small(location, &first, put),
            false => self.put_large(location, first, body, put),
        }
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        bucket::list(self, listing)
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let url = self.url_of(place_of(REMOVE, location)?, &[])?;
        let question = Question { method: "DELETE", url, headers: &[], body: None };
        web::whole(self, REMOVE, location, self.send(REMOVE, location, &question)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_names() {
        let json = serde_json::json!({
            "items": [{"name": "a b"}, {"size": "1"}], "prefixes": ["e/"], "nextPageToken": "n"
        });
        let expect = Page {
            keys: vec!["a b".into()],
            prefixes: vec!["e/".into()],
            next: Some("n".into()),
            ..Page::default()
        };
        assert_eq!(page_of(&json), expect);
        assert_eq!(page_of(&serde_json::json!({})), Page::default());
    }
}
