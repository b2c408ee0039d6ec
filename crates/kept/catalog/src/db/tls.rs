//! How a connection to a PostgreSQL server is encrypted, in the words of PostgreSQL's own programs: `sslmode` and `sslrootcert`.
//!
//! Source: the documentation of PostgreSQL 15, "SSL Support" of libpq. Deviation: a connection that begins to be encrypted and fails is
//! not tried again without, and there are no certificates of clients.

use crate::error::{Error, Result};
use eyas_text::{shown, shown_path};
use postgres::config::SslMode;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a user asks of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    mode: Mode,
    /// A file with the certificates of those who may sign the server's.
    root: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    /// Encrypted if the server can.
    Prefer,
    Require,
    /// The certificate was signed by one of `root`.
    VerifyCa,
    /// And it is for the name in the URL.
    VerifyFull,
}

const MODES: [(&str, Mode); 5] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

impl Tls {
    /// Takes what a URL says of encryption out of it; the variables PGSSLMODE and PGSSLROOTCERT say what it does not say.
    ///
    /// # Errors
    /// The mode is none.
    pub(crate) fn of_url(url: &str) -> Result<(String, Tls)> {
        let (start, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = vec![];
        let (mut mode, mut root) =
            (env::var("PGSSLMODE").ok().filter(|mode| !mode.is_empty()), env::var("PGSSLROOTCERT").ok());
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("sslmode", value)) => mode = Some(unescaped(value)),
                Some(("sslrootcert", value)) => root = Some(unescaped(value)),
                _ => rest.push(word),
            }
        }
        let mode = match mode {
            None => Mode::Prefer,
            Some(mode) => {
                MODES.iter().find(|(name, _)| *name == mode).map(|(_, mode)| *mode).ok_or_else(|| {
                    let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
                    Error::bad(format!(
                        "the sslmode {} is none: it is one of {}",
                        shown(&mode),
                        names.join(", ")
                    ))
                })?
            }
        };
        let root = root.filter(|root| !root.is_empty()).map(PathBuf::from).or_else(|| {
            let usual = PathBuf::from(env::var_os("HOME")?).join(".postgresql/root.crt");
            usual.is_file().then_some(usual)
        });
        let question = if rest.is_empty() { "" } else { "?" };
        Ok((format!("{start}{question}{}", rest.join("&")), Tls { mode, root }))
    }

    /// Whether the server is asked for it.
    pub(crate) fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// # Errors
    /// The certificates that the server's is to be compared with cannot be read.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        // A file of certificates is there to be compared with, unless nothing has to be encrypted.
        let against = match (self.mode, &self.root) {
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => None,
            (_, Some(root)) => Some(root),
            (_, None) => {
                return Err(Error::bad(
                    "sslmode verify-ca and verify-full compare the server's certificate with those in a file: name it with \
                     sslrootcert=FILE in the URL or in the variable PGSSLROOTCERT, or put it into ~/.postgresql/root.crt"
                        .to_owned(),
                ));
            }
        };
        let signed = match against {
            None => None,
            Some(root) => {
                let explain = |why: String| {
                    Error::bad(format!(
                        "the certificates in {} (sslrootcert) cannot be used: {why}",
                        shown_path(root)
                    ))
                };
                let mut roots = RootCertStore::empty();
                let certificates =
                    CertificateDer::pem_file_iter(root).map_err(|error| explain(error.to_string()))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| explain(error.to_string()))?;
                    roots.add(certificate).map_err(|error| explain(error.to_string()))?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
                Some(verifier.build().map_err(|error| explain(error.to_string()))?)
            }
        };
        let by_name = self.mode == Mode::VerifyFull;
        let verifier = Arc::new(Verifier { provider: provider.clone(), signed, by_name });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the versions of TLS")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }
}

/// `%2F` is `/`.
fn unescaped(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks at a server's certificate as far as was asked for. That the server has its key is looked at in any case.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Who has to have signed it; `None`: anybody.
    signed: Option<Arc<WebPkiServerVerifier>>,
    by_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        match signed.verify_server_cert(certificate, others, name, ocsp, now) {
            // The name is what is looked at last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.by_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_says_of_encryption_is_taken_out_of_it() {
        let of = |url: &str| Tls::of_url(url).unwrap();
        let (url, tls) =
            of("postgres://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b%2Fca.crt");
        assert_eq!(url, "postgres://u@h/d?connect_timeout=3");
        assert_eq!(tls, Tls { mode: Mode::VerifyFull, root: Some("/a b/ca.crt".into()) });
        assert_eq!(of("postgres://u@h/d?sslmode=disable").0, "postgres://u@h/d");
        let error = Tls::of_url("postgres://u@h/d?sslmode=full").unwrap_err().to_string();
        assert!(error.contains("full") && error.contains("verify-full"), "{error}");
    }
}
