//! `az` homes: containers of Azure Blob Storage.
//!
//! A location is `az://CONTAINER/BLOB`; the storage account is that of the environment.
//!
//! The last request for a large object has the list of its blocks. Blocks of an upload that failed belong to no object, and nobody
//! can read them; Azure has no request that removes them, and does so by itself after a week, or with the next writing of the
//! object. Their names are those of one writer, so they are never mixed with others'.
//!
//! Not here: credentials and endpoint (`account`), and what all buckets share ([`crate::kinds::bucket`]).

mod account;

use crate::error::Result;
use crate::kinds::bucket::signing::Account as _;
use crate::kinds::bucket::{
    Ask, BucketHome, Cloud, LIST, Meaning, Page, Question, To, WRITE, bucket_and_key, capabilities, place_of,
    send_parts,
};
use crate::parts::part_path;
use crate::web;
use crate::xml::each_text;
use crate::{Capabilities, Home, Location, Put, Stat};
use account::Account;
use std::io::Read;
use std::path::Path;
use ureq::Body;
use ureq::http::Response;
use ureq::http::request::Builder;

/// The version of the protocol that is spoken.
const PROTOCOL: &str = "2023-11-03";
/// Azure allows 50,000 blocks of one object, so the blocks of very large objects grow.
const BLOCKS_OF_ONE_SIZE: u32 = 10_000;

/// Blobs in containers, by the account of the environment.
pub(crate) struct Containers;

impl Cloud for Containers {
    const SCHEMES: &'static [&'static str; 1] = &["az"];
    const HINT: &'static str = "write az://CONTAINER/BLOB";
    const CAPABILITIES: &'static Capabilities = &capabilities("az");
    const LIST_QUERY: &'static [(&'static str, &'static str)] = &[("restype", "container"), ("comp", "list")];
    const LIST_TOKEN: &'static str = "marker";

    type Account = Account;
    type Learned = ();

    fn send(home: &BucketHome<Self>, account: &Account, ask: &Ask<'_>) -> Result<Response<Body>> {
        let url = match ask.question.to {
            To::Place(container, "") => format!("{}/{container}", account.endpoint),
            To::Place(container, blob) => format!("{}/{container}/{blob}", account.endpoint),
            To::Url(url) => url.to_owned(),
        };
        // The length is signed, too.
        let length = ask.question.body.map(|body| body.len());
        let headers = |request: Builder| match length {
            Some(length) => request.header("x-ms-version", PROTOCOL).header("content-length", length),
            None => request.header("x-ms-version", PROTOCOL),
        };
        ask.send(&home.agent, url, headers, |request| account.sign(request, ask.operation, ask.location))
    }

    /// By the code in a header, which says more than the status.
    fn meaning(
        home: &BucketHome<Self>,
        operation: &'static str,
        location: &Location,
        answer: Response<Body>,
    ) -> Option<(Meaning, String)> {
        let code = web::header(answer.headers(), "x-ms-error-code")?;
        let found = home.account.found();
        let account = found.as_ref().map_or("", |account| account.name.as_str());
        Some(match code {
            "BlobNotFound" | "ResourceNotFound" => (Meaning::NotFound, "there is no such object".to_owned()),
            "ContainerNotFound" => {
                let container = bucket_and_key(location).0;
                let reason = format!("the storage account `{account}` has no container `{container}`");
                (Meaning::NotFound, reason)
            }
            "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
                let reason = format!(
                    "the server does not accept the credentials for the storage account `{account}` ({code}): its key is \
                     another one, the token has expired, or the clock of this machine is off"
                );
                (Meaning::Credentials, reason)
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
                (Meaning::Denied, reason)
            }
            "ServerBusy" => (Meaning::Passing, format!("the server asks for fewer requests ({code})")),
            _ => (Meaning::AsStatus, format!("the server answered {} ({code})", answer.status().as_u16())),
        })
    }

    fn page(directory: &Location, body: &[u8]) -> Result<Page> {
        page_of(directory, body)
    }

    fn put_small(home: &BucketHome<Self>, location: &Location, body: &[u8], put: &Put) -> Result<Stat> {
        let headers = [("x-ms-blob-type", "BlockBlob")];
        put_whole(home, location, (&[], &headers), body, body.len() as u64, put)
    }

    /// Sends blocks, then lists them.
    fn put_large(
        home: &BucketHome<Self>,
        location: &Location,
        first: Vec<u8>,
        body: &mut dyn Read,
        put: &Put,
    ) -> Result<Stat> {
        let to = place_of::<Self>(WRITE, location)?;
        // All names of one object's blocks have to be of one length.
        let writer = part_path(Path::new(""), location.as_str().as_bytes(), &put.part);
        let writer = crate::fnv1a64(writer.as_os_str().as_encoded_bytes());
        let (size_bytes, names) =
            send_parts(location, first, body, put, BLOCKS_OF_ONE_SIZE, &|number, bytes| {
                let name = web::base64(format!("eyas-{writer:016x}-{number:08x}").as_bytes());
                let query = [("comp", "block"), ("blockid", name.as_str())];
                let question = Question { method: "PUT", to, query: &query, headers: &[], body: Some(bytes) };
                home.ask(WRITE, location, &question).map(|_| name)
            })?;
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for name in names {
            xml.push_str(&format!("<Latest>{name}</Latest>"));
        }
        xml.push_str("</BlockList>");
        put_whole(home, location, (&[("comp", "blocklist")], &[]), xml.as_bytes(), size_bytes, put)
    }
}

/// Makes an object with one request.
fn put_whole(
    home: &BucketHome<Containers>,
    location: &Location,
    (query, headers): (&[(&str, &str)], &[(&'static str, &str)]),
    body: &[u8],
    size_bytes: u64,
    put: &Put,
) -> Result<Stat> {
    put.may_appear(location)?;
    let to = place_of::<Containers>(WRITE, location)?;
    let time = web::text_of_time(put.modified_ns);
    let noted = time.as_ref().map(|time| ("x-ms-meta-mtime", time.as_str()));
    let headers: Vec<_> = headers.iter().copied().chain(noted).collect();
    let question = Question { method: "PUT", to, query, headers: &headers, body: Some(body) };
    let (headers, _) = home.ask(WRITE, location, &question)?;
    match web::header(&headers, "etag") {
        Some(_) => Ok(web::stat_of(size_bytes, &headers)),
        None => home.backoff.run(|_| home.stat(location)),
    }
}

/// From the answer to `List Blobs`. Accounts with directories of their own list these, too.
fn page_of(directory: &Location, xml: &[u8]) -> Result<Page> {
    let mut page = Page::default();
    let outermost = each_text(xml, &mut |at, text| match at {
        "Blobs/Blob/Name" => page.add(text.to_owned(), None),
        "Blobs/Blob/Properties/ResourceType" if text == "directory" => page.take_back(),
        "Blobs/Blob/Properties/Content-Length" if text == "0" => page.is_empty_object(),
        "Blobs/BlobPrefix/Name" => page.prefixes.push(text.to_owned()),
        "NextMarker" if !text.is_empty() => page.next = Some(text.to_owned()),
        _ => {}
    });
    outermost.check("EnumerationResults", LIST, directory)?;
    Ok(page)
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
        let at: Location = "az://account/container/".parse().unwrap();
        assert_eq!(page_of(&at, xml).unwrap(), expect);
        let last = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(page_of(&at, last).unwrap(), Page::default());
        assert!(page_of(&at, &xml[..xml.len() - 3]).is_err());
    }
}
