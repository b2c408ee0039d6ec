//! The kinds of home storage: one list of them, and the facts that each kind declares about itself.
//!
//! No other place of eyas knows a scheme. Task lists and workflow files ask here what a URL means
//! ([`crate::canonical`]), and [`crate::Homes`] opens all that is listed here.
//!
//! To add a home, write one file beside this one with a type that implements [`Kind`] and another one that implements
//! [`Home`]. Add its `mod` to `lib.rs`, and its name to the `use` and its line to [`KINDS`] below. `memory.rs`, which exists in tests only, is an example. Its test is one call
//! of the conformance suite.

use crate::canonical::{Refusal, Spelling, Url};
use crate::error::Result;
use crate::{Capabilities, Home, HomesConfig, command, file, http, s3, webdav, webhdfs};
use std::sync::Arc;

/// All kinds, each on its line. The first one is the kind of plain paths.
static KINDS: &[&dyn Kind] = &[
    &file::Files,
    &http::Web,
    &s3::Buckets,
    &webdav::Shares,
    &webhdfs::Hdfs,
    &command::Commands,
    #[cfg(test)]
    &crate::memory::Memory,
];

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

    /// Whether its homes know on which hosts their objects lie ([`Home::places`]).
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

/// The place of a kind in the list of all kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindNo(u8);

impl KindNo {
    /// The kind whose locations are plain paths.
    pub const OF_PATHS: KindNo = KindNo(0);

    /// The kind of a URL's scheme, which may be written in any case.
    pub fn find(scheme: &str) -> Option<KindNo> {
        let has = |kind: &&dyn Kind| kind.schemes().iter().any(|own| own.eq_ignore_ascii_case(scheme));
        KINDS.iter().position(has).map(|n| KindNo(n as u8))
    }

    pub fn get(self) -> &'static dyn Kind {
        KINDS[self.index()]
    }

    /// Below the number of kinds.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Each kind, in the order of [`KindNo::index`].
pub(crate) fn kinds() -> impl Iterator<Item = &'static dyn Kind> {
    KINDS.iter().copied()
}

/// The schemes that every process understands, whatever its user has declared.
pub(crate) fn fixed_schemes() -> impl Iterator<Item = &'static str> {
    let fixed = kinds().filter(|kind| kind.capabilities().name != command::NAME);
    fixed.flat_map(|kind| kind.schemes().iter().copied())
}

/// The schemes that are understood, for messages.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    kinds().flat_map(|kind| kind.schemes().iter().copied())
}

/// The schemes of homes that know on which hosts their objects lie.
pub fn schemes_with_places() -> impl Iterator<Item = &'static str> {
    kinds().filter(|kind| kind.knows_places()).flat_map(|kind| kind.schemes().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpConfig, Location};

    #[test]
    fn every_scheme_has_one_kind_and_every_home_is_of_its_kind() {
        let all: Vec<&str> = schemes().collect();
        let config = HomesConfig {
            http: HttpConfig { proxy_from_env: false, ..Default::default() },
            ..Default::default()
        };
        for (n, kind) in kinds().enumerate() {
            assert_eq!(kind.open(&config).unwrap().capabilities(), kind.capabilities());
            for scheme in kind.schemes() {
                assert_eq!(all.iter().filter(|other| *other == scheme).count(), 1, "{scheme}");
                assert_eq!(KindNo::find(&scheme.to_ascii_uppercase()).unwrap().index(), n);
                // Every kind understands a path behind its scheme, where an authority is needed as well as where none is.
                let url = ["h/d", "/h/d"].iter().find_map(|rest| format!("{scheme}://{rest}").parse().ok());
                let location: Location = url.unwrap();
                assert_eq!(location.scheme(), *scheme);
                assert_eq!(location.as_str().parse::<Location>().unwrap(), location);
                assert_eq!(location.file_name(), "d");
            }
        }
    }
}
