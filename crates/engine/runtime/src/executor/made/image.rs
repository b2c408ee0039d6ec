//! Root file systems of container images.
//!
//! In: an archive, either of a root file system or of an image as `docker save`, `podman save` and `skopeo copy` write it (an OCI
//! layout or Docker's own one). Out: a folder with
//!
//! ```text
//! root/        the root file system, with the places in it where the node mounts something
//! image.env    the variables that the image sets, if it is an image
//! ```
//!
//! The layers of an image are applied in their order, and what a layer takes away (`.wh.NAME`, `.wh..wh..opq`) goes. As in other
//! trees that are made, owners, devices and pipes are not kept, and nothing is written outside of the folder.
//!
//! Not here: how a program is run with that root (`eyas_runner::container`).

use super::archive::{self, Bounds, Kind, Tree, damaged, plain};
use super::trees;
use eyas_runner::container::{ENV_FILE, MOUNT_FILES, MOUNT_FOLDERS, ROOT, env_text};
use eyas_text::shown;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";
const INDEX: &str = "index.json";
const LAYOUT: &str = "oci-layout";
/// How the files of Apptainer and Singularity begin.
pub(super) const SIF_BEGINS: &[u8] = b"#!/usr/bin/env run-singularity\n";
/// What of a layer says that something of the layers below is gone.
const GONE: &[u8] = b".wh.";
const ALL_GONE: &[u8] = b".wh..wh..opq";
/// A file of JSON in an image is not longer.
const JSON_BYTES_MAX: u64 = 16 << 20;
/// Names of which a root file system has one at its top.
const OF_ROOTS: [&str; 5] = ["bin", "usr", "sbin", "lib", "etc"];
/// How digests of images begin.
const SHA256: &str = "sha256:";
/// Indexes may lie in each other so deep.
const INDEXES_MAX: u32 = 8;

/// Where the archive is unpacked to, in the folder in which the image is made.
pub(super) fn root_in(work: &Path) -> PathBuf {
    work.join(ROOT)
}

/// Makes the image of what was unpacked to [`root_in`]. `node`: this node's folder, which is mounted at its own place.
pub(super) fn settle(work: &Path, node: &Path, bounds: &mut Bounds<'_>) -> io::Result<()> {
    let root = root_in(work);
    let is_oci = root.join(INDEX).is_file() && root.join(LAYOUT).is_file();
    // A program may keep a file of these names at the top of its root.
    let is_root = OF_ROOTS.iter().any(|name| fs::symlink_metadata(root.join(name)).is_ok());
    if !is_root && (is_oci || root.join(MANIFEST).is_file()) {
        let packed = work.join("packed");
        fs::rename(&root, &packed)?;
        fs::create_dir(&root)?;
        let image = if packed.join(MANIFEST).is_file() { of_docker(&packed)? } else { of_oci(&packed)? };
        for (n, layer) in image.layers.iter().enumerate() {
            let mut bytes = BufReader::with_capacity(super::BLOCK_BYTES, File::open(layer)?);
            let kind = Kind::of(&mut bytes)?;
            let digest = apply(bytes, kind, &root, bounds)?;
            if image.digests.get(n).is_some_and(|right| *right != digest) {
                let name = layer.strip_prefix(&packed).unwrap_or(layer).to_string_lossy().into_owned();
                return Err(damaged(&format!(
                    "its layer {} has other bytes than its digest says",
                    shown(&name)
                )));
            }
        }
        trees::remove(&packed);
        fs::write(work.join(ENV_FILE), env_text(&image.env))?;
    } else if !is_root {
        let mut names: Vec<String> =
            fs::read_dir(&root)?.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let few: Vec<String> = names.iter().take(3).map(|name| shown(name).to_string()).collect();
        return Err(damaged(&format!(
            "it is neither an image nor a root file system: at its top there is {}, and none of {}",
            few.join(", "),
            OF_ROOTS.join(", ")
        )));
    }
    make_mount_points(&root, node)
}

/// An image as its archive describes it.
struct Image {
    /// The lowest one first.
    layers: Vec<PathBuf>,
    /// The digests of the layers as they are unpacked, `sha256:` and 64 digits each, as far as the image says them.
    digests: Vec<String>,
    /// The variables that it sets.
    env: Vec<String>,
}

impl Image {
    /// An image with these layers. Errors: its configuration is for another machine.
    fn new(layers: Vec<PathBuf>, config: &Value) -> io::Result<Image> {
        let digests = config["rootfs"]["diff_ids"].as_array().map_or(&[][..], |digests| digests);
        let digests: Vec<String> = digests.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        // Digests of another kind are not known here.
        let is_known =
            digests.len() == layers.len() && digests.iter().all(|digest| digest.starts_with(SHA256));
        Ok(Image { digests: if is_known { digests } else { vec![] }, env: env_of(config)?, layers })
    }
}

/// The form of `docker save`, which newer ones write beside the other form.
fn of_docker(packed: &Path) -> io::Result<Image> {
    let manifest = json(&packed.join(MANIFEST))?;
    let images = manifest.as_array().ok_or_else(|| damaged("its manifest.json is no list of images"))?;
    let [image] = &images[..] else {
        let why = format!("it has {} images in it; save the one that is meant", images.len());
        return Err(damaged(&why));
    };
    let missing = || damaged("its manifest.json names no layers or no configuration");
    let config = image["Config"].as_str().ok_or_else(missing)?;
    let layers = image["Layers"].as_array().ok_or_else(missing)?;
    let layers: Vec<&str> = layers.iter().filter_map(Value::as_str).collect();
    let config = json(&member(packed, config)?)?;
    let layers = layers.into_iter().map(|layer| member(packed, layer)).collect::<io::Result<_>>()?;
    Image::new(layers, &config)
}

/// The form of the Open Container Initiative: <https://github.com/opencontainers/image-spec>, `image-layout.md`.
fn of_oci(packed: &Path) -> io::Result<Image> {
    let mut others = BTreeSet::new();
    let index = json(&packed.join(INDEX))?;
    let Some(manifest) = manifest_of(packed, &index, 0, &mut others)? else {
        let others: Vec<String> = others.into_iter().collect();
        return Err(damaged(&match others.is_empty() {
            true => "its index names no image".to_string(),
            false => for_others(&others.join(", ")),
        }));
    };
    let layers = manifest["layers"].as_array().map_or(&[][..], |layers| layers);
    let layers = layers.iter().map(|layer| blob(packed, layer)).collect::<io::Result<_>>()?;
    Image::new(layers, &json(&blob(packed, &manifest["config"])?)?)
}

/// The first image of an index that is for this machine. `others`: the machines that the others are for.
fn manifest_of(
    packed: &Path,
    index: &Value,
    depth: u32,
    others: &mut BTreeSet<String>,
) -> io::Result<Option<Value>> {
    if depth > INDEXES_MAX {
        return Err(damaged("its indexes lie too deep in each other"));
    }
    for descriptor in index["manifests"].as_array().map_or(&[][..], |all| all) {
        match descriptor["platform"]["architecture"].as_str() {
            // What says how an image was built is for no machine.
            Some("unknown") => continue,
            Some(name) if name != own_architecture() => {
                others.insert(name.to_string());
                continue;
            }
            _ => {}
        }
        let found = json(&blob(packed, descriptor)?)?;
        if found["manifests"].is_array() {
            if let Some(manifest) = manifest_of(packed, &found, depth + 1, others)? {
                return Ok(Some(manifest));
            }
        } else if found["layers"].is_array() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The variables of a configuration. Errors: the image is for another machine.
fn env_of(config: &Value) -> io::Result<Vec<String>> {
    if let Some(name) = config["architecture"].as_str()
        && name != own_architecture()
    {
        return Err(damaged(&for_others(name)));
    }
    let env = config["config"]["Env"].as_array().map_or(&[][..], |env| env);
    Ok(env.iter().filter_map(|entry| entry.as_str().map(str::to_string)).collect())
}

/// What an image calls the machines that this program is built for: the names of the language Go.
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        name => name,
    }
}

fn for_others(machines: &str) -> String {
    format!("the image is for {machines}, and this node is {}", own_architecture())
}

/// The file that a descriptor names by its digest.
fn blob(packed: &Path, descriptor: &Value) -> io::Result<PathBuf> {
    let digest = descriptor["digest"].as_str().unwrap_or("");
    let Some((kind, hex)) = digest.split_once(':') else {
        return Err(damaged("a part of the image is named by no digest"));
    };
    member(packed, &format!("blobs/{kind}/{hex}"))
}

/// A file of the archive, which may be a symbolic link to another one.
fn member(packed: &Path, name: &str) -> io::Result<PathBuf> {
    let lacks = || damaged(&format!("its file {} is not in it", shown(name)));
    let path = packed.join(name).canonicalize().map_err(|_| lacks())?;
    match path.starts_with(packed.canonicalize()?) && path.is_file() {
        true => Ok(path),
        false => Err(lacks()),
    }
}

fn json(path: &Path) -> io::Result<Value> {
    let mut text = vec![];
    File::open(path)?.take(JSON_BYTES_MAX).read_to_end(&mut text)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    serde_json::from_slice(&text).map_err(|e| damaged(&format!("its file {} is no JSON: {e}", shown(&name))))
}

/// Applies a layer to the root file system in the folder `root`. Gives the digest of the layer as it is unpacked.
fn apply(bytes: impl BufRead, kind: Kind, root: &Path, bounds: &mut Bounds<'_>) -> io::Result<String> {
    let mut hasher = Sha256::new();
    archive::with_plain(bytes, kind, |bytes| {
        apply_plain(&mut Hashed { bytes, hasher: &mut hasher }, root, bounds)
    })?;
    let digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{SHA256}{digits}"))
}

/// Bytes that are hashed as they are read.
struct Hashed<'a> {
    bytes: &'a mut dyn Read,
    hasher: &'a mut Sha256,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.bytes.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }
}

fn apply_plain(bytes: &mut dyn Read, root: &Path, bounds: &mut Bounds<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(bytes);
    // What this layer has: what it takes away concerns the layers below.
    let (mut own, mut cleared) = (HashSet::new(), HashSet::new());
    let mut tree = Tree::new(root, bounds)?;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = plain(&entry.path()?)?;
        let Some(name) = path.file_name() else { continue };
        let parent = path.parent().unwrap_or(Path::new(""));
        let above = tree.find(parent)?;
        if name.as_bytes() == ALL_GONE {
            if let Some(dir) = above
                && cleared.insert(parent.to_path_buf())
            {
                clear(&dir, parent, &own)?;
                tree.forget();
            }
            continue;
        }
        if let Some(gone) = name.as_bytes().strip_prefix(GONE) {
            if matches!(gone, b"" | b"." | b"..") {
                let name = shown(&path.to_string_lossy()).to_string();
                return Err(damaged(&format!("its entry {name} takes away no file")));
            }
            let gone = std::ffi::OsStr::from_bytes(gone);
            if let Some(dir) = above
                && !own.contains(&parent.join(gone))
            {
                tree.remove(&dir.join(gone));
            }
            continue;
        }
        let is_dir = entry.header().entry_type().is_dir();
        match above {
            None => clear_way(&mut tree, root, parent),
            Some(dir) => {
                let at = dir.join(name);
                if !(is_dir && fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir())) {
                    tree.remove(&at);
                }
            }
        }
        for part in path.ancestors() {
            if !own.insert(part.to_path_buf()) {
                break;
            }
        }
        tree.unpack(&mut entry)?;
    }
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

/// Removes the file that is in the way of a directory, if there is one.
fn clear_way(tree: &mut Tree<'_, '_>, whole: &Path, directory: &Path) {
    let mut path = whole.to_path_buf();
    for part in directory.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return tree.remove(&path),
            Err(_) => return,
        }
    }
}

/// Removes what is in `dir`, which the image calls `name`, except what is this layer's `own`.
fn clear(dir: &Path, name: &Path, own: &HashSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        match own.contains(&name) {
            true if entry.file_type()?.is_dir() => clear(&entry.path(), &name, own)?,
            true => {}
            false => trees::remove(&entry.path()),
        }
    }
    Ok(())
}

/// Makes the places where the node mounts its own.
fn make_mount_points(root: &Path, node: &Path) -> io::Result<()> {
    for name in MOUNT_FOLDERS {
        make_folder(root, Path::new(name.trim_start_matches('/')), true)?;
    }
    for name in MOUNT_FILES {
        let name = Path::new(name.trim_start_matches('/'));
        make_folder(root, name.parent().unwrap_or(Path::new("")), true)?;
        let path = root.join(name);
        if !fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
            trees::remove(&path);
            File::create(&path)?;
        }
    }
    make_folder(root, node.strip_prefix("/").unwrap_or(node), false)
}

/// Makes a folder, and those that it is in. `replaces`: what is there and is no folder goes.
fn make_folder(root: &Path, name: &Path, replaces: bool) -> io::Result<()> {
    let mut path = root.to_path_buf();
    for part in name.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) if replaces => trees::remove(&path),
            Ok(_) => {
                let at = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                return Err(damaged(&format!(
                    "this node's folder /{} has to be seen in the container, and /{at} is no folder in the image; \
                     give this node another --dir or --node-dir",
                    name.display()
                )));
            }
            Err(_) => {}
        }
        fs::create_dir(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_data::Halt;

    #[test]
    fn a_root_file_system_may_have_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let root = root_in(dir.path());
        fs::create_dir_all(root.join("usr")).unwrap();
        fs::write(root.join(MANIFEST), "{}").unwrap();
        let halt = Halt::default();
        let mut bounds = Bounds::new(&halt, dir.path(), 1 << 20, 0).unwrap();
        settle(dir.path(), Path::new("/var/node"), &mut bounds).unwrap();
        assert!(root.join(MANIFEST).is_file() && !dir.path().join(ENV_FILE).exists());
    }
}
