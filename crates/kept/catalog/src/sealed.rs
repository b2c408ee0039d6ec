//! The files of a version, and a version as sites write it down.

use crate::error::Error;
use crate::key::Key;
use crate::rights::Acl;
use crate::tags::Tag;
use eyas_data::Digest;
use std::collections::BTreeMap;

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
    /// By which stores know who may read and execute it, also when the catalog is away.
    pub acl: Acl,
    pub files: Vec<File>,
}

/// What a site writes down of a version.
#[derive(serde::Serialize, serde::Deserialize)]
struct Seal {
    key: String,
    owner: String,
    created_ms: i64,
    copies: u32,
    tags: BTreeMap<String, String>,
    /// Not there: nobody but the owner has rights.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    acl: BTreeMap<String, String>,
    files: Vec<SealedFile>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct SealedFile {
    path: String,
    size_bytes: u64,
    digest: String,
    is_executable: bool,
}

impl Sealed {
    /// As a site writes it down, in JSON: enough to make the catalog anew.
    pub fn text(&self) -> Vec<u8> {
        let files = self.files.iter().map(|file| SealedFile {
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            digest: file.digest.to_string(),
            is_executable: file.is_executable,
        });
        let seal = Seal {
            key: self.key.to_string(),
            owner: self.owner.clone(),
            created_ms: self.created_ms,
            copies: self.copies,
            tags: self.tags.iter().map(|tag| (tag.name.clone(), tag.value.clone())).collect(),
            acl: self.acl.iter().map(|(subject, rights)| (subject.clone(), rights.to_string())).collect(),
            files: files.collect(),
        };
        serde_json::to_vec_pretty(&seal).expect("a seal can be written")
    }

    /// Reads what [`Sealed::text`] wrote; the error is the reason why it cannot be read.
    pub fn of_text(text: &[u8]) -> Result<Sealed, String> {
        let seal: Seal = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let key: Key = seal.key.parse().map_err(|error: Error| error.to_string())?;
        let files = seal.files.into_iter().map(|file| {
            let digest: Digest =
                file.digest.parse().map_err(|error: eyas_data::DigestParseError| error.to_string())?;
            Ok(File {
                path: file.path,
                size_bytes: file.size_bytes,
                digest,
                is_executable: file.is_executable,
            })
        });
        let tags = seal
            .tags
            .into_iter()
            .map(|(name, value)| Tag::new(name, value).map_err(|error| error.to_string()));
        let acl = seal.acl.into_iter().map(|(subject, rights)| {
            rights.parse().map(|rights| (subject, rights)).map_err(|error: Error| error.to_string())
        });
        Ok(Sealed {
            key,
            owner: seal.owner,
            created_ms: seal.created_ms,
            copies: seal.copies,
            tags: tags.collect::<Result<_, String>>()?,
            acl: acl.collect::<Result<_, String>>()?,
            files: files.collect::<Result<_, String>>()?,
        })
    }
}
