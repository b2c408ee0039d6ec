//! The slot processes of an executor, seen from the agent: starts, ends, and what became of each.

use super::agent::Input;
use eyas_runner::protocol::{Decoder, RunSpec, SlotCommand, SlotConfig, SlotReport, encode_frame};
use eyas_runner::{SlotHandle, spawn_slot};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

pub struct Slots {
    exe: PathBuf,
    args: Vec<String>,
    config: SlotConfig,
    inputs: mpsc::UnboundedSender<Input>,
    slots: Vec<Slot>,
}

struct Slot {
    commands: mpsc::UnboundedSender<Vec<u8>>,
    /// Keys given and not ended, oldest first: the first one runs.
    pending: VecDeque<u64>,
    head_since: Instant,
    process: Child,
    /// Counts lives, so that a late word from an ended process is recognised.
    life: u64,
}

impl Slots {
    pub fn start(
        n: u32,
        exe: PathBuf,
        args: Vec<String>,
        config: SlotConfig,
        inputs: mpsc::UnboundedSender<Input>,
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
        let (mut read, mut write) = stream.into_split();
        let (commands, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(mut frames) = queue.recv().await {
                while let Ok(more) = queue.try_recv() {
                    frames.extend_from_slice(&more);
                }
                if write.write_all(&frames).await.is_err() {
                    return;
                }
            }
        });
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
        Ok(Slot { commands, pending: VecDeque::new(), head_since: Instant::now(), process, life })
    }

    /// Whether `index` is still in that life.
    pub fn is_current(&self, index: usize, life: u64) -> bool {
        self.slots[index].life == life
    }

    /// Hands a program to the slot with least to do; says which.
    pub fn run(&mut self, spec: RunSpec) -> usize {
        let index = (0..self.slots.len()).min_by_key(|i| (self.slots[*i].pending.len(), *i)).unwrap_or(0);
        let slot = &mut self.slots[index];
        if slot.pending.is_empty() {
            slot.head_since = Instant::now();
        }
        slot.pending.push_back(spec.key);
        send(slot, &SlotCommand::Start(spec));
        index
    }

    pub fn cancel(&mut self, index: usize, key: u64) {
        send(&mut self.slots[index], &SlotCommand::Cancel { key });
    }

    /// The sandbox of `key` may go.
    pub fn release(&mut self, index: usize, key: u64) {
        send(&mut self.slots[index], &SlotCommand::Release { key });
    }

    /// `key` ended.
    pub fn ended(&mut self, index: usize, key: u64) {
        let slot = &mut self.slots[index];
        slot.pending.retain(|k| *k != key);
        slot.head_since = Instant::now();
    }

    /// A program that waits behind a long one while another slot has nothing to do, if there is one.
    pub fn find_stuck(&self, patience: std::time::Duration) -> Option<(usize, u64)> {
        self.slots.iter().find(|s| s.pending.is_empty())?;
        let stuck = |s: &&Slot| s.pending.len() > 1 && s.head_since.elapsed() > patience;
        let index = self.slots.iter().position(|s| stuck(&s))?;
        self.slots[index].pending.back().map(|key| (index, *key))
    }

    /// A slot process is gone: starts another one in its place; returns what it had.
    pub fn replace(&mut self, index: usize) -> Result<Vec<u64>, eyas_runner::Error> {
        let fresh = self.launch(index, self.slots[index].life + 1)?;
        let mut gone = std::mem::replace(&mut self.slots[index], fresh);
        let _ = gone.process.kill();
        let _ = gone.process.wait();
        Ok(gone.pending.into_iter().collect())
    }

    pub fn pids(&self) -> Vec<u32> {
        self.slots.iter().map(|s| s.process.id()).collect()
    }

    /// Ends all slot processes and what they run, and waits for them.
    pub async fn stop(self) {
        let mut processes = vec![];
        for slot in self.slots {
            // Closing the stream tells the slot process to kill what it runs, clean up and end.
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
        })
        .await;
    }
}

fn send(slot: &mut Slot, command: &SlotCommand) {
    let mut frame = Vec::new();
    if encode_frame(command, &mut frame).is_ok() {
        let _ = slot.commands.send(frame);
    }
}
