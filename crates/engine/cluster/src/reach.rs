//! Connections that wait for a dispatcher which is being restarted: for a limited time, and not without a word.

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
#[derive(Debug)]
pub struct Unreached {
    pub error: NetError,
    /// For how long the dispatcher was waited for, if it was.
    pub waited: Option<Duration>,
}

/// A dispatcher that does not answer yet.
#[derive(Debug)]
pub struct Waits {
    pub error: NetError,
    /// For how long it is waited for.
    pub patience: Duration,
}

/// Reads the join file and connects; waits for a dispatcher that does not answer, as it may be restarting. `say` is called once if it
/// has to be waited for.
pub async fn reach(file: &JoinFile, mut say: impl FnMut(Waits)) -> Result<Client, Unreached> {
    let mut reaching = Reaching::new(file.clone());
    loop {
        match reaching.next().await? {
            Step::There(client) => return Ok(*client),
            Step::Waits(waits) => say(waits),
        }
    }
}

/// What is next on the way to a dispatcher.
pub(crate) enum Step {
    Waits(Waits),
    There(Box<Client>),
}

/// Somebody on the way to a dispatcher.
pub(crate) struct Reaching {
    file: JoinFile,
    begun: Instant,
    waits: bool,
}

impl Reaching {
    pub fn new(file: JoinFile) -> Reaching {
        Reaching { file, begun: Instant::now(), waits: false }
    }

    /// Nothing is lost where this is dropped before it is done.
    pub async fn next(&mut self) -> Result<Step, Unreached> {
        loop {
            if self.waits {
                tokio::time::sleep(PAUSE).await;
            }
            let error = match read_and_connect(&self.file).await {
                Ok(client) => return Ok(Step::There(Box::new(client))),
                Err(error) => error,
            };
            let patience = patience_with(&error, self.file.path());
            if self.begun.elapsed() >= patience {
                return Err(Unreached { error, waited: self.waits.then(|| self.begun.elapsed()) });
            }
            if !std::mem::replace(&mut self.waits, true) {
                return Ok(Step::Waits(Waits { error, patience }));
            }
        }
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
