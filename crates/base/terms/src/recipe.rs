//! Recipes: how a node makes an object of a packed file.
//!
//! A recipe is a part of the made object's location ([`crate::location::MadeLocation`]), so equal recipes have equal texts, and
//! a text has no `:`. Who carries a recipe out is the driver of a node.

use std::fmt;

/// The words in a transform's command that stand for the packed file and for what is to be made.
pub const IN: &str = "{in}";
pub const OUT: &str = "{out}";

/// The beginning of the text of a transform.
const COMMAND: &str = "run=";

/// How an object is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// The bytes that a gzip or zstd file has inside.
    Gzip,
    Zstd,
    /// The tree in an archive. A tar archive may be compressed itself.
    Tar,
    Zip,
    /// The tree in an archive of a Python environment, which is told its new place if it has a program for that.
    Environment,
    /// The root file system in a container image.
    Container,
    /// What a program of the user makes.
    Command(Vec<String>),
}

/// The recipes that have a name.
const NAMED: [(&str, Recipe); 6] = [
    ("gzip", Recipe::Gzip),
    ("zstd", Recipe::Zstd),
    ("tar", Recipe::Tar),
    ("zip", Recipe::Zip),
    ("environment", Recipe::Environment),
    ("container", Recipe::Container),
];

impl Recipe {
    /// What [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Recipe> {
        if let Some(words) = text.strip_prefix(COMMAND) {
            let words: Option<Vec<String>> = words.split(',').map(decode).collect();
            return words.map(Recipe::Command);
        }
        NAMED.into_iter().find_map(|(name, recipe)| (name == text).then_some(recipe))
    }

    /// Whether it makes a directory; `None`: that is the user's to say.
    pub fn makes_directory(&self) -> Option<bool> {
        match self {
            Recipe::Gzip | Recipe::Zstd => Some(false),
            Recipe::Tar | Recipe::Zip | Recipe::Environment | Recipe::Container => Some(true),
            Recipe::Command(_) => None,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recipe::Command(words) = self else {
            let named = NAMED.iter().find(|(_, recipe)| recipe == self);
            return f.write_str(named.expect("all others have a name").0);
        };
        f.write_str(COMMAND)?;
        for (i, word) in words.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}", encode(word))?;
        }
        Ok(())
    }
}

/// Only letters, digits and a few signs stay as they are.
fn encode(word: &str) -> String {
    let mut text = String::new();
    for byte in word.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push((digit(rest.next())? * 16 + digit(rest.next())?) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::MadeLocation;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_one_recipe() {
        for (name, recipe) in NAMED {
            assert_eq!(recipe.to_string(), name);
            assert_eq!(Recipe::parse(name), Some(recipe));
        }
        for text in ["", "Tar", "xz", "run", "run=%4", "run=%ff", "run=%zz"] {
            assert_eq!(Recipe::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_command_survives_in_a_location(
            words in prop::collection::vec(".{0,12}", 1..4),
            packed in "(/|run:|s3://b/)[a-z:/]{0,8}[a-z]",
            is_directory in any::<bool>(),
        ) {
            let recipe = Recipe::Command(words);
            let text = recipe.to_string();
            let location = MadeLocation { recipe: &text, packed: &packed, is_directory }.text();
            let made = MadeLocation::of(&location).unwrap();
            prop_assert_eq!((made.packed, made.is_directory), (&*packed, is_directory));
            prop_assert_eq!(crate::is_directory(&location), is_directory);
            prop_assert_eq!(Recipe::parse(made.recipe), Some(recipe));
        }
    }
}
