//! How a command ends: its exit status, and errors with what to do about them.

use crate::print::reason;
use eyas_cluster::StartError;
use eyas_cluster::kept::NotKept;
use eyas_cluster::processes::ProcessError;
use eyas_cluster::provide::ProvideError;
use eyas_cluster::starting::StartingError;
use eyas_cluster::users::NotLetIn;
use eyas_runtime::part::PartError;
use eyas_runtime::provider::Refusal;

/// What the command's end means to a script; documented in `docs/reference/cli.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All tasks ended well.
    Good,
    /// Some task failed or was cancelled.
    TasksFailed,
    /// The input is wrong; nothing was started.
    BadInput,
    /// The cluster cannot be reached, refused, or went away.
    Cluster,
    /// Anything else went wrong.
    Other,
    /// Ended by ^C.
    Interrupted,
    /// As the program ended that the command ran, as a shell says it: its exit status, or 128 and the number of the signal.
    Own(u8),
}

impl Exit {
    /// The exit status of the process.
    pub fn code(self) -> u8 {
        match self {
            Exit::Good => 0,
            Exit::TasksFailed => 1,
            Exit::BadInput => 2,
            Exit::Cluster => 3,
            Exit::Other => 4,
            Exit::Interrupted => 130,
            Exit::Own(code) => code,
        }
    }
}

/// An error with the exit code that it should give, and what to do about it.
#[derive(Debug)]
pub struct Fault {
    pub exit: Exit,
    pub message: String,
    pub hint: Option<String>,
    /// The reader of this program's output is gone.
    pub nobody_reads: bool,
}

impl Fault {
    pub fn new(exit: Exit, message: impl std::fmt::Display) -> Fault {
        Fault { exit, message: message.to_string(), hint: None, nobody_reads: false }
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }
}

impl From<eyas_tasklist::Error> for Fault {
    fn from(e: eyas_tasklist::Error) -> Fault {
        Fault::new(Exit::BadInput, e)
    }
}
impl From<eyas_net::NetError> for Fault {
    fn from(e: eyas_net::NetError) -> Fault {
        use eyas_net::NetError;
        match e {
            NetError::Connect { address, source } => {
                let message = format!("cannot reach the dispatcher at {address}: {}", reason(&source));
                Fault::new(Exit::Cluster, message)
                    .hint("start a cluster with `eyas up`, or name another one with --join")
            }
            // The dispatcher understood the request and says what is wrong with it.
            NetError::Refused(reason) => Fault::new(Exit::BadInput, reason),
            e => Fault::new(Exit::Cluster, e),
        }
    }
}
impl From<eyas_wire::identity::IdentityError> for Fault {
    fn from(e: eyas_wire::identity::IdentityError) -> Fault {
        eyas_net::NetError::from(e).into()
    }
}
impl From<NotLetIn> for Fault {
    fn from(e: NotLetIn) -> Fault {
        match e {
            NotLetIn::Dispatcher(e) => e.into(),
            e => bad(e),
        }
    }
}
impl From<ProcessError> for Fault {
    fn from(e: ProcessError) -> Fault {
        Fault::new(Exit::Cluster, e)
    }
}
impl From<PartError> for Fault {
    fn from(e: PartError) -> Fault {
        Fault::new(Exit::Cluster, e)
    }
}
impl From<StartingError> for Fault {
    fn from(e: StartingError) -> Fault {
        match e {
            StartingError::Held { .. } => Fault::new(Exit::Cluster, e)
                .hint("`eyas status` shows the cluster once it is up; --dir DIR is for another one"),
            StartingError::NotUtf8 { .. } => {
                Fault::new(Exit::BadInput, e).hint("choose another folder, by --dir or EYAS_STATE")
            }
            StartingError::Unusable { .. } => Fault::new(Exit::Other, e),
        }
    }
}
impl From<StartError> for Fault {
    fn from(e: StartError) -> Fault {
        match e {
            StartError::Folder { .. } => Fault::new(Exit::Other, e),
            StartError::Starting(e) => e.into(),
            StartError::Process(e) => e.into(),
            StartError::Identity(e) => e.into(),
        }
    }
}
impl From<NotKept> for Fault {
    fn from(e: NotKept) -> Fault {
        Fault::new(Exit::Other, e)
    }
}
impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault { hint: refusal.hint, ..bad(refusal.text) }
    }
}
impl From<ProvideError> for Fault {
    fn from(e: ProvideError) -> Fault {
        match e {
            ProvideError::Refused(refusal) => refusal.into(),
            ProvideError::Io(e) => e.into(),
            ProvideError::NotKept(e) => e.into(),
        }
    }
}
impl From<eyas_report::Error> for Fault {
    fn from(e: eyas_report::Error) -> Fault {
        Fault::new(Exit::BadInput, e)
    }
}
impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Fault {
        let nobody_reads = e.kind() == std::io::ErrorKind::BrokenPipe;
        Fault { nobody_reads, ..Fault::new(Exit::Other, reason(&e)) }
    }
}

/// A fault of what the user gave.
pub fn bad(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::BadInput, e)
}

/// What clap says of words that are wrong. Its text is ours, but it repeats the user's words.
pub fn usage_of(e: &clap::Error) -> String {
    eyas_text::without_secrets(&e.render().to_string()).into_owned()
}
