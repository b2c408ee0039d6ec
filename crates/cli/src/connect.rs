//! Connections that wait for a dispatcher which is being started again: for a while, and not without saying so.

use crate::Fault;
use eyas_client::Client;
use eyas_net::NetError;
use eyas_runtime::cluster::holder_of;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a dispatcher that does not answer is waited for: a restart takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// The same where nobody has its directory and its join file is gone: it ended in order, so most likely for good.
const PATIENCE_ENDED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Connects; a dispatcher that does not answer may be one that is being started again.
pub async fn connect(join: &Path) -> Result<Client, Fault> {
    let begun = Instant::now();
    let mut has_said = false;
    loop {
        let e = match Client::connect(join).await {
            Ok(client) => return Ok(client),
            Err(e) => e,
        };
        let patience = patience_with(&e, join);
        let mut fault = Fault::from(e);
        if begun.elapsed() >= patience {
            if has_said {
                fault.message += &format!("; waited {} s", begun.elapsed().as_secs());
            }
            return Err(fault);
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

/// How long this may be because of a dispatcher that is being started again; zero: it cannot be.
fn patience_with(e: &NetError, join: &Path) -> Duration {
    match e {
        // A name that nobody knows, or an address that is none, is a mistake, and no word of the system's.
        NetError::Connect { source, .. } if source.raw_os_error().is_some() => PATIENCE,
        NetError::Broken(_) | NetError::Closed => PATIENCE,
        // A dispatcher takes its join file along when it ends, and puts it back when it answers.
        NetError::Identity(_) if !join.exists() && is_dispatchers(join) => {
            match holder_of(&join.with_file_name("journal").join("lock")) {
                Some(_) => PATIENCE,
                None => PATIENCE_ENDED,
            }
        }
        _ => Duration::ZERO,
    }
}

/// Whether the join file is the dispatcher's own, and not a copy.
fn is_dispatchers(join: &Path) -> bool {
    join.parent().is_some_and(|dir| dir.join("journal").is_dir())
}
