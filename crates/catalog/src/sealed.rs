//! The files of a version, and a version as sites write it down.

use crate::key::Key;
use crate::tags::Tag;
use eyas_data::Digest;

/// A file of a version.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct File {
    /// Relative, with `/` between its parts.
    pub path: String,
    pub size_bytes: u64,
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    pub is_executable: bool,
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

/// A committed version with all that is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// With a version.
    pub key: Key,
    pub owner: String,
    pub created_ms: i64,
    /// How many copies of each file there should be.
    pub copies: u32,
    pub tags: Vec<Tag>,
    pub files: Vec<File>,
}
