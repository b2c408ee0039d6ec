//! What an S3 server says in XML: errors, listings, uploads.

use crate::canonical::percent_decode;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// Calls `found` with the path of each element that has no elements in it, such as `Contents/Key`, and its text. The name of
/// the outermost element is left out, because servers differ in it.
///
/// Broken XML ends the walk early; what came before it counts.
pub(super) fn each_text(xml: &[u8], found: &mut dyn FnMut(&str, &str)) {
    let text = String::from_utf8_lossy(xml);
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut names: Vec<String> = Vec::new();
    let mut content = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                names.push(start.local_name().as_ref().to_owned());
                content.clear();
            }
            Ok(Event::Text(text)) => content.push_str(&text),
            Ok(Event::CData(text)) => content.push_str(&text),
            Ok(Event::GeneralRef(entity)) => match entity.resolve_char_ref() {
                Ok(Some(c)) => content.push(c),
                _ => {
                    content.push_str(resolve_predefined_entity(&entity).unwrap_or_default());
                }
            },
            Ok(Event::End(_)) => {
                if names.len() > 1 {
                    found(&names[1..].join("/"), &content);
                }
                names.pop();
                content.clear();
            }
            Ok(Event::Eof) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// The text of the element at `path`, and nothing if there is none.
pub(super) fn text_at(xml: &[u8], path: &str) -> Option<String> {
    let mut wanted = None;
    each_text(xml, &mut |at, text| {
        if at == path && wanted.is_none() {
            wanted = Some(text.to_owned());
        }
    });
    wanted
}

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub keys: Vec<String>,
    /// What all keys below one `/` begin with, that sign included.
    pub prefixes: Vec<String>,
    /// Asks for the next page.
    pub next: Option<String>,
}

impl Page {
    /// From the answer to `ListObjectsV2`.
    pub(super) fn read(xml: &[u8]) -> Page {
        let mut page = Page::default();
        let (mut is_encoded, mut is_truncated) = (false, false);
        each_text(xml, &mut |at, text| match at {
            "Contents/Key" => page.keys.push(text.to_owned()),
            "CommonPrefixes/Prefix" => page.prefixes.push(text.to_owned()),
            "NextContinuationToken" => page.next = Some(text.to_owned()),
            "IsTruncated" => is_truncated = text == "true",
            "EncodingType" => is_encoded = text == "url",
            _ => {}
        });
        if is_encoded {
            // A space is written as `+` by some servers; a plus sign is always written as %2B.
            for name in page.keys.iter_mut().chain(&mut page.prefixes) {
                if let Some(decoded) = percent_decode(&name.replace('+', " ")) {
                    *name = decoded;
                }
            }
        }
        if !is_truncated {
            page.next = None;
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_and_without_encoded_names() {
        let xml = br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
            <NextContinuationToken>a&amp;b</NextContinuationToken>
            <Contents><Key>a+b%2Bc%0Ad</Key><Size>1</Size></Contents>
            <CommonPrefixes><Prefix>e%C3%A9/</Prefix></CommonPrefixes></ListBucketResult>"#;
        let page = Page::read(xml);
        let expect = Page {
            keys: vec!["a b+c\nd".into()],
            prefixes: vec!["e\u{e9}/".into()],
            next: Some("a&b".into()),
        };
        assert_eq!(page, expect);
        let plain = b"<R><Contents><Key>a+b&lt;%41&#10;</Key></Contents><NextContinuationToken>x</NextContinuationToken></R>";
        assert_eq!(Page::read(plain), Page { keys: vec!["a+b<%41\n".into()], ..Page::default() });
        assert_eq!(Page::read(b"<broken"), Page::default());
    }

    #[test]
    fn an_error_is_read() {
        let xml = b"<Error><Code>NoSuchKey</Code><Message>It's &quot;gone&quot;</Message></Error>";
        assert_eq!(text_at(xml, "Code").unwrap(), "NoSuchKey");
        assert_eq!(text_at(xml, "Message").unwrap(), "It's \"gone\"");
        assert_eq!(text_at(xml, "Other"), None);
    }
}
