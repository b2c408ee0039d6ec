//! Where S3 is and who we are there, from the places that Amazon's own tools use.
//!
//! Credentials are looked for in the order of those tools: the environment (`AWS_ACCESS_KEY_ID` and its fellows), the profile
//! (`AWS_PROFILE`, else `default`) in `~/.aws/credentials` and `~/.aws/config`, single sign-on, a web identity, a command
//! (`credential_process`), and the role of the container or of the instance. Those that expire are renewed. They stay in this
//! module: what it gives out is a signed request.
//!
//! The endpoint and the region come from the environment, else from the same profile of `~/.aws/config`.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::{HttpConfig, Location, web};
use bytes::Bytes;
use ini::Ini;
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use reqsign_core::{CommandExecute, CommandOutput, Context, FileRead, HttpSend, OsEnv, Signer};
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use ureq::Agent;
use ureq::http::request::Parts;

/// Where instances learn their role. Elsewhere nobody answers there, and some networks swallow the question.
const METADATA_HOST: &str = "169.254.169.254";
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Account {
    /// Without a `/` at its end. `None`: Amazon's own.
    pub endpoint: Option<String>,
    pub region: String,
    profile: String,
    /// `None`: requests are not signed, for buckets that are open to everybody.
    sign: Option<Signer<Credential>>,
    /// For buckets elsewhere than in `region`. All signers share their credentials.
    other_signers: Mutex<Vec<(String, Signer<Credential>)>>,
}

impl Account {
    /// Looks at the environment and the profile. Connects to nothing.
    pub(super) fn find(http: &HttpConfig) -> Result<Account> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let profile = variable("AWS_PROFILE")
            .or_else(|| variable("AWS_DEFAULT_PROFILE"))
            .unwrap_or_else(|| "default".into());
        let file = variable("AWS_CONFIG_FILE")
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".aws/config")));
        let section = match profile.as_str() {
            "default" => profile.clone(),
            name => format!("profile {name}"),
        };
        let config = file.and_then(|file| std::fs::read_to_string(file).ok());
        let config = config.and_then(|text| Ini::load_from_str(&text).ok());
        let setting = |name: &str| config.as_ref()?.get_from(Some(section.as_str()), name).map(str::to_owned);
        let endpoint = variable("AWS_ENDPOINT_URL_S3")
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .or_else(|| setting("endpoint_url"))
            .map(|endpoint| endpoint.trim_end_matches('/').to_owned());
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            let reason = "the endpoint of S3 has to begin with http:// or https://";
            return Err(Error::new(ErrorKind::InvalidName, Status::Permanent, "use", endpoint, reason));
        }
        let region = variable("AWS_REGION")
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .or_else(|| setting("region"))
            .unwrap_or_else(|| "us-east-1".into());
        let is_unsigned = variable("AWS_SKIP_SIGNATURE").is_some_and(|value| value == "true");
        let sign = match is_unsigned {
            true => None,
            false => {
                let agent = |config: HttpConfig| Ok(web::agent_config(&config)?.build().into());
                let patient = agent(http.clone())?;
                let quick = agent(HttpConfig {
                    connect_timeout: METADATA_TIMEOUT,
                    answer_timeout: METADATA_TIMEOUT,
                    proxy_from_env: false,
                    ..http.clone()
                })?;
                let context = Context::new()
                    .with_file_read(Files)
                    .with_http_send(Web { patient, quick, is_silent: AtomicBool::new(false) })
                    .with_env(OsEnv)
                    .with_command_execute(Commands);
                let signer = RequestSigner::new("s3", &region);
                Some(Signer::new(context, DefaultCredentialProvider::new(), signer))
            }
        };
        Ok(Account { endpoint, region, profile, sign, other_signers: Mutex::default() })
    }

    /// The profile that credentials are looked for in, for messages.
    pub(super) fn profile(&self) -> &str {
        &self.profile
    }

    /// Signs a request to a bucket of `region`.
    pub(super) fn sign(
        &self,
        region: &str,
        request: &mut Parts,
        operation: &'static str,
        location: &Location,
    ) -> Result<()> {
        let Some(signer) = &self.sign else { return Ok(()) };
        let signer = match region == self.region {
            true => signer.clone(),
            false => {
                let mut others = self.other_signers.lock().unwrap_or_else(PoisonError::into_inner);
                match others.iter().find(|(name, _)| name == region) {
                    Some((_, signer)) => signer.clone(),
                    None => {
                        let other = signer.clone().with_request_signer(RequestSigner::new("s3", region));
                        others.push((region.to_owned(), other.clone()));
                        other
                    }
                }
            }
        };
        finished(signer.sign(request, None)).map_err(|error| {
            let reason = match error.kind() {
                reqsign_core::ErrorKind::CredentialInvalid => format!(
                    "no credentials for S3 were found: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set, nor has \
                     the profile `{}` any in ~/.aws/credentials or ~/.aws/config, nor has this machine a role of its own",
                    self.profile
                ),
                _ => format!("the request could not be signed: {error}"),
            };
            let status = if error.is_retryable() { Status::Temporary } else { Status::Permanent };
            Error::new(ErrorKind::PermissionDenied, status, operation, location, reason)
        })
    }
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
        let is_metadata = request.uri().host() == Some(METADATA_HOST);
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
