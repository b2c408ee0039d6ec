//! Secrets in URLs. Any query may be one, whatever its parameters are called and however short it is: whoever has the whole URL may
//! read, or more. A password before the host is one in each URL. So neither is shown.

use std::borrow::Cow;
use std::ops::Range;

/// What stands in place of a query in the text of a location, before its digest.
pub const HIDDEN_QUERY: &str = "hidden=";
/// Hexadecimal digits of such a digest.
pub const HIDDEN_CHARS: usize = 32;

/// Whether a query, without its `?`, is one that stands for a hidden one.
pub fn is_hidden_query(query: &[u8]) -> bool {
    let digest = query.strip_prefix(HIDDEN_QUERY.as_bytes());
    digest.is_some_and(|digest| {
        digest.len() == HIDDEN_CHARS && digest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether URLs of this scheme are those of web servers.
pub fn is_of_web(scheme: &str) -> bool {
    ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web))
}

/// Whether what stands before `://` ends in such a scheme.
pub(crate) fn ends_in_web(scheme: &str) -> bool {
    is_of_web(scheme.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default())
}

/// The text of one location with `...` in place of its query, if it is a URL of a scheme that `hides`.
pub fn without_query(location: &str, hides: impl Fn(&str) -> bool) -> Cow<'_, str> {
    match without_queries(location.as_bytes(), |_| true, hides) {
        Cow::Borrowed(_) => location.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

/// A text for people that may have URLs in it, with `...` in place of their passwords, and of the queries of those of web servers.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    match without_queries(text.as_bytes(), |_| false, ends_in_web) {
        Cow::Borrowed(_) => text.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

/// The text with `...` in place of the password of each URL, and of what stands behind the `?` or `#` of each URL of a scheme that
/// `hides`. `is_to_end`: a URL that begins at this byte goes on to the end of the text; others end where a name in a sentence does.
pub(crate) fn without_queries(
    text: &[u8],
    is_to_end: impl Fn(usize) -> bool,
    hides: impl Fn(&str) -> bool,
) -> Cow<'_, [u8]> {
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let mut out = vec![];
    // Up to here the text was taken over; from there on the next URL is looked for.
    let (mut taken, mut from) = (0, 0);
    while let Some(at) = text[from..].windows(3).position(|some| some == b"://").map(|at| from + at) {
        from = at + 3;
        let start = text[..at].iter().rposition(|byte| !is_of_scheme(byte)).map_or(0, |before| before + 1);
        let ends =
            |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"\"'<>`".contains(byte);
        let end = match is_to_end(start) {
            true => text.len(),
            false => text[from..].iter().position(ends).map_or(text.len(), |n| from + n),
        };
        if let Some(password) = password_in(&text[from..end]).filter(|_| start < at) {
            out.extend_from_slice(&text[taken..from + password.start]);
            out.extend_from_slice(b"...");
            taken = from + password.end;
        }
        if !std::str::from_utf8(&text[start..at]).is_ok_and(&hides) {
            continue;
        }
        let Some(mark) = text[from..end].iter().position(|byte| b"?#".contains(byte)).map(|n| from + n)
        else {
            continue;
        };
        from = end;
        let query = &text[mark + 1..end];
        if !query.is_empty() && !is_hidden_query(query) {
            out.extend_from_slice(&text[taken..=mark]);
            out.extend_from_slice(b"...");
            taken = end;
        }
    }
    match taken {
        0 => text.into(),
        _ => {
            out.extend_from_slice(&text[taken..]);
            out.into()
        }
    }
}

/// The bytes of the password in what follows the `://` of a URL: `me:PASSWORD@host/path`.
fn password_in(url: &[u8]) -> Option<Range<usize>> {
    let authority = url.split(|byte| b"/?#".contains(byte)).next()?;
    let end = authority.iter().rposition(|byte| *byte == b'@')?;
    let start = authority[..end].iter().position(|byte| *byte == b':')? + 1;
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_query_and_no_password_is_shown() {
        let hidden = format!("https://h/x?hidden={}", "0a".repeat(16));
        for (text, is_one, expect) in [
            ("https://h/x?k=1 2", true, "https://h/x?..."),
            ("https://h/x?k=1 2", false, "https://h/x?... 2"),
            ("see HTTP://h/x?5ec2e7, and 'http://i/y?s=1'", false, "see HTTP://h/x?... and 'http://i/y?...'"),
            ("unpack:https://h/x.tar?a=b", true, "unpack:https://h/x.tar?..."),
            ("https://h/x#t=1", true, "https://h/x#..."),
            ("is it http://h/x?", false, "is it http://h/x?"),
            ("s3://b/x?.fa and what?", false, "s3://b/x?.fa and what?"),
            (&hidden, true, &hidden),
            ("://?a", true, "://?a"),
            ("://a:b@c", true, "://a:b@c"),
            ("https://me:5ec2e7@h/x?k=1", true, "https://me:...@h/x?..."),
            (
                "no data set `postgres://u:5e:c2@e7@h:5/d` here",
                false,
                "no data set `postgres://u:...@h:5/d` here",
            ),
            ("SFTP://u:5ec2e7@h, dav://:5ec2e7@h", false, "SFTP://u:...@h, dav://:...@h"),
            ("sftp://me@h:22/a:b@c", true, "sftp://me@h:22/a:b@c"),
            ("s3://b/a:b@c and http://h:80/?", false, "s3://b/a:b@c and http://h:80/?"),
            ("http://u:@h/", true, "http://u:@h/"),
        ] {
            let shown = without_queries(text.as_bytes(), |start| is_one && start == 0, ends_in_web);
            assert_eq!(String::from_utf8_lossy(&shown), expect, "{text}");
        }
    }
}
