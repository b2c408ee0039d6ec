//! Where S3 is and who we are there, from the places that Amazon's own tools use.
//!
//! Credentials are looked for in the order of those tools: the environment (`AWS_ACCESS_KEY_ID` and its fellows), the profile
//! (`AWS_PROFILE`, else `default`) in `~/.aws/credentials` and `~/.aws/config`, single sign-on, a web identity, a command
//! (`credential_process`), and the role of the container or of the instance. Those that expire are renewed. They stay in this
//! module: what it gives out is a signed request.
//!
//! The endpoint and the region come from the environment, else from the same profile of `~/.aws/config`.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::bucket::signing::{self, variable};
use crate::{HttpConfig, Location};
use ini::Ini;
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use reqsign_core::Signer;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use ureq::http::request::Parts;

pub(crate) struct Account {
    /// Without a `/` at its end. `None`: Amazon's own.
    pub endpoint: Option<String>,
    pub region: String,
    profile: String,
    /// `None`: requests are not signed, for buckets that are open to everybody.
    sign: Option<Signer<Credential>>,
    /// For buckets elsewhere than in `region`. All signers share their credentials.
    other_signers: Mutex<Vec<(String, Signer<Credential>)>>,
}

impl signing::Account for Account {
    /// Looks at the environment and the profile, too.
    fn find(http: &HttpConfig, _: &'static str, _: &Location) -> Result<Account> {
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
                let context = signing::context(http);
                let signer = RequestSigner::new("s3", &region);
                Some(Signer::new(context, DefaultCredentialProvider::new(), signer))
            }
        };
        Ok(Account { endpoint, region, profile, sign, other_signers: Mutex::default() })
    }

    fn sign(&self, request: &mut Parts, operation: &'static str, location: &Location) -> Result<()> {
        self.sign_in(&self.region, request, operation, location)
    }
}

impl Account {
    /// The profile that credentials are looked for in, for messages.
    pub(super) fn profile(&self) -> &str {
        &self.profile
    }

    /// Signs a request to a bucket of `region`.
    pub(super) fn sign_in(
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
        signing::sign(&signer, request, operation, location, &|| {
            format!(
                "no credentials for S3 were found: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set, nor has the \
                 profile `{}` any in ~/.aws/credentials or ~/.aws/config, nor has this machine a role of its own",
                self.profile
            )
        })
    }
}
