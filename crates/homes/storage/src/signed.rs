//! Queries of URLs of the web. Any of them may be a secret: whoever has that of a signed URL reads the object.
//!
//! The text of a location stands in journals, logs, reports and messages, so no query is in it. In its place stands
//! `?hidden=DIGEST`. This process keeps each query that it was given, and puts it back only where it asks the server. Processes that
//! read for others are told what they need ([`known_from`], [`learn`]); decision 0086 says how.

use crate::scheme::KindNo;
use eyas_text::{HIDDEN_CHARS, HIDDEN_QUERY, is_hidden_query, is_of_web, without_query};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All queries that this process knows.
#[derive(Default)]
struct Known {
    by_digest: HashMap<String, usize>,
    queries: Vec<String>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest_of(query: &str) -> String {
    blake3::hash(query.as_bytes()).to_hex()[..HIDDEN_CHARS].to_owned()
}

fn remember(query: &str) -> String {
    let digest = digest_of(query);
    let known = &mut *known();
    let Known { by_digest, queries } = known.get_or_insert_default();
    by_digest.entry(digest.clone()).or_insert_with(|| {
        queries.push(query.to_owned());
        queries.len() - 1
    });
    digest
}

/// Puts a digest in place of the query of a canonical URL, which begins at `start` of `url`.
pub(crate) fn hide(url: &mut String, start: usize) {
    let Some(at) = url[start..].find('?').map(|at| start + at + 1) else { return };
    let query = &url[at..];
    // A digest is a canonical query itself.
    if query.is_empty() || is_hidden_query(query.as_bytes()) {
        return;
    }
    let digest = remember(query);
    url.truncate(at);
    url.push_str(HIDDEN_QUERY);
    url.push_str(&digest);
}

/// What stood in place of [`HIDDEN_QUERY`] in an older version, with the same digest behind it.
const HIDDEN_QUERY_BEFORE: &str = "signed=";

/// The text of a location as this version writes it. Journals, event logs and caches of older versions have URLs of the web with their
/// queries, which this process knows from now on, or with digests that were marked otherwise. `None`: the text is as it should be.
pub fn renewed(text: &str) -> Option<String> {
    let (scheme, _) = text.split_once("://").filter(|(scheme, _)| is_of_web(scheme))?;
    let at = text.find('?')? + 1;
    let mut new = text.to_owned();
    if let Some(digest) = text[at..].strip_prefix(HIDDEN_QUERY_BEFORE) {
        let marked = format!("{HIDDEN_QUERY}{digest}");
        if is_hidden_query(marked.as_bytes()) {
            new.replace_range(at.., &marked);
        }
    }
    hide(&mut new, scheme.len());
    Some(new).filter(|new| new != text)
}

/// The URL that a server is asked for. `None`: this process does not know the query.
pub(crate) fn reveal(url: &str) -> Option<Cow<'_, str>> {
    let Some((place, query)) = url.split_once('?').filter(|(_, query)| is_hidden_query(query.as_bytes()))
    else {
        return Some(url.into());
    };
    let known = known();
    let known = known.as_ref()?;
    let n = *known.by_digest.get(&query[HIDDEN_QUERY.len()..])?;
    Some(format!("{place}?{}", known.queries[n]).into())
}

/// The text of a location for its user's own eyes, such as in a task list that is written for them: with its query, where this process
/// knows it.
pub fn with_secrets(location: &str) -> Cow<'_, str> {
    reveal(location).unwrap_or_else(|| location.into())
}

/// A text that somebody wrote, for a message about it: without the query that it has if it is a URL of the web, or of a scheme that
/// nobody knows. In names of other homes a `?` may stand for a character.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    without_query(text, |scheme| is_of_web(scheme) || KindNo::find(scheme).is_none())
}

/// The queries that this process knows, from the `n`-th on, for a process that reads for it.
pub fn known_from(n: usize) -> Vec<String> {
    known().as_ref().map_or(vec![], |known| known.queries.get(n..).unwrap_or_default().to_vec())
}

/// Keeps queries that another process knows. Gives those that are new here.
pub fn learn(queries: Vec<String>) -> Vec<String> {
    let is_new = |query: &String| {
        let is_known = known().as_ref().is_some_and(|known| known.by_digest.contains_key(&digest_of(query)));
        if !is_known {
            remember(query);
        }
        !is_known
    };
    queries.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;

    #[test]
    fn no_location_shows_a_secret() {
        for (n, query) in [
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F1&X-Amz-Signature=5ec2e7",
            "x-goog-signature=5ec2e7",
            "sv=2024&se=2026&sig=5ec2e7%2B%3D",
            "Expires=1&Signature=5ec2e7&Key-Pair-Id=K",
            "a=b&access_token=5ec2e7",
            "authz=5ec2e7",
            "5ec2e75ec2e75ec2e75ec2e75ec2e7",
            "h=5ec2e75ec2e75ec2e75ec2e75ec2e7",
            "pass=5ec2e7",
            "k=5ec2e7",
            "5ec2e7",
            "page=2&s=5ec2e7",
            "file=/data/5ec2e7.fits",
        ]
        .into_iter()
        .enumerate()
        {
            let url = format!("https://h.example/d/{n}.fa?{query}");
            let location: Location = url.parse().unwrap();
            for text in [location.to_string(), format!("{location:?}"), without_secrets(&url).into_owned()] {
                assert!(!text.contains("5ec2e7"), "{text}");
            }
            assert_eq!(location.to_string().parse::<Location>().unwrap(), location);
            assert_eq!(reveal(location.as_str()).unwrap(), url);
            assert_eq!(location.file_name(), format!("{n}.fa"));
            assert_eq!(location.join("x").unwrap().to_string().matches("hidden=").count(), 1);
            let wrong = url.replace("h.example", "h.example:99999").parse::<Location>().unwrap_err();
            assert!(!wrong.to_string().contains("5ec2e7"), "{wrong}");
        }
        let one: Location = "https://h/x?sig=a1".parse().unwrap();
        assert_ne!(one, "https://h/x?sig=a2".parse().unwrap());
        assert_eq!(one, "HTTPS://h:443/x?sig=a1".parse().unwrap());
    }

    #[test]
    fn what_is_no_query_stays() {
        for url in ["https://h/x?", "s3://b/x%3F.fa", "https://h/x"] {
            assert_eq!(url.parse::<Location>().unwrap().as_str(), url);
            assert_eq!(without_secrets(url), url);
        }
        for (text, expect) in [
            ("what?sig=1", "what?sig=1"),
            ("s3://b/x?.fa", "s3://b/x?.fa"),
            ("gopher://h/x?a=b", "gopher://h/x?..."),
            ("unpack:https://h/x?a=b", "unpack:https://h/x?..."),
            ("https://h/x#a", "https://h/x#..."),
        ] {
            assert_eq!(without_secrets(text), expect);
        }
    }

    #[test]
    fn what_older_versions_wrote_is_renewed() {
        let digest = digest_of("k=1");
        let expect = format!("https://h/x?hidden={digest}");
        assert_eq!(renewed("https://h/x?k=1").as_deref(), Some(expect.as_str()));
        assert_eq!(reveal(&expect).unwrap(), "https://h/x?k=1");
        assert_eq!(renewed(&format!("https://h/x?signed={digest}")).as_deref(), Some(expect.as_str()));
        for text in [expect.as_str(), "https://h/x", "https://h/x?", "/a?k=1", "s3://b/x?k=1", "run:x?k=1"] {
            assert_eq!(renewed(text), None, "{text}");
        }
        // A server's own parameter of that name is a query like any other.
        assert!(renewed("https://h/x?signed=yes").unwrap().contains("?hidden="));
    }

    #[test]
    fn what_another_process_knows_is_learnt_once() {
        let n = known_from(0).len();
        assert_eq!(learn(vec!["sig=learnt".into(), "sig=learnt".into()]), ["sig=learnt"]);
        assert!(known_from(n).contains(&"sig=learnt".into()));
        assert_eq!(learn(vec!["sig=learnt".into()]), Vec::<String>::new());
        let digest = digest_of("sig=learnt");
        assert_eq!(reveal(&format!("https://h/x?hidden={digest}")).unwrap(), "https://h/x?sig=learnt");
        assert_eq!(reveal(&format!("https://h/x?hidden={}", "0".repeat(32))), None);
    }
}
