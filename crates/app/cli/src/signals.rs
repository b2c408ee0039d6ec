//! The signals by which a user or a batch system asks a command to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Who asks a command to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// A user, by ^C.
    User,
    /// A batch system, which kills after some time.
    BatchSystem,
    /// The terminal was closed.
    Terminal,
}

/// ^C, and the signal of a batch system. Not the signal of a closed terminal: catching it would undo `nohup`.
pub struct AskedToEnd([Signal; 2], [Option<Signal>; 2]);

impl AskedToEnd {
    pub fn listen() -> std::io::Result<AskedToEnd> {
        Ok(AskedToEnd([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?], [None, None]))
    }

    /// The same, and the signal of a closed terminal where it is not ignored.
    pub fn listen_to_hangup() -> std::io::Result<AskedToEnd> {
        let AskedToEnd(both, [hangup, _]) = AskedToEnd::listen_to_all()?;
        Ok(AskedToEnd(both, [hangup, None]))
    }

    /// The same, the signal by which Grid Engine announces that it will kill a job, and the one of a closed terminal where it is not
    /// ignored: for commands that would leave something behind.
    pub fn listen_to_all() -> std::io::Result<AskedToEnd> {
        let AskedToEnd(both, _) = AskedToEnd::listen()?;
        let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the place is valid; nothing is changed.
        let is_ignored = unsafe {
            libc::sigaction(libc::SIGHUP, std::ptr::null(), before.as_mut_ptr()) == 0
                && before.assume_init().sa_sigaction == libc::SIG_IGN
        };
        let hangup = if is_ignored { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(AskedToEnd(both, [hangup, Some(signal(SignalKind::user_defined2())?)]))
    }

    pub async fn next(&mut self) {
        self.next_asking().await;
    }

    /// The same; gives who asks.
    pub async fn next_asking(&mut self) -> Asking {
        let AskedToEnd([interrupt, terminate], [hangup, announcement]) = self;
        tokio::select! {
            _ = interrupt.recv() => Asking::User,
            _ = terminate.recv() => Asking::BatchSystem,
            () = next_of(hangup) => Asking::Terminal,
            () = next_of(announcement) => Asking::BatchSystem,
        }
    }
}

async fn next_of(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
