//! The signals by which a user or a batch system asks a command to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// ^C, and the signal of a batch system. Not the signal of a closed terminal: catching it would undo `nohup`.
pub struct AskedToEnd([Signal; 2]);

impl AskedToEnd {
    pub fn listen() -> std::io::Result<AskedToEnd> {
        Ok(AskedToEnd([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    pub async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
