//! The schemes of URLs that are understood, and the number of the kind of home that a location belongs to.
//!
//! No place of eyas outside this crate knows a scheme. Task lists and workflow files ask [`crate::canonical`] what a URL means.
//! What a number stands for is in the list of all kinds ([`crate::kinds`]).

/// The scheme of files of data sets. Alone of all it may stand without the two slashes: `data:LABEL/PATH`.
pub(crate) const DATA: &str = "data";

/// The place of a kind in the list of all kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindNo(u8);

impl KindNo {
    /// The kind whose locations are plain paths.
    pub const OF_PATHS: KindNo = KindNo(0);

    /// `index` is below the number of kinds.
    pub fn new(index: usize) -> KindNo {
        KindNo(index as u8)
    }

    /// Below the number of kinds.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    fn schemes(self) -> impl Iterator<Item = &'static str> {
        self.get().schemes().iter().copied()
    }
}

/// The schemes that every process understands, whatever its user has declared.
pub(crate) fn fixed_schemes() -> impl Iterator<Item = &'static str> {
    KindNo::all().filter(|kind| !kind.get().schemes_are_declared()).flat_map(KindNo::schemes)
}

/// The schemes that are understood, for messages.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    KindNo::all().flat_map(KindNo::schemes)
}

/// The schemes of homes that know on which hosts their objects lie, wherever these are.
pub(crate) fn schemes_with_places() -> impl Iterator<Item = &'static str> {
    KindNo::all().filter(|kind| kind.get().knows_places()).flat_map(KindNo::schemes)
}
