//! Inputs on their way to this node, from home or from a peer, and outputs on their way out of a sandbox.
//!
//! Each transfer has a thread of its own; its end comes back as an event.

use super::super::fetch::{Broken, Wanted, fetch};
use super::super::home_io::{data_error, home_error, keep_output, parse, read_home, temporary, version_of};
use super::super::landing::{Landing, bring_home};
use super::*;
use eyas_storage::Part;
use eyas_text::shown;

/// Objects up to this size share a stream with others; a larger one has its own.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// How long a peer is given to begin to receive what it shall send on.
const AWAIT_MAX: Duration = Duration::from_secs(30);

/// Says of a transfer how far it has come: after a moment, and each time that it has gone on for twice as long.
struct Watch {
    begun: Instant,
    moved_bytes: u64,
    /// `None`: nobody wants to know.
    next: Option<Duration>,
}

impl Watch {
    fn new(watched: bool) -> Watch {
        let next = watched.then_some(Duration::from_nanos(WATCH_NS_MIN));
        Watch { begun: Instant::now(), moved_bytes: 0, next }
    }

    /// So many bytes more have come.
    fn moved(&mut self, n_bytes: u64, say: &impl Fn(u64, Duration)) {
        self.moved_bytes += n_bytes;
        let Some(next) = self.next else { return };
        let moving = self.begun.elapsed();
        if moving >= next {
            say(self.moved_bytes, moving);
            self.next = Some(2 * moving);
        }
    }
}

impl Agent {
    pub(super) fn send_event(inputs: &mpsc::UnboundedSender<Input>, event: NodeEvent) {
        let _ = inputs.send(Input::Event(event));
    }

    pub(super) fn ask_home(&mut self, object: ObjectId) {
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        let text = self.book.location(object).to_string();
        tokio::task::spawn_blocking(move || {
            let result = parse(&text).and_then(|location| {
                let in_place = homes.local_path(&location).is_some();
                let stat = homes.stat(&location).map_err(|e| home_error(&e))?;
                Ok(HomeAnswer { version: version_of(&stat), in_place })
            });
            Self::send_event(&inputs, NodeEvent::HomeAnswered { object, result });
        });
    }

    pub(super) fn fetch_from_home(
        &mut self,
        target: Target,
        object: ObjectId,
        known: Option<Known>,
        size_bytes: u64,
        watched: bool,
    ) {
        // Home gives it from its beginning, into space of its own.
        self.begun.remove(&object);
        let (homes, inputs, store) = (self.homes.clone(), self.inputs.clone(), self.store.clone());
        let text = self.book.location(object).to_string();
        let private = match target {
            Target::Private { task, attempt, input } => Some(self.private_path((task, attempt), input)),
            Target::Cache(_) => None,
        };
        let by_file = self.home_share.bytes_per_s.is_none();
        let halt = self.halt.clone();
        tokio::task::spawn_blocking(move || {
            let source = Source::Home;
            let said = |moved_bytes, moving: Duration| {
                let moving_ns = moving.as_nanos() as u64;
                let moved =
                    InputMoved { target, object, source, moved_bytes, size_bytes, moving_ns, is_all: false };
                Self::send_event(&inputs, NodeEvent::TransferMoved { moved });
            };
            let read = || {
                let mut watch = Watch::new(watched);
                let mut seen = |n_bytes| watch.moved(n_bytes, &said);
                let (known, private) = (known.as_ref(), private.as_deref());
                read_home(&homes, &store, &text, known, size_bytes, private, by_file, &halt, &mut seen)
            };
            let result = match read() {
                // Perhaps it was only touched under our hands: the digest of another reading tells.
                Err(e) if e.kind == TransferErrorKind::Changed && known.is_some() => read(),
                result => result,
            };
            if let (Err(_), Some(path)) = (&result, &private) {
                // What was written of it takes no room; often it was not even begun.
                let _ = std::fs::remove_file(path);
            }
            Self::send_event(&inputs, NodeEvent::TransferEnded { target, source: Source::Home, result });
        });
    }

    pub(super) fn fetch_failed(&mut self, object: ObjectId, peer: ExecutorId, why: &str) {
        let error = TransferError { kind: TransferErrorKind::NotHeld, message: why.into() };
        let (target, source) = (Target::Cache(object), Source::Peer(peer));
        self.feed(NodeEvent::TransferEnded { target, source, result: Err(error) });
    }

    /// `awaits`: the peer may only be about to receive them.
    pub(super) fn fetch_from_peer(
        &mut self,
        peer: ExecutorId,
        awaits: bool,
        objects: Vec<(ObjectId, Known)>,
    ) {
        let wait = if awaits { AWAIT_MAX } else { Duration::ZERO };
        let address = self.peers.get(&peer).and_then(|(address, data_id)| {
            let resolved: SocketAddr = address.to_socket_addrs().ok()?.next()?;
            Some((resolved, *data_id))
        });
        let Some((address, holder_id)) = address else {
            for (object, _) in objects {
                self.fetch_failed(object, peer, "its address is not known");
            }
            return;
        };
        let mut streams: Vec<Vec<Wanted>> = vec![vec![]];
        for (object, known) in objects {
            let Some(permit) = self.permits.get(&(object, peer)) else {
                self.fetch_failed(object, peer, "there is no permission to fetch there");
                continue;
            };
            let ticket = Ticket {
                digest: known.digest.0.into(),
                size: known.size_bytes,
                holder_id,
                requester_id: self.about.data_id,
                expires_unix_ms: permit.expires_unix_ms,
                mac: permit.mac,
            };
            let wanted = Wanted { object, ticket, begun: self.begun.remove(&object) };
            if known.size_bytes > SMALL_BYTES_MAX {
                streams.push(vec![wanted]);
            } else {
                streams[0].push(wanted);
            }
        }
        for stream in streams.into_iter().filter(|s| !s.is_empty()) {
            let (client, store, inputs) = (self.client.clone(), self.store.clone(), self.inputs.clone());
            tokio::task::spawn_blocking(move || {
                fetch(&client, &store, address, wait, stream, |object, end| {
                    let (result, begun) = match end {
                        Ok(Stored { digest, size, .. }) => {
                            let digest = Digest(digest.into());
                            (Ok(Fetched { digest, size_bytes: size, version: None }), None)
                        }
                        Err(Broken { error, begun }) => (Err(data_error(&error)), begun),
                    };
                    let (target, source) = (Target::Cache(object), Source::Peer(peer));
                    let event = NodeEvent::TransferEnded { target, source, result };
                    let _ = inputs.send(match begun {
                        Some(begun) => Input::BrokenOff { object, begun, event },
                        None => Input::Event(event),
                    });
                });
            });
        }
    }

    /// The cached bytes of `object` are not those that were stored.
    pub(super) fn found_damaged(&mut self, object: ObjectId) {
        let location = self.book.location(object);
        eyas_text::say!(
            "eyas: the cached copy of {location} was changed; it is dropped, the next task fetches it again",
            location = shown(location)
        );
        self.feed(NodeEvent::FoundCorrupt { object });
    }

    pub(super) fn output_path(&self, id: AttemptId, output: u32) -> Option<(PathBuf, u64)> {
        let context = self.attempts.get(&id)?;
        match context.output_states.get(output as usize)? {
            runner::OutputState::File { path, n_links, .. } => {
                Some((context.sandbox.as_ref()?.join(path.as_path()), *n_links))
            }
            runner::OutputState::Directory { path, .. } => {
                Some((context.sandbox.as_ref()?.join(path.as_path()), 1))
            }
            _ => None,
        }
    }

    pub(super) fn store_output(&mut self, id: AttemptId, output: u32, cache_bytes: Option<u64>) {
        let (task, attempt) = id;
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        let path = self.output_path(id, output);
        let Some(context) = self.attempts.get_mut(&id) else { return };
        if cache_bytes.is_some() {
            context.cached_outputs.push(output);
        }
        let halt = context.halt.clone();
        tokio::task::spawn_blocking(move || {
            let result = match path {
                None => Err(temporary("the output is gone")),
                Some((path, n_links)) => keep_output(&store, &path, n_links, cache_bytes, &halt),
            };
            Self::send_event(&inputs, NodeEvent::OutputStored { task, attempt, output, result });
        });
    }

    pub(super) fn land(&mut self, id: AttemptId, output: u32, object: ObjectId, cached: bool) {
        let (task, attempt) = id;
        let path = match (cached, self.book.digest(object)) {
            (true, Some(digest)) => Some(self.store.path_of(&digest.0.into())),
            _ => self.output_path(id, output).map(|(path, _)| path),
        };
        let cached_as = if cached { self.book.digest(object) } else { None };
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        let text = self.book.location(object).to_string();
        let Some(context) = self.attempts.get(&id) else { return };
        let fence = LandingFence {
            rights: self.rights.clone(),
            halt: context.halt.clone(),
            landings: self.landings.clone(),
        };
        let part = Part {
            work: work_of(self.identity.secret(), task, &text),
            epoch: context.incarnation,
            number: attempt.0,
            replaces: context.repeated,
        };
        let mode = match context.output_states.get(output as usize) {
            Some(runner::OutputState::File { mode, .. }) => Some(*mode),
            _ => None,
        };
        let size_bytes = match context.output_states.get(output as usize) {
            Some(runner::OutputState::Directory { size_bytes, .. }) => Some(*size_bytes),
            _ => path.as_ref().and_then(|p| p.metadata().ok()).map(|m| m.len()),
        };
        self.counters.home_written_bytes += size_bytes.unwrap_or(0);
        tokio::task::spawn_blocking(move || {
            let result = match path {
                None => Err(temporary("the output is gone")),
                Some(path) => {
                    bring_home(&homes, &text, &path, cached_as, Landing { mode, part, fence: &fence })
                }
            };
            if let (Err(error), Some(digest)) = (&result, cached_as)
                && error.kind == TransferErrorKind::Corrupt
            {
                let _ = inputs.send(Input::FoundCorrupt(digest.0.into()));
            }
            Self::send_event(&inputs, NodeEvent::OutputLanded { task, attempt, output, result });
        });
    }

    /// Removes what attempts of other executors, which are gone, have left at home.
    pub(super) fn remove_parts(&mut self, attempts: Vec<(TaskId, AttemptNo, Vec<String>)>) {
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        let secret = self.identity.secret().to_vec();
        let epoch = self.link.incarnation();
        tokio::task::spawn_blocking(move || {
            let mut tasks = vec![];
            for (task, attempt, locations) in attempts {
                for text in locations {
                    let next = Part {
                        work: work_of(&secret, task, &text),
                        epoch,
                        number: attempt.0.saturating_add(1),
                        replaces: true,
                    };
                    let removed = parse(&text).and_then(|location| {
                        homes.remove_parts(&location, &next).map_err(|e| home_error(&e))
                    });
                    if let Err(e) = removed {
                        eyas_text::say!(
                            "eyas: what a lost executor may have left beside {} is not removed: {}",
                            shown(&text),
                            e.message
                        );
                    }
                }
                tasks.push(task);
            }
            let _ = inputs.send(Input::PartsRemoved { tasks });
        });
    }
}

/// Names the bringing home of one output in a cluster, whoever does it.
fn work_of(secret: &[u8], task: TaskId, location: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("eyas: parts of one output at home");
    hasher.update(secret).update(&task.0.to_le_bytes()).update(location.as_bytes());
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes")) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_went_with_another_object_were_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let keep = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "the same bytes").unwrap();
            keep_output(&store, &path, 1, Some(64), &Halt::default()).unwrap()
        };
        let (first, second) = (keep("first"), keep("second"));
        assert_eq!(first.digest, second.digest);
        let (task, attempt, output) = (TaskId(7), AttemptNo(1), 0);
        let stored = NodeEvent::OutputStored { task, attempt, output, result: Ok(second.clone()) };
        let (target, source) = (Target::Cache(ObjectId(3)), Source::Home);
        let came = NodeEvent::TransferEnded { target, source, result: Ok(second) };
        let now = |event| unless_dropped(event, |digest| store.find(&digest.0.into()).is_some());
        assert_eq!(now(stored.clone()), stored);
        assert_eq!(now(came.clone()), came);

        // The first one is dropped before the word of the second one has come.
        store.remove(&first.digest.0.into()).unwrap();
        let NodeEvent::OutputStored { result: Err(error), .. } = now(stored) else {
            panic!("an output that is not there is told as kept")
        };
        assert_eq!(error.kind, TransferErrorKind::Dropped);
        let NodeEvent::TransferEnded { result: Err(error), .. } = now(came) else {
            panic!("an input that is not there is told as fetched")
        };
        assert_eq!(error.kind, TransferErrorKind::Dropped);
    }
}
