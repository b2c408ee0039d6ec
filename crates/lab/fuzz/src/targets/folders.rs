//! The bytes of directories, as a peer or a damaged disk may give them.

use super::files::folder;
use crate::{Rng, Target};
use eyas_folder::{MAGIC, Modes, Packed, Times, Tree, unpack};
use std::fs;
use std::io::Read;
use std::path::Path;
use tempfile::TempDir;

/// An input is the bytes of one directory.
pub struct Folders {
    dir: TempDir,
}

impl Folders {
    pub fn new() -> Folders {
        Folders { dir: folder() }
    }
}

/// Adds what is in a directory, with its end.
fn fill(bytes: &mut Vec<u8>, rng: &mut Rng, depth: usize) {
    let mut name = vec![];
    for _ in 0..rng.below(4) {
        name.push(b'a' + rng.below(26) as u8);
        let letter = [b'f', b'x', b'l', b'd'][rng.below(4)];
        bytes.push(letter);
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(&name);
        match letter {
            b'l' => bytes.extend([&[2, 0, 0, 0], &b"./"[..]].concat()),
            b'd' if depth < 4 => fill(bytes, rng, depth + 1),
            b'd' => bytes.push(b'.'),
            _ => {
                let n = rng.below(30);
                bytes.extend((n as u64).to_le_bytes());
                bytes.resize(bytes.len() + n, b'-');
            }
        }
    }
    bytes.push(b'.');
}

/// Names in `dir` and what they are, without looking into directories.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the folder is there").flatten();
    let mut names: Vec<String> =
        entries.map(|e| format!("{:?} {:?}", e.file_name(), e.file_type().ok())).collect();
    names.sort();
    names
}

impl Target for Folders {
    fn name(&self) -> &'static str {
        "folders"
    }

    fn words(&self) -> &'static [&'static str] {
        &["..", "/", "../..", "/tmp", "l", "d", "f", "x", "."]
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        fill(&mut bytes, rng, 0);
        bytes
    }

    /// What is taken is packed to the very bytes; nothing is made beside the directory, whatever the bytes say.
    fn run(&mut self, bytes: &[u8]) {
        let into = self.dir.path().join("in/to");
        let _ = fs::remove_dir_all(self.dir.path().join("in"));
        fs::create_dir_all(&into).expect("a folder of our own");
        let around = [names(self.dir.path()), names(&self.dir.path().join("in"))];
        match unpack(&mut &bytes[..], &into, Modes::USUAL, Times::NOW, false, &mut || true) {
            Ok(()) => {
                let tree = Tree::of(&into).expect("what was taken can be packed");
                let mut again = vec![];
                Packed::new(&into, tree).read_to_end(&mut again).expect("nobody changes it");
                assert!(again == bytes, "one directory in two ways");
            }
            Err(error) => super::texts::check_message(&error.to_string()),
        }
        assert_eq!([names(self.dir.path()), names(&self.dir.path().join("in"))], around);
    }
}
