//! The names in the file system, and the numbers by which the kernel knows them.
//!
//! A number is given when a name is looked up first, and means the same until the file system ends. What a label without a
//! version means is settled then, too, so a program never sees two versions under one name.

use eyas_catalog::{Caller, Catalog, File, Key, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What stands before the name of a site in the root: `@SITE/KEY/PATH` is read at that site. No label begins with it.
pub(crate) const AT: char = '@';
/// The number of the root, as the kernel has it.
pub(crate) const ROOT: u64 = 1;

pub(crate) struct NameNode {
    pub(crate) parent: u64,
    /// Milliseconds since 1970.
    pub(crate) changed_ms: i64,
    pub(crate) kind: Kind,
}

/// The permissions that a file shows. Nothing can be written where it lies, and copies that programs make of it get these.
pub(crate) fn mode_of(file: &File) -> u32 {
    if file.is_executable { MODE_OF_PROGRAMS } else { 0o644 }
}

/// Of files that may be executed, and of directories.
pub(crate) const MODE_OF_PROGRAMS: u32 = 0o755;

#[derive(Clone)]
pub(crate) enum Kind {
    /// The labels that were looked up.
    Labels(BTreeMap<String, u64>),
    /// A site, whose copies alone are read below it, and the labels that were looked up there.
    Site(Arc<str>, BTreeMap<String, u64>),
    Directory(BTreeMap<String, u64>),
    /// A file, and the site whose copy is read; `None`: that of any site.
    File(Arc<Key>, Arc<File>, Option<Arc<str>>),
}

/// All names that are known.
pub(crate) struct Names {
    /// By number, from [`ROOT`] on.
    nodes: Vec<NameNode>,
}

impl Names {
    /// A root whose names are labels.
    pub(crate) fn of_labels() -> Names {
        Names { nodes: vec![NameNode { parent: ROOT, changed_ms: 0, kind: Kind::Labels(BTreeMap::new()) }] }
    }

    /// A root that is a version of a data set.
    pub(crate) fn of_set(set: &Set) -> Names {
        let mut names = Names { nodes: vec![] };
        names.add_set(set, ROOT);
        names
    }

    pub(crate) fn get(&self, number: u64) -> Option<&NameNode> {
        self.nodes.get(usize::try_from(number.checked_sub(ROOT)?).ok()?)
    }

    /// The number of a name in a directory.
    pub(crate) fn child(&self, parent: u64, name: &str) -> Option<u64> {
        match &self.get(parent)?.kind {
            Kind::Labels(names) | Kind::Site(_, names) | Kind::Directory(names) => names.get(name).copied(),
            Kind::File(..) => None,
        }
    }

    fn add(&mut self, node: NameNode) -> u64 {
        self.nodes.push(node);
        self.nodes.len() as u64
    }

    fn get_mut(&mut self, number: u64) -> &mut NameNode {
        &mut self.nodes[(number - ROOT) as usize]
    }

    /// Gives a name to a number in a directory.
    fn put(&mut self, parent: u64, name: &str, number: u64) {
        match &mut self.get_mut(parent).kind {
            Kind::Labels(names) | Kind::Site(_, names) | Kind::Directory(names) => {
                names.insert(name.to_owned(), number)
            }
            Kind::File(..) => unreachable!("a file has no names in it"),
        };
    }

    /// Makes an empty directory.
    pub(crate) fn add_directory(&mut self, parent: u64, name: &str, changed_ms: i64) -> u64 {
        let number = self.add(NameNode { parent, changed_ms, kind: Kind::Directory(BTreeMap::new()) });
        self.put(parent, name, number);
        number
    }

    /// Adds a site below the root, under its name with [`AT`] before it.
    pub(crate) fn add_site(&mut self, name: &str, site: &str) -> u64 {
        if let Some(number) = self.child(ROOT, name) {
            return number;
        }
        let kind = Kind::Site(site.into(), BTreeMap::new());
        let number = self.add(NameNode { parent: ROOT, changed_ms: 0, kind });
        self.put(ROOT, name, number);
        number
    }

    /// Adds a version below the root or a site, under the name by which it was looked up.
    pub(crate) fn add_key(&mut self, parent: u64, name: &str, set: &Set) -> u64 {
        if let Some(number) = self.child(parent, name) {
            return number;
        }
        let number = self.add_set(set, parent);
        self.put(parent, name, number);
        number
    }

    fn add_set(&mut self, set: &Set, parent: u64) -> u64 {
        let changed_ms = set.committed_ms;
        let top = self.add(NameNode { parent, changed_ms, kind: Kind::Directory(BTreeMap::new()) });
        for file in &set.files {
            let (above, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
            let mut directory = top;
            for part in above.split('/').filter(|part| !part.is_empty()) {
                directory = match self.child(directory, part) {
                    Some(known) => known,
                    None => self.add_directory(directory, part, changed_ms),
                };
            }
            let kind = Kind::File(set.key.clone(), Arc::new(file.clone()), set.site.clone());
            let number = self.add(NameNode { parent: directory, changed_ms, kind });
            self.put(directory, name, number);
        }
        top
    }
}

/// A version of a data set, with its files.
pub(crate) struct Set {
    pub(crate) key: Arc<Key>,
    pub(crate) committed_ms: i64,
    pub(crate) files: Vec<File>,
    /// The site whose copies are read; `None`: those of any site.
    pub(crate) site: Option<Arc<str>>,
}

impl Set {
    /// # Errors
    /// There is none that the caller may list.
    pub(crate) fn of(catalog: &Catalog, caller: &Caller, key: &Key, site: Option<Arc<str>>) -> Result<Set> {
        let shown = catalog.show(caller, key)?;
        let number = key.version.unwrap_or(shown.newest.version);
        let key = Key { label: key.label.clone(), version: Some(number) };
        let version = shown.versions.iter().find(|version| version.number == number);
        let committed_ms = version.map_or(0, |version| version.committed_ms);
        let files = catalog.files(caller, &key)?;
        Ok(Set { key: Arc::new(key), committed_ms, files, site })
    }
}
