//! Connections that wait for a dispatcher which is being restarted: for a limited time, and with a message.

use crate::Fault;
use eyas_client::{Client, JoinFile};
use eyas_net::NetError;
use eyas_runtime::locks::holder_of;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a dispatcher that does not answer: a restart takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// The same limit if no process has its directory and its join file is gone: the dispatcher ended in order,
/// so most likely for good.
const PATIENCE_ENDED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no connection.
pub struct Unconnected {
    pub fault: Fault,
    /// The dispatcher answered, and does not know the key of the join file.
    pub is_refused: bool,
}

/// Reads the join file and connects; waits for a dispatcher that does not answer, as it may be restarting.
pub async fn connect(file: &JoinFile) -> Result<Client, Fault> {
    try_to_connect(file).await.map_err(|unconnected| unconnected.fault)
}

/// As [`connect`], for whoever has to know why there is no connection.
pub async fn try_to_connect(file: &JoinFile) -> Result<Client, Unconnected> {
    let begun = Instant::now();
    let mut has_said = false;
    loop {
        let e = match read_and_connect(file).await {
            Ok(client) => return Ok(client),
            Err(e) => e,
        };
        let patience = patience_with(&e, file.path());
        let is_refused = matches!(e, NetError::NotAMember { .. });
        let mut fault = Fault::from(e);
        if begun.elapsed() >= patience {
            if has_said {
                fault.message += &format!("; waited {} s", begun.elapsed().as_secs());
            }
            return Err(Unconnected { fault, is_refused });
        }
        if !std::mem::replace(&mut has_said, true) {
            eyas_text::say!(
                "note: {}; waiting up to {} s for the dispatcher to come back",
                fault.message,
                patience.as_secs()
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read_and_connect(file: &JoinFile) -> Result<Client, NetError> {
    Client::connect(&file.read()?).await
}

/// How long this error may be due to a dispatcher that is being restarted; zero if it cannot be.
fn patience_with(e: &NetError, join: &Path) -> Duration {
    match e {
        // An unknown host name or an invalid address is a mistake; such errors have no number of the
        // operating system.
        NetError::Connect { source, .. } if source.raw_os_error().is_some() => PATIENCE,
        NetError::Broken(_) | NetError::Closed => PATIENCE,
        // A dispatcher removes its join file when it ends, and writes it again when it answers.
        NetError::Identity(_) if !join.exists() && is_dispatchers(join) => {
            match holder_of(&join.with_file_name("journal").join("lock")) {
                Some(_) => PATIENCE,
                None => PATIENCE_ENDED,
            }
        }
        _ => Duration::ZERO,
    }
}

/// Whether the join file is the dispatcher's own file, and not a copy.
fn is_dispatchers(join: &Path) -> bool {
    join.parent().is_some_and(|dir| dir.join("journal").is_dir())
}
