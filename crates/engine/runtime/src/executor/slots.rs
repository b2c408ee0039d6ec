//! The slot processes of an executor, seen from the agent: their starts, their ends, and the programs that
//! each has.

use super::agent::{Input, Inputs};
use eyas_runner::protocol::{Decoder, RunSpec, SlotCommand, SlotConfig, SlotReport, encode_frame};
use eyas_runner::{SlotHandle, spawn_slot};
use eyas_runner::{reaper, sandbox, warm};
use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

/// How long a process that a killed slot process left behind may take to die.
const STRAYS_MAX: Duration = Duration::from_millis(500);

pub struct Slots {
    exe: PathBuf,
    args: Vec<String>,
    config: SlotConfig,
    inputs: Inputs,
    slots: Vec<Slot>,
}

struct Slot {
    commands: Commands,
    /// Keys of the programs that the slot has, oldest first: the first one runs.
    pending: VecDeque<u64>,
    /// The kind of the program that stays there, see [`warm::kind_number`].
    stays: Option<u64>,
    head_since: Instant,
    process: Child,
    /// Counts the processes of this slot, so that a late message from an ended process is recognised.
    life: u64,
}

impl Slots {
    pub fn start(
        n: u32,
        exe: PathBuf,
        args: Vec<String>,
        config: SlotConfig,
        inputs: Inputs,
    ) -> Result<Slots, eyas_runner::Error> {
        let mut slots = Slots { exe, args, config, inputs, slots: vec![] };
        for i in 0..n {
            let slot = slots.launch(i as usize, 0)?;
            slots.slots.push(slot);
        }
        Ok(slots)
    }

    fn launch(&self, index: usize, life: u64) -> Result<Slot, eyas_runner::Error> {
        let SlotHandle { stream, process, .. } = spawn_slot(&self.exe, &self.args, self.config.clone())?;
        let failed = |e| eyas_runner::Error::system("talk to the slot process", "its socket".to_string(), e);
        stream.set_nonblocking(true).map_err(failed)?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(failed)?;
        let (mut read, write) = stream.into_split();
        let commands = Commands::to(write);
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let mut decoder = Decoder::new();
            let mut bytes = vec![0; 64 << 10];
            loop {
                match read.read(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(n) => decoder.extend(&bytes[..n]),
                }
                let mut reports = vec![];
                while let Ok(Some(report)) = decoder.next_message::<SlotReport>() {
                    reports.push(report);
                }
                if inputs.send(Input::Slot { index, life, reports }).is_err() {
                    return;
                }
            }
            let _ = inputs.send(Input::SlotGone { index, life });
        });
        Ok(Slot {
            commands,
            pending: VecDeque::new(),
            stays: None,
            head_since: Instant::now(),
            process,
            life,
        })
    }

    /// Whether slot `index` still has the process with number `life`.
    pub fn is_current(&self, index: usize, life: u64) -> bool {
        self.slots[index].life == life
    }

    /// Sends what the methods below have for the slot processes.
    pub fn flush(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.commands.flush());
    }

    /// Hands a program to the slot with the fewest programs; gives the slot's index. Among idle slots, it is the one with the program that
    /// stays for such tasks, else one whose program need not end for this one. So what such a program keeps, a model on a gpu say, is made
    /// once for each gpu. `at_once`: where programs take
    /// parts of a slot, more of them run than there are slots, so one more slot process is started for a program that
    /// would wait for another one.
    pub fn run(&mut self, spec: RunSpec, at_once: bool) -> usize {
        let kind = warm::kind_number(&spec);
        let rank = |i: &usize| {
            let slot = &self.slots[*i];
            (slot.pending.len(), misfit(kind, slot.stays), *i)
        };
        let mut index = (0..self.slots.len()).min_by_key(rank).unwrap_or(0);
        if at_once && !self.slots[index].pending.is_empty() {
            match self.launch(self.slots.len(), 0) {
                Ok(slot) => {
                    index = self.slots.len();
                    self.slots.push(slot);
                }
                Err(e) => {
                    eyas_text::say!("note: a program waits, as no further slot process can be started: {e}")
                }
            }
        }
        let slot = &mut self.slots[index];
        if slot.pending.is_empty() {
            slot.head_since = Instant::now();
        }
        slot.pending.push_back(spec.key);
        slot.stays = kind;
        send(slot, &SlotCommand::Start(Box::new(spec)));
        index
    }

    pub fn cancel(&mut self, index: usize, key: u64) {
        send(&mut self.slots[index], &SlotCommand::Cancel { key });
    }

    /// Asks for what the program `key` has printed so far.
    pub fn look(&mut self, index: usize, key: u64) {
        send(&mut self.slots[index], &SlotCommand::Look { key });
    }

    /// The `sandbox` of the program `key` may be removed.
    pub fn release(&mut self, index: usize, key: u64, sandbox: &Path) {
        if !is_of(sandbox, self.slots[index].process.id()) {
            // The sandbox was made by a slot process that is gone.
            let sandbox = sandbox.to_path_buf();
            tokio::task::spawn_blocking(move || sandbox::remove_tree(&sandbox));
            return;
        }
        send(&mut self.slots[index], &SlotCommand::Release { key });
    }

    /// The program `key` ended.
    pub fn ended(&mut self, index: usize, key: u64) {
        let slot = &mut self.slots[index];
        slot.pending.retain(|k| *k != key);
        slot.head_since = Instant::now();
    }

    /// A program that waits behind a long one while another slot is idle, if there is one.
    pub fn find_stuck(&self, patience: std::time::Duration) -> Option<(usize, u64)> {
        self.slots.iter().find(|s| s.pending.is_empty())?;
        let stuck = |s: &&Slot| s.pending.len() > 1 && s.head_since.elapsed() > patience;
        let index = self.slots.iter().position(|s| stuck(&s))?;
        self.slots[index].pending.back().map(|key| (index, *key))
    }

    /// A slot process is gone: ends the processes that it left behind, removes its sandboxes except those in
    /// `used`, and starts another process in its place. Returns the programs that it had, and the signal that ended it, if one did.
    pub fn replace(
        &mut self,
        index: usize,
        used: Vec<PathBuf>,
    ) -> Result<(Vec<u64>, Option<i32>), eyas_runner::Error> {
        let gone = &mut self.slots[index].process;
        let _ = gone.kill();
        // From then on, its remaining children are children of this process.
        let signal = gone.wait().ok().and_then(|status| status.signal());
        let gone = gone.id();
        let slots: Vec<u32> = self.pids().into_iter().filter(|pid| *pid != gone).collect();
        let n_left = reaper::end_strays(&slots, STRAYS_MAX);
        if n_left > 0 {
            eprintln!("eyas: {n_left} processes that a slot process left behind do not end");
        }
        let root = self.config.sandbox_root.as_path().to_path_buf();
        tokio::task::spawn_blocking(move || {
            for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
                let path = entry.path();
                if is_of(&path, gone) && !used.iter().any(|u| u == &path) {
                    let _ = sandbox::remove_tree(&path);
                }
            }
        });
        let fresh = self.launch(index, self.slots[index].life + 1)?;
        let gone = std::mem::replace(&mut self.slots[index], fresh);
        Ok((gone.pending.into_iter().collect(), signal))
    }

    /// Wakes slot processes that somebody has stopped, because a stopped process neither enforces wall times
    /// nor receives cancellations. To pause a node, stop its executor instead. Returns how many were woken.
    pub fn wake_stopped(&self) -> usize {
        let busy = self.slots.iter().filter(|slot| !slot.pending.is_empty()).map(|slot| slot.process.id());
        let stopped: Vec<u32> = busy.filter(|pid| is_stopped(*pid)).collect();
        for pid in &stopped {
            // SAFETY: a signal to a child that has not been waited for, so that the number is its own.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGCONT) };
        }
        stopped.len()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.slots.iter().map(|s| s.process.id()).collect()
    }

    /// Ends all slot processes and what they run, and waits for them.
    pub async fn stop(self) {
        let mut processes = vec![];
        for mut slot in self.slots {
            slot.commands.flush();
            // When the stream closes, the slot process kills the programs that it runs, cleans up and ends.
            drop(slot.commands);
            processes.push(slot.process);
        }
        let _ = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + std::time::Duration::from_secs(5);
            for mut process in processes {
                while Instant::now() < deadline && matches!(process.try_wait(), Ok(None)) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                let _ = process.kill();
                let _ = process.wait();
            }
            reaper::end_strays(&[], STRAYS_MAX);
        })
        .await;
    }
}

/// Whether the process is stopped by a signal, according to `/proc`.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process's name comes before the state, in parentheses, and may itself contain parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Whether the slot process `pid` has made this sandbox.
fn is_of(sandbox: &Path, pid: u32) -> bool {
    sandbox.file_name().is_some_and(|name| eyas_runner::sandbox::slot_pid_of(name) == Some(pid))
}

/// What a task of this kind costs a slot in which a program of the other kind stays: 0, where it goes to that program or to none.
fn misfit(task: Option<u64>, stays: Option<u64>) -> u8 {
    match (task, stays) {
        (task, stays) if task == stays => 0,
        (_, None) => 1,
        (_, Some(_)) => 2,
    }
}

fn send(slot: &mut Slot, command: &SlotCommand) {
    slot.commands.add(command);
}

/// The way to a slot process. The slot process ends when this is dropped.
struct Commands {
    /// Frames that the next [`Commands::flush`] sends.
    frames: Vec<u8>,
    stream: Arc<OwnedWriteHalf>,
    /// Bytes that the socket did not take at once, for a task that waits until it does.
    late: mpsc::UnboundedSender<Vec<u8>>,
    /// The number of such bytes that are not in the socket yet.
    n_late: Arc<AtomicUsize>,
}

impl Commands {
    fn to(stream: OwnedWriteHalf) -> Commands {
        let stream = Arc::new(stream);
        let (late, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        let n_late = Arc::new(AtomicUsize::new(0));
        let (socket, n_waiting) = (stream.clone(), n_late.clone());
        tokio::spawn(async move {
            while let Some(bytes) = queue.recv().await {
                let mut left = &bytes[..];
                while !left.is_empty() {
                    if socket.writable().await.is_err() {
                        return;
                    }
                    match socket.try_write(left) {
                        Ok(n) => left = &left[n..],
                        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return,
                    }
                }
                n_waiting.fetch_sub(bytes.len(), Ordering::AcqRel);
            }
        });
        Commands { frames: vec![], stream, late, n_late }
    }

    fn add(&mut self, command: &SlotCommand) {
        // A frame that is too long to be sent leaves nothing behind.
        let _ = encode_frame(command, &mut self.frames);
    }

    /// Writes on the calling thread what the socket takes, so that a program starts without another thread being
    /// woken for it. What the socket does not take follows in order.
    fn flush(&mut self) {
        let mut n = 0;
        while self.n_late.load(Ordering::Acquire) == 0 && n < self.frames.len() {
            match self.stream.try_write(&self.frames[n..]) {
                Ok(n_written) => n += n_written,
                Err(_) => break,
            }
        }
        if n < self.frames.len() {
            let rest = self.frames.split_off(n);
            self.n_late.fetch_add(rest.len(), Ordering::AcqRel);
            let _ = self.late.send(rest);
        }
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_arrive_in_order_though_the_slot_process_reads_late() {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let mut commands = Commands::to(ours.into_split().1);
        let n_commands = 100_000;
        for key in 0..n_commands {
            commands.add(&SlotCommand::Release { key });
            commands.flush();
        }
        assert!(commands.n_late.load(Ordering::Acquire) > 0, "the socket takes no more");
        let (mut decoder, mut bytes) = (Decoder::new(), vec![0; 4096]);
        let mut keys = vec![];
        while keys.len() < n_commands as usize {
            let n = theirs.read(&mut bytes).await.unwrap();
            assert_ne!(n, 0, "{} commands came", keys.len());
            decoder.extend(&bytes[..n]);
            while let Some(command) = decoder.next_message::<SlotCommand>().unwrap() {
                match command {
                    SlotCommand::Release { key } => keys.push(key),
                    other => panic!("{other:?} was not sent"),
                }
            }
        }
        assert_eq!(keys, (0..n_commands).collect::<Vec<_>>());
        drop(commands);
        assert_eq!(theirs.read(&mut bytes).await.unwrap(), 0, "the slot process reads the end");
    }
}
