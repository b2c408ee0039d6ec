//! The objects of this node: their numbers and names, their bytes in the cache, and where those came from.
//!
//! Which objects enter and leave the cache is decided elsewhere ([`eyas_core::executor`]).

use super::directory::{Directory, dir_error};
use super::input::{Input, Inputs, Start, send_event};
use super::node::NodeState;
use super::{AttemptId, ExecutorError, ExecutorOptions, runner};
use crate::executor::home_io::{keep_output, temporary};
use crate::executor::made::trees::Trees;
use crate::executor::origins::Origins;
use crate::executor::shown::{Shown, mode_of_input};
use crate::executor::watch::Watched;
use eyas_core::event::*;
use eyas_data::{Halt, Store};
use eyas_folder::UNKNOWN_TIME_NS;
use eyas_runner::Account;
use eyas_session::executor::{Book, ExecutorSession};
use eyas_terms::*;
use eyas_text::shown;
use std::path::PathBuf;
use std::time::Instant;

/// See the module.
pub(super) struct Objects {
    pub(super) store: Store,
    /// What was made on this node and is no file.
    pub(super) trees: Trees,
    origins: Origins,
    /// What programs are shown of the objects beside their bytes.
    pub(super) shown: Shown,
    /// Cached bytes that are not needed and that the disk refused to remove.
    unremoved: Vec<Digest>,
    inputs: Inputs,
}

impl Objects {
    /// Finds out what the cache in `directory` holds. Gives those objects and their names, too.
    pub(super) fn open(
        directory: &Directory,
        options: &ExecutorOptions,
        inputs: Inputs,
    ) -> Result<(Objects, Book, Vec<(ObjectId, Fetched)>), ExecutorError> {
        let store = directory.store.clone();
        let held: Vec<(Digest, u64)> = store.scan().into_iter().map(|(d, n)| (Digest(d.into()), n)).collect();
        let (origins, book, held) = Origins::open(&directory.path, &held).map_err(dir_error(options))?;
        let trees = directory.trees.clone();
        let mut shown = Shown::default();
        for (object, bytes) in &held {
            bytes.version.iter().for_each(|version| shown.read(*object, version));
        }
        Ok((Objects { store, trees, origins, shown, unremoved: vec![], inputs }, book, held))
    }

    pub(super) fn path_of(&self, digest: Digest) -> PathBuf {
        self.trees.path_of(&digest).unwrap_or_else(|| self.store.path_of(&digest.0.into()))
    }

    pub(super) fn holds(&self, digest: &Digest) -> bool {
        self.store.find(&digest.0.into()).is_some() || self.trees.has(digest)
    }

    /// Whether the bytes are one file on this node's disk.
    pub(super) fn is_file(&self, digest: &Digest) -> bool {
        !self.trees.has(digest) && self.store.find(&digest.0.into()).is_some()
    }

    // ------------------------------------------------------------ in and out of the cache

    /// The bytes of an object came into the cache.
    pub(super) fn came(&mut self, object: ObjectId, bytes: &Fetched, book: &Book) {
        if let Some(version) = &bytes.version {
            self.note_origin(object, bytes.digest, version, book);
        }
    }

    /// The bytes of an output came into the cache.
    pub(super) fn made(&mut self, object: ObjectId, marks: Option<Marks>) {
        if let Some(marks) = marks {
            self.shown.made(object, marks);
        }
    }

    /// The dispatcher has said what it knows of the inputs of an attempt.
    pub(super) fn learn(&mut self, inputs: &[AssignedInput]) {
        for input in inputs {
            if let Some(known) = &input.known {
                self.shown.learn(input.object, known);
            }
        }
    }

    /// Leaves out what was known of objects that have no name any more.
    pub(super) fn forget_shown(&mut self, book: &Book) {
        self.shown.forget(|object| book.has_name(object));
    }

    /// When programs are shown that the object was modified. `None`: when the cached copy was, because nobody knows better.
    pub(super) fn modified_ns(&self, object: ObjectId, book: &Book) -> Option<i64> {
        let stays = || book.location(object).starts_with(RUN_FILE);
        self.shown.modified_ns(object).or_else(|| (!stays()).then_some(UNKNOWN_TIME_NS))
    }

    /// The permissions with which programs get the object, see [`mode_of_input`].
    pub(super) fn mode_of_input(&self, object: ObjectId, for_others: bool) -> u32 {
        mode_of_input(self.shown.mode(object), for_others)
    }

    /// Whether a link to the cached copy of the object shows what programs are to see. `may_change`: no program sees it now, so it
    /// can be changed to be so. `for_others`: the program runs as another user.
    pub(super) fn show(
        &self,
        (object, digest): (ObjectId, Digest),
        book: &Book,
        may_change: bool,
        for_others: bool,
    ) -> bool {
        let mode = self.mode_of_input(object, for_others);
        // What goes wrong here with a link does not go wrong with a copy, or says there what it is.
        self.store.show(&digest.0.into(), self.modified_ns(object, book), mode, may_change).unwrap_or(false)
    }

    /// An output that is in the cache is at home, too, with this version.
    pub(super) fn landed(&mut self, object: ObjectId, version: &HomeVersion, book: &Book) {
        if let Some(digest) = book.digest(object) {
            self.note_origin(object, digest, version, book);
        }
    }

    fn note_origin(&mut self, object: ObjectId, digest: Digest, version: &HomeVersion, book: &Book) {
        self.shown.read(object, version);
        // Bytes that come late for an object which is forgotten have no name.
        if let Some(name) = book.find_name(object) {
            self.origins.note(name, digest, version);
        }
    }

    /// Puts an output of an attempt into the cache, or only hashes it where `cache_bytes` is `None`. `at`: where the output is,
    /// and how many names that file has. `account`: the system user of the program, if it has one of its own.
    pub(super) fn keep_output(
        &self,
        (task, attempt): AttemptId,
        (output, marks): (u32, Option<Marks>),
        at: Option<(PathBuf, u64)>,
        cache_bytes: Option<u64>,
        account: Option<Account>,
        halt: Halt,
    ) {
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            let result = match at {
                None => Err(temporary("the output is gone")),
                Some((path, n_links)) => {
                    keep_output(&store, &path, n_links, cache_bytes, account.as_ref(), &halt)
                }
            };
            send_event(&inputs, NodeEvent::OutputStored { task, attempt, output, marks, result });
        });
    }

    /// Removes bytes from the cache. If the disk refuses, for example because it takes no writes, the removal
    /// is tried again later.
    pub(super) fn remove(&mut self, digest: Digest) {
        if self.trees.remove(&digest) {
            return;
        }
        match self.store.remove(&digest.0.into()) {
            Ok(_) => {}
            // Bytes that are not there are as good as removed.
            Err(e) if e.kind == eyas_data::ErrorKind::NotHeld => {}
            Err(_) => self.unremoved.push(digest),
        }
    }

    /// Tries again to remove the bytes that the disk refused to remove.
    pub(super) fn remove_again(&mut self, session: &ExecutorSession) {
        for digest in std::mem::take(&mut self.unremoved) {
            // Bytes that were fetched again meanwhile are of use.
            let is_of_use = |object: &ObjectId| session.core().cache().state(*object).is_some();
            if !session.book().objects_with(digest).iter().any(is_of_use) {
                self.remove(digest);
            }
        }
    }

    /// Writes down the origins of bytes that arrived since the last call.
    pub(super) fn flush_origins(&mut self) {
        self.origins.flush();
    }

    // ------------------------------------------------------------ damage

    /// The cached bytes of `object` are not those that were stored, so no attempt gets them any more.
    pub(super) fn drop_damaged(&self, object: ObjectId, node: &mut NodeState) {
        eyas_text::say!(
            "eyas: the cached copy of {location} was changed; it is dropped, the next task fetches it again",
            location = shown(node.book().location(object))
        );
        node.feed(NodeEvent::FoundCorrupt { object });
    }

    /// As [`Self::drop_damaged`], for all objects that have these bytes.
    pub(super) fn drop_all_damaged(&self, digest: Digest, node: &mut NodeState) {
        for object in node.book().objects_with(digest) {
            self.drop_damaged(object, node);
        }
    }

    /// The cached bytes among the inputs of an attempt that must be read through before they are used.
    pub(super) fn doubted(&self, staged: &[Staged], book: &Book) -> Vec<Digest> {
        let cached = staged.iter().filter_map(|staged| match staged {
            Staged::Cached(object) => book.digest(*object),
            _ => None,
        });
        cached.filter(|digest| self.store.is_doubted(&digest.0.into())).collect()
    }

    /// Reads doubted bytes through, on a thread of its own, before the attempt starts that needs them.
    pub(super) fn read_before(&self, doubted: Vec<Digest>, start: Start, halt: Halt) {
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            for digest in doubted {
                // What is wrong, or cannot be read, is found again when the attempt starts.
                if store.settle(&digest.0.into(), &halt).is_err() {
                    break;
                }
            }
            let _ = inputs.send(Input::LookedBefore { start: Box::new(start) });
        });
    }

    /// An attempt has the trees among its inputs from now on; gives their numbers.
    pub(super) fn hold_trees(&self, staged: &[Staged], book: &Book) -> Vec<u64> {
        let cached = staged.iter().filter_map(|staged| match staged {
            Staged::Cached(object) => book.digest(*object),
            _ => None,
        });
        cached.filter_map(|digest| self.trees.hold(&digest)).collect()
    }

    /// An attempt that had these trees is over. What its program did to them is looked at if that is due.
    pub(super) fn release_trees(&self, numbers: &[u64]) {
        for &number in numbers {
            self.trees.release(number);
            if self.trees.take_due(number, Instant::now()) {
                let (trees, inputs) = (self.trees.clone(), self.inputs.clone());
                tokio::task::spawn_blocking(move || {
                    if let Some(digest) = trees.look(number) {
                        let _ = inputs.send(Input::FoundCorrupt(digest.0.into()));
                    }
                });
            }
        }
    }

    /// Drops inputs of an attempt that were damaged since they were cached, and ends the attempt if there are such inputs.
    /// That is not the task's fault, so the attempt is repeated. `true`: the attempt has ended.
    pub(super) fn refuse_damaged(&self, id: AttemptId, staged: &[Staged], node: &mut NodeState) -> bool {
        let mut damaged = vec![];
        let mut unseen = None;
        for staged in staged {
            let Staged::Cached(object) = staged else { continue };
            if node.book().digest(*object).is_some_and(|digest| self.trees.has(&digest)) {
                continue;
            }
            let opened = node.book().digest(*object).map(|digest| self.store.open_object(&digest.0.into()));
            match opened {
                Some(Ok(_)) => {}
                // A copy that cannot be read says nothing about its bytes.
                Some(Err(error)) if !error.is_damage() => unseen = Some(error),
                None | Some(Err(_)) if damaged.contains(object) => {}
                None | Some(Err(_)) => damaged.push(*object),
            }
        }
        if let (Some(error), true) = (unseen, damaged.is_empty()) {
            node.fail_unstarted(id, Failure { kind: FailureKind::Node, message: error.to_string() });
            return true;
        }
        let Some(first) = damaged.first() else { return false };
        let message = format!(
            "the cached copy of {name} was changed on this node's disk, and was dropped",
            name = shown(node.book().location(*first))
        );
        for object in damaged {
            self.drop_damaged(object, node);
        }
        node.fail_unstarted(id, Failure { kind: FailureKind::Node, message });
        true
    }

    /// Positions of the inputs of an attempt whose cached copy was written to, as the cache's seal shows. The
    /// slot process notices only a change of the very file that it linked, while the program ran.
    pub(super) fn damaged_inputs(&self, inputs: &[ObjectId], book: &Book) -> Vec<u32> {
        let is_damaged = |object: &ObjectId| {
            let digest = book.digest(*object);
            digest.is_some_and(|digest| self.store.modified(&digest.0.into()).unwrap_or(false))
        };
        (0..).zip(inputs).filter(|(_, object)| is_damaged(object)).map(|(i, _)| i).collect()
    }

    /// Reads through, on a thread of its own, the cached bytes that the program of `report` may have written
    /// to, and reports which are whole. The bytes may be right, for example if a tool opens a file for
    /// writing that it only reads.
    pub(super) fn read_through(
        &self,
        doubted: Vec<(Digest, Watched)>,
        report: runner::RunReport,
        halt: Halt,
    ) {
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            let is_whole = |digest: &Digest| !halt.is_stopped() && store.verify(&digest.0.into()).is_ok();
            let whole = doubted.into_iter().filter(|(digest, _)| is_whole(digest)).map(|(_, w)| w).collect();
            let _ = inputs.send(Input::Looked { report: Box::new(report), whole });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::executor::book::unless_dropped;

    #[test]
    fn bytes_that_went_with_another_object_were_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let keep = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "the same bytes").unwrap();
            keep_output(&store, &path, 1, Some(64), None, &Halt::default()).unwrap()
        };
        let (first, second) = (keep("first"), keep("second"));
        assert_eq!(first.digest, second.digest);
        let (task, attempt, output) = (TaskId(7), AttemptNo(1), 0);
        let stored =
            NodeEvent::OutputStored { task, attempt, output, marks: None, result: Ok(second.clone()) };
        let (target, source) = (Target::Cache(ObjectId(3)), Source::Home);
        let came = NodeEvent::TransferEnded { target, source, result: Ok(second) };
        let now = |event| unless_dropped(event, |digest| store.find(&digest.0.into()).is_some());
        assert_eq!(now(stored.clone()), stored);
        assert_eq!(now(came.clone()), came);

        // The first one is dropped before the event of the second one has come.
        store.remove(&first.digest.0.into()).unwrap();
        let NodeEvent::OutputStored { result: Err(error), .. } = now(stored) else {
            panic!("an output that is not there is reported as kept")
        };
        assert_eq!(error.kind, TransferErrorKind::Dropped);
        let NodeEvent::TransferEnded { result: Err(error), .. } = now(came) else {
            panic!("an input that is not there is reported as fetched")
        };
        assert_eq!(error.kind, TransferErrorKind::Dropped);
    }
}
