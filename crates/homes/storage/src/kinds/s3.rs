//! `s3` homes: buckets of Amazon S3 and of the many servers that speak its protocol.
//!
//! An upload in parts that fails is ended, and while it is under way it is noted ([`Fence::part_begins`](crate::Fence)) as
//! `s3://BUCKET/KEY?uploadId=ID`, so that whoever reads the note can end it. Between its beginning and the note lies the time
//! of one answer. What a writer leaves that is killed in it, the next large write to the same key ends, or
//! [`end_unfinished`](crate::Home::end_unfinished).
//!
//! The protocol has no way to refuse one particular upload later: a writer that is stopped between the last question to its
//! fence and its last request is kept out by the lease alone (`fences: false`).
//!
//! Not here: credentials and endpoint (`account`), and what all buckets share ([`crate::kinds::bucket`]).

mod account;
mod answer;

use crate::canonical::{is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::bucket::{
    Ask, BucketHome, Cloud, LIST, Meaning, Page, Question, REMOVE, To, WRITE, bucket_and_key, capabilities,
    place_of, send_parts, without_redirects,
};
use crate::version::Version;
use crate::web;
use crate::{Capabilities, Home, HttpConfig, Location, Put, Stat};
use account::Account;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

const SCHEME: &str = "s3";

/// The protocol allows 10,000 parts, so the parts of very large objects grow.
const PARTS_OF_ONE_SIZE: u32 = 1000;

/// Objects in buckets, by the credentials and the endpoint of the environment.
pub(crate) struct Buckets;

/// The regions of buckets that are not in the account's region, as the server has said.
#[derive(Default)]
pub(crate) struct Regions(Mutex<BTreeMap<String, String>>);

impl Regions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cloud for Buckets {
    const SCHEMES: &'static [&'static str; 1] = &[SCHEME];
    const HINT: &'static str = "write s3://BUCKET/KEY";
    const CAPABILITIES: &'static Capabilities = &capabilities(SCHEME);
    const LIST_QUERY: &'static [(&'static str, &'static str)] =
        &[("encoding-type", "url"), ("list-type", "2")];
    const LIST_TOKEN: &'static str = "continuation-token";
    const EXPLAINS_IN_BODIES: bool = true;
    /// Servers say nothing of an object that was not there.
    const TELLS_ABSENT: bool = false;

    type Account = Account;
    type Learned = Regions;

    fn agent(http: &mut HttpConfig) -> Agent {
        http.ca_variables = &["AWS_CA_BUNDLE", "SSL_CERT_FILE"];
        // A redirect goes to another region, where the same signature is wrong.
        without_redirects(http)
    }

    /// Once more if the bucket turns out to be in another region.
    fn send(home: &BucketHome<Self>, account: &Account, ask: &Ask<'_>) -> Result<Response<Body>> {
        let mut has_moved = false;
        loop {
            let (url, bucket, region) = match ask.question.to {
                To::Url(url) => (url.to_owned(), None, account.region.clone()),
                To::Place(bucket, key) => {
                    let region = home.learned.lock().get(bucket).cloned();
                    let region = region.unwrap_or_else(|| account.region.clone());
                    (url_of(account.endpoint.as_deref(), &region, bucket, key), Some(bucket), region)
                }
            };
            let answer = ask.send(
                &home.agent,
                url,
                |request| request,
                |request| account.sign_in(&region, request, ask.operation, ask.location),
            )?;
            let other = web::header(answer.headers(), "x-amz-bucket-region").filter(|other| *other != region);
            match (answer.status().as_u16(), other, bucket) {
                (301 | 307 | 400, Some(other), Some(bucket)) if account.endpoint.is_none() && !has_moved => {
                    home.learned.lock().insert(bucket.to_owned(), other.to_owned());
                    has_moved = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// By the code in the body, which says more than the status.
    fn meaning(
        home: &BucketHome<Self>,
        operation: &'static str,
        location: &Location,
        answer: Response<Body>,
    ) -> Option<(Meaning, String)> {
        let http = answer.status().as_u16();
        let xml = web::head_of(answer);
        let code = answer::text_at(&xml, "Code").filter(|code| !code.is_empty())?;
        let message = answer::text_at(&xml, "Message").unwrap_or_default();
        let bucket = bucket_and_key(location).0;
        let account = home.account.found();
        let profile = account.as_ref().map_or("default", |account| account.profile());
        Some(match code.as_str() {
            "NoSuchKey" => (Meaning::NotFound, "there is no such object".into()),
            "NoSuchUpload" => (Meaning::NotFound, "there is no such upload".into()),
            "NoSuchBucket" => {
                let endpoint = account.as_ref().and_then(|account| account.endpoint.as_deref());
                let reason = format!("there is no bucket `{bucket}` at {}", endpoint.unwrap_or("Amazon S3"));
                (Meaning::NotFound, reason)
            }
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "InvalidClientTokenId" => {
                let reason = format!(
                    "the server does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY, or the profile `{profile}` in ~/.aws/credentials"
                );
                (Meaning::Credentials, reason)
            }
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                let reason =
                    format!("the credentials have expired ({code}); get new ones, as by `aws sso login`");
                (Meaning::Credentials, reason)
            }
            "RequestTimeTooSkewed" => {
                let reason =
                    "the clocks of this machine and of the server differ by more than the server allows";
                (Meaning::Denied, reason.into())
            }
            "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => {
                let reason = format!(
                    "access is denied ({code}): these credentials may not {operation} it, or it is not there and they may not \
                     list the bucket"
                );
                (Meaning::Denied, reason)
            }
            "SlowDown" | "RequestLimitExceeded" | "ThrottlingException" => {
                let reason = format!("the server asks for fewer requests ({code})");
                (Meaning::Passing, reason)
            }
            "RequestTimeout" | "InternalError" | "OperationAborted" => {
                (Meaning::Passing, format!("the server answered {http} ({code})"))
            }
            _ => {
                let colon = if message.is_empty() { "" } else { ": " };
                let reason = format!("the server answered {http} ({code}{colon}{message})");
                (Meaning::AsStatus, reason)
            }
        })
    }

    fn page(directory: &Location, body: &[u8]) -> Result<Page> {
        answer::page(directory, body)
    }

    fn put_small(home: &BucketHome<Self>, location: &Location, body: &[u8], put: &Put) -> Result<Stat> {
        put.may_appear(location)?;
        let to = place_of::<Self>(WRITE, location)?;
        let time = web::text_of_time(put.modified_ns);
        let noted = noting(time.as_ref());
        let question = Question { method: "PUT", to, query: &[], headers: &noted, body: Some(body) };
        let (headers, _) = home.ask(WRITE, location, &question)?;
        home.stat_written(location, body.len() as u64, web::header(&headers, "etag"))
    }

    fn put_large(
        home: &BucketHome<Self>,
        location: &Location,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let to = place_of::<Self>(WRITE, location)?;
        // What a killed writer of this object left would stay, and be paid for. Not everybody may list uploads.
        let _ = home.end_uploads(location, |key, wanted| key == wanted);
        let time = web::text_of_time(put.modified_ns);
        let noted = noting(time.as_ref());
        let begin =
            Question { method: "POST", to, query: &[("uploads", "")], headers: &noted, body: Some(&[]) };
        let (_, xml) = home.ask(WRITE, location, &begin)?;
        let Some(id) = answer::text_at(&xml, "UploadId") else {
            let reason = "the server gave no name to the upload";
            return Err(Error::new(ErrorKind::Io, Status::Temporary, WRITE, location, reason));
        };
        let note = note_of(location, &id);
        put.fence.part_begins(Path::new(&note));
        let written = home.put_parts(location, &id, first, body, put);
        let is_gone = written.is_ok() || home.end_upload(location, &id).is_ok();
        if is_gone {
            put.fence.part_ended(Path::new(&note));
        }
        written
    }

    fn remove_part(home: &BucketHome<Self>, part: &Path) -> Result<()> {
        match upload_of(part) {
            Some((location, id)) => home.end_upload(&location, &id),
            None => Ok(()),
        }
    }

    fn end_unfinished(home: &BucketHome<Self>, place: &Location) -> Result<u64> {
        home.end_uploads(place, |key, wanted| {
            let below = key.strip_prefix(wanted);
            below.is_some_and(|rest| {
                wanted.is_empty() || wanted.ends_with('/') || rest.is_empty() || rest.starts_with('/')
            })
        })
    }
}

impl BucketHome<Buckets> {
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

    fn put_parts(
        &self,
        location: &Location,
        id: &str,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let to = place_of::<Buckets>(WRITE, location)?;
        let (size_bytes, tags) =
            send_parts(location, first, body, put, PARTS_OF_ONE_SIZE, &|number, bytes| {
                let text = number.to_string();
                let query = [("partNumber", text.as_str()), ("uploadId", id)];
                let question = Question { method: "PUT", to, query: &query, headers: &[], body: Some(bytes) };
                let (headers, _) = self.ask(WRITE, location, &question)?;
                Ok(web::header(&headers, "etag").unwrap_or_default().to_owned())
            })?;
        put.may_appear(location)?;
        let mut xml = String::from("<CompleteMultipartUpload>");
        for (number, tag) in (1..).zip(tags) {
            let tag = tag.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
            xml.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"));
        }
        xml.push_str("</CompleteMultipartUpload>");
        let query = [("uploadId", id)];
        let body = Some(xml.as_bytes());
        let question = Question { method: "POST", to, query: &query, headers: &[], body };
        let (_, xml) = self.backoff.run(|n_tries| match self.complete(location, &question) {
            // The try before did it, and only its answer was lost.
            Err(error) if n_tries > 1 && error.kind() == ErrorKind::NotFound => Ok(Default::default()),
            other => other,
        })?;
        self.stat_written(location, size_bytes, answer::text_at(&xml, "ETag").as_deref())
    }

    /// The end of an upload. The server may find out that it failed after it began its answer with a success.
    fn complete(&self, location: &Location, question: &Question<'_>) -> Result<(HeaderMap, Vec<u8>)> {
        let (headers, xml) = self.ask_once(WRITE, location, question)?;
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
            let to = To::Place(bucket, "");
            let question = Question { method: "GET", to, query: &query, headers: &[], body: None };
            let (_, xml) = self.ask(LIST, location, &question)?;
            let answer::Uploads { uploads, next } = answer::uploads(location, &xml)?;
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
        let to = place_of::<Buckets>(REMOVE, location)?;
        let query = [("uploadId", id)];
        let question = Question { method: "DELETE", to, query: &query, headers: &[], body: None };
        match self.ask(REMOVE, location, &question) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The header that notes the time of a file.
fn noting(time: Option<&String>) -> Vec<(&'static str, &str)> {
    time.map(|time| ("x-amz-meta-mtime", time.as_str())).into_iter().collect()
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

/// The URL of an object, without a query. Amazon's own servers know a bucket by the name of the host, except one with a dot in its
/// name, which no certificate covers; all others know it by the path.
fn url_of(endpoint: Option<&str>, region: &str, bucket: &str, key: &str) -> String {
    match endpoint {
        Some(endpoint) => format!("{endpoint}/{bucket}/{key}"),
        None if bucket.contains('.') => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
        None => format!("https://{bucket}.s3.{region}.amazonaws.com/{key}"),
    }
}
