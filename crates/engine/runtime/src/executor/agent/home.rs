//! This node's use of home storage: inputs that come from there, outputs that go there, and the dispatcher's limits on both.
//!
//! Each try of a transfer has a thread of its own; the transfer's end comes back as an event.

use super::input::{Input, Inputs, send_event};
use super::{AttemptId, ExecutorError, ExecutorOptions};
use crate::clock;
use crate::executor::early::{Early, SMALL_BYTES_MAX};
use crate::executor::home_io::{by_programs, home_error, parse, read_home, temporary, version_of};
use crate::executor::home_wait::{HomeWaits, home_of};
use crate::executor::landing::{Landing, bring_home};
use crate::executor::landings::Landings;
use crate::executor::made::trees::Trees;
use crate::executor::made::{Shop, Wanted, make, of_run};
use crate::executor::rights::{LandingFence, Rights};
use eyas_core::event::*;
use eyas_core::executor::Executor;
use eyas_core::home_share::{HomeReport, HomeShare, HomeUse};
use eyas_data::{Halt, Store};
use eyas_runner::Account;
use eyas_storage::{Homes, HomesConfig, Location, Part, Whole};
use eyas_terms::home_wait::Tries;
use eyas_terms::*;
use eyas_text::shown;
use eyas_wire::message::HomeAway;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many files' places are asked for at the same time.
const PLACE_THREADS: usize = 8;
/// How many questions about objects are under way at one home. Each has a thread and a connection of its own.
const ASKS_MAX: usize = 64;
/// The same where one question is for several objects. When there are so many, none begins.
const ASKS_OF_SEVERAL_MAX: usize = 300;
/// How long the end of this process waits for landings to remove what they have begun.
const LAST_LANDINGS_MAX: Duration = Duration::from_secs(2);

/// One object that is to be read from home.
pub(super) struct HomeRead {
    pub(super) target: Target,
    pub(super) object: ObjectId,
    pub(super) location: String,
    pub(super) known: Option<Known>,
    pub(super) size_bytes: u64,
    /// Where a private copy goes. `None`: the object goes into the cache.
    pub(super) private: Option<PathBuf>,
    /// Whether the transfer's progress is to be reported.
    pub(super) is_watched: bool,
    /// The cached object that this one is made of.
    pub(super) packed: Option<Digest>,
    /// Whose rights count. `None`: those of this process.
    pub(super) reader: Option<Account>,
}

/// One output that is to be brought home.
pub(super) struct HomeWrite {
    pub(super) id: AttemptId,
    pub(super) output: u32,
    pub(super) location: String,
    /// Where the output is. `None`: it is gone.
    pub(super) path: Option<PathBuf>,
    /// The digest under which the output is cached, if it is.
    pub(super) cached_as: Option<Digest>,
    pub(super) mode: Option<u32>,
    pub(super) marks: Option<Marks>,
    /// Of a directory that is cached: the times of all that is in it.
    pub(super) times: Vec<i64>,
    /// The dispatcher process that gave the attempt out.
    pub(super) incarnation: u64,
    pub(super) is_repeated: bool,
    /// The system user whose sandbox the output is in, unless it is cached.
    pub(super) owner: Option<Account>,
    /// Whose rights count at home. `None`: those of this process.
    pub(super) writer: Option<Account>,
    pub(super) halt: Halt,
}

/// A question about an object.
struct Ask {
    home: String,
    location: String,
    reads: bool,
    /// It did not come with several others.
    alone: bool,
    stops: Halt,
}

/// The questions at one home.
#[derive(Default)]
struct AskLine {
    n_under_way: usize,
    /// Those that wait for a place, in order.
    waiting: VecDeque<ObjectId>,
}

/// See the module.
pub(super) struct Home {
    homes: Homes,
    /// Whether outputs may appear at home.
    pub(super) rights: Rights,
    /// Notes of unfinished outputs at home.
    landings: Landings,
    /// This executor's share of home, as the dispatcher sent it.
    share: HomeShare,
    /// What was reported to the dispatcher about this executor's use.
    used: HomeUse,
    /// The cluster's secret, from which the names of unfinished outputs follow.
    secret: Vec<u8>,
    /// Homes that do not answer.
    waits: HomeWaits,
    /// Objects that are being read. A stopped one waits no longer for its home.
    reads: BTreeMap<Target, Halt>,
    /// Objects that home is asked about, or will be when others are answered; a stopped one likewise.
    asks: BTreeMap<ObjectId, Ask>,
    /// The questions at each home that has any.
    lines: BTreeMap<String, AskLine>,
    /// Those that have new questions.
    has_new: BTreeSet<String>,
    early: Early,
    inputs: Inputs,
    /// Stops the reading of inputs.
    halt: Halt,
    /// What was made on this node.
    trees: Trees,
}

/// Why home is not asked about an object at this location for users' tasks on a node with `--system-users`; `None`: it is.
pub(super) fn why_not_asked(location: &str) -> Option<TransferError> {
    let asked = asked_of(location).0;
    let is_by_programs = parse(asked).is_ok_and(|place| place.is_by_programs_of_machine());
    let refused = || TransferError { kind: TransferErrorKind::Unavailable, message: by_programs(asked) };
    is_by_programs.then(refused)
}

impl Home {
    /// Begins to remove what an earlier process has left at home (`left_at_home`).
    pub(super) fn open(
        options: &ExecutorOptions,
        landings: Landings,
        left_at_home: Vec<PathBuf>,
        secret: &[u8],
        inputs: Inputs,
        halt: Halt,
        trees: Trees,
    ) -> Result<Home, ExecutorError> {
        let home_local = options.home_local.iter().chain(&options.home_on).cloned().collect();
        let homes = Homes::new(HomesConfig { home_local, ..HomesConfig::default() })?;
        if !left_at_home.is_empty() {
            let (homes, landings) = (homes.clone(), landings.clone());
            tokio::task::spawn_blocking(move || landings.sweep(&homes, &left_at_home));
        }
        let asked = homes.clone();
        let look = move |location: &str| {
            parse(location).and_then(|place| asked.stat(&place).map_err(|e| home_error(&e))).map(|_| ())
        };
        Ok(Home {
            homes,
            rights: Rights::default(),
            landings,
            share: HomeShare::UNLIMITED,
            used: HomeUse::default(),
            secret: secret.to_vec(),
            waits: HomeWaits::new(options.home_wait, Arc::new(look)),
            reads: BTreeMap::new(),
            asks: BTreeMap::new(),
            lines: BTreeMap::new(),
            has_new: BTreeSet::new(),
            early: Early::default(),
            inputs,
            halt,
            trees,
        })
    }

    // ------------------------------------------------------------ what the dispatcher allows and knows

    /// A dispatcher has welcomed this executor. It knows nothing of the executor's use yet, and has sent no
    /// share.
    pub(super) fn was_welcomed(&mut self, lease_ns: u64) {
        self.rights.connected(lease_ns);
        self.share.number = 0;
        self.used.forget_report();
    }

    pub(super) fn set_share(&mut self, share: HomeShare) {
        self.homes.set_limits(None, share.bytes_per_s);
        // Where streams are counted, a transfer is one of them.
        self.homes.set_wide(share.streams == HomeShare::UNLIMITED.streams);
        self.share = share;
    }

    /// The report on this executor's use of home that the dispatcher needs now, if any. Where home is
    /// limited, the dispatcher divides it among the executors that use it. `n_streams`: transfers from and to
    /// home that are under way.
    pub(super) fn find_report(&mut self, n_streams: u32) -> Option<HomeReport> {
        // Until the dispatcher has sent a share, a report would answer another dispatcher's share.
        if self.share.number == 0 {
            return None;
        }
        self.used.report(clock::now(), n_streams, self.homes.moved_bytes(), self.share)
    }

    pub(super) fn homes(&self) -> Homes {
        self.homes.clone()
    }

    /// The homes that transfers wait for.
    pub(super) fn away(&self) -> Vec<HomeAway> {
        self.waits.away()
    }

    // ------------------------------------------------------------ where files lie

    /// Asks home on which hosts these files lie, some at a time. What home does not say is left out.
    pub(super) fn find_places(&self, objects: Vec<(ObjectId, String)>) {
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            let asked = objects.iter().map(|(object, _)| *object).collect();
            let n_each = objects.len().div_ceil(PLACE_THREADS).max(1);
            let ask_each = |part: &[(ObjectId, String)]| -> Vec<Placed> {
                part.iter().filter_map(|(object, location)| placed(&homes, *object, location)).collect()
            };
            let placed = std::thread::scope(|scope| {
                let parts: Vec<_> =
                    objects.chunks(n_each).map(|part| scope.spawn(move || ask_each(part))).collect();
                parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
            });
            let _ = inputs.send(Input::PlacesFound { asked, placed });
        });
    }

    // ------------------------------------------------------------ transfers

    /// Asks which version home has of an object. The answer is given where it is there without waiting; else it comes
    /// as an event. `reads`: the object will be read from home if home has it.
    pub(super) fn ask(&mut self, object: ObjectId, location: String, reads: bool) -> Option<NodeEvent> {
        if let Some(answer) = self.answer_at_once(&location) {
            return Some(NodeEvent::HomeAnswered { object, result: Ok(answer) });
        }
        let home = home_of(asked_of(&location).0).to_owned();
        let line = self.lines.entry(home.clone()).or_default();
        line.waiting.push_back(object);
        let ask = Ask { home: home.clone(), location, reads, alone: false, stops: self.halt.child() };
        self.asks.insert(object, ask);
        self.has_new.insert(home);
        None
    }

    /// Begins questions that are new.
    pub(super) fn begin_asks(&mut self) {
        for home in std::mem::take(&mut self.has_new) {
            self.ask_next(&home);
        }
    }

    /// Begins questions at this home, as many as may be under way.
    fn ask_next(&mut self, home: &str) {
        let Some(line) = self.lines.get_mut(home) else { return };
        let (homes, early, asks) = (&self.homes, &self.early, &self.asks);
        let reads_early = reads_early(&self.share);
        let several_max = |object: &ObjectId| {
            let ask = asks.get(object).filter(|ask| ask.reads && !ask.alone && reads_early);
            let place = ask.and_then(|ask| early_place(&ask.location));
            place
                .filter(|place| early.guess(place) != Some(false))
                .map_or(0, |p| homes.get(&p).several_max(&p))
        };
        let mut begun = vec![];
        while let Some(first) = line.waiting.pop_front() {
            let most = several_max(&first);
            let is_one = most < 2;
            if line.n_under_way >= if is_one { ASKS_MAX } else { ASKS_OF_SEVERAL_MAX } {
                line.waiting.push_front(first);
                break;
            }
            let mut together = vec![first];
            while together.len() < most && line.waiting.front().is_some_and(|next| several_max(next) >= 2) {
                together.extend(line.waiting.pop_front());
            }
            line.n_under_way += together.len();
            begun.push(together);
        }
        if line.n_under_way == 0 {
            self.lines.remove(home);
        }
        for together in begun {
            match together[..] {
                [object] => self.begin_ask(object),
                _ => self.begin_several(together),
            }
        }
    }

    /// Asks about several small objects and reads them, in one request.
    fn begin_several(&self, objects: Vec<ObjectId>) {
        let place = |object| Some((object, early_place(&self.asks.get(&object)?.location)?));
        let asked: Vec<(ObjectId, Location)> = objects.into_iter().filter_map(place).collect();
        let locations: Vec<Location> = asked.iter().map(|(_, place)| place.clone()).collect();
        let Some(first) = locations.first().cloned() else { return };
        let (homes, inputs, early) = (self.homes.clone(), self.inputs.clone(), self.early.clone());
        let text = first.as_str().to_owned();
        let ask =
            move || homes.get(&first).read_several(&locations, SMALL_BYTES_MAX).map_err(|e| home_error(&e));
        let done = move |result: Result<Vec<Option<Whole>>, TransferError>| {
            // Whatever went wrong, it is found again by those who ask alone.
            let mut found = result.unwrap_or_default().into_iter();
            let mut alone = vec![];
            for (object, place) in asked {
                let Some(whole) = found.next().flatten() else {
                    alone.push(object);
                    continue;
                };
                let answer = HomeAnswer { version: version_of(&whole.stat), in_place: false };
                early.keep(object, &place, whole);
                send_event(&inputs, NodeEvent::HomeAnswered { object, result: Ok(answer) });
            }
            if !alone.is_empty() {
                let _ = inputs.send(Input::AskAlone(alone));
            }
        };
        self.waits.clone().patiently(&text, Tries::of_input(), &self.halt.child(), ask, done);
    }

    /// These objects did not come together with others: each is asked for by itself.
    pub(super) fn ask_alone(&mut self, objects: Vec<ObjectId>) {
        let mut homes = BTreeSet::new();
        for object in objects {
            let Some(ask) = self.asks.get_mut(&object) else { continue };
            ask.alone = true;
            if let Some(line) = self.lines.get_mut(&ask.home) {
                line.n_under_way -= 1;
                line.waiting.push_back(object);
            }
            homes.insert(ask.home.clone());
        }
        homes.iter().for_each(|home| self.ask_next(home));
    }

    fn begin_ask(&self, object: ObjectId) {
        let Some(Ask { location, reads, stops, .. }) = self.asks.get(&object) else { return };
        let (homes, inputs, waits) = (self.homes.clone(), self.inputs.clone(), self.waits.clone());
        let done = move |result| send_event(&inputs, NodeEvent::HomeAnswered { object, result });
        let (asked, is_made) = asked_of(location);
        let early = (*reads && !is_made && reads_early(&self.share)).then(|| self.early.clone());
        match parse(asked) {
            Ok(place) => {
                let ask = move || {
                    let in_place = !is_made && homes.local_path(&place).is_some();
                    let stat = match early.as_ref().filter(|_| !in_place) {
                        Some(early) if early.guess(&place) == Some(true) => {
                            early.ask(&**homes.get(&place), object, &place)
                        }
                        Some(early) => homes.stat(&place).inspect(|stat| early.note(&place, stat)),
                        None => homes.stat(&place),
                    };
                    let stat = stat.map_err(|e| home_error(&e))?;
                    Ok(HomeAnswer { version: version_of(&stat), in_place })
                };
                waits.patiently(asked, Tries::of_input(), stops, ask, done);
            }
            Err(e) => done(Err(e)),
        }
    }

    fn answer_at_once(&self, location: &str) -> Option<HomeAnswer> {
        let (asked, is_made) = asked_of(location);
        if is_made && asked.starts_with(RUN_FILE) {
            return Some(HomeAnswer { version: of_run(), in_place: false });
        }
        let location = parse(asked).ok()?;
        let version = version_of(&self.homes.stat_at_once(&location)?);
        Some(HomeAnswer { version, in_place: !is_made && self.homes.local_path(&location).is_some() })
    }

    /// Home has answered about an object.
    pub(super) fn ask_ended(&mut self, object: ObjectId) {
        let Some(Ask { home, .. }) = self.asks.remove(&object) else { return };
        if let Some(line) = self.lines.get_mut(&home) {
            line.n_under_way -= 1;
        }
        self.ask_next(&home);
    }

    /// The reading of an object is over.
    pub(super) fn read_ended(&mut self, target: Target) {
        self.reads.remove(&target);
    }

    /// What nobody waits for any more need not wait for its home.
    pub(super) fn end_unwanted(&self, core: &Executor) {
        for (target, stops) in &self.reads {
            if !core.is_awaited(*target) {
                stops.stop();
            }
        }
        for (object, ask) in &self.asks {
            if !core.is_asked(*object) {
                ask.stops.stop();
            }
        }
    }

    pub(super) fn read(&mut self, read: HomeRead, store: Store) {
        let (homes, inputs, halt) = (self.homes.clone(), self.inputs.clone(), self.halt.clone());
        let by_file = self.share.bytes_per_s.is_none();
        let (trees, waits, early) = (self.trees.clone(), self.waits.clone(), self.early.clone());
        let HomeRead { target, object, location, known, size_bytes, private, is_watched, packed, reader } =
            read;
        let source = Source::Home;
        let stops = self.halt.child();
        self.reads.insert(target, stops.clone());
        if MadeLocation::of(&location).is_some() {
            let done = move |result| send_event(&inputs, NodeEvent::TransferEnded { target, source, result });
            let asks_home = packed.is_none() && !asked_of(&location).0.starts_with(RUN_FILE);
            let of = location.clone();
            let make_it = move || {
                let (known, private) = (known.as_ref(), private.as_deref());
                let wanted = Wanted { location: &location, packed, known, room_bytes: size_bytes, private };
                let reader = reader.as_ref();
                make(&Shop { homes: &homes, store: &store, trees: &trees, halt: &halt, reader }, &wanted)
            };
            if asks_home {
                waits.patiently(asked_of(&of).0, Tries::of_input(), &stops, make_it, done);
            } else {
                tokio::task::spawn_blocking(move || done(make_it()));
            }
            return;
        }
        let (of, sayer, partial) = (location.clone(), inputs.clone(), private.clone());
        let read_it = move || {
            let say = |moved_bytes, moving: Duration| {
                let moving_ns = moving.as_nanos() as u64;
                let moved =
                    InputMoved { target, object, source, moved_bytes, size_bytes, moving_ns, is_all: false };
                send_event(&sayer, NodeEvent::TransferMoved { moved });
            };
            let read = || {
                let mut progress = Progress::new(is_watched);
                let mut seen = |n_bytes| progress.moved(n_bytes, &say);
                let (known, private) = (known.as_ref(), private.as_deref());
                let (early, reader, seen) = (early.take(object, &location), reader.as_ref(), &mut seen);
                read_home(
                    &homes, &store, &location, early, known, size_bytes, private, by_file, reader, &halt,
                    seen,
                )
            };
            match read() {
                // The file may only have been touched while it was read: a second reading and its digest
                // decide.
                Err(e) if e.kind == TransferErrorKind::Changed && known.is_some() => read(),
                result => result,
            }
        };
        let done = move |result: Result<Fetched, TransferError>| {
            if let (Err(_), Some(path)) = (&result, &partial) {
                // The part of the copy that was written must take no room. Often it was not even begun.
                let _ = std::fs::remove_file(path);
            }
            send_event(&inputs, NodeEvent::TransferEnded { target, source, result });
        };
        waits.patiently(&of, Tries::of_input(), &stops, read_it, done);
    }

    pub(super) fn write(&self, write: HomeWrite) {
        let (homes, inputs, waits) = (self.homes.clone(), self.inputs.clone(), self.waits.clone());
        let HomeWrite { id, output, location, path, cached_as, mode, incarnation, is_repeated, .. } = write;
        let HomeWrite { marks, times, owner, writer, halt, .. } = write;
        let (task, attempt) = id;
        let stops = halt.clone();
        let fence = LandingFence { rights: self.rights.clone(), halt, landings: self.landings.clone() };
        let part = Part {
            work: work_of(&self.secret, task, &location),
            epoch: incarnation,
            number: attempt.0,
            replaces: is_repeated,
        };
        let of = location.clone();
        let bring = move || match &path {
            None => Err(temporary("the output is gone")),
            Some(path) => {
                let (owner, writer) = (owner.as_ref(), writer.as_ref());
                let modified_ns = marks.map(|marks| marks.modified_ns);
                let landing =
                    Landing { mode, modified_ns, times: times.clone(), part, fence: &fence, owner, writer };
                bring_home(&homes, &location, path, cached_as, landing)
            }
        };
        let done = move |result: Result<HomeVersion, TransferError>| {
            if let (Err(error), Some(digest)) = (&result, cached_as)
                && error.kind == TransferErrorKind::Corrupt
            {
                let _ = inputs.send(Input::FoundCorrupt(digest.0.into()));
            }
            send_event(&inputs, NodeEvent::OutputLanded { task, attempt, output, result });
        };
        waits.patiently(&of, Tries::of_output(), &stops, bring, done);
    }

    /// Removes what attempts of other executors, which are gone, have left at home. `incarnation`: the
    /// dispatcher process that asked for this.
    pub(super) fn remove_parts(&self, attempts: Vec<(TaskId, AttemptNo, Vec<String>)>, incarnation: u64) {
        let (homes, inputs, secret) = (self.homes.clone(), self.inputs.clone(), self.secret.clone());
        tokio::task::spawn_blocking(move || {
            let mut tasks = vec![];
            for (task, attempt, locations) in attempts {
                for text in locations {
                    let next = Part {
                        work: work_of(&secret, task, &text),
                        epoch: incarnation,
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

    /// Waits until landings that were stopped have removed their files at home. A landing that hangs leaves
    /// its file to the next start.
    pub(super) async fn await_landings(&self) {
        let deadline = Instant::now() + LAST_LANDINGS_MAX;
        while self.landings.n_under_way() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The file of which home is asked: what is made on this node has the version of the packed file.
fn asked_of(location: &str) -> (&str, bool) {
    match MadeLocation::of(location) {
        Some(made) => (made.packed, true),
        None => (location, false),
    }
}

/// Whether small objects may be read when home is asked about them. Where streams from home are counted, each waits for its turn.
fn reads_early(share: &HomeShare) -> bool {
    share.streams == HomeShare::UNLIMITED.streams
}

/// Where an object is that may be read when home is asked about it.
fn early_place(location: &str) -> Option<Location> {
    let (asked, is_made) = asked_of(location);
    if is_made { None } else { parse(asked).ok() }
}

/// On which hosts a file lies, if its home says so.
fn placed(homes: &Homes, object: ObjectId, location: &str) -> Option<Placed> {
    let places = homes.places(&parse(location).ok()?).ok()?;
    let size_bytes = places.iter().map(|place| place.range.end).max()?;
    let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
    for place in places {
        for host in place.hosts {
            *hosts.entry(host).or_default() += place.range.end - place.range.start;
        }
    }
    Some(Placed { object, size_bytes, hosts: hosts.into_iter().collect() })
}

/// What this executor says of files at home that lie on its machine.
pub(super) fn nearby(options: &ExecutorOptions) -> Nearby {
    let own = options.home_on.iter().map(|directory| directory.to_string_lossy().into_owned()).collect();
    Nearby { own, told: eyas_storage::beginnings_with_places(), hosts: options.hosts.clone() }
}

/// A number for the landing of one output, the same for every executor of the cluster.
fn work_of(secret: &[u8], task: TaskId, location: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("eyas: parts of one output at home");
    hasher.update(secret).update(&task.0.to_le_bytes()).update(location.as_bytes());
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes")) | 1
}

/// Reports the progress of a transfer: after a moment, and each time that it has gone on for twice as long.
struct Progress {
    begun: Instant,
    moved_bytes: u64,
    /// The time of the next report. `None`: the transfer is not watched.
    next: Option<Duration>,
}

impl Progress {
    fn new(is_watched: bool) -> Progress {
        let next = is_watched.then_some(Duration::from_nanos(WATCH_NS_MIN));
        Progress { begun: Instant::now(), moved_bytes: 0, next }
    }

    /// `n_bytes` more have come.
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
