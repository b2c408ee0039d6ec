//! The list of all kinds of home storage.
//!
//! To add a home, write one file below this one with a type that implements [`Kind`] and another one that implements
//! [`Home`](crate::Home), and add its `mod` and its line of [`KINDS`] here. `memory.rs`, which exists in tests only, is an example.
//! Its test is one call of the conformance suite.
//!
//! This file stands above those of the kinds. They and [`crate::Location`] know a kind by its number only ([`KindNo`]), and
//! the methods of the number that look into the list are here.

mod az;
mod bucket;
pub(crate) mod command;
pub(crate) mod data;
pub(crate) mod file;
mod gs;
pub(crate) mod http;
#[cfg(test)]
pub(crate) mod memory;
mod s3;
mod sftp;
mod webdav;
mod webhdfs;

use crate::kind::Kind;
use crate::scheme::KindNo;

/// All kinds, each on its line. The first one is the kind of plain paths.
static KINDS: &[&dyn Kind] = &[
    &file::Files,
    &http::Web,
    &s3::Buckets,
    &gs::Buckets,
    &az::Containers,
    &webdav::Shares,
    &webhdfs::Hdfs,
    &sftp::Hosts,
    &data::Data,
    &command::Commands,
    #[cfg(test)]
    &crate::kinds::memory::Memory,
];

/// Each kind, in the order of [`KindNo::index`].
pub(crate) fn kinds() -> impl Iterator<Item = &'static dyn Kind> {
    KINDS.iter().copied()
}

impl KindNo {
    /// The numbers of all kinds.
    pub fn all() -> impl Iterator<Item = KindNo> {
        (0..KINDS.len()).map(KindNo::new)
    }

    /// The kind of a URL's scheme, which may be written in any case.
    pub fn find(scheme: &str) -> Option<KindNo> {
        let has = |kind: &&dyn Kind| kind.schemes().iter().any(|own| own.eq_ignore_ascii_case(scheme));
        KINDS.iter().position(has).map(KindNo::new)
    }

    pub fn get(self) -> &'static dyn Kind {
        KINDS[self.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HomesConfig, HttpConfig, Location, schemes};

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
