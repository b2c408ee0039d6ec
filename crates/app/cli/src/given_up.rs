//! Copies of a command that a user or the system asks to end: they are given up, and no half of a file stays at home.

use crate::Exit;
use crate::runtimes::client_runtime;
use crate::signals::AskedToEnd;
use eyas_storage::Fence;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Copies end between two blocks. One that waits for a server is waited for no longer than this.
const BLOCKS_END: Duration = Duration::from_secs(1);

/// The fence of all copies of this process.
pub static COPIES: Copies = Copies { is_over: AtomicBool::new(false), parts: Mutex::new(BTreeSet::new()) };

pub struct Copies {
    is_over: AtomicBool,
    /// Temporary files that are there now.
    parts: Mutex<BTreeSet<PathBuf>>,
}

impl Copies {
    /// From now on ^C, SIGTERM and a closed terminal end all copies, and the process with them.
    pub fn end_when_asked(&'static self) {
        let wait = || {
            let asked = client_runtime().block_on(async {
                let mut asked = AskedToEnd::listen_to_hangup()?;
                asked.next().await;
                self.is_over.store(true, Ordering::Relaxed);
                tokio::select! {
                    () = asked.next() => {}
                    () = tokio::time::sleep(BLOCKS_END) => {}
                }
                std::io::Result::Ok(())
            });
            if asked.is_ok() {
                for part in self.parts.lock().expect("no holder panics").iter() {
                    let _ = std::fs::remove_file(part).or_else(|_| std::fs::remove_dir_all(part));
                }
                std::process::exit(Exit::Interrupted.code().into());
            }
        };
        // Without the thread a signal ends the process as it ends any other.
        let _ = std::thread::Builder::new().spawn(wait);
    }
}

impl Fence for Copies {
    fn may_go_on(&self) -> Result<(), String> {
        match self.is_over.load(Ordering::Relaxed) {
            true => Err("the command was asked to end".into()),
            false => Ok(()),
        }
    }

    fn may_appear(&self) -> Result<(), String> {
        self.may_go_on()
    }

    fn part_begins(&self, part: &Path) {
        self.parts.lock().expect("no holder panics").insert(part.into());
    }

    fn part_ended(&self, part: &Path) {
        self.parts.lock().expect("no holder panics").remove(part);
    }
}
