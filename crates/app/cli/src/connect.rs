//! Connections that wait for a dispatcher which is being restarted, in words.

use crate::Fault;
use eyas_client::{Client, JoinFile};
use eyas_cluster::reach::{Unreached, Waits, reach};

/// Reads the join file and connects; waits for a dispatcher that does not answer, and says so.
pub async fn connect(file: &JoinFile) -> Result<Client, Fault> {
    reach(file, say_waits).await.map_err(fault_of)
}

pub fn say_waits(Waits { error, patience }: Waits) {
    eyas_text::say!(
        "note: {}; waiting up to {} s for the dispatcher to come back",
        Fault::from(error).message,
        patience.as_secs()
    );
}

pub fn fault_of(Unreached { error, waited }: Unreached) -> Fault {
    let mut fault = Fault::from(error);
    if let Some(waited) = waited {
        fault.message += &format!("; waited {} s", waited.as_secs());
    }
    fault
}
