//! Which storage account it is and who we are there, from the places that Azure's own tools use.
//!
//! First the environment: `AZURE_STORAGE_CONNECTION_STRING`, or `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or
//! `AZURE_STORAGE_SAS_TOKEN`. Then whoever is logged in (`az login`), a service principal, a workload identity, and the identity
//! of the machine. What expires is renewed. Credentials stay in this module: what it gives out is a signed request.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::bucket::signing::{self, variable};
use crate::{HttpConfig, Location};
use reqsign_azure_storage::{Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider};
use reqsign_core::Signer;
use std::collections::BTreeMap;
use ureq::http::request::Parts;

/// The account of the storage emulators, which everybody knows with its key.
const OF_EMULATOR: &str = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;\
     AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;\
     BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1";

pub(crate) struct Account {
    /// Without a `/` at its end.
    pub endpoint: String,
    pub name: String,
    /// `None`: requests are not signed, for containers that are open to everybody.
    signer: Option<Signer<Credential>>,
}

impl signing::Account for Account {
    fn find(http: &HttpConfig, operation: &'static str, location: &Location) -> Result<Account> {
        let refuse = |reason: &str| {
            Err(Error::new(ErrorKind::PermissionDenied, Status::Permanent, operation, location, reason))
        };
        let text = variable("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default();
        let mut said = parts_of(&text);
        let of_emulator = parts_of(OF_EMULATOR);
        if said.get("usedevelopmentstorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            said = of_emulator;
        }
        let said = |name: &str| said.get(name).map(|value| (*value).to_owned());
        let Some(name) = said("accountname")
            .or_else(|| variable("AZURE_STORAGE_ACCOUNT"))
            .or_else(|| variable("AZURE_STORAGE_ACCOUNT_NAME"))
        else {
            return refuse(
                "no storage account of Azure is named: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING",
            );
        };
        let protocol = said("defaultendpointsprotocol").unwrap_or_else(|| "https".into());
        let suffix = said("endpointsuffix").unwrap_or_else(|| "core.windows.net".into());
        let endpoint = said("blobendpoint")
            .or_else(|| variable("AZURE_STORAGE_SERVICE_ENDPOINT"))
            .unwrap_or_else(|| format!("{protocol}://{name}.blob.{suffix}"));
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return refuse("the endpoint of Azure's storage has to begin with http:// or https://");
        }
        let key = said("accountkey")
            .or_else(|| variable("AZURE_STORAGE_KEY"))
            .or_else(|| variable("AZURE_STORAGE_ACCOUNT_KEY"));
        let token = said("sharedaccesssignature").or_else(|| variable("AZURE_STORAGE_SAS_TOKEN"));
        let others = DefaultCredentialProvider::builder().no_env().build();
        let credentials = match (key, token) {
            (Some(key), _) => others.push_front(StaticCredentialProvider::new_shared_key(&name, &key)),
            (None, Some(token)) => others
                .push_front(StaticCredentialProvider::new_sas_token(token.trim().trim_start_matches('?'))),
            (None, None) => others,
        };
        let is_unsigned = variable("AZURE_SKIP_SIGNATURE").is_some_and(|value| value == "true");
        let signer = match is_unsigned {
            true => None,
            false => Some(Signer::new(signing::context(http), credentials, RequestSigner::new())),
        };
        Ok(Account { endpoint: endpoint.trim_end_matches('/').to_owned(), name, signer })
    }

    fn sign(&self, request: &mut Parts, operation: &'static str, location: &Location) -> Result<()> {
        let Some(signer) = &self.signer else { return Ok(()) };
        signing::sign(signer, request, operation, location, &|| {
            format!(
                "no credentials for the storage account `{}` were found: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY \
                 and AZURE_STORAGE_SAS_TOKEN are not set, nobody is logged in (`az login`), and this machine has no identity \
                 of its own",
                self.name
            )
        })
    }
}

/// The settings of a connection string, by their names in lower case.
fn parts_of(text: &str) -> BTreeMap<String, &str> {
    let parts = text.split(';').filter_map(|part| part.trim().split_once('='));
    parts.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_is_taken_apart() {
        let parts = parts_of(OF_EMULATOR);
        assert_eq!(parts["accountname"], "devstoreaccount1");
        assert!(parts["accountkey"].ends_with("=="));
        assert_eq!(parts["blobendpoint"], "http://127.0.0.1:10000/devstoreaccount1");
        assert!(parts_of("").is_empty());
    }
}
