//! What an S3 server says in XML: errors, listings, uploads.

use crate::Location;
use crate::canonical::percent_decode;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::bucket::{LIST, Page};
use crate::xml::each_text;

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

/// A page of a listing, from the answer to `ListObjectsV2`. Errors: it is not whole.
pub(super) fn page(directory: &Location, xml: &[u8]) -> Result<Page> {
    let mut page = Page::default();
    let (mut is_encoded, mut is_truncated) = (false, false);
    let outermost = each_text(xml, &mut |at, text| match at {
        "Contents/Key" => page.add(text.to_owned(), None),
        "Contents/Size" if text == "0" => page.is_empty_object(),
        "CommonPrefixes/Prefix" => page.prefixes.push(text.to_owned()),
        "NextContinuationToken" => page.next = Some(text.to_owned()),
        "IsTruncated" => is_truncated = text == "true",
        "EncodingType" => is_encoded = text == "url",
        _ => {}
    });
    outermost.check("ListBucketResult", LIST, directory)?;
    if is_encoded {
        // A space is written as `+` by some servers; a plus sign is always written as %2B.
        for name in page.keys.iter_mut().chain(&mut page.marks).chain(&mut page.prefixes) {
            if let Some(decoded) = percent_decode(&name.replace('+', " ")) {
                *name = decoded;
            }
        }
    }
    if !is_truncated {
        page.next = None;
    } else if page.next.is_none() {
        let reason =
            "the server says that there is more, and not how to ask for it: it does not know ListObjectsV2";
        return Err(Error::new(ErrorKind::Unsupported, Status::Permanent, LIST, directory, reason));
    }
    Ok(page)
}

/// Uploads that are under way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uploads {
    /// Key and name of each.
    pub uploads: Vec<(String, String)>,
    /// Key and name behind which the next page begins.
    pub next: Option<(String, String)>,
}

/// From the answer to `ListMultipartUploads`. Errors: it is not whole.
pub(super) fn uploads(place: &Location, xml: &[u8]) -> Result<Uploads> {
    let mut all = Uploads::default();
    let (mut is_truncated, mut next) = (false, (String::new(), String::new()));
    // Servers differ in which of the two comes first.
    let (mut key, mut id) = (None, None);
    let outermost = each_text(xml, &mut |at, text| {
        match at {
            "Upload/Key" => key = Some(text.to_owned()),
            "Upload/UploadId" => id = Some(text.to_owned()),
            "IsTruncated" => is_truncated = text == "true",
            "NextKeyMarker" => text.clone_into(&mut next.0),
            "NextUploadIdMarker" => text.clone_into(&mut next.1),
            _ => {}
        }
        if let (Some(_), Some(_)) = (&key, &id) {
            all.uploads.extend(key.take().zip(id.take()));
        }
    });
    outermost.check("ListMultipartUploadsResult", LIST, place)?;
    all.next = is_truncated.then_some(next);
    Ok(all)
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
        let at: Location = "s3://bucket/".parse().unwrap();
        let page = |xml: &[u8]| page(&at, xml);
        let read = page(xml).unwrap();
        let expect = Page {
            keys: vec!["a b+c\nd".into()],
            prefixes: vec!["e\u{e9}/".into()],
            next: Some("a&b".into()),
            ..Page::default()
        };
        assert_eq!(read, expect);
        let plain = b"<ListBucketResult><Contents><Key>a+b&lt;%41&#10;</Key></Contents>\
            <NextContinuationToken>x</NextContinuationToken></ListBucketResult>";
        let expect = Page { keys: vec!["a+b<%41\n".into()], ..Page::default() };
        assert_eq!(page(plain).unwrap(), expect);
        for not_whole in [
            "",
            "<broken",
            "<ListBucketResult><Contents><Key>a</Key></Contents>",
            "<ListBucketResult><Contents><Key>a</Con></ListBucketResult>",
            "<html><body>Please sign in</body></html>",
            "<Error><Code>InternalError</Code></Error>",
        ] {
            assert_eq!(page(not_whole.as_bytes()).unwrap_err().status(), Status::Temporary, "{not_whole}");
        }
        let endless = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert!(page(endless).unwrap_err().to_string().contains("not how to ask for it"));
    }

    #[test]
    fn uploads_are_read() {
        let xml = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>\
            <NextUploadIdMarker>2</NextUploadIdMarker><Upload><Key>a &amp; b</Key><UploadId>1</UploadId></Upload>\
            <Upload><UploadId>2</UploadId><Key>a</Key></Upload></ListMultipartUploadsResult>";
        let pair = |key: &str, id: &str| (key.to_owned(), id.to_owned());
        let expect =
            Uploads { uploads: vec![pair("a & b", "1"), pair("a", "2")], next: Some(pair("a", "2")) };
        let at: Location = "s3://bucket/".parse().unwrap();
        assert_eq!(uploads(&at, xml).unwrap(), expect);
        assert_eq!(uploads(&at, b"<ListMultipartUploadsResult/>").unwrap(), Uploads::default());
        assert!(uploads(&at, b"<ListBucketResult/>").is_err());
    }

    #[test]
    fn an_error_is_read() {
        let xml = b"<Error><Code>NoSuchKey</Code><Message>It's &quot;gone&quot;</Message></Error>";
        assert_eq!(text_at(xml, "Code").unwrap(), "NoSuchKey");
        assert_eq!(text_at(xml, "Message").unwrap(), "It's \"gone\"");
        assert_eq!(text_at(xml, "Other"), None);
    }
}
