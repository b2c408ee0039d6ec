//! `gs` homes: buckets of Google Cloud Storage, by its JSON interface.
//!
//! A location is `gs://BUCKET/NAME`. The version of an object is its generation.
//!
//! A large object is an upload that goes on where it broke, and appears with its last piece. An upload that fails is ended. One
//! whose writer was killed shows nothing to anybody, and Google forgets it after a week; it is not noted on disk, because its URL
//! lets whoever has it write.
//!
//! Not here: credentials and endpoint (`account`), and what all buckets share ([`crate::kinds::bucket`]).

mod account;

use crate::canonical::percent_decode;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::bucket::signing::Account as _;
use crate::kinds::bucket::{
    Ask, BucketHome, Cloud, LIST, Meaning, PART_BYTES, Page, Question, STAT, To, WRITE, bucket_and_key,
    capabilities, place_of, read_part, without_redirects,
};
use crate::version::Version;
use crate::web::{self, Asker};
use crate::{Capabilities, Home, HttpConfig, Location, Put, Stat};
use account::Account;
use serde_json::Value;
use std::io::Read;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Objects in Google's buckets, by the credentials of the environment.
pub(crate) struct Buckets;

impl Cloud for Buckets {
    const SCHEMES: &'static [&'static str; 1] = &["gs"];
    const HINT: &'static str = "write gs://BUCKET/NAME";
    const CAPABILITIES: &'static Capabilities = &capabilities("gs");
    const READ_QUERY: &'static [(&'static str, &'static str)] = &[("alt", "media")];
    /// Without it Google unpacks objects that are marked as packed, and their sizes are others then.
    const READ_HEADERS: &'static [(&'static str, &'static str)] = &[("accept-encoding", "gzip")];
    const LIST_QUERY: &'static [(&'static str, &'static str)] =
        &[("fields", "items(name,size),prefixes,nextPageToken")];
    const LIST_TOKEN: &'static str = "pageToken";

    type Account = Account;
    type Learned = ();

    /// An answer of 308 says how much of an upload has come, and leads nowhere.
    fn agent(http: &mut HttpConfig) -> Agent {
        without_redirects(http)
    }

    fn send(home: &BucketHome<Self>, account: &Account, ask: &Ask<'_>) -> Result<Response<Body>> {
        let is_upload = ask.question.query.iter().any(|(name, _)| *name == UPLOAD);
        let door = if is_upload { "/upload/storage" } else { "/storage" };
        let url = match ask.question.to {
            To::Place(bucket, "") => format!("{}{door}/v1/b/{bucket}/o", account.endpoint),
            // Here a `/` in a name is no sign of the URL. Everything else is escaped already.
            To::Place(bucket, key) => {
                format!("{}{door}/v1/b/{bucket}/o/{}", account.endpoint, key.replace('/', "%2F"))
            }
            To::Url(url) => url.to_owned(),
        };
        ask.send(
            &home.agent,
            url,
            |request| request,
            |request| account.sign(request, ask.operation, ask.location),
        )
    }

    /// By what the body says, where the status does not say it.
    fn meaning(
        _home: &BucketHome<Self>,
        operation: &'static str,
        location: &Location,
        answer: Response<Body>,
    ) -> Option<(Meaning, String)> {
        let http = answer.status().as_u16();
        let said = String::from_utf8_lossy(&web::head_of(answer)).into_owned();
        Some(match http {
            404 if said.contains("bucket does not exist") || operation == LIST => {
                let bucket = bucket_and_key(location).0;
                (Meaning::NotFound, format!("there is no bucket `{bucket}` at Google Cloud Storage"))
            }
            404 => (Meaning::NotFound, "there is no such object".to_owned()),
            401 => {
                let reason = "the server does not accept the credentials (401): they are wrong or have expired; get new ones, as \
                              by `gcloud auth application-default login`";
                (Meaning::Credentials, reason.to_owned())
            }
            403 => {
                let reason = format!(
                    "access is denied (403): these credentials may not {operation} it, or it is not there and they may not list \
                     the bucket"
                );
                (Meaning::Denied, reason)
            }
            429 => (Meaning::Passing, "the server asks for fewer requests (429)".to_owned()),
            _ => return None,
        })
    }

    fn page(directory: &Location, body: &[u8]) -> Result<Page> {
        Ok(page_of(&read_json(LIST, directory, body)?))
    }

    fn stat(home: &BucketHome<Self>, location: &Location) -> Result<Stat> {
        let (to, query) = (place_of::<Self>(STAT, location)?, [("fields", "size,generation")]);
        let question = Question { method: "GET", to, query: &query, headers: &[], body: None };
        stat_in(STAT, location, &home.ask_once(STAT, location, &question)?.1)
    }

    fn put_small(home: &BucketHome<Self>, location: &Location, body: &[u8], put: &Put) -> Result<Stat> {
        put.may_appear(location)?;
        let (to, name) = upload_of(location)?;
        let query = [(UPLOAD, "media"), ("name", name.as_str())];
        let headers = [("content-type", "application/octet-stream")];
        let question = Question { method: "POST", to, query: &query, headers: &headers, body: Some(body) };
        home.backoff.run(|_| stat_in(WRITE, location, &home.ask_once(WRITE, location, &question)?.1))
    }

    fn put_large(
        home: &BucketHome<Self>,
        location: &Location,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        // By this one sees later that an answer was lost, and not the upload.
        let before = match home.backoff.run(|_| home.stat(location)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let (to, name) = upload_of(location)?;
        let query = [(UPLOAD, "resumable"), ("name", name.as_str())];
        let headers = [("x-upload-content-type", "application/octet-stream")];
        let begin = Question { method: "POST", to, query: &query, headers: &headers, body: Some(&[]) };
        let (headers, _) = home.ask(WRITE, location, &begin)?;
        let Some(session) = web::header(&headers, "location").map(str::to_owned) else {
            let reason = "the server gave no URL for the upload";
            return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
        };
        let written = home.put_pieces(location, (&session, before.as_ref()), first, body, put);
        if written.is_err() {
            // Google forgets it anyway, after a week.
            let to = To::Url(&session);
            let end = Question { method: "DELETE", to, query: &[], headers: &[], body: None };
            let _ = home.send(WRITE, location, &end);
        }
        written
    }
}

/// What a question that begins an upload says first.
const UPLOAD: &str = "uploadType";

/// The bucket of an object, and the object's name as it is.
fn upload_of(location: &Location) -> Result<(To<'_>, String)> {
    place_of::<Buckets>(WRITE, location)?;
    let (bucket, key) = bucket_and_key(location);
    Ok((To::Place(bucket, ""), percent_decode(key).unwrap_or_default()))
}

impl BucketHome<Buckets> {
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
                put.may_appear(location)?;
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
                let question =
                    Question { method: "PUT", to: To::Url(session), query: &[], headers: &headers, body };
                let answer = self.send(WRITE, location, &question)?;
                match answer.status().as_u16() {
                    308 => Ok(answer),
                    _ if answer.status().is_success() => Ok(answer),
                    _ => Err(self.refusal(WRITE, location, answer)),
                }
            })?;
            if answer.status() != 308 {
                let (_, json) = web::whole(self, WRITE, location, answer)?;
                return stat_in(WRITE, location, &json).map(Some);
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
fn stat_in(operation: &'static str, location: &Location, json: &[u8]) -> Result<Stat> {
    let object = read_json(operation, location, json)?;
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
