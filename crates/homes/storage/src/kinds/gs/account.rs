//! Who we are at Google Cloud Storage, from the places that Google's own tools use.
//!
//! `CLOUDSDK_AUTH_ACCESS_TOKEN` is a token. Otherwise the file that `GOOGLE_APPLICATION_CREDENTIALS` names, that of
//! `gcloud auth application-default login`, and the account of the machine. Tokens are renewed. `STORAGE_EMULATOR_HOST` names a
//! server of tests, which is asked without credentials. They stay in this module: what it gives out is a signed request.

use crate::error::{Error, Result};
use crate::kinds::bucket::signing::{self, variable};
use crate::{HttpConfig, Location};
use reqsign_core::Signer;
use reqsign_google::{Credential, DefaultCredentialProvider, RequestSigner, TokenCredentialProvider};
use ureq::http::request::Parts;

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

pub(crate) struct Account {
    /// Without a `/` at its end.
    pub endpoint: String,
    /// `None`: requests are not signed, for buckets that are open to everybody.
    signer: Option<Signer<Credential>>,
}

impl signing::Account for Account {
    fn find(http: &HttpConfig, _: &'static str, _: &Location) -> Result<Account> {
        let emulator = variable("STORAGE_EMULATOR_HOST").map(|host| match host.contains("://") {
            true => host.trim_end_matches('/').to_owned(),
            false => format!("http://{host}"),
        });
        let is_unsigned =
            emulator.is_some() || variable("GOOGLE_SKIP_SIGNATURE").is_some_and(|value| value == "true");
        let signer = match is_unsigned {
            true => None,
            false => {
                // Otherwise a file that is not there would be passed over in silence, for other credentials.
                if let Some(file) = variable(FILE) {
                    let operation = "use the credentials that GOOGLE_APPLICATION_CREDENTIALS names, in";
                    std::fs::File::open(&file).map_err(|error| Error::from_io(operation, &file, error))?;
                }
                let mut credentials = DefaultCredentialProvider::new();
                if let Some(token) = variable("CLOUDSDK_AUTH_ACCESS_TOKEN") {
                    credentials = credentials.push_front(TokenCredentialProvider::new(token));
                }
                Some(Signer::new(signing::context(http), credentials, RequestSigner::new("storage")))
            }
        };
        let endpoint = emulator.unwrap_or_else(|| "https://storage.googleapis.com".into());
        Ok(Account { endpoint, signer })
    }

    fn sign(&self, request: &mut Parts, operation: &'static str, location: &Location) -> Result<()> {
        let Some(signer) = &self.signer else { return Ok(()) };
        signing::sign(signer, request, operation, location, &|| {
            "no credentials for Google Cloud Storage were found: neither does GOOGLE_APPLICATION_CREDENTIALS name a file with \
             any, nor is there one of `gcloud auth application-default login`, nor has this machine an account of its own"
                .to_owned()
        })
    }
}
