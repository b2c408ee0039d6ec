//! Inputs that each node makes once of packed files, as they are written in a task list, and back.
//!
//! Such an input is two files of the task: the packed one, which no program gets, and behind it the made one. Their
//! order and the packed one's name say so to everybody else ([`eyas_terms::location::PACKED_NAME`]).

use crate::error::Error;
use crate::file::File;
use crate::glob::stands_for_several;
use crate::location;
use eyas_terms::array::CONTAINER_NAME;
use eyas_terms::location::{MADE, MadeLocation, PACKED_NAME};
use eyas_terms::recipe::{IN, OUT, Recipe};
use eyas_text::{nearest, shown};
use std::borrow::Cow;

/// The fields of such an input.
pub(crate) const WISH_FIELDS: &[&str] = &["from", "unpack", "environment", "make"];
/// The values of `unpack`.
const UNPACK: &[&str] = &["gzip", "zstd", "tar", "zip"];

/// Such an input as it is written.
#[derive(Default)]
pub(crate) struct Wish<'a> {
    pub from: Option<Cow<'a, str>>,
    pub unpack: Option<Cow<'a, str>>,
    pub environment: Option<Cow<'a, str>>,
    pub make: Option<Vec<String>>,
}

/// What is wrong, and what to do.
type Wrong = (String, Option<String>);

impl<'a> Wish<'a> {
    /// The packed file and the made one. `name`: the made one's name in the sandbox; `None`: the packed one's without the
    /// ending that says how it is packed.
    pub fn files(self, name: Option<Cow<'a, str>>) -> Result<[File<'a>; 2], Wrong> {
        let Wish { from, unpack, environment, make } = self;
        let hint = || Some("write {\"from\": \"FILE\", \"unpack\": \"tar\"}".to_owned());
        let (packed, recipe) = match (from, unpack, environment, make) {
            (Some(from), Some(unpack), None, None) => (from, named(&unpack)?),
            (Some(from), None, None, Some(words)) => (from, command(words)?),
            (None, None, Some(from), None) => (from, Recipe::Environment),
            (None, ..) => {
                return Err(("an input does not say the file that it is made `from`".into(), hint()));
            }
            (Some(_), ..) => {
                let why = "an input says `from`, and then one of `unpack` and `make`";
                return Err((why.into(), hint()));
            }
        };
        if stands_for_several(&packed) || packed.ends_with('/') {
            let why = format!("{} stands for several files, and an input is made of one", shown(&packed));
            return Err((
                why,
                Some("name one file; write a name with wildcards in it as a URL of a file".into()),
            ));
        }
        let name = name.unwrap_or_else(|| Cow::Owned(bare_name(&location::file_name(&packed)).to_owned()));
        let bare = name.strip_suffix('/');
        let is_directory = recipe.makes_directory().unwrap_or(bare.is_some());
        if bare.is_some() && !is_directory {
            let why = format!("{} is the name of a directory, and `{recipe}` makes a file", shown(&name));
            return Err((why, None));
        }
        let name = bare.map_or_else(|| name.to_string(), str::to_owned);
        let made = MadeLocation { recipe: &recipe.to_string(), packed: &packed, is_directory }.text();
        Ok([
            File { name: Some(format!("{PACKED_NAME}{name}").into()), location: packed },
            File { name: Some(name.into()), location: made.into() },
        ])
    }
}

fn named(unpack: &str) -> Result<Recipe, Wrong> {
    if let Some(recipe) = Recipe::parse(unpack).filter(|_| UNPACK.contains(&unpack)) {
        return Ok(recipe);
    }
    let hint = match nearest(unpack, UNPACK) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", UNPACK.join(", ")),
    };
    Err((format!("eyas cannot `unpack` {}", shown(unpack)), Some(hint)))
}

fn command(words: Vec<String>) -> Result<Recipe, Wrong> {
    let has = |mark: &str| words.iter().any(|word| word.contains(mark));
    let why = match words.first() {
        None => "`make` names no program".to_owned(),
        Some(program) if program.is_empty() || program.contains(IN) => "`make` names no program".to_owned(),
        _ if words.iter().any(|word| word.contains('\0')) => "a word of `make` holds a NUL byte".to_owned(),
        _ if !has(IN) || !has(OUT) => {
            format!(
                "a word of `make` has to have `{IN}`, where the packed file is, and one `{OUT}`, where the result goes"
            )
        }
        _ => return Ok(Recipe::Command(words)),
    };
    Err((why, Some(format!("write [\"PROGRAM\", \"{IN}\", \"{OUT}\"]"))))
}

/// `a.tar.gz` is packed `a`.
fn bare_name(name: &str) -> &str {
    let endings = [".tar.gz", ".tar.zst", ".tgz", ".tzst", ".tar", ".zip", ".gz", ".zst"];
    let bare = endings.iter().find_map(|ending| name.strip_suffix(ending));
    bare.filter(|bare| !bare.is_empty()).unwrap_or(name)
}

/// The inputs of a task that runs in the container of an image: names and locations.
pub(crate) fn container_files(image: &str) -> Result<Vec<(String, String)>, Error> {
    if image.is_empty() || stands_for_several(image) || image.ends_with('/') || image.starts_with(MADE) {
        let why = format!("`container`: {} is no name of one file", shown(image));
        let hint = "name the packed image: an archive of a root file system, an OCI archive or a .sif";
        return Err(Error::invalid(why).field("container").hint(hint));
    }
    let own = CONTAINER_NAME.to_owned();
    if is_read_by_programs(image) {
        return Ok(vec![(own, image.to_owned())]);
    }
    let recipe = Recipe::Container.to_string();
    let made = MadeLocation { recipe: &recipe, packed: image, is_directory: true }.text();
    Ok(vec![(format!("{PACKED_NAME}{CONTAINER_NAME}"), image.to_owned()), (own, made)])
}

/// Whether the image is one that nodes do not unpack: a program such as Apptainer reads it as it is.
fn is_read_by_programs(image: &str) -> bool {
    location::file_name(image).to_ascii_lowercase().ends_with(".sif")
}

/// The image of a task's container, as it is written.
pub(crate) fn container(inputs: &[(String, String)]) -> Option<String> {
    let (_, location) = inputs.iter().find(|(name, _)| name == CONTAINER_NAME)?;
    let image = MadeLocation::of(location).map_or(&**location, |made| made.packed);
    Some(place(image))
}

/// A path with signs of a pattern is meant as it is.
fn place(location: &str) -> String {
    let text = |s: &str| serde_json::Value::from(s).to_string();
    match location.starts_with('/') && stands_for_several(location) {
        true => text(&eyas_storage::url_of_path(location)),
        false => text(&eyas_storage::signed::with_secrets(location)),
    }
}

/// An input of a task as [`Wish`] reads it; `None`: it is an ordinary one. `next`: the input behind it.
pub(crate) fn written(
    (name, location): &(String, String),
    next: Option<&(String, String)>,
) -> Option<Option<String>> {
    if name == CONTAINER_NAME {
        // It is a field of its own.
        return Some(None);
    }
    let text = |s: &str| serde_json::Value::from(s).to_string();
    if let Some(next) = next.and_then(|(_, location)| MadeLocation::of(location))
        && next.packed == location
        && name.starts_with(PACKED_NAME)
    {
        // It is written with the file that is made of it.
        return Some(None);
    }
    let made = MadeLocation::of(location)?;
    let recipe = Recipe::parse(made.recipe)?;
    let from = place(made.packed);
    let form = match &recipe {
        Recipe::Environment => format!("{{\"environment\":{from}}}"),
        Recipe::Command(words) => format!("{{\"from\":{from},\"make\":{}}}", serde_json::json!(words)),
        named => format!("{{\"from\":{from},\"unpack\":\"{named}\"}}"),
    };
    let slash = if made.is_directory && recipe.makes_directory().is_none() { "/" } else { "" };
    Some(Some(format!("{}:{form}", text(&format!("{name}{slash}")))))
}
