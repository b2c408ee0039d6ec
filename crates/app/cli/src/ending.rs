//! The end of a cluster: its parts end, and what they may leave behind is ended, or named.

use crate::signals::AskedToEnd;
use crate::{Exit, Fault, kept, outlived};
use eyas_runtime::cluster::{LocalCluster, PROVIDER_ENDS_MAX};
use eyas_runtime::locks::{holder_of, provider_lock};
use eyas_runtime::provider::left_by;
use std::path::Path;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);
/// An end that takes longer is said to be under way.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Ends a cluster of a run's own. `cluster` is its id. `in_haste`: its user does not want to wait; neither after another ^C.
pub async fn end_parts(parts: &mut LocalCluster, cluster: &str, mut in_haste: bool) -> Result<(), Fault> {
    let mut asked_to_end = AskedToEnd::listen_to_hangup()?;
    parts.ask_to_end();
    if in_haste {
        parts.hurry();
    }
    let begun = Instant::now();
    let mut has_said = in_haste;
    while !parts.have_ended() {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = asked_to_end.next() => {
                in_haste = true;
                parts.hurry();
            }
        }
        if begun.elapsed() > SAY_AFTER && parts.has_provider() && !std::mem::replace(&mut has_said, true) {
            eyas_text::say!("ending the nodes; ^C leaves at once");
        }
    }
    let Some(words) = parts.provider_words() else { return Ok(()) };
    let dir = parts.join.parent().unwrap_or(Path::new("."));
    let mut left = left_by(dir).unwrap_or_default();
    if parts.may_have_left_blocks() && outlived::may_leave_blocks(words) {
        left.extend(match in_haste {
            true => vec![format!("nodes whose names begin with eyas-{cluster}- may be left")],
            false => end_unended(words, cluster, asked_to_end).await?,
        });
    }
    left.dedup();
    left.iter().for_each(|sentence| eyas_text::say!("warning: {sentence}"));
    Ok(())
}

/// Ends what a provider that was killed has left.
async fn end_unended(
    words: &[String],
    cluster: &str,
    mut asked_to_end: AskedToEnd,
) -> Result<Vec<String>, Fault> {
    let (words, cluster) = (words.to_vec(), cluster.to_string());
    let (send_haste, received_haste) = std::sync::mpsc::channel();
    let work = tokio::task::spawn_blocking(move || {
        outlived::end_left(&words, &cluster, |haste| drop(send_haste.send(haste)))
    });
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done.expect("it does not panic"),
            () = asked_to_end.next() => {
                if let Ok(haste) = received_haste.try_recv() {
                    haste.begin();
                }
            }
        }
    }
}

/// Waits for the provider of a cluster that was told to end, or ends what one that was killed has left. `dispatcher_dir` is on this
/// machine; `cluster` is the cluster's id. Errors: nodes may be left, which are named.
pub fn await_provider(dispatcher_dir: &Path, cluster: &str) -> Result<(), Fault> {
    let lock = provider_lock(dispatcher_dir);
    let begun = Instant::now();
    let mut has_said = false;
    while let Some(pid) = holder_of(&lock) {
        if begun.elapsed() > PROVIDER_ENDS_MAX {
            let message = format!("the cluster has ended, and process {pid} still ends nodes of it");
            let log = dispatcher_dir.join("provider.log");
            return Err(
                Fault::new(Exit::Cluster, message).hint(format!("see {}", eyas_text::shown_path(&log)))
            );
        }
        if begun.elapsed() > SAY_AFTER && !std::mem::replace(&mut has_said, true) {
            eyas_text::say!("ending the nodes, for at most {} s", PROVIDER_ENDS_MAX.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
    let left = match (left_by(dispatcher_dir), kept::words(dispatcher_dir)) {
        (Some(left), _) => left,
        (None, Some(words)) => outlived::end_left(&words, cluster, drop)?,
        (None, None) => vec![],
    };
    kept::keep(dispatcher_dir, None)?;
    if left.is_empty() {
        return Ok(());
    }
    let message = format!("the cluster has ended, and something of it may be left: {}", left.join("; "));
    Err(Fault::new(Exit::Cluster, message).hint("end it by the means of the batch system"))
}
