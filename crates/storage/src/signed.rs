//! Queries of signed URLs. Such a query is a secret: whoever has it reads the object.
//!
//! The text of a location stands in journals, logs, reports and messages, so no secret query is in it. In its place stands
//! `?signed=DIGEST`. This process keeps each query that it was given, and puts it back only where it asks the server. Processes that
//! read for others are told what they need ([`known_from`], [`learn`]); decision 0086 says how.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What stands in place of a secret query, before its digest.
const SIGNED: &str = "signed=";
/// Hexadecimal digits of a digest, 128 bits.
const DIGEST_CHARS: usize = 32;
/// What names of parameters have in them whose values are secrets.
const OF_SECRETS: [&str; 13] = [
    "sig", "token", "key", "secret", "cred", "auth", "pass", "pwd", "policy", "jwt", "sas", "ticket",
    "session",
];
/// So long a value without marks of a text or a path is taken for a secret, whatever its name is.
const SECRET_CHARS: usize = 24;

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
    blake3::hash(query.as_bytes()).to_hex()[..DIGEST_CHARS].to_owned()
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

/// Whether a query, without its `?`, has a secret in it.
fn is_secret(query: &str) -> bool {
    query.split('&').any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or(("", parameter));
        let name = name.to_ascii_lowercase();
        let is_of_secret = OF_SECRETS.iter().any(|part| name.contains(part));
        let is_long = value.len() >= SECRET_CHARS
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-_=+".contains(&byte));
        is_long || is_of_secret && !value.is_empty()
    })
}

fn is_digest(query: &str) -> bool {
    let digest = query.strip_prefix(SIGNED);
    digest.is_some_and(|digest| {
        digest.len() == DIGEST_CHARS && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Puts a digest in place of the query of a canonical URL, which begins at `start` of `url`, if it is a secret.
pub(crate) fn hide(url: &mut String, start: usize) {
    let Some(at) = url[start..].find('?').map(|at| start + at + 1) else { return };
    let query = &url[at..];
    // A digest is a canonical query itself.
    if is_digest(query) || !is_secret(query) {
        return;
    }
    let digest = remember(query);
    url.truncate(at);
    url.push_str(SIGNED);
    url.push_str(&digest);
}

/// The URL that a server is asked for. `None`: this process does not know the query.
pub(crate) fn reveal(url: &str) -> Option<Cow<'_, str>> {
    let Some((place, query)) = url.split_once('?').filter(|(_, query)| is_digest(query)) else {
        return Some(url.into());
    };
    let known = known();
    let known = known.as_ref()?;
    let n = *known.by_digest.get(&query[SIGNED.len()..])?;
    Some(format!("{place}?{}", known.queries[n]).into())
}

/// The text of a location for its user's own eyes, such as in a task list that is written for them: with its query, where this process
/// knows it.
pub fn with_secrets(location: &str) -> Cow<'_, str> {
    reveal(location).unwrap_or_else(|| location.into())
}

/// A text that somebody wrote, for a message about it: without a secret query.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    match text.split_once('?') {
        Some((place, query)) if text.contains("://") && !is_digest(query) && is_secret(query) => {
            format!("{place}?...").into()
        }
        _ => text.into(),
    }
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
            assert_eq!(location.join("x").unwrap().to_string().matches("signed=").count(), 1);
            let wrong = url.replace("h.example", "h.example:99999").parse::<Location>().unwrap_err();
            assert!(!wrong.to_string().contains("5ec2e7"), "{wrong}");
        }
        let one: Location = "https://h/x?sig=a1".parse().unwrap();
        assert_ne!(one, "https://h/x?sig=a2".parse().unwrap());
        assert_eq!(one, "HTTPS://h:443/x?sig=a1".parse().unwrap());
    }

    #[test]
    fn other_queries_stay() {
        for url in ["https://h/x?q=1&r=%2f", "https://h/x?file=/data/sky/7.fits&page=2", "https://h/x?sig="] {
            assert_eq!(url.parse::<Location>().unwrap().as_str(), url);
            assert_eq!(without_secrets(url), url);
        }
        assert_eq!(without_secrets("what?sig=1"), "what?sig=1");
    }

    #[test]
    fn what_another_process_knows_is_learnt_once() {
        let n = known_from(0).len();
        assert_eq!(learn(vec!["sig=learnt".into(), "sig=learnt".into()]), ["sig=learnt"]);
        assert!(known_from(n).contains(&"sig=learnt".into()));
        assert_eq!(learn(vec!["sig=learnt".into()]), Vec::<String>::new());
        let digest = digest_of("sig=learnt");
        assert_eq!(reveal(&format!("https://h/x?signed={digest}")).unwrap(), "https://h/x?sig=learnt");
        assert_eq!(reveal(&format!("https://h/x?signed={}", "0".repeat(32))), None);
    }
}
