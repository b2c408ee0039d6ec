//! The end of a cluster, in words.

use crate::Fault;
use crate::signals::AskedToEnd;
use eyas_cluster::Cluster;

/// Ends a cluster of a run's own. `in_haste`: its user does not want to wait; neither after another ^C.
pub async fn end_cluster(cluster: Cluster, in_haste: bool) -> Result<(), Fault> {
    let mut asked_to_end = AskedToEnd::listen_to_hangup()?;
    let hurry = async || asked_to_end.next().await;
    let slow = || eyas_text::say!("ending the nodes; ^C leaves at once");
    let left = cluster.end(in_haste, hurry, slow).await?;
    left.iter().for_each(|sentence| eyas_text::say!("warning: {sentence}"));
    Ok(())
}
