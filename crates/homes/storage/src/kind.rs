//! What a kind of home storage has to say about itself, so that it can stand in the list of all kinds ([`crate::kinds`]).

use crate::canonical::{Refusal, Spelling, Url};
use crate::error::Result;
use crate::{Capabilities, Home, HomesConfig};
use std::sync::Arc;

/// One kind of home storage, before anything is opened.
pub(crate) trait Kind: Sync {
    /// The schemes of its URLs, in lower case and without `://`. No two kinds have the same scheme.
    fn schemes(&self) -> &'static [&'static str];

    /// What its homes can do.
    fn capabilities(&self) -> &'static Capabilities;

    /// Whether its locations are URLs, and not paths that a URL is another spelling of.
    fn schemes_are_urls(&self) -> bool {
        true
    }

    /// Whether its schemes are those that the user has declared, and not the same ones in every process.
    fn schemes_are_declared(&self) -> bool {
        false
    }

    /// Whether a `?` in its URLs begins tags, also where its homes can list; elsewhere it is a pattern's.
    fn has_tags(&self) -> bool {
        false
    }

    /// Whether a `/` and a `..` in its names are characters as others, as in the keys of a bucket.
    fn names_are_flat(&self) -> bool {
        false
    }

    /// Whether its homes know on which hosts their objects lie ([`Home::places`]), wherever these are.
    fn knows_places(&self) -> bool {
        false
    }

    /// Appends the canonical text of a URL of this kind to `out`, or gives the path that the URL is another spelling of.
    ///
    /// URLs of one object have to get one text, and a canonical text has to be its own canonical text: caches and task
    /// lists compare nothing but these texts. The text has the form `scheme://authority/path?query`, the path and the
    /// query are percent-encoded, and only the query may be missing, so that names can be taken from it and joined to it
    /// without asking the kind.
    ///
    /// A URL with credentials in it has to be refused ([`Refusal::of_credentials`]), because the text goes into logs,
    /// journals and reports. What is in `out` after a refusal has no meaning.
    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal>;

    /// Makes the home that all locations of this kind belong to. A process does so once for each kind, whether it will use
    /// the home or not, so this opens no connection.
    ///
    /// This is where a kind gets its credentials. It reads them from where the tools of its system have them (a file of the
    /// user, the environment, as `http` does with the routes of the environment), or from a field of its own in
    /// [`HomesConfig`]. The home keeps them, and neither its errors nor its locations may show them.
    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>>;
}
