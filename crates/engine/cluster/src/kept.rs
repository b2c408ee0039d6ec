//! What a cluster that stays keeps of the way its nodes were requested, in the folder of its dispatcher.

use eyas_runtime::provider::left_file;
use eyas_text::{reason, shown_path};
use std::path::{Path, PathBuf};

/// What the provider of a cluster that stays was started with, in the folder of its dispatcher: whoever ends the cluster needs it
/// where the provider is gone.
const WORDS: &str = "provider.json";

#[derive(thiserror::Error, Debug)]
#[error("cannot write {}: {}", shown_path(path), reason(source))]
pub struct NotKept {
    path: PathBuf,
    source: std::io::Error,
}

/// Keeps what the provider is started with; `None`: there is none any more.
pub fn keep(dispatcher_dir: &Path, words: Option<&[String]>) -> Result<(), NotKept> {
    let path = dispatcher_dir.join(WORDS);
    if words.is_none() {
        let _ = std::fs::remove_file(left_file(dispatcher_dir));
    }
    let kept = match words {
        Some(words) => std::fs::write(&path, serde_json::to_vec(words).expect("texts can be written")),
        None => match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
    };
    kept.map_err(|source| NotKept { path, source })
}

pub fn is_kept(dispatcher_dir: &Path) -> bool {
    dispatcher_dir.join(WORDS).exists()
}

/// What [`keep`] kept.
pub fn words(dispatcher_dir: &Path) -> Option<Vec<String>> {
    serde_json::from_slice(&std::fs::read(dispatcher_dir.join(WORDS)).ok()?).ok()
}

/// The kind of provider that the cluster was started with last, if its nodes are elsewhere.
pub fn provider(dispatcher_dir: &Path) -> Option<String> {
    let words = words(dispatcher_dir)?;
    let kind = words.iter().find_map(|word| word.strip_prefix("--provider="))?;
    (kind != "local").then(|| kind.to_string())
}
