//! Paths and URLs, each turned into its one text, so that equal files have equal strings.
//!
//! Home storage defines these texts ([`eyas_storage::canonical`]), so it reads them back unchanged. A task
//! list has further rules of its own:
//!
//! * `run:NAME` is a file that stays on the nodes: NAME is a relative path within the run's own name space. One that ends
//!   in `/` is a directory, as with paths.
//! * A path ends in a name, and does not begin with a `~` that a shell would have replaced.
//!
//! Not here: whether a file exists at a location.

use crate::error::{Error, Result, shown};
use eyas_storage::canonical::{self, Refusal, Spelling, Url};
use eyas_storage::signed::without_secrets;
use eyas_terms::location::{MADE, MadeLocation};
use std::borrow::Cow;
use std::path::Path;

/// The beginning of the location of a file that stays on the nodes.
pub const RUN_FILE: &str = eyas_terms::RUN_FILE;

/// The text of a base directory; a relative one is taken from the working directory.
pub(crate) fn base_text(dir: &Path) -> Result<String> {
    let absolute = std::path::absolute(dir)
        .map_err(|e| Error::io(format!("cannot tell where the directory {} is", dir.display()), e))?;
    let text = absolute.to_str().ok_or_else(|| {
        Error::invalid(format!("the name of the directory {} is not UTF-8", absolute.display()))
    })?;
    Ok(canonical::base_text(text))
}

/// Appends the one text of the file `text`; `base` comes from [`base_text`].
pub(crate) fn push_location(out: &mut String, text: &str, base: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid("a location is empty"));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!("the location {} holds a NUL byte", shown(text))));
    }
    if let Some(made) = MadeLocation::of(text) {
        out.push_str(&text[..MADE.len() + made.recipe.len() + 1]);
        push_location(out, made.packed, base)?;
        if made.is_directory {
            out.push('/');
        }
        return Ok(());
    }
    if let Some(name) = text.strip_prefix(RUN_FILE) {
        return push_run_file(out, text, name);
    }
    let Some(url) = Url::split(text) else { return push_path(out, text, base) };
    match url.canonical(out) {
        Some(Ok(Spelling::Path(path))) => push_path(out, &path, ""),
        Some(Ok(Spelling::Url)) => Ok(()),
        Some(Err(refusal)) => Err(refused(text, refusal)),
        None => {
            let scheme = url.scheme.to_ascii_lowercase();
            let message =
                format!("the scheme {} of {} is unknown", shown(&scheme), shown(&without_secrets(text)));
            Err(Error::invalid(message).hint(format!("known are {}", known())))
        }
    }
}

fn refused(text: &str, Refusal { why, hint, is_secret }: Refusal) -> Error {
    let error = match is_secret {
        true => Error::invalid(format!("a URL {why}")),
        false => Error::invalid(format!("{} {why}", shown(&without_secrets(text)))),
    };
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The possible beginnings of a location, for messages.
fn known() -> String {
    let mut words = vec!["a plain path".to_owned(), RUN_FILE.to_owned()];
    words.extend(eyas_storage::schemes().map(|scheme| format!("{scheme}://")));
    let last = words.pop().unwrap_or_default();
    format!("{} and {last}", words.join(", "))
}

fn push_run_file(out: &mut String, text: &str, name: &str) -> Result<()> {
    let why = match name {
        "" => Some("has no name"),
        _ if name.starts_with('/') => Some("has an absolute name"),
        _ if name.split('/').any(|part| part == "..") => Some("leads out of the run with `..`"),
        _ => None,
    };
    if let Some(why) = why {
        return Err(Error::invalid(format!("the location {} {why}", shown(text))).hint(
            "write run:NAME or run:DIR/NAME for a file that stays on the nodes, run:DIR/ for a directory",
        ));
    }
    out.push_str(RUN_FILE);
    let start = out.len();
    for part in name.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if out.len() > start {
            out.push('/');
        }
        out.push_str(part);
    }
    if out.len() == start {
        return Err(Error::invalid(format!("the location {} has no name", shown(text))));
    }
    if name.ends_with('/') {
        out.push('/');
    }
    Ok(())
}

/// Whether the text is a URL, with a known scheme or not.
pub(crate) fn is_url(text: &str) -> bool {
    Url::split(text).is_some()
}

/// The name of the file at a location that [`push_location`] wrote.
pub(crate) fn file_name(location: &str) -> Cow<'_, str> {
    if location.ends_with('/') && Url::split(location).is_some_and(Url::is_folder) {
        let bare = location.trim_end_matches('/');
        return match canonical::file_name(bare) {
            name if name.is_empty() => bare.rsplit('/').next().unwrap_or(bare).into(),
            name => name,
        };
    }
    canonical::file_name(location.strip_prefix(RUN_FILE).unwrap_or(location))
}

fn push_path(out: &mut String, text: &str, base: &str) -> Result<()> {
    let bare = text.trim_end_matches('/');
    if let "" | "." | ".." = bare.rsplit('/').next().unwrap_or(bare) {
        return Err(Error::invalid(format!(
            "the location {} names a directory by no name of its own",
            shown(text)
        ))
        .hint("write the name of a file, or that of a directory with a `/` behind it"));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(Error::invalid(format!(
            "in {} the `~` stands for itself: only shells know it",
            shown(text)
        ))
        .hint("write the whole path, or ./~ for a directory of that name"));
    }
    canonical::push_path(out, text, base);
    Ok(())
}

/// A file's path as seen from `base`, or its URL.
pub(crate) fn path_of<'i>(location: &'i str, base: &str) -> &'i str {
    let inside = location.strip_prefix(base.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    inside.unwrap_or(location)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<String> {
        let mut out = String::from("before");
        push_location(&mut out, text, "/base/dir").map(|()| out.split_off(6))
    }

    #[test]
    fn every_file_has_one_text() {
        for (text, expect) in [
            ("/a/b", "/a/b"),
            ("/a//./b", "/a/b"),
            ("/../a", "/a"),
            ("x", "/base/dir/x"),
            ("./x", "/base/dir/x"),
            ("../x", "/base/x"),
            ("x/", "/base/dir/x/"),
            ("./a//x//", "/base/dir/a/x/"),
            ("/a/x/", "/a/x/"),
            ("file:///a/x/", "/a/x/"),
            ("run:x", "run:x"),
            ("run:a//./x/", "run:a/x/"),
            ("../../../../x", "/x"),
            ("a/../x", "/base/dir/a/../x"),
            ("-rf", "/base/dir/-rf"),
            ("a b'\"\n%41#é", "/base/dir/a b'\"\n%41#é"),
            ("file:///a/b", "/a/b"),
            ("FILE://localhost/a%20b%25", "/a b%"),
            ("a:b", "/base/dir/a:b"),
            ("HTTP://Example.ORG:80", "http://example.org/"),
            ("https://h:8443/a b/é", "https://h:8443/a%20b/%C3%A9"),
            ("http://[::1]:9/x%zz", "http://[::1]:9/x%25zz"),
            ("S3://Bucket.a/a b+c%20d?#é", "s3://Bucket.a/a%20b%2Bc%20d%3F%23%C3%A9"),
        ] {
            assert_eq!(parse(text).unwrap(), expect, "{text:?}");
        }
        assert_eq!(base_text(Path::new("/a/./b//")).unwrap(), "/a/b");
        assert_eq!(base_text(Path::new("/")).unwrap(), "");
    }

    #[test]
    fn what_is_no_file_is_refused_with_a_reason() {
        for (text, expect) in [
            ("", "empty"),
            ("a\0b", "NUL"),
            ("file:///a%00b", "NUL"),
            ("/", "names a directory by no name"),
            ("..", "names a directory by no name"),
            ("../", "names a directory by no name"),
            ("a/./", "names a directory by no name"),
            ("run:", "has no name"),
            ("run:./", "has no name"),
            ("run:../x/", "leads out of the run"),
            (
                "GOPHER://bucket/key",
                "the scheme `gopher` of `GOPHER://bucket/key` is unknown\nhint: known are a plain path, run:, file://, http://, https://, s3://, gs://, az://, dav://, davs://, webhdfs://, swebhdfs://, sftp:// and data://",
            ),
            ("file://host/a", "three slashes"),
            ("file:///a%zz", "%25"),
            ("http:///a", "host"),
            ("http://h:99999/a", "port"),
            ("http://h/a#b", "fragment"),
            ("http://user:secret@h/a", "credentials"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains("secret"), "{text:?}: {error}");
        }
    }

    #[test]
    fn names_of_files() {
        for (location, expect) in [
            ("/a/b c", "b c"),
            ("/a/b c/", "b c"),
            ("run:a/b/", "b"),
            ("http://h/x/a%20b.fits?token=/1", "a b.fits"),
            ("http://h/", ""),
            ("s3://b/a/x%20y/", "x y"),
            ("data://E/", "E"),
            ("http://h/a%zz", "a%zz"),
        ] {
            assert_eq!(file_name(location), expect);
        }
    }

    proptest! {
        #[test]
        fn the_text_of_a_location_is_its_own_text(text in "(/|\\.\\.|http://h/|file:///|[^\\x00]){1,12}") {
            if let Ok(location) = parse(&text) {
                prop_assert_eq!(&parse(&location).unwrap(), &location);
                let at_home = location.parse::<eyas_storage::Location>().unwrap();
                prop_assert_eq!(at_home.as_str(), &location);
                prop_assert_eq!(at_home.file_name(), file_name(&location));
            }
        }
    }
}
