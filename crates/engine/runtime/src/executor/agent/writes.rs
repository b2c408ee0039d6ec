//! Whether programs write to cached inputs that they share with the cache and with each other.
//!
//! In: the inputs that an attempt links, and when it ends. Out: which cached bytes can no longer be trusted,
//! and which inputs an attempt may have written to. How the kernel reports writes:
//! [`crate::executor::watch`].

use super::attempts::Attempt;
use super::launch::is_program;
use super::objects::Objects;
use crate::executor::watch::{Watch, Watched, Written};
use eyas_core::event::Staged;
use eyas_data::Store;
use eyas_session::executor::Book;
use eyas_terms::{Digest, ObjectId, is_directory};
use rustc_hash::FxHashMap;
use std::path::Path;

/// See the module.
pub(super) struct Writes {
    /// `None`: the system does not report writes to inputs, so all inputs are copied.
    watch: Option<Watch>,
    /// How many attempts have a link to each cached copy, or are about to.
    n_linked: FxHashMap<Digest, u32>,
}

impl Writes {
    /// For the executor that lives in `dir`.
    pub(super) fn start(dir: &Path) -> Writes {
        let watch = Watch::new().inspect_err(|e| {
            eprintln!(
                "eyas: {}: the system does not tell who writes to files ({e}), so inputs are copied; raise \
                 fs.inotify.max_user_instances to have them linked",
                dir.display()
            )
        });
        Writes { watch: watch.ok(), n_linked: FxHashMap::default() }
    }

    /// Asks the kernel to report writes to the cached objects that will be linked for `attempt`. Inputs for
    /// which this does not work are copied, too.
    pub(super) fn begin(&mut self, attempt: &mut Attempt, staged: &[Staged], objects: &Objects, book: &Book) {
        let Some(watch) = &mut self.watch else { return };
        for (i, ((name, location), staged)) in attempt.spec.inputs.iter().zip(staged).enumerate() {
            let Staged::Cached(object) = staged else { continue };
            // A program is copied because it needs another mode, and a directory is made anew.
            if is_program(&attempt.spec, name) || is_directory(location) {
                continue;
            }
            if let Some(digest) = book.digest(*object)
                && let Ok(watched) = watch.begin(digest, &objects.path_of(digest))
            {
                attempt.watched.push((i as u32, watched));
            }
        }
    }

    /// Decides which of its watched inputs `attempt` gets as links: those whose cached copy shows what is to be shown of them. Two
    /// objects of the same bytes have one copy, and perhaps two times.
    pub(super) fn link(&mut self, attempt: &mut Attempt, staged: &[Staged], objects: &Objects, book: &Book) {
        let for_others = attempt.account().is_some();
        for (i, _) in &attempt.watched {
            let Some(Staged::Cached(object)) = staged.get(*i as usize) else { continue };
            let Some(digest) = book.digest(*object) else { continue };
            let n_linked = self.n_linked.get(&digest).copied().unwrap_or(0);
            if objects.show((*object, digest), book, n_linked == 0, for_others) {
                self.n_linked.insert(digest, n_linked + 1);
                attempt.linked.push((*i, digest));
            }
        }
    }

    /// Takes in the kernel's reports, and marks the bytes in the `store` that were written to. The reports
    /// include everything that was done by processes which have been waited for.
    pub(super) fn hear(&mut self, store: &Store) {
        let Some(watch) = &mut self.watch else { return };
        for (digest, written) in watch.read() {
            match written {
                Written::Yes => store.condemn(&digest.0.into()),
                Written::Perhaps => store.doubt(&digest.0.into()),
                Written::No => {}
            }
        }
    }

    /// Inputs of `attempt` that a process had open for writing, but may not have changed.
    pub(super) fn doubted(
        &self,
        attempt: &Attempt,
        inputs: &[ObjectId],
        book: &Book,
    ) -> Vec<(Digest, Watched)> {
        let doubted = self.inputs_with(attempt, |written| written == Written::Perhaps);
        doubted.filter_map(|(i, watched)| Some((book.digest(*inputs.get(i as usize)?)?, watched))).collect()
    }

    /// Doubted bytes were read through and found whole.
    pub(super) fn settle(&mut self, whole: Vec<Watched>) {
        if let Some(watch) = &mut self.watch {
            whole.into_iter().for_each(|watched| watch.settle(watched));
        }
    }

    /// Positions of the inputs of `attempt` that were, or may have been, written to.
    pub(super) fn written(&self, attempt: &Attempt) -> impl Iterator<Item = u32> {
        self.inputs_with(attempt, |written| written != Written::No).map(|(i, _)| i)
    }

    /// The watched inputs of `attempt` of which `is_wanted` holds, with their positions.
    fn inputs_with(
        &self,
        attempt: &Attempt,
        is_wanted: impl Fn(Written) -> bool,
    ) -> impl Iterator<Item = (u32, Watched)> {
        let watched = self.watch.iter().flat_map(|watch| attempt.watched.iter().map(move |w| (watch, *w)));
        watched.filter(move |(watch, (_, watched))| is_wanted(watch.written(*watched))).map(|(_, w)| w)
    }

    /// `attempt` is over.
    pub(super) fn end(&mut self, attempt: &Attempt) {
        for (_, digest) in &attempt.linked {
            if let Some(n) = self.n_linked.get_mut(digest) {
                *n -= 1;
                if *n == 0 {
                    self.n_linked.remove(digest);
                }
            }
        }
        if let Some(watch) = &mut self.watch {
            attempt.watched.iter().for_each(|(_, watched)| watch.end(*watched));
        }
    }
}
