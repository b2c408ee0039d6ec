//! Files of this node's own disk that other nodes need: home is read into the cache here, as caches are what nodes
//! serve each other.
//!
//! A file is in `serving` from the dispatcher's request until the answer to it. Not here: why the dispatcher asks
//! (`dispatcher/residents.rs`).

use super::{Executor, Expect, Here, Transfer};
use crate::cache::Reserve;
use crate::event::{
    Fetched, HomeAnswer, NodeAction, NodeMessage, ReplicaAdded, Source, Target, TransferError,
    TransferErrorKind,
};
use eyas_terms::{ObjectId, RunId};
use std::collections::VecDeque;

impl Executor {
    pub(super) fn on_read_requested(&mut self, object: ObjectId, run: RunId, out: &mut Vec<NodeAction>) {
        self.serving.insert(object, run);
        match self.home.last(object) {
            Some((asked_run, answer)) if *asked_run >= run => {
                let answer = answer.clone();
                self.serve(object, &answer, out);
            }
            _ => {
                self.home.ask(object, run, false, out);
            }
        }
    }

    /// Home has answered about an object; `asked_run`: for which run it was asked.
    pub(super) fn serve_answered(
        &mut self,
        object: ObjectId,
        asked_run: RunId,
        result: &Result<HomeAnswer, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(run) = self.serving.get(&object).copied() else { return };
        match result {
            Ok(_) if asked_run < run => self.on_read_requested(object, run, out),
            Ok(answer) => {
                self.home.keep(object, asked_run, answer.clone());
                self.serve(object, answer, out);
            }
            Err(error) => self.not_served(object, error, out),
        }
    }

    /// Home's version is known: the object is read, if it is not here.
    fn serve(&mut self, object: ObjectId, answer: &HomeAnswer, out: &mut Vec<NodeAction>) {
        let expect = Expect { known: None, version: Some(answer.version.clone()) };
        let fail = |kind, message: &str| TransferError { kind, message: message.into() };
        match self.look(object, &expect) {
            Here::Right if self.cache.is_ready(object) => {
                let bytes = Fetched { version: Some(answer.version.clone()), ..self.held[&object].clone() };
                self.report_served(object, &bytes, out);
                return;
            }
            // The end of the transfer is the answer.
            Here::Right => return,
            Here::Taken => {
                let error = fail(TransferErrorKind::Temporary, "another version of it is in use there");
                return self.not_served(object, &error, out);
            }
            Here::Stale => {
                self.cache.remove(object).expect("stale bytes are held by nobody");
                self.evicted(object, out);
            }
            Here::Absent => {}
        }
        let size_bytes = answer.version.size_bytes;
        let mut evicted = vec![];
        let granted = self.cache.reserve(object, size_bytes, &mut evicted);
        for object in evicted {
            self.evicted(object, out);
        }
        let why_not = match granted {
            Reserve::Granted => None,
            Reserve::Wait { .. } => Some((
                TransferErrorKind::NoSpace,
                "the cache there, which would serve it, has no room for it",
            )),
            Reserve::NeverFits { .. } => Some((
                TransferErrorKind::Larger { bytes: size_bytes },
                "the cache there, which would serve it, is smaller than the file",
            )),
        };
        if let Some((kind, message)) = why_not {
            return self.not_served(object, &fail(kind, message), out);
        }
        let transfer = Transfer {
            object,
            size_bytes,
            expect,
            sources: VecDeque::from([Source::Home]),
            active: None,
            shares: false,
            place: None,
            waiters: vec![],
            story: vec![],
            batch: None,
            awaits: false,
            watched: false,
            made_of: None,
        };
        self.transfers.insert(Target::Cache(object), Box::new(transfer));
        self.queue_up(Target::Cache(object));
    }

    /// The object is here and was asked for; `true`: the dispatcher has been told. It is not told what was read before
    /// home has answered for the run: home's answer may be another version.
    pub(super) fn report_served(
        &mut self,
        object: ObjectId,
        bytes: &Fetched,
        out: &mut Vec<NodeAction>,
    ) -> bool {
        let asked_run = self.home.last(object).map(|(asked_run, _)| *asked_run);
        let Some(run) = self.serving.get(&object).copied().filter(|run| asked_run >= Some(*run)) else {
            return false;
        };
        self.serving.remove(&object);
        let Fetched { digest, size_bytes, version } = bytes.clone();
        let added = ReplicaAdded { object, digest, size_bytes, version, run: Some(run), private: false };
        out.push(NodeAction::Tell { message: NodeMessage::ReplicaAdded(added) });
        true
    }

    pub(super) fn not_served(&mut self, object: ObjectId, error: &TransferError, out: &mut Vec<NodeAction>) {
        if self.serving.remove(&object).is_some() {
            let message = NodeMessage::HomeNotRead { object, error: error.clone() };
            out.push(NodeAction::Tell { message });
        }
    }
}
