//! What all homes of buckets share: `s3`, `gs` and `az` have flat names in a bucket, in which a `/` has no meaning of its own.
//!
//! * The text of a location, `SCHEME://BUCKET/KEY`. Escapes such as `%20` in a key are decoded, so a percent sign is written as
//!   `%25`; every other character means itself, `?` and `#` too.
//! * The home ([`BucketHome`]): requests, signed by an account that is looked for again when the server refuses it; reading,
//!   listings (`listing`), the parts of large objects (`parts`), and what refusals mean ([`Meaning`]).
//!
//! An object appears with one request, all of it at once: a small object's own, or the last one of an upload in parts. A write
//! takes several requests and its source cannot be read twice, so here each request is tried again by itself.
//!
//! Not here: the protocol of each cloud, which [`Cloud`] says.

mod listing;
mod parts;
pub(crate) mod signing;

pub(crate) use listing::Page;
pub(crate) use parts::{PART_BYTES, read_part, send_parts};

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::web::{self, Asker};
use crate::wrappers::retry::Backoff;
use crate::{Capabilities, Home, HomesConfig, HttpConfig, Listed, Listing, Location, Opened, Put, Stat};
use signing::{Account, Accounts};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use ureq::http::request::{Builder, Parts};
use ureq::http::{HeaderMap, Request, Response};
use ureq::{Agent, Body};

pub(crate) const STAT: &str = "stat";
pub(crate) const READ: &str = "read";
pub(crate) const WRITE: &str = "write";
pub(crate) const LIST: &str = "list";
pub(crate) const REMOVE: &str = "remove";

/// The longest key that any of them allows.
const KEY_BYTES_MAX: usize = 1024;

/// A client that is told where else to go, and does not go there.
pub(crate) fn without_redirects(http: &HttpConfig) -> Agent {
    web::agent_config(http).max_redirects(0).max_redirects_will_error(false).build().into()
}

/// What the homes of every cloud can do.
pub(crate) const fn capabilities(name: &'static str) -> Capabilities {
    Capabilities {
        name,
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
        rename: false,
        make_directory: false,
        modes: false,
    }
}

/// One cloud of buckets: what it says for itself. [`BucketHome`] does the rest.
pub(crate) trait Cloud: Sized + Send + Sync + 'static {
    /// Its only scheme, as a list for [`Kind`].
    const SCHEMES: &'static [&'static str; 1];
    /// How a URL of it is written.
    const HINT: &'static str;
    const CAPABILITIES: &'static Capabilities;
    /// What every question for bytes has.
    const READ_QUERY: &'static [(&'static str, &'static str)] = &[];
    const READ_HEADERS: &'static [(&'static str, &'static str)] = &[];
    /// What every question for a page of a listing has, and what the place is called there where the page before ended.
    const LIST_QUERY: &'static [(&'static str, &'static str)];
    const LIST_TOKEN: &'static str;
    /// See [`Asker::explains_in_bodies`].
    const EXPLAINS_IN_BODIES: bool = false;
    /// Whether the server says of an object to be removed that there is none.
    const TELLS_ABSENT: bool = true;

    type Account: Account;
    /// What a home learns of the server.
    type Learned: Default + Send + Sync;

    /// The client. What it changes in `http` holds for the requests for credentials, too.
    fn agent(http: &mut HttpConfig) -> Agent {
        web::agent_config(http).build().into()
    }

    /// Sends one request, signed by this account.
    fn send(home: &BucketHome<Self>, account: &Self::Account, ask: &Ask<'_>) -> Result<Response<Body>>;

    /// What an answer means that is no success, and how it is told. `None`: it says no more than its status.
    fn meaning(
        home: &BucketHome<Self>,
        operation: &'static str,
        location: &Location,
        answer: Response<Body>,
    ) -> Option<(Meaning, String)>;

    /// A page of a listing, from the body of the answer.
    fn page(directory: &Location, body: &[u8]) -> Result<Page>;

    /// [`Home::stat`].
    fn stat(home: &BucketHome<Self>, location: &Location) -> Result<Stat> {
        web::stat(home, location)
    }

    /// Makes an object of these bytes, which are fewer than a part has.
    fn put_small(home: &BucketHome<Self>, location: &Location, body: &[u8], put: &Put) -> Result<Stat>;

    /// Makes an object of `first`, which is a whole part, and what follows it in `body`.
    fn put_large(
        home: &BucketHome<Self>,
        location: &Location,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat>;

    /// [`Home::remove_part`].
    fn remove_part(_home: &BucketHome<Self>, _part: &Path) -> Result<()> {
        Ok(())
    }

    /// [`Home::end_unfinished`].
    fn end_unfinished(_home: &BucketHome<Self>, _place: &Location) -> Result<u64> {
        Ok(0)
    }
}

/// Where a question goes.
#[derive(Clone, Copy)]
pub(crate) enum To<'a> {
    /// An object: its bucket and its percent-encoded key. An empty key: the bucket.
    Place(&'a str, &'a str),
    /// A URL that the server gave.
    Url(&'a str),
}

/// What is asked of a server.
pub(crate) struct Question<'a> {
    pub method: &'static str,
    pub to: To<'a>,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'static str, &'a str)],
    /// `None`: the method has no body.
    pub body: Option<&'a [u8]>,
}

/// A question, and what it is for.
pub(crate) struct Ask<'a> {
    pub operation: &'static str,
    pub location: &'a Location,
    pub question: &'a Question<'a>,
}

impl Ask<'_> {
    /// Sends one request.
    ///
    /// * `url`: without the query.
    /// * `headers`: adds headers of every request.
    pub(crate) fn send(
        &self,
        agent: &Agent,
        mut url: String,
        headers: impl FnOnce(Builder) -> Builder,
        sign: impl FnOnce(&mut Parts) -> Result<()>,
    ) -> Result<Response<Body>> {
        let Question { method, query, headers: own, body, .. } = self.question;
        for (i, (name, value)) in query.iter().enumerate() {
            url.push(if i == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            push_encoded(&mut url, value, |byte| b"-._~".contains(&byte), false);
        }
        let request = headers(Request::builder().method(*method).uri(url));
        web::send(agent, self.operation, self.location, (request, own), *body, sign)
    }
}

/// What a refusal means, for whoever may try again.
#[derive(Clone, Copy)]
pub(crate) enum Meaning {
    NotFound,
    /// The credentials are bad or have expired.
    Credentials,
    /// Something that other credentials, or the same ones again, do not cure.
    Denied,
    /// The same request may succeed later.
    Passing,
    /// What the status of the answer means.
    AsStatus,
}

/// Objects in buckets, by the account of the environment.
pub(crate) struct BucketHome<C: Cloud> {
    http: HttpConfig,
    pub agent: Agent,
    pub account: Accounts<C::Account>,
    pub backoff: Backoff,
    pub learned: C::Learned,
}

impl<C: Cloud> Kind for C {
    fn schemes(&self) -> &'static [&'static str] {
        C::SCHEMES
    }

    fn names_are_flat(&self) -> bool {
        true
    }

    fn capabilities(&self) -> &'static Capabilities {
        C::CAPABILITIES
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        canonical(url, C::SCHEMES[0], C::HINT, out)
    }

    /// Opens no connection, and looks for no credentials yet. Errors: the authority file of `http` cannot be read.
    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        let mut http = config.http.clone();
        Ok(Arc::new(BucketHome::<C> {
            agent: C::agent(&mut http),
            http,
            account: Accounts::default(),
            backoff: Backoff::new(config.retries.clone()),
            learned: C::Learned::default(),
        }))
    }
}

impl<C: Cloud> BucketHome<C> {
    /// Sends one signed request, and once more if renewed credentials are there.
    pub(crate) fn send(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<Response<Body>> {
        let ask = Ask { operation, location, question };
        self.account
            .ask(|| C::Account::find(&self.http, operation, location), |account| C::send(self, account, &ask))
    }

    /// [`BucketHome::send`], where every answer but a success is an error.
    pub(crate) fn ask_once(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        web::whole(self, operation, location, self.send(operation, location, question)?)
    }

    /// [`BucketHome::ask_once`], again and again as long as that may help.
    pub(crate) fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        question: &Question<'_>,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        self.backoff.run(|_| self.ask_once(operation, location, question))
    }

    fn page(&self, directory: &Location, prefix: &str, delimiter: &str, token: &str) -> Result<Page> {
        let mut query = C::LIST_QUERY.to_vec();
        let more = [("prefix", prefix), ("delimiter", delimiter), (C::LIST_TOKEN, token)];
        query.extend(more.into_iter().filter(|(_, value)| !value.is_empty()));
        let to = To::Place(bucket_and_key(directory).0, "");
        let question = Question { method: "GET", to, query: &query, headers: &[], body: None };
        self.backoff.run(|_| C::page(directory, &self.ask_once(LIST, directory, &question)?.1))
    }
}

/// An object of the home of this cloud.
pub(crate) fn place_of<'a, C: Cloud>(operation: &'static str, location: &'a Location) -> Result<To<'a>> {
    check_scheme::<C>(operation, location)?;
    match bucket_and_key(location) {
        (_, "") => {
            let reason = "it names a bucket, and an object in it is needed";
            Err(Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason))
        }
        (bucket, key) => Ok(To::Place(bucket, key)),
    }
}

fn check_scheme<C: Cloud>(operation: &'static str, location: &Location) -> Result<()> {
    match location.scheme() == C::SCHEMES[0] {
        true => Ok(()),
        false => {
            Err(Error::unsupported(operation, location, C::SCHEMES[0])
                .with_context("scheme", location.scheme()))
        }
    }
}

impl<C: Cloud> Asker for BucketHome<C> {
    fn ask(
        &self,
        operation: &'static str,
        location: &Location,
        is_head: bool,
        range: Option<&Range<u64>>,
    ) -> Result<Response<Body>> {
        let to = place_of::<C>(operation, location)?;
        let range = range.map(web::range_text);
        let mut headers = C::READ_HEADERS.to_vec();
        headers.extend(range.iter().map(|range| ("range", range.as_str())));
        let method = if is_head { "HEAD" } else { "GET" };
        let question = Question { method, to, query: C::READ_QUERY, headers: &headers, body: None };
        self.send(operation, location, &question)
    }

    fn refusal(&self, operation: &'static str, location: &Location, answer: Response<Body>) -> Error {
        let by_status = web::refusal_of(operation, location, &answer);
        let http = answer.status().as_u16();
        let Some((meaning, reason)) = C::meaning(self, operation, location, answer) else {
            return by_status;
        };
        let (kind, status) = match meaning {
            Meaning::NotFound => (ErrorKind::NotFound, Status::Permanent),
            Meaning::Credentials => (ErrorKind::PermissionDenied, self.account.status_of_refusal()),
            Meaning::Denied => (ErrorKind::PermissionDenied, Status::Permanent),
            Meaning::Passing => (ErrorKind::Http(http), Status::Temporary),
            Meaning::AsStatus => (by_status.kind(), by_status.status()),
        };
        Error::new(kind, status, operation, location, reason).with_retry_after(by_status.retry_after())
    }

    fn explains_in_bodies(&self) -> bool {
        C::EXPLAINS_IN_BODIES
    }
}

impl<C: Cloud> Home for BucketHome<C> {
    fn capabilities(&self) -> &'static Capabilities {
        C::CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        place_of::<C>(STAT, location)?;
        C::stat(self, location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        place_of::<C>(READ, location)?;
        web::open(self, location, range)
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        web::open_first(self, location, most_bytes)
    }

    fn may_write(&self, location: &Location) -> Result<()> {
        let account = self.account.get(|| C::Account::find(&self.http, WRITE, location))?;
        account.sign(&mut signing::unsent(), WRITE, location)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        place_of::<C>(WRITE, location)?;
        let first = read_part(location, body, PART_BYTES, 0, put)?;
        match first.len() < PART_BYTES {
            true => C::put_small(self, location, &first, put),
            false => C::put_large(self, location, first, body, put),
        }
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        C::remove_part(self, part)
    }

    fn end_unfinished(&self, place: &Location) -> Result<u64> {
        C::end_unfinished(self, place)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let directory = listing.directory();
        check_scheme::<C>(LIST, directory)?;
        listing::list(&|prefix, delimiter, token| self.page(directory, prefix, delimiter, token), listing)
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let to = place_of::<C>(REMOVE, location)?;
        if !C::TELLS_ABSENT {
            web::stat(self, location)?;
        }
        let question = Question { method: "DELETE", to, query: &[], headers: &[], body: None };
        self.ask_once(REMOVE, location, &question).map(drop)
    }
}

/// Appends the canonical text of a URL whose scheme is `scheme`.
///
/// * `hint`: how such a URL is written.
fn canonical(
    url: Url<'_>,
    scheme: &'static str,
    hint: &'static str,
    out: &mut String,
) -> std::result::Result<Spelling, Refusal> {
    let (bucket, key) = url.rest.split_once('/').unwrap_or((url.rest, ""));
    if bucket.contains('@') || bucket.contains(':') {
        return Err(Refusal::of_credentials());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._$".contains(&byte);
    if bucket.is_empty() || !bucket.bytes().all(is_name) {
        return Err(Refusal::new("has no valid bucket name", hint));
    }
    let Some(key) = percent_decode(key) else {
        return Err(Refusal::new("has a `%` that begins no escape", "write %25 for a percent sign"));
    };
    if key.contains('\0') {
        return Err(Refusal::new("holds a NUL byte", None));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::new("has a key of more than 1,024 bytes, which no such home allows", None));
    }
    out.push_str(scheme);
    out.push_str("://");
    out.push_str(bucket);
    out.push('/');
    push_encoded(out, &key, is_path_mark, false);
    Ok(Spelling::Url)
}

/// The bucket and the percent-encoded key of a location.
pub(crate) fn bucket_and_key(location: &Location) -> (&str, &str) {
    let text = location.as_str();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split_once('/').unwrap_or((rest, ""))
}
