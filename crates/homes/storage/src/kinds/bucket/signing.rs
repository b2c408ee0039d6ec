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
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use ureq::http::request::Parts;
use ureq::http::{Request, Response, Uri};
use ureq::{Agent, Body};

/// Where the instances of a cloud learn their role. Elsewhere nobody answers there, and some networks swallow the question.
const METADATA_HOSTS: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// An account that was refused again right after it was looked for is kept so long before it is looked for once more: most
/// refusals are about one object.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Where a home is and who we are there.
pub(crate) trait Account: Sized + Send + Sync {
    /// Looks at the environment. Connects to nothing.
    fn find(http: &HttpConfig, operation: &'static str, location: &Location) -> Result<Self>;

    /// Adds the credentials to a request, where there have to be any. Errors: there are none.
    fn sign(&self, request: &mut Parts, operation: &'static str, location: &Location) -> Result<()>;
}

/// Who we are at a home: looked for at the first use and kept, and looked for again when the server refuses it, because
/// credentials are renewed while a cluster is up. What was not found is looked for again at the next use.
pub(crate) struct Accounts<T>(Mutex<State<T>>);

struct State<T> {
    found: Option<Arc<T>>,
    /// When the server refused an account that had been looked for right before.
    refused: Option<Instant>,
    has_worked: bool,
}

impl<T> Default for Accounts<T> {
    fn default() -> Accounts<T> {
        Accounts(Mutex::new(State { found: None, refused: None, has_worked: false }))
    }
}

impl<T> Accounts<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found, if it was used before.
    pub(crate) fn found(&self) -> Option<Arc<T>> {
        self.lock().found.clone()
    }

    /// Errors: those of `find`.
    pub(crate) fn get(&self, find: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut state = self.lock();
        if let Some(found) = &state.found {
            return Ok(found.clone());
        }
        Ok(state.found.insert(Arc::new(find()?)).clone())
    }

    /// Whether a refusal of credentials is a matter that passes: a person renews them, as this process was let in before.
    pub(crate) fn status_of_refusal(&self) -> Status {
        match self.lock().has_worked {
            true => Status::Persistent,
            false => Status::Permanent,
        }
    }

    /// Asks with the account. If it is refused, the account is looked for again, and asked with once more.
    pub(crate) fn ask(
        &self,
        find: impl Fn() -> Result<T>,
        mut send: impl FnMut(&T) -> Result<Response<Body>>,
    ) -> Result<Response<Body>> {
        // Servers say 400 of a token that has expired. The answer to HEAD does not say more.
        let has_worked = self.lock().has_worked;
        let is_refusal = |answer: &Result<Response<Body>>| match answer {
            Ok(answer) => matches!(answer.status().as_u16(), 400 | 401 | 403),
            // Credentials that were found before are found no more, or cannot be renewed.
            Err(error) => has_worked && error.kind() == ErrorKind::PermissionDenied,
        };
        let account = self.get(&find)?;
        let first = send(&account);
        if !is_refusal(&first) {
            self.worked(&first);
            return first;
        }
        let again = {
            let mut state = self.lock();
            let is_old = state.found.as_ref().is_some_and(|found| Arc::ptr_eq(found, &account));
            let is_late = state.refused.is_none_or(|refused| refused.elapsed() > LOOK_AGAIN_AFTER);
            match (is_old, is_late) {
                (true, false) => return first,
                // What is found no more leaves the refusal as it is.
                (true, true) => match find() {
                    Ok(now) => state.found.insert(Arc::new(now)).clone(),
                    Err(_) => return first,
                },
                // Another request has looked meanwhile.
                (false, _) => match &state.found {
                    Some(found) => found.clone(),
                    None => return first,
                },
            }
        };
        drop(first);
        let second = send(&again);
        match is_refusal(&second) {
            true => self.lock().refused = Some(Instant::now()),
            false => self.worked(&second),
        }
        second.map_err(|error| match has_worked && error.kind() == ErrorKind::PermissionDenied {
            true => error.with_status(Status::Persistent),
            false => error,
        })
    }

    fn worked(&self, answer: &Result<Response<Body>>) {
        if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            let mut state = self.lock();
            (state.has_worked, state.refused) = (true, None);
        }
    }
}

/// What `reqsign` reads and asks with.
pub(crate) fn context(http: &HttpConfig) -> Context {
    let agent = |config: HttpConfig| -> Agent { web::agent_config(&config).build().into() };
    let patient = agent(http.clone());
    let quick = agent(HttpConfig {
        connect_timeout: METADATA_TIMEOUT,
        answer_timeout: METADATA_TIMEOUT,
        proxy_from_env: false,
        ..http.clone()
    });
    Context::new()
        .with_file_read(Files)
        .with_http_send(Web { patient, quick, is_silent: AtomicBool::new(false) })
        .with_env(Variables)
        .with_command_execute(Commands)
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

/// A request that is never sent: signing it needs credentials.
pub(crate) fn unsent() -> Parts {
    let mut request = Request::new(()).into_parts().0;
    request.uri = Uri::from_static("https://localhost/");
    request
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
        let output = crate::tied::output(Command::new(program).args(args));
        let output =
            output.map_err(|e| reqsign_core::Error::unexpected(format!("cannot start `{program}`: {e}")))?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn answer(status: u16) -> Result<Response<Body>> {
        let body = Body::builder().data(Vec::new());
        Ok(Response::builder().status(status).body(body).unwrap())
    }

    #[test]
    fn a_refused_account_is_looked_for_again() {
        let (accounts, n_found) = (Accounts::default(), AtomicU32::new(0));
        let find = || Ok(n_found.fetch_add(1, Ordering::Relaxed));
        let ask = |is_good: &dyn Fn(u32) -> bool| {
            let send = |account: &u32| answer(if is_good(*account) { 200 } else { 403 });
            accounts.ask(find, send).unwrap().status().as_u16()
        };
        // Of a home that never let anybody in, the name or the rights may be wrong.
        assert_eq!((ask(&|_| false), n_found.load(Ordering::Relaxed)), (403, 2));
        assert_eq!(accounts.status_of_refusal(), Status::Permanent);
        assert_eq!(ask(&|account| account == 1), 200);
        assert_eq!(accounts.status_of_refusal(), Status::Persistent);
        // It was renewed.
        assert_eq!((ask(&|account| account == 2), n_found.load(Ordering::Relaxed)), (200, 3));
        // Many refusals of one account, as of objects that nobody may read, are one look.
        for _ in 0..3 {
            assert_eq!(ask(&|_| false), 403);
        }
        assert_eq!(n_found.load(Ordering::Relaxed), 4);
    }
}
