//! The end of a cluster: its parts end, and what they may leave behind is ended, or named.

use crate::Cluster;
use crate::kept;
use crate::processes::PROVIDER_ENDS_MAX;
use crate::provide::{ProvideError, end_left};
use eyas_runtime::locks::{holder_of, provider_lock};
use eyas_runtime::provider::left_by;
use std::path::Path;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);
/// An end that takes longer is said to be under way.
const SLOW: Duration = Duration::from_secs(2);

impl Cluster {
    /// Ends the cluster. Gives a sentence for each thing that may be left. `in_haste`: its user does not want to wait; neither after
    /// `hurry`, which waits until the user says so, again and again. `slow` is called where nodes elsewhere take long to end.
    pub async fn end(
        mut self,
        mut in_haste: bool,
        mut hurry: impl AsyncFnMut(),
        slow: impl FnOnce(),
    ) -> Result<Vec<String>, ProvideError> {
        let parts = &mut self.processes;
        parts.ask_to_end();
        if in_haste {
            parts.hurry();
        }
        let begun = Instant::now();
        let mut slow = Some(slow).filter(|_| !in_haste);
        while !parts.have_ended() {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = hurry() => {
                    in_haste = true;
                    parts.hurry();
                }
            }
            if begun.elapsed() > SLOW
                && parts.has_provider()
                && let Some(slow) = slow.take()
            {
                slow();
            }
        }
        let cluster = self.target.cluster();
        let Some(words) = self.processes.provider_words() else { return Ok(vec![]) };
        let mut left = left_by(&self.dispatcher_dir()).unwrap_or_default();
        if self.processes.may_have_left_blocks() {
            left.extend(match in_haste {
                true => vec![format!("nodes whose names begin with eyas-{cluster}- may be left")],
                false => end_unended(words, cluster, hurry).await?,
            });
        }
        left.dedup();
        Ok(left)
    }
}

/// Ends what a provider that was killed has left.
async fn end_unended(
    words: &[String],
    cluster: &str,
    mut hurry: impl AsyncFnMut(),
) -> Result<Vec<String>, ProvideError> {
    let (words, cluster) = (words.to_vec(), cluster.to_string());
    let (send_haste, received_haste) = std::sync::mpsc::channel();
    let work = tokio::task::spawn_blocking(move || {
        end_left(&words, &cluster, &mut |haste| drop(send_haste.send(haste)))
    });
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done.expect("it does not panic"),
            () = hurry() => {
                if let Ok(haste) = received_haste.try_recv() {
                    haste.begin();
                }
            }
        }
    }
}

/// Waits for the provider of a cluster that was told to end; `dispatcher_dir` is on this machine. `slow` is called where that takes
/// long, with how long it is waited for. Errors: the process that still ends nodes.
pub fn await_provider(dispatcher_dir: &Path, slow: impl FnOnce(Duration)) -> Result<(), u32> {
    let lock = provider_lock(dispatcher_dir);
    let begun = Instant::now();
    let mut slow = Some(slow);
    while let Some(pid) = holder_of(&lock) {
        if begun.elapsed() > PROVIDER_ENDS_MAX {
            return Err(pid);
        }
        if begun.elapsed() > SLOW
            && let Some(slow) = slow.take()
        {
            slow(PROVIDER_ENDS_MAX);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Ends what the provider of a cluster that stays has left, if it was killed. `cluster` is the cluster's id. Gives a sentence for each
/// thing that may be left.
pub fn end_kept(dispatcher_dir: &Path, cluster: &str) -> Result<Vec<String>, ProvideError> {
    let left = match (left_by(dispatcher_dir), kept::words(dispatcher_dir)) {
        (Some(left), _) => left,
        (None, Some(words)) => end_left(&words, cluster, &mut drop)?,
        (None, None) => vec![],
    };
    kept::keep(dispatcher_dir, None)?;
    Ok(left)
}
