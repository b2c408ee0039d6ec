//! Objects that this node makes of packed files: once, for all tasks that need them.
//!
//! The core asks for such an object as if home had it. What is made is a *file*, which goes into the cache's store like
//! any other object and has the digest of its bytes; or a *tree* ([`trees`]), which programs share as it lies on the disk.
//! A tree's digest is computed from the packed file's digest and the recipe, so equal trees have equal digests on all
//! nodes, and whoever wants another one is told that the packed file has changed.
//!
//! Nothing half made is ever seen: a file is in the store when it is complete, and a tree has a name that nobody knows
//! before it is complete.
//!
//! How large an object will be is not known before it is made. A result that is larger than the room it was given is put
//! aside, and its size is reported; the next call takes it over.
//!
//! Not here: when something is made, and what leaves the cache (`eyas-core`).

mod archive;
mod image;
mod packed;
mod transform;
pub(super) mod trees;

use super::home_io::{data_error, disk_error};
use archive::Bounds;
use eyas_core::event::*;
use eyas_data::{Halt, Store};
use eyas_runner::Account;
use eyas_storage::Homes;
use eyas_terms::recipe::Recipe;
use eyas_terms::{Digest, MadeLocation};
use eyas_text::shown;
use packed::Packed;
pub(super) use packed::of_run;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trees::{Aside, Trees};

const BLOCK_BYTES: usize = 256 << 10;

/// One object that is to be made.
pub(super) struct Wanted<'a> {
    pub location: &'a str,
    /// The packed object in the store; `None`: it is read from home.
    pub packed: Option<Digest>,
    pub known: Option<&'a Known>,
    /// The room that the object was given.
    pub room_bytes: u64,
    /// Where it goes if it is for one attempt only.
    pub private: Option<&'a Path>,
}

/// Where objects come from and go to.
pub(super) struct Shop<'a> {
    pub homes: &'a Homes,
    pub store: &'a Store,
    pub trees: &'a Trees,
    pub halt: &'a Halt,
    /// Whose rights count. `None`: those of this process.
    pub reader: Option<&'a Account>,
}

/// Makes an object. An error says in one sentence what cannot be made of what, and why.
pub(super) fn make(shop: &Shop<'_>, wanted: &Wanted<'_>) -> Result<Fetched, TransferError> {
    let unmakeable = |message| TransferError { kind: TransferErrorKind::Unmakeable, message };
    let Some((made, recipe)) =
        MadeLocation::of(wanted.location).and_then(|m| Some((m, Recipe::parse(m.recipe)?)))
    else {
        return Err(unmakeable(format!("this node does not know how {} is made", shown(wanted.location))));
    };
    if shop.reader.is_some() && runs_programs(&recipe) {
        return Err(unmakeable(only_for_owner(wanted.location)));
    }
    if let Some(aside) = shop.trees.take_aside(wanted.location) {
        if wanted.known.is_none_or(|known| known.digest == aside.digest()) {
            return keep(shop, wanted, aside);
        }
        aside.remove();
    }
    let mut packed = Packed::open(shop, made.packed, wanted.packed)?;
    let work = shop.trees.begin().map_err(|e| disk_error("make a folder", &e))?;
    let done = match (&recipe, made.is_directory) {
        (Recipe::Gzip | Recipe::Zstd, _) => decompress(shop, wanted, &recipe, &mut packed),
        _ => make_aside(shop, &made, &recipe, &mut packed, &work.path),
    };
    // Errors of the packed file's home, and of this node's disk, are no fault of the packed file.
    let done = done.map_err(|why| match why {
        _ if shop.halt.is_stopped() => super::home_io::given_up(),
        Fault::Told(error) => error,
        Fault::Io(e) => packed.failed.take().unwrap_or_else(|| match os_error(&e) {
            Some(code) if is_of_disk(code) => {
                disk_error("make an object", &io::Error::from_raw_os_error(code))
            }
            _ => unmakeable(sentence(&made, &recipe, &text_of(&e))),
        }),
        Fault::Why(why) => unmakeable(sentence(&made, &recipe, &why)),
    })?;
    let fetched = match done {
        Done::Fetched(fetched) => fetched,
        Done::Aside { is_tree } => {
            let of = packed.digest()?;
            let path = work.path.clone();
            let aside = match is_tree {
                true => Aside::tree(
                    work.keep(),
                    derived(&recipe, of),
                    packed.version(),
                    shop.trees.are_for_others(),
                )
                .map_err(|e| disk_error("look at what was made", &e))?,
                false => {
                    let file = path.join(transform::RESULT);
                    Aside::of_file(work.keep(), &file, packed.version(), shop.halt)
                        .map_err(|e| disk_error("read what was made", &e))?
                }
            };
            if let Some(known) = wanted.known
                && known.digest != aside.digest()
            {
                aside.remove();
                return Err(changed(&made));
            }
            return keep(shop, wanted, aside);
        }
    };
    match wanted.known {
        Some(known) if known.digest != fetched.digest => {
            // A file that is in the store already is another object's, or leaves when room is needed.
            Err(changed(&made))
        }
        _ => Ok(Fetched { version: packed.version(), ..fetched }),
    }
}

/// Whether something is made by a program of the user's, which this process would run with its own rights.
fn runs_programs(recipe: &Recipe) -> bool {
    matches!(recipe, Recipe::Command(_) | Recipe::Environment)
}

/// Why a user's task cannot have the object at this location on a node with `--system-users`, as a sentence; `None` if it can.
pub(super) fn why_not_for_users(location: &str) -> Option<String> {
    let recipe = Recipe::parse(MadeLocation::of(location)?.recipe)?;
    runs_programs(&recipe).then(|| only_for_owner(location))
}

fn only_for_owner(location: &str) -> String {
    let packed = MadeLocation::of(location).map_or(location, |made| made.packed);
    format!(
        "what is made of {} is made by a program with the node's own rights, so on a node with --system-users only tasks of \
         the cluster's owner may have it; unpack it in the task instead",
        shown(packed)
    )
}

fn changed(made: &MadeLocation<'_>) -> TransferError {
    let message = format!("{} changed since this run first read what is made of it", shown(made.packed));
    TransferError { kind: TransferErrorKind::Changed, message }
}

/// What cannot be made of what, and why.
fn sentence(made: &MadeLocation<'_>, recipe: &Recipe, why: &str) -> String {
    let packed = shown(made.packed);
    match recipe {
        Recipe::Command(words) => {
            format!("the transform {} of {packed} failed: {why}", shown(&words.join(" ")))
        }
        Recipe::Environment => format!("the environment {packed} cannot be unpacked: {why}"),
        Recipe::Container => format!("{packed} cannot be made a container: {why}"),
        named => format!("{packed} cannot be unpacked as {named}: {why}"),
    }
}

/// The digest of the tree that a recipe makes of a packed file.
fn derived(recipe: &Recipe, packed: Digest) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("eyas: a tree that is made of a packed file");
    hasher.update(&packed.0).update(recipe.to_string().as_bytes());
    Digest(*hasher.finalize().as_bytes())
}

/// Why something is not made.
enum Fault {
    Told(TransferError),
    Io(io::Error),
    Why(String),
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Fault {
        Fault::Io(e)
    }
}

/// What became of a packed file.
enum Done {
    /// It is where it belongs.
    Fetched(Fetched),
    /// It is in the folder that was given for the work.
    Aside { is_tree: bool },
}

/// An error and the errors inside it, from the outside in.
fn causes(e: &io::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = e;
    std::iter::successors(Some(first), |error| {
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// The number of the operating system's error that is somewhere inside this one.
fn os_error(e: &io::Error) -> Option<i32> {
    causes(e).find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
}

/// What the error and those inside it say. The unpacker of tar archives names a file, and the cause is an error inside.
fn text_of(e: &io::Error) -> String {
    let mut text = String::new();
    for said in causes(e).map(|error| error.to_string()) {
        if !text.contains(&said) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = text + colon + &said;
        }
    }
    text
}

/// Whether the system's error says that this node has a problem, not the packed file.
fn is_of_disk(code: i32) -> bool {
    [
        libc::ENOSPC,
        libc::EDQUOT,
        libc::EROFS,
        libc::EIO,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
    ]
    .contains(&code)
}

/// Puts what was made where it belongs, or aside again if there is too little room for it.
fn keep(shop: &Shop<'_>, wanted: &Wanted<'_>, aside: Aside) -> Result<Fetched, TransferError> {
    let (size_bytes, version) = (aside.size_bytes(), aside.version());
    if let Some(path) = wanted.private {
        let digest = aside.digest();
        aside.move_to(path).map_err(|e| disk_error("make a private copy", &e))?;
        return Ok(Fetched { digest, size_bytes, version });
    }
    if size_bytes > wanted.room_bytes {
        shop.trees.put_aside(wanted.location, aside);
        return Err(larger(size_bytes));
    }
    let digest = aside.digest();
    match aside.file() {
        None => shop.trees.add(aside),
        Some(file) => {
            let reservation = shop.store.reserve(size_bytes).map_err(|e| data_error(&e))?;
            let stored = shop.store.adopt(&file, reservation.until(shop.halt)).map_err(|e| data_error(&e));
            aside.remove();
            stored?;
        }
    }
    Ok(Fetched { digest, size_bytes, version })
}

fn larger(bytes: u64) -> TransferError {
    TransferError { kind: TransferErrorKind::Larger { bytes }, message: format!("it has {bytes} bytes") }
}

/// Makes a tree, or a file by a transform, in the folder `work`.
fn make_aside(
    shop: &Shop<'_>,
    made: &MadeLocation<'_>,
    recipe: &Recipe,
    packed: &mut Packed<'_>,
    work: &Path,
) -> Result<Done, Fault> {
    match recipe {
        Recipe::Command(words) => {
            let from = match packed.path() {
                Some(path) => path,
                None => spill(packed, &shop.trees.beside(work, "in"))?,
            };
            let done = transform::run(words, &from, work, made.is_directory, shop.halt);
            let _ = std::fs::remove_file(shop.trees.beside(work, "in"));
            done.map_err(Fault::Why)?;
        }
        Recipe::Zip => unzip(shop, packed, work, &mut bounds(shop, packed, work)?)?,
        Recipe::Container => {
            let mut bounds = bounds(shop, packed, work)?;
            bounds.is_root = true;
            let root = image::root_in(work);
            std::fs::create_dir(&root)?;
            let mut packed = BufReader::with_capacity(BLOCK_BYTES, packed);
            if packed.fill_buf()?.starts_with(image::SIF_BEGINS) {
                return Err(Fault::Why("it is a SIF image, and its name does not end in .sif".into()));
            }
            match archive::Kind::of(&mut packed)? {
                archive::Kind::Zip => unzip(shop, packed.into_inner(), &root, &mut bounds)?,
                kind => archive::untar(packed, kind, &root, &mut bounds)?,
            }
            image::settle(work, shop.trees.node(), &mut bounds)?;
        }
        _ => {
            let mut bounds = bounds(shop, packed, work)?;
            let mut packed = BufReader::with_capacity(BLOCK_BYTES, packed);
            match (recipe, archive::Kind::of(&mut packed)?) {
                (Recipe::Environment, archive::Kind::Zip) => {
                    unzip(shop, packed.into_inner(), work, &mut bounds)?
                }
                (_, kind) => archive::untar(packed, kind, work, &mut bounds)?,
            }
            if *recipe == Recipe::Environment {
                transform::settle_environment(work, shop.halt).map_err(Fault::Why)?;
            }
        }
    }
    Ok(Done::Aside { is_tree: made.is_directory })
}

/// What may be made of a packed file on the disk of `dir`.
fn bounds<'a>(shop: &Shop<'a>, packed: &Packed<'_>, dir: &Path) -> io::Result<Bounds<'a>> {
    Bounds::new(shop.halt, dir, packed.size_bytes(shop.store), shop.store.budget_bytes())
}

/// An archive that is read from its end needs a file.
fn unzip(
    shop: &Shop<'_>,
    packed: &mut Packed<'_>,
    work: &Path,
    bounds: &mut Bounds<'_>,
) -> Result<(), Fault> {
    let spilled = shop.trees.beside(work, "in");
    let from = match packed.path() {
        Some(path) => path,
        None => {
            packed.rewind()?;
            spill(packed, &spilled)?
        }
    };
    let done = archive::unzip(File::open(from)?, work, bounds);
    let _ = std::fs::remove_file(spilled);
    Ok(done?)
}

fn spill(packed: &mut Packed<'_>, path: &Path) -> io::Result<PathBuf> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(packed, &mut file)?;
    Ok(path.to_path_buf())
}

/// Decompresses into the store or a private file. If there is too little room, the rest is only counted.
fn decompress(
    shop: &Shop<'_>,
    wanted: &Wanted<'_>,
    recipe: &Recipe,
    packed: &mut Packed<'_>,
) -> Result<Done, Fault> {
    let mut bounds = bounds(shop, packed, shop.trees.node())?;
    let packed = BufReader::with_capacity(BLOCK_BYTES, packed);
    let mut bytes: Box<dyn Read + '_> = match recipe {
        Recipe::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        _ => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
    };
    let mut block = vec![0; BLOCK_BYTES];
    let mut size_bytes = 0;
    if let Some(path) = wanted.private {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut hasher = blake3::Hasher::new();
        loop {
            match bytes.read(&mut block)? {
                0 => break,
                n => {
                    bounds.take(n as u64)?;
                    hasher.update(&block[..n]);
                    file.write_all(&block[..n])?;
                    size_bytes += n as u64;
                }
            }
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        return Ok(Done::Fetched(Fetched { digest, size_bytes, version: None }));
    }
    let told = |e: &eyas_data::Error| Fault::Told(data_error(e));
    let reservation = shop.store.reserve(wanted.room_bytes).map_err(|e| told(&e))?;
    let mut incoming = Some(shop.store.begin(reservation.until(shop.halt)));
    loop {
        let n = bytes.read(&mut block)?;
        if n == 0 {
            break;
        }
        size_bytes += n as u64;
        bounds.take(n as u64)?;
        if size_bytes > wanted.room_bytes {
            incoming = None;
        }
        if let Some(incoming) = &mut incoming {
            incoming.append(&block[..n]).map_err(|e| told(&e))?;
        }
    }
    let Some(incoming) = incoming else { return Err(Fault::Told(larger(size_bytes))) };
    let stored = incoming.finish(None).map_err(|e| told(&e))?;
    let digest = Digest(stored.digest.into());
    Ok(Done::Fetched(Fetched { digest, size_bytes: stored.size, version: None }))
}
