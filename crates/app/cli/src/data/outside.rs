//! What this program does for those that run programs on data sets: it prints, and listens to signals.

use crate::runtimes::client_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use eyas_at_data::{Asked, Error, ErrorKind, Outside, Stream};
use eyas_text::say;
use std::io::Write;
use tokio::runtime::Runtime;

pub struct Terminal;

impl Outside for Terminal {
    fn say(&self, line: &str) {
        say!("{line}");
    }

    /// What a program prints is its own, as where it has the streams of this command.
    fn printed(&self, to: Stream, bytes: &[u8]) -> std::io::Result<()> {
        match to {
            Stream::ToStdout => eyas_text::printed_stdout().write_all(bytes),
            Stream::ToStderr => eyas_text::printed_stderr().write_all(bytes),
        }
    }

    fn listen(&self) -> std::io::Result<Box<dyn Asked>> {
        let runtime = client_runtime();
        let asked = {
            let _guard = runtime.enter();
            AskedToEnd::listen_to_all()?
        };
        Ok(Box::new(Signals(runtime, asked)))
    }
}

struct Signals(Runtime, AskedToEnd);

impl Asked for Signals {
    fn next(&mut self) {
        self.0.block_on(self.1.next());
    }

    fn end(&self) -> ! {
        say!("interrupted");
        std::process::exit(Exit::Interrupted.code().into());
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let exit = match error.kind {
            ErrorKind::Program => Exit::TasksFailed,
            ErrorKind::Input => Exit::BadInput,
            ErrorKind::System => Exit::Cluster,
            ErrorKind::Other => Exit::Other,
            ErrorKind::Interrupted => Exit::Interrupted,
        };
        Fault { exit, message: error.message, hint: error.hint, nobody_reads: error.nobody_reads }
    }
}

impl From<eyas_catalog::Error> for Fault {
    fn from(error: eyas_catalog::Error) -> Fault {
        Error::from(error).into()
    }
}
