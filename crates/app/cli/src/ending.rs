//! The end of a cluster, in words.

use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use eyas_cluster::{Cluster, end};
use eyas_text::shown_path;
use std::path::Path;

/// Ends a cluster of a run's own. `in_haste`: its user does not want to wait; neither after another ^C.
pub async fn end_cluster(cluster: Cluster, in_haste: bool) -> Result<(), Fault> {
    let mut asked_to_end = AskedToEnd::listen_to_hangup()?;
    let hurry = async || asked_to_end.next().await;
    let slow = || eyas_text::say!("ending the nodes; ^C leaves at once");
    let left = cluster.end(in_haste, hurry, slow).await?;
    left.iter().for_each(|sentence| eyas_text::say!("warning: {sentence}"));
    Ok(())
}

/// Waits for the provider of a cluster that was told to end, or ends what one that was killed has left. `dispatcher_dir` is on this
/// machine; `cluster` is the cluster's id. Errors: nodes may be left, which are named.
pub fn await_provider(dispatcher_dir: &Path, cluster: &str) -> Result<(), Fault> {
    let slow = |most: std::time::Duration| {
        eyas_text::say!("ending the nodes, for at most {} s", most.as_secs());
    };
    end::await_provider(dispatcher_dir, slow).map_err(|pid| {
        let message = format!("the cluster has ended, and process {pid} still ends nodes of it");
        let log = dispatcher_dir.join("provider.log");
        Fault::new(Exit::Cluster, message).hint(format!("see {}", shown_path(&log)))
    })?;
    let left = end::end_kept(dispatcher_dir, cluster)?;
    if left.is_empty() {
        return Ok(());
    }
    let message = format!("the cluster has ended, and something of it may be left: {}", left.join("; "));
    Err(Fault::new(Exit::Cluster, message).hint("end it by the means of the batch system"))
}
