//! Credentials for homes whose requests are signed: where `reqsign` finds them, and how it asks for and renews them.
//!
//! The futures of `reqsign` wait for nothing but our own blocking I/O, so they run on the calling thread.
//!
//! Not here: which places are looked at, which each home says for itself.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::{HttpConfig, Location, web};
use bytes::Bytes;
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Env, FileRead, HttpSend, Signer, SigningCredential,
};
use std::collections::HashMap;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;
use ureq::Agent;
use ureq::http::request::Parts;

/// Where the instances of a cloud learn their role. Elsewhere nobody answers there, and some networks swallow the question.
const METADATA_HOSTS: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// What is looked for at its first use and kept from then on, such as an account. What was not found is looked for again at
/// the next use.
pub(crate) struct AtFirstUse<T>(OnceLock<T>);

impl<T> Default for AtFirstUse<T> {
    fn default() -> AtFirstUse<T> {
        AtFirstUse(OnceLock::new())
    }
}

impl<T> AtFirstUse<T> {
    /// What was found, if it was used before.
    pub(crate) fn found(&self) -> Option<&T> {
        self.0.get()
    }

    /// What was found at the first use, which may be this one. Where several threads look at once, one of their results counts
    /// for all. Errors: those of `find`.
    pub(crate) fn get(&self, find: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(found) = self.0.get() {
            return Ok(found);
        }
        let found = find()?;
        Ok(self.0.get_or_init(|| found))
    }
}

/// What `reqsign` reads and asks with.
pub(crate) fn context(http: &HttpConfig) -> Result<Context> {
    let agent = |config: HttpConfig| Ok(web::agent_config(&config)?.build().into());
    let patient = agent(http.clone())?;
    let quick = agent(HttpConfig {
        connect_timeout: METADATA_TIMEOUT,
        answer_timeout: METADATA_TIMEOUT,
        proxy_from_env: false,
        ..http.clone()
    })?;
    Ok(Context::new()
        .with_file_read(Files)
        .with_http_send(Web { patient, quick, is_silent: AtomicBool::new(false) })
        .with_env(Variables)
        .with_command_execute(Commands))
}

/// A variable of the environment. An empty one is as none.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Signs a request.
///
/// * `missing`: says where credentials were looked for, if none were found.
pub(crate) fn sign<C: SigningCredential>(
    signer: &Signer<C>,
    request: &mut Parts,
    operation: &'static str,
    location: &Location,
    missing: &dyn Fn() -> String,
) -> Result<()> {
    finished(signer.sign(request, None)).map_err(|error| {
        let reason = match error.kind() {
            reqsign_core::ErrorKind::CredentialInvalid => missing(),
            _ => format!("the request could not be signed: {error}"),
        };
        let status = if error.is_retryable() { Status::Temporary } else { Status::Permanent };
        Error::new(ErrorKind::PermissionDenied, status, operation, location, reason)
    })
}

/// Runs a future that waits for nothing but this thread and for locks that other threads hold for a moment.
fn finished<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The environment, in which an empty variable is as none.
#[derive(Debug)]
struct Variables;

impl Env for Variables {
    fn var(&self, key: &str) -> Option<String> {
        variable(key)
    }

    fn vars(&self) -> HashMap<String, String> {
        let set = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        set.filter(|(_, value)| !value.is_empty()).collect()
    }

    fn home_dir(&self) -> Option<PathBuf> {
        std::env::home_dir()
    }
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        std::fs::read(path).map_err(|e| reqsign_core::Error::unexpected(format!("cannot read {path}: {e}")))
    }
}

#[derive(Debug)]
struct Web {
    patient: Agent,
    /// For the service of instances, which is near or not there.
    quick: Agent,
    /// The service of instances did not answer, so this machine is none.
    is_silent: AtomicBool,
}

impl HttpSend for Web {
    async fn http_send(
        &self,
        request: ureq::http::Request<Bytes>,
    ) -> reqsign_core::Result<ureq::http::Response<Bytes>> {
        let fail = |reason: String| reqsign_core::Error::unexpected(reason);
        let is_metadata = request.uri().host().is_some_and(|host| METADATA_HOSTS.contains(&host));
        if is_metadata && self.is_silent.load(Ordering::Relaxed) {
            return Err(fail("this machine is no instance".into()));
        }
        let agent = if is_metadata { &self.quick } else { &self.patient };
        let (parts, body) = request.into_parts();
        let answer = match body.is_empty() && parts.method != "POST" && parts.method != "PUT" {
            true => agent.run(ureq::http::Request::from_parts(parts, ())),
            false => agent.run(ureq::http::Request::from_parts(parts, &body[..])),
        };
        let answer = answer.map_err(|error| {
            self.is_silent.fetch_or(is_metadata, Ordering::Relaxed);
            fail(error.to_string())
        })?;
        let (parts, body) = answer.into_parts();
        let mut bytes = Vec::new();
        body.into_reader().take(1 << 20).read_to_end(&mut bytes).map_err(|error| fail(error.to_string()))?;
        Ok(ureq::http::Response::from_parts(parts, bytes.into()))
    }
}

#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> reqsign_core::Result<CommandOutput> {
        let output = Command::new(program).args(args).stdin(Stdio::null()).output();
        let output =
            output.map_err(|e| reqsign_core::Error::unexpected(format!("cannot start `{program}`: {e}")))?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}
