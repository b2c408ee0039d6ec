//! Locations: where a file lives, parsed from its text once.
//!
//! A file lives in home storage, at a path or an address, or it stays on the nodes: a task of its run makes
//! it, and it lives in caches and never goes home. Its text has two forms:
//!
//! | form | type | a file at home | a file that stays | who has it |
//! |---|---|---|---|---|
//! | as written | [`Location`] | `/sky/7.fits` | `run:NAME` | users, task lists, messages between dispatchers |
//! | the catalog's | [`CatalogLocation`] | `/sky/7.fits` | `run:SCOPE.RUN/NAME` | catalogs, executors, the event log |
//!
//! SCOPE belongs to the cluster, so that two runs may use the same names, and a cache filled by another
//! cluster never seems to hold our files. A text does not show in which form it is, because a NAME may
//! contain a `/`, too. So each form has a type: nothing gets a scope twice, and the catalog is never asked
//! for a file as users write it.
//!
//! A third kind is *made*: each node makes such an object itself from another one, by a recipe, and keeps it in its
//! cache for all tasks that need it (the type [`MadeLocation`]; decision 0054). To the rest of this crate it is an object at
//! home: the node is asked for its version, which is that of the packed file, and "reading it from home" makes it.
//!
//! Both types borrow a text and cost one comparison; nothing is allocated. Stored and sent data carry the
//! text. No other file of this crate knows how the texts are built.
//!
//! Not here: how users may spell a location (`eyas-tasklist`), and what home makes of a path
//! (`eyas-storage`).

use crate::array::{Pattern, TaskArray};
use crate::types::RunId;
use std::borrow::Cow;
use std::fmt;

/// The beginning of the text of a file that stays on the nodes, in both forms.
pub const RUN_FILE: &str = "run:";

/// The beginning of the location of a made object: `made:RECIPE:PACKED`, where PACKED is the location of the packed
/// file. Where a directory is made, a `/` follows.
pub const MADE: &str = "made:";

/// The beginning of the names that packed files have among the inputs of a task which needs only what is made of
/// them. The input that follows is the made object, and no program gets the packed file.
pub const PACKED_NAME: &str = ".packed/";

/// The location of an object that nodes make, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadeLocation<'a> {
    /// How it is made; it has no `:`. Only the driver of a node knows what it means.
    pub recipe: &'a str,
    /// The location of the packed file, in the form that the whole text has.
    pub packed: &'a str,
    pub is_directory: bool,
}

impl<'a> MadeLocation<'a> {
    /// `None`: the text is no such location.
    pub fn of(text: &'a str) -> Option<MadeLocation<'a>> {
        let (recipe, packed) = text.strip_prefix(MADE)?.split_once(':')?;
        let bare = packed.strip_suffix('/');
        Some(MadeLocation { recipe, packed: bare.unwrap_or(packed), is_directory: bare.is_some() })
    }

    /// The text, for a recipe without `:`.
    pub fn text(self) -> String {
        let MadeLocation { recipe, packed, is_directory } = self;
        format!("{MADE}{recipe}:{packed}{}", if is_directory { "/" } else { "" })
    }
}

/// Whether `text` is the location of a directory that nodes make. It is a tree on the node's disk and has no bytes
/// of its own, so nodes cannot send it to each other: the packed file travels.
pub fn is_made_tree(text: &str) -> bool {
    MadeLocation::of(text).is_some_and(|made| made.is_directory)
}

/// A location as users write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location<'a> {
    /// The whole text; only home storage knows what it means.
    Home(&'a str),
    /// A file that stays on the nodes, by its name within its run.
    Run { name: &'a str },
}

impl<'a> Location<'a> {
    pub fn of(text: &'a str) -> Location<'a> {
        match text.strip_prefix(RUN_FILE) {
            Some(name) => Location::Run { name },
            None => Location::Home(text),
        }
    }

    /// Whether the file stays on the nodes.
    pub fn stays(self) -> bool {
        matches!(self, Location::Run { .. })
    }

    /// Whether the location is a directory as one object: a path or a file of a run that ends in `/`.
    pub fn is_directory(self) -> bool {
        let name = match self {
            Location::Run { name } => Some(name),
            Location::Home(text) => text.strip_prefix('/').or_else(|| text.strip_prefix(MADE)),
        };
        name.is_some_and(|name| name.len() > 1 && name.ends_with('/'))
    }

    /// The text that this was parsed from.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Location::Home(text) => Cow::Borrowed(text),
            Location::Run { name } => Cow::Owned(format!("{RUN_FILE}{name}")),
        }
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Home(text) => f.write_str(text),
            Location::Run { name } => write!(f, "{RUN_FILE}{name}"),
        }
    }
}

/// The text of the file that stays on the nodes and that users call `name`.
pub fn run_file(name: impl fmt::Display) -> String {
    format!("{RUN_FILE}{name}")
}

/// See [`Location::is_directory`]. Works for locations in both forms, as both end alike.
pub fn is_directory(text: &str) -> bool {
    Location::of(text).is_directory()
}

/// A location in the catalog's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatalogLocation<'a> {
    /// The whole text.
    Home(&'a str),
    Run(RunFile<'a>),
}

impl<'a> CatalogLocation<'a> {
    pub fn of(text: &'a str) -> CatalogLocation<'a> {
        match text.strip_prefix(RUN_FILE) {
            // A text without a scope can only come from outside, by mistake.
            Some(scoped) => CatalogLocation::run(text, scoped.find('/').map_or(0, |slash| slash + 1)),
            None => CatalogLocation::Home(text),
        }
    }

    fn run(text: &'a str, scope_len: usize) -> CatalogLocation<'a> {
        CatalogLocation::Run(RunFile { text, name_at: RUN_FILE.len() + scope_len })
    }

    /// With what [`CatalogLocation::name_at`] gave when `text` was parsed, it need not be parsed again.
    pub fn parsed(text: &'a str, name_at: u32) -> CatalogLocation<'a> {
        match name_at {
            0 => CatalogLocation::Home(text),
            _ => CatalogLocation::Run(RunFile { text, name_at: name_at as usize }),
        }
    }

    /// Where the name within the run begins, 0 for a file at home. The text is shorter than 4 GiB.
    pub fn name_at(self) -> u32 {
        match self {
            CatalogLocation::Home(_) => 0,
            CatalogLocation::Run(file) => file.name_at as u32,
        }
    }

    /// Whether the file stays on the nodes.
    pub fn stays(self) -> bool {
        matches!(self, CatalogLocation::Run(_))
    }

    /// The text that this was parsed from.
    pub fn text(self) -> &'a str {
        match self {
            CatalogLocation::Home(text) | CatalogLocation::Run(RunFile { text, .. }) => text,
        }
    }

    /// The location as users write it.
    pub fn written(self) -> Location<'a> {
        match self {
            CatalogLocation::Home(text) => Location::Home(text),
            CatalogLocation::Run(file) => Location::Run { name: file.name() },
        }
    }
}

impl fmt::Display for CatalogLocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A file that stays on the nodes, in the catalog's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunFile<'a> {
    text: &'a str,
    name_at: usize,
}

impl<'a> RunFile<'a> {
    /// The name that users gave the file.
    pub fn name(self) -> &'a str {
        &self.text[self.name_at..]
    }

    /// The run that the file belongs to. `None`: no dispatcher made this text.
    pub fn run(self) -> Option<RunId> {
        let scope = self.text[RUN_FILE.len()..self.name_at].strip_suffix('/')?;
        scope.rsplit_once('.')?.1.parse().ok().map(RunId)
    }

    /// Whether the file belongs to the run with this scope.
    pub fn is_of(self, scope: &RunScope) -> bool {
        self.text[RUN_FILE.len()..].starts_with(&scope.0)
    }
}

/// The prefix that distinguishes the files of one run from those of all others: `SCOPE.RUN/`. The default is
/// the prefix of no run, with which both forms of a location are the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunScope(String);

impl RunScope {
    pub const NONE: &'static RunScope = &RunScope(String::new());

    /// `cluster` is the cluster's part of the scope, which must not contain a `/`.
    pub fn new(cluster: &str, run: RunId) -> RunScope {
        RunScope(format!("{cluster}.{run}/"))
    }

    /// Changes `text`, a location as users of the run write it, to the catalog's form.
    pub fn put_into<'t>(&self, text: &'t mut String) -> CatalogLocation<'t> {
        if !Location::of(text).stays() {
            // What is made of a file of the run belongs to the run, too.
            if let Some(at) = MadeLocation::of(text)
                .filter(|made| Location::of(made.packed).stays())
                .map(|made| MADE.len() + made.recipe.len() + 1 + RUN_FILE.len())
            {
                text.insert_str(at, &self.0);
            }
            return CatalogLocation::Home(text);
        }
        text.insert_str(RUN_FILE.len(), &self.0);
        CatalogLocation::run(text, self.0.len())
    }
}

/// Locations of folded tasks.
impl TaskArray {
    /// The location that `pattern` gives for task `i`. It is written to `text`, whose former content is lost.
    pub fn locate<'t>(&self, pattern: &Pattern, i: u32, text: &'t mut String) -> Location<'t> {
        text.clear();
        self.fill_into(pattern, i, text);
        Location::of(text)
    }

    /// Whether `pattern` may give some task a file that stays on the nodes.
    pub fn may_stay(&self, pattern: &Pattern) -> bool {
        self.may_begin(pattern, RUN_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Column, Command, Part, Piece, TaskForm};
    use proptest::prelude::*;

    #[test]
    fn a_text_is_a_location_at_home_or_a_file_of_a_run() {
        for text in ["", "/", "/sky/7.fits", "http://h/x", "run", "Run:x", "/run:x", " run:x"] {
            assert_eq!(Location::of(text), Location::Home(text));
            assert_eq!(CatalogLocation::of(text), CatalogLocation::Home(text));
        }
        for name in ["", "x", "a/b", "/x", "run:x", "d/"] {
            let text = run_file(name);
            assert_eq!(Location::of(&text), Location::Run { name });
            assert!(CatalogLocation::of(&text).stays());
        }
    }

    #[test]
    fn a_directory_has_a_name_and_a_slash() {
        for text in ["/d/", "/a/d/", "run:d/", "run:a/d/", "run:here.1/d/"] {
            assert!(is_directory(text), "{text}");
        }
        for text in ["", "/", "run:", "run:/", "/d", "run:d", "d/", "http://h/d/"] {
            assert!(!is_directory(text), "{text}");
        }
    }

    /// Executors name files that they hold, and may be wrong.
    #[test]
    fn what_no_dispatcher_made_is_of_no_run() {
        for text in ["run:", "run:x", "run:/x", "run:1/x", "run:here.x/x", "run:here./x", "run:here.-1/x"] {
            let CatalogLocation::Run(file) = CatalogLocation::of(text) else { panic!("{text}") };
            assert_eq!(file.run(), None, "{text}");
        }
        let of = |text| CatalogLocation::of(text).written();
        assert_eq!((of("run:x"), of("run:/x")), (Location::Run { name: "x" }, Location::Run { name: "x" }));
    }

    #[test]
    fn a_file_is_of_one_run() {
        let mut text = run_file("x");
        let CatalogLocation::Run(file) = RunScope::new("here", RunId(1)).put_into(&mut text) else {
            panic!()
        };
        assert!(file.is_of(&RunScope::new("here", RunId(1))));
        for (cluster, run) in [("here", 11), ("her", 1), ("there", 1), ("here.1", 1)] {
            assert!(!file.is_of(&RunScope::new(cluster, RunId(run))), "{cluster}.{run}");
        }
    }

    /// Texts of which many begin as a location does.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![".{0,8}", "run:.{0,8}", "run:[a-z.]{0,3}(/[a-z0-9./]{0,4}){0,2}", "/[a-z:]{0,6}/?"]
    }

    proptest! {
        #[test]
        fn parsing_and_writing_are_inverse(text in text()) {
            let (written, catalog) = (Location::of(&text), CatalogLocation::of(&text));
            prop_assert_eq!(&*written.text(), &text);
            prop_assert_eq!(written.to_string(), &*text);
            prop_assert_eq!(catalog.text(), &text);
            prop_assert_eq!(catalog.to_string(), &*text);
            prop_assert_eq!(CatalogLocation::parsed(&text, catalog.name_at()), catalog);
            prop_assert_eq!(written.stays(), catalog.stays());
            if let Location::Run { name } = written {
                prop_assert_eq!(run_file(name), &*text);
            }
        }

        #[test]
        fn a_scope_is_put_in_and_taken_out(text in text(), cluster in "[a-z0-9.-]{0,6}", run in any::<u32>()) {
            let scope = RunScope::new(&cluster, RunId(run));
            let mut scoped = text.clone();
            let location = scope.put_into(&mut scoped);
            prop_assert_eq!(location.written(), Location::of(&text));
            prop_assert_eq!(CatalogLocation::of(location.text()), location);
            match location {
                CatalogLocation::Home(at_home) => prop_assert_eq!(at_home, &text),
                CatalogLocation::Run(file) => {
                    prop_assert_eq!(file.run(), Some(RunId(run)));
                    prop_assert!(file.is_of(&scope));
                    prop_assert_eq!(file.text, format!("run:{cluster}.{run}/{}", file.name()));
                }
            }
            let mut same = text.clone();
            prop_assert_eq!(RunScope::NONE.put_into(&mut same).text(), &text);
        }

        /// The array says that a pattern may stay, whenever one of its tasks has a file that does.
        #[test]
        fn what_stays_may_stay(head in prop_oneof![Just(String::new()), text()], values in prop::collection::vec(text(), 1..4)) {
            let mut column = Column::default();
            values.iter().for_each(|value| assert!(column.push(value)));
            let hole = Piece::Column { column: 0, part: Part::Whole };
            let array = TaskArray {
                n_tasks: values.len() as u32,
                first_index: 0,
                template: TaskForm::new(Pattern::literal("t"), Command::Exec(vec![])),
                columns: vec![column],
                needs: None,
            };
            let mut text = String::new();
            for pattern in [Pattern(vec![hole.clone()]), Pattern(vec![Piece::Literal(head), hole])] {
                for i in 0..array.n_tasks {
                    let stays = array.locate(&pattern, i, &mut text).stays();
                    prop_assert!(!stays || array.may_stay(&pattern), "{}", text);
                }
            }
        }
    }
}
