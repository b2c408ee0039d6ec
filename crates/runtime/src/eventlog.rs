//! The event log on disk: one JSON line per event and action, in the order in which the core saw them.
//!
//! The grammar is [`eyas_core::log`]'s.
//!
//! A thread of its own writes, so that the dispatcher only hands over. When the disk is full, lines
//! are lost and counted, and the dispatcher says so: the log is for people and replays, the journal is
//! what keeps promises.

use eyas_core::log::{EVENTS_FILE, Header, Line, PRINTED_FILE, PrintedLine, PrintedStream};
use eyas_wire::message::{Captured, Printed};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

fn to_line(printed: &Printed) -> PrintedLine {
    let stream = |c: &Captured| PrintedStream {
        head: String::from_utf8_lossy(&c.head).into_owned(),
        tail: String::from_utf8_lossy(&c.tail).into_owned(),
        total_bytes: c.total_bytes,
    };
    PrintedLine {
        task: printed.task,
        attempt: printed.attempt,
        stdout: stream(&printed.stdout),
        stderr: stream(&printed.stderr),
    }
}

/// A line of the log as it travels.
pub fn to_message(line: &PrintedLine) -> Printed {
    let stream = |s: &PrintedStream| Captured {
        head: s.head.clone().into_bytes(),
        tail: s.tail.clone().into_bytes(),
        total_bytes: s.total_bytes,
    };
    Printed {
        task: line.task,
        attempt: line.attempt,
        stdout: stream(&line.stdout),
        stderr: stream(&line.stderr),
    }
}

enum Order {
    Lines(Vec<Line>),
    Printed(Box<Printed>),
    Flush(mpsc::Sender<()>),
}

/// The writing end.
pub struct EventLog {
    orders: mpsc::Sender<Order>,
    lost: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EventLog {
    /// Appends to the log in `dir`, starting with `header`.
    pub fn open(dir: &Path, header: &Header) -> io::Result<EventLog> {
        let mut events = Appender::open(dir.join(EVENTS_FILE))?;
        let mut printed = Appender::open(dir.join(PRINTED_FILE))?;
        events.line(header);
        let lost = Arc::new(AtomicU64::new(0));
        let (orders, queue) = mpsc::channel::<Order>();
        let counter = lost.clone();
        let thread = std::thread::Builder::new().name("event-log".into()).spawn(move || {
            loop {
                let order = match queue.try_recv() {
                    Ok(order) => order,
                    Err(mpsc::TryRecvError::Disconnected) => break,
                    Err(mpsc::TryRecvError::Empty) => {
                        // Nothing is waiting: whoever reads the files now sees everything.
                        events.flush();
                        printed.flush();
                        match queue.recv() {
                            Ok(order) => order,
                            Err(_) => break,
                        }
                    }
                };
                match order {
                    Order::Lines(lines) => lines.iter().for_each(|line| events.line(line)),
                    Order::Printed(p) => printed.line(&to_line(&p)),
                    Order::Flush(done) => {
                        events.flush();
                        printed.flush();
                        let _ = done.send(());
                    }
                }
                counter.store(events.lost + printed.lost, Ordering::Relaxed);
            }
            events.flush();
            printed.flush();
        })?;
        Ok(EventLog { orders, lost, thread: Some(thread) })
    }

    pub fn lines(&self, lines: Vec<Line>) {
        let _ = self.orders.send(Order::Lines(lines));
    }

    pub fn printed(&self, printed: Box<Printed>) {
        let _ = self.orders.send(Order::Printed(printed));
    }

    /// Asks for everything so far to be in the files; the receiver hears when it is.
    pub fn flush(&self) -> mpsc::Receiver<()> {
        let (done, wait) = mpsc::channel();
        let _ = self.orders.send(Order::Flush(done));
        wait
    }

    /// Lines that the disk did not take.
    pub fn n_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        let (orders, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.orders, orders));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A file that takes JSON lines and survives a full disk.
struct Appender {
    file: BufWriter<File>,
    text: Vec<u8>,
    lost: u64,
}

impl Appender {
    fn open(path: PathBuf) -> io::Result<Appender> {
        let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        // A killed process may have left half a line; the next one must not be glued to it.
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Appender { file: BufWriter::with_capacity(256 << 10, file), text: vec![], lost: 0 })
    }

    fn line(&mut self, value: &impl Serialize) {
        self.text.clear();
        serde_json::to_writer(&mut self.text, value).expect("log lines have string keys");
        self.text.push(b'\n');
        if self.file.write_all(&self.text).is_err() {
            self.lost += 1;
        }
    }

    fn flush(&mut self) {
        if self.file.flush().is_err() {
            self.lost += 1;
        }
    }
}
