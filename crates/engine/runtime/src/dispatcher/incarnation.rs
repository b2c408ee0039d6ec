//! Numbers of a dispatcher's processes, and the latest time that they gave: both only grow, whatever the
//! clock does.
//!
//! A restarted dispatcher may find the machine's clock earlier than it was. Its *incarnation*, by which
//! executors distinguish its processes, and the times in its log continue those of the process before,
//! because both are kept in its directory:
//!
//! ```text
//! <dir>/incarnation.json   {"incarnation": 18123…, "given_ns": 18123…, "boot": "6f1c…", "monotonic_ns": 523…}
//! ```
//!
//! The file is durable before any executor is welcomed. A process of the same boot continues at the time that
//! the process before would have now, as both use the monotonic clock. After a boot that clock begins anew.
//! Then the time in the file, which is renewed every [`RENEWAL`], is the last one known, and a new process
//! begins that much later, so that no time is given twice.

use crate::{clock, files};
use eyas_terms::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "incarnation.json";

/// How often the time in the file is renewed.
const RENEWAL: Duration = Duration::from_secs(10);

/// A clock that is behind by less than this is not reported: a restart within [`RENEWAL`] of the last is
/// normal.
const BEHIND_SAID_NS: u64 = 60_000_000_000;

#[derive(Serialize, Deserialize)]
struct KeptIncarnation {
    incarnation: u64,
    given_ns: u64,
    /// The boot of the machine at that time; empty if it is not known.
    #[serde(default)]
    boot: String,
    /// The value of its monotonic clock when `given_ns` was given.
    #[serde(default)]
    monotonic_ns: u64,
}

impl KeptIncarnation {
    /// The latest time that the process which kept this may have given until `monotonic_ns` of the boot
    /// `boot`.
    fn last_given(&self, boot: &str, monotonic_ns: u64) -> Timestamp {
        let since_ns = match monotonic_ns.checked_sub(self.monotonic_ns) {
            Some(since_ns) if self.boot == boot && !boot.is_empty() => since_ns,
            _ => u64::try_from(RENEWAL.as_nanos()).expect("some seconds"),
        };
        Timestamp(self.given_ns.saturating_add(since_ns))
    }
}

/// The id of this boot of this machine; empty if the system does not say.
fn boot() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}

/// The present process of a dispatcher.
#[derive(Clone)]
pub struct Incarnation {
    path: PathBuf,
    /// Larger than the number of every earlier process of this directory.
    pub number: u64,
}

impl Incarnation {
    /// Begins a process in the dispatcher's directory `dir`, which it has locked. From now on [`clock::now`]
    /// gives later times than any earlier process gave.
    pub fn begin(dir: &Path) -> io::Result<Incarnation> {
        let path = dir.join(FILE);
        let kept = match fs::read(&path) {
            // A torn file is ignored; then the wall clock alone makes the number a new one.
            Ok(bytes) => serde_json::from_slice::<KeptIncarnation>(&bytes).ok(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let mut number = 0;
        if let Some(kept) = kept {
            let behind_ns = clock::go_on_from(kept.last_given(&boot(), clock::monotonic_ns()));
            if behind_ns > BEHIND_SAID_NS {
                eprintln!(
                    "eyas: the clock of this machine is {} s behind the last time that is recorded in `{}`; times \
                     go on from there. Was the clock set back? Nothing depends on it but the times that are shown",
                    behind_ns / 1_000_000_000,
                    dir.display()
                );
            }
            number = kept.incarnation.saturating_add(1);
        }
        let incarnation = Incarnation { path, number: number.max(clock::now().0) };
        incarnation.keep(true)?;
        Ok(incarnation)
    }

    /// Notes that times up to now have been given.
    pub fn renew(&self) -> io::Result<()> {
        self.keep(false)
    }

    /// Does so every [`RENEWAL`].
    pub fn keep_renewed(self) {
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(RENEWAL);
            loop {
                interval.tick().await;
                let incarnation = self.clone();
                // On a full disk the last file stays, which serves most of its purpose.
                let _ = tokio::task::spawn_blocking(move || incarnation.renew()).await;
            }
        });
    }

    fn keep(&self, durable: bool) -> io::Result<()> {
        let monotonic_ns = clock::monotonic_ns();
        let given_ns = clock::of_monotonic(monotonic_ns).0;
        let kept = KeptIncarnation { incarnation: self.number, given_ns, boot: boot(), monotonic_ns };
        let bytes = serde_json::to_vec(&kept).expect("plain values");
        match durable {
            true => files::replace_durably(&self.path, &bytes),
            false => files::replace(&self.path, &bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_grow_although_the_clock_went_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = Incarnation::begin(dir.path()).unwrap();
        // As if the first process had lived where the clock was an hour ahead.
        let ahead_ns = 3_600_000_000_000;
        let given_ns = clock::now().0 + ahead_ns;
        let kept = KeptIncarnation {
            incarnation: first.number + ahead_ns,
            given_ns,
            boot: boot(),
            monotonic_ns: clock::monotonic_ns(),
        };
        fs::write(dir.path().join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        let second = Incarnation::begin(dir.path()).unwrap();
        assert!(second.number > kept.incarnation);
        assert!(clock::now().0 > given_ns);
        second.renew().unwrap();
        let third = Incarnation::begin(dir.path()).unwrap();
        assert!(third.number > second.number);
    }

    #[test]
    fn a_process_of_the_same_boot_goes_on_where_the_one_before_would_be() {
        let second_ns = 1_000_000_000;
        let kept = KeptIncarnation {
            incarnation: 1,
            given_ns: 100 * second_ns,
            boot: "b".into(),
            monotonic_ns: 7 * second_ns,
        };
        assert_eq!(kept.last_given("b", 10 * second_ns), Timestamp(103 * second_ns));
        assert_eq!(kept.last_given("b", 7 * second_ns), Timestamp(100 * second_ns));
        // Another boot, another machine's clock, or a system that does not say: what was given since the last renewal.
        for (boot, monotonic_ns) in [("c", 10 * second_ns), ("", 10 * second_ns), ("b", second_ns)] {
            assert_eq!(kept.last_given(boot, monotonic_ns), Timestamp(110 * second_ns));
        }
        let unknown = KeptIncarnation { boot: String::new(), ..kept };
        assert_eq!(unknown.last_given("", 10 * second_ns), Timestamp(110 * second_ns));
    }

    #[test]
    fn a_torn_file_does_not_keep_a_dispatcher_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), b"{\"incarnation\": 17").unwrap();
        assert!(Incarnation::begin(dir.path()).unwrap().number > 0);
    }
}
