//! The event log on disk: one JSON line per event and action, in the order in which the core saw them.
//!
//! The grammar is [`eyas_core::log`]'s.
//!
//! Lines are made at once from data that is at hand anyway, and handed over in pieces to a thread that
//! writes. So the dispatcher never waits for the disk, and nothing is copied to be logged. What a task printed is
//! promised with its end, so the journal waits for it ([`EventLog::waits_for_printed`]); where the disk refuses it, it is tried again
//! and the journal stalls. Other lines wait in memory ([`held`]) and are counted, and the dispatcher reports that. What does not fit
//! there is lost, and a line in its place says so to all readers: the log is for users and replays, while promises rest on the journal.
//!
//! Lines that are only about forgotten runs are removed when a thread has written the rest anew ([`cut`]). What users ask
//! from the files is read in [`asked`].

pub(crate) mod asked;
mod cut;
mod held;
pub(crate) mod whole;

pub use cut::Needed;
use cut::Shortened;
use eyas_core::event::{Action, Event};
use eyas_core::log::{
    EVENTS_FILE, FailureLine, Header, PRINTED_FILE, PrintedBytes, PrintedLine, PrintedStream,
};
use eyas_journal::Failure;
use eyas_net::Writer;
use eyas_terms::{TaskId, Timestamp};
use eyas_wire::message::{Captured, Printed, PrintedPart, ToExecutor};
use held::HeldLines;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::Duration;
use whole::Wholes;
pub use whole::read_part;

fn to_line(printed: &Printed) -> PrintedLine {
    let stream = |c: &Captured| match c.head.len() + c.tail.len() == c.total_bytes as usize {
        // A character may begin in the head and end in the tail.
        true => PrintedStream {
            head: PrintedBytes([&c.head[..], &c.tail[..]].concat()),
            total_bytes: c.total_bytes,
            ..PrintedStream::default()
        },
        false => stream_of(c),
    };
    PrintedLine {
        task: printed.task,
        attempt: printed.attempt,
        stdout: stream(&printed.stdout),
        stderr: stream(&printed.stderr),
    }
}

/// A stream of a message in the form of the log.
pub fn stream_of(c: &Captured) -> PrintedStream {
    PrintedStream {
        head: PrintedBytes(c.head.clone()),
        tail: PrintedBytes(c.tail.clone()),
        total_bytes: c.total_bytes,
    }
}

/// A line of the log in the form of a message.
pub fn to_message(line: &PrintedLine) -> Printed {
    let stream = |s: &PrintedStream| Captured {
        head: s.head.0.clone(),
        tail: s.tail.0.clone(),
        total_bytes: s.total_bytes,
    };
    Printed {
        task: line.task,
        attempt: line.attempt,
        stdout: stream(&line.stdout),
        stderr: stream(&line.stderr),
    }
}

/// A [`eyas_core::log::Line`] of borrowed parts.
#[derive(Serialize)]
struct In<'a> {
    t: Timestamp,
    r#in: &'a Event,
}

#[derive(Serialize)]
struct Out<'a> {
    t: Timestamp,
    out: &'a Action,
}

/// The task that a line of printed output belongs to. Every such line begins with it.
pub fn task_of(line: &[u8]) -> Option<TaskId> {
    let digits = line.strip_prefix(b"{\"task\":")?;
    let n_digits = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&digits[..n_digits]).ok()?.parse().ok().map(TaskId)
}

/// Lines are handed over when they have this many bytes; at a tick, whatever there is.
const PIECE_BYTES: usize = 64 << 10;
/// More than a piece.
const BUFFER_BYTES: usize = 256 << 10;
/// Written pieces that wait to be filled again.
const SPARES_MAX: usize = 4;
/// Between two tries of a write that the disk has refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// How often the disk is tried again while lines wait for it and nothing else happens.
const HELD_PAUSE: Duration = Duration::from_secs(1);
/// Room for the first line.
const LINE_ROOM_BYTES: usize = 1 << 10;

enum Order {
    Lines(Lines),
    Printed(Box<Printed>),
    Failure(Box<FailureLine>),
    /// A part of all that an attempt printed; the writer is for its executor, which waits until it is written.
    Part(PrintedPart, Writer),
    Flush(mpsc::Sender<()>),
    /// Only this part of the log is needed; the orders are for the thread that writes that part anew.
    Cut(Needed, Arc<Orders>),
    /// The thread has written both files anew: the files that may take the old ones' places.
    WrittenAnew([Option<Shortened>; 2]),
    End,
}

/// The orders for the thread. A channel of the standard library wakes whoever waits for it while it holds a lock that he needs next, so
/// the thread was woken twice for each order.
#[derive(Default)]
struct Orders {
    waiting: Mutex<WaitingOrders>,
    come: Condvar,
}

#[derive(Default)]
struct WaitingOrders {
    orders: VecDeque<Order>,
    /// The thread waits for one.
    is_awaited: bool,
    /// The thread takes no more.
    is_over: bool,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, WaitingOrders> {
        self.waiting.lock().expect("no code panics with it")
    }

    fn send(&self, order: Order) {
        let mut waiting = self.lock();
        if waiting.is_over {
            return;
        }
        waiting.orders.push_back(order);
        let wakes = std::mem::take(&mut waiting.is_awaited);
        drop(waiting);
        if wakes {
            self.come.notify_one();
        }
    }

    fn take(&self) -> Option<Order> {
        self.lock().orders.pop_front()
    }

    /// Waits for an order, for so long at most. `None`: there is none.
    fn wait(&self, at_most: Option<Duration>) -> Option<Order> {
        let mut waiting = self.lock();
        waiting.is_awaited = waiting.orders.is_empty();
        let is_empty = |waiting: &mut WaitingOrders| waiting.orders.is_empty();
        waiting = match at_most {
            None => self.come.wait_while(waiting, is_empty).expect("as in `lock`"),
            Some(time) => self.come.wait_timeout_while(waiting, time, is_empty).expect("as in `lock`").0,
        };
        waiting.is_awaited = false;
        waiting.orders.pop_front()
    }
}

/// When the thread ends, no more orders are kept for it, however it ends.
struct OrdersTaken(Arc<Orders>);

impl Drop for OrdersTaken {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_over = true;
        waiting.orders.clear();
    }
}

/// Whole lines of text.
#[derive(Default)]
struct Lines {
    /// The lines, and room behind them: a line is written into a slice, because a vector that may have to grow costs
    /// twice as much for each of the many small parts of a line.
    text: Vec<u8>,
    n_bytes: usize,
}

impl Lines {
    fn with_room(n_bytes: usize) -> Lines {
        Lines { text: vec![0; n_bytes], n_bytes: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.n_bytes]
    }

    fn into_bytes(mut self) -> Vec<u8> {
        self.text.truncate(self.n_bytes);
        self.text
    }

    fn clear(&mut self) {
        self.n_bytes = 0;
    }

    fn push(&mut self, value: &impl Serialize) {
        loop {
            let mut room = &mut self.text[self.n_bytes..];
            let written = serde_json::to_writer(&mut room, value);
            let n_free = room.len();
            match written {
                Ok(()) if n_free > 0 => {
                    let end = self.text.len() - n_free;
                    self.text[end] = b'\n';
                    self.n_bytes = end + 1;
                    return;
                }
                // The line did not fit and is written again from its beginning.
                Err(e) if !e.is_io() => panic!("log lines have string keys: {e}"),
                Ok(()) | Err(_) => self.text.resize((2 * self.text.len()).max(LINE_ROOM_BYTES), 0),
            }
        }
    }
}

/// How many lines of `printed.jsonl` the thread was given, and how many of them are in the file.
#[derive(Default)]
struct WrittenOutputs {
    n_given: AtomicU64,
    /// Somebody waits for so many.
    n_wanted: AtomicU64,
    written: Mutex<Written>,
    changed: Condvar,
    /// The log ends: nobody waits any more for a disk that refuses.
    is_ending: AtomicBool,
}

#[derive(Default)]
struct Written {
    n: u64,
    /// The file that the disk takes no more of, and why, while it does not.
    refused: Option<(PathBuf, io::ErrorKind, String)>,
}

impl WrittenOutputs {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().expect("no code panics with it")
    }

    /// Waits until all that were given so far are in the file. Errors: the disk refuses, which may go on for long.
    fn wait(&self) -> Result<(), Failure> {
        let n_given = self.n_given.load(Ordering::Acquire);
        let mut written = self.lock();
        while written.n < n_given {
            if let Some((path, kind, message)) = &written.refused {
                let error = io::Error::new(*kind, message.clone());
                return Err(Failure { operation: "write what programs printed", path: path.clone(), error });
            }
            self.n_wanted.store(n_given, Ordering::Release);
            written = self.changed.wait(written).expect("no code panics with it");
        }
        Ok(())
    }

    fn set(&self, change: impl FnOnce(&mut Written)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// The file of what programs printed, in the thread that writes it.
struct PrintedFile {
    file: Appender,
    /// The lines that the thread has taken, and those of them that are in the file.
    n_taken: u64,
    n_flushed: u64,
    waited: Arc<WrittenOutputs>,
}

impl PrintedFile {
    fn line(&mut self, value: &impl Serialize) {
        self.file.line(value);
        self.n_taken += 1;
    }

    fn flush(&mut self) {
        if self.file.flush() && self.n_flushed < self.n_taken {
            self.n_flushed = self.n_taken;
            self.waited.set(|written| written.n = self.n_flushed);
        }
    }

    fn flush_if_wanted(&mut self) {
        if (self.n_flushed + 1..=self.n_taken).contains(&self.waited.n_wanted.load(Ordering::Acquire)) {
            self.flush();
        }
    }
}

/// When the thread ends, nobody waits for it any more, however it ends.
impl Drop for PrintedFile {
    fn drop(&mut self) {
        self.waited.set(|written| {
            if written.refused.is_none() {
                written.n = u64::MAX;
            }
        });
    }
}

/// The writing end.
pub struct EventLog {
    lines: Lines,
    orders: Arc<Orders>,
    printed: Arc<WrittenOutputs>,
    /// Pieces that the thread has written: their memory is used again.
    spares: mpsc::Receiver<Lines>,
    lost: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EventLog {
    /// Appends to the log in `dir`, starting with `header`.
    pub fn open(dir: &Path, header: &Header) -> io::Result<EventLog> {
        let given = Arc::new(WrittenOutputs::default());
        let mut events = Appender::open(dir.join(EVENTS_FILE), None)?;
        let file = Appender::open(dir.join(PRINTED_FILE), Some(given.clone()))?;
        let mut printed = PrintedFile { file, n_taken: 0, n_flushed: 0, waited: given.clone() };
        events.line(header);
        let mut wholes = Wholes::new(dir);
        let mut is_being_cut = false;
        let mut next_cut = None;
        let lost = Arc::new(AtomicU64::new(0));
        let orders = Arc::new(Orders::default());
        let queue = OrdersTaken(orders.clone());
        let (spare, spares) = mpsc::sync_channel::<Lines>(SPARES_MAX);
        let counter = lost.clone();
        let thread = std::thread::Builder::new().name("event-log".into()).spawn(move || {
            loop {
                let order = queue.0.take().or_else(|| {
                    // No order is waiting, so flush: whoever reads the files now sees everything.
                    events.flush();
                    printed.flush();
                    counter.store(events.n_unwritten(), Ordering::Relaxed);
                    queue.0.wait((events.n_unwritten() > events.held.n_lost()).then_some(HELD_PAUSE))
                });
                let Some(order) = order else { continue };
                match order {
                    Order::Lines(mut lines) => {
                        events.write(&lines);
                        lines.clear();
                        let _ = spare.try_send(lines);
                    }
                    Order::Printed(p) => printed.line(&to_line(&p)),
                    Order::Failure(line) => printed.line(&*line),
                    Order::Part(part, executor) => {
                        let upto = wholes.write(&part).ok().map(|()| part.at + part.bytes.len() as u64);
                        let PrintedPart { task, attempt, .. } = part;
                        executor.send(&vec![ToExecutor::PrintedKept { task, attempt, upto }]);
                    }
                    Order::Flush(done) => {
                        events.flush();
                        printed.flush();
                        let _ = done.send(());
                    }
                    // More runs were forgotten meanwhile: they leave the log when this cut is over.
                    Order::Cut(needed, done) if is_being_cut => next_cut = Some((needed, done)),
                    Order::Cut(needed, done) => {
                        printed.flush();
                        wholes.forget_before(needed.from_task);
                        is_being_cut = begin_cut([&mut events, &mut printed.file], needed, done);
                    }
                    Order::WrittenAnew(files) => {
                        is_being_cut = false;
                        for (appender, shortened) in [&mut events, &mut printed.file].into_iter().zip(files) {
                            if let Some(shortened) = shortened {
                                shortened.replace(appender).unwrap_or_else(|e| say_whole(&e));
                            }
                        }
                        if let Some((needed, done)) = next_cut.take() {
                            is_being_cut = begin_cut([&mut events, &mut printed.file], needed, done);
                        }
                    }
                    Order::End => break,
                }
                printed.flush_if_wanted();
            }
            printed.flush();
            if !events.flush() {
                events.say_last();
            }
        })?;
        Ok(EventLog { lines: Lines::default(), orders, printed: given, spares, lost, thread: Some(thread) })
    }

    /// Logs an event before it goes into the core.
    pub fn event(&mut self, t: Timestamp, event: &Event) {
        self.lines.push(&In { t, r#in: event });
        self.hand_over_piece();
    }

    /// Logs an action that came out of the core.
    pub fn action(&mut self, t: Timestamp, action: &Action) {
        self.lines.push(&Out { t, out: action });
        self.hand_over_piece();
    }

    /// Wakes the thread if there is enough to write.
    fn hand_over_piece(&mut self) {
        if self.lines.n_bytes >= PIECE_BYTES {
            self.hand_over();
        }
    }

    /// Gives the lines so far to the thread.
    pub fn hand_over(&mut self) {
        if self.lines.n_bytes > 0 {
            let empty =
                self.spares.try_recv().unwrap_or_else(|_| Lines::with_room(PIECE_BYTES + PIECE_BYTES / 4));
            self.orders.send(Order::Lines(std::mem::replace(&mut self.lines, empty)));
        }
    }

    pub fn printed(&self, printed: Box<Printed>) {
        self.give_line(Order::Printed(printed));
    }

    /// Why a task has failed.
    pub fn failure(&self, line: FailureLine) {
        self.give_line(Order::Failure(Box::new(line)));
    }

    /// A line of what programs printed.
    fn give_line(&self, order: Order) {
        self.printed.n_given.fetch_add(1, Ordering::Release);
        self.orders.send(order);
    }

    /// Writes a part of what an attempt printed, and says so to its executor.
    pub fn part(&self, part: PrintedPart, executor: Writer) {
        self.orders.send(Order::Part(part, executor));
    }

    /// What waits until `printed.jsonl` has all that it was given so far. It wakes nobody: the thread has been woken for the output.
    pub fn waits_for_printed(&self) -> impl Fn() -> Result<(), Failure> + Send + Sync + 'static {
        let given = self.printed.clone();
        move || given.wait()
    }

    /// Asks for everything logged so far to be in the files; the receiver is notified when it is.
    pub fn flush(&mut self) -> mpsc::Receiver<()> {
        self.hand_over();
        let (done, wait) = mpsc::channel();
        self.orders.send(Order::Flush(done));
        wait
    }

    /// Lines that are only about what is not needed any more may be removed.
    pub fn cut(&mut self, needed: Needed) {
        self.hand_over();
        self.orders.send(Order::Cut(needed, self.orders.clone()));
    }

    /// The number of lines that the disk has not taken, those that still wait for it included.
    pub fn n_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.hand_over();
        self.printed.is_ending.store(true, Ordering::Release);
        self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Has a thread write the needed part of the files anew. Gives whether the thread was started.
fn begin_cut(files: [&mut Appender; 2], needed: Needed, done: Arc<Orders>) -> bool {
    let [events, printed] = files.map(|appender| {
        appender.flush();
        (appender.path.clone(), appender.n_bytes())
    });
    let shorten = move || {
        let whole = |e: io::Error| {
            say_whole(&e);
            None
        };
        let events =
            events.1.and_then(|end| cut::shorten_events(&events.0, end, needed)).unwrap_or_else(whole);
        let printed =
            printed.1.and_then(|end| cut::shorten_printed(&printed.0, end, needed)).unwrap_or_else(whole);
        done.send(Order::WrittenAnew([events, printed]));
    };
    let spawned = std::thread::Builder::new().name("cuts event log".into()).spawn(shorten);
    spawned.inspect_err(say_whole).is_ok()
}

fn say_whole(error: &io::Error) {
    eyas_text::say!("eyas: the event log was not cleaned of forgotten runs, and goes on as it is: {error}");
}

/// A file that takes JSON lines.
struct Appender {
    path: PathBuf,
    file: BufWriter<File>,
    line: Lines,
    /// Lines behind those in `file` that the disk has not taken yet.
    held: HeldLines,
    /// Where a disk that refuses is waited for: else output would be missing of tasks that are done. Its journal says so.
    waited: Option<Arc<WrittenOutputs>>,
}

impl Appender {
    fn open(path: PathBuf, waited: Option<Arc<WrittenOutputs>>) -> io::Result<Appender> {
        cut::discard_new(&path)?;
        let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path)?;
        // A killed process may have left half a line; the next one must not be glued to it.
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Appender { path, file, line: Lines::default(), held: HeldLines::default(), waited })
    }

    /// The bytes that are in the file, without those still to be written.
    fn n_bytes(&self) -> io::Result<u64> {
        Ok(self.file.get_ref().metadata()?.len())
    }

    fn line(&mut self, value: &impl Serialize) {
        let mut line = std::mem::take(&mut self.line);
        line.push(value);
        self.write(&line);
        line.clear();
        self.line = line;
    }

    fn write(&mut self, lines: &Lines) {
        let mut rest = lines.bytes();
        if self.give_held() {
            while !rest.is_empty() {
                let Some(n_bytes) = self.insist(|file| file.write(rest)).filter(|n| *n > 0) else { break };
                rest = &rest[n_bytes..];
            }
        }
        self.held.take(rest, rest.len() < lines.n_bytes);
    }

    /// Gives whether no line waits in memory any more.
    fn give_held(&mut self) -> bool {
        let mut held = std::mem::take(&mut self.held);
        held.give(|bytes| self.insist(|file| file.write(bytes)).unwrap_or(0));
        self.held = held;
        self.held.is_empty()
    }

    /// Gives whether all lines are in the file.
    fn flush(&mut self) -> bool {
        self.give_held() && self.insist(BufWriter::flush).is_some()
    }

    /// Lines that are lost, and those that wait for the disk.
    fn n_unwritten(&self) -> u64 {
        self.held.n_lost() + self.held.n_waiting() + held::n_lines(self.file.buffer())
    }

    /// The log ends while its disk takes no more: its last lines give way to one that says so, for which there is room in their place.
    fn say_last(self) {
        let n_unwritten = held::n_lines(self.file.buffer()) + self.held.n_waiting();
        // Nothing may be written behind that line.
        drop(self.file.into_parts());
        let _ = held::say_last(&self.path, self.held.lost(), n_unwritten);
    }

    /// Tries until the disk does it, where that is waited for. `None`: it refuses.
    fn insist<T>(&mut self, mut each: impl FnMut(&mut BufWriter<File>) -> io::Result<T>) -> Option<T> {
        let mut was_refused = false;
        loop {
            let done = each(&mut self.file);
            let Some(waited) = &self.waited else { return done.ok() };
            match done {
                Ok(done) => {
                    if was_refused {
                        waited.set(|written| written.refused = None);
                    }
                    return Some(done);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    was_refused = true;
                    let refused = (self.path.clone(), error.kind(), error.to_string());
                    waited.set(|written| written.refused = Some(refused));
                    if waited.is_ending.load(Ordering::Acquire) {
                        return None;
                    }
                    std::thread::sleep(REFUSED_PAUSE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::log::{LOG_VERSION, Line, What};
    use eyas_terms::{Outcome, RunId, TaskId};

    #[test]
    fn lines_that_were_written_are_read_as_the_same_lines() {
        let dir = tempfile::tempdir().unwrap();
        let header = Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: "0".into(),
            t: Timestamp(1),
            config: Default::default(),
            cluster: "c".into(),
            is_cut: false,
        };
        let event = Event::RunOpened { run: RunId(7), name: "a \"name\"\n".into(), keep: false, into: None };
        let action = Action::EndTask { task: TaskId(3), outcome: Outcome::Done, by: None };
        let mut log = EventLog::open(dir.path(), &header).unwrap();
        log.event(Timestamp(2), &event);
        log.action(Timestamp(2), &action);
        log.flush().recv().unwrap();
        let text = std::fs::read_to_string(dir.path().join(EVENTS_FILE)).unwrap();
        let lines = [
            Line { t: Timestamp(2), what: What::In(event.clone()) },
            Line { t: Timestamp(2), what: What::Out(action) },
        ];
        let expected: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), expected);
        // What was not handed over yet is written at the end.
        log.event(Timestamp(3), &event);
        drop(log);
        let text = std::fs::read_to_string(dir.path().join(EVENTS_FILE)).unwrap();
        assert_eq!(text.lines().count(), 4);
    }
}
