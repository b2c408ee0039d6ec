//! Files of data sets as a file system: programs that are not changed open them where they are.
//!
//! Input: a catalog. Output: a file system that the kernel asks for names and bytes (FUSE), read-only. Parts of files come
//! from the sites when a program reads them, each verified before the program sees it ([`eyas_catalog::PartReader`]).
//!
//! * `names`: the tree of labels, versions, directories and files, and the numbers by which the kernel knows them.
//! * `groups`: verified groups of files, kept in a bounded memory, and how many are read at once.
//! * `said`: what could not be read, and the errors that programs see.
//! * `files`: what the kernel asks ([`DataFiles`]).
//! * `skeleton`, `watch`, `notified`: the same names without FUSE, for one program and what it starts ([`Notified`]): its calls that name
//!   a path wait until a file that they open is complete.
//! * `keeper`: what ends that program where nobody answers its calls any more ([`Keeper`]).
//! * `private`: a view of all files that only this process and what it starts have, with one more directory in its root.
//!
//! Source: the adapter of GEMS (`Wozniak06` §III-B), which makes `/gems/KEY/path` a name that every program can open.
//!
//! Not here: writing. What a program writes goes to a directory of this machine, of which the caller makes a data set.

mod files;
mod groups;
mod keeper;
mod names;
mod notified;
mod private;
mod said;
mod skeleton;
mod watch;

pub use eyas_runner::seccomp::Filter;
pub use files::{DataFiles, Mount, Options, mount};
pub use keeper::Keeper;
pub use notified::Notified;
pub use private::{bind_below_own, bind_read_only, enter, unbind};
